/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"

/* splitmix64 (Steele, Lea, Flood 2014): turns any seed into a state without structure. */
static uint64_t splitmix(uint64_t *x)
{
	uint64_t z = *x += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

void vb_rng_seed(struct vb_rng *r, uint64_t seed, uint64_t stream)
{
	uint64_t x = seed, y = stream ^ 0x6a09e667f3bcc909ull;

	/* The stream is scrambled on its own first: seed + 1, stream - 1 must not meet. */
	x ^= splitmix(&y);
	for (int i = 0; i < 4; i++)
		r->s[i] = splitmix(&x);
}
