/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Judging histories of locks: see history.h.
 *
 * That a history is one of a lock with modes and leases (is linearizable to it) can be said
 * without a search.  A grant may have begun anywhere within its call and have ended anywhere within
 * its release; the later it began and the earlier it ended, the less it is in the way of others.
 * So it is taken to have been held from the end of its call to the beginning of its release, or to
 * the end of its lease, and these times of grants whose modes exclude each other must not overlap.
 * A call that failed, or whose end is not known, is taken to have done nothing.  What is left to
 * decide is record_judge.c's.
 */
#define VB_LOG_ROOM "check"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "check/lock/history.h"

#define NONE   UINT64_MAX
#define STRAYS 4u /* releases of what was not held that are told */

/* What a process is at with one lock. */
struct seat {
	uint64_t stamp;     /* 1 + the lock that the rest is about */
	uint64_t called_ns; /* of the call under way */
	uint64_t grant;     /* where in grants[], or NONE */
	uint8_t call, to;   /* under way, with 1 added, or 0; the mode that it asks for */
	bool holds;
};

struct judge {
	const struct vb_lock_event **events;
	uint64_t n, n_grants;
	uint32_t *processes, n_processes;
	struct seat *seats;
	struct vb_record_grant *grants;
	struct vb_lock_verdict *out;
	FILE *strays;
	uint64_t epoch_ns, n_strays;
};

static int in_order(const void *a, const void *b)
{
	const struct vb_lock_event *x = *(const struct vb_lock_event *const *)a;
	const struct vb_lock_event *y = *(const struct vb_lock_event *const *)b;

	if (x->lock != y->lock)
		return x->lock < y->lock ? -1 : 1;
	if (x->at_ns != y->at_ns)
		return x->at_ns < y->at_ns ? -1 : 1;
	return x < y ? -1 : x > y;
}

