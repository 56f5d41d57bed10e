/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding tuples from afar: READs of the index, one slot of every key at a time, so that the
 * lookups of many keys take at most three rounds; and the cache of what was found (RCC section
 * 3.2).
 */
#define VB_LOG_ROOM "store"
#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "store/store.h"

/* Misses are looked at again until no key moves: at once, and then after pauses, because the owner
 * may have been stopped while it moves one (its thread has to wait for a CPU). */
#define LOOKS_AT_ONCE 32u
#define PAUSE_NS      10000u
#define PAUSE_MOST_NS 1000000u
#define REST_NS       1000000000ull

struct cache_entry {
	uint64_t said; /* of `at`, which is mixed in: table and key, 32 bits, and the epoch */
	vb_addr at;
};

struct vb_cache {
	uint64_t mask;
	struct cache_entry entry[];
};

int vb_cache_open(uint32_t entries, struct vb_cache **out)
{
	*out = calloc(1, sizeof(**out) + entries * sizeof((*out)->entry[0]));
	if (*out == NULL)
		return vb_fail(-ENOMEM, "no memory for a location cache of %u entries", entries);
	(*out)->mask = entries - 1;
	return 0;
}

void vb_cache_close(struct vb_cache *c)
{
	free(c);
}

/* The upper half of a tag, never 0; and, by *at, which entry. */
static uint64_t tag_of(const struct vb_table *t, uint64_t key, uint64_t *at)
{
	uint64_t x = (key ^ (uint64_t)t->id << 56) * 0x9e3779b97f4a7c15ull;

	*at = (x ^ x >> 32) >> 1;
	return (x >> 32 | 1) << 32;
}

/*
 * Threads share it without order, so an entry may have one word of each of two.  The key of the tuple there does
 * not find that out: all tables have the same entry for a key, and a place that is free has its last key still.
 * So what was said of another address says nothing: it is no tag that anybody asks for, but with a chance of less
 * than 2^-60.
 */
static uint64_t mixed(uint64_t tag, vb_addr at)
{
	uint64_t x = at * 0xbf58476d1ce4e5b9ull;

	return tag ^ x ^ x >> 32;
}

vb_addr vb_cache_get(const struct vb_cache *c, const struct vb_table *t, uint64_t key,
		     uint32_t epoch)
{
	uint64_t i, tag = tag_of(t, key, &i), was;
	const struct cache_entry *e;
	vb_addr at;

	if (c == NULL)
		return 0;
	e = &c->entry[i & c->mask];
	at = __atomic_load_n(&e->at, __ATOMIC_RELAXED);
	was = mixed(__atomic_load_n(&e->said, __ATOMIC_RELAXED), at);
	return (was ^ tag) >> 32 != 0 || epoch - (uint32_t)was > 1 ? 0 : at;
}

void vb_cache_put(struct vb_cache *c, const struct vb_table *t, uint64_t key, vb_addr at,
		  uint32_t epoch)
{
	uint64_t i, tag = tag_of(t, key, &i);
	struct cache_entry *e;

	if (c == NULL)
		return;
	e = &c->entry[i & c->mask];
	__atomic_store_n(&e->at, at, __ATOMIC_RELAXED);
	__atomic_store_n(&e->said, mixed(tag | epoch, at), __ATOMIC_RELAXED);
}

void vb_cache_drop(struct vb_cache *c, const struct vb_table *t, uint64_t key)
{
	uint64_t i, tag = tag_of(t, key, &i), was;
	struct cache_entry *e;

	if (c == NULL)
		return;
	e = &c->entry[i & c->mask];
	was = mixed(__atomic_load_n(&e->said, __ATOMIC_RELAXED),
		    __atomic_load_n(&e->at, __ATOMIC_RELAXED));
	if ((was ^ tag) >> 32 == 0)
		__atomic_store_n(&e->at, 0, __ATOMIC_RELAXED);
}

/* Threads share a view: an odd mixture finds nothing, and finding nothing is looked into. */
static struct vb_index_view view_of(const struct vb_table_node *n)
{
	return (struct vb_index_view){
		.at = __atomic_load_n(&n->view.at, __ATOMIC_RELAXED),
		.slots = __atomic_load_n(&n->view.slots, __ATOMIC_RELAXED),
		.generation = __atomic_load_n(&n->view.generation, __ATOMIC_RELAXED),
	};
}

static vb_addr slot_addr(const struct vb_index_view *v, uint64_t key, unsigned way)
{
	return v->at + vb_index_slot_of(key, way, v->slots) * sizeof(struct vb_slot);
}

static bool match(struct vb_find *f, const struct vb_slot *s)
{
	uint64_t offset = vb_index_match(s, f->key);

	if (offset == 0)
		return false;
	f->at = vb_addr_make(f->node, offset);
	return true;
}

/* The fields of a header that say where its index is. */
struct where {
	uint64_t index_at, slots, generation, moves;
};
_Static_assert(offsetof(struct vb_table_header, moves) ==
		       offsetof(struct vb_table_header, index_at) + offsetof(struct where, moves),
	       "as they lie in the header");

