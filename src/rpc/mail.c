/* SPDX-License-Identifier: Apache-2.0 */
/* See mail.h for what boxes are and why. */
#define VB_LOG_ROOM "rpc"
#include "rpc/mail.h"

#include <inttypes.h>

#include "base/log.h"

#define REQUEST_BIT (1ull << 63)

/* Requests use tag class 0 of their own box: the answer is all that ever comes there. */
#define REPLY_MASK 1u

/* Between two copies of a request that may have been lost. */
#define RESEND_FIRST_NS 4000000ull
#define RESEND_LAST_NS  64000000ull

void vb_mail_init(struct vb_mail *m, struct vb_ep *ep)
{
	*m = (struct vb_mail){.ep = ep};
	vb_list_init(&m->boxes);
}

void vb_box_open(struct vb_mail *m, struct vb_box *box, uint64_t subject)
{
	box->subject = subject;
	box->full = box->piles = 0;
	box->piled = box->taken = box->room = 0;
	box->pile = NULL;
	vb_list_push(&m->boxes, &box->link);
}

void vb_box_close(struct vb_box *box)
{
	vb_list_remove(&box->link);
	free(box->pile);
	box->pile = NULL;
	box->full = box->piles = 0;
}

void vb_box_pile_up(struct vb_box *box, uint16_t tag)
{
	box->piles = 1u << tag % VB_BOX_SLOTS;
}

static void pile_up(struct vb_box *box, const struct vb_msg *msg)
{
	struct vb_piled *p;

	if (box->piled == box->room) {
		uint32_t room = box->room == 0 ? 16 : 2 * box->room;
		struct vb_piled *more =
			room > VB_PILE_MAX ? NULL : realloc(box->pile, room * sizeof(*more));

		if (more == NULL) {
			vb_error("%u messages are piled up and there is no memory for more; one "
				 "of %" PRIx64 " is lost",
				 box->piled, msg->from);
			return;
		}
		box->pile = more;
		box->room = room;
	}
	p = &box->pile[box->piled];
	p->from = msg->from;
	memcpy(&p->word, msg->data, sizeof(p->word));
	box->piled++;
	box->full |= box->piles;
}

int vb_box_take_piled(struct vb_box *box, struct vb_piled *out)
{
	if (box->taken == box->piled)
		return -EAGAIN;
	*out = box->pile[box->taken++];
	if (box->taken == box->piled)
		box->full &= ~box->piles;
	return 0;
}

static struct vb_box *find_box(struct vb_mail *m, uint64_t subject)
{
	vb_list_for_each (it, &m->boxes) {
		struct vb_box *box = vb_container_of(it, struct vb_box, link);

		if (box->subject == subject)
			return box;
	}
	return NULL;
}

static void put(struct vb_box *box, const struct vb_msg *msg)
{
	unsigned i = msg->tag % VB_BOX_SLOTS;

	if (box->piles & 1u << i) {
		pile_up(box, msg);
		return;
	}
	/* Of two, the one of the newer generation stays; of one generation, the later one. */
	if (box->full & 1u << i && (int32_t)(msg->imm - box->slot[i].imm) < 0)
		return;
	box->slot[i] = *msg;
	box->full |= 1u << i;
}

void vb_mail_sort(struct vb_mail *m)
{
	struct vb_msg msg;
	bool any = false;

	while (vb_ep_recv(m->ep, &msg) == 0) {
		struct vb_box *box = find_box(m, msg.subject);

		if (box)
			put(box, &msg);
		else
			m->dropped++;
		any = true;
	}
	/* Another task of this client may be waiting for what we have just put into its box, and
	 * the endpoint will not tell it again. */
	if (any)
		vb_ep_wake(m->ep);
}

int vb_box_take(struct vb_box *box, uint16_t tag, struct vb_msg *out)
{
	unsigned i = tag % VB_BOX_SLOTS;

	vb_assert(!(box->piles & 1u << i));
	if (!(box->full & 1u << i))
		return -EAGAIN;
	*out = box->slot[i];
	box->full &= ~(1u << i);
	return 0;
}

int vb_box_wait(struct vb_mail *m, struct vb_box *box, unsigned mask, uint64_t until_ns)
{
	for (;;) {
		int err;

		vb_mail_sort(m);
		if (box->full & mask)
			return 0;
		if (vb_unlikely(vb_ep_cut_off(m->ep)))
			return -VB_EPEERGONE;
		err = vb_ep_wait(m->ep, until_ns);
		if (err == 0)
			continue;
		/* It may have come together with the end of the wait. */
		vb_mail_sort(m);
		return box->full & mask ? 0 : err;
	}
}

static int send_request(struct vb_mail *m, vb_peer server, const struct vb_msg *request)
{
	struct vb_verb v = {.op = VB_OP_SEND, .flags = VB_DATAGRAM, .peer = server, .msg = request};

	return vb_verb_run(m->ep, &v);
}

/* Waits for the answer, asking again wherever request or answer may have been lost.  A server that
 * is slow is asked less and less often. */
static int await_reply(struct vb_mail *m, struct vb_box *box, vb_peer server,
		       const struct vb_msg *request, uint64_t until_ns)
{
	uint64_t patience = RESEND_FIRST_NS;

	if (!(m->ep->fabric->caps.flags & VB_CAP_DATAGRAM))
		return vb_box_wait(m, box, REPLY_MASK, until_ns);
	for (;;) {
		uint64_t now = vb_ep_now(m->ep), again;
		int err;

		again = until_ns > now && until_ns - now > patience ? now + patience : until_ns;
		err = vb_box_wait(m, box, REPLY_MASK, again);
		if (err != -ETIMEDOUT || again == until_ns)
			return err;
		err = send_request(m, server, request);
		if (err == -VB_EPEERGONE || err == -ECANCELED)
			return err;
		m->resent++;
		if (patience < RESEND_LAST_NS)
			patience *= 2;
	}
}

int vb_rpc_call(struct vb_mail *m, vb_peer server, struct vb_msg *request, struct vb_msg *reply,
		uint64_t until_ns)
{
	struct vb_box box;
	int err;

	request->subject = REQUEST_BIT | ++m->next_request;
	vb_box_open(m, &box, request->subject);
	err = send_request(m, server, request);
	/* A request whose delivery is unknown may still be answered. */
	if (err == 0 || err == -VB_EUNKNOWN)
		err = await_reply(m, &box, server, request, until_ns);
	if (err == 0) {
		err = vb_box_take(&box, 0, reply);
		vb_assert(err == 0);
	}
	vb_box_close(&box);
	return err;
}
