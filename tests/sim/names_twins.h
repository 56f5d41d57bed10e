/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names that a hash cannot tell apart.
 *
 * XXH64 of 16 bytes takes two words in, one after the other, each by steps that can be undone.  So for
 * any first word there is a second one with which the hash comes out as wanted.
 *
 *	family f, twin i:   "name-" f f i  | 8 bytes that follow
 *	                    first 7 bytes ^ the same for all twins of a family
 */
#ifndef NAMES_TWINS_H
#define NAMES_TWINS_H

#include <stdint.h>
#include <string.h>
#include <xxhash.h>

#define TWIN_BYTES 16
#define TWIN_P1    0x9E3779B185EBCA87ull
#define TWIN_P2    0xC2B2AE3D27D4EB4Full
#define TWIN_P4    0x85EBCA77C2B2AE63ull
#define TWIN_P5    0x27D4EB2F165667C5ull

static inline uint64_t twin_rotl(uint64_t x, unsigned n)
{
	return x << n | x >> (64 - n);
}

/* An odd number's: each step doubles the bits that are right. */
static inline uint64_t twin_inverse(uint64_t p)
{
	uint64_t x = p;

	for (unsigned i = 0; i < 6; i++)
		x *= 2 - p * x;
	return x;
}

static inline uint64_t twin_round(uint64_t lane)
{
	return twin_rotl(lane * TWIN_P2, 31) * TWIN_P1;
}

static inline uint64_t twin_unround(uint64_t y)
{
	return twin_rotl(y * twin_inverse(TWIN_P1), 33) * twin_inverse(TWIN_P2);
}

static inline uint64_t twin_after(uint64_t lane)
{
	return twin_rotl((TWIN_P5 + TWIN_BYTES) ^ twin_round(lane), 27) * TWIN_P1 + TWIN_P4;
}

static inline void twin_name(unsigned family, unsigned twin, char out[static TWIN_BYTES])
{
	char first[9] = "name-aaa", model[9] = "name-aaa";
	uint64_t a, b, tail;

	first[5] = model[5] = (char)('a' + family / 26 % 26);
	first[6] = model[6] = (char)('a' + family % 26);
	first[7] = (char)('a' + twin);
	memcpy(&a, model, 8);
	memcpy(&b, first, 8);
	memcpy(&tail, "/balance", 8);
	tail = twin_unround(twin_after(a) ^ twin_after(b) ^ twin_round(tail));
	memcpy(out, first, 8);
	memcpy(out + 8, &tail, 8);
}

#endif
