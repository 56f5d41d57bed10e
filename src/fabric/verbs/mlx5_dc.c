/* SPDX-License-Identifier: Apache-2.0 */
/* Dynamic connections of ConnectX; see mlx5.h. */
#define VB_LOG_ROOM "verbs"
#include "fabric/verbs/mlx5_inner.h"

#include <arpa/inet.h>

#include "base/log.h"

#define HOPS        64
#define RNR_TIMER   12 /* 0.64 ms */
#define RNR_RETRIES 6

static struct ibv_qp *make_target(const struct verbs_mlx5_lib *lib, const struct verbs_dc_params *p)
{
	struct ibv_qp_init_attr_ex ex = {
		.send_cq = p->send_cq,
		.recv_cq = p->recv_cq,
		.srq = p->srq,
		.qp_type = IBV_QPT_DRIVER,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = p->pd,
	};
	struct mlx5dv_qp_init_attr dv = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC,
		.dc_init_attr = {.dc_type = MLX5DV_DCTYPE_DCT, .dct_access_key = p->key},
	};

	return lib->create_qp(p->pd->context, &ex, &dv);
}

static struct ibv_qp *make_initiator(const struct verbs_mlx5_lib *lib,
				     const struct verbs_dc_params *p, uint32_t *max_inline)
{
	struct ibv_qp_init_attr_ex ex = {
		.send_cq = p->send_cq,
		.recv_cq = p->recv_cq,
		.cap = {.max_send_wr = p->depth,
			.max_send_sge = 1,
			.max_inline_data = p->max_inline},
		.qp_type = IBV_QPT_DRIVER,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = p->pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND_WITH_IMM,
	};
	struct mlx5dv_qp_init_attr dv = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC,
		.dc_init_attr = {.dc_type = MLX5DV_DCTYPE_DCI},
	};
	struct ibv_qp *qp = lib->create_qp(p->pd->context, &ex, &dv);

	*max_inline = ex.cap.max_inline_data;
	return qp;
}

/* A step of a queue pair's life: 0 or -errno, said. */
static int step(const struct verbs_mlx5_lib *lib, struct ibv_qp *qp, struct ibv_qp_attr *a,
		int mask, const char *what)
{
	int err = lib->modify_qp(qp, a, mask | IBV_QP_STATE);

	if (err != 0)
		return vb_fail(-err, "dynamic connections: %s: %s", what, strerror(err));
	return 0;
}

/* The target's address is where it answers to; it has its number once it is ready to receive. */
static int ready_target(const struct verbs_mlx5_lib *lib, const struct verbs_dc_params *p,
			struct ibv_qp *qp)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = p->port};
	int err = step(lib, qp, &a, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
		       "the target cannot be set up");

	if (err != 0)
		return err;
	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = p->mtu,
		.min_rnr_timer = RNR_TIMER,
		.ah_attr = {.is_global = p->global,
			    .port_num = p->port,
			    .grh = {.sgid_index = p->gid_index, .hop_limit = HOPS}},
	};
	return step(lib, qp, &a, IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV,
		    "the target cannot receive");
}

static int ready_initiator(const struct verbs_mlx5_lib *lib, const struct verbs_dc_params *p,
			   struct ibv_qp *qp)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = p->port};
	int err = step(lib, qp, &a, IBV_QP_PKEY_INDEX | IBV_QP_PORT,
		       "the initiator cannot be set up");

	if (err != 0)
		return err;
	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = p->mtu,
		.ah_attr = {.is_global = p->global,
			    .port_num = p->port,
			    .grh = {.sgid_index = p->gid_index, .hop_limit = HOPS}},
	};
	err = step(lib, qp, &a, IBV_QP_PATH_MTU | IBV_QP_AV, "the initiator cannot be readied");
	if (err != 0)
		return err;
	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.timeout = p->timeout,
		.retry_cnt = p->retries,
		.rnr_retry = RNR_RETRIES,
		.max_rd_atomic = 1,
	};
	return step(lib, qp, &a,
		    IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			    IBV_QP_MAX_QP_RD_ATOMIC,
		    "the initiator cannot send");
}

int verbs_dc_open(const struct verbs_dc_params *p, struct verbs_dc *dc)
{
	const struct verbs_mlx5_lib *lib = verbs_mlx5_lib();
	int err;

	*dc = (struct verbs_dc){0};
	if (lib == NULL || !lib->is_supported(p->pd->context->device))
		return -EOPNOTSUPP;
	dc->target = make_target(lib, p);
	if (dc->target != NULL)
		dc->initiator = make_initiator(lib, p, &dc->max_inline);
	if (dc->initiator == NULL) {
		/* Cards before ConnectX-4, virtual functions, and kernels without it refuse
		 * here. */
		err = errno == ENOMEM ? -ENOMEM : -EOPNOTSUPP;
		verbs_dc_close(dc);
		return err;
	}
	err = ready_target(lib, p, dc->target);
	if (err == 0)
		err = ready_initiator(lib, p, dc->initiator);
	if (err != 0) {
		verbs_dc_close(dc);
		return err;
	}
	dc->number = dc->target->qp_num;
	return 0;
}

void verbs_dc_close(struct verbs_dc *dc)
{
	const struct verbs_mlx5_lib *lib = verbs_mlx5_lib();

	if (dc->initiator != NULL && lib->destroy_qp(dc->initiator) != 0)
		vb_error("dynamic connections: the initiator cannot be destroyed");
	if (dc->target != NULL && lib->destroy_qp(dc->target) != 0)
		vb_error("dynamic connections: the target cannot be destroyed");
	*dc = (struct verbs_dc){0};
}

int verbs_dc_post(const struct verbs_dc *dc, const struct verbs_dc_wr *wr, unsigned n)
{
	const struct verbs_mlx5_lib *lib = verbs_mlx5_lib();
	struct ibv_qp_ex *ex = lib->to_qp_ex(dc->initiator);
	struct mlx5dv_qp_ex *dv = lib->qp_ex_of(ex);

	for (unsigned i = 0; i < n; i++)
		if (wr[i].inlined && wr[i].bytes > dc->max_inline)
			return vb_fail(-EINVAL, "%u bytes inline: this device takes %u",
				       wr[i].bytes, dc->max_inline);
	ibv_wr_start(ex);
	for (unsigned i = 0; i < n; i++) {
		const struct verbs_dc_wr *w = &wr[i];

		ex->wr_id = w->wr_id;
		ex->wr_flags = (w->signalled ? (unsigned)IBV_SEND_SIGNALED : 0u) |
			       (w->fence ? (unsigned)IBV_SEND_FENCE : 0u);
		ibv_wr_send_imm(ex, htonl(w->imm));
		if (w->inlined)
			ibv_wr_set_inline_data(ex, (void *)(uintptr_t)w->addr, w->bytes);
		else
			ibv_wr_set_sge(ex, w->lkey, w->addr, w->bytes);
		mlx5dv_wr_set_dc_addr(dv, w->to, w->number, w->key);
	}
	return -ibv_wr_complete(ex);
}
