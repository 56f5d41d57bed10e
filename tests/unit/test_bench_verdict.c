/* SPDX-License-Identifier: Apache-2.0 */
/* What bench txn judges in the end of a run whose transactions were asked for less than serializability. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "lab/bench/txn/txn.h"

static int sums_do_not_hold(const struct vb_load *l, const struct vb_load_sums *sums,
			    const int64_t *change, char *why, size_t size)
{
	(void)l;
	(void)sums;
	(void)change;
	snprintf(why, size, "sums");
	return -EBADMSG;
}

static struct vb_tbench_result verdict(int isolation, uint64_t locked, uint64_t lost)
{
	static const struct vb_load_ops ops = {.judge = sums_do_not_hold};
	static struct vb_tbench_tally tally;
	static struct vb_tbench_plan plan;
	const struct vb_load load = {.ops = &ops};
	const struct vb_load_sums sums = {.locked = locked};
	struct vb_tbench_result r = {.plan = &plan, .tally = &tally};

	plan.o.isolation = isolation;
	tally.unknown = lost;
	vb_tbench_judge_sums(&r, &load, &sums);
	return r;
}

static void test_levels(void **state)
{
	struct vb_tbench_result r = verdict(VB_SERIALIZABLE, 0, 0);

	(void)state;
	assert_true(r.judged && r.broken);
	assert_string_equal(r.why, "sums");
	for (int level = VB_SERIALIZABLE + 1; level < VB_ISOLATIONS; level++) {
		r = verdict(level, 0, 0);
		assert_false(r.judged || r.broken);
		assert_non_null(strstr(r.unjudged, "not asked"));
		/* A lock that is left is nobody's wish. */
		r = verdict(level, 2, 0);
		assert_true(r.judged && r.broken);
		assert_non_null(strstr(r.why, "2 records are still locked"));
		/* It may be of a commit whose answer was lost. */
		r = verdict(level, 2, 1);
		assert_false(r.judged || r.broken);
		assert_non_null(strstr(r.unjudged, "lost"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_levels)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
