/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Histogram of non-negative integers with HdrHistogram's bucket layout: 3 significant decimal
 * digits from 1 to VB_HIST_MAX.  The whole of it is one flat struct without pointers, so it can lie
 * in shared memory and outlive the process that filled it.
 */
#ifndef VB_BASE_HIST_H
#define VB_BASE_HIST_H

#include <stdint.h>
#include <stdio.h>

#define VB_HIST_SUB_BITS 11           /* 2^11 = 2048 sub-buckets: 3 significant digits */
#define VB_HIST_MAX      (1ull << 42) /* 4.4e12 ns: 73 minutes; larger values count as this */
#define VB_HIST_BUCKETS  (42 - VB_HIST_SUB_BITS + 1)
#define VB_HIST_COUNTS   ((VB_HIST_BUCKETS + 1) * (1u << (VB_HIST_SUB_BITS - 1)))

struct vb_hist {
	uint64_t total;
	uint64_t min, max; /* exact; min is UINT64_MAX while empty */
	double sum;
	uint64_t counts[VB_HIST_COUNTS];
};

void vb_hist_init(struct vb_hist *h);
void vb_hist_record(struct vb_hist *h, uint64_t value);
/* Of an empty `from` the pages of its counts are not touched. */
void vb_hist_merge(struct vb_hist *into, const struct vb_hist *from);
/* Highest value equivalent to the percentile (0 to 100), exact min and max at the ends; 0 if empty.
 */
uint64_t vb_hist_percentile(const struct vb_hist *h, double p);
double vb_hist_mean(const struct vb_hist *h);
/* The .hgrm text of HdrHistogram's percentile output, values divided by `scale`, 5 ticks per half.
 */
void vb_hist_print_hgrm(const struct vb_hist *h, FILE *to, double scale);

#endif
