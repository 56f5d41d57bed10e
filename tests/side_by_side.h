/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cases of a group that wait, for leases and for silences, made side by side: each in a process
 * of its own, so many at a time, with the output of each in one piece and in the order of the group.
 *
 * Only for cases that share nothing: what they leave in memory the others do not see.  Processes that a
 * failed case leaves behind end with it (child.h).
 */
#ifndef TEST_SIDE_BY_SIDE_H
#define TEST_SIDE_BY_SIDE_H

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

#include "child.h"

struct side_case {
	pid_t pid; /* 0: has ended, or is still to begin */
	FILE *said;
	int status;
};

static void side_begin(struct side_case *c, const char *group, const struct CMUnitTest *test)
{
	c->said = tmpfile();
	if (c->said == NULL)
		abort();
	fflush(NULL);
	c->pid = fork_child();
	if (c->pid < 0)
		abort();
	if (c->pid > 0)
		return;
	if (dup2(fileno(c->said), 1) < 0 || dup2(fileno(c->said), 2) < 0)
		abort();
	exit(_cmocka_run_group_tests(group, test, 1, NULL, NULL) == 0 ? 0 : 1);
}

static void side_end(struct side_case *c, const struct CMUnitTest *test)
{
	char buf[4096];
	size_t n;

	rewind(c->said);
	while ((n = fread(buf, 1, sizeof(buf), c->said)) > 0)
		fwrite(buf, 1, n, stdout);
	fclose(c->said);
	if (WIFSIGNALED(c->status))
		printf("%s: killed by signal %d\n", test->name, WTERMSIG(c->status));
	fflush(stdout);
}

/* How many have failed. */
static int side_by_side(const char *group, const struct CMUnitTest *tests, size_t n, size_t at_once)
{
	struct side_case *cases = calloc(n, sizeof(*cases));
	size_t begun = 0, ended = 0, told = 0;
	int failed = 0;

	if (cases == NULL)
		abort();
	while (ended < n) {
		int status;
		pid_t pid;

		while (begun < n && begun - ended < at_once) {
			side_begin(&cases[begun], group, &tests[begun]);
			begun++;
		}
		pid = waitpid(-1, &status, 0);
		if (pid < 0 && errno != EINTR)
			abort();
		for (size_t i = 0; i < begun; i++) {
			if (pid <= 0 || cases[i].pid != pid)
				continue;
			cases[i].pid = 0;
			cases[i].status = status;
			failed += status != 0;
			ended++;
		}
		for (; told < begun && cases[told].pid == 0; told++)
			side_end(&cases[told], &tests[told]);
	}
	free(cases);
	return failed;
}

#endif
