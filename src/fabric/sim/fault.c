/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The adversary: everything that hardware and operating systems are allowed to do to a client,
 * drawn from a stream of its own, so that what the protocols draw does not move the faults.
 */
#define VB_LOG_ROOM "sim"
#include "fabric/sim/inner.h"

static bool strikes(struct sim *s, double chance)
{
	return chance > 0 && vb_rng_chance(&s->fault_rng, chance);
}

static uint64_t up_to(struct sim *s, uint64_t max)
{
	return max > 0 ? 1 + vb_rng_below(&s->fault_rng, max) : 0;
}

static bool coin(struct sim *s)
{
	return (vb_rng_next(&s->fault_rng) >> 63) != 0;
}

/* ---- partitions ---- */

static void cut_add(struct sim *s, struct sim_cut cut)
{
	uint64_t now = sim_now(s);
	unsigned n = 0;

	for (unsigned i = 0; i < s->n_cuts; i++) {
		if (s->cuts[i].until_ns > now)
			s->cuts[n++] = s->cuts[i];
	}
	s->n_cuts = n;
	if (cut.a != cut.b && n < SIM_CUTS_MAX)
		s->cuts[s->n_cuts++] = cut;
}

/* Those of the batch that meets it, or their answers, may still get through a cut that refuses what
 * comes later: else no answer would be lost before. */
static void cut_off(struct sim *s, uint16_t a, uint16_t b)
{
	const struct vb_sim_faults *f = &s->faults;
	uint64_t now = sim_now(s), until = now + up_to(s, f->partition_max_ns);
	struct sim_cut cut = {.a = a, .b = b, .until_ns = until};

	if (strikes(s, f->refuse)) {
		cut.refuses = true;
		cut.from_ns = now + up_to(s, 3 * s->p.one_way_ns);
	}
	cut_add(s, cut);
}

static bool is_between(const struct sim_cut *c, uint16_t a, uint16_t b)
{
	return (c->a == a && c->b == b) || (c->a == b && c->b == a);
}

bool sim_fault_refuses(const struct sim *s, uint16_t a, uint16_t b)
{
	uint64_t now = sim_now(s);

	if (s->lost[b] == SIM_LOST || (s->lost[b] == SIM_DISOWNED && a != b))
		return true;
	for (unsigned i = 0; i < s->n_cuts; i++) {
		const struct sim_cut *c = &s->cuts[i];

		if (c->refuses && is_between(c, a, b) && c->from_ns <= now && now < c->until_ns)
			return true;
	}
	return false;
}

/* What meets a cut is sent again until it gets through. */
uint64_t sim_fault_wire(struct sim *s, uint16_t a, uint16_t b, uint64_t at)
{
	for (unsigned i = 0; i < s->n_cuts; i++) {
		const struct sim_cut *c = &s->cuts[i];

		if (is_between(c, a, b) && at >= c->from_ns)
			at = sim_max(at, c->until_ns);
	}
	return at + s->p.one_way_ns;
}

/* ---- clients ---- */

