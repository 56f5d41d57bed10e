/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The columns of an experiment: as its paper is written, as its artifact does, and with a switch.
 *
 * The artifact's column is judged twice, against the paper's numbers and against those that its
 * authors have found when they ran it again.  These are judged against the paper's, too, as if they
 * were ours: what the code of a paper contradicts need not be found here.
 */
#define VB_LOG_ROOM "reproduce"
#include "lab/reproduce/reproduce.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/log.h"

/* ---- points ---- */

struct making {
	struct vb_repro_jobs *jobs;
	double scale;
	uint64_t seed;
	unsigned n_seeds;
};

/* Its runs, one with each seed. */
static int set_up_point(const struct vb_repro_result *r, struct vb_repro_point *p,
			const struct making *m, unsigned n_seeds)
{
	p->n_seeds = n_seeds;
	for (unsigned k = 0; k < n_seeds; k++) {
		p->job[k] = vb_repro_job(m->jobs,
					 vb_repro_options(r->e, r->variant, p->system, p->series,
							  p->x, m->scale, m->seed + k));
		if (p->job[k] == NULL)
			return vb_fail(-ENOMEM, "no memory for an experiment");
	}
	return 0;
}

static bool looks_at(const struct vb_repro_check *checks, unsigned n,
		     const struct vb_repro_point *p)
{
	for (unsigned i = 0; i < n; i++)
		if (vb_repro_looks_at(&checks[i], p))
			return true;
	return false;
}

/* The artifact's points are also held against its own numbers. */
static bool is_compared(const struct vb_repro_result *r, const struct vb_repro_point *p)
{
	return looks_at(r->checks, r->n_checks, p) ||
	       (r->variant == r->e->artifact && looks_at(r->e->own_checks, r->e->n_own_checks, p));
}

static int set_up_points(struct vb_repro_result *r, const struct making *m)
{
	const struct vb_experiment *e = r->e;
	unsigned series = r->n_series > 0 ? r->n_series : 1, sweep = r->n_x > 0 ? r->n_x : 1;
	int err = 0;

	r->n = r->n_systems * series * sweep;
	r->point = calloc(r->n, sizeof(*r->point));
	r->common = vb_repro_options(e, r->variant, NULL, NULL, NULL, m->scale, m->seed);
	if (r->point == NULL || r->common == NULL)
		return vb_fail(-ENOMEM, "no memory for an experiment");
	for (unsigned i = 0; i < r->n && err == 0; i++) {
		struct vb_repro_point *p = &r->point[i];

		p->system = &e->systems[i / sweep / series];
		p->series = r->n_series > 0 ? &e->series[i / sweep % series] : NULL;
		p->x = r->n_x > 0 ? &e->sweep[i % sweep] : NULL;
		if (is_compared(r, p))
			err = set_up_point(r, p, m, m->n_seeds);
		else if (r->variant == NULL)
			err = set_up_point(r, p, m, 1); /* for the figure */
	}
	return err;
}

/* ---- columns ---- */

static bool is_on(const struct vb_repro_value *axis, const char *label)
{
	for (; axis != NULL && axis->label != NULL; axis++)
		if (strcmp(axis->label, label) == 0)
			return true;
	return false;
}

bool vb_repro_is_label(const struct vb_experiment *e, const char *label)
{
	return is_on(e->systems, label) || is_on(e->series, label) || is_on(e->sweep, label);
}

static int begin(struct vb_repro_result *r, const struct vb_experiment *e,
		 const struct vb_repro_check *checks, unsigned n_checks, const struct making *m)
{
	*r = (struct vb_repro_result){.e = e,
				      .whose = "paper",
				      .checks = checks,
				      .n_checks = n_checks,
				      .n_systems = vb_repro_length(e->systems),
				      .n_series = vb_repro_length(e->series),
				      .n_x = vb_repro_length(e->sweep),
				      .n_seeds = m->n_seeds,
				      .seed = m->seed};
	r->finding = calloc(n_checks + 1, sizeof(*r->finding));
	return r->finding != NULL ? 0 : vb_fail(-ENOMEM, "no memory for an experiment");
}

static int set_up_artifact(struct vb_repro_outcome *o, const struct making *m)
{
	const struct vb_experiment *e = o->e;
	int err = begin(&o->artifact, e, e->checks, e->n_checks, m);

	o->artifact.variant = e->artifact;
	o->artifact.notes[0] = e->notes;
	o->artifact.notes[1] = e->artifact_notes;
	if (err == 0)
		err = set_up_points(&o->artifact, m);
	if (err == 0 && e->n_own_checks > 0) {
		err = begin(&o->own, e, e->own_checks, e->n_own_checks, m);
		o->own.whose = "artifact";
		o->own.variant = e->artifact;
		o->own.notes[0] = e->notes;
		o->own.notes[1] = e->artifact_notes;
		o->own.point = o->artifact.point;
		o->own.n = o->artifact.n;
	}
	return err;
}

static bool is_named(const char *claims, const char *claim)
{
	size_t len = strlen(claim);

	for (const char *at = claims; (at = strstr(at, claim)) != NULL; at += len)
		if ((at == claims || at[-1] == ' ') && (at[len] == '\0' || at[len] == ' '))
			return true;
	return false;
}

