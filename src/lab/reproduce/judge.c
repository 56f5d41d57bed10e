/* SPDX-License-Identifier: Apache-2.0 */
/* Checks against the numbers of the points that they name, each with every seed. */
#define VB_LOG_ROOM "reproduce"
#include "lab/reproduce/reproduce.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* ---- points by their labels ---- */

static bool same(const struct vb_repro_value *v, const char *label)
{
	return label == NULL ? v == NULL : v != NULL && strcmp(v->label, label) == 0;
}

const struct vb_repro_point *vb_repro_find(const struct vb_repro_result *r, const char *system,
					   const char *series, const char *x)
{
	for (unsigned i = 0; i < r->n; i++)
		if (same(r->point[i].system, system) && same(r->point[i].series, series) &&
		    same(r->point[i].x, x))
			return &r->point[i];
	return NULL;
}

/* Rather too many than too few: a label of either side is one of both. */
static bool may_be(const char *a, const char *b, const struct vb_repro_value *v)
{
	return v == NULL ||
	       (a != NULL && (strchr("*^", a[0]) != NULL || strcmp(a, v->label) == 0)) ||
	       (b != NULL && (strchr("*^", b[0]) != NULL || strcmp(b, v->label) == 0));
}

bool vb_repro_looks_at(const struct vb_repro_check *c, const struct vb_repro_point *p)
{
	return may_be(c->a.system, c->b.system, p->system) &&
	       may_be(c->a.series, c->b.series, p->series) &&
	       (c->kind == VB_CHECK_FLAT || may_be(c->a.x, c->b.x, p->x));
}

/* One check while it is judged. */
struct judging {
	const struct vb_repro_result *r;
	struct vb_repro_finding *f;
	const struct vb_repro_metric *m;
};

static void not_run(struct judging *j, const char *why)
{
	if (j->f->why[0] == '\0')
		snprintf(j->f->why, sizeof(j->f->why), "%.150s", why);
}

/* With each seed; NAN, and why, where there is none. */
static void values(struct judging *j, const char *system, const char *series, const char *x,
		   double *v)
{
	const struct vb_repro_point *p = vb_repro_find(j->r, system, series, x);

	vb_assert(p != NULL); /* a check names what its experiment has; a unit test looks */
	for (unsigned s = 0; s < j->r->n_seeds; s++) {
		v[s] = vb_repro_metric_at(j->m, p, s);
		if (isnan(v[s]))
			not_run(j, vb_repro_why(p) != NULL ? vb_repro_why(p)
							   : "it has no such number");
	}
}

/* The weakest of the comparisons stays; of equally weak ones the farthest. */
static void keep(struct judging *j, const double *by_seed, const char *at)
{
	const struct vb_repro_check *c = j->f->check;
	struct vb_repro_span v = vb_repro_span_of(by_seed, j->r->n_seeds);
	struct vb_repro_judged judged;
	char why[160];

	if (isnan(v.median)) {
		snprintf(why, sizeof(why), "nothing to divide by: %.120s", at);
		not_run(j, why);
		return;
	}
	judged = vb_repro_judge(c, j->m, v);
	j->f->held += judged.verdict == VB_REPRODUCED;
	if (j->f->compared++ > 0 &&
	    (judged.verdict < j->f->verdict ||
	     (judged.verdict == j->f->verdict && judged.distance <= j->f->distance)))
		return;
	j->f->verdict = judged.verdict;
	j->f->distance = judged.distance;
	j->f->tie = judged.tie;
	j->f->ours = v;
	memcpy(j->f->by_seed, by_seed, j->r->n_seeds * sizeof(*by_seed));
	snprintf(j->f->at, sizeof(j->f->at), "%s", at);
}

static double over(double a, double b)
{
	return b > 0 ? a / b : NAN;
}

static void best_other(struct judging *j, const char *but, const char *series, const char *x,
		       double *best)
{
	for (unsigned s = 0; s < j->r->n_seeds; s++)
		best[s] = -INFINITY;
	for (const struct vb_repro_value *o = j->r->e->systems; o->label != NULL; o++) {
		double v[VB_REPRO_SEEDS_MAX];

		if (strcmp(o->label, but) == 0)
			continue;
		values(j, o->label, series, x, v);
		/* One that is missing might have been the best. */
		for (unsigned s = 0; s < j->r->n_seeds; s++)
			best[s] = isnan(v[s]) || isnan(best[s]) ? NAN : fmax(best[s], v[s]);
	}
}

static void values_of(struct judging *j, const char *system, const char *but, const char *series,
		      const char *x, double *v)
{
	if (strcmp(system, "^") == 0)
		best_other(j, but, series, x, v);
	else
		values(j, system, series, x, v);
}

/* a over b at one series and x, b being one system. */
static void compare(struct judging *j, const char *a, const char *b, const char *series,
		    const char *x, const char *b_series, const char *b_x)
{
	double va[VB_REPRO_SEEDS_MAX], vb[VB_REPRO_SEEDS_MAX];
	char at[96];

	values_of(j, a, b, series, x, va);
	if (b == NULL) {
		snprintf(at, sizeof(at), "%.30s %.30s %.30s", a, series ? series : "", x ? x : "");
		keep(j, va, at);
		return;
	}
	values_of(j, b, a, b_series, b_x, vb);
	for (unsigned s = 0; s < j->r->n_seeds; s++)
		va[s] = over(va[s], vb[s]);
	snprintf(at, sizeof(at), "%.30s %.30s %.30s", b, b_series ? b_series : "", b_x ? b_x : "");
	keep(j, va, at);
}

