/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verbs that are complete when they are posted: those to the client's own node, as of a process that has its memory
 * (VB_CAP_NEAR_INLINE), or all, as on shared memory (VB_CAP_INLINE).  Nothing of the wire befalls them, no answer is
 * lost, none is late.  Whoever posts still dies and stands still around a batch; and behind each verb others may have
 * a turn, as when another thread takes the core: then its endpoint's other tasks run, too, which no thread's would.
 */
#define VB_LOG_ROOM "sim"
#include "fabric/sim/inner.h"

#define STREAM_NEAR 0x51f0000000000003ull

void vb_sim_complete_near(struct vb_fabric *f, const struct vb_sim_near *near)
{
	struct sim *s;

	while (f->lower != NULL)
		f = f->lower;
	s = vb_container_of(f, struct sim, base);
	s->near = *near;
	s->is_near = true;
	vb_rng_seed(&s->near_rng, f->seed, STREAM_NEAR);
	f->caps.flags |= near->all ? VB_CAP_INLINE : VB_CAP_NEAR_INLINE;
}

/* What is under way to the own node, of a batch with others, is not overtaken. */
bool sim_is_near(const struct sim_ep *ep, const struct vb_batch *batch)
{
	const uint16_t own = vb_peer_node(ep->base.self);

	if (ep->sim->near.all)
		return true;
	if (ep->flows[own].in_flight > 0 || ep->flows[own].held != NULL)
		return false;
	for (unsigned i = 0; i < batch->n; i++) {
		const struct vb_verb *v = &batch->verbs[i];

		if (v->op == VB_OP_SEND || v->op == VB_OP_WRITE_NOTIFY ||
		    vb_addr_node(v->addr) != own)
			return false;
	}
	return true;
}

static void give_a_turn(struct sim_ep *ep)
{
	struct sim *s = ep->sim;
	uint64_t ns;

	if (s->near.turn == 0 || !vb_rng_chance(&s->near_rng, s->near.turn))
		return;
	ns = 1 + vb_rng_below(&s->near_rng, s->near.turn_max_ns);
	(void)vb_task_suspend_uninterruptible(sim_now(s) + ns);
	if (vb_unlikely(ep->dead))
		vb_task_die();
}

/* 0, or why it does not happen. */
static int refusal(struct sim_ep *ep, const struct sim_op *op, const struct vb_verb *v)
{
	struct sim *s = ep->sim;

	if (v->not_after_ns != 0 && vb_ep_local(&ep->base, sim_now(s)) > v->not_after_ns)
		return -VB_ETOOLATE;
	if ((s->any_lost && sim_fault_refuses(s, op->src, op->dst)) ||
	    (ep->disowned && ep->disowner == op->dst))
		return -VB_EPEERGONE;
	if (sim_message(op) && s->near.full > 0 && vb_rng_chance(&s->near_rng, s->near.full))
		return -EAGAIN;
	return 0;
}

int sim_post_near(struct sim_ep *ep, struct vb_batch *batch, struct sim_luck *luck)
{
	struct sim *s = ep->sim;

	sim_stand_still(ep);
	if (vb_unlikely(luck->dies_before)) {
		sim_ep_die(ep);
		vb_task_die();
	}
	for (unsigned i = 0; i < batch->n; i++) {
		struct vb_verb *v = &batch->verbs[i];
		struct sim_op *op;

		v->status = sim_op_make(ep, NULL, v, &op);
		if (v->status != 0)
			continue;
		op->around_mask = luck->around_mask;
		v->status = refusal(ep, op, v);
		if (v->status == 0)
			sim_land_now(s, op, v);
		else
			sim_op_put(s, op);
		if (i + 1 < batch->n)
			give_a_turn(ep);
	}
	if (vb_unlikely(luck->dies_after)) {
		sim_ep_die(ep);
		vb_task_die();
	}
	ep->paused_until_ns = sim_max(ep->paused_until_ns, sim_now(s) + luck->after_ns);
	sim_stand_still(ep);
	give_a_turn(ep);
	batch->pending = 0;
	return 0;
}
