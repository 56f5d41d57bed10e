/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments under programs that do odd things: one whose stderr is closed, one that uses
 * segments of two clocks, a child that closes its parent's fabric, threads that close beside each
 * other.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>

#include "base/clock.h"
#include "child.h"
#include "fabric/shm/inner.h"
#include "procs.h"

#include <verbena/cluster.h>
#include <verbena/lock.h>

static char name[48], other[48];

static struct vb_fabric_params params(const char *segment, bool attach)
{
	return (struct vb_fabric_params){
		.fabric = "shm", .name = segment, .node_bytes = 1 << 20, .attach = attach};
}

static int setup(void **state)
{
	(void)state;
	snprintf(name, sizeof(name), "apart-%d", (int)getpid());
	snprintf(other, sizeof(other), "apart-other-%d", (int)getpid());
	return 0;
}

static int ends_with(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static uint64_t first_word(const char *segment)
{
	uint64_t word = 0;
	char path[96];
	int fd;

	snprintf(path, sizeof(path), "/dev/shm/verbena.%s", segment);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &word, sizeof(word), 0), sizeof(word));
	close(fd);
	return word;
}

/* Its complaint has nowhere to go, and does not go into the segment. */
static void test_no_stderr(void **state)
{
	struct vb_fabric_params p = params(name, false);
	struct vb_fabric *f;
	uint64_t word;
	pid_t pid;

	(void)state;
	assert_int_equal(vb_fabric_open(&p, &f), 0);
	word = first_word(name);
	pid = fork_child();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct vb_fabric *mine;

		close(STDERR_FILENO);
		_exit(vb_fabric_open(&p, &mine) == -EBUSY ? 0 : 1);
	}
	assert_int_equal(ends_with(pid), 0);
	assert_int_equal(first_word(name), word);
	assert_int_equal(vb_fabric_close(f), 0);
}

/* A process that has made `other` by a clock a third of a second from ours, and goes when it is told. */
struct other_maker {
	pid_t pid;
	int made, done;
};

/* On a machine whose clock is not the counter it is one of any rate: only what it shows is compared. */
static void set_apart(void)
{
#if VB_CLOCK_COUNTER
	if (!vb_clock.use_tsc) {
		vb_clock.tsc_base = vb_tsc();
		vb_clock.ns_base = vb_clock_gettime_ns();
		vb_clock.mult = 1u << 23;
	}
#endif
	vb_clock.ns_base += 320000000;
	vb_clock.use_tsc = 1;
}

static struct other_maker start_other_maker(void)
{
	int made[2], done[2];
	struct vb_fabric *g;
	pid_t pid;
	char c;

	assert_int_equal(pipe(made) | pipe(done), 0);
	pid = fork_child();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct vb_fabric_params p = params(other, false);

		close(made[0]);
		close(done[1]);
		vb_clock_init();
		set_apart();
		if (vb_fabric_open(&p, &g) != 0 || write(made[1], "m", 1) != 1 ||
		    read(done[0], &c, 1) != 1)
			_exit(1);
		_exit(vb_fabric_close(g));
	}
	/* It ends with us, whatever becomes of this test. */
	close(made[1]);
	close(done[0]);
	assert_int_equal(read(made[0], &c, 1), 1);
	return (struct other_maker){.pid = pid, .made = made[0], .done = done[1]};
}

static void end_other_maker(const struct other_maker *m)
{
	assert_int_equal(write(m->done, "d", 1), 1);
	assert_int_equal(ends_with(m->pid), 0);
	close(m->made);
	close(m->done);
}

