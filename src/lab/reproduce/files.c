/* SPDX-License-Identifier: Apache-2.0 */
/* An experiment as files: JSON with everything, CSV with the numbers, a figure for each metric: our
 * medians as written, as the artifact does, and what the paper and its authors' own run give. */
#define VB_LOG_ROOM "reproduce"
#include "lab/reproduce/reproduce.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "lab/json.h"
#include "lab/report/report.h"

extern char **environ;

static json_t *span_json(struct vb_repro_span v)
{
	return isfinite(v.lo) && isfinite(v.hi) ? json_pack("[f,f]", v.lo, v.hi) : json_null();
}

/* JSON has no infinities: what is open at one end has no number there. */
static json_t *real_or_null(double v)
{
	return isfinite(v) ? json_real(v) : json_null();
}

static json_t *point_json(const struct vb_repro_result *r, const struct vb_repro_point *p)
{
	json_t *numbers = json_object(), *spreads = json_object();
	const struct vb_repro_job *first = p->job[0];

	for (const char *const *m = r->e->metrics; *m != NULL; m++) {
		struct vb_repro_span v = vb_repro_metric_of(vb_repro_metric_find(*m), p);

		json_object_set_new(numbers, *m, real_or_null(v.median));
		json_object_set_new(spreads, *m, span_json(v));
	}
	return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:O?}", "system",
			 vb_json_text(p->system->label), "series",
			 vb_json_text(p->series ? p->series->label : NULL), "x",
			 vb_json_text(p->x ? p->x->label : NULL), "options",
			 vb_json_text(first ? first->options : NULL), "not_run",
			 vb_json_text(vb_repro_why(p)), "metrics", numbers, "spread", spreads,
			 "run", first ? first->run : NULL);
}

/* What was judged, with each seed. */
static json_t *by_seed_json(const struct vb_repro_result *r, const struct vb_repro_finding *f)
{
	json_t *a = json_array();

	for (unsigned s = 0; s < r->n_seeds && f->compared > 0; s++)
		json_array_append_new(a, real_or_null(f->by_seed[s]));
	return a;
}

static json_t *finding_json(const struct vb_repro_result *r, const struct vb_repro_finding *f)
{
	const struct vb_repro_check *c = f->check;
	bool numbers = c->kind <= VB_CHECK_CELL;
	char what[256], range[64];

	return json_pack(
		"{s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:i,s:i,s:b,s:s,s:o}", "claim", c->claim,
		"what", vb_json_text(vb_repro_check_text(what, sizeof(what), c)), "ours",
		real_or_null(f->ours.median), "spread", span_json(f->ours), "by_seed",
		by_seed_json(r, f), "paper", vb_json_text(vb_repro_range(range, sizeof(range), c)),
		"paper_lo", real_or_null(numbers ? c->lo : NAN), "paper_hi",
		real_or_null(numbers ? c->hi : NAN), "distance",
		real_or_null(f->compared > 0 ? f->distance : NAN), "compared", (int)f->compared,
		"held", (int)f->held, "tie", f->tie, "verdict", vb_verdict_names[f->verdict],
		"not_run", vb_json_text(f->why[0] != '\0' ? f->why : NULL));
}

/* In another column than the first; null: it is not judged there. */
static json_t *ruling_json(const struct vb_repro_result *r, const struct vb_paper_claim *c)
{
	struct vb_repro_ruling u;

	if (!vb_repro_has_claim(r, c->id))
		return json_null();
	u = vb_repro_claim(r, c->id);
	return json_pack("{s:s,s:s,s:o,s:o,s:o,s:o}", "verdict", vb_verdict_names[u.verdict],
			 "found", vb_verdict_names[u.found], "by_construction",
			 vb_json_text(u.by_construction), "partly_run", vb_json_text(u.unchecked),
			 "explained", real_or_null(u.explained.median), "explained_spread",
			 span_json(u.explained));
}

static json_t *claim_json(const struct vb_repro_outcome *o, const struct vb_paper_claim *c)
{
	struct vb_repro_ruling u = vb_repro_claim(&o->written, c->id);

	return json_pack(
		"{s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:o,s:o,s:o,s:o,s:o,"
		"s:o,s:o}",
		"id", c->id, "where", c->where, "systems", c->systems, "setting", c->setting,
		"metric", c->metric, "claim", c->claim, "value", c->value, "kind", c->kind, "tier",
		c->tier, "artifact", c->artifact, "artifact_range", c->artifact_range, "source",
		c->source, "verdict", vb_verdict_names[u.verdict], "found",
		vb_verdict_names[u.found], "by_construction", vb_json_text(u.by_construction),
		"partly_run", vb_json_text(u.unchecked), "explained",
		real_or_null(u.explained.median), "explained_spread", span_json(u.explained),
		"as_artifact", ruling_json(&o->artifact, c), "against_artifact",
		ruling_json(&o->own, c), "artifact_against_paper", ruling_json(&o->theirs, c));
}

