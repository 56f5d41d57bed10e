/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small worlds: real locks and transactions go through every order that the bounds allow, planted bugs
 * are found by the name of their rule, and a schedule repeats what was found.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define VB_LOG_ROOM "test"
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "check/litmus/litmus.h"
#include "check/planted/planted.h"

#if defined(VB_TSAN) || defined(VB_ASAN)
#define CLEAN_RUNS     40
#define CLEAN_TXN_RUNS 10
#else
#define CLEAN_RUNS     300
#define CLEAN_TXN_RUNS 60
#endif

static const struct vb_litmus_lock *world(const char *name)
{
	for (const struct vb_litmus_lock *const *w = vb_litmus_locks; *w != NULL; w++)
		if (!strcmp(vb_litmus_lock_name(*w), name))
			return *w;
	fail_msg("no world is called %s", name);
	return NULL;
}

static struct vb_litmus_result run(const char *where, const struct vb_lock_ops *ops,
				   const struct vb_litmus_params *p)
{
	struct vb_litmus_result r;

	assert_int_equal(vb_litmus_lock_run(world(where), ops, p, &r), 0);
	return r;
}

/* Which small world shows which bug, within so many delays. */
static const struct {
	const char *lock, *world;
	unsigned delays;
} planted[] = {
	{"planted:double-grant", "writers", 2},
	{"planted:lost-wakeup", "writers", 0},
	{"planted:foreign-release", "comes-back", 2},
	{"planted:aba-recovery", "stands-still", 3},
	{"planted:stale-token", "writers", 1},
	{"planted:late-lease", "stands-still", 2},
	{"planted:eager-upgrade", "upgrade", 3},
	{"planted:hasty-writer", "readers-writer", 3},
	{"planted:six-beside-shared", "convert", 3},
	{"planted:undone-twice", "convert", 4},
	{"planted:lost-waiter", "gives-up-between", 3},
	{"planted:grant-left-behind", "gives-up-between", 3},
};

static void test_planted_bugs_are_found(void **state)
{
	for (unsigned i = 0; i < VB_ARRAY_SIZE(planted); i++) {
		const struct vb_lock_ops *ops = vb_lock_find(planted[i].lock);
		struct vb_litmus_params p = {.runs = 20000, .delays = planted[i].delays};
		struct vb_litmus_result r, again;

		assert_non_null(ops);
		p.rule = ops->planted;
		r = run(planted[i].world, ops, &p);
		if (r.rule == NULL)
			fail_msg("%s: nothing found in %s", ops->name, planted[i].world);
		assert_string_equal(r.rule, ops->planted);
		assert_false(vb_litmus_exhausted(&r));
		assert_non_null(strstr(r.story, ops->planted));
		p.schedule = r.schedule;
		again = run(planted[i].world, ops, &p);
		assert_int_equal(again.runs, 1);
		assert_string_equal(again.rule, r.rule);
		assert_non_null(strstr(r.story, again.story));
		vb_litmus_end(&r);
		vb_litmus_end(&again);
	}
}

/* The first client looks whether the lock is free, looks again, and then writes itself into it: two
 * steps that are the same, and do nothing, before the one that is wrong.  The other one is right. */
static int twice_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	const uint64_t own = me->ep->self;
	unsigned looks = 0;
	uint64_t seen;
	int err = 0;

	(void)until_ns;
	while (err == 0 && looks < 2) {
		if (me->index == 0)
			err = vb_read64(me->ep, c->entry, &seen);
		else
			err = vb_cas64(me->ep, c->entry, 0, own, &seen);
		if (err == 0 && me->index != 0 && seen == 0)
			return vb_lock_grant(c, VB_FOREVER, 0);
		looks = seen == 0 ? looks + 1 : 0;
	}
	if (err == 0)
		err = vb_write(me->ep, c->entry, &own, sizeof(own));
	return err ? err : vb_lock_grant(c, VB_FOREVER, 0);
}

static int twice_release(struct vb_lock_client *me, struct vb_claim *c)
{
	const uint64_t nobody = 0;

	return vb_write(me->ep, c->entry, &nobody, sizeof(nobody));
}

