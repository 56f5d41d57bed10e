/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who looks on at the calls of a client:
 *
 *	watch    of the space: every call and outcome, for the auditor
 *	timing   of the client: where its time goes, phase by phase
 *	board    of the client: what it holds and awaits, for other processes (lock/board.h)
 *
 * Each call says once that it begins and once how it ended; all three hear it there, and who is not
 * observed pays one branch for each.  In between a protocol says what it is at: vb_phase and
 * vb_lock_mark_queued (lock.h).
 */
#ifndef VB_LOCK_OBSERVE_H
#define VB_LOCK_OBSERVE_H

#include "lock/lock.h"

/* Times are on the client's clock.  Called on the client's task; must not await. */
struct vb_lock_watch {
	void (*called)(void *ctx, struct vb_lock_client *me, uint64_t lock, enum vb_mode mode);
	/* The claim now stands in the queue (again, after a recovery threw it out). */
	void (*queued)(void *ctx, struct vb_lock_client *me, uint64_t lock, enum vb_mode mode);
	void (*granted)(void *ctx, struct vb_lock_client *me, const struct vb_claim *c);
	void (*not_granted)(void *ctx, struct vb_lock_client *me, uint64_t lock, int err);
	/* Forgotten without a release (vb_lock_abandon). */
	void (*abandoned)(void *ctx, struct vb_lock_client *me, const struct vb_claim *c);
	void (*releasing)(void *ctx, struct vb_lock_client *me, const struct vb_claim *c);
	/* Before and after a conversion; c->mode is the old mode before, and after it unless err is
	 * 0.  To the same mode: a renewal. */
	void (*converting)(void *ctx, struct vb_lock_client *me, const struct vb_claim *c,
			   enum vb_mode to);
	void (*converted)(void *ctx, struct vb_lock_client *me, const struct vb_claim *c, int err);
	void (*released)(void *ctx, struct vb_lock_client *me, uint64_t lock, int err);
	void *ctx;
};

enum vb_call { VB_CALL_ACQ_X, VB_CALL_ACQ_S, VB_CALL_REL, VB_CALL_COUNT };

struct vb_lock_timing {
	uint64_t ns[VB_CALL_COUNT][VB_PHASE_COUNT];
	uint64_t calls[VB_CALL_COUNT];
	/* What the client is in now, and since when, in the scheduler's time base. */
	enum vb_call call;
	enum vb_phase phase;
	uint64_t since_ns;
};

extern const char *const vb_phase_names[VB_PHASE_COUNT];

/* ---- the hook ---- */

enum vb_act {
	/* Try, too. */
	VB_ACT_ACQUIRE,
	VB_ACT_CONVERT,
	VB_ACT_RELEASE,
	/* Begins one of several that end in one call, but not the last of them: to the timing all
	 * are one. */
	VB_ACT_RELEASE_PART,
	/* Has an end only. */
	VB_ACT_ABANDON,
};

static inline bool vb_is_observed(const struct vb_lock_client *me)
{
	/* One branch, not three. */
	return ((uintptr_t)me->space->watch | (uintptr_t)me->timing | (uintptr_t)me->board) != 0;
}

void vb_observers_begin(struct vb_lock_client *me, enum vb_act act, uint64_t lock,
			enum vb_mode mode, const struct vb_claim *c);
void vb_observers_end(struct vb_lock_client *me, enum vb_act act, uint64_t lock,
		      const struct vb_claim *c, int err);

/* mode: what is asked for.  c: NULL for an acquire, which has no claim yet. */
static inline void vb_observe_begin(struct vb_lock_client *me, enum vb_act act, uint64_t lock,
				    enum vb_mode mode, const struct vb_claim *c)
{
	if (vb_unlikely(vb_is_observed(me)))
		vb_observers_begin(me, act, lock, mode, c);
}

/* c: NULL where the claim is free by now: after a release, or an acquire that was not granted. */
static inline void vb_observe_end(struct vb_lock_client *me, enum vb_act act, uint64_t lock,
				  const struct vb_claim *c, int err)
{
	if (vb_unlikely(vb_is_observed(me)))
		vb_observers_end(me, act, lock, c, err);
}

#endif