static json_t *seeds_json(const struct vb_repro_result *r)
{
	json_t *a = json_array();

	for (unsigned s = 0; s < r->n_seeds; s++)
		json_array_append_new(a, json_integer((json_int_t)(r->seed + s)));
	return a;
}

/* The titles of its metrics, for who draws them. */
static json_t *metrics_json(const struct vb_experiment *e)
{
	json_t *a = json_array();

	for (const char *const *m = e->metrics; *m != NULL; m++)
		json_array_append_new(a, json_pack("{s:s,s:s}", "name", *m, "title",
						   vb_repro_metric_find(*m)->title));
	return a;
}

static json_t *points_json(const struct vb_repro_result *r)
{
	json_t *points = json_array();

	for (unsigned i = 0; i < r->n; i++)
		if (r->point[i].n_seeds > 0)
			json_array_append_new(points, point_json(r, &r->point[i]));
	return points;
}

static json_t *checks_json(const struct vb_repro_result *r)
{
	json_t *checks = json_array();

	for (unsigned i = 0; i < r->n_checks; i++)
		json_array_append_new(checks, finding_json(r, &r->finding[i]));
	return checks;
}

static json_t *claims_json(const struct vb_repro_outcome *o)
{
	json_t *claims = json_array();

	for (unsigned i = 0; i < o->e->n_checks; i++) {
		const struct vb_paper_claim *c = vb_repro_first_of(o->e->checks, i);

		if (c != NULL)
			json_array_append_new(claims, claim_json(o, c));
	}
	return claims;
}

/* What it has on top of the experiment's own options, of whom. */
static json_t *variant_json(const struct vb_experiment *e, const struct vb_repro_variant *v)
{
	json_t *of = json_object();

	for (const struct vb_repro_value *o = v->values; o != NULL && o->label != NULL; o++)
		if (vb_repro_is_label(e, o->label))
			json_object_set_new(of, o->label, json_string(o->options));
	return json_pack("{s:o,s:o,s:o,s:o}", "name", vb_json_text(v->name), "options",
			 vb_json_text(v->options), "of", of, "about", vb_json_text(v->about));
}

static json_t *artifact_json(const struct vb_repro_outcome *o)
{
	json_t *column;

	if (o->e->artifact == NULL)
		return json_null();
	column = variant_json(o->e, o->e->artifact);
	vb_json_set(column, "setup", o->artifact.common);
	vb_json_set(column, "checks", checks_json(&o->artifact));
	vb_json_set(column, "own_checks", checks_json(&o->own));
	vb_json_set(column, "points", points_json(&o->artifact));
	return column;
}

static json_t *switches_json(const struct vb_repro_outcome *o)
{
	json_t *all = json_array();

	for (unsigned i = 0; i < o->n_switches; i++) {
		json_t *column = variant_json(o->e, o->switched[i].variant);

		vb_json_set(column, "checks", checks_json(&o->switched[i]));
		vb_json_set(column, "points", points_json(&o->switched[i]));
		json_array_append_new(all, column);
	}
	return all;
}

json_t *vb_repro_json(const struct vb_repro_outcome *o, double scale)
{
	const struct vb_repro_result *r = &o->written;
	json_t *root = vb_json_head(r->seed);

	vb_json_set(root, "kind", "reproduce");
	vb_json_set(root, "experiment", r->e->name);
	vb_json_set(root, "title", r->e->title);
	vb_json_set(root, "differs", r->e->differs);
	vb_json_set(root, "setup", r->common);
	vb_json_set(root, "sweep", r->e->sweep_name);
	vb_json_set(root, "seeds", seeds_json(r));
	vb_json_set(root, "scale", scale);
	vb_json_set(root, "wall_s", o->wall_s);
	vb_json_set(root, "interrupted", o->interrupted);
	vb_json_set(root, "metrics", metrics_json(r->e));
	vb_json_set(root, "claims", claims_json(o));
	vb_json_set(root, "checks", checks_json(r));
	vb_json_set(root, "points", points_json(r));
	vb_json_set(root, "artifact", artifact_json(o));
	vb_json_set(root, "switches", switches_json(o));
	return root;
}

/* ---- files ---- */

