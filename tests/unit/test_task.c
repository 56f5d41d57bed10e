/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks: order, permits, deadlines, cancellation, death, the root. */
#include "task_fixture.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "child.h"
#include "task/inner.h"

/* ---- switching and order ---- */

static void test_order(void **state)
{
	spawn(yielder, "a");
	spawn(yielder, "b");
	spawn(yielder, "c");
	assert_int_equal(vb_sched_tasks(sched), 3);
	run_all();
	assert_string_equal(trace, "a0 b0 c0 a1 b1 c1 a2 b2 c2 ");
	assert_int_equal(vb_sched_switches(sched), 12);
}

static void test_root_is_one_of_them(void **state)
{
	spawn(yielder, "a");
	spawn(yielder, "b");
	assert_string_equal(vb_task_name(vb_task_self()), "root");
	for (int i = 0; i < 3; i++) {
		note("root%d ", i);
		vb_task_yield();
	}
	assert_string_equal(trace, "root0 a0 b0 root1 a1 b1 root2 a2 b2 ");
	assert_int_equal(vb_sched_tasks(sched), 2);
	run_all();
}

static void test_stacks_keep(void **state)
{
	double out[3] = {0}, want = 1.0;

	for (int i = 0; i < 20; i++)
		want = want * 1.5 + 0.25;
	for (int i = 0; i < 3; i++)
		spawn(keeper, &out[i]);
	run_all();
	for (int i = 0; i < 3; i++)
		assert_true(out[i] == want);
}

static void test_user_and_names(void **state)
{
	struct vb_task *t;
	int thing;

	assert_int_equal(
		vb_task_spawn(sched, yielder, "a", &(struct vb_task_params){.name = "named"}, &t),
		0);
	assert_string_equal(vb_task_name(t), "named");
	assert_null(vb_task_user(t));
	vb_task_set_user(t, &thing);
	assert_ptr_equal(vb_task_user(t), &thing);
	assert_ptr_equal(vb_task_sched(t), sched);
	run_all();
	/* The next task lies on the same stack and must not inherit it. */
	t = spawn(yielder, "a");
	assert_null(vb_task_user(t));
	run_all();
}

static void test_stack_too_large(void **state)
{
	char text[256];
	struct vb_task *t = NULL;

	vb_log_capture_begin(text, sizeof(text));
	assert_int_equal(vb_task_spawn(sched, yielder, "a",
				       &(struct vb_task_params){.stack_bytes = 1ull << 40}, &t),
			 -EINVAL);
	vb_log_capture_end();
	assert_non_null(strstr(text, "above the largest"));
	assert_null(t);
	assert_int_equal(vb_sched_tasks(sched), 0);
}

/* ---- permits and deadlines ---- */

static void test_permit_before_suspend(void **state)
{
	uint64_t forever = VB_FOREVER;
	struct vb_task *t = spawn(suspender, &forever);

	vb_task_wake(t);
	vb_task_wake(t); /* one permit, not two */
	run_all();
	assert_string_equal(trace, "0@0 ");
}

static void suspend_twice(void *arg)
{
	suspender(&(uint64_t){VB_FOREVER});
	suspender(&(uint64_t){50});
}

static void test_one_permit_only(void **state)
{
	struct vb_task *t = spawn(suspend_twice, NULL);

	vb_task_wake(t);
	vb_task_wake(t);
	run_all();
	assert_string_equal(trace, "0@0 -110@50 ");
}

static void test_wake_ends_the_wait(void **state)
{
	uint64_t until = 100, end = 30;
	struct vb_task *t = spawn(suspender, &until);

	spawn(sleeper_until, &end);
	assert_int_equal(vb_sched_run(sched, NULL, 40), -ETIMEDOUT);
	assert_int_equal(now(), 40);
	vb_task_wake(t);
	run_all();
	assert_string_equal(trace, "woke@30 0@40 ");
}

/* The timer has ended the wait, the task has not run yet, and a wake comes: it must not be lost. */
static struct vb_task *wake_target;

static void timer_wake(struct vb_timer *t)
{
	vb_task_wake(wake_target);
}

static void late_wake_body(void *arg)
{
	suspender(&(uint64_t){20});
	suspender(&(uint64_t){VB_FOREVER});
}

