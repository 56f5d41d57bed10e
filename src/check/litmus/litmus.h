/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small worlds, gone through exhaustively: two or three clients, each with a short program, over all
 * orders in which their verbs can take effect (engine.h says which, and what is left out or cut).
 * The same auditor judges locks as elsewhere.
 */
#ifndef VB_CHECK_LITMUS_LITMUS_H
#define VB_CHECK_LITMUS_LITMUS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "lock/lock.h"

struct vb_litmus_params {
	uint64_t runs;   /* of a world, at most */
	unsigned delays; /* of a run, at most */
	/* Run this one, "0.2.1": each choice in turn, then always 0; NULL: all. */
	const char *schedule;
	const char *rule;          /* only this rule or anomaly counts; NULL: every one */
	const char *hybrid;        /* transactions: as vb_db_params has it; NULL: one-sided */
	bool keep_going;           /* after a finding */
	FILE *tell;                /* the schedule that is run, step by step; NULL */
	const volatile bool *stop; /* looked at between runs; NULL: never */
};

struct vb_litmus_result {
	uint64_t runs, pruned; /* pruned: of them, given up as equal to others */
	uint64_t verbs;
	unsigned longest; /* choices in a run */
	/* Not all orders, and why; found: the rest was not looked at. */
	bool cut_delays, cut_runs, cut_length, cut_found;
	double seconds;
	uint64_t found;         /* runs with a finding */
	const char *rule;       /* of the first; NULL: none */
	char *schedule, *story; /* of the first; free() through vb_litmus_end */
};

void vb_litmus_end(struct vb_litmus_result *r);
static inline bool vb_litmus_exhausted(const struct vb_litmus_result *r)
{
	return !r->cut_delays && !r->cut_runs && !r->cut_length && !r->cut_found;
}

/* ---- locks ---- */

struct vb_litmus_lock;
extern const struct vb_litmus_lock *const vb_litmus_locks[]; /* NULL at the end */
const char *vb_litmus_lock_name(const struct vb_litmus_lock *w);
const char *vb_litmus_lock_summary(const struct vb_litmus_lock *w);
/* Whether this lock has the modes for it, and promises what it asks for. */
bool vb_litmus_lock_fits(const struct vb_litmus_lock *w, const struct vb_lock_ops *ops);
/* 0: gone through, out says how far and what was found.  -EINVAL: the schedule is none of this
 * world's; -ENOMEM; said. */
int vb_litmus_lock_run(const struct vb_litmus_lock *w, const struct vb_lock_ops *ops,
		       const struct vb_litmus_params *p, struct vb_litmus_result *out);

/* ---- transactions ---- */

struct vb_cc_ops;
struct vb_litmus_txn;
extern const struct vb_litmus_txn *const vb_litmus_txns[]; /* NULL at the end */
const char *vb_litmus_txn_name(const struct vb_litmus_txn *w);
const char *vb_litmus_txn_summary(const struct vb_litmus_txn *w);
/* As vb_litmus_lock_run; every protocol fits. */
int vb_litmus_txn_run(const struct vb_litmus_txn *w, const struct vb_cc_ops *cc,
		      const struct vb_litmus_params *p, struct vb_litmus_result *out);

#endif
