/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Active messages of UCX as a carrier.
 *
 * Each side has an endpoint of its own to the other, for what it sends; UCX keeps a long message's
 * buffer until it is sent, and lets the receiver fetch one beyond `eager`.
 */
#define VB_LOG_ROOM "ucx"
#include "base/log.h"
#include "fabric/ucx/inner.h"

/* ---- endpoints ---- */

static void ep_failed(void *arg, ucp_ep_h ep, ucs_status_t status)
{
	struct am_host *h = arg;

	if (h->via != ep)
		return; /* one that is being closed */
	am_failed(h, ucx_of(h->wire)->lib->ucs_status_string(status));
}

int ucx_link(struct am_host *h)
{
	struct ucx_via *u = ucx_of(h->wire);
	ucp_ep_params_t p = {
		.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
			      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER,
		.address = h->address,
		/* Oneself does not die first, and UCX's `self` knows no such handling. */
		.err_mode = h->rank == h->wire->f->host ? UCP_ERR_HANDLING_MODE_NONE
							: UCP_ERR_HANDLING_MODE_PEER,
		.err_handler = {.cb = ep_failed, .arg = h},
	};
	ucp_ep_h ep;
	ucs_status_t status = u->lib->ucp_ep_create(u->worker, &p, &ep);
	char buf[64];

	if (status == UCS_OK) {
		h->via = ep;
		return 0;
	}
	vb_info("no connection to %s: %s", am_host_name(h, buf), u->lib->ucs_status_string(status));
	return -EHOSTUNREACH;
}

static void ep_closed(void *request, ucs_status_t status, void *arg)
{
	struct ucx_via *u = arg;

	u->lib->ucp_request_free(request);
	u->sends--;
}

void ucx_unlink(struct am_host *h)
{
	struct ucx_via *u = ucx_of(h->wire);
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
				UCP_OP_ATTR_FIELD_FLAGS,
		.cb.send = ep_closed,
		.user_data = u,
		.flags = h->rank == h->wire->f->host ? 0 : UCP_EP_CLOSE_FLAG_FORCE,
	};
	ucp_ep_h ep = h->via;
	ucs_status_ptr_t request;

	if (ep == NULL)
		return;
	h->via = NULL;
	request = u->lib->ucp_ep_close_nbx(ep, &param);
	if (UCS_PTR_IS_PTR(request))
		u->sends++;
}

/* ---- sending ---- */

/* UCX lets go of the buffer.  What went wrong the error handler of the endpoint says. */
static void sent(void *request, ucs_status_t status, void *arg)
{
	struct am_msg *m = arg;
	struct ucx_via *u = ucx_of(m->wire);

	u->lib->ucp_request_free(request);
	u->sends--;
	am_sent(m);
}

static int launch(struct am_msg *m)
{
	struct ucx_via *u = ucx_of(m->wire);
	bool fetched = m->bytes > u->o.eager && m->kind != AM_CONTROL;
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
				UCP_OP_ATTR_FIELD_FLAGS,
		.cb.send = sent,
		.user_data = m,
		.flags = fetched ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER,
	};
	/* To ourselves it may arrive, be executed and be answered within this call. */
	ucs_status_ptr_t request =
		u->lib->ucp_am_send_nbx(m->host->via, UCX_AM_ID, m->buffer, AM_HEADER,
					m->buffer + AM_HEADER, m->bytes, &param);

	if (UCS_PTR_IS_PTR(request)) {
		u->sends++;
		return 0;
	}
	if (UCS_PTR_IS_ERR(request)) {
		am_failed(m->host, u->lib->ucs_status_string(UCS_PTR_STATUS(request)));
		am_sent(m);
		return -EPIPE;
	}
	am_sent(m);
	return 0;
}

/*
 * From within UCX's progress the message waits for its end: what is sent from there may find the
 * connection broken that is just being read from, and UCX (1.13, TCP) then lets go of the buffer
 * that it goes on to read, twice.
 */
int ucx_send(struct am_msg *m)
{
	struct ucx_via *u = ucx_of(m->wire);

	if (!u->looking)
		return launch(m);
	vb_list_push(&u->later, &m->link);
	return 0;
}

static void send_later(struct ucx_via *u)
{
	struct vb_list *it;

	while ((it = vb_list_pop(&u->later)) != NULL) {
		struct am_msg *m = vb_container_of(it, struct am_msg, link);

		if (m->host->via != NULL && !m->host->failed)
			(void)launch(m);
		else
			am_sent(m);
	}
}

/* ---- looking ---- */

void ucx_look(struct am_wire *w)
{
	struct ucx_via *u = ucx_of(w);

	u->looking = true;
	(void)u->lib->ucp_worker_progress(u->worker);
	u->looking = false;
	send_later(u);
}

int ucx_arm(struct am_wire *w)
{
	struct ucx_via *u = ucx_of(w);

	return u->lib->ucp_worker_arm(u->worker) == UCS_OK ? 0 : -EBUSY;
}

bool ucx_idle(const struct am_wire *w)
{
	return ucx_of(w)->sends == 0;
}

static void received(void *request, ucs_status_t status, size_t length, void *arg)
{
	struct am_in *in = arg;
	const struct ucx_lib *lib = ucx_of(in->host->wire)->lib;

	lib->ucp_request_free(request);
	am_in_ready(in, status == UCS_OK ? NULL : lib->ucs_status_string(status));
}

void ucx_fetch(struct am_in *in, void *body)
{
	struct ucx_via *u = ucx_of(in->host->wire);
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
		.cb.recv_am = received,
		.user_data = in,
	};
	ucs_status_ptr_t request =
		u->lib->ucp_am_recv_data_nbx(u->worker, body, in->data, in->h.bytes, &param);
	ucs_status_t status;

	if (UCS_PTR_IS_PTR(request))
		return;
	status = UCS_PTR_STATUS(request);
	am_in_ready(in, status == UCS_OK ? NULL : u->lib->ucs_status_string(status));
}

/* ---- opening and closing ---- */

int ucx_open(struct am_wire *w, const void *options, void *address, size_t *bytes)
{
	struct ucx_via *u = calloc(1, sizeof(*u));
	int err;

	if (u == NULL)
		return vb_fail(-ENOMEM, "no memory for UCX's state");
	w->via = u;
	u->w = w;
	u->lib = ucx_lib();
	memcpy(&u->o, options, sizeof(u->o));
	vb_list_init(&u->later);
	err = ucx_setup(u);
	if (err == 0 && u->address_bytes > *bytes)
		err = vb_fail(-E2BIG, "UCX's address has %zu bytes, %zu are possible",
			      u->address_bytes, *bytes);
	if (err != 0) {
		ucx_close(w);
		return err;
	}
	memcpy(address, u->address, u->address_bytes);
	*bytes = u->address_bytes;
	return 0;
}

void ucx_close(struct am_wire *w)
{
	struct ucx_via *u = ucx_of(w);

	if (u == NULL)
		return;
	ucx_teardown(u);
	w->via = NULL;
	free(u);
}
