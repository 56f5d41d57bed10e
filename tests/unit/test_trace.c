/* SPDX-License-Identifier: Apache-2.0 */
/* Lock traces: what is known of them holds, within what a sample of their size can show. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "workload/trace_file.h"

#define DRAWS    200000u
#define OFF_MOST 4.0 /* standard deviations that a share may be off */

struct tally {
	uint64_t txns, locks, by_mode[VB_MODES];
};

struct sample {
	struct vb_trace trace;
	struct tally all, type[VB_TRACE_TYPES_MAX];
	uint64_t highest;
	uint64_t n;
};

static struct vb_trace_params params(unsigned clients, unsigned hosts, unsigned servers)
{
	return (struct vb_trace_params){
		.clients = clients, .hosts = hosts, .servers = servers, .seed = 7};
}

static void count(struct tally *t, const struct vb_trace_txn *txn)
{
	t->txns++;
	t->locks += txn->n;
	for (unsigned i = 0; i < txn->n; i++)
		t->by_mode[txn->lock[i].mode]++;
}

static void must_be_distinct(const struct sample *s, const struct vb_trace_txn *txn)
{
	for (unsigned i = 0; i < txn->n; i++) {
		assert_true(txn->lock[i].lock < s->trace.locks);
		assert_true(s->trace.modes >> txn->lock[i].mode & 1);
		for (unsigned k = 0; k < i; k++)
			assert_true(txn->lock[i].lock != txn->lock[k].lock);
	}
}

static void take_sample(struct sample *s, const char *name, const struct vb_trace_params *p,
			uint64_t n)
{
	struct vb_trace_client *c = calloc(p->clients, sizeof(*c));

	memset(s, 0, sizeof(*s));
	assert_int_equal(vb_trace_open(&s->trace, name, p), 0);
	for (unsigned i = 0; i < p->clients; i++)
		assert_int_equal(vb_trace_client_open(&s->trace, i, &c[i]), 0);
	for (s->n = 0; s->n < n; s->n++) {
		const struct vb_trace_txn *txn = vb_trace_next(&c[s->n % p->clients]);

		if (s->n < 2000)
			must_be_distinct(s, txn);
		count(&s->all, txn);
		count(&s->type[txn->type], txn);
		for (unsigned i = 0; i < txn->n; i++)
			if (txn->lock[i].lock > s->highest)
				s->highest = txn->lock[i].lock;
	}
	for (unsigned i = 0; i < p->clients; i++)
		vb_trace_client_close(&c[i]);
	free(c);
}

/* As many as a share of `of` says, give or take what chance may do. */
static void assert_share(uint64_t seen, uint64_t of, double share)
{
	double sd = sqrt((double)of * share * (1 - share));

	if (fabs((double)seen - (double)of * share) > OFF_MOST * sd)
		fail_msg("%llu of %llu is not a share of %g", (unsigned long long)seen,
			 (unsigned long long)of, share);
}

static void assert_near(double seen, double wanted, double within)
{
	if (fabs(seen - wanted) > within)
		fail_msg("%g is not %g, give or take %g", seen, wanted, within);
}

static double each(const struct tally *t)
{
	return (double)t->locks / (double)t->txns;
}

static double share_of(const struct tally *t, enum vb_mode mode)
{
	return (double)t->by_mode[mode] / (double)t->locks;
}

/* ---- tpcc ---- */

