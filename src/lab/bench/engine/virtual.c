/* SPDX-License-Identifier: Apache-2.0 */
/* A run on the simulator: see virtual.h. */
#include "lab/bench/engine/virtual.h"

#include <errno.h>

#include "lab/bench/engine/progress.h"
#include "lab/run.h"
#include "task/task.h"

#define SLICES        50
#define START_NS      1000ull /* from the spawn of the clients to their first cycle */
#define DRAIN_STEP_NS 1000000ull

/* Everybody has been told to end. */
static bool ends_early(struct vb_bench_virtual *v)
{
	if (vb_interrupted)
		v->end->interrupted = true;
	return vb_interrupted || v->control->early || v->control->full;
}

/* Lets time pass until at_ns. */
static bool pass(struct vb_bench_virtual *v, uint64_t at_ns, uint64_t step_ns, const char *phase)
{
	uint64_t from = vb_sched_now(v->sched), now = from;

	while (now < at_ns) {
		uint64_t next = at_ns - now < step_ns ? at_ns : now + step_ns;
		int err = vb_sched_run(v->sched, (const bool *)&vb_interrupted, next);

		if (ends_early(v))
			return false;
		now = vb_sched_now(v->sched);
		if (err == -EDEADLK || v->stands_still(v->run, &v->pulse, now)) {
			v->explain(v->run, now);
			return false;
		}
		if (*v->life.all_finished)
			return true;
		vb_bench_progress_show((double)(now - from) / (double)(at_ns - from),
				       v->pulse.cycles, phase);
	}
	return true;
}

int vb_bench_virtual_start(struct vb_bench_virtual *v)
{
	v->control->t0_ns = vb_sched_now(v->sched) + START_NS;
	v->pulse.since_ns = v->control->t0_ns;
	return v->life.start(v->life.worker);
}

bool vb_bench_virtual_warm_up(struct vb_bench_virtual *v)
{
	return pass(v, v->control->t0_ns + v->warmup_ns, v->warmup_ns / 4 + 1, "warming up");
}

bool vb_bench_virtual_measure(struct vb_bench_virtual *v)
{
	bool on;

	v->life.measure(v->life.worker, true);
	on = pass(v, v->control->t0_ns + v->warmup_ns + v->duration_ns, v->duration_ns / SLICES + 1,
		  "measuring");
	v->life.measure(v->life.worker, false);
	return on;
}

void vb_bench_virtual_drain(struct vb_bench_virtual *v)
{
	const bool *all_finished = v->life.all_finished;
	uint64_t now = vb_sched_now(v->sched);

	*v->life.drain = true;
	v->pulse.since_ns = now;
	while (!*all_finished && !v->end->stalled) {
		int err = vb_sched_run(v->sched, all_finished, now + DRAIN_STEP_NS);

		if (*all_finished)
			break;
		now = vb_sched_now(v->sched);
		if (err == -EDEADLK || v->stands_still(v->run, &v->pulse, now))
			v->explain(v->run, now);
	}
	if (*all_finished)
		return;
	v->give_up(v->run);
	vb_sched_run(v->sched, all_finished, now + v->stall_ns);
}
