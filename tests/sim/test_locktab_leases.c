/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lock table and its leases, to the microsecond: waits that would outlive what is held besides,
 * paths that are lost while they are taken, ages of clients whose clocks nobody has compared.
 */
#include "sim_test.h"

#include "lock/table/table.h"

#define US      1000ull
#define MS      1000000ull
#define LEASE   (10 * MS)
#define CLIENTS 3
/* A few messages there and back. */
#define SLACK (30 * US)

struct world {
	struct vb_fabric *f;
	struct vb_lock_space *space;
	struct vb_lock_server *server;
	struct vb_lock_client *c[CLIENTS];
};

static void open_world(struct world *w, const char *options, uint64_t lease_ns, uint64_t seed,
		       int64_t drift_ppb)
{
	struct vb_lock_space_params p = {
		.lock = "table", .options = options, .locks = 100, .lease_ns = lease_ns};
	struct vb_sim_faults faults = {.drift_max_ppb = drift_ppb, .drift_edge = true};

	*w = (struct world){.f = cluster("profile=cx5", 1 + CLIENTS, seed)};
	vb_sim_set_faults(w->f, &faults);
	assert_int_equal(vb_lock_space_open(w->f, &p, &w->space), 0);
	assert_int_equal(vb_lock_server_start(w->space, 0, 0, 1, &w->server), 0);
	for (uint16_t i = 0; i < CLIENTS; i++)
		assert_int_equal(vb_lock_client_open(w->space, 1 + i, &w->c[i]), 0);
}

static void close_world(struct world *w)
{
	for (unsigned i = 0; i < CLIENTS; i++)
		vb_lock_client_close(w->c[i]);
	vb_lock_server_stop(w->server);
	vb_lock_space_close(w->space);
	vb_fabric_close(w->f);
	vb_sched_destroy(vb_sched_self());
}

/* ---- two locks in both orders ---- */

struct crosser {
	struct vb_lock_client *me;
	uint64_t first, second, start_ns;
	bool convert; /* the second is held, and wanted exclusively */
	struct vb_grant g[2];
	int err;
	uint64_t asked_ns, told_ns;
	bool first_valid, done;
};

static void cross_body(void *arg)
{
	struct crosser *x = arg;

	vb_ep_sleep(x->me->ep, x->start_ns);
	x->err = vb_lock_acquire(x->me, x->first, VB_EXCLUSIVE, VB_FOREVER_NS, &x->g[0]);
	vb_ep_sleep(x->me->ep, MS);
	x->asked_ns = vb_lock_now(x->me);
	if (x->err == 0 && x->convert)
		x->err = vb_lock_convert(x->me, &x->g[1], VB_EXCLUSIVE, VB_FOREVER_NS);
	else if (x->err == 0)
		x->err = vb_lock_acquire(x->me, x->second, VB_EXCLUSIVE, VB_FOREVER_NS, &x->g[1]);
	x->told_ns = vb_lock_now(x->me);
	x->first_valid = vb_lock_valid(x->me, &x->g[0]);
	if (x->err == 0 && !x->convert)
		(void)vb_lock_release(x->me, &x->g[1]);
	(void)vb_lock_release(x->me, &x->g[0]);
	x->done = true;
}

static void cross(struct world *w, struct crosser x[2])
{
	for (unsigned i = 0; i < 2; i++) {
		x[i] = (struct crosser){
			.me = w->c[i], .first = i, .second = 1 - i, .start_ns = 100 * US * i};
		spawn(cross_body, &x[i]);
	}
	while (!x[0].done || !x[1].done)
		vb_task_sleep_until(now() + MS);
}

/* By default the first of the two is turned down while there is time left for the other. */
static void test_deadlock_by_default(void **state)
{
	struct crosser x[2];
	struct world w;

	open_world(&w, "", LEASE, 1, 0);
	assert_int_equal(vb_locktab_wait_ns(w.space), LEASE / 4);
	cross(&w, x);
	assert_int_equal(x[0].err, -ETIMEDOUT);
	assert_in_range(x[0].told_ns - x[0].asked_ns, LEASE / 4, LEASE / 4 + SLACK);
	assert_true(x[0].first_valid);
	assert_int_equal(x[1].err, 0);
	assert_true(x[1].first_valid);
	close_world(&w);
	/* With long leases it need not wait so long. */
	open_world(&w, "", 100 * LEASE, 1, 0);
	assert_int_equal(vb_locktab_wait_ns(w.space), 100 * MS);
	close_world(&w);
}

