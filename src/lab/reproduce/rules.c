/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a number agrees with a paper's.  The rules are the same for every claim of every paper;
 * doc/claims.md states them, and nothing here knows whose number it judges.
 *
 * Who is ahead of whom, and by how much, does not depend on which of the two is divided by which: a
 * ratio whose paper has it below 1 is judged upside down.
 */
#define VB_LOG_ROOM "reproduce"
#include "lab/reproduce/reproduce.h"

#include <math.h>

const char *const vb_verdict_names[VB_VERDICTS] = {
	[VB_REPRODUCED] = "reproduced",           [VB_DIRECTION] = "direction only",
	[VB_BY_CONSTRUCTION] = "by construction", [VB_PARTLY] = "partly run",
	[VB_NOT_REPRODUCED] = "not reproduced",   [VB_NOT_RUN] = "not run",
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

static struct vb_repro_span inverse(struct vb_repro_span v)
{
	return (struct vb_repro_span){1 / v.median, 1 / v.hi, 1 / v.lo};
}

/* What a lead must be larger than: a tie, and what the seeds alone make of it. */
static double band(struct vb_repro_span v)
{
	return v.lo > 0 ? fmax(VB_REPRO_TIE, v.hi / v.lo) : INFINITY;
}

static bool is_tie(struct vb_repro_span v)
{
	return v.lo > 0 && fmax(v.median, 1 / v.median) <= band(v);
}

static struct vb_repro_judged near(double distance)
{
	return (struct vb_repro_judged){
		distance <= VB_REPRO_NEAR ? VB_REPRODUCED : VB_NOT_REPRODUCED, distance, false};
}

/* The paper says by how much a leads, at least by nothing (lo = 1). */
static struct vb_repro_judged judge_lead(struct vb_repro_span v, double lo, double hi)
{
	struct vb_repro_judged j = near(factor(v.median - 1, lo - 1, hi - 1));

	j.tie = is_tie(v);
	if (v.median <= band(v)) {
		j.verdict = VB_NOT_REPRODUCED;
		j.distance = factor(v.median, fmax(lo, band(v)), INFINITY);
	} else if (j.verdict != VB_REPRODUCED) {
		j.verdict = VB_DIRECTION;
	}
	return j;
}

static struct vb_repro_judged judge_ratio(struct vb_repro_span v, double lo, double hi)
{
	/* A tie there has to be one here, and no wider one because the seeds differ. */
	if (lo >= 1 / VB_REPRO_TIE && hi <= VB_REPRO_TIE) {
		double off = fmax(factor(v.lo, 1, 1), factor(v.hi, 1, 1));

		return (struct vb_repro_judged){
			off <= VB_REPRO_TIE ? VB_REPRODUCED : VB_NOT_REPRODUCED, off, false};
	}
	if (hi <= 1)
		return judge_lead(inverse(v), 1 / hi, 1 / lo);
	if (lo >= 1)
		return judge_lead(v, lo, hi);
	/* A range around 1 has no direction to keep. */
	return near(factor(v.median, lo, hi));
}

static struct vb_repro_judged judge_amount(double v, double lo, double hi,
					   const struct vb_repro_metric *m)
{
	if (v >= lo - m->floor && v <= hi + m->floor)
		return near(1);
	if (m->share && lo > 0.5)
		return near(factor(1 - v, 1 - hi, 1 - lo));
	return near(factor(v, lo, hi));
}

static struct vb_repro_judged judge_ahead(struct vb_repro_span v)
{
	return (struct vb_repro_judged){v.median > band(v) ? VB_REPRODUCED : VB_NOT_REPRODUCED,
					factor(v.median, band(v), INFINITY), is_tie(v)};
}

static struct vb_repro_judged judge_rise(struct vb_repro_span v)
{
	struct vb_repro_judged j = judge_ahead(v);

	if (j.verdict == VB_REPRODUCED && v.median < VB_REPRO_NEAR)
		j = (struct vb_repro_judged){VB_DIRECTION, VB_REPRO_NEAR / v.median, false};
	return j;
}

/* Whatever the seed: what is far apart, once one and once the other larger, is not alike. */
static struct vb_repro_judged judge_alike(struct vb_repro_span v)
{
	return near(fmax(factor(v.lo, 1, 1), factor(v.hi, 1, 1)));
}

struct vb_repro_judged vb_repro_judge(const struct vb_repro_check *c,
				      const struct vb_repro_metric *m, struct vb_repro_span v)
{
	switch (c->kind) {
	case VB_CHECK_RATIO:
		return judge_ratio(v, c->lo, c->hi);
	case VB_CHECK_AMOUNT:
	case VB_CHECK_CELL:
		return judge_amount(v.median, c->lo, c->hi, m);
	case VB_CHECK_BEHIND:
		return judge_ahead(inverse(v));
	case VB_CHECK_AHEAD:
	case VB_CHECK_KEEPS:
		return judge_ahead(v);
	case VB_CHECK_CLOSE:
	case VB_CHECK_FLAT:
		return judge_alike(v);
	case VB_CHECK_FALLS:
		return judge_rise(inverse(v));
	case VB_CHECK_RISES:
		return judge_rise(v);
	}
	return (struct vb_repro_judged){VB_NOT_REPRODUCED, INFINITY, false};
}
