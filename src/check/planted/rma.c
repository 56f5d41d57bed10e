/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planted:reset-clears-bar.  rma-rw whose reader begins the next turn without a compare: it has
 * seen no writer, reads the counter, and subtracts what it has read.  A writer that has barred the
 * counter in between finds its bar gone, or readers inside that nobody counts.
 */
#include "check/planted/planted.h"

#include "lock/rma_rw/rma_rw.h"

static int subtract(struct vb_lock_client *me, struct vb_claim *c, vb_addr counter, uint64_t seen)
{
	uint64_t now, old;
	int err = vb_read64(me->ep, counter, &now);

	(void)seen;
	/* What it subtracts is as old as another look at the lock. */
	if (err == 0)
		err = vb_read64(me->ep, c->entry, &old);
	return err ? err : vb_faa64(me->ep, counter, rw_next_turn(now) - now, &old);
}

static int clears_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	return rw_acquire_by(me, c, until_ns, subtract);
}

static int clears_resume(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	return rw_resume_by(me, c, until_ns, subtract);
}

const struct vb_lock_ops vb_planted_reset_clears_bar = {
	.name = "planted:reset-clears-bar",
	.summary = "a reader resets its counter without looking whether a writer has barred it",
	.source = "planted bug",
	.planted = "mode-conflict",
	RW_LOCK,
	.acquire = clears_acquire,
	.resume = clears_resume,
};
