/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checker of isolation on histories drawn at random.  Of small ones, every order of the
 * transactions is tried, and of their snapshots and commits; the anomalies are found a second time
 * by the closure of the relations.  A large one comes from a store that does one transaction at a
 * time.
 */
#include "history_fixture.h"

#define TXNS_MAX 6
#define KEYS     3
#define SMALL    30000u
#define LEVELED  10000u /* at each of the levels */

/* ---- small histories ---- */

struct small {
	struct vb_rng rng;
	unsigned n;
	struct vb_history_txn txn[TXNS_MAX];
	struct vb_history_op ops[TXNS_MAX][2 * KEYS];
	uint64_t chain[KEYS][TXNS_MAX + 1]; /* the versions of a key in their order */
	unsigned writer[KEYS][TXNS_MAX + 1];
	bool absent[KEYS][TXNS_MAX + 1];
	unsigned length[KEYS];
};

static void draw_chain(struct small *w, unsigned key)
{
	uint64_t next = VB_HISTORY_FIRST;

	w->chain[key][0] = vb_rng_below(&w->rng, VB_HISTORY_FIRST);
	w->writer[key][0] = TXNS_MAX;
	w->length[key] = 1;
	for (unsigned i = 0; i < w->n; i++) {
		/* Somewhere in the chain, so that the order of a key is not that of the numbers. */
		unsigned at = 1 + (unsigned)vb_rng_below(&w->rng, w->length[key]);

		if (vb_rng_below(&w->rng, 5) < 3)
			continue;
		for (unsigned k = w->length[key]; k > at; k--) {
			w->chain[key][k] = w->chain[key][k - 1];
			w->writer[key][k] = w->writer[key][k - 1];
		}
		w->chain[key][at] = next++;
		w->writer[key][at] = i;
		w->length[key]++;
	}
}

static void draw_ops(struct small *w, unsigned txn, unsigned key)
{
	struct vb_history_txn *t = &w->txn[txn];
	unsigned read = (unsigned)vb_rng_below(&w->rng, w->length[key]);
	unsigned own = 0;

	for (unsigned i = 1; i < w->length[key]; i++)
		if (w->writer[key][i] == txn)
			own = i;
	if (vb_rng_below(&w->rng, 2) == 0 && (own == 0 || read != own)) {
		w->ops[txn][t->n_ops] = (struct vb_history_op)R(key, w->chain[key][read]);
		w->ops[txn][t->n_ops++].absent = w->absent[key][read];
	}
	if (own > 0) {
		w->ops[txn][t->n_ops] =
			(struct vb_history_op)W(key, w->chain[key][own], w->chain[key][own - 1]);
		w->ops[txn][t->n_ops++].absent = w->absent[key][own];
	}
}

static void draw_small(struct small *w)
{
	w->n = 2 + (unsigned)vb_rng_below(&w->rng, TXNS_MAX - 1);
	for (unsigned k = 0; k < KEYS; k++) {
		draw_chain(w, k);
		for (unsigned i = 0; i < w->length[k]; i++)
			w->absent[k][i] = vb_rng_below(&w->rng, 4) == 0;
	}
	for (unsigned i = 0; i < w->n; i++) {
		uint64_t begin = vb_rng_below(&w->rng, 10);

		w->txn[i] = (struct vb_history_txn){
			.id = i, .begin_ns = begin, .end_ns = begin + vb_rng_below(&w->rng, 8)};
		for (unsigned k = 0; k < KEYS; k++)
			draw_ops(w, i, k);
	}
}

/* Can it run next, after those of `done` have left these versions? */
static bool can_run(const struct small *w, unsigned txn, unsigned done, const uint64_t *version,
		    bool strict)
{
	for (unsigned i = 0; i < w->n && strict; i++)
		if (!(done & 1u << i) && w->txn[i].end_ns < w->txn[txn].begin_ns)
			return false;
	for (unsigned i = 0; i < w->txn[txn].n_ops; i++) {
		const struct vb_history_op *op = &w->ops[txn][i];
		uint64_t expect = op->kind == VB_HISTORY_WRITE ? op->prev : op->version;

		if (version[op->key] != expect)
			return false;
	}
	return true;
}

