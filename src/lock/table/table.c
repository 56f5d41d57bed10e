/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lock table: six modes, queues and deadlock policies at the server's CPU, asked through mailboxes
 * (Barthels, Müller, Taranov, Alonso, Hoefler, PVLDB 2019).
 *
 *	acquire    1 notified WRITE and its answer (1 notified WRITE), at the grant
 *	release    the same; for all that a transaction holds at one agent, once
 *	convert    the same
 *	renew      the same
 *
 * doc/locks/table.md has the figures, promises and departures from the paper.
 *
 * A request that has had no answer for a while is made again under its number, and the agent does
 * it once (server.c).  While a request waits in the queue, the agent answers such a copy with "it
 * waits": so the client knows that it is queued, and that the agent is alive.
 *
 * Giving up.  A client whose time is over, or that is cancelled, says so (STOP) and waits for the
 * answer: then nothing is left in its name, and no proxy is needed.
 *
 * Leases.  The client's ends a lease after the moment before it first asked and the time that the
 * request waited at the agent.  The agent's begins at the grant and lasts longer by the drift that
 * two clocks may have, so the client's is over first.
 *
 * An agent that has died.  Requests go to the one that has taken its place, when it has; before the
 * first of them the client tells it what it holds there.
 */
#define VB_LOG_ROOM "lock"
#include "lock/table/ask.h"

#include <errno.h>

#include "base/log.h"
#include "base/sometimes.h"

#define POLICIES "bounded-wait|no-wait|wait-die"

const struct vb_opt vb_locktab_opts[] = {
	VB_OPT_CHOICE(struct vb_locktab_options, policy, "policy", POLICIES, "bounded-wait",
		      "what becomes of a request that cannot be granted at once"),
	VB_OPT_TIME(
		struct vb_locktab_options, wait_ns, "wait", "0", 0, 3600ull * 1000000000,
		"how long a client that holds another lock, or converts, waits at most "
		"(bounded-wait), and not beyond the first of its leases; 0: 100 ms, or a quarter "
		"of a lease if that is less"),
	VB_OPT_TIME(struct vb_locktab_options, ask_for_ns, "ask_for", "2s", 1000000,
		    3600ull * 1000000000,
		    "how long a request is repeated without an answer before its outcome is left "
		    "unknown"),
	VB_OPT_SIZE(struct vb_locktab_options, requests, "requests", "64ki", 16, 16777216,
		    "holds and waits that an agent has room for; more have to come again"),
	VB_OPT_SIZE(struct vb_locktab_options, slots, "slots", "256", 0, 65536,
		    "clients with a mailbox slot, on each node; further ones send messages"),
	VB_OPT_STRING(struct vb_locktab_options, persist, "persist", "DIR", NULL,
		      "keep an agent's holds in a file there, for the agent that takes its place"),
	VB_OPT_FLAG(struct vb_locktab_options, sync, "sync",
		    "bring that file to the disk before each answer"),
	VB_OPT_END,
};

/* ---- acquire ---- */

/* A transaction begins with the first lock of a client that holds nothing. */
static void take_age(struct vb_lock_client *me)
{
	if (vb_locktab_holds_others(me))
		return;
	if (!me->age_given)
		me->age = vb_lock_age_now(me);
	me->age_given = false;
}

static int granted(struct vb_lock_client *me, struct vb_claim *c, const struct vb_locktab_asking *q)
{
	struct vb_locktab_claim *g = vb_claim_as(struct vb_locktab_claim, c);

	*g = (struct vb_locktab_claim){.ticket = q->answer.ticket, .agent = q->agent};
	if (vb_unlikely(q->moved)) {
		/* What the last one does not know of it is told, before the next request. */
		g->agent = VB_PEER_NONE;
		vb_locktab_link_of(me, c->lock)->agent[vb_locktab_worker_of(me, c->lock)] =
			VB_PEER_NONE;
	}
	c->queued = false;
	(void)vb_lock_grant(c, vb_locktab_valid_until(me, q),
			    c->mode == VB_EXCLUSIVE ? q->answer.ticket : 0);
	vb_locktab_note_end(me, c);
	return 0;
}

