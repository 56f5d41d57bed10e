/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DSLR exactly as its paper prints it (algorithms 1 to 3), for measuring what its figures measured
 * and for `verbena check lock --lock dslr-as-published`, which finds the holes that dslr.c mends
 * (doc/locks/dslr.md).  Not for use.
 *
 *   acquire   uncontended 1 FAA                     contended + 1 READ per poll
 *   release   1 FAA
 *
 * What the paper leaves open is filled in as plainly as possible: the lease starts when the turn is
 * noticed; a client that fails (thrown out, or refused) tries again; "has not changed for longer
 * than twice the lease" counts from the first look that showed the value.
 */
#define VB_LOG_ROOM "dslr-as-published"
#include "lock/dslr/dslr.h"

static const struct vb_opt published_option_table[] = {DSLR_OPTIONS(32768, "32768", "5us"),
						       VB_OPT_END};

struct published_claim {
	/* The ticket. */
	uint64_t prev;
	/* Algorithm 1: ResetFrom; 0: none. */
	uint64_t reset_from;
	uint64_t seen;
	uint64_t seen_since_ns;
};

static const struct dslr_options *options_of(const struct vb_lock_client *me)
{
	return me->space->options;
}

/* Algorithm 3 line 7, and its other users. */
static int reset_from(struct vb_lock_client *me, struct vb_claim *c, uint64_t from,
		      uint64_t until_ns)
{
	const struct dslr_options *o = options_of(me);
	struct vb_backoff b = {.base_ns = o->backoff_base_ns, .cap_ns = o->backoff_cap_ns};
	uint64_t old;
	int err;

	for (;;) {
		err = vb_cas64(me->ep, c->entry, from, 0, &old);
		if (err || old == from)
			return err;
		err = vb_backoff_wait(me, &b, until_ns);
		if (err)
			return err;
	}
}

/* Algorithm 1 lines 3 to 9 and 18 to 23. */
static int refused(struct vb_lock_client *me, struct vb_claim *c, struct vb_backoff *b,
		   uint64_t one, uint64_t until_ns)
{
	struct published_claim *p = vb_claim_as(struct published_claim, c);
	uint64_t old;
	int err = vb_faa64(me->ep, c->entry, -one, &old);

	if (err)
		return err;
	if ((old ^ p->seen) & DSLR_N_MASK || p->seen_since_ns == 0) {
		p->seen = old;
		p->seen_since_ns = vb_ep_now(me->ep);
	}
	err = vb_backoff_wait(me, b, until_ns);
	if (err)
		return err;
	me->retries++;
	if (vb_ep_now(me->ep) - p->seen_since_ns > 2 * me->space->lease_ns) {
		me->recoveries++;
		p->seen_since_ns = 0;
		err = reset_from(me, c, old - one, vb_ep_now(me->ep) + me->space->lease_ns);
	}
	return err == -ETIMEDOUT ? 0 : err;
}

/* Algorithm 2.  0 granted; -ESTALE: "return Failure". */
static int handle_conflict(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	struct published_claim *p = vb_claim_as(struct published_claim, c);
	const uint32_t count_max = (uint32_t)options_of(me)->count_max;
	uint32_t x = dslr_max_x(p->prev), s = dslr_max_s(p->prev);

	for (;;) {
		uint64_t now = vb_ep_now(me->ep), val, reset, old;
		int err = vb_read64(me->ep, c->entry, &val);

		if (err && err != -VB_EUNKNOWN)
			return err;
		if (err == 0 && (x < dslr_n_x(val) || s < dslr_n_s(val)))
			return -ESTALE;
		if (err == 0 && dslr_is_turn(val, p->prev, c->mode))
			return vb_lock_grant(c, vb_ep_now(me->ep) + me->space->lease_ns, 0);
		if (err == 0 && (val ^ p->seen) & DSLR_N_MASK) {
			p->seen_since_ns = now;
			p->seen = val;
		} else if (err == 0 && now - p->seen_since_ns > 2 * me->space->lease_ns) {
			reset = c->mode == VB_SHARED
					? dslr_word(x, s + 1, dslr_max_x(val), dslr_max_s(val))
					: dslr_word(x + 1, s, dslr_max_x(val), dslr_max_s(val));
			err = vb_cas64(me->ep, c->entry, val, reset, &old);
			if (err == 0 && old == val) {
				me->recoveries++;
				if (dslr_max_x(reset) >= count_max ||
				    dslr_max_s(reset) >= count_max)
					reset_from(me, c, reset, now + me->space->lease_ns);
				return -ESTALE;
			}
		}
		if (vb_ep_now(me->ep) >= until_ns)
			return -ETIMEDOUT;
		me->retries++;
		err = vb_ep_sleep(me->ep, dslr_poll_interval_ns(me->space, val, p->prev));
		if (err)
			return err;
	}
}

