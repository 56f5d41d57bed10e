/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client's calls, the same for every protocol: acquire, try, convert, renew, release, holder.  What a
 * protocol does is in its own file, the life of a claim in claim.h, what a client leaves in a queue in
 * proxy.c; clients are opened and closed in client_open.c.
 */
#define VB_LOG_ROOM "lock"
#include "lock/lock.h"

#include <inttypes.h>

#include "base/log.h"
#include "base/sometimes.h"
#include "lock/claim.h"
#include "lock/observe.h"
#include "lock/proxy.h"
#include "lock/visit.h"

uint64_t vb_lock_now(const struct vb_lock_client *me)
{
	return me != NULL ? vb_ep_now(me->ep) : 0;
}

enum vb_outcome vb_lock_outcome(int err)
{
	if (err == 0)
		return VB_GRANTED;
	return err == -VB_EUNKNOWN ? VB_UNKNOWN : VB_NOT_GRANTED;
}

/* ---- acquire and try ---- */

/* How long we stand in a queue ourselves between two tries to leave a proxy there. */
#define STAND_NS 5000000ull

static int leave_place(struct vb_lock_client *me, struct vb_claim *c, int err)
{
	bool shielded;

	if (vb_proxy_leave(me, c) == 0)
		return err;
	vb_warn("no memory for who would wait for lock %" PRIu64 " in its client's stead: the call "
		"waits itself, past its deadline, until there is some or the lock's turn comes",
		c->lock);
	shielded = vb_task_shield(true);
	do {
		uint64_t until_ns = vb_ep_now(me->ep) + STAND_NS;
		int other;

		err = vb_claim_settle(me, c, until_ns, vb_claim_attempt(me, c, until_ns));
		if (err != -ETIMEDOUT || !c->queued)
			break;
		vb_log_mute();
		other = vb_proxy_leave(me, c);
		vb_log_unmute();
		if (other == 0)
			break;
	} while (true);
	vb_task_shield(shielded);
	return err;
}

/* After acquire or try: hands the grant out, or cleans up and leaves a proxy if one is needed. */
static int conclude(struct vb_lock_client *me, struct vb_claim *c, int err, struct vb_grant *out)
{
	uint64_t lock = c->lock;
	bool proxy;

	if ((err == -ETIMEDOUT || err == -ECANCELED) && c->queued)
		err = leave_place(me, c, err);
	/* What follows is not the protocol's time. */
	vb_phase(me, VB_PHASE_IA);
	if (err == 0) {
		vb_claim_give(me, c, out);
		vb_observe_end(me, VB_ACT_ACQUIRE, lock, c, 0);
		return 0;
	}
	vb_claim_let_land(me, err);
	proxy = c->state == CLAIM_PROXY;
	if (!proxy)
		vb_claim_free(me, c);
	vb_observe_end(me, VB_ACT_ACQUIRE, lock, NULL, err);
	/* Last: what has been left behind may be the keeper's from now on. */
	if (proxy)
		vb_keeper_settle(me->ep->sched);
	return err;
}

static int check_mode(const struct vb_lock_client *me, enum vb_mode mode)
{
	if ((unsigned)mode >= VB_MODES)
		return vb_fail(-EINVAL, "there is no lock mode %d", (int)mode);
	if (mode >= VB_INTENT_SHARED && !(me->space->ops->caps & VB_LOCK_INTENT))
		return vb_fail(-EOPNOTSUPP,
			       "'%s' has no %s locks; `verbena list` says who has intention modes",
			       me->space->ops->name, vb_lock_mode_name(mode));
	return 0;
}

static int check_call(struct vb_lock_client *me, uint64_t lock, enum vb_mode mode)
{
	if (vb_unlikely(lock >= me->space->locks))
		return vb_fail(-EINVAL, "there is no lock %" PRIu64 ": the space has %" PRIu64,
			       lock, me->space->locks);
	if (vb_likely(mode == VB_SHARED || mode == VB_EXCLUSIVE))
		return 0;
	return check_mode(me, mode);
}

