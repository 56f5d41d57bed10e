/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims against numbers.  The rules are the same for every claim of every paper; doc/claims.md
 * states them, and nothing here knows whose claim it judges.
 */
#define VB_LOG_ROOM "reproduce"
#include "lab/reproduce/reproduce.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

const char *const vb_verdict_names[VB_VERDICTS] = {
	[VB_REPRODUCED] = "reproduced",
	[VB_DIRECTION] = "direction only",
	[VB_NOT_REPRODUCED] = "not reproduced",
	[VB_NOT_RUN] = "not run",
};

/* The factor between v and the nearest value of lo..hi; 1 inside. */
static double factor(double v, double lo, double hi)
{
	if (v >= lo && v <= hi)
		return 1;
	if (!(v > 0))
		return INFINITY;
	return v < lo ? lo / v : hi > 0 ? v / hi : INFINITY;
}

static enum vb_verdict judge_ratio(double v, double lo, double hi, double *distance)
{
	bool up = lo >= 1, down = hi <= 1;

	*distance = factor(v, lo, hi);
	if ((up && !down && v <= 1) || (down && !up && v >= 1))
		return VB_NOT_REPRODUCED;
	if (*distance <= VB_REPRO_NEAR)
		return VB_REPRODUCED;
	/* A range around 1 has no direction to keep. */
	return up != down ? VB_DIRECTION : VB_NOT_REPRODUCED;
}

static enum vb_verdict judge_amount(double v, double lo, double hi, double floor, double *distance)
{
	if (v >= lo - floor && v <= hi + floor) {
		*distance = 1;
		return VB_REPRODUCED;
	}
	*distance = factor(v, lo, hi);
	if (*distance <= VB_REPRO_NEAR)
		return VB_REPRODUCED;
	return *distance <= VB_REPRO_SIZE ? VB_DIRECTION : VB_NOT_REPRODUCED;
}

enum vb_verdict vb_repro_judge(enum vb_repro_kind kind, double v, double lo, double hi,
			       double floor, double *distance)
{
	switch (kind) {
	case VB_CHECK_RATIO:
		return judge_ratio(v, lo, hi, distance);
	case VB_CHECK_AMOUNT:
		return judge_amount(v, lo, hi, floor, distance);
	case VB_CHECK_BEHIND:
		v = 1 / v;
		/* fall through */
	case VB_CHECK_AHEAD:
	case VB_CHECK_KEEPS:
		*distance = factor(v, 1, INFINITY);
		return v > 1                      ? VB_REPRODUCED
		       : *distance < VB_REPRO_TIE ? VB_DIRECTION
						  : VB_NOT_REPRODUCED;
	case VB_CHECK_CLOSE:
	case VB_CHECK_FLAT:
		return judge_amount(v, 1, 1, 0, distance);
	case VB_CHECK_FALLS:
		v = 1 / v;
		/* fall through */
	case VB_CHECK_RISES:
		*distance = factor(v, VB_REPRO_NEAR, INFINITY);
		return v >= VB_REPRO_NEAR ? VB_REPRODUCED
		       : v > 1            ? VB_DIRECTION
					  : VB_NOT_REPRODUCED;
	}
	return VB_NOT_REPRODUCED;
}

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

/* One check while it is judged. */
struct judging {
	const struct vb_repro_result *r;
	struct vb_repro_finding *f;
	const struct vb_repro_metric *m;
};

static void not_run(struct judging *j, const struct vb_repro_point *p)
{
	if (j->f->why[0] == '\0')
		snprintf(j->f->why, sizeof(j->f->why), "%.150s",
			 p->job != NULL && p->job->why != NULL ? p->job->why
							       : "it has no such number");
}

/* NAN, and why, if there is none. */
static double value(struct judging *j, const char *system, const char *series, const char *x)
{
	const struct vb_repro_point *p = vb_repro_find(j->r, system, series, x);
	double v;

	vb_assert(p != NULL); /* a check names what its experiment has; a unit test looks */
	v = vb_repro_metric_of(j->m, p);
	if (isnan(v))
		not_run(j, p);
	return v;
}

/* The weakest of the comparisons stays; of equally weak ones the farthest. */
static void keep(struct judging *j, double v, const char *at)
{
	const struct vb_repro_check *c = j->f->check;
	double distance = 1;
	enum vb_verdict verdict;

	if (isnan(v))
		return;
	verdict = vb_repro_judge(c->kind, v, c->lo, c->hi, j->m->floor, &distance);
	j->f->held += verdict == VB_REPRODUCED;
	if (j->f->compared++ > 0 &&
	    (verdict < j->f->verdict || (verdict == j->f->verdict && distance <= j->f->distance)))
		return;
	j->f->verdict = verdict;
	j->f->ours = v;
	j->f->distance = distance;
	snprintf(j->f->at, sizeof(j->f->at), "%s", at);
}

static double best_other(struct judging *j, const char *but, const char *series, const char *x)
{
	double best = NAN;

	for (const struct vb_repro_value *s = j->r->e->systems; s->label != NULL; s++) {
		double v;

		if (strcmp(s->label, but) == 0)
			continue;
		v = value(j, s->label, series, x);
		if (isnan(v))
			return NAN; /* it might have been that one */
		if (isnan(best) || v > best)
			best = v;
	}
	return best;
}

