/* SPDX-License-Identifier: Apache-2.0 */
/* vb_db_recover: every lock of a node whose holder does not move, and the places of the dead. */
#define VB_LOG_ROOM "txn"
#include "base/log.h"
#include "base/sometimes.h"
#include "txn/db.h"

#define LOOKS 16u /* at a dead one's status that changes while its place is given up */

struct sweep {
	struct vb_coordinator *me;
	/* Of each number, the owner who was gone at the sweep's begin; 0: it was not. */
	uint64_t *dead;
	struct vb_suspect *found;
	size_t n, room;
	uint64_t patience_ns; /* with a server, for a lock */
	int first;            /* error of what was left out */
};

/* An error of one lock or place, which another can finish, or we later: it is noted, and no reason to
 * leave the rest. */
static int left_out(struct sweep *w, int err)
{
	if (err != -ETIMEDOUT && err != -EPROTO && err != -VB_EUNKNOWN && err != -VB_ETOOLATE &&
	    err != -VB_EPEERGONE && err != -VB_EACCESS)
		return err;
	w->first = w->first != 0 ? w->first : err;
	return 0;
}

static int note(struct sweep *w, const struct vb_suspect *s)
{
	if (w->n == w->room) {
		size_t room = w->room != 0 ? 2 * w->room : 64;
		struct vb_suspect *more = vb_recovery_keep(w->me, room * sizeof(*more));

		if (more == NULL)
			return vb_fail(-ENOMEM, "no memory for %zu locks", room);
		if (w->n > 0)
			memcpy(more, w->found, w->n * sizeof(*more));
		vb_recovery_let_go(w->found);
		w->found = more;
		w->room = room;
	}
	w->found[w->n++] = *s;
	return 0;
}

/* Notes each word of a tuple by which somebody holds it. */
static int look_at(struct sweep *w, struct vb_table *t, vb_addr at)
{
	struct vb_coordinator *me = w->me;
	unsigned n = t->layout.meta_bytes / 8 + 2, found;
	struct vb_named_word named[VB_NAMED_WORDS_MAX];
	struct vb_pulse pulse = {0};
	uint64_t header[1 + VB_NAMED_WORDS_MAX];
	int err;

	vb_assert(n <= VB_NAMED_WORDS_MAX);
	vb_acc_read(&vb_recovery_lane(me)->acc, VB_READ_DI, at + VB_TUPLE_RESERVED_AT, &header[1],
		    n * 8);
	err = vb_acc_go(&vb_recovery_lane(me)->acc);
	found = err == 0 ? vb_words_named(me->db->cc, header, named) : 0;
	for (unsigned i = 0; i < found && err == 0; i++) {
		struct vb_suspect s = {.at = at, .word = named[i].word, .table = t};

		if (named[i].kind != VB_WORD_LOCK)
			s.reader_at = named[i].at;
		if (vb_suspect_holder(me->db, &s) == VB_NO_PLACE)
			continue;
		err = vb_suspect_look(me, &s, &pulse);
		s.status = pulse.status;
		s.tries = pulse.tries;
		err = err == 0 ? note(w, &s) : left_out(w, err);
	}
	return err;
}

static int look_everywhere(struct sweep *w, uint16_t node)
{
	struct vb_store *store = &w->me->db->store;
	int err = 0;

	for (unsigned i = 0; i < store->n_tables && err == 0; i++) {
		struct vb_table *t = store->table[i];
		vb_addr header = t->node[node].header;
		uint64_t tuples = 0;

		err = vb_recovery_read(w->me, VB_READ_DI,
				       header + offsetof(struct vb_table_header, tuples), &tuples);
		for (uint64_t k = 0; k < tuples && err == 0; k++)
			err = look_at(w, t,
				      header + sizeof(struct vb_table_header) +
					      k * t->layout.stride);
	}
	return err;
}

/* Did it stand for all the time?  Then its holder is recovered. */
static int judge(struct sweep *w, struct vb_suspect *s, uint64_t *freed)
{
	struct vb_coordinator *me = w->me;
	vb_addr at = s->at + (s->reader_at != 0 ? s->reader_at : s->table->layout.lock_at);
	struct vb_pulse now;
	uint64_t word;
	int err = vb_recovery_read(me, VB_AMOD_IM, at, &word);

	if (err != 0 || word != s->word)
		return err;
	err = vb_suspect_look(me, s, &now);
	if (err == 0 && vb_suspect_stood_still(me->db, s, &now))
		err = vb_txn_recover(me, *s, w->patience_ns);
	/* A server that is waited for in vain is so once, and not for each lock. */
	if (err == -ETIMEDOUT)
		w->patience_ns = me->db->suspect_ns;
	if (err != 0)
		return left_out(w, err);
	err = vb_recovery_read(me, VB_AMOD_IM, at, &word);
	*freed += err == 0 && word != s->word;
	return err;
}

/* 0: nobody commits by that name any more; 1: its status is another by now. */
static int end_name(struct vb_coordinator *me, vb_addr status, struct vb_lane *lane)
{
	uint64_t old, name = vb_ts_name(lane->status);
	int err = vb_recovery_cas(me, VB_AMOD_TM, status, lane->status, name, &old);

	if (err != 0 || old != lane->status)
		return err != 0 ? err : 1;
	lane->status = name;
	return 0;
}

/* Where there are copies nobody commits by that name any more, either, or it has happened. */
static int withdraw(struct vb_coordinator *me, vb_addr status, struct vb_lane *lane,
		    uint64_t *at_home)
{
	bool happened;
	int err;

	*at_home = lane->status;
	if (me->db->copies == 0 || (lane->status & VB_TS_STATE) == VB_TS_COMMITTED)
		return 0;
	err = end_name(me, status, lane);
	*at_home = lane->status;
	if (err == 0)
		err = vb_copies_withdraw(me, lane->place, lane->status, &happened);
	if (err == 0 && happened)
		lane->status |= VB_TS_COMMITTED;
	return err;
}

