/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Distributions against the exact law.
 *
 * Rejection inversion is held to the exact law.  Gray's method is not exact, so it is held to two
 * things: the generator to the curve that Gray's formulas define, by chi-square, and that curve to
 * the exact law, within the distances that dist.h states.  Every sum of the exact law here is a
 * plain loop over all items, so that it also checks the fast zeta of the room.  Seeds are fixed.
 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/dist.h"
#include "base/log.h"

#define TEN_MILLION 10000000ull
#define DRAWS       2000000u
#define DRAWS_FEW   200000u /* over few items */
#define BINS_MAX    160

/* ---- the exact law and Gray's curve ---- */

/* The last few of ten million are kept: they take a third of a second each. */
static double exact_zeta(uint64_t n, double theta)
{
	static struct {
		double theta, sum;
	} kept[8];
	static unsigned next;
	long double sum = 0;

	for (unsigned i = 0; n == TEN_MILLION && i < VB_ARRAY_SIZE(kept); i++)
		if (kept[i].sum > 0 && kept[i].theta == theta)
			return kept[i].sum;
	for (uint64_t i = n; i >= 1; i--)
		sum += pow((double)i, -theta);
	if (n == TEN_MILLION) {
		kept[next].theta = theta;
		kept[next].sum = (double)sum;
		next = (next + 1) % VB_ARRAY_SIZE(kept);
	}
	return (double)sum;
}

/* P(item < k), k from 2 on, by the formulas of figure 6: the draw u that the curve maps to k. */
struct curve {
	double n, theta, zeta, two, eta;
};

static struct curve curve_of(uint64_t n, double theta, double zeta)
{
	struct curve c = {.n = (double)n, .theta = theta, .zeta = zeta, .two = 1 + pow(2, -theta)};

	c.eta = (1 - pow(2 / c.n, 1 - theta)) / (1 - c.two / zeta);
	return c;
}

static double curve_below(const struct curve *c, uint64_t k)
{
	if (k < 2)
		return k / c->zeta;
	return (pow((double)k / c->n, 1 - c->theta) - 1 + c->eta) / c->eta;
}

/* Total variation distance, and the worst item's relative error. */
static double curve_distance(const struct curve *c, double *worst)
{
	double below = c->two / c->zeta, sum = 0;

	*worst = 0;
	for (uint64_t k = 2; k < (uint64_t)c->n; k++) {
		double next = curve_below(c, k + 1),
		       exact = pow((double)k + 1, -c->theta) / c->zeta;
		double error = fabs(next - below - exact);

		sum += error / 2;
		if (error > *worst * exact)
			*worst = error / exact;
		below = next;
	}
	return sum;
}

static void test_zeta(void **state)
{
	static const struct {
		uint64_t n;
		double theta;
	} cases[] = {
		{1, 0.99},          {2, 0.5},           {1000, 0.99},        {10000, 0.3},
		{10001, 0.3},       {300000, 0.001},    {300000, 0.999999},  {300000, 1.000001},
		{300000, 10},       {TEN_MILLION, 0.5}, {TEN_MILLION, 0.99}, {TEN_MILLION, 1},
		{TEN_MILLION, 1.5},
	};
	struct vb_dist d;
	char text[32];

	for (size_t i = 0; i < VB_ARRAY_SIZE(cases); i++) {
		double exact = exact_zeta(cases[i].n, cases[i].theta);

		snprintf(text, sizeof(text), "zipf:%.17g", cases[i].theta);
		assert_int_equal(vb_dist_init(&d, text, cases[i].n), 0);
		assert_true(fabs(d.zetan / exact - 1) < 1e-12);
	}
	/* Next to 1 from both sides, where the closed forms would lose their digits. */
	assert_int_equal(vb_dist_init(&d, "zipf:0.99999999999", TEN_MILLION), 0);
	assert_true(fabs(d.zetan / exact_zeta(TEN_MILLION, 1) - 1) < 1e-9);
	/* zeta(2) of nearly everything is pi^2 / 6. */
	assert_int_equal(vb_dist_init(&d, "zipf:2", 1ull << 40), 0);
	assert_true(fabs(d.zetan - M_PI * M_PI / 6) < 2e-12);
}

