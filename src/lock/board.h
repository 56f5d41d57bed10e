/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boards: what the clients of a visible lock space hold and await, for observers (`verbena dump`,
 * `verbena top`).
 *
 * Lock words do not tell who waits, and most do not tell who holds.  So each client of a visible
 * space has a slot on its own node's board, which it alone writes, with plain stores, at the
 * beginning and the end of a wait and at a release.  Others READ it.
 *
 *	region "board:SPACE" of each node with clients:
 *	+--------+-------------------------------+------+-----
 *	| header | slot 0: who, waits for, holds | slot | ...
 *	+--------+-------------------------------+------+-----
 *
 * A slot that is read while it is written may be half old and half new.  An observer that draws
 * conclusions from several slots reads them twice: what is the same both times, its `since_ns` too,
 * was so in between.
 *
 * Costs a client two looks at the clock and some ten stores per acquire.  The protocols know
 * nothing of it.
 */
#ifndef VB_LOCK_BOARD_H
#define VB_LOCK_BOARD_H

#include "lock/lock.h"

/* How many clients of a node, and locks of a client, are shown; the others are only counted. */
#define VB_BOARD_SLOTS 256u
#define VB_BOARD_HELD  32u
#define VB_BOARD_HOT   16u
#define VB_BOARD_NAME  32u

struct vb_board_lock {
	/* 1 + the lock; 0: none. */
	uint64_t lock1;
	uint64_t mode;
	/* In the time that all clients have in common. */
	uint64_t since_ns;
};

/*
 * The locks that a client has spent most time waiting for (Metwally, Agrawal, El Abbadi 2005,
 * "space saving"): a lock that has no entry takes over the entry with the least time, and that time
 * with it, as the part that may be due to others.
 */
struct vb_board_hot {
	uint64_t lock1, times;
	uint64_t wait_ns, longest_ns;
	/* At most so much of wait_ns was spent on other locks. */
	uint64_t owed_ns;
};

struct vb_board_slot {
	/* vb_peer of its client; 0: free. */
	uint64_t peer;
	uint64_t pid, index;
	/* Grants so far, how long they waited in all, and the longest of those waits. */
	uint64_t acquires, wait_ns, longest_ns;
	/* How many locks are held that are not in `held`. */
	uint64_t unseen;
	struct vb_board_lock wait;
	struct vb_board_lock held[VB_BOARD_HELD];
	struct vb_board_hot hot[VB_BOARD_HOT];
	uint64_t reserved[6];
};

struct vb_board_header {
	uint64_t magic;
	char protocol[VB_BOARD_NAME];
	/* unseen: how many clients have no slot, with those that died so. */
	uint64_t locks, unseen;
	uint64_t reserved;
};

_Static_assert(sizeof(struct vb_board_slot) % VB_CACHELINE == 0 &&
		       sizeof(struct vb_board_header) % VB_CACHELINE == 0,
	       "two clients' slots share no line");

#define VB_BOARD_BYTES                                                                             \
	(sizeof(struct vb_board_header) + VB_BOARD_SLOTS * sizeof(struct vb_board_slot))

/* ---- the client's side ---- */

/* Takes a slot for a client whose endpoint is open; me->board stays NULL if there is none left or
 * the space is not visible.  -ENOSPC, -ENOMEM, logged: no room for the board. */
int vb_board_join(struct vb_lock_client *me);
void vb_board_leave(struct vb_lock_client *me);

/* Call these only with me->board. */
void vb_board_waits(struct vb_lock_client *me, uint64_t lock, enum vb_mode mode);
/* The wait is over: granted (c) or not (NULL). */
void vb_board_ends(struct vb_lock_client *me, const struct vb_claim *c);
void vb_board_gives_up(struct vb_lock_client *me, uint64_t lock);

/* ---- the observer's side ---- */

struct vb_board_view {
	struct vb_board_header head;
	/* When it was read. */
	uint64_t now_ns;
	/* How many slots are taken, and of each its node, whether its client is alive as far as the
	 * fabric knows, and the slot. */
	unsigned n;
	uint16_t *node;
	bool *alive;
	struct vb_board_slot *slot;
};

/*
 * Reads the boards of all nodes, with READs.  `space`: the lock space's name.
 *
 *   -ENOENT  there is no visible lock space of that name (logged)
 *   -ENOMEM, and what READ returns
 */
int vb_board_view(struct vb_ep *ep, const char *space, struct vb_board_view *out);
void vb_board_view_free(struct vb_board_view *v);

#endif
