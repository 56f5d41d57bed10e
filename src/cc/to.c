/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timestamp ordering (RCBench section 5.2, algorithm 3, and its form without cascading aborts; Barthels and
 * others, PVLDB 2019, section 3.2.2): transactions have the order of their timestamps.  Who comes too late
 * for a record, since a younger one has read or written it, ends.  Who comes while an older one is about to
 * write it waits.
 *
 *	lock word     63                                            2 1 0
 *	             +-----------------------------------------------+---+
 *	             | timestamp of the pending write: clock, place  | 0 |     0: there is none
 *	             +-----------------------------------------------+---+
 *	rts           timestamp of the youngest that has read the record (the first meta word)
 *	version       wts: the timestamp of who has written it
 *
 *	read       READ; CAS rts -> ts, READ of lock word and version
 *	lock       CAS 0 -> ts and READ (if the record was read before: READ of the words alone)
 *	commit     WRITE + CAS ts -> 0                     release    CAS ts -> 0
 *
 * What must hold, and what becomes of a transaction of timestamp ts for which it does not:
 *
 *	R1   the version is older than ts                                              ends
 *	R2   no write of an older one is pending: it may be what ts should read        waits
 *	W1   neither the version nor any reader is younger than ts                     ends
 *	W2   no other write is pending: an older one's                                 waits
 *	                               a younger one's                                 ends
 *
 * All waiting goes from young to old, so there are no deadlocks.  A pending write of a younger one is in no
 * reader's way: that reader comes before it.
 *
 * Reader and writer look at each other's word after they have changed their own: the reader CASes rts and then
 * looks at the lock word, the writer CASes the lock word and then READs rts.  READs and atomics see the atomics
 * that were posted before them, so of a reader and an older writer at least one sees the other.  A writer that
 * has come and gone has changed the version, at which the reader looks behind the lock word: between the WRITE
 * of a version and the CAS that ends the write the lock word is still the writer's.  READs have no order among
 * themselves, so the look at the lock word is an atomic:
 *
 *	R: CAS rts    READ version: old                                    READ lock: free
 *	W:                                 WRITE version    CAS ts -> 0
 *
 * A record is whole by its seal.  Without seals its version word is READ before, too, and marked while the
 * record is written: if it is the same before and behind the READ, nobody wrote between.
 *
 * Departs from the papers (why, with the interleavings: doc/cc/to.md):
 *   - who waits asks again: there are no lists of those who wait (prL, pwL);
 *   - one write is pending at a time, and its lock word has its owner's name;
 *   - readers wait for older writes, and not for younger ones (to-as-published does);
 *   - a reader looks again at two words, and not at the whole tuple.
 */
#include "cc/to.h"

#include "base/sometimes.h"

/* How often rts is raised against other readers before the stage is run anew. */
#define RTS_TRIES 4u

static vb_addr lock_word(const struct vb_item *it)
{
	return it->at + vb_item_layout(it)->lock_at;
}

static vb_addr version_word(const struct vb_item *it)
{
	return it->at + vb_item_layout(it)->version_at;
}

static vb_addr rts_word(const struct vb_item *it)
{
	return it->at + VB_TUPLE_META_AT;
}

static bool is_later(const struct vb_stage *s, uint64_t version)
{
	return (version & ~(uint64_t)VB_TS_STATE) > s->ts;
}

/* Who rolls another forward writes a version of that one's time, which may be of before us. */
bool to_is_older(const struct vb_stage *s, uint64_t lock)
{
	VB_SOMETIMES_IF(lock > s->ts && vb_ts_mends(lock), 200,
			"to: a younger name holds what an older transaction has written");
	return lock != 0 && (lock < s->ts || vb_ts_mends(lock));
}

/* ---- read ---- */

/* An item between the first READ and the second. */
struct reading {
	struct vb_item *it;
	uint64_t before, version, rts, rts_was;
	bool brief; /* others need not heed it */
	struct {
		uint64_t lock, version;
	} again;
};

static void wait_for(struct vb_item *it, uint64_t lock)
{
	it->status = VB_ITEM_WAIT;
	it->seen = lock;
}

