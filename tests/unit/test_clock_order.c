/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of the clock's reads (base/clock.h), shown on the machine that this runs on.
 *
 * Two threads change one word.  Each notes the time before its change, in order, and after it, with
 * the read under test.  The changes are ordered by what they found; so no time after a change may
 * be less than a time before an earlier one.  Nothing here depends on who is scheduled when: a
 * clock in order passes however the threads are delayed, a bare counter shows itself only where both
 * threads ran at once, and the test that plants it says so when they did not.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/compiler.h"

#define TICKETS (1u << 18)
#define ALONE   512u          /* changes in a row with nobody in between: let the other come */
#define ENOUGH  20000u        /* changes of hands */
#define LONG_NS 4000000000ull /* a bound, whoever else uses the machine */
#define WAIT_NS 200000000ull  /* at most, of one rendezvous */

enum read { READ_IN_ORDER, READ_PLANTED_BARE };

/* Tickets: a fetch-and-add numbers the changes.  Lock: only who holds it leaves a time behind. */
enum shape { SHAPE_TICKETS, SHAPE_LOCK };

struct stamp {
	uint64_t before, after;
	uint32_t who;
};

static struct {
	uint64_t word VB_ALIGNED(128);
	uint64_t left_at VB_ALIGNED(128); /* SHAPE_LOCK: under the lock */
	uint64_t left_by;
	uint64_t passes, early;
	unsigned here;
	struct stamp stamp[TICKETS];
} w;

struct runner {
	pthread_t thread;
	unsigned me;
	enum read read;
	enum shape shape;
	int cpu;
	uint64_t until_ns, early, passes;
};

/* The planted clock is the machine's without the fences. */
static inline uint64_t under_test(enum read read)
{
	return read == READ_IN_ORDER ? vb_clock_ns() : vb_clock_early_ns();
}

static void rendezvous(uint64_t until_ns)
{
	uint64_t end = vb_clock_ns() + WAIT_NS;

	__atomic_add_fetch(&w.here, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&w.here, __ATOMIC_SEQ_CST) < 2 && vb_clock_ns() < end &&
	       vb_clock_ns() < until_ns)
		sched_yield();
}

static inline __attribute__((always_inline)) void draw_tickets(struct runner *r, enum read read)
{
	uint64_t last = 0;
	unsigned alone = 0;

	for (;;) {
		uint64_t before = vb_clock_ns();
		uint64_t ticket = __atomic_fetch_add(&w.word, 1, __ATOMIC_SEQ_CST);
		uint64_t after = under_test(read);

		if (ticket >= TICKETS || before > r->until_ns)
			return;
		w.stamp[ticket] = (struct stamp){before, after, r->me};
		alone = ticket == last + 1 ? alone + 1 : 0;
		last = ticket;
		if (alone >= ALONE) {
			alone = 0;
			sched_yield();
		}
	}
}

static inline __attribute__((always_inline)) void take_and_leave(struct runner *r, enum read read)
{
	const uint64_t mine = r->me + 1;
	unsigned alone = 0;

	for (unsigned i = 0; i < TICKETS; i++) {
		uint64_t found = 0, granted, left;

		if (!__atomic_compare_exchange_n(&w.word, &found, mine, false, __ATOMIC_SEQ_CST,
						 __ATOMIC_SEQ_CST)) {
			alone = 0;
			if (i % 1024 == 0)
				sched_yield(); /* the holder may not be running */
			continue;
		}
		granted = under_test(read);
		r->early += granted < w.left_at;
		r->passes += w.left_by != mine;
		w.left_by = mine;
		left = vb_clock_ns();
		w.left_at = left;
		__atomic_compare_exchange_n(&w.word, &(uint64_t){mine}, 0, false, __ATOMIC_SEQ_CST,
					    __ATOMIC_SEQ_CST);
		if (left > r->until_ns)
			return;
		if (++alone >= ALONE) {
			alone = 0;
			sched_yield();
		}
	}
}