/* 5 hosts of 100 warehouses: the trace of ShiftLock, section 4.4. */
static void test_tpcc_of_seed_001(void **state)
{
	static const double mix[] = {0.45, 0.43, 0.04, 0.04, 0.04};
	const struct vb_trace_params p = params(5, 5, 1);
	struct sample s;

	(void)state;
	take_sample(&s, "tpcc", &p, DRAWS);
	assert_int_equal(s.trace.locks, 60490);
	assert_int_equal(s.highest,
			 60489); /* it has been met: the number is no larger than needed */
	assert_int_equal(s.trace.think_ns, 7000);
	assert_int_equal(s.trace.n_types, 5);
	for (unsigned i = 0; i < 5; i++)
		assert_share(s.type[i].txns, s.n, mix[i]);
	/* Of 30 groups, 10 draws meet 30 (1 - (29/30)^10) = 8.63; one draw's deviation is below
	 * 1.1. */
	assert_near(each(&s.type[0]), 14.62, 0.01 + OFF_MOST * 1.1 / sqrt(0.45 * DRAWS));
	assert_true(s.type[1].locks == 4 * s.type[1].txns);
	assert_true(s.type[2].locks == 3 * s.type[2].txns);
	assert_true(s.type[3].locks == 4 * s.type[3].txns);
	assert_true(s.type[4].locks == 3 * s.type[4].txns);
	assert_near(each(&s.all), 8.70, 0.06);
	assert_near(share_of(&s.all, VB_EXCLUSIVE), 0.865, 0.002);
	assert_true(s.type[1].by_mode[VB_SHARED] == 0);
	assert_true(s.type[2].by_mode[VB_EXCLUSIVE] == 0);
	vb_trace_close(&s.trace);
}

/* A lock's warehouse, where a server has the locks of `per_home` warehouses of each of its
 * homes. */
static unsigned warehouse_of(uint64_t lock, unsigned servers, unsigned per_home)
{
	uint64_t place = lock / servers / 121;

	return (unsigned)((place / per_home * servers + lock % servers) * per_home +
			  place % per_home);
}

/* Payments touch another warehouse in 15 % of the cases; nothing else does, and each warehouse's
 * locks lie on the server of its home. */
static void test_tpcc_homes(void **state)
{
	struct vb_trace_params p = params(32, 16, 16);
	struct vb_trace_client c;
	uint64_t payments = 0, remote = 0;
	struct vb_trace t;

	(void)state;
	p.options = "warehouses=10";
	assert_int_equal(vb_trace_open(&t, "tpcc", &p), 0);
	assert_int_equal(t.locks, 16 * (10 * 121 - 10));
	assert_int_equal(vb_trace_client_open(&t, 21, &c), 0);
	for (unsigned n = 0; n < 50000; n++) {
		const struct vb_trace_txn *txn = vb_trace_next(&c);
		unsigned others = 0;

		assert_int_equal(txn->home / 10, 21 % 16);
		for (unsigned i = 0; i < txn->n; i++)
			others += warehouse_of(txn->lock[i].lock, 16, 10) != txn->home;
		assert_true(others == 0 || (txn->type == 1 && others == 1));
		payments += txn->type == 1;
		remote += others;
	}
	assert_share(remote, payments, 0.15);
	vb_trace_client_close(&c);
	vb_trace_close(&t);
}

/* Scans take the whole table of customers; who touches customers takes it, too. */
static void test_tpcc_scans(void **state)
{
	struct vb_trace_params p = params(4, 2, 1);
	struct vb_trace_client c;
	uint64_t scans = 0;
	struct vb_trace t;

	(void)state;
	p.options = "warehouses=3";
	p.scan_rate = 0.02;
	p.scan_ns = 123456;
	assert_int_equal(vb_trace_open(&t, "tpcc", &p), 0);
	assert_int_equal(t.locks, 2 * 3 * 121 + 2);
	assert_int_equal(t.n_types, 6);
	assert_int_equal(vb_trace_client_open(&t, 1, &c), 0);
	for (unsigned n = 0; n < 50000; n++) {
		const struct vb_trace_txn *txn = vb_trace_next(&c);
		bool scan = strcmp(t.types[txn->type], "table-scan") == 0, table[2] = {0};

		for (unsigned i = 0; i < txn->n; i++) {
			uint64_t lock = txn->lock[i].lock;

			if (lock >= 2 * 3 * 121)
				table[lock - 2 * 3 * 121] = true;
			else if (lock % 121 >= 11 &&
				 lock % 121 < 41) /* a customer: his table before */
				assert_true(table[lock / 121 / 3]);
		}
		scans += scan;
		assert_true(scan == (txn->think_ns == 123456));
		assert_true(!scan || (txn->n == 1 && table[1] && txn->lock[0].mode == VB_SHARED));
	}
	assert_share(scans, 50000, 0.02);
	vb_trace_client_close(&c);
	vb_trace_close(&t);
}