/* A wait as long as ten leases ends with the first one: nobody wins with what he has lost. */
static void test_no_winner_without_his_first(void **state)
{
	struct crosser x[2];
	struct world w;

	open_world(&w, "wait=100ms", LEASE, 1, 0);
	cross(&w, x);
	for (unsigned i = 0; i < 2; i++) {
		uint64_t end = x[i].g[0].valid_until_ns;

		assert_true(x[i].err == -ETIMEDOUT || (x[i].err == 0 && x[i].first_valid));
		if (x[i].err != 0)
			assert_in_range(x[i].told_ns, end, end + SLACK);
	}
	assert_int_equal(x[0].err, -ETIMEDOUT);
	close_world(&w);
}

/* The wait of a conversion ends with what is held besides, and leaves the hold as it was. */
static void test_conversion_is_bounded(void **state)
{
	struct vb_grant his, mine;
	struct crosser x;
	struct world w;

	open_world(&w, "wait=100ms", LEASE, 1, 0);
	/* Lock 0 is taken first and lock 1 last: the end of 0 comes first. */
	x = (struct crosser){.me = w.c[0], .first = 0, .convert = true};
	spawn(cross_body, &x);
	vb_task_sleep_until(now() + 500 * US);
	assert_int_equal(vb_lock_acquire(w.c[0], 1, VB_SHARED, MS, &x.g[1]), 0);
	assert_int_equal(vb_lock_acquire(w.c[1], 1, VB_SHARED, MS, &his), 0);
	while (!x.done)
		vb_task_sleep_until(now() + 20 * US);
	assert_int_equal(x.err, -ETIMEDOUT);
	assert_in_range(x.told_ns, x.g[0].valid_until_ns, x.g[0].valid_until_ns + SLACK);
	assert_int_equal(x.g[1].mode, VB_SHARED);
	assert_true(vb_lock_valid(w.c[0], &x.g[1]));
	assert_int_equal(vb_lock_release(w.c[0], &x.g[1]), 0);
	assert_int_equal(vb_lock_release(w.c[1], &his), 0);
	/* Nothing stands in anybody's name. */
	for (uint64_t lock = 0; lock < 2; lock++) {
		assert_int_equal(vb_lock_try(w.c[2], lock, VB_EXCLUSIVE, &mine), 0);
		assert_int_equal(vb_lock_release(w.c[2], &mine), 0);
	}
	close_world(&w);
}

/* ---- paths ---- */

static const uint64_t path[] = {0, 1, 2};

struct renewer {
	struct vb_lock_client *me;
	struct vb_grant g;
	unsigned halves; /* of a lease, for which it holds */
	bool done;
};

/* Each conversion begins a new lease. */
static void renew_body(void *arg)
{
	struct renewer *r = arg;

	for (unsigned i = 0; i < r->halves; i++) {
		vb_ep_sleep(r->me->ep, LEASE / 2);
		assert_int_equal(
			vb_lock_convert(r->me, &r->g, i % 2 ? VB_EXCLUSIVE : VB_UPDATE, MS), 0);
	}
	assert_int_equal(vb_lock_release(r->me, &r->g), 0);
	r->done = true;
}

/* The wait for the row outlives the lease of the root; wait-die, so that no bound ends it. */
static void lose_root(bool held_before)
{
	struct renewer r;
	struct vb_grant g[3], root, his;
	struct world w;

	open_world(&w, "policy=wait-die", LEASE, 1, 0);
	vb_lock_client_begin(w.c[0], 1);
	if (held_before)
		assert_int_equal(vb_lock_acquire(w.c[0], 0, VB_INTENT_EXCLUSIVE, MS, &root), 0);
	r = (struct renewer){.me = w.c[1], .halves = 3};
	assert_int_equal(vb_lock_acquire(w.c[1], 2, VB_EXCLUSIVE, MS, &r.g), 0);
	spawn(renew_body, &r);
	assert_int_equal(vb_lock_acquire_path(w.c[0], path, 3, VB_EXCLUSIVE, VB_FOREVER_NS, g),
			 held_before ? -VB_ELOST : -ETIMEDOUT);
	assert_true(r.done);
	assert_int_equal(w.c[0]->n_used, held_before);
	for (uint64_t lock = 0; lock < 3; lock++) {
		assert_int_equal(vb_lock_try(w.c[2], lock, VB_EXCLUSIVE, &his), 0);
		assert_int_equal(vb_lock_release(w.c[2], &his), 0);
	}
	if (held_before)
		assert_int_equal(vb_lock_release(w.c[0], &root), -VB_ELOST);
	close_world(&w);
}

