/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timestamp ordering by hand: who ends, who waits, who is in nobody's way, and what is left in the words.  On
 * sim, one-sided and by RPC, and on shm.  A and B tell who is older by the order in which they begin.
 */
#include "txn_api.h"

#include "cc/protocols.h"
#include "cc/to.h"

#define KEY     2 /* node 0 */
#define NEXT    4 /* node 0 */
#define HOLD_NS 300000ull
#define SOON_NS 20000000ull

static const struct kind kinds_here[] = {
	{&vb_cc_to, NULL, "sim"},
	{&vb_cc_to, "rpc", "sim"},
	{&vb_cc_to, NULL, "shm"},
};

static const struct vb_txn_params soon = {.timeout_ns = SOON_NS};

static const char *tuple_of(const struct world *w)
{
	return vb_local(w->f, vb_table_find(w->t, vb_table_node(w->t, KEY), KEY),
			w->t->layout.bytes);
}

static uint64_t rts_of(const struct world *w)
{
	return vb_tuple_word(tuple_of(w), VB_TUPLE_META_AT);
}

static uint64_t lock_of(const struct world *w)
{
	return vb_tuple_word(tuple_of(w), w->t->layout.lock_at);
}

static void begin_younger(struct vb_coordinator *me)
{
	tick(me);
	must(vb_txn_begin(me));
}

static void begin_hurried(struct vb_coordinator *me)
{
	tick(me);
	must(vb_txn_begin_with(me, &soon));
}

static void write_one(struct vb_coordinator *me, struct vb_table *t, uint64_t value)
{
	alone(me, vb_txn_write(me, t, KEY, &(struct record){.value = value, .other = value}));
}

static int read_one(struct vb_coordinator *me, struct vb_table *t, uint64_t *value)
{
	struct record r = {0};
	int err = vb_txn_read(me, t, KEY, &r);

	*value = r.value;
	return err;
}

static int update_one(struct vb_coordinator *me, struct vb_table *t, uint64_t value)
{
	struct record *r;
	int err = vb_txn_update(me, t, KEY, (void **)&r);

	if (err == 0)
		r->value = value;
	return err;
}

/* R1: what should have been read is gone. */
static void late_readers(void **state)
{
	struct world w;
	uint64_t value;

	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin(w.a));
	tick(w.a);
	write_one(w.b, w.t, 7);
	assert_int_equal(read_one(w.a, w.t, &value), -EAGAIN);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_CHANGED);
	/* The next try is younger. */
	begin_younger(w.a);
	must(read_one(w.a, w.t, &value));
	assert_int_equal(value, 7);
	must(vb_txn_commit(w.a));
	close_world(&w);
}

/* R2: a reader comes before the pending write of a younger one, at once; and neither keeps the other from its
 * commit.  It waits for that of an older one. */
static void readers_and_pending(void **state)
{
	struct world w;
	uint64_t value;

	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin(w.a));
	begin_younger(w.b);
	must(update_one(w.b, w.t, 7));
	must(read_one(w.a, w.t, &value));
	assert_int_equal(value, FIRST + KEY);
	assert_int_equal(w.a->waits, 0);
	must(vb_txn_commit(w.b));
	must(vb_txn_commit(w.a));
	begin_younger(w.b);
	must(update_one(w.b, w.t, 8));
	begin_hurried(w.a);
	assert_int_equal(read_one(w.a, w.t, &value), -ETIMEDOUT);
	assert_true(w.a->waits > 0);
	must(vb_txn_commit(w.b));
	/* It has not read, and nobody ends for it. */
	assert_true(rts_of(&w) < w.a->txn.ts);
	close_world(&w);
}

/* W1: a writer ends for a younger reader, whether or not it has read the record itself, and for a younger
 * version. */
