/* SPDX-License-Identifier: Apache-2.0 */
/* Calls on a ring that end at once, and what must not: verbena/async.h, "What ends at once". */
#include "ring_world.h"

static const char *const at_once[] = {"cas",    "cas-backoff", "retry-on-fail", "drtm",
				      "dslr",   "dslr-update", "mcs",           "ncosed",
				      "rma-rw", "shiftlock"};

/* ---- at once ---- */

/* Also where others are under way, and there is no place for one more. */
static void cycle_beside(enum vb_mode mode)
{
	if (!without_task(mode))
		return;
	assert_int_equal(vb_lock_acquire(w.client[1], 3, VB_EXCLUSIVE, PATIENCE_NS, &w.grant[1]),
			 0);
	assert_int_equal(acquire(2, 3, VB_EXCLUSIVE), VB_STARTED);
	assert_int_equal(acquire(0, HOT, mode), 0);
	assert_int_equal(release(0, NULL), 0);
	expect_nothing();
	assert_int_equal(vb_lock_release(w.client[1], &w.grant[1]), 0);
	expect(2, 0);
	assert_int_equal(release(2, NULL), 0);
}

static void test_at_once(void **state)
{
	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(at_once); i++) {
		open_world("shm", at_once[i], 1);
		assert_true(w.client[0]->at_once);
		cycle(VB_EXCLUSIVE);
		cycle_beside(VB_EXCLUSIVE);
		if (w.space->ops->caps & VB_LOCK_SHARED) {
			cycle(VB_SHARED);
			cycle_beside(VB_SHARED);
		}
		close_world();
	}
}

/* A verb takes its time, but not one to words that this process has. */
static void test_near(void **state)
{
	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(at_once); i++) {
		open_world("tcp", at_once[i], 1);
		assert_false(w.client[0]->at_once);
		/* rma-rw's words are at several nodes. */
		assert_int_equal(w.client[0]->near_at_once, w.space->ops->try_verbs == 0);
		if (w.client[0]->near_at_once) {
			cycle(VB_EXCLUSIVE);
			if (w.space->ops->caps & VB_LOCK_SHARED)
				cycle(VB_SHARED);
		}
		close_world();
	}
}

/* But the message to who waits behind does. */
static void test_near_no_more(void **state)
{
	static const char *const locks[] = {"mcs", "ncosed", "shiftlock"};

	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(locks); i++) {
		uint64_t before, word, switches;
		int err;

		open_world("tcp", locks[i], 2);
		assert_int_equal(acquire(0, HOT, VB_EXCLUSIVE), 0);
		assert_int_equal(vb_read64(w.client[2]->ep, word_of(HOT), &before), 0);
		assert_int_equal(acquire(1, HOT, VB_EXCLUSIVE), VB_STARTED);
		do {
			assert_int_equal(vb_ring_wait(w.ring, MS), -ETIMEDOUT);
			assert_int_equal(vb_read64(w.client[2]->ep, word_of(HOT), &word), 0);
		} while (word == before);
		switches = vb_sched_switches(w.client[0]->ep->sched);
		err = release(0, NULL);
		/* In a task in any case, which may be quicker than who waits for it. */
		assert_true(vb_sched_switches(w.client[0]->ep->sched) > switches);
		assert_true(err == 0 || err == VB_STARTED);
		for (unsigned left = err == 0 ? 1 : 2; left != 0; left--) {
			struct vb_completion done;

			assert_int_equal(vb_ring_wait(w.ring, PATIENCE_NS), 0);
			assert_int_equal(vb_ring_reap(w.ring, &done, 1), 1);
			assert_int_equal(done.result, 0);
		}
		assert_true(vb_lock_valid(w.client[1], &w.grant[1]));
		assert_int_equal(release(1, NULL), 0);
		close_world();
	}
}

/* Nor is another node's word near, be it served by this very process: it has a task. */
static void far_cycle(const char *lock)
{
	const struct vb_fabric_params fp = {.fabric = "tcp", .nodes = 2, .node_bytes = 8u << 20};
	const struct vb_lock_space_params sp = {
		.lock = lock, .locks = 16, .lease_ns = LEASE_NS, .servers = 2};
	uint64_t switches;

	memset(&w, 0, sizeof(w));
	assert_int_equal(vb_fabric_open(&fp, &w.fabric), 0);
	assert_int_equal(vb_lock_space_open(w.fabric, &sp, &w.space), 0);
	assert_int_equal(vb_lock_client_open(w.space, 0, &w.client[0]), 0);
	assert_int_equal(vb_ring_open(NULL, &w.ring), 0);
	assert_true(w.client[0]->near_at_once);
	for (uint64_t l = 0; l < 2; l++) {
		bool near = vb_addr_node(word_of(l)) == 0;

		assert_int_equal(near, l == 0);
		for (unsigned call = 0; call < 2; call++) {
			int err;

			switches = vb_sched_switches(w.client[0]->ep->sched);
			err = call == 0 ? acquire(0, l, VB_EXCLUSIVE) : release(0, NULL);
			if (near)
				assert_int_equal(err, 0);
			assert_int_equal(vb_sched_switches(w.client[0]->ep->sched) == switches,
					 near);
			if (err != 0)
				assert_int_equal(err, VB_STARTED);
			if (err == VB_STARTED)
				expect(0, 0);
		}
	}
	assert_int_equal(vb_ring_close(w.ring), 0);
	vb_lock_client_close(w.client[0]);
	assert_int_equal(vb_lock_space_close(w.space), 0);
	assert_int_equal(vb_fabric_close(w.fabric), 0);
}

