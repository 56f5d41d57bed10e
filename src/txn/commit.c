/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a transaction that may commit.
 *
 *	log           what each tuple will be, into the place's log: its node's memory, which outlives us
 *	commit point  CAS of the status word from running to committed: from now on the transaction has
 *	              happened, whoever finishes it; if others have wounded or recovered it, the CAS fails
 *	commit stage  version and record of each tuple are written, and its lock word is let go
 *	release       read locks are let go
 *
 * Without recovery there is no log, and without a status word (protocols that do not need one) the
 * commit point is the moment before the first WRITE.
 *
 * A WRITE to a tuple that landed after others have rolled the transaction forward and written again
 * would undo them.  So nothing of a commit stage is posted a lease after the commit point
 * (not_after_ns), a verb takes effect within the fabric's bound of its posting, and nobody takes a
 * lock over before both have passed (suspect_ns).  What then is not done is done as others would:
 * by recovery.
 */
#define VB_LOG_ROOM "txn"
#include <inttypes.h>

#include "base/log.h"
#include "base/sometimes.h"
#include "txn/db.h"

static uint32_t pad8(uint32_t n)
{
	return (n + 7) & ~7u;
}

/* The record as the commit leaves it; or, of what is in place by then, as it was. */
static void put_entry(const struct vb_db *db, const struct vb_item *it, struct vb_log_entry *e)
{
	const struct vb_tuple_layout *l = &it->table->layout;
	const bool undone = vb_cc_installs(db->cc);
	const unsigned char *image = undone ? vb_item_before(it) : it->image;

	*e = (struct vb_log_entry){
		.at = it->at,
		.held = it->held,
		.next = undone ? vb_tuple_word(image, l->version_at) : it->next,
		.was = undone ? it->next : vb_tuple_word(image, l->version_at),
		.table = it->table->id,
		.by_server = vb_db_server_writes(db),
		.to_slot = it->to_slot,
		.bytes = l->record_bytes,
	};
	memcpy(e + 1, image + l->record_at, l->record_bytes);
}

/* The log is read by verbs only when we are silent, and is published by the status word, or before
 * anything is in place (txn/install.c).  A transaction that writes nothing has an empty one: an
 * earlier try under the same name may have left another there. */
void vb_txn_write_log(struct vb_txn *t, struct vb_lane *lane)
{
	struct vb_db *db = t->me->db;
	unsigned char *log = (unsigned char *)(lane->head + 1);
	uint32_t at = 0;

	for (unsigned i = 0; i < t->n; i++) {
		const struct vb_item *it = &t->item[i];

		if (!(it->flags & VB_ITEM_WRITE))
			continue;
		put_entry(db, it, (void *)(log + at));
		at += (uint32_t)sizeof(struct vb_log_entry) + pad8(it->table->layout.record_bytes);
	}
	vb_lane_log(t->me, lane, at, t->ts);
}

/* ---- what must hold of every item ---- */

/* What is wrong with an item of a transaction that is about to commit; NULL: nothing. */
static const char *wrong_with(const struct vb_cc_ops *cc, const struct vb_item *it)
{
	const uint16_t held = VB_ITEM_HELD_X | VB_ITEM_HELD_S;

	if (it->at == 0)
		return "it has no address";
	if (!(it->flags & VB_ITEM_FETCHED))
		return "it was never fetched";
	if (it->flags & VB_ITEM_WRITE && !(it->flags & VB_ITEM_HELD_X))
		return "it would be written without its lock";
	if (cc->caps & VB_CC_READ_LOCKS && !(it->flags & (held | VB_ITEM_LET_GO)))
		return "it is not held, and this protocol holds what it has read";
	if (it->flags & VB_ITEM_WRITE && it->flags & VB_ITEM_BLIND && vb_item_has_record(it))
		return "it would be written with a record that nobody has read or given";
	return NULL;
}

