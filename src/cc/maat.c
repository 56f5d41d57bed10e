/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MaaT (RCBench section 5.3, algorithms 6 and 7, after Mahmoud and others, PVLDB 2014): optimistic, at a logical
 * time that is chosen at the end from an *interval*.  What a transaction reads bounds it from below, and whoever
 * overwrites what it has read bounds it from above, in its own words, while it runs.
 *
 *	lock word     63                                            2 1 0
 *	             +-----------------------------------------------+---+
 *	             | timestamp of the writer that validates        | 0 |     0: there is none
 *	             +-----------------------------------------------+---+
 *	rts           the largest time of those that have read the record (the first meta word)
 *	seven marks   timestamp of a transaction that has read the version and has no end yet; 0: nobody's
 *	version word | wts (62 bits)                             | a | 0 |    a: there is no record
 *
 *	in the place of each transaction (struct vb_place_head), beside its status word:
 *	upper        | the last time at which it may commit (62 bits) | f |    f: frozen, that is its time.  Others
 *	                                                                       lower it, its owner freezes it, by CAS
 *	lower          the first one as far as it knows; its owner's, and only ever a hint
 *
 *	read       CAS mark 0 -> ts, READ                                       (what will be written: READ)
 *	lock       CAS lock word 0 -> ts, READ of all words; READs of rts and of each marked one's bounds;
 *	           CAS of its upper to below our time, READ of its status word
 *	publish    CAS rts -> time of the commit; CAS own upper -> that time, frozen
 *	           of what has no mark, READ of lock word and version behind that
 *	commit     the commit point; CAS own upper -> no bound; WRITE + CAS ts -> 0
 *	release    CAS lock word ts -> 0, CAS mark ts -> 0
 *
 * The time of a commit is the smallest that is
 *
 *	T1   not before wts of what it has read            T2   behind wts and rts of what it writes
 *	T3   behind the frozen time of each that has a mark on what it writes, and runs
 *
 * and that spares those (maat_lock.c); if `upper` is before it, the transaction ends.  R, which reads version v of a
 * record, and W, which writes the next one, are ordered R -> W:
 *
 *	W locks, and then looks at the marks.  R marks, then looks at the lock word, then at the version.
 *	If W has not seen R's mark    - R has come behind W's look: it sees W's lock, waits, and reads W's version; or
 *	                              - it has been taken away: R has ended, and if it has committed, it had published
 *	                                before, and W, which READs rts behind that look, comes behind it
 *	If W has seen it, and R       - runs, and is not frozen: W lowers its upper below W's own time, by a CAS
 *	                                which fails if R freezes first.  R's own CAS fails if W's came first
 *	                              - runs, and is frozen: W comes behind that time, whether or not R commits
 *	                              - does not run: W READs rts once more, now that R is known to have published, or
 *	                                never to commit
 *	If R has found no slot        R publishes, and then looks at the lock word: it is W's, or is free.  If W locks
 *	                              behind that, it finds rts
 *
 * Where R commits is so decided by one word, and whether it does by another, its status word: frozen is a promise
 * that it commits at that time or not at all.  The place's words name nobody.  A CAS of an upper that hits another
 * transaction bounds that one for nothing; that it has hit the right one, the status word says, READ behind it: a
 * transaction has its words before its first mark, and the name never comes back.  Nothing is said by an upper of
 * one that does not run.
 *
 * Waiting: a reader waits for a lock word, and has none itself; who has one waits for nobody.  So there are no
 * deadlocks.  Marks are in nobody's way.
 *
 * Who dies leaves marks: if it may commit yet, it is bounded by them as one that lives; else the next writer clears
 * them; one that is gone with its node cannot be asked for its bounds, and its marks are recovered as locks are
 * (maat_lock.c, meets_gone).  Bounds of others that are lower than they had to be, and rts that are higher, end
 * somebody for nothing.
 * Locks: txn/recover.c.
 *
 * Departs from the paper (why, with the interleavings: doc/cc/maat.md):
 *   - no latches, neither on records nor on transactions (maat-as-published has the latter, and hangs);
 *   - rts is raised before the commit point, and looked at behind the marks;
 *   - what is written is marked by its lock, in the validation: the list wL has one place;
 *   - a transaction that is not at its place any more has been heard of by rts;
 *   - who finds the list full goes on, and is validated;
 *   - what is read is whole.
 */