static void test_far(void **state)
{
	(void)state;
	far_cycle("cas");
	far_cycle("mcs");
	far_cycle("ncosed");
}

/* To who is known to wait behind. */
static void test_handed_over(void **state)
{
	static const char *const locks[] = {"mcs", "shiftlock"};

	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(locks); i++) {
		open_world("shm", locks[i], 1);
		assert_int_equal(acquire(0, HOT, VB_EXCLUSIVE), 0);
		assert_int_equal(acquire(1, HOT, VB_EXCLUSIVE), VB_STARTED);
		/* The ring is full: it could not go on in a task. */
		assert_int_equal(release(0, NULL), 0);
		expect(1, 0);
		assert_true(vb_lock_valid(w.client[1], &w.grant[1]));
		assert_int_equal(release(1, NULL), 0);
		close_world();
	}
}

/* What is refused is so at once. */
static void test_refused(void **state)
{
	struct vb_grant again;

	(void)state;
	open_world("shm", "mcs", 1);
	assert_int_equal(acquire(0, HOT, VB_EXCLUSIVE), 0);
	vb_log_mute();
	assert_int_equal(acquire(0, HOT, VB_EXCLUSIVE), -EDEADLK);
	assert_int_equal(acquire(0, 99, VB_EXCLUSIVE), -EINVAL);
	assert_int_equal(acquire(0, 3, VB_SHARED + VB_MODES), -EINVAL);
	vb_log_unmute();
	again = w.grant[0];
	assert_int_equal(release(0, NULL), 0);
	w.grant[0] = again;
	vb_log_mute();
	assert_int_equal(release(0, NULL), -EINVAL);
	vb_log_unmute();
	expect_nothing();
	close_world();
}

/* ---- later ---- */

/* A successor that has not linked yet is waited for, by a task: the thread goes on.  Cancelling does not end it: the
 * lock must be handed on. */
static void later(const struct queue *q)
{
	uint64_t holder, name, id;

	open_world("shm", q->lock, 2);
	assert_int_equal(acquire(0, HOT, VB_EXCLUSIVE), 0);
	stands_behind(q, &holder, &name);
	assert_int_equal(release(0, &id), VB_STARTED);
	expect_nothing();
	assert_int_equal(vb_ring_wait(w.ring, MS), -ETIMEDOUT);
	/* Meanwhile the thread serves others. */
	assert_int_equal(acquire(2, 3, VB_EXCLUSIVE), 0);
	assert_int_equal(release(2, NULL), 0);
	vb_log_mute();
	assert_int_equal(release(0, NULL), -EBUSY);
	vb_log_unmute();
	assert_int_equal(vb_ring_cancel(w.ring, id), 0);
	assert_int_equal(vb_ring_wait(w.ring, MS), -ETIMEDOUT);
	tells(q, holder, name);
	expect(0, 0);
	assert_false(vb_lock_valid(w.client[0], &w.grant[0]));
	is_through(q, name);
	cycle(VB_EXCLUSIVE);
	close_world();
}

/* The same, where nothing more can be started: it is held as before, and released later. */
static void later_without_room(const struct queue *q)
{
	uint64_t holder, name;

	open_world("shm", q->lock, 1);
	assert_int_equal(acquire(0, HOT, VB_EXCLUSIVE), 0);
	assert_int_equal(acquire(1, 3, VB_EXCLUSIVE), 0);
	assert_int_equal(acquire(2, 3, VB_EXCLUSIVE), VB_STARTED);
	stands_behind(q, &holder, &name);
	vb_log_mute();
	assert_int_equal(release(0, NULL), -ENOSPC);
	vb_log_unmute();
	assert_true(vb_lock_valid(w.client[0], &w.grant[0]));
	/* By a task where client 2 must be told that its group is open. */
	vb_log_mute();
	if (release(1, NULL) != 0)
		assert_int_equal(vb_lock_release(w.client[1], &w.grant[1]), 0);
	vb_log_unmute();
	expect(2, 0);
	assert_int_equal(release(2, NULL), 0);
	assert_int_equal(release(0, NULL), VB_STARTED);
	tells(q, holder, name);
	expect(0, 0);
	is_through(q, name);
	close_world();
}

