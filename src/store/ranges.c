/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ordered tables: their ranges, and the order of their keys at the owner of each node.
 *
 * The keys of an ordered table fall into *ranges* of 2^range_shift.  All keys of a range lie on one node,
 * and with them, in a second table, the range's own tuple: it never has a record, and its version counts
 * for what is in the range.  What transactions make of it: txn/scan.c.
 *
 * Which keys have a tuple is known in two places.  Behind the tuple of each range lies its key map
 * (store/keymap.h), which anybody reads; it is drawn when the range gets its tuple, and from then on has a
 * key before the index does.  An owner that dies in between leaves a key in the map that has no tuple: who
 * scans has one made.
 *
 * The order is in a tree in the owner's heap (store/ordered.h), which the node's server alone uses.  It
 * follows the tuples: before each look it takes in those that have come since the last, so that who adds a key
 * need not know of it; only of a place that gets another key it is told (store/places.h).  A new owner makes it
 * from the tuples alone.  It
 * has every key that has a tuple, whether there is a record or not: what is in it is only worth a look.
 * Maps are drawn from it, and where a range has more keys than a map has room for, it alone knows them.
 */
#define VB_LOG_ROOM "store"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "store/keymap.h"
#include "store/ordered.h"
#include "store/store.h"

#define NAME_MOST     24u /* with ".ranges" behind it a table's name */
#define SHIFT_DEFAULT 6u
#define SHIFT_MOST    32u
#define MAP_STEP      64 /* keys of a range at a time */

unsigned vb_ranges_shift(const struct vb_table_params *p)
{
	return p->range_shift != 0 ? p->range_shift : SHIFT_DEFAULT;
}

struct vb_table_params vb_ranges_params(const struct vb_table_params *p, char name[32])
{
	/* None is fine for who only counts bytes. */
	snprintf(name, 32, "%.24s.ranges", p->name != NULL ? p->name : "");
	return (struct vb_table_params){
		.name = name,
		.record_bytes = 1,
		.records = p->ranges != 0 ? p->ranges : p->records,
		.partition = p->partition,
	};
}

int vb_ranges_check(const struct vb_table_params *p)
{
	if (!p->ordered && (p->range_shift != 0 || p->ranges != 0))
		return vb_fail(-EINVAL, "table '%s': range_shift and ranges are for ordered tables",
			       p->name != NULL ? p->name : "");
	if (p->ordered && p->name != NULL && strlen(p->name) > NAME_MOST)
		return vb_fail(-EINVAL, "the name of an ordered table has 1 to %u characters",
			       NAME_MOST);
	if (p->range_shift > SHIFT_MOST)
		return vb_fail(-EINVAL, "table '%s': ranges of 2^%u keys; at most 2^%u are allowed",
			       p->name != NULL ? p->name : "", p->range_shift, SHIFT_MOST);
	return 0;
}

/* ---- the order, at the owner ---- */

/* Tuples that the index does not name are nobody's: an owner has died over them, or they are free. */
static int take_in(struct vb_table *t, struct vb_table_node *n)
{
	uint64_t at = vb_addr_offset(n->header) + sizeof(struct vb_table_header) +
		      n->in_order * t->layout.stride;
	int err = n->order == NULL ? vb_ordered_open(0, &n->order) : 0;

	for (; err == 0 && n->in_order < n->index.header->tuples; at += t->layout.stride) {
		uint64_t key = vb_tuple_word(n->index.segment + at, VB_TUPLE_KEY_AT);

		if (vb_index_find(&n->index, key) == at)
			err = vb_ordered_insert(n->order, key);
		if (err == 0)
			n->in_order++;
	}
	if (err)
		return vb_fail(err,
			       "node %u has no memory for the order of %" PRIu64
			       " keys of table '%s'",
			       vb_addr_node(n->header), n->index.header->tuples, t->name);
	return 0;
}

int vb_table_order_anew(struct vb_table *t, uint16_t node)
{
	struct vb_table_node *n = &t->node[node];

	if (t->ranges == NULL)
		return 0;
	vb_ordered_close(n->order);
	n->order = NULL;
	n->in_order = 0;
	return take_in(t, n);
}

void vb_table_order_close(struct vb_table_node *n)
{
	vb_ordered_close(n->order);
}

/* Down from `from` to `to`. */
static unsigned list_down(const struct vb_ordered *o, uint64_t from, uint64_t to, uint64_t *keys,
			  unsigned most)
{
	unsigned n = 0;

	while (n < most && vb_ordered_last(o, from, &keys[n]) == 0 && keys[n] >= to) {
		from = keys[n++];
		if (from-- == to)
			break;
	}
	return n;
}

int vb_table_list(struct vb_table *t, uint16_t node, uint64_t from, uint64_t to, uint64_t *keys,
		  unsigned most)
{
	struct vb_table_node *n = &t->node[node];
	int err = take_in(t, n);

	if (err)
		return err;
	return from <= to ? (int)vb_ordered_scan(n->order, from, to, keys, most)
			  : (int)list_down(n->order, from, to, keys, most);
}

/* ---- key maps, at the owner ---- */

void vb_ranges_note(struct vb_table *t, uint16_t node, uint64_t key)
{
	struct vb_table_node *n;
	uint64_t range;

	if (vb_likely(t->ranges == NULL))
		return;
	n = &t->ranges->node[node];
	range = vb_index_find(&n->index, vb_table_range(t, key));
	if (range != 0)
		(void)vb_keymap_add(
			(void *)(n->index.segment + range + t->ranges->layout.beside_at),
			t->range_shift, key);
}

int vb_ranges_put(struct vb_table *t, uint16_t node, uint64_t key)
{
	struct vb_table_node *n = &t->node[node];
	int err = t->ranges != NULL ? take_in(t, n) : 0;

	return err == 0 && t->ranges != NULL ? vb_ordered_insert(n->order, key) : err;
}

void vb_ranges_drop(struct vb_table *t, uint16_t node, uint64_t key)
{
	struct vb_table_node *n;
	uint64_t range;

	if (t->ranges == NULL)
		return;
	/* Where it is not in the order yet, it does not come there either: the index has lost it. */
	if (t->node[node].order != NULL)
		(void)vb_ordered_delete(t->node[node].order, key);
	n = &t->ranges->node[node];
	range = vb_index_find(&n->index, vb_table_range(t, key));
	if (range != 0)
		vb_keymap_drop((void *)(n->index.segment + range + t->ranges->layout.beside_at),
			       t->range_shift, key);
}

int vb_ranges_draw_map(struct vb_table *ranges, uint16_t node, uint64_t key, char *tuple)
{
	const uint64_t end = vb_table_range_end(ranges, key);
	uint64_t *map = (void *)(tuple + ranges->layout.beside_at);
	uint64_t keys[MAP_STEP];
	bool room = true;
	int n;

	/* Of a range whose tuple did not get into the index. */
	memset(map, 0, vb_keymap_bytes(ranges->range_shift));
	do {
		n = vb_table_list(ranges->ranges_of, node, key, end, keys, MAP_STEP);
		for (int i = 0; i < n && room; i++)
			room = vb_keymap_add(map, ranges->range_shift, keys[i]);
		key = n > 0 ? keys[n - 1] + 1 : key;
	} while (n == MAP_STEP && keys[n - 1] != end && room);
	return n < 0 ? n : 0;
}
