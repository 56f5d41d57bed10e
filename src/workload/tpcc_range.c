/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TPC-C by range: see tpcc_range.h.
 *
 * The oldest order that waits is the first record of a district in new_order.  From the district's beginning on a
 * scan would read the keys of all that were ever delivered (verbena/txn.h).  So it begins at `waits_from`, behind
 * the last that clients of this process are known to have delivered.  Orders come in the order of their
 * numbers and are delivered so: none before that waits, or ever will.  Where many were delivered by others, so that
 * none of the next WINDOW waits, the district says how many orders there are, and the place where those
 * that wait begin is halved in.  Only then a delivery meets new-orders and payments at the district.
 */
#define VB_LOG_ROOM "load"
#include "workload/tpcc_range.h"

#define WINDOW 16u

static struct vb_txn_range orders(const struct vb_load_client *c, uint32_t district, uint32_t from,
				  uint32_t to)
{
	const struct tpcc_drawn *d = c->own;

	return (struct vb_txn_range){
		.least = tpcc_key(c->load, d->warehouse, district, from, 0),
		.most = tpcc_key(c->load, d->warehouse, district, to, (1u << TPCC_ORDER_BITS) - 1),
	};
}

static int scan(struct vb_load_client *c, struct vb_coordinator *me, enum vb_tpcc_table t,
		const struct vb_txn_range *range, unsigned room, unsigned *n)
{
	struct tpcc_drawn *d = c->own;

	_Static_assert(VB_ARRAY_SIZE(d->row) >= TPCC_SAME_NAME, "rows for all that is scanned");
	*n = 0;
	return vb_txn_scan(me, c->load->table[t], range, d->row, room, n);
}

/* ---- customers ---- */

uint32_t vb_tpcc_range_customer(struct vb_load_client *c, struct vb_coordinator *me, int *err)
{
	const struct tpcc_drawn *d = c->own;
	const struct tpcc_named *named;
	struct vb_txn_range same = vb_txn_prefix(
		tpcc_name_key(c->load, d->customer_warehouse, d->customer_district, d->customer, 0),
		TPCC_NAME_BITS);
	unsigned n;

	*err = scan(c, me, TPCC_NAME, &same, TPCC_SAME_NAME, &n);
	if (*err == 0 && n == 0)
		*err = tpcc_strange(c, "customer_name");
	if (*err)
		return 0;
	named = d->row[(n - 1) / 2].record;
	return named->customer;
}

uint32_t vb_tpcc_range_last(struct vb_load_client *c, struct vb_coordinator *me, uint32_t customer,
			    int *err)
{
	const struct tpcc_drawn *d = c->own;
	const struct tpcc_last_order *last;
	struct vb_txn_range of = vb_txn_prefix(
		tpcc_last_key(d->warehouse, d->district, customer, 0), TPCC_LAST_BITS);
	unsigned n;

	if (*err)
		return 0;
	of.descending = true;
	*err = scan(c, me, TPCC_LAST_ORDER, &of, 1, &n);
	if (*err == 0 && n == 0)
		*err = tpcc_strange(c, "last_order");
	if (*err)
		return 0;
	last = d->row[0].record;
	return last->order;
}

/* ---- lines ---- */

/* Of each order the first lines, at least so many, and no other. */
static bool are_whole(const struct vb_txn_row *row, unsigned n, uint64_t first, unsigned orders,
		      unsigned least)
{
	unsigned i = 0;

	for (uint64_t o = 0; o < orders; o++) {
		unsigned k = 0;

		while (i < n && row[i].key == first + (o << TPCC_ORDER_BITS) + k) {
			i++;
			k++;
		}
		if (k < least)
			return false;
	}
	return i == n;
}

int vb_tpcc_range_lines(struct vb_load_client *c, struct vb_coordinator *me, uint64_t order,
			unsigned lines)
{
	const struct tpcc_drawn *d = c->own;
	struct vb_txn_range of = vb_txn_prefix(order, TPCC_ORDER_BITS);
	unsigned n;
	int err = scan(c, me, TPCC_ORDER_LINE, &of, TPCC_LINES_MOST, &n);

	if (err)
		return err;
	if (n != lines || !are_whole(d->row, n, order, 1, TPCC_LINES_LEAST))
		return tpcc_strange(c, "order_line");
	for (unsigned i = 0; i < n; i++)
		c->seen += ((const struct tpcc_order_line *)d->row[i].record)->amount;
	return 0;
}

