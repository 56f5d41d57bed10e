/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages that have come and wait: for their data, or for those before them.
 */
#include "fabric/net/am/am.h"

void am_in_free(struct am_in *in)
{
	vb_list_remove(&in->link);
	if (in->receiving) {
		in->dropped = true;
		return;
	}
	vb_list_remove(&in->all);
	free(in->data);
	free(in);
}

struct am_in *am_in_new(struct am_host *h, const struct am_header *head)
{
	struct am_in *in = calloc(1, sizeof(*in));

	if (in == NULL)
		return NULL;
	in->host = h;
	in->h = *head;
	in->data = malloc(head->bytes > 0 ? head->bytes : 1);
	if (in->data == NULL) {
		free(in);
		return NULL;
	}
	vb_list_init(&in->link);
	vb_list_init(&in->all);
	vb_list_push(&h->wire->ins, &in->all);
	return in;
}

void am_forget_held(struct am_host *h)
{
	vb_list_for_each (it, &h->held)
		am_in_free(vb_container_of(it, struct am_in, link));
	h->held_n = 0;
}

void am_in_free_all(struct am_wire *w)
{
	vb_list_for_each (it, &w->ins) {
		struct am_in *in = vb_container_of(it, struct am_in, all);

		in->receiving = false;
		am_in_free(in);
	}
}

bool am_hold(struct am_host *h, struct am_in *in)
{
	struct vb_list *before = &h->held;

	if (h->held_n >= h->wire->o.window)
		return false;
	while (before->prev != &h->held) {
		struct am_in *p = vb_container_of(before->prev, struct am_in, link);

		if (p->h.number == in->h.number)
			return false;
		if (p->h.number < in->h.number)
			break;
		before = before->prev;
	}
	vb_list_push(before, &in->link); /* in front of `before` */
	h->held_n++;
	return true;
}
