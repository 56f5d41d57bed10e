/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MaaT (cc/maat.c): what is read is marked, is nobody's who writes, and is whole.
 *
 * Behind the mark the lock word is looked at, and not before that the version: a writer that has not seen the mark is
 * seen by one of the two.  With seals one READ behind the mark brings both; where they are not of one moment the lock
 * word is looked at before it, by a CAS.
 *
 * Without seals both are looked at before the READ, too, and behind it.  Nobody held it before, and whoever has
 * written since has changed the version before he let it go:
 *
 *	R   lock 0, version 3     READ: half of 3            and half of 8                lock 0, version 8
 *	W                                          lock, 8, lock 0
 */
#include "cc/maat.h"

#include "base/sometimes.h"

/* How many slots a reader tries that another has taken first. */
#define SLOT_TRIES 2u

/* An item that is being read: how it was before the READ, in it, and behind it. */
struct reading {
	struct vb_item *it;
	struct maat_pair before, at, behind;
	uint64_t mark; /* what stood in its slot */
	bool asked;    /* for the slot */
	bool again;    /* for another one */
	bool looks;    /* behind */
};

/* What will be written need not be marked: it is locked at the version that was read, or not at all. */
static bool is_marked(const struct vb_item *it)
{
	return !(it->flags & VB_ITEM_WRITE);
}

static vb_addr slot_word(const struct vb_item *it)
{
	return it->at + maat_slot_at(it->slot);
}

/* By its name. */
static uint8_t home_slot(uint64_t ts)
{
	return (uint8_t)(MAAT_FIRST_SLOT + vb_ts_place(ts) / VB_PLACES_EACH % MAAT_SLOTS);
}

void maat_ask_pair(struct vb_stage *s, const struct vb_item *it, struct maat_pair *p)
{
	if (vb_stage_pair_whole(s)) {
		vb_acc_read(s->acc, VB_READ_DI, maat_lock_word(it), p, sizeof(*p));
		return;
	}
	/* Two READs may happen the other way round. */
	vb_acc_cas(s->acc, VB_AMOD_IM, maat_lock_word(it), 0, 0, &p->lock);
	vb_acc_read(s->acc, VB_READ_DI, it->at + vb_item_layout(it)->version_at, &p->version, 8);
}

/*
 * It has to wait, or was another key's tuple, and has no mark meanwhile: it would be bounded by every writer that
 * comes, for nothing that it has read.
 */
static void unmark(struct vb_stage *s, struct reading *r)
{
	struct vb_item *it = r->it;

	if (!(it->flags & VB_ITEM_HELD_S))
		return;
	vb_acc_cas(s->acc, VB_AMOD_IM, slot_word(it), s->ts, 0, &r->mark);
	it->flags &= (uint16_t)~VB_ITEM_HELD_S;
	it->flags |= VB_ITEM_MAYBE_S;
}

static void wait_for(struct vb_stage *s, struct reading *r, uint64_t lock)
{
	VB_SOMETIMES(50, "maat: a reader waits for a writer");
	r->it->status = VB_ITEM_WAIT;
	r->it->seen = lock;
	r->it->seen_slot = 0;
	unmark(s, r);
}

/* ---- before ---- */

/* Those that nobody holds come to the front. */
static bool look_before(struct vb_stage *s, struct vb_item **items, unsigned n, struct reading *r,
			unsigned *m)
{
	unsigned left = 0;

	for (unsigned i = 0; i < *m; i++)
		maat_ask_pair(s, r[i].it, &r[i].before);
	if (!vb_stage_go(s, items, n))
		return false;
	for (unsigned i = 0; i < *m; i++)
		if (r[i].before.lock != 0)
			wait_for(s, &r[i], r[i].before.lock);
		else
			r[left++] = r[i];
	*m = left;
	return true;
}

/* ---- the READ ---- */

static void ask_read(struct vb_stage *s, struct reading *r)
{
	struct vb_item *it = r->it;

	it->status = VB_ITEM_WAIT;
	it->seen = 0;
	it->seen_slot = 0;
	r->looks = false;
	r->asked = is_marked(it) && !(it->flags & VB_ITEM_HELD_S);
	if (r->asked) {
		if (it->slot == 0)
			it->slot = home_slot(s->ts);
		it->flags |= VB_ITEM_MAYBE_S;
		vb_acc_cas(s->acc, VB_AMOD_IM, slot_word(it), 0, s->ts, &r->mark);
	}
	if (vb_stage_sealed(s) && !vb_stage_pair_whole(s))
		vb_acc_cas(s->acc, VB_AMOD_IM, maat_lock_word(it), 0, 0, &r->at.lock);
	vb_stage_read_tuple(s, it);
}

