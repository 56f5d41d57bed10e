/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What dslr and dslr-update do in the same way, whatever their words mean: waiting for a turn, for
 * a reset, and taking the lock away from the dead.  Why it is done so: doc/locks/dslr.md.
 */
#define VB_LOG_ROOM "dslr"
#include "lock/dslr/dslr.h"

#include "base/log.h"
#include "base/sometimes.h"

int dslr_open(struct vb_lock_space *s)
{
	struct dslr_options *o = s->options;

	o->patience_slots = o->slots;
	o->landing_ns = s->lease_ns - vb_lock_stretch(s, s->fabric->caps.verb_bound_ns);
	if (o->slots * DSLR_COUNT_MIN > o->count_max)
		return vb_fail(-EINVAL,
			       "'%s': leases of %llu slots and counters that end at %llu: take at "
			       "most %llu slots, or a larger count_max",
			       s->ops->name, (unsigned long long)o->slots,
			       (unsigned long long)o->count_max,
			       (unsigned long long)(o->count_max / DSLR_COUNT_MIN));
	return 0;
}

unsigned dslr_leases_max(const struct vb_lock_space *s)
{
	return (unsigned)((const struct dslr_options *)s->options)->slots;
}

/* A client that resets at another count, or before others' leases end, takes held locks away. */
int dslr_shape(const void *options, uint16_t nodes, struct vb_lock_shape *out)
{
	const struct dslr_options *o = options;

	(void)nodes;
	out->variant = (uint32_t)(o->count_max << 8 | o->slots);
	return 0;
}

unsigned dslr_bypass_bound(unsigned clients, enum vb_mode mode)
{
	(void)clients;
	(void)mode;
	return 0;
}

static uint64_t min64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint64_t dslr_paper_pause_ns(const struct vb_lock_space *s, uint64_t ahead)
{
	return min64(ahead * ((const struct dslr_options *)s->options)->omega_ns, s->lease_ns / 2);
}

/*
 * With omega=auto a waiter goes by what it sees.  A turn ahead is a writer, or a run of readers
 * that come and leave together.  Each costs a round trip or more, and a waiter pauses an eighth of
 * one per turn: looks that find the turn late cost more than looks that find nothing.  What has
 * stood still for some time will stand still for some more: the pause is at least a quarter of
 * that time, so that a hold of any length costs few looks, and its end is found at most a quarter
 * of it late.  But it is at most an eighth of a lease, since the holder may be dead.
 *
 * Where a look is a load of the CPU, a waiter looks at once for some microseconds.  After that it
 * looks with pauses, in which the fabric gives the core away if there are fewer cores than workers.
 * After some more time it sleeps: pauses that are too short for a sleep would burn a core that the
 * holder may need.
 */
#define TURN_SHARE  8
#define STILL_SHARE 4
#define LEASE_SHARE 8
#define POLLS_NS    8000
#define PAUSES_NS   50000
#define SLEEP_NS    100000

uint64_t dslr_pause_ns(const struct vb_lock_client *me, const struct vb_claim *c,
		       const struct dslr_word_ops *ops, uint64_t w, uint64_t still_ns)
{
	const struct vb_lock_space *s = me->space;
	uint64_t writers, ahead, turns, ns;

	ahead = ops->ahead(w, vb_claim_as(const struct dslr_claim, c)->ticket, &writers);
	if (dslr_options_of(me)->omega_ns != VB_OPT_AUTO) {
		bool all = c->mode != VB_SHARED || dslr_options_of(me)->counted == DSLR_COUNT_ALL;

		return dslr_paper_pause_ns(s, all ? ahead : writers);
	}
	turns = writers + min64(ahead - writers, c->mode == VB_SHARED ? writers : writers + 1);
	ns = turns * me->rtt_ns / TURN_SHARE;
	if (ns < still_ns / STILL_SHARE)
		ns = still_ns / STILL_SHARE;
	if (s->fabric->caps.flags & VB_CAP_INLINE) {
		if (still_ns < POLLS_NS)
			return 0;
		if (still_ns >= PAUSES_NS && ns < SLEEP_NS)
			ns = SLEEP_NS;
	}
	return min64(ns, s->lease_ns / LEASE_SHARE);
}

