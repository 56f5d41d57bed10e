/* SPDX-License-Identifier: Apache-2.0 */
/* Many seeds of one transaction protocol: what `verbena check txn` runs, and the tests. */
#ifndef VB_CHECK_TXN_CAMPAIGN_H
#define VB_CHECK_TXN_CAMPAIGN_H

#include "check/txn_explore.h"

struct vb_txn_campaign {
	const struct vb_cc_ops *cc;
	const char *hybrid; /* a code; NULL: each seed draws one */
	uint64_t first, seeds;
	bool keep_going;
	FILE *tell; /* each seed's draw before it and its end after it; NULL: neither */
	const volatile bool *stop;
	void (*progress)(const struct vb_txn_campaign *c);

	/* Out. */
	uint64_t done, bad_seeds, violations, by_rule[VB_TXN_RULES];
	uint64_t commits, aborts, deaths, unknown, recovered, rolled_forward, verbs;
	double seconds;
	bool found; /* what ended it, or the first find with keep_going */
	uint64_t found_seed;
	enum vb_txn_rule found_rule;
	enum vb_anomaly found_anomaly;
	char *draw, *stories; /* free() through vb_txn_campaign_end */
};

/* 0, also when something was found or *stop came; -error, said. */
int vb_txn_campaign_run(struct vb_txn_campaign *c);
void vb_txn_campaign_end(struct vb_txn_campaign *c);
/* "verbena check txn --cc X --hybrid 0110 --seed N".  buf of at least 128 bytes; returns buf. */
char *vb_txn_campaign_replay(char *buf, size_t size, const struct vb_txn_campaign *c,
			     uint64_t seed);

#endif
