/* SPDX-License-Identifier: Apache-2.0 */
/* A client's claim of a lock of ShiftLock, for shiftlock.c and look.c. */
#ifndef VB_LOCK_SHIFTLOCK_CLAIM_H
#define VB_LOCK_SHIFTLOCK_CLAIM_H

#include "lock/shiftlock/shiftlock.h"

enum sl_stage {
	/* A writer, until the predecessor's message has come. */
	SL_AWAIT_MESSAGE,
	/* A writer, until RelCnt == rel. */
	SL_AWAIT_COUNT,
	/* A reader, until Epoch != epoch. */
	SL_AWAIT_EPOCH,
};

struct sl_claim {
	/* RelCnt under which we hold, or wait to hold. */
	uint64_t rel;
	/* RelCnt at the last look. */
	uint64_t last_rel;
	/* When the last look that showed last_rel was posted, and the last that showed an older
	 * one. */
	uint64_t last_post_ns;
	union {
		uint64_t older_post_ns;
		/* While we hold: nobody can have seen RelCnt, as it stands now, standing before. */
		uint64_t anchor_ns;
	};
	/* last_rel has stood still at least since then. */
	uint64_t still_since_ns;
	/* Read at still_since_ns, if era_known. */
	uint64_t era;
	/* Plain: the entry as we last saw or left it; 0: unknown. */
	uint64_t word;
	vb_peer successor;
	/* Its clock when it told us of itself, and ours when we had heard it. */
	uint64_t told_ns;
	uint64_t heard_ns;
	uint32_t writers;
	/* Requests in a row for which there was nobody. */
	uint32_t unheard;
	uint16_t gen;
	/* By how much RelCnt is behind rel while we hold, or wait with `behind`. */
	uint16_t uncounted;
	uint8_t stage;
	bool epoch;
	bool era_known;
	/* We are in SL_AWAIT_COUNT for nobody but ourselves: the lock is ours once we have counted. */
	bool behind;
};

static inline int sl_read(struct vb_lock_client *me, struct vb_claim *c, struct vb_u128 *e)
{
	if (vb_unlikely(sl_is_plain(me->space)))
		return sl_plain_read(me->space, me->ep, c->entry, e,
				     &vb_claim_as(struct sl_claim, c)->word);
	return vb_read(me->ep, c->entry, e, sizeof(*e));
}

/* since_ns is so long ago that a narrow generation may have come round: nothing of it is ours. */
static inline bool sl_is_gone(const struct vb_lock_space *space, uint64_t since_ns, uint64_t now_ns)
{
	return sl_is_plain(space) && now_ns > since_ns &&
	       now_ns - since_ns > SL_PLAIN_GONE * space->lease_ns;
}

/* Looks at the entry.  0 and *e; -EAGAIN: no answer, look again; -ESTALE: recovered, we are out.
 * *refused: how often in a row the link was down. */
int sl_look(struct vb_lock_client *me, struct vb_claim *c, struct vb_u128 *e, unsigned *refused);
/* Has RelCnt been standing still for three leases, in one era?  Then something died, and the server is asked. */
int sl_suspect(struct vb_lock_client *me, struct vb_claim *c);

#endif
