/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names: a transaction's timestamp is never used again, whoever has its place next and however fast
 * the last one was; a coordinator's clock is pushed on by what it sees, within bounds; and a place is
 * not named anew while it is not known what became of its last transaction.
 */
#include "fabric/sim/sim.h"
#include "txn/db.h"
#include "txn_api.h"

/* As after so many transactions in no time: two seconds ahead. */
#define AHEAD 1000000u

static const struct vb_sim_faults none, mute = {.lose = 1};
static struct vb_fabric *fabric;

static const struct record one = {.value = 1}, two = {.value = 2};

static void open_without_recovery(struct world *w, void **state)
{
	const struct kind *k = *state;
	struct vb_db_params p = usual_db(k, LONG_NS);

	p.no_recovery = true;
	open_world(w, k->fabric, &p);
}

static void write_one(struct vb_coordinator *me, struct vb_table *t, uint64_t key)
{
	alone(me, vb_txn_write(me, t, key, &one));
}

/* ---- from one coordinator of a place to the next ---- */

static void next_begins_above(struct world *w)
{
	for (unsigned life = 0; life < 3; life++) {
		uint64_t last;

		write_one(w->a, w->t, 1);
		w->a->clock += AHEAD;
		write_one(w->a, w->t, 1);
		last = w->a->txn.ts;
		vb_coordinator_close(w->a);
		must(vb_coordinator_open(w->db, 0, &w->a));
		write_one(w->a, w->t, 1);
		assert_true(w->a->txn.ts > last);
		/* And without loss: the next lives do not run away from time. */
		assert_true(vb_ts_clock(w->a->txn.ts) < vb_ts_clock(last) + AHEAD / 2);
	}
}

static void closed(void **state)
{
	struct world w;

	open_usual(&w, state, LONG_NS);
	next_begins_above(&w);
	close_world(&w);
}

static void closed_without_recovery(void **state)
{
	struct world w;

	open_without_recovery(&w, state);
	next_begins_above(&w);
	close_world(&w);
}

/* Where a place stays as it is, another one is taken. */
static void died(void **state)
{
	struct world w;
	uint64_t last, freed;
	uint32_t place;

	open_usual(&w, state, SHORT_NS);
	w.a->clock += AHEAD;
	write_one(w.a, w.t, 1);
	last = w.a->txn.ts;
	place = vb_ts_place(last) / VB_PLACES_EACH;
	vb_coordinator_bury(w.a);
	must(vb_db_recover(w.b, 0, &freed));
	must(vb_coordinator_open(w.db, 0, &w.a));
	write_one(w.a, w.t, 1);
	assert_true(vb_ts_place(w.a->txn.ts) / VB_PLACES_EACH != place || w.a->txn.ts > last);
	close_world(&w);
}

/* B has read a version; the place of its writer changes hands, and writes again.  Whatever B has
 * read does not come back. */
static void no_version_comes_back(void **state)
{
	const struct kind *k = *state;
	struct record *r;
	struct world w;
	uint64_t last;

	open_without_recovery(&w, state);
	/* Of versions the one of B's time is another. */
	if (k->ops->caps & (VB_CC_READ_LOCKS | VB_CC_LOGICAL) || locks_writes_early(k) ||
	    k->ops->slots > 1) {
		close_world(&w);
		return;
	}
	w.a->clock += AHEAD;
	write_one(w.a, w.t, 1);
	last = w.a->txn.ts;
	must(vb_txn_begin(w.b));
	must(vb_txn_update(w.b, w.t, 1, (void **)&r));
	r->value++;
	vb_coordinator_close(w.a);
	must(vb_coordinator_open(w.db, 0, &w.a));
	/* As the next one's clock comes by. */
	for (unsigned i = 0; i < 4; i++)
		alone(w.a, vb_txn_write(w.a, w.t, 1, &two));
	assert_true(w.a->txn.ts > last);
	assert_int_equal(vb_txn_commit(w.b), -EAGAIN);
	assert_int_equal(value_of(w.b, w.t, 1), 2);
	close_world(&w);
}

/* ---- the clock ---- */

