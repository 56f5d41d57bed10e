/* SPDX-License-Identifier: Apache-2.0 */
/* What is under way on a ring whose thread says nothing and sleeps elsewhere; with and without the keepers of a
 * fabric, and as many as there may be. */
#include "ring_world.h"

#include <verbena/host.h>

#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define USUAL_DEPTH 1024u

/* ---- the keeper ---- */

/* Until it runs on another thread than its starter's. */
static int is_moved(void *arg)
{
	pid_t from = gettid();

	while (gettid() == from)
		vb_poll();
	__atomic_store_n((bool *)arg, true, __ATOMIC_RELEASE);
	return 0;
}

static void sleeps_until(const bool *is)
{
	for (uint64_t ms = 0; ms < PATIENCE_NS / MS && !__atomic_load_n(is, __ATOMIC_ACQUIRE); ms++)
		usleep(1000);
	assert_true(__atomic_load_n(is, __ATOMIC_ACQUIRE));
}

/* Whether or not the ring is armed. */
static void goes_on_elsewhere(bool arms)
{
	struct pollfd fd = {.fd = vb_ring_fd(w.ring), .events = POLLIN};
	struct vb_completion done;
	bool is = false;

	assert_int_equal(vb_ring_call(w.ring, is_moved, &is, &is, NULL), VB_STARTED);
	if (arms) {
		while (vb_ring_arm(w.ring) == 0)
			assert_int_equal(poll(&fd, 1, (int)(PATIENCE_NS / MS)), 1);
		assert_true(is);
	} else {
		sleeps_until(&is);
	}
	assert_int_equal(vb_ring_wait(w.ring, PATIENCE_NS), 0);
	assert_int_equal(vb_ring_reap(w.ring, &done, 1), 1);
	assert_ptr_equal(done.tag, &is);
	assert_int_equal(done.result, 0);
}

static void *without_keeper(void *arg)
{
	const struct vb_fabric_params fp = {
		.fabric = "shm", .node_bytes = 1u << 20, .no_keeper = *(const bool *)arg};
	const struct vb_lock_space_params sp = {.lock = "cas", .locks = 16};

	memset(&w, 0, sizeof(w));
	assert_int_equal(vb_fabric_open(&fp, &w.fabric), 0);
	assert_int_equal(vb_lock_space_open(w.fabric, &sp, &w.space), 0);
	assert_int_equal(vb_lock_client_open(w.space, 0, &w.client[0]), 0);
	assert_int_equal(vb_ring_open(NULL, &w.ring), 0);
	goes_on_elsewhere(false);
	goes_on_elsewhere(true);
	assert_int_equal(vb_ring_close(w.ring), 0);
	vb_lock_client_close(w.client[0]);
	assert_int_equal(vb_lock_space_close(w.space), 0);
	assert_int_equal(vb_fabric_close(w.fabric), 0);
	return NULL;
}

/* The option no_keeper is for what a thread leaves behind, and not for what it has started.  (Each on a thread of its
 * own: a keeper stays with its thread.) */
static void test_left_alone(void **state)
{
	static const bool no_keeper[] = {false, true};
	pthread_t thread;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(
			pthread_create(&thread, NULL, without_keeper, (void *)&no_keeper[i]), 0);
		pthread_join(thread, NULL);
	}
}

/* ---- how many ---- */

static int goes_on(void *arg)
{
	while (__atomic_load_n((const bool *)arg, __ATOMIC_RELAXED))
		vb_poll();
	return 0;
}

/* Who names no depth has 1024 calls. */
static void test_usual_depth(void **state)
{
	struct vb_completion done;
	struct vb_ring *r;
	bool on = true;

	(void)state;
	assert_int_equal(vb_ring_open(NULL, &r), 0);
	for (unsigned i = 0; i < USUAL_DEPTH; i++)
		assert_int_equal(vb_ring_call(r, goes_on, &on, NULL, NULL), VB_STARTED);
	vb_log_mute();
	assert_int_equal(vb_ring_call(r, goes_on, &on, NULL, NULL), -ENOSPC);
	vb_log_unmute();
	__atomic_store_n(&on, false, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < USUAL_DEPTH; i++) {
		assert_int_equal(vb_ring_wait(r, PATIENCE_NS), 0);
		assert_int_equal(vb_ring_reap(r, &done, 1), 1);
	}
	assert_int_equal(vb_ring_close(r), 0);
}

