/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One run of a benchmark, on whichever fabric, whatever its clients do.
 *
 *   session.c   run after run, and how it all ends
 *   options.c   options of all benchmarks
 *   drive.c     one run, by the driver of its fabric
 *   run.c       what drivers share: memory, the clients of a thread, does anything move
 *   virtual.c   on the simulator: one thread, virtual time
 *   workers.c   on shared memory: worker processes, their life and death
 *   group.c     processes on a network: how they come together
 *   phases.c    and pass through a run in step
 *   gather.c    and bring what came of it to the root
 *   servers.c   servers that run already, whose client the benchmark is
 *   process.c   a forked process, and memory shared with it
 *   progress.c  a line about how far it is
 *   table.c     columns of all tables
 *
 * A run goes through phases: clients start, *warm up*, are *measured* for the duration, and are
 * then *drained*: told to begin nothing more, while each finishes what it is in.
 *
 * A subject (locks, transactions) brings a const struct vb_bench_run_ops, and structs of its own
 * that begin with those of the engine: run, client and client's state.
 */
#ifndef VB_LAB_BENCH_ENGINE_RUN_H
#define VB_LAB_BENCH_ENGINE_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "lab/bench/engine/group.h"
#include "lab/bench/engine/options.h"
#include "lab/bench/engine/session.h"
#include "task/task.h"

/* A history, or the workload's tables; both are possible. */
enum vb_bench_full { VB_BENCH_FULL_HISTORY = 1, VB_BENCH_FULL_TABLES = 2 };

/* Shared by everybody in a run. */
struct vb_bench_control {
	uint64_t t0_ns; /* scheduler's time base: the warm-up starts */
	uint32_t ready; /* workers that have opened their clients */
	uint32_t go;
	uint32_t early; /* end now: no more cycles */
	uint32_t full;  /* enum vb_bench_full, who has no more room: the same */
	uint32_t leave; /* close clients and go */
	int32_t failed; /* a worker could not start: -error */
} VB_ALIGNED(64);

/* What one client is doing; written by its owner, read by others when something is wrong. */
struct vb_bench_state {
	uint64_t cycles;   /* all, also outside of the measured span: progress */
	uint64_t since_ns; /* of what it is in now */
	int32_t pid;
	uint32_t finished; /* has left its loop */
	uint32_t dead;     /* its process was killed; set by the parent */
};

/* One client while it runs. */
struct vb_bench_body {
	struct vb_task *task; /* NULL: it has left its loop */
	unsigned index;       /* of all clients of the run */
};

/* The clients of this process, which has one thread. */
struct vb_bench_thread {
	void *clients;
	unsigned n, running;
	bool measuring;
	bool drain;        /* no more cycles */
	bool all_finished; /* every client has left its loop */
};

/* Whether anything moves: cycles complete (transactions commit), or nobody waits for them to. */
struct vb_bench_pulse {
	uint64_t cycles, since_ns;
};

struct vb_bench_run;

/*
 * A subject's part in a run.  What is optional may be NULL.  Where an int is returned: 0, or -error,
 * which was said.
 */

/* What one client does, and the clients of one thread. */
struct vb_bench_client_ops {
	size_t bytes, state_bytes;
	int (*open)(struct vb_bench_run *run, void *client, void *state);
	/* With a task it is in the middle of a call that does not end: there is nothing left to be
	 * orderly about. */
	void (*close)(void *client);
	/* The client's task; ends with vb_bench_client_left. */
	void (*body)(void *client);
	/* The measured span of this process's clients begins or ends now. */
	void (*measure)(struct vb_bench_run *run, bool on);
	/* Brings what is counted of them up to date: of a killed worker it is then known but for
	 * the last slice. */
	void (*flush)(struct vb_bench_run *run);
	/* Optional: does the client wait for others?  Else it always does. */
	bool (*waits)(const void *state);
	/* Optional: before clients are told to give up. */
	void (*give_up)(struct vb_bench_run *run);
};