#include "cc/maat.h"

#include "base/sometimes.h"

/* How often rts is raised against other readers before the stage is run anew. */
#define RTS_TRIES 4u
/* How often its own bound is asked for after lost answers. */
#define OWN_TRIES 4u

enum { READ, LOCK, PUBLISH, COMMIT, RELEASE, STAGES };

/* A transaction's. */
struct interval {
	bool open;
	uint64_t old; /* of its upper, when it was asked to be frozen */
};

/* A coordinator's, of the words of one of its places.  Behind a commit its bound is taken away, which is asked
 * for and not waited for: leaves, and old is what the CAS finds. */
struct known {
	uint64_t upper; /* what it was last */
	uint64_t lower; /* on its way there, where the place is far */
	uint64_t old;
	bool leaves;
};

/* ---- publish ---- */

/* What has no mark is validated, with the doorbell that publishes: who locks it later finds rts. */
struct publishing {
	struct vb_item *it;
	struct maat_pair now;
	uint64_t rts;
};

static void ask_publish(struct vb_stage *s, struct publishing *p)
{
	const uint64_t rts = maat_item(p->it)->rts;

	p->rts = rts;
	if (rts < s->commit_ts)
		vb_acc_cas(s->acc, VB_AMOD_IM, maat_rts_word(p->it), rts, s->commit_ts, &p->rts);
	if (!(p->it->flags & VB_ITEM_HELD_S))
		maat_ask_pair(s, p->it, &p->now);
}

/* True: another reader has raised rts, and not far enough. */
static bool judge_publish(struct vb_stage *s, const struct publishing *p)
{
	struct vb_item *it = p->it;
	struct maat_item *own = maat_item(it);
	const bool ours = p->rts == own->rts;

	VB_SOMETIMES_IF(!ours, 100, "maat: another reader has raised rts");
	own->rts = ours && p->rts < s->commit_ts ? s->commit_ts : p->rts;
	if (own->rts < s->commit_ts)
		return true;
	it->status = 0;
	if (it->flags & VB_ITEM_HELD_S)
		return false;
	it->seen = p->now.lock;
	if (p->now.lock != 0)
		it->status = VB_TXN_LOCKED;
	else if (p->now.version != it->version)
		it->status = VB_TXN_CHANGED;
	VB_SOMETIMES_IF(it->status != 0, 100, "maat: what has no mark is another's at the end");
	return false;
}

static void publish_stage(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	struct publishing p[VB_STAGE_ITEMS];
	unsigned m = 0;

	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];

		it->seen = 0;
		it->seen_slot = 0;
		it->status = 0;
		if (it->flags & VB_ITEM_HELD_S && maat_item(it)->rts >= s->commit_ts)
			continue;
		it->status = VB_ITEM_WAIT;
		p[m++].it = it;
	}
	for (unsigned tries = 0; m > 0 && tries < RTS_TRIES; tries++) {
		unsigned left = 0;

		for (unsigned i = 0; i < m; i++)
			ask_publish(s, &p[i]);
		if (!vb_stage_go(s, items, n))
			return;
		for (unsigned i = 0; i < m; i++)
			if (judge_publish(s, &p[i]))
				p[left++] = p[i];
		m = left;
	}
}

/* ---- commit, release ---- */

static uint64_t free_word(const struct vb_item *it)
{
	(void)it;
	return 0;
}

/* Nobody takes what was read while it was locked, so what is half written needs no bit. */
static void commit_stage(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	vb_stage_commit(s, items, n, 0, free_word);
}

