/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The auditor, fed with made-up events on a clock that the test moves by hand: each rule fires on
 * what it is there for, and does not on what only looks like it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check/lock/audit.h"
#include "child.h"

#define CLIENTS 4

static unsigned bound_of(unsigned clients, enum vb_mode mode)
{
	return mode == VB_EXCLUSIVE ? 2 : 1;
}

static const struct vb_lock_ops fake_ops = {
	.name = "fake",
	.caps = VB_LOCK_SHARED | VB_LOCK_EXCLUSIVE | VB_LOCK_FIFO,
	.bypass_bound = bound_of,
};

struct scene {
	struct vb_sched_face clock;
	struct vb_ep ep[CLIENTS];
	struct vb_lock_client me[CLIENTS];
	struct vb_claim claim[CLIENTS][2];
	struct vb_audit *audit;
	const struct vb_lock_watch *watch;
};

static struct scene scene;

static void begin_with(bool virtual_time, bool fencing)
{
	struct vb_audit_params p = {
		.locks = 2,
		.clients = CLIENTS,
		.ops = &fake_ops,
		.fencing = fencing,
		.bypass = true,
	};

	memset(&scene, 0, sizeof(scene));
	scene.clock = (struct vb_sched_face){.now_ns = 1000, .is_virtual = virtual_time};
	for (unsigned i = 0; i < CLIENTS; i++) {
		scene.ep[i].sched = (struct vb_sched *)&scene.clock;
		scene.me[i].ep = &scene.ep[i];
		scene.me[i].index = i;
		scene.me[i].node = (uint16_t)i;
	}
	assert_int_equal(vb_audit_open(&p, &scene.audit), 0);
	scene.watch = vb_audit_watch(scene.audit);
}

static int setup(void **state)
{
	begin_with(true, false);
	return 0;
}

static int teardown(void **state)
{
	vb_audit_close(scene.audit);
	return 0;
}

static void at(uint64_t ns)
{
	scene.clock.now_ns = ns;
}

static void called(unsigned i, uint64_t lock, enum vb_mode mode)
{
	scene.watch->called(scene.watch->ctx, &scene.me[i], lock, mode);
}

static void queued(unsigned i, uint64_t lock, enum vb_mode mode)
{
	scene.watch->queued(scene.watch->ctx, &scene.me[i], lock, mode);
}

static void granted(unsigned i, uint64_t lock, enum vb_mode mode, uint64_t until, uint64_t token)
{
	struct vb_claim *c = &scene.claim[i][lock];

	*c = (struct vb_claim){.lock = lock,
			       .slot = (uint32_t)lock,
			       .mode = mode,
			       .valid_until_ns = until,
			       .token = token};
	scene.watch->granted(scene.watch->ctx, &scene.me[i], c);
}

static void not_granted(unsigned i, uint64_t lock, int err)
{
	scene.watch->not_granted(scene.watch->ctx, &scene.me[i], lock, err);
}

static void releasing(unsigned i, uint64_t lock)
{
	scene.watch->releasing(scene.watch->ctx, &scene.me[i], &scene.claim[i][lock]);
}

static void released(unsigned i, uint64_t lock, int err)
{
	scene.watch->released(scene.watch->ctx, &scene.me[i], lock, err);
}

/* A grant without waiting. */
static void takes(unsigned i, uint64_t lock, enum vb_mode mode, uint64_t until, uint64_t token)
{
	called(i, lock, mode);
	granted(i, lock, mode, until, token);
}

static void gives(unsigned i, uint64_t lock, int err)
{
	releasing(i, lock);
	released(i, lock, err);
}

static struct vb_audit_counts counts(void)
{
	struct vb_audit_counts c;

	vb_audit_counts(scene.audit, &c);
	return c;
}

static void expect_clean(void)
{
	if (counts().violations != 0)
		vb_audit_print(scene.audit, stderr);
	assert_int_equal(counts().violations, 0);
}

static void expect_only(enum vb_audit_rule rule, uint64_t times)
{
	struct vb_audit_counts c = counts();

	if (c.by_rule[rule] != times || c.violations != times)
		vb_audit_print(scene.audit, stderr);
	assert_int_equal(c.by_rule[rule], times);
	assert_int_equal(c.violations, times);
}

/* ---- mode-conflict ---- */