static void pushed_on(void **state)
{
	const struct kind *k = *state;
	struct world w;
	uint64_t last;

	open_usual(&w, state, LONG_NS);
	w.a->clock += AHEAD;
	write_one(w.a, w.t, 1);
	last = w.a->txn.ts;
	/* Of several versions, the one of its time. */
	assert_int_equal(value_of(w.b, w.t, 1), k->ops->slots > 1 ? FIRST + 1 : 1);
	must(vb_txn_begin(w.b));
	if (!(k->ops->caps & VB_CC_LOGICAL))
		assert_true(w.b->txn.ts > last);
	vb_txn_abort(w.b);
	close_world(&w);
}

/* A word in the way names a younger transaction: so does the next try of who has met it. */
static void pushed_on_by_holders(void **state)
{
	const struct kind *k = *state;
	struct vb_db_params p = usual_db(k, LONG_NS);
	struct record *r;
	struct world w;
	uint64_t holder;
	int err;

	if (strncmp(k->ops->name, "no-wait", 7) != 0)
		return;
	open_world(&w, k->fabric, &p);
	w.a->clock += AHEAD;
	must(vb_txn_begin(w.a));
	must(vb_txn_update(w.a, w.t, 1, (void **)&r));
	holder = w.a->txn.ts;
	must(vb_txn_begin(w.b));
	err = vb_txn_update(w.b, w.t, 1, (void **)&r);
	assert_int_equal(err, -EAGAIN);
	must(vb_txn_begin(w.b));
	assert_true(w.b->txn.ts > holder);
	vb_txn_abort(w.b);
	vb_txn_abort(w.a);
	close_world(&w);
}

/* 73 minutes ahead it waits for time; and what is beyond all reason is not followed. */
static void bounded(void **state)
{
	const uint64_t most = 1ull << 31;
	struct world w;
	uint64_t now, before;

	open_usual(&w, state, LONG_NS);
	now = vb_ep_now(w.a->ep);
	before = w.a->clock;
	vb_coordinator_saw(w.a, UINT64_MAX >> 18);
	vb_coordinator_saw(w.a, (now >> VB_TS_CLOCK_SHIFT) + 2 * most);
	assert_int_equal(w.a->clock, before);
	vb_coordinator_saw(w.a, (now >> VB_TS_CLOCK_SHIFT) + most / 2);
	assert_true(w.a->clock == (now >> VB_TS_CLOCK_SHIFT) + most / 2 + 1);
	w.a->clock = (now >> VB_TS_CLOCK_SHIFT) + most + 1000;
	write_one(w.a, w.t, 1);
	assert_true(vb_ep_now(w.a->ep) >= now + (900ull << VB_TS_CLOCK_SHIFT));
	assert_true(vb_ts_clock(w.a->txn.ts) <=
		    (vb_ep_now(w.a->ep) >> VB_TS_CLOCK_SHIFT) + most + 1);
	close_world(&w);
}

/* The finder's stamps wrap after 2^32 transactions.  Each one behind that is also the stamp of one before,
 * at the same place and of the same key, whose item still stands there. */
static void stamps_wrap(void **state)
{
	struct world w;

	open_usual(&w, state, LONG_NS);
	for (uint64_t round = 1; round <= 2; round++) {
		for (uint64_t i = 0; i < 2; i++) {
			const struct record r = {.value = 10 * round + i};

			alone(w.a, vb_txn_write(w.a, w.t, i, &r));
			assert_int_equal(value_of(w.b, w.t, i), r.value);
		}
		w.a->txn_stamp = UINT32_MAX;
	}
	close_world(&w);
}

/* ---- commits of unknown outcome ---- */

static struct vb_cc_ops deaf;

static int decide_unheard(struct vb_txn *t)
{
	vb_sim_set_faults(fabric, &mute);
	return vb_txn_point(t);
}

/* Where writes are in place before the commit point, their answers are heard. */
static void on_prepared(void *ctx, const struct vb_txn *t)
{
	(void)ctx;
	deaf = *t->me->db->cc;
	if (vb_cc_installs(&deaf))
		deaf.decide = decide_unheard;
	else
		vb_sim_set_faults(fabric, &mute);
	t->me->db->cc = &deaf;
}

