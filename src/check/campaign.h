/* SPDX-License-Identifier: Apache-2.0 */
/* Many seeds of one lock, one after the other: what `verbena check lock` runs, and the tests. */
#ifndef VB_CHECK_CAMPAIGN_H
#define VB_CHECK_CAMPAIGN_H

#include "check/explore.h"

struct vb_campaign {
	const struct vb_lock_ops *ops;
	uint64_t first, seeds; /* to explore: first, first + 1, ... */
	/* The first seed that finds something is the last; with a planted bug, the first seed that
	 * finds it by the name of its rule. */
	bool keep_going;
	FILE *tell; /* each seed's draw before it and its end after it; NULL: neither */
	const volatile bool *stop;                     /* looked at between seeds; NULL: never */
	void (*progress)(const struct vb_campaign *c); /* after each seed; NULL: nobody looks */

	/* Out. */
	uint64_t done; /* seeds explored */
	uint64_t checked_ops, violations, by_rule[VB_AUDIT_RULES];
	uint64_t max_bypass; /* where it is judged: a recovery throws waiters out */
	uint64_t bad_seeds, lost, deaths, cancels, timeouts, unknown, cycles, verbs;
	double seconds;
	/* What ended it, or the first find with keep_going. */
	bool found;
	uint64_t found_seed;
	enum vb_audit_rule found_rule;
	char *draw, *stories; /* free() through vb_campaign_end */
};

/* 0, also when something was found or *stop came; -error, said. */
int vb_campaign_run(struct vb_campaign *c);
void vb_campaign_end(struct vb_campaign *c);
/* "verbena check lock --lock X --seed N".  buf of at least 128 bytes; returns buf. */
char *vb_campaign_replay(char *buf, size_t size, const struct vb_lock_ops *ops, uint64_t seed);

#endif
