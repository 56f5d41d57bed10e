/* SPDX-License-Identifier: Apache-2.0 */
/* TPC-C's five transactions (clauses 2.4 to 2.8); see tpcc_calls.h. */
#define VB_LOG_ROOM "load"
#include "workload/tpcc_range.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define BRAND "ORIGINAL"

/* ---- new-order ---- */

/* The items: their prices, and how many bear a mark.  One that there is not
 * ends the order. */
static int price_lines(struct vb_load_client *c, struct vb_coordinator *me, int64_t *price)
{
	const struct tpcc_drawn *d = c->own;

	for (unsigned i = 0; i < d->lines; i++) {
		const void *row;
		const struct tpcc_item *item;
		int err = vb_txn_get(me, c->load->table[TPCC_ITEM],
				     tpcc_key_at(c->node, 0, 0, d->line[i].item, 0), &row);

		if (err)
			return err == -ENOENT ? VB_LOAD_ROLLBACK : err;
		item = row;
		price[i] = item->price;
		c->seen += memmem(item->data, sizeof(item->data), BRAND, sizeof(BRAND) - 1) != NULL;
	}
	return 0;
}

static void take_from(struct tpcc_stock *s, unsigned quantity, bool remote)
{
	s->quantity +=
		s->quantity >= (int32_t)quantity + 10 ? -(int32_t)quantity : 91 - (int32_t)quantity;
	s->ytd += quantity;
	s->orders++;
	s->remote += remote;
}

static int add_line(struct vb_load_client *c, struct vb_coordinator *me, uint32_t order, unsigned i,
		    int64_t price)
{
	const struct tpcc_drawn *d = c->own;
	uint32_t from = d->line[i].supplier;
	int err = 0;
	struct tpcc_stock *s = tpcc_update(c, me, TPCC_STOCK,
					   tpcc_key(c->load, from, 0, d->line[i].item, 0), &err);
	struct tpcc_order_line row = {
		.amount = price * d->line[i].quantity,
		.item = d->line[i].item,
		.supplier = from,
		.quantity = d->line[i].quantity,
	};

	if (err)
		return err;
	take_from(s, row.quantity, from != d->warehouse);
	c->seen += row.amount;
	if (tpcc_opts_of(c->load)->no_inserts)
		return 0;
	memcpy(row.district, s->district[d->district], sizeof(row.district));
	return tpcc_insert(c, me, TPCC_ORDER_LINE,
			   tpcc_key(c->load, d->warehouse, d->district, order, i), &row);
}

/* From one on. */
static int add_lines_of(struct vb_load_client *c, struct vb_coordinator *me, uint32_t order,
			unsigned from, const int64_t *price)
{
	unsigned n = ((const struct tpcc_drawn *)c->own)->lines;
	int err = 0;

	for (unsigned i = from; i < n && err == 0; i++)
		err = add_line(c, me, order, i, price[i]);
	return err;
}

/* Those of its rows; but a row of an ordered table has its range taken before its key (txn/scan.c): the first line
 * takes that of all. */
static void add_order_keys(struct vb_load_client *c, uint32_t order)
{
	const struct tpcc_drawn *d = c->own;
	uint64_t key = tpcc_key(c->load, d->warehouse, d->district, order, 0);
	bool ranges = tpcc_opts_of(c->load)->ranges;

	tpcc_add_key(c, TPCC_ORDER, key, true);
	if (!ranges)
		tpcc_add_key(c, TPCC_NEW_ORDER, key, true);
	for (unsigned i = ranges; i < d->lines; i++)
		tpcc_add_key(c, TPCC_ORDER_LINE, key | i, true);
}

static int add_order(struct vb_load_client *c, struct vb_coordinator *me, uint32_t order,
		     const int64_t *price)
{
	const struct tpcc_drawn *d = c->own;
	uint64_t key = tpcc_key(c->load, d->warehouse, d->district, order, 0);
	struct tpcc_order row = {
		.entered = d->date,
		.customer = d->customer,
		.lines = (uint8_t)d->lines,
		.all_local = 1,
	};
	struct tpcc_new_order waiting = {.order = order};
	struct tpcc_last_order last = {.order = order};
	unsigned first = c->n;
	bool ranges = tpcc_opts_of(c->load)->ranges;
	int err = 0;

	if (ranges)
		err = vb_tpcc_range_add(c, me, order);
	if (err == 0 && ranges)
		err = add_line(c, me, order, 0, price[0]);
	for (unsigned i = 0; i < d->lines; i++)
		row.all_local &= d->line[i].supplier == d->warehouse;
	if (err == 0 && !tpcc_opts_of(c->load)->ahead) {
		add_order_keys(c, order);
		err = tpcc_declare(c, me, first);
	}
	if (err == 0)
		err = tpcc_insert(c, me, TPCC_ORDER, key, &row);
	if (err == 0 && !ranges)
		err = tpcc_insert(c, me, TPCC_NEW_ORDER, key, &waiting);
	if (err == 0 && !ranges)
		err = vb_txn_write(me, c->load->table[TPCC_LAST_ORDER],
				   tpcc_key(c->load, d->warehouse, d->district, d->customer, 0),
				   &last);
	return err ? err : add_lines_of(c, me, order, ranges, price);
}

