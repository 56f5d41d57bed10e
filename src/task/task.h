/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stackful coroutines and their scheduler.
 *
 * One scheduler per OS thread.  A task is straight-line C on a stack of its own; it gives way only
 * where it awaits something (vb_task_suspend and what is built on it), so code between two awaits
 * is atomic with respect to the thread's other tasks.
 *
 * The thread's own stack is a task too, the *root*: when code outside any coroutine awaits, the
 * scheduler runs other tasks until the root is woken.  Library calls therefore block a plain
 * thread and suspend a coroutine, with the same body.
 *
 * Time comes from the scheduler's environment: the machine's monotonic clock, or virtual time that
 * jumps from timer to timer when nobody is ready (sim).  All times are ns.
 *
 * Await points and cancellation: vb_task_cancel makes the task's current or next interruptible
 * await, and every later one, return -ECANCELED.  Waiting for posted verbs is not interruptible
 * (their results land on the task's stack); it is bounded by the fabric.
 */
#ifndef VB_TASK_TASK_H
#define VB_TASK_TASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/list.h"

#define VB_FOREVER UINT64_MAX

struct vb_host;
struct vb_sched;
struct vb_task;
struct vb_timer;

/* A timer is owned and kept by its user; it must stay put while armed. */
struct vb_timer {
	struct vb_list link;
	uint64_t at_ns;
	uint64_t seq;                         /* ties fire in the order they were armed */
	uint32_t slot;                        /* 0 = not armed */
	void (*fire)(struct vb_timer *timer); /* runs on the scheduler's stack; must not await */
};

/* The environment of a scheduler. */
struct vb_env_ops {
	const char *name;
	/* Virtual: the clock stands still until the scheduler moves it to the next timer. */
	bool is_virtual;
	/* Real only.  Nothing is ready and the next timer is due at until_ns (VB_FOREVER: none):
	 * look for fabric progress, spin or sleep, but return at the latest then.  May wake
	 * tasks. */
	void (*idle)(struct vb_sched *s, uint64_t until_ns);
	/* Real only.  Called between rounds of ready tasks, cheap: look for fabric progress. */
	void (*poll)(struct vb_sched *s);
	/* Optional, real only.  The tasks that were ready have had their turn; nobody may look again for long. */
	void (*ran)(struct vb_sched *s);
	/* Optional: this thread runs the scheduler from now on (here), or no more. */
	void (*bind)(struct vb_sched *s, bool here);
	/* Called by the owner while the keeper runs the scheduler, with vb_sched_env_lock held:
	 * ends idle, which returns at once where vb_sched_wanted.  NULL: idle does not sleep
	 * long. */
	void (*interrupt)(struct vb_sched *s);
};

/* This thread's scheduler, made with the real environment on first use; without memory for it the
 * program ends. */
struct vb_sched *vb_sched_self(void);
/* Makes it if there is none: 0 or -ENOMEM, said.  For calls that may be a thread's first. */
int vb_sched_ready(void);

/* Makes a scheduler and binds it to this thread, which must not have one.  env may be NULL (real
 * time, sleeps with nanosleep when idle).  -ENOMEM. */
int vb_sched_create(const struct vb_env_ops *env, void *env_ctx, struct vb_sched **out);
/* Replaces the environment (a fabric that can be waited on brings its own); ctx is the
 * backend's. */
void vb_sched_set_env(struct vb_sched *s, const struct vb_env_ops *env, void *env_ctx);
void *vb_sched_env_ctx(struct vb_sched *s);
const struct vb_env_ops *vb_sched_env(struct vb_sched *s);
/* What interrupt looks at is changed under this lock only. */
void vb_sched_env_lock(struct vb_sched *s);
void vb_sched_env_unlock(struct vb_sched *s);
/* Every task must have ended or been killed; but if there is background work, the keeper goes on
 * with it and destroys the scheduler when it is done. */
void vb_sched_destroy(struct vb_sched *s);
/* Kills every task, whatever it waits for: the end of a simulation with dead clients.  Root
 * only. */
void vb_sched_kill_all(struct vb_sched *s);
/* Drops this thread's scheduler without touching its tasks.  A forked child has done so before its
 * fork returns. */
void vb_sched_forget(void);
/* How many forks lie between the process that loaded this library and this one: what was made under
 * another number is another process's. */
extern uint32_t vb_forks;

/* Runs tasks from the root until none is left (0), *stop becomes true (0; may be NULL), the clock
 * passes until_ns (-ETIMEDOUT), or, in virtual time, nobody is ready and no timer is armed while
 * tasks are still waiting (-EDEADLK).  Root only. */
int vb_sched_run(struct vb_sched *s, const bool *stop, uint64_t until_ns);

/* Whether other tasks are ready to run: what the running one puts off happens soon after. */
bool vb_sched_others_ready(const struct vb_sched *s);

uint64_t vb_sched_now_slow(struct vb_sched *s);
unsigned vb_sched_tasks(const struct vb_sched *s); /* tasks alive, root not counted */
uint64_t vb_sched_switches(const struct vb_sched *s);
unsigned vb_sched_calls_open(const struct vb_sched *s); /* on rings; by whoever has it */
bool vb_sched_is_orphan(const struct vb_sched *s); /* its thread has ended; by whoever has it */
/* Whose thread it is, or NULL; on that thread. */
struct vb_host *vb_sched_host(const struct vb_sched *s);

/* The part of the scheduler that inline functions see. */
struct vb_sched_face {
	uint64_t
		now_ns; /* virtual: the time; real: when the scheduler last looked (a lower bound) */
	bool is_virtual;
	bool kept;     /* the owner's calls begin with vb_keeper_enter; written by the owner */
	uint32_t turn; /* atomic: whose it is, see keeper.c */
	struct vb_task *current;
};

static inline uint64_t vb_sched_now(struct vb_sched *s)
{
	const struct vb_sched_face *f = (const struct vb_sched_face *)s;

	return f->is_virtual ? f->now_ns : vb_clock_ns();
}

/* A lower bound of now at a third of the price: clock.h says where it will do. */
static inline uint64_t vb_sched_now_early(struct vb_sched *s)
{
	const struct vb_sched_face *f = (const struct vb_sched_face *)s;

	return f->is_virtual ? f->now_ns : vb_clock_early_ns();
}

/* A lower bound of now that costs no clock read; at most one scheduling round old. */
static inline uint64_t vb_sched_now_coarse(struct vb_sched *s)
{
	return ((const struct vb_sched_face *)s)->now_ns;
}

/*
 * ---- background work, and whose turn it is (keeper.c) ----
 *
 * What is to go on while the thread is elsewhere is counted with begin and end, by whoever has the
 * scheduler.  From then on the thread's public calls are "inside" between enter and leave, and
 * when it is outside for a while the keeper, a thread of its own, runs the scheduler's tasks.
 * Under virtual time all of it does nothing.
 *
 * A call of the owner that is not guarded is safe as long as it reaches the scheduler through
 * vb_sched_self or vb_task_self, which take it back from the keeper; it stays with the owner then
 * until the end of his next guarded call.
 */
void vb_sched_background_begin(struct vb_sched *s);
void vb_sched_background_end(struct vb_sched *s);

bool vb_keeper_enter(struct vb_sched *s);
void vb_keeper_leave(struct vb_sched *s);
/* At the end of a call that may have left background work behind: does what leave does, unless a
 * call further out will. */
void vb_keeper_settle(struct vb_sched *s);

#define VB_TURN_WANTED 4
/* For idle: the owner wants the scheduler back from the keeper. */
static inline bool vb_sched_wanted(const struct vb_sched *s)
{
	return __atomic_load_n(&((const struct vb_sched_face *)s)->turn, __ATOMIC_SEQ_CST) ==
	       VB_TURN_WANTED;
}

/* One branch for a thread that leaves nothing behind. */
static inline bool vb_sched_kept(const struct vb_sched *s)
{
	return vb_unlikely(((const struct vb_sched_face *)s)->kept);
}

/*
 * This thread's scheduler if its calls need not begin with enter, else NULL.  One compare with it
 * tells a call by its owner, who leaves nothing behind, from all others: those of a keeper's owner,
 * of another thread, and of a forked child.  Only for the beginning of a call, before any await.
 */
extern __thread struct vb_sched *vb_sched_quick __attribute__((tls_model("initial-exec")));
#if defined(__aarch64__)
#define vb_sched_quick VB_TLS_AT(vb_sched_quick)
#endif

/* Whether this thread runs the scheduler, or has lent it to its keeper. */
bool vb_sched_is_here(const struct vb_sched *s);

static inline struct vb_sched *vb_sched_guard(struct vb_sched *s)
{
	return s != NULL && vb_sched_kept(s) && vb_keeper_enter(s) ? s : NULL;
}

static inline void vb_sched_unguard(struct vb_sched **s)
{
	if (vb_unlikely(*s != NULL))
		vb_keeper_leave(*s);
}

/* The calling thread's scheduler if it has one; for calls that begin without an endpoint. */
struct vb_sched *vb_sched_here(void);

/* The rest of the block is inside; `s` may be gone from its owner's structs by then. */
#define VB_SCHED_INSIDE(s)                                                                         \
	struct vb_sched *inside_ __attribute__((cleanup(vb_sched_unguard), unused)) =              \
		vb_sched_guard(s)

/* ---- timers ---- */

static inline bool vb_timer_armed(const struct vb_timer *t)
{
	return t->slot != 0;
}

/* Arms, or moves an armed one. */
void vb_timer_arm(struct vb_sched *s, struct vb_timer *t, uint64_t at_ns);
void vb_timer_disarm(struct vb_sched *s, struct vb_timer *t);
/* When the earliest is due; VB_FOREVER: none is armed. */
uint64_t vb_sched_next_timer(struct vb_sched *s);

/* ---- tasks ---- */

struct vb_task_params {
	const char *name;   /* kept as a pointer; for messages */
	size_t stack_bytes; /* 0: 64 KiB; below it lies a guard page */
	bool daemon;        /* vb_sched_run does not wait for it, nor does it count as stuck */
};

/* Makes a task and puts it at the end of the ready queue.  -ENOMEM. */
int vb_task_spawn(struct vb_sched *s, void (*body)(void *arg), void *arg,
		  const struct vb_task_params *params, struct vb_task **out);

/* Keeps a stack of the usual size for the next task, whatever becomes of memory meanwhile: for who must
 * be able to leave one behind.  0 or -ENOMEM, said. */
int vb_task_reserve(struct vb_sched *s);

struct vb_task *vb_task_self(void);
struct vb_sched *vb_task_sched(struct vb_task *t);
const char *vb_task_name(const struct vb_task *t);

/* From the root: runs a task that has just been made until it first gives way, before all others that
 * are ready.  It may have ended and be gone then.  From another task: false, it is left where it is. */
bool vb_task_run_now(struct vb_task *t);

/* Gives way to every other ready task once. */
void vb_task_yield(void);

/* Sleeps until somebody calls vb_task_wake on this task, or until_ns.  A wake that came before the
 * suspend is not lost: it makes the suspend return at once (one permit, as park/unpark).
 * 0 woken, -ETIMEDOUT, -ECANCELED. */
int vb_task_suspend(uint64_t until_ns);
/* The same, deaf to cancellation; for waits whose end is certain. */
int vb_task_suspend_uninterruptible(uint64_t until_ns);
/* Same thread only.  Waking a task that runs or is ready leaves it a permit. */
void vb_task_wake(struct vb_task *t);

/* 0, or -ECANCELED. */
int vb_task_sleep_until(uint64_t at_ns);

void vb_task_cancel(struct vb_task *t);
/* While shielded, the running task's awaits are deaf to cancellation (a release must get through).
 * Returns what was set before, to be restored. */
bool vb_task_shield(bool on);
bool vb_task_cancelled(const struct vb_task *t);

/* The task never runs again and its stack is freed without unwinding: how a simulated client dies.
 * Not the running task, unless through vb_task_die(). */
void vb_task_kill(struct vb_task *t);
VB_NORETURN void vb_task_die(void);

/* One slot for whoever needs to find his state from the task (fault injection does). */
void vb_task_set_user(struct vb_task *t, void *user);
void *vb_task_user(const struct vb_task *t);

#endif
