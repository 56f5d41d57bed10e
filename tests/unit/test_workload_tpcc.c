/* SPDX-License-Identifier: Apache-2.0 */
/* TPC-C as transactions: what is drawn, what transactions find, and that every consistency condition
 * is found when it is broken. */
#include "workload_fixture.h"

#include "workload/tpcc_db.h"

#define SMALL "items=100,customers=30,orders=100"

static void *row(struct fixture *g, enum vb_tpcc_table t, uint32_t w, uint32_t d, uint32_t r,
		 uint32_t line)
{
	struct vb_load_sums ignored = {0};
	const void *found =
		vb_load_record(&g->load, t, tpcc_key(&g->load, w, d, r, line), &ignored);

	assert_non_null(found);
	return (void *)found;
}

static bool by_range(const struct fixture *g)
{
	return tpcc_opts_of(&g->load)->ranges;
}

/* The customers of a name, by first name. */
static unsigned of_name(struct fixture *g, uint32_t w, uint32_t d, uint32_t name,
			uint16_t *customer)
{
	struct vb_load_sums ignored = {0};
	const struct tpcc_named *one;
	unsigned n = 0;

	if (!by_range(g)) {
		const struct tpcc_name *named = row(g, TPCC_NAME, w, d, name, 0);

		memcpy(customer, named->customer, named->n * sizeof(customer[0]));
		return named->n;
	}
	for (; n < TPCC_SAME_NAME; n++) {
		one = vb_load_record(&g->load, TPCC_NAME, tpcc_name_key(&g->load, w, d, name, n),
				     &ignored);
		if (one == NULL)
			break;
		customer[n] = one->customer;
	}
	return n;
}

/* ---- drawing ---- */

static void test_mix(void **state)
{
	static const struct {
		const char *list;
		unsigned percent[TPCC_KINDS];
	} mixes[] = {
		{SMALL, {45, 43, 4, 4, 4}},
		{SMALL ",mix=new-order", {100}},
		{SMALL ",mix=payment-new-order", {50, 50}},
	};

	(void)state;
	for (size_t i = 0; i < VB_ARRAY_SIZE(mixes); i++) {
		struct fixture g;

		open_fixture(&g, "tpcc", mixes[i].list, 2);
		assert_mix(&g, mixes[i].percent);
		close_fixture(&g);
	}
}

/* Per mille, of what so many draws of a client at node 1 of 2, with 3 warehouses each, have been. */
struct shares {
	unsigned orders, lines, payments, remote_lines, remote_payments, by_name, rolled_back;
	unsigned lines_each[TPCC_LINES_MOST + 1], home[6];
};

static void draw_many(struct fixture *g, struct shares *s)
{
	const struct tpcc_drawn *d;
	struct vb_load_client c;

	*s = (struct shares){0};
	assert_int_equal(vb_load_client_open(&g->load, 1, 4, &c), 0);
	d = c.own;
	for (unsigned i = 0; i < 4 * DRAWS; i++) {
		g->load.ops->next(&c);
		assert_true(d->district < TPCC_DISTRICTS && d->warehouse < 6);
		s->home[d->warehouse]++;
		if (c.type == TPCC_PAYMENT) {
			s->payments++;
			s->remote_payments += d->customer_warehouse != d->warehouse;
			s->by_name += d->by_name;
			assert_in_range(d->amount, 100, 500000);
		}
		if (c.type != TPCC_NEW_ORDERS)
			continue;
		s->orders++;
		s->lines_each[d->lines]++;
		s->rolled_back += d->line[d->lines - 1].item == 100;
		for (unsigned k = 0; k < d->lines; k++, s->lines++) {
			s->remote_lines += d->line[k].supplier != d->warehouse;
			assert_true(d->line[k].item <= 100);
			assert_in_range(d->line[k].quantity, 1, 10);
		}
	}
	vb_load_client_close(&c);
}

