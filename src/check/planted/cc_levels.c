/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wrong on purpose about isolation levels:
 *
 *	planted:hasty-reader  no-wait that lets go at once of what a transaction has read that asked for
 *	                      repeatable reads
 */
#include "check/planted/planted.h"

#include "cc/two_phase.h"
#include "txn/db.h"

static void lock_x(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	two_phase_lock_x(s, items, n, no_wait_judge);
}

static const struct vb_stage_ops stages[] = TWO_PHASE_STAGE_TABLE(lock_x);

static int read_and_let_go(struct vb_txn *t, struct vb_item **items, unsigned n)
{
	int err = two_phase_access(t, items, n);
	unsigned reads = vb_items_to_front(items, n, VB_ITEM_READ, VB_ITEM_WRITE);

	if (err == 0 && reads > 0 && t->isolation == VB_REPEATABLE_READ)
		err = vb_txn_let_go(t, items, reads);
	return err;
}

const struct vb_cc_ops vb_planted_hasty_reader = {
	.name = "planted:hasty-reader",
	.summary = "no-wait that lets go of what should be read repeatably",
	.source = "on purpose",
	.planted = "not-serializable",
	.caps = VB_CC_STRICT | VB_CC_READ_LOCKS | VB_CC_SHORT_READS | VB_CC_NEVER_WAITS,
	.stages = stages,
	.n_stages = TWO_PHASE_STAGES,
	.commit = TWO_PHASE_COMMIT,
	.release = TWO_PHASE_RELEASE,
	.read = read_and_let_go,
	.write = two_phase_access,
	.prepare = two_phase_prepare,
	.unlocked = two_phase_unlocked,
	.locked = two_phase_locked,
	.whose = vb_ts_named,
};
