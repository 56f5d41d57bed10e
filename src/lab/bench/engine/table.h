/* SPDX-License-Identifier: Apache-2.0 */
/* Columns and lines that the tables of all benchmarks have. */
#ifndef VB_LAB_BENCH_ENGINE_TABLE_H
#define VB_LAB_BENCH_ENGINE_TABLE_H

#include <stdbool.h>
#include <stdio.h>

#include "base/hist.h"
#include "lab/busy.h"

/* Nanoseconds as microseconds, in seven columns with four significant places or so. */
void vb_bench_put_us(FILE *to, double ns);
/* The median, the 99th percentile, and if `tail` the 99.9th; dashes for an empty one. */
void vb_bench_put_percentiles(FILE *to, const struct vb_hist *h, bool tail);
/* A line below a row of numbers, where the machine was too busy for them to be trusted. */
void vb_bench_put_busy(FILE *to, const struct vb_busy *load);

#endif
