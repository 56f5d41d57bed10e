/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing clients; what a closed one leaves behind is in ghost.c. */
#define VB_LOG_ROOM "lock"
#include <verbena/host.h>

#include "base/log.h"
#include "lock/board.h"
#include "lock/claim.h"
#include "lock/proxy.h"
#include "lock/observe.h"
#include "task/host.h"

/* How many numbers of holds a client may use up: one per millisecond for 34 years. */
#define HOLDS_EACH (1ull << 40)

/*
 * The client with its claims, in one piece.  What most clients never use lies at its end and is not touched: a
 * simulation has tens of thousands of clients, and each claim that was ever taken is half a KiB of it.
 */
static struct vb_lock_client *new_client(const struct vb_lock_space *space)
{
	size_t used = vb_claim_words(space) * sizeof(uint64_t);
	size_t locks = space->claims * sizeof(uint64_t);
	size_t claims = space->claims * sizeof(struct vb_claim);
	struct vb_lock_client *me = malloc(sizeof(*me) + used + locks + claims);

	if (!me)
		return NULL;
	memset(me, 0, sizeof(*me) + used);
	me->used = (uint64_t *)(me + 1);
	me->locks = me->used + vb_claim_words(space);
	me->claims = (struct vb_claim *)(me->locks + space->claims);
	return me;
}

static void note_open(struct vb_lock_client *me)
{
	static uint64_t clients;

	/* Other numbers than those of a client that had this memory before. */
	me->holds = __atomic_fetch_add(&clients, 1, __ATOMIC_RELAXED) * HOLDS_EACH;
	me->opened = (struct vb_opened){
		.kind = "lock client",
		.of = me->space,
		.name = me->space->name,
		.node = me->node,
		.number = vb_peer_client(me->ep->self),
	};
	vb_opened_note(me->space->fabric, &me->opened);
}

int vb_lock_client_open(struct vb_lock_space *space, uint16_t node, struct vb_lock_client **out)
{
	VB_SCHED_INSIDE(vb_sched_here());
	struct vb_lock_client *me;
	int err;

	if (vb_any_null(space, out))
		return -EINVAL;
	err = vb_fabric_check(space->fabric);
	if (err == 0)
		err = vb_lock_space_hold(space);
	if (err)
		return err;
	me = new_client(space);
	if (!me)
		return vb_fail(-ENOMEM, "no memory for a lock client");
	if (space->timing) {
		me->timing = calloc(1, sizeof(*me->timing));
		if (!me->timing) {
			free(me);
			return vb_fail(-ENOMEM, "no memory for a lock client");
		}
	}
	me->space = space;
	me->node = node;
	err = vb_ep_open(space->fabric, node, &me->ep);
	/* A place in a queue may have to be left when there is no memory. */
	if (err == 0 && space->ops->resume != NULL) {
		err = vb_task_reserve(me->ep->sched);
		if (err)
			vb_ep_close(me->ep);
	}
	if (err == 0 && space->ops->caps & VB_LOCK_SERVER) {
		vb_peer server;

		err = vb_lock_server_find(me, 0);
		if (err == 0)
			err = vb_lock_server_worker(me, 0, 0, &server);
		if (err)
			vb_ep_close(me->ep);
	}
	if (err) {
		free(me->timing);
		free(me);
		return err;
	}
	vb_mail_init(&me->mail, me->ep);
	if (space->ops->release_now != NULL) {
		me->at_once = (space->fabric->caps.flags & VB_CAP_INLINE) != 0;
		me->near_at_once = (space->fabric->caps.flags & VB_CAP_NEAR_INLINE) != 0 &&
				   vb_local(space->fabric, vb_addr_make(node, 0), 8) != NULL &&
				   space->ops->try_verbs == 0;
	}
	me->rtt_ns = space->fabric->caps.rtt_ns;
	vb_rng_seed(&me->rng, space->fabric->seed, me->ep->self);
	if (space->ops->client_open)
		err = space->ops->client_open(me);
	if (err == 0)
		err = vb_board_join(me);
	if (err) {
		vb_lock_client_close(me);
		return err;
	}
	note_open(me);
	*out = me;
	return 0;
}

struct opening {
	struct vb_lock_space *space;
	uint16_t node;
	struct vb_lock_client *client;
};

static int run_open(void *arg)
{
	struct opening *o = arg;

	return vb_lock_client_open(o->space, o->node, &o->client);
}

int vb_host_client_open(struct vb_host *host, struct vb_lock_space *space, uint16_t node,
			struct vb_lock_client **out)
{
	struct opening o = {.space = space, .node = node};
	int err;

	if (vb_any_null(host, space, out))
		return -EINVAL;
	err = vb_host_run(host, NULL, run_open, &o);
	if (err == 0)
		*out = o.client;
	return err;
}

static void close_place(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	if (c->state == CLAIM_PROXY)
		vb_proxy_close(me, c, until_ns);
}

/* Releases what is held, some at a time, as the end of a transaction. */
static void release_held(struct vb_lock_client *me)
{
	struct vb_grant some[VB_CLAIMS_MAX];
	bool outermost = vb_lock_join(me);
	unsigned n;

	do {
		n = 0;
		for (unsigned i = 0; i < me->space->claims && n < VB_CLAIMS_MAX; i++)
			if (me->used[i / 64] >> i % 64 & 1 && me->claims[i].state == CLAIM_HELD)
				vb_claim_describe(me, &me->claims[i], &some[n++]);
		(void)vb_lock_release_all(me, some, n);
	} while (n == VB_CLAIMS_MAX);
	vb_lock_part(me, outermost);
}

static int run_close(void *arg)
{
	vb_lock_client_close(arg);
	return 0;
}

void vb_lock_client_close(struct vb_lock_client *me)
{
	uint64_t wait_ns, until_ns;

	if (!me)
		return;
	/* Whose call it is would be in the endpoint, which goes: that nobody else's is under way is seen there. */
	if (vb_ep_is_away(me->ep)) {
		(void)vb_host_run(me->ep->host, NULL, run_close, me);
		return;
	}
	if (vb_ep_check(me->ep) != 0)
		return;
	VB_SCHED_INSIDE(me->ep->sched);
	if (me->n_used > 0)
		release_held(me);
	wait_ns = me->space->ops->caps & VB_LOCK_SURVIVES ? 2 * me->space->lease_ns
							  : me->space->proxy_wait_ns;
	until_ns = wait_ns == VB_FOREVER ? VB_FOREVER : vb_ep_now(me->ep) + wait_ns;
	for (unsigned w = 0; w < vb_claim_words(me->space); w++)
		for (uint64_t left = me->used[w]; left; left &= left - 1)
			close_place(me, &me->claims[64 * w + __builtin_ctzll(left)], until_ns);
	vb_board_leave(me);
	if (me->proxies > 0) {
		vb_ghost_begin(me);
		return;
	}
	if (me->space->ops->client_close)
		me->space->ops->client_close(me);
	vb_lock_client_bury(me);
}
