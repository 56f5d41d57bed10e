/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One lock between processes.
 *
 * The parent makes the segment and the shared books, starts the lock servers on its own scheduler,
 * and forks the workers.  From then on it serves, reaps and looks; the workers keep time by
 * themselves (the machine's clock is common) and write only into their own tally and their clients'
 * seats.  A worker that is killed leaves both as they were, less the last slice of its counters.
 *
 * Order of ending: every worker ends its measured span, lets its clients finish the cycle they are
 * in, and says so (drained); nobody closes a client before all have, because the ones that are
 * still waiting wait for a neighbour's message.  Then the parent says leave.
 */
#define VB_LOG_ROOM "bench"
#include "lab/bench_lock.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "lab/run.h"
#include "fabric/shm.h"

#define SLICE_NS     5000000ull
#define START_NS     2000000ull /* from the barrier to the first cycle */
#define SAMPLE_EVERY 32

/* What parent and workers share. */
struct shm_books {
	struct vb_bench_control control;
	size_t bytes;
	struct vb_bench_seat *seats;
	struct vb_bench_tally *tallies;
};

struct shm_run {
	const struct vb_bench_plan *plan;
	const struct vb_lock_ops *ops;
	struct vb_bench_result *r;
	struct vb_fabric *fabric;
	struct vb_lock_space *space;
	struct vb_audit *audit;
	struct vb_bench_servers servers;
	struct shm_books *books;
	struct vb_sched *sched;
	pid_t *pids; /* 0: gone */
	unsigned forked, alive;
	struct vb_bench_pulse pulse;
};

static struct shm_books *books_make(const struct vb_bench_plan *plan)
{
	size_t seats = plan->o.clients * sizeof(struct vb_bench_seat);
	size_t tallies = plan->o.procs * sizeof(struct vb_bench_tally);
	size_t bytes = sizeof(struct shm_books) + seats + tallies + 2 * VB_CACHELINE;
	struct shm_books *b =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uintptr_t at;

	if (b == MAP_FAILED)
		return NULL;
	at = (uintptr_t)(b + 1);
	at = (at + VB_CACHELINE - 1) & ~(uintptr_t)(VB_CACHELINE - 1);
	b->bytes = bytes;
	b->seats = (struct vb_bench_seat *)at;
	b->tallies = (struct vb_bench_tally *)(at + seats);
	for (unsigned i = 0; i < plan->o.procs; i++)
		vb_bench_tally_init(&b->tallies[i]);
	return b;
}

/* ---- the worker process ---- */

/* Runs the clients until at_ns in slices; false: the parent wants an early end. */
static bool worker_until(struct vb_bench_worker *w, uint64_t at_ns)
{
	struct vb_sched *s = vb_sched_self();
	uint64_t now = vb_sched_now_slow(s);

	while (now < at_ns && !w->all_finished) {
		vb_sched_run(s, &w->all_finished, at_ns - now < SLICE_NS ? at_ns : now + SLICE_NS);
		vb_bench_worker_flush(w);
		if (__atomic_load_n(&w->control->early, __ATOMIC_ACQUIRE))
			return false;
		now = vb_sched_now_slow(s);
	}
	return true;
}

static void worker_measure(struct vb_bench_worker *w)
{
	const struct vb_bench_opts *o = &w->plan->o;
	uint64_t start = w->control->t0_ns + o->warmup_ns;
	struct vb_sched *s = vb_sched_self();

	if (worker_until(w, start)) {
		vb_bench_worker_measure(w, true);
		worker_until(w, start + o->duration_ns);
		vb_bench_worker_measure(w, false);
	}
	w->drain = true;
	while (!w->all_finished)
		vb_sched_run(s, &w->all_finished, vb_sched_now_slow(s) + SLICE_NS);
	__atomic_fetch_add(&w->control->drained, 1, __ATOMIC_ACQ_REL);
	/* Others may still need our clients' answers. */
	while (!__atomic_load_n(&w->control->leave, __ATOMIC_ACQUIRE))
		vb_task_sleep_until(vb_sched_now_slow(s) + SLICE_NS / 5);
}

static int worker_open(struct vb_bench_worker *w, struct shm_run *u, unsigned index)
{
	const struct vb_bench_opts *o = &u->plan->o;
	unsigned procs = (unsigned)o->procs, clients = (unsigned)o->clients;
	unsigned n = clients / procs + (index < clients % procs);

	*w = (struct vb_bench_worker){
		.plan = u->plan,
		.space = u->space,
		.control = &u->books->control,
		.tally = &u->books->tallies[index],
		.sample_every = o->breakdown ? SAMPLE_EVERY : 0,
	};
	for (unsigned i = index; i < clients; i += procs)
		u->books->seats[i].pid = getpid();
	return vb_bench_worker_open(w, u->books->seats, index, procs, n);
}

VB_NORETURN static void worker_main(struct shm_run *u, unsigned index, pid_t parent)
{
	struct vb_bench_control *control = &u->books->control;
	struct timespec nap = {.tv_nsec = 100000};
	struct vb_bench_worker w;
	int err;

	vb_bench_child(parent);
	vb_fabric_after_fork(u->fabric);
	err = worker_open(&w, u, index);
	if (err) {
		__atomic_store_n(&control->failed, err, __ATOMIC_RELEASE);
		_exit(VB_EXIT_FAILED);
	}
	__atomic_fetch_add(&control->ready, 1, __ATOMIC_ACQ_REL);
	while (!__atomic_load_n(&control->go, __ATOMIC_ACQUIRE))
		nanosleep(&nap, NULL);
	err = vb_bench_worker_start(&w);
	if (err) {
		__atomic_store_n(&control->failed, err, __ATOMIC_RELEASE);
		_exit(VB_EXIT_FAILED);
	}
	worker_measure(&w);
	vb_bench_worker_close(&w);
	_exit(VB_EXIT_OK);
}

/* ---- the parent ---- */

static void bury(struct shm_run *u, unsigned index, int status)
{
	pid_t pid = u->pids[index];

	u->pids[index] = 0;
	u->alive--;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return;
	if (WIFEXITED(status)) {
		if (u->books->control.failed == 0)
			u->books->control.failed = -ECHILD;
		return;
	}
	u->r->deaths++;
	u->r->death_signal = WTERMSIG(status);
	vb_shm_mark_dead(u->fabric, pid);
	for (unsigned i = 0; i < u->plan->o.clients; i++) {
		if (u->books->seats[i].pid != pid)
			continue;
		u->books->seats[i].dead = 1;
		u->r->dead_clients++;
		if (u->audit != NULL)
			vb_audit_client_died(u->audit, i);
	}
}

/* Serves for a slice, then looks who has ended. */
static void parent_step(struct shm_run *u)
{
	vb_task_sleep_until(vb_sched_now_slow(u->sched) + SLICE_NS);
	for (unsigned i = 0; i < u->forked; i++) {
		int status;

		if (u->pids[i] > 0 && waitpid(u->pids[i], &status, WNOHANG) == u->pids[i])
			bury(u, i, status);
	}
}

static void kill_workers(struct shm_run *u)
{
	for (unsigned i = 0; i < u->forked; i++) {
		int status;

		if (u->pids[i] <= 0)
			continue;
		kill(u->pids[i], SIGKILL);
		while (waitpid(u->pids[i], &status, 0) < 0 && errno == EINTR)
			;
		vb_shm_mark_dead(u->fabric, u->pids[i]);
		u->pids[i] = 0;
		u->alive--;
	}
}

static int fork_workers(struct shm_run *u)
{
	struct vb_bench_control *control = &u->books->control;
	pid_t parent = getpid();

	fflush(stdout);
	fflush(stderr);
	for (unsigned i = 0; i < u->plan->o.procs; i++) {
		pid_t pid = fork();

		if (pid == 0)
			worker_main(u, i, parent);
		if (pid < 0)
			return vb_fail(-errno, "cannot fork worker %u: %s", i, strerror(errno));
		u->pids[i] = pid;
		u->forked = i + 1;
		u->alive++;
	}
	while (__atomic_load_n(&control->ready, __ATOMIC_ACQUIRE) < u->plan->o.procs) {
		int failed = __atomic_load_n(&control->failed, __ATOMIC_ACQUIRE);

		if (failed)
			return failed;
		if (u->r->deaths)
			return vb_fail(-ECHILD,
				       "a worker was killed by signal %d before it had begun",
				       u->r->death_signal);
		if (vb_interrupted)
			return -EINTR;
		parent_step(u);
	}
	return 0;
}

static bool standstill(struct shm_run *u, uint64_t now)
{
	return vb_bench_standstill(&u->pulse, u->books->seats, (unsigned)u->plan->o.clients, now,
				   vb_bench_stall_ns(u->plan, u->ops));
}

/* Until at_ns, or until every worker that lives has drained; true if nothing came in between. */
static bool watch_over(struct shm_run *u, uint64_t at_ns, const char *phase)
{
	struct vb_bench_control *control = &u->books->control;
	uint64_t from = vb_sched_now_slow(u->sched), now = from;

	while (now < at_ns && u->alive > 0) {
		if (__atomic_load_n(&control->drained, __ATOMIC_ACQUIRE) >= u->alive)
			return true;
		if (__atomic_load_n(&control->failed, __ATOMIC_ACQUIRE))
			return false;
		if (vb_interrupted && !control->early) {
			u->r->interrupted = true;
			return false;
		}
		if (standstill(u, now)) {
			vb_bench_explain_stall(u->r, u->books->seats, (unsigned)u->plan->o.clients,
					       now);
			return false;
		}
		parent_step(u);
		now = vb_sched_now_slow(u->sched);
		vb_bench_progress_show(
			at_ns == VB_FOREVER ? 1.0 : (double)(now - from) / (double)(at_ns - from),
			u->pulse.cycles, phase);
	}
	return u->alive > 0;
}

static void measure(struct shm_run *u)
{
	const struct vb_bench_opts *o = &u->plan->o;
	struct vb_bench_control *control = &u->books->control;
	struct vb_bench_meter servers;
	uint64_t start, give_up;

	control->t0_ns = vb_sched_now_slow(u->sched) + START_NS;
	start = control->t0_ns + o->warmup_ns;
	u->pulse.since_ns = control->t0_ns;
	__atomic_store_n(&control->go, 1, __ATOMIC_RELEASE);
	if (watch_over(u, start, "warming up")) {
		vb_bench_servers_meter(&u->servers, &servers);
		watch_over(u, start + o->duration_ns, "measuring");
		vb_bench_servers_meter(&u->servers, &u->r->servers);
		vb_bench_meter_subtract(&u->r->servers, &servers);
	}
	vb_bench_unfinished(u->r, u->books->seats, (unsigned)o->clients,
			    vb_sched_now_slow(u->sched));
	__atomic_store_n(&control->early, 1, __ATOMIC_RELEASE);
	if (!u->r->stalled)
		watch_over(u, VB_FOREVER, "draining");
	if (u->r->stalled || control->failed) {
		kill_workers(u);
		return;
	}
	__atomic_store_n(&control->leave, 1, __ATOMIC_RELEASE);
	/* Closing a client takes two leases at most; whoever is not gone by then is stuck. */
	give_up =
		vb_sched_now_slow(u->sched) + vb_bench_stall_ns(u->plan, u->ops) + 4 * o->lease_ns;
	while (u->alive > 0 && vb_sched_now_slow(u->sched) < give_up)
		parent_step(u);
	kill_workers(u);
}

static int set_up(struct shm_run *u)
{
	const struct vb_bench_opts *o = &u->plan->o;
	struct vb_fabric_params p = {
		.fabric = "shm",
		.options = o->fabric_options,
		.name = o->segment,
		.nodes = (uint16_t)o->nodes,
		.node_bytes = vb_bench_node_bytes(u->plan, u->ops),
		.endpoints = (uint32_t)(o->clients + o->servers * o->server_threads + 16),
		.seed = o->seed,
	};
	int err;

	u->pids = calloc(o->procs, sizeof(*u->pids));
	u->books = books_make(u->plan);
	u->r->tally = malloc(sizeof(*u->r->tally));
	if (u->books == NULL || u->pids == NULL || u->r->tally == NULL)
		return vb_fail(-ENOMEM, "no memory for the results of %" PRIu64 " workers",
			       o->procs);
	vb_bench_tally_init(u->r->tally);
	err = vb_fabric_open(&p, &u->fabric);
	if (err == 0)
		err = vb_bench_open_space(u->plan, u->ops, u->fabric, &u->space);
	if (err == 0)
		err = vb_bench_open_audit(u->plan, u->ops, &u->audit);
	if (err == 0 && u->audit != NULL)
		u->space->watch = vb_audit_watch(u->audit);
	if (err == 0)
		err = vb_bench_servers_start(&u->servers, u->plan, u->space);
	if (err)
		return err;
	u->r->portable = u->space->portable_mask != 0;
	u->r->sampled = o->breakdown;
	u->sched = vb_sched_self();
	return 0;
}

static void tear_down(struct shm_run *u)
{
	if (u->books != NULL) {
		kill_workers(u);
		for (unsigned i = 0; i < u->plan->o.procs; i++)
			vb_bench_tally_merge(u->r->tally, &u->books->tallies[i]);
		munmap(u->books, u->books->bytes);
	}
	vb_bench_servers_stop(&u->servers);
	if (u->space != NULL)
		vb_lock_space_close(u->space);
	if (u->audit != NULL)
		vb_audit_close(u->audit);
	if (u->fabric != NULL)
		vb_fabric_close(u->fabric);
	free(u->pids);
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
		err = fork_workers(&u);
	if (err == 0) {
		r->ran = true;
		measure(&u);
		err = u.books->control.failed;
	}
	if (err == -EINTR) {
		r->interrupted = true;
		err = 0;
	}
	/* That a lock without recovery is lost with its holder is no violation; all else is. */
	if (r->stalled && u.audit != NULL && (r->deaths == 0 || ops->caps & VB_LOCK_SURVIVES))
		vb_audit_violation(u.audit, VB_AUDIT_STUCK, r->stalled_client, r->stalled_lock,
				   r->stall);
	vb_bench_take_audit(r, u.audit);
	tear_down(&u);
	r->wall_s = (double)(vb_clock_gettime_ns() - wall) / 1e9;
	return err;
}
