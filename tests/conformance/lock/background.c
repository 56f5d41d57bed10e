/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client that gave up in a queue must not hold up others, whatever its thread does next.
 *
 * A holds; B gives up after a deadline, and its thread does one thing or another and never waits in
 * Verbena; A releases; C asks.  Leases are longer than C's patience: nobody can be saved by one.
 */
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "lock/lock.h"

#define MS          1000000ull
#define LEASE_NS    (120000 * MS)
#define GIVE_UP_NS  (5 * MS)
#define PATIENCE_NS (30000 * MS)
#define THE_LOCK    5
#define ANOTHER     9

enum then {
	SLEEPS, /* waits elsewhere */
	BUSY,   /* goes on with another lock, which is free */
	TRIES,  /* the same, now and then */
	CLOSES, /* closes its client, then waits elsewhere */
	ENDS,   /* closes its client; the thread ends */
	POLLS,  /* has no keeper, and calls vb_poll */
	ENDINGS
};
static const char *const then_names[ENDINGS] = {"sleeps", "busy", "tries",
						"closes", "ends", "polls"};

struct play {
	struct vb_lock_space *space;
	enum then then;
	sem_t given_up, over_sem;
	bool over; /* atomic */
	int gave_up, wrong;
};

static void one_more_cycle(struct play *p, struct vb_lock_client *me)
{
	struct vb_grant g;
	int err = p->then == TRIES ? vb_lock_try(me, ANOTHER, VB_EXCLUSIVE, &g)
				   : vb_lock_acquire(me, ANOTHER, VB_EXCLUSIVE, PATIENCE_NS, &g);

	if (err == 0)
		err = vb_lock_release(me, &g);
	if (err)
		p->wrong = err;
	if (p->then == TRIES)
		usleep(2000);
}

static void *b_body(void *arg)
{
	struct play *p = arg;
	struct vb_lock_client *me;
	struct vb_grant g;

	p->wrong = vb_lock_client_open(p->space, 0, &me);
	p->gave_up = p->wrong ? 0 : vb_lock_acquire(me, THE_LOCK, VB_EXCLUSIVE, GIVE_UP_NS, &g);
	sem_post(&p->given_up);
	if (p->wrong)
		return NULL;
	if (p->then == CLOSES || p->then == ENDS)
		vb_lock_client_close(me);
	if (p->then == ENDS)
		return NULL;
	while (!__atomic_load_n(&p->over, __ATOMIC_ACQUIRE)) {
		if (p->then == BUSY || p->then == TRIES) {
			one_more_cycle(p, me);
		} else if (p->then == POLLS) {
			vb_poll();
			usleep(1000);
		} else {
			sem_wait(&p->over_sem);
		}
	}
	if (p->then != CLOSES)
		vb_lock_client_close(me);
	return NULL;
}

static void *c_body(void *arg)
{
	struct play *p = arg;
	struct vb_lock_client *me;
	struct vb_grant g;
	int err = vb_lock_client_open(p->space, 0, &me);

	if (err == 0) {
		err = vb_lock_acquire(me, THE_LOCK, VB_EXCLUSIVE, PATIENCE_NS, &g);
		if (err == 0)
			err = vb_lock_release(me, &g);
		vb_lock_client_close(me);
	}
	return (void *)(intptr_t)err;
}

static bool open_world(const struct vb_lock_ops *ops, const char *fabric, bool no_keeper,
		       struct vb_fabric **f, struct vb_lock_space **space)
{
	const struct vb_fabric_params fp = {
		.fabric = fabric,
		.options = strcmp(fabric, "ucx") == 0 ? "bound=2s,grace=5s,silence=20s" : NULL,
		.node_bytes = 1 << 20,
		.endpoints = 32,
		.no_keeper = no_keeper,
	};
	const struct vb_lock_space_params sp = {
		.lock = ops->name, .locks = 16, .lease_ns = LEASE_NS};

	if (vb_fabric_find(fabric)->absent != NULL && vb_fabric_find(fabric)->absent() != NULL)
		return false;
	assert_int_equal(vb_fabric_open(&fp, f), 0);
	assert_int_equal(vb_lock_space_open(*f, &sp, space), 0);
	return true;
}

