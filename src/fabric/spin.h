/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long it is worth to spin before sleeping.  The cores may have other work than ours, which no
 * counter of workers shows: then what is waited for does not come while we spin, and what we spin
 * away the kernel takes from our turn when it has come.  So a wait that was longer than any spin
 * makes the next spins a quarter as long; one that a spin would have covered, in whole or but for
 * the waking, makes them twice as long.
 */
#ifndef VB_FABRIC_SPIN_H
#define VB_FABRIC_SPIN_H

#include <stdint.h>

#define VB_SPIN_LEAST_NS 300ull

static inline void vb_spin_learn(uint64_t *spin_ns, uint64_t most_ns, uint64_t waited_ns)
{
	if (waited_ns <= 2 * most_ns)
		*spin_ns = *spin_ns < most_ns / 2 ? 2 * *spin_ns : most_ns;
	else
		*spin_ns = *spin_ns / 4 > VB_SPIN_LEAST_NS ? *spin_ns / 4 : VB_SPIN_LEAST_NS;
}

#endif
