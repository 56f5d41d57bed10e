/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scans: all records of an ordered table whose keys lie in an interval, in order.
 *
 *	scan     1  reads the tuples of the ranges (store/ranges.c), as any tuple
 *	         2  learns which keys there have a tuple: one-sided it READs the ranges' key maps, by RPC it asks
 *	            their nodes (the stage VB_STAGE_SCAN)
 *	         3  reads the tuples of those, as any tuple, and leaves out who has no record
 *	insert   1  writes the range's tuple
 *	         2  reads that there is none and writes that there is one
 *
 * The 2nd step goes as reads go: by RPC if the first of the protocol's stages that fetch does (the hybrid code's
 * digit), else one-sided.  Of a range that has more keys than its map has room for the node is asked anyway.
 *
 * Why there are no phantoms, whatever the protocol.  T scans, W inserts key k.  Before W can read or lock k,
 * k has a tuple, and is in its range's map before anybody can find that.  So either
 *
 *	k had one at T's 2nd step    T reads it: who of the two comes first is decided there, as for any key
 *	k had none                   W had not read k yet, so T's 1st step was before W's commit.  T has read a
 *	                             version of the range that W replaces: W comes after T, or one of them ends
 *
 * and in the second T reads that there is no k, which is so before W.  It takes the 1st step before the 2nd: the
 * other way round W might do all that it does between them, and T would have W's version of the range and not k.
 * That is also why no READ brings a range's tuple and the map behind it at once: its parts may come in any order.
 * For this W may take the range and k in any order, since neither is W's before its commit.  It takes them as T
 * does: the other way round W holds k and waits for the range, and T holds the range and waits for k.
 *
 * A delete does not touch the range: the key stays in the order, so who could have found its record finds its
 * tuple.  So does the key of an insert that was aborted.  It leaves the order with its tuple, when it had no record
 * for longer than anybody lives who may still commit (store/places.h).  A range's tuple never has a record.  So at
 * repeatable read, and at read committed, its lock is as short as that of any key that is looked for in vain,
 * and phantoms are what these levels allow.  At a snapshot the 1st step is left out: whoever writes what is
 * in the snapshot had all its locks, and so its keys their tuples, before the transaction began (snapshot.c).
 *
 * What a call takes: ranges one after the other, first one and then up to twice as many each time, but no more
 * than fill the caller's room if there is as much in them as in those before; all of them with one round of each
 * step.  Of their keys as many at a time as there is room for, and up to eight more where some had no record.  A
 * range that has more keys than fit in an answer is asked again, behind the last.
 */
#define VB_LOG_ROOM "txn"
#include <inttypes.h>

#include "base/log.h"
#include "base/sometimes.h"
#include "store/keymap.h"
#include "txn/db.h"

#define ASK_MOST   8u /* ranges at a time */
#define AHEAD_MOST 8u /* keys that there may be no room for */

struct scan {
	struct vb_txn *t;
	struct vb_table *table;
	uint64_t at, end; /* what is left, both included */
	bool down, done;
	struct vb_txn_row *row;
	unsigned room, n;
	unsigned passed; /* ranges */
	unsigned missed; /* keys without a record */
};

/* What is asked: an item for each range, from `key` up or down to `seen`; `lease` comes back as the number of keys,
 * and they in the image. */
struct ask {
	struct vb_item item[ASK_MOST];
	uint64_t keys[ASK_MOST][VB_SCAN_KEYS];
	vb_addr range[ASK_MOST]; /* its tuple */
	unsigned n;
};

/* The keys of each range from one end to the other, or as many as there is room for: at their node. */
void vb_scan_list(uint16_t node, struct vb_item *item, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = &item[i];
		int keys = vb_table_list(it->table, node, it->key, it->seen,
					 (uint64_t *)(void *)it->image, VB_SCAN_KEYS);

		it->status = keys < 0 ? VB_TXN_MISUSE : 0;
		it->lease = keys < 0 ? 0 : (uint64_t)keys;
		memset(it->image + it->lease * 8, 0, (VB_SCAN_KEYS - it->lease) * 8);
	}
}

static uint64_t behind(const struct scan *s, uint64_t key)
{
	return s->down ? key - 1 : key + 1;
}

/* Where the range of the key ends for us. */
static uint64_t range_end(const struct scan *s, uint64_t key)
{
	uint64_t end = s->down ? vb_table_range(s->table, key) : vb_table_range_end(s->table, key);

	if (s->down)
		return end > s->end ? end : s->end;
	return end < s->end ? end : s->end;
}

static void plan(const struct scan *s, struct ask *a, unsigned most)
{
	uint64_t at = s->at, to = at;

	for (a->n = 0; a->n < most && (a->n == 0 || to != s->end); a->n++) {
		at = a->n > 0 ? behind(s, to) : at;
		to = range_end(s, at);
		a->item[a->n] = (struct vb_item){.table = s->table,
						 .key = at,
						 .seen = to,
						 .image = (unsigned char *)a->keys[a->n]};
	}
}

