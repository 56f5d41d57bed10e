/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planted:reader-starves-writer.  A counter of readers and a writer's bit; readers come in whenever
 * no writer holds the lock, a writer only when nobody does.  It nevertheless promises that a
 * waiting writer is passed by each of the others once at most.
 */
#include "check/planted/planted.h"

#define WRITER (1ull << 63)

/* 0, -EAGAIN. */
static int starve_try(struct vb_lock_client *me, struct vb_claim *c)
{
	uint64_t seen;
	int err;

	if (c->mode == VB_EXCLUSIVE) {
		err = vb_cas64(me->ep, c->entry, 0, WRITER, &seen);
		if (err)
			return err;
		return seen == 0 ? vb_lock_grant(c, VB_FOREVER, 0) : -EAGAIN;
	}
	err = vb_faa64(me->ep, c->entry, 1, &seen);
	if (err)
		return err;
	if ((seen & WRITER) == 0)
		return vb_lock_grant(c, VB_FOREVER, 0);
	err = vb_faa64(me->ep, c->entry, (uint64_t)-1, &seen);
	return err ? err : -EAGAIN;
}

static int starve_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	struct vb_backoff b = {.base_ns = 500, .cap_ns = 4000};
	int err;

	for (;;) {
		err = starve_try(me, c);
		if (err == -EAGAIN)
			err = vb_backoff_wait(me, &b, until_ns);
		else if (err == 0)
			return 0;
		if (err) {
			/* Nothing stands anywhere in our name. */
			c->queued = false;
			return err;
		}
		if (!c->queued)
			vb_lock_mark_queued(me, c);
	}
}

static int starve_release(struct vb_lock_client *me, struct vb_claim *c)
{
	uint64_t seen;

	return vb_faa64(me->ep, c->entry, c->mode == VB_EXCLUSIVE ? WRITER : (uint64_t)-1, &seen);
}

static unsigned starve_bound(unsigned clients, enum vb_mode mode)
{
	return clients;
}

const struct vb_lock_ops vb_planted_reader_starves_writer = {
	.name = "planted:reader-starves-writer",
	.summary = "promises a bounded wait to writers and lets every reader pass",
	.source = "planted bug",
	.planted = "bypass",
	.caps = VB_LOCK_SHARED | VB_LOCK_EXCLUSIVE | VB_LOCK_FIFO,
	.entry_bytes = 8,
	.verbs_uncontended = "X: 1 CAS + 1 FAA, S: 2 FAA",
	.verbs_contended = "X: 1 CAS per attempt + 1 FAA, S: 2 FAA per attempt",
	.bypass_bound = starve_bound,
	.acquire = starve_acquire,
	.release = starve_release,
};

const struct vb_lock_ops *const vb_planted_locks[] = {
	&vb_planted_double_grant.ops,
	&vb_planted_lost_wakeup,
	&vb_planted_reader_starves_writer,
	&vb_planted_foreign_release.ops,
	&vb_planted_aba_recovery.ops,
	&vb_planted_stale_token.ops,
	&vb_planted_late_lease.ops,
	&vb_planted_late_renewal.ops,
	&vb_planted_never_too_late.ops,
	&vb_planted_keep_hopes.ops,
	&vb_planted_keep_goes_on.ops,
	&vb_planted_keep_by_itself.ops,
	&vb_planted_blind_clock,
	&vb_planted_one_slot_patience,
	&vb_planted_eager_upgrade,
	&vb_planted_hasty_writer,
	&vb_planted_readers_jump,
	&vb_planted_clean_slate,
	&vb_planted_reset_clears_bar,
	&vb_planted_six_beside_shared,
	&vb_planted_wait_die_holders,
	&vb_planted_wait_die_inverted,
	&vb_planted_lost_waiter,
	&vb_planted_grant_left_behind,
	&vb_planted_undone_twice,
	&vb_planted_asks_at_once,
	&vb_planted_refused_is_denied,
	&vb_planted_one_register,
	&vb_planted_borrowed_name,
	&vb_planted_numberless,
	&vb_planted_mute_mode,
	&vb_planted_past_handover,
	&vb_planted_dropped_husk,
	&vb_planted_blind_to_time,
	&vb_planted_sullen_release,
	NULL,
};
