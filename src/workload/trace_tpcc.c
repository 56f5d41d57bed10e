/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TPC-C with few and coarse locks: the trace that ShiftLock (section 4.4) replays, and DSLR's
 * settings of 10 warehouses and 1 for each node.
 *
 * A warehouse has 121 locks: itself, its 10 districts, and groups of rows of the seven other
 * tables:
 *
 *	  0             1 .. 10       11 .. 40    41 .. 50   51 .. 60   61 .. 70     71 .. 80
 *	  warehouse     districts     customers   orders     history    new-orders   order-lines
 *	  81 .. 110     111 .. 120
 *	  stock         items
 *
 * Rows of customers and stock are grouped by their place in the table; where rows are inserted,
 * each insert takes the next group in turn.  Items are only ever read and take no lock, though they
 * have numbers: 500 warehouses have 60,500 numbers, of which the last 10 are never met, and
 * ShiftLock's 60,490 is the highest number in its trace plus one.
 */
#define VB_LOG_ROOM "trace"
#include "workload/tpcc.h"

#define DISTRICTS              10u
#define CUSTOMERS_PER_DISTRICT 3000u
#define CUSTOMERS_PER_GROUP    1000u
#define STOCK                  100000u
#define STOCK_GROUPS           30u
#define INSERT_GROUPS          10u
#define LINES                  10u /* of an order */

enum { WAREHOUSE = 0, DISTRICT = 1, CUSTOMER = 11, ORDER = 41, HISTORY = 51, NEW_ORDERS = 61 };
enum { ORDER_LINE = 71, STOCK_GROUP = 81, ITEM = 111, PER_WAREHOUSE = 121 };

struct tpcc_opts {
	uint64_t warehouses, homes;
};

#define O struct tpcc_opts
static const struct vb_opt table[] = {
	VB_OPT_SIZE(O, warehouses, "warehouses", "100", 1, 1u << 20, "warehouses of each home"),
	VB_OPT_SIZE(O, homes, "homes", "0", 0, 4096, TPCC_HOMES_HELP), VB_OPT_END};
#undef O

struct tpcc {
	struct vb_tpcc w;
	uint64_t scan_base; /* of a server: its homes' locks on the whole table of customers */
};

static int init(struct vb_trace *t)
{
	const struct tpcc_opts *o = t->options;
	int err = vb_tpcc_init(t, sizeof(struct tpcc), o->homes, o->warehouses, 1u << 24);
	struct tpcc *own = t->own;
	uint64_t homes_each;

	if (err)
		return err;
	homes_each = (own->w.homes + own->w.servers - 1) / own->w.servers;
	own->scan_base = homes_each * o->warehouses * PER_WAREHOUSE;
	t->locks = own->w.servers * (own->w.scans ? own->scan_base + homes_each
						  : own->scan_base - (PER_WAREHOUSE - ITEM));
	t->modes = 1u << VB_SHARED | 1u << VB_EXCLUSIVE;
	t->think_ns = 7000; /* ShiftLock section 4.4 */
	t->locks_max = 6 + LINES + 2;
	return 0;
}

static void take(struct vb_trace_client *c, uint32_t warehouse, unsigned which, enum vb_mode mode)
{
	vb_tpcc_take(c, warehouse, PER_WAREHOUSE, which, mode);
}

/* With scans, who reads customers has the whole table shared, and who writes them exclusively: the
 * protocols have no intention modes (DSLR section 6.4). */
static void take_table(struct vb_trace_client *c, uint32_t home, enum vb_mode mode)
{
	const struct tpcc *own = c->t->own;

	if (own->w.scans)
		vb_trace_add(c,
			     (own->scan_base + home / own->w.servers) * own->w.servers +
				     home % own->w.servers,
			     mode);
}

static void take_customer(struct vb_trace_client *c, uint32_t warehouse, uint64_t row,
			  enum vb_mode mode)
{
	const struct tpcc *own = c->t->own;

	take_table(c, warehouse / own->w.per_home, mode);
	take(c, warehouse, CUSTOMER + (unsigned)(row / CUSTOMERS_PER_GROUP), mode);
}

/* A row of the table of customers, chosen by number, or by last name: its bearers are taken for
 * evenly spread over their district. */
static uint64_t draw_customer(struct vb_trace_client *c, unsigned district, double by_name)
{
	uint64_t row = (uint64_t)district * CUSTOMERS_PER_DISTRICT;

	if (!vb_rng_chance(&c->rng, by_name))
		return row + vb_trace_nurand(&c->rng, TPCC_CUSTOMER_RUN, CUSTOMERS_PER_DISTRICT);
	row += TPCC_NAMES * vb_rng_below(&c->rng, CUSTOMERS_PER_DISTRICT / TPCC_NAMES);
	return row + vb_trace_nurand(&c->rng, TPCC_NAME_RUN, TPCC_NAMES);
}

