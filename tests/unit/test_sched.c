/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler: timers, running, virtual and real time, threads and processes, stacks. */
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rng.h"
#include "child.h"
#include "task_fixture.h"

/* ---- timers ---- */

struct numbered_timer {
	struct vb_timer timer;
	int number;
};

static void timer_note(struct vb_timer *t)
{
	struct numbered_timer *n = vb_container_of(t, struct numbered_timer, timer);

	assert_false(vb_timer_armed(t));
	assert_null(vb_task_self());
	note("%d@%llu ", n->number, (unsigned long long)now());
}

static void test_timers_and_ties(void **state)
{
	struct numbered_timer t[7];
	uint64_t end = 100;

	for (int i = 0; i < 7; i++)
		t[i] = (struct numbered_timer){.timer.fire = timer_note, .number = i};
	vb_timer_arm(sched, &t[0].timer, 50);
	vb_timer_arm(sched, &t[1].timer, 20);
	vb_timer_arm(sched, &t[2].timer, 50);
	vb_timer_arm(sched, &t[3].timer, 10);
	vb_timer_arm(sched, &t[4].timer, 50);
	vb_timer_arm(sched, &t[5].timer, 30);
	vb_timer_arm(sched, &t[6].timer, 70);
	vb_timer_arm(sched, &t[0].timer, 50); /* moved: now behind 2 and 4 */
	vb_timer_arm(sched, &t[6].timer, 5);
	vb_timer_disarm(sched, &t[5].timer);
	vb_timer_disarm(sched, &t[5].timer);
	assert_false(vb_timer_armed(&t[5].timer));
	assert_true(vb_timer_armed(&t[4].timer));
	spawn(sleeper_until, &end);
	run_all();
	assert_string_equal(trace, "6@5 3@10 1@20 2@50 4@50 0@50 woke@100 ");
}

#define MANY 2000

struct checked_timer {
	struct vb_timer timer;
	bool expected;
};

static struct checked_timer checked[MANY];
static unsigned many;
static struct vb_rng checked_rng;
static uint64_t last_at, last_seq, armed, fired;
static int again_left;

/* Mostly near, so that there are ties; at times anywhere in the 64 bits. */
static uint64_t some_time_ahead(void)
{
	uint64_t r = vb_rng_next(&checked_rng) >> vb_rng_below(&checked_rng, 30);

	if (vb_rng_chance(&checked_rng, 0.7))
		return now() + vb_rng_below(&checked_rng, 5000);
	return now() + (r >> (many == MANY ? 4 : 24));
}

static void checked_arm(struct checked_timer *c)
{
	armed += !c->expected;
	c->expected = true;
	vb_timer_arm(sched, &c->timer, some_time_ahead());
}

static void checked_disarm(struct checked_timer *c)
{
	armed -= c->expected;
	c->expected = false;
	vb_timer_disarm(sched, &c->timer);
}

static void checked_change(void)
{
	struct checked_timer *c = &checked[vb_rng_below(&checked_rng, many)];

	if (vb_rng_chance(&checked_rng, 0.7))
		checked_arm(c);
	else
		checked_disarm(c);
}

static void timer_check(struct vb_timer *t)
{
	struct checked_timer *c = vb_container_of(t, struct checked_timer, timer);

	assert_true(c->expected);
	assert_false(vb_timer_armed(t));
	c->expected = false;
	armed--;
	fired++;
	assert_int_equal(now(), t->at_ns);
	assert_true(t->at_ns > last_at || (t->at_ns == last_at && t->seq > last_seq));
	last_at = t->at_ns;
	last_seq = t->seq;
	for (; again_left > 0 && !vb_rng_chance(&checked_rng, 0.3); again_left--)
		checked_change();
}

static void nothing(void *arg)
{
	(void)arg;
}

/* The wheel is looked at then, whether a timer is due or not, as in each round of real time. */
static void pass_time(uint64_t until_ns)
{
	assert_int_equal(vb_sched_run(sched, NULL, until_ns), -ETIMEDOUT);
	spawn(nothing, NULL);
	assert_int_equal(vb_sched_run(sched, NULL, until_ns), -ETIMEDOUT);
	assert_int_equal(now(), until_ns);
}

