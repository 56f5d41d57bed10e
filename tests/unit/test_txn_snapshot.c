/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots by hand: what they show, how old it is, what they cost, what they leave in the words, and what
 * those who write owe them.  One-sided and by RPC.
 */
#include "txn_api.h"

#include "cc/mvcc.h"
#include "cc/protocols.h"
#include "fabric/sim/sim.h"

#define X      2 /* node 0 */
#define Y      3 /* node 1 */
#define OTHER  4
#define LAG_NS 40000000ull
/* As the manual has it: the lag, a 5000th of it, and 4 us, where clocks do not differ. */
#define SURE_NS (LAG_NS + LAG_NS / 5000 + 4000)

static const struct vb_txn_params at_snapshot = {.isolation = VB_SNAPSHOT, .read_only = true};

static const struct kind kinds_here[] = {
	{&vb_cc_mvcc, NULL, "sim"},     {&vb_cc_mvcc, "rpc", "sim"},
	{&vb_cc_mvcc, "0111", "sim"},   {&vb_cc_mvcc, NULL, "shm"},
	{&vb_cc_mvcc_rcc, NULL, "sim"}, {&vb_cc_mvcc_rcc, "rpc", "sim"},
	{&vb_cc_mvcc_rcc, NULL, "shm"},
};

static struct vb_db_params lagging(void **state)
{
	struct vb_db_params p = usual_db(*state, LONG_NS);

	p.snapshot_lag_ns = LAG_NS;
	return p;
}

static void open_lagging(struct world *w, void **state)
{
	struct vb_db_params p = lagging(state);

	open_world(w, fabric_of(state), &p);
}

static bool is_sim(void **state)
{
	return strcmp(fabric_of(state), "sim") == 0;
}

static void pass(struct world *w, uint64_t ns)
{
	must(vb_ep_sleep(w->a->ep, ns));
}

static void put(struct vb_coordinator *me, struct vb_table *t, uint64_t key, uint64_t value)
{
	alone(me, vb_txn_write(me, t, key, &(struct record){.value = value}));
}

/* What a's snapshot of now has, if it can be had. */
static int look(struct world *w, uint64_t key, uint64_t *value)
{
	struct record r = {0};
	int err;

	must(vb_txn_begin_with(w->a, &at_snapshot));
	err = vb_txn_read(w->a, w->t, key, &r);
	*value = r.value;
	return err == 0 ? vb_txn_commit(w->a) : err;
}

static uint64_t seen(struct world *w, uint64_t key)
{
	uint64_t value;

	must(look(w, key, &value));
	return value;
}

static const char *tuple_of(const struct world *w, uint64_t key)
{
	return vb_local(w->f, vb_table_find(w->t, vb_table_node(w->t, key), key),
			w->t->layout.bytes);
}

/* ---- what is asked for ---- */

static void is_offered(void **state)
{
	struct vb_db_params p = lagging(state);
	struct vb_db *other;
	struct record r = {0};
	struct world w;

	open_lagging(&w, state);
	must(vb_txn_begin_with(w.a, &at_snapshot));
	refused(vb_txn_write(w.a, w.t, X, &r), -EROFS);
	must(vb_txn_read(w.a, w.t, X, &r));
	must(vb_txn_commit(w.a));
	/* All must agree on how old they are. */
	p.snapshot_lag_ns++;
	refused(vb_db_open(w.f, &p, &other), -EINVAL);
	p.name = "other";
	p.snapshot_lag_ns = LONG_NS + 1;
	refused(vb_db_open(w.f, &p, &other), -EINVAL);
	/* 0 is the lease. */
	p.snapshot_lag_ns = 0;
	must(vb_db_open(w.f, &p, &other));
	vb_db_close(other);
	p.snapshot_lag_ns = LONG_NS - 1;
	refused(vb_db_open(w.f, &p, &other), -EINVAL);
	p.snapshot_lag_ns = LONG_NS;
	must(vb_db_open(w.f, &p, &other));
	vb_db_close(other);
	p.name = "a third";
	p.snapshot_lag_ns = LAG_NS;
	p.cc = "silo";
	p.hybrid = NULL;
	refused(vb_db_open(w.f, &p, &other), -EINVAL);
	close_world(&w);
}

