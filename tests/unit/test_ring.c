/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that are started and end later: verbena/async.h, sentence by sentence. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <verbena/async.h>
#include <verbena/txn.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/sometimes.h"
#include "child.h"
#include "lock/lock.h"

#define MS          1000000ull
#define PATIENCE_MS 60000
#define PATIENCE_NS (PATIENCE_MS * MS)
#define LEASE_NS    (120000 * MS)
#define CLIENTS     64

static struct {
	struct vb_fabric *fabric;
	struct vb_lock_space *space;
	struct vb_lock_server *server;
	struct vb_lock_client *holder, *client[CLIENTS];
	struct vb_grant held, grant[CLIENTS];
	struct vb_ring *ring;
} w;

static void open_leased(const char *fabric, const char *lock, unsigned clients, uint32_t depth,
			uint64_t lease_ns)
{
	const struct vb_fabric_params fp = {.fabric = fabric, .node_bytes = 8u << 20};
	const struct vb_lock_space_params sp = {.lock = lock, .locks = 16, .lease_ns = lease_ns};
	const struct vb_ring_params rp = {.depth = depth};

	memset(&w, 0, sizeof(w));
	assert_int_equal(vb_fabric_open(&fp, &w.fabric), 0);
	assert_int_equal(vb_lock_space_open(w.fabric, &sp, &w.space), 0);
	if (strcmp(fabric, "sim") == 0)
		assert_int_equal(vb_lock_server_start(w.space, 0, 0, 1, &w.server), 0);
	else
		assert_int_equal(vb_lock_server_thread_start(w.space, 0, &w.server), 0);
	assert_int_equal(vb_lock_client_open(w.space, 0, &w.holder), 0);
	for (unsigned i = 0; i < clients; i++)
		assert_int_equal(vb_lock_client_open(w.space, 0, &w.client[i]), 0);
	assert_int_equal(vb_ring_open(&rp, &w.ring), 0);
}

static void open_world(const char *fabric, const char *lock, unsigned clients, uint32_t depth)
{
	open_leased(fabric, lock, clients, depth, LEASE_NS);
}

/* When nothing is under way any more, the thread's calls are as quick as if nothing had ever been. */
static void quick_again(void)
{
	const struct vb_sched *mine = w.holder->ep->sched;
	uint64_t until = vb_clock_ns() + PATIENCE_NS;

	do {
		vb_poll();
	} while (vb_sched_quick != mine && vb_clock_ns() < until);
	assert_ptr_equal(vb_sched_quick, mine);
}

static void close_world(void)
{
	quick_again();
	assert_int_equal(vb_ring_close(w.ring), 0);
	for (unsigned i = 0; i < CLIENTS; i++)
		vb_lock_client_close(w.client[i]);
	vb_lock_client_close(w.holder);
	vb_lock_server_stop(w.server);
	assert_int_equal(vb_lock_space_close(w.space), 0);
	assert_int_equal(vb_fabric_close(w.fabric), 0);
}

static void hold(uint64_t lock)
{
	assert_int_equal(vb_lock_acquire(w.holder, lock, VB_EXCLUSIVE, PATIENCE_NS, &w.held), 0);
}

static void let_go(void)
{
	assert_int_equal(vb_lock_release(w.holder, &w.held), 0);
}

static int start(unsigned i, uint64_t lock, uint64_t timeout_ns, uint64_t *id)
{
	return vb_lock_acquire_start(w.ring, w.client[i], lock, VB_EXCLUSIVE, timeout_ns,
				     &w.grant[i], &w.client[i], id);
}

/* The next completion. */
static struct vb_completion next(void)
{
	struct vb_completion done;

	assert_int_equal(vb_ring_wait(w.ring, PATIENCE_NS), 0);
	assert_int_equal(vb_ring_reap(w.ring, &done, 1), 1);
	return done;
}

static void expect(unsigned i, int result)
{
	struct vb_completion done = next();

	assert_ptr_equal(done.tag, &w.client[i]);
	assert_int_equal(done.result, result);
}

static void expect_nothing(void)
{
	struct vb_completion done;

	assert_int_equal(vb_ring_reap(w.ring, &done, 1), 0);
}

/* ---- what every fabric and kind of lock does ---- */

