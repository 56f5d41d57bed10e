/* SPDX-License-Identifier: Apache-2.0 */
/* How explorations draw from a seed, and tell what they drew: what those of locks and of
 * transactions have in common.  Which values are drawn, with which chances, is their own. */
#ifndef VB_CHECK_DRAW_H
#define VB_CHECK_DRAW_H

#include <stdio.h>

#include "base/rng.h"
#include "fabric/sim/sim.h"

/* From lo to hi, both included. */
uint64_t vb_draw_between(struct vb_rng *r, uint64_t lo, uint64_t hi);
/* From lo to below lo << octaves, uniform in the exponent: small and large values are as likely as
 * each other. */
uint64_t vb_draw_spread(struct vb_rng *r, uint64_t lo, uint64_t octaves);
double vb_draw_one_of(struct vb_rng *r, const double *from, unsigned n);
/* Late verbs, up to half of what the fabric allows, and torn accesses: what everybody must stand.
 * The longest delay is drawn from so many octaves above 1 us. */
void vb_draw_delays(struct vb_rng *r, struct vb_sim_faults *f, uint64_t octaves, uint64_t bound_ns);

/* ", name chance up to max"; nothing where the chance is 0, and no "up to" where the maximum is. */
void vb_draw_tell_chance(FILE *to, const char *name, double chance, uint64_t max_ns);
/* The same for every fault, and the end of the line. */
void vb_draw_tell_faults(FILE *to, const struct vb_sim_faults *f);

#endif
