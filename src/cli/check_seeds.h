/* SPDX-License-Identifier: Apache-2.0 */
/* What `verbena check lock` and `verbena check txn` have in common: options, campaign after
 * campaign, what is told and written of them, the exit code. */
#ifndef VB_CLI_CHECK_SEEDS_H
#define VB_CLI_CHECK_SEEDS_H

#include <jansson.h>

#include "base/opt.h"
#include "check/campaign.h"
#include "cli/cli.h"

struct vb_check_opts {
	const char *protocols, *json, *history;
	uint64_t seeds, seed;
	bool verbose, keep_going, sites;
};

/* Their rows in the table of a struct that has them as `check`. */
#define VB_CHECK_OPTS(type)                                                                        \
	VB_OPT_SIZE(type, check.seeds, "seeds", NULL, 1, UINT32_MAX,                               \
		    "how many seeds to explore (200; 1 with --seed)"),                             \
		VB_OPT_SIZE(type, check.seed, "seed", NULL, 1, INT64_MAX,                          \
			    "the first seed; alone, replays this one and says what it drew (1)"),  \
		VB_OPT_FLAG(type, check.keep_going, "keep-going",                                  \
			    "explore all seeds, also after one that found something"),             \
		VB_OPT_STRING(type, check.json, "json", "FILE", NULL,                              \
			      "write the results as JSON; - is stdout"),                           \
		VB_OPT_FLAG(type, check.sites, "sites",                                            \
			    "tell how often each rare branch was reached"),                        \
		VB_OPT_FLAG(type, check.verbose, "verbose",                                        \
			    "tell what each seed draws and how it ends")

#define VB_CHECK_RUNS 1024u

struct vb_check {
	const struct vb_check_kind *kind;
	const struct vb_check_opts *opts;
	struct vb_campaign *run[VB_CHECK_RUNS];
	unsigned n, n_run;
	FILE *out;      /* stdout, or stderr where stdout carries the JSON */
	FILE *history;  /* for what a campaign has explored; NULL: not wanted */
	double shown_s; /* when the progress of the campaign was last shown */
};

struct vb_check_kind {
	const char *nothing_named; /* the error for a list of protocols without any */
	/* Adds what is meant by one name of the list.  -error, said. */
	int (*add)(struct vb_check *s, const char *name);
	bool tell_begin; /* tell each campaign's first seed before it runs */
	/* For the progress line. */
	void (*label)(const struct vb_campaign *c, char *buf, size_t size);
	/* The table: its first columns, and what stands under them. */
	const char *head;
	void (*row)(FILE *to, const struct vb_campaign *c);
	/* The first fields of a run; the faults that it met; what else is known of its first
	 * violation, NULL: nothing. */
	json_t *(*run_json)(const struct vb_campaign *c);
	json_t *(*faults_json)(const struct vb_campaign *c);
	void (*set_violation)(json_t *violation, const struct vb_campaign *c);
};

/* To be called by kind->add.  c: the first member of what malloc has given, or NULL; it belongs to
 * the session.  -error, said. */
int vb_check_add(struct vb_check *s, struct vb_campaign *c);
/* The whole command, when its options have been read: an enum vb_exit. */
int vb_check_seeds(const struct vb_check_kind *kind, const struct vb_check_opts *opts);

#endif
