/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sorting an endpoint's messages, and request/response on top of it.
 *
 * A client may have several things under way at once: it holds some locks, waits for one, and a
 * place in the queue of another that it gave up (see lock/lock.h).  Each has a *box* under a
 * subject (for locks the address of the entry).  Whoever waits takes every message out of the
 * endpoint and puts each into the box of its subject; what has no box is dropped, and counted.
 *
 * A box has one slot for each tag class (tag modulo VB_BOX_SLOTS).  When a message finds its slot
 * full, the one with the newer imm (serial number arithmetic on 32 bits) stays: protocols put their
 * generation there, so that a message from before a recovery never hides one from after it.
 *
 * A tag class whose messages must all be kept (one from each of many clients) is *piled up*
 * instead, as they come: of each who sent it and 8 bytes of what it says.
 */
#ifndef VB_RPC_MAIL_H
#define VB_RPC_MAIL_H

#include "fabric/fabric.h"

#define VB_BOX_SLOTS 4

/* More are dropped, and said: no lock has so many clients. */
#define VB_PILE_MAX (1u << 20)

struct vb_piled {
	vb_peer from;
	uint64_t word;
};

struct vb_box {
	struct vb_list link;
	uint64_t subject;
	unsigned full;  /* bit i: slot[i], or the pile of that class, holds a message */
	unsigned piles; /* bit i: the messages of class i are piled up; one bit at most */
	uint32_t piled, taken, room;
	struct vb_piled *pile;
	struct vb_msg slot[VB_BOX_SLOTS];
};

struct vb_mail {
	struct vb_ep *ep;
	struct vb_list boxes;
	uint64_t dropped;
	uint64_t resent;       /* requests sent again, see vb_rpc_call */
	uint64_t next_request; /* request numbers have the top bit set: never a lock's address */
};

void vb_mail_init(struct vb_mail *m, struct vb_ep *ep);
void vb_box_open(struct vb_mail *m, struct vb_box *box, uint64_t subject);
void vb_box_close(struct vb_box *box);
/* Piles up the messages of one tag class from now on, until the box is closed. */
void vb_box_pile_up(struct vb_box *box, uint16_t tag);
/* How many are piled up and not taken, and the first come of them: 0, or -EAGAIN.  Those taken stay
 * in box->pile[0..taken) for who must know whether one has come before. */
static inline uint32_t vb_box_piled(const struct vb_box *box)
{
	return box->piled - box->taken;
}
int vb_box_take_piled(struct vb_box *box, struct vb_piled *out);

/* Sorts what has arrived, without waiting. */
void vb_mail_sort(struct vb_mail *m);

/* Takes the message of one tag class out of the box: 0, or -EAGAIN. Does not wait or sort. */
int vb_box_take(struct vb_box *box, uint16_t tag, struct vb_msg *out);

/* Sorts and waits until a slot of `mask` (bit per tag class) is full (0), -ETIMEDOUT at the local
 * time until_ns, -ECANCELED, -VB_EPEERGONE: nothing comes to the endpoint any more (vb_ep_cut_off). */
int vb_box_wait(struct vb_mail *m, struct vb_box *box, unsigned mask, uint64_t until_ns);

/*
 * Request and response.  The request's subject is made to be the number that the answer's subject
 * must bear; what the request is about goes into its data.  0 and *reply, -ETIMEDOUT at until_ns
 * (it may have been served: callers treat that as unknown), -VB_EPEERGONE, -ECANCELED.
 *
 * Both are flagged VB_DATAGRAM.  On a fabric where that means that they may be lost
 * (VB_CAP_DATAGRAM) the caller sends the same request, under the same number, again and again until
 * it is answered; elsewhere it is sent once.
 */
int vb_rpc_call(struct vb_mail *m, vb_peer server, struct vb_msg *request, struct vb_msg *reply,
		uint64_t until_ns);

/*
 * The last answers of a server, so that a request which comes again is answered again, and not
 * served again.  It remembers some 2000 of them; a server whose work must not be done twice even
 * after that many requests of others has to see to it itself.  Where messages are not lost it is
 * NULL, which every function here takes for "nothing is remembered".
 */
struct vb_answers;
int vb_answers_open(const struct vb_fabric *f, struct vb_answers **out); /* -ENOMEM */
void vb_answers_close(struct vb_answers *a);
/* Has this request been answered?  Then it has been once more. */
bool vb_answers_repeat(struct vb_answers *a, struct vb_ep *ep, const struct vb_msg *request);

/* The server's side: answers `request`, and keeps the answer. */
int vb_rpc_reply(struct vb_answers *a, struct vb_ep *ep, const struct vb_msg *request,
		 struct vb_msg *reply);

#endif