static void test_path_lost(void **state)
{
	lose_root(false);
	lose_root(true);
}

/* ---- clocks ---- */

struct waiter {
	struct vb_lock_client *me;
	struct vb_grant g;
	bool done;
};

static void wait_body(void *arg)
{
	struct waiter *x = arg;

	assert_int_equal(vb_lock_acquire(x->me, 2, VB_EXCLUSIVE, VB_FOREVER_NS, &x->g), 0);
	x->done = true;
}

/* A wait of a hundred leases, which the agent has measured by a clock of its own: it does not make the
 * client's lease longer than the agent's, and the next one in the queue finds it over. */
static void test_long_wait_by_another_clock(void **state)
{
	for (uint64_t seed = 1; seed <= 8; seed++) {
		struct waiter first, next;
		struct renewer r;
		struct world w;

		open_world(&w, "", LEASE, seed, 50000);
		r = (struct renewer){.me = w.c[0], .halves = 200};
		assert_int_equal(vb_lock_acquire(r.me, 2, VB_EXCLUSIVE, MS, &r.g), 0);
		spawn(renew_body, &r);
		first = (struct waiter){.me = w.c[1]};
		spawn(wait_body, &first);
		vb_task_sleep_until(now() + MS);
		next = (struct waiter){.me = w.c[2]};
		spawn(wait_body, &next);
		while (!next.done)
			vb_task_sleep_until(now() + 10 * US);
		assert_true(r.done && first.done);
		assert_false(vb_lock_valid(first.me, &first.g));
		assert_int_equal(vb_lock_release(next.me, &next.g), 0);
		assert_int_equal(vb_lock_release(first.me, &first.g), -VB_ELOST);
		close_world(&w);
	}
}

/* ---- ages ---- */

/* Clocks a second apart: who began first is the older all the same, and waits. */
static void test_ages_are_common(void **state)
{
	for (uint64_t seed = 1; seed <= 5; seed++) {
		struct vb_lock_client *a, *b;
		struct vb_grant g, h;
		uint64_t age;
		struct world w;

		open_world(&w, "policy=wait-die", 3000 * MS, seed, 1000);
		a = w.c[0];
		b = w.c[1];
		if (vb_lock_now(a) < vb_lock_now(b)) {
			a = w.c[1];
			b = w.c[0];
		}
		assert_true(vb_lock_now(a) - vb_lock_now(b) > MS);
		vb_lock_client_begin(a, 0);
		age = vb_lock_client_age(a);
		vb_task_sleep_until(now() + US);
		assert_int_equal(vb_lock_acquire(b, 1, VB_EXCLUSIVE, MS, &g), 0);
		assert_true(vb_lock_client_age(b) > age);
		assert_int_equal(vb_lock_acquire(a, 1, VB_EXCLUSIVE, MS, &h), -ETIMEDOUT);
		/* And the younger is turned down, whatever its clock says. */
		vb_lock_client_begin(a, age);
		assert_int_equal(vb_lock_acquire(a, 2, VB_EXCLUSIVE, MS, &h), 0);
		assert_int_equal(vb_lock_acquire(b, 2, VB_EXCLUSIVE, MS, &g), -EAGAIN);
		close_world(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_deadlock_by_default),
		cmocka_unit_test(test_no_winner_without_his_first),
		cmocka_unit_test(test_conversion_is_bounded),
		cmocka_unit_test(test_path_lost),
		cmocka_unit_test(test_long_wait_by_another_clock),
		cmocka_unit_test(test_ages_are_common),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
