/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host (verbena/host.h): a thread of the library's own with its scheduler, for what other threads ask
 * to be done there.
 */
#ifndef VB_TASK_HOST_H
#define VB_TASK_HOST_H

#include <verbena/host.h>

#include "task/task.h"

/* Something to be done on the host's thread, in the order of posting. */
struct vb_post {
	struct vb_post *next;
	/* On the scheduler's stack; must not await.  `post` is no longer the host's. */
	void (*run)(struct vb_post *post);
};

/* ---- by any thread ---- */

/* Never waits. */
void vb_host_post(struct vb_host *h, struct vb_post *post);
/* 0, or -VB_EFOREIGN, said: a forked child. */
int vb_host_check(const struct vb_host *h);
/* 0; -EDEADLK, said: the calling thread is in a task, and must not wait for a host. */
int vb_host_check_outside(void);
/* Runs it as a task there and waits for its end; on the host itself it is just called.  `caller` may be
 * NULL; else it is whose call this is (vb_ep.caller), -EBUSY if it has one.  Its result, or the errors of
 * vb_host_call. */
int vb_host_run(struct vb_host *h, struct vb_task **caller, int (*call)(void *arg), void *arg);
/* Waits until what was posted before has been run.  Not on the host. */
void vb_host_flush(struct vb_host *h);
/* pthread_cancel does not end the calling thread from here on, until what was before is allowed again: who waits for
 * others, and has a lock, gives it back first. */
int vb_host_defer_end(void);
void vb_host_allow_end(int before);
/* Something is open on it, or no more. */
void vb_host_hold(struct vb_host *h);
void vb_host_drop(struct vb_host *h);
struct vb_sched *vb_host_sched(const struct vb_host *h);

/* ---- on its thread ---- */

/* Makes a task, which is `caller`'s call (or NULL) from now on.  -EBUSY, said: that has one under way; -ENOMEM. */
int vb_host_spawn(struct vb_host *h, struct vb_task **caller, void (*body)(void *arg), void *arg,
		  size_t stack_bytes, struct vb_task **out);

/* A function of the program's, in a task: its result, if that is one. */
int vb_host_any(vb_ring_fn call, void *arg);

#endif
