/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RMA-RW's words: queues' tails and readers' counters.  The protocol is in rma_rw.c (writers'
 * queues) and count.c (counters).
 *
 *   entry, 1 + 2 G + C words of 64 bits, for G groups of nodes and C counters
 *
 *	+--------------+   +----------------+----------------+       +---------------------+
 *	| root tail    |   | tail, group 0  | next, group 0  |  ...  | counter 0 | ...     |
 *	+--------------+   +----------------+----------------+       +---------------------+
 *
 *   root tail    group + 1 of the last group in the root's queue; 0: no writer there
 *   tail         the last claim in the group's queue (its word: handover.h); 0: none
 *   next         the claim that has entered the group behind this one at the root; 0: none yet
 *
 *   counter      63              46   45   44              18 17               0
 *               +------------------+-----+------------------+------------------+
 *               | departed, signed | bar | turn             | arrived          |
 *               +------------------+-----+------------------+------------------+
 *
 *   A reader adds one to `arrived`.  It is let in if it finds no bar and fewer than T_R arrived in
 *   this turn; else it waits for the next turn, without taking its arrival back.  A reader that
 *   leaves adds one to `departed`; its carry falls off the word.
 *
 *	standing = arrived - departed                all that are inside or wait
 *	inside   = min(arrived, T_R) - departed      those let in, until the bar is set
 *
 *   A new turn (one CAS) makes arrived 0, departed -standing, and takes the bar away: all that
 *   stood there are inside.  The bar (one add of a writer) lets nobody in any more.  If readers
 *   are inside, a second add takes min(arrived, T_R), as the first one has seen it, from both
 *   fields: then departed is -inside, and the last reader to leave makes it 0.  Those that wait do
 *   not depart.
 */
#ifndef VB_LOCK_RMA_RW_RMA_RW_H
#define VB_LOCK_RMA_RW_RMA_RW_H

#include "lock/handover.h"

#define RW_GROUPS_MAX   64u
#define RW_COUNTERS_MAX 64u
#define RW_T_R_MAX      65536u
/* One after the other, of a try.  A writer looks, takes group and root (4) and bars the readers (2);
 * if one came in between it lets them in and leaves root and group (8), behind each of which somebody
 * may have come, whose name it awaits (2).  A reader looks, and loses the counter to others four times,
 * each after a look for writers (10). */
#define RW_TRY_VERBS 16
/* Readers at one counter, so that no field overflows. */
#define RW_READERS_MAX 65536u

#define RW_FIELD_BITS   18
#define RW_FIELD        ((1ull << RW_FIELD_BITS) - 1)
#define RW_ARRIVED      1ull
#define RW_TURN         (1ull << 18)
#define RW_TURN_MASK    (((1ull << 27) - 1) << 18)
#define RW_BAR          (1ull << 45)
#define RW_DEPARTED_BIT 46
#define RW_DEPARTED     (1ull << RW_DEPARTED_BIT)

_Static_assert(RW_T_R_MAX + 2 * RW_READERS_MAX < RW_FIELD, "arrived does not overflow");
_Static_assert(RW_T_R_MAX + RW_READERS_MAX <= 1u << (RW_FIELD_BITS - 1),
	       "departed does not overflow");

struct rw_options {
	uint64_t group, t_dc, t_l, t_r, t_w, successor_wait;
	/* From these and the number of nodes. */
	uint32_t groups, counters, group_nodes, counter_nodes;
};

enum rw_stage {
	/* A writer: the predecessor in the group must be told of us. */
	RW_TELL,
	/* A writer: waits for the predecessor's message. */
	RW_GROUP,
	/* A writer: first in its group's queue, and not yet in the root's. */
	RW_UP,
	/* A writer: the group before ours at the root has us as its next; waits for its message. */
	RW_ROOT,
	/* A writer: waits until the readers have left. */
	RW_DRAIN,
	/* A reader: waits for the next turn. */
	RW_TURN_WAIT,
};

struct rw_claim {
	/* As in mcs, in the group's queue. */
	uint64_t self, next, prev;
	/* Bit i: readers may be inside at counter i. */
	uint64_t draining;
	/* A reader's: the turn in which it has arrived. */
	uint64_t turn;
	/* Handovers inside the group so far, since it has the root. */
	uint32_t in_group;
	/* Writers in a row, the holder included. */
	uint32_t writers;
	uint8_t stage;
	/* The predecessor in the group may have been told of us. */
	uint8_t again;
};

static inline uint32_t rw_arrived(uint64_t w)
{
	return (uint32_t)(w & RW_FIELD);
}

static inline int32_t rw_departed(uint64_t w)
{
	return (int32_t)((int64_t)w >> RW_DEPARTED_BIT);
}

