/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two-phase locking with DSLR's tickets (RCBench section 6.7, figure 23; Yoon et al., SIGMOD 2018): whoever
 * wants a record draws a ticket by FAA and waits for its turn, first come, first served, readers together.
 * The word is that of the lock `dslr` (lock/dslr/dslr.h) and stands in the tuple's reserved word:
 *
 *	 63          48 47          32 31          16 15           0
 *	+--------------+--------------+--------------+--------------+
 *	| n_X          | n_S          | max_X        | max_S        |
 *	+--------------+--------------+--------------+--------------+
 *	  now serving: exclusive, shared   next ticket: exclusive, shared
 *
 * A ticket names nobody, and this engine recovers locks by the names in them.  So the tickets say only whose
 * turn it is; who has the record say the lock word and the readers' slots of cc/two_phase.h, which are asked
 * for when the turn has come:
 *
 *	draw      FAA max_X or max_S, READ of the tuple's header        its turn: goes on
 *	wait      READ of the header
 *	take      reader: CAS slot, CAS lock, READ      writer: CAS lock, READ
 *	commit    FAA n_X, WRITE, CAS lock              release   FAA n_X or n_S, CAS of the name
 *
 * So a count that is wrong costs order and time, and never lets two have a record.  That is what makes the
 * rest simple:
 *
 *   - A ticket whose turn is past may go on, too: a wrong count keeps nobody out.
 *   - Whose ticket is called and does not come has died or given up.  Where no name is in the tuple and
 *     nothing is served for some looks, more for each ticket ahead, a waiter sets n to its own ticket.
 *   - Counters at half their range, or n beyond max, are reset to zero.  Who sees n go back goes on.
 *   - An upgrade draws no ticket: it would wait for its own turn as a reader to end.
 *
 * Departs from the paper (why: doc/cc/dslr-2pl.md): as said, and each wait is bounded, as in
 * cc/bounded_wait.c, since first come, first served by record makes deadlocks.
 */
#include "base/sometimes.h"
#include "cc/two_phase.h"
#include "lock/dslr/dslr.h"

/* From the key to the lock word. */
#define HEAD_BYTES (VB_TUPLE_META_AT + VB_SX_META + 8u)
/* So many looks: who has been called comes within two or three. */
#define GRACE_LOOKS 8
/* And so many for each ticket ahead, of so many at most: a look and a pause each, and what two waiters see of
 * one moment may be as much apart, at its beginning and at its end. */
#define AHEAD_LOOKS 6
#define AHEAD_MOST  8
#define COUNT_MAX   0x8000u

/* An item's, its own memory. */
struct ticket {
	uint64_t word;     /* max from its FAA, n from its last look */
	uint64_t since_ns; /* when n stands and nobody has the record */
	uint64_t kind;
	uint64_t unused;
};
enum { NONE, FOR_READER, FOR_WRITER };
_Static_assert(sizeof(struct ticket) % 16 == 0, "as vb_cc_ops wants it");

static struct ticket *ticket_of(const struct vb_item *it)
{
	return vb_item_own(it, sizeof(struct ticket));
}

static vb_addr ticket_word(const struct vb_item *it)
{
	return it->at + VB_TUPLE_RESERVED_AT;
}

static int32_t beyond(uint32_t count, uint32_t other)
{
	return (int16_t)(uint16_t)(count - other);
}

static bool is_turn(const struct vb_item *it, uint64_t w)
{
	const uint64_t t = ticket_of(it)->word;

	if (beyond(dslr_n_x(w), dslr_n_x(t)) < 0 || beyond(dslr_n_s(w), dslr_n_s(t)) < 0)
		return true;
	if (beyond(dslr_n_x(w), dslr_max_x(t)) < 0)
		return false;
	return ticket_of(it)->kind == FOR_READER || beyond(dslr_n_s(w), dslr_max_s(t)) >= 0;
}

static bool is_worn(uint64_t w)
{
	return ((dslr_n_x(w) | dslr_n_s(w) | dslr_max_x(w) | dslr_max_s(w)) & COUNT_MAX) != 0 ||
	       dslr_n_x(w) > dslr_max_x(w) || dslr_n_s(w) > dslr_max_s(w);
}

