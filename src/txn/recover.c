/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transactions of coordinators that do not move.
 *
 * A transaction that finds a lock word in its way notes it with the status word of its holder.  If
 * both are still the same suspect_ns later, and the holder has not tried again under the same name,
 * it has let its lease pass, and can do nothing any more to what it holds (txn/commit.c).  Then, with
 * no transaction of our own under way:
 *
 *	status running or aborted   CAS to *recovered*.  The holder cannot commit any more; the name
 *	                            is never used again.  Nothing of it is in place, so the lock word
 *	                            alone is set back
 *	status of another name      the lock was taken late, by a verb or request for which nobody
 *	                            waited any more: set back
 *	status committed            rolled forward from the log: see below
 *
 * Where writes are in place before it is decided (VB_CC_INSTALLS) it is the other way round: the log says what
 * was there before.  What was committed is in place, and the lock word alone is set back; what was not is undone
 * from the log, as here others are rolled forward.  If there is no log, nothing is in place: txn/install.c.
 *
 * Rolling forward writes to the tuple, which needs the lock: it is taken over by a CAS from the
 * holder's word to our own, as a transaction of ours whose log is that entry and which is past its
 * commit point.  So if we die on the way, the next does with ours what we did; and of two that try,
 * one has the lock.
 *
 * A coordinator that is slow and not dead finds its status changed at its commit point, or its
 * verbs refused because their time is over.  What no check of a clock can exclude is a machine that
 * stands still between that check and the doorbell that follows: only storage that checks versions
 * could.  On shared memory there is no need to judge by the clock: see may_still_write.
 */
#define VB_LOG_ROOM "txn"
#include <inttypes.h>
#include <stdlib.h>
#include <xxhash.h>

#include "base/log.h"
#include "base/sometimes.h"
#include "txn/db.h"

#define LOOKS 16u /* at a word that changes while we decide */
#define NAMES 16u /* tried until a lock word is another than the last one */

/* ---- memory ---- */

/* Memory that its coordinator frees if the task which uses it is killed. */
struct kept {
	struct vb_list link;
	unsigned char bytes[] __attribute__((aligned(16)));
};

void *vb_recovery_keep(struct vb_coordinator *me, size_t bytes)
{
	struct kept *k = malloc(sizeof(*k) + bytes);

	if (k == NULL)
		return NULL;
	vb_list_push(&me->kept, &k->link);
	return k->bytes;
}

void vb_recovery_let_go(void *kept)
{
	struct kept *k = kept != NULL ? vb_container_of(kept, struct kept, bytes) : NULL;

	if (k != NULL)
		vb_list_remove(&k->link);
	free(k);
}

void vb_recover_drop_kept(struct vb_coordinator *me)
{
	vb_list_for_each (it, &me->kept)
		free(vb_container_of(it, struct kept, link));
}

/* ---- setting back ---- */

static void note_set_back(struct vb_coordinator *me, const struct vb_suspect *s)
{
	const struct vb_txn_watch *watch = me->db->watch;

	me->recovered++;
	VB_SOMETIMES_IF(s->left && s->reader_at == 0, 200, "txn: a lock that was left behind");
	if (s->left && watch != NULL && watch->left != NULL)
		watch->left(watch->ctx, me, vb_suspect_holder(me->db, s), s->word);
}

/* The newest of the tuple's versions.  Nobody writes them while the lock word stands. */
static int read_newest(struct vb_coordinator *me, const struct vb_table *t, vb_addr at,
		       uint64_t *out)
{
	const struct vb_tuple_layout *l = &t->layout;
	struct vb_acc *acc = &vb_recovery_lane(me)->acc;
	uint64_t version[VB_SLOTS_MAX];
	int err;

	for (unsigned i = 0; i < l->slots; i++)
		vb_acc_read(acc, VB_READ_DI, at + l->version_at + vb_slot_behind(l, i), &version[i],
			    8);
	err = vb_acc_go(acc);
	*out = err == 0 ? version[0] : 0;
	for (unsigned i = 1; i < l->slots && err == 0; i++)
		*out = version[i] > *out ? version[i] : *out;
	return err;
}

