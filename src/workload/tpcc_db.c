/* SPDX-License-Identifier: Apache-2.0 */
/* TPC-C as transactions: options, sizes, draws; see tpcc_db.h. */
#define VB_LOG_ROOM "load"
#include "workload/tpcc_db.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "workload/tpcc.h"

#define RUN_NAME                                                                                   \
	100u /* the C of NURand; the load has 0, and they may differ by so much      \
          (2.1.6.1) */
#define RUN_CUSTOMER 259u
#define RUN_ITEM     7911u
#define ITEM_RUN     8191u /* the A of NURand */
#define SPARE_ROWS   1u    /* that somebody may look for behind the last */

enum { MIX_FULL, MIX_NEW_ORDER, MIX_PAYMENT_NEW_ORDER };

#define O struct tpcc_opts
static const struct vb_opt table[] = {
	VB_OPT_SIZE(O, warehouses, "warehouses", "1", 1, TPCC_DB_WAREHOUSES,
		    "warehouses of each node"),
	VB_OPT_SIZE(O, orders, "orders", "3k", 1, TPCC_ROWS / 2,
		    "new orders, and as many payments, that each district has room "
		    "for; when one "
		    "has no more the run ends"),
	VB_OPT_CHOICE(O, mix, "mix", "full|new-order|payment-new-order", "full",
		      "which transactions: all five in TPC-C's shares (45, 43, 4, 4, 4 %), "
		      "new-order alone, or as many payments as new-orders"),
	VB_OPT_REAL(O, remote_item, "remote-item", "0.01", 0, 1,
		    "chance that another warehouse supplies a line of a new-order"),
	VB_OPT_REAL(O, remote_payment, "remote-payment", "0.15", 0, 1,
		    "chance that a payment is of another warehouse's customer"),
	VB_OPT_REAL(O, rollback, "rollback", "0.01", 0, 1,
		    "chance that a new-order has an item that there is not, and is "
		    "rolled back"),
	VB_OPT_FLAG(O, fixed, "fixed",
		    "each client stays at one warehouse of its node, and does not "
		    "draw one for each "
		    "transaction"),
	VB_OPT_FLAG(
		O, ranges, "ranges",
		"customers of a name, a customer's last order, the oldest order that waits, and "
		"an order's lines are found by scans of ordered tables, not by tables that stand "
		"for them"),
	VB_OPT_FLAG(O, no_inserts, "no-inserts",
		    "new-order and payment add no rows, for comparison with engines that cannot; "
		    "not for the full mix"),
	VB_OPT_SIZE(O, items, "items", "100k", 100, TPCC_ITEMS,
		    "items; fewer than 100k for a small test"),
	VB_OPT_SIZE(O, customers, "customers", "3k", 30, TPCC_CUSTOMERS,
		    "customers, and orders at first, of each district; fewer than "
		    "3k for a small "
		    "test"),
	VB_OPT_FLAG(O, ahead, "ahead",
		    "each transaction declares all its keys in one call before it reads "
		    "anything, as calvin wants: a customer's name is looked up beforehand, the "
		    "numbers of orders and payments are guessed, and it is tried again if that "
		    "was wrong; not for the full mix"),
	VB_LOAD_OPT_NO_DECLARE(O),
	VB_OPT_END};
#undef O

static const char *const types[TPCC_KINDS] = {
	[TPCC_NEW_ORDERS] = "new-order",      [TPCC_PAYMENT] = "payment",
	[TPCC_ORDER_STATUS] = "order-status", [TPCC_DELIVER] = "delivery",
	[TPCC_STOCK_LEVEL] = "stock-level",
};
static const unsigned percent[][TPCC_KINDS] = {
	[MIX_FULL] = {45, 43, 4, 4, 4},
	[MIX_NEW_ORDER] = {100},
	[MIX_PAYMENT_NEW_ORDER] = {50, 50},
};

/* ---- sizes ---- */