static void *run(void *arg)
{
	struct runner *r = arg;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((unsigned)r->cpu, &set);
	pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
	rendezvous(r->until_ns);
	if (r->shape == SHAPE_LOCK && r->read == READ_IN_ORDER)
		take_and_leave(r, READ_IN_ORDER);
	else if (r->shape == SHAPE_LOCK)
		take_and_leave(r, READ_PLANTED_BARE);
	else if (r->read == READ_IN_ORDER)
		draw_tickets(r, READ_IN_ORDER);
	else
		draw_tickets(r, READ_PLANTED_BARE);
	return NULL;
}

/* The first two CPUs that we may use; twice the same where there is one. */
static unsigned find_cpus(int cpu[2])
{
	cpu_set_t set;
	unsigned n = 0;

	assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
	for (int i = 0; i < CPU_SETSIZE && n < 2; i++)
		if (CPU_ISSET((unsigned)i, &set))
			cpu[n++] = i;
	assert_true(n > 0);
	if (n == 1)
		cpu[1] = cpu[0];
	return n;
}

/* Times after a change that are less than one before an earlier change. */
static void judge_tickets(uint64_t n)
{
	uint64_t latest = 0;

	for (uint64_t i = 0; i < n; i++) {
		const struct stamp *s = &w.stamp[i];

		/* A ticket that was drawn when time was up has no stamp. */
		if (s->after == 0)
			continue;
		w.early += s->after < latest;
		w.passes += i > 0 && s[-1].who != s->who;
		if (s->before > latest)
			latest = s->before;
	}
}

static void round_of(enum read read, enum shape shape, const int cpu[2], uint64_t until_ns)
{
	struct runner r[2];

	w.word = w.left_at = w.left_by = w.here = 0;
	for (unsigned i = 0; i < TICKETS; i++)
		w.stamp[i] = (struct stamp){0};
	for (unsigned i = 0; i < 2; i++) {
		r[i] = (struct runner){
			.me = i, .read = read, .shape = shape, .cpu = cpu[i], .until_ns = until_ns};
		assert_int_equal(pthread_create(&r[i].thread, NULL, run, &r[i]), 0);
	}
	for (unsigned i = 0; i < 2; i++) {
		pthread_join(r[i].thread, NULL);
		w.early += r[i].early;
		w.passes += r[i].passes;
	}
	if (shape == SHAPE_TICKETS)
		judge_tickets(w.word < TICKETS ? w.word : TICKETS);
}

/* Until the word has changed hands often enough, an early stamp was found, or time is up. */
static void contend(enum read read, enum shape shape, uint64_t enough)
{
	uint64_t until_ns;
	int cpu[2];

	vb_clock_init();
	find_cpus(cpu);
	w.passes = w.early = 0;
	until_ns = vb_clock_ns() + LONG_NS;
	while (w.early == 0 && w.passes < enough && vb_clock_ns() < until_ns)
		round_of(read, shape, cpu, until_ns);
	print_message("%llu changes of hands, %llu stamps too early\n",
		      (unsigned long long)w.passes, (unsigned long long)w.early);
}

static void in_order_with_tickets(void **state)
{
	(void)state;
	contend(READ_IN_ORDER, SHAPE_TICKETS, ENOUGH);
	assert_int_equal(w.early, 0);
}

static void in_order_with_a_lock(void **state)
{
	(void)state;
	contend(READ_IN_ORDER, SHAPE_LOCK, ENOUGH / 20);
	assert_int_equal(w.early, 0);
}

/* A check that cannot fail is a defect: the same one finds the counter without its fences. */
static void planted_bare_counter_is_found(void **state)
{
	int cpu[2];

	(void)state;
	vb_clock_init();
	if (!vb_clock.use_tsc) {
		print_message(
			"planted:bare-counter skipped: this machine's clock is clock_gettime, "
			"which has no read without order\n");
		skip();
	}
	if (find_cpus(cpu) < 2) {
		print_message("planted:bare-counter skipped: one CPU, which sees its own changes "
			      "in order\n");
		skip();
	}
	contend(READ_PLANTED_BARE, SHAPE_TICKETS, 100 * ENOUGH);
	if (w.early == 0) {
		print_message(
			"planted:bare-counter skipped: not shown within %llu changes of "
			"hands; this CPU reads its counter late enough, or its cores were too "
			"busy to run both threads at once\n",
			(unsigned long long)w.passes);
		skip();
	}
}