/*
 * A place whose owner's process `who` is gone, which is somebody else's when *still is not `who`.  What the
 * dead one has posted may land yet, its commit point, too: then its status is another than we have seen, and
 * is looked at again, for what it had committed has to be in place.
 */
int vb_place_free(struct vb_coordinator *me, uint32_t place, vb_addr owner, uint64_t who,
		  uint64_t *still)
{
	const struct vb_txn_watch *watch = me->db->watch;
	vb_addr status = vb_status_word(me->db, place);

	for (unsigned i = 0; i < LOOKS; i++) {
		struct vb_lane lane = {.place = place};
		uint64_t at_home = 0;
		int err = vb_recovery_read(me, VB_READ_TM, status, &lane.status);

		/* Another may have given it up before that look, and somebody else have it. */
		if (err == 0)
			err = vb_recovery_read(me, VB_READ_TM, owner, still);
		if (err != 0 || *still != who)
			return err;
		/* What it may still commit is not undone. */
		if (!vb_status_final(lane.status) && vb_log_decides(me->db, lane.status))
			err = end_name(me, status, &lane);
		if (err == 0)
			err = withdraw(me, status, &lane, &at_home);
		if (err == 0)
			err = vb_lane_finish(me, &lane);
		if (err == 0 && watch != NULL && watch->given_up != NULL)
			watch->given_up(watch->ctx, place, lane.status);
		lane.status = at_home;
		if (err == 0)
			err = end_name(me, status, &lane);
		if (err != 1)
			return err;
		VB_SOMETIMES(20000, "txn: a verb of a dead one lands while its place is given up");
	}
	return -VB_EUNKNOWN;
}

/* All of one's places, from the first.  Those that cannot be given up yet keep none of the others. */
static int free_places_of(struct sweep *w, uint32_t place, uint64_t who)
{
	struct vb_coordinator *me = w->me;
	vb_addr owner = vb_db_place(me->db, place) + offsetof(struct vb_place_head, owner);
	uint64_t old, still = who;
	bool all = true;

	for (unsigned i = 0; i < VB_PLACES_EACH; i++) {
		int err = vb_place_free(me, place + i, owner, who, &still);

		if (err == 0 && still != who)
			return 0;
		all &= err == 0;
		err = left_out(w, err);
		if (err != 0)
			return err;
	}
	return all ? left_out(w, vb_recovery_cas(me, VB_AMOD_TM, owner, who, 0, &old)) : 0;
}

/* Places of coordinators whose process is gone.  They are given up when it has been so for a suspect time: adopt.c. */
static int find_dead(struct sweep *w, uint16_t node)
{
	struct vb_db *db = w->me->db;
	int err = 0;

	w->dead = vb_recovery_keep(w->me, db->coordinators * sizeof(*w->dead));
	if (w->dead == NULL)
		return vb_fail(-ENOMEM, "no memory for %u owners", db->coordinators);
	for (uint32_t c = 0; c < db->coordinators && err == 0; c++) {
		uint32_t place = (node * db->coordinators + c) * VB_PLACES_EACH;
		vb_addr owner = vb_db_place(db, place) + offsetof(struct vb_place_head, owner);

		err = vb_recovery_read(w->me, VB_READ_TM, owner, &w->dead[c]);
		if (err == 0 && w->dead[c] != 0 && vb_peer_alive(db->fabric, w->dead[c]))
			w->dead[c] = 0;
	}
	return err;
}

/* A lock of theirs that is met later is one that was left behind. */
static int free_places(struct sweep *w, uint16_t node)
{
	struct vb_db *db = w->me->db;
	int err = 0;

	for (uint32_t c = 0; c < db->coordinators && err == 0; c++)
		if (w->dead[c] != 0)
			err = free_places_of(w, (node * db->coordinators + c) * VB_PLACES_EACH,
					     w->dead[c]);
	return err;
}

int vb_db_recover(struct vb_coordinator *me, uint16_t node, uint64_t *freed)
{
	struct sweep w = {.me = me};
	int err = 0;

	if (vb_any_null(me, freed))
		return -EINVAL;
	VB_EP_CALL(call, me->ep);
	if (call.err)
		return call.err;
	w.patience_ns = me->db->patience_ns;
	if (me->txn.phase == VB_TXN_OPEN)
		return vb_fail(-EBUSY, "a transaction is under way: commit or abort it first");
	if (!me->db->recovery)
		return vb_fail(-EOPNOTSUPP, "database '%s' was opened without recovery",
			       me->db->name);
	if (node >= me->db->fabric->nodes)
		return vb_fail(-EINVAL, "there is no node %u", node);
	*freed = 0;
	/* What waits for a link of ours keeps none of the others, either. */
	for (unsigned i = 0; i < VB_PLACES_TXN && err == 0; i++) {
		err = vb_lane_settle(me, &me->lane[i]);
		if (err == -VB_EPEERGONE)
			err = left_out(&w, err);
	}
	if (err == 0)
		err = find_dead(&w, node);
	if (err == 0)
		err = look_everywhere(&w, node);
	if (err == 0)
		err = vb_ep_sleep(me->ep, me->db->suspect_ns);
	for (size_t i = 0; i < w.n && err == 0; i++)
		err = judge(&w, &w.found[i], freed);
	if (err == 0)
		err = free_places(&w, node);
	vb_recovery_let_go(w.found);
	vb_recovery_let_go(w.dead);
	if (err == 0)
		err = w.first;
	return err != 0 ? err : vb_txn_tell_loss(me);
}
