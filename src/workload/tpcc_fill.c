/* SPDX-License-Identifier: Apache-2.0 */
/* TPC-C as transactions: the population of clause 4.3.3; see tpcc_db.h.  What a
 * row holds depends on the seed and its key only. */
#define VB_LOG_ROOM "load"
#include "workload/tpcc_db.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "workload/scatter.h"
#include "workload/tpcc.h"
#include "workload/trace.h"

#define POPULATION 0x7470636300000000ull
#define STEP_EVERY 4096u /* records between two looks at the progress */

/* One node that is filled. */
struct filler {
	struct vb_load *l;
	uint16_t node;
	const struct vb_load_progress *progress;
	uint64_t done;
	struct vb_rng rng;
	/* Of the district that is filled: customers of each name. */
	struct tpcc_name *named;
	uint16_t name_of[TPCC_CUSTOMERS];
	char first[TPCC_CUSTOMERS][16];
};

static int put(struct filler *f, unsigned t, uint64_t key, const void *record)
{
	int err = vb_table_load(f->l->table[t], key, record);

	if (err == 0 && ++f->done % STEP_EVERY == 0 &&
	    !f->progress->step(f->progress->ctx, f->done))
		err = -EINTR;
	return err;
}

static unsigned draw(struct filler *f, unsigned least, unsigned most)
{
	return least + (unsigned)vb_rng_below(&f->rng, most - least + 1);
}

/* least to `size` letters, and zeros behind them. */
static void letters(struct filler *f, char *to, unsigned least, unsigned size)
{
	unsigned n = least < size ? draw(f, least, size) : size;

	memset(to + n, 0, size - n);
	for (unsigned i = 0; i < n; i += 8) {
		uint64_t w = vb_rng_next(&f->rng);

		for (unsigned k = i; k < n && k < i + 8; k++, w >>= 8)
			to[k] = (char)('a' + (w & 15));
	}
}

static void digits(struct filler *f, char *to, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		to[i] = (char)('0' + vb_rng_below(&f->rng, 10));
}

/* Of a row in ten. */
static void maybe_original(struct filler *f, char *data, unsigned size)
{
	static const char word[] = {'O', 'R', 'I', 'G', 'I', 'N', 'A', 'L'};

	if (vb_rng_chance(&f->rng, 0.1))
		memcpy(data + draw(f, 0, 26 - sizeof(word)), word, sizeof(word));
	data[size - 1] = '\0';
}

static void address(struct filler *f, struct tpcc_address *a)
{
	letters(f, a->street_1, 10, sizeof(a->street_1));
	letters(f, a->street_2, 10, sizeof(a->street_2));
	letters(f, a->city, 10, sizeof(a->city));
	letters(f, a->state, sizeof(a->state), sizeof(a->state));
	digits(f, a->zip, 4);
	memset(a->zip + 4, '1', sizeof(a->zip) - 4);
}

void vb_tpcc_last_name(uint32_t name, char *to, size_t size)
{
	static const char *const part[] = {"BAR", "OUGHT", "ABLE",  "PRI",   "PRES",
					   "ESE", "ANTI",  "CALLY", "ATION", "EING"};

	snprintf(to, size, "%s%s%s", part[name / 100 % 10], part[name / 10 % 10], part[name % 10]);
}

static int fill_items(struct filler *f)
{
	int err = 0;

	for (uint32_t i = 0; i < tpcc_db_of(f->l)->items && err == 0; i++) {
		struct tpcc_item r = {.image = draw(f, 1, 10000), .price = draw(f, 100, 10000)};

		letters(f, r.name, 14, sizeof(r.name));
		letters(f, r.data, 26, sizeof(r.data));
		maybe_original(f, r.data, sizeof(r.data));
		err = put(f, TPCC_ITEM, tpcc_key_at(f->node, 0, 0, i, 0), &r);
	}
	return err;
}

static int fill_stock(struct filler *f, uint32_t w)
{
	int err = 0;

	for (uint32_t i = 0; i < tpcc_db_of(f->l)->items && err == 0; i++) {
		struct tpcc_stock r = {.quantity = (int32_t)draw(f, 10, 100)};

		for (unsigned d = 0; d < TPCC_DISTRICTS; d++)
			letters(f, r.district[d], sizeof(r.district[d]), sizeof(r.district[d]));
		letters(f, r.data, 26, sizeof(r.data));
		maybe_original(f, r.data, sizeof(r.data));
		err = put(f, TPCC_STOCK, tpcc_key(f->l, w, 0, i, 0), &r);
	}
	return err;
}

