/* SPDX-License-Identifier: Apache-2.0 */
/* Worker processes of a run on shared memory: see workers.h. */
#define VB_LOG_ROOM "bench"
#include "lab/bench/engine/workers.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "lab/bench/engine/process.h"
#include "lab/bench/engine/progress.h"
#include "lab/reap.h"
#include "lab/run.h"
#include "task/task.h"

#define SLICE_NS 5000000ull
#define START_NS 2000000ull /* from the barrier to the first cycle */
#define GIVEN_UP UINT64_MAX /* stopped for too long: we have killed it, and said so */

/* ---- the worker process ---- */

static bool told_to_end(const struct vb_bench_control *control)
{
	return __atomic_load_n(&control->early, __ATOMIC_ACQUIRE) ||
	       __atomic_load_n(&control->full, __ATOMIC_ACQUIRE);
}

/* Runs the clients until at_ns in slices; false: an early end is wanted. */
static bool run_until(const struct vb_bench_forks *f, const struct vb_bench_life *l, uint64_t at_ns)
{
	struct vb_sched *s = vb_sched_self();
	uint64_t now = vb_sched_now_slow(s);

	while (now < at_ns && !*l->all_finished) {
		vb_sched_run(s, l->all_finished, at_ns - now < SLICE_NS ? at_ns : now + SLICE_NS);
		l->flush(l->worker);
		if (told_to_end(f->control))
			return false;
		now = vb_sched_now_slow(s);
	}
	return true;
}

static void run_phases(const struct vb_bench_forks *f, const struct vb_bench_life *l)
{
	uint64_t start = f->control->t0_ns + f->warmup_ns;
	struct vb_sched *s = vb_sched_self();

	if (run_until(f, l, start)) {
		l->measure(l->worker, true);
		run_until(f, l, start + f->duration_ns);
		l->measure(l->worker, false);
	}
	*l->drain = true;
	while (!*l->all_finished)
		vb_sched_run(s, l->all_finished, vb_sched_now_slow(s) + SLICE_NS);
	/* Others may still need our clients' answers, or this node's server. */
	while (!__atomic_load_n(&f->control->leave, __ATOMIC_ACQUIRE))
		vb_task_sleep_until(vb_sched_now_slow(s) + SLICE_NS / 5);
}

VB_NORETURN static void fail(struct vb_bench_control *control, int err)
{
	__atomic_store_n(&control->failed, err, __ATOMIC_RELEASE);
	_exit(VB_EXIT_FAILED);
}

VB_NORETURN static void worker_main(struct vb_bench_forks *f, unsigned worker, pid_t parent)
{
	struct timespec nap = {.tv_nsec = 100000};
	struct vb_bench_life life;
	int err;

	vb_bench_child(parent);
	err = f->ops->open(f->run, worker, &life);
	if (err)
		fail(f->control, err);
	__atomic_fetch_add(&f->control->ready, 1, __ATOMIC_ACQ_REL);
	while (!__atomic_load_n(&f->control->go, __ATOMIC_ACQUIRE))
		nanosleep(&nap, NULL);
	err = life.start(life.worker);
	if (err)
		fail(f->control, err);
	run_phases(f, &life);
	f->ops->close(f->run);
	_exit(VB_EXIT_OK);
}

/* ---- the parent ---- */

static void bury(struct vb_bench_forks *f, unsigned worker, int status)
{
	bool given_up = f->stopped_ns[worker] == GIVEN_UP;
	pid_t pid = f->pids[worker];

	f->pids[worker] = 0;
	f->stopped_ns[worker] = 0;
	f->alive--;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return;
	if (WIFEXITED(status)) {
		if (f->control->failed == 0)
			f->control->failed = -ECHILD;
		return;
	}
	f->death_signal = WTERMSIG(status);
	if (!given_up && !vb_interrupted)
		vb_error("worker %u (process %d) was killed by signal %d (%s): the results are of "
			 "the "
			 "others from then on",
			 worker, pid, f->death_signal, strsignal(f->death_signal));
	f->ops->died(f->run, worker, pid, f->death_signal);
}

/* A worker that stays stopped is given up, and killed: what it holds is then as a dead worker's. */
static void look_at_stopped(struct vb_bench_forks *f, unsigned worker)
{
	if (f->stopped_ns[worker] == 0 || f->stopped_ns[worker] == GIVEN_UP ||
	    vb_clock_gettime_ns() - f->stopped_ns[worker] <= VB_REAP_STOPPED_NS)
		return;
	vb_error("worker %u (process %d) has been stopped for %u s and is killed; do not stop "
		 "(SIGSTOP, a "
		 "debugger) what is measured",
		 worker, f->pids[worker], (unsigned)(VB_REAP_STOPPED_NS / 1000000000));
	f->stopped_ns[worker] = GIVEN_UP;
	kill(f->pids[worker], SIGKILL);
}

