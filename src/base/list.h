/* SPDX-License-Identifier: Apache-2.0 */
/* Intrusive doubly linked list.  A node that is in no list points at itself. */
#ifndef VB_BASE_LIST_H
#define VB_BASE_LIST_H

#include <stdbool.h>

#include "base/compiler.h"

struct vb_list {
	struct vb_list *next, *prev;
};

static inline void vb_list_init(struct vb_list *l)
{
	l->next = l->prev = l;
}

static inline bool vb_list_empty(const struct vb_list *l)
{
	return l->next == l;
}

static inline void vb_list_push(struct vb_list *head, struct vb_list *n)
{
	n->prev = head->prev;
	n->next = head;
	head->prev->next = n;
	head->prev = n;
}

static inline void vb_list_remove(struct vb_list *n)
{
	n->prev->next = n->next;
	n->next->prev = n->prev;
	vb_list_init(n);
}

static inline struct vb_list *vb_list_pop(struct vb_list *head)
{
	struct vb_list *n = head->next;

	if (n == head)
		return NULL;
	vb_list_remove(n);
	return n;
}

/* The body may remove `it` from its list. */
#define vb_list_for_each(it, head)                                                                 \
	for (struct vb_list *it = (head)->next, *it##_next = it->next; it != (head);               \
	     it = it##_next, it##_next = it->next)

#endif
