/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The claims of a client: one for each lock that it holds, awaits or has given up in a queue.
 *
 * What is on the way of every acquire and release is inline here, the rest in claim.c.  The life of
 * a claim:
 *
 *	FREE -> BUSY -> HELD -> FREE            acquire, release
 *	        BUSY -> FREE                    not granted, nothing left behind
 *	        BUSY -> PROXY -> FREE           gave up in a queue: handed on when its turn came
 *	        BUSY -> PROXY -> BUSY           the client came back and took the place over
 */
#ifndef VB_LOCK_CLAIM_H
#define VB_LOCK_CLAIM_H

#include "lock/lock.h"

enum vb_claim_state { CLAIM_FREE, CLAIM_BUSY, CLAIM_HELD, CLAIM_PROXY };

/* ---- which claims there are ---- */

/* The client's claim of a lock, in whatever state, or NULL. */
static inline struct vb_claim *vb_claim_find(struct vb_lock_client *me, uint64_t lock)
{
	for (unsigned w = 0; w < vb_claim_words(me->space); w++) {
		for (uint64_t left = me->used[w]; left; left &= left - 1) {
			unsigned i = 64 * w + (unsigned)__builtin_ctzll(left);

			if (me->locks[i] == lock)
				return &me->claims[i];
		}
	}
	return NULL;
}

/* The next claim that nobody has had yet. */
void vb_claim_make(struct vb_lock_client *me);

/* The first free claim (most often the same, and warm), or NULL. */
static inline struct vb_claim *vb_claim_take_slot(struct vb_lock_client *me, uint64_t lock)
{
	unsigned w = 0, i;

	if (vb_unlikely(me->n_used == me->space->claims))
		return NULL;
	while (~me->used[w] == 0)
		w++;
	i = 64 * w + (unsigned)__builtin_ctzll(~me->used[w]);
	me->used[w] |= 1ull << i % 64;
	me->locks[i] = lock;
	me->n_used++;
	/* The first free one is never behind the next. */
	if (vb_unlikely(i == me->n_made))
		vb_claim_make(me);
	return &me->claims[i];
}

/* Says that all claims are taken. */
void vb_claim_none_left(const struct vb_lock_client *me);

/* FREE -> BUSY.  NULL, logged: none is free. */
static inline struct vb_claim *vb_claim_new(struct vb_lock_client *me, uint64_t lock,
					    enum vb_mode mode, uint32_t leases)
{
	struct vb_claim *c = vb_claim_take_slot(me, lock);

	if (vb_unlikely(c == NULL)) {
		vb_claim_none_left(me);
		return NULL;
	}
	c->lock = lock;
	c->entry = vb_lock_entry(me->space, lock);
	c->mode = vb_mode_served(me->space->ops->caps, mode);
	c->leases = leases;
	c->state = CLAIM_BUSY;
	c->token = 0;
	if (me->space->ops->caps & VB_LOCK_MESSAGES)
		vb_box_open(&me->mail, &c->box, c->entry);
	return c;
}

static inline void vb_claim_free(struct vb_lock_client *me, struct vb_claim *c)
{
	if (me->space->ops->caps & VB_LOCK_MESSAGES)
		vb_box_close(&c->box);
	c->state = CLAIM_FREE;
	c->queued = c->held = c->said = false;
	me->used[c->slot / 64] &= ~(1ull << c->slot % 64);
	me->n_used--;
}

/* ---- what the protocol does with one ---- */

/*
 * What stays unknown is over when the call returns: a verb that landed later would do so under the
 * client's next claim of the lock.  Locks that a server keeps have no words.
 */
static inline void vb_claim_let_land(struct vb_lock_client *me, int err)
{
	if (vb_unlikely(err == -VB_EUNKNOWN) && me->space->ops->entry_bytes != 0)
		vb_lock_let_land(me);
}

