/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MCS queue lock over one-sided verbs and messages (seed 001, section 2.4, algorithm 1).
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
 *   NEXT       to the predecessor: who stands behind him    (C.next of the paper)
 *   YOURS      to the successor: the lock is his            (C.flag of the paper)
 *
 *   Promises   exclusive only, FIFO: nobody overtakes a client whose swap is done.  Does not survive
 *              the death of a holder or waiter: who stands behind the dead waits for ever.
 *
 *   Departs    from the paper in what it takes to live on a network that may repeat itself.
 *              The word has the claim's number beside the client's name, and each message bears the
 *              number of the claim it is meant for.  A message that was sent twice because its
 *              acknowledgement was lost would otherwise be taken for one of the client's next turn
 *              with the same lock, and hand it over twice.
 *              A release that waits for NEXT gives up after `successor_wait`: the successor died
 *              between its swap and its message, and the lock is lost for good.  The paper waits on.
 *              Without a native swap the fabric runs it as a CAS loop.
 */
#define VB_LOG_ROOM "lock"

#include <errno.h>
#include <inttypes.h>

#include "base/log.h"
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
	uint64_t self; /* our word */
	uint64_t next; /* the successor's; MCS_FREE while nobody is known */
	uint64_t prev; /* whom we stand behind, until he has been told; else MCS_FREE */
};

static int mcs_tell(struct vb_lock_client *me, struct vb_claim *c, uint64_t to, enum mcs_tag tag,
		    uint64_t until_ns)
{
	uint64_t self = vb_claim_as(struct mcs_claim, c)->self;

	return vb_handover_tell(me, c, to, tag, &self, sizeof(self), until_ns);
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
}

int mcs_resume(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	struct mcs_claim *g = vb_claim_as(struct mcs_claim, c);
	uint64_t from;
	int err;

	/* A deadline may come before a predecessor that stands still can be told; the husk goes on
	 * with it.  One that is dead leaves us where we are, for our successors know only us. */
	if (g->prev != MCS_FREE) {
		vb_phase(me, VB_PHASE_NP);
		if (mcs_tell(me, c, g->prev, MCS_NEXT, until_ns) == -ETIMEDOUT)
			return -ETIMEDOUT;
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
	err = vb_swap64(me->ep, c->entry, g->self, &prev);
	if (err)
		return err; /* the fabric has said why; if it was done, prev is lost and so is the
			       lock */
	if (prev == MCS_FREE)
		return vb_lock_grant(c, VB_FOREVER_NS, 0);

	/* We stand in the queue behind prev.  From here on we cannot simply walk away: prev will
	 * look for us, so a deadline leaves a husk that hands on when its turn comes.  That holds
	 * also when prev is dead: our successors know of nobody but us. */
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
	if (seen == MCS_FREE || (unsure && seen == g->self))
		return vb_lock_grant(c, VB_FOREVER_NS, 0);
	/* It may have been done, and somebody has enqueued behind us since. */
	return unsure ? -VB_EUNKNOWN : -EAGAIN;
}

/* Sets the word to free if we are still the last.  0: it is free.  -EAGAIN: somebody stands behind
 * us. */
static int mcs_leave(struct vb_lock_client *me, struct vb_claim *c, bool *unsure)
{
	struct mcs_claim *g = vb_claim_as(struct mcs_claim, c);
	uint64_t seen;
	int err = vb_lock_change(me, c->entry, g->self, MCS_FREE, &seen, unsure);

	if (err)
		return err;
	return seen == g->self || (*unsure && seen == MCS_FREE) ? 0 : -EAGAIN;
}

int mcs_release(struct vb_lock_client *me, struct vb_claim *c)
{
	const struct mcs_options *o = me->space->options;
	struct mcs_claim *g = vb_claim_as(struct mcs_claim, c);
	bool unsure = false;
	int err = 0;

	if (!vb_handover_heard(me, c, g->self, MCS_NEXT, &g->next, sizeof(g->next))) {
		err = mcs_leave(me, c, &unsure);
		if (err != -EAGAIN)
			return err;
		/* Somebody swapped behind us, and his message is still on its way. */
		vb_phase(me, VB_PHASE_NS);
		err = mcs_hear(me, c, MCS_NEXT, vb_ep_now(me->ep) + o->successor_wait, &g->next);
	}
	/* A CAS whose answer was lost may have freed the lock for those who are there now: then
	 * nobody stands behind us. */
	if (err == -ETIMEDOUT && unsure)
		return -VB_EUNKNOWN;
	if (err)
		return vb_fail(-VB_EUNKNOWN,
			       "lock %" PRIu64
			       " is lost: the client next in its queue has not shown "
			       "itself, it must have died",
			       c->lock);
	vb_phase(me, VB_PHASE_NS);
	return mcs_tell(me, c, g->next, MCS_YOURS, VB_FOREVER) ? -VB_EUNKNOWN : 0;
}

unsigned mcs_bypass_bound(unsigned clients, enum vb_mode mode)
{
	return 0;
}

const struct vb_lock_ops vb_lock_mcs = {
	.name = "mcs",
	.summary = "FIFO queue lock, handed over client to client",
	.source = "seed 001, algorithm 1",
	MCS_LOCK,
};
