/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TPC-C with a lock for each row, and intention locks above them: what a database with a hierarchy
 * of locks asks of its lock table (Barthels et al. section 4.1, whose trace comes from MySQL).
 *
 * The transactions are those of TPC-C revision 5.11, clauses 2.4 to 2.8, with its numbers of rows.
 * A warehouse is a piece of the database that stands for itself, so that most transactions stay on
 * its server: it has its own locks on each level, also a copy of the items, which are only read.
 *
 *	level      locks of a warehouse                      on the way to a row
 *	database   1                                         IS or IX        levels=full
 *	table      9                                         IS or IX        levels=full, levels=table
 *	range      one for each district, or 10,000 items    IS or IX        levels=full
 *	row        770,011                                   S or X
 *
 * Serializable: what is read is locked, and a scan also locks the row after the last one (next-key
 * locking), which is where an insert would go.  Repeatable read and read committed: reads see a
 * snapshot and lock nothing, as in MySQL, so that both lock what is written and are the same.
 *
 * Orders are inserted and delivered, and clients do not know of each other.  Each takes it that the
 * others have done as much as it has itself, and computes from that where a district's orders end
 * and which of them is the oldest that was not delivered.  A district keeps its last 3,000 orders;
 * a newer one has the locks of the one 3,000 before it.  How many lines an order has depends on its
 * number, so that all agree on it; who ordered which items is drawn anew where it matters.
 */
#define VB_LOG_ROOM "trace"
#include "workload/tpcc.h"

#include <errno.h>

#include "base/log.h"

#define DISTRICTS   10u
#define CUSTOMERS   3000u /* of a district */
#define ORDERS      3000u /* of a district, that are kept */
#define DELIVERED   2100u /* of the first 3,000 */
#define LINES_LEAST 5u
#define LINES_MOST  15u
#define ITEMS       100000u
#define ITEM_RANGE  10000u
#define RECENT      20u /* orders that stock-level looks at */

#define REMOTE_ITEM 0.01

#define ITEM_RUN 8191u /* the A of NURand */

#define POPULATION         0x74706363726f7773ull
#define LOCKS_SERIALIZABLE 640u /* stock-level: 1 + 301 + 300 rows and 17 locks above them */
#define LOCKS_WRITES       256u /* delivery: 180 rows and 45 above them */
#define SCAN_WAREHOUSES    120u

enum table {
	WAREHOUSE,
	DISTRICT,
	CUSTOMER,
	HISTORY,
	ORDER,
	NEW_ORDERS,
	ORDER_LINE,
	STOCK,
	ITEM,
	TABLES
};

static const struct {
	uint32_t ranges, rows_of_range;
} shape[TABLES] = {
	[WAREHOUSE] = {1, 1},
	[DISTRICT] = {1, DISTRICTS},
	[CUSTOMER] = {DISTRICTS, CUSTOMERS},
	[HISTORY] = {DISTRICTS, CUSTOMERS},
	[ORDER] = {DISTRICTS, ORDERS},
	[NEW_ORDERS] = {DISTRICTS, ORDERS},
	[ORDER_LINE] = {DISTRICTS, ORDERS *LINES_MOST},
	[STOCK] = {ITEMS / ITEM_RANGE, ITEM_RANGE},
	[ITEM] = {ITEMS / ITEM_RANGE, ITEM_RANGE},
};

enum isolation { SERIALIZABLE, REPEATABLE_READ, READ_COMMITTED };
enum levels { LEVELS_ROWS, LEVELS_TABLE, LEVELS_FULL };

struct rows_opts {
	uint64_t warehouses, homes;
	int isolation, levels;
	bool fixed;
};

#define O struct rows_opts
static const struct vb_opt table[] = {
	VB_OPT_CHOICE(O, isolation, "isolation", "serializable|repeatable-read|read-committed",
		      "serializable", "what reads lock: rows and the next one, or nothing"),
	VB_OPT_CHOICE(
		O, levels, "levels", "rows|table|full", "table",
		"which levels are locked: rows alone, in shared and exclusive mode; tables and "
		"rows, as MySQL does; or database, table, range and row"),
	VB_OPT_SIZE(O, warehouses, "warehouses", "1", 1, 65536, "warehouses of each home"),
	VB_OPT_SIZE(O, homes, "homes", "0", 0, 4096, TPCC_HOMES_HELP),
	VB_OPT_FLAG(
		O, fixed, "fixed",
		"each client stays at one warehouse of its home, as a terminal of TPC-C does, and "
		"does not draw one for each transaction"),
	VB_OPT_END};
