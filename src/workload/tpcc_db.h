/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TPC-C as transactions: its tables, as the files of this workload share them.
 *
 *	tpcc_db.c     options, sizes, draws, and the operations that the lab calls
 *	tpcc_fill.c   the population (clause 4.3.3)
 *	tpcc_txn.c    the five transactions (clause 2)
 *	tpcc_ahead.c  what of their keys is known before they read anything, with --ahead
 *	tpcc_range.c  what of them is found by a scan, with --ranges
 *	tpcc_judge.c  the consistency conditions (clause 3.3.2)
 *
 * All that belongs to a warehouse lies on one node, and each node has a copy of the items, which are
 * only read.  A key has five fields:
 *
 *	 63        48 47        32 31    28 27        4 3    0
 *	+------------+------------+--------+-----------+------+
 *	| node       | warehouse  | distr. | row       | line |
 *	+------------+------------+--------+-----------+------+
 *
 * Three tables are not TPC-C's.  They take the place of its secondary indexes and of the search for
 * the oldest order: customers of a name (which never changes), a customer's last order, and the order
 * that a district delivers next.
 *
 * With --ranges the third is not there, and the first two are indexes: a row for each customer, of a name
 * by their first names, and a row for each order, of a customer by its number.  They, new_order and
 * order_line are ordered, and are scanned.
 *
 * Orders, their lines and payments are added for as long as a district has room; then the run ends.
 */
#ifndef VB_WORKLOAD_TPCC_DB_H
#define VB_WORKLOAD_TPCC_DB_H

#include "workload/loads.h"

#define TPCC_DISTRICTS     10u
#define TPCC_CUSTOMERS     3000u /* of a district */
#define TPCC_ITEMS         100000u
#define TPCC_LINES_LEAST   5u
#define TPCC_LINES_MOST    15u
#define TPCC_SAME_NAME     127u /* customers of a district */
#define TPCC_DB_WAREHOUSES 65536u
#define TPCC_ROWS          (1u << 24)
#define TPCC_RECENT        20u  /* orders that stock-level looks at */
#define TPCC_START_YTD     1000 /* cents that each customer has paid at first */
#define TPCC_ORDER_BITS    4    /* of a key: an order's lines */
#define TPCC_NAME_BITS     7    /* customers of a name, of a district */
#define TPCC_LAST_BITS     32   /* orders of a customer */

enum vb_tpcc_table {
	TPCC_WAREHOUSE,
	TPCC_DISTRICT,
	TPCC_CUSTOMER,
	TPCC_HISTORY,
	TPCC_NEW_ORDER,
	TPCC_ORDER,
	TPCC_ORDER_LINE,
	TPCC_ITEM,
	TPCC_STOCK,
	TPCC_NAME,
	TPCC_LAST_ORDER,
	TPCC_DELIVERY,
	TPCC_TABLES
};

enum vb_tpcc_type {
	TPCC_NEW_ORDERS,
	TPCC_PAYMENT,
	TPCC_ORDER_STATUS,
	TPCC_DELIVER,
	TPCC_STOCK_LEVEL,
	TPCC_KINDS
};

/* Money is in cents, rates in hundredths of a percent, dates are numbers above
 * 0. */
struct tpcc_address {
	char street_1[20], street_2[20], city[20], state[2], zip[9];
};
struct tpcc_warehouse {
	int64_t ytd;
	uint32_t tax;
	char name[10];
	struct tpcc_address address;
};
struct tpcc_district {
	int64_t ytd;
	uint32_t next_order;
	uint32_t payments; /* not TPC-C's: the number of the last row of history */
	uint32_t tax;
	char name[10];
	struct tpcc_address address;
};
struct tpcc_customer {
	int64_t balance, ytd_payment, credit_limit;
	uint64_t since;
	uint32_t payments, deliveries, discount;
	char credit[2], first[16], middle[2], last[16];
	struct tpcc_address address;
	char phone[16], data[500];
};
struct tpcc_history {
	int64_t amount;
	uint64_t date;
	uint32_t warehouse, district, customer; /* whose payment; the key says where it was made */
	char data[24];
};
struct tpcc_new_order {
	uint32_t order;
};
struct tpcc_order {
	uint64_t entered;
	uint32_t customer;
	uint8_t carrier, lines, all_local; /* carrier 0: none yet */
};
struct tpcc_order_line {
	uint64_t delivered; /* 0: not yet */
	int64_t amount;
	uint32_t item, supplier;
	uint8_t quantity;
	char district[24];
};
struct tpcc_item {
	int64_t price;
	uint32_t image;
	char name[24], data[50];
};
struct tpcc_stock {
	uint64_t ytd;
	int32_t quantity;
	uint32_t orders, remote;
	char district[TPCC_DISTRICTS][24];
	char data[50];
};
/* By first name, as by-name lookups want them. */
struct tpcc_name {
	uint16_t n, customer[TPCC_SAME_NAME];
};
struct tpcc_last_order {
	uint32_t order;
};
/* With --ranges, in the place of tpcc_name; and tpcc_last_order is an order. */
struct tpcc_named {
	uint16_t customer;
};
struct tpcc_delivery {
	uint32_t next;
};

