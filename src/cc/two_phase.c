/* SPDX-License-Identifier: Apache-2.0 */
#define VB_LOG_ROOM "cc"
#include "cc/two_phase.h"

#include "base/log.h"
#include "base/sometimes.h"

#define SX "no-wait-sx wait-die-sx wound-wait-sx bounded-wait-sx votes: "

/* How many slots a reader tries that another reader took first. */
#define SLOT_TRIES 3u

const struct vb_cc_word two_phase_sx_words[1] = {
	{.at = VB_TUPLE_META_AT, .kind = VB_WORD_READER, .n = VB_SX_SLOTS},
};

static vb_addr lock_word(const struct vb_item *it)
{
	return it->at + vb_item_layout(it)->lock_at;
}

static vb_addr slot_word(const struct vb_item *it)
{
	return it->at + VB_TUPLE_META_AT + (it->slot - 1u) * 8u;
}

static bool wants_x(const struct vb_item *it)
{
	return it->flags & VB_ITEM_WRITE;
}

static bool needs_read(const struct vb_item *it)
{
	return !(it->flags & VB_ITEM_FETCHED);
}

/* The guess at the address was wrong: gives back at once what was taken there. */
static void wrong_tuple(struct vb_stage *s, struct vb_item *it, vb_addr word)
{
	vb_acc_cas(s->acc, VB_AMOD_IM, word, s->ts, 0, &it->held);
	it->flags &= (uint16_t) ~(VB_ITEM_HELD_X | VB_ITEM_HELD_S);
	it->at = 0;
	it->status = VB_ITEM_WAIT;
	it->seen = 0;
}

/* The lock is ours.  An image that was fetched before stays: the transaction may have changed
 * it. */
static void fetched(struct vb_item *it)
{
	if (needs_read(it))
		it->version = vb_tuple_word(it->image, vb_item_layout(it)->version_at);
	it->flags |= VB_ITEM_FETCHED;
	it->seen = 0;
	it->status = 0;
}

static void in_the_way(struct vb_stage *s, struct vb_item *it, uint64_t holder, uint8_t slot,
		       two_phase_judge *judge)
{
	uint8_t status = judge(s, it, holder);

	/* Of several holders, one that ends us counts, and is suspected. */
	if (it->status != 0 && it->status != VB_ITEM_WAIT)
		return;
	it->status = status;
	it->seen = holder;
	it->seen_slot = slot;
}

static void ask_x(struct vb_stage *s, struct vb_item *it)
{
	it->status = 0;
	if (!(it->flags & VB_ITEM_HELD_X)) {
		it->flags |= VB_ITEM_MAYBE;
		vb_acc_cas(s->acc, VB_AMOD_IM, lock_word(it), 0, s->ts, &it->seen);
	} else {
		it->seen = s->ts;
	}
	if (needs_read(it))
		vb_stage_read_tuple(s, it);
}

/* True: the lock word is ours. */
static bool got_x(struct vb_stage *s, struct vb_item *it, two_phase_judge *judge)
{
	it->flags &= (uint16_t)~VB_ITEM_MAYBE;
	if (it->seen != 0 && it->seen != s->ts) {
		in_the_way(s, it, it->seen, 0, judge);
		return false;
	}
	it->flags |= VB_ITEM_HELD_X;
	it->held = s->ts;
	if (needs_read(it) && !vb_item_is_key(it)) {
		wrong_tuple(s, it, lock_word(it));
		return false;
	}
	return true;
}

void two_phase_lock_x(struct vb_stage *s, struct vb_item **items, unsigned n,
		      two_phase_judge *judge)
{
	vb_stage_hint(s, items, n);
	for (unsigned i = 0; i < n; i++)
		ask_x(s, items[i]);
	if (!vb_stage_go(s, items, n))
		return;
	for (unsigned i = 0; i < n; i++)
		if (got_x(s, items[i], judge))
			fetched(items[i]);
	/* What the judges asked for. */
	(void)vb_stage_go(s, items, n);
}

/* ---- shared and exclusive ---- */

static void ask_s(struct vb_stage *s, struct vb_item *it)
{
	it->status = 0;
	if (it->slot == 0)
		it->slot = (uint8_t)(1 + vb_ts_place(s->ts) / 4 % VB_SX_SLOTS);
	it->flags |= VB_ITEM_MAYBE_S;
	vb_acc_cas(s->acc, VB_AMOD_IM, slot_word(it), 0, s->ts, &it->seen);
	vb_acc_cas(s->acc, VB_AMOD_IM, lock_word(it), 0, 0, &it->held);
	vb_stage_read_tuple(s, it);
}

/* An empty slot, as the image shows it, or 0. */
static uint8_t empty_slot(const struct vb_item *it)
{
	for (unsigned k = 0; k < VB_SX_SLOTS; k++) {
		unsigned slot = (it->slot + k) % VB_SX_SLOTS;

		if (vb_tuple_word(it->image, VB_TUPLE_META_AT + slot * 8) == 0)
			return (uint8_t)(slot + 1);
	}
	return 0;
}

/* True: the slot was another reader's; try the one that it->slot now names. */
static bool got_s(struct vb_stage *s, struct vb_item *it, two_phase_judge *judge)
{
	uint64_t writer = it->held;

	it->flags &= (uint16_t)~VB_ITEM_MAYBE_S;
	if (it->seen != 0 && it->seen != s->ts) {
		uint8_t other = empty_slot(it);

		VB_SOMETIMES(100, SX "a reader's slot is another's");

		it->seen_slot = it->slot;
		it->slot = other;
		it->status = VB_TXN_SLOTS;
		return other != 0;
	}
	it->flags |= VB_ITEM_HELD_S;
	if (!vb_item_is_key(it)) {
		wrong_tuple(s, it, slot_word(it));
	} else if (writer != 0 && writer != s->ts) {
		/* Leave the slot before we wait: the writer waits for readers that are in slots. */
		vb_acc_cas(s->acc, VB_AMOD_IM, slot_word(it), s->ts, 0, &it->held);
		it->flags &= (uint16_t)~VB_ITEM_HELD_S;
		in_the_way(s, it, writer, 0, judge);
	} else {
		fetched(it);
	}
	return false;
}

