/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sundial (RCC section 4.5): logical leases.  A version is good from wts to rts in logical
 * time.  A transaction commits at one logical time that lies in the leases of all it read and
 * behind the leases of all it overwrites.  If the time has to lie behind a lease, the lease is
 * *renewed*, which is possible as long as nobody has written or locked the record.  So a reader
 * need not abort because somebody wrote after it.
 *
 *	lock word      63        48 47  44 43                                0
 *	              +------------+------+-----------------------------------+
 *	              | place + 1  | name | rts                               |     place + 1 = 0: free
 *	              +------------+------+-----------------------------------+
 *	version word  | wts (62 bits)                              | a | w    |     a: there is no record
 *	              +------------+------------------------------------------+     w: being written
 *
 *	read      READ                             renew    CAS (0, rts) -> (0, commit time)
 *	lock      CAS (0, rts) -> (name, rts)      commit   WRITE + CAS (name, rts) -> (0, commit time)
 *	                                           release  CAS (name, rts) -> (0, rts + 1)
 *
 * A locked record may be read: its writer commits behind its lease.  Without seals the record under
 * a locked word may be half written, so the writer marks the version first (bit w).
 *
 * Serializable, but not strictly: a transaction may be ordered, in logical time, before one that
 * had ended before it began.
 *
 * A held word names one lock of one transaction, and no such word ever comes back: every commit
 * and every release makes rts larger, so at each rts a record is locked at most once.  A verb or a
 * server that comes late finds another word and does nothing.  A transaction does not take a lock
 * that it finds for its own, even under its own place: it is an earlier transaction's.  What of
 * this comes to an end, and when, says doc/cc/sundial.md ("Words").
 *
 * Departs from the paper (why, with the interleavings: doc/cc/sundial.md):
 *   - lock and lease are one word, so a renewal's CAS fails if somebody has locked (cc/sundial_published.c);
 *   - a renewal is one CAS without a READ before it, and so is a lock;
 *   - what is read is whole.
 */
#define VB_LOG_ROOM "cc"
#include "cc/sundial.h"

#include "base/log.h"
#include "base/sometimes.h"
#include "txn/db.h"

/* How often one record's renewal is tried against the renewals of others. */
#define RENEW_TRIES 4u

static vb_addr lock_word(const struct vb_item *it)
{
	return it->at + vb_item_layout(it)->lock_at;
}

static vb_addr version_word(const struct vb_item *it)
{
	return it->at + vb_item_layout(it)->version_at;
}

#define PLACE_SHIFT (SUNDIAL_RTS_BITS + SUNDIAL_NAME_BITS)
#define NAME        ((1u << SUNDIAL_NAME_BITS) - 1)

static uint64_t owner_bits(uint64_t ts)
{
	return (uint64_t)(vb_ts_place(ts) + 1) << PLACE_SHIFT | (vb_ts_clock(ts) & NAME)
									<< SUNDIAL_RTS_BITS;
}

static bool is_free(uint64_t word)
{
	return word >> PLACE_SHIFT == 0;
}

static void at_least(struct vb_stage *s, uint64_t time)
{
	if (s->commit_ts < time)
		s->commit_ts = time;
}

/* ---- read ---- */

/* before, after: the version before and after the READ of the tuple; NULL: not looked at. */
static void judge_read(struct vb_stage *s, struct vb_item *it, const uint64_t *before,
		       const uint64_t *after)
{
	const struct vb_tuple_layout *l = vb_item_layout(it);
	uint64_t word = vb_tuple_word(it->image, l->lock_at);
	uint64_t version = vb_tuple_word(it->image, l->version_at);
	bool whole = true;

	if (!vb_item_is_key(it)) {
		it->at = 0;
		it->status = VB_ITEM_WAIT;
		return;
	}
	if (vb_stage_sealed(s))
		whole = it->flags & VB_ITEM_BLIND || vb_tuple_whole(l, it->image);
	if (before != NULL)
		whole = whole && version == *before && !(version & SUNDIAL_WRITING);
	if (after != NULL)
		whole = whole && version == *after;
	if (!whole) {
		/* Its writer may have died over it: we wait for that one, by name. */
		it->seen = is_free(word) ? 0 : word;
		it->seen_slot = 0;
		it->status = VB_ITEM_WAIT;
		return;
	}
	it->version = version;
	it->lease = word & SUNDIAL_RTS;
	it->flags |= VB_ITEM_FETCHED;
	it->status = 0;
	at_least(s, sundial_wts(version));
}