/* ---- customers ---- */

static int fill_customer(struct filler *f, uint32_t w, uint32_t d, uint32_t n)
{
	struct tpcc_customer r = {
		.balance = -TPCC_START_YTD,
		.ytd_payment = TPCC_START_YTD,
		.payments = 1,
		.credit_limit = 5000000,
		.since = 1,
		.discount = draw(f, 0, 5000),
		.middle = {'O', 'E'},
	};
	struct tpcc_history h = {
		.amount = TPCC_START_YTD,
		.date = 1,
		.warehouse = w,
		.district = d,
		.customer = n,
	};
	char last[24] = "";
	int err;

	vb_tpcc_last_name(f->name_of[n], last, sizeof(last));
	memcpy(r.last, last, sizeof(r.last));
	memcpy(r.credit, draw(f, 1, 10) == 1 ? "BC" : "GC", sizeof(r.credit));
	letters(f, f->first[n], 8, sizeof(f->first[n]));
	memcpy(r.first, f->first[n], sizeof(r.first));
	address(f, &r.address);
	digits(f, r.phone, sizeof(r.phone));
	letters(f, r.data, 300, sizeof(r.data));
	letters(f, h.data, 12, sizeof(h.data));
	err = put(f, TPCC_CUSTOMER, tpcc_key(f->l, w, d, n, 0), &r);
	return err ? err : put(f, TPCC_HISTORY, tpcc_key(f->l, w, d, n + 1, 0), &h);
}

/* The first have a name each, the others one that is drawn (clause 4.3.3.1); a
 * name that too many have gives way to the next. */
static void name_customers(struct filler *f)
{
	const struct tpcc_db *db = tpcc_db_of(f->l);

	memset(f->named, 0, db->names * sizeof(*f->named));
	for (uint32_t i = 0; i < db->customers; i++) {
		uint32_t name = i < db->names ? i
					      : (uint32_t)vb_trace_nurand(&f->rng, TPCC_NAME_RUN,
									  db->names);

		while (f->named[name].n == TPCC_SAME_NAME)
			name = (name + 1) % db->names;
		f->name_of[i] = (uint16_t)name;
		f->named[name].customer[f->named[name].n++] = (uint16_t)i;
	}
}

static bool is_before(const struct filler *f, unsigned a, unsigned b)
{
	return memcmp(f->first[a], f->first[b], sizeof(f->first[a])) < 0;
}

static int put_name(struct filler *f, uint32_t w, uint32_t d, uint32_t name,
		    const struct tpcc_name *r)
{
	int err = 0;

	if (!tpcc_opts_of(f->l)->ranges)
		return put(f, TPCC_NAME, tpcc_key(f->l, w, d, name, 0), r);
	for (unsigned i = 0; i < r->n && err == 0; i++) {
		struct tpcc_named one = {.customer = r->customer[i]};

		err = put(f, TPCC_NAME, tpcc_name_key(f->l, w, d, name, i), &one);
	}
	return err;
}

static int fill_names(struct filler *f, uint32_t w, uint32_t d)
{
	int err = 0;

	for (uint32_t name = 0; name < tpcc_db_of(f->l)->names && err == 0; name++) {
		struct tpcc_name *r = &f->named[name];

		for (unsigned i = 1; i < r->n; i++) {
			uint16_t moved = r->customer[i];
			unsigned k = i;

			for (; k > 0 && is_before(f, moved, r->customer[k - 1]); k--)
				r->customer[k] = r->customer[k - 1];
			r->customer[k] = moved;
		}
		err = put_name(f, w, d, name, r);
	}
	return err;
}

/* ---- orders ---- */

