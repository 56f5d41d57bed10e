/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of a log that servers write (the last digit of a hybrid code): a log that is longer than an inbox, servers
 * that stand still, are late, or are not there, and what is refused.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <xxhash.h>

#include "base/log.h"
#include "fabric/sim/sim.h"
#include "txn/copies.h"

#define US     1000ull
#define NODES  4u
#define HOME   0u /* its copies: 1 and 2 */
#define KEYS   6u
#define RECORD 8000u

#define must(call) assert_int_equal(call, 0)

struct world {
	struct vb_fabric *f;
	struct vb_db *db;
	struct vb_table *t;
	struct vb_db_server *server[NODES];
	struct vb_coordinator *a, *b;
	struct vb_txn_watch watch;
	bool cut; /* when it is about to write its records */
	uint64_t
		stands_ns; /* not 0: it is cut off when it is about to write its log, and stands still so long */
	uint8_t byte;
	int err;
	bool told;
};

static const struct vb_db_params params = {.cc = "silo",
					   .hybrid = "000001",
					   .coordinators = 2,
					   .items_max = 8,
					   .bytes_max = KEYS * RECORD,
					   .record_bytes_max = RECORD,
					   .lease_ns = 200 * US,
					   .copies = 2};

/* All on the last node. */
static uint64_t key_of(unsigned i)
{
	return (uint64_t)(NODES - 1) << 48 | (1 + i);
}

static void on_passed(void *ctx, const struct vb_txn *t)
{
	struct world *w = ctx;

	if (!w->cut || t->me != w->a)
		return;
	w->cut = false;
	vb_sim_disown_node(w->f, HOME);
	vb_sim_ep_pause(w->a->ep, vb_sim_now(w->f) + 50000 * US);
}

static void on_any(void *ctx, const struct vb_txn *t)
{
	(void)ctx;
	(void)t;
}

static void on_ended(void *ctx, const struct vb_txn *t, bool committed)
{
	(void)ctx;
	(void)t;
	(void)committed;
}

static void open_world(struct world *w, unsigned servers)
{
	const struct vb_fabric_params fp = {.fabric = "sim",
					    .options = "profile=cx5,bound=25us,scope=nic",
					    .nodes = NODES,
					    .node_bytes = 8 << 20};
	const struct vb_table_params tp = {.name = "t",
					   .record_bytes = RECORD,
					   .records = 16,
					   .partition = VB_PARTITION_TOP16};
	unsigned char *record = calloc(1, RECORD);

	memset(w, 0, sizeof(*w));
	must(vb_fabric_open(&fp, &w->f));
	must(vb_db_open(w->f, &params, &w->db));
	must(vb_table_open(w->db, &tp, &w->t));
	for (unsigned i = 0; i < KEYS; i++)
		must(vb_table_load(w->t, key_of(i), record));
	free(record);
	for (uint16_t n = 0; n < servers; n++)
		must(vb_db_server_start(w->db, n, &w->server[n]));
	must(vb_coordinator_open(w->db, HOME, &w->a));
	must(vb_coordinator_open(w->db, NODES - 1, &w->b));
	w->watch = (struct vb_txn_watch){.ctx = w,
					 .prepared = on_any,
					 .passed = on_passed,
					 .ended = on_ended,
					 .unknown = on_any};
	w->db->watch = &w->watch;
}

static void close_world(struct world *w)
{
	vb_coordinator_close(w->a);
	vb_coordinator_close(w->b);
	for (unsigned n = 0; n < NODES; n++)
		vb_db_server_stop(w->server[n]);
	must(vb_db_close(w->db));
	vb_fabric_close(w->f);
}

/* n records become w->byte all over. */
static int write_some(struct world *w, struct vb_coordinator *me, unsigned n)
{
	int err = vb_txn_begin(me);

	for (unsigned i = 0; i < n && err == 0; i++) {
		void *record;

		err = vb_txn_update(me, w->t, key_of(i), &record);
		if (err == 0)
			memset(record, w->byte, RECORD);
	}
	return err == 0 ? vb_txn_commit(me) : err;
}

static void writes_all(void *arg)
{
	struct world *w = arg;

	/* What it has given up before may stand in its way. */
	while ((w->err = write_some(w, w->a, KEYS)) != 0 && w->cut)
		(void)vb_ep_sleep(w->a->ep, 100 * US);
	w->told = true;
}

struct found {
	struct world *w;
	uint8_t byte[KEYS];
};

static int look(struct vb_coordinator *me, void *arg)
{
	struct found *f = arg;

	for (unsigned i = 0; i < KEYS; i++) {
		unsigned char record[RECORD];
		int err = vb_txn_read(me, f->w->t, key_of(i), record);

		if (err != 0)
			return err;
		f->byte[i] = record[0];
		for (unsigned k = 1; k < RECORD; k++)
			assert_int_equal(record[k], record[0]);
	}
	return 0;
}

