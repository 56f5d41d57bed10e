/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What transactions see of each other, for every protocol, one-sided and by RPC, where verbs
 * complete at once (shm) and where they do not (sim): two coordinators whose calls are interleaved
 * by hand in one thread, and several that run by themselves in tasks.
 *
 * Interleaved by hand, whoever has to wait for the other waits until its lease has passed, so that
 * a protocol may always abort; what it may not do is commit what no order of the transactions
 * explains.
 */
#include "txn_api.h"

#define X   2 /* node 0 */
#define Y   3 /* node 1 */
#define NEW 40

/* True: the call worked; false: the transaction is over. */
static bool went(int err)
{
	if (err == 0)
		return true;
	assert_int_equal(err, -EAGAIN);
	return false;
}

/* A transaction that is over may still be called: it says so, and its commit too. */
static bool committed(struct vb_coordinator *me)
{
	bool yes = went(vb_txn_commit(me));

	assert_int_equal(yes, vb_txn_cause(me) == VB_TXN_COMMITTED);
	return yes;
}

/* ---- two at a time ---- */

/* Under these nobody waits for anybody. */
static bool waits(const struct kind *k)
{
	static const char *const none[] = {"no-wait", "no-wait-sx", "silo",
					   "sundial", "mvcc",       "mvcc-rcc"};

	for (unsigned i = 0; i < VB_ARRAY_SIZE(none); i++)
		if (strcmp(k->ops->name, none[i]) == 0)
			return false;
	return true;
}

/* Of two that exclude each other no more than one commits; and one does where nobody waits, and no
 * machine with other work lets leases pass. */
static void one_of_two(void **state, unsigned commits)
{
	const struct kind *k = *state;

	assert_true(commits <= 1);
	if (strcmp(k->fabric, "sim") == 0 && !waits(k))
		assert_int_equal(commits, 1);
}

static void no_dirty_read(void **state)
{
	const struct record ours = {.value = 1};
	struct record r = {0};
	struct world w;
	int err;

	open_usual(&w, state, SHORT_NS);
	must(vb_txn_begin(w.a));
	must(vb_txn_begin(w.b));
	(void)went(vb_txn_write(w.a, w.t, X, &ours));
	(void)went(vb_txn_insert(w.a, w.t, NEW, &ours));

	err = vb_txn_read(w.b, w.t, X, &r);
	if (went(err))
		assert_int_equal(r.value, FIRST + X);
	err = vb_txn_read(w.b, w.t, NEW, &r);
	assert_true(err == -ENOENT || err == -EAGAIN);
	vb_txn_abort(w.b);

	vb_txn_abort(w.a);
	assert_int_equal(value_of(w.b, w.t, X), FIRST + X);
	assert_none(w.b, w.t, NEW);
	close_world(&w);
}

static unsigned update_twice(struct world *w)
{
	struct record ra = {0}, rb = {0};
	unsigned commits = 0;

	must(vb_txn_begin(w->a));
	must(vb_txn_begin(w->b));
	(void)went(vb_txn_read(w->a, w->t, X, &ra));
	(void)went(vb_txn_read(w->b, w->t, X, &rb));
	ra.value++;
	rb.value++;
	(void)went(vb_txn_write(w->a, w->t, X, &ra));
	(void)went(vb_txn_write(w->b, w->t, X, &rb));
	commits += committed(w->a);
	commits += committed(w->b);
	return commits;
}

static void no_lost_update(void **state)
{
	struct world w;
	unsigned commits;

	open_usual(&w, state, SHORT_NS);
	commits = update_twice(&w);
	one_of_two(state, commits);
	assert_int_equal(value_of(w.a, w.t, X), FIRST + X + commits);
	close_world(&w);
}

/* The test above would notice a protocol that loses updates. */
static void a_lost_update_is_caught(void **state)
{
	struct kind wrong = {.ops = vb_cc_find("silo-as-published")};
	struct vb_db_params p = usual_db(&wrong, LONG_NS);
	struct world w;

	(void)state;
	open_world(&w, "shm", &p);
	assert_int_equal(update_twice(&w), 2);
	assert_int_equal(value_of(w.a, w.t, X), FIRST + X + 1);
	close_world(&w);
}

