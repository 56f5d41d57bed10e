/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scenarios with one call after the other failing (inject.h).
 *
 * A scenario uses the library as a program would, closes what it has opened, and returns the first
 * error.  It is run in a child: once as it is, to see which calls it makes; then with one of them
 * failing, and without a fault behind that, in the same process.  What must hold each time:
 *
 *	- nothing crashes, and nothing hangs;
 *	- what fails says a negative errno, and the log has a line that says why (but where the
 *	  errno is one of a lock's or a transaction's outcomes);
 *	- then all is as it was: memory, mappings, descriptors and /dev/shm, and it works;
 *	- what the scenario itself looks at (`promise`).
 *
 * In `make test` each place that makes such calls fails once for each scenario's group, and every
 * QUICK_STRIDE-th call; with VERBENA_INJECT_SWEEP=all every call, once alone and once with all later
 * ones of its class, and then some by chance, for VERBENA_INJECT_SEEDS seeds.
 */
#ifndef TEST_INJECT_SWEEP_H
#define TEST_INJECT_SWEEP_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <verbena/verbena.h>

#include "base/compiler.h"
#include "inject.h"

#if defined(VB_ASAN)
#include <sanitizer/lsan_interface.h>
#endif

#define PATIENCE_S   20
#define QUICK_STRIDE 61
#define QUICK_SEEDS  2
#define SETTLE_US    2000000
#define ERRNO_LAST   133

struct scenario {
	const char *name;
	int (*run)(const char *arg);
	const char *arg;
};

/* What a child tells. */
struct sweep_told {
	int err, again;
	bool ended, faulty;
	unsigned fds, fds_before, segments;
	char broken[256], path[48];
	struct inject_held before, after;
};
static struct sweep_told *told;

/* The name of a segment that a scenario may make; no other test's. */
static char segment_name[32];

