/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ConnectX-4 and later, through upstream's mlx5dv: extended atomics as raw work requests, and
 * dynamic connections (DC).  No test has reached a card; doc/verbs-mlx5.md says what was read and
 * what is to be tried.  What can be tested without one is: the bytes (mlx5_wqe.h), and the
 * calls, against a library that the tests make up.
 *
 * Dynamic connections: a *target* (DCT) receives from anybody who knows its number and key, an
 * *initiator* (DCI) sends to any target, named in each request.  One of each replaces a connection
 * to every other host.  The requests of one initiator are executed in order.
 */
#ifndef VB_FABRIC_VERBS_MLX5_H
#define VB_FABRIC_VERBS_MLX5_H

#include "fabric/verbs/ext.h"

#if VB_HAVE_MLX5DV
#include <infiniband/mlx5dv.h>

/* libmlx5, loaded at run time, and what it needs of libibverbs that verbs_lib does not have. */
struct verbs_mlx5_lib {
	bool (*is_supported)(struct ibv_device *);
	int (*general_cmd)(struct ibv_context *, const void *, size_t, void *, size_t);
	struct ibv_qp *(*create_qp)(struct ibv_context *, struct ibv_qp_init_attr_ex *,
				    struct mlx5dv_qp_init_attr *);
	struct mlx5dv_qp_ex *(*qp_ex_of)(struct ibv_qp_ex *);
	struct ibv_qp_ex *(*to_qp_ex)(struct ibv_qp *);
	int (*modify_qp)(struct ibv_qp *, struct ibv_qp_attr *, int);
	int (*destroy_qp)(struct ibv_qp *);
};

/* For tests: these calls from now on; NULL: the libraries' again. */
void verbs_mlx5_use(const struct verbs_mlx5_lib *lib);

/* Cards whose 8-byte results are in the host's order, and those that answer in the network's. */
extern const struct verbs_ext_ops verbs_mlx5_host, verbs_mlx5_network;

/* ---- dynamic connections ---- */

struct verbs_dc_params {
	struct ibv_pd *pd;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_srq *srq; /* what arrives at the target takes its buffers here */
	uint32_t depth, max_inline;
	uint64_t key; /* of our target: requests with another are dropped */
	uint8_t port, gid_index;
	bool global; /* addresses have GIDs (always on Ethernet) */
	enum ibv_mtu mtu;
	uint8_t timeout, retries;
};

struct verbs_dc {
	struct ibv_qp *initiator, *target;
	uint32_t number; /* of the target: what others have to know, with the key */
	uint32_t max_inline;
};

/* One SEND with immediate data, of which the device copies up to max_inline bytes at once. */
struct verbs_dc_wr {
	struct ibv_ah *to;
	uint32_t number; /* of the target there */
	uint64_t key;
	uint64_t wr_id;
	uint64_t addr; /* of the bytes, registered under lkey unless `inlined` */
	uint32_t bytes, lkey, imm;
	bool signalled, fence, inlined;
};

/* 0; -EOPNOTSUPP: the device has no dynamic connections (not said, to be asked first); other
 * -errno. */
int verbs_dc_open(const struct verbs_dc_params *p, struct verbs_dc *dc);
void verbs_dc_close(struct verbs_dc *dc);
/* In order, one doorbell.  0 or -errno: nothing was posted. */
int verbs_dc_post(const struct verbs_dc *dc, const struct verbs_dc_wr *wr, unsigned n);

#endif
#endif
