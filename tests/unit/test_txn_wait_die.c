/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who waits for whom, in virtual time.  wait-die: who has died is older than all that begin behind it when it tries
 * again, and so waits for them; and under wait-die-fair the oldest of those that wait is next, whichever came first.
 * wound-wait: who waits for an older one, and for long, looks seldom.
 * mocc: what has ended transactions becomes hot, and is entered one by one to write, and together to read; who waits
 * lets go of what comes behind.
 */
#include "txn_api.h"

#include "txn/db.h"

#define X       2
#define US      1000ull
#define STEP_NS 300ull /* by which the holder holds on longer each time */
#define STEPS   40u

/* Who wants the record, in a task of its own. */
struct wants {
	struct world *w;
	struct vb_coordinator *me;
	unsigned *order,
		place; /* how many have had it; the how-manieth this one was, 0: it had it not */
	bool done;
	int err;
};

static void wants_body(void *arg)
{
	struct wants *p = arg;
	struct record *r;

	p->err = vb_txn_update(p->me, p->w->t, X, (void **)&r);
	if (p->err == 0) {
		p->place = ++*p->order;
		r->value++;
		p->err = vb_txn_commit(p->me);
	}
	p->done = true;
}

static void start(struct wants *p)
{
	static const struct vb_task_params params = {.name = "wants"};
	struct vb_task *task;

	must(vb_task_spawn(p->me->ep->sched, wants_body, p, &params, &task));
}

static void let_pass(struct world *w, uint64_t ns)
{
	must(vb_ep_sleep(w->a->ep, ns));
}

/* A dies for B, who was there before.  B's next transaction begins before A's next try, and is younger than that
 * all the same: A waits for it, and does not die again. */
static void becomes_the_oldest(void **state)
{
	struct record *r;
	struct world w;
	unsigned order = 0;
	struct wants again = {.w = &w, .order = &order};

	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin(w.b));
	let_pass(&w, 10 * US);
	must(vb_txn_begin(w.a));
	must(vb_txn_update(w.b, w.t, X, (void **)&r));
	assert_int_equal(vb_txn_update(w.a, w.t, X, (void **)&r), -EAGAIN);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_DIED);
	must(vb_txn_commit(w.b));
	let_pass(&w, 10 * US);
	must(vb_txn_begin(w.b));
	must(vb_txn_update(w.b, w.t, X, (void **)&r));
	let_pass(&w, 10 * US);
	must(vb_txn_begin(w.a));
	again.me = w.a;
	start(&again);
	let_pass(&w, 100 * US);
	assert_false(again.done);
	must(vb_txn_commit(w.b));
	while (!again.done)
		let_pass(&w, 10 * US);
	must(again.err);
	assert_int_equal(value_of(w.b, w.t, X), FIRST + X + 1);
	close_world(&w);
}

/* The younger of two waits first.  Whenever the holder lets go, the older one is next, and the younger dies or waits
 * for it. */
static void the_oldest_is_next(void **state)
{
	const struct kind *k = *state;
	struct vb_coordinator *c;
	struct record *r;
	struct world w;

	if (strcmp(k->ops->name, "wait-die-fair") != 0)
		return;
	open_usual(&w, state, LONG_NS);
	must(vb_coordinator_open(w.db, 1, &c));
	for (unsigned i = 0; i < STEPS; i++) {
		unsigned order = 0;
		struct wants older = {.w = &w, .me = w.a, .order = &order};
		struct wants younger = {.w = &w, .me = w.b, .order = &order};

		must(vb_txn_begin(w.a));
		let_pass(&w, 10 * US);
		must(vb_txn_begin(w.b));
		let_pass(&w, 10 * US);
		must(vb_txn_begin(c));
		must(vb_txn_update(c, w.t, X, (void **)&r));
		start(&younger);
		let_pass(&w, 60 * US);
		start(&older);
		let_pass(&w, 60 * US + i * STEP_NS);
		assert_int_equal(order, 0);
		must(vb_txn_commit(c));
		while (!older.done || !younger.done)
			let_pass(&w, 10 * US);
		must(older.err);
		assert_int_equal(older.place, 1);
		assert_true(younger.place == 2 || younger.err == -EAGAIN);
		/* It is not to be the oldest of the next round. */
		while (younger.err != 0) {
			must(vb_txn_begin(w.b));
			younger.done = false;
			start(&younger);
			while (!younger.done)
				let_pass(&w, 10 * US);
		}
	}
	assert_int_equal(value_of(w.b, w.t, X), FIRST + X + 2 * STEPS);
	vb_coordinator_close(c);
	close_world(&w);
}

