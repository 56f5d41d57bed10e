/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of n items, item 0 the hottest:
 *
 *   "uniform"
 *   "zipf:THETA"      P(k) proportional to (k+1)^-THETA, THETA 0 to 10
 *   "powerlaw:ALPHA"  the same law, ALPHA above 1 to 10: the name that DSLR appendix A.4 uses
 *
 * THETA below 1: Gray et al. (SIGMOD 1994, figure 6), as YCSB and the papers draw it; one logarithm
 * and one exponential per draw.  It is an approximation.  Items 0 and 1 are exact; the others
 * follow a continuous curve that favours the first of them: item 2 by up to 20 % of its
 * probability, at THETA 0.99, and the rest by less and less.  The total variation distance from the
 * exact law (the share of draws that fall on another item) is below 1.8 % for every n and THETA,
 * and for 10 million items 0.98 % at 0.99, 0.2 % at 0.8 and below 0.01 % up to 0.5.  The tests hold
 * it to these numbers, and the generator to the curve.
 *
 * THETA from 1 on, 1 included: rejection inversion (Hormann and Derflinger 1996), which is exact
 * and takes less than 1.1 rounds on average.
 *
 * Neither has a table: a vb_dist is a few numbers, immutable after init, and may be shared by
 * threads.  Its zeta(n, THETA) is 10,000 terms and an Euler-Maclaurin tail, to 1e-12 of the sum, in
 * well below a millisecond for any n.
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
