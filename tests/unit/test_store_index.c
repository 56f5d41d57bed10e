/* SPDX-License-Identifier: Apache-2.0 */
/* The cuckoo index at its owner, on plain memory, beside a model that cannot be wrong: an array
 * that says of each key where its tuple is. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "store/store.h"

#define SEGMENT  (4u << 20)
#define INDEX_AT 4096u /* not 0, which means that there is none */
#define KEYS     2048u

/* An index, the memory that it may take, and what should be in it. */
struct fixture {
	_Alignas(16) struct vb_table_header header;
	struct vb_index index;
	char *segment;
	uint64_t used;
	unsigned mores; /* how often `more` still has something to give */
	uint64_t asked_slots, asked_generation;
	uint64_t offset[KEYS]; /* of the key with that number; 0: none */
	unsigned present;
	struct vb_rng rng;
};

/* Keys with all their bits in use, and never 0 to be told from an empty slot. */
static uint64_t key_of(unsigned number)
{
	return (number + 1) * 0x9e3779b97f4a7c15ull;
}

static uint64_t more(void *ctx, uint64_t generation, uint64_t slots)
{
	struct fixture *f = ctx;
	uint64_t at = f->used, bytes = slots * sizeof(struct vb_slot);

	f->asked_slots = slots;
	f->asked_generation = generation;
	if (f->mores == 0 || at + bytes > SEGMENT)
		return 0;
	f->mores--;
	f->used += bytes;
	return at;
}

static struct fixture *make(uint64_t slots, unsigned mores, uint64_t seed)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	f->segment = calloc(1, SEGMENT);
	assert_non_null(f->segment);
	f->header.index_at = INDEX_AT;
	f->header.slots = slots;
	f->used = INDEX_AT + slots * sizeof(struct vb_slot);
	f->mores = mores;
	f->index = (struct vb_index){
		.header = &f->header, .segment = f->segment, .more = more, .ctx = f};
	vb_rng_seed(&f->rng, seed, 0);
	return f;
}

static void drop(struct fixture *f)
{
	free(f->segment);
	free(f);
}

static const struct vb_slot *slots_of(const struct fixture *f)
{
	return (const struct vb_slot *)(f->segment + f->header.index_at);
}

/* As a reader from afar looks for it: the way that has it, or VB_INDEX_WAYS. */
static unsigned way_of(const struct fixture *f, uint64_t key, uint64_t *offset)
{
	for (unsigned way = 0; way < VB_INDEX_WAYS; way++) {
		uint64_t at = vb_index_slot_of(key, way, f->header.slots);

		assert_true(at < f->header.slots);
		*offset = vb_index_match(&slots_of(f)[at], key);
		if (*offset != 0)
			return way;
	}
	return VB_INDEX_WAYS;
}

static void check_key(const struct fixture *f, unsigned number)
{
	uint64_t expected = f->offset[number], got;

	assert_int_equal(vb_index_find(&f->index, key_of(number)), expected);
	assert_int_equal(way_of(f, key_of(number), &got) < VB_INDEX_WAYS, expected != 0);
	assert_int_equal(got, expected);
}

/* All keys are there, each once, and nothing else is. */
static void check_all(const struct fixture *f, unsigned keys)
{
	unsigned taken = 0;

	for (unsigned i = 0; i < keys; i++)
		check_key(f, i);
	for (uint64_t i = 0; i < f->header.slots; i++)
		taken += slots_of(f)[i].ref != 0;
	assert_int_equal(taken, f->present);
	assert_int_equal(f->header.keys, f->present);
	assert_int_equal(f->header.moves & 1, 0);
}

static int insert(struct fixture *f, unsigned number, uint64_t offset)
{
	int err = vb_index_insert(&f->index, key_of(number), offset);

	if (f->offset[number] != 0) {
		assert_int_equal(err, -EEXIST);
	} else if (err == 0) {
		f->offset[number] = offset;
		f->present++;
	} else {
		assert_int_equal(err, -ENOSPC);
	}
	return err;
}

static bool delete (struct fixture *f, unsigned number)
{
	bool was = f->offset[number] != 0;

	assert_int_equal(vb_index_delete(&f->index, key_of(number)), was);
	f->offset[number] = 0;
	f->present -= was;
	return was;
}

