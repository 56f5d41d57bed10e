/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler of a thread: rounds, time, idling.
 *
 * A round fires the timers that are due, in order, and then runs every task that was ready when the
 * round began; those that become ready meanwhile wait for the next one.  So a yield gives way to
 * each other ready task exactly once, a busy task cannot keep timers and the fabric from being
 * looked at, and the order of everything follows from the order of arming and waking: in virtual
 * time a run repeats itself exactly.
 */
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

/* How many stuck tasks a deadlock is reported with. */
#define STUCK_NAMES 4

/* Looked at by every await; initial-exec keeps it one load in the shared library too. */
static __thread struct vb_sched *sched_self __attribute__((tls_model("initial-exec")));
/* This thread's own, while the keeper may run it; sched_self is NULL then. */
static __thread struct vb_sched *sched_lent __attribute__((tls_model("initial-exec")));
/* sched_self, but NULL while it is kept. */
__thread struct vb_sched *vb_sched_quick __attribute__((tls_model("initial-exec")));

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
	while (!vb_list_empty(&s->all))
		vb_task_kill(vb_container_of(s->all.next, struct vb_task, all));
}

static void sched_free(struct vb_sched *s)
{
	vb_assert(s->tasks == 0);
	sched_self = sched_lent = vb_sched_quick = NULL;
	vb_stack_trim(s);
	pthread_mutex_destroy(&s->env_lock);
	free(s);
}

void vb_sched_end(struct vb_sched *s)
{
	if (s->tasks > 0)
		vb_warn("a thread ended and left %u tasks; they are killed", s->tasks);
	vb_sched_kill_all(s);
	sched_free(s);
}

/* The keeper goes on with the background work of a thread that ends. */
static bool sched_inherit(struct vb_sched *s)
{
	if (!vb_keeper_inherit(s))
		return false;
	sched_self = sched_lent = vb_sched_quick = NULL;
	return true;
}

/* A thread has ended.  Tasks it left waiting, other than background work, can never run again. */
static void sched_thread_exit(void *arg)
{
	struct vb_sched *s = arg;

	if (sched_lent == NULL)
		sched_self = s;
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

	vb_assert(sched_self == NULL && sched_lent == NULL);
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
	s->face.now_ns = vb_clock_early_ns();
	pthread_mutex_init(&s->env_lock, NULL);
	vb_task_init_root(s);
	vb_sched_set_env(s, env, env_ctx);
	sched_self = vb_sched_quick = s;
	pthread_once(&exit_once, exit_key_make);
	pthread_setspecific(exit_key, s);
	*out = s;
	return 0;
}

void vb_sched_bind(struct vb_sched *s, bool here)
{
	sched_self = here ? s : NULL;
	vb_sched_quick = here && !s->face.kept ? s : NULL;
	if (s->env->bind != NULL)
		s->env->bind(s, here);
}

void vb_sched_set_kept(struct vb_sched *s, bool kept)
{
	s->face.kept = kept;
	vb_sched_quick = kept ? NULL : sched_self;
}

void vb_sched_lend(struct vb_sched *s)
{
	vb_sched_bind(s, false);
	sched_lent = s;
}

/* A call of its own: a task may be on another thread after an await, and an address that the
 * compiler kept from before would be the old thread's. */
__attribute__((noinline)) struct vb_sched *vb_sched_self(void)
{
	struct vb_sched *s;

	if (vb_likely(sched_self != NULL))
		return sched_self;
	s = sched_lent;
	if (s != NULL) {
		vb_keeper_take_back(s);
		sched_lent = NULL;
		vb_sched_bind(s, true);
		return s;
	}
	if (vb_sched_create(NULL, NULL, &s) != 0)
		abort(); /* the cause is logged; a thread without a scheduler can await nothing */
	return s;
}

struct vb_sched *vb_sched_here(void)
{
	return sched_self != NULL || sched_lent != NULL ? vb_sched_self() : NULL;
}

bool vb_sched_is_here(const struct vb_sched *s)
{
	return s == sched_self || s == sched_lent;
}

void vb_sched_destroy(struct vb_sched *s)
{
	vb_assert(s == vb_sched_self() && s->face.current == &s->root);
	pthread_setspecific(exit_key, NULL);
	if (sched_inherit(s))
		return;
	vb_keeper_end(s);
	sched_free(s);
}

