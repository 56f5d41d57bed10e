/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is dead: menders that come at a bad moment, in virtual time.  They stand still between two
 * looks, come seldom, find that whom they meant has tried again or committed, or a log that an earlier try left,
 * or that a place has somebody else by now, a sweep that is killed, or that cannot see all.  Each test
 * asserts that the moment was there.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "fabric/sim/sim.h"
#include "txn/db.h"

#define US      1000ull
#define KEY     1
#define LOADED  100
#define WRITTEN 7

struct world {
	struct vb_fabric *f;
	struct vb_db *db;
	struct vb_table *t;
	struct vb_db_server *server[2];
	struct vb_coordinator *a, *b, *c, *late; /* at nodes 0, 1, 1, and 0 */
	uint64_t until;
	uint32_t place;
	bool goes, passed, done;
};

#define must(call) assert_int_equal(call, 0)

static void open_world(struct world *w, const char *cc)
{
	const struct vb_fabric_params fp = {
		.fabric = "sim", .nodes = 2, .node_bytes = 16 << 20, .seed = 1};
	const struct vb_db_params dp = {.cc = cc, .coordinators = 4};
	const struct vb_table_params tp = {.name = "t", .record_bytes = 8, .records = 16};
	uint64_t record = LOADED;

	memset(w, 0, sizeof(*w));
	must(vb_fabric_open(&fp, &w->f));
	must(vb_db_open(w->f, &dp, &w->db));
	must(vb_table_open(w->db, &tp, &w->t));
	must(vb_table_load(w->t, KEY, &record));
	for (uint16_t i = 0; i < 2; i++)
		must(vb_db_server_start(w->db, i, &w->server[i]));
	must(vb_coordinator_open(w->db, 0, &w->a));
	must(vb_coordinator_open(w->db, 1, &w->b));
	must(vb_coordinator_open(w->db, 1, &w->c));
}

static void close_world(struct world *w)
{
	vb_coordinator_close(w->a);
	vb_coordinator_close(w->b);
	vb_coordinator_close(w->c);
	vb_coordinator_close(w->late);
	for (uint16_t i = 0; i < 2; i++)
		vb_db_server_stop(w->server[i]);
	must(vb_db_close(w->db));
	must(vb_fabric_close(w->f));
}

static void wait_ns(struct vb_coordinator *me, uint64_t ns)
{
	must(vb_ep_sleep(me->ep, ns));
}

/* Begins, and has the record to write it. */
static void hold(struct world *w, struct vb_coordinator *me)
{
	uint64_t *record;

	must(vb_txn_begin(me));
	must(vb_txn_update(me, w->t, KEY, (void **)&record));
	*record = WRITTEN;
}

/* A transaction that wants the record; 0 or -EAGAIN. */
static int want(struct world *w, struct vb_coordinator *me, uint64_t *record)
{
	int err;

	must(vb_txn_begin(me));
	err = vb_txn_read(me, w->t, KEY, record);
	return err == 0 ? vb_txn_commit(me) : err;
}

/* ---- tried again between the second look and the word that would roll it back ---- */

static void tried_again_since(const char *cc)
{
	uint64_t record;
	struct world w;

	open_world(&w, cc);
	hold(&w, w.a);
	while (w.b->ripe == 0) {
		assert_int_equal(want(&w, w.b, &record), -EAGAIN);
		wait_ns(w.b, 10 * US);
	}
	/* What b is about to do is meant for this try of a's, which ends before. */
	assert_int_equal(vb_txn_commit(w.a), -EAGAIN);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_TIMEOUT);
	assert_true(w.a->keep_age);
	hold(&w, w.a);
	must(vb_txn_begin(w.b));
	vb_txn_abort(w.b);
	must(vb_txn_commit(w.a));
	assert_int_equal(w.b->recovered, 0);
	must(want(&w, w.b, &record));
	assert_int_equal(record, WRITTEN);
	close_world(&w);
}

static void again_wait_die(void **state)
{
	(void)state;
	tried_again_since("wait-die");
}

static void again_wound_wait(void **state)
{
	(void)state;
	tried_again_since("wound-wait");
}

/* ---- committed between the second look and the word that would roll it back ---- */