/* Records of a district, or, with per_warehouse and per_node, of those. */
static void set_tables(struct vb_load *l)
{
	const struct tpcc_db *db = l->own;
	uint64_t districts = (uint64_t)db->warehouses * TPCC_DISTRICTS;
	uint64_t orders = districts * (db->orders_max + SPARE_ROWS);
	const struct {
		const char *name;
		size_t bytes;
		uint64_t records;
	} shape[TPCC_TABLES] = {
		[TPCC_WAREHOUSE] = {"warehouse", sizeof(struct tpcc_warehouse), db->warehouses},
		[TPCC_DISTRICT] = {"district", sizeof(struct tpcc_district), districts},
		[TPCC_CUSTOMER] = {"customer", sizeof(struct tpcc_customer),
				   districts * db->customers},
		[TPCC_HISTORY] = {"history", sizeof(struct tpcc_history), orders},
		[TPCC_NEW_ORDER] = {"new_order", sizeof(struct tpcc_new_order),
				    orders - districts * db->delivered},
		[TPCC_ORDER] = {"orders", sizeof(struct tpcc_order), orders},
		/* Any attempt at an order may have taken the places of the most lines. */
		[TPCC_ORDER_LINE] = {"order_line", sizeof(struct tpcc_order_line),
				     orders * TPCC_LINES_MOST},
		[TPCC_ITEM] = {"item", sizeof(struct tpcc_item),
			       (uint64_t)l->nodes * (db->items + SPARE_ROWS)},
		[TPCC_STOCK] = {"stock", sizeof(struct tpcc_stock),
				(uint64_t)db->warehouses * db->items},
		[TPCC_NAME] = {"customer_name", sizeof(struct tpcc_name), districts * db->names},
		[TPCC_LAST_ORDER] = {"last_order", sizeof(struct tpcc_last_order),
				     districts * db->customers},
		[TPCC_DELIVERY] = {"delivery", sizeof(struct tpcc_delivery), districts},
	};

	for (unsigned t = 0; t < TPCC_TABLES; t++)
		l->params[t] = (struct vb_table_params){
			.name = shape[t].name,
			.record_bytes = (uint32_t)shape[t].bytes,
			.records = shape[t].records,
			.partition = VB_PARTITION_TOP16,
		};
	l->n_tables = TPCC_TABLES;
}

/* Ranges are of a name, of a customer's orders, of 64 waiting orders, and of the lines of 16.  An attempt
 * at an order that is given up leaves its key in the index of its customer, and the next may be another's:
 * there is room for some. */
static void set_ranges(struct vb_load *l)
{
	const struct tpcc_db *db = l->own;
	uint64_t districts = (uint64_t)db->warehouses * TPCC_DISTRICTS;
	uint64_t orders = db->orders_max + SPARE_ROWS;
	const struct {
		enum vb_tpcc_table t;
		size_t bytes;
		uint64_t records, ranges; /* of a district */
		uint32_t shift;
	} shape[] = {
		{TPCC_NAME, sizeof(struct tpcc_named), db->customers, db->names, TPCC_NAME_BITS},
		{TPCC_LAST_ORDER, sizeof(struct tpcc_last_order),
		 db->customers + 8 * (orders - db->customers), db->customers, TPCC_LAST_BITS},
		{TPCC_NEW_ORDER, sizeof(struct tpcc_new_order), orders - db->delivered,
		 (orders >> 6) + 3, TPCC_ORDER_BITS + 6},
		{TPCC_ORDER_LINE, sizeof(struct tpcc_order_line), orders * TPCC_LINES_MOST,
		 (orders >> 4) + 2, TPCC_ORDER_BITS + 4},
	};

	for (unsigned i = 0; i < VB_ARRAY_SIZE(shape); i++) {
		struct vb_table_params *p = &l->params[shape[i].t];

		p->record_bytes = (uint32_t)shape[i].bytes;
		p->records = districts * shape[i].records;
		p->ordered = true;
		p->range_shift = shape[i].shift;
		p->ranges = districts * shape[i].ranges;
	}
	l->n_tables = TPCC_DELIVERY;
}

