/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Locks that answer badly.
 *
 * planted:blind-to-time    cas whose acquire asks until it has the lock, whatever its deadline
 * planted:sullen-release   cas some of whose releases fail with an error of their own
 */
#include "check/planted/planted.h"

static int plain_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	uint64_t seen;
	int err;

	c->priv[0] = vb_owner_word(me, 0);
	do {
		err = vb_owner_take(me, c, 0, &seen);
		if (err != -EAGAIN)
			return err;
		err = vb_poll_pause(me, until_ns);
	} while (err == 0);
	return err;
}

static int blind_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	(void)until_ns;
	return plain_acquire(me, c, VB_FOREVER);
}

static int plain_try(struct vb_lock_client *me, struct vb_claim *c)
{
	uint64_t seen;

	c->priv[0] = vb_owner_word(me, 0);
	return vb_owner_take(me, c, 0, &seen);
}

const struct vb_lock_ops vb_planted_blind_to_time = {
	.name = "planted:blind-to-time",
	.summary = "cas whose deadlines end nothing",
	.source = "planted bug",
	.planted = "overdue",
	.caps = VB_LOCK_EXCLUSIVE,
	.entry_bytes = 8,
	.verbs_uncontended = "1 CAS + 1 CAS",
	.verbs_contended = "1 CAS per attempt + 1 CAS",
	.acquire = blind_acquire,
	.try_acquire = plain_try,
	.release = vb_owner_give_back,
};

static int sullen_release(struct vb_lock_client *me, struct vb_claim *c)
{
	int err = vb_owner_give_back(me, c);

	return err == 0 && vb_ep_now(me->ep) % 64 == 0 ? -EPERM : err;
}

const struct vb_lock_ops vb_planted_sullen_release = {
	.name = "planted:sullen-release",
	.summary = "cas some of whose releases fail with an error of their own",
	.source = "planted bug",
	.planted = "wrong-error",
	.caps = VB_LOCK_EXCLUSIVE,
	.entry_bytes = 8,
	.verbs_uncontended = "1 CAS + 1 CAS",
	.verbs_contended = "1 CAS per attempt + 1 CAS",
	.acquire = plain_acquire,
	.try_acquire = plain_try,
	.release = sullen_release,
};
