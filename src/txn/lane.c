/* SPDX-License-Identifier: Apache-2.0 */
/* What a coordinator's places are named, and what their status words say. */
#define VB_LOG_ROOM "txn"
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

uint64_t vb_coordinator_stamp(struct vb_coordinator *me, struct vb_lane *lane)
{
	uint64_t now = units_now(me);

	while (vb_unlikely(me->clock > now + CLOCK_AHEAD)) {
		vb_txn_wait_out(me, (me->clock - now - CLOCK_AHEAD) << VB_TS_CLOCK_SHIFT);
		now = units_now(me);
	}
	if (now > me->clock)
		me->clock = now;
	if (vb_unlikely(me->clock >= me->clock_end)) {
		me->clock_end = me->clock + CLOCK_RESERVED;
		__atomic_store_n(me->clock_word, me->clock_end, __ATOMIC_RELEASE);
	}
	return vb_ts_make(me->clock++, lane->place);
}

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

		vb_acc_cas(&lane->acc, VB_AMOD_TM, at, lane->status, to, &old);
		err = vb_acc_go(&lane->acc);
		if (vb_likely(err == 0)) {
			bool ours = old == lane->status || old == to;

			lane->status = ours ? to : old;
			return ours ? 0 : 1;
		}
		VB_SOMETIMES(100, "txn: the answer of the own status word is lost");
		lane->late = true;
		if (until == 0)
			until = vb_ep_now(me->ep) + 2 * db->suspect_ns;
		if (err == -VB_EPEERGONE || err == -VB_EACCESS || vb_ep_now(me->ep) > until)
			return err;
		vb_txn_wait_out(me, db->fabric->caps.verb_bound_ns / STATUS_PAUSES);
	}
}

/* Who waits for what we hold sees by this that we move: the name is the same (txn/suspect.c). */
static void count_try(struct vb_coordinator *me, const struct vb_lane *lane)
{
	struct vb_place_head *head =
		vb_local(me->db->fabric, vb_db_place(me->db, lane->place), sizeof(*head));

	__atomic_store_n(&head->tries, head->tries + 1, __ATOMIC_RELEASE);
}

int vb_lane_name(struct vb_coordinator *me, struct vb_lane *lane, uint64_t old_ts)
{
	struct vb_txn *t = &me->txn;
	int err = 0;

	if (me->keep_age)
		count_try(me, lane);
	if (me->db->snapshot_lag_ns != 0 || vb_cc_installs(me->db->cc))
		t->named_ns = vb_ep_now_early(me->ep);
	/* The same name needs the same place. */
	t->version = vb_coordinator_stamp(me, lane);
	t->ts = me->keep_age ? old_ts : t->version;
	lane->late = false;
	if (!me->db->status)
		return 0;
	err = vb_lane_status(me, lane, t->ts | VB_TS_RUNNING);
	if (err == 1) {
		VB_SOMETIMES(200, "txn: a name is recovered before it is used");
		/* Recovered while it was ours: others have seen the end of that name. */
		t->ts = t->version = vb_coordinator_stamp(me, lane);
		err = vb_lane_status(me, lane, t->ts | VB_TS_RUNNING);
	}
	return err == 1 ? -VB_EUNKNOWN : err;
}