static void look_at_readers(struct vb_stage *s, struct vb_item *it, const unsigned char *slots,
			    two_phase_judge *judge)
{
	it->status = 0;
	for (unsigned k = 0; k < VB_SX_SLOTS; k++) {
		uint64_t reader = vb_tuple_word(slots, k * 8);

		if (reader != 0 && reader != s->ts)
			in_the_way(s, it, reader, (uint8_t)(k + 1), judge);
	}
	if (it->status == 0)
		fetched(it);
}

/* An upgrade has the record already, and its transaction may have changed it: looks at the slots
 * alone. */
struct sx_look {
	unsigned char slots[VB_SX_META];
};

static void lock_some_x(struct vb_stage *s, struct vb_item **items, unsigned n,
			two_phase_judge *judge)
{
	struct sx_look look[VB_STAGE_ITEMS];

	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];
		bool fetch = needs_read(it);

		ask_x(s, it);
		if (!fetch)
			vb_acc_read(s->acc, VB_READ_DI, it->at + VB_TUPLE_META_AT, look[i].slots,
				    VB_SX_META);
	}
	if (!vb_stage_go(s, items, n))
		return;
	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];
		const unsigned char *slots =
			needs_read(it) ? it->image + VB_TUPLE_META_AT : look[i].slots;

		if (got_x(s, it, judge))
			look_at_readers(s, it, slots, judge);
	}
	(void)vb_stage_go(s, items, n);
}

/* They have left their slots, and the answer was lost. */
static void not_sure_left(struct vb_item **items, unsigned n)
{
	VB_SOMETIMES(1000, SX "a reader does not know whether it has left its slot");
	for (unsigned i = 0; i < n; i++)
		if (!(items[i]->flags & VB_ITEM_HELD_S))
			items[i]->flags |= VB_ITEM_MAYBE_S;
}

static void lock_some_s(struct vb_stage *s, struct vb_item **items, unsigned n,
			two_phase_judge *judge)
{
	struct vb_item *now[VB_STAGE_ITEMS];

	for (unsigned tries = 0; n > 0 && tries < SLOT_TRIES; tries++) {
		unsigned left = 0;

		for (unsigned i = 0; i < n; i++)
			ask_s(s, items[i]);
		if (!vb_stage_go(s, items, n))
			return;
		for (unsigned i = 0; i < n; i++)
			if (got_s(s, items[i], judge))
				now[left++] = items[i];
		if (!vb_stage_go(s, items, n)) {
			not_sure_left(items, n);
			return;
		}
		items = now;
		n = left;
	}
}

void two_phase_lock_sx(struct vb_stage *s, struct vb_item **items, unsigned n,
		       two_phase_judge *judge)
{
	struct vb_item *x[VB_STAGE_ITEMS], *shared[VB_STAGE_ITEMS];
	unsigned n_x = 0, n_s = 0;

	vb_stage_hint(s, items, n);
	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];

		it->status = 0;
		if (wants_x(it))
			x[n_x++] = it;
		else if (!(it->flags & VB_ITEM_HELD_S) || needs_read(it))
			shared[n_s++] = it;
	}
	if (n_x > 0)
		lock_some_x(s, x, n_x, judge);
	if (n_s > 0)
		lock_some_s(s, shared, n_s, judge);
}

/* ---- the other stages ---- */

static uint64_t free_word(const struct vb_item *it)
{
	(void)it;
	return 0;
}

void two_phase_commit(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	vb_stage_commit(s, items, n, 0, free_word);
}

/* The answer that would have told which slot it was is lost. */
static void leave_every_slot(struct vb_stage *s, struct vb_item *it)
{
	if (vb_item_layout(it)->meta_bytes != VB_SX_META)
		return;
	VB_SOMETIMES(200, SX "a reader leaves every slot after a lost answer");
	for (unsigned k = 0; k < VB_SX_SLOTS; k++)
		vb_acc_cas(s->acc, VB_AMOD_IM, it->at + VB_TUPLE_META_AT + k * 8, s->ts, 0,
			   &it->seen);
}

void two_phase_release(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];

		it->status = 0;
		if (it->at == 0)
			continue;
		if (it->flags & (VB_ITEM_HELD_X | VB_ITEM_MAYBE))
			vb_acc_cas(s->acc, VB_AMOD_IM, lock_word(it), s->ts, 0, &it->held);
		if (it->flags & VB_ITEM_HELD_S)
			vb_acc_cas(s->acc, VB_AMOD_IM, slot_word(it), s->ts, 0, &it->seen);
		else if (it->flags & VB_ITEM_MAYBE_S)
			leave_every_slot(s, it);
	}
	(void)vb_stage_go(s, items, n);
}

int two_phase_access(struct vb_txn *t, struct vb_item **items, unsigned n)
{
	return vb_txn_stage(t, TWO_PHASE_LOCK, items, n);
}

/* A transaction that has all its locks may commit. */
int two_phase_prepare(struct vb_txn *t)
{
	(void)t;
	return 0;
}

uint64_t two_phase_unlocked(uint64_t version, uint64_t was)
{
	(void)version;
	(void)was;
	return 0;
}

uint64_t two_phase_locked(uint64_t ts, uint64_t was)
{
	(void)was;
	return ts;
}