/* Nothing is, at a glance. */
static bool is_sound(const struct vb_item *it, bool read_locks)
{
	uint16_t flags = it->flags, want = VB_ITEM_FETCHED;

	if (flags & VB_ITEM_WRITE)
		want |= VB_ITEM_HELD_X;
	else if (read_locks)
		want |= VB_ITEM_HELD_S;
	return it->at != 0 && (flags & (want | VB_ITEM_BLIND)) == want;
}

/*
 * Whatever a call or a protocol may have left: nothing is written that was not fetched, placed and
 * locked.  Behind the commit point it would be in the log, and whoever finds it there would write
 * it.
 */
int vb_txn_inspect(struct vb_txn *t)
{
	const struct vb_cc_ops *cc = t->me->db->cc;
	const bool read_locks = cc->caps & VB_CC_READ_LOCKS;

	for (unsigned i = 0; i < t->n; i++) {
		const struct vb_item *it = &t->item[i];
		const char *wrong = is_sound(it, read_locks) ? NULL : wrong_with(cc, it);

		if (vb_likely(wrong == NULL))
			continue;
		vb_error("a commit under '%s' was refused because of key %" PRIu64
			 " of table '%s': %s.  Nothing was written; this is a defect of the "
			 "protocol or of the library, please report it",
			 cc->name, it->key, it->table->name, wrong);
		return vb_txn_doom(t, VB_TXN_REFUSED, -EPROTO);
	}
	return 0;
}

/* ---- the commit point ---- */

static void note_time(struct vb_coordinator *me, unsigned what, uint64_t begin)
{
	if (!me->db->timing)
		return;
	me->timed[what].ns += vb_ep_now_early(me->ep) - begin;
	me->timed[what].runs++;
}

/* Does it hold anything that others could take from it, or finish for it? */
static bool is_copied(const struct vb_txn *t)
{
	if (t->me->db->copy_readers)
		return t->n > 0;
	for (unsigned i = 0; i < t->n; i++)
		if (t->item[i].flags & VB_ITEM_WRITE)
			return true;
	return false;
}

/* 0, -EAGAIN, or the fabric's error: some of the copies may say so. */
static int tell_copies(struct vb_txn *t, struct vb_lane *lane,
		       int (*tell)(struct vb_coordinator *, struct vb_lane *, uint64_t))
{
	struct vb_coordinator *me = t->me;
	uint64_t begin = me->db->timing ? vb_ep_now_early(me->ep) : 0;
	int err = tell(me, lane, t->ts);

	note_time(me, VB_TIMED_LOG, begin);
	if (vb_likely(err == 0))
		return 0;
	/* Some of the copies have the name. */
	t->tainted = true;
	if (err == 1 && me->fenced)
		return vb_txn_doom(t, VB_TXN_FABRIC, -VB_EPEERGONE);
	if (err == 1)
		return vb_txn_doom(
			t, vb_lane_log_over(me, lane) ? VB_TXN_TIMEOUT : VB_TXN_RECOVERED, 0);
	return err;
}

int vb_txn_copy_undo(struct vb_txn *t, struct vb_lane *lane)
{
	int err = t->me->db->copies != 0 ? tell_copies(t, lane, vb_copies_log) : 0;

	return err == 0 || err == -EAGAIN ? err : vb_txn_doom(t, VB_TXN_FABRIC, err);
}

/* 0, -EAGAIN or the error that leaves it unknown. */
static int copy_log(struct vb_txn *t, struct vb_lane *lane)
{
	const bool twice = vb_cc_installs(t->me->db->cc);
	int err = tell_copies(t, lane, twice ? vb_copies_decide : vb_copies_log);

	if (err == 0 || err == -EAGAIN)
		return err;
	lane->unknown = true;
	return -VB_EUNKNOWN;
}

