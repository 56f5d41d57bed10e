/* SPDX-License-Identifier: Apache-2.0 */
/* From the client to the wire: the doorbell. */
#include "fabric/sim/inner.h"

/* The client's CPU builds the request when it has done what it does, and rings the bell. */
static uint64_t ring(struct sim_ep *ep, uint64_t now)
{
	uint64_t at = sim_max(sim_max(now, ep->cpu_free_ns[ep->cpu]), ep->paused_until_ns);

	at = sim_max(at + ep->sim->p.post_ns, ep->last_doorbell_ns);
	ep->cpu_free_ns[ep->cpu] = ep->last_doorbell_ns = at;
	return at;
}

/* It is not executed, and its client learns so at once. */
static void refuse(struct sim *s, struct sim_op *op, int status, uint64_t bell)
{
	op->flow = NULL;
	op->t.status = status;
	sim_at(s, op, SIM_COMPLETE, bell);
}

static void launch(struct sim *s, struct sim_op *op, const struct vb_verb *v, uint64_t bell,
		   const struct sim_op **early)
{
	uint64_t now = sim_now(s);

	op->deadline_ns = bell + s->p.verb_bound_ns;
	if (vb_unlikely(v->not_after_ns != 0) &&
	    vb_ep_local(&op->ep->base, bell) > v->not_after_ns) {
		refuse(s, op, -VB_ETOOLATE, bell);
		return;
	}
	if (vb_unlikely(s->faulty)) {
		if (sim_fault_refuses(s, op->src, op->dst) ||
		    (op->ep->disowned && op->ep->disowner == op->dst)) {
			refuse(s, op, -VB_EPEERGONE, bell);
			return;
		}
		sim_fault_verb(s, op, *early);
		if (op->fate & SIM_EARLY)
			*early = op;
	}
	if (bell == now + s->p.post_ns)
		sim_doorbell(s, op, bell);
	else
		sim_at(s, op, SIM_DOORBELL, bell);
}

/* What a client waits for besides: messages of which it did not ask to be told. */
struct told {
	struct vb_batch batch;
	struct vb_verb verb; /* has what comes of them, which nobody looks at */
};

static void tell_too(struct sim_op *op, struct told *told)
{
	if (op->batch != NULL || !sim_message(op) || !sim_between_clients(op->ep, op->t.peer))
		return;
	op->verb = &told->verb;
	op->batch = &told->batch;
	told->batch.pending++;
}

static void wait_for(struct sim_ep *ep, struct told *told)
{
	told->batch.waiter = vb_task_self();
	while (told->batch.pending > 0)
		(void)vb_task_suspend_uninterruptible(VB_FOREVER);
	if (vb_unlikely(ep->dead))
		vb_task_die();
}

int sim_post(struct vb_ep *vep, struct vb_batch *batch)
{
	struct sim_ep *ep = sim_ep_of(vep);
	struct sim *s = ep->sim;
	const struct sim_op *early = NULL;
	struct sim_luck luck = {0};
	bool posted = false;
	struct told told;
	uint64_t bell;

	if (vb_unlikely(ep->dead))
		vb_task_die();
	if (vb_unlikely(s->faulty))
		sim_fault_batch(ep, batch, &luck);
	if (vb_unlikely(s->is_near) && sim_is_near(ep, batch))
		return sim_post_near(ep, batch, &luck);
	/* Who stands still before the doorbell dies behind it when it has rung, and not before. */
	if (vb_unlikely(luck.dies_after))
		sim_stand_still(ep);
	if (vb_unlikely(luck.dies_before)) {
		sim_ep_die(ep);
		vb_task_die();
	}
	bell = ring(ep, sim_now(s));
	batch->pending = told.batch.pending = 0;
	for (unsigned i = 0; i < batch->n; i++) {
		struct vb_verb *v = &batch->verbs[i];
		struct sim_op *op;

		v->status = sim_op_make(ep, batch, v, &op);
		if (vb_unlikely(v->status != 0))
			continue;
		if (vb_unlikely(s->p.send_waits))
			tell_too(op, &told);
		if (vb_unlikely(luck.dies_after)) {
			op->verb = NULL;
			op->batch = NULL;
		}
		op->stall_ns = luck.stall_ns;
		op->pause_ns = luck.after_ns;
		op->around_mask = luck.around_mask;
		op->fate = luck.fate;
		luck.stall_ns = 0;
		launch(s, op, v, bell, &early);
		posted = true;
	}
	if (vb_unlikely(luck.dies_after)) {
		sim_ep_die(ep);
		vb_task_die();
	}
	if (vb_unlikely(told.batch.pending > 0))
		wait_for(ep, &told);
	return posted ? 1 : 0;
}