/* ---- what the system does not give ---- */

static struct rlimit limit(int what, rlim_t most)
{
	struct rlimit was, now;

	assert_int_equal(getrlimit(what, &was), 0);
	now = (struct rlimit){.rlim_cur = most, .rlim_max = was.rlim_max};
	assert_int_equal(setrlimit(what, &now), 0);
	return was;
}

/* An emulator may have limits of its own, and sanitizers map memory of their own. */
static bool can_be_refused(void)
{
	struct rlimit was;
	void *piece;

#if defined(VB_ASAN) || defined(VB_TSAN)
	return false;
#endif
	was = limit(RLIMIT_AS, 1 << 20);
	piece = mmap(NULL, 1 << 24, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_int_equal(setrlimit(RLIMIT_AS, &was), 0);
	if (piece != MAP_FAILED)
		munmap(piece, 1 << 24);
	return piece == MAP_FAILED;
}

static void refused(int what, rlim_t most, const struct vb_ring_params *params, const char *why)
{
	struct vb_ring *r = NULL;
	char said[512] = "";
	struct rlimit was;
	int err;

	vb_log_capture_begin(said, sizeof(said));
	was = limit(what, most);
	err = vb_ring_open(params, &r);
	assert_int_equal(setrlimit(what, &was), 0);
	vb_log_capture_end();
	assert_int_equal(err, -ENOMEM);
	assert_null(r);
	if (strstr(said, why) == NULL)
		fail_msg("'%s' is not '%s'", said, why);
}

static void test_not_opened(void **state)
{
	const struct vb_ring_params largest = {.depth = 1u << 20};
	struct vb_host *h = NULL;
	char said[512] = "";
	struct rlimit was;
	int err;

	(void)state;
	if (!can_be_refused())
		skip();
	refused(RLIMIT_AS, 1 << 20, &largest, "memory");
	refused(RLIMIT_NOFILE, 3, NULL, strerror(EMFILE));
	vb_log_capture_begin(said, sizeof(said));
	was = limit(RLIMIT_AS, 1 << 20);
	err = vb_host_open(NULL, &h);
	assert_int_equal(setrlimit(RLIMIT_AS, &was), 0);
	vb_log_capture_end();
	assert_int_equal(err, -ENOMEM);
	assert_null(h);
	assert_non_null(strstr(said, "no thread for a host"));
}

/* Without a thread for its keeper a ring is not armed, and who waits has what is under way. */
static void test_no_thread(void **state)
{
	struct vb_completion done;
	bool on = false;
	struct rlimit was;
	struct vb_ring *r;

	(void)state;
	if (!can_be_refused())
		skip();
	assert_int_equal(vb_ring_open(NULL, &r), 0);
	/* Its stack is there for the next one. */
	assert_int_equal(vb_ring_call(r, goes_on, &on, NULL, NULL), 0);
	on = true;
	vb_log_mute();
	was = limit(RLIMIT_AS, 1 << 20);
	assert_int_equal(vb_ring_call(r, goes_on, &on, &on, NULL), VB_STARTED);
	assert_int_equal(vb_ring_arm(r), -ENOMEM);
	assert_int_equal(vb_ring_wait(r, MS), -ETIMEDOUT);
	on = false;
	assert_int_equal(vb_ring_wait(r, PATIENCE_NS), 0);
	assert_int_equal(setrlimit(RLIMIT_AS, &was), 0);
	vb_log_unmute();
	assert_int_equal(vb_ring_reap(r, &done, 1), 1);
	assert_ptr_equal(done.tag, &on);
	assert_int_equal(vb_ring_close(r), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		/* First: of a thread that has ended the system has a stack for the next one. */
		cmocka_unit_test(test_not_opened),
		cmocka_unit_test(test_no_thread),
		cmocka_unit_test(test_left_alone),
		cmocka_unit_test(test_usual_depth),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