/* Offsets with the highest bit that they have, too. */
static uint64_t any_offset(struct fixture *f)
{
	return 1 + vb_rng_below(&f->rng, (1ull << VB_ADDR_OFFSET_BITS) - 1);
}

/* ---- slots ---- */

static void matching(void **state)
{
	uint64_t largest = (1ull << VB_ADDR_OFFSET_BITS) - 1;
	struct vb_slot s = {0};

	assert_int_equal(vb_index_match(&s, 0), 0);
	assert_int_equal(vb_index_match(&s, 7), 0);
	s = (struct vb_slot){.key = 7, .ref = vb_index_ref(7, 64)};
	assert_int_equal(vb_index_match(&s, 7), 64);
	assert_int_equal(vb_index_match(&s, 8), 0);
	s = (struct vb_slot){.key = 0, .ref = vb_index_ref(0, 64)};
	assert_int_equal(vb_index_match(&s, 0), 64);
	s = (struct vb_slot){.key = UINT64_MAX, .ref = vb_index_ref(UINT64_MAX, largest)};
	assert_int_equal(vb_index_match(&s, UINT64_MAX), largest);
	assert_int_equal(vb_index_ref(7, largest) & largest, largest);
}

/* Half of one key's slot and half of another's: one in 2^16 may pass, and the tuple's key is for
 * that. */
static void mixtures_are_found_out(void **state)
{
	unsigned passed = 0, tries = 1u << 18;
	struct vb_rng rng;

	vb_rng_seed(&rng, 1, 0);
	for (unsigned i = 0; i < tries; i++) {
		/* Keys and offsets that are close, as a table's are. */
		uint64_t one = vb_rng_below(&rng, 1000), two = one + 1 + vb_rng_below(&rng, 1000);
		uint64_t offset = 128 + 96 * vb_rng_below(&rng, 100000);
		struct vb_slot mixed = {.key = one, .ref = vb_index_ref(two, offset)};

		passed += vb_index_match(&mixed, one) != 0;
		assert_int_equal(vb_index_match(&mixed, two), 0);
	}
	/* 4 are expected. */
	assert_in_range(passed, 0, 16);
}

static void every_slot_is_used(void **state)
{
	unsigned hits[97] = {0};

	for (uint64_t key = 0; key < 9700; key++)
		for (unsigned way = 0; way < VB_INDEX_WAYS; way++) {
			uint64_t at = vb_index_slot_of(key, way, 97);

			assert_true(at < 97);
			hits[at]++;
		}
	/* 300 each, and about 17 more or less. */
	for (unsigned i = 0; i < 97; i++)
		assert_in_range(hits[i], 200, 400);
}

/* ---- operations ---- */

static void one_key(void **state)
{
	struct fixture *f = make(64, 0, 1);

	check_all(f, 4);
	assert_false(delete (f, 1));
	assert_int_equal(insert(f, 1, 4096), 0);
	check_all(f, 4);
	assert_int_equal(insert(f, 1, 8192), -EEXIST);
	check_all(f, 4);
	assert_true(delete (f, 1));
	assert_false(delete (f, 1));
	check_all(f, 4);
	assert_int_equal(insert(f, 1, 8192), 0);
	check_all(f, 4);
	drop(f);
}

/* An owner died between the two stores of a move: the key is in two slots, and `moves` is odd. */
static void owner_died(void **state)
{
	struct fixture *f = make(64, 0, 1);
	struct vb_slot *slots;
	unsigned other;
	uint64_t offset;

	assert_int_equal(insert(f, 1, 4096), 0);
	slots = (struct vb_slot *)(f->segment + f->header.index_at);
	other = (way_of(f, key_of(1), &offset) + 1) % VB_INDEX_WAYS;
	slots[vb_index_slot_of(key_of(1), other, 64)] =
		(struct vb_slot){.key = key_of(1), .ref = vb_index_ref(key_of(1), offset)};
	f->header.moves = 7;
	vb_index_repair(&f->index);
	assert_int_equal(f->header.moves, 8);
	vb_index_repair(&f->index);
	assert_int_equal(f->header.moves, 8);
	assert_int_equal(vb_index_find(&f->index, key_of(1)), 4096);
	assert_true(delete (f, 1));
	check_all(f, 4);
	drop(f);
}

