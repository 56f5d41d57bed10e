/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What comes: messages are taken apart, verbs are executed in the order of their messages' numbers,
 * and answers go back.
 *
 * Order.  UCX may deliver a long message after shorter ones that were sent behind it (a rendezvous
 * fetches its data later).  Verbs are executed by number; what is early is held, at most `window`
 * messages of a host.  A gap cannot stay: what is lost takes the connection with it, and the next
 * connection (epoch) begins with 1.  What comes of an epoch that is over is dropped: its sender has
 * given it up.
 *
 * Trust.  A message must carry the session's number and a host's number, and everything in it is
 * checked before use; what is not right is dropped, counted, and said now and then.  That keeps out
 * mistakes and the processes of other runs, not attackers: the number travels in clear, and UCX's TCP
 * transport executes writes to any address, and asserts on malformed packets, before anything comes
 * here.  Who can connect owns the process (doc/cluster.md, "Trust").
 */
#define VB_LOG_ROOM "ucx"
#include <inttypes.h>

#include "base/log.h"
#include "fabric/ucx/inner.h"

/* ---- executing ---- */

static void answer(struct ucx_host *h, const struct ucx_header *head, struct ucx_msg *m,
		   uint8_t flags)
{
	struct ucx_wire *w = h->wire;
	struct ucx_header reply = {
		.kind = UCX_ANSWER,
		.flags = flags,
		.session = w->session,
		.host = w->f->host,
		.epoch = head->epoch,
		.number = head->number,
		.clock = vb_clock_ns(),
		.bytes = m->bytes,
	};

	/* Without a connection back it is lost; the sender's silence will tell it. */
	m->over = true;
	if (h->ep == NULL || h->failed)
		ucx_msg_put(m);
	else
		(void)ucx_msg_send(m, &reply);
}

/* What cannot be taken in must not happen, nor what was sent behind it: its connection ends. */
static void lose(struct ucx_host *h, uint32_t bytes)
{
	vb_error("no memory for a message of %u bytes: host %u has to connect anew", bytes,
		 h->rank);
	h->from_epoch = 0;
	h->failed = true;
	h->failure = "there was no memory for a message";
	ucx_mark(h);
}

static void execute(struct ucx_host *h, const struct ucx_header *head, const uint8_t *body)
{
	struct ucx_wire *w = h->wire;
	struct ucx_msg *m = ucx_msg_get(h, UCX_ANSWER);
	uint32_t most, late;

	if (m == NULL) {
		lose(h, head->bytes);
		return;
	}
	if (ucx_body_check(body, head->bytes, head->verbs, &most) != 0) {
		vb_error("host %u has sent a malformed message: refused", h->rank);
		answer(h, head, m, UCX_REFUSED);
		return;
	}
	if (!ucx_msg_reserve(m, most)) {
		ucx_msg_put(m);
		lose(h, most);
		return;
	}
	m->bytes = ucx_body_execute(&w->owner, head, body, m->buffer + UCX_HEADER, &late);
	w->f->stats.served += head->verbs - late;
	w->f->stats.refused += late;
	if (w->helping)
		w->f->stats.served_late += head->verbs - late;
	answer(h, head, m, 0);
}

/* Whatever is held and has its turn. */
static void drain(struct ucx_host *h)
{
	struct ucx_in *in;

	while (h->held.next != &h->held) {
		in = vb_container_of(h->held.next, struct ucx_in, link);
		if (in->h.number != h->expected || in->receiving || h->from_epoch == 0)
			return;
		vb_list_remove(&in->link);
		h->held_n--;
		h->expected++;
		execute(h, &in->h, in->data);
		ucx_in_free(in);
	}
}

/* ---- long messages ---- */

static void in_ready(struct ucx_in *in, ucs_status_t status)
{
	struct ucx_host *h = in->host;

	in->receiving = false;
	if (in->dropped) {
		ucx_in_free(in);
		return;
	}
	h->wire->came++;
	if (status != UCS_OK) {
		/* Numbers behind it will not have their turn any more. */
		h->failed = true;
		h->failure = h->wire->lib->ucs_status_string(status);
		ucx_mark(h);
		return;
	}
	if (in->h.kind == UCX_VERBS) {
		drain(h);
		return;
	}
	ucx_answered(h, &in->h, in->data);
	ucx_in_free(in);
}

