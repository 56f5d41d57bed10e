/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MaaT (cc/maat.c): what is written is locked, and those who have read it are bounded.
 */
#include "cc/maat.h"

#include "base/sometimes.h"

/* How often a bound is lowered against other writers before the stage is run anew. */
#define BOUND_TRIES 4u

/* A tuple's, from rts to the version. */
struct words {
	uint64_t rts, mark[MAAT_SLOTS], lock, version;
};
_Static_assert(offsetof(struct words, lock) == MAAT_META, "as tuples are laid out");

/* One that has read what is being locked. */
struct reader {
	uint64_t ts;
	struct {
		uint64_t upper, lower;
	} bounds;
	uint64_t old, status; /* of its upper, and behind that */
	bool settled, gone;
};
_Static_assert(offsetof(struct vb_place_head, lower) == offsetof(struct vb_place_head, upper) + 8,
	       "one READ brings both");

/* What is being locked, and who has read it. */
struct locking {
	struct words w[VB_STAGE_ITEMS];
	struct reader reader[VB_STAGE_ITEMS * MAAT_SLOTS];
	unsigned readers;
};

static void ask_lock(struct vb_stage *s, struct vb_item *it, struct words *w)
{
	it->status = 0;
	it->seen = s->ts;
	it->seen_slot = 0;
	it->held = s->ts;
	if (!(it->flags & VB_ITEM_HELD_X)) {
		it->flags |= VB_ITEM_MAYBE;
		vb_acc_cas(s->acc, VB_AMOD_IM, maat_lock_word(it), 0, s->ts, &it->seen);
	}
	vb_acc_read(s->acc, VB_READ_DI, maat_rts_word(it), w, sizeof(*w));
}

static bool judge_lock(struct vb_stage *s, struct vb_item *it, const struct words *w)
{
	it->flags &= (uint16_t)~VB_ITEM_MAYBE;
	if (it->seen != 0 && it->seen != s->ts) {
		it->status = VB_TXN_LOCKED;
		return false;
	}
	it->flags |= VB_ITEM_HELD_X;
	it->seen = 0;
	if (w->version != it->version) {
		it->status = VB_TXN_CHANGED;
		return false;
	}
	maat_at_least(s, MAAT_FIRST_TIME);
	maat_at_least(s, maat_wts(w->version) + 1);
	return true;
}

/* What is no place is no word of ours. */
static bool is_another(const struct vb_stage *s, uint64_t mark)
{
	return mark != 0 && mark != s->ts && vb_stage_has_place(s, vb_ts_place(mark));
}

/* Each is asked once, however much of it he has read. */
static void note_readers(struct vb_stage *s, struct locking *k, const struct words *w)
{
	for (unsigned i = 0; i < MAAT_SLOTS; i++) {
		unsigned j = 0;

		if (!is_another(s, w->mark[i]))
			continue;
		while (j < k->readers && k->reader[j].ts != w->mark[i])
			j++;
		if (j == k->readers)
			k->reader[k->readers++] = (struct reader){.ts = w->mark[i]};
	}
}

/*
 * Words that are gone with their node cannot be asked, and there are copies, which tell recovery whether the reader has
 * committed: then it has published before, or it never will.  One mark at a time is noted for that, and another in
 * the next try.
 */
static bool meets_gone(struct vb_stage *s, struct vb_item *it, const struct words *w)
{
	const unsigned first = (unsigned)(vb_ts_clock(s->ts) % MAAT_SLOTS);

	for (unsigned n = 0; n < MAAT_SLOTS && s->db->copies != 0; n++) {
		const unsigned i = (first + n) % MAAT_SLOTS;

		if (!is_another(s, w->mark[i]) || !vb_stage_place_gone(s, vb_ts_place(w->mark[i])))
			continue;
		VB_SOMETIMES(500, "maat: who has left a mark is gone with its node");
		it->status = VB_TXN_LOCKED;
		it->seen = w->mark[i];
		it->seen_slot = (uint8_t)(MAAT_FIRST_SLOT + i);
		return true;
	}
	return false;
}

static void look_at_rts(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		vb_acc_read(s->acc, VB_READ_DI, maat_rts_word(items[i]), &maat_item(items[i])->rts,
			    8);
}