/* DIR/shiftlock-fig4SUFFIX, malloc'ed. */
static char *path_of(const char *dir, const struct vb_repro_result *r, const char *suffix)
{
	char *path = NULL;

	if (asprintf(&path, "%s/%s%s", dir, r->e->name, suffix) < 0)
		return NULL;
	*strrchr(path, '/') = '-';
	return path;
}

static int write_json(const char *path, const struct vb_repro_outcome *o, double scale)
{
	struct vb_json_out out;
	json_t *root;
	int err = vb_json_out_open(&out, path);

	if (err)
		return err;
	root = vb_repro_json(o, scale);
	err = vb_json_out_commit(&out, root);
	json_decref(root);
	return err;
}

static void put_csv(FILE *f, const struct vb_repro_result *r)
{
	fprintf(f, "system,series,%s",
		r->e->sweep_name != NULL && strchr(r->e->sweep_name, ',') == NULL ? r->e->sweep_name
										  : "x");
	for (const char *const *m = r->e->metrics; *m != NULL; m++)
		fprintf(f, ",\"%s\"", vb_repro_metric_find(*m)->title);
	for (const char *const *m = r->e->metrics; *m != NULL; m++)
		fprintf(f, ",\"lowest %s\",\"highest %s\"", *m, *m);
	fputc('\n', f);
	for (unsigned i = 0; i < r->n; i++) {
		const struct vb_repro_point *p = &r->point[i];

		fprintf(f, "%s,%s,%s", p->system->label, p->series ? p->series->label : "",
			p->x ? p->x->label : "");
		for (const char *const *m = r->e->metrics; *m != NULL; m++) {
			double v = vb_repro_metric_of(vb_repro_metric_find(*m), p).median;

			fprintf(f, isnan(v) ? "," : ",%.10g", v);
		}
		for (const char *const *m = r->e->metrics; *m != NULL; m++) {
			struct vb_repro_span v = vb_repro_metric_of(vb_repro_metric_find(*m), p);

			fprintf(f, isnan(v.lo) ? ",," : ",%.10g,%.10g", v.lo, v.hi);
		}
		fputc('\n', f);
	}
}

static int write_csv(const char *path, const struct vb_repro_result *r)
{
	struct vb_json_out out;
	FILE *to;
	int err = vb_json_out_begin(&out, path, &to);

	if (err)
		return err;
	put_csv(to, r);
	return vb_json_out_end(&out, to, 0);
}

/* ---- figures ---- */

/* Lines need an axis of numbers; anything else is bars. */
static bool is_line(const struct vb_repro_result *r)
{
	if (r->n_x < 2)
		return false;
	for (const struct vb_repro_value *x = r->e->sweep; x->label != NULL; x++) {
		char *rest;

		strtod(x->label, &rest);
		if (rest == x->label || *rest != '\0')
			return false;
	}
	return true;
}

static void put_value(FILE *f, const struct vb_repro_point *p, const struct vb_repro_metric *m)
{
	double v = vb_repro_metric_of(m, p).median;

	fprintf(f, isnan(v) ? " NaN" : " %.10g", v);
}

/* gnuplot refuses to plot nothing, and there is nothing to see if all are 0. */
static bool is_seen(const struct vb_repro_result *r, const struct vb_repro_metric *m)
{
	for (unsigned i = 0; i < r->n; i++)
		if (vb_repro_metric_of(m, &r->point[i]).median > 0)
			return true;
	return false;
}

/* Where point i stands: at a place and in a colour of the figure. */
struct mark {
	double x;
	unsigned colour;
};

/* Bars stand side by side, with the space of one between groups. */
static double bar_width(const struct vb_repro_result *r)
{
	return 1.0 / (r->n_systems + 1);
}

static struct mark mark_of(const struct vb_repro_result *r, unsigned i)
{
	const unsigned rows = r->n / r->n_systems, s = i / rows;

	if (is_line(r))
		return (struct mark){strtod(r->point[i].x->label, NULL), i / r->n_x + 1};
	return (struct mark){i % rows + bar_width(r) * (s - (r->n_systems - 1) / 2.0), s + 1};
}

static bool is_at(const char *label, const struct vb_repro_value *v)
{
	return label == NULL || strcmp(label, "*") == 0 ||
	       (v != NULL && strcmp(label, v->label) == 0);
}

/* What is said of a point itself.  A ratio says nothing of either side. */
static bool gives(const struct vb_repro_check *c, const struct vb_repro_metric *m,
		  const struct vb_repro_point *p)
{
	return (c->kind == VB_CHECK_AMOUNT || c->kind == VB_CHECK_CELL) &&
	       strcmp(c->metric, m->name) == 0 && is_at(c->a.system, p->system) &&
	       is_at(c->a.series, p->series) && is_at(c->a.x, p->x);
}

