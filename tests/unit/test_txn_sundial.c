/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sundial's lock word: a held one names one lock and never comes back, nobody takes one that he
 * finds for his own, one that was left behind is recovered whatever its place does, and the last
 * logical time is an end and not a wrap.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "cc/sundial.h"
#include "txn/db.h"

#define KEY      1
#define OTHER    2
#define LEASE_NS 20000000ull
#define SOON_NS  5000000000ull

struct world {
	struct vb_fabric *f;
	struct vb_db *db;
	struct vb_table *t;
	struct vb_db_server *server;
	struct vb_coordinator *a, *b;
};

#define must(call) assert_int_equal(call, 0)

static void open_world(struct world *w)
{
	const struct vb_fabric_params fp = {.fabric = "shm", .nodes = 1, .node_bytes = 32 << 20};
	const struct vb_db_params dp = {.cc = "sundial", .lease_ns = LEASE_NS, .coordinators = 4};
	const struct vb_table_params tp = {.name = "t", .record_bytes = 8, .records = 16};
	uint64_t record = 100;

	must(vb_fabric_open(&fp, &w->f));
	must(vb_db_open(w->f, &dp, &w->db));
	must(vb_table_open(w->db, &tp, &w->t));
	for (uint64_t k = 0; k < 4; k++)
		must(vb_table_load(w->t, k, &record));
	must(vb_db_server_start(w->db, 0, &w->server));
	must(vb_coordinator_open(w->db, 0, &w->a));
	must(vb_coordinator_open(w->db, 0, &w->b));
}

static void close_world(struct world *w)
{
	vb_coordinator_close(w->a);
	vb_coordinator_close(w->b);
	vb_db_server_stop(w->server);
	vb_db_close(w->db);
	vb_fabric_close(w->f);
}

static uint64_t *lock_word(struct world *w)
{
	return vb_local(w->f, vb_table_find(w->t, 0, KEY) + w->t->layout.lock_at, 8);
}

/* Adds one; 0 or why not. */
static int add(struct world *w, struct vb_coordinator *me, uint64_t key)
{
	uint64_t *record;
	int err = vb_txn_begin(me);

	if (err == 0)
		err = vb_txn_update(me, w->t, key, (void **)&record);
	if (err == 0) {
		++*record;
		err = vb_txn_commit(me);
	}
	vb_txn_abort(me);
	return err;
}

static uint64_t value(struct world *w)
{
	uint64_t record;
	int err;

	/* On a busy machine a read may be told to try again. */
	do {
		err = vb_txn_begin(w->b);
		if (err == 0)
			err = vb_txn_read(w->b, w->t, KEY, &record);
		if (err == 0)
			err = vb_txn_commit(w->b);
		vb_txn_abort(w->b);
	} while (err == -EAGAIN);
	must(err);
	return record;
}

static void no_held_word_comes_back(void **state)
{
	uint64_t seen[6], *record;
	struct world w;

	(void)state;
	open_world(&w);
	for (unsigned i = 0; i < 6; i++) {
		uint64_t was = *lock_word(&w);

		assert_true(sundial_whose(was).shown == 0);
		must(vb_txn_begin(w.a));
		must(vb_txn_update(w.a, w.t, KEY, (void **)&record));
		seen[i] = *lock_word(&w);
		assert_int_equal(seen[i], sundial_locked(w.a->txn.ts, was));
		assert_true(vb_name_fits(sundial_whose(seen[i]), w.a->txn.ts));
		assert_int_equal(vb_name_place(sundial_whose(seen[i])), vb_ts_place(w.a->txn.ts));
		++*record;
		if (i % 2)
			must(vb_txn_commit(w.a));
		else
			vb_txn_abort(w.a);
		assert_true(*lock_word(&w) > was);
		for (unsigned k = 0; k < i; k++)
			assert_true((seen[k] & SUNDIAL_RTS) < (seen[i] & SUNDIAL_RTS));
	}
	assert_int_equal(value(&w), 103);
	close_world(&w);
}

/* Whoever has the place now is busy with another record, or idle. */
static void left_behind(bool busy)
{
	uint64_t *record, end;
	struct world w;

	open_world(&w);
	must(vb_txn_begin(w.a));
	must(vb_txn_get(w.a, w.t, KEY, (const void **)&record));
	/* As if a server had taken it for another transaction of the place, whose name looks the
	 * same, and had not told. */
	*lock_word(&w) = sundial_locked(w.a->txn.ts, *lock_word(&w));
	assert_int_equal(vb_txn_update(w.a, w.t, KEY, (void **)&record), -EAGAIN);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_LOCKED);
	vb_txn_abort(w.a);
	must(add(&w, w.a, OTHER));
	must(add(&w, w.a, OTHER));
	end = vb_clock_ns() + SOON_NS;
	while (add(&w, w.b, KEY) != 0) {
		assert_true(vb_clock_ns() < end);
		if (busy)
			must(add(&w, w.a, OTHER));
		(void)vb_ep_sleep(w.b->ep, 200000);
	}
	assert_int_equal(value(&w), 101);
	assert_int_equal(w.b->recovered, 1);
	close_world(&w);
}

static void what_is_left_behind(void **state)
{
	(void)state;
	left_behind(true);
	left_behind(false);
}

static void the_last_logical_time(void **state)
{
	char text[1024];
	struct world w;

	(void)state;
	open_world(&w);
	/* The last commit that there is, and the first that there is not. */
	*lock_word(&w) = SUNDIAL_LAST - 2;
	must(add(&w, w.a, KEY));
	assert_int_equal(*lock_word(&w), SUNDIAL_LAST - 1);
	for (unsigned i = 0; i < 3; i++) {
		vb_log_capture_begin(text, sizeof(text));
		assert_int_equal(add(&w, w.a, KEY), -EOVERFLOW);
		vb_log_capture_end();
		assert_non_null(strstr(text, "logical time"));
		assert_true(sundial_whose(*lock_word(&w)).shown == 0);
		assert_int_equal(*lock_word(&w), SUNDIAL_LAST);
	}
	assert_int_equal(value(&w), 101);
	must(add(&w, w.a, OTHER));
	close_world(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_held_word_comes_back),
		cmocka_unit_test(what_is_left_behind),
		cmocka_unit_test(the_last_logical_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
