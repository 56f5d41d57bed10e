/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cicada (RCBench section 5.3, algorithm 8, after Lim, Kaminsky and Andersen, SIGMOD 2017): several versions of a
 * record, read and written at the transaction's timestamp as in cc/mvcc.c, but optimistically.  A transaction
 * says that it has read, and that it will write, only at its end.  Words, commit and release are mvcc's.
 *
 *	lock word     63                                            2   1   0
 *	             +-----------------------------------------------+---+---+
 *	  free       | newest version                                | a | 0 |    a: there is no record
 *	             +-----------------------------------------------+---+---+
 *	  pending    | timestamp of its writer: clock, place         | 0 | 1 |    the version to come has this name
 *	             +-----------------------------------------------+---+---+
 *	rts           timestamp of the youngest that has read the newest version (the first meta word)
 *	four slots    version | seal | record: the next version takes the place of the oldest
 *
 *	read       READ of all slots
 *	lock       CAS version -> ts | 1 and READ of rts: a version of ts is pending
 *	validate   of what was the newest version   CAS rts -> ts and READ of the lock word; if that is not the
 *	                                            version, READ of the version behind it
 *	           of an older one                  READ of its version word
 *	commit     WRITE of one slot + CAS ts | 1 -> ts            release    CAS ts | 1 -> version
 *
 * What must hold for a transaction of timestamp ts, and what becomes of it if not:
 *
 *	R1   there is a version older than ts                                  ends, `slots`
 *	R2   no older transaction's version is pending, where the newest one
 *	     is read                                                           waits; at its end: ends
 *	R3   at its end what it has read is still the version of its time      ends
 *	W1   no version, and no reader of the newest one, is younger than ts   ends, as soon as it sees it
 *	W2   no other version is pending                                       ends, as soon as it sees it
 *
 * Who validates publishes rts and then looks at the lock word; who locks changes that and then READs rts.  READs
 * see the atomics that were posted before them, so of a reader and an older writer at least one sees the other.
 *
 *	the lock word is the version       nobody has written since, and who will finds rts
 *	it is an older one's, or a         he may not have seen rts: ends
 *	mender's
 *	anything else                      whoever was older has let go, and what he wrote is in its slot.  Slots
 *	                                   are filled in turn, so of what was written behind version v the first
 *	                                   stands in the slot behind it, s:
 *	   s < v                           v is the newest yet: a younger one is pending
 *	   v < s < ts                      ends: that is the version of its time
 *	   s > ts, and then still v        nothing comes between the two any more
 *
 * All waiting is for older transactions, and who waits holds nothing: there are no deadlocks.
 *
 * What is in a slot is committed.  A pending version is its name alone, and the log, until the commit point: nobody
 * could read its record before.  Who dies leaves the name; others write the version from his log, or take the name
 * away (txn/recover.c).
 *
 * Departs from the paper (why, with the interleavings: doc/cc/cicada.md):
 *   - rts is looked at when the version is pending (cicada-as-published does not);
 *   - latch, status and name of the pending version are one word, and no reader takes it;
 *   - what is pending has its record in the log, and a version that is aborted leaves nothing behind;
 *   - all that is written is locked at once, whatever the contention;
 *   - what is read is whole.
 */
#include "base/sometimes.h"
#include "cc/mvcc.h"
#include "txn/db.h"

/* How often what validates looks before the stage is run anew. */
#define LOOKS 6u

enum { READ, LOCK, VALIDATE, COMMIT, RELEASE, STAGES };

enum shown {
	NEWEST, /* the version had none behind it */
	BEHIND, /* rts is published, and nobody older holds the record */
	OLDER,  /* there is a younger one behind it, of one younger than us */
};

/* An item's, its own memory. */
struct own {
	uint64_t rts;   /* as it was seen last */
	uint64_t shown; /* enum shown */
};
_Static_assert(sizeof(struct own) % 16 == 0, "as vb_cc_ops wants it");

static struct own *own_of(const struct vb_item *it)
{
	return vb_item_own(it, sizeof(struct own));
}

static vb_addr lock_word(const struct vb_item *it)
{
	return it->at + vb_item_layout(it)->lock_at;
}