/* The key 0 is one like any other: what is empty is told by ref. */
static void key_zero(void **state)
{
	struct fixture *f = make(8, 0, 1);

	assert_int_equal(vb_index_find(&f->index, 0), 0);
	assert_false(vb_index_delete(&f->index, 0));
	assert_int_equal(vb_index_insert(&f->index, 0, 32), 0);
	assert_int_equal(vb_index_find(&f->index, 0), 32);
	assert_int_equal(vb_index_insert(&f->index, 0, 32), -EEXIST);
	assert_true(vb_index_delete(&f->index, 0));
	assert_int_equal(vb_index_find(&f->index, 0), 0);
	drop(f);
}

static void full_to_nine_tenths(void **state)
{
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct fixture *f = make(2048, 0, seed);
		unsigned first = (unsigned)vb_rng_below(&f->rng, KEYS);

		for (unsigned n = 0; n < 2048 * 9 / 10; n++) {
			assert_int_equal(insert(f, (first + n) % KEYS, any_offset(f)), 0);
			if (n % 128 == 0)
				check_all(f, KEYS);
		}
		check_all(f, KEYS);
		assert_int_not_equal(f->index.kicks, 0);
		/* Each row of moves is announced and its end told. */
		assert_in_range(f->header.moves, 2, 2 * f->index.kicks);
		assert_int_equal(f->index.resizes, 0);
		drop(f);
	}
}

/* RCBench: 1.6 slots on average, at most three, where three of four slots are taken. */
static void slots_looked_at(void **state)
{
	struct fixture *f = make(2048, 0, 1);
	unsigned looks = 0, n = 2048 * 3 / 4;
	uint64_t offset;

	for (unsigned i = 0; i < n; i++)
		assert_int_equal(insert(f, i, any_offset(f)), 0);
	for (unsigned i = 0; i < n; i++) {
		unsigned way = way_of(f, key_of(i), &offset);

		assert_true(way < VB_INDEX_WAYS);
		looks += way + 1;
	}
	assert_in_range(looks * 100 / n, 130, 190);
	drop(f);
}

/* A table's index has room for its keys at a load where inserts go well. */
static void load_of_a_table(void **state)
{
	for (uint64_t room = 1; room < 1ull << 40; room = room * 3 + 1) {
		uint64_t slots = vb_table_slots(room);

		assert_true(room * 4 <= slots * 3);
		assert_true(slots <= room * 4 / 3 + VB_INDEX_WAYS);
	}
}

/* ---- larger indexes ---- */

static void resizing(void **state)
{
	struct fixture *f = make(16, 1, 1);
	char before[16 * sizeof(struct vb_slot)];
	unsigned i;

	for (i = 0; f->index.resizes == 0; i++) {
		assert_int_equal(f->header.slots, 16);
		memcpy(before, f->segment + INDEX_AT, sizeof(before));
		assert_int_equal(insert(f, i, any_offset(f)), 0);
		check_all(f, KEYS);
	}
	assert_in_range(i, 12, 17);
	assert_int_equal(f->asked_slots, 32);
	assert_int_equal(f->asked_generation, 1);
	assert_int_equal(f->header.slots, 32);
	assert_int_equal(f->header.generation, 1);
	assert_int_not_equal(f->header.index_at, INDEX_AT);
	/* Who has not heard of the new one still reads the old one. */
	assert_memory_equal(f->segment + INDEX_AT, before, sizeof(before));
	drop(f);
}

/* From one slot, where all three ways of all keys are the same, to thousands. */
static void growing_from_one_slot(void **state)
{
	struct fixture *f = make(1, UINT32_MAX, 1);

	for (unsigned i = 0; i < KEYS; i++) {
		assert_int_equal(insert(f, i, any_offset(f)), 0);
		if (i < 64 || i % 64 == 0)
			check_all(f, KEYS);
	}
	check_all(f, KEYS);
	assert_int_equal(f->header.slots, 1ull << f->header.generation);
	assert_int_equal(f->header.generation, f->index.resizes);
	drop(f);
}

static void no_memory(struct fixture *f)
{
	unsigned i, refused;

	for (i = 0; insert(f, i, any_offset(f)) == 0; i++)
		;
	refused = i;
	check_all(f, KEYS);
	/* Some keys may still have room; whatever is refused, nothing is lost. */
	for (i = refused; i < refused + 50; i++) {
		(void)insert(f, i, any_offset(f));
		check_all(f, KEYS);
	}
	for (i = 0; i < refused / 2; i++)
		assert_true(delete (f, i));
	assert_int_equal(insert(f, KEYS - 1, any_offset(f)), 0);
	check_all(f, KEYS);
}

