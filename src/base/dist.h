/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of n items: uniform, Zipf, power law.
 *
 *   "uniform"
 *   "zipf:THETA"   THETA in [0, 1): Gray et al., SIGMOD 1994, figure 6 (constant memory: the zeta
 *                  constant is summed once per (n, theta) and shared); above 1: rejection
 *                  inversion (Hormann and Derflinger 1996).  THETA = 1 exactly is refused... unless
 *                  the rejection inversion covers it (it does: it is used for every THETA >= 1).
 *   "powerlaw:ALPHA"  ALPHA > 1: P(item k) proportional to (k+1)^-ALPHA, as seed 000 appendix A.4.
 *
 * Item 0 is the hottest.  A vb_dist is immutable after init and may be shared by threads.
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
	double zetan, alpha, eta, half_pow; /* Gray */
	double h_x1, h_n, s;                /* rejection inversion */
};

/* text as above, n >= 1.  -EINVAL, said. */
int vb_dist_init(struct vb_dist *d, const char *text, uint64_t n);
uint64_t vb_dist_next(const struct vb_dist *d, struct vb_rng *r);
/* The exact probability of item k as this generator is meant to have it; O(n) on first call. */
double vb_dist_probability(const struct vb_dist *d, uint64_t k);

#endif
