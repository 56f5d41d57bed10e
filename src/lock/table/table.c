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
#include "lock/table/table.h"

#include <errno.h>
#include <inttypes.h>

#include "base/log.h"
#include "base/sometimes.h"

/* The first wait for an answer; the next ones are longer, up to a quarter of a lease. */
#define PATIENCE_FIRST_NS 200000ull
#define PATIENCE_LEAST_NS 100000ull
/* Between two looks whether an agent has taken the place of a dead one. */
#define GONE_NAP_NS 1000000ull

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

struct table_claim {
	uint64_t ticket;
	/* The agent that granted it, or was told of it. */
	vb_peer agent;
	/* An agent that came back does not know of it. */
	bool lost;
	/* A release is under way, and the agent before may have done it. */
	bool ending;
};

static const struct vb_locktab_options *options_of(const struct vb_lock_client *me)
{
	return me->space->options;
}

static struct vb_locktab_client *table_of(struct vb_lock_client *me)
{
	return me->priv;
}

static uint16_t node_of(const struct vb_lock_client *me, uint64_t lock)
{
	return (uint16_t)(lock % me->space->servers);
}

/* ---- what the client holds ---- */

/* The claim of the call under way is one of them. */
static bool holds_others(const struct vb_lock_client *me)
{
	return me->n_used > 1;
}

static bool is_bounded(const struct vb_lock_client *me)
{
	return holds_others(me) && options_of(me)->policy == VB_LOCKTAB_BOUNDED_WAIT &&
	       !options_of(me)->no_leases;
}

/* The first claim from i on that is in use; past the end: there is none. */
static unsigned next_claim(const struct vb_lock_client *me, unsigned i)
{
	unsigned words = vb_claim_words(me->space);
	uint64_t left;

	for (unsigned w = i / 64; w < words; w++, i = 64 * w) {
		left = me->used[w] & ~0ull << i % 64;
		if (left != 0)
			return 64 * w + (unsigned)__builtin_ctzll(left);
	}
	return 64 * words;
}

/* ---- one request ---- */

struct asking {
	struct vb_locktab_ask ask;
	/* An acquire's, which learns that it is queued. */
	struct vb_claim *claim;
	bool queued;
	/* Waits no longer than all else that the client holds is valid. */
	bool bounded;
	/* A reassertion's. */
	const struct vb_claim *told;
	/* A time before it was first sent. */
	uint64_t begun_ns;
	uint64_t silent_until_ns;
	/* The agent that was asked last, and one that was found dead. */
	vb_peer agent;
	vb_peer dead;
	/* Another was asked before: the answer may be either's. */
	bool moved;
	struct vb_locktab_answer answer;
};

static int rejoin(struct vb_lock_client *me, uint64_t lock, vb_peer agent);

static struct vb_locktab_link *link_of(struct vb_lock_client *me, uint64_t lock)
{
	return &table_of(me)->link[node_of(me, lock)];
}

/* The worker that serves a lock, by the number of them that was read last. */
static unsigned worker_of(struct vb_lock_client *me, uint64_t lock)
{
	unsigned workers = link_of(me, lock)->workers;

	return workers == 0 ? 0 : (unsigned)(lock / me->space->servers % workers);
}

/* In an earlier part of this call: vb_lock_join. */
static bool was_silent(struct vb_lock_client *me, uint64_t lock)
{
	return me->joint != 0 && link_of(me, lock)->silent[worker_of(me, lock)] == me->joint;
}

static uint64_t patience_first(const struct vb_lock_client *me)
{
	uint64_t quarter = me->space->lease_ns / 4;

	if (quarter < PATIENCE_LEAST_NS)
		return PATIENCE_LEAST_NS;
	return quarter < PATIENCE_FIRST_NS ? quarter : PATIENCE_FIRST_NS;
}

static uint64_t patience_next(const struct vb_lock_client *me, uint64_t patience)
{
	return patience * 2 <= me->space->lease_ns / 4 ? patience * 2 : patience;
}

/* Waits for an answer until until_ns; -ESTALE: it may have been written over; -ETIMEDOUT, -ECANCELED. */
static int await_answer(struct vb_lock_client *me, struct asking *q, uint64_t until_ns)
{
	int err;

	do {
		err = vb_locktab_take_answer(me, q->ask.number, &q->answer);
		if (err != -EAGAIN)
			return err;
		err = vb_ep_wait(me->ep, until_ns);
	} while (err == 0);
	/* It may have come together with the end of the wait. */
	return vb_locktab_take_answer(me, q->ask.number, &q->answer) == 0 ? 0 : err;
}

