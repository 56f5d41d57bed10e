/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TPC-C's five transactions (clauses 2.4 to 2.8); see tpcc_db.h.
 *
 * Each is a few rounds: what is known is declared, and what that says decides
 * what comes next. Where a row that must be there is not, the transaction may
 * have read rows of different moments: it goes to its commit, which then fails.
 * If that succeeds, `strange` says what is wrong.
 */
#define VB_LOG_ROOM "load"
#include "workload/tpcc_db.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define BRAND "ORIGINAL"

/* ---- calls ---- */

static void add_key(struct vb_load_client *c, enum vb_tpcc_table t, uint64_t key, bool write)
{
	c->key[c->n++] = (struct vb_txn_key){c->load->table[t], key, write};
}

/* The keys from `first` on, together. */
static int declare(struct vb_load_client *c, struct vb_coordinator *me, unsigned first)
{
	if (tpcc_opts_of(c->load)->no_declare)
		return 0;
	return vb_txn_declare(me, &c->key[first], c->n - first);
}

static int strange(struct vb_load_client *c, const char *what)
{
	((struct tpcc_drawn *)c->own)->strange = what;
	return -ENOENT;
}

/* A row that must be there; NULL: *err says why, or has said before that
 * nothing is to be done. */
static const void *get(struct vb_load_client *c, struct vb_coordinator *me, enum vb_tpcc_table t,
		       uint64_t key, int *err)
{
	const void *row;

	if (*err == 0)
		*err = vb_txn_get(me, c->load->table[t], key, &row);
	else
		return NULL;
	if (*err == -ENOENT)
		*err = strange(c, c->load->params[t].name);
	return *err == 0 ? row : NULL;
}

static void *update(struct vb_load_client *c, struct vb_coordinator *me, enum vb_tpcc_table t,
		    uint64_t key, int *err)
{
	void *row;

	if (*err == 0)
		*err = vb_txn_update(me, c->load->table[t], key, &row);
	else
		return NULL;
	if (*err == -ENOENT)
		*err = strange(c, c->load->params[t].name);
	return *err == 0 ? row : NULL;
}

static int insert(struct vb_load_client *c, struct vb_coordinator *me, enum vb_tpcc_table t,
		  uint64_t key, const void *row)
{
	int err = vb_txn_insert(me, c->load->table[t], key, row);

	return err == -EEXIST ? strange(c, c->load->params[t].name) : err;
}

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
	struct tpcc_stock *s =
		update(c, me, TPCC_STOCK, tpcc_key(c->load, from, 0, d->line[i].item, 0), &err);
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
	return insert(c, me, TPCC_ORDER_LINE,
		      tpcc_key(c->load, d->warehouse, d->district, order, i), &row);
}

static int add_lines_of(struct vb_load_client *c, struct vb_coordinator *me, uint32_t order,
			const int64_t *price)
{
	unsigned n = ((const struct tpcc_drawn *)c->own)->lines;
	int err = 0;

	for (unsigned i = 0; i < n && err == 0; i++)
		err = add_line(c, me, order, i, price[i]);
	return err;
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
	int err;

	add_key(c, TPCC_ORDER, key, true);
	add_key(c, TPCC_NEW_ORDER, key, true);
	for (unsigned i = 0; i < d->lines; i++) {
		add_key(c, TPCC_ORDER_LINE, key | i, true);
		row.all_local &= d->line[i].supplier == d->warehouse;
	}
	err = declare(c, me, first);
	if (err == 0)
		err = insert(c, me, TPCC_ORDER, key, &row);
	if (err == 0)
		err = insert(c, me, TPCC_NEW_ORDER, key, &waiting);
	if (err == 0)
		err = vb_txn_write(me, c->load->table[TPCC_LAST_ORDER],
				   tpcc_key(c->load, d->warehouse, d->district, d->customer, 0),
				   &last);
	return err ? err : add_lines_of(c, me, order, price);
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
	int64_t price[TPCC_LINES_MOST];
	const struct tpcc_warehouse *w;
	const struct tpcc_customer *who;
	struct tpcc_district *in;
	int err;

	add_key(c, TPCC_WAREHOUSE, warehouse, false);
	add_key(c, TPCC_DISTRICT, district, true);
	add_key(c, TPCC_CUSTOMER, customer, false);
	if (!no_inserts)
		add_key(c, TPCC_LAST_ORDER, customer, true);
	for (unsigned i = 0; i < d->lines; i++) {
		uint32_t item = d->line[i].item;

		add_key(c, TPCC_ITEM, tpcc_key_at(c->node, 0, 0, item, 0), false);
		if (item < db->items)
			add_key(c, TPCC_STOCK, tpcc_key(l, d->line[i].supplier, 0, item, 0), true);
	}
	err = declare(c, me, 0);
	w = get(c, me, TPCC_WAREHOUSE, warehouse, &err);
	in = update(c, me, TPCC_DISTRICT, district, &err);
	who = get(c, me, TPCC_CUSTOMER, customer, &err);
	if (err == 0)
		err = price_lines(c, me, price);
	if (err)
		return err;
	if (!no_inserts && in->next_order > db->orders_max)
		return VB_LOAD_FULL;
	c->seen += (int64_t)w->tax + in->tax + who->discount;
	c->change[0] = 1;
	in->next_order++;
	return no_inserts ? add_lines_of(c, me, 0, price)
			  : add_order(c, me, in->next_order - 1, price);
}

