/* SPDX-License-Identifier: Apache-2.0 */
/* Of copies.c, for who writes a copy by RPC (copies_call.c): what the first word of a copy says. */
#ifndef VB_TXN_COPIES_H
#define VB_TXN_COPIES_H

#include "txn/db.h"

enum copy_state { COPY_NONE, COPY_LOGGED, COPY_FINAL, COPY_WITHDRAWN };
#define COPY_STATE  3ull
#define COPY_SEALED 4ull
#define COPY_SHIFT  3u /* of those that count */
#define COPY_COUNTS (((1ull << VB_COPIES_MAX) - 1) << COPY_SHIFT)

/* Whichever copies count. */
static inline bool vb_copy_same(uint64_t word, uint64_t other)
{
	return ((word ^ other) & ~COPY_COUNTS) == 0;
}

/* What is written of a place: the end of its head, and the log. */
#define COPY_FROM offsetof(struct vb_place_head, log_bytes)

/* One try to have one copy say `logged`. */
struct vb_copy_call {
	unsigned copy;
	uint64_t was; /* what it is believed to say */
	/* What it said in place of that; `logged`: it says so now. */
	uint64_t old;
	uint64_t not_after_ns; /* of its verbs */
	int err;
	/* copies_call.c's own */
	struct vb_box box;
	struct vb_msg msg;
	vb_peer server;
	uint16_t node;
	bool open, over;
};

/* To n of them, each another's: all of `bytes` from `from`, and then the word; or the word alone, where there are none,
 * or it is `logged` already but for those that count. */
void vb_copies_call(struct vb_coordinator *me, uint32_t place, uint64_t logged,
		    const unsigned char *from, uint32_t bytes, struct vb_copy_call *call,
		    unsigned n);

#endif
