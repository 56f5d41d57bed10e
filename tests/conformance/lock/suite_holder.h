/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who holds, with every lock and on every fabric: a part of the case `try_without_waiting`.  Whenever it is
 * asked, no other actor is at the lock, so that there is one right answer.
 */
#ifndef TEST_LOCK_SUITE_HOLDER_H
#define TEST_LOCK_SUITE_HOLDER_H

#include "base/log.h"
#include "promised.h"
#include "world.h"

static enum told_name told_of(const struct vb_lock_ops *ops)
{
	const struct promised *p = promised_of(ops->name);

	if (p != NULL)
		return p->told;
	return ops->holder != NULL ? TOLD_NAME : TOLD_NOTHING;
}

/* False: this lock cannot tell, and has said so. */
static bool ask_for_holder(struct world *w, struct vb_lock_client *me, uint64_t lock,
			   struct vb_holder *h)
{
	const bool can = told_of(w->p.ops) != TOLD_NOTHING;
	char said[512] = "";
	int err;

	memset(h, 0xff, sizeof(*h));
	if (can) {
		/* Lost on a machine that is so busy that a deferred verb comes too late. */
		do
			err = vb_lock_holder(me, lock, h);
		while (err == -VB_EUNKNOWN);
	} else {
		vb_log_capture_begin(said, sizeof(said));
		err = vb_lock_holder(me, lock, h);
		vb_log_capture_end();
	}
	if (err != (can ? 0 : -EOPNOTSUPP) || (!can && strstr(said, w->p.ops->name) == NULL))
		board_fail(w->b, __LINE__, "vb_lock_holder: %s", err ? vb_strerror(err) : "0");
	return err == 0;
}

/* What has lapsed in a lock whose readers give nothing back is nobody's either. */
static void holds_nobody(struct world *w, struct vb_lock_client *me, uint64_t lock)
{
	struct vb_holder h;

	if (!ask_for_holder(w, me, lock, &h))
		return;
	EXPECT(w, !h.held && !h.lapsed);
	EXPECT(w, h.readers == 0 && h.node == 0 && h.client == VB_PEER_NONE);
}

static void holds_one(struct world *w, struct vb_lock_client *me, uint64_t lock, vb_peer who)
{
	struct vb_holder h;

	if (!ask_for_holder(w, me, lock, &h))
		return;
	EXPECT(w, h.held && !h.lapsed && h.mode == VB_EXCLUSIVE && h.readers == 0);
	EXPECT(w, h.node == vb_peer_node(who));
	EXPECT(w, h.client == (told_of(w->p.ops) == TOLD_NAME ? who : VB_PEER_NONE));
}

/* Held shared by `me` alone; the lease may be over before a busy machine has told of it. */
static void holds_a_reader(struct world *w, struct vb_lock_client *me, uint64_t lock)
{
	const bool leased = (w->p.ops->caps & VB_LOCK_READ_LEASE) != 0;
	struct vb_holder h;

	if (!ask_for_holder(w, me, lock, &h))
		return;
	EXPECT(w, leased ? h.held != h.lapsed : h.held && !h.lapsed);
	EXPECT(w, h.mode == VB_SHARED && h.readers == (leased ? 0 : 1));
	EXPECT(w, h.node == 0 && h.client == VB_PEER_NONE);
}

/* One actor by himself: nobody, he, nobody, a reader. */
static void tell_of_oneself(struct world *w, struct vb_lock_client *me, uint64_t lock)
{
	const vb_peer self = vb_lock_client_peer(me);
	struct vb_grant g;
	int err;

	holds_nobody(w, me, lock);
	EXPECT_ERR(w, 0, vb_lock_acquire(me, lock, VB_EXCLUSIVE, PATIENCE_NS, &g));
	holds_one(w, me, lock, self);
	EXPECT_ERR(w, 0, vb_lock_release(me, &g));
	holds_nobody(w, me, lock);
	EXPECT_ERR(w, 0, vb_lock_acquire(me, lock, VB_SHARED, PATIENCE_NS, &g));
	if (g.mode == VB_SHARED)
		holds_a_reader(w, me, lock);
	else
		holds_one(w, me, lock, self);
	err = vb_lock_release(me, &g);
	EXPECT(w, err == 0 || (err == -VB_ELOST && w->p.ops->caps & VB_LOCK_READ_LEASE));
}

#endif
