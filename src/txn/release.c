/* SPDX-License-Identifier: Apache-2.0 */
/* How a transaction lets go what it holds, committed or not. */
#include "base/sometimes.h"
#include "txn/db.h"

#define RELEASE_TRIES 8u
#define SILENT_TRIES  3u /* of a server that lives and does not answer */

/* What a server that has not been told not to may still give us. */
static void may_come_yet(struct vb_item **items, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (items[i]->flags & (VB_ITEM_MAYBE | VB_ITEM_MAYBE_S))
			items[i]->status = VB_TXN_FABRIC;
}

/* A link may have been down for a moment only, and a server may wait for a core. */
static bool may_answer_yet(struct vb_txn *t, unsigned n)
{
	struct vb_coordinator *me = t->me;
	struct vb_db *db = me->db;

	for (unsigned i = 0; i < n; i++) {
		uint16_t node = vb_table_node(t->some[i]->table, t->some[i]->key);
		vb_addr at = db->region[node] + offsetof(struct vb_db_header, server);
		uint64_t server = 0;

		if (t->some[i]->status == 0)
			continue;
		if (vb_read64(me->ep, at, &server) != 0 || server == 0 ||
		    !vb_peer_alive(db->fabric, server))
			return false;
	}
	return true;
}

/* Until it is known that nothing of t->some is held any more; what cannot be known taints the name. */
void vb_txn_release(struct vb_txn *t, struct vb_lane *lane, unsigned n)
{
	struct vb_coordinator *me = t->me;
	unsigned stage = me->db->cc->release;
	int error = t->error;

	for (unsigned tries = 0; tries < RELEASE_TRIES; tries++) {
		bool done = true, told = true;
		unsigned asked;

		t->error = 0;
		VB_SOMETIMES_IF(tries > 0, 100, "txn: a release is repeated");
		if (tries > 0)
			vb_txn_wait_out(me, me->db->fabric->caps.verb_bound_ns);
		if (vb_cc_sequenced(me->db->cc))
			told = vb_txn_write_floors(t, lane, t->some, n) == 0;
		/* Those whose server may still do what it was asked to: the release must come to it
		 * behind that. */
		asked = vb_items_to_front(t->some, n, VB_ITEM_ASKED, 0);
		if (asked > 0)
			vb_call_stage(t, stage, t->some, asked);
		if (n > asked && !(me->db->rpc_stages & 1u << stage))
			(void)vb_txn_place_items(t, t->some + asked, n - asked);
		if (n > asked)
			vb_stage_run(t, lane, stage, t->some + asked, n - asked);
		if (!told)
			may_come_yet(t->some, n);
		for (unsigned i = 0; i < n; i++)
			done &= t->some[i]->status == 0;
		if (done || (t->error == -VB_EPEERGONE &&
			     (tries + 1 >= SILENT_TRIES || !may_answer_yet(t, n))))
			break;
	}
	for (unsigned i = 0; i < n; i++)
		t->kept |= t->some[i]->status != 0;
	t->tainted |= t->kept;
	t->error = error;
}