static void test_two_writers(void **state)
{
	takes(0, 0, VB_EXCLUSIVE, VB_FOREVER, 0);
	at(2000);
	takes(1, 0, VB_EXCLUSIVE, VB_FOREVER, 0);
	expect_only(VB_AUDIT_MODE_CONFLICT, 1);
}

static void test_reader_and_writer(void **state)
{
	takes(0, 0, VB_SHARED, 9000, 0);
	at(2000);
	takes(1, 0, VB_EXCLUSIVE, 9500, 0);
	expect_only(VB_AUDIT_MODE_CONFLICT, 1);
	/* And the other way round, on the other lock. */
	takes(2, 1, VB_EXCLUSIVE, 9000, 0);
	takes(3, 1, VB_SHARED, 9000, 0);
	expect_only(VB_AUDIT_MODE_CONFLICT, 2);
}

static void test_readers_share(void **state)
{
	takes(0, 0, VB_SHARED, VB_FOREVER, 0);
	takes(1, 0, VB_SHARED, VB_FOREVER, 0);
	takes(2, 1, VB_EXCLUSIVE, VB_FOREVER, 0);
	expect_clean();
}

/* Every pair of modes, the one held first and the other way round, against the matrix. */
static void test_all_modes(void **state)
{
	for (enum vb_mode a = 0; a < VB_MODES; a++)
		for (enum vb_mode b = 0; b < VB_MODES; b++) {
			uint64_t before = counts().violations;

			takes(0, 0, a, VB_FOREVER, 0);
			takes(1, 0, b, VB_FOREVER, 0);
			assert_int_equal(counts().violations - before, vb_modes_exclude(a, b));
			releasing(0, 0);
			releasing(1, 0);
		}
	/* Of the 36 pairs, 13 hold together. */
	expect_only(VB_AUDIT_MODE_CONFLICT, 23);
}

static void converts(unsigned i, uint64_t lock, enum vb_mode mode, int err)
{
	struct vb_claim *c = &scene.claim[i][lock];

	scene.watch->converting(scene.watch->ctx, &scene.me[i], c, mode);
	if (err == 0)
		c->mode = mode;
	scene.watch->converted(scene.watch->ctx, &scene.me[i], c, err);
}

static void test_conversions(void **state)
{
	takes(0, 0, VB_UPDATE, VB_FOREVER, 0);
	takes(1, 0, VB_SHARED, VB_FOREVER, 0);
	converts(0, 0, VB_EXCLUSIVE, -ETIMEDOUT);
	expect_clean();
	converts(0, 0, VB_EXCLUSIVE, 0);
	expect_only(VB_AUDIT_MODE_CONFLICT, 1);
	gives(1, 0, -VB_ELOST);
	converts(0, 0, VB_SHARED, 0);
	takes(2, 0, VB_SHARED, VB_FOREVER, 0);
	expect_only(VB_AUDIT_MODE_CONFLICT, 1);
}

/* What is given up is free before the conversion has returned, what is won is not had before. */
static void test_conversions_under_way(void **state)
{
	struct vb_claim *c = &scene.claim[0][0];

	takes(0, 0, VB_EXCLUSIVE, VB_FOREVER, 0);
	scene.watch->converting(scene.watch->ctx, &scene.me[0], c, VB_INTENT_SHARED);
	takes(1, 0, VB_INTENT_EXCLUSIVE, VB_FOREVER, 0);
	c->mode = VB_INTENT_SHARED;
	scene.watch->converted(scene.watch->ctx, &scene.me[0], c, 0);
	scene.watch->converting(scene.watch->ctx, &scene.me[0], c, VB_SHARED);
	gives(1, 0, 0);
	c->mode = VB_SHARED;
	scene.watch->converted(scene.watch->ctx, &scene.me[0], c, 0);
	expect_clean();
	takes(1, 0, VB_INTENT_EXCLUSIVE, VB_FOREVER, 0);
	expect_only(VB_AUDIT_MODE_CONFLICT, 1);
}

static void test_grant_after_release(void **state)
{
	takes(0, 0, VB_EXCLUSIVE, VB_FOREVER, 0);
	/* The successor may have it before the release has returned. */
	releasing(0, 0);
	at(1500);
	takes(1, 0, VB_EXCLUSIVE, VB_FOREVER, 0);
	released(0, 0, 0);
	expect_clean();
}

