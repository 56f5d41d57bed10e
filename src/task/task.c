/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a running task calls: others are made, it gives way, waits, or ends.
 *
 * Every switch goes through the scheduler, which runs on the root's stack: task, scheduler, task.
 * That is one jump more than going straight to the next task, a few ns, and it gives timers, the
 * fabric and the dead a place where no task runs.
 */
#include <errno.h>

#define VB_LOG_ROOM "task"
#include "base/log.h"
#include "task/inner.h"

/* ---- the switch ---- */

static void task_leave(struct vb_sched *s, struct vb_task *t)
{
	transfer_t from;

	vb_fiber_leave(&t->fiber, &s->root.fiber);
	from = jump_fcontext(s->loop_ctx, NULL);
	s->loop_ctx = from.fctx;
	vb_fiber_arrive(&t->fiber, &s->root.fiber);
}

VB_NORETURN static void task_leave_for_good(struct vb_sched *s, struct vb_task *t)
{
	t->state = VB_TASK_DEAD;
	vb_fiber_leave_for_good(&s->root.fiber);
	jump_fcontext(s->loop_ctx, NULL);
	__builtin_unreachable();
}

static void task_entry(transfer_t from)
{
	struct vb_sched *s = from.data;
	struct vb_task *t = s->face.current;

	s->loop_ctx = from.fctx;
	vb_fiber_arrive(&t->fiber, &s->root.fiber);
	t->body(t->arg);
	task_leave_for_good(s, t);
}

/* The running task has set its state and gives way. */
static inline void task_switch(struct vb_sched *s, struct vb_task *t)
{
	if (vb_unlikely(t == &s->root))
		vb_sched_root_wait(s);
	else
		task_leave(s, t);
}

/* ---- life ---- */

int vb_task_spawn(struct vb_sched *s, void (*body)(void *arg), void *arg,
		  const struct vb_task_params *params, struct vb_task **out)
{
	static const struct vb_task_params none;
	struct vb_task *t;
	int stack_class;

	if (vb_sched_kept(s))
		(void)vb_sched_self(); /* takes it back from the keeper */
	if (params == NULL)
		params = &none;
	stack_class = vb_stack_class(params->stack_bytes);
	if (stack_class < 0)
		return stack_class;
	t = vb_stack_get(s, (unsigned)stack_class);
	if (t == NULL)
		return -ENOMEM;
	t->sched = s;
	t->permit = t->cancelled = t->shielded = t->started = false;
	t->daemon = params->daemon;
	t->result = 0;
	t->timer = (struct vb_timer){.fire = vb_task_timeout};
	t->body = body;
	t->arg = arg;
	t->user = NULL;
	t->name = params->name != NULL ? params->name : "task";
	t->ctx = make_fcontext(t, (size_t)((char *)t - t->bottom), task_entry);
	t->state = VB_TASK_READY;
	vb_list_push(&s->ready, &t->link);
	vb_list_push(&s->all, &t->all);
	s->tasks++;
	s->working += !t->daemon;
	if (out != NULL)
		*out = t;
	return 0;
}

void vb_task_die(void)
{
	struct vb_task *t = vb_task_self();

	vb_assert(t != NULL && t != &t->sched->root);
	task_leave_for_good(t->sched, t);
}

/* ---- waits ---- */

void vb_task_yield(void)
{
	struct vb_task *t = vb_task_self();

	vb_assert(t != NULL);
	t->state = VB_TASK_READY;
	vb_list_push(&t->sched->ready, &t->link);
	task_switch(t->sched, t);
}

/* A time that has passed still goes through the timers: whoever polls with short sleeps gives way
 * even on a fabric whose verbs never suspend. */
static inline int task_wait(struct vb_task *t, uint64_t until_ns, unsigned wait, int timeout_value)
{
	struct vb_sched *s = t->sched;

	t->state = VB_TASK_WAITING;
	t->wait = (uint8_t)wait;
	t->timeout_value = timeout_value;
	if (until_ns != VB_FOREVER)
		vb_timer_arm(s, &t->timer, until_ns);
	task_switch(s, t);
	return t->result;
}

int vb_task_suspend(uint64_t until_ns)
{
	struct vb_task *t = vb_task_self();

	vb_assert(t != NULL);
	if (vb_unlikely(vb_task_cancelled(t)))
		return -ECANCELED;
	if (t->permit) {
		t->permit = false;
		return 0;
	}
	return task_wait(t, until_ns, VB_WAIT_WAKE | (t->shielded ? 0 : VB_WAIT_CANCEL),
			 -ETIMEDOUT);
}

int vb_task_suspend_uninterruptible(uint64_t until_ns)
{
	struct vb_task *t = vb_task_self();

	vb_assert(t != NULL);
	if (t->permit) {
		t->permit = false;
		return 0;
	}
	return task_wait(t, until_ns, VB_WAIT_WAKE, -ETIMEDOUT);
}

int vb_task_sleep_until(uint64_t at_ns)
{
	struct vb_task *t = vb_task_self();

	vb_assert(t != NULL);
	if (vb_unlikely(vb_task_cancelled(t)))
		return -ECANCELED;
	return task_wait(t, at_ns, t->shielded ? 0 : VB_WAIT_CANCEL, 0);
}

bool vb_task_shield(bool on)
{
	struct vb_task *t = vb_task_self();
	bool before;

	vb_assert(t != NULL);
	before = t->shielded;
	t->shielded = on;
	return before;
}

/* ---- looking ---- */

bool vb_task_cancelled(const struct vb_task *t)
{
	return t->cancelled && !t->shielded;
}

struct vb_task *vb_task_self(void)
{
	return vb_sched_self()->face.current;
}

struct vb_sched *vb_task_sched(struct vb_task *t)
{
	return t->sched;
}

const char *vb_task_name(const struct vb_task *t)
{
	return t->name;
}

void vb_task_set_user(struct vb_task *t, void *user)
{
	t->user = user;
}

void *vb_task_user(const struct vb_task *t)
{
	return t->user;
}
