/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orders for items in stock: what a transaction does about records that are not there, or there
 * already.
 *
 * An order checks the stock of several items, takes them and inserts its own record; a cancellation
 * gives them back and deletes it.  First step by step, with each answer that a shop has to expect;
 * then several shops at once, after which no item may be missing or sold twice.
 *
 * usage: inventory [PROTOCOL]
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <verbena/txn.h>

#define NODES  2
#define ITEMS  8
#define STOCK  300 /* of each item, to begin with */
#define SHOPS  3
#define ORDERS 200 /* of each shop */
#define LINES  3   /* of an order, each of another item */

/* Long: on a busy machine a server may not get its turn for a while. */
#define LEASE_NS 5000000000ull

#define OUT_OF_STOCK 1 /* an answer of ours: errors are negative */

struct item {
	uint32_t stock, sold;
};

struct line {
	uint32_t item, n;
};

struct order {
	uint64_t id;
	struct line line[LINES];
};

static struct vb_db *db;
static struct vb_table *items, *orders;

static void must(int err, const char *what)
{
	if (err == 0)
		return;
	fprintf(stderr, "%s: %s\n", what, err == OUT_OF_STOCK ? "out of stock" : vb_strerror(err));
	exit(1);
}

static void expect(int err, int wanted, const char *what)
{
	if (err != wanted) {
		fprintf(stderr, "%s: %d (%s) instead of %d\n", what, err, vb_strerror(err), wanted);
		exit(1);
	}
	printf("%s\n", what);
}

/* ---- bodies of transactions, for vb_txn_run ---- */

/* The body may run several times: it takes its orders from `arg` and changes nothing there. */
static int place(struct vb_coordinator *me, void *arg)
{
	const struct order *o = arg;
	struct vb_txn_key keys[LINES + 1];
	int err;

	/* All that will be touched, so that it is fetched (and locked, if the protocol locks)
	 * together. */
	for (unsigned i = 0; i < LINES; i++)
		keys[i] =
			(struct vb_txn_key){.table = items, .key = o->line[i].item, .write = true};
	keys[LINES] = (struct vb_txn_key){.table = orders, .key = o->id, .write = true};
	err = vb_txn_declare(me, keys, LINES + 1);

	/* -EEXIST does not abort by itself, but returning it does.  This order has been placed. */
	if (err == 0)
		err = vb_txn_insert(me, orders, o->id, o);
	for (unsigned i = 0; i < LINES && err == 0; i++) {
		struct item *it;

		err = vb_txn_update(me, items, o->line[i].item, (void **)&it);
		if (err == 0 && it->stock < o->line[i].n)
			return OUT_OF_STOCK; /* what this transaction has taken so far goes back */
		if (err == 0) {
			it->stock -= o->line[i].n;
			it->sold += o->line[i].n;
		}
	}
	return err;
}

static int cancel(struct vb_coordinator *me, void *arg)
{
	uint64_t id = *(const uint64_t *)arg;
	struct order o;
	int err = vb_txn_read(me, orders, id, &o); /* -ENOENT: no such order */

	for (unsigned i = 0; i < LINES && err == 0; i++) {
		struct item *it;

		err = vb_txn_update(me, items, o.line[i].item, (void **)&it);
		if (err == 0) {
			it->stock += o.line[i].n;
			it->sold -= o.line[i].n;
		}
	}
	return err ? err : vb_txn_delete(me, orders, id);
}

static int look(struct vb_coordinator *me, void *arg)
{
	struct item *all = arg;
	int err = 0;

	for (unsigned i = 0; i < ITEMS && err == 0; i++)
		err = vb_txn_read(me, items, i, &all[i]);
	return err;
}

/* ---- step by step ---- */

static void show(struct vb_coordinator *me)
{
	struct order o = {.id = 1000000, .line = {{0, 5}, {1, 2}, {2, 1}}};
	struct order greedy = {.id = 1000001, .line = {{3, 1}, {4, STOCK + 1}, {5, 1}}};
	struct order stranger = {.id = 1000002, .line = {{0, 1}, {1, 1}, {ITEMS, 1}}};
	struct item all[ITEMS], *it;
	uint64_t none = 1000003;

	expect(vb_txn_run(me, place, &o, 0), 0, "an order is placed");
	expect(vb_txn_run(me, place, &o, 0), -EEXIST, "the same order again: there is one");
	expect(vb_txn_run(me, place, &greedy, 0), OUT_OF_STOCK, "too large an order: out of stock");
	expect(vb_txn_run(me, cancel, &greedy.id, 0), -ENOENT,
	       "... and no record of it has stayed behind");
	expect(vb_txn_run(me, place, &stranger, 0), -ENOENT, "an item that nobody sells: none");
	expect(vb_txn_run(me, cancel, &none, 0), -ENOENT,
	       "cancelling what was never ordered: none");
	expect(vb_txn_run(me, cancel, &o.id, 0), 0, "the first order is cancelled");
	expect(vb_txn_run(me, cancel, &o.id, 0), -ENOENT, "twice is once too often: none");

	/* Without vb_txn_run: begin, change, think better of it. */
	must(vb_txn_begin(me), "begin");
	must(vb_txn_update(me, items, 6, (void **)&it), "update");
	it->stock = 0;
	vb_txn_abort(me);
	must(vb_txn_run(me, look, all, 0), "look at the stock");
	for (unsigned i = 0; i < ITEMS; i++)
		if (all[i].stock != STOCK || all[i].sold != 0) {
			fprintf(stderr, "item %u: %u in stock, %u sold\n", i, all[i].stock,
				all[i].sold);
			exit(1);
		}
	printf("given up by hand: the stock is what it was\n");
}