static vb_addr version_word(const struct vb_item *it, unsigned slot)
{
	const struct vb_tuple_layout *l = vb_item_layout(it);

	return it->at + l->version_at + vb_slot_behind(l, slot);
}

/* The slot in which its version stands: to_slot is the one behind. */
static unsigned slot_of(const struct vb_item *it)
{
	return (it->to_slot + MVCC_SLOTS - 1) % MVCC_SLOTS;
}

static bool is_older(const struct vb_stage *s, uint64_t version)
{
	return vb_ts_name(version) < s->ts;
}

/* Who rolls another forward writes a version of that one's time. */
static bool is_in_the_way(const struct vb_stage *s, uint64_t lock)
{
	VB_SOMETIMES_IF(lock & MVCC_HELD && lock > s->ts && vb_ts_mends(lock), 200,
			"cicada: a younger name holds what an older transaction has written");
	return lock & MVCC_HELD && (lock < s->ts || vb_ts_mends(lock));
}

/* ---- read ---- */

/* An item that is being read. */
struct reading {
	struct vb_item *it;
	uint64_t before[MVCC_SLOTS], version[MVCC_SLOTS], after;
};

static void look_at_image(struct vb_stage *s, struct reading *r)
{
	const struct vb_tuple_layout *l = vb_item_layout(r->it);

	own_of(r->it)->rts = vb_tuple_word(r->it->image, VB_TUPLE_META_AT);
	vb_stage_saw(s, own_of(r->it)->rts);
	vb_stage_saw(s, vb_tuple_word(r->it->image, l->lock_at));
	for (unsigned i = 0; i < MVCC_SLOTS; i++) {
		r->version[i] = vb_slot_version(l, r->it->image, i);
		vb_stage_saw(s, r->version[i]);
	}
}

/* Of what is to be written: why the transaction cannot be the next to do so, or 0. */
static uint8_t too_late(const struct vb_stage *s, const struct vb_item *it, uint64_t lock)
{
	if (lock & MVCC_HELD)
		return VB_TXN_LOCKED;
	return own_of(it)->shown != NEWEST || own_of(it)->rts > s->ts ? VB_TXN_CHANGED : 0;
}

/* True: a version of its time is there, whole if its word is still the same behind the READ. */
static bool judge_read(struct vb_stage *s, struct reading *r)
{
	struct vb_item *it = r->it;
	const uint64_t lock = vb_tuple_word(it->image, vb_item_layout(it)->lock_at);
	unsigned newest, slot;
	uint64_t behind;

	it->status = VB_ITEM_WAIT;
	if (!vb_item_is_key(it)) {
		it->at = 0;
		return false;
	}
	look_at_image(s, r);
	newest = mvcc_newest_before(r->version, UINT64_MAX);
	slot = mvcc_newest_before(r->version, s->ts);
	/* What was READ is not of one moment. */
	if (newest == MVCC_SLOTS || (!(lock & MVCC_HELD) && lock != r->version[newest]))
		return false;
	if (slot == MVCC_SLOTS) {
		it->status = VB_TXN_SLOTS;
		return false;
	}
	behind = r->version[(slot + 1) % MVCC_SLOTS];
	own_of(it)->shown = behind > r->version[slot] ? OLDER : NEWEST;
	if (it->flags & VB_ITEM_WRITE && too_late(s, it, lock) != 0) {
		it->status = too_late(s, it, lock);
		it->seen = it->status == VB_TXN_LOCKED ? lock : 0;
		return false;
	}
	if (own_of(it)->shown == NEWEST ? is_in_the_way(s, lock) : is_older(s, behind)) {
		VB_SOMETIMES(50, "cicada: a reader waits for a pending version");
		it->seen = is_in_the_way(s, lock) ? lock : 0;
		return false;
	}
	it->version = r->version[slot];
	it->to_slot = (uint8_t)((slot + 1) % MVCC_SLOTS);
	if (!vb_stage_sealed(s))
		return it->version == r->before[slot];
	vb_item_take_slot(it, slot);
	return it->flags & VB_ITEM_BLIND || vb_tuple_whole(vb_item_layout(it), it->image);
}