/* Black on bars, and each in its curve's colour among lines: "x y lowest highest colour". */
static void put_mark(FILE *f, const struct vb_repro_result *r, unsigned i, double v, double lo,
		     double hi)
{
	struct mark at = mark_of(r, i);

	fprintf(f, "%.10g %.10g %.10g %.10g %u\n", at.x, v, lo, hi, at.colour);
}

static unsigned put_given(FILE *f, const struct vb_repro_result *r, const struct vb_repro_check *c,
			  unsigned n_checks, const struct vb_repro_metric *m)
{
	unsigned n = 0;

	for (const struct vb_repro_check *end = c + n_checks; c < end; c++)
		for (unsigned i = 0; i < r->n; i++) {
			double lo = isfinite(c->lo) ? c->lo : c->hi;
			double hi = isfinite(c->hi) ? c->hi : c->lo;

			if (!gives(c, m, &r->point[i]) || !isfinite(lo))
				continue;
			put_mark(f, r, i, (lo + hi) / 2, lo, hi);
			n++;
		}
	return n;
}

static unsigned put_column(FILE *f, const struct vb_repro_result *r,
			   const struct vb_repro_metric *m)
{
	unsigned n = 0;

	for (unsigned i = 0; i < r->n; i++) {
		struct vb_repro_span v;

		if (r->point[i].n_seeds == 0)
			continue;
		v = vb_repro_metric_of(m, &r->point[i]);
		if (isnan(v.median))
			continue;
		put_mark(f, r, i, v.median, v.lo, v.hi);
		n++;
	}
	return n;
}

/* What our medians as written are held against. */
enum { AS_ARTIFACT, OF_PAPER, OF_AUTHORS, OTHERS };
static const struct {
	const char *title;
	unsigned shape;
} others[OTHERS] = {
	[AS_ARTIFACT] = {"as its artifact does", 6},
	[OF_PAPER] = {"the paper", 2},
	[OF_AUTHORS] = {"the artifact's own run", 8},
};

static void put_others(FILE *f, const struct vb_repro_outcome *o, const struct vb_repro_metric *m,
		       unsigned n[OTHERS])
{
	const struct vb_repro_result *r = &o->written;

	for (unsigned k = 0; k < OTHERS; k++) {
		fprintf(f, "$other%u << EOD\n", k);
		n[k] = k == AS_ARTIFACT ? put_column(f, &o->artifact, m)
		       : k == OF_PAPER  ? put_given(f, r, r->checks, r->n_checks, m)
					: put_given(f, r, o->own.checks, o->own.n_checks, m);
		fprintf(f, "EOD\n");
	}
}

static void plot_others(FILE *f, const struct vb_repro_result *r, const unsigned n[OTHERS])
{
	const bool line = is_line(r);

	for (unsigned k = 0; k < OTHERS; k++)
		if (n[k] > 0)
			fprintf(f,
				", \\\n $other%u using 1:2:3:4%s with yerrorbars pt %u ps 1.2 lw "
				"1.5 "
				"lc %s title \"%s\" noenhanced",
				k, line ? ":5" : "", others[k].shape,
				line ? "variable" : "\"black\"", others[k].title);
	fputc('\n', f);
}

/* A group for each series and x; in it a bar for each system. */
static void put_bars(FILE *f, const struct vb_repro_result *r, const struct vb_repro_metric *m)
{
	const unsigned rows = r->n / r->n_systems;

	for (unsigned s = 0; s < r->n_systems; s++) {
		fprintf(f, "$bars%u << EOD\n", s);
		for (unsigned i = s * rows; i < (s + 1) * rows; i++) {
			fprintf(f, "%.10g", mark_of(r, i).x);
			put_value(f, &r->point[i], m);
			fputc('\n', f);
		}
		fprintf(f, "EOD\n");
	}
	fprintf(f,
		"set style fill solid 0.6 noborder\nset boxwidth %.4g absolute\n"
		"set xtics rotate by -25 noenhanced (",
		0.9 * bar_width(r));
	for (unsigned i = 0; i < rows; i++) {
		const struct vb_repro_point *p = &r->point[i];

		fprintf(f, "%s\"%s%s%s\" %u", i > 0 ? ", " : "", p->series ? p->series->label : "",
			p->series && p->x ? " " : "", p->x ? p->x->label : "", i);
	}
	fprintf(f, ")\nset xrange [-0.7:%g]\nset yrange [0:*]\nplot", rows - 0.3);
	/* All of them: a mark must have its system in the legend. */
	for (unsigned s = 0; s < r->n_systems; s++)
		fprintf(f, "%s $bars%u using 1:2 with boxes lc %u title \"%s\" noenhanced",
			s > 0 ? ", \\\n" : "", s, s + 1, r->e->systems[s].label);
}