static void late_writers(void **state)
{
	struct world w;
	uint64_t value;

	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin(w.a));
	begin_younger(w.b);
	must(read_one(w.b, w.t, &value));
	assert_int_equal(rts_of(&w), w.b->txn.ts);
	assert_int_equal(update_one(w.a, w.t, 7), -EAGAIN);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_CHANGED);
	must(vb_txn_commit(w.b));
	for (unsigned written = 0; written < 2; written++) {
		begin_younger(w.a);
		must(read_one(w.a, w.t, &value));
		tick(w.a);
		if (written)
			write_one(w.b, w.t, 7);
		else
			alone(w.b, read_one(w.b, w.t, &value));
		assert_int_equal(update_one(w.a, w.t, 8), -EAGAIN);
		assert_int_equal(vb_txn_cause(w.a), VB_TXN_CHANGED);
		assert_int_equal(lock_of(&w), 0);
	}
	/* Its own reading is no obstacle. */
	begin_younger(w.a);
	must(read_one(w.a, w.t, &value));
	must(update_one(w.a, w.t, 9));
	must(vb_txn_commit(w.a));
	assert_int_equal(value_of(w.b, w.t, KEY), 9);
	close_world(&w);
}

/* W2: one pending write at a time.  The younger waits, the older ends. */
static void writers_and_pending(void **state)
{
	struct world w;

	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin(w.a));
	begin_younger(w.b);
	must(update_one(w.b, w.t, 7));
	assert_int_equal(update_one(w.a, w.t, 8), -EAGAIN);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_LOCKED);
	assert_int_equal(w.a->waits, 0);
	begin_hurried(w.a);
	assert_int_equal(update_one(w.a, w.t, 8), -ETIMEDOUT);
	assert_true(w.a->waits > 0);
	assert_int_equal(lock_of(&w), w.b->txn.ts);
	must(vb_txn_commit(w.b));
	assert_int_equal(value_of(w.a, w.t, KEY), 7);
	close_world(&w);
}

/* ---- less than serializable ---- */

static const struct vb_txn_params committed = {.isolation = VB_READ_COMMITTED};
static const struct vb_txn_params repeatable = {.isolation = VB_REPEATABLE_READ};

static uint64_t verbs_of(const struct vb_coordinator *me)
{
	uint64_t n = 0;

	for (unsigned op = 0; op < VB_OP_COUNT; op++)
		n += me->ep->count[op];
	return n;
}

/* Verbs that the read of a record costs. */
static uint64_t cost_of_read(struct world *w, const struct vb_txn_params *p)
{
	uint64_t n, value;

	tick(w->a);
	must(vb_txn_begin_with(w->a, p));
	n = verbs_of(w->a);
	must(read_one(w->a, w->t, &value));
	n = verbs_of(w->a) - n;
	must(vb_txn_commit(w->a));
	return n;
}

/* A brief read is one READ, leaves nothing behind, and waits for nobody; and yet it comes too late for a younger
 * version. */
static void brief_reads(void **state)
{
	const struct kind *k = *state;
	struct record r;
	struct world w;
	uint64_t rts;

	open_usual(&w, state, LONG_NS);
	write_one(w.b, w.t, 1);
	rts = rts_of(&w);
	if (k->hybrid == NULL && strcmp(k->fabric, "sim") == 0) {
		(void)cost_of_read(&w, &committed); /* where the record is */
		assert_int_equal(cost_of_read(&w, &committed), 1);
		assert_int_equal(rts_of(&w), rts);
		assert_int_equal(cost_of_read(&w, &repeatable), 3);
		assert_true(rts_of(&w) > rts);
	}
	begin_younger(w.b);
	must(update_one(w.b, w.t, 2));
	tick(w.a);
	must(vb_txn_begin_with(w.a, &committed));
	rts = rts_of(&w);
	must(vb_txn_read(w.a, w.t, KEY, &r));
	assert_int_equal(r.value, 1);
	assert_int_equal(w.a->waits, 0);
	assert_int_equal(rts_of(&w), rts);
	must(vb_txn_commit(w.b));
	/* B's is the older one. */
	must(vb_txn_read(w.a, w.t, KEY, &r));
	assert_int_equal(r.value, 2);
	tick(w.b);
	write_one(w.b, w.t, 3);
	assert_int_equal(vb_txn_read(w.a, w.t, KEY, &r), -EAGAIN);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_CHANGED);
	close_world(&w);
}

