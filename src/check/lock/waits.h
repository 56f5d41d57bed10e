/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who waits for whom: the wait-for graph of what clients show on their boards (lock/board.h), and
 * the cycles in it.
 *
 * A client waits for every other that holds the lock it wants in a mode that excludes its own; where
 * the lock is a queue that nobody is passed in, also for those who wait ahead of it for a mode that
 * does, and for whoever converts the lock while it is wanted.  Who is ahead, the times tell at which
 * the calls began: whoever called less than VB_WAITS_APART_NS before is taken for ahead by nobody,
 * for a call needs a moment to come to its place.
 *
 * With locks that are all needed, each cycle is a deadlock, and stays one until somebody gives up.
 * So for cycles only what is the same in two views is taken, what has *settled*: a wait that was
 * under way all the time, a lock that was held all the time.  No cycle is told that was only a
 * picture taken in motion.
 */
#ifndef VB_CHECK_LOCK_WAITS_H
#define VB_CHECK_LOCK_WAITS_H

#include "lock/board.h"

/* One lock, one holder: sorted by lock, then client. */
struct vb_waits_hold {
	uint64_t lock, since_ns;
	enum vb_mode mode;
	unsigned client; /* its index in the later view */
	bool settled;
};

/* One lock, one who waits for it: sorted like the holds. */
struct vb_waits_wait {
	uint64_t lock;
	unsigned client;
};

#define VB_WAITS_APART_NS 20000ull

struct vb_waits {
	const struct vb_board_view *view; /* the later one, the caller's */
	const struct vb_lock_ops *fifo;   /* the protocol, if waiters wait for waiters; NULL */
	unsigned n_holds, n_waits, n_queued, n_cycles;
	struct vb_waits_hold *hold;
	struct vb_waits_wait *queued; /* who has waited since the earlier view */
	bool *waits, *settled;        /* [view->n]: waits; and has since the earlier view */
	/* Each client's next in the cycle it is part of, or itself: cycles have no client in
	 * common. */
	unsigned *next;
	unsigned *cycle; /* [n_cycles]: one client of each */
};

/* Views of one lock space, `before` read before `view`; they may be the same.  -ENOMEM, said. */
int vb_waits_find(const struct vb_board_view *before, const struct vb_board_view *view,
		  struct vb_waits *out);
void vb_waits_free(struct vb_waits *w);
/* The holders of a lock: *n of them, from the one returned. */
const struct vb_waits_hold *vb_waits_holders(const struct vb_waits *w, uint64_t lock, unsigned *n);

#endif
