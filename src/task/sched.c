/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler of a thread: how it comes and goes, and what it waits with. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define VB_LOG_ROOM "task"
#include "base/log.h"
#include "task/inner.h"

/* The default environment sleeps in slices, so that a stop flag set by a signal handler or another
 * thread is seen; the last stretch, which the kernel would overshoot, it spins. */
#define SLEEP_SLICE_NS 10000000ull
#define SLEEP_SPIN_NS  60000ull

uint32_t vb_forks;

/* Schedulers that forked children have left behind: kept reachable, so that they count as no leak.
 */
static struct vb_sched *forgotten;

static pthread_key_t exit_key;
static pthread_once_t exit_once = PTHREAD_ONCE_INIT;

/* ---- environments ---- */

static void clock_idle(struct vb_sched *s, uint64_t until_ns)
{
	uint64_t now = vb_clock_early_ns(), ns;

	if (now >= until_ns)
		return;
	ns = until_ns - now;
	if (ns <= SLEEP_SPIN_NS) {
		vb_cpu_relax();
		return;
	}
	ns -= SLEEP_SPIN_NS;
	if (ns > SLEEP_SLICE_NS)
		ns = SLEEP_SLICE_NS;
	if (!vb_keeper_nap(s, ns))
		nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
}

static const struct vb_env_ops clock_env = {
	.name = "clock",
	.idle = clock_idle,
};

void vb_sched_set_env(struct vb_sched *s, const struct vb_env_ops *env, void *env_ctx)
{
	if (env == NULL)
		env = &clock_env;
	if (env->is_virtual != s->face.is_virtual) {
		/* The time of a timer means nothing on the other clock. */
		vb_assert(vb_wheel_empty(&s->wheel));
		s->face.is_virtual = env->is_virtual;
		s->wheel.base = 0;
		s->face.now_ns = env->is_virtual ? 0 : vb_clock_early_ns();
	}
	vb_sched_env_lock(s);
	s->env = env;
	s->env_ctx = env_ctx;
	vb_sched_env_unlock(s);
}

void vb_sched_env_lock(struct vb_sched *s)
{
	pthread_mutex_lock(&s->env_lock);
}

void vb_sched_env_unlock(struct vb_sched *s)
{
	pthread_mutex_unlock(&s->env_lock);
}

const struct vb_env_ops *vb_sched_env(struct vb_sched *s)
{
	return s->env;
}

void *vb_sched_env_ctx(struct vb_sched *s)
{
	return s->env_ctx;
}

/* ---- life ---- */

void vb_sched_kill_all(struct vb_sched *s)
{
	vb_assert(s == vb_sched_self() && s->face.current == &s->root);
	vb_task_kill_all(s);
}

/* The keeper goes on with the background work of a thread that ends. */
static bool sched_inherit(struct vb_sched *s)
{
	if (!vb_keeper_inherit(s))
		return false;
	vb_sched_mine = vb_sched_lent = vb_sched_quick = NULL;
	return true;
}

/* A thread has ended.  Tasks it left waiting, other than background work, can never run again. */
static void sched_thread_exit(void *arg)
{
	struct vb_sched *s = arg;

	if (vb_sched_lent == NULL)
		vb_sched_mine = s;
	(void)vb_sched_self();
	s->face.current = &s->root;
	if (sched_inherit(s))
		return;
	vb_keeper_end(s);
	vb_sched_end(s);
}

static void exit_key_make(void)
{
	int err = pthread_key_create(&exit_key, sched_thread_exit);

	vb_assert(err == 0);
}

int vb_sched_create(const struct vb_env_ops *env, void *env_ctx, struct vb_sched **out)
{
	struct vb_sched *s;

	vb_assert(vb_sched_mine == NULL && vb_sched_lent == NULL);
	vb_clock_init();
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return vb_fail(-ENOMEM, "no memory for a scheduler");
	vb_wheel_init(&s->wheel);
	vb_list_init(&s->ready);
	vb_list_init(&s->round);
	vb_list_init(&s->all);
	for (unsigned c = 0; c < VB_STACK_CLASSES; c++)
		vb_list_init(&s->pools[c].free);
	s->guarded_most = VB_STACK_GUARDED;
	s->face.now_ns = vb_clock_early_ns();
	pthread_mutex_init(&s->env_lock, NULL);
	vb_task_init_root(s);
	vb_sched_set_env(s, env, env_ctx);
	vb_sched_mine = vb_sched_quick = s;
	pthread_once(&exit_once, exit_key_make);
	pthread_setspecific(exit_key, s);
	*out = s;
	return 0;
}

/* A call of its own: a task may be on another thread after an await, and an address that the
 * compiler kept from before would be the old thread's. */
__attribute__((noinline)) struct vb_sched *vb_sched_self(void)
{
	struct vb_sched *s;

	if (vb_likely(vb_sched_mine != NULL))
		return vb_sched_mine;
	s = vb_sched_lent;
	if (s != NULL) {
		vb_keeper_take_back(s);
		return s;
	}
	if (vb_sched_create(NULL, NULL, &s) != 0)
		abort(); /* the cause is logged; a thread without a scheduler can await nothing */
	return s;
}

int vb_sched_ready(void)
{
	struct vb_sched *s;

	return vb_sched_mine != NULL || vb_sched_lent != NULL ? 0 : vb_sched_create(NULL, NULL, &s);
}

struct vb_sched *vb_sched_here(void)
{
	return vb_sched_mine != NULL || vb_sched_lent != NULL ? vb_sched_self() : NULL;
}

bool vb_sched_is_here(const struct vb_sched *s)
{
	return s == vb_sched_mine || s == vb_sched_lent;
}

void vb_sched_destroy(struct vb_sched *s)
{
	vb_assert(s == vb_sched_self() && s->face.current == &s->root);
	pthread_setspecific(exit_key, NULL);
	if (sched_inherit(s))
		return;
	vb_keeper_end(s);
	vb_sched_free(s);
}

void vb_sched_forget(void)
{
	struct vb_sched *s = vb_sched_mine != NULL ? vb_sched_mine : vb_sched_lent;

	if (s == NULL)
		return;
	s->forgotten = forgotten;
	forgotten = s;
	vb_sched_mine = vb_sched_lent = vb_sched_quick = NULL;
	pthread_setspecific(exit_key, NULL);
}

/* The child has the forking thread and no other.  Whatever it does with what its parent has opened
 * finds that this is not its scheduler. */
static void forked(void)
{
	vb_forks++;
	vb_sched_forget();
}

__attribute__((constructor)) static void hear_of_forks(void)
{
	(void)pthread_atfork(NULL, NULL, forked);
}

/* ---- running ---- */

int vb_sched_run(struct vb_sched *s, const bool *stop, uint64_t until_ns)
{
	int err;

	vb_assert(s == vb_sched_self() && s->face.current == &s->root);
	s->face.current = NULL;
	err = vb_sched_rounds(s, stop, until_ns);
	s->face.current = &s->root;
	return err;
}

/* ---- looking ---- */

struct vb_host *vb_sched_host(const struct vb_sched *s)
{
	return s->host;
}

uint64_t vb_sched_now_slow(struct vb_sched *s)
{
	return vb_sched_now(s);
}

unsigned vb_sched_tasks(const struct vb_sched *s)
{
	return s->tasks;
}

uint64_t vb_sched_switches(const struct vb_sched *s)
{
	return s->switches;
}