/* A forgotten grant hurts nobody, and the client's next one of the same lock is judged by
 * itself. */
static void test_grant_after_abandoned(void **state)
{
	takes(0, 0, VB_EXCLUSIVE, 5000, 0);
	scene.watch->abandoned(scene.watch->ctx, &scene.me[0], &scene.claim[0][0]);
	takes(1, 0, VB_EXCLUSIVE, 9000, 0);
	gives(1, 0, 0);
	takes(0, 0, VB_EXCLUSIVE, 9000, 0);
	gives(0, 0, 0);
	expect_clean();
	takes(0, 0, VB_EXCLUSIVE, 9000, 0);
	takes(1, 0, VB_EXCLUSIVE, 9000, 0);
	expect_only(VB_AUDIT_MODE_CONFLICT, 1);
}

static void test_grant_after_lease(void **state)
{
	takes(0, 0, VB_EXCLUSIVE, 5000, 0);
	at(5000);
	takes(1, 0, VB_EXCLUSIVE, 9000, 0);
	expect_clean();
	at(8999);
	takes(2, 0, VB_EXCLUSIVE, 12000, 0);
	expect_only(VB_AUDIT_MODE_CONFLICT, 1);
}

static void test_clocks_of_their_own(void **state)
{
	/* Client 0's clock is 1000 ns ahead: its 6000 is 5000 in base time. */
	scene.ep[0].offset_ns = 1000;
	takes(0, 0, VB_EXCLUSIVE, 6000, 0);
	at(5000);
	takes(1, 0, VB_EXCLUSIVE, 9000, 0);
	expect_clean();
}

static void test_death_frees(void **state)
{
	takes(0, 0, VB_EXCLUSIVE, VB_FOREVER, 0);
	called(0, 1, VB_EXCLUSIVE);
	queued(0, 1, VB_EXCLUSIVE);
	vb_audit_client_died(scene.audit, 0);
	takes(1, 0, VB_EXCLUSIVE, VB_FOREVER, 0);
	for (unsigned i = 0; i < 5; i++) {
		at(2000 + i);
		takes(2, 1, VB_EXCLUSIVE, VB_FOREVER, 0);
		gives(2, 1, 0);
	}
	expect_clean();
	assert_int_equal(counts().max_bypass, 0);
}

/* The filter must come back to zero: a later conflict-free grant searches nothing and finds
 * nothing, a later conflict is found. */
static void test_many_rounds(void **state)
{
	for (unsigned i = 0; i < 1000; i++) {
		at(2000 + 10 * i);
		takes(i % CLIENTS, 0, VB_EXCLUSIVE, VB_FOREVER, 0);
		takes((i + 1) % CLIENTS, 1, VB_SHARED, VB_FOREVER, 0);
		takes((i + 2) % CLIENTS, 1, VB_SHARED, VB_FOREVER, 0);
		gives((i + 1) % CLIENTS, 1, 0);
		gives(i % CLIENTS, 0, 0);
		gives((i + 2) % CLIENTS, 1, 0);
	}
	expect_clean();
	assert_int_equal(counts().checked_ops, 3000);
	takes(0, 0, VB_SHARED, VB_FOREVER, 0);
	takes(1, 0, VB_EXCLUSIVE, VB_FOREVER, 0);
	expect_only(VB_AUDIT_MODE_CONFLICT, 1);
}

/* ---- expired-grant ---- */

static void test_expired_grant(void **state)
{
	called(0, 0, VB_EXCLUSIVE);
	at(5000);
	granted(0, 0, VB_EXCLUSIVE, 5000, 0);
	expect_only(VB_AUDIT_EXPIRED_GRANT, 1);
	gives(0, 0, -VB_ELOST);
	assert_int_equal(counts().lost, 1);
	called(0, 0, VB_EXCLUSIVE);
	granted(0, 0, VB_EXCLUSIVE, 5001, 0);
	expect_only(VB_AUDIT_EXPIRED_GRANT, 1);
}

/* In real time a process may be stopped after its protocol's last look at the clock; a grant that
 * was over before it was asked for is wrong all the same. */
