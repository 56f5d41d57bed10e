/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Completions, and what they end.
 *
 * A completion in good order ends all requests of its queue pair up to its own.  The first one in
 * error does too: what stands before it was done, itself failed as it says, and what stands behind
 * it may have reached the peer before the connection broke, so nobody can tell; the device ends
 * those one by one as flushed.
 */
#define VB_LOG_ROOM "verbs"
#include "fabric/verbs/inner.h"

#include <arpa/inet.h>

#include "base/log.h"

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
	uint32_t imm;

	if (wc->status != IBV_WC_SUCCESS || wc->byte_len < VERBS_GRH ||
	    wc->byte_len > VERBS_RECV_BYTES || !(wc->wc_flags & IBV_WC_WITH_IMM))
		return;
	imm = ntohl(wc->imm_data);
	if (imm == VERBS_HANDSHAKE)
		verbs_again_came(w, wc->src_qp, data + VERBS_GRH, wc->byte_len - VERBS_GRH);
	else
		verbs_datagram_came(w, wc->src_qp, data + VERBS_GRH, wc->byte_len - VERBS_GRH, imm);
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
