/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The key map of a range: which of its keys have a tuple, for who scans from afar.
 *
 * It lies behind the range's own tuple (store/ranges.c) in the owner's memory, and the owner's server alone
 * writes it.  It has one of two forms, by how many keys a range has:
 *
 *	bits    up to 1024 keys: bit i is set if key i of the range has a tuple; 1 to 16 words
 *
 *		+-----------------+------------------+-- ... --+
 *		| keys 0 .. 63    | keys 64 .. 127   |         |
 *		+-----------------+------------------+-- ... --+
 *
 *	list    more: up to 15 keys in the order in which they came; 16 words
 *
 *		+------+---+--------------+----------+-- ... --+
 *		| more | 1 | 0            | key      |         |      key: its lower 32 bits
 *		+------+---+--------------+----------+-- ... --+
 *		         63 62          32 31       0
 *
 *		more    not 0: the range has others, which only its owner knows
 *
 * Torn READs.  Each word speaks for itself, and a key that is in the map stays in its word, until it has no tuple
 * any more (store/places.h).  So a READ of which half is old and half is new has every key that was in the map
 * for all the time, and may have some that have come or gone meanwhile.  Who scans needs no more (txn/scan.c):
 * there is no seal and no second look.
 */
#ifndef VB_STORE_KEYMAP_H
#define VB_STORE_KEYMAP_H

#include <stdbool.h>
#include <stdint.h>

#define VB_KEYMAP_BITS_SHIFT 10u /* of the largest range that has bits */
#define VB_KEYMAP_WORDS      16u
#define VB_KEYMAP_LIST       (VB_KEYMAP_WORDS - 1)
#define VB_KEYMAP_KEY        (1ull << 63) /* in a word of a list: a key is there */

/* Of a map for 2^shift keys, at most 2^32. */
static inline uint32_t vb_keymap_bytes(unsigned shift)
{
	if (shift > VB_KEYMAP_BITS_SHIFT)
		return VB_KEYMAP_WORDS * 8;
	return shift <= 6 ? 8 : 1u << (shift - 3);
}

/* At the owner: a map, all zeros at first, gets a key, which may be there already.  False: it has no room. */
bool vb_keymap_add(uint64_t *map, unsigned shift, uint64_t key);
/* It loses one, which need not be there.  A map that once had no room stays so until it is made anew. */
void vb_keymap_drop(uint64_t *map, unsigned shift, uint64_t key);

/*
 * Of a copy of the map: its keys from `from` up, or down, to `to`, both included and in the range, at most `most`
 * of them, which is at least VB_KEYMAP_LIST: how many.  There may be more if there are `most`.  -E2BIG: the
 * range has more than the map; ask the owner.
 */
int vb_keymap_list(const uint64_t *map, unsigned shift, uint64_t from, uint64_t to, uint64_t *keys,
		   unsigned most);

#endif