/* ---- one thread ----
 *
 * A chain of loads from memory that is in no cache, each of which says where the next one is, takes its
 * time.  A clock that is read behind it shows that time; one that runs ahead shows what a read alone
 * takes.  The median of many tries is judged, beside that of a chain which the CPU is made to wait for
 * and which is timed in turn with it: what else the machine does slows both, and one try that was
 * lucky (the line came from a cache after all) counts for nothing.
 */
#if defined(__x86_64__)

#define LINKS 8u
#define TRIES 2000u

static uint64_t link_of[LINKS][512] VB_ALIGNED(4096); /* each on a page of its own */

enum chain { OF_LOADS, OF_ATOMICS };

static inline __attribute__((always_inline)) uint64_t time_of(enum chain of, enum read read,
							      bool waits)
{
	uint64_t begin, end, at = 0;

	for (unsigned i = 0; i < LINKS; i++)
		__builtin_ia32_clflush(&link_of[i][0]);
	begin = vb_clock_ns();
	for (unsigned i = 0; i < LINKS; i++)
		at = of == OF_LOADS ? __atomic_load_n(&link_of[at][0], __ATOMIC_RELAXED)
				    : __atomic_fetch_add(&link_of[at][0], 0, __ATOMIC_SEQ_CST);
	if (waits)
		__builtin_ia32_lfence();
	end = under_test(read);
	__asm__ __volatile__("" : : "r"(at)); /* somebody wants to know */
	return end - begin;
}

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* How much of a chain's time is seen, in per cent. */
static inline __attribute__((always_inline)) uint64_t seen_of(enum chain of, enum read read)
{
	static uint64_t seen[TRIES], all[TRIES];

	vb_clock_init();
	for (uint64_t i = 0; i < LINKS; i++)
		link_of[i][0] = (i + 5) % LINKS;
	for (unsigned i = 0; i < TRIES; i++) {
		seen[i] = time_of(of, read, false);
		all[i] = time_of(of, read, true);
	}
	qsort(seen, TRIES, sizeof(seen[0]), by_size);
	qsort(all, TRIES, sizeof(all[0]), by_size);
	print_message("%llu ns, of %llu\n", (unsigned long long)seen[TRIES / 2],
		      (unsigned long long)all[TRIES / 2]);
	return 100 * seen[TRIES / 2] / all[TRIES / 2];
}

static void in_order_behind_loads(void **state)
{
	(void)state;
	assert_true(seen_of(OF_LOADS, READ_IN_ORDER) >= 60);
}

static void in_order_behind_atomics(void **state)
{
	(void)state;
	assert_true(seen_of(OF_ATOMICS, READ_IN_ORDER) >= 60);
}

static void planted_bare_counter_runs_ahead(void **state)
{
	(void)state;
	vb_clock_init();
	if (!vb_clock.use_tsc || seen_of(OF_LOADS, READ_PLANTED_BARE) >= 60) {
		print_message(
			"planted:bare-counter skipped: this machine's clock is not the counter, "
			"or its CPU does not look ahead\n");
		skip();
	}
}

#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(in_order_with_tickets),
		cmocka_unit_test(in_order_with_a_lock),
		cmocka_unit_test(planted_bare_counter_is_found),
#if defined(__x86_64__)
		cmocka_unit_test(in_order_behind_loads),
		cmocka_unit_test(in_order_behind_atomics),
		cmocka_unit_test(planted_bare_counter_runs_ahead),
#endif
	};

	return cmocka_run_group_tests_name("clock_order", tests, NULL, NULL);
}
