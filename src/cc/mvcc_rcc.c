/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Multi-version concurrency control as RCC has it (section 4.4).  The order is that of cc/mvcc.c: a transaction
 * runs at its timestamp, reads the newest version that is older than itself, and writes one that must be the
 * newest.  The words and the verbs are others: the lock word says who is about to write and nothing else, a
 * record is locked whatever its version, and all that a CAS of mvcc proves is proved by a second read.
 *
 *	lock word     63                                            2 1 0
 *	             +-----------------------------------------------+---+
 *	  tts        | timestamp of the pending write: clock, place  | 0 |     0: there is none
 *	             +-----------------------------------------------+---+
 *	rts           timestamp of the youngest that has read the newest version (the first meta word)
 *	four slots    wts: the version | seal | record.  They are filled in turn: the next version takes the
 *	              place of the oldest, which lies behind the newest
 *
 *	read       READ of all slots; CAS rts -> ts, a look at tts, READ of one version word.  Of a version that is
 *	           not the newest, and at a snapshot, only that last READ
 *	lock       READ of the words up to tts; CAS 0 -> ts, READ of all slots (if the record was read before:
 *	           CAS, READ of rts, READ of one version word)
 *	commit     WRITE of one slot + CAS ts -> 0                     release    CAS ts -> 0
 *
 * What must hold (RCC's conditions), and what becomes of a transaction of timestamp ts for which it does not:
 *
 *	R1   a version is older than ts                                                     ends
 *	R2   where the newest one is read, no older transaction has a write pending         ends
 *	W1   no version, and no reader of the newest one, is younger than ts                ends
 *	W2   no other write is pending                                                      ends
 *
 * W1 and W2 are looked at before the lock, so that who cannot have it leaves no lock in others' way, and W1
 * again under it: nobody else changes versions then.
 *
 * The reader publishes rts, then looks at tts, then at the versions.  A writer that is older locks, looks at
 * rts, writes, lets go.  So it finds rts; or is found in tts; or has let go by then, and its version is there.
 * READs have no order among themselves, so the look at tts is an atomic.
 *
 * One version word is enough for the second read, since slots are filled in turn.  Let v be what is read, and
 * s the word of the slot behind it:
 *
 *	s < v      Whoever has written since v would have written there first.  So if s is looked at now and
 *	           is still below v, v is the newest.  It is the second look that counts
 *	s > v      s was written right behind v, unless v has been overwritten since: if v's own word is still
 *	           the same, nothing lies between v and s, nor ever will
 *
 * The record is that of its version by its seal.  Without seals the version words are READ before, too, and
 * marked while the record is written: what is the same before and behind was read whole.
 *
 * Departs from the paper (why, with the interleavings: doc/cc/mvcc-rcc.md):
 *   - rts is published before tts and the versions are looked at for the second time (mvcc-as-published does
 *     it behind that);
 *   - the second read is of one word, and the two reads are not of one doorbell;
 *   - the lock is let go with a verb of its own, which names its transaction;
 *   - what is read is whole.
 */
#include "base/sometimes.h"
#include "cc/mvcc.h"

/* How often rts is raised against other readers before the stage is run anew. */
#define RTS_TRIES 4u

enum { READ, LOCK, COMMIT, RELEASE, STAGES };

static vb_addr lock_word(const struct vb_item *it)
{
	return it->at + vb_item_layout(it)->lock_at;
}

static vb_addr rts_word(const struct vb_item *it)
{
	return it->at + VB_TUPLE_META_AT;
}

static vb_addr version_word(const struct vb_item *it, unsigned slot)
{
	const struct vb_tuple_layout *l = vb_item_layout(it);

	return it->at + l->version_at + vb_slot_behind(l, slot);
}

static unsigned slot_behind(unsigned slot)
{
	return (slot + 1) % MVCC_SLOTS;
}

/* The time at which it reads. */
static uint64_t time_of(const struct vb_stage *s)
{
	return s->snapshot != 0 ? s->snapshot : s->ts;
}

static bool is_before(uint64_t version, uint64_t time)
{
	return (version & ~(uint64_t)VB_TS_STATE) < time;
}

/* May it write a version that who reads at that time should see?  Who rolls another forward writes one of that
 * one's time. */
static bool is_in_the_way(uint64_t tts, uint64_t time)
{
	VB_SOMETIMES_IF(tts > time && vb_ts_mends(tts), 200,
			"mvcc-rcc: a younger name holds what an older transaction has written");
	return tts != 0 && (tts < time || vb_ts_mends(tts));
}

static void end_for(struct vb_item *it, uint64_t tts)
{
	it->status = VB_TXN_LOCKED;
	it->seen = tts;
}

static void look_at_image(const struct vb_item *it, uint64_t *version)
{
	for (unsigned i = 0; i < MVCC_SLOTS; i++)
		version[i] = vb_slot_version(vb_item_layout(it), it->image, i);
}

static bool is_whole(const struct vb_stage *s, const struct vb_item *it)
{
	return !vb_stage_sealed(s) || it->flags & VB_ITEM_BLIND ||
	       vb_tuple_whole(vb_item_layout(it), it->image);
}

/* ---- read: the first look ---- */

/* An item between the first READ and the second. */
struct reading {
	struct vb_item *it;
	uint64_t before[MVCC_SLOTS];
	uint64_t rts, rts_was, tts, word;
	unsigned slot;
	bool newest;
};

static void take(struct vb_item *it, uint64_t version, unsigned slot)
{
	it->version = version;
	it->to_slot = (uint8_t)slot_behind(slot);
}

/* True: it may be read, unless something has changed at the second look. */
static bool judge_first(struct vb_stage *s, struct reading *r)
{
	const struct vb_tuple_layout *l = vb_item_layout(r->it);
	uint64_t version[MVCC_SLOTS], time = time_of(s), behind;
	struct vb_item *it = r->it;

	it->status = VB_ITEM_WAIT;
	if (!vb_item_is_key(it)) {
		it->at = 0;
		return false;
	}
	look_at_image(it, version);
	r->rts = vb_tuple_word(it->image, VB_TUPLE_META_AT);
	r->tts = vb_tuple_word(it->image, l->lock_at);
	vb_stage_saw(s, r->rts);
	/* Also that of a younger one, which may be dead: it is in the way of the next transaction then. */
	vb_stage_saw(s, r->tts);
	for (unsigned i = 0; i < MVCC_SLOTS; i++)
		vb_stage_saw(s, version[i]);
	r->slot = mvcc_newest_before(version, time);
	if (r->slot == MVCC_SLOTS) {
		it->status = VB_TXN_SLOTS;
		return false;
	}
	behind = version[slot_behind(r->slot)];
	r->newest = behind < version[r->slot];
	if (r->newest ? is_in_the_way(r->tts, time) : is_before(behind, time)) {
		/* The latter is being written, and its writer has come since that look. */
		if (r->tts != 0)
			end_for(it, r->tts);
		return false;
	}
	if (!vb_stage_sealed(s) && version[r->slot] != r->before[r->slot])
		return false;
	vb_item_take_slot(it, r->slot);
	take(it, version[r->slot], r->slot);
	return is_whole(s, it);
}

/* ---- read: the second look ---- */

static bool publishes(const struct vb_stage *s, const struct reading *r)
{
	return r->newest && s->snapshot == 0;
}

static void ask_second(struct vb_stage *s, struct reading *r)
{
	r->rts_was = r->rts;
	if (publishes(s, r)) {
		if (r->rts < s->ts)
			vb_acc_cas(s->acc, VB_AMOD_IM, rts_word(r->it), r->rts, s->ts, &r->rts_was);
		vb_acc_cas(s->acc, VB_AMOD_IM, lock_word(r->it), 0, 0, &r->tts);
	}
	vb_acc_read(s->acc, VB_READ_DI,
		    version_word(r->it, r->newest ? slot_behind(r->slot) : r->slot), &r->word, 8);
}

/* True: another reader has changed rts, which is to be raised once more. */
static bool judge_second(struct vb_stage *s, struct reading *r)
{
	struct vb_item *it = r->it;

	if (publishes(s, r) && r->rts_was != r->rts && r->rts_was < s->ts) {
		VB_SOMETIMES(200, "mvcc-rcc: another reader has raised rts");
		r->rts = r->rts_was;
		return true;
	}
	vb_stage_saw(s, r->rts_was);
	it->status = 0;
	if (publishes(s, r) && is_in_the_way(r->tts, s->ts)) {
		VB_SOMETIMES(200, "mvcc-rcc: an older writer came before rts was raised");
		end_for(it, r->tts);
	} else if (r->newest ? r->word > it->version : r->word != it->version) {
		VB_SOMETIMES(200, "mvcc-rcc: what was read had changed at the second look");
		it->status = VB_ITEM_WAIT;
	} else {
		it->flags |= VB_ITEM_FETCHED;
	}
	return false;
}

static void look_again(struct vb_stage *s, struct vb_item **items, unsigned n, struct reading *r,
		       unsigned m)
{
	for (unsigned tries = 0; m > 0 && tries < RTS_TRIES; tries++) {
		unsigned left = 0;

		for (unsigned i = 0; i < m; i++)
			ask_second(s, &r[i]);
		if (!vb_stage_go(s, items, n))
			return;
		for (unsigned i = 0; i < m; i++)
			if (judge_second(s, &r[i]))
				r[left++] = r[i];
		m = left;
	}
}

static void ask_before(struct vb_stage *s, struct reading *r)
{
	for (unsigned i = 0; i < MVCC_SLOTS; i++)
		vb_acc_read(s->acc, VB_READ_DI, version_word(r->it, i), &r->before[i], 8);
}

static void read_stage(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	struct reading r[VB_STAGE_ITEMS];
	unsigned m = 0;

	vb_stage_hint(s, items, n);
	for (unsigned i = 0; i < n; i++) {
		r[i].it = items[i];
		items[i]->seen = 0;
		items[i]->seen_slot = 0;
		if (!vb_stage_sealed(s))
			ask_before(s, &r[i]);
	}
	if (!vb_stage_sealed(s) && !vb_stage_go(s, items, n))
		return;
	for (unsigned i = 0; i < n; i++)
		vb_stage_read_tuple(s, items[i]);
	if (!vb_stage_go(s, items, n))
		return;
	for (unsigned i = 0; i < n; i++)
		if (judge_first(s, &r[i]))
			r[m++] = r[i];
	look_again(s, items, n, r, m);
}

/* ---- lock ---- */

/* Of an item that is being locked: what is looked at behind the CAS. */
struct locking {
	uint64_t rts, behind, tts;
};

static bool needs_record(const struct vb_item *it)
{
	return !(it->flags & VB_ITEM_FETCHED);
}

/* W2, and of W1 what is to be had without a lock. */
static bool may_lock(struct vb_stage *s, struct vb_item *it)
{
	uint64_t tts = vb_tuple_word(it->image, vb_item_layout(it)->lock_at);
	uint64_t rts = vb_tuple_word(it->image, VB_TUPLE_META_AT);

	if (!vb_item_is_key(it)) {
		it->at = 0;
		it->status = VB_ITEM_WAIT;
		return false;
	}
	vb_stage_saw(s, rts);
	/* Our own is a lock whose answer was lost. */
	if (tts != 0 && tts != s->ts)
		end_for(it, tts);
	else if (rts > s->ts)
		it->status = VB_TXN_CHANGED;
	return it->status == 0;
}

/* Those that may be locked: how many, in `out`. */
static unsigned look_before(struct vb_stage *s, struct vb_item **items, unsigned n,
			    struct vb_item **out)
{
	unsigned m = 0, looks = 0;

	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];

		it->seen = 0;
		it->seen_slot = 0;
		it->status = 0;
		if (it->flags & VB_ITEM_HELD_X || !needs_record(it))
			continue;
		vb_acc_read(s->acc, VB_READ_DI, it->at, it->image, vb_item_layout(it)->version_at);
		looks++;
	}
	if (looks > 0 && !vb_stage_go(s, items, n))
		return 0;
	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];

		if (it->flags & VB_ITEM_HELD_X || !needs_record(it) || may_lock(s, it))
			out[m++] = it;
	}
	return m;
}