/* Without recovery nobody looks at a lease, but who reads or writes looks at the lag. */
static void without_recovery(void **state)
{
	struct vb_db_params p = lagging(state);
	struct record *r;
	struct world w;

	p.no_recovery = true;
	p.snapshot_lag_ns = 0;
	open_world(&w, fabric_of(state), &p);
	refused(vb_txn_begin_with(w.a, &at_snapshot), -EOPNOTSUPP);
	close_world(&w);
	p.snapshot_lag_ns = LAG_NS;
	open_world(&w, fabric_of(state), &p);
	put(w.b, w.t, X, 7);
	pass(&w, SURE_NS);
	assert_int_equal(seen(&w, X), 7);
	must(vb_txn_begin(w.b));
	must(vb_txn_update(w.b, w.t, X, (void **)&r));
	pass(&w, SURE_NS);
	assert_int_equal(vb_txn_commit(w.b), -EAGAIN);
	assert_int_equal(vb_txn_cause(w.b), VB_TXN_TIMEOUT);
	close_world(&w);
}

/* ---- how old it is ---- */

static void is_of_the_past(void **state)
{
	struct world w;

	open_lagging(&w, state);
	pass(&w, SURE_NS);
	put(w.b, w.t, X, 7);
	/* On shm what takes so long may be shown already. */
	if (is_sim(state))
		assert_int_equal(seen(&w, X), FIRST + X);
	pass(&w, SURE_NS);
	assert_int_equal(seen(&w, X), 7);
	close_world(&w);
}

/* All of it is of one moment, that at which it began, however long it reads. */
static void is_of_one_moment(void **state)
{
	struct record x, y, *to;
	struct world w;

	open_lagging(&w, state);
	pass(&w, SURE_NS);
	must(vb_txn_begin_with(w.a, &at_snapshot));
	must(vb_txn_read(w.a, w.t, X, &x));
	put(w.b, w.t, X, 7);
	put(w.b, w.t, Y, 7);
	must(vb_txn_begin(w.b));
	must(vb_txn_update(w.b, w.t, Y, (void **)&to));
	pass(&w, SURE_NS);
	/* Who holds it is younger. */
	must(vb_txn_read(w.a, w.t, Y, &y));
	must(vb_txn_commit(w.a));
	assert_int_equal(x.value, FIRST + X);
	assert_int_equal(y.value, FIRST + Y);
	vb_txn_abort(w.b);
	assert_int_equal(seen(&w, X), 7);
	assert_int_equal(seen(&w, Y), 7);
	close_world(&w);
}

/* A record that was made since is not there. */
static void shows_what_was_not_there(void **state)
{
	const struct record new = {.value = 1};
	struct world w;
	uint64_t value;

	open_lagging(&w, state);
	pass(&w, SURE_NS);
	must(vb_txn_begin_with(w.a, &at_snapshot));
	alone(w.b, vb_txn_insert(w.b, w.t, LOADED, &new));
	assert_int_equal(vb_txn_read(w.a, w.t, LOADED, &(struct record){0}), -ENOENT);
	must(vb_txn_commit(w.a));
	pass(&w, SURE_NS);
	assert_int_equal(seen(&w, LOADED), 1);
	alone(w.b, vb_txn_delete(w.b, w.t, LOADED));
	pass(&w, SURE_NS);
	assert_int_equal(look(&w, LOADED, &value), -ENOENT);
	vb_txn_abort(w.a);
	close_world(&w);
}