static void on_ended(void *ctx, const struct vb_txn *t, bool committed)
{
	(void)ctx;
	(void)t;
	(void)committed;
}

static void on_unknown(void *ctx, const struct vb_txn *t)
{
	(void)t;
	++*(unsigned *)ctx;
}

static uint64_t status_of(struct world *w, const struct vb_lane *lane)
{
	return *(uint64_t *)vb_local(w->f, vb_db_place(w->db, lane->place), 8);
}

static int write_two(struct vb_coordinator *me, struct vb_table *t)
{
	int err = vb_txn_write(me, t, 1, &two);

	return err ? err : vb_txn_write(me, t, 2, &two);
}

/* All answers are lost from before the commit point of two records until long after it, but the CAS
 * has happened. */
static void commit_unknown(struct world *w, void **state)
{
	unsigned unknown = 0;
	struct vb_txn_watch watch = {
		.ctx = &unknown, .prepared = on_prepared, .ended = on_ended, .unknown = on_unknown};

	const struct vb_cc_ops *cc;

	open_usual(w, state, SHORT_NS);
	cc = w->db->cc;
	fabric = w->f;
	must(vb_txn_begin(w->a));
	must(write_two(w->a, w->t));
	w->db->watch = &watch;
	assert_int_equal(vb_txn_commit(w->a), -VB_EUNKNOWN);
	w->db->watch = NULL;
	w->db->cc = cc;
	assert_int_equal(unknown, 1);
	assert_int_equal(vb_txn_cause(w->a), VB_TXN_FABRIC);
	assert_int_equal(status_of(w, vb_txn_lane(w->a)), w->a->txn.ts | VB_TS_COMMITTED);
}

static void both_are_there(struct world *w)
{
	assert_int_equal(value_of(w->b, w->t, 1), 2);
	assert_int_equal(value_of(w->b, w->t, 2), 2);
}

/* Under sundial a read may find what was there before, but not one that is also for writing. */
static int update(struct vb_coordinator *me, struct vb_table *t, uint64_t key, uint64_t *was)
{
	struct record *r;
	int err = vb_txn_update(me, t, key, (void **)&r);

	if (err == 0)
		*was = r->value;
	return err;
}

/* One of its records is rolled forward by others, the other by its own coordinator, which goes on. */
static void unknown_is_whole(void **state)
{
	struct world w;
	uint64_t was;

	commit_unknown(&w, state);
	vb_sim_set_faults(w.f, &none);
	alone(w.b, update(w.b, w.t, 1, &was));
	assert_int_equal(was, 2);
	for (unsigned i = 0; i < 3; i++)
		write_one(w.a, w.t, 5);
	both_are_there(&w);
	close_world(&w);
}

static void unknown_then_on(void **state)
{
	struct world w;

	commit_unknown(&w, state);
	/* While nothing is to be learned, nothing is named over it. */
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(vb_txn_begin(w.a), -VB_EUNKNOWN);
	vb_sim_set_faults(w.f, &none);
	/* With the second begin after it. */
	for (unsigned i = 0; i < 2; i++) {
		must(vb_txn_begin(w.a));
		vb_txn_abort(w.a);
	}
	assert_int_equal(vb_cc_installs(w.db->cc) ? w.a->recovered : w.a->rolled_forward, 2);
	both_are_there(&w);
	close_world(&w);
}

static void unknown_then_closed(void **state)
{
	uint64_t freed;
	struct world w;

	commit_unknown(&w, state);
	vb_sim_set_faults(w.f, &none);
	vb_coordinator_close(w.a);
	/* Nothing is left for others. */
	for (uint16_t node = 0; node < NODES; node++) {
		must(vb_db_recover(w.b, node, &freed));
		assert_int_equal(freed, 0);
	}
	assert_int_equal(w.b->rolled_forward + w.b->recovered, 0);
	must(vb_coordinator_open(w.db, 0, &w.a));
	both_are_there(&w);
	close_world(&w);
}

