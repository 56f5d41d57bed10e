/* SPDX-License-Identifier: Apache-2.0 */
/* Rare branches that have names: who counts them, when a chance is taken, and what a campaign says
 * of those that it never reached. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define VB_LOG_ROOM "test"
#include "base/log.h"
#include "check/campaign.h"

static unsigned taken;

/* A protocol with three branches; one of them is reached in each seed that 7 divides, and one in none. */
static void walk(uint64_t seed)
{
	VB_SOMETIMES(10, "walk stroll: begins");
	if (seed % 7 == 0)
		VB_SOMETIMES(10, "walk: seven divides");
	if (seed == 0)
		VB_SOMETIMES(20, "walk: is zero");
	for (unsigned i = 0; i < 100; i++)
		taken += VB_CHANCE(40, "run: jumps");
}

static int explore(struct vb_campaign *c, uint64_t seed, struct vb_campaign_seed *out)
{
	(void)c;
	(void)out;
	vb_sites_begin(seed);
	walk(seed);
	vb_sites_end();
	return 0;
}

static void name(const struct vb_campaign *c, char *buf, size_t size)
{
	snprintf(buf, size, "walk --how %s", c->protocol);
}

static const char *groups(const struct vb_campaign *c)
{
	return c->protocol;
}

static const struct vb_campaign_kind kind = {.name = name, .groups = groups, .explore = explore};

static struct vb_campaign campaign(const char *protocol, uint64_t seeds)
{
	struct vb_campaign c = {.kind = &kind, .protocol = protocol, .first = 1, .seeds = seeds};

	assert_int_equal(vb_campaign_run(&c), 0);
	assert_int_equal(c.done, seeds);
	return c;
}

static const struct vb_reached *reached(const struct vb_campaign *c, const char *event)
{
	for (unsigned i = 0; i < c->sites.n; i++)
		if (!strcmp(vb_site_event(c->sites.site[i].site), event))
			return &c->sites.site[i];
	fail_msg("no site '%s' of %s", event, c->protocol);
	return NULL;
}

/* Elsewhere a site is a branch that is not taken. */
static void test_nobody_counts_outside(void **state)
{
	unsigned n, mine = 0;
	struct vb_site **all;

	vb_sites_begin(1);
	vb_sites_end();
	taken = 0;
	for (uint64_t seed = 0; seed < 100; seed++)
		walk(seed);
	assert_int_equal(taken, 0);
	all = vb_sites_all(&n);
	for (unsigned i = 0; i < n; i++) {
		mine += vb_site_is_of(all[i], "walk") || vb_site_is_of(all[i], "run");
		assert_int_equal(all[i]->hits, 0);
	}
	assert_int_equal(mine, 4);
}

static void test_groups_are_words(void **state)
{
	const struct vb_site s = {.name = "dslr dslr-update: comes round"};

	assert_true(vb_site_is_of(&s, "dslr"));
	assert_true(vb_site_is_of(&s, "lease dslr-update proxy"));
	assert_false(vb_site_is_of(&s, "dslr-as-published"));
	assert_false(vb_site_is_of(&s, "comes"));
	assert_false(vb_site_is_of(&s, ""));
	assert_string_equal(vb_site_event(&s), "comes round");
}

static void test_campaign_counts(void **state)
{
	struct vb_campaign c = campaign("walk", 19);

	assert_int_equal(c.sites.n, 3);
	assert_int_equal(reached(&c, "begins")->hits, 19);
	assert_int_equal(reached(&c, "seven divides")->hits, 2);
	assert_int_equal(reached(&c, "seven divides")->seeds, 2);
	assert_int_equal(reached(&c, "seven divides")->first, 7);
	/* Not within so few seeds. */
	assert_int_equal(c.unreached, 0);
	vb_campaign_end(&c);
	c = campaign("stroll", 19);
	assert_int_equal(c.sites.n, 1);
	vb_campaign_end(&c);
}

static void test_never_reached_is_a_finding(void **state)
{
	struct vb_campaign c = campaign("walk", 20);

	assert_int_equal(c.unreached, 1);
	assert_true(vb_site_is_unreached(reached(&c, "is zero"), c.done));
	assert_int_equal(c.violations, 0);
	vb_campaign_end(&c);
}

/* A wrong protocol need not reach anything: it ends with the seed that finds it. */
static void test_planted_reach_nothing(void **state)
{
	struct vb_campaign c = {
		.kind = &kind, .protocol = "walk", .planted = "a rule", .first = 1, .seeds = 30};

	assert_int_equal(vb_campaign_run(&c), 0);
	assert_int_equal(c.sites.n, 0);
	assert_int_equal(c.unreached, 0);
	vb_campaign_end(&c);
}

/* In some seeds, and in each of them as often as in the same seed again. */
static void test_chances(void **state)
{
	struct vb_campaign c = campaign("run", 80);
	const struct vb_reached *jumps = reached(&c, "jumps");
	unsigned before, again;

	assert_in_range(jumps->seeds, 5, 40);
	assert_true(jumps->hits > jumps->seeds && jumps->hits < 80 * 100);
	before = taken;
	explore(&c, jumps->first, NULL);
	again = taken;
	explore(&c, jumps->first, NULL);
	assert_true(again > before);
	assert_int_equal(taken - again, again - before);
	vb_campaign_end(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nobody_counts_outside),
		cmocka_unit_test(test_groups_are_words),
		cmocka_unit_test(test_campaign_counts),
		cmocka_unit_test(test_never_reached_is_a_finding),
		cmocka_unit_test(test_planted_reach_nothing),
		cmocka_unit_test(test_chances),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