/* Leases in it would be off by as much. */
static void test_two_clocks(void **state)
{
	struct vb_fabric_params mine = params(name, false), theirs = params(other, true);
	struct other_maker maker = start_other_maker();
	struct vb_fabric *f, *g;
	char said[512];

	(void)state;
	assert_int_equal(vb_fabric_open(&mine, &f), 0);
	vb_log_capture_begin(said, sizeof(said));
	assert_int_equal(vb_fabric_open(&theirs, &g), -EBUSY);
	vb_log_capture_end();
	assert_non_null(strstr(said, "goes by another clock"));
	assert_int_equal(vb_fabric_close(f), 0);
	/* With nothing else open we go by its clock; and what we make then does, too. */
	assert_int_equal(vb_fabric_open(&theirs, &g), 0);
	assert_int_equal(vb_fabric_open(&mine, &f), 0);
	assert_int_equal(vb_fabric_close(f), 0);
	assert_int_equal(vb_fabric_close(g), 0);
	end_other_maker(&maker);
}

/* A cluster, too, goes by a clock.  One that is opened after the segment has the segment's. */
static void test_two_clocks_and_a_cluster(void **state)
{
	struct vb_cluster_params alone = {
		.hosts = 1, .role = VB_CLUSTER_ROOT, .meet = "127.0.0.1:0"};
	struct vb_fabric_params theirs = params(other, true);
	struct other_maker maker = start_other_maker();
	struct vb_cluster *c;
	struct vb_fabric *g;
	char said[512];

	(void)state;
	assert_int_equal(vb_cluster_open(&alone, &c), 0);
	vb_log_capture_begin(said, sizeof(said));
	assert_int_equal(vb_fabric_open(&theirs, &g), -EBUSY);
	vb_log_capture_end();
	assert_non_null(strstr(said, "open this segment first"));
	vb_cluster_close(c);
	assert_int_equal(vb_fabric_open(&theirs, &g), 0);
	assert_int_equal(vb_cluster_open(&alone, &c), 0);
	vb_cluster_close(c);
	assert_int_equal(vb_fabric_close(g), 0);
	end_other_maker(&maker);
}

struct opening {
	struct vb_fabric_params p;
	pthread_barrier_t *at_once;
	struct vb_fabric *f;
	uint64_t late_ns;
	int err;
};

static void *opens(void *arg)
{
	struct opening *o = arg;
	uint64_t until;

	pthread_barrier_wait(o->at_once);
	until = vb_clock_gettime_ns() + o->late_ns;
	while (vb_clock_gettime_ns() < until)
		sched_yield();
	o->err = vb_fabric_open(&o->p, &o->f);
	return NULL;
}

/* One thread makes a segment while another joins one of another clock: whichever is first decides. */
static void test_two_clocks_at_once(void **state)
{
	struct other_maker maker = start_other_maker();
	struct vb_clock own;
	char said[1024];

	(void)state;
	vb_clock_init();
	own = vb_clock;
	for (unsigned i = 0; i < 500; i++) {
		pthread_barrier_t at_once;
		struct opening o[2] = {
			{.p = params(name, false), .at_once = &at_once},
			{.p = params(other, true), .at_once = &at_once, .late_ns = i % 50 * 8000}};
		pthread_t t[2];

		vb_clock = own;
		assert_int_equal(pthread_barrier_init(&at_once, NULL, 2), 0);
		vb_log_capture_begin(said, sizeof(said));
		for (unsigned k = 0; k < 2; k++)
			assert_int_equal(pthread_create(&t[k], NULL, opens, &o[k]), 0);
		for (unsigned k = 0; k < 2; k++)
			pthread_join(t[k], NULL);
		vb_log_capture_end();
		pthread_barrier_destroy(&at_once);
		assert_int_equal(o[0].err, 0);
		assert_true(o[1].err == 0 || o[1].err == -EBUSY);
		assert_memory_equal(&((struct shm_fabric *)o[0].f)->h->clock, &vb_clock,
				    sizeof(vb_clock));
		for (unsigned k = 0; k < 2; k++)
			assert_int_equal(o[k].err == 0 ? vb_fabric_close(o[k].f) : 0, 0);
	}
	vb_clock = own;
	end_other_maker(&maker);
}

