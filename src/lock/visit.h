/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host's client (verbena/host.h), called by another thread (vb_ep_is_away): the same call is made there, by
 * a function of the call's own with what stands here.
 */
#ifndef VB_LOCK_VISIT_H
#define VB_LOCK_VISIT_H

#include "lock/lock.h"
#include "task/host.h"

struct vb_lock_visit {
	struct vb_lock_client *me;
	struct vb_grant *grant; /* or grants, n of them; or what is filled in */
	struct vb_holder *holder;
	uint64_t lock, hold_ns, until_ns, age;
	enum vb_mode mode;
	unsigned n;
};

/* A timeout counts from the call, and the host may have others to begin before. */
static inline uint64_t vb_lock_visit_until(const struct vb_lock_client *me, uint64_t timeout_ns)
{
	uint64_t now = vb_ep_now(me->ep);

	return timeout_ns == VB_FOREVER_NS || now + timeout_ns < now ? VB_FOREVER
								     : now + timeout_ns;
}

/* What is left of it. */
static inline uint64_t vb_lock_visit_left(const struct vb_lock_client *me, uint64_t until_ns)
{
	uint64_t now = vb_ep_now(me->ep);

	if (until_ns == VB_FOREVER)
		return VB_FOREVER_NS;
	return until_ns > now ? until_ns - now : 0;
}

static inline int vb_lock_visit(int (*run)(void *arg), struct vb_lock_visit *v)
{
	return vb_host_run(v->me->ep->host, &v->me->ep->caller, run, v);
}

/* Beside a call that is under way: to look. */
static inline int vb_lock_visit_beside(int (*run)(void *arg), struct vb_lock_visit *v)
{
	return vb_host_run(v->me->ep->host, NULL, run, v);
}

#endif
