/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fixed permutation of 0 .. n-1 that puts neighbours far from each other: the hottest ranks of a
 * distribution then share no cache lines, nodes or servers by the accident of their numbering.
 */
#ifndef VB_WORKLOAD_SCATTER_H
#define VB_WORKLOAD_SCATTER_H

#include "base/compiler.h"

struct vb_scatter {
	uint64_t n, step, first; /* place = (first + rank * step) mod n */
};

void vb_scatter_init(struct vb_scatter *s, uint64_t n);

static inline uint64_t vb_scatter(const struct vb_scatter *s, uint64_t rank)
{
	if (vb_likely(s->n <= UINT32_MAX))
		return (s->first + rank * s->step) % s->n;
	return (uint64_t)((s->first + (unsigned __int128)rank * s->step) % s->n);
}

#endif
