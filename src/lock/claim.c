/* SPDX-License-Identifier: Apache-2.0 */
/* Claims: what is not on the way of every call. */
#define VB_LOG_ROOM "lock"
#include "lock/claim.h"

#include <inttypes.h>

#include "base/log.h"
#include "base/sometimes.h"

void vb_claim_make(struct vb_lock_client *me)
{
	struct vb_claim *c = &me->claims[me->n_made];

	memset(c, 0, sizeof(*c));
	c->me = me;
	c->slot = me->n_made++;
}

void vb_claim_none_left(const struct vb_lock_client *me)
{
	vb_error("a client has %u locks held, awaited or being handed on; release some first, or "
		 "open the lock space with more claims",
		 me->space->claims);
}

int vb_claim_not_held(const char *what, const struct vb_grant *grant)
{
	return vb_fail(-EINVAL,
		       "%s of lock %" PRIu64 " by a grant that this client does not hold: it was "
		       "released before, or is another client's",
		       what, grant->lock);
}

struct vb_claim *vb_lock_held(struct vb_lock_client *me, uint64_t lock)
{
	struct vb_claim *c = vb_claim_find(me, lock);

	return c != NULL && c->state == CLAIM_HELD ? c : NULL;
}

int vb_claim_take_token(struct vb_lock_client *me, struct vb_claim *c)
{
	uint64_t old;
	int err = vb_lock_faa(me, c->entry + me->space->token_offset, 1, &old);

	if (err == 0)
		c->token = old + 1;
	return err;
}

int vb_claim_confirm(struct vb_lock_client *me, struct vb_claim *c)
{
	if (me->space->token_offset && c->mode == VB_EXCLUSIVE) {
		int err = vb_claim_take_token(me, c);

		if (err) {
			int end = vb_claim_release(me, c);

			return end == 0 || end == -VB_ELOST ? err : -VB_EUNKNOWN;
		}
	}
	/* A turn that came while we were asleep may be over before we know of it.  The coarse clock
	 * has been read since the last time this task slept. */
	if (c->valid_until_ns != VB_FOREVER && vb_ep_now_coarse(me->ep) >= c->valid_until_ns) {
		VB_SOMETIMES(200, "lease: a turn was over before its client knew of it");
		me->lost++;
		vb_claim_release(me, c);
		return -ESTALE;
	}
	return 0;
}

int vb_claim_settle(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns, int err)
{
	for (;;) {
		if (err == 0)
			err = vb_claim_confirm(me, c);
		if (err != -ESTALE)
			return err;
		if (vb_task_cancelled(vb_task_self()))
			return -ECANCELED;
		if (until_ns != VB_FOREVER && vb_ep_now(me->ep) >= until_ns)
			return -ETIMEDOUT;
		err = me->space->ops->acquire(me, c, until_ns);
	}
}
