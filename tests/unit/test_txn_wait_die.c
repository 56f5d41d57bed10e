/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wait-die, in virtual time: who has died is older than all that begin behind it when it tries again, and so
 * waits for them; and under wait-die-fair the oldest of those that wait is next, whichever came first.
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

int main(void)
{
	static const struct case_for_all cases[] = {
		{"becomes the oldest", becomes_the_oldest},
		{"the oldest is next", the_oldest_is_next},
	};
	static const char *const fabrics[] = {"sim", NULL};
	char *argv[] = {"", "sim", "wait-die", "wait-die-sx", "wait-die-fair"};
	static struct CMUnitTest tests[TESTS_MAX];
	size_t n = tests_for_all(VB_ARRAY_SIZE(argv), argv, fabrics, cases, VB_ARRAY_SIZE(cases),
				 tests);

	return _cmocka_run_group_tests("transactions: wait-die", tests, n, NULL, NULL);
}
