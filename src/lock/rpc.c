/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RPC lock: the server's CPU keeps the locks, a client asks until it is told yes (ShiftLock, table
 * 1: "RPC relies on server-side CPUs to serve lock acquisition and release RPCs in a retry-on-fail
 * manner").
 *
 *   lock entry, 32 bytes: see served.h
 *
 *   acquire    1 SEND and its answer (1 SEND) per attempt      no one-sided verbs
 *   release    1 SEND and its answer
 *   renew      1 SEND and its answer; a reader's, 1 SEND more
 *   holder     1 SEND and its answer
 *
 *   Promises   shared and exclusive; no order, a client may starve.  Survives its holders: a lease
 *              is judged on the server's clock.  Does not survive its server: what it has granted
 *              stands, but nobody answers any more.
 *
 *   Leases     the client's ends a lease after the moment before it first asked.
 *
 * Departs from the paper, which says nothing of failures: a request has a number and is safe to
 * repeat, and can be withdrawn by that number (why: doc/locks/rpc.md).
 */
#define VB_LOG_ROOM "lock"

#include <errno.h>
#include <inttypes.h>

#include "base/log.h"
#include "base/sometimes.h"
#include "lock/served.h"

/* Clients that a worker remembers at most; beyond that it says "busy" to new ones. */
#define RPC_SEEN_MIN 256u
#define RPC_SEEN_MAX 65536u

enum rpc_tag {
	RPC_ACQUIRE_X = 1,
	RPC_ACQUIRE_S,
	RPC_RELEASE_X,
	RPC_RELEASE_S,
	RPC_WITHDRAW,
	RPC_RENEW_X,
	RPC_RENEW_S,
	RPC_HOLDER, /* asks who has it: nothing is remembered of it */
};

struct rpc_options {
	uint64_t ask_for;
};

static const struct vb_opt rpc_options[] = {
	VB_OPT_TIME(struct rpc_options, ask_for, "ask_for", "2s", 1000000, 3600ull * 1000000000,
		    "how long a request is repeated before its outcome is left unknown"),
	VB_OPT_END,
};

struct rpc_claim {
	uint64_t ticket;
};

/* ---- the server's memory of its clients' last requests ---- */

struct rpc_seen {
	/* VB_PEER_NONE: empty. */
	vb_peer from;
	uint64_t number, lock;
	uint64_t at_ns;
	struct vb_answer answer;
	uint16_t tag;
};

/* An open-addressing table, at most half full. */
struct rpc_memory {
	unsigned size, used;
	struct rpc_seen slot[];
};

static struct rpc_memory *rpc_memory_new(unsigned size)
{
	struct rpc_memory *m = calloc(1, sizeof(*m) + size * sizeof(m->slot[0]));

	if (m)
		m->size = size;
	return m;
}

static int rpc_server_open(struct vb_lock_server *s)
{
	s->priv = rpc_memory_new(RPC_SEEN_MIN);
	return s->priv ? 0 : vb_fail(-ENOMEM, "no memory for a lock server");
}

static struct rpc_seen *rpc_memory_slot(struct rpc_memory *m, vb_peer from)
{
	unsigned i = (unsigned)((from * 0x9e3779b97f4a7c15ull) >> 32) & (m->size - 1);

	while (m->slot[i].from != VB_PEER_NONE && m->slot[i].from != from)
		i = (i + 1) & (m->size - 1);
	return &m->slot[i];
}

/*
 * Makes room: forgets clients that have not asked for so long that they cannot be repeating an old
 * request, and doubles the table if most of them are recent.  -ENOSPC at the bound.
 */
static int rpc_memory_tidy(struct vb_lock_server *s, uint64_t now)
{
	const struct rpc_options *o = s->space->options;
	uint64_t keep = 2 * vb_lock_stretch(s->space, o->ask_for);
	struct rpc_memory *old = s->priv, *m;
	unsigned recent = 0, size = old->size;

	for (unsigned i = 0; i < old->size; i++)
		recent += old->slot[i].from && now < old->slot[i].at_ns + keep;
	if (recent * 4 > size && size < RPC_SEEN_MAX)
		size *= 2;
	if (recent * 2 >= size)
		return -ENOSPC;
	m = rpc_memory_new(size);
	if (!m)
		return -ENOSPC;
	for (unsigned i = 0; i < old->size; i++) {
		if (!old->slot[i].from || now >= old->slot[i].at_ns + keep)
			continue;
		*rpc_memory_slot(m, old->slot[i].from) = old->slot[i];
		m->used++;
	}
	free(old);
	s->priv = m;
	return 0;
}