/* What waits for nobody, where verbs complete inline, ends at once. */
static void at_once(void)
{
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(start(i, 3, PATIENCE_NS, NULL), 0);
		assert_true(vb_lock_valid(w.client[i], &w.grant[i]));
		assert_int_equal(
			vb_lock_release_start(w.ring, w.client[i], &w.grant[i], NULL, NULL), 0);
	}
	expect_nothing();
	assert_int_equal(vb_ring_wait(w.ring, 0), -ENOENT);
}

static void under_way(void)
{
	hold(5);
	assert_int_equal(start(0, 5, VB_FOREVER_NS, NULL), VB_STARTED);
	expect_nothing();
	assert_int_equal(vb_ring_wait(w.ring, MS), -ETIMEDOUT);
	let_go();
	expect(0, 0);
	assert_true(vb_lock_valid(w.client[0], &w.grant[0]));
	assert_int_equal(w.grant[0].lock, 5);
	assert_int_equal(vb_lock_try(w.holder, 5, VB_EXCLUSIVE, &w.held), -EAGAIN);
	assert_int_equal(vb_lock_release(w.client[0], &w.grant[0]), 0);
	hold(5);
	let_go();
}

/* All wait for one, and each lets the next one in. */
static void many(void)
{
	hold(5);
	for (unsigned i = 0; i < CLIENTS; i++)
		assert_int_equal(start(i, 5, VB_FOREVER_NS, NULL), VB_STARTED);
	let_go();
	for (unsigned n = 0; n < CLIENTS; n++) {
		struct vb_completion done = next();
		unsigned i = (unsigned)((struct vb_lock_client **)done.tag - w.client);

		assert_int_equal(done.result, 0);
		assert_true(i < CLIENTS && vb_lock_valid(w.client[i], &w.grant[i]));
		assert_int_equal(vb_lock_release(w.client[i], &w.grant[i]), 0);
	}
	expect_nothing();
}

static void in_order(void)
{
	struct vb_completion done[2];
	uint64_t id[3];

	hold(5);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(start(i, 5, VB_FOREVER_NS, &id[i]), VB_STARTED);
	for (unsigned i = 3; i-- > 0;)
		while (vb_ring_cancel(w.ring, id[i]) != -ENOENT)
			vb_poll();
	assert_true(vb_ring_reap(w.ring, done, 2) == 2 && done[0].tag == &w.client[2] &&
		    done[1].tag == &w.client[1]);
	expect(0, -ECANCELED);
	let_go();
}

static void cancelled(void)
{
	uint64_t id[2];

	hold(5);
	assert_int_equal(start(0, 5, VB_FOREVER_NS, &id[0]), VB_STARTED);
	assert_int_equal(start(1, 5, VB_FOREVER_NS, &id[1]), VB_STARTED);
	assert_int_equal(vb_ring_cancel(w.ring, id[0]), 0);
	expect(0, -ECANCELED);
	assert_int_equal(vb_ring_cancel(w.ring, id[0]), -ENOENT);
	assert_false(vb_lock_valid(w.client[0], &w.grant[0]));
	let_go();
	expect(1, 0);
	assert_int_equal(vb_ring_cancel(w.ring, id[1]), -ENOENT);
	/* Its place is in use by another call now. */
	assert_int_equal(start(0, 5, VB_FOREVER_NS, NULL), VB_STARTED);
	assert_int_equal(vb_ring_cancel(w.ring, id[0]), -ENOENT);
	assert_int_equal(vb_ring_cancel(w.ring, id[1]), -ENOENT);
	assert_int_equal(vb_lock_release(w.client[1], &w.grant[1]), 0);
	expect(0, 0);
	assert_int_equal(vb_lock_release(w.client[0], &w.grant[0]), 0);
}

static void too_late(void)
{
	hold(5);
	assert_int_equal(start(0, 5, 20 * MS, NULL), VB_STARTED);
	expect(0, -ETIMEDOUT);
	let_go();
	hold(5);
	let_go();
}

