/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A holder that has its lock kept (vb_lock_keep_start), works under it for longer than a lease, and writes to storage
 * that refuses a token smaller than the largest it has seen.  The lock's server begins anew meanwhile.  Then its
 * process is stopped right between its look at the lock and its write, until somebody else has had the lock: that
 * write is refused, and the holder is told.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <verbena/async.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "child.h"

#define MS          1000000ull
#define LEASE_NS    (1500 * MS)
#define PATIENCE_NS (60000 * MS)
#define THE_LOCK    5
/* On a machine with much other work a keeper may not run for half a lease, and who is told so has lost nothing. */
#define TRIES 10

/* What the holder's process ends with, besides 0 and the line that is wrong. */
#define TOLD_BEFORE 255

struct board {
	/* Atomics: of the storage; what has come to pass. */
	uint64_t largest;
	uint32_t served, working, refused;
};

struct world {
	struct vb_fabric *fabric;
	struct vb_lock_space *space;
	struct vb_lock_client *me;
};

static bool storage_takes(struct board *b, uint64_t token)
{
	uint64_t largest = __atomic_load_n(&b->largest, __ATOMIC_SEQ_CST);

	while (token >= largest) {
		if (__atomic_compare_exchange_n(&b->largest, &largest, token, false,
						__ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			return true;
	}
	return false;
}

static void tell(uint32_t *what)
{
	__atomic_store_n(what, 1, __ATOMIC_SEQ_CST);
}

static bool is_told(const uint32_t *what)
{
	return __atomic_load_n(what, __ATOMIC_SEQ_CST) != 0;
}

static int open_space(struct world *w, const char *lock, bool attach)
{
	const struct vb_lock_space_params sp = {
		.lock = lock, .locks = 16, .lease_ns = LEASE_NS, .fencing = true};
	struct vb_fabric_params fp = {.fabric = "shm", .node_bytes = 8u << 20, .attach = attach};
	char name[64];
	int err;

	snprintf(name, sizeof(name), "test-kept-%d", (int)(attach ? getppid() : getpid()));
	fp.name = name;
	err = vb_fabric_open(&fp, &w->fabric);
	return err ? err : vb_lock_space_open(w->fabric, &sp, &w->space);
}

static int close_world(struct world *w)
{
	int err;

	vb_lock_client_close(w->me);
	err = vb_lock_space_close(w->space);
	return err ? err : vb_fabric_close(w->fabric);
}

/* ---- the holder's process ---- */

#define WANT(cond)                                                                                 \
	do {                                                                                       \
		if (!(cond))                                                                       \
			return __LINE__;                                                           \
	} while (0)

/* Whether it has the lock all the time. */
static bool works(struct board *b, struct world *w, struct vb_ring *ring, struct vb_grant *g)
{
	uint64_t until_ns = vb_clock_gettime_ns() + 5 * LEASE_NS / 2;
	struct vb_completion done;

	tell(&b->working);
	while (vb_clock_gettime_ns() < until_ns) {
		if (!vb_lock_valid(w->me, g) || !storage_takes(b, g->token) ||
		    vb_ring_reap(ring, &done, 1) != 0)
			return false;
		usleep(1000);
	}
	return vb_lock_valid(w->me, g);
}

static int holder(struct board *b, const char *lock)
{
	struct vb_completion done;
	struct vb_ring *ring;
	struct vb_grant g;
	struct world w;

	while (!is_told(&b->served))
		usleep(1000);
	WANT(open_space(&w, lock, true) == 0);
	WANT(vb_lock_client_open(w.space, 0, &w.me) == 0);
	WANT(vb_ring_open(NULL, &ring) == 0);
	WANT(vb_lock_acquire(w.me, THE_LOCK, VB_EXCLUSIVE, PATIENCE_NS, &g) == 0);
	WANT(vb_lock_keep_start(ring, w.me, &g, &g, NULL) == VB_STARTED);
	if (!works(b, &w, ring, &g))
		return TOLD_BEFORE;
	raise(SIGSTOP);
	WANT(!storage_takes(b, g.token));
	tell(&b->refused);
	WANT(!vb_lock_valid(w.me, &g));
	WANT(vb_ring_wait(ring, PATIENCE_NS) == 0 && vb_ring_reap(ring, &done, 1) == 1);
	WANT(done.tag == &g && done.result == -VB_ELOST);
	WANT(vb_lock_release(w.me, &g) == -VB_ELOST);
	/* It may ask again. */
	WANT(vb_lock_acquire(w.me, THE_LOCK, VB_EXCLUSIVE, PATIENCE_NS, &g) == 0);
	WANT(storage_takes(b, g.token));
	WANT(vb_lock_release(w.me, &g) == 0);
	WANT(vb_ring_close(ring) == 0);
	WANT(close_world(&w) == 0);
	return 0;
}

/* ---- the other one, who serves ---- */

static bool has_ended(pid_t pid)
{
	siginfo_t info = {.si_pid = 0};

	return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
	       info.si_pid != 0;
}

static void serve_anew(struct world *w, struct vb_lock_server **server)
{
	vb_lock_server_stop(*server);
	usleep(LEASE_NS / 8 / 1000);
	assert_int_equal(vb_lock_server_thread_start(w->space, 0, server), 0);
}

static void take_meanwhile(struct board *b, struct world *w, pid_t pid)
{
	struct vb_grant g;
	int err = -VB_EPEERGONE;

	/* Who has asked the former server last may learn by a refusal that there is another one. */
	vb_log_mute();
	for (unsigned i = 0; i < 2 && err == -VB_EPEERGONE; i++)
		err = vb_lock_acquire(w->me, THE_LOCK, VB_EXCLUSIVE, PATIENCE_NS, &g);
	vb_log_unmute();
	assert_int_equal(err, 0);
	assert_true(g.token > __atomic_load_n(&b->largest, __ATOMIC_SEQ_CST));
	assert_true(storage_takes(b, g.token));
	assert_int_equal(kill(pid, SIGCONT), 0);
	for (unsigned ms = 0; !is_told(&b->refused) && ms < 60000 && !has_ended(pid); ms++)
		usleep(1000);
	(void)vb_lock_release(w->me, &g); /* its lease may be over, too */
}

static int try_it(struct board *b, const char *lock)
{
	struct vb_lock_server *server;
	struct world w;
	int status;
	pid_t pid;

	*b = (struct board){.largest = 0};
	pid = fork_child();
	if (pid == 0)
		_exit(holder(b, lock));
	assert_true(pid > 0);
	assert_int_equal(open_space(&w, lock, false), 0);
	assert_int_equal(vb_lock_server_thread_start(w.space, 0, &server), 0);
	assert_int_equal(vb_lock_client_open(w.space, 0, &w.me), 0);
	tell(&b->served);
	while (!is_told(&b->working) && !has_ended(pid))
		usleep(1000);
	usleep(LEASE_NS / 2 / 1000);
	serve_anew(&w, &server);
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	if (WIFSTOPPED(status)) {
		take_meanwhile(b, &w, pid);
		assert_int_equal(waitpid(pid, &status, 0), pid);
	}
	vb_lock_server_stop(server);
	assert_int_equal(close_world(&w), 0);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void kept_and_stopped(const char *lock)
{
	struct board *b =
		mmap(NULL, sizeof(*b), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int end = TOLD_BEFORE;

	assert_true(b != MAP_FAILED);
	for (unsigned i = 0; i < TRIES && end == TOLD_BEFORE; i++)
		end = try_it(b, lock);
	if (end != 0)
		fail_msg("%s: the holder's process ended with %d%s", lock, end,
			 end == TOLD_BEFORE ? ": it was told each time" : ", a line of this file");
	munmap(b, sizeof(*b));
}

static void test_table(void **state)
{
	(void)state;
	kept_and_stopped("table");
}

static void test_traditional(void **state)
{
	(void)state;
	kept_and_stopped("traditional");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_traditional),
	};

	return cmocka_run_group_tests_name("kept", tests, NULL, NULL);
}
