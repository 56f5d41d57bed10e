/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DSLR: Lamport's bakery on one 64-bit word (Yoon et al., SIGMOD 2018).  The word is in dslr.h.
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
 * Leases of several slots (section 5.1): a ticket may have k slots.  Its FAA and its release
 * add k, and its lease is k leases long.
 *
 * Departs from the paper (why, with the interleavings: doc/locks/dslr.md):
 *
 *   1. every reset counts as one exclusive ticket taken and served: n = max = (max_X + 1, max_S);
 *   2. releases are guarded: a masked CAS, or an FAA within the lease, and none a lease after it;
 *   3. refused clients (a counter is at COUNT_MAX) leave their increment in place until a reset;
 *   4. the client that advances a counter *to* COUNT_MAX writes zero instead;
 *   5. a waiter that has not looked for a lease gives its ticket up, a refused one counts anew, and
 *      a reset takes effect within a lease of the look that it compares with, or not at all;
 *   6. the lease starts when the last poll that said "not yet" was posted;
 *   7. a waiter allows 2 leases for each slot that is now before its ticket, at most `slots` slots;
 *   8. of the ticket that reaches COUNT_MAX only the slots up to it are counted;
 *   9. 1,024 times `slots` is at most COUNT_MAX, since the numbers come round k times as fast;
 *  10. where a reader's FAA has landed behind a reset all the same, n_S may be beyond max_S: whoever meets
 *      that is refused, as at COUNT_MAX, and resets the word.
 */
#define VB_LOG_ROOM "dslr"
#include "lock/dslr/dslr.h"

#include "base/log.h"
#include "base/sometimes.h"

#define COUNT_MAX_PAPER 32768
#define SLOTS_MAX       32

const struct vb_opt dslr_option_table[] = {DSLR_OPTIONS(COUNT_MAX_PAPER, "32768", "auto"),
					   DSLR_SLOTS(SLOTS_MAX), DSLR_COUNTED, VB_OPT_END};

/* More readers have left than have come: only a release that landed behind a reset does that (departure 10). */
static bool is_overrun(uint64_t w)
{
	return dslr_n_s(w) > dslr_max_s(w);
}

static bool saturated(const struct vb_lock_client *me, uint64_t w)
{
	uint32_t count_max = (uint32_t)dslr_options_of(me)->count_max;

	return dslr_max_x(w) >= count_max || dslr_max_s(w) >= count_max || is_overrun(w);
}

/* Slots still to be served before a ticket; a holder has all of its slots among them. */
static uint64_t ahead(uint64_t w, uint64_t ticket, uint64_t *writers)
{
	int32_t readers = (int32_t)dslr_max_s(ticket) - (int32_t)dslr_n_s(w);

	*writers = (dslr_max_x(ticket) - dslr_n_x(w)) & 0xffff;
	return *writers + (readers > 0 ? (uint64_t)readers : 0);
}

uint64_t dslr_poll_interval_ns(const struct vb_lock_space *s, uint64_t w, uint64_t ticket)
{
	uint64_t writers;

	return dslr_paper_pause_ns(s, ahead(w, ticket, &writers));
}

/* The word after a reset: departure 1, or zero where that would reach COUNT_MAX. */
static uint64_t reset_word(const struct vb_lock_client *me, uint64_t w)
{
	uint32_t x = dslr_max_x(w) + 1, s = dslr_max_s(w);
	uint32_t count_max = (uint32_t)dslr_options_of(me)->count_max;

	if (x >= count_max || s >= count_max) {
		VB_SOMETIMES(200, "dslr: a reset to zero");
		return 0;
	}
	return dslr_word(x, s, x, s);
}

/* Replaces n (and with to_zero the whole word) if both n are as expected; *old_n: as they were. */
static int swap_n(struct vb_lock_client *me, struct vb_claim *c, uint64_t expect_n, uint64_t new_n,
		  bool to_zero, uint64_t not_after, uint64_t *old_n)
{
	const struct dslr_change to = {.expect = expect_n,
				       .expect_mask = DSLR_N_MASK,
				       .value = to_zero ? 0 : new_n,
				       .value_mask = to_zero ? UINT64_MAX : DSLR_N_MASK};
	int err = dslr_swap(me, c, &to, not_after, old_n);

	*old_n &= DSLR_N_MASK;
	return err;
}

/* Was our ticket reset away?  A reset shows as n_X beyond the ticket; one that zeroed the word, as
 * counters that went back or a max that does not cover the ticket. */
static bool thrown_out(const struct vb_claim *c, uint64_t w)
{
	const struct dslr_claim *t = vb_claim_as(const struct dslr_claim, c);

	if (dslr_n_x(w) > dslr_max_x(t->ticket))
		return true;
	if (dslr_n_x(w) < dslr_n_x(t->seen) || dslr_n_s(w) < dslr_n_s(t->seen))
		return true;
	if (c->mode == VB_EXCLUSIVE)
		return dslr_max_x(w) <= dslr_max_x(t->ticket) ||
		       dslr_n_s(w) > dslr_max_s(t->ticket);
	return dslr_max_s(w) <= dslr_max_s(t->ticket);
}