/* A close that cannot learn it either leaves the place to recovery. */
static void unknown_then_cut_off(void **state)
{
	char text[1024];
	uint64_t freed;
	struct world w;

	commit_unknown(&w, state);
	vb_log_capture_begin(text, sizeof(text));
	vb_coordinator_close(w.a);
	vb_log_capture_end();
	assert_non_null(strstr(text, "vb_db_recover"));
	vb_sim_set_faults(w.f, &none);
	must(vb_coordinator_open(w.db, 0, &w.a));
	assert_int_equal(w.a->number, 1);
	for (uint16_t node = 0; node < NODES; node++)
		must(vb_db_recover(w.b, node, &freed));
	both_are_there(&w);
	close_world(&w);
}

/* The CAS has not happened: nor does it later. */
static void unknown_and_not_committed(void **state)
{
	struct vb_lane *lane;
	struct world w;
	uint64_t name;

	open_usual(&w, state, SHORT_NS);
	must(vb_txn_begin(w.a));
	must(write_two(w.a, w.t));
	lane = vb_txn_lane(w.a);
	name = w.a->txn.ts;
	w.a->txn.phase = VB_TXN_OVER;
	w.a->txn.cause = VB_TXN_FABRIC;
	w.a->txn.tainted = true;
	lane->unknown = true;
	must(vb_lane_settle(w.a, lane));
	assert_int_equal(status_of(&w, lane), name | VB_TS_ABORTED);
	for (unsigned i = 0; i < 3; i++)
		write_one(w.a, w.t, 5);
	assert_int_equal(value_of(w.b, w.t, 1), FIRST + 1);
	assert_int_equal(value_of(w.b, w.t, 2), FIRST + 2);
	alone(w.b, write_two(w.b, w.t));
	both_are_there(&w);
	close_world(&w);
}

/* ---- whose time it is ---- */

static struct {
	struct vb_fabric_ops ops;
	const struct vb_fabric_ops *real;
	unsigned still; /* so often who asks stands still behind the answer */
} common;

static uint64_t common_and_still(struct vb_ep *ep, uint64_t *error_ns)
{
	uint64_t now = common.real->common_now(ep, error_ns);

	if (common.still > 0) {
		common.still--;
		must(vb_ep_sleep(ep, 5000000));
	}
	return now;
}

/* Its clock is not behind by as long as it stood still when it first looked. */
static void stands_still_at_first(void **state)
{
	struct world w;

	open_usual(&w, state, LONG_NS);
	common.real = w.a->ep->ops;
	common.ops = *common.real;
	common.ops.common_now = common_and_still;
	common.still = 3;
	w.a->ep->ops = &common.ops;
	assert_true(llabs(vb_coordinator_common(w.a->ep) - w.a->common_ns) < 1000000);
	assert_int_equal(common.still, 0);
	w.a->ep->ops = common.real;
	close_world(&w);
}

int main(int argc, char **argv)
{
	static const struct case_for_all cases[] = {
		{"a place is closed and opened", closed},
		{"the same without recovery", closed_without_recovery},
		{"a coordinator dies", died},
		{"no version comes back", no_version_comes_back},
		{"the clock is pushed on", pushed_on},
		{"the clock is pushed on by holders", pushed_on_by_holders},
		{"the clock is bounded", bounded},
		{"stamps wrap", stamps_wrap},
		{"a coordinator stands still at first", stands_still_at_first},
		{"an unknown commit is whole", unknown_is_whole},
		{"an unknown commit, and on", unknown_then_on},
		{"an unknown commit, and close", unknown_then_closed},
		{"an unknown commit, and cut off", unknown_then_cut_off},
		{"an unknown commit that was none", unknown_and_not_committed},
	};
	static const char *const fabrics[] = {"sim", NULL};
	static struct CMUnitTest tests[TESTS_MAX];
	size_t n = tests_for_all(argc, argv, fabrics, cases, VB_ARRAY_SIZE(cases), tests);

	return _cmocka_run_group_tests("transactions: names", tests, n, NULL, NULL);
}
