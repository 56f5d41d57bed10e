/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transaction protocols that are wrong on purpose, each in one place:
 *
 *	planted:no-validation   silo that does not look whether what it read has changed
 *	planted:early-unlock    no-wait that lets a record go before it has written it
 *	planted:no-lease-check  sundial that takes every lease for extended
 *	planted:torn-reads      silo that gives its reader whatever a READ has brought
 *	planted:forgets-one     no-wait that does not let the last of its readers' locks go
 */
#include "check/planted/planted.h"

#include "cc/silo.h"
#include "cc/sundial.h"
#include "cc/two_phase.h"

/* ---- no validation ---- */

static int prepare_unvalidated(struct vb_txn *t)
{
	return vb_txn_stage_all(t, SILO_LOCK, VB_ITEM_WRITE, 0);
}

static const struct vb_stage_ops silo_stages[] =
	SILO_STAGE_TABLE(silo_read, silo_lock, silo_validate);

static const struct vb_cc_ops no_validation = {
	.name = "planted:no-validation",
	.summary = "silo without the validation of what was read",
	.source = "on purpose",
	.planted = "not-serializable",
	SILO_OPS(silo_stages),
	.prepare = prepare_unvalidated,
};

/* ---- early unlock ---- */

static void lock_x(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	two_phase_lock_x(s, items, n, no_wait_judge);
}

static void unlock_and_write(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	two_phase_release(s, items, n);
	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];
		const struct vb_tuple_layout *l = vb_item_layout(it);

		it->status = 0;
		vb_acc_cas(s->acc, VB_AMOD_IM, it->at + l->lock_at, it->held, 0, &it->seen);
	}
	if (!vb_stage_go(s, items, n))
		return;
	for (unsigned i = 0; i < n; i++)
		vb_stage_write_tuple(s, items[i]);
	(void)vb_stage_go(s, items, n);
}

static const struct vb_stage_ops early_stages[] = {
	[TWO_PHASE_LOCK] = {.name = "lock",
			    .flags = VB_STAGE_FETCHES | VB_STAGE_MAKES,
			    .run = lock_x},
	[TWO_PHASE_COMMIT] = {.name = "commit", .flags = VB_STAGE_WRITES, .run = unlock_and_write},
	[TWO_PHASE_RELEASE] = {.name = "release", .run = two_phase_release},
};

static const struct vb_cc_ops early_unlock = {
	.name = "planted:early-unlock",
	.summary = "no-wait that unlocks before it writes",
	.source = "on purpose",
	.planted = "not-serializable",
	TWO_PHASE_OPS(early_stages),
};

/* ---- no lease check ---- */

static void renew_nothing(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	(void)s;
	for (unsigned i = 0; i < n; i++)
		items[i]->status = 0;
}

static const struct vb_stage_ops sundial_stages[] =
	SUNDIAL_STAGE_TABLE(sundial_read, sundial_lock, renew_nothing);

static const struct vb_cc_ops no_lease_check = {
	.name = "planted:no-lease-check",
	.summary = "sundial that does not extend the leases it needs",
	.source = "on purpose",
	.planted = "not-serializable",
	.caps = VB_CC_LOGICAL | VB_CC_TIME_ENDS,
	SUNDIAL_OPS(sundial_stages),
};

/* ---- torn reads ---- */

static void read_anything(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		vb_stage_read_tuple(s, items[i]);
	if (!vb_stage_go(s, items, n))
		return;
	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];
		uint64_t word = vb_tuple_word(it->image, vb_item_layout(it)->lock_at);

		it->seen = word;
		it->seen_slot = 0;
		it->status = word & SILO_HELD ? VB_TXN_LOCKED : 0;
		it->version = word;
		if (it->status == 0)
			it->flags |= VB_ITEM_FETCHED;
	}
}

static const struct vb_stage_ops torn_stages[] =
	SILO_STAGE_TABLE(read_anything, silo_lock, silo_validate);

static const struct vb_cc_ops torn_reads = {
	.name = "planted:torn-reads",
	.summary = "silo that does not look whether a READ was torn",
	.source = "on purpose",
	.planted = "torn-read",
	SILO_OPS(torn_stages),
	.prepare = silo_prepare,
};

/* ---- forgets one ---- */

static void release_all_but_one(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	if (n > 1)
		items[--n]->status = 0;
	two_phase_release(s, items, n);
}

static const struct vb_stage_ops forgetful_stages[] = {
	[TWO_PHASE_LOCK] = {.name = "lock",
			    .flags = VB_STAGE_FETCHES | VB_STAGE_MAKES,
			    .run = lock_x},
	[TWO_PHASE_COMMIT] = {.name = "commit", .flags = VB_STAGE_WRITES, .run = two_phase_commit},
	[TWO_PHASE_RELEASE] = {.name = "release", .run = release_all_but_one},
};

static const struct vb_cc_ops forgets_one = {
	.name = "planted:forgets-one",
	.summary = "no-wait that does not let the last of its readers' locks go",
	.source = "on purpose",
	.planted = "needless-recovery",
	TWO_PHASE_OPS(forgetful_stages),
};

const struct vb_cc_ops *const vb_planted_ccs[] = {
	&no_validation,
	&early_unlock,
	&no_lease_check,
	&torn_reads,
	&vb_planted_lost_undo,
	&forgets_one,
	&vb_planted_unfetched,
	&vb_planted_unplaced,
	&vb_planted_unlocked,
	&vb_planted_early_release,
	&vb_planted_unread_bytes,
	&vb_planted_stale_bytes,
	&vb_planted_other_version,
	&vb_planted_adopts,
	&vb_planted_same_release,
	&vb_planted_same_recovery,
	&vb_planted_blind_server,
	&vb_planted_late_server,
	&vb_planted_late_commit,
	&vb_planted_lost_try,
	&vb_planted_hasty_reader,
	&vb_planted_small_numbers,
	&vb_planted_endless_time,
	&vb_planted_patient,
	&vb_planted_upside_down,
	&vb_planted_deadlocked,
	&vb_planted_disordered,
	&vb_planted_sullen,
	&vb_planted_one_cache,
	&vb_planted_asks_for_ever,
	&vb_planted_no_fence,
	&vb_planted_no_copies,
	&vb_planted_range_unread,
	&vb_planted_range_unwritten,
	&vb_planted_no_cascade,
	&vb_planted_late_undo,
	&vb_planted_half_asked,
	NULL,
};