/* ---- tatp ---- */

static void add(struct tally *into, const struct tally *t)
{
	into->txns += t->txns;
	into->locks += t->locks;
	for (unsigned mode = 0; mode < VB_MODES; mode++)
		into->by_mode[mode] += t->by_mode[mode];
}

/*
 * Subscribers are met as unevenly as if there were some 1,850 of them: (1 / 4^2 + 3^2 / 4^2)^-16, a
 * factor for each of 16 bits.  So a share that hangs on whether a row is there is off by up to
 * sqrt(0.625 * 0.375 / 1850) in one population, and by a fifth of that in the mean of 25.
 */
#define POPULATIONS 25u
#define ROW_SD      (sqrt(0.625 * 0.375 / 1850) / 5)

static void test_tatp_of_seed_001(void **state)
{
	/* A row of access information or a special facility is there in 2.5 of 4 cases. */
	static const double drawn[] = {0.35, 0.10 * 0.625, 0.35 * 0.625, 0.02, 0.14, 0.02, 0.02};
	/* What is in the trace of ShiftLock, which is one population. */
	static const double told[] = {0.421, 0.076, 0.264, 0.024, 0.168, 0.024, 0.024};
	struct vb_trace_params p = params(3, 1, 1);
	struct tally all = {0}, type[7] = {{0}};
	double sum = 0, locks = 0;

	(void)state;
	for (unsigned i = 0; i < 7; i++)
		sum += drawn[i];
	for (p.seed = 1; p.seed <= POPULATIONS; p.seed++) {
		struct sample s;

		take_sample(&s, "tatp", &p, 20000);
		assert_int_equal(s.trace.think_ns, 2800);
		assert_true(s.highest > s.trace.locks - 80000 && s.highest < s.trace.locks);
		locks += (double)s.trace.locks / POPULATIONS;
		add(&all, &s.all);
		for (unsigned i = 0; i < 7; i++)
			add(&type[i], &s.type[i]);
		vb_trace_close(&s.trace);
	}
	/* 5 and 100,000 and 80,000, and twice 2.5 rows, whose deviation is 1.118, for each
	 * subscriber. */
	assert_near(locks, 680005, OFF_MOST * 1.118 * sqrt(200000. / POPULATIONS));
	assert_near(locks, 680236, OFF_MOST * 1.118 * sqrt(200000.)); /* theirs, which is one */
	for (unsigned i = 0; i < 7; i++) {
		double share = (double)type[i].txns / (double)all.txns;
		double sd = 0.45 * ROW_SD + sqrt(drawn[i] / (double)all.txns);

		assert_near(share, drawn[i] / sum, OFF_MOST * sd);
		assert_near(share, told[i], 0.0005 + 2 * OFF_MOST * sd);
	}
	assert_near(each(&all), 1.13, 0.01);
	assert_near(share_of(&all, VB_SHARED), 0.806, 0.003);
	assert_true(type[4].by_mode[VB_SHARED] == 0 && type[4].locks == type[4].txns);
	/* The subscriber, all facilities, and in 0.625 / 2 of the cases a row that is new. */
	assert_near(each(&type[5]), 1 + 2.5 + 0.625 / 2, 0.06);
}

/* Where the forwarding must end later, there is less of it. */
static void test_tatp_as_specified(void **state)
{
	struct vb_trace_params p = params(1, 1, 1);
	struct sample traced, specified;

	(void)state;
	take_sample(&traced, "tatp", &p, DRAWS);
	p.options = "spec-destinations";
	take_sample(&specified, "tatp", &p, DRAWS);
	/* See the top of trace_tatp.c for what is there, and TATP for what it asks for. */
	assert_near(each(&traced.type[1]), 1.632, 0.05);
	assert_near(each(&specified.type[1]), 1.368, 0.05);
	vb_trace_close(&traced.trace);
	vb_trace_close(&specified.trace);
}

/* ---- smallbank ---- */

