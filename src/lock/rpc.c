/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RPC lock: the server's CPU keeps the locks, a client asks until it is told yes (seed 001, table
 * 1: "RPC relies on server-side CPUs to serve lock acquisition and release RPCs in a retry-on-fail
 * manner").
 *
 *   lock entry, 32 bytes        +---------------------------------------------------------------+
 *   touched by the one server   | ticket         the latest exclusive grant's or reader group's |
 *   worker that answers for     | since          when that was granted, on the server's clock   |
 *   the lock, nobody else       | elder since    the same of the reader group before that;      |
 *                               |                exclusive: the holder's name                   |
 *                               | readers : 32   RPC_WRITER: held exclusively | elders : 32     |
 *                               +---------------------------------------------------------------+
 *                               readers = elders = 0 is free
 *
 *   acquire    1 SEND and its answer (1 SEND) for each attempt      no one-sided verbs
 *   release    1 SEND and its answer
 *
 *   Promises   shared and exclusive; no order, a client may starve.  Survives its holders: a lease
 *              is judged on the server's clock.  An exclusive one is over after one lease; readers
 *              come in groups that are open to newcomers for one lease and over after two, so that
 *              a dead reader cannot hide behind living ones, and two groups are enough.  Tickets
 *              grow with every exclusive grant and every eviction: they are the fencing token, and
 *              how the release of somebody who was evicted is told from the holder's.
 *              Does not survive its server: what it answered stands, but nobody answers any more.
 *
 *   Leases     the client's ends a lease after the moment before it first asked; the server's
 *              begins when it reads the request, which is later, and lasts longer by the drift that
 *              two clocks may have.  So the client's is over first.
 *
 *   Departs    from the paper, which says nothing of failures, in making a request safe to repeat.
 *              It has a number; the server remembers each client's last one and its answer, gives
 *              the same answer to the same number and is deaf to older ones.  A client that stops
 *              waiting withdraws its request by number, which frees what may have been granted.
 */
#define VB_LOG_ROOM "lock"

#include <errno.h>
#include <inttypes.h>

#include "base/log.h"
#include "lock/lock.h"

#define RPC_WRITER UINT32_MAX
/* The first wait for an answer is a quarter of a lease, but not below this; each next one twice. */
#define RPC_PATIENCE_MIN_NS 100000ull
/* Clients that a worker remembers at most; beyond that it says "busy" to new ones. */
#define RPC_SEEN_MIN 256u
#define RPC_SEEN_MAX 65536u

enum rpc_tag { RPC_ACQUIRE_X = 1, RPC_ACQUIRE_S, RPC_RELEASE_X, RPC_RELEASE_S, RPC_WITHDRAW };

struct rpc_ask {
	uint64_t lock;
	uint64_t number; /* grows with each request of a client; the same when it asks again */
	uint64_t ticket; /* release: of the grant.  Withdraw: the number of the request */
};

struct rpc_answer {
	uint64_t ticket;
	int64_t err; /* 0, -EAGAIN busy, -VB_ELOST, -ENXIO ask another worker */
};

_Static_assert(sizeof(struct rpc_ask) <= VB_MSG_DATA, "a request fits a message");
_Static_assert(sizeof(struct rpc_answer) <= VB_MSG_DATA, "an answer fits a message");

struct rpc_entry {
	uint64_t ticket;
	uint64_t since_ns;
	union {
		uint64_t elder_since_ns;
		vb_peer holder;
	};
	uint32_t readers; /* of the group `ticket`, or RPC_WRITER */
	uint32_t elders;  /* of the group `ticket - 1` */
};
_Static_assert(sizeof(struct rpc_entry) == 32, "as in the figure");

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
	vb_peer from; /* VB_PEER_NONE: empty */
	uint64_t number, lock;
	uint64_t at_ns;
	struct rpc_answer answer;
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
	unsigned recent = 0, size = old ? old->size : RPC_SEEN_MIN;

	for (unsigned i = 0; old && i < old->size; i++)
		recent += old->slot[i].from && now < old->slot[i].at_ns + keep;
	if (recent * 4 > size && size < RPC_SEEN_MAX)
		size *= 2;
	if (recent * 2 >= size)
		return -ENOSPC;
	m = rpc_memory_new(size);
	if (!m)
		return -ENOSPC;
	for (unsigned i = 0; old && i < old->size; i++) {
		if (!old->slot[i].from || now >= old->slot[i].at_ns + keep)
			continue;
		*rpc_memory_slot(m, old->slot[i].from) = old->slot[i];
		m->used++;
	}
	free(old);
	s->priv = m;
	return 0;
}

