/* SPDX-License-Identifier: Apache-2.0 */
/* Calibrates the time stamp counter against CLOCK_MONOTONIC; see clock.h. */
#include "base/clock.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/compiler.h"

struct vb_clock vb_clock;
static pthread_once_t once = PTHREAD_ONCE_INIT;

#if defined(__x86_64__)

#define SCALE_SHIFT      24
#define CALIBRATE_NS     4000000ull /* a reading is good to tens of ns: below 20 ppm over 4 ms */
#define READINGS         5

static int kernel_trusts_tsc(void)
{
	char name[32] = "";
	FILE *f = fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "r");
	int ok;

	if (!f)
		return 0;
	ok = fgets(name, sizeof(name), f) && !strncmp(name, "tsc", 3);
	fclose(f);
	return ok;
}

static int tsc_is_invariant(void)
{
	unsigned a, b, c, d;

	return __get_cpuid(0x80000007u, &a, &b, &c, &d) && d & 1u << 8;
}

/* Both clocks at the same moment: of a few tries, the one with the least time around it. */
static void read_both(uint64_t *tsc, uint64_t *ns)
{
	uint64_t best = UINT64_MAX;

	*tsc = *ns = 0;
	for (int i = 0; i < READINGS; i++) {
		uint64_t before = __rdtsc(), t = vb_clock_gettime_ns(), after = __rdtsc();

		if (after - before < best) {
			best = after - before;
			*tsc = before + (after - before) / 2;
			*ns = t;
		}
	}
}

static void calibrate(void)
{
	uint64_t tsc0, ns0, tsc1, ns1;

	if (!kernel_trusts_tsc() || !tsc_is_invariant())
		return;
	read_both(&tsc0, &ns0);
	do
		read_both(&tsc1, &ns1);
	while (ns1 - ns0 < CALIBRATE_NS);
	vb_clock.mult = (uint32_t)(((unsigned __int128)(ns1 - ns0) << SCALE_SHIFT) / (tsc1 - tsc0));
	vb_clock.tsc_base = tsc1;
	vb_clock.ns_base = ns1;
	vb_clock.use_tsc = vb_clock.mult != 0;
}

#else

static void calibrate(void)
{
}

#endif

void vb_clock_init(void)
{
	pthread_once(&once, calibrate);
}

void vb_clock_adopt(const struct vb_clock *clock)
{
	vb_clock_init();
	vb_clock = *clock;
}
