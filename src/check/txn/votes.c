/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Under a protocol whose servers vote (txn/vote.c) nothing that is written on another node is committed before the
 * server of each node concerned has said yes to that very transaction.  What decides is the status word, so a vote
 * too few, or one that was meant for another, shows in no history: who has voted is noted as they do, and looked at
 * when a commit point has been passed.
 */
#include <inttypes.h>

#include "check/txn/world.h"

void txn_voted(void *ctx, uint64_t ts, uint16_t node, bool yes)
{
	struct txn_world *w = ctx;
	struct txn_votes *v = &w->votes[vb_ts_place(ts)];

	/* One that was given up may be voted on late. */
	if (!yes || ts < v->ts)
		return;
	if (ts > v->ts)
		*v = (struct txn_votes){.ts = ts};
	v->nodes |= 1u << node;
}

static bool votes_by_rpc(const struct vb_db *db)
{
	for (unsigned i = 0; i < db->cc->n_stages; i++)
		if (db->cc->stages[i].flags & VB_STAGE_VOTES && db->rpc_stages & 1u << i)
			return true;
	return false;
}

void txn_votes_judge(struct txn_world *w, const struct vb_txn *t)
{
	const struct txn_votes *v = &w->votes[vb_ts_place(t->ts)];
	uint32_t concerned = 0, said = v->ts == t->ts ? v->nodes : 0;
	bool elsewhere = false;

	if (!votes_by_rpc(w->db))
		return;
	for (unsigned i = 0; i < t->n; i++) {
		const struct vb_item *it = &t->item[i];
		uint16_t node = vb_table_node(it->table, it->key);

		if (it->flags & VB_ITEM_LET_GO)
			continue;
		concerned |= 1u << node;
		elsewhere |= it->flags & VB_ITEM_WRITE && node != t->me->node;
	}
	if (elsewhere && (concerned & ~said) != 0)
		txn_found(w, VB_TXN_RULE_UNASKED,
			  "%#" PRIx64
			  " of node %u has committed; nodes concerned (as bits) %#x, of "
			  "them said yes %#x",
			  t->ts, t->me->node, concerned, said);
}