/* The same for the answer that ends the request; -ETIMEDOUT also if another agent must be asked. */
static int await_end(struct vb_lock_client *me, struct asking *q, uint64_t until_ns)
{
	for (;;) {
		int err = await_answer(me, q, until_ns);

		if (err)
			return err;
		switch (q->answer.err) {
		case -EINPROGRESS:
			if (q->claim != NULL && !q->queued)
				vb_lock_mark_queued(me, q->claim);
			q->queued = true;
			q->silent_until_ns = vb_ep_now(me->ep) + options_of(me)->ask_for_ns;
			vb_phase(me, VB_PHASE_WP);
			break;
		case -ENXIO:
			vb_lock_server_forget(me->space, node_of(me, q->ask.lock));
			return -ETIMEDOUT;
		default:
			return 0;
		}
	}
}

/* No agent serves the lock yet, or any more: waits a little for one. */
static int nap(struct vb_lock_client *me, struct asking *q, uint64_t until_ns)
{
	uint64_t again = vb_ep_now(me->ep) + GONE_NAP_NS;
	int err;

	vb_lock_server_forget(me->space, node_of(me, q->ask.lock));
	err = vb_ep_sleep_until(me->ep, again < until_ns ? again : until_ns);
	return err ? err : -ETIMEDOUT;
}

/*
 * Whether the agent just found may be told of a grant: not when its lease is over, however long ago the
 * call began.  An agent that has come since may be the second one behind that which granted it, and
 * the first one may have given the lock to somebody else.  While the lease lasts it may not: its grace
 * period, which began later, ends later.
 */
static int may_tell(struct vb_lock_client *me, const struct vb_claim *told)
{
	bool over = vb_ep_now(me->ep) >= told->valid_until_ns;

	VB_SOMETIMES_IF(over, 200, "table: a grant ends before an agent can be told of it");
	return over ? -VB_ELOST : 0;
}

/* Sends a copy to the agent that answers for the lock.  A new agent is first told what we hold
 * there.  -ETIMEDOUT: there is none, and some time has passed. */
static int send_copy(struct vb_lock_client *me, struct asking *q, uint64_t until_ns)
{
	uint16_t node = node_of(me, q->ask.lock);
	vb_peer agent;
	int err = vb_lock_server_seek(me, q->ask.lock, &agent);

	if (vb_unlikely(err == -VB_EPEERGONE)) {
		/* An agent that was stopped is gone as one that died. */
		q->dead = q->agent;
		return nap(me, q, until_ns);
	}
	/* Who serves is not known for a moment; the agent that was asked may live and answer. */
	if (vb_unlikely(err == -VB_EUNKNOWN))
		return nap(me, q, until_ns);
	if (err)
		return err;
	if (vb_unlikely(agent == q->dead))
		return nap(me, q, until_ns);
	q->moved |= q->agent != VB_PEER_NONE && q->agent != agent;
	q->agent = agent;
	if (q->told != NULL)
		err = may_tell(me, q->told);
	else
		err = rejoin(me, q->ask.lock, agent);
	if (err == 0)
		vb_locktab_send_ask(me, node, agent, &q->ask);
	return err;
}

/* No answer for a while: is the agent alive? */
static int suspect(struct vb_lock_client *me, struct asking *q, uint64_t now)
{
	uint16_t node = node_of(me, q->ask.lock);

	if (q->agent != VB_PEER_NONE && q->agent != q->dead &&
	    !vb_peer_alive(me->ep->fabric, q->agent)) {
		q->dead = q->agent;
		vb_lock_server_forget(me->space, node);
	}
	if (now < q->silent_until_ns)
		return 0;
	link_of(me, q->ask.lock)->silent[worker_of(me, q->ask.lock)] = me->joint;
	if (q->agent != q->dead)
		return -VB_EUNKNOWN;
	return vb_fail(-VB_EPEERGONE, "the server of '%s' locks on node %u is gone",
		       me->space->ops->name, node);
}

/* Numbers grow in strides, to have room between two of them for what a new agent must be told
 * before the request with the larger one. */
static int take_number(struct vb_lock_client *me, struct asking *q)
{
	struct vb_locktab_client *t = table_of(me);

	if (q->ask.kind != VB_LOCKTAB_REASSERT) {
		t->number += VB_LOCKTAB_STRIDE;
		t->told = 0;
		q->ask.number = t->number;
		return 0;
	}
	if (++t->told == VB_LOCKTAB_STRIDE)
		return -VB_EUNKNOWN;
	q->ask.number = t->number - VB_LOCKTAB_STRIDE + t->told;
	return 0;
}

