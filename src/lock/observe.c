/* SPDX-License-Identifier: Apache-2.0 */
/* What each observer is told, and in which order. */
#include "lock/observe.h"

#include "lock/board.h"

const char *const vb_phase_names[VB_PHASE_COUNT] = {"IA", "RT", "NP", "WP", "WR", "WW", "NS"};

/* ---- timing ---- */

static void timing_begin(struct vb_lock_client *me, enum vb_call call)
{
	me->timing->call = call;
	me->timing->phase = VB_PHASE_IA;
	me->timing->since_ns = vb_sched_now_early(me->ep->sched);
	me->timing->calls[call]++;
}

void vb_phase_switch(struct vb_lock_client *me, enum vb_phase phase)
{
	struct vb_lock_timing *t = me->timing;
	uint64_t now = vb_sched_now_early(me->ep->sched);

	t->ns[t->call][t->phase] += now - t->since_ns;
	t->since_ns = now;
	t->phase = phase;
}

/* ---- the hook ---- */

void vb_observers_queued(struct vb_lock_client *me, const struct vb_claim *c)
{
	const struct vb_lock_watch *w = me->space->watch;

	w->queued(w->ctx, me, c->lock, c->mode);
}

static void watch_begin(const struct vb_lock_watch *w, struct vb_lock_client *me, enum vb_act act,
			uint64_t lock, enum vb_mode mode, const struct vb_claim *c)
{
	if (act == VB_ACT_ACQUIRE)
		w->called(w->ctx, me, lock, mode);
	else if (act == VB_ACT_CONVERT)
		w->converting(w->ctx, me, c, mode);
	else
		w->releasing(w->ctx, me, c);
}

static void watch_end(const struct vb_lock_watch *w, struct vb_lock_client *me, enum vb_act act,
		      uint64_t lock, const struct vb_claim *c, int err)
{
	if (act == VB_ACT_CONVERT)
		w->converted(w->ctx, me, c, err);
	else if (act == VB_ACT_RELEASE)
		w->released(w->ctx, me, lock, err);
	else if (act == VB_ACT_ABANDON)
		w->abandoned(w->ctx, me, c);
	else if (err == 0)
		w->granted(w->ctx, me, c);
	else
		w->not_granted(w->ctx, me, lock, err);
}

/* Watch, timing, board: what the first spends is not the protocol's time. */
void vb_observers_begin(struct vb_lock_client *me, enum vb_act act, uint64_t lock,
			enum vb_mode mode, const struct vb_claim *c)
{
	if (me->space->watch != NULL)
		watch_begin(me->space->watch, me, act, lock, mode, c);
	if (me->timing != NULL && act == VB_ACT_ACQUIRE)
		timing_begin(me, mode == VB_SHARED ? VB_CALL_ACQ_S : VB_CALL_ACQ_X);
	if (me->timing != NULL && act == VB_ACT_RELEASE)
		timing_begin(me, VB_CALL_REL);
	if (me->board != NULL && (act == VB_ACT_ACQUIRE || act == VB_ACT_CONVERT))
		vb_board_waits(me, lock, mode);
}

void vb_observers_end(struct vb_lock_client *me, enum vb_act act, uint64_t lock,
		      const struct vb_claim *c, int err)
{
	if (me->board != NULL && (act == VB_ACT_ACQUIRE || act == VB_ACT_CONVERT))
		vb_board_ends(me, err == 0 ? c : NULL);
	else if (me->board != NULL)
		vb_board_gives_up(me, lock);
	if (me->space->watch != NULL)
		watch_end(me->space->watch, me, act, lock, c, err);
}