static void test_shares(void **state)
{
	struct fixture g;
	struct shares s;

	(void)state;
	assert_int_equal(open_load(&g, "tpcc", SMALL ",warehouses=3", 2, 7), 0);
	draw_many(&g, &s);
	assert_in_range(s.remote_lines * 1000 / s.lines, 8, 11);
	assert_in_range(s.remote_payments * 1000 / s.payments, 140, 160);
	assert_in_range(s.by_name * 1000 / s.payments, 590, 610);
	assert_in_range(s.rolled_back * 1000 / s.orders, 8, 12);
	for (unsigned n = 0; n <= TPCC_LINES_MOST; n++)
		assert_in_range(s.lines_each[n] * 1000 / s.orders, n < 5 ? 0 : 80, n < 5 ? 0 : 102);
	/* Its node's warehouses only, evenly. */
	for (unsigned w = 0; w < 6; w++)
		assert_in_range(s.home[w] * 1000 / (4 * DRAWS), w % 2 == 0 ? 0 : 320,
				w % 2 == 0 ? 0 : 346);
	vb_load_close(&g.load);
	assert_int_equal(open_load(&g, "tpcc",
				   SMALL ",warehouses=3,fixed,remote-item=1,remote-payment=0,"
					 "rollback=0",
				   2, 7),
			 0);
	draw_many(&g, &s);
	assert_int_equal(s.remote_lines, s.lines);
	assert_int_equal(s.remote_payments, 0);
	assert_int_equal(s.rolled_back, 0);
	assert_int_equal(s.home[4 % 3 * 2 + 1], 4 * DRAWS);
	vb_load_close(&g.load);
}

/* ---- the population ---- */

/* Each customer is under its name, and those of a name are in the order of their first names. */
static void look_at_names(const char *list)
{
	unsigned listed = 0, most = 0;
	struct fixture g;

	open_fixture(&g, "tpcc", list, 1);
	for (uint32_t n = 0; n < 1000; n++) {
		uint16_t customer[TPCC_SAME_NAME];
		unsigned many = of_name(&g, 0, 3, n, customer);
		const struct tpcc_customer *before = NULL;
		char last[24] = "";

		vb_tpcc_last_name(n, last, sizeof(last));
		assert_true(many >= 1);
		for (unsigned i = 0; i < many; i++) {
			const struct tpcc_customer *c =
				row(&g, TPCC_CUSTOMER, 0, 3, customer[i], 0);

			assert_memory_equal(c->last, last, sizeof(c->last));
			if (before != NULL)
				assert_true(memcmp(before->first, c->first, sizeof(c->first)) <= 0);
			before = c;
		}
		listed += many;
		most = many > most ? many : most;
	}
	assert_int_equal(listed, 3000);
	assert_true(most > 10); /* NURand: some names are many's */
	close_fixture(&g);
}

static void test_names(void **state)
{
	(void)state;
	look_at_names("items=100,customers=3000,orders=1");
	look_at_names("items=100,customers=3000,orders=1,ranges");
}

static void test_last_names(void **state)
{
	char name[24];

	(void)state;
	vb_tpcc_last_name(371, name, sizeof(name));
	assert_string_equal(name, "PRICALLYOUGHT");
	vb_tpcc_last_name(40, name, sizeof(name));
	assert_string_equal(name, "BARPRESBAR");
}

/* ---- transactions ---- */

/* Stock-level says how many of the items in the district's last twenty orders are scarce. */
static int64_t scarce(struct fixture *g, const struct tpcc_drawn *d)
{
	const struct tpcc_district *in = row(g, TPCC_DISTRICT, d->warehouse, d->district, 0, 0);
	bool met[1000] = {false};
	int64_t n = 0;

	for (uint32_t o = in->next_order - 20; o < in->next_order; o++) {
		const struct tpcc_order *order =
			row(g, TPCC_ORDER, d->warehouse, d->district, o, 0);

		for (unsigned i = 0; i < order->lines; i++) {
			const struct tpcc_order_line *line =
				row(g, TPCC_ORDER_LINE, d->warehouse, d->district, o, i);
			const struct tpcc_stock *s =
				row(g, TPCC_STOCK, d->warehouse, 0, line->item, 0);

			n += !met[line->item] && s->quantity < d->threshold;
			met[line->item] = true;
		}
	}
	return n;
}

/* Order-status: the customer's balance, and the amounts of his last order. */
static int64_t status(struct fixture *g, const struct tpcc_drawn *d)
{
	const struct tpcc_district *in = row(g, TPCC_DISTRICT, d->warehouse, d->district, 0, 0);
	uint32_t id = d->customer;
	const struct tpcc_customer *c;
	int64_t sum;

	if (d->by_name) {
		uint16_t named[TPCC_SAME_NAME];
		unsigned n = of_name(g, d->warehouse, d->district, d->customer, named);

		id = named[(n + 1) / 2 - 1];
	}
	c = row(g, TPCC_CUSTOMER, d->warehouse, d->district, id, 0);
	sum = c->balance;
	for (uint32_t o = in->next_order - 1; o > 0; o--) {
		struct vb_load_sums ignored = {0};
		const struct tpcc_order *order = vb_load_record(
			&g->load, TPCC_ORDER, tpcc_key(&g->load, d->warehouse, d->district, o, 0),
			&ignored);

		if (order == NULL || order->customer != id)
			continue;
		for (unsigned i = 0; i < order->lines; i++)
			sum += ((struct tpcc_order_line *)row(g, TPCC_ORDER_LINE, d->warehouse,
							      d->district, o, i))
				       ->amount;
		return sum;
	}
	fail_msg("customer %u has no order", id);
	return 0;
}