/* Nothing is lost between a look and a sleep elsewhere. */
static void armed(void)
{
	struct pollfd fd = {.fd = vb_ring_fd(w.ring), .events = POLLIN};
	struct vb_completion done;

	in_order();
	assert_int_equal(vb_ring_arm(w.ring), 0);
	for (unsigned n = 0; n < 50; n++) {
		hold(5);
		assert_int_equal(start(0, 5, VB_FOREVER_NS, NULL), VB_STARTED);
		if (n % 2 == 0)
			assert_int_equal(vb_ring_arm(w.ring), 0);
		let_go();
		while (vb_ring_arm(w.ring) == 0)
			assert_int_equal(poll(&fd, 1, PATIENCE_MS), 1);
		assert_int_equal(vb_ring_arm(w.ring), -EAGAIN);
		assert_int_equal(vb_ring_reap(w.ring, &done, 1), 1);
		assert_int_equal(done.result, 0);
		assert_int_equal(vb_lock_release(w.client[0], &w.grant[0]), 0);
	}
	assert_int_equal(vb_ring_arm(w.ring), 0);
	/* The bell for what has been reaped may ring behind that, once. */
	for (uint64_t until = vb_clock_gettime_ns() + PATIENCE_MS * MS;
	     poll(&fd, 1, 0) != 0 && vb_clock_gettime_ns() < until;)
		assert_int_equal(vb_ring_arm(w.ring), 0);
	assert_int_equal(poll(&fd, 1, 0), 0);
}

static void one_call_at_a_time(void)
{
	struct vb_grant other;
	uint64_t id;

	assert_int_equal(vb_lock_acquire(w.client[0], 7, VB_EXCLUSIVE, PATIENCE_NS, &other), 0);
	hold(5);
	assert_int_equal(start(0, 5, VB_FOREVER_NS, &id), VB_STARTED);
	vb_log_mute();
	assert_int_equal(vb_lock_acquire(w.client[0], 8, VB_EXCLUSIVE, 0, &w.grant[1]), -EBUSY);
	assert_int_equal(vb_lock_try(w.client[0], 8, VB_EXCLUSIVE, &w.grant[1]), -EBUSY);
	assert_int_equal(vb_lock_release(w.client[0], &other), -EBUSY);
	assert_int_equal(start(0, 8, VB_FOREVER_NS, NULL), -EBUSY);
	assert_int_equal(vb_lock_release_start(w.ring, w.client[0], &other, NULL, NULL), -EBUSY);
	vb_lock_client_close(w.client[0]);
	assert_int_equal(vb_ring_close(w.ring), -EBUSY);
	vb_log_unmute();
	assert_true(vb_lock_valid(w.client[0], &other));
	/* Others are not concerned. */
	assert_int_equal(vb_lock_acquire(w.client[1], 8, VB_EXCLUSIVE, PATIENCE_NS, &w.grant[1]),
			 0);
	assert_int_equal(vb_lock_release(w.client[1], &w.grant[1]), 0);
	let_go();
	expect(0, 0);
	assert_int_equal(vb_lock_release(w.client[0], &w.grant[0]), 0);
	assert_int_equal(vb_lock_release(w.client[0], &other), 0);
}

/* ---- a function of the program ---- */

static int more_inside(void *arg)
{
	struct vb_completion done;
	struct vb_grant g;
	int err;

	(void)arg;
	vb_log_mute();
	assert_int_equal(vb_ring_reap(w.ring, &done, 1), -EINVAL);
	assert_int_equal(vb_ring_wait(w.ring, 0), -EINVAL);
	assert_int_equal(vb_ring_arm(w.ring), -EINVAL);
	assert_int_equal(vb_ring_close(w.ring), -EINVAL);
	vb_log_unmute();
	err = vb_lock_acquire(w.client[2], 5, VB_EXCLUSIVE, VB_FOREVER_NS, &g);
	if (err)
		return err;
	assert_int_equal(start(3, 5, VB_FOREVER_NS, NULL), VB_STARTED);
	assert_int_equal(vb_lock_release(w.client[2], &g), 0);
	return -17;
}

static int says(void *arg)
{
	return *(int *)arg;
}