/* The record of a client, made if it is new; NULL if there is no room. */
static struct rpc_seen *rpc_remember(struct vb_lock_server *s, vb_peer from, uint64_t now)
{
	struct rpc_memory *m = s->priv;
	struct rpc_seen *seen = rpc_memory_slot(m, from);

	if (seen->from == from)
		return seen;
	if ((m->used + 1) * 2 > m->size) {
		if (rpc_memory_tidy(s, now) != 0)
			return NULL;
		m = s->priv;
		seen = rpc_memory_slot(m, from);
	}
	m->used++;
	*seen = (struct rpc_seen){.from = from};
	return seen;
}

/* ---- the server's side of a lock ---- */

static enum vb_mode rpc_mode(uint16_t tag)
{
	return tag == RPC_ACQUIRE_S || tag == RPC_RELEASE_S || tag == RPC_RENEW_S ? VB_SHARED
										  : VB_EXCLUSIVE;
}

static struct vb_answer rpc_do(struct vb_lock_server *s, struct vb_served_entry *e, uint16_t tag,
			       const struct vb_ask *ask, vb_peer from, uint64_t now)
{
	struct vb_answer a = {.err = -EINVAL};

	switch (tag) {
	case RPC_ACQUIRE_X:
	case RPC_ACQUIRE_S:
		vb_served_evict(s, e, ask->lock, now);
		a.err = vb_served_grant(s, e, rpc_mode(tag), from, now);
		break;
	case RPC_RELEASE_X:
	case RPC_RELEASE_S:
		a.err = vb_served_take_back(e, rpc_mode(tag), ask->about);
		break;
	case RPC_RENEW_X:
	case RPC_RENEW_S:
		a.err = vb_served_renew(s, e, rpc_mode(tag), ask, now);
		break;
	}
	a.ticket = e->ticket;
	return a;
}

/* The client no longer waits for its request number ask->about. */
static void rpc_withdraw(struct vb_served_entry *e, struct rpc_seen *seen, const struct vb_ask *ask)
{
	if (seen->number == ask->about && seen->lock == ask->lock && seen->answer.err == 0 &&
	    (seen->tag == RPC_ACQUIRE_X || seen->tag == RPC_ACQUIRE_S || seen->tag == RPC_RENEW_S))
		vb_served_take_back(e, rpc_mode(seen->tag), seen->answer.ticket);
	seen->number = ask->number;
	seen->tag = RPC_WITHDRAW;
}

static void rpc_serve(struct vb_lock_server *s, const struct vb_msg *request)
{
	struct vb_msg reply = {.len = sizeof(struct vb_answer)};
	struct vb_answer answer = {.err = -EAGAIN};
	uint64_t now = vb_ep_now(s->ep);
	struct rpc_seen *seen;
	struct vb_served_entry *e;
	struct vb_ask ask;

	memcpy(&ask, request->data, sizeof(ask));
	if (request->len != sizeof(ask) || !vb_served_mine(s, ask.lock)) {
		answer.err = -ENXIO;
		goto out;
	}
	e = vb_local(s->space->fabric, vb_lock_entry(s->space, ask.lock), sizeof(*e));
	if (request->tag == RPC_HOLDER) {
		vb_served_tell(s, e, now, &answer);
		goto out;
	}
	seen = rpc_remember(s, request->from, now);
	vb_served_room(s, seen != NULL);
	if (!seen)
		goto out;
	/* The client has asked something newer since: this is a copy that came late. */
	if (ask.number < seen->number) {
		VB_SOMETIMES(1000, "rpc: a copy after a newer request");
		return;
	}
	seen->at_ns = now;
	if (request->tag == RPC_WITHDRAW) {
		rpc_withdraw(e, seen, &ask);
		return;
	}
	VB_SOMETIMES_IF(ask.number == seen->number, 200, "rpc: a request is answered again");
	if (ask.number != seen->number) {
		seen->answer = rpc_do(s, e, request->tag, &ask, request->from, now);
		seen->number = ask.number;
		seen->lock = ask.lock;
		seen->tag = request->tag;
	}
	answer = seen->answer;
out:
	memcpy(reply.data, &answer, sizeof(answer));
	vb_rpc_reply(s->answers, s->ep, request, &reply);
}

