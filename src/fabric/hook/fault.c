/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fails verbs on purpose.  A signalled verb fails before it runs (-VB_EPEERGONE, nothing happened), and with it
 * what the batch has behind it for the same node, as the interface has it; or it fails after (-VB_EUNKNOWN, it
 * happened); an unsignalled SEND is dropped.  Needs a fabric whose verbs complete at once, because it takes
 * batches apart; the simulator has faults of its own.
 */
#define VB_LOG_ROOM "hook"
#include "fabric/hook/common.h"

#include "base/log.h"

struct fault_fabric {
	struct vb_fabric f;
	struct vb_fault_params p;
};

struct fault_ep {
	struct vb_ep ep;
	struct vb_rng rng;
};

enum fate { FATE_RUN, FATE_BEFORE, FATE_AFTER, FATE_DROP };

static enum fate draw(struct fault_ep *e, const struct vb_verb *v)
{
	const struct vb_fault_params *p = &((struct fault_fabric *)e->ep.fabric)->p;

	if (v->op == VB_OP_SEND && v->flags & VB_DATAGRAM && p->drop_datagram > 0 &&
	    vb_rng_chance(&e->rng, p->drop_datagram))
		return FATE_DROP;
	if (!(v->flags & VB_SIGNALLED))
		return v->op == VB_OP_SEND && vb_rng_chance(&e->rng, p->drop_send) ? FATE_DROP
										   : FATE_RUN;
	if (vb_rng_chance(&e->rng, p->fail_before))
		return FATE_BEFORE;
	return vb_rng_chance(&e->rng, p->fail_after) ? FATE_AFTER : FATE_RUN;
}

/* The nodes that have refused something of the batch. */
struct refusals {
	uint16_t node[VB_BATCH_MAX];
	unsigned n;
};

static bool has_refused(const struct refusals *r, uint16_t node)
{
	for (unsigned i = 0; i < r->n; i++)
		if (r->node[i] == node)
			return true;
	return false;
}

/* A datagram is beside them all. */
static enum fate fate_of(struct fault_ep *e, const struct vb_verb *v, struct refusals *r)
{
	const uint16_t node = vb_hook_node_of(v);
	enum fate fate = draw(e, v);

	if (fate == FATE_DROP)
		return fate;
	if (has_refused(r, node))
		return FATE_BEFORE;
	if (fate == FATE_BEFORE)
		r->node[r->n++] = node;
	return fate;
}

/* Verbs that are struck part the batch; what is between them is posted in order. */
static int fault_post(struct vb_ep *ep, struct vb_batch *batch)
{
	struct vb_ep *lower = ep->lower;
	struct refusals r = {.n = 0};

	for (unsigned i = 0; i < batch->n; i++) {
		struct vb_batch one = {.verbs = &batch->verbs[i], .n = 1};
		enum fate fate = fate_of((struct fault_ep *)ep, one.verbs, &r);
		int rc;

		one.verbs->status = fate == FATE_BEFORE ? -VB_EPEERGONE : 0;
		if (fate == FATE_BEFORE || fate == FATE_DROP)
			continue;
		rc = lower->ops->post(lower, &one);
		vb_assert(rc <= 0); /* the lower fabric completes inline */
		if (rc < 0)
			one.verbs->status = rc;
		if (fate == FATE_AFTER && one.verbs->status == 0)
			one.verbs->status = -VB_EUNKNOWN;
	}
	return 0;
}

static int fault_ep_open(struct vb_fabric *f, uint16_t node, struct vb_ep **out)
{
	int err = vb_hook_ep_make(f, node, sizeof(struct fault_ep), out);

	if (err == 0)
		vb_rng_seed(&((struct fault_ep *)*out)->rng, ((struct fault_fabric *)f)->p.seed,
			    (*out)->self);
	return err;
}

static const struct vb_fabric_ops fault_ops = {
	.name = "fault",
	.summary = "fails verbs with given chances",
	.close = vb_hook_close,
	.after_fork = vb_hook_after_fork,
	.ep_open = fault_ep_open,
	.ep_close = vb_hook_ep_close,
	.post = fault_post,
	.recv = vb_hook_recv,
	.peer_alive = vb_hook_peer_alive,
	.region = vb_hook_region,
	.local = vb_hook_local,
	.checkpoint = vb_hook_checkpoint,
	.serve = vb_hook_serve,
};

int vb_hook_fault(struct vb_fabric *lower, const struct vb_fault_params *p, struct vb_fabric **out)
{
	int err = vb_hook_needs_inline(lower, fault_ops.name);

	if (err == 0)
		err = vb_hook_make(lower, &fault_ops, sizeof(struct fault_fabric), out);
	if (err != 0)
		return err;
	((struct fault_fabric *)*out)->p = *p;
	if (p->drop_datagram > 0)
		(*out)->caps.flags |= VB_CAP_DATAGRAM;
	return 0;
}
