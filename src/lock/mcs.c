/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MCS queue lock over one-sided verbs and messages (ShiftLock, section 2.4, algorithm 1).
 *
 *   lock word, 64 bits          63            48 47           24 23                    0
 *                              +----------------+---------------+----------------------+
 *                              | tail node + 1  | tail client   | tail's claim number  |
 *                              +----------------+---------------+----------------------+
 *                               0 = free         (node, client) = last in the queue
 *
 *   acquire    uncontended 1 swap                 contended + 1 SEND, then waits locally
 *   release    uncontended 1 CAS to free          contended 1 SEND (hand over), after a failed CAS
 *                                                 if the successor was not known yet
 *
 *   NEXT       to the predecessor: the name of its successor   (C.next of the paper)
 *   YOURS      to the successor: the lock is handed over       (C.flag of the paper)
 *
 *   Promises   exclusive only, FIFO: nobody overtakes a client whose swap is done.  Does not
 *              survive the death of a holder or waiter: who is behind the dead one waits for ever.
 *
 * Departs from the paper (why: doc/locks/mcs.md):
 *   - the word and each message bear the number of the claim, since a network may repeat a message;
 *   - a message is sent again until it is certain that it was delivered;
 *   - a release that waits for NEXT gives up after `successor_wait`;
 *   - without a native swap the fabric runs it as a CAS loop.
 */
#define VB_LOG_ROOM "lock"

#include <errno.h>
#include <inttypes.h>

#include "base/log.h"
#include "base/sometimes.h"
#include "lock/handover.h"
#include "lock/mcs.h"

#define MCS_FREE VB_HANDOVER_NOBODY

enum mcs_tag { MCS_NEXT = 1, MCS_YOURS = 2 };

const struct vb_opt mcs_option_table[] = {
	VB_OPT_TIME(
		struct mcs_options, successor_wait, "successor_wait", "1s", 1000000,
		3600ull * 1000000000,
		"how long a release waits for the message of a successor that it knows is there"),
	VB_OPT_END,
};

struct mcs_claim {
	/* Our word. */
	uint64_t self;
	/* The successor's; MCS_FREE while it is not known. */
	uint64_t next;
	/* The predecessor's, until it has been told of us; else MCS_FREE. */
	uint64_t prev;
	/* It may have been. */
	uint8_t again;
};

static int mcs_tell(struct vb_lock_client *me, struct vb_claim *c, uint64_t to, enum mcs_tag tag,
		    uint8_t *again, uint64_t until_ns)
{
	uint64_t self = vb_claim_as(struct mcs_claim, c)->self;

	return vb_handover_tell(me, c, to, tag, &self, sizeof(self), again, until_ns);
}

/* Waits for the message that is meant for this claim. */
static int mcs_hear(struct vb_lock_client *me, struct vb_claim *c, enum mcs_tag tag,
		    uint64_t until_ns, uint64_t *from)
{
	uint64_t self = vb_claim_as(struct mcs_claim, c)->self;

	return vb_handover_hear(me, c, self, tag, from, sizeof(*from), until_ns);
}

static void mcs_begin(struct vb_lock_client *me, struct mcs_claim *g)
{
	const struct mcs_options *o = me->space->options;

	g->self = vb_handover_word(me, o->numberless);
	g->next = g->prev = MCS_FREE;
	g->again = 0;
}

int mcs_resume(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	struct mcs_claim *g = vb_claim_as(struct mcs_claim, c);
	uint64_t from;
	int err;

	/* A deadline may come before a predecessor that stands still can be told; then the proxy
	 * goes on telling it.  A dead predecessor changes nothing: our successors know only us. */
	if (g->prev != MCS_FREE) {
		vb_phase(me, VB_PHASE_NP);
		if (mcs_tell(me, c, g->prev, MCS_NEXT, &g->again, until_ns) == -ETIMEDOUT) {
			VB_SOMETIMES(2000, "mcs: a deadline before the predecessor could be told");
			return -ETIMEDOUT;
		}
		g->prev = MCS_FREE;
		vb_phase(me, VB_PHASE_WP);
	}
	err = mcs_hear(me, c, MCS_YOURS, until_ns, &from);
	if (err)
		return err;
	c->queued = false;
	return vb_lock_grant(c, VB_FOREVER_NS, 0);
}

