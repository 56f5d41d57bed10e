/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log lines, error texts, failed assertions and the clock.
 *
 * VERBENA_LOG is read once per process, so what depends on it runs in a child: this program again,
 * with "child" and the name of what to do, its stderr a pipe.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <verbena/verbena.h>

#define VB_LOG_ROOM "lock"
#include "base/clock.h"
#include "base/log.h"
#include "child.h"

#define THREADS 4
#define LINES   500

/* ---- what the children do ---- */

static void *log_lines(void *arg)
{
	char text[200];

	memset(text, 'a' + (int)(intptr_t)arg, sizeof(text));
	for (int i = 0; i < LINES; i++)
		vb_log_write("threads", VB_LOG_ERROR, "%.*s", (int)sizeof(text), text);
	return NULL;
}

static void child_threads(void)
{
	pthread_t t[THREADS];

	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&t[i], NULL, log_lines, (void *)(intptr_t)i))
			_exit(3);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
}

static void child_levels(void)
{
	static const char *const rooms[] = {"lock", "shm", "sim"};

	for (size_t r = 0; r < VB_ARRAY_SIZE(rooms); r++)
		for (int level = VB_LOG_ERROR; level <= VB_LOG_TRACE; level++)
			if (vb_log_on(rooms[r], (enum vb_log_level)level))
				vb_log_write(rooms[r], (enum vb_log_level)level, "said");
}

static void child_long(void)
{
	vb_error("%05000d", 1);
}

static int evaluated(int *count)
{
	return ++*count;
}

static void child_lazy(void)
{
	int count = 0;

	vb_debug("never %d", evaluated(&count));
	vb_warn("count %d", count);
}

static void child_assert(void)
{
	const struct rlimit none = {0, 0};

	setrlimit(RLIMIT_CORE, &none);
	vb_assert(1 + 1 == 2);
	vb_assert(1 + 1 == 3);
}

static const struct {
	const char *name;
	void (*run)(void);
} children[] = {
	{"threads", child_threads}, {"levels", child_levels}, {"long", child_long},
	{"lazy", child_lazy},       {"assert", child_assert},
};

/* What the child writes to stderr, and how it ends. */
static char *child(const char *what, const char *env, int *status)
{
	size_t size = 0, room = 1 << 20;
	char *text = malloc(room);
	int ends[2];
	ssize_t n;
	pid_t pid;

	assert_non_null(text);
	assert_int_equal(pipe(ends), 0);
	pid = fork_child();
	assert_true(pid >= 0);
	if (pid == 0) {
		dup2(ends[1], STDERR_FILENO);
		close(ends[0]);
		close(ends[1]);
		if (env)
			setenv("VERBENA_LOG", env, 1);
		else
			unsetenv("VERBENA_LOG");
		execl("/proc/self/exe", "test_base_misc", "child", what, (char *)NULL);
		_exit(127);
	}
	close(ends[1]);
	while ((n = read(ends[0], text + size, room - size - 1)) > 0)
		size += (size_t)n;
	text[size] = '\0';
	close(ends[0]);
	assert_int_equal(waitpid(pid, status, 0), pid);
	return text;
}

static void child_says(const char *what, const char *env, const char *want)
{
	int status;
	char *text = child(what, env, &status);

	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_string_equal(text, want);
	free(text);
}

/* ---- log ---- */

static void test_levels(void **state)
{
	child_says("levels", NULL,
		   "verbena: lock: error: said\nverbena: lock: warn: said\n"
		   "verbena: shm: error: said\nverbena: shm: warn: said\n"
		   "verbena: sim: error: said\nverbena: sim: warn: said\n");
	child_says("levels", "error,lock:info,shm:trace",
		   "verbena: lock: error: said\nverbena: lock: warn: said\n"
		   "verbena: lock: info: said\n"
		   "verbena: shm: error: said\nverbena: shm: warn: said\n"
		   "verbena: shm: info: said\nverbena: shm: debug: said\n"
		   "verbena: shm: trace: said\n"
		   "verbena: sim: error: said\n");
	child_says("levels", "error,shm:loud",
		   "verbena: VERBENA_LOG: 'loud' is no level; off, error, warn, info, debug "
		   "and trace are\n"
		   "verbena: lock: error: said\nverbena: shm: error: said\n"
		   "verbena: sim: error: said\n");
	child_says("levels", "off,sim:warn",
		   "verbena: sim: error: said\nverbena: sim: warn: said\n");
	child_says("levels", "sim:off,error",
		   "verbena: lock: error: said\nverbena: shm: error: said\n");
	child_says("levels", "error,,",
		   "verbena: lock: error: said\nverbena: shm: error: said\n"
		   "verbena: sim: error: said\n");
}