static bool is_whole(const struct vb_stage *s, const struct reading *r)
{
	return vb_stage_sealed(s) ? vb_tuple_whole(vb_item_layout(r->it), r->it->image)
				  : r->version == r->before && !(r->version & TO_WRITING);
}

/* Whether it is let go is as of this run: a server may have come here with the item before. */
static void take(struct reading *r)
{
	r->it->version = r->version;
	r->it->flags &= (uint16_t)~VB_ITEM_LET_GO;
	r->it->flags |= r->brief ? VB_ITEM_FETCHED | VB_ITEM_LET_GO : VB_ITEM_FETCHED;
	r->it->status = 0;
}

/* At its level the read need not stay true until the commit. */
static bool is_brief(const struct vb_stage *s, uint64_t version)
{
	return s->isolation == VB_READ_COMMITTED ||
	       (s->isolation == VB_REPEATABLE_READ && version & VB_VERSION_ABSENT);
}

/* True: it may be read, unless something changes. */
static bool judge_first(struct vb_stage *s, struct reading *r, to_awaits *awaits)
{
	const struct vb_tuple_layout *l = vb_item_layout(r->it);
	struct vb_item *it = r->it;
	uint64_t lock;

	wait_for(it, 0);
	if (!vb_item_is_key(it)) {
		it->at = 0;
		return false;
	}
	lock = vb_tuple_word(it->image, l->lock_at);
	r->version = vb_tuple_word(it->image, l->version_at);
	r->rts = vb_tuple_word(it->image, VB_TUPLE_META_AT);
	vb_stage_saw(s, r->rts);
	vb_stage_saw(s, r->version);
	/* Also that of a younger one, which may be dead: it is in the way of the next transaction then. */
	vb_stage_saw(s, lock);
	if (is_later(s, r->version)) {
		it->status = VB_TXN_CHANGED;
		return false;
	}
	r->brief = is_brief(s, r->version);
	if (!r->brief && awaits(s, lock, r->version)) {
		wait_for(it, lock);
		return false;
	}
	if (r->brief && vb_stage_sealed(s) && is_whole(s, r)) {
		take(r);
		return false;
	}
	return is_whole(s, r);
}

static void ask_second(struct vb_stage *s, struct reading *r)
{
	r->rts_was = r->rts;
	if (r->brief) {
		/* Whole is what was the same version before and behind the READ. */
		vb_acc_read(s->acc, VB_READ_DI, version_word(r->it), &r->again.version, 8);
		return;
	}
	if (r->rts < s->ts)
		vb_acc_cas(s->acc, VB_AMOD_IM, rts_word(r->it), r->rts, s->ts, &r->rts_was);
	if (vb_stage_pair_whole(s)) {
		vb_acc_read(s->acc, VB_READ_DI, lock_word(r->it), &r->again, sizeof(r->again));
		return;
	}
	/* Two READs may happen the other way round. */
	vb_acc_cas(s->acc, VB_AMOD_IM, lock_word(r->it), 0, 0, &r->again.lock);
	vb_acc_read(s->acc, VB_READ_DI, version_word(r->it), &r->again.version, 8);
}

/* True: another reader has changed rts, which is to be raised once more. */
static bool judge_second(struct vb_stage *s, struct reading *r, to_awaits *awaits)
{
	struct vb_item *it = r->it;

	if (!r->brief && r->rts_was != r->rts && r->rts_was < s->ts) {
		VB_SOMETIMES(200, "to: another reader has raised rts");
		r->rts = r->rts_was;
		return true;
	}
	vb_stage_saw(s, r->rts_was);
	if (!r->brief && awaits(s, r->again.lock, r->again.version)) {
		VB_SOMETIMES(200, "to: an older writer came before rts was raised");
		wait_for(it, r->again.lock);
	} else if (r->again.version != r->version) {
		VB_SOMETIMES(200, "to: what was read had changed at the second look");
		wait_for(it, 0);
	} else {
		it->lease = r->again.lock == vb_ts_name(r->version) ? r->again.lock : 0;
		take(r);
	}
	return false;
}

