/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CAS lock: the simplest lock over one-sided verbs (ShiftLock, section 2.2).
 *
 *   lock word, 64 bits        63   62          40 39           24 23                    0
 *                            +----+--------------+---------------+----------------------+
 *                            | 0  | claim number | owner node + 1| owner client         |
 *                            +----+--------------+---------------+----------------------+
 *                             0 = free            vb_peer of the holder
 *
 *   acquire    uncontended 1 CAS      contended 1 CAS per attempt
 *   release    always 1 CAS
 *   holder     1 READ
 *
 * Two ways to wait between attempts:
 *   cas           asks again at once: the paper's CAS-NB, and how it collapses under contention
 *   cas-backoff   SMART's truncated exponential backoff (ASPLOS 2024, section 4.3), which the paper
 *                 takes for CAS-B: the nth wait is min(t0 2^n, cap) + [0, t0) ns.  t0 is a round
 *                 trip (SMART: 4096 cycles of 2.4 GHz, 1.7 us), the cap t0 2^10; with adapt, a cap
 *                 between them that follows the rate of retries.
 *
 *   Promises   exclusive only; no order, a client may starve.  The death of a holder is never
 *              mended: there is no lease, and nobody can tell a dead owner from a slow one.
 *
 * Departs from the papers (why: doc/locks/cas.md, doc/locks/cas-backoff.md):
 *   - release is a CAS from the owner's word, where section 2.2 "zeroes the lock entry";
 *   - a lost answer is looked into (vb_lock_change);
 *   - the cap stands still unless adapt says otherwise.
 */
#define VB_LOG_ROOM "lock"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "lock/lock.h"

#define CAS_FREE 0ull

/* SMART's marks: below a tenth of retries the cap is halved, above a half it is doubled. */
#define CAS_FEW_RETRIES  10
#define CAS_MANY_RETRIES 2

struct cas_options {
	uint64_t backoff_base, backoff_cap, adapt;
};

/* With adapt: the cap, and what has been counted since it last moved. */
struct cas_client {
	uint64_t cap_ns, since_ns;
	uint64_t retries, grants;
};

static const struct vb_opt cas_backoff_options[] = {
	VB_OPT_TIME(struct cas_options, backoff_base, "backoff_base", "auto", 1, 1000000000,
		    "the first wait, and the width of every wait's jitter; auto: a round trip"),
	VB_OPT_TIME(struct cas_options, backoff_cap, "backoff_cap", "auto", 1, 1000000000,
		    "what the waits double up to; auto: 1024 times the first"),
	VB_OPT_TIME(struct cas_options, adapt, "adapt", "0", 0, 10000000000ull,
		    "how often a client moves its cap between backoff_base and backoff_cap with "
		    "its rate of retries (SMART: 1ms); 0: the cap is backoff_cap"),
	VB_OPT_END,
};

/* 0 granted, -EAGAIN somebody has it. */
static int cas_ask(struct vb_lock_client *me, struct vb_claim *c)
{
	uint64_t seen;

	return vb_owner_take(me, c, CAS_FREE, &seen);
}

static int cas_try(struct vb_lock_client *me, struct vb_claim *c)
{
	c->priv[0] = vb_owner_word(me, 0);
	return cas_ask(me, c);
}

static int cas_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	int err;

	c->priv[0] = vb_owner_word(me, 0);
	for (;;) {
		err = cas_ask(me, c);
		if (err != -EAGAIN)
			return err;
		vb_phase(me, VB_PHASE_RT);
		err = vb_poll_pause(me, until_ns);
		if (err)
			return err;
		me->retries++;
	}
}

static int cas_backoff_client_open(struct vb_lock_client *me)
{
	const struct cas_options *o = me->space->options;
	struct cas_client *c;

	if (o->adapt == 0)
		return 0;
	c = calloc(1, sizeof(*c));
	if (c == NULL)
		return vb_fail(-ENOMEM, "no memory for a lock client");
	c->cap_ns = vb_backoff_of(me, o->backoff_base, o->backoff_cap).base_ns;
	c->since_ns = vb_ep_now(me->ep);
	me->priv = c;
	return 0;
}

