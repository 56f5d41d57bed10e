/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cap of cas-backoff with `adapt`: it begins with the first wait, doubles while most attempts are
 * retries, is halved while hardly any is, and stays between backoff_base and backoff_cap.  The word is
 * held by hand; how often a client asks for it in a given time shows its waits.
 */
#include "sim_test.h"

#include "lock/lock.h"

#define US 1000ull
#define MS 1000000ull

#define HELD_NS (300 * US)

static struct {
	struct vb_fabric *f;
	struct vb_lock_space *space;
	struct vb_lock_client *me;
	uint64_t *entry;
	struct vb_grant g;
	bool done;
} s;

static void open_scene(const char *options)
{
	const struct vb_lock_space_params p = {
		.lock = "cas-backoff", .options = options, .locks = 1};

	s.f = cluster("profile=cx5", 2, 3);
	assert_int_equal(vb_lock_space_open(s.f, &p, &s.space), 0);
	assert_int_equal(vb_lock_client_open(s.space, 1, &s.me), 0);
	s.entry = vb_local(s.f, vb_lock_entry(s.space, 0), 8);
}

static void close_scene(void)
{
	vb_lock_client_close(s.me);
	vb_lock_space_close(s.space);
	vb_fabric_close(s.f);
}

static void take_body(void *arg)
{
	(void)arg;
	assert_int_equal(vb_lock_acquire(s.me, 0, VB_EXCLUSIVE, VB_FOREVER, &s.g), 0);
	assert_int_equal(vb_lock_release(s.me, &s.g), 0);
	s.done = true;
}

/* A grant; the lock is another's for so long before it.  How often it asked. */
static uint64_t take(uint64_t held_ns)
{
	uint64_t before = s.me->retries;

	s.done = false;
	*s.entry = held_ns > 0 ? 1 : 0;
	spawn(take_body, NULL);
	assert_int_equal(vb_task_sleep_until(now() + held_ns), 0);
	*s.entry = 0;
	while (!s.done)
		assert_int_equal(vb_task_sleep_until(now() + US), 0);
	return s.me->retries - before;
}

/* More than the period apart, each is a look at the rate. */
static void take_many(uint64_t held_ns, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(vb_task_sleep_until(now() + 2 * MS), 0);
		take(held_ns);
	}
}

#define BASE "backoff_base=1us,backoff_cap=64us"

static void test_a_cap_that_stands_still(void **state)
{
	uint64_t first;

	(void)state;
	open_scene(BASE);
	/* 1, 2, 4, ... 64 us, and 64 us from there. */
	first = take(HELD_NS);
	assert_true(first >= 6 && first <= 12);
	take_many(0, 20);
	assert_true(take(HELD_NS) <= 12);
	close_scene();
}

static void test_a_cap_that_moves(void **state)
{
	(void)state;
	open_scene(BASE ",adapt=1ms");
	/* At first no wait is longer than the first: a round trip and 1 to 2 us. */
	assert_true(take(HELD_NS) > 60);
	/* Six doublings, and no further. */
	take_many(HELD_NS, 20);
	assert_in_range(take(HELD_NS), 6, 12);
	/* And back; with nothing to retry. */
	take_many(0, 3);
	assert_in_range(take(HELD_NS), 20, 60);
	take_many(0, 20);
	assert_true(take(HELD_NS) > 60);
	close_scene();
}

static void test_a_cap_looks_now_and_then(void **state)
{
	(void)state;
	open_scene(BASE ",adapt=1s");
	take_many(HELD_NS, 20);
	assert_true(take(HELD_NS) > 60);
	close_scene();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_cap_that_stands_still),
		cmocka_unit_test(test_a_cap_that_moves),
		cmocka_unit_test(test_a_cap_looks_now_and_then),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
