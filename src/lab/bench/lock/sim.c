/* SPDX-License-Identifier: Apache-2.0 */
/* One lock on the simulator (bench/engine/virtual.c). */
#define VB_LOG_ROOM "bench"
#include "lab/bench/lock/lock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "fabric/sim/sim.h"
#include "lab/bench/engine/virtual.h"

struct sim_run {
	const struct vb_bench_plan *plan;
	const struct vb_lock_ops *ops;
	struct vb_bench_result *r;
	struct vb_bench_ground ground;
	struct vb_bench_control control;
	struct vb_bench_seat *seats;
	struct vb_bench_worker worker;
	struct vb_sched *sched;
	struct vb_bench_virtual virtual;
};

static bool stands_still(void *run, struct vb_bench_pulse *pulse, uint64_t now)
{
	struct sim_run *u = run;

	return vb_bench_standstill(pulse, u->seats, (unsigned)u->plan->o.clients, now,
				   u->virtual.stall_ns);
}

static void explain(void *run, uint64_t now)
{
	struct sim_run *u = run;

	vb_bench_explain_stall(u->r, u->seats, (unsigned)u->plan->o.clients, now);
}

static void give_up(void *run)
{
	struct sim_run *u = run;

	vb_bench_worker_cancel(&u->worker);
}

static int start(struct sim_run *u)
{
	u->virtual = (struct vb_bench_virtual){
		.sched = u->sched,
		.control = &u->control,
		.end = &u->r->end,
		.life = vb_bench_worker_life(&u->worker),
		.warmup_ns = u->plan->o.warmup_ns,
		.duration_ns = u->plan->o.duration_ns,
		.stall_ns = vb_bench_stall_ns(u->plan, u->ground.space),
		.run = u,
		.stands_still = stands_still,
		.explain = explain,
		.give_up = give_up,
	};
	return vb_bench_virtual_start(&u->virtual);
}

static void measure(struct sim_run *u)
{
	struct vb_bench_meter servers;

	if (vb_bench_virtual_warm_up(&u->virtual)) {
		vb_bench_servers_meter(&u->ground.servers, &servers);
		vb_bench_virtual_measure(&u->virtual);
		vb_bench_servers_meter(&u->ground.servers, &u->r->servers);
		vb_bench_meter_subtract(&u->r->servers, &servers);
	}
	vb_bench_unfinished(u->r, u->seats, (unsigned)u->plan->o.clients, vb_sched_now(u->sched));
	vb_bench_virtual_drain(&u->virtual);
}

static int set_up(struct sim_run *u)
{
	const struct vb_bench_opts *o = &u->plan->o;
	char options[128];
	struct vb_fabric_params p = {
		.fabric = "sim",
		.options = options,
		.nodes = (uint16_t)o->nodes,
		.node_bytes = vb_bench_node_bytes(u->plan, u->ops),
		.endpoints = (uint32_t)(o->clients + o->servers * o->server_threads + 16),
		.seed = o->seed,
	};
	int err;

	snprintf(options, sizeof(options), "profile=%.100s", o->profile);
	u->seats = aligned_alloc(_Alignof(struct vb_bench_seat), o->clients * sizeof(*u->seats));
	u->r->tally = malloc(sizeof(*u->r->tally));
	if (u->seats == NULL || u->r->tally == NULL)
		return vb_fail(-ENOMEM, "no memory for a run");
	memset(u->seats, 0, o->clients * sizeof(*u->seats));
	vb_bench_tally_init(u->r->tally);
	err = vb_bench_ground_open(&u->ground, u->plan, u->ops, &p);
	if (err)
		return err;
	u->r->portable = u->ground.space->portable_mask != 0;
	u->sched = vb_sched_self();
	u->worker = (struct vb_bench_worker){
		.plan = u->plan,
		.space = u->ground.space,
		.control = &u->control,
		.tally = u->r->tally,
		.sample_every = 1,
	};
	return vb_bench_worker_open(&u->worker, u->seats, 0, 1, (unsigned)o->clients);
}

static void tear_down(struct sim_run *u)
{
	if (u->worker.clients != NULL)
		vb_bench_worker_close(&u->worker);
	vb_bench_ground_close(&u->ground);
	free(u->seats);
}

int vb_bench_run_sim(const struct vb_bench_plan *plan, const struct vb_lock_ops *ops,
		     struct vb_bench_result *r)
{
	struct sim_run u = {.plan = plan, .ops = ops, .r = r};
	uint64_t wall = vb_clock_gettime_ns();
	int err;

	*r = (struct vb_bench_result){.ops = ops, .started = plan->o.clients};
	err = set_up(&u);
	if (err == 0)
		err = start(&u);
	if (err == 0) {
		r->end.ran = true;
		measure(&u);
		if (r->end.stalled && u.ground.audit != NULL &&
		    (plan->o.fail_rate == 0 || ops->recovery_leases))
			vb_audit_violation(u.ground.audit, VB_AUDIT_STUCK, r->stalled_client,
					   r->stalled_lock, r->stall);
		r->virtual_verbs = vb_sim_verbs(u.ground.fabric);
	}
	/* The auditor watches to the last release. */
	if (u.worker.clients != NULL)
		vb_bench_worker_close(&u.worker);
	vb_bench_take_audit(r, u.ground.audit);
	tear_down(&u);
	if (r->end.ran)
		vb_bench_tally_rates(r->tally);
	r->wall_s = (double)(vb_clock_gettime_ns() - wall) / 1e9;
	return err;
}
