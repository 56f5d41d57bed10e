/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Histories of explored seeds: written, read back and judged, they say what the auditor said who
 * was there.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/compiler.h"
#include "base/log.h"
#include "check/lock/explore.h"
#include "check/planted/planted.h"

#define EVENTS        (1u << 20)
#define CLEAN_SEEDS   4
#define PLANTED_SEEDS 200

static struct vb_lock_history *there_and_back(const struct vb_lock_history *h, bool fencing)
{
	struct vb_lock_history *back;
	struct vb_lines lines;
	bool said;
	char *text;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	assert_non_null(f);
	assert_int_equal(vb_lock_history_write(h, fencing, f), 0);
	fclose(f);
	f = fmemopen(text, size, "r");
	assert_non_null(f);
	vb_lines_open(&lines, f, "written");
	assert_int_equal(vb_lines_next(&lines), 1);
	assert_true(vb_lock_history_is_next(&lines));
	vb_lines_again(&lines);
	assert_int_equal(vb_lock_history_read(&lines, &back, &said), 0);
	assert_int_equal(said, fencing);
	vb_lines_close(&lines);
	fclose(f);
	free(text);
	return back;
}

/* What the auditor counted, and what the history shows. */
static void explore(const struct vb_lock_ops *ops, uint64_t seed, struct vb_audit_counts *audit,
		    struct vb_lock_verdict *v)
{
	struct vb_lock_history *h, *back;
	const struct vb_lock_history *part;
	struct vb_explore_result r;
	struct vb_explore_draw d;
	char line[256];
	bool full;
	int err;

	vb_explore_draw(ops, seed, &d);
	/* A history is of one space; the auditors count both. */
	d.beside = NULL;
	assert_int_equal(vb_lock_history_open(EVENTS, VB_EXPLORE_CLIENTS_MAX, &h), 0);
	vb_log_capture_begin(line, sizeof(line));
	err = vb_explore_record(ops, &d, h, NULL, &r);
	vb_log_capture_end();
	assert_int_equal(err, 0);
	free(r.stories);
	*audit = r.audit;
	back = there_and_back(h, d.fencing);
	assert_int_equal(vb_lock_history_count(h, &full), vb_lock_history_count(back, &full));
	part = back;
	assert_int_equal(vb_lock_history_judge(&part, 1, d.fencing, v), 0);
	/* Every grant that the auditor saw is in it. */
	assert_true(v->grants >= audit->checked_ops);
	vb_lock_history_close(back);
	vb_lock_history_close(h);
}

static void test_right_locks(void **state)
{
	static const char *const names[] = {"cas",       "mcs",    "drtm", "dslr-update",
					    "shiftlock", "rma-rw", "table"};

	for (unsigned i = 0; i < VB_ARRAY_SIZE(names); i++) {
		const struct vb_lock_ops *ops = vb_lock_find(names[i]);

		assert_non_null(ops);
		for (uint64_t seed = 1; seed <= CLEAN_SEEDS; seed++) {
			struct vb_audit_counts audit;
			struct vb_lock_verdict v;

			explore(ops, seed, &audit, &v);
			assert_int_equal(audit.violations, 0);
			if (v.story != NULL)
				fail_msg("%s, seed %u:\n%s", names[i], (unsigned)seed, v.story);
			assert_true(v.grants > 0);
		}
	}
}

/* The first seed in which the auditor finds the planted bug: the history shows it, too. */
static void test_planted_locks(void **state)
{
	static const struct {
		const char *name;
		enum vb_audit_rule rule;
	} planted[] = {
		{"planted:double-grant", VB_AUDIT_MODE_CONFLICT},
		{"planted:foreign-release", VB_AUDIT_FOREIGN_RELEASE},
		{"planted:stale-token", VB_AUDIT_TOKEN_ORDER},
		{"planted:late-lease", VB_AUDIT_MODE_CONFLICT},
		{"planted:eager-upgrade", VB_AUDIT_MODE_CONFLICT},
		{"planted:six-beside-shared", VB_AUDIT_MODE_CONFLICT},
	};

	vb_lock_register(vb_planted_locks);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(planted); i++) {
		const struct vb_lock_ops *ops = vb_lock_find(planted[i].name);
		const enum vb_audit_rule rule = planted[i].rule;
		struct vb_audit_counts audit = {0};
		struct vb_lock_verdict v;

		assert_non_null(ops);
		for (uint64_t seed = 1; audit.by_rule[rule] == 0; seed++) {
			assert_true(seed <= PLANTED_SEEDS);
			explore(ops, seed, &audit, &v);
			if (audit.by_rule[rule] != 0 && v.audit.by_rule[rule] == 0)
				fail_msg("%s, seed %u: the history does not show it",
					 planted[i].name, (unsigned)seed);
			free(v.story);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_right_locks),
		cmocka_unit_test(test_planted_locks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
