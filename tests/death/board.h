/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests share that kill processes: words in memory that outlives them, of which each is read
 * and written at once, and what the parent makes of how a process ended.
 */
#ifndef TEST_DEATH_BOARD_H
#define TEST_DEATH_BOARD_H

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <verbena/fabric.h>

#include "base/clock.h"
#include "child.h"

#define MS UINT64_C(1000000)

#define board_get(p)    __atomic_load_n((p), __ATOMIC_SEQ_CST)
#define board_set(p, v) __atomic_store_n((p), (v), __ATOMIC_SEQ_CST)
#define board_add(p)    __atomic_add_fetch((p), 1, __ATOMIC_SEQ_CST)

/* The first to say why counts. */
static inline void board_fail(uint32_t *failed, char *why, size_t size, const char *fmt, va_list ap)
{
	if (board_add(failed) == 1)
		vsnprintf(why, size, fmt, ap);
}

/* First of all in a child.  The harness's handlers would go on with its parent's tests. */
static inline void board_child(void)
{
	static const int fatal[] = {SIGFPE, SIGILL, SIGSEGV, SIGBUS, SIGSYS};

	for (unsigned i = 0; i < sizeof(fatal) / sizeof(fatal[0]); i++)
		signal(fatal[i], SIG_DFL);
}

/* A process with its parent's fabric; 0 in it. */
static inline pid_t board_fork(struct vb_fabric *f)
{
	pid_t pid = fork_child();

	assert_true(pid >= 0);
	if (pid > 0)
		return pid;
	board_child();
	vb_fabric_after_fork(f);
	return 0;
}

static inline bool was_killed(int status)
{
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

/* Waits until a process ends, or with WUNTRACED stops.  False: it took too long, and was killed. */
static inline bool ends_within(pid_t pid, int flags, uint64_t patience_ns, int *status)
{
	const uint64_t end = vb_clock_ns() + patience_ns;

	while (waitpid(pid, status, WNOHANG | flags) == 0) {
		if (vb_clock_ns() > end) {
			kill(pid, SIGKILL);
			waitpid(pid, status, 0);
			return false;
		}
		usleep(200);
	}
	return true;
}

#endif