static void test_smallbank(void **state)
{
	static const double mix[] = {0.15, 0.15, 0.15, 0.25, 0.15, 0.15};
	static const unsigned locks[] = {3, 2, 1, 2, 1, 2}, shared[] = {0, 2, 0, 0, 0, 1};
	struct vb_trace_params p = params(1, 1, 1);
	struct vb_trace_client c;
	uint64_t met[100] = {0}, most = 0, hot = 0;
	struct sample s;

	(void)state;
	p.options = "accounts=50,hot-accounts=5,hot-chance=0.8";
	take_sample(&s, "smallbank", &p, DRAWS);
	assert_int_equal(s.trace.locks, 100);
	for (unsigned i = 0; i < 6; i++) {
		assert_share(s.type[i].txns, s.n, mix[i]);
		assert_true(s.type[i].locks == locks[i] * s.type[i].txns);
		assert_true(s.type[i].by_mode[VB_SHARED] == shared[i] * s.type[i].txns);
	}
	/* First customers: 5 of 50 are met in 0.8 + 0.2 * 5/50 of the cases. */
	assert_int_equal(vb_trace_client_open(&s.trace, 0, &c), 0);
	for (unsigned n = 0; n < DRAWS; n++)
		met[vb_trace_next(&c)->lock[0].lock / 2]++;
	for (unsigned k = 0; k < 5; k++, hot += most) {
		unsigned best = 0;

		for (unsigned i = 0; i < 50; i++)
			best = met[i] > met[best] ? i : best;
		most = met[best];
		met[best] = 0;
	}
	assert_share(hot, DRAWS, 0.82);
	vb_trace_client_close(&c);
	vb_trace_close(&s.trace);
}

/* ---- tpcc-rows ---- */

/* Rows as TPC-C says: the means follow from its numbers, and all that is drawn is within bounds. */
static void test_rows_without_levels(void **state)
{
	struct vb_trace_params p = params(64, 4, 1);
	struct sample s;

	(void)state;
	p.options = "levels=rows,isolation=read-committed";
	take_sample(&s, "tpcc-rows", &p, 50000);
	assert_int_equal(s.trace.locks, 4 * (1 + 9 + 72 + 770011));
	/* District, order, new-order, and for each of 5 to 15 items its stock and an order-line. */
	assert_near(each(&s.type[0]), 3 + 2 * 10, 0.2);
	assert_true(s.type[1].locks == 4 * s.type[1].txns);
	assert_true(s.type[2].locks == 0 && s.type[4].locks == 0);
	/* In 10 districts an order, its new-order and its customer, and 10 lines. */
	assert_near(each(&s.type[3]), 10 * (3 + 10), 2);
	assert_true(s.all.by_mode[VB_SHARED] == 0);
	vb_trace_close(&s.trace);
	p.options = "levels=rows";
	take_sample(&s, "tpcc-rows", &p, 50000);
	/* And the warehouse, the customer and the items. */
	assert_near(each(&s.type[0]), 3 + 2 * 10 + 2 + 10, 0.3);
	assert_near(each(&s.type[3]), 10 * (3 + 10 + 1), 2);
	/* The district, the lines of 20 orders, as much stock, less what is met twice, and a line
	 * more. */
	assert_in_range((uint64_t)each(&s.type[4]), 1 + 200 + 180 + 1, 1 + 200 + 200 + 1);
	vb_trace_close(&s.trace);
}