static void a_function(void)
{
	struct vb_completion done;
	int result = 0;

	assert_int_equal(vb_ring_call(w.ring, says, &result, NULL, NULL), 0);
	result = -5;
	assert_int_equal(vb_ring_call(w.ring, says, &result, NULL, NULL), -5);
	result = 1;
	vb_log_mute();
	assert_int_equal(vb_ring_call(w.ring, says, &result, NULL, NULL), -EINVAL);
	vb_log_unmute();
	hold(5);
	assert_int_equal(vb_ring_call(w.ring, more_inside, NULL, &result, NULL), VB_STARTED);
	let_go();
	/* It has ended before who waited for its lock. */
	done = next();
	if (done.tag == &result) {
		assert_int_equal(done.result, -17);
		expect(3, 0);
	} else {
		assert_ptr_equal(done.tag, &w.client[3]);
		assert_int_equal(done.result, 0);
		done = next();
		assert_int_equal(done.result, -17);
	}
	assert_int_equal(vb_lock_release(w.client[3], &w.grant[3]), 0);
}

static void everywhere(const char *fabric, const char *lock)
{
	open_world(fabric, lock, CLIENTS, 0);
	under_way();
	many();
	cancelled();
	too_late();
	if (strcmp(fabric, "sim") != 0)
		armed();
	one_call_at_a_time();
	a_function();
	close_world();
}

static void test_shm(void **state)
{
	(void)state;
	everywhere("shm", "mcs");
	everywhere("shm", "dslr");
	everywhere("shm", "table");
	open_world("shm", "shiftlock", 4, 0);
	at_once();
	close_world();
}

static void test_tcp(void **state)
{
	(void)state;
	everywhere("tcp", "shiftlock");
	everywhere("tcp", "table");
}

static void test_sim(void **state)
{
	(void)state;
	everywhere("sim", "mcs");
	everywhere("sim", "dslr");
	everywhere("sim", "table");
}

/* ---- kept (what is kept in which case: tests/sim/test_renew.c) ---- */

#define KEPT_LEASE_NS 1000000000ull
#define KEPT_TRIES    5u

/* For longer than its lease the thread is elsewhere.  Nor is anything wrong where the keeper was kept from
 * running for half a lease, and the holder told. */
static bool kept_outside(void)
{
	struct pollfd fd = {.fd = vb_ring_fd(w.ring), .events = POLLIN};
	struct vb_grant *g = &w.grant[0];
	struct vb_completion done;
	bool kept;
	uint64_t id;

	assert_int_equal(vb_lock_acquire(w.client[0], 5, VB_EXCLUSIVE, PATIENCE_NS, g), 0);
	assert_int_equal(vb_lock_keep_start(w.ring, w.client[0], g, g, &id), VB_STARTED);
	assert_int_equal(vb_ring_arm(w.ring), 0);
	kept = poll(&fd, 1, KEPT_LEASE_NS * 3 / 2 / 1000000) == 0 &&
	       vb_lock_valid(w.client[0], g) && vb_ring_cancel(w.ring, id) == 0;
	assert_int_equal(vb_ring_wait(w.ring, PATIENCE_NS), 0);
	assert_int_equal(vb_ring_reap(w.ring, &done, 1), 1);
	assert_ptr_equal(done.tag, g);
	assert_true(done.result < 0);
	kept &= done.result == -ECANCELED;
	assert_true(kept || !vb_lock_valid(w.client[0], g) || done.result != -VB_ELOST);
	(void)vb_lock_release(w.client[0], g);
	return kept;
}

static void test_kept_outside(void **state)
{
	unsigned tries = 0;

	(void)state;
	open_leased("shm", "table", 1, 0, KEPT_LEASE_NS);
	vb_log_mute();
	while (!kept_outside())
		assert_true(++tries < KEPT_TRIES);
	vb_log_unmute();
	close_world();
}

static void *keeps_and_ends(void *arg)
{
	static struct vb_grant g;
	struct vb_ring *ring;

	if (vb_ring_open(NULL, &ring) == 0 && vb_lock_client_open(w.space, 0, &w.client[0]) == 0 &&
	    vb_lock_acquire(w.client[0], 5, VB_EXCLUSIVE, PATIENCE_NS, &g) == 0 &&
	    vb_lock_keep_start(ring, w.client[0], &g, &g, NULL) == VB_STARTED)
		*(bool *)arg = true;
	return NULL;
}

/* Nobody is left who could end it: so does the lease.  (In a process of its own: what the thread has left open
 * stays so.) */