static void look_again(struct vb_stage *s, struct vb_item **items, unsigned n, struct reading *r,
		       unsigned m, to_awaits *awaits)
{
	for (unsigned tries = 0; m > 0 && tries < RTS_TRIES; tries++) {
		unsigned left = 0;

		for (unsigned i = 0; i < m; i++)
			ask_second(s, &r[i]);
		if (!vb_stage_go(s, items, n))
			return;
		for (unsigned i = 0; i < m; i++)
			if (judge_second(s, &r[i], awaits))
				r[left++] = r[i];
		m = left;
	}
}

void to_read_items(struct vb_stage *s, struct vb_item **items, unsigned n, to_awaits *awaits)
{
	struct reading r[VB_STAGE_ITEMS];
	unsigned m = 0;

	vb_stage_hint(s, items, n);
	for (unsigned i = 0; i < n; i++) {
		r[i].it = items[i];
		items[i]->seen_slot = 0;
		if (!vb_stage_sealed(s))
			vb_acc_read(s->acc, VB_READ_DI, version_word(items[i]), &r[i].before, 8);
	}
	if (!vb_stage_sealed(s) && !vb_stage_go(s, items, n))
		return;
	for (unsigned i = 0; i < n; i++)
		vb_stage_read_tuple(s, items[i]);
	if (!vb_stage_go(s, items, n))
		return;
	for (unsigned i = 0; i < n; i++)
		if (judge_first(s, &r[i], awaits))
			r[m++] = r[i];
	look_again(s, items, n, r, m, awaits);
}

static bool is_older(const struct vb_stage *s, uint64_t lock, uint64_t version)
{
	(void)version;
	return to_is_older(s, lock);
}

static void read_stage(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	to_read_items(s, items, n, is_older);
}

/* ---- lock ---- */

/* From rts to the version. */
struct words {
	uint64_t rts, unused, lock, version;
};

/* Of an item that is being locked: what is looked at behind the CAS. */
struct locking {
	struct words w;
	uint64_t still; /* the lock word behind the READ of a tuple without a seal */
};

static bool needs_record(const struct vb_item *it)
{
	return !(it->flags & VB_ITEM_FETCHED);
}

static void ask_lock(struct vb_stage *s, struct vb_item *it, struct locking *g)
{
	g->still = s->ts;
	it->seen_slot = 0;
	it->seen = s->ts;
	if (!(it->flags & VB_ITEM_HELD_X)) {
		it->flags |= VB_ITEM_MAYBE;
		vb_acc_cas(s->acc, VB_AMOD_IM, lock_word(it), 0, s->ts, &it->seen);
	}
	/* The transaction may have changed what it has fetched. */
	if (!needs_record(it)) {
		vb_acc_read(s->acc, VB_READ_DI, rts_word(it), &g->w, sizeof(g->w));
		return;
	}
	vb_stage_read_tuple(s, it);
	if (!vb_stage_sealed(s))
		vb_acc_read(s->acc, VB_READ_DI, lock_word(it), &g->still, 8);
}

/* The guess at the address was wrong: gives back at once what was taken there. */
static void wrong_tuple(struct vb_stage *s, struct vb_item *it)
{
	vb_acc_cas(s->acc, VB_AMOD_IM, lock_word(it), s->ts, 0, &it->held);
	it->flags &= (uint16_t)~VB_ITEM_HELD_X;
	it->at = 0;
	wait_for(it, 0);
}

/*
 * Was it read under our lock?  Others set a lock back whose holder stands still for a lease, and write; a lock
 * word that is let go never comes back.
 */
static bool is_whole_under_lock(const struct vb_stage *s, const struct vb_item *it,
				const struct locking *g)
{
	if (!vb_stage_sealed(s))
		return g->still == s->ts;
	return it->flags & VB_ITEM_BLIND || vb_tuple_whole(vb_item_layout(it), it->image);
}

/* Our write is the pending one: may it be?  Whether or not that was asked before: a server that waits for
 * another of the call's records comes here again with what it has refused. */
static void judge_held(struct vb_stage *s, struct vb_item *it, const struct locking *g)
{
	const struct words *w = &g->w;
	bool late = is_later(s, w->version) || w->rts > s->ts;

	vb_stage_saw(s, w->rts);
	vb_stage_saw(s, w->version);
	it->seen = 0;
	it->status = VB_TXN_CHANGED;
	VB_SOMETIMES_IF(late, 200, "to: a writer comes too late");
	if (late)
		return;
	if (needs_record(it) && !is_whole_under_lock(s, it, g))
		return;
	it->version = w->version;
	it->flags |= VB_ITEM_FETCHED;
	it->status = 0;
}

