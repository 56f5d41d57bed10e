/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Multi-version concurrency control (RCBench algorithm 4, RCC section 4.4): a transaction runs at its
 * timestamp.  It reads of each record the newest version that is older than itself, and writes a version
 * of its own timestamp, which must be the newest.  So a reader that comes late reads what was there
 * before, and need not abort.
 *
 *	lock word     63                                            2   1   0
 *	             +-----------------------------------------------+---+---+
 *	  free       | newest version                                | a | 0 |    a: there is no record
 *	             +-----------------------------------------------+---+---+
 *	  held       | timestamp of the holder: clock, place         | 0 | 1 |
 *	             +-----------------------------------------------+---+---+
 *	rts           timestamp of the youngest that has read the newest version (the first meta word)
 *	four slots    version | seal | record: the next version takes the place of the oldest
 *
 *	read       READ of all slots; CAS rts -> ts and READ of the lock word; at a snapshot nothing more, or a
 *	           READ of what was not of one moment
 *	lock       CAS version -> ts | 1 and READ of rts
 *	commit     WRITE of one slot + CAS ts | 1 -> ts            release    CAS ts | 1 -> version
 *
 * What must hold (RCC's conditions), and what makes it so:
 *
 *	R1   there is a version older than the reader.  If four younger ones have taken all slots, it ends
 *	R2   no older transaction holds the record whose version it should read.  It might commit it: the
 *	     reader ends.  A younger holder is in nobody's way
 *	W1   no version and no reader of the newest one is younger than the writer.  Else it ends
 *	W2   nobody else holds the record.  Else it ends
 *
 * Reader and writer look at each other's word after they have changed their own: the reader CASes rts
 * and then READs the lock word, the writer CASes the lock word and then READs rts.  READs see the
 * atomics that were posted before them, so at least one sees the other.  A writer that has been and
 * gone since the reader's first READ has changed the lock word, for versions never come back.
 *
 * Only readers of the newest version leave rts behind: between two versions nobody can write any more.
 *
 * What the first READ brought may be of several moments.  A free lock word that is the version of the
 * newest slot says that this slot is of one; where that is not enough (an older version is read, or
 * somebody holds the record) all versions are READ again: if they are the same, they were that between
 * the two READs.  Without seals the lock word is also READ before the first READ, and all versions if
 * somebody holds the record: what is the same before and behind it was read whole.
 *
 * Departs from the papers (why, with the interleavings: doc/cc/mvcc.md):
 *   - the lock word is looked at after rts was published (mvcc-as-published does not);
 *   - lock, owner and newest version are one word, so W1 of versions is the CAS itself;
 *   - one rts for the newest version, in place of one for each;
 *   - versions are put in place behind the commit point, and not by the write;
 *   - what is read is whole.
 */
#include "cc/mvcc.h"

#include "base/sometimes.h"

/* How often rts is raised against other readers before the stage is run anew. */
#define RTS_TRIES 4u

/* An item between the first READ and the second. */
struct reading {
	struct vb_item *it;
	uint64_t lock_before, lock, lock_again, rts, rts_was;
	uint64_t before[MVCC_SLOTS], version[MVCC_SLOTS], again[MVCC_SLOTS];
	bool newest;  /* the version that it takes */
	bool publish; /* rts has to be as large as our timestamp */
	bool all;     /* all versions are looked at again */
};

static vb_addr lock_word(const struct vb_item *it)
{
	return it->at + vb_item_layout(it)->lock_at;
}

static vb_addr rts_word(const struct vb_item *it)
{
	return it->at + VB_TUPLE_META_AT;
}

/* ---- read: the first look ---- */

static void ask_versions(struct vb_stage *s, const struct vb_item *it, uint64_t *version)
{
	const struct vb_tuple_layout *l = vb_item_layout(it);

	for (unsigned i = 0; i < MVCC_SLOTS; i++)
		vb_acc_read(s->acc, VB_READ_DI, it->at + l->version_at + vb_slot_behind(l, i),
			    &version[i], 8);
}

unsigned mvcc_newest_before(const uint64_t *version, uint64_t ts)
{
	unsigned best = MVCC_SLOTS;

	for (unsigned i = 0; i < MVCC_SLOTS; i++) {
		if (version[i] == 0 || version[i] & MVCC_WRITING ||
		    (version[i] & ~(uint64_t)VB_TS_STATE) >= ts)
			continue;
		if (best == MVCC_SLOTS || version[i] > version[best])
			best = i;
	}
	return best;
}

static void look_at_image(struct reading *r)
{
	const struct vb_tuple_layout *l = vb_item_layout(r->it);

	r->lock = vb_tuple_word(r->it->image, l->lock_at);
	r->rts = vb_tuple_word(r->it->image, VB_TUPLE_META_AT);
	for (unsigned i = 0; i < MVCC_SLOTS; i++)
		r->version[i] = vb_slot_version(l, r->it->image, i);
}

/* The time at which it reads. */
static uint64_t time_of(const struct vb_stage *s)
{
	return s->snapshot != 0 ? s->snapshot : s->ts;
}

/* What keeps the transaction from the version: 0, or a status. */
static uint8_t in_the_way(const struct vb_stage *s, const struct reading *r, unsigned slot)
{
	const struct vb_item *it = r->it;
	bool mine = r->lock == mvcc_locked(s->ts, 0), held = r->lock & MVCC_HELD && !mine;

	if (it->flags & VB_ITEM_WRITE && held)
		return VB_TXN_LOCKED;
	if (it->flags & VB_ITEM_WRITE)
		return !r->newest || (r->rts > s->ts && !mine) ? VB_TXN_CHANGED : 0;
	if (slot == MVCC_SLOTS)
		return VB_TXN_SLOTS;
	if (!held || !r->newest)
		return 0;
	/* Who rolls another forward writes a version of that one's time. */
	VB_SOMETIMES_IF(r->lock > time_of(s) && vb_ts_mends(r->lock), 200,
			"mvcc: a younger name holds what an older transaction has written");
	return r->lock < time_of(s) || vb_ts_mends(r->lock) ? VB_TXN_LOCKED : 0;
}

/* Without seals: has nobody written since the look before the READ? */
static bool same_as_before(const struct reading *r)
{
	return r->lock == r->lock_before &&
	       (!(r->lock & MVCC_HELD) || memcmp(r->before, r->version, sizeof(r->before)) == 0);
}

/* Takes the item's version out of what was read, if it can be told and had. */
static void judge_first(struct vb_stage *s, struct reading *r)
{
	struct vb_item *it = r->it;
	unsigned newest, slot;

	it->status = VB_ITEM_WAIT;
	if (!vb_item_is_key(it)) {
		it->at = 0;
		return;
	}
	look_at_image(r);
	newest = mvcc_newest_before(r->version, UINT64_MAX);
	slot = mvcc_newest_before(r->version, time_of(s));
	if (newest == MVCC_SLOTS || (!(r->lock & MVCC_HELD) && r->lock != r->version[newest]))
		return;
	if (!vb_stage_sealed(s) && !same_as_before(r))
		return;
	vb_stage_saw(s, r->rts);
	vb_stage_saw(s, r->version[newest]);
	/* Also that of a younger one, which may be dead: it is in the way of the next transaction then. */
	if (r->lock & MVCC_HELD)
		vb_stage_saw(s, r->lock);
	r->newest = slot == newest;
	it->status = in_the_way(s, r, slot);
	if (it->status != 0) {
		it->seen = it->status == VB_TXN_LOCKED ? r->lock : 0;
		return;
	}
	vb_item_take_slot(it, slot);
	if (vb_stage_sealed(s) && !(it->flags & VB_ITEM_BLIND) &&
	    !vb_tuple_whole(vb_item_layout(it), it->image)) {
		it->status = VB_ITEM_WAIT;
		return;
	}
	it->version = r->version[slot];
	it->to_slot = (uint8_t)((newest + 1) % MVCC_SLOTS);
}

/* ---- read: the second look ---- */

/*
 * What is to be written needs no second look: the CAS that locks it is one.  Nor does the newest version of
 * a record that was free, at a snapshot: whoever could still write an older one held it then.
 */
static bool plan_second(const struct vb_stage *s, struct reading *r, bool publish)
{
	bool reads = !(r->it->flags & VB_ITEM_WRITE);

	r->publish = publish && reads && r->newest && s->snapshot == 0;
	r->all = r->lock & MVCC_HELD || (vb_stage_sealed(s) && !r->newest);
	if ((reads && (s->snapshot == 0 || r->all)) || !vb_stage_sealed(s))
		return true;
	r->it->flags |= VB_ITEM_FETCHED;
	return false;
}

static void ask_second(struct vb_stage *s, struct reading *r)
{
	r->rts_was = r->rts;
	if (r->publish && r->rts < s->ts)
		vb_acc_cas(s->acc, VB_AMOD_IM, rts_word(r->it), r->rts, s->ts, &r->rts_was);
	vb_acc_read(s->acc, VB_READ_DI, lock_word(r->it), &r->lock_again, 8);
	if (r->all)
		ask_versions(s, r->it, r->again);
}

/* True: another reader has changed rts, which is to be raised once more. */
static bool judge_second(struct vb_stage *s, struct reading *r)
{
	struct vb_item *it = r->it;

	if (r->publish && r->rts_was != r->rts && r->rts_was < s->ts) {
		VB_SOMETIMES(200, "mvcc: another reader has raised rts");
		r->rts = r->rts_was;
		return true;
	}
	vb_stage_saw(s, r->rts_was);
	if (((r->newest || !vb_stage_sealed(s)) && r->lock_again != r->lock) ||
	    (r->all && memcmp(r->again, r->version, sizeof(r->again)) != 0)) {
		VB_SOMETIMES(200, "mvcc: what was read had changed at the second look");
		it->status = VB_ITEM_WAIT;
		return false;
	}
	it->flags |= VB_ITEM_FETCHED;
	return false;
}

static void look_again(struct vb_stage *s, struct vb_item **items, unsigned n, struct reading *r,
		       unsigned m)
{
	for (unsigned tries = 0; m > 0; tries++) {
		unsigned left = 0;

		for (unsigned i = 0; i < m; i++)
			ask_second(s, &r[i]);
		if (!vb_stage_go(s, items, n))
			return;
		for (unsigned i = 0; i < m; i++)
			if (judge_second(s, &r[i]))
				r[left++] = r[i];
		m = left;
		if (tries < RTS_TRIES)
			continue;
		for (unsigned i = 0; i < m; i++)
			r[i].it->status = VB_ITEM_WAIT;
		return;
	}
}

static bool look_before(struct vb_stage *s, struct vb_item **items, unsigned n, struct reading *r)
{
	for (unsigned i = 0; i < n; i++)
		vb_acc_read(s->acc, VB_READ_DI, lock_word(items[i]), &r[i].lock_before, 8);
	if (!vb_stage_go(s, items, n))
		return false;
	for (unsigned i = 0; i < n; i++)
		if (r[i].lock_before & MVCC_HELD)
			ask_versions(s, items[i], r[i].before);
	return vb_stage_go(s, items, n);
}

static void read_items(struct vb_stage *s, struct vb_item **items, unsigned n, bool publish)
{
	struct reading r[VB_STAGE_ITEMS];
	unsigned m = 0;

	vb_stage_hint(s, items, n);
	for (unsigned i = 0; i < n; i++) {
		r[i].it = items[i];
		items[i]->seen = 0;
		items[i]->seen_slot = 0;
	}
	if (!vb_stage_sealed(s) && !look_before(s, items, n, r))
		return;
	for (unsigned i = 0; i < n; i++)
		vb_stage_read_tuple(s, items[i]);
	if (!vb_stage_go(s, items, n))
		return;
	for (unsigned i = 0; i < n; i++) {
		judge_first(s, &r[i]);
		if (r[i].it->status == 0 && plan_second(s, &r[i], publish))
			r[m++] = r[i];
	}
	look_again(s, items, n, r, m);
}

void mvcc_read(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	read_items(s, items, n, true);
}

/* ---- lock ---- */

void mvcc_lock(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	uint64_t rts[VB_STAGE_ITEMS];

	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];

		it->flags |= VB_ITEM_MAYBE;
		it->held = mvcc_locked(s->ts, 0);
		vb_acc_cas(s->acc, VB_AMOD_IM, lock_word(it), it->version, it->held, &it->seen);
		vb_acc_read(s->acc, VB_READ_DI, rts_word(it), &rts[i], 8);
	}
	if (!vb_stage_go(s, items, n))
		return;
	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];

		it->flags &= (uint16_t)~VB_ITEM_MAYBE;
		it->seen_slot = 0;
		vb_stage_saw(s, rts[i]);
		if (it->seen != it->version && it->seen != it->held) {
			it->status = it->seen & MVCC_HELD ? VB_TXN_LOCKED : VB_TXN_CHANGED;
			continue;
		}
		it->flags |= VB_ITEM_HELD_X;
		VB_SOMETIMES_IF(rts[i] > s->ts, 200, "mvcc: a reader came before the lock");
		it->status = rts[i] > s->ts ? VB_TXN_CHANGED : 0;
	}
}

