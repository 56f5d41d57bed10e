/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two-phase locking and two-phase commit by votes (Barthels et al., PVLDB 2019, sections 3.1 to 3.3).  The paper's
 * transaction agent is a coordinator, its server agent the server of a node.
 *
 *	lock      shared or exclusive, one-sided or by the agent of the record's node; the record comes with it.
 *	          Who has to wait does so for a bounded time (cc/bounded_wait.c)
 *	vote      only if something is written on another node.  Every agent with something that the transaction has
 *	          touched looks whether the locks are still the transaction's, and adds its vote to one word in the
 *	          coordinator's memory by one FAA; nobody sends the coordinator a message (txn/vote.c).
 *	          One-sided: the coordinator looks for itself, and there are no votes
 *	commit    the commit point; then WRITE and CAS ts -> 0 of each record
 *	release   CAS ts -> 0 of what was only read
 *
 * Words: those of -sx (cc/two_phase.h).
 *
 *	coordinator        agent of A          agent of B
 *	lock a, b     -->  CAS, READ     -->   CAS, READ         one-sided: the coordinator's verbs
 *	vote          -->  READ a's lock -->   READ b's lock
 *	votes + yes  <--   FAA           <--   FAA
 *	looks: 2 yes
 *	status: committed
 *	WRITE a, CAS  -->                                        one doorbell each: whoever finds the lock free
 *	WRITE b, CAS  ------------------->                       finds the record written
 *
 * The flush.  The paper's records are written by verbs, and locks let go by a message to the agent: a flush must come
 * between the two, or the next one who is granted the lock reads what was there before.  Here what lets go is a CAS
 * of the WRITE's own doorbell, to the same node, and lands behind it (fabric/fabric.h): who sees the lock free has
 * taken it by an atomic, and his READ behind that sees the WRITE.  Without doorbells the CAS is posted when the WRITE
 * is complete; by RPC the agent does both.
 *
 * Who dies when: as under two-phase locking without votes.  The status word decides.  A coordinator that dies before
 * its commit point is rolled back by whoever meets its locks, however many have voted; behind it, rolled forward.  An
 * agent that dies or stands still does not vote: the transaction ends before its commit point, and is nobody's guess.
 *
 * Departs from the paper (why: doc/cc/votes.md):
 *   - locks are words of the tuples, and not the lock table's;
 *   - the votes' word is never zeroed, and a vote says whose it is (votes-as-published: it does not);
 *   - records are written behind the decision, so a no costs no undo;
 *   - the decision is a CAS of the status word, since there is recovery;
 *   - there is no message for the end: locks go with the writes.
 */
#include "cc/votes.h"

#include "txn/db.h"

/* Nodes of a transaction are counted up to here. */
#define AGENTS_MAX 64u

static void lock(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	two_phase_lock_sx(s, items, n, bounded_wait_judge);
}

/* Where the item's lock stands. */
static vb_addr held_word(const struct vb_item *it)
{
	if (it->flags & VB_ITEM_HELD_X)
		return it->at + vb_item_layout(it)->lock_at;
	return it->at + VB_TUPLE_META_AT + (it->slot - 1u) * 8u;
}

/* Yes, if every lock is the transaction's. */
static void vote(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	uint64_t word[VB_STAGE_ITEMS];

	for (unsigned i = 0; i < n; i++) {
		word[i] = 0;
		if (items[i]->flags & (VB_ITEM_HELD_X | VB_ITEM_HELD_S))
			vb_acc_read(s->acc, VB_READ_DI, held_word(items[i]), &word[i], 8);
	}
	if (!vb_stage_go(s, items, n))
		return;
	for (unsigned i = 0; i < n; i++)
		items[i]->status = word[i] == s->ts ? 0 : VB_TXN_RECOVERED;
}

static uint16_t node_of(const struct vb_item *it)
{
	return vb_table_node(it->table, it->key);
}

/* Nodes with something that it has touched. */
static unsigned count_agents(const struct vb_txn *t)
{
	uint16_t agent[AGENTS_MAX];
	unsigned n = 0;

	for (unsigned i = 0; i < t->n && n < AGENTS_MAX; i++) {
		unsigned k = 0;

		while (k < n && agent[k] != node_of(&t->item[i]))
			k++;
		agent[k] = node_of(&t->item[i]);
		n += k == n;
	}
	return n;
}

static bool writes_elsewhere(const struct vb_txn *t)
{
	for (unsigned i = 0; i < t->n; i++)
		if (t->item[i].flags & VB_ITEM_WRITE && node_of(&t->item[i]) != t->me->node)
			return true;
	return false;
}

/* What was let go before the commit nobody answers for. */
static int prepare(struct vb_txn *t)
{
	if (t->me->db->timing)
		t->me->agents += count_agents(t);
	return writes_elsewhere(t) ? vb_txn_stage_all(t, VOTES_VOTE, 0, VB_ITEM_LET_GO) : 0;
}

const struct vb_stage_ops votes_stages[VOTES_STAGES] = {
	[VOTES_LOCK] = {.name = "lock", .flags = VB_STAGE_FETCHES | VB_STAGE_MAKES, .run = lock},
	[VOTES_VOTE] = {.name = "vote", .flags = VB_STAGE_VOTES, .run = vote},
	[VOTES_COMMIT] = {.name = "commit", .flags = VB_STAGE_WRITES, .run = two_phase_commit},
	[VOTES_RELEASE] = {.name = "release", .run = two_phase_release},
};

const struct vb_cc_ops vb_cc_votes = {
	.name = "votes",
	.summary = "bounded-wait-sx, and a vote of every server concerned before the commit point",
	.source = "Barthels et al., PVLDB 2019, sections 3.1 to 3.3",
	.caps = VOTES_CAPS,
	VOTES_OPS,
	.prepare = prepare,
};

const struct vb_cc_ops vb_cc_votes_as_published = {
	.name = "votes-as-published",
	.summary = "votes that do not say whose they are, so that a late one counts for the next "
		   "transaction",
	.source = "Barthels et al., PVLDB 2019, section 3.3, to the letter",
	.planted = "unasked",
	.caps = VOTES_CAPS | VB_CC_NAMELESS_VOTES,
	VOTES_OPS,
	.prepare = prepare,
};
