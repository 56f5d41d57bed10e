/* SPDX-License-Identifier: Apache-2.0 */
/*
 * YCSB as transactions (RCC and RCBench): each touches some records of one table, reads some of
 * them and writes the others.
 *
 * Which: by a distribution over all records, or, as in RCC, from a small hot area with a
 * stated chance.  Ranks are spread over the keys by a fixed permutation, and key k lives on node k
 * mod nodes, so every node has its share of the hot ones.
 *
 * In every record the last word is made from the first and the key.  Who reads a record that is
 * half of one version and half of another sees it.  Where writes read first (the default), the
 * first word counts them: the sum of all is what the committed transactions have written.
 */
#define VB_LOG_ROOM "load"
#include "workload/loads.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/dist.h"
#include "base/log.h"
#include "task/task.h"
#include "workload/scatter.h"

#define OPS_MAX 1024u
#define HOT_REDRAW                                                                                 \
	64u /* draws of a key that the transaction has already, until the next one is taken */

struct ycsb_opts {
	uint64_t records, record_bytes, ops, span, far, execute_ns;
	double write_ratio, hot_fraction, hot_chance;
	const char *dist, *theta;
	bool blind, no_declare;
};

#define O struct ycsb_opts
static const struct vb_opt table[] = {
	VB_OPT_SIZE(O, records, "records", "100k", 1, 1ull << 36,
		    "records of each node; in all, times --nodes"),
	VB_OPT_SIZE(O, record_bytes, "record-bytes", "64", 8, VB_RECORD_BYTES_MAX,
		    "bytes of a record: 64 and 1024 are what the papers have"),
	VB_OPT_SIZE(O, ops, "ops", "10", 1, OPS_MAX, "records that a transaction touches"),
	VB_OPT_REAL(O, write_ratio, "write-ratio", "0.5", 0, 1, "share of them that it writes"),
	VB_OPT_STRING(O, dist, "dist", "DIST", "zipf:0.99",
		      "which records: uniform, zipf:THETA or powerlaw:ALPHA"),
	VB_OPT_STRING(O, theta, "theta", "THETA", NULL, "short for --dist zipf:THETA"),
	VB_OPT_REAL(
		O, hot_chance, "hot-chance", "0", 0, 1,
		"take a record from the hot area with this chance, and else from the others, both "
		"evenly; --dist does not count then (0: --dist counts)"),
	VB_OPT_REAL(O, hot_fraction, "hot-fraction", "0.001", 0, 1,
		    "the hot area's share of the records, for --hot-chance"),
	VB_OPT_SIZE(
		O, span, "span", "0", 0, 4096,
		"nodes that each transaction touches, its own the first, records taken from them "
		"in turn (0: as the keys fall)"),
	VB_OPT_SIZE(O, far, "far", "0", 0, OPS_MAX,
		    "with --span, how many of the records are on the other nodes, the last ones "
		    "(0: as many as their turns give)"),
	VB_OPT_TIME(O, execute_ns, "execute", "0", 0, 1000000000,
		    "what a transaction computes before it commits, the same time behind each "
		    "record; on sim other clients run meanwhile, elsewhere it takes the core"),
	VB_OPT_FLAG(O, blind, "blind",
		    "writes replace the record and do not look at it (with --no-declare it is not "
		    "even fetched)"),
	VB_LOAD_OPT_NO_DECLARE(O),
	VB_OPT_END};
#undef O

static const char *const types[] = {"read-only", "read-write"};

struct ycsb {
	struct vb_dist dist;       /* over what ranks are drawn from */
	struct vb_scatter scatter; /* rank to key, or to key of a node */
	uint64_t ranks, hot;       /* ranks below hot are the hot area */
};

static const struct ycsb_opts *opts_of(const struct vb_load *l)
{
	return l->options;
}

static int check_far(const struct ycsb_opts *o)
{
	if (o->far == 0)
		return 0;
	if (o->far > o->ops)
		return vb_fail(-EINVAL,
			       "--far %" PRIu64 " of --ops %" PRIu64 ": at most all of them",
			       o->far, o->ops);
	if (o->span < 2 || o->far < o->span - 1)
		return vb_fail(-EINVAL,
			       "--far %" PRIu64 " with --span %" PRIu64
			       ": there is a record on each of the other nodes that --span counts",
			       o->far, o->span);
	return 0;
}

/* Of a transaction, on the node that has the most. */
static uint64_t most_each(const struct ycsb_opts *o)
{
	uint64_t near = o->ops - o->far, others = o->span - 1, far;

	if (o->span == 0)
		return o->ops;
	if (o->far == 0)
		return (o->ops + o->span - 1) / o->span;
	far = (o->far + others - 1) / others;
	return near > far ? near : far;
}

