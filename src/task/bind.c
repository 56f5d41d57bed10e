/* SPDX-License-Identifier: Apache-2.0 */
/* Which scheduler a thread has: bound, lent to the keeper, given up. */
#include <pthread.h>
#include <stdlib.h>

#define VB_LOG_ROOM "task"
#include "base/log.h"
#include "task/inner.h"

/* Nothing awaits here. */
#undef vb_sched_mine
#undef vb_sched_lent
#undef vb_sched_quick
__thread struct vb_sched *vb_sched_mine __attribute__((tls_model("initial-exec")));
__thread struct vb_sched *vb_sched_lent __attribute__((tls_model("initial-exec")));
/* vb_sched_mine, but NULL while it is kept, or calls on rings are under way. */
__thread struct vb_sched *vb_sched_quick __attribute__((tls_model("initial-exec")));

void vb_sched_bind(struct vb_sched *s, bool here)
{
	vb_sched_mine = here ? s : NULL;
	vb_sched_quick = here && !s->face.kept && s->calls_open == 0 ? s : NULL;
	if (s->env->bind != NULL)
		s->env->bind(s, here);
}

void vb_sched_set_kept(struct vb_sched *s, bool kept)
{
	s->face.kept = kept;
	vb_sched_quick = kept || s->calls_open > 0 ? NULL : vb_sched_mine;
}

void vb_sched_lend(struct vb_sched *s)
{
	vb_sched_bind(s, false);
	vb_sched_lent = s;
}

void vb_sched_free(struct vb_sched *s)
{
	vb_assert(s->tasks == 0);
	vb_sched_mine = vb_sched_lent = vb_sched_quick = NULL;
	vb_stack_trim(s);
	pthread_mutex_destroy(&s->env_lock);
	free(s);
}

void vb_sched_end(struct vb_sched *s)
{
	if (s->tasks > 0)
		vb_warn("a thread ended and left %u tasks; they are killed", s->tasks);
	vb_task_kill_all(s);
	vb_sched_free(s);
}
