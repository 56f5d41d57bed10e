/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine's monotonic clock in ns, the same for all processes of the machine.
 *
 * Where the kernel itself trusts the time stamp counter (its clocksource is tsc and the CPU says
 * that it ticks at one rate and never stops), vb_clock_ns() reads the counter: about half of what
 * clock_gettime costs.  Elsewhere it is clock_gettime(CLOCK_MONOTONIC).
 *
 * The counter's scale is calibrated once per process against CLOCK_MONOTONIC, to within 20 parts
 * per million of its rate at that moment, or the counter is not used; NTP may slew CLOCK_MONOTONIC
 * away from it later, by at most 500.  Processes that compare times therefore agree on one
 * calibration: one calibrates, the others adopt it.
 */
#ifndef VB_BASE_CLOCK_H
#define VB_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

struct vb_clock {
	uint64_t tsc_base, ns_base;
	uint32_t mult; /* ns = (tsc * mult) >> 24 */
	uint32_t use_tsc;
};

extern struct vb_clock vb_clock;

void vb_clock_init(void); /* idempotent; called by vb_fabric_open and the scheduler */
/* Takes over another process's calibration, so that times of both compare.  Before other threads
 * read the clock. */
void vb_clock_adopt(const struct vb_clock *clock);

static inline uint64_t vb_clock_gettime_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static inline uint64_t vb_clock_ns(void)
{
#if defined(__x86_64__)
	if (vb_clock.use_tsc)
		return vb_clock.ns_base +
		       (uint64_t)(((unsigned __int128)(__rdtsc() - vb_clock.tsc_base) *
				   vb_clock.mult) >>
				  24);
#endif
	return vb_clock_gettime_ns();
}

#endif
