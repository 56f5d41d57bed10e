/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts and their callers' threads when programs go wrong: what is ended or closed at the wrong moment. */
#include <verbena/host.h>

#include "host_world.h"

/* ---- a thread that sleeps on a ring ---- */

static pid_t sleeper; /* atomic */

static void *sleeps(void *arg)
{
	(void)arg;
	__atomic_store_n(&sleeper, gettid(), __ATOMIC_RELEASE);
	return (void *)(intptr_t)vb_ring_wait(w.ring, VB_FOREVER_NS);
}

static char state_of(pid_t thread)
{
	char path[64], state = '?';
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)thread);
	f = fopen(path, "re");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%*d (%*[^)]) %c", &state), 1);
	fclose(f);
	return state;
}

/* One that does, by the word of the system: there is nothing else that it could sleep for. */
static pthread_t asleep(void)
{
	pthread_t thread;
	pid_t id;

	__atomic_store_n(&sleeper, 0, __ATOMIC_RELAXED);
	assert_int_equal(pthread_create(&thread, NULL, sleeps, NULL), 0);
	while ((id = __atomic_load_n(&sleeper, __ATOMIC_ACQUIRE)) == 0 || state_of(id) != 'S')
		sched_yield();
	return thread;
}

/* It ends behind its call, and leaves the ring as if it had never been there. */
static void test_cancelled_thread(void **state)
{
	struct vb_lock_client *c;
	struct vb_grant g;
	pthread_t thread;
	void *result;

	(void)state;
	open_world("shm", "mcs");
	c = client();
	hold(5);
	assert_int_equal(start(c, 5, VB_FOREVER_NS, &g, NULL), VB_STARTED);
	thread = asleep();
	assert_int_equal(pthread_cancel(thread), 0);
	let_go();
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_int_equal(next(&g).result, 0);
	assert_int_equal(vb_lock_release(c, &g), 0);
	vb_lock_client_close(c);
	close_world();
}

static int naps(void *arg)
{
	(void)arg;
	usleep(50);
	return 0;
}

/* Who reaps the last completion and closes is not alone before those who slept have returned. */
static void test_closed_under_sleepers(void **state)
{
	unsigned busy = 0;

	(void)state;
	open_world("shm", "mcs");
	quiet(true);
	for (unsigned n = 0; n < 30; n++) {
		struct vb_completion done;
		struct vb_lock_client *c = client();
		struct vb_grant g;
		pthread_t thread[4];
		int err;

		hold(5);
		assert_int_equal(start(c, 5, VB_FOREVER_NS, &g, NULL), VB_STARTED);
		for (unsigned i = 0; i < 4; i++)
			thread[i] = asleep();
		let_go();
		while (vb_ring_reap(w.ring, &done, 1) == 0)
			;
		while ((err = vb_ring_close(w.ring)) == -EBUSY)
			busy++;
		assert_int_equal(err, 0);
		for (unsigned i = 0; i < 4; i++)
			pthread_join(thread[i], NULL);
		assert_int_equal(vb_lock_release(c, &g), 0);
		vb_lock_client_close(c);
		assert_int_equal(vb_host_ring_open(w.host, NULL, &w.ring), 0);
	}
	quiet(false);
	assert_true(busy > 0);
	close_world();
}

/* ---- an id that nobody has told ---- */

static uint64_t guess; /* atomic */

static void *guesses(void *arg)
{
	uint64_t id;

	(void)arg;
	while ((id = __atomic_load_n(&guess, __ATOMIC_RELAXED)) != 0)
		(void)vb_ring_cancel(w.ring, id);
	return NULL;
}

/* It cancels the call of that id, or none: also just when that is being started.  Nor does it keep the place of one
 * that has been reaped. */
static void test_guessed_id(void **state)
{
	const struct vb_ring_params rp = {.depth = 1};
	struct vb_completion done;
	uint64_t id, step;
	pthread_t thread;

	(void)state;
	open_world("shm", "mcs");
	assert_int_equal(vb_ring_close(w.ring), 0);
	assert_int_equal(vb_host_ring_open(w.host, &rp, &w.ring), 0);
	assert_int_equal(vb_ring_call(w.ring, naps, NULL, NULL, &step), VB_STARTED);
	(void)next(NULL);
	assert_int_equal(vb_ring_call(w.ring, naps, NULL, NULL, &id), VB_STARTED);
	(void)next(NULL);
	step = id - step;
	guess = id + step;
	assert_int_equal(pthread_create(&thread, NULL, guesses, NULL), 0);
	for (unsigned n = 0; n < 20000; n++) {
		assert_int_equal(vb_ring_call(w.ring, naps, NULL, NULL, &id), VB_STARTED);
		while (vb_ring_reap(w.ring, &done, 1) == 0)
			;
		assert_int_equal(done.result, 0);
		__atomic_store_n(&guess, id + step, __ATOMIC_RELAXED);
	}
	__atomic_store_n(&guess, 0, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	close_world();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cancelled_thread),
		cmocka_unit_test(test_closed_under_sleepers),
		cmocka_unit_test(test_guessed_id),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