static void ask_lock(struct vb_stage *s, struct vb_item *it, struct locking *w)
{
	*w = (struct locking){.tts = s->ts};
	it->seen = s->ts;
	if (!(it->flags & VB_ITEM_HELD_X)) {
		it->flags |= VB_ITEM_MAYBE;
		vb_acc_cas(s->acc, VB_AMOD_IM, lock_word(it), 0, s->ts, &it->seen);
	}
	/* The transaction may have changed what it has fetched. */
	if (!needs_record(it)) {
		vb_acc_read(s->acc, VB_READ_DI, rts_word(it), &w->rts, 8);
		vb_acc_read(s->acc, VB_READ_DI, version_word(it, it->to_slot), &w->behind, 8);
		return;
	}
	vb_stage_read_tuple(s, it);
	/* Under a lock that was taken over, since we stood still for a lease, it may be torn. */
	if (!vb_stage_sealed(s))
		vb_acc_read(s->acc, VB_READ_DI, lock_word(it), &w->tts, 8);
}

/* The guess at the address was wrong: gives back at once what was taken there. */
static void wrong_tuple(struct vb_stage *s, struct vb_item *it)
{
	vb_acc_cas(s->acc, VB_AMOD_IM, lock_word(it), s->ts, 0, &it->held);
	it->flags &= (uint16_t)~VB_ITEM_HELD_X;
	it->at = 0;
	it->status = VB_ITEM_WAIT;
}

