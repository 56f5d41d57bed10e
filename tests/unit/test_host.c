/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that any thread may call: verbena/host.h, sentence by sentence.  The calls of one thread. */
#include <verbena/host.h>

#include "host_world.h"

/* ---- every call that a client has ---- */

static void check_calls(void)
{
	struct vb_lock_client *c = client(), *other = client();
	const uint64_t path[2] = {6, 7};
	struct vb_grant g, some[2];
	struct vb_holder holder;
	uint64_t until_ns;

	assert_int_equal(vb_lock_acquire(c, 5, VB_SHARED, PATIENCE_NS, &g), 0);
	assert_int_equal(g.lock, 5);
	assert_true(vb_lock_valid(c, &g));
	until_ns = g.valid_until_ns;
	assert_int_equal(vb_lock_renew(c, &g, PATIENCE_NS), 0);
	assert_true(g.valid_until_ns >= until_ns && vb_lock_now(c) < g.valid_until_ns);
	assert_int_equal(vb_lock_convert(c, &g, VB_EXCLUSIVE, PATIENCE_NS), 0);
	assert_int_equal(g.mode, VB_EXCLUSIVE);
	assert_int_equal(vb_lock_holder(c, 5, &holder), 0);
	assert_true(holder.held && holder.client == vb_lock_client_peer(c));
	assert_int_equal(vb_lock_try(c, 6, VB_EXCLUSIVE, &some[0]), 0);
	assert_int_equal(
		vb_lock_acquire_for(c, 7, VB_EXCLUSIVE, LEASE_NS / 2, PATIENCE_NS, &some[1]), 0);
	assert_int_equal(vb_lock_release_all(c, some, 2), 0);
	assert_false(vb_lock_valid(c, &some[1]));
	assert_int_equal(vb_lock_release(c, &g), 0);
	assert_false(vb_lock_valid(c, &g));
	vb_lock_client_begin(c, 12345);
	assert_int_equal(vb_lock_client_age(c), 12345);
	assert_int_equal(vb_lock_acquire_path(c, path, 2, VB_EXCLUSIVE, PATIENCE_NS, some), 0);
	assert_int_equal(vb_lock_try(other, 7, VB_SHARED, &g), -EAGAIN);
	assert_int_equal(vb_lock_release_all(c, some, 2), 0);
	/* What is held when it is closed is released. */
	assert_int_equal(vb_lock_acquire(c, 5, VB_EXCLUSIVE, PATIENCE_NS, &g), 0);
	vb_lock_client_close(c);
	assert_int_equal(vb_lock_acquire(other, 5, VB_EXCLUSIVE, PATIENCE_NS, &g), 0);
	vb_lock_client_close(other);
}

static void *in_another(void *arg)
{
	(void)arg;
	check_calls();
	return NULL;
}

static void test_calls(void **state)
{
	pthread_t thread;

	(void)state;
	open_world("shm", "table");
	check_calls();
	assert_int_equal(pthread_create(&thread, NULL, in_another, NULL), 0);
	pthread_join(thread, NULL);
	close_world();
}

static int counts_name(void *user, uint64_t lock, const void *name, size_t bytes)
{
	assert_memory_equal(name, "a name", bytes);
	*(uint64_t *)user = lock;
	return 17;
}

static void test_names(void **state)
{
	struct vb_lock_client *c;
	struct vb_names *names;
	uint64_t lock, again, found = LOCKS;
	char text[16];
	size_t bytes;

	(void)state;
	open_world("shm", "mcs");
	c = client();
	assert_int_equal(vb_names_open(w.space, NULL, &names), 0);
	assert_int_equal(vb_names_lock(names, c, "a name", 6, &lock), 0);
	assert_int_equal(vb_names_find(names, c, "a name", 6, &again), 0);
	assert_int_equal(again, lock);
	assert_int_equal(vb_names_find(names, c, "another", 7, &again), -ENOENT);
	assert_int_equal(vb_names_of(names, c, lock, text, sizeof(text), &bytes), 0);
	assert_int_equal(bytes, 6);
	assert_memory_equal(text, "a name", 6);
	assert_int_equal(vb_names_each(names, c, counts_name, &found), 17);
	assert_int_equal(found, lock);
	vb_names_close(names);
	vb_lock_client_close(c);
	close_world();
}

