/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What comes late, in virtual time.  A request for a lock that waits at a server when the server stops
 * is not served behind the release that undoes it.  A release that comes late gives back nothing of a
 * later transaction's.  A commit point that was given up, and found refused when it was asked for again,
 * does not commit the next try.  A place that a coordinator was not told it has is not kept.  Verbs of a
 * commit that come back to nobody wake nobody.
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
#include "fabric/sim/sim.h"
#include "txn/db.h"

#define US 1000ull

struct world {
	struct vb_fabric *f;
	struct vb_db *db;
	struct vb_table *t;
	struct vb_db_server *server;
	struct vb_coordinator *older, *younger;
	bool asks, gave_up;
	int err;
};

#define must(call) assert_int_equal(call, 0)

static void open_world_of(struct world *w, const char *cc, const char *hybrid, uint64_t seed)
{
	const struct vb_fabric_params fp = {
		.fabric = "sim", .nodes = 1, .node_bytes = 16 << 20, .seed = seed};
	const struct vb_db_params dp = {.cc = cc, .hybrid = hybrid, .coordinators = 4};
	const struct vb_table_params tp = {.name = "t", .record_bytes = 8, .records = 16};
	uint64_t record = 100;

	memset(w, 0, sizeof(*w));
	must(vb_fabric_open(&fp, &w->f));
	must(vb_db_open(w->f, &dp, &w->db));
	must(vb_table_open(w->db, &tp, &w->t));
	must(vb_table_load(w->t, 1, &record));
	must(vb_db_server_start(w->db, 0, &w->server));
	must(vb_coordinator_open(w->db, 0, &w->older));
	must(vb_coordinator_open(w->db, 0, &w->younger));
}

static void open_world(struct world *w, const char *cc)
{
	open_world_of(w, cc, "rpc", 1);
}

static void close_world(struct world *w)
{
	vb_coordinator_close(w->older);
	vb_coordinator_close(w->younger);
	vb_db_server_stop(w->server);
	vb_db_close(w->db);
	vb_fabric_close(w->f);
}

static uint64_t lock_word(struct world *w)
{
	return *(uint64_t *)vb_local(w->f, vb_table_find(w->t, 0, 1) + w->t->layout.lock_at, 8);
}

static void older_body(void *arg)
{
	struct world *w = arg;
	uint64_t *record;

	w->asks = true;
	w->err = vb_txn_update(w->older, w->t, 1, (void **)&record);
	w->gave_up = true;
}

/* The release that undoes it goes by the server, too, whichever way others go. */
static void late_lock_of(const char *hybrid)
{
	static const struct vb_task_params params = {.name = "older"};
	uint64_t *record, *word, until;
	struct vb_task *task;
	char text[2048];
	struct world w;

	open_world_of(&w, "wait-die", hybrid, 1);
	must(vb_txn_begin(w.older));
	must(vb_ep_sleep(w.older->ep, 10 * US));
	must(vb_txn_begin(w.younger));
	must(vb_txn_update(w.younger, w.t, 1, (void **)&record));
	assert_int_equal(lock_word(&w), w.younger->txn.ts);
	vb_log_capture_begin(text, sizeof(text));
	must(vb_task_spawn(w.older->ep->sched, older_body, &w, &params, &task));
	/* Long enough for the request to be on the server's list, and not for its patience. */
	must(vb_ep_sleep(w.younger->ep, 20 * US));
	assert_true(w.asks && !w.gave_up);
	/* Past two suspect times the call is given up, and a release sent behind it. */
	until = vb_ep_now(w.younger->ep) + 3 * w.db->suspect_ns;
	vb_sim_ep_pause(vb_db_server_ep(w.server), until);
	/* The record becomes free meanwhile. */
	word = vb_local(w.f, vb_table_find(w.t, 0, 1) + w.t->layout.lock_at, 8);
	must(vb_ep_sleep(w.younger->ep, 2 * US));
	*word = 0;
	while (!w.gave_up)
		must(vb_ep_sleep(w.younger->ep, 10 * US));
	vb_log_capture_end();
	assert_int_equal(w.err, -VB_EPEERGONE);
	assert_true(vb_ep_now(w.younger->ep) >= until);
	must(vb_ep_sleep(w.younger->ep, 1000 * US));
	if (lock_word(&w) == w.older->txn.ts)
		fail_msg("the server took a lock behind the release that gave it back");
	assert_int_equal(lock_word(&w), 0);
	vb_txn_abort(w.younger);
	close_world(&w);
}

static void late_lock(void **state)
{
	(void)state;
	late_lock_of("rpc");
}

