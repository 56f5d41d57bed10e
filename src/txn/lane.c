/* SPDX-License-Identifier: Apache-2.0 */
/* What a coordinator's places are named, and what their status words say. */
#define VB_LOG_ROOM "txn"
#include <xxhash.h>

#include "base/sometimes.h"
#include "txn/db.h"

/* How often in a verb bound we look at our own status word again after a lost answer. */
#define STATUS_PAUSES 16u

/*
 * The clock of timestamps may run ahead of time: if a coordinator names more transactions than
 * there are units (488,000 a second), and if it has seen others that do.  How far the names of a
 * coordinator's places have come is kept in the first one's head, CLOCK_RESERVED units at a time
 * (34 ms, so one store in that time or that many transactions); so the next coordinator of the
 * places begins above, however the last one ended.  CLOCK_AHEAD units (73 minutes) ahead of the
 * common time the clock waits for it: so 46 bits are never used up early, and no word that is no
 * timestamp can push a clock to their end.
 */
#define CLOCK_RESERVED (1u << 14)
#define CLOCK_AHEAD    (1ull << 31)

void vb_txn_wait_out(struct vb_coordinator *me, uint64_t ns)
{
	vb_ep_wait_out(me->ep, ns);
}

/* Snapshots compare what is named with the time of others: no name is from before it was given. */
static uint64_t units_now(const struct vb_coordinator *me)
{
	if (me->db->cc->caps & VB_CC_SNAPSHOTS) {
		uint64_t error_ns, now = vb_ep_common_now(me->ep, &error_ns);

		return (now + error_ns) >> VB_TS_CLOCK_SHIFT;
	}
	return (vb_ep_now(me->ep) + (uint64_t)me->common_ns) >> VB_TS_CLOCK_SHIFT;
}

void vb_coordinator_saw(struct vb_coordinator *me, uint64_t clock)
{
	if (vb_unlikely(clock >= me->clock) && clock < units_now(me) + CLOCK_AHEAD)
		me->clock = clock + 1;
}

/* ---- the clock ---- */

static vb_addr clock_word(const struct vb_coordinator *me)
{
	return vb_db_place(me->db, me->lane[0].place) + offsetof(struct vb_place_head, clock);
}

/*
 * From clock_end to `to`.  By a CAS, which is of no effect if it lands late; as long as nobody knows whether it has
 * landed, the same is asked for.
 */
static int move_clock(struct vb_coordinator *me, struct vb_lane *lane, uint64_t to)
{
	uint64_t old = 0;
	int err;

	if (!me->far) {
		__atomic_store_n(&me->lane[0].head->clock, to, __ATOMIC_RELEASE);
		me->clock_end = to;
		return 0;
	}
	if (me->clock_asked == 0)
		me->clock_asked = to;
	vb_acc_cas(&lane->acc, VB_AMOD_TM, clock_word(me), me->clock_end, me->clock_asked, &old);
	err = vb_acc_go(&lane->acc);
	if (err != 0)
		return err;
	/* It is ours alone: or the place is not ours any more. */
	if (old != me->clock_end && old != me->clock_asked)
		return -VB_EPEERGONE;
	me->clock_end = me->clock_asked;
	me->clock_asked = 0;
	return 0;
}

/* Names that the places had under their last owner are not used again. */
int vb_clock_open(struct vb_coordinator *me)
{
	struct vb_acc *acc = &me->lane[0].acc;
	int err = 0;

	if (me->far) {
		vb_acc_read(acc, VB_READ_TM, clock_word(me), &me->clock, 8);
		err = vb_acc_go(acc);
	} else {
		me->clock = __atomic_load_n(&me->lane[0].head->clock, __ATOMIC_ACQUIRE);
	}
	me->clock_end = me->clock;
	if (me->clock < VB_TS_FIRST_CLOCK)
		me->clock = VB_TS_FIRST_CLOCK;
	return err;
}

/* If it cannot be told how far it has come, the next owner goes by how far it may have. */
void vb_clock_close(struct vb_coordinator *me)
{
	bool late = me->clock_asked != 0;

	if (!late && me->clock != me->clock_end)
		late = move_clock(me, &me->lane[0], me->clock) == -VB_EUNKNOWN;
	if (late)
		vb_txn_wait_out(me, me->db->fabric->caps.verb_bound_ns); /* not on the next one's */
}

int vb_coordinator_stamp(struct vb_coordinator *me, struct vb_lane *lane, uint64_t *ts)
{
	uint64_t now = units_now(me);
	int err = 0;

	while (vb_unlikely(me->clock > now + CLOCK_AHEAD)) {
		vb_txn_wait_out(me, (me->clock - now - CLOCK_AHEAD) << VB_TS_CLOCK_SHIFT);
		now = units_now(me);
	}
	if (now > me->clock)
		me->clock = now;
	while (vb_unlikely(me->clock >= me->clock_end) && err == 0)
		err = move_clock(me, lane, me->clock + CLOCK_RESERVED);
	if (vb_likely(err == 0))
		*ts = vb_ts_make(me->clock++, lane->place);
	return err;
}

/* ---- the log ---- */

/* What a log takes of its place: the end of its head, and what is behind that. */
#define LOG_FROM offsetof(struct vb_place_head, log_bytes)

/*
 * Where the place is far the log goes there by WRITEs of the doorbell that changes the status word, before it: who
 * finds the word changed finds the log.  One that is asked for again behind a lost answer is the same, so it does
 * no harm to who reads it; but it must not land on the next one.
 */