/* ---- mocc ---- */

#define Y        3
#define OTHER    5
#define LEASE_NS (4000 * US)

static void open_from(struct world *w, void **state, uint32_t hot_from)
{
	const struct kind *k = *state;
	struct vb_db_params p = usual_db(k, LEASE_NS);

	p.hot_from = hot_from;
	open_world(w, k->fabric, &p);
}

static vb_addr tuple_of(const struct world *w, uint64_t key)
{
	return vb_table_find(w->t, (uint16_t)vb_table_node(w->t, key), key);
}

static uint64_t heat_of(const struct world *w, uint64_t key)
{
	uint64_t heat;

	must(vb_read(w->a->ep, tuple_of(w, key) + VB_TUPLE_META_AT, &heat, 8));
	return heat;
}

/* How many have entered: in the gate and the slots. */
static unsigned inside(const struct world *w, uint64_t key)
{
	uint64_t word[9];
	unsigned n = 0;

	must(vb_read(w->a->ep, tuple_of(w, key) + VB_TUPLE_RESERVED_AT, word, sizeof(word)));
	for (unsigned i = 0; i < VB_ARRAY_SIZE(word); i++)
		n += i != 1 && word[i] != 0;
	return n;
}

/* A and B write the same version: B ends.  And then each has committed, and has no list. */
static void warm(struct world *w, uint64_t key)
{
	struct record *a, *b;

	must(vb_txn_begin(w->a));
	must(vb_txn_begin(w->b));
	must(vb_txn_update(w->a, w->t, key, (void **)&a));
	must(vb_txn_update(w->b, w->t, key, (void **)&b));
	must(vb_txn_commit(w->a));
	assert_int_equal(vb_txn_commit(w->b), -EAGAIN);
	assert_int_equal(vb_txn_cause(w->b), VB_TXN_CHANGED);
	assert_int_equal(value_of(w->b, w->t, OTHER), FIRST + OTHER);
}

static void begin_for(struct vb_coordinator *me, uint64_t ns)
{
	must(vb_txn_begin_with(me, &(struct vb_txn_params){.timeout_ns = ns}));
}

/* Cold records are nobody's business; a hot one is one writer's, which also a reader waits for. */
static void one_writer(void **state)
{
	struct record *r, copy;
	struct world w;

	open_from(&w, state, 1);
	assert_int_equal(heat_of(&w, X), 0);
	warm(&w, X);
	assert_int_equal(heat_of(&w, X), 1);
	assert_int_equal(inside(&w, X), 0);
	must(vb_txn_begin(w.a));
	must(vb_txn_update(w.a, w.t, X, (void **)&r));
	assert_int_equal(inside(&w, X), 1);
	begin_for(w.b, 100 * US);
	assert_int_equal(vb_txn_update(w.b, w.t, X, (void **)&r), -ETIMEDOUT);
	begin_for(w.b, 100 * US);
	assert_int_equal(vb_txn_read(w.b, w.t, X, &copy), -ETIMEDOUT);
	assert_true(w.b->waits > 0);
	assert_int_equal(inside(&w, X), 1);
	must(vb_txn_commit(w.a));
	assert_int_equal(inside(&w, X), 0);
	close_world(&w);
}