/* Algorithm 1, tried again on Failure. */
static int published_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	struct published_claim *p = vb_claim_as(struct published_claim, c);
	const struct dslr_options *o = options_of(me);
	const uint32_t count_max = (uint32_t)o->count_max;
	const bool shared = c->mode == VB_SHARED;
	const uint64_t one = shared ? DSLR_ONE_MAX_S : DSLR_ONE_MAX_X;
	struct vb_backoff b = {.base_ns = o->backoff_base_ns, .cap_ns = o->backoff_cap_ns};
	int err;

	*p = (struct published_claim){0};
	for (;;) {
		uint32_t x, s;

		p->reset_from = 0;
		err = vb_faa64(me->ep, c->entry, one, &p->prev);
		if (err)
			return err;
		x = dslr_max_x(p->prev);
		s = dslr_max_s(p->prev);
		if (s >= count_max || x >= count_max) {
			err = refused(me, c, &b, one, until_ns);
			if (err)
				return err;
			continue;
		}
		if (shared && s == count_max - 1)
			p->reset_from = dslr_word(x, count_max, x, count_max);
		else if (!shared && x == count_max - 1)
			p->reset_from = dslr_word(count_max, s, count_max, s);
		if (dslr_is_turn(p->prev, p->prev, c->mode))
			return vb_lock_grant(c, vb_ep_now(me->ep) + me->space->lease_ns, 0);
		vb_lock_mark_queued(me, c);
		p->seen = p->prev;
		p->seen_since_ns = vb_ep_now(me->ep);
		err = handle_conflict(me, c, until_ns);
		if (err != -ESTALE)
			return err;
		c->queued = false;
		me->lost++;
		if (vb_poll_pause(me, until_ns))
			return -ETIMEDOUT;
	}
}

static int published_resume(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	int err = handle_conflict(me, c, until_ns);

	if (err && err != -ETIMEDOUT && err != -ECANCELED)
		c->queued = false;
	return err;
}

/* The paper has no try: only what needs no waiting, by the same words. */
static int published_try(struct vb_lock_client *me, struct vb_claim *c)
{
	struct published_claim *p = vb_claim_as(struct published_claim, c);
	const uint32_t last = (uint32_t)options_of(me)->count_max - 1;
	uint64_t w, old;
	int err = vb_read64(me->ep, c->entry, &w);

	if (err)
		return err == -VB_EUNKNOWN ? -EAGAIN : err;
	if (dslr_max_x(w) >= last || dslr_max_s(w) >= last || !dslr_is_turn(w, w, c->mode))
		return -EAGAIN;
	err = vb_cas64(me->ep, c->entry, w,
		       w + (c->mode == VB_SHARED ? DSLR_ONE_MAX_S : DSLR_ONE_MAX_X), &old);
	if (err || old != w)
		return err ? err : -EAGAIN;
	*p = (struct published_claim){.prev = w};
	return vb_lock_grant(c, vb_ep_now(me->ep) + me->space->lease_ns, 0);
}

/* Algorithm 3. */
static int published_release(struct vb_lock_client *me, struct vb_claim *c)
{
	struct published_claim *p = vb_claim_as(struct published_claim, c);
	uint64_t old;
	int err;

	if (vb_ep_now(me->ep) >= c->valid_until_ns && !p->reset_from)
		return -VB_ELOST;
	err = vb_faa64(me->ep, c->entry, c->mode == VB_SHARED ? DSLR_ONE_N_S : DSLR_ONE_N_X, &old);
	if (err == 0 && p->reset_from)
		err = reset_from(me, c, p->reset_from, vb_ep_now(me->ep) + me->space->lease_ns);
	/* Not reset: the refused will. */
	return err == -ETIMEDOUT || err == -ECANCELED ? 0 : err;
}

static unsigned published_bypass_bound(unsigned clients, enum vb_mode mode)
{
	(void)clients;
	(void)mode;
	return 0;
}

const struct vb_lock_ops vb_lock_dslr_as_published = {
	.name = "dslr-as-published",
	.summary = "DSLR as its paper prints it, holes included; not for use",
	.source = "DSLR, SIGMOD 2018, algorithms 1 to 3",
	.caps = VB_LOCK_SHARED | VB_LOCK_EXCLUSIVE | VB_LOCK_FIFO | VB_LOCK_SURVIVES,
	.entry_bytes = 8,
	.recovery_leases = 5,
	.options = published_option_table,
	.options_size = sizeof(struct dslr_options),
	.verbs_uncontended = "1 FAA; release 1 FAA",
	.verbs_contended = "+ 1 READ per poll, omega times the tickets ahead apart",
	.bypass_bound = published_bypass_bound,
	.acquire = published_acquire,
	.resume = published_resume,
	.try_acquire = published_try,
	.release = published_release,
};
