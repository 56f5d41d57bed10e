/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads that are over before the commit: what isolation levels below serializable let go (Gray and Reuter
 * 1993, section 7.6; Barthels et al., PVLDB 2019, take them from MySQL).
 *
 *	serializable      nothing: every read is held until the end
 *	repeatable read   that there is no record: locks on items are long, the one on their absence is short
 *	read committed    every read
 *
 * At a snapshot nothing is locked for reading, and what was read stays as it is.
 *
 * The lock that was taken for the read is given back right behind it, by the protocol's release stage.  Where
 * reads hold no locks (VB_CC_READ_LOCKS), the stage that reads leaves nothing behind that others would have to
 * heed, and says so (VB_ITEM_LET_GO).  What then is in the item is a copy of its own: another call on the key
 * makes another item.
 */
#define VB_LOG_ROOM "txn"
#include "txn/db.h"

static bool is_held(const struct vb_item *it)
{
	return it->flags & (VB_ITEM_HELD_X | VB_ITEM_HELD_S);
}

bool vb_txn_reads_short(const struct vb_txn *t, const struct vb_item *it)
{
	if (vb_likely(t->isolation == VB_SERIALIZABLE) || t->isolation == VB_SNAPSHOT || t->whole)
		return false;
	return t->isolation == VB_READ_COMMITTED || !vb_item_has_record(it);
}

/* What will be written stays locked. */
static bool is_short(const struct vb_txn *t, const struct vb_item *it)
{
	return vb_txn_reads_short(t, it) && !(it->flags & VB_ITEM_WRITE);
}

/*
 * A release whose answer is lost may land later.  Then the name must not hold the word again, and the lock
 * may still be there: the transaction ends, and what ends it releases once more.
 */
int vb_txn_let_go(struct vb_txn *t, struct vb_item **items, unsigned n)
{
	const uint16_t lock =
		VB_ITEM_HELD_X | VB_ITEM_HELD_S | VB_ITEM_MAYBE | VB_ITEM_MAYBE_S | VB_ITEM_ASKED;
	bool failed = false;

	vb_stage_run(t, vb_txn_lane(t->me), t->me->db->cc->release, items, n);
	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];

		failed |= it->status != 0;
		if (it->status == 0)
			it->flags = (uint16_t)((it->flags & ~lock) | VB_ITEM_LET_GO);
	}
	return failed ? vb_txn_doom(t, VB_TXN_FABRIC, t->error) : 0;
}

int vb_txn_end_read(struct vb_txn *t, struct vb_item *it)
{
	int err = 0;

	if (vb_likely(!is_short(t, it)))
		return 0;
	if (is_held(it))
		err = vb_txn_let_go(t, &it, 1);
	it->flags |= VB_ITEM_GIVEN;
	return err;
}

static unsigned pick_short(struct vb_txn *t)
{
	unsigned n = 0;

	for (unsigned i = 0; i < t->n; i++) {
		struct vb_item *it = &t->item[i];

		if (it->flags & VB_ITEM_FETCHED && is_held(it) && is_short(t, it))
			t->some[n++] = it;
	}
	return n;
}

int vb_txn_end_declared(struct vb_txn *t)
{
	unsigned n = t->isolation != VB_SERIALIZABLE ? pick_short(t) : 0;

	return n > 0 ? vb_txn_let_go(t, t->some, n) : 0;
}

int vb_txn_end_given(struct vb_txn *t)
{
	unsigned n = t->isolation != VB_SERIALIZABLE ? pick_short(t) : 0;
	int err = n > 0 ? vb_txn_let_go(t, t->some, n) : 0;

	for (unsigned i = 0; i < n; i++)
		t->some[i]->flags |= VB_ITEM_GIVEN;
	return err;
}