/* When the first ends of the grants of other locks that were valid when the request began;
 * VB_FOREVER: none up to `upto`. */
static uint64_t first_end(struct vb_lock_client *me, const struct asking *q, uint64_t upto)
{
	struct vb_locktab_client *t = table_of(me);
	uint64_t others = VB_FOREVER, all = VB_FOREVER;

	if (!q->bounded || t->soonest_ns > upto)
		return VB_FOREVER;
	for (unsigned i = next_claim(me, 0); i < me->space->claims; i = next_claim(me, i + 1)) {
		const struct vb_claim *c = &me->claims[i];

		if (!c->held || c->valid_until_ns <= q->begun_ns)
			continue;
		all = c->valid_until_ns < all ? c->valid_until_ns : all;
		if (c->lock != q->ask.lock && c->valid_until_ns < others)
			others = c->valid_until_ns;
	}
	t->soonest_ns = all;
	return others;
}

/* Granted after a wait in which the lease of another lock has ended: one without the other is of no
 * use. */
static bool came_late(struct vb_lock_client *me, const struct asking *q)
{
	uint64_t now;

	if (!q->bounded || q->answer.err != 0 || q->answer.waited_ns == 0)
		return false;
	now = vb_ep_now(me->ep);
	return first_end(me, q, now) <= now;
}

static void note_end(struct vb_lock_client *me, const struct vb_claim *c)
{
	struct vb_locktab_client *t = table_of(me);

	if (c->valid_until_ns < t->soonest_ns || !holds_others(me))
		t->soonest_ns = c->valid_until_ns;
}

/*
 * Asks until there is an answer (0, q->answer), the local time is until_ns (-ETIMEDOUT), the task
 * is cancelled, or there has been no answer for too long (-VB_EUNKNOWN, -VB_EPEERGONE; q->agent is
 * VB_PEER_NONE then if no agent was ever asked).
 */
static int ask(struct vb_lock_client *me, struct asking *q, uint64_t until_ns)
{
	uint64_t now = vb_ep_now(me->ep), patience = patience_first(me);
	int err;

	q->agent = q->dead = VB_PEER_NONE;
	q->moved = false;
	err = vb_unlikely(was_silent(me, q->ask.lock)) ? -VB_EUNKNOWN : take_number(me, q);
	if (err)
		return err;
	q->ask.age = me->age;
	q->begun_ns = now;
	q->silent_until_ns = now + options_of(me)->ask_for_ns;
	q->queued = false;
	for (;;) {
		uint64_t next = now + patience, end = first_end(me, q, next);

		until_ns = end < until_ns ? end : until_ns;
		next = next < until_ns ? next : until_ns;
		/* Silence is noticed in time, however long the lease. */
		next = q->silent_until_ns < next ? q->silent_until_ns : next;
		err = send_copy(me, q, next);
		if (err == 0)
			err = await_end(me, q, next);
		VB_SOMETIMES_IF(err == -ESTALE, 200, "table: an older answer comes to its place");
		if (err != -ETIMEDOUT && err != -VB_EUNKNOWN && err != -ESTALE)
			return err;
		if (err != -ESTALE)
			patience = patience_next(me, patience);
		now = vb_ep_now(me->ep);
		if (now >= until_ns)
			return -ETIMEDOUT;
		err = suspect(me, q, now);
		if (err)
			return err;
		me->retries++;
	}
}

/* The request is given up: tells the agent until it answers.  0: nothing is left in our name;
 * -VB_EUNKNOWN: a grant may be, until its lease ends. */
static int stop(struct vb_lock_client *me, const struct asking *given_up)
{
	struct asking q = {.ask = given_up->ask};
	bool shielded = vb_task_shield(true);
	int err;

	q.ask.kind = VB_LOCKTAB_STOP;
	q.ask.ref = given_up->ask.number;
	err = ask(me, &q, VB_FOREVER);
	vb_task_shield(shielded);
	VB_SOMETIMES_IF(err == 0, 200, "table: a request is stopped");
	return err == 0 && q.answer.err == 0 ? 0 : -VB_EUNKNOWN;
}

/* The turn came `waited` after the agent had heard of us, on its clock; so not before that time had
 * passed on ours. */
static uint64_t valid_until(const struct vb_lock_client *me, const struct asking *q)
{
	const struct vb_lock_space *s = me->space;
	uint64_t waited = q->answer.waited_ns;

	waited -= (uint64_t)((unsigned __int128)waited * (2 * s->drift_ppm) / 1000000);
	if (options_of(me)->no_leases)
		return VB_FOREVER;
	return q->begun_ns + waited + s->lease_ns;
}