/* An empty slot, as the image shows it, or 0. */
static uint8_t empty_slot(const struct vb_item *it)
{
	for (unsigned k = 0; k < MAAT_SLOTS; k++) {
		uint8_t slot =
			(uint8_t)(MAAT_FIRST_SLOT + (it->slot - MAAT_FIRST_SLOT + k) % MAAT_SLOTS);

		if (vb_tuple_word(it->image, maat_slot_at(slot)) == 0)
			return slot;
	}
	return 0;
}

/* The slot is another's.  True: there is one to try next; else it has no mark, and is looked at again at the end. */
static bool has_another_slot(struct vb_item *it, bool last)
{
	it->slot = last ? 0 : empty_slot(it);
	VB_SOMETIMES_IF(it->slot != 0, 100, "maat: a slot is another's");
	VB_SOMETIMES_IF(it->slot == 0, 100, "maat: there is no slot for a reader");
	return it->slot != 0;
}

static void take(struct vb_stage *s, struct reading *r)
{
	struct vb_item *it = r->it;

	maat_item(it)->rts = vb_tuple_word(it->image, VB_TUPLE_META_AT);
	it->version = r->at.version;
	it->flags |= VB_ITEM_FETCHED;
	it->status = 0;
	maat_at_least(s, maat_wts(it->version));
}

/* True: once more, for another slot. */
static bool judge_read(struct vb_stage *s, struct reading *r, bool last)
{
	const struct vb_tuple_layout *l = vb_item_layout(r->it);
	struct vb_item *it = r->it;

	if (r->asked) {
		it->flags &= (uint16_t)~VB_ITEM_MAYBE_S;
		if (r->mark == 0 || r->mark == s->ts)
			it->flags |= VB_ITEM_HELD_S;
	}
	if (!vb_item_is_key(it)) {
		unmark(s, r);
		return false;
	}
	if (r->asked && !(it->flags & VB_ITEM_HELD_S) && has_another_slot(it, last))
		return true;
	r->at.version = vb_tuple_word(it->image, l->version_at);
	if (!vb_stage_sealed(s)) {
		r->looks = true;
		return false;
	}
	if (vb_stage_pair_whole(s))
		r->at.lock = vb_tuple_word(it->image, l->lock_at);
	if (r->at.lock != 0)
		wait_for(s, r, r->at.lock);
	else if (it->flags & VB_ITEM_BLIND || vb_tuple_whole(l, it->image))
		take(s, r);
	return false;
}

/* ---- behind ---- */

static bool look_behind(struct vb_stage *s, struct vb_item **items, unsigned n, struct reading *r,
			unsigned m)
{
	for (unsigned i = 0; i < m; i++)
		if (r[i].looks)
			maat_ask_pair(s, r[i].it, &r[i].behind);
	if (!vb_stage_go(s, items, n))
		return false;
	for (unsigned i = 0; i < m; i++) {
		if (!vb_item_is_key(r[i].it))
			r[i].it->at = 0;
		else if (r[i].looks && r[i].behind.lock == 0 &&
			 r[i].at.version == r[i].before.version &&
			 r[i].at.version == r[i].behind.version)
			take(s, &r[i]);
	}
	return true;
}

void maat_read(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	struct reading r[VB_STAGE_ITEMS];
	unsigned m = n;

	vb_stage_hint(s, items, n);
	for (unsigned i = 0; i < n; i++)
		r[i].it = items[i];
	for (unsigned tries = 0; m > 0 && tries < SLOT_TRIES; tries++) {
		unsigned left = 0;

		if (!vb_stage_sealed(s) && !look_before(s, items, n, r, &m))
			return;
		for (unsigned i = 0; i < m; i++)
			ask_read(s, &r[i]);
		if (!vb_stage_go(s, items, n))
			return;
		for (unsigned i = 0; i < m; i++)
			r[i].again = judge_read(s, &r[i], tries + 1 == SLOT_TRIES);
		if (!look_behind(s, items, n, r, m))
			return;
		for (unsigned i = 0; i < m; i++)
			if (r[i].again)
				r[left++] = r[i];
		m = left;
	}
	/* All that was asked for has been answered. */
	for (unsigned i = 0; i < n; i++)
		items[i]->flags &= (uint16_t)~VB_ITEM_MAYBE_S;
}