/* ---- payment ---- */

/* The customer's number; of those of a name the one in the middle. */
static uint32_t find_customer(struct vb_load_client *c, struct vb_coordinator *me, int *err)
{
	const struct tpcc_drawn *d = c->own;
	const struct tpcc_name *named;

	if (!d->by_name)
		return d->customer;
	named = get(c, me, TPCC_NAME,
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
	return insert(c, me, TPCC_HISTORY, key, &row);
}

static int payment(struct vb_load_client *c, struct vb_coordinator *me)
{
	const struct tpcc_drawn *d = c->own;
	const struct vb_load *l = c->load;
	uint64_t warehouse = tpcc_key(l, d->warehouse, 0, 0, 0);
	uint64_t district = tpcc_key(l, d->warehouse, d->district, 0, 0), history, customer;
	uint64_t who = tpcc_key(l, d->customer_warehouse, d->customer_district, d->customer, 0);
	bool no_inserts = tpcc_opts_of(l)->no_inserts;
	struct tpcc_warehouse *w;
	struct tpcc_district *in;
	struct tpcc_customer *of;
	uint32_t number;
	unsigned first;
	int err;

	add_key(c, TPCC_WAREHOUSE, warehouse, true);
	add_key(c, TPCC_DISTRICT, district, true);
	add_key(c, d->by_name ? TPCC_NAME : TPCC_CUSTOMER, who, !d->by_name);
	err = declare(c, me, 0);
	w = update(c, me, TPCC_WAREHOUSE, warehouse, &err);
	in = update(c, me, TPCC_DISTRICT, district, &err);
	number = find_customer(c, me, &err);
	if (err)
		return err;
	if (!no_inserts && in->payments >= tpcc_db_of(l)->orders_max)
		return VB_LOAD_FULL;
	w->ytd += d->amount;
	in->ytd += d->amount;
	history = tpcc_key(l, d->warehouse, d->district, ++in->payments, 0);
	customer = tpcc_key(l, d->customer_warehouse, d->customer_district, number, 0);
	first = c->n;
	if (!no_inserts)
		add_key(c, TPCC_HISTORY, history, true);
	if (d->by_name)
		add_key(c, TPCC_CUSTOMER, customer, true);
	err = declare(c, me, first);
	of = update(c, me, TPCC_CUSTOMER, customer, &err);
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
		return strange(c, "orders");
	for (unsigned i = 0; i < row->lines; i++)
		add_key(c, TPCC_ORDER_LINE, order | i, write);
	return 0;
}

static int order_status(struct vb_load_client *c, struct vb_coordinator *me)
{
	const struct tpcc_drawn *d = c->own;
	const struct tpcc_customer *who;
	const struct tpcc_last_order *last;
	const struct tpcc_order *row;
	uint64_t customer = tpcc_key(c->load, d->warehouse, d->district, d->customer, 0), order;
	unsigned first;
	int err = 0;

	customer = tpcc_key(c->load, d->warehouse, d->district, find_customer(c, me, &err), 0);
	add_key(c, TPCC_CUSTOMER, customer, false);
	add_key(c, TPCC_LAST_ORDER, customer, false);
	if (err == 0)
		err = declare(c, me, 0);
	who = get(c, me, TPCC_CUSTOMER, customer, &err);
	last = get(c, me, TPCC_LAST_ORDER, customer, &err);
	if (err)
		return err;
	c->seen = who->balance;
	order = tpcc_key(c->load, d->warehouse, d->district, last->order, 0);
	row = get(c, me, TPCC_ORDER, order, &err);
	first = c->n;
	if (err == 0)
		err = add_lines(c, order, row, false);
	if (err == 0)
		err = declare(c, me, first);
	for (unsigned i = first; i < c->n && err == 0; i++) {
		const struct tpcc_order_line *line =
			get(c, me, TPCC_ORDER_LINE, c->key[i].key, &err);

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
		add_key(c, TPCC_DELIVERY, tpcc_key(c->load, d->warehouse, i, 0, 0), true);
	err = declare(c, me, 0);
	for (unsigned i = 0; i < TPCC_DISTRICTS && err == 0; i++)
		next[i] = update(c, me, TPCC_DELIVERY, c->key[i].key, &err);
	first = c->n;
	for (uint32_t i = 0; i < TPCC_DISTRICTS && err == 0; i++) {
		v->order[i] = tpcc_key(c->load, d->warehouse, i, next[i]->next, 0);
		add_key(c, TPCC_NEW_ORDER, v->order[i], true);
	}
	if (err == 0)
		err = declare(c, me, first);
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

static int deliver_orders(struct vb_load_client *c, struct vb_coordinator *me, struct delivery *v)
{
	const struct tpcc_drawn *d = c->own;
	unsigned first = c->n;
	int err;

	for (unsigned i = 0; i < TPCC_DISTRICTS; i++)
		if (v->order[i] != 0)
			add_key(c, TPCC_ORDER, v->order[i], true);
	err = declare(c, me, first);
	first = c->n;
	for (uint32_t i = 0; i < TPCC_DISTRICTS && err == 0; i++) {
		struct tpcc_order *row;

		v->first_line[i] = v->first_line[i + 1] = c->n;
		if (v->order[i] == 0)
			continue;
		row = update(c, me, TPCC_ORDER, v->order[i], &err);
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
			add_key(c, TPCC_CUSTOMER, v->customer[i], true);
	return err ? err : declare(c, me, first);
}

static int delivery(struct vb_load_client *c, struct vb_coordinator *me)
{
	const struct tpcc_drawn *d = c->own;
	struct delivery v;
	int err = oldest_orders(c, me, &v);

	if (err == 0)
		err = deliver_orders(c, me, &v);
	for (unsigned i = 0; i < TPCC_DISTRICTS && err == 0; i++) {
		struct tpcc_customer *who;
		int64_t sum = 0;

		if (v.order[i] == 0)
			continue;
		for (unsigned k = v.first_line[i]; k < v.first_line[i + 1] && err == 0; k++) {
			struct tpcc_order_line *line =
				update(c, me, TPCC_ORDER_LINE, c->key[k].key, &err);

			if (line == NULL)
				break;
			line->delivered = d->date;
			sum += line->amount;
		}
		who = update(c, me, TPCC_CUSTOMER, v.customer[i], &err);
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

/* The lines of the district's last orders. */
static int recent_lines(struct vb_load_client *c, struct vb_coordinator *me, unsigned *first_line)
{
	const struct tpcc_drawn *d = c->own;
	int err = 0;
	const struct tpcc_district *in =
		get(c, me, TPCC_DISTRICT, tpcc_key(c->load, d->warehouse, d->district, 0, 0), &err);
	unsigned orders;

	if (err)
		return err;
	for (uint32_t o = in->next_order - TPCC_RECENT; o < in->next_order; o++)
		add_key(c, TPCC_ORDER, tpcc_key(c->load, d->warehouse, d->district, o, 0), false);
	err = declare(c, me, 0);
	orders = *first_line = c->n;
	for (unsigned i = 0; i < orders && err == 0; i++) {
		const struct tpcc_order *row = get(c, me, TPCC_ORDER, c->key[i].key, &err);

		if (row != NULL)
			err = add_lines(c, c->key[i].key, row, false);
	}
	return err ? err : declare(c, me, *first_line);
}

static int stock_level(struct vb_load_client *c, struct vb_coordinator *me)
{
	struct tpcc_drawn *d = c->own;
	unsigned first_line, first_stock;
	int err = recent_lines(c, me, &first_line);

	first_stock = c->n;
	memset(d->met, 0, sizeof(d->met));
	for (unsigned i = first_line; i < first_stock && err == 0; i++) {
		const struct tpcc_order_line *line =
			get(c, me, TPCC_ORDER_LINE, c->key[i].key, &err);

		if (line != NULL && first_met(d, line->item))
			add_key(c, TPCC_STOCK, tpcc_key(c->load, d->warehouse, 0, line->item, 0),
				false);
	}
	if (err == 0)
		err = declare(c, me, first_stock);
	for (unsigned i = first_stock; i < c->n && err == 0; i++) {
		const struct tpcc_stock *s = get(c, me, TPCC_STOCK, c->key[i].key, &err);

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
	d->strange = NULL;
	err = run(c, me);
	return d->strange != NULL && err == -ENOENT ? 0 : err;
}

int vb_tpcc_committed(struct vb_load_client *c)
{
	const struct tpcc_drawn *d = c->own;

	if (d->strange == NULL)
		return 0;
	snprintf(c->why, sizeof(c->why),
		 "a transaction has committed that found a row of table '%s' "
		 "missing, or one where "
		 "it added it, or what cannot be",
		 d->strange);
	return -EBADMSG;
}
