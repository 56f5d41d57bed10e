/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Run after run of a benchmark, and how it all ends.
 *
 * A subject (locks, transactions) says what a run is and what came of it; the session keeps the
 * processes in step, prints rows as they come, writes the JSON and chooses the exit code.
 */
#ifndef VB_LAB_BENCH_ENGINE_SESSION_H
#define VB_LAB_BENCH_ENGINE_SESSION_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "lab/bench/engine/group.h"
#include "lab/busy.h"
#include "lab/json.h"

/* How a run ended: the first member of every subject's result. */
struct vb_bench_end {
	bool ran;
	const char *skipped; /* why it was not run, else NULL */
	bool interrupted, stalled;
	char stall[512]; /* why nothing moved any more */
	double wall_s;
	uint64_t deaths, dead_clients; /* workers killed while running, and their clients */
	int death_signal;
	char *died;              /* network: the first process that did, malloc'ed */
	uint64_t clock_error_ns; /* network: of the worst clock among the processes */
	uint64_t virtual_verbs;  /* sim: executed in all, warm-up and drain included */
	struct vb_busy load; /* of the machine meanwhile; of the root's, where there are several */
};

/* `plan` and `results` are the subject's own; what is optional may be NULL. */
struct vb_bench_subject {
	const char *unit; /* of what is counted, for the line of progress; NULL: cycles */
	size_t plan_bytes, result_bytes;
	/* Options, checked, become the plan, which begins with them.  0 or -error, said; free it
	 * either way. */
	int (*plan)(const void *opts, void *plan);
	void (*free_plan)(void *plan);
	/* Of a network: all that makes two runs different, a line for each; and what depends on how
	 * many processes there are, which session->o->cluster.procs says now. */
	void (*put_config)(FILE *to, void *plan);
	int (*plan_nodes)(void *plan);
	/* For the line of progress. */
	void (*name)(const void *plan, unsigned run, char *buf, size_t bytes);
	/* Optional: true if the run cannot be; the result then has the reason. */
	bool (*skip)(const void *plan, unsigned run, void *result);
	/* Does it, in every process of the group; only the root's result counts.  0 or -error, said;
	 * the result is valid either way. */
	int (*run)(void *plan, unsigned run, struct vb_bench_group *group, void *result);
	void (*print_head)(FILE *to, const void *plan);
	void (*print_row)(FILE *to, const void *plan, const void *result);
	/* Below all rows, if any of the runs has run. */
	void (*print_end)(FILE *to, const void *plan, const void *results, unsigned n);
	/* Says on stderr what its user must not overlook in a run. */
	void (*warn)(const void *plan, const void *result);
	/* Optional: files of a run beside the JSON.  -error, said. */
	int (*write)(const void *plan, const void *result);
	json_t *(*json)(const void *plan, const void *result);
	/* What names a run that was skipped. */
	json_t *(*json_name)(const void *result);
	/* A checker has found something; optional: something else went wrong while running. */
	bool (*violated)(const void *result);
	bool (*failed)(const void *result);
	void (*free_result)(void *result);
};

struct vb_bench_session {
	const struct vb_bench_subject *subject;
	void *plan;
	struct vb_bench_common *o;   /* the same */
	FILE *table;                 /* stdout; stderr where stdout carries a file */
	struct vb_bench_group group; /* network fabrics only */
	void *results;               /* [runs] */

	struct vb_json_out json;
	unsigned n;       /* runs begun */
	const char *lost; /* the last of them never came to run, because a process of it was lost */
	bool headed; /* the table's head is printed with its first row: after errors, not before */
};

/* The whole command; `quiet`: stdout carries a file.  Returns an enum vb_exit (lab/run.h). */
int vb_bench_session(const struct vb_bench_subject *subject, const void *opts, bool quiet);

#endif