/* What one transaction touches at most. */
static void set_bounds(struct vb_load *l)
{
	uint32_t lines = TPCC_LINES_MOST, recent = TPCC_RECENT * lines;
	uint32_t bytes = sizeof(struct tpcc_warehouse) + sizeof(struct tpcc_district) +
			 sizeof(struct tpcc_customer) + 256;

	/* new-order, and payment has less. */
	l->items = 6 + 3 * lines;
	l->bytes = bytes + lines * (uint32_t)(sizeof(struct tpcc_item) + sizeof(struct tpcc_stock) +
					      sizeof(struct tpcc_order_line));
	if (tpcc_opts_of(l)->mix == MIX_FULL) {
		l->items = 1 + TPCC_RECENT + 2 * recent;
		l->bytes = bytes + TPCC_RECENT * (uint32_t)sizeof(struct tpcc_order) +
			   recent * (uint32_t)(sizeof(struct tpcc_order_line) +
					       sizeof(struct tpcc_stock));
	}
	/* Ranges, keys without a record, and of a name more customers than there are lines. */
	if (tpcc_opts_of(l)->ranges) {
		l->items += TPCC_SAME_NAME + 64;
		l->bytes += (TPCC_SAME_NAME + 64) * 64;
	}
	l->record_bytes_max = sizeof(struct tpcc_customer);
}

static int check_ahead(const struct tpcc_opts *o)
{
	if (!o->ahead)
		return 0;
	if (o->mix == MIX_FULL)
		return vb_fail(-EINVAL, "--ahead: what a delivery, an order-status and a "
					"stock-level touch is known "
					"only from what they have read; take --mix new-order or "
					"payment-new-order");
	if (o->ranges || o->no_declare)
		return vb_fail(-EINVAL,
			       "--ahead declares all keys beforehand: it does not go with %s",
			       o->ranges ? "--ranges, which finds some by scans" : "--no-declare");
	return 0;
}

/* Those with which the tables are filled are the first. */
static int begin_guesses(struct vb_load *l, struct tpcc_db *db, uint64_t districts)
{
	db->guess = vb_load_share(l, districts * sizeof(db->guess[0]));
	if (db->guess == NULL)
		return vb_fail(-ENOMEM, "no memory for a workload");
	for (uint64_t i = 0; i < districts; i++)
		for (unsigned k = 0; k < TPCC_NUMBERED; k++)
			db->guess[i][k] = db->customers + 1;
	return 0;
}

static int init(struct vb_load *l)
{
	const struct tpcc_opts *o = tpcc_opts_of(l);
	uint64_t districts = o->warehouses * l->nodes * TPCC_DISTRICTS;
	struct tpcc_db *db =
		calloc(1, sizeof(*db) + (o->ranges ? districts * sizeof(db->waits_from[0]) : 0));

	l->own = db;
	if (db == NULL)
		return vb_fail(-ENOMEM, "no memory for a workload");
	if (o->warehouses * l->nodes > TPCC_DB_WAREHOUSES)
		return vb_fail(-EINVAL,
			       "--warehouses %u on each of %u nodes: at most %u are possible",
			       (unsigned)o->warehouses, l->nodes, TPCC_DB_WAREHOUSES);
	if (o->no_inserts && o->mix == MIX_FULL)
		return vb_fail(-EINVAL,
			       "--no-inserts: deliveries want orders; take --mix new-order or "
			       "payment-new-order");
	if (check_ahead(o) != 0)
		return -EINVAL;
	db->each = (uint32_t)o->warehouses;
	db->warehouses = db->each * l->nodes;
	db->customers = (uint32_t)o->customers;
	db->items = (uint32_t)o->items;
	db->names = db->customers < TPCC_NAMES ? db->customers : TPCC_NAMES;
	db->delivered = db->customers * 7 / 10;
	db->orders_max = (uint32_t)(o->customers + o->orders);
	if (o->ahead && begin_guesses(l, db, districts) != 0)
		return -ENOMEM;
	for (uint64_t i = 0; i < districts && o->ranges; i++)
		db->waits_from[i] = db->delivered + 1;
	set_tables(l);
	if (o->ranges)
		set_ranges(l);
	set_bounds(l);
	return 0;
}

/* ---- drawing ---- */

static uint32_t draw_customer(struct vb_load_client *c)
{
	uint32_t n = tpcc_db_of(c->load)->customers;

	return ((uint32_t)vb_trace_nurand(&c->rng, TPCC_CUSTOMER_RUN, n) + RUN_CUSTOMER) % n;
}

