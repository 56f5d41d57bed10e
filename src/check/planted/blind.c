/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planted:blind-clock.  DrTM's lock by clients who believe that their clocks all show the same: a
 * reader whose clock is behind still reads when a writer whose clock is ahead finds the lease over.
 */
#include "check/planted/planted.h"

#include "lock/drtm.h"

static int blind_open(struct vb_lock_space *space)
{
	int err = drtm_open(space);

	((struct drtm_options *)space->options)->margin_ns = 0;
	return err;
}

const struct vb_lock_ops vb_planted_blind_clock = {
	.name = "planted:blind-clock",
	.summary = "compares the end of others' leases with its own clock as if that were theirs",
	.source = "planted bug",
	.planted = "mode-conflict",
	.caps = VB_LOCK_SHARED | VB_LOCK_EXCLUSIVE | VB_LOCK_READ_LEASE,
	.entry_bytes = 8,
	.options = drtm_option_table,
	.options_size = sizeof(struct drtm_options),
	.verbs_uncontended = "X: 1 CAS + 1 CAS, S: 1 CAS + nothing",
	.verbs_contended = "1 CAS per attempt, 1 more to replace a lease that is over",
	.open = blind_open,
	.client_open = drtm_client_open,
	.acquire = drtm_acquire,
	.try_acquire = drtm_try,
	.release = drtm_release,
};
