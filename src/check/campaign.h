/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many seeds of one protocol, one after the other: what is the same for locks and transactions.
 * lock/campaign.h and txn/campaign.h add what each explores and counts.
 */
#ifndef VB_CHECK_CAMPAIGN_H
#define VB_CHECK_CAMPAIGN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "check/sites.h"

#define VB_CAMPAIGN_RULES  16u  /* at most, of a kind */
#define VB_CAMPAIGN_REPLAY 160u /* bytes for vb_campaign_replay */

struct vb_campaign;

/* What came of one seed. */
struct vb_campaign_seed {
	uint64_t violations, by_rule[VB_CAMPAIGN_RULES];
	uint64_t verbs, deaths, unknown;
	int rule;      /* the rule that it breaks, of those that are looked for; -1: none */
	char *stories; /* of the violations, for free(); NULL: none */
};

struct vb_campaign_kind {
	const char *const *rule_names;
	unsigned n_rules;
	/* The options that name the protocol: "lock --lock dslr". */
	void (*name)(const struct vb_campaign *c, char *buf, size_t size);
	/* The groups of sites (base/sometimes.h) that it must reach, words with blanks between
	 * them; NULL: none. */
	const char *(*groups)(const struct vb_campaign *c);
	/* What the seed draws; one line. */
	void (*describe)(const struct vb_campaign *c, uint64_t seed, FILE *to);
	/* Explores the seed, from vb_sites_begin to vb_sites_end; counts what only its kind counts,
	 * and says how it ended where c->tell wants that.  -error: it could not be explored; then
	 * only out->stories counts.  -ECANCELED: c->stop has come, and it has not been. */
	int (*explore)(struct vb_campaign *c, uint64_t seed, struct vb_campaign_seed *out);
};

struct vb_campaign {
	const struct vb_campaign_kind *kind;
	const char *protocol;
	const char *planted;   /* the name of its bug, NULL: a real protocol */
	uint64_t first, seeds; /* to explore: first, first + 1, ... */
	/* The first seed that finds something is the last; with a planted bug, the first seed that
	 * finds it by its name. */
	bool keep_going;
	FILE *tell; /* each seed's draw before it and its end after it; NULL: neither */
	const volatile bool *stop; /* looked at between seeds and in them; NULL: never */
	void (*progress)(const struct vb_campaign *c, void *ctx); /* after each seed, or NULL */
	void *progress_ctx;

	/* Out. */
	uint64_t done, bad_seeds; /* seeds explored; of those, with a violation */
	uint64_t violations, by_rule[VB_CAMPAIGN_RULES];
	uint64_t verbs, deaths, unknown;
	double seconds;
	struct vb_sites_of sites; /* none of a planted bug */
	unsigned unreached;       /* of them, and should have been: a finding */
	/* What ended it, or the first find with keep_going. */
	bool found;
	uint64_t found_seed;
	unsigned found_rule;
	char *draw, *stories; /* free() through vb_campaign_end */
};

/* 0, also when something was found or *stop came; -error, said. */
int vb_campaign_run(struct vb_campaign *c);
void vb_campaign_end(struct vb_campaign *c);
/* "verbena check lock --lock X --seed N".  buf of VB_CAMPAIGN_REPLAY bytes; returns buf. */
char *vb_campaign_replay(char *buf, const struct vb_campaign *c, uint64_t seed);
/* For who explores: has it come? */
static inline bool vb_campaign_stopped(const volatile bool *stop)
{
	return stop != NULL && *stop;
}
/* Does a planted bug go by the name of this rule?  Of a real protocol everything counts. */
bool vb_campaign_wants(const struct vb_campaign *c, unsigned rule);

#endif
