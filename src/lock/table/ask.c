/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request of a client of the lock table to the agent that serves a lock: made again until there is an
 * answer, under its number; given up; and the agent that has taken another's place, which is told first what
 * the client holds.  table.c has the reasons.
 */
#define VB_LOG_ROOM "lock"
#include "lock/table/ask.h"

#include <errno.h>
#include <inttypes.h>

#include "base/log.h"
#include "base/sometimes.h"

/* The first wait for an answer; the next ones are longer, up to a quarter of a lease. */
#define PATIENCE_FIRST_NS 200000ull
#define PATIENCE_LEAST_NS 100000ull
/* Between two looks whether an agent has taken the place of a dead one. */
#define GONE_NAP_NS 1000000ull

/* ---- what the client holds ---- */

unsigned vb_locktab_next_claim(const struct vb_lock_client *me, unsigned i)
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

static int rejoin(struct vb_lock_client *me, uint64_t lock, vb_peer agent);

/* In an earlier part of this call: vb_lock_join. */
static bool was_silent(struct vb_lock_client *me, uint64_t lock)
{
	return me->joint != 0 &&
	       vb_locktab_link_of(me, lock)->silent[vb_locktab_worker_of(me, lock)] == me->joint;
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

/* Waits for an answer until until_ns; -ESTALE: it may have been written over; -ETIMEDOUT, -ECANCELED, -VB_EPEERGONE:
 * none will come. */
static int await_answer(struct vb_lock_client *me, struct vb_locktab_asking *q, uint64_t until_ns)
{
	int err;

	do {
		err = vb_locktab_take_answer(me, q->ask.number, &q->answer);
		if (err != -EAGAIN)
			return err;
		if (vb_unlikely(vb_ep_cut_off(me->ep)))
			return -VB_EPEERGONE;
		err = vb_ep_wait(me->ep, until_ns);
	} while (err == 0);
	/* It may have come together with the end of the wait. */
	return vb_locktab_take_answer(me, q->ask.number, &q->answer) == 0 ? 0 : err;
}

/* The same for the answer that ends the request; -ETIMEDOUT also if another agent must be asked. */
static int await_end(struct vb_lock_client *me, struct vb_locktab_asking *q, uint64_t until_ns)
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
			q->silent_until_ns =
				vb_ep_now(me->ep) + vb_locktab_options_of(me)->ask_for_ns;
			vb_phase(me, VB_PHASE_WP);
			break;
		case -ENXIO:
			vb_lock_server_forget(me->space, vb_locktab_node_of(me, q->ask.lock));
			return -ETIMEDOUT;
		default:
			return 0;
		}
	}
}