static void prepared_slowly(void *ctx, const struct vb_txn *t)
{
	struct world *w = ctx;

	while (!w->goes)
		wait_ns(t->me, 1 * US);
}

static void nothing(void *ctx, const struct vb_txn *t)
{
	(void)ctx;
	(void)t;
}

/* Past its commit point, and nothing is written. */
static void passed_slowly(void *ctx, const struct vb_txn *t)
{
	struct world *w = ctx;

	if (t->me != w->a)
		return;
	w->passed = true;
	while (w->passed)
		wait_ns(t->me, 1 * US);
}

static void ended(void *ctx, const struct vb_txn *t, bool committed)
{
	(void)ctx;
	(void)t;
	(void)committed;
}

static void commit_body(void *arg)
{
	struct world *w = arg;

	must(vb_txn_commit(w->a));
	w->done = true;
}

/*
 * a looks at the time, and stands still before its commit point until b has found it dead; then it passes it.  It
 * moves, and b leaves it alone: for a lease it may write what it has committed.
 */
static void committed_since(const char *cc)
{
	static const struct vb_task_params params = {.name = "a"};
	struct vb_txn_watch watch = {
		.prepared = prepared_slowly, .passed = passed_slowly, .ended = ended};
	uint64_t record, *status;
	struct vb_task *task;
	struct world w;

	open_world(&w, cc);
	watch.ctx = &w;
	w.db->watch = &watch;
	hold(&w, w.a);
	status = vb_local(w.f, vb_db_place(w.db, vb_txn_lane(w.a)->place), 8);
	must(vb_task_spawn(w.a->ep->sched, commit_body, &w, &params, &task));
	while (w.b->ripe == 0) {
		assert_int_equal(want(&w, w.b, &record), -EAGAIN);
		wait_ns(w.b, 10 * US);
	}
	assert_int_equal(*status, w.a->txn.ts | VB_TS_RUNNING);
	w.goes = true;
	while (!w.passed)
		wait_ns(w.b, 1 * US);
	assert_int_equal(*status, w.a->txn.ts | VB_TS_COMMITTED);
	must(vb_txn_begin(w.b));
	vb_txn_abort(w.b);
	assert_int_equal(w.b->ripe, 0);
	assert_int_equal(w.b->recovered, 0);
	assert_int_equal(want(&w, w.b, &record), -EAGAIN);
	w.passed = false;
	while (!w.done)
		wait_ns(w.b, 10 * US);
	assert_int_equal(w.a->lost_locks, 0);
	must(want(&w, w.b, &record));
	assert_int_equal(record, WRITTEN);
	w.db->watch = NULL;
	close_world(&w);
}

static void committed_no_wait(void **state)
{
	(void)state;
	committed_since("no-wait");
}

/* Before it rolls one back it looks whether that one has tried again, which it has not. */
static void committed_wait_die(void **state)
{
	(void)state;
	committed_since("wait-die");
}

/* ---- a mender that stands still before its first look ---- */

static void do_nothing(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	(void)s;
	for (unsigned i = 0; i < n; i++)
		items[i]->status = VB_TXN_FABRIC;
}

/* Past its commit point; its writes are still to come, and may for a lease. */
static void commit_slowly(struct world *w, struct vb_coordinator *me)
{
	const struct vb_cc_ops *cc = w->db->cc;
	struct vb_stage_ops stages[VB_STAGES_MAX];
	struct vb_cc_ops mute = *cc;

	memcpy(stages, cc->stages, cc->n_stages * sizeof(stages[0]));
	stages[cc->commit].run = do_nothing;
	stages[cc->release].run = do_nothing;
	mute.stages = stages;
	w->db->cc = &mute;
	must(vb_txn_commit(me));
	w->db->cc = cc;
}

/* a's lease is over; it tries again under its name, and commits while b stands still. */
static void try_again(void *arg)
{
	struct world *w = arg;

	wait_ns(w->a, w->until - vb_ep_now(w->a->ep));
	assert_int_equal(vb_txn_commit(w->a), -EAGAIN);
	assert_true(w->a->keep_age);
	hold(w, w->a);
	commit_slowly(w, w->a);
	w->done = true;
}

