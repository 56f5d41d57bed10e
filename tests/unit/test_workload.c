/* SPDX-License-Identifier: Apache-2.0 */
/* Workloads of transactions: what is drawn, and that their sums add up. */
#include "workload_fixture.h"

#include "workload/scatter.h"
#include "workload/tatp.h"

static void assert_distinct(const struct vb_load_client *c)
{
	for (unsigned i = 0; i < c->n; i++) {
		const struct vb_table_params *p = c->load->params;
		unsigned t = 0;

		assert_false(vb_load_has_key(c, i, c->key[i].table, c->key[i].key));
		while (c->load->table[t] != c->key[i].table)
			t++;
		assert_true(c->key[i].key < p[t].records);
	}
}

static void draws_are_distinct(struct fixture *g)
{
	struct vb_load_client c;

	assert_int_equal(vb_load_client_open(&g->load, 1, 9, &c), 0);
	for (unsigned i = 0; i < 2000; i++) {
		g->load.ops->next(&c);
		assert_distinct(&c);
	}
	vb_load_client_close(&c);
}

static void test_scatter(void **state)
{
	static const uint64_t sizes[] = {1, 2, 3, 4, 5, 12, 100, 1000, 4096, 10007};

	(void)state;
	for (size_t k = 0; k < VB_ARRAY_SIZE(sizes); k++) {
		uint64_t n = sizes[k];
		unsigned char *met = calloc(n, 1);
		struct vb_scatter s;

		vb_scatter_init(&s, n);
		for (uint64_t rank = 0; rank < n; rank++) {
			uint64_t at = vb_scatter(&s, rank);

			assert_true(at < n);
			assert_false(met[at]);
			met[at] = 1;
		}
		free(met);
	}
}

static void test_smallbank_mix(void **state)
{
	static const unsigned percent[] = {15, 15, 15, 25, 15, 15};
	struct fixture g;

	(void)state;
	open_fixture(&g, "smallbank", "accounts=1000,hot-accounts=50", 3);
	assert_int_equal(g.load.ops->n_types, 6);
	assert_string_equal(g.load.ops->types[3], "send-payment");
	assert_mix(&g, percent);
	draws_are_distinct(&g);
	close_fixture(&g);
}

static void test_smallbank_rcc(void **state)
{
	static const unsigned percent[] = {17, 17, 17, 16, 17, 16};
	struct fixture g;

	(void)state;
	open_fixture(&g, "smallbank", "accounts=1000,mix=rcc", 3);
	assert_mix(&g, percent);
	close_fixture(&g);
}

static void test_bank_mix(void **state)
{
	static const unsigned percent[] = {70, 30};
	struct fixture g;

	(void)state;
	open_fixture(&g, "bank", "accounts=17,audit-ratio=0.3", 2);
	assert_mix(&g, percent);
	draws_are_distinct(&g);
	close_fixture(&g);
}

/* Writes among the keys of many draws, as a share; how often the hot area was met, as another. */
static void ycsb_shares(struct fixture *g, uint64_t hot, double *writes, double *hits)
{
	struct vb_scatter s;
	struct vb_load_client c;
	unsigned w = 0, h = 0, all = 0;
	uint64_t n = g->load.params[0].records, *rank = calloc(n, sizeof(*rank));

	vb_scatter_init(&s, n);
	for (uint64_t r = 0; r < n; r++)
		rank[vb_scatter(&s, r)] = r;
	assert_int_equal(vb_load_client_open(&g->load, 0, 1, &c), 0);
	for (unsigned i = 0; i < DRAWS / 4; i++) {
		g->load.ops->next(&c);
		for (unsigned k = 0; k < c.n; k++) {
			w += c.key[k].write;
			h += rank[c.key[k].key] < hot;
			all++;
		}
	}
	*writes = (double)w / all;
	*hits = (double)h / all;
	vb_load_client_close(&c);
	free(rank);
}

