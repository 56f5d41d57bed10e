/* SPDX-License-Identifier: Apache-2.0 */
/* Claims: what their checks have found, and what must be known before that counts. */
#define VB_LOG_ROOM "reproduce"
#include "lab/reproduce/reproduce.h"

#include <math.h>
#include <string.h>

#include "base/compiler.h"

const struct vb_paper_claim *vb_repro_first_of(const struct vb_repro_check *checks, unsigned i)
{
	for (unsigned k = 0; k < i; k++)
		if (strcmp(checks[k].claim, checks[i].claim) == 0)
			return NULL;
	return vb_paper_claim_find(checks[i].claim);
}

bool vb_repro_has_claim(const struct vb_repro_result *r, const char *claim)
{
	for (unsigned i = 0; i < r->n_checks; i++)
		if (strcmp(r->checks[i].claim, claim) == 0)
			return true;
	return false;
}

/* A check that failed says more than one that did not run; that one, more than those that held. */
static unsigned weakness(enum vb_verdict v)
{
	static const unsigned order[VB_VERDICTS] = {
		[VB_REPRODUCED] = 0, [VB_DIRECTION] = 1, [VB_BY_CONSTRUCTION] = 2,
		[VB_PARTLY] = 3,     [VB_NOT_RUN] = 4,   [VB_NOT_REPRODUCED] = 5,
	};

	return order[v];
}

static bool is_of(const struct vb_repro_finding *f, const char *claim)
{
	return strcmp(f->check->claim, claim) == 0;
}

static void of_checks(const struct vb_repro_result *r, const char *claim, struct vb_repro_ruling *u)
{
	const struct vb_repro_finding *worst = NULL;
	bool any = false;

	for (unsigned i = 0; i < r->n_checks; i++) {
		const struct vb_repro_finding *f = &r->finding[i];

		if (!is_of(f, claim))
			continue;
		any |= f->verdict != VB_NOT_RUN;
		if (worst == NULL || weakness(f->verdict) > weakness(worst->verdict) ||
		    (f->verdict == worst->verdict && f->distance > worst->distance))
			worst = f;
	}
	u->weakest = worst;
	u->found = worst == NULL ? VB_NOT_RUN : worst->verdict;
	if (u->found == VB_NOT_RUN && any)
		u->found = VB_PARTLY;
}

/* How much of a row's time, the paper's and ours laid over each other cell by cell, is in both. */
static double explained(const struct vb_repro_result *r, const char *claim, unsigned seed)
{
	double both = 0, either = 0;

	for (unsigned i = 0; i < r->n_checks; i++) {
		const struct vb_repro_finding *f = &r->finding[i];

		if (!is_of(f, claim))
			continue;
		both += fmin(f->by_seed[seed], f->check->lo);
		either += fmax(f->by_seed[seed], f->check->lo);
	}
	return both / either; /* no row of a paper is all zeros */
}

static const struct vb_repro_finding *missing(const struct vb_repro_result *r, const char *claim)
{
	for (unsigned i = 0; i < r->n_checks; i++)
		if (is_of(&r->finding[i], claim) && r->finding[i].compared == 0)
			return &r->finding[i];
	return NULL;
}

/* The cell that is farthest from the paper's, in microseconds. */
static const struct vb_repro_finding *farthest(const struct vb_repro_result *r, const char *claim)
{
	const struct vb_repro_finding *far = NULL;

	for (unsigned i = 0; i < r->n_checks; i++) {
		const struct vb_repro_finding *f = &r->finding[i];

		if (is_of(f, claim) &&
		    (far == NULL ||
		     fabs(f->ours.median - f->check->lo) > fabs(far->ours.median - far->check->lo)))
			far = f;
	}
	return far;
}

/* One cell that is missing leaves the row without a verdict. */
static void of_row(const struct vb_repro_result *r, const char *claim, struct vb_repro_ruling *u)
{
	double share[VB_REPRO_SEEDS_MAX];

	u->found = VB_NOT_RUN;
	u->weakest = missing(r, claim);
	if (u->weakest != NULL)
		return;
	for (unsigned s = 0; s < r->n_seeds; s++)
		share[s] = explained(r, claim, s);
	u->explained = vb_repro_span_of(share, r->n_seeds);
	u->weakest = farthest(r, claim);
	u->found = u->explained.median >= 1 / VB_REPRO_NEAR ? VB_REPRODUCED : VB_NOT_REPRODUCED;
}

static bool is_row(const struct vb_repro_result *r, const char *claim)
{
	for (unsigned i = 0; i < r->n_checks; i++)
		if (strcmp(r->checks[i].claim, claim) == 0)
			return r->checks[i].kind == VB_CHECK_CELL;
	return false;
}

static void note(const struct vb_repro_note *n, const char *claim, struct vb_repro_ruling *u)
{
	for (; n != NULL && n->claim != NULL; n++) {
		if (strcmp(n->claim, claim) != 0)
			continue;
		u->by_construction =
			n->by_construction != NULL ? n->by_construction : u->by_construction;
		u->unchecked = n->unchecked != NULL ? n->unchecked : u->unchecked;
	}
}

struct vb_repro_ruling vb_repro_claim(const struct vb_repro_result *r, const char *claim)
{
	struct vb_repro_ruling u = {.explained = {NAN, NAN, NAN}};

	for (unsigned i = 0; i < VB_ARRAY_SIZE(r->notes); i++)
		note(r->notes[i], claim, &u);
	if (is_row(r, claim))
		of_row(r, claim, &u);
	else
		of_checks(r, claim, &u);
	u.verdict = u.found;
	/* What could not fail can still be refuted, and then something is wrong with it. */
	if (u.found == VB_NOT_REPRODUCED || u.found == VB_NOT_RUN)
		return u;
	if (u.by_construction != NULL)
		u.verdict = VB_BY_CONSTRUCTION;
	else if (u.unchecked != NULL)
		u.verdict = VB_PARTLY;
	return u;
}
