/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbena bench lock: what its parts share.
 *
 *   plan.c    options, checked and turned into a plan
 *   client.c  what one client does: the same body on every fabric
 *   trace.c   what a client does that runs the transactions of a trace
 *   run.c     one lock on any fabric: what the engine asks of a run
 *   gather.c  its results on a network, brought together and judged
 *   tally.c   a run's tallies merged into numbers, and why it stands still
 *   report.c  the numbers as tables, JSON and .hgrm files
 *   elastic.c clients of servers that run already
 *   lock.c    lock after lock, and how it all ends
 *   hot.c     one hot lock, for another benchmark
 *
 * A run goes through the phases of bench/engine/run.h.  What counts is what completed while
 * measuring; the verbs counted are those posted while measuring, whosever cycle they belong to, so
 * that a lock that spends its verbs on attempts which never succeed shows it.
 *
 * Everything that outlives a killed worker process (tallies, what each client is doing) is flat and
 * lies in one mapping that the forked workers share with the parent.
 */
#ifndef VB_LAB_BENCH_LOCK_LOCK_H
#define VB_LAB_BENCH_LOCK_LOCK_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/hist.h"
#include "base/opt.h"
#include "check/lock/audit.h"
#include "check/lock/history.h"
#include "check/lock/record.h"
#include "lab/bench/engine/run.h"
#include "lab/bench/engine/table.h"
#include "lab/busy.h"
#include "lab/json.h"
#include "lock/observe.h"
#include "workload/micro.h"
#include "workload/trace.h"

/* In which order a transaction takes its locks. */
enum vb_bench_order { VB_BENCH_SORTED, VB_BENCH_AS_TRACED };
extern const char *const vb_bench_order_names[];

struct vb_bench_opts {
	VB_BENCH_COMMON; /* of a network's processes the first is the lock server */
	const char *lock, *lock_options;
	uint64_t locks, servers, server_threads, clients;
	const char *servers_said; /* a number, or who they are */
	const char *space, *key;  /* of those who run already */
	bool visible;
	const char *workload; /* "micro", a trace's name, or "trace:FILE" */
	const char *workload_options, *trace;
	const char *dist;
	double read_ratio, fail_rate;
	uint64_t rate;
	const char *think; /* as it was said; NULL: the workload's own */
	uint64_t think_ns, hold_ns, timeout_ns;
	int order; /* enum vb_bench_order */
	uint64_t pause_ns, retries, backoff_ns;
	double scan_rate;
	uint64_t scan_ns, data;
	bool fencing, no_audit, breakdown;
	const char *hgrm, *history;
};

#define VB_BENCH_LOCKS   64
#define VB_BENCH_CLIENTS 100000u

struct vb_bench_plan {
	struct vb_bench_opts o;                         /* with every default filled in */
	const struct vb_lock_ops *lock[VB_BENCH_LOCKS]; /* of each run */
	struct vb_micro micro;
	bool tracing; /* transactions of `trace` are run, and `micro` is not used */
	struct vb_trace trace;
	char trace_name[4096]; /* where o.workload points for --trace */
	/* Of servers that run already: how many, and their space beside what is in o. */
	unsigned hosts;
	char space_name[32]; /* "": the run's own */
	char *space_options; /* what o.lock_options is; malloc'ed */
	uint32_t drift_ppm;
};

/* Of so many nodes, or processes of a network, the first are servers.  How many have clients: the
 * others, or all if all are servers. */
static inline uint64_t vb_bench_with_clients(uint64_t all, uint64_t servers)
{
	return all > servers ? all - servers : all;
}

/* The option table's groups; opts is where they write. */
const struct vb_opt_group *vb_bench_lock_groups(struct vb_bench_opts *opts, unsigned *n);
/* 0, or -error, said in one line; nothing has been made yet. */
int vb_bench_plan(const void *opts, void *plan);
/* Why the lock cannot run the plan's trace, or NULL. */
const char *vb_bench_lacks_modes(const struct vb_bench_plan *plan, const struct vb_lock_ops *ops);
/* As struct vb_bench_subject has them; close also after vb_bench_plan has failed. */
void vb_bench_plan_put(FILE *to, void *plan);
int vb_bench_plan_nodes(void *plan);
void vb_bench_plan_close(void *plan);

/* ---- what is measured ---- */

enum vb_bench_lat {
	VB_LAT_ACQ_S,
	VB_LAT_ACQ_X,
	VB_LAT_RELEASE,
	VB_LAT_RESPONSE_S, /* open loop: from the intended start to the grant */
	VB_LAT_RESPONSE_X,
	VB_LAT_COUNT
};
extern const char *const vb_bench_lat_names[VB_LAT_COUNT];

/* Why a transaction gave its locks back and was not done. */
enum vb_bench_abort {
	VB_ABORT_TIMEOUT,  /* waited for a lock for --timeout */
	VB_ABORT_EXPIRED,  /* the lease of one of its locks ran out before the commit */
	VB_ABORT_CONFLICT, /* the protocol's deadlock policy turned it down */
	VB_ABORT_ERROR,    /* an acquire failed */
	VB_ABORT_CAUSES
};
extern const char *const vb_bench_abort_names[VB_ABORT_CAUSES];

