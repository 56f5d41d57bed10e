/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that are under way on a ring (verbena/async.h): for rooms that start some of their own.
 */
#ifndef VB_TASK_RING_H
#define VB_TASK_RING_H

#include <verbena/async.h>

#include "task/task.h"

/* One call; its room fills in `run` and `own`. */
struct vb_ring_op {
	struct vb_ring *ring;
	struct vb_task *task; /* NULL: none is under way */
	/* Of whose calls this is one, which says so meanwhile; or NULL. */
	struct vb_task **caller;
	void *tag;
	int (*run)(struct vb_ring_op *op);
	uint64_t own[5]; /* what the room's `run` needs, by a struct of its own */
	uint32_t next;   /* free one, by number + 1 */
	uint32_t turn;   /* how often it was used: part of the id */
	int result;
	bool starting; /* its starter will see that it has ended */
};

struct vb_sched *vb_ring_sched(const struct vb_ring *r);
/* A call to be filled in.  -ENOSPC, -VB_EFOREIGN. */
int vb_ring_take(struct vb_ring *r, void *tag, struct vb_ring_op **out);
/* Starts it, and it is no longer the caller's: VB_STARTED, its result, or -ENOMEM. */
int vb_ring_go(struct vb_ring_op *op, uint64_t *id);

#endif
