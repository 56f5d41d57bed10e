/* SPDX-License-Identifier: Apache-2.0 */
/* Who serves the locks of a node: one at a time for each lock, also when they are many who begin, or
 * others than before; and what a space keeps of what it was opened with. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define VB_LOG_ROOM "test"
#include "base/log.h"
#include "child.h"
#include "lock/board.h"
#include "lock/header.h"

#define MS    1000000ull
#define LOCKS 10
#define CROWD 6

static struct vb_fabric *open_fabric(void)
{
	struct vb_fabric_params p = {.fabric = "shm", .node_bytes = 8u << 20, .endpoints = 64};
	struct vb_fabric *f;

	assert_int_equal(vb_fabric_open(&p, &f), 0);
	return f;
}

static struct vb_lock_space *open_space(struct vb_fabric *f, const char *lock, uint64_t lease_ns)
{
	struct vb_lock_space_params p = {.lock = lock, .locks = LOCKS, .lease_ns = lease_ns};
	struct vb_lock_space *s;

	assert_int_equal(vb_lock_space_open(f, &p, &s), 0);
	return s;
}

/* -EBUSY, and the message names who is in the way.  What the caller has of an earlier server stays. */
static void refused(struct vb_lock_space *s, unsigned worker, unsigned workers, const char *names)
{
	struct vb_lock_server *const before = (struct vb_lock_server *)s, *x = before;
	char said[512] = "";
	int err;

	vb_log_capture_begin(said, sizeof(said));
	err = workers != 0 ? vb_lock_server_start(s, 0, worker, workers, &x)
			   : vb_lock_server_thread_start(s, 0, &x);
	vb_log_capture_end();
	assert_int_equal(err, -EBUSY);
	assert_ptr_equal(x, before);
	/* A thread of its own says it there. */
	assert_true(workers == 0 || strstr(said, names) != NULL);
}

static void test_one_server(void **state)
{
	static const char *const locks[] = {"rpc", "traditional", "traditional-ro", "table",
					    "shiftlock"};

	for (unsigned i = 0; i < VB_ARRAY_SIZE(locks); i++) {
		struct vb_fabric *f = open_fabric();
		struct vb_lock_space *s = open_space(f, locks[i], 0), *view;
		struct vb_lock_server *x, *y;

		view = open_space(f, locks[i], 0);
		assert_int_equal(vb_lock_server_thread_start(s, 0, &x), 0);
		refused(s, 0, 0, "worker 0 of 1, which lives");
		refused(view, 0, 0, "worker 0 of 1, which lives");
		refused(view, 0, 1, "worker 0 of 1, which lives");
		/* Which locks are whose depends on how many there are. */
		refused(view, 1, 2, "worker 0 of 1, which lives");
		vb_lock_server_stop(x);
		assert_int_equal(vb_lock_server_start(view, 0, 1, 2, &x), 0);
		refused(s, 0, 1, "worker 1 of 2, which lives");
		refused(s, 1, 2, "worker 1 of 2, which lives");
		assert_int_equal(vb_lock_server_start(s, 0, 0, 2, &y), 0);
		vb_lock_server_stop(x);
		vb_lock_server_stop(y);
		vb_lock_space_close(view);
		vb_lock_space_close(s);
		vb_fabric_close(f);
	}
}

static unsigned answering(struct vb_lock_space *s)
{
	const struct vb_lock_header *h = vb_local(s->fabric, s->header[0], sizeof(*h));

	return vb_lock_workers(__atomic_load_n(&h->workers, __ATOMIC_ACQUIRE));
}

/* Clients are not told of some of the workers: nobody is asked for a lock that nobody has. */
static void test_all_at_once(void **state)
{
	struct vb_fabric *f = open_fabric();
	struct vb_lock_space *s = open_space(f, "table", 0);
	struct vb_lock_server *x[3];

	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(answering(s), 0);
		assert_int_equal(vb_lock_server_start(s, 0, 2 - i, 3, &x[i]), 0);
	}
	assert_int_equal(answering(s), 3);
	for (unsigned i = 0; i < 3; i++)
		vb_lock_server_stop(x[i]);
	vb_lock_space_close(s);
	vb_fabric_close(f);
}

struct beginner {
	struct vb_lock_space *space;
	struct vb_lock_server *server;
	unsigned workers;
	pthread_barrier_t *gate;
	int err;
};

static void *begin(void *arg)
{
	struct beginner *b = arg;
	char said[512];

	vb_log_capture_begin(said, sizeof(said));
	pthread_barrier_wait(b->gate);
	b->err = vb_lock_server_start(b->space, 0, 0, b->workers, &b->server);
	vb_log_capture_end();
	pthread_barrier_wait(b->gate);
	if (b->err == 0)
		vb_lock_server_stop(b->server);
	vb_sched_destroy(vb_sched_self());
	return NULL;
}

