/* SPDX-License-Identifier: Apache-2.0 */
/* A run from its beginning to its end, by the driver of its fabric: see run.h. */
#include "lab/bench/engine/run.h"

#include "base/clock.h"
#include "lab/bench/engine/process.h"

static void run_close(struct vb_bench_run *run)
{
	vb_bench_thread_close(run);
	run->ops->close(run);
	vb_bench_unshare(run->tallies, run->n_tallies * run->ops->tally_bytes);
	vb_bench_unshare(run->kept, run->clients * run->ops->client->state_bytes);
	vb_bench_unshare(run->states, run->clients * run->ops->client->state_bytes);
	vb_bench_unshare(run->control, sizeof(*run->control));
}

int vb_bench_run_do(struct vb_bench_run *run)
{
	uint64_t wall = vb_clock_gettime_ns();
	int err;

	run->kind = run->o->fabric;
	run->dead = -1;
	if (!vb_bench_in_group(run->o))
		run->group = NULL;
	if (run->kind == VB_BENCH_SIM)
		run->workers = 1;
	if (vb_bench_in_group(run->o))
		err = vb_bench_run_group(run);
	else
		err = run->kind == VB_BENCH_SIM ? vb_bench_run_virtual(run)
						: vb_bench_run_workers(run);
	run_close(run);
	run->end->wall_s = (double)(vb_clock_gettime_ns() - wall) / 1e9;
	return err;
}
