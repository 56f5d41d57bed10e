/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One run of transactions between processes.
 *
 * The parent makes the segment, the database and the shared books, and forks the workers.  The first worker
 * of each node fills the node's tables, all at the same time, and is its server from then on, as a task
 * among its clients.  The parent reaps and looks; the workers keep time by themselves (the machine's clock
 * is common) and write only into their own tally, their clients' seats and their history.
 *
 * Order of ending: every worker ends its measured span and lets its clients finish the attempt that they
 * are in; no server stops before all have.  Then the parent says leave.
 *
 * A worker that is killed takes nothing along: the others go on, and roll its transactions back or forward
 * when they meet its locks.  The parent decides what became of its last commits, and when all have gone
 * sweeps up what nobody has met.  Without recovery its locks stay, and the run stalls.
 */
#define VB_LOG_ROOM "bench"
#include "lab/bench_txn.h"

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
#include "fabric/shm.h"
#include "lab/bench_lock.h"
#include "lab/run.h"

#define SLICE_NS 5000000ull
#define START_NS 2000000ull /* from the barrier to the first transaction */
#define CLOSE_NS 1000000000ull

/* What parent and workers share. */
struct shm_books {
	struct vb_tbench_control control;
	size_t bytes;
	struct vb_tbench_seat *seats;
	struct vb_tbench_tally *tallies;
};

struct shm_run {
	const struct vb_tbench_plan *plan;
	struct vb_tbench_result *r;
	struct vb_tbench_ground ground;
	struct vb_tbench_recorder *recorders; /* of each worker, with --check */
	struct shm_books *books;
	pid_t *pids; /* 0: gone */
	unsigned workers, forked, alive;
	uint64_t begun_ns;
	struct vb_tbench_pulse pulse;
};

static struct shm_books *books_make(const struct vb_tbench_plan *plan)
{
	unsigned workers = vb_tbench_workers(plan);
	size_t seats = vb_tbench_clients(plan) * sizeof(struct vb_tbench_seat);
	size_t tallies = workers * sizeof(struct vb_tbench_tally);
	size_t bytes = sizeof(struct shm_books) + seats + tallies + 2 * VB_CACHELINE;
	struct shm_books *b =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uintptr_t at;

	if (b == MAP_FAILED)
		return NULL;
	at = (uintptr_t)(b + 1);
	at = (at + VB_CACHELINE - 1) & ~(uintptr_t)(VB_CACHELINE - 1);
	b->bytes = bytes;
	b->seats = (struct vb_tbench_seat *)at;
	b->tallies = (struct vb_tbench_tally *)(at + seats);
	for (unsigned i = 0; i < workers; i++)
		vb_tbench_tally_init(&b->tallies[i]);
	return b;
}

/* ---- the worker process ---- */

static bool told_to_end(const struct vb_tbench_worker *w)
{
	return __atomic_load_n(&w->control->early, __ATOMIC_ACQUIRE) ||
	       __atomic_load_n(&w->control->full, __ATOMIC_ACQUIRE);
}

/* Runs the clients until at_ns in slices; false: an early end is wanted. */
static bool worker_until(struct vb_tbench_worker *w, uint64_t at_ns)
{
	struct vb_sched *s = vb_sched_self();
	uint64_t now = vb_sched_now_slow(s);

	while (now < at_ns && !w->all_finished) {
		vb_sched_run(s, &w->all_finished, at_ns - now < SLICE_NS ? at_ns : now + SLICE_NS);
		vb_tbench_worker_flush(w);
		if (told_to_end(w))
			return false;
		now = vb_sched_now_slow(s);
	}
	return true;
}

static void worker_measure(struct vb_tbench_worker *w)
{
	const struct vb_tbench_opts *o = &w->plan->o;
	uint64_t start = w->control->t0_ns + o->warmup_ns;
	struct vb_sched *s = vb_sched_self();

	if (worker_until(w, start)) {
		vb_tbench_worker_measure(w, true);
		worker_until(w, start + o->duration_ns);
		vb_tbench_worker_measure(w, false);
	}
	w->drain = true;
	while (!w->all_finished)
		vb_sched_run(s, &w->all_finished, vb_sched_now_slow(s) + SLICE_NS);
	/* Others may still need this node's server. */
	while (!__atomic_load_n(&w->control->leave, __ATOMIC_ACQUIRE))
		vb_task_sleep_until(vb_sched_now_slow(s) + SLICE_NS / 5);
}

