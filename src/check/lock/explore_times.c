/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Did a call come back in time?  Judged where nothing else makes a client late: nobody stands still
 * for long, dies, or loses an answer that it cannot do without.  And did it
 * leave nothing behind that lands later?
 */
#define VB_LOG_ROOM "check"
#include <inttypes.h>

#include "base/log.h"
#include "check/lock/explore_inner.h"
#include "lock/claim.h"

/* A client's clock may be slow. */
#define DRIFT_SHARE 50

static void judge(struct slot *s, const char *call, uint64_t begun_ns, uint64_t due_ns,
		  const char *why)
{
	const struct explore *x = s->x;
	uint64_t now = vb_sched_now(x->sched);
	char text[256];

	if (x->d->prompt_ns == 0 || now <= due_ns || now - due_ns <= x->d->prompt_ns)
		return;
	snprintf(text, sizeof(text),
		 "%s, called at %.3f us, came back at %.3f us: %.3f us after %s, and %.3f us are "
		 "enough",
		 call, (double)begun_ns / 1e3, (double)now / 1e3, (double)(now - due_ns) / 1e3, why,
		 (double)x->d->prompt_ns / 1e3);
	vb_audit_violation(x->audit, VB_AUDIT_OVERDUE, s->index, s->asks_lock, text);
}

/* What has to be undone then takes `more_ns`. */
static void judge_end(struct slot *s, const char *call, uint64_t begun_ns, uint64_t timeout_ns,
		      uint64_t more_ns)
{
	uint64_t due = VB_FOREVER, cancelled = s->cancelled_ns, quit = s->started_call.quit_ns;

	if (quit != 0 && (cancelled == 0 || quit < cancelled))
		cancelled = quit;

	if (timeout_ns != VB_FOREVER_NS)
		due = begun_ns + timeout_ns + timeout_ns / DRIFT_SHARE + more_ns;
	if (cancelled != 0)
		cancelled = (cancelled > begun_ns ? cancelled : begun_ns) + more_ns;
	if (cancelled != 0 && cancelled < due)
		judge(s, call, begun_ns, cancelled, "it was cancelled");
	else
		judge(s, call, begun_ns, due, "its time was over");
}

void explore_judge_call_time(struct slot *s, const char *call, uint64_t begun_ns,
			     uint64_t timeout_ns)
{
	judge_end(s, call, begun_ns, timeout_ns, 0);
}

/* What it has taken may have to be given back. */
void explore_judge_try_time(struct slot *s, uint64_t begun_ns)
{
	const struct vb_explore_draw *d = s->x->d;
	unsigned verbs = s->x->ops->try_verbs, more = 0;

	if (verbs > EXPLORE_PROMPT_VERBS)
		more = verbs - EXPLORE_PROMPT_VERBS;
	judge_end(s, "vb_lock_try", begun_ns, 0, more * (d->bound_ns + d->faults.pause_max_ns));
}

/* The locks above may have to be given back, and one to be converted. */
void explore_judge_path_time(struct slot *s, unsigned locks, uint64_t begun_ns, uint64_t timeout_ns)
{
	judge_end(s, "vb_lock_acquire_path", begun_ns, timeout_ns, locks * s->x->d->prompt_ns);
}

/* ---- releases ---- */

static bool has_claim(const struct vb_lock_client *c, uint64_t lock)
{
	return c != NULL && vb_claim_find((struct vb_lock_client *)c, lock) != NULL;
}

static bool is_alone(const struct slot *s, uint64_t lock)
{
	const struct explore *x = s->x;

	if (!vb_list_empty(&x->space->ghosts) || (x->forsaken >> lock & 1))
		return false;
	for (unsigned i = 0; i < x->d->clients; i++)
		if (i != s->index && has_claim(x->slots[i].client, lock))
			return false;
	return true;
}

void explore_release_begins(struct slot *s, const struct vb_grant *g)
{
	bool alone = s->x->d->alone_ns != 0 && g->mode == VB_EXCLUSIVE && is_alone(s, g->lock);

	s->releases_since_ns = vb_sched_now(s->x->sched);
	s->releases_from = s->x->asked;
	s->releases_shared = g->mode == VB_SHARED;
	s->releases = alone ? g->lock + 1 : 0;
}

/* CASes of it that others may have made fail: by coming and by leaving, those that have asked since and
 * what each client had before, a claim and a place in a queue for each of its two locks. */
static uint64_t races(const struct slot *s)
{
	const struct explore *x = s->x;

	if (!s->releases_shared || !(x->ops->caps & VB_LOCK_LEAVE_RACES))
		return 0;
	return 2 * (x->asked - s->releases_from + 4ull * x->d->clients);
}

/* Who comes later than a lost answer is looked into has nothing to do with it. */
void explore_meet_releases(struct explore *x, uint64_t lock)
{
	uint64_t now = vb_sched_now(x->sched);

	for (unsigned i = 0; i < x->d->clients; i++)
		if (x->slots[i].releases == lock + 1 &&
		    now - x->slots[i].releases_since_ns <= x->d->alone_ns)
			x->slots[i].releases = 0;
}

void explore_judge_release(struct slot *s, int err)
{
	const struct explore *x = s->x;
	uint64_t since = s->releases_since_ns, took = vb_sched_now(x->sched) - since;
	char text[192];

	/* Its successor may have to be awaited. */
	judge(s, "vb_lock_release", since,
	      since + x->d->prompt_ns + races(s) * (x->d->bound_ns + x->d->faults.pause_max_ns),
	      "its time was over");
	if (s->releases == 0 || (err == 0 && took <= x->d->alone_ns))
		return;
	snprintf(text, sizeof(text),
		 "vb_lock_release, called at %.3f us where nobody else wanted the lock, came to %d "
		 "(%s) after %.3f us",
		 (double)since / 1e3, err, vb_strerror(err), (double)took / 1e3);
	vb_audit_violation(x->audit, VB_AUDIT_OVERDUE, s->index, s->releases - 1, text);
	s->releases = 0;
}

/* ---- what is left behind ---- */

void explore_judge_adrift(struct slot *s, const struct vb_lock_client *me, const char *call)
{
	const struct explore *x = s->x;
	char text[128];
	unsigned n;

	/* What a server is asked, or a lock recovers, may come whenever it does; so may a reader's lease
	 * that nobody knows of. */
	if (survives(x) || x->ops->entry_bytes == 0 || me->proxies != 0 ||
	    x->ops->caps & VB_LOCK_READ_LEASE)
		return;
	n = vb_sim_ep_adrift(me->ep);
	if (n == 0)
		return;
	snprintf(text, sizeof(text), "%s came back at %.3f us with %u verbs under way", call,
		 (double)vb_sched_now(x->sched) / 1e3, n);
	vb_audit_violation(x->audit, VB_AUDIT_ADRIFT, s->index, s->asks_lock, text);
}
