/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a commit has written down for others, when it has passed its commit point and when it has ended: its log in its
 * place, and in each copy that says that it has it.  As long as the transaction lives nobody reads them, so that a log
 * that is missing, torn or another's shows only where its coordinator dies in that moment, and of a copy only where
 * its home goes as well.
 */
#define VB_LOG_ROOM "check"
#include <inttypes.h>
#include <xxhash.h>

#include "check/txn/world.h"
#include "txn/copies.h"

static bool is_sound(const struct txn_world *w, vb_addr at, uint32_t room, uint64_t ts)
{
	const struct vb_place_head *head = vb_local(w->fabric, at, room);

	return head->log_bytes <= room - sizeof(*head) &&
	       XXH3_64bits_withSeed(head + 1, head->log_bytes, ts) == head->log_seal;
}

static bool has_log(const struct vb_txn *t)
{
	for (unsigned i = 0; i < t->n; i++)
		if (t->item[i].flags & VB_ITEM_WRITE)
			return t->me->db->recovery && t->ts != 0;
	return false;
}

/* Unsealed: nobody else has decided by it. */
static bool is_logged(const struct txn_world *w, vb_addr copy, uint64_t ts)
{
	const uint64_t *word = vb_local(w->fabric, copy, 8);
	const uint64_t state = *word & COPY_STATE;

	return vb_ts_clock(*word) == vb_ts_clock(ts) &&
	       (state == COPY_LOGGED || state == COPY_FINAL) && !(*word & COPY_SEALED) &&
	       !vb_node_gone(w->fabric, vb_addr_node(copy));
}

void txn_logs_judge(struct txn_world *w, const struct vb_txn *t)
{
	const struct vb_db *db = w->db;
	const uint32_t place = vb_txn_lane(t->me)->place;
	const uint32_t room = vb_db_place_bytes(db, place);
	const struct txn_slot *s = &w->slot[t->me->index];

	/* Whose home has given it up has told nobody else, and its place may be another's. */
	if (!has_log(t) || txn_is_beyond(w) || txn_is_outcast(s))
		return;
	if (!is_sound(w, vb_db_place(db, place), room, t->ts))
		txn_found(w, VB_TXN_RULE_LOST_WRITE,
			  "%#" PRIx64 " has committed, and its place has not its log", t->ts);
	for (unsigned i = 0; i < db->copies; i++) {
		const vb_addr copy = vb_copy_at(db, place, i);

		if (is_logged(w, copy, t->ts) && !is_sound(w, copy, room, t->ts))
			txn_found(w, VB_TXN_RULE_LOST_WRITE,
				  "%#" PRIx64 " has committed, and copy %u says that it has its "
				  "log, and has not",
				  t->ts, i);
	}
}
