/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DrTM's lock by the clock: a reader's grant ends before its lease does by the true time, whatever
 * its clocks show; a writer begins after that; readers of one lease share it and give nothing back;
 * a lease that nobody has chosen is as long as readers need; who cannot tell the time well enough is
 * refused.
 */
#include "sim_test.h"

#include <inttypes.h>

#define VB_LOG_ROOM "test"
#include "base/log.h"
#include "lock/lock.h"

#define US 1000ull
#define MS 1000000ull

#define LEASE_NS (100 * MS)
#define READERS  64

/* What is wrong with the clocks, as much as is allowed: all of it shows if the lock leaves it
 * out. */
struct clocks {
	uint64_t bound_ns;
	uint32_t drift_ppm;
};

static const struct clocks wander = {50 * US, 1}, drift = {1 * US, 1000}, exact = {0, 0};

static const struct clocks *clocks;
static struct vb_fabric *f;
static struct vb_lock_space *space;

static void open_space(uint64_t clock_bound_ns)
{
	char options[64];
	const struct vb_lock_space_params p = {.lock = "drtm",
					       .options = options,
					       .locks = 2,
					       .lease_ns = LEASE_NS,
					       .drift_ppm = clocks->drift_ppm};

	snprintf(options, sizeof(options), "clock_bound=%" PRIu64 "ns,read_lease=0",
		 clock_bound_ns);
	assert_int_equal(vb_lock_space_open(f, &p, &space), 0);
}

static void open_fabric(const struct clocks *c, uint64_t seed)
{
	clocks = c;
	f = cluster("profile=cx5", 2, seed);
	vb_sim_set_faults(f, &(struct vb_sim_faults){.drift_max_ppb = c->drift_ppm * 500,
						     .common_error_max_ns = c->bound_ns});
}

static void open_world(const struct clocks *c, uint64_t seed)
{
	open_fabric(c, seed);
	open_space(c->bound_ns);
}

static void close_world(void)
{
	run_all();
	vb_lock_space_close(space);
	vb_fabric_close(f);
}

static struct vb_lock_client *client(void)
{
	struct vb_lock_client *me;

	assert_int_equal(vb_lock_client_open(space, 1, &me), 0);
	return me;
}

/* The lock's word: an end of a lease, or a name. */
static uint64_t word_of(uint64_t lock)
{
	return peek(f, vb_lock_entry(space, lock));
}

static uint64_t atomics(const struct vb_lock_client *me)
{
	return me->ep->count[VB_OP_CAS64] + me->ep->count[VB_OP_READ];
}

static uint64_t true_end(const struct vb_lock_client *me, const struct vb_grant *g)
{
	return vb_ep_base(me->ep, g->valid_until_ns);
}

/* ---- readers ---- */

static void readers_body(void *arg)
{
	const uint64_t bound = clocks->bound_ns, drifted = LEASE_NS / 1000000 * clocks->drift_ppm;
	uint64_t end = 0, shortest = VB_FOREVER, longest = 0;

	for (unsigned i = 0; i < READERS; i++) {
		struct vb_lock_client *me = client();
		uint64_t began, left;
		struct vb_grant g;

		vb_ep_sleep(me->ep, 200 * US);
		began = now();
		assert_int_equal(vb_lock_acquire(me, 0, VB_SHARED, 0, &g), 0);
		/* One verb, and all share the lease that the first one wrote. */
		assert_int_equal(atomics(me), 1);
		assert_true(i == 0 || word_of(0) == end);
		end = word_of(0);
		if (i == 0)
			assert_true(end >= began + LEASE_NS - bound &&
				    end <= began + LEASE_NS + bound);
		/* Never beyond the end; and no more than the bounds and the drift before it. */
		assert_true(true_end(me, &g) <= end);
		left = end - true_end(me, &g);
		shortest = left < shortest ? left : shortest;
		longest = left > longest ? left : longest;
		assert_true(left <= 2 * bound + 3 * drifted);
		assert_int_equal(vb_lock_release(me, &g), 0);
		assert_int_equal(atomics(me), 1);
		vb_lock_client_close(me);
	}
	/* The clocks were really at odds. */
	assert_true(longest - shortest >= bound + drifted / 2);
	*(bool *)arg = true;
}

static void test_readers_end_in_time(void **state)
{
	for (uint64_t seed = 1; seed <= 8; seed++) {
		bool done = false;

		open_world(seed % 2 ? &wander : &drift, seed);
		spawn(readers_body, &done);
		close_world();
		assert_true(done);
	}
}

/* ---- writers ---- */