/* Arms, moves and disarms at random, also from timers and between steps of time.  Each that is left
 * must fire once, at its time, in the order of (time, arming): that order is total, so it is enough
 * that each is later than the one before. */
static void timers_at_random(unsigned n, unsigned steps, unsigned changes,
			     uint64_t (*step_ns)(void))
{
	uint64_t end = UINT64_MAX - 1;

	many = n;
	vb_rng_seed(&checked_rng, 7, 0);
	last_at = last_seq = fired = armed = 0;
	for (unsigned i = 0; i < many; i++)
		checked[i] = (struct checked_timer){.timer.fire = timer_check};
	spawn(sleeper_until, &end);
	for (unsigned step = 0; step < steps; step++) {
		uint64_t until = now() + step_ns();

		again_left = (int)changes;
		for (unsigned i = 0; i < changes; i++)
			checked_change();
		pass_time(until);
	}
	for (unsigned i = 0; i < many; i++)
		assert_int_equal(checked[i].expected, vb_timer_armed(&checked[i].timer));
	assert_in_range(armed, many / 10, many);
	again_left = many == MANY ? 20000 : 0;
	run_all();
	assert_int_equal(armed, 0);
}

static uint64_t short_step_ns(void)
{
	return vb_rng_below(&checked_rng, 2000);
}

static void test_timers_at_random(void **state)
{
	timers_at_random(MANY, 200, 100, short_step_ns);
	assert_int_equal(again_left, 0);
	assert_true(fired > 10000);
}

static uint64_t any_step_ns(void)
{
	return vb_rng_next(&checked_rng) >> (24 + vb_rng_below(&checked_rng, 40));
}

/* So few that one lies alone in its slot when a step ends inside that slot. */
static void test_few_timers_at_random(void **state)
{
	timers_at_random(3, 1000, 1, any_step_ns);
	assert_true(fired > 300);
}

/* One that waits far ahead, alone in the second that begins at 2^30 ns; when the wheel's time has come
 * into that second, another one is armed again and again. */
static void test_timer_behind_busy_ones(void **state)
{
	struct numbered_timer t[2];
	uint64_t end = 3000000000, at = 1500000000;

	for (int i = 0; i < 2; i++)
		t[i] = (struct numbered_timer){.timer.fire = timer_note, .number = i};
	spawn(sleeper_until, &end);
	vb_timer_arm(sched, &t[0].timer, at);
	for (uint64_t until = 1100000000; until < 2000000000; until += 50000000) {
		pass_time(until);
		assert_int_equal(vb_timer_armed(&t[0].timer), until < at);
		vb_timer_arm(sched, &t[1].timer, until + 100000000);
	}
	assert_string_equal(trace, "0@1500000000 ");
	vb_timer_disarm(sched, &t[1].timer);
	run_all();
}

static int rearm_left;

static void timer_rearm(struct vb_timer *t)
{
	note("r%d ", rearm_left);
	if (--rearm_left > 0)
		vb_timer_arm(sched, t, 0);
}

static void test_timer_rearms_itself(void **state)
{
	struct vb_timer t = {.fire = timer_rearm};

	rearm_left = 3;
	vb_timer_arm(sched, &t, 0);
	spawn(yielder, "a");
	spawn(yielder, "b");
	run_all();
	/* A timer that is due at once cannot keep the tasks from running. */
	assert_string_equal(trace, "r3 a0 b0 r2 a1 b1 r1 a2 b2 ");
}

/* ---- run ---- */

static void stopper(void *arg)
{
	vb_task_sleep_until(20);
	*(bool *)arg = true;
	vb_task_sleep_until(40);
	note("after ");
}

static void test_stop(void **state)
{
	bool stop = false;

	spawn(stopper, &stop);
	assert_int_equal(vb_sched_run(sched, &stop, VB_FOREVER), 0);
	assert_int_equal(now(), 20);
	assert_int_equal(vb_sched_tasks(sched), 1);
	assert_string_equal(trace, "");
	run_all();
	assert_string_equal(trace, "after ");
}

