/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records of grants and their judge: what a client does is recorded as it was, each rule fires on
 * what it is there for, and clocks that disagree make the judge careful, not wrong.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>

#include "check/lock/record.h"

#define US 1000ull

/* ---- the judge ---- */

static const struct vb_record_case two_locks = {.locks = 2, .clients = 4};

struct ruling {
	struct vb_audit_counts counts;
	char *story;
};

static struct ruling judge_parts(const struct vb_record_case *c, const struct vb_record_part *parts,
				 unsigned n)
{
	struct ruling r;

	assert_int_equal(vb_record_judge(c, parts, n, &r.counts, &r.story), 0);
	assert_int_equal(r.story != NULL, r.counts.violations != 0);
	return r;
}

/* The violations among these grants, which must all be of this rule. */
static uint64_t judged(const struct vb_record_grant *g, unsigned n, enum vb_audit_rule rule)
{
	struct vb_record_part part = {.grants = g, .n = n};
	struct ruling r = judge_parts(&two_locks, &part, 1);

	assert_int_equal(r.counts.checked_ops, n);
	assert_int_equal(r.counts.by_rule[rule], r.counts.violations);
	if (r.story != NULL)
		assert_non_null(strstr(r.story, vb_audit_rule_names[rule]));
	free(r.story);
	return r.counts.violations;
}

static struct vb_record_grant grant(unsigned client, enum vb_mode mode, uint64_t from_us,
				    uint64_t to_us)
{
	return (struct vb_record_grant){.client = client,
					.mode = (uint8_t)mode,
					.called_ns = (from_us - 1) * US,
					.granted_ns = from_us * US,
					.left_ns = to_us * US,
					.valid_until_ns = VB_FOREVER,
					.end = VB_RECORD_FAILED};
}

static void test_overlaps(void **state)
{
	struct vb_record_grant g[3];

	g[0] = grant(0, VB_EXCLUSIVE, 10, 20);
	g[1] = grant(1, VB_EXCLUSIVE, 19, 30);
	assert_int_equal(judged(g, 2, VB_AUDIT_MODE_CONFLICT), 1);
	g[1] = grant(1, VB_SHARED, 19, 30);
	assert_int_equal(judged(g, 2, VB_AUDIT_MODE_CONFLICT), 1);
	g[0].mode = VB_SHARED;
	assert_int_equal(judged(g, 2, VB_AUDIT_MODE_CONFLICT), 0);
	/* One after the other, in whatever order they are told. */
	g[0] = grant(1, VB_EXCLUSIVE, 20, 30);
	g[1] = grant(0, VB_EXCLUSIVE, 10, 20);
	assert_int_equal(judged(g, 2, VB_AUDIT_MODE_CONFLICT), 0);
	/* Another lock. */
	g[1] = grant(0, VB_EXCLUSIVE, 10, 29);
	g[1].lock = 1;
	assert_int_equal(judged(g, 2, VB_AUDIT_MODE_CONFLICT), 0);
	/* A long holder far back, with a short one in between. */
	g[0] = grant(0, VB_SHARED, 10, 100);
	g[1] = grant(1, VB_SHARED, 20, 30);
	g[2] = grant(2, VB_EXCLUSIVE, 90, 95);
	assert_int_equal(judged(g, 3, VB_AUDIT_MODE_CONFLICT), 1);
}

static void test_leases(void **state)
{
	struct vb_record_grant g[2];

	/* Ran out before the next was granted; was never given back, or failed to be. */
	g[0] = grant(0, VB_EXCLUSIVE, 10, 50);
	g[0].valid_until_ns = 20 * US;
	g[1] = grant(1, VB_EXCLUSIVE, 20, 30);
	assert_int_equal(judged(g, 2, VB_AUDIT_MODE_CONFLICT), 0);
	g[0].left_ns = VB_FOREVER;
	g[0].end = VB_RECORD_OPEN;
	assert_int_equal(judged(g, 2, VB_AUDIT_MODE_CONFLICT), 0);
	/* Never given back and without a lease. */
	g[0].valid_until_ns = VB_FOREVER;
	assert_int_equal(judged(g, 2, VB_AUDIT_MODE_CONFLICT), 1);
	/* Over before it was asked for; over while it was waited for proves nothing. */
	g[1].lock = 1;
	g[1].valid_until_ns = g[1].called_ns;
	assert_int_equal(judged(g, 2, VB_AUDIT_EXPIRED_GRANT), 1);
	g[1].valid_until_ns = g[1].granted_ns;
	assert_int_equal(judged(g, 2, VB_AUDIT_EXPIRED_GRANT), 0);
}

