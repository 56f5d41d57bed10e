/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a client, at once or as a ghost.
 *
 * A client that closes while its proxies stand in queues of locks that do not survive becomes a
 * *ghost*: nobody would mend a queue that it left.  It keeps its endpoint until the last of its
 * proxies is through, and that proxy takes it down.  The space knows its ghosts, and outlives them.
 */
#define VB_LOG_ROOM "lock"
#include <inttypes.h>
#include <sched.h>

#include "base/log.h"
#include "lock/claim.h"
#include "lock/proxy.h"

/* How often a closing space looks whether its ghosts are gone, and how often it says so. */
#define GHOST_LOOK_NS 200000ull
#define GHOST_SAY_NS  10000000000ull
/* In virtual time: how long it waits for them. */
#define GHOST_LEASES 64u
/* ghosts_forks while a child makes its own list. */
#define GHOSTS_RESET UINT32_MAX

/*
 * A child inherits its parent's list, and no keeper that would ever empty it; and a keeper of the
 * parent may have had the lock at the fork.  So the first call in the child begins anew.
 */
static void lock_ghosts(struct vb_lock_space *space)
{
	uint32_t forks = space->fabric->forks, seen;

	while ((seen = __atomic_load_n(&space->ghosts_forks, __ATOMIC_ACQUIRE)) != forks) {
		if (seen == GHOSTS_RESET ||
		    !__atomic_compare_exchange_n(&space->ghosts_forks, &seen, GHOSTS_RESET, false,
						 __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
			sched_yield();
			continue;
		}
		pthread_mutex_init(&space->ghost_lock, NULL);
		vb_list_init(&space->ghosts);
		space->ending = 0;
		__atomic_store_n(&space->ghosts_forks, forks, __ATOMIC_RELEASE);
	}
	pthread_mutex_lock(&space->ghost_lock);
}

void vb_lock_client_bury(struct vb_lock_client *me)
{
	for (unsigned i = 0; i < me->n_made; i++)
		if (me->space->ops->caps & VB_LOCK_MESSAGES && me->used[i / 64] >> i % 64 & 1)
			vb_box_close(&me->claims[i].box);
	vb_ep_close(me->ep);
	/* Last: vb_fabric_close may be waiting for it. */
	vb_opened_drop(&me->opened);
	free(me->priv);
	free(me->timing);
	free(me);
}

/* Its space may be closed as soon as the list is empty. */
void vb_ghost_end(struct vb_lock_client *me)
{
	struct vb_lock_space *space = me->space;
	struct vb_list *link = &me->in_ghosts;

	if (space->ops->client_close)
		space->ops->client_close(me);
	lock_ghosts(space);
	vb_list_remove(link);
	space->ending++;
	pthread_mutex_unlock(&space->ghost_lock);
	vb_lock_client_bury(me);
	lock_ghosts(space);
	space->ending--;
	pthread_mutex_unlock(&space->ghost_lock);
}

void vb_ghost_begin(struct vb_lock_client *me)
{
	struct vb_lock_space *space = me->space;

	me->ghost = true;
	vb_ep_leave(me->ep);
	lock_ghosts(space);
	vb_list_push(&space->ghosts, &me->in_ghosts);
	/* vb_lock_space_close waits for the ghosts, and must find this one. */
	vb_opened_drop(&me->opened);
	pthread_mutex_unlock(&space->ghost_lock);
}

static bool haunted(struct vb_lock_space *space)
{
	bool any;

	lock_ghosts(space);
	any = !vb_list_empty(&space->ghosts) || space->ending != 0;
	pthread_mutex_unlock(&space->ghost_lock);
	return any;
}

static void cancel_proxies(struct vb_lock_client *me)
{
	for (unsigned i = 0; i < me->n_made; i++) {
		struct vb_claim *c = &me->claims[i];

		if (c->state != CLAIM_PROXY)
			continue;
		vb_warn("a place in the queue of lock %" PRIu64 " is left behind: nobody has "
			"handed it the lock in %u leases",
			c->lock, GHOST_LEASES);
		vb_task_cancel(c->proxy);
	}
}

/*
 * In virtual time, once all clients of the only process are closed or dead, nobody is left that
 * could give the lock back, nor anybody that would wait for it.  In real time others have it, and
 * go on after us.
 */
void vb_ghost_space_close(struct vb_lock_space *space)
{
	bool is_virtual = space->fabric->caps.flags & VB_CAP_VIRTUAL;
	uint64_t step, said, end;
	struct vb_sched *sched;

	if (!haunted(space))
		return;
	sched = vb_sched_self();
	step = is_virtual ? space->lease_ns / 4 : GHOST_LOOK_NS;
	said = vb_sched_now(sched);
	end = said + GHOST_LEASES * space->lease_ns;
	while (haunted(space)) {
		uint64_t now = vb_sched_now(sched);

		if (is_virtual && now > end) {
			vb_list_for_each (it, &space->ghosts)
				cancel_proxies(
					vb_container_of(it, struct vb_lock_client, in_ghosts));
			end = VB_FOREVER;
		}
		if (!is_virtual && now - said > GHOST_SAY_NS) {
			said = now;
			vb_warn("a closing lock space waits: clients that were closed stand in "
				"queues for locks that others hold; if one of those has died, "
				"end this process without closing the space");
		}
		(void)vb_task_suspend_uninterruptible(now + step);
	}
}

void vb_lock_space_bury(struct vb_lock_space *space)
{
	struct vb_list *it;

	while ((it = vb_list_pop(&space->ghosts)) != NULL)
		vb_lock_client_bury(vb_container_of(it, struct vb_lock_client, in_ghosts));
}