/* Said once, with those that there are; the rest of the list counts. */
static void test_unknown_parts(void **state)
{
	const char *list = "verbena: VERBENA_LOG: the parts are base, bench, cc, check,";
	int status;
	char *text = child("levels", "error,locc:info,nonsense:trace,shm:warn,sim:info,sim:error",
			   &status);
	char *at = strstr(text, list);

	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_non_null(at);
	assert_null(strstr(at + strlen(list), "the parts are"));
	assert_memory_equal(text,
			    "verbena: VERBENA_LOG: there is no part 'locc' (did you mean 'lock'?)\n"
			    "verbena: VERBENA_LOG: there is no part 'nonsense'\n",
			    (size_t)(at - text));
	assert_non_null(strstr(at, " lock,"));
	assert_string_equal(strchr(at, '\n'),
			    "\nverbena: lock: error: said\nverbena: shm: error: said\n"
			    "verbena: shm: warn: said\nverbena: sim: error: said\n");
	free(text);
}

/* What is muted inside a capture is gone, and the capture goes on. */
static void test_mute(void **state)
{
	char said[100];

	vb_log_capture_begin(said, sizeof(said));
	vb_error("first");
	vb_log_mute();
	vb_log_mute();
	vb_error("muted");
	vb_log_unmute();
	vb_error("muted, too");
	vb_log_unmute();
	assert_string_equal(said, "first");
	vb_error("second");
	vb_log_capture_end();
	assert_string_equal(said, "second");
}

static void test_lazy(void **state)
{
	child_says("lazy", NULL, "verbena: lock: warn: count 0\n");
	child_says("lazy", "lock:debug",
		   "verbena: lock: debug: never 1\nverbena: lock: warn: count 1\n");
}

static void test_long_line_is_cut(void **state)
{
	int status;
	char *text = child("long", NULL, &status);

	assert_int_equal(strlen(text), 1023);
	assert_ptr_equal(strchr(text, '\n'), text + 1022);
	assert_memory_equal(text, "verbena: lock: error: 0000", 26);
	free(text);
}

static void test_lines_of_threads_are_whole(void **state)
{
	const char *head = "verbena: threads: error: ";
	int status, counts[THREADS] = {0};
	char *text = child("threads", NULL, &status), *save = NULL;

	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	for (char *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
		const char *body = l + strlen(head);
		int who = body[0] - 'a';

		assert_memory_equal(l, head, strlen(head));
		assert_in_range(who, 0, THREADS - 1);
		assert_int_equal(strlen(body), 200);
		assert_int_equal(strspn(body, (char[]){body[0], '\0'}), 200);
		counts[who]++;
	}
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(counts[i], LINES);
	free(text);
}

static void *log_one(void *arg)
{
	char other[32];

	vb_log_capture_begin(other, sizeof(other));
	vb_error("other");
	vb_log_capture_end();
	assert_string_equal(other, "other");
	return NULL;
}

static void test_capture(void **state)
{
	char said[16], after[16];
	pthread_t t;

	memset(said, 'x', sizeof(said));
	vb_log_capture_begin(said, sizeof(said));
	assert_string_equal(said, "");
	vb_error("one %d", 1);
	assert_string_equal(said, "one 1");
	vb_error("a line that does not fit");
	assert_string_equal(said, "a line that doe");
	/* A capture is the thread's own. */
	vb_error("mine");
	assert_int_equal(pthread_create(&t, NULL, log_one, NULL), 0);
	pthread_join(t, NULL);
	assert_string_equal(said, "mine");
	vb_log_capture_end();
	vb_log_capture_begin(after, sizeof(after));
	vb_error("after");
	vb_log_capture_end();
	assert_string_equal(said, "mine");
}

static int fails(void)
{
	errno = ENOSPC;
	return vb_fail(-errno, "no room");
}

/* The value of vb_fail is read after the line was written, with stderr closed in this case. */
/* What a file or a peer sends is no command to the terminal; text of other languages stays. */
static void test_foreign_text(void **state)
{
	char said[64];

	vb_log_capture_begin(said, sizeof(said));
	vb_error("%s", "a\x1b[2J\x7f\x08\tb\n\xc2\x9b\xc2\xb5s \xe6\x97\xa5 \x9b"
		       "1m \xe6\x97");
	vb_log_capture_end();
	assert_string_equal(said, "a?[2J??\tb\n??\xc2\xb5s \xe6\x97\xa5 ?1m ??");
}