static const struct vb_lock_ops looks_twice = {
	.name = "planted:looks-twice",
	.summary = "looks twice whether the lock is free, then writes itself into it",
	.source = "planted bug",
	.planted = "mode-conflict",
	.caps = VB_LOCK_EXCLUSIVE,
	.entry_bytes = 8,
	.verbs_uncontended = "2 READ + 2 WRITE",
	.verbs_contended = "1 READ per attempt",
	.acquire = twice_acquire,
	.release = twice_release,
};

static const struct vb_lock_ops *const own_locks[] = {&looks_twice, NULL};

/* A second look is no poll: between it and what follows others may come. */
static void test_second_looks_are_no_polls(void **state)
{
	struct vb_litmus_params p = {.runs = 100000, .delays = 100};
	struct vb_litmus_result r = run("writers", &looks_twice, &p);

	if (r.rule == NULL)
		fail_msg("not found in %llu runs%s", (unsigned long long)r.runs,
			 vb_litmus_exhausted(&r) ? ", which were all orders" : "");
	assert_string_equal(r.rule, "mode-conflict");
	vb_litmus_end(&r);
}

static void test_real_locks_are_clean(void **state)
{
	const struct vb_litmus_params p = {.runs = CLEAN_RUNS, .delays = 3};

	for (const struct vb_lock_ops *const *l = vb_locks; *l != NULL; l++) {
		unsigned worlds = 0;

		for (const struct vb_litmus_lock *const *w = vb_litmus_locks; *w != NULL; w++) {
			struct vb_litmus_result r;

			if (!vb_litmus_lock_fits(*w, *l))
				continue;
			assert_int_equal(vb_litmus_lock_run(*w, *l, &p, &r), 0);
			if (r.rule != NULL)
				fail_msg("%s, %s, schedule %s: %s", (*l)->name,
					 vb_litmus_lock_name(*w), r.schedule, r.story);
			assert_true(r.runs > r.pruned);
			worlds++;
			vb_litmus_end(&r);
		}
		assert_true(worlds >= 7);
	}
}

/* ---- transactions ---- */

static const struct vb_litmus_txn *txn_world(const char *name)
{
	for (const struct vb_litmus_txn *const *w = vb_litmus_txns; *w != NULL; w++)
		if (!strcmp(vb_litmus_txn_name(*w), name))
			return *w;
	fail_msg("no world is called %s", name);
	return NULL;
}

static const struct {
	const char *cc, *world, *rule;
	unsigned delays;
} wrong[] = {
	{"planted:no-validation", "write-skew", "not-serializable", 2},
	{"planted:no-validation", "read-skew", "not-serializable", 2},
	{"planted:early-unlock", "lost-update", "not-serializable", 1},
	{"planted:no-lease-check", "write-skew", "not-serializable", 2},
	{"planted:lost-undo", "dirty-read", "not-serializable", 3},
	{"planted:unfetched", "lost-answer", "refused", 2},
	{"planted:unplaced", "lost-answer", "refused", 2},
	{"planted:unlocked", "lost-update", "refused", 0},
	{"planted:early-release", "read-skew", "refused", 0},
	{"planted:unread-bytes", "lost-answer", "refused", 2},
	{"silo-as-published", "lost-update", "not-serializable", 1},
	{"silo-as-published", "write-skew", "not-serializable", 1},
	{"wound-wait-as-published", "crossed-updates", "needless-recovery", 1},
};

static void test_wrong_protocols_are_found(void **state)
{
	for (unsigned i = 0; i < VB_ARRAY_SIZE(wrong); i++) {
		const struct vb_cc_ops *cc = vb_cc_find(wrong[i].cc);
		const struct vb_litmus_txn *w = txn_world(wrong[i].world);
		struct vb_litmus_params p = {.runs = 5000, .delays = wrong[i].delays};
		struct vb_litmus_result r, again;

		assert_non_null(cc);
		p.rule = wrong[i].rule;
		assert_int_equal(vb_litmus_txn_run(w, cc, &p, &r), 0);
		if (r.rule == NULL)
			fail_msg("%s: nothing found in %s", cc->name, wrong[i].world);
		assert_string_equal(r.rule, wrong[i].rule);
		p.schedule = r.schedule;
		assert_int_equal(vb_litmus_txn_run(w, cc, &p, &again), 0);
		assert_string_equal(again.rule, r.rule);
		vb_litmus_end(&r);
		vb_litmus_end(&again);
	}
}