static void test_wake_after_timeout_is_kept(void **state)
{
	struct vb_timer t = {.fire = timer_wake};

	wake_target = spawn(late_wake_body, NULL);
	assert_int_equal(vb_sched_run(sched, NULL, 10), -ETIMEDOUT);
	vb_timer_arm(sched, &t, 20); /* fires right after the task's own */
	run_all();
	assert_string_equal(trace, "-110@20 0@20 ");
}

static void sleep_then_suspend(void *arg)
{
	assert_int_equal(vb_task_sleep_until(100), 0);
	note("slept@%llu ", (unsigned long long)now());
	suspender(&(uint64_t){VB_FOREVER});
}

static void test_sleep_keeps_the_permit(void **state)
{
	struct vb_task *t = spawn(sleep_then_suspend, NULL);

	assert_int_equal(vb_sched_run(sched, NULL, 10), -ETIMEDOUT);
	vb_task_wake(t);
	run_all();
	assert_string_equal(trace, "slept@100 0@100 ");
}

static void past_sleeper(void *arg)
{
	for (int i = 0; i < 3; i++) {
		note("%s%d ", (const char *)arg, i);
		assert_int_equal(vb_task_sleep_until(0), 0);
	}
}

static void test_past_deadline_gives_way(void **state)
{
	spawn(past_sleeper, "a");
	spawn(past_sleeper, "b");
	run_all();
	assert_string_equal(trace, "a0 b0 a1 b1 a2 b2 ");
	trace[0] = '\0';
	spawn(suspender, &(uint64_t){0});
	run_all();
	assert_non_null(strstr(trace, "-110@"));
}

/* ---- cancellation ---- */

static void cancel_body(void *arg)
{
	note("%d ", vb_task_suspend(VB_FOREVER));
	note("%d ", vb_task_sleep_until(1000));
	note("%d ", vb_task_suspend_uninterruptible(60));
	note("%d ", vb_task_suspend(VB_FOREVER));
	note("%d@%llu ", vb_task_cancelled(vb_task_self()), (unsigned long long)now());
}

static void test_cancel(void **state)
{
	struct vb_task *t = spawn(cancel_body, NULL);

	run_until_stuck();
	assert_false(vb_task_cancelled(t));
	vb_task_cancel(t);
	run_all();
	assert_string_equal(trace, "-125 -125 -110 -125 1@60 ");
}

static void test_cancel_before_it_runs(void **state)
{
	struct vb_task *t = spawn(cancel_body, NULL);

	vb_task_cancel(t);
	run_all();
	assert_string_equal(trace, "-125 -125 -110 -125 1@60 ");
}

static void deaf(void *arg)
{
	int err = vb_task_suspend_uninterruptible(VB_FOREVER);

	note("%d@%llu ", err, (unsigned long long)now());
	note("%d ", vb_task_suspend(VB_FOREVER));
}

static void test_uninterruptible(void **state)
{
	struct vb_task *t = spawn(deaf, NULL);
	uint64_t end = 20;

	run_until_stuck();
	vb_task_cancel(t);
	spawn(sleeper_until, &end);
	run_until_stuck();
	assert_string_equal(trace, "woke@20 ");
	vb_task_wake(t);
	run_all();
	assert_string_equal(trace, "woke@20 0@20 -125 ");
}

static void shielded(void *arg)
{
	bool before = vb_task_shield(true);
	int sleep, suspend;

	vb_task_cancel(vb_task_self());
	sleep = vb_task_sleep_until(30);
	suspend = vb_task_suspend(40);
	note("%d %d %d ", vb_task_cancelled(vb_task_self()), sleep, suspend);
	assert_true(vb_task_shield(before));
	note("%d %d ", vb_task_cancelled(vb_task_self()), vb_task_suspend(50));
}

static void test_shield(void **state)
{
	struct vb_task *t = spawn(shielded, NULL);

	assert_int_equal(vb_sched_run(sched, NULL, 10), -ETIMEDOUT);
	vb_task_cancel(t);
	run_all();
	assert_string_equal(trace, "0 0 -110 1 -125 ");
	assert_int_equal(now(), 40);
}

/* ---- death ---- */

static void never(void *arg)
{
	note("never ");
}

static void test_kill_before_it_runs(void **state)
{
	struct vb_task *t = spawn(never, NULL);

	spawn(yielder, "a");
	vb_task_kill(t);
	assert_int_equal(vb_sched_tasks(sched), 1);
	run_all();
	assert_string_equal(trace, "a0 a1 a2 ");
}

