/* SPDX-License-Identifier: Apache-2.0 */
/* The words of cc/maat.c, and its stages of several files. */
#ifndef VB_CC_MAAT_H
#define VB_CC_MAAT_H

#include "txn/db.h"

#define MAAT_META       64u
#define MAAT_SLOTS      7u
#define MAAT_FIRST_SLOT 2u /* as an item counts them: behind rts */

/* In an upper word, whose other bits are the time; the last one is RCBench's latch, to the letter. */
#define MAAT_FROZEN   1ull
#define MAAT_LATCHED  (1ull << 63)
#define MAAT_NO_BOUND (~(MAAT_LATCHED | MAAT_FROZEN))

/* What was loaded is of the time before (VB_VERSION_LOADED). */
#define MAAT_FIRST_TIME 2u

/* An item's, its own memory. */
struct maat_item {
	uint64_t rts;   /* as it was seen last */
	uint64_t upper; /* the transaction's own, of what is written */
};
_Static_assert(sizeof(struct maat_item) % 16 == 0, "as vb_cc_ops wants it");

static inline struct maat_item *maat_item(const struct vb_item *it)
{
	return vb_item_own(it, sizeof(struct maat_item));
}

static inline vb_addr maat_lock_word(const struct vb_item *it)
{
	return it->at + vb_item_layout(it)->lock_at;
}

static inline vb_addr maat_rts_word(const struct vb_item *it)
{
	return it->at + VB_TUPLE_META_AT;
}

/* In a tuple. */
static inline uint32_t maat_slot_at(uint8_t slot)
{
	return VB_TUPLE_META_AT + (slot - 1u) * 8u;
}

static inline vb_addr maat_upper_word(const struct vb_db *db, uint32_t place)
{
	return vb_db_place(db, place) + offsetof(struct vb_place_head, upper);
}

static inline uint64_t maat_wts(uint64_t version)
{
	return version >> 2;
}

static inline uint64_t maat_time(uint64_t upper)
{
	return upper >> 1;
}

static inline uint64_t maat_upper(uint64_t time)
{
	return time << 1;
}

/* The time of the commit, as far as it is known. */
static inline void maat_at_least(struct vb_stage *s, uint64_t time)
{
	if (s->commit_ts < time)
		s->commit_ts = time;
}

/* Of one moment, or the lock word as it was before. */
struct maat_pair {
	uint64_t lock, version;
};

/* maat_read.c */
void maat_ask_pair(struct vb_stage *s, const struct vb_item *it, struct maat_pair *p);
void maat_read(struct vb_stage *s, struct vb_item **items, unsigned n);

/* maat_lock.c */
void maat_lock(struct vb_stage *s, struct vb_item **items, unsigned n);
/* RCBench's, to the letter. */
void maat_lock_published(struct vb_stage *s, struct vb_item **items, unsigned n);

#endif
