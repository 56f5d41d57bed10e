/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ConnectX without a card: the work requests of its extended atomics byte by byte, their results in
 * both orders, and what a card says of itself.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "vb_config.h"

#if !VB_HAVE_MLX5DV

static void mlx5(void **state)
{
	(void)state;
	print_message("built without the headers of mlx5dv (Debian: libibverbs-dev)\n");
	skip();
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(mlx5)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

#include <endian.h>

#include "fabric/cpu.h"
#include "fabric/verbs/mlx5_wqe.h"

#define QPN 0x123456u

/* A request whose every byte can be told from every other. */
static struct verbs_ext_wr example(uint8_t op)
{
	return (struct verbs_ext_wr){
		.op = op,
		.wr_id = 77,
		.remote = 0x0102030405060708,
		.rkey = 0x090a0b0c,
		.lkey = 0x0d0e0f10,
		.result = (void *)(uintptr_t)0x1112131415161718,
		.compare = {.lo = 0x2021222324252627, .hi = 0x28292a2b2c2d2e2f},
		.compare_mask = {.lo = 0xb0b1b2b3b4b5b6b7, .hi = 0xb8b9babbbcbdbebf},
		.swap = {.lo = 0x4041424344454647, .hi = 0x48494a4b4c4d4e4f},
		.swap_mask = {.lo = 0x5051525354555657, .hi = 0x58595a5b5c5d5e5f},
	};
}

static void expect_bytes(const struct verbs_ext_wr *wr, const uint8_t *bytes, size_t n)
{
	uint8_t wqe[VERBS_MLX5_WQE_MAX + 16];

	memset(wqe, 0xee, sizeof(wqe));
	assert_int_equal(verbs_mlx5_encode(wr, QPN, wqe), n);
	assert_memory_equal(wqe, bytes, n);
	for (size_t i = n; i < sizeof(wqe); i++)
		assert_int_equal(wqe[i], 0xee);
}

#define REMOTE 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0, 0, 0, 0
#define DATA(size)                                                                                 \
	0, 0, 0, size, 0x0d, 0x0e, 0x0f, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18
#define WORD(base) base, base + 1, base + 2, base + 3, base + 4, base + 5, base + 6, base + 7

static void bytes_of_mcas64(void **state)
{
	static const uint8_t want[80] = {
		0x09,   0,          0,          0x14,       0x12,       0x34,    0x56, 5,
		0,      0,          0,          0x00,       0,          0,       0,    0,
		REMOTE, WORD(0x40), WORD(0x20), WORD(0x50), WORD(0xb0), DATA(8),
	};
	struct verbs_ext_wr wr = example(VB_OP_MCAS64);

	(void)state;
	expect_bytes(&wr, want, sizeof(want));
}

static void bytes_of_mfaa64(void **state)
{
	static const uint8_t want[64] = {
		0x09, 0,    0, 0x15, 0x12, 0x34, 0x56,   4,          0,          0,
		0,    0x00, 0, 0,    0,    0,    REMOTE, WORD(0x20), WORD(0xb0), DATA(8),
	};
	struct verbs_ext_wr wr = example(VB_OP_MFAA64);

	(void)state;
	expect_bytes(&wr, want, sizeof(want));
}

static void bytes_of_mcas128(void **state)
{
	static const uint8_t want[112] = {
		0x0a,       0,          0,          0x14,       0x12,       0x34,       0x56,
		7,          0,          0,          0,          0x00,       0,          0,
		0,          0,          REMOTE,     WORD(0x40), WORD(0x48), WORD(0x20), WORD(0x28),
		WORD(0x50), WORD(0x58), WORD(0xb0), WORD(0xb8), DATA(16),
	};
	struct verbs_ext_wr wr = example(VB_OP_MCAS128);

	(void)state;
	expect_bytes(&wr, want, sizeof(want));
	assert_int_equal(sizeof(want), VERBS_MLX5_WQE_MAX);
}

static void bytes_of_mfaa128(void **state)
{
	static const uint8_t want[80] = {
		0x0a,   0,          0,          0x15,       0x12,       0x34,     0x56, 5,
		0,      0,          0,          0x00,       0,          0,        0,    0,
		REMOTE, WORD(0x20), WORD(0x28), WORD(0xb0), WORD(0xb8), DATA(16),
	};
	struct verbs_ext_wr wr = example(VB_OP_MFAA128);

	(void)state;
	expect_bytes(&wr, want, sizeof(want));
}

/* The card's adder is 64 bits wide: a field across the words must be refused, not done wrongly. */
static void wide_field_is_refused(void **state)
{
	struct verbs_ext_wr wr = example(VB_OP_MFAA128);
	uint8_t wqe[VERBS_MLX5_WQE_MAX];

	(void)state;
	wr.compare_mask.lo = ~(1ull << 63);
	assert_int_equal(verbs_mlx5_encode(&wr, QPN, wqe), 0);
	wr.compare_mask = (struct vb_u128){.lo = 1ull << 63};
	assert_int_equal(verbs_mlx5_encode(&wr, QPN, wqe), 80);
	/* In one word there is nothing to span. */
	wr.op = VB_OP_MFAA64;
	wr.compare_mask.lo = 0;
	assert_int_equal(verbs_mlx5_encode(&wr, QPN, wqe), 64);
}

static void flags(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		struct verbs_ext_wr wr = example(VB_OP_MCAS64);
		uint8_t wqe[VERBS_MLX5_WQE_MAX];

		wr.signalled = i & 1;
		wr.fence = i & 2;
		verbs_mlx5_encode(&wr, QPN, wqe);
		assert_int_equal(wqe[11], (i & 1 ? 0x08 : 0) | (i & 2 ? 0x80 : 0));
		assert_int_equal(wqe[8] | wqe[9] | wqe[10], 0);
	}
}

