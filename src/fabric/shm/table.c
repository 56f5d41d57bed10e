/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is there, as senders see it.  The tables change under one robust mutex; when a process dies inside, the
 * next one inherits it.  Each change has one store that makes it count (an endpoint's word, a worker's owner, a
 * region's size), so nothing is ever to be repaired.
 */
#define VB_LOG_ROOM "shm"
#include <unistd.h>

#include "base/log.h"
#include "fabric/shm/inner.h"

#define LOCK_NS 5000000000ull

int shm_lock(struct shm_fabric *f)
{
	uint64_t until = vb_clock_ns() + LOCK_NS;
	int err;

	while ((err = pthread_mutex_trylock(&f->h->mutex)) == EBUSY && vb_clock_ns() < until)
		usleep(100);
	if (err == EOWNERDEAD)
		err = pthread_mutex_consistent(&f->h->mutex);
	if (err != 0)
		return vb_fail(-EBUSY,
			       "the segment's tables stay locked: is a process of it stopped? (%s)",
			       strerror(err));
	return 0;
}

void shm_unlock(struct shm_fabric *f)
{
	pthread_mutex_unlock(&f->h->mutex);
}

/* ---- endpoints ---- */

/* The word that an open endpoint of that name has. */
uint64_t shm_peer_word(const struct shm_fabric *f, vb_peer peer, uint32_t *slot)
{
	uint32_t client = vb_peer_client(peer);

	*slot = client & ((1u << f->h->slot_bits) - 1);
	return shm_ep_word(client >> f->h->slot_bits, vb_peer_node(peer), SHM_EP_OPEN);
}

struct shm_endpoint *shm_endpoint_find(struct shm_fabric *f, vb_peer peer, uint32_t *slot)
{
	uint64_t word = shm_peer_word(f, peer, slot);

	if (peer == VB_PEER_NONE || *slot >= f->h->endpoints ||
	    __atomic_load_n(&f->endpoints[*slot].word, __ATOMIC_SEQ_CST) != word)
		return NULL;
	return &f->endpoints[*slot];
}

void shm_endpoint_bury(struct shm_endpoint *e, uint64_t word)
{
	uint64_t dead = (word & ~3ull) | SHM_EP_DEAD;

	__atomic_compare_exchange_n(&e->word, &word, dead, false, __ATOMIC_SEQ_CST,
				    __ATOMIC_RELAXED);
}

/* Whether the endpoint that holds a slot of a ring will never finish: its incarnation has ended, or
 * its process has.  The first cannot be while its process lives: a post is not an await point. */
bool shm_sender_dead(struct shm_fabric *f, vb_peer sender)
{
	uint32_t slot;
	struct shm_endpoint *e = shm_endpoint_find(f, sender, &slot);

	return e == NULL || !shm_process_alive(__atomic_load_n(&e->owner, __ATOMIC_RELAXED));
}