/* Of the transactions of a trace, while measuring. */
struct vb_bench_txns {
	uint64_t committed, locks; /* and the locks that those had taken */
	uint64_t aborts[VB_ABORT_CAUSES];
	uint64_t given_up; /* aborted and not tried again */
	uint64_t died;     /* left their locks without a release (--fail-rate) */
};

/* Counters of a client at one moment; two of them make what was spent in between. */
struct vb_bench_meter {
	uint64_t verbs[VB_OP_COUNT];
	uint64_t retries, lost, recoveries, untold;
};

/* One per worker thread, which alone writes it. */
struct vb_bench_tally {
	uint64_t ops; /* cycles completed while measuring; of transactions, those that committed */
	uint64_t failed;    /* acquires that ended without a grant while measuring */
	uint64_t skipped;   /* releases left out on purpose (--fail-rate) */
	uint64_t uncertain; /* calls whose answer was lost: a lock may be held by nobody */
	struct vb_bench_meter spent;
	struct vb_fabric_stats fabric; /* of the worker's process, since it opened the fabric */
	struct vb_lock_timing timing;
	struct vb_bench_txns txns;
	/* So far sums. */
	uint64_t measured_ns; /* how long this worker has measured */
	uint64_t rtt_ns;      /* that its clients went by in the end, mean; of so many */
	uint64_t rtt_clients;
	double rate; /* merged: cycles per second, the workers' rates added up */
	double txn_rate;
	int last_error; /* of an acquire, where it is none of the expected ones */
	struct vb_hist lat[VB_LAT_COUNT];
	/* By type: from the first attempt to the commit, its releases not included. */
	struct vb_hist txn[VB_TRACE_TYPES_MAX];
};

enum vb_bench_doing { VB_DOING_IDLE, VB_DOING_ACQUIRE, VB_DOING_HOLD, VB_DOING_RELEASE };

/* What one client is doing. */
struct vb_bench_lock_state {
	struct vb_bench_state common;
	uint32_t doing; /* enum vb_bench_doing */
	uint32_t mode;
	uint64_t lock;
} VB_ALIGNED(64);

struct vb_bench_result {
	struct vb_bench_end end;
	const struct vb_lock_ops *ops;
	struct vb_bench_tally *tally;  /* merged; NULL if it did not run */
	struct vb_bench_meter servers; /* spent by lock servers while measuring */
	struct vb_audit_counts audit;
	bool audited;
	bool portable;       /* ran as its portable variant */
	uint64_t unfinished; /* clients still waiting for a lock when the measured span ended */
	uint64_t unfinished_max_ns; /* the longest of them had waited so long */
	uint64_t unaudited;         /* network: grants that were not kept for the audit */
	unsigned stalled_client;
	uint64_t stalled_lock;
	char *story; /* the auditor's, malloc'ed; NULL if there is none */
};

/* One lock under the plan, on a network in every process of the group, else without one; the root
 * has the result.  0 or -error, said; r is valid either way (r->end tells). */
int vb_bench_run_lock(struct vb_bench_plan *plan, struct vb_bench_group *group,
		      const struct vb_lock_ops *ops, struct vb_bench_result *r);
void vb_bench_result_free(void *result);

/* ---- clients ---- */

/* One client while it runs. */
struct vb_bench_client {
	struct vb_bench_body body;
	struct vb_bench_lock_run *u;
	struct vb_bench_lock_state *state;
	struct vb_lock_client *lock;
	struct vb_micro_client micro;
	struct vb_trace_client trace;
	struct vb_grant *held; /* [locks of a transaction]; NULL: no trace */
	void *data;            /* --data; NULL: none */
	struct vb_lock_timing timing;
};

extern const struct vb_bench_client_ops vb_bench_lock_client_ops;

/* What it notes while it goes on. */
void vb_bench_doing_set(struct vb_bench_lock_state *state, enum vb_bench_doing doing);
/* The acquire of one lock (timeout_ns 0: without one) that will be worked under for busy_ns, with
 * all that is noted of it, and its release.  Where the lock has longer leases it asks for one that
 * covers the work, if one lease may not.  *now_ns: when it begins (by the scheduler); when it has
 * ended. 0, or the call's error. */
int vb_bench_acquire(struct vb_bench_client *c, uint64_t lock, enum vb_mode mode, uint64_t busy_ns,
		     uint64_t timeout_ns, struct vb_grant *grant, uint64_t *now_ns);
int vb_bench_release(struct vb_bench_client *c, struct vb_grant *grant, uint64_t *now_ns);
int vb_bench_release_all(struct vb_bench_client *c, struct vb_grant *grants, unsigned n,
			 uint64_t *now_ns);