static void take(struct vb_item *it)
{
	it->flags |= VB_ITEM_FETCHED;
	it->status = 0;
}

/* Without seals: whole is what was the same version before and behind the READ. */
static void look_behind(struct vb_stage *s, struct vb_item **items, unsigned n, struct reading *r,
			unsigned m)
{
	for (unsigned i = 0; i < m; i++)
		vb_acc_read(s->acc, VB_READ_DI, version_word(r[i].it, slot_of(r[i].it)),
			    &r[i].after, 8);
	if (m == 0 || !vb_stage_go(s, items, n))
		return;
	for (unsigned i = 0; i < m; i++) {
		if (r[i].after != r[i].it->version)
			continue;
		vb_item_take_slot(r[i].it, slot_of(r[i].it));
		take(r[i].it);
	}
}

static bool look_before(struct vb_stage *s, struct vb_item **items, unsigned n, struct reading *r)
{
	for (unsigned i = 0; i < n; i++)
		for (unsigned k = 0; k < MVCC_SLOTS; k++)
			vb_acc_read(s->acc, VB_READ_DI, version_word(items[i], k), &r[i].before[k],
				    8);
	return vb_stage_go(s, items, n);
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
	}
	if (!vb_stage_sealed(s) && !look_before(s, items, n, r))
		return;
	for (unsigned i = 0; i < n; i++)
		vb_stage_read_tuple(s, items[i]);
	if (!vb_stage_go(s, items, n))
		return;
	for (unsigned i = 0; i < n; i++) {
		if (!judge_read(s, &r[i]))
			continue;
		if (vb_stage_sealed(s))
			take(r[i].it);
		else
			r[m++] = r[i];
	}
	look_behind(s, items, n, r, m);
}

/* ---- validate ---- */

/* An item that is being validated. */
struct look {
	struct vb_item *it;
	uint64_t rts, word;
};

static void ask(struct vb_stage *s, struct look *k)
{
	const struct own *own = own_of(k->it);
	vb_addr at = lock_word(k->it);

	k->rts = own->rts;
	if (own->shown == NEWEST && own->rts < s->ts)
		vb_acc_cas(s->acc, VB_AMOD_IM, k->it->at + VB_TUPLE_META_AT, own->rts, s->ts,
			   &k->rts);
	if (own->shown == BEHIND)
		at = version_word(k->it, k->it->to_slot);
	else if (own->shown == OLDER)
		at = version_word(k->it, slot_of(k->it));
	vb_acc_read(s->acc, VB_READ_DI, at, &k->word, 8);
}

/* True: it has to be looked at once more. */
static bool judge_newest(struct vb_stage *s, struct look *k)
{
	struct vb_item *it = k->it;
	struct own *own = own_of(it);

	vb_stage_saw(s, k->rts);
	vb_stage_saw(s, k->word);
	if (k->rts != own->rts && k->rts < s->ts) {
		VB_SOMETIMES(200, "cicada: another reader has raised rts");
		own->rts = k->rts;
		return true;
	}
	if (k->word == it->version) {
		it->status = 0;
		return false;
	}
	if (is_in_the_way(s, k->word)) {
		VB_SOMETIMES(100, "cicada: who validates finds an older one's version pending");
		it->status = VB_TXN_LOCKED;
		it->seen = k->word;
		return false;
	}
	own->shown = BEHIND;
	return true;
}

static bool judge_behind(struct vb_stage *s, struct look *k)
{
	vb_stage_saw(s, k->word);
	if (k->word > k->it->version && !is_older(s, k->word)) {
		VB_SOMETIMES(200, "cicada: a younger version was written since");
		own_of(k->it)->shown = OLDER;
		return true;
	}
	k->it->status = k->word < k->it->version ? 0 : VB_TXN_CHANGED;
	return false;
}

static bool judge_look(struct vb_stage *s, struct look *k)
{
	switch ((enum shown)own_of(k->it)->shown) {
	case NEWEST:
		return judge_newest(s, k);
	case BEHIND:
		return judge_behind(s, k);
	case OLDER:
		break;
	}
	VB_SOMETIMES_IF(k->word == k->it->version, 100, "cicada: an older version is validated");
	k->it->status = k->word == k->it->version ? 0 : VB_TXN_SLOTS;
	return false;
}