struct fill_watch {
	struct vb_tbench_control *control;
	uint16_t node;
};

static bool fill_step(void *ctx, uint64_t done)
{
	struct fill_watch *f = ctx;
	unsigned slot = f->node < VB_ARRAY_SIZE(f->control->loaded)
				? f->node
				: (unsigned)VB_ARRAY_SIZE(f->control->loaded) - 1;

	__atomic_store_n(&f->control->loaded[slot], done, __ATOMIC_RELAXED);
	return !__atomic_load_n(&f->control->early, __ATOMIC_ACQUIRE);
}

/* The first worker of a node makes it ready. */
static int open_node(struct shm_run *u, uint16_t node, struct vb_db_server **server)
{
	struct fill_watch watch = {.control = &u->books->control, .node = node};
	const struct vb_load_progress progress = {.step = fill_step, .ctx = &watch};
	int err = u->plan->load->fill(&u->ground.load, node, &progress);

	return err ? err : vb_db_server_start(u->ground.db, node, server);
}

static int worker_open(struct vb_tbench_worker *w, struct shm_run *u, unsigned index)
{
	unsigned each = (unsigned)u->plan->o.coroutines;

	*w = (struct vb_tbench_worker){
		.plan = u->plan,
		.load = &u->ground.load,
		.db = u->ground.db,
		.control = &u->books->control,
		.tally = &u->books->tallies[index],
	};
	if (u->recorders != NULL) {
		u->recorders[index].watch.ctx = &u->recorders[index];
		u->ground.db->watch = &u->recorders[index].watch;
	}
	for (unsigned i = 0; i < each; i++)
		u->books->seats[index * each + i].pid = getpid();
	return vb_tbench_worker_open(w, u->books->seats, index * each, each);
}

VB_NORETURN static void worker_fail(struct shm_run *u, int err)
{
	__atomic_store_n(&u->books->control.failed, err, __ATOMIC_RELEASE);
	_exit(VB_EXIT_FAILED);
}

VB_NORETURN static void worker_main(struct shm_run *u, unsigned index, pid_t parent)
{
	unsigned threads = (unsigned)u->plan->o.threads;
	struct vb_tbench_control *control = &u->books->control;
	struct vb_db_server *server = NULL;
	struct timespec nap = {.tv_nsec = 100000};
	struct vb_tbench_worker w;
	int err = 0;

	vb_bench_child(parent);
	vb_fabric_after_fork(u->ground.fabric);
	if (index % threads == 0)
		err = open_node(u, (uint16_t)(index / threads), &server);
	if (err == 0)
		err = worker_open(&w, u, index);
	if (err)
		worker_fail(u, err);
	__atomic_fetch_add(&control->ready, 1, __ATOMIC_ACQ_REL);
	while (!__atomic_load_n(&control->go, __ATOMIC_ACQUIRE))
		nanosleep(&nap, NULL);
	err = vb_tbench_worker_start(&w);
	if (err)
		worker_fail(u, err);
	worker_measure(&w);
	vb_tbench_worker_close(&w);
	vb_db_server_stop(server);
	_exit(VB_EXIT_OK);
}

/* ---- the parent ---- */

static void bury(struct shm_run *u, unsigned index, int status)
{
	struct vb_tbench_control *control = &u->books->control;
	pid_t pid = u->pids[index];

	u->pids[index] = 0;
	u->alive--;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return;
	if (WIFEXITED(status)) {
		if (control->failed == 0)
			control->failed = -ECHILD;
		return;
	}
	u->r->deaths++;
	u->r->dead_servers += index % u->plan->o.threads == 0;
	u->r->death_signal = WTERMSIG(status);
	vb_shm_mark_dead(u->ground.fabric, pid);
	for (unsigned i = 0; i < vb_tbench_clients(u->plan); i++) {
		struct vb_tbench_seat *seat = &u->books->seats[i];

		if (seat->pid != pid)
			continue;
		seat->dead = 1;
		u->r->dead_clients++;
		vb_tbench_book_close_for(u->r, u->ground.db, seat);
	}
	if (u->recorders != NULL)
		vb_tbench_recorder_bury(&u->recorders[index], u->ground.db);
}