static void test_ycsb_ratios(void **state)
{
	double writes, hits;
	struct fixture g;

	(void)state;
	open_fixture(&g, "ycsb", "records=10k,ops=4,write-ratio=0.2,dist=uniform", 2);
	ycsb_shares(&g, 2000, &writes, &hits);
	assert_true(writes > 0.19 && writes < 0.21);
	assert_true(hits > 0.09 && hits < 0.11);
	draws_are_distinct(&g);
	close_fixture(&g);
	open_fixture(&g, "ycsb",
		     "records=10k,ops=4,write-ratio=0.8,hot-fraction=0.01,hot-chance=0.4", 2);
	ycsb_shares(&g, 200, &writes, &hits);
	assert_true(writes > 0.79 && writes < 0.81);
	assert_true(hits > 0.38 && hits < 0.42);
	close_fixture(&g);
	open_fixture(&g, "ycsb", "records=10k,ops=1,dist=zipf:0.99", 1);
	ycsb_shares(&g, 100, &writes, &hits);
	/* zeta(100, 0.99) / zeta(10000, 0.99) */
	assert_true(hits > 0.48 && hits < 0.57);
	close_fixture(&g);
}

static void test_ycsb_few_records(void **state)
{
	struct fixture g;

	(void)state;
	/* Every record, whatever the skew. */
	open_fixture(&g, "ycsb", "records=8,ops=16,dist=zipf:1.5", 2);
	draws_are_distinct(&g);
	close_fixture(&g);
	open_fixture(&g, "ycsb", "records=8,ops=16,span=2,hot-chance=0.99,hot-fraction=0.1", 2);
	draws_are_distinct(&g);
	close_fixture(&g);
}

static void test_ycsb_span(void **state)
{
	struct fixture g;
	struct vb_load_client c;

	(void)state;
	open_fixture(&g, "ycsb", "records=1000,ops=7,span=3", 5);
	assert_int_equal(vb_load_client_open(&g.load, 4, 1, &c), 0);
	for (unsigned i = 0; i < 1000; i++) {
		unsigned met[5] = {0}, nodes = 0;

		g.load.ops->next(&c);
		assert_distinct(&c);
		for (unsigned k = 0; k < c.n; k++) {
			unsigned node = (unsigned)(c.key[k].key % 5);

			if (k % 3 == 0)
				assert_int_equal(node, 4);
			nodes += met[node]++ == 0;
		}
		assert_int_equal(nodes, 3);
	}
	vb_load_client_close(&c);
	close_fixture(&g);
}

/* So many far at any span: RCBench, section 6.6.1. */
static void test_ycsb_far(void **state)
{
	static const char *const lists[] = {"records=1000,ops=15,far=14,span=3",
					    "records=1000,ops=15,far=14,span=15",
					    "records=8,ops=15,far=7,span=2"};
	static const unsigned far[] = {14, 14, 7}, span[] = {3, 15, 2};

	(void)state;
	for (size_t k = 0; k < VB_ARRAY_SIZE(lists); k++) {
		struct vb_load_client c;
		struct fixture g;

		open_fixture(&g, "ycsb", lists[k], 15);
		assert_int_equal(vb_load_client_open(&g.load, 4, 1, &c), 0);
		for (unsigned i = 0; i < 500; i++) {
			unsigned met[15] = {0}, nodes = 0;

			g.load.ops->next(&c);
			assert_distinct(&c);
			for (unsigned n = 0; n < c.n; n++)
				nodes += met[c.key[n].key % 15]++ == 0;
			assert_int_equal(met[4], c.n - far[k]);
			assert_int_equal(nodes, span[k]);
		}
		vb_load_client_close(&c);
		close_fixture(&g);
	}
}

/* A transaction that computes takes so much longer, with what is declared and without. */
static void test_ycsb_execute(void **state)
{
	static const char *const lists[] = {"records=100,ops=7,execute=0",
					    "records=100,ops=7,execute=50001ns",
					    "records=100,ops=7,execute=50001ns,no-declare"};
	uint64_t took[VB_ARRAY_SIZE(lists)];

	(void)state;
	for (size_t k = 0; k < VB_ARRAY_SIZE(lists); k++) {
		char why[VB_LOAD_WHY] = "";
		struct fixture g;
		struct ready r;

		open_fixture(&g, "ycsb", lists[k], 2);
		get_ready(&g, &r);
		took[k] = vb_ep_now(r.me->ep);
		for (unsigned i = 0; i < 100; i++)
			do_one(&g, r.me, &r.c, &r.did);
		took[k] = vb_ep_now(r.me->ep) - took[k];
		get_done(&r);
		assert_int_equal(judge_all(&g, r.did.change, why), 0);
		close_fixture(&g);
	}
	assert_in_range(took[1] - took[0], 100 * 50001, 100 * 50001 + 1000);
	assert_true(took[2] > took[1]);
}

