/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Named regions of the segment's nodes, under the tables' mutex.
 *
 * Who holds a region of node 0 is in the table of users: a bit of each region beside each user's name.  A process
 * sets and clears its own bits, and one that has ended holds nothing, since its name is a dead one's; so nothing is
 * to be undone when a process is killed.
 */
#define VB_LOG_ROOM "shm"
#include <inttypes.h>
#include <sys/mman.h>

#include "base/log.h"
#include "fabric/shm/inner.h"

#define REGION_START 64 /* offset 0 stays unused: protocols use 0 for "nothing" */

/* Another process may have damaged the number since the directory was looked through. */
static uint32_t used_of(const struct shm_node *d)
{
	return d->used < SHM_REGIONS ? d->used : SHM_REGIONS;
}

static struct shm_region *region_find(struct shm_node *d, const char *name)
{
	for (uint32_t i = 0; i < used_of(d); i++)
		if (d->region[i].bytes != 0 && strcmp(d->region[i].name, name) == 0)
			return &d->region[i];
	return NULL;
}

static struct shm_region *region_of(struct shm_node *d, uint64_t id)
{
	for (uint32_t i = 0; i < used_of(d); i++)
		if (d->region[i].bytes != 0 && d->region[i].id == id)
			return &d->region[i];
	return NULL;
}

static int region_add(struct shm_fabric *f, struct shm_node *d, const char *name, uint64_t bytes,
		      struct shm_region **out)
{
	struct vb_span spans[SHM_REGIONS];
	uint32_t used = used_of(d), i = 0;
	struct shm_region *r;
	uint64_t at;

	while (i < used && d->region[i].bytes != 0)
		i++;
	if (i == SHM_REGIONS)
		return vb_fail(-ENOSPC, "a node has room for %u named regions", SHM_REGIONS);
	for (uint32_t k = 0; k < used; k++)
		spans[k] = (struct vb_span){.at = d->region[k].offset, .bytes = d->region[k].bytes};
	at = vb_span_fit(spans, used, REGION_START, bytes);
	if (at > f->h->node_bytes || bytes > f->h->node_bytes - at)
		return vb_fail(-ENOSPC,
			       "region '%s' of %" PRIu64 " bytes does not fit: %" PRIu64
			       " of the node's %" PRIu64 " are taken; open the fabric with larger "
			       "nodes",
			       name, bytes, at, f->h->node_bytes);
	r = &d->region[i];
	snprintf(r->name, sizeof(r->name), "%s", name);
	r->offset = at;
	r->id = ++d->made;
	r->by = VB_PEER_NONE;
	__atomic_store_n(&r->bytes, bytes, __ATOMIC_RELEASE);
	if (i == used)
		__atomic_store_n(&d->used, used + 1, __ATOMIC_RELEASE);
	*out = r;
	return 0;
}

int shm_region_find(struct vb_fabric *fabric, uint16_t node, const char *name, uint64_t bytes,
		    vb_addr *out)
{
	struct shm_fabric *f = shm_of(fabric);
	const struct shm_region *r;
	int err = shm_lock(f);

	if (err != 0)
		return err;
	r = region_find(&f->directories[node], name);
	if (r == NULL)
		err = -ENOENT;
	else if (r->bytes != bytes)
		err = vb_fail(-EPROTO,
			      "region '%s' has %" PRIu64 " bytes, not %" PRIu64
			      ": another version has made it",
			      name, r->bytes, bytes);
	else
		*out = vb_addr_make(node, r->offset);
	shm_unlock(f);
	return err;
}

int shm_regions(struct vb_fabric *fabric, uint16_t node, struct vb_region_info *out, unsigned room)
{
	struct shm_fabric *f = shm_of(fabric);
	const struct shm_node *d = &f->directories[node];
	unsigned n = 0;
	int err = shm_lock(f);

	if (err != 0)
		return err;
	for (uint32_t i = 0; i < used_of(d); i++) {
		const struct shm_region *r = &d->region[i];

		if (r->bytes == 0)
			continue;
		if (n < room) {
			snprintf(out[n].name, sizeof(out[n].name), "%.*s", SHM_REGION_NAME - 1,
				 r->name);
			out[n].bytes = r->bytes;
			out[n].id = r->id;
		}
		n++;
	}
	shm_unlock(f);
	return (int)n;
}

/* Finds it or makes it; the mutex is held. */
static int region_get(struct shm_fabric *f, uint16_t node, const char *name, uint64_t bytes,
		      struct shm_region **r, bool *made)
{
	struct shm_node *d = &f->directories[node];

	*made = false;
	*r = region_find(d, name);
	if (*r != NULL)
		return (*r)->bytes == bytes ? 0 : -EEXIST;
	*made = true;
	return region_add(f, d, name, bytes, r);
}

static int check_name(const char *name, uint64_t bytes)
{
	if (*name != '\0' && strlen(name) < SHM_REGION_NAME && bytes != 0)
		return 0;
	return vb_fail(-EINVAL,
		       "region '%.60s' of %" PRIu64 " bytes: a name of 1 to %d "
		       "characters and a size are needed",
		       name, bytes, SHM_REGION_NAME - 1);
}

int shm_region(struct vb_fabric *fabric, uint16_t node, const char *name, uint64_t bytes,
	       vb_addr *out, bool *fresh)
{
	struct shm_fabric *f = shm_of(fabric);
	struct shm_region *r;
	uint64_t offset = 0;
	bool made;
	int err = check_name(name, bytes);

	if (err == 0)
		err = shm_lock(f);
	if (err != 0)
		return err;
	err = region_get(f, node, name, bytes, &r, &made);
	if (err == 0 || err == -EEXIST)
		offset = r->offset;
	shm_unlock(f);
	if (err != 0 && err != -EEXIST)
		return err;
	*out = vb_addr_make(node, offset);
	*fresh = made;
	return err;
}