#undef O

struct rows {
	struct vb_tpcc w;
	bool reads; /* lock what they read */
	bool fixed; /* a client's own warehouse is always the same */
	enum levels levels;
	uint32_t range_first[TABLES], row_first[TABLES]; /* of a warehouse's locks */
	uint32_t each;                                   /* locks of a warehouse */
	/* Of a district's customers those called n are with_name[name_first[n] .. name_first[n + 1]
	 * - 1].  They are the same in every district. */
	uint16_t name_first[TPCC_NAMES + 1], with_name[CUSTOMERS];
};

/* ---- the population ---- */

/* The first 1,000 customers have a name each, the others one that is drawn (clause 4.3.3.1). */
static void name_customers(struct rows *own, uint64_t seed)
{
	uint16_t name[CUSTOMERS], next[TPCC_NAMES];
	struct vb_rng rng;

	vb_rng_seed(&rng, seed, POPULATION);
	for (uint32_t i = 0; i < CUSTOMERS; i++) {
		name[i] = (uint16_t)(i < TPCC_NAMES
					     ? i
					     : vb_trace_nurand(&rng, TPCC_NAME_RUN, TPCC_NAMES));
		own->name_first[name[i] + 1]++;
	}
	for (uint32_t n = 0; n < TPCC_NAMES; n++) {
		next[n] = own->name_first[n];
		own->name_first[n + 1] = (uint16_t)(own->name_first[n + 1] + own->name_first[n]);
	}
	for (uint32_t i = 0; i < CUSTOMERS; i++)
		own->with_name[next[name[i]]++] = (uint16_t)i;
}

static void number_locks(struct rows *own)
{
	own->each = 1 + TABLES;
	for (unsigned t = 0; t < TABLES; t++) {
		own->range_first[t] = own->each;
		own->each += shape[t].ranges;
	}
	for (unsigned t = 0; t < TABLES; t++) {
		own->row_first[t] = own->each;
		own->each += shape[t].ranges * shape[t].rows_of_range;
	}
}

static int init(struct vb_trace *t)
{
	const uint32_t intent = 1u << VB_INTENT_SHARED | 1u << VB_INTENT_EXCLUSIVE |
				1u << VB_SHARED_INTENT_EXCLUSIVE;
	const struct rows_opts *o = t->options;
	int err = vb_tpcc_init(t, sizeof(struct rows), o->homes, o->warehouses, 1u << 20);
	struct rows *own = t->own;

	if (err)
		return err;
	if (own->w.scans && o->warehouses > SCAN_WAREHOUSES)
		return vb_fail(-EINVAL, "a scan of %u warehouses: at most %u are possible",
			       (unsigned)o->warehouses, SCAN_WAREHOUSES);
	own->reads = o->isolation == SERIALIZABLE;
	own->levels = (enum levels)o->levels;
	own->fixed = o->fixed;
	number_locks(own);
	name_customers(own, t->p.seed);
	t->locks = (uint64_t)(own->w.homes + own->w.servers - 1) / own->w.servers *
		   own->w.per_home * own->each * own->w.servers;
	t->locks_max = own->reads ? LOCKS_SERIALIZABLE : LOCKS_WRITES;
	t->modes = 1u << VB_SHARED | 1u << VB_EXCLUSIVE | (own->levels == LEVELS_ROWS ? 0 : intent);
	return 0;
}

/* ---- taking locks ---- */

static void take(struct vb_trace_client *c, uint32_t warehouse, uint32_t which, enum vb_mode mode)
{
	vb_tpcc_take(c, warehouse, ((const struct rows *)c->t->own)->each, which, mode);
}

/* A whole table of a warehouse.  Without intention modes, whoever means rows of a table that is
 * scanned takes it like this, too. */
static void take_table(struct vb_trace_client *c, uint32_t w, enum table t, enum vb_mode mode)
{
	const struct rows *own = c->t->own;

	if (own->levels == LEVELS_FULL)
		take(c, w, 0, mode == VB_SHARED ? VB_INTENT_SHARED : VB_INTENT_EXCLUSIVE);
	take(c, w, 1 + t, mode);
}