int mcs_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	struct mcs_claim *g = vb_claim_as(struct mcs_claim, c);
	uint64_t prev;
	int err;

	mcs_begin(me, g);
	err = vb_lock_swap(me, c->entry, g->self, until_ns, &prev);
	/* Others were always faster, or the fabric has said why: if the swap was done, prev is lost and
	 * so is the lock. */
	if (err)
		return err;
	if (prev == MCS_FREE)
		return vb_lock_grant(c, VB_FOREVER_NS, 0);

	/* We stand in the queue behind prev.  From here on we cannot simply leave: prev will look
	 * for us, so a deadline leaves a proxy that hands on when its turn comes.  That holds also
	 * when prev is dead: our successors know only us. */
	vb_lock_mark_queued(me, c);
	g->prev = prev;
	return mcs_resume(me, c, until_ns);
}

int mcs_try(struct vb_lock_client *me, struct vb_claim *c)
{
	struct mcs_claim *g = vb_claim_as(struct mcs_claim, c);
	bool unsure = false;
	uint64_t seen;
	int err;

	mcs_begin(me, g);
	err = vb_lock_change(me, c->entry, MCS_FREE, g->self, &seen, &unsure);
	if (err)
		return err;
	VB_SOMETIMES_IF(unsure && seen == g->self, 2000, "mcs: a try whose lost answer was yes");
	if (seen == MCS_FREE || (unsure && seen == g->self))
		return vb_lock_grant(c, VB_FOREVER_NS, 0);
	VB_SOMETIMES_IF(unsure, 1000, "mcs: a try that may have enqueued");
	/* It may have been done, and somebody has enqueued behind us since. */
	return unsure ? -VB_EUNKNOWN : -EAGAIN;
}

/* Sets the word to free if we are still the last.  0: it is free; -EAGAIN: there is a successor. */
static inline int mcs_leave(struct vb_lock_client *me, struct vb_claim *c, bool *unsure)
{
	struct mcs_claim *g = vb_claim_as(struct mcs_claim, c);
	uint64_t seen;
	int err = vb_lock_change_back(me, c->entry, g->self, MCS_FREE, &seen, unsure);

	if (err)
		return err;
	return seen == g->self || (*unsure && seen == MCS_FREE) ? 0 : -EAGAIN;
}

static inline bool mcs_knows_next(struct vb_lock_client *me, struct vb_claim *c)
{
	struct mcs_claim *g = vb_claim_as(struct mcs_claim, c);

	return g->next != MCS_FREE ||
	       vb_handover_heard(me, c, g->self, MCS_NEXT, &g->next, sizeof(g->next));
}

int mcs_release_now(struct vb_lock_client *me, struct vb_claim *c)
{
	struct mcs_claim *g = vb_claim_as(struct mcs_claim, c);
	bool unsure = false;
	int err;

	if (mcs_knows_next(me, c))
		return vb_handover_tell_now(me, c, g->next, MCS_YOURS, &g->self, sizeof(g->self));
	err = mcs_leave(me, c, &unsure);
	return err == -EAGAIN ? -EINPROGRESS : err;
}

int mcs_release(struct vb_lock_client *me, struct vb_claim *c)
{
	const struct mcs_options *o = me->space->options;
	struct mcs_claim *g = vb_claim_as(struct mcs_claim, c);
	bool unsure = false;
	int err = 0;

	/* What has begun at once, and goes on, has looked. */
	if ((g->next == MCS_FREE && VB_CHANCE(200, "mcs: does not look for its successor first")) ||
	    !mcs_knows_next(me, c)) {
		err = mcs_leave(me, c, &unsure);
		if (err != -EAGAIN)
			return err;
		/* There is a successor, and its message is still on its way. */
		VB_SOMETIMES(200, "mcs: a release before the successor has told its name");
		vb_phase(me, VB_PHASE_NS);
		err = mcs_hear(me, c, MCS_NEXT,
			       vb_ep_now(me->ep) + vb_lock_wait_least(me->space, o->successor_wait),
			       &g->next);
	}
	/* A CAS whose answer was lost may have freed the lock, and others have it now: then we have
	 * no successor. */
	if (err == -ETIMEDOUT && unsure)
		return -VB_EUNKNOWN;
	if (err)
		return vb_fail(-VB_EUNKNOWN,
			       "lock %" PRIu64
			       " is lost: the client next in its queue has not shown "
			       "itself, it must have died",
			       c->lock);
	vb_phase(me, VB_PHASE_NS);
	return mcs_tell(me, c, g->next, MCS_YOURS, NULL, VB_FOREVER) ? -VB_EUNKNOWN : 0;
}

unsigned mcs_bypass_bound(unsigned clients, enum vb_mode mode)
{
	return 0;
}

const struct vb_lock_ops vb_lock_mcs = {
	.name = "mcs",
	.summary = "FIFO queue lock, handed over client to client",
	.source = "ShiftLock, algorithm 1",
	MCS_LOCK,
};