/* Two agents were asked, and the answer may be that of the first, which is gone, while the second has done
 * something else: nothing of it stands then.  The refusal, or `if_done` where it was none. */
static int undo_of_two(struct vb_lock_client *me, struct vb_locktab_asking *q, int if_done)
{
	int answer = (int)q->answer.err;

	VB_SOMETIMES(2000, "table: an answer that may be another agent's is undone");
	if (vb_locktab_stop(me, q) != 0)
		return -VB_EUNKNOWN;
	return answer != 0 ? answer : if_done;
}

/* 0; -EAGAIN: the policy, or a try, does not wait; -ENOBUFS: come again; -ETIMEDOUT; ... */
static int attempt(struct vb_lock_client *me, struct vb_claim *c, enum vb_locktab_kind kind,
		   uint64_t until_ns, uint64_t *begun_ns)
{
	struct vb_locktab_asking q = {
		.ask = {.kind = (uint8_t)kind,
			.lock = c->lock,
			.mode = (uint8_t)c->mode,
			.flags = vb_locktab_holds_others(me) ? VB_LOCKTAB_BOUNDED : 0},
		.claim = c,
		.bounded = vb_locktab_is_bounded(me)};
	/* What does not wait is answered soon: be patient for a little beyond the deadline. */
	uint64_t until = kind == VB_LOCKTAB_TRY ? VB_FOREVER : until_ns;
	int err = vb_locktab_request(me, &q, until);

	*begun_ns = q.begun_ns;
	c->queued = false;
	if (err == 0 && vb_locktab_came_late(me, &q)) {
		VB_SOMETIMES(20000, "table: granted when another lock's lease had ended");
		err = -ETIMEDOUT;
	}
	if (err == 0 && q.answer.err == 0)
		return granted(me, c, &q);
	if (err == 0 && q.moved)
		return undo_of_two(me, &q, 0);
	if (err == 0)
		return (int)q.answer.err;
	if (err == -VB_EPEERGONE || q.agent == VB_PEER_NONE)
		return err;
	if (vb_locktab_stop(me, &q) != 0)
		return -VB_EUNKNOWN;
	/* The agent was silent for long and has heard us now: there may be time left. */
	return err == -VB_EUNKNOWN ? -ENOBUFS : err;
}

/* Until when a client comes again for which there was no room, or which a new agent granted nothing
 * yet.  If others may wait for it, they may do so for room, too, in a cycle that no queue shows: then
 * it stays no longer than in a queue, and not beyond the first end of what it held at `begun_ns`. */
static uint64_t comes_until(struct vb_lock_client *me, const struct vb_claim *c, uint64_t begun_ns,
			    uint64_t until_ns)
{
	const struct vb_locktab_asking call = {
		.ask.lock = c->lock, .bounded = vb_locktab_is_bounded(me), .begun_ns = begun_ns};
	bool converts = c->held && vb_locktab_options_of(me)->policy == VB_LOCKTAB_BOUNDED_WAIT;
	uint64_t end = begun_ns + vb_locktab_wait_ns(me->space), lease;

	if (!vb_locktab_holds_others(me) && !converts)
		return until_ns;
	end = end < until_ns ? end : until_ns;
	lease = vb_locktab_first_end(me, &call, end);
	return lease < end ? lease : end;
}