/* When a call's timeout is over. */
static inline uint64_t deadline(struct vb_lock_client *me, uint64_t timeout_ns)
{
	uint64_t now;

	if (timeout_ns == VB_FOREVER_NS)
		return VB_FOREVER;
	now = vb_ep_now_early(me->ep);
	return now + timeout_ns < now ? VB_FOREVER : now + timeout_ns;
}

/* A claim to work with: a new one, or the proxy's.  0; -EDEADLK, -EBUSY, -ETIMEDOUT, -ECANCELED. */
static int begin(struct vb_lock_client *me, uint64_t lock, enum vb_mode mode, uint32_t leases,
		 uint64_t until_ns, struct vb_claim **out)
{
	struct vb_claim *c = me->n_used == 0 ? NULL : vb_claim_find(me, lock);

	if (vb_unlikely(c && c->state != CLAIM_PROXY))
		return vb_fail(-EDEADLK,
			       "lock %" PRIu64 " is already held or awaited by this client", lock);
	if (vb_unlikely(c != NULL)) {
		enum vb_mode served = vb_mode_served(me->space->ops->caps, mode);
		int err = vb_proxy_adopt(me, c, served, leases, until_ns, out);

		if (err || *out)
			return err;
	}
	*out = vb_claim_new(me, lock, mode, leases);
	return *out ? 0 : -EBUSY;
}

/* Granted, and there is nothing else to do, most of the time. */
static inline bool is_all(struct vb_lock_client *me, const struct vb_claim *c, int err)
{
	return err == 0 && !vb_is_observed(me) && !me->space->token_offset &&
	       vb_ep_now_coarse(me->ep) < c->valid_until_ns;
}

static inline int acquire(struct vb_lock_client *me, uint64_t lock, enum vb_mode mode,
			  uint32_t leases, uint64_t timeout_ns, struct vb_grant *out)
{
	uint64_t until_ns;
	struct vb_claim *c;
	int err = check_call(me, lock, mode);

	if (vb_unlikely(err != 0))
		return err;
	until_ns = deadline(me, timeout_ns);
	me->polls = 0;
	vb_observe_begin(me, VB_ACT_ACQUIRE, lock, mode, NULL);
	if (vb_likely(me->n_used == 0))
		c = vb_claim_new(me, lock, mode, leases);
	else
		err = begin(me, lock, mode, leases, until_ns, &c);
	if (vb_unlikely(err != 0)) {
		vb_observe_end(me, VB_ACT_ACQUIRE, lock, NULL, err);
		return err;
	}
	err = vb_claim_attempt(me, c, until_ns);
	if (vb_likely(is_all(me, c, err))) {
		vb_claim_give(me, c, out);
		return 0;
	}
	return conclude(me, c, vb_claim_settle(me, c, until_ns, err), out);
}

static int run_acquire(void *arg)
{
	const struct vb_lock_visit *v = arg;

	return vb_lock_acquire_for(v->me, v->lock, v->mode, v->hold_ns,
				   vb_lock_visit_left(v->me, v->until_ns), v->grant);
}

/* Apart, so that who leaves nothing behind pays one branch; and for calls that are not the
 * owner's. */
static VB_NOINLINE int acquire_kept(struct vb_lock_client *me, uint64_t lock, enum vb_mode mode,
				    uint32_t leases, uint64_t timeout_ns, struct vb_grant *out)
{
	if (vb_ep_is_away(me->ep))
		return vb_lock_visit(
			run_acquire,
			&(struct vb_lock_visit){.me = me,
						.grant = out,
						.lock = lock,
						.hold_ns = leases * me->space->lease_ns,
						.until_ns = vb_lock_visit_until(me, timeout_ns),
						.mode = mode});
	VB_EP_CALL(call, me->ep);
	if (call.err)
		return call.err;
	return acquire(me, lock, mode, leases, timeout_ns, out);
}

int vb_lock_acquire(struct vb_lock_client *me, uint64_t lock, enum vb_mode mode,
		    uint64_t timeout_ns, struct vb_grant *out)
{
	if (vb_any_null(me, out))
		return -EINVAL;
	if (vb_unlikely(vb_sched_quick != me->ep->sched))
		return acquire_kept(me, lock, mode, 1, timeout_ns, out);
	return acquire(me, lock, mode, 1, timeout_ns, out);
}