static void test_gray_distance_small(void **state)
{
	static const unsigned sizes[] = {3, 4, 10, 30, 100, 146, 200, 1000, 10000};
	double worst, most = 0;

	for (size_t i = 0; i < VB_ARRAY_SIZE(sizes); i++) {
		for (unsigned t = 0; t <= 20; t++) {
			double theta = t < 20 ? t * 0.05 : 0.999999;
			struct curve c = curve_of(sizes[i], theta, exact_zeta(sizes[i], theta));
			double distance = curve_distance(&c, &worst);

			assert_true(distance < 0.018 && worst < 0.2);
			if (distance > most)
				most = distance;
		}
	}
	assert_true(most > 0.017); /* the bound is close */
}

static void test_gray_distance_ten_million(void **state)
{
	static const struct {
		double theta, most;
	} cases[] = {{0.5, 0.0001}, {0.8, 0.0021}, {0.99, 0.0098}};
	double worst;

	for (size_t i = 0; i < VB_ARRAY_SIZE(cases); i++) {
		double theta = cases[i].theta, distance;
		struct curve c = curve_of(TEN_MILLION, theta, exact_zeta(TEN_MILLION, theta));

		distance = curve_distance(&c, &worst);
		assert_true(distance < cases[i].most && distance > cases[i].most / 3);
		assert_true(worst < 0.2);
	}
}

/* ---- goodness of fit ---- */

/* Bins of items [from[i], from[i + 1]): single items first, then ever wider ones. */
struct bins {
	unsigned n;
	uint64_t from[BINS_MAX + 1];
	double p[BINS_MAX];
	unsigned draws;
	uint64_t drawn[BINS_MAX];
};

static void make_bins(struct bins *b, uint64_t n)
{
	uint64_t at = 0;

	memset(b, 0, sizeof(*b));
	b->draws = n < 1000 ? DRAWS_FEW : DRAWS;
	while (at < n) {
		assert_true(b->n < BINS_MAX);
		b->from[b->n++] = at;
		at += at < 10 ? 1 : at / 6;
	}
	b->from[b->n] = n;
}

static unsigned bin_of(const struct bins *b, uint64_t item)
{
	unsigned lo = 0, hi = b->n;

	while (hi - lo > 1) {
		unsigned mid = (lo + hi) / 2;

		if (item < b->from[mid])
			hi = mid;
		else
			lo = mid;
	}
	return lo;
}

static void fill_exact(struct bins *b, double theta)
{
	long double all = 0;

	for (unsigned i = b->n; i-- > 0;) {
		long double sum = 0;

		for (uint64_t k = b->from[i + 1]; k > b->from[i]; k--)
			sum += theta == 0 ? 1 : pow((double)k, -theta);
		b->p[i] = (double)sum;
		all += sum;
	}
	for (unsigned i = 0; i < b->n; i++)
		b->p[i] /= (double)all;
}

static void draw(struct bins *b, const struct vb_dist *d, uint64_t seed)
{
	struct vb_rng r;

	vb_rng_seed(&r, seed, 0);
	for (unsigned i = 0; i < b->draws; i++) {
		uint64_t item = vb_dist_next(d, &r);

		assert_true(item < d->n);
		b->drawn[bin_of(b, item)]++;
	}
}

/* Chi-square as a standard normal deviate (Wilson and Hilferty 1931): p > 1e-4 is z < 3.72.  Bins
 * that expect fewer than 10 are taken together with their neighbours. */
#define P_1E4 3.72

static double chi_square_z(const struct bins *b)
{
	double x = 0, expected = 0, drawn = 0, df = -1, shape;

	for (unsigned i = 0; i < b->n; i++) {
		expected += b->p[i] * b->draws;
		drawn += (double)b->drawn[i];
		if (expected < 10 && i + 1 < b->n)
			continue;
		if (expected < 10 && df >= 0)
			break; /* what is left is too little to judge */
		x += (drawn - expected) * (drawn - expected) / expected;
		df++;
		expected = drawn = 0;
	}
	if (df < 1)
		return x == 0 ? 0 : INFINITY;
	shape = 2 / (9 * df);
	return (cbrt(x / df) - (1 - shape)) / sqrt(shape);
}

/* How far the law of `text` over n items, drawn, is from the exact law of theta. */
static double fit_exact(const char *text, uint64_t n, double theta)
{
	static struct bins b;
	struct vb_dist d;

	make_bins(&b, n);
	fill_exact(&b, theta);
	assert_int_equal(vb_dist_init(&d, text, n), 0);
	draw(&b, &d, 12345);
	return chi_square_z(&b);
}

