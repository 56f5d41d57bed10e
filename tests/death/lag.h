/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a busy machine has kept from a process: for how long its first thread could run and was given
 * no core, as Linux counts it.  Who waits for a recovery is given as little as who recovers; so that is
 * taken off a wait before it is judged.  On a machine with nothing else to do it is next to nothing.
 */
#ifndef TEST_DEATH_LAG_H
#define TEST_DEATH_LAG_H

#include <inttypes.h>
#include <stdio.h>

#include "board.h"

/* Of a process so far; 0 where the kernel does not count it. */
static inline uint64_t lag_ns(pid_t pid)
{
	uint64_t ran, waited;
	char path[64];
	FILE *in;
	int n;

	snprintf(path, sizeof(path), "/proc/%d/schedstat", (int)pid);
	in = fopen(path, "r");
	if (in == NULL)
		return 0;
	n = fscanf(in, "%" SCNu64 " %" SCNu64, &ran, &waited);
	fclose(in);
	return n == 2 ? waited : 0;
}

/* What is left of a wait without that. */
static inline uint64_t lag_less(uint64_t took_ns, uint64_t lag)
{
	return took_ns > lag ? took_ns - lag : 0;
}

#endif
