/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbena bench txn: what its parts share.
 *
 *   plan.c    options, checked and turned into a plan: which runs
 *   client.c  what one client does: the same body on every fabric
 *   watch.c   what transactions did, as histories
 *   run.c     one run on any fabric: database, tables, servers; what the engine asks of it
 *   served.c  which servers that run already, and which database of theirs
 *   elastic.c a run of clients of such
 *   tally.c   tallies and judgement
 *   dead.c    what killed processes have done last, and what they left locked
 *   gather.c  results and histories of a network, brought together
 *   report.c  the numbers as tables
 *   json.c    and as JSON
 *   txn.c     run after run, and how it all ends
 *
 * A *run* is one protocol with one hybrid code.  The tables are filled, then it goes through the
 * phases of bench/engine/run.h; in the end each client finishes the attempt that it is in.
 * What counts is what committed while measuring; verbs, primitives, aborts and times of stages are
 * those of the measured span, whosever transaction they belong to.  What the invariant needs is
 * counted from first to last.
 *
 * Everything that outlives a killed worker process (tallies, what each client is doing) is flat and
 * lies in one mapping that the forked workers share with the parent.
 */
#ifndef VB_LAB_BENCH_TXN_TXN_H
#define VB_LAB_BENCH_TXN_TXN_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/hist.h"
#include "base/opt.h"
#include "check/txn/serial.h"
#include "lab/bench/engine/run.h"
#include "lab/bench/engine/table.h"
#include "lab/busy.h"
#include "lab/json.h"
#include "lab/serve/serve.h"
#include "txn/epoch.h"
#include "workload/load.h"

#define VB_TBENCH_CLIENTS_MAX 16000u
#define VB_TBENCH_WORKERS_MAX 1024u
#define VB_TBENCH_CODE_MAX    VB_CODE_BYTES
#define VB_TBENCH_LOADS_MAX   8u

struct vb_tbench_opts {
	VB_BENCH_COMMON; /* of a network's processes each is a node */
	const char *cc, *hybrid, *workload;
	const char *servers, *database, *key; /* of those who run already */
	uint64_t threads, coroutines;
	bool no_doorbell, no_outstanding, passive_ack, no_breakdown;
	int recovery;  /* 0: on */
	int isolation; /* enum vb_isolation */
	uint64_t wait_ns, snapshot_lag_ns, hot_from, copies;
	bool check;
	uint64_t history_bytes;
	const char *history;
};

/* One protocol with one hybrid code. */
struct vb_tbench_one {
	const struct vb_cc_ops *cc;
	char code[VB_TBENCH_CODE_MAX]; /* as many digits as stages */
};

struct vb_tbench_plan {
	struct vb_tbench_opts o; /* with every default filled in */
	const struct vb_load_ops *load;
	const void *load_options;
	struct vb_tbench_one *run; /* [o.runs] */
	/* Of servers that run already: their database, as --database says it; else NULL. */
	const struct vb_serve_db *served;
};

/* The option tables' groups; opts is where they write.  The options of the workload that stands in
 * argv come first: two workloads may have an option of the same name. */
const struct vb_opt_group *vb_tbench_groups(struct vb_tbench_opts *opts, unsigned *n);
void vb_tbench_prefer(int argc, char **argv);
/* 0, or -error, said in one line; nothing has been made yet. */
int vb_tbench_plan(const void *opts, void *plan);
/* What depends on how many nodes there are; part of the plan unless only a launcher knows. */
int vb_tbench_plan_nodes(void *plan);
/* All that makes two runs different, line by line. */
void vb_tbench_plan_put(FILE *to, void *plan);
void vb_tbench_plan_free(void *plan);
/* Bytes of segment that each node needs for a run. */
uint64_t vb_tbench_node_bytes(const struct vb_tbench_plan *plan, const struct vb_tbench_one *one,
			      const struct vb_load *load);
void vb_tbench_db_params(const struct vb_tbench_plan *plan, const struct vb_tbench_one *one,
			 const struct vb_load *load, struct vb_db_params *p);