static void test_kept_by_nobody(void **state)
{
	bool started = false;
	pthread_t thread;
	int status;
	pid_t pid;

	(void)state;
	pid = fork_child();
	if (pid != 0) {
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
		return;
	}
	open_leased("shm", "rpc", 0, 0, KEPT_LEASE_NS);
	if (pthread_create(&thread, NULL, keeps_and_ends, &started) != 0)
		_exit(1);
	pthread_join(thread, NULL);
	_exit(!started ||
	      vb_lock_acquire(w.holder, 5, VB_EXCLUSIVE, 12 * KEPT_LEASE_NS, &w.held) != 0);
}

/* ---- what a ring refuses ---- */

static void test_depth(void **state)
{
	struct vb_completion done[4];
	unsigned seen = 0;
	uint64_t id[3];

	(void)state;
	open_world("shm", "mcs", 4, 3);
	hold(5);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(start(i, 5, VB_FOREVER_NS, &id[i]), VB_STARTED);
	vb_log_mute();
	assert_int_equal(start(3, 5, VB_FOREVER_NS, NULL), -ENOSPC);
	for (unsigned i = 0; i < 3; i++)
		while (vb_ring_cancel(w.ring, id[i]) != -ENOENT)
			vb_poll();
	/* Ended, not reaped: the completions have their places, and nobody closes over them. */
	assert_int_equal(start(3, 5, VB_FOREVER_NS, NULL), -ENOSPC);
	assert_int_equal(vb_ring_close(w.ring), -EBUSY);
	assert_int_equal(vb_ring_reap(w.ring, done, 2), 2);
	assert_int_equal(vb_ring_close(w.ring), -EBUSY);
	vb_log_unmute();
	assert_int_equal(vb_ring_reap(w.ring, done + 2, 2), 1);
	/* Each has one, in whichever order they ended. */
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(done[i].result, -ECANCELED);
		seen |= 1u << ((struct vb_lock_client **)done[i].tag - w.client);
	}
	assert_int_equal(seen, 7);
	assert_int_equal(start(3, 6, VB_FOREVER_NS, NULL), 0);
	assert_int_equal(vb_lock_release(w.client[3], &w.grant[3]), 0);
	let_go();
	close_world();
}

static void *foreign(void *arg)
{
	struct vb_completion done;
	struct vb_ring *own;
	int wrong = 0, zero = 0;

	(void)arg;
	vb_log_mute();
	wrong += start(0, 6, 0, NULL) != -VB_EFOREIGN;
	wrong += vb_ring_call(w.ring, says, &zero, NULL, NULL) != -VB_EFOREIGN;
	wrong += vb_ring_reap(w.ring, &done, 1) != -VB_EFOREIGN;
	wrong += vb_ring_wait(w.ring, 0) != -VB_EFOREIGN;
	wrong += vb_ring_arm(w.ring) != -VB_EFOREIGN;
	wrong += vb_ring_cancel(w.ring, 0) != -VB_EFOREIGN;
	wrong += vb_ring_close(w.ring) != -VB_EFOREIGN;
	wrong += vb_ring_open(NULL, &own) != 0;
	wrong += vb_lock_acquire_start(own, w.client[0], 6, VB_EXCLUSIVE, 0, &w.grant[0], NULL,
				       NULL) != -VB_EFOREIGN;
	wrong += vb_ring_call(own, says, &zero, NULL, NULL) != 0;
	wrong += vb_ring_close(own) != 0;
	vb_log_unmute();
	return wrong == 0 ? NULL : &w;
}

