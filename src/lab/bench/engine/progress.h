/* SPDX-License-Identifier: Apache-2.0 */
/* Progress on stderr, a terminal only; at most ten times a second. */
#ifndef VB_LAB_BENCH_ENGINE_PROGRESS_H
#define VB_LAB_BENCH_ENGINE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct vb_bench_progress {
	bool on;
	unsigned run, runs;
	const char *name; /* of what runs */
	const char *unit; /* of what is counted; NULL: cycles */
	uint64_t last_wall_ns;
};
extern struct vb_bench_progress vb_bench_progress;
void vb_bench_progress_show(double done, uint64_t cycles, const char *phase);
void vb_bench_progress_clear(void);

#endif