static int look_where(struct vb_acc *a, const struct vb_table_node *n, struct where *out)
{
	vb_acc_read(a, VB_INDEX, n->header + offsetof(struct vb_table_header, index_at), out,
		    sizeof(*out));
	return vb_acc_go(a);
}

static void renew_view(struct vb_table_node *n, const struct where *w)
{
	uint16_t node = vb_addr_node(n->header);

	__atomic_store_n(&n->view.at, vb_addr_make(node, w->index_at), __ATOMIC_RELAXED);
	__atomic_store_n(&n->view.slots, w->slots, __ATOMIC_RELAXED);
	__atomic_store_n(&n->view.generation, w->generation, __ATOMIC_RELAXED);
}

/* The first look may have got old and new words while the index was made larger, and `moves` after
 * that: then the second has the same moves, and other words. */
static bool settled(const struct where *a, const struct where *b)
{
	return a->moves == b->moves && (a->moves & 1) == 0 && a->index_at == b->index_at &&
	       a->slots == b->slots && a->generation == b->generation;
}

/* 1: settled; 0: look again. */
static int look_once(struct vb_acc *a, struct vb_find *f)
{
	struct vb_table_node *n = &f->table->node[f->node];
	struct vb_slot slot[VB_INDEX_WAYS];
	struct where before, after;
	struct vb_index_view v;
	int err = look_where(a, n, &before);

	if (err)
		return err;
	v = (struct vb_index_view){.at = vb_addr_make(f->node, before.index_at),
				   .slots = before.slots};
	if (v.slots == 0)
		return vb_fail(-VB_EPEERGONE, "node %u has not opened table '%s'", f->node,
			       f->table->name);
	for (unsigned way = 0; way < VB_INDEX_WAYS; way++)
		vb_acc_read(a, VB_INDEX, slot_addr(&v, f->key, way), &slot[way], sizeof(slot[way]));
	err = vb_acc_go(a);
	if (err)
		return err == -VB_EACCESS ? 0 : err; /* where half of a view led to */
	err = look_where(a, n, &after);
	if (err)
		return err;
	if (settled(&before, &after))
		renew_view(n, &after);
	for (unsigned way = 0; way < VB_INDEX_WAYS; way++)
		if (match(f, &slot[way]))
			return 1;
	return settled(&before, &after);
}

/*
 * Not found on the way past: three slots between two looks at `moves`.  If nothing moved between
 * them and the view was right, then there was no such key at that time.
 */
static int find_carefully(struct vb_acc *a, struct vb_find *f)
{
	uint64_t pause = PAUSE_NS, until = 0;

	for (unsigned looks = 0;; looks++) {
		int err = look_once(a, f);

		if (err)
			return err < 0 ? err : 0;
		if (looks < LOOKS_AT_ONCE)
			continue;
		if (until == 0)
			until = vb_ep_now(a->ep) + REST_NS;
		if (vb_ep_now(a->ep) > until)
			return vb_fail(-VB_EUNKNOWN,
				       "the index of table '%s' on node %u does not come to rest",
				       f->table->name, f->node);
		vb_ep_wait_out(a->ep, pause);
		pause = pause * 2 < PAUSE_MOST_NS ? pause * 2 : PAUSE_MOST_NS;
	}
}

#define FIND_MAX 32u

/* Where the key's slot of this way is, as far as is known. */
static vb_addr guess(const struct vb_find *f, unsigned way)
{
	struct vb_index_view v = view_of(&f->table->node[f->node]);

	return slot_addr(&v, f->key, way);
}

/* Looks at one way of each; puts those that are not there to the front, and says how many they are. */
static int look_way(struct vb_acc *a, struct vb_find **f, unsigned *n, unsigned way)
{
	struct vb_slot slot[FIND_MAX];
	vb_addr where[FIND_MAX];
	unsigned open = 0;
	int err;

	for (unsigned i = 0; i < *n; i++) {
		where[i] = guess(f[i], way);
		if (*n > 1)
			vb_acc_hint(a, where[i], sizeof(slot[i]));
	}
	for (unsigned i = 0; i < *n; i++)
		vb_acc_read(a, VB_INDEX, where[i], &slot[i], sizeof(slot[i]));
	err = vb_acc_go(a);
	for (unsigned i = 0; i < *n && err == 0; i++)
		if (!match(f[i], &slot[i]))
			f[open++] = f[i];
	*n = open;
	return err;
}

static int find_some(struct vb_acc *a, struct vb_find **all, unsigned n)
{
	struct vb_find *f[FIND_MAX];
	int err = 0;

	for (unsigned i = 0; i < n; i++) {
		f[i] = all[i];
		f[i]->at = 0;
		f[i]->node = vb_table_node(f[i]->table, f[i]->key);
	}
	for (unsigned way = 0; way < VB_INDEX_WAYS && n > 0 && err == 0; way++)
		err = look_way(a, f, &n, way);
	for (unsigned i = 0; i < n && err == 0; i++)
		err = find_carefully(a, f[i]);
	return err;
}

int vb_store_find(struct vb_acc *a, struct vb_find **f, unsigned n)
{
	int err = 0;

	for (unsigned i = 0; i < n && err == 0; i += FIND_MAX)
		err = find_some(a, f + i, n - i < FIND_MAX ? n - i : FIND_MAX);
	return err;
}