static int set_back(struct vb_coordinator *me, const struct vb_suspect *s)
{
	const struct vb_tuple_layout *l = &s->table->layout;
	uint64_t version, old, not_after = vb_ep_now(me->ep) + me->db->lease_ns;
	int err;

	if (s->reader_at != 0) {
		err = vb_recovery_cas(me, VB_AMOD_IM, s->at + s->reader_at, s->word, 0, &old);
		if (err == 0 && old == s->word)
			note_set_back(me, s);
		return err;
	}
	err = read_newest(me, s->table, s->at, &version);
	if (err != 0)
		return err;
	vb_recovery_lane(me)->acc.not_after_ns = not_after;
	err = vb_recovery_cas(me, VB_AMOD_IM, s->at + l->lock_at, s->word,
			      me->db->cc->unlocked(version & ~1ull, s->word), &old);
	vb_recovery_lane(me)->acc.not_after_ns = 0;
	VB_SOMETIMES_IF(err == 0 && old != s->word, 200, "txn: a set-back lost its race");
	if (err == 0 && old == s->word)
		note_set_back(me, s);
	return err;
}

/* ---- the last holder's server ---- */

/*
 * A commit stage that runs by RPC is executed by the tuple's server, and goes on whatever becomes
 * of the coordinator.  Between its look at the lock word (txn/stage.c, still_held) and its WRITE
 * the server may stand still.  So before we write to what we have taken over, it must be certain
 * that nothing of that kind is still to come:
 *
 *	verbs have a bound    What the server posts behind its look is refused one bound after a
 *	                      moment before that look (not_after_ns), and takes effect within
 *	                      another.  A look that still found the holder's word came before our
 *	                      CAS.  So two bounds after the CAS all of it has happened, or never
 *	                      will.
 *	verbs complete at     A clock is of no use: a process can be stopped between it and the
 *	once (shm)            store.  We ask the server, and it answers when it comes to it: it does
 *	                      one request after the other, in the order in which they came, and those
 *	                      of the holder (gone, or ourselves) came before.  So it has then done the
 *	                      commit itself, or never will.  A server that is gone does nothing any
 *	                      more.  One that is stopped is waited for, as a coordinator is
 *	                      (may_still_write).
 */
static int server_is_done(struct vb_coordinator *me, const struct vb_log_entry *e,
			  uint64_t patience_ns)
{
	if (!e->by_server || !(me->db->fabric->caps.flags & VB_CAP_INLINE))
		return 0;
	return vb_call_is_done(me, vb_addr_node(e->at), patience_ns);
}

static void let_server_end(struct vb_coordinator *me)
{
	/* What a suspect time is more than a lease are two bounds, and the drift of clocks. */
	vb_txn_wait_out(me, me->db->suspect_ns - me->db->lease_ns);
}

/* ---- rolling forward ---- */

/* A verb to the node has failed with err: is what stood there lost for good?  A link that is down comes
 * back. */
static bool is_lost(const struct vb_coordinator *me, vb_addr at, int err)
{
	VB_SOMETIMES_IF(err == -VB_EPEERGONE, 2000,
			"txn: a link is down while a commit is finished");
	return err == -VB_EACCESS ||
	       (err == -VB_EPEERGONE && vb_node_gone(me->db->fabric, vb_addr_node(at)));
}

/* A log may be longer than one verb can be.  How long it is, its head says; the seal, whether
 * so. */
static int read_log(struct vb_acc *acc, vb_addr at, unsigned char *to, uint32_t room)
{
	const struct vb_place_head *head = (const void *)to;
	uint64_t end = sizeof(*head);
	int err = 0;

	for (uint64_t done = 0; err == 0 && done < end && end <= room;) {
		uint64_t most = done == 0 ? room : end;
		uint32_t len = (uint32_t)(most - done < VB_LEN_MAX ? most - done : VB_LEN_MAX);

		vb_acc_read(acc, VB_READ_TM, at + done, to + done, len);
		err = vb_acc_go(acc);
		done += len;
		end = sizeof(*head) + head->log_bytes;
	}
	return err;
}

