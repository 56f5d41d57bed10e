/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timestamp ordering with cascading aborts (RCBench section 5.2, algorithm 3): as cc/to.c, but what a
 * transaction writes is in place before it has committed, others read it, and if it does not commit after all,
 * they end with it.
 *
 *	lock word     63                                            2 1 0
 *	             +-----------------------------------------------+---+
 *	             | timestamp of the pending write: clock, place  | 0 |     0: there is none
 *	             +-----------------------------------------------+---+
 *	rts           timestamp of the youngest that has read the record (the first meta word)
 *	version       wts: the timestamp of who has written it.  While the lock word is the same one's, the write is
 *	              in place, and its writer may yet end
 *
 *	read       READ; CAS rts -> ts, READ of lock word and version
 *	lock       CAS 0 -> ts and READ (if the record was read before: READ of the words alone)
 *	install    WRITE                          depend     READ of a status word, READ of lock word and version
 *	commit     CAS ts -> 0                    undo       WRITE + CAS ts -> 0         release    CAS ts -> 0
 *
 * R1, W1 and W2 hold as in cc/to.c.  R2 is weaker:
 *
 *	R2   no write of an older one is pending that is not in place                  waits
 *	D    who has written what was read has committed             not yet: waits.  It never will: ends, `cascade`
 *
 * D is asked when the transaction's own writes are in place, for those that it has read of others who had yet to
 * commit.  One write is pending at a time, so whoever locks a record finds that of the one before decided: a
 * record that is read and then written needs no D, and an undo puts back what the lock was taken over.
 *
 * What has become of writer W, of whose write a reader knows the name:
 *
 *	the lock word is not W's, nor a mender's, and the version is W's            committed
 *	the status word of W's place names W and says so                            as it says
 *	it names another                                                            W's lock has been let go: see the
 *	                                                                            record; another version: ends
 *
 * For a lock word is let go behind what ends the write: of a commit the version stays, an undo has replaced it
 * before.  And a place is not named anew before all locks of its last transaction are free (txn/commit.c).
 *
 * All waiting goes from young to old.  Departs from the paper (why, with the interleavings:
 * doc/cc/to-cascade.md):
 *   - a write is in place when its transaction commits, and not from its call on;
 *   - one write is pending at a time, and its lock word has its owner's name: there is no list wL;
 *   - a status word counts only for whom it names (to-cascade-as-published does not look);
 *   - what is read is whole, by its seal: tuples have one on every fabric, for an undo brings a version back;
 *   - what is undone is logged.
 */
#include "cc/to_cascade.h"

#include "base/sometimes.h"
#include "txn/db.h"

static vb_addr lock_word(const struct vb_item *it)
{
	return it->at + vb_item_layout(it)->lock_at;
}

static vb_addr version_word(const struct vb_item *it)
{
	return it->at + vb_item_layout(it)->version_at;
}

/* ---- read ---- */

/* It is in place, all of it if the seal is right: it is read, and its writer's end awaited later. */
static bool is_installed(uint64_t lock, uint64_t version)
{
	return lock == vb_ts_name(version);
}

static bool awaits(const struct vb_stage *s, uint64_t lock, uint64_t version)
{
	return to_is_older(s, lock) && !is_installed(lock, version);
}

void to_cascade_read(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	to_read_items(s, items, n, awaits);
}

/* ---- lock ---- */

/*
 * What was read before may be undone by now.  What is refused stays refused (doc/cc/to.md): a server that comes
 * here again with the item must find the version that was read.
 */
void to_cascade_lock(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	uint64_t read[VB_STAGE_ITEMS];
	bool was_read[VB_STAGE_ITEMS];

	for (unsigned i = 0; i < n; i++) {
		was_read[i] = items[i]->flags & VB_ITEM_FETCHED;
		read[i] = items[i]->version;
	}
	to_lock(s, items, n);
	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];

		if (it->status != 0)
			continue;
		it->lease = 0;
		if (!was_read[i] || it->version == read[i])
			continue;
		VB_SOMETIMES(300, "to-cascade: what is locked was read, and undone");
		it->version = read[i];
		it->status = VB_TXN_CASCADE;
	}
}

/* ---- install, release ---- */

void to_cascade_install(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	vb_stage_install(s, items, n);
}

/* Also the commit stage. */
void to_cascade_release(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	struct vb_item *some[VB_STAGE_ITEMS];
	unsigned m = 0;

	for (unsigned i = 0; i < n; i++) {
		items[i]->status = 0;
		items[i]->held = s->ts;
		if (items[i]->at != 0)
			some[m++] = items[i];
	}
	vb_stage_let_go(s, some, m, to_free_word);
}

/* ---- depend ---- */

static void ask(struct vb_stage *s, struct vb_item *it, struct to_cascade_look *l)
{
	const uint32_t place = vb_ts_place(it->lease);

	/* One that is gone with its node, and has copies, says as much as one that names another: the record tells, when
	 * it is recovered. */
	l->status = 0;
	if (!vb_stage_place_gone(s, place))
		vb_acc_read(s->acc, VB_READ_TM, vb_stage_status_addr(s, place), &l->status, 8);
	if (vb_stage_pair_whole(s)) {
		vb_acc_read(s->acc, VB_READ_DI, lock_word(it), &l->now, sizeof(l->now));
		return;
	}
	/* Two READs may happen the other way round. */
	vb_acc_cas(s->acc, VB_AMOD_IM, lock_word(it), 0, 0, &l->now.lock);
	vb_acc_read(s->acc, VB_READ_DI, version_word(it), &l->now.version, 8);
}

