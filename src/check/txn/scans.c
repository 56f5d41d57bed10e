/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scans of an ordered table, the line, in which keys come and go near its end, which moves on: so there are
 * always keys that nobody has touched.
 *
 * What the engine did not find has no item, and would be in no history.  But a key that has no item had no
 * tuple when its node was asked: of each such key in what a scan has gone through the history says that it
 * was read, and never had been there (or was gone, where keys lose their places: places.c).  An insert that a scan should have known of is then an edge, as it
 * is for who looks for the key by name.
 */
#include <inttypes.h>

#include "check/txn/world.h"

#define CALLS_MAX 3u
#define WIDTH_MAX 10u
#define BEHIND    6u /* the end of the line it begins, and what it does goes so far beyond it */
#define BEYOND    4u
#define KEY_BITS  12

_Static_assert(TXN_LINE_KEYS <= 1u << KEY_BITS, "in the record");

int txn_line_open(struct txn_world *w)
{
	const struct vb_txn_draw *d = w->d;
	const struct vb_table_params line = {
		.name = "line",
		.record_bytes = d->record_bytes,
		.records = d->scarce ? TXN_LINE_SCARCE : TXN_LINE_KEYS,
		.ordered = true,
		.range_shift = d->line_shift,
		.ranges = (TXN_LINE_KEYS >> d->line_shift) + 1,
	};
	unsigned char record[256];
	int err = 0;

	if (d->p_scan == 0)
		return 0;
	err = vb_table_open(w->db, &line, &w->line);
	if (err == 0 && d->scarce)
		err = txn_places_open(w);
	for (uint64_t k = 0; k < 2 * BEHIND && err == 0; k += 3) {
		txn_record_fill(w, record, (int64_t)k);
		err = vb_table_load(w->line, k, record);
	}
	w->line_end = 2 * BEHIND;
	return err;
}

/* ---- what a scan has given ---- */

static const struct vb_item *item_of(const struct vb_txn *t, const struct vb_table *table,
				     uint64_t key)
{
	for (unsigned i = t->n; i-- > 0;)
		if (t->item[i].table == table && t->item[i].key == key)
			return &t->item[i];
	return NULL;
}

/* What the transaction itself has made of the key: 1, there; -1, gone; 0: nothing. */
static int own(const struct txn_slot *s, uint64_t key)
{
	const struct vb_item *it = item_of(&s->me->txn, s->w->line, key);

	if (it == NULL || !(it->flags & VB_ITEM_WRITE))
		return 0;
	return s->own[key % TXN_OWN_MAX];
}

static void judge_row(struct txn_slot *s, const struct vb_txn_range *r,
		      const struct vb_txn_row *row, unsigned i)
{
	int64_t money = txn_money_in(s, "line", row[i].key, row[i].record);

	if (row[i].key < r->least || row[i].key > r->most ||
	    (i > 0 &&
	     (r->descending ? row[i].key >= row[i - 1].key : row[i].key <= row[i - 1].key)))
		txn_found(s->w, VB_TXN_RULE_CONTENTS,
			  "coordinator %u: a scan gives line/%" PRIu64 " out of its turn", s->index,
			  row[i].key);
	if ((uint64_t)money % (1u << KEY_BITS) != row[i].key)
		txn_found(s->w, VB_TXN_RULE_CONTENTS,
			  "coordinator %u: a scan gives line/%" PRIu64 " the record of %" PRIu64,
			  s->index, row[i].key, (uint64_t)money % (1u << KEY_BITS));
}

static bool gives(const struct vb_txn_row *row, unsigned n, uint64_t key)
{
	for (unsigned i = 0; i < n; i++)
		if (row[i].key == key)
			return true;
	return false;
}

/* Of what it went through, each key that the transaction has put there or taken away is, or is not. */
static void judge_own(struct txn_slot *s, const struct vb_txn_range *r,
		      const struct vb_txn_row *row, unsigned n)
{
	for (uint64_t k = r->least; k <= r->most; k++) {
		int mine = own(s, k);

		if (mine != 0 && gives(row, n, k) != (mine > 0))
			txn_found(s->w, VB_TXN_RULE_CONTENTS,
				  "coordinator %u: a scan finds line/%" PRIu64
				  " %s, which its transaction knows better",
				  s->index, k, mine > 0 ? "gone" : "there");
	}
}

