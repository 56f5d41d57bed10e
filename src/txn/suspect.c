/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lock words that stand in the way: since when, and whether their holder moves.  What becomes of
 * one that does not: recover.c.
 */
#define VB_LOG_ROOM "txn"
#include "txn/db.h"

int vb_recovery_read(struct vb_coordinator *me, enum vb_prim prim, vb_addr at, uint64_t *out)
{
	struct vb_acc *acc = &vb_recovery_lane(me)->acc;

	vb_acc_read(acc, prim, at, out, 8);
	return vb_acc_go(acc);
}

int vb_recovery_cas(struct vb_coordinator *me, enum vb_prim prim, vb_addr at, uint64_t expect,
		    uint64_t value, uint64_t *old)
{
	struct vb_acc *acc = &vb_recovery_lane(me)->acc;

	vb_acc_cas(acc, prim, at, expect, value, old);
	return vb_acc_go(acc);
}

static struct vb_word_name name_in(const struct vb_db *db, const struct vb_suspect *s)
{
	return s->reader_at != 0 ? vb_ts_named(s->word) : db->cc->whose(s->word);
}

uint32_t vb_suspect_holder(const struct vb_db *db, const struct vb_suspect *s)
{
	uint32_t place = vb_name_place(name_in(db, s));

	/* What is no place is no word of ours: memory that somebody else wrote. */
	return place < db->coordinators * VB_PLACES_EACH * db->fabric->nodes ? place : VB_NO_PLACE;
}

/* A held word never comes back, so one that is the same has stood all the time; and when a place
 * has gone on to another name, everything that its last transaction held has been let go. */
static bool is_left(const struct vb_db *db, const struct vb_suspect *s, uint64_t now)
{
	return vb_ts_name(now) != vb_ts_name(s->status) || !vb_name_fits(name_in(db, s), now);
}

/*
 * From a look at the holder to another, suspect_ns later: it has not moved, or has been recovered
 * meanwhile for another of its locks; or it is at another transaction, and the lock is one that was
 * left behind.  Who keeps its name when it tries again has moved all the same.
 */
static bool stood_still(const struct vb_suspect *s, const struct vb_pulse *now)
{
	return (now->status == s->status && now->tries == s->tries) ||
	       now->status == vb_ts_name(s->status);
}

bool vb_suspect_stood_still(const struct vb_db *db, struct vb_suspect *s,
			    const struct vb_pulse *now)
{
	bool left = is_left(db, s, now->status);

	if (!left && !stood_still(s, now))
		return false;
	s->left = left;
	s->status = now->status;
	return true;
}

/* What the home says, if the copies do not know better: who gives it up has them say the same. */
static int look_at_home(struct vb_coordinator *me, uint32_t place, uint64_t *status)
{
	bool happened;
	int err = vb_recovery_read(me, VB_READ_TM, vb_status_word(me->db, place), status);

	if (err != 0 || me->db->copies == 0 || *status != vb_ts_name(*status))
		return err;
	err = vb_copies_withdraw(me, place, *status, &happened);
	if (err == 0 && happened)
		*status |= VB_TS_COMMITTED;
	return err;
}

int vb_suspect_look(struct vb_coordinator *me, const struct vb_suspect *s, struct vb_pulse *out)
{
	uint32_t place = vb_suspect_holder(me->db, s);
	vb_addr at = vb_db_place(me->db, place);
	int err;

	out->tries = 0;
	if (vb_unlikely(vb_copies_home_gone(me->db, me->node, place)))
		return vb_copies_seal(me, place, &out->status);
	err = look_at_home(me, place, &out->status);
	if (err == 0 && me->db->cc->caps & VB_CC_AGE)
		err = vb_recovery_read(me, VB_READ_TM, at + offsetof(struct vb_place_head, tries),
				       &out->tries);
	return err;
}

static bool forgotten(const struct vb_coordinator *me, const struct vb_suspect *s, uint64_t now)
{
	return s->at == 0 || (!s->ripe && now - s->seen_ns > 2 * me->db->suspect_ns);
}

/* Where to note another: over what nobody has met for long, or else over the latest; NULL: all are
 * ripe. */
static struct vb_suspect *room_for(struct vb_coordinator *me, uint64_t now)
{
	struct vb_suspect *latest = NULL;

	for (unsigned i = 0; i < VB_SUSPECTS; i++) {
		struct vb_suspect *s = &me->suspect[i];

		if (forgotten(me, s, now))
			return s;
		if (!s->ripe && (latest == NULL || s->since_ns > latest->since_ns))
			latest = s;
	}
	return latest;
}

/* Where in the tuple the word stood that was in the way; 0: it is the lock word. */
static uint16_t word_at(const struct vb_item *it)
{
	if (it->seen_slot == 0)
		return 0;
	if (it->seen_slot == VB_SEEN_RESERVED)
		return VB_TUPLE_RESERVED_AT;
	return (uint16_t)(VB_TUPLE_META_AT + (it->seen_slot - 1u) * 8u);
}

static struct vb_suspect *find(struct vb_coordinator *me, const struct vb_item *it)
{
	for (unsigned i = 0; i < VB_SUSPECTS; i++) {
		struct vb_suspect *s = &me->suspect[i];

		if (s->at == it->at && s->word == it->seen && s->reader_at == word_at(it))
			return s;
	}
	return NULL;
}

static void note(struct vb_coordinator *me, const struct vb_item *it, uint64_t now)
{
	struct vb_suspect *s = room_for(me, now);

	if (s != NULL)
		*s = (struct vb_suspect){
			.at = it->at,
			.word = it->seen,
			.table = it->table,
			.since_ns = now,
			.seen_ns = now,
			.reader_at = word_at(it),
		};
}

/*
 * The word in the item's way, and in which word of the tuple it stood.  It is enough to ask for its
 * holder's status when it has stood for long, once, and a second time after as long again:
 * conflicts are frequent and the dead are rare.
 */
void vb_txn_suspect(struct vb_txn *t, const struct vb_item *it)
{
	struct vb_coordinator *me = t->me;
	struct vb_suspect *s;
	struct vb_pulse pulse;
	uint64_t now;

	if (!me->db->recovery || it->at == 0 || it->seen == 0)
		return;
	now = vb_ep_now(me->ep);
	/* However long ago: who comes seldom must find the dead, too. */
	s = find(me, it);
	if (s == NULL) {
		note(me, it, now);
		return;
	}
	s->seen_ns = now;
	if (s->ripe || now - s->since_ns < me->db->suspect_ns)
		return;
	if (vb_suspect_holder(me->db, s) == VB_NO_PLACE || vb_suspect_look(me, s, &pulse) != 0)
		return;
	if (s->asked && vb_suspect_stood_still(me->db, s, &pulse)) {
		s->ripe = true;
		me->ripe++;
		return;
	}
	s->asked = true;
	s->status = pulse.status;
	s->tries = pulse.tries;
	/* Of when it is known to have been so: we may have stood still before that look. */
	s->since_ns = vb_ep_now(me->ep);
}