/* Whoever holds it may change the version yet: its writer, or one who undoes what he or a later one wrote. */
static bool is_open(const struct vb_item *it, const struct to_cascade_look *l)
{
	return l->now.lock == it->lease || vb_ts_mends(l->now.lock);
}

/* What a dead one has left, too, is in the way of whoever comes next, and is to be recovered. */
static void judge(struct vb_item *it, const struct to_cascade_look *l)
{
	const bool named = vb_ts_name(l->status) == it->lease;
	const uint64_t state = l->status & VB_TS_STATE;

	it->seen_slot = 0;
	it->seen = is_open(it, l) ? l->now.lock : 0;
	if (!is_open(it, l) && l->now.version == it->version) {
		VB_SOMETIMES_IF(!named, 300,
				"to-cascade: a writer has gone, and its version stays");
		it->status = 0;
	} else if (named && state == VB_TS_COMMITTED) {
		VB_SOMETIMES(100, "to-cascade: a writer has committed, and still holds");
		it->status = 0;
	} else if (named && state != VB_TS_RUNNING) {
		VB_SOMETIMES(100, "to-cascade: a writer has ended, and who read it ends, too");
		it->status = VB_TXN_CASCADE;
	} else if (named || is_open(it, l)) {
		it->status = VB_ITEM_WAIT;
	} else {
		VB_SOMETIMES(300, "to-cascade: a writer has gone, and so has its version");
		it->status = VB_TXN_CASCADE;
	}
	if (it->status == 0)
		it->lease = 0;
}

void to_cascade_look_at(struct vb_stage *s, struct vb_item **items, unsigned n,
			to_cascade_judge *judge_fn)
{
	struct to_cascade_look look[VB_STAGE_ITEMS];
	unsigned m = 0;

	/* `lease` may come from a stranger; and a server has decided some before it comes here again. */
	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];

		it->status = it->lease == 0 ? 0 : VB_TXN_CASCADE;
		if (it->lease == 0 || !vb_stage_has_place(s, vb_ts_place(it->lease)))
			continue;
		items[i] = items[m];
		items[m++] = it;
	}
	for (unsigned i = 0; i < m; i++)
		ask(s, items[i], &look[i]);
	if (!vb_stage_go(s, items, n))
		return;
	for (unsigned i = 0; i < m; i++)
		judge_fn(items[i], &look[i]);
}

void to_cascade_depend(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	to_cascade_look_at(s, items, n, judge);
}

/* ---- the transaction ---- */

/* What it writes it has locked, when nobody else's write was pending. */
static unsigned pick_unsettled(struct vb_txn *t)
{
	unsigned n = 0;

	for (unsigned i = 0; i < t->n; i++)
		if (!(t->item[i].flags & VB_ITEM_WRITE) && t->item[i].lease != 0)
			t->some[n++] = &t->item[i];
	return n;
}

int to_cascade_decide(struct vb_txn *t)
{
	unsigned n = pick_unsettled(t);
	int err;

	/* As who stands still for a lease at this point.  Else hardly anybody ends whose writes are in place. */
	if (VB_CHANCE(200, "to-cascade: ends behind its install"))
		return vb_txn_doom(t, VB_TXN_TIMEOUT, 0);
	err = n > 0 ? vb_txn_stage(t, TO_CASCADE_DEPEND, t->some, n) : 0;
	if (err == 0 && n > 0 && (t->me->db->recovery || t->hurried))
		err = vb_txn_in_time(t);
	return err == 0 ? vb_txn_point(t) : err;
}

static const struct vb_stage_ops stages[] = TO_CASCADE_STAGE_TABLE(to_cascade_depend, to_commit);

const struct vb_cc_ops vb_cc_to_cascade = {
	.name = "to-cascade",
	.summary = "timestamp ordering that writes in place; who has read what is undone ends",
	.source = "RCBench algorithm 3",
	.decide = to_cascade_decide,
	TO_CASCADE_OPS(stages),
};

/* ---- to the letter ---- */

/* Lines 26 to 32: whatever transaction the place is at, who neither runs nor has aborted has committed. */
static void judge_published(struct vb_item *it, const struct to_cascade_look *l)
{
	const uint64_t state = l->status & VB_TS_STATE;

	it->seen_slot = 0;
	it->seen = l->now.lock == it->lease ? it->lease : 0;
	it->status = state == VB_TS_RUNNING   ? VB_ITEM_WAIT
		     : state == VB_TS_ABORTED ? VB_TXN_CASCADE
					      : 0;
}

static void depend_published(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	to_cascade_look_at(s, items, n, judge_published);
}

static const struct vb_stage_ops stages_published[] =
	TO_CASCADE_STAGE_TABLE(depend_published, to_commit);

const struct vb_cc_ops vb_cc_to_cascade_as_published = {
	.name = "to-cascade-as-published",
	.summary = "to-cascade for which who neither runs nor has aborted has committed, whoever "
		   "it is",
	.source = "RCBench algorithm 3, to the letter",
	.planted = "G1a",
	.decide = to_cascade_decide,
	TO_CASCADE_OPS(stages_published),
};
