/* SPDX-License-Identifier: Apache-2.0 */
/* The papers' experiments: that their tables are consistent, and how claims are judged. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "fabric/sim/sim.h"
#include "lab/reproduce/reproduce.h"

/* Invented results.  With one seed; with five, of which these are the least and the largest. */
static struct vb_repro_judged of_seeds(enum vb_repro_kind kind, double lowest, double median,
				       double highest, double lo, double hi)
{
	const struct vb_repro_check c = {.kind = kind, .lo = lo, .hi = hi};
	const struct vb_repro_metric m = {.floor = 0.1};

	return vb_repro_judge(&c, &m, (struct vb_repro_span){median, lowest, highest});
}

static enum vb_verdict judge(enum vb_repro_kind kind, double v, double lo, double hi)
{
	return of_seeds(kind, v, v, v, lo, hi).verdict;
}

static enum vb_verdict ratio(double v, double lo, double hi)
{
	return judge(VB_CHECK_RATIO, v, lo, hi);
}

static void a_ratio_is_near_by_its_distance_from_1(void **state)
{
	(void)state;
	assert_int_equal(ratio(2.0, 1.8, 2.5), VB_REPRODUCED);
	assert_int_equal(ratio(1.65, 1.8, 2.5), VB_REPRODUCED);
	assert_int_equal(ratio(1.6, 1.8, 2.5), VB_DIRECTION);
	assert_int_equal(ratio(2.9, 1.8, 2.5), VB_DIRECTION);
	assert_int_equal(ratio(100, 1.25, INFINITY), VB_REPRODUCED);
	/* A lead of 7 % is not reproduced by one of 30 %, nor one of 30 % by one of 7 %. */
	assert_int_equal(ratio(1.08, 1.069, 1.069), VB_REPRODUCED);
	assert_int_equal(ratio(1.3, 1.069, 1.069), VB_DIRECTION);
	assert_int_equal(ratio(1.07, 1.3, 1.3), VB_DIRECTION);
	assert_int_equal(ratio(1.28, 1.3, 1.3), VB_REPRODUCED);
	/* Of large ones all is distance. */
	assert_int_equal(ratio(8.3, 10, 10), VB_REPRODUCED);
	assert_int_equal(ratio(7.9, 10, 10), VB_DIRECTION);
	assert_float_equal(of_seeds(VB_CHECK_RATIO, 9, 9, 9, 2, 5).distance, 2, 1e-9);
	/* A range around 1 has no direction. */
	assert_int_equal(ratio(1.4, 0.5, 1.5), VB_REPRODUCED);
	assert_int_equal(ratio(3, 0.5, 1.5), VB_NOT_REPRODUCED);
}

/* Who divides whom decides nothing. */
static void a_ratio_may_stand_on_its_head(void **state)
{
	static const double values[] = {0.02, 0.5,  0.8, 0.93, 0.97, 1,
					1.03, 1.07, 1.3, 1.65, 2,    40};
	static const double papers[][2] = {{1.069, 1.069}, {1.1, 1.3}, {1.65, 1.65}, {1.8, 2.5},
					   {1, 10},        {3.62, 4},  {18, 18},     {0.98, 1.04}};

	(void)state;
	for (unsigned v = 0; v < sizeof(values) / sizeof(values[0]); v++)
		for (unsigned p = 0; p < sizeof(papers) / sizeof(papers[0]); p++)
			assert_int_equal(ratio(values[v], papers[p][0], papers[p][1]),
					 ratio(1 / values[v], 1 / papers[p][1], 1 / papers[p][0]));
}

static void a_direction_is_a_lead(void **state)
{
	(void)state;
	/* On the right side, and not a lead. */
	assert_int_equal(ratio(1.02, 2.8, 2.8), VB_NOT_REPRODUCED);
	assert_true(of_seeds(VB_CHECK_RATIO, 1.02, 1.02, 1.02, 2.8, 2.8).tie);
	assert_int_equal(ratio(1.02, 1.069, 1.069), VB_NOT_REPRODUCED);
	assert_int_equal(ratio(1.06, 2.8, 2.8), VB_DIRECTION);
	/* The other one is ahead: no tie. */
	assert_int_equal(ratio(0.9, 1.8, 2.5), VB_NOT_REPRODUCED);
	assert_false(of_seeds(VB_CHECK_RATIO, 0.9, 0.9, 0.9, 1.8, 2.5).tie);
	assert_int_equal(ratio(0.5, 0.27, 0.27), VB_DIRECTION);
	assert_int_equal(ratio(0.98, 0.27, 0.27), VB_NOT_REPRODUCED);
	assert_int_equal(ratio(1.2, 0.27, 0.27), VB_NOT_REPRODUCED);
	/* An amount has no direction, and neither have two that should be alike. */
	assert_int_equal(judge(VB_CHECK_AMOUNT, 3.5, 2.01, 2.01), VB_NOT_REPRODUCED);
	assert_int_equal(judge(VB_CHECK_CLOSE, 1.9, 0, 0), VB_NOT_REPRODUCED);
	assert_int_equal(judge(VB_CHECK_FLAT, 1.9, 0, 0), VB_NOT_REPRODUCED);
}