/* The answer that would have told which slot it was is lost. */
static void clear_every_slot(struct vb_stage *s, struct vb_item *it)
{
	VB_SOMETIMES(200, "maat: every slot is cleared after a lost answer");
	for (uint8_t slot = MAAT_FIRST_SLOT; slot < MAAT_FIRST_SLOT + MAAT_SLOTS; slot++)
		vb_acc_cas(s->acc, VB_AMOD_IM, it->at + maat_slot_at(slot), s->ts, 0, &it->lease);
}

static void release_stage(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];

		it->status = 0;
		if (it->at == 0)
			continue;
		if (it->flags & (VB_ITEM_HELD_X | VB_ITEM_MAYBE))
			vb_acc_cas(s->acc, VB_AMOD_IM, maat_lock_word(it), s->ts, 0, &it->seen);
		if (it->flags & VB_ITEM_HELD_S)
			vb_acc_cas(s->acc, VB_AMOD_IM, it->at + maat_slot_at(it->slot), s->ts, 0,
				   &it->lease);
		else if (it->flags & VB_ITEM_MAYBE_S)
			clear_every_slot(s, it);
	}
	(void)vb_stage_go(s, items, n);
}

/* ---- the transaction ---- */

static struct known *known_of(const struct vb_txn *t)
{
	struct known *known = vb_txn_coordinator_own(t);

	return &known[t->me->current];
}

/*
 * Our own upper, from what we believe it is.  1: others have changed it, and it is known now.  An answer that is lost
 * is asked for again: the CAS that has happened finds what it would have written.  Not before it has landed, or never
 * will: one that takes bounds away, and comes late, might find the bound that it was meant for, set by another since.
 */
static int set_upper(struct vb_txn *t, uint64_t to)
{
	struct vb_lane *lane = vb_txn_lane(t->me);
	uint64_t *known = &known_of(t)->upper, old = 0;
	int err = 0;

	for (unsigned tries = 0; tries < OWN_TRIES; tries++) {
		vb_acc_cas(&lane->acc, VB_AMOD_TM, maat_upper_word(t->me->db, lane->place), *known,
			   to, &old);
		err = vb_acc_go(&lane->acc);
		if (vb_likely(err == 0)) {
			const bool ours = old == *known || old == to;

			*known = ours ? to : old;
			return ours ? 0 : 1;
		}
		VB_SOMETIMES(500, "maat: the answer of the own upper bound is lost");
		vb_txn_wait_out(t->me, t->me->db->fabric->caps.verb_bound_ns);
	}
	return vb_txn_doom(t, VB_TXN_FABRIC, err);
}

/* Of the own place, which is near. */
static struct vb_place_head *own_head(const struct vb_txn *t)
{
	const struct vb_db *db = t->me->db;

	return vb_local(db->fabric, vb_db_place(db, vb_txn_lane(t->me)->place),
			sizeof(struct vb_place_head));
}

/* As it was a moment ago; or, where the place is far (txn/adopt.c), when it was heard of last. */
static uint64_t upper_now(const struct vb_txn *t)
{
	if (t->me->far)
		return known_of(t)->upper;
	return __atomic_load_n(&own_head(t)->upper, __ATOMIC_RELAXED);
}

/* The hint, which only its owner writes.  To a place that is far it goes with what is posted next. */
static void put_lower(struct vb_txn *t, uint64_t lower)
{
	struct vb_lane *lane = vb_txn_lane(t->me);
	struct known *k = known_of(t);

	if (!t->me->far) {
		__atomic_store_n(&own_head(t)->lower, lower, __ATOMIC_RELEASE);
		return;
	}
	k->lower = lower;
	vb_acc_write(&lane->acc, VB_WRITE_TM,
		     vb_db_place(t->me->db, lane->place) + offsetof(struct vb_place_head, lower),
		     &k->lower, sizeof(k->lower));
}

