/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One run of transactions between processes.
 *
 * The parent makes the segment, the database and the shared books, and forks the workers.  The
 * first worker of each node fills the node's tables, all at the same time, and is its server from
 * then on, as a task among its clients.  The parent reaps and looks; the workers keep time by
 * themselves (the machine's clock is common) and write only into their own tally, their clients'
 * seats and their history.
 *
 * Order of ending: every worker ends its measured span and lets its clients finish the attempt that
 * they are in; no server stops before all have.  Then the parent says leave.
 *
 * A worker that is killed takes nothing along: the others go on, and roll its transactions back or
 * forward when they meet its locks.  The parent decides what became of its last commits, and when
 * all have gone sweeps up what nobody has met.  Without recovery its locks stay, and the run
 * stalls.
 */
#define VB_LOG_ROOM "bench"
#include "lab/bench/txn/txn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/shm/shm.h"
#include "lab/bench/engine/process.h"
#include "lab/bench/engine/progress.h"
#include "lab/bench/engine/workers.h"

#define CLOSE_NS 1000000000ull
#define SLOTS    64u /* of nodes that fill; those from the 64th on share the last */

struct shm_run {
	const struct vb_tbench_plan *plan;
	struct vb_tbench_result *r;
	struct vb_tbench_ground ground;
	struct vb_tbench_recorder *recorders; /* of each worker, with --check */
	/* What parent and workers share. */
	struct vb_bench_control *control;
	struct vb_tbench_seat *seats;
	struct vb_tbench_tally *tallies;
	uint64_t *filled; /* [SLOTS] records in place */
	unsigned workers;
	struct vb_bench_forks forks;
	/* In a worker process. */
	struct vb_tbench_worker w;
	struct vb_db_server *server;
};

/* ---- the worker process ---- */

struct fill_watch {
	const struct vb_bench_control *control;
	uint64_t *filled;
};

static bool fill_step(void *ctx, uint64_t done)
{
	struct fill_watch *f = ctx;

	__atomic_store_n(f->filled, done, __ATOMIC_RELAXED);
	return !__atomic_load_n(&f->control->early, __ATOMIC_ACQUIRE);
}

/* The first worker of a node makes it ready. */
static int open_node(struct shm_run *u, uint16_t node)
{
	struct fill_watch watch = {.control = u->control,
				   .filled = &u->filled[node < SLOTS ? node : SLOTS - 1]};
	const struct vb_load_progress progress = {.step = fill_step, .ctx = &watch};
	int err = u->plan->load->fill(&u->ground.load, node, &progress);

	return err ? err : vb_db_server_start(u->ground.db, node, &u->server);
}

static int worker_open(void *run, unsigned index, struct vb_bench_life *out)
{
	struct shm_run *u = run;
	unsigned each = (unsigned)u->plan->o.coroutines, threads = (unsigned)u->plan->o.threads;
	int err;

	vb_fabric_after_fork(u->ground.fabric);
	if (index % threads == 0) {
		err = open_node(u, (uint16_t)(index / threads));
		if (err)
			return err;
	}
	u->w = (struct vb_tbench_worker){
		.plan = u->plan,
		.load = &u->ground.load,
		.db = u->ground.db,
		.control = u->control,
		.tally = &u->tallies[index],
	};
	if (u->recorders != NULL) {
		u->recorders[index].watch.ctx = &u->recorders[index];
		u->ground.db->watch = &u->recorders[index].watch;
	}
	for (unsigned i = 0; i < each; i++)
		u->seats[index * each + i].pid = getpid();
	*out = vb_tbench_worker_life(&u->w);
	return vb_tbench_worker_open(&u->w, u->seats, index * each, each);
}

static void worker_close(void *run)
{
	struct shm_run *u = run;

	vb_tbench_worker_close(&u->w);
	vb_db_server_stop(u->server);
}

/* ---- the parent ---- */

static void pass(void *run, uint64_t slice_ns)
{
	struct timespec nap = {.tv_nsec = (long)slice_ns};

	nanosleep(&nap, NULL);
}

static void died(void *run, unsigned index, pid_t pid, int signal)
{
	struct shm_run *u = run;

	vb_shm_mark_dead(u->ground.fabric, pid);
	for (unsigned i = 0; signal != 0 && i < vb_tbench_clients(u->plan); i++) {
		if (u->seats[i].pid != pid)
			continue;
		u->seats[i].dead = 1;
		u->r->dead_clients++;
		vb_tbench_book_close_for(u->r, u->ground.db, &u->seats[i]);
	}
	if (u->recorders != NULL)
		vb_tbench_recorder_bury(&u->recorders[index], u->ground.db);
	if (signal == 0)
		return;
	u->r->deaths++;
	u->r->dead_servers += index % u->plan->o.threads == 0;
	u->r->death_signal = signal;
}

static void show_filling(void *run)
{
	const struct shm_run *u = run;
	uint64_t nodes = u->plan->o.nodes, slots = nodes < SLOTS ? nodes : SLOTS, done = 0;

	for (uint64_t i = 0; i < slots; i++)
		done += __atomic_load_n(&u->filled[i], __ATOMIC_RELAXED);
	vb_bench_progress_show((double)done * (double)nodes /
				       ((double)slots * (double)u->r->records + 1),
			       0, "filling the tables");
}

static bool all_finished(const void *run)
{
	const struct shm_run *u = run;

	for (unsigned i = 0; i < vb_tbench_clients(u->plan); i++)
		if (!u->seats[i].dead && !__atomic_load_n(&u->seats[i].finished, __ATOMIC_ACQUIRE))
			return false;
	return true;
}

static bool stands_still(void *run, struct vb_bench_pulse *pulse, uint64_t now)
{
	struct shm_run *u = run;
	unsigned clients = vb_tbench_clients(u->plan);

	if (!vb_tbench_standstill(pulse, u->seats, clients, now, u->plan->o.stall_ns))
		return false;
	vb_tbench_explain_stall(u->r, u->seats, clients, now);
	vb_tbench_name_holders(u->r, u->ground.db, u->seats, clients);
	return true;
}

static const struct vb_bench_forks_ops forks_ops = {
	.open = worker_open,
	.close = worker_close,
	.pass = pass,
	.opening = show_filling,
	.died = died,
	.all_finished = all_finished,
	.stands_still = stands_still,
};

static int start(struct shm_run *u)
{
	uint64_t wall = vb_clock_gettime_ns();
	int err = vb_bench_forks_start(&u->forks);

	if (err == 0)
		u->r->fill_s = (double)(vb_clock_gettime_ns() - wall) / 1e9;
	return err;
}

static void measure(struct shm_run *u)
{
	const struct vb_tbench_opts *o = &u->plan->o;
	struct vb_bench_forks *f = &u->forks;
	uint64_t begin = vb_bench_forks_go(f) + o->warmup_ns;
	unsigned stuck;

	if (vb_bench_forks_watch(f, begin, "warming up"))
		vb_bench_forks_watch(f, begin + o->duration_ns, "measuring");
	u->r->history_full = u->control->full != 0;
	__atomic_store_n(&u->control->early, 1, __ATOMIC_RELEASE);
	f->pulse.since_ns = vb_clock_ns();
	if (!u->r->end.stalled)
		vb_bench_forks_watch(f, VB_FOREVER, "draining");
	u->r->end.interrupted = f->interrupted;
	if (u->r->end.stalled || u->control->failed) {
		vb_bench_forks_kill(f);
		return;
	}
	/* Closing a client may take a lease or two; whoever is not gone by then is stuck. */
	stuck = vb_bench_forks_leave(f, o->stall_ns + CLOSE_NS + 4 * u->r->lease_ns);
	if (stuck > 0) {
		u->r->end.stalled = true;
		snprintf(u->r->stall, sizeof(u->r->stall), "%u workers did not close their clients",
			 stuck);
	}
}

static int open_recorders(struct shm_run *u)
{
	int err = 0;

	if (!u->plan->o.check)
		return 0;
	u->recorders = calloc(u->workers, sizeof(*u->recorders));
	if (u->recorders == NULL)
		return vb_fail(-ENOMEM, "no memory for a run");
	for (unsigned i = 0; i < u->workers && err == 0; i++)
		err = vb_tbench_recorder_open(&u->recorders[i], u->plan, u->ground.load.items, i,
					      (unsigned)u->plan->o.coroutines, &u->control->full);
	return err;
}

static int set_up(struct shm_run *u, const struct vb_tbench_one *one)
{
	int err;

	u->workers = vb_tbench_workers(u->plan);
	u->control = vb_bench_share(sizeof(*u->control));
	u->seats = vb_bench_share(vb_tbench_clients(u->plan) * sizeof(*u->seats));
	u->tallies = vb_bench_share(u->workers * sizeof(*u->tallies));
	u->filled = vb_bench_share(SLOTS * sizeof(*u->filled));
	u->r->tally = malloc(sizeof(*u->r->tally));
	if (u->control == NULL || u->seats == NULL || u->tallies == NULL || u->filled == NULL ||
	    u->r->tally == NULL)
		return vb_fail(-ENOMEM, "no memory for the results of %u workers", u->workers);
	vb_tbench_tally_init(u->r->tally);
	for (unsigned i = 0; i < u->workers; i++)
		vb_tbench_tally_init(&u->tallies[i]);
	u->forks = (struct vb_bench_forks){
		.ops = &forks_ops,
		.run = u,
		.control = u->control,
		.workers = u->workers,
		.warmup_ns = u->plan->o.warmup_ns,
		.duration_ns = u->plan->o.duration_ns,
	};
	err = vb_tbench_ground_open(&u->ground, u->plan, one, u->r);
	return err ? err : open_recorders(u);
}

/* Everything of everybody, judged. */
static int conclude(struct shm_run *u)
{
	const struct vb_history **parts;
	int err;

	for (unsigned i = 0; i < u->workers; i++)
		vb_tbench_tally_merge(u->r->tally, &u->tallies[i]);
	vb_tbench_take_books(u->r->tally, u->seats, vb_tbench_clients(u->plan));
	if (u->r->deaths != 0 && u->plan->o.recovery == 0 && !u->r->end.stalled) {
		err = vb_tbench_sweep(u->r, u->ground.db);
		if (err)
			return err;
	}
	vb_tbench_judge(u->r, &u->ground.load);
	if (u->control->failed != 0 || u->recorders == NULL)
		return u->control->failed;
	parts = calloc(u->workers, sizeof(struct vb_history *));
	if (parts == NULL)
		return vb_fail(-ENOMEM, "no memory to check a history");
	for (unsigned i = 0; i < u->workers; i++)
		parts[i] = u->recorders[i].history;
	err = vb_tbench_check(u->r, &u->ground.load, parts, u->workers);
	free(parts);
	return err;
}

static void tear_down(struct shm_run *u)
{
	vb_bench_forks_kill(&u->forks);
	vb_bench_unshare(u->filled, SLOTS * sizeof(*u->filled));
	vb_bench_unshare(u->tallies, u->workers * sizeof(*u->tallies));
	vb_bench_unshare(u->seats, vb_tbench_clients(u->plan) * sizeof(*u->seats));
	vb_bench_unshare(u->control, sizeof(*u->control));
	vb_tbench_ground_close(&u->ground);
	for (unsigned i = 0; u->recorders != NULL && i < u->workers; i++)
		vb_tbench_recorder_close(&u->recorders[i]);
	free(u->recorders);
}

int vb_tbench_run_shm(const struct vb_tbench_plan *plan, const struct vb_tbench_one *one,
		      struct vb_tbench_result *r)
{
	struct shm_run u = {.plan = plan, .r = r};
	uint64_t wall = vb_clock_gettime_ns();
	int err;

	*r = (struct vb_tbench_result){.plan = plan, .one = one};
	err = set_up(&u, one);
	if (err == 0)
		err = start(&u);
	if (err == 0) {
		r->end.ran = true;
		measure(&u);
		err = conclude(&u);
	}
	if (err == -EINTR) {
		r->end.interrupted = true;
		err = 0;
	}
	tear_down(&u);
	r->wall_s = (double)(vb_clock_gettime_ns() - wall) / 1e9;
	return err;
}
