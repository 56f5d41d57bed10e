/* SPDX-License-Identifier: Apache-2.0 */
/* What a bench makes of the kernel's account of a run, given by hand, and of this machine's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "lab/busy.h"

#define S 1000000000ull

static struct vb_busy of(double begin, double end, uint64_t busy_ns, uint64_t own_ns,
			 uint64_t steal_ns)
{
	const struct vb_busy_point a = {.load1 = begin,
					.wall_ns = 100 * S,
					.busy_ns = 7 * S,
					.steal_ns = 3 * S,
					.own_ns = 5 * S,
					.queued_ns = S};
	const struct vb_busy_point b = {.load1 = end,
					.wall_ns = 110 * S,
					.busy_ns = 7 * S + busy_ns,
					.steal_ns = 3 * S + steal_ns,
					.own_ns = 5 * S + own_ns,
					.queued_ns = 3 * S};

	return vb_busy_between(&a, &b, 2);
}

/* Ten seconds on two cores. */
static void test_shares(void **state)
{
	struct vb_busy l = of(1, 2, 15 * S, 5 * S, 2 * S);

	(void)state;
	assert_true(l.known);
	assert_true(l.others > 0.499 && l.others < 0.501);
	assert_true(l.steal > 0.099 && l.steal < 0.101);
	assert_true(l.queued > 0.199 && l.queued < 0.201);
	/* Ticks of others cannot be less than none. */
	l = of(1, 2, 5 * S, 6 * S, 0);
	assert_true(l.others == 0);
}

static void test_heavy(void **state)
{
	struct vb_busy l;

	(void)state;
	l = of(1, 2.5, 19 * S, 19 * S, 0); /* two threads of ours on two cores, and a little more */
	assert_false(vb_busy_is_heavy(&l));
	l = of(1, 15, 19 * S, 19 * S, 0);
	assert_true(vb_busy_is_heavy(&l));
	l = of(15, 1, 19 * S, 19 * S, 0);
	assert_true(vb_busy_is_heavy(&l));
	l = of(0, 0, 10 * S, S,
	       0); /* others have come in this very moment: the average is behind */
	assert_true(vb_busy_is_heavy(&l));
	l = of(0, 0, 10 * S, 10 * S, 2 * S);
	assert_true(vb_busy_is_heavy(&l));
	l = (struct vb_busy){0};
	assert_false(vb_busy_is_heavy(&l));
}

static void test_text(void **state)
{
	struct vb_busy l = of(3, 15.4, 17 * S, 5 * S, 0);
	char buf[160], tiny[8];

	(void)state;
	assert_string_equal(vb_busy_text(&l, buf, sizeof(buf)),
			    "load 15 on 2 cores, 60% of their time for others");
	l = of(0.5, 0.4, 0, 0, 4 * S);
	assert_string_equal(vb_busy_text(&l, buf, sizeof(buf)),
			    "load 0.5 on 2 cores, 20% kept by the hypervisor");
	assert_string_equal(vb_busy_text(&l, tiny, sizeof(tiny)), "load 0.");
}

static void test_this_machine(void **state)
{
	struct vb_busy_point begin;
	uint64_t until;
	struct vb_busy l;

	(void)state;
	vb_busy_look(&begin);
	for (until = vb_clock_gettime_ns() + 20000000; vb_clock_gettime_ns() < until;)
		;
	l = vb_busy_since(&begin, false);
	assert_true(l.known && l.cores >= 1);
	assert_true(l.others >= 0 && l.others <= 1 && l.steal >= 0 && l.steal <= 1);
	assert_true(l.queued <= 1);
	l = vb_busy_since(&begin, true);
	assert_true(l.others < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shares),
		cmocka_unit_test(test_heavy),
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_this_machine),
	};

	return cmocka_run_group_tests_name("busy", tests, NULL, NULL);
}