static void ticking_daemon(void *arg)
{
	for (;;)
		vb_task_sleep_until(now() + 10);
}

static void test_daemons(void **state)
{
	const struct vb_task_params daemon = {.daemon = true, .name = "ticker"};
	struct vb_task *ticker, *waiter;
	uint64_t end = 95, forever = VB_FOREVER;

	assert_int_equal(vb_task_spawn(sched, ticking_daemon, NULL, &daemon, &ticker), 0);
	assert_int_equal(vb_task_spawn(sched, wait_then_never, &forever, &daemon, &waiter), 0);
	assert_int_equal(vb_sched_run(sched, NULL, VB_FOREVER), 0);
	spawn(sleeper_until, &end);
	assert_int_equal(vb_sched_run(sched, NULL, VB_FOREVER), 0);
	assert_int_equal(now(), 95);
	assert_int_equal(vb_sched_tasks(sched), 2);
	vb_task_kill(ticker);
	vb_task_kill(waiter);
}

static void test_deadlock_is_said(void **state)
{
	uint64_t forever = VB_FOREVER;
	struct vb_task *a, *b;
	char text[512];

	assert_int_equal(vb_task_spawn(sched, wait_then_never, &forever,
				       &(struct vb_task_params){.name = "client 17"}, &a),
			 0);
	assert_int_equal(vb_task_spawn(sched, wait_then_never, &forever,
				       &(struct vb_task_params){.name = "server", .daemon = true},
				       &b),
			 0);
	vb_log_capture_begin(text, sizeof(text));
	assert_int_equal(vb_sched_run(sched, NULL, VB_FOREVER), -EDEADLK);
	vb_log_capture_end();
	assert_non_null(strstr(text, "1 tasks wait"));
	assert_non_null(strstr(text, "'client 17'"));
	assert_null(strstr(text, "server"));
	vb_task_kill(a);
	vb_task_kill(b);
}

/* ---- virtual time repeats itself ---- */

static uint64_t hash;

static void hash_add(uint64_t v)
{
	hash = (hash ^ v) * 0x100000001b3ull;
}

struct chaos {
	struct vb_rng rng;
	struct vb_task *task;
	unsigned id;
};

#define CHAOS 50
static struct chaos chaos[CHAOS];

static void chaos_body(void *arg)
{
	struct chaos *c = arg;

	for (int i = 0; i < 200; i++) {
		uint64_t until = now() + vb_rng_below(&c->rng, 8);
		int r = 0;

		switch (vb_rng_below(&c->rng, 4)) {
		case 0:
			vb_task_yield();
			break;
		case 1:
			r = vb_task_sleep_until(until);
			break;
		case 2:
			r = vb_task_suspend(until);
			break;
		default: {
			struct vb_task *t = chaos[vb_rng_below(&c->rng, CHAOS)].task;

			if (t != NULL)
				vb_task_wake(t);
		}
		}
		hash_add(now() << 16 | c->id << 8 | (unsigned)-r);
	}
	c->task = NULL;
}

static uint64_t chaos_run(uint64_t seed)
{
	hash = 0xcbf29ce484222325ull;
	assert_int_equal(vb_sched_create(&virtual_env, NULL, &sched), 0);
	for (unsigned i = 0; i < CHAOS; i++) {
		vb_rng_seed(&chaos[i].rng, seed, i);
		chaos[i].id = i;
		chaos[i].task = spawn(chaos_body, &chaos[i]);
	}
	run_all();
	hash_add(now());
	hash_add(vb_sched_switches(sched));
	vb_sched_destroy(sched);
	return hash;
}

static void test_virtual_time_repeats(void **state)
{
	uint64_t a = chaos_run(1), b = chaos_run(1), c = chaos_run(2);

	assert_int_equal(a, b);
	assert_int_not_equal(a, c);
}

/* ---- many tasks ---- */

/* TSan has room for 8,000 fibers, and takes 10 ms for each. */
#ifdef VB_TSAN
#define MANY_TASKS 1000
#else
#define MANY_TASKS 10000
#endif

