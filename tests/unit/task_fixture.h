/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of the task room share: a scheduler per test, a trace of what happened that is
 * compared as text, and a few bodies for tasks.
 */
#ifndef VB_TESTS_TASK_FIXTURE_H
#define VB_TESTS_TASK_FIXTURE_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "task/task.h"

static const struct vb_env_ops virtual_env = {.name = "virtual", .is_virtual = true};

static struct vb_sched *sched;
static char trace[4096];

static inline void note(const char *fmt, ...)
{
	size_t len = strlen(trace);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(trace + len, sizeof(trace) - len, fmt, ap);
	va_end(ap);
}

static inline int setup_virtual(void **state)
{
	(void)state;
	trace[0] = '\0';
	return vb_sched_create(&virtual_env, NULL, &sched);
}

static inline int setup_real(void **state)
{
	(void)state;
	trace[0] = '\0';
	return vb_sched_create(NULL, NULL, &sched);
}

static inline int teardown(void **state)
{
	(void)state;
	vb_sched_destroy(sched);
	return 0;
}

static inline struct vb_task *spawn(void (*body)(void *arg), void *arg)
{
	struct vb_task *t;

	assert_int_equal(vb_task_spawn(sched, body, arg, NULL, &t), 0);
	return t;
}

static inline void run_all(void)
{
	assert_int_equal(vb_sched_run(sched, NULL, VB_FOREVER), 0);
	assert_int_equal(vb_sched_tasks(sched), 0);
}

/* Until every task waits for ever; the line that reports it is expected and kept off the screen. */
static inline void run_until_stuck(void)
{
	char text[512];

	vb_log_capture_begin(text, sizeof(text));
	assert_int_equal(vb_sched_run(sched, NULL, VB_FOREVER), -EDEADLK);
	vb_log_capture_end();
}

static inline uint64_t now(void)
{
	return vb_sched_now(sched);
}

/* ---- bodies ---- */

static inline void yielder(void *arg)
{
	const char *name = arg;

	for (int i = 0; i < 3; i++) {
		note("%s%d ", name, i);
		vb_task_yield();
	}
}

static inline void keeper(void *arg)
{
	volatile double *out = arg;
	volatile uint64_t local[64];
	double x = 1.0;

	for (unsigned i = 0; i < 64; i++)
		local[i] = (uint64_t)(uintptr_t)arg + i;
	for (int i = 0; i < 20; i++) {
		x = x * 1.5 + 0.25;
		vb_task_yield();
	}
	for (unsigned i = 0; i < 64; i++)
		assert_int_equal(local[i], (uint64_t)(uintptr_t)arg + i);
	*out = x;
}

static inline void sleeper_until(void *arg)
{
	assert_int_equal(vb_task_sleep_until(*(uint64_t *)arg), 0);
	note("woke@%llu ", (unsigned long long)now());
}

static inline void suspender(void *arg)
{
	uint64_t *until = arg;
	int err = vb_task_suspend(*until);

	note("%d@%llu ", err, (unsigned long long)now());
}

static inline void wait_then_never(void *arg)
{
	volatile char room[512];

	memset((char *)room, 1, sizeof(room));
	vb_task_suspend(*(uint64_t *)arg);
	note("never%d ", room[3]);
}

#define VIRTUAL(f) cmocka_unit_test_setup_teardown(f, setup_virtual, teardown)
#define REAL(f)    cmocka_unit_test_setup_teardown(f, setup_real, teardown)

#endif
