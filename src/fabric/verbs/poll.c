/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Completions, and what time brings.
 *
 * A completion in good order ends all requests of its queue pair up to its own.  The first one in
 * error does too: what stands before it was done, itself failed as it says, and what stands behind
 * it may have reached the peer before the connection broke, so nobody can tell; the device ends
 * those one by one as flushed.
 */
#define VB_LOG_ROOM "verbs"
#include "fabric/verbs/inner.h"

#include <arpa/inet.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/log.h"

#define TICK_NS (VERBS_NAP_NS / 2)
#define POLLS   4

/* ---- ends of verbs ---- */

void verbs_done_flush(struct verbs *w)
{
	if (w->done_n == 0)
		return;
	/* net_done may come back here by way of what it wakes: nothing of this may be left. */
	struct vb_batch *b = w->done_batch;
	unsigned n = w->done_n;

	w->done_batch = NULL;
	w->done_n = 0;
	w->news = true;
	net_done(w->f, w->done_owner, b, n);
}

void verbs_done(struct verbs *w, struct net_thread *owner, struct vb_batch *b)
{
	if (w->done_batch != b) {
		verbs_done_flush(w);
		w->done_owner = owner;
		w->done_batch = b;
	}
	w->done_n++;
}

/* ---- completions of requests ---- */

static int error_of(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_SUCCESS:
		return 0;
	case IBV_WC_REM_ACCESS_ERR:
		return -VB_EACCESS;
	case IBV_WC_REM_INV_REQ_ERR:
		return -EINVAL;
	case IBV_WC_LOC_LEN_ERR:
	case IBV_WC_LOC_QP_OP_ERR:
	case IBV_WC_LOC_PROT_ERR:
		return -EIO;
	default:
		return -VB_EUNKNOWN;
	}
}

static void say_broken(struct verbs *w, const struct verbs_qp *q, const struct ibv_wc *wc)
{
	struct verbs_host *h = &w->hosts[q->host];

	if (h->state == VERBS_GONE || h->said)
		return;
	h->said = true;
	vb_warn("the connection to host %u broke: %s%s; what was under way has an unknown outcome",
		q->host, w->lib->wc_status_str(wc->status),
		wc->status == IBV_WC_RETRY_EXC_ERR
			? " (it does not answer: dead, cut off, or slower than options timeout and "
			  "retries allow)"
			: "");
}

static void request_ended(struct verbs *w, const struct ibv_wc *wc)
{
	uint32_t at = (uint32_t)wc->wr_id;
	struct verbs_qp *q = &w->qps[wc->wr_id >> 32 & 0xffff];

	/* Of a queue pair that is no more: its requests have been ended without the device. */
	if (wc->wr_id != verbs_id(VERBS_ID_SEND, q->round, q->number, at) || q->qp == NULL ||
	    at - q->head >= q->rung - q->head)
		return;
	w->f->stats.completions++;
	while (q->head != at)
		verbs_rec_end(w, q, q->head++, 0);
	verbs_rec_end(w, q, q->head++, error_of(wc->status));
	if (vb_likely(wc->status == IBV_WC_SUCCESS))
		return;
	if (q == w->ud) {
		vb_error("datagrams cannot be sent any more: %s",
			 w->lib->wc_status_str(wc->status));
		return;
	}
	if (wc->status != IBV_WC_WR_FLUSH_ERR)
		say_broken(w, q, wc);
	if (w->hosts[q->host].state == VERBS_UP || w->hosts[q->host].state == VERBS_READY)
		verbs_break(w, &w->hosts[q->host], VERBS_DOWN);
}

/* ---- messages ---- */

static void connection_received(struct verbs *w, const struct ibv_wc *wc, const uint8_t *data)
{
	const struct verbs_qp *q = verbs_by_qpn(w, wc->qp_num);

	if (wc->status != IBV_WC_SUCCESS || q == NULL || q == w->ud ||
	    !(wc->wc_flags & IBV_WC_WITH_IMM))
		return;
	verbs_again_heard(w, q->host);
	if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM)
		verbs_bare_came(w, q->host, ntohl(wc->imm_data));
	else
		verbs_message_came(w, q->host, data,
				   wc->byte_len < VERBS_RECV_BYTES ? wc->byte_len
								   : VERBS_RECV_BYTES,
				   ntohl(wc->imm_data));
}

static void datagram_received(struct verbs *w, const struct ibv_wc *wc, const uint8_t *data)
{
	if (wc->status != IBV_WC_SUCCESS || wc->byte_len < VERBS_GRH ||
	    wc->byte_len > VERBS_RECV_BYTES || !(wc->wc_flags & IBV_WC_WITH_IMM))
		return;
	verbs_datagram_came(w, wc->src_qp, data + VERBS_GRH, wc->byte_len - VERBS_GRH,
			    ntohl(wc->imm_data));
}

/* ---- looking ---- */

bool verbs_poll(struct verbs *w)
{
	uint32_t back[VERBS_POLL], ud_back[VERBS_POLL], n_back = 0, n_ud = 0;
	struct ibv_wc wc[VERBS_POLL];
	int n = ibv_poll_cq(w->cq, VERBS_POLL, wc);

	if (vb_unlikely(n < 0)) {
		vb_error("%s: the completion queue cannot be read", w->choice.device.name);
		return false;
	}
	for (int i = 0; i < n; i++) {
		uint32_t at = (uint32_t)wc[i].wr_id;

		switch ((enum verbs_id)(wc[i].wr_id >> 60)) {
		case VERBS_ID_SEND:
			request_ended(w, &wc[i]);
			break;
		case VERBS_ID_RECV:
			connection_received(w, &wc[i], w->recvs + (size_t)at * VERBS_RECV_BYTES);
			if (verbs_recv_is_back(w, at))
				back[n_back++] = at;
			break;
		case VERBS_ID_UD_RECV:
			datagram_received(w, &wc[i], w->ud_recvs + (size_t)at * VERBS_RECV_BYTES);
			ud_back[n_ud++] = at;
			break;
		}
	}
	(void)verbs_recv_post(w, false, back, n_back);
	(void)verbs_recv_post(w, true, ud_back, n_ud);
	verbs_settle(w);
	return n > 0;
}