static void stood_still_itself(void **state)
{
	static const struct vb_task_params params = {.name = "a"};
	const struct vb_item *it;
	uint64_t record, committed;
	struct vb_task *task;
	struct world w;

	(void)state;
	open_world(&w, "wait-die");
	hold(&w, w.a);
	assert_int_equal(want(&w, w.b, &record), -EAGAIN);
	it = &w.b->txn.item[0];
	wait_ns(w.b, w.db->suspect_ns);
	w.until = vb_ep_now(w.a->ep) + w.db->suspect_ns;
	must(vb_task_spawn(w.a->ep->sched, try_again, &w, &params, &task));
	vb_sim_ep_pause(w.b->ep, vb_sim_now(w.f) + w.db->suspect_ns + 100 * US);
	vb_txn_suspect(&w.b->txn, it);
	while (!w.done)
		wait_ns(w.a, 10 * US);
	committed = vb_ep_now(w.a->ep);
	/* As long as a may still write nobody does it for a. */
	while (vb_ep_now(w.a->ep) < committed + w.db->lease_ns - 100 * US) {
		assert_int_equal(want(&w, w.b, &record), -EAGAIN);
		assert_int_equal(w.b->rolled_forward, 0);
		wait_ns(w.b, 50 * US);
	}
	for (unsigned i = 0; w.b->rolled_forward == 0 && i < 10; i++) {
		(void)want(&w, w.b, &record);
		wait_ns(w.b, w.db->lease_ns / 4);
	}
	assert_int_equal(w.b->rolled_forward, 1);
	must(want(&w, w.b, &record));
	assert_int_equal(record, WRITTEN);
	close_world(&w);
}

/* ---- a try that wrote, and one under the same name that did not ---- */

static void older_body(void *arg)
{
	struct world *w = arg;
	uint64_t *record;

	must(vb_txn_update(w->b, w->t, KEY, (void **)&record));
	w->done = true;
}

/* The first try of a's has a log, and is wounded at its commit point; the second only reads, and
 * nobody lets the record go. */
static void earlier_log(void **state)
{
	static const struct vb_task_params params = {.name = "b"};
	const struct vb_place_head *head;
	struct vb_task *task;
	uint64_t record, name;
	struct world w;

	(void)state;
	open_world(&w, "wound-wait");
	must(vb_txn_begin(w.b));
	wait_ns(w.b, 10 * US);
	hold(&w, w.a);
	name = w.a->txn.ts;
	must(vb_task_spawn(w.b->ep->sched, older_body, &w, &params, &task));
	wait_ns(w.a, 20 * US);
	assert_int_equal(vb_txn_commit(w.a), -EAGAIN);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_WOUNDED);
	head = vb_local(w.f, vb_db_place(w.db, vb_txn_lane(w.a)->place), sizeof(*head));
	assert_true(head->log_bytes > 0);
	while (!w.done)
		wait_ns(w.a, 10 * US);
	vb_txn_abort(w.b);
	must(vb_txn_begin(w.a));
	assert_int_equal(w.a->txn.ts, name);
	must(vb_txn_read(w.a, w.t, KEY, &record));
	commit_slowly(&w, w.a);
	vb_coordinator_bury(w.a);
	w.a = NULL;
	while (want(&w, w.c, &record) != 0)
		wait_ns(w.c, 10 * US);
	assert_int_equal(w.c->recovered, 1);
	assert_int_equal(w.c->rolled_forward, 0);
	assert_int_equal(record, LOADED);
	close_world(&w);
}

/* ---- a mender that comes seldom ---- */

static void comes_seldom(void **state)
{
	uint64_t record;
	unsigned tries = 0;
	struct world w;

	(void)state;
	open_world(&w, "no-wait");
	hold(&w, w.a);
	vb_coordinator_bury(w.a);
	w.a = NULL;
	/* Noted; the first look; the second; free. */
	while (want(&w, w.b, &record) != 0) {
		assert_true(++tries < 4);
		wait_ns(w.b, 3 * w.db->suspect_ns);
	}
	assert_int_equal(tries, 3);
	assert_int_equal(record, LOADED);
	assert_int_equal(w.b->recovered, 1);
	close_world(&w);
}

/* ---- a mender that meets several at once ---- */

/* All of them were in the way of one transaction, and their holder is found dead for all of them
 * at one look: the next transaction has them all. */
