/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What callers have opened on a fabric, so that closing it can say what stands in the way; and
 * whether a call comes from where the object is at home.
 */
#ifndef VB_FABRIC_OPENED_H
#define VB_FABRIC_OPENED_H

#include "fabric/fabric.h"

/* Embedded in lock spaces, clients, servers, databases, coordinators. */
struct vb_opened {
	struct vb_list link;
	struct vb_fabric *fabric; /* NULL: not noted */
	const void *of;   /* the space or database that it was opened on; NULL: the fabric */
	const char *kind; /* "lock client" */
	const char *name; /* of that space or database; kept as a pointer */
	uint16_t node;
	uint32_t number; /* which one there; unused if `of` is NULL */
	uint32_t forks;  /* vb_forks when it was opened */
};

/* Nothing is open: of a fabric or hook that has just been made; and in a child that is told, where what
 * the parent has open is the parent's. */
void vb_opened_init(struct vb_fabric *f);

/* The caller has filled in kind, of, name, node, number. */
void vb_opened_note(struct vb_fabric *f, struct vb_opened *o);
/* Does nothing if it is not noted, or was by the parent. */
void vb_opened_drop(struct vb_opened *o);
/* 0; -EBUSY, said with names, if something is open on `of` (NULL: on the fabric). */
int vb_opened_check(struct vb_fabric *f, const void *of, const char *what, const char *name);

/* ---- whose call is it? ---- */

VB_COLD int vb_fabric_foreign(const struct vb_fabric *f);
VB_COLD int vb_ep_foreign(const struct vb_ep *ep);
VB_COLD int vb_ep_foreign_thread(const struct vb_ep *ep);
VB_COLD int vb_opened_foreign(const struct vb_opened *o);

/* 0, or -VB_EFOREIGN, said: a forked child that has not called vb_fabric_after_fork. */
static inline int vb_fabric_check(const struct vb_fabric *f)
{
	return vb_likely(f->told == vb_forks) ? 0 : vb_fabric_foreign(f);
}

/* 0; -VB_EFOREIGN, said: a forked child, or a thread that has not opened it; -EBUSY, said: a call that
 * was started with it is under way, and this is another. */
static inline int vb_ep_check(const struct vb_ep *ep)
{
	return vb_likely(vb_sched_quick == ep->sched) ? 0 : vb_ep_foreign(ep);
}

/* The same without -EBUSY, for calls that only look. */
static inline int vb_ep_check_thread(const struct vb_ep *ep)
{
	return vb_likely(vb_sched_quick == ep->sched) ? 0 : vb_ep_foreign_thread(ep);
}

/*
 * A call of a client or coordinator, from here to the end of the block: inside its thread's scheduler
 * (VB_SCHED_INSIDE), and the only one that it has, whichever of that thread's tasks makes it.  `err` is what vb_ep_check
 * says; then there is no call.  Calls in it, of the same task, are part of it.  A thread with nothing under way has
 * nobody else who could call.
 */
struct vb_ep_call {
	struct vb_sched *inside;
	struct vb_ep *ep;
	int err;
};

struct vb_ep_call vb_ep_call_slow(struct vb_ep *ep);

static inline struct vb_ep_call vb_ep_call_begin(struct vb_ep *ep)
{
	return vb_likely(vb_sched_quick == ep->sched) ? (struct vb_ep_call){.err = 0}
						      : vb_ep_call_slow(ep);
}

/* It is still the only one, but its thread goes elsewhere between those that are in it. */
static inline void vb_ep_call_outside(struct vb_ep_call *call)
{
	vb_sched_unguard(&call->inside);
	call->inside = NULL;
}

static inline void vb_ep_call_end(struct vb_ep_call *call)
{
	if (vb_unlikely(call->ep != NULL))
		__atomic_store_n(&call->ep->caller, NULL, __ATOMIC_RELAXED);
	vb_sched_unguard(&call->inside);
}

#define VB_EP_CALL(call, ep)                                                                       \
	struct vb_ep_call call __attribute__((cleanup(vb_ep_call_end))) = vb_ep_call_begin(ep)

/* It is a host's, and this is another thread of its process: the call goes there (vb_host_run). */
static inline bool vb_ep_is_away(const struct vb_ep *ep)
{
	return vb_unlikely(ep->host != NULL) && ep->forks == vb_forks &&
	       !vb_sched_is_here(ep->sched);
}

/* 0, or -VB_EFOREIGN, said: a forked child. */
static inline int vb_opened_check_mine(const struct vb_opened *o)
{
	return vb_likely(o->forks == vb_forks) ? 0 : vb_opened_foreign(o);
}

#endif