static void parent_step(struct shm_run *u)
{
	struct timespec nap = {.tv_nsec = SLICE_NS};

	nanosleep(&nap, NULL);
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
		vb_shm_mark_dead(u->ground.fabric, u->pids[i]);
		if (u->recorders != NULL)
			vb_tbench_recorder_bury(&u->recorders[i], u->ground.db);
		u->pids[i] = 0;
		u->alive--;
	}
}

static void show_filling(struct shm_run *u)
{
	const struct vb_tbench_control *control = &u->books->control;
	uint64_t nodes = u->plan->o.nodes, slots = VB_ARRAY_SIZE(control->loaded), done = 0;

	if (nodes < slots)
		slots = nodes;
	for (uint64_t i = 0; i < slots; i++)
		done += __atomic_load_n(&control->loaded[i], __ATOMIC_RELAXED);
	vb_bench_progress_show((double)done * (double)nodes /
				       ((double)slots * (double)u->r->records + 1),
			       0, "filling the tables");
}

/* Waits until every worker has opened its clients. */
static int await_ready(struct shm_run *u)
{
	struct vb_tbench_control *control = &u->books->control;

	while (__atomic_load_n(&control->ready, __ATOMIC_ACQUIRE) < u->workers) {
		int failed = __atomic_load_n(&control->failed, __ATOMIC_ACQUIRE);

		if (failed)
			return failed;
		if (u->r->deaths)
			return vb_fail(-ECHILD,
				       "a worker was killed by signal %d before it had begun",
				       u->r->death_signal);
		if (vb_interrupted) {
			control->early = 1;
			return -EINTR;
		}
		parent_step(u);
		show_filling(u);
	}
	u->r->fill_s = (double)(vb_clock_gettime_ns() - u->begun_ns) / 1e9;
	return 0;
}

static int fork_workers(struct shm_run *u)
{
	pid_t parent = getpid();

	fflush(stdout);
	fflush(stderr);
	u->begun_ns = vb_clock_gettime_ns();
	for (unsigned i = 0; i < u->workers; i++) {
		pid_t pid = fork();

		if (pid == 0)
			worker_main(u, i, parent);
		if (pid < 0)
			return vb_fail(-errno, "cannot fork worker %u: %s", i, strerror(errno));
		u->pids[i] = pid;
		u->forked = i + 1;
		u->alive++;
	}
	return await_ready(u);
}

static bool all_finished(const struct shm_run *u)
{
	for (unsigned i = 0; i < vb_tbench_clients(u->plan); i++)
		if (!u->books->seats[i].dead &&
		    !__atomic_load_n(&u->books->seats[i].finished, __ATOMIC_ACQUIRE))
			return false;
	return true;
}

/* Until at_ns, or until every client that lives has finished; true if nothing came in between. */
static bool watch_over(struct shm_run *u, uint64_t at_ns, const char *phase)
{
	struct vb_tbench_control *control = &u->books->control;
	unsigned clients = vb_tbench_clients(u->plan);
	uint64_t from = vb_clock_ns(), now = from;

	while (now < at_ns && u->alive > 0) {
		if (all_finished(u))
			return true;
		if (__atomic_load_n(&control->failed, __ATOMIC_ACQUIRE))
			return false;
		if (!control->early && vb_interrupted) {
			u->r->interrupted = true;
			return false;
		}
		if (vb_tbench_standstill(&u->pulse, u->books->seats, clients, now,
					 u->plan->o.stall_ns)) {
			vb_tbench_explain_stall(u->r, u->books->seats, clients, now);
			vb_tbench_name_holders(u->r, u->ground.db, u->books->seats, clients);
			return false;
		}
		parent_step(u);
		now = vb_clock_ns();
		vb_bench_progress_show(
			at_ns == VB_FOREVER ? 1.0 : (double)(now - from) / (double)(at_ns - from),
			u->pulse.commits, phase);
	}
	return u->alive > 0;
}