static void masks_at_both_ends(void **state)
{
	struct verbs_ext_wr wr = {
		.op = VB_OP_MCAS128,
		.compare_mask = {.lo = 1, .hi = 1ull << 63},
		.swap_mask = {.lo = 1ull << 63, .hi = 1},
	};
	uint8_t wqe[VERBS_MLX5_WQE_MAX], want[32] = {0};

	(void)state;
	want[0] = 0x80, want[15] = 0x01;  /* swap mask: top of lo, bottom of hi */
	want[23] = 0x01, want[24] = 0x80; /* compare mask: bottom of lo, top of hi */
	verbs_mlx5_encode(&wr, QPN, wqe);
	assert_memory_equal(wqe + 64, want, 32);
	/* The highest number of a queue pair does not reach the count of segments, nor it that. */
	verbs_mlx5_encode(&wr, 0xffffff, wqe);
	assert_memory_equal(wqe + 4, "\xff\xff\xff\x07", 4);
}

static void results_in_both_orders(void **state)
{
	/* Not aligned: the bytes count, not where they stand. */
	static const uint8_t bytes[] = {0,    0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08,
					0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18};
	const void *at = bytes + 1;
	uint64_t native;
	struct vb_u128 v;

	(void)state;
	memcpy(&native, at, 8);
	for (unsigned add = 0; add < 2; add++) {
		uint8_t narrow = add ? VB_OP_MFAA64 : VB_OP_MCAS64;
		uint8_t wide = add ? VB_OP_MFAA128 : VB_OP_MCAS128;

		v = verbs_mlx5_decode(narrow, at, true);
		assert_int_equal(v.lo, 0x0102030405060708);
		assert_int_equal(v.hi, 0);
		v = verbs_mlx5_decode(narrow, at, false);
		assert_int_equal(v.lo, native);
		assert_int_equal(v.hi, 0);
		for (unsigned be = 0; be < 2; be++) {
			v = verbs_mlx5_decode(wide, at, be);
			assert_int_equal(v.lo, 0x0102030405060708);
			assert_int_equal(v.hi, 0x1112131415161718);
		}
	}
}

/* ---- a card on paper: takes the bytes apart, does it, answers ---- */

static uint64_t be64_at(const uint8_t *at)
{
	uint64_t v;

	memcpy(&v, at, 8);
	return be64toh(v);
}

static void card(const uint8_t *wqe, struct vb_u128 *memory, uint8_t *result, bool be64)
{
	bool wide = (wqe[0] & 7) == 2, add = wqe[3] == 0x15;
	unsigned words = wide ? 2 : 1;
	uint64_t *m = &memory->lo, old[2];
	bool match = true;

	assert_int_equal(wqe[0] >> 3, 1);
	for (unsigned i = 0; i < words; i++) {
		old[i] = m[i];
		if (!add) {
			uint64_t compare = be64_at(wqe + 32 + 8 * (words + i));
			uint64_t mask = be64_at(wqe + 32 + 8 * (3 * words + i));

			match &= ((old[i] ^ compare) & mask) == 0;
		}
	}
	for (unsigned i = 0; i < words; i++) {
		uint64_t first = be64_at(wqe + 32 + 8 * i);

		if (add) {
			uint64_t bounds = be64_at(wqe + 32 + 8 * (words + i)), carry = 0, sum = 0;

			for (unsigned bit = 0; bit < 64; bit++) {
				uint64_t s = (old[i] >> bit & 1) + (first >> bit & 1) + carry;

				sum |= (s & 1) << bit;
				carry = bounds >> bit & 1 ? 0 : s >> 1;
			}
			m[i] = sum;
		} else if (match) {
			uint64_t mask = be64_at(wqe + 32 + 8 * (2 * words + i));

			m[i] = (old[i] & ~mask) | (first & mask);
		}
		old[i] = wide || be64 ? htobe64(old[i]) : old[i];
	}
	memcpy(result, old, 8 * words);
}