static int fill_order(struct filler *f, uint32_t w, uint32_t d, uint32_t number, uint32_t customer)
{
	bool delivered = number <= tpcc_db_of(f->l)->delivered;
	struct tpcc_order o = {
		.entered = 1,
		.customer = customer,
		.carrier = delivered ? (uint8_t)draw(f, 1, 10) : 0,
		.lines = (uint8_t)draw(f, TPCC_LINES_LEAST, TPCC_LINES_MOST),
		.all_local = 1,
	};
	struct tpcc_new_order waiting = {.order = number};
	struct tpcc_last_order last = {.order = number};
	int err = put(f, TPCC_ORDER, tpcc_key(f->l, w, d, number, 0), &o);

	if (err == 0)
		err = put(f, TPCC_LAST_ORDER,
			  tpcc_opts_of(f->l)->ranges ? tpcc_last_key(w, d, customer, number)
						     : tpcc_key(f->l, w, d, customer, 0),
			  &last);
	if (err == 0 && !delivered)
		err = put(f, TPCC_NEW_ORDER, tpcc_key(f->l, w, d, number, 0), &waiting);
	for (unsigned i = 0; i < o.lines && err == 0; i++) {
		struct tpcc_order_line r = {
			.item = draw(f, 0, tpcc_db_of(f->l)->items - 1),
			.supplier = w,
			.quantity = 5,
			.delivered = delivered,
			.amount = delivered ? 0 : draw(f, 1, 999999),
		};

		letters(f, r.district, sizeof(r.district), sizeof(r.district));
		err = put(f, TPCC_ORDER_LINE, tpcc_key(f->l, w, d, number, i), &r);
	}
	return err;
}

static int fill_district(struct filler *f, uint32_t w, uint32_t d)
{
	const struct tpcc_db *db = tpcc_db_of(f->l);
	struct tpcc_district r = {
		.ytd = (int64_t)db->customers * TPCC_START_YTD,
		.tax = draw(f, 0, 2000),
		.next_order = db->customers + 1,
		.payments = db->customers,
	};
	struct tpcc_delivery next = {.next = db->delivered + 1};
	struct vb_scatter order; /* each customer has one order */
	uint32_t turn;
	int err;

	letters(f, r.name, 6, sizeof(r.name));
	address(f, &r.address);
	err = put(f, TPCC_DISTRICT, tpcc_key(f->l, w, d, 0, 0), &r);
	if (err == 0 && !tpcc_opts_of(f->l)->ranges)
		err = put(f, TPCC_DELIVERY, tpcc_key(f->l, w, d, 0, 0), &next);
	name_customers(f);
	for (uint32_t i = 0; i < db->customers && err == 0; i++)
		err = fill_customer(f, w, d, i);
	if (err == 0)
		err = fill_names(f, w, d);
	vb_scatter_init(&order, db->customers);
	turn = draw(f, 0, db->customers - 1);
	for (uint32_t i = 0; i < db->customers && err == 0; i++)
		err = fill_order(f, w, d, i + 1,
				 (uint32_t)vb_scatter(&order, (i + turn) % db->customers));
	return err;
}

static int fill_warehouse(struct filler *f, uint32_t w)
{
	struct tpcc_warehouse r = {
		.ytd = (int64_t)tpcc_db_of(f->l)->customers * TPCC_DISTRICTS * TPCC_START_YTD,
		.tax = draw(f, 0, 2000),
	};
	int err;

	letters(f, r.name, 6, sizeof(r.name));
	address(f, &r.address);
	err = put(f, TPCC_WAREHOUSE, tpcc_key(f->l, w, 0, 0, 0), &r);
	if (err == 0)
		err = fill_stock(f, w);
	for (uint32_t d = 0; d < TPCC_DISTRICTS && err == 0; d++)
		err = fill_district(f, w, d);
	return err;
}

int vb_tpcc_fill(struct vb_load *l, uint16_t node, const struct vb_load_progress *progress)
{
	const struct tpcc_db *db = l->own;
	struct filler f = {.l = l, .node = node, .progress = progress};
	int err;

	f.named = calloc(db->names, sizeof(*f.named));
	if (f.named == NULL)
		return vb_fail(-ENOMEM, "no memory for names");
	/* The items are the same everywhere. */
	vb_rng_seed(&f.rng, l->seed, POPULATION);
	err = fill_items(&f);
	for (uint32_t w = node; w < db->warehouses && err == 0; w += l->nodes) {
		vb_rng_seed(&f.rng, l->seed, POPULATION + 1 + w);
		err = fill_warehouse(&f, w);
	}
	free(f.named);
	return err;
}

/* Lines as many as there are on average. */
uint64_t vb_tpcc_records(const struct vb_load *l)
{
	const struct tpcc_db *db = l->own;
	uint64_t names = tpcc_opts_of(l)->ranges ? db->customers : db->names;
	uint64_t district = 2 + names + 4ull * db->customers + (db->customers - db->delivered) +
			    (TPCC_LINES_LEAST + TPCC_LINES_MOST) / 2 * (uint64_t)db->customers;

	return (uint64_t)l->nodes * db->items +
	       db->warehouses * (1 + db->items + TPCC_DISTRICTS * district);
}