/* All at the same moment, of one worker or of two: no two of them have the same locks. */
static void test_crowd(void **state)
{
	struct vb_fabric *f = open_fabric();
	struct vb_lock_space *s = open_space(f, "rpc", 0);

	for (unsigned round = 0; round < 60; round++) {
		struct beginner b[CROWD];
		pthread_barrier_t gate;
		pthread_t t[CROWD];
		unsigned served = 0;

		pthread_barrier_init(&gate, NULL, CROWD);
		for (unsigned i = 0; i < CROWD; i++) {
			b[i] = (struct beginner){
				.space = s, .gate = &gate, .workers = 1 + (i + round) % 2};
			assert_int_equal(pthread_create(&t[i], NULL, begin, &b[i]), 0);
		}
		for (unsigned i = 0; i < CROWD; i++)
			pthread_join(t[i], NULL);
		for (unsigned i = 0; i < CROWD; i++) {
			assert_true(b[i].err == 0 || b[i].err == -EBUSY);
			served += b[i].err == 0;
		}
		assert_true(served <= 1);
		pthread_barrier_destroy(&gate);
	}
	vb_lock_space_close(s);
	vb_fabric_close(f);
}

/* ---- a server that dies, and others in its place ---- */

static pid_t serve(struct vb_fabric *f, const char *lock, uint64_t lease_ns)
{
	int ready[2];
	char c;
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	pid = fork_child();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct vb_lock_space_params p = {
			.lock = lock, .locks = LOCKS, .lease_ns = lease_ns};
		struct vb_lock_space *s;
		struct vb_lock_server *x;

		vb_fabric_after_fork(f);
		if (vb_lock_space_open(f, &p, &s) != 0 ||
		    vb_lock_server_thread_start(s, 0, &x) != 0 || write(ready[1], "", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &c, 1), 1);
	close(ready[0]);
	return pid;
}

/* One agent is killed and two begin, the one who answers for the lock when the other has been there
 * for a while: nobody else is granted what is held, and in the end it goes on. */
static void test_more_after_a_death(void **state)
{
	const uint64_t lease_ns = 1500 * MS;
	struct vb_fabric *f = open_fabric();
	pid_t pid = serve(f, "table", lease_ns);
	struct vb_lock_space *s = open_space(f, "table", lease_ns), *view;
	struct vb_lock_server *x[2];
	struct vb_lock_client *a, *b;
	struct vb_grant ga, gb;
	int err;

	assert_int_equal(vb_lock_client_open(s, 0, &a), 0);
	assert_int_equal(vb_lock_acquire(a, 1, VB_EXCLUSIVE, 30000 * MS, &ga), 0);
	refused(s, 0, 2, "worker 0 of 1, which lives");
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(vb_lock_server_start(s, 0, 0, 2, &x[0]), 0);
	(void)vb_ep_sleep(a->ep, 20 * MS);
	assert_int_equal(vb_lock_server_start(s, 0, 1, 2, &x[1]), 0);
	view = open_space(f, "table", lease_ns);
	assert_int_equal(vb_lock_client_open(view, 0, &b), 0);
	do
		err = vb_lock_acquire(b, 1, VB_EXCLUSIVE, 100 * MS, &gb);
	while (err == -ETIMEDOUT && vb_lock_valid(a, &ga));
	if (err == 0)
		assert_false(vb_lock_valid(a, &ga));
	else
		assert_int_equal(vb_lock_acquire(b, 1, VB_EXCLUSIVE, 30000 * MS, &gb), 0);
	assert_int_equal(vb_lock_release(b, &gb), 0);
	vb_lock_client_close(a);
	vb_lock_client_close(b);
	vb_lock_server_stop(x[0]);
	vb_lock_server_stop(x[1]);
	vb_lock_space_close(view);
	vb_lock_space_close(s);
	vb_fabric_close(f);
}

/* Who calls in the grace period keeps what it holds, though another of more agents has the lock
 * now. */
static void test_kept_by_who_calls(void **state)
{
	const uint64_t lease_ns = 2000 * MS;
	struct vb_fabric *f = open_fabric();
	pid_t pid = serve(f, "table", lease_ns);
	struct vb_lock_space *s = open_space(f, "table", lease_ns);
	struct vb_lock_server *x[2];
	struct vb_lock_client *a;
	struct vb_grant g, other;

	assert_int_equal(vb_lock_client_open(s, 0, &a), 0);
	assert_int_equal(vb_lock_acquire(a, 1, VB_EXCLUSIVE, 30000 * MS, &g), 0);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(vb_lock_server_start(s, 0, i, 2, &x[i]), 0);
	(void)vb_ep_sleep_until(a->ep, g.valid_until_ns - lease_ns / 2);
	assert_int_equal(vb_lock_try(a, 3, VB_EXCLUSIVE, &other), -EAGAIN);
	(void)vb_ep_sleep_until(a->ep, g.valid_until_ns + 10 * MS);
	assert_int_equal(vb_lock_release(a, &g), 0);
	vb_lock_client_close(a);
	vb_lock_server_stop(x[0]);
	vb_lock_server_stop(x[1]);
	vb_lock_space_close(s);
	vb_fabric_close(f);
}

