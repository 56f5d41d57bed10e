/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each lock promises, written down a second time, from its page in doc/locks, and not taken
 * from the lock's own word.  The suite goes by this table: a lock that loses a capability fails in
 * `caps` and in the cases that ask for it, and none of its cases turns into a skip.  A lock that the
 * library does not have (yet) is taken at its word.
 */
#ifndef TEST_LOCK_PROMISED_H
#define TEST_LOCK_PROMISED_H

#include <string.h>

#include "lock/lock.h"

/* What vb_lock_holder tells of who holds exclusively. */
enum told_name { TOLD_NOTHING, TOLD_NODE, TOLD_NAME };

struct promised {
	const char *lock;
	uint32_t caps;
	/* Of five clients, so many who came later may be granted before one who waits. */
	unsigned pass_writer, pass_reader;
	bool in_turn;   /* first come, first served, readers and writers alike */
	unsigned cases; /* of the suite, on sim, to their ends */
	enum told_name told;
};

#define S_X (VB_LOCK_SHARED | VB_LOCK_EXCLUSIVE)

static const struct promised promises[] = {
	{.lock = "cas", .caps = VB_LOCK_EXCLUSIVE, .cases = 15, .told = TOLD_NAME},
	{.lock = "cas-backoff", .caps = VB_LOCK_EXCLUSIVE, .cases = 15, .told = TOLD_NAME},
	{.lock = "retry-on-fail", .caps = S_X, .cases = 16, .told = TOLD_NODE},
	{.lock = "drtm", .caps = S_X | VB_LOCK_READ_LEASE, .cases = 16, .told = TOLD_NAME},
	{.lock = "mcs",
	 .caps = VB_LOCK_EXCLUSIVE | VB_LOCK_FIFO | VB_LOCK_MESSAGES,
	 .in_turn = true,
	 .cases = 16},
	{.lock = "ncosed",
	 .caps = S_X | VB_LOCK_FIFO | VB_LOCK_MESSAGES | VB_LOCK_LEAVE_RACES,
	 .in_turn = true,
	 .cases = 18},
	{.lock = "dslr",
	 .caps = S_X | VB_LOCK_FIFO | VB_LOCK_SURVIVES,
	 .in_turn = true,
	 .cases = 19},
	{.lock = "dslr-update",
	 .caps = S_X | VB_LOCK_UPDATE | VB_LOCK_FIFO | VB_LOCK_SURVIVES,
	 .in_turn = true,
	 .cases = 20},
	/* c * (c / N + 2) and N - 1, with N = 16 writers before the readers' turn. */
	{.lock = "shiftlock",
	 .caps = S_X | VB_LOCK_FIFO | VB_LOCK_SURVIVES | VB_LOCK_TOKEN | VB_LOCK_SERVER |
		 VB_LOCK_MESSAGES,
	 .pass_writer = 10,
	 .pass_reader = 15,
	 .cases = 18},
	{.lock = "rpc",
	 .caps = S_X | VB_LOCK_SURVIVES | VB_LOCK_TOKEN | VB_LOCK_SERVER,
	 .cases = 17,
	 .told = TOLD_NAME},
	{.lock = "traditional",
	 .caps = S_X | VB_LOCK_FIFO | VB_LOCK_SURVIVES | VB_LOCK_TOKEN | VB_LOCK_SERVER,
	 .in_turn = true,
	 .cases = 19,
	 .told = TOLD_NAME},
	/* Ten readers. */
	{.lock = "traditional-ro",
	 .caps = S_X | VB_LOCK_FIFO | VB_LOCK_SURVIVES | VB_LOCK_TOKEN | VB_LOCK_SERVER,
	 .pass_writer = 10,
	 .cases = 18,
	 .told = TOLD_NAME},
	{.lock = "rma-rw", .caps = S_X | VB_LOCK_MESSAGES, .cases = 16},
	{.lock = "table",
	 .caps = S_X | VB_LOCK_FIFO | VB_LOCK_SURVIVES | VB_LOCK_TOKEN | VB_LOCK_SERVER |
		 VB_LOCK_UPDATE | VB_LOCK_INTENT | VB_LOCK_DENIES,
	 .in_turn = true,
	 .cases = 20,
	 .told = TOLD_NAME},
};

/* NULL: the library has no such lock. */
static const struct promised *promised_of(const char *lock)
{
	for (size_t i = 0; i < VB_ARRAY_SIZE(promises); i++)
		if (strcmp(promises[i].lock, lock) == 0)
			return &promises[i];
	return NULL;
}

#endif
