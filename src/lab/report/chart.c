/* SPDX-License-Identifier: Apache-2.0 */
/* Bars and lines as SVG inside the page.  Every mark tells its value to who points at it. */
#include "lab/report/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEFT   72.0
#define TOP    14.0
#define WIDTH  760.0
#define HEIGHT 230.0
#define LINES  4 /* of the grid */

static bool as_number(const char *text, double *out)
{
	char *end;

	*out = strtod(text, &end);
	return end != text && *end == '\0' && isfinite(*out);
}

static bool is_line(const struct vb_chart *c)
{
	double x;

	for (unsigned i = 0; i < c->n_points; i++)
		if (!as_number(c->points[i], &x))
			return false;
	return c->n_points >= 2;
}

/* The next of 1, 2, 5, 10, ... at or above the largest value; 0 if there is nothing to draw. */
static double ceiling(const struct vb_chart *c)
{
	static const double steps[] = {1, 2, 2.5, 5, 10};
	double most = 0, unit;

	for (unsigned s = 0; s < c->n_series; s++)
		for (unsigned i = 0; i < c->n_points; i++)
			if (isfinite(c->value[s][i]) && c->value[s][i] > most)
				most = c->value[s][i];
	if (!(most > 0))
		return 0;
	unit = pow(10, floor(log10(most)));
	for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
		if (most <= unit * steps[i] * 1.0001)
			return unit * steps[i];
	return unit * 10;
}

static double y_of(double v, double top)
{
	return TOP + HEIGHT * (1 - v / top);
}

static void put_grid(FILE *to, double top)
{
	int digits = top >= 100 ? 0 : top >= 10 ? 1 : top >= 1 ? 2 : 4;

	for (unsigned i = 0; i <= LINES; i++) {
		double v = top * i / LINES;

		fprintf(to,
			"<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>"
			"<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%.*f</text>\n",
			LEFT, LEFT + WIDTH, y_of(v, top), y_of(v, top), LEFT - 6, y_of(v, top) + 4,
			digits, v);
	}
}

/* What is under the pointer. */
static void put_title(FILE *to, const struct vb_chart *c, unsigned s, unsigned i)
{
	vb_html_around(to, "<title>", c->series[s], ", ");
	vb_html_text(to, c->points[i]);
	fprintf(to, ": %.5g</title>", c->value[s][i]);
}

static void put_label(FILE *to, double x, double y, const char *text, bool slanted)
{
	if (slanted)
		fprintf(to,
			"<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\" "
			"transform=\"rotate(-30 %.1f %.1f)\">",
			x, y, x, y);
	else
		fprintf(to, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">", x, y);
	vb_html_around(to, "", text, "</text>\n");
}

static void put_bars(FILE *to, const struct vb_chart *c, double top)
{
	double group = WIDTH / c->n_points, gap = group * 0.15;
	double bar = (group - 2 * gap) / c->n_series;
	bool slanted = false;

	for (unsigned i = 0; i < c->n_points; i++)
		slanted |= (double)strlen(c->points[i]) * 7 > group;
	for (unsigned i = 0; i < c->n_points; i++) {
		for (unsigned s = 0; s < c->n_series; s++) {
			double v = c->value[s][i];

			if (!isfinite(v) || v < 0)
				continue;
			fprintf(to,
				"<rect class=\"c%u\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
				"height=\"%.1f\">",
				s, LEFT + i * group + gap + s * bar, y_of(v, top), bar * 0.92,
				TOP + HEIGHT - y_of(v, top));
			put_title(to, c, s, i);
			fputs("</rect>\n", to);
		}
		put_label(to, LEFT + (i + 0.5) * group, TOP + HEIGHT + 16, c->points[i], slanted);
	}
}

struct x_axis {
	double lo, hi;
	bool log;
};

static double x_of(const struct x_axis *a, double x)
{
	double lo = a->log ? log(a->lo) : a->lo, hi = a->log ? log(a->hi) : a->hi;

	if (a->log)
		x = log(x);
	return LEFT + WIDTH * (hi > lo ? 0.02 + 0.96 * (x - lo) / (hi - lo) : 0.5);
}

static struct x_axis x_axis_of(const struct vb_chart *c)
{
	struct x_axis a = {INFINITY, -INFINITY, false};

	for (unsigned i = 0; i < c->n_points; i++) {
		double x;

		as_number(c->points[i], &x);
		a.lo = fmin(a.lo, x);
		a.hi = fmax(a.hi, x);
	}
	a.log = a.lo > 0 && a.hi / a.lo >= VB_CHART_DECADES;
	return a;
}

static void put_curve(FILE *to, const struct vb_chart *c, unsigned s, const struct x_axis *a,
		      double top)
{
	double x;

	fprintf(to, "<polyline class=\"c%u\" points=\"", s);
	for (unsigned i = 0; i < c->n_points; i++)
		if (isfinite(c->value[s][i]) && as_number(c->points[i], &x))
			fprintf(to, "%.1f,%.1f ", x_of(a, x), y_of(c->value[s][i], top));
	fputs("\"/>\n", to);
	for (unsigned i = 0; i < c->n_points; i++) {
		if (!isfinite(c->value[s][i]) || !as_number(c->points[i], &x))
			continue;
		fprintf(to, "<circle class=\"c%u\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\">", s, x_of(a, x),
			y_of(c->value[s][i], top));
		put_title(to, c, s, i);
		fputs("</circle>\n", to);
	}
}

static void put_lines(FILE *to, const struct vb_chart *c, double top)
{
	struct x_axis a = x_axis_of(c);

	for (unsigned s = 0; s < c->n_series; s++)
		put_curve(to, c, s, &a, top);
	for (unsigned i = 0; i < c->n_points; i++) {
		double x;

		as_number(c->points[i], &x);
		put_label(to, x_of(&a, x), TOP + HEIGHT + 16, c->points[i], c->n_points > 12);
	}
	if (c->x_title != NULL)
		put_label(to, LEFT + WIDTH / 2, TOP + HEIGHT + 36, c->x_title, false);
}

static void put_key(FILE *to, const struct vb_chart *c)
{
	if (c->n_series < 2)
		return;
	fputs("<div class=\"key\">", to);
	for (unsigned s = 0; s < c->n_series; s++) {
		fprintf(to, "<span><i class=\"c%u\"></i>", s);
		vb_html_around(to, "", c->series[s], "</span> ");
	}
	fputs("</div>\n", to);
}

void vb_chart_put(FILE *to, const struct vb_chart *c)
{
	double top = ceiling(c);

	if (top == 0 || c->n_series == 0 || c->n_points == 0)
		return;
	fprintf(to, "<figure><svg viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" role=\"img\">\n",
		LEFT + WIDTH + 12, TOP + HEIGHT + 70, LEFT + WIDTH + 12);
	put_grid(to, top);
	if (is_line(c))
		put_lines(to, c, top);
	else
		put_bars(to, c, top);
	fputs("</svg>\n", to);
	put_key(to, c);
	vb_html_around(to, "<figcaption>", c->title, "</figcaption></figure>\n");
}