void vb_lane_log(struct vb_coordinator *me, struct vb_lane *lane, uint32_t bytes, uint64_t ts)
{
	struct vb_place_head *head = lane->head;

	head->log_bytes = bytes;
	/* A reader of the log may see half of it. */
	head->log_seal = XXH3_64bits_withSeed(head + 1, bytes, ts);
	if (me->far)
		lane->log_due = (uint32_t)(sizeof(*head) - LOG_FROM) + bytes;
}

void vb_lane_log_settle(struct vb_coordinator *me, struct vb_lane *lane)
{
	if (vb_likely(!lane->log_late))
		return;
	VB_SOMETIMES(500, "far: a log's answer is lost, and the next one waits");
	vb_txn_wait_out(me, me->db->fabric->caps.verb_bound_ns);
	lane->log_late = false;
}

/*
 * Who is only cut off from its home may go on when another has its places (txn/adopt.c), and a WRITE of its log would
 * land on that one's copies, which take it from whoever posts it: the word keeps out what comes behind it and not what
 * stands there by then.  From before a name is given at home until a lease later the place is ours, and a bound later
 * all has landed.
 */
void vb_lane_log_by(const struct vb_coordinator *me, struct vb_lane *lane)
{
	lane->log_by_ns = me->far ? vb_ep_now(me->ep) + me->db->lease_ns : 0;
}

static void put_log(struct vb_coordinator *me, struct vb_lane *lane)
{
	const unsigned char *from = (const unsigned char *)lane->head + LOG_FROM;
	vb_addr to = vb_db_place(me->db, lane->place) + LOG_FROM;

	for (uint32_t at = 0; at < lane->log_due; at += VB_LEN_MAX)
		vb_acc_write(&lane->acc, VB_WRITE_TM, to + at, from + at,
			     lane->log_due - at < VB_LEN_MAX ? lane->log_due - at : VB_LEN_MAX);
}

int vb_lane_log_now(struct vb_coordinator *me, struct vb_lane *lane)
{
	int err = 0;

	if (lane->log_due == 0)
		return 0;
	put_log(me, lane);
	err = vb_acc_go(&lane->acc);
	lane->log_late |= err != 0;
	lane->log_due = 0;
	return err;
}

/* ---- the status word ---- */

/*
 * Brings our status word to `to`, from what we believe it is.  An answer that is lost is asked for
 * again, for as long as others would wait for us: the CAS that has happened finds what it would
 * have written.  1: somebody else has changed the word, which now is lane->status.
 */
int vb_lane_status(struct vb_coordinator *me, struct vb_lane *lane, uint64_t to)
{
	const struct vb_db *db = me->db;
	vb_addr at = vb_db_place(db, lane->place);
	uint64_t until = 0;

	for (;;) {
		uint64_t old = 0;
		int err;

		if (vb_unlikely(lane->log_due != 0))
			put_log(me, lane);
		vb_acc_cas(&lane->acc, VB_AMOD_TM, at, lane->status, to, &old);
		err = vb_acc_go(&lane->acc);
		if (vb_likely(err == 0)) {
			bool ours = old == lane->status || old == to;

			lane->status = ours ? to : old;
			lane->log_due = 0;
			return ours ? 0 : 1;
		}
		VB_SOMETIMES(100, "txn: the answer of the own status word is lost");
		lane->late = true;
		lane->log_late |= lane->log_due != 0;
		if (until == 0)
			until = vb_ep_now(me->ep) + 2 * db->suspect_ns;
		if (err == -VB_EPEERGONE || err == -VB_EACCESS || vb_ep_now(me->ep) > until) {
			lane->log_due = 0;
			return err;
		}
		vb_txn_wait_out(me, db->fabric->caps.verb_bound_ns / STATUS_PAUSES);
	}
}

/* Who waits for what we hold sees by this that we move: the name is the same (txn/suspect.c). */
static void count_try(struct vb_coordinator *me, struct vb_lane *lane)
{
	if (!me->far) {
		__atomic_store_n(&lane->head->tries, lane->head->tries + 1, __ATOMIC_RELEASE);
		return;
	}
	/* Of the doorbell that names it.  If it is lost, so is the try: recover.c, has_moved. */
	vb_acc_faa(&lane->acc, VB_AMOD_TM,
		   vb_db_place(me->db, lane->place) + offsetof(struct vb_place_head, tries), 1,
		   &lane->tries_were);
}

int vb_lane_name(struct vb_coordinator *me, struct vb_lane *lane, uint64_t old_ts)
{
	struct vb_txn *t = &me->txn;
	int err;

	if (me->db->snapshot_lag_ns != 0 || vb_cc_installs(me->db->cc))
		t->named_ns = vb_ep_now_early(me->ep);
	/* The same name needs the same place. */
	err = vb_coordinator_stamp(me, lane, &t->version);
	if (err != 0)
		return err;
	if (me->keep_age)
		count_try(me, lane);
	t->ts = me->keep_age ? old_ts : t->version;
	lane->late = false;
	vb_lane_log_by(me, lane);
	if (!me->db->status)
		return 0;
	err = vb_lane_status(me, lane, t->ts | VB_TS_RUNNING);
	if (err == 1) {
		VB_SOMETIMES(200, "txn: a name is recovered before it is used");
		/* Recovered while it was ours: others have seen the end of that name. */
		err = vb_coordinator_stamp(me, lane, &t->version);
		if (err != 0)
			return err;
		t->ts = t->version;
		err = vb_lane_status(me, lane, t->ts | VB_TS_RUNNING);
	}
	return err == 1 ? -VB_EUNKNOWN : err;
}