/* No agent serves the lock yet, or any more: waits a little for one. */
static int nap(struct vb_lock_client *me, struct vb_locktab_asking *q, uint64_t until_ns)
{
	uint64_t again = vb_ep_now(me->ep) + GONE_NAP_NS;
	int err;

	vb_lock_server_forget(me->space, vb_locktab_node_of(me, q->ask.lock));
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
static int send_copy(struct vb_lock_client *me, struct vb_locktab_asking *q, uint64_t until_ns)
{
	uint16_t node = vb_locktab_node_of(me, q->ask.lock);
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
static int suspect(struct vb_lock_client *me, struct vb_locktab_asking *q, uint64_t now)
{
	uint16_t node = vb_locktab_node_of(me, q->ask.lock);

	if (q->agent != VB_PEER_NONE && q->agent != q->dead &&
	    !vb_peer_alive(me->ep->fabric, q->agent)) {
		q->dead = q->agent;
		vb_lock_server_forget(me->space, node);
	}
	if (now < q->silent_until_ns)
		return 0;
	vb_locktab_link_of(me, q->ask.lock)->silent[vb_locktab_worker_of(me, q->ask.lock)] =
		me->joint;
	if (q->agent != q->dead)
		return -VB_EUNKNOWN;
	return vb_fail(-VB_EPEERGONE, "the server of '%s' locks on node %u is gone",
		       me->space->ops->name, node);
}

/* Numbers grow in strides, to have room between two of them for what a new agent must be told
 * before the request with the larger one. */
static int take_number(struct vb_lock_client *me, struct vb_locktab_asking *q)
{
	struct vb_locktab_client *t = vb_locktab_of(me);

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

uint64_t vb_locktab_first_end(struct vb_lock_client *me, const struct vb_locktab_asking *q,
			      uint64_t upto)
{
	struct vb_locktab_client *t = vb_locktab_of(me);
	uint64_t others = VB_FOREVER, all = VB_FOREVER;

	if (!q->bounded || t->soonest_ns > upto)
		return VB_FOREVER;
	for (unsigned i = vb_locktab_next_claim(me, 0); i < me->space->claims;
	     i = vb_locktab_next_claim(me, i + 1)) {
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

bool vb_locktab_came_late(struct vb_lock_client *me, const struct vb_locktab_asking *q)
{
	uint64_t now;

	if (!q->bounded || q->answer.err != 0 || q->answer.waited_ns == 0)
		return false;
	now = vb_ep_now(me->ep);
	return vb_locktab_first_end(me, q, now) <= now;
}

void vb_locktab_note_end(struct vb_lock_client *me, const struct vb_claim *c)
{
	struct vb_locktab_client *t = vb_locktab_of(me);

	if (c->valid_until_ns < t->soonest_ns || !vb_locktab_holds_others(me))
		t->soonest_ns = c->valid_until_ns;
}

int vb_locktab_request(struct vb_lock_client *me, struct vb_locktab_asking *q, uint64_t until_ns)
{
	/* From here a lease is counted, which may end earlier than it has to. */
	uint64_t now = vb_ep_now_early(me->ep), patience = patience_first(me);
	int err;

	q->agent = q->dead = VB_PEER_NONE;
	q->moved = false;
	err = vb_unlikely(was_silent(me, q->ask.lock)) ? -VB_EUNKNOWN : take_number(me, q);
	if (err)
		return err;
	q->ask.age = me->age;
	q->begun_ns = now;
	q->silent_until_ns = now + vb_locktab_options_of(me)->ask_for_ns;
	q->queued = false;
	for (;;) {
		uint64_t next = now + patience, end = vb_locktab_first_end(me, q, next);

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

int vb_locktab_stop(struct vb_lock_client *me, const struct vb_locktab_asking *given_up)
{
	struct vb_locktab_asking q = {.ask = given_up->ask};
	bool shielded = vb_task_shield(true);
	int err;

	q.ask.kind = VB_LOCKTAB_STOP;
	q.ask.ref = given_up->ask.number;
	err = vb_locktab_request(me, &q, VB_FOREVER);
	vb_task_shield(shielded);
	VB_SOMETIMES_IF(err == 0, 200, "table: a request is stopped");
	return err == 0 && q.answer.err == 0 ? 0 : -VB_EUNKNOWN;
}

uint64_t vb_locktab_valid_until(const struct vb_lock_client *me, const struct vb_locktab_asking *q)
{
	const struct vb_lock_space *s = me->space;
	uint64_t waited = q->answer.waited_ns;

	waited -= (uint64_t)((unsigned __int128)waited * (2 * s->drift_ppm) / 1000000);
	if (vb_locktab_options_of(me)->no_leases)
		return VB_FOREVER;
	return q->begun_ns + waited + s->lease_ns;
}

/* ---- an agent that has taken another's place ---- */

static int reassert(struct vb_lock_client *me, struct vb_claim *c, vb_peer agent)
{
	struct vb_locktab_claim *g = vb_claim_as(struct vb_locktab_claim, c);
	struct vb_locktab_asking q = {.ask = {.kind = VB_LOCKTAB_REASSERT,
					      .lock = c->lock,
					      .ref = g->ticket,
					      .mode = (uint8_t)c->mode},
				      .told = c};
	int err = vb_locktab_request(me, &q, VB_FOREVER);

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
		c->valid_until_ns = vb_locktab_valid_until(me, &q);
	me->lost += g->lost;
	return 0;
}

static int tell_claim(struct vb_lock_client *me, struct vb_claim *c, uint16_t node, vb_peer agent)
{
	struct vb_locktab_claim *g = vb_claim_as(struct vb_locktab_claim, c);
	vb_peer his;

	if (!c->held || g->lost || g->agent == agent || vb_locktab_node_of(me, c->lock) != node ||
	    vb_lock_server_seek(me, c->lock, &his) != 0 || his != agent)
		return 0;
	return reassert(me, c, agent);
}

/* Before the first request to a new agent: what we hold from the one before it. */
static int rejoin(struct vb_lock_client *me, uint64_t lock, vb_peer agent)
{
	struct vb_lock_space *s = me->space;
	uint16_t node = vb_locktab_node_of(me, lock);
	unsigned workers = __atomic_load_n(&s->worker_cache[node], __ATOMIC_ACQUIRE);
	vb_peer *known;

	if (workers == 0)
		return -ETIMEDOUT;
	vb_locktab_link_of(me, lock)->workers = workers;
	known = &vb_locktab_link_of(me, lock)->agent[vb_locktab_worker_of(me, lock)];
	if (vb_likely(*known == agent))
		return 0;
	/* Also to one that we have never asked: there may be more agents than before. */
	for (unsigned i = vb_locktab_next_claim(me, 0); i < s->claims;
	     i = vb_locktab_next_claim(me, i + 1)) {
		int err = tell_claim(me, &me->claims[i], node, agent);

		if (err)
			return err;
	}
	*known = agent;
	return 0;
}
