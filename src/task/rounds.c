/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rounds, time, idling.
 *
 * A round fires the timers that are due, in order, and then runs every task that was ready when the
 * round began; those that become ready meanwhile wait for the next one.  So a yield gives way to
 * each other ready task exactly once, a busy task cannot keep timers and the fabric from being
 * looked at, and the order of everything follows from the order of arming and waking: in virtual
 * time a run repeats itself exactly.
 */
#include <errno.h>
#include <stdio.h>

#define VB_LOG_ROOM "task"
#include "base/log.h"
#include "task/inner.h"

/* How many stuck tasks a deadlock is reported with. */
#define STUCK_NAMES 4

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

/* True when the root's turn has come; what is left of the round is run when it gives way again.  Where nobody is
 * ready the fabric is not looked at if the caller idles then, which looks, too. */
static inline bool sched_round(struct vb_sched *s, bool idles)
{
	struct vb_list *it;
	bool root = false;

	if (!s->face.is_virtual) {
		s->face.now_ns = vb_clock_early_ns();
		if (s->env->poll != NULL && !(idles && sched_quiet(s)))
			s->env->poll(s);
	}
	vb_wheel_fire(s);
	if (vb_list_empty(&s->round) && !vb_list_empty(&s->ready))
		list_move_all(&s->round, &s->ready);
	while ((it = vb_list_pop(&s->round)) != NULL) {
		struct vb_task *t = vb_container_of(it, struct vb_task, link);

		if (vb_unlikely(t == &s->root)) {
			root = true;
			break;
		}
		vb_task_enter(s, t);
	}
	if (s->env->ran != NULL)
		s->env->ran(s);
	return root;
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
	while (!sched_round(s, true)) {
		if (sched_quiet(s) && vb_unlikely(sched_pass_time(s, VB_FOREVER) != 0)) {
			/* There is nobody to tell: the only task that could go on is the caller. */
			sched_deadlock(s);
			vb_assert(!"the root waits and nothing can wake it");
		}
	}
	s->face.current = &s->root;
	s->root.state = VB_TASK_RUNNING;
}

void vb_sched_root_yield(struct vb_sched *s)
{
	s->root.state = VB_TASK_READY;
	vb_list_push(&s->ready, &s->root.link);
	vb_sched_root_wait(s);
}

bool vb_task_run_now(struct vb_task *t)
{
	struct vb_sched *s = t->sched;

	if (s->face.current != &s->root)
		return false;
	vb_assert(t->state == VB_TASK_READY);
	vb_list_remove(&t->link);
	s->face.current = NULL;
	vb_task_enter(s, t);
	s->face.current = &s->root;
	return true;
}

bool vb_sched_turn(struct vb_sched *s)
{
	bool root = sched_round(s, false);

	vb_assert(!root);
	return !sched_quiet(s);
}

void vb_sched_idle(struct vb_sched *s)
{
	(void)sched_pass_time(s, VB_FOREVER);
}

void vb_sched_step(struct vb_sched *s)
{
	if (!vb_sched_turn(s) && s->background > 0)
		vb_sched_idle(s);
}

int vb_sched_rounds(struct vb_sched *s, const bool *stop, uint64_t until_ns)
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
		sched_round(s, true);
	}
}

bool vb_sched_others_ready(const struct vb_sched *s)
{
	return !sched_quiet(s);
}