static void test_answers(void **state)
{
	/* In the third, names are several customers', and of the items few are in an order. */
	static const char *const lists[] = {SMALL,
					    SMALL ",no-declare",
					    "items=1000,customers=1500,orders=100",
					    SMALL ",ranges",
					    SMALL ",ranges,no-declare",
					    "items=1000,customers=1500,orders=100,ranges"};
	char why[VB_LOAD_WHY] = "";

	(void)state;
	for (size_t k = 0; k < VB_ARRAY_SIZE(lists); k++) {
		unsigned levels = 0, states = 0;
		struct ready r;
		struct fixture g;

		open_fixture(&g, "tpcc", lists[k], 2);
		get_ready(&g, &r);
		for (unsigned i = 0; i < 600; i++) {
			do_one(&g, r.me, &r.c, &r.did);
			if (r.c.type == TPCC_STOCK_LEVEL && ++levels)
				assert_int_equal(r.c.seen, scarce(&g, r.c.own));
			if (r.c.type == TPCC_ORDER_STATUS && ++states)
				assert_int_equal(r.c.seen, status(&g, r.c.own));
		}
		get_done(&r);
		assert_true(levels > 5 && states > 5);
		assert_true(r.did.done[TPCC_NEW_ORDERS] < r.did.drawn[TPCC_NEW_ORDERS]);
		assert_int_equal(judge_all(&g, r.did.change, why), 0);
		close_fixture(&g);
	}
}

/* Of those of a name the one in the middle, rounded up, however many there are. */
static void ask_by_name(const char *list)
{
	unsigned met[2] = {0};
	struct tpcc_drawn *d;
	struct fixture g;
	struct ready r;

	open_fixture(&g, "tpcc", list, 2);
	get_ready(&g, &r);
	d = r.c.own;
	do
		g.load.ops->next(&r.c);
	while (r.c.type != TPCC_ORDER_STATUS);
	d->by_name = true;
	for (d->customer = 0; d->customer < 300; d->customer++) {
		uint16_t named[TPCC_SAME_NAME];

		met[of_name(&g, d->warehouse, d->district, d->customer, named) % 2]++;
		assert_int_equal(run_drawn(&g, r.me, &r.c, &r.did), 0);
		assert_int_equal(r.c.seen, status(&g, d));
	}
	assert_true(met[0] > 10 && met[1] > 10);
	get_done(&r);
	close_fixture(&g);
}

static void test_by_name(void **state)
{
	(void)state;
	ask_by_name("items=100,customers=1500,orders=1");
	ask_by_name("items=100,customers=1500,orders=1,ranges");
}

/* A delivery that finds no order waiting in a district leaves it as it is. */
static void deliver_all(const char *list)
{
	char why[VB_LOAD_WHY] = "";
	unsigned deliveries = 0;
	struct ready r;
	struct fixture g;

	open_fixture(&g, "tpcc", list, 2);
	get_ready(&g, &r);
	while (deliveries < 12) {
		g.load.ops->next(&r.c);
		if (r.c.type != TPCC_DELIVER)
			continue;
		run_drawn(&g, r.me, &r.c, &r.did);
		/* Nine orders wait at first. */
		assert_int_equal(r.c.change[2], deliveries < 9 ? 10 : 0);
		deliveries++;
	}
	get_done(&r);
	assert_int_equal(judge_all(&g, r.did.change, why), 0);
	close_fixture(&g);
}

static void test_nothing_to_deliver(void **state)
{
	(void)state;
	deliver_all(SMALL);
	deliver_all(SMALL ",ranges");
}

/* Ordered tables: who knows of no delivery finds the oldest order all the same, behind many that are delivered, and
 * who knows of one that was is not in its way. */
