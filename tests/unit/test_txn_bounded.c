/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bounded-wait, in virtual time: who waits does so for a bounded time, whoever is older; a circle of
 * waiters is broken by one of them, and not by all; and none of them starves.  A holder that is dead is found also
 * by those who do not wait.
 */
#include "txn_api.h"

#include "txn/db.h"

#define X       2 /* node 0 */
#define Y       3 /* node 1 */
#define WAIT_NS 2000000ull
#define LOOK_NS 100000ull /* more than one look, by RPC at the server */

static void open_bounded(struct world *w, void **state)
{
	const struct kind *k = *state;
	struct vb_db_params p = usual_db(k, 50 * WAIT_NS);

	p.wait_ns = WAIT_NS;
	open_world(w, k->fabric, &p);
}

static void is_checked(void **state)
{
	const struct kind *k = *state;
	struct kind other = {.ops = vb_cc_find("wait-die")};
	struct vb_db_params p = usual_db(&other, LONG_NS);
	struct vb_fabric *f;
	struct vb_db *db;

	open_fabric(&f, k->fabric, 16 << 20);
	p.wait_ns = WAIT_NS;
	refused(vb_db_open(f, &p, &db), -EINVAL);
	p = usual_db(k, LONG_NS);
	p.wait_ns = LONG_NS + 1;
	refused(vb_db_open(f, &p, &db), -EINVAL);
	p.wait_ns = 0;
	must(vb_db_open(f, &p, &db));
	assert_int_equal(db->wait_ns, LONG_NS / 64);
	must(vb_db_close(db));
	p.wait_ns = LONG_NS;
	must(vb_db_open(f, &p, &db));
	must(vb_db_close(db));
	must(vb_fabric_close(f));
}

/* From half of wait_ns to all of it, be the holder older or younger; and not always as long. */
static void gives_up(void **state)
{
	uint64_t least = UINT64_MAX, most = 0;
	struct record r;
	struct world w;

	open_bounded(&w, state);
	for (unsigned i = 0; i < 20; i++) {
		struct vb_coordinator *has = i % 2 ? w.a : w.b, *wants = i % 2 ? w.b : w.a;
		uint64_t begin, waited;

		must(vb_txn_begin(i % 4 < 2 ? has : wants));
		must(vb_ep_sleep(w.a->ep, LOOK_NS));
		must(vb_txn_begin(i % 4 < 2 ? wants : has));
		must(vb_txn_write(has, w.t, X, &(struct record){.value = i}));
		must(vb_txn_write(wants, w.t, Y, &(struct record){.value = i}));
		begin = vb_ep_now(wants->ep);
		assert_int_equal(vb_txn_read(wants, w.t, X, &r), -EAGAIN);
		waited = vb_ep_now(wants->ep) - begin;
		assert_int_equal(vb_txn_cause(wants), VB_TXN_TIMEOUT);
		assert_int_equal(vb_txn_error(wants), 0);
		assert_true(waited >= WAIT_NS / 2 && waited <= WAIT_NS + LOOK_NS);
		least = waited < least ? waited : least;
		most = waited > most ? waited : most;
		/* The holder is not disturbed, and the other holds nothing. */
		must(vb_txn_write(has, w.t, Y, &(struct record){.value = i}));
		must(vb_txn_commit(has));
	}
	assert_true(most - least > WAIT_NS / 8);
	close_world(&w);
}

/* A lock that is free is found so soon: who waits pauses a round trip of the fabric, and not a time of its own. */
static void looks_often(void **state)
{
	const struct kind *k = *state;
	uint64_t begin, waited, rtt_ns;
	struct record r;
	struct world w;

	/* A look at a server takes it as long as the server's work. */
	if (k->hybrid != NULL)
		return;
	open_bounded(&w, state);
	rtt_ns = w.f->caps.rtt_ns;
	must(vb_txn_begin(w.b));
	must(vb_txn_write(w.b, w.t, X, &(struct record){.value = 1}));
	must(vb_txn_begin(w.a));
	begin = vb_ep_now(w.a->ep);
	assert_int_equal(vb_txn_read(w.a, w.t, X, &r), -EAGAIN);
	waited = vb_ep_now(w.a->ep) - begin;
	assert_true(rtt_ns > 0 && waited > 100 * rtt_ns);
	/* The pause, the look, one at the own status word, and a reader leaves its slot. */
	assert_in_range(w.a->waits, waited / (8 * rtt_ns), waited / rtt_ns);
	must(vb_txn_commit(w.b));
	close_world(&w);
}