uint64_t vb_lock_hold_max_ns(const struct vb_lock_client *me, enum vb_mode mode)
{
	const struct vb_lock_space *s;

	if (me == NULL)
		return 0;
	s = me->space;
	if (!(s->ops->caps & VB_LOCK_SURVIVES) &&
	    !(mode == VB_SHARED && (s->ops->caps & VB_LOCK_READ_LEASE)))
		return VB_FOREVER_NS;
	return s->lease_ns * (s->ops->leases_max ? s->ops->leases_max(s) : 1);
}

/* -EOPNOTSUPP: one lease is all that there is; -EINVAL: there are more, but not so many. */
static int refuse_hold(const struct vb_lock_client *me, enum vb_mode mode, uint64_t hold_ns)
{
	const struct vb_lock_space *s = me->space;

	if (!s->ops->leases_max)
		return vb_fail(-EOPNOTSUPP,
			       "'%s' grants for one lease, %" PRIu64 " ns here, not for %" PRIu64
			       " ns; open the lock space with a longer lease, or take 'dslr'",
			       s->ops->name, s->lease_ns, hold_ns);
	return vb_fail(-EINVAL,
		       "a lock for %" PRIu64 " ns: this space grants %" PRIu64
		       " ns at most; open it with a larger 'slots' option, or a longer lease",
		       hold_ns, vb_lock_hold_max_ns(me, mode));
}

int vb_lock_acquire_for(struct vb_lock_client *me, uint64_t lock, enum vb_mode mode,
			uint64_t hold_ns, uint64_t timeout_ns, struct vb_grant *out)
{
	uint64_t lease, most, leases = 1;

	if (vb_any_null(me, out))
		return -EINVAL;
	lease = me->space->lease_ns;
	most = vb_lock_hold_max_ns(me, mode);
	if (hold_ns > most)
		return refuse_hold(me, mode, hold_ns);
	if (hold_ns > lease && most != VB_FOREVER_NS)
		leases = hold_ns / lease + (hold_ns % lease != 0);
	return acquire_kept(me, lock, mode, (uint32_t)leases, timeout_ns, out);
}

static inline int try_acquire(struct vb_lock_client *me, uint64_t lock, enum vb_mode mode,
			      struct vb_grant *out)
{
	const struct vb_lock_ops *ops = me->space->ops;
	struct vb_claim *c;
	int err = check_call(me, lock, mode);

	if (vb_unlikely(err != 0))
		return err;
	/* A proxy of ours in the queue means that somebody else has the lock. */
	c = vb_likely(me->n_used == 0) ? NULL : vb_claim_find(me, lock);
	if (vb_unlikely(c != NULL) && c->state == CLAIM_PROXY)
		return -EAGAIN;
	vb_observe_begin(me, VB_ACT_ACQUIRE, lock, mode, NULL);
	if (vb_likely(c == NULL)) {
		c = vb_claim_new(me, lock, mode, 1);
		err = c != NULL ? 0 : -EBUSY;
	} else
		err = begin(me, lock, mode, 1, 0, &c);
	if (vb_unlikely(err != 0)) {
		vb_observe_end(me, VB_ACT_ACQUIRE, lock, NULL, err);
		return err;
	}
	err = ops->try_acquire ? ops->try_acquire(me, c) : ops->acquire(me, c, 0);
	vb_assert(!c->queued || err == 0);
	if (vb_likely(is_all(me, c, err))) {
		vb_claim_give(me, c, out);
		return 0;
	}
	if (err == 0)
		err = vb_claim_confirm(me, c);
	if (err == -ETIMEDOUT || err == -ESTALE)
		err = -EAGAIN;
	return conclude(me, c, err, out);
}

static int run_try(void *arg)
{
	const struct vb_lock_visit *v = arg;

	return vb_lock_try(v->me, v->lock, v->mode, v->grant);
}

int vb_lock_try_now(struct vb_lock_client *me, uint64_t lock, enum vb_mode mode,
		    struct vb_grant *out)
{
	return try_acquire(me, lock, mode, out);
}

