/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xoshiro256** (Blackman and Vigna 2018), seeded by splitmix64.  A (seed, stream) pair names a
 * stream; streams of one seed are independent for our purposes.  Not thread-safe; one per client.
 */
#ifndef VB_BASE_RNG_H
#define VB_BASE_RNG_H

#include <stdbool.h>
#include <stdint.h>

struct vb_rng {
	uint64_t s[4];
};

void vb_rng_seed(struct vb_rng *r, uint64_t seed, uint64_t stream);

static inline uint64_t vb_rng_rotl(uint64_t x, int k)
{
	return x << k | x >> (64 - k);
}

static inline uint64_t vb_rng_next(struct vb_rng *r)
{
	uint64_t result = vb_rng_rotl(r->s[1] * 5, 7) * 9;
	uint64_t t = r->s[1] << 17;

	r->s[2] ^= r->s[0];
	r->s[3] ^= r->s[1];
	r->s[1] ^= r->s[2];
	r->s[0] ^= r->s[3];
	r->s[2] ^= t;
	r->s[3] = vb_rng_rotl(r->s[3], 45);
	return result;
}

/* Uniform in [0, n), n > 0, without modulo bias to speak of (multiply-shift on 64 bits). */
static inline uint64_t vb_rng_below(struct vb_rng *r, uint64_t n)
{
	return (uint64_t)(((unsigned __int128)vb_rng_next(r) * n) >> 64);
}

/* Uniform in [0, 1), 53 bits. */
static inline double vb_rng_unit(struct vb_rng *r)
{
	return (double)(vb_rng_next(r) >> 11) * 0x1p-53;
}

static inline bool vb_rng_chance(struct vb_rng *r, double p)
{
	return vb_rng_unit(r) < p;
}

#endif