/* Readers of a hot record are there together; a writer waits for them, and they for it. */
static void readers_enter_together(void **state)
{
	struct vb_coordinator *c;
	struct record *r, copy;
	struct world w;
	unsigned order = 0;
	struct wants writer = {.w = &w, .order = &order};

	open_from(&w, state, 1);
	must(vb_coordinator_open(w.db, 1, &c));
	warm(&w, X);
	must(vb_txn_begin(w.a));
	must(vb_txn_begin(w.b));
	must(vb_txn_read(w.a, w.t, X, &copy));
	must(vb_txn_read(w.b, w.t, X, &copy));
	assert_int_equal(inside(&w, X), 2);
	must(vb_txn_begin(c));
	writer.me = c;
	start(&writer);
	let_pass(&w, 100 * US);
	must(vb_txn_commit(w.a));
	let_pass(&w, 100 * US);
	assert_int_equal(order, 0);
	must(vb_txn_commit(w.b));
	while (!writer.done)
		let_pass(&w, 10 * US);
	must(writer.err);
	assert_int_equal(inside(&w, X), 0);
	must(vb_txn_begin(w.a));
	must(vb_txn_update(w.a, w.t, X, (void **)&r));
	must(vb_txn_commit(w.a));
	vb_coordinator_close(c);
	close_world(&w);
}

/* Never hot: who was ended enters what it writes in its next tries, until it has committed. */
static void until_a_commit(void **state)
{
	struct record *r;
	struct world w;

	open_from(&w, state, 64);
	warm(&w, X);
	assert_int_equal(heat_of(&w, X), 1);
	must(vb_txn_begin(w.a));
	must(vb_txn_begin(w.b));
	must(vb_txn_update(w.b, w.t, X, (void **)&r));
	assert_int_equal(inside(&w, X), 0);
	must(vb_txn_update(w.a, w.t, X, (void **)&r));
	must(vb_txn_commit(w.a));
	assert_int_equal(vb_txn_commit(w.b), -EAGAIN);
	for (unsigned i = 0; i < 2; i++) {
		must(vb_txn_begin(w.b));
		must(vb_txn_update(w.b, w.t, X, (void **)&r));
		assert_int_equal(inside(&w, X), i == 0 ? 1 : 0);
		must(vb_txn_commit(w.b));
	}
	close_world(&w);
}

/* Two records, one behind the other or both declared. */
struct pair {
	struct world *w;
	struct vb_coordinator *me;
	uint64_t first, second, pause_ns;
	bool declares, done;
	int err;
};

static int take_pair(struct pair *p)
{
	const struct vb_txn_key keys[] = {{p->w->t, p->first, true}, {p->w->t, p->second, true}};
	struct record *r;
	int err = 0;

	if (p->declares) {
		must(vb_ep_sleep(p->me->ep, p->pause_ns));
		err = vb_txn_declare(p->me, keys, 2);
	}
	if (err == 0)
		err = vb_txn_update(p->me, p->w->t, p->first, (void **)&r);
	if (err == 0)
		r->value++;
	if (err == 0 && !p->declares)
		err = vb_ep_sleep(p->me->ep, p->pause_ns);
	if (err == 0)
		err = vb_txn_update(p->me, p->w->t, p->second, (void **)&r);
	if (err == 0)
		r->value++;
	return err == 0 ? vb_txn_commit(p->me) : err;
}

static void pair_body(void *arg)
{
	struct pair *p = arg;

	p->err = vb_txn_begin(p->me);
	if (p->err == 0)
		p->err = take_pair(p);
	p->done = true;
}

static uint64_t run_pairs(struct world *w, struct pair *a, struct pair *b)
{
	static const struct vb_task_params params = {.name = "pair"};
	struct pair *both[] = {a, b};
	uint64_t begin = vb_ep_now(w->a->ep);
	struct vb_task *task;

	for (unsigned i = 0; i < 2; i++)
		must(vb_task_spawn(w->a->ep->sched, pair_body, both[i], &params, &task));
	while (!a->done || !b->done)
		let_pass(w, 10 * US);
	return vb_ep_now(w->a->ep) - begin;
}

