/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of an endpoint: it is claimed, with its ring and its thread's part in the fabric, found to
 * be dead, and released.  Who sends to it finds it in table.c.
 */
#define VB_LOG_ROOM "shm"
#include "base/log.h"
#include "fabric/shm/inner.h"

/* ---- claims ---- */

/*
 * The endpoint's word stays free, so nobody sends to it, until this one is ours and its ring is
 * empty. A sender that saw an older incarnation looks again after it has reserved a place, finds a
 * free or a new word and gives the place up (ring.c); one that is half-way through writing is
 * waited for by choosing another endpoint.
 */
static bool try_claim(struct shm_fabric *f, uint32_t slot, uint16_t node, uint32_t worker,
		      vb_peer *self)
{
	struct shm_endpoint *e = &f->endpoints[slot];
	uint64_t word = __atomic_load_n(&e->word, __ATOMIC_SEQ_CST);
	uint32_t incarnations = 1u << (VB_PEER_CLIENT_BITS - f->h->slot_bits);
	uint32_t incarnation = (shm_ep_incarnation(word) + 1) % incarnations;

	__atomic_store_n(&e->word, shm_ep_word(incarnation, 0, SHM_EP_FREE), __ATOMIC_SEQ_CST);
	if (!shm_ring_drain(f, slot))
		return false;
	__atomic_store_n(&e->owner, shm_self(), __ATOMIC_RELAXED);
	__atomic_store_n(&e->worker, worker, __ATOMIC_RELAXED);
	__atomic_store_n(&e->mail, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&e->word, shm_ep_word(incarnation, node, SHM_EP_OPEN), __ATOMIC_SEQ_CST);
	*self = vb_peer_make(node, slot | incarnation << f->h->slot_bits);
	return true;
}

static bool claimable(struct shm_endpoint *e, bool dead_too)
{
	uint64_t word = __atomic_load_n(&e->word, __ATOMIC_SEQ_CST);

	if (shm_ep_state(word) != SHM_EP_OPEN)
		return true;
	return dead_too && !shm_process_alive(__atomic_load_n(&e->owner, __ATOMIC_RELAXED));
}

/* Takes the next free endpoint in turn, so that each number rests as long as possible before it
 * comes round; only when none is free, those whose owners died unnoticed. */
static int claim(struct shm_fabric *f, uint16_t node, uint32_t worker, uint32_t *slot,
		 vb_peer *self)
{
	uint32_t n = f->h->endpoints;
	int err = shm_lock(f);

	if (err != 0)
		return err;
	for (uint32_t i = 0; i < 2 * n; i++) {
		uint32_t at = (f->h->next_endpoint + i) % n;

		if (claimable(&f->endpoints[at], i >= n) && try_claim(f, at, node, worker, self)) {
			f->h->next_endpoint = (at + 1) % n;
			*slot = at;
			shm_unlock(f);
			return 0;
		}
	}
	shm_unlock(f);
	return vb_fail(-ENOSPC, "all %u endpoints of the fabric are open: open it with more", n);
}

static void release(struct shm_fabric *f, uint32_t slot)
{
	struct shm_endpoint *e = &f->endpoints[slot];
	uint64_t word = __atomic_load_n(&e->word, __ATOMIC_RELAXED);

	__atomic_store_n(&e->word, (word & ~3ull) | SHM_EP_FREE, __ATOMIC_SEQ_CST);
}

/* ---- opening and closing ---- */

int shm_ep_open(struct vb_fabric *fabric, uint16_t node, struct vb_ep **out)
{
	struct shm_fabric *f = shm_of(fabric);
	struct shm_ep *e = calloc(1, sizeof(*e));
	struct shm_link *link;
	vb_peer self;
	int err;

	if (e == NULL)
		return vb_fail(-ENOMEM, "no memory for an endpoint");
	err = shm_link_get(f, &link);
	if (err != 0) {
		free(e);
		return err;
	}
	err = claim(f, node, link->worker, &e->slot, &self);
	if (err != 0) {
		shm_link_put(link);
		free(e);
		return err;
	}
	vb_ep_init(&e->ep, fabric, self);
	e->base = f->base;
	e->node_bytes = f->h->node_bytes;
	e->nodes = f->h->nodes;
	e->shared = &f->endpoints[e->slot];
	e->ring = shm_ring(f, e->slot);
	e->link = link;
	vb_list_init(&e->in_link);
	vb_list_push(&link->eps, &e->in_link);
	shm_mail_add(link, e);
	__atomic_fetch_add(&f->open, 1, __ATOMIC_RELAXED);
	*out = &e->ep;
	return 0;
}

void shm_ep_close(struct vb_ep *ep)
{
	struct shm_ep *e = (struct shm_ep *)ep;
	struct shm_fabric *f = shm_of(ep->fabric);

	vb_list_remove(&e->in_link);
	shm_mail_drop(e->link, e);
	release(f, e->slot);
	shm_link_put(e->link);
	__atomic_fetch_sub(&f->open, 1, __ATOMIC_RELAXED);
	free(e);
}

/* ---- the dead ---- */

bool shm_peer_alive(struct vb_fabric *fabric, vb_peer peer)
{
	struct shm_fabric *f = shm_of(fabric);
	uint32_t slot;
	struct shm_endpoint *e = shm_endpoint_find(f, peer, &slot);

	if (e == NULL)
		return false;
	if (shm_process_alive(__atomic_load_n(&e->owner, __ATOMIC_RELAXED)))
		return true;
	shm_endpoint_bury(e, shm_peer_word(f, peer, &slot));
	return false;
}

void vb_shm_mark_dead(struct vb_fabric *fabric, pid_t pid)
{
	struct shm_fabric *f;

	while (fabric->lower != NULL)
		fabric = fabric->lower;
	if (strcmp(fabric->ops->name, "shm") != 0)
		return;
	f = shm_of(fabric);
	if (shm_lock(f) != 0)
		return;
	for (uint32_t i = 0; i < f->h->endpoints; i++) {
		struct shm_endpoint *e = &f->endpoints[i];
		shm_process ep_owner = __atomic_load_n(&e->owner, __ATOMIC_RELAXED);
		shm_process worker_owner = __atomic_load_n(&f->workers[i].owner, __ATOMIC_RELAXED);
		uint64_t word = __atomic_load_n(&e->word, __ATOMIC_SEQ_CST);

		if (shm_ep_state(word) == SHM_EP_OPEN && (pid_t)(ep_owner >> 32) == pid)
			shm_endpoint_bury(e, word);
		if (worker_owner != 0 && (pid_t)(worker_owner >> 32) == pid)
			shm_worker_free(f, &f->workers[i], worker_owner);
	}
	shm_unlock(f);
}
