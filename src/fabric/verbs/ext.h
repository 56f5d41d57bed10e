/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extended atomics (masked, 128 bits) of a device: the narrow place at which a vendor's interface
 * comes in.  Without one a device has CAS64 and FAA64 only, and the caps say so.
 *
 * Extended requests cannot be linked with plain ones: a chain with both is posted in runs, each
 * with a doorbell of its own, in order.
 */
#ifndef VB_FABRIC_VERBS_EXT_H
#define VB_FABRIC_VERBS_EXT_H

#include "fabric/fabric.h"
#include "fabric/verbs/lib.h"

/* One extended atomic, self-contained: the verb may be gone when the doorbell rings. */
struct verbs_ext_wr {
	uint8_t op; /* VB_OP_MCAS64 ... VB_OP_MFAA128 */
	bool signalled, fence;
	uint64_t wr_id;
	uint64_t remote; /* address and key at the owner */
	uint32_t rkey, lkey;
	void *result; /* registered, 16 bytes, aligned to 16 */
	struct vb_u128 compare, compare_mask, swap, swap_mask;
};

struct verbs_ext_ops {
	const char *name;
	/* VB_CAP_MASKED64, VB_CAP_MASKED128: what the device does.  0: nothing. */
	uint32_t (*probe)(struct ibv_context *ctx);
	/* A QP on which `post` works, for ibv_post_send too.  NULL and errno. */
	struct ibv_qp *(*create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
	/* Posts n in order with one doorbell.  0 or -errno: nothing was posted. */
	int (*post)(struct ibv_qp *qp, const struct verbs_ext_wr *wr, unsigned n);
	/* The previous value, in the host's order, out of what the device wrote to `result`. */
	struct vb_u128 (*decode)(uint8_t op, const void *result);
};

/* What this device has, or NULL. */
const struct verbs_ext_ops *verbs_ext_of(struct ibv_context *ctx);
uint32_t verbs_ext_probe(struct ibv_context *ctx);

#endif