static void test_oldest_by_range(void **state)
{
	char why[VB_LOAD_WHY] = "";
	struct tpcc_db *db;
	struct ready r;
	struct fixture g;

	(void)state;
	open_fixture(&g, "tpcc", "items=100,customers=400,orders=100,ranges", 2);
	db = g.load.own;
	get_ready(&g, &r);
	for (unsigned deliveries = 0; deliveries < 121; deliveries++) {
		do
			g.load.ops->next(&r.c);
		while (r.c.type != TPCC_DELIVER);
		/* The last 120 of 400 wait at first. */
		if (deliveries == 100)
			for (uint32_t i = 0; i < 2 * TPCC_DISTRICTS; i++)
				db->waits_from[i] = 281 + i % 5;
		run_drawn(&g, r.me, &r.c, &r.did);
		assert_int_equal(r.c.change[2], deliveries < 120 ? 10 : 0);
		for (uint32_t i = 0; i < TPCC_DISTRICTS && deliveries < 120; i++)
			assert_int_equal(db->waits_from[i], 282 + deliveries);
	}
	get_done(&r);
	assert_int_equal(judge_all(&g, r.did.change, why), 0);
	close_fixture(&g);
}

/* No rows are added, and what there is to judge holds, or does not. */
static void test_no_inserts(void **state)
{
	char why[VB_LOAD_WHY] = "";
	struct tpcc_warehouse *w;
	struct fixture g;
	struct did did;

	(void)state;
	open_fixture(&g, "tpcc", "items=100,customers=30,orders=3,mix=payment-new-order,no-inserts",
		     2);
	do_many(&g, 500, &did);
	assert_in_range(did.change[0], 200, 300);
	assert_true(did.change[1] > 0);
	for (uint16_t node = 0; node < 2; node++) {
		assert_int_equal(vb_load_present(&g.load, TPCC_ORDER, node), 300);
		assert_int_equal(vb_load_present(&g.load, TPCC_HISTORY, node), 300);
	}
	assert_int_equal(judge_all(&g, did.change, why), 0);
	w = row(&g, TPCC_WAREHOUSE, 0, 0, 0, 0);
	w->ytd++;
	assert_int_equal(judge_all(&g, did.change, why), -EBADMSG);
	w->ytd--;
	did.change[0]++;
	assert_int_equal(judge_all(&g, did.change, why), -EBADMSG);
	close_fixture(&g);
}

static void test_no_room(void **state)
{
	char why[VB_LOAD_WHY] = "";
	struct ready r;
	struct fixture g;
	int err = 0;

	(void)state;
	open_fixture(&g, "tpcc", "items=100,customers=30,orders=3,mix=new-order", 2);
	get_ready(&g, &r);
	for (unsigned i = 0; i < 100 && err != VB_LOAD_FULL; i++) {
		g.load.ops->next(&r.c);
		err = run_drawn(&g, r.me, &r.c, &r.did);
	}
	get_done(&r);
	assert_int_equal(err, VB_LOAD_FULL);
	assert_in_range(r.did.change[0], 3, 30);
	assert_int_equal(judge_all(&g, r.did.change, why), 0);
	close_fixture(&g);
}

/* ---- consistency ---- */

/* Breaks a condition, and none before it, in warehouse 1, where the last nine of thirty orders of a district
 * wait; by = -1 mends it. */
static void break_condition(struct fixture *g, unsigned number, int by)
{
	struct tpcc_warehouse *w = row(g, TPCC_WAREHOUSE, 1, 0, 0, 0);
	struct tpcc_district *d = row(g, TPCC_DISTRICT, 1, 2, 0, 0);
	struct tpcc_district *other = row(g, TPCC_DISTRICT, 1, 3, 0, 0);
	struct tpcc_order *o = row(g, TPCC_ORDER, 1, 2, 27, 0);
	struct tpcc_customer *c = row(g, TPCC_CUSTOMER, 1, 2, 5, 0);

	switch (number) {
	case 1:
		w->ytd += by;
		break;
	case 2:
		d->next_order += (uint32_t)by;
		break;
	case 3:
		*version_of(g, TPCC_NEW_ORDER, tpcc_key(&g->load, 1, 2, 27, 0)) ^=
			VB_VERSION_ABSENT;
		break;
	case 4:
		o->lines = (uint8_t)(o->lines + by);
		break;
	case 5:
		o->carrier ^= 3;
		break;
	case 6:
		o[0].lines = (uint8_t)(o->lines + by);
		o = row(g, TPCC_ORDER, 1, 2, 26, 0);
		o->lines = (uint8_t)(o->lines - by);
		break;
	case 7:
		((struct tpcc_order_line *)row(g, TPCC_ORDER_LINE, 1, 2, 27, 0))->delivered ^= 1;
		break;
	case 8:
		w->ytd += by;
		d->ytd += by;
		break;
	case 9:
		d->ytd += by;
		other->ytd -= by;
		break;
	case 10:
		c->balance += by;
		c->ytd_payment -= by;
		break;
	case 11:
		if (by_range(g))
			c->deliveries += (uint32_t)by;
		else
			((struct tpcc_delivery *)row(g, TPCC_DELIVERY, 1, 2, 0, 0))->next +=
				(uint32_t)by;
		break;
	default:
		c->ytd_payment += by;
		break;
	}
}