static VB_NOINLINE int try_kept(struct vb_lock_client *me, uint64_t lock, enum vb_mode mode,
				struct vb_grant *out)
{
	if (vb_ep_is_away(me->ep))
		return vb_lock_visit(run_try,
				     &(struct vb_lock_visit){
					     .me = me, .grant = out, .lock = lock, .mode = mode});
	VB_EP_CALL(call, me->ep);
	if (call.err)
		return call.err;
	return try_acquire(me, lock, mode, out);
}

int vb_lock_try(struct vb_lock_client *me, uint64_t lock, enum vb_mode mode, struct vb_grant *out)
{
	if (vb_any_null(me, out))
		return -EINVAL;
	if (vb_unlikely(vb_sched_quick != me->ep->sched))
		return try_kept(me, lock, mode, out);
	return try_acquire(me, lock, mode, out);
}

/* ---- is it still held ---- */

static int run_valid(void *arg)
{
	const struct vb_lock_visit *v = arg;

	return vb_lock_valid(v->me, v->grant);
}

bool vb_lock_valid(const struct vb_lock_client *me, const struct vb_grant *grant)
{
	const struct vb_claim *c;

	if (vb_any_null(me, grant))
		return false;
	if (vb_ep_is_away(me->ep))
		return vb_lock_visit_beside(
			       run_valid,
			       &(struct vb_lock_visit){.me = (struct vb_lock_client *)me,
						       .grant = (struct vb_grant *)grant}) > 0;
	if (vb_ep_check_thread(me->ep) != 0)
		return false;
	VB_SCHED_INSIDE(me->ep->sched);
	c = grant->claim;
	/* What a path stands on is held by another grant. */
	if (c == NULL)
		c = vb_claim_find((struct vb_lock_client *)me, grant->lock);
	return vb_claim_is_hold(me, c, grant) && (unsigned)grant->mode < VB_MODES &&
	       vb_mode_covers(c->mode, grant->mode) &&
	       (c->valid_until_ns == VB_FOREVER || vb_ep_now(me->ep) < c->valid_until_ns);
}

/* ---- convert ---- */

/* The protocol's conversion, and a token where a grant of the new mode has one. */
static int change_mode(struct vb_lock_client *me, struct vb_claim *c, enum vb_mode mode,
		       uint64_t until_ns)
{
	const struct vb_lock_ops *ops = me->space->ops;
	enum vb_mode from = c->mode;
	int err;

	if (ops->convert == NULL)
		return vb_fail(-EOPNOTSUPP,
			       "'%s' cannot convert a lock from %s to %s; release it "
			       "and acquire it again",
			       ops->name, vb_lock_mode_name(from), vb_lock_mode_name(mode));
	err = ops->convert(me, c, mode, until_ns);
	/* Where less was asked for and the answer is lost, that may be all there is. */
	vb_assert(c->mode == (err == 0 ? mode : from) || (err == -VB_EUNKNOWN && c->mode == mode));
	if (err != 0 || mode != VB_EXCLUSIVE || me->space->token_offset == 0)
		return err;
	err = vb_claim_take_token(me, c);
	/* A token that came after the lease's end may be larger than that of the next holder. */
	if (err == 0 && vb_ep_now(me->ep) >= c->valid_until_ns)
		err = -VB_ELOST;
	if (err)
		c->mode = from;
	return err;
}

static int convert(struct vb_lock_client *me, struct vb_grant *grant, enum vb_mode mode,
		   uint64_t timeout_ns)
{
	struct vb_claim *c = grant->claim;
	uint64_t until_ns;
	int err = check_mode(me, mode);

	if (err)
		return err;
	if (!vb_claim_is_held(me, grant))
		return vb_claim_not_held("a conversion", grant);
	mode = vb_mode_served(me->space->ops->caps, mode);
	/* Held so already; the grant may be a copy, or that of a conversion whose answer was lost. */
	if (mode == c->mode) {
		vb_claim_describe(me, c, grant);
		return 0;
	}
	if (!vb_mode_covers(mode, c->mode) && !vb_mode_covers(c->mode, mode))
		return vb_fail(-EINVAL,
			       "lock %" PRIu64 " is held %s: %s permits neither as much nor less; "
			       "convert to a mode that permits both",
			       c->lock, vb_lock_mode_name(c->mode), vb_lock_mode_name(mode));
	until_ns = deadline(me, timeout_ns);
	me->polls = 0;
	vb_observe_begin(me, VB_ACT_CONVERT, c->lock, mode, c);
	err = change_mode(me, c, mode, until_ns);
	vb_observe_end(me, VB_ACT_CONVERT, c->lock, c, err);
	if (err == 0)
		vb_claim_describe(me, c, grant);
	return err;
}

