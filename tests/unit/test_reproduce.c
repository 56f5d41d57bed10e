/* SPDX-License-Identifier: Apache-2.0 */
/* The papers' experiments: that their tables are consistent, and how claims are judged. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lab/reproduce/reproduce.h"

static enum vb_verdict judge(enum vb_repro_kind kind, double v, double lo, double hi)
{
	double distance;

	return vb_repro_judge(kind, v, lo, hi, 0.1, &distance);
}

static void a_ratio_is_near_and_on_its_side(void **state)
{
	double distance;

	(void)state;
	assert_int_equal(judge(VB_CHECK_RATIO, 2.0, 1.8, 2.5), VB_REPRODUCED);
	assert_int_equal(judge(VB_CHECK_RATIO, 1.5, 1.8, 2.5), VB_REPRODUCED);
	assert_int_equal(judge(VB_CHECK_RATIO, 1.3, 1.8, 2.5), VB_DIRECTION);
	assert_int_equal(judge(VB_CHECK_RATIO, 9.0, 1.8, 2.5), VB_DIRECTION);
	assert_int_equal(judge(VB_CHECK_RATIO, 0.9, 1.8, 2.5), VB_NOT_REPRODUCED);
	/* Near, but the other one is ahead. */
	assert_int_equal(judge(VB_CHECK_RATIO, 0.99, 1.07, 1.07), VB_NOT_REPRODUCED);
	assert_int_equal(judge(VB_CHECK_RATIO, 0.5, 0.27, 0.27), VB_DIRECTION);
	assert_int_equal(judge(VB_CHECK_RATIO, 1.2, 0.27, 0.27), VB_NOT_REPRODUCED);
	assert_int_equal(judge(VB_CHECK_RATIO, 100, 1.25, INFINITY), VB_REPRODUCED);
	/* A range around 1 has no direction. */
	assert_int_equal(judge(VB_CHECK_RATIO, 3, 0.5, 1.5), VB_NOT_REPRODUCED);
	assert_int_equal(vb_repro_judge(VB_CHECK_RATIO, 1, 2, 4, 0, &distance), VB_NOT_REPRODUCED);
	assert_float_equal(distance, 2, 1e-9);
	vb_repro_judge(VB_CHECK_RATIO, 8, 2, 4, 0, &distance);
	assert_float_equal(distance, 2, 1e-9);
}

static void an_amount_is_near_or_of_its_size(void **state)
{
	(void)state;
	assert_int_equal(judge(VB_CHECK_AMOUNT, 2.2, 2.01, 2.01), VB_REPRODUCED);
	assert_int_equal(judge(VB_CHECK_AMOUNT, 3.5, 2.01, 2.01), VB_DIRECTION);
	assert_int_equal(judge(VB_CHECK_AMOUNT, 4.1, 2.01, 2.01), VB_NOT_REPRODUCED);
	/* What the paper's table cannot show is no difference. */
	assert_int_equal(judge(VB_CHECK_AMOUNT, 0.09, 0.01, 0.01), VB_REPRODUCED);
	assert_int_equal(judge(VB_CHECK_AMOUNT, 0.2, 0.01, 0.01), VB_NOT_REPRODUCED);
	assert_int_equal(judge(VB_CHECK_AMOUNT, 0, 0, 0), VB_REPRODUCED);
	assert_int_equal(judge(VB_CHECK_AMOUNT, 1, 0, 0), VB_NOT_REPRODUCED);
}