static void judge_lock(struct vb_stage *s, struct vb_item *it, const struct locking *g)
{
	it->flags &= (uint16_t)~VB_ITEM_MAYBE;
	if (it->seen != 0 && it->seen != s->ts) {
		it->status = to_is_older(s, it->seen) ? VB_ITEM_WAIT : VB_TXN_LOCKED;
		return;
	}
	it->flags |= VB_ITEM_HELD_X;
	it->held = s->ts;
	if (needs_record(it) && !vb_item_is_key(it))
		wrong_tuple(s, it);
	else
		judge_held(s, it, g);
}

void to_lock(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	struct locking g[VB_STAGE_ITEMS];

	vb_stage_hint(s, items, n);
	for (unsigned i = 0; i < n; i++)
		ask_lock(s, items[i], &g[i]);
	if (!vb_stage_go(s, items, n))
		return;
	for (unsigned i = 0; i < n; i++) {
		if (needs_record(items[i]))
			memcpy(&g[i].w, items[i]->image + VB_TUPLE_META_AT, sizeof(g[i].w));
		judge_lock(s, items[i], &g[i]);
	}
	/* What wrong_tuple asked for. */
	(void)vb_stage_go(s, items, n);
}

/* ---- commit, release ---- */

uint64_t to_free_word(const struct vb_item *it)
{
	(void)it;
	return 0;
}

void to_commit(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	vb_stage_commit(s, items, n, TO_WRITING, to_free_word);
}

void to_release(struct vb_stage *s, struct vb_item **items, unsigned n)
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
int to_read(struct vb_txn *t, struct vb_item **items, unsigned n)
{
	unsigned writes = vb_items_to_front(items, n, VB_ITEM_WRITE, 0);
	int err = writes > 0 ? vb_txn_stage(t, TO_LOCK, items, writes) : 0;

	return err == 0 && n > writes ? vb_txn_stage(t, TO_READ, items + writes, n - writes) : err;
}

int to_write(struct vb_txn *t, struct vb_item **items, unsigned n)
{
	return vb_txn_stage(t, TO_LOCK, items, n);
}

/* Everything is in order at its timestamp from the moment when it was read or locked. */
int to_prepare(struct vb_txn *t)
{
	(void)t;
	return 0;
}

uint64_t to_unlocked(uint64_t version, uint64_t was)
{
	(void)version;
	(void)was;
	return 0;
}

uint64_t to_locked(uint64_t ts, uint64_t was)
{
	(void)was;
	return ts;
}

const struct vb_cc_word to_words[1] = {
	{.at = VB_TUPLE_META_AT, .kind = VB_WORD_DATA, .n = TO_META / 8},
};

static const struct vb_stage_ops stages[] = TO_STAGE_TABLE(read_stage);

const struct vb_cc_ops vb_cc_to = {
	.name = "to",
	.summary = "timestamp ordering: who comes too late ends, who comes too early waits",
	.source = "RCBench section 5.2 (without cascading aborts), Barthels et al. 2019",
	.caps = VB_CC_WAITS_OLDER | VB_CC_SHORT_READS,
	TO_OPS(stages),
};

/* ---- to the letter ---- */

/* Barthels et al., section 3.2.2: "read or write requests with timestamps lower than existing pending writes
 * are also queued". */
static bool is_younger(const struct vb_stage *s, uint64_t lock, uint64_t version)
{
	(void)version;
	return lock > s->ts;
}

static void read_published(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	to_read_items(s, items, n, is_younger);
}

static const struct vb_stage_ops stages_published[] = TO_STAGE_TABLE(read_published);

const struct vb_cc_ops vb_cc_to_as_published = {
	.name = "to-as-published",
	.summary = "timestamp ordering whose readers wait for younger writers, and pass older ones",
	.source = "Barthels et al. 2019, section 3.2.2, to the letter",
	.planted = "not-serializable",
	TO_OPS(stages_published),
};
