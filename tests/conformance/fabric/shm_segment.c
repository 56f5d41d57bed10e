/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a segment's name: busy, stale, refused, and nothing left behind. */
#include <fcntl.h>
#include <sys/prctl.h>

#include "child.h"
#include "procs.h"

static const char *name;

static struct vb_fabric_params params(void)
{
	return (struct vb_fabric_params){.name = name, .node_bytes = 1 << 16, .endpoints = 4};
}

static int setup(void **state)
{
	(void)state;
	name = unique_name();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	return segment_exists(name); /* whatever happened, nothing stays */
}

/* Opens, and looks at the one line that was logged. */
static int open_said(const struct vb_fabric_params *p, struct vb_fabric **f, char *said, size_t n)
{
	int err;

	said[0] = '\0';
	vb_log_capture_begin(said, n);
	err = vb_fabric_open(p, f);
	vb_log_capture_end();
	return err;
}

static void test_busy(void **state)
{
	struct vb_fabric_params p = params();
	struct vb_fabric *f, *second = NULL;
	char said[512], pid[32];

	(void)state;
	assert_int_equal(vb_fabric_open(&p, &f), 0);
	assert_true(segment_exists(name));
	assert_int_equal(open_said(&p, &second, said, sizeof(said)), -EBUSY);
	assert_null(second);
	snprintf(pid, sizeof(pid), "process %d", (int)getpid());
	assert_non_null(strstr(said, pid));
	assert_non_null(strstr(said, name));
	assert_true(segment_exists(name));
	vb_fabric_close(f);
	assert_false(segment_exists(name));
	assert_int_equal(vb_fabric_open(&p, &f), 0);
	vb_fabric_close(f);
}

static void body_open_and_stop(struct vb_fabric *none, unsigned tell, void *unused)
{
	struct vb_fabric_params p = params();
	struct vb_fabric *f;

	(void)none;
	(void)unused;
	child_must(vb_fabric_open(&p, &f) == 0);
	child_must(write((int)tell, "x", 1) == 1);
	for (;;)
		pause();
}

/* As above, with a child of its own that goes on. */
static void body_open_and_fork(struct vb_fabric *none, unsigned tell, void *unused)
{
	struct vb_fabric_params p = params();
	struct vb_fabric *f;
	pid_t pid;

	(void)none;
	(void)unused;
	child_must(vb_fabric_open(&p, &f) == 0);
	pid = fork_child();
	child_must(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, 0); /* outlives its parent, but no alarm */
		alarm(200);
		vb_fabric_after_fork(f);
		pid = getpid();
		child_must(write((int)tell, &pid, sizeof(pid)) == sizeof(pid));
	}
	for (;;)
		pause();
}

static void test_stale(void **state)
{
	struct vb_fabric_params p = params(), join = params();
	struct vb_fabric *f;
	char said[512], x;
	int pipes[2];
	pid_t pid;

	(void)state;
	join.attach = true;
	assert_int_equal(pipe(pipes), 0);
	pid = start_child(NULL, (unsigned)pipes[1], body_open_and_stop, NULL);
	assert_int_equal(read(pipes[0], &x, 1), 1);
	assert_int_equal(vb_fabric_open(&p, &f), -EBUSY);
	kill_child(pid);
	assert_true(segment_exists(name));
	assert_int_equal(open_said(&join, &f, said, sizeof(said)), -ENOENT);
	assert_non_null(strstr(said, "gone"));
	assert_int_equal(open_said(&p, &f, said, sizeof(said)), 0);
	assert_non_null(strstr(said, "taking it over"));
	vb_fabric_close(f);
	close(pipes[0]);
	close(pipes[1]);
}

static void test_busy_by_child(void **state)
{
	struct vb_fabric_params p = params();
	struct vb_fabric *f;
	int pipes[2], err = -EBUSY;
	pid_t pid, child;

	(void)state;
	assert_int_equal(pipe(pipes), 0);
	pid = start_child(NULL, (unsigned)pipes[1], body_open_and_fork, NULL);
	assert_int_equal(read(pipes[0], &child, sizeof(child)), sizeof(child));
	kill_child(pid);
	assert_int_equal(vb_fabric_open(&p, &f), -EBUSY); /* the creator's child still uses it */
	assert_int_equal(kill(child, SIGKILL), 0);
	/* It is not our child, so there is no waiting for it but to ask again. */
	for (unsigned i = 0; err == -EBUSY && i < 3000; i++) {
		usleep(10000);
		err = vb_fabric_open(&p, &f);
	}
	assert_int_equal(err, 0);
	vb_fabric_close(f);
	close(pipes[0]);
	close(pipes[1]);
}