/*
 * A copy of the log that the transaction has left in its place; *out is NULL if it has none,
 * because it wrote nothing (the seal is then another's).  Its memory is near if the place is our
 * own.
 */
static int copy_log_at(struct vb_coordinator *me, vb_addr at, uint32_t room, uint64_t ts,
		       unsigned char **out, uint32_t *bytes)
{
	struct vb_db *db = me->db;
	const void *near = vb_local(db->fabric, at, room);
	unsigned char *copy = vb_recovery_keep(me, room);
	const struct vb_place_head *head = (const void *)copy;
	int err = 0;

	*out = NULL;
	if (copy == NULL)
		return vb_fail(-ENOMEM, "no memory for a log");
	if (near != NULL && vb_addr_node(at) == me->node) {
		memcpy(copy, near, room);
	} else {
		err = read_log(&vb_recovery_lane(me)->acc, at, copy, room);
	}
	if (err == 0 && head->log_bytes <= room - sizeof(*head) &&
	    XXH3_64bits_withSeed(head + 1, head->log_bytes, ts) == head->log_seal) {
		*bytes = (uint32_t)head->log_bytes;
		*out = copy;
		return 0;
	}
	VB_SOMETIMES_IF(err == 0, 5000, "txn: a log with a wrong seal");
	VB_SOMETIMES_IF(err != 0, 10000, "txn: a log that cannot be read");
	vb_recovery_let_go(copy);
	return err;
}

/*
 * Of a place whose home is gone: from the first copy that has it, which each one did that says that it has happened,
 * but for one that the commit did not count.  If none has it any more, then who was only cut off has written another
 * over it, and has brought it into place before; as long as one does not answer that is not known.
 */
int vb_recovery_log(struct vb_coordinator *me, uint32_t place, uint64_t ts, unsigned char **out,
		    uint32_t *bytes)
{
	const struct vb_db *db = me->db;
	const uint32_t room = vb_db_place_bytes(db, place);
	int err = 0;
	bool some = false;

	if (vb_likely(!vb_copies_home_gone(db, me->node, place)))
		return copy_log_at(me, vb_db_place(db, place), room, ts, out, bytes);
	for (unsigned i = 0; i < db->copies; i++) {
		vb_addr at = vb_copy_at(db, place, i);
		int e = copy_log_at(me, at, room, ts, out, bytes);

		if (e == 0 && *out != NULL)
			return 0;
		some |= e == 0;
		if (e != 0 && !is_lost(me, at, e))
			err = e;
	}
	return err != 0 || some ? err : -VB_EPEERGONE;
}

const struct vb_log_entry *vb_log_next(const unsigned char *log, uint32_t bytes, uint32_t *at)
{
	const struct vb_log_entry *e = (const void *)(log + *at);

	if (*at + sizeof(*e) > bytes)
		return NULL;
	*at += (uint32_t)sizeof(*e) + ((e->bytes + 7) & ~7u);
	return *at <= bytes ? e : NULL;
}

/*
 * A new transaction of the lane's, whose lock word is not not_held: that was ours, and must not come
 * back.  A word that has room for a part of a name comes back with one name in so many, and not with
 * all: then it names the place alone, and what has been taken over stays as it is, past its commit
 * point and with its log, for another place's recovery.
 */
static int name_anew(struct vb_coordinator *me, const struct vb_log_entry *e, uint64_t not_held,
		     uint64_t *ts, uint64_t *held)
{
	const struct vb_cc_ops *cc = me->db->cc;

	for (unsigned i = 0; i < NAMES; i++) {
		int err = vb_coordinator_stamp(me, vb_recovery_lane(me), ts);

		if (err != 0)
			return err;
		*held = cc->locked(*ts, e->held);
		if (vb_likely(*held != not_held))
			return 0;
	}
	return vb_fail(-EPROTO,
		       "a commit cannot be finished: protocol '%s' gives %u transactions of a "
		       "place the same lock word %#" PRIx64
		       ".  This is a defect of the protocol: `locked` must name the transaction",
		       cc->name, NAMES, not_held);
}

