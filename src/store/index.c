/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The three-way cuckoo index of RCBench (section 4.2.1, after its reference 32), at its owner.
 *
 *	slot   +----------------+----------------+-------------------+
 *	       | key, 64 bits   | check, 16 bits | offset, 48 bits   |
 *	       +----------------+----------------+-------------------+
 *
 * A key is in one of three slots.  The paper's slot is 24 bytes (address, size, key); here the size
 * is the table's, and 16 bits of a hash of key and offset find out a slot that was read half old
 * and half new. A torn slot that passes is found out by the tuple's own key.
 *
 * A key may be *hidden*: the check of its slot is turned round, so that nobody finds it from afar; its owner
 * still does (store/places.h).
 *
 * The owner alone writes.  A key that is in the way is moved to its next slot before its old one is
 * overwritten: along the path that was found first, from its end to its beginning, so at no moment
 * is a key nowhere.  A reader that looks at one slot after the other may still pass a moving key;
 * who finds nothing therefore looks again, between two looks at `moves`.
 */
#define VB_LOG_ROOM "store"
#include <errno.h>
#include <inttypes.h>

#include "base/log.h"
#include "store/store.h"

/* Slots looked at for a path before the index is made larger. */
#define SEARCH_MAX 512u

#define OFFSET_MASK ((1ull << VB_ADDR_OFFSET_BITS) - 1)

