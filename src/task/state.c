/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What others do to a task: they make it ready, or bury it.
 *
 * A wait ends exactly once: by a wake, by cancellation or by its timer, whichever comes first makes
 * the task ready and sets the result; a wake that finds no wait to end leaves the permit.
 */
#include <errno.h>

#define VB_LOG_ROOM "task"
#include "base/log.h"
#include "task/inner.h"

static void make_ready(struct vb_task *t, int result)
{
	struct vb_sched *s = t->sched;

	vb_timer_disarm(s, &t->timer);
	t->result = result;
	t->state = VB_TASK_READY;
	vb_list_push(&s->ready, &t->link);
}

void vb_task_timeout(struct vb_timer *timer)
{
	struct vb_task *t = vb_container_of(timer, struct vb_task, timer);

	make_ready(t, t->timeout_value);
}

void vb_task_init_root(struct vb_sched *s)
{
	s->root = (struct vb_task){
		.sched = s,
		.state = VB_TASK_RUNNING,
		.started = true,
		.timer.fire = vb_task_timeout,
		.name = "root",
	};
	vb_fiber_init_root(&s->root.fiber);
	s->face.current = &s->root;
}

void vb_task_wake(struct vb_task *t)
{
	vb_assert(t->state != VB_TASK_DEAD);
	if (t->state == VB_TASK_WAITING && (t->wait & VB_WAIT_WAKE) != 0)
		make_ready(t, 0);
	else
		t->permit = true;
}

void vb_task_cancel(struct vb_task *t)
{
	vb_assert(t->state != VB_TASK_DEAD);
	t->cancelled = true;
	if (t->state == VB_TASK_WAITING && (t->wait & VB_WAIT_CANCEL) != 0)
		make_ready(t, -ECANCELED);
}

/* ---- the end ---- */

void vb_task_bury(struct vb_sched *s, struct vb_task *t)
{
	t->state = VB_TASK_DEAD;
	vb_timer_disarm(s, &t->timer);
	vb_list_remove(&t->all);
	s->tasks--;
	s->working -= !t->daemon;
	vb_stack_put(s, t);
}

#ifdef VB_ASAN
/* ASan frees a fiber's fake stack only from the fiber itself: a killed task runs once more, to
 * here. */
static transfer_t fake_stack_free(transfer_t from)
{
	struct vb_task *t = from.data;
	struct vb_fiber killer;

	vb_fiber_arrive(&t->fiber, &killer);
	vb_fiber_leave_for_good(&killer);
	return jump_fcontext(from.fctx, NULL);
}

static void task_drop_fake_stack(struct vb_task *t)
{
	struct vb_fiber self;

	vb_fiber_leave(&self, &t->fiber);
	ontop_fcontext(t->ctx, t, fake_stack_free);
	vb_fiber_arrive(&self, &t->fiber);
}
#else
static void task_drop_fake_stack(struct vb_task *t)
{
	(void)t;
}
#endif

void vb_task_kill(struct vb_task *t)
{
	struct vb_sched *s = t->sched;

	vb_assert(t->state == VB_TASK_READY || t->state == VB_TASK_WAITING);
	vb_assert(t != &s->root);
	if (t->state == VB_TASK_READY)
		vb_list_remove(&t->link);
	if (t->started)
		task_drop_fake_stack(t);
	vb_task_bury(s, t);
}

void vb_task_kill_all(struct vb_sched *s)
{
	while (!vb_list_empty(&s->all))
		vb_task_kill(vb_container_of(s->all.next, struct vb_task, all));
}