/* As another client is told. */
static void test_errors(void **state)
{
	struct vb_lock_client *c;
	struct vb_grant g, twice;

	(void)state;
	open_world("shm", "rpc");
	c = client();
	hold(5);
	assert_int_equal(vb_lock_try(c, 5, VB_EXCLUSIVE, &g), -EAGAIN);
	assert_int_equal(vb_lock_acquire(c, 5, VB_EXCLUSIVE, MS, &g), -ETIMEDOUT);
	let_go();
	assert_int_equal(vb_lock_acquire(c, 5, VB_EXCLUSIVE, VB_FOREVER_NS, &g), 0);
	quiet(true);
	assert_int_equal(vb_lock_acquire(c, 5, VB_EXCLUSIVE, VB_FOREVER_NS, &twice), -EDEADLK);
	assert_int_equal(vb_lock_acquire(c, LOCKS, VB_EXCLUSIVE, VB_FOREVER_NS, &twice), -EINVAL);
	assert_int_equal(vb_lock_acquire_for(c, 6, VB_EXCLUSIVE, 2 * LEASE_NS, 0, &twice),
			 -EOPNOTSUPP);
	twice = g;
	assert_int_equal(vb_lock_release(c, &g), 0);
	assert_int_equal(vb_lock_release(c, &twice), -EINVAL);
	/* The server goes, and the host is told as any thread. */
	vb_lock_server_stop(w.server);
	w.server = NULL;
	assert_int_equal(vb_lock_acquire(w.holder, 5, VB_EXCLUSIVE, PATIENCE_NS, &g),
			 -VB_EPEERGONE);
	assert_int_equal(vb_lock_acquire(c, 5, VB_EXCLUSIVE, PATIENCE_NS, &g), -VB_EPEERGONE);
	quiet(false);
	vb_lock_client_close(c);
	close_world();
}

/* Without Verbena: all that the host has waits. */
static int holds_up(void *arg)
{
	usleep((useconds_t) * (const unsigned *)arg);
	return 0;
}

#define HELD_UP_US 300000u

static void test_timeout(void **state)
{
	static unsigned us = HELD_UP_US;
	const uint64_t timeout_ns = HELD_UP_US * 800ull;
	struct vb_lock_client *c;
	struct vb_grant g;
	bool counted = false;

	(void)state;
	open_world("shm", "mcs");
	c = client();
	hold(5);
	/* One that counted only from its turn would never be as early. */
	for (unsigned tries = 0; tries < 20 && !counted; tries++) {
		uint64_t begin = vb_clock_gettime_ns(), took;
		assert_int_equal(vb_ring_call(w.ring, holds_up, &us, &us, NULL), VB_STARTED);
		if (tries % 2 == 0)
			assert_int_equal(vb_lock_acquire(c, 5, VB_EXCLUSIVE, timeout_ns, &g),
					 -ETIMEDOUT);
		else {
			assert_int_equal(start(c, 5, timeout_ns, &g, NULL), VB_STARTED);
			assert_int_equal(next(&us).result, 0);
			assert_int_equal(next(&g).result, -ETIMEDOUT);
		}
		took = vb_clock_gettime_ns() - begin;
		assert_true(took >= timeout_ns);
		counted = took < HELD_UP_US * 1000ull + timeout_ns && tries > 0;
		if (tries % 2 == 0)
			assert_int_equal(next(&us).result, 0);
	}
	assert_true(counted);
	let_go();
	vb_lock_client_close(c);
	close_world();
}