static void test_same_seed_same_draws(void **state)
{
	static const char *const names[] = {"ycsb", "ycsb-e", "smallbank", "bank", "tatp"};
	static const char *const list[] = {"records=1000", "records=1000,dist=uniform",
					   "accounts=1000", "accounts=1000", "subscribers=1000"};

	(void)state;
	for (size_t k = 0; k < VB_ARRAY_SIZE(names); k++) {
		struct vb_load_client a, b, other;
		struct fixture g;
		unsigned same = 0;

		open_fixture(&g, names[k], list[k], 2);
		vb_load_client_open(&g.load, 0, 5, &a);
		vb_load_client_open(&g.load, 0, 5, &b);
		vb_load_client_open(&g.load, 0, 6, &other);
		for (unsigned i = 0; i < 1000; i++) {
			g.load.ops->next(&a);
			g.load.ops->next(&b);
			g.load.ops->next(&other);
			assert_int_equal(a.type, b.type);
			assert_int_equal(a.n, b.n);
			assert_int_equal(a.amount, b.amount);
			assert_memory_equal(a.key, b.key, a.n * sizeof(*a.key));
			same += a.n == other.n &&
				memcmp(a.key, other.key, a.n * sizeof(*a.key)) == 0;
		}
		assert_true(same < 10);
		vb_load_client_close(&a);
		vb_load_client_close(&b);
		vb_load_client_close(&other);
		close_fixture(&g);
	}
}

/* What the records hold in the end is what was there and what has been committed; and not anything
 * else. */
static void invariant_of(const char *name, const char *list, bool counts)
{
	struct vb_load_sums sums = {0};
	char why[VB_LOAD_WHY] = "";
	int64_t *change;
	struct fixture g;
	struct did did;

	open_fixture(&g, name, list, 2);
	do_many(&g, 300, &did);
	change = did.change;
	for (uint16_t node = 0; node < 2; node++)
		g.load.ops->count(&g.load, node, &sums);
	assert_int_equal(sums.records, g.load.ops->records(&g.load));
	assert_int_equal(g.load.ops->judge(&g.load, &sums, change, why, sizeof(why)), 0);
	sums.value[0]++;
	change[1]++;
	if (counts) {
		assert_int_equal(g.load.ops->judge(&g.load, &sums, change, why, sizeof(why)),
				 -EBADMSG);
		assert_true(strlen(why) > 20);
	}
	sums.value[0]--;
	sums.locked = 1;
	assert_int_equal(g.load.ops->judge(&g.load, &sums, change, why, sizeof(why)), -EBADMSG);
	close_fixture(&g);
}

static void test_invariants(void **state)
{
	(void)state;
	invariant_of("ycsb", "records=100", true);
	invariant_of("ycsb", "records=100,record-bytes=8,no-declare", true);
	invariant_of("ycsb", "records=100,record-bytes=1024,blind", false);
	invariant_of("smallbank", "accounts=20", true);
	invariant_of("bank", "accounts=10,no-declare", true);
}

/* ---- YCSB E ---- */

static void test_ycsb_e_mix(void **state)
{
	static const unsigned percent[] = {95, 5};
	unsigned shortest = 100, longest = 0;
	struct vb_load_client c;
	struct fixture g;

	(void)state;
	open_fixture(&g, "ycsb-e", "records=1000,scan-max=30", 2);
	assert_mix(&g, percent);
	vb_load_client_open(&g.load, 0, 1, &c);
	for (unsigned i = 0; i < 2000; i++) {
		g.load.ops->next(&c);
		/* Scans begin at records that are always there, inserts go between them. */
		assert_int_equal(c.key[0].key % 2, c.type);
		assert_true(c.key[0].key < 4000);
		if (c.type == 1)
			continue;
		shortest = c.amount < shortest ? (unsigned)c.amount : shortest;
		longest = c.amount > longest ? (unsigned)c.amount : longest;
	}
	assert_int_equal(shortest, 1);
	assert_int_equal(longest, 30);
	vb_load_client_close(&c);
	close_fixture(&g);
}

/* Of key 4. */
static unsigned char *tuple_of(struct fixture *g, const struct vb_tuple_layout *l)
{
	return (unsigned char *)version_of(g, 0, 4) - l->version_at;
}

