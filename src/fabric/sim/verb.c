/* SPDX-License-Identifier: Apache-2.0 */
/* What a verb is: whether it can be posted at all, and what its operation takes of it. */
#define VB_LOG_ROOM "sim"
#include "fabric/sim/inner.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"

/* ---- what can be posted at all ---- */

static int check_atomic(const struct sim *s, const struct vb_verb *v, uint32_t *bytes)
{
	uint32_t need = 0;

	*bytes = v->op == VB_OP_MCAS128 || v->op == VB_OP_MFAA128 ? 16 : 8;
	if (v->op == VB_OP_MCAS64 || v->op == VB_OP_MFAA64)
		need = VB_CAP_MASKED64;
	else if (*bytes == 16)
		need = VB_CAP_MASKED128;
	if ((s->base.caps.flags & need) != need)
		return vb_fail(-EOPNOTSUPP, "profile '%s' has no %s: see caps", s->p.name,
			       vb_op_names[v->op]);
	if (vb_addr_offset(v->addr) % *bytes != 0)
		return vb_fail(-EINVAL, "%s at %#" PRIx64 ": must be aligned to %u bytes",
			       vb_op_names[v->op], v->addr, *bytes);
	return 0;
}

static int check_peer(const struct sim *s, const struct vb_verb *v)
{
	if (v->msg == NULL || v->peer == VB_PEER_NONE || vb_peer_node(v->peer) >= s->base.nodes)
		return vb_fail(-EINVAL, "%s to nobody (%#" PRIx64 ")", vb_op_names[v->op], v->peer);
	if (v->op == VB_OP_WRITE_NOTIFY && vb_peer_node(v->peer) != vb_addr_node(v->addr))
		return vb_fail(-EINVAL, "write-notify: the address is not on the peer's node");
	return 0;
}

static int check_verb(const struct sim *s, const struct vb_verb *v)
{
	uint32_t bytes = v->len;
	int err = 0;

	if (v->op == VB_OP_SEND || v->op == VB_OP_WRITE_NOTIFY)
		err = check_peer(s, v);
	else if (v->op >= VB_OP_CAS64 && v->op <= VB_OP_MFAA128)
		err = check_atomic(s, v, &bytes);
	if (err != 0 || v->op == VB_OP_SEND)
		return err;
	if (vb_unlikely(bytes == 0 || bytes > SIM_LEN_MAX))
		return vb_fail(-EINVAL, "%s of %u bytes: 1 to %u are possible", vb_op_names[v->op],
			       bytes, SIM_LEN_MAX);
	if (vb_unlikely(vb_addr_node(v->addr) >= s->base.nodes ||
			vb_addr_offset(v->addr) + bytes > s->base.node_bytes))
		return vb_fail(-VB_EACCESS, "%s of %u bytes at %#" PRIx64 ": outside the segment",
			       vb_op_names[v->op], bytes, v->addr);
	return 0;
}

/* ---- an operation of a verb ---- */

static int fill_data(struct sim_op *op, const struct vb_verb *v)
{
	char *to = v->op == VB_OP_WRITE_NOTIFY ? op->note : op->u.data;

	if (v->len > SIM_INLINE) {
		op->big = malloc(v->len);
		if (op->big == NULL)
			return vb_fail(-ENOMEM, "no memory for %u bytes in flight", v->len);
		to = op->big;
	}
	if (v->op != VB_OP_READ)
		memcpy(to, v->buf, v->len);
	return 0;
}

/* Takes of the verb what its operation looks at, and nothing else: the rest may be uninitialised,
 * and the trace hash covers it. */
static int fill_args(struct sim_op *op, const struct vb_verb *v)
{
	const struct vb_u128 none = {0, 0};
	struct sim_args *t = &op->t;

	t->compare = t->compare_mask = t->swap = t->swap_mask = t->old = none;
	t->peer = VB_PEER_NONE;
	t->addr = v->addr;
	t->len = 0;
	switch (v->op) {
	case VB_OP_FAA64:
		t->compare.lo = v->compare.lo;
		return 0;
	case VB_OP_CAS64:
		t->compare.lo = v->compare.lo;
		t->swap.lo = v->swap.lo;
		return 0;
	case VB_OP_MCAS64:
		t->swap.lo = v->swap.lo;
		t->swap_mask.lo = v->swap_mask.lo;
		/* fall through */
	case VB_OP_MFAA64:
		t->compare.lo = v->compare.lo;
		t->compare_mask.lo = v->compare_mask.lo;
		return 0;
	case VB_OP_MCAS128:
		t->swap = v->swap;
		t->swap_mask = v->swap_mask;
		/* fall through */
	case VB_OP_MFAA128:
		t->compare = v->compare;
		t->compare_mask = v->compare_mask;
		return 0;
	case VB_OP_SEND:
		t->addr = 0;
		break;
	default:
		t->len = v->len;
	}
	if (sim_message(op)) {
		t->peer = v->peer;
		op->u.msg = *v->msg;
		op->u.msg.from = t->self;
	}
	return v->op == VB_OP_SEND ? 0 : fill_data(op, v);
}

int sim_op_make(struct sim_ep *ep, struct vb_batch *batch, struct vb_verb *v, struct sim_op **out)
{
	struct sim *s = ep->sim;
	struct sim_op *op;
	int err = check_verb(s, v);

	if (vb_unlikely(err != 0))
		return err;
	op = sim_op_get(s, ep);
	if (vb_unlikely(op == NULL))
		return -ENOMEM;
	op->t.op = v->op;
	op->t.status = 0;
	op->t.data_hash = 0;
	op->t.self = ep->base.self;
	op->verb_flags = v->flags;
	op->fate = op->piece = op->pieces = 0;
	op->stall_ns = op->pause_ns = op->delay_ns = op->tear_ns = op->around_mask = 0;
	err = fill_args(op, v);
	if (vb_unlikely(err != 0)) {
		sim_op_put(s, op);
		return err;
	}
	op->src = vb_peer_node(ep->base.self);
	op->dst = v->op == VB_OP_SEND ? vb_peer_node(v->peer) : vb_addr_node(v->addr);
	op->flow = &ep->flows[op->dst];
	if (batch != NULL && v->flags & VB_SIGNALLED) {
		op->verb = v;
		op->batch = batch;
		batch->pending++;
	}
	*out = op;
	return 0;
}