/* Makes the entry our log, in the name of a new transaction that is past its commit point. */
static int take_on(struct vb_coordinator *me, const struct vb_log_entry *e, uint64_t not_held,
		   uint64_t *ts, uint64_t *held)
{
	struct vb_db *db = me->db;
	struct vb_lane *lane = vb_recovery_lane(me);
	struct vb_log_entry *mine = (void *)(lane->head + 1);
	int err = name_anew(me, e, not_held, ts, held);

	if (err)
		return err;
	vb_lane_log_by(me, lane);
	err = vb_lane_status(me, lane, *ts | VB_TS_RUNNING);
	if (err == 1)
		err = vb_lane_status(me, lane, *ts | VB_TS_RUNNING);
	if (err)
		return err == 1 ? -VB_EUNKNOWN : err;
	vb_lane_log_settle(me, lane);
	if (db->copies != 0)
		vb_copies_settle(me, lane);
	memcpy(mine, e, sizeof(*e) + e->bytes);
	mine->held = *held;
	mine->by_server = 0;
	vb_lane_log(me, lane, (uint32_t)sizeof(*e) + ((e->bytes + 7) & ~7u), *ts);
	err = db->copies != 0 ? vb_copies_log(me, lane, *ts) : 0;
	if (err != 0)
		return err == 1 ? me->fenced ? -VB_EPEERGONE : -VB_EUNKNOWN : err;
	err = vb_lane_status(me, lane, *ts | VB_TS_COMMITTED);
	return err == 1 ? -VB_EUNKNOWN : err;
}

/*
 * Takes the lock over: 0 it is ours, 1 another has it or it is free, as *word says.  As long as that is not known,
 * nothing else may be done: the lock may stand there in the recovery's name, whose log is all that
 * is left of the commit, and under another name we would take it for another's.  It does if e->held is
 * *ours already.  A link that is down ends it with -VB_EPEERGONE, with *ours if it may stand there.
 *
 * -VB_ETOOLATE: it stands there by e->held still, and nothing of ours lands any more.  A lease after we were named our
 * places may be another's, if they are far (txn/adopt.c): he has found the lock not to be ours, and has forgotten the
 * name.  Taken over then it would be set back as one that was left behind, and the write with it.
 */
static int take_over(struct vb_coordinator *me, const struct vb_log_entry *e, uint64_t held,
		     uint64_t not_after_ns, uint64_t *word, bool *ours)
{
	vb_addr at = e->at + me->db->store.table[e->table]->layout.lock_at;
	struct vb_acc *acc = &vb_recovery_lane(me)->acc;
	bool late;
	int err;

	for (;;) {
		late = vb_ep_now(me->ep) > not_after_ns;
		if (late)
			vb_txn_wait_out(me, me->db->fabric->caps.verb_bound_ns);
		acc->not_after_ns = late ? 0 : not_after_ns;
		err = late ? vb_recovery_read(me, VB_AMOD_IM, at, word)
			   : vb_recovery_cas(me, VB_AMOD_IM, at, e->held, held, word);
		acc->not_after_ns = 0;
		if (err == 0 && late && *word == e->held)
			return -VB_ETOOLATE;
		VB_SOMETIMES_IF(err == 0 && *word != e->held && *word != held, 200,
				"txn: a mender lost its race");
		if (err == 0)
			return *word == e->held || *word == held ? 0 : 1;
		*ours |= err == -VB_EUNKNOWN;
		if (err != -VB_EUNKNOWN && err != -VB_ETOOLATE)
			return err;
		vb_txn_wait_out(me, me->db->fabric->caps.verb_bound_ns);
	}
}

