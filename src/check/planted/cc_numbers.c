/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transaction protocols that are wrong about the numbers of versions, each in one place:
 *
 *	planted:lost-try       wound-wait that writes in place before its commit point, and when it has been
 *	                       wounded leaves there what it wrote, under the name that its next try has, too
 *	planted:small-numbers  no-wait whose versions are the loader's
 *	planted:endless-time   sundial that does not look whether its logical time has ended
 */
#include "cc/sundial.h"
#include "cc/two_phase.h"
#include "check/planted/planted.h"
#include "txn/db.h"

/* ---- lost try ---- */

enum { TRY_LOCK, TRY_COMMIT, TRY_RELEASE, TRY_WRITE, TRY_STAGES };

static void lock_wound(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	two_phase_lock_x(s, items, n, wound_wait_judge);
}

static void write_in_place(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		items[i]->status = 0;
		vb_stage_write_tuple(s, items[i]);
	}
	(void)vb_stage_go(s, items, n);
}

static int prepare_in_place(struct vb_txn *t)
{
	for (unsigned i = 0; i < t->n; i++) {
		struct vb_item *it = &t->item[i];
		uint32_t at = vb_item_layout(it)->version_at;

		it->next = t->version | (vb_tuple_word(it->image, at) & VB_VERSION_ABSENT);
	}
	return vb_txn_stage_all(t, TRY_WRITE, VB_ITEM_WRITE, 0);
}

static const struct vb_stage_ops try_stages[] = {
	[TRY_LOCK] = {.name = "lock",
		      .flags = VB_STAGE_FETCHES | VB_STAGE_MAKES,
		      .run = lock_wound},
	[TRY_COMMIT] = {.name = "commit", .flags = VB_STAGE_WRITES, .run = two_phase_commit},
	[TRY_RELEASE] = {.name = "release", .run = two_phase_release},
	[TRY_WRITE] = {.name = "write", .flags = VB_STAGE_WRITES, .run = write_in_place},
};

const struct vb_cc_ops vb_planted_lost_try = {
	.name = "planted:lost-try",
	.summary = "wound-wait that leaves what a try wrote, and tries again under the same name",
	.source = "on purpose",
	.planted = "G1a",
	.caps = VB_CC_STRICT | VB_CC_READ_LOCKS | VB_CC_AGE | VB_CC_STATUS,
	.stages = try_stages,
	.n_stages = TRY_STAGES,
	.commit = TRY_COMMIT,
	.release = TRY_RELEASE,
	.read = two_phase_access,
	.write = two_phase_access,
	.prepare = prepare_in_place,
	.unlocked = two_phase_unlocked,
	.locked = two_phase_locked,
	.holder = two_phase_holder,
};

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
	.stages = small_stages,
	.n_stages = TWO_PHASE_STAGES,
	.commit = TWO_PHASE_COMMIT,
	.release = TWO_PHASE_RELEASE,
	.read = two_phase_access,
	.write = two_phase_access,
	.prepare = prepare_first,
	.unlocked = two_phase_unlocked,
	.locked = two_phase_locked,
	.holder = two_phase_holder,
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
	.caps = VB_CC_LOGICAL,
	.stages = endless_stages,
	.n_stages = SUNDIAL_STAGES,
	.commit = SUNDIAL_COMMIT,
	.release = SUNDIAL_RELEASE,
	.read = sundial_access,
	.write = write_at_any_time,
	.prepare = prepare_at_any_time,
	.unlocked = sundial_unlocked,
	.locked = sundial_locked,
	.holder = sundial_holder,
};
