/* SPDX-License-Identifier: Apache-2.0 */
/*
 * YCSB's workload E as transactions (Cooper and others 2010, table 2): scans of a few records from a drawn
 * one on, and inserts between them.
 *
 * At first every even key has a record.  An insert draws an odd one, evenly, and adds it; where an earlier
 * insert has, it replaces the record.  So what is inserted lies everywhere, as YCSB's hashed keys do, and
 * in each interval that a scan has gone through all even keys must be: they are never deleted.  In each record
 * the last word is made from the first and the key (workload/ycsb.c).
 */
#define VB_LOG_ROOM "load"
#include "workload/loads.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/dist.h"
#include "base/log.h"
#include "workload/scatter.h"

#define SCAN_MOST  1000u
#define STEP_EVERY 4096u /* records between two looks at the progress */

struct ycsb_e_opts {
	uint64_t records, record_bytes, scan_most, range_shift;
	double scan_ratio;
	const char *dist;
};

#define O struct ycsb_e_opts
static const struct vb_opt table[] = {
	VB_OPT_SIZE(O, records, "records", "100k", 1, 1ull << 35,
		    "records of each node at first; there is room for as many again"),
	VB_OPT_SIZE(O, record_bytes, "record-bytes", "64", 8, VB_RECORD_BYTES_MAX,
		    "bytes of a record; YCSB's have 1000"),
	VB_OPT_SIZE(O, scan_most, "scan-max", "100", 1, SCAN_MOST,
		    "a scan takes 1 to so many records, evenly"),
	VB_OPT_REAL(O, scan_ratio, "scan-ratio", "0.95", 0, 1,
		    "share of the transactions that scan; the others insert"),
	VB_OPT_STRING(O, dist, "dist", "DIST", "zipf:0.99",
		      "from which record on: uniform, zipf:THETA or powerlaw:ALPHA"),
	VB_OPT_SIZE(O, range_shift, "range-shift", "6", 1, 32,
		    "a range of the table has 2^N keys, of which half have a record at first"),
	VB_OPT_END};
#undef O

enum { SCAN, INSERT };
static const char *const types[] = {[SCAN] = "scan", [INSERT] = "insert"};

struct ycsb_e {
	struct vb_dist dist;
	struct vb_scatter scatter; /* rank to record */
};

static const struct ycsb_e_opts *opts_of(const struct vb_load *l)
{
	return l->options;
}

static uint64_t keys_of(const struct vb_load *l)
{
	return 2 * opts_of(l)->records * l->nodes;
}

/* Of a scan: keys, each with a record or without, of twice as many as it takes; and ranges, of which it reads up
 * to as many again ahead, and eight. */
#define ITEMS_MOST (2 * SCAN_MOST + 2 * (SCAN_MOST + 2) + 8)
_Static_assert(ITEMS_MOST <= VB_TXN_ITEMS_MAX &&
		       (uint64_t)ITEMS_MOST * VB_RECORD_BYTES_MAX <= 256u << 20,
	       "what a transaction may touch");
static uint64_t items_of(const struct ycsb_e_opts *o)
{
	uint64_t keys = 2 * o->scan_most;

	return keys + 2 * ((keys >> o->range_shift) + 2) + 8;
}

static int init(struct vb_load *l)
{
	const struct ycsb_e_opts *o = opts_of(l);
	struct ycsb_e *y = calloc(1, sizeof(*y));

	l->own = y;
	if (y == NULL)
		return vb_fail(-ENOMEM, "no memory for a workload");
	vb_scatter_init(&y->scatter, o->records * l->nodes);
	l->params[0] = (struct vb_table_params){
		.name = "ycsb_e",
		.record_bytes = (uint32_t)o->record_bytes,
		.records = keys_of(l),
		.partition = VB_PARTITION_MOD,
		.ordered = true,
		.range_shift = (uint32_t)o->range_shift,
		.ranges = (keys_of(l) >> o->range_shift) + 1,
	};
	/* Nodes take ranges in turn: the last turn need not come round. */
	l->params[0].records += (uint64_t)l->nodes << o->range_shift;
	l->n_tables = 1;
	l->items = (uint32_t)items_of(o);
	l->record_bytes_max = (uint32_t)o->record_bytes;
	l->bytes = (uint32_t)(items_of(o) * o->record_bytes);
	return vb_dist_init(&y->dist, o->dist, o->records * l->nodes);
}

/* ---- records ---- */

static int fill(struct vb_load *l, uint16_t node, const struct vb_load_progress *progress)
{
	const struct ycsb_e_opts *o = opts_of(l);
	unsigned char *record = calloc(1, o->record_bytes + 8);
	uint64_t done = 0;
	int err = 0;

	if (record == NULL)
		return vb_fail(-ENOMEM, "no memory for a record");
	for (uint64_t key = 0; key < keys_of(l) && err == 0; key += 2) {
		if (vb_table_node(l->table[0], key) != node)
			continue;
		vb_load_stamp(record, o->record_bytes, key, 0);
		err = vb_table_load(l->table[0], key, record);
		if (++done % STEP_EVERY == 0 && !progress->step(progress->ctx, done))
			err = -EINTR;
	}
	free(record);
	return err;
}