/* ---- calls ---- */

static int scan(struct txn_slot *s, uint64_t base)
{
	struct vb_txn_row row[WIDTH_MAX + 1];
	unsigned room = vb_rng_chance(&s->ways, 0.3) ? 1 + (unsigned)vb_rng_below(&s->ways, 3)
						     : WIDTH_MAX + 1;
	struct vb_txn_range r = {.descending = vb_rng_chance(&s->ways, 0.5)};
	unsigned n = 0;
	int err;

	r.least = base + vb_rng_below(&s->ways, BEHIND);
	r.most = r.least + vb_rng_below(&s->ways, WIDTH_MAX);
	err = vb_txn_scan(s->me, s->w->line, &r, row, room, &n);
	if (err)
		return err;
	for (unsigned i = 0; i < n; i++)
		judge_row(s, &r, row, i);
	if (n == room && r.descending)
		r.least = row[n - 1].key;
	else if (n == room)
		r.most = row[n - 1].key;
	judge_own(s, &r, row, n);
	s->gone_through[s->n_gone_through++] = r;
	s->w->out->scans++;
	return 0;
}

static int put(struct txn_slot *s, uint64_t key)
{
	struct txn_world *w = s->w;
	unsigned char record[256];
	int err;

	txn_record_fill(w, record, (int64_t)(++w->next_money << KEY_BITS | key));
	err = vb_txn_insert(s->me, w->line, key, record);
	if (err == 0)
		s->own[key % TXN_OWN_MAX] = 1;
	if (err == 0 && key > w->line_end && key < TXN_LINE_KEYS - 4 * WIDTH_MAX)
		w->line_end = key;
	return err == -EEXIST ? 0 : err;
}

/* Only what is there: who does not find what it would delete may, under its lock, write that there is none once
 * more.  That is another version, and the same to whoever has scanned, so no range is written for it. */
static int drop(struct txn_slot *s, uint64_t key)
{
	const void *record;
	int err = vb_txn_get(s->me, s->w->line, key, &record);

	if (err == 0)
		err = vb_txn_delete(s->me, s->w->line, key);
	if (err == 0)
		s->own[key % TXN_OWN_MAX] = -1;
	return err == -ENOENT ? 0 : err;
}

int txn_scans(struct txn_slot *s)
{
	unsigned n = 2 + (unsigned)vb_rng_below(&s->ways, CALLS_MAX - 1);
	uint64_t base = s->w->line_end - BEHIND;
	int err = 0;

	_Static_assert(CALLS_MAX <= TXN_SCANS_MAX, "all are noted");
	memset(s->own, 0, sizeof(s->own));
	for (unsigned i = 0; i < n && err == 0; i++) {
		uint64_t key = base + vb_rng_below(&s->ways, BEHIND + BEYOND);

		if (i == 0 || vb_rng_chance(&s->ways, 0.3))
			err = scan(s, base);
		else if (vb_rng_chance(&s->ways, 0.7))
			err = put(s, key);
		else
			err = drop(s, key);
	}
	return err;
}

/* ---- for the history ---- */

unsigned txn_scans_gather(const struct txn_slot *s, const struct vb_txn *t,
			  struct vb_history_op *op, unsigned n, unsigned most)
{
	const unsigned before = n;

	for (unsigned i = 0; i < s->n_gone_through; i++) {
		const struct vb_txn_range *r = &s->gone_through[i];

		for (uint64_t k = r->least; k <= r->most && n < most; k++)
			if (item_of(t, s->w->line, k) == NULL)
				op[n++] = (struct vb_history_op){
					.key = k,
					.version = txn_place_last(s->w, s->w->line, k),
					.table = s->w->line->id,
					.kind = VB_HISTORY_READ,
					.absent = 1,
				};
	}
	s->w->out->unseen += n - before;
	return n;
}