/* W1 of the versions, under the lock: with the record, if that was not there.  False: another has written
 * since, or what was read is no version. */
static bool judge_versions(struct vb_stage *s, struct vb_item *it, const struct locking *w)
{
	uint64_t version[MVCC_SLOTS];
	unsigned newest;

	if (!needs_record(it))
		return w->behind < it->version;
	look_at_image(it, version);
	newest = mvcc_newest_before(version, UINT64_MAX);
	if (newest == MVCC_SLOTS || w->tts != s->ts)
		return false;
	vb_stage_saw(s, version[newest]);
	VB_SOMETIMES_IF(!is_before(version[newest], time_of(s)), 200,
			"mvcc-rcc: a younger version is there behind the lock");
	if (!is_before(version[newest], time_of(s)))
		return false;
	vb_item_take_slot(it, newest);
	take(it, version[newest], newest);
	return is_whole(s, it);
}

/* Our write is the pending one: may it be?  Whether or not that was asked before: a server that waits for
 * another of the call's records comes here again with what it has refused. */
static void judge_held(struct vb_stage *s, struct vb_item *it, const struct locking *w)
{
	uint64_t rts = needs_record(it) ? vb_tuple_word(it->image, VB_TUPLE_META_AT) : w->rts;

	vb_stage_saw(s, rts);
	vb_stage_saw(s, w->behind);
	VB_SOMETIMES_IF(rts > s->ts, 200, "mvcc-rcc: a reader came before the lock");
	it->status = VB_TXN_CHANGED;
	it->seen = 0;
	if (rts > s->ts || !judge_versions(s, it, w))
		return;
	it->flags |= VB_ITEM_FETCHED;
	it->status = 0;
}