static void validate_stage(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	struct look k[VB_STAGE_ITEMS];
	unsigned m = n;

	for (unsigned i = 0; i < n; i++) {
		k[i].it = items[i];
		items[i]->status = VB_ITEM_WAIT;
		items[i]->seen = 0;
		items[i]->seen_slot = 0;
	}
	for (unsigned looks = 0; m > 0 && looks < LOOKS; looks++) {
		unsigned left = 0;

		for (unsigned i = 0; i < m; i++)
			ask(s, &k[i]);
		if (!vb_stage_go(s, items, n))
			return;
		for (unsigned i = 0; i < m; i++)
			if (judge_look(s, &k[i]))
				k[left++] = k[i];
		m = left;
	}
}

/* ---- the transaction ---- */

static int read_items(struct vb_txn *t, struct vb_item **items, unsigned n)
{
	return vb_txn_stage(t, READ, items, n);
}

/* Who is too late ends here: what was read first may say so already. */
static int write_items(struct vb_txn *t, struct vb_item **items, unsigned n)
{
	unsigned m = vb_items_to_front(items, n, 0, VB_ITEM_FETCHED);

	for (unsigned i = m; i < n; i++) {
		const struct own *own = own_of(items[i]);

		if (own->shown != NEWEST || own->rts > t->ts)
			return vb_txn_doom(t, VB_TXN_CHANGED, 0);
	}
	return m > 0 ? vb_txn_stage(t, READ, items, m) : 0;
}

static int prepare(struct vb_txn *t)
{
	int err = vb_txn_stage_all(t, LOCK, VB_ITEM_WRITE, 0);

	return err ? err : vb_txn_stage_all(t, VALIDATE, VB_ITEM_READ, VB_ITEM_WRITE);
}

#define STAGE_TABLE(lock_fn)                                                                       \
	{                                                                                          \
		[READ] = {.name = "read",                                                          \
			  .flags = VB_STAGE_FETCHES | VB_STAGE_MAKES,                              \
			  .run = read_stage},                                                      \
		[LOCK] = {.name = "lock", .run = lock_fn},                                         \
		[VALIDATE] = {.name = "validate", .run = validate_stage},                          \
		[COMMIT] = {.name = "commit", .flags = VB_STAGE_WRITES, .run = mvcc_commit},       \
		[RELEASE] = {.name = "release", .run = mvcc_release},                              \
	}

#define OPS(table)                                                                                 \
	.caps = VB_CC_WAITS_OLDER, .meta_bytes = MVCC_META, .words = mvcc_words,                   \
	.n_words = VB_ARRAY_SIZE(mvcc_words), .slots = MVCC_SLOTS,                                 \
	.item_bytes = sizeof(struct own), .stages = table, .n_stages = STAGES, .commit = COMMIT,   \
	.release = RELEASE, .read = read_items, .write = write_items, .prepare = prepare,          \
	.unlocked = mvcc_unlocked, .locked = mvcc_locked, .whose = mvcc_whose

static const struct vb_stage_ops stages[] = STAGE_TABLE(mvcc_lock);

const struct vb_cc_ops vb_cc_cicada = {
	.name = "cicada",
	.summary = "four versions of a record, read optimistically: a version is pending, then its "
		   "readers are looked for",
	.source = "RCBench algorithm 8",
	OPS(stages),
};

/* ---- to the letter ---- */

/* Line 18: under the latch the version is compared.  Who has read it was looked at in line 10, and not since. */
static void lock_published(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	mvcc_lock(s, items, n);
	for (unsigned i = 0; i < n; i++)
		if (items[i]->flags & VB_ITEM_HELD_X && items[i]->status == VB_TXN_CHANGED)
			items[i]->status = 0;
}

static const struct vb_stage_ops stages_published[] = STAGE_TABLE(lock_published);

const struct vb_cc_ops vb_cc_cicada_as_published = {
	.name = "cicada-as-published",
	.summary = "cicada that looks for younger readers before its version is pending, and not "
		   "behind",
	.source = "RCBench algorithm 8, to the letter",
	.planted = "not-serializable",
	OPS(stages_published),
};