static void orders_and_trends(void **state)
{
	(void)state;
	assert_int_equal(judge(VB_CHECK_AHEAD, 1.01, 0, 0), VB_REPRODUCED);
	assert_int_equal(judge(VB_CHECK_AHEAD, 0.99, 0, 0), VB_DIRECTION);
	assert_int_equal(judge(VB_CHECK_AHEAD, 0.9, 0, 0), VB_NOT_REPRODUCED);
	assert_int_equal(judge(VB_CHECK_BEHIND, 0.9, 0, 0), VB_REPRODUCED);
	assert_int_equal(judge(VB_CHECK_BEHIND, 1.1, 0, 0), VB_NOT_REPRODUCED);
	assert_int_equal(judge(VB_CHECK_CLOSE, 0.81, 0, 0), VB_REPRODUCED);
	assert_int_equal(judge(VB_CHECK_CLOSE, 1.9, 0, 0), VB_DIRECTION);
	assert_int_equal(judge(VB_CHECK_CLOSE, 2.1, 0, 0), VB_NOT_REPRODUCED);
	assert_int_equal(judge(VB_CHECK_RISES, 1.3, 0, 0), VB_REPRODUCED);
	assert_int_equal(judge(VB_CHECK_RISES, 1.1, 0, 0), VB_DIRECTION);
	assert_int_equal(judge(VB_CHECK_RISES, 0.9, 0, 0), VB_NOT_REPRODUCED);
	assert_int_equal(judge(VB_CHECK_FALLS, 0.5, 0, 0), VB_REPRODUCED);
	assert_int_equal(judge(VB_CHECK_FALLS, 1.5, 0, 0), VB_NOT_REPRODUCED);
}

/* ---- claims of a small experiment ---- */

static const struct vb_repro_value systems[] = {{"a", ""}, {"b", ""}, {"c", ""}, {NULL, NULL}};
static const struct vb_repro_value sweep[] = {{"1", ""}, {"2", ""}, {"4", ""}, {NULL, NULL}};
static const char *const metrics[] = {"goodput", NULL};

struct world {
	struct vb_experiment e;
	struct vb_repro_result r;
	struct vb_repro_point point[9];
	struct vb_repro_job job[9];
	struct vb_repro_finding finding[8];
};

/* kops/s of a, b, c at 1, 2, 4; 0: not run. */
static void world_open(struct world *w, const double *kops, const struct vb_repro_check *checks,
		       unsigned n)
{
	memset(w, 0, sizeof(*w));
	w->e = (struct vb_experiment){.name = "test/fig1",
				      .systems = systems,
				      .sweep = sweep,
				      .metrics = metrics,
				      .checks = checks,
				      .n_checks = n};
	w->r = (struct vb_repro_result){.e = &w->e,
					.point = w->point,
					.finding = w->finding,
					.n = 9,
					.n_systems = 3,
					.n_x = 3};
	for (unsigned i = 0; i < 9; i++) {
		w->point[i] = (struct vb_repro_point){
			.system = &systems[i / 3], .x = &sweep[i % 3], .job = &w->job[i]};
		if (kops[i] > 0)
			w->job[i].run = json_pack("{s:f}", "goodput_ops_s", kops[i] * 1e3);
		else
			w->job[i].why = (char *)"no lock 'c'";
	}
	vb_repro_judge_all(&w->r);
}

static void world_close(struct world *w)
{
	for (unsigned i = 0; i < 9; i++)
		json_decref(w->job[i].run);
}

static const double all_run[] = {10, 20, 40, 8, 9, 10, 2, 2, 2};
static const double c_missing[] = {10, 20, 40, 8, 9, 10, 0, 0, 0};