static void take_row(struct vb_trace_client *c, uint32_t w, enum table t, uint32_t row,
		     enum vb_mode mode)
{
	const struct rows *own = c->t->own;
	enum vb_mode above = mode == VB_SHARED ? VB_INTENT_SHARED : VB_INTENT_EXCLUSIVE;

	if (own->levels == LEVELS_FULL)
		take(c, w, 0, above);
	if (own->levels != LEVELS_ROWS)
		take(c, w, 1 + t, above);
	else if (own->w.scans && t == CUSTOMER)
		take_table(c, w, CUSTOMER, mode);
	if (own->levels == LEVELS_FULL)
		take(c, w, own->range_first[t] + row / shape[t].rows_of_range, above);
	take(c, w, own->row_first[t] + row, mode);
}

static void read_row(struct vb_trace_client *c, uint32_t w, enum table t, uint32_t row)
{
	if (((const struct rows *)c->t->own)->reads)
		take_row(c, w, t, row, VB_SHARED);
}

static void write_row(struct vb_trace_client *c, uint32_t w, enum table t, uint32_t row)
{
	take_row(c, w, t, row, VB_EXCLUSIVE);
}

/* ---- rows of a district ---- */

/* How often something has happened in each of the warehouses that happens in `share` of the
 * transactions, if all clients are as far as this one. */
static uint64_t happened(const struct vb_trace_client *c, double share)
{
	const struct rows *own = c->t->own;

	return (uint64_t)((double)c->drawn * c->t->p.clients * share / own->w.warehouses);
}

static uint32_t order_row(uint32_t district, uint64_t order)
{
	return district * ORDERS + (uint32_t)(order % ORDERS);
}

static uint32_t line_row(uint32_t district, uint64_t order, unsigned line)
{
	return order_row(district, order) * LINES_MOST + line;
}

static unsigned lines_of(uint32_t w, uint32_t district, uint64_t order)
{
	uint64_t key = ((uint64_t)w * DISTRICTS + district) << 32 ^ order;

	/* The finalizer of splitmix64. */
	key = (key ^ key >> 30) * 0xbf58476d1ce4e5b9ull;
	key = (key ^ key >> 27) * 0x94d049bb133111ebull;
	return LINES_LEAST + (unsigned)((key ^ key >> 31) % (LINES_MOST - LINES_LEAST + 1));
}

static uint64_t next_order(const struct vb_trace_client *c)
{
	return ORDERS + happened(c, 0.45 / DISTRICTS);
}

static uint32_t any_district(struct vb_trace_client *c)
{
	return (uint32_t)vb_rng_below(&c->rng, DISTRICTS);
}

static uint32_t any_item(struct vb_trace_client *c)
{
	return (uint32_t)vb_trace_nurand(&c->rng, ITEM_RUN, ITEMS);
}

static uint32_t customer_by_number(struct vb_trace_client *c, uint32_t district)
{
	return district * CUSTOMERS +
	       (uint32_t)vb_trace_nurand(&c->rng, TPCC_CUSTOMER_RUN, CUSTOMERS);
}

/* By last name, which reads all who have it, in the order of their first names, and takes the one
 * in the middle; or by number. */
static uint32_t find_customer(struct vb_trace_client *c, uint32_t w, uint32_t district)
{
	const struct rows *own = c->t->own;
	uint32_t name, first, end;

	if (!vb_rng_chance(&c->rng, TPCC_BY_NAME))
		return customer_by_number(c, district);
	name = (uint32_t)vb_trace_nurand(&c->rng, TPCC_NAME_RUN, TPCC_NAMES);
	first = own->name_first[name];
	end = own->name_first[name + 1];
	/* And the first of the next name. */
	for (uint32_t i = first; i <= end && i < CUSTOMERS; i++)
		read_row(c, w, CUSTOMER, district * CUSTOMERS + own->with_name[i]);
	return district * CUSTOMERS + own->with_name[(first + end - 1) / 2];
}

/* ---- the transactions ---- */

