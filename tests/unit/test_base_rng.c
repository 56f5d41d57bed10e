/* SPDX-License-Identifier: Apache-2.0 */
/* Random streams: the published recurrence, independence of streams, ranges. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/rng.h"

/* The outputs for the state 1, 2, 3, 4, worked out by hand for the first three: s1 * 5, rotated
 * left by 7, times 9. */
static void test_recurrence(void **state)
{
	struct vb_rng r = {{1, 2, 3, 4}};

	(void)state;
	assert_int_equal(vb_rng_next(&r), (2ull * 5 << 7) * 9);
	/* s = 1,2,3,4: t = 2 << 17; s2 ^= s0: 2; s3 ^= s1: 6; s1 ^= s2: 0; s0 ^= s3: 7; s2 ^= t */
	assert_int_equal(r.s[0], 7);
	assert_int_equal(r.s[1], 0);
	assert_int_equal(r.s[2], 2ull ^ 2ull << 17);
	assert_int_equal(r.s[3], 6ull << 45);
	assert_int_equal(vb_rng_next(&r), 0);
	/* s1 was 0, and is now 0 ^ s2 ^ ... = s2 before: 2 ^ 2 << 17 ^ 7 */
	assert_int_equal(r.s[1], (2ull ^ 2ull << 17) ^ 7);
}

static void test_published_values(void **state)
{
	/* What the authors' code gives for the state 1, 2, 3, 4. */
	static const uint64_t want[] = {
		11520ull,
		0ull,
		1509978240ull,
		1215971899390074240ull,
		1216172134540287360ull,
		607988272756665600ull,
	};
	/* splitmix64 from 1234567 on. */
	static const uint64_t seeded[] = {6457827717110365317ull, 3203168211198807973ull,
					  9817491932198370423ull, 4593380528125082431ull};
	struct vb_rng r = {{1, 2, 3, 4}};

	for (size_t i = 0; i < VB_ARRAY_SIZE(want); i++)
		assert_int_equal(vb_rng_next(&r), want[i]);
	/* The stream that scrambles to splitmix64's first value from 0. */
	vb_rng_seed(&r, 1234567 ^ 0xe220a8397b1dcdafull, 0x6a09e667f3bcc909ull);
	for (size_t i = 0; i < VB_ARRAY_SIZE(seeded); i++)
		assert_int_equal(r.s[i], seeded[i]);
}

static void test_streams_differ(void **state)
{
	struct vb_rng a, b;

	(void)state;
	for (uint64_t seed = 0; seed < 50; seed++) {
		for (uint64_t stream = 0; stream < 50; stream++) {
			vb_rng_seed(&a, seed, stream);
			vb_rng_seed(&b, seed, stream);
			assert_int_equal(vb_rng_next(&a), vb_rng_next(&b));
			vb_rng_seed(&b, seed, stream + 1);
			assert_int_not_equal(vb_rng_next(&a), vb_rng_next(&b));
			vb_rng_seed(&b, seed + 1, stream);
			assert_int_not_equal(vb_rng_next(&a), vb_rng_next(&b));
		}
	}
	vb_rng_seed(&a, 0, 0);
	assert_true((a.s[0] | a.s[1] | a.s[2] | a.s[3]) != 0);
}

static void test_below(void **state)
{
	enum { N = 10, DRAWS = 100000 };
	unsigned count[N] = {0};
	double chi = 0;
	struct vb_rng r;

	(void)state;
	vb_rng_seed(&r, 42, 0);
	for (unsigned i = 0; i < DRAWS; i++) {
		uint64_t v = vb_rng_below(&r, N);

		assert_true(v < N);
		count[v]++;
	}
	for (unsigned i = 0; i < N; i++)
		chi += pow(count[i] - (double)DRAWS / N, 2) / ((double)DRAWS / N);
	/* 9 degrees of freedom: 33.7 is p = 1e-4; the seed is fixed. */
	assert_true(chi < 33.7);
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(vb_rng_below(&r, 1), 0);
}

static void test_unit(void **state)
{
	double sum = 0;
	struct vb_rng r;

	(void)state;
	vb_rng_seed(&r, 1, 2);
	for (unsigned i = 0; i < 100000; i++) {
		double u = vb_rng_unit(&r);

		assert_true(u >= 0 && u < 1);
		sum += u;
	}
	assert_true(fabs(sum / 100000 - 0.5) < 0.005);
	assert_false(vb_rng_chance(&r, 0));
	assert_true(vb_rng_chance(&r, 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_recurrence),     cmocka_unit_test(test_published_values),
		cmocka_unit_test(test_streams_differ), cmocka_unit_test(test_below),
		cmocka_unit_test(test_unit),
	};

	return cmocka_run_group_tests_name("base rng", tests, NULL, NULL);
}