/* The same, in place. */
static void no_lost_update_in_place(void **state)
{
	struct record *ra, *rb;
	struct world w;
	unsigned commits = 0;

	open_usual(&w, state, SHORT_NS);
	must(vb_txn_begin(w.a));
	must(vb_txn_begin(w.b));
	if (went(vb_txn_update(w.a, w.t, X, (void **)&ra)))
		ra->value += 10;
	if (went(vb_txn_update(w.b, w.t, X, (void **)&rb)))
		rb->value += 10;
	commits += committed(w.b);
	commits += committed(w.a);
	one_of_two(state, commits);
	assert_int_equal(value_of(w.a, w.t, X), FIRST + X + 10 * commits);
	close_world(&w);
}

/* Read, and only then declared to be written. */
static void no_lost_update_declared(void **state)
{
	struct record ra = {0}, rb = {0};
	struct world w;
	unsigned commits = 0;

	open_usual(&w, state, SHORT_NS);
	must(vb_txn_begin(w.a));
	must(vb_txn_begin(w.b));
	(void)went(vb_txn_read(w.a, w.t, X, &ra));
	(void)went(vb_txn_read(w.b, w.t, X, &rb));
	(void)went(vb_txn_declare(w.a, &(struct vb_txn_key){w.t, X, true}, 1));
	(void)went(vb_txn_declare(w.b, &(struct vb_txn_key){w.t, X, true}, 1));
	ra.value++;
	rb.value++;
	(void)went(vb_txn_write(w.a, w.t, X, &ra));
	(void)went(vb_txn_write(w.b, w.t, X, &rb));
	commits += committed(w.a);
	commits += committed(w.b);
	one_of_two(state, commits);
	assert_int_equal(value_of(w.a, w.t, X), FIRST + X + commits);
	close_world(&w);
}

/* Each reads what the other writes. */
static void no_write_skew(void **state)
{
	const struct record zero = {0};
	struct record r;
	struct world w;
	unsigned commits = 0;

	open_usual(&w, state, SHORT_NS);
	must(vb_txn_begin(w.a));
	must(vb_txn_begin(w.b));
	(void)went(vb_txn_read(w.a, w.t, X, &r));
	(void)went(vb_txn_read(w.b, w.t, Y, &r));
	(void)went(vb_txn_write(w.a, w.t, Y, &zero));
	(void)went(vb_txn_write(w.b, w.t, X, &zero));
	commits += committed(w.a);
	commits += committed(w.b);
	one_of_two(state, commits);
	assert_int_equal((value_of(w.a, w.t, X) == 0) + (value_of(w.a, w.t, Y) == 0), commits);
	close_world(&w);
}

/* The same where one reads that there is no record, and the other inserts it. */
static void absence_is_read(void **state)
{
	const struct record ours = {.value = 7};
	struct record r;
	struct world w;
	unsigned commits = 0;
	int err;

	open_usual(&w, state, SHORT_NS);
	must(vb_txn_begin(w.a));
	must(vb_txn_begin(w.b));
	err = vb_txn_read(w.a, w.t, NEW, &r);
	assert_true(err == -ENOENT || err == -EAGAIN);
	(void)went(vb_txn_read(w.b, w.t, X, &r));
	(void)went(vb_txn_insert(w.b, w.t, NEW, &ours));
	(void)went(vb_txn_write(w.a, w.t, X, &ours));
	commits += committed(w.b);
	commits += committed(w.a);
	one_of_two(state, commits);
	close_world(&w);
}

/* ... or that there is one, as a refused insert finds, and the other deletes it. */
static void existence_is_read(void **state)
{
	const struct record ours = {.value = 7};
	struct record r;
	struct world w;
	unsigned commits = 0;
	int err;

	open_usual(&w, state, SHORT_NS);
	must(vb_txn_begin(w.a));
	must(vb_txn_begin(w.b));
	err = vb_txn_insert(w.a, w.t, X, &ours);
	assert_true(err == -EEXIST || err == -EAGAIN);
	(void)went(vb_txn_read(w.b, w.t, Y, &r));
	(void)went(vb_txn_write(w.a, w.t, Y, &ours));
	(void)went(vb_txn_delete(w.b, w.t, X));
	commits += committed(w.b);
	commits += committed(w.a);
	one_of_two(state, commits);
	close_world(&w);
}

