/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a worker that is killed leaves of a transaction that may have committed: it is in the history
 * once, at whatever instruction between its commit and its next transaction the worker dies.
 */
#include <sys/ptrace.h>

#include "../conformance/fabric/procs.h"
#include "lab/bench/txn/txn.h"

#if defined(VB_TSAN) || defined(VB_ASAN)
#define STEPS_MAX 40 /* of the longer path every n-th instruction */
#else
#define STEPS_MAX 400
#endif

static struct vb_tbench_recorder r;

static void body_ends(struct vb_fabric *f, unsigned number, void *arg)
{
	struct vb_coordinator me = {.index = 1};

	(void)number;
	(void)arg;
	child_must(vb_ep_open(f, 0, &me.ep) == 0);
	me.txn.me = &me;
	me.txn.begin_ns = vb_ep_now(me.ep);
	/* The one before it: pages and bindings are there. */
	r.watch.prepared(&r, &me.txn);
	r.watch.ended(&r, &me.txn, true);
	r.watch.prepared(&r, &me.txn);
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
		_exit(0);
	raise(SIGSTOP);
	r.watch.ended(&r, &me.txn, true);
	raise(SIGSTOP);
}

/* Steps until the child stops itself again; the number of instructions, at most `max`. */
static unsigned step(pid_t pid, unsigned max)
{
	int status;

	for (unsigned n = 0; n < max; n++)
		if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) != 0 ||
		    waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status) ||
		    WSTOPSIG(status) != SIGTRAP)
			return n;
	return max;
}

/* How many steps it went before it was killed, of `most`; -1: there is no tracing here. */
static int killed_after(struct vb_fabric *f, unsigned most)
{
	struct vb_tbench_plan plan = {.o.history_bytes = 1 << 16};
	const struct vb_db db = {.status = false}; /* then the checker decides what has happened */
	const struct vb_history_txn *t;
	const struct vb_history_op *ops;
	uint64_t at = 0, first, second;
	uint32_t full = 0;
	unsigned steps;
	int status;
	pid_t pid;

	assert_int_equal(vb_tbench_recorder_open(&r, &plan, 4, 3, 2, &full), 0);
	pid = start_child(f, 0, body_ends, NULL);
	if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) {
		vb_tbench_recorder_close(&r);
		return -1;
	}
	steps = step(pid, most);
	kill_child(pid);
	vb_tbench_recorder_bury(&r, &db);
	assert_int_equal(vb_history_count(r.history), 2);
	assert_true(vb_history_next(r.history, &at, &t, &ops));
	first = t->id;
	assert_true(vb_history_next(r.history, &at, &t, &ops));
	second = t->id;
	assert_true(first != second);
	/* And whoever is asked again has nothing more to say. */
	vb_tbench_recorder_bury(&r, &db);
	assert_int_equal(vb_history_count(r.history), 2);
	vb_tbench_recorder_close(&r);
	return (int)steps;
}

static void test_killed_at_each_instruction(void **state)
{
	const struct vb_fabric_params p = {.node_bytes = 1 << 20};
	struct vb_fabric *f;
	int length;

	(void)state;
	assert_int_equal(vb_fabric_open(&p, &f), 0);
	length = killed_after(f, 1000000);
	if (length >= 0) {
		unsigned n = (unsigned)length / STEPS_MAX + 1;

		for (unsigned k = 0; k <= (unsigned)length; k += n)
			/* The clock's read may take a path that is shorter or longer. */
			if (killed_after(f, k) < (int)k)
				break;
	}
	assert_int_equal(vb_fabric_close(f), 0);
	if (length < 0)
		skip();
	assert_true(length > 50);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_killed_at_each_instruction)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