/* A network's results on their way to the root (gather.c), which believes nothing that it has not
 * checked.  What a process reports: a struct of the subject's that begins with a struct
 * vb_bench_report, and then its clients' states. */
struct vb_bench_gather_ops {
	const char *pieces_name;
	size_t report_bytes;
	void (*report)(struct vb_bench_run *run, void *report, int64_t offset_ns);
	/* -EPROTO, said: nobody can have sent that. */
	int (*take_report)(struct vb_bench_run *run, uint32_t rank, const void *report);
	bool (*state_is_sane)(const struct vb_bench_run *run, const void *state);
	/* The next piece of what is too large for a report: its bytes, and how many such calls
	 * there will be at most. */
	uint64_t (*pieces)(const struct vb_bench_run *run);
	size_t (*pack)(struct vb_bench_run *run, uint64_t *at, void *to);
	int (*take_piece)(struct vb_bench_run *run, uint32_t rank, const void *report,
			  const void *data, size_t bytes);
	/* At the root; reports[rank] is NULL of who is dead. */
	int (*judge)(struct vb_bench_run *run, const void *const *reports);
};

struct vb_bench_run_ops {
	const struct vb_bench_client_ops *client;
	const struct vb_bench_gather_ops *gather;
	/* A tally begins with so many bytes of words that are added up when tallies are merged, and
	 * ends with histograms, from hists_at on; merge sees to what is in between. */
	size_t tally_bytes, sums_bytes, hists_at;
	void (*merge)(void *into, const void *tally);
	bool parent_serves; /* shm: the workers' parent has servers; else the workers have them */

	/* Opens what the clients need: in the only process, in the parent of the workers, or in
	 * every process of the group, which agree.  Fills in run->fabric, and the bounds as far as
	 * it knows them. */
	int (*open)(struct vb_bench_run *run);
	void (*close)(struct vb_bench_run *run);
	/* The same in a process with clients, before they are opened and after they are closed;
	 * close is optional, and only for workers of shm. */
	int (*worker_open)(struct vb_bench_run *run, unsigned worker);
	void (*worker_close)(struct vb_bench_run *run);
	/* Optional: while the workers of shm open, after each slice of time. */
	void (*opening)(struct vb_bench_run *run);
	/* Optional: when all workers of shm have opened. */
	void (*opened)(struct vb_bench_run *run);

	/* Optional: the measured span of this process's servers begins or ends now. */
	void (*meter)(struct vb_bench_run *run, bool on);
	/* The span is over, and nobody drained yet. */
	void (*measured)(struct vb_bench_run *run, uint64_t now_ns);

	/* Nothing moves: says in the result why. */
	void (*explain)(struct vb_bench_run *run, uint64_t now_ns);
	/* Optional, at a network's root: its user wants to know what goes on. */
	void (*look)(void *run);
	/* shm: a client was killed; a worker has gone that was killed by `signal`, or by us (0). */
	void (*client_died)(struct vb_bench_run *run, unsigned client);
	void (*worker_died)(struct vb_bench_run *run, unsigned worker, int signal);
	/* Everybody has stopped: what came of it, judged.  Not on a network. */
	int (*judge)(struct vb_bench_run *run);
};

/* For the log: from now on every process of the run is in the middle of it. */
#define VB_BENCH_MEASURING "all clients run: measuring"

#define VB_BENCH_PIECE (VB_CLUSTER_PART_MAX / 2) /* bytes at the most */

struct vb_bench_report {
	uint64_t clock_error_ns, states, interrupted;
};

struct vb_bench_run {
	/* Filled in by who runs it. */
	const struct vb_bench_run_ops *ops;
	const struct vb_bench_common *o;
	struct vb_bench_end *end;
	void *tally;                  /* the result's, which all are merged into */
	struct vb_bench_group *group; /* NULL, unless it is a network's */
	unsigned clients, workers;    /* of all; those who have clients */
	bool in_rows; /* a worker's clients have numbers in a row; else every workers-th is its */
	bool server_only;      /* network: this process has no clients */
	unsigned first_worker; /* network: the first rank that has */
	/* By ops->open. */
	struct vb_fabric *fabric;
	uint64_t stall_ns; /* without any cycle for so long it stands still */
	uint64_t close_ns; /* how long closing a client takes at most */