static int read_ranges(const struct scan *s, struct ask *a)
{
	struct vb_item *range[ASK_MOST];
	uint64_t key[ASK_MOST];
	int err;

	_Static_assert(ASK_MOST <= VB_STAGE_ITEMS, "read together");
	for (unsigned i = 0; i < a->n; i++)
		key[i] = vb_table_range(s->table, a->item[i].key);
	err = vb_txn_read_keys(s->t, s->table->ranges, key, a->n, range);
	for (unsigned i = 0; i < a->n && err == 0; i++)
		a->range[i] = range[i]->at;
	return err;
}

/* Those whose place is not known. */
static int find_ranges(const struct scan *s, struct ask *a)
{
	struct vb_item range[ASK_MOST], *find[ASK_MOST];
	int err;

	for (unsigned i = 0; i < a->n; i++) {
		range[i] = (struct vb_item){.table = s->table->ranges,
					    .key = vb_table_range(s->table, a->item[i].key),
					    .at = a->range[i]};
		find[i] = &range[i];
	}
	err = vb_txn_place_items(s->t, find, a->n);
	for (unsigned i = 0; i < a->n; i++)
		a->range[i] = range[i].at;
	return err ? vb_txn_end_by(s->t, VB_TXN_FABRIC, err) : 0;
}

static int ask_owners(const struct scan *s, struct vb_item **item, unsigned n)
{
	vb_call_stage(s->t, VB_STAGE_SCAN, item, n);
	for (unsigned i = 0; i < n; i++) {
		if (item[i]->status != 0)
			return vb_txn_end_by(s->t, (enum vb_txn_cause)item[i]->status,
					     item[i]->status == VB_TXN_MISUSE ? -ENOSPC
									      : s->t->error);
		vb_assert(item[i]->lease <= VB_SCAN_KEYS);
	}
	return 0;
}

struct maps {
	uint64_t key[ASK_MOST]; /* whose they are */
	uint64_t map[ASK_MOST][VB_KEYMAP_WORDS];
};

/* with_key: who has read no tuple there has to know whether it is the range's. */
static int read_them(const struct scan *s, const struct ask *a, struct maps *m, bool with_key)
{
	const struct vb_table *ranges = s->table->ranges;
	struct vb_acc *acc = &vb_txn_lane(s->t->me)->acc;

	for (unsigned i = 0; i < a->n; i++) {
		vb_acc_read(acc, VB_INDEX, a->range[i] + ranges->layout.beside_at, m->map[i],
			    vb_keymap_bytes(ranges->range_shift));
		if (with_key)
			vb_acc_read(acc, VB_INDEX, a->range[i] + VB_TUPLE_KEY_AT, &m->key[i], 8);
	}
	return vb_acc_go(acc);
}

/* Where a range was is what the cache says, which may be wrong.  True: some have to be looked for. */
static bool forget_others(const struct scan *s, struct ask *a, const struct maps *m)
{
	struct vb_table *ranges = s->table->ranges;
	bool any = false;

	for (unsigned i = 0; i < a->n; i++) {
		uint64_t key = vb_table_range(s->table, a->item[i].key);

		if (m->key[i] == key)
			continue;
		vb_cache_drop(s->t->me->db->cache, ranges, key);
		a->range[i] = 0;
		any = true;
	}
	return any;
}

/* At a snapshot only the maps are wanted, and no version says that they are the ranges'. */
static int read_maps_alone(const struct scan *s, struct ask *a, struct maps *m)
{
	int err;

	memset(a->range, 0, sizeof(a->range));
	for (bool again = false;; again = true) {
		if (again && vb_txn_in_time(s->t) != 0)
			return vb_txn_fail(s->t);
		err = find_ranges(s, a);
		if (err)
			return err;
		err = read_them(s, a, m, true);
		if (err)
			return vb_txn_end_by(s->t, VB_TXN_FABRIC, err);
		if (!forget_others(s, a, m))
			return 0;
	}
}

static int read_maps(const struct scan *s, struct ask *a, struct maps *m)
{
	int err;

	if (s->t->isolation == VB_SNAPSHOT)
		return read_maps_alone(s, a, m);
	err = read_them(s, a, m, false);
	return err ? vb_txn_end_by(s->t, VB_TXN_FABRIC, err) : 0;
}

/* How many ranges, in `left`, have more keys than their maps. */
static unsigned list_maps(const struct scan *s, struct ask *a, const struct maps *m,
			  struct vb_item **left)
{
	unsigned n_left = 0;

	for (unsigned i = 0; i < a->n; i++) {
		struct vb_item *it = &a->item[i];
		int n = vb_keymap_list(m->map[i], s->table->range_shift, it->key, it->seen,
				       a->keys[i], VB_SCAN_KEYS);

		it->lease = n < 0 ? 0 : (uint64_t)n;
		if (n < 0)
			left[n_left++] = it;
	}
	return n_left;
}

