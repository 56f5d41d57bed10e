/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DSLR: Lamport's bakery on one 64-bit word (seed 000, SIGMOD 2018).  The word is in dslr.h.
 *
 *   acquire   uncontended 1 FAA                     contended + 1 READ per poll
 *   release   exclusive 1 masked CAS, shared 1 FAA
 *   try       1 READ + 1 CAS
 *
 *   Promises  shared and exclusive; first come, first served (bypass 0 while nobody is thrown out);
 *             survives the death of holders and waiters: the survivors go on after 2 leases without
 *             progress, or 4 if the counters were exhausted as well.  No token of its own.
 *
 * An FAA on max_X or max_S takes a ticket, the previous word; its turn is when n_X (and for writers
 * n_S) reach it.  Waiters poll, the further back the more rarely.
 *
 * Where it departs from the paper, and why (each hole is shown by dslr-as-published):
 *
 * 1. Every reset counts as one exclusive ticket taken and served: n = max = (max_X + 1, max_S).  The
 *    paper moves n to just behind the resetter's own ticket.  A reader then cannot tell "those before
 *    me were reset, and I with them" from "those who came with me have already left" (n_S counts
 *    releases, which come in any order: algorithm 2 line 3 throws out readers that are merely slow,
 *    and their tickets then block the next writer).  With a reset visible in n_X, whoever finds
 *    n_X past his ticket was thrown out, and whoever finds n_X at his ticket was not.
 *
 * 2. Releases are guarded.  "elapsed < lease" and the FAA are two moments (algorithm 3): a holder that
 *    is stopped in between advances the counter past a live ticket.  A writer releases by a masked
 *    CAS that compares both n with its ticket.  A reader's release must not compete with other
 *    readers', so it stays an FAA while the lease lasts, posted not_after its end (the fabric looks
 *    again at the doorbell, and what it has posted lands within verb_bound_ns <= lease / 2, while a
 *    reset cannot come before 2 leases); after that it is a masked CAS loop that compares n_X.
 *
 * 3. Refused clients (a counter is at COUNT_MAX) leave their increment in place and poll with READs
 *    until the word is reset; the paper takes it back by FAA(-1), which underflows the field if the
 *    reset came in between.  The reset replaces the whole word, refused increments included, so
 *    they need no taking back; a client adds at most one per reset, so that fewer than 32,767
 *    clients cannot overflow a field.
 *
 * 4. Whoever advances a counter *to* COUNT_MAX writes zero instead: by then the last valid ticket has
 *    been served.  No client has to remember that it owes a reset (the paper's ResetFrom), and
 *    none can die owing it, except between a reader's FAA and its CAS; that, as everything, is
 *    mended by the refused after 2 leases.
 *
 * 5. A waiter that has not looked for a lease gives its ticket up unseen: it may have been reset away
 *    and the numbers may have come round.  (What remains: COUNT_MAX tickets within one lease, and
 *    both counters exactly at the old ticket. At 32,768 and 10 ms that takes 3.3 million grants of
 *    one lock per second, and luck of 1 in 2^30.)
 *
 * 6. The lease starts when the last poll that said "not yet" was posted, not when the turn is noticed:
 *    others count their 2 leases from the moment at which the counters moved.
 */
#define VB_LOG_ROOM "dslr"
#include "lock/dslr.h"

#include "base/log.h"

#define COUNT_MAX_PAPER 32768
/* Below, a lease could see the counters come round (5.), and a crowd could fill them at once. */
#define COUNT_MAX_MIN 1024

const struct vb_opt dslr_option_table[] = {
	VB_OPT_SIZE(struct dslr_options, count_max, "count_max", "32768", COUNT_MAX_MIN,
		    COUNT_MAX_PAPER, "tickets between two resets of the counters"),
	VB_OPT_TIME(struct dslr_options, omega_ns, "omega", "5us", 0, 1000000000ull,
		    "a waiter looks again after this times the tickets ahead of it"),
	VB_OPT_TIME(struct dslr_options, backoff_base_ns, "backoff_base", "10us", 1, 1000000000ull,
		    "first backoff of a client that meets exhausted counters"),
	VB_OPT_TIME(struct dslr_options, backoff_cap_ns, "backoff_cap", "10ms", 1, 10000000000ull,
		    "longest backoff of such a client"),
	VB_OPT_END};

struct dslr_claim {
	uint64_t ticket;        /* the word before our FAA */
	uint64_t seen;          /* the word at the last look */
	uint64_t seen_since_ns; /* when the counters in it were first seen, at the latest */
	uint64_t looked_ns;     /* when the last look was over */
	uint64_t not_yet_ns;    /* when the last look that said "not yet" was posted */
};

static const struct dslr_options *options_of(const struct vb_lock_client *me)
{
	return me->space->options;
}

static bool saturated(const struct vb_lock_client *me, uint64_t w)
{
	uint32_t count_max = (uint32_t)options_of(me)->count_max;

	return dslr_max_x(w) >= count_max || dslr_max_s(w) >= count_max;
}

uint64_t dslr_poll_interval_ns(const struct vb_lock_space *s, uint64_t w, uint64_t ticket)
{
	const struct dslr_options *o = s->options;
	uint64_t ahead = (dslr_max_x(ticket) - dslr_n_x(w)) & 0xffff;
	int32_t readers = (int32_t)dslr_max_s(ticket) - (int32_t)dslr_n_s(w);
	uint64_t ns = (ahead + (readers > 0 ? (uint64_t)readers : 0)) * o->omega_ns;

	return ns < s->lease_ns / 2 ? ns : s->lease_ns / 2;
}

/* The word after a reset: departure 1, or zero where that would reach COUNT_MAX. */
static uint64_t reset_word(const struct vb_lock_client *me, uint64_t w)
{
	uint32_t x = dslr_max_x(w) + 1, s = dslr_max_s(w);
	uint32_t count_max = (uint32_t)options_of(me)->count_max;

	return x >= count_max || s >= count_max ? 0 : dslr_word(x, s, x, s);
}

/*
 * Replaces n (and with to_zero the whole word) if both n are as expected.  *old_n tells what they
 * were.  Without masked CAS the portable variant compares the whole word and tries again when only
 * max has moved: each time somebody else has taken a ticket, and waiting clients take no second one.
 */
static int swap_n(struct vb_lock_client *me, struct vb_claim *c, uint64_t expect_n, uint64_t new_n,
		  bool to_zero, uint64_t *old_n)
{
	uint64_t guess, seen;
	int err;

	if (vb_likely(!me->space->portable_mask)) {
		err = vb_mcas64(me->ep, c->entry, expect_n, DSLR_N_MASK, to_zero ? 0 : new_n,
				to_zero ? UINT64_MAX : DSLR_N_MASK, &seen);
		*old_n = seen & DSLR_N_MASK;
		return err;
	}
	err = vb_read64(me->ep, c->entry, &guess);
	while (err == 0 && (guess & DSLR_N_MASK) == expect_n) {
		err = vb_cas64(me->ep, c->entry, guess,
			       to_zero ? 0 : new_n | (guess & ~DSLR_N_MASK), &seen);
		if (err == 0 && seen == guess)
			break;
		if (err == 0)
			me->retries++;
		guess = seen;
	}
	*old_n = guess & DSLR_N_MASK;
	return err;
}

/* Was our ticket reset away?  Any reset shows: n_X beyond the ticket; or, when the word was zeroed,
 * counters that went back or a max that does not cover the ticket. */
static bool thrown_out(uint64_t w, const struct dslr_claim *t, enum vb_mode mode)
{
	if (dslr_n_x(w) > dslr_max_x(t->ticket))
		return true;
	if (dslr_n_x(w) < dslr_n_x(t->seen) || dslr_n_s(w) < dslr_n_s(t->seen))
		return true;
	if (mode == VB_EXCLUSIVE)
		return dslr_max_x(w) <= dslr_max_x(t->ticket) ||
		       dslr_n_s(w) > dslr_max_s(t->ticket);
	return dslr_max_s(w) <= dslr_max_s(t->ticket);
}

/* One look at the word: 0 and *w, -EAGAIN if the answer was lost (look again), or an error. */
static int look(struct vb_lock_client *me, struct vb_claim *c, uint64_t *w, uint64_t *posted_ns,
		uint64_t *done_ns)
{
	int err;

	*posted_ns = vb_ep_now(me->ep);
	err = vb_read64(me->ep, c->entry, w);
	*done_ns = vb_ep_now(me->ep);
	return err == -VB_EUNKNOWN ? -EAGAIN : err;
}

/* Nobody has moved for two leases: throws everybody out, ourselves included.  The CAS compares the
 * whole word, so that no ticket taken in the meantime is overwritten. */
static int reset(struct vb_lock_client *me, struct vb_claim *c, uint64_t w)
{
	uint64_t old;
	int err = vb_cas64(me->ep, c->entry, w, reset_word(me, w), &old);

	if (err == 0 && old == w) {
		me->recoveries++;
		vb_debug("lock %llu: reset after two leases without progress",
			 (unsigned long long)c->lock);
	}
	return err;
}

/* Waits for the turn of the ticket.  0; -ETIMEDOUT, -ECANCELED (still queued); -ESTALE (thrown out or
 * given up: take another ticket); or an error. */
static int wait_turn(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	struct dslr_claim *t = vb_claim_as(struct dslr_claim, c);
	const uint64_t two_leases = vb_lock_stretch(me->space, 2 * me->space->lease_ns);

	for (;;) {
		uint64_t pause = dslr_poll_interval_ns(me->space, t->seen, t->ticket);
		uint64_t now = vb_ep_now(me->ep), posted, done, w;
		int err;

		if (now >= until_ns)
			return -ETIMEDOUT;
		if (pause == 0)
			err = vb_poll_pause(me, until_ns);
		else
			err = vb_ep_sleep_until(me->ep,
						now + pause < until_ns ? now + pause : until_ns);
		if (err)
			return err;
		err = look(me, c, &w, &posted, &done);
		if (err == -EAGAIN)
			continue;
		if (err) {
			c->queued = false;
			return err;
		}
		me->retries++;
		if (done - t->looked_ns > me->space->lease_ns || thrown_out(w, t, c->mode)) {
			me->lost++;
			c->queued = false;
			return -ESTALE;
		}
		if (dslr_is_turn(w, t->ticket, c->mode)) {
			t->seen = w;
			return vb_lock_grant(c, t->not_yet_ns + me->space->lease_ns, 0);
		}
		if ((w ^ t->seen) & DSLR_N_MASK)
			t->seen_since_ns = done;
		else if (done - t->seen_since_ns >= two_leases) {
			err = reset(me, c, w);
			if (err && err != -VB_EUNKNOWN) {
				c->queued = false;
				return err;
			}
		}
		t->seen = w;
		t->looked_ns = done;
		t->not_yet_ns = posted;
	}
}

/* The counters are exhausted: waits until somebody has reset them, or does after two leases. */
static int wait_reset(struct vb_lock_client *me, struct vb_claim *c, uint64_t w, uint64_t until_ns)
{
	const struct dslr_options *o = options_of(me);
	const uint64_t two_leases = vb_lock_stretch(me->space, 2 * me->space->lease_ns);
	struct vb_backoff b = {.base_ns = o->backoff_base_ns, .cap_ns = o->backoff_cap_ns};
	uint64_t seen = w, since = vb_ep_now(me->ep), posted, done;

	vb_phase(me, VB_PHASE_RT);
	for (;;) {
		int err = vb_backoff_wait(me, &b, until_ns);

		if (err)
			return err;
		err = look(me, c, &w, &posted, &done);
		if (err == -EAGAIN)
			continue;
		if (err)
			return err;
		me->retries++;
		if (!saturated(me, w))
			return 0;
		if ((w ^ seen) & DSLR_N_MASK) {
			seen = w;
			since = done;
		} else if (done - since >= two_leases) {
			err = reset(me, c, w);
			if (err && err != -VB_EUNKNOWN)
				return err;
		}
	}
}

static int dslr_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	struct dslr_claim *t = vb_claim_as(struct dslr_claim, c);
	const uint64_t one = c->mode == VB_SHARED ? DSLR_ONE_MAX_S : DSLR_ONE_MAX_X;

	for (;;) {
		uint64_t posted = vb_ep_now(me->ep);
		int err = vb_faa64(me->ep, c->entry, one, &t->ticket);

		if (vb_unlikely(err != 0))
			return err;
		if (vb_unlikely(saturated(me, t->ticket))) {
			err = wait_reset(me, c, t->ticket, until_ns);
			if (err)
				return err;
			vb_phase(me, VB_PHASE_IA);
			continue;
		}
		t->seen = t->ticket;
		if (vb_likely(dslr_is_turn(t->ticket, t->ticket, c->mode)))
			return vb_lock_grant(c, posted + me->space->lease_ns, 0);
		vb_phase(me, VB_PHASE_RT);
		vb_lock_mark_queued(me, c);
		t->not_yet_ns = posted;
		t->seen_since_ns = t->looked_ns = vb_ep_now(me->ep);
		err = wait_turn(me, c, until_ns);
		if (err != -ESTALE)
			return err;
		vb_phase(me, VB_PHASE_IA);
		if (vb_ep_now(me->ep) >= until_ns)
			return -ETIMEDOUT;
		if (vb_task_cancelled(vb_task_self()))
			return -ECANCELED;
	}
}

