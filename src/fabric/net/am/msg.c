/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers for messages, and handing them to the carrier, which may keep one until it is sent.  Idle
 * ones are kept with their buffers, so that in the steady state nothing is allocated.
 */
#define VB_LOG_ROOM "net"
#include "base/log.h"
#include "fabric/net/am/am.h"

#define ROOM_FIRST    2048u
#define ENTRIES_FIRST 32u

static void msg_free(struct am_msg *m)
{
	vb_list_remove(&m->all);
	free(m->entry);
	free(m->buffer);
	free(m);
}

static struct am_msg *msg_new(struct am_wire *w)
{
	struct am_msg *m = calloc(1, sizeof(*m));

	if (m == NULL)
		return NULL;
	m->wire = w;
	vb_list_init(&m->link);
	vb_list_init(&m->all);
	m->entry = calloc(ENTRIES_FIRST, sizeof(*m->entry));
	m->buffer = malloc(AM_HEADER + ROOM_FIRST);
	m->entries_room = ENTRIES_FIRST;
	m->room = ROOM_FIRST;
	vb_list_push(&w->messages, &m->all);
	if (m->entry == NULL || m->buffer == NULL) {
		msg_free(m);
		return NULL;
	}
	return m;
}

struct am_msg *am_msg_get(struct am_host *h, enum am_kind kind)
{
	struct am_wire *w = h->wire;
	struct vb_list *idle = vb_list_pop(&w->pool);
	struct am_msg *m;

	if (idle != NULL) {
		m = vb_container_of(idle, struct am_msg, link);
		w->pooled--;
	} else {
		m = msg_new(w);
		if (m == NULL)
			return NULL;
	}
	m->host = h;
	m->kind = (uint8_t)kind;
	m->sending = m->over = m->given_up = m->fetching = m->unsent = m->goes_on = false;
	m->number = 0;
	m->not_after_ns = VB_FOREVER;
	m->verbs = m->bytes = m->answer = m->entries = 0;
	return m;
}

bool am_msg_reserve(struct am_msg *m, uint32_t bytes)
{
	uint32_t room = m->room, entries = m->entries_room;

	while (room < m->bytes + bytes)
		room *= 2;
	if (room != m->room) {
		uint8_t *more = realloc(m->buffer, AM_HEADER + (size_t)room);

		if (more == NULL)
			return false;
		m->buffer = more;
		m->room = room;
	}
	if (m->entries == entries) {
		struct am_entry *more = realloc(m->entry, 2 * entries * sizeof(*more));

		if (more == NULL)
			return false;
		m->entry = more;
		m->entries_room = 2 * entries;
	}
	return true;
}

void am_msg_put(struct am_msg *m)
{
	struct am_wire *w = m->wire;

	vb_list_remove(&m->link);
	m->over = true;
	if (m->sending)
		return;
	if (m->kind == AM_CONTROL)
		m->host->controls--;
	if (w->pooled == AM_POOL_MAX || m->room > AM_ROOM_KEPT) {
		msg_free(m);
		return;
	}
	vb_list_push(&w->pool, &m->link);
	w->pooled++;
}

void am_msg_free_all(struct am_wire *w)
{
	vb_list_for_each (it, &w->messages)
		msg_free(vb_container_of(it, struct am_msg, all));
}

void am_sent(struct am_msg *m)
{
	m->sending = false;
	if (m->over)
		am_msg_put(m);
}

int am_msg_send(struct am_msg *m, const struct am_header *h)
{
	struct am_wire *w = m->wire;

	am_header_put(m->buffer, h);
	m->sending = true;
	w->f->stats.messages++;
	return w->carrier->send(m);
}