/* All records are the same: what. */
static uint8_t what_all_are(struct world *w)
{
	struct found f = {.w = w};
	int err;

	do
		err = vb_txn_run(w->b, look, &f, 0);
	while (err == -VB_EPEERGONE || err == -VB_EUNKNOWN);
	must(err);
	for (unsigned i = 1; i < KEYS; i++)
		assert_int_equal(f.byte[i], f.byte[0]);
	return f.byte[0];
}

/* Its node is taken for gone when it has committed, and it stands still. */
static void finished_by_others(struct world *w)
{
	static const struct vb_task_params task = {.name = "writes"};
	struct vb_task *t;

	w->cut = true;
	must(vb_task_spawn(w->a->ep->sched, writes_all, w, &task, &t));
	while (w->cut && !w->told)
		must(vb_ep_sleep(w->b->ep, 10 * US));
	assert_false(w->told);
	assert_int_equal(what_all_are(w), w->byte);
	assert_false(w->told);
	while (!w->told)
		must(vb_ep_sleep(w->b->ep, 100 * US));
	must(w->err);
	assert_int_equal(what_all_are(w), w->byte);
}

/* Three pieces to each copy, from which the others finish what its node has committed. */
static void a_long_log(void **state)
{
	struct world w;
	uint64_t calls;

	(void)state;
	open_world(&w, NODES);
	assert_true(KEYS * RECORD > 2 * w.db->call_bytes && KEYS * RECORD < 3 * w.db->call_bytes);
	w.byte = 6;
	calls = w.a->calls;
	must(write_some(&w, w.a, KEYS));
	assert_int_equal(w.a->calls - calls, 3 * 2);
	assert_int_equal(what_all_are(&w), 6);
	w.byte = 7;
	finished_by_others(&w);
	close_world(&w);
}

/* It is given up and withdrawn; what it does when it goes on is nothing to the next. */
static void a_server_stands_still(void **state)
{
	struct world w;

	(void)state;
	for (uint64_t us = 0; us < 4000; us += 100) {
		int err;

		open_world(&w, NODES);
		w.byte = 5;
		must(write_some(&w, w.a, 1));
		vb_sim_ep_pause(vb_db_server_ep(w.server[2]), vb_sim_now(w.f) + us * US);
		w.byte = 9;
		err = write_some(&w, w.a, KEYS);
		assert_true(err == 0 || err == -EAGAIN || err == -VB_EUNKNOWN ||
			    err == -VB_EPEERGONE);
		if (us == 0)
			must(err);
		if (us == 3900)
			assert_int_not_equal(err, 0);
		w.byte = 3;
		while (write_some(&w, w.a, 2) != 0)
			must(vb_ep_sleep(w.a->ep, 100 * US));
		must(vb_ep_sleep(w.a->ep, 5000 * US));
		/* ... and what they say now is enough to finish it. */
		w.byte = 4;
		finished_by_others(&w);
		close_world(&w);
	}
}

/* What others find when its node is taken for gone, and it has stood still and gone on. */
static bool happened(struct world *w)
{
	const uint8_t was = what_all_are(w);

	while (!w->told)
		must(vb_ep_sleep(w->b->ep, 100 * US));
	assert_true(was == 0 || was == w->byte);
	assert_int_equal(what_all_are(w), was);
	if (w->err != -VB_EUNKNOWN)
		assert_int_equal(was == w->byte, w->err == 0);
	return was == w->byte;
}

/* Between two pieces, too: then some of a log is at both copies. */
static void cut_off_at_each_moment(void **state)
{
	static const struct vb_task_params task = {.name = "writes"};
	unsigned did = 0, n = 0;

	(void)state;
	for (uint64_t ns = 500; ns < 80 * US; ns += 500, n++) {
		struct vb_task *t;
		struct world w;

		open_world(&w, NODES);
		w.byte = 7;
		must(vb_task_spawn(w.a->ep->sched, writes_all, &w, &task, &t));
		must(vb_ep_sleep(w.b->ep, ns));
		vb_sim_disown_node(w.f, HOME);
		vb_sim_ep_pause(w.a->ep, vb_sim_now(w.f) + 50000 * US);
		did += happened(&w);
		close_world(&w);
	}
	assert_true(did > 0 && did < n);
}

