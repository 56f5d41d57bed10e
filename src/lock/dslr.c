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
 * 1. Every reset counts as one exclusive ticket taken and served: n = max = (max_X + 1, max_S).
 * The
 *    paper moves n to just behind the resetter's own ticket.  A reader then cannot tell "those before
 *    me were reset, and I with them" from "those who came with me have already left" (n_S counts
 *    releases, which come in any order: algorithm 2 line 3 throws out readers that are merely slow,
 *    and their tickets then block the next writer).  With a reset visible in n_X, whoever finds
 *    n_X past his ticket was thrown out, and whoever finds n_X at his ticket was not.
 *
 * 2. Releases are guarded.  "elapsed < lease" and the FAA are two moments (algorithm 3): a holder
 * that
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
 * 4. Whoever advances a counter *to* COUNT_MAX writes zero instead: by then the last valid ticket
 * has
 *    been served.  No client has to remember that it owes a reset (the paper's ResetFrom), and
 *    none can die owing it, except between a reader's FAA and its CAS; that, as everything, is
 *    mended by the refused after 2 leases.
 *
 * 5. A waiter that has not looked for a lease gives its ticket up unseen: it may have been reset
 * away
 *    and the numbers may have come round.  For the same reason a refused client begins to count
 *    anew after a lease without a look, and the CAS of a reset takes effect within a lease of the
 *    look that it compares with, or not at all.  (What remains: COUNT_MAX tickets within one lease,
 *    and both counters exactly at the old ticket. At 32,768 and 200 ms that takes 164 thousand
 *    grants of one lock per second after a reset, and luck of 1 in 2^30.)
 *
 * 6. The lease starts when the last poll that said "not yet" was posted, not when the turn is
 * noticed:
 *    others count their 2 leases from the moment at which the counters moved.
 *
 *    A release takes effect within a lease of the end of its lease, or not at all: then others may
 *    reset the word, and the numbers may come round (5.).  Where nobody writes they do, exactly:
 *    zeroed, n_X is 0 again and n_S anything.
 *
 * Leases of several slots (seed 000, section 5.1): a ticket may have k slots.  Its FAA and its
 * release add k, its lease is k leases long.  Where that departs from the paper:
 *
 * 7. Who waits counts 2 leases for each slot that is still to be served before its ticket, and
 *    never more than for the longest grant of the space.  The paper counts the slots that were
 *    when the ticket was drawn: a dead holder of one slot would cost the hundredth in the queue
 *    200 leases.  All slots of the present holders are among those ahead, and nobody joins them
 *    while n stands still: who comes later stands behind the one who waits.  A refused client has
 *    no ticket that says what is ahead of it and counts for the longest grant.
 *
 * 8. Of the ticket that reaches COUNT_MAX only the slots up to it are counted, so that the last
 *    release takes the counter to COUNT_MAX and not past it, or past it too early (4.).  In the
 *    paper the client whose ticket *is* COUNT_MAX - 1 owes the reset; with k > 1 there may be no
 *    such ticket.
 *
 * 9. k refused slots are added at a time, and the numbers come round k times as fast: `slots`
 *    times 1,024 is at most COUNT_MAX, and fewer than 32,767 / slots clients cannot overflow a
 *    field.  Processes that do not agree on `slots` and `count_max` do not share a space.
 */
#define VB_LOG_ROOM "dslr"
#include "lock/dslr.h"

#include "base/log.h"

#define COUNT_MAX_PAPER 32768
#define SLOTS_MAX       32

const struct vb_opt dslr_option_table[] = {DSLR_OPTIONS(COUNT_MAX_PAPER, "32768", "auto"),
					   DSLR_SLOTS(SLOTS_MAX), VB_OPT_END};

static bool saturated(const struct vb_lock_client *me, uint64_t w)
{
	uint32_t count_max = (uint32_t)dslr_options_of(me)->count_max;

	return dslr_max_x(w) >= count_max || dslr_max_s(w) >= count_max;
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

	return x >= count_max || s >= count_max ? 0 : dslr_word(x, s, x, s);
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

/* Was our ticket reset away?  Any reset shows: n_X beyond the ticket; or, when the word was zeroed,
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
 * Nobody resets within a lease of the end of ours: patience is two leases and more, counted from
 * when the counters came to our ticket, and so did our lease.
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

	if (err)
		return err == -VB_ETOOLATE ? -VB_ELOST : err;
	return old == mine ? 0 : -VB_ELOST;
}

/* The lease is over, but nobody may have noticed: n_X tells.  n_S moves with other readers. */
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
	if (vb_unlikely(dslr_n_s(old + add) == dslr_options_of(me)->count_max))
		return swap_n(me, c, (old + add) & DSLR_N_MASK, 0, true, VB_FOREVER, &seen);
	return 0;
}

int dslr_release(struct vb_lock_client *me, struct vb_claim *c)
{
	return c->mode == VB_SHARED ? release_shared(me, c) : release_exclusive(me, c);
}

const struct vb_lock_ops vb_lock_dslr = {
	.name = "dslr",
	.summary = "bakery lock on one word: fair, recovers by leases",
	.source = "seed 000, SIGMOD 2018, algorithms 1 to 3, section 5.1",
	.open = dslr_open,
	DSLR_LOCK,
};
