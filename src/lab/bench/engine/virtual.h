/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run on the simulator, whatever its clients do: one thread, virtual time.  The driver is the
 * scheduler's root: it lets virtual time pass in slices and looks in between whether the user wants
 * out.
 */
#ifndef VB_LAB_BENCH_ENGINE_VIRTUAL_H
#define VB_LAB_BENCH_ENGINE_VIRTUAL_H

#include "lab/bench/engine/clients.h"
#include "lab/bench/engine/session.h"

struct vb_bench_virtual {
	struct vb_sched *sched;
	struct vb_bench_control *control;
	struct vb_bench_end *end;
	struct vb_bench_life life; /* all clients */
	uint64_t warmup_ns, duration_ns;
	uint64_t stall_ns; /* how long clients that were told to give up may take */
	void *run;         /* for the calls below */
	bool (*stands_still)(void *run, struct vb_bench_pulse *pulse, uint64_t now_ns);
	/* Nothing moves: says in the result why, and that it stalled. */
	void (*explain)(void *run, uint64_t now_ns);
	/* Clients that wait are to wait no longer. */
	void (*give_up)(void *run);

	struct vb_bench_pulse pulse;
};

/* Starts the clients; the warm-up begins in a moment.  0 or -error, said. */
int vb_bench_virtual_start(struct vb_bench_virtual *v);
/* false: somebody wants an early end, or nobody will ever move again. */
bool vb_bench_virtual_warm_up(struct vb_bench_virtual *v);
/* The same for the measured span, after the warm-up. */
bool vb_bench_virtual_measure(struct vb_bench_virtual *v);
/* Every client finishes what it is in. */
void vb_bench_virtual_drain(struct vb_bench_virtual *v);

#endif