/* The finalizer of splitmix64: a bijection, so keys that are close end up apart. */
static uint64_t mix(uint64_t x)
{
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9ull;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

uint64_t vb_index_slot_of(uint64_t key, unsigned way, uint64_t slots)
{
	static const uint64_t salt[VB_INDEX_WAYS] = {0x9e3779b97f4a7c15ull, 0xc2b2ae3d27d4eb4full,
						     0x165667b19e3779f9ull};

	return (uint64_t)(((unsigned __int128)mix(key + salt[way]) * slots) >> 64);
}

uint64_t vb_index_ref(uint64_t key, uint64_t offset)
{
	return mix(key ^ (offset << 16 | offset >> 48)) << VB_ADDR_OFFSET_BITS | offset;
}

uint64_t vb_index_match(const struct vb_slot *s, uint64_t key)
{
	uint64_t offset = s->ref & OFFSET_MASK;

	if (offset == 0 || s->key != key || s->ref != vb_index_ref(key, offset))
		return 0;
	return offset;
}

static struct vb_slot *slots_of(const struct vb_index *x)
{
	return (struct vb_slot *)(x->segment + x->header->index_at);
}

static struct vb_slot *slot_at(const struct vb_index *x, uint64_t key, unsigned way)
{
	return slots_of(x) + vb_index_slot_of(key, way, x->header->slots);
}

static struct vb_slot *slot_with(const struct vb_index *x, uint64_t key)
{
	for (unsigned way = 0; way < VB_INDEX_WAYS; way++) {
		struct vb_slot *s = slot_at(x, key, way);

		if (s->ref != 0 && s->key == key)
			return s;
	}
	return NULL;
}

uint64_t vb_index_find(const struct vb_index *x, uint64_t key)
{
	const struct vb_slot *s = slot_with(x, key);

	return s != NULL ? s->ref & OFFSET_MASK : 0;
}

/* Other CPUs and the device read while we write: each word is whole, and empty comes first.  Every store to the
 * index is a release and every piece of a READ an acquire: whoever has read a word of a move that is under way
 * then finds `moves` odd, or later. */
static void put(struct vb_slot *s, uint64_t key, uint64_t ref)
{
	__atomic_store_n(&s->ref, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&s->key, key, __ATOMIC_RELEASE);
	__atomic_store_n(&s->ref, ref, __ATOMIC_RELEASE);
}

/* An owner that died over it has left the number odd: then it stays so until we are done. */
static void begin_moves(struct vb_index *x)
{
	__atomic_store_n(&x->header->moves, x->header->moves | 1, __ATOMIC_SEQ_CST);
}

static void end_moves(struct vb_index *x)
{
	__atomic_store_n(&x->header->moves, (x->header->moves | 1) + 1, __ATOMIC_SEQ_CST);
}

/* A key that was being moved is in both of its slots, or in one: nothing else is to be mended. */
void vb_index_repair(struct vb_index *x)
{
	if (x->header->moves & 1)
		end_moves(x);
}

/* A breadth-first search: the shortest path of moves that ends in an empty slot. */
struct search {
	struct vb_slot *slot[SEARCH_MAX];
	uint16_t from[SEARCH_MAX];
	unsigned n;
};

static bool seen(const struct search *q, const struct vb_slot *s)
{
	for (unsigned i = 0; i < q->n; i++)
		if (q->slot[i] == s)
			return true;
	return false;
}

/* The place in q of an empty slot, or SEARCH_MAX. */
static unsigned find_room(const struct vb_index *x, uint64_t key, struct search *q)
{
	q->n = 0;
	for (unsigned way = 0; way < VB_INDEX_WAYS; way++) {
		struct vb_slot *s = slot_at(x, key, way);

		if (seen(q, s))
			continue;
		q->slot[q->n] = s;
		q->from[q->n] = SEARCH_MAX;
		q->n++;
	}
	for (unsigned at = 0; at < q->n; at++) {
		if (q->slot[at]->ref == 0)
			return at;
		for (unsigned way = 0; way < VB_INDEX_WAYS && q->n < SEARCH_MAX; way++) {
			struct vb_slot *s = slot_at(x, q->slot[at]->key, way);

			if (seen(q, s))
				continue;
			q->slot[q->n] = s;
			q->from[q->n] = (uint16_t)at;
			q->n++;
		}
	}
	return SEARCH_MAX;
}

static bool place(struct vb_index *x, uint64_t key, uint64_t ref)
{
	struct search q;
	unsigned at = find_room(x, key, &q);

	if (at == SEARCH_MAX)
		return false;
	if (q.from[at] != SEARCH_MAX) {
		begin_moves(x);
		while (q.from[at] != SEARCH_MAX) {
			const struct vb_slot *s = q.slot[q.from[at]];

			put(q.slot[at], s->key, s->ref);
			at = q.from[at];
			x->kicks++;
		}
		put(q.slot[at], key, ref);
		end_moves(x);
		return true;
	}
	put(q.slot[at], key, ref);
	return true;
}

/* All keys of the one into the other, which nobody sees yet. */
static bool copy_all(const struct vb_index *from, struct vb_index *to)
{
	const struct vb_slot *s = slots_of(from);

	for (uint64_t i = 0; i < from->header->slots; i++)
		if (s[i].ref != 0 && !place(to, s[i].key, s[i].ref))
			return false;
	return true;
}

/*
 * Twice the slots, or more, in new memory, which is made known when it is full of what the old one
 * had. The old one stays as it is, for readers who do not know yet.
 */
static int resize(struct vb_index *x)
{
	struct vb_table_header *h = x->header, larger = *h;
	struct vb_index y = {.header = &larger, .segment = x->segment};

	do {
		if (x->more == NULL)
			return -ENOSPC;
		larger.slots *= 2;
		larger.generation++;
		larger.index_at = x->more(x->ctx, larger.generation, larger.slots);
		if (larger.index_at == 0)
			return -ENOSPC;
	} while (!copy_all(x, &y));
	begin_moves(x);
	__atomic_store_n(&h->index_at, larger.index_at, __ATOMIC_RELEASE);
	__atomic_store_n(&h->slots, larger.slots, __ATOMIC_RELEASE);
	__atomic_store_n(&h->generation, larger.generation, __ATOMIC_RELEASE);
	end_moves(x);
	x->resizes++;
	return 0;
}

int vb_index_insert(struct vb_index *x, uint64_t key, uint64_t offset)
{
	int err = 0;

	vb_assert(offset != 0 && offset <= OFFSET_MASK);
	if (slot_with(x, key) != NULL)
		return -EEXIST;
	while (err == 0 && !place(x, key, vb_index_ref(key, offset)))
		err = resize(x);
	if (err == 0)
		x->header->keys++;
	return err;
}

/* The check of a hidden slot is right for nobody. */
static uint64_t turned(uint64_t ref)
{
	return ref ^ ~OFFSET_MASK;
}

/* Of all slots with the key: there is more than one only after the death of an owner. */
static bool turn(struct vb_index *x, uint64_t key, bool hide)
{
	bool any = false;

	for (unsigned way = 0; way < VB_INDEX_WAYS; way++) {
		struct vb_slot *s = slot_at(x, key, way);

		if (s->ref == 0 || s->key != key || (vb_index_match(s, key) != 0) != hide)
			continue;
		__atomic_store_n(&s->ref, turned(s->ref), __ATOMIC_RELEASE);
		any = true;
	}
	return any;
}

void vb_index_hide(struct vb_index *x, uint64_t key)
{
	(void)turn(x, key, true);
}

bool vb_index_show(struct vb_index *x, uint64_t key)
{
	return turn(x, key, false);
}

bool vb_index_is_hidden(const struct vb_index *x, uint64_t key)
{
	const struct vb_slot *s = slot_with(x, key);

	return s != NULL && vb_index_match(s, key) == 0;
}

bool vb_index_delete(struct vb_index *x, uint64_t key)
{
	struct vb_slot *s = slot_with(x, key);

	if (s == NULL)
		return false;
	/* More than one only after the death of an owner, see vb_index_repair. */
	for (; s != NULL; s = slot_with(x, key))
		__atomic_store_n(&s->ref, 0, __ATOMIC_RELEASE);
	x->header->keys--;
	return true;
}