struct tpcc_opts {
	uint64_t warehouses, orders, items, customers;
	double remote_item, remote_payment, rollback;
	int mix;
	bool fixed, no_inserts, no_declare, ranges, ahead;
};

/* What the next order, or payment, of a district is going to be numbered: see tpcc_ahead.c. */
enum tpcc_numbered { TPCC_ORDERS, TPCC_PAYMENTS, TPCC_NUMBERED };

struct tpcc_db {
	uint32_t warehouses, each; /* in all, and of a node */
	uint32_t customers, items, names;
	uint32_t delivered;  /* orders of a district that were delivered before the
                          first run */
	uint32_t orders_max; /* of a district */
	/* With --ahead, for each district; what all its processes have in common. */
	uint64_t (*guess)[TPCC_NUMBERED];
	/* With --ranges, for each district: no order before this one waits (tpcc_range.c). */
	uint32_t waits_from[];
};

/* What a client has drawn. */
struct tpcc_drawn {
	uint32_t warehouse, district, customer; /* customer: number, or with by_name the name's */
	uint32_t customer_warehouse, customer_district;
	bool by_name;
	uint64_t date; /* how many transactions the client has drawn */
	unsigned lines;
	struct {
		uint32_t item, supplier;
		uint8_t quantity;
	} line[TPCC_LINES_MOST];
	int64_t amount;
	uint8_t carrier;
	int32_t threshold;
	const char *strange; /* the last attempt has read what can only be if it does
                          not commit */
	/* stock-level: items that it has met, by a hash. */
	uint32_t met[1024];
	/* With --ranges: what a scan gives, and the orders that the last attempt at a delivery took. */
	struct vb_txn_row row[TPCC_RECENT * TPCC_LINES_MOST];
	uint32_t took[TPCC_DISTRICTS];
	/* With --ahead: the customer of the name, and the number that the last attempt has guessed. */
	uint32_t of_name, guess, anew;
};

static inline const struct tpcc_db *tpcc_db_of(const struct vb_load *l)
{
	return l->own;
}

static inline const struct tpcc_opts *tpcc_opts_of(const struct vb_load *l)
{
	return l->options;
}

static inline uint64_t tpcc_key_at(uint64_t node, uint64_t w, uint64_t d, uint64_t row,
				   uint64_t line)
{
	return node << 48 | w << 32 | d << 28 | row << 4 | line;
}

static inline uint64_t tpcc_key(const struct vb_load *l, uint64_t w, uint64_t d, uint64_t row,
				uint64_t line)
{
	return tpcc_key_at(w % l->nodes, w, d, row, line);
}

/* In the index by last name: the customers of a name are from 0 on. */
static inline uint64_t tpcc_name_key(const struct vb_load *l, uint64_t w, uint64_t d, uint64_t name,
				     uint64_t at)
{
	return tpcc_key(l, w, d, 0, 0) | name << TPCC_NAME_BITS | at;
}

/* In the index of a customer's orders.  By the warehouse, modulo nodes, it is on the right one. */
static inline uint64_t tpcc_last_key(uint64_t w, uint64_t d, uint64_t customer, uint64_t order)
{
	_Static_assert(TPCC_CUSTOMERS <= 1u << 12, "12 bits");
	return w << 48 | d << 44 | customer << TPCC_LAST_BITS | order;
}

/* Of a name's number, three digits: its syllables (clause 4.3.2.3). */
void vb_tpcc_last_name(uint32_t name, char *to, size_t size);

int vb_tpcc_fill(struct vb_load *l, uint16_t node, const struct vb_load_progress *progress);
uint64_t vb_tpcc_records(const struct vb_load *l);
int vb_tpcc_body(struct vb_load_client *c, struct vb_coordinator *me);
int vb_tpcc_committed(struct vb_load_client *c);
/* The drawn customer's number; of those of a name the one in the middle. */
uint32_t vb_tpcc_customer(struct vb_load_client *c, struct vb_coordinator *me, int *err);
int vb_tpcc_scout(struct vb_load_client *c, struct vb_coordinator *me);
/* The number that this attempt is going to have.  False: the district has no room for it. */
bool vb_tpcc_guess(struct vb_load_client *c, enum tpcc_numbered what);
/* 0: it is that; else the attempt is given up, and what is to be returned. */
int vb_tpcc_guessed(struct vb_load_client *c, struct vb_coordinator *me, enum tpcc_numbered what,
		    uint32_t is);
int vb_tpcc_guessed_customer(struct vb_load_client *c, struct vb_coordinator *me, uint32_t is);
void vb_tpcc_count(const struct vb_load *l, uint16_t node, struct vb_load_sums *sums);
void vb_tpcc_moved(const struct vb_load *l, const struct vb_load_sums *sums,
		   int64_t by[VB_LOAD_CHANGES_MAX]);
int vb_tpcc_judge(const struct vb_load *l, const struct vb_load_sums *sums, const int64_t *change,
		  char *why, size_t size);

#endif