/* --servers, --database and --key into the plan; what --database says is refused elsewhere.  -error, said. */
int vb_tbench_served_plan(struct vb_tbench_plan *p);

static inline uint64_t vb_tbench_workers(const struct vb_tbench_plan *p)
{
	return p->served != NULL ? p->o.cluster.procs : p->o.nodes * p->o.threads;
}

static inline uint64_t vb_tbench_clients(const struct vb_tbench_plan *p)
{
	return vb_tbench_workers(p) * p->o.coroutines;
}

/* ---- what is measured ---- */

/* Counters of coordinators at one moment; two of them make what was spent in between.  Words
 * only. */
struct vb_tbench_meter {
	uint64_t commits, aborts[VB_TXN_CAUSES];
	uint64_t waits, calls, agents, recovered, lost_locks, near;
	uint64_t verbs[VB_OP_COUNT], prims[VB_PRIMS];
	struct vb_stage_time timed[VB_TIMED_MAX];
};

/* One per worker, which alone writes it. */
struct vb_tbench_tally {
	/* Of the measured span. */
	uint64_t commits[VB_LOAD_TYPES_MAX];
	uint64_t rolled_back[VB_LOAD_TYPES_MAX]; /* by the workload's own wish */
	uint64_t attempts_ns, useful_ns;         /* in all attempts, and in those that committed */
	uint64_t cpu_ns, tsc;
	struct vb_tbench_meter spent;
	/* Of the whole run. */
	uint64_t unknown;                    /* commits whose answer was lost */
	uint64_t errors;                     /* of the fabric */
	int64_t change[VB_LOAD_CHANGES_MAX]; /* out of the clients' books, when they have stopped */
	/* So far sums. */
	uint64_t measured_ns;
	int64_t last_error;
	char why[VB_LOAD_WHY]; /* a client saw what cannot be; "": none did */
	/* Merged: of all workers. */
	double rate;                           /* their rates added up */
	uint64_t span_ns;                      /* their measured spans added up */
	struct vb_hist lat[VB_LOAD_TYPES_MAX]; /* first begin to commit */
};

/*
 * What a client's committed transactions have added to the sums of the invariant, so that one that
 * is killed between any two instructions leaves it exact.  Of two rows one counts.  Before a commit
 * the other gets what counts once the commit has happened, and the name of the transaction is
 * noted; then one store of `state` says that it counts, or that it does not.  Who dies in between
 * leaves VB_BOOK_OPEN, and the status word in its place tells (vb_tbench_book_close_for).
 */
struct vb_tbench_book {
	int64_t row[2][VB_LOAD_CHANGES_MAX];
	uint64_t ts;    /* of the transaction whose commit is under way */
	uint32_t place; /* of that */
	uint32_t state; /* bit 0: the row that counts; VB_BOOK_OPEN */
};
#define VB_BOOK_OPEN 2u

/* What one client is doing. */
struct vb_tbench_state {
	struct vb_bench_state common; /* its cycles: commits */
	uint32_t tries;               /* of the transaction that it tries now; 0: none */
	uint32_t cause;               /* of the last abort */
	uint32_t type;
	uint32_t place; /* the first of its coordinator's places */
	struct vb_tbench_book book;
} VB_ALIGNED(64);

/* Of the whole run, by servers of all nodes: see struct vb_seq_line. */
struct vb_tbench_epochs {
	uint64_t epochs, batched, told, forwards, barrier_ns, left_out;
};

struct vb_tbench_result {
	struct vb_bench_end end;
	const struct vb_tbench_plan *plan;
	const struct vb_tbench_one *one;
	struct vb_tbench_tally *tally; /* merged; NULL if it did not run */
	bool history_full, tables_full, sealed;
	uint64_t lease_ns;
	uint64_t wait_ns;                  /* of VB_CC_BOUNDED; else 0 */
	uint32_t hot_from;                 /* of VB_CC_HEATS; else 0 */
	uint64_t snapshot_lag_ns;          /* of VB_CC_SNAPSHOTS; else 0 */
	struct vb_tbench_epochs sequenced; /* of VB_CC_SEQUENCED */
	double fill_s;
	uint64_t records;
	uint64_t dead_servers; /* of the workers killed, how many were a node's server */
	/* Dead clients whose last commit had happened, though it was not said; those whose commit
	 * was under way and had not; those of whom nobody can tell: no recovery. */
	uint64_t last_committed, last_undone, last_unclear;
	uint64_t swept; /* locks of the dead that were left for the parent at the end */
	/* Verdicts. */
	bool checked;
	struct vb_serial_result serial;
	const char *unjudged; /* why the invariant could not be judged, else NULL */
	bool judged, broken;
	char why[VB_LOAD_WHY];
};