static int new_order(struct vb_load_client *c, struct vb_coordinator *me)
{
	const struct tpcc_drawn *d = c->own;
	const struct tpcc_db *db = tpcc_db_of(c->load);
	const struct vb_load *l = c->load;
	uint64_t warehouse = tpcc_key(l, d->warehouse, 0, 0, 0);
	uint64_t district = tpcc_key(l, d->warehouse, d->district, 0, 0);
	uint64_t customer = tpcc_key(l, d->warehouse, d->district, d->customer, 0);
	bool no_inserts = tpcc_opts_of(l)->no_inserts;
	/* Who is rolled back has no number. */
	bool ahead =
		tpcc_opts_of(l)->ahead && !no_inserts && d->line[d->lines - 1].item < db->items;
	int64_t price[TPCC_LINES_MOST];
	const struct tpcc_warehouse *w;
	const struct tpcc_customer *who;
	struct tpcc_district *in;
	int err;

	tpcc_add_key(c, TPCC_WAREHOUSE, warehouse, false);
	tpcc_add_key(c, TPCC_DISTRICT, district, true);
	tpcc_add_key(c, TPCC_CUSTOMER, customer, false);
	if (!no_inserts && !tpcc_opts_of(l)->ranges)
		tpcc_add_key(c, TPCC_LAST_ORDER, customer, true);
	for (unsigned i = 0; i < d->lines; i++) {
		uint32_t item = d->line[i].item;

		tpcc_add_key(c, TPCC_ITEM, tpcc_key_at(c->node, 0, 0, item, 0), false);
		if (item < db->items)
			tpcc_add_key(c, TPCC_STOCK, tpcc_key(l, d->line[i].supplier, 0, item, 0),
				     true);
	}
	if (ahead && vb_tpcc_guess(c, TPCC_ORDERS))
		add_order_keys(c, d->guess);
	err = tpcc_declare(c, me, 0);
	w = tpcc_get(c, me, TPCC_WAREHOUSE, warehouse, &err);
	in = tpcc_update(c, me, TPCC_DISTRICT, district, &err);
	who = tpcc_get(c, me, TPCC_CUSTOMER, customer, &err);
	if (err == 0)
		err = price_lines(c, me, price);
	if (err)
		return err;
	if (!no_inserts && in->next_order > db->orders_max)
		return VB_LOAD_FULL;
	if (ahead)
		err = vb_tpcc_guessed(c, me, TPCC_ORDERS, in->next_order);
	if (err)
		return err;
	c->seen += (int64_t)w->tax + in->tax + who->discount;
	c->change[0] = 1;
	in->next_order++;
	return no_inserts ? add_lines_of(c, me, 0, 0, price)
			  : add_order(c, me, in->next_order - 1, price);
}

/* ---- payment ---- */

uint32_t vb_tpcc_customer(struct vb_load_client *c, struct vb_coordinator *me, int *err)
{
	const struct tpcc_drawn *d = c->own;
	const struct tpcc_name *named;

	if (!d->by_name || *err != 0)
		return d->customer;
	if (tpcc_opts_of(c->load)->ranges)
		return vb_tpcc_range_customer(c, me, err);
	named = tpcc_get(
		c, me, TPCC_NAME,
		tpcc_key(c->load, d->customer_warehouse, d->customer_district, d->customer, 0),
		err);
	return named != NULL ? named->customer[(named->n - 1) / 2] : 0;
}

/* A customer of bad credit has his last payments in his data, the newest first.
 */