/* ---- on a ring ---- */

static unsigned in_turn[8], turns;

static int takes_turn(void *arg)
{
	in_turn[turns++] = *(const unsigned *)arg;
	return 0;
}

/* While the host is held up: what comes first begins first, and is there when it is cancelled. */
static void test_order(void **state)
{
	static unsigned us = 20000, number[8];
	struct vb_lock_client *c;
	struct vb_grant g;
	uint64_t id;

	(void)state;
	open_world("shm", "mcs");
	c = client();
	hold(5);
	assert_int_equal(vb_ring_call(w.ring, holds_up, &us, &us, NULL), VB_STARTED);
	assert_int_equal(start(c, 5, VB_FOREVER_NS, &g, &id), VB_STARTED);
	assert_int_equal(vb_ring_cancel(w.ring, id), 0);
	for (unsigned i = 0; i < 8; i++) {
		number[i] = i;
		assert_int_equal(vb_ring_call(w.ring, takes_turn, &number[i], &number[i], NULL),
				 VB_STARTED);
	}
	for (unsigned n = 0; n < 10; n++) {
		struct vb_completion done = next(NULL);

		assert_int_equal(done.result, done.tag == &g ? -ECANCELED : 0);
	}
	assert_int_equal(turns, 8);
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(in_turn[i], i);
	let_go();
	vb_lock_client_close(c);
	close_world();
}

static void test_ring(void **state)
{
	struct vb_lock_client *c[2];
	struct vb_completion done;
	struct vb_grant g[2];
	uint64_t id[2], before;
	int again;

	(void)state;
	open_world("shm", "table");
	c[0] = client();
	c[1] = client();
	hold(5);
	assert_int_equal(vb_ring_wait(w.ring, 0), -ENOENT);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(start(c[i], 5, VB_FOREVER_NS, &g[i], &id[i]), VB_STARTED);
	assert_int_equal(vb_ring_reap(w.ring, &done, 1), 0);
	assert_int_equal(vb_ring_wait(w.ring, MS), -ETIMEDOUT);
	/* The client has one call at a time, and what was refused is told as an end. */
	quiet(true);
	assert_int_equal(start(c[0], 6, VB_FOREVER_NS, &g[1], NULL), VB_STARTED);
	assert_int_equal(next(&g[1]).result, -EBUSY);
	quiet(false);
	assert_int_equal(vb_ring_cancel(w.ring, id[0]), 0);
	assert_int_equal(next(&g[0]).result, -ECANCELED);
	assert_int_equal(vb_ring_cancel(w.ring, id[0]), -ENOENT);
	assert_int_equal(vb_ring_cancel(w.ring, UINT32_MAX), -ENOENT);
	quiet(true);
	assert_int_equal(vb_ring_close(w.ring), -EBUSY);
	quiet(false);
	let_go();
	assert_int_equal(next(&g[1]).result, 0);
	assert_int_equal(vb_ring_cancel(w.ring, id[1]), -ENOENT);
	assert_true(vb_lock_valid(c[1], &g[1]));
	/* Kept, in the place that the acquire had, until it is cancelled. */
	before = id[1];
	assert_int_equal(vb_lock_keep_start(w.ring, c[1], &g[1], &g[1], &id[1]), VB_STARTED);
	assert_int_equal(vb_ring_cancel(w.ring, before), -ENOENT);
	assert_int_equal(vb_ring_wait(w.ring, MS), -ETIMEDOUT);
	assert_true(vb_lock_valid(c[1], &g[1]));
	assert_int_equal(vb_ring_cancel(w.ring, id[1]), 0);
	/* Once more: by now another thread may have ended it. */
	again = vb_ring_cancel(w.ring, id[1]);
	assert_true(again == 0 || again == -ENOENT);
	assert_int_equal(next(&g[1]).result, -ECANCELED);
	assert_int_equal(vb_lock_release_start(w.ring, c[1], &g[1], &g[1], NULL), VB_STARTED);
	assert_int_equal(next(&g[1]).result, 0);
	quiet(true);
	assert_int_equal(vb_lock_keep_start(w.ring, c[1], &g[1], &g[1], NULL), VB_STARTED);
	assert_int_equal(next(&g[1]).result, -EINVAL);
	quiet(false);
	vb_lock_client_close(c[0]);
	vb_lock_client_close(c[1]);
	close_world();
}