void vb_sched_forget(void)
{
	struct vb_sched *s = sched_self != NULL ? sched_self : sched_lent;

	if (s == NULL)
		return;
	s->forgotten = forgotten;
	forgotten = s;
	sched_self = sched_lent = vb_sched_quick = NULL;
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

static inline bool sched_quiet(const struct vb_sched *s)
{
	return vb_list_empty(&s->round) && vb_list_empty(&s->ready);
}

static inline void list_move_all(struct vb_list *to, struct vb_list *from)
{
	to->next = from->next;
	to->prev = from->prev;
	to->next->prev = to->prev->next = to;
	vb_list_init(from);
}

/* True when the root's turn has come; what is left of the round is run when it gives way again. */
static inline bool sched_round(struct vb_sched *s)
{
	struct vb_list *it;

	if (!s->face.is_virtual) {
		s->face.now_ns = vb_clock_early_ns();
		if (s->env->poll != NULL)
			s->env->poll(s);
	}
	vb_wheel_fire(s);
	if (vb_list_empty(&s->round) && !vb_list_empty(&s->ready))
		list_move_all(&s->round, &s->ready);
	while ((it = vb_list_pop(&s->round)) != NULL) {
		struct vb_task *t = vb_container_of(it, struct vb_task, link);

		if (vb_unlikely(t == &s->root))
			return true;
		vb_task_enter(s, t);
	}
	return false;
}

/* Nobody is ready: let time pass, until the next timer or until_ns. */
static inline int sched_pass_time(struct vb_sched *s, uint64_t until_ns)
{
	uint64_t next;

	if (!s->face.is_virtual) {
		next = vb_wheel_next(&s->wheel, s->face.now_ns);
		s->env->idle(s, next < until_ns ? next : until_ns);
		return 0;
	}
	if (vb_unlikely(vb_wheel_empty(&s->wheel)))
		return -EDEADLK;
	next = vb_wheel_next(&s->wheel, until_ns);
	if (vb_unlikely(next > until_ns)) {
		s->face.now_ns = until_ns;
		return -ETIMEDOUT;
	}
	if (next > s->face.now_ns)
		s->face.now_ns = next;
	return 0;
}

static int sched_deadlock(struct vb_sched *s)
{
	char names[256] = "";
	size_t len = 0;
	unsigned n = 0;

	vb_list_for_each (it, &s->all) {
		const struct vb_task *t = vb_container_of(it, struct vb_task, all);

		if (t->daemon || n++ >= STUCK_NAMES)
			continue;
		len += (size_t)snprintf(names + len, sizeof(names) - len, " '%.40s'", t->name);
	}
	return vb_fail(-EDEADLK,
		       "deadlock at %llu ns: no timer is armed, nobody is ready, %u tasks wait for "
		       "ever:%s%s",
		       (unsigned long long)s->face.now_ns, s->working, names,
		       n > STUCK_NAMES ? " ..." : "");
}

void vb_sched_root_wait(struct vb_sched *s)
{
	s->face.current = NULL;
	while (!sched_round(s)) {
		if (sched_quiet(s) && vb_unlikely(sched_pass_time(s, VB_FOREVER) != 0)) {
			/* There is nobody to tell: the only task that could go on is the caller. */
			sched_deadlock(s);
			vb_assert(!"the root waits and nothing can wake it");
		}
	}
	s->face.current = &s->root;
	s->root.state = VB_TASK_RUNNING;
}

void vb_sched_step(struct vb_sched *s)
{
	bool root = sched_round(s);

	vb_assert(!root);
	if (sched_quiet(s) && s->background > 0)
		(void)sched_pass_time(s, VB_FOREVER);
}

static int sched_run(struct vb_sched *s, const bool *stop, uint64_t until_ns)
{
	for (;;) {
		int err;

		if (s->working == 0 || (stop != NULL && __atomic_load_n(stop, __ATOMIC_ACQUIRE)))
			return 0;
		if (s->face.now_ns > until_ns)
			return -ETIMEDOUT;
		if (sched_quiet(s)) {
			err = sched_pass_time(s, until_ns);
			if (vb_unlikely(err != 0))
				return err == -EDEADLK ? sched_deadlock(s) : err;
		}
		sched_round(s);
	}
}

int vb_sched_run(struct vb_sched *s, const bool *stop, uint64_t until_ns)
{
	int err;

	vb_assert(s == vb_sched_self() && s->face.current == &s->root);
	s->face.current = NULL;
	err = sched_run(s, stop, until_ns);
	s->face.current = &s->root;
	return err;
}

/* ---- looking ---- */

bool vb_sched_others_ready(const struct vb_sched *s)
{
	return !sched_quiet(s);
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
