/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots: reads at a time so far back that nobody can write behind it any more, so that nobody need be
 * told of them.
 *
 *	writer   named at N, its clock's latest guess of the common time ...... all locks by N + lag, or it ends
 *	reader   begins at B; reads at S = its earliest guess of B, less lag
 *
 * A transaction W that is older than S was named before B - lag: no name is from before it was given, and S
 * from no later than B - lag, whatever the two clocks say.  If it commits, it looked at the time behind its
 * last lock, and it was within lag of its naming (vb_snapshot_in_time): so it had all its locks before B.
 * Whatever becomes of it behind that look, it keeps them until its versions are in place, or others have
 * put them there, or have set them back.  So with each record that the reader reads from B on,
 *
 *	nobody holds it               everything older than S that it ever gets is there
 *	somebody younger holds it     the same, for only one can hold it
 *	somebody older holds it, or   it may be about to write what the snapshot needs: the reader ends, and
 *	rolls forward who may be      the next one reads at a later time
 *
 * and of the first two nothing changes later.  Where a W stands still between its look and its commit point,
 * it still holds what it locked, or its commit point fails.  Who comes to its locks too late ends, also where
 * no snapshot is read: it cannot know.
 *
 * A snapshot stays one for ever, so those of a coordinator never go back.  A transaction that reads so has
 * no name and no status word: it holds nothing, nobody meets it, and nothing of it is left when it dies.
 *
 * Snapshot isolation (Berenson and others 1995; of older snapshots: Elnikety and others 2005) is the same
 * reads, and writes by a name that is given before the first of them.  To lock a record its newest version
 * must be in the snapshot: else another has written it since, and the first committer wins.  While it is
 * locked there is no newer one.  So of two that write one record, one is in the snapshot of the other.  The
 * versions that it writes are of its name, which is younger than its snapshot, and it owes the snapshots of
 * others what every writer does.  Others lose nothing by it: who has left rts is in its way.
 */
#define VB_LOG_ROOM "txn"
#include "base/sometimes.h"
#include "txn/db.h"

void vb_snapshot_take(struct vb_txn *t)
{
	struct vb_coordinator *me = t->me;
	uint64_t error_ns, now = vb_ep_common_now(me->ep, &error_ns);
	uint64_t back = me->db->snapshot_back_ns + error_ns;
	uint64_t clock = now > back ? (now - back) >> VB_TS_CLOCK_SHIFT : 0;

	/* Everything that was loaded is older. */
	if (clock < VB_TS_FIRST_CLOCK)
		clock = VB_TS_FIRST_CLOCK;
	t->snapshot = vb_ts_make(clock, 0);
	if (t->snapshot < me->snapshot)
		t->snapshot = me->snapshot;
	me->snapshot = t->snapshot;
	t->ts = t->version = 0;
}

int vb_snapshot_name(struct vb_txn *t)
{
	int err;

	if (vb_likely(t->ts != 0))
		return 0;
	err = vb_lane_name(t->me, vb_txn_lane(t->me), 0);
	if (err)
		return vb_txn_doom(t, VB_TXN_FABRIC, err);
	/* The same only in the first unit of all time, when nothing is there but what was loaded. */
	vb_assert(t->ts >= t->snapshot);
	return 0;
}

static bool writes(const struct vb_txn *t)
{
	for (unsigned i = 0; i < t->n; i++)
		if (t->item[i].flags & VB_ITEM_WRITE)
			return true;
	return false;
}

int vb_snapshot_in_time(struct vb_txn *t)
{
	bool late = t->ts != 0 && vb_ep_now(t->me->ep) - t->named_ns > t->me->db->snapshot_lag_ns &&
		    writes(t);

	VB_SOMETIMES_IF(late, 1000, "txn: who writes is too late for the snapshots of others");
	return late ? vb_txn_doom(t, VB_TXN_TIMEOUT, 0) : 0;
}