static void test_expired_grant_real(void **state)
{
	uint64_t now;

	vb_audit_close(scene.audit);
	begin_with(false, false);
	called(0, 0, VB_EXCLUSIVE);
	now = vb_clock_ns() + 1;
	while (vb_clock_ns() <= now)
		;
	granted(0, 0, VB_EXCLUSIVE, now, 0);
	gives(0, 0, -VB_ELOST);
	expect_clean();
	called(0, 0, VB_EXCLUSIVE);
	granted(0, 0, VB_EXCLUSIVE, now, 0);
	expect_only(VB_AUDIT_EXPIRED_GRANT, 1);
}

/* ---- foreign-release ---- */

static void test_foreign_release(void **state)
{
	takes(0, 0, VB_EXCLUSIVE, 3000, 0);
	at(3500);
	takes(1, 0, VB_EXCLUSIVE, 9000, 0);
	at(4000);
	gives(0, 0, 0);
	expect_only(VB_AUDIT_FOREIGN_RELEASE, 1);
}

static void test_lost_release(void **state)
{
	takes(0, 0, VB_EXCLUSIVE, 3000, 0);
	at(3500);
	takes(1, 0, VB_EXCLUSIVE, 9000, 0);
	gives(0, 0, -VB_ELOST);
	expect_clean();
	assert_int_equal(counts().lost, 1);
	/* Late, but nobody had come: success is the truth. */
	at(9500);
	gives(1, 0, 0);
	/* A reader loses its place to writers only. */
	takes(2, 0, VB_SHARED, 9600, 0);
	at(9700);
	takes(3, 0, VB_SHARED, 9900, 0);
	gives(2, 0, 0);
	gives(3, 0, 0);
	expect_clean();
}

static void test_foreign_release_of_reader(void **state)
{
	takes(0, 0, VB_SHARED, 3000, 0);
	at(3500);
	takes(1, 0, VB_EXCLUSIVE, 4000, 0);
	gives(1, 0, 0);
	at(5000);
	gives(0, 0, 0);
	expect_only(VB_AUDIT_FOREIGN_RELEASE, 1);
}

/* ---- token-order ---- */

static void test_tokens(void **state)
{
	takes(0, 0, VB_EXCLUSIVE, VB_FOREVER, 5);
	gives(0, 0, 0);
	takes(1, 1, VB_EXCLUSIVE, VB_FOREVER, 5);
	gives(1, 1, 0);
	takes(2, 0, VB_EXCLUSIVE, VB_FOREVER, 6);
	gives(2, 0, 0);
	takes(3, 0, VB_SHARED, VB_FOREVER, 6);
	gives(3, 0, 0);
	expect_clean();
	takes(0, 0, VB_EXCLUSIVE, VB_FOREVER, 6);
	gives(0, 0, 0);
	expect_only(VB_AUDIT_TOKEN_ORDER, 1);
	takes(0, 0, VB_EXCLUSIVE, VB_FOREVER, 2);
	expect_only(VB_AUDIT_TOKEN_ORDER, 2);
}

/* Not converted to less, and for longer all the same: the same grant, beside which nobody may be. */
static void test_token_of_a_longer_lease(void **state)
{
	struct vb_claim *c = &scene.claim[0][0];

	takes(0, 0, VB_EXCLUSIVE, 2000, 5);
	scene.watch->converting(scene.watch->ctx, &scene.me[0], c, VB_SHARED);
	c->valid_until_ns = 3000;
	scene.watch->converted(scene.watch->ctx, &scene.me[0], c, -ETIMEDOUT);
	expect_clean();
	at(2500);
	takes(1, 0, VB_SHARED, VB_FOREVER, 0);
	expect_only(VB_AUDIT_MODE_CONFLICT, 1);
}

static void test_missing_token(void **state)
{
	takes(0, 0, VB_EXCLUSIVE, VB_FOREVER, 0);
	gives(0, 0, 0);
	expect_clean();
	vb_audit_close(scene.audit);
	begin_with(true, true);
	takes(0, 0, VB_SHARED, VB_FOREVER, 0);
	gives(0, 0, 0);
	expect_clean();
	takes(0, 0, VB_EXCLUSIVE, VB_FOREVER, 0);
	expect_only(VB_AUDIT_TOKEN_ORDER, 1);
}

/* ---- bypass ---- */

static void pass(unsigned i, uint64_t lock, enum vb_mode mode, uint64_t ns)
{
	at(ns);
	takes(i, lock, mode, VB_FOREVER, 0);
	gives(i, lock, 0);
}

