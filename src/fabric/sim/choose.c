/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where somebody chooses.  Verbs that are on their way stay in the air until they are chosen; then
 * they arrive at once, and all that follows takes less than a step.  Virtual time goes on as ever:
 * a verb whose last moment comes must be chosen, so each run is one that time could have made.
 */
#define VB_LOG_ROOM "sim"
#include <limits.h>

#include "base/log.h"
#include "fabric/sim/inner.h"

/* Must `first`, which was posted before, take effect before `op`?  See the wire, in flight.c. */
static bool goes_before(const struct sim_op *first, const struct sim_op *op)
{
	if (first->ep != op->ep || first->dst != op->dst)
		return false;
	if (sim_answers(op))
		return !sim_answers(first) || sim_atomic(first);
	return !sim_answers(first);
}

static bool may_go(const struct sim_air *air, unsigned i)
{
	for (unsigned k = 0; k < i; k++)
		if (goes_before(air->op[k], air->op[i]))
			return false;
	return true;
}

static void tell(const struct sim_op *op, struct vb_sim_verb *v)
{
	*v = (struct vb_sim_verb){
		.self = op->t.self,
		.number = op->number,
		.node = op->dst,
		.op = (uint8_t)op->t.op,
		.len = op->t.len,
		.addr = op->t.addr,
		.peer = op->t.peer,
		.compare = op->t.compare,
		.compare_mask = op->t.compare_mask,
		.swap = op->t.swap,
	};
	if (sim_atomic(op))
		v->len = op->t.op == VB_OP_MCAS128 || op->t.op == VB_OP_MFAA128 ? 16 : 8;
}

static void land(struct sim *s, unsigned i)
{
	struct sim_air *air = &s->air;
	struct sim_op *op = air->op[i];

	air->n--;
	memmove(&air->op[i], &air->op[i + 1], (air->n - i) * sizeof(air->op[0]));
	sim_arrive(s, op);
}

/* Those that may go now; where one would be too late otherwise, only such. */
static unsigned gather(struct sim *s, unsigned *at, struct vb_sim_verb *v, uint64_t *last_ns)
{
	const struct sim_air *air = &s->air;
	uint64_t slack = (air->n + 1) * air->chooser->step_ns;
	unsigned n = 0;

	*last_ns = VB_FOREVER;
	for (unsigned i = 0; i < air->n; i++)
		*last_ns = sim_min(*last_ns, air->op[i]->deadline_ns - slack);
	for (unsigned i = 0; i < air->n; i++) {
		if (!may_go(air, i) ||
		    (*last_ns <= sim_now(s) && air->op[i]->deadline_ns - slack > sim_now(s)))
			continue;
		tell(air->op[i], &v[n]);
		at[n++] = i;
	}
	return n;
}

static void on_tick(struct vb_timer *timer)
{
	struct sim *s = vb_container_of(timer, struct sim, air.tick);
	const struct vb_sim_chooser *c = s->air.chooser;
	struct vb_sim_verb v[SIM_AIR_MAX];
	unsigned at[SIM_AIR_MAX], n, i;
	uint64_t last, next;

	if (s->air.n == 0)
		return;
	n = gather(s, at, v, &last);
	next = vb_sched_next_timer(s->sched);
	i = c->next(c->ctx, v, n, next < last);
	if (i == UINT_MAX)
		return;
	if (i == n && last > sim_now(s)) {
		vb_timer_arm(s->sched, timer, next < last ? next + c->step_ns : last);
		return;
	}
	land(s, at[i < n ? i : 0]);
	vb_timer_arm(s->sched, timer, sim_now(s) + c->step_ns);
}

void vb_sim_set_chooser(struct vb_fabric *f, const struct vb_sim_chooser *chooser)
{
	struct sim *s;

	while (f->lower != NULL)
		f = f->lower;
	s = vb_container_of(f, struct sim, base);
	vb_timer_disarm(s->sched, &s->air.tick);
	s->air.tick.fire = on_tick;
	s->air.chooser = chooser;
	s->faulty |= chooser != NULL;
	if (chooser != NULL)
		return;
	for (unsigned i = 0; i < s->air.n; i++)
		sim_at(s, s->air.op[i], SIM_ARRIVE, sim_now(s));
	s->air.n = 0;
}