/* Is there an order in which the rest gives what the history says? */
static bool can_finish(const struct small *w, unsigned done, const uint64_t *version, bool strict)
{
	if (done == (1u << w->n) - 1)
		return true;
	for (unsigned i = 0; i < w->n; i++) {
		uint64_t after[KEYS];

		if (done & 1u << i || !can_run(w, i, done, version, strict))
			continue;
		memcpy(after, version, sizeof(after));
		for (unsigned k = 0; k < w->txn[i].n_ops; k++)
			if (w->ops[i][k].kind == VB_HISTORY_WRITE)
				after[w->ops[i][k].key] = w->ops[i][k].version;
		if (can_finish(w, done | 1u << i, after, strict))
			return true;
	}
	return false;
}

static bool is_serializable(const struct small *w, bool strict)
{
	uint64_t version[KEYS];

	for (unsigned k = 0; k < KEYS; k++)
		version[k] = w->chain[k][0];
	return can_finish(w, 0, version, strict);
}

/* ---- snapshots ---- */

struct instant {
	unsigned begun, done;
	uint64_t version[KEYS];
	uint64_t snapshot[TXNS_MAX][KEYS];
};

/* Does the snapshot hold what it reads, and has nobody replaced since what it replaces? */
static bool can_end(const struct small *w, unsigned txn, const struct instant *at)
{
	for (unsigned i = 0; i < w->txn[txn].n_ops; i++) {
		const struct vb_history_op *op = &w->ops[txn][i];

		if (op->kind == VB_HISTORY_WRITE &&
		    (at->snapshot[txn][op->key] != op->prev || at->version[op->key] != op->prev))
			return false;
	}
	return true;
}

static bool sees_its_reads(const struct small *w, unsigned txn, const uint64_t *version)
{
	for (unsigned i = 0; i < w->txn[txn].n_ops; i++)
		if (w->ops[txn][i].kind == VB_HISTORY_READ &&
		    version[w->ops[txn][i].key] != w->ops[txn][i].version)
			return false;
	return true;
}

/* Is there an order of the rest of snapshots and commits that gives what the history says? */
static bool can_go_on(const struct small *w, const struct instant *at)
{
	if (at->done == (1u << w->n) - 1)
		return true;
	for (unsigned i = 0; i < w->n; i++) {
		struct instant next = *at;

		if (at->done & 1u << i)
			continue;
		if (!(at->begun & 1u << i)) {
			if (!sees_its_reads(w, i, at->version))
				continue;
			next.begun |= 1u << i;
			memcpy(next.snapshot[i], at->version, sizeof(at->version));
		} else {
			if (!can_end(w, i, at))
				continue;
			next.done |= 1u << i;
			for (unsigned k = 0; k < w->txn[i].n_ops; k++)
				if (w->ops[i][k].kind == VB_HISTORY_WRITE)
					next.version[w->ops[i][k].key] = w->ops[i][k].version;
		}
		if (can_go_on(w, &next))
			return true;
	}
	return false;
}

static bool is_snapshot(const struct small *w)
{
	struct instant at = {0};

	for (unsigned k = 0; k < KEYS; k++)
		at.version[k] = w->chain[k][0];
	return can_go_on(w, &at);
}

/* ---- the anomalies of small histories, from their definitions ---- */

struct relations {
	bool ww[TXNS_MAX][TXNS_MAX], wr[TXNS_MAX][TXNS_MAX], rw[TXNS_MAX][TXNS_MAX];
	bool item[TXNS_MAX][TXNS_MAX]; /* of the rw: it had found something */
	bool lost[TXNS_MAX][TXNS_MAX]; /* of the rw: it also wrote the key */
};

