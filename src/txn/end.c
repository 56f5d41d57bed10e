/* SPDX-License-Identifier: Apache-2.0 */
/* How a transaction ends: what it holds goes back, or its commit. */
#define VB_LOG_ROOM "txn"

#include "base/log.h"
#include "txn/db.h"

static unsigned pick_held(struct vb_txn *t)
{
	unsigned n = 0;

	for (unsigned i = 0; i < t->n; i++)
		if (t->item[i].flags &
		    (VB_ITEM_HELD_X | VB_ITEM_HELD_S | VB_ITEM_MAYBE | VB_ITEM_MAYBE_S))
			t->some[n++] = &t->item[i];
	return n;
}

/* Others may know that it ends from when on?  0: they do not, or have ended it themselves. */
static uint64_t tell_end(struct vb_txn *t, struct vb_lane *lane)
{
	uint64_t since = vb_ep_now_early(t->me->ep);

	if (!t->me->db->status || lane->status != (t->ts | VB_TS_RUNNING))
		return 0;
	return vb_lane_status(t->me, lane, t->ts | VB_TS_ABORTED) == 0 ? since : 0;
}

/* What it has in place, and what it holds, goes back. */
void vb_txn_clean(struct vb_txn *t)
{
	struct vb_coordinator *me = t->me;
	struct vb_lane *lane = vb_txn_lane(me);
	uint64_t since;
	unsigned n;

	if (t->phase != VB_TXN_OPEN)
		return;
	t->phase = VB_TXN_OVER;
	since = tell_end(t, lane);
	if (vb_unlikely(t->installed != VB_TXN_NOT_INSTALLED))
		vb_txn_undo(t, lane, since);
	n = pick_held(t);
	/* Others may set our locks back whenever they like: the name must not be used again. */
	if (me->db->status && (lane->status & VB_TS_STATE) == VB_TS_RECOVERED)
		t->tainted = true;
	/* A commit point that was given up and refused the second time may land yet: it would commit
	 * the next try. */
	t->tainted |= lane->late;
	if (n > 0)
		vb_txn_release(t, lane, n);
	me->keep_age = me->db->cc->caps & VB_CC_AGE && t->cause != VB_TXN_USER && !t->tainted;
	me->aborts[t->cause]++;
	if (me->db->watch != NULL)
		me->db->watch->ended(me->db->watch->ctx, t, false);
}

/* What a call returns when the transaction had to end: the fabric's failure is told as it is. */
static int told(const struct vb_txn *t)
{
	return t->error != 0 ? t->error : -EAGAIN;
}

int vb_txn_fail(struct vb_txn *t)
{
	vb_txn_clean(t);
	return told(t);
}

int vb_txn_end_by(struct vb_txn *t, enum vb_txn_cause cause, int error)
{
	vb_txn_doom(t, cause, error);
	return vb_txn_fail(t);
}

void vb_txn_abort(struct vb_coordinator *me)
{
	if (vb_any_null(me))
		return;
	VB_EP_CALL(call, me->ep);
	if (call.err || me->txn.phase != VB_TXN_OPEN)
		return;
	vb_txn_doom(&me->txn, VB_TXN_USER, 0);
	vb_txn_clean(&me->txn);
}

static void set_versions(struct vb_txn *t)
{
	for (unsigned i = 0; i < t->n; i++) {
		struct vb_item *it = &t->item[i];
		uint64_t absent;

		if (!(it->flags & VB_ITEM_WRITE))
			continue;
		absent = vb_tuple_word(it->image, it->table->layout.version_at) & VB_VERSION_ABSENT;
		it->next = (t->commit_ts != 0 ? t->commit_ts << 2 : t->version) | absent;
	}
}

static void note_committed(struct vb_coordinator *me)
{
	struct vb_txn *t = &me->txn;

	t->phase = VB_TXN_OVER;
	t->cause = VB_TXN_COMMITTED;
	/* What was not heard behind the commit point is nobody's. */
	t->error = 0;
	me->commits++;
	if (me->db->watch != NULL)
		me->db->watch->ended(me->db->watch->ctx, t, true);
}

/* 0: it is committed. */
static int decide(struct vb_txn *t)
{
	const struct vb_cc_ops *cc = t->me->db->cc;
	int err = vb_cc_installs(cc) ? vb_txn_install(t) : 0;

	if (err)
		return err;
	return cc->decide != NULL ? cc->decide(t) : vb_txn_point(t);
}

static int commit(struct vb_coordinator *me)
{
	struct vb_txn *t = &me->txn;
	const struct vb_txn_watch *watch = me->db->watch;
	int err;

	if (t->phase == VB_TXN_OVER && t->cause != VB_TXN_COMMITTED && t->cause != VB_TXN_USER)
		return told(t);
	if (t->phase != VB_TXN_OPEN)
		return vb_fail(-EINVAL, "no transaction is under way: vb_txn_begin comes first");
	err = me->db->cc->prepare(t);
	if (err == 0)
		err = vb_txn_inspect(t);
	if (err == 0 && (me->db->recovery || t->hurried))
		err = vb_txn_in_time(t);
	if (err == 0 && me->db->snapshot_lag_ns != 0)
		err = vb_snapshot_in_time(t);
	if (err)
		return vb_txn_fail(t);
	set_versions(t);
	if (watch != NULL)
		watch->prepared(watch->ctx, t);
	err = decide(t);
	if (err == -VB_EUNKNOWN) {
		t->phase = VB_TXN_OVER;
		t->cause = VB_TXN_FABRIC;
		t->error = err;
		t->tainted = true;
		vb_txn_lane(me)->n_items = t->n;
		if (watch != NULL)
			watch->unknown(watch->ctx, t);
		return err;
	}
	if (err)
		return vb_txn_fail(t);
	if (watch != NULL && watch->passed != NULL)
		watch->passed(watch->ctx, t);
	vb_txn_write_back(t);
	note_committed(me);
	return 0;
}

int vb_txn_commit(struct vb_coordinator *me)
{
	if (vb_any_null(me))
		return -EINVAL;
	VB_EP_CALL(call, me->ep);
	if (call.err)
		return call.err;
	return commit(me);
}

enum vb_txn_cause vb_txn_cause(const struct vb_coordinator *me)
{
	if (me == NULL || vb_ep_check_thread(me->ep) != 0)
		return VB_TXN_MISUSE;
	return (enum vb_txn_cause)me->txn.cause;
}

int vb_txn_error(const struct vb_coordinator *me)
{
	int err = me != NULL ? vb_ep_check_thread(me->ep) : -EINVAL;

	return err != 0 ? err : me->txn.error;
}
