/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calvin (RCC section 4.6, RCBench section 5.4, after Thomson et al. 2012): all transactions get their places in one
 * order before they run, and locks are given in that order.  So there are no deadlocks, and nobody ends because of a
 * conflict.  For that all that a transaction touches is declared before it touches anything.
 *
 *	           a coordinator of node 0          the server of node 0           the server of node 1
 *	submit     WRITE request, SEND         -->  waits for the open epoch
 *	sequence                                    closes it: WRITE batch, SEND -> sees the batch, closes its own,
 *	                                            has both batches:          <--  WRITE, SEND: has both, too
 *	schedule                                    queues what is of node 0        queues what is of node 1
 *	execute    <-- WRITE tuples, SEND           CAS lock, READ                  CAS lock, READ
 *	           <----------------------------------------------------------      WRITE tuples, SEND
 *	           has all that it has declared: the body runs here
 *	commit     CAS status; WRITE tuple, CAS lock -> 0, to each node's tuples: the next in the queue sees it there
 *
 * The words are those of -sx (cc/two_phase.h): the lock word has who writes, eight slots have who read.  But only a
 * node's server takes locks, one transaction after the other as the order is, and so nobody overtakes.  Batches and
 * barrier: txn/epoch.c.  Queue and floors: txn/queue.c.  The coordinator's part: txn/sequence.c.  Where it all lies,
 * and what it looks like: txn/epoch.h.
 *
 * Bounds, and what happens there:
 *
 *	a batch                as many requests as fit in 16 KiB, or one of the largest; others are of the next
 *	batches                two for each pair of nodes; nobody is more than one epoch ahead
 *	a queue                one transaction of each coordinator: that of its last request
 *	what is forwarded      16 KiB of tuples for each transaction and node; the others are READ by the coordinator
 *	readers of a record    eight; the next one waits
 *	how long one waits     its lease, or its timeout_ns; then it ends, and is another transaction
 *
 * Who dies when:
 *
 *	a coordinator     What it had is given back by those who wait for it for a lease and some (txn/recover.c), or
 *	                  rolled forward if it had committed.  What it still gets later, too: each in its turn.
 *	a server          before its batch of an epoch is there: the others wait half a lease and go on without it;
 *	                  what they want of its node waits until it, or another started in its place, has joined
 *	                  again.  Afterwards: whoever waits for its node's locks ends with its lease.  Locks that it
 *	                  has given are in the tuples, and stand.
 *	both, of a node   whoever needs the node's records is told -VB_EPEERGONE.
 *
 * Departs from the papers, where transactions are procedures which each node that is written to runs by itself
 * (doc/cc/calvin.md has why, and what is lost):
 *   - a transaction's body runs at its coordinator alone, which gets all values, and sends what is written;
 *   - so it may abort, and its outcome is in its status word and its log, and not in the order of inputs;
 *   - a node is sent what concerns it, and not all of every transaction;
 *   - readers share, and let go, by words in the tuples, and not in a lock table of the scheduler;
 *   - an epoch has no length: it is closed as soon as the last one is taken and somebody wants something.
 */
#include "cc/two_phase.h"

/* Whoever has it came before us in the order. */
static uint8_t judge(struct vb_stage *s, struct vb_item *it, uint64_t holder)
{
	(void)s;
	(void)it;
	(void)holder;
	return VB_ITEM_WAIT;
}

static void lock(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	two_phase_lock_sx(s, items, n, judge);
}

static void release(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	two_phase_release(s, items, n);
	/* Where it may have been given, and nobody could say where that is. */
	for (unsigned i = 0; i < n; i++)
		if (items[i]->at == 0 && items[i]->flags & (VB_ITEM_MAYBE | VB_ITEM_MAYBE_S))
			items[i]->status = VB_TXN_FABRIC;
}

static const struct vb_stage_ops stages[] = {
	[TWO_PHASE_LOCK] = {.name = "lock",
			    .flags = VB_STAGE_FETCHES | VB_STAGE_MAKES,
			    .run = lock},
	[TWO_PHASE_COMMIT] = {.name = "commit", .flags = VB_STAGE_WRITES, .run = two_phase_commit},
	[TWO_PHASE_RELEASE] = {.name = "release", .run = release},
};

const struct vb_cc_ops vb_cc_calvin = {
	.name = "calvin",
	.summary = "transactions in one order, agreed on before they begin; all is declared",
	.source = "RCC section 4.6, RCBench section 5.4",
	.caps = VB_CC_STRICT | VB_CC_READ_LOCKS | VB_CC_SHARED | VB_CC_SEQUENCED | VB_CC_AT_HOME,
	TWO_PHASE_SX_WORDS,
	.grant = TWO_PHASE_LOCK,
	TWO_PHASE_OPS(stages),
};
