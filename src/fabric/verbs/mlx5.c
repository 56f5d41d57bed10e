/* SPDX-License-Identifier: Apache-2.0 */
/* Extended atomics of ConnectX; see mlx5.h. */
#define VB_LOG_ROOM "verbs"
#include "fabric/verbs/mlx5_inner.h"

#include <dlfcn.h>
#include <pthread.h>

#include "base/log.h"
#include "fabric/verbs/mlx5_wqe.h"

/* Written by hand in mlx5_wqe.c, so that it needs no headers. */
_Static_assert(MLX5_OPCODE_ATOMIC_MASKED_CS == 0x14 && MLX5_OPCODE_ATOMIC_MASKED_FA == 0x15,
	       "opcodes of the masked atomics");
_Static_assert(MLX5_WQE_CTRL_CQ_UPDATE == 0x08 && MLX5_WQE_CTRL_FENCE == 0x80, "control flags");
_Static_assert(sizeof(struct mlx5_wqe_ctrl_seg) == 16 && sizeof(struct mlx5_wqe_raddr_seg) == 16 &&
		       sizeof(struct mlx5_wqe_data_seg) == 16,
	       "segments");
_Static_assert(MLX5_SEND_WQE_BB == VERBS_MLX5_BLOCK, "block of a send queue");

/* ---- the libraries ---- */

static struct verbs_mlx5_lib loaded;
static const struct verbs_mlx5_lib *in_use;
static bool is_loaded;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const struct {
	const char *library, *symbol;
	size_t at;
} calls[] = {
	{"libmlx5.so.1", "mlx5dv_is_supported", offsetof(struct verbs_mlx5_lib, is_supported)},
	{"libmlx5.so.1", "mlx5dv_devx_general_cmd", offsetof(struct verbs_mlx5_lib, general_cmd)},
	{"libmlx5.so.1", "mlx5dv_create_qp", offsetof(struct verbs_mlx5_lib, create_qp)},
	{"libmlx5.so.1", "mlx5dv_qp_ex_from_ibv_qp_ex", offsetof(struct verbs_mlx5_lib, qp_ex_of)},
	{"libibverbs.so.1", "ibv_qp_to_qp_ex", offsetof(struct verbs_mlx5_lib, to_qp_ex)},
	{"libibverbs.so.1", "ibv_modify_qp", offsetof(struct verbs_mlx5_lib, modify_qp)},
	{"libibverbs.so.1", "ibv_destroy_qp", offsetof(struct verbs_mlx5_lib, destroy_qp)},
};

