/* SPDX-License-Identifier: Apache-2.0 */
/* Progress on stderr: see progress.h. */
#include "lab/bench/engine/progress.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/opt.h"

struct vb_bench_progress vb_bench_progress;

#define SHOW_EVERY_NS 100000000ull

void vb_bench_progress_show(double done, uint64_t cycles, const char *phase)
{
	struct vb_bench_progress *p = &vb_bench_progress;
	uint64_t now = vb_clock_gettime_ns();
	char count[16];

	if (!p->on || now - p->last_wall_ns < SHOW_EVERY_NS)
		return;
	p->last_wall_ns = now;
	fprintf(stderr, "\r\033[K[%u/%u] %s: %s %3.0f%%, %s %s", p->run, p->runs, p->name, phase,
		done * 100, vb_format_count(count, sizeof(count), (double)cycles),
		p->unit != NULL ? p->unit : "cycles");
	fflush(stderr);
}

void vb_bench_progress_clear(void)
{
	if (vb_bench_progress.on) {
		fprintf(stderr, "\r\033[K");
		fflush(stderr);
	}
}