static void several_at_once(const char *cc)
{
	enum { SEVERAL = 6 };
	struct vb_txn_key keys[SEVERAL];
	unsigned tries = 0;
	struct world w;

	open_world(&w, cc);
	for (unsigned i = 0; i < SEVERAL; i++) {
		keys[i] = (struct vb_txn_key){w.t, KEY + i, true};
		if (i > 0)
			must(vb_table_load(w.t, KEY + i, &(uint64_t){LOADED}));
	}
	must(vb_txn_begin(w.b));
	wait_ns(w.b, 10 * US);
	must(vb_txn_begin(w.a));
	must(vb_txn_declare(w.a, keys, SEVERAL));
	vb_coordinator_bury(w.a);
	w.a = NULL;
	/* Noted; the first look; the second; free. */
	while (vb_txn_declare(w.b, keys, SEVERAL) != 0) {
		vb_txn_abort(w.b);
		assert_true(++tries < 4);
		wait_ns(w.b, w.db->suspect_ns + 10 * US);
		must(vb_txn_begin(w.b));
	}
	assert_int_equal(w.b->recovered, SEVERAL);
	must(vb_txn_commit(w.b));
	close_world(&w);
}

static void several_no_wait(void **state)
{
	(void)state;
	several_at_once("no-wait");
}

static void several_wound_wait(void **state)
{
	(void)state;
	several_at_once("wound-wait");
}

static void several_no_wait_sx(void **state)
{
	(void)state;
	several_at_once("no-wait-sx");
}

/* ---- a place that has somebody else by now ---- */

/* b has read that the place is a dead one's, and stands still.  Meanwhile c frees the place, and
 * somebody else takes it. */
static void free_and_take(void *arg)
{
	struct world *w = arg;
	uint64_t verbs, freed;

	wait_ns(w->c, w->db->suspect_ns / 2);
	verbs = vb_sim_verbs(w->f);
	while (vb_sim_verbs(w->f) == verbs)
		wait_ns(w->c, 100);
	w->until = vb_sim_now(w->f) + 2 * w->db->suspect_ns;
	vb_sim_ep_pause(w->b->ep, w->until);
	must(vb_db_recover(w->c, 0, &freed));
	must(vb_coordinator_open(w->db, 0, &w->late));
	assert_int_equal(w->late->number, 0);
	wait_ns(w->c, w->until - 50 * US - vb_sim_now(w->f));
	hold(w, w->late);
	w->done = true;
}

static void somebody_elses_place(void **state)
{
	static const struct vb_task_params params = {.name = "c"};
	struct vb_task *task;
	uint64_t record, freed;
	struct world w;

	(void)state;
	open_world(&w, "no-wait");
	vb_coordinator_bury(w.a);
	w.a = NULL;
	must(vb_task_spawn(w.c->ep->sched, free_and_take, &w, &params, &task));
	must(vb_db_recover(w.b, 0, &freed));
	assert_true(w.done);
	assert_true(vb_sim_now(w.f) >= w.until);
	must(vb_txn_commit(w.late));
	must(want(&w, w.b, &record));
	assert_int_equal(record, WRITTEN);
	close_world(&w);
}

/* ---- a commit point that lands while its place is given up ---- */

/* A record at the node, whose key is not below `key`. */
static uint64_t load_at(struct world *w, uint16_t node, uint64_t key)
{
	while (vb_table_node(w->t, key) != node)
		key++;
	must(vb_table_load(w->t, key, &(uint64_t){LOADED}));
	return key;
}

static uint64_t *status_of(struct world *w, uint32_t place)
{
	return vb_local(w->f, vb_db_place(w->db, place), 8);
}

/* The sweeper has read who the owner is, three times a place before the last one, and the status. */
static void land(void *arg)
{
	struct world *w = arg;
	uint64_t *status = status_of(w, w->place);
	uint64_t verbs;

	wait_ns(w->c, w->db->suspect_ns / 2);
	verbs = vb_sim_verbs(w->f) + 2 + 3 * (w->place % VB_PLACES_EACH);
	while (vb_sim_verbs(w->f) < verbs)
		wait_ns(w->c, 50);
	assert_int_equal(vb_sim_verbs(w->f), verbs);
	assert_int_equal(*status & VB_TS_STATE, VB_TS_RUNNING);
	*status = vb_ts_name(*status) | VB_TS_COMMITTED;
	w->done = true;
}

