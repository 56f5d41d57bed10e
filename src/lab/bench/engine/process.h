/* SPDX-License-Identifier: Apache-2.0 */
/* A process that is forked for a run, and the memory that it shares with its parent. */
#ifndef VB_LAB_BENCH_ENGINE_PROCESS_H
#define VB_LAB_BENCH_ENGINE_PROCESS_H

#include <stddef.h>
#include <sys/types.h>

/* In the child, first of all: it ends with its parent, who alone hears the user. */
void vb_bench_child(pid_t parent);

/* Zeros that are shared with processes forked from here on; NULL: no memory. */
void *vb_bench_share(size_t bytes);
void vb_bench_unshare(void *shared, size_t bytes);

#endif
