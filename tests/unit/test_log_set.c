/* SPDX-License-Identifier: Apache-2.0 */
/* The program's own function for the log, and the levels that it sets. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <verbena/fabric.h>

#define VB_LOG_ROOM "lock"
#include "base/log.h"
#include "child.h"
#include "task/task.h"

#define THREADS 4
#define LINES   200

struct heard {
	unsigned n;
	enum vb_log_level level;
	char part[32];
	char text[1100];
};

static void hear(void *user, const struct vb_log_message *m)
{
	struct heard *h = user;

	h->n++;
	h->level = m->level;
	snprintf(h->part, sizeof(h->part), "%s", m->part);
	snprintf(h->text, sizeof(h->text), "%s", m->text);
}

/* What body writes to stderr. */
static const char *stderr_of(void (*body)(void))
{
	static char text[4096];
	int was = dup(STDERR_FILENO), file = memfd_create("stderr", MFD_CLOEXEC);
	ssize_t n;

	assert_true(was >= 0 && file >= 0);
	dup2(file, STDERR_FILENO);
	body();
	dup2(was, STDERR_FILENO);
	close(was);
	n = pread(file, text, sizeof(text) - 1, 0);
	assert_true(n >= 0);
	text[n] = '\0';
	close(file);
	return text;
}

static int back(void **state)
{
	(void)state;
	return vb_log_set(NULL, NULL) != 0 || vb_log_levels("warn") != 0;
}

/* ---- what it gets ---- */

static void say_three(void)
{
	struct vb_fabric *f;

	errno = ENOSPC;
	vb_error("what \x1b[2J %d", 7);
	assert_int_equal(errno, ENOSPC);
	vb_warn("so");
	assert_int_equal(vb_fabric_open(NULL, &f), -EINVAL);
}

static void test_function(void **state)
{
	struct heard h = {0};

	assert_int_equal(vb_log_set(hear, &h), 0);
	assert_string_equal(stderr_of(say_three), "");
	assert_int_equal(h.n, 3);
	assert_int_equal(h.level, VB_LOG_ERROR);
	assert_string_equal(h.part, "fabric");
	assert_non_null(strstr(h.text, "vb_fabric_open"));
	vb_error("what \x1b[2J %d", 7);
	assert_string_equal(h.part, "lock");
	assert_string_equal(h.text, "what ?[2J 7");
	vb_warn("%0980d", 1);
	assert_int_equal(h.level, VB_LOG_WARN);
	assert_int_equal(strlen(h.text), 980);
	vb_info("not said");
	assert_int_equal(h.n, 5);
	assert_int_equal(vb_log_set(NULL, &h), 0);
	assert_int_equal(strncmp(stderr_of(say_three), "verbena: lock: error: what ?[2J 7\n", 34),
			 0);
	assert_int_equal(h.n, 5);
}

/* ---- who calls it ---- */

static void count(void *user, const struct vb_log_message *m)
{
	unsigned *by_thread = user;
	int who = m->text[0] - 'a';

	assert_in_range(who, 0, THREADS - 1);
	assert_int_equal(strlen(m->text), 100);
	assert_int_equal(strspn(m->text, (char[]){m->text[0], '\0'}), 100);
	__atomic_fetch_add(&by_thread[who], 1, __ATOMIC_RELAXED);
}

static void *log_lines(void *arg)
{
	char text[100];

	memset(text, 'a' + (int)(intptr_t)arg, sizeof(text));
	for (int i = 0; i < LINES; i++)
		vb_error("%.*s", (int)sizeof(text), text);
	return NULL;
}

static void test_together(void **state)
{
	unsigned by_thread[THREADS] = {0};
	pthread_t t[THREADS];

	assert_int_equal(vb_log_set(count, by_thread), 0);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, log_lines, (void *)(intptr_t)i), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(by_thread[i], LINES);
}

/* Writes to 16 KiB of its stack: a guard page lies below a task's. */
static void deep(void *user, const struct vb_log_message *m)
{
	volatile char room[16 << 10];

	for (size_t i = 0; i < sizeof(room); i += 64)
		room[i] = (char)i;
	hear(user, m);
	assert_int_equal(room[64], 64);
}

