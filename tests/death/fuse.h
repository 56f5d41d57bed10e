/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TEST_DEATH_FUSE_H
#define TEST_DEATH_FUSE_H

#include <signal.h>
#include <unistd.h>

#include "fabric/fabric.h"

/* ---- dying at a verb ---- */

/*
 * The client's endpoint gets a copy of its fabric's operations in which each verb burns a piece of
 * a fuse; at its end the process kills itself, before the verb or right after it.
 */
static struct {
	struct vb_fabric_ops ops;
	const struct vb_fabric_ops *real;
	unsigned left;
	bool after;
} fuse;

#define FUSED(call)                                                                                \
	({                                                                                         \
		bool end_ = --fuse.left == 0;                                                      \
		__typeof__(call) r_;                                                               \
                                                                                                   \
		if (end_ && !fuse.after)                                                           \
			kill(getpid(), SIGKILL);                                                   \
		r_ = call;                                                                         \
		if (end_)                                                                          \
			kill(getpid(), SIGKILL);                                                   \
		r_;                                                                                \
	})

static int fused_post(struct vb_ep *ep, struct vb_batch *batch)
{
	return FUSED(fuse.real->post(ep, batch));
}

static int fused_faa64(struct vb_ep *ep, vb_addr a, uint64_t add, uint64_t *old)
{
	return FUSED(fuse.real->faa64(ep, a, add, old));
}

static int fused_cas64(struct vb_ep *ep, vb_addr a, uint64_t expect, uint64_t value, uint64_t *old)
{
	return FUSED(fuse.real->cas64(ep, a, expect, value, old));
}

static int fused_mcas64(struct vb_ep *ep, vb_addr a, uint64_t expect, uint64_t expect_mask,
			uint64_t value, uint64_t value_mask, uint64_t *old)
{
	return FUSED(fuse.real->mcas64(ep, a, expect, expect_mask, value, value_mask, old));
}

static int fused_read64(struct vb_ep *ep, vb_addr a, uint64_t *out)
{
	return FUSED(fuse.real->read64(ep, a, out));
}

static int fused_mcas128(struct vb_ep *ep, vb_addr a, struct vb_u128 expect,
			 struct vb_u128 expect_mask, struct vb_u128 value,
			 struct vb_u128 value_mask, struct vb_u128 *old)
{
	return FUSED(fuse.real->mcas128(ep, a, expect, expect_mask, value, value_mask, old));
}

static int fused_mfaa128(struct vb_ep *ep, vb_addr a, struct vb_u128 add, struct vb_u128 bounds,
			 struct vb_u128 *old)
{
	return FUSED(fuse.real->mfaa128(ep, a, add, bounds, old));
}

static void light_fuse(struct vb_ep *ep, unsigned verbs, bool after)
{
	fuse.real = ep->ops;
	fuse.ops = *ep->ops;
	fuse.left = verbs;
	fuse.after = after;
	fuse.ops.post = fused_post;
	/* shm has every inline entry; the wrappers would otherwise call through NULL. */
	vb_assert(fuse.real->faa64 && fuse.real->cas64 && fuse.real->mcas64 && fuse.real->read64 &&
		  fuse.real->mcas128 && fuse.real->mfaa128);
	fuse.ops.faa64 = fused_faa64;
	fuse.ops.cas64 = fused_cas64;
	fuse.ops.mcas64 = fused_mcas64;
	fuse.ops.read64 = fused_read64;
	fuse.ops.mcas128 = fused_mcas128;
	fuse.ops.mfaa128 = fused_mfaa128;
	ep->ops = &fuse.ops;
}

#endif