/* What is known of a client, made if it is new; NULL if there is no room. */
static struct rpc_seen *rpc_remember(struct vb_lock_server *s, vb_peer from, uint64_t now)
{
	struct rpc_memory *m = s->priv;
	struct rpc_seen *seen = m ? rpc_memory_slot(m, from) : NULL;

	if (seen && seen->from == from)
		return seen;
	if (!m || (m->used + 1) * 2 > m->size) {
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

static bool rpc_over(uint64_t now, uint64_t since, uint64_t term)
{
	/* A server that took over from a dead one may read a clock a little behind the other's. */
	return now > since && now - since >= term;
}

/* Evicts whose lease is over.  The ticket grows, so that the evicted cannot release any more. */
static void rpc_evict(struct vb_lock_server *s, struct rpc_entry *e, uint64_t lock, uint64_t now)
{
	uint64_t lease = vb_lock_stretch(s->space, s->space->lease_ns);

	if (e->readers == RPC_WRITER) {
		if (!rpc_over(now, e->since_ns, lease))
			return;
		vb_debug("lock %" PRIu64 ": client %" PRIx64 " outstayed its lease", lock,
			 e->holder);
		e->readers = 0;
		e->ticket++;
		return;
	}
	if (e->elders && rpc_over(now, e->elder_since_ns, 2 * lease))
		e->elders = 0;
	if (e->readers && rpc_over(now, e->since_ns, 2 * lease)) {
		e->readers = e->elders = 0;
		e->ticket++;
	}
}

static int rpc_grant_exclusive(struct rpc_entry *e, vb_peer to, uint64_t now)
{
	if (e->readers || e->elders)
		return -EAGAIN;
	e->ticket++;
	e->since_ns = now;
	e->holder = to;
	e->readers = RPC_WRITER;
	return 0;
}

static int rpc_grant_shared(struct vb_lock_server *s, struct rpc_entry *e, uint64_t now)
{
	uint64_t lease = vb_lock_stretch(s->space, s->space->lease_ns);

	if (e->readers == RPC_WRITER)
		return -EAGAIN;
	if (e->readers && rpc_over(now, e->since_ns, lease)) {
		/* The group is closed; a new one opens if there is none older than it. */
		if (e->elders)
			return -EAGAIN;
		e->elders = e->readers;
		e->elder_since_ns = e->since_ns;
		e->readers = 0;
		e->ticket++;
	} else if (!e->readers && !e->elders) {
		e->ticket++;
	}
	/* A group that everybody has left while an older one is still there opens again under its
	 * own ticket: nobody has a grant of it, and the older one must stay the one before it. */
	if (!e->readers)
		e->since_ns = now;
	if (e->readers == RPC_WRITER - 1)
		return -EAGAIN;
	e->readers++;
	return 0;
}

static int rpc_take_back(struct rpc_entry *e, uint16_t tag, uint64_t ticket)
{
	if (tag == RPC_RELEASE_X) {
		if (e->readers != RPC_WRITER || e->ticket != ticket)
			return -VB_ELOST;
		e->readers = 0;
		return 0;
	}
	if (e->readers == RPC_WRITER)
		return -VB_ELOST;
	if (e->ticket == ticket && e->readers)
		e->readers--;
	else if (e->ticket - 1 == ticket && e->elders)
		e->elders--;
	else
		return -VB_ELOST;
	return 0;
}

static struct rpc_answer rpc_do(struct vb_lock_server *s, struct rpc_entry *e, uint16_t tag,
				const struct rpc_ask *ask, vb_peer from, uint64_t now)
{
	struct rpc_answer a = {.err = -EINVAL};

	switch (tag) {
	case RPC_ACQUIRE_X:
		rpc_evict(s, e, ask->lock, now);
		a.err = rpc_grant_exclusive(e, from, now);
		break;
	case RPC_ACQUIRE_S:
		rpc_evict(s, e, ask->lock, now);
		a.err = rpc_grant_shared(s, e, now);
		break;
	case RPC_RELEASE_X:
	case RPC_RELEASE_S:
		a.err = rpc_take_back(e, tag, ask->ticket);
		break;
	}
	a.ticket = e->ticket;
	return a;
}

/* The client does not wait any more for the request number ask->ticket. */
static void rpc_withdraw(struct rpc_entry *e, struct rpc_seen *seen, const struct rpc_ask *ask)
{
	if (seen->number == ask->ticket && seen->lock == ask->lock && seen->answer.err == 0) {
		if (seen->tag == RPC_ACQUIRE_X)
			rpc_take_back(e, RPC_RELEASE_X, seen->answer.ticket);
		else if (seen->tag == RPC_ACQUIRE_S)
			rpc_take_back(e, RPC_RELEASE_S, seen->answer.ticket);
	}
	seen->number = ask->number;
	seen->tag = RPC_WITHDRAW;
}

static bool rpc_mine(const struct vb_lock_server *s, uint64_t lock)
{
	uint64_t servers = s->space->servers;

	return lock < s->space->locks && lock % servers == s->node &&
	       lock / servers % s->workers == s->worker;
}

static void rpc_serve(struct vb_lock_server *s, const struct vb_msg *request)
{
	struct vb_msg reply = {.len = sizeof(struct rpc_answer)};
	struct rpc_answer answer = {.err = -EAGAIN};
	uint64_t now = vb_ep_now(s->ep);
	struct rpc_seen *seen;
	struct rpc_entry *e;
	struct rpc_ask ask;

	memcpy(&ask, request->data, sizeof(ask));
	if (request->len != sizeof(ask) || !rpc_mine(s, ask.lock)) {
		answer.err = -ENXIO;
		goto out;
	}
	e = vb_local(s->space->fabric, vb_lock_entry(s->space, ask.lock), sizeof(*e));
	seen = rpc_remember(s, request->from, now);
	if (!seen)
		goto out;
	/* Older than what this client has asked since: a copy that came late. */
	if (ask.number < seen->number)
		return;
	seen->at_ns = now;
	if (request->tag == RPC_WITHDRAW) {
		rpc_withdraw(e, seen, &ask);
		return;
	}
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

static uint64_t rpc_patience(const struct vb_lock_client *me)
{
	uint64_t quarter = me->space->lease_ns / 4;

	return quarter > RPC_PATIENCE_MIN_NS ? quarter : RPC_PATIENCE_MIN_NS;
}

/* One copy of the request and the wait for its answer. */
static int rpc_ask_once(struct vb_lock_client *me, uint16_t tag, const struct rpc_ask *ask,
			uint64_t until_ns, struct rpc_answer *answer)
{
	struct vb_msg request = {.tag = tag, .len = sizeof(*ask)}, reply;
	uint16_t node = (uint16_t)(ask->lock % me->space->servers);
	vb_peer server;
	int err = vb_lock_server_of(me, ask->lock, &server);

	if (err)
		return err;
	memcpy(request.data, ask, sizeof(*ask));
	err = vb_rpc_call(&me->mail, server, &request, &reply, until_ns);
	if (err == -VB_EPEERGONE && !vb_peer_alive(me->ep->fabric, server)) {
		vb_lock_server_forget(me->space, node);
		return vb_fail(err, "the server of '%s' locks on node %u is gone",
			       me->space->ops->name, node);
	}
	if (err == -VB_EPEERGONE || err == -EAGAIN) {
		/* It could not be reached for now, or its ring is full: as good as no answer. */
		uint64_t again = vb_ep_now(me->ep) + RPC_PATIENCE_MIN_NS;

		err = vb_ep_sleep_until(me->ep, again < until_ns ? again : until_ns);
		return err ? err : -ETIMEDOUT;
	}
	if (err)
		return err;
	memcpy(answer, reply.data, sizeof(*answer));
	if (answer->err != -ENXIO)
		return 0;
	/* The node has other workers than when we looked. */
	vb_lock_server_forget(me->space, node);
	return -ETIMEDOUT;
}

/* Asks, again and again under one number, until there is an answer.  The answer is worth waiting
 * for a little even if until_ns is past: verbs, too, are waited for beyond a deadline. */
static int rpc_ask(struct vb_lock_client *me, uint16_t tag, const struct rpc_ask *ask,
		   uint64_t until_ns, struct rpc_answer *answer)
{
	const struct rpc_options *o = me->space->options;
	uint64_t now = vb_ep_now(me->ep), patience = rpc_patience(me);
	uint64_t give_up = now + o->ask_for;
	int err;

	if (until_ns < now + patience)
		until_ns = now + patience;
	if (until_ns < give_up)
		give_up = until_ns;
	for (;; patience *= 2) {
		err = rpc_ask_once(me, tag, ask,
				   now + patience < give_up ? now + patience : give_up, answer);
		if (err != -ETIMEDOUT && err != -VB_EUNKNOWN)
			return err;
		now = vb_ep_now(me->ep);
		if (now >= give_up)
			return now >= until_ns ? -ETIMEDOUT : -VB_EUNKNOWN;
		me->retries++;
	}
}

/* The answer is lost to us; the server is told so, and not asked whether it understood: if it does
 * not, the lease ends what it may have granted. */
static void rpc_forgo(struct vb_lock_client *me, const struct rpc_ask *ask)
{
	struct rpc_ask w = {
		.lock = ask->lock,
		.number = ++me->mail.next_request,
		.ticket = ask->number,
	};
	struct vb_msg m = {.tag = RPC_WITHDRAW, .len = sizeof(w)};
	vb_peer server;

	if (vb_lock_server_of(me, ask->lock, &server) != 0)
		return;
	memcpy(m.data, &w, sizeof(w));
	vb_send(me->ep, server, &m);
}

static int rpc_attempt(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	struct rpc_claim *g = vb_claim_as(struct rpc_claim, c);
	struct rpc_ask ask = {.lock = c->lock, .number = ++me->mail.next_request};
	uint16_t tag = c->mode == VB_SHARED ? RPC_ACQUIRE_S : RPC_ACQUIRE_X;
	uint64_t before = vb_ep_now(me->ep);
	struct rpc_answer answer;
	int err = rpc_ask(me, tag, &ask, until_ns, &answer);

	if (err == 0 && answer.err == 0) {
		g->ticket = answer.ticket;
		return vb_lock_grant(c, before + me->space->lease_ns,
				     c->mode == VB_SHARED ? 0 : answer.ticket);
	}
	if (err == 0)
		return (int)answer.err;
	if (err != -VB_EPEERGONE)
		rpc_forgo(me, &ask);
	return err;
}

static int rpc_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	int err;

	for (;;) {
		err = rpc_attempt(me, c, until_ns);
		if (err != -EAGAIN)
			return err;
		vb_phase(me, VB_PHASE_RT);
		err = vb_poll_pause(me, until_ns);
		if (err)
			return err;
		me->retries++;
	}
}

static int rpc_try(struct vb_lock_client *me, struct vb_claim *c)
{
	return rpc_attempt(me, c, 0);
}

static int rpc_release(struct vb_lock_client *me, struct vb_claim *c)
{
	struct rpc_claim *g = vb_claim_as(struct rpc_claim, c);
	struct rpc_ask ask = {
		.lock = c->lock,
		.number = ++me->mail.next_request,
		.ticket = g->ticket,
	};
	uint16_t tag = c->mode == VB_SHARED ? RPC_RELEASE_S : RPC_RELEASE_X;
	struct rpc_answer answer;
	int err = rpc_ask(me, tag, &ask, VB_FOREVER, &answer);

	/* Without an answer the server may or may not have heard us; the lease ends it anyway. */
	if (err || answer.err == -EAGAIN)
		return -VB_EUNKNOWN;
	return (int)answer.err;
}

const struct vb_lock_ops vb_lock_rpc = {
	.name = "rpc",
	.summary = "the server's CPU keeps the locks, asks again at once",
	.source = "seed 001, table 1 and section 4.1 (RPC)",
	.caps = VB_LOCK_SHARED | VB_LOCK_EXCLUSIVE | VB_LOCK_SURVIVES | VB_LOCK_TOKEN |
		VB_LOCK_SERVER,
	.needs = VB_CAP_SEND,
	.entry_bytes = sizeof(struct rpc_entry),
	.recovery_leases = 3,
	.options = rpc_options,
	.options_size = sizeof(struct rpc_options),
	.verbs_uncontended = "2 SEND + 2 SEND",
	.verbs_contended = "2 SEND per attempt + 2 SEND",
	.acquire = rpc_acquire,
	.try_acquire = rpc_try,
	.release = rpc_release,
	.serve = rpc_serve,
};