static void in_received(void *request, ucs_status_t status, size_t length, void *arg)
{
	struct ucx_in *in = arg;

	in->host->wire->lib->ucp_request_free(request);
	in_ready(in, status);
}

static ucs_status_t fetch(struct ucx_host *h, const struct ucx_header *head, void *desc)
{
	struct ucx_wire *w = h->wire;
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
		.cb.recv_am = in_received,
	};
	struct ucx_in *in = ucx_in_new(h, head);
	ucs_status_ptr_t request;

	if (in == NULL) {
		lose(h, head->bytes);
		return UCS_ERR_NO_MEMORY;
	}
	if (head->kind == UCX_VERBS && !ucx_hold(h, in)) {
		ucx_in_free(in);
		return UCS_ERR_REJECTED;
	}
	in->receiving = true;
	param.user_data = in;
	request = w->lib->ucp_am_recv_data_nbx(w->worker, desc, in->data, head->bytes, &param);
	if (!UCS_PTR_IS_PTR(request))
		in_ready(in, UCS_PTR_STATUS(request));
	return UCS_INPROGRESS;
}

/* ---- every message ---- */

/* Who sends what is refused may go on for ever: a line for many. */
#define REFUSED_AGAIN_NS 10000000000ull

static void refuse(struct ucx_wire *w, const char *why, uint32_t host)
{
	uint64_t now = vb_clock_gettime_ns();

	w->refused++;
	w->refused_untold++;
	if (now < w->refused_again_ns)
		return;
	vb_warn("refused a message that says it is of host %" PRIu32 ": %s; %" PRIu64
		" since the last such "
		"line, %" PRIu64 " in all",
		host, why, w->refused_untold, w->refused);
	w->refused_untold = 0;
	w->refused_again_ns = now + REFUSED_AGAIN_NS;
}

static void verbs_came(struct ucx_host *h, const struct ucx_header *head, const uint8_t *body)
{
	struct ucx_in *in;

	if (head->number == h->expected) {
		h->expected++;
		execute(h, head, body);
		drain(h);
		return;
	}
	in = ucx_in_new(h, head);
	if (in == NULL) {
		lose(h, head->bytes);
		return;
	}
	memcpy(in->data, body, head->bytes);
	if (!ucx_hold(h, in))
		ucx_in_free(in);
}

static ucs_status_t sort(struct ucx_host *h, const struct ucx_header *head, void *data, bool rndv)
{
	ucx_heard(h, head);
	switch ((enum ucx_kind)head->kind) {
	case UCX_VERBS:
		if (head->epoch != h->from_epoch || head->number < h->expected)
			return UCS_OK;
		if (rndv)
			return fetch(h, head, data);
		verbs_came(h, head, data);
		return UCS_OK;
	case UCX_ANSWER:
		if (rndv)
			return ucx_wants(h, head) ? fetch(h, head, data) : UCS_OK;
		ucx_answered(h, head, data);
		return UCS_OK;
	default:
		break;
	}
	if (rndv || head->bytes > NET_CONTROL_MAX)
		return UCS_OK;
	if (head->kind == UCX_HELLO)
		ucx_hello_came(h, head);
	else if (head->kind == UCX_WELCOME)
		ucx_welcome_came(h, head);
	else if (head->kind == UCX_CONTROL)
		net_control_came(h->wire->f, h->rank, data, head->bytes);
	return UCS_OK;
}

ucs_status_t ucx_came(void *arg, const void *header, size_t header_bytes, void *data, size_t bytes,
		      const ucp_am_recv_param_t *param)
{
	struct ucx_wire *w = arg;
	struct ucx_header head;
	const char *why;

	w->came++;
	w->f->stats.messages++;
	if (ucx_header_get(header, header_bytes, &head, &why) != 0) {
		refuse(w, why, UINT32_MAX);
		return UCS_OK;
	}
	if (head.session != w->session) {
		refuse(w, "it does not know this session's number", head.host);
		return UCS_OK;
	}
	if (head.host >= w->f->hosts || w->host[head.host].state == UCX_GONE) {
		refuse(w, "no such host is in this cluster", head.host);
		return UCS_OK;
	}
	if (head.bytes != bytes) {
		refuse(w, "its length is not what it says", head.host);
		return UCS_OK;
	}
	return sort(&w->host[head.host], &head, data,
		    (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0);
}
