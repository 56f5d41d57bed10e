/* SPDX-License-Identifier: Apache-2.0 */
/* The histogram against sorted arrays and against HdrHistogram's layout. */
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

static struct vb_hist a, b;

/* HdrHistogram's index for 3 digits, by its published rule: the bucket is the number of doublings
 * above 2048 that hold the value, the sub-bucket the value's upper 11 bits, and from the second
 * bucket on only the upper half of the sub-buckets is stored. */
static unsigned layout(uint64_t v)
{
	unsigned bucket = 0;

	while (v >> bucket >= 2048)
		bucket++;
	return bucket == 0 ? (unsigned)v
			   : 2048 + (bucket - 1) * 1024 + (unsigned)(v >> bucket) - 1024;
}

static void test_layout(void **state)
{
	struct vb_rng r;

	(void)state;
	vb_rng_seed(&r, 5, 5);
	for (unsigned i = 0; i < 1000; i++) {
		uint64_t v = vb_rng_next(&r) >> (22 + vb_rng_below(&r, 42));

		vb_hist_init(&a);
		vb_hist_record(&a, v);
		assert_int_equal(a.total, 1);
		assert_int_equal(a.counts[layout(v)], 1);
	}
	/* Boundaries. */
	for (unsigned bit = 0; bit < 42; bit++) {
		for (int d = -1; d <= 1; d++) {
			uint64_t v = (1ull << bit) + (uint64_t)d;

			if (v >= VB_HIST_MAX)
				continue;
			vb_hist_init(&a);
			vb_hist_record(&a, v);
			assert_int_equal(a.counts[layout(v)], 1);
		}
	}
}

static int compare(const void *x, const void *y)
{
	uint64_t p = *(const uint64_t *)x, q = *(const uint64_t *)y;

	return p < q ? -1 : p > q;
}

static void test_percentiles(void **state)
{
	enum { N = 20000 };
	static const double ps[] = {0, 1, 10, 25, 50, 75, 90, 99, 99.9, 99.99, 100};
	static uint64_t sorted[N];
	double sum = 0;
	struct vb_rng r;

	(void)state;
	vb_hist_init(&a);
	vb_rng_seed(&r, 9, 1);
	for (unsigned i = 0; i < N; i++) {
		sorted[i] = (uint64_t)exp(vb_rng_unit(&r) * 20);
		vb_hist_record(&a, sorted[i]);
		sum += (double)sorted[i];
	}
	qsort(sorted, N, sizeof(sorted[0]), compare);
	assert_int_equal(a.total, N);
	assert_int_equal(a.min, sorted[0]);
	assert_int_equal(a.max, sorted[N - 1]);
	assert_true(fabs(vb_hist_mean(&a) - sum / N) < 1e-6 * sum / N);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(ps); i++) {
		unsigned rank = (unsigned)ceil(ps[i] / 100 * N - 1e-6);
		double exact = (double)sorted[rank ? rank - 1 : 0];
		double got = (double)vb_hist_percentile(&a, ps[i]);

		/* The highest equivalent value: never below, and at most 1 part in 1024 above. */
		assert_true(got >= exact && got <= exact * (1 + 1.0 / 1024) + 1);
	}
}

static void test_empty_and_clamped(void **state)
{
	(void)state;
	vb_hist_init(&a);
	assert_int_equal(vb_hist_percentile(&a, 50), 0);
	assert_true(vb_hist_mean(&a) == 0);
	vb_hist_record(&a, UINT64_MAX);
	assert_int_equal(a.total, 1);
	assert_int_equal(a.max, VB_HIST_MAX - 1);
	vb_hist_record(&a, 0);
	assert_int_equal(a.min, 0);
	assert_int_equal(vb_hist_percentile(&a, 0), 0);
}

static void test_merge(void **state)
{
	(void)state;
	vb_hist_init(&a);
	vb_hist_init(&b);
	for (uint64_t v = 1; v <= 1000; v++)
		vb_hist_record(v % 2 ? &a : &b, v * 1000);
	vb_hist_merge(&a, &b);
	assert_int_equal(a.total, 1000);
	assert_int_equal(a.min, 1000);
	assert_int_equal(a.max, 1000000);
	assert_true(fabs(vb_hist_mean(&a) - 500500) < 1);
	assert_true(llabs((long long)vb_hist_percentile(&a, 50) - 500000) < 1000);
	/* An empty one changes nothing, its empty minimum least of all. */
	vb_hist_init(&b);
	vb_hist_merge(&a, &b);
	assert_int_equal(a.total, 1000);
	assert_int_equal(a.min, 1000);
}

static void test_hgrm(void **state)
{
	char *text = NULL, *line, *save = NULL;
	double last_value = -1, last_p = -1;
	unsigned rows = 0;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	(void)state;
	vb_hist_init(&a);
	for (uint64_t v = 1; v <= 10000; v++)
		vb_hist_record(&a, v);
	vb_hist_print_hgrm(&a, f, 1000);
	fclose(f);
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		double value, p;
		unsigned long long count;

		if (sscanf(line, "%lf %lf %llu", &value, &p, &count) != 3)
			continue;
		assert_true(value >= last_value && p > last_p && count <= 10000);
		assert_true(value * 1000 >= p * 10000 - 1);
		last_value = value;
		last_p = p;
		rows++;
	}
	assert_true(last_p == 1 && last_value == 10);
	assert_true(rows > 30 && rows < 200);
	free(text);
	f = open_memstream(&text, &size);
	vb_hist_print_hgrm(&a, f, 1);
	fclose(f);
	assert_non_null(strstr(text, "Total count    =        10000]"));
	assert_non_null(strstr(text, "#[Mean    ="));
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layout),
		cmocka_unit_test(test_percentiles),
		cmocka_unit_test(test_empty_and_clamped),
		cmocka_unit_test(test_merge),
		cmocka_unit_test(test_hgrm),
	};

	return cmocka_run_group_tests_name("base hist", tests, NULL, NULL);
}