static void draw_by_name(struct vb_load_client *c)
{
	struct tpcc_drawn *d = c->own;
	uint32_t names = tpcc_db_of(c->load)->names;

	d->by_name = vb_rng_chance(&c->rng, TPCC_BY_NAME);
	d->customer =
		d->by_name ? ((uint32_t)vb_trace_nurand(&c->rng, TPCC_NAME_RUN, names) + RUN_NAME) %
				     names
			   : draw_customer(c);
}

static uint32_t draw_other(struct vb_load_client *c, double chance)
{
	const struct tpcc_drawn *d = c->own;
	uint32_t all = tpcc_db_of(c->load)->warehouses;

	if (all == 1 || !vb_rng_chance(&c->rng, chance))
		return d->warehouse;
	return (d->warehouse + 1 + (uint32_t)vb_rng_below(&c->rng, all - 1)) % all;
}

static void draw_new_order(struct vb_load_client *c)
{
	const struct tpcc_opts *o = tpcc_opts_of(c->load);
	uint32_t items = tpcc_db_of(c->load)->items;
	struct tpcc_drawn *d = c->own;

	d->customer = draw_customer(c);
	d->lines = TPCC_LINES_LEAST +
		   (unsigned)vb_rng_below(&c->rng, TPCC_LINES_MOST - TPCC_LINES_LEAST + 1);
	for (unsigned i = 0; i < d->lines; i++) {
		d->line[i].item =
			((uint32_t)vb_trace_nurand(&c->rng, ITEM_RUN, items) + RUN_ITEM) % items;
		d->line[i].supplier = draw_other(c, o->remote_item);
		d->line[i].quantity = (uint8_t)(1 + vb_rng_below(&c->rng, 10));
	}
	if (vb_rng_chance(&c->rng, o->rollback))
		d->line[d->lines - 1].item = items;
}

static void draw_payment(struct vb_load_client *c)
{
	struct tpcc_drawn *d = c->own;

	d->amount = 100 + (int64_t)vb_rng_below(&c->rng, 499901);
	d->customer_warehouse = draw_other(c, tpcc_opts_of(c->load)->remote_payment);
	if (d->customer_warehouse != d->warehouse)
		d->customer_district = (uint32_t)vb_rng_below(&c->rng, TPCC_DISTRICTS);
	draw_by_name(c);
}

static void next(struct vb_load_client *c)
{
	const struct vb_load *l = c->load;
	const struct tpcc_opts *o = tpcc_opts_of(l);
	const struct tpcc_db *db = l->own;
	struct tpcc_drawn *d = c->own;
	uint32_t at = o->fixed ? c->number % db->each : (uint32_t)vb_rng_below(&c->rng, db->each);

	c->type = vb_trace_draw_type(&c->rng, percent[o->mix]);
	d->warehouse = d->customer_warehouse = at * l->nodes + c->node;
	d->district = d->customer_district = (uint32_t)vb_rng_below(&c->rng, TPCC_DISTRICTS);
	d->date++;
	c->scouts = false;
	switch (c->type) {
	case TPCC_NEW_ORDERS:
		draw_new_order(c);
		break;
	case TPCC_PAYMENT:
		draw_payment(c);
		c->scouts = o->ahead && d->by_name;
		break;
	case TPCC_ORDER_STATUS:
		draw_by_name(c);
		break;
	case TPCC_DELIVER:
		d->carrier = (uint8_t)(1 + vb_rng_below(&c->rng, 10));
		break;
	default:
		d->threshold = 10 + (int32_t)vb_rng_below(&c->rng, 11);
		break;
	}
}

static bool declares(const struct vb_load *l)
{
	return tpcc_opts_of(l)->ahead;
}

const struct vb_load_ops vb_load_tpcc = {
	.name = "tpcc",
	.summary = "TPC-C: orders, payments and deliveries of warehouses, five "
		   "kinds of transactions",
	.options = table,
	.options_bytes = sizeof(struct tpcc_opts),
	.types = types,
	.n_types = TPCC_KINDS,
	.client_bytes = sizeof(struct tpcc_drawn),
	.declares = declares,
	.init = init,
	.fill = vb_tpcc_fill,
	.records = vb_tpcc_records,
	.next = next,
	.scout = vb_tpcc_scout,
	.body = vb_tpcc_body,
	.committed = vb_tpcc_committed,
	.count = vb_tpcc_count,
	.moved = vb_tpcc_moved,
	.judge = vb_tpcc_judge,
};