static void test_depth(void **state)
{
	const struct vb_ring_params rp = {.depth = 2};
	struct vb_lock_client *c[3];
	struct vb_completion done;
	struct vb_ring *r;
	struct vb_grant g[3];
	uint64_t id[2];

	(void)state;
	open_world("shm", "mcs");
	for (unsigned i = 0; i < 3; i++)
		c[i] = client();
	assert_int_equal(vb_host_ring_open(w.host, &rp, &r), 0);
	hold(5);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(vb_lock_acquire_start(r, c[i], 5, VB_EXCLUSIVE, VB_FOREVER_NS,
						       &g[i], &g[i], &id[i]),
				 VB_STARTED);
	quiet(true);
	assert_int_equal(
		vb_lock_acquire_start(r, c[2], 5, VB_EXCLUSIVE, VB_FOREVER_NS, &g[2], NULL, NULL),
		-ENOSPC);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(vb_ring_cancel(r, id[i]), 0);
	assert_int_equal(vb_ring_wait(r, PATIENCE_NS), 0);
	/* Ended, not reaped. */
	assert_int_equal(
		vb_lock_acquire_start(r, c[2], 5, VB_EXCLUSIVE, VB_FOREVER_NS, &g[2], NULL, NULL),
		-ENOSPC);
	quiet(false);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(vb_ring_wait(r, PATIENCE_NS), 0);
		assert_int_equal(vb_ring_reap(r, &done, 1), 1);
		assert_int_equal(done.result, -ECANCELED);
	}
	assert_int_equal(
		vb_lock_acquire_start(r, c[2], 6, VB_EXCLUSIVE, VB_FOREVER_NS, &g[2], NULL, NULL),
		VB_STARTED);
	assert_int_equal(vb_ring_wait(r, PATIENCE_NS), 0);
	assert_int_equal(vb_ring_reap(r, &done, 1), 1);
	assert_int_equal(done.result, 0);
	assert_int_equal(vb_ring_close(r), 0);
	let_go();
	for (unsigned i = 0; i < 3; i++)
		vb_lock_client_close(c[i]);
	close_world();
}

/* Nothing is lost between a look and a sleep elsewhere. */
static void test_armed(void **state)
{
	struct vb_lock_client *c;
	struct vb_completion done;
	struct vb_grant g;
	struct pollfd fd = {.events = POLLIN};

	(void)state;
	open_world("shm", "mcs");
	c = client();
	fd.fd = vb_ring_fd(w.ring);
	for (unsigned n = 0; n < 200; n++) {
		hold(5);
		assert_int_equal(start(c, 5, VB_FOREVER_NS, &g, NULL), VB_STARTED);
		if (n % 2 == 0)
			assert_int_equal(vb_ring_arm(w.ring), 0);
		let_go();
		while (vb_ring_arm(w.ring) == 0)
			assert_int_equal(poll(&fd, 1, PATIENCE_MS), 1);
		assert_int_equal(vb_ring_reap(w.ring, &done, 1), 1);
		assert_int_equal(done.result, 0);
		assert_int_equal(vb_lock_release(c, &g), 0);
	}
	vb_lock_client_close(c);
	close_world();
}

/* ---- functions ---- */

static struct {
	struct vb_host *other;
	struct vb_lock_client *client;
} inside;

static int nothing(void *arg)
{
	(void)arg;
	return 0;
}

static int says(void *arg)
{
	return *(const int *)arg;
}

