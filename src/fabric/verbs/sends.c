/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signalled messages whose receivers have not yet said what became of them, and how many messages may
 * be on their way; what that means is in msg.c.
 */
#include "fabric/verbs/inner.h"

#define ANSWER_NS 1000000000ull

int verbs_send_begin(struct verbs *w, struct verbs_host *h, struct net_ep *e, struct vb_batch *b,
		     struct vb_verb *v)
{
	for (unsigned i = 0; i < h->credits_max; i++) {
		struct verbs_send *s = &h->sends[i];

		if (s->used)
			continue;
		*s = (struct verbs_send){.owner = e->thread,
					 .batch = b,
					 .verb = v,
					 .until_ns = vb_clock_ns() + w->bound_ns + ANSWER_NS,
					 .turn = (uint16_t)(s->turn + 1),
					 .used = true};
		w->n_sends++;
		return (int)i;
	}
	return -EAGAIN;
}

void verbs_send_end(struct verbs *w, struct verbs_host *h, unsigned i, int err)
{
	struct verbs_send *s = &h->sends[i];

	if (s->batch == NULL)
		return;
	s->verb->status = err;
	verbs_done(w, s->owner, s->batch);
	s->batch = NULL;
}

/* The connection is gone, and with it the answers. */
void verbs_sends_end(struct verbs *w, struct verbs_host *h, int err)
{
	for (unsigned i = 0; i < h->credits_max; i++) {
		verbs_send_end(w, h, i, err);
		w->n_sends -= h->sends[i].used;
		h->sends[i].used = false;
	}
}

/* The places stay taken until the answers come: the credits are still out, too. */
void verbs_sends_expire(struct verbs *w, struct verbs_host *h, uint64_t now)
{
	for (unsigned i = 0; i < h->credits_max; i++) {
		if (h->sends[i].used && now > h->sends[i].until_ns)
			verbs_send_end(w, h, i, -VB_EUNKNOWN);
	}
}

void verbs_credits_reset(struct verbs_host *h)
{
	h->credits = h->credits_max;
	h->owed = h->n_acks = 0;
	h->q_head = h->q_tail = 0;
}
