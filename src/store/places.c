/* SPDX-License-Identifier: Apache-2.0 */
/* Places of keys that have no record (store/places.h). */
#define VB_LOG_ROOM "store"
#include "store/places.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/sometimes.h"
#include "store/ordered.h"

/* Of each key that gets a tuple. */
#define LOOKS 8u
#define FREES 8u

#define HIDDEN_MOST (1u << 16)

/* All but sundial and maat. */
#define GIVE_BACK                                                                                  \
	"no-wait no-wait-sx wait-die wait-die-sx wait-die-fair wound-wait wound-wait-sx "          \
	"bounded-wait bounded-wait-sx dslr-2pl silo drtm-h mvcc mvcc-rcc cicada to to-cascade: "

enum state { USED, HIDDEN, FREE };

struct hidden {
	uint64_t number, version, since_ns;
};

/* Tuples by their numbers. */
struct vb_places {
	uint8_t *
		state; /* of each; HIDDEN: it is in the ring, though it may have been shown since */
	uint64_t *free;        /* a stack, with room for all */
	struct hidden *hidden; /* a ring, the oldest first */
	uint64_t n_free, first, n_hidden, most, hand;
};

static uint64_t offset_of(const struct vb_table *t, const struct vb_table_node *n, uint64_t number)
{
	return vb_addr_offset(n->header) + sizeof(struct vb_table_header) +
	       number * t->layout.stride;
}

static uint64_t number_of(const struct vb_table *t, const struct vb_table_node *n, uint64_t offset)
{
	return (offset - offset_of(t, n, 0)) / t->layout.stride;
}

static char *tuple_of(const struct vb_table *t, const struct vb_table_node *n, uint64_t number)
{
	return n->index.segment + offset_of(t, n, number);
}

static uint64_t key_of(const struct vb_table *t, const struct vb_table_node *n, uint64_t number)
{
	return vb_tuple_word(tuple_of(t, n, number), VB_TUPLE_KEY_AT);
}

static void free_places(struct vb_places *p)
{
	if (p == NULL)
		return;
	free(p->state);
	free(p->free);
	free(p->hidden);
	free(p);
}

void vb_places_forget(struct vb_table_node *n)
{
	free_places(n->places);
	n->places = NULL;
}

static void push_hidden(struct vb_places *p, struct hidden h)
{
	p->hidden[(p->first + p->n_hidden++) % p->most] = h;
	p->state[h.number] = HIDDEN;
}

static void push_free(struct vb_places *p, uint64_t number)
{
	p->free[p->n_free++] = number;
	p->state[number] = FREE;
}

static uint64_t newest_version(const struct vb_table *t, const char *tuple)
{
	return vb_slot_version(&t->layout, tuple, vb_tuple_newest(&t->layout, tuple));
}

/*
 * What the owner before had hidden, and what is in no index: freed, or taken for a key by an owner that died over it.
 * Nobody who may still commit knows the latter.
 */
static void take_stock(struct vb_table *t, struct vb_table_node *n, uint64_t now_ns)
{
	struct vb_places *p = n->places;

	for (uint64_t i = 0; i < n->index.header->tuples; i++) {
		uint64_t key = key_of(t, n, i);

		if (vb_index_find(&n->index, key) != offset_of(t, n, i))
			push_free(p, i);
		else if (vb_index_is_hidden(&n->index, key) && p->n_hidden < p->most)
			push_hidden(p,
				    (struct hidden){.number = i,
						    .version = newest_version(t, tuple_of(t, n, i)),
						    .since_ns = now_ns});
	}
}

static struct vb_places *open_places(struct vb_table *t, struct vb_table_node *n, uint64_t now_ns)
{
	struct vb_places *p = calloc(1, sizeof(*p));

	if (p == NULL)
		return NULL;
	p->most = t->room < HIDDEN_MOST ? t->room : HIDDEN_MOST;
	p->state = calloc(t->room, sizeof(*p->state));
	p->free = calloc(t->room, sizeof(*p->free));
	p->hidden = calloc(p->most, sizeof(*p->hidden));
	if (p->state == NULL || p->free == NULL || p->hidden == NULL) {
		free_places(p);
		return NULL;
	}
	n->places = p;
	if (n->index.header->hidden != 0)
		take_stock(t, n, now_ns);
	return p;
}

/* Not by the range's map: one that once had no room for a key knows no more than that. */
static bool has_keys(const struct vb_table *ranges, const struct vb_table_node *n, uint64_t range)
{
	uint64_t key;

	return vb_table_list(ranges->ranges_of, vb_addr_node(n->header), range,
			     vb_table_range_end(ranges, range), &key, 1) != 0;
}