static void checks_compare_what_they_name(void **state)
{
	static const struct vb_repro_check checks[] = {
		{"X", VB_CHECK_RATIO, "goodput", VB_AT("a", NULL, "4"), VB_AT("b", NULL, "4"), 4,
		 4},
		{"X", VB_CHECK_AHEAD, "goodput", VB_AT("a", NULL, "*"), VB_AT("*", NULL, "*"), 0,
		 0},
		{"X", VB_CHECK_RATIO, "goodput", VB_AT("c", NULL, "1"), VB_AT("^", NULL, "1"), 0.2,
		 0.2},
		{"X", VB_CHECK_RISES, "goodput", VB_AT("a", NULL, "1"), VB_AT(NULL, NULL, "4"), 0,
		 0},
		{"X", VB_CHECK_FLAT, "goodput", VB_AT("b", NULL, "1"), VB_AT(NULL, NULL, "4"), 0,
		 0},
		{"X", VB_CHECK_KEEPS, "goodput", VB_AT("a", NULL, "1"), VB_AT("*", NULL, "4"), 0,
		 0},
		{"Y", VB_CHECK_AHEAD, "goodput", VB_AT("b", NULL, "*"), VB_AT("*", NULL, "*"), 0,
		 0},
	};
	const struct vb_repro_finding *weakest;
	struct world w;

	(void)state;
	world_open(&w, all_run, checks, 7);
	for (unsigned i = 0; i < 6; i++)
		assert_int_equal(w.finding[i].verdict, VB_REPRODUCED);
	assert_float_equal(w.finding[0].ours, 4, 1e-9);
	assert_int_equal(w.finding[1].compared, 6);
	assert_int_equal(w.finding[1].held, 6);
	/* The worst of the six. */
	assert_float_equal(w.finding[1].ours, 10.0 / 8, 1e-9);
	assert_float_equal(w.finding[2].ours, 0.2, 1e-9);
	assert_float_equal(w.finding[3].ours, 4, 1e-9);
	assert_float_equal(w.finding[4].ours, 1.25, 1e-9);
	assert_float_equal(w.finding[5].ours, 3.2, 1e-9);
	assert_int_equal(w.finding[6].verdict, VB_NOT_REPRODUCED);
	assert_int_equal(w.finding[6].held, 3);
	assert_float_equal(w.finding[6].ours, 0.25, 1e-9);
	assert_int_equal(vb_repro_claim(&w.r, "X", &weakest), VB_REPRODUCED);
	assert_int_equal(vb_repro_claim(&w.r, "Y", &weakest), VB_NOT_REPRODUCED);
	assert_ptr_equal(weakest, &w.finding[6]);
	world_close(&w);
}

/* What is missing keeps a claim from being confirmed, not from being refuted. */
static void what_did_not_run_confirms_nothing(void **state)
{
	static const struct vb_repro_check checks[] = {
		{"X", VB_CHECK_AHEAD, "goodput", VB_AT("a", NULL, "*"), VB_AT("*", NULL, "*"), 0,
		 0},
		{"Y", VB_CHECK_AHEAD, "goodput", VB_AT("b", NULL, "*"), VB_AT("*", NULL, "*"), 0,
		 0},
		{"Z", VB_CHECK_RATIO, "goodput", VB_AT("a", NULL, "1"), VB_AT("^", NULL, "1"), 1,
		 2},
		{"Z", VB_CHECK_RATIO, "goodput", VB_AT("a", NULL, "1"), VB_AT("b", NULL, "1"), 1,
		 2},
	};
	const struct vb_repro_finding *weakest;
	struct world w;

	(void)state;
	world_open(&w, c_missing, checks, 4);
	assert_int_equal(w.finding[0].verdict, VB_NOT_RUN);
	assert_string_equal(w.finding[0].why, "no lock 'c'");
	assert_int_equal(w.finding[1].verdict, VB_NOT_REPRODUCED);
	assert_int_equal(w.finding[2].verdict, VB_NOT_RUN);
	assert_int_equal(w.finding[3].verdict, VB_REPRODUCED);
	assert_int_equal(vb_repro_claim(&w.r, "Z", &weakest), VB_NOT_RUN);
	assert_ptr_equal(weakest, &w.finding[2]);
	world_close(&w);
}

/* ---- the tables ---- */

static bool has(const struct vb_repro_value *axis, const char *label)
{
	if (axis == NULL || label == NULL)
		return axis == NULL && label == NULL;
	if (strcmp(label, "*") == 0)
		return true;
	for (; axis->label != NULL; axis++)
		if (strcmp(axis->label, label) == 0)
			return true;
	return false;
}

static bool is_system(const struct vb_experiment *e, const char *label)
{
	return strcmp(label, "^") == 0 || has(e->systems, label);
}

static void check_is_sound(const struct vb_experiment *e, const struct vb_repro_check *c)
{
	bool along = c->kind >= VB_CHECK_RISES;

	assert_non_null(vb_paper_claim_find(c->claim));
	assert_non_null(vb_repro_metric_find(c->metric));
	assert_true(is_system(e, c->a.system));
	assert_true(has(e->series, c->a.series));
	assert_true(has(e->sweep, c->a.x));
	if (along)
		assert_true(e->sweep != NULL && has(e->sweep, c->b.x));
	else if (c->b.system != NULL)
		assert_true(has(e->series, c->b.series) && has(e->sweep, c->b.x));
	if (c->b.system != NULL)
		assert_true(is_system(e, c->b.system));
	if (c->kind == VB_CHECK_RATIO)
		assert_true(c->b.system != NULL && c->lo > 0 && c->hi >= c->lo);
	if (c->kind == VB_CHECK_AMOUNT)
		assert_true(c->b.system == NULL && c->hi >= c->lo);
}