/* It may do what is done on the host, and wait for nothing but that. */
static int on_host(void *arg)
{
	struct vb_completion done;
	struct vb_ring *own;
	struct vb_grant g;
	static int seven = -7; /* looked at when this has returned */

	(void)arg;
	assert_int_equal(vb_host_call(w.host, says, &seven), -7);
	assert_int_equal(vb_lock_acquire(inside.client, 5, VB_EXCLUSIVE, PATIENCE_NS, &g), 0);
	assert_int_equal(vb_lock_release(inside.client, &g), 0);
	assert_int_equal(vb_ring_call(w.ring, says, &seven, &seven, NULL), VB_STARTED);
	assert_int_equal(vb_host_call(inside.other, nothing, NULL), -EDEADLK);
	assert_int_equal(vb_host_close(inside.other), -EDEADLK);
	assert_int_equal(vb_host_close(w.host), -EDEADLK);
	assert_int_equal(vb_ring_reap(w.ring, &done, 1), -EDEADLK);
	assert_int_equal(vb_ring_wait(w.ring, 0), -EDEADLK);
	assert_int_equal(vb_ring_arm(w.ring), -EDEADLK);
	assert_int_equal(vb_ring_close(w.ring), -EDEADLK);
	assert_int_equal(vb_ring_open(NULL, &own), -EINVAL);
	return 0;
}

/* On a ring of a thread's own. */
static int on_ring(void *arg)
{
	struct vb_grant g;

	(void)arg;
	assert_int_equal(vb_host_call(w.host, nothing, NULL), -EDEADLK);
	assert_int_equal(vb_host_close(w.host), -EDEADLK);
	assert_int_equal(vb_lock_acquire(inside.client, 5, VB_EXCLUSIVE, 0, &g), -EDEADLK);
	assert_false(vb_lock_valid(inside.client, &g));
	/* Where no error is returned nothing is done: its client is there when this is over. */
	vb_lock_client_close(inside.client);
	return -3;
}

/* The program's signals are its own. */
static int signals_are_blocked(void *arg)
{
	sigset_t set;

	(void)arg;
	assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &set), 0);
	for (int s = 1; s < 32; s++)
		if (s != SIGKILL && s != SIGSTOP && sigismember(&set, s) != 1)
			return -s;
	return 0;
}

static void test_functions(void **state)
{
	struct vb_ring *own;
	struct vb_grant g;
	int result = 0;

	(void)state;
	open_world("shm", "mcs");
	inside.client = client();
	assert_int_equal(vb_host_call(w.host, signals_are_blocked, NULL), 0);
	assert_int_equal(vb_host_open(NULL, &inside.other), 0);
	assert_int_equal(vb_host_call(w.host, says, &result), 0);
	result = -5;
	assert_int_equal(vb_host_call(w.host, says, &result), -5);
	quiet(true);
	result = 1;
	assert_int_equal(vb_host_call(w.host, says, &result), -EINVAL);
	assert_int_equal(vb_host_call(w.host, on_host, NULL), 0);
	assert_int_equal(vb_ring_wait(w.ring, PATIENCE_NS), 0);
	assert_int_equal(vb_ring_open(NULL, &own), 0);
	assert_int_equal(vb_ring_call(own, on_ring, NULL, NULL, NULL), -3);
	assert_int_equal(vb_ring_close(own), 0);
	quiet(false);
	assert_int_equal(next(NULL).result, -7);
	assert_int_equal(vb_lock_try(inside.client, 5, VB_EXCLUSIVE, &g), 0);
	assert_int_equal(vb_lock_release(inside.client, &g), 0);
	assert_int_equal(vb_host_close(inside.other), 0);
	vb_lock_client_close(inside.client);
	close_world();
}

/* ---- what is refused ---- */

