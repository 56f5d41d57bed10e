/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork() for tests.  A child ends with the test that has made it, however that ends: one that a failed
 * assertion left behind would keep the test's output open, and whoever runs it waits for the end of that.
 *
 * With its parent means with the thread that forks; a keeper (task/keeper.h) must not be that.
 */
#ifndef TEST_CHILD_H
#define TEST_CHILD_H

#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

static inline pid_t fork_child(void)
{
	pid_t parent = getpid(), pid;

	fflush(NULL);
	pid = fork();
	if (pid != 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	return 0;
}

#endif