static inline int vb_claim_released(struct vb_lock_client *me, struct vb_claim *c, int err)
{
	/* Who hears that a server, or a link to it, is gone does not know when the lock will be free. */
	err = vb_lock_unknown_if_refused(err);
	vb_claim_let_land(me, err);
	/* Whatever the release returned, this place in the queue is used up. */
	c->queued = c->held = false;
	return err;
}

/*
 * The protocol's release; the claim keeps its slot.  One that waits for messages must get through
 * although its task is cancelled; the others await nothing but verbs and their bound
 * (vb_lock_let_land), which cancellation does not touch.
 */
static inline int vb_claim_release(struct vb_lock_client *me, struct vb_claim *c)
{
	const struct vb_lock_ops *ops = me->space->ops;
	int err;

	if (ops->caps & (VB_LOCK_MESSAGES | VB_LOCK_SERVER)) {
		bool shielded = vb_task_shield(true);

		err = ops->release(me, c);
		vb_task_shield(shielded);
	} else {
		err = ops->release(me, c);
	}
	return vb_claim_released(me, c, err);
}

/* The same of a lock that vb_lock_is_at_once; -EINPROGRESS: it would have to wait, and is for vb_claim_release. */
static inline int vb_claim_release_now(struct vb_lock_client *me, struct vb_claim *c)
{
	int err = me->space->ops->release_now(me, c);

	return err == -EINPROGRESS ? err : vb_claim_released(me, c, err);
}

/* The first attempt, or the next one of a claim that stood in the queue as a proxy. */
static inline int vb_claim_attempt(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	const struct vb_lock_ops *ops = me->space->ops;

	if (vb_unlikely(c->held))
		return 0;
	return vb_unlikely(c->queued) ? ops->resume(me, c, until_ns)
				      : ops->acquire(me, c, until_ns);
}

/*
 * Goes on from an attempt that ended with err, until granted, given up or failed: a place that was
 * lost, and a grant that was over before it arrived, are tried again.
 */
int vb_claim_settle(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns, int err);
/* Granted by the protocol: what is left to do before the caller may have it.  -ESTALE: the turn
 * was over before we knew of it. */
int vb_claim_confirm(struct vb_lock_client *me, struct vb_claim *c);
/* Raises the lock's own token word and takes the value; the claim is held meanwhile. */
int vb_claim_take_token(struct vb_lock_client *me, struct vb_claim *c);

/* ---- what the caller has of it ---- */

/* The very hold that the grant was given for, and not a later one. */
static inline bool vb_claim_is_hold(const struct vb_lock_client *me, const struct vb_claim *c,
				    const struct vb_grant *grant)
{
	return c >= me->claims && c < me->claims + me->n_made && c->state == CLAIM_HELD &&
	       c->hold == grant->hold;
}

static inline bool vb_claim_is_held(const struct vb_lock_client *me, const struct vb_grant *grant)
{
	return vb_claim_is_hold(me, grant->claim, grant);
}

/* -EINVAL, said: `what` was called with it. */
int vb_claim_not_held(const char *what, const struct vb_grant *grant);

static inline uint64_t vb_claim_token(const struct vb_lock_space *s, const struct vb_claim *c)
{
	if (vb_likely(s->token_from == NULL) || c->token == 0)
		return c->token;
	return s->token_from[c->lock % s->servers] + c->token;
}

static inline void vb_claim_describe(const struct vb_lock_client *me, struct vb_claim *c,
				     struct vb_grant *out)
{
	*out = (struct vb_grant){
		.lock = c->lock,
		.mode = c->mode,
		.token = vb_claim_token(me->space, c),
		.valid_until_ns = c->valid_until_ns,
		.claim = c,
		.hold = c->hold,
	};
}

/* BUSY -> HELD. */
static inline void vb_claim_give(struct vb_lock_client *me, struct vb_claim *c,
				 struct vb_grant *out)
{
	c->state = CLAIM_HELD;
	c->hold = ++me->holds;
	vb_claim_describe(me, c, out);
}

#endif
