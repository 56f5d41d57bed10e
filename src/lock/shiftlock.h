/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The entry of ShiftLock (seed 001, figure 3), shared by our version and the published one.
 *
 *	 127      112 111                                            64
 *	+------------+------------------------------------------------+
 *	| generation | release count                                  |   RelCnt
 *	+------------+------------------------------------------------+
 *	 63   62          40 39                                       0
 *	+----+--------------+-----------------------------------------+
 *	| Ep | RdrCnt       | TailPtr: node + 1 (16), client (24)      |
 *	+----+--------------+-----------------------------------------+
 *
 * The paper has 64 bits of RelCnt and lets a recovery add 2^63, one bit of generation, so that two
 * recoveries without a release in between are the same as none.  We give 16 bits to the generation
 * and keep 48 for the count: 65,536 recoveries, or at a million releases per second of one lock
 * nine years, until a number comes again.
 */
#ifndef VB_LOCK_SHIFTLOCK_H
#define VB_LOCK_SHIFTLOCK_H

#include "lock/lock.h"

#define SL_TAIL_MASK  ((1ull << 40) - 1)
#define SL_RDR_SHIFT  40
#define SL_RDR_MASK   (((1ull << 23) - 1) << SL_RDR_SHIFT)
#define SL_EPOCH      (1ull << 63)
#define SL_GEN_SHIFT  48
#define SL_COUNT_MASK ((1ull << SL_GEN_SHIFT) - 1)

/* Field boundaries for the extended FAA: no carry leaves RdrCnt, Epoch or the count. */
#define SL_BOUNDS_LO (SL_EPOCH | 1ull << 62 | 1ull << 39)
#define SL_BOUNDS_HI (1ull << 63 | 1ull << 47)

/* Consecutive writers before the readers get their turn (seed 001 sections 3.5.2 and 4.7). */
#define SL_WRITERS_MAX 16

enum sl_tag {
	SL_SUCCESSOR = 0, /* to the predecessor: I stand behind you */
	SL_HANDOVER = 1,  /* to the successor: the lock is yours */
	SL_MODE =
		5, /* to the successor: yours when the readers have left (same slot as HANDOVER) */
	SL_RECOVER = 2, /* to the lock server */
};

/* Payload of SL_HANDOVER and SL_MODE.  The message's imm is the generation. */
struct sl_pass {
	uint64_t rel;     /* RelCnt at which the receiver holds the lock */
	uint32_t writers; /* consecutive writers so far */
	uint32_t epoch;   /* in force: 0 or 1 */
};

/* Payload of SL_RECOVER and its answer. */
struct sl_recover {
	uint64_t entry;
	uint64_t rel;  /* unchanged for three leases */
	uint64_t era;  /* read before those began */
	uint64_t done; /* answer: 1 reset, 0 rejected */
};

static inline uint64_t sl_readers(uint64_t lo)
{
	return (lo & SL_RDR_MASK) >> SL_RDR_SHIFT;
}

static inline uint16_t sl_gen(uint64_t rel)
{
	return (uint16_t)(rel >> SL_GEN_SHIFT);
}

/* RelCnt after `n` more releases of the same generation. */
static inline uint64_t sl_rel_add(uint64_t rel, uint64_t n)
{
	return (rel & ~SL_COUNT_MASK) | ((rel + n) & SL_COUNT_MASK);
}

#endif