/* A told child may close its parent's fabric, and has no client then. */
static void test_child_closes(void **state)
{
	const struct vb_lock_space_params sp = {.lock = "cas", .locks = 4};
	struct vb_fabric_params p = params(name, false);
	struct vb_lock_client *me;
	struct vb_lock_space *s;
	struct vb_fabric *f;
	struct vb_grant g;
	pid_t pid;

	(void)state;
	assert_int_equal(vb_fabric_open(&p, &f), 0);
	assert_int_equal(vb_lock_space_open(f, &sp, &s), 0);
	assert_int_equal(vb_lock_client_open(s, 0, &me), 0);
	pid = fork_child();
	assert_true(pid >= 0);
	if (pid == 0) {
		vb_fabric_after_fork(f);
		if (vb_fabric_close(f) != 0)
			_exit(1);
		for (volatile unsigned i = 0; i < 64; i++) {
			/* What was freed is used again. */
			volatile char *p1 = malloc(64 + 64 * i);

			for (unsigned k = 0; p1 != NULL && k < 64 + 64 * i; k++)
				p1[k] = (char)0xa5;
		}
		_exit(vb_lock_acquire(me, 1, VB_EXCLUSIVE, 1000, &g) == -VB_EFOREIGN ? 0 : 2);
	}
	assert_int_equal(ends_with(pid), 0);
	assert_int_equal(vb_lock_acquire(me, 1, VB_EXCLUSIVE, 1000, &g), 0);
	assert_int_equal(vb_lock_release(me, &g), 0);
	vb_lock_client_close(me);
	assert_int_equal(vb_lock_space_close(s), 0);
	assert_int_equal(vb_fabric_close(f), 0);
}

struct beside {
	struct vb_lock_space *space;
	struct vb_lock_server *server;
	pthread_barrier_t opened;
};

static void *opens_and_closes(void *arg)
{
	struct beside *b = arg;
	struct vb_lock_client *me;

	assert_int_equal(vb_lock_client_open(b->space, 0, &me), 0);
	pthread_barrier_wait(&b->opened);
	vb_lock_client_close(me);
	return NULL;
}

static void *stops(void *arg)
{
	struct beside *b = arg;

	pthread_barrier_wait(&b->opened);
	vb_lock_server_stop(b->server);
	return NULL;
}

/* Who closes the fabric as soon as it lets itself be closed finds nobody on it any more. */
static void test_close_beside(void **state)
{
	const struct vb_lock_space_params sp = {.lock = "rpc", .locks = 4};
	struct vb_fabric_params p = params(NULL, false);

	(void)state;
	for (unsigned i = 0; i < 200; i++) {
		pthread_t client, server;
		struct beside b;
		struct vb_fabric *f;
		char said[4096];

		assert_int_equal(vb_fabric_open(&p, &f), 0);
		assert_int_equal(vb_lock_space_open(f, &sp, &b.space), 0);
		assert_int_equal(vb_lock_server_thread_start(b.space, 0, &b.server), 0);
		assert_int_equal(pthread_barrier_init(&b.opened, NULL, 3), 0);
		assert_int_equal(pthread_create(&client, NULL, opens_and_closes, &b), 0);
		assert_int_equal(pthread_create(&server, NULL, stops, &b), 0);
		pthread_barrier_wait(&b.opened);
		vb_log_capture_begin(said, sizeof(said));
		while (vb_lock_space_close(b.space) == -EBUSY)
			sched_yield();
		while (vb_fabric_close(f) == -EBUSY)
			sched_yield();
		vb_log_capture_end();
		pthread_join(client, NULL);
		pthread_join(server, NULL);
		pthread_barrier_destroy(&b.opened);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_no_stderr, setup),
		cmocka_unit_test_setup(test_two_clocks, setup),
		cmocka_unit_test_setup(test_two_clocks_and_a_cluster, setup),
		cmocka_unit_test_setup(test_two_clocks_at_once, setup),
		cmocka_unit_test_setup(test_child_closes, setup),
		cmocka_unit_test_setup(test_close_beside, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