/* A scan from key 2 on, of ten records. */
static int scan_ten(struct fixture *g, struct ready *r)
{
	int err;

	do
		g->load.ops->next(&r->c);
	while (r->c.type != 0);
	r->c.key[0].key = 2;
	r->c.amount = 10;
	assert_int_equal(vb_txn_begin(r->me), 0);
	err = g->load.ops->body(&r->c, r->me);
	vb_txn_abort(r->me);
	return err;
}

static void test_ycsb_e_invariant(void **state)
{
	char why[VB_LOAD_WHY] = "";
	struct fixture g;
	struct ready r;
	const struct vb_tuple_layout *l;
	unsigned char *record;

	(void)state;
	open_fixture(&g, "ycsb-e", "records=100,scan-max=60,range-shift=3,scan-ratio=0.7", 2);
	l = &g.load.table[0]->layout;
	get_ready(&g, &r);
	for (unsigned i = 0; i < 400; i++)
		do_one(&g, r.me, &r.c, &r.did);
	/* Some were inserted, and some replaced. */
	assert_true(r.did.change[0] > 20);
	assert_true(r.did.change[0] < r.did.done[1]);
	assert_int_equal(judge_all(&g, r.did.change, why), 0);
	r.did.change[0]++;
	assert_int_equal(judge_all(&g, r.did.change, why), -EBADMSG);
	r.did.change[0]--;
	/* A scan sees what is missing, and what is not whole. */
	assert_int_equal(scan_ten(&g, &r), 0);
	*version_of(&g, 0, 4) |= VB_VERSION_ABSENT;
	version_of(&g, 0, 4)[1] = vb_tuple_seal(l, tuple_of(&g, l));
	assert_int_equal(scan_ten(&g, &r), -EBADMSG);
	assert_non_null(strstr(r.c.why, "leaves out key 4"));
	assert_int_equal(judge_all(&g, r.did.change, why), -EBADMSG);
	*version_of(&g, 0, 4) &= ~(uint64_t)VB_VERSION_ABSENT;
	version_of(&g, 0, 4)[1] = vb_tuple_seal(l, tuple_of(&g, l));
	/* Sealed, and not made of its key. */
	record = (unsigned char *)(version_of(&g, 0, 4) + 2);
	record[0] ^= 1;
	version_of(&g, 0, 4)[1] = vb_tuple_seal(l, tuple_of(&g, l));
	assert_int_equal(scan_ten(&g, &r), -EBADMSG);
	assert_non_null(strstr(r.c.why, "key 4"));
	assert_int_equal(judge_all(&g, r.did.change, why), -EBADMSG);
	record[0] ^= 1;
	version_of(&g, 0, 4)[1] = vb_tuple_seal(l, tuple_of(&g, l));
	assert_int_equal(scan_ten(&g, &r), 0);
	assert_int_equal(judge_all(&g, r.did.change, why), 0);
	get_done(&r);
	close_fixture(&g);
}

/* ---- TATP ---- */

static void test_tatp_mix(void **state)
{
	static const unsigned percent[] = {35, 10, 35, 2, 14, 2, 2};
	struct fixture g;

	(void)state;
	open_fixture(&g, "tatp", "subscribers=500", 2);
	assert_int_equal(g.load.ops->n_types, VB_ARRAY_SIZE(percent));
	assert_mix(&g, percent);
	close_fixture(&g);
}

/* Numbers with many ones in binary are met more often: with as many subscribers as values of the
 * mask each bit is one three times out of four. */
static void test_tatp_skew(void **state)
{
	unsigned ones = 0, n = 0;
	struct vb_load_client c;
	struct fixture g;

	(void)state;
	assert_int_equal(open_load(&g, "tatp", "subscribers=32768", 2, 1), 0);
	assert_int_equal(vb_load_client_open(&g.load, 0, 1, &c), 0);
	while (n < DRAWS) {
		g.load.ops->next(&c);
		ones += (c.key[0].key >> 8 & 1) != 0;
		n++;
	}
	assert_in_range(ones * 100 / n, 73, 76);
	vb_load_client_close(&c);
	vb_load_close(&g.load);
}

/* How many find what they need, in thousandths: TATP's own shares, and of get-new-destination what the
 * population gives. */