static void note_payment(const struct tpcc_drawn *d, uint32_t number, struct tpcc_customer *who)
{
	char note[96];
	int n = snprintf(note, sizeof(note), "%u %u %u %u %u %" PRId64 "|", (unsigned)number,
			 (unsigned)d->customer_district, (unsigned)d->customer_warehouse,
			 (unsigned)d->district, (unsigned)d->warehouse, d->amount);

	memmove(who->data + n, who->data, sizeof(who->data) - (size_t)n);
	memcpy(who->data, note, (size_t)n);
}

static void pay(const struct tpcc_drawn *d, uint32_t number, struct tpcc_customer *who)
{
	who->balance -= d->amount;
	who->ytd_payment += d->amount;
	who->payments++;
	if (memcmp(who->credit, "BC", sizeof(who->credit)) == 0)
		note_payment(d, number, who);
}

static int add_history(struct vb_load_client *c, struct vb_coordinator *me, uint64_t key,
		       uint32_t customer, const struct tpcc_warehouse *w,
		       const struct tpcc_district *in)
{
	const struct tpcc_drawn *d = c->own;
	struct tpcc_history row = {
		.amount = d->amount,
		.date = d->date,
		.warehouse = d->customer_warehouse,
		.district = d->customer_district,
		.customer = customer,
	};

	memcpy(row.data, w->name, sizeof(w->name));
	memset(row.data + sizeof(w->name), ' ', 4);
	memcpy(row.data + sizeof(w->name) + 4, in->name, sizeof(in->name));
	return tpcc_insert(c, me, TPCC_HISTORY, key, &row);
}

/* Adds the keys that are not among the inputs. */
static void pay_ahead(struct vb_load_client *c)
{
	const struct tpcc_drawn *d = c->own;
	const struct vb_load *l = c->load;

	if (d->by_name)
		tpcc_add_key(
			c, TPCC_CUSTOMER,
			tpcc_key(l, d->customer_warehouse, d->customer_district, d->of_name, 0),
			true);
	if (!tpcc_opts_of(l)->no_inserts && vb_tpcc_guess(c, TPCC_PAYMENTS))
		tpcc_add_key(c, TPCC_HISTORY, tpcc_key(l, d->warehouse, d->district, d->guess, 0),
			     true);
}

/* Are they those? */
static int paid_ahead(struct vb_load_client *c, struct vb_coordinator *me, uint32_t number,
		      const struct tpcc_district *in)
{
	const struct tpcc_drawn *d = c->own;
	int err = d->by_name ? vb_tpcc_guessed_customer(c, me, number) : 0;

	if (err != 0 || tpcc_opts_of(c->load)->no_inserts)
		return err;
	return vb_tpcc_guessed(c, me, TPCC_PAYMENTS, in->payments + 1);
}

static int payment(struct vb_load_client *c, struct vb_coordinator *me)
{
	const struct tpcc_drawn *d = c->own;
	const struct vb_load *l = c->load;
	uint64_t warehouse = tpcc_key(l, d->warehouse, 0, 0, 0);
	uint64_t district = tpcc_key(l, d->warehouse, d->district, 0, 0), history, customer;
	uint64_t who = tpcc_key(l, d->customer_warehouse, d->customer_district, d->customer, 0);
	bool no_inserts = tpcc_opts_of(l)->no_inserts, ahead = tpcc_opts_of(l)->ahead;
	struct tpcc_warehouse *w;
	struct tpcc_district *in;
	struct tpcc_customer *of;
	uint32_t number;
	unsigned first;
	int err;

	tpcc_add_key(c, TPCC_WAREHOUSE, warehouse, true);
	tpcc_add_key(c, TPCC_DISTRICT, district, true);
	if (!d->by_name || !tpcc_opts_of(l)->ranges)
		tpcc_add_key(c, d->by_name ? TPCC_NAME : TPCC_CUSTOMER, who, !d->by_name);
	if (ahead)
		pay_ahead(c);
	err = tpcc_declare(c, me, 0);
	w = tpcc_update(c, me, TPCC_WAREHOUSE, warehouse, &err);
	in = tpcc_update(c, me, TPCC_DISTRICT, district, &err);
	number = vb_tpcc_customer(c, me, &err);
	if (err)
		return err;
	if (!no_inserts && in->payments >= tpcc_db_of(l)->orders_max)
		return VB_LOAD_FULL;
	if (ahead)
		err = paid_ahead(c, me, number, in);
	if (err)
		return err;
	w->ytd += d->amount;
	in->ytd += d->amount;
	history = tpcc_key(l, d->warehouse, d->district, ++in->payments, 0);
	customer = tpcc_key(l, d->customer_warehouse, d->customer_district, number, 0);
	first = c->n;
	if (!no_inserts && !ahead)
		tpcc_add_key(c, TPCC_HISTORY, history, true);
	if (d->by_name && !ahead)
		tpcc_add_key(c, TPCC_CUSTOMER, customer, true);
	if (!ahead)
		err = tpcc_declare(c, me, first);
	of = tpcc_update(c, me, TPCC_CUSTOMER, customer, &err);
	if (err)
		return err;
	pay(d, number, of);
	c->change[1] = d->amount;
	return no_inserts ? 0 : add_history(c, me, history, number, w, in);
}