/* ---- the client's side ---- */

static int rpc_attempt(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	const struct rpc_options *o = me->space->options;
	struct rpc_claim *g = vb_claim_as(struct rpc_claim, c);
	struct vb_ask ask = {.lock = c->lock, .number = ++me->mail.next_request};
	uint16_t tag = c->mode == VB_SHARED ? RPC_ACQUIRE_S : RPC_ACQUIRE_X;
	uint64_t before = vb_ep_now(me->ep);
	struct vb_answer answer;
	int err = vb_ask(me, tag, &ask, until_ns, o->ask_for, &answer);

	if (err == 0 && answer.err == 0) {
		g->ticket = answer.ticket;
		return vb_lock_grant(c, before + me->space->lease_ns,
				     c->mode == VB_SHARED ? 0 : answer.ticket);
	}
	if (err == 0)
		return (int)answer.err;
	if (err != -VB_EPEERGONE || vb_ep_cut_off(me->ep))
		vb_ask_forgo(me, RPC_WITHDRAW, &ask);
	return err;
}

static int rpc_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	const uint64_t since_ns = vb_ep_now_early(me->ep);
	int err;

	for (;;) {
		err = rpc_attempt(me, c, until_ns);
		if (err != -EAGAIN)
			return err;
		vb_phase(me, VB_PHASE_RT);
		err = vb_poll_ask(me, since_ns, until_ns);
		if (err)
			return err;
		me->retries++;
	}
}

static int rpc_try(struct vb_lock_client *me, struct vb_claim *c)
{
	return rpc_attempt(me, c, 0);
}

static int rpc_renew(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	const struct rpc_options *o = me->space->options;
	const struct vb_renewal r = {
		.tag = c->mode == VB_SHARED ? RPC_RENEW_S : RPC_RENEW_X,
		.forgo = RPC_WITHDRAW,
		.leave = RPC_RELEASE_S,
		.ask_for_ns = o->ask_for,
	};

	return vb_ask_renew(me, c, &r, until_ns, &vb_claim_as(struct rpc_claim, c)->ticket);
}

static int rpc_holder(struct vb_lock_client *me, uint64_t lock, struct vb_holder *out)
{
	const struct rpc_options *o = me->space->options;

	return vb_ask_holder(me, RPC_HOLDER, lock, o->ask_for, out);
}

static int rpc_release(struct vb_lock_client *me, struct vb_claim *c)
{
	const struct rpc_options *o = me->space->options;
	struct rpc_claim *g = vb_claim_as(struct rpc_claim, c);
	struct vb_ask ask = {
		.lock = c->lock,
		.number = ++me->mail.next_request,
		.about = g->ticket,
	};
	uint16_t tag = c->mode == VB_SHARED ? RPC_RELEASE_S : RPC_RELEASE_X;
	struct vb_answer answer;
	int err = vb_ask_release(me, tag, &ask, o->ask_for, &answer);

	/* Without an answer the server may have heard us or not; the lease ends the grant
	 * anyway. */
	if (err || answer.err == -EAGAIN)
		return -VB_EUNKNOWN;
	return (int)answer.err;
}

const struct vb_lock_ops vb_lock_rpc = {
	.name = "rpc",
	.summary = "the server's CPU keeps the locks, asks again at once",
	.source = "ShiftLock, table 1 and section 4.1 (RPC)",
	.caps = VB_LOCK_SHARED | VB_LOCK_EXCLUSIVE | VB_LOCK_SURVIVES | VB_LOCK_TOKEN |
		VB_LOCK_SERVER,
	.needs = VB_CAP_SEND,
	.entry_bytes = sizeof(struct vb_served_entry),
	.recovery_leases = 3,
	.options = rpc_options,
	.options_size = sizeof(struct rpc_options),
	.verbs_uncontended = "2 SEND + 2 SEND",
	.verbs_contended = "2 SEND per attempt + 2 SEND",
	.acquire = rpc_acquire,
	.try_acquire = rpc_try,
	.renew = rpc_renew,
	.release = rpc_release,
	.holder = rpc_holder,
	.server_open = rpc_server_open,
	.serve = rpc_serve,
};