/* Nobody holds it, there is no record, and what is in it is of before now. */
static bool at_rest(const struct vb_table *t, const struct vb_table_node *n, uint64_t number,
		    uint64_t common_ns)
{
	const char *tuple = tuple_of(t, n, number);

	if (!(newest_version(t, tuple) & VB_VERSION_ABSENT))
		return false;
	if (t->ranges_of != NULL && has_keys(t, n, key_of(t, n, number)))
		return false;
	return t->store->at_rest(t->store, &t->layout, tuple, common_ns);
}

static void hide(struct vb_table *t, struct vb_table_node *n, uint64_t number, uint64_t now_ns)
{
	struct vb_table_header *h = n->index.header;

	__atomic_store_n(&h->hidden, h->hidden + 1, __ATOMIC_RELEASE);
	push_hidden(n->places, (struct hidden){.number = number,
					       .version = newest_version(t, tuple_of(t, n, number)),
					       .since_ns = now_ns});
	vb_index_hide(&n->index, key_of(t, n, number));
}

static void look_at_next(struct vb_table *t, struct vb_table_node *n,
			 const struct vb_store_now *now)
{
	struct vb_places *p = n->places;
	uint64_t i = p->hand++ % n->index.header->tuples;

	if (p->state[i] == USED && p->n_hidden < p->most &&
	    vb_index_find(&n->index, key_of(t, n, i)) == offset_of(t, n, i) &&
	    at_rest(t, n, i, now->common_ns))
		hide(t, n, i, now->ns);
}

static void free_place(struct vb_table *t, uint16_t node, uint64_t number)
{
	struct vb_table_node *n = &t->node[node];
	uint64_t key = key_of(t, n, number);

	VB_SOMETIMES(2000, GIVE_BACK "the place of a key without a record is free");
	(void)vb_index_delete(&n->index, key);
	vb_ranges_drop(t, node, key);
	push_free(n->places, number);
	if (t->store->told != NULL)
		t->store->told(t->store, t, key, newest_version(t, tuple_of(t, n, number)), false);
}

/* The oldest that is hidden: it is free, or used. */
static void settle(struct vb_table *t, uint16_t node, const struct vb_store_now *now)
{
	struct vb_table_node *n = &t->node[node];
	struct vb_places *p = n->places;
	struct hidden h = p->hidden[p->first];
	const char *tuple = tuple_of(t, n, h.number);
	uint64_t key = key_of(t, n, h.number);

	p->first = (p->first + 1) % p->most;
	p->n_hidden--;
	p->state[h.number] = USED;
	if (vb_index_is_hidden(&n->index, key) && newest_version(t, tuple) == h.version &&
	    at_rest(t, n, h.number, now->common_ns))
		free_place(t, node, h.number);
	else
		(void)vb_index_show(&n->index, key);
}

void vb_places_step(struct vb_table *t, uint16_t node, const struct vb_store_now *now)
{
	struct vb_table_node *n = &t->node[node];
	struct vb_table_header *h = n->index.header;
	struct vb_places *p = n->places;

	if (t->store->grace_ns == 0 || h->generation != 0 ||
	    (h->tuples <= t->asked && h->hidden == 0))
		return;
	if (p == NULL)
		p = open_places(t, n, now->ns);
	if (p == NULL)
		return;
	for (unsigned i = 0; i < FREES && p->n_hidden > 0 &&
			     p->hidden[p->first].since_ns + t->store->grace_ns <= now->ns;
	     i++)
		settle(t, node, now);
	for (unsigned i = 0; i < LOOKS && h->tuples > t->asked; i++)
		look_at_next(t, n, now);
}

uint64_t vb_places_take(struct vb_table *t, uint16_t node)
{
	struct vb_table_node *n = &t->node[node];
	uint64_t number;

	if (n->places == NULL || n->places->n_free == 0)
		return 0;
	number = n->places->free[--n->places->n_free];
	n->places->state[number] = USED;
	return offset_of(t, n, number);
}

void vb_places_back(struct vb_table *t, uint16_t node, uint64_t offset)
{
	struct vb_table_node *n = &t->node[node];

	push_free(n->places, number_of(t, n, offset));
}

bool vb_places_confirm(struct vb_table *t, uint16_t node, uint64_t key, uint64_t offset)
{
	struct vb_index *x = &t->node[node].index;

	if (vb_likely(x->header->hidden == 0))
		return true;
	if (vb_index_find(x, key) != offset)
		return false;
	if (vb_index_show(x, key))
		VB_SOMETIMES(2000, GIVE_BACK "a key is wanted that was hidden");
	return true;
}