/* Versions that were replaced since: that is counted, and a later one finds them. */
static void slots_are_gone(void **state)
{
	struct world w;
	uint64_t value;

	open_lagging(&w, state);
	pass(&w, SURE_NS);
	must(vb_txn_begin_with(w.a, &at_snapshot));
	for (unsigned i = 0; i < MVCC_SLOTS; i++)
		put(w.b, w.t, X, 2000 + i);
	assert_int_equal(vb_txn_read(w.a, w.t, X, &(struct record){0}), -EAGAIN);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_SLOTS);
	assert_int_equal(w.a->aborts[VB_TXN_SLOTS], 1);
	pass(&w, SURE_NS);
	must(look(&w, X, &value));
	assert_int_equal(value, 2000 + MVCC_SLOTS - 1);
	close_world(&w);
}

/* ---- what it costs, and leaves ---- */

static uint64_t verbs_of(const struct vb_coordinator *me, bool reads)
{
	uint64_t n = 0;

	for (unsigned op = 0; op < VB_OP_COUNT; op++)
		if ((op == VB_OP_READ) == reads)
			n += me->ep->count[op];
	return n;
}

/* One READ each, and five more of what has a newer version; of mvcc-rcc two, whether it has or not.  Nothing is
 * written, not even that it runs. */
static void costs_reads_alone(void **state)
{
	const struct kind *k = *state;
	const bool twice = k->ops == &vb_cc_mvcc_rcc;
	char before[NODES][4096];
	uint64_t reads, others, status;
	struct world w;

	if (!is_sim(state) || k->hybrid != NULL)
		return;
	open_lagging(&w, state);
	pass(&w, SURE_NS);
	(void)seen(&w, X);
	(void)seen(&w, Y);
	status = w.a->lane[0].status;
	reads = verbs_of(w.a, true);
	others = verbs_of(w.a, false);
	assert_int_equal(w.t->layout.bytes <= sizeof(before[0]), true);
	memcpy(before[0], tuple_of(&w, X), w.t->layout.bytes);
	memcpy(before[1], tuple_of(&w, Y), w.t->layout.bytes);
	must(vb_txn_begin_with(w.a, &at_snapshot));
	must(vb_txn_read(w.a, w.t, X, &(struct record){0}));
	must(vb_txn_read(w.a, w.t, Y, &(struct record){0}));
	assert_int_equal(verbs_of(w.a, true) - reads, twice ? 4 : 2);
	assert_memory_equal(before[0], tuple_of(&w, X), w.t->layout.bytes);
	assert_memory_equal(before[1], tuple_of(&w, Y), w.t->layout.bytes);
	must(vb_txn_commit(w.a));
	put(w.b, w.t, X, 7);
	must(vb_txn_begin_with(w.a, &at_snapshot));
	must(vb_txn_read(w.a, w.t, X, &(struct record){0}));
	must(vb_txn_commit(w.a));
	assert_int_equal(verbs_of(w.a, true) - reads, twice ? 4 + 2 : 2 + 1 + 1 + MVCC_SLOTS);
	assert_int_equal(verbs_of(w.a, false), others);
	assert_int_equal(w.a->lane[0].status, status);
	close_world(&w);
}

/* Nor do the servers that read for it, and a writer that is older finds nobody in its way. */
static void leaves_nothing(void **state)
{
	struct record *r;
	struct world w;

	open_lagging(&w, state);
	pass(&w, SURE_NS);
	must(vb_txn_begin(w.b));
	assert_int_equal(seen(&w, X), FIRST + X);
	assert_int_equal(vb_tuple_word(tuple_of(&w, X), VB_TUPLE_META_AT), 0);
	must(vb_txn_update(w.b, w.t, X, (void **)&r));
	/* On a machine that stands still for so long it is late. */
	if (is_sim(state))
		must(vb_txn_commit(w.b));
	close_world(&w);
}

/* ---- what writers owe it ---- */

/* Who is older than the snapshot and holds what it reads may be about to write it. */
static void an_older_holder(void **state)
{
	struct record *r;
	struct world w;
	uint64_t value;

	open_lagging(&w, state);
	pass(&w, SURE_NS);
	must(vb_txn_begin(w.b));
	must(vb_txn_update(w.b, w.t, X, (void **)&r));
	pass(&w, SURE_NS);
	assert_int_equal(look(&w, X, &value), -EAGAIN);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_LOCKED);
	assert_int_equal(vb_txn_commit(w.b), -EAGAIN);
	assert_int_equal(seen(&w, X), FIRST + X);
	close_world(&w);
}

