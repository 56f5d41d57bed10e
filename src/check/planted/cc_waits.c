/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Protocols of transactions that say one thing of whom they wait for, or of what a call returns,
 * and do another:
 *
 *	planted:patient      no-wait that waits: two that hold what the other wants end at a deadline
 *	planted:upside-down  wait-die in which the younger waits, and the older ends
 *	planted:deadlocked   two-phase locking in which everybody waits for everybody
 *	planted:disordered   the same, that says it waits in order
 *	planted:sullen       no-wait some of whose commits fail with an error of their own
 */
#include "check/planted/planted.h"

#include "cc/two_phase.h"
#include "txn/db.h"

static uint8_t wait_for_all(struct vb_stage *s, struct vb_item *it, uint64_t holder)
{
	(void)s;
	(void)it;
	(void)holder;
	return VB_ITEM_WAIT;
}

static void lock_patiently(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	two_phase_lock_x(s, items, n, wait_for_all);
}

static uint8_t wait_for_older(struct vb_stage *s, struct vb_item *it, uint64_t holder)
{
	(void)it;
	return s->ts > holder ? VB_ITEM_WAIT : VB_TXN_DIED;
}

static void lock_upside_down(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	two_phase_lock_x(s, items, n, wait_for_older);
}

static void lock_x(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	two_phase_lock_x(s, items, n, no_wait_judge);
}

static int prepare_sullenly(struct vb_txn *t)
{
	return vb_ts_clock(t->ts) % 16 == 0 ? vb_txn_doom(t, VB_TXN_MISUSE, -EPERM) : 0;
}

static const struct vb_stage_ops patient[] = TWO_PHASE_STAGE_TABLE(lock_patiently);
static const struct vb_stage_ops upside_down[] = TWO_PHASE_STAGE_TABLE(lock_upside_down);
static const struct vb_stage_ops plain[] = TWO_PHASE_STAGE_TABLE(lock_x);

const struct vb_cc_ops vb_planted_patient = {
	.name = "planted:patient",
	.summary = "no-wait that waits",
	.source = "on purpose",
	.caps = VB_CC_STRICT | VB_CC_READ_LOCKS | VB_CC_NEVER_WAITS,
	.planted = "wrong-wait",
	TWO_PHASE_OPS(patient),
};

const struct vb_cc_ops vb_planted_upside_down = {
	.name = "planted:upside-down",
	.summary = "wait-die in which the younger waits, and the older ends",
	.source = "on purpose",
	.caps = VB_CC_STRICT | VB_CC_READ_LOCKS | VB_CC_AGE | VB_CC_WAIT_DIE,
	.planted = "wrong-wait",
	TWO_PHASE_OPS(upside_down),
};

const struct vb_cc_ops vb_planted_deadlocked = {
	.name = "planted:deadlocked",
	.summary = "two-phase locking in which everybody waits for everybody",
	.source = "on purpose",
	.caps = VB_CC_STRICT | VB_CC_READ_LOCKS,
	.planted = "wrong-wait",
	TWO_PHASE_OPS(patient),
};

const struct vb_cc_ops vb_planted_disordered = {
	.name = "planted:disordered",
	.summary = "two-phase locking that waits in any order and says that it does so in one",
	.source = "on purpose",
	.caps = VB_CC_STRICT | VB_CC_READ_LOCKS | VB_CC_IN_ORDER,
	.planted = "wrong-wait",
	TWO_PHASE_OPS(patient),
};

const struct vb_cc_ops vb_planted_sullen = {
	.name = "planted:sullen",
	.summary = "no-wait some of whose commits fail with an error of their own",
	.source = "on purpose",
	.caps = VB_CC_STRICT | VB_CC_READ_LOCKS,
	.planted = "wrong-error",
	.stages = plain,
	.n_stages = TWO_PHASE_STAGES,
	.commit = TWO_PHASE_COMMIT,
	.release = TWO_PHASE_RELEASE,
	TWO_PHASE_ITEMS,
	.prepare = prepare_sullenly,
};