static void test_params(void **state)
{
	static const struct vb_host_params wrong[] = {{.stack_bytes = 16383},
						      {.stack_bytes = (64u << 20) + 1}};
	static const struct vb_ring_params deep = {.depth = (1u << 20) + 1};
	const struct vb_host_params small = {.stack_bytes = 1 << 14};
	struct vb_host *h;
	struct vb_ring *r;

	(void)state;
	quiet(true);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(vb_host_open(&wrong[i], &h), -EINVAL);
	assert_int_equal(vb_host_open(&small, &h), 0);
	assert_int_equal(vb_host_ring_open(h, &deep, &r), -EINVAL);
	quiet(false);
	assert_int_equal(vb_host_call(h, nothing, NULL), 0);
	assert_int_equal(vb_host_close(h), 0);
	assert_int_equal(vb_host_close(NULL), 0);
}

#define STACK_BYTES (64u << 20)

/* The system has no more address space for `on`; else as before. */
static void no_stacks(bool on)
{
	static struct rlimit before;
	struct rlimit now;
	unsigned long pages;
	FILE *f;

	if (!on) {
		assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
		return;
	}
	f = fopen("/proc/self/statm", "r");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%lu", &pages), 1);
	fclose(f);
	assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
	now = before;
	now.rlim_cur = pages * (rlim_t)sysconf(_SC_PAGESIZE) + (16u << 20);
	assert_int_equal(setrlimit(RLIMIT_AS, &now), 0);
}

