/* SPDX-License-Identifier: Apache-2.0 */
/* Key maps beside a set that cannot be wrong, whole and torn. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "store/keymap.h"

#define KEYS 1024u

/* A map and what is in it: keys first .. first + KEYS - 1 at most. */
struct fixture {
	unsigned shift;
	uint64_t first, end; /* of the range; of what is drawn */
	uint64_t map[VB_KEYMAP_WORDS + 1];
	bool in[KEYS];
	unsigned n;
};

static void make(struct fixture *f, unsigned shift, uint64_t range)
{
	*f = (struct fixture){.shift = shift, .first = range << shift};
	f->end = f->first + (shift > VB_KEYMAP_BITS_SHIFT ? KEYS : 1u << shift) - 1;
	memset(f->map, 0xa5, sizeof(f->map));
	memset(f->map, 0, vb_keymap_bytes(shift));
}

static bool add(struct fixture *f, uint64_t key)
{
	bool *in = &f->in[key - f->first];

	f->n += !*in;
	*in = true;
	return vb_keymap_add(f->map, f->shift, key);
}

static void drop(struct fixture *f, uint64_t key)
{
	bool *in = &f->in[key - f->first];

	f->n -= *in;
	*in = false;
	vb_keymap_drop(f->map, f->shift, key);
}

/* Exactly what is in it, in order. */
static void check(const struct fixture *f, uint64_t from, uint64_t to, unsigned most)
{
	uint64_t keys[KEYS + 1];
	int n = vb_keymap_list(f->map, f->shift, from, to, keys, most), i = 0;

	for (uint64_t at = from;; at = from <= to ? at + 1 : at - 1) {
		if (f->in[at - f->first] && (unsigned)i < most) {
			assert_true(i < n);
			assert_int_equal(keys[i++], at);
		}
		if (at == to)
			break;
	}
	assert_int_equal(n, i);
}

static void check_all(const struct fixture *f, struct vb_rng *r)
{
	uint64_t width = f->end - f->first + 1;

	check(f, f->first, f->end, KEYS);
	check(f, f->end, f->first, KEYS);
	for (unsigned i = 0; i < 40; i++)
		check(f, f->first + vb_rng_below(r, width), f->first + vb_rng_below(r, width),
		      VB_KEYMAP_LIST + (unsigned)vb_rng_below(r, 80));
	/* What lies behind it is another's. */
	assert_int_equal(f->map[vb_keymap_bytes(f->shift) / 8], 0xa5a5a5a5a5a5a5a5);
}

static void bits(void **state)
{
	struct vb_rng r;

	(void)state;
	for (unsigned shift = 1; shift <= VB_KEYMAP_BITS_SHIFT; shift++) {
		struct fixture f;

		vb_rng_seed(&r, shift, 0);
		/* The last range that there is, and another. */
		for (unsigned k = 0; k < 2; k++) {
			make(&f, shift, k == 0 ? UINT64_MAX >> shift : 5);
			check_all(&f, &r);
			for (unsigned i = 0; i < 2u << shift; i++) {
				assert_true(add(&f, f.first + vb_rng_below(&r, 1u << shift)));
				if (i % 16 == 0)
					check_all(&f, &r);
			}
			for (uint64_t i = 0; i < 1u << shift; i++)
				assert_true(add(&f, f.first + i));
			check_all(&f, &r);
		}
	}
}