/* Where the client's next insert goes: each has its own start, so that they do not go in step. */
static unsigned insert_group(const struct vb_trace_client *c)
{
	return (unsigned)((c->number + c->drawn) % INSERT_GROUPS);
}

static unsigned any_group(struct vb_trace_client *c)
{
	return (unsigned)vb_rng_below(&c->rng, INSERT_GROUPS);
}

static void new_order(struct vb_trace_client *c, uint32_t w)
{
	unsigned district = (unsigned)vb_rng_below(&c->rng, DISTRICTS), at = insert_group(c);

	take(c, w, WAREHOUSE, VB_SHARED);
	take(c, w, DISTRICT + district, VB_EXCLUSIVE);
	take_customer(c, w, draw_customer(c, district, 0), VB_SHARED);
	take(c, w, ORDER + at, VB_EXCLUSIVE);
	take(c, w, NEW_ORDERS + at, VB_EXCLUSIVE);
	/* Two items of one group take one lock. */
	for (unsigned i = 0; i < LINES; i++)
		take(c, w, STOCK_GROUP + (unsigned)(vb_rng_below(&c->rng, STOCK) % STOCK_GROUPS),
		     VB_EXCLUSIVE);
	take(c, w, ORDER_LINE + at, VB_EXCLUSIVE);
}

static void payment(struct vb_trace_client *c, uint32_t w)
{
	unsigned district = (unsigned)vb_rng_below(&c->rng, DISTRICTS);
	uint32_t of;

	take(c, w, WAREHOUSE, VB_EXCLUSIVE);
	take(c, w, DISTRICT + district, VB_EXCLUSIVE);
	/* The customer of another warehouse, and then of any of its districts. */
	of = vb_tpcc_other(c, w, TPCC_REMOTE_PAYMENT);
	if (of != w)
		district = (unsigned)vb_rng_below(&c->rng, DISTRICTS);
	take_customer(c, of, draw_customer(c, district, TPCC_BY_NAME), VB_EXCLUSIVE);
	take(c, w, HISTORY + insert_group(c), VB_EXCLUSIVE);
}

static void order_status(struct vb_trace_client *c, uint32_t w)
{
	unsigned district = (unsigned)vb_rng_below(&c->rng, DISTRICTS), at = any_group(c);

	take_customer(c, w, draw_customer(c, district, TPCC_BY_NAME), VB_SHARED);
	take(c, w, ORDER + at, VB_SHARED);
	take(c, w, ORDER_LINE + at, VB_SHARED);
}

static void delivery(struct vb_trace_client *c, uint32_t w)
{
	unsigned district = (unsigned)vb_rng_below(&c->rng, DISTRICTS), at = any_group(c);

	take(c, w, NEW_ORDERS + at, VB_EXCLUSIVE);
	take(c, w, ORDER + at, VB_EXCLUSIVE);
	take(c, w, ORDER_LINE + at, VB_SHARED);
	take_customer(c, w, draw_customer(c, district, 0), VB_EXCLUSIVE);
}

static void stock_level(struct vb_trace_client *c, uint32_t w)
{
	take(c, w, DISTRICT + (unsigned)vb_rng_below(&c->rng, DISTRICTS), VB_SHARED);
	take(c, w, ORDER_LINE + any_group(c), VB_SHARED);
	take(c, w, STOCK_GROUP + (unsigned)vb_rng_below(&c->rng, STOCK_GROUPS), VB_SHARED);
}

static void table_scan(struct vb_trace_client *c, uint32_t home)
{
	take_table(c, home, VB_SHARED);
}

static void next(struct vb_trace_client *c)
{
	static const struct vb_tpcc_txns txns = {new_order, payment,     order_status,
						 delivery,  stock_level, table_scan};

	vb_tpcc_next(c, &txns, false);
}

const struct vb_trace_ops vb_trace_tpcc = {
	.name = "tpcc",
	.summary = "TPC-C with 121 locks for each warehouse: rows in groups, items without locks",
	.source = "ShiftLock section 4.4; DSLR sections 6.1 and 6.4",
	.options = table,
	.options_bytes = sizeof(struct tpcc_opts),
	.scans = true,
	.init = init,
	.fini = vb_tpcc_fini,
	.next = next,
};