/*
 * W is older than the snapshot and has locked one of two records when R begins, and the other one behind
 * R's look at it.  It may not commit.
 */
static void a_late_writer(void **state)
{
	struct record *r;
	struct world w;
	uint64_t value;

	open_lagging(&w, state);
	pass(&w, SURE_NS);
	must(vb_txn_begin(w.b));
	must(vb_txn_update(w.b, w.t, X, (void **)&r));
	r->value = 7;
	pass(&w, SURE_NS);
	assert_int_equal(seen(&w, Y), FIRST + Y);
	must(vb_txn_update(w.b, w.t, Y, (void **)&r));
	r->value = 7;
	assert_int_equal(vb_txn_commit(w.b), -EAGAIN);
	assert_int_equal(vb_txn_cause(w.b), VB_TXN_TIMEOUT);
	assert_int_equal(w.b->aborts[VB_TXN_TIMEOUT], 1);
	must(look(&w, X, &value));
	assert_int_equal(value, FIRST + X);
	/* Who only reads may take longer. */
	must(vb_txn_begin(w.b));
	must(vb_txn_read(w.b, w.t, X, &(struct record){0}));
	pass(&w, SURE_NS);
	must(vb_txn_commit(w.b));
	close_world(&w);
}

/* Up to the lag it may. */
static void in_time(void **state)
{
	struct record *r;
	struct world w;

	if (!is_sim(state))
		return;
	open_lagging(&w, state);
	must(vb_txn_begin(w.b));
	must(vb_txn_update(w.b, w.t, X, (void **)&r));
	r->value = 7;
	must(vb_ep_sleep_until(w.b->ep, w.b->txn.named_ns + LAG_NS - 100));
	must(vb_txn_commit(w.b));
	pass(&w, SURE_NS);
	assert_int_equal(seen(&w, X), 7);
	close_world(&w);
}

/* ---- snapshot isolation ---- */

static const struct vb_txn_params isolated = {.isolation = VB_SNAPSHOT};

static bool went(int err)
{
	assert_true(err == 0 || err == -EAGAIN);
	return err == 0;
}

/* Two transactions of the same kind, after all that was loaded is in every snapshot. */
static void begin_both(struct world *w, const struct vb_txn_params *p)
{
	pass(w, SURE_NS);
	must(vb_txn_begin_with(w->a, p));
	tick(w->a);
	must(vb_txn_begin_with(w->b, p));
}

static bool reads_both(struct vb_coordinator *me, struct vb_table *t)
{
	struct record r;

	return went(vb_txn_read(me, t, X, &r)) && went(vb_txn_read(me, t, Y, &r));
}

static bool writes_one(struct vb_coordinator *me, struct vb_table *t, uint64_t key)
{
	return went(vb_txn_write(me, t, key, &(struct record){.value = 1}));
}

/* Both read X and Y, and each writes another one. */
static bool skews(struct world *w, const struct vb_txn_params *p)
{
	bool a, b;

	begin_both(w, p);
	a = reads_both(w->a, w->t);
	b = reads_both(w->b, w->t);
	a = a && writes_one(w->a, w->t, X);
	b = b && writes_one(w->b, w->t, Y);
	a = a && went(vb_txn_commit(w->a));
	b = b && went(vb_txn_commit(w->b));
	vb_txn_abort(w->a);
	vb_txn_abort(w->b);
	return a && b;
}

static void write_skew(void **state)
{
	struct world w;

	open_lagging(&w, state);
	assert_false(skews(&w, &(struct vb_txn_params){0}));
	/* On a machine that stands still for as long as the lag, not at once. */
	for (unsigned i = 0; !skews(&w, &isolated); i++)
		assert_true(!is_sim(state) && i < 100);
	close_world(&w);
}