static void test_tatp_success(void **state)
{
	static const unsigned share[VB_TATP_KINDS] = {1000, 148, 625, 625, 1000, 312, 312};
	char why[VB_LOAD_WHY] = "";
	struct fixture g;
	struct did did;

	(void)state;
	open_fixture(&g, "tatp", "subscribers=5000", 2);
	do_many(&g, 20000, &did);
	for (unsigned t = 0; t < VB_TATP_KINDS; t++) {
		unsigned have = did.done[t] * 1000 / did.drawn[t];
		unsigned slack = share[t] == 1000 ? 0 : did.drawn[t] < 1000 ? 120 : 30;

		assert_in_range(have, share[t] - slack, share[t] + slack);
	}
	assert_int_equal(judge_all(&g, did.change, why), 0);
	close_fixture(&g);
}

/* The first record of a table, as its owner has it; *version_word: of its version. */
static void *first_record(struct fixture *g, unsigned table, uint64_t **version_word)
{
	struct vb_table *t = g->load.table[table];
	vb_addr at = t->node[0].header + sizeof(struct vb_table_header);

	*version_word = vb_local(g->fabric, at + t->layout.version_at, 8);
	return vb_local(g->fabric, at + t->layout.record_at, t->layout.record_bytes);
}

/* One row is gone, one is of another key, one half of an update is lost: each is found. */
static void test_tatp_broken(void **state)
{
	enum { SUBSCRIBER, NUMBER, ACCESS, FACILITY, FORWARDING };
	char why[VB_LOAD_WHY] = "";
	uint64_t *version, *word;
	struct fixture g;
	struct did did;

	(void)state;
	open_fixture(&g, "tatp", "subscribers=100", 2);
	do_many(&g, 300, &did);
	assert_int_equal(judge_all(&g, did.change, why), 0);
	for (unsigned t = SUBSCRIBER; t <= FORWARDING; t++) {
		word = first_record(&g, t, &version);
		*version ^= VB_VERSION_ABSENT;
		assert_int_equal(judge_all(&g, did.change, why), -EBADMSG);
		*version ^= VB_VERSION_ABSENT;
		*word ^= 1;
		assert_int_equal(judge_all(&g, did.change, why), -EBADMSG);
		assert_non_null(strstr(why, "no transaction has written"));
		*word ^= 1;
	}
	/* The last words of facilities are how often they were updated. */
	word = first_record(&g, FACILITY, &version);
	word[2]++;
	assert_int_equal(judge_all(&g, did.change, why), -EBADMSG);
	word[2]--;
	did.change[0]++;
	assert_int_equal(judge_all(&g, did.change, why), -EBADMSG);
	assert_non_null(strstr(why, "call forwarding"));
	did.change[0]--;
	did.change[2]++;
	assert_int_equal(judge_all(&g, did.change, why), -EBADMSG);
	assert_non_null(strstr(why, "special facilities"));
	did.change[2]--;
	assert_int_equal(judge_all(&g, did.change, why), 0);
	close_fixture(&g);
}

static void test_refused(void **state)
{
	(void)state;
	refused("ycsb", "records=4,ops=9", "--ops");
	refused("ycsb", "span=3", "--span");
	refused("ycsb", "ops=1,span=2", "--span");
	refused("ycsb", "far=11,span=2", "--far");
	refused("ycsb", "far=1", "--far");
	refused("ycsb", "dist=normal", "normal");
	refused("ycsb-e", "dist=normal", "normal");
	assert_null(vb_load_find("ycsbb"));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_scatter),
		cmocka_unit_test(test_smallbank_mix),
		cmocka_unit_test(test_smallbank_rcc),
		cmocka_unit_test(test_bank_mix),
		cmocka_unit_test(test_ycsb_ratios),
		cmocka_unit_test(test_ycsb_few_records),
		cmocka_unit_test(test_ycsb_span),
		cmocka_unit_test(test_ycsb_far),
		cmocka_unit_test(test_ycsb_execute),
		cmocka_unit_test(test_same_seed_same_draws),
		cmocka_unit_test(test_invariants),
		cmocka_unit_test(test_tatp_mix),
		cmocka_unit_test(test_tatp_skew),
		cmocka_unit_test(test_tatp_success),
		cmocka_unit_test(test_tatp_broken),
		cmocka_unit_test(test_ycsb_e_mix),
		cmocka_unit_test(test_ycsb_e_invariant),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