/* ---- those that come and go ---- */

static uint32_t index_of(const struct shm_fabric *f, const struct shm_region *r)
{
	return (uint32_t)(r - f->directories[0].region);
}

/* Once more by this process; the mutex is held. */
static void hold(struct shm_fabric *f, const struct shm_region *r)
{
	uint32_t i = index_of(f, r);

	if (f->holds[i]++ > 0)
		return;
	/* Of a segment without a name nobody has asked before who uses it, and a child has its parent's place. */
	shm_user_join(f);
	if (f->user == SHM_NO_USER)
		f->h->held_unlisted |= 1u << i;
	else
		__atomic_fetch_or(&f->held[f->user], 1u << i, __ATOMIC_SEQ_CST);
}

int shm_region_hold(struct vb_fabric *fabric, uint16_t node, const char *name, uint64_t bytes,
		    struct vb_region_held *out, vb_peer *by)
{
	struct shm_fabric *f = shm_of(fabric);
	struct shm_region *r;
	bool made;
	int err = check_name(name, bytes);

	if (err == 0)
		err = shm_lock(f);
	if (err != 0)
		return err;
	err = region_get(f, node, name, bytes, &r, &made);
	if ((err == 0 || err == -EEXIST) && r->by != VB_PEER_NONE) {
		*by = r->by;
		err = -EALREADY;
	} else if (err == 0 || err == -EEXIST) {
		hold(f, r);
		*out = (struct vb_region_held){
			.at = vb_addr_make(node, r->offset), .fresh = made, .id = r->id};
	}
	shm_unlock(f);
	return err;
}

int shm_region_hold_again(struct vb_fabric *fabric, const char *name, struct vb_region_held *held)
{
	struct shm_fabric *f = shm_of(fabric);
	struct shm_region *r;
	int err = shm_lock(f);

	if (err != 0)
		return err;
	r = region_find(&f->directories[0], name);
	if (r == NULL || r->id != held->id || r->by != VB_PEER_NONE)
		err = -ENOENT;
	else
		hold(f, r);
	shm_unlock(f);
	return err;
}

void shm_region_let_go(struct vb_fabric *fabric, const struct vb_region_held *held)
{
	struct shm_fabric *f = shm_of(fabric);
	struct shm_region *r;
	uint32_t i;

	/* Said; then it stays held until this process ends. */
	if (shm_lock(f) != 0)
		return;
	r = region_of(&f->directories[0], held->id);
	i = r != NULL ? index_of(f, r) : 0;
	if (r != NULL && --f->holds[i] == 0 && f->user != SHM_NO_USER)
		__atomic_fetch_and(&f->held[f->user], ~(1u << i), __ATOMIC_SEQ_CST);
	shm_unlock(f);
}

/* 0, or -EBUSY, said. */
static int check_free(struct shm_fabric *f, const struct shm_region *r)
{
	uint32_t bit = 1u << index_of(f, r);
	unsigned n = 0;
	shm_process who = 0;

	for (uint32_t i = 0; i < f->h->endpoints; i++) {
		shm_process p = __atomic_load_n(&f->users[i], __ATOMIC_SEQ_CST);

		if (__atomic_load_n(&f->held[i], __ATOMIC_SEQ_CST) & bit && shm_process_alive(p)) {
			who = p;
			n++;
		}
	}
	if (n == 0 && f->h->held_unlisted & bit)
		return vb_fail(-EBUSY,
			       "'%s' is in use, or has been, by a process that had no place among "
			       "the users of "
			       "this segment, which knows of %u; it stays until all have closed "
			       "the segment",
			       r->name, f->h->endpoints);
	if (n == 0)
		return 0;
	return vb_fail(-EBUSY, "'%s' is in use: %u process%s it open, %s %" PRIu64, r->name, n,
		       n == 1 ? " has" : "es have",
		       who == shm_self() ? "this one,"
		       : n == 1          ? "process"
					 : "one is process",
		       who >> 32);
}

int shm_region_take(struct vb_fabric *fabric, const char *name, vb_peer me, vb_peer *by)
{
	struct shm_fabric *f = shm_of(fabric);
	struct shm_region *r;
	int err = shm_lock(f);

	if (err != 0)
		return err;
	r = region_find(&f->directories[0], name);
	if (r == NULL) {
		err = -ENOENT;
	} else if (r->by == VB_PEER_NONE) {
		err = check_free(f, r);
	} else if (r->by != *by) {
		*by = r->by;
		err = -EALREADY;
	}
	if (err == 0)
		r->by = me;
	shm_unlock(f);
	return err;
}

/* Its memory is zeros before its entry is free: who finds it half done does it again. */
int shm_region_remove(struct vb_fabric *fabric, uint16_t node, uint64_t id)
{
	struct shm_fabric *f = shm_of(fabric);
	struct shm_region *r, was = {.bytes = 0};
	int err = shm_lock(f);

	if (err != 0)
		return err;
	r = region_of(&f->directories[node], id);
	if (r != NULL)
		was = *r;
	shm_unlock(f);
	if (was.bytes == 0 || was.bytes > f->h->node_bytes ||
	    was.offset > f->h->node_bytes - was.bytes)
		return 0;
	vb_zero_pages(f->base[node] + was.offset, was.bytes, MADV_REMOVE);
	err = shm_lock(f);
	if (err != 0)
		return err;
	__atomic_store_n(&r->bytes, 0, __ATOMIC_RELEASE);
	shm_unlock(f);
	return 0;
}