/* When the oldest request of which something is to be heard was rung; UINT64_MAX: there is none. */
static uint64_t oldest_asked(const struct verbs_qp *q)
{
	for (uint32_t at = q->head; at != q->rung; at++) {
		if (q->rec[at & q->mask].asked)
			return q->rec[at & q->mask].rung_ns;
	}
	return UINT64_MAX;
}

/* Has the oldest request been under way for too long?  Those in front of the first that is asked
 * tell nothing: when a busy process comes here late they may be old and done.  So the one that is
 * asked has half the time to itself.  (It is asked a tick after them at the latest.) */
static bool too_old(const struct verbs *w, const struct verbs_qp *q, uint64_t now)
{
	uint64_t rung = q->rec[q->head & q->mask].rung_ns, asked = oldest_asked(q);

	return asked < now && now - asked > w->age_ns / 2 && now - rung > w->age_ns;
}

/* A request that has been under way for longer than the bound: the device or the way is stuck, and
 * what it may still do must be stopped, since others rely on the bound. */
static void look_at_age(struct verbs *w, uint64_t now)
{
	for (uint32_t i = 0; i < w->n_qps; i++) {
		struct verbs_qp *q = &w->qps[i];

		if (!too_old(w, q, now))
			continue;
		if (q == w->ud) {
			struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};

			w->lib->modify_qp(q->qp, &a, IBV_QP_STATE);
			continue;
		}
		if (w->hosts[q->host].state != VERBS_UP)
			continue;
		vb_warn("a verb to host %u has taken longer than %llu ms; its "
			"connection is broken off",
			q->host, (unsigned long long)(w->age_ns / 1000000));
		w->hosts[q->host].said = true;
		verbs_break(w, &w->hosts[q->host], VERBS_DOWN);
	}
}

/* Requests that nobody waits for and that stand last tell nothing, however long nothing follows
 * them, and their age could not be judged. */
static void ask_for_the_unheard(struct verbs *w)
{
	for (uint32_t i = 0; i + 1 < w->n_qps && w->n_unheard > 0; i++) {
		if (w->hosts[w->qps[i].host].state == VERBS_UP)
			verbs_ask(w, &w->qps[i]);
	}
}

static void look_at_events(struct verbs *w)
{
	struct ibv_async_event e;

	/* The descriptor does not block. */
	while (w->lib->get_async_event(w->ctx, &e) == 0) {
		if (e.event_type == IBV_EVENT_QP_LAST_WQE_REACHED)
			verbs_last_wqe(w, e.element.qp);
		else
			vb_warn("%s: %s", w->choice.device.name,
				w->lib->event_type_str(e.event_type));
		w->lib->ack_async_event(&e);
	}
}

void verbs_tick(struct verbs *w)
{
	uint64_t now = vb_clock_ns();

	if (now < w->tick_ns)
		return;
	w->tick_ns = now + TICK_NS;
	look_at_events(w);
	if (w->n_dying > 0 || w->doubt)
		verbs_reap(w, now);
	if (w->n_asked == 0 && w->n_sends == 0 && w->n_down == 0 && w->n_unheard == 0)
		return;
	look_at_age(w, now);
	ask_for_the_unheard(w);
	for (uint32_t host = 0; host < w->f->hosts; host++) {
		verbs_sends_expire(w, &w->hosts[host], now);
		if (w->hosts[host].state == VERBS_GONE)
			(void)verbs_host_emptied(w, &w->hosts[host]);
		else
			verbs_again_tick(w, host, now);
	}
}

bool verbs_progress(struct net_fabric *f)
{
	struct verbs *w = verbs_of(f);
	bool any, more = true;

	w->news = false;
	for (unsigned i = 0; i < POLLS && more; i++) {
		more = verbs_poll(w);
		w->news |= more;
	}
	/* Only when nothing is left to be seen is what has not been seen late. */
	if (!more)
		verbs_tick(w);
	verbs_done_flush(w);
	any = w->news;
	w->news = false;
	return any;
}

/* ---- sleeping ---- */

static void take_events(struct verbs *w)
{
	struct ibv_cq *cq;
	uint64_t beats;
	void *ctx;

	while (w->lib->get_cq_event(w->channel, &cq, &ctx) == 0)
		w->events++;
	if (w->events >= 1000) {
		w->lib->ack_cq_events(w->cq, w->events);
		w->events = 0;
	}
	while (read(w->timer_fd, &beats, sizeof(beats)) > 0)
		continue;
}

int verbs_arm(struct net_fabric *f)
{
	struct verbs *w = verbs_of(f);
	bool busy = w->n_asked > 0 || w->n_sends > 0 || w->n_down > 0 || w->n_unheard > 0 ||
		    w->n_dying > 0;
	struct itimerspec span = {.it_value.tv_nsec = busy ? VERBS_NAP_NS : 0};

	take_events(w);
	if (ibv_req_notify_cq(w->cq, 0) != 0)
		return vb_fail(-EBUSY, "%s gives no notice of completions", w->choice.device.name);
	/* What came before the request for notice rings no bell. */
	if (verbs_progress(f))
		return -EBUSY;
	timerfd_settime(w->timer_fd, 0, &span, NULL);
	return 0;
}