static void tables_name_what_there_is(void **state)
{
	const struct vb_experiment *e;

	(void)state;
	for (unsigned i = 0; (e = vb_repro_experiment(i)) != NULL; i++) {
		assert_non_null(strchr(e->name, '/'));
		for (const char *const *m = e->metrics; *m != NULL; m++)
			assert_non_null(vb_repro_metric_find(*m));
		for (unsigned k = 0; k < e->n_checks; k++)
			check_is_sound(e, &e->checks[k]);
	}
	assert_true(vb_repro_experiment(0) != NULL);
}

static unsigned experiments_of(const char *claim)
{
	const struct vb_experiment *e;
	unsigned n = 0;

	for (unsigned i = 0; (e = vb_repro_experiment(i)) != NULL; i++) {
		bool found = false;

		for (unsigned k = 0; k < e->n_checks; k++)
			found |= strcmp(e->checks[k].claim, claim) == 0;
		n += found;
	}
	return n;
}

/* Every claim on locks that can be judged on a simulator has an experiment, and only one. */
static void every_claim_on_locks_has_its_experiment(void **state)
{
	unsigned judged = 0;

	(void)state;
	for (unsigned i = 0; i < vb_paper_claim_count; i++) {
		const struct vb_paper_claim *c = &vb_paper_claims[i];
		bool locks = strncmp(c->id, "DSLR-", 5) == 0 || strncmp(c->id, "SHIFT-", 6) == 0;
		unsigned n = experiments_of(c->id);

		assert_true(n <= 1);
		if (locks && c->tier[0] == 'A' && n != 1)
			fail_msg("%s has no experiment", c->id);
		judged += n;
	}
	assert_true(judged >= 60);
}

static void options_are_canonical(void **state)
{
	static const struct vb_repro_value system = {"s", "lock=cas clients=3"};
	static const struct vb_repro_value x = {"x", "clients=2 dist=uniform"};
	static const struct vb_experiment e = {.name = "t/f",
					       .setup = "clients=1 duration=20ms lease=1ms"};
	char *text = vb_repro_options(&e, &system, NULL, &x, 1, 7);

	(void)state;
	assert_string_equal(text, "clients=3 dist=uniform duration=20ms lease=1ms lock=cas seed=7");
	free(text);
	text = vb_repro_options(&e, &system, NULL, NULL, 0.1, 7);
	assert_string_equal(text, "clients=3 duration=2000000ns lease=1ms lock=cas seed=7");
	free(text);
}

static void what_is_missing_is_named(void **state)
{
	static const struct {
		const char *options, *why;
	} cases[] = {
		{"lock=nonesuch profile=cx5", "no lock 'nonesuch'"},
		{"lock=cas profile=cx9", "no profile 'cx9'"},
		{"lock=cas nonesuch=1 profile=cx5", "bench lock has no --nonesuch"},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *why = vb_repro_cannot(cases[i].options);

		assert_string_equal(why, cases[i].why);
		free(why);
	}
	assert_null(vb_repro_cannot("lock=cas profile=cx5 clients=2"));
	assert_null(vb_repro_cannot("lock=cas profile=cx5-card fabric-options=without=port-wire"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_ratio_is_near_and_on_its_side),
		cmocka_unit_test(an_amount_is_near_or_of_its_size),
		cmocka_unit_test(orders_and_trends),
		cmocka_unit_test(checks_compare_what_they_name),
		cmocka_unit_test(what_did_not_run_confirms_nothing),
		cmocka_unit_test(tables_name_what_there_is),
		cmocka_unit_test(every_claim_on_locks_has_its_experiment),
		cmocka_unit_test(options_are_canonical),
		cmocka_unit_test(what_is_missing_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
