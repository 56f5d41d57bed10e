/* SPDX-License-Identifier: Apache-2.0 */
/* The histogram against HdrHistogram's published bucket formula, against sorted samples, and its
 * .hgrm text. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/hist.h"
#include "base/rng.h"

static struct vb_hist h, h2;

static int setup(void **state)
{
	vb_hist_init(&h);
	vb_hist_init(&h2);
	return 0;
}

/* HdrHistogram's getBucketIndex, getSubBucketIndex and countsArrayIndex for unit magnitude 0 and
 * subBucketHalfCountMagnitude 10. */
static void published(uint64_t v, unsigned *index, uint64_t *highest)
{
	const unsigned leading_zero_count_base = 64 - 0 - 10 - 1;
	unsigned bucket = leading_zero_count_base - (unsigned)__builtin_clzll(v | 2047);
	uint64_t sub = v >> bucket;

	*index = (unsigned)(((uint64_t)(bucket + 1) << 10) + sub - 1024);
	*highest = (sub << bucket) + (1ull << bucket) - 1;
}

static void one_value(uint64_t v)
{
	unsigned index;
	uint64_t highest;

	published(v, &index, &highest);
	vb_hist_init(&h);
	vb_hist_record(&h, v);
	assert_true(index < VB_HIST_COUNTS);
	assert_int_equal(h.counts[index], 1);
	assert_int_equal(h.total, 1);
	assert_int_equal(h.min, v);
	assert_int_equal(h.max, v);
	/* Two larger values make the percentile show the bucket's upper end. */
	vb_hist_record(&h, VB_HIST_MAX - 1);
	vb_hist_record(&h, VB_HIST_MAX - 1);
	assert_int_equal(vb_hist_percentile(&h, 33), highest);
	assert_true(highest >= v && (double)(highest - v) <= (double)v / 1000);
}

static void test_bucket_boundaries(void **state)
{
	struct vb_rng r;

	for (uint64_t v = 0; v < 100; v++)
		one_value(v);
	for (unsigned bit = 10; bit < 42; bit++) {
		uint64_t step = bit > 10 ? 1ull << (bit - 10) : 1;

		for (int64_t off = -3; off <= 3; off++)
			one_value((1ull << bit) + (uint64_t)off);
		/* Both sides of a sub-bucket's edge in the middle of the bucket. */
		one_value((1ull << bit) + 77 * step - 1);
		one_value((1ull << bit) + 77 * step);
	}
	vb_rng_seed(&r, 1, 0);
	for (unsigned i = 0; i < 300; i++)
		one_value(vb_rng_next(&r) >> (22 + vb_rng_below(&r, 42)));
	one_value(VB_HIST_MAX - 1);
}

static void test_too_large_counts_as_largest(void **state)
{
	vb_hist_record(&h, VB_HIST_MAX);
	vb_hist_record(&h, UINT64_MAX);
	assert_int_equal(h.total, 2);
	assert_int_equal(h.max, VB_HIST_MAX - 1);
	assert_int_equal(h.counts[VB_HIST_COUNTS - 1], 2);
}

static void test_empty(void **state)
{
	assert_int_equal(vb_hist_percentile(&h, 50), 0);
	assert_int_equal(vb_hist_percentile(&h, 100), 0);
	assert_true(vb_hist_mean(&h) == 0);
	vb_hist_record(&h2, 5);
	vb_hist_merge(&h2, &h);
	assert_int_equal(h2.min, 5);
	assert_int_equal(h2.total, 1);
	vb_hist_merge(&h, &h2);
	assert_int_equal(h.min, 5);
	assert_int_equal(h.max, 5);
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void test_percentiles_of_samples(void **state)
{
	enum { N = 20000 };
	static uint64_t values[N];
	static const double ps[] = {0, 0.01, 1, 25, 50, 90, 99, 99.9, 99.99, 100};
	struct vb_rng r;
	double sum = 0;

	vb_rng_seed(&r, 2, 0);
	for (unsigned i = 0; i < N; i++) {
		/* Latencies with a long tail: 200 ns to about 0.2 s. */
		values[i] = (uint64_t)(200 * exp(14 * pow(vb_rng_unit(&r), 3)));
		vb_hist_record(&h, values[i]);
		sum += (double)values[i];
	}
	qsort(values, N, sizeof(values[0]), compare);
	for (size_t i = 0; i < VB_ARRAY_SIZE(ps); i++) {
		/* Nearest rank, in integers: the percentages have two decimals. */
		uint64_t rank = ((uint64_t)llround(ps[i] * 100) * N + 9999) / 10000;
		uint64_t exact = values[rank ? rank - 1 : 0], got = vb_hist_percentile(&h, ps[i]);

		assert_true(got >= exact);
		assert_true((double)(got - exact) <= (double)exact / 1000);
	}
	assert_int_equal(vb_hist_percentile(&h, 0), values[0]);
	assert_int_equal(vb_hist_percentile(&h, 100), values[N - 1]);
	assert_true(fabs(vb_hist_mean(&h) - sum / N) < 1e-9 * sum / N);
}

/* 99.9 % of 1000 values are 999, whatever 99.9 is in binary. */
static void test_percentile_ranks(void **state)
{
	for (uint64_t v = 1; v <= 1000; v++)
		vb_hist_record(&h, v);
	for (unsigned tenth = 1; tenth <= 1000; tenth++)
		assert_int_equal(vb_hist_percentile(&h, tenth / 10.0), tenth);
}

static void test_merge(void **state)
{
	static struct vb_hist all;
	struct vb_rng r;

	vb_hist_init(&all);
	vb_rng_seed(&r, 3, 0);
	for (unsigned i = 0; i < 10000; i++) {
		uint64_t v = vb_rng_next(&r) >> (24 + vb_rng_below(&r, 38));

		vb_hist_record(i % 3 ? &h : &h2, v);
		vb_hist_record(&all, v);
	}
	vb_hist_merge(&h, &h2);
	assert_int_equal(h.total, all.total);
	assert_int_equal(h.min, all.min);
	assert_int_equal(h.max, all.max);
	assert_memory_equal(h.counts, all.counts, sizeof(h.counts));
	assert_true(fabs(vb_hist_mean(&h) / vb_hist_mean(&all) - 1) < 1e-12);
}

static char *hgrm(const struct vb_hist *from, double scale)
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	assert_non_null(f);
	vb_hist_print_hgrm(from, f, scale);
	assert_int_equal(fclose(f), 0);
	return text;
}