/* Nothing that a's commit holds is on the node which is swept, so that only its place tells of it. */
static void commits_late(void **state)
{
	static const struct vb_task_params params = {.name = "lands"};
	uint64_t *record, key, found, freed;
	struct vb_task *task;
	struct world w;

	(void)state;
	open_world(&w, "no-wait");
	key = load_at(&w, 1, KEY + 1);
	must(vb_txn_begin(w.a));
	must(vb_txn_update(w.a, w.t, key, (void **)&record));
	*record = WRITTEN;
	commit_slowly(&w, w.a);
	w.place = vb_txn_lane(w.a)->place;
	*status_of(&w, w.place) = w.a->txn.ts | VB_TS_RUNNING;
	vb_coordinator_bury(w.a);
	w.a = NULL;
	must(vb_task_spawn(w.c->ep->sched, land, &w, &params, &task));
	must(vb_db_recover(w.b, 0, &freed));
	assert_true(w.done);
	assert_int_equal(*status_of(&w, w.place) & VB_TS_STATE, VB_TS_RECOVERED);
	assert_int_equal(w.b->rolled_forward, 1);
	must(vb_txn_begin(w.c));
	must(vb_txn_read(w.c, w.t, key, &found));
	must(vb_txn_commit(w.c));
	assert_int_equal(found, WRITTEN);
	close_world(&w);
}

/* What it wrote is in place before it is decided: undone before its name has ended, its commit would be half. */
static void commits_late_in_place(void **state)
{
	static const struct vb_task_params params = {.name = "lands"};
	struct vb_txn_watch watch = {.prepared = nothing, .passed = passed_slowly, .ended = ended};
	uint64_t *record, key, found, freed;
	struct vb_task *task, *commits;
	struct world w;

	(void)state;
	open_world(&w, "to-cascade");
	watch.ctx = &w;
	w.db->watch = &watch;
	key = load_at(&w, 1, KEY + 1);
	must(vb_txn_begin(w.a));
	must(vb_txn_update(w.a, w.t, key, (void **)&record));
	*record = WRITTEN;
	must(vb_task_spawn(w.a->ep->sched, commit_body, &w, &params, &commits));
	while (!w.passed)
		wait_ns(w.c, 1 * US);
	w.place = vb_txn_lane(w.a)->place;
	*status_of(&w, w.place) = w.a->txn.ts | VB_TS_RUNNING;
	vb_task_kill(commits);
	vb_coordinator_bury(w.a);
	w.a = NULL;
	must(vb_task_spawn(w.c->ep->sched, land, &w, &params, &task));
	must(vb_db_recover(w.b, 0, &freed));
	assert_true(w.done);
	assert_int_equal(*status_of(&w, w.place) & VB_TS_STATE, VB_TS_RECOVERED);
	must(vb_txn_begin(w.c));
	must(vb_txn_read(w.c, w.t, key, &found));
	must(vb_txn_commit(w.c));
	assert_int_equal(found, WRITTEN);
	w.db->watch = NULL;
	close_world(&w);
}

/* ---- a holder that nobody can look at ---- */

/* Dies with a record at node 1; *key is behind it then. */
static void die_with(struct world *w, struct vb_coordinator **who, uint64_t *key)
{
	uint64_t *record;

	*key = load_at(w, 1, *key);
	must(vb_txn_begin(*who));
	must(vb_txn_update(*who, w->t, (*key)++, (void **)&record));
	vb_coordinator_bury(*who);
	*who = NULL;
}

/* Two locks on a node, the first of a holder whose own node is gone: the other is freed, and that is told. */
static void holder_out_of_reach(void **state)
{
	uint64_t key = KEY + 1, freed = 9;
	vb_addr region;
	char text[512];
	struct world w;

	(void)state;
	open_world(&w, "no-wait");
	die_with(&w, &w.a, &key);
	die_with(&w, &w.c, &key);
	region = w.db->region[0];
	w.db->region[0] = vb_addr_make(0, 1ull << 40);
	vb_log_capture_begin(text, sizeof(text));
	assert_int_equal(vb_db_recover(w.b, 1, &freed), -VB_EACCESS);
	vb_log_capture_end();
	assert_int_equal(freed, 1);
	w.db->region[0] = region;
	must(vb_db_recover(w.b, 1, &freed));
	assert_int_equal(freed, 1);
	close_world(&w);
}