/* ---- order-status ---- */

/* Adds the keys of an order's lines. */
static int add_lines(struct vb_load_client *c, uint64_t order, const struct tpcc_order *row,
		     bool write)
{
	if (row->lines > TPCC_LINES_MOST || row->customer >= tpcc_db_of(c->load)->customers)
		return tpcc_strange(c, "orders");
	for (unsigned i = 0; i < row->lines; i++)
		tpcc_add_key(c, TPCC_ORDER_LINE, order | i, write);
	return 0;
}

/* The customer's balance, and the number of its last order. */
static int last_order(struct vb_load_client *c, struct vb_coordinator *me, uint32_t *number)
{
	const struct tpcc_drawn *d = c->own;
	bool ranges = tpcc_opts_of(c->load)->ranges;
	const struct tpcc_customer *who;
	int err = 0;
	uint32_t id = vb_tpcc_customer(c, me, &err);
	uint64_t customer = tpcc_key(c->load, d->warehouse, d->district, id, 0);
	unsigned first = c->n;

	tpcc_add_key(c, TPCC_CUSTOMER, customer, false);
	if (!ranges)
		tpcc_add_key(c, TPCC_LAST_ORDER, customer, false);
	if (err == 0)
		err = tpcc_declare(c, me, first);
	who = tpcc_get(c, me, TPCC_CUSTOMER, customer, &err);
	c->seen = who != NULL ? who->balance : 0;
	if (ranges) {
		*number = vb_tpcc_range_last(c, me, id, &err);
	} else {
		const struct tpcc_last_order *last =
			tpcc_get(c, me, TPCC_LAST_ORDER, customer, &err);

		*number = last != NULL ? last->order : 0;
	}
	return err;
}

static int order_status(struct vb_load_client *c, struct vb_coordinator *me)
{
	const struct tpcc_drawn *d = c->own;
	const struct tpcc_order *row;
	uint32_t number = 0;
	uint64_t order;
	unsigned first;
	int err = last_order(c, me, &number);

	if (err)
		return err;
	order = tpcc_key(c->load, d->warehouse, d->district, number, 0);
	row = tpcc_get(c, me, TPCC_ORDER, order, &err);
	if (err == 0 && tpcc_opts_of(c->load)->ranges)
		return vb_tpcc_range_lines(c, me, order, row->lines);
	first = c->n;
	if (err == 0)
		err = add_lines(c, order, row, false);
	if (err == 0)
		err = tpcc_declare(c, me, first);
	for (unsigned i = first; i < c->n && err == 0; i++) {
		const struct tpcc_order_line *line =
			tpcc_get(c, me, TPCC_ORDER_LINE, c->key[i].key, &err);

		c->seen += line != NULL ? line->amount : 0;
	}
	return err;
}

/* ---- delivery ---- */

/* What is delivered of each district: its order, 0 if none waits. */
struct delivery {
	uint64_t order[TPCC_DISTRICTS], customer[TPCC_DISTRICTS];
	unsigned first_line[TPCC_DISTRICTS + 1];
};

static int oldest_orders(struct vb_load_client *c, struct vb_coordinator *me, struct delivery *v)
{
	const struct tpcc_drawn *d = c->own;
	struct tpcc_delivery *next[TPCC_DISTRICTS];
	struct vb_table *waiting = c->load->table[TPCC_NEW_ORDER];
	unsigned first;
	int err;

	for (uint32_t i = 0; i < TPCC_DISTRICTS; i++)
		tpcc_add_key(c, TPCC_DELIVERY, tpcc_key(c->load, d->warehouse, i, 0, 0), true);
	err = tpcc_declare(c, me, 0);
	for (unsigned i = 0; i < TPCC_DISTRICTS && err == 0; i++)
		next[i] = tpcc_update(c, me, TPCC_DELIVERY, c->key[i].key, &err);
	first = c->n;
	for (uint32_t i = 0; i < TPCC_DISTRICTS && err == 0; i++) {
		v->order[i] = tpcc_key(c->load, d->warehouse, i, next[i]->next, 0);
		tpcc_add_key(c, TPCC_NEW_ORDER, v->order[i], true);
	}
	if (err == 0)
		err = tpcc_declare(c, me, first);
	for (unsigned i = 0; i < TPCC_DISTRICTS && err == 0; i++) {
		err = vb_txn_delete(me, waiting, v->order[i]);
		if (err == -ENOENT) {
			v->order[i] = 0;
			err = 0;
		} else if (err == 0) {
			next[i]->next++;
			c->change[2]++;
		}
	}
	return err;
}

