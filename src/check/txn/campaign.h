/* SPDX-License-Identifier: Apache-2.0 */
/* Many seeds of one transaction protocol: what `verbena check txn` runs, and the tests. */
#ifndef VB_CHECK_TXN_CAMPAIGN_H
#define VB_CHECK_TXN_CAMPAIGN_H

#include "check/campaign.h"
#include "check/txn/explore.h"

struct vb_txn_campaign {
	struct vb_campaign all; /* run it with vb_campaign_run; its rules are enum vb_txn_rule */
	const struct vb_cc_ops *cc;
	char groups[64]; /* of the sites that it must reach; none of one that need not be right */
	char hybrid[VB_CODE_BYTES]; /* a code; "": each seed draws one */
	bool far; /* coordinators have their places at another node, in each seed that may have that */
	bool copies;   /* of logs, in each seed that may have them; else those that draw them */
	FILE *history; /* gets each seed's history, over the last one's; NULL: nothing does */

	/* Out. */
	uint64_t commits, aborts, recovered, rolled_forward, unknown_commits;
	enum vb_anomaly found_anomaly; /* with all.found */
};

/* Of this protocol with this code, or NULL; which seeds, and how, is for the caller to say in
 * c->all. */
void vb_txn_campaign_init(struct vb_txn_campaign *c, const struct vb_cc_ops *cc,
			  const char *hybrid);
/* Coordinators have their places at another node. */
void vb_txn_campaign_far(struct vb_txn_campaign *c);

#endif
