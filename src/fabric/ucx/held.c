/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages that have come and wait: for their data, or for those before them.
 */
#include "fabric/ucx/inner.h"

void ucx_in_free(struct ucx_in *in)
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

struct ucx_in *ucx_in_new(struct ucx_host *h, const struct ucx_header *head)
{
	struct ucx_in *in = calloc(1, sizeof(*in));

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

void ucx_forget_held(struct ucx_host *h)
{
	vb_list_for_each (it, &h->held)
		ucx_in_free(vb_container_of(it, struct ucx_in, link));
	h->held_n = 0;
}

void ucx_in_free_all(struct ucx_wire *w)
{
	vb_list_for_each (it, &w->ins) {
		struct ucx_in *in = vb_container_of(it, struct ucx_in, all);

		in->receiving = false;
		ucx_in_free(in);
	}
}

bool ucx_hold(struct ucx_host *h, struct ucx_in *in)
{
	struct vb_list *before = &h->held;

	if (h->held_n >= h->wire->o.window)
		return false;
	while (before->prev != &h->held) {
		struct ucx_in *p = vb_container_of(before->prev, struct ucx_in, link);

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