/* After a deadline: the ticket may still be good. */
static int dslr_resume(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	vb_phase(me, VB_PHASE_RT);
	return wait_turn(me, c, until_ns);
}

static int dslr_try(struct vb_lock_client *me, struct vb_claim *c)
{
	struct dslr_claim *t = vb_claim_as(struct dslr_claim, c);
	uint64_t posted, w, old;
	int err = vb_read64(me->ep, c->entry, &w);

	if (err)
		return err == -VB_EUNKNOWN ? -EAGAIN : err;
	if (saturated(me, w) || dslr_n_x(w) != dslr_max_x(w) ||
	    (c->mode == VB_EXCLUSIVE && dslr_n_s(w) != dslr_max_s(w)))
		return -EAGAIN;
	posted = vb_ep_now(me->ep);
	err = vb_cas64(me->ep, c->entry, w,
		       w + (c->mode == VB_SHARED ? DSLR_ONE_MAX_S : DSLR_ONE_MAX_X), &old);
	if (err)
		return err;
	if (old != w)
		return -EAGAIN;
	t->ticket = t->seen = w;
	return vb_lock_grant(c, posted + me->space->lease_ns, 0);
}

/* Both n must still be the writer's ticket; nobody else can have moved them but by a reset. */
static int release_exclusive(struct vb_lock_client *me, struct vb_claim *c)
{
	const struct dslr_claim *t = vb_claim_as(struct dslr_claim, c);
	uint32_t x = dslr_max_x(t->ticket), s = dslr_max_s(t->ticket);
	uint64_t mine = dslr_word(x, s, 0, 0), old;
	int err = swap_n(me, c, mine, dslr_word(x + 1, s, 0, 0), x + 1 == options_of(me)->count_max,
			 &old);

	if (err)
		return err;
	return old == mine ? 0 : -VB_ELOST;
}