/* Any extended atomic through the bytes does what the CPU does, and says what was there. */
static void card_agrees_with_cpu(void **state)
{
	static const uint8_t ops[] = {VB_OP_MCAS64, VB_OP_MFAA64, VB_OP_MCAS128, VB_OP_MFAA128};
	struct vb_rng rng;

	(void)state;
	vb_rng_seed(&rng, 1, 2);
	for (unsigned i = 0; i < 20000; i++) {
		struct vb_u128 a
			__attribute__((aligned(16))) = {vb_rng_next(&rng), vb_rng_next(&rng)};
		struct vb_u128 b __attribute__((aligned(16))) = a;
		bool be64 = i & 1;
		struct verbs_ext_wr wr = {.op = ops[vb_rng_below(&rng, 4)]};
		struct vb_verb v = {.op = wr.op};
		uint8_t wqe[VERBS_MLX5_WQE_MAX], result[16] = {0};

		wr.compare = (struct vb_u128){vb_rng_next(&rng), vb_rng_next(&rng)};
		wr.compare_mask = (struct vb_u128){vb_rng_next(&rng), vb_rng_next(&rng)};
		wr.swap = (struct vb_u128){vb_rng_next(&rng), vb_rng_next(&rng)};
		wr.swap_mask = (struct vb_u128){vb_rng_next(&rng), vb_rng_next(&rng)};
		/* Half of the comparisons hold. */
		if (i & 2)
			wr.compare = a;
		if (wr.op == VB_OP_MFAA128)
			wr.compare_mask.lo |= 1ull << 63;
		v.compare = wr.compare;
		v.compare_mask = wr.compare_mask;
		v.swap = wr.swap;
		v.swap_mask = wr.swap_mask;

		assert_int_not_equal(verbs_mlx5_encode(&wr, QPN, wqe), 0);
		card(wqe, &a, result, be64);
		cpu_atomic(&v, &b);
		assert_true(vb_u128_eq(a, b));
		assert_true(vb_u128_eq(verbs_mlx5_decode(wr.op, result, be64), v.old));
	}
}

/* ---- what a card says of itself ---- */

static void fill_answer(uint8_t *out, uint8_t mode, uint16_t ops, uint16_t sizes)
{
	memset(out, 0, VERBS_MLX5_QUERY_OUT);
	out[16 + 8] = (uint8_t)(mode << 6);
	out[16 + 18] = (uint8_t)(ops >> 8), out[16 + 19] = (uint8_t)ops;
	out[16 + 22] = (uint8_t)(sizes >> 8), out[16 + 23] = (uint8_t)sizes;
	out[16 + 26] = 0x01, out[16 + 27] = 0x08;
}

static void capabilities(void **state)
{
	static const uint8_t query[VERBS_MLX5_QUERY_IN] = {0x01, 0x00, 0, 0, 0, 0, 0, 0x07};
	static uint8_t out[VERBS_MLX5_QUERY_OUT];
	struct verbs_mlx5_atomics a;
	uint8_t in[VERBS_MLX5_QUERY_IN];

	(void)state;
	verbs_mlx5_query(in);
	assert_memory_equal(in, query, sizeof(in));

	/* As a ConnectX-5 under Linux: 4 to 32 bytes, 8-byte answers in the host's order. */
	fill_answer(out, 1, 0xf, 0x3c);
	assert_int_equal(verbs_mlx5_answer(out, &a), 0);
	assert_true(a.cas && a.faa && a.masked_cas && a.masked_faa && !a.be64);
	assert_int_equal(a.sizes_qp, 0x3c);
	assert_int_equal(a.sizes_dc, 0x108);
	assert_int_equal(verbs_mlx5_caps(&a), VB_CAP_MASKED64 | VB_CAP_MASKED128);
	fill_answer(out, 0, 0xf, 0x0c);
	assert_int_equal(verbs_mlx5_answer(out, &a), 0);
	assert_true(a.be64);
	assert_int_equal(verbs_mlx5_caps(&a), VB_CAP_MASKED64);
	fill_answer(out, 1, 0xf, 0x10);
	verbs_mlx5_answer(out, &a);
	assert_int_equal(verbs_mlx5_caps(&a), VB_CAP_MASKED128);
	/* One of the two alone is no use. */
	for (uint16_t ops = 0; ops < 15; ops++) {
		fill_answer(out, 1, ops, 0x3c);
		verbs_mlx5_answer(out, &a);
		assert_int_equal(verbs_mlx5_caps(&a) != 0, (ops & 12) == 12);
	}
	fill_answer(out, 1, 0xf, 0x3c);
	out[0] = 3; /* a status */
	assert_int_equal(verbs_mlx5_answer(out, &a), -EIO);
	assert_int_equal(verbs_mlx5_caps(&a), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_of_mcas64),       cmocka_unit_test(bytes_of_mfaa64),
		cmocka_unit_test(bytes_of_mcas128),      cmocka_unit_test(bytes_of_mfaa128),
		cmocka_unit_test(wide_field_is_refused), cmocka_unit_test(flags),
		cmocka_unit_test(masks_at_both_ends),    cmocka_unit_test(results_in_both_orders),
		cmocka_unit_test(card_agrees_with_cpu),  cmocka_unit_test(capabilities),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