static void late_lock_one_sided_release(void **state)
{
	(void)state;
	late_lock_of("100");
}

/* ---- a release that comes to its server behind its transaction's next ones ---- */

/* The next transaction of the place, whose lock word looks as if it were that one's. */
static void begin_alike(struct vb_coordinator *me, uint64_t ts)
{
	const uint64_t names = 1u << SUNDIAL_NAME_BITS;

	must(vb_txn_begin(me));
	vb_txn_abort(me);
	me->clock += names - (me->clock - vb_ts_clock(ts)) % names;
	must(vb_txn_begin(me));
	assert_int_equal(vb_ts_place(me->txn.ts), vb_ts_place(ts));
	assert_int_not_equal(me->txn.ts, ts);
	assert_int_equal(sundial_locked(me->txn.ts, 0), sundial_locked(ts, 0));
}

/*
 * The lock of a first transaction was never taken, and it does not know that; its release is asked of a server that
 * stands still, and given up.  When the server comes to it the place is at another transaction, which holds the
 * record by the very word.
 */
static void late_release(void **state)
{
	uint64_t record, ts, word, until, *mine;
	char text[4096];
	struct world w;

	(void)state;
	open_world_of(&w, "sundial", "00001", 1);
	must(vb_txn_begin(w.older));
	ts = w.older->txn.ts;
	must(vb_txn_read(w.older, w.t, 1, &record));
	w.older->txn.item[0].flags |= VB_ITEM_MAYBE;
	until = vb_ep_now(w.older->ep) + 20 * w.db->suspect_ns;
	vb_sim_ep_pause(vb_db_server_ep(w.server), until);
	vb_log_capture_begin(text, sizeof(text));
	vb_txn_abort(w.older);
	vb_log_capture_end();
	assert_non_null(strstr(text, "does not answer"));
	assert_true(vb_ep_now(w.older->ep) < until - 100 * US);
	must(vb_ep_sleep(w.older->ep, until - 100 * US - vb_ep_now(w.older->ep)));
	begin_alike(w.older, ts);
	must(vb_txn_update(w.older, w.t, 1, (void **)&mine));
	*mine = record + 1;
	word = lock_word(&w);
	assert_int_equal(word, w.older->txn.item[0].held);
	assert_true(vb_ep_now(w.older->ep) < until);
	/* The server comes to it, and has done it. */
	must(vb_ep_sleep(w.older->ep, 200 * US));
	if (lock_word(&w) != word)
		fail_msg("the release of an earlier transaction gave back the lock of this one");
	must(vb_txn_commit(w.older));
	assert_int_equal(w.older->lost_locks, 0);
	close_world(&w);
}

static uint64_t *status_word(struct world *w)
{
	return vb_local(w->f, vb_db_place(w->db, vb_txn_lane(w->older)->place), 8);
}

/* Somebody who is older wounds it, before what it has given up lands. */
static void wound(void *arg)
{
	static const struct vb_sim_faults none;
	struct world *w = arg;

	must(vb_ep_sleep(w->younger->ep, 20 * US));
	vb_sim_set_faults(w->f, &none);
	assert_int_equal(*status_word(w), w->older->txn.ts | VB_TS_RUNNING);
	*status_word(w) = w->older->txn.ts | VB_TS_ABORTED;
	w->asks = true;
}

/* The answer of the verb that comes next is given up early. */
static void prepared(void *ctx, const struct vb_txn *t)
{
	static const struct vb_sim_faults early = {.early = 1};
	static const struct vb_task_params params = {.name = "wounds"};
	struct world *w = ctx;
	struct vb_task *task;

	must(vb_task_spawn(t->me->ep->sched, wound, w, &params, &task));
	vb_sim_set_faults(w->f, &early);
}

static void ended(void *ctx, const struct vb_txn *t, bool committed)
{
	struct world *w = ctx;

	(void)t;
	w->gave_up = !committed;
}

static void late_commit_point(void **state)
{
	uint64_t *record;
	struct world w;
	struct vb_txn_watch watch = {.ctx = &w, .prepared = prepared, .ended = ended};

	(void)state;
	open_world(&w, "wound-wait");
	w.db->watch = &watch;
	must(vb_txn_begin(w.older));
	must(vb_txn_update(w.older, w.t, 1, (void **)&record));
	*record = 101;
	assert_int_equal(vb_txn_commit(w.older), -EAGAIN);
	assert_true(w.asks && w.gave_up);
	assert_int_equal(vb_txn_cause(w.older), VB_TXN_WOUNDED);
	/* Again, and what was given up lands meanwhile. */
	must(vb_txn_begin(w.older));
	must(vb_ep_sleep(w.older->ep, w.f->caps.verb_bound_ns));
	if (*status_word(&w) != (w.older->txn.ts | VB_TS_RUNNING))
		fail_msg("the last try's commit point has committed this one");
	vb_txn_abort(w.older);
	close_world(&w);
}

