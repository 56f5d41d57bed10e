/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The claims of a client, for the files of this room that change their state.
 *
 * The life of a claim:
 *
 *	FREE -> BUSY -> HELD -> FREE            acquire, release
 *	        BUSY -> FREE                    not granted, nothing left behind
 *	        BUSY -> HUSK -> FREE            gave up in a queue: handed on when its turn came
 *	        BUSY -> HUSK -> BUSY            the client came back and took the place over
 */
#ifndef VB_LOCK_CLAIM_H
#define VB_LOCK_CLAIM_H

#include "lock/lock.h"

enum vb_claim_state { CLAIM_FREE, CLAIM_BUSY, CLAIM_HELD, CLAIM_HUSK };

static inline void vb_claim_free(struct vb_lock_client *me, struct vb_claim *c)
{
	if (me->space->ops->caps & VB_LOCK_MESSAGES)
		vb_box_close(&c->box);
	c->state = CLAIM_FREE;
	c->queued = c->held = false;
	me->used[c->slot / 64] &= ~(1ull << c->slot % 64);
	me->n_used--;
}

/* The protocol's release; the claim keeps its slot. */
int vb_claim_release(struct vb_lock_client *me, struct vb_claim *c);

/* ---- husk.c ---- */

/* Leaves a husk in the place of a queued claim.  -ENOMEM. */
int vb_husk_leave(struct vb_lock_client *me, struct vb_claim *c);
/*
 * The client asks for a lock in whose queue its husk stands.  Same mode, and no fewer leases:
 * takes the place over, 0 and *out.  Otherwise: waits for the husk to be through, 0 and *out =
 * NULL.
 */
int vb_husk_adopt(struct vb_lock_client *me, struct vb_claim *c, enum vb_mode mode, uint32_t leases,
		  uint64_t until_ns, struct vb_claim **out);
/* The client closes: waits for the husk's turn until until_ns, where leases bound it.  A husk
 * that is left then (me->husks) makes the client a ghost. */
void vb_husk_close(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns);
/* The closed client is its husks' from now on. */
void vb_husk_haunt(struct vb_lock_client *me);
/* Waits until the space has no ghosts. */
void vb_husk_space_close(struct vb_lock_space *space);

#endif