static void test_bypass(void **state)
{
	called(0, 0, VB_EXCLUSIVE);
	queued(0, 0, VB_EXCLUSIVE);
	pass(1, 0, VB_SHARED, 2000);
	pass(2, 0, VB_EXCLUSIVE, 2100);
	expect_clean();
	pass(1, 0, VB_EXCLUSIVE, 2200);
	expect_only(VB_AUDIT_BYPASS, 1);
	/* Told once per wait. */
	pass(1, 0, VB_EXCLUSIVE, 2300);
	expect_only(VB_AUDIT_BYPASS, 1);
	granted(0, 0, VB_EXCLUSIVE, VB_FOREVER, 0);
	assert_int_equal(counts().max_bypass, 4);
}

static void test_bypass_near_misses(void **state)
{
	/* Called before we queued: it may well have been ahead of us. */
	called(1, 0, VB_EXCLUSIVE);
	at(1100);
	called(0, 0, VB_SHARED);
	queued(0, 0, VB_SHARED);
	at(1200);
	granted(1, 0, VB_EXCLUSIVE, VB_FOREVER, 0);
	gives(1, 0, 0);
	/* Other locks, and modes that go with ours. */
	for (unsigned i = 0; i < 10; i++) {
		pass(1, 1, VB_EXCLUSIVE, 1300 + 10 * i);
		pass(2, 0, VB_SHARED, 1305 + 10 * i);
	}
	/* A recovery threw us out: the count begins again. */
	pass(1, 0, VB_EXCLUSIVE, 2000);
	at(2100);
	queued(0, 0, VB_SHARED);
	pass(2, 0, VB_EXCLUSIVE, 2200);
	at(2300);
	granted(0, 0, VB_SHARED, VB_FOREVER, 0);
	gives(0, 0, 0);
	/* Who does not wait any more is not passed. */
	pass(2, 0, VB_EXCLUSIVE, 2400);
	pass(2, 0, VB_EXCLUSIVE, 2500);
	expect_clean();
	assert_int_equal(counts().max_bypass, 1);
}

/* Client 1 gave up and left a proxy in the queue; coming back, it takes that older place over. */
static void test_bypass_proxy(void **state)
{
	called(1, 0, VB_EXCLUSIVE);
	queued(1, 0, VB_EXCLUSIVE);
	at(1100);
	called(0, 0, VB_SHARED);
	queued(0, 0, VB_SHARED);
	at(1200);
	not_granted(1, 0, -ETIMEDOUT);
	for (unsigned i = 0; i < 3; i++) {
		at(1300 + 100 * i);
		called(1, 0, VB_EXCLUSIVE);
		if (i < 2)
			not_granted(1, 0, -ETIMEDOUT);
	}
	granted(1, 0, VB_EXCLUSIVE, VB_FOREVER, 0);
	gives(1, 0, 0);
	expect_clean();
	assert_int_equal(counts().max_bypass, 0);
	pass(1, 0, VB_EXCLUSIVE, 2000);
	pass(1, 0, VB_EXCLUSIVE, 2100);
	expect_only(VB_AUDIT_BYPASS, 1);
}

/* ---- the rest ---- */

static void test_driver_violation(void **state)
{
	char *text = NULL;
	size_t size = 0;
	FILE *f;

	vb_audit_violation(scene.audit, VB_AUDIT_STUCK, 3, 1, "waits for ever");
	expect_only(VB_AUDIT_STUCK, 1);
	f = open_memstream(&text, &size);
	vb_audit_print(scene.audit, f);
	fclose(f);
	assert_string_equal(text, "stuck: lock 1, client 3: waits for ever\n");
	free(text);
}

static void test_story_tells_both_sides(void **state)
{
	char *text = NULL;
	size_t size = 0;
	FILE *f;

	called(2, 1, VB_EXCLUSIVE);
	at(2000);
	granted(2, 1, VB_EXCLUSIVE, 8000, 41);
	at(3000);
	called(3, 1, VB_SHARED);
	queued(3, 1, VB_SHARED);
	at(4000);
	granted(3, 1, VB_SHARED, 9000, 0);
	f = open_memstream(&text, &size);
	vb_audit_print(scene.audit, f);
	fclose(f);
	assert_string_equal(
		text, "mode-conflict: lock 1 at 4.000 us: granted to client 3 (node 3), shared, "
		      "called at 3.000 us, queued at 3.000 us, granted at 4.000 us, valid until "
		      "9.000 us; while held by client 2 (node 2), exclusive, called at 1.000 us, "
		      "granted at 2.000 us, valid until 8.000 us, token 41\n");
	free(text);
}

