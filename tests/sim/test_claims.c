/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A space with more locks at a time for each client than usual: every one of them is known again,
 * the bound is kept, the auditor watches them all, and closing gives back what is left.
 */
#include "sim_test.h"

#include <malloc.h>
#include <unistd.h>

#include "base/log.h"
#include "check/lock/audit.h"
#include "lock/lock.h"

#define LOCKS  1000u
#define CLAIMS 200u /* not a multiple of 64 */

struct scene {
	struct vb_lock_space *space;
	struct vb_grant grant[CLAIMS];
	bool done;
};

static void take(struct vb_lock_client *me, uint64_t lock, struct vb_grant *g, int expect)
{
	assert_int_equal(vb_lock_acquire(me, lock, VB_EXCLUSIVE, VB_FOREVER_NS, g), expect);
}

static void hoarder(void *arg)
{
	struct scene *s = arg;
	struct vb_lock_client *me, *other;
	struct vb_grant g;

	assert_int_equal(vb_lock_client_open(s->space, 1, &me), 0);
	assert_int_equal(vb_lock_client_open(s->space, 1, &other), 0);
	other->index = 1;
	for (unsigned i = 0; i < CLAIMS; i++)
		take(me, 7 * i % LOCKS, &s->grant[i], 0);
	take(me, LOCKS - 1, &g, -EBUSY);
	for (unsigned i = 0; i < CLAIMS; i += 63) {
		take(me, 7 * i % LOCKS, &g, -EDEADLK);
		assert_int_equal(vb_lock_try(other, 7 * i % LOCKS, VB_SHARED, &g), -EAGAIN);
	}
	/* From the middle: its place is the next that is taken. */
	assert_int_equal(vb_lock_release(me, &s->grant[130]), 0);
	assert_int_equal(vb_lock_release(me, &s->grant[130]), -EINVAL);
	take(other, 7 * 130 % LOCKS, &g, 0);
	take(me, LOCKS - 1, &s->grant[130], 0);
	assert_int_equal(s->grant[130].claim->slot, 130);
	for (unsigned i = 0; i < CLAIMS; i += 2)
		assert_int_equal(vb_lock_release(me, &s->grant[i]), 0);
	vb_lock_client_close(me);
	for (unsigned i = 0; i < CLAIMS; i++)
		if (i != 130)
			take(other, 7 * i % LOCKS, &s->grant[i], 0);
	vb_lock_client_close(other);
	s->done = true;
}

static void run(const char *lock)
{
	struct vb_lock_space_params p = {
		.lock = lock, .locks = LOCKS, .lease_ns = 1000000000, .claims = CLAIMS};
	struct vb_fabric *f = cluster("profile=cx5", 2, 1);
	struct vb_audit_params a = {.locks = LOCKS, .clients = 2, .claims = CLAIMS};
	struct vb_audit_counts counts;
	struct vb_audit *audit;
	struct scene s = {0};
	char said[256];

	vb_log_capture_begin(said, sizeof(said));
	assert_int_equal(vb_lock_space_open(f, &p, &s.space), 0);
	a.ops = s.space->ops;
	assert_int_equal(vb_audit_open(&a, &audit), 0);
	s.space->watch = vb_audit_watch(audit);
	spawn(hoarder, &s);
	run_all();
	vb_log_capture_end();
	vb_audit_counts(audit, &counts);
	assert_true(s.done);
	assert_int_equal(counts.checked_ops, 2 * CLAIMS + 1);
	assert_int_equal(counts.violations, 0);
	vb_audit_close(audit);
	vb_lock_space_close(s.space);
	vb_fabric_close(f);
}

static void test_many(void **state)
{
	(void)state;
	run("dslr");
	run("mcs");
}

static uint64_t resident_bytes(void)
{
	unsigned long size, resident;
	FILE *f = fopen("/proc/self/statm", "r");

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%lu %lu", &size, &resident), 2);
	fclose(f);
	return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

#define IDLE      64u
#define IDLE_EACH 4096u /* claims: 2 MiB */

static void idler(void *arg)
{
	struct vb_lock_client *idle[IDLE];
	struct scene *s = arg;
	uint64_t before, after;

	/* Meson has malloc fill what it gives, which would touch all of it. */
	(void)mallopt(M_PERTURB, 0);
	before = resident_bytes();
	for (unsigned i = 0; i < IDLE; i++) {
		assert_int_equal(vb_lock_client_open(s->space, 1, &idle[i]), 0);
		take(idle[i], i, &s->grant[i], 0);
	}
	after = resident_bytes();
	assert_in_range(after, 0, before + IDLE * (256u << 10));
	for (unsigned i = 0; i < IDLE; i++)
		vb_lock_client_close(idle[i]);
	s->done = true;
}

/* A client costs the claims that it has taken, not those that it may take. */
static void test_claims_cost_when_taken(void **state)
{
	struct vb_lock_space_params p = {
		.lock = "mcs", .locks = LOCKS, .lease_ns = 1000000000, .claims = IDLE_EACH};
	struct vb_fabric *f = cluster("profile=cx5", 2, 1);
	struct scene s = {0};

	(void)state;
	assert_int_equal(vb_lock_space_open(f, &p, &s.space), 0);
	assert_int_equal(vb_task_spawn(vb_sched_self(), idler, &s, NULL, NULL), 0);
	assert_int_equal(vb_sched_run(vb_sched_self(), NULL, VB_FOREVER), 0);
	assert_true(s.done);
	vb_lock_space_close(s.space);
	vb_fabric_close(f);
}

static void test_too_many(void **state)
{
	struct vb_lock_space_params p = {.lock = "cas", .locks = 10, .claims = 65537};
	struct vb_fabric *f = cluster("profile=cx5", 2, 1);
	struct vb_lock_space *space;
	char said[256] = "";

	(void)state;
	vb_log_capture_begin(said, sizeof(said));
	assert_int_equal(vb_lock_space_open(f, &p, &space), -EINVAL);
	vb_log_capture_end();
	assert_non_null(strstr(said, "65537"));
	vb_fabric_close(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_too_many),
		cmocka_unit_test(test_claims_cost_when_taken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