/* B has X, and will want Y.  A declares both, gets Y, and is refused X: it leaves Y, B goes on, and both commit. */
static void declared_in_order(void **state)
{
	struct world w;
	struct pair a = {.w = &w, .first = Y, .second = X, .pause_ns = 50 * US, .declares = true};
	struct pair b = {.w = &w, .first = X, .second = Y, .pause_ns = 200 * US};

	open_from(&w, state, 1);
	warm(&w, X);
	warm(&w, Y);
	a.me = w.a;
	b.me = w.b;
	assert_true(run_pairs(&w, &a, &b) < LEASE_NS / 4);
	must(a.err);
	must(b.err);
	assert_int_equal(value_of(w.a, w.t, X), FIRST + X + 2);
	assert_int_equal(value_of(w.a, w.t, Y), FIRST + Y + 2);
	close_world(&w);
}

/* Each has one and wants the other's.  A, whose second comes first, leaves what it has, which then changes. */
static void no_circle(void **state)
{
	struct world w;
	struct pair a = {.w = &w, .first = Y, .second = X, .pause_ns = 200 * US};
	struct pair b = {.w = &w, .first = X, .second = Y, .pause_ns = 200 * US};

	open_from(&w, state, 1);
	warm(&w, X);
	warm(&w, Y);
	a.me = w.a;
	b.me = w.b;
	assert_true(run_pairs(&w, &a, &b) < LEASE_NS / 4);
	must(b.err);
	assert_int_equal(a.err, -EAGAIN);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_CHANGED);
	assert_int_equal(inside(&w, X) + inside(&w, Y), 0);
	close_world(&w);
}

/* A gate whose transaction is dead is opened by those who wait for it, and a reader's slot. */
static void behind_a_dead_one(void **state)
{
	struct record *r, copy;
	struct world w;
	uint64_t begin;
	int err;

	for (unsigned writes = 0; writes < 2; writes++) {
		open_from(&w, state, 1);
		warm(&w, X);
		must(vb_txn_begin(w.a));
		must(writes ? vb_txn_update(w.a, w.t, X, (void **)&r)
			    : vb_txn_read(w.a, w.t, X, &copy));
		vb_coordinator_bury(w.a);
		w.a = NULL;
		begin = vb_ep_now(w.b->ep);
		do {
			must(vb_txn_begin(w.b));
			err = vb_txn_update(w.b, w.t, X, (void **)&r);
			if (err == 0)
				err = vb_txn_commit(w.b);
			assert_true(err == 0 || err == -EAGAIN);
			assert_true(vb_ep_now(w.b->ep) - begin < 4 * w.db->suspect_ns);
		} while (err != 0);
		assert_int_equal(w.b->recovered, 1);
		close_world(&w);
	}
}

static int run_group(const char *name, const struct case_for_all *cases, size_t n_cases, int argc,
		     char **argv)
{
	static const char *const fabrics[] = {"sim", NULL};
	static struct CMUnitTest tests[TESTS_MAX];
	size_t n = tests_for_all(argc, argv, fabrics, cases, n_cases, tests);

	return _cmocka_run_group_tests(name, tests, n, NULL, NULL);
}

/* ---- wound-wait ---- */

/* How many looks at another's record in so many round trips, until the transaction's own time is over. */
static uint64_t looks_in(struct world *w, struct vb_coordinator *me, uint64_t rtts)
{
	const uint64_t rtt_ns = w->f->caps.rtt_ns, before = me->waits;
	const struct vb_txn_params p = {.timeout_ns = rtts * rtt_ns};
	struct record r;

	must(vb_txn_begin_with(me, &p));
	assert_int_equal(vb_txn_read(me, w->t, X, &r), -ETIMEDOUT);
	return me->waits - before;
}

/*
 * Who waits for an older one pauses a round trip between two looks at first, and ever longer then: its looks are in the
 * way of whom it waits for.
 */