static void play(const struct vb_lock_ops *ops, const char *fabric, enum then then)
{
	struct play p = {.then = then};
	struct vb_lock_server *server;
	struct vb_lock_client *a;
	struct vb_fabric *f;
	struct vb_grant g;
	pthread_t b, c;
	void *got;

	if (!open_world(ops, fabric, then == POLLS, &f, &p.space))
		return;
	sem_init(&p.given_up, 0, 0);
	sem_init(&p.over_sem, 0, 0);
	assert_int_equal(vb_lock_server_thread_start(p.space, 0, &server), 0);
	assert_int_equal(vb_lock_client_open(p.space, 0, &a), 0);
	assert_int_equal(vb_lock_acquire(a, THE_LOCK, VB_EXCLUSIVE, PATIENCE_NS, &g), 0);
	assert_int_equal(pthread_create(&b, NULL, b_body, &p), 0);
	sem_wait(&p.given_up);
	assert_int_equal(p.gave_up, -ETIMEDOUT);
	assert_int_equal(vb_lock_release(a, &g), 0);
	if (then == ENDS)
		pthread_join(b, NULL);
	assert_int_equal(pthread_create(&c, NULL, c_body, &p), 0);
	pthread_join(c, &got);
	__atomic_store_n(&p.over, true, __ATOMIC_RELEASE);
	sem_post(&p.over_sem);
	if (then != ENDS)
		pthread_join(b, NULL);
	if (got != NULL)
		fail_msg("%s on %s, B %s: C was not granted: %s", ops->name, fabric,
			 then_names[then], vb_strerror((int)(intptr_t)got));
	assert_int_equal(p.wrong, 0);
	vb_lock_client_close(a);
	vb_lock_server_stop(server);
	vb_lock_space_close(p.space);
	vb_fabric_close(f);
	sem_destroy(&p.given_up);
	sem_destroy(&p.over_sem);
}

static void test_shm(void **state)
{
	for (enum then t = 0; t < ENDINGS; t++)
		play(*state, "shm", t);
}

static void test_ucx(void **state)
{
	for (enum then t = 0; t < ENDINGS; t++)
		play(*state, "ucx", t);
}

/* ---- a server that a thread has started as a task, and left ---- */

struct served {
	struct vb_lock_space *space;
	sem_t up, stop;
	int err;
};

static void *server_body(void *arg)
{
	struct served *v = arg;
	struct vb_lock_server *server = NULL;

	v->err = vb_lock_server_start(v->space, 0, 0, 1, &server);
	sem_post(&v->up);
	sem_wait(&v->stop);
	vb_lock_server_stop(server);
	return NULL;
}

static void test_server(void **state)
{
	static const char *const fabrics[] = {"shm", "ucx"};
	const struct vb_lock_ops *ops = *state;
	struct vb_lock_client *me;
	struct vb_grant g;

	for (unsigned i = 0; i < 2; i++) {
		struct served v = {0};
		struct vb_fabric *f;
		pthread_t t;

		if (!open_world(ops, fabrics[i], false, &f, &v.space))
			continue;
		sem_init(&v.up, 0, 0);
		sem_init(&v.stop, 0, 0);
		assert_int_equal(pthread_create(&t, NULL, server_body, &v), 0);
		sem_wait(&v.up);
		assert_int_equal(v.err, 0);
		assert_int_equal(vb_lock_client_open(v.space, 0, &me), 0);
		for (unsigned n = 0; n < 10; n++) {
			assert_int_equal(
				vb_lock_acquire(me, THE_LOCK, VB_EXCLUSIVE, PATIENCE_NS, &g), 0);
			assert_int_equal(vb_lock_release(me, &g), 0);
		}
		vb_lock_client_close(me);
		sem_post(&v.stop);
		pthread_join(t, NULL);
		vb_lock_space_close(v.space);
		vb_fabric_close(f);
	}
}

/* ---- deadline, then close, in virtual time: the lock is given back only afterwards ---- */

static void close_early(const struct vb_lock_ops *ops, enum vb_mode mode)
{
	const struct vb_fabric_params fp = {.fabric = "sim", .nodes = 4, .node_bytes = 1 << 20};
	const struct vb_lock_space_params sp = {.lock = ops->name, .locks = 8};
	struct vb_lock_client *a, *b, *c;
	struct vb_lock_server *server;
	struct vb_lock_space *space;
	struct vb_fabric *f;
	struct vb_grant g;
	int err;

	assert_int_equal(vb_fabric_open(&fp, &f), 0);
	assert_int_equal(vb_lock_space_open(f, &sp, &space), 0);
	assert_int_equal(vb_lock_server_start(space, 0, 0, 1, &server), 0);
	assert_int_equal(vb_lock_client_open(space, 1, &a), 0);
	assert_int_equal(vb_lock_client_open(space, 2, &b), 0);
	assert_int_equal(vb_lock_client_open(space, 3, &c), 0);
	assert_int_equal(vb_lock_acquire(a, 3, VB_EXCLUSIVE, VB_FOREVER_NS, &g), 0);
	assert_int_not_equal(vb_lock_acquire(b, 3, mode, MS, &(struct vb_grant){0}), 0);
	vb_lock_client_close(b);
	err = vb_lock_release(a, &g);
	/* Where there are leases, A's may have passed while B closed. */
	if (!(ops->caps & (VB_LOCK_SURVIVES | VB_LOCK_READ_LEASE)))
		assert_int_equal(err, 0);
	err = vb_lock_acquire(c, 3, VB_EXCLUSIVE, 10000 * MS, &g);
	if (err)
		fail_msg("%s, B %s: C was not granted: %s", ops->name, vb_lock_mode_name(mode),
			 vb_strerror(err));
	assert_int_equal(vb_lock_release(c, &g), 0);
	vb_lock_client_close(c);
	vb_lock_client_close(a);
	vb_lock_server_stop(server);
	vb_lock_space_close(space);
	vb_fabric_close(f);
}