int vb_tpcc_range_recent(struct vb_load_client *c, struct vb_coordinator *me, uint32_t from,
			 uint32_t to, unsigned *n)
{
	const struct tpcc_drawn *d = c->own;
	struct vb_txn_range recent = orders(c, d->district, from, to - 1);
	int err = scan(c, me, TPCC_ORDER_LINE, &recent, VB_ARRAY_SIZE(d->row), n);

	if (err)
		return err;
	return are_whole(d->row, *n, recent.least, to - from, TPCC_LINES_LEAST)
		       ? 0
		       : tpcc_strange(c, "order_line");
}

/* ---- orders that wait ---- */

static uint32_t *waits_from(const struct vb_load_client *c, uint32_t district)
{
	const struct tpcc_drawn *d = c->own;
	struct tpcc_db *db = c->load->own;

	return &db->waits_from[d->warehouse * TPCC_DISTRICTS + district];
}

/* Of orders `from` to before `to`, of which those that wait are the last. */
static int halve(struct vb_load_client *c, struct vb_coordinator *me, uint32_t district,
		 uint32_t from, uint32_t to, uint32_t *number)
{
	const struct tpcc_drawn *d = c->own;

	while (from < to) {
		uint32_t middle = from + (to - from) / 2;
		const void *row;
		int err = vb_txn_get(me, c->load->table[TPCC_NEW_ORDER],
				     tpcc_key(c->load, d->warehouse, district, middle, 0), &row);

		if (err == 0)
			*number = to = middle;
		else if (err == -ENOENT)
			from = middle + 1;
		else
			return err;
	}
	return 0;
}

/* The first that waits from one on; *number stays if none does. */
static int find_oldest(struct vb_load_client *c, struct vb_coordinator *me, uint32_t district,
		       uint32_t from, uint32_t *number)
{
	const struct tpcc_drawn *d = c->own;
	struct vb_txn_range next = orders(c, district, from, from + WINDOW - 1);
	const struct tpcc_district *in;
	unsigned n;
	int err = scan(c, me, TPCC_NEW_ORDER, &next, 1, &n);

	if (err == 0 && n == 1)
		*number = ((const struct tpcc_new_order *)d->row[0].record)->order;
	if (err || n == 1)
		return err;
	in = tpcc_get(c, me, TPCC_DISTRICT, tpcc_key(c->load, d->warehouse, district, 0, 0), &err);
	return err ? err : halve(c, me, district, from + WINDOW, in->next_order, number);
}

int vb_tpcc_range_deliver(struct vb_load_client *c, struct vb_coordinator *me, uint32_t district,
			  uint64_t *order)
{
	struct tpcc_drawn *d = c->own;
	uint32_t number = 0;
	int err = find_oldest(c, me, district,
			      __atomic_load_n(waits_from(c, district), __ATOMIC_RELAXED), &number);

	*order = 0;
	if (err || number == 0)
		return err;
	err = vb_txn_delete(me, c->load->table[TPCC_NEW_ORDER],
			    tpcc_key(c->load, d->warehouse, district, number, 0));
	/* Below serializable another delivery may have taken it since. */
	if (err)
		return err == -ENOENT ? 0 : err;
	*order = tpcc_key(c->load, d->warehouse, district, number, 0);
	d->took[district] = number;
	return 0;
}

void vb_tpcc_range_delivered(const struct vb_load_client *c)
{
	const struct tpcc_drawn *d = c->own;

	for (uint32_t i = 0; i < TPCC_DISTRICTS; i++) {
		uint32_t *from, now;

		if (d->took[i] == 0)
			continue;
		from = waits_from(c, i);
		now = __atomic_load_n(from, __ATOMIC_RELAXED);
		while (now <= d->took[i] &&
		       !__atomic_compare_exchange_n(from, &now, d->took[i] + 1, true,
						    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			;
	}
}

/* ---- new orders ---- */

int vb_tpcc_range_add(struct vb_load_client *c, struct vb_coordinator *me, uint32_t order)
{
	const struct tpcc_drawn *d = c->own;
	const struct tpcc_last_order last = {.order = order};
	const struct tpcc_new_order waiting = {.order = order};
	int err = tpcc_insert(c, me, TPCC_LAST_ORDER,
			      tpcc_last_key(d->warehouse, d->district, d->customer, order), &last);

	/* Orders that others gave up have taken all places. */
	if (err == -ENOSPC)
		return VB_LOAD_FULL;
	return err ? err
		   : tpcc_insert(c, me, TPCC_NEW_ORDER,
				 tpcc_key(c->load, d->warehouse, d->district, order, 0), &waiting);
}