static void test_others(void **state)
{
	pthread_t thread;
	void *wrong;
	int status;
	pid_t pid;

	(void)state;
	open_world("shm", "mcs", 1, 0);
	hold(5);
	assert_int_equal(start(0, 5, VB_FOREVER_NS, NULL), VB_STARTED);
	assert_int_equal(pthread_create(&thread, NULL, foreign, NULL), 0);
	pthread_join(thread, &wrong);
	assert_null(wrong);
	pid = fork_child();
	if (pid == 0)
		_exit(foreign(NULL) != NULL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	let_go();
	expect(0, 0);
	assert_int_equal(vb_lock_release(w.client[0], &w.grant[0]), 0);
	close_world();
}

static void test_params(void **state)
{
	static const struct vb_ring_params wrong[] = {{.depth = (1u << 20) + 1},
						      {.stack_bytes = 16383},
						      {.stack_bytes = (64u << 20) + 1}};
	const struct vb_ring_params largest = {.depth = 1u << 20, .stack_bytes = 1 << 14};
	struct vb_ring *r;
	int zero = 0;

	(void)state;
	vb_log_mute();
	for (unsigned i = 0; i < VB_ARRAY_SIZE(wrong); i++)
		assert_int_equal(vb_ring_open(&wrong[i], &r), -EINVAL);
	vb_log_unmute();
	assert_int_equal(vb_ring_open(&largest, &r), 0);
	assert_int_equal(vb_ring_call(r, says, &zero, NULL, NULL), 0);
	assert_int_equal(vb_ring_close(r), 0);
	assert_int_equal(vb_ring_close(NULL), 0);
}

/* Goes on until it is told not to, and has nothing open. */
static int goes_on(void *arg)
{
	while (*(const bool *)arg)
		vb_poll();
	return 0;
}

static void test_simulation(void **state)
{
	const struct vb_fabric_params fp = {.fabric = "sim"};
	struct vb_completion done;
	struct vb_fabric *f;
	struct vb_ring *r;
	bool on = true;

	(void)state;
	assert_int_equal(vb_fabric_open(&fp, &f), 0);
	assert_int_equal(vb_ring_open(NULL, &r), 0);
	assert_int_equal(vb_ring_call(r, goes_on, &on, &on, NULL), VB_STARTED);
	vb_log_mute();
	assert_int_equal(vb_fabric_close(f), -EBUSY);
	vb_log_unmute();
	on = false;
	assert_int_equal(vb_ring_wait(r, VB_FOREVER_NS), 0);
	assert_int_equal(vb_ring_reap(r, &done, 1), 1);
	assert_ptr_equal(done.tag, &on);
	assert_int_equal(vb_ring_close(r), 0);
	assert_int_equal(vb_fabric_close(f), 0);
}

static VB_NOINLINE void explore_here(bool on)
{
	vb_exploring = on;
	__asm__ __volatile__("" : : : "memory");
}

struct moved {
	pid_t from, to;
	bool before, behind;
};

/* As the library is built, which tests are not: on arm64 the compiler then keeps over calls what it can. */
#if defined(__clang__)
#define AS_RELEASED
#else
#define AS_RELEASED __attribute__((optimize(2)))
#endif

static AS_RELEASED int moves_over(void *arg)
{
	struct moved *m = arg;

	m->from = gettid();
	m->before = vb_exploring;
	do
		vb_poll();
	while ((m->to = gettid()) == m->from);
	explore_here(true);
	m->behind = vb_exploring;
	explore_here(false);
	return 0;
}

/* A call that goes on on the keeper's thread finds that thread's variables, and not those of its starter. */
static void test_moved(void **state)
{
	struct moved m = {.before = true};
	struct vb_completion done;
	struct pollfd fd;

	(void)state;
	open_world("shm", "cas", 0, 0);
	fd = (struct pollfd){.fd = vb_ring_fd(w.ring), .events = POLLIN};
	assert_int_equal(vb_ring_call(w.ring, moves_over, &m, &m, NULL), VB_STARTED);
	while (vb_ring_arm(w.ring) == 0)
		assert_int_equal(poll(&fd, 1, PATIENCE_MS), 1);
	assert_int_equal(vb_ring_reap(w.ring, &done, 1), 1);
	assert_int_equal(done.result, 0);
	assert_int_not_equal(m.from, m.to);
	assert_false(m.before);
	assert_true(m.behind);
	close_world();
}

/* A child that returns from the call it was forked in would go on with what is its parent's. */
static int forks(void *arg)
{
	pid_t child;

	vb_poll();
	child = fork_child();
	if (child == 0)
		vb_log_mute();
	else
		*(pid_t *)arg = child;
	return 0;
}

static void test_forked_inside(void **state)
{
	struct vb_completion done;
	pid_t child = 0;
	int status;

	(void)state;
	open_world("shm", "mcs", 1, 0);
	hold(5);
	assert_int_equal(start(0, 5, VB_FOREVER_NS, NULL), VB_STARTED);
	assert_int_equal(vb_ring_call(w.ring, forks, &child, &child, NULL), VB_STARTED);
	done = next();
	assert_ptr_equal(done.tag, &child);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 127);
	let_go();
	expect(0, 0);
	assert_int_equal(vb_lock_release(w.client[0], &w.grant[0]), 0);
	close_world();
}