static void break_all(const char *list)
{
	char why[VB_LOAD_WHY] = "", says[64];
	struct fixture g;
	struct did did;

	open_fixture(&g, "tpcc", list, 2);
	do_many(&g, 300, &did);
	for (unsigned number = 1; number <= 12; number++) {
		assert_int_equal(judge_all(&g, did.change, why), 0);
		break_condition(&g, number, 1);
		why[0] = '\0';
		assert_int_equal(judge_all(&g, did.change, why), -EBADMSG);
		snprintf(says, sizeof(says), "consistency condition %u is broken", number);
		assert_non_null(strstr(why, says));
		break_condition(&g, number, -1);
	}
	close_fixture(&g);
}

static void test_conditions(void **state)
{
	(void)state;
	break_all(SMALL);
	break_all(SMALL ",ranges");
}

/* A row of an index that is missing, or says something else. */
static void test_indexes(void **state)
{
	char why[VB_LOAD_WHY] = "";
	struct tpcc_last_order *last;
	uint32_t customer;
	struct fixture g;
	struct did did;
	uint64_t at[2];

	(void)state;
	open_fixture(&g, "tpcc", SMALL ",ranges", 2);
	do_many(&g, 100, &did);
	customer = ((struct tpcc_order *)row(&g, TPCC_ORDER, 1, 4, 7, 0))->customer;
	at[0] = tpcc_last_key(1, 4, customer, 7);
	at[1] = tpcc_name_key(&g.load, 1, 4, 3, 0);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(at); i++) {
		uint64_t *version = version_of(&g, i == 0 ? TPCC_LAST_ORDER : TPCC_NAME, at[i]);

		*version ^= VB_VERSION_ABSENT;
		assert_int_equal(judge_all(&g, did.change, why), -EBADMSG);
		*version ^= VB_VERSION_ABSENT;
	}
	last = vb_local(g.fabric,
			vb_table_find(g.load.table[TPCC_LAST_ORDER], 1, at[0]) +
				g.load.table[TPCC_LAST_ORDER]->layout.record_at,
			sizeof(*last));
	last->order ^= 1;
	assert_int_equal(judge_all(&g, did.change, why), -EBADMSG);
	last->order ^= 1;
	assert_int_equal(judge_all(&g, did.change, why), 0);
	close_fixture(&g);
}

/* Rows that agree with each other, and not with what has committed. */
static void test_totals(void **state)
{
	static const char *const word[] = {"orders", "cents", "deliveries"};
	char why[VB_LOAD_WHY] = "";
	struct tpcc_last_order *last;
	struct tpcc_order *o;
	struct tpcc_stock *s;
	uint64_t *version;
	struct fixture g;
	struct did did;

	(void)state;
	open_fixture(&g, "tpcc", SMALL, 2);
	do_many(&g, 300, &did);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(word); i++) {
		did.change[i]++;
		assert_int_equal(judge_all(&g, did.change, why), -EBADMSG);
		assert_non_null(strstr(why, word[i]));
		did.change[i]--;
	}
	s = row(&g, TPCC_STOCK, 1, 0, 7, 0);
	s->orders++;
	assert_int_equal(judge_all(&g, did.change, why), -EBADMSG);
	assert_non_null(strstr(why, "stock"));
	s->orders--;
	s->quantity += 91;
	assert_int_equal(judge_all(&g, did.change, why), -EBADMSG);
	s->quantity -= 91;
	last = row(&g, TPCC_LAST_ORDER, 1, 4, 3, 0);
	last->order ^= 1;
	assert_int_equal(judge_all(&g, did.change, why), -EBADMSG);
	last->order ^= 1;
	/* A line, two behind the last that its order says it has. */
	o = row(&g, TPCC_ORDER, 1, 4, 27, 0);
	o->lines -= 2;
	version = version_of(&g, TPCC_ORDER_LINE, tpcc_key(&g.load, 1, 4, 27, o->lines));
	*version ^= VB_VERSION_ABSENT;
	assert_int_equal(judge_all(&g, did.change, why), -EBADMSG);
	assert_non_null(strstr(why, "condition 4"));
	*version ^= VB_VERSION_ABSENT;
	o->lines += 2;
	*version_of(&g, TPCC_ITEM, tpcc_key_at(1, 0, 0, 99, 0)) ^= VB_VERSION_ABSENT;
	assert_int_equal(judge_all(&g, did.change, why), -EBADMSG);
	*version_of(&g, TPCC_ITEM, tpcc_key_at(1, 0, 0, 99, 0)) ^= VB_VERSION_ABSENT;
	assert_int_equal(judge_all(&g, did.change, why), 0);
	close_fixture(&g);
}