/*
 * The lock is not ours to take: the entry's write has happened, or so it is counted on.  What lets a lock go is
 * of the WRITE's doorbell or is posted behind it, and nothing that is posted behind a refused verb happens.  If
 * a fabric did the second without the first all the same, a commit that was told as such would be gone without
 * a word.  That can be told where nobody is at the tuple: versions do not come back, so one that has the version
 * which the write was to replace has not been written since.
 *
 *	lock word    newest version
 *	free         what it replaces    the write is lost: neither its holder nor who recovers it lets go before
 *	                                 the WRITE, and nobody sets back what has a log
 *	free         another             it has happened, and others may have written since
 *	another's    another             the same
 *	another's    what it replaces    cannot be told: that is how it looks, too, while one who recovers it has
 *	                                 the lock and is about to write.  A word says whose it is and not what
 *	                                 for; and by the time that his log has been asked for he may be through
 *
 * Under protocols that install before they decide a log is there to set back, too, and what it replaces is what
 * stands there when somebody else has.
 */
static int look_for_write(struct vb_coordinator *me, const struct vb_log_entry *e, uint64_t word)
{
	const struct vb_table *t = me->db->store.table[e->table];
	uint64_t version;
	int err;

	if (me->db->cc->whose(word).shown != 0 || vb_cc_installs(me->db->cc))
		return 0;
	err = read_newest(me, t, e->at, &version);
	if (err != 0 || (version | VB_VERSION_ABSENT) != (e->was | VB_VERSION_ABSENT))
		return err;
	me->lost_writes++;
	me->untold = true;
	vb_error("a committed write of table '%s' at node %u offset %#" PRIx64
		 " is lost: its lock was let go, and it has not happened.  The fabric has done a "
		 "verb behind one that it has refused; this is a defect, please report it",
		 t->name, vb_addr_node(e->at), vb_addr_offset(e->at));
	return 0;
}

/* The tuple's commit stage, in the recovery's name. */
static bool write_it(struct vb_coordinator *me, const struct vb_log_entry *e, uint64_t ts,
		     uint64_t held, uint64_t not_after_ns)
{
	struct vb_db *db = me->db;
	struct vb_lane *lane = vb_recovery_lane(me);
	struct vb_table *table = db->store.table[e->table];
	struct vb_item it = {
		.table = table,
		.at = e->at,
		.next = e->next,
		.held = held,
		.flags = VB_ITEM_WRITE | VB_ITEM_HELD_X,
		.to_slot = e->to_slot,
		.image = lane->arena,
	};
	struct vb_item *items = &it;
	struct vb_stage s = {.db = db, .acc = &lane->acc, .ts = ts, .commit_ts = e->next};

	memcpy(it.image + table->layout.record_at, e + 1, e->bytes);
	memset(vb_item_own(&it, me->item_own), 0, me->item_own);
	lane->acc.not_after_ns = not_after_ns;
	db->cc->stages[vb_cc_installs(db->cc) ? db->cc->undo : db->cc->commit].run(&s, &items, 1);
	lane->acc.not_after_ns = 0;
	return it.status == 0;
}

/*
 * The same until it is certain.  What a recovery has taken over stands in its name, and its log is
 * all that is left of the commit.  If it left then, it would use that name again sooner or later,
 * and others would set the lock back as one that was left behind.
 */
static int take_on_surely(struct vb_coordinator *me, const struct vb_log_entry *e,
			  uint64_t not_held, uint64_t *ts, uint64_t *held)
{
	int err;

	while ((err = take_on(me, e, not_held, ts, held)) == -VB_EUNKNOWN)
		vb_txn_wait_out(me, me->db->fabric->caps.verb_bound_ns);
	return err;
}

/* The recovery of one tuple. */
struct redo {
	uint64_t ts, held, before, not_after;
	bool named; /* its log is ours, under ts */
	bool ours;  /* the lock may stand in our name */
	union {
		struct vb_log_entry e;
		unsigned char bytes[sizeof(struct vb_log_entry) + VB_RECORD_BYTES_MAX];
	};
};