static void relate(const struct small *w, struct relations *r)
{
	memset(r, 0, sizeof(*r));
	for (unsigned t = 0; t < w->n; t++) {
		for (unsigned i = 0; i < w->txn[t].n_ops; i++) {
			const struct vb_history_op *op = &w->ops[t][i];
			const unsigned k = (unsigned)op->key;
			unsigned at = 0;

			while (w->chain[k][at] != op->version)
				at++;
			if (op->kind == VB_HISTORY_WRITE) {
				if (at > 1)
					r->ww[w->writer[k][at - 1]][t] = true;
				continue;
			}
			if (at > 0)
				r->wr[w->writer[k][at]][t] = true;
			if (at + 1 < w->length[k] && w->writer[k][at + 1] != t) {
				r->rw[t][w->writer[k][at + 1]] = true;
				r->item[t][w->writer[k][at + 1]] |= !op->absent;
				for (unsigned o = at + 1; o < w->length[k]; o++)
					if (w->writer[k][o] == t)
						r->lost[t][w->writer[k][at + 1]] = true;
			}
		}
	}
}

static void close_relation(bool r[TXNS_MAX][TXNS_MAX])
{
	for (unsigned k = 0; k < TXNS_MAX; k++)
		for (unsigned i = 0; i < TXNS_MAX; i++)
			for (unsigned j = 0; j < TXNS_MAX; j++)
				r[i][j] |= r[i][k] && r[k][j];
}

static bool is_cyclic(bool r[TXNS_MAX][TXNS_MAX])
{
	bool any = false;

	for (unsigned i = 0; i < TXNS_MAX; i++)
		any |= r[i][i];
	return any;
}

/* Each a, or a and then b. */
static void maybe_then(bool out[TXNS_MAX][TXNS_MAX], bool a[TXNS_MAX][TXNS_MAX],
		       bool b[TXNS_MAX][TXNS_MAX])
{
	for (unsigned i = 0; i < TXNS_MAX; i++)
		for (unsigned j = 0; j < TXNS_MAX; j++) {
			out[i][j] = a[i][j];
			for (unsigned k = 0; k < TXNS_MAX; k++)
				out[i][j] |= a[i][k] && b[k][j];
		}
}

static void either(bool out[TXNS_MAX][TXNS_MAX], bool a[TXNS_MAX][TXNS_MAX],
		   bool b[TXNS_MAX][TXNS_MAX])
{
	for (unsigned i = 0; i < TXNS_MAX; i++)
		for (unsigned j = 0; j < TXNS_MAX; j++)
			out[i][j] = a[i][j] || b[i][j];
}

/* The worst that the history shows, by the definitions. */
static enum vb_anomaly name_it(const struct small *w)
{
	struct relations r;
	bool wr[TXNS_MAX][TXNS_MAX], apart[TXNS_MAX][TXNS_MAX], item[TXNS_MAX][TXNS_MAX];
	bool lost = false, single = false, skew = false, all[TXNS_MAX][TXNS_MAX];

	relate(w, &r);
	either(wr, r.ww, r.wr);
	maybe_then(apart, wr, r.rw);
	either(item, wr, r.item);
	either(all, wr, r.rw);
	close_relation(apart);
	close_relation(item);
	close_relation(r.ww);
	close_relation(wr);
	close_relation(all);
	if (is_cyclic(r.ww))
		return VB_ANOMALY_G0;
	if (is_cyclic(wr))
		return VB_ANOMALY_G1C;
	for (unsigned i = 0; i < TXNS_MAX; i++)
		for (unsigned j = 0; j < TXNS_MAX; j++) {
			lost |= r.lost[i][j] && wr[j][i];
			single |= r.rw[i][j] && wr[j][i];
			/* Of a component in which there is a cycle without an absent read. */
			if (r.rw[i][j] && r.rw[j][i])
				for (unsigned k = 0; k < TXNS_MAX; k++)
					skew |= item[k][k] && all[i][k] && all[k][i];
		}
	return lost               ? VB_ANOMALY_LOST_UPDATE
	       : single           ? VB_ANOMALY_G_SINGLE
	       : is_cyclic(apart) ? VB_ANOMALY_LONG_FORK
	       : skew             ? VB_ANOMALY_WRITE_SKEW
	       : is_cyclic(item)  ? VB_ANOMALY_G2
				  : VB_ANOMALY_PHANTOM;
}

