/* SPDX-License-Identifier: Apache-2.0 */
/* Results of reproduce as a section of the page: claims, checks, figures, numbers. */
#include "lab/report/report.h"

#include <math.h>
#include <string.h>

#include "base/compiler.h"

#define FULL_SEEDS 5 /* a verdict takes so many: doc/claims.md */

/* Of runs that were shortened, or with too few seeds (--quick): no verdict of any colour.  Files
 * from before there were seeds say nothing of them. */
static bool is_first_look(const json_t *root)
{
	const json_t *seeds = json_object_get(root, "seeds");

	return vb_report_number(root, "scale") < 1 ||
	       (seeds != NULL && json_array_size(seeds) < FULL_SEEDS);
}

static const char *verdict_head(const json_t *root)
{
	return is_first_look(root) ? "first look" : "verdict";
}

/* The class that colours a verdict. */
static const char *colour(const json_t *root, const char *verdict)
{
	return is_first_look(root)                       ? "notrun"
	       : strcmp(verdict, "reproduced") == 0      ? "reproduced"
	       : strcmp(verdict, "direction only") == 0  ? "direction"
	       : strcmp(verdict, "partly run") == 0      ? "direction"
	       : strcmp(verdict, "by construction") == 0 ? "notrun"
	       : strcmp(verdict, "not run") == 0         ? "notrun"
							 : "failed";
}

/* A cell for each of these keys. */
static void put_strings(FILE *to, const json_t *o, const char *const *keys, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		vb_html_cell(to, vb_report_string(o, keys[i]));
}

static double number_of(const json_t *v)
{
	return json_is_number(v) ? json_number_value(v) : NAN;
}

/* Of another column; empty where the claim is in none, and in files from before there were any. */
static void put_ruling(FILE *to, const json_t *root, const json_t *claim, const char *key)
{
	const char *verdict = vb_report_string(json_object_get(claim, key), "verdict");

	if (verdict[0] == '\0')
		vb_html_cell(to, "");
	else
		vb_html_cell_class(to, colour(root, verdict), verdict);
}

static void put_claims(FILE *to, const json_t *root)
{
	const char *const head[] = {"claim",
				    "tier",
				    "where",
				    "the paper",
				    "its artifact",
				    verdict_head(root),
				    "by construction",
				    "not checked",
				    "as its artifact does",
				    "the same, against the artifact",
				    NULL};
	size_t i;
	json_t *c;

	vb_html_heading(to, 3, "Claims");
	vb_html_table_begin(to, head, false);
	json_array_foreach(json_object_get(root, "claims"), i, c)
	{
		const char *verdict = vb_report_string(c, "verdict");
		char says[512];

		snprintf(says, sizeof(says), "%.100s, %.100s: %.150s %.100s",
			 vb_report_string(c, "systems"), vb_report_string(c, "metric"),
			 vb_report_string(c, "claim"), vb_report_string(c, "value"));
		fputs(VB_HTML_ROW, to);
		put_strings(to, c, (const char *const[]){"id", "tier", "where"}, 3);
		vb_html_cell(to, says);
		vb_html_cell(to, vb_report_string(c, "artifact"));
		vb_html_cell_class(to, colour(root, verdict), verdict);
		put_strings(to, c, (const char *const[]){"by_construction", "partly_run"}, 2);
		put_ruling(to, root, c, "as_artifact");
		put_ruling(to, root, c, "against_artifact");
		fputs(VB_HTML_ROW_END, to);
	}
	fputs(VB_HTML_END, to);
}

static void put_checks(FILE *to, const json_t *root, const json_t *checks, const char *title,
		       const char *whose)
{
	const char *const head[] = {"claim",   "what", "ours",   "lowest",
				    "highest", whose,  "off by", verdict_head(root),
				    "why",     NULL};
	size_t i;
	json_t *c;

	if (json_array_size(checks) == 0)
		return;
	vb_html_heading(to, 3, title);
	vb_html_table_begin(to, head, false);
	json_array_foreach(checks, i, c)
	{
		const char *verdict = vb_report_string(c, "verdict");

		fputs(VB_HTML_ROW, to);
		put_strings(to, c, (const char *const[]){"claim", "what"}, 2);
		vb_html_cell_number(to, vb_report_number(c, "ours"));
		for (unsigned k = 0; k < 2; k++)
			vb_html_cell_number(
				to, number_of(json_array_get(json_object_get(c, "spread"), k)));
		vb_html_cell(to, vb_report_string(c, "paper"));
		vb_html_cell_number(to, vb_report_number(c, "distance"));
		vb_html_cell_class(to, colour(root, verdict), verdict);
		vb_html_cell(to, vb_report_string(c, "not_run"));
		fputs(VB_HTML_ROW_END, to);
	}
	fputs(VB_HTML_END, to);
}

