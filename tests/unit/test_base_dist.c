/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Distributions against the exact probabilities.
 *
 * Items are put into bins: the hottest 20 one by one, then ranges that double.  Rejection inversion
 * must pass a chi-square test with a fixed seed.  Gray's method is an approximation by
 * construction; what it gives is computed from its own formula (the measure of the u that map to a
 * bin, found by bisection) and held to the bound that dist.h states.
 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/dist.h"
#include "base/log.h"

#define TEN_MILLION 10000000ull
#define SINGLES     20
#define BINS_MAX    64

struct bins {
	unsigned n;
	uint64_t first[BINS_MAX + 1]; /* bin i is [first[i], first[i + 1]) */
	double p[BINS_MAX];
};

/* Exact sums up to a million terms, beyond by the integral with its midpoint correction, which is
 * good to 1e-9 there. */
static double weight(double theta, uint64_t from, uint64_t to)
{
	double sum = 0;
	uint64_t k = from;

	for (; k < to && k < 1000000; k++)
		sum += pow((double)k + 1, -theta);
	if (k < to) {
		double a = (double)k + 0.5, b = (double)to + 0.5;

		sum += theta == 1 ? log(b / a)
				  : (pow(b, 1 - theta) - pow(a, 1 - theta)) / (1 - theta);
	}
	return sum;
}

static void make_bins(struct bins *b, double theta, uint64_t n)
{
	double all = weight(theta, 0, n);
	uint64_t at = 0, width = 1;

	b->n = 0;
	while (at < n) {
		b->first[b->n] = at;
		if (b->n >= SINGLES)
			width *= 2;
		at = at + width < n ? at + width : n;
		b->first[b->n + 1] = at;
		b->p[b->n] = weight(theta, b->first[b->n], at) / all;
		b->n++;
		vb_assert(b->n < BINS_MAX);
	}
}

static unsigned bin_of(const struct bins *b, uint64_t k)
{
	unsigned i = 0;

	while (k >= b->first[i + 1])
		i++;
	return i;
}

static double chi_square(const struct vb_dist *d, const struct bins *b, unsigned draws,
			 uint64_t seed)
{
	double count[BINS_MAX] = {0}, chi = 0;
	struct vb_rng r;

	vb_rng_seed(&r, seed, 0);
	for (unsigned i = 0; i < draws; i++) {
		uint64_t k = vb_dist_next(d, &r);

		assert_true(k < d->n);
		count[bin_of(b, k)]++;
	}
	for (unsigned i = 0; i < b->n; i++) {
		double e = b->p[i] * draws;

		/* A bin that expects less than five is too small for the test; none is near that
		 * except at the tail of steep distributions, where it adds next to nothing. */
		if (e >= 5)
			chi += (count[i] - e) * (count[i] - e) / e;
	}
	return chi;
}

/* Wilson and Hilferty: chi-square beyond which p < 1e-4 (z = 3.719). */
static double critical(unsigned freedom)
{
	double k = freedom, x = 1 - 2 / (9 * k) + 3.719 * sqrt(2 / (9 * k));

	return k * x * x * x;
}

static void exact(const char *text, double theta)
{
	struct vb_dist d;
	struct bins b;
	double chi;

	assert_int_equal(vb_dist_init(&d, text, TEN_MILLION), 0);
	make_bins(&b, theta, TEN_MILLION);
	chi = chi_square(&d, &b, 2000000, 12345);
	if (chi > critical(b.n - 1))
		fail_msg("%s: chi-square %.1f with %u bins, %.1f is the limit", text, chi, b.n,
			 critical(b.n - 1));
}

static void test_rejection_is_exact(void **state)
{
	(void)state;
	exact("zipf:1", 1);
	exact("zipf:1.2", 1.2);
	exact("zipf:2", 2);
	exact("powerlaw:1.5", 1.5);
	exact("powerlaw:3", 3);
}

static void test_uniform_is_exact(void **state)
{
	(void)state;
	exact("uniform", 0);
}

/* A wrong exponent must not pass: the test can fail. */
static void test_chi_square_can_fail(void **state)
{
	struct vb_dist d;
	struct bins b;

	(void)state;
	assert_int_equal(vb_dist_init(&d, "zipf:1.2", TEN_MILLION), 0);
	make_bins(&b, 1.21, TEN_MILLION);
	assert_true(chi_square(&d, &b, 2000000, 12345) > critical(b.n - 1));
}

/* Gray's formula as it is printed: the item for a u in [0, 1). */
static uint64_t gray_item(const struct vb_dist *d, double u)
{
	double uz = u * d->zetan;
	uint64_t k;

	if (uz < 1)
		return 0;
	if (uz < 1 + pow(0.5, d->theta))
		return 1;
	k = (uint64_t)((double)d->n * pow(d->eta * u - d->eta + 1, d->alpha));
	return k < d->n ? k : d->n - 1;
}

/* The least u that gives an item >= k. */
static double gray_inverse(const struct vb_dist *d, uint64_t k)
{
	double lo = 0, hi = 1;

	for (int i = 0; i < 60; i++) {
		double mid = (lo + hi) / 2;

		if (gray_item(d, mid) >= k)
			hi = mid;
		else
			lo = mid;
	}
	return hi;
}

