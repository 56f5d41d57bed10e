/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TPC-C's consistency conditions 1 to 12 (clause 3.3.2), on all rows, when
 * nobody runs transactions any more; see tpcc_db.h.
 *
 * Each is a matter of one district or warehouse, whose rows lie on one node,
 * but for the tenth: a payment's row lies with the warehouse that was paid, and
 * the customer may be another's.  So that sums of nodes can be added, what
 * every customer is off by is multiplied by a number of its own, modulo 2^64:
 * if the sum is 0, no customer is off.
 */
#define VB_LOG_ROOM "load"
#include "workload/tpcc_db.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"

/* Of sums->value; conditions 1 to 12 come first, each with how many districts
 * break it. */
enum { CONDITIONS = 12, MISPAID = 9, ORDERED = CONDITIONS, PAID, DELIVERED, TAKEN, PICKED };
#define BROKEN(number) sums->value[(number)-1]

static const char *const conditions[CONDITIONS] = {
	"W_YTD = sum(D_YTD)",
	"D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID)",
	"max(NO_O_ID) - min(NO_O_ID) + 1 = rows of NEW-ORDER",
	"sum(O_OL_CNT) = rows of ORDER-LINE",
	"O_CARRIER_ID is null if and only if the order has a row in NEW-ORDER",
	"O_OL_CNT = the order's rows of ORDER-LINE",
	"OL_DELIVERY_D is null if and only if O_CARRIER_ID is",
	"W_YTD = sum(H_AMOUNT)",
	"D_YTD = sum(H_AMOUNT)",
	"C_BALANCE = sum(OL_AMOUNT) - sum(H_AMOUNT)",
	"rows of ORDER - rows of NEW-ORDER = orders delivered",
	"C_BALANCE + C_YTD_PAYMENT = sum(OL_AMOUNT)",
};

/* Rows that were looked at; what a table has beyond them breaks a condition, too. */
struct found {
	uint64_t orders, waiting, lines, payments, named;
};

/* What a district's rows say. */
struct district {
	struct found *found;
	uint32_t w, d;
	uint64_t orders, waiting, lines, lines_said;
	uint32_t max_order, min_waiting, max_waiting;
	int64_t paid;
	uint64_t delivered_to; /* how often something was delivered to a customer */
	/* By customer: what has been delivered to it, and its last order. */
	int64_t delivered[TPCC_CUSTOMERS];
	uint32_t last[TPCC_CUSTOMERS];
	bool broken[CONDITIONS + 1];
};

static uint64_t weight(const struct vb_load *l, uint32_t w, uint32_t d, uint32_t c)
{
	return vb_load_mix(l->seed, tpcc_key(l, w, d, c, 0), TPCC_CUSTOMER) | 1;
}

/* A row that must be there. */
static const void *row_of(const struct vb_load *l, enum vb_tpcc_table t, uint64_t key,
			  struct vb_load_sums *sums)
{
	const void *row = vb_load_record(l, t, key, sums);

	sums->absent += row == NULL;
	return row;
}

/* ---- orders ---- */

/* Up to one more than the order says that it has. */
static void look_at_lines(const struct vb_load *l, struct district *at, uint32_t number,
			  const struct tpcc_order *o, struct vb_load_sums *sums)
{
	unsigned n = 0, said = o != NULL ? o->lines : 0;

	for (unsigned i = 0; i <= said && i < TPCC_LINES_MOST; i++) {
		const struct tpcc_order_line *line = vb_load_record(
			l, TPCC_ORDER_LINE, tpcc_key(l, at->w, at->d, number, i), sums);

		if (line == NULL)
			continue;
		n++;
		if (number > tpcc_db_of(l)->customers) {
			sums->value[TAKEN] -= line->quantity;
			sums->value[PICKED]--;
		}
		if (o == NULL)
			continue;
		at->broken[7] |= (line->delivered == 0) != (o->carrier == 0);
		if (line->delivered != 0)
			at->delivered[o->customer] += line->amount;
	}
	at->lines += n;
	at->found->lines += n;
	at->broken[6] |= n != said;
}