/* Two insert the same key. */
static void one_inserts(void **state)
{
	const struct record of_a = {.value = 1}, of_b = {.value = 2};
	struct world w;
	bool a, b;

	open_usual(&w, state, SHORT_NS);
	must(vb_txn_begin(w.a));
	must(vb_txn_begin(w.b));
	(void)went(vb_txn_insert(w.a, w.t, NEW, &of_a));
	(void)went(vb_txn_insert(w.b, w.t, NEW, &of_b));
	a = committed(w.a);
	b = committed(w.b);
	one_of_two(state, a + b);
	if (a || b)
		assert_int_equal(value_of(w.a, w.t, NEW), a ? 1 : 2);
	else
		assert_none(w.a, w.t, NEW);
	close_world(&w);
}

/* One updates what another deletes. */
static void update_or_delete(void **state)
{
	struct record *r;
	struct world w;
	bool a, b;

	open_usual(&w, state, SHORT_NS);
	must(vb_txn_begin(w.a));
	must(vb_txn_begin(w.b));
	if (went(vb_txn_update(w.a, w.t, X, (void **)&r)))
		r->value = 5;
	(void)went(vb_txn_delete(w.b, w.t, X));
	a = committed(w.a);
	b = committed(w.b);
	one_of_two(state, a + b);
	if (b)
		assert_none(w.a, w.t, X);
	else
		assert_int_equal(value_of(w.a, w.t, X), a ? 5 : FIRST + X);
	close_world(&w);
}

static void set_both(struct world *w, struct vb_coordinator *me, uint64_t value)
{
	struct record *r;

	must(vb_txn_begin(me));
	if (went(vb_txn_update(me, w->t, X, (void **)&r)))
		r->value = value;
	if (went(vb_txn_update(me, w->t, Y, (void **)&r)))
		r->value = value;
	(void)committed(me);
}

/* What has been read stays; and both records are of one moment, if the transaction commits. */
static void repeatable_read(void **state)
{
	const struct record *x, *again, *y;
	struct world w;
	uint64_t before;

	open_usual(&w, state, SHORT_NS);
	set_both(&w, w.b, 1000);
	must(vb_txn_begin(w.a));
	if (went(vb_txn_get(w.a, w.t, X, (const void **)&x))) {
		before = x->value;
		set_both(&w, w.b, 2000);
		assert_int_equal(x->value, before);
		if (went(vb_txn_get(w.a, w.t, X, (const void **)&again)))
			assert_int_equal(again->value, before);
		if (went(vb_txn_get(w.a, w.t, Y, (const void **)&y))) {
			/* What stood there at first, each its own: within the clock's unit of 2 us the
			 * order is that of places, and the first write's may be the later one. */
			uint64_t with_it = before < 1000 ? before + (Y - X) : before;
			uint64_t other = y->value;

			if (committed(w.a))
				assert_int_equal(with_it, other);
		}
	}
	close_world(&w);
}

/* Two read the same record at a time, and nobody is in the way of the other; or the protocol says
 * that they exclude each other. */
static void readers(void **state)
{
	const struct kind *k = *state;
	bool locks = k->ops->stages[0].name[0] == 'l',
	     shared = !locks || k->ops->caps & VB_CC_SHARED;
	const struct record *r;
	struct world w;

	open_usual(&w, state, shared ? LONG_NS : SHORT_NS);
	must(vb_txn_begin(w.a));
	must(vb_txn_begin(w.b));
	(void)went(vb_txn_get(w.a, w.t, X, (const void **)&r));
	assert_int_equal(went(vb_txn_get(w.b, w.t, X, (const void **)&r)), shared);
	assert_int_equal(committed(w.b), shared);
	(void)committed(w.a);
	close_world(&w);
}

/* In real time, too: what had ended before a transaction began is seen by it.  By its timestamp, where that
 * counts, it may have begun before: then it sees what was there, and no less than before. */
