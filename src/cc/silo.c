/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OCC as in Silo (RCC section 4.1 after DrTM+H, RCBench algorithm 5): transactions read
 * without locks, and at the end lock what they write and look whether what they read is still what
 * it was.
 *
 *	lock word     63                                            2   1   0
 *	             +-----------------------------------------------+---+---+
 *	  free       | version, as in the version word               | a | 0 |    a: there is no record
 *	             +-----------------------------------------------+---+---+
 *	  held       | timestamp of the holder: clock, place         | 0 | 1 |
 *	             +-----------------------------------------------+---+---+
 *
 *	read       READ                          validate   READ of the word, for what was only read
 *	lock       CAS version -> ts | 1         commit     WRITE + CAS ts | 1 -> ts
 *	release    CAS ts | 1 -> version
 *
 * A version is the timestamp of the transaction that wrote it, so no version ever comes back.  The
 * CAS that locks a record also proves that it is the version which was read: lock and validation of
 * the write set are one verb, and our own locks need no special case in the validation of the rest.
 *
 * Departs from the papers (why, with the interleavings: doc/cc/silo.md):
 *   - versions are compared, where RCBench's validation looks at lock and owner only
 *     (silo-as-published does);
 *   - lock and owner are one word;
 *   - the unlock is a verb of its own behind the WRITE;
 *   - what is read is whole;
 *   - there are no epochs, which serve Silo's log.
 */
#include "cc/silo.h"

static vb_addr lock_word(const struct vb_item *it)
{
	return it->at + vb_item_layout(it)->lock_at;
}

/* ---- read ---- */

/* Judges the tuple as it was read.  before, after: without a seal, the lock word before and after
 * the READ (store/store.h, "Whole reads"). */
static void judge_read(struct vb_stage *s, struct vb_item *it, uint64_t before, uint64_t after)
{
	const struct vb_tuple_layout *l = vb_item_layout(it);
	uint64_t word = vb_tuple_word(it->image, l->lock_at);
	bool whole;

	if (!vb_item_is_key(it)) {
		it->at = 0;
		it->status = VB_ITEM_WAIT;
		return;
	}
	if (word & SILO_HELD) {
		it->seen = word;
		it->seen_slot = 0;
		it->status = VB_TXN_LOCKED;
		return;
	}
	whole = word == vb_tuple_word(it->image, l->version_at);
	if (vb_stage_sealed(s))
		whole = whole && (it->flags & VB_ITEM_BLIND || vb_tuple_whole(l, it->image));
	else
		whole = whole && before == word && after == word;
	if (!whole) {
		it->status = VB_ITEM_WAIT;
		return;
	}
	it->version = word;
	it->flags |= VB_ITEM_FETCHED;
	it->status = 0;
}

static bool look_at_words(struct vb_stage *s, struct vb_item **items, unsigned n, uint64_t *word)
{
	for (unsigned i = 0; i < n; i++)
		vb_acc_read(s->acc, VB_READ_DI, lock_word(items[i]), &word[i], 8);
	return vb_stage_go(s, items, n);
}

void silo_read(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	uint64_t before[VB_STAGE_ITEMS] = {0}, after[VB_STAGE_ITEMS] = {0};
	bool sealed = vb_stage_sealed(s);

	vb_stage_hint(s, items, n);
	if (!sealed && !look_at_words(s, items, n, before))
		return;
	for (unsigned i = 0; i < n; i++) {
		items[i]->seen = 0;
		vb_stage_read_tuple(s, items[i]);
	}
	if (!vb_stage_go(s, items, n))
		return;
	if (!sealed && !look_at_words(s, items, n, after))
		return;
	for (unsigned i = 0; i < n; i++)
		judge_read(s, items[i], before[i], after[i]);
}

/* ---- lock ---- */

void silo_lock(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];

		it->flags |= VB_ITEM_MAYBE;
		it->held = s->ts | SILO_HELD;
		vb_acc_cas(s->acc, VB_AMOD_IM, lock_word(it), it->version, it->held, &it->seen);
	}
	if (!vb_stage_go(s, items, n))
		return;
	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];

		it->flags &= (uint16_t)~VB_ITEM_MAYBE;
		it->seen_slot = 0;
		if (it->seen == it->version || it->seen == it->held) {
			it->flags |= VB_ITEM_HELD_X;
			it->status = 0;
		} else {
			it->status = it->seen & SILO_HELD ? VB_TXN_LOCKED : VB_TXN_CHANGED;
		}
	}
}