static void test_foreign_release(void **state)
{
	struct vb_record_grant g[2];

	g[0] = grant(0, VB_EXCLUSIVE, 10, 50);
	g[0].valid_until_ns = 20 * US;
	g[0].end = VB_RECORD_RELEASED;
	g[1] = grant(1, VB_EXCLUSIVE, 30, 40);
	assert_int_equal(judged(g, 2, VB_AUDIT_FOREIGN_RELEASE), 1);
	g[0].end = VB_RECORD_LOST;
	assert_int_equal(judged(g, 2, VB_AUDIT_FOREIGN_RELEASE), 0);
	/* Begun before the other was told: it may have made way for it. */
	g[0].end = VB_RECORD_RELEASED;
	g[0].left_ns = 30 * US;
	assert_int_equal(judged(g, 2, VB_AUDIT_FOREIGN_RELEASE), 0);
}

static void test_tokens(void **state)
{
	struct vb_record_case fenced = two_locks;
	struct vb_record_part part = {.n = 2};
	struct vb_record_grant g[2];
	struct ruling r;

	g[0] = grant(0, VB_EXCLUSIVE, 10, 20);
	g[1] = grant(1, VB_EXCLUSIVE, 30, 40);
	g[0].token = 7;
	g[1].token = 7;
	assert_int_equal(judged(g, 2, VB_AUDIT_TOKEN_ORDER), 1);
	g[1].token = 8;
	assert_int_equal(judged(g, 2, VB_AUDIT_TOKEN_ORDER), 0);
	/* Told late: it is over, and harms nobody. */
	g[1].token = 6;
	g[1].valid_until_ns = 30 * US;
	assert_int_equal(judged(g, 2, VB_AUDIT_TOKEN_ORDER), 0);
	/* None at all matters only where they are promised. */
	g[1].token = 0;
	g[1].valid_until_ns = VB_FOREVER;
	assert_int_equal(judged(g, 2, VB_AUDIT_TOKEN_ORDER), 0);
	fenced.fencing = true;
	part.grants = g;
	r = judge_parts(&fenced, &part, 1);
	assert_int_equal(r.counts.by_rule[VB_AUDIT_TOKEN_ORDER], 1);
	free(r.story);
}

/* What is certain on one clock is not on two that may differ by more than the overlap. */
static void test_clocks(void **state)
{
	struct vb_record_grant a = grant(0, VB_EXCLUSIVE, 10, 20),
			       b = grant(1, VB_EXCLUSIVE, 15, 40);
	struct vb_record_part parts[2] = {{&a, 1, 0}, {&b, 1, 0}};
	struct ruling r;

	for (uint64_t error_ns = 0; error_ns < 10 * US; error_ns += US / 2) {
		parts[1].error_ns = error_ns;
		r = judge_parts(&two_locks, parts, 2);
		assert_int_equal(r.counts.violations, error_ns < 5 * US);
		free(r.story);
	}
	/* The later one ends before the earlier one began, if the clocks err that far. */
	a = grant(0, VB_EXCLUSIVE, 10, 100);
	b = grant(1, VB_EXCLUSIVE, 11, 13);
	parts[1].error_ns = 4 * US;
	r = judge_parts(&two_locks, parts, 2);
	assert_int_equal(r.counts.violations, 0);
}

static void test_bypass(void **state)
{
	struct vb_record_grant g[4];
	struct vb_record_part part = {.grants = g, .n = 4};
	struct ruling r;

	g[0] = grant(0, VB_EXCLUSIVE, 10, 50); /* called before the waiter queued: no bypass */
	g[1] = grant(1, VB_EXCLUSIVE, 60, 61);
	g[2] = grant(2, VB_EXCLUSIVE, 70, 71);
	g[3] = grant(3, VB_EXCLUSIVE, 80, 90);
	g[3].called_ns = 20 * US;
	g[3].queued_ns = 21 * US;
	r = judge_parts(&two_locks, &part, 1);
	assert_int_equal(r.counts.max_bypass, 2);
	assert_int_equal(r.counts.violations, 0);
}

static void test_sane(void **state)
{
	struct vb_record_grant good = grant(3, VB_EXCLUSIVE, 10, 20), g;

	assert_true(vb_record_is_sane(&two_locks, &good));
	g = good;
	g.lock = 2;
	assert_false(vb_record_is_sane(&two_locks, &g));
	g = good;
	g.client = 4;
	assert_false(vb_record_is_sane(&two_locks, &g));
	g = good;
	g.mode = VB_MODES;
	assert_false(vb_record_is_sane(&two_locks, &g));
	g = good;
	g.end = VB_RECORD_ENDS;
	assert_false(vb_record_is_sane(&two_locks, &g));
	g = good;
	g.called_ns = g.granted_ns + 1;
	assert_false(vb_record_is_sane(&two_locks, &g));
}

