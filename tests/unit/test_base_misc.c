/* SPDX-License-Identifier: Apache-2.0 */
/* Errors, the log, the clock. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <verbena/verbena.h>

#include "base/clock.h"

#define VB_LOG_ROOM "kitchen"
#include "base/log.h"

static void test_strerror(void **state)
{
	static const int own[] = {VB_EUNKNOWN, VB_ELOST, VB_EPEERGONE, VB_EACCESS, VB_ETOOLATE};

	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(own); i++) {
		assert_string_equal(vb_strerror(own[i]), vb_strerror(-own[i]));
		assert_string_not_equal(vb_strerror(own[i]), "unknown error");
		for (unsigned j = 0; j < i; j++)
			assert_string_not_equal(vb_strerror(own[i]), vb_strerror(own[j]));
	}
	assert_string_equal(vb_strerror(-ENOMEM), strerror(ENOMEM));
	assert_string_equal(vb_strerror(-99999), "unknown error");
	assert_non_null(strchr(vb_version(), '.'));
	assert_true(strlen(vb_commit()) > 0);
}

/* What a child writes to stderr under a VERBENA_LOG. */
static void logged(const char *env, char *text, size_t size)
{
	size_t n = 0;
	ssize_t got;
	int fds[2], status;
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		dup2(fds[1], STDERR_FILENO);
		if (env)
			setenv("VERBENA_LOG", env, 1);
		else
			unsetenv("VERBENA_LOG");
		vb_error("E %d", 1);
		vb_warn("W");
		vb_info("I");
		vb_debug("D");
		_exit(0);
	}
	close(fds[1]);
	while ((got = read(fds[0], text + n, size - 1 - n)) > 0)
		n += (size_t)got;
	text[n] = '\0';
	close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void test_levels(void **state)
{
	char text[1024];

	(void)state;
	logged(NULL, text, sizeof(text));
	assert_string_equal(text, "verbena: kitchen: error: E 1\nverbena: kitchen: warn: W\n");
	logged("error", text, sizeof(text));
	assert_string_equal(text, "verbena: kitchen: error: E 1\n");
	logged("error,kitchen:debug", text, sizeof(text));
	assert_non_null(strstr(text, "debug: D\n"));
	logged("debug,kitchen:error,bath:trace", text, sizeof(text));
	assert_string_equal(text, "verbena: kitchen: error: E 1\n");
	logged("loud", text, sizeof(text));
	assert_non_null(strstr(text, "'loud' is no level"));
	assert_non_null(strstr(text, "warn: W"));
}

static int deciding(int value)
{
	return vb_fail(-EDOM, "value %d", value);
}

static void test_capture(void **state)
{
	char text[64];

	(void)state;
	vb_log_capture_begin(text, sizeof(text));
	assert_string_equal(text, "");
	assert_int_equal(deciding(7), -EDOM);
	vb_log_capture_end();
	assert_string_equal(text, "value 7");
}

/* Against the kernel's clock over a fifth of a second: 200 ppm is ten times what it promises, for a
 * machine whose other users interrupt the readings. */
static void test_clock(void **state)
{
	uint64_t a, b, ka, kb, last = 0;

	(void)state;
	vb_clock_init();
	for (unsigned i = 0; i < 100000; i++) {
		a = vb_clock_ns();
		assert_true(a >= last);
		last = a;
	}
	ka = vb_clock_gettime_ns();
	a = vb_clock_ns();
	do
		kb = vb_clock_gettime_ns();
	while (kb - ka < 200000000);
	b = vb_clock_ns();
	kb = vb_clock_gettime_ns();
	/* The kernel's readings enclose ours; what is between them is the machine's doing. */
	assert_true(b - a <= (kb - ka) + (kb - ka) / 5000);
	assert_true(b - a + 5000000 >= (kb - ka) - (kb - ka) / 5000);
}

static void test_clock_adopts(void **state)
{
	struct vb_clock before = vb_clock, shifted;
	uint64_t now = vb_clock_ns();

	(void)state;
	shifted = before;
	if (!before.use_tsc)
		skip();
	shifted.ns_base += 1000000000000ull;
	vb_clock_adopt(&shifted);
	assert_true(vb_clock_ns() >= now + 1000000000000ull);
	vb_clock_adopt(&before);
	assert_true(vb_clock_ns() < now + 1000000000000ull);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_strerror),     cmocka_unit_test(test_levels),
		cmocka_unit_test(test_capture),      cmocka_unit_test(test_clock),
		cmocka_unit_test(test_clock_adopts),
	};

	return cmocka_run_group_tests_name("base misc", tests, NULL, NULL);
}