static void judge_lock(struct vb_stage *s, struct vb_item *it, const struct locking *w)
{
	it->flags &= (uint16_t)~VB_ITEM_MAYBE;
	if (it->seen != 0 && it->seen != s->ts) {
		end_for(it, it->seen);
		return;
	}
	it->flags |= VB_ITEM_HELD_X;
	it->held = s->ts;
	if (needs_record(it) && !vb_item_is_key(it))
		wrong_tuple(s, it);
	else
		judge_held(s, it, w);
}

static void lock_stage(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	struct vb_item *some[VB_STAGE_ITEMS];
	struct locking w[VB_STAGE_ITEMS];
	unsigned m;

	vb_stage_hint(s, items, n);
	m = look_before(s, items, n, some);
	for (unsigned i = 0; i < m; i++)
		ask_lock(s, some[i], &w[i]);
	if (m == 0 || !vb_stage_go(s, items, n))
		return;
	for (unsigned i = 0; i < m; i++)
		judge_lock(s, some[i], &w[i]);
	/* What wrong_tuple asked for. */
	(void)vb_stage_go(s, items, n);
}

/* ---- commit, release ---- */

static uint64_t free_word(const struct vb_item *it)
{
	(void)it;
	return 0;
}

static void commit_stage(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	vb_stage_commit(s, items, n, MVCC_WRITING, free_word);
}