/* Both read X and write it: the second ends, whether the first has committed or not. */
static void first_committer_wins(void **state)
{
	struct record *r;
	struct world w;

	open_lagging(&w, state);
	for (unsigned late = 0; late < 2; late++) {
		bool first;

		begin_both(&w, &isolated);
		must(vb_txn_read(w.a, w.t, X, &(struct record){0}));
		must(vb_txn_read(w.b, w.t, X, &(struct record){0}));
		must(vb_txn_update(w.a, w.t, X, (void **)&r));
		r->value += 1000;
		first = late && went(vb_txn_commit(w.a));
		assert_int_equal(vb_txn_update(w.b, w.t, X, (void **)&r), -EAGAIN);
		assert_int_equal(vb_txn_cause(w.b), first ? VB_TXN_CHANGED : VB_TXN_LOCKED);
		if (!late)
			first = went(vb_txn_commit(w.a));
		if (is_sim(state))
			assert_true(first);
		vb_txn_abort(w.a);
	}
	close_world(&w);
}

/* Nor is it written unread, where it is not in the snapshot. */
static void not_over_what_it_does_not_see(void **state)
{
	struct world w;

	open_lagging(&w, state);
	pass(&w, SURE_NS);
	must(vb_txn_begin_with(w.a, &isolated));
	put(w.b, w.t, X, 7);
	assert_int_equal(vb_txn_write(w.a, w.t, X, &(struct record){0}), -EAGAIN);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_CHANGED);
	pass(&w, SURE_NS);
	must(vb_txn_begin_with(w.a, &isolated));
	must(vb_txn_write(w.a, w.t, X, &(struct record){.value = 8}));
	if (is_sim(state)) {
		must(vb_txn_commit(w.a));
		assert_int_equal(value_of(w.b, w.t, X), 8);
	}
	close_world(&w);
}

/* What it has declared, and its own writes, are seen by it, beside a past in which others' are not; and nobody
 * sees that it has read. */
static void sees_its_own(void **state)
{
	struct record x, y, *r;
	struct world w;
	const struct vb_txn_key *keys;

	open_lagging(&w, state);
	keys = (const struct vb_txn_key[]){{w.t, X, true}, {w.t, Y, false}};
	pass(&w, SURE_NS);
	must(vb_txn_begin_with(w.a, &isolated));
	assert_int_equal(w.a->txn.ts, 0);
	put(w.b, w.t, Y, 7);
	must(vb_txn_declare(w.a, keys, 2));
	assert_true(w.a->txn.ts > w.a->txn.snapshot);
	must(vb_txn_update(w.a, w.t, X, (void **)&r));
	r->value = 9;
	must(vb_txn_read(w.a, w.t, X, &x));
	must(vb_txn_read(w.a, w.t, Y, &y));
	assert_int_equal(x.value, 9);
	assert_int_equal(y.value, FIRST + Y);
	must(vb_txn_read(w.a, w.t, OTHER, &y));
	assert_int_equal(vb_tuple_word(tuple_of(&w, OTHER), VB_TUPLE_META_AT), 0);
	if (is_sim(state))
		must(vb_txn_commit(w.a));
	close_world(&w);
}

/* Who is serializable and has read what it would write, younger than it, is not written over. */
static void leaves_others_theirs(void **state)
{
	struct record *r;
	struct world w;

	open_lagging(&w, state);
	pass(&w, SURE_NS);
	must(vb_txn_begin_with(w.a, &isolated));
	must(vb_txn_update(w.a, w.t, Y, (void **)&r));
	tick(w.b);
	must(vb_txn_begin(w.b));
	must(vb_txn_read(w.b, w.t, X, &(struct record){0}));
	assert_int_equal(vb_txn_update(w.a, w.t, X, (void **)&r), -EAGAIN);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_CHANGED);
	must(vb_txn_commit(w.b));
	close_world(&w);
}

/* ---- clocks ---- */

#define ERROR_NS 300000ull

/*
 * What either takes for the common time is wrong by up to ERROR_NS.  A transaction that is named at one moment
 * is in no snapshot of which it could still be told by its locks, and in each that begins four errors after
 * the time that is sure.
 */