static void come_behind_rts(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		maat_at_least(s, maat_item(items[i])->rts + 1);
}

/*
 * The earliest time would do.  But a reader whose interval ends before it begins has run in vain, so we come behind
 * where it begins if our own interval reaches so far.
 */
static void spare_readers(struct vb_stage *s, struct locking *k, uint64_t upper)
{
	for (unsigned i = 0; i < k->readers; i++) {
		const struct reader *r = &k->reader[i];

		if (r->bounds.upper & MAAT_FROZEN)
			maat_at_least(s, maat_time(r->bounds.upper) + 1);
		else if (r->bounds.lower < maat_time(upper)) {
			VB_SOMETIMES_IF(r->bounds.lower >= s->commit_ts, 50,
					"maat: a writer spares a reader");
			maat_at_least(s, r->bounds.lower + 1);
		}
	}
}

static uint64_t below(const struct vb_stage *s, uint64_t upper)
{
	const uint64_t most = maat_upper(s->commit_ts - 1);

	return upper & MAAT_FROZEN || upper < most ? upper : most;
}

/* With copies, one that its status word gives up may happen yet, and not have published. */
static bool may_commit(const struct vb_stage *s, const struct reader *r)
{
	return r->status == (r->ts | VB_TS_RUNNING) ||
	       (s->db->copies != 0 && r->status == vb_ts_name(r->ts));
}

/* Is it certain that it commits before us, or not at all?  *gone: it has ended, and rts says when it committed. */
static bool is_settled(struct vb_stage *s, struct reader *r, bool *gone)
{
	const uint64_t was = r->bounds.upper;

	if (!may_commit(s, r)) {
		VB_SOMETIMES(100, "maat: who has left a mark has ended");
		r->gone = *gone = true;
		return true;
	}
	r->bounds.upper = r->old;
	if (r->old & MAAT_FROZEN) {
		VB_SOMETIMES(50, "maat: a reader is frozen");
		maat_at_least(s, maat_time(r->old) + 1);
		return true;
	}
	VB_SOMETIMES_IF(r->old != was, 200, "maat: another has moved a bound");
	return r->old == was || r->old == below(s, r->old);
}

/* True: all who have read it commit before us, or not at all. */
static bool bound_readers(struct vb_stage *s, struct vb_item **items, unsigned n, struct locking *k,
			  bool *gone)
{
	unsigned left = k->readers;

	for (unsigned tries = 0; left > 0 && tries < BOUND_TRIES; tries++) {
		for (unsigned i = 0; i < k->readers; i++) {
			struct reader *r = &k->reader[i];
			const uint32_t place = vb_ts_place(r->ts);

			if (r->settled)
				continue;
			vb_acc_cas(s->acc, VB_AMOD_TM, maat_upper_word(s->db, place),
				   r->bounds.upper, below(s, r->bounds.upper), &r->old);
			vb_acc_read(s->acc, VB_READ_TM, vb_stage_status_addr(s, place), &r->status,
				    8);
		}
		if (!vb_stage_go(s, items, n))
			return false;
		for (unsigned i = 0; i < k->readers; i++) {
			struct reader *r = &k->reader[i];

			if (r->settled)
				continue;
			r->settled = is_settled(s, r, gone);
			left -= r->settled;
		}
	}
	for (unsigned i = 0; i < n && left > 0; i++)
		items[i]->status = VB_ITEM_WAIT;
	return left == 0;
}

/* And what else was asked for. */
static bool look_at_bounds(struct vb_stage *s, struct vb_item **items, unsigned n,
			   struct locking *k)
{
	for (unsigned i = 0; i < k->readers; i++)
		vb_acc_read(s->acc, VB_READ_TM,
			    maat_upper_word(s->db, vb_ts_place(k->reader[i].ts)),
			    &k->reader[i].bounds, sizeof(k->reader[i].bounds));
	return vb_stage_go(s, items, n);
}