static int check(const struct vb_load *l, const struct ycsb_opts *o)
{
	uint64_t have = o->span != 0 ? o->records : o->records * l->nodes;

	if (o->span > l->nodes)
		return vb_fail(-EINVAL, "--span %" PRIu64 " on %u nodes: at most all of them",
			       o->span, l->nodes);
	if (o->span > o->ops)
		return vb_fail(-EINVAL,
			       "--span %" PRIu64 " with --ops %" PRIu64
			       ": a transaction has a record on each node that it touches",
			       o->span, o->ops);
	if (check_far(o) != 0)
		return -EINVAL;
	if (most_each(o) > have)
		return vb_fail(-EINVAL,
			       "--ops %" PRIu64 ": a transaction touches different records, and "
			       "there are %" PRIu64 " to take them from; use more --records",
			       o->ops, have);
	return 0;
}

static int init(struct vb_load *l)
{
	const struct ycsb_opts *o = opts_of(l);
	struct ycsb *y = calloc(1, sizeof(*y));
	int err = check(l, o);
	char zipf[64];

	l->own = y;
	if (err)
		return err;
	if (y == NULL)
		return vb_fail(-ENOMEM, "no memory for a workload");
	y->ranks = o->span != 0 ? o->records : o->records * l->nodes;
	y->hot = (uint64_t)(o->hot_fraction * (double)y->ranks);
	if (y->hot == 0)
		y->hot = 1;
	vb_scatter_init(&y->scatter, y->ranks);
	l->params[0] = (struct vb_table_params){
		.name = "ycsb",
		.record_bytes = (uint32_t)o->record_bytes,
		.records = o->records * l->nodes,
		.partition = VB_PARTITION_MOD,
	};
	l->n_tables = 1;
	l->items = (uint32_t)o->ops;
	l->record_bytes_max = (uint32_t)o->record_bytes;
	l->bytes = (uint32_t)(o->ops * o->record_bytes);
	if (o->theta != NULL)
		snprintf(zipf, sizeof(zipf), "zipf:%s", o->theta);
	return vb_dist_init(&y->dist, o->theta != NULL ? zipf : o->dist, y->ranks);
}

/* ---- records ---- */

static uint64_t word(const void *record, size_t at)
{
	uint64_t w;

	memcpy(&w, (const char *)record + at, 8);
	return w;
}

static void set_word(void *record, size_t at, uint64_t w)
{
	memcpy((char *)record + at, &w, 8);
}

static void make(const struct vb_load *l, unsigned t, uint64_t key, void *record)
{
	size_t bytes = l->params[t].record_bytes;

	for (size_t at = 8; at + 8 <= bytes; at += 8)
		set_word(record, at, vb_load_mix(l->seed, key, at));
	vb_load_stamp(record, bytes, key, 0);
}

static int fill(struct vb_load *l, uint16_t node, const struct vb_load_progress *progress)
{
	uint64_t done = 0;

	return vb_load_fill_dense(l, 0, node, make, progress, &done);
}

static uint64_t records(const struct vb_load *l)
{
	return l->params[0].records;
}

/* ---- transactions ---- */

static uint64_t draw_rank(const struct ycsb *y, const struct ycsb_opts *o, struct vb_rng *rng)
{
	if (o->hot_chance == 0)
		return vb_dist_next(&y->dist, rng);
	if (y->hot >= y->ranks || vb_rng_chance(rng, o->hot_chance))
		return vb_rng_below(rng, y->hot < y->ranks ? y->hot : y->ranks);
	return y->hot + vb_rng_below(rng, y->ranks - y->hot);
}

/* The node of the i-th record: its own first, then others that follow each other from a random
 * one; with `far` its own for all but so many. */
static uint64_t node_of(const struct vb_load_client *c, const struct ycsb_opts *o, uint64_t i,
			uint64_t turn)
{
	uint64_t others = c->load->nodes - 1u, near = o->ops - o->far, at = i % o->span;

	if (o->far != 0)
		at = i < near ? 0 : 1 + (i - near) % (o->span - 1);
	if (at == 0)
		return c->node;
	return (c->node + 1 + (turn + at - 1) % others) % c->load->nodes;
}