static void load(void)
{
	for (size_t i = 0; i < VB_ARRAY_SIZE(calls); i++) {
		void *so = dlopen(calls[i].library, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
		void *entry = so != NULL ? dlsym(so, calls[i].symbol) : NULL;

		if (entry == NULL) {
			vb_info("no mlx5: %s", dlerror());
			return;
		}
		memcpy((char *)&loaded + calls[i].at, &entry, sizeof(entry));
	}
	is_loaded = true;
}

const struct verbs_mlx5_lib *verbs_mlx5_lib(void)
{
	if (in_use != NULL)
		return in_use;
	pthread_once(&once, load);
	return is_loaded ? &loaded : NULL;
}

void verbs_mlx5_use(const struct verbs_mlx5_lib *lib)
{
	in_use = lib;
}

/* ---- what a card can do ---- */

/* A device that says nothing has nothing: plain CAS and FAA are left. */
static uint32_t probe(struct ibv_context *ctx, bool be64)
{
	const struct verbs_mlx5_lib *lib = verbs_mlx5_lib();
	uint8_t in[VERBS_MLX5_QUERY_IN], out[VERBS_MLX5_QUERY_OUT];
	struct verbs_mlx5_atomics a;
	int err;

	if (lib == NULL || !lib->is_supported(ctx->device))
		return 0;
	verbs_mlx5_query(in);
	memset(out, 0, sizeof(out));
	err = lib->general_cmd(ctx, in, sizeof(in), out, sizeof(out));
	if (err != 0) {
		vb_info("the device does not tell its atomics: %s (DEVX may need CAP_NET_RAW)",
			strerror(err < 0 ? errno : err));
		return 0;
	}
	if (verbs_mlx5_answer(out, &a) != 0) {
		vb_info("the device refuses to tell its atomics: status %u", out[0]);
		return 0;
	}
	return a.be64 == be64 ? verbs_mlx5_caps(&a) : 0;
}

static uint32_t probe_host(struct ibv_context *ctx)
{
	return probe(ctx, false);
}

static uint32_t probe_network(struct ibv_context *ctx)
{
	return probe(ctx, true);
}

/* ---- queue pairs ---- */

/*
 * Two things that a queue pair for raw requests must have.  The driver reserves blocks by the
 * largest request that it knows, not by ours of two blocks, and checks the number of requests only:
 * so twice the requests are asked for.  And it cannot scatter a masked atomic's result out of a
 * completion, so the device must not put it there.
 */
static struct ibv_qp *create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	const struct verbs_mlx5_lib *lib = verbs_mlx5_lib();
	uint32_t depth = attr->cap.max_send_wr;
	struct ibv_qp_init_attr_ex ex = {
		.qp_context = attr->qp_context,
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.srq = attr->srq,
		.cap = attr->cap,
		.qp_type = attr->qp_type,
		.sq_sig_all = attr->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
				  IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
				  IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
				  IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
	};
	struct mlx5dv_qp_init_attr dv = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS |
			     MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS,
		.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE,
		.send_ops_flags = MLX5DV_QP_EX_WITH_RAW_WQE,
	};
	struct ibv_qp *qp;

	if (lib == NULL) {
		errno = ENOSYS;
		return NULL;
	}
	ex.cap.max_send_wr *= (VERBS_MLX5_WQE_MAX + VERBS_MLX5_BLOCK - 1) / VERBS_MLX5_BLOCK;
	qp = lib->create_qp(pd->context, &ex, &dv);
	if (qp != NULL) {
		attr->cap = ex.cap;
		attr->cap.max_send_wr = depth;
	}
	return qp;
}

static int post(struct ibv_qp *qp, const struct verbs_ext_wr *wr, unsigned n)
{
	const struct verbs_mlx5_lib *lib = verbs_mlx5_lib();
	struct ibv_qp_ex *ex = lib->to_qp_ex(qp);
	struct mlx5dv_qp_ex *dv = lib->qp_ex_of(ex);
	/* The driver reads it as segments. */
	union {
		struct mlx5_wqe_ctrl_seg control;
		uint64_t align;
		uint8_t bytes[VERBS_MLX5_WQE_MAX];
	} wqe;

	ibv_wr_start(ex);
	for (unsigned i = 0; i < n; i++) {
		if (verbs_mlx5_encode(&wr[i], qp->qp_num, wqe.bytes) == 0) {
			ibv_wr_abort(ex);
			return vb_fail(
				-EOPNOTSUPP,
				"a field of an MFAA128 spans both words: the card's adder is "
				"64 bits wide");
		}
		ex->wr_id = wr[i].wr_id;
		ex->wr_flags = 0; /* the request has its own */
		mlx5dv_wr_raw_wqe(dv, &wqe);
	}
	/* After an error nothing has been handed over. */
	return -ibv_wr_complete(ex);
}

static struct vb_u128 decode_host(uint8_t op, const void *result)
{
	return verbs_mlx5_decode(op, result, false);
}

static struct vb_u128 decode_network(uint8_t op, const void *result)
{
	return verbs_mlx5_decode(op, result, true);
}

const struct verbs_ext_ops verbs_mlx5_host = {
	.name = "masked CAS and FAA by the ConnectX card (raw work requests; untested on hardware)",
	.probe = probe_host,
	.create_qp = create_qp,
	.post = post,
	.decode = decode_host,
};

const struct verbs_ext_ops verbs_mlx5_network = {
	.name = "masked CAS and FAA by the ConnectX card, which answers in network order (raw work "
		"requests; untested on hardware)",
	.probe = probe_network,
	.create_qp = create_qp,
	.post = post,
	.decode = decode_network,
};
