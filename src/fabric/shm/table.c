/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is there, as senders see it, and named regions.  The tables change under one robust mutex; when
 * a process dies inside, the next one inherits it.  Each change has one store that makes it count
 * (an endpoint's word, a worker's owner, a directory's `used`), so nothing is ever to be repaired.
 */
#define VB_LOG_ROOM "shm"
#include <inttypes.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/shm/inner.h"

#define LOCK_NS      5000000000ull
#define REGION_START 64 /* offset 0 stays unused: protocols use 0 for "nothing" */

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

/* ---- regions ---- */

static struct shm_region *region_find(struct shm_node *d, const char *name)
{
	uint32_t used = __atomic_load_n(&d->used, __ATOMIC_ACQUIRE);

	for (uint32_t i = 0; i < used; i++) {
		if (strcmp(d->region[i].name, name) == 0)
			return &d->region[i];
	}
	return NULL;
}

static int region_add(struct shm_fabric *f, struct shm_node *d, const char *name, uint64_t bytes,
		      struct shm_region **out)
{
	uint32_t used = d->used;
	struct shm_region *r = &d->region[used], *last = r - 1;
	uint64_t at = REGION_START;

	if (used == SHM_REGIONS)
		return vb_fail(-ENOSPC, "a node has room for %u named regions", SHM_REGIONS);
	if (used > 0)
		at = (last->offset + last->bytes + 63) & ~63ull;
	if (at > f->h->node_bytes || bytes > f->h->node_bytes - at)
		return vb_fail(-ENOSPC,
			       "region '%s' of %" PRIu64 " bytes does not fit: %" PRIu64
			       " of the node's %" PRIu64 " are taken; open the fabric with larger "
			       "nodes",
			       name, bytes, at, f->h->node_bytes);
	snprintf(r->name, sizeof(r->name), "%s", name);
	r->bytes = bytes;
	r->offset = at;
	__atomic_store_n(&d->used, used + 1, __ATOMIC_RELEASE);
	*out = r;
	return 0;
}

int shm_region_find(struct vb_fabric *fabric, uint16_t node, const char *name, uint64_t bytes,
		    vb_addr *out)
{
	const struct shm_region *r = region_find(&shm_of(fabric)->directories[node], name);

	if (r == NULL)
		return -ENOENT;
	if (r->bytes != bytes)
		return vb_fail(-EPROTO,
			       "region '%s' has %" PRIu64 " bytes, not %" PRIu64
			       ": another version has made it",
			       name, r->bytes, bytes);
	*out = vb_addr_make(node, r->offset);
	return 0;
}

int shm_regions(struct vb_fabric *fabric, uint16_t node, struct vb_region_info *out, unsigned room)
{
	const struct shm_node *d = &shm_of(fabric)->directories[node];
	uint32_t used = __atomic_load_n(&d->used, __ATOMIC_ACQUIRE);

	/* Another process may have damaged the number since the directory was looked through. */
	if (used > SHM_REGIONS)
		used = SHM_REGIONS;
	for (uint32_t i = 0; i < used && i < room; i++) {
		snprintf(out[i].name, sizeof(out[i].name), "%.*s", SHM_REGION_NAME - 1,
			 d->region[i].name);
		out[i].bytes = d->region[i].bytes;
	}
	return (int)used;
}

int shm_region(struct vb_fabric *fabric, uint16_t node, const char *name, uint64_t bytes,
	       vb_addr *out, bool *fresh)
{
	struct shm_fabric *f = shm_of(fabric);
	struct shm_node *d = &f->directories[node];
	struct shm_region *r;
	bool made = false;
	int err;

	if (*name == '\0' || strlen(name) >= SHM_REGION_NAME || bytes == 0)
		return vb_fail(-EINVAL,
			       "region '%.60s' of %" PRIu64 " bytes: a name of 1 to %d "
			       "characters and a size are needed",
			       name, bytes, SHM_REGION_NAME - 1);
	err = shm_lock(f);
	if (err != 0)
		return err;
	r = region_find(d, name);
	if (r == NULL) {
		err = region_add(f, d, name, bytes, &r);
		made = true;
	} else if (r->bytes != bytes) {
		err = -EEXIST;
	}
	shm_unlock(f);
	if (err != 0 && err != -EEXIST)
		return err;
	*out = vb_addr_make(node, r->offset);
	*fresh = made;
	return err;
}
