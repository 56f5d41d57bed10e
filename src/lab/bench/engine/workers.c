/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker processes of a run on shared memory, or of clients of servers that run already: how they
 * are forked, pass through the phases, are watched over by the parent, die and are killed.
 *
 * The parent makes the segment and what is shared, and forks the workers.  From then on it reaps
 * and looks; the workers keep time by themselves (the machine's clock is common) and write only
 * into their own tally and their clients' states.  A worker that is killed leaves both as they
 * were, less the last slice of its counters.
 *
 * Order of ending: every worker ends its measured span and lets its clients finish what they are
 * in; nobody closes a client before all have finished, because who has not may still need the
 * others.  Then the parent says leave.
 */
#define VB_LOG_ROOM "bench"
#include "lab/bench/engine/run.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/shm/shm.h"
#include "lab/bench/engine/process.h"
#include "lab/bench/engine/progress.h"
#include "lab/reap.h"
#include "lab/run.h"

#define SLICE_NS 5000000ull
#define START_NS 2000000ull /* from the barrier to the first cycle */
#define GIVEN_UP UINT64_MAX /* stopped for too long: we have killed it, and said so */

struct workers {
	struct vb_bench_run *run;
	struct vb_bench_control *control;
	unsigned forked, alive;
	pid_t *pids;          /* 0: gone */
	uint64_t *stopped_ns; /* when the worker was stopped; 0: it is not */
	int death_signal;     /* of who was killed last; 0: nobody was */
};

/* ---- the worker process ---- */

static bool told_to_end(const struct vb_bench_control *control)
{
	return __atomic_load_n(&control->early, __ATOMIC_ACQUIRE) ||
	       __atomic_load_n(&control->full, __ATOMIC_ACQUIRE);
}

/* Runs the clients until at_ns in slices; false: an early end is wanted. */
static bool run_until(struct vb_bench_run *run, uint64_t at_ns)
{
	const bool *all_finished = &run->thread.all_finished;
	struct vb_sched *s = vb_sched_self();
	uint64_t now = vb_sched_now_slow(s);

	while (now < at_ns && !*all_finished) {
		vb_sched_run(s, all_finished, at_ns - now < SLICE_NS ? at_ns : now + SLICE_NS);
		run->ops->client->flush(run);
		if (told_to_end(run->control))
			return false;
		now = vb_sched_now_slow(s);
	}
	return true;
}

static void run_phases(struct vb_bench_run *run)
{
	uint64_t start = run->control->t0_ns + run->o->warmup_ns;
	const bool *all_finished = &run->thread.all_finished;
	struct vb_sched *s = vb_sched_self();

	if (run_until(run, start)) {
		run->ops->client->measure(run, true);
		run_until(run, start + run->o->duration_ns);
		run->ops->client->measure(run, false);
	}
	run->thread.drain = true;
	while (!*all_finished)
		vb_sched_run(s, all_finished, vb_sched_now_slow(s) + SLICE_NS);
	/* Others may still need our clients' answers, or this node's server. */
	while (!__atomic_load_n(&run->control->leave, __ATOMIC_ACQUIRE))
		vb_task_sleep_until(vb_sched_now_slow(s) + SLICE_NS / 5);
}

VB_NORETURN static void fail(struct vb_bench_control *control, int err)
{
	__atomic_store_n(&control->failed, err, __ATOMIC_RELEASE);
	_exit(VB_EXIT_FAILED);
}

VB_NORETURN static void worker_main(struct vb_bench_run *run, unsigned worker, pid_t parent)
{
	struct timespec nap = {.tv_nsec = 100000};
	struct vb_bench_control *control = run->control;
	int err;

	vb_bench_child(parent);
	vb_fabric_after_fork(run->fabric); /* NULL where each worker opens its own */
	err = vb_bench_thread_open(run, worker);
	if (err)
		fail(control, err);
	__atomic_fetch_add(&control->ready, 1, __ATOMIC_ACQ_REL);
	while (!__atomic_load_n(&control->go, __ATOMIC_ACQUIRE))
		nanosleep(&nap, NULL);
	err = vb_bench_thread_start(run);
	if (err)
		fail(control, err);
	run_phases(run);
	vb_bench_thread_close(run);
	if (run->ops->worker_close != NULL)
		run->ops->worker_close(run);
	_exit(VB_EXIT_OK);
}

/* ---- the parent ---- */

/* A worker has gone that was killed by `signal`, or by us (0). */
static void died(struct vb_bench_run *run, unsigned worker, pid_t pid, int signal)
{
	if (run->fabric != NULL)
		vb_shm_mark_dead(run->fabric, pid);
	for (unsigned i = 0; signal != 0 && i < run->clients; i++) {
		struct vb_bench_state *s = vb_bench_state_of(run, i);

		if (s->pid != pid)
			continue;
		s->dead = 1;
		run->end->dead_clients++;
		run->ops->client_died(run, i);
	}
	if (run->ops->worker_died != NULL)
		run->ops->worker_died(run, worker, signal);
	if (signal == 0)
		return;
	run->end->deaths++;
	run->end->death_signal = signal;
}

static void bury(struct workers *w, unsigned worker, int status)
{
	bool given_up = w->stopped_ns[worker] == GIVEN_UP;
	pid_t pid = w->pids[worker];

	w->pids[worker] = 0;
	w->stopped_ns[worker] = 0;
	w->alive--;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return;
	if (WIFEXITED(status)) {
		if (w->control->failed == 0)
			w->control->failed = -ECHILD;
		return;
	}
	w->death_signal = WTERMSIG(status);
	if (!given_up && !vb_interrupted)
		vb_error("worker %u (process %d) was killed by signal %d (%s)%s", worker, pid,
			 w->death_signal, strsignal(w->death_signal),
			 w->run->end->ran ? ": the results are of the others from then on"
					  : " before the run had begun");
	died(w->run, worker, pid, w->death_signal);
}

/* A worker that stays stopped is given up, and killed: what it holds is then as a dead worker's. */
static void look_at_stopped(struct workers *w, unsigned worker)
{
	if (w->stopped_ns[worker] == 0 || w->stopped_ns[worker] == GIVEN_UP ||
	    vb_clock_gettime_ns() - w->stopped_ns[worker] <= VB_REAP_STOPPED_NS)
		return;
	vb_error("worker %u (process %d) has been stopped for %u s and is killed; do not stop "
		 "(SIGSTOP, a debugger) what is measured",
		 worker, w->pids[worker], (unsigned)(VB_REAP_STOPPED_NS / 1000000000));
	w->stopped_ns[worker] = GIVEN_UP;
	kill(w->pids[worker], SIGKILL);
}

/* Lets a slice pass, then looks who has ended or been stopped. */
static void step(struct workers *w)
{
	struct timespec nap = {.tv_nsec = SLICE_NS};

	if (w->run->ops->parent_serves)
		vb_task_sleep_until(vb_sched_now_slow(w->run->sched) + SLICE_NS);
	else
		nanosleep(&nap, NULL);
	for (unsigned i = 0; i < w->forked; i++) {
		int status;

		if (w->pids[i] <= 0)
			continue;
		if (waitpid(w->pids[i], &status, WNOHANG | WUNTRACED | WCONTINUED) != w->pids[i])
			look_at_stopped(w, i);
		else if (WIFSTOPPED(status))
			w->stopped_ns[i] = vb_clock_gettime_ns();
		else if (WIFCONTINUED(status))
			w->stopped_ns[i] = 0;
		else
			bury(w, i, status);
	}
}

/* A stopped worker is no proof against a lock. */
static bool any_stopped(const struct workers *w)
{
	for (unsigned i = 0; i < w->forked; i++)
		if (w->stopped_ns[i] != 0)
			return true;
	return false;
}

static void workers_kill(struct workers *w)
{
	for (unsigned i = 0; i < w->forked; i++) {
		pid_t pid = w->pids[i];
		int status;

		if (pid <= 0)
			continue;
		kill(pid, SIGKILL);
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
		w->pids[i] = 0;
		w->alive--;
		died(w->run, i, pid, 0);
	}
	free(w->pids);
	free(w->stopped_ns);
	w->pids = NULL;
	w->stopped_ns = NULL;
	w->forked = 0;
}

static int await_ready(struct workers *w)
{
	struct vb_bench_control *control = w->control;

	while (__atomic_load_n(&control->ready, __ATOMIC_ACQUIRE) < w->run->workers) {
		int failed = __atomic_load_n(&control->failed, __ATOMIC_ACQUIRE);

		if (failed)
			return failed;
		if (w->death_signal != 0)
			return -ECHILD;
		if (vb_interrupted) {
			__atomic_store_n(&control->early, 1, __ATOMIC_RELEASE);
			return -EINTR;
		}
		step(w);
		if (w->run->ops->opening != NULL)
			w->run->ops->opening(w->run);
	}
	if (w->run->ops->opened != NULL)
		w->run->ops->opened(w->run);
	return 0;
}

static int workers_start(struct workers *w)
{
	pid_t parent = getpid();

	w->pids = calloc(w->run->workers, sizeof(*w->pids));
	w->stopped_ns = calloc(w->run->workers, sizeof(*w->stopped_ns));
	if (w->pids == NULL || w->stopped_ns == NULL)
		return vb_fail(-ENOMEM, "no memory for a list of %u workers", w->run->workers);
	fflush(stdout);
	fflush(stderr);
	for (unsigned i = 0; i < w->run->workers; i++) {
		pid_t pid = fork();

		if (pid == 0)
			worker_main(w->run, i, parent);
		if (pid < 0)
			return vb_fail(-errno, "cannot fork worker %u: %s", i, strerror(errno));
		w->pids[i] = pid;
		w->forked = i + 1;
		w->alive++;
	}
	return await_ready(w);
}

/* Until at_ns, or until every client that lives has finished; true if nothing came in between. */
static bool workers_watch(struct workers *w, uint64_t at_ns, const char *phase)
{
	struct vb_bench_control *control = w->control;
	struct vb_bench_run *run = w->run;
	uint64_t from = vb_clock_ns(), now = from;

	while (now < at_ns && w->alive > 0) {
		if (vb_bench_run_finished(run))
			return true;
		if (__atomic_load_n(&control->failed, __ATOMIC_ACQUIRE))
			return false;
		if (vb_interrupted && !__atomic_load_n(&control->early, __ATOMIC_ACQUIRE)) {
			run->end->interrupted = true;
			return false;
		}
		if (any_stopped(w)) {
			run->pulse.since_ns = now;
		} else if (vb_bench_run_stands_still(run, now)) {
			vb_bench_run_explain(run, now);
			return false;
		}
		step(w);
		now = vb_clock_ns();
		vb_bench_progress_show(
			at_ns == VB_FOREVER ? 1.0 : (double)(now - from) / (double)(at_ns - from),
			run->pulse.cycles, phase);
	}
	return w->alive > 0;
}

/* Everybody has finished: workers close their clients and go.  Who is not gone after so long is
 * stuck, and killed. */
static void leave(struct workers *w, uint64_t bound_ns)
{
	uint64_t give_up = vb_clock_ns() + bound_ns;

	__atomic_store_n(&w->control->leave, 1, __ATOMIC_RELEASE);
	while (w->alive > 0 && vb_clock_ns() < give_up)
		step(w);
	w->run->stuck = w->alive;
	workers_kill(w);
}

static void measure(struct workers *w)
{
	struct vb_bench_run *run = w->run;
	uint64_t begin;

	w->control->t0_ns = vb_clock_ns() + START_NS;
	run->pulse.since_ns = w->control->t0_ns;
	__atomic_store_n(&w->control->go, 1, __ATOMIC_RELEASE);
	begin = w->control->t0_ns + run->o->warmup_ns;
	if (workers_watch(w, begin, "warming up")) {
		vb_info(VB_BENCH_MEASURING);
		if (run->ops->meter != NULL)
			run->ops->meter(run, true);
		workers_watch(w, begin + run->o->duration_ns, "measuring");
		if (run->ops->meter != NULL)
			run->ops->meter(run, false);
	}
	run->ops->measured(run, vb_sched_now_slow(run->sched));
	__atomic_store_n(&w->control->early, 1, __ATOMIC_RELEASE);
	run->pulse.since_ns = vb_clock_ns();
	if (!run->end->stalled)
		workers_watch(w, VB_FOREVER, "draining");
	if (run->end->stalled || w->control->failed)
		workers_kill(w);
	else
		leave(w, run->stall_ns + run->close_ns);
}

int vb_bench_run_workers(struct vb_bench_run *run)
{
	uint64_t begin;
	struct workers w = {.run = run};
	int err = vb_sched_ready();

	if (err == 0)
		err = vb_bench_run_open(run, run->workers);
	if (err)
		return err;
	w.control = run->control;
	run->sched = vb_sched_self();
	begin = vb_clock_gettime_ns();
	err = workers_start(&w);
	run->open_s = (double)(vb_clock_gettime_ns() - begin) / 1e9;
	if (err == 0) {
		run->end->ran = true;
		measure(&w);
		for (unsigned i = 0; i < run->workers; i++)
			vb_bench_tally_merge(run, vb_bench_tally_of(run, i));
		err = run->ops->judge(run);
	}
	if (err == 0)
		err = run->control->failed;
	workers_kill(&w);
	if (err != -EINTR)
		return err;
	run->end->interrupted = true;
	return 0;
}