static uint64_t patience_ns(const struct vb_stage *s, const struct vb_item *it)
{
	const uint64_t t = ticket_of(it)->word;
	int32_t ahead = beyond(dslr_max_x(t), dslr_n_x(t));
	int32_t readers = beyond(dslr_max_s(t), dslr_n_s(t));

	if (ticket_of(it)->kind == FOR_WRITER && readers > 0)
		ahead += readers;
	ahead = ahead < 0 ? 0 : ahead > AHEAD_MOST ? AHEAD_MOST : ahead;
	return (GRACE_LOOKS + AHEAD_LOOKS * (uint64_t)ahead) * vb_stage_look_ns(s);
}

/* The word in which this ticket was never drawn, if it is the last one; else w. */
static uint64_t without(const struct vb_item *it, uint64_t w)
{
	const uint64_t t = ticket_of(it)->word;
	const uint64_t one = ticket_of(it)->kind == FOR_WRITER ? DSLR_ONE_MAX_X : DSLR_ONE_MAX_S;

	return ((w ^ (t + one)) & ~DSLR_N_MASK) == 0 ? w - one : w;
}

/* ---- lock ---- */

/* Notes whose name is in the tuple: false if nobody's. */
static bool somebody_has_it(struct vb_item *it, const unsigned char *head)
{
	it->seen = vb_tuple_word(head, vb_item_layout(it)->lock_at);
	it->seen_slot = 0;
	for (unsigned k = 0; k < VB_SX_SLOTS && it->seen == 0; k++) {
		it->seen = vb_tuple_word(head, VB_TUPLE_META_AT + k * 8);
		it->seen_slot = (uint8_t)(k + 1);
	}
	return it->seen != 0;
}

/*
 * It is not its turn: waits, or gives up.  But who would give up a record that nobody has takes it, or a wait
 * that is shorter than the patience with a ticket that is not coming would end like that again and again.
 * `old` takes what the word was where it is changed.
 */
static bool wait_turn(struct vb_stage *s, struct vb_item *it, const unsigned char *head,
		      uint64_t now, uint64_t *old)
{
	struct ticket *ticket = ticket_of(it);
	const uint64_t w = vb_tuple_word(head, VB_TUPLE_RESERVED_AT), t = ticket->word;
	const bool stands = ((w ^ t) & DSLR_N_MASK) == 0, free = !somebody_has_it(it, head);

	if (!free || !stands)
		ticket->since_ns = now;
	ticket->word = (w & DSLR_N_MASK) | (t & ~DSLR_N_MASK);
	if (free && (s->impatient || now - ticket->since_ns > patience_ns(s, it))) {
		const uint64_t n =
			dslr_word(dslr_max_x(t), dslr_max_s(t), dslr_max_x(w), dslr_max_s(w));

		VB_SOMETIMES(200, "dslr-2pl: a ticket is passed over");
		vb_acc_cas(s->acc, VB_AMOD_IM, ticket_word(it), w, n, old);
		ticket->word = (n & DSLR_N_MASK) | (t & ~DSLR_N_MASK);
		return true;
	}
	it->status = VB_ITEM_WAIT;
	if (s->impatient) {
		it->status = VB_TXN_TIMEOUT;
		vb_acc_cas(s->acc, VB_AMOD_IM, ticket_word(it), w, without(it, w), old);
	}
	return false;
}

/* True: its turn has come. */
static bool judge(struct vb_stage *s, struct vb_item *it, const unsigned char *head, uint64_t now,
		  uint64_t *old)
{
	const uint64_t w = vb_tuple_word(head, VB_TUPLE_RESERVED_AT);

	if (vb_tuple_word(head, VB_TUPLE_KEY_AT) != it->key) {
		/* A ticket of another key's tuple, which is passed over. */
		ticket_of(it)->kind = NONE;
		it->at = 0;
		it->seen = 0;
		it->status = VB_ITEM_WAIT;
		return false;
	}
	if (is_worn(w))
		vb_acc_cas(s->acc, VB_AMOD_IM, ticket_word(it), w, 0, old);
	if (!is_turn(it, w))
		return wait_turn(s, it, head, now, old);
	ticket_of(it)->word = (w & DSLR_N_MASK) | (ticket_of(it)->word & ~DSLR_N_MASK);
	return true;
}