/* ---- an agent that has taken another's place ---- */

static int reassert(struct vb_lock_client *me, struct vb_claim *c, vb_peer agent)
{
	struct table_claim *g = vb_claim_as(struct table_claim, c);
	struct asking q = {.ask = {.kind = VB_LOCKTAB_REASSERT,
				   .lock = c->lock,
				   .ref = g->ticket,
				   .mode = (uint8_t)c->mode},
			   .told = c};
	int err = ask(me, &q, VB_FOREVER);

	if (err != 0 && err != -VB_ELOST)
		return err;
	if (err == 0 && q.answer.err == -ENOBUFS)
		return -VB_EUNKNOWN;
	g->agent = agent;
	/* The answer to the release says whether it was ours. */
	if (err == 0 && q.answer.err != 0 && g->ending)
		return 0;
	g->lost = err != 0 || q.answer.err != 0;
	if (!g->lost)
		c->valid_until_ns = valid_until(me, &q);
	me->lost += g->lost;
	return 0;
}

static int tell_claim(struct vb_lock_client *me, struct vb_claim *c, uint16_t node, vb_peer agent)
{
	struct table_claim *g = vb_claim_as(struct table_claim, c);
	vb_peer his;

	if (!c->held || g->lost || g->agent == agent || node_of(me, c->lock) != node ||
	    vb_lock_server_seek(me, c->lock, &his) != 0 || his != agent)
		return 0;
	return reassert(me, c, agent);
}

/* Before the first request to a new agent: what we hold from the one before it. */
static int rejoin(struct vb_lock_client *me, uint64_t lock, vb_peer agent)
{
	struct vb_lock_space *s = me->space;
	uint16_t node = node_of(me, lock);
	unsigned workers = __atomic_load_n(&s->worker_cache[node], __ATOMIC_ACQUIRE);
	vb_peer *known;

	if (workers == 0)
		return -ETIMEDOUT;
	link_of(me, lock)->workers = workers;
	known = &link_of(me, lock)->agent[worker_of(me, lock)];
	if (vb_likely(*known == agent))
		return 0;
	/* Also to one that we have never asked: there may be more agents than before. */
	for (unsigned i = next_claim(me, 0); i < s->claims; i = next_claim(me, i + 1)) {
		int err = tell_claim(me, &me->claims[i], node, agent);

		if (err)
			return err;
	}
	*known = agent;
	return 0;
}

/* ---- acquire ---- */

/* A transaction begins with the first lock of a client that holds nothing. */
static void take_age(struct vb_lock_client *me)
{
	if (holds_others(me))
		return;
	if (!me->age_given)
		me->age = vb_lock_age_now(me);
	me->age_given = false;
}

static int granted(struct vb_lock_client *me, struct vb_claim *c, const struct asking *q)
{
	struct table_claim *g = vb_claim_as(struct table_claim, c);

	*g = (struct table_claim){.ticket = q->answer.ticket, .agent = q->agent};
	if (vb_unlikely(q->moved)) {
		/* What the last one does not know of it is told, before the next request. */
		g->agent = VB_PEER_NONE;
		link_of(me, c->lock)->agent[worker_of(me, c->lock)] = VB_PEER_NONE;
	}
	c->queued = false;
	(void)vb_lock_grant(c, valid_until(me, q), c->mode == VB_EXCLUSIVE ? q->answer.ticket : 0);
	note_end(me, c);
	return 0;
}

/* Two agents were asked, and the answer may be that of the first, which is gone, while the second has done
 * something else: nothing of it stands then.  The refusal, or `if_done` where it was none. */
static int undo_of_two(struct vb_lock_client *me, struct asking *q, int if_done)
{
	int answer = (int)q->answer.err;

	VB_SOMETIMES(2000, "table: an answer that may be another agent's is undone");
	if (stop(me, q) != 0)
		return -VB_EUNKNOWN;
	return answer != 0 ? answer : if_done;
}