/* Clients that run the transactions of a trace. */
struct vb_bench_tracing {
	/* What a client needs for that.  0 or -error, said. */
	int (*open)(struct vb_bench_client *c);
	void (*close)(struct vb_bench_client *c);
	/* The client's next one, until it commits or is given up.  0; -ECANCELED: leave; else the
	 * error of an acquire that no other attempt would mend. */
	int (*transaction)(struct vb_bench_client *c);
};
extern const struct vb_bench_tracing vb_bench_tracing;
/* --data: a place for each lock, on its server.  0 or -error, said. */
int vb_bench_data_open(struct vb_bench_lock_run *u);

/* Bytes of segment that node's share of a run's locks needs. */
uint64_t vb_bench_node_bytes(const struct vb_bench_plan *plan, const struct vb_lock_ops *ops);

/* What a client learns of servers that run already, for its parent. */
struct vb_bench_learnt {
	uint64_t nodes, lease_ns, stall_ns, close_ns;
	bool portable;
	uint32_t ready; /* by the first worker, last */
};

/* One run, as its files share it. */
struct vb_bench_lock_run {
	struct vb_bench_run run;
	struct vb_bench_plan *plan;
	const struct vb_lock_ops *ops;
	struct vb_bench_result *r;
	struct vb_lock_space *space;
	vb_addr *data;                   /* [servers] what --data is for; NULL: none */
	struct vb_audit *audit;          /* NULL: none is wanted, or a network's */
	struct vb_lock_history *history; /* NULL: none is wanted */
	struct vb_json_out history_out;  /* whose path is NULL until it is open */
	struct vb_lock_server **server;  /* of this process */
	unsigned n_servers;
	struct vb_bench_meter servers_start;
	/* This process's clients. */
	const struct vb_bench_tracing *tracing; /* NULL: micro */
	struct vb_bench_tally *tally;
	struct vb_bench_meter meter_start;
	uint64_t measure_start_ns;
	unsigned sample_every; /* 1: time every cycle's phases; 0: none */
	/* Network. */
	struct vb_record *record;       /* NULL: no audit */
	struct vb_record_part *parts;   /* root: [processes] grants that have come */
	struct vb_bench_learnt *learnt; /* shared; NULL: the run has servers of its own */
};

extern const struct vb_bench_gather_ops vb_bench_lock_gather_ops;

/* ---- elastic.c: clients of servers that run already ---- */

/* --servers, --space and --key into the plan; then what depends on the number of processes.  -error,
 * said. */
int vb_bench_elastic_plan(struct vb_bench_plan *p);
int vb_bench_elastic_plan_nodes(struct vb_bench_plan *p);
/* In the parent: before workers are forked, when they have opened, in the end. */
int vb_bench_elastic_begin(struct vb_bench_lock_run *u);
void vb_bench_elastic_learn(struct vb_bench_lock_run *u);
void vb_bench_elastic_end(struct vb_bench_lock_run *u);
/* In a worker: the fabric, with the space that it names on it; and what the space is, when it is open.
 * -error, said. */
int vb_bench_elastic_open(struct vb_bench_lock_run *u, unsigned worker);
void vb_bench_elastic_show(struct vb_bench_lock_run *u, unsigned worker);

/* Processes with clients. */
unsigned vb_bench_workers(const struct vb_bench_plan *plan);
/* What tallies have beside sums and histograms. */
void vb_bench_lock_merge(void *into, const void *tally);
/* Of the only worker. */
void vb_bench_tally_rates(struct vb_bench_tally *t);

/* Of the clients' states: how many wait, and for how long at most. */
void vb_bench_unfinished(struct vb_bench_result *r, const struct vb_bench_lock_state *states,
			 unsigned n, uint64_t now_ns);
/* Fills r->end.stall: who died with what the others wait for. */
void vb_bench_explain_stall(struct vb_bench_result *r, const struct vb_bench_lock_state *states,
			    unsigned n, uint64_t now_ns);
/* Takes the auditor's counts and stories into the result. */
void vb_bench_take_audit(struct vb_bench_result *r, struct vb_audit *a);

/* ---- reports ---- */

/* As struct vb_bench_subject has them; a plan, and results. */
void vb_bench_print_head(FILE *to, const void *plan);
void vb_bench_print_row(FILE *to, const void *plan, const void *result);
void vb_bench_print_end(FILE *to, const void *plan, const void *results, unsigned n);
json_t *vb_bench_run_json(const void *plan, const void *result);
/* PREFIX.LOCK.WHAT.hgrm for each histogram that has values, if the plan wants them.  -errno,
 * said. */
int vb_bench_write_hgrm(const void *plan, const void *result);

/* Cycles per second of `procs` processes that take one lock on shm exclusively and do nothing else.  0
 * or -error, said. */
int vb_bench_hot_lock(const struct vb_lock_ops *ops, unsigned procs, uint64_t span_ns,
		      uint64_t seed, double *per_s);

/* The whole command: an enum vb_exit (lab/run.h). */
int vb_bench_lock(const struct vb_bench_opts *opts);

#endif