static int oldest_by_range(struct vb_load_client *c, struct vb_coordinator *me, struct delivery *v)
{
	int err = 0;

	for (uint32_t i = 0; i < TPCC_DISTRICTS && err == 0; i++) {
		err = vb_tpcc_range_deliver(c, me, i, &v->order[i]);
		c->change[2] += err == 0 && v->order[i] != 0;
	}
	return err;
}

static int deliver_orders(struct vb_load_client *c, struct vb_coordinator *me, struct delivery *v)
{
	const struct tpcc_drawn *d = c->own;
	unsigned first = c->n;
	int err;

	for (unsigned i = 0; i < TPCC_DISTRICTS; i++)
		if (v->order[i] != 0)
			tpcc_add_key(c, TPCC_ORDER, v->order[i], true);
	err = tpcc_declare(c, me, first);
	first = c->n;
	for (uint32_t i = 0; i < TPCC_DISTRICTS && err == 0; i++) {
		struct tpcc_order *row;

		v->first_line[i] = v->first_line[i + 1] = c->n;
		if (v->order[i] == 0)
			continue;
		row = tpcc_update(c, me, TPCC_ORDER, v->order[i], &err);
		if (err == 0)
			err = add_lines(c, v->order[i], row, true);
		if (err)
			return err;
		v->first_line[i + 1] = c->n;
		v->customer[i] = tpcc_key(c->load, d->warehouse, i, row->customer, 0);
		row->carrier = d->carrier;
	}
	for (unsigned i = 0; i < TPCC_DISTRICTS; i++)
		if (v->order[i] != 0)
			tpcc_add_key(c, TPCC_CUSTOMER, v->customer[i], true);
	return err ? err : tpcc_declare(c, me, first);
}

static int delivery(struct vb_load_client *c, struct vb_coordinator *me)
{
	const struct tpcc_drawn *d = c->own;
	struct delivery v;
	int err = tpcc_opts_of(c->load)->ranges ? oldest_by_range(c, me, &v)
						: oldest_orders(c, me, &v);

	if (err == 0)
		err = deliver_orders(c, me, &v);
	for (unsigned i = 0; i < TPCC_DISTRICTS && err == 0; i++) {
		struct tpcc_customer *who;
		int64_t sum = 0;

		if (v.order[i] == 0)
			continue;
		for (unsigned k = v.first_line[i]; k < v.first_line[i + 1] && err == 0; k++) {
			struct tpcc_order_line *line =
				tpcc_update(c, me, TPCC_ORDER_LINE, c->key[k].key, &err);

			if (line == NULL)
				break;
			line->delivered = d->date;
			sum += line->amount;
		}
		who = tpcc_update(c, me, TPCC_CUSTOMER, v.customer[i], &err);
		if (who == NULL)
			break;
		who->balance += sum;
		who->deliveries++;
	}
	return err;
}

/* ---- stock-level ---- */

static bool first_met(struct tpcc_drawn *d, uint32_t item)
{
	uint32_t i = item * 0x9e3779b1u >> 22;

	_Static_assert(sizeof(d->met) == 4u << 10, "ten bits of hash");
	while (d->met[i] != 0 && d->met[i] != item + 1)
		i = (i + 1) % VB_ARRAY_SIZE(d->met);
	if (d->met[i] != 0)
		return false;
	d->met[i] = item + 1;
	return true;
}

static void meet(struct vb_load_client *c, const struct tpcc_order_line *line)
{
	struct tpcc_drawn *d = c->own;

	if (first_met(d, line->item))
		tpcc_add_key(c, TPCC_STOCK, tpcc_key(c->load, d->warehouse, 0, line->item, 0),
			     false);
}