static void release_stage(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];

		it->status = 0;
		if (it->at != 0)
			vb_acc_cas(s->acc, VB_AMOD_IM, lock_word(it), s->ts, 0, &it->seen);
	}
	(void)vb_stage_go(s, items, n);
}

/* ---- the transaction ---- */

/* What it will write is fetched under its lock, also if it was taken without its record at first. */
static int read_items(struct vb_txn *t, struct vb_item **items, unsigned n)
{
	unsigned writes = vb_items_to_front(items, n, VB_ITEM_WRITE, 0);
	int err = writes > 0 ? vb_txn_stage(t, LOCK, items, writes) : 0;

	return err == 0 && n > writes ? vb_txn_stage(t, READ, items + writes, n - writes) : err;
}

/* Locks are taken while the transaction runs, as in the paper. */
static int write_items(struct vb_txn *t, struct vb_item **items, unsigned n)
{
	return vb_txn_stage(t, LOCK, items, n);
}

/* Everything is in order at its timestamp from the moment when it was read or locked. */
static int prepare(struct vb_txn *t)
{
	(void)t;
	return 0;
}

static uint64_t unlocked(uint64_t version, uint64_t was)
{
	(void)version;
	(void)was;
	return 0;
}

static uint64_t locked(uint64_t ts, uint64_t was)
{
	(void)was;
	return ts;
}

static const struct vb_stage_ops stages[] = {
	[READ] = {.name = "read", .flags = VB_STAGE_FETCHES | VB_STAGE_MAKES, .run = read_stage},
	[LOCK] = {.name = "lock", .flags = VB_STAGE_FETCHES | VB_STAGE_MAKES, .run = lock_stage},
	[COMMIT] = {.name = "commit", .flags = VB_STAGE_WRITES, .run = commit_stage},
	[RELEASE] = {.name = "release", .run = release_stage},
};

const struct vb_cc_ops vb_cc_mvcc_rcc = {
	.name = "mvcc-rcc",
	.summary = "four versions of a record, and what is read is read twice",
	.source = "RCC section 4.4",
	.caps = VB_CC_NEVER_WAITS | VB_CC_SNAPSHOTS,
	.meta_bytes = MVCC_META,
	.words = mvcc_words,
	.n_words = VB_ARRAY_SIZE(mvcc_words),
	.slots = MVCC_SLOTS,
	.stages = stages,
	.n_stages = STAGES,
	.commit = COMMIT,
	.release = RELEASE,
	.read = read_items,
	.write = write_items,
	.prepare = prepare,
	.unlocked = unlocked,
	.locked = locked,
	.whose = vb_ts_named,
};