static void test_hgrm_text(void **state)
{
	char *text;

	for (uint64_t v = 1; v <= 4; v++)
		vb_hist_record(&h, v * 1000);
	text = hgrm(&h, 1000);
	/* 3000 and 3001 are one count.  Steps of a tenth to the half, then of a twentieth; once all
	 * are counted, one last line. */
	assert_string_equal(text, "       Value     Percentile TotalCount 1/(1-Percentile)\n\n"
				  "       1.000 0.000000000000          1           1.00\n"
				  "       1.000 0.100000000000          1           1.11\n"
				  "       1.000 0.200000000000          1           1.25\n"
				  "       2.000 0.300000000000          2           1.43\n"
				  "       2.000 0.400000000000          2           1.67\n"
				  "       2.000 0.500000000000          2           2.00\n"
				  "       3.001 0.550000000000          3           2.22\n"
				  "       3.001 0.600000000000          3           2.50\n"
				  "       3.001 0.650000000000          3           2.86\n"
				  "       3.001 0.700000000000          3           3.33\n"
				  "       3.001 0.750000000000          3           4.00\n"
				  "       4.000 1.000000000000          4\n"
				  "#[Mean    =        2.500, StdDeviation   =        1.118]\n"
				  "#[Max     =        4.000, Total count    =            4]\n"
				  "#[Buckets =           32, SubBuckets     =         2048]\n");
	free(text);
}

static void test_hgrm_of_many(void **state)
{
	double value, percentile, before = 0, value_before = 0;
	unsigned long long count, count_before = 0;
	struct vb_rng r;
	char *text, *line, *save = NULL;
	unsigned lines = 0;

	vb_rng_seed(&r, 4, 0);
	for (unsigned i = 0; i < 100000; i++)
		vb_hist_record(&h, (uint64_t)(-1e6 * log(1 - vb_rng_unit(&r))));
	text = hgrm(&h, 1000);
	line = strtok_r(text, "\n", &save);
	assert_non_null(strstr(line, "Percentile"));
	while ((line = strtok_r(NULL, "\n", &save)) && line[0] != '#') {
		assert_int_equal(sscanf(line, "%lf %lf %llu", &value, &percentile, &count), 3);
		assert_true(value >= value_before && percentile >= before && count >= count_before);
		/* So many really are no greater. */
		assert_true((double)count >= percentile * 100000 - 1e-6);
		value_before = value;
		before = percentile;
		count_before = count;
		lines++;
	}
	assert_int_equal(count_before, 100000);
	assert_true(before == 1);
	/* Five to each of the 16 or 17 halvings of 100,000. */
	assert_in_range(lines, 70, 95);
	free(text);
}

static void test_hgrm_of_nothing(void **state)
{
	char *text = hgrm(&h, 1000);

	assert_non_null(strstr(text, "Total count    =            0"));
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_bucket_boundaries, setup),
		cmocka_unit_test_setup(test_too_large_counts_as_largest, setup),
		cmocka_unit_test_setup(test_empty, setup),
		cmocka_unit_test_setup(test_percentiles_of_samples, setup),
		cmocka_unit_test_setup(test_percentile_ranks, setup),
		cmocka_unit_test_setup(test_merge, setup),
		cmocka_unit_test_setup(test_hgrm_text, setup),
		cmocka_unit_test_setup(test_hgrm_of_many, setup),
		cmocka_unit_test_setup(test_hgrm_of_nothing, setup),
	};

	return cmocka_run_group_tests_name("base hist", tests, NULL, NULL);
}