static void test_attach_nothing(void **state)
{
	struct vb_fabric_params p = params();
	struct vb_fabric *f;
	char path[300], junk[100] = "no segment";
	int fd;

	(void)state;
	p.attach = true;
	assert_int_equal(vb_fabric_open(&p, &f), -ENOENT);
	snprintf(path, sizeof(path), "/dev/shm/verbena.%s", name);
	fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, junk, sizeof(junk)), sizeof(junk));
	close(fd);
	assert_int_equal(vb_fabric_open(&p, &f), -EPROTO);
	unlink(path);
	p.name = NULL;
	assert_int_equal(vb_fabric_open(&p, &f), -EINVAL);
}

static void test_does_not_fit(void **state)
{
	struct vb_fabric_params p = params();
	struct vb_fabric *f = NULL;
	char said[512];

	(void)state;
	p.node_bytes = 1ull << 46;
	assert_int_equal(open_said(&p, &f, said, sizeof(said)), -ENOMEM);
	assert_non_null(strstr(said, "does not fit"));
	assert_non_null(strstr(said, "available"));
	assert_false(segment_exists(name));
	p.name = NULL;
	assert_int_equal(open_said(&p, &f, said, sizeof(said)), -ENOMEM);
	assert_null(f);
}

static void test_bad_parameters(void **state)
{
	static const struct vb_fabric_params bad[] = {
		{.name = ""},
		{.name = "a/b"},
		{.fabric = "shmm"},
		{.nodes = 4097},
		{.node_bytes = 4095},
		{.node_bytes = 1ull << 49},
		{.endpoints = 131073},
		{.options = "ring=many"},
		{.options = "ring=8"},
		{.options = "bell=1"},
		{.fabric = "sim", .attach = true, .name = "x"},
	};
	struct vb_fabric *f = NULL;
	char said[512], lengthy[202];
	struct vb_fabric_params p = {.name = lengthy};

	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(bad); i++) {
		assert_int_equal(open_said(&bad[i], &f, said, sizeof(said)), -EINVAL);
		assert_true(said[0] != '\0');
		assert_null(f);
	}
	assert_int_equal(open_said(&bad[2], &f, said, sizeof(said)), -EINVAL);
	assert_non_null(strstr(said, "shm, sim, verbs, tcp, ucx are"));
	memset(lengthy, 'n', sizeof(lengthy) - 1);
	lengthy[sizeof(lengthy) - 1] = '\0';
	assert_int_equal(open_said(&p, &f, said, sizeof(said)), -EINVAL);
}

/* 0 and NULL mean what the header says; and the most of everything is allowed. */
static void test_defaults(void **state)
{
	const struct vb_fabric_params p = {0};
	const struct vb_fabric_params most = {
		.fabric = "sim", .nodes = 4096, .node_bytes = 4096, .endpoints = 131072};
	const char *const far[] = {"verbs", "ucx"};
	static struct vb_ep *e[1024];
	char lengthy[201], said[512];
	struct vb_fabric *f = NULL;
	struct vb_ep *more;

	(void)state;
	assert_int_equal(vb_fabric_open(&p, &f), 0);
	assert_string_equal(f->ops->name, "shm");
	assert_int_equal(f->nodes, 1);
	assert_int_equal(f->node_bytes, 64 << 20);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(e); i++)
		assert_int_equal(vb_ep_open(f, 0, &e[i]), 0);
	assert_int_equal(vb_ep_open(f, 0, &more), -ENOSPC);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(e); i++)
		vb_ep_close(e[i]);
	vb_fabric_close(f);
	vb_fabric_close(NULL);
	assert_int_equal(vb_fabric_open(&most, &f), 0);
	assert_int_equal(f->nodes, 4096);
	vb_fabric_close(f);
	memset(lengthy, 'n', sizeof(lengthy) - 1);
	lengthy[sizeof(lengthy) - 1] = '\0';
	memcpy(lengthy, name, strlen(name));
	assert_int_equal(
		vb_fabric_open(&(struct vb_fabric_params){.name = lengthy, .node_bytes = 4096}, &f),
		0);
	vb_fabric_close(f);
	f = NULL;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(far); i++) {
		const struct vb_fabric_params there = {.fabric = far[i]};

		if (vb_fabric_find(far[i])->absent() == NULL)
			continue;
		assert_int_equal(open_said(&there, &f, said, sizeof(said)), -ENODEV);
		assert_non_null(strstr(said, far[i]));
		assert_null(f);
	}
}

