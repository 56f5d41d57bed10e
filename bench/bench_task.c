/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the scheduler costs: ns per switch, per timer, per spawn, next to an indirect function call
 * and to glibc's swapcontext.
 *
 * All cases are measured in turn, round after round, so that a change of the machine's speed during
 * the run hits all of them; the table shows the median over the rounds, the least, and the median
 * of the ratios to the two baselines of the same round.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include "base/rng.h"
#include "task/task.h"

#define ROUNDS 15
#define STEPS  200000u /* operations per case and round */

static struct vb_sched *sched;

static void must(int err)
{
	if (err != 0) {
		fprintf(stderr, "bench_task: unexpected error %d\n", err);
		exit(1);
	}
}

/* ---- baselines ---- */

static uint64_t sink;

static VB_NOINLINE void callee(uint64_t x)
{
	sink += x;
}

static uint64_t bench_call(unsigned unused)
{
	void (*volatile fn)(uint64_t) = callee;
	uint64_t start = vb_clock_ns();

	(void)unused;
	for (unsigned i = 0; i < STEPS; i++)
		fn(i);
	return vb_clock_ns() - start;
}

static ucontext_t uc_main, uc_other;

static void uc_body(void)
{
	for (;;)
		swapcontext(&uc_other, &uc_main);
}

static uint64_t bench_swapcontext(unsigned unused)
{
	static char stack[64 << 10];
	uint64_t start;

	(void)unused;
	must(getcontext(&uc_other));
	uc_other.uc_stack.ss_sp = stack;
	uc_other.uc_stack.ss_size = sizeof(stack);
	makecontext(&uc_other, uc_body, 0);
	start = vb_clock_ns();
	for (unsigned i = 0; i < STEPS / 2; i++)
		swapcontext(&uc_main, &uc_other);
	return vb_clock_ns() - start;
}

/* ---- tasks ---- */

static unsigned yields_each;

static void yielder(void *arg)
{
	(void)arg;
	for (unsigned i = 0; i < yields_each; i++)
		vb_task_yield();
}

static uint64_t run_tasks(unsigned n, void (*body)(void *arg))
{
	uint64_t start;

	for (unsigned i = 0; i < n; i++)
		must(vb_task_spawn(sched, body, (void *)(uintptr_t)i, NULL, NULL));
	start = vb_clock_ns();
	must(vb_sched_run(sched, NULL, VB_FOREVER));
	return vb_clock_ns() - start;
}

static uint64_t bench_yield(unsigned tasks)
{
	yields_each = STEPS / tasks;
	return run_tasks(tasks, yielder);
}

static void sleeper(void *arg)
{
	struct vb_rng r;

	vb_rng_seed(&r, 1, (uintptr_t)arg);
	for (unsigned i = 0; i < yields_each; i++)
		must(vb_task_sleep_until(vb_sched_now(sched) + 1000 + vb_rng_below(&r, 2000)));
}

/* What a simulated client does for each verb: arm a timer, give way, be woken by it. */
static uint64_t bench_sleep(unsigned tasks)
{
	yields_each = STEPS / tasks;
	return run_tasks(tasks, sleeper);
}

static void nothing(void *arg)
{
	sink += (uintptr_t)arg;
}

static uint64_t bench_spawn(unsigned tasks)
{
	uint64_t start = vb_clock_ns();

	for (unsigned i = 0; i < STEPS / tasks; i++)
		run_tasks(tasks, nothing);
	return vb_clock_ns() - start;
}

/* ---- timers ---- */

static struct vb_rng timer_rng;
static unsigned timers_left;

static void timer_again(struct vb_timer *t)
{
	if (timers_left > 0) {
		timers_left--;
		vb_timer_arm(sched, t, vb_sched_now(sched) + 1000 + vb_rng_below(&timer_rng, 2000));
	}
}

static void wait_for_timers(void *arg)
{
	(void)arg;
	while (timers_left > 0)
		must(vb_task_sleep_until(vb_sched_now(sched) + 1000000));
	must(vb_task_sleep_until(vb_sched_now(sched) + 1000000));
}

/* n armed all the time; each that fires is armed again at a random time ahead. */
static uint64_t bench_timer(unsigned n)
{
	struct vb_timer *timers = calloc(n, sizeof(*timers));
	uint64_t ns;

	if (timers == NULL)
		must(-1);
	vb_rng_seed(&timer_rng, 1, n);
	timers_left = STEPS;
	for (unsigned i = 0; i < n; i++) {
		timers[i].fire = timer_again;
		timer_again(&timers[i]);
	}
	ns = run_tasks(1, wait_for_timers);
	free(timers);
	return ns;
}

/* ---- the table ---- */

static const struct bench {
	const char *name;
	uint64_t (*run)(unsigned arg);
	unsigned arg;
} benches[] = {
	{"indirect call", bench_call, 0},
	{"swapcontext, one way", bench_swapcontext, 0},
	{"yield, 2 tasks", bench_yield, 2},
	{"yield, 1000 tasks", bench_yield, 1000},
	{"timer arm and fire, 1 armed", bench_timer, 1},
	{"timer arm and fire, 64 armed", bench_timer, 64},
	{"timer arm and fire, 1000 armed", bench_timer, 1000},
	{"timer arm and fire, 20000 armed", bench_timer, 20000},
	{"sleep (timer, two jumps), 64 tasks", bench_sleep, 64},
	{"sleep (timer, two jumps), 1000 tasks", bench_sleep, 1000},
	{"spawn and end, 100 at a time", bench_spawn, 100},
};

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(const double *values)
{
	double sorted[ROUNDS];

	for (unsigned i = 0; i < ROUNDS; i++)
		sorted[i] = values[i];
	qsort(sorted, ROUNDS, sizeof(sorted[0]), by_value);
	return sorted[ROUNDS / 2];
}

int main(void)
{
	static const struct vb_env_ops virtual_env = {.name = "virtual", .is_virtual = true};
	static double ns[VB_ARRAY_SIZE(benches)][ROUNDS];

	must(vb_sched_create(&virtual_env, NULL, &sched));
	for (unsigned round = 0; round < ROUNDS; round++)
		for (unsigned b = 0; b < VB_ARRAY_SIZE(benches); b++)
			ns[b][round] = (double)benches[b].run(benches[b].arg) / STEPS;
	printf("%-38s %9s %9s %8s %14s\n", "", "median ns", "least ns", "/ call", "/ swapcontext");
	for (unsigned b = 0; b < VB_ARRAY_SIZE(benches); b++) {
		double least = ns[b][0], per_call[ROUNDS], per_swap[ROUNDS];

		for (unsigned i = 0; i < ROUNDS; i++) {
			least = ns[b][i] < least ? ns[b][i] : least;
			per_call[i] = ns[b][i] / ns[0][i];
			per_swap[i] = ns[b][i] / ns[1][i];
		}
		printf("%-38s %9.1f %9.1f %8.1f %14.2f\n", benches[b].name, median(ns[b]), least,
		       median(per_call), median(per_swap));
	}
	vb_sched_destroy(sched);
	return 0;
}
