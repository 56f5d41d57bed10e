/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What it costs this machine to wake a thread, from the moment at which the kernel knows why: a halted
 * core of a virtual machine takes a hundred microseconds, one that is busy or does not halt ten.
 *
 * Measured with timers that fire while this thread sleeps: what is late of that is the waking.  The
 * median of few, because somebody else may have the core just then.
 */
#define VB_LOG_ROOM "net"
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/net/net.h"

#define ROUNDS   5u
#define SLEEP_NS 150000ull
#define LEAST_NS 20000ull
#define MOST_NS  400000ull

/* How late; UINT64_MAX: not measured. */
static uint64_t late(int fd)
{
	uint64_t at = vb_clock_gettime_ns() + SLEEP_NS, now, fired;
	const struct itimerspec when = {.it_value = {.tv_sec = (time_t)(at / 1000000000),
						     .tv_nsec = (long)(at % 1000000000)}};

	if (timerfd_settime(fd, TFD_TIMER_ABSTIME, &when, NULL) != 0 ||
	    read(fd, &fired, sizeof(fired)) != sizeof(fired))
		return UINT64_MAX;
	now = vb_clock_gettime_ns();
	return now > at ? now - at : 0;
}

uint64_t net_spin_of_wake(void)
{
	uint64_t ns[ROUNDS], spin_ns;
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);

	if (fd < 0)
		return MOST_NS;
	for (unsigned i = 0; i < ROUNDS; i++) {
		uint64_t one = late(fd);
		unsigned j = i;

		for (; j > 0 && ns[j - 1] > one; j--)
			ns[j] = ns[j - 1];
		ns[j] = one;
	}
	close(fd);
	spin_ns = ns[ROUNDS / 2] > MOST_NS / 2 ? MOST_NS : 2 * ns[ROUNDS / 2];
	vb_debug("a wake costs %llu ns here", (unsigned long long)ns[ROUNDS / 2]);
	return spin_ns > LEAST_NS ? spin_ns : LEAST_NS;
}
