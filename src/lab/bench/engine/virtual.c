/* SPDX-License-Identifier: Apache-2.0 */
/* A run on the simulator: one thread, virtual time.  The driver is the scheduler's root: it lets
 * virtual time pass in slices and looks in between whether the user wants out. */
#define VB_LOG_ROOM "bench"
#include "lab/bench/engine/run.h"

#include <errno.h>

#include "fabric/sim/sim.h"
#include "lab/bench/engine/progress.h"
#include "lab/run.h"

#define SLICES        50
#define START_NS      1000ull /* from the spawn of the clients to their first cycle */
#define DRAIN_STEP_NS 1000000ull

/* Everybody has been told to end. */
static bool ends_early(struct vb_bench_run *run)
{
	if (vb_interrupted)
		run->end->interrupted = true;
	return vb_interrupted || run->control->early || run->control->full;
}

/* Lets time pass until at_ns; false: somebody wants an early end, or nobody will ever move again. */
static bool pass(struct vb_bench_run *run, uint64_t at_ns, uint64_t step_ns, const char *phase)
{
	uint64_t from = vb_sched_now(run->sched), now = from;

	while (now < at_ns) {
		uint64_t next = at_ns - now < step_ns ? at_ns : now + step_ns;
		int err = vb_sched_run(run->sched, (const bool *)&vb_interrupted, next);

		if (ends_early(run))
			return false;
		now = vb_sched_now(run->sched);
		if (err == -EDEADLK || vb_bench_run_stands_still(run, now)) {
			vb_bench_run_explain(run, now);
			return false;
		}
		if (run->thread.all_finished)
			return true;
		vb_bench_progress_show((double)(now - from) / (double)(at_ns - from),
				       run->pulse.cycles, phase);
	}
	return true;
}

static int start(struct vb_bench_run *run)
{
	run->sched = vb_sched_self();
	run->control->t0_ns = vb_sched_now(run->sched) + START_NS;
	run->pulse.since_ns = run->control->t0_ns;
	return vb_bench_thread_start(run);
}

static void measure(struct vb_bench_run *run)
{
	uint64_t begin = run->control->t0_ns + run->o->warmup_ns;

	if (pass(run, begin, run->o->warmup_ns / 4 + 1, "warming up")) {
		vb_bench_run_measure(run, true);
		pass(run, begin + run->o->duration_ns, run->o->duration_ns / SLICES + 1,
		     "measuring");
		vb_bench_run_measure(run, false);
	}
	run->ops->measured(run, vb_sched_now(run->sched));
}

/* Every client finishes what it is in. */
static void drain(struct vb_bench_run *run)
{
	const bool *all_finished = &run->thread.all_finished;
	uint64_t now = vb_sched_now(run->sched);

	run->thread.drain = true;
	run->pulse.since_ns = now;
	while (!*all_finished && !run->end->stalled) {
		int err = vb_sched_run(run->sched, all_finished, now + DRAIN_STEP_NS);

		if (*all_finished)
			break;
		now = vb_sched_now(run->sched);
		if (err == -EDEADLK || vb_bench_run_stands_still(run, now))
			vb_bench_run_explain(run, now);
	}
	if (*all_finished)
		return;
	vb_bench_thread_give_up(run);
	vb_sched_run(run->sched, all_finished, now + run->stall_ns);
}

int vb_bench_run_virtual(struct vb_bench_run *run)
{
	int err = vb_bench_run_open(run, 0);

	if (err == 0)
		err = vb_bench_thread_open(run, 0);
	if (err == 0)
		err = start(run);
	if (err == 0) {
		run->end->ran = true;
		measure(run);
		drain(run);
		run->end->virtual_verbs = vb_sim_verbs(run->fabric);
		/* What a client has posted without waiting is in place when it has gone. */
		vb_bench_thread_close(run);
		err = run->ops->judge(run);
	}
	if (err == 0)
		err = run->control->failed;
	return err == -EINTR && run->end->interrupted ? 0 : err;
}