static void no_memory_to_begin_with(void **state)
{
	struct fixture *f = make(128, 0, 1);

	no_memory(f);
	assert_int_equal(f->header.slots, 128);
	assert_int_equal(f->header.generation, 0);
	assert_int_equal(f->asked_generation, 1);
	drop(f);
}

static void no_memory_later(void **state)
{
	struct fixture *f = make(16, 2, 1);

	no_memory(f);
	assert_int_equal(f->header.slots, 64);
	assert_int_equal(f->header.generation, 2);
	assert_int_equal(f->asked_generation, 3);
	drop(f);
}

static void nobody_gives_memory(void **state)
{
	struct fixture *f = make(64, 0, 1);

	f->index.more = NULL;
	no_memory(f);
	drop(f);
}

/* ---- hidden keys ---- */

/* Their owner has them, wherever they are moved, and nobody else. */
static void hidden_keys(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 8; seed++) {
		struct fixture *f = make(64, 1, seed);
		bool hidden[KEYS] = {false};
		uint64_t offset;

		for (unsigned i = 0; i < 80; i++) {
			unsigned other = (unsigned)vb_rng_below(&f->rng, i + 1);
			bool was = hidden[other];

			assert_int_equal(insert(f, i, any_offset(f)), 0);
			if (vb_rng_chance(&f->rng, 0.7)) {
				vb_index_hide(&f->index, key_of(other));
				hidden[other] = true;
			} else {
				assert_int_equal(vb_index_show(&f->index, key_of(other)), was);
				hidden[other] = false;
			}
			for (unsigned k = 0; k <= i; k++) {
				assert_int_equal(vb_index_find(&f->index, key_of(k)), f->offset[k]);
				assert_int_equal(way_of(f, key_of(k), &offset) == VB_INDEX_WAYS,
						 hidden[k]);
				assert_int_equal(vb_index_is_hidden(&f->index, key_of(k)),
						 hidden[k]);
			}
		}
		assert_int_equal(f->index.resizes, 1);
		for (unsigned k = 0; k < 80; k++)
			assert_true(vb_index_delete(&f->index, key_of(k)));
		assert_false(vb_index_is_hidden(&f->index, key_of(0)) ||
			     vb_index_show(&f->index, key_of(0)));
		vb_index_hide(&f->index, key_of(0));
		assert_int_equal(vb_index_find(&f->index, key_of(0)), 0);
		drop(f);
	}
}

/* ---- at random ---- */

/* So many of the keys are to be there in the long run that the index is as full as it can be. */
static void random_run(uint64_t seed, uint64_t slots, unsigned mores, unsigned keys)
{
	struct fixture *f = make(slots, mores, seed);

	for (unsigned n = 0; n < 2000; n++) {
		unsigned number = (unsigned)vb_rng_below(&f->rng, keys);

		if (vb_rng_chance(&f->rng, 0.6))
			(void)insert(f, number, any_offset(f));
		else
			(void)delete (f, number);
		check_all(f, keys);
	}
	drop(f);
}

static void random_operations(void **state)
{
	for (uint64_t seed = 1; seed <= 8; seed++) {
		random_run(seed, 64, 0, 96);           /* full */
		random_run(seed, 7, UINT32_MAX, 64);   /* grows */
		random_run(seed, 16, 1, 48);           /* grows once, then is full */
		random_run(seed, 128, UINT32_MAX, 96); /* never full */
		random_run(seed, 3, 0, 8);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(matching),
		cmocka_unit_test(mixtures_are_found_out),
		cmocka_unit_test(every_slot_is_used),
		cmocka_unit_test(one_key),
		cmocka_unit_test(owner_died),
		cmocka_unit_test(key_zero),
		cmocka_unit_test(full_to_nine_tenths),
		cmocka_unit_test(slots_looked_at),
		cmocka_unit_test(load_of_a_table),
		cmocka_unit_test(resizing),
		cmocka_unit_test(growing_from_one_slot),
		cmocka_unit_test(no_memory_to_begin_with),
		cmocka_unit_test(no_memory_later),
		cmocka_unit_test(nobody_gives_memory),
		cmocka_unit_test(hidden_keys),
		cmocka_unit_test(random_operations),
	};

	return cmocka_run_group_tests_name("store_index", tests, NULL, NULL);
}