static uint64_t records(const struct vb_load *l)
{
	return opts_of(l)->records * l->nodes;
}

/* ---- transactions ---- */

static void next(struct vb_load_client *c)
{
	const struct vb_load *l = c->load;
	const struct ycsb_e_opts *o = opts_of(l);
	const struct ycsb_e *y = l->own;
	uint64_t key = 2 * vb_scatter(&y->scatter, vb_dist_next(&y->dist, &c->rng));

	c->type = vb_rng_chance(&c->rng, o->scan_ratio) ? SCAN : INSERT;
	c->amount = (int64_t)(1 + vb_rng_below(&c->rng, o->scan_most));
	if (c->type == INSERT) {
		key = 2 * vb_rng_below(&c->rng, records(l)) + 1;
		c->amount = (int64_t)vb_rng_next(&c->rng);
	}
	c->n = 1;
	c->key[0] =
		(struct vb_txn_key){.table = l->table[0], .key = key, .write = c->type == INSERT};
}

static int wrong(struct vb_load_client *c, uint64_t key, const char *what)
{
	snprintf(c->why, sizeof(c->why), "a scan from key %" PRIu64 " on %s key %" PRIu64,
		 c->key[0].key, what, key);
	return -EBADMSG;
}

/* In order, each whole, and all that are always there. */
static int look_at(struct vb_load_client *c, const struct vb_txn_row *row, unsigned n,
		   unsigned most)
{
	const size_t bytes = opts_of(c->load)->record_bytes;
	uint64_t due = c->key[0].key;

	for (unsigned i = 0; i < n; i++) {
		if (row[i].key < due)
			return wrong(c, row[i].key, "comes once more to");
		/* The next even key. */
		if (row[i].key > due + due % 2)
			return wrong(c, due + due % 2, "leaves out");
		if (!vb_load_is_whole(row[i].record, bytes, row[i].key))
			return wrong(c, row[i].key,
				     "has read, half of one write, half of another,");
		due = row[i].key + 1;
	}
	if (n < most && due + due % 2 < keys_of(c->load))
		return wrong(c, due, "ends before");
	return 0;
}

static int scan(struct vb_load_client *c, struct vb_coordinator *me)
{
	const struct vb_txn_range range = {.least = c->key[0].key, .most = keys_of(c->load) - 1};
	struct vb_txn_row *row = c->own;
	unsigned most = (unsigned)c->amount, n = 0;
	int err = vb_txn_scan(me, c->key[0].table, &range, row, most, &n);

	return err ? err : look_at(c, row, n, most);
}

static int insert(struct vb_load_client *c, struct vb_coordinator *me)
{
	const struct vb_txn_key *k = &c->key[0];
	int err;

	vb_load_stamp(c->record, opts_of(c->load)->record_bytes, k->key, (uint64_t)c->amount);
	err = vb_txn_insert(me, k->table, k->key, c->record);
	c->change[0] = err == 0;
	return err == -EEXIST ? vb_txn_write(me, k->table, k->key, c->record) : err;
}

static int body(struct vb_load_client *c, struct vb_coordinator *me)
{
	c->change[0] = 0;
	return c->type == SCAN ? scan(c, me) : insert(c, me);
}

/* ---- the end ---- */

static void count(const struct vb_load *l, uint16_t node, struct vb_load_sums *sums)
{
	for (uint64_t key = 0; key < keys_of(l); key++) {
		const void *record;

		if (vb_table_node(l->table[0], key) != node)
			continue;
		record = vb_load_record(l, 0, key, sums);
		if (record != NULL)
			sums->wrong += !vb_load_is_whole(record, opts_of(l)->record_bytes, key);
		if (record != NULL && key % 2 == 1)
			sums->value[0]++;
		if (record == NULL && key % 2 == 0)
			sums->absent++;
	}
}

static void moved(const struct vb_load *l, const struct vb_load_sums *sums,
		  int64_t by[VB_LOAD_CHANGES_MAX])
{
	(void)l;
	by[0] = (int64_t)sums->value[0];
}

static int judge(const struct vb_load *l, const struct vb_load_sums *sums, const int64_t *change,
		 char *why, size_t size)
{
	int64_t now[VB_LOAD_CHANGES_MAX];
	int err = vb_load_judge_records(sums, why, size);

	moved(l, sums, now);
	if (err != 0 || now[0] == change[0])
		return err;
	snprintf(why, size,
		 "there are %" PRId64 " records more than at first, and the committed transactions "
		 "have inserted %" PRId64,
		 now[0], change[0]);
	return -EBADMSG;
}

const struct vb_load_ops vb_load_ycsb_e = {
	.name = "ycsb-e",
	.summary = "scans of some records in order, and inserts between them",
	.options = table,
	.options_bytes = sizeof(struct ycsb_e_opts),
	.types = types,
	.n_types = VB_ARRAY_SIZE(types),
	.client_bytes = SCAN_MOST * sizeof(struct vb_txn_row),
	.init = init,
	.fill = fill,
	.records = records,
	.next = next,
	.body = body,
	.count = count,
	.moved = moved,
	.judge = judge,
};