static bool look_at_versions(struct vb_stage *s, struct vb_item **items, unsigned n,
			     uint64_t *version)
{
	for (unsigned i = 0; i < n; i++)
		vb_acc_read(s->acc, VB_READ_DI, version_word(items[i]), &version[i], 8);
	return vb_stage_go(s, items, n);
}

/*
 * What is read must be whole, and its rts must be of its wts and not of a later one.  With seals,
 * and where the two words are read as one, one READ shows both.  With seals alone, looks at the
 * version once more: then the rts was read before, and is that version's or an older one's, which
 * is shorter and does no harm.  Without seals, looks at it before the READ, too.
 */
void sundial_read(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	uint64_t before[VB_STAGE_ITEMS], after[VB_STAGE_ITEMS];
	bool sealed = vb_stage_sealed(s);
	bool again = !sealed || !vb_stage_pair_whole(s);

	vb_stage_hint(s, items, n);
	if (!sealed && !look_at_versions(s, items, n, before))
		return;
	for (unsigned i = 0; i < n; i++) {
		items[i]->seen = 0;
		vb_stage_read_tuple(s, items[i]);
	}
	if (!vb_stage_go(s, items, n))
		return;
	if (again && !look_at_versions(s, items, n, after))
		return;
	for (unsigned i = 0; i < n; i++)
		judge_read(s, items[i], sealed ? NULL : &before[i], again ? &after[i] : NULL);
}

/*
 * The lock word has changed since the record was read, and `seen` is free: others have renewed the
 * lease, or somebody has written.  The version, read after that, tells.  False: the fabric failed.
 */
static bool look_again(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	uint64_t version[VB_STAGE_ITEMS];

	for (unsigned i = 0; i < n; i++)
		vb_acc_read(s->acc, VB_READ_DI, version_word(items[i]), &version[i], 8);
	if (!vb_stage_go(s, items, n))
		return false;
	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];

		if (version[i] != it->version) {
			it->status = VB_TXN_CHANGED;
		} else {
			VB_SOMETIMES(100, "sundial: another has renewed the lease");
			it->lease = it->seen & SUNDIAL_RTS;
			it->status = it->lease < SUNDIAL_LAST ? VB_ITEM_WAIT : VB_TXN_LEASE;
		}
	}
	return true;
}

/* The items that look_again has found unchanged. */
static unsigned unchanged(struct vb_item **items, unsigned n)
{
	unsigned m = 0;

	for (unsigned i = 0; i < n; i++)
		if (items[i]->status == VB_ITEM_WAIT)
			items[m++] = items[i];
	return m;
}

/* ---- lock ---- */

/* The items that are free, but whose lease is another than we thought. */
static unsigned got_locks(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	unsigned m = 0;

	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];

		it->flags &= (uint16_t)~VB_ITEM_MAYBE;
		it->seen_slot = 0;
		if (it->seen == it->lease) {
			it->flags |= VB_ITEM_HELD_X;
			it->status = 0;
			at_least(s, it->lease + 1);
		} else if (!is_free(it->seen)) {
			it->status = VB_TXN_LOCKED;
		} else {
			items[m++] = it;
		}
	}
	return m;
}

