/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proxy waiters: what a client leaves in a queue that it cannot leave at once.
 *
 * A proxy stands in the queue in the client's place, and hands on at once when the turn comes.  A
 * client that wants the lock again after all cancels it and names itself the adopter; whatever the
 * proxy has by then (still waiting, just granted, or thrown out) is the adopter's.
 *
 * A proxy is background work: while the client's thread is elsewhere, its keeper runs the proxy
 * (task/keeper.c), unless the fabric was opened with no_keeper.
 */
#define VB_LOG_ROOM "lock"
#include <inttypes.h>

#include "base/log.h"
#include "base/sometimes.h"
#include "lock/claim.h"
#include "lock/proxy.h"

static bool is_kept(const struct vb_lock_client *me)
{
	return !me->space->fabric->no_keeper;
}

static void proxy_body(void *arg)
{
	struct vb_claim *c = arg;
	struct vb_lock_client *me = c->me;
	struct vb_sched *sched = me->ep->sched;
	bool kept = is_kept(me);
	int err = me->space->ops->resume(me, c, VB_FOREVER);
	struct vb_task *adopter;
	bool adopt;

	/* The client's next claim of this lock begins as soon as this one is free. */
	vb_claim_let_land(me, err);
	if (err == 0 && !c->adopt) {
		VB_SOMETIMES(200, "proxy: a place was handed on for a client that gave up");
		/* An adopter that comes while the release is under way finds no place any more. */
		vb_claim_release(me, c);
	}
	adopter = c->adopter;
	adopt = c->adopt;
	c->proxy = NULL;
	c->adopter = NULL;
	me->proxies--;
	VB_SOMETIMES_IF(adopt && err == 0, 200,
			"proxy: a client came back to a lock that was its own by then");
	if (adopt)
		c->state = CLAIM_BUSY;
	else
		vb_claim_free(me, c);
	if (adopter)
		vb_task_wake(adopter);
	VB_SOMETIMES_IF(me->ghost, 200, "ghost: the turn of a client that has closed");
	if (me->ghost && me->proxies == 0)
		vb_ghost_end(me);
	if (kept)
		vb_sched_background_end(sched);
}

int vb_proxy_leave(struct vb_lock_client *me, struct vb_claim *c)
{
	static const struct vb_task_params params = {.name = "proxy", .daemon = true};
	int err;

	c->adopter = NULL;
	c->adopt = false;
	err = vb_task_spawn(me->ep->sched, proxy_body, c, &params, &c->proxy);
	if (err)
		return err;
	c->state = CLAIM_PROXY;
	me->proxies++;
	if (is_kept(me))
		vb_sched_background_begin(me->ep->sched);
	return 0;
}

int vb_proxy_adopt(struct vb_lock_client *me, struct vb_claim *c, enum vb_mode mode,
		   uint32_t leases, uint64_t until_ns, struct vb_claim **out)
{
	int err = 0;

	if (c->adopter)
		return vb_fail(-EDEADLK,
			       "lock %" PRIu64 " is already being waited for by this client",
			       c->lock);
	/* Who has died while its call stood for its turn goes no further: its proxy is dead, too. */
	vb_ep_checkpoint(me->ep, true);
	VB_SOMETIMES(200, "proxy: a client came back to its place");
	VB_SOMETIMES_IF(c->mode != mode, 200, "modes: a client came back and wants another mode");
	c->adopter = vb_task_self();
	c->adopt = c->mode == mode && c->leases >= leases;
	if (c->adopt)
		vb_task_cancel(c->proxy);
	/* A cancelled proxy ends as soon as its verbs are done: that wait is bounded. */
	while (c->adopter == vb_task_self() && err == 0)
		err = c->adopt ? vb_task_suspend_uninterruptible(VB_FOREVER)
			       : vb_task_suspend(vb_ep_base(me->ep, until_ns));
	if (c->adopter == vb_task_self()) {
		c->adopter = NULL;
		return err;
	}
	*out = c->adopt ? c : NULL;
	return 0;
}

void vb_proxy_close(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	/* Without leases its turn has no bound, and nobody would mend the queue: it goes on as a
	 * ghost's, or we wait as long as the space says.  With leases its turn comes within two, or
	 * others mend the queue then. */
	if (!(me->space->ops->caps & VB_LOCK_SURVIVES) && is_kept(me))
		return;
	c->adopter = vb_task_self();
	c->adopt = false;
	while (c->adopter == vb_task_self() &&
	       vb_task_suspend_uninterruptible(vb_ep_base(me->ep, until_ns)) == 0)
		;
	if (c->adopter != vb_task_self())
		return;
	vb_warn("a place in the queue of lock %" PRIu64 " is left behind by a closing client",
		c->lock);
	c->adopt = true;
	vb_task_cancel(c->proxy);
	while (c->adopter == vb_task_self())
		vb_task_suspend_uninterruptible(VB_FOREVER);
	if (c->held)
		vb_claim_release(me, c);
	vb_claim_free(me, c);
}
