/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client that gave up in a queue must not hold up others, whatever its thread does next.
 *
 * A holds; B gives up after a deadline, and its thread does one thing or another and never waits in
 * Verbena; A releases; C asks.  Leases are longer than C's patience: nobody can be saved by one.
 */
#include <dirent.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <verbena/cluster.h>
#include <verbena/txn.h>

#include <cmocka.h>

#include "base/log.h"
#include "child.h"
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
	JOINS,  /* opens the lock space once more, then waits elsewhere */
	MEETS,  /* makes a collective call, then waits elsewhere */
	ENDINGS
};
static const char *const then_names[ENDINGS] = {"sleeps", "busy",  "tries", "closes",
						"ends",   "polls", "joins", "meets"};

struct play {
	struct vb_lock_space *space, *again;
	struct vb_cluster *cluster;
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

static struct vb_lock_space_params space_params(const struct vb_lock_ops *ops)
{
	return (struct vb_lock_space_params){.lock = ops->name, .locks = 16, .lease_ns = LEASE_NS};
}

/* Calls that have nothing to do with the lock, and may wait: what is left of them is closed after
 * C. */
static int other_calls(struct play *p)
{
	const struct vb_lock_space_params sp = space_params(p->space->ops);
	const struct vb_cluster_params cp = {.hosts = 1};
	int err;

	if (p->then == JOINS)
		return vb_lock_space_open(p->space->fabric, &sp, &p->again);
	if (p->then != MEETS)
		return 0;
	err = vb_cluster_open(&cp, &p->cluster);
	return err ? err : vb_cluster_barrier(p->cluster);
}

static void *b_body(void *arg)
{
	struct play *p = arg;
	struct vb_lock_client *me;
	struct vb_grant g;

	p->wrong = vb_lock_client_open(p->space, 0, &me);
	p->gave_up = p->wrong ? 0 : vb_lock_acquire(me, THE_LOCK, VB_EXCLUSIVE, GIVE_UP_NS, &g);
	if (p->wrong == 0)
		p->wrong = other_calls(p);
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
	vb_lock_space_close(p->again);
	vb_cluster_close(p->cluster);
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
		.options = strcmp(fabric, "shm") != 0 ? "bound=2s,silence=20s" : NULL,
		.node_bytes = 1 << 20,
		.endpoints = 32,
		.no_keeper = no_keeper,
	};
	const struct vb_lock_space_params sp = space_params(ops);

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
	assert_int_equal(p.wrong, 0);
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

static void test_tcp(void **state)
{
	for (enum then t = 0; t < ENDINGS; t++)
		play(*state, "tcp", t);
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
	static const char *const fabrics[] = {"shm", "tcp"};
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
	int status, through[2];
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
	assert_int_equal(pipe(through), 0);
	pid = fork_child();
	assert_true(pid >= 0);
	if (pid == 0) {
		/* Its own proxy is handed on by its own keeper, after the parent's. */
		int wrong = child(f, space);

		close(through[1]);
		if (wrong == 0)
			vb_lock_space_close(space);
		_exit(wrong);
	}
	/* The child is through with its calls: it waits for its place to be handed on. */
	close(through[1]);
	assert_int_equal(read(through[0], &status, 1), 0);
	close(through[0]);
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

/* ---- a closed client that stands in a queue: whose it is after a fork, and at the end ---- */

#define SOON_S 60

static struct vb_lock_client *leave_ghost(struct vb_lock_space *space, struct vb_grant *g)
{
	struct vb_lock_client *a, *b;

	assert_int_equal(vb_lock_client_open(space, 0, &a), 0);
	assert_int_equal(vb_lock_client_open(space, 0, &b), 0);
	assert_int_equal(vb_lock_acquire(a, THE_LOCK, VB_EXCLUSIVE, PATIENCE_NS, g), 0);
	assert_int_equal(
		vb_lock_acquire(b, THE_LOCK, VB_EXCLUSIVE, GIVE_UP_NS, &(struct vb_grant){0}),
		-ETIMEDOUT);
	vb_lock_client_close(b);
	return a;
}

static void ends_well(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* The parent's ghosts are nothing that a child's space has to wait for. */
static void test_fork_ghost(void **state)
{
	struct vb_lock_space *space;
	struct vb_lock_client *a;
	struct vb_fabric *f;
	struct vb_grant g;
	pid_t pid;

	(void)state;
	assert_true(open_world(vb_lock_find("mcs"), "shm", false, &f, &space));
	a = leave_ghost(space, &g);
	pid = fork_child();
	assert_true(pid >= 0);
	if (pid == 0) {
		alarm(SOON_S);
		vb_fabric_after_fork(f);
		vb_lock_space_close(space);
		_exit(0);
	}
	ends_well(pid);
	assert_int_equal(vb_lock_release(a, &g), 0);
	vb_lock_client_close(a);
	vb_lock_space_close(space);
	vb_fabric_close(f);
}

/* A process may end while its keeper waits: nothing has to be closed. */
static void test_exit(void **state)
{
	pid_t pid = fork_child();

	(void)state;
	assert_true(pid >= 0);
	if (pid == 0) {
		struct vb_lock_space *space;
		struct vb_fabric *f;
		struct vb_grant g;

		alarm(SOON_S);
		if (!open_world(vb_lock_find("mcs"), "shm", false, &f, &space))
			_exit(1);
		(void)leave_ghost(space, &g);
		usleep(2000); /* most often the keeper is inside; right either way */
/* The leak checker would stop the keeper first, and take what only its stack refers to for lost. */
#ifdef VB_ASAN
		_exit(0);
#endif
		exit(0);
	}
	ends_well(pid);
}

/* ---- no_keeper makes no threads, and without it there is one for the thread ---- */

static unsigned threads(void)
{
	DIR *d = opendir("/proc/self/task");
	unsigned n = 0;

	assert_non_null(d);
	for (const struct dirent *e; (e = readdir(d)) != NULL;)
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

/* One that was joined is listed until the kernel is done with it, and under qemu-user for longer. */
static unsigned threads_settled(void)
{
	unsigned n = threads();

	for (unsigned same = 0; same < 20; same++) {
		unsigned now;

		usleep(1000);
		now = threads();
		if (now != n)
			same = 0;
		n = now;
	}
	return n;
}

static void count_threads(bool no_keeper)
{
	struct vb_lock_client *a, *b;
	struct vb_lock_space *space;
	struct vb_fabric *f;
	struct vb_grant g;
	unsigned before;

	assert_true(open_world(vb_lock_find("mcs"), "shm", no_keeper, &f, &space));
	assert_int_equal(vb_lock_client_open(space, 0, &a), 0);
	assert_int_equal(vb_lock_client_open(space, 0, &b), 0);
	before = threads_settled();
	assert_int_equal(vb_lock_acquire(a, THE_LOCK, VB_EXCLUSIVE, PATIENCE_NS, &g), 0);
	assert_int_equal(threads(), before);
	assert_int_equal(vb_lock_acquire(b, THE_LOCK, VB_SHARED, GIVE_UP_NS, &(struct vb_grant){0}),
			 -ETIMEDOUT);
	assert_int_equal(threads(), before + !no_keeper);
	assert_int_equal(vb_lock_release(a, &g), 0);
	vb_lock_client_close(b);
	vb_lock_client_close(a);
	vb_lock_space_close(space);
	vb_fabric_close(f);
}

static void *count_body(void *arg)
{
	count_threads(*(const bool *)arg);
	return NULL;
}

/* On threads of their own: a keeper stays with its thread. */
static void test_threads(void **state)
{
	static const bool no_keeper[] = {true, false};
	pthread_t t;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(pthread_create(&t, NULL, count_body, (void *)&no_keeper[i]), 0);
		pthread_join(t, NULL);
	}
}

/* ---- a database server that a thread has started as a task, and left ---- */

struct db_served {
	struct vb_db *db;
	sem_t up, stop;
	int err;
};

static void *db_server_body(void *arg)
{
	struct db_served *v = arg;
	struct vb_db_server *server = NULL;

	v->err = vb_db_server_start(v->db, 0, &server);
	sem_post(&v->up);
	sem_wait(&v->stop);
	vb_db_server_stop(server);
	return NULL;
}

static void insert(struct vb_db *db, struct vb_table *table)
{
	struct vb_coordinator *me;
	uint64_t record = 7, got = 0;

	assert_int_equal(vb_coordinator_open(db, 0, &me), 0);
	for (uint64_t key = 1; key <= 5; key++) {
		assert_int_equal(vb_txn_begin(me), 0);
		assert_int_equal(vb_txn_insert(me, table, key, &record), 0);
		assert_int_equal(vb_txn_commit(me), 0);
	}
	assert_int_equal(vb_txn_begin(me), 0);
	assert_int_equal(vb_txn_read(me, table, 5, &got), 0);
	assert_int_equal(vb_txn_commit(me), 0);
	assert_int_equal(got, record);
	vb_coordinator_close(me);
}

static void test_db_server(void **state)
{
	const struct vb_db_params dp = {.cc = "silo", .lease_ns = LEASE_NS};
	const struct vb_table_params tp = {.name = "t", .record_bytes = 8, .records = 64};
	const struct vb_fabric_params fp = {.fabric = *state, .node_bytes = 64 << 20};
	struct db_served v = {0};
	struct vb_table *table;
	struct vb_fabric *f;
	pthread_t t;

	if (vb_fabric_find(fp.fabric)->absent != NULL && vb_fabric_find(fp.fabric)->absent())
		return;
	assert_int_equal(vb_fabric_open(&fp, &f), 0);
	assert_int_equal(vb_db_open(f, &dp, &v.db), 0);
	assert_int_equal(vb_table_open(v.db, &tp, &table), 0);
	sem_init(&v.up, 0, 0);
	sem_init(&v.stop, 0, 0);
	assert_int_equal(pthread_create(&t, NULL, db_server_body, &v), 0);
	sem_wait(&v.up);
	assert_int_equal(v.err, 0);
	insert(v.db, table);
	sem_post(&v.stop);
	pthread_join(t, NULL);
	vb_db_close(v.db);
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
	bool tcp = argc > 1 && strcmp(argv[1], "tcp") == 0;
	size_t n = 0;

	if (!tcp) {
		/* First: the thread sanitizer takes no threads in the child of a process that had
		 * some. */
		n = add(tests, n, "exit", test_exit, NULL);
		n = add(tests, n, "fork", test_fork, NULL);
		n = add(tests, n, "fork, a closed client", test_fork_ghost, NULL);
		n = add(tests, n, "threads", test_threads, NULL);
	}
	n = add(tests, n, "database server", test_db_server, NULL);
	tests[n - 1].initial_state = tcp ? "tcp" : "shm";
	for (const struct vb_lock_ops *const *l = vb_locks; *l; l++) {
		if (tcp) {
			n = add(tests, n, "tcp", test_tcp, *l);
			continue;
		}
		n = add(tests, n, "shm", test_shm, *l);
		n = add(tests, n, "close", test_close, *l);
		if ((*l)->serve)
			n = add(tests, n, "server", test_server, *l);
	}
	return _cmocka_run_group_tests("background", tests, n, NULL, NULL);
}