/* What the last commit of the place has asked for has been answered, or else may still land. */
static void hear_of_the_last(struct vb_txn *t)
{
	struct known *k = known_of(t);

	if (!k->leaves)
		return;
	k->leaves = false;
	VB_SOMETIMES_IF(k->old != k->upper, 200,
			"maat: it is not known whether a bound was taken away");
	if (k->old == k->upper)
		k->upper = MAAT_NO_BOUND;
	else
		vb_txn_wait_out(t->me, t->me->db->fabric->caps.verb_bound_ns);
}

/*
 * Before the first mark: whoever sees that finds words that are this transaction's.  Nobody else freezes an upper, so
 * one that is known to have no bound is not frozen; a bound that another has set to the last transaction since is
 * taken away.
 */
static int open_interval(struct vb_txn *t)
{
	struct interval *i = vb_txn_own(t);
	int err = 1;

	if (i->open)
		return 0;
	hear_of_the_last(t);
	if (!t->me->far && known_of(t)->upper == MAAT_NO_BOUND && upper_now(t) == MAAT_NO_BOUND)
		err = 0;
	while (err == 1)
		err = set_upper(t, MAAT_NO_BOUND);
	if (err != 0)
		return err;
	put_lower(t, 0);
	i->open = true;
	return 0;
}

/* There is no time left between those that it must come behind and those that it must come before. */
static int is_empty(struct vb_txn *t)
{
	return vb_txn_doom(t, VB_TXN_LEASE, 0);
}

static int read_items(struct vb_txn *t, struct vb_item **items, unsigned n)
{
	int err = open_interval(t);

	if (err == 0)
		err = vb_txn_stage(t, READ, items, n);
	if (err != 0)
		return err;
	put_lower(t, t->commit_ts);
	if (maat_time(upper_now(t)) >= t->commit_ts)
		return 0;
	VB_SOMETIMES(50, "maat: an interval is empty at a read");
	return is_empty(t);
}

static int write_items(struct vb_txn *t, struct vb_item **items, unsigned n)
{
	unsigned m = vb_items_to_front(items, n, 0, VB_ITEM_FETCHED);

	return m > 0 ? vb_txn_stage(t, READ, items, m) : 0;
}

static bool is_above(const struct vb_txn *t, uint64_t upper)
{
	return upper & MAAT_FROZEN || maat_time(upper) < t->commit_ts;
}

static uint64_t frozen(const struct vb_txn *t)
{
	return maat_upper(t->commit_ts) | MAAT_FROZEN;
}

/* With the doorbell that publishes: whoever sees that it is frozen comes behind it, published or not. */
static int publish(struct vb_txn *t)
{
	struct interval *i = vb_txn_own(t);
	struct vb_lane *lane = vb_txn_lane(t->me);
	uint64_t *known = &known_of(t)->upper;
	int err;

	if (i->open) {
		*known = upper_now(t);
		if (is_above(t, *known))
			return is_empty(t);
		vb_acc_cas(&lane->acc, VB_AMOD_TM, maat_upper_word(t->me->db, lane->place), *known,
			   frozen(t), &i->old);
	}
	err = vb_txn_stage_all(t, PUBLISH, VB_ITEM_READ, VB_ITEM_WRITE);
	if (err != 0 || !i->open)
		return err;
	/* By RPC it has not gone out, nor where there was nothing to publish. */
	err = vb_acc_go(&lane->acc);
	return err != 0 ? vb_txn_doom(t, VB_TXN_FABRIC, err) : 0;
}

static int prepare(struct vb_txn *t)
{
	const struct interval *i = vb_txn_own(t);
	const uint64_t upper = i->open ? upper_now(t) : MAAT_NO_BOUND;
	int err;

	for (unsigned k = 0; k < t->n; k++)
		maat_item(&t->item[k])->upper = upper;
	err = vb_txn_stage_all(t, LOCK, VB_ITEM_WRITE, 0);
	return err ? err : publish(t);
}

