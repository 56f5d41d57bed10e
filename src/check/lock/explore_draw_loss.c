/* SPDX-License-Identifier: Apache-2.0 */
/* What a seed holds in store for answers and links: see explore.h and explore_draw.c. */
#define VB_LOG_ROOM "check"
#include "check/draw.h"
#include "check/lock/explore_inner.h"

#define US 1000ull

/* Each has a stream of its own, so that the seeds of other locks stay what they were. */
#define LOSS_STREAM   0x6c6f7373
#define LINK_STREAM   0x6c696e6b
#define KIND_STREAM   0x6b696e64
#define REFUSE_STREAM 0x72656675

/* Answers that never come, and such that are given up long before their verb takes effect. */
void explore_draw_losses(const struct vb_lock_ops *ops, struct vb_explore_draw *d)
{
	static const double rare[] = {0.0005, 0.002, 0.01};
	bool is_frail = !(ops->caps & VB_LOCK_SURVIVES);
	struct vb_rng r;

	vb_rng_seed(&r, d->seed, LOSS_STREAM);
	if ((!is_frail && d->orderly) || !vb_rng_chance(&r, 0.4))
		return;
	d->faults.early = vb_draw_one_of(&r, rare, 3);
	if (!is_frail)
		return;
	d->loses = true;
	d->faults.lose = vb_draw_one_of(&r, rare, 3);
	/* Nobody hears of what a place left behind has lost: without them everything can be
	 * judged. */
	if (explore_leaves_places(ops) && vb_rng_chance(&r, 0.5)) {
		d->p_timeout = 0;
		d->cancel_every_ns = 0;
	}
}

/*
 * Answers of one kind of verb alone.  Those of messages, which are sent again under a number: nothing
 * is unknown for it, nothing lost, and all that is judged elsewhere is judged here.  Or those of
 * CASes, which can be looked into as long as no eight of them are lost in a row.
 */
void explore_draw_kinds(const struct vb_lock_ops *ops, struct vb_explore_draw *d)
{
	static const double sends[] = {0.01, 0.05}, cases[] = {0.002, 0.01, 0.05};
	bool tells = (ops->caps & (VB_LOCK_MESSAGES | VB_LOCK_SERVER)) == VB_LOCK_MESSAGES;
	struct vb_rng r;
	double how;

	vb_rng_seed(&r, d->seed, KIND_STREAM);
	how = vb_rng_unit(&r);
	if (ops->caps & VB_LOCK_SURVIVES || ops->entry_bytes == 0)
		return;
	if (tells && how < 0.15) {
		d->loses = false;
		d->faults.lose_ops = 1u << VB_OP_SEND;
		d->faults.lose = vb_draw_one_of(&r, sends, 2);
	} else if (how > 0.85) {
		d->loses = true;
		d->faults.lose_ops = 1u << VB_OP_CAS64;
		d->faults.lose = vb_draw_one_of(&r, cases, 3);
	} else {
		return;
	}
	d->faults.early = vb_rng_chance(&r, 0.5) ? d->faults.lose : 0;
}

/* A client that hears nothing for so long that it gives up asking again, links that are cut, clocks
 * that are as wrong as they may be. */
void explore_draw_links(const struct vb_lock_ops *ops, struct vb_explore_draw *d)
{
	static const double rare[] = {0.0002, 0.0005, 0.002};
	bool is_frail = !(ops->caps & VB_LOCK_SURVIVES);
	struct vb_rng r;

	vb_rng_seed(&r, d->seed, LINK_STREAM);
	d->faults.drift_edge = vb_rng_chance(&r, 0.25);
	if (is_frail ? !d->loses || d->faults.lose_ops != 0 : d->orderly)
		return;
	if (vb_rng_chance(&r, is_frail ? 0.15 : 0.25)) {
		d->faults.deaf = vb_draw_one_of(&r, rare, 3);
		d->faults.deaf_max_ns = is_frail ? 4 * VB_LOCK_ASKS * d->bound_ns : 4 * d->lease_ns;
	}
	if (is_frail && vb_rng_chance(&r, 0.3))
		d->faults.early = 0.05;
	if (is_frail && vb_rng_chance(&r, 0.15)) {
		d->faults.partition = vb_draw_one_of(&r, rare, 3) / 4;
		d->faults.partition_max_ns = vb_draw_between(&r, 10 * US, 4 * d->bound_ns);
	}
}

/*
 * Links that refuse verbs while they are cut, which then are not executed for sure; but what was
 * posted before them may have been.  Of locks that survive nobody little else is wrong then, so that
 * all that is not told as unknown is judged.
 */
void explore_draw_refusals(const struct vb_lock_ops *ops, struct vb_explore_draw *d)
{
	static const double rare[] = {0.0005, 0.002, 0.01}, cuts[] = {0.002, 0.01},
			    refuse[] = {0.5, 1};
	bool is_frail = !(ops->caps & VB_LOCK_SURVIVES);
	struct vb_rng r;

	vb_rng_seed(&r, d->seed, REFUSE_STREAM);
	if (is_frail ? ops->entry_bytes == 0 || d->faults.lose_ops != 0 : d->faults.partition == 0)
		return;
	if (!vb_rng_chance(&r, is_frail ? 0.25 : 0.5))
		return;
	d->faults.refuse = vb_draw_one_of(&r, refuse, 2);
	if (!is_frail)
		return;
	d->loses = true;
	d->faults.early = d->faults.deaf = 0;
	d->faults.lose = vb_draw_one_of(&r, rare, 3);
	d->faults.partition = vb_draw_one_of(&r, cuts, 2);
	/* Shorter than it takes to give up asking again. */
	d->faults.partition_max_ns = vb_draw_between(&r, d->bound_ns, 6 * d->bound_ns);
	if (explore_leaves_places(ops)) {
		d->p_timeout = 0;
		d->cancel_every_ns = 0;
	}
}