static void test_kill_waiting(void **state)
{
	uint64_t forever = VB_FOREVER, soon = 50;
	struct vb_task *with_timer = spawn(wait_then_never, &soon);
	struct vb_task *without = spawn(wait_then_never, &forever);
	uint64_t end = 100;

	spawn(sleeper_until, &end);
	assert_int_equal(vb_sched_run(sched, NULL, 10), -ETIMEDOUT);
	vb_task_kill(with_timer);
	vb_task_kill(without);
	run_all();
	assert_string_equal(trace, "woke@100 ");
}

static void test_kill_ready(void **state)
{
	uint64_t forever = VB_FOREVER;
	struct vb_task *t = spawn(wait_then_never, &forever);

	run_until_stuck();
	vb_task_wake(t);
	vb_task_kill(t);
	run_all();
	assert_string_equal(trace, "");
}

static void killer(void *arg)
{
	struct vb_task **victims = arg;

	vb_task_kill(victims[0]); /* behind us in the same round */
	vb_task_kill(victims[1]);
	note("killed ");
}

static void test_kill_from_a_task(void **state)
{
	uint64_t forever = VB_FOREVER;
	struct vb_task *victims[2];

	victims[1] = spawn(wait_then_never, &forever);
	run_until_stuck();
	spawn(killer, victims);
	victims[0] = spawn(never, NULL);
	spawn(yielder, "a");
	run_all();
	assert_string_equal(trace, "killed a0 a1 a2 ");
}

/* A new task on the stack of a killed one finds it clean, also for the sanitizers. */
static void test_stack_is_reused(void **state)
{
	uint64_t forever = VB_FOREVER;
	struct vb_task *first = NULL;

	for (int i = 0; i < 50; i++) {
		struct vb_task *t = spawn(wait_then_never, &forever);
		double out = 0;

		if (i == 0)
			first = t;
		assert_ptr_equal(t, first);
		run_until_stuck();
		vb_task_kill(t);
		spawn(keeper, &out);
		run_all();
		assert_true(out > 1);
	}
}

static unsigned mappings(void)
{
#ifdef VB_TSAN
	return 0; /* each fiber of the sanitizer's has some of its own */
#else
	FILE *f = fopen("/proc/self/maps", "r");
	unsigned n = 0;

	assert_non_null(f);
	for (int c; (c = fgetc(f)) != EOF;)
		n += c == '\n';
	fclose(f);
	return n;
#endif
}

#define CROWD (3 * VB_SLAB_STACKS + 5)

/* Of very many tasks in virtual time not each has a mapping and a guard. */
static void test_stacks_share_mappings(void **state)
{
	uint64_t forever = VB_FOREVER;
	struct vb_task *t[CROWD];
	unsigned before = mappings();
	double out = 0;

	(void)state;
	sched->guarded_most = 2;
	for (unsigned round = 0; round < 2; round++) {
		for (unsigned i = 0; i < CROWD; i++)
			t[i] = spawn(wait_then_never, &forever);
		run_until_stuck();
		assert_in_range(mappings(), 0, before + 24);
		for (unsigned i = 0; i < CROWD; i++)
			vb_task_kill(t[i]);
		spawn(keeper, &out);
		run_all();
		vb_stack_trim(sched);
		assert_in_range(mappings(), 0, before + 8);
	}
}

/* As the frames of a deep call would: down to the task below. */
static void overflow(void *arg)
{
	volatile uint64_t *at = (uint64_t *)(void *)vb_task_self()->bottom;
	uint64_t *last = &((struct vb_task *)arg)->canary;

	while (at > last)
		*--at = 0;
}

/* It ends the process, which says why to `to`. */
static void overflowing_process(int to)
{
	uint64_t forever = VB_FOREVER;
	struct vb_task *below;

	dup2(to, STDERR_FILENO);
	signal(SIGABRT, SIG_DFL);
	if (vb_sched_create(&virtual_env, NULL, &sched) != 0)
		_exit(1);
	sched->guarded_most = 0;
	below = spawn(wait_then_never, &forever);
	spawn(overflow, below);
	(void)vb_sched_run(sched, NULL, VB_FOREVER);
	vb_task_kill(below);
	_exit(0);
}