/* Above each lock stand intention locks that permit it, and a transaction takes them first. */
static void test_rows_levels(void **state)
{
	static const char *const options[] = {"levels=full", "levels=table",
					      "levels=full,isolation=repeatable-read"};
	static const unsigned tables[] = {8, 4, 3, 4,
					  3}; /* of each type, serializable, on one host */

	(void)state;
	for (unsigned o = 0; o < 3; o++) {
		struct vb_trace_params p = params(2, 1, 1);
		struct vb_trace_client c;
		struct vb_trace t;

		p.options = options[o];
		assert_int_equal(vb_trace_open(&t, "tpcc-rows", &p), 0);
		assert_int_equal(vb_trace_client_open(&t, 1, &c), 0);
		for (unsigned n = 0; n < 3000; n++) {
			const struct vb_trace_txn *txn = vb_trace_next(&c);
			unsigned at[10] = {0}, n_tables = 0, shared = 0, exclusive = 0;

			for (unsigned i = 0; i < txn->n; i++) {
				const struct vb_trace_lock *l = &txn->lock[i];

				shared += l->mode == VB_SHARED;
				exclusive += l->mode == VB_EXCLUSIVE;
				if (l->lock <
				    82) { /* no row: an intention, after what is above it */
					assert_true(l->mode == VB_INTENT_SHARED ||
						    l->mode == VB_INTENT_EXCLUSIVE);
					at[l->lock < 10 ? l->lock : 0] = i + 1;
					n_tables += l->lock >= 1 && l->lock < 10;
				} else {
					assert_true(l->mode == VB_SHARED ||
						    l->mode == VB_EXCLUSIVE);
				}
			}
			if (o == 2) {
				assert_int_equal(shared, 0);
				continue;
			}
			assert_int_equal(n_tables, tables[txn->type]);
			assert_true((o == 0) == (at[0] != 0));
			assert_true(exclusive > 0 || txn->type == 2 || txn->type == 4);
			assert_true(o != 0 ||
				    txn->lock[0].mode == (exclusive > 0 ? VB_INTENT_EXCLUSIVE
									: VB_INTENT_SHARED));
		}
		vb_trace_client_close(&c);
		vb_trace_close(&t);
	}
}

/* A terminal stays at its warehouse, and the terminals of a home have its warehouses in turn. */
static void test_fixed_warehouses(void **state)
{
	enum { HOSTS = 2, WAREHOUSES = 3, CLIENTS = HOSTS * WAREHOUSES };
	struct vb_trace_params p = params(CLIENTS, HOSTS, HOSTS);
	struct vb_trace_client c;
	struct vb_trace t;
	unsigned at[HOSTS * WAREHOUSES] = {0};

	(void)state;
	p.options = "fixed=yes,warehouses=3";
	assert_int_equal(vb_trace_open(&t, "tpcc-rows", &p), 0);
	for (unsigned i = 0; i < CLIENTS; i++) {
		uint64_t home;

		assert_int_equal(vb_trace_client_open(&t, i, &c), 0);
		home = vb_trace_next(&c)->home;
		assert_int_equal(home / WAREHOUSES, i % HOSTS);
		at[home]++;
		for (unsigned n = 0; n < 200; n++)
			assert_int_equal(vb_trace_next(&c)->home, home);
		vb_trace_client_close(&c);
	}
	for (unsigned w = 0; w < HOSTS * WAREHOUSES; w++)
		assert_int_equal(at[w], 1);
	vb_trace_close(&t);
}

/* ---- what all have in common ---- */

/* The same seed gives the same transactions, another one others; clients draw for themselves. */
static void test_seeds(void **state)
{
	(void)state;
	for (const struct vb_trace_ops *const *ops = vb_traces; *ops != NULL; ops++) {
		struct vb_trace_params p = params(4, 2, 1);
		struct vb_trace t[3];
		struct vb_trace_client c[4];
		unsigned same[4] = {0};

		for (unsigned i = 0; i < 3; i++) {
			p.seed = i < 2 ? 5 : 6;
			assert_int_equal(vb_trace_open(&t[i], (*ops)->name, &p), 0);
			assert_int_equal(vb_trace_client_open(&t[i], 1, &c[i]), 0);
		}
		assert_int_equal(vb_trace_client_open(&t[0], 2, &c[3]), 0);
		for (unsigned n = 0; n < 500; n++) {
			const struct vb_trace_txn *first = vb_trace_next(&c[0]);

			for (unsigned i = 1; i < 4; i++) {
				const struct vb_trace_txn *other = vb_trace_next(&c[i]);

				same[i] += other->type == first->type && other->n == first->n &&
					   memcmp(other->lock, first->lock,
						  first->n * sizeof(first->lock[0])) == 0;
			}
		}
		assert_int_equal(same[1], 500);
		assert_true(same[2] < 50 && same[3] < 50);
		for (unsigned i = 0; i < 4; i++)
			vb_trace_client_close(&c[i]);
		for (unsigned i = 0; i < 3; i++)
			vb_trace_close(&t[i]);
	}
}