static void next(struct vb_load_client *c)
{
	const struct vb_load *l = c->load;
	const struct ycsb_opts *o = opts_of(l);
	const struct ycsb *y = l->own;
	bool spread = o->span > 1 && o->span < l->nodes;
	uint64_t turn = spread ? vb_rng_below(&c->rng, l->nodes - 1u) : 0;

	c->n = (unsigned)o->ops;
	c->type = 0;
	for (unsigned i = 0; i < c->n; i++) {
		uint64_t node = o->span != 0 ? node_of(c, o, i, turn) : 0, key;
		uint64_t rank = draw_rank(y, o, &c->rng);
		unsigned tries = 0;

		for (;; tries++) {
			key = vb_scatter(&y->scatter, rank);
			if (o->span != 0)
				key = key * l->nodes + node;
			if (!vb_load_has_key(c, i, l->table[0], key))
				break;
			rank = tries < HOT_REDRAW ? draw_rank(y, o, &c->rng)
						  : (rank + 1) % y->ranks;
		}
		c->key[i] = (struct vb_txn_key){
			.table = l->table[0],
			.key = key,
			.write = vb_rng_chance(&c->rng, o->write_ratio),
		};
		if (c->key[i].write)
			c->type = 1;
	}
	c->amount = (int64_t)vb_rng_next(&c->rng);
}

static int torn(struct vb_load_client *c, uint64_t key)
{
	snprintf(c->why, sizeof(c->why),
		 "a transaction has read record %" PRIu64
		 " half as one write left it and half as another",
		 key);
	return -EBADMSG;
}

static int touch(struct vb_load_client *c, struct vb_coordinator *me, const struct vb_txn_key *k)
{
	const struct ycsb_opts *o = opts_of(c->load);
	const void *read;
	void *own;
	int err;

	if (!k->write) {
		err = vb_txn_get(me, k->table, k->key, &read);
		if (err == 0 && !vb_load_is_whole(read, o->record_bytes, k->key))
			err = torn(c, k->key);
		return err;
	}
	if (o->blind) {
		vb_load_stamp(c->record, o->record_bytes, k->key, (uint64_t)c->amount);
		return vb_txn_write(me, k->table, k->key, c->record);
	}
	err = vb_txn_update(me, k->table, k->key, &own);
	if (err)
		return err;
	if (!vb_load_is_whole(own, o->record_bytes, k->key))
		return torn(c, k->key);
	vb_load_stamp(own, o->record_bytes, k->key, word(own, 0) + 1);
	c->change[0]++;
	return 0;
}

/* A client that is told to end meanwhile learns it from its next call. */
static void compute(uint64_t ns)
{
	struct vb_sched *s = vb_sched_self();
	uint64_t until = vb_sched_now(s) + ns;

	if (((struct vb_sched_face *)s)->is_virtual) {
		(void)vb_task_sleep_until(until);
		return;
	}
	while (vb_sched_now(s) < until)
		vb_cpu_relax();
}

static int body(struct vb_load_client *c, struct vb_coordinator *me)
{
	const struct ycsb_opts *o = opts_of(c->load);
	int err = 0;

	c->change[0] = 0;
	if (!o->no_declare)
		err = vb_txn_declare(me, c->key, c->n);
	for (unsigned i = 0; i < c->n && err == 0; i++) {
		err = touch(c, me, &c->key[i]);
		if (err == 0 && o->execute_ns != 0)
			compute(o->execute_ns * (i + 1) / c->n - o->execute_ns * i / c->n);
	}
	return err;
}

/* ---- the end ---- */

static void look(const struct vb_load *l, unsigned t, uint64_t key, const void *record,
		 struct vb_load_sums *sums)
{
	sums->wrong += !vb_load_is_whole(record, l->params[t].record_bytes, key);
	sums->value[0] += word(record, 0);
}

static void count(const struct vb_load *l, uint16_t node, struct vb_load_sums *sums)
{
	vb_load_count_dense(l, 0, node, look, sums);
}

static void moved(const struct vb_load *l, const struct vb_load_sums *sums,
		  int64_t by[VB_LOAD_CHANGES_MAX])
{
	by[0] = opts_of(l)->blind ? 0 : (int64_t)sums->value[0];
}

static int judge(const struct vb_load *l, const struct vb_load_sums *sums, const int64_t *change,
		 char *why, size_t size)
{
	int64_t now[VB_LOAD_CHANGES_MAX];
	int err = vb_load_judge_records(sums, why, size);

	moved(l, sums, now);
	if (err != 0 || opts_of(l)->blind || now[0] == change[0])
		return err;
	snprintf(why, size,
		 "the records have counted %" PRId64
		 " writes, and the committed transactions have made %" PRId64,
		 now[0], change[0]);
	return -EBADMSG;
}

static bool declares(const struct vb_load *l)
{
	return !opts_of(l)->no_declare;
}

const struct vb_load_ops vb_load_ycsb = {
	.name = "ycsb",
	.summary = "reads and writes of some records of one large table, skewed or evenly",
	.options = table,
	.options_bytes = sizeof(struct ycsb_opts),
	.types = types,
	.n_types = VB_ARRAY_SIZE(types),
	.declares = declares,
	.init = init,
	.fill = fill,
	.records = records,
	.next = next,
	.body = body,
	.count = count,
	.moved = moved,
	.judge = judge,
};