static bool is_all(const char *label)
{
	return label != NULL && strcmp(label, "*") == 0;
}

static void compare_systems(struct judging *j, const char *series, const char *x)
{
	const struct vb_repro_check *c = j->f->check;
	const char *b_series = is_all(c->a.series) ? series : c->b.series;
	const char *b_x = is_all(c->a.x) ? x : c->b.x;

	if (!is_all(c->b.system)) {
		compare(j, c->a.system, c->b.system, series, x, b_series, b_x);
		return;
	}
	for (const struct vb_repro_value *s = j->r->e->systems; s->label != NULL; s++)
		if (strcmp(s->label, c->a.system) != 0)
			compare(j, c->a.system, s->label, series, x, b_series, b_x);
}

static void compare_all(struct judging *j)
{
	static const struct vb_repro_value none[] = {{NULL, NULL}};
	const struct vb_repro_check *c = j->f->check;
	const struct vb_repro_value *series = is_all(c->a.series) ? j->r->e->series : none;
	const struct vb_repro_value *sweep = is_all(c->a.x) ? j->r->e->sweep : none;

	const struct vb_repro_value *s = series;

	do {
		const struct vb_repro_value *x = sweep;

		do
			compare_systems(j, s->label != NULL ? s->label : c->a.series,
					x->label != NULL ? x->label : c->a.x);
		while (x->label != NULL && (++x)->label != NULL);
	} while (s->label != NULL && (++s)->label != NULL);
}

/* What becomes of a system's value along the sweep, as a factor. */
static void changes(struct judging *j, const char *system, double *v)
{
	const struct vb_repro_check *c = j->f->check;
	double from[VB_REPRO_SEEDS_MAX];

	values(j, system, c->a.series, c->a.x, from);
	values(j, system, c->a.series, c->b.x, v);
	for (unsigned s = 0; s < j->r->n_seeds; s++)
		v[s] = over(v[s], from[s]);
}

static void change(struct judging *j)
{
	double v[VB_REPRO_SEEDS_MAX];

	changes(j, j->f->check->a.system, v);
	keep(j, v, "");
}

/* What is left of a's value, over what is left of the other's. */
static void keeps(struct judging *j)
{
	const struct vb_repro_check *c = j->f->check;
	const bool all = is_all(c->b.system);

	for (const struct vb_repro_value *o = j->r->e->systems; o->label != NULL; o++) {
		double v[VB_REPRO_SEEDS_MAX], other[VB_REPRO_SEEDS_MAX];

		if (all ? strcmp(o->label, c->a.system) == 0 : strcmp(o->label, c->b.system) != 0)
			continue;
		changes(j, c->a.system, v);
		changes(j, o->label, other);
		for (unsigned s = 0; s < j->r->n_seeds; s++)
			v[s] = over(v[s], other[s]);
		keep(j, v, o->label);
	}
}

/* The largest over the smallest, from a's x to b's. */
static void flat(struct judging *j)
{
	const struct vb_repro_check *c = j->f->check;
	double low[VB_REPRO_SEEDS_MAX], high[VB_REPRO_SEEDS_MAX];
	bool inside = false;

	for (const struct vb_repro_value *x = j->r->e->sweep; x->label != NULL; x++) {
		const bool first = strcmp(x->label, c->a.x) == 0;
		double v[VB_REPRO_SEEDS_MAX];

		inside |= first;
		if (!inside)
			continue;
		values(j, c->a.system, c->a.series, x->label, v);
		for (unsigned s = 0; s < j->r->n_seeds; s++) {
			/* NAN stays: neither comparison holds. */
			low[s] = first || v[s] < low[s] || isnan(v[s]) ? v[s] : low[s];
			high[s] = first || v[s] > high[s] || isnan(v[s]) ? v[s] : high[s];
		}
		if (strcmp(x->label, c->b.x) == 0)
			break;
	}
	for (unsigned s = 0; s < j->r->n_seeds; s++)
		high[s] = over(high[s], low[s]);
	keep(j, high, "");
}

static void judge_one(const struct vb_repro_result *r, const struct vb_repro_check *c,
		      struct vb_repro_finding *f)
{
	struct judging j = {.r = r, .f = f, .m = vb_repro_metric_find(c->metric)};

	*f = (struct vb_repro_finding){
		.check = c, .verdict = VB_NOT_RUN, .ours = {NAN, NAN, NAN}, .distance = 1};
	if (c->kind == VB_CHECK_FLAT)
		flat(&j);
	else if (c->kind == VB_CHECK_KEEPS)
		keeps(&j);
	else if (c->kind == VB_CHECK_RISES || c->kind == VB_CHECK_FALLS)
		change(&j);
	else
		compare_all(&j);
	/* What ran may refute a claim; it cannot confirm one when something is missing. */
	if (f->why[0] != '\0' && f->verdict != VB_NOT_REPRODUCED && f->compared > 0)
		f->verdict = VB_PARTLY;
}

void vb_repro_judge_all(struct vb_repro_result *r)
{
	for (unsigned i = 0; i < r->n_checks; i++)
		judge_one(r, &r->checks[i], &r->finding[i]);
}