static void clocks_differ(void **state)
{
	static const struct vb_sim_faults faults = {.drift_max_ppb = 50000,
						    .common_error_max_ns = ERROR_NS};
	struct vb_db_params p = lagging(state);
	struct world w;

	if (!is_sim(state))
		return;
	open_db(&w, fabric_of(state), &p);
	start_servers(&w);
	vb_sim_set_faults(w.f, &faults);
	must(vb_coordinator_open(w.db, 0, &w.a));
	must(vb_coordinator_open(w.db, 1, &w.b));
	pass(&w, SURE_NS);
	for (unsigned i = 0; i < 64; i++) {
		uint64_t begin = vb_sched_now(w.a->ep->sched), now;

		must(vb_txn_begin(w.b));
		assert_true(vb_ts_clock(w.b->txn.ts) >= begin >> VB_TS_CLOCK_SHIFT);
		must(vb_txn_write(w.b, w.t, X, &(struct record){.value = i}));
		must(vb_txn_commit(w.b));
		pass(&w, ERROR_NS * (i % 7));
		must(vb_txn_begin_with(w.a, &at_snapshot));
		now = vb_sched_now(w.a->ep->sched);
		assert_true(vb_ts_clock(w.a->txn.snapshot) <= (now - LAG_NS) >> VB_TS_CLOCK_SHIFT);
		vb_txn_abort(w.a);
		pass(&w, SURE_NS + SURE_NS / 10000 + 4 * ERROR_NS);
		assert_int_equal(seen(&w, X), i);
	}
	close_world(&w);
}

/* The time goes back; what was seen stays seen. */
static void never_goes_back(void **state)
{
	struct world w;

	open_lagging(&w, state);
	put(w.b, w.t, X, 7);
	pass(&w, SURE_NS);
	assert_int_equal(seen(&w, X), 7);
	/* As if its clock had been set back behind that: the next one is of the same time. */
	w.a->db->snapshot_back_ns += SURE_NS;
	assert_int_equal(seen(&w, X), 7);
	close_world(&w);
}

int main(void)
{
	static const struct {
		const char *name;
		CMUnitTestFunction run;
	} cases[] = {
		{"is offered", is_offered},
		{"without recovery", without_recovery},
		{"is of the past", is_of_the_past},
		{"is of one moment", is_of_one_moment},
		{"shows what was not there", shows_what_was_not_there},
		{"slots are gone", slots_are_gone},
		{"costs reads alone", costs_reads_alone},
		{"leaves nothing", leaves_nothing},
		{"an older holder", an_older_holder},
		{"a late writer", a_late_writer},
		{"in time", in_time},
		{"write skew", write_skew},
		{"first committer wins", first_committer_wins},
		{"not over what it does not see", not_over_what_it_does_not_see},
		{"sees its own", sees_its_own},
		{"leaves others theirs", leaves_others_theirs},
		{"clocks differ", clocks_differ},
		{"never goes back", never_goes_back},
	};
	struct CMUnitTest tests[VB_ARRAY_SIZE(cases) * VB_ARRAY_SIZE(kinds_here)];
	static char names[VB_ARRAY_SIZE(tests)][80];
	size_t n = 0;

	for (size_t k = 0; k < VB_ARRAY_SIZE(kinds_here); k++)
		for (size_t i = 0; i < VB_ARRAY_SIZE(cases); i++, n++) {
			snprintf(names[n], sizeof(names[n]), "%s %s %s: %s",
				 kinds_here[k].ops->name, kinds_here[k].fabric,
				 kinds_here[k].hybrid != NULL ? kinds_here[k].hybrid : "one-sided",
				 cases[i].name);
			tests[n] = (struct CMUnitTest){.name = names[n],
						       .test_func = cases[i].run,
						       .initial_state = (void *)&kinds_here[k]};
		}
	return cmocka_run_group_tests_name("txn_snapshot", tests, NULL, NULL);
}