/* A server's process that is now another program: as long as it lives the place is taken, and who has
 * found it gets no answer.  *in, *out: the program gives back what it is sent. */
static pid_t serve_and_exec(struct vb_fabric *f, const char *lock, int *in, int *out)
{
	struct vb_lock_server *x;
	int to[2], from[2];
	pid_t pid;

	assert_int_equal(pipe(to), 0);
	assert_int_equal(pipe(from), 0);
	pid = fork_child();
	assert_true(pid >= 0);
	if (pid == 0) {
		vb_fabric_after_fork(f);
		if (vb_lock_server_thread_start(open_space(f, lock, 0), 0, &x) != 0 ||
		    dup2(to[0], 0) != 0 || dup2(from[1], 1) != 1 || close(to[1]) != 0)
			_exit(1);
		execlp("cat", "cat", (char *)NULL);
		_exit(1);
	}
	close(to[0]);
	close(from[1]);
	*in = from[0];
	*out = to[1];
	return pid;
}

static void test_server_that_execs(void **state)
{
	struct vb_fabric *f = open_fabric();
	struct vb_lock_space *s = open_space(f, "rpc", 0);
	struct vb_lock_server *x;
	struct vb_lock_client *a;
	struct vb_grant g;
	int in, out, status;
	pid_t pid = serve_and_exec(f, "rpc", &in, &out);
	char c = 'x';

	assert_int_equal(write(out, &c, 1), 1);
	assert_int_equal(read(in, &c, 1), 1); /* it is cat now */
	refused(s, 0, 1, "worker 0 of 1, which lives");
	assert_int_equal(vb_lock_client_open(s, 0, &a), 0);
	assert_int_equal(vb_lock_acquire(a, 1, VB_EXCLUSIVE, 20 * MS, &g), -ETIMEDOUT);
	close(out);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(vb_lock_server_start(s, 0, 0, 1, &x), 0);
	/* Who has known the one that is gone learns of it once. */
	assert_int_equal(vb_lock_acquire(a, 1, VB_EXCLUSIVE, 30000 * MS, &g), -VB_EPEERGONE);
	assert_int_equal(vb_lock_acquire(a, 1, VB_EXCLUSIVE, 30000 * MS, &g), 0);
	assert_int_equal(vb_lock_release(a, &g), 0);
	close(in);
	vb_lock_client_close(a);
	vb_lock_server_stop(x);
	vb_lock_space_close(s);
	vb_fabric_close(f);
}

/* ---- names ---- */

static void test_name_is_copied(void **state)
{
	struct vb_fabric *f = open_fabric();
	struct vb_lock_space *s[2];
	struct vb_lock_client *me[2];
	struct vb_ep *ep;
	char name[32];

	assert_int_equal(vb_ep_open(f, 0, &ep), 0);
	for (unsigned i = 0; i < 2; i++) {
		struct vb_lock_space_params p = {
			.lock = "cas", .name = name, .locks = LOCKS, .visible = true};

		snprintf(name, sizeof(name), "space%u", i);
		assert_int_equal(vb_lock_space_open(f, &p, &s[i]), 0);
	}
	memset(name, 'x', sizeof(name));
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(vb_lock_client_open(s[i], 0, &me[i]), 0);
	for (unsigned i = 0; i < 2; i++) {
		struct vb_board_view v;

		snprintf(name, sizeof(name), "space%u", i);
		assert_int_equal(vb_board_view(ep, name, &v), 0);
		assert_int_equal(v.n, 1);
		assert_true(v.slot[0].peer == me[i]->ep->self);
		vb_board_view_free(&v);
	}
	for (unsigned i = 0; i < 2; i++) {
		vb_lock_client_close(me[i]);
		vb_lock_space_close(s[i]);
	}
	vb_ep_close(ep);
	vb_fabric_close(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_server),
		cmocka_unit_test(test_all_at_once),
		cmocka_unit_test(test_crowd),
		cmocka_unit_test(test_more_after_a_death),
		cmocka_unit_test(test_kept_by_who_calls),
		cmocka_unit_test(test_server_that_execs),
		cmocka_unit_test(test_name_is_copied),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
