/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Under maat, where logs have copies, a status word that gives a transaction up is not the last word: others may seal
 * its place as final.  So whoever overwrites what it has read goes by its bounds, as long as it may commit, or comes
 * behind it, also when another moves them at the same time.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/log.h"
#include "cc/maat.h"
#include "fabric/sim/sim.h"
#include "txn/copies.h"

#define US     1000ull
#define NODES  5u
#define HOME   0u /* of who reads; its copies: 1 and 2 */
#define COPIES 2u

struct world {
	struct vb_fabric *f;
	struct vb_db *db;
	struct vb_table *t;
	struct vb_db_server *server;
	struct vb_coordinator *reader, *writer, *other;
	int read_err, write_err;
	bool read, written;
};

#define must(call) assert_int_equal(call, 0)

static const struct vb_task_params task_params = {.name = "marks"};

/* All on the last node. */
static uint64_t key_of(unsigned i)
{
	return (uint64_t)(NODES - 1) << 48 | (1 + i);
}

static void put(struct vb_coordinator *me, struct vb_table *t, unsigned i, uint64_t value)
{
	must(vb_txn_begin(me));
	must(vb_txn_write(me, t, key_of(i), &value));
	must(vb_txn_commit(me));
}

static void open_world(struct world *w, uint64_t seed)
{
	const struct vb_fabric_params fp = {.fabric = "sim",
					    .options = "profile=cx5,bound=25us",
					    .nodes = NODES,
					    .node_bytes = 4 << 20,
					    .seed = seed};
	const struct vb_db_params dp = {.cc = "maat",
					.coordinators = 2,
					.items_max = 8,
					.bytes_max = 256,
					.record_bytes_max = 64,
					.copies = COPIES};
	const struct vb_table_params tp = {
		.name = "t", .record_bytes = 8, .records = 64, .partition = VB_PARTITION_TOP16};
	const uint64_t one = 1;
	const void *record;

	*w = (struct world){0};
	must(vb_fabric_open(&fp, &w->f));
	must(vb_db_open(w->f, &dp, &w->db));
	must(vb_table_open(w->db, &tp, &w->t));
	for (unsigned i = 0; i < 3; i++)
		must(vb_table_load(w->t, key_of(i), &one));
	must(vb_db_server_start(w->db, NODES - 1, &w->server));
	must(vb_coordinator_open(w->db, HOME, &w->reader));
	must(vb_coordinator_open(w->db, 3, &w->writer));
	must(vb_coordinator_open(w->db, 4, &w->other));
	/* Late in logical time is who writes the second record, for it was read late; and that is not to be seen from
	 * how the reader begins. */
	for (unsigned i = 0; i < 20; i++)
		put(w->other, w->t, 2, i);
	must(vb_txn_begin(w->other));
	must(vb_txn_get(w->other, w->t, key_of(1), &record));
	must(vb_txn_write(w->other, w->t, key_of(2), &one));
	must(vb_txn_commit(w->other));
}

static void close_world(struct world *w)
{
	vb_coordinator_bury(w->reader);
	vb_coordinator_close(w->writer);
	vb_coordinator_close(w->other);
	vb_db_server_stop(w->server);
	must(vb_db_close(w->db));
	vb_fabric_close(w->f);
}

static void reader_commits(void *arg)
{
	struct world *w = arg;

	w->read_err = vb_txn_commit(w->reader);
	w->read = true;
}

static void writer_commits(void *arg)
{
	struct world *w = arg;

	w->write_err = vb_txn_commit(w->writer);
	w->written = true;
}

/* The reader is logged with both copies. */
static bool is_logged(const struct world *w, uint32_t place, uint64_t ts)
{
	bool logged = true;

	for (unsigned i = 0; i < COPIES; i++) {
		const uint64_t *word = vb_local(w->f, vb_copy_at(w->db, place, i), 8);

		logged &= vb_ts_clock(*word) == vb_ts_clock(ts) &&
			  (*word & COPY_STATE) == COPY_LOGGED;
	}
	return logged;
}

static uint64_t time_of(const struct world *w, unsigned i)
{
	const vb_addr at = vb_table_find(w->t, NODES - 1, key_of(i));
	const unsigned char *tuple = vb_local(w->f, at, w->t->layout.bytes);

	return maat_wts(vb_tuple_word(tuple, w->t->layout.version_at));
}

/* Another moves the reader's bound, and not below the writer's time, so long behind the writer's begin to commit. */
static void given_up_and_on_at(uint64_t moved_ns)
{
	const uint64_t seven = 7;
	const void *record;
	struct vb_task *task;
	struct world w;
	uint64_t ts, status, *upper;
	uint32_t place;

	open_world(&w, 1 + moved_ns);
	must(vb_txn_begin(w.reader));
	must(vb_txn_get(w.reader, w.t, key_of(0), &record));
	must(vb_txn_write(w.reader, w.t, key_of(1), &seven));
	ts = w.reader->txn.ts;
	place = vb_txn_lane(w.reader)->place;
	must(vb_cas64(w.other->ep, vb_status_word(w.db, place), ts | VB_TS_RUNNING, ts, &status));
	assert_int_equal(status, ts | VB_TS_RUNNING);
	must(vb_txn_begin(w.writer));
	must(vb_txn_write(w.writer, w.t, key_of(0), &seven));
	must(vb_task_spawn(w.writer->ep->sched, writer_commits, &w, &task_params, &task));
	must(vb_ep_sleep(w.other->ep, moved_ns));
	upper = vb_local(w.f, maat_upper_word(w.db, place), 8);
	if (!w.written && *upper == MAAT_NO_BOUND)
		*upper = maat_upper(1000);
	while (!w.written)
		must(vb_ep_sleep(w.other->ep, 100));
	must(vb_task_spawn(w.reader->ep->sched, reader_commits, &w, &task_params, &task));
	while (!w.read && !is_logged(&w, place, ts))
		must(vb_ep_sleep(w.other->ep, 50));
	if (!w.read) {
		vb_sim_disown_node(w.f, HOME);
		must(vb_copies_seal(w.other, place, &status));
		assert_int_equal(status, ts | VB_TS_COMMITTED);
	}
	while (!w.read)
		must(vb_ep_sleep(w.other->ep, 100));
	must(w.write_err);
	if (w.read_err == 0)
		assert_true(time_of(&w, 1) < time_of(&w, 0));
	close_world(&w);
}

static void given_up_and_on(void **state)
{
	(void)state;
	for (uint64_t ns = 100; ns < 12 * US; ns += 100)
		given_up_and_on_at(ns);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(given_up_and_on)};

	if (vb_log_levels("off") != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