static int name_it(struct vb_coordinator *me, struct redo *r, uint64_t patience_ns)
{
	int err = server_is_done(me, &r->e, patience_ns);

	if (err != 0)
		return err;
	/* From here on others may find that we do not move. */
	r->not_after = vb_ep_now(me->ep) + me->db->lease_ns;
	me->recovering ^= 1u;
	err = r->before == 0 ? take_on(me, &r->e, 0, &r->ts, &r->held)
			     : take_on_surely(me, &r->e, r->before, &r->ts, &r->held);
	r->named = err == 0;
	/* In the other lane's name the lock may stand still, and the log there is all that is left. */
	if (err != 0)
		me->recovering ^= 1u;
	return err;
}

/*
 * One tuple gets what its transaction had written, and is free.  If that does not succeed in time,
 * once more in the name of the other lane, as others would: until it is done or another has the
 * lock.
 */
static int redo_on(struct vb_coordinator *me, struct redo *r, uint64_t patience_ns)
{
	for (;;) {
		uint64_t word = 0;
		int err = r->named ? 0 : name_it(me, r, patience_ns);

		if (err != 0)
			return err;
		err = take_over(me, &r->e, r->held, r->not_after, &word, &r->ours);
		if (err == -VB_ETOOLATE) {
			/* In the name of the same lane: the other one has the log by which it stands, perhaps. */
			VB_SOMETIMES(20000, "txn: a mender comes too late to take a lock over");
			r->named = false;
			r->ours = r->before != 0;
			me->recovering ^= 1u;
			continue;
		}
		if (err == 1) {
			r->ours = false;
			return look_for_write(me, &r->e, word);
		}
		if (err != 0)
			return err;
		let_server_end(me);
		if (write_it(me, &r->e, r->ts, r->held, r->not_after)) {
			me->rolled_forward++;
			return 0;
		}
		vb_txn_wait_out(me, me->db->suspect_ns);
		r->before = r->e.held;
		r->e.held = r->held;
		r->e.by_server = 0;
		r->named = false;
		r->ours = true;
	}
}

/* Is it left, for now, by a lock that may stand in our name?  Its log must not be another's until it is
 * done. */
static bool is_owed(const struct vb_coordinator *me, const struct redo *r, int err)
{
	return r->ours && err == -VB_EPEERGONE && !is_lost(me, r->e.at, err);
}

int vb_recovery_pay(struct vb_coordinator *me)
{
	int err;

	if (vb_likely(me->owed == NULL))
		return 0;
	err = redo_on(me, me->owed, me->db->patience_ns);
	if (is_owed(me, me->owed, err))
		return err;
	vb_recovery_let_go(me->owed);
	me->owed = NULL;
	return 0;
}

static int redo(struct vb_coordinator *me, const struct vb_log_entry *first, uint64_t patience_ns)
{
	int err = vb_recovery_pay(me);
	struct redo *r;

	if (err != 0)
		return err;
	r = vb_recovery_keep(me, sizeof(*r));
	if (r == NULL)
		return -ENOMEM;
	r->before = 0;
	r->named = r->ours = false;
	memcpy(&r->e, first, sizeof(*first) + first->bytes);
	err = redo_on(me, r, patience_ns);
	if (is_owed(me, r, err)) {
		vb_warn("a recovery on node %u is cut off, for the link to it is down: this "
			"coordinator recovers nothing else until it is up",
			vb_addr_node(r->e.at));
		me->owed = r;
	} else {
		vb_recovery_let_go(r);
	}
	return err;
}

static bool entry_is_sound(const struct vb_db *db, const struct vb_log_entry *e)
{
	return e->table < db->store.n_tables &&
	       e->bytes == db->store.table[e->table]->layout.record_bytes &&
	       e->to_slot < db->store.table[e->table]->layout.slots;
}

/*
 * Where verbs complete at once, the moment between the last look at the clock and the store is a
 * fair share of a transaction, and a process that stands still in it for a lease and then goes on
 * would write over what others have written since.  There it is also known for certain whether a
 * process lives: one that does is waited for, past its commit point, however long it stands still.
 */
