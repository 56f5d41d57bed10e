/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queue pairs: made, found, connected.  How a connection ends is in ring.c.
 */
#define VB_LOG_ROOM "verbs"
#include "fabric/verbs/inner.h"

#include "base/log.h"

#define HOPS      64
#define RNR_TIMER 12 /* 0.64 ms, VERBS_RNR_RETRIES times; credits keep it from ever being used */

static void index_insert(struct verbs *w, const struct verbs_qp *q)
{
	uint32_t i = q->qp->qp_num * 2654435761u & w->by_qpn_mask;

	while (w->by_qpn[i] != 0)
		i = (i + 1) & w->by_qpn_mask;
	w->by_qpn[i] = q->number + 1;
}

/* Queue pairs come rarely; the table, at most half full, is then made anew. */
static void index_renew(struct verbs *w)
{
	memset(w->by_qpn, 0, ((size_t)w->by_qpn_mask + 1) * sizeof(*w->by_qpn));
	for (uint32_t i = 0; i < w->n_qps; i++) {
		if (w->qps[i].qp != NULL)
			index_insert(w, &w->qps[i]);
	}
}

struct verbs_qp *verbs_by_qpn(struct verbs *w, uint32_t qpn)
{
	for (uint32_t i = qpn * 2654435761u & w->by_qpn_mask; w->by_qpn[i] != 0;
	     i = (i + 1) & w->by_qpn_mask) {
		struct verbs_qp *q = &w->qps[w->by_qpn[i] - 1];

		if (q->qp->qp_num == qpn)
			return q;
	}
	return NULL;
}

static struct ibv_qp *qp_create(struct verbs *w, enum ibv_qp_type type, struct ibv_qp_init_attr *a)
{
	*a = (struct ibv_qp_init_attr){
		.send_cq = w->cq,
		.recv_cq = w->cq,
		.srq = type == IBV_QPT_RC ? w->srq : NULL,
		.cap = {.max_send_wr = w->depth,
			.max_recv_wr = type == IBV_QPT_RC ? 0 : w->n_ud_recvs,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = (uint32_t)w->o.inline_max},
		.qp_type = type,
	};
	/* Devices say how much they can inline only by refusing more. */
	for (;;) {
		struct ibv_qp *qp = type == IBV_QPT_RC && w->ext != NULL
					    ? w->ext->create_qp(w->pd, a)
					    : w->lib->create_qp(w->pd, a);

		if (qp != NULL || a->cap.max_inline_data == 0 || errno == ENOMEM)
			return qp;
		a->cap.max_inline_data /= 2;
	}
}

int verbs_qp_init(struct verbs *w, struct ibv_qp *qp, enum ibv_qp_type type)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT,
		.port_num = w->choice.port->number,
		.qp_access_flags =
			IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
		.qkey = w->qkey,
	};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		   (type == IBV_QPT_RC ? IBV_QP_ACCESS_FLAGS : IBV_QP_QKEY);
	int err = w->lib->modify_qp(qp, &a, mask);

	return err == 0 ? 0
			: vb_fail(-ENODEV, "%s: a queue pair cannot be readied: %s",
				  w->choice.device.name, strerror(err));
}

int verbs_qp_make(struct verbs *w, struct verbs_qp *q, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr made;
	int err;

	q->qp = qp_create(w, type, &made);
	if (q->qp == NULL)
		return vb_fail(-ENODEV,
			       "%s makes no queue pair of %u requests: %s%s (fewer lanes, a "
			       "smaller depth?)",
			       w->choice.device.name, w->depth, strerror(errno),
			       verbs_pin_hint(errno));
	q->max_inline = made.cap.max_inline_data < w->o.inline_max ? made.cap.max_inline_data
								   : (uint32_t)w->o.inline_max;
	q->head = q->rung = q->tail = 0;
	q->last = false;
	verbs_unheard(w, q, 0);
	q->round++;
	q->psn = (uint32_t)vb_rng_next(&w->rng) & 0xffffff;
	err = verbs_qp_init(w, q->qp, type);
	if (err != 0)
		return err;
	index_renew(w);
	return 0;
}

void verbs_qp_unmake(struct verbs *w, struct verbs_qp *q, bool soon)
{
	if (q->qp == NULL)
		return;
	verbs_bury(w, q->qp, q->last, soon);
	q->qp = NULL;
	index_renew(w);
}

void verbs_address_fill(struct verbs *w, const struct verbs_host *h, struct ibv_ah_attr *ah)
{
	bool ethernet = w->choice.port->link == VERBS_LINK_ETHERNET;

	*ah = (struct ibv_ah_attr){
		.dlid = h->lid,
		.port_num = w->choice.port->number,
		.is_global = ethernet || h->lid == 0,
	};
	if (!ah->is_global)
		return;
	memcpy(ah->grh.dgid.raw, h->gid, sizeof(h->gid));
	ah->grh.sgid_index = (uint8_t)w->choice.gid->index;
	ah->grh.hop_limit = HOPS;
}

int verbs_ah_make(struct verbs *w, struct verbs_host *h)
{
	struct ibv_ah_attr a;

	verbs_address_fill(w, h, &a);
	h->ah = w->lib->create_ah(w->pd, &a);
	return h->ah != NULL ? 0
			     : vb_fail(-ENODEV, "%s finds no way to a peer: %s",
				       w->choice.device.name, strerror(errno));
}

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

int verbs_qp_connect(struct verbs *w, struct verbs_qp *q, const struct verbs_remote_qp *to)
{
	struct verbs_host *h = &w->hosts[q->host];
	const struct verbs_device *d = &w->choice.device;
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = (enum ibv_mtu)h->mtu,
		.dest_qp_num = to->qpn,
		.rq_psn = to->psn,
		.max_dest_rd_atomic = (uint8_t)least(d->max_rd_atomic, 128),
		.min_rnr_timer = RNR_TIMER,
	};
	int err;

	verbs_address_fill(w, h, &a.ah_attr);
	err = w->lib->modify_qp(q->qp, &a,
				IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					IBV_QP_MIN_RNR_TIMER);
	if (err == 0) {
		a = (struct ibv_qp_attr){
			.qp_state = IBV_QPS_RTS,
			.timeout = (uint8_t)w->o.timeout,
			.retry_cnt = (uint8_t)w->o.retries,
			.rnr_retry = VERBS_RNR_RETRIES,
			.sq_psn = q->psn,
			.max_rd_atomic = (uint8_t)least(d->max_init_rd_atomic, h->rd_atomic),
		};
		err = w->lib->modify_qp(q->qp, &a,
					IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
						IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
						IBV_QP_MAX_QP_RD_ATOMIC);
	}
	return err == 0 ? 0
			: vb_fail(-ENODEV,
				  "%s: no connection to host %u: %s (is the GID right, option "
				  "gid? the MTU, option mtu?)",
				  d->name, q->host, strerror(err));
}

int verbs_ud_start(struct verbs *w)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR};
	int err = w->lib->modify_qp(w->ud->qp, &a, IBV_QP_STATE);

	if (err == 0) {
		a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS};
		err = w->lib->modify_qp(w->ud->qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN);
	}
	return err == 0 ? 0
			: vb_fail(-ENODEV, "%s sends no datagrams: %s", w->choice.device.name,
				  strerror(err));
}