static int learn_keys(const struct scan *s, struct ask *a)
{
	struct vb_item *item[ASK_MOST];
	struct maps m;
	unsigned n;
	int err;

	if (s->t->me->db->fetch_by_rpc) {
		for (unsigned i = 0; i < a->n; i++)
			item[i] = &a->item[i];
		return ask_owners(s, item, a->n);
	}
	err = read_maps(s, a, &m);
	if (err)
		return err;
	n = list_maps(s, a, &m, item);
	VB_SOMETIMES_IF(n > 0, 1000, "txn: a scan asks for keys that a map has no room for");
	return n > 0 ? ask_owners(s, item, n) : 0;
}

static int take_keys(struct scan *s, const uint64_t *keys, unsigned n)
{
	struct vb_item *it[VB_STAGE_ITEMS];
	int err = vb_txn_read_keys(s->t, s->table, keys, n, it);

	for (unsigned i = 0; i < n && err == 0; i++)
		if (!vb_item_has_record(it[i]))
			s->missed++;
		else if (s->n < s->room)
			s->row[s->n++] = (struct vb_txn_row){.key = keys[i],
							     .record = it[i]->image +
								       s->table->layout.record_at};
	return err;
}

/* True in *more: the range has more keys than have come, and must be asked again. */
static int take_range(struct scan *s, const struct vb_item *ask, const uint64_t *keys, bool *more)
{
	unsigned n = (unsigned)ask->lease;
	uint64_t last = ask->seen;
	int err = 0;

	for (unsigned k = 0; k < n && s->n < s->room && err == 0;) {
		unsigned some = n - k < VB_STAGE_ITEMS ? n - k : VB_STAGE_ITEMS;
		unsigned ahead = s->missed < AHEAD_MOST ? s->missed : AHEAD_MOST;

		if (some > s->room - s->n && some > s->room - s->n + ahead)
			some = s->room - s->n + ahead;
		err = take_keys(s, keys + k, some);
		k += some;
	}
	*more = n == VB_SCAN_KEYS && keys[n - 1] != ask->seen;
	if (*more)
		last = keys[n - 1];
	else
		s->passed++;
	s->done = s->n == s->room || last == s->end;
	s->at = s->done ? s->at : behind(s, last);
	return err;
}

/* The keys of the table's records may lie so far apart that there is hardly one in a range. */
static int too_wide(const struct scan *s)
{
	const struct vb_db *db = s->t->me->db;

	vb_error(
		"a scan of table '%s' goes through more than %u ranges of %" PRIu64
		" keys; scan a narrower interval, open the table with a larger range_shift, or the "
		"database with a larger items_max",
		s->table->name, db->items_max, (uint64_t)1 << s->table->range_shift);
	return vb_txn_end_by(s->t, VB_TXN_MISUSE, -E2BIG);
}

/* How many ranges next. */
static unsigned more_ranges(const struct scan *s, unsigned last)
{
	uint64_t most = last < ASK_MOST ? 2 * last : last, fill = most;

	if (s->n > 0)
		fill = ((uint64_t)(s->room - s->n) * s->passed + s->n - 1) / s->n;
	if (fill < 1)
		fill = 1;
	return (unsigned)(fill < most ? fill : most);
}

static int scan(struct scan *s)
{
	struct ask a;
	int err = 0;

	for (unsigned most = 1; !s->done && err == 0; most = more_ranges(s, most)) {
		unsigned left = s->t->me->db->items_max - s->passed;
		bool more = false;

		if (left == 0)
			return too_wide(s);
		plan(s, &a, most < left ? most : left);
		if (s->t->isolation != VB_SNAPSHOT)
			err = read_ranges(s, &a);
		if (err == 0)
			err = learn_keys(s, &a);
		for (unsigned i = 0; i < a.n && !s->done && !more && err == 0; i++)
			err = take_range(s, &a.item[i], a.keys[i], &more);
	}
	return err;
}

int vb_txn_scan(struct vb_coordinator *me, struct vb_table *table, const struct vb_txn_range *range,
		struct vb_txn_row *rows, unsigned room, unsigned *n)
{
	struct scan s;
	int err, ended;

	if (vb_any_null(me, table, range, n) || (room > 0 && vb_any_null(rows)))
		return -EINVAL;
	VB_EP_CALL(call, me->ep);
	if (call.err)
		return call.err;
	err = vb_txn_check_call(&me->txn, table);
	if (err)
		return err;
	if (vb_unlikely(table->ranges == NULL))
		return vb_fail(-EINVAL,
			       "table '%s' is not ordered, and cannot be scanned: open it with "
			       "vb_table_params.ordered",
			       table->name);
	if (vb_unlikely(vb_cc_sequenced(me->db->cc)))
		return vb_fail(-EINVAL,
			       "what a scan finds cannot be declared, as '%s' wants all that is "
			       "touched: read its keys, or take another protocol",
			       me->db->cc->name);
	s = (struct scan){
		.t = &me->txn,
		.table = table,
		.at = range->descending ? range->most : range->least,
		.end = range->descending ? range->least : range->most,
		.down = range->descending,
		.done = room == 0 || range->least > range->most,
		.row = rows,
		.room = room,
	};
	vb_txn_begin_whole(s.t);
	err = scan(&s);
	ended = vb_txn_end_whole(s.t);
	if (err == 0)
		err = ended;
	if (err == 0)
		*n = s.n;
	return err;
}
