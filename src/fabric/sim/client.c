/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients that die or stand still.
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
	vb_ep_wake(&ep->base);
}

/* How often who waits for a word looks at it. */
#define LOOK_NS 200

/* Until when it stands still, or looks again. */
static uint64_t stands_until_ns(struct sim_ep *ep)
{
	struct sim_around *a = &ep->around;
	uint64_t now = sim_now(ep->sim);

	if (a->word == NULL)
		return ep->paused_until_ns;
	if (((*a->word ^ a->value) & a->mask) != 0) {
		a->differed = true;
	} else if (a->differed) {
		a->word = NULL;
		ep->paused_until_ns = ep->sim->around_until_ns = now;
	}
	return sim_min(now + LOOK_NS, ep->paused_until_ns);
}

void sim_stand_still(struct sim_ep *ep)
{
	while (vb_unlikely(sim_now(ep->sim) < ep->paused_until_ns)) {
		uint64_t until = stands_until_ns(ep);

		if (until > sim_now(ep->sim))
			(void)vb_task_suspend_uninterruptible(until);
		if (ep->dead)
			vb_task_die();
	}
	ep->around.word = NULL;
}

void sim_checkpoint(struct vb_ep *vep, bool before)
{
	struct sim_ep *ep = sim_ep_of(vep);

	if (vb_unlikely(ep->dead))
		vb_task_die();
	if (!before)
		sim_stand_still(ep);
}
