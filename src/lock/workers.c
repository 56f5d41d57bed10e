/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who serves the locks of a node: the words of the space's header that say so.
 *
 *	workers   63        32 31     16 15      0
 *	          +-----------+---------+--------+
 *	          | changes   | planned | answer |
 *	          +-----------+---------+--------+
 *
 * A worker takes its place by a CAS of its name from nobody's or from a dead one's.  All of a node
 * must agree on how many they are, since that decides which worker serves a lock: the number is
 * planned first, then the name is written, and a CAS of the word confirms that the plan is still
 * the same.  A worker that plans another number has read the names between its own look at the
 * word and its CAS of it: it has seen every worker that had confirmed, and one that had not yet
 * fails to.  The number that clients go by is written when all are there.
 */
#define VB_LOG_ROOM "lock"
#include "base/log.h"
#include "lock/header.h"

/* How long a node may be out of reach. */
#define LINK_NS 5000000000ull

int vb_lock_header_run(struct vb_ep *ep, struct vb_verb *v)
{
	uint64_t until = vb_ep_now(ep) + LINK_NS, pause = ep->fabric->caps.verb_bound_ns + 1000000;
	int err = vb_verb_run(ep, v);

	while ((err == -VB_EUNKNOWN || err == -VB_EPEERGONE || err == -EAGAIN) &&
	       vb_ep_now(ep) < until && vb_ep_sleep(ep, pause) == 0)
		err = vb_verb_run(ep, v);
	return err;
}

int vb_lock_header_verb(struct vb_ep *ep, uint8_t op, vb_addr at, void *buf, uint32_t len)
{
	struct vb_verb v = {.op = op, .addr = at, .buf = buf, .len = len};

	return vb_lock_header_run(ep, &v);
}

int vb_lock_header_read(struct vb_ep *ep, vb_addr at, void *buf, uint32_t len)
{
	return vb_lock_header_verb(ep, VB_OP_READ, at, buf, len);
}

static uint64_t word_of(uint64_t before, unsigned planned, unsigned answer)
{
	return ((before >> 32) + 1) << 32 | (uint64_t)planned << 16 | answer;
}

static unsigned planned(uint64_t word)
{
	return word >> 16 & 0xffff;
}

static vb_addr word_at(const struct vb_lock_server *s)
{
	return vb_lock_header_field(s->space, s->node, workers);
}

static vb_addr name_at(const struct vb_lock_server *s, unsigned worker)
{
	return vb_lock_header_field(s->space, s->node, server) + worker * sizeof(uint64_t);
}

static int get(const struct vb_lock_server *s, vb_addr at, uint64_t *out, unsigned n)
{
	const uint64_t *p = vb_local(s->space->fabric, at, n * sizeof(*out));

	if (!vb_lock_header_by_cpu(s->space->fabric))
		return vb_lock_header_verb(s->ep, VB_OP_READ, at, out,
					   (uint32_t)(n * sizeof(*out)));
	for (unsigned i = 0; i < n; i++)
		out[i] = __atomic_load_n(&p[i], __ATOMIC_ACQUIRE);
	return 0;
}

static int set(const struct vb_lock_server *s, vb_addr at, uint64_t value)
{
	if (!vb_lock_header_by_cpu(s->space->fabric))
		return vb_lock_header_verb(s->ep, VB_OP_WRITE, at, &value, sizeof(value));
	__atomic_store_n((uint64_t *)vb_local(s->space->fabric, at, sizeof(value)), value,
			 __ATOMIC_RELEASE);
	return 0;
}

/* 0: changed; -EAGAIN: it was not `from`.  A lost answer is looked into: nobody else writes the
 * same. */
static int change(const struct vb_lock_server *s, vb_addr at, uint64_t from, uint64_t to)
{
	uint64_t until, old = from, pause = s->space->fabric->caps.verb_bound_ns + 1000000;
	int err;

	if (vb_lock_header_by_cpu(s->space->fabric)) {
		uint64_t *p = vb_local(s->space->fabric, at, sizeof(*p));

		return __atomic_compare_exchange_n(p, &from, to, false, __ATOMIC_SEQ_CST,
						   __ATOMIC_SEQ_CST)
			       ? 0
			       : -EAGAIN;
	}
	until = vb_ep_now(s->ep) + LINK_NS;
	err = vb_cas64(s->ep, at, from, to, &old);
	while ((err == -VB_EUNKNOWN || err == -VB_EPEERGONE) && vb_ep_now(s->ep) < until &&
	       vb_ep_sleep(s->ep, pause) == 0) {
		err = vb_cas64(s->ep, at, from, to, &old);
		if (err == 0 && old == to)
			return 0;
	}
	if (err != 0)
		return err;
	return old == from ? 0 : -EAGAIN;
}