/* ---- commit, release ---- */

static uint64_t free_word(const struct vb_item *it)
{
	return it->next;
}

void mvcc_commit(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	vb_stage_commit(s, items, n, MVCC_WRITING, free_word);
}

void mvcc_release(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];

		it->status = 0;
		if (it->at != 0)
			vb_acc_cas(s->acc, VB_AMOD_IM, lock_word(it), mvcc_locked(s->ts, 0),
				   it->version, &it->seen);
	}
	(void)vb_stage_go(s, items, n);
}

/* ---- the transaction ---- */

int mvcc_access(struct vb_txn *t, struct vb_item **items, unsigned n)
{
	return vb_txn_stage(t, MVCC_READ, items, n);
}

/* Locks are taken while the transaction runs, as in the papers. */
int mvcc_write(struct vb_txn *t, struct vb_item **items, unsigned n)
{
	unsigned m = vb_items_to_front(items, n, 0, VB_ITEM_FETCHED);
	int err = m > 0 ? vb_txn_stage(t, MVCC_READ, items, m) : 0;

	m = err == 0 ? vb_items_to_front(items, n, 0, VB_ITEM_HELD_X) : 0;
	return m > 0 ? vb_txn_stage(t, MVCC_LOCK, items, m) : err;
}

/* Everything is in order at its timestamp from the moment when it was read or locked. */
int mvcc_prepare(struct vb_txn *t)
{
	(void)t;
	return 0;
}

