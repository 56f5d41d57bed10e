/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planted:lost-wakeup.  The entry's first word is the holder, its second the one client that sleeps
 * until the holder sends it a message; further ones poll.
 *
 * A client that goes to sleep writes itself into the second word and then looks at the lock once
 * more.  The release must do the opposite: free the lock, then look for a sleeper.  Here it looks
 * first, and works on something else for a moment before it frees: a client that goes to sleep in
 * between finds the lock still taken after the releaser has found nobody asleep.
 */
#include "check/planted/planted.h"

#define PAUSE_NS 3000

/* Frees the word if it is ours. */
static int clear(struct vb_lock_client *me, vb_addr word)
{
	uint64_t seen;

	return vb_cas64(me->ep, word, me->ep->self, 0, &seen);
}

/* 0, -EAGAIN. */
static int wakeup_try(struct vb_lock_client *me, struct vb_claim *c)
{
	uint64_t seen;
	int err = vb_cas64(me->ep, c->entry, 0, me->ep->self, &seen);

	if (err)
		return err;
	return seen == 0 ? vb_lock_grant(c, VB_FOREVER, 0) : -EAGAIN;
}

/* We are in the second word.  0: the lock is ours, -EAGAIN: try again. */
static int sleep_on(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	struct vb_msg msg;
	int err = wakeup_try(me, c), gone;

	if (err == -EAGAIN) {
		err = vb_box_wait(&me->mail, &c->box, ~0u, until_ns);
		if (err == 0)
			return vb_box_take(&c->box, 0, &msg) == 0 ? -EAGAIN : -EPROTO;
	}
	gone = clear(me, c->entry + 8);
	return err ? err : gone;
}

static int wakeup_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	struct vb_backoff b = {.base_ns = 1000, .cap_ns = 16000};
	uint64_t seen;
	int err;

	for (;;) {
		err = wakeup_try(me, c);
		if (err != -EAGAIN)
			return err;
		if (until_ns == 0)
			return -ETIMEDOUT;
		err = vb_cas64(me->ep, c->entry + 8, 0, me->ep->self, &seen);
		if (err)
			return err;
		if (seen == 0)
			err = sleep_on(me, c, until_ns);
		else
			err = vb_backoff_wait(me, &b, until_ns);
		if (err != 0 && err != -EAGAIN)
			return err;
		if (err == 0 && c->held)
			return 0;
	}
}

static int wakeup_release(struct vb_lock_client *me, struct vb_claim *c)
{
	struct vb_msg msg = {.subject = c->entry};
	uint64_t sleeper, seen;
	int err = vb_read64(me->ep, c->entry + 8, &sleeper);

	if (err == 0)
		err = vb_ep_sleep(me->ep, PAUSE_NS);
	if (err == 0)
		err = vb_cas64(me->ep, c->entry, me->ep->self, 0, &seen);
	if (err || sleeper == VB_PEER_NONE)
		return err;
	err = vb_cas64(me->ep, c->entry + 8, sleeper, 0, &seen);
	if (err == 0 && seen == sleeper)
		err = vb_send(me->ep, sleeper, &msg);
	return err;
}

const struct vb_lock_ops vb_planted_lost_wakeup = {
	.name = "planted:lost-wakeup",
	.summary = "looks for a sleeper before it frees the lock",
	.source = "planted bug",
	.planted = "stuck",
	.caps = VB_LOCK_EXCLUSIVE | VB_LOCK_MESSAGES,
	.needs = VB_CAP_SEND,
	.entry_bytes = 16,
	.verbs_uncontended = "2 CAS + 1 READ",
	.verbs_contended = "3 CAS + 1 READ + 2 CAS + 1 SEND",
	.acquire = wakeup_acquire,
	.release = wakeup_release,
};