static void say(void *arg)
{
	vb_error("%s", (const char *)arg);
}

static void test_on_a_task(void **state)
{
	struct heard h = {0};
	struct vb_sched *s;
	struct vb_task *t;

	assert_int_equal(vb_sched_create(NULL, NULL, &s), 0);
	assert_int_equal(vb_log_set(deep, &h), 0);
	assert_int_equal(vb_task_spawn(s, say, "of a task", NULL, &t), 0);
	assert_int_equal(vb_sched_run(s, NULL, VB_FOREVER), 0);
	assert_string_equal(h.text, "of a task");
	vb_sched_destroy(s);
}

/* ---- replacing it ---- */

struct slow {
	unsigned inside; /* how far the thread is in it: 1 in, 2 may leave, 3 on its way out */
};

static void be_slow(void *user, const struct vb_log_message *m)
{
	struct slow *s = user;

	__atomic_store_n(&s->inside, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&s->inside, __ATOMIC_SEQ_CST) != 2)
		usleep(100);
	usleep(20000);
	__atomic_store_n(&s->inside, 3, __ATOMIC_SEQ_CST);
}

static void *say_slowly(void *arg)
{
	vb_error("slowly");
	return arg;
}

static pthread_t begin_slowly(struct slow *s)
{
	pthread_t t;

	assert_int_equal(vb_log_set(be_slow, s), 0);
	assert_int_equal(pthread_create(&t, NULL, say_slowly, NULL), 0);
	while (__atomic_load_n(&s->inside, __ATOMIC_SEQ_CST) != 1)
		usleep(100);
	return t;
}

static void test_replaced(void **state)
{
	struct slow s = {0};
	pthread_t t = begin_slowly(&s);

	__atomic_store_n(&s.inside, 2, __ATOMIC_SEQ_CST);
	assert_int_equal(vb_log_set(NULL, NULL), 0);
	assert_int_equal(__atomic_load_n(&s.inside, __ATOMIC_SEQ_CST), 3);
	pthread_join(t, NULL);
}

static struct {
	unsigned inside; /* a bit for each thread that has been there */
	bool replaced;
	int in_time;
} talk;

static void linger(void *user, const struct vb_log_message *m)
{
	__atomic_fetch_or(&talk.inside, 1u << (m->text[0] - 'a'), __ATOMIC_SEQ_CST);
	usleep(500);
}

/* Without a pause, until the function was replaced; NULL: it was not. */
static void *talk_on(void *arg)
{
	struct timespec t;
	time_t end;

	clock_gettime(CLOCK_MONOTONIC, &t);
	end = t.tv_sec + 30;
	do {
		if (__atomic_load_n(&talk.replaced, __ATOMIC_SEQ_CST))
			return arg;
		vb_error("%c", 'a' + (int)(intptr_t)arg - 1);
		clock_gettime(CLOCK_MONOTONIC, &t);
	} while (t.tv_sec < end);
	return NULL;
}

static pthread_t talkers[THREADS];

static void replace_it(void)
{
	bool set = vb_log_set(NULL, NULL) == 0;

	__atomic_store_n(&talk.replaced, true, __ATOMIC_SEQ_CST);
	for (int i = 0; i < THREADS; i++) {
		void *in_time;

		pthread_join(talkers[i], &in_time);
		talk.in_time += set && in_time != NULL;
	}
}