static void a_tie_is_one_on_both_sides(void **state)
{
	(void)state;
	assert_int_equal(judge(VB_CHECK_AHEAD, 1.06, 0, 0), VB_REPRODUCED);
	assert_int_equal(judge(VB_CHECK_AHEAD, 1.002, 0, 0), VB_NOT_REPRODUCED);
	assert_int_equal(judge(VB_CHECK_AHEAD, 0.998, 0, 0), VB_NOT_REPRODUCED);
	assert_int_equal(judge(VB_CHECK_BEHIND, 0.94, 0, 0), VB_REPRODUCED);
	assert_int_equal(judge(VB_CHECK_BEHIND, 0.998, 0, 0), VB_NOT_REPRODUCED);
	assert_int_equal(judge(VB_CHECK_BEHIND, 1.1, 0, 0), VB_NOT_REPRODUCED);
	assert_int_equal(judge(VB_CHECK_KEEPS, 1.002, 0, 0), VB_NOT_REPRODUCED);
	assert_true(of_seeds(VB_CHECK_AHEAD, 1.04, 1.04, 1.04, 0, 0).tie);
	assert_true(of_seeds(VB_CHECK_AHEAD, 0.96, 0.96, 0.96, 0, 0).tie);
	assert_true(of_seeds(VB_CHECK_BEHIND, 1.04, 1.04, 1.04, 0, 0).tie);
	assert_false(of_seeds(VB_CHECK_AHEAD, 0.9, 0.9, 0.9, 0, 0).tie);
	assert_false(of_seeds(VB_CHECK_AHEAD, 1.1, 1.1, 1.1, 0, 0).tie);
	/* The paper's tie is none of ours if one of us leads. */
	assert_int_equal(ratio(0.97, 1.033, 1.033), VB_REPRODUCED);
	assert_int_equal(ratio(1.08, 1.033, 1.033), VB_NOT_REPRODUCED);
	assert_int_equal(ratio(0.93, 1.033, 1.033), VB_NOT_REPRODUCED);
}

static void a_lead_exceeds_what_the_seeds_make(void **state)
{
	(void)state;
	/* 20 % ahead, and the seeds differ by 10 %; by 30 %, though each has it ahead. */
	assert_int_equal(of_seeds(VB_CHECK_AHEAD, 1.15, 1.2, 1.26, 0, 0).verdict, VB_REPRODUCED);
	assert_int_equal(of_seeds(VB_CHECK_AHEAD, 1.06, 1.2, 1.38, 0, 0).verdict,
			 VB_NOT_REPRODUCED);
	assert_true(of_seeds(VB_CHECK_AHEAD, 1.06, 1.2, 1.38, 0, 0).tie);
	assert_int_equal(of_seeds(VB_CHECK_BEHIND, 1 / 1.26, 1 / 1.2, 1 / 1.15, 0, 0).verdict,
			 VB_REPRODUCED);
	assert_int_equal(of_seeds(VB_CHECK_BEHIND, 1 / 1.38, 1 / 1.2, 1 / 1.06, 0, 0).verdict,
			 VB_NOT_REPRODUCED);
	/* The very number of the paper, by chance. */
	assert_int_equal(of_seeds(VB_CHECK_RATIO, 1.5, 1.65, 1.7, 1.65, 1.65).verdict,
			 VB_REPRODUCED);
	assert_int_equal(of_seeds(VB_CHECK_RATIO, 0.9, 1.65, 2.4, 1.65, 1.65).verdict,
			 VB_NOT_REPRODUCED);
	assert_int_equal(of_seeds(VB_CHECK_RISES, 1.2, 1.4, 1.5, 0, 0).verdict, VB_REPRODUCED);
	assert_int_equal(of_seeds(VB_CHECK_RISES, 1.0, 1.4, 1.5, 0, 0).verdict, VB_NOT_REPRODUCED);
	/* Alike whatever the seed, or not alike. */
	assert_int_equal(of_seeds(VB_CHECK_CLOSE, 0.9, 1, 1.1, 0, 0).verdict, VB_REPRODUCED);
	assert_int_equal(of_seeds(VB_CHECK_CLOSE, 0.6, 1, 1.1, 0, 0).verdict, VB_NOT_REPRODUCED);
	assert_int_equal(of_seeds(VB_CHECK_RATIO, 0.9, 1, 1.01, 1.03, 1.03).verdict,
			 VB_NOT_REPRODUCED);
	/* Nothing at all is no tie. */
	assert_false(of_seeds(VB_CHECK_AHEAD, 0, 0, 0, 0, 0).tie);
	assert_int_equal(of_seeds(VB_CHECK_AHEAD, 0, 2, 3, 0, 0).verdict, VB_NOT_REPRODUCED);
}

static void an_amount_is_near(void **state)
{
	(void)state;
	assert_int_equal(judge(VB_CHECK_AMOUNT, 2.2, 2.01, 2.01), VB_REPRODUCED);
	assert_int_equal(judge(VB_CHECK_AMOUNT, 2.6, 2.01, 2.01), VB_NOT_REPRODUCED);
	assert_int_equal(judge(VB_CHECK_AMOUNT, 4.1, 2.01, 2.01), VB_NOT_REPRODUCED);
	/* What the paper's table cannot show is no difference. */
	assert_int_equal(judge(VB_CHECK_AMOUNT, 0.09, 0.01, 0.01), VB_REPRODUCED);
	assert_int_equal(judge(VB_CHECK_AMOUNT, 0.2, 0.01, 0.01), VB_NOT_REPRODUCED);
	assert_int_equal(judge(VB_CHECK_AMOUNT, 0, 0, 0), VB_REPRODUCED);
	assert_int_equal(judge(VB_CHECK_AMOUNT, 1, 0, 0), VB_NOT_REPRODUCED);
	/* The median decides, and the spread is told. */
	assert_int_equal(of_seeds(VB_CHECK_AMOUNT, 1, 2.2, 3, 2.01, 2.01).verdict, VB_REPRODUCED);
}

static enum vb_verdict share(double v, double lo, double hi)
{
	const struct vb_repro_check c = {.kind = VB_CHECK_AMOUNT, .lo = lo, .hi = hi};

	return vb_repro_judge(&c, vb_repro_metric_find("retried"), (struct vb_repro_span){v, v, v})
		.verdict;
}

static void a_share_near_1_is_what_is_missing(void **state)
{
	(void)state;
	assert_int_equal(share(0.994, 0.994, 0.994), VB_REPRODUCED);
	assert_int_equal(share(0.9935, 0.994, 0.994), VB_REPRODUCED);
	/* Four fifths of it, and 34 times what is missing. */
	assert_int_equal(share(0.8, 0.994, 0.994), VB_NOT_REPRODUCED);
	assert_int_equal(share(0.985, 0.994, 0.994), VB_NOT_REPRODUCED);
	assert_int_equal(share(0.799, 0.871, 0.871), VB_NOT_REPRODUCED);
	assert_int_equal(share(0.85, 0.871, 0.871), VB_REPRODUCED);
	assert_int_equal(share(1, 0.994, 0.994), VB_NOT_REPRODUCED);
	/* Near 0 it is the share itself. */
	assert_int_equal(share(0.22, 0.2, 0.2), VB_REPRODUCED);
	assert_int_equal(share(0.3, 0.2, 0.2), VB_NOT_REPRODUCED);
	assert_int_equal(share(0.0004, 0, 0), VB_REPRODUCED);
	assert_int_equal(share(0.02, 0, 0), VB_NOT_REPRODUCED);
	assert_int_equal(share(0.7, 0.5, 1), VB_REPRODUCED);
}