int vb_locktab_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	struct vb_backoff b = {.base_ns = 10000, .cap_ns = 1000000};
	uint64_t first = 0, begun;

	take_age(me);
	for (;;) {
		bool late = until_ns != VB_FOREVER && vb_ep_now(me->ep) >= until_ns;
		int err = attempt(me, c, late ? VB_LOCKTAB_TRY : VB_LOCKTAB_ACQUIRE, until_ns,
				  &begun);

		if (late && (err == -EAGAIN || err == -ENOBUFS))
			return -ETIMEDOUT;
		if (err != -ENOBUFS)
			return err;
		vb_phase(me, VB_PHASE_RT);
		first = first == 0 ? begun : first;
		err = vb_backoff_wait(me, &b, comes_until(me, c, first, until_ns));
		if (err)
			return err;
		me->retries++;
	}
}

int vb_locktab_try(struct vb_lock_client *me, struct vb_claim *c)
{
	uint64_t begun;
	int err;

	take_age(me);
	err = attempt(me, c, VB_LOCKTAB_TRY, 0, &begun);
	return err == -ENOBUFS ? -EAGAIN : err;
}

/* ---- release ---- */

int vb_locktab_release(struct vb_lock_client *me, struct vb_claim *c)
{
	struct vb_locktab_claim *g = vb_claim_as(struct vb_locktab_claim, c);
	struct vb_locktab_asking q = {
		.ask = {.kind = VB_LOCKTAB_RELEASE, .lock = c->lock, .ref = g->ticket}};
	struct vb_backoff b = {.base_ns = 10000, .cap_ns = 1000000};
	int err;

	g->ending = true;
	do {
		if (g->lost)
			return -VB_ELOST;
		err = vb_locktab_request(me, &q, VB_FOREVER);
		/* Without an answer the agent may have heard us or not; the lease ends it. */
		if (err)
			return -VB_EUNKNOWN;
	} while (q.answer.err == -ENOBUFS && vb_backoff_wait(me, &b, q.silent_until_ns) == 0);
	return q.answer.err == -ENOBUFS ? -VB_EUNKNOWN : (int)q.answer.err;
}

/* claim->ended of one that is still to be released. */
#define NOT_YET 1

/* Ends all that the client holds at the agent of a lock, n claims.  NOT_YET: the agents are not as
 * many as when these were counted, so that one has others of the client's, too. */
static int end_at(struct vb_lock_client *me, uint64_t lock, unsigned n)
{
	struct vb_locktab_asking q = {.ask = {.kind = VB_LOCKTAB_END,
					      .lock = lock,
					      .ref = vb_locktab_link_of(me, lock)->workers}};
	int err = vb_locktab_request(me, &q, VB_FOREVER);

	if (err == 0 && q.answer.err == -ESTALE)
		return NOT_YET;
	if (err != 0 || q.answer.err != 0)
		return -VB_EUNKNOWN;
	/* More than n: a grant whose answer we never saw was among them. */
	return q.answer.count >= n ? 0 : -VB_ELOST;
}

/* Whether two locks are served by the same agent. */
static bool same_agent(struct vb_lock_client *me, uint64_t a, uint64_t b)
{
	return vb_locktab_node_of(me, a) == vb_locktab_node_of(me, b) &&
	       vb_locktab_worker_of(me, a) == vb_locktab_worker_of(me, b);
}

static unsigned held_at(struct vb_lock_client *me, uint64_t lock)
{
	unsigned n = 0;

	for (unsigned i = vb_locktab_next_claim(me, 0); i < me->space->claims;
	     i = vb_locktab_next_claim(me, i + 1))
		n += same_agent(me, me->claims[i].lock, lock);
	return n;
}

static void end_some(struct vb_lock_client *me, struct vb_grant *grants, unsigned n, uint64_t lock)
{
	unsigned k = 0;
	int err;

	for (unsigned i = 0; i < n; i++)
		k += grants[i].claim->ended == NOT_YET && same_agent(me, grants[i].lock, lock);
	for (unsigned i = 0; i < n && k > 1 && k == held_at(me, lock); i++)
		if (same_agent(me, grants[i].lock, lock))
			vb_claim_as(struct vb_locktab_claim, grants[i].claim)->ending = true;
	/* A client that keeps others there: one after the other. */
	err = k > 1 && k == held_at(me, lock) ? end_at(me, lock, k) : NOT_YET;
	for (unsigned i = 0; i < n; i++) {
		struct vb_claim *c = grants[i].claim;

		if (c->ended == NOT_YET && same_agent(me, c->lock, lock))
			c->ended = err != NOT_YET ? err : vb_locktab_release(me, c);
	}
}