/* a over b at one series and x, b being one system. */
static void compare(struct judging *j, const char *a, const char *b, const char *series,
		    const char *x, const char *b_series, const char *b_x)
{
	double va = strcmp(a, "^") == 0 ? best_other(j, b, series, x) : value(j, a, series, x);
	double vb;
	char at[96];

	if (b == NULL) {
		snprintf(at, sizeof(at), "%.30s %.30s %.30s", a, series ? series : "", x ? x : "");
		keep(j, va, at);
		return;
	}
	vb = strcmp(b, "^") == 0 ? best_other(j, a, b_series, b_x) : value(j, b, b_series, b_x);
	snprintf(at, sizeof(at), "%.30s %.30s %.30s", b, b_series ? b_series : "", b_x ? b_x : "");
	keep(j, vb > 0 ? va / vb : NAN, at);
	if (vb == 0)
		snprintf(j->f->why, sizeof(j->f->why), "nothing to divide by: %.120s", at);
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

/* Along the sweep, for one system and series. */
static void change(struct judging *j)
{
	const struct vb_repro_check *c = j->f->check;
	double from = value(j, c->a.system, c->a.series, c->a.x);
	double to = value(j, c->a.system, c->a.series, c->b.x);

	keep(j, from > 0 ? to / from : NAN, "");
}

/* What is left of a's value, over what is left of the other's. */
static void keeps(struct judging *j)
{
	const struct vb_repro_check *c = j->f->check;
	double from = value(j, c->a.system, c->a.series, c->a.x);
	double to = value(j, c->a.system, c->a.series, c->b.x);
	const bool all = is_all(c->b.system);

	for (const struct vb_repro_value *s = j->r->e->systems; s->label != NULL; s++) {
		double other_from, other_to;

		if (all ? strcmp(s->label, c->a.system) == 0 : strcmp(s->label, c->b.system) != 0)
			continue;
		other_from = value(j, s->label, c->a.series, c->a.x);
		other_to = value(j, s->label, c->a.series, c->b.x);
		keep(j, from > 0 && other_to > 0 ? to / from / (other_to / other_from) : NAN,
		     s->label);
	}
}

static void flat(struct judging *j)
{
	const struct vb_repro_check *c = j->f->check;
	double low = NAN, high = NAN;
	bool inside = false;

	for (const struct vb_repro_value *x = j->r->e->sweep; x->label != NULL; x++) {
		double v;

		inside |= strcmp(x->label, c->a.x) == 0;
		if (!inside)
			continue;
		v = value(j, c->a.system, c->a.series, x->label);
		if (isnan(v))
			return;
		low = isnan(low) || v < low ? v : low;
		high = isnan(high) || v > high ? v : high;
		if (strcmp(x->label, c->b.x) == 0)
			break;
	}
	keep(j, low > 0 ? high / low : NAN, "");
}

static void judge_one(const struct vb_repro_result *r, const struct vb_repro_check *c,
		      struct vb_repro_finding *f)
{
	struct judging j = {.r = r, .f = f, .m = vb_repro_metric_find(c->metric)};

	*f = (struct vb_repro_finding){
		.check = c, .verdict = VB_NOT_RUN, .ours = NAN, .distance = 1};
	if (c->kind == VB_CHECK_FLAT)
		flat(&j);
	else if (c->kind == VB_CHECK_KEEPS)
		keeps(&j);
	else if (c->kind == VB_CHECK_RISES || c->kind == VB_CHECK_FALLS)
		change(&j);
	else
		compare_all(&j);
	/* What ran may refute a claim; it cannot confirm one when something is missing. */
	if (f->why[0] != '\0' && f->verdict != VB_NOT_REPRODUCED)
		f->verdict = VB_NOT_RUN;
}

void vb_repro_judge_all(struct vb_repro_result *r)
{
	for (unsigned i = 0; i < r->e->n_checks; i++)
		judge_one(r, &r->e->checks[i], &r->finding[i]);
}

const struct vb_paper_claim *vb_repro_first_of(const struct vb_experiment *e, unsigned i)
{
	for (unsigned k = 0; k < i; k++)
		if (strcmp(e->checks[k].claim, e->checks[i].claim) == 0)
			return NULL;
	return vb_paper_claim_find(e->checks[i].claim);
}

/* A check that failed says more than one that did not run; that one, more than those that held. */
static unsigned weakness(enum vb_verdict v)
{
	static const unsigned order[VB_VERDICTS] = {
		[VB_REPRODUCED] = 0,
		[VB_DIRECTION] = 1,
		[VB_NOT_RUN] = 2,
		[VB_NOT_REPRODUCED] = 3,
	};

	return order[v];
}

enum vb_verdict vb_repro_claim(const struct vb_repro_result *r, const char *claim,
			       const struct vb_repro_finding **weakest)
{
	const struct vb_repro_finding *worst = NULL;

	for (unsigned i = 0; i < r->e->n_checks; i++) {
		const struct vb_repro_finding *f = &r->finding[i];

		if (strcmp(f->check->claim, claim) != 0)
			continue;
		if (worst == NULL || weakness(f->verdict) > weakness(worst->verdict) ||
		    (f->verdict == worst->verdict && f->distance > worst->distance))
			worst = f;
	}
	*weakest = worst;
	return worst != NULL ? worst->verdict : VB_NOT_RUN;
}
