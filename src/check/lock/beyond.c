/* SPDX-License-Identifier: Apache-2.0 */
/*
 * More than locks survive.  In some seeds of locks that survive anything, one thing goes wrong that nobody
 * has promised anything for; grants may be lost then, but it is told: every call comes back, with an answer
 * that its manual has, nothing crashes, and once the faults are over everybody gets on.  What need not hold
 * beside that (explore_forgiven), and what does:
 *
 *	a server that never returns   nothing is forgiven.  Who asks for a lock of that server is told so, within
 *	                              EXPLORE_TOLD times the `ask_for` of the lock
 *	verbs are later than the      where clients change the words themselves (dslr, dslr-update, shiftlock):
 *	fabric says                   mode-conflict, foreign-release, token-order, for what one posted while it held
 *	                              the lock, or to take it, takes effect when others have it.  When all of it
 *	                              has landed and nobody asks, the words of dslr and dslr-update are right
 *	                              again, and nothing is forgiven any more.  Where a server changes the words,
 *	                              it knows whose message is late: nothing.  bypass, needless-recovery and
 *	                              overdue are judged in no seed with such faults, all else is
 */
#define VB_LOG_ROOM "check"
#include <inttypes.h>

#include "base/log.h"
#include "check/draw.h"
#include "check/lock/explore_inner.h"

#define BEYOND_STREAM 0x6265796f
#define LATE_STREAM   0x6c617465

/* `ask_for` where each client waits for all of it: longer than all pauses. */
#define ASK_LEASES   100
#define ASK_LEAST_NS 20000000ull

/* ---- what is drawn ---- */

bool vb_explore_goes_beyond(const struct vb_lock_ops *ops)
{
	return (ops->caps & VB_LOCK_SURVIVES) != 0;
}

/* shiftlock, which has no `ask_for`, is spared that: behind a dead client, without a server, an acquire without
 * a deadline waits for ever. */
void explore_draw_never_back(const struct vb_lock_ops *ops, struct vb_explore_draw *d)
{
	struct vb_rng r;

	vb_rng_seed(&r, d->seed, BEYOND_STREAM);
	if (d->orderly || explore_option(ops, "ask_for") == NULL ||
	    !vb_rng_chance(&r, d->beyond ? 0.5 : 0.08))
		return;
	d->never_back = d->servers_die = true;
	d->serve_max_ns = vb_draw_spread(&r, d->lease_ns / 4, 4);
	d->away_max_ns = 0;
	/* Each costs the whole time for which a request is repeated: with a short lease a client looks
	 * for a new server often, and thousands of leases would show no more than these. */
	d->cycles = 2;
	d->ask_for_ns =
		ASK_LEASES * d->lease_ns > ASK_LEAST_NS ? ASK_LEASES * d->lease_ns : ASK_LEAST_NS;
	if (d->ask_for_ns < EXPLORE_ASK_FOR_NS)
		explore_add_option(d, "ask_for=%" PRIu64 "ns", d->ask_for_ns);
	else
		d->ask_for_ns = EXPLORE_ASK_FOR_NS;
}

void explore_draw_too_late(const struct vb_lock_ops *ops, struct vb_explore_draw *d)
{
	static const double some[] = {0.003, 0.03, 0.1};
	struct vb_rng r;

	vb_rng_seed(&r, d->seed, LATE_STREAM);
	if (d->orderly || !vb_explore_goes_beyond(ops) || d->never_back || d->round_tickets != 0 ||
	    !vb_rng_chance(&r, d->beyond ? 1 : 0.06))
		return;
	d->too_late = (unsigned)vb_draw_between(&r, 16, 100);
	d->faults.delay = vb_draw_one_of(&r, some, 3);
	d->faults.delay_max_ns = d->too_late * d->bound_ns * 3 / 4;
}

void explore_tell_beyond(FILE *to, const struct vb_explore_draw *d)
{
	char t[16];

	if (d->never_back)
		fprintf(to, ", beyond: a server dies within %s and never returns",
			vb_format_ns(t, sizeof(t), (double)d->serve_max_ns));
	if (d->too_late != 0)
		fprintf(to, ", beyond: verbs up to %u times later than promised", d->too_late);
}

/* ---- what happens ---- */

/* Whether a word may stay as a late verb has left it.  A reader's release that lands in another generation of
 * shiftlock leaves RdrCnt one short until the next recovery: writers do not wait for the last reader.  Who draws
 * a ticket of dslr or dslr-update sees that the numbers do not fit. */
static bool stays_wrong(const struct vb_lock_ops *ops)
{
	return explore_option(ops, "count_max") == NULL;
}

uint64_t explore_true_bound_ns(const struct vb_explore_draw *d)
{
	return d->too_late != 0 ? d->too_late * d->bound_ns : d->bound_ns;
}

void explore_beyond_fabric(struct explore *x)
{
	if (x->d->too_late != 0)
		x->fabric->caps.verb_bound_ns = x->d->bound_ns;
}

/* The faults are over.  Nobody asks for a lock before the last verb that was late has landed. */
void explore_let_land(struct explore *first)
{
	if (first->d->too_late == 0)
		return;
	vb_task_sleep_until(vb_sched_now(first->sched) + explore_true_bound_ns(first->d));
	for (struct explore *x = first; x != NULL; x = x->beside)
		if (!stays_wrong(x->d->ops))
			vb_audit_forgive(x->audit, 0);
}

/* ---- what is judged ---- */

unsigned explore_forgiven(const struct vb_explore_draw *d)
{
	/* A lock that asks its server has no such verbs. */
	if (d->too_late == 0 || explore_option(d->ops, "ask_for") != NULL)
		return 0;
	return 1u << VB_AUDIT_MODE_CONFLICT | 1u << VB_AUDIT_FOREIGN_RELEASE |
	       1u << VB_AUDIT_TOKEN_ORDER;
}

bool explore_is_told(struct slot *s, int err)
{
	const struct explore *x = s->x;
	uint64_t took = vb_sched_now(x->sched) - s->asks_since_ns;
	uint64_t most = EXPLORE_TOLD * x->d->ask_for_ns;
	char text[160];

	if (!x->d->never_back || (err != -VB_EPEERGONE && err != -VB_EUNKNOWN))
		return false;
	s->asks = false;
	s->cycles++;
	x->result->told++;
	if (took <= most)
		return true;
	snprintf(text, sizeof(text),
		 "was told after %.3f us that its server is gone, and %.3f us are enough",
		 (double)took / 1e3, (double)most / 1e3);
	vb_audit_violation(x->audit, VB_AUDIT_STUCK, s->index, s->asks_lock, text);
	return true;
}

void vb_explore_tell_beyond(FILE *to, const struct vb_explore_draw *d,
			    const struct vb_explore_result *r)
{
	if (d->never_back)
		fprintf(to, ", %" PRIu64 " told of a server that is gone", r->told);
	if (d->too_late == 0)
		return;
	fprintf(to, ", %" PRIu64 " verbs too late, forgiven", r->late_verbs);
	for (unsigned i = 0; i < VB_AUDIT_RULES; i++)
		if (r->audit.forgiven[i] != 0)
			fprintf(to, " %s %" PRIu64, vb_audit_rule_names[i], r->audit.forgiven[i]);
	if (r->forgiven == 0)
		fprintf(to, " nothing");
}