uint64_t mvcc_unlocked(uint64_t version, uint64_t was)
{
	(void)was;
	return version;
}

uint64_t mvcc_locked(uint64_t ts, uint64_t was)
{
	(void)was;
	return ts | MVCC_HELD;
}

struct vb_word_name mvcc_whose(uint64_t word)
{
	return word & MVCC_HELD ? vb_ts_named(word) : (struct vb_word_name){0};
}

const struct vb_cc_word mvcc_words[1] = {
	{.at = VB_TUPLE_META_AT, .kind = VB_WORD_DATA, .n = MVCC_META / 8},
};

static const struct vb_stage_ops stages[] = MVCC_STAGE_TABLE(mvcc_read, mvcc_lock);

const struct vb_cc_ops vb_cc_mvcc = {
	.name = "mvcc",
	.summary = "four versions of a record: a reader takes the one of its time",
	.source = "RCBench algorithm 4, RCC section 4.4",
	MVCC_OPS(stages, VB_CC_SNAPSHOTS),
};

/* ---- to the letter ---- */

/* RCC section 4.4: two READs of the same tuple, and then the CAS of rts, until it succeeds. */
static void read_then_publish(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	uint64_t rts[VB_STAGE_ITEMS];
	bool more = true;

	read_items(s, items, n, false);
	for (unsigned i = 0; i < n && s->err == 0; i++)
		rts[i] = vb_tuple_word(items[i]->image, VB_TUPLE_META_AT);
	for (unsigned tries = 0; more && s->err == 0 && tries < RTS_TRIES; tries++) {
		uint64_t was[VB_STAGE_ITEMS];

		more = false;
		for (unsigned i = 0; i < n; i++) {
			was[i] = rts[i];
			if (items[i]->status == 0 && !(items[i]->flags & VB_ITEM_WRITE) &&
			    rts[i] < s->ts)
				vb_acc_cas(s->acc, VB_AMOD_IM, rts_word(items[i]), rts[i], s->ts,
					   &was[i]);
		}
		if (!vb_stage_go(s, items, n))
			return;
		for (unsigned i = 0; i < n; i++) {
			more |= was[i] != rts[i];
			rts[i] = was[i];
		}
	}
}

static const struct vb_stage_ops stages_published[] =
	MVCC_STAGE_TABLE(read_then_publish, mvcc_lock);

const struct vb_cc_ops vb_cc_mvcc_as_published = {
	.name = "mvcc-as-published",
	.summary = "mvcc whose readers look for writers before they publish that they read",
	.source = "RCC section 4.4, to the letter",
	.planted = "not-serializable",
	MVCC_OPS(stages_published, 0),
};