static double gray_distance(double theta, uint64_t n)
{
	double tv = 0;
	struct vb_dist d;
	struct bins b;
	char text[32];

	snprintf(text, sizeof(text), "zipf:%g", theta);
	assert_int_equal(vb_dist_init(&d, text, n), 0);
	assert_int_equal(d.kind, VB_DIST_ZIPF_GRAY);
	make_bins(&b, theta, n);
	for (unsigned i = 0; i < b.n; i++) {
		double p = (i + 1 < b.n ? gray_inverse(&d, b.first[i + 1]) : 1) -
			   gray_inverse(&d, b.first[i]);

		if (i < 2)
			assert_true(fabs(p - b.p[i]) < 1e-9);
		tv += fabs(p - b.p[i]) / 2;
	}
	return tv;
}

static void test_gray_within_its_bound(void **state)
{
	static const double thetas[] = {0.01, 0.2, 0.5, 0.8, 0.9, 0.99};
	static const uint64_t ns[] = {1000, 100000, TEN_MILLION};

	(void)state;
	for (unsigned t = 0; t < VB_ARRAY_SIZE(thetas); t++) {
		for (unsigned i = 0; i < VB_ARRAY_SIZE(ns); i++) {
			double tv = gray_distance(thetas[t], ns[i]);

			if (tv > 0.02)
				fail_msg("theta %g, n %llu: total variation %.4f", thetas[t],
					 (unsigned long long)ns[i], tv);
		}
	}
}

/* The generator draws what its formula says. */
static void test_gray_draws_its_formula(void **state)
{
	struct vb_rng a, b;
	struct vb_dist d;

	(void)state;
	assert_int_equal(vb_dist_init(&d, "zipf:0.99", TEN_MILLION), 0);
	vb_rng_seed(&a, 7, 7);
	vb_rng_seed(&b, 7, 7);
	for (unsigned i = 0; i < 100000; i++)
		assert_int_equal(vb_dist_next(&d, &a), gray_item(&d, vb_rng_unit(&b)));
}

static void test_probabilities_sum_to_one(void **state)
{
	static const char *const texts[] = {"uniform", "zipf:0.5", "zipf:0.99", "zipf:1",
					    "zipf:1.3"};

	(void)state;
	for (unsigned t = 0; t < VB_ARRAY_SIZE(texts); t++) {
		struct vb_dist d;
		double sum = 0;

		assert_int_equal(vb_dist_init(&d, texts[t], 200000), 0);
		for (uint64_t k = 200000; k-- > 0;)
			sum += vb_dist_probability(&d, k);
		assert_true(fabs(sum - 1) < 1e-9);
	}
}

static void test_small(void **state)
{
	static const char *const texts[] = {"uniform", "zipf:0", "zipf:0.9", "zipf:1", "zipf:3"};
	struct vb_rng r;

	(void)state;
	vb_rng_seed(&r, 3, 3);
	for (unsigned t = 0; t < VB_ARRAY_SIZE(texts); t++) {
		for (uint64_t n = 1; n <= 3; n++) {
			unsigned seen = 0;
			struct vb_dist d;

			assert_int_equal(vb_dist_init(&d, texts[t], n), 0);
			for (unsigned i = 0; i < 2000; i++) {
				uint64_t k = vb_dist_next(&d, &r);

				assert_true(k < n);
				seen |= 1u << k;
			}
			assert_int_equal(seen, (1u << n) - 1);
		}
	}
}

/* No table: the whole of it is a few numbers, and made in far less than a walk over the items. */
static void test_constant_memory(void **state)
{
	struct vb_dist d;

	(void)state;
	assert_true(sizeof(d) <= 128);
	assert_int_equal(vb_dist_init(&d, "zipf:0.99", 1ull << 40), 0);
	assert_int_equal(d.n, 1ull << 40);
}

static void test_bad_text(void **state)
{
	static const char *const texts[] = {
		"",          "normal",  "zipf",     "zipf:",      "zipf:x",     "zipf:0.9x",
		"zipf:-0.1", "zipf:11", "zipf:nan", "powerlaw:1", "powerlaw:99"};
	struct vb_dist d;
	char line[256];

	(void)state;
	for (unsigned t = 0; t < VB_ARRAY_SIZE(texts); t++) {
		vb_log_capture_begin(line, sizeof(line));
		assert_int_equal(vb_dist_init(&d, texts[t], 10), -EINVAL);
		vb_log_capture_end();
		assert_non_null(strstr(line, texts[t]));
	}
	vb_log_capture_begin(line, sizeof(line));
	assert_int_equal(vb_dist_init(&d, "uniform", 0), -EINVAL);
	vb_log_capture_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rejection_is_exact),
		cmocka_unit_test(test_uniform_is_exact),
		cmocka_unit_test(test_chi_square_can_fail),
		cmocka_unit_test(test_gray_within_its_bound),
		cmocka_unit_test(test_gray_draws_its_formula),
		cmocka_unit_test(test_probabilities_sum_to_one),
		cmocka_unit_test(test_small),
		cmocka_unit_test(test_constant_memory),
		cmocka_unit_test(test_bad_text),
	};

	return cmocka_run_group_tests_name("base dist", tests, NULL, NULL);
}
