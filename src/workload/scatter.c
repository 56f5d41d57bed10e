/* SPDX-License-Identifier: Apache-2.0 */
/* See scatter.h. */
#include "workload/scatter.h"

static uint64_t gcd(uint64_t a, uint64_t b)
{
	while (b != 0) {
		uint64_t r = a % b;

		a = b;
		b = r;
	}
	return a;
}

/* A step near the golden section of n that has no divisor in common with it: consecutive ranks land
 * far from each other, and every place is some rank's. */
static uint64_t step_for(uint64_t n)
{
	uint64_t step = (uint64_t)((double)n * 0.6180339887498949);

	if (n < 4)
		return 1;
	while (gcd(step, n) != 1)
		step++;
	return step;
}

void vb_scatter_init(struct vb_scatter *s, uint64_t n)
{
	*s = (struct vb_scatter){.n = n, .step = step_for(n), .first = n / 3};
}