/* With --ranges each order is in the index of its customer's. */
static void look_at_index(const struct vb_load *l, const struct district *at, uint32_t number,
			  const struct tpcc_order *o, struct vb_load_sums *sums)
{
	const struct tpcc_last_order *r;

	if (!tpcc_opts_of(l)->ranges)
		return;
	r = row_of(l, TPCC_LAST_ORDER, tpcc_last_key(at->w, at->d, o->customer, number), sums);
	sums->wrong += r != NULL && r->order != number;
}

static void look_at_order(const struct vb_load *l, struct district *at, uint32_t number,
			  struct vb_load_sums *sums)
{
	uint64_t key = tpcc_key(l, at->w, at->d, number, 0);
	const struct tpcc_order *o = vb_load_record(l, TPCC_ORDER, key, sums);
	const struct tpcc_new_order *waits = vb_load_record(l, TPCC_NEW_ORDER, key, sums);

	if (o != NULL && o->customer >= tpcc_db_of(l)->customers) {
		sums->wrong++;
		return;
	}
	if (o != NULL) {
		at->orders++;
		at->found->orders++;
		at->lines_said += o->lines;
		at->max_order = number;
		at->last[o->customer] = number;
		look_at_index(l, at, number, o, sums);
	}
	if (waits != NULL) {
		sums->wrong += waits->order != number;
		at->found->waiting++;
		at->min_waiting = at->waiting++ == 0 ? number : at->min_waiting;
		at->max_waiting = number;
	}
	at->broken[5] |= (o != NULL && o->carrier == 0) != (waits != NULL);
	look_at_lines(l, at, number, o, sums);
}

/* ---- customers and payments ---- */

static void look_at_payment(const struct vb_load *l, struct district *at, uint32_t number,
			    struct vb_load_sums *sums)
{
	const struct tpcc_history *h =
		vb_load_record(l, TPCC_HISTORY, tpcc_key(l, at->w, at->d, number, 0), sums);

	if (h == NULL)
		return;
	at->found->payments++;
	at->paid += h->amount;
	sums->value[MISPAID] +=
		weight(l, h->warehouse, h->district, h->customer) * (uint64_t)h->amount;
}

static void look_at_customer(const struct vb_load *l, struct district *at, uint32_t number,
			     struct vb_load_sums *sums)
{
	uint64_t key = tpcc_key(l, at->w, at->d, number, 0);
	const struct tpcc_customer *c = row_of(l, TPCC_CUSTOMER, key, sums);

	if (!tpcc_opts_of(l)->ranges) {
		const struct tpcc_last_order *last = row_of(l, TPCC_LAST_ORDER, key, sums);

		sums->wrong += last != NULL && last->order != at->last[number];
	}
	if (c == NULL)
		return;
	at->delivered_to += c->deliveries;
	at->broken[12] |= c->balance + c->ytd_payment != at->delivered[number];
	sums->value[MISPAID] +=
		weight(l, at->w, at->d, number) * (uint64_t)(c->balance - at->delivered[number]);
}

static void look_at_names(const struct vb_load *l, struct district *at, struct vb_load_sums *sums)
{
	const struct tpcc_db *db = l->own;
	uint64_t before = at->found->named;

	for (uint32_t i = 0; i < db->names; i++) {
		if (!tpcc_opts_of(l)->ranges) {
			row_of(l, TPCC_NAME, tpcc_key(l, at->w, at->d, i, 0), sums);
			continue;
		}
		for (uint32_t k = 0; k < TPCC_SAME_NAME; k++, at->found->named++)
			if (vb_load_record(l, TPCC_NAME, tpcc_name_key(l, at->w, at->d, i, k),
					   sums) == NULL)
				break;
	}
	if (tpcc_opts_of(l)->ranges)
		sums->absent += db->customers - (at->found->named - before);
}

/* ---- districts and warehouses ---- */

