/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded: a clock that NTP corrects, as far as it may.  CLOCK_MONOTONIC runs fast or slow by SLEW_PPM, which NTP
 * does by up to 500, from the moment SLEW_FROM (ns of the kernel's) on; CLOCK_REALTIME is stepped forth and back
 * by 1000 s each half minute, as far as ntpd steps it.  Only what asks the C library sees this.
 */
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SEC 1000000000ll

static int64_t of(const char *name)
{
	const char *text = getenv(name);

	return text != NULL ? strtoll(text, NULL, 10) : 0;
}

int clock_gettime(clockid_t id, struct timespec *t)
{
	static int64_t from, ppm;
	static int known;
	int err = (int)syscall(SYS_clock_gettime, id, t);
	int64_t ns;

	if (err != 0)
		return err;
	if (!__atomic_load_n(&known, __ATOMIC_ACQUIRE)) {
		__atomic_store_n(&from, of("SLEW_FROM"), __ATOMIC_RELAXED);
		__atomic_store_n(&ppm, of("SLEW_PPM"), __ATOMIC_RELAXED);
		__atomic_store_n(&known, 1, __ATOMIC_RELEASE);
	}
	if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)
		t->tv_sec += t->tv_sec / 30 % 2 != 0 ? 1000 : 0;
	if (id != CLOCK_MONOTONIC && id != CLOCK_MONOTONIC_COARSE && id != CLOCK_BOOTTIME)
		return 0;
	ns = t->tv_sec * SEC + t->tv_nsec;
	ns += (int64_t)((__int128)(ns - from) * ppm / 1000000);
	t->tv_sec = ns / SEC;
	t->tv_nsec = ns % SEC;
	return 0;
}
