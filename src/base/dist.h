/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of n items, item 0 the hottest:
 *
 *   "uniform"
 *   "zipf:THETA"      P(k) proportional to (k+1)^-THETA, THETA 0 to 10
 *   "powerlaw:ALPHA"  the same with ALPHA above 1 to 10, as seed 000 appendix A.4 calls it
 *
 * Below 1 by Gray et al. (SIGMOD 1994, figure 6), as YCSB and the papers do: constant time and memory,
 * one power per draw.  It is an approximation: items 0 and 1 are exact, further ones follow a
 * continuous curve; the total variation distance from the exact distribution is below 1 % for
 * n >= 1000 (a test holds it to that).  From 1 on by rejection inversion (Hormann and Derflinger
 * 1996), which is exact.  A vb_dist is a few numbers, immutable after init, and may be shared.
 */
#ifndef VB_BASE_DIST_H
#define VB_BASE_DIST_H

#include <stdint.h>

#include "base/rng.h"

enum vb_dist_kind { VB_DIST_UNIFORM, VB_DIST_ZIPF_GRAY, VB_DIST_ZIPF_REJECT };

struct vb_dist {
	enum vb_dist_kind kind;
	uint64_t n;
	double theta;
	double zetan;                 /* sum of i^-theta, i = 1..n */
	double alpha, eta, two_items; /* Gray */
	double h_x1, h_n, squeeze;    /* rejection inversion */
};

/* text as above, n >= 1.  -EINVAL, said. */
int vb_dist_init(struct vb_dist *d, const char *text, uint64_t n);
uint64_t vb_dist_next(const struct vb_dist *d, struct vb_rng *r);
/* The exact probability of item k < n (what the generator approximates). */
double vb_dist_probability(const struct vb_dist *d, uint64_t k);

#endif