static void test_uniform_fits(void **state)
{
	assert_true(fit_exact("uniform", 1, 0) < P_1E4);
	assert_true(fit_exact("uniform", 7, 0) < P_1E4);
	assert_true(fit_exact("uniform", TEN_MILLION, 0) < P_1E4);
	assert_true(fit_exact("zipf:0", TEN_MILLION, 0) < P_1E4);
}

static void test_rejection_fits_ten_million(void **state)
{
	assert_true(fit_exact("zipf:1", TEN_MILLION, 1) < P_1E4);
	assert_true(fit_exact("zipf:1.2", TEN_MILLION, 1.2) < P_1E4);
	assert_true(fit_exact("powerlaw:1.5", TEN_MILLION, 1.5) < P_1E4);
	assert_true(fit_exact("zipf:3", 100000, 3) < P_1E4);
}

static void test_rejection_fits_few_items(void **state)
{
	static const double thetas[] = {1, 1.000001, 1.7, 4, 10};
	static const unsigned sizes[] = {1, 2, 3, 10, 57};
	char text[32];

	for (size_t t = 0; t < VB_ARRAY_SIZE(thetas); t++) {
		snprintf(text, sizeof(text), "zipf:%g", thetas[t]);
		for (size_t i = 0; i < VB_ARRAY_SIZE(sizes); i++)
			assert_true(fit_exact(text, sizes[i], thetas[t]) < P_1E4);
	}
	/* Next to 1 on the upper side it is the same law as at 1. */
	assert_true(fit_exact("zipf:1.000000000001", 1000, 1) < P_1E4);
}

static void test_gray_fits_its_curve(void **state)
{
	static const struct {
		const char *text;
		uint64_t n;
		double theta;
	} cases[] = {
		{"zipf:0.99", TEN_MILLION, 0.99},
		{"zipf:0.5", TEN_MILLION, 0.5},
		{"zipf:0.99", 1000, 0.99},
		{"zipf:0.2", 57, 0.2},
		{"zipf:0.9", 3, 0.9},
	};
	static struct bins b;
	struct vb_dist d;

	for (size_t i = 0; i < VB_ARRAY_SIZE(cases); i++) {
		struct curve c = curve_of(cases[i].n, cases[i].theta,
					  exact_zeta(cases[i].n, cases[i].theta));

		make_bins(&b, cases[i].n);
		for (unsigned j = 0; j < b.n; j++)
			b.p[j] = curve_below(&c, b.from[j + 1]) - curve_below(&c, b.from[j]);
		assert_int_equal(vb_dist_init(&d, cases[i].text, cases[i].n), 0);
		draw(&b, &d, 54321);
		assert_true(chi_square_z(&b) < P_1E4);
	}
	/* Two items or one have no curve, and are exact. */
	assert_true(fit_exact("zipf:0.99", 1, 0.99) < P_1E4);
	assert_true(fit_exact("zipf:0.99", 2, 0.99) < P_1E4);
}

static void test_gray_near_the_exact_law(void **state)
{
	static struct bins b;
	struct vb_dist d;
	double drawn = 0, exact = 0, most = 0;

	make_bins(&b, TEN_MILLION);
	fill_exact(&b, 0.99);
	assert_int_equal(vb_dist_init(&d, "zipf:0.99", TEN_MILLION), 0);
	draw(&b, &d, 999);
	for (unsigned i = 0; i < b.n; i++) {
		drawn += (double)b.drawn[i] / DRAWS;
		exact += b.p[i];
		if (fabs(drawn - exact) > most)
			most = fabs(drawn - exact);
		/* A share of 2 million draws is good to 0.0018, 5 deviations. */
		if (i < 2)
			assert_true(fabs((double)b.drawn[i] / DRAWS - b.p[i]) < 0.0018);
	}
	assert_true(most < 0.0098 + 0.0018);
}

/* The chi-square tells neighbouring laws apart, and Gray's from the exact one. */
static void test_fit_can_fail(void **state)
{
	assert_true(fit_exact("zipf:1.01", TEN_MILLION, 1) > 10);
	assert_true(fit_exact("zipf:0.99", TEN_MILLION, 0.99) > 10);
	assert_true(fit_exact("uniform", 10, 0.1) > 10);
}

/* ---- cost, probabilities, texts ---- */