static void writer_body(void *arg)
{
	struct vb_lock_client *reader = client(), *writer = client();
	struct vb_grant g, x;
	uint64_t end;

	assert_int_equal(vb_lock_acquire(reader, 0, VB_SHARED, 0, &g), 0);
	assert_int_equal(vb_lock_release(reader, &g), 0);
	end = word_of(0);
	/* Nobody holds it, but it is leased. */
	assert_int_equal(vb_lock_try(writer, 0, VB_EXCLUSIVE, &x), -EAGAIN);
	assert_int_equal(vb_lock_acquire(writer, 0, VB_EXCLUSIVE, LEASE_NS / 2, &x), -ETIMEDOUT);
	assert_int_equal(vb_lock_acquire(writer, 0, VB_EXCLUSIVE, LEASE_NS, &x), 0);
	assert_true(now() > end && now() < end + 2 * clocks->bound_ns + 2 * MS);
	assert_true(x.valid_until_ns == VB_FOREVER_NS && word_of(0) >> 63 == 1);
	assert_int_equal(vb_lock_try(reader, 0, VB_SHARED, &g), -EAGAIN);
	assert_int_equal(vb_lock_release(writer, &x), 0);
	assert_true(word_of(0) == 0);
	/* A reader that comes late with its release learns that the lock may be others'. */
	assert_int_equal(vb_lock_acquire(reader, 0, VB_SHARED, 0, &g), 0);
	vb_ep_sleep(reader->ep, LEASE_NS);
	assert_false(vb_lock_valid(reader, &g));
	assert_int_equal(vb_lock_release(reader, &g), -VB_ELOST);
	/* Where the lease is over a reader replaces it, at once. */
	vb_ep_sleep(reader->ep, 3 * clocks->bound_ns);
	assert_int_equal(vb_lock_try(reader, 0, VB_SHARED, &g), 0);
	assert_int_equal(vb_lock_release(reader, &g), 0);
	vb_lock_client_close(reader);
	vb_lock_client_close(writer);
	*(bool *)arg = true;
}

static void test_writers_wait_for_the_end(void **state)
{
	for (uint64_t seed = 1; seed <= 20; seed++) {
		bool done = false;

		open_world(&wander, seed);
		spawn(writer_body, &done);
		close_world();
		assert_true(done);
	}
}

/* ---- leases that nobody has chosen ---- */

/* What the lease that this reader has written lasts, on a lock that nobody else wants. */
static uint64_t leased_ns(struct vb_lock_client *me, uint64_t hold_ns, int result)
{
	struct vb_grant g;
	uint64_t began, end;

	/* The last one is over. */
	vb_ep_sleep(me->ep, 2 * LEASE_NS);
	began = now();
	assert_int_equal(vb_lock_acquire(me, 0, VB_SHARED, 0, &g), 0);
	end = word_of(0);
	vb_ep_sleep(me->ep, hold_ns);
	assert_int_equal(vb_lock_release(me, &g), result);
	return end - began;
}

static void auto_body(void *arg)
{
	const uint64_t most = *(uint64_t *)arg;
	struct vb_lock_client *me = client();
	uint64_t ns = 400 * US, before;
	unsigned i;

	/* Nothing is lost: it stays as it is.  Then each one that is lost doubles the next. */
	for (i = 0; i < 3; i++)
		assert_int_equal(leased_ns(me, 100 * US, 0), ns);
	for (i = 0; i < 12; i++) {
		assert_int_equal(leased_ns(me, most + MS, -VB_ELOST), ns);
		ns = 2 * ns < most ? 2 * ns : most;
	}
	assert_int_equal(ns, most);
	/* And those that are long enough make it shorter, slowly, down to what it began with. */
	for (i = 0; i < 3; i++) {
		before = ns;
		ns = leased_ns(me, 100 * US, 0);
		assert_true(i == 0 ? ns == most : ns < before && ns > before - before / 50);
	}
	for (i = 0; i < 1000; i++)
		ns = leased_ns(me, 0, 0);
	assert_true(ns >= 400 * US && ns < 401 * US);
	vb_lock_client_close(me);
	*(uint64_t *)arg = 0;
}

static void test_auto_follows_losses(void **state)
{
	struct vb_lock_space_params p = {.lock = "drtm", .locks = 2, .lease_ns = LEASE_NS};
	const uint64_t lease[] = {LEASE_NS, 10 * MS}, cap[] = {64 * 400 * US, 10 * MS};

	for (unsigned i = 0; i < 2; i++) {
		uint64_t most = cap[i];

		p.lease_ns = lease[i];
		open_fabric(&exact, 1);
		assert_int_equal(vb_lock_space_open(f, &p, &space), 0);
		spawn(auto_body, &most);
		close_world();
		assert_int_equal(most, 0);
	}
}

/* ---- refusals ---- */

static void refused_body(void *arg)
{
	struct vb_lock_client *me = client();
	char said[512] = "";
	struct vb_grant g;

	vb_log_capture_begin(said, sizeof(said));
	assert_int_equal(vb_lock_acquire(me, 0, VB_SHARED, 0, &g), -EOPNOTSUPP);
	vb_log_capture_end();
	assert_non_null(strstr(said, "clock_bound"));
	/* A writer compares no clocks unless there is a lease. */
	assert_int_equal(vb_lock_acquire(me, 0, VB_EXCLUSIVE, 0, &g), 0);
	assert_int_equal(vb_lock_release(me, &g), 0);
	vb_lock_client_close(me);
	*(bool *)arg = true;
}