/* ---- validate ---- */

void silo_validate(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		vb_acc_read(s->acc, VB_READ_DI, lock_word(items[i]), &items[i]->seen, 8);
	if (!vb_stage_go(s, items, n))
		return;
	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];

		it->seen_slot = 0;
		if (it->seen == it->version)
			it->status = 0;
		else
			it->status = it->seen & SILO_HELD ? VB_TXN_LOCKED : VB_TXN_CHANGED;
	}
}

/* ---- commit, release ---- */

static uint64_t free_word(const struct vb_item *it)
{
	return it->next;
}

void silo_commit(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	vb_stage_commit(s, items, n, 0, free_word);
}

void silo_release(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];

		it->status = 0;
		if (it->at != 0)
			vb_acc_cas(s->acc, VB_AMOD_IM, lock_word(it), s->ts | SILO_HELD,
				   it->version, &it->seen);
	}
	(void)vb_stage_go(s, items, n);
}

/* ---- the transaction ---- */

int silo_access(struct vb_txn *t, struct vb_item **items, unsigned n)
{
	return vb_txn_stage(t, SILO_READ, items, n);
}

/* A record that was declared to be written may have been read before. */
int silo_write(struct vb_txn *t, struct vb_item **items, unsigned n)
{
	unsigned m = vb_items_to_front(items, n, 0, VB_ITEM_FETCHED);

	return m > 0 ? vb_txn_stage(t, SILO_READ, items, m) : 0;
}

int silo_prepare(struct vb_txn *t)
{
	int err = vb_txn_stage_all(t, SILO_LOCK, VB_ITEM_WRITE, 0);

	return err ? err : vb_txn_stage_all(t, SILO_VALIDATE, VB_ITEM_READ, VB_ITEM_WRITE);
}

uint64_t silo_unlocked(uint64_t version, uint64_t was)
{
	(void)was;
	return version;
}

uint64_t silo_locked(uint64_t ts, uint64_t was)
{
	(void)was;
	return ts | SILO_HELD;
}

struct vb_word_name silo_whose(uint64_t word)
{
	return word & SILO_HELD ? vb_ts_named(word) : (struct vb_word_name){0};
}

static const struct vb_stage_ops stages[] = SILO_STAGE_TABLE(silo_read, silo_lock, silo_validate);

const struct vb_cc_ops vb_cc_silo = {
	.name = "silo",
	.summary = "optimistic: read without locks, lock and validate at the end",
	.source = "RCC section 4.1, RCBench algorithm 5",
	.caps = VB_CC_STRICT | VB_CC_NEVER_WAITS,
	SILO_OPS(stages),
	.prepare = silo_prepare,
};

/* ---- to the letter ---- */

/* Line 14: "X.lock != 0 and X.wid != T.Tid".  It does not look at the version. */
static void validate_locks_only(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	silo_validate(s, items, n);
	for (unsigned i = 0; i < n; i++)
		if (items[i]->status == VB_TXN_CHANGED)
			items[i]->status = 0;
}

/* Line 9: takes the lock whatever the version, unless it is held. */
static void lock_any_version(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	for (unsigned tries = 0; tries < 8; tries++) {
		bool again = false;

		silo_lock(s, items, n);
		for (unsigned i = 0; i < n; i++) {
			if (items[i]->status != VB_TXN_CHANGED)
				continue;
			items[i]->version = items[i]->seen;
			again = true;
		}
		if (!again)
			return;
	}
}

static const struct vb_stage_ops stages_published[] =
	SILO_STAGE_TABLE(silo_read, lock_any_version, validate_locks_only);

const struct vb_cc_ops vb_cc_silo_as_published = {
	.name = "silo-as-published",
	.summary = "silo whose validation looks at locks and not at versions",
	.source = "RCBench algorithm 5, to the letter",
	.caps = VB_CC_STRICT,
	.planted = "not-serializable",
	SILO_OPS(stages_published),
	.prepare = silo_prepare,
};