static void trends(void **state)
{
	(void)state;
	assert_int_equal(judge(VB_CHECK_CLOSE, 0.81, 0, 0), VB_REPRODUCED);
	assert_int_equal(judge(VB_CHECK_CLOSE, 2.1, 0, 0), VB_NOT_REPRODUCED);
	assert_int_equal(judge(VB_CHECK_RISES, 1.3, 0, 0), VB_REPRODUCED);
	assert_int_equal(judge(VB_CHECK_RISES, 1.1, 0, 0), VB_DIRECTION);
	assert_int_equal(judge(VB_CHECK_RISES, 1.03, 0, 0), VB_NOT_REPRODUCED);
	assert_int_equal(judge(VB_CHECK_RISES, 0.9, 0, 0), VB_NOT_REPRODUCED);
	assert_int_equal(judge(VB_CHECK_FALLS, 0.5, 0, 0), VB_REPRODUCED);
	assert_int_equal(judge(VB_CHECK_FALLS, 0.97, 0, 0), VB_NOT_REPRODUCED);
	assert_int_equal(judge(VB_CHECK_FALLS, 1.5, 0, 0), VB_NOT_REPRODUCED);
}

static void a_median_and_a_spread(void **state)
{
	const double odd[] = {5, 1, 9, 3, 7}, even[] = {4, 1, 2, 3}, one[] = {6};
	const double gap[] = {1, NAN, 3};
	struct vb_repro_span v = vb_repro_span_of(odd, 5);

	(void)state;
	assert_float_equal(v.median, 5, 1e-9);
	assert_float_equal(v.lo, 1, 1e-9);
	assert_float_equal(v.hi, 9, 1e-9);
	assert_float_equal(vb_repro_span_of(even, 4).median, 2.5, 1e-9);
	assert_float_equal(vb_repro_span_of(one, 1).median, 6, 1e-9);
	assert_true(isnan(vb_repro_span_of(gap, 3).median));
}

/* ---- claims of a small experiment ---- */

static const struct vb_repro_value systems[] = {{"a", ""}, {"b", ""}, {"c", ""}, {NULL, NULL}};
static const struct vb_repro_value sweep[] = {{"1", ""}, {"2", ""}, {"4", ""}, {NULL, NULL}};
static const char *const metrics[] = {"goodput", NULL};

#define SEEDS 5

struct world {
	struct vb_experiment e;
	struct vb_repro_result r;
	struct vb_repro_point point[9];
	struct vb_repro_job job[9][SEEDS];
	struct vb_repro_finding finding[8];
};

/* kops/s of a, b, c at 1, 2, 4, with each seed; 0: not run. */
static void world_open_seeds(struct world *w, const double (*kops)[9], unsigned n_seeds,
			     const struct vb_repro_check *checks, unsigned n)
{
	memset(w, 0, sizeof(*w));
	w->e = (struct vb_experiment){.name = "test/fig1",
				      .systems = systems,
				      .sweep = sweep,
				      .metrics = metrics,
				      .checks = checks,
				      .n_checks = n};
	w->r = (struct vb_repro_result){.e = &w->e,
					.whose = "paper",
					.checks = checks,
					.n_checks = n,
					.point = w->point,
					.finding = w->finding,
					.n = 9,
					.n_systems = 3,
					.n_x = 3,
					.n_seeds = n_seeds};
	for (unsigned i = 0; i < 9 * n_seeds; i++) {
		struct vb_repro_point *p = &w->point[i / n_seeds];
		struct vb_repro_job *j = &w->job[i / n_seeds][i % n_seeds];
		double v = kops[i % n_seeds][i / n_seeds];

		p->system = &systems[i / n_seeds / 3];
		p->x = &sweep[i / n_seeds % 3];
		p->n_seeds = n_seeds;
		p->job[i % n_seeds] = j;
		if (v > 0)
			j->run = json_pack("{s:f}", "goodput_ops_s", v * 1e3);
		else
			j->why = (char *)"no lock 'c'";
	}
	vb_repro_judge_all(&w->r);
}

static void world_open(struct world *w, const double *kops, const struct vb_repro_check *checks,
		       unsigned n)
{
	world_open_seeds(w, (const double(*)[9])kops, 1, checks, n);
}

static void world_close(struct world *w)
{
	for (unsigned i = 0; i < 9 * w->r.n_seeds; i++)
		json_decref(w->job[i / w->r.n_seeds][i % w->r.n_seeds].run);
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
	struct world w;

	(void)state;
	world_open(&w, all_run, checks, 7);
	for (unsigned i = 0; i < 6; i++)
		assert_int_equal(w.finding[i].verdict, VB_REPRODUCED);
	assert_float_equal(w.finding[0].ours.median, 4, 1e-9);
	assert_int_equal(w.finding[1].compared, 6);
	assert_int_equal(w.finding[1].held, 6);
	/* The worst of the six. */
	assert_float_equal(w.finding[1].ours.median, 10.0 / 8, 1e-9);
	assert_float_equal(w.finding[2].ours.median, 0.2, 1e-9);
	assert_float_equal(w.finding[3].ours.median, 4, 1e-9);
	assert_float_equal(w.finding[4].ours.median, 1.25, 1e-9);
	assert_float_equal(w.finding[5].ours.median, 3.2, 1e-9);
	assert_int_equal(w.finding[6].verdict, VB_NOT_REPRODUCED);
	assert_int_equal(w.finding[6].held, 3);
	assert_float_equal(w.finding[6].ours.median, 0.25, 1e-9);
	assert_int_equal(vb_repro_claim(&w.r, "X").verdict, VB_REPRODUCED);
	assert_int_equal(vb_repro_claim(&w.r, "Y").verdict, VB_NOT_REPRODUCED);
	assert_ptr_equal(vb_repro_claim(&w.r, "Y").weakest, &w.finding[6]);
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
		{"C", VB_CHECK_AHEAD, "goodput", VB_AT("a", NULL, "1"), VB_AT("c", NULL, "1"), 0,
		 0},
	};
	struct world w;

	(void)state;
	world_open(&w, c_missing, checks, 5);
	assert_int_equal(w.finding[0].verdict, VB_PARTLY);
	assert_string_equal(w.finding[0].why, "no lock 'c'");
	assert_int_equal(w.finding[1].verdict, VB_NOT_REPRODUCED);
	assert_int_equal(w.finding[2].verdict, VB_NOT_RUN);
	assert_int_equal(w.finding[3].verdict, VB_REPRODUCED);
	assert_int_equal(vb_repro_claim(&w.r, "Z").verdict, VB_PARTLY);
	assert_ptr_equal(vb_repro_claim(&w.r, "Z").weakest, &w.finding[2]);
	assert_int_equal(vb_repro_claim(&w.r, "C").verdict, VB_NOT_RUN);
	world_close(&w);
}