/* Of those that have ended, and have not cleared them, or not yet. */
static void clear_marks(struct vb_stage *s, struct vb_item **items, unsigned n, struct locking *k)
{
	for (unsigned i = 0; i < n; i++)
		for (unsigned slot = 0; slot < MAAT_SLOTS; slot++) {
			uint64_t *mark = &k->w[i].mark[slot];
			unsigned j = 0;

			while (j < k->readers && !(k->reader[j].gone && k->reader[j].ts == *mark))
				j++;
			if (j < k->readers)
				vb_acc_cas(s->acc, VB_AMOD_IM,
					   items[i]->at +
						   maat_slot_at((uint8_t)(MAAT_FIRST_SLOT + slot)),
					   k->reader[j].ts, 0, mark);
		}
}

/* All of it is locked; T2 and T3. */
static void look_at_readers(struct vb_stage *s, struct vb_item **items, unsigned n,
			    struct locking *k)
{
	bool gone = false;

	look_at_rts(s, items, n);
	if (!look_at_bounds(s, items, n, k))
		return;
	come_behind_rts(s, items, n);
	spare_readers(s, k, maat_item(items[0])->upper);
	if (!bound_readers(s, items, n, k, &gone) || !gone)
		return;
	look_at_rts(s, items, n);
	clear_marks(s, items, n, k);
	if (vb_stage_go(s, items, n))
		come_behind_rts(s, items, n);
}

/* True: all of it is. */
static bool lock_items(struct vb_stage *s, struct vb_item **items, unsigned n, struct locking *k)
{
	bool all = true;

	k->readers = 0;
	for (unsigned i = 0; i < n; i++)
		ask_lock(s, items[i], &k->w[i]);
	if (!vb_stage_go(s, items, n))
		return false;
	for (unsigned i = 0; i < n; i++) {
		all &= judge_lock(s, items[i], &k->w[i]) && !meets_gone(s, items[i], &k->w[i]);
		note_readers(s, k, &k->w[i]);
	}
	return all;
}

void maat_lock(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	struct locking k;

	if (lock_items(s, items, n, &k))
		look_at_readers(s, items, n, &k);
}

/* ---- to the letter ---- */

/* Lines 7 and 8.  What is ours we note. */
static bool latch_own(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	struct maat_item *own = maat_item(items[0]);
	uint64_t was = own->upper;

	if (own->upper & MAAT_LATCHED)
		return true;
	vb_acc_cas(s->acc, VB_AMOD_TM, maat_upper_word(s->db, vb_ts_place(s->ts)), was,
		   was | MAAT_LATCHED, &own->upper);
	if (!vb_stage_go(s, items, n) || own->upper != was)
		return false;
	own->upper |= MAAT_LATCHED;
	return true;
}

static void unlatch_own(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	struct maat_item *own = maat_item(items[0]);
	const uint64_t latched = own->upper;

	own->upper &= ~MAAT_LATCHED;
	vb_acc_cas(s->acc, VB_AMOD_TM, maat_upper_word(s->db, vb_ts_place(s->ts)), latched,
		   own->upper, &maat_item(items[0])->rts);
	(void)vb_stage_go(s, items, n);
}

static bool nobody_has_latched(const struct locking *k)
{
	for (unsigned i = 0; i < k->readers; i++)
		if (k->reader[i].bounds.upper & MAAT_LATCHED)
			return false;
	return true;
}

/*
 * Line 19 takes rts when the record is marked, and it is not looked at again; ReadTM of one that is not at its place
 * any more is NULL, and there is nothing to adjust.  Lines 7 to 10: the own latch is held while it waits for the
 * others'.
 */
void maat_lock_published(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	struct locking k;
	bool gone;

	if (!lock_items(s, items, n, &k))
		return;
	for (unsigned i = 0; i < n; i++)
		maat_at_least(s, k.w[i].rts + 1);
	if (k.readers == 0)
		return;
	if (latch_own(s, items, n) && look_at_bounds(s, items, n, &k) && nobody_has_latched(&k)) {
		spare_readers(s, &k, maat_item(items[0])->upper & ~MAAT_LATCHED);
		if (bound_readers(s, items, n, &k, &gone))
			unlatch_own(s, items, n);
		return;
	}
	for (unsigned i = 0; i < n && s->err == 0; i++)
		items[i]->status = VB_ITEM_WAIT;
}
