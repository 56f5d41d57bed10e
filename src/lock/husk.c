/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Husks: what a client leaves in a queue that it cannot leave at once.
 *
 * A husk stands in the queue in the client's place, and hands on at once when the turn comes.  A
 * client that wants the lock again after all cancels it and names itself the adopter; whatever the
 * husk has by then (still waiting, just granted, or thrown out) is the adopter's.
 *
 * A husk is background work: while the client's thread is elsewhere, its keeper runs the husk
 * (task/keeper.c), unless the fabric was opened with no_keeper.
 *
 * A client that closes while its husks stand in queues of locks that do not survive becomes a
 * *ghost*: nobody would mend a queue that it left.  It keeps its endpoint until the last of its
 * husks is through, and that husk takes it down.  The space knows its ghosts, and outlives them.
 */
#define VB_LOG_ROOM "lock"
#include <inttypes.h>
#include <sched.h>

#include "base/log.h"
#include "lock/claim.h"
#include "lock/husk.h"

/* How often a closing space looks whether its ghosts are gone, and how often it says so. */
#define GHOST_LOOK_NS 200000ull
#define GHOST_SAY_NS  10000000000ull
/* In virtual time: how long it waits for them. */
#define GHOST_LEASES 64u
/* ghosts_forks while a child makes its own list. */
#define GHOSTS_RESET UINT32_MAX

static bool is_kept(const struct vb_lock_client *me)
{
	return !me->space->fabric->no_keeper;
}

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

/* The last that is done with a ghost; its space may be closed as soon as the list is empty. */
static void ghost_end(struct vb_lock_client *me)
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

static void husk_body(void *arg)
{
	struct vb_claim *c = arg;
	struct vb_lock_client *me = c->me;
	struct vb_sched *sched = me->ep->sched;
	bool kept = is_kept(me);
	int err = me->space->ops->resume(me, c, VB_FOREVER);
	struct vb_task *adopter;
	bool adopt;

	if (err == 0 && !c->adopt) {
		/* An adopter that comes while the release is under way finds no place any more. */
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
	if (me->ghost && me->husks == 0)
		ghost_end(me);
	if (kept)
		vb_sched_background_end(sched);
}

int vb_husk_leave(struct vb_lock_client *me, struct vb_claim *c)
{
	static const struct vb_task_params params = {.name = "husk", .daemon = true};
	int err;

	c->state = CLAIM_HUSK;
	c->adopter = NULL;
	c->adopt = false;
	err = vb_task_spawn(me->ep->sched, husk_body, c, &params, &c->husk);
	if (err)
		return err;
	me->husks++;
	if (is_kept(me))
		vb_sched_background_begin(me->ep->sched);
	return 0;
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
	/* A cancelled husk ends as soon as its verbs are done: that wait is bounded. */
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
	vb_task_cancel(c->husk);
	while (c->adopter == vb_task_self())
		vb_task_suspend_uninterruptible(VB_FOREVER);
	if (c->held)
		vb_claim_release(me, c);
	vb_claim_free(me, c);
}

void vb_husk_haunt(struct vb_lock_client *me)
{
	struct vb_lock_space *space = me->space;

	me->ghost = true;
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

static void cancel_husks(struct vb_lock_client *me)
{
	for (uint32_t i = 0; i < me->space->claims; i++) {
		struct vb_claim *c = &me->claims[i];

		if (c->state != CLAIM_HUSK)
			continue;
		vb_warn("a place in the queue of lock %" PRIu64 " is left behind: nobody has "
			"handed it the lock in %u leases",
			c->lock, GHOST_LEASES);
		vb_task_cancel(c->husk);
	}
}

/*
 * In virtual time, once all clients of the only process are closed or dead, nobody is left that
 * could give the lock back, nor anybody that would wait for it.  In real time others have it, and
 * go on after us.
 */
void vb_husk_space_close(struct vb_lock_space *space)
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
				cancel_husks(vb_container_of(it, struct vb_lock_client, in_ghosts));
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