/* What a forked process enters, its parent sees. */
static void test_across_processes(void **state)
{
	int status;
	pid_t pid = fork_child();

	if (pid == 0) {
		takes(0, 0, VB_EXCLUSIVE, VB_FOREVER, 7);
		_exit(0);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	takes(1, 0, VB_EXCLUSIVE, VB_FOREVER, 8);
	expect_only(VB_AUDIT_MODE_CONFLICT, 1);
	vb_audit_client_died(scene.audit, 0);
	gives(1, 0, 0);
	takes(1, 0, VB_EXCLUSIVE, VB_FOREVER, 7);
	assert_int_equal(counts().by_rule[VB_AUDIT_MODE_CONFLICT], 1);
	assert_int_equal(counts().by_rule[VB_AUDIT_TOKEN_ORDER], 1);
}

/* ---- threads: what is entered at the same time is seen by one of the two at least ---- */

#define ROUNDS 20000

struct racer {
	unsigned index;
	bool fair; /* takes a real lock around the grant */
	pthread_mutex_t *mutex;
	pthread_barrier_t *barrier;
};

static void *race(void *arg)
{
	struct racer *r = arg;

	for (unsigned i = 0; i < ROUNDS; i++) {
		if (r->fair) {
			pthread_mutex_lock(r->mutex);
			takes(r->index, 0, VB_EXCLUSIVE, VB_FOREVER, 0);
			gives(r->index, 0, 0);
			pthread_mutex_unlock(r->mutex);
			continue;
		}
		pthread_barrier_wait(r->barrier);
		takes(r->index, 0, r->index ? VB_EXCLUSIVE : VB_SHARED, VB_FOREVER, 0);
		pthread_barrier_wait(r->barrier);
		gives(r->index, 0, -VB_ELOST);
	}
	return NULL;
}

static void race_two(bool fair)
{
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	pthread_barrier_t barrier;
	struct racer racers[2];
	pthread_t threads[2];

	vb_audit_close(scene.audit);
	begin_with(false, false);
	assert_int_equal(pthread_barrier_init(&barrier, NULL, 2), 0);
	for (unsigned i = 0; i < 2; i++) {
		racers[i] = (struct racer){i, fair, &mutex, &barrier};
		assert_int_equal(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
	}
	for (unsigned i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&barrier);
}

static void test_threads_conflict(void **state)
{
	struct vb_audit_counts c;

	race_two(false);
	c = counts();
	assert_int_equal(c.checked_ops, 2 * ROUNDS);
	/* Both may see it. */
	assert_in_range(c.by_rule[VB_AUDIT_MODE_CONFLICT], ROUNDS, 2 * ROUNDS);
	assert_int_equal(c.violations, c.by_rule[VB_AUDIT_MODE_CONFLICT]);
}

static void test_threads_take_turns(void **state)
{
	race_two(true);
	assert_int_equal(counts().checked_ops, 2 * ROUNDS);
	expect_clean();
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_two_writers),
		TEST(test_reader_and_writer),
		TEST(test_readers_share),
		TEST(test_all_modes),
		TEST(test_conversions),
		TEST(test_conversions_under_way),
		TEST(test_grant_after_release),
		TEST(test_grant_after_abandoned),
		TEST(test_grant_after_lease),
		TEST(test_clocks_of_their_own),
		TEST(test_death_frees),
		TEST(test_many_rounds),
		TEST(test_expired_grant),
		TEST(test_expired_grant_real),
		TEST(test_foreign_release),
		TEST(test_lost_release),
		TEST(test_foreign_release_of_reader),
		TEST(test_tokens),
		TEST(test_token_of_a_longer_lease),
		TEST(test_missing_token),
		TEST(test_bypass),
		TEST(test_bypass_near_misses),
		TEST(test_bypass_proxy),
		TEST(test_driver_violation),
		TEST(test_story_tells_both_sides),
		TEST(test_across_processes),
		TEST(test_threads_conflict),
		TEST(test_threads_take_turns),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