uint64_t dslr_patience_ns(const struct vb_lock_client *me, uint64_t ahead)
{
	uint64_t slots = dslr_options_of(me)->patience_slots;

	if (ahead < slots)
		slots = ahead > 1 ? ahead : 1;
	return vb_lock_stretch(me->space, 2 * slots * me->space->lease_ns);
}

int dslr_look(struct vb_lock_client *me, struct vb_claim *c, uint64_t *w, uint64_t *posted_ns,
	      uint64_t *done_ns)
{
	int err;

	*posted_ns = vb_ep_now(me->ep);
	err = vb_read64(me->ep, c->entry, w);
	*done_ns = vb_ep_now(me->ep);
	if (err == 0)
		vb_lock_learn_rtt(me, *done_ns - *posted_ns);
	return err == -VB_EUNKNOWN ? -EAGAIN : err;
}

/* Without masks. */
static int swap_whole(struct vb_lock_client *me, struct vb_claim *c, const struct dslr_change *to,
		      uint64_t not_after, uint64_t *old)
{
	uint64_t guess = 0, seen;
	int err = vb_read64(me->ep, c->entry, &guess);

	while (err == 0 && (guess & to->expect_mask) == to->expect) {
		err = vb_cas64_before(me->ep, c->entry, guess,
				      to->value | (guess & ~to->value_mask), not_after, &seen);
		if (err == 0 && seen == guess)
			break;
		if (err == 0)
			me->retries++;
		guess = seen;
	}
	*old = guess;
	return err;
}

int dslr_swap(struct vb_lock_client *me, struct vb_claim *c, const struct dslr_change *to,
	      uint64_t not_after, uint64_t *old)
{
	int err;

	do {
		*old = 0;
		if (vb_unlikely(me->space->portable_mask))
			err = swap_whole(me, c, to, not_after, old);
		else
			err = vb_mcas64_before(me->ep, c->entry, to->expect, to->expect_mask,
					       to->value, to->value_mask, not_after, old);
		/* A fabric that has no room for the verb says -VB_ETOOLATE, too, before that
		 * time. */
	} while (vb_unlikely(err == -VB_ETOOLATE) && vb_ep_now(me->ep) <= not_after);
	return err;
}

/* The counters have stood still for too long: throws everybody out, ourselves included.  The CAS
 * compares the whole word, so that no ticket taken in the meantime is overwritten; and it takes
 * effect so soon after the look at w that what it finds is still what was seen. */
static int reset(struct vb_lock_client *me, struct vb_claim *c, const struct dslr_word_ops *ops,
		 uint64_t w, uint64_t looked_ns)
{
	uint64_t old;
	int err = vb_cas64_before(me->ep, c->entry, w, ops->reset_word(me, w),
				  dslr_compare_by_ns(me, ops, looked_ns), &old);

	/* What it did shows at the next look, which is refused if the link is down. */
	if (err == -VB_ETOOLATE || err == -VB_EUNKNOWN || err == -VB_EPEERGONE) {
		VB_SOMETIMES(200, "dslr dslr-update: a reset that may not have been");
		return 0;
	}
	VB_SOMETIMES_IF(err == 0 && old != w, 200, "dslr dslr-update: a reset lost its race");
	if (err == 0 && old == w) {
		me->recoveries++;
		vb_debug("lock %llu: reset, it has stood still for too long",
			 (unsigned long long)c->lock);
	}
	return err;
}