static uint64_t finished;

static void one_of_many(void *arg)
{
	uint64_t at = (uintptr_t)arg % 97;

	assert_int_equal(vb_task_sleep_until(at), 0);
	assert_int_equal(now(), at);
	vb_task_yield();
	finished++;
}

static void test_many_tasks(void **state)
{
	finished = 0;
	for (uintptr_t i = 0; i < MANY_TASKS; i++)
		spawn(one_of_many, (void *)i);
	assert_int_equal(vb_sched_tasks(sched), MANY_TASKS);
	run_all();
	assert_int_equal(finished, MANY_TASKS);
}

/* ---- real time ---- */

static void test_real_time_passes(void **state)
{
	uint64_t start = vb_clock_ns(), until = start + 3000000;

	assert_false(vb_sched_env(sched)->is_virtual);
	spawn(sleeper_until, &until);
	run_all();
	assert_true(vb_clock_ns() >= until);
	assert_true(vb_sched_now_coarse(sched) <= vb_clock_ns());
	assert_true(vb_sched_now_coarse(sched) >= until);
	assert_int_equal(vb_task_suspend(vb_clock_ns() + 1000000), -ETIMEDOUT);
}

static void test_real_run_times_out(void **state)
{
	uint64_t forever = VB_FOREVER, until = vb_clock_ns() + 1000000;
	struct vb_task *t = spawn(wait_then_never, &forever);

	assert_int_equal(vb_sched_run(sched, NULL, until), -ETIMEDOUT);
	assert_true(vb_clock_ns() >= until);
	vb_task_kill(t);
}

static unsigned polls, idles;

static void counting_poll(struct vb_sched *s)
{
	polls++;
}

static void waking_idle(struct vb_sched *s, uint64_t until_ns)
{
	idles++;
	assert_int_equal(until_ns, VB_FOREVER);
	assert_null(vb_task_self());
	vb_task_wake(vb_sched_env_ctx(s));
}

static void test_env_wakes(void **state)
{
	static const struct vb_env_ops env = {
		.name = "test", .idle = waking_idle, .poll = counting_poll};

	polls = idles = 0;
	vb_sched_set_env(sched, &env, spawn(suspender, &(uint64_t){VB_FOREVER}));
	run_all();
	assert_int_equal(idles, 1);
	assert_in_range(polls, 2, 4);
	assert_memory_equal(trace, "0@", 2);
	vb_sched_set_env(sched, NULL, NULL);
	assert_ptr_not_equal(vb_sched_env(sched), &env);
}

static void test_env_changes_the_clock(void **state)
{
	assert_true(vb_sched_now(sched) > 0);
	vb_sched_set_env(sched, &virtual_env, NULL);
	assert_int_equal(vb_sched_now(sched), 0);
	assert_int_equal(vb_task_sleep_until(77), 0);
	assert_int_equal(vb_sched_now_slow(sched), 77);
	vb_sched_set_env(sched, NULL, NULL);
	assert_true(vb_sched_now_coarse(sched) > 77);
}

/* ---- threads, processes ---- */

static void *thread_body(void *arg)
{
	struct vb_sched *s = vb_sched_self();
	uint64_t forever = VB_FOREVER;
	struct vb_task *t;

	*(struct vb_sched **)arg = s;
	if (vb_task_spawn(s, wait_then_never, &forever, NULL, &t) != 0 ||
	    vb_task_spawn(s, yielder, "", &(struct vb_task_params){.daemon = true}, &t) != 0)
		return NULL;
	vb_task_yield();
	return vb_sched_tasks(s) == 2 ? arg : NULL;
}

/* A thread gets its scheduler on first use and takes it, and the tasks it left, along. */
static void test_thread_has_its_own(void **state)
{
	struct vb_sched *other = NULL;
	pthread_t thread;
	void *ok = NULL;

	assert_ptr_equal(vb_sched_self(), sched);
	assert_int_equal(pthread_create(&thread, NULL, thread_body, &other), 0);
	assert_int_equal(pthread_join(thread, &ok), 0);
	assert_non_null(ok);
	assert_ptr_not_equal(other, sched);
	trace[0] = '\0';
}