/* A copy that has been sealed takes nothing, by a server either: who was taken for gone commits nothing. */
static void sealed_by_others(void **state)
{
	(void)state;
	for (unsigned copy = 0; copy < 2; copy++) {
		struct world w;
		uint64_t word, old;
		vb_addr at;

		open_world(&w, NODES);
		w.byte = 6;
		must(write_some(&w, w.a, KEYS));
		at = vb_copy_at(w.db, vb_txn_lane(w.a)->place, copy);
		must(vb_read64(w.b->ep, at, &word));
		assert_int_equal(word & COPY_STATE, COPY_LOGGED);
		must(vb_cas64(w.b->ep, at, word, (word & ~COPY_STATE) | COPY_FINAL | COPY_SEALED,
			      &old));
		assert_int_equal(old, word);
		/* The next one is another place's. */
		w.byte = 7;
		must(write_some(&w, w.a, KEYS));
		w.byte = 8;
		assert_int_equal(write_some(&w, w.a, KEYS), -VB_EPEERGONE);
		assert_true(w.a->fenced);
		assert_int_equal(vb_txn_begin(w.a), -VB_EPEERGONE);
		assert_int_equal(what_all_are(&w), 7);
		close_world(&w);
	}
}

/* A word that says so has the log behind it, at each moment: others may go by it, whatever its server does next. */
static bool has_what_it_says(const struct world *w, vb_addr at)
{
	const uint64_t *word = vb_local(w->f, at, 8);
	const struct vb_place_head *head = (const void *)word;
	const uint32_t place = vb_txn_lane(w->a)->place;
	const uint64_t name = vb_ts_make(vb_ts_clock(*word), place);

	if ((*word & COPY_STATE) != COPY_LOGGED || vb_ts_clock(*word) != vb_ts_clock(w->a->txn.ts))
		return false;
	assert_true(head->log_bytes == w->a->lane[w->a->current].head->log_bytes);
	assert_true(XXH3_64bits_withSeed(head + 1, head->log_bytes, name) == head->log_seal);
	return true;
}

static void the_word_is_last(void **state)
{
	static const struct vb_task_params task = {.name = "writes"};
	unsigned seen = 0;
	struct world w;

	(void)state;
	open_world(&w, NODES);
	for (unsigned n = 0; n < 4; n++) {
		struct vb_task *t;

		w.byte = (uint8_t)(1 + n);
		w.told = false;
		must(vb_task_spawn(w.a->ep->sched, writes_all, &w, &task, &t));
		while (!w.told) {
			for (unsigned i = 0; i < 2; i++)
				seen += has_what_it_says(
					&w, vb_copy_at(w.db, vb_txn_lane(w.a)->place, i));
			must(vb_ep_sleep(w.b->ep, 20));
		}
		must(w.err);
	}
	assert_true(seen > 0);
	close_world(&w);
}

/* Nobody serves the second copy: nothing is committed, and nothing stays held.  Then somebody does. */
static void nobody_serves(void **state)
{
	struct world w;
	int err;

	(void)state;
	open_world(&w, 2);
	must(vb_db_server_start(w.db, NODES - 1, &w.server[NODES - 1]));
	w.byte = 8;
	err = write_some(&w, w.a, KEYS);
	assert_true(err != 0);
	must(vb_db_server_start(w.db, 2, &w.server[2]));
	w.byte = 9;
	while (write_some(&w, w.a, KEYS) != 0)
		must(vb_ep_sleep(w.a->ep, 100 * US));
	assert_int_equal(what_all_are(&w), 9);
	close_world(&w);
}

static void refused(void **state)
{
	struct vb_db_params p = params;
	struct vb_db *other = NULL;
	struct world w;

	(void)state;
	open_world(&w, 0);
	/* All processes write logs in the same way. */
	p.hybrid = "000000";
	assert_int_equal(vb_db_open(w.f, &p, &other), -EINVAL);
	p.hybrid = "00000";
	assert_int_equal(vb_db_open(w.f, &p, &other), -EINVAL);
	/* Stages are everybody's own affair; "rpc" is the log, too. */
	p.hybrid = "111111";
	must(vb_db_open(w.f, &p, &other));
	must(vb_db_close(other));
	p.hybrid = "rpc";
	must(vb_db_open(w.f, &p, &other));
	assert_true(other->log_by_rpc);
	must(vb_db_close(other));
	/* One for the log, and there is no copy of it; or more than there is. */
	p.name = "other";
	p.copies = 0;
	p.hybrid = "000001";
	assert_int_equal(vb_db_open(w.f, &p, &other), -EINVAL);
	p.copies = 2;
	p.hybrid = "0000001";
	assert_int_equal(vb_db_open(w.f, &p, &other), -EINVAL);
	close_world(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_long_log),
		cmocka_unit_test(a_server_stands_still),
		cmocka_unit_test(cut_off_at_each_moment),
		cmocka_unit_test(sealed_by_others),
		cmocka_unit_test(the_word_is_last),
		cmocka_unit_test(nobody_serves),
		cmocka_unit_test(refused),
	};

	if (vb_log_levels("off") != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
