/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Judging records.  All grants of a lock are gone through in the order in which they were told.
 * Of those before, it is enough to know a few by mode: who could hold longest, whose release began
 * last and succeeded, who had the largest token.  If any earlier grant conflicts with this one,
 * one of these does.
 *
 * Clocks: a time t of a part whose clock errs by e was truly within t - e and t + e.  "a before b"
 * is certain if a + e(a) < b - e(b).
 */
#define VB_LOG_ROOM "check"
#include "check/lock/record.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"

#define STORIES      16
#define BYPASS_STEPS 65536u /* of one wait; more than any promise */

/* A grant with what is needed to compare it. */
struct item {
	const struct vb_record_grant *g;
	uint64_t error_ns;
};

struct judge {
	const struct vb_record_case *c;
	struct vb_audit_counts *out;
	FILE *story;
};

/* Of the grants of one lock so far; g NULL: none. */
struct seen {
	struct item longest[VB_MODES];  /* by mode: holds validly for longest */
	struct item released[VB_MODES]; /* by mode: released with success, the last to begin that */
	bool told[VB_MODES];
	struct item token;
};

static uint64_t minus(uint64_t a, uint64_t b)
{
	return a == VB_FOREVER ? a : a > b ? a - b : 0;
}

/* Until when it surely held. */
static uint64_t held_until(const struct item *i)
{
	uint64_t end = i->g->left_ns < i->g->valid_until_ns ? i->g->left_ns : i->g->valid_until_ns;

	return minus(end, i->error_ns);
}

static uint64_t granted_by(const struct item *i)
{
	return i->g->granted_ns + i->error_ns;
}

/* ---- stories ---- */

static void tell_grant(const struct judge *j, const struct vb_record_grant *g)
{
	const uint64_t epoch = j->c->epoch_ns;

	fprintf(j->story, "client %u (node %u), %s, called at %.3f us", g->client, g->node,
		vb_lock_mode_name(g->mode), ((double)g->called_ns - (double)epoch) / 1e3);
	fprintf(j->story, ", granted at %.3f us", ((double)g->granted_ns - (double)epoch) / 1e3);
	if (g->valid_until_ns == VB_FOREVER)
		fprintf(j->story, ", valid until released");
	else
		fprintf(j->story, ", valid until %.3f us",
			((double)g->valid_until_ns - (double)epoch) / 1e3);
	if (g->left_ns != VB_FOREVER)
		fprintf(j->story, ", release begun at %.3f us",
			((double)g->left_ns - (double)epoch) / 1e3);
	if (g->token != 0)
		fprintf(j->story, ", token %" PRIu64, g->token);
}

/* "RULE: lock 3: granted to A; VERB B (clocks agree to 1.5 us)" */
static void violation(struct judge *j, enum vb_audit_rule rule, const char *what,
		      const struct item *a, const char *verb, const struct item *b)
{
	uint64_t error = a->error_ns + (b != NULL ? b->error_ns : 0);

	j->out->by_rule[rule]++;
	if (j->out->violations++ >= STORIES)
		return;
	fprintf(j->story, "%s: lock %" PRIu64 ": %s ", vb_audit_rule_names[rule], a->g->lock, what);
	tell_grant(j, a->g);
	if (b != NULL) {
		fprintf(j->story, "; %s ", verb);
		tell_grant(j, b->g);
	}
	if (error != 0)
		fprintf(j->story, " (clocks agree to %.3f us)", (double)error / 1e3);
	fputc('\n', j->story);
}

/* ---- rules ---- */

static void judge_overlap(struct judge *j, struct seen *s, const struct item *i, unsigned mode)
{
	const struct item *o = &s->longest[mode];

	if (o->g != NULL && granted_by(i) < held_until(o) && granted_by(o) < held_until(i))
		violation(j, VB_AUDIT_MODE_CONFLICT, "granted to", i, "while held by", o);
	o = &s->released[mode];
	if (o->g == NULL || s->told[mode] || granted_by(i) >= minus(o->g->left_ns, o->error_ns) ||
	    granted_by(o) >= minus(i->g->granted_ns, i->error_ns))
		return;
	s->told[mode] = true;
	violation(j, VB_AUDIT_FOREIGN_RELEASE, "a release reported success, by", o,
		  "the lock had been granted meanwhile to", i);
}

static void judge_token(struct judge *j, struct seen *s, const struct item *i)
{
	if (i->g->token == 0) {
		if (j->c->fencing)
			violation(j, VB_AUDIT_TOKEN_ORDER, "granted without a token to", i, NULL,
				  NULL);
		return;
	}
	if (s->token.g == NULL || i->g->token > s->token.g->token) {
		s->token = *i;
		return;
	}
	if (granted_by(&s->token) < minus(i->g->granted_ns, i->error_ns))
		violation(j, VB_AUDIT_TOKEN_ORDER, "a token that is not larger, granted to", i,
			  "after", &s->token);
}