/* An emulator may have limits of its own. */
static bool can_be_refused(void)
{
	void *piece;

	no_stacks(true);
	piece = mmap(NULL, STACK_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	no_stacks(false);
	if (piece != MAP_FAILED)
		munmap(piece, STACK_BYTES);
	return piece == MAP_FAILED;
}

/* What needs a stack has not been done, and is told so. */
static void test_no_stack(void **state)
{
	const struct vb_host_params large = {.stack_bytes = STACK_BYTES};
	const struct vb_ring_params ring = {.stack_bytes = STACK_BYTES};
	struct vb_completion done;
	struct vb_lock_client *c;
	struct vb_ring *r, *own;
	struct vb_grant g, none;
	struct vb_host *h;

	(void)state;
#if defined(VB_ASAN) || defined(VB_TSAN)
	skip(); /* They map memory of their own. */
#endif
	if (!can_be_refused())
		skip();
	open_world("shm", "mcs");
	assert_int_equal(vb_host_open(&large, &h), 0);
	assert_int_equal(vb_host_ring_open(w.host, &ring, &r), 0);
	assert_int_equal(vb_ring_open(&ring, &own), 0);
	c = client();
	assert_int_equal(vb_lock_acquire(c, 5, VB_EXCLUSIVE, PATIENCE_NS, &g), 0);
	quiet(true);
	no_stacks(true);
	turns = 0;
	assert_int_equal(vb_host_call(h, takes_turn, &turns), -ENOMEM);
	/* On a ring of the thread's own that is told at once, and nothing has a place there. */
	assert_int_equal(vb_ring_call(own, takes_turn, &turns, NULL, NULL), -ENOMEM);
	assert_int_equal(vb_lock_acquire_start(own, w.holder, 5, VB_EXCLUSIVE, VB_FOREVER_NS, &none,
					       NULL, NULL),
			 -ENOMEM);
	assert_int_equal(turns, 0);
	assert_int_equal(vb_ring_close(own), 0);
	assert_int_equal(vb_lock_release_start(r, c, &g, NULL, NULL), VB_STARTED);
	assert_int_equal(vb_ring_wait(r, PATIENCE_NS), 0);
	assert_int_equal(vb_ring_reap(r, &done, 1), 1);
	no_stacks(false);
	quiet(false);
	assert_int_equal(done.result, -ENOMEM);
	assert_int_equal(vb_lock_try(w.holder, 5, VB_EXCLUSIVE, &none), -EAGAIN);
	assert_true(vb_lock_valid(c, &g));
	assert_int_equal(vb_host_call(h, nothing, NULL), 0);
	assert_int_equal(vb_lock_release(c, &g), 0);
	vb_lock_client_close(c);
	assert_int_equal(vb_ring_close(r), 0);
	assert_int_equal(vb_host_close(h), 0);
	close_world();
}

/* A simulation is its thread's; and a host has what one thread can have. */
static void test_fabrics(void **state)
{
	static const char *const fabrics[] = {"shm", "tcp", "sim"};
	static const int told[] = {0, -EINVAL, -EOPNOTSUPP};
	const struct vb_lock_space_params sp = {.lock = "mcs", .locks = LOCKS};
	struct vb_lock_client *c, *first = NULL;
	struct vb_lock_space *space[3];
	struct vb_fabric *f[3];
	struct vb_host *h;

	(void)state;
	assert_int_equal(vb_host_open(NULL, &h), 0);
	quiet(true);
	for (unsigned i = 0; i < 3; i++) {
		const struct vb_fabric_params fp = {.fabric = fabrics[i]};

		assert_int_equal(vb_fabric_open(&fp, &f[i]), 0);
		assert_int_equal(vb_lock_space_open(f[i], &sp, &space[i]), 0);
		assert_int_equal(vb_host_client_open(h, space[i], 0, i == 0 ? &first : &c),
				 told[i]);
	}
	quiet(false);
	vb_lock_client_close(first);
	for (unsigned i = 3; i-- > 0;) {
		assert_int_equal(vb_lock_space_close(space[i]), 0);
		assert_int_equal(vb_fabric_close(f[i]), 0);
	}
	assert_int_equal(vb_host_close(h), 0);
}

/* A client and a ring are of one host. */
static void test_apart(void **state)
{
	struct vb_lock_client *c;
	struct vb_host *other;
	struct vb_ring *own, *others;
	struct vb_grant g;

	(void)state;
	open_world("shm", "mcs");
	c = client();
	assert_int_equal(vb_host_open(NULL, &other), 0);
	assert_int_equal(vb_host_ring_open(other, NULL, &others), 0);
	assert_int_equal(vb_ring_open(NULL, &own), 0);
	quiet(true);
	assert_int_equal(vb_lock_acquire_start(own, c, 5, VB_EXCLUSIVE, 0, &g, NULL, NULL),
			 -VB_EFOREIGN);
	assert_int_equal(vb_lock_acquire_start(others, c, 5, VB_EXCLUSIVE, 0, &g, NULL, NULL),
			 -VB_EFOREIGN);
	assert_int_equal(
		vb_lock_acquire_start(w.ring, w.holder, 5, VB_EXCLUSIVE, 0, &g, NULL, NULL),
		-VB_EFOREIGN);
	assert_int_equal(vb_host_close(other), -EBUSY);
	quiet(false);
	assert_int_equal(vb_ring_close(own), 0);
	assert_int_equal(vb_ring_close(others), 0);
	assert_int_equal(vb_host_close(other), 0);
	vb_lock_client_close(c);
	close_world();
}

static int child_is_refused(struct vb_lock_client *c, struct vb_grant *g)
{
	struct vb_lock_client *another;
	struct vb_completion done;
	struct vb_ring *r;
	int wrong = 0;

	wrong += vb_host_call(w.host, nothing, NULL) != -VB_EFOREIGN;
	wrong += vb_host_close(w.host) != -VB_EFOREIGN;
	wrong += vb_host_ring_open(w.host, NULL, &r) != -VB_EFOREIGN;
	wrong += vb_host_client_open(w.host, w.space, 0, &another) != -VB_EFOREIGN;
	wrong += vb_lock_acquire(c, 6, VB_EXCLUSIVE, 0, g) != -VB_EFOREIGN;
	wrong += vb_lock_try(c, 6, VB_EXCLUSIVE, g) != -VB_EFOREIGN;
	wrong += vb_lock_release(c, g) != -VB_EFOREIGN;
	wrong += vb_lock_valid(c, g);
	vb_lock_client_close(c);
	wrong += start(c, 6, 0, g, NULL) != -VB_EFOREIGN;
	wrong += vb_ring_call(w.ring, nothing, NULL, NULL, NULL) != -VB_EFOREIGN;
	wrong += vb_ring_cancel(w.ring, 0) != -VB_EFOREIGN;
	wrong += vb_ring_reap(w.ring, &done, 1) != -VB_EFOREIGN;
	wrong += vb_ring_wait(w.ring, 0) != -VB_EFOREIGN;
	wrong += vb_ring_arm(w.ring) != -VB_EFOREIGN;
	wrong += vb_ring_close(w.ring) != -VB_EFOREIGN;
	return wrong;
}

static void test_child(void **state)
{
	struct vb_lock_client *c;
	struct vb_grant g;
	int status;
	pid_t pid;

	(void)state;
	open_world("shm", "mcs");
	c = client();
	assert_int_equal(vb_lock_acquire(c, 5, VB_EXCLUSIVE, 0, &g), 0);
	quiet(true);
	pid = fork_child();
	if (pid == 0)
		_exit(child_is_refused(c, &g));
	quiet(false);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_true(vb_lock_valid(c, &g));
	assert_int_equal(vb_lock_release(c, &g), 0);
	vb_lock_client_close(c);
	close_world();
}

/* ---- the end ---- */

/* What a closed client has left in a queue is handed on when the host is gone. */
static void test_left_behind(void **state)
{
	struct vb_lock_client *c;
	struct vb_grant g;

	(void)state;
	open_world("shm", "mcs");
	c = client();
	hold(5);
	assert_int_equal(vb_lock_acquire(c, 5, VB_EXCLUSIVE, MS, &g), -ETIMEDOUT);
	quiet(true);
	assert_int_equal(vb_host_close(w.host), -EBUSY);
	quiet(false);
	vb_lock_client_close(c);
	assert_int_equal(vb_ring_close(w.ring), 0);
	assert_int_equal(vb_host_close(w.host), 0);
	w.ring = NULL;
	w.host = NULL;
	let_go();
	hold(5);
	let_go();
	close_world();
}

#define IDLE_MS 500

static uint64_t processor_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* Also with who waits. */
static void test_idle(void **state)
{
	struct vb_lock_client *c[2];
	struct vb_grant g;
	uint64_t used;

	(void)state;
	open_world("shm", "mcs");
	c[0] = client();
	c[1] = client();
	hold(5);
	for (unsigned waits = 0; waits < 2; waits++) {
		if (waits)
			assert_int_equal(start(c[1], 5, VB_FOREVER_NS, &g, NULL), VB_STARTED);
		usleep(50000);
		used = processor_ns();
		usleep(IDLE_MS * 1000);
		used = processor_ns() - used;
		/* Some 0.1 % by itself. */
		assert_true(used < IDLE_MS * MS / 10);
	}
	let_go();
	assert_int_equal(next(&g).result, 0);
	assert_int_equal(vb_lock_release(c[1], &g), 0);
	vb_lock_client_close(c[0]);
	vb_lock_client_close(c[1]);
	close_world();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),       cmocka_unit_test(test_calls),
		cmocka_unit_test(test_errors),      cmocka_unit_test(test_timeout),
		cmocka_unit_test(test_order),       cmocka_unit_test(test_ring),
		cmocka_unit_test(test_depth),       cmocka_unit_test(test_armed),
		cmocka_unit_test(test_functions),   cmocka_unit_test(test_params),
		cmocka_unit_test(test_no_stack),    cmocka_unit_test(test_fabrics),
		cmocka_unit_test(test_apart),       cmocka_unit_test(test_child),
		cmocka_unit_test(test_left_behind), cmocka_unit_test(test_idle),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