/* From here on it commits at this time, or not at all. */
static int freeze(struct vb_txn *t)
{
	const struct interval *i = vb_txn_own(t);
	uint64_t *known = &known_of(t)->upper;
	int err = 1;

	if (!i->open)
		return 0;
	if (i->old == *known || i->old == frozen(t)) {
		*known = frozen(t);
		return 0;
	}
	VB_SOMETIMES(200, "maat: another has moved the own bound before it was frozen");
	*known = i->old;
	while (err == 1) {
		if (is_above(t, *known))
			return is_empty(t);
		err = set_upper(t, frozen(t));
	}
	return err;
}

/* With whatever the place posts next.  Whoever looks finds that the transaction has committed. */
static void take_bound_away(struct vb_txn *t)
{
	struct vb_lane *lane = vb_txn_lane(t->me);
	struct known *k = known_of(t);

	k->leaves = true;
	k->old = 0;
	vb_acc_cas(&lane->acc, VB_AMOD_TM, maat_upper_word(t->me->db, lane->place), k->upper,
		   MAAT_NO_BOUND, &k->old);
}

static int decide(struct vb_txn *t)
{
	const struct interval *i = vb_txn_own(t);
	int err = freeze(t);

	if (err == 0)
		err = vb_txn_point(t);
	if (err == 0 && i->open)
		take_bound_away(t);
	return err;
}

/* ---- what the engine has to know of the words ---- */

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

static const struct vb_cc_word words[] = {
	{.at = VB_TUPLE_META_AT, .kind = VB_WORD_DATA, .n = 1},
	{.at = VB_TUPLE_META_AT + 8, .kind = VB_WORD_READER, .n = MAAT_SLOTS},
};

#define STAGE_TABLE(lock_fn)                                                                       \
	{                                                                                          \
		[READ] = {.name = "read",                                                          \
			  .flags = VB_STAGE_FETCHES | VB_STAGE_MAKES,                              \
			  .run = maat_read},                                                       \
		[LOCK] = {.name = "lock", .run = lock_fn},                                         \
		[PUBLISH] = {.name = "publish", .run = publish_stage},                             \
		[COMMIT] = {.name = "commit", .flags = VB_STAGE_WRITES, .run = commit_stage},      \
		[RELEASE] = {.name = "release", .run = release_stage},                             \
	}

#define CAPS (VB_CC_LOGICAL | VB_CC_STATUS | VB_CC_IN_ORDER)

#define OPS(table)                                                                                 \
	.meta_bytes = MAAT_META, .words = words, .n_words = VB_ARRAY_SIZE(words),                  \
	.item_bytes = sizeof(struct maat_item), .txn_bytes = sizeof(struct interval),              \
	.coordinator_bytes = VB_PLACES_TXN * sizeof(struct known), .stages = table,                \
	.n_stages = STAGES, .commit = COMMIT, .release = RELEASE, .read = read_items,              \
	.write = write_items, .prepare = prepare, .decide = decide, .unlocked = unlocked,          \
	.locked = locked, .whose = vb_ts_named

static const struct vb_stage_ops stages[] = STAGE_TABLE(maat_lock);

const struct vb_cc_ops vb_cc_maat = {
	.name = "maat",
	.summary = "a logical time from an interval, which those who overwrite what was read make "
		   "shorter",
	.source = "RCBench algorithms 6 and 7",
	.caps = CAPS,
	OPS(stages),
};

static const struct vb_stage_ops stages_published[] = STAGE_TABLE(maat_lock_published);

const struct vb_cc_ops vb_cc_maat_as_published = {
	.name = "maat-as-published",
	.summary = "maat with latches: who validates waits for another's, and holds his own",
	.source = "RCBench algorithms 6 and 7, to the letter",
	.caps = CAPS | VB_CC_BLIND_WAIT,
	.planted = "stuck",
	OPS(stages_published),
};