void sundial_lock(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	struct vb_item *some[VB_STAGE_ITEMS];
	unsigned m = 0;

	for (unsigned i = 0; i < n; i++) {
		items[i]->status = 0;
		if (!(items[i]->flags & VB_ITEM_HELD_X))
			some[m++] = items[i];
	}
	for (unsigned tries = 0; m > 0; tries++) {
		for (unsigned i = 0; i < m; i++) {
			struct vb_item *it = some[i];

			it->held = sundial_locked(s->ts, it->lease);
			it->flags |= VB_ITEM_MAYBE;
			vb_acc_cas(s->acc, VB_AMOD_IM, lock_word(it), it->lease, it->held,
				   &it->seen);
		}
		if (!vb_stage_go(s, items, n))
			return;
		m = got_locks(s, some, m);
		if (m > 0 && !look_again(s, some, m))
			return;
		m = unchanged(some, m);
		/* Others renew all the time: give up. */
		if (tries == RENEW_TRIES)
			return;
	}
}

/* ---- renew ---- */

static unsigned got_leases(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	unsigned m = 0;

	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];

		it->seen_slot = 0;
		if (it->seen == it->lease) {
			it->lease = s->commit_ts;
			it->status = 0;
		} else if (!is_free(it->seen)) {
			it->status = VB_TXN_LEASE;
		} else {
			items[m++] = it;
		}
	}
	return m;
}

void sundial_renew(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	struct vb_item *some[VB_STAGE_ITEMS];
	unsigned m = n;

	for (unsigned i = 0; i < n; i++)
		some[i] = items[i];
	for (unsigned tries = 0; m > 0; tries++) {
		unsigned due = 0;

		for (unsigned i = 0; i < m; i++) {
			struct vb_item *it = some[i];

			it->status = 0;
			if (it->lease >= s->commit_ts)
				continue;
			some[due++] = it;
			vb_acc_cas(s->acc, VB_AMOD_IM, lock_word(it), it->lease, s->commit_ts,
				   &it->seen);
		}
		if (due == 0)
			return;
		if (!vb_stage_go(s, items, n))
			return;
		m = got_leases(s, some, due);
		if (m > 0 && !look_again(s, some, m))
			return;
		m = unchanged(some, m);
		if (tries == RENEW_TRIES)
			return;
	}
}

/* ---- commit, release ---- */

static uint64_t free_word(const struct vb_item *it)
{
	return sundial_wts(it->next);
}

void sundial_commit(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	vb_stage_commit(s, items, n, SUNDIAL_WRITING, free_word);
}

static bool unsure(const struct vb_item *it)
{
	return it->flags & VB_ITEM_MAYBE && !(it->flags & VB_ITEM_HELD_X) && it->at != 0;
}

/* Does the place still belong to the transaction that the stage runs for?  Unknown without status
 * words. */
static bool still_its_place(struct vb_stage *s, struct vb_item **items, unsigned n, bool *out)
{
	uint64_t status = s->ts;

	if (s->for_other && s->db->status)
		vb_acc_read(s->acc, VB_READ_TM, vb_stage_status_addr(s, vb_ts_place(s->ts)),
			    &status, 8);
	if (!vb_stage_go(s, items, n))
		return false;
	*out = (status & ~(uint64_t)VB_TS_STATE) == s->ts;
	return true;
}

/*
 * After the answer to a lock's verb was lost: is the lock ours, and under which lease?  A server
 * may come to this late, when the place has gone on to a transaction that looks the same and holds
 * the record.  If the place is still ours after we have seen the word, then the word is ours, or
 * an earlier one that was left behind.
 */