static void strictly_after(void **state)
{
	const struct kind *k = *state;
	bool strict = k->ops->caps & VB_CC_STRICT;
	struct record r = {0};
	struct world w;
	unsigned read = 0;
	int err;

	open_usual(&w, state, LONG_NS);
	assert_true(strict || strcmp(k->ops->name, "sundial") == 0 ||
		    strcmp(k->ops->name, "maat") == 0 || by_clocks(k->ops));
	for (uint64_t i = 1; i <= 20; i++) {
		uint64_t last = i > 1 && by_clocks(k->ops) ? r.value : i;

		set_both(&w, i % 2 ? w.a : w.b, i);
		must(vb_txn_begin(w.a));
		err = vb_txn_read(w.a, w.t, Y, &r);
		/* It may be too late. */
		if (err == -EAGAIN && by_clocks(k->ops))
			continue;
		must(err);
		must(vb_txn_commit(w.a));
		read++;
		assert_in_range(r.value, last, i);
	}
	assert_true(read > 0);
	close_world(&w);
}

/* B is younger and finds what A has written, or has read and A has changed since: told by each protocol
 * in its own word. */
static void causes_are_told(void **state)
{
	const struct kind *k = *state;
	const char *name = k->ops->name;
	struct record r = {0}, *u;
	struct world w;
	int err;

	open_usual(&w, state, LONG_NS);
	if (strncmp(name, "no-wait", 7) == 0 || strncmp(name, "wait-die", 8) == 0) {
		must(vb_txn_begin(w.a));
		must(vb_txn_update(w.a, w.t, X, (void **)&u));
		must(vb_txn_begin(w.b));
		assert_int_equal(vb_txn_update(w.b, w.t, X, (void **)&u), -EAGAIN);
		assert_int_equal(vb_txn_cause(w.b), name[0] == 'n' ? VB_TXN_LOCKED : VB_TXN_DIED);
		must(vb_txn_commit(w.a));
	} else if (strcmp(name, "silo") == 0 || strcmp(name, "cicada") == 0 ||
		   strcmp(name, "maat") == 0 || locks_writes_early(k)) {
		must(vb_txn_begin(w.b));
		must(vb_txn_read(w.b, w.t, X, &r));
		tick(w.a);
		set_both(&w, w.a, 7);
		err = vb_txn_write(w.b, w.t, X, &r);
		assert_int_equal(err != 0 ? err : vb_txn_commit(w.b), -EAGAIN);
		assert_int_equal(vb_txn_cause(w.b), VB_TXN_CHANGED);
	}
	assert_int_equal(vb_txn_error(w.b), 0);
	close_world(&w);
}

/* ---- in tasks of their own ---- */

#define TASKS  4
#define ROUNDS 40
#define CELLS  3

struct group {
	struct world *w;
	unsigned running;
	unsigned audits, wrong, failed;
	bool declare;
};

struct member {
	struct group *group;
	unsigned number;
	uint64_t from, to;
	uint64_t sum;
};

static int move_one(struct vb_coordinator *me, void *arg)
{
	struct member *m = arg;
	struct vb_table *t = m->group->w->t;
	const struct vb_txn_key keys[] = {{t, m->from, true}, {t, m->to, true}};
	struct record *from, *to;
	int err = m->group->declare ? vb_txn_declare(me, keys, 2) : 0;

	if (err == 0)
		err = vb_txn_update(me, t, m->from, (void **)&from);

	/* Others run here. */
	vb_task_yield();
	if (err == 0)
		err = vb_txn_update(me, t, m->to, (void **)&to);
	if (err)
		return err;
	from->value--;
	to->value++;
	vb_task_yield();
	return 0;
}

static int add_up(struct vb_coordinator *me, void *arg)
{
	struct member *m = arg;
	struct vb_txn_key keys[CELLS];

	for (uint64_t key = 0; key < CELLS; key++)
		keys[key] = (struct vb_txn_key){.table = m->group->w->t, .key = key};
	if (m->group->declare && vb_txn_declare(me, keys, CELLS) != 0)
		return -EAGAIN;
	m->sum = 0;
	for (uint64_t key = 0; key < CELLS; key++) {
		const struct record *r;
		int err = vb_txn_get(me, m->group->w->t, key, (const void **)&r);

		if (err)
			return err;
		m->sum += r->value;
		vb_task_yield();
	}
	return 0;
}