static int by_number(const void *a, const void *b)
{
	const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/* ---- the events ---- */

static int take_events(struct judge *j, const struct vb_lock_history *const *parts, unsigned n)
{
	uint64_t all = 0;
	bool full;

	for (unsigned i = 0; i < n; i++)
		all += vb_lock_history_count(parts[i], &full);
	j->events = malloc((all + 1) * sizeof(*j->events));
	j->grants = malloc((all + 1) * sizeof(*j->grants));
	j->processes = malloc((all + 1) * sizeof(*j->processes));
	if (j->events == NULL || j->grants == NULL || j->processes == NULL)
		return -ENOMEM;
	j->epoch_ns = UINT64_MAX;
	for (unsigned i = 0; i < n; i++) {
		const struct vb_lock_event *e;
		uint64_t at = 0;

		while (j->n < all && (e = vb_lock_history_next(parts[i], &at)) != NULL) {
			j->processes[j->n] = e->process;
			j->events[j->n++] = e;
			if (e->at_ns < j->epoch_ns)
				j->epoch_ns = e->at_ns;
		}
	}
	qsort(j->events, j->n, sizeof(*j->events), in_order);
	qsort(j->processes, j->n, sizeof(*j->processes), by_number);
	for (uint64_t i = 0; i < j->n; i++)
		if (i == 0 || j->processes[i] != j->processes[i - 1])
			j->processes[j->n_processes++] = j->processes[i];
	j->seats = calloc((size_t)j->n_processes + 1, sizeof(*j->seats));
	return j->seats == NULL ? -ENOMEM : 0;
}

static struct seat *seat_of(struct judge *j, const struct vb_lock_event *e)
{
	const uint32_t *p = bsearch(&e->process, j->processes, j->n_processes,
				    sizeof(*j->processes), by_number);
	struct seat *s = &j->seats[p - j->processes];

	if (s->stamp != e->lock + 1)
		*s = (struct seat){.stamp = e->lock + 1, .grant = NONE};
	return s;
}

static int contradiction(const struct judge *j, const struct vb_lock_event *e, const char *what)
{
	return vb_fail(-EINVAL, "process %u, lock %" PRIu64 ", at %" PRIu64 " ns: %s", e->process,
		       e->lock, e->at_ns, what);
}

/* ---- grants ---- */

static void enter(struct judge *j, struct seat *s, const struct vb_lock_event *e,
		  uint64_t called_ns, uint64_t granted_ns)
{
	s->holds = true;
	s->grant = j->n_grants++;
	j->grants[s->grant] = (struct vb_record_grant){
		.lock = e->lock,
		.token = e->token,
		.called_ns = called_ns,
		.granted_ns = granted_ns,
		.valid_until_ns = e->valid_until_ns,
		.left_ns = VB_FOREVER,
		.client = e->client,
		.mode = e->mode,
	};
}

/* From now on it may be over; whether it is, the answer says. */
static void let_go(struct judge *j, const struct seat *s, uint64_t left_ns, enum vb_record_end end)
{
	if (s->grant == NONE)
		return;
	j->grants[s->grant].left_ns = left_ns;
	j->grants[s->grant].end = (uint8_t)end;
}

static void leave(struct judge *j, struct seat *s, uint64_t left_ns, enum vb_record_end end)
{
	let_go(j, s, left_ns, end);
	s->grant = NONE;
}

/* A release or conversion that reports success although there was nothing to give back. */
static void stray(struct judge *j, const struct vb_lock_event *e)
{
	j->out->audit.by_rule[VB_AUDIT_FOREIGN_RELEASE]++;
	j->out->audit.violations++;
	if (j->n_strays++ < STRAYS)
		fprintf(j->strays,
			"%s: lock %" PRIu64 ": a %s reported success at %.3f us, by client "
			"%u, who did not hold it\n",
			vb_audit_rule_names[VB_AUDIT_FOREIGN_RELEASE], e->lock,
			e->call == VB_LOCK_CALL_RELEASE ? "release" : "conversion",
			(double)(e->at_ns - j->epoch_ns) / 1e3, e->client);
}

/* To the mode that it has. */
static bool renews(const struct judge *j, const struct seat *s)
{
	return s->grant != NONE && j->grants[s->grant].mode == s->to;
}

static bool lets_go(const struct judge *j, const struct seat *s)
{
	return s->grant != NONE && !renews(j, s) && vb_mode_covers(j->grants[s->grant].mode, s->to);
}

/* What is given up by a conversion to less is held until it is called, and the rest all along;
 * what is won by one to more is held from its end, and the old mode until then. */
static void convert_ok(struct judge *j, struct seat *s, const struct vb_lock_event *e)
{
	const bool less = lets_go(j, s);
	const uint64_t at = less ? s->called_ns : e->at_ns;

	if (!s->holds)
		stray(j, e);
	if (renews(j, s)) {
		j->grants[s->grant].valid_until_ns = e->valid_until_ns;
		return;
	}
	leave(j, s, at, VB_RECORD_CONVERTED);
	enter(j, s, e, less ? at : s->called_ns, at);
}

static void convert_not_ok(struct judge *j, struct seat *s, const struct vb_lock_event *e)
{
	if (e->lost)
		leave(j, s, s->called_ns, VB_RECORD_LOST);
	else if (e->type == VB_LOCK_EVENT_FAIL)
		let_go(j, s, VB_FOREVER, VB_RECORD_OPEN);
}

static void release_end(struct judge *j, struct seat *s, const struct vb_lock_event *e)
{
	if (e->type == VB_LOCK_EVENT_OK && !s->holds)
		stray(j, e);
	/* It has changed nothing. */
	if (e->type == VB_LOCK_EVENT_FAIL && !e->lost) {
		let_go(j, s, VB_FOREVER, VB_RECORD_OPEN);
		return;
	}
	leave(j, s, s->called_ns,
	      e->type == VB_LOCK_EVENT_OK ? VB_RECORD_RELEASED
	      : e->lost                   ? VB_RECORD_LOST
					  : VB_RECORD_FAILED);
	/* Of what nobody knows, the next release may be the one that gives it back. */
	if (e->type != VB_LOCK_EVENT_INFO)
		s->holds = false;
}

/* ---- one after the other ---- */

static int begin(struct judge *j, struct seat *s, const struct vb_lock_event *e)
{
	if (s->call != 0)
		return contradiction(j, e, "a call while another is under way");
	s->call = (uint8_t)(e->call + 1);
	s->called_ns = e->at_ns;
	s->to = e->mode;
	if (e->call == VB_LOCK_CALL_RELEASE) {
		let_go(j, s, e->at_ns, VB_RECORD_FAILED);
	} else if (e->call == VB_LOCK_CALL_CONVERT) {
		if (lets_go(j, s))
			let_go(j, s, e->at_ns, VB_RECORD_CONVERTED);
	} else {
		/* Not given back: it is held for as long as it may be, whatever comes now. */
		s->grant = NONE;
		s->holds = false;
	}
	return 0;
}

static int end(struct judge *j, struct seat *s, const struct vb_lock_event *e)
{
	if (s->call != e->call + 1)
		return contradiction(j, e, "an answer to what was not called");
	s->call = 0;
	if (e->call == VB_LOCK_CALL_RELEASE)
		release_end(j, s, e);
	else if (e->call == VB_LOCK_CALL_CONVERT && e->type == VB_LOCK_EVENT_OK)
		convert_ok(j, s, e);
	else if (e->call == VB_LOCK_CALL_CONVERT)
		convert_not_ok(j, s, e);
	else if (e->type == VB_LOCK_EVENT_OK)
		enter(j, s, e, s->called_ns, e->at_ns);
	return 0;
}

static int go_through(struct judge *j)
{
	int err = 0;

	for (uint64_t i = 0; i < j->n && err == 0; i++) {
		const struct vb_lock_event *e = j->events[i];
		struct seat *s = seat_of(j, e);

		if (e->call == VB_LOCK_CALL_ABANDON) {
			leave(j, s, e->at_ns, VB_RECORD_ABANDONED);
			s->holds = false;
		} else {
			err = e->type == VB_LOCK_EVENT_INVOKE ? begin(j, s, e) : end(j, s, e);
		}
		j->out->locks += i == 0 || j->events[i - 1]->lock != e->lock;
	}
	return err;
}

/* The strays' stories stand behind the others'. */
static int judge_grants(struct judge *j, bool fencing, char *strays)
{
	const struct vb_record_case c = {.fencing = fencing, .epoch_ns = j->epoch_ns};
	const struct vb_record_part part = {.grants = j->grants, .n = j->n_grants};
	struct vb_lock_verdict *out = j->out;
	struct vb_audit_counts counts;
	char *story = NULL;
	int err = vb_record_judge(&c, &part, 1, &counts, &story);

	if (err)
		return err;
	counts.violations += out->audit.violations;
	counts.by_rule[VB_AUDIT_FOREIGN_RELEASE] += out->audit.by_rule[VB_AUDIT_FOREIGN_RELEASE];
	out->audit = counts;
	if (counts.violations != 0 &&
	    asprintf(&out->story, "%s%s", story != NULL ? story : "", strays) < 0) {
		out->story = NULL;
		err = -ENOMEM;
	}
	free(story);
	return err;
}

int vb_lock_history_judge(const struct vb_lock_history *const *parts, unsigned n, bool fencing,
			  struct vb_lock_verdict *out)
{
	struct judge j = {.out = out};
	char *strays = NULL;
	size_t size;
	int err;

	*out = (struct vb_lock_verdict){0};
	j.strays = open_memstream(&strays, &size);
	err = j.strays == NULL ? -ENOMEM : take_events(&j, parts, n);
	if (err == 0)
		err = go_through(&j);
	if (j.strays != NULL)
		fclose(j.strays);
	if (err == 0)
		err = judge_grants(&j, fencing, strays);
	out->events = j.n;
	out->grants = j.n_grants;
	if (err == -ENOMEM)
		vb_error("no memory to judge a history of locks");
	free(strays);
	free(j.events);
	free(j.grants);
	free(j.processes);
	free(j.seats);
	return err;
}