/* That there is no record is left to others at repeatable read; that there is one is not. */
static void absence_is_brief(void **state)
{
	struct record r;
	struct world w;
	uint64_t rts;

	open_usual(&w, state, LONG_NS);
	alone(w.b, vb_txn_delete(w.b, w.t, KEY));
	rts = rts_of(&w);
	tick(w.a);
	must(vb_txn_begin_with(w.a, &repeatable));
	assert_int_equal(vb_txn_read(w.a, w.t, KEY, &r), -ENOENT);
	must(vb_txn_commit(w.a));
	assert_int_equal(rts_of(&w), rts);
	begin_younger(w.a);
	assert_int_equal(vb_txn_read(w.a, w.t, KEY, &r), -ENOENT);
	must(vb_txn_commit(w.a));
	assert_true(rts_of(&w) > rts);
	close_world(&w);
}

/*
 * Why a brief read takes no version that is younger.  C is serializable and comes before B, whose write it has
 * not seen; from A it would see what A makes of it:
 *
 *	C (ts 2): reads KEY                                                            reads NEXT
 *	B (ts 3):            writes KEY, commits
 *	A (ts 1):                                 reads KEY, writes NEXT, commits
 */
static void nothing_from_ahead(void **state)
{
	struct vb_coordinator *c;
	struct record r;
	struct world w;
	uint64_t value;

	open_usual(&w, state, LONG_NS);
	must(vb_coordinator_open(w.db, 1, &c));
	must(vb_txn_begin_with(w.a, &committed));
	begin_younger(c);
	must(read_one(c, w.t, &value));
	tick(w.b);
	write_one(w.b, w.t, 7);
	assert_int_equal(vb_txn_read(w.a, w.t, KEY, &r), -EAGAIN);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_CHANGED);
	must(vb_txn_read(c, w.t, NEXT, &r));
	assert_int_equal(r.value, FIRST + NEXT);
	must(vb_txn_commit(c));
	vb_coordinator_close(c);
	close_world(&w);
}

/* ---- who waits gets what was pending ---- */

struct waiter {
	struct world *w;
	bool writes;
	uint64_t seen, waits, ended_ns;
	int err;
};

static void waiter_body(void *arg)
{
	struct waiter *p = arg;
	struct vb_coordinator *me = p->w->a;
	struct record *r;

	p->err = vb_txn_begin(me);
	if (p->err == 0)
		p->err = p->writes ? vb_txn_update(me, p->w->t, KEY, (void **)&r)
				   : vb_txn_get(me, p->w->t, KEY, (const void **)&r);
	p->seen = p->err == 0 ? r->value : 0;
	p->waits = me->waits;
	p->ended_ns = vb_ep_now(me->ep);
	if (p->err == 0)
		p->err = vb_txn_commit(me);
}

static void gets_what_was_pending(void **state)
{
	static const struct vb_task_params params = {.name = "waiter"};
	struct world w;

	open_usual(&w, state, LONG_NS);
	for (unsigned i = 0; i < 4; i++) {
		struct waiter p = {.w = &w, .writes = i & 1};
		bool commits = i & 2;
		struct vb_task *task;
		uint64_t was = value_of(w.b, w.t, KEY), waits = w.a->waits, end;

		must(vb_txn_begin(w.b));
		must(update_one(w.b, w.t, 100 + i));
		tick(w.b);
		must(vb_task_spawn(vb_sched_self(), waiter_body, &p, &params, &task));
		must(vb_ep_sleep(w.b->ep, HOLD_NS));
		end = vb_ep_now(w.b->ep);
		if (commits)
			must(vb_txn_commit(w.b));
		else
			vb_txn_abort(w.b);
		must(vb_sched_run(vb_sched_self(), NULL, VB_FOREVER));
		must(p.err);
		assert_true(p.waits > waits);
		assert_true(p.ended_ns >= end);
		assert_int_equal(p.seen, commits ? 100 + i : was);
	}
	close_world(&w);
}

/* ---- by RPC ---- */

/* A server that waits for one of a call's records runs the stage for the others again: one that was refused
 * stays refused, though the lock is its own by then. */
static void refused_stays_refused(void **state)
{
	const struct vb_txn_key *keys;
	struct vb_coordinator *c;
	struct world w;
	uint64_t value;

	open_usual(&w, state, LONG_NS);
	must(vb_coordinator_open(w.db, 1, &c));
	keys = (struct vb_txn_key[]){{w.t, KEY, true}, {w.t, NEXT, true}};
	must(vb_txn_begin(c));
	must(vb_txn_write(c, w.t, NEXT, &(struct record){.value = 1}));
	begin_hurried(w.a);
	begin_younger(w.b);
	must(read_one(w.b, w.t, &value));
	must(vb_txn_commit(w.b));
	assert_int_equal(vb_txn_declare(w.a, keys, 2), -EAGAIN);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_CHANGED);
	assert_int_equal(lock_of(&w), 0);
	must(vb_txn_commit(c));
	vb_coordinator_close(c);
	close_world(&w);
}