/* 0, -EAGAIN: it has been wounded or recovered, or the error that leaves it unknown. */
int vb_txn_point(struct vb_txn *t)
{
	struct vb_coordinator *me = t->me;
	struct vb_lane *lane = vb_txn_lane(me);
	uint64_t begin = me->db->timing ? vb_ep_now_early(me->ep) : 0;
	int err;

	/* Before others can have seen that it is committed. */
	t->write_by_ns = me->db->recovery ? vb_ep_now_early(me->ep) + me->db->lease_ns : 0;
	/* Who has no name has written nothing, and nobody looks for it. */
	if (!me->db->status || t->ts == 0)
		return 0;
	if (me->db->recovery && !vb_cc_installs(me->db->cc))
		vb_txn_write_log(t, lane);
	if (me->db->copies != 0 && is_copied(t)) {
		err = copy_log(t, lane);
		if (err != 0)
			return err;
		begin = me->db->timing ? vb_ep_now_early(me->ep) : 0;
	}
	err = vb_lane_status(me, lane, t->ts | VB_TS_COMMITTED);
	note_time(me, VB_TIMED_POINT, begin);
	if (vb_unlikely(err == 1 && me->db->copies != 0 && is_copied(t))) {
		err = vb_copies_undo(me, lane, t->ts);
		t->tainted = true;
	}
	if (err == 0)
		return 0;
	if (err != 1) {
		VB_SOMETIMES(1000, "txn: commit point unknown");
		lane->unknown = true;
		return -VB_EUNKNOWN;
	}
	return vb_txn_doom(t,
			   (lane->status & VB_TS_STATE) == VB_TS_ABORTED ? VB_TXN_WOUNDED
									 : VB_TXN_RECOVERED,
			   0);
}

/* Those that have one of these flags. */
static unsigned pick(struct vb_txn *t, uint16_t any)
{
	struct vb_item *it = t->item, *end = it + t->n, **some = t->some;

	for (; it < end; it++)
		if (it->flags & any)
			*some++ = it;
	return (unsigned)(some - t->some);
}

static bool run_for(struct vb_txn *t, struct vb_lane *lane, unsigned stage, unsigned n)
{
	bool failed = false;

	if (n > 0)
		vb_stage_run(t, lane, stage, t->some, n);
	for (unsigned i = 0; i < n; i++)
		failed |= t->some[i]->status != 0;
	return failed;
}

/* A verb whose answer is lost may never have happened, and nobody but us knows of it: who meets the lock waits for
 * a lease first, and the last transactions of a run meet nobody. */
static void let_readers_go(struct vb_txn *t, struct vb_lane *lane)
{
	unsigned n = pick(t, VB_ITEM_HELD_S | VB_ITEM_HELD_X);

	if (vb_unlikely(run_for(t, lane, t->me->db->cc->release, n)))
		vb_txn_release(t, lane, n);
}

/* What is written is held until it is let go; if not, others may have written it, too. */
void vb_txn_count_lost(struct vb_coordinator *me, const struct vb_item *items, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		const struct vb_item *it = &items[i];

		if (vb_likely(!(it->flags & VB_ITEM_LOST)))
			continue;
		me->lost_locks++;
		vb_error("key %" PRIu64 " of table '%s' was written by a commit, but its lock was "
			 "%#" PRIx64 " when it was let go, and not %#" PRIx64
			 ": another may have written it meanwhile.  Does a server or client stand "
			 "still for longer than its lease of %" PRIu64 " ns?",
			 it->key, it->table->name, it->seen, it->held, me->db->lease_ns);
	}
}

/* The transaction has happened; what cannot be written now is left to recovery. */
void vb_txn_write_back(struct vb_txn *t)
{
	struct vb_coordinator *me = t->me;
	struct vb_db *db = me->db;
	struct vb_lane *lane = vb_txn_lane(me);
	unsigned n = pick(t, VB_ITEM_WRITE);

	/* What is written is let go by the commit stage, but for the reader's place of an upgrade.
	 */
	for (unsigned i = 0; i < n; i++)
		t->some[i]->flags &= (uint16_t)~VB_ITEM_HELD_X;
	/* A doorbell that is not waited for is the lane's last. */
	t->passive = db->passive_ack && db->outstanding && n <= VB_STAGE_ITEMS &&
		     !lane->acc.at_once && !(db->rpc_stages & 1u << db->cc->commit);
	if (t->passive) {
		let_readers_go(t, lane);
		n = pick(t, VB_ITEM_WRITE);
	}
	lane->acc.not_after_ns = t->write_by_ns;
	lane->unacknowledged = run_for(t, lane, db->cc->commit, n);
	lane->in_flight = t->passive;
	lane->acc.not_after_ns = 0;
	if (!t->passive) {
		vb_txn_count_lost(me, t->item, t->n);
		let_readers_go(t, lane);
	}
	t->passive = false;
}

