/* SPDX-License-Identifier: Apache-2.0 */
/*
 * No-Wait (RCC section 4.2, RCBench algorithm 1): two-phase locking (cc/two_phase.h has the
 * word and the verbs) in which nobody waits: a transaction that finds a record locked aborts, so
 * there are no deadlocks.
 *
 *	a record that is read   CAS + READ, later CAS          written   CAS + READ, later WRITE + CAS
 *
 * Departs from RCBench (why: doc/cc/no-wait.md):
 *   - the unlock is a verb of its own behind the WRITE, and not a field of it;
 *   - and as cc/two_phase.h says of all three.
 */
#include "cc/two_phase.h"

uint8_t no_wait_judge(struct vb_stage *s, struct vb_item *it, uint64_t holder)
{
	(void)s;
	(void)it;
	(void)holder;
	return VB_TXN_LOCKED;
}

static void lock_x(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	two_phase_lock_x(s, items, n, no_wait_judge);
}

static void lock_sx(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	two_phase_lock_sx(s, items, n, no_wait_judge);
}

static const struct vb_stage_ops stages_x[] = TWO_PHASE_STAGE_TABLE(lock_x);
static const struct vb_stage_ops stages_sx[] = TWO_PHASE_STAGE_TABLE(lock_sx);

const struct vb_cc_ops vb_cc_no_wait = {
	.name = "no-wait",
	.summary = "two-phase locking; a conflict aborts whoever comes second",
	.source = "RCC section 4.2, RCBench algorithm 1",
	.caps = VB_CC_STRICT | VB_CC_READ_LOCKS | VB_CC_SHORT_READS | VB_CC_NEVER_WAITS,
	TWO_PHASE_OPS(stages_x),
};

const struct vb_cc_ops vb_cc_no_wait_sx = {
	.name = "no-wait-sx",
	.summary = "no-wait with shared and exclusive locks",
	.source = "RCBench algorithm 1",
	.caps = VB_CC_STRICT | VB_CC_READ_LOCKS | VB_CC_SHORT_READS | VB_CC_SHARED |
		VB_CC_NEVER_WAITS,
	TWO_PHASE_SX_WORDS,
	TWO_PHASE_OPS(stages_sx),
};