/* The lease is over, but nobody may have noticed: n_X tells.  n_S moves with other readers. */
static int release_shared_late(struct vb_lock_client *me, struct vb_claim *c)
{
	const struct dslr_claim *t = vb_claim_as(struct dslr_claim, c);
	uint64_t n = t->seen & DSLR_N_MASK, old;

	for (;;) {
		uint64_t next = n + DSLR_ONE_N_S;
		int err = swap_n(me, c, n, next, dslr_n_s(next) == options_of(me)->count_max, &old);

		if (err)
			return err;
		if (old == n)
			return 0;
		if (dslr_n_x(old) != dslr_max_x(t->ticket) || dslr_n_s(old) < dslr_n_s(n))
			return -VB_ELOST;
		n = old;
		me->retries++;
	}
}

static int release_shared(struct vb_lock_client *me, struct vb_claim *c)
{
	const struct dslr_claim *t = vb_claim_as(struct dslr_claim, c);
	uint64_t old, seen;
	int err = vb_faa64_before(me->ep, c->entry, DSLR_ONE_N_S, c->valid_until_ns, &old);

	if (err == -VB_ETOOLATE)
		return release_shared_late(me, c);
	if (err)
		return err;
	if (vb_unlikely(dslr_n_x(old) != dslr_max_x(t->ticket)))
		return vb_fail(
			-VB_ELOST,
			"a release of lock %llu took effect after its lease: this machine stood "
			"still between the clock and the verb; waiters of the lock may have to "
			"wait for a reset",
			(unsigned long long)c->lock);
	if (vb_unlikely(dslr_n_s(old) + 1 == options_of(me)->count_max))
		return swap_n(me, c, (old + DSLR_ONE_N_S) & DSLR_N_MASK, 0, true, &seen);
	return 0;
}