/* A lock that is taken twice is taken once, in the mode that does for both. */
static void test_both(void **state)
{
	enum vb_mode s = VB_SHARED, x = VB_EXCLUSIVE, u = VB_UPDATE, is = VB_INTENT_SHARED;
	enum vb_mode ix = VB_INTENT_EXCLUSIVE, six = VB_SHARED_INTENT_EXCLUSIVE;
	const enum vb_mode want[VB_MODES][VB_MODES] = {
		[VB_SHARED] = {s, x, u, s, six, six},
		[VB_EXCLUSIVE] = {x, x, x, x, x, x},
		[VB_UPDATE] = {u, x, u, u, x, x},
		[VB_INTENT_SHARED] = {s, x, u, is, ix, six},
		[VB_INTENT_EXCLUSIVE] = {six, x, x, ix, ix, six},
		[VB_SHARED_INTENT_EXCLUSIVE] = {six, x, x, six, six, six},
	};

	(void)state;
	for (unsigned a = 0; a < VB_MODES; a++)
		for (unsigned b = 0; b < VB_MODES; b++)
			assert_int_equal(vb_trace_both((enum vb_mode)a, (enum vb_mode)b),
					 want[a][b]);
}

static void test_sort(void **state)
{
	static struct vb_trace_lock lock[VB_TRACE_LOCKS_MAX];
	struct vb_trace_txn txn = {.lock = lock};
	struct vb_rng rng;

	(void)state;
	vb_rng_seed(&rng, 1, 2);
	for (txn.n = 0; txn.n <= VB_TRACE_LOCKS_MAX; txn.n = txn.n * 3 / 2 + 1) {
		uint64_t sum = 0;

		for (unsigned i = 0; i < txn.n; i++) {
			lock[i].lock = vb_rng_below(&rng, 1u << 20);
			lock[i].mode = lock[i].lock % 3 == 0 ? VB_SHARED : VB_EXCLUSIVE;
			sum += lock[i].lock;
		}
		vb_trace_sort(&txn);
		for (unsigned i = 0; i < txn.n; i++) {
			assert_true(i == 0 || lock[i - 1].lock <= lock[i].lock);
			assert_true((lock[i].mode == VB_SHARED) == (lock[i].lock % 3 == 0));
			sum -= lock[i].lock;
		}
		assert_true(sum == 0);
	}
}

/* ---- text ---- */

static int read_text(const char *text, struct vb_trace_book **b)
{
	return vb_trace_book_read("some.csv", text, strlen(text), b);
}

static void test_text(void **state)
{
	const char *text =
		"# type 5 pay-ment\n# think_ns 900\n# anything\n10,0,5,7,1\r\n10,0,5,3,2\n\n"
		" 11 , 0 , 2 , 1099511627775 , SIX\n12,0,5,4,U";
	struct vb_trace_book *b;

	(void)state;
	assert_int_equal(read_text(text, &b), 0);
	assert_int_equal(b->n_txns, 3);
	assert_int_equal(b->n_locks, 4);
	assert_int_equal(b->locks, 1ull << 40);
	assert_int_equal(b->locks_max, 2);
	assert_int_equal(b->think_ns, 900);
	/* By number, not as they are met. */
	assert_int_equal(b->n_types, 2);
	assert_string_equal(b->types[0], "type-2");
	assert_string_equal(b->types[1], "pay-ment");
	assert_true(b->type[0] == 1 && b->type[1] == 0 && b->type[2] == 1);
	assert_true(b->lock[0] == (7 << 3 | VB_SHARED) && b->lock[1] == (3 << 3 | VB_EXCLUSIVE));
	assert_int_equal(b->lock[2] & 7, VB_SHARED_INTENT_EXCLUSIVE);
	assert_int_equal(b->modes, 1u << VB_SHARED | 1u << VB_EXCLUSIVE | 1u << VB_UPDATE |
					   1u << VB_SHARED_INTENT_EXCLUSIVE);
	vb_trace_book_close(b);
}

