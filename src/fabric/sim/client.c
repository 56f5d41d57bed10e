/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients that die, or stand still (until when: fault.c).
 *
 * Who dies is told so where his tasks are safe to end: the task that posts ends inside the post,
 * the others at their next checkpoint, on their own stacks.  Until then their stacks stay, so
 * whatever is still in flight for them lands somewhere.
 */
#define VB_LOG_ROOM "sim"
#include "fabric/sim/inner.h"

static void death_fire(struct vb_timer *t)
{
	struct sim_ep *ep = vb_container_of(t, struct sim_ep, death);

	if (ep->sim->on_death != NULL)
		ep->sim->on_death(&ep->base, ep->sim->on_death_arg);
}

void sim_ep_die(struct sim_ep *ep)
{
	if (ep->dead)
		return;
	ep->dead = true;
	if (ep->around.word != NULL)
		ep->sim->around_until_ns = sim_now(ep->sim);
	ep->inbox_n = 0;
	ep->death.fire = death_fire;
	vb_timer_arm(ep->sim->sched, &ep->death, sim_now(ep->sim));
	/* Whoever waits for a verb or a message wakes up, at his checkpoint. */
	sim_ops_detach(ep->sim, ep);
	if (ep->sim->base.caps.flags & VB_CAP_INLINE)
		sim_ops_drop(ep->sim, ep);
	vb_ep_wake(&ep->base);
}

void sim_checkpoint(struct vb_ep *vep, bool before)
{
	struct sim_ep *ep = sim_ep_of(vep);

	if (vb_unlikely(ep->dead))
		vb_task_die();
	if (!before)
		sim_stand_still(ep);
}
