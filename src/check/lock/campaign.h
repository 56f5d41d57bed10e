/* SPDX-License-Identifier: Apache-2.0 */
/* Many seeds of one lock, one after the other: what `verbena check lock` runs, and the tests. */
#ifndef VB_CHECK_LOCK_CAMPAIGN_H
#define VB_CHECK_LOCK_CAMPAIGN_H

#include "check/campaign.h"
#include "check/lock/explore.h"

struct vb_lock_campaign {
	struct vb_campaign all; /* run it with vb_campaign_run; its rules are enum vb_audit_rule */
	const struct vb_lock_ops *ops;
	bool beyond; /* every seed goes beyond what the lock survives; then it need reach no site */
	FILE *history; /* where its one seed's history goes to; NULL: nowhere */
	char groups
		[64]; /* of the sites that it must reach; none of a lock that need not be right */

	/* Out. */
	uint64_t checked_ops;
	uint64_t max_bypass; /* where it is judged: a recovery throws waiters out */
	uint64_t lost, cancels, closes, timeouts;
	uint64_t told, late_verbs, forgiven; /* beyond what it survives, as in vb_explore_result */
};

/* Of this lock; which seeds, and how, is for the caller to say in c->all. */
void vb_lock_campaign_init(struct vb_lock_campaign *c, const struct vb_lock_ops *ops);

#endif
