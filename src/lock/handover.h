/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between the claims of a queue: how neighbours find and tell each other.
 *
 *   a claim's word, 64 bits     63            48 47           24 23                    0
 *                              +----------------+---------------+----------------------+
 *                              | node + 1       | client        | claim's number       |
 *                              +----------------+---------------+----------------------+
 *                               0 = nobody
 *
 * A message bears the number of the claim it is meant for.  So a copy that comes late is not taken
 * for one of the client's next turn with the same lock, and a message can be sent again until it is
 * certain that it was delivered (doc/locks/mcs.md).
 */
#ifndef VB_LOCK_HANDOVER_H
#define VB_LOCK_HANDOVER_H

#include "lock/lock.h"

#define VB_HANDOVER_NOBODY 0ull

/* The word of a new claim.  numberless: of a planted bug. */
uint64_t vb_handover_word(struct vb_lock_client *me, bool numberless);

/*
 * A claim's word that was read while another client wrote it where 0 stood: is it all there?
 * Soft-RoCE copies 8 bytes one by one, the first of the number first and the node last.  Neither is
 * ever 0 (above 255 nodes the node's last byte is not looked at).
 */
bool vb_handover_is_whole(const struct vb_lock_client *me, uint64_t word);

/* What answers a message, in the claim's box.  A copy of one to an earlier claim is none. */
struct vb_handover_answer {
	uint16_t tag;
	uint32_t imm;
};

/*
 * Sends a message to a client in this lock's queue until it is certain that it has arrived.  A
 * message that may have arrived is sent again after the bound, when no copy can pass it any more,
 * marked as a copy (*again, a byte of it; NULL: no mark), unless its answer is here already
 * (`answer`; NULL: none comes).  Who goes on with what may have been sent before sets *again, and its
 * first copy waits as well.  A client that lives but has no room is tried until until_ns, or
 * vb_lock_asks times if that is VB_FOREVER.  Results as below.
 *
 * One that may have had the message and is gone when the copy comes has had it: who closes leaves no
 * place in a queue behind.  Or it has died, and such a lock is lost with whoever dies in its queue,
 * told or not.
 */
int vb_handover_send(struct vb_lock_client *me, struct vb_claim *c, vb_peer to, struct vb_msg *m,
		     uint8_t *again, const struct vb_handover_answer *answer, uint64_t until_ns);

/*
 * Tells another claim of this lock; len bytes, at most VB_MSG_DATA.  0; -ETIMEDOUT: not yet; or the
 * error that keeps it from being delivered, logged: that claim's client has died, or must be taken
 * for dead.  *again: it may have been told before; 0 at first, and kept by who goes on after a
 * -ETIMEDOUT.  NULL: nobody does.
 */
int vb_handover_tell(struct vb_lock_client *me, struct vb_claim *c, uint64_t to, uint16_t tag,
		     const void *data, uint16_t len, uint8_t *again, uint64_t until_ns);

/* The same where a SEND completes inline: 0, or -EINPROGRESS: it has not been told, and would have to be again,
 * later. */
int vb_handover_tell_now(struct vb_lock_client *me, struct vb_claim *c, uint64_t to, uint16_t tag,
			 const void *data, uint16_t len);

/* A message to claim `self` of ours: waits for it (0, -ETIMEDOUT, -ECANCELED), or looks whether it
 * is here. */
int vb_handover_hear(struct vb_lock_client *me, struct vb_claim *c, uint64_t self, uint16_t tag,
		     void *data, uint16_t len, uint64_t until_ns);
bool vb_handover_heard(struct vb_lock_client *me, struct vb_claim *c, uint64_t self, uint16_t tag,
		       void *data, uint16_t len);

#endif