static bool may_still_write(struct vb_coordinator *me, uint32_t place)
{
	const struct vb_db *db = me->db;
	vb_addr first = vb_db_place(db, place / VB_PLACES_EACH * VB_PLACES_EACH);
	uint64_t owner = 0;

	if (!(db->fabric->caps.flags & VB_CAP_INLINE))
		return false;
	if (vb_recovery_read(me, VB_READ_TM, first + offsetof(struct vb_place_head, owner),
			     &owner) != 0)
		return true;
	return owner != 0 && owner != me->ep->self && vb_peer_alive(db->fabric, owner);
}

/* The tuple's entry in the log of a committed transaction, or of one that is undone; none: it only held the
 * lock, or the lock is not its own. */
static int by_log(struct vb_coordinator *me, const struct vb_suspect *s, uint32_t place,
		  uint64_t patience_ns)
{
	const struct vb_log_entry *e;
	uint32_t bytes, at = 0;
	unsigned char *log;
	int err = vb_recovery_log(me, place, vb_ts_name(s->status), &log, &bytes);

	if (err)
		return err;
	if (log == NULL)
		return set_back(me, s);
	while ((e = vb_log_next(log + sizeof(struct vb_place_head), bytes, &at)) != NULL)
		if (e->at == s->at && e->held == s->word && s->reader_at == 0 &&
		    entry_is_sound(me->db, e))
			break;
	VB_SOMETIMES_IF(e != NULL, 100, "txn: a roll-forward by another");
	VB_SOMETIMES_IF(e != NULL && (s->status & VB_TS_STATE) != VB_TS_COMMITTED, 100,
			"to-cascade: a dead one's write is undone by another");
	if (e == NULL)
		err = set_back(me, s);
	else if (!may_still_write(me, place))
		err = redo(me, e, patience_ns);
	vb_recovery_let_go(log);
	return err;
}

/* Of what was to be finished: what is lost needs no more. */
static int ended(const struct vb_coordinator *me, vb_addr at, int err)
{
	if (is_lost(me, at, err))
		return 0;
	/* Whoever begins again and again meets it each time. */
	if (err == -VB_EPEERGONE)
		vb_info("a commit on node %u is not finished: the link to it is down",
			vb_addr_node(at));
	return err;
}

/* Its node may be slow, and if it is gone, so is the tuple.  A server that is slow has not been given a core,
 * and comes to it.  A link that is down is told of, and it is tried again at the next use of the place. */
static int redo_for_sure(struct vb_coordinator *me, const struct vb_log_entry *e)
{
	int err;

	while ((err = redo(me, e, me->db->patience_ns)) == -VB_EUNKNOWN || err == -VB_ETOOLATE)
		vb_txn_wait_out(me, me->db->suspect_ns);
	if (err == -ETIMEDOUT)
		return vb_fail(err,
			       "a commit on node %u cannot be finished: the node's server does not "
			       "answer, lives, and may still write; continue it or end it",
			       vb_addr_node(e->at));
	return ended(me, e->at, err);
}

/* Half of a commit must not be forgotten. */
static int not_opened(const struct vb_db *db, const struct vb_log_entry *e)
{
	return vb_fail(-EPROTO,
		       "a commit cannot be finished: it wrote %" PRIu32
		       " bytes to table %u, and this process has no such table of database '%s'; "
		       "every process must open the same tables, in the same order",
		       e->bytes, e->table, db->name);
}

/* What is committed is in place. */
static int let_go_for_sure(struct vb_coordinator *me, const struct vb_log_entry *e)
{
	const struct vb_suspect s = {
		.at = e->at, .word = e->held, .table = me->db->store.table[e->table]};
	int err;

	while ((err = set_back(me, &s)) == -VB_EUNKNOWN || err == -VB_ETOOLATE)
		vb_txn_wait_out(me, me->db->fabric->caps.verb_bound_ns);
	return ended(me, e->at, err);
}