/* ---- seeds ---- */

static void a_lead_that_comes_and_goes_is_none(void **state)
{
	static const struct vb_repro_check checks[] = {
		{"A", VB_CHECK_AHEAD, "goodput", VB_AT("a", NULL, "1"), VB_AT("b", NULL, "1"), 0,
		 0},
		{"B", VB_CHECK_AHEAD, "goodput", VB_AT("a", NULL, "2"), VB_AT("b", NULL, "2"), 0,
		 0},
		{"C", VB_CHECK_KEEPS, "goodput", VB_AT("a", NULL, "1"), VB_AT("b", NULL, "4"), 0,
		 0},
		{"D", VB_CHECK_RATIO, "goodput", VB_AT("a", NULL, "4"), VB_AT("^", NULL, "4"), 2,
		 2},
	};
	/* a is ahead of b at 1 with four of five, by little; at 2 by much, whatever the seed makes of
	 * both; and at 4 twice as fast as the better of the others, which is not always b. */
	static const double kops[SEEDS][9] = {
		{1002, 130, 40, 1000, 100, 20, 1, 1, 10}, {1010, 260, 80, 1000, 200, 40, 1, 1, 20},
		{990, 390, 20, 1000, 300, 5, 1, 1, 10},   {1003, 65, 42, 1000, 50, 10, 1, 1, 20},
		{1001, 13, 60, 1000, 10, 30, 1, 1, 9},
	};
	struct world w;

	(void)state;
	world_open_seeds(&w, kops, SEEDS, checks, 4);
	assert_int_equal(w.finding[0].verdict, VB_NOT_REPRODUCED);
	assert_true(w.finding[0].tie);
	assert_float_equal(w.finding[0].ours.median, 1.002, 1e-9);
	assert_float_equal(w.finding[0].ours.lo, 0.99, 1e-9);
	assert_float_equal(w.finding[0].ours.hi, 1.01, 1e-9);
	assert_float_equal(w.finding[0].by_seed[2], 0.99, 1e-9);
	assert_int_equal(w.finding[1].verdict, VB_REPRODUCED);
	assert_float_equal(w.finding[1].ours.lo, 1.3, 1e-9);
	/* a keeps two to four times as much: by much, and the seeds differ by more. */
	assert_int_equal(w.finding[2].verdict, VB_NOT_REPRODUCED);
	assert_true(w.finding[2].tie);
	assert_int_equal(w.finding[3].verdict, VB_REPRODUCED);
	assert_float_equal(w.finding[3].ours.lo, 2, 1e-9);
	world_close(&w);
}

static void a_seed_that_is_missing_confirms_nothing(void **state)
{
	static const struct vb_repro_check checks[] = {
		{"A", VB_CHECK_AHEAD, "goodput", VB_AT("a", NULL, "1"), VB_AT("b", NULL, "1"), 0,
		 0},
		{"B", VB_CHECK_AHEAD, "goodput", VB_AT("a", NULL, "2"), VB_AT("b", NULL, "2"), 0,
		 0},
	};
	static const double kops[3][9] = {{20, 20, 20, 10, 10, 10, 1, 1, 1},
					  {20, 20, 20, 0, 10, 10, 1, 1, 1},
					  {20, 20, 20, 10, 10, 10, 1, 1, 1}};
	struct world w;

	(void)state;
	world_open_seeds(&w, kops, 3, checks, 2);
	assert_int_equal(w.finding[0].verdict, VB_NOT_RUN);
	assert_string_equal(w.finding[0].why, "no lock 'c'");
	assert_int_equal(w.finding[1].verdict, VB_REPRODUCED);
	assert_true(isnan(vb_repro_metric_of(vb_repro_metric_find("goodput"), &w.point[3]).median));
	assert_string_equal(vb_repro_why(&w.point[3]), "no lock 'c'");
	assert_null(vb_repro_why(&w.point[0]));
	world_close(&w);
}

/* ---- what is said of a claim ---- */