int dslr_wait_turn(struct vb_lock_client *me, struct vb_claim *c, const struct dslr_word_ops *ops,
		   uint64_t until_ns)
{
	struct dslr_claim *t = vb_claim_as(struct dslr_claim, c);
	unsigned refused = 0;

	vb_phase(me, VB_PHASE_RT);
	for (;;) {
		uint64_t now = vb_ep_now(me->ep), posted, done, w, writers;
		uint64_t pause = dslr_pause_ns(me, c, ops, t->seen, now - t->seen_since_ns);
		int err;

		if (now >= until_ns)
			return -ETIMEDOUT;
		if (pause == 0 || VB_CHANCE(200, "dslr dslr-update: looks too early"))
			err = vb_poll_pause(me, until_ns);
		else
			err = vb_ep_sleep_until(me->ep,
						now + pause < until_ns ? now + pause : until_ns);
		if (err)
			return err;
		err = dslr_look(me, c, &w, &posted, &done);
		if (err == -EAGAIN || vb_lock_ask_again(me, err, &refused))
			continue;
		/* The ticket stands until it is reset. */
		if (err) {
			c->queued = false;
			return vb_lock_unknown_if_refused(err);
		}
		refused = 0;
		me->retries++;
		if (done - t->not_yet_ns > dslr_blind_ns(me, ops) || ops->thrown_out(c, w)) {
			VB_SOMETIMES_IF(!ops->thrown_out(c, w), 200,
					"dslr dslr-update: a waiter did not look for too long");
			VB_SOMETIMES(200, "dslr dslr-update: a waiter was thrown out by a reset");
			me->lost++;
			c->queued = false;
			return -ESTALE;
		}
		if (ops->is_turn(me, c, w)) {
			t->seen = w;
			return vb_lock_grant(c, t->not_yet_ns + dslr_lease_ns(me, c), 0);
		}
		if ((w ^ t->seen) & ops->n_mask)
			t->seen_since_ns = done;
		else if (done - t->seen_since_ns >=
			 dslr_patience_ns(me, ops->ahead(w, t->ticket, &writers))) {
			err = VB_CHANCE(200, "dslr dslr-update: puts a reset off")
				      ? 0
				      : reset(me, c, ops, w, posted);
			if (err) {
				c->queued = false;
				return err;
			}
		}
		t->seen = w;
		t->not_yet_ns = posted;
	}
}

int dslr_wait_reset(struct vb_lock_client *me, struct vb_claim *c, const struct dslr_word_ops *ops,
		    uint64_t until_ns)
{
	struct dslr_claim *t = vb_claim_as(struct dslr_claim, c);
	const struct dslr_options *o = dslr_options_of(me);
	const uint64_t patience = dslr_patience_ns(me, UINT64_MAX);
	/* Looks must not be a lease apart, or nothing could be concluded from them. */
	const uint64_t cap_ns = me->space->lease_ns / 2;
	struct vb_backoff b = {.base_ns = o->backoff_base_ns < cap_ns ? o->backoff_base_ns : cap_ns,
			       .cap_ns = o->backoff_cap_ns < cap_ns ? o->backoff_cap_ns : cap_ns};
	uint64_t w, posted, done;
	unsigned refused = 0;

	vb_phase(me, VB_PHASE_RT);
	for (;;) {
		int err = vb_backoff_wait(me, &b, until_ns);

		if (err)
			return err;
		err = dslr_look(me, c, &w, &posted, &done);
		if (err == -EAGAIN || vb_lock_ask_again(me, err, &refused))
			continue;
		if (err)
			return vb_lock_unknown_if_refused(err);
		refused = 0;
		me->retries++;
		if (!ops->saturated(me, w))
			return 0;
		VB_SOMETIMES(200, "dslr dslr-update: refused, the counters are exhausted");
		if ((w ^ t->seen) & ops->n_mask || done - t->not_yet_ns > dslr_blind_ns(me, ops)) {
			t->seen_since_ns = done;
		} else if (done - t->seen_since_ns >= patience) {
			VB_SOMETIMES(400, "dslr dslr-update: exhausted counters are reset");
			err = reset(me, c, ops, w, posted);
			if (err)
				return err;
		}
		t->seen = w;
		t->not_yet_ns = posted;
	}
}

/* ---- without waiting ---- */

int dslr_try(struct vb_lock_client *me, struct vb_claim *c, const struct dslr_word_ops *ops,
	     uint64_t add)
{
	struct dslr_claim *t = vb_claim_as(struct dslr_claim, c);
	uint64_t posted, w, old;
	int err = vb_read64(me->ep, c->entry, &w);

	if (err)
		return err == -VB_EUNKNOWN ? -EAGAIN : err;
	t->ticket = t->seen = w;
	if (ops->saturated(me, w) || !ops->is_turn(me, c, w))
		return -EAGAIN;
	posted = vb_ep_now_early(me->ep);
	err = vb_lock_refusal(vb_cas64_before(me->ep, c->entry, w, w + add, VB_FOREVER, &old));
	if (err)
		return err;
	return old == w ? vb_lock_grant(c, posted + dslr_lease_ns(me, c), 0) : -EAGAIN;
}