static void test_close(void **state)
{
	close_early(*state, VB_EXCLUSIVE);
	close_early(*state, VB_SHARED);
}

/* ---- fork: the child has no keeper, and the parent's goes on ---- */

static int child(struct vb_fabric *f, struct vb_lock_space *space)
{
	struct vb_lock_client *me;
	struct vb_grant g;
	int err;

	vb_fabric_after_fork(f);
	vb_poll();
	err = vb_lock_client_open(space, 0, &me);
	if (err)
		return 1;
	if (vb_lock_acquire(me, ANOTHER, VB_EXCLUSIVE, PATIENCE_NS, &g) != 0 ||
	    vb_lock_release(me, &g) != 0)
		return 2;
/* The thread sanitizer takes no threads in the child of a process that had some. */
#ifndef VB_TSAN
	if (vb_lock_acquire(me, THE_LOCK, VB_EXCLUSIVE, GIVE_UP_NS, &g) != -ETIMEDOUT)
		return 3;
#endif
	vb_lock_client_close(me);
	return 0;
}

static void test_fork(void **state)
{
	struct vb_lock_client *a, *b;
	struct vb_lock_space *space;
	struct vb_fabric *f;
	struct vb_grant g;
	pthread_t c;
	int status;
	void *got;
	pid_t pid;

	(void)state;
	assert_true(open_world(vb_lock_find("mcs"), "shm", false, &f, &space));
	assert_int_equal(vb_lock_client_open(space, 0, &a), 0);
	assert_int_equal(vb_lock_client_open(space, 0, &b), 0);
	assert_int_equal(vb_lock_acquire(a, THE_LOCK, VB_EXCLUSIVE, PATIENCE_NS, &g), 0);
	assert_int_equal(
		vb_lock_acquire(b, THE_LOCK, VB_EXCLUSIVE, GIVE_UP_NS, &(struct vb_grant){0}),
		-ETIMEDOUT);
	usleep(5000); /* so that most often the keeper is inside; right either way */
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		/* Its own husk is handed on by its own keeper, after the parent's. */
		int wrong = child(f, space);

		if (wrong == 0)
			vb_lock_space_close(space);
		_exit(wrong);
	}
	/* The child is through with its calls, or waits for its place to be handed on. */
	usleep(20000);
	assert_int_equal(vb_lock_release(a, &g), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	struct play p = {.space = space};
	assert_int_equal(pthread_create(&c, NULL, c_body, &p), 0);
	pthread_join(c, &got);
	assert_ptr_equal(got, NULL);
	vb_lock_client_close(b);
	vb_lock_client_close(a);
	vb_lock_space_close(space);
	vb_fabric_close(f);
}

#define TESTS_MAX 96

static size_t add(struct CMUnitTest *tests, size_t n, const char *what, CMUnitTestFunction fn,
		  const struct vb_lock_ops *ops)
{
	static char names[TESTS_MAX][48];

	snprintf(names[n], sizeof(names[n]), "%s %s", ops ? ops->name : "mcs", what);
	tests[n] = (struct CMUnitTest){
		.name = names[n], .test_func = fn, .initial_state = (void *)ops};
	return n + 1;
}

int main(int argc, char **argv)
{
	static struct CMUnitTest tests[TESTS_MAX];
	bool ucx = argc > 1 && strcmp(argv[1], "ucx") == 0;
	size_t n = 0;

	if (!ucx)
		n = add(tests, n, "fork", test_fork, NULL);
	for (const struct vb_lock_ops *const *l = vb_locks; *l; l++) {
		if (ucx) {
			n = add(tests, n, "ucx", test_ucx, *l);
			continue;
		}
		n = add(tests, n, "shm", test_shm, *l);
		n = add(tests, n, "close", test_close, *l);
		if ((*l)->serve)
			n = add(tests, n, "server", test_server, *l);
	}
	return _cmocka_run_group_tests("background", tests, n, NULL, NULL);
}