static void measure(struct shm_run *u)
{
	const struct vb_tbench_opts *o = &u->plan->o;
	struct vb_tbench_control *control = &u->books->control;
	uint64_t start, give_up;

	control->t0_ns = vb_clock_ns() + START_NS;
	start = control->t0_ns + o->warmup_ns;
	u->pulse.since_ns = control->t0_ns;
	__atomic_store_n(&control->go, 1, __ATOMIC_RELEASE);
	if (watch_over(u, start, "warming up"))
		watch_over(u, start + o->duration_ns, "measuring");
	u->r->history_full = control->full != 0;
	__atomic_store_n(&control->early, 1, __ATOMIC_RELEASE);
	u->pulse.since_ns = vb_clock_ns();
	if (!u->r->stalled)
		watch_over(u, VB_FOREVER, "draining");
	if (u->r->stalled || control->failed) {
		kill_workers(u);
		return;
	}
	__atomic_store_n(&control->leave, 1, __ATOMIC_RELEASE);
	/* Closing a client may take a lease or two; whoever is not gone by then is stuck. */
	give_up = vb_clock_ns() + o->stall_ns + CLOSE_NS + 4 * u->r->lease_ns;
	while (u->alive > 0 && vb_clock_ns() < give_up)
		parent_step(u);
	if (u->alive > 0) {
		u->r->stalled = true;
		snprintf(u->r->stall, sizeof(u->r->stall), "%u workers did not close their clients",
			 u->alive);
	}
	kill_workers(u);
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
					      (unsigned)u->plan->o.coroutines,
					      &u->books->control.full);
	return err;
}

static int set_up(struct shm_run *u, const struct vb_tbench_one *one)
{
	int err;

	u->workers = vb_tbench_workers(u->plan);
	u->pids = calloc(u->workers, sizeof(*u->pids));
	u->books = books_make(u->plan);
	u->r->tally = malloc(sizeof(*u->r->tally));
	if (u->books == NULL || u->pids == NULL || u->r->tally == NULL)
		return vb_fail(-ENOMEM, "no memory for the results of %u workers", u->workers);
	vb_tbench_tally_init(u->r->tally);
	err = vb_tbench_ground_open(&u->ground, u->plan, one, u->r);
	return err ? err : open_recorders(u);
}

/* Everything of everybody, judged. */
static int conclude(struct shm_run *u)
{
	const struct vb_history **parts;
	int err;

	for (unsigned i = 0; i < u->workers; i++)
		vb_tbench_tally_merge(u->r->tally, &u->books->tallies[i]);
	vb_tbench_take_books(u->r->tally, u->books->seats, vb_tbench_clients(u->plan));
	if (u->r->deaths != 0 && u->plan->o.recovery == 0 && !u->r->stalled) {
		err = vb_tbench_sweep(u->r, u->ground.db);
		if (err)
			return err;
	}
	vb_tbench_judge(u->r, &u->ground.load);
	if (u->books->control.failed != 0 || u->recorders == NULL)
		return u->books->control.failed;
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
	if (u->books != NULL) {
		kill_workers(u);
		munmap(u->books, u->books->bytes);
	}
	vb_tbench_ground_close(&u->ground);
	for (unsigned i = 0; u->recorders != NULL && i < u->workers; i++)
		vb_tbench_recorder_close(&u->recorders[i]);
	free(u->recorders);
	free(u->pids);
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
		err = fork_workers(&u);
	if (err == 0) {
		r->ran = true;
		measure(&u);
		err = conclude(&u);
	}
	if (err == -EINTR) {
		r->interrupted = true;
		err = 0;
	}
	tear_down(&u);
	r->wall_s = (double)(vb_clock_gettime_ns() - wall) / 1e9;
	return err;
}