static void test_errno_survives(void **state)
{
	char said[32];
	int was = dup(STDERR_FILENO), err;

	assert_true(was >= 0);
	close(STDERR_FILENO);
	err = fails();
	dup2(was, STDERR_FILENO);
	close(was);
	assert_int_equal(err, -ENOSPC);
	vb_log_capture_begin(said, sizeof(said));
	assert_int_equal(fails(), -ENOSPC);
	vb_log_capture_end();
	assert_string_equal(said, "no room");
}

/* ---- errors ---- */

static void test_error_texts(void **state)
{
	for (int err = VB_EUNKNOWN; err <= VB_EFOREIGN; err++) {
		assert_string_not_equal(vb_strerror(err), "unknown error");
		assert_string_equal(vb_strerror(err), vb_strerror(-err));
		for (int other = VB_EUNKNOWN; other < err; other++)
			assert_string_not_equal(vb_strerror(err), vb_strerror(other));
	}
	assert_string_equal(vb_strerror(-EIO), strerror(EIO));
	assert_string_equal(vb_strerror(-ETIMEDOUT), "not done within the time allowed");
	assert_string_equal(vb_strerror(VB_EFOREIGN + 1), "unknown error");
	assert_string_equal(vb_strerror(INT32_MIN), "unknown error");
	assert_non_null(vb_strerror(0));
}

/* The value of an errno's name, 0: it is none. */
static int errno_of(const char *name, size_t n)
{
	for (int err = 1; err < 200; err++) {
		const char *other = strerrorname_np(err);

		if (other != NULL && strlen(other) == n && !memcmp(other, name, n))
			return err;
	}
	return 0;
}

