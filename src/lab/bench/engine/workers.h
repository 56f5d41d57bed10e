/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker processes of a run on shared memory, whatever their clients do: how they are forked,
 * pass through the phases, are watched over by the parent, die and are killed.
 *
 * Order of ending: every worker ends its measured span and lets its clients finish what they are
 * in; nobody closes a client before all have finished, because who has not may still need the
 * others.  Then the parent says leave.
 */
#ifndef VB_LAB_BENCH_ENGINE_WORKERS_H
#define VB_LAB_BENCH_ENGINE_WORKERS_H

#include <sys/types.h>

#include "lab/bench/engine/clients.h"

struct vb_bench_forks_ops {
	/* In the worker: opens its clients and says how to move them.  -error, said. */
	int (*open)(void *run, unsigned worker, struct vb_bench_life *out);
	/* In the worker: closes them. */
	void (*close)(void *run);

	/* In the parent: lets a slice of time pass. */
	void (*pass)(void *run, uint64_t slice_ns);
	/* While workers open, after each slice; NULL: nothing is to be shown. */
	void (*opening)(void *run);
	/* A worker has gone that was killed by `signal`, or by us (0). */
	void (*died)(void *run, unsigned worker, pid_t pid, int signal);
	/* Has every client that lives finished? */
	bool (*all_finished)(const void *run);
	/* Does nothing move any more?  Then the result has the reason.  Not asked while a worker is
	 * stopped. */
	bool (*stands_still)(void *run, struct vb_bench_pulse *pulse, uint64_t now_ns);
};

struct vb_bench_forks {
	const struct vb_bench_forks_ops *ops;
	void *run;
	struct vb_bench_control *control; /* shared with the workers */
	unsigned workers;                 /* to be forked */
	uint64_t warmup_ns, duration_ns;

	unsigned forked, alive;
	pid_t *pids;          /* 0: gone */
	uint64_t *stopped_ns; /* when the worker was stopped; 0: it is not */
	int death_signal;     /* of who was killed last; 0: nobody was */
	bool interrupted;     /* the user wants an end */
	struct vb_bench_pulse pulse;
};

/*
 * Forks the workers and waits until each has opened its clients.  0; -EINTR: the user wants an end;
 * another -error: said.  Kill them either way in the end.
 */
int vb_bench_forks_start(struct vb_bench_forks *f);
/* Lets the clients start.  Returns when the warm-up begins, which is in a moment. */
uint64_t vb_bench_forks_go(struct vb_bench_forks *f);
/* Until at_ns, or until every client that lives has finished; true if nothing came in between. */
bool vb_bench_forks_watch(struct vb_bench_forks *f, uint64_t at_ns, const char *phase);
/* Everybody has finished: workers close their clients and go.  Returns how many have not after so
 * long, and were killed. */
unsigned vb_bench_forks_leave(struct vb_bench_forks *f, uint64_t bound_ns);
/* Kills who is left; harmless when nobody is. */
void vb_bench_forks_kill(struct vb_bench_forks *f);

#endif