/* ---- a transaction, while its thread is elsewhere ---- */

struct transfer {
	struct vb_coordinator *me;
	struct vb_table *table;
	int64_t amount;
};

static int move(struct vb_coordinator *me, void *arg)
{
	const struct transfer *t = arg;
	void *from, *to;
	int err = vb_txn_update(me, t->table, 1, &from);

	/* Others come in between: where verbs end at once it would never be under way. */
	vb_poll();
	if (err || (err = vb_txn_update(me, t->table, 2, &to)) != 0)
		return err;
	*(int64_t *)from -= t->amount;
	*(int64_t *)to += t->amount;
	return 0;
}

static int transfer(void *arg)
{
	struct transfer *t = arg;

	return vb_txn_run(t->me, move, t, 0);
}

static void test_transactions(void **state)
{
	const struct vb_fabric_params fp = {.fabric = "tcp"};
	const struct vb_db_params dp = {.cc = "no-wait"};
	const struct vb_table_params tp = {
		.name = "accounts", .record_bytes = sizeof(int64_t), .records = 16};
	struct pollfd fd = {.events = POLLIN};
	struct vb_completion done[8];
	struct transfer t[8];
	struct vb_db_server *server;
	struct vb_fabric *f;
	struct vb_table *table;
	struct vb_db *db;
	struct vb_ring *r;
	unsigned open = 0;
	const void *record;
	int64_t zero = 0;

	(void)state;
	assert_int_equal(vb_fabric_open(&fp, &f), 0);
	assert_int_equal(vb_db_open(f, &dp, &db), 0);
	assert_int_equal(vb_table_open(db, &tp, &table), 0);
	assert_int_equal(vb_table_load(table, 1, &zero), 0);
	assert_int_equal(vb_table_load(table, 2, &zero), 0);
	assert_int_equal(vb_db_server_thread_start(db, 0, &server), 0);
	assert_int_equal(vb_ring_open(NULL, &r), 0);
	fd.fd = vb_ring_fd(r);
	for (unsigned i = 0; i < 8; i++) {
		t[i] = (struct transfer){.table = table, .amount = 1 << i};
		assert_int_equal(vb_coordinator_open(db, 0, &t[i].me), 0);
	}
	for (unsigned i = 0; i < 8; i++) {
		int err = vb_ring_call(r, transfer, &t[i], &t[i], NULL);

		assert_true(err == VB_STARTED || err == 0);
		open += err == VB_STARTED;
	}
	assert_true(open > 0);
	while (open > 0) {
		int n;

		while (vb_ring_arm(r) == 0)
			assert_int_equal(poll(&fd, 1, PATIENCE_MS), 1);
		n = vb_ring_reap(r, done, 8);
		assert_in_range(n, 1, 8);
		for (int i = 0; i < n; i++)
			assert_int_equal(done[i].result, 0);
		open -= (unsigned)n;
	}
	vb_txn_begin(t[0].me);
	assert_int_equal(vb_txn_get(t[0].me, table, 2, &record), 0);
	assert_int_equal(*(const int64_t *)record, 255);
	assert_int_equal(vb_txn_commit(t[0].me), 0);
	for (unsigned i = 0; i < 8; i++)
		vb_coordinator_close(t[i].me);
	assert_int_equal(vb_ring_close(r), 0);
	vb_db_server_stop(server);
	assert_int_equal(vb_db_close(db), 0);
	assert_int_equal(vb_fabric_close(f), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		/* First: the thread sanitizer wants a child with threads from a parent that had none. */
		cmocka_unit_test(test_kept_by_nobody),
		cmocka_unit_test(test_shm),
		cmocka_unit_test(test_tcp),
		cmocka_unit_test(test_sim),
		cmocka_unit_test(test_depth),
		cmocka_unit_test(test_others),
		cmocka_unit_test(test_params),
		cmocka_unit_test(test_simulation),
		cmocka_unit_test(test_moved),
		cmocka_unit_test(test_forked_inside),
		cmocka_unit_test(test_transactions),
		cmocka_unit_test(test_kept_outside),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
