/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Locks that are wrong about lost answers and about numbers of the past, and that only a network which
 * loses answers early, repeats messages, or holds them back shows.
 *
 * planted:asks-at-once     a CAS lock whose word names the client but not the claim, and that asks
 *                          again at once after a lost answer: the first CAS is left under way, and
 *                          frees the lock under the client's next claim
 * planted:refused-is-denied  the same lock with claims' numbers and patience, which takes a CAS that is
 *                          refused behind a lost one for the answer: its client's name stays there
 * planted:numberless       mcs whose claims all have the same number: a message of an earlier claim is
 *                          taken for one of this
 * planted:dropped-husk     mcs whose place in a queue is forgotten when its client closes
 * planted:mute-mode        shiftlock that forgets to tell its successor at a flip: the recovery heals it
 * planted:past-handover    shiftlock that takes the lock from whoever hands it over, also from one whom a
 *                          recovery has taken it from
 */
#include "check/planted/planted.h"

#include "lock/mcs.h"
#include "lock/shiftlock/shiftlock.h"

#define ASKS 8

/* 0 and *seen, as far as it knows. */
static int ask(struct vb_lock_client *me, struct vb_claim *c, uint64_t from, uint64_t to,
	       uint64_t *seen)
{
	int err = vb_cas64(me->ep, c->entry, from, to, seen);

	for (unsigned n = 1; err == -VB_EUNKNOWN && n < ASKS; n++)
		err = vb_cas64(me->ep, c->entry, from, to, seen);
	return err;
}

static int at_once_try(struct vb_lock_client *me, struct vb_claim *c)
{
	uint64_t seen;
	int err = ask(me, c, 0, me->ep->self, &seen);

	if (err)
		return err;
	return seen == 0 || seen == me->ep->self ? vb_lock_grant(c, VB_FOREVER_NS, 0) : -EAGAIN;
}

static int at_once_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	for (;;) {
		int err = at_once_try(me, c);

		if (err == -EAGAIN)
			err = vb_poll_pause(me, until_ns);
		else
			return err;
		if (err)
			return err;
	}
}

static int at_once_release(struct vb_lock_client *me, struct vb_claim *c)
{
	uint64_t seen;

	return ask(me, c, me->ep->self, 0, &seen);
}

const struct vb_lock_ops vb_planted_asks_at_once = {
	.name = "planted:asks-at-once",
	.summary = "asks again at once after a lost answer, under a name that recurs",
	.source = "planted bug",
	.planted = "adrift",
	.caps = VB_LOCK_EXCLUSIVE,
	.entry_bytes = 8,
	.verbs_uncontended = "1 CAS + 1 CAS",
	.verbs_contended = "1 CAS per attempt + 1 CAS",
	.acquire = at_once_acquire,
	.try_acquire = at_once_try,
	.release = at_once_release,
};

/* Without a doubt once one CAS has been refused. */
static int change(struct vb_lock_client *me, struct vb_claim *c, uint64_t from, uint64_t to,
		  uint64_t *seen)
{
	int err = vb_cas64(me->ep, c->entry, from, to, seen);

	for (unsigned n = 1; err == -VB_EUNKNOWN && n < ASKS; n++) {
		vb_lock_let_land(me);
		err = vb_cas64(me->ep, c->entry, from, to, seen);
	}
	return err;
}

static int denied_ask(struct vb_lock_client *me, struct vb_claim *c)
{
	const uint64_t self = c->priv[0];
	uint64_t seen;
	int err = change(me, c, 0, self, &seen);

	if (err)
		return err;
	return seen == 0 || seen == self ? vb_lock_grant(c, VB_FOREVER_NS, 0) : -EAGAIN;
}

static int denied_try(struct vb_lock_client *me, struct vb_claim *c)
{
	c->priv[0] = vb_owner_word(me, 0);
	return denied_ask(me, c);
}

static int denied_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	int err;

	c->priv[0] = vb_owner_word(me, 0);
	while ((err = denied_ask(me, c)) == -EAGAIN) {
		err = vb_poll_pause(me, until_ns);
		if (err)
			break;
	}
	return err;
}

const struct vb_lock_ops vb_planted_refused_is_denied = {
	.name = "planted:refused-is-denied",
	.summary = "takes a CAS that is refused behind a lost one for the answer",
	.source = "planted bug",
	.planted = "stuck",
	.caps = VB_LOCK_EXCLUSIVE,
	.entry_bytes = 8,
	.verbs_uncontended = "1 CAS + 1 CAS",
	.verbs_contended = "1 CAS per attempt + 1 CAS",
	.acquire = denied_acquire,
	.try_acquire = denied_try,
	.release = vb_owner_give_back,
};

static int open_numberless(struct vb_lock_space *s)
{
	((struct mcs_options *)s->options)->numberless = true;
	return 0;
}

const struct vb_lock_ops vb_planted_numberless = {
	.name = "planted:numberless",
	.summary = "mcs whose claims all have one number",
	.source = "planted bug",
	.planted = "mode-conflict",
	.open = open_numberless,
	MCS_LOCK,
};

/* Its turn has come, and nobody is there who would give the lock back. */
static int dropped_resume(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	int err = mcs_resume(me, c, until_ns);

	return err == 0 && me->ghost ? -ECANCELED : err;
}

const struct vb_lock_ops vb_planted_dropped_husk = {
	.name = "planted:dropped-husk",
	.summary = "mcs whose place in a queue is forgotten when its client closes",
	.source = "planted bug",
	.planted = "stuck",
	.caps = VB_LOCK_EXCLUSIVE | VB_LOCK_FIFO | VB_LOCK_MESSAGES,
	.needs = VB_CAP_SEND,
	.wishes = VB_CAP_MASKED64,
	.portable = "the swap is a READ and CAS loop",
	.entry_bytes = 8,
	.options = mcs_option_table,
	.options_size = sizeof(struct mcs_options),
	.verbs_uncontended = "1 swap + 1 CAS",
	.verbs_contended = "1 swap + 2 SEND (+ 1 CAS)",
	.bypass_bound = mcs_bypass_bound,
	.acquire = mcs_acquire,
	.resume = dropped_resume,
	.try_acquire = mcs_try,
	.release = mcs_release,
};

static int open_mute(struct vb_lock_space *s)
{
	((struct sl_options *)s->options)->mute_mode = true;
	return 0;
}

const struct vb_lock_ops vb_planted_mute_mode = {
	.name = "planted:mute-mode",
	.summary = "shiftlock that does not tell its successor at a flip",
	.source = "planted bug",
	.planted = "needless-recovery",
	.open = open_mute,
	SL_LOCK,
};

static int open_credulous(struct vb_lock_space *s)
{
	((struct sl_options *)s->options)->any_turn = true;
	return 0;
}

const struct vb_lock_ops vb_planted_past_handover = {
	.name = "planted:past-handover",
	.summary = "shiftlock that believes a handover from before a recovery",
	.source = "planted bug",
	.planted = "token-order",
	.open = open_credulous,
	SL_LOCK,
};