/* Lets a slice pass, then looks who has ended or been stopped. */
static void step(struct vb_bench_forks *f)
{
	f->ops->pass(f->run, SLICE_NS);
	for (unsigned i = 0; i < f->forked; i++) {
		int status;

		if (f->pids[i] <= 0)
			continue;
		if (waitpid(f->pids[i], &status, WNOHANG | WUNTRACED | WCONTINUED) != f->pids[i])
			look_at_stopped(f, i);
		else if (WIFSTOPPED(status))
			f->stopped_ns[i] = vb_clock_gettime_ns();
		else if (WIFCONTINUED(status))
			f->stopped_ns[i] = 0;
		else
			bury(f, i, status);
	}
}

/* A stopped worker is no proof against a lock. */
static bool any_stopped(const struct vb_bench_forks *f)
{
	for (unsigned i = 0; i < f->forked; i++)
		if (f->stopped_ns[i] != 0)
			return true;
	return false;
}

void vb_bench_forks_kill(struct vb_bench_forks *f)
{
	for (unsigned i = 0; i < f->forked; i++) {
		pid_t pid = f->pids[i];
		int status;

		if (pid <= 0)
			continue;
		kill(pid, SIGKILL);
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
		f->pids[i] = 0;
		f->alive--;
		f->ops->died(f->run, i, pid, 0);
	}
	free(f->pids);
	free(f->stopped_ns);
	f->pids = NULL;
	f->stopped_ns = NULL;
	f->forked = 0;
}

static int await_ready(struct vb_bench_forks *f)
{
	struct vb_bench_control *control = f->control;

	while (__atomic_load_n(&control->ready, __ATOMIC_ACQUIRE) < f->workers) {
		int failed = __atomic_load_n(&control->failed, __ATOMIC_ACQUIRE);

		if (failed)
			return failed;
		if (f->death_signal != 0)
			return vb_fail(-ECHILD,
				       "a worker was killed by signal %d before it had begun",
				       f->death_signal);
		if (vb_interrupted) {
			__atomic_store_n(&control->early, 1, __ATOMIC_RELEASE);
			return -EINTR;
		}
		step(f);
		if (f->ops->opening != NULL)
			f->ops->opening(f->run);
	}
	return 0;
}

int vb_bench_forks_start(struct vb_bench_forks *f)
{
	pid_t parent = getpid();

	f->pids = calloc(f->workers, sizeof(*f->pids));
	f->stopped_ns = calloc(f->workers, sizeof(*f->stopped_ns));
	if (f->pids == NULL || f->stopped_ns == NULL)
		return vb_fail(-ENOMEM, "no memory for a list of %u workers", f->workers);
	fflush(stdout);
	fflush(stderr);
	for (unsigned i = 0; i < f->workers; i++) {
		pid_t pid = fork();

		if (pid == 0)
			worker_main(f, i, parent);
		if (pid < 0)
			return vb_fail(-errno, "cannot fork worker %u: %s", i, strerror(errno));
		f->pids[i] = pid;
		f->forked = i + 1;
		f->alive++;
	}
	return await_ready(f);
}

uint64_t vb_bench_forks_go(struct vb_bench_forks *f)
{
	f->control->t0_ns = vb_clock_ns() + START_NS;
	f->pulse.since_ns = f->control->t0_ns;
	__atomic_store_n(&f->control->go, 1, __ATOMIC_RELEASE);
	return f->control->t0_ns;
}

bool vb_bench_forks_watch(struct vb_bench_forks *f, uint64_t at_ns, const char *phase)
{
	struct vb_bench_control *control = f->control;
	uint64_t from = vb_clock_ns(), now = from;

	while (now < at_ns && f->alive > 0) {
		if (f->ops->all_finished(f->run))
			return true;
		if (__atomic_load_n(&control->failed, __ATOMIC_ACQUIRE))
			return false;
		if (vb_interrupted && !__atomic_load_n(&control->early, __ATOMIC_ACQUIRE)) {
			f->interrupted = true;
			return false;
		}
		if (any_stopped(f))
			f->pulse.since_ns = now;
		else if (f->ops->stands_still(f->run, &f->pulse, now))
			return false;
		step(f);
		now = vb_clock_ns();
		vb_bench_progress_show(
			at_ns == VB_FOREVER ? 1.0 : (double)(now - from) / (double)(at_ns - from),
			f->pulse.cycles, phase);
	}
	return f->alive > 0;
}

unsigned vb_bench_forks_leave(struct vb_bench_forks *f, uint64_t bound_ns)
{
	uint64_t give_up = vb_clock_ns() + bound_ns;
	unsigned stuck;

	__atomic_store_n(&f->control->leave, 1, __ATOMIC_RELEASE);
	while (f->alive > 0 && vb_clock_ns() < give_up)
		step(f);
	stuck = f->alive;
	vb_bench_forks_kill(f);
	return stuck;
}