/* How many incompatible calls that began after this one had queued were served before it. */
static void count_bypass(struct judge *j, const struct item *first, const struct item *i)
{
	const struct vb_record_grant *g = i->g;
	uint64_t passed = 0;

	if (g->queued_ns == 0)
		return;
	for (unsigned n = 0; i-- > first && n < BYPASS_STEPS; n++) {
		if (i->g->granted_ns <= g->queued_ns)
			break;
		passed += vb_modes_exclude(g->mode, i->g->mode) && i->g->called_ns > g->queued_ns;
	}
	if (passed > j->out->max_bypass)
		j->out->max_bypass = passed;
}

static void note(struct seen *s, const struct item *i)
{
	struct item *longest = &s->longest[i->g->mode], *released = &s->released[i->g->mode];

	if (longest->g == NULL || held_until(i) > held_until(longest))
		*longest = *i;
	if (i->g->end == VB_RECORD_RELEASED &&
	    (released->g == NULL || i->g->left_ns > released->g->left_ns)) {
		*released = *i;
		s->told[i->g->mode] = false;
	}
}

static void judge_grant(struct judge *j, struct seen *s, const struct item *first,
			const struct item *i)
{
	const struct vb_record_grant *g = i->g;

	j->out->checked_ops++;
	j->out->lost += g->end == VB_RECORD_LOST;
	/* A process may have been stopped between its last look at the clock and the record: only a
	 * grant that was over before it was asked for is certainly wrong. */
	if (g->valid_until_ns <= g->granted_ns) {
		if (g->valid_until_ns <= g->called_ns)
			violation(j, VB_AUDIT_EXPIRED_GRANT, "granted to", i, NULL, NULL);
		return;
	}
	for (unsigned mode = 0; mode < VB_MODES; mode++)
		if (vb_modes_exclude(mode, g->mode))
			judge_overlap(j, s, i, mode);
	if (g->mode == VB_EXCLUSIVE)
		judge_token(j, s, i);
	count_bypass(j, first, i);
	note(s, i);
}

/* ---- all of them ---- */

static int in_order(const void *a, const void *b)
{
	const struct vb_record_grant *x = ((const struct item *)a)->g;
	const struct vb_record_grant *y = ((const struct item *)b)->g;

	if (x->lock != y->lock)
		return x->lock < y->lock ? -1 : 1;
	if (x->granted_ns != y->granted_ns)
		return x->granted_ns < y->granted_ns ? -1 : 1;
	return x->client < y->client ? -1 : x->client > y->client;
}

bool vb_record_is_sane(const struct vb_record_case *c, const struct vb_record_grant *g)
{
	return g->lock < c->locks && g->client < c->clients && g->mode < VB_MODES &&
	       g->end < VB_RECORD_ENDS && g->granted_ns != VB_FOREVER &&
	       g->called_ns <= g->granted_ns;
}

int vb_record_judge(const struct vb_record_case *c, const struct vb_record_part *parts,
		    unsigned n_parts, struct vb_audit_counts *out, char **story)
{
	struct judge j = {.c = c, .out = out};
	struct item *items, *first;
	uint64_t n = 0, at = 0;
	struct seen seen = {0};
	size_t size;

	*out = (struct vb_audit_counts){0};
	*story = NULL;
	for (unsigned p = 0; p < n_parts; p++)
		n += parts[p].n;
	items = malloc((n + 1) * sizeof(*items));
	j.story = items != NULL ? open_memstream(story, &size) : NULL;
	if (j.story == NULL) {
		free(items);
		return vb_fail(-ENOMEM, "no memory to judge %" PRIu64 " grants", n);
	}
	for (unsigned p = 0; p < n_parts; p++)
		for (uint64_t i = 0; i < parts[p].n; i++)
			items[at++] = (struct item){&parts[p].grants[i], parts[p].error_ns};
	qsort(items, n, sizeof(*items), in_order);
	first = items;
	for (uint64_t i = 0; i < n; i++) {
		if (items[i].g->lock != first->g->lock) {
			first = &items[i];
			seen = (struct seen){0};
		}
		judge_grant(&j, &seen, first, &items[i]);
	}
	if (out->violations > STORIES)
		fprintf(j.story, "and %" PRIu64 " more\n", out->violations - STORIES);
	fclose(j.story);
	free(items);
	if (out->violations == 0) {
		free(*story);
		*story = NULL;
	}
	return 0;
}