static void what_could_not_fail_is_not_counted(void **state)
{
	static const struct vb_repro_check checks[] = {
		{"A", VB_CHECK_AHEAD, "goodput", VB_AT("a", NULL, "1"), VB_AT("b", NULL, "1"), 0,
		 0},
		{"B", VB_CHECK_AHEAD, "goodput", VB_AT("b", NULL, "1"), VB_AT("a", NULL, "1"), 0,
		 0},
		{"C", VB_CHECK_AHEAD, "goodput", VB_AT("a", NULL, "1"), VB_AT("b", NULL, "1"), 0,
		 0},
		{"D", VB_CHECK_AHEAD, "goodput", VB_AT("b", NULL, "1"), VB_AT("a", NULL, "1"), 0,
		 0},
		{"E", VB_CHECK_RATIO, "goodput", VB_AT("a", NULL, "1"), VB_AT("b", NULL, "1"), 9,
		 9},
		{"F", VB_CHECK_RATIO, "goodput", VB_AT("a", NULL, "1"), VB_AT("b", NULL, "1"), 9,
		 9},
		{"G", VB_CHECK_AHEAD, "goodput", VB_AT("a", NULL, "1"), VB_AT("b", NULL, "1"), 0,
		 0},
	};
	static const struct vb_repro_note notes[] = {
		{"A", "a choice", NULL}, {"B", "a choice", NULL}, {"C", NULL, "the rest"},
		{"D", NULL, "the rest"}, {"E", NULL, "the rest"}, {"F", "a choice", "the rest"},
		{NULL, NULL, NULL},
	};
	static const enum vb_verdict verdicts[] = {
		VB_BY_CONSTRUCTION, VB_NOT_REPRODUCED,  VB_PARTLY,    VB_NOT_REPRODUCED,
		VB_PARTLY,          VB_BY_CONSTRUCTION, VB_REPRODUCED};
	struct world w;

	(void)state;
	world_open(&w, all_run, checks, 7);
	w.r.notes[0] = notes;
	for (unsigned i = 0; i < 7; i++)
		assert_int_equal(vb_repro_claim(&w.r, checks[i].claim).verdict, verdicts[i]);
	assert_int_equal(vb_repro_claim(&w.r, "A").found, VB_REPRODUCED);
	assert_string_equal(vb_repro_claim(&w.r, "A").by_construction, "a choice");
	assert_int_equal(vb_repro_claim(&w.r, "E").found, VB_DIRECTION);
	assert_string_equal(vb_repro_claim(&w.r, "E").unchecked, "the rest");
	assert_null(vb_repro_claim(&w.r, "G").unchecked);
	world_close(&w);
}

/* ---- rows ---- */

#define CELLS_OF_ROW 3

static const struct vb_repro_check row[] = {
	VB_CELL("R", "mean", "a", NULL, "1", 2.5),
	VB_CELL("R", "p50", "a", NULL, "1", 0.2),
	VB_CELL("R", "p99", "a", NULL, "1", 40),
};

/* The row's cells with each seed; NAN: not there. */
static struct vb_repro_ruling judge_row(const double (*us)[CELLS_OF_ROW], unsigned n_seeds)
{
	static const double none[SEEDS][9];
	struct vb_repro_ruling u;
	struct world w;

	world_open_seeds(&w, none, n_seeds, row, CELLS_OF_ROW);
	for (unsigned s = 0; s < n_seeds; s++)
		if (!isnan(us[s][0]))
			w.job[0][s].run =
				json_pack("{s:{s:{s:f,s:f,s:f}}}", "latency_us", "acquire", "mean",
					  us[s][0], "p50", us[s][1], "p99", us[s][2]);
	vb_repro_judge_all(&w.r);
	u = vb_repro_claim(&w.r, "R");
	assert_true(!(u.explained.median < 1) || u.weakest == &w.finding[2]);
	u.weakest = NULL;
	world_close(&w);
	return u;
}

/* A small item that is wrong by a large factor is little of the time; a large one is not. */
static void a_row_is_judged_by_its_time(void **state)
{
	static const double same[1][CELLS_OF_ROW] = {{2.5, 0.2, 40}};
	static const double small[1][CELLS_OF_ROW] = {{2.5, 0, 38}};
	static const double large[1][CELLS_OF_ROW] = {{2.5, 0.2, 20}};
	static const double more[1][CELLS_OF_ROW] = {{2.5, 0.2, 80}};
	static const double seeds[3][CELLS_OF_ROW] = {
		{2.5, 0.2, 20}, {2.5, 0.2, 36}, {2.5, 0.2, 39}};
	static const double gap[2][CELLS_OF_ROW] = {{2.5, 0.2, 40}, {NAN, 0, 0}};
	struct vb_repro_ruling u;

	(void)state;
	assert_int_equal(judge_row(same, 1).verdict, VB_REPRODUCED);
	assert_float_equal(judge_row(same, 1).explained.median, 1, 1e-9);
	u = judge_row(small, 1);
	assert_int_equal(u.verdict, VB_REPRODUCED);
	assert_float_equal(u.explained.median, 40.5 / 42.7, 1e-9);
	/* Half of the wait, and twice as much, are as far from it. */
	assert_int_equal(judge_row(large, 1).verdict, VB_NOT_REPRODUCED);
	assert_float_equal(judge_row(large, 1).explained.median, 22.7 / 42.7, 1e-9);
	assert_int_equal(judge_row(more, 1).verdict, VB_NOT_REPRODUCED);
	assert_float_equal(judge_row(more, 1).explained.median, 42.7 / 82.7, 1e-9);
	u = judge_row(seeds, 3);
	assert_int_equal(u.verdict, VB_REPRODUCED);
	assert_float_equal(u.explained.median, 38.7 / 42.7, 1e-9);
	assert_float_equal(u.explained.lo, 22.7 / 42.7, 1e-9);
	assert_int_equal(judge_row(gap, 2).verdict, VB_NOT_RUN);
}

/* ---- columns ---- */

static const struct vb_repro_check paper[] = {
	VB_RATIO("A", "goodput", "a", "b", NULL, 4, 4),
	VB_RATIO("B", "goodput", "b", "c", NULL, 1.5, 3),
	VB_BESIDE("C", AHEAD, "goodput", "a", "c", NULL, NULL, 0, 0),
	VB_CELL("R", "mean", "a", NULL, NULL, 10),
	VB_CELL("R", "p99", "a", NULL, NULL, 40),
};
/* Of A and B far from the paper's at one end of a range, of R another; of C without a number. */
static const struct vb_repro_check own[] = {
	VB_RATIO("A", "goodput", "a", "b", NULL, 3.8, 9),
	VB_RATIO("B", "goodput", "b", "c", NULL, 0.9, 2),
	VB_BESIDE("C", BEHIND, "goodput", "a", "c", NULL, NULL, 0, 0),
	VB_BESIDE("B", AHEAD, "goodput", "e", "c", NULL, NULL, 0, 0),
	VB_CELL("R", "mean", "a", NULL, NULL, 10),
	VB_CELL("R", "p99", "a", NULL, NULL, 80),
};
static const struct vb_repro_value fabled[] = {{"b", "locks=7"}, {NULL, NULL}};
static const struct vb_repro_variant like_artifact = {
	.name = "artifact", .options = "profile=zero", .values = fabled};
