/* SPDX-License-Identifier: Apache-2.0 */
/* Who lives, as fabric.h tells it: whoever takes a living one for dead breaks what that one is at, and
 * whoever takes a dead one for alive waits for ever. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "child.h"
#include "fabric/fabric.h"

struct child {
	pid_t pid;
	uint64_t process; /* as it names itself */
	int end;          /* it lives until this is closed */
};

static void stay(int end)
{
	char c;

	(void)!read(end, &c, 1);
	_exit(0);
}

/* The first thread ends, another one stays. */
static void *stays(void *arg)
{
	stay(*(int *)arg);
	return NULL;
}

static struct child start(bool first_thread_ends)
{
	struct child c;
	int said[2], end[2];

	assert_true(pipe(said) == 0 && pipe(end) == 0);
	fflush(NULL);
	c.pid = fork_child();
	assert_true(c.pid >= 0);
	if (c.pid == 0) {
		uint64_t me = vb_process_self();
		pthread_t other;

		alarm(200);
		close(end[1]);
		if (write(said[1], &me, sizeof(me)) != sizeof(me))
			_exit(1);
		if (!first_thread_ends)
			stay(end[0]);
		if (pthread_create(&other, NULL, stays, &end[0]) != 0)
			_exit(1);
		pthread_exit(NULL);
	}
	assert_int_equal(read(said[0], &c.process, sizeof(c.process)), sizeof(c.process));
	close(said[0]);
	close(said[1]);
	close(end[0]);
	c.end = end[1];
	return c;
}

/* As the kernel has it: R, S, T, Z ... */
static char state_of(pid_t pid)
{
	char path[64], text[256] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "r");
	assert_non_null(f);
	assert_non_null(fgets(text, sizeof(text), f));
	fclose(f);
	return strrchr(text, ')')[2];
}

static void until_state(pid_t pid, char state)
{
	for (unsigned i = 0; state_of(pid) != state && i < 30000; i++)
		usleep(1000);
	assert_int_equal(state_of(pid), state);
}

/* Of a sanitizer's own thread, and of one that we start, the kernel may need a moment to take note. */
static void until_dead(uint64_t process)
{
	for (unsigned i = 0; vb_process_alive(process) && i < 30000; i++)
		usleep(1000);
	assert_false(vb_process_alive(process));
}

static void finish(struct child *c)
{
	close(c->end);
	assert_int_equal(waitpid(c->pid, NULL, 0), c->pid);
}

static void nobody_is_dead(void **state)
{
	(void)state;
	assert_false(vb_process_alive(0));
	assert_true(vb_process_alive(vb_process_self()));
}

/* From here on until it is asked for by name: running, stopped, dead and not waited for, gone. */
static void child_from_birth_to_grave(void **state)
{
	struct child c = start(false);

	(void)state;
	assert_true(c.process != vb_process_self());
	assert_int_equal(c.process >> 32, c.pid);
	assert_true(vb_process_alive(c.process));
	assert_int_equal(kill(c.pid, SIGSTOP), 0);
	until_state(c.pid, 'T');
	assert_true(vb_process_alive(c.process));
	assert_int_equal(kill(c.pid, SIGKILL), 0);
	until_state(c.pid, 'Z');
	until_dead(c.process);
	finish(&c);
	assert_false(vb_process_alive(c.process));
}

/* A number comes round: what has it now began at another time. */
static void another_of_that_number(void **state)
{
	struct child c = start(false);
	const uint64_t earlier = c.process - 1, number = c.process >> 32 << 32;

	(void)state;
	assert_false(vb_process_alive(earlier));
	assert_false(vb_process_alive(c.process + 1));
	/* When it began is not known: then it may be the one that is meant. */
	assert_true(vb_process_alive(number));
	finish(&c);
	assert_false(vb_process_alive(number));
}

static void lives_without_its_first_thread(void **state)
{
	struct child c = start(true);

	(void)state;
	until_state(c.pid, 'Z');
	assert_true(vb_process_alive(c.process));
	close(c.end);
	/* Its other thread ends; that nobody has waited for it makes no difference. */
	until_dead(c.process);
	assert_int_equal(waitpid(c.pid, NULL, 0), c.pid);
}

/* A forked child is not its parent, also when the parent has asked before. */
static void child_is_somebody_else(void **state)
{
	const uint64_t me = vb_process_self();
	struct child c = start(false);

	(void)state;
	assert_true(c.process != me);
	assert_int_equal(vb_process_self(), me);
	finish(&c);
}

/* What a failed test leaves behind ends with it: nobody waits for the end of its output in vain. */
static void children_of_tests_end_with_them(void **state)
{
	int said[2];
	pid_t pid;
	char c;

	(void)state;
	assert_true(pipe(said) == 0);
	pid = fork_child();
	assert_true(pid >= 0);
	if (pid == 0) {
		if (fork_child() == 0)
			for (;;)
				pause();
		_exit(0);
	}
	close(said[1]);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(read(said[0], &c, 1), 0);
	close(said[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nobody_is_dead),
		cmocka_unit_test(child_from_birth_to_grave),
		cmocka_unit_test(another_of_that_number),
		cmocka_unit_test(lives_without_its_first_thread),
		cmocka_unit_test(child_is_somebody_else),
		cmocka_unit_test(children_of_tests_end_with_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