static int dslr_release(struct vb_lock_client *me, struct vb_claim *c)
{
	return c->mode == VB_EXCLUSIVE ? release_exclusive(me, c) : release_shared(me, c);
}

static unsigned dslr_bypass_bound(unsigned clients, enum vb_mode mode)
{
	(void)clients;
	(void)mode;
	return 0;
}

const struct vb_lock_ops vb_lock_dslr = {
	.name = "dslr",
	.summary = "bakery lock on one word: fair, recovers by leases",
	.source = "seed 000, SIGMOD 2018, algorithms 1 to 3",
	.caps = VB_LOCK_SHARED | VB_LOCK_EXCLUSIVE | VB_LOCK_FIFO | VB_LOCK_SURVIVES,
	.wishes = VB_CAP_MASKED64,
	.portable =
		"releases compare the whole word and try again when a ticket was taken meanwhile",
	.entry_bytes = 8,
	.recovery_leases = 5,
	.options = dslr_option_table,
	.options_size = sizeof(struct dslr_options),
	.verbs_uncontended = "1 FAA; release 1 masked CAS (exclusive) or 1 FAA (shared)",
	.verbs_contended = "+ 1 READ per poll, omega times the tickets ahead apart",
	.bypass_bound = dslr_bypass_bound,
	.acquire = dslr_acquire,
	.resume = dslr_resume,
	.try_acquire = dslr_try,
	.release = dslr_release,
};