static int set_up_switch(struct vb_repro_outcome *o, const struct vb_repro_variant *variant,
			 const struct making *m)
{
	const struct vb_experiment *e = o->e;
	struct vb_repro_result *r = &o->switched[o->n_switches];
	struct vb_repro_check *checks = calloc(e->n_checks + 1, sizeof(*checks));
	unsigned n = 0;
	int err;

	vb_assert(o->n_switches < VB_REPRO_SWITCHES);
	if (checks == NULL)
		return vb_fail(-ENOMEM, "no memory for an experiment");
	for (unsigned i = 0; i < e->n_checks; i++)
		if (variant->claims == NULL || is_named(variant->claims, e->checks[i].claim))
			checks[n++] = e->checks[i];
	o->picked[o->n_switches++] = checks;
	err = begin(r, e, checks, n, m);
	r->variant = variant;
	return err != 0 ? err : set_up_points(r, m);
}

/* ---- the artifact's own numbers against the paper's ---- */

static bool same(const char *a, const char *b)
{
	return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static bool same_at(const struct vb_repro_at *a, const struct vb_repro_at *b)
{
	return same(a->system, b->system) && same(a->series, b->series) && same(a->x, b->x);
}

/* The artifact's check of what one of the paper's compares, where it has numbers. */
static const struct vb_repro_check *own_of(const struct vb_experiment *e,
					   const struct vb_repro_check *c)
{
	for (unsigned i = 0; i < e->n_own_checks; i++) {
		const struct vb_repro_check *own = &e->own_checks[i];

		if (own->kind <= VB_CHECK_CELL && same(own->claim, c->claim) &&
		    same(own->metric, c->metric) && same_at(&own->a, &c->a) &&
		    same_at(&own->b, &c->b))
			return own;
	}
	return NULL;
}

static int set_up_theirs(struct vb_repro_outcome *o, const struct making *m)
{
	const struct making once = {m->jobs, m->scale, m->seed, 1};
	const struct vb_experiment *e = o->e;
	struct vb_repro_check *checks = calloc(e->n_checks + 1, sizeof(*checks));
	unsigned n = 0;

	if (checks == NULL)
		return vb_fail(-ENOMEM, "no memory for an experiment");
	o->picked[VB_REPRO_SWITCHES] = checks;
	for (unsigned i = 0; i < e->n_checks; i++)
		if (own_of(e, &e->checks[i]) != NULL)
			checks[n++] = e->checks[i];
	return begin(&o->theirs, e, checks, n, &once);
}

/* Of a range both ends, the worse one: it may be of several comparisons. */
static void judge_theirs(struct vb_repro_result *r)
{
	for (unsigned i = 0; i < r->n_checks; i++) {
		const struct vb_repro_check *c = &r->checks[i], *own = own_of(r->e, c);
		const double end[] = {own->lo, own->hi};
		struct vb_repro_finding *f = &r->finding[i];

		*f = (struct vb_repro_finding){.check = c, .compared = 1};
		for (unsigned k = 0; k < VB_ARRAY_SIZE(end); k++) {
			const struct vb_repro_span v = {end[k], end[k], end[k]};
			struct vb_repro_judged j =
				vb_repro_judge(c, vb_repro_metric_find(c->metric), v);

			if (k > 0 && (j.verdict < f->verdict ||
				      (j.verdict == f->verdict && j.distance <= f->distance)))
				continue;
			f->verdict = j.verdict;
			f->distance = j.distance;
			f->tie = j.tie;
			f->ours = v;
			f->by_seed[0] = end[k];
		}
		f->held = f->verdict == VB_REPRODUCED;
	}
}

/* ---- all of them ---- */

int vb_repro_set_up(struct vb_repro_outcome *o, const struct vb_experiment *e,
		    struct vb_repro_jobs *jobs, double scale, uint64_t seed, unsigned n_seeds)
{
	const struct making m = {jobs, scale, seed, n_seeds};
	int err;

	*o = (struct vb_repro_outcome){.e = e};
	err = begin(&o->written, e, e->checks, e->n_checks, &m);
	o->written.notes[0] = e->notes;
	if (err == 0)
		err = set_up_points(&o->written, &m);
	if (err == 0 && e->artifact != NULL)
		err = set_up_artifact(o, &m);
	if (err == 0 && e->n_own_checks > 0)
		err = set_up_theirs(o, &m);
	for (const struct vb_repro_variant *s = e->switches;
	     err == 0 && s != NULL && s->name != NULL; s++)
		err = set_up_switch(o, s, &m);
	return err;
}

void vb_repro_judge_columns(struct vb_repro_outcome *o)
{
	vb_repro_judge_all(&o->written);
	vb_repro_judge_all(&o->artifact);
	vb_repro_judge_all(&o->own);
	judge_theirs(&o->theirs);
	for (unsigned i = 0; i < o->n_switches; i++)
		vb_repro_judge_all(&o->switched[i]);
}

static void end(struct vb_repro_result *r)
{
	free(r->point);
	free(r->finding);
	free(r->common);
}

void vb_repro_tear_down(struct vb_repro_outcome *o)
{
	o->own.point = NULL; /* the artifact's */
	end(&o->written);
	end(&o->artifact);
	end(&o->own);
	end(&o->theirs);
	for (unsigned i = 0; i < o->n_switches; i++)
		end(&o->switched[i]);
	for (unsigned i = 0; i < VB_REPRO_SWITCHES + 1; i++)
		free(o->picked[i]);
}