/* Many violations: the first ones are told, the others counted. */
static void test_many(void **state)
{
	enum { N = 100 };
	static struct vb_record_grant g[N];
	struct vb_record_part part = {.grants = g, .n = N};
	struct ruling r;

	for (unsigned i = 0; i < N; i++)
		g[i] = grant(i % 4, VB_EXCLUSIVE, 10 + i, 1000);
	r = judge_parts(&two_locks, &part, 1);
	assert_int_equal(r.counts.by_rule[VB_AUDIT_MODE_CONFLICT], N - 1);
	assert_non_null(strstr(r.story, "and 83 more"));
	free(r.story);
}

/* ---- the recorder ---- */

struct scene {
	struct vb_sched_face clock;
	struct vb_ep ep;
	struct vb_lock_client me;
	struct vb_record *record;
	const struct vb_lock_watch *w;
};

static void scene_begin(struct scene *s, uint64_t most)
{
	*s = (struct scene){.clock = {.now_ns = 1000, .is_virtual = true}};
	s->ep.sched = (struct vb_sched *)&s->clock;
	s->me.ep = &s->ep;
	s->me.index = 1;
	s->me.node = 5;
	assert_int_equal(vb_record_open(2, VB_CLAIMS_MAX, most, &s->record), 0);
	s->w = vb_record_watch(s->record);
}

static struct vb_claim claim_of(uint64_t lock)
{
	return (struct vb_claim){.lock = lock,
				 .slot = (uint32_t)lock,
				 .mode = VB_EXCLUSIVE,
				 .valid_until_ns = 9000,
				 .token = 3};
}

static void test_recording(void **state)
{
	struct vb_claim first = claim_of(8), second = claim_of(9);
	struct vb_record_grant *g;
	uint64_t n, missed;
	struct scene s;

	scene_begin(&s, 16);
	s.w->called(s.w->ctx, &s.me, 8, VB_EXCLUSIVE);
	s.clock.now_ns = 1100;
	s.w->queued(s.w->ctx, &s.me, 8, VB_EXCLUSIVE);
	s.clock.now_ns = 1200;
	s.w->granted(s.w->ctx, &s.me, &first);
	s.w->called(s.w->ctx, &s.me, 9, VB_EXCLUSIVE);
	s.w->granted(s.w->ctx, &s.me, &second);
	s.clock.now_ns = 1300;
	s.w->releasing(s.w->ctx, &s.me, &first);
	s.clock.now_ns = 1400;
	s.w->released(s.w->ctx, &s.me, 8, -VB_ELOST);
	g = vb_record_grants(s.record, &n, &missed);
	assert_int_equal(n, 2);
	assert_int_equal(missed, 0);
	assert_int_equal(g[0].lock, 8);
	assert_int_equal(g[0].called_ns, 1000);
	assert_int_equal(g[0].queued_ns, 1100);
	assert_int_equal(g[0].granted_ns, 1200);
	assert_int_equal(g[0].valid_until_ns, 9000);
	assert_int_equal(g[0].left_ns, 1300);
	assert_int_equal(g[0].end, VB_RECORD_LOST);
	assert_int_equal(g[0].client, 1);
	assert_int_equal(g[0].node, 5);
	assert_int_equal(g[0].token, 3);
	assert_int_equal(g[1].queued_ns, 0);
	assert_true(g[1].left_ns == VB_FOREVER && g[1].end == VB_RECORD_OPEN);
	s.w->abandoned(s.w->ctx, &s.me, &second);
	assert_int_equal(g[1].left_ns, 1400);
	assert_int_equal(g[1].end, VB_RECORD_ABANDONED);
	vb_record_move(g, n, -500);
	assert_int_equal(g[0].called_ns, 500);
	assert_int_equal(g[1].queued_ns, 0);
	vb_record_close(s.record);
}

/* Beyond what is kept grants are counted, and their ends do not touch the others'. */
static void test_full(void **state)
{
	struct vb_record_grant *g;
	uint64_t n, missed;
	struct scene s;

	scene_begin(&s, 2);
	for (unsigned i = 0; i < 5; i++) {
		struct vb_claim c = claim_of(i);

		s.w->called(s.w->ctx, &s.me, i, VB_EXCLUSIVE);
		s.w->granted(s.w->ctx, &s.me, &c);
		s.w->releasing(s.w->ctx, &s.me, &c);
		s.w->released(s.w->ctx, &s.me, i, i == 0 ? 0 : -VB_EUNKNOWN);
	}
	g = vb_record_grants(s.record, &n, &missed);
	assert_int_equal(n, 2);
	assert_int_equal(missed, 3);
	assert_int_equal(g[0].end, VB_RECORD_RELEASED);
	assert_int_equal(g[1].end, VB_RECORD_FAILED);
	vb_record_close(s.record);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_overlaps),
		cmocka_unit_test(test_leases),
		cmocka_unit_test(test_foreign_release),
		cmocka_unit_test(test_tokens),
		cmocka_unit_test(test_clocks),
		cmocka_unit_test(test_bypass),
		cmocka_unit_test(test_sane),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_recording),
		cmocka_unit_test(test_full),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
