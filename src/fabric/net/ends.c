/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The endpoints of this process by their numbers, and their rings.
 *
 * A client number has 24 bits.  It is drawn from a counter, and an endpoint's place in the table is
 * its number modulo the table's size; a number comes again only after all others have been drawn,
 * so that a message for a closed endpoint does not reach the one that was opened next.
 */
#include "fabric/net/state.h"

#define CLIENT_MASK ((1u << 24) - 1)

struct net_ep *net_ep_find(struct net_fabric *f, uint32_t client)
{
	struct net_ep *e = f->core->clients[client % NET_CLIENTS_MAX];

	return e != NULL && e->client == client ? e : NULL;
}

/* Of a server of an elastic cluster, some are its clients'. */
static bool is_taken(const struct net_fabric *f, uint32_t client)
{
	return f->core->clients[client % NET_CLIENTS_MAX] != NULL ||
	       (f->elastic != NULL && f->elastic->box[client % NET_CLIENTS_MAX] != NULL);
}

uint32_t net_draw_number(struct net_fabric *f)
{
	struct net_core *c = f->core;

	for (uint32_t tries = 0; tries <= NET_CLIENTS_MAX; tries++) {
		c->next_client = (c->next_client + 1) & CLIENT_MASK;
		if (c->next_client != 0 && !is_taken(f, c->next_client)) {
			net_state_number(f);
			return c->next_client;
		}
	}
	return 0;
}

void net_ep_stir(struct net_ep *e)
{
	if (net_is_here(e->thread)) {
		e->thread->env->woken = true;
		e->thread->f->core->stirred = true;
		vb_ep_wake(&e->ep);
		return;
	}
	__atomic_store_n(&e->waiting_told, true, __ATOMIC_SEQ_CST);
	__atomic_store_n(&e->thread->letters, true, __ATOMIC_SEQ_CST);
	net_ring_bell(e->thread);
}

int net_ep_put(struct net_ep *e, const struct vb_msg *m)
{
	uint32_t tail = e->tail;

	if (tail - __atomic_load_n(&e->head, __ATOMIC_ACQUIRE) == NET_RING)
		return -EAGAIN;
	e->ring[tail % NET_RING] = *m;
	if (vb_unlikely(m->len > VB_MSG_DATA))
		e->ring[tail % NET_RING].len = VB_MSG_DATA;
	__atomic_store_n(&e->tail, tail + 1, __ATOMIC_RELEASE);
	net_ep_stir(e);
	return 0;
}