static const struct vb_experiment columns = {
	.name = "test/fig2",
	.setup = "fabric=sim profile=cx5",
	.systems = VB_AXIS({"a", "lock=cas"}, {"b", "lock=mcs"}, {"c", "lock=rpc"},
			   {"d", "lock=dslr"}, {"e", "lock=drtm"}),
	.metrics = metrics,
	VB_CHECKS(paper),
	.artifact = &like_artifact,
	VB_OWN_CHECKS(own),
	.artifact_notes = VB_NOTES({"C", "a number of the card", NULL}),
	.switches = VB_SWITCHES({.name = "slow", .options = "lease=1ms", .claims = "AA B"}),
};

/* kops/s, and a row of us. */
static void ran(const struct vb_repro_result *r, const char *system, double kops, double mean,
		double p99)
{
	struct vb_repro_job *j = vb_repro_find(r, system, NULL, NULL)->job[0];

	j->run = json_pack("{s:f,s:{s:{s:f,s:f}}}", "goodput_ops_s", kops * 1e3, "latency_us",
			   "acquire", "mean", mean, "p99", p99);
}

static void open_columns(struct vb_repro_outcome *o, struct vb_repro_jobs *jobs)
{
	assert_int_equal(vb_repro_set_up(o, &columns, jobs, 1, 7, 1), 0);
	/* As written: the paper's, except for B.  As the artifact does: its own. */
	ran(&o->written, "a", 40, 10, 40);
	ran(&o->written, "b", 10, 0, 0);
	ran(&o->written, "c", 20, 0, 0);
	ran(&o->written, "d", 1, 0, 0);
	ran(&o->written, "e", 1, 0, 0);
	ran(&o->artifact, "a", 39, 10, 80);
	ran(&o->artifact, "b", 10, 0, 0);
	ran(&o->artifact, "c", 10, 0, 0);
	ran(&o->artifact, "e", 20, 0, 0);
	ran(&o->switched[0], "b", 40, 0, 0);
	ran(&o->switched[0], "c", 20, 0, 0);
	vb_repro_judge_columns(o);
}

static void columns_run_what_they_compare(void **state)
{
	struct vb_repro_jobs jobs = {0};
	struct vb_repro_outcome o;

	(void)state;
	open_columns(&o, &jobs);
	assert_string_equal(vb_repro_find(&o.written, "b", NULL, NULL)->job[0]->options,
			    "fabric=sim lock=mcs profile=cx5 seed=7");
	assert_string_equal(vb_repro_find(&o.artifact, "b", NULL, NULL)->job[0]->options,
			    "fabric=sim lock=mcs locks=7 profile=zero seed=7");
	assert_string_equal(vb_repro_find(&o.artifact, "a", NULL, NULL)->job[0]->options,
			    "fabric=sim lock=cas profile=zero seed=7");
	assert_string_equal(vb_repro_find(&o.switched[0], "c", NULL, NULL)->job[0]->options,
			    "fabric=sim lease=1ms lock=rpc profile=cx5 seed=7");
	/* e is in a check against the artifact's numbers alone, d is in none, and of the switch only B's are made. */
	assert_int_equal(vb_repro_find(&o.written, "d", NULL, NULL)->n_seeds, 1);
	assert_int_equal(vb_repro_find(&o.artifact, "d", NULL, NULL)->n_seeds, 0);
	assert_int_equal(vb_repro_find(&o.artifact, "e", NULL, NULL)->n_seeds, 1);
	assert_int_equal(vb_repro_find(&o.switched[0], "a", NULL, NULL)->n_seeds, 0);
	assert_null(vb_repro_why(vb_repro_find(&o.artifact, "d", NULL, NULL)));
	assert_int_equal(o.switched[0].n_checks, 1);
	assert_int_equal(jobs.n, 5 + 4 + 2);
	vb_repro_tear_down(&o);
	vb_repro_jobs_free(&jobs);
}

/* What nobody compares is for the figure: one run. */
static void points_of_no_check_run_once(void **state)
{
	struct vb_repro_jobs jobs = {0};
	struct vb_repro_outcome o;

	(void)state;
	assert_int_equal(vb_repro_set_up(&o, &columns, &jobs, 1, 7, 5), 0);
	assert_int_equal(vb_repro_find(&o.written, "a", NULL, NULL)->n_seeds, 5);
	assert_int_equal(vb_repro_find(&o.written, "d", NULL, NULL)->n_seeds, 1);
	assert_int_equal(vb_repro_find(&o.artifact, "e", NULL, NULL)->n_seeds, 5);
	assert_int_equal(jobs.n, 3 * 5 + 2 + 4 * 5 + 2 * 5);
	vb_repro_tear_down(&o);
	vb_repro_jobs_free(&jobs);
}

static enum vb_verdict in(const struct vb_repro_result *r, const char *claim)
{
	return vb_repro_claim(r, claim).verdict;
}

