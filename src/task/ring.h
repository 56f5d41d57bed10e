/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that are under way on a ring (verbena/async.h): for rooms that start some of their own.
 */
#ifndef VB_TASK_RING_H
#define VB_TASK_RING_H

#include <verbena/async.h>

#include "task/host.h"
#include "task/task.h"

/* One call; its room fills in `run` and `own`. */
struct vb_ring_op {
	struct vb_ring *ring;
	struct vb_post begin, cancel; /* of a host's ring */
	struct vb_task *task;         /* NULL: none is under way */
	/* Of whose calls this is one, which says so meanwhile; or NULL. */
	struct vb_task **caller;
	void *tag;
	int (*run)(struct vb_ring_op *op);
	uint64_t own[5]; /* what the room's `run` needs, by a struct of its own */
	uint32_t next;   /* free one, by number + 1 */
	uint32_t turn;   /* how often it was used: part of the id */
	int result;
	bool starting; /* its starter will see that it has ended */
	bool live;     /* of a host's ring: it has been posted, and has not ended */
	bool told;     /* of a host's ring: `cancel` has been posted, and not been run */
	bool early;    /* of a host's ring, its thread's: `cancel` has been run before `begin` */
};

/* The part of a ring that inline functions see. */
struct vb_ring_face {
	struct vb_sched *own; /* the thread's whose it is; NULL: it is a host's */
};

static inline struct vb_sched *vb_ring_own(const struct vb_ring *r)
{
	return ((const struct vb_ring_face *)r)->own;
}

/* The calling thread's, as is what belongs to `s`, and nothing is under way (vb_sched_quick). */
static inline bool vb_ring_is_quick(const struct vb_ring *r, const struct vb_sched *s)
{
	return vb_ring_own(r) == s && vb_sched_quick == s;
}

struct vb_sched *vb_ring_sched(const struct vb_ring *r);
/* NULL: it is a thread's own. */
struct vb_host *vb_ring_host(const struct vb_ring *r);
/* A call to be filled in.  -ENOSPC, said. */
int vb_ring_take(struct vb_ring *r, void *tag, struct vb_ring_op **out);
/* Starts it, and it is no longer the caller's: VB_STARTED, its result, or -ENOMEM.  On a host's ring always
 * VB_STARTED, and whose call it is (`caller`) is looked at on the host. */
int vb_ring_go(struct vb_ring_op *op, uint64_t *id);

/* ---- for tasks, in virtual time, where no keeper is ever beside them ---- */

/* Waits until a call has ended, and takes its completion.  0, -ETIMEDOUT, -ECANCELED. */
int vb_ring_next(struct vb_ring *r, uint64_t until_ns, struct vb_completion *out);
/* Closes it, also where calls have died with their tasks.  How many had not ended, or nobody had taken. */
uint32_t vb_ring_bury(struct vb_ring *r);

#endif