/* There is always somebody in it: the last has not left when the next has come. */
static void test_replaced_in_a_crowd(void **state)
{
	assert_int_equal(vb_log_set(linger, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(
			pthread_create(&talkers[i], NULL, talk_on, (void *)(intptr_t)(i + 1)), 0);
	while (__atomic_load_n(&talk.inside, __ATOMIC_SEQ_CST) != (1u << THREADS) - 1)
		usleep(100);
	(void)stderr_of(replace_it);
	assert_int_equal(talk.in_time, THREADS);
}

static void test_forked(void **state)
{
	struct slow s = {0};
	struct heard h = {0};
	pthread_t t = begin_slowly(&s);
	int status;
	pid_t pid = fork_child();

	assert_true(pid >= 0);
	if (pid == 0) {
		alarm(60);
		if (vb_log_set(hear, &h) != 0)
			_exit(1);
		vb_error("of the child");
		_exit(h.n == 1 ? 0 : 2);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	__atomic_store_n(&s.inside, 2, __ATOMIC_SEQ_CST);
	pthread_join(t, NULL);
	assert_int_equal(vb_log_set(hear, &h), 0);
	pid = fork_child();
	if (pid == 0) {
		vb_error("of another");
		_exit(h.n == 1 && !strcmp(h.text, "of another") ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_int_equal(h.n, 0);
}

static void replace_itself(void *user, const struct vb_log_message *m)
{
	int *err = user;

	*err = vb_log_set(NULL, NULL);
}

static void say_once(void)
{
	vb_error("once");
}

static void test_from_within(void **state)
{
	int err = 0;

	assert_int_equal(vb_log_set(replace_itself, &err), 0);
	assert_string_equal(stderr_of(say_once),
			    "verbena: options: error: vb_log_set from the log's own function\n");
	assert_int_equal(err, -EDEADLK);
	err = 0;
	assert_string_not_equal(stderr_of(say_once), "");
	assert_int_equal(err, -EDEADLK);
}

static void write_out(void *user, const struct vb_log_message *m)
{
	(void)!write(*(int *)user, m->text, strlen(m->text));
}

static void test_assertion(void **state)
{
	const struct rlimit none = {0, 0};
	char text[512] = "", more[512] = "";
	int ends[2], both[2], status;
	pid_t pid;

	assert_int_equal(pipe(ends) | pipe(both), 0);
	pid = fork_child();
	if (pid == 0) {
		setrlimit(RLIMIT_CORE, &none);
		dup2(both[1], STDERR_FILENO);
		signal(SIGABRT, SIG_DFL);
		if (vb_log_levels("off") || vb_log_set(write_out, &ends[1]))
			_exit(1);
		vb_assert(1 + 1 == 3);
	}
	close(ends[1]);
	close(both[1]);
	assert_true(read(ends[0], text, sizeof(text) - 1) > 0);
	assert_true(read(both[0], more, sizeof(more) - 1) > 0);
	close(ends[0]);
	close(both[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	assert_non_null(strstr(text, "1 + 1 == 3"));
	assert_non_null(strstr(more, "1 + 1 == 3"));
}

/* ---- sent to a socket ---- */

/* The ends of one: messages go to ends[0]. */
static void open_ends(int ends[2], struct vb_log_socket *to)
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	*to = (struct vb_log_socket){.fd = ends[0]};
	assert_int_equal(vb_log_set(vb_log_send, to), 0);
}

static void expect_sent(int end, const char *what, size_t bytes)
{
	char got[2048];

	assert_int_equal(recv(end, got, sizeof(got), MSG_DONTWAIT), bytes);
	assert_memory_equal(got, what, bytes);
}

static void test_sent(void **state)
{
	struct vb_log_socket to;
	struct vb_sched *s;
	struct vb_task *t;
	char longest[1000];
	int ends[2], status;
	pid_t pid;

	open_ends(ends, &to);
	assert_string_equal(stderr_of(say_once), "");
	errno = ENOSPC;
	vb_warn("two\nlines");
	assert_int_equal(errno, ENOSPC);
	vb_error("%s", "");
	memset(longest, 'x', sizeof(longest));
	vb_error("%.980s", longest);
	assert_int_equal(vb_sched_create(NULL, NULL, &s), 0);
	assert_int_equal(vb_task_spawn(s, say, "of a task", NULL, &t), 0);
	assert_int_equal(vb_sched_run(s, NULL, VB_FOREVER), 0);
	vb_sched_destroy(s);
	pid = fork_child();
	if (pid == 0) {
		vb_error("of a child");
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	expect_sent(ends[1], "1lock\0once", 10);
	expect_sent(ends[1], "2lock\0two\nlines", 15);
	expect_sent(ends[1], "1lock", 6);
	assert_int_equal(recv(ends[1], longest, sizeof(longest), MSG_DONTWAIT), 986);
	expect_sent(ends[1], "1lock\0of a task", 15);
	expect_sent(ends[1], "1lock\0of a child", 16);
	assert_int_equal(to.lost, 0);
	assert_int_equal(vb_log_set(NULL, NULL), 0);
	close(ends[0]);
	close(ends[1]);
}

static void test_not_sent(void **state)
{
	struct vb_log_socket to;
	unsigned said = 0, there = 0;
	char got[64];
	int ends[2];

	/* Whoever runs the test may have it ignored. */
	signal(SIGPIPE, SIG_DFL);
	open_ends(ends, &to);
	/* The system gives a socket less than a million bytes. */
	while (to.lost < 3 && said < 100000) {
		vb_error("once");
		said++;
	}
	assert_int_equal(to.lost, 3);
	while (recv(ends[1], got, sizeof(got), MSG_DONTWAIT) == 10)
		there++;
	assert_int_equal(there + to.lost, said);
	vb_error("once");
	expect_sent(ends[1], "1lock\0once", 10);
	close(ends[1]);
	vb_error("once");
	assert_int_equal(to.lost, 4);
	close(ends[0]);
	assert_string_equal(stderr_of(say_once), "");
	assert_int_equal(to.lost, 5);
	/* Of the kinds of socket Linux has the signal for streams. */
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	to.fd = ends[0];
	close(ends[1]);
	vb_error("once");
	assert_int_equal(to.lost, 6);
	close(ends[0]);
	assert_int_equal(vb_log_set(NULL, NULL), 0);
}

/* ---- levels ---- */

static void test_levels(void **state)
{
	assert_int_equal(vb_log_levels("off"), 0);
	assert_false(vb_log_on("lock", VB_LOG_ERROR));
	assert_int_equal(vb_log_levels("error,lock:debug,shm:off,sim:trace,sim:info"), 0);
	assert_true(vb_log_on("cc", VB_LOG_ERROR));
	assert_false(vb_log_on("cc", VB_LOG_WARN));
	assert_true(vb_log_on("lock", VB_LOG_DEBUG));
	assert_false(vb_log_on("lock", VB_LOG_TRACE));
	assert_false(vb_log_on("shm", VB_LOG_ERROR));
	assert_true(vb_log_on("sim", VB_LOG_INFO));
	assert_false(vb_log_on("sim", VB_LOG_DEBUG));
	/* Nothing is left of what was said before. */
	assert_int_equal(vb_log_levels(""), 0);
	assert_true(vb_log_on("shm", VB_LOG_WARN));
	assert_false(vb_log_on("lock", VB_LOG_INFO));
}

static void test_bad_levels(void **state)
{
	struct heard h = {0};

	assert_int_equal(vb_log_set(hear, &h), 0);
	assert_int_equal(vb_log_levels("info"), 0);
	assert_int_equal(vb_log_levels("error,loud"), -EINVAL);
	assert_string_equal(h.text, "vb_log_levels: 'loud' is no level; off, error, warn, info, "
				    "debug and trace are");
	assert_int_equal(vb_log_levels("error,locc:warn"), -EINVAL);
	assert_non_null(strstr(h.text, "the parts are base, bench, cc,"));
	assert_int_equal(h.n, 3);
	assert_true(vb_log_on("lock", VB_LOG_INFO));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_function, back),
		cmocka_unit_test_teardown(test_together, back),
		cmocka_unit_test_teardown(test_on_a_task, back),
		cmocka_unit_test_teardown(test_replaced, back),
		cmocka_unit_test_teardown(test_replaced_in_a_crowd, back),
		cmocka_unit_test_teardown(test_forked, back),
		cmocka_unit_test_teardown(test_from_within, back),
		cmocka_unit_test_teardown(test_assertion, back),
		cmocka_unit_test_teardown(test_sent, back),
		cmocka_unit_test_teardown(test_not_sent, back),
		cmocka_unit_test_teardown(test_levels, back),
		cmocka_unit_test_teardown(test_bad_levels, back),
	};

	return cmocka_run_group_tests_name("log set", tests, NULL, NULL);
}