static void columns_are_judged_each_by_itself(void **state)
{
	struct vb_repro_jobs jobs = {0};
	struct vb_repro_outcome o;

	(void)state;
	open_columns(&o, &jobs);
	/* Against the paper's numbers, as written and as the artifact does. */
	assert_int_equal(in(&o.written, "A"), VB_REPRODUCED);
	assert_int_equal(in(&o.written, "B"), VB_NOT_REPRODUCED);
	assert_int_equal(in(&o.written, "C"), VB_REPRODUCED);
	assert_int_equal(in(&o.written, "R"), VB_REPRODUCED);
	assert_int_equal(in(&o.artifact, "A"), VB_REPRODUCED);
	assert_int_equal(in(&o.artifact, "B"), VB_NOT_REPRODUCED);
	assert_int_equal(in(&o.artifact, "R"), VB_NOT_REPRODUCED);
	/* A note of that column, and of no other. */
	assert_int_equal(in(&o.artifact, "C"), VB_BY_CONSTRUCTION);
	/* The same runs, against the artifact's. */
	assert_string_equal(o.own.whose, "artifact");
	assert_int_equal(in(&o.own, "A"), VB_REPRODUCED);
	assert_int_equal(in(&o.own, "B"), VB_REPRODUCED);
	assert_int_equal(in(&o.own, "C"), VB_NOT_REPRODUCED);
	assert_int_equal(in(&o.own, "R"), VB_REPRODUCED);
	/* With the switch. */
	assert_int_equal(in(&o.switched[0], "B"), VB_REPRODUCED);
	assert_false(vb_repro_has_claim(&o.switched[0], "A"));
	/* And the artifact's numbers against the paper's: of a range the worse end, and nothing where it
	 * has no number. */
	assert_int_equal(in(&o.theirs, "A"), VB_DIRECTION);
	assert_float_equal(vb_repro_claim(&o.theirs, "A").weakest->ours.median, 9, 1e-9);
	assert_int_equal(in(&o.theirs, "B"), VB_NOT_REPRODUCED);
	assert_float_equal(vb_repro_claim(&o.theirs, "B").weakest->ours.median, 0.9, 1e-9);
	assert_int_equal(in(&o.theirs, "R"), VB_NOT_REPRODUCED);
	assert_float_equal(vb_repro_claim(&o.theirs, "R").explained.median, 50.0 / 90, 1e-9);
	assert_false(vb_repro_has_claim(&o.theirs, "C"));
	vb_repro_tear_down(&o);
	vb_repro_jobs_free(&jobs);
}

/* What is missing in a column confirms nothing there, and is missing nowhere else. */
static void a_column_may_be_missing(void **state)
{
	struct vb_repro_jobs jobs = {0};
	struct vb_repro_outcome o;
	struct vb_repro_job *j;

	(void)state;
	open_columns(&o, &jobs);
	j = vb_repro_find(&o.artifact, "b", NULL, NULL)->job[0];
	json_decref(j->run);
	j->run = NULL;
	j->why = strdup("no profile 'zero'");
	vb_repro_judge_columns(&o);
	assert_int_equal(in(&o.written, "A"), VB_REPRODUCED);
	assert_int_equal(in(&o.artifact, "A"), VB_NOT_RUN);
	assert_int_equal(in(&o.own, "A"), VB_NOT_RUN);
	assert_int_equal(in(&o.own, "R"), VB_REPRODUCED);
	assert_int_equal(in(&o.theirs, "A"), VB_DIRECTION);
	vb_repro_tear_down(&o);
	vb_repro_jobs_free(&jobs);
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

/* The numbers of a text, in their order: "1.46 to 1.48", ".23". */
static unsigned numbers_of(const char *text, double *v, unsigned room)
{
	unsigned n = 0;

	while (*text != '\0' && n < room) {
		char *end;

		if (strchr("0123456789.", *text) == NULL) {
			text++;
			continue;
		}
		v[n] = strtod(text, &end);
		n += end > text;
		text = end > text ? end : text + 1;
	}
	return n;
}

static bool is_close(double a, double b)
{
	return fabs(a - b) < 1e-6;
}

/* One of them, or a quotient, a sum, or what is left of 1. */
static bool is_from(double v, const double *from, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (is_close(v, from[i]) || is_close(v, 1 - from[i] / 100) ||
		    is_close(v, 1 / from[i]))
			return true;
		for (unsigned k = 0; k < n; k++)
			if (is_close(v, from[i] / from[k]) || is_close(v, from[i] + from[k]))
				return true;
	}
	return false;
}

/* No number is judged against that data/claims.tsv does not have.  The verbs of CAS-B are told as so
 * many more than ShiftLock's, which are SHIFT-10's. */
static void check_is_the_artifacts(const struct vb_experiment *e, const struct vb_repro_check *c)
{
	const struct vb_paper_claim *claim = vb_paper_claim_find(c->claim);
	double v[128];
	unsigned n = numbers_of(claim->artifact, v, 60);

	assert_non_null(e->artifact);
	assert_true(claim->artifact[0] != '\0' && claim->source[0] != '\0');
	n += numbers_of(claim->artifact_range, v + n, 60);
	if (strcmp(c->claim, "SHIFT-13") == 0)
		n += numbers_of(vb_paper_claim_find("SHIFT-10")->artifact, v + n, 8);
	if (c->kind <= VB_CHECK_CELL && (!is_from(c->lo, v, n) || !is_from(c->hi, v, n)))
		fail_msg("%s: the artifact has no %g to %g", c->claim, c->lo, c->hi);
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
	if (c->kind == VB_CHECK_CELL)
		assert_true(c->b.system == NULL && c->hi == c->lo);
	/* A row is cells, all of it. */
	for (unsigned i = 0; i < e->n_checks; i++)
		if (strcmp(e->checks[i].claim, c->claim) == 0)
			assert_int_equal(e->checks[i].kind == VB_CHECK_CELL,
					 c->kind == VB_CHECK_CELL);
}

static bool has_claim(const struct vb_experiment *e, const char *claim)
{
	for (unsigned i = 0; i < e->n_checks; i++)
		if (strcmp(e->checks[i].claim, claim) == 0)
			return true;
	return false;
}

static const struct vb_repro_note *note_of(const struct vb_experiment *e, const char *claim)
{
	for (const struct vb_repro_note *n = e->notes; n != NULL && n->claim != NULL; n++)
		if (strcmp(n->claim, claim) == 0)
			return n;
	return NULL;
}

/* A label that is nowhere would change nothing, silently. */
static void variant_is_sound(const struct vb_experiment *e, const struct vb_repro_variant *v)
{
	for (const struct vb_repro_value *o = v->values; o != NULL && o->label != NULL; o++)
		assert_true(vb_repro_is_label(e, o->label) ||
			    (e->artifact != NULL && e->artifact->values == v->values));
	for (unsigned i = 0; i < vb_paper_claim_count && v->claims != NULL; i++) {
		const char *at = strstr(v->claims, vb_paper_claims[i].id);
		size_t len = strlen(vb_paper_claims[i].id);

		if (at != NULL && (at[len] == '\0' || at[len] == ' '))
			assert_true(has_claim(e, vb_paper_claims[i].id));
	}
}