static void lists(void **state)
{
	static const unsigned shifts[] = {11, 31, 32};
	uint64_t keys[VB_KEYMAP_LIST];
	struct vb_rng r;

	(void)state;
	vb_rng_seed(&r, 1, 0);
	for (unsigned i = 0; i < sizeof(shifts) / sizeof(shifts[0]); i++) {
		struct fixture f;
		uint64_t one;

		make(&f, shifts[i], 3);
		check_all(&f, &r);
		while (f.n < VB_KEYMAP_LIST) {
			one = f.first + vb_rng_below(&r, KEYS);
			assert_true(add(&f, one));
			check_all(&f, &r);
			assert_true(add(&f, one));
		}
		check_all(&f, &r);
		/* One too many, of which nothing may be forgotten. */
		for (one = f.first; f.in[one - f.first]; one++)
			;
		assert_false(add(&f, one));
		assert_int_equal(
			vb_keymap_list(f.map, f.shift, f.first, f.end, keys, VB_KEYMAP_LIST),
			-E2BIG);
		assert_int_equal(
			vb_keymap_list(f.map, f.shift, f.end, f.first, keys, VB_KEYMAP_LIST),
			-E2BIG);
	}
}

/* Keys come and go, and there is always room for as many. */
static void comings_and_goings(void **state)
{
	static const unsigned shifts[] = {3, 7, 10, 11, 32};
	struct vb_rng r;

	(void)state;
	vb_rng_seed(&r, 3, 0);
	for (unsigned i = 0; i < sizeof(shifts) / sizeof(shifts[0]); i++) {
		struct fixture f;

		make(&f, shifts[i], 1);
		for (unsigned k = 0; k < 400; k++) {
			uint64_t key = f.first + vb_rng_below(&r, f.end - f.first + 1);

			if (f.n < VB_KEYMAP_LIST && vb_rng_chance(&r, 0.6))
				assert_true(add(&f, key));
			else
				drop(&f, key);
			check(&f, f.first, f.end, KEYS);
		}
		for (uint64_t key = f.first; key <= f.end; key++)
			drop(&f, key);
		check_all(&f, &r);
	}
}

/* The last key of a range of 2^32. */
static void far_apart(void **state)
{
	uint64_t map[VB_KEYMAP_WORDS] = {0}, keys[VB_KEYMAP_LIST];

	(void)state;
	assert_true(vb_keymap_add(map, 32, 7ull << 32 | UINT32_MAX));
	assert_true(vb_keymap_add(map, 32, 7ull << 32));
	assert_int_equal(
		vb_keymap_list(map, 32, 7ull << 32 | UINT32_MAX, 7ull << 32, keys, VB_KEYMAP_LIST),
		2);
	assert_true(keys[0] == (7ull << 32 | UINT32_MAX) && keys[1] == 7ull << 32);
}

/*
 * Some words of a READ are older than others, and none is older than its posting: every key that was there then is
 * found, and none that never was.
 */
static void torn(void **state)
{
	static const unsigned shifts[] = {7, 10, 12};
	struct vb_rng r;

	(void)state;
	vb_rng_seed(&r, 2, 0);
	for (unsigned i = 0; i < 3000; i++) {
		struct fixture f, then;
		uint64_t keys[KEYS];
		unsigned before = (unsigned)vb_rng_below(&r, 12);
		unsigned later = (unsigned)vb_rng_below(&r, 12), found = 0;
		int n;

		make(&f, shifts[i % 3], 1 + i);
		while (before-- > 0)
			add(&f, f.first + vb_rng_below(&r, f.end - f.first + 1));
		then = f;
		while (later-- > 0)
			add(&f, f.first + vb_rng_below(&r, f.end - f.first + 1));
		for (unsigned k = 0; k < VB_KEYMAP_WORDS; k++)
			if (vb_rng_chance(&r, 0.5))
				f.map[k] = then.map[k];
		n = vb_keymap_list(f.map, f.shift, f.first, f.end, keys, KEYS);
		if (n < 0)
			continue; /* and the owner is asked */
		for (int k = 0; k < n; k++) {
			assert_true(f.in[keys[k] - f.first]);
			found += then.in[keys[k] - f.first];
		}
		assert_int_equal(found, then.n);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bits),
		cmocka_unit_test(lists),
		cmocka_unit_test(comings_and_goings),
		cmocka_unit_test(far_apart),
		cmocka_unit_test(torn),
	};

	return cmocka_run_group_tests_name("store_keymap", tests, NULL, NULL);
}