/* What a header says that a call returns has a text that is not the system's, and no other's. */
static void test_errors_of_the_headers(void **state)
{
	static const char *const headers[] = {"verbena", "fabric", "lock",     "names", "cluster",
					      "txn",     "async",  "provider", "host"};
	int named[64], n = 0;

	for (size_t h = 0; h < VB_ARRAY_SIZE(headers); h++) {
		char path[300], line[200];
		FILE *f;

		snprintf(path, sizeof(path), VERBENA_HEADERS "/%s.h", headers[h]);
		f = fopen(path, "r");
		assert_non_null(f);
		while (fgets(line, sizeof(line), f) != NULL) {
			for (const char *at = line; (at = strstr(at, "-E")) != NULL; at++) {
				size_t bytes = strspn(at + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZ2");
				int err = errno_of(at + 1, bytes), k = 0;

				while (k < n && named[k] != err)
					k++;
				if (err == 0 || k < n)
					continue;
				assert_true(n < (int)VB_ARRAY_SIZE(named));
				named[n++] = err;
				assert_string_not_equal(vb_strerror(-err), strerror(err));
				for (k = 0; k < n - 1; k++)
					assert_string_not_equal(vb_strerror(err),
								vb_strerror(named[k]));
			}
		}
		fclose(f);
	}
	assert_true(n >= 20);
}

/* What is put together comes apart again, to the last bit. */
static void test_addresses_and_names(void **state)
{
	static const uint64_t offsets[] = {0, 8, (1ull << 48) - 8, (1ull << 48) - 1};
	static const uint32_t clients[] = {0, 1, (1u << 24) - 1};
	static const uint16_t nodes[] = {0, 1, 4095, 65534};

	for (size_t i = 0; i < VB_ARRAY_SIZE(nodes); i++) {
		for (size_t k = 0; k < VB_ARRAY_SIZE(offsets); k++) {
			vb_addr a = vb_addr_make(nodes[i], offsets[k]);

			assert_int_equal(a >> 48, nodes[i]);
			assert_int_equal(vb_addr_node(a), nodes[i]);
			assert_int_equal(vb_addr_offset(a), offsets[k]);
		}
		for (size_t k = 0; k < VB_ARRAY_SIZE(clients); k++) {
			vb_peer p = vb_peer_make(nodes[i], clients[k]);

			assert_true(p != VB_PEER_NONE && p < 1ull << 40);
			assert_int_equal(vb_peer_node(p), nodes[i]);
			assert_int_equal(vb_peer_client(p), clients[k]);
		}
	}
}

static void test_version(void **state)
{
	int major, minor, patch, end = 0;

	assert_int_equal(sscanf(vb_version(), "%d.%d.%d%n", &major, &minor, &patch, &end), 3);
	assert_int_equal(vb_version()[end], '\0');
	/* meson.build's, which the library has, is the headers'. */
	assert_string_equal(vb_version(), VB_VERSION_STRING);
	assert_int_equal(major, VB_VERSION_MAJOR);
	assert_int_equal(minor, VB_VERSION_MINOR);
	assert_int_equal(patch, VB_VERSION_PATCH);
	assert_true(!strcmp(vb_commit(), "unknown") ||
		    strspn(vb_commit(), "0123456789abcdef") == strlen(vb_commit()));
	assert_true(strlen(vb_commit()) >= 7);
}

static void test_failed_assertion(void **state)
{
	int status;
	char *text = child("assert", NULL, &status);

	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	assert_non_null(strstr(text, "1 + 1 == 3"));
	assert_non_null(strstr(text, "test_base_misc.c:"));
	assert_null(strstr(text, "1 + 1 == 2"));
	free(text);
}

/* ---- clock ---- */

struct bracket {
	uint64_t before, ns, after;
};

/* vb_clock_ns() and CLOCK_MONOTONIC around it: bounds that hold however often we are preempted. */
static struct bracket read_bracket(void)
{
	struct bracket b;

	b.before = vb_clock_gettime_ns();
	b.ns = vb_clock_ns();
	b.after = vb_clock_gettime_ns();
	return b;
}

static void test_clock_rate(void **state)
{
	struct bracket first, last;
	uint64_t before = 0;
	double slack;

	vb_clock_init();
	vb_clock_init();
	first = read_bracket();
	do {
		last = read_bracket();
		assert_true(last.ns >= before);
		before = last.ns;
	} while (last.before - first.after < 20000000);
	/* 20 ppm of calibration and the most that NTP slews the clock meanwhile, 500 ppm. */
	slack = (double)(last.after - first.before) * 520e-6;
	assert_true((double)(last.ns - first.ns) >= (double)(last.before - first.after) - slack);
	assert_true((double)(last.ns - first.ns) <= (double)(last.after - first.before) + slack);
	/* And it is the same time, not only the same rate. */
	assert_true((double)last.ns >= (double)last.before - slack - 1e6);
	assert_true((double)last.ns <= (double)last.after + slack + 1e6);
}

static void goes_by(const struct vb_clock *clock)
{
	assert_int_equal(vb_clock_hold(clock), 0);
	vb_clock_let();
}

static void test_clock_adopted(void **state)
{
	struct vb_clock mine, now, other = {.use_tsc = 0};
	struct bracket b;

	vb_clock_init();
	mine = vb_clock;
	goes_by(&other);
	b = read_bracket();
	assert_true(b.before <= b.ns && b.ns <= b.after);
#if VB_CLOCK_COUNTER
	/* One ns to a tick, from a moment on. */
	other = (struct vb_clock){
		.tsc_base = vb_tsc(), .ns_base = 1000, .mult = 1u << 24, .use_tsc = 1};
	goes_by(&other);
	b.before = vb_tsc();
	b.ns = vb_clock_ns();
	b.after = vb_tsc();
	assert_true(b.ns >= 1000 + b.before - other.tsc_base);
	assert_true(b.ns <= 1000 + b.after - other.tsc_base);
	/* Centuries of ticks do not overflow. */
	other.tsc_base -= 1ull << 62;
	goes_by(&other);
	assert_true(vb_clock_ns() >= 1000 + (1ull << 62));
#endif
	/* Not under what goes by this one. */
	assert_int_equal(vb_clock_hold(NULL), 0);
	assert_int_equal(vb_clock_hold(&mine), -EBUSY);
	now = vb_clock;
	assert_int_equal(vb_clock_hold(&now), 0);
	vb_clock_let();
	assert_int_equal(vb_clock_hold(&mine), -EBUSY);
	vb_clock_let();
	goes_by(&mine);
	assert_memory_equal(&vb_clock, &mine, sizeof(mine));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_levels),
		cmocka_unit_test(test_unknown_parts),
		cmocka_unit_test(test_mute),
		cmocka_unit_test(test_lazy),
		cmocka_unit_test(test_long_line_is_cut),
		cmocka_unit_test(test_lines_of_threads_are_whole),
		cmocka_unit_test(test_capture),
		cmocka_unit_test(test_foreign_text),
		cmocka_unit_test(test_errno_survives),
		cmocka_unit_test(test_error_texts),
		cmocka_unit_test(test_errors_of_the_headers),
		cmocka_unit_test(test_addresses_and_names),
		cmocka_unit_test(test_version),
		cmocka_unit_test(test_failed_assertion),
		cmocka_unit_test(test_clock_rate),
		cmocka_unit_test(test_clock_adopted),
	};

	if (argc == 3 && !strcmp(argv[1], "child")) {
		for (size_t i = 0; i < VB_ARRAY_SIZE(children); i++) {
			if (!strcmp(argv[2], children[i].name)) {
				children[i].run();
				return 0;
			}
		}
		return 2;
	}
	return cmocka_run_group_tests_name("base misc", tests, NULL, NULL);
}