/* ---- several shops ---- */

struct shop {
	pthread_t thread;
	uint16_t number;
	uint64_t placed, cancelled, refused;
	int err;
};

static void *sell(void *arg)
{
	struct shop *s = arg;
	struct vb_coordinator *me;

	s->err = vb_coordinator_open(db, s->number % NODES, &me);
	if (s->err)
		return NULL;
	for (uint32_t i = 0; i < ORDERS && s->err == 0; i++) {
		struct order o = {.id = (uint64_t)s->number * ORDERS + i};

		for (uint32_t k = 0; k < LINES; k++)
			o.line[k] = (struct line){(s->number + i * 3 + k) % ITEMS, 1 + i % 3};
		s->err = vb_txn_run(me, place, &o, 0);
		if (s->err == OUT_OF_STOCK) {
			s->err = 0;
			s->refused++;
			continue;
		}
		s->placed += s->err == 0;
		if (s->err == 0 && i % 4 == 0) {
			s->err = vb_txn_run(me, cancel, &o.id, 0);
			s->cancelled += s->err == 0;
		}
	}
	vb_coordinator_close(me);
	return NULL;
}

/* What the orders say has been sold, against what the items say; each order in a transaction of its
 * own, because nobody is selling any more. */
static int read_order(struct vb_coordinator *me, void *arg)
{
	struct order *o = arg;

	return vb_txn_read(me, orders, o->id, o);
}

static int balance(struct vb_coordinator *me)
{
	uint64_t ordered[ITEMS] = {0};
	struct item all[ITEMS];
	int wrong = 0;

	for (uint64_t id = 0; id < (uint64_t)SHOPS * ORDERS; id++) {
		struct order o = {.id = id};
		int err = vb_txn_run(me, read_order, &o, 0);

		if (err == -ENOENT)
			continue;
		must(err, "read an order");
		for (unsigned k = 0; k < LINES; k++)
			ordered[o.line[k].item] += o.line[k].n;
	}
	must(vb_txn_run(me, look, all, 0), "look at the stock");
	for (unsigned i = 0; i < ITEMS; i++) {
		if (all[i].sold == ordered[i] && all[i].sold + all[i].stock == STOCK)
			continue;
		fprintf(stderr, "item %u: %u in stock, %u sold, %llu ordered\n", i, all[i].stock,
			all[i].sold, (unsigned long long)ordered[i]);
		wrong = 1;
	}
	return wrong;
}

static int sell_together(void)
{
	struct shop shop[SHOPS] = {0};
	uint64_t placed = 0, cancelled = 0, refused = 0;

	for (uint16_t i = 0; i < SHOPS; i++) {
		shop[i].number = i;
		must(-pthread_create(&shop[i].thread, NULL, sell, &shop[i]), "make a thread");
	}
	for (unsigned i = 0; i < SHOPS; i++) {
		pthread_join(shop[i].thread, NULL);
		must(shop[i].err, "a shop");
		placed += shop[i].placed;
		cancelled += shop[i].cancelled;
		refused += shop[i].refused;
	}
	printf("%llu orders placed, %llu of them cancelled, %llu refused\n",
	       (unsigned long long)placed, (unsigned long long)cancelled,
	       (unsigned long long)refused);
	return placed == 0 || refused == 0;
}

/* ---- the shop ---- */

static void open_tables(void)
{
	must(vb_table_open(db,
			   &(struct vb_table_params){.name = "item",
						     .record_bytes = sizeof(struct item),
						     .records = ITEMS},
			   &items),
	     "open the table of items");
	/* Room also for orders that were looked for and not found: that they are not there takes a
	 * place. */
	must(vb_table_open(db,
			   &(struct vb_table_params){.name = "order",
						     .record_bytes = sizeof(struct order),
						     .records = SHOPS * ORDERS + 10,
						     .partition = VB_PARTITION_HASH},
			   &orders),
	     "open the table of orders");
	for (uint64_t i = 0; i < ITEMS; i++)
		must(vb_table_load(items, i, &(struct item){.stock = STOCK}), "load an item");
}

int main(int argc, char **argv)
{
	struct vb_fabric *fabric;
	struct vb_db_server *server[NODES];
	struct vb_coordinator *me;
	int wrong;

	if (argc > 2) {
		fprintf(stderr, "usage: inventory [PROTOCOL]\n");
		return 2;
	}
	must(vb_fabric_open(&(struct vb_fabric_params){.fabric = "shm", .nodes = NODES}, &fabric),
	     "open the fabric");
	must(vb_db_open(fabric,
			&(struct vb_db_params){.cc = argc > 1 ? argv[1] : "silo",
					       .lease_ns = LEASE_NS},
			&db),
	     "open the database");
	open_tables();
	for (uint16_t i = 0; i < NODES; i++)
		must(vb_db_server_thread_start(db, i, &server[i]), "start a server");
	must(vb_coordinator_open(db, 0, &me), "open a coordinator");

	show(me);
	wrong = sell_together();
	wrong |= balance(me);

	vb_coordinator_close(me);
	for (uint16_t i = 0; i < NODES; i++)
		vb_db_server_stop(server[i]);
	vb_db_close(db);
	vb_fabric_close(fabric);
	return wrong;
}
