/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between the claims of a queue: see handover.h. */
#define VB_LOG_ROOM "lock"
#include "lock/handover.h"

#include <inttypes.h>

#include "base/log.h"
#include "base/sometimes.h"

#define NUMBER_BITS 24
#define NUMBER_MASK ((1ull << NUMBER_BITS) - 1)
#define FIRST_BYTE  0xffull
/* The least time between two copies: a full ring needs some to drain. */
#define PAUSE_NS 100000ull

_Static_assert(NUMBER_BITS + VB_PEER_CLIENT_BITS + 16 == 64, "name and number fill the word");

/* A box keeps the newer of two messages by 32-bit serial arithmetic: the number goes to the top. */
static inline uint32_t stamp(uint64_t word)
{
	return (uint32_t)(word << (32 - NUMBER_BITS));
}

uint64_t vb_handover_word(struct vb_lock_client *me, bool numberless)
{
	uint64_t number;

	do
		number = numberless ? 0 : ++me->mail.next_request & NUMBER_MASK;
	while ((number & FIRST_BYTE) == 0 && !numberless);
	return me->ep->self << NUMBER_BITS | number;
}

bool vb_handover_is_whole(const struct vb_lock_client *me, uint64_t word)
{
	return (word & FIRST_BYTE) != 0 && (word >> NUMBER_BITS) >> VB_PEER_CLIENT_BITS != 0 &&
	       vb_peer_node(word >> NUMBER_BITS) < me->ep->fabric->nodes;
}

/* As a network does that has lost the acknowledgement. */
static int send_copy(struct vb_lock_client *me, vb_peer to, struct vb_msg *m, uint8_t *again)
{
	if (!VB_CHANCE(200, "mcs ncosed rma-rw: a message arrives twice"))
		return 0;
	*again = 1;
	(void)vb_send(me->ep, to, m);
	return 0;
}

static bool is_here(const struct vb_box *box, const struct vb_handover_answer *a)
{
	unsigned i = a->tag % VB_BOX_SLOTS;
	bool any = box->full >> i & 1;

	VB_SOMETIMES_IF(any && box->slot[i].imm != a->imm, 1000,
			"ncosed: an answer to an earlier claim before the acknowledgement");
	return any && box->slot[i].imm == a->imm;
}

/* What may have been sent has arrived by then, or never will.  True: its answer is here. */
static bool let_arrive(struct vb_lock_client *me, const struct vb_claim *c,
		       const struct vb_handover_answer *answer)
{
	uint64_t bound = vb_lock_stretch(me->space, me->ep->fabric->caps.verb_bound_ns);
	/* The message must get there even if the caller has been cancelled. */
	bool shielded = vb_task_shield(true);

	vb_ep_sleep(me->ep, bound + PAUSE_NS);
	vb_task_shield(shielded);
	vb_mail_sort(&me->mail);
	if (answer == NULL || !is_here(&c->box, answer))
		return false;
	VB_SOMETIMES(200, "ncosed: an answer before the acknowledgement");
	return true;
}

int vb_handover_send(struct vb_lock_client *me, struct vb_claim *c, vb_peer to, struct vb_msg *m,
		     uint8_t *again, const struct vb_handover_answer *answer, uint64_t until_ns)
{
	uint8_t unmarked = 0;
	int err = 0;

	if (again == NULL)
		again = &unmarked;
	if (*again && let_arrive(me, c, answer))
		return 0;
	for (unsigned n = 0; n < vb_lock_asks(me->space);) {
		err = vb_send_wait(me->ep, to, m);
		if (err == 0)
			return send_copy(me, to, m, again);
		if (err != -VB_EUNKNOWN && !vb_peer_alive(me->ep->fabric, to)) {
			if (!*again)
				break;
			VB_SOMETIMES(2000, "mcs ncosed rma-rw: told, and gone before a copy came");
			return 0;
		}
		if (err == -VB_EUNKNOWN)
			*again = 1;
		if (err == -EAGAIN)
			vb_lock_let_drain(me, n);
		n += err == -VB_EUNKNOWN || until_ns == VB_FOREVER;
		if (vb_ep_now(me->ep) >= until_ns)
			return -ETIMEDOUT;
		VB_SOMETIMES(200, "mcs ncosed: a message is sent again");
		if (let_arrive(me, c, answer))
			return 0;
		me->retries++;
	}
	return vb_fail(err,
		       "lock %" PRIu64 ": its queue is broken, client %" PRIx64
		       " cannot be told (%s)",
		       c->lock, to, vb_strerror(err));
}

int vb_handover_tell(struct vb_lock_client *me, struct vb_claim *c, uint64_t to, uint16_t tag,
		     const void *data, uint16_t len, uint8_t *again, uint64_t until_ns)
{
	struct vb_msg m = {.subject = c->entry, .tag = tag, .len = len, .imm = stamp(to)};

	memcpy(m.data, data, len);
	return vb_handover_send(me, c, to >> NUMBER_BITS, &m, again, NULL, until_ns);
}

int vb_handover_tell_now(struct vb_lock_client *me, struct vb_claim *c, uint64_t to, uint16_t tag,
			 const void *data, uint16_t len)
{
	struct vb_msg m = {.subject = c->entry, .tag = tag, .len = len, .imm = stamp(to)};

	/* Only the lock's words are near. */
	if (!me->at_once)
		return -EINPROGRESS;
	memcpy(m.data, data, len);
	if (vb_send_wait(me->ep, to >> NUMBER_BITS, &m) == 0) {
		VB_SOMETIMES(500, "mcs: handed over at once");
		return 0;
	}
	VB_SOMETIMES(1000, "mcs: who is next has no room for what would be told at once");
	return -EINPROGRESS;
}

/* A copy meant for an earlier claim of ours is dropped. */
static int take(struct vb_claim *c, uint64_t self, uint16_t tag, void *data, uint16_t len)
{
	struct vb_msg m;

	if (vb_box_take(&c->box, tag, &m) != 0)
		return -EAGAIN;
	VB_SOMETIMES_IF(m.imm != stamp(self), 200, "mcs: a copy meant for an earlier claim");
	if (m.imm != stamp(self) || m.len < len)
		return -EAGAIN;
	memcpy(data, m.data, len);
	return 0;
}

int vb_handover_hear(struct vb_lock_client *me, struct vb_claim *c, uint64_t self, uint16_t tag,
		     void *data, uint16_t len, uint64_t until_ns)
{
	int err;

	do {
		err = vb_box_wait(&me->mail, &c->box, 1u << tag, until_ns);
		if (err)
			return err;
		err = take(c, self, tag, data, len);
	} while (err);
	return 0;
}

bool vb_handover_heard(struct vb_lock_client *me, struct vb_claim *c, uint64_t self, uint16_t tag,
		       void *data, uint16_t len)
{
	vb_mail_sort(&me->mail);
	return take(c, self, tag, data, len) == 0;
}