static void variants_are_sound(const struct vb_experiment *e)
{
	unsigned n = 0;

	if (e->artifact != NULL)
		variant_is_sound(e, e->artifact);
	for (const struct vb_repro_variant *v = e->switches; v != NULL && v->name != NULL;
	     v++, n++) {
		assert_non_null(v->about);
		variant_is_sound(e, v);
	}
	assert_true(n <= VB_REPRO_SWITCHES);
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
		for (unsigned k = 0; k < e->n_own_checks; k++) {
			check_is_sound(e, &e->own_checks[k]);
			check_is_the_artifacts(e, &e->own_checks[k]);
			assert_true(has_claim(e, e->own_checks[k].claim));
		}
		variants_are_sound(e);
		for (const struct vb_repro_note *n = e->notes; n != NULL && n->claim != NULL; n++) {
			assert_true(has_claim(e, n->claim));
			assert_true(n->by_construction != NULL || n->unchecked != NULL);
			assert_ptr_equal(note_of(e, n->claim), n);
		}
	}
	assert_true(vb_repro_experiment(0) != NULL);
}

/* The model's 16-byte atomic was set by one of ShiftLock's rows: what is atomics for the most part
 * agrees whatever the lock does. */
static void rows_of_atomics_are_by_construction(void **state)
{
	const struct vb_experiment *e;
	unsigned rows = 0, given = 0;

	(void)state;
	for (unsigned i = 0; (e = vb_repro_experiment(i)) != NULL; i++)
		for (unsigned k = 0; k < e->n_checks; k++) {
			const struct vb_paper_claim *c = vb_repro_first_of(e->checks, k);
			const struct vb_repro_note *n = note_of(e, e->checks[k].claim);
			double atomics = 0, all = 0;

			if (c == NULL || e->checks[k].kind != VB_CHECK_CELL)
				continue;
			for (unsigned j = k; j < e->n_checks; j++) {
				const struct vb_repro_check *cell = &e->checks[j];

				if (strcmp(cell->claim, c->id) != 0)
					continue;
				all += cell->lo;
				atomics += strstr(cell->metric, ".IA") != NULL ? cell->lo : 0;
			}
			if ((atomics / all >= 1 / VB_REPRO_NEAR) !=
			    (n != NULL && n->by_construction != NULL))
				fail_msg("%s: %g of its time is atomics", c->id, atomics / all);
			given += atomics / all >= 1 / VB_REPRO_NEAR;
			rows++;
		}
	assert_int_equal(rows, 22);
	assert_true(given > 0 && given < rows / 2);
}

static bool is_in_a_note(const struct vb_repro_note *n, const char *param)
{
	for (; n != NULL && n->claim != NULL; n++)
		if (n->by_construction != NULL && strstr(n->by_construction, param) != NULL)
			return true;
	return false;
}

/* What a number that was calibrated decides has a note that names it. */
static void calibrated_numbers_are_in_notes(void **state)
{
	static const char *const profiles[] = {"cx5", "cx5-card"};
	unsigned calibrated = 0;

	(void)state;
	for (unsigned p = 0; p < VB_ARRAY_SIZE(profiles); p++)
		for (unsigned i = 0; i < vb_sim_param_count; i++) {
			const char *name = vb_sim_params[i].name;
			const struct vb_sim_source *source =
				vb_sim_source_of(vb_sim_profile_find(profiles[p]), name);
			const struct vb_experiment *e;
			bool noted = false;

			/* Of an effect that the profile lacks there is none. */
			if (source == NULL || source->ground != VB_SIM_CALIBRATED)
				continue;
			calibrated++;
			for (unsigned k = 0; (e = vb_repro_experiment(k)) != NULL; k++)
				noted |= is_in_a_note(e->notes, name) ||
					 is_in_a_note(e->artifact_notes, name);
			if (!noted)
				fail_msg("%s of %s is in no note", name, profiles[p]);
		}
	assert_true(calibrated >= 5);
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
	char *text = vb_repro_options(&e, NULL, &system, NULL, &x, 1, 7);

	(void)state;
	assert_string_equal(text, "clients=3 dist=uniform duration=20ms lease=1ms lock=cas seed=7");
	free(text);
	text = vb_repro_options(&e, NULL, &system, NULL, NULL, 0.1, 7);
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
		cmocka_unit_test(a_ratio_is_near_by_its_distance_from_1),
		cmocka_unit_test(a_ratio_may_stand_on_its_head),
		cmocka_unit_test(a_direction_is_a_lead),
		cmocka_unit_test(a_tie_is_one_on_both_sides),
		cmocka_unit_test(a_lead_exceeds_what_the_seeds_make),
		cmocka_unit_test(an_amount_is_near),
		cmocka_unit_test(a_share_near_1_is_what_is_missing),
		cmocka_unit_test(trends),
		cmocka_unit_test(a_median_and_a_spread),
		cmocka_unit_test(checks_compare_what_they_name),
		cmocka_unit_test(what_did_not_run_confirms_nothing),
		cmocka_unit_test(a_lead_that_comes_and_goes_is_none),
		cmocka_unit_test(a_seed_that_is_missing_confirms_nothing),
		cmocka_unit_test(what_could_not_fail_is_not_counted),
		cmocka_unit_test(a_row_is_judged_by_its_time),
		cmocka_unit_test(columns_run_what_they_compare),
		cmocka_unit_test(points_of_no_check_run_once),
		cmocka_unit_test(columns_are_judged_each_by_itself),
		cmocka_unit_test(a_column_may_be_missing),
		cmocka_unit_test(rows_of_atomics_are_by_construction),
		cmocka_unit_test(calibrated_numbers_are_in_notes),
		cmocka_unit_test(tables_name_what_there_is),
		cmocka_unit_test(every_claim_on_locks_has_its_experiment),
		cmocka_unit_test(options_are_canonical),
		cmocka_unit_test(what_is_missing_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
