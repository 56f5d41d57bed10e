/* SPDX-License-Identifier: Apache-2.0 */
/* Calibrates the CPU's counter against CLOCK_MONOTONIC; see clock.h. */
#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/compiler.h"

struct vb_clock vb_clock;
static pthread_once_t once = PTHREAD_ONCE_INIT;

#if VB_CLOCK_COUNTER

#define SCALE_SHIFT  24
#define READINGS     5
#define ERROR_PPM    19          /* the scale's own rounding and the ns's take the 20th */
#define CALIBRATE_NS 50000000ull /* no such bound by then: the counter is not used */

#if defined(__x86_64__)
#define CLOCKSOURCE "tsc"
#else
#define CLOCKSOURCE "arch_sys_counter"
#endif

static int kernel_trusts_it(void)
{
	char name[32] = "";
	FILE *f = fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "r");
	int ok;

	if (!f)
		return 0;
	ok = fgets(name, sizeof(name), f) && !strncmp(name, CLOCKSOURCE, strlen(CLOCKSOURCE));
	fclose(f);
	return ok;
}

static int is_invariant(void)
{
#if defined(__x86_64__)
	unsigned a, b, c, d;

	return __get_cpuid(0x80000007u, &a, &b, &c, &d) && d & 1u << 8;
#else
	return 1;
#endif
}

struct reading {
	uint64_t tsc, ns;
	/* ns was read within this many ticks around tsc; three of them are for rounding, which is most of
	 * it where a tick takes 40 ns. */
	uint64_t window;
};

/* Both clocks at the same moment: of a few tries, the one with the least time around it. */
static struct reading read_both(void)
{
	struct reading best = {.window = UINT64_MAX};

	for (int i = 0; i < READINGS; i++) {
		uint64_t before = vb_tsc(), ns = vb_clock_gettime_ns(), after = vb_tsc();

		if (after - before + 3 < best.window)
			best = (struct reading){.tsc = before + (after - before) / 2,
						.ns = ns,
						.window = after - before + 3};
	}
	return best;
}

/* A reading is wrong by at most half its window, so two of them bound the error of the scale,
 * however often we were preempted meanwhile: go on until the distance is long enough for the bound.
 */
static void calibrate(void)
{
	struct reading first, last;
	uint64_t ticks, mult;

	if (!kernel_trusts_it() || !is_invariant())
		return;
	first = read_both();
	do {
		last = read_both();
		if (last.tsc <= first.tsc || last.ns - first.ns > CALIBRATE_NS)
			return;
		ticks = last.tsc - first.tsc;
	} while ((first.window + last.window) / 2 > ticks / 1000000 * ERROR_PPM);
	mult = (uint64_t)(((unsigned __int128)(last.ns - first.ns) << SCALE_SHIFT) / ticks);
	if (mult < VB_CLOCK_MULT_MIN || mult > VB_CLOCK_MULT_MAX)
		return;
	vb_clock.mult = (uint32_t)mult;
	vb_clock.tsc_base = last.tsc;
	vb_clock.ns_base = last.ns;
	vb_clock.use_tsc = 1;
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

static pthread_mutex_t change = PTHREAD_MUTEX_INITIALIZER;
static unsigned holders; /* under it, as are changes of vb_clock */

static bool is_ours(const struct vb_clock *clock)
{
	return clock->use_tsc == vb_clock.use_tsc &&
	       (!clock->use_tsc || memcmp(clock, &vb_clock, sizeof(*clock)) == 0);
}

int vb_clock_hold(const struct vb_clock *as)
{
	int err = 0;

	vb_clock_init();
	pthread_mutex_lock(&change);
	if (as != NULL && !is_ours(as)) {
		if (holders != 0)
			err = -EBUSY;
		else
			vb_clock = *as;
	}
	holders += err == 0;
	pthread_mutex_unlock(&change);
	return err;
}

void vb_clock_let(void)
{
	pthread_mutex_lock(&change);
	holders--;
	pthread_mutex_unlock(&change);
}