static void test_rejection_rounds(void **state)
{
	static const char *const texts[] = {"zipf:1", "zipf:1.01", "zipf:1.5", "zipf:3", "zipf:10"};
	static const uint64_t sizes[] = {1, 2, 10, 1000, TEN_MILLION, 1ull << 40};
	const unsigned draws = 20000;

	for (size_t t = 0; t < VB_ARRAY_SIZE(texts); t++) {
		for (size_t i = 0; i < VB_ARRAY_SIZE(sizes); i++) {
			struct vb_rng r, behind;
			struct vb_dist d;
			unsigned rounds = 0;

			vb_rng_seed(&r, 1, 1);
			behind = r;
			assert_int_equal(vb_dist_init(&d, texts[t], sizes[i]), 0);
			for (unsigned n = 0; n < draws; n++)
				assert_true(vb_dist_next(&d, &r) < sizes[i]);
			for (; memcmp(&behind, &r, sizeof(r)); rounds++)
				vb_rng_next(&behind);
			assert_true(rounds < draws * 1.1);
		}
	}
}

static void test_probabilities(void **state)
{
	static const char *const texts[] = {"uniform", "zipf:0", "zipf:0.7", "zipf:1",
					    "powerlaw:2.5"};
	struct vb_dist d;

	for (size_t t = 0; t < VB_ARRAY_SIZE(texts); t++) {
		double sum = 0;

		assert_int_equal(vb_dist_init(&d, texts[t], 1000), 0);
		for (uint64_t k = 0; k < 1000; k++)
			sum += vb_dist_probability(&d, k);
		assert_true(fabs(sum - 1) < 1e-12);
	}
	assert_int_equal(vb_dist_init(&d, "zipf:2", 2), 0);
	assert_true(fabs(vb_dist_probability(&d, 0) - 0.8) < 1e-15);
}

/* No table, whatever the number of items. */
static void test_constant_memory(void **state)
{
	struct vb_dist d;

	assert_true(sizeof(d) <= 128);
	assert_int_equal(vb_dist_init(&d, "zipf:0.99", 1ull << 40), 0);
	assert_int_equal(d.n, 1ull << 40);
}

static void test_powerlaw_is_zipf(void **state)
{
	struct vb_rng a, b;
	struct vb_dist p, z;

	assert_int_equal(vb_dist_init(&p, "powerlaw:2", 1000000), 0);
	assert_int_equal(vb_dist_init(&z, "zipf:2", 1000000), 0);
	vb_rng_seed(&a, 5, 5);
	vb_rng_seed(&b, 5, 5);
	for (unsigned i = 0; i < 1000; i++)
		assert_int_equal(vb_dist_next(&p, &a), vb_dist_next(&z, &b));
}

static void test_bad_texts(void **state)
{
	static const char *const bad[] = {
		"zipf:-0.1",  "zipf:10.1",    "zipf:nan",    "zipf:",  "zipf:0.5x", "zipf",
		"powerlaw:1", "powerlaw:0.5", "powerlaw:11", "normal", "",
	};
	struct vb_dist d;
	char said[256];

	for (size_t i = 0; i < VB_ARRAY_SIZE(bad); i++) {
		vb_log_capture_begin(said, sizeof(said));
		assert_int_equal(vb_dist_init(&d, bad[i], 10), -EINVAL);
		vb_log_capture_end();
		assert_non_null(strstr(said, bad[i]));
	}
	vb_log_capture_begin(said, sizeof(said));
	assert_int_equal(vb_dist_init(&d, "zipf:0.5", 0), -EINVAL);
	vb_log_capture_end();
	assert_non_null(strstr(said, "no items"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_zeta),
		cmocka_unit_test(test_gray_distance_small),
		cmocka_unit_test(test_gray_distance_ten_million),
		cmocka_unit_test(test_uniform_fits),
		cmocka_unit_test(test_rejection_fits_ten_million),
		cmocka_unit_test(test_rejection_fits_few_items),
		cmocka_unit_test(test_gray_fits_its_curve),
		cmocka_unit_test(test_gray_near_the_exact_law),
		cmocka_unit_test(test_fit_can_fail),
		cmocka_unit_test(test_rejection_rounds),
		cmocka_unit_test(test_probabilities),
		cmocka_unit_test(test_constant_memory),
		cmocka_unit_test(test_powerlaw_is_zipf),
		cmocka_unit_test(test_bad_texts),
	};

	return cmocka_run_group_tests_name("base dist", tests, NULL, NULL);
}