static int wait_status(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void test_forget_after_fork(void **state)
{
	uint64_t forever = VB_FOREVER;
	struct vb_task *t = spawn(wait_then_never, &forever);
	pid_t pid;
	int status;

	pid = fork_child();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct vb_sched *old = sched, *s;
		double out = 0;

		s = vb_sched_self();
		if (s == old || vb_sched_is_here(old) || vb_sched_tasks(s) != 0 ||
		    vb_task_spawn(s, keeper, &out, NULL, NULL) != 0 ||
		    vb_sched_run(s, NULL, VB_FOREVER) != 0 || !(out > 1))
			_exit(1);
		_exit(0);
	}
	status = wait_status(pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	vb_task_kill(t);
}

/* In virtual time a root that waits with nobody to wake it would wait for ever: it says so and
 * stops. */
static void test_root_stuck_aborts(void **state)
{
	pid_t pid = fork_child();
	int status;

	assert_true(pid >= 0);
	if (pid == 0) {
		const struct rlimit no_core = {0, 0};

		setrlimit(RLIMIT_CORE, &no_core);
		signal(SIGABRT, SIG_DFL);
		/* The cause is expected here. */
		if (setup_virtual(NULL) == 0 && freopen("/dev/null", "w", stderr) != NULL)
			vb_task_suspend(VB_FOREVER);
		_exit(0);
	}
	status = wait_status(pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGABRT);
}

static int eat_stack(int depth)
{
	volatile char room[1024];

	room[0] = (char)depth;
	return depth == 0 ? 0 : eat_stack(depth - 1) + room[0];
}

static void overflow(void *arg)
{
	*(volatile int *)arg = eat_stack(1 << 20);
}

static void test_guard_page(void **state)
{
	pid_t pid;
	int out, status;

#if defined(VB_ASAN) || defined(VB_TSAN)
	skip(); /* their handlers turn the signal into an exit */
#endif
	pid = fork_child();
	assert_true(pid >= 0);
	if (pid == 0) {
		const struct rlimit no_core = {0, 0};

		/* cmocka's handler would need the stack that is gone, and go on after it. */
		setrlimit(RLIMIT_CORE, &no_core);
		signal(SIGSEGV, SIG_DFL);
		if (setup_real(NULL) != 0)
			_exit(1);
		/* A neighbour below: without the guard the child would write into it and live. */
		spawn(yielder, "a");
		spawn(overflow, &out);
		spawn(yielder, "b");
		vb_sched_run(sched, NULL, VB_FOREVER);
		_exit(0);
	}
	status = wait_status(pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGSEGV);
}

static void deep_enough(void *arg)
{
	*(volatile int *)arg = eat_stack(200);
}

static void test_large_stack(void **state)
{
	const struct vb_task_params params = {.stack_bytes = 1u << 20};
	int out = -1;

	assert_int_equal(vb_task_spawn(sched, deep_enough, &out, &params, NULL), 0);
	run_all();
	assert_int_not_equal(out, -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		VIRTUAL(test_timers_and_ties),
		VIRTUAL(test_timers_at_random),
		VIRTUAL(test_few_timers_at_random),
		VIRTUAL(test_timer_behind_busy_ones),
		VIRTUAL(test_timer_rearms_itself),
		VIRTUAL(test_stop),
		VIRTUAL(test_daemons),
		VIRTUAL(test_deadlock_is_said),
		cmocka_unit_test(test_virtual_time_repeats),
		VIRTUAL(test_many_tasks),
		REAL(test_real_time_passes),
		REAL(test_real_run_times_out),
		REAL(test_env_wakes),
		REAL(test_env_changes_the_clock),
		REAL(test_thread_has_its_own),
		REAL(test_forget_after_fork),
		VIRTUAL(test_root_stuck_aborts),
		REAL(test_guard_page),
		VIRTUAL(test_large_stack),
	};

	return cmocka_run_group_tests_name("sched", tests, NULL, NULL);
}