/* No assertion here: it would leave this task's stack for the test's. */
static int member_work(struct member *m, struct vb_coordinator *me)
{
	for (unsigned i = 0; i < ROUNDS; i++) {
		int err;

		m->from = (m->number + i) % CELLS;
		m->to = (m->from + 1 + i % (CELLS - 1)) % CELLS;
		err = vb_txn_run(me, i % 4 == 3 ? add_up : move_one, m, 0);
		if (err)
			return err;
		if (i % 4 != 3)
			continue;
		m->group->audits++;
		m->group->wrong += m->sum != CELLS * FIRST + 0 + 1 + 2;
	}
	return 0;
}

static void member_body(void *arg)
{
	struct member *m = arg;
	struct vb_coordinator *me;
	int err = vb_coordinator_open(m->group->w->db, (uint16_t)(m->number % NODES), &me);

	if (err == 0) {
		err = member_work(m, me);
		vb_coordinator_close(me);
	}
	m->group->failed += err != 0;
	m->group->running--;
}

static void run_group(struct world *w, bool declare)
{
	static const struct vb_task_params params = {.name = "member"};
	struct group group = {.w = w, .declare = declare};
	struct member member[TASKS];

	for (unsigned i = 0; i < TASKS; i++) {
		struct vb_task *task;

		member[i] = (struct member){.group = &group, .number = i};
		group.running++;
		must(vb_task_spawn(vb_sched_self(), member_body, &member[i], &params, &task));
	}
	must(vb_sched_run(vb_sched_self(), NULL, VB_FOREVER));
	assert_int_equal(group.running, 0);
	assert_int_equal(group.failed, 0);
	assert_int_equal(group.wrong, 0);
	assert_int_equal(group.audits, TASKS * ROUNDS / 4);
}

static void nothing_is_lost(void **state)
{
	struct world w;

	open_usual(&w, state, 0);
	run_group(&w, false);
	close_world(&w);
}

/* Each transaction says beforehand what it will touch. */
static void nothing_is_lost_declared(void **state)
{
	struct world w;

	open_usual(&w, state, 0);
	run_group(&w, true);
	close_world(&w);
}

/* With what can be switched off, and without recovery. */
static void nothing_is_lost_plainly(void **state)
{
	const struct kind *k = *state;
	struct vb_db_params p = usual_db(k, 0);
	struct world w;

	p.no_doorbell = p.no_outstanding = p.no_recovery = true;
	open_world(&w, k->fabric, &p);
	run_group(&w, false);
	close_world(&w);
}

/* With a location cache of few entries, and commits that are not waited for. */
static void nothing_is_lost_in_passing(void **state)
{
	const struct kind *k = *state;
	struct vb_db_params p = usual_db(k, 0);
	struct world w;

	p.cache_entries = 2;
	p.passive_ack = true;
	open_world(&w, k->fabric, &p);
	run_group(&w, false);
	close_world(&w);
}

int main(int argc, char **argv)
{
	static const struct case_for_all cases[] = {
		{"no dirty read", no_dirty_read},
		{"no lost update", no_lost_update},
		{"no lost update in place", no_lost_update_in_place},
		{"no lost update, declared late", no_lost_update_declared},
		{"no write skew", no_write_skew},
		{"that there is no record is read", absence_is_read},
		{"that there is a record is read", existence_is_read},
		{"one of two inserts", one_inserts},
		{"update or delete", update_or_delete},
		{"repeatable read", repeatable_read},
		{"readers", readers},
		{"what has ended is seen", strictly_after},
		{"causes are told", causes_are_told},
		{"tasks lose nothing", nothing_is_lost},
		{"tasks that declare lose nothing", nothing_is_lost_declared},
		{"tasks lose nothing, all switched off", nothing_is_lost_plainly},
		{"tasks lose nothing, passive", nothing_is_lost_in_passing},
	};
	static const char *const fabrics[] = {"shm", "sim", NULL};
	static struct CMUnitTest tests[TESTS_MAX + 1];
	size_t n = tests_for_all(argc, argv, fabrics, cases, VB_ARRAY_SIZE(cases), tests);

	if (argc == 1)
		tests[n++] = (struct CMUnitTest)cmocka_unit_test(a_lost_update_is_caught);
	return _cmocka_run_group_tests("transactions: isolation", tests, n, NULL, NULL);
}
