/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections to hosts.
 *
 * A connection begins with HELLO and is usable when WELCOME has come back, which brings the first
 * reading of the owner's clock.  Each side greets for its own verbs; answers go over the answering
 * side's connection.  Verbs of a connection are numbered within its *epoch*.
 *
 * A connection ends when UCX says so (a killed peer: within a millisecond), or when a message has
 * been unanswered and nothing at all has come for `silence` (a cut link, a stopped machine: TCP
 * alone would take a quarter of an hour).  Then everything in flight ends, posts fail at once, and
 * a post that comes `retry` later tries a new connection from the address exchanged at first.
 *
 * The two sides of one broken connection find out at different times.  HELLO therefore says in
 * `number` which epoch of the receiver its sender is connected to: a host that is UP and hears that
 * the other has dropped it greets again at once.
 */
#define VB_LOG_ROOM "ucx"
#include "base/log.h"
#include "fabric/ucx/inner.h"

const char *ucx_host_name(const struct ucx_host *h, char buf[64])
{
	const struct vb_cluster *c = h->wire->f->cluster;

	if (c != NULL)
		return vb_cluster_name(c, h->rank);
	snprintf(buf, 64, "host %u", h->rank);
	return buf;
}

void ucx_heard(struct ucx_host *h, const struct ucx_header *m)
{
	uint64_t now = vb_clock_ns();

	h->heard_ns = now;
	if (m->kind != UCX_VERBS && h->state == UCX_UP)
		ucx_clock_saw(h, m->clock, now);
}

/* ---- connections ---- */

static void ep_failed(void *arg, ucp_ep_h ep, ucs_status_t status)
{
	struct ucx_host *h = arg;

	if (h->ep != ep)
		return; /* one that is being closed */
	h->failed = true;
	h->failure = h->wire->lib->ucs_status_string(status);
	ucx_mark(h);
}

static int ep_open(struct ucx_host *h)
{
	struct ucx_wire *w = h->wire;
	ucp_ep_params_t p = {
		.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
			      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER,
		.address = h->address,
		/* Oneself does not die first, and UCX's `self` knows no such handling. */
		.err_mode = h->rank == w->f->host ? UCP_ERR_HANDLING_MODE_NONE
						  : UCP_ERR_HANDLING_MODE_PEER,
		.err_handler = {.cb = ep_failed, .arg = h},
	};
	ucs_status_t status = w->lib->ucp_ep_create(w->worker, &p, &h->ep);
	char buf[64];

	if (status == UCS_OK)
		return 0;
	h->ep = NULL;
	vb_info("no connection to %s: %s", ucx_host_name(h, buf),
		w->lib->ucs_status_string(status));
	return -EHOSTUNREACH;
}

static void ep_closed(void *request, ucs_status_t status, void *arg)
{
	struct ucx_wire *w = arg;

	w->lib->ucp_request_free(request);
	w->sends--;
}

static void ep_close(struct ucx_host *h)
{
	struct ucx_wire *w = h->wire;
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
				UCP_OP_ATTR_FIELD_FLAGS,
		.cb.send = ep_closed,
		.user_data = w,
		.flags = h->rank == w->f->host ? 0 : UCP_EP_CLOSE_FLAG_FORCE,
	};
	ucp_ep_h ep = h->ep;
	ucs_status_ptr_t request;

	if (ep == NULL)
		return;
	h->ep = NULL;
	request = w->lib->ucp_ep_close_nbx(ep, &param);
	if (UCS_PTR_IS_PTR(request))
		w->sends++;
}

static int say(struct ucx_host *h, enum ucx_kind kind, uint32_t epoch, uint64_t number)
{
	struct ucx_wire *w = h->wire;
	struct ucx_msg *m = ucx_msg_get(h, kind);
	struct ucx_header head = {
		.kind = (uint8_t)kind,
		.session = w->session,
		.host = w->f->host,
		.epoch = epoch,
		.number = number,
		.clock = vb_clock_ns(),
	};

	if (m == NULL)
		return vb_fail(-ENOMEM, "no memory for a message");
	m->over = true;
	return ucx_msg_send(m, &head);
}

int ucx_greet(struct ucx_host *h)
{
	struct ucx_wire *w = h->wire;
	uint64_t now = vb_clock_ns();

	h->retry_at_ns = now + w->o.retry_ns;
	if (w->closing || h->state != UCX_DOWN)
		return -VB_EPEERGONE;
	if (h->address == NULL || ep_open(h) != 0)
		return -VB_EPEERGONE;
	h->state = UCX_GREETING;
	h->failed = false;
	h->epoch++;
	h->next_number = 1;
	h->greeted_ns = now;
	ucx_due(w, now + w->o.silence_ns);
	return say(h, UCX_HELLO, h->epoch, h->from_epoch);
}

/* UCX connects as long as TCP tries, and tells when it gives up.  To close before that is not for
 * us: UCX 1.13 aborts when an endpoint is closed that is not connected yet.  But the other's answer
 * may be lost with its own connection, so we ask once more over ours. */