static void new_order(struct vb_trace_client *c, uint32_t w)
{
	uint32_t district = any_district(c);
	uint64_t order = next_order(c);
	unsigned lines = lines_of(w, district, order);

	read_row(c, w, WAREHOUSE, 0);
	write_row(c, w, DISTRICT, district);
	read_row(c, w, CUSTOMER, customer_by_number(c, district));
	write_row(c, w, ORDER, order_row(district, order));
	write_row(c, w, NEW_ORDERS, order_row(district, order));
	for (unsigned i = 0; i < lines; i++) {
		uint32_t item = any_item(c);

		read_row(c, w, ITEM, item);
		write_row(c, vb_tpcc_other(c, w, REMOTE_ITEM), STOCK, item);
		write_row(c, w, ORDER_LINE, line_row(district, order, i));
	}
}

static void payment(struct vb_trace_client *c, uint32_t w)
{
	uint32_t district = any_district(c), of = vb_tpcc_other(c, w, TPCC_REMOTE_PAYMENT);

	write_row(c, w, WAREHOUSE, 0);
	write_row(c, w, DISTRICT, district);
	write_row(c, of, CUSTOMER, find_customer(c, of, of == w ? district : any_district(c)));
	/* One history for each payment, the clients' one after the other. */
	write_row(c, w, HISTORY,
		  (uint32_t)((c->number + c->drawn * c->t->p.clients) % (DISTRICTS * CUSTOMERS)));
}

static void order_status(struct vb_trace_client *c, uint32_t w)
{
	uint32_t district = any_district(c);
	uint64_t order = next_order(c) - 1 - vb_rng_below(&c->rng, ORDERS);

	read_row(c, w, CUSTOMER, find_customer(c, w, district));
	/* The customer's last one. */
	read_row(c, w, ORDER, order_row(district, order));
	for (unsigned i = 0; i < lines_of(w, district, order); i++)
		read_row(c, w, ORDER_LINE, line_row(district, order, i));
	read_row(c, w, ORDER_LINE, line_row(district, order + 1, 0));
}

static void delivery(struct vb_trace_client *c, uint32_t w)
{
	/* Each brings one order of each district on its way. */
	uint64_t oldest = DELIVERED + happened(c, 0.04);

	for (uint32_t district = 0; district < DISTRICTS; district++) {
		write_row(c, w, NEW_ORDERS, order_row(district, oldest));
		read_row(c, w, NEW_ORDERS, order_row(district, oldest + 1));
		write_row(c, w, ORDER, order_row(district, oldest));
		for (unsigned i = 0; i < lines_of(w, district, oldest); i++)
			write_row(c, w, ORDER_LINE, line_row(district, oldest, i));
		write_row(c, w, CUSTOMER, customer_by_number(c, district));
	}
}

static void stock_level(struct vb_trace_client *c, uint32_t w)
{
	uint32_t district = any_district(c);
	uint64_t end = next_order(c);

	read_row(c, w, DISTRICT, district);
	for (uint64_t order = end - RECENT; order < end; order++) {
		for (unsigned i = 0; i < lines_of(w, district, order); i++) {
			read_row(c, w, ORDER_LINE, line_row(district, order, i));
			read_row(c, w, STOCK, any_item(c));
		}
	}
	read_row(c, w, ORDER_LINE, line_row(district, end, 0));
}

/* All customers of the home. */
static void table_scan(struct vb_trace_client *c, uint32_t home)
{
	const struct rows *own = c->t->own;

	for (uint32_t i = 0; i < own->w.per_home; i++)
		take_table(c, home * own->w.per_home + i, CUSTOMER, VB_SHARED);
}

static void next(struct vb_trace_client *c)
{
	static const struct vb_tpcc_txns txns = {new_order, payment,     order_status,
						 delivery,  stock_level, table_scan};

	vb_tpcc_next(c, &txns, ((const struct rows *)c->t->own)->fixed);
}

const struct vb_trace_ops vb_trace_tpcc_rows = {
	.name = "tpcc-rows",
	.summary =
		"TPC-C with a lock for each row and intention locks above: up to hundreds of locks",
	.source = "Barthels et al., PVLDB 2019, section 4.1; TPC-C revision 5.11",
	.options = table,
	.options_bytes = sizeof(struct rows_opts),
	.scans = true,
	.init = init,
	.fini = vb_tpcc_fini,
	.next = next,
};
