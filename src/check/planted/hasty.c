/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planted:hasty-writer.  N-CoSED whose writer takes the lock over as soon as the writer before it
 * has left, or at once behind readers, and does not wait for the readers in between.
 */
#include "check/planted/planted.h"

#include "lock/ncosed.h"

static int hasty_open(struct vb_lock_space *space)
{
	((struct ncosed_options *)space->options)->hasty = true;
	return 0;
}

const struct vb_lock_ops vb_planted_hasty_writer = {
	.name = "planted:hasty-writer",
	.summary = "takes a lock over from a writer although readers stand in between",
	.source = "planted bug",
	.planted = "mode-conflict",
	.caps = VB_LOCK_SHARED | VB_LOCK_EXCLUSIVE | VB_LOCK_FIFO | VB_LOCK_MESSAGES,
	.needs = VB_CAP_SEND,
	.entry_bytes = 16,
	.options = ncosed_option_table,
	.options_size = sizeof(struct ncosed_options),
	.verbs_uncontended = "X: 1 CAS + 1 CAS, S: 1 FAA + 1 CAS",
	.verbs_contended = "X: 1 CAS per attempt + 2 SEND, S: 1 FAA + 2 SEND + 1 FAA",
	.bypass_bound = ncosed_bypass_bound,
	.open = hasty_open,
	.acquire = ncosed_acquire,
	.resume = ncosed_resume,
	.try_acquire = ncosed_try,
	.release = ncosed_release,
};