/* One block for each system and series. */
static void put_lines(FILE *f, const struct vb_repro_result *r, const struct vb_repro_metric *m)
{
	const unsigned curves = r->n / r->n_x;
	double first = strtod(r->e->sweep[0].label, NULL);
	double last = strtod(r->e->sweep[r->n_x - 1].label, NULL);

	for (unsigned c = 0; c < curves; c++) {
		fprintf(f, "$curve%u << EOD\n", c);
		for (unsigned i = 0; i < r->n_x; i++) {
			fprintf(f, "%s", r->point[c * r->n_x + i].x->label);
			put_value(f, &r->point[c * r->n_x + i], m);
			fputc('\n', f);
		}
		fprintf(f, "EOD\n");
	}
	if (first > 0 && fmax(first / last, last / first) >= VB_CHART_DECADES)
		fprintf(f, "set logscale x\n");
	fprintf(f, "set xlabel \"%s\" noenhanced\nset yrange [0:*]\nplot", r->e->sweep_name);
	for (unsigned c = 0; c < curves; c++) {
		const struct vb_repro_point *p = &r->point[c * r->n_x];

		fprintf(f,
			"%s $curve%u using 1:2 with linespoints pt 7 ps 0.4 lc %u title \"%s%s%s\" "
			"noenhanced",
			c > 0 ? ", \\\n" : "", c, c + 1, p->system->label, p->series ? ", " : "",
			p->series ? p->series->label : "");
	}
}

static void put_script(FILE *f, const struct vb_repro_outcome *o, const struct vb_repro_metric *m,
		       const char *svg)
{
	const struct vb_repro_result *r = &o->written;
	unsigned n[OTHERS];

	fprintf(f,
		"set terminal svg size 800,420 dynamic noenhanced background \"white\"\n"
		"set output \"%s\"\nset title \"%s\" noenhanced\nset ylabel \"%s\" noenhanced\n"
		"set grid ytics\nset key outside right top\n",
		svg, r->e->name, m->title);
	put_others(f, o, m, n);
	if (is_line(r))
		put_lines(f, r, m);
	else
		put_bars(f, r, m);
	plot_others(f, r, n);
}

/* gnuplot with our text as its input.  false: there is none here. */
static bool draw(FILE *script)
{
	char *const argv[] = {(char *)"gnuplot", (char *)"-", NULL};
	posix_spawn_file_actions_t actions;
	pid_t pid;
	int status, err;

	fflush(script);
	rewind(script);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fileno(script), STDIN_FILENO);
	err = posix_spawnp(&pid, "gnuplot", &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	if (err != 0)
		return false;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		vb_warn("gnuplot could not draw a figure; its message stands above");
	return true;
}

static void write_figures(const char *dir, const struct vb_repro_outcome *o)
{
	const struct vb_repro_result *r = &o->written;

	for (const char *const *name = r->e->metrics; *name != NULL; name++) {
		const struct vb_repro_metric *m = vb_repro_metric_find(*name);
		char suffix[64];
		char *svg;
		FILE *script;
		bool drawn = true;

		if (!is_seen(r, m))
			continue;
		snprintf(suffix, sizeof(suffix), "-%s.svg", m->name);
		svg = path_of(dir, r, suffix);
		script = tmpfile();
		if (svg != NULL && script != NULL) {
			put_script(script, o, m, svg);
			drawn = draw(script);
		}
		if (script != NULL)
			fclose(script);
		free(svg);
		if (!drawn) {
			vb_warn("there is no gnuplot here: no figures; the numbers are in the CSV");
			return;
		}
	}
}

int vb_repro_write(const char *dir, const struct vb_repro_outcome *o, double scale)
{
	const struct vb_repro_result *r = &o->written;
	char *json = path_of(dir, r, ".json"), *csv = path_of(dir, r, ".csv");
	int err = json == NULL || csv == NULL ? -ENOMEM : 0;

	if (err == 0 && mkdir(dir, 0777) != 0 && errno != EEXIST)
		err = vb_fail(-errno, "cannot make the folder %s: %s", dir, strerror(errno));
	if (err == 0)
		err = write_json(json, o, scale);
	if (err == 0)
		err = write_csv(csv, r);
	if (err == 0)
		write_figures(dir, o);
	free(json);
	free(csv);
	return err;
}