/* After a grant.  A client that waits moves nothing: its waits are the cap's already. */
static void cas_adapt(struct vb_lock_client *me, uint64_t retries)
{
	const struct cas_options *o = me->space->options;
	struct cas_client *c = me->priv;
	struct vb_backoff b;
	uint64_t now;

	if (c == NULL)
		return;
	c->retries += retries;
	c->grants++;
	now = vb_ep_now(me->ep);
	if (now - c->since_ns < o->adapt)
		return;
	b = vb_backoff_of(me, o->backoff_base, o->backoff_cap);
	if (c->retries * CAS_FEW_RETRIES < c->retries + c->grants)
		c->cap_ns = c->cap_ns / 2 > b.base_ns ? c->cap_ns / 2 : b.base_ns;
	else if (c->retries * CAS_MANY_RETRIES > c->retries + c->grants)
		c->cap_ns = c->cap_ns * 2 < b.cap_ns ? c->cap_ns * 2 : b.cap_ns;
	c->retries = c->grants = 0;
	c->since_ns = now;
}

/* SMART's wait, cut off at the deadline. */
static int cas_back_off(struct vb_lock_client *me, unsigned n, uint64_t until_ns)
{
	const struct cas_options *o = me->space->options;
	const struct vb_backoff b = vb_backoff_of(me, o->backoff_base, o->backoff_cap);
	const struct cas_client *c = me->priv;
	uint64_t wait = c != NULL ? c->cap_ns : b.cap_ns, now = vb_ep_now(me->ep);
	int err;

	if (now >= until_ns)
		return -ETIMEDOUT;
	if (n < 32 && b.base_ns << n < wait)
		wait = b.base_ns << n;
	wait += vb_rng_below(&me->rng, b.base_ns);
	if (wait < until_ns - now)
		return vb_ep_sleep_until(me->ep, now + wait);
	err = vb_ep_sleep_until(me->ep, until_ns);
	return err ? err : -ETIMEDOUT;
}

static int cas_backoff_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	int err;

	c->priv[0] = vb_owner_word(me, 0);
	for (unsigned n = 0;; n++) {
		err = cas_ask(me, c);
		if (err == 0)
			cas_adapt(me, n);
		if (err != -EAGAIN)
			return err;
		vb_phase(me, VB_PHASE_RT);
		err = cas_back_off(me, n, until_ns);
		if (err)
			return err;
		me->retries++;
	}
}

const struct vb_lock_ops vb_lock_cas = {
	.name = "cas",
	.summary = "spins with CAS, asks again at once",
	.source = "ShiftLock, section 2.2 (CAS-NB)",
	.caps = VB_LOCK_EXCLUSIVE,
	.entry_bytes = 8,
	.verbs_uncontended = "1 CAS + 1 CAS",
	.verbs_contended = "1 CAS per attempt + 1 CAS",
	.acquire = cas_acquire,
	.try_acquire = cas_try,
	.release = vb_owner_give_back,
	.release_now = vb_owner_give_back,
	.holder = vb_owner_holder,
};

const struct vb_lock_ops vb_lock_cas_backoff = {
	.name = "cas-backoff",
	.summary = "spins with CAS, truncated exponential backoff",
	.source = "ShiftLock, sections 2.2 and 4.1 (CAS-B); SMART, section 4.3",
	.caps = VB_LOCK_EXCLUSIVE,
	.entry_bytes = 8,
	.options = cas_backoff_options,
	.options_size = sizeof(struct cas_options),
	.verbs_uncontended = "1 CAS + 1 CAS",
	.verbs_contended = "1 CAS per attempt + 1 CAS",
	.client_open = cas_backoff_client_open,
	.acquire = cas_backoff_acquire,
	.try_acquire = cas_try,
	.release = vb_owner_give_back,
	.release_now = vb_owner_give_back,
	.holder = vb_owner_holder,
};