/* What the district says that has been delivered. */
static uint64_t delivered(const struct vb_load *l, const struct district *at,
			  struct vb_load_sums *sums)
{
	const struct tpcc_delivery *next;

	if (tpcc_opts_of(l)->ranges)
		return tpcc_db_of(l)->delivered + at->delivered_to;
	next = row_of(l, TPCC_DELIVERY, tpcc_key(l, at->w, at->d, 0, 0), sums);
	return next != NULL ? next->next - 1 : 0;
}

static void look_at_district(const struct vb_load *l, struct district *at,
			     struct vb_load_sums *sums)
{
	const struct tpcc_db *db = l->own;
	uint64_t key = tpcc_key(l, at->w, at->d, 0, 0);
	const struct tpcc_district *r = row_of(l, TPCC_DISTRICT, key, sums);
	uint64_t done;

	if (r == NULL)
		return;
	/* One more: nobody may have gone past what the district says. */
	for (uint32_t i = 1; i <= r->next_order && i <= db->orders_max; i++)
		look_at_order(l, at, i, sums);
	for (uint32_t i = 1; i <= r->payments && i <= db->orders_max; i++)
		look_at_payment(l, at, i, sums);
	for (uint32_t i = 0; i < db->customers; i++)
		look_at_customer(l, at, i, sums);
	look_at_names(l, at, sums);
	done = delivered(l, at, sums);
	at->broken[2] = r->next_order - 1 != at->max_order ||
			(at->waiting != 0 && at->max_waiting != at->max_order);
	at->broken[3] = at->waiting != 0 && at->max_waiting - at->min_waiting + 1 != at->waiting;
	at->broken[4] = at->lines_said != at->lines;
	at->broken[9] = r->ytd != at->paid;
	at->broken[11] = at->orders - at->waiting != done;
	for (unsigned i = 1; i <= CONDITIONS; i++)
		BROKEN(i) += at->broken[i];
	sums->value[ORDERED] += r->next_order - 1 - db->customers;
	sums->value[DELIVERED] += done - db->delivered;
}

static void look_at_stock(const struct vb_load *l, uint32_t w, struct vb_load_sums *sums)
{
	for (uint32_t i = 0; i < tpcc_db_of(l)->items; i++) {
		const struct tpcc_stock *s = row_of(l, TPCC_STOCK, tpcc_key(l, w, 0, i, 0), sums);

		if (s == NULL)
			continue;
		sums->value[TAKEN] += s->ytd;
		sums->value[PICKED] += s->orders;
		/* At first, and as new-orders leave it. */
		sums->wrong += s->quantity < 10 || s->quantity > 100;
	}
}

static void look_at_warehouse(const struct vb_load *l, uint32_t w, struct district *at,
			      struct vb_load_sums *sums)
{
	const struct tpcc_warehouse *r = row_of(l, TPCC_WAREHOUSE, tpcc_key(l, w, 0, 0, 0), sums);
	int64_t of_districts = 0, paid = 0;

	look_at_stock(l, w, sums);
	for (uint32_t d = 0; d < TPCC_DISTRICTS; d++) {
		struct vb_load_sums ignored = {0};
		const struct tpcc_district *in =
			vb_load_record(l, TPCC_DISTRICT, tpcc_key(l, w, d, 0, 0), &ignored);

		*at = (struct district){.found = at->found, .w = w, .d = d};
		look_at_district(l, at, sums);
		of_districts += in != NULL ? in->ytd : 0;
		paid += at->paid;
	}
	if (r == NULL)
		return;
	BROKEN(1) += r->ytd != of_districts;
	BROKEN(8) += r->ytd != paid;
	sums->value[PAID] += (uint64_t)r->ytd -
			     (uint64_t)tpcc_db_of(l)->customers * TPCC_DISTRICTS * TPCC_START_YTD;
}