int vb_lane_finish(struct vb_coordinator *me, struct vb_lane *lane)
{
	const bool by_log = vb_log_decides(me->db, lane->status);
	const struct vb_log_entry *e;
	uint32_t bytes, at = 0;
	unsigned char *log;
	int err;

	if (!by_log && (lane->status & VB_TS_STATE) != VB_TS_COMMITTED)
		return 0;
	err = vb_recovery_log(me, lane->place, vb_ts_name(lane->status), &log, &bytes);
	if (err != 0 || log == NULL)
		return err;
	while (err == 0 &&
	       (e = vb_log_next(log + sizeof(struct vb_place_head), bytes, &at)) != NULL)
		if (!entry_is_sound(me->db, e))
			err = not_opened(me->db, e);
		else
			err = by_log ? redo_for_sure(me, e) : let_go_for_sure(me, e);
	vb_recovery_let_go(log);
	return err;
}

/* ---- deciding ---- */

/*
 * It was noted in the midst of a transaction of ours; its holder may have tried again since.  Whoever
 * does so between this look and the CAS of the status word that follows has that try rolled back
 * instead: all of it, and the name with it, for its commit point finds the word set, and the next try
 * is named anew.  That costs it a try, and its age (tests/sim/test_txn_again.c).
 */
static bool has_moved(struct vb_coordinator *me, const struct vb_suspect *s)
{
	struct vb_pulse now;

	if (s->left || !(me->db->cc->caps & VB_CC_AGE))
		return false;
	return vb_suspect_look(me, s, &now) != 0 || now.tries != s->tries;
}

/*
 * Its status word says so now, and where there are copies that is not the last word: its home may have gone since, or
 * be gone to others, and they go by the copies.  Who finds that it has happened is not done yet: the holder may have
 * learned it, too, and have a lease for its writes (txn/suspect.c).
 */
static int confirm(struct vb_coordinator *me, const struct vb_suspect *s, bool *stays)
{
	struct vb_pulse now;
	int err;

	*stays = true;
	if (me->db->copies == 0)
		return 0;
	err = vb_suspect_look(me, s, &now);
	*stays = err == 0 && now.status == s->status;
	return err;
}

int vb_txn_recover(struct vb_coordinator *me, struct vb_suspect s, uint64_t patience_ns)
{
	uint32_t place = vb_suspect_holder(me->db, &s);
	uint64_t old;
	bool stays;
	int err = 0;

	if (place == VB_NO_PLACE || has_moved(me, &s))
		return 0;
	for (unsigned i = 0; i < LOOKS; i++) {
		if (s.left) {
			err = set_back(me, &s);
			break;
		}
		if (vb_status_final(s.status)) {
			err = vb_log_decides(me->db, s.status) ? by_log(me, &s, place, patience_ns)
							       : set_back(me, &s);
			break;
		}
		err = vb_recovery_cas(me, VB_AMOD_TM, vb_status_word(me->db, place), s.status,
				      s.status & ~(uint64_t)VB_TS_STATE, &old);
		if (err)
			break;
		/* Or we have recovered it for another of its locks, or somebody else has. */
		if (old != s.status && old != vb_ts_name(s.status))
			return 0; /* it moves */
		s.status = vb_ts_name(s.status);
		err = confirm(me, &s, &stays);
		if (!stays)
			break;
	}
	if (err)
		vb_debug("a lock at node %u offset %#" PRIx64 " could not be recovered: %s",
			 vb_addr_node(s.at), vb_addr_offset(s.at), vb_strerror(err));
	return err;
}

/* One transaction may have met several. */
void vb_txn_recover_ripe(struct vb_coordinator *me)
{
	VB_SOMETIMES_IF(me->ripe > 1, 300, "txn: several found dead in one transaction");
	for (unsigned i = 0; i < VB_SUSPECTS && me->ripe > 0; i++) {
		struct vb_suspect s = me->suspect[i];

		if (!s.ripe)
			continue;
		me->suspect[i] = (struct vb_suspect){0};
		me->ripe--;
		/* If it fails, somebody will meet the word again. */
		(void)vb_txn_recover(me, s, me->db->suspect_ns);
	}
}