static void test_bad_text(void **state)
{
	static const struct {
		const char *text, *line, *word;
	} bad[] = {
		{"", "some.csv", "no transaction"},
		{"# nothing\n\n", "some.csv", "no transaction"},
		{"1,0,1,5,1\n1,0,1,5\n", "line 2", "fewer than 5 fields"},
		{"1,0,1,5,1,1\n", "line 1", "more than 5 fields"},
		{"1,0,1,5,\n", "line 1", "no mode"},
		{"1,0,1,5,3\n", "line 1", "no mode"},
		{"1,0,1,5,s\n", "line 1", "no mode"},
		{"x,0,1,5,1\n", "line 1", "no number of a transaction"},
		{"1,1,1,5,1\n", "line 1", "no task"},
		{"1,0,-1,5,1\n", "line 1", "no number of a type"},
		{"1,0,1,1099511627776,1\n", "line 1", "no number of a lock"},
		{"1,0,1,0x5,1\n", "line 1", "no number of a lock"},
		{"1,0,1,5,1\n1,0,2,6,1\n", "line 2", "another type"},
		{"# think_ns 9999999999999999999\n1,0,1,5,1\n", "line 1", "more than an hour"},
		{"# think_ns 3600000000001\n1,0,1,5,1\n", "line 1", "more than an hour"},
		{"# type 1 a-name-that-is-too-long-by-a-letter\n1,0,1,5,1\n", "line 1", "no name"},
		{"# type 1 New\n1,0,1,5,1\n", "line 1", "no name"},
		{"1,0,1,5,\x1b[2J\n", "line 1", "'?[2J' is no mode"},
		{"1,0,1,1,1\n2,0,2,1,1\n3,0,3,1,1\n4,0,4,1,1\n5,0,5,1,1\n6,0,6,1,1\n7,0,7,1,1\n"
		 "8,0,8,1,1\n9,0,9,1,1\n",
		 "line 9", "too many"},
	};

	(void)state;
	for (size_t i = 0; i < VB_ARRAY_SIZE(bad); i++) {
		struct vb_trace_book *b;
		char said[256] = "";

		vb_log_capture_begin(said, sizeof(said));
		assert_int_equal(read_text(bad[i].text, &b), -EINVAL);
		vb_log_capture_end();
		if (!strstr(said, bad[i].line) || !strstr(said, bad[i].word))
			fail_msg("text %zu: '%s' says neither '%s' nor '%s'", i, said, bad[i].line,
				 bad[i].word);
	}
}

static void test_too_long(void **state)
{
	char *text, said[256] = "";
	struct vb_trace_book *b;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	(void)state;
	for (unsigned i = 0; i <= VB_TRACE_LOCKS_MAX; i++) {
		fprintf(f, "1,0,1,%u,1\n", i);
		fflush(f);
		if (i == VB_TRACE_LOCKS_MAX - 1) {
			assert_int_equal(read_text(text, &b), 0);
			assert_int_equal(b->locks_max, VB_TRACE_LOCKS_MAX);
			vb_trace_book_close(b);
		}
	}
	fclose(f);
	vb_log_capture_begin(said, sizeof(said));
	assert_int_equal(read_text(text, &b), -EINVAL);
	vb_log_capture_end();
	assert_non_null(strstr(said, "line 4097"));
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tpcc_of_seed_001),
		cmocka_unit_test(test_tpcc_homes),
		cmocka_unit_test(test_tpcc_scans),
		cmocka_unit_test(test_tatp_of_seed_001),
		cmocka_unit_test(test_tatp_as_specified),
		cmocka_unit_test(test_smallbank),
		cmocka_unit_test(test_rows_without_levels),
		cmocka_unit_test(test_rows_levels),
		cmocka_unit_test(test_fixed_warehouses),
		cmocka_unit_test(test_seeds),
		cmocka_unit_test(test_both),
		cmocka_unit_test(test_sort),
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_bad_text),
		cmocka_unit_test(test_too_long),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