static bool holds(const struct small *w, enum vb_level level)
{
	struct relations r;
	bool wr[TXNS_MAX][TXNS_MAX], item[TXNS_MAX][TXNS_MAX];

	if (level >= VB_LEVEL_SERIALIZABLE)
		return is_serializable(w, level == VB_LEVEL_STRICT);
	if (level == VB_LEVEL_SNAPSHOT)
		return is_snapshot(w);
	relate(w, &r);
	either(wr, r.ww, r.wr);
	either(item, wr, r.item);
	close_relation(wr);
	close_relation(item);
	return !is_cyclic(level == VB_LEVEL_READ_COMMITTED ? wr : item);
}

static struct vb_serial_result check_small(const struct small *w, enum vb_level level)
{
	struct vb_history *h = open_history(1 << 14);
	const struct vb_history *const parts[] = {h};
	struct vb_serial_params p = {.parts = parts, .n_parts = 1, .level = level};
	struct vb_serial_result r;

	for (unsigned i = 0; i < w->n; i++)
		add_txn(h, w->txn[i], w->ops[i], w->txn[i].n_ops);
	assert_int_equal(vb_serial_check(&p, &r), 0);
	vb_history_close(h);
	return r;
}

static void test_small_by_all_orders(void **state)
{
	unsigned named[VB_ANOMALIES] = {0};
	struct small w;

	vb_rng_seed(&w.rng, 1, 0);
	for (unsigned i = 0; i < SMALL; i++) {
		struct vb_serial_result plain, strict;
		enum vb_anomaly expect = VB_ANOMALY_NONE;

		draw_small(&w);
		plain = check_small(&w, VB_LEVEL_SERIALIZABLE);
		strict = check_small(&w, VB_LEVEL_STRICT);
		if (!is_serializable(&w, false))
			expect = name_it(&w);
		if (plain.first != expect)
			fail_msg("history %u: %s, not %s\n%s", i, vb_anomaly_names[plain.first],
				 vb_anomaly_names[expect], plain.story ? plain.story : "");
		if (expect == VB_ANOMALY_NONE && !is_serializable(&w, true))
			expect = VB_ANOMALY_REAL_TIME;
		if (strict.first != expect)
			fail_msg("history %u, strict: %s, not %s\n%s", i,
				 vb_anomaly_names[strict.first], vb_anomaly_names[expect],
				 strict.story ? strict.story : "");
		named[strict.first]++;
		vb_serial_result_free(&plain);
		vb_serial_result_free(&strict);
	}
	/* A test that draws no such histories would test nothing. */
	assert_true(named[VB_ANOMALY_NONE] >= 20);
	for (int i = VB_ANOMALY_G0; i <= VB_ANOMALY_REAL_TIME; i++)
		if (i != VB_ANOMALY_G1A && i != VB_ANOMALY_G1B)
			assert_true(named[i] >= 20);
}