/* Adds the stock, from key `first` on, of the items in so many orders. */
static int meet_by_key(struct vb_load_client *c, struct vb_coordinator *me, uint32_t from,
		       uint32_t to, unsigned *first)
{
	const struct tpcc_drawn *d = c->own;
	unsigned orders;
	int err;

	for (uint32_t o = from; o < to; o++)
		tpcc_add_key(c, TPCC_ORDER, tpcc_key(c->load, d->warehouse, d->district, o, 0),
			     false);
	err = tpcc_declare(c, me, 0);
	orders = c->n;
	for (unsigned i = 0; i < orders && err == 0; i++) {
		const struct tpcc_order *row = tpcc_get(c, me, TPCC_ORDER, c->key[i].key, &err);

		if (row != NULL)
			err = add_lines(c, c->key[i].key, row, false);
	}
	if (err == 0)
		err = tpcc_declare(c, me, orders);
	*first = c->n;
	for (unsigned i = orders; i < *first && err == 0; i++) {
		const struct tpcc_order_line *line =
			tpcc_get(c, me, TPCC_ORDER_LINE, c->key[i].key, &err);

		if (line != NULL)
			meet(c, line);
	}
	return err;
}

static int meet_by_range(struct vb_load_client *c, struct vb_coordinator *me, uint32_t from,
			 uint32_t to, unsigned *first)
{
	const struct tpcc_drawn *d = c->own;
	unsigned n = 0;
	int err = vb_tpcc_range_recent(c, me, from, to, &n);

	*first = c->n;
	for (unsigned i = 0; i < n && err == 0; i++)
		meet(c, d->row[i].record);
	return err;
}

static int stock_level(struct vb_load_client *c, struct vb_coordinator *me)
{
	struct tpcc_drawn *d = c->own;
	int err = 0;
	const struct tpcc_district *in = tpcc_get(
		c, me, TPCC_DISTRICT, tpcc_key(c->load, d->warehouse, d->district, 0, 0), &err);
	uint32_t to = in != NULL ? in->next_order : 0;
	unsigned first;

	if (err)
		return err;
	memset(d->met, 0, sizeof(d->met));
	err = tpcc_opts_of(c->load)->ranges ? meet_by_range(c, me, to - TPCC_RECENT, to, &first)
					    : meet_by_key(c, me, to - TPCC_RECENT, to, &first);
	if (err == 0)
		err = tpcc_declare(c, me, first);
	for (unsigned i = first; i < c->n && err == 0; i++) {
		const struct tpcc_stock *s = tpcc_get(c, me, TPCC_STOCK, c->key[i].key, &err);

		c->seen += s != NULL && s->quantity < d->threshold;
	}
	return err;
}

/* ---- all ---- */

static int run(struct vb_load_client *c, struct vb_coordinator *me)
{
	switch (c->type) {
	case TPCC_NEW_ORDERS:
		return new_order(c, me);
	case TPCC_PAYMENT:
		return payment(c, me);
	case TPCC_ORDER_STATUS:
		return order_status(c, me);
	case TPCC_DELIVER:
		return delivery(c, me);
	default:
		return stock_level(c, me);
	}
}

int vb_tpcc_body(struct vb_load_client *c, struct vb_coordinator *me)
{
	struct tpcc_drawn *d = c->own;
	int err;

	c->n = 0;
	c->seen = 0;
	memset(c->change, 0, sizeof(c->change));
	memset(d->took, 0, sizeof(d->took));
	d->strange = NULL;
	err = run(c, me);
	return d->strange != NULL && err == -ENOENT ? 0 : err;
}

int vb_tpcc_committed(struct vb_load_client *c)
{
	const struct tpcc_drawn *d = c->own;

	if (d->strange == NULL) {
		if (c->type == TPCC_DELIVER)
			vb_tpcc_range_delivered(c);
		return 0;
	}
	snprintf(c->why, sizeof(c->why),
		 "a transaction has committed that found a row of table '%s' "
		 "missing, or one where "
		 "it added it, or what cannot be",
		 d->strange);
	return -EBADMSG;
}

int vb_tpcc_scout(struct vb_load_client *c, struct vb_coordinator *me)
{
	struct tpcc_drawn *d = c->own;
	int err;

	c->n = 0;
	d->strange = NULL;
	tpcc_add_key(c, TPCC_NAME,
		     tpcc_key(c->load, d->customer_warehouse, d->customer_district, d->customer, 0),
		     false);
	err = tpcc_declare(c, me, 0);
	d->of_name = vb_tpcc_customer(c, me, &err);
	return d->strange != NULL ? vb_tpcc_committed(c) : err;
}