/* ---- a sweeper that is killed ---- */

static void sweep_body(void *arg)
{
	struct world *w = arg;
	uint64_t freed;

	(void)vb_db_recover(w->b, vb_table_node(w->t, KEY), &freed);
	w->done = true;
}

/* What it has noted by then is its coordinator's, who is buried. */
static void sweeper_killed(void **state)
{
	static const struct vb_task_params params = {.name = "sweeper"};
	struct vb_task *task;
	struct world w;

	(void)state;
	open_world(&w, "no-wait");
	hold(&w, w.a);
	must(vb_task_spawn(w.b->ep->sched, sweep_body, &w, &params, &task));
	wait_ns(w.c, w.db->suspect_ns / 2);
	assert_false(w.done || vb_list_empty(&w.b->kept));
	vb_task_kill(task);
	vb_coordinator_bury(w.b);
	w.b = NULL;
	vb_txn_abort(w.a);
	close_world(&w);
}

/* ---- a protocol that gives the same lock word again ---- */

static uint64_t locked_by_place(uint64_t ts, uint64_t was)
{
	(void)was;
	return vb_ts_make(1, vb_ts_place(ts));
}

static struct vb_word_name place_alone(uint64_t word)
{
	return (struct vb_word_name){
		.ts = word, .shown = word != 0 ? vb_ts_make(0, (1u << VB_TS_PLACE_BITS) - 1) : 0};
}

static unsigned unwritten;

static void write_nothing(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	/* A third name is not to be used. */
	assert_true(unwritten++ < 2);
	do_nothing(s, items, n);
}

/* Twice b has the lock and cannot write; the third name gives a word that was b's already.  It says so
 * and leaves the record to the next. */
static void same_word_again(void **state)
{
	struct vb_stage_ops stages[VB_STAGES_MAX];
	struct vb_cc_ops forgetful, mute;
	const struct vb_cc_ops *cc;
	uint64_t record;
	char text[4096];
	struct world w;

	(void)state;
	open_world(&w, "no-wait");
	hold(&w, w.a);
	commit_slowly(&w, w.a);
	vb_coordinator_bury(w.a);
	w.a = NULL;
	cc = w.db->cc;
	forgetful = *cc;
	forgetful.locked = locked_by_place;
	forgetful.whose = place_alone;
	mute = forgetful;
	memcpy(stages, cc->stages, cc->n_stages * sizeof(stages[0]));
	stages[cc->commit].run = write_nothing;
	unwritten = 0;
	mute.stages = stages;
	while (w.b->ripe == 0) {
		assert_int_equal(want(&w, w.b, &record), -EAGAIN);
		wait_ns(w.b, w.db->suspect_ns);
	}
	w.db->cc = &mute;
	vb_log_capture_begin(text, sizeof(text));
	must(vb_txn_begin(w.b));
	vb_txn_abort(w.b);
	vb_log_capture_end();
	assert_non_null(strstr(text, "the same lock word"));
	assert_int_equal(unwritten, 2);
	assert_int_equal(w.b->rolled_forward, 0);
	w.db->cc = &forgetful;
	while (want(&w, w.c, &record) != 0)
		wait_ns(w.c, w.db->suspect_ns);
	assert_int_equal(record, WRITTEN);
	assert_int_equal(w.c->rolled_forward, 1);
	w.db->cc = cc;
	close_world(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(again_wait_die),        cmocka_unit_test(again_wound_wait),
		cmocka_unit_test(committed_no_wait),     cmocka_unit_test(committed_wait_die),
		cmocka_unit_test(stood_still_itself),    cmocka_unit_test(earlier_log),
		cmocka_unit_test(comes_seldom),          cmocka_unit_test(several_no_wait),
		cmocka_unit_test(several_wound_wait),    cmocka_unit_test(several_no_wait_sx),
		cmocka_unit_test(somebody_elses_place),  cmocka_unit_test(commits_late),
		cmocka_unit_test(commits_late_in_place), cmocka_unit_test(holder_out_of_reach),
		cmocka_unit_test(sweeper_killed),        cmocka_unit_test(same_word_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