static void body_open_close(struct vb_fabric *none, unsigned number, void *unused)
{
	struct vb_fabric_params p = params();
	struct vb_fabric *f;

	(void)none;
	(void)number;
	(void)unused;
	p.node_bytes = 8 << 20;
	for (;;) {
		if (vb_fabric_open(&p, &f) == 0)
			vb_fabric_close(f);
	}
}

/* Openers are killed anywhere in open and close: the name is free or stale afterwards, never stuck.
 */
static void test_killed_openers(void **state)
{
	struct vb_fabric_params p = params();
	struct vb_fabric *f;
	struct vb_rng rng;

	(void)state;
	vb_rng_seed(&rng, 5, 5);
	for (unsigned i = 0; i < 60; i++) {
		pid_t pid = start_child(NULL, 0, body_open_close, NULL);

		usleep((useconds_t)vb_rng_below(&rng, 6000));
		kill_child(pid);
		assert_int_equal(vb_fabric_open(&p, &f), 0);
		vb_fabric_close(f);
		assert_false(segment_exists(name));
	}
}

/* Pipes: what starts the race, what each says of its end, what lets them go home. */
struct race {
	int go[2], done[2], end[2];
};

static void body_racer(struct vb_fabric *none, unsigned number, void *arg)
{
	struct vb_fabric_params p = params();
	struct race *r = arg;
	struct vb_fabric *f;
	char x;
	int err;

	(void)none;
	(void)number;
	child_must(read(r->go[0], &x, 1) == 1);
	err = vb_fabric_open(&p, &f);
	child_must(err == 0 || err == -EBUSY);
	x = err == 0;
	child_must(write(r->done[1], &x, 1) == 1);
	child_must(read(r->end[0], &x, 1) == 1);
	if (err == 0)
		vb_fabric_close(f);
}

/* Of those who open one name at once exactly one gets it. */
static void test_opening_race(void **state)
{
	enum { RACERS = 4 };

	(void)state;
	for (unsigned round = 0; round < 20; round++) {
		pid_t pids[RACERS];
		unsigned won = 0;
		struct race r;

		assert_true(pipe(r.go) == 0 && pipe(r.done) == 0 && pipe(r.end) == 0);
		for (unsigned i = 0; i < RACERS; i++)
			pids[i] = start_child(NULL, i, body_racer, &r);
		assert_int_equal(write(r.go[1], "gggg", RACERS), RACERS);
		for (unsigned i = 0; i < RACERS; i++) {
			char x;

			assert_int_equal(read(r.done[0], &x, 1), 1);
			won += (unsigned)x;
		}
		assert_int_equal(won, 1);
		assert_int_equal(write(r.end[1], "eeee", RACERS), RACERS);
		for (unsigned i = 0; i < RACERS; i++)
			end_child(pids[i]);
		for (unsigned i = 0; i < 2; i++) {
			close(r.go[i]);
			close(r.done[i]);
			close(r.end[i]);
		}
		assert_false(segment_exists(name));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_busy, setup, teardown),
		cmocka_unit_test_setup_teardown(test_stale, setup, teardown),
		cmocka_unit_test_setup_teardown(test_busy_by_child, setup, teardown),
		cmocka_unit_test_setup_teardown(test_attach_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(test_does_not_fit, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bad_parameters, setup, teardown),
		cmocka_unit_test_setup_teardown(test_defaults, setup, teardown),
		cmocka_unit_test_setup_teardown(test_killed_openers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_opening_race, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