static int busy(const struct vb_lock_server *s, unsigned worker, unsigned workers)
{
	return vb_fail(-EBUSY,
		       "'%s' locks of space '%s' on node %u have a server already, worker %u of "
		       "%u, which lives: stop it before worker %u of %u begins",
		       s->space->ops->name, s->space->name, s->node, worker, workers, s->worker,
		       s->workers);
}

/* Plans another number of workers, when all the former are gone. */
static int plan(const struct vb_lock_server *s, uint64_t word, const uint64_t *name)
{
	vb_addr at = vb_lock_header_field(s->space, s->node, changed_ns);
	uint64_t error_ns;
	int err = 0;

	for (unsigned i = 0; i < VB_LOCK_WORKERS_MAX; i++)
		if (name[i] != VB_PEER_NONE && vb_peer_alive(s->space->fabric, name[i]))
			return busy(s, i, planned(word));
	/* Any new worker may serve locks that the old ones have granted: all must know. */
	if (planned(word) != 0)
		err = set(s, at, vb_ep_common_now(s->ep, &error_ns));
	if (err == 0)
		err = change(s, word_at(s), word, word_of(word, s->workers, 0));
	for (unsigned i = 0; i < VB_LOCK_WORKERS_MAX && err == 0; i++) {
		if (name[i] != VB_PEER_NONE)
			err = change(s, name_at(s, i), name[i], VB_PEER_NONE);
		if (err == -EAGAIN)
			err = 0; /* a new worker has the place */
	}
	return err;
}

/* Our name is there: is the number still as planned?  -EAGAIN: no. */
static int confirm(const struct vb_lock_server *s, uint64_t word)
{
	int err = change(s, word_at(s), word, word_of(word, s->workers, vb_lock_workers(word)));

	while (err == -EAGAIN) {
		err = get(s, word_at(s), &word, 1);
		if (err == 0 && planned(word) != s->workers)
			return -EAGAIN;
		if (err == 0)
			err = change(s, word_at(s), word,
				     word_of(word, s->workers, vb_lock_workers(word)));
	}
	return err;
}

static int claim_once(struct vb_lock_server *s)
{
	uint64_t word, name[VB_LOCK_WORKERS_MAX];
	int err = get(s, word_at(s), &word, 1);

	if (err == 0)
		err = get(s, name_at(s, 0), name, VB_LOCK_WORKERS_MAX);
	if (err)
		return err;
	if (planned(word) != s->workers) {
		err = plan(s, word, name);
		return err != 0 ? err : -EAGAIN;
	}
	if (name[s->worker] != VB_PEER_NONE && vb_peer_alive(s->space->fabric, name[s->worker]))
		return busy(s, s->worker, s->workers);
	err = change(s, name_at(s, s->worker), name[s->worker], s->ep->self);
	if (err)
		return err;
	err = confirm(s, word);
	if (err)
		vb_lock_header_withdraw(s);
	return err;
}

int vb_lock_header_claim(struct vb_lock_server *s)
{
	int err;

	/* Each time round another worker has come further. */
	do
		err = claim_once(s);
	while (err == -EAGAIN);
	return err;
}

int vb_lock_header_publish(struct vb_lock_server *s)
{
	uint64_t word, name[VB_LOCK_WORKERS_MAX];
	int err;

	do {
		err = get(s, word_at(s), &word, 1);
		if (err == 0)
			err = get(s, name_at(s, 0), name, s->workers);
		if (err || vb_lock_workers(word) == s->workers)
			return err;
		for (unsigned i = 0; i < s->workers; i++)
			if (name[i] == VB_PEER_NONE)
				return 0; /* the last worker does it */
		err = change(s, word_at(s), word, word_of(word, s->workers, s->workers));
	} while (err == -EAGAIN);
	return err;
}

/* If it does not get through, the name stays, and clients that ask it learn that it is gone. */
void vb_lock_header_withdraw(struct vb_lock_server *s)
{
	(void)change(s, name_at(s, s->worker), s->ep->self, VB_PEER_NONE);
}

bool vb_lock_header_changed(const struct vb_lock_server *s, uint64_t ns)
{
	uint64_t at, now, error_ns;

	if (get(s, vb_lock_header_field(s->space, s->node, changed_ns), &at, 1) != 0)
		return true;
	now = vb_ep_common_now(s->ep, &error_ns);
	return at != 0 && now < at + ns + 2 * error_ns;
}