static bool look_what_is_held(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	uint64_t word[VB_STAGE_ITEMS];
	bool any = false, ours = false;

	for (unsigned i = 0; i < n; i++) {
		if (!unsure(items[i]))
			continue;
		vb_acc_read(s->acc, VB_READ_DI, lock_word(items[i]), &word[i], 8);
		any = true;
	}
	if (!any)
		return true;
	if (!vb_stage_go(s, items, n) || !still_its_place(s, items, n, &ours))
		return false;
	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];

		if (!unsure(it))
			continue;
		VB_SOMETIMES_IF(ours && sundial_locked(s->ts, word[i]) == word[i], 200,
				"sundial: its own lock is found after a lost answer");
		if (ours && sundial_locked(s->ts, word[i]) == word[i])
			it->held = word[i];
		else
			it->flags &= (uint16_t)~VB_ITEM_MAYBE;
	}
	return true;
}

void sundial_release(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	if (!look_what_is_held(s, items, n))
		return;
	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];

		it->status = 0;
		if (it->at != 0 && it->flags & (VB_ITEM_HELD_X | VB_ITEM_MAYBE))
			vb_acc_cas(s->acc, VB_AMOD_IM, lock_word(it), it->held,
				   sundial_unlocked(0, it->held), &it->seen);
	}
	(void)vb_stage_go(s, items, n);
}

/* ---- the transaction ---- */

int sundial_access(struct vb_txn *t, struct vb_item **items, unsigned n)
{
	return vb_txn_stage(t, SUNDIAL_READ, items, n);
}

static int no_time_left(struct vb_txn *t)
{
	vb_error("the logical time of database '%s' is used up: load its tables into a new one, or "
		 "use another protocol",
		 t->me->db->name);
	return vb_txn_doom(t, VB_TXN_MISUSE, -EOVERFLOW);
}

/* Locks are taken while the transaction runs, as in the paper: of two that write the same record,
 * one does not run to its end. */
int sundial_write(struct vb_txn *t, struct vb_item **items, unsigned n)
{
	unsigned m = vb_items_to_front(items, n, 0, VB_ITEM_FETCHED);
	int err = m > 0 ? vb_txn_stage(t, SUNDIAL_READ, items, m) : 0;

	for (unsigned i = 0; i < n && err == 0; i++)
		if (vb_unlikely(items[i]->lease >= SUNDIAL_LAST))
			err = no_time_left(t);
	return err ? err : vb_txn_stage(t, SUNDIAL_LOCK, items, n);
}

int sundial_prepare(struct vb_txn *t)
{
	if (vb_unlikely(t->commit_ts >= SUNDIAL_LAST))
		return no_time_left(t);
	return vb_txn_stage_all(t, SUNDIAL_RENEW, VB_ITEM_READ, VB_ITEM_WRITE);
}

uint64_t sundial_unlocked(uint64_t version, uint64_t was)
{
	uint64_t wts = sundial_wts(version);

	/* A lease that is longer by one harms no reader. */
	if (was != 0)
		return (was & SUNDIAL_RTS) + 1;
	return wts > 0 ? wts : 1;
}

uint64_t sundial_locked(uint64_t ts, uint64_t was)
{
	return owner_bits(ts) | (was & SUNDIAL_RTS);
}

/* Of its holder's clock a word has the last bits. */
struct vb_word_name sundial_whose(uint64_t word)
{
	if (is_free(word))
		return (struct vb_word_name){0};
	return (struct vb_word_name){
		.ts = vb_ts_make(word >> SUNDIAL_RTS_BITS & NAME,
				 (uint32_t)(word >> PLACE_SHIFT) - 1),
		.shown = vb_ts_make(NAME, (1u << VB_TS_PLACE_BITS) - 1),
	};
}

static const struct vb_stage_ops stages[] =
	SUNDIAL_STAGE_TABLE(sundial_read, sundial_lock, sundial_renew);

const struct vb_cc_ops vb_cc_sundial = {
	.name = "sundial",
	.summary = "logical leases: a reader commits in the past of a later writer",
	.source = "RCC section 4.5",
	.caps = VB_CC_LOGICAL | VB_CC_TIME_ENDS,
	SUNDIAL_OPS(stages),
};