/* Those whose turn it is: how many, in `out`. */
static unsigned called(struct vb_stage *s, struct vb_item **items, unsigned n, struct vb_item **out)
{
	unsigned char head[VB_STAGE_ITEMS][HEAD_BYTES];
	uint64_t old[VB_STAGE_ITEMS], now;
	unsigned m = 0;

	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];
		const bool x = it->flags & VB_ITEM_WRITE;

		if (ticket_of(it)->kind == NONE)
			vb_acc_faa(s->acc, VB_AMOD_IM, ticket_word(it),
				   x ? DSLR_ONE_MAX_X : DSLR_ONE_MAX_S, &ticket_of(it)->word);
		vb_acc_read(s->acc, VB_READ_DI, it->at, head[i], HEAD_BYTES);
	}
	if (!vb_stage_go(s, items, n))
		return 0;
	now = vb_ep_now(s->acc->ep);
	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];
		struct ticket *ticket = ticket_of(it);

		if (ticket->kind == NONE) {
			ticket->kind = it->flags & VB_ITEM_WRITE ? FOR_WRITER : FOR_READER;
			ticket->since_ns = now;
		}
		if (judge(s, it, head[i], now, &old[i]))
			out[m++] = it;
	}
	return vb_stage_go(s, items, n) ? m : 0;
}

static void lock(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	struct vb_item *draws[VB_STAGE_ITEMS], *now[VB_STAGE_ITEMS];
	unsigned n_draws = 0, n_now = 0;

	for (unsigned i = 0; i < n; i++) {
		if (items[i]->flags & (VB_ITEM_HELD_X | VB_ITEM_HELD_S))
			now[n_now++] = items[i];
		else
			draws[n_draws++] = items[i];
	}
	if (n_draws > 0)
		n_now += called(s, draws, n_draws, now + n_now);
	if (n_now > 0 && s->err == 0)
		two_phase_lock_sx(s, now, n_now, bounded_wait_judge);
}

/* ---- commit, release ---- */

/* What it has had is served.  A ticket that was not called stays, and is passed over. */
static void served(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];
		struct ticket *ticket = ticket_of(it);
		const bool x = ticket->kind == FOR_WRITER;

		if (it->at == 0 || ticket->kind == NONE || !is_turn(it, ticket->word))
			continue;
		ticket->kind = NONE;
		vb_acc_faa(s->acc, VB_AMOD_IM, ticket_word(it), x ? DSLR_ONE_N_X : DSLR_ONE_N_S,
			   &ticket->word);
	}
}

static void commit(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	served(s, items, n);
	two_phase_commit(s, items, n);
}

static void release(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	served(s, items, n);
	two_phase_release(s, items, n);
}

static const struct vb_stage_ops stages[] = {
	[TWO_PHASE_LOCK] = {.name = "lock",
			    .flags = VB_STAGE_FETCHES | VB_STAGE_MAKES,
			    .run = lock},
	[TWO_PHASE_COMMIT] = {.name = "commit", .flags = VB_STAGE_WRITES, .run = commit},
	[TWO_PHASE_RELEASE] = {.name = "release", .run = release},
};

static const struct vb_cc_word words[] = {
	{.at = VB_TUPLE_RESERVED_AT, .kind = VB_WORD_DATA, .n = 1},
	{.at = VB_TUPLE_META_AT, .kind = VB_WORD_READER, .n = VB_SX_SLOTS},
};

const struct vb_cc_ops vb_cc_dslr_2pl = {
	.name = "dslr-2pl",
	.summary = "two-phase locking; first come, first served, by tickets",
	.source = "RCBench section 6.7; DSLR (Yoon et al., SIGMOD 2018)",
	.caps = VB_CC_STRICT | VB_CC_READ_LOCKS | VB_CC_BOUNDED | VB_CC_SHARED,
	.meta_bytes = VB_SX_META,
	.words = words,
	.n_words = VB_ARRAY_SIZE(words),
	.item_bytes = sizeof(struct ticket),
	TWO_PHASE_OPS(stages),
};
