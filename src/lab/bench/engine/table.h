/* SPDX-License-Identifier: Apache-2.0 */
/* Columns and lines that the tables of all benchmarks have. */
#ifndef VB_LAB_BENCH_ENGINE_TABLE_H
#define VB_LAB_BENCH_ENGINE_TABLE_H

#include <stdio.h>

#include "lab/busy.h"

/* Nanoseconds as microseconds, in seven columns with four significant places or so. */
void vb_bench_put_us(FILE *to, double ns);
/* A line below a row of numbers, where the machine was too busy for them to be trusted. */
void vb_bench_put_busy(FILE *to, const struct vb_busy *load);

#endif