static inline int32_t rw_standing(uint64_t w)
{
	return (int32_t)rw_arrived(w) - rw_departed(w);
}

static inline uint32_t rw_let_in(uint64_t w, uint64_t t_r)
{
	return rw_arrived(w) < t_r ? rw_arrived(w) : (uint32_t)t_r;
}

/* The word of the next turn: all that stand there are inside. */
static inline uint64_t rw_next_turn(uint64_t w)
{
	return (uint64_t)(-(int64_t)rw_standing(w)) << RW_DEPARTED_BIT |
	       ((w + RW_TURN) & RW_TURN_MASK);
}

static inline const struct rw_options *rw_options_of(const struct vb_lock_client *me)
{
	return me->space->options;
}

static inline uint32_t rw_group_of(const struct vb_lock_client *me)
{
	return me->node / rw_options_of(me)->group_nodes;
}

static inline vb_addr rw_root(const struct vb_claim *c)
{
	return c->entry;
}

static inline vb_addr rw_tail(const struct vb_claim *c, uint32_t group)
{
	return c->entry + 8 * (1 + 2 * group);
}

static inline vb_addr rw_next(const struct vb_claim *c, uint32_t group)
{
	return rw_tail(c, group) + 8;
}

static inline vb_addr rw_counter(const struct vb_lock_client *me, const struct vb_claim *c,
				 uint32_t i)
{
	return c->entry + 8 * (1 + 2 * rw_options_of(me)->groups + i);
}

/* ---- counters (count.c) ---- */

/* A reader's calls.  Acquire and try: 0 held; resume goes on waiting.  `turn` begins the next turn
 * when there are no writers. */
typedef int rw_turn_fn(struct vb_lock_client *me, struct vb_claim *c, vb_addr counter,
		       uint64_t seen);
int rw_reader_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns,
		      rw_turn_fn *turn);
int rw_reader_resume(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns,
		     rw_turn_fn *turn);
int rw_reader_try(struct vb_lock_client *me, struct vb_claim *c);
int rw_reader_release(struct vb_lock_client *me, struct vb_claim *c);
rw_turn_fn rw_begin_turn;

/* The count of clients per node, which limits how many of them may read. */
uint64_t rw_node_bytes(const struct vb_lock_space *space);
int rw_client_open(struct vb_lock_client *me);
void rw_client_close(struct vb_lock_client *me);

/* The calls of a writer that has the root: bars all counters (claim->draining: those at which
 * readers are inside), waits until those have left, and begins the readers' next turn
 * everywhere. */
int rw_bar(struct vb_lock_client *me, struct vb_claim *c);
int rw_drain(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns);
int rw_unbar(struct vb_lock_client *me, struct vb_claim *c);

/* Reads the whole entry, 1 + 2 G + C words. */
#define RW_WORDS_MAX (1 + 2 * RW_GROUPS_MAX + RW_COUNTERS_MAX)
int rw_read_entry(struct vb_lock_client *me, struct vb_claim *c, uint64_t *words);
bool rw_has_writers(const struct rw_options *o, const uint64_t *words);

/* ---- writers (rma_rw.c), also for the planted bug, which differs in one step ---- */

int rw_acquire_by(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns,
		  rw_turn_fn *turn);
int rw_resume_by(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns,
		 rw_turn_fn *turn);
int rw_try(struct vb_lock_client *me, struct vb_claim *c);
int rw_release(struct vb_lock_client *me, struct vb_claim *c);
int rw_release_now(struct vb_lock_client *me, struct vb_claim *c);
int rw_shape(const void *options, uint16_t nodes, struct vb_lock_shape *out);
int rw_open(struct vb_lock_space *space);
extern const struct vb_opt rw_option_table[];

/* What both have. */
#define RW_LOCK                                                                                    \
	.caps = VB_LOCK_SHARED | VB_LOCK_EXCLUSIVE | VB_LOCK_MESSAGES, .needs = VB_CAP_SEND,       \
	.wishes = VB_CAP_MASKED64, .portable = "each swap is a READ and CAS loop",                 \
	.entry_bytes = 32, .options = rw_option_table, .options_size = sizeof(struct rw_options),  \
	.verbs_uncontended =                                                                       \
		"X: 2 swap + 1 WRITE + C FAA, then 2 READ + C + 2 CAS; S: 1 FAA + 1 FAA",          \
	.verbs_contended = "X: 1 swap + 2 SEND in a group; S: 1 FAA + READs + 1 FAA",              \
	.shape = rw_shape, .open = rw_open, .node_bytes = rw_node_bytes,                           \
	.client_open = rw_client_open, .client_close = rw_client_close, .try_acquire = rw_try,     \
	.try_verbs = RW_TRY_VERBS, .release = rw_release, .release_now = rw_release_now

#endif