static int run_convert(void *arg)
{
	const struct vb_lock_visit *v = arg;

	return vb_lock_convert(v->me, v->grant, v->mode, vb_lock_visit_left(v->me, v->until_ns));
}

int vb_lock_convert(struct vb_lock_client *me, struct vb_grant *grant, enum vb_mode mode,
		    uint64_t timeout_ns)
{
	if (vb_any_null(me, grant))
		return -EINVAL;
	if (vb_ep_is_away(me->ep))
		return vb_lock_visit(
			run_convert,
			&(struct vb_lock_visit){.me = me,
						.grant = grant,
						.until_ns = vb_lock_visit_until(me, timeout_ns),
						.mode = mode});
	VB_EP_CALL(call, me->ep);
	if (call.err)
		return call.err;
	return convert(me, grant, mode, timeout_ns);
}

/* ---- renew ---- */

int vb_lock_renews(const struct vb_lock_client *me, const struct vb_grant *grant)
{
	const struct vb_lock_ops *ops = me->space->ops;

	if (!vb_claim_is_held(me, grant))
		return vb_claim_not_held("a renewal", grant);
	if (grant->claim->valid_until_ns == VB_FOREVER)
		return 0;
	if (ops->renew == NULL)
		return vb_fail(-EOPNOTSUPP,
			       "'%s' cannot renew a lease; open the lock space with a longer one, "
			       "or take a lock that can (`verbena list`)",
			       ops->name);
	/* What is over stays so, also where nobody has come for the lock yet. */
	return vb_ep_now(me->ep) < grant->claim->valid_until_ns ? 1 : -VB_ELOST;
}

static int renew(struct vb_lock_client *me, struct vb_grant *grant, uint64_t timeout_ns)
{
	const struct vb_lock_ops *ops = me->space->ops;
	struct vb_claim *c = grant->claim;
	uint64_t until_ns, now;
	int err = vb_lock_renews(me, grant);

	if (err <= 0)
		return err;
	until_ns = deadline(me, timeout_ns);
	me->polls = 0;
	vb_observe_begin(me, VB_ACT_CONVERT, c->lock, c->mode, c);
	err = ops->renew(me, c, until_ns < c->valid_until_ns ? until_ns : c->valid_until_ns);
	now = vb_ep_now(me->ep);
	if (err == 0 && now >= c->valid_until_ns) {
		VB_SOMETIMES(5000, "renew: renewed, and over before its client knew");
		err = -VB_ELOST;
	}
	if (err == -VB_ELOST && now < c->valid_until_ns)
		c->valid_until_ns = now;
	vb_observe_end(me, VB_ACT_CONVERT, c->lock, c, err);
	/* And nothing else: of what is kept its client may read lock, mode and token meanwhile. */
	if (err == 0)
		grant->valid_until_ns = c->valid_until_ns;
	return err;
}

static int run_renew(void *arg)
{
	const struct vb_lock_visit *v = arg;

	return vb_lock_renew(v->me, v->grant, vb_lock_visit_left(v->me, v->until_ns));
}

int vb_lock_renew(struct vb_lock_client *me, struct vb_grant *grant, uint64_t timeout_ns)
{
	if (vb_any_null(me, grant))
		return -EINVAL;
	if (vb_ep_is_away(me->ep))
		return vb_lock_visit(
			run_renew,
			&(struct vb_lock_visit){.me = me,
						.grant = grant,
						.until_ns = vb_lock_visit_until(me, timeout_ns)});
	VB_EP_CALL(call, me->ep);
	if (call.err)
		return call.err;
	return renew(me, grant, timeout_ns);
}

/* ---- release ---- */

static inline int released(struct vb_lock_client *me, struct vb_grant *grant, int err)
{
	struct vb_claim *c = grant->claim;
	uint64_t lock = c->lock;

	vb_phase(me, VB_PHASE_IA);
	if (err == -VB_ELOST)
		me->lost++;
	grant->claim = NULL;
	vb_claim_free(me, c);
	vb_observe_end(me, VB_ACT_RELEASE, lock, NULL, err);
	return err;
}