static void look_beyond(const struct vb_load *l, uint16_t node, const struct found *f,
			struct vb_load_sums *sums)
{
	BROKEN(2) += vb_load_present(l, TPCC_ORDER, node) != f->orders;
	BROKEN(3) += vb_load_present(l, TPCC_NEW_ORDER, node) != f->waiting;
	BROKEN(4) += vb_load_present(l, TPCC_ORDER_LINE, node) != f->lines;
	BROKEN(9) += vb_load_present(l, TPCC_HISTORY, node) != f->payments;
	if (!tpcc_opts_of(l)->ranges)
		return;
	sums->wrong += vb_load_present(l, TPCC_LAST_ORDER, node) != f->orders;
	sums->wrong += vb_load_present(l, TPCC_NAME, node) != f->named;
}

void vb_tpcc_count(const struct vb_load *l, uint16_t node, struct vb_load_sums *sums)
{
	const struct tpcc_db *db = l->own;
	struct district *at = malloc(sizeof(*at));
	struct found found = {0};

	/* Without memory to judge, nothing is said to hold. */
	if (at == NULL) {
		vb_error("no memory to judge the warehouses of node %u", node);
		sums->absent++;
		return;
	}
	at->found = &found;
	for (uint32_t i = 0; i < db->items; i++)
		row_of(l, TPCC_ITEM, tpcc_key_at(node, 0, 0, i, 0), sums);
	for (uint32_t w = node; w < db->warehouses; w += l->nodes)
		look_at_warehouse(l, w, at, sums);
	look_beyond(l, node, &found, sums);
	free(at);
}

/* Orders, cents and deliveries. */
#define TOTALS 3u

void vb_tpcc_moved(const struct vb_load *l, const struct vb_load_sums *sums,
		   int64_t by[VB_LOAD_CHANGES_MAX])
{
	(void)l;
	for (unsigned i = 0; i < TOTALS; i++)
		by[i] = (int64_t)sums->value[ORDERED + i];
}

static int judge_totals(const struct vb_load *l, const struct vb_load_sums *sums,
			const int64_t *change, char *why, size_t size)
{
	static const char *const what[TOTALS] = {
		"districts have counted %" PRId64
		" orders, and the committed transactions have made %" PRId64,
		"warehouses have received %" PRId64
		" cents, and the committed transactions have paid %" PRId64,
		"districts have counted %" PRId64
		" deliveries, and the committed transactions have made %" PRId64,
	};

	int64_t now[VB_LOAD_CHANGES_MAX];

	vb_tpcc_moved(l, sums, now);
	for (unsigned i = 0; i < TOTALS; i++) {
		if (now[i] == change[i])
			continue;
		snprintf(why, size, what[i], now[i], change[i]);
		return -EBADMSG;
	}
	if (tpcc_opts_of(l)->no_inserts || (sums->value[TAKEN] == 0 && sums->value[PICKED] == 0))
		return 0;
	snprintf(why, size,
		 "stock has counted %" PRId64 " pieces and %" PRId64
		 " lines more than the lines of orders say",
		 (int64_t)sums->value[TAKEN], (int64_t)sums->value[PICKED]);
	return -EBADMSG;
}

/* Without rows for orders and payments only what is said of other rows is judged. */
static bool is_judged(const struct vb_load *l, unsigned condition)
{
	return !tpcc_opts_of(l)->no_inserts ||
	       (condition != 2 && condition != 8 && condition != 9 && condition != 10);
}

int vb_tpcc_judge(const struct vb_load *l, const struct vb_load_sums *sums, const int64_t *change,
		  char *why, size_t size)
{
	int err = vb_load_judge_records(sums, why, size);

	if (err)
		return err;
	for (unsigned i = 1; i <= CONDITIONS; i++) {
		if (BROKEN(i) == 0 || !is_judged(l, i))
			continue;
		if (i - 1 == MISPAID)
			snprintf(why, size, "consistency condition 10 is broken: %s",
				 conditions[9]);
		else
			snprintf(why, size,
				 "consistency condition %u is broken %" PRIu64 " times: %s", i,
				 BROKEN(i), conditions[i - 1]);
		return -EBADMSG;
	}
	return judge_totals(l, sums, change, why, size);
}
