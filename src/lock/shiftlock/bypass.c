/* SPDX-License-Identifier: Apache-2.0 */
/* How many may pass who waits for ShiftLock. */
#include <limits.h>

#include "lock/shiftlock/shiftlock.h"

/*
 * Writers are FIFO among themselves.  After a row of N the epoch flips; the first of it was there
 * before any reader that waits for that, so that at most N - 1 writers pass it.
 * A writer lets each reader pass once per flip, and there is a flip for every N writers ahead of
 * it, one for the part that is left, and one that the first of them may cause.
 */
static unsigned bypass_of_n(uint64_t n, unsigned clients, enum vb_mode mode)
{
	uint64_t bound = mode == VB_SHARED ? n - 1 : clients * (clients / n + 2);

	return bound < UINT_MAX ? (unsigned)bound : UINT_MAX;
}

unsigned shiftlock_bypass_bound(unsigned clients, enum vb_mode mode)
{
	return bypass_of_n(SL_WRITERS_MAX, clients, mode);
}

unsigned shiftlock_bypass_bound_of(const struct vb_lock_space *space, unsigned clients,
				   enum vb_mode mode)
{
	const struct sl_options *o = space->options;

	return bypass_of_n(o->max_writers, clients, mode);
}