static void expect_clean(const char *hybrid, uint64_t runs)
{
	const struct vb_litmus_params p = {.runs = runs, .delays = 2, .hybrid = hybrid};

	for (const struct vb_cc_ops *const *cc = vb_ccs; *cc != NULL; cc++) {
		for (const struct vb_litmus_txn *const *w = vb_litmus_txns;
		     *w != NULL && vb_cc_takes(*cc, hybrid); w++) {
			struct vb_litmus_result r;

			assert_int_equal(vb_litmus_txn_run(*w, *cc, &p, &r), 0);
			if (r.rule != NULL)
				fail_msg("%s, %s, schedule %s: %s", (*cc)->name,
					 vb_litmus_txn_name(*w), r.schedule, r.story);
			assert_true(r.runs > r.pruned);
			vb_litmus_end(&r);
		}
	}
}

static void test_real_protocols_are_clean(void **state)
{
	expect_clean(NULL, CLEAN_TXN_RUNS);
	expect_clean("rpc", CLEAN_TXN_RUNS / 4);
}

/* ---- both ---- */

/* With no bound that cuts, all orders are gone through, and said to be; with one, that is said. */
static void test_what_was_cut_is_said(void **state)
{
	const struct vb_lock_ops *mcs = vb_lock_find("mcs");
	struct vb_litmus_params p = {.runs = 100000, .delays = 100};
	struct vb_litmus_result all = run("writers", mcs, &p), r;

	assert_true(vb_litmus_exhausted(&all) && all.rule == NULL);
	assert_true(all.runs - all.pruned > 3);
	p.delays = 1;
	r = run("writers", mcs, &p);
	assert_true(r.cut_delays && !r.cut_runs && r.runs < all.runs);
	p.delays = 100;
	p.runs = 2;
	r = run("writers", mcs, &p);
	assert_true(r.cut_runs && r.runs == 2);
	p.runs = all.runs;
	r = run("writers", mcs, &p);
	assert_true(vb_litmus_exhausted(&r));
}

static void test_schedules_that_are_none(void **state)
{
	static const char *const none[] = {"x", "0..1", "0.1,2", "7", "0.0.0.0.0.0.0.0.0.0.0.0.0"};
	struct vb_litmus_params p = {.runs = 1};
	struct vb_litmus_result r;

	for (unsigned i = 0; i < VB_ARRAY_SIZE(none); i++) {
		p.schedule = none[i];
		assert_int_equal(vb_litmus_lock_run(world("writers"), vb_lock_find("mcs"), &p, &r),
				 -EINVAL);
		vb_litmus_end(&r);
	}
}

/* The same choices make the same run, also when others were run in between. */
static void test_runs_repeat(void **state)
{
	const struct vb_litmus_params p = {.runs = 100, .delays = 3};

	for (const struct vb_lock_ops *const *l = vb_locks; *l != NULL; l++) {
		struct vb_litmus_result one = run("again", *l, &p), two = run("again", *l, &p);

		assert_int_equal(one.runs, two.runs);
		assert_int_equal(one.pruned, two.pruned);
		assert_int_equal(one.verbs, two.verbs);
		assert_int_equal(one.longest, two.longest);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_planted_bugs_are_found),
		cmocka_unit_test(test_second_looks_are_no_polls),
		cmocka_unit_test(test_real_locks_are_clean),
		cmocka_unit_test(test_wrong_protocols_are_found),
		cmocka_unit_test(test_real_protocols_are_clean),
		cmocka_unit_test(test_what_was_cut_is_said),
		cmocka_unit_test(test_schedules_that_are_none),
		cmocka_unit_test(test_runs_repeat),
	};

	/* A world is made and unmade some thousand times a second: its memory is kept. */
	mallopt(M_TRIM_THRESHOLD, 64 << 20);
	mallopt(M_TOP_PAD, 4 << 20);
	vb_lock_register(vb_planted_locks);
	vb_lock_register(own_locks);
	vb_cc_register(vb_planted_ccs);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