static void test_later(void **state)
{
	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(queues); i++) {
		later(&queues[i]);
		later_without_room(&queues[i]);
	}
}

/* ---- elsewhere ---- */

/* Where verbs take their time, or somebody must answer, so does a release: its completion comes. */
static void elsewhere(const char *fabric, const char *lock)
{
	open_world(fabric, lock, 0);
	assert_false(w.client[0]->at_once);
	for (unsigned n = 0; n < 3; n++) {
		struct vb_grant other;
		int err;

		assert_int_equal(
			vb_lock_acquire(w.client[0], HOT, VB_EXCLUSIVE, PATIENCE_NS, &w.grant[0]),
			0);
		err = release(0, NULL);
		/* An answer may be quicker than who waits for it; not in virtual time. */
		assert_true(err == VB_STARTED || (err == 0 && strcmp(fabric, "sim") != 0));
		if (err == VB_STARTED)
			expect(0, 0);
		expect_nothing();
		assert_int_equal(
			vb_lock_acquire(w.client[1], HOT, VB_EXCLUSIVE, PATIENCE_NS, &other), 0);
		assert_int_equal(vb_lock_release(w.client[1], &other), 0);
	}
	close_world();
}

static void test_elsewhere(void **state)
{
	(void)state;
	elsewhere("sim", "mcs");
	elsewhere("sim", "dslr");
	elsewhere("sim", "table");
	elsewhere("tcp", "mcs");
	elsewhere("tcp", "shiftlock");
	elsewhere("shm", "table");
	elsewhere("shm", "traditional");
}

/* ---- all at a time ---- */

#define THREADS 3
#define EACH    2 /* clients of a thread */
#define CYCLES  400

static struct {
	unsigned wrong, inside; /* atomic */
	unsigned served;        /* the holder's */
} hot;

struct asker {
	struct vb_ring *ring;
	struct vb_lock_client *client;
	struct vb_grant grant;
	bool holds;
	unsigned left;
};

static void wrong_if(bool wrong)
{
	__atomic_fetch_add(&hot.wrong, wrong, __ATOMIC_SEQ_CST);
}

/* A call of it has ended: starts the next ones, until one is under way. */
static void go_on(struct asker *a, int result)
{
	do {
		wrong_if(result != 0);
		if (!a->holds) {
			wrong_if(__atomic_fetch_add(&hot.inside, 1, __ATOMIC_SEQ_CST) != 0);
			hot.served++;
			__atomic_fetch_sub(&hot.inside, 1, __ATOMIC_SEQ_CST);
			a->holds = true;
			result = vb_lock_release_start(a->ring, a->client, &a->grant, a, NULL);
			continue;
		}
		a->holds = false;
		if (--a->left == 0)
			return;
		result = vb_lock_acquire_start(a->ring, a->client, HOT, VB_EXCLUSIVE, VB_FOREVER_NS,
					       &a->grant, a, NULL);
	} while (result != VB_STARTED);
}

static void *asks(void *arg)
{
	struct asker a[EACH];
	struct vb_completion done;
	struct vb_ring *ring;
	int err = vb_ring_open(NULL, &ring);

	(void)arg;
	for (unsigned i = 0; i < EACH; i++) {
		a[i] = (struct asker){.ring = ring, .holds = true, .left = CYCLES + 1};
		err |= vb_lock_client_open(w.space, 0, &a[i].client);
	}
	for (unsigned i = 0; i < EACH && err == 0; i++)
		go_on(&a[i], 0);
	while (err == 0 && (err = vb_ring_wait(ring, PATIENCE_NS)) == 0)
		if (vb_ring_reap(ring, &done, 1) == 1)
			go_on(done.tag, done.result);
	for (unsigned i = 0; i < EACH; i++)
		vb_lock_client_close(a[i].client);
	return vb_ring_close(ring) == 0 && err == -ENOENT ? NULL : &hot;
}

static void test_hot(void **state)
{
	pthread_t thread[THREADS];

	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(at_once); i++) {
		open_world("shm", at_once[i], 1);
		memset(&hot, 0, sizeof(hot));
		for (unsigned t = 0; t < THREADS; t++)
			assert_int_equal(pthread_create(&thread[t], NULL, asks, NULL), 0);
		for (unsigned t = 0; t < THREADS; t++) {
			void *wrong;

			pthread_join(thread[t], &wrong);
			assert_null(wrong);
		}
		assert_int_equal(hot.served, THREADS * EACH * CYCLES);
		assert_int_equal(hot.wrong, 0);
		close_world();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_at_once),   cmocka_unit_test(test_handed_over),
		cmocka_unit_test(test_refused),   cmocka_unit_test(test_later),
		cmocka_unit_test(test_elsewhere), cmocka_unit_test(test_hot),
		cmocka_unit_test(test_near),      cmocka_unit_test(test_near_no_more),
		cmocka_unit_test(test_far),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