static void test_bad_clocks_are_refused(void **state)
{
	struct vb_lock_space_params p = {.lock = "drtm",
					 .name = "short",
					 .options = "clock_bound=50us,read_lease=0",
					 .locks = 2,
					 .lease_ns = 199 * US};
	bool done = false;
	char said[512] = "";

	open_fabric(&wander, 1);
	vb_log_capture_begin(said, sizeof(said));
	assert_int_equal(vb_lock_space_open(f, &p, &space), -EINVAL);
	vb_log_capture_end();
	assert_non_null(strstr(said, "lease"));
	open_space(49 * US);
	spawn(refused_body, &done);
	close_world();
	assert_true(done);
}

/* ---- who holds ---- */

/* Readers' leases of any length: nobody takes one for over before it is, by the true time, and
 * everybody does when twice the error has passed. */
static void holder_body(void *arg)
{
	const uint64_t begins = now() + 500 * US;

	for (unsigned i = 0; i < READERS; i++) {
		struct vb_lock_client *me = client();
		uint64_t end = begins + i * 300 * US, asked;
		struct vb_holder h = {.lapsed = false};

		assert_int_equal(vb_write(me->ep, vb_lock_entry(space, 0), &end, 8), 0);
		vb_ep_sleep(me->ep, end - 75 * US - now());
		while (!h.lapsed) {
			asked = now();
			assert_int_equal(vb_lock_holder(me, 0, &h), 0);
			assert_true(h.held != h.lapsed && h.mode == VB_SHARED);
			assert_true(h.client == VB_PEER_NONE && h.node == 0 && h.readers == 0);
			assert_true(h.lapsed ? now() > end : asked <= end + 2 * wander.bound_ns);
			vb_ep_sleep(me->ep, 5 * US);
		}
		vb_lock_client_close(me);
	}
	*(bool *)arg = true;
}

static void test_readers_hold_to_the_end(void **state)
{
	/* The second space has no bound, and its clients know that they are worse. */
	static const uint64_t bound_ns[] = {50 * US, 0};

	for (unsigned i = 0; i < VB_ARRAY_SIZE(bound_ns); i++) {
		bool done = false;

		open_fabric(&wander, 7);
		open_space(bound_ns[i]);
		spawn(holder_body, &done);
		close_world();
		assert_true(done);
	}
}

/* Of a lease that has a little left, less than a reader wants: it waits for the next. */
static struct vb_grant first, second;
static bool joined;

static void join_body(void *arg)
{
	assert_int_equal(vb_lock_acquire(arg, 0, VB_SHARED, VB_FOREVER, &first), 0);
	assert_int_equal(vb_lock_release(arg, &first), 0);
	assert_int_equal(vb_task_sleep_until(now() + 600 * US), 0);
	joined = vb_lock_try(arg, 0, VB_SHARED, &second) == 0;
	if (!joined)
		assert_int_equal(vb_lock_acquire(arg, 0, VB_SHARED, VB_FOREVER, &second), 0);
}

static uint64_t join(const char *options)
{
	const struct vb_lock_space_params p = {
		.lock = "drtm", .options = options, .locks = 1, .lease_ns = LEASE_NS};
	struct vb_lock_client *me;
	uint64_t valid_ns;

	open_fabric(&exact, 5);
	assert_int_equal(vb_lock_space_open(f, &p, &space), 0);
	me = client();
	spawn(join_body, me);
	run_all();
	valid_ns = second.valid_until_ns - first.valid_until_ns;
	vb_lock_client_close(me);
	close_world();
	return valid_ns;
}

static void test_readers_join_what_is_enough(void **state)
{
	char said[256] = "";
	const struct vb_lock_space_params p = {.lock = "drtm",
					       .options = "read_lease=1ms,read_least=1ms",
					       .locks = 1,
					       .lease_ns = LEASE_NS};

	(void)state;
	/* 350 us are left of it to who keeps 50 from its end. */
	assert_in_range(join("read_lease=1ms,read_least=300us"), 0, US);
	assert_true(joined);
	assert_true(join("read_lease=1ms,read_least=400us") > 500 * US);
	assert_false(joined);
	open_fabric(&exact, 5);
	vb_log_capture_begin(said, sizeof(said));
	assert_int_equal(vb_lock_space_open(f, &p, &space), -EINVAL);
	vb_log_capture_end();
	assert_non_null(strstr(said, "read_least"));
	vb_fabric_close(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_readers_end_in_time),
		cmocka_unit_test(test_writers_wait_for_the_end),
		cmocka_unit_test(test_auto_follows_losses),
		cmocka_unit_test(test_bad_clocks_are_refused),
		cmocka_unit_test(test_readers_join_what_is_enough),
		cmocka_unit_test(test_readers_hold_to_the_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