static uint64_t greet_again(struct ucx_host *h, uint64_t now)
{
	h->epoch++;
	h->greeted_ns = now;
	(void)say(h, UCX_HELLO, h->epoch, h->from_epoch);
	return now + h->wire->o.silence_ns;
}

int ucx_usable(struct ucx_host *h)
{
	if (vb_likely(h->state == UCX_UP && !h->failed))
		return 0;
	/* The post fails at once, but shows that the host is wanted. */
	if (h->state == UCX_DOWN && vb_clock_ns() >= h->retry_at_ns)
		(void)ucx_greet(h);
	return -VB_EPEERGONE;
}

void ucx_break(struct ucx_host *h, const char *why)
{
	struct ucx_wire *w = h->wire;
	bool was_up = h->state == UCX_UP && !w->closing;
	char buf[64];

	if (was_up)
		vb_info("the connection to %s is lost: %s", ucx_host_name(h, buf), why);
	else
		vb_debug("no connection to %s: %s", ucx_host_name(h, buf), why);
	if (h->state != UCX_GONE)
		h->state = UCX_DOWN;
	h->failed = h->regreet = h->welcome = false;
	h->from_epoch = 0;
	h->retry_at_ns = vb_clock_ns() + w->o.retry_ns;
	ep_close(h);
	ucx_forget_held(h);
	ucx_fail_all(h);
}

void ucx_hello_came(struct ucx_host *h, const struct ucx_header *m)
{
	/* Greetings may wait in several connections at once, and be read in any order. */
	if (m->epoch <= h->newest_epoch)
		return;
	ucx_forget_held(h);
	h->newest_epoch = h->from_epoch = m->epoch;
	h->expected = 1;
	h->welcome = true;
	if (h->state == UCX_UP && m->number != h->epoch)
		h->regreet = h->welcomed;
	ucx_mark(h);
}

void ucx_welcome_came(struct ucx_host *h, const struct ucx_header *m)
{
	char buf[64];

	if (h->state != UCX_GREETING || m->epoch != h->epoch)
		return;
	ucx_clock_first(h, m->clock, h->heard_ns);
	h->state = UCX_UP;
	vb_debug("connected to %s, epoch %u", ucx_host_name(h, buf), h->epoch);
	ucx_mark(h);
}

static void tend_host(struct ucx_host *h)
{
	if (h->failed && h->ep != NULL)
		ucx_break(h, h->failure);
	h->failed = false;
	if (h->regreet) {
		uint32_t from = h->from_epoch;

		/* What it sends us goes on: only our own connection is gone. */
		ucx_break(h, "the other side has dropped it");
		h->from_epoch = from;
		h->welcome = true;
	}
	if (h->welcome && h->state == UCX_DOWN)
		(void)ucx_greet(h); /* it is there: the answer needs a connection of ours */
	if (h->welcome && h->ep != NULL && !h->failed) {
		h->welcome = false;
		if (say(h, UCX_WELCOME, h->from_epoch, 0) == 0)
			h->welcomed = true;
	}
	ucx_pump(h);
}

void ucx_tend(struct ucx_wire *w)
{
	struct vb_list later;

	/* From within a call that tends already (to ourselves, verbs are answered while they are
	 * sent): the outer one goes on with what is marked. */
	if (w->tending)
		return;
	w->tending = true;
	vb_list_init(&later);
	for (struct vb_list *it; (it = vb_list_pop(&w->dirty)) != NULL;) {
		struct ucx_host *h = vb_container_of(it, struct ucx_host, in_dirty);

		h->dirty = false;
		tend_host(h);
		/* Its doorbell has not rung yet: flush must find it. */
		if (!h->dirty && h->open != NULL && !h->rung) {
			h->dirty = true;
			vb_list_push(&later, &h->in_dirty);
		}
	}
	for (struct vb_list *it; (it = vb_list_pop(&later)) != NULL;)
		vb_list_push(&w->dirty, it);
	w->tending = false;
}

/* ---- what takes too long ---- */

static uint64_t min64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint64_t ucx_expire(struct ucx_host *h, uint64_t now)
{
	uint64_t due = VB_FOREVER, since;

	if (h->state == UCX_GREETING) {
		due = h->greeted_ns + h->wire->o.silence_ns;
		return now < due ? due : greet_again(h, now);
	}
	if (h->flying > 0) {
		struct ucx_msg *oldest = vb_container_of(h->flight.next, struct ucx_msg, link);

		since = oldest->sent_ns > h->heard_ns ? oldest->sent_ns : h->heard_ns;
		due = since + h->wire->o.silence_ns;
		if (now >= due) {
			ucx_break(h, "it does not answer");
			return VB_FOREVER;
		}
		due = min64(due, ucx_flight_expire(h, now));
	}
	return min64(due, ucx_queue_expire(h, now));
}