/* Of the other columns. */
static void put_columns(FILE *to, const json_t *root)
{
	const json_t *artifact = json_object_get(root, "artifact");
	size_t i;
	json_t *s;

	put_checks(to, root, json_object_get(artifact, "checks"), "Checks: as its artifact does",
		   "paper");
	put_checks(to, root, json_object_get(artifact, "own_checks"),
		   "Checks: the same, against the artifact's own numbers", "artifact");
	json_array_foreach(json_object_get(root, "switches"), i, s)
	{
		char title[256];

		snprintf(title, sizeof(title), "Checks: %.200s", vb_report_string(s, "name"));
		put_checks(to, root, json_object_get(s, "checks"), title, "paper");
	}
}

/* The place of a name among those seen so far, as a new one if there is room; the limit if not. */
static unsigned place(const char **names, unsigned *n, unsigned limit, const char *name)
{
	for (unsigned i = 0; i < *n; i++)
		if (strcmp(names[i], name) == 0)
			return i;
	if (*n == limit)
		return limit;
	names[*n] = name;
	return (*n)++;
}

/* One chart of a metric: of one series along the sweep; without a sweep, of all the series. */
static void chart_one(FILE *to, const json_t *root, const json_t *metric, const char *series)
{
	const char *name = vb_report_string(metric, "name");
	const char *sweep = vb_report_string(root, "sweep");
	static struct vb_chart c;
	char title[256];
	size_t i;
	json_t *p;

	snprintf(title, sizeof(title), "%.150s%s%.80s", vb_report_string(metric, "title"),
		 series[0] ? ": " : "", series);
	c = (struct vb_chart){.title = title, .x_title = sweep};
	for (unsigned s = 0; s < VB_CHART_SERIES; s++)
		for (unsigned k = 0; k < VB_CHART_POINTS; k++)
			c.value[s][k] = NAN;
	json_array_foreach(json_object_get(root, "points"), i, p)
	{
		const json_t *v = json_object_get(json_object_get(p, "metrics"), name);
		unsigned s, x;

		if (sweep[0] != '\0' && strcmp(vb_report_string(p, "series"), series) != 0)
			continue;
		s = place(c.series, &c.n_series, VB_CHART_SERIES, vb_report_string(p, "system"));
		x = place(c.points, &c.n_points, VB_CHART_POINTS,
			  vb_report_string(p, sweep[0] != '\0' ? "x" : "series"));
		if (s < VB_CHART_SERIES && x < VB_CHART_POINTS && json_is_number(v))
			c.value[s][x] = json_number_value(v);
	}
	vb_chart_put(to, &c);
}

static void chart_metric(FILE *to, const json_t *root, const json_t *metric)
{
	const char *series[VB_CHART_SERIES];
	unsigned n = 0;
	size_t i;
	json_t *p;

	if (vb_report_string(root, "sweep")[0] == '\0') {
		chart_one(to, root, metric, "");
		return;
	}
	json_array_foreach(json_object_get(root, "points"), i, p)
		place(series, &n, VB_CHART_SERIES, vb_report_string(p, "series"));
	for (unsigned s = 0; s < n; s++)
		chart_one(to, root, metric, series[s]);
}

static void put_points(FILE *to, const json_t *root)
{
	const char *head[32] = {"system", "series", "x"};
	const json_t *metrics = json_object_get(root, "metrics");
	unsigned n = 3;
	size_t i, k;
	json_t *p, *m;

	json_array_foreach(metrics, k, m) if (n < VB_ARRAY_SIZE(head) - 2) head[n++] =
		vb_report_string(m, "title");
	head[n] = "not run";
	vb_html_heading(to, 3, "Numbers");
	vb_html_table_begin(to, head, false);
	json_array_foreach(json_object_get(root, "points"), i, p)
	{
		fputs(VB_HTML_ROW, to);
		put_strings(to, p, head, 3); /* which are called like their columns */
		json_array_foreach(metrics, k, m)
		{
			const json_t *v = json_object_get(json_object_get(p, "metrics"),
							  vb_report_string(m, "name"));

			vb_html_cell_number(to, number_of(v));
		}
		vb_html_cell(to, vb_report_string(p, "not_run"));
		fputs(VB_HTML_ROW_END, to);
	}
	fputs(VB_HTML_END, to);
}

void vb_report_reproduce(FILE *to, const json_t *root)
{
	size_t i;
	json_t *m;

	vb_html_paragraph(to, "", vb_report_string(root, "title"));
	if (is_first_look(root)) {
		char text[128];

		snprintf(text, sizeof(text),
			 "Runs of %.3g of their time with %zu of %d seeds: a first look, not a "
			 "verdict.",
			 vb_report_number(root, "scale"),
			 json_array_size(json_object_get(root, "seeds")), FULL_SEEDS);
		vb_html_paragraph(to, "direction", text);
	}
	if (vb_report_string(root, "differs")[0] != '\0')
		vb_html_around(to, "<p class=\"dim\">Differs from the paper: ",
			       vb_report_string(root, "differs"), "</p>\n");
	vb_html_around(to, "<p><code>", vb_report_string(root, "setup"), "</code></p>\n");
	put_claims(to, root);
	json_array_foreach(json_object_get(root, "metrics"), i, m) chart_metric(to, root, m);
	put_checks(to, root, json_object_get(root, "checks"), "Checks", "paper");
	put_columns(to, root);
	put_points(to, root);
}
