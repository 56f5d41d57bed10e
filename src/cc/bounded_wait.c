/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounded-Wait (Barthels et al., PVLDB 2019, section 3.3): two-phase locking (cc/two_phase.h has the word
 * and the verbs) in which whoever finds a record locked waits for it, whoever has it, but for a bounded time.
 * Two that wait for each other are a deadlock until one of them has waited for as long as that; it aborts,
 * and the other goes on.
 *
 *	A has X, B has Y     A waits for Y | B waits for X | A's bound passes: A aborts, B has X
 *
 * The bound of each wait is drawn anew, from half of the database's wait_ns to all of it: of two that have
 * begun to wait at the same moment one gives up first, and not both again and again.
 *
 * Departs from the paper (why: doc/cc/bounded-wait.md):
 *   - there is no queue, so who waits asks again;
 *   - the bound is drawn;
 *   - and as cc/two_phase.h says of all.
 */
#include "cc/two_phase.h"

uint8_t bounded_wait_judge(struct vb_stage *s, struct vb_item *it, uint64_t holder)
{
	(void)it;
	(void)holder;
	return s->impatient ? VB_TXN_TIMEOUT : VB_ITEM_WAIT;
}

static void lock_x(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	two_phase_lock_x(s, items, n, bounded_wait_judge);
}

static void lock_sx(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	two_phase_lock_sx(s, items, n, bounded_wait_judge);
}

static const struct vb_stage_ops stages_x[] = TWO_PHASE_STAGE_TABLE(lock_x);
static const struct vb_stage_ops stages_sx[] = TWO_PHASE_STAGE_TABLE(lock_sx);

const struct vb_cc_ops vb_cc_bounded_wait = {
	.name = "bounded-wait",
	.summary = "two-phase locking; a conflict waits, but for a bounded time",
	.source = "Barthels et al., PVLDB 2019, section 3.3",
	.caps = VB_CC_STRICT | VB_CC_READ_LOCKS | VB_CC_SHORT_READS | VB_CC_BOUNDED,
	TWO_PHASE_OPS(stages_x),
};

const struct vb_cc_ops vb_cc_bounded_wait_sx = {
	.name = "bounded-wait-sx",
	.summary = "bounded-wait with shared and exclusive locks",
	.source = "Barthels et al., PVLDB 2019, section 3.3",
	.caps = VB_CC_STRICT | VB_CC_READ_LOCKS | VB_CC_SHORT_READS | VB_CC_BOUNDED | VB_CC_SHARED,
	TWO_PHASE_SX_WORDS,
	TWO_PHASE_OPS(stages_sx),
};