void vb_locktab_release_all(struct vb_lock_client *me, struct vb_grant *grants, unsigned n)
{
	bool outermost = vb_lock_join(me);

	for (unsigned i = 0; i < n; i++)
		grants[i].claim->ended = NOT_YET;
	/* Agent by agent. */
	for (unsigned i = 0; i < n; i++)
		if (grants[i].claim->ended == NOT_YET)
			end_some(me, grants, n, grants[i].lock);
	vb_lock_part(me, outermost);
}

/* ---- convert ---- */

/* One request for another mode; -ENOBUFS: come again. */
static int convert_once(struct vb_lock_client *me, struct vb_claim *c, struct vb_locktab_asking *q,
			uint64_t until_ns)
{
	bool weaker = vb_mode_covers(c->mode, (enum vb_mode)q->ask.mode);
	/* Less is never waited for, and cannot be undone: it gets through. */
	bool shielded = weaker && vb_task_shield(true);
	int err = vb_locktab_request(me, q, weaker ? VB_FOREVER : until_ns);

	if (weaker)
		vb_task_shield(shielded);
	if (err == 0 && vb_locktab_came_late(me, q))
		err = -ETIMEDOUT;
	if (err == 0 && q->moved && !weaker)
		return undo_of_two(me, q, -ENOBUFS);
	if (err == 0)
		return (int)q->answer.err;
	if (err == -VB_EPEERGONE)
		return -VB_EUNKNOWN;
	if (err != -ETIMEDOUT && err != -ECANCELED && err != -VB_EUNKNOWN)
		return err;
	if (q->agent == VB_PEER_NONE)
		return err;
	if (weaker || vb_locktab_stop(me, q) != 0)
		return -VB_EUNKNOWN;
	return err == -VB_EUNKNOWN ? -ENOBUFS : err;
}

/* Until it is done or refused; the answer is in q. */
static int convert_at_last(struct vb_lock_client *me, struct vb_claim *c,
			   struct vb_locktab_asking *q, uint64_t until_ns)
{
	struct vb_locktab_claim *g = vb_claim_as(struct vb_locktab_claim, c);
	struct vb_backoff b = {.base_ns = 10000, .cap_ns = 1000000};
	uint64_t first = 0;
	int err;

	for (;;) {
		if (g->lost)
			return -VB_ELOST;
		err = convert_once(me, c, q, until_ns);
		if (err != -ENOBUFS)
			return err;
		first = first == 0 ? q->begun_ns : first;
		err = vb_backoff_wait(me, &b, comes_until(me, c, first, until_ns));
		if (err)
			return err;
	}
}

/*
 * To less: an agent may do it, let others in and die before its answer is there.  The one after it is
 * told of what is left, from the first request on: told of more, it would keep those others out,
 * or turn down what they say that they hold.  And where the outcome stays unknown, no more is held.
 */
