/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transaction protocols that are wrong only where logs have copies (txn/copies.c):
 *
 *	planted:no-fence     no-wait that takes whatever a copy says for what it has last put there, be it that others
 *	                     have sealed it
 *	planted:no-copies    no-wait that takes all copies for gone, and so commits without them
 */
#include "cc/two_phase.h"
#include "check/planted/planted.h"
#include "txn/db.h"

static void lock_x(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	two_phase_lock_x(s, items, n, no_wait_judge);
}

/* When it has been prepared: while it stands still there, others decide. */
static int believe_the_copies(struct vb_txn *t)
{
	const struct vb_db *db = t->me->db;
	struct vb_lane *lane = vb_txn_lane(t->me);

	(void)vb_ep_sleep(t->me->ep, 1);
	for (unsigned i = 0; i < db->copies; i++)
		lane->copy[i] =
			*(const uint64_t *)vb_local(db->fabric, vb_copy_at(db, lane->place, i), 8);
	lane->copies_known = true;
	return vb_txn_point(t);
}

static int forget_the_copies(struct vb_txn *t)
{
	vb_txn_lane(t->me)->copies_gone = (1u << VB_COPIES_MAX) - 1;
	return two_phase_prepare(t);
}

static const struct vb_stage_ops stages[] = TWO_PHASE_STAGE_TABLE(lock_x);

const struct vb_cc_ops vb_planted_no_fence = {
	.name = "planted:no-fence",
	.summary = "no-wait that commits what others have decided without it",
	.source = "on purpose",
	.planted = "not-serializable",
	TWO_PHASE_OPS(stages),
	.decide = believe_the_copies,
};

const struct vb_cc_ops vb_planted_no_copies = {
	.name = "planted:no-copies",
	.summary = "no-wait that commits without the copies of its log",
	.source = "on purpose",
	.planted = "not-serializable",
	TWO_PHASE_OPS_BUT_PREPARE(stages),
	.prepare = forget_the_copies,
};