static void looks_ever_less(void **state)
{
	const struct kind *k = *state;
	struct vb_db_params p = usual_db(k, LONG_NS);
	struct world w;

	/* A look at a server takes it as long as the server's work. */
	if (k->hybrid != NULL)
		return;
	open_world(&w, k->fabric, &p);
	must(vb_txn_begin(w.a));
	must(vb_txn_write(w.a, w.t, X, &(struct record){.value = 1}));
	/* A look, one at the own status word, and a reader leaves its slot. */
	assert_in_range(looks_in(&w, w.b, 16), 16 / 8, 16);
	assert_in_range(looks_in(&w, w.b, 4000), 4000 / 32, 4000 / 12);
	must(vb_txn_commit(w.a));
	close_world(&w);
}

struct busy {
	struct world *w;
	uint64_t ns;
	bool holds;
};

/* The younger: has the record, and is busy with something else, so that it does not notice its wound. */
static void busy_body(void *arg)
{
	struct busy *b = arg;

	must(vb_txn_begin(b->w->b));
	must(vb_txn_write(b->w->b, b->w->t, X, &(struct record){.value = 1}));
	b->holds = true;
	must(vb_ep_sleep(b->w->b->ep, b->ns));
	assert_int_equal(vb_txn_commit(b->w->b), -EAGAIN);
	assert_int_equal(vb_txn_cause(b->w->b), VB_TXN_WOUNDED);
	b->holds = false;
}

/* And who has wounded whom it waits for looks as often as ever: the next one there may be younger, too. */
static void the_older_looks_on(void **state)
{
	static const struct vb_task_params params = {.name = "busy"};
	const struct kind *k = *state;
	struct vb_db_params p = usual_db(k, LONG_NS);
	struct busy busy = {0};
	struct vb_task *task;
	struct record r;
	uint64_t looks;
	struct world w;

	if (k->hybrid != NULL)
		return;
	open_world(&w, k->fabric, &p);
	busy = (struct busy){.w = &w, .ns = 1000 * w.f->caps.rtt_ns};
	must(vb_txn_begin(w.a));
	must(vb_task_spawn(w.a->ep->sched, busy_body, &busy, &params, &task));
	while (!busy.holds)
		let_pass(&w, US);
	looks = w.a->waits;
	must(vb_txn_read(w.a, w.t, X, &r));
	assert_in_range(w.a->waits - looks, 1000 / 8, 1000);
	must(vb_txn_commit(w.a));
	while (busy.holds)
		let_pass(&w, US);
	close_world(&w);
}

int main(void)
{
	static const struct case_for_all wound_wait[] = {
		{"looks ever less", looks_ever_less},
		{"the older looks on", the_older_looks_on},
	};
	static const struct case_for_all wait_die[] = {
		{"becomes the oldest", becomes_the_oldest},
		{"the oldest is next", the_oldest_is_next},
	};
	static const struct case_for_all mocc[] = {
		{"one writer", one_writer},
		{"readers enter together", readers_enter_together},
		{"until a commit", until_a_commit},
		{"declared in order", declared_in_order},
		{"no circle", no_circle},
		{"behind a dead one", behind_a_dead_one},
	};
	char *of_wait_die[] = {"", "sim", "wait-die", "wait-die-sx", "wait-die-fair"};
	char *of_mocc[] = {"", "sim", "mocc"};
	char *of_wound_wait[] = {"", "sim", "wound-wait", "wound-wait-sx"};
	int failed = run_group("transactions: wait-die", wait_die, VB_ARRAY_SIZE(wait_die),
			       VB_ARRAY_SIZE(of_wait_die), of_wait_die);

	failed += run_group("transactions: wound-wait", wound_wait, VB_ARRAY_SIZE(wound_wait),
			    VB_ARRAY_SIZE(of_wound_wait), of_wound_wait);
	return failed + run_group("transactions: mocc", mocc, VB_ARRAY_SIZE(mocc),
				  VB_ARRAY_SIZE(of_mocc), of_mocc);
}