	/* The drivers'. */
	int kind; /* enum vb_bench_fabric */
	struct vb_sched *sched;
	struct vb_bench_control *control;
	struct vb_bench_thread thread;
	void *states, *kept; /* [clients]; kept: as they were when clients were told to give up */
	void *tallies;       /* of each worker; on the simulator the result's is the only one */
	unsigned n_tallies;
	struct vb_bench_pulse pulse;
	double open_s;  /* shm: until all workers were ready */
	unsigned stuck; /* shm: workers that did not close their clients */
	int dead;       /* network: the first rank that died or fell silent, or -1 */
	bool cut_short; /* network: somebody's user wanted an end */
};

/* The whole.  0 or -error, said; run->end is valid either way. */
int vb_bench_run_do(struct vb_bench_run *run);

/* ---- for the drivers ---- */

int vb_bench_run_virtual(struct vb_bench_run *run);
int vb_bench_run_workers(struct vb_bench_run *run);
int vb_bench_run_group(struct vb_bench_run *run);
/* Collective: everything comes together at the root, which judges it. */
int vb_bench_run_gather(struct vb_bench_run *run, bool stalled);

void *vb_bench_state_of(const struct vb_bench_run *run, unsigned client);
void *vb_bench_tally_of(const struct vb_bench_run *run, unsigned worker);
/* Into the result's. */
void vb_bench_tally_merge(struct vb_bench_run *run, const void *tally);
/* How many clients a worker has, and the number of its i-th. */
unsigned vb_bench_clients_of(const struct vb_bench_run *run, unsigned worker);
unsigned vb_bench_client_of(const struct vb_bench_run *run, unsigned worker, unsigned i);

/* What drivers share, and then ops->open; `tallies`: 0: the result's does. */
int vb_bench_run_open(struct vb_bench_run *run, unsigned tallies);
/* This thread's clients. */
int vb_bench_thread_open(struct vb_bench_run *run, unsigned worker);
int vb_bench_thread_start(struct vb_bench_run *run);
/* Clients that wait are to wait no longer. */
void vb_bench_thread_give_up(struct vb_bench_run *run);
/* Once more is harmless. */
void vb_bench_thread_close(struct vb_bench_run *run);
/* The measured span of this process begins or ends now. */
void vb_bench_run_measure(struct vb_bench_run *run, bool on);
/* Of a client, last. */
void vb_bench_client_left(struct vb_bench_run *run, struct vb_bench_body *c,
			  struct vb_bench_state *s);

/* Cycles so far, and whether anybody waits. */
uint64_t vb_bench_run_cycles(const struct vb_bench_run *run, bool *waiting);
bool vb_bench_run_stands_still(struct vb_bench_run *run, uint64_t now_ns);
void vb_bench_run_explain(struct vb_bench_run *run, uint64_t now_ns);
/* Has every client that lives finished? */
bool vb_bench_run_finished(const struct vb_bench_run *run);

/* ---- for subjects ---- */

/* A client whose work fails so often in a row, other than as it may, gives up: a server is gone. */
#define VB_BENCH_ERRORS_IN_A_ROW 100
/* After so many it waits so long: a server that stands still for a second, or a cable, comes back. */
uint64_t vb_bench_error_nap_ns(unsigned errors);
/* So many in so long, a second. */
double vb_bench_rate(uint64_t n, uint64_t ns);

/* Structs of nothing but counters, word by word. */
#define vb_bench_add(into, from)      vb_bench_words(into, from, sizeof(*(into)), 1)
#define vb_bench_subtract(from, what) vb_bench_words(from, what, sizeof(*(from)), UINT64_MAX)
void vb_bench_words(void *into, const void *from, size_t bytes, uint64_t times);

#endif