static bool is_turn(const struct vb_lock_client *me, const struct vb_claim *c, uint64_t w)
{
	return dslr_is_turn(w, vb_claim_as(const struct dslr_claim, c)->ticket, c->mode);
}

static const struct dslr_word_ops word_ops = {
	.n_mask = DSLR_N_MASK,
	.blind_leases = 1,
	.saturated = saturated,
	.is_turn = is_turn,
	.thrown_out = thrown_out,
	.ahead = ahead,
	.reset_word = reset_word,
};

/* What a ticket adds. */
static uint64_t slots_of(const struct vb_claim *c)
{
	return c->leases * (c->mode == VB_SHARED ? DSLR_ONE_MAX_S : DSLR_ONE_MAX_X);
}

int dslr_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	return dslr_draw_until_granted(me, c, &word_ops, slots_of(c), until_ns);
}

/* After a deadline: the ticket may still be good. */
int dslr_resume(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	return dslr_wait_turn(me, c, &word_ops, until_ns);
}

int dslr_try_acquire(struct vb_lock_client *me, struct vb_claim *c)
{
	return dslr_try(me, c, &word_ops, slots_of(c));
}

/*
 * Nobody resets within a lease of the end of ours: patience is two leases and more, and it began
 * when our lease did, when the counters came to our ticket.
 */
static inline uint64_t release_by_ns(const struct vb_lock_client *me, const struct vb_claim *c)
{
	return c->valid_until_ns + dslr_options_of(me)->landing_ns;
}

/* Both n must still be the writer's ticket; nobody else can have moved them but by a reset. */
static int release_exclusive(struct vb_lock_client *me, struct vb_claim *c)
{
	const struct dslr_claim *t = vb_claim_as(struct dslr_claim, c);
	uint32_t x = dslr_max_x(t->ticket), s = dslr_max_s(t->ticket);
	uint32_t next = x + (uint32_t)dslr_slots_served(me, c, x);
	uint64_t mine = dslr_word(x, s, 0, 0), old;
	int err = swap_n(me, c, mine, dslr_word(next, s, 0, 0),
			 next == dslr_options_of(me)->count_max, release_by_ns(me, c), &old);

	if (err == -VB_ETOOLATE) {
		VB_SOMETIMES(200, "dslr: a release a lease after its grant");
		return -VB_ELOST;
	}
	if (err || old == mine)
		return err;
	VB_SOMETIMES(200, "dslr: a writer's release after a reset");
	return -VB_ELOST;
}

/* The lease is over, but perhaps nobody has noticed: n_X tells.  n_S moves with other readers. */
static int release_shared_late(struct vb_lock_client *me, struct vb_claim *c)
{
	const struct dslr_claim *t = vb_claim_as(struct dslr_claim, c);
	uint64_t slots = dslr_slots_served(me, c, dslr_max_s(t->ticket));
	uint64_t n = t->seen & DSLR_N_MASK, old;

	for (;;) {
		uint64_t next = n + slots * DSLR_ONE_N_S;
		int err = swap_n(me, c, n, next, dslr_n_s(next) == dslr_options_of(me)->count_max,
				 release_by_ns(me, c), &old);

		if (err)
			return err == -VB_ETOOLATE ? -VB_ELOST : err;
		if (old == n)
			return 0;
		VB_SOMETIMES(200, "dslr: a late reader's release found other numbers");
		if (dslr_n_x(old) != dslr_max_x(t->ticket) || dslr_n_s(old) < dslr_n_s(n))
			return -VB_ELOST;
		n = old;
		me->retries++;
	}
}

static int release_shared(struct vb_lock_client *me, struct vb_claim *c)
{
	const struct dslr_claim *t = vb_claim_as(struct dslr_claim, c);
	uint64_t add = dslr_slots_served(me, c, dslr_max_s(t->ticket)) * DSLR_ONE_N_S, old, seen;
	int err = vb_faa64_before(me->ep, c->entry, add, c->valid_until_ns, &old);

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
	if (vb_likely(dslr_n_s(old + add) != dslr_options_of(me)->count_max))
		return 0;
	VB_SOMETIMES(200, "dslr: a reader zeroes the word");
	return swap_n(me, c, (old + add) & DSLR_N_MASK, 0, true, VB_FOREVER, &seen);
}

int dslr_release(struct vb_lock_client *me, struct vb_claim *c)
{
	return c->mode == VB_SHARED ? release_shared(me, c) : release_exclusive(me, c);
}

const struct vb_lock_ops vb_lock_dslr = {
	.name = "dslr",
	.summary = "bakery lock on one word: fair, recovers by leases",
	.source = "DSLR, SIGMOD 2018, algorithms 1 to 3, section 5.1",
	.open = dslr_open,
	DSLR_LOCK,
};
