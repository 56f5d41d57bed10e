/* SPDX-License-Identifier: Apache-2.0 */
/* The key map of a range (store/keymap.h). */
#define VB_LOG_ROOM "store"
#include "store/keymap.h"

#include <errno.h>

#include "base/log.h"

/* Others read from afar while we write. */
static void put(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static uint64_t in_range(unsigned shift, uint64_t key)
{
	return key & ((1ull << shift) - 1);
}

/* The word of a list with that in it; NULL: none has it. */
static uint64_t *word_with(uint64_t *map, uint64_t what)
{
	for (unsigned i = 1; i <= VB_KEYMAP_LIST; i++)
		if (map[i] == what)
			return &map[i];
	return NULL;
}

static bool add_to_list(uint64_t *map, uint64_t key)
{
	uint64_t *word = word_with(map, key);

	if (word == NULL)
		word = word_with(map, 0);
	put(word != NULL ? word : &map[0], word != NULL ? key : 1);
	return word != NULL;
}

bool vb_keymap_add(uint64_t *map, unsigned shift, uint64_t key)
{
	uint64_t low = in_range(shift, key);

	if (shift > VB_KEYMAP_BITS_SHIFT)
		return add_to_list(map, VB_KEYMAP_KEY | low);
	put(&map[low / 64], map[low / 64] | 1ull << low % 64);
	return true;
}

void vb_keymap_drop(uint64_t *map, unsigned shift, uint64_t key)
{
	uint64_t low = in_range(shift, key), *word;

	if (shift <= VB_KEYMAP_BITS_SHIFT) {
		put(&map[low / 64], map[low / 64] & ~(1ull << low % 64));
		return;
	}
	word = word_with(map, VB_KEYMAP_KEY | low);
	if (word != NULL)
		put(word, 0);
}

/* The next key of the map from `at` on, or `at` itself: where it is in the range; none in this word: the word's
 * last one in that direction, *none. */
static uint64_t next_bit(const uint64_t *map, uint64_t at, bool down, bool *none)
{
	uint64_t first = at / 64 * 64;
	uint64_t word = map[at / 64] & (down ? ~0ull >> (63 - at % 64) : ~0ull << at % 64);

	*none = word == 0;
	if (word == 0)
		return down ? first : first + 63;
	return first +
	       (down ? 63 - (unsigned)__builtin_clzll(word) : (unsigned)__builtin_ctzll(word));
}

static int list_bits(const uint64_t *map, uint64_t first, uint64_t at, uint64_t end, uint64_t *keys,
		     unsigned most)
{
	bool down = at > end, none;
	unsigned n = 0;

	while (n < most) {
		at = next_bit(map, at, down, &none);
		if (!none && (down ? at >= end : at <= end))
			keys[n++] = first + at;
		if (down ? at <= end : at >= end)
			break;
		at = down ? at - 1 : at + 1;
	}
	return (int)n;
}

static bool before(uint64_t a, uint64_t b, bool down)
{
	return down ? a > b : a < b;
}

static int list_list(const uint64_t *map, uint64_t first, uint64_t at, uint64_t end, uint64_t *keys)
{
	bool down = at > end;
	unsigned n = 0;

	for (unsigned i = 1; i <= VB_KEYMAP_LIST; i++) {
		uint64_t low = map[i] & UINT32_MAX;
		unsigned to = n;

		if (!(map[i] & VB_KEYMAP_KEY) || before(low, at, down) || before(end, low, down))
			continue;
		for (; to > 0 && before(first + low, keys[to - 1], down); to--)
			keys[to] = keys[to - 1];
		keys[to] = first + low;
		n++;
	}
	return (int)n;
}

int vb_keymap_list(const uint64_t *map, unsigned shift, uint64_t from, uint64_t to, uint64_t *keys,
		   unsigned most)
{
	uint64_t first = from - in_range(shift, from);
	uint64_t at = in_range(shift, from), end = in_range(shift, to);

	vb_assert(most >= VB_KEYMAP_LIST);
	if (shift <= VB_KEYMAP_BITS_SHIFT)
		return list_bits(map, first, at, end, keys, most);
	return map[0] != 0 ? -E2BIG : list_list(map, first, at, end, keys);
}