/* Once, also where it is begun at once and goes on later. */
static inline void say_release(struct vb_lock_client *me, enum vb_act act, struct vb_claim *c)
{
	if (vb_likely(!vb_is_observed(me)) || c->said)
		return;
	c->said = true;
	vb_observers_begin(me, act, c->lock, c->mode, c);
}

static inline int release(struct vb_lock_client *me, struct vb_grant *grant)
{
	struct vb_claim *c = grant->claim;

	if (vb_unlikely(!vb_claim_is_held(me, grant)))
		return vb_claim_not_held("a release", grant);
	say_release(me, VB_ACT_RELEASE, c);
	return released(me, grant, vb_claim_release(me, c));
}

int vb_lock_release_now(struct vb_lock_client *me, struct vb_grant *grant)
{
	struct vb_claim *c = grant->claim;
	int err;

	if (vb_unlikely(!vb_claim_is_held(me, grant)))
		return vb_claim_not_held("a release", grant);
	if (!vb_lock_is_at_once(me, c->entry))
		return -EINPROGRESS;
	say_release(me, VB_ACT_RELEASE, c);
	err = vb_claim_release_now(me, c);
	return vb_unlikely(err == -EINPROGRESS) ? err : released(me, grant, err);
}

static int run_release(void *arg)
{
	const struct vb_lock_visit *v = arg;

	return vb_lock_release(v->me, v->grant);
}

static VB_NOINLINE int release_kept(struct vb_lock_client *me, struct vb_grant *grant)
{
	if (vb_ep_is_away(me->ep))
		return vb_lock_visit(run_release,
				     &(struct vb_lock_visit){.me = me, .grant = grant});
	VB_EP_CALL(call, me->ep);
	if (call.err)
		return call.err;
	return release(me, grant);
}

int vb_lock_release(struct vb_lock_client *me, struct vb_grant *grant)
{
	if (vb_any_null(me, grant))
		return -EINVAL;
	if (vb_unlikely(vb_sched_quick != me->ep->sched))
		return release_kept(me, grant);
	return release(me, grant);
}

/* -EINVAL unless all are held, each once.  Those that are looked at are marked meanwhile. */
static int check_grants(struct vb_lock_client *me, struct vb_grant grants[], unsigned n)
{
	unsigned good = 0;

	while (good < n && vb_claim_is_held(me, &grants[good]) &&
	       grants[good].claim->lock == grants[good].lock)
		grants[good++].claim->state = CLAIM_BUSY;
	for (unsigned i = 0; i < good; i++)
		grants[i].claim->state = CLAIM_HELD;
	if (good == n)
		return 0;
	return vb_claim_not_held("a release", &grants[good]);
}

static int worse(int a, int b)
{
	if (a == 0 || b == 0)
		return a != 0 ? a : b;
	return a == -VB_ELOST ? b : a;
}

/* The protocol releases several at once. */
static int release_together(struct vb_lock_client *me, struct vb_grant grants[], unsigned n)
{
	bool shielded;
	int err = 0;

	for (unsigned i = 0; i < n; i++) {
		say_release(me, i < n - 1 ? VB_ACT_RELEASE_PART : VB_ACT_RELEASE, grants[i].claim);
	}
	shielded = vb_task_shield(true);
	me->space->ops->release_all(me, grants, n);
	vb_task_shield(shielded);
	vb_phase(me, VB_PHASE_IA);
	for (unsigned i = 0; i < n; i++) {
		struct vb_claim *c = grants[i].claim;
		int ended = c->ended;

		me->lost += ended == -VB_ELOST;
		grants[i].claim = NULL;
		vb_claim_free(me, c);
		vb_observe_end(me, VB_ACT_RELEASE, c->lock, NULL, ended);
		err = worse(err, ended);
	}
	return err;
}

static int run_release_all(void *arg)
{
	const struct vb_lock_visit *v = arg;

	return vb_lock_release_all(v->me, v->grant, v->n);
}

