/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two-phase locking: what No-Wait, Wait-Die, Wound-Wait and Bounded-Wait have in common.  They differ
 * in one function: what to do about the holder of a record that is wanted.
 *
 *	lock word   63                                            2 1 0
 *	           +-----------------------------------------------+---+
 *	           | timestamp of the holder: clock, place         | 0 |     0: free
 *	           +-----------------------------------------------+---+
 *
 * Exclusive only (the default of RCBench section 5.1): readers take the lock, too.
 *
 * Shared and exclusive (`-sx`): the tuple's eight meta words are *slots*, each with the timestamp
 * of one reader.  A reader puts its name into a slot by CAS and then looks at the lock word; a
 * writer takes the lock word by CAS and then looks at the slots.  READs and atomics see the atomics
 * that were posted before them, so of a reader and a writer at least one sees the other:
 *
 *	reader   CAS slot 0 -> ts, CAS lock 0 -> 0, READ
 *	         the lock is free: has it; else leaves the slot, conflict
 *	writer   CAS lock 0 -> ts, READ
 *	         the slots are empty: has it; else conflict with each reader, and keeps the word while
 *	         it waits
 *
 * More readers than slots abort, as those of RCBench's Wait-Die do.
 *
 * Departs from the papers (why, with the interleavings: doc/cc/no-wait.md):
 *   - the unlock is a verb of its own behind the WRITE;
 *   - lock, owner and age are one word;
 *   - readers have names, where RCBench counts them in the lock word;
 *   - a reader looks at the lock word with an atomic, and not in what the READ brought.
 *
 *	acquire   CAS and READ in one doorbell (shared: two CAS)    release, read   CAS
 *	commit    WRITE and CAS in one doorbell                     release, abort  CAS
 */
#ifndef VB_CC_TWO_PHASE_H
#define VB_CC_TWO_PHASE_H

#include "txn/protocol.h"

#define VB_SX_SLOTS 8u
#define VB_SX_META  (VB_SX_SLOTS * 8u)

extern const struct vb_cc_word two_phase_sx_words[1];
#define TWO_PHASE_SX_WORDS .meta_bytes = VB_SX_META, .words = two_phase_sx_words, .n_words = 1

enum { TWO_PHASE_LOCK, TWO_PHASE_COMMIT, TWO_PHASE_RELEASE, TWO_PHASE_STAGES };

/* The item is held by `holder`: VB_ITEM_WAIT, or why the transaction must end.  May ask for verbs,
 * which are run afterwards. */
typedef uint8_t two_phase_judge(struct vb_stage *s, struct vb_item *it, uint64_t holder);

void two_phase_lock_x(struct vb_stage *s, struct vb_item **items, unsigned n,
		      two_phase_judge *judge);
void two_phase_lock_sx(struct vb_stage *s, struct vb_item **items, unsigned n,
		       two_phase_judge *judge);
void two_phase_commit(struct vb_stage *s, struct vb_item **items, unsigned n);
void two_phase_release(struct vb_stage *s, struct vb_item **items, unsigned n);

/* The protocol's `read` and its `write`. */
int two_phase_access(struct vb_txn *t, struct vb_item **items, unsigned n);
int two_phase_prepare(struct vb_txn *t);
uint64_t two_phase_unlocked(uint64_t version, uint64_t was);
uint64_t two_phase_locked(uint64_t ts, uint64_t was);

/* The four policies, which the planted ones build on. */
two_phase_judge no_wait_judge, wait_die_judge, wound_wait_judge, bounded_wait_judge;

#define TWO_PHASE_STAGE_TABLE(lock_fn)                                                             \
	{                                                                                          \
		[TWO_PHASE_LOCK] = {.name = "lock",                                                \
				    .flags = VB_STAGE_FETCHES | VB_STAGE_MAKES,                    \
				    .run = lock_fn},                                               \
		[TWO_PHASE_COMMIT] = {.name = "commit",                                            \
				      .flags = VB_STAGE_WRITES,                                    \
				      .run = two_phase_commit},                                    \
		[TWO_PHASE_RELEASE] = {.name = "release", .run = two_phase_release},               \
	}

/* What the engine asks of records, and the stages: of who prepares in its own way. */
#define TWO_PHASE_ITEMS                                                                            \
	.read = two_phase_access, .write = two_phase_access, .unlocked = two_phase_unlocked,       \
	.locked = two_phase_locked, .whose = vb_ts_named
#define TWO_PHASE_OPS_BUT_PREPARE(table)                                                           \
	.stages = table, .n_stages = TWO_PHASE_STAGES, .commit = TWO_PHASE_COMMIT,                 \
	.release = TWO_PHASE_RELEASE, TWO_PHASE_ITEMS

#define TWO_PHASE_OPS(table) TWO_PHASE_OPS_BUT_PREPARE(table), .prepare = two_phase_prepare

#endif