/* Each level refuses what it must and nothing else; a cycle that it tells is one that it refuses. */
static void test_small_at_every_level(void **state)
{
	unsigned refused[VB_LEVELS] = {0}, only[VB_LEVELS] = {0};
	struct small w;

	vb_rng_seed(&w.rng, 2, 0);
	for (unsigned i = 0; i < LEVELED; i++) {
		bool held = true;

		draw_small(&w);
		for (int l = VB_LEVEL_READ_COMMITTED; l < VB_LEVELS; l++) {
			struct vb_serial_result r = check_small(&w, (enum vb_level)l);
			const bool good = holds(&w, (enum vb_level)l);

			if ((r.first == VB_ANOMALY_NONE) != good)
				fail_msg("history %u: %s %s, but is told %s\n%s", i,
					 vb_level_names[l], good ? "holds" : "does not hold",
					 vb_anomaly_names[r.first], r.story ? r.story : "");
			refused[l] += !good;
			only[l] += held && !good;
			held = good;
			vb_serial_result_free(&r);
		}
	}
	for (int l = VB_LEVEL_READ_COMMITTED; l < VB_LEVELS; l++)
		assert_true(refused[l] >= 20 && refused[l] <= LEVELED - 20 && only[l] >= 20);
}

/* ---- large histories ---- */

#define PARTS 4

static void check_store(const struct store_params *p, bool strict)
{
	const uint64_t bytes = p->txns * (64 + p->ops * sizeof(struct vb_history_op));
	struct vb_history *parts[PARTS];
	struct vb_serial_result r;

	for (unsigned i = 0; i < p->parts; i++)
		parts[i] = open_history(bytes);
	store_run(p, parts);
	r = check_parts((const struct vb_history *const *)parts, p->parts, strict);
	if (r.story != NULL)
		fail_msg("%s", r.story);
	assert_int_equal(r.first, VB_ANOMALY_NONE);
	assert_int_equal(r.txns, p->txns);
	assert_int_equal(r.committed + r.aborted + r.unknown, p->txns);
	assert_int_equal(r.reads + r.writes, p->txns * p->ops);
	if (p->clean)
		assert_int_equal(r.committed, p->txns);
	else
		assert_true(r.aborted > 0 && r.unknown > 0);
	assert_true(r.keys <= p->keys);
	vb_serial_result_free(&r);
	for (unsigned i = 0; i < p->parts; i++)
		vb_history_close(parts[i]);
}

static void test_store_with_few_keys(void **state)
{
	for (uint64_t seed = 1; seed <= 200; seed++) {
		struct store_params p = {
			.txns = 200, .keys = 1 + seed % 7, .ops = 4, .parts = PARTS, .seed = seed};

		check_store(&p, true);
		p.clean = true;
		check_store(&p, false);
	}
}

static void test_large(void **state)
{
	struct store_params p = {
		.txns = 200000, .keys = 20000, .ops = 16, .parts = PARTS, .seed = 1};

	check_store(&p, true);
}

/* One stale read in a large history that is right otherwise. */
static void test_needle(void **state)
{
	struct store_params p = {
		.txns = 100000, .keys = 1000, .ops = 8, .parts = 1, .seed = 3, .clean = true};
	struct vb_history *h = open_history(64 << 20);
	const struct vb_history *const parts[] = {h};
	struct vb_serial_result r;

	store_run(&p, &h);
	/* The loader's version has been replaced long ago: it may come first, but not in real
	 * time. */
	TXN_AT(h, 999999, VB_HISTORY_COMMITTED, 1ull << 40, 1ull << 41, R(1, 0));
	r = check_parts(parts, 1, false);
	assert_int_equal(r.first, VB_ANOMALY_NONE);
	vb_serial_result_free(&r);
	r = check_parts(parts, 1, true);
	assert_int_equal(r.first, VB_ANOMALY_REAL_TIME);
	assert_int_equal(r.found[VB_ANOMALY_REAL_TIME], 1);
	assert_non_null(strstr(r.story, "T999999"));
	vb_serial_result_free(&r);
	vb_history_close(h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_small_by_all_orders),
		cmocka_unit_test(test_small_at_every_level),
		cmocka_unit_test(test_store_with_few_keys),
		cmocka_unit_test(test_large),
		cmocka_unit_test(test_needle),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
