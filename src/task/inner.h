/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of the scheduler, for the files of this room only.
 *
 * A task's struct lies at the upper end of its own stack, so a task is one mapping and its first
 * page holds both.  Address space per task: 64 KiB and a 16 KiB guard.  Memory: the pages it has
 * touched, one to three for ordinary code (4 to 12 KiB), and about 40 bytes of page table.  A
 * process may have some 32,000 tasks under Linux' default vm.max_map_count (two areas each).
 *
 * A simulation may have more.  In virtual time the stacks of a scheduler behind the first
 * VB_STACK_GUARDED have no guards of their own: they lie in slabs of VB_SLAB_STACKS, side by side,
 * with one guard below all.  What overflows such a stack runs into the upper end of the next one,
 * through its task's `canary`, which is looked at each time that task is entered or ends; the
 * process is aborted then.  So it is found late, and not at all if a frame jumps over the canary.
 */
#ifndef VB_TASK_INNER_H
#define VB_TASK_INNER_H

#include <pthread.h>

#include "task/fcontext.h"
#include "task/fiber.h"
#include "task/task.h"

/* Six bits a level: eleven levels cover 64 bits. */
#define VB_WHEEL_BITS   6
#define VB_WHEEL_SLOTS  64
#define VB_WHEEL_LEVELS 11

/* Free stacks that are kept per size class; further ones are unmapped. */
#define VB_STACK_POOL_MAX 1024
#define VB_STACK_MIN_LOG2 14
#define VB_STACK_CLASSES  13 /* 16 KiB to 64 MiB */
#define VB_STACK_GUARDED  16384u
#define VB_SLAB_STACKS    64u
#define VB_STACK_CANARY   0x7465726d69746573ull

/* At the lower end of its mapping. */
struct vb_slab {
	size_t bytes;    /* of the mapping */
	char *next;      /* the first stack that was never given out */
	unsigned unused; /* how many were not */
	unsigned given;  /* and how many were and have not come back */
};

struct vb_wheel {
	uint64_t base;
	uint64_t seq;    /* of the next timer armed */
	uint32_t levels; /* those that hold timers */
	uint64_t occupied[VB_WHEEL_LEVELS];
	struct vb_list slots[VB_WHEEL_LEVELS * VB_WHEEL_SLOTS];
};

struct vb_stack_pool {
	struct vb_list free; /* of dead tasks, by link */
	unsigned n;
	struct vb_slab *slab; /* with stacks that were never given out, or NULL */
};

enum vb_task_state {
	VB_TASK_DEAD, /* in the pool, or about to be */
	VB_TASK_READY,
	VB_TASK_RUNNING,
	VB_TASK_WAITING,
};

/* What may end the wait of a task that is VB_TASK_WAITING, besides its timer. */
#define VB_WAIT_WAKE   1u
#define VB_WAIT_CANCEL 2u

struct vb_task {
	struct vb_list link; /* ready queue or pool */
	fcontext_t ctx;      /* where to go on; not of the running task */
	struct vb_sched *sched;
	uint8_t state; /* enum vb_task_state */
	uint8_t wait;  /* VB_WAIT_* */
	bool permit;
	bool cancelled;
	bool shielded; /* deaf to cancellation for now */
	bool daemon;
	bool started;
	uint8_t stack_class;
	bool unguarded;    /* its stack is in a slab */
	int result;        /* of the wait that has ended */
	int timeout_value; /* result if the timer ends the wait */
	struct vb_timer timer;
	void (*body)(void *arg);
	void *arg;
	void *user;
	const char *name;
	struct vb_list all;
	char *bottom;         /* of the stack */
	struct vb_slab *slab; /* if it is unguarded */
	struct vb_fiber fiber;
	uint64_t canary; /* last: the nearest to the stack above, if that has no guard */
};

struct vb_sched {
	struct vb_sched_face face; /* first: inline functions look at it */
	fcontext_t loop_ctx;       /* the scheduler, while a task runs */
	struct vb_list ready;      /* of the next round */
	struct vb_list round;      /* still to run in this round */
	struct vb_wheel wheel;
	uint64_t switches;
	const struct vb_env_ops *env;
	void *env_ctx;
	unsigned tasks;   /* alive, without the root */
	unsigned working; /* of them, no daemons */
	struct vb_task root;
	struct vb_list all;
	struct vb_stack_pool pools[VB_STACK_CLASSES];
	unsigned colour;            /* of the next new stack */
	unsigned guarded;           /* stacks that have one */
	unsigned guarded_most;      /* in virtual time */
	struct vb_sched *forgotten; /* chain of schedulers a fork left behind */
	/* keeper.c.  The first three are whoever's who has the scheduler. */
	unsigned background;   /* pieces of background work */
	unsigned inside;       /* calls of the owner under way, one in the other */
	unsigned calls_open;   /* of them, calls on rings; in virtual time, too */
	uint64_t last_turn_ns; /* when a busy owner last gave them a turn */
	uint32_t calls;        /* atomic: times that the owner has come back */
	bool gone;             /* atomic, the owner's: he has said that he goes */
	bool orphan;           /* atomic: the owner's thread has ended */
	bool has_keeper;       /* the owner's */
	struct vb_host *host;  /* whose thread this is, or NULL; that thread's */
	pthread_t keeper;
	pthread_mutex_t env_lock; /* of env, and of what its interrupt looks at */
};

/* ---- timer.c ---- */

void vb_wheel_init(struct vb_wheel *w);
/* When the earliest timer is due, or a time after limit_ns and not after it.  VB_FOREVER: none is
 * armed.  The scheduler's time must not fall below limit_ns from now on. */