/* What every transaction of the run claims. */
static inline enum vb_level vb_tbench_level(const struct vb_tbench_result *r)
{
	static const enum vb_level weak[VB_ISOLATIONS] = {
		[VB_REPEATABLE_READ] = VB_LEVEL_REPEATABLE_READ,
		[VB_READ_COMMITTED] = VB_LEVEL_READ_COMMITTED,
		[VB_SNAPSHOT] = VB_LEVEL_SNAPSHOT,
	};

	if (r->plan->o.isolation != VB_SERIALIZABLE)
		return weak[r->plan->o.isolation];
	return r->one->cc->caps & VB_CC_STRICT ? VB_LEVEL_STRICT : VB_LEVEL_SERIALIZABLE;
}

/* ---- histories ---- */

/* Of one worker: what its coordinators do goes to one history.  Everything in it that a dead worker
 * leaves lies in shared memory. */
struct vb_tbench_recorder {
	struct vb_txn_watch watch; /* its ctx is this struct */
	struct vb_history *history;
	char *prepared; /* for each client a transaction that may have committed; shared */
	size_t prepared_bytes, each;
	unsigned worker, clients;
	uint64_t *made; /* by each client, so far: ids */
	size_t used, room;
	uint32_t *full; /* of the control block */
};

/* first: number of the worker's first client.  -ENOMEM, said. */
int vb_tbench_recorder_open(struct vb_tbench_recorder *r, const struct vb_tbench_plan *plan,
			    unsigned items, unsigned worker, unsigned clients, uint32_t *full);
/* In the parent, after the worker has gone and before anybody gives up its places: what it had
 * prepared and has committed. */
void vb_tbench_recorder_bury(struct vb_tbench_recorder *r, const struct vb_db *db);
void vb_tbench_recorder_close(struct vb_tbench_recorder *r);

/* ---- clients ---- */

/* One client while it runs. */
struct vb_tbench_client {
	struct vb_bench_body body;
	struct vb_tbench_run *u;
	struct vb_tbench_state *state;
	struct vb_coordinator *me;
	struct vb_load_client load;
	unsigned timeless; /* transactions in a row that took no time */
};

/* They may be at several nodes (sim), of which each has plan.threads * plan.coroutines in a row. */
extern const struct vb_bench_client_ops vb_tbench_client_ops;

/* ---- a run ---- */

/* On a network in every process of the group, of which the root has the result.  0 or -error, said;
 * r is valid either way (r->end tells). */
int vb_tbench_run_one(struct vb_tbench_plan *plan, struct vb_bench_group *group,
		      const struct vb_tbench_one *one, struct vb_tbench_result *r);

/* One run, as its files share it. */
struct vb_tbench_run {
	struct vb_bench_run run;
	struct vb_tbench_plan *plan;
	const struct vb_tbench_one *one;
	struct vb_tbench_result *r;
	struct vb_load load;
	struct vb_db *db;
	struct vb_db_server **server;         /* [nodes]; NULL: not in this process */
	struct vb_tbench_recorder *recorders; /* NULL without --check */
	unsigned n_recorders;
	uint64_t *filled; /* shm: records in place, shared */
	/* This process's clients. */
	struct vb_tbench_tally *tally;
	struct vb_tbench_meter meter_start;
	uint64_t start_ns, start_cpu_ns, start_tsc;
	/* Clients of servers that run already: what is learnt of those, shared; and a history of what was there before,
	 * if one is wanted. */
	struct vb_tbench_learnt *learnt;
	struct vb_history *before;
	uint64_t *clocks; /* of each coordinator's place, before the run; shared */
	/* A network's root: of all processes. */
	struct vb_load_sums sums;
	struct vb_history **histories;
};

