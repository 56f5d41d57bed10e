/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wound-Wait (RCBench algorithm 2): two-phase locking (cc/two_phase.h) in which an older
 * transaction *wounds* the younger one that holds what it wants, and then waits; a younger one
 * waits.  A wounded transaction aborts when it notices: whenever it waits itself, and at its commit
 * point at the latest.
 *
 *	status word   63                             18 17               2 1     0
 *	             +-------------------------------+-------------------+-------+
 *	             | timestamp of the transaction: clock, place        | state |
 *	             +-------------------------------+-------------------+-------+
 *
 *	wound    CAS (ts, running) -> (ts, aborted)       commit   CAS (ts, running) -> (ts, committed)
 *
 * One of the two succeeds.  The word names the transaction, so a wound that comes late misses the
 * next one of the same place.
 *
 * Departs from RCBench (why, with the interleavings: doc/cc/wound-wait.md):
 *   - a transaction that waits looks at its own status each time (wound-wait-as-published does
 *     not);
 *   - the status word names the transaction;
 *   - and as cc/two_phase.h says of all three.
 */
#include "base/sometimes.h"
#include "cc/two_phase.h"

uint8_t wound_wait_judge(struct vb_stage *s, struct vb_item *it, uint64_t holder)
{
	/* Each time that we look: it may have been tried again, under the same name, since we
	 * wounded it.  `lease` takes an answer that nobody needs. */
	bool gone = s->ts < holder && vb_stage_place_gone(s, vb_ts_place(holder));

	VB_SOMETIMES_IF(gone, 500, "wound-wait wound-wait-sx: a younger one's place is gone");
	if (s->ts < holder && !gone)
		vb_acc_cas(s->acc, VB_AMOD_TM, vb_stage_status_addr(s, vb_ts_place(holder)),
			   holder | VB_TS_RUNNING, holder | VB_TS_ABORTED, &it->lease);
	return VB_ITEM_WAIT;
}

static void lock_x(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	two_phase_lock_x(s, items, n, wound_wait_judge);
}

static void lock_sx(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	two_phase_lock_sx(s, items, n, wound_wait_judge);
}

static const struct vb_stage_ops stages_x[] = TWO_PHASE_STAGE_TABLE(lock_x);
static const struct vb_stage_ops stages_sx[] = TWO_PHASE_STAGE_TABLE(lock_sx);

const struct vb_cc_ops vb_cc_wound_wait = {
	.name = "wound-wait",
	.summary = "two-phase locking; the older wounds the younger and waits",
	.source = "RCBench algorithm 2",
	.caps = VB_CC_STRICT | VB_CC_READ_LOCKS | VB_CC_SHORT_READS | VB_CC_AGE | VB_CC_STATUS,
	TWO_PHASE_OPS(stages_x),
};

const struct vb_cc_ops vb_cc_wound_wait_sx = {
	.name = "wound-wait-sx",
	.summary = "wound-wait with shared and exclusive locks",
	.source = "RCBench algorithm 2",
	.caps = VB_CC_STRICT | VB_CC_READ_LOCKS | VB_CC_SHORT_READS | VB_CC_AGE | VB_CC_STATUS |
		VB_CC_SHARED,
	TWO_PHASE_SX_WORDS,
	TWO_PHASE_OPS(stages_sx),
};

const struct vb_cc_ops vb_cc_wound_wait_as_published = {
	.name = "wound-wait-as-published",
	.summary = "wound-wait in which those who wait do not look at their own status",
	.source = "RCBench algorithm 2, to the letter",
	.caps = VB_CC_STRICT | VB_CC_READ_LOCKS | VB_CC_SHORT_READS | VB_CC_AGE | VB_CC_STATUS |
		VB_CC_BLIND_WAIT,
	.planted = "stuck",
	TWO_PHASE_OPS(stages_x),
};