uint64_t vb_wheel_next(struct vb_wheel *w, uint64_t limit_ns);
/* Fires what is due, in order.  Timers armed meanwhile wait for the next call. */
void vb_wheel_fire(struct vb_sched *s);

static inline bool vb_wheel_empty(const struct vb_wheel *w)
{
	return w->levels == 0;
}

/* ---- stack.c ---- */

/* The size class of a stack, or -EINVAL. */
int vb_stack_class(size_t bytes);
/* A task without a life: its stack and fiber are set.  NULL: out of memory (said). */
struct vb_task *vb_stack_get(struct vb_sched *s, unsigned stack_class);
void vb_stack_put(struct vb_sched *s, struct vb_task *t);
void vb_stack_trim(struct vb_sched *s);
/* The stack above the task's has overflowed. */
VB_NORETURN VB_COLD void vb_stack_torn(void);

static inline void vb_stack_check(const struct vb_task *t)
{
	if (vb_unlikely(t->unguarded) && vb_unlikely(t->canary != VB_STACK_CANARY))
		vb_stack_torn();
}

/* ---- state.c ---- */

/* Makes the thread's own stack the running task. */
void vb_task_init_root(struct vb_sched *s);
/* Its timer ends a wait. */
void vb_task_timeout(struct vb_timer *timer);
/* The task has ended, or is killed: take it off the books, its stack into the pool. */
void vb_task_bury(struct vb_sched *s, struct vb_task *t);
void vb_task_kill_all(struct vb_sched *s);

/* ---- rounds.c ---- */

/* Runs a ready task until it gives way; called by the scheduler only.  Inline: after a switch the
 * processor mispredicts every return, at some 10 ns each. */
static inline void vb_task_enter(struct vb_sched *s, struct vb_task *t)
{
	transfer_t from;

	vb_stack_check(t);
	s->face.current = t;
	s->switches++;
	t->state = VB_TASK_RUNNING;
	t->started = true;
	vb_fiber_leave(&s->root.fiber, &t->fiber);
	from = jump_fcontext(t->ctx, s);
	vb_fiber_arrive(&s->root.fiber, &t->fiber);
	s->face.current = NULL;
	t->ctx = from.fctx;
	if (vb_unlikely(t->state == VB_TASK_DEAD))
		vb_task_bury(s, t);
}

/* The root gives way: run others until it is ready and its turn has come. */
void vb_sched_root_wait(struct vb_sched *s);
/* The same, and it is ready. */
void vb_sched_root_yield(struct vb_sched *s);
/* One round, and an idle wait if nobody is ready: for the keeper. */
void vb_sched_step(struct vb_sched *s);
/* Its parts.  One round: true if somebody is ready for another one. */
bool vb_sched_turn(struct vb_sched *s);
void vb_sched_idle(struct vb_sched *s);
/* Round after round; see vb_sched_run. */
int vb_sched_rounds(struct vb_sched *s, const bool *stop, uint64_t until_ns);

/* ---- bind.c ---- */

/* Looked at by every await; initial-exec keeps it one load in the shared library too. */
extern __thread struct vb_sched *vb_sched_mine __attribute__((tls_model("initial-exec")));
/* This thread's own, while the keeper may run it; vb_sched_mine is NULL then. */
extern __thread struct vb_sched *vb_sched_lent __attribute__((tls_model("initial-exec")));
#if defined(__aarch64__)
#define vb_sched_mine VB_TLS_AT(vb_sched_mine)
#define vb_sched_lent VB_TLS_AT(vb_sched_lent)
#endif

/* This thread runs the scheduler from now on, or no more. */
void vb_sched_bind(struct vb_sched *s, bool here);
/* The owner goes: the scheduler is found by vb_sched_self, and taken back first. */
void vb_sched_lend(struct vb_sched *s);
/* By whoever has it: the owner's calls begin with vb_keeper_enter from now on, or no more. */
void vb_sched_set_kept(struct vb_sched *s, bool kept);
/* By whoever has it; no task is left. */
void vb_sched_free(struct vb_sched *s);
/* Kills what is left and frees it; by whoever has it. */
void vb_sched_end(struct vb_sched *s);

/* ---- keeper.c ---- */

/* The owner, who had lent it, has it again. */
void vb_keeper_take_back(struct vb_sched *s);
/* The scheduler is about to be freed by its owner, who has it. */
void vb_keeper_end(struct vb_sched *s);
/* The owner, who has it, goes for good.  False: there is nothing to inherit. */
bool vb_keeper_inherit(struct vb_sched *s);
/* Background work that is a call on a ring: no other call of the thread is quick meanwhile. */
void vb_sched_call_begin(struct vb_sched *s);
void vb_sched_call_end(struct vb_sched *s);
/* Nor while one runs of which it is not known yet whether it will be. */
bool vb_sched_slow_begin(struct vb_sched *s);
void vb_sched_slow_end(struct vb_sched *s, bool quick);
/* The owner goes, and the keeper need not look whether he does.  0, or -ENOMEM, said: there is none. */
int vb_keeper_go(struct vb_sched *s);
/* Whether he has, and has not come back since.  By the owner. */
bool vb_keeper_is_gone(const struct vb_sched *s);
/* The calling thread is a host's from now on. */
void vb_keeper_host_begin(struct vb_sched *s, struct vb_host *host);
/* It goes round: takes what was posted, runs what is ready, until there is no more to take for ever. */
void vb_keeper_host(struct vb_sched *s, bool (*take)(void *arg), void *arg);
/* By another thread: something was posted. */
void vb_keeper_call(struct vb_sched *s);
/* In idle: sleeps so long at most, if it is the keeper that idles; else false. */
bool vb_keeper_nap(struct vb_sched *s, uint64_t ns);

#endif