/* Before the doorbell, or after the completion. */
static void pause_it(struct sim_ep *ep, struct sim_luck *luck, uint64_t min_ns, uint64_t max_ns)
{
	struct sim *s = ep->sim;
	bool before = coin(s);
	uint64_t ns = min_ns + up_to(s, max_ns - min_ns);

	if (before)
		ep->paused_until_ns = sim_max(ep->paused_until_ns, sim_now(s) + ns);
	else
		luck->after_ns = ns;
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

void sim_fault_around(struct sim_ep *ep, const uint64_t *word, uint64_t value, uint64_t mask)
{
	struct sim *s = ep->sim;

	if (s->around_until_ns > sim_now(s))
		return;
	ep->around = (struct sim_around){.word = word, .value = value, .mask = mask};
	ep->paused_until_ns = s->around_until_ns = sim_now(s) + s->faults.around_max_ns;
}

/* A CAS waits before the doorbell, for what it compares with.  What else meets a word waits after
 * the completion until it looks as it did: all of it, or one half. */
static void come_round(struct sim_ep *ep, const struct vb_verb *v, struct sim_luck *luck)
{
	static const uint64_t masks[] = {UINT64_MAX, 0xffffffffull << 32, UINT32_MAX};
	struct sim *s = ep->sim;
	bool masked = v->op == VB_OP_MCAS64 || v->op == VB_OP_MCAS128;
	const uint64_t *memory = v->op != VB_OP_SEND ? vb_local(&s->base, v->addr, 16) : NULL;

	if (memory == NULL)
		return;
	if (v->op == VB_OP_READ && vb_rng_chance(&s->fault_rng, 0.75))
		return;
	if (v->op != VB_OP_CAS64 && !masked) {
		luck->around_mask = masks[vb_rng_below(&s->fault_rng, 3)];
		return;
	}
	/* Of a wide word what is compared, its upper half if the lower is not. */
	if (v->op == VB_OP_MCAS128 && v->compare_mask.lo == 0)
		sim_fault_around(ep, memory + 1, v->compare.hi, v->compare_mask.hi);
	else
		sim_fault_around(ep, memory, v->compare.lo,
				 masked ? v->compare_mask.lo : UINT64_MAX);
	sim_stand_still(ep);
}

/* Before the doorbell, or right after it. */
static void die_of_it(struct sim *s, struct sim_luck *luck)
{
	if (coin(s))
		luck->dies_before = true;
	else
		luck->dies_after = true;
}

/* A server is more interesting in the midst of its work, a client before it tells others of what it did. */
static bool tells(const struct vb_batch *batch)
{
	return batch->verbs[batch->n - 1].op == VB_OP_SEND;
}

/* Not the seed's, but what somebody chooses. */
static void chosen(struct sim_ep *ep, struct sim_luck *luck)
{
	struct sim *s = ep->sim;
	const struct vb_sim_chooser *c = s->air.chooser;

	if (!ep->mortal)
		return;
	switch (c->strike(c->ctx, &ep->base)) {
	case VB_SIM_DIES_BEFORE:
		luck->dies_before = true;
		break;
	case VB_SIM_DIES_AFTER:
		luck->dies_after = true;
		break;
	case VB_SIM_PAUSES_BEFORE:
		ep->paused_until_ns = sim_max(ep->paused_until_ns, sim_now(s) + c->pause_ns);
		break;
	case VB_SIM_PAUSES_AFTER:
		luck->after_ns = c->pause_ns;
		break;
	case VB_SIM_LOSES_ANSWER:
		luck->fate = SIM_LOSE;
		break;
	case VB_SIM_LOSES_VERB:
		luck->fate = SIM_LOSE | SIM_NEVER;
		break;
	default:
		break;
	}
}

void sim_fault_batch(struct sim_ep *ep, struct vb_batch *batch, struct sim_luck *luck)
{
	struct sim *s = ep->sim;
	const struct vb_sim_faults *f = &s->faults;
	const struct vb_verb *v = &batch->verbs[0];
	uint64_t now = sim_now(s);

	if (s->air.chooser != NULL) {
		chosen(ep, luck);
		return;
	}
	if (strikes(s, f->partition)) {
		uint16_t to = v->op == VB_OP_SEND ? vb_peer_node(v->peer) : vb_addr_node(v->addr);

		cut_off(s, vb_peer_node(ep->base.self), to);
	}
	if (strikes(s, f->nic_stall))
		luck->stall_ns = up_to(s, f->nic_stall_max_ns);
	if (ep->stalls && strikes(s, tells(batch) ? f->stall / 2 : f->stall))
		pause_it(ep, luck, f->stall_min_ns, f->stall_max_ns);
	if (ep->stalls && strikes(s, f->server_die))
		die_of_it(s, luck);
	if (!ep->mortal)
		return;
	if (strikes(s, f->pause) || (tells(batch) && strikes(s, f->pause_told)))
		pause_it(ep, luck, f->pause_min_ns, f->pause_max_ns);
	if (s->around_until_ns <= now && strikes(s, f->around))
		come_round(ep, v, luck);
	if (strikes(s, f->deaf))
		ep->deaf_until_ns = now + up_to(s, f->deaf_max_ns);
	if (strikes(s, f->die))
		die_of_it(s, luck);
}

/* ---- verbs ---- */

/* What is whole. */
static uint32_t grain(const struct sim *s)
{
	return s->faults.tear_words && !(s->base.caps.flags & VB_CAP_MASKED128) ? 8 : 16;
}

/* Chooses where an access falls apart: at 1 to SIM_PIECES - 1 of the boundaries inside it. */
static void tear(struct sim *s, struct sim_op *op)
{
	uint32_t each = grain(s), first = each - (uint32_t)(op->t.addr & (each - 1));
	uint32_t inside = op->t.len > first ? (op->t.len - first - 1) / each + 1 : 0, at = 0;
	uint64_t span = sim_min(sim_max(s->faults.delay_max_ns, 1000), s->p.verb_bound_ns / 8);
	unsigned pieces;

	if (inside == 0)
		return;
	pieces = 2 + (unsigned)vb_rng_below(&s->fault_rng, sim_min(inside, SIM_PIECES - 1));
	op->cut[0] = 0;
	for (unsigned i = 1; i < pieces; i++) {
		uint32_t room = inside - at - (pieces - 1 - i);

		at += 1 + (uint32_t)vb_rng_below(&s->fault_rng, room);
		op->cut[i] = first + each * (at - 1);
	}
	op->cut[pieces] = op->t.len;
	op->pieces = (uint8_t)pieces;
	op->piece_ns = sim_max(1, up_to(s, span) / (pieces - 1));
	op->tear_ns = op->piece_ns * (pieces - 1);
	if (coin(s))
		op->fate |= SIM_DOWNWARDS;
}

void sim_fault_verb(struct sim *s, struct sim_op *op, const struct sim_op *early)
{
	const struct vb_sim_faults *f = &s->faults;
	bool may = f->lose_ops == 0 || (f->lose_ops >> op->t.op & 1);

	if (strikes(s, f->delay))
		op->delay_ns = up_to(s, sim_min(f->delay_max_ns, s->p.verb_bound_ns / 4 * 3));
	if (op->t.len > grain(s) && strikes(s, f->tear))
		tear(s, op);
	if ((may && strikes(s, f->lose)) || (f->deaf > 0 && sim_now(s) < op->ep->deaf_until_ns)) {
		op->fate |= SIM_LOSE;
		if (coin(s))
			op->fate |= SIM_NEVER;
	} else if (may && op->batch != NULL && strikes(s, f->early)) {
		op->fate |= SIM_EARLY;
		op->delay_ns = up_to(s, s->p.verb_bound_ns / 4 * 3);
	}
	if (vb_unlikely(early != NULL && early->flow == op->flow)) {
		op->fate |= SIM_EARLY | SIM_BEHIND;
		op->delay_ns = early->delay_ns;
	}
}