/* ---- clocks ---- */

/* Who has met a reader, a version or a pending write of a clock far ahead is younger at its next try. */
static void clock_follows(void **state)
{
	struct world w;
	uint64_t value, ahead;

	for (unsigned what = 0; what < 3; what++) {
		open_usual(&w, state, LONG_NS);
		write_one(w.b, w.t, 1);
		w.b->clock += 1000000;
		must(vb_txn_begin(w.b));
		ahead = w.b->txn.ts;
		must(what == 0 ? read_one(w.b, w.t, &value) : update_one(w.b, w.t, 2));
		if (what < 2)
			must(vb_txn_commit(w.b));
		must(vb_txn_begin(w.a));
		assert_true(w.a->txn.ts < ahead);
		if (what < 2) {
			assert_int_equal(update_one(w.a, w.t, 3), -EAGAIN);
			must(vb_txn_begin(w.a));
		} else {
			/* In no reader's way once: were it dead, the next one has to find it. */
			must(read_one(w.a, w.t, &value));
			assert_int_equal(value, 1);
			must(vb_txn_commit(w.a));
			must(vb_txn_begin_with(w.a, &soon));
		}
		assert_true(w.a->txn.ts > ahead);
		if (what < 2) {
			must(update_one(w.a, w.t, 3));
			must(vb_txn_commit(w.a));
		} else {
			assert_int_equal(read_one(w.a, w.t, &value), -ETIMEDOUT);
			vb_txn_abort(w.b);
		}
		close_world(&w);
	}
}

/* What a sweep recovers are words that name somebody; that somebody has read is data. */
static void sweeps_leave_data(void **state)
{
	struct world w;
	uint64_t value, freed, rts;

	open_usual(&w, state, SHORT_NS);
	write_one(w.b, w.t, 1);
	alone(w.a, read_one(w.a, w.t, &value));
	rts = rts_of(&w);
	assert_true(rts != 0);
	must(vb_txn_begin(w.a));
	must(update_one(w.a, w.t, 2));
	assert_int_equal(lock_of(&w), w.a->txn.ts);
	must(vb_db_recover(w.b, vb_table_node(w.t, KEY), &freed));
	assert_int_equal(freed, 1);
	assert_int_equal(rts_of(&w), rts);
	assert_int_equal(lock_of(&w), 0);
	assert_int_equal(value_of(w.b, w.t, KEY), 1);
	close_world(&w);
}

int main(void)
{
	static const struct {
		const char *name;
		CMUnitTestFunction run;
	} cases[] = {
		{"late readers", late_readers},
		{"readers and pending writes", readers_and_pending},
		{"late writers", late_writers},
		{"writers and pending writes", writers_and_pending},
		{"brief reads", brief_reads},
		{"absence is brief", absence_is_brief},
		{"nothing from ahead", nothing_from_ahead},
		{"who waits gets what was pending", gets_what_was_pending},
		{"what was refused stays refused", refused_stays_refused},
		{"the clock follows", clock_follows},
		{"sweeps leave data", sweeps_leave_data},
	};
	struct CMUnitTest tests[VB_ARRAY_SIZE(cases) * VB_ARRAY_SIZE(kinds_here)];
	static char names[VB_ARRAY_SIZE(tests)][64];
	size_t n = 0;

	for (size_t k = 0; k < VB_ARRAY_SIZE(kinds_here); k++)
		for (size_t i = 0; i < VB_ARRAY_SIZE(cases); i++, n++) {
			snprintf(names[n], sizeof(names[n]), "%s %s: %s", kinds_here[k].fabric,
				 kinds_here[k].hybrid != NULL ? "rpc" : "one-sided", cases[i].name);
			tests[n] = (struct CMUnitTest){.name = names[n],
						       .test_func = cases[i].run,
						       .initial_state = (void *)&kinds_here[k]};
		}
	return cmocka_run_group_tests_name("txn_to", tests, NULL, NULL);
}