/* 0; -EAGAIN: the policy, or a try, does not wait; -ENOBUFS: come again; -ETIMEDOUT; ... */
static int attempt(struct vb_lock_client *me, struct vb_claim *c, enum vb_locktab_kind kind,
		   uint64_t until_ns, uint64_t *begun_ns)
{
	struct asking q = {.ask = {.kind = (uint8_t)kind,
				   .lock = c->lock,
				   .mode = (uint8_t)c->mode,
				   .flags = holds_others(me) ? VB_LOCKTAB_BOUNDED : 0},
			   .claim = c,
			   .bounded = is_bounded(me)};
	/* What does not wait is answered soon: be patient for a little beyond the deadline. */
	uint64_t until = kind == VB_LOCKTAB_TRY ? VB_FOREVER : until_ns;
	int err = ask(me, &q, until);

	*begun_ns = q.begun_ns;
	c->queued = false;
	if (err == 0 && came_late(me, &q)) {
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
	if (stop(me, &q) != 0)
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
	const struct asking call = {
		.ask.lock = c->lock, .bounded = is_bounded(me), .begun_ns = begun_ns};
	bool converts = c->held && options_of(me)->policy == VB_LOCKTAB_BOUNDED_WAIT;
	uint64_t end = begun_ns + vb_locktab_wait_ns(me->space), lease;

	if (!holds_others(me) && !converts)
		return until_ns;
	end = end < until_ns ? end : until_ns;
	lease = first_end(me, &call, end);
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
	struct table_claim *g = vb_claim_as(struct table_claim, c);
	struct asking q = {.ask = {.kind = VB_LOCKTAB_RELEASE, .lock = c->lock, .ref = g->ticket}};
	struct vb_backoff b = {.base_ns = 10000, .cap_ns = 1000000};
	int err;

	g->ending = true;
	do {
		if (g->lost)
			return -VB_ELOST;
		err = ask(me, &q, VB_FOREVER);
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
	struct asking q = {
		.ask = {.kind = VB_LOCKTAB_END, .lock = lock, .ref = link_of(me, lock)->workers}};
	int err = ask(me, &q, VB_FOREVER);

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
	return node_of(me, a) == node_of(me, b) && worker_of(me, a) == worker_of(me, b);
}

static unsigned held_at(struct vb_lock_client *me, uint64_t lock)
{
	unsigned n = 0;

	for (unsigned i = next_claim(me, 0); i < me->space->claims; i = next_claim(me, i + 1))
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
			vb_claim_as(struct table_claim, grants[i].claim)->ending = true;
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
static int convert_once(struct vb_lock_client *me, struct vb_claim *c, struct asking *q,
			uint64_t until_ns)
{
	bool weaker = vb_mode_covers(c->mode, (enum vb_mode)q->ask.mode);
	/* Less is never waited for, and cannot be undone: it gets through. */
	bool shielded = weaker && vb_task_shield(true);
	int err = ask(me, q, weaker ? VB_FOREVER : until_ns);

	if (weaker)
		vb_task_shield(shielded);
	if (err == 0 && came_late(me, q))
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
	if (weaker || stop(me, q) != 0)
		return -VB_EUNKNOWN;
	return err == -VB_EUNKNOWN ? -ENOBUFS : err;
}

/* Until it is done or refused; the answer is in q. */
static int convert_at_last(struct vb_lock_client *me, struct vb_claim *c, struct asking *q,
			   uint64_t until_ns)
{
	struct table_claim *g = vb_claim_as(struct table_claim, c);
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
	struct table_claim *g = vb_claim_as(struct table_claim, c);
	struct asking q = {.ask = {.kind = VB_LOCKTAB_CONVERT,
				   .lock = c->lock,
				   .ref = g->ticket,
				   .mode = (uint8_t)mode,
				   .flags = VB_LOCKTAB_BOUNDED},
			   .bounded = is_bounded(me)};
	const enum vb_mode from = c->mode;
	const bool weaker = vb_mode_covers(from, mode);
	int err;

	if (weaker)
		c->mode = mode;
	err = convert_at_last(me, c, &q, until_ns);
	if (weaker && (err == -ETIMEDOUT || err == -ECANCELED))
		err = -VB_EUNKNOWN;
	if (err == 0) {
		c->valid_until_ns = valid_until(me, &q);
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
	struct table_claim *g = vb_claim_as(struct table_claim, c);
	struct asking q = {.ask = {.kind = VB_LOCKTAB_RENEW,
				   .lock = c->lock,
				   .ref = g->ticket,
				   .mode = (uint8_t)c->mode}};
	struct vb_backoff b = {.base_ns = 10000, .cap_ns = 1000000};
	int err;

	do {
		err = g->lost ? -VB_ELOST : ask(me, &q, until_ns);
		if (g->lost)
			return -VB_ELOST;
		if (err == 0)
			err = (int)q.answer.err;
	} while (err == -ENOBUFS && (err = vb_backoff_wait(me, &b, until_ns)) == 0);
	if (err == 0) {
		c->valid_until_ns = valid_until(me, &q);
		note_end(me, c);
	}
	return err;
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
