/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One lock between processes.
 *
 * The parent makes the segment and what is shared, starts the lock servers on its own scheduler,
 * and forks the workers (bench/engine/workers.c).  From then on it serves, reaps and looks; the
 * workers keep time by themselves (the machine's clock is common) and write only into their own
 * tally and their clients' seats.  A worker that is killed leaves both as they were, less the last
 * slice of its counters.
 *
 * Nobody closes a client before all have finished, because the ones that are still waiting wait for
 * a neighbour's message.
 */
#define VB_LOG_ROOM "bench"
#include "lab/bench/lock/lock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "lab/bench/engine/process.h"
#include "lab/bench/engine/workers.h"
#include "fabric/shm/shm.h"

#define SAMPLE_EVERY 32

struct shm_run {
	const struct vb_bench_plan *plan;
	const struct vb_lock_ops *ops;
	struct vb_bench_result *r;
	struct vb_bench_ground ground;
	/* What parent and workers share. */
	struct vb_bench_control *control;
	struct vb_bench_seat *seats;
	struct vb_bench_tally *tallies;
	struct vb_sched *sched;
	struct vb_bench_forks forks;
	struct vb_bench_worker w; /* in a worker process */
};

/* ---- the worker process ---- */

static int worker_open(void *run, unsigned index, struct vb_bench_life *out)
{
	struct shm_run *u = run;
	const struct vb_bench_opts *o = &u->plan->o;
	unsigned procs = (unsigned)o->cluster.procs, clients = (unsigned)o->clients;
	unsigned n = clients / procs + (index < clients % procs);

	vb_fabric_after_fork(u->ground.fabric);
	u->w = (struct vb_bench_worker){
		.plan = u->plan,
		.space = u->ground.space,
		.control = u->control,
		.tally = &u->tallies[index],
		.sample_every = o->breakdown ? SAMPLE_EVERY : 0,
	};
	for (unsigned i = index; i < clients; i += procs)
		u->seats[i].pid = getpid();
	*out = vb_bench_worker_life(&u->w);
	return vb_bench_worker_open(&u->w, u->seats, index, procs, n);
}

static void worker_close(void *run)
{
	struct shm_run *u = run;

	vb_bench_worker_close(&u->w);
}

/* ---- the parent ---- */

/* Serves meanwhile. */
static void pass(void *run, uint64_t slice_ns)
{
	struct shm_run *u = run;

	vb_task_sleep_until(vb_sched_now_slow(u->sched) + slice_ns);
}

static void died(void *run, unsigned index, pid_t pid, int signal)
{
	struct shm_run *u = run;

	vb_shm_mark_dead(u->ground.fabric, pid);
	if (signal == 0)
		return;
	u->r->deaths++;
	u->r->death_signal = signal;
	for (unsigned i = 0; i < u->plan->o.clients; i++) {
		if (u->seats[i].pid != pid)
			continue;
		u->seats[i].dead = 1;
		u->r->dead_clients++;
		if (u->ground.audit != NULL)
			vb_audit_client_died(u->ground.audit, i);
	}
}

static bool all_finished(const void *run)
{
	const struct shm_run *u = run;

	for (unsigned i = 0; i < u->plan->o.clients; i++)
		if (!u->seats[i].dead && !__atomic_load_n(&u->seats[i].finished, __ATOMIC_ACQUIRE))
			return false;
	return true;
}

static bool stands_still(void *run, struct vb_bench_pulse *pulse, uint64_t now)
{
	struct shm_run *u = run;
	unsigned clients = (unsigned)u->plan->o.clients;

	if (!vb_bench_standstill(pulse, u->seats, clients, now,
				 vb_bench_stall_ns(u->plan, u->ground.space)))
		return false;
	vb_bench_explain_stall(u->r, u->seats, clients, now);
	return true;
}

static const struct vb_bench_forks_ops forks_ops = {
	.open = worker_open,
	.close = worker_close,
	.pass = pass,
	.died = died,
	.all_finished = all_finished,
	.stands_still = stands_still,
};

static void measure(struct shm_run *u)
{
	const struct vb_bench_opts *o = &u->plan->o;
	struct vb_bench_forks *f = &u->forks;
	uint64_t start = vb_bench_forks_go(f) + o->warmup_ns;
	struct vb_bench_meter servers;

	if (vb_bench_forks_watch(f, start, "warming up")) {
		vb_bench_servers_meter(&u->ground.servers, &servers);
		vb_bench_forks_watch(f, start + o->duration_ns, "measuring");
		vb_bench_servers_meter(&u->ground.servers, &u->r->servers);
		vb_bench_meter_subtract(&u->r->servers, &servers);
	}
	vb_bench_unfinished(u->r, u->seats, (unsigned)o->clients, vb_sched_now_slow(u->sched));
	__atomic_store_n(&u->control->early, 1, __ATOMIC_RELEASE);
	if (!u->r->end.stalled)
		vb_bench_forks_watch(f, VB_FOREVER, "draining");
	u->r->end.interrupted = f->interrupted;
	if (u->r->end.stalled || u->control->failed)
		vb_bench_forks_kill(f);
	else /* closing a client takes two leases at most; whoever is not gone then is stuck */
		vb_bench_forks_leave(f,
				     vb_bench_stall_ns(u->plan, u->ground.space) + 4 * o->lease_ns);
}

static int set_up(struct shm_run *u)
{
	const struct vb_bench_opts *o = &u->plan->o;
	struct vb_fabric_params p = {
		.no_keeper = true, /* who measures stays inside */
		.fabric = "shm",
		.options = o->fabric_options,
		.name = o->segment,
		.nodes = (uint16_t)o->nodes,
		.node_bytes = vb_bench_node_bytes(u->plan, u->ops),
		.endpoints = (uint32_t)(o->clients + o->servers * o->server_threads + 16),
		.seed = o->seed,
	};
	int err;

	u->control = vb_bench_share(sizeof(*u->control));
	u->seats = vb_bench_share(o->clients * sizeof(*u->seats));
	u->tallies = vb_bench_share(o->cluster.procs * sizeof(*u->tallies));
	u->r->tally = malloc(sizeof(*u->r->tally));
	if (u->control == NULL || u->seats == NULL || u->tallies == NULL || u->r->tally == NULL)
		return vb_fail(-ENOMEM, "no memory for the results of %" PRIu64 " workers",
			       o->cluster.procs);
	vb_bench_tally_init(u->r->tally);
	for (unsigned i = 0; i < o->cluster.procs; i++)
		vb_bench_tally_init(&u->tallies[i]);
	err = vb_bench_ground_open(&u->ground, u->plan, u->ops, &p);
	if (err)
		return err;
	u->r->portable = u->ground.space->portable_mask != 0;
	u->r->sampled = o->breakdown;
	u->sched = vb_sched_self();
	u->forks = (struct vb_bench_forks){
		.ops = &forks_ops,
		.run = u,
		.control = u->control,
		.workers = (unsigned)o->cluster.procs,
		.warmup_ns = o->warmup_ns,
		.duration_ns = o->duration_ns,
	};
	return 0;
}

static void tear_down(struct shm_run *u)
{
	const struct vb_bench_opts *o = &u->plan->o;

	vb_bench_forks_kill(&u->forks);
	for (unsigned i = 0; u->tallies != NULL && u->r->tally != NULL && i < o->cluster.procs; i++)
		vb_bench_tally_merge(u->r->tally, &u->tallies[i]);
	vb_bench_unshare(u->tallies, o->cluster.procs * sizeof(*u->tallies));
	vb_bench_unshare(u->seats, o->clients * sizeof(*u->seats));
	vb_bench_unshare(u->control, sizeof(*u->control));
	vb_bench_ground_close(&u->ground);
}

int vb_bench_run_shm(const struct vb_bench_plan *plan, const struct vb_lock_ops *ops,
		     struct vb_bench_result *r)
{
	struct shm_run u = {.plan = plan, .ops = ops, .r = r};
	uint64_t wall = vb_clock_gettime_ns();
	int err;

	*r = (struct vb_bench_result){.ops = ops, .started = plan->o.clients};
	err = set_up(&u);
	if (err == 0)
		err = vb_bench_forks_start(&u.forks);
	if (err == 0) {
		r->end.ran = true;
		measure(&u);
		err = u.control->failed;
	}
	if (err == -EINTR) {
		r->end.interrupted = true;
		err = 0;
	}
	/* That a lock without recovery is lost with its holder is no violation; all else is. */
	if (r->end.stalled && u.ground.audit != NULL &&
	    (r->deaths == 0 || ops->caps & VB_LOCK_SURVIVES))
		vb_audit_violation(u.ground.audit, VB_AUDIT_STUCK, r->stalled_client,
				   r->stalled_lock, r->stall);
	vb_bench_take_audit(r, u.ground.audit);
	tear_down(&u);
	r->wall_s = (double)(vb_clock_gettime_ns() - wall) / 1e9;
	return err;
}
