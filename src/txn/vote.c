/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Votes of two-phase commit (Barthels et al., PVLDB 2019, section 3.3): a stage that votes (VB_STAGE_VOTES) and runs
 * by RPC has no answer.  The server of each node adds one number to one word of the transaction's place, by one FAA,
 * and the coordinator looks at that word until all have voted: no message comes to its CPU.
 *
 *	vote word   63                               14 13          0
 *	           +-----------------------------------+-------------+
 *	           | sum of the clocks of who said yes | votes       |
 *	           +-----------------------------------+-------------+
 *
 *	yes   FAA (clock of the transaction's name) << 14 | 1          no   FAA 1
 *
 * Nobody sets the word to 0: a coordinator reads it before it asks, and takes the difference.  In the paper it is
 * zeroed and yes is + 1, so that the late vote of a transaction which has been given up counts for the next one of
 * the place:
 *
 *	coordinator   T asks A, B; A's vote; B is slow: T ends     U asks A, B; A's vote                   2 of 2: commits
 *	B                                                                       T's request: + 1    U's request: not yet
 *
 * Here the difference says whose the votes are.  Names of a place only grow, also from one coordinator to the next,
 * so a late vote is of a smaller clock, as a no is, whose clock is 0.  n votes whose clocks add up to n times ours are
 * n yes to ours; and each request is voted on once at most, so that is everybody.  A late vote among the n spoils the
 * vote, as a no would: who has asked tries again.  So whoever votes may not try again under its name (VB_CC_AGE); and
 * a transaction that has not had all votes of one round ends with it.
 *
 * n is VB_CALLS_MAX at most, and 8 clocks of 46 bits fit in the sum.  Votes would overflow into it if 16,000 were late
 * at once, each of a request that its coordinator has given up, of which it makes 8 at a time.
 *
 * What decides is the status word, as for every protocol: whoever recovers the transaction makes its commit point
 * fail, however many have said yes.  A vote says that a server is there and that the locks are the transaction's.
 */
#define VB_LOG_ROOM "txn"
#include "base/log.h"
#include "base/sometimes.h"
#include "txn/db.h"

#define VOTES_BITS 14u
#define VOTES_MASK ((1ull << VOTES_BITS) - 1)
#define FIRST_NS   500ull
#define LOOKS_MOST 8u

uint64_t vb_vote(uint64_t ts, bool yes)
{
	return yes ? vb_ts_clock(ts) << VOTES_BITS | 1 : 1;
}

/* of: how many were asked; since: what the word has grown by.  1: all have said yes; 0: some have yet to vote; -1:
 * one has said no, or a vote is not ours. */
int vb_votes_say(uint64_t ts, unsigned of, uint64_t since)
{
	if ((since & VOTES_MASK) < of)
		return 0;
	return since == of * vb_vote(ts, true) ? 1 : -1;
}

/* Whose a vote on it says to be: of votes-as-published, every transaction's of the place. */
static uint64_t name_of(const struct vb_db *db, uint64_t ts)
{
	return db->cc->caps & VB_CC_NAMELESS_VOTES ? vb_ts_make(1, vb_ts_place(ts)) : ts;
}

vb_addr vb_vote_word(const struct vb_db *db, uint64_t ts)
{
	return vb_db_place(db, vb_ts_place(ts)) + offsetof(struct vb_place_head, votes);
}

bool vb_vote_is_of(const struct vb_db *db, uint64_t ts, uint16_t node, uint32_t coordinator)
{
	return vb_ts_place(ts) / VB_PLACES_EACH == node * db->coordinators + coordinator;
}

void vb_vote_cast(const struct vb_db *db, uint16_t node, uint64_t ts, bool yes, struct vb_verb *v)
{
	*v = (struct vb_verb){.op = VB_OP_FAA64,
			      .flags = VB_SIGNALLED,
			      .addr = vb_vote_word(db, ts),
			      .compare.lo = vb_vote(name_of(db, ts), yes)};
	if (db->watch != NULL && db->watch->voted != NULL)
		db->watch->voted(db->watch->ctx, ts, node, yes);
}

/* Its own memory; where the device's atomics are not the CPU's, by way of the device. */
static int look(struct vb_txn *t, uint64_t *word)
{
	struct vb_acc *acc = &vb_txn_lane(t->me)->acc;

	vb_acc_read(acc, VB_READ_TM, vb_vote_word(t->me->db, t->ts), word, 8);
	return vb_acc_go(acc);
}

int vb_ballot_open(struct vb_txn *t, struct vb_ballot *b)
{
	const struct vb_db *db = t->me->db;

	b->until_ns = db->recovery || t->hurried ? t->deadline_ns
						 : vb_ep_now(t->me->ep) + db->patience_ns;
	b->of = 0;
	return look(t, &b->before);
}

/*
 * Nobody is told when a vote comes.  The pauses grow as what has passed does, so what is lost by one is a share of
 * that; and become so long that a thread sleeps in them (fabric/shm/wait.c), and a server that has been waiting for a
 * core has ours.
 */
static int pause(struct vb_txn *t, const struct vb_ballot *b, unsigned looks)
{
	const uint64_t most = LOOKS_MOST * t->me->db->look_ns;
	uint64_t ns = FIRST_NS << (looks < 10 ? looks : 10), now = vb_ep_now(t->me->ep);

	if (now >= b->until_ns)
		return -ETIMEDOUT;
	ns = ns < most ? ns : most;
	return vb_ep_sleep(t->me->ep, ns < b->until_ns - now ? ns : b->until_ns - now);
}

int vb_ballot_count(struct vb_txn *t, const struct vb_ballot *b)
{
	uint64_t word;

	for (unsigned looks = 0;; looks++) {
		int err = look(t, &word), says;

		if (err != 0)
			return err;
		says = vb_votes_say(name_of(t->me->db, t->ts), b->of, word - b->before);
		VB_SOMETIMES_IF(says < 0, 2000, "votes: somebody says no, or is late");
		if (says != 0)
			return says > 0 ? 0 : -EAGAIN;
		for (unsigned i = 0; i < b->of; i++)
			if (!vb_peer_alive(t->me->db->fabric, b->voter[i]))
				return -VB_EPEERGONE;
		err = pause(t, b, looks);
		if (err != 0)
			return err;
	}
}
