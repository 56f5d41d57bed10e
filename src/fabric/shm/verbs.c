/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verbs on shared memory: the caller's CPU executes them, at once; fabric/cpu.h says how and in
 * what order.
 */
#define VB_LOG_ROOM "shm"
#include <inttypes.h>

#include "base/log.h"
#include "fabric/cpu.h"
#include "fabric/shm/inner.h"

/* ---- addresses ---- */

/* One test for the common case; the reason is looked for afterwards. */
static inline void *locate(const struct shm_ep *e, vb_addr a, uint64_t bytes, uint64_t align)
{
	uint64_t offset = vb_addr_offset(a);
	uint32_t node = vb_addr_node(a);

	if (vb_unlikely((node >= e->nodes) | (offset > e->node_bytes - bytes) |
			((offset & (align - 1)) != 0)))
		return NULL;
	return e->base[node] + offset;
}

static VB_COLD int refuse(struct shm_ep *e, vb_addr a, uint64_t bytes)
{
	uint64_t offset = vb_addr_offset(a);
	uint32_t node = vb_addr_node(a);
	bool inside = node < e->nodes && bytes <= e->node_bytes && offset <= e->node_bytes - bytes;

	if ((e->refused & (e->refused + 1)) == 0) /* the 1st, 2nd, 4th, ... */
		vb_debug("%" PRIu64 " bytes at node %u offset %#" PRIx64 ": %s", bytes, node,
			 offset, inside ? "not aligned" : "outside the segment");
	e->refused++;
	return inside ? -EINVAL : -VB_EACCESS;
}

/* ---- single verbs without a batch ---- */

int shm_faa64(struct vb_ep *ep, vb_addr a, uint64_t add, uint64_t *old)
{
	uint64_t *w = locate((struct shm_ep *)ep, a, 8, 8);

	if (vb_unlikely(w == NULL))
		return refuse((struct shm_ep *)ep, a, 8);
	*old = __atomic_fetch_add(w, add, __ATOMIC_SEQ_CST);
	return 0;
}

int shm_cas64(struct vb_ep *ep, vb_addr a, uint64_t expect, uint64_t value, uint64_t *old)
{
	uint64_t *w = locate((struct shm_ep *)ep, a, 8, 8);

	if (vb_unlikely(w == NULL))
		return refuse((struct shm_ep *)ep, a, 8);
	*old = cpu_cas64(w, expect, value);
	return 0;
}

int shm_mcas64(struct vb_ep *ep, vb_addr a, uint64_t expect, uint64_t expect_mask, uint64_t value,
	       uint64_t value_mask, uint64_t *old)
{
	uint64_t *w = locate((struct shm_ep *)ep, a, 8, 8);

	if (vb_unlikely(w == NULL))
		return refuse((struct shm_ep *)ep, a, 8);
	*old = cpu_mcas64(w, expect, expect_mask, value, value_mask);
	return 0;
}

int shm_read64(struct vb_ep *ep, vb_addr a, uint64_t *out)
{
	uint64_t *w = locate((struct shm_ep *)ep, a, 8, 8);

	if (vb_unlikely(w == NULL))
		return refuse((struct shm_ep *)ep, a, 8);
	*out = __atomic_load_n(w, __ATOMIC_SEQ_CST);
	return 0;
}

/* A record of 1 KB and what stands before it; of a larger one the CPU finds the rest. */
#define HINT_LINES 18u

void shm_hint(struct vb_ep *ep, vb_addr a, uint32_t len)
{
	const char *at = len <= ((struct shm_ep *)ep)->node_bytes
				 ? locate((struct shm_ep *)ep, a, len, 1)
				 : NULL;

	for (unsigned i = 0; at != NULL && i < HINT_LINES && i * VB_CACHELINE < len; i++)
		__builtin_prefetch(at + i * VB_CACHELINE, 1);
}

int shm_read(struct vb_ep *ep, vb_addr a, void *buf, uint32_t len)
{
	void *at = len <= ((struct shm_ep *)ep)->node_bytes ? locate((struct shm_ep *)ep, a, len, 1)
							    : NULL;

	if (vb_unlikely(at == NULL))
		return refuse((struct shm_ep *)ep, a, len);
	/* A slot of an index, which is most of what is read so. */
	if (len == 16 && ((uintptr_t)at & 15) == 0) {
		struct vb_u128 v = cpu_load16(at);

		memcpy(buf, &v, 16);
		return 0;
	}
	cpu_copy_out(buf, at, len);
	return 0;
}

