/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the reads of the clock cost, ns and cycles of the counter: alone, and between two CAS on a
 * word of our own, which is where a lock has them.
 *
 * All cases are measured in turn, round after round, so that a change of the machine's speed hits
 * all of them; the table shows the least and the median over the rounds.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/compiler.h"

#define ROUNDS 101
#define STEPS  4000u

static uint64_t word;
static volatile uint64_t sink;

static uint64_t read_none(void)
{
	return 1;
}

static uint64_t read_drained(void)
{
	vb_clock_drain();
	return vb_clock_ns();
}

static inline __attribute__((always_inline)) void swap(uint64_t from, uint64_t to)
{
	__atomic_compare_exchange_n(&word, &from, to, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

#define CASES(X)                                                                                   \
	X(none, read_none)                                                                         \
	X(early, vb_clock_early_ns)                                                                \
	X(in_order, vb_clock_ns)                                                                   \
	X(drained, read_drained)                                                                   \
	X(gettime, vb_clock_gettime_ns)

#define BODY(name, read)                                                                           \
	static VB_NOINLINE void name##_alone(void)                                                 \
	{                                                                                          \
		for (unsigned i = 0; i < STEPS; i++)                                               \
			sink = read();                                                             \
	}                                                                                          \
	static VB_NOINLINE void name##_between(void)                                               \
	{                                                                                          \
		for (unsigned i = 0; i < STEPS; i++) {                                             \
			swap(0, 1);                                                                \
			sink = read();                                                             \
			swap(1, 0);                                                                \
		}                                                                                  \
	}
CASES(BODY)

#define ENTRY(name, read) {#name, {name##_alone, name##_between}},
static const struct {
	const char *name;
	void (*run[2])(void);
} cases[] = {CASES(ENTRY)};
#define N (sizeof(cases) / sizeof(cases[0]))

static uint64_t took[N][2][ROUNDS];

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

int main(void)
{
	double ticks = 0;

	vb_clock_init();
#if VB_CLOCK_COUNTER
	if (vb_clock.use_tsc)
		ticks = (double)(1u << 24) / vb_clock.mult; /* per ns */
#endif
	for (unsigned r = 0; r < ROUNDS; r++)
		for (unsigned c = 0; c < N; c++)
			for (unsigned k = 0; k < 2; k++) {
				uint64_t from = vb_clock_ns();

				cases[c].run[k]();
				took[c][k][r] = vb_clock_ns() - from;
			}
	printf("%-10s %28s %28s\n", "", "alone", "between two CAS");
	printf("%-10s %9s %9s %8s %9s %9s %8s\n", "read", "least ns", "median ns", "cycles",
	       "least ns", "median ns", "cycles");
	for (unsigned c = 0; c < N; c++) {
		printf("%-10s", cases[c].name);
		for (unsigned k = 0; k < 2; k++) {
			qsort(took[c][k], ROUNDS, sizeof(took[c][k][0]), by_size);
			printf(" %9.1f %9.1f %8.1f", (double)took[c][k][0] / STEPS,
			       (double)took[c][k][ROUNDS / 2] / STEPS,
			       (double)took[c][k][0] / STEPS * ticks);
		}
		putchar('\n');
	}
	return 0;
}