/* ---- coordinators that cannot be opened ---- */

#define OPENS 8u

/* How many could not, of OPENS that were opened and closed while answers are lost. */
static unsigned open_and_close(struct world *w)
{
	const struct vb_sim_faults losses = {.lose = 0.05, .early = 0.05};
	unsigned failed = 0;

	vb_sim_set_faults(w->f, &losses);
	for (unsigned i = 0; i < OPENS; i++) {
		struct vb_coordinator *me = NULL;
		int err = vb_coordinator_open(w->db, 0, &me);

		if (err != 0) {
			assert_int_equal(err, -VB_EUNKNOWN);
			assert_null(me);
			failed++;
		}
		vb_coordinator_close(me);
	}
	vb_sim_set_faults(w->f, &(struct vb_sim_faults){0});
	return failed;
}

static void places_come_back(void **state)
{
	struct vb_coordinator *me[2];
	unsigned failed = 0;
	struct world w;

	(void)state;
	for (uint64_t seed = 1; seed <= 30; seed++) {
		open_world_of(&w, "no-wait", "rpc", seed);
		failed += open_and_close(&w);
		must(vb_ep_sleep(w.older->ep, w.f->caps.verb_bound_ns));
		/* As many as there are beside the two of the world. */
		for (unsigned i = 0; i < 2; i++)
			must(vb_coordinator_open(w.db, 0, &me[i]));
		for (unsigned i = 0; i < 2; i++)
			vb_coordinator_close(me[i]);
		close_world(&w);
	}
	assert_in_range(failed, 30, 30 * OPENS - 30);
}

/* ---- a task that ends before its commit is acknowledged ---- */

static struct vb_batch *batch_of(struct world *w)
{
	return &vb_txn_lane(w->older)->acc.batch;
}

static void commits_and_ends(void *arg)
{
	struct world *w = arg;
	uint64_t *record, key = 0;

	while (vb_table_find(w->t, 1, key) == 0)
		key++;
	must(vb_txn_begin(w->older));
	must(vb_txn_update(w->older, w->t, key, (void **)&record));
	*record += 1;
	must(vb_txn_commit(w->older));
	/* It is committed, and its last verbs are still on their way. */
	w->asks = vb_txn_lane(w->older)->in_flight && batch_of(w)->pending > 0;
	w->gave_up = true;
}

/* With passive_ack a commit comes back before its last verbs do.  Whoever uses the coordinator next waits
 * for them, and is somebody else where the task that committed has ended. */
static void acknowledged_to_another(void **state)
{
	static const struct vb_task_params params = {.name = "committer"};
	const struct vb_fabric_params fp = {
		.fabric = "sim", .nodes = 2, .node_bytes = 16 << 20, .seed = 1};
	const struct vb_db_params dp = {.cc = "no-wait", .coordinators = 4, .passive_ack = true};
	const struct vb_table_params tp = {.name = "t", .record_bytes = 8, .records = 16};
	uint64_t record = 100;
	struct vb_task *task;
	struct world w = {0};

	(void)state;
	must(vb_fabric_open(&fp, &w.f));
	must(vb_db_open(w.f, &dp, &w.db));
	must(vb_table_open(w.db, &tp, &w.t));
	for (uint64_t k = 0; k < 16; k++)
		must(vb_table_load(w.t, k, &record));
	must(vb_coordinator_open(w.db, 0, &w.older));
	must(vb_task_spawn(w.older->ep->sched, commits_and_ends, &w, &params, &task));
	while (!w.gave_up)
		must(vb_ep_sleep(w.older->ep, US / 10));
	assert_true(w.asks);
	must(vb_ep_sleep(w.older->ep, 100 * US));
	assert_int_equal(batch_of(&w)->pending, 0);
	must(vb_txn_begin(w.older));
	vb_txn_abort(w.older);
	vb_coordinator_close(w.older);
	vb_db_close(w.db);
	vb_fabric_close(w.f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(late_lock),        cmocka_unit_test(late_lock_one_sided_release),
		cmocka_unit_test(late_release),     cmocka_unit_test(late_commit_point),
		cmocka_unit_test(places_come_back), cmocka_unit_test(acknowledged_to_another),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