/*
 * What it still holds, of an unknown commit that is known by now.  Not earlier: others might have written what it
 * had read, and then its commit point lands.  What it has written is let go with its commit, if that has happened.
 */
static void let_learned_go(struct vb_coordinator *me, struct vb_lane *lane)
{
	struct vb_txn *t = &me->txn, was = *t;
	bool committed = (lane->status & VB_TS_STATE) == VB_TS_COMMITTED;
	unsigned n;

	t->ts = vb_ts_name(lane->status);
	t->item = lane->item;
	t->n = lane->n_items;
	for (unsigned i = 0; i < t->n && committed; i++)
		if (t->item[i].flags & VB_ITEM_WRITE)
			t->item[i].flags &= (uint16_t)~VB_ITEM_HELD_X;
	n = pick(t, VB_ITEM_HELD_S | VB_ITEM_HELD_X);
	if (n > 0)
		vb_txn_release(t, lane, n);
	lane->n_items = 0;
	*t = was;
}

/*
 * The answer of the commit point was lost.  Either the transaction is committed, or from here on it
 * cannot be any more.  Its commit stage has not been run: if it is committed, that is still to be
 * done.
 */
static int learn(struct vb_coordinator *me, struct vb_lane *lane)
{
	uint64_t name = lane->status & ~(uint64_t)VB_TS_STATE;
	int err = 0;

	/* Once that is known it stays committed, however often what is still to be done fails. */
	if (lane->status != (name | VB_TS_COMMITTED))
		err = vb_lane_status(me, lane, name | VB_TS_ABORTED);
	if (err < 0)
		return err;
	if (lane->status != (name | VB_TS_COMMITTED) && me->db->copies != 0) {
		err = vb_copies_undo(me, lane, name);
		if (err < 0)
			return err;
	}
	lane->unknown = false;
	VB_SOMETIMES_IF(lane->status == (name | VB_TS_COMMITTED), 1000,
			"txn: an unknown commit had happened");
	VB_SOMETIMES_IF(lane->status != (name | VB_TS_COMMITTED), 20000,
			"txn: an unknown commit had not happened");
	err = me->db->recovery ? vb_lane_finish(me, lane) : 0;
	lane->unknown = err != 0;
	if (err == 0)
		let_learned_go(me, lane);
	return err;
}

/*
 * Before the place is used again: everything that its last transaction wrote is in place, or nothing.
 * What the commit stage could not do, or the undo stage, is done by recovery, from the log, once it is
 * certain that no verb of ours can still take effect.
 */
int vb_lane_settle(struct vb_coordinator *me, struct vb_lane *lane)
{
	struct vb_db *db = me->db;
	int err;

	if (lane->in_flight && vb_acc_finish(&lane->acc) != 0)
		lane->unacknowledged = true;
	lane->in_flight = false;
	vb_lane_log_settle(me, lane);
	if (db->copies != 0)
		vb_copies_settle(me, lane);
	if (vb_unlikely(lane->unknown))
		return learn(me, lane);
	if (!lane->unacknowledged || !db->recovery)
		return 0;
	VB_SOMETIMES(100, "txn: a commit finished from its own log");
	vb_txn_wait_out(me, db->suspect_ns);
	err = vb_lane_finish(me, lane);
	lane->unacknowledged = err != 0;
	return err;
}
