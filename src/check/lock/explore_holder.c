/* SPDX-License-Identifier: Apache-2.0 */
/* What vb_lock_holder may tell who holds the lock himself. */
#include "check/lock/explore_inner.h"

/* In a mode that no two have at a time; of the others nobody is named. */
static bool is_alone(enum vb_mode mode)
{
	return mode == VB_EXCLUSIVE || mode == VB_UPDATE || mode == VB_SHARED_INTENT_EXCLUSIVE;
}

/* What is told may be of another's mode, a stronger one beside which g holds. */
bool explore_tells_of(const struct vb_holder *h, const struct vb_grant *g,
		      const struct vb_lock_client *me)
{
	vb_peer self = vb_lock_client_peer(me);

	if (!h->held || h->lapsed)
		return false;
	if (is_alone(g->mode))
		return h->mode == g->mode && h->node == me->node &&
		       (h->client == self || h->client == VB_PEER_NONE);
	if (is_alone(h->mode))
		return !vb_modes_exclude(h->mode, g->mode) && h->client != self;
	return !vb_modes_exclude(h->mode, g->mode) && h->node == 0 && h->client == VB_PEER_NONE;
}
