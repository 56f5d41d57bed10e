/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases and clocks that are as far apart as a space has been told they may be, with leases so long
 * that the difference is larger than a message's way.  The clock of who holds is slow and those of
 * the others, the server's too, are fast: by the true time nobody is let in before the holder's
 * time is over, and nobody's time begins later than it was told.
 */
#include "sim_test.h"

#include "base/log.h"
#include "lock/lock.h"

#define MS    1000000ull
#define LEASE (1000 * MS)
#define DRIFT 10000 /* ppm, the most that a space takes */
#define LOCK  0

struct world {
	struct vb_fabric *f;
	struct vb_lock_space *space;
	struct vb_lock_server *server;
	struct vb_lock_client *holder, *next, *former;
};

/* Each clock keeps its offset, and goes as it is told from now on. */
static void set_clock(struct vb_ep *ep, int64_t ppb)
{
	ep->drift_ppb = ppb;
}

static void open_world(struct world *w, const char *lock, const char *options)
{
	struct vb_lock_space_params p = {.lock = lock,
					 .options = options,
					 .locks = 1,
					 .lease_ns = LEASE,
					 .drift_ppm = DRIFT};
	const int64_t half = DRIFT * 500;

	*w = (struct world){.f = cluster("profile=cx5,bound=50us", 4, 1)};
	assert_int_equal(vb_lock_space_open(w->f, &p, &w->space), 0);
	if (w->space->ops->caps & VB_LOCK_SERVER) {
		assert_int_equal(vb_lock_server_start(w->space, 0, 0, 1, &w->server), 0);
		set_clock(w->server->ep, half);
	}
	assert_int_equal(vb_lock_client_open(w->space, 1, &w->holder), 0);
	assert_int_equal(vb_lock_client_open(w->space, 2, &w->next), 0);
	assert_int_equal(vb_lock_client_open(w->space, 3, &w->former), 0);
	set_clock(w->holder->ep, -half);
	set_clock(w->next->ep, half);
	set_clock(w->former->ep, half);
}

static void close_world(struct world *w)
{
	vb_lock_client_close(w->holder);
	vb_lock_client_close(w->next);
	vb_lock_client_close(w->former);
	if (w->server)
		vb_lock_server_stop(w->server);
	vb_lock_space_close(w->space);
	vb_fabric_close(w->f);
	vb_sched_destroy(vb_sched_self());
}

struct waiter {
	struct vb_lock_client *me;
	struct vb_grant g;
	uint64_t since; /* by the true time: granted */
	bool told_late; /* its time began before it was told */
};

static void take(struct waiter *x, enum vb_mode mode)
{
	assert_int_equal(vb_lock_acquire(x->me, LOCK, mode, VB_FOREVER_NS, &x->g), 0);
	x->since = now();
	x->told_late = x->g.valid_until_ns <= vb_lock_now(x->me) + LEASE;
}

static void wait_body(void *arg)
{
	take(arg, VB_EXCLUSIVE);
}

/* It neither releases nor asks again. */
static void outlive(struct world *w, struct waiter *x)
{
	struct waiter next = {.me = w->next};
	uint64_t end;

	assert_true(x->told_late);
	spawn(wait_body, &next);
	assert_int_equal(vb_ep_sleep_until(x->me->ep, x->g.valid_until_ns), 0);
	end = now();
	while (next.since == 0)
		vb_task_sleep_until(now() + LEASE / 16);
	if (next.since < end)
		fail_msg("let in %.3f us too early", (double)(end - next.since) / 1e3);
	assert_true(next.told_late);
	assert_int_equal(vb_lock_release(next.me, &next.g), 0);
	assert_int_equal(vb_lock_release(x->me, &x->g), -VB_ELOST);
}

static const char *const locks[][2] = {
	{"rpc", ""},         {"traditional", ""}, {"traditional-ro", ""}, {"dslr", ""},
	{"dslr-update", ""}, {"shiftlock", ""},   {"table", ""},
};

/* By the first verb or message, in either mode. */
static void test_granted_at_once(void **state)
{
	for (unsigned i = 0; i < 2 * VB_ARRAY_SIZE(locks); i++) {
		struct world w;
		struct waiter x;

		open_world(&w, locks[i / 2][0], locks[i / 2][1]);
		x = (struct waiter){.me = w.holder};
		take(&x, i % 2 ? VB_SHARED : VB_EXCLUSIVE);
		outlive(&w, &x);
		close_world(&w);
	}
}

/* After a wait of nearly a lease, which another clock may have measured. */
static void test_granted_after_a_wait(void **state)
{
	for (unsigned i = 0; i < VB_ARRAY_SIZE(locks); i++) {
		struct world w;
		struct waiter x, former;

		open_world(&w, locks[i][0], locks[i][1]);
		former = (struct waiter){.me = w.former};
		take(&former, VB_EXCLUSIVE);
		x = (struct waiter){.me = w.holder};
		spawn(wait_body, &x);
		vb_task_sleep_until(now() + LEASE - LEASE / 10);
		assert_int_equal(x.since, 0);
		assert_int_equal(vb_lock_release(former.me, &former.g), 0);
		while (x.since == 0)
			vb_task_sleep_until(now() + LEASE / 1000);
		outlive(&w, &x);
		close_world(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_granted_at_once),
		cmocka_unit_test(test_granted_after_a_wait),
	};

	return cmocka_run_group_tests_name("lock_clocks", tests, NULL, NULL);
}