int vb_lock_release_all(struct vb_lock_client *me, struct vb_grant grants[], unsigned n)
{
	int err;

	if (vb_any_null(me) || (n > 0 && vb_any_null(grants)))
		return -EINVAL;
	if (vb_ep_is_away(me->ep))
		return vb_lock_visit(run_release_all,
				     &(struct vb_lock_visit){.me = me, .grant = grants, .n = n});
	VB_EP_CALL(call, me->ep);
	if (call.err || n == 0)
		return call.err;
	err = check_grants(me, grants, n);
	if (err)
		return err;
	if (me->space->ops->release_all != NULL)
		return release_together(me, grants, n);
	for (unsigned i = n; i-- > 0;)
		err = worse(err, release(me, &grants[i]));
	return err;
}

void vb_lock_abandon(struct vb_lock_client *me, struct vb_grant *grant)
{
	struct vb_claim *c = grant->claim;

	vb_assert(vb_claim_is_held(me, grant));
	vb_observe_end(me, VB_ACT_ABANDON, c->lock, c, 0);
	grant->claim = NULL;
	vb_claim_free(me, c);
}

/* ---- who has it ---- */

static int ask_for_holder(struct vb_lock_client *me, uint64_t lock, struct vb_holder *out)
{
	const struct vb_lock_ops *ops = me->space->ops;
	struct vb_holder said = {.held = false};
	int err = check_call(me, lock, VB_SHARED);

	if (err)
		return err;
	if (ops->holder == NULL)
		return vb_fail(-EOPNOTSUPP,
			       "nothing of '%s' names its holders; open the lock space as "
			       "visible, and `verbena dump` shows it, or take a lock that can "
			       "(`verbena list`)",
			       ops->name);
	err = ops->holder(me, lock, &said);
	if (err == 0)
		*out = said;
	return err;
}

static int run_holder(void *arg)
{
	const struct vb_lock_visit *v = arg;

	return vb_lock_holder(v->me, v->lock, v->holder);
}

int vb_lock_holder(struct vb_lock_client *me, uint64_t lock, struct vb_holder *out)
{
	if (vb_any_null(me, out))
		return -EINVAL;
	if (vb_ep_is_away(me->ep))
		return vb_lock_visit(
			run_holder, &(struct vb_lock_visit){.me = me, .holder = out, .lock = lock});
	VB_EP_CALL(call, me->ep);
	if (call.err)
		return call.err;
	return ask_for_holder(me, lock, out);
}

vb_peer vb_lock_client_peer(const struct vb_lock_client *me)
{
	return me != NULL ? me->ep->self : VB_PEER_NONE;
}

/* ---- a transaction's age ---- */

/* Each machine counts from a moment of its own: only what all have in common says who is older. */
uint64_t vb_lock_age_now(struct vb_lock_client *me)
{
	uint64_t error_ns, now = vb_ep_common_now(me->ep, &error_ns);

	return now != 0 ? now : 1;
}

static int run_begin(void *arg)
{
	const struct vb_lock_visit *v = arg;

	vb_lock_client_begin(v->me, v->age);
	return 0;
}

void vb_lock_client_begin(struct vb_lock_client *me, uint64_t age_ns)
{
	if (vb_any_null(me))
		return;
	if (vb_ep_is_away(me->ep)) {
		(void)vb_lock_visit(run_begin, &(struct vb_lock_visit){.me = me, .age = age_ns});
		return;
	}
	VB_EP_CALL(call, me->ep);
	if (call.err)
		return;
	me->age = age_ns != 0 ? age_ns : vb_lock_age_now(me);
	me->age_given = true;
}

static int run_age(void *arg)
{
	struct vb_lock_visit *v = arg;

	v->age = vb_lock_client_age(v->me);
	return 0;
}

uint64_t vb_lock_client_age(const struct vb_lock_client *me)
{
	struct vb_lock_visit v = {.me = (struct vb_lock_client *)me};

	if (me == NULL)
		return 0;
	if (vb_ep_is_away(me->ep))
		return vb_lock_visit_beside(run_age, &v) == 0 ? v.age : 0;
	if (vb_ep_check_thread(me->ep) != 0)
		return 0;
	VB_SCHED_INSIDE(me->ep->sched);
	return me->age;
}
