/* SPDX-License-Identifier: Apache-2.0 */
/* A lock that the library does not have is explored as its own are: LOCK, that of doc/adding-a-lock.md, which says
 * what the reader is to do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "check/lock/campaign.h"
#include "lock/lock.h"

#if defined(VB_ASAN)
#define SEEDS 30
#else
#define SEEDS 150
#endif

extern const struct vb_lock_ops LOCK;

static void test_is_clean(void **state)
{
	static const struct vb_lock_ops *const mine[] = {&LOCK, NULL};
	struct vb_lock_campaign c;

	(void)state;
	vb_lock_register(mine);
	vb_lock_campaign_init(&c, &LOCK);
	c.all.first = 1;
	c.all.seeds = SEEDS;
	assert_int_equal(vb_campaign_run(&c.all), 0);
	if (c.all.found)
		fail_msg("%s, %s%s", c.ops->name, c.all.draw, c.all.stories);
	assert_int_equal(c.all.done, SEEDS);
	assert_true(c.checked_ops > 100 * SEEDS);
	vb_campaign_end(&c.all);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_is_clean)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
