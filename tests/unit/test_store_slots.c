/* SPDX-License-Identifier: Apache-2.0 */
/* Where the words, versions and records of a tuple lie, with one slot and with several. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "store/store.h"

static void one_slot(void **state)
{
	struct vb_tuple_layout l;

	(void)state;
	vb_tuple_layout_init(&l, 64, 1, 56);
	assert_int_equal(l.lock_at, 16 + 64);
	assert_int_equal(l.version_at, l.lock_at + 8);
	assert_int_equal(l.seal_at, l.lock_at + 16);
	assert_int_equal(l.record_at, l.lock_at + 24);
	assert_int_equal(l.one_bytes, l.record_at + 56);
	assert_int_equal(l.bytes, l.one_bytes);
	assert_int_equal(l.blind_bytes, l.record_at);
}

/* Each has its own words and record, aligned, and the last one ends where the tuple does. */
static void several_slots(void **state)
{
	static const uint32_t records[] = {1, 8, 13, 64, 1000};
	unsigned char tuple[VB_SLOTS_MAX * 1100];
	struct vb_tuple_layout l;

	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(records); i++) {
		for (unsigned slots = 2; slots <= VB_SLOTS_MAX; slots++) {
			uint32_t end;

			vb_tuple_layout_init(&l, 16, slots, records[i]);
			end = l.version_at;
			for (unsigned k = 0; k < slots; k++) {
				uint32_t behind = vb_slot_behind(&l, k);

				assert_true(l.version_at + behind >= end);
				assert_int_equal((l.version_at + behind) % 8, 0);
				end = l.record_at + behind + records[i];
			}
			assert_int_equal(end, l.bytes);
			assert_true(l.stride >= l.bytes && l.blind_bytes == l.bytes);
			assert_true(l.bytes <= sizeof(tuple));
		}
	}
}

static void newest(void **state)
{
	unsigned char tuple[512] = {0};
	struct vb_tuple_layout l;

	(void)state;
	vb_tuple_layout_init(&l, 16, 4, 24);
	assert_int_equal(vb_tuple_newest(&l, tuple), 0);
	for (unsigned i = 0; i < 9; i++) {
		vb_tuple_set_word(tuple, l.version_at + vb_slot_behind(&l, i % 4), 100 + 4 * i);
		assert_int_equal(vb_tuple_newest(&l, tuple), i % 4);
		assert_int_equal(vb_slot_version(&l, tuple, i % 4), 100 + 4 * i);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_slot),
		cmocka_unit_test(several_slots),
		cmocka_unit_test(newest),
	};

	return cmocka_run_group_tests_name("store_slots", tests, NULL, NULL);
}