/* An attempt that misses a row that must be there is said to be wrong only if it commits. */
static void test_strange(void **state)
{
	uint64_t *version;
	struct ready r;
	struct fixture g;

	(void)state;
	open_fixture(&g, "tpcc", SMALL, 2);
	get_ready(&g, &r);
	do
		g.load.ops->next(&r.c);
	while (r.c.type != TPCC_NEW_ORDERS);
	version = version_of(&g, TPCC_WAREHOUSE, tpcc_key(&g.load, 0, 0, 0, 0));
	*version ^= VB_VERSION_ABSENT;
	assert_int_equal(vb_txn_begin(r.me), 0);
	assert_int_equal(g.load.ops->body(&r.c, r.me), 0);
	assert_int_equal(vb_txn_commit(r.me), 0);
	assert_int_equal(g.load.ops->committed(&r.c), -EBADMSG);
	assert_non_null(strstr(r.c.why, "warehouse"));
	*version ^= VB_VERSION_ABSENT;
	get_done(&r);
	close_fixture(&g);
}

/* A scan that leaves out a line, or gives one more, is said to be wrong if it commits. */
static void test_strange_scan(void **state)
{
	const unsigned types[] = {TPCC_STOCK_LEVEL, TPCC_ORDER_STATUS};
	struct tpcc_order *o;
	struct ready r;
	struct fixture g;

	(void)state;
	open_fixture(&g, "tpcc", SMALL ",ranges", 2);
	get_ready(&g, &r);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(types); i++) {
		const struct tpcc_drawn *d = r.c.own;
		uint64_t *version;

		do
			g.load.ops->next(&r.c);
		while (r.c.type != types[i] || d->by_name);
		/* Each customer has one order at first. */
		for (uint32_t n = 30;; n--) {
			o = row(&g, TPCC_ORDER, d->warehouse, d->district, n, 0);
			version = version_of(
				&g, TPCC_ORDER_LINE,
				tpcc_key(&g.load, d->warehouse, d->district, n,
					 types[i] == TPCC_STOCK_LEVEL ? 1u : o->lines - 1u));
			if (types[i] == TPCC_STOCK_LEVEL || o->customer == d->customer)
				break;
		}
		*version ^= VB_VERSION_ABSENT;
		assert_int_equal(vb_txn_begin(r.me), 0);
		assert_int_equal(g.load.ops->body(&r.c, r.me), 0);
		assert_int_equal(vb_txn_commit(r.me), 0);
		assert_int_equal(g.load.ops->committed(&r.c), -EBADMSG);
		assert_non_null(strstr(r.c.why, "order_line"));
		*version ^= VB_VERSION_ABSENT;
	}
	get_done(&r);
	close_fixture(&g);
}

static void test_refused(void **state)
{
	(void)state;
	refused("tpcc", "warehouses=40k", "--warehouses");
	refused("tpcc", "no-inserts", "--mix");
	refused("tpcc", "ahead", "--mix");
	refused("tpcc", "ahead,mix=new-order,ranges", "--ranges");
	refused("tpcc", "ahead,mix=new-order,no-declare", "--no-declare");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mix),
		cmocka_unit_test(test_shares),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_last_names),
		cmocka_unit_test(test_answers),
		cmocka_unit_test(test_by_name),
		cmocka_unit_test(test_nothing_to_deliver),
		cmocka_unit_test(test_oldest_by_range),
		cmocka_unit_test(test_no_inserts),
		cmocka_unit_test(test_no_room),
		cmocka_unit_test(test_conditions),
		cmocka_unit_test(test_indexes),
		cmocka_unit_test(test_totals),
		cmocka_unit_test(test_strange),
		cmocka_unit_test(test_strange_scan),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