extern const struct vb_bench_gather_ops vb_tbench_gather_ops;

/* ---- elastic.c: clients of servers that run already ---- */

/* In the parent: before workers are forked (0 or -error, said); when all have gone, the invariant, and whether the run
 * had the database for itself; in the end. */
int vb_tbench_elastic_begin(struct vb_tbench_run *u);
bool vb_tbench_elastic_judge(struct vb_tbench_run *u);
void vb_tbench_elastic_end(struct vb_tbench_run *u);
/* In a worker: fabric, database and tables.  0 or -error, said. */
int vb_tbench_elastic_join(struct vb_tbench_run *u);
void vb_tbench_elastic_leave(struct vb_tbench_run *u);

void vb_tbench_result_free(void *result);

static inline uint64_t vb_tbench_sum(const uint64_t *words, unsigned n)
{
	uint64_t s = 0;

	for (unsigned i = 0; i < n; i++)
		s += words[i];
	return s;
}

/* Of every type, in the measured span. */
static inline uint64_t vb_tbench_commits(const struct vb_tbench_tally *t)
{
	return vb_tbench_sum(t->commits, VB_LOAD_TYPES_MAX);
}

/* What tallies have beside sums and histograms. */
void vb_tbench_merge(void *into, const void *tally);

/* Fills r->end.stall. */
void vb_tbench_explain_stall(struct vb_tbench_result *r, const struct vb_tbench_state *states,
			     unsigned n, uint64_t now_ns);
/* After everybody has stopped: the invariant, on all nodes, whose memory this process reaches. */
void vb_tbench_judge(struct vb_tbench_result *r, const struct vb_load *load,
		     const struct vb_db *db);
/* Adds what the servers of a node have counted; 0 where the protocol has no epochs. */
void vb_tbench_note_epochs(struct vb_tbench_epochs *e, const struct vb_db *db, uint16_t node);
/* The same where the nodes' records have been added up already. */
void vb_tbench_judge_sums(struct vb_tbench_result *r, const struct vb_load *load,
			  const struct vb_load_sums *sums);
/* The checker, on all workers' histories; writes --history too.  0 or -error, said. */
int vb_tbench_check(struct vb_tbench_result *r, const struct vb_load *load,
		    const struct vb_history *const *parts, unsigned n);

/* ---- the dead ---- */

/* Adds what the clients' transactions have changed to the tally, when everybody has stopped. */
void vb_tbench_take_books(struct vb_tbench_tally *t, const struct vb_tbench_state *states,
			  unsigned n);
/* Whether transaction `ts` of a place of the dead has committed.  Memory outlives them, the
 * database keeps status words (db->status), and nobody has given up the place yet. */
bool vb_tbench_has_committed(const struct vb_db *db, uint32_t place, uint64_t ts);
/* Of a client that is dead, while nobody has given up its place: did its last commit happen? */
void vb_tbench_book_close_for(struct vb_tbench_result *r, const struct vb_db *db,
			      struct vb_tbench_state *state);
/* When all workers have gone: what the dead still hold is rolled back or forward.  0 or -error,
 * said. */
int vb_tbench_sweep(struct vb_tbench_result *r, struct vb_db *db);
/* Adds to r->end.stall what dead clients hold, and who they are. */
void vb_tbench_name_holders(struct vb_tbench_result *r, const struct vb_db *db,
			    const struct vb_tbench_state *states, unsigned n);

/* ---- reports ---- */

/* As struct vb_bench_subject has them; a plan, and results. */
void vb_tbench_print_head(FILE *to, const void *plan);
void vb_tbench_print_row(FILE *to, const void *plan, const void *result);
/* What a row has no room for: latency by type, times of stages. */
void vb_tbench_print_end(FILE *to, const void *plan, const void *results, unsigned n);
json_t *vb_tbench_json(const void *plan, const void *result);

/* The whole command: an enum vb_exit (lab/run.h). */
int vb_bench_txn(const struct vb_tbench_opts *opts);

#endif
