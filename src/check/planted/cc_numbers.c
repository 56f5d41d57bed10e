/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transaction protocols that are wrong about the numbers of versions, each in one place:
 *
 *	planted:small-numbers  no-wait whose versions are the loader's
 *	planted:endless-time   sundial that does not look whether its logical time has ended
 */
#include "cc/sundial.h"
#include "cc/two_phase.h"
#include "check/planted/planted.h"
#include "txn/db.h"

/* ---- small numbers ---- */

static void lock_no_wait(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	two_phase_lock_x(s, items, n, no_wait_judge);
}

static int prepare_first(struct vb_txn *t)
{
	t->commit_ts = 1;
	return 0;
}

static const struct vb_stage_ops small_stages[] = TWO_PHASE_STAGE_TABLE(lock_no_wait);

const struct vb_cc_ops vb_planted_small_numbers = {
	.name = "planted:small-numbers",
	.summary = "no-wait whose versions are the loader's",
	.source = "on purpose",
	.planted = "not-serializable",
	.caps = VB_CC_STRICT | VB_CC_READ_LOCKS,
	TWO_PHASE_OPS_BUT_PREPARE(small_stages),
	.prepare = prepare_first,
};

/* ---- endless time ---- */

static int write_at_any_time(struct vb_txn *t, struct vb_item **items, unsigned n)
{
	unsigned m = vb_items_to_front(items, n, 0, VB_ITEM_FETCHED);
	int err = m > 0 ? vb_txn_stage(t, SUNDIAL_READ, items, m) : 0;

	return err ? err : vb_txn_stage(t, SUNDIAL_LOCK, items, n);
}

static int prepare_at_any_time(struct vb_txn *t)
{
	return vb_txn_stage_all(t, SUNDIAL_RENEW, VB_ITEM_READ, VB_ITEM_WRITE);
}

static const struct vb_stage_ops endless_stages[] =
	SUNDIAL_STAGE_TABLE(sundial_read, sundial_lock, sundial_renew);

const struct vb_cc_ops vb_planted_endless_time = {
	.name = "planted:endless-time",
	.summary = "sundial that does not look whether its logical time has ended",
	.source = "on purpose",
	.planted = "stuck",
	.caps = VB_CC_LOGICAL | VB_CC_TIME_ENDS,
	SUNDIAL_OPS_BUT_CALLS(endless_stages),
	.read = sundial_access,
	.write = write_at_any_time,
	.prepare = prepare_at_any_time,
};
