/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two threads change a field each of one word, by the CPU's masked CAS: whoever loses the race
 * for the word to the other's field has not been done yet, and is tried again.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "fabric/cpu.h"

#define MEETINGS 50000u
#define LONG_NS  3000000000ull /* at most; where there is one core they meet seldom */

struct pair {
	struct vb_u128 word __attribute__((aligned(64)));
	unsigned ready;
	bool over, wide;
};

struct racer {
	struct pair *p;
	unsigned me;
	uint64_t ops, met; /* changes by the other between two of ours */
	bool lost;
	pthread_t thread;
};

/* By CAS from n to n + 1 of its own field, which nobody else changes; what the word was, before. */
static struct vb_u128 step(struct racer *r, uint64_t n)
{
	struct vb_u128 mask = {0}, from = {0}, to = {0}, old = {0};

	if (!r->p->wide) {
		const uint64_t field = (uint64_t)UINT32_MAX << 32 * r->me;

		old.lo = cpu_mcas64(&r->p->word.lo, n << 32 * r->me, field, (n + 1) << 32 * r->me,
				    field);
		return (struct vb_u128){.lo = (uint32_t)old.lo, .hi = old.lo >> 32};
	}
	*(r->me ? &mask.hi : &mask.lo) = UINT64_MAX;
	*(r->me ? &from.hi : &from.lo) = n;
	*(r->me ? &to.hi : &to.lo) = n + 1;
	return cpu_mcas128(&r->p->word, from, mask, to, mask);
}

static void *race(void *arg)
{
	struct racer *r = arg;
	uint64_t end, his = 0;

	__atomic_fetch_add(&r->p->ready, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&r->p->ready, __ATOMIC_SEQ_CST) < 2)
		;
	end = vb_clock_ns() + LONG_NS;
	while (!r->lost && r->met < MEETINGS && !__atomic_load_n(&r->p->over, __ATOMIC_RELAXED) &&
	       (r->ops % 1024 != 0 || vb_clock_ns() < end)) {
		struct vb_u128 old = step(r, r->ops);

		r->lost = (r->me ? old.hi : old.lo) != r->ops;
		r->met += (r->me ? old.lo : old.hi) != his;
		his = r->me ? old.lo : old.hi;
		r->ops++;
	}
	__atomic_store_n(&r->p->over, true, __ATOMIC_RELAXED);
	return NULL;
}

static void both(bool wide)
{
	struct pair p = {.wide = wide};
	struct racer r[2] = {{.p = &p, .me = 0}, {.p = &p, .me = 1}};

	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&r[i].thread, NULL, race, &r[i]), 0);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pthread_join(r[i].thread, NULL), 0);
	for (unsigned i = 0; i < 2; i++)
		assert_false(r[i].lost);
	assert_true(r[0].met + r[1].met > 0);
	assert_int_equal(wide ? p.word.lo : (uint32_t)p.word.lo, r[0].ops);
	assert_int_equal(wide ? p.word.hi : p.word.lo >> 32, r[1].ops);
}

static void fields_of_a_word(void **state)
{
	(void)state;
	both(false);
}

static void halves_of_a_pair(void **state)
{
	(void)state;
	both(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fields_of_a_word),
		cmocka_unit_test(halves_of_a_pair),
	};

	return cmocka_run_group_tests_name("cpu_race", tests, NULL, NULL);
}