/* In a scenario: what must hold whatever fails. */
#define promise(cond)                                                                              \
	do {                                                                                       \
		if (!(cond) && told->broken[0] == '\0')                                            \
			snprintf(told->broken, sizeof(told->broken), "line %d: %s", __LINE__,      \
				 #cond);                                                           \
	} while (0)

/* How long to wait for what comes at once while nothing fails, and may never come while something does. */
static inline uint64_t patience_ns(void)
{
	return told->faulty ? 100000000ull : 20000000000ull;
}

/* ---- a child ---- */

static unsigned count_in(const char *path, const char *prefix)
{
	DIR *d = opendir(path);
	struct dirent *e;
	unsigned n = 0;

	while (d != NULL && (e = readdir(d)) != NULL)
		n += strncmp(e->d_name, prefix, strlen(prefix)) == 0 && e->d_name[0] != '.';
	if (d != NULL)
		closedir(d);
	return n;
}

/* Threads that end meanwhile let go what they have. */
static void settle(bool baseline)
{
	for (unsigned us = 0;; us += 1000) {
		inject_look(&told->after);
		told->fds = count_in("/proc/self/fd", "");
		told->segments = count_in("/dev/shm", told->path);
		if (baseline || us >= SETTLE_US ||
		    (inject_more(&told->after, &told->before, NULL) == 0 &&
		     told->fds <= told->fds_before && told->segments == 0))
			return;
		usleep(1000);
	}
}

VB_NORETURN static void child(const struct scenario *s, const struct inject_plan *plan, int log)
{
	dup2(log, STDERR_FILENO);
	alarm(PATIENCE_S);
	if (plan->how == INJECT_NONE)
		told->fds_before = 0;
	inject_arm(plan);
	told->faulty = plan->how != INJECT_NONE;
	told->err = s->run(s->arg);
	inject_disarm();
	told->faulty = false;
	told->again = s->run(s->arg);
	settle(plan->how == INJECT_NONE);
	told->ended = true;
#if defined(VB_ASAN)
	if (__lsan_do_recoverable_leak_check() != 0)
		snprintf(told->broken, sizeof(told->broken),
			 "the leak sanitizer has found something");
#endif
	_exit(0);
}

/* ---- the sweep ---- */

struct sweep {
	const struct scenario *s;
	int log;
	unsigned found, runs, stood; /* stood: a call failed, and the scenario did not */
};

static unsigned environment(const char *name, unsigned otherwise)
{
	const char *text = getenv(name);

	return text != NULL ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

static void say_where(uintptr_t at)
{
	char command[256];

	snprintf(command, sizeof(command),
		 "addr2line -fpe /proc/%d/exe %#lx 2>/dev/null | sed 's/^/#     at /' >&2",
		 (int)getpid(), (unsigned long)at - 1);
	if (system(command) != 0)
		fprintf(stderr, "#     at %#lx\n", (unsigned long)at);
}

static void VB_PRINTF(3, 4)
	found(struct sweep *w, const struct inject_plan *plan, const char *fmt, ...)
{
	char text[4096];
	ssize_t n = pread(w->log, text, sizeof(text) - 1, 0);
	va_list ap;

	w->found++;
	fprintf(stderr, "# %s, %s %lu: ", w->s->name,
		plan->how == INJECT_CHANCE ? "seed"
		: plan->how == INJECT_FROM ? "from call"
					   : "call",
		(unsigned long)(plan->how == INJECT_CHANCE ? plan->seed : plan->at));
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "; %s failed\n", inject_what());
	say_where(inject_where());
	text[n > 0 ? n : 0] = '\0';
	for (char *save = NULL, *l = strtok_r(text, "\n", &save); l != NULL;
	     l = strtok_r(NULL, "\n", &save))
		fprintf(stderr, "#     | %s\n", l);
}

static bool log_says_why(int log)
{
	static char text[1 << 16];
	ssize_t n = pread(log, text, sizeof(text) - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	return strstr(text, ": error: ") != NULL;
}

/* What an acquire or a commit may answer without a word in the log. */
static bool is_outcome(int err)
{
	return err == -ETIMEDOUT || err == -EAGAIN || err == -VB_EUNKNOWN || err == -VB_ELOST;
}

/* What became of a child that has ended. */
static void judge(struct sweep *w, const struct inject_plan *plan, int status)
{
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
		found(w, plan, "it hangs");
	else if (WIFSIGNALED(status))
		found(w, plan, "it ends by signal %d", WTERMSIG(status));
	else if (!told->ended)
		found(w, plan, "it ends with status %d", WEXITSTATUS(status));
	else if (told->broken[0] != '\0')
		found(w, plan, "broken: %s", told->broken);
	else if (told->err > 0 || (told->err < -ERRNO_LAST && told->err > -VB_ERR_BASE))
		found(w, plan, "%d is no error", told->err);
	else if (told->err != 0 && !is_outcome(told->err) && !log_says_why(w->log))
		found(w, plan, "it says %s, and the log not why", vb_strerror(told->err));
	else if (told->again != 0)
		found(w, plan, "and then, without a fault: %s", vb_strerror(told->again));
	else if (inject_more(&told->after, &told->before, stderr) != 0)
		found(w, plan, "memory is left");
	else if (told->fds > told->fds_before)
		found(w, plan, "%u descriptors, %u before", told->fds, told->fds_before);
	else if (told->segments != 0)
		found(w, plan, "something is left in /dev/shm");
	w->stood += told->err == 0;
}

static void run(struct sweep *w, const struct inject_plan *plan)
{
	int status;
	pid_t pid;

	told->err = told->again = 0;
	told->ended = false;
	told->broken[0] = '\0';
	assert_int_equal(ftruncate(w->log, 0), 0);
	lseek(w->log, 0, SEEK_SET);
	inject_arm(plan); /* so that all that is left of the last run is gone */
	inject_disarm();
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		child(w->s, plan, w->log);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	w->runs++;
	if (plan->how == INJECT_NONE) {
		if (!told->ended || told->err != 0 || told->again != 0)
			found(w, plan, "without a fault: status %#x, %s, %s", status,
			      vb_strerror(told->err), vb_strerror(told->again));
		told->before = told->after;
		told->fds_before = told->fds;
		assert_int_equal(w->found, 0);
		return;
	}
	judge(w, plan, status);
}

/* Places that have failed before in this group of scenarios. */
static uintptr_t tried[4096];
static unsigned n_tried;

static bool is_new(uintptr_t where)
{
	for (unsigned i = 0; i < n_tried; i++)
		if (tried[i] == where)
			return false;
	assert_true(n_tried < VB_ARRAY_SIZE(tried));
	tried[n_tried++] = where;
	return true;
}

static void sweep(void **state)
{
	const char *how = getenv("VERBENA_INJECT_SWEEP");
	bool all = how != NULL && strcmp(how, "all") == 0;
	struct sweep w = {.s = *state, .log = memfd_create("log", MFD_CLOEXEC)};
	unsigned only = environment("VERBENA_INJECT_AT", 0);
	unsigned seeds = environment("VERBENA_INJECT_SEEDS", all ? 20 : QUICK_SEEDS);
	static uintptr_t trail[INJECT_TRAIL];
	uint64_t calls;

	assert_true(w.log >= 0);
	/* Processes of a cluster write to it one behind the other, not over each other. */
	assert_int_equal(fcntl(w.log, F_SETFL, O_APPEND), 0);
	run(&w, &(struct inject_plan){.how = INJECT_NONE});
	calls = inject_calls();
	for (uint64_t i = 1; i <= calls && i <= INJECT_TRAIL; i++)
		trail[i - 1] = inject_trail(i);
	for (uint64_t i = 1; i <= calls; i++) {
		bool fresh = i <= INJECT_TRAIL && is_new(trail[i - 1]);

		if (only != 0 ? i != only : !all && !fresh && i % QUICK_STRIDE != 0)
			continue;
		run(&w, &(struct inject_plan){.how = INJECT_ONCE, .at = i});
		if (all || fresh)
			run(&w, &(struct inject_plan){.how = INJECT_FROM, .at = i});
	}
	for (unsigned i = 1; i <= seeds && only == 0; i++)
		run(&w, &(struct inject_plan){
				.how = INJECT_CHANCE, .seed = i, .one_in = 5 + 7 * (i % 8)});
	printf("# %s: %lu calls, %u runs, %u of them stood it\n", w.s->name, (unsigned long)calls,
	       w.runs, w.stood);
	close(w.log);
	assert_int_equal(w.found, 0);
}

/* Runs the scenarios, or those whose name has the program's argument in it. */
static int sweep_all(const struct scenario *s, size_t n, const char *only)
{
	struct CMUnitTest tests[512];
	size_t k = 0;

	snprintf(segment_name, sizeof(segment_name), "inject-%d", (int)getpid());
	told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	snprintf(told->path, sizeof(told->path), "verbena.%s", segment_name);
	for (size_t i = 0; i < n; i++)
		if (only == NULL || strstr(s[i].name, only) != NULL)
			tests[k++] = (struct CMUnitTest){.name = s[i].name,
							 .test_func = sweep,
							 .initial_state = (void *)&s[i]};
	return _cmocka_run_group_tests("inject", tests, k, NULL, NULL);
}

#endif