/* Its own deadline comes first, and is told as that. */
static void deadline_first(void **state)
{
	struct record r;
	struct world w;

	open_bounded(&w, state);
	must(vb_txn_begin(w.a));
	must(vb_txn_write(w.a, w.t, X, &(struct record){.value = 1}));
	must(vb_txn_begin_with(w.b, &(struct vb_txn_params){.timeout_ns = WAIT_NS / 4}));
	assert_int_equal(vb_txn_read(w.b, w.t, X, &r), -ETIMEDOUT);
	must(vb_txn_commit(w.a));
	close_world(&w);
}

/* The shortest is a bound, too. */
static void one_ns(void **state)
{
	const struct kind *k = *state;
	struct vb_db_params p = usual_db(k, 50 * WAIT_NS);
	struct record r;
	struct world w;
	uint64_t begin;

	p.wait_ns = 1;
	open_world(&w, k->fabric, &p);
	must(vb_txn_begin(w.a));
	must(vb_txn_write(w.a, w.t, X, &(struct record){.value = 1}));
	must(vb_txn_begin(w.b));
	begin = vb_ep_now(w.b->ep);
	assert_int_equal(vb_txn_read(w.b, w.t, X, &r), -EAGAIN);
	assert_int_equal(vb_txn_cause(w.b), VB_TXN_TIMEOUT);
	assert_true(vb_ep_now(w.b->ep) - begin <= LOOK_NS);
	must(vb_txn_commit(w.a));
	close_world(&w);
}

/* Who is too late to wait has met the holder all the same: of such alone one that is dead is found. */
static void too_late_to_wait(void **state)
{
	static const struct vb_txn_params hurried = {.timeout_ns = 1};
	struct record r;
	struct world w;
	uint64_t begin;
	int err;

	open_bounded(&w, state);
	must(vb_txn_begin(w.a));
	must(vb_txn_write(w.a, w.t, X, &(struct record){.value = 1}));
	vb_coordinator_bury(w.a);
	w.a = NULL;
	begin = vb_ep_now(w.b->ep);
	do {
		assert_true(vb_ep_now(w.b->ep) - begin < 3 * w.db->suspect_ns);
		must(vb_ep_sleep(w.b->ep, LOOK_NS));
		must(vb_txn_begin_with(w.b, &hurried));
		must(vb_ep_sleep(w.b->ep, LOOK_NS));
		err = vb_txn_read(w.b, w.t, X, &r);
		assert_true(err == 0 || err == -ETIMEDOUT);
	} while (err != 0);
	assert_int_equal(w.b->waits, 0);
	assert_int_equal(w.b->recovered, 1);
	assert_int_equal(r.value, FIRST + X);
	vb_txn_abort(w.b);
	close_world(&w);
}

/* ---- who has given up keeps away ---- */

struct away {
	struct world *w;
	uint64_t since_ns, least_ns;
	unsigned tries;
};

static int has_and_wants(struct vb_coordinator *me, void *arg)
{
	struct away *a = arg;
	uint64_t away = vb_ep_now(me->ep) - a->since_ns;
	void *record;
	int err;

	if (a->tries++ > 0 && away < a->least_ns)
		a->least_ns = away;
	err = vb_txn_update(me, a->w->t, X, &record);
	if (err == 0)
		err = vb_txn_update(me, a->w->t, Y, &record);
	a->since_ns = vb_ep_now(me->ep);
	return err;
}

/* Whoever waits for what it had looks once at least before it is back. */
static void keeps_away(void **state)
{
	struct away away = {.least_ns = UINT64_MAX};
	struct world w;

	open_bounded(&w, state);
	away.w = &w;
	must(vb_txn_begin(w.b));
	must(vb_txn_write(w.b, w.t, Y, &(struct record){.value = 1}));
	for (unsigned i = 0; i < 20; i++) {
		away.tries = 0;
		assert_int_equal(vb_txn_run(w.a, has_and_wants, &away, 2), -EAGAIN);
		assert_int_equal(vb_txn_cause(w.a), VB_TXN_TIMEOUT);
		assert_int_equal(away.tries, 2);
	}
	assert_in_range(away.least_ns, 2 * w.db->look_ns, WAIT_NS);
	must(vb_txn_commit(w.b));
	close_world(&w);
}

