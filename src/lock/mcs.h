/* SPDX-License-Identifier: Apache-2.0 */
/* mcs, for the planted bug that is mcs but for the numbers of its claims. */
#ifndef VB_LOCK_MCS_H
#define VB_LOCK_MCS_H

#include "lock/lock.h"

struct mcs_options {
	uint64_t successor_wait;
	/* No option: set by the planted bug. */
	bool numberless;
};

extern const struct vb_opt mcs_option_table[];
int mcs_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns);
int mcs_resume(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns);
int mcs_try(struct vb_lock_client *me, struct vb_claim *c);
int mcs_release(struct vb_lock_client *me, struct vb_claim *c);
int mcs_release_now(struct vb_lock_client *me, struct vb_claim *c);
unsigned mcs_bypass_bound(unsigned clients, enum vb_mode mode);

#define MCS_LOCK                                                                                   \
	.caps = VB_LOCK_EXCLUSIVE | VB_LOCK_FIFO | VB_LOCK_MESSAGES, .needs = VB_CAP_SEND,         \
	.wishes = VB_CAP_MASKED64, .portable = "the swap is a READ and CAS loop",                  \
	.entry_bytes = 8, .options = mcs_option_table, .options_size = sizeof(struct mcs_options), \
	.verbs_uncontended = "1 swap + 1 CAS", .verbs_contended = "1 swap + 2 SEND (+ 1 CAS)",     \
	.bypass_bound = mcs_bypass_bound, .acquire = mcs_acquire, .resume = mcs_resume,            \
	.try_acquire = mcs_try, .release = mcs_release, .release_now = mcs_release_now

#endif
