/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes that are in place before it is decided whether they happen (VB_CC_INSTALLS), and what undoes them:
 *
 *	log           what each tuple is before, into the place's log, and its copies
 *	install       version and record of each tuple are written; its lock word stays the transaction's
 *	commit point  as in txn/commit.c, or what the protocol's `decide` makes of it
 *	committed     the lock words are let go
 *	aborted       undo: version and record are written as they were, and the lock words are let go
 *
 * Others may read what is installed, by the protocol's rules; nobody writes it while the lock word stands.  So
 * one write at most is to be undone of a record, and nothing is ever put back over a later one.
 *
 * Who recovers the transaction finds its log, or finds none and sets the lock words back.  In the second case
 * nothing may ever be installed:
 *
 *	verbs have a bound    The log is there before the first WRITE, and no WRITE is posted a lease after the
 *	                      transaction was named.  Who recovers it has seen its name twice, a lease and two
 *	                      bounds apart, and reads the log behind that.  So if he finds none, what would be
 *	                      installed later is refused; and if he finds one, all of it has landed.
 *	verbs complete at     A clock is of no use (txn/recover.c).  Between the log and the first store we CAS our
 *	once (shm)            status word, from running to running; who recovers it CASes that word from running to
 *	                      recovered before he reads the log.  One of the two comes first: he finds the log, or
 *	                      we find that we are recovered.  With a log, a living process is waited for, as past
 *	                      its commit point.
 *
 * Our own undo is WRITEs as well, and fenced in the same way: not posted a lease after the status word said that
 * the transaction has ended.  What is not undone so (it was too late, an answer to an install was lost or a call
 * given up, or others have recovered the transaction) is undone as they would, from our log, when no verb of ours
 * can still take effect.  If that fails, it is tried again before the place is named anew: then nobody could tell
 * any more that there was something to undo.
 */
#define VB_LOG_ROOM "txn"
#include "base/sometimes.h"
#include "txn/db.h"

/* ---- install ---- */

/* What it writes: their number. */
static unsigned pick_written(struct vb_txn *t)
{
	unsigned n = 0;

	for (unsigned i = 0; i < t->n; i++)
		if (t->item[i].flags & VB_ITEM_WRITE)
			t->some[n++] = &t->item[i];
	return n;
}

/* Nothing is installed that who recovers us does not know of. */
static int fence(struct vb_txn *t, struct vb_lane *lane)
{
	const struct vb_db *db = t->me->db;
	int err;

	if (!db->recovery)
		return 0;
	if (!(db->fabric->caps.flags & VB_CAP_INLINE)) {
		lane->acc.not_after_ns = t->named_ns + db->lease_ns;
		return 0;
	}
	err = vb_lane_status(t->me, lane, t->ts | VB_TS_RUNNING);
	if (err == 0)
		return 0;
	return err == 1 ? vb_txn_doom(t, VB_TXN_RECOVERED, 0) : vb_txn_doom(t, VB_TXN_FABRIC, err);
}

/* Why it ends, if not all of it is in place. */
static int judge_installed(struct vb_txn *t, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		uint8_t status = t->some[i]->status;

		if (vb_likely(status == 0))
			continue;
		if (status == VB_TXN_FABRIC && t->error == -VB_ETOOLATE)
			return vb_txn_doom(t, VB_TXN_TIMEOUT, 0);
		return vb_txn_doom(t, (enum vb_txn_cause)status,
				   status == VB_TXN_FABRIC ? t->error : 0);
	}
	t->installed = VB_TXN_INSTALLED;
	return 0;
}

int vb_txn_install(struct vb_txn *t)
{
	const struct vb_db *db = t->me->db;
	struct vb_lane *lane = vb_txn_lane(t->me);
	unsigned n = pick_written(t);
	int err;

	if (db->recovery)
		vb_txn_write_log(t, lane);
	if (n == 0)
		return 0;
	err = vb_lane_log_now(t->me, lane);
	if (err != 0)
		return vb_txn_doom(t, VB_TXN_FABRIC, err);
	err = vb_txn_copy_undo(t, lane);
	if (err == 0)
		err = fence(t, lane);
	if (err != 0)
		return err;
	t->installed = VB_TXN_PERHAPS_INSTALLED;
	vb_stage_run(t, lane, db->cc->install, t->some, n);
	lane->acc.not_after_ns = 0;
	return judge_installed(t, n);
}

/* ---- undo ---- */

/* True: they are as they were, and free. */
static bool undo_items(struct vb_txn *t, struct vb_lane *lane, struct vb_item *was, unsigned n)
{
	struct vb_item *items[VB_STAGE_ITEMS];
	bool done = true;

	for (unsigned i = 0; i < n; i++)
		items[i] = &was[i];
	vb_stage_run(t, lane, t->me->db->cc->undo, items, n);
	for (unsigned i = 0; i < n; i++)
		done &= was[i].status == 0;
	vb_txn_count_lost(t->me, was, n);
	return done;
}

/* The items stay what the transaction has made of them, for whoever writes its history. */
static bool undo_all(struct vb_txn *t, struct vb_lane *lane, uint64_t not_after_ns)
{
	struct vb_item was[VB_STAGE_ITEMS];
	bool done = true;
	unsigned n = 0;

	lane->acc.not_after_ns = not_after_ns;
	for (unsigned i = 0; i < t->n; i++) {
		if (!(t->item[i].flags & VB_ITEM_WRITE))
			continue;
		was[n] = t->item[i];
		was[n].image = vb_item_before(&was[n]);
		was[n].next = vb_tuple_word(was[n].image, vb_item_layout(&was[n])->version_at);
		if (++n < VB_STAGE_ITEMS)
			continue;
		done &= undo_items(t, lane, was, n);
		n = 0;
	}
	if (n > 0)
		done &= undo_items(t, lane, was, n);
	lane->acc.not_after_ns = 0;
	return done;
}

static void undo_by_log(struct vb_txn *t, struct vb_lane *lane)
{
	const struct vb_db *db = t->me->db;

	VB_SOMETIMES(100, "to-cascade: what was installed is undone from the own log");
	t->tainted = true;
	vb_txn_wait_out(t->me, db->fabric->caps.verb_bound_ns);
	lane->unacknowledged = db->recovery && vb_lane_finish(t->me, lane) != 0;
	t->kept |= lane->unacknowledged || !db->recovery;
}

void vb_txn_undo(struct vb_txn *t, struct vb_lane *lane, uint64_t since_ns)
{
	const uint16_t lock =
		VB_ITEM_HELD_X | VB_ITEM_HELD_S | VB_ITEM_MAYBE | VB_ITEM_MAYBE_S | VB_ITEM_ASKED;
	const struct vb_db *db = t->me->db;
	int error = t->error;
	bool done = false;

	/* Without recovery nobody else writes there, however late it is. */
	if (!db->recovery && t->installed == VB_TXN_PERHAPS_INSTALLED)
		vb_txn_wait_out(t->me, db->fabric->caps.verb_bound_ns);
	if (!db->recovery)
		done = undo_all(t, lane, 0);
	else if (t->installed == VB_TXN_INSTALLED && since_ns != 0 &&
		 (db->copies == 0 || vb_copies_give_up(t->me, lane, t->ts)))
		done = undo_all(t, lane, since_ns + db->lease_ns);
	t->error = error;
	for (unsigned i = 0; i < t->n; i++)
		if (t->item[i].flags & VB_ITEM_WRITE)
			t->item[i].flags &= (uint16_t)~lock;
	if (vb_unlikely(!done))
		undo_by_log(t, lane);
}