/* ---- tasks ---- */

struct party {
	struct world *w;
	unsigned number, of, rounds;
	uint64_t hold_ns;
	unsigned tries, *done;
};

/* Of all records in a circle: its own, and then the next one's. */
static int take_two(struct vb_coordinator *me, void *arg)
{
	struct party *p = arg;
	void *record;
	int err = vb_txn_update(me, p->w->t, p->number, &record);

	p->tries++;
	if (err == 0)
		err = vb_ep_sleep(me->ep, p->hold_ns);
	if (err == 0)
		err = vb_txn_update(me, p->w->t, (p->number + 1) % p->of, &record);
	if (err == 0)
		((struct record *)record)->other++;
	return err;
}

static void party_body(void *arg)
{
	struct party *p = arg;
	struct vb_coordinator *me;

	if (vb_coordinator_open(p->w->db, (uint16_t)(p->number % NODES), &me) != 0)
		return;
	for (unsigned i = 0; i < p->rounds; i++)
		*p->done += vb_txn_run(me, take_two, p, 0) == 0;
	vb_coordinator_close(me);
}

/* How many tries it took; *ns: and how long. */
static unsigned run_circle(struct world *w, unsigned of, unsigned rounds, uint64_t *ns)
{
	static const struct vb_task_params params = {.name = "party"};
	struct party party[8];
	uint64_t begin = vb_ep_now(w->a->ep);
	unsigned done = 0, tries = 0;

	for (unsigned i = 0; i < of; i++) {
		struct vb_task *task;

		party[i] = (struct party){.w = w,
					  .number = i,
					  .of = of,
					  .rounds = rounds,
					  .hold_ns = 20000,
					  .done = &done};
		must(vb_task_spawn(vb_sched_self(), party_body, &party[i], &params, &task));
	}
	must(vb_sched_run(vb_sched_self(), NULL, VB_FOREVER));
	assert_int_equal(done, of * rounds);
	for (unsigned i = 0; i < of; i++)
		tries += party[i].tries;
	*ns = vb_ep_now(w->a->ep) - begin;
	return tries;
}

/* Two that wait for each other: one gives up, and the other need not. */
static void one_breaks_it(void **state)
{
	unsigned one = 0;
	struct world w;
	uint64_t ns;

	open_bounded(&w, state);
	for (unsigned i = 0; i < 20; i++) {
		unsigned tries = run_circle(&w, 2, 1, &ns);

		assert_true(ns < 20 * WAIT_NS);
		/* It was a circle. */
		assert_true(tries >= 3);
		one += tries == 3;
	}
	assert_true(one >= 17);
	close_world(&w);
}

/* Six in a circle, again and again: all of them get on, in as much time as so many bounds take. */
static void nobody_starves(void **state)
{
	struct world w;
	uint64_t ns;

	open_bounded(&w, state);
	(void)run_circle(&w, 6, 20, &ns);
	assert_true(ns < 6ull * 20 * 2 * WAIT_NS);
	close_world(&w);
}

int main(void)
{
	static const struct case_for_all cases[] = {
		{"wait_ns is checked", is_checked},
		{"gives up", gives_up},
		{"looks often", looks_often},
		{"one nanosecond", one_ns},
		{"its deadline comes first", deadline_first},
		{"too late to wait", too_late_to_wait},
		{"keeps away", keeps_away},
		{"one breaks the circle", one_breaks_it},
		{"nobody starves", nobody_starves},
	};
	static const char *const fabrics[] = {"sim", NULL};
	char *argv[] = {"", "sim", "bounded-wait", "bounded-wait-sx", "dslr-2pl"};
	static struct CMUnitTest tests[TESTS_MAX + 1];
	size_t n = tests_for_all(VB_ARRAY_SIZE(argv), argv, fabrics, cases, VB_ARRAY_SIZE(cases),
				 tests);

	return _cmocka_run_group_tests("transactions: bounded-wait", tests, n, NULL, NULL);
}
