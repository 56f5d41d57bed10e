/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clients of a run, as those see them who move them through its phases, whatever they do.
 *
 *   session.c   run after run, and how it all ends
 *   options.c   options of all benchmarks
 *   virtual.c   a run on the simulator
 *   group.c     processes on a network: how they come together
 *   phases.c    and pass through a run in step
 *   workers.c   worker processes on shared memory: their life
 *   process.c   a forked process, and memory shared with it
 *   progress.c  a line about how far it is
 *   table.c     columns of all tables
 *
 * A run goes through phases: clients start, *warm up*, are *measured* for the duration, and are
 * then *drained*: told to begin nothing more, while each finishes what it is in.
 */
#ifndef VB_LAB_BENCH_ENGINE_CLIENTS_H
#define VB_LAB_BENCH_ENGINE_CLIENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

/* Shared by everybody in a run. */
struct vb_bench_control {
	uint64_t t0_ns; /* scheduler's time base: the warm-up starts */
	uint32_t ready; /* workers that have opened their clients */
	uint32_t go;
	uint32_t early; /* end now: no more cycles */
	uint32_t full;  /* a history has no more room: the same */
	uint32_t leave; /* close clients and go */
	int32_t failed; /* a worker could not start: -error */
} VB_ALIGNED(64);

/* The clients of one thread. */
struct vb_bench_life {
	void *worker;
	bool *drain;              /* no more cycles */
	const bool *all_finished; /* every client has left its loop */
	/* Spawns the clients' tasks. */
	int (*start)(void *worker);
	/* The measured span begins or ends now. */
	void (*measure)(void *worker, bool on);
	/* Brings what is counted up to date: of a killed worker it is then known but for the last
	 * slice. */
	void (*flush)(void *worker);
};

/* Whether anything moves: cycles complete (transactions commit), or nobody waits for them to. */
struct vb_bench_pulse {
	uint64_t cycles, since_ns;
};

#endif