int vb_locktab_convert(struct vb_lock_client *me, struct vb_claim *c, enum vb_mode mode,
		       uint64_t until_ns)
{
	struct vb_locktab_claim *g = vb_claim_as(struct vb_locktab_claim, c);
	struct vb_locktab_asking q = {.ask = {.kind = VB_LOCKTAB_CONVERT,
					      .lock = c->lock,
					      .ref = g->ticket,
					      .mode = (uint8_t)mode,
					      .flags = VB_LOCKTAB_BOUNDED},
				      .bounded = vb_locktab_is_bounded(me)};
	const enum vb_mode from = c->mode;
	const bool weaker = vb_mode_covers(from, mode);
	int err;

	if (weaker)
		c->mode = mode;
	err = convert_at_last(me, c, &q, until_ns);
	if (weaker && (err == -ETIMEDOUT || err == -ECANCELED))
		err = -VB_EUNKNOWN;
	if (err == 0) {
		c->valid_until_ns = vb_locktab_valid_until(me, &q);
		/* Converted, and over before we knew. */
		if (vb_ep_now_coarse(me->ep) >= c->valid_until_ns) {
			VB_SOMETIMES(1000, "table: converted, and over before the client knew");
			err = -VB_ELOST;
		}
	}
	VB_SOMETIMES_IF(weaker && err == -VB_EUNKNOWN, 1000,
			"table: less is held, or perhaps more");
	if (err == 0)
		c->mode = mode;
	else if (err != -VB_EUNKNOWN)
		c->mode = from;
	if (err == 0 && mode == VB_EXCLUSIVE)
		c->token = q.answer.ticket;
	return err;
}

/* ---- renew ---- */

/* Of two agents that were asked the last has been told of the grant since, which began a lease there,
 * too: the answer may be either's. */
int vb_locktab_renew(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	struct vb_locktab_claim *g = vb_claim_as(struct vb_locktab_claim, c);
	struct vb_locktab_asking q = {.ask = {.kind = VB_LOCKTAB_RENEW,
					      .lock = c->lock,
					      .ref = g->ticket,
					      .mode = (uint8_t)c->mode}};
	struct vb_backoff b = {.base_ns = 10000, .cap_ns = 1000000};
	int err;

	do {
		err = g->lost ? -VB_ELOST : vb_locktab_request(me, &q, until_ns);
		if (g->lost)
			return -VB_ELOST;
		if (err == 0)
			err = (int)q.answer.err;
	} while (err == -ENOBUFS && (err = vb_backoff_wait(me, &b, until_ns)) == 0);
	if (err == 0) {
		c->valid_until_ns = vb_locktab_valid_until(me, &q);
		vb_locktab_note_end(me, c);
	}
	return err;
}

int vb_locktab_holder(struct vb_lock_client *me, uint64_t lock, struct vb_holder *out)
{
	struct vb_locktab_asking q = {.ask = {.kind = VB_LOCKTAB_HOLDER, .lock = lock}};
	int err = vb_locktab_request(me, &q, VB_FOREVER);

	if (err == 0)
		err = q.answer.err == -ENOBUFS ? -EAGAIN : (int)q.answer.err;
	if (err != 0 || q.answer.waited_ns == 0)
		return err;
	out->held = true;
	out->mode = (enum vb_mode)(q.answer.waited_ns - 1);
	out->readers = q.answer.count;
	vb_lock_name_holder(q.answer.ticket, out);
	return 0;
}

/* ---- opening ---- */

/* Requests that exclude a waiting one do not pass it. */
unsigned vb_locktab_bypass(unsigned clients, enum vb_mode mode)
{
	return 0;
}

bool vb_locktab_spares_oldest(const struct vb_lock_space *s)
{
	return ((const struct vb_locktab_options *)s->options)->policy == VB_LOCKTAB_WAIT_DIE;
}

const struct vb_lock_ops vb_lock_table = {
	.name = "table",
	.summary = "six-mode lock table: queues at the server's CPU, asked through mailboxes",
	.source = "Barthels et al., PVLDB 2019, sections 3.2.1 and 3.3",
	.caps = VB_LOCK_SHARED | VB_LOCK_EXCLUSIVE | VB_LOCK_FIFO | VB_LOCK_SURVIVES |
		VB_LOCK_TOKEN | VB_LOCK_SERVER | VB_LOCK_UPDATE | VB_LOCK_INTENT | VB_LOCK_DENIES,
	.recovery_leases = 2,
	.verbs_uncontended = "2 WRITE+notify + 2 WRITE+notify",
	.verbs_contended = "the same, and 2 for each look whether it still waits",
	VB_LOCKTAB_CALLS,
};
