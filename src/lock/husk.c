/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Husks: what a client leaves in a queue that it cannot leave at once.
 *
 * A husk stands in the queue in the client's place, and hands on at once when the turn comes.  A
 * client that wants the lock again after all cancels it and names itself the adopter; whatever the
 * husk has by then (still waiting, just granted, or thrown out) is the adopter's.
 */
#define VB_LOG_ROOM "lock"
#include <inttypes.h>

#include "base/log.h"
#include "lock/claim.h"

static void husk_body(void *arg)
{
	struct vb_claim *c = arg;
	struct vb_lock_client *me = c->me;
	int err = me->space->ops->resume(me, c, VB_FOREVER);
	struct vb_task *adopter;
	bool adopt;

	if (err == 0 && !c->adopt) {
		/* An adopter may come while the release is under way; he finds no place any
		 * more. */
		vb_claim_release(me, c);
	}
	adopter = c->adopter;
	adopt = c->adopt;
	c->husk = NULL;
	c->adopter = NULL;
	me->husks--;
	if (adopt)
		c->state = CLAIM_BUSY;
	else
		vb_claim_free(me, c);
	if (adopter)
		vb_task_wake(adopter);
}

int vb_husk_leave(struct vb_lock_client *me, struct vb_claim *c)
{
	static const struct vb_task_params params = {.name = "husk", .daemon = true};
	int err;

	c->state = CLAIM_HUSK;
	c->adopter = NULL;
	c->adopt = false;
	err = vb_task_spawn(me->ep->sched, husk_body, c, &params, &c->husk);
	if (err == 0)
		me->husks++;
	return err;
}

int vb_husk_adopt(struct vb_lock_client *me, struct vb_claim *c, enum vb_mode mode, uint32_t leases,
		  uint64_t until_ns, struct vb_claim **out)
{
	int err = 0;

	if (c->adopter)
		return vb_fail(-EDEADLK,
			       "lock %" PRIu64 " is already being waited for by this client",
			       c->lock);
	c->adopter = vb_task_self();
	c->adopt = c->mode == mode && c->leases >= leases;
	if (c->adopt)
		vb_task_cancel(c->husk);
	/* A cancelled husk ends as soon as its verbs are done: that wait is bounded by itself. */
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

void vb_husk_close(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	/* Its turn comes within two leases, or is mended by others then. */
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
	vb_task_cancel(c->husk);
	while (c->adopter == vb_task_self())
		vb_task_suspend_uninterruptible(VB_FOREVER);
	if (c->held)
		vb_claim_release(me, c);
	vb_claim_free(me, c);
}