/* Without a guard it is found when the task of the stack below goes on or ends. */
static void test_overflow_is_found(void **state)
{
	char said[512];
	int status, ends[2];
	ssize_t n;
	pid_t pid;

	(void)state;
	assert_int_equal(pipe(ends), 0);
	pid = fork_child();
	assert_int_not_equal(pid, -1);
	if (pid == 0)
		overflowing_process(ends[1]);
	close(ends[1]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	n = read(ends[0], said, sizeof(said) - 1);
	close(ends[0]);
	assert_true(n > 0);
	said[n] = '\0';
	assert_non_null(strstr(said, "overflowed its stack"));
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void test_kill_all(void **state)
{
	uint64_t forever = VB_FOREVER, soon = 50;
	struct vb_task *t;

	spawn(wait_then_never, &forever);
	spawn(wait_then_never, &soon);
	t = spawn(wait_then_never, &forever);
	assert_int_equal(vb_sched_run(sched, NULL, 10), -ETIMEDOUT);
	vb_task_wake(t);
	spawn(never, NULL);
	assert_int_equal(vb_sched_tasks(sched), 4);
	vb_sched_kill_all(sched);
	run_all();
	assert_int_equal(vb_task_sleep_until(100), 0);
	assert_string_equal(trace, "");
}

static void die_deep(int depth, bool die)
{
	volatile char room[100];

	room[0] = (char)depth;
	if (depth > 0)
		die_deep(depth - 1, die);
	else if (die)
		vb_task_die();
	note("unwound%d ", room[0]);
}

static void dier(void *arg)
{
	vb_task_yield();
	note("dies ");
	die_deep(10, *(bool *)arg);
}

static void test_die(void **state)
{
	spawn(dier, &(bool){true});
	spawn(yielder, "a");
	run_all();
	assert_string_equal(trace, "a0 dies a1 a2 ");
}

/* ---- the root ---- */

static void root_waker(void *arg)
{
	assert_int_equal(vb_task_sleep_until(30), 0);
	note("waking ");
	vb_task_wake(arg);
	note("on ");
}

static void test_root_suspends(void **state)
{
	struct vb_task *root = vb_task_self();

	spawn(root_waker, root);
	assert_int_equal(vb_task_suspend(VB_FOREVER), 0);
	note("root@%llu ", (unsigned long long)now());
	assert_ptr_equal(vb_task_self(), root);
	assert_string_equal(trace, "waking on root@30 ");
	assert_int_equal(vb_task_suspend(45), -ETIMEDOUT);
	assert_int_equal(now(), 45);
	assert_int_equal(vb_task_sleep_until(60), 0);
	assert_int_equal(now(), 60);
	vb_task_wake(root);
	assert_int_equal(vb_task_suspend(VB_FOREVER), 0);
	run_all();
}

/* A wake that comes while the root runs the others is its permit for later. */
static void test_root_woken_in_run(void **state)
{
	spawn(root_waker, vb_task_self());
	run_all();
	assert_int_equal(vb_task_suspend(VB_FOREVER), 0);
	assert_int_equal(now(), 30);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		VIRTUAL(test_order),
		VIRTUAL(test_root_is_one_of_them),
		VIRTUAL(test_stacks_keep),
		VIRTUAL(test_user_and_names),
		VIRTUAL(test_stack_too_large),
		VIRTUAL(test_permit_before_suspend),
		VIRTUAL(test_one_permit_only),
		VIRTUAL(test_wake_ends_the_wait),
		VIRTUAL(test_wake_after_timeout_is_kept),
		VIRTUAL(test_sleep_keeps_the_permit),
		VIRTUAL(test_past_deadline_gives_way),
		REAL(test_past_deadline_gives_way),
		VIRTUAL(test_cancel),
		VIRTUAL(test_cancel_before_it_runs),
		VIRTUAL(test_uninterruptible),
		VIRTUAL(test_shield),
		VIRTUAL(test_kill_before_it_runs),
		VIRTUAL(test_kill_waiting),
		VIRTUAL(test_kill_ready),
		VIRTUAL(test_kill_from_a_task),
		VIRTUAL(test_kill_all),
		VIRTUAL(test_stack_is_reused),
		VIRTUAL(test_stacks_share_mappings),
		VIRTUAL(test_overflow_is_found),
		VIRTUAL(test_die),
		VIRTUAL(test_root_suspends),
		VIRTUAL(test_root_woken_in_run),
	};

	return cmocka_run_group_tests_name("task", tests, NULL, NULL);
}
