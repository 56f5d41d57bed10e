/* SPDX-License-Identifier: Apache-2.0 */
/* One run of transactions on the simulator (bench/engine/virtual.c).  The nodes' servers are tasks
 * too. */
#define VB_LOG_ROOM "bench"
#include "lab/bench/txn/txn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "fabric/sim/sim.h"
#include "lab/bench/engine/progress.h"
#include "lab/bench/engine/virtual.h"
#include "lab/run.h"

struct sim_run {
	const struct vb_tbench_plan *plan;
	struct vb_tbench_result *r;
	struct vb_tbench_ground ground;
	struct vb_tbench_recorder recorder;
	struct vb_db_server **server;
	struct vb_bench_control control;
	struct vb_tbench_seat *seats;
	struct vb_tbench_worker worker;
	struct vb_sched *sched;
	struct vb_bench_virtual virtual;
};

static bool stands_still(void *run, struct vb_bench_pulse *pulse, uint64_t now)
{
	struct sim_run *u = run;

	return vb_tbench_standstill(pulse, u->seats, vb_tbench_clients(u->plan), now,
				    u->virtual.stall_ns);
}

static void explain(void *run, uint64_t now)
{
	struct sim_run *u = run;

	vb_tbench_explain_stall(u->r, u->seats, vb_tbench_clients(u->plan), now);
}

static void give_up(void *run)
{
	struct sim_run *u = run;

	vb_tbench_worker_cancel(&u->worker);
}

static int start(struct sim_run *u)
{
	u->virtual = (struct vb_bench_virtual){
		.sched = u->sched,
		.control = &u->control,
		.end = &u->r->end,
		.life = vb_tbench_worker_life(&u->worker),
		.warmup_ns = u->plan->o.warmup_ns,
		.duration_ns = u->plan->o.duration_ns,
		.stall_ns = u->plan->o.stall_ns,
		.run = u,
		.stands_still = stands_still,
		.explain = explain,
		.give_up = give_up,
	};
	return vb_bench_virtual_start(&u->virtual);
}

static void measure(struct sim_run *u)
{
	if (vb_bench_virtual_warm_up(&u->virtual))
		vb_bench_virtual_measure(&u->virtual);
	u->r->history_full = u->control.full != 0;
	vb_bench_virtual_drain(&u->virtual);
}

/* ---- filling ---- */

static bool fill_step(void *ctx, uint64_t done)
{
	struct sim_run *u = ctx;
	uint64_t each = u->r->records / u->plan->o.nodes + 1;

	vb_bench_progress_show((double)done / (double)each, 0, "filling the tables");
	if (vb_interrupted)
		u->r->end.interrupted = true;
	return !vb_interrupted;
}

static int fill(struct sim_run *u)
{
	const struct vb_load_progress progress = {.step = fill_step, .ctx = u};
	uint64_t wall = vb_clock_gettime_ns();
	int err = 0;

	for (uint16_t node = 0; node < u->plan->o.nodes && err == 0; node++)
		err = u->plan->load->fill(&u->ground.load, node, &progress);
	u->r->fill_s = (double)(vb_clock_gettime_ns() - wall) / 1e9;
	return err;
}

/* ---- making and taking down ---- */

static int start_servers(struct sim_run *u)
{
	int err = 0;

	u->server = calloc(u->plan->o.nodes, sizeof(struct vb_db_server *));
	if (u->server == NULL)
		return vb_fail(-ENOMEM, "no memory for a run");
	for (uint16_t node = 0; node < u->plan->o.nodes && err == 0; node++)
		err = vb_db_server_start(u->ground.db, node, &u->server[node]);
	return err;
}

static int set_up(struct sim_run *u, const struct vb_tbench_one *one)
{
	unsigned clients = vb_tbench_clients(u->plan);
	int err;

	u->seats = aligned_alloc(VB_CACHELINE, clients * sizeof(*u->seats));
	u->r->tally = malloc(sizeof(*u->r->tally));
	if (u->seats == NULL || u->r->tally == NULL)
		return vb_fail(-ENOMEM, "no memory for a run");
	memset(u->seats, 0, clients * sizeof(*u->seats));
	vb_tbench_tally_init(u->r->tally);
	err = vb_tbench_ground_open(&u->ground, u->plan, one, u->r);
	if (err == 0)
		err = fill(u);
	if (err == 0 && u->plan->o.check) {
		err = vb_tbench_recorder_open(&u->recorder, u->plan, u->ground.load.items, 0,
					      clients, &u->control.full);
		u->recorder.watch.ctx = &u->recorder;
		u->ground.db->watch = &u->recorder.watch;
	}
	if (err == 0)
		err = start_servers(u);
	if (err)
		return err;
	u->sched = vb_sched_self();
	u->worker = (struct vb_tbench_worker){
		.plan = u->plan,
		.load = &u->ground.load,
		.db = u->ground.db,
		.control = &u->control,
		.tally = u->r->tally,
	};
	return vb_tbench_worker_open(&u->worker, u->seats, 0, clients);
}

static void tear_down(struct sim_run *u)
{
	if (u->worker.clients != NULL)
		vb_tbench_worker_close(&u->worker);
	for (unsigned i = 0; u->server != NULL && i < u->plan->o.nodes; i++)
		vb_db_server_stop(u->server[i]);
	vb_tbench_ground_close(&u->ground);
	vb_tbench_recorder_close(&u->recorder);
	free(u->server);
	free(u->seats);
}

int vb_tbench_run_sim(const struct vb_tbench_plan *plan, const struct vb_tbench_one *one,
		      struct vb_tbench_result *r)
{
	struct sim_run u = {.plan = plan, .r = r};
	uint64_t wall = vb_clock_gettime_ns();
	int err;

	*r = (struct vb_tbench_result){.plan = plan, .one = one};
	err = set_up(&u, one);
	if (err == 0)
		err = start(&u);
	if (err == 0) {
		struct vb_tbench_tally *t = r->tally;

		r->end.ran = true;
		measure(&u);
		if (t->measured_ns > 0)
			t->rate = (double)vb_tbench_commits(t) * 1e9 / (double)t->measured_ns;
		r->virtual_verbs = vb_sim_verbs(u.ground.fabric);
		/* What a commit has posted without waiting is in place when its client has gone. */
		vb_tbench_worker_close(&u.worker);
		vb_tbench_take_books(t, u.seats, vb_tbench_clients(plan));
		vb_tbench_judge(r, &u.ground.load);
		if (plan->o.check)
			err = vb_tbench_check(r, &u.ground.load,
					      (const struct vb_history *const *)&u.recorder.history,
					      1);
	}
	if (err == 0)
		err = u.control.failed;
	if (err == -EINTR && r->end.interrupted)
		err = 0;
	tear_down(&u);
	r->wall_s = (double)(vb_clock_gettime_ns() - wall) / 1e9;
	return err;
}