int shm_write(struct vb_ep *ep, vb_addr a, const void *buf, uint32_t len)
{
	void *at = len <= ((struct shm_ep *)ep)->node_bytes ? locate((struct shm_ep *)ep, a, len, 1)
							    : NULL;

	if (vb_unlikely(at == NULL))
		return refuse((struct shm_ep *)ep, a, len);
	cpu_copy_in(at, buf, len);
	return 0;
}

int shm_mcas128(struct vb_ep *ep, vb_addr a, struct vb_u128 expect, struct vb_u128 expect_mask,
		struct vb_u128 value, struct vb_u128 value_mask, struct vb_u128 *old)
{
	struct vb_u128 *w = locate((struct shm_ep *)ep, a, 16, 16);

	if (vb_unlikely(w == NULL))
		return refuse((struct shm_ep *)ep, a, 16);
	*old = cpu_mcas128(w, expect, expect_mask, value, value_mask);
	return 0;
}

int shm_mfaa128(struct vb_ep *ep, vb_addr a, struct vb_u128 add, struct vb_u128 bounds,
		struct vb_u128 *old)
{
	struct vb_u128 *w = locate((struct shm_ep *)ep, a, 16, 16);

	if (vb_unlikely(w == NULL))
		return refuse((struct shm_ep *)ep, a, 16);
	*old = cpu_mfaa128(w, add, bounds);
	return 0;
}

/* ---- batches ---- */

static int move(struct shm_ep *e, struct vb_verb *v)
{
	void *at = v->len <= e->node_bytes ? locate(e, v->addr, v->len, 1) : NULL;

	if (at == NULL)
		return refuse(e, v->addr, v->len);
	if (v->op == VB_OP_READ)
		cpu_copy_out(v->buf, at, v->len);
	else
		cpu_copy_in(at, v->buf, v->len);
	return 0;
}

/* WRITE_NOTIFY finds a place for the message first: the WRITE happens if it can be told, or not. */
static int notify(struct shm_ep *e, struct vb_verb *v)
{
	struct shm_place place;
	int err;

	if (v->op == VB_OP_WRITE_NOTIFY) {
		if (v->len > e->node_bytes || locate(e, v->addr, v->len, 1) == NULL)
			return refuse(e, v->addr, v->len);
		if (vb_peer_node(v->peer) != vb_addr_node(v->addr))
			return -EINVAL;
	}
	err = shm_ring_reserve(e, v->peer, &place);
	if (err != 0)
		return err;
	if (v->op == VB_OP_WRITE_NOTIFY)
		(void)move(e, v);
	shm_ring_publish(e, &place, v->msg);
	return 0;
}

static int execute(struct shm_ep *e, struct vb_verb *v)
{
	struct vb_ep *ep = &e->ep;
	uint64_t *w;

	if (v->not_after_ns != 0 && v->not_after_ns != VB_FOREVER &&
	    vb_ep_now_early(ep) > v->not_after_ns)
		return -VB_ETOOLATE;
	switch ((enum vb_op)v->op) {
	case VB_OP_READ:
	case VB_OP_WRITE:
		return move(e, v);
	case VB_OP_CAS64:
		return shm_cas64(ep, v->addr, v->compare.lo, v->swap.lo, &v->old.lo);
	case VB_OP_FAA64:
		return shm_faa64(ep, v->addr, v->compare.lo, &v->old.lo);
	case VB_OP_MCAS64:
		return shm_mcas64(ep, v->addr, v->compare.lo, v->compare_mask.lo, v->swap.lo,
				  v->swap_mask.lo, &v->old.lo);
	case VB_OP_MFAA64:
		w = locate(e, v->addr, 8, 8);
		if (w == NULL)
			return refuse(e, v->addr, 8);
		v->old.lo = cpu_mfaa64(w, v->compare.lo, v->compare_mask.lo);
		return 0;
	case VB_OP_MCAS128:
		return shm_mcas128(ep, v->addr, v->compare, v->compare_mask, v->swap, v->swap_mask,
				   &v->old);
	case VB_OP_MFAA128:
		return shm_mfaa128(ep, v->addr, v->compare, v->compare_mask, &v->old);
	case VB_OP_SEND:
	case VB_OP_WRITE_NOTIFY:
		return notify(e, v);
	case VB_OP_COUNT:
		break;
	}
	return -EINVAL;
}

/* A verb that fails does not stop those behind it. */
int shm_post(struct vb_ep *ep, struct vb_batch *batch)
{
	for (unsigned i = 0; i < batch->n; i++)
		batch->verbs[i].status = execute((struct shm_ep *)ep, &batch->verbs[i]);
	return 0;
}
