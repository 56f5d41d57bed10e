/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers for messages, and handing them to UCX, which keeps a long one until it is sent.  Idle
 * ones are kept with their buffers, so that in the steady state nothing is allocated.
 */
#define VB_LOG_ROOM "ucx"
#include "base/log.h"
#include "fabric/ucx/inner.h"

#define ROOM_FIRST    2048u
#define ENTRIES_FIRST 32u

static void msg_free(struct ucx_msg *m)
{
	vb_list_remove(&m->all);
	free(m->entry);
	free(m->buffer);
	free(m);
}

static struct ucx_msg *msg_new(struct ucx_wire *w)
{
	struct ucx_msg *m = calloc(1, sizeof(*m));

	if (m == NULL)
		return NULL;
	m->wire = w;
	vb_list_init(&m->link);
	vb_list_init(&m->all);
	m->entry = calloc(ENTRIES_FIRST, sizeof(*m->entry));
	m->buffer = malloc(UCX_HEADER + ROOM_FIRST);
	m->entries_room = ENTRIES_FIRST;
	m->room = ROOM_FIRST;
	vb_list_push(&w->messages, &m->all);
	if (m->entry == NULL || m->buffer == NULL) {
		msg_free(m);
		return NULL;
	}
	return m;
}

struct ucx_msg *ucx_msg_get(struct ucx_host *h, enum ucx_kind kind)
{
	struct ucx_wire *w = h->wire;
	struct vb_list *idle = vb_list_pop(&w->pool);
	struct ucx_msg *m;

	if (idle != NULL) {
		m = vb_container_of(idle, struct ucx_msg, link);
		w->pooled--;
	} else {
		m = msg_new(w);
		if (m == NULL)
			return NULL;
	}
	m->host = h;
	m->kind = (uint8_t)kind;
	m->sending = m->over = m->given_up = m->fetching = m->unsent = false;
	m->number = 0;
	m->not_after_ns = VB_FOREVER;
	m->verbs = m->bytes = m->answer = m->entries = 0;
	return m;
}

bool ucx_msg_reserve(struct ucx_msg *m, uint32_t bytes)
{
	uint32_t room = m->room, entries = m->entries_room;

	while (room < m->bytes + bytes)
		room *= 2;
	if (room != m->room) {
		uint8_t *more = realloc(m->buffer, UCX_HEADER + (size_t)room);

		if (more == NULL)
			return false;
		m->buffer = more;
		m->room = room;
	}
	if (m->entries == entries) {
		struct ucx_entry *more = realloc(m->entry, 2 * entries * sizeof(*more));

		if (more == NULL)
			return false;
		m->entry = more;
		m->entries_room = 2 * entries;
	}
	return true;
}

void ucx_msg_put(struct ucx_msg *m)
{
	struct ucx_wire *w = m->wire;

	vb_list_remove(&m->link);
	m->over = true;
	if (m->sending)
		return;
	if (m->kind == UCX_CONTROL)
		m->host->controls--;
	if (w->pooled == UCX_POOL_MAX || m->room > UCX_ROOM_KEPT) {
		msg_free(m);
		return;
	}
	vb_list_push(&w->pool, &m->link);
	w->pooled++;
}

void ucx_msg_free_all(struct ucx_wire *w)
{
	vb_list_for_each (it, &w->messages)
		msg_free(vb_container_of(it, struct ucx_msg, all));
}

/* UCX lets go of the buffer.  What went wrong the error handler of the endpoint says. */
static void msg_sent(void *request, ucs_status_t status, void *arg)
{
	struct ucx_msg *m = arg;

	m->wire->lib->ucp_request_free(request);
	m->wire->sends--;
	m->sending = false;
	if (m->over)
		ucx_msg_put(m);
}

static int launch(struct ucx_msg *m)
{
	struct ucx_wire *w = m->wire;
	bool fetched = m->bytes > w->o.eager && m->kind != UCX_CONTROL;
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
				UCP_OP_ATTR_FIELD_FLAGS,
		.cb.send = msg_sent,
		.user_data = m,
		.flags = fetched ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER,
	};
	ucs_status_ptr_t request;

	w->f->stats.messages++;
	/* To ourselves it may arrive, be executed and be answered within this call. */
	request = w->lib->ucp_am_send_nbx(m->host->ep, UCX_AM_ID, m->buffer, UCX_HEADER,
					  m->buffer + UCX_HEADER, m->bytes, &param);
	if (UCS_PTR_IS_PTR(request)) {
		w->sends++;
		return 0;
	}
	m->sending = false;
	if (UCS_PTR_IS_ERR(request)) {
		m->host->failed = true;
		m->host->failure = w->lib->ucs_status_string(UCS_PTR_STATUS(request));
		ucx_mark(m->host);
		if (m->over)
			ucx_msg_put(m);
		return -EPIPE;
	}
	if (m->over)
		ucx_msg_put(m);
	return 0;
}

/*
 * From within UCX's progress the message waits for its end: what is sent from there may find the
 * connection broken that is just being read from, and UCX (1.13, TCP) then lets go of the buffer
 * that it goes on to read, twice.
 */
int ucx_msg_send(struct ucx_msg *m, const struct ucx_header *h)
{
	struct ucx_wire *w = m->wire;

	ucx_header_put(m->buffer, h);
	m->sending = true;
	if (!w->looking)
		return launch(m);
	vb_list_push(&w->later, &m->link);
	return 0;
}

void ucx_msg_send_later(struct ucx_wire *w)
{
	struct vb_list *it;

	while ((it = vb_list_pop(&w->later)) != NULL) {
		struct ucx_msg *m = vb_container_of(it, struct ucx_msg, link);

		if (m->host->ep != NULL && !m->host->failed) {
			(void)launch(m);
			continue;
		}
		m->sending = false;
		if (m->over)
			ucx_msg_put(m);
	}
}
