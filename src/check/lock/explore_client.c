/* SPDX-License-Identifier: Apache-2.0 */
/* What one client of a seed does: attempts in every way that the draw allows, later cycles. */
#define VB_LOG_ROOM "check"
#include <inttypes.h>

#include "base/log.h"
#include "check/lock/explore_inner.h"

#define CONVERSIONS_MAX 3
#define RENEWALS_MAX    3

/* The outcome is unknown.  Where nobody mends it that may be the end of the lock. */
static void forsake(struct slot *s, uint64_t lock)
{
	s->x->murky = true;
	if (!survives(s->x))
		s->x->forsaken |= 1u << lock;
}

static bool is_cancelled(const struct slot *s)
{
	return vb_task_cancelled(vb_task_self()) || s->started_call.quit_ns != 0;
}

/* What any call may end with: it was cancelled, or answers are lost. */
static bool may_end_so(struct slot *s, int err)
{
	if (err == -ECANCELED)
		return is_cancelled(s);
	if (err != -VB_EUNKNOWN && err != -VB_EPEERGONE)
		return false;
	s->x->result->unknown++;
	s->x->murky = true;
	return lossy(s->x);
}

/* Was that a possible answer?  Granted only with 0. */
static bool judge_answer(struct slot *s, int err, bool timed, bool tried)
{
	struct vb_explore_result *r = s->x->result;
	bool denies = (s->x->ops->caps & VB_LOCK_DENIES) != 0;

	switch (-err) {
	case 0:
		return true;
	case ETIMEDOUT:
		r->timeouts++;
		/* Cancelled between a grant that came too late and the next attempt: either answer.
		 */
		if (timed || is_cancelled(s) || (denies && s->holds_one))
			return true;
		break;
	case EAGAIN:
		if (tried || denies)
			return true;
		break;
	case VB_EUNKNOWN:
		forsake(s, s->asks_lock);
		break;
	}
	/* -VB_EPEERGONE says that it is not granted, for sure: nobody loses the lock for it. */
	if (may_end_so(s, err))
		return true;
	explore_go_wrong(s, tried ? "vb_lock_try" : "vb_lock_acquire", err);
	return false;
}

/* The oldest of the others' transactions, also of those that are over: an age may only grow. */
static uint64_t oldest_other(const struct slot *s, unsigned *who)
{
	uint64_t oldest = UINT64_MAX;

	for (unsigned i = 0; i < s->x->d->clients; i++) {
		const struct vb_lock_client *c = s->x->slots[i].client;
		uint64_t age = c != NULL && i != s->index ? vb_lock_client_age(c) : 0;

		if (age == 0 || age >= oldest)
			continue;
		oldest = age;
		*who = i;
	}
	return oldest;
}

/* The policy has turned a client down.  Whom it met was there when it asked, or came since. */
static void judge_denial(struct slot *s, const struct vb_lock_client *me)
{
	struct explore *x = s->x;
	uint64_t age = vb_lock_client_age(me), oldest;
	unsigned who = 0;
	char text[160];

	if (x->murky || x->ops->spares_oldest == NULL || !x->ops->spares_oldest(x->space))
		return;
	oldest = oldest_other(s, &who);
	if (age >= oldest || age >= s->oldest_other)
		return;
	snprintf(text, sizeof(text),
		 "is of age %" PRIu64
		 ", older than everybody, and was turned down; the next, client "
		 "%u, is of age %" PRIu64,
		 age, who, oldest);
	vb_audit_violation(x->audit, VB_AUDIT_OLDEST_DENIED, s->index, s->asks_lock, text);
}

static void ask(struct slot *s, uint64_t lock, enum vb_mode mode)
{
	unsigned who;

	s->asks = true;
	s->asks_lock = lock;
	s->asks_mode = mode;
	s->asks_since_ns = vb_sched_now(s->x->sched);
	s->oldest_other = oldest_other(s, &who);
	s->x->asked++;
	explore_meet_releases(s->x, lock);
}

static enum vb_mode draw_mode(struct slot *s)
{
	static const enum vb_mode reads[] = {VB_SHARED, VB_SHARED, VB_INTENT_SHARED, VB_UPDATE},
				  writes[] = {VB_EXCLUSIVE, VB_EXCLUSIVE, VB_INTENT_EXCLUSIVE,
					      VB_SHARED_INTENT_EXCLUSIVE};
	bool read = vb_rng_chance(&s->rng, s->x->d->read_ratio);

	if (!s->x->d->all_modes)
		return read ? VB_SHARED : VB_EXCLUSIVE;
	return (read ? reads : writes)[vb_rng_below(&s->rng, 4)];
}

/* A transaction that was turned down may begin again as old as it was. */
static void note_age(struct slot *s, struct vb_lock_client *me, int err)
{
	if (err == -EAGAIN && s->x->d->keeps_age)
		s->age = vb_lock_client_age(me);
	else if (err == 0)
		s->age = 0;
}

/* Instead of an exclusive lock an update lock, of protocols that have no more modes than these. */
static enum vb_mode or_update(struct slot *s, enum vb_mode mode)
{
	double p = s->x->d->p_update;

	return p > 0 && mode == VB_EXCLUSIVE && vb_rng_chance(&s->rng, p) ? VB_UPDATE : mode;
}

/* For how many leases. */
static uint64_t draw_hold_ns(struct slot *s)
{
	const struct vb_explore_draw *d = s->x->d;

	if (d->leases == 1 || !vb_rng_chance(&s->rng, d->p_leases))
		return 0;
	return d->lease_ns * (1 + vb_rng_below(&s->rng, d->leases));
}

/* Mostly shorter than the wait for a lock. */
static uint64_t draw_timeout(struct slot *s)
{
	uint64_t most = 1000ull << vb_rng_below(&s->rng, s->x->d->timeout_octaves);

	return vb_rng_below(&s->rng, 1 + most);
}

/* One call that may or may not grant: how is drawn. */
static int ask_somehow(struct slot *s, struct vb_lock_client *me, uint64_t lock, struct vb_grant *g)
{
	const struct vb_explore_draw *d = s->x->d;
	enum vb_mode mode = or_update(s, draw_mode(s));
	double how = vb_rng_unit(&s->rng);
	uint64_t timeout = VB_FOREVER_NS;
	bool tried = how < d->p_try;
	int err;

	if (!tried && how < d->p_try + d->p_timeout)
		timeout = draw_timeout(s);
	ask(s, lock, mode);
	if (tried)
		err = vb_lock_try(me, lock, mode, g);
	else
		err = explore_acquire(s, me, lock, mode, draw_hold_ns(s), timeout, g);
	stay_alive(me);
	s->asks = false;
	s->gave_up = err == -ETIMEDOUT;
	if (tried)
		explore_judge_try_time(s, s->asks_since_ns);
	else
		explore_judge_call_time(s, "vb_lock_acquire", s->asks_since_ns, timeout);
	explore_judge_adrift(s, me, tried ? "vb_lock_try" : "vb_lock_acquire");
	judge_answer(s, err, timeout != VB_FOREVER_NS, tried);
	if (err == -EAGAIN && !tried)
		judge_denial(s, me);
	s->started_call.quit_ns = 0;
	return err;
}

/* Whether vb_lock_valid says of a grant what is so. */
static void judge_valid(struct slot *s, struct vb_lock_client *me, const struct vb_grant *g,
			bool valid, const char *what)
{
	char text[192];

	if (vb_lock_valid(me, g) == valid)
		return;
	snprintf(text, sizeof(text),
		 "vb_lock_valid said at %.3f us that %s, %s until %.3f us, was %svalid",
		 (double)vb_lock_now(me) / 1e3, what, vb_lock_mode_name(g->mode),
		 (double)g->valid_until_ns / 1e3, valid ? "not " : "");
	explore_answer_is_wrong(s, -EPROTO, g->lock, text);
}

/* A conversion that was not granted may have renewed the lease, and one to less, whose outcome is unknown,
 * may have left less: the grant does not say so. */
static bool is_in_time(struct vb_lock_client *me, const struct vb_grant *g)
{
	const struct vb_claim *c = vb_lock_held(me, g->lock);

	return c != NULL && vb_mode_covers(c->mode, g->mode) &&
	       (c->valid_until_ns == VB_FOREVER || vb_lock_now(me) < c->valid_until_ns);
}

/* What an earlier hold had left of its grant is dead, also where the client holds the same lock again, in
 * the same place. */
static void judge_old_grant(struct slot *s, struct vb_lock_client *me)
{
	struct vb_grant old = s->old;
	int err;

	if (old.claim == NULL)
		return;
	judge_valid(s, me, &old, false, "a copy of an earlier grant");
	vb_log_mute();
	err = vb_lock_release(me, &old);
	vb_log_unmute();
	if (err != -EINVAL)
		explore_answer_is_wrong(s, err, old.lock,
					"a copy of an earlier grant was released");
}

static void give_back(struct slot *s, struct vb_lock_client *me, struct vb_grant *g)
{
	const struct vb_grant copy = *g;
	const uint64_t lock = g->lock;
	int err;

	judge_old_grant(s, me);
	judge_valid(s, me, g, is_in_time(me, g), "a grant before its release");
	explore_release_begins(s, g);
	err = explore_release(s, me, g);
	stay_alive(me);
	judge_valid(s, me, &copy, false, "a copy of a grant that is released");
	s->old = copy;
	explore_judge_release(s, err);
	explore_judge_adrift(s, me, "vb_lock_release");
	s->x->murky |= err != 0;
	if (err == 0 || err == -VB_ELOST)
		return;
	s->x->result->unknown++;
	forsake(s, lock);
	if (err == -VB_EUNKNOWN && lossy(s->x))
		return;
	explore_go_wrong(s, "vb_lock_release", err);
}

static void hold(struct slot *s, struct vb_lock_client *me)
{
	const struct vb_explore_draw *d = s->x->d;
	uint64_t ns = d->hold_max_ns ? vb_rng_below(&s->rng, d->hold_max_ns) : 0;

	if (vb_rng_chance(&s->rng, d->p_long))
		ns = d->lease_ns + vb_rng_below(&s->rng, 3 * d->lease_ns);
	if (ns != 0)
		vb_ep_sleep(me->ep, ns);
}

/* To the end of the grant, less what a release may or may not take. */
static void hold_to_the_end(struct slot *s, struct vb_lock_client *me, const struct vb_grant *g)
{
	const struct vb_explore_draw *d = s->x->d;
	uint64_t early;

	if (d->p_edge == 0 || g->valid_until_ns == VB_FOREVER || !vb_rng_chance(&s->rng, d->p_edge))
		return;
	early = vb_rng_below(&s->rng, 1 + d->lease_ns / 32);
	if (vb_lock_now(me) + early < g->valid_until_ns)
		vb_ep_sleep(me->ep, g->valid_until_ns - early - vb_lock_now(me));
}

/* Was that a possible end of a renewal?  It waits for no other client. */
static void judge_renewal(struct slot *s, int err, bool timed)
{
	switch (-err) {
	case 0:
		return;
	case VB_ELOST:
		s->x->murky = true;
		return;
	case ETIMEDOUT:
		if (timed || lossy(s->x))
			return;
		break;
	}
	if (!may_end_so(s, err))
		explore_go_wrong(s, "vb_lock_renew", err);
}

static int renew_once(struct slot *s, struct vb_lock_client *me, struct vb_grant *g)
{
	const uint64_t before_ns = g->valid_until_ns;
	const uint64_t begun_ns = vb_lock_now(me);
	const bool was_valid = vb_lock_valid(me, g);
	uint64_t timeout = VB_FOREVER_NS;
	int err;

	/* Often about as long as an answer takes: given up while it is under way. */
	if (vb_rng_chance(&s->rng, s->x->d->p_timeout))
		timeout = draw_timeout(s);
	ask(s, g->lock, g->mode);
	err = vb_lock_renew(me, g, timeout);
	stay_alive(me);
	s->asks = false;
	explore_judge_call_time(s, "vb_lock_renew", s->asks_since_ns, timeout);
	explore_judge_adrift(s, me, "vb_lock_renew");
	explore_judge_renewal_time(s, me, g, begun_ns > before_ns ? begun_ns : before_ns);
	judge_renewal(s, err, timeout != VB_FOREVER_NS || vb_lock_now(me) >= before_ns);
	judge_valid(s, me, g, is_in_time(me, g), "a grant after its renewal");
	if (err == 0 && !vb_lock_valid(me, g))
		explore_answer_is_wrong(s, -EPROTO, g->lock,
					"vb_lock_renew renewed a lease that is over by now");
	if (err == 0 && !was_valid)
		explore_answer_is_wrong(s, -EPROTO, g->lock,
					"vb_lock_renew revived a lease that was over");
	if (err == -VB_ELOST && vb_lock_valid(me, g))
		explore_answer_is_wrong(s, -EPROTO, g->lock,
					"vb_lock_renew said that a grant is lost which is valid");
	return err;
}

/* So near that what is posted then may land behind it; or a little late. */
static uint64_t near_the_end(struct slot *s, const struct vb_grant *g)
{
	uint64_t lease = s->x->d->lease_ns;

	if (vb_rng_chance(&s->rng, 0.1))
		return g->valid_until_ns + vb_rng_below(&s->rng, 1 + lease / 16);
	return g->valid_until_ns -
	       vb_rng_below(&s->rng, 1 + (lease >> (3 + vb_rng_below(&s->rng, 6))));
}

/* Near the end of the lease, or at any time in it. */
static void renew_somehow(struct slot *s, struct vb_lock_client *me, struct vb_grant *g)
{
	const struct vb_explore_draw *d = s->x->d;
	const bool may_be_late = !d->orderly || (s->x->ops->caps & VB_LOCK_READ_LEASE);

	if (d->p_renew == 0 || g->valid_until_ns == VB_FOREVER_NS ||
	    !vb_rng_chance(&s->rng, d->p_renew))
		return;
	for (uint64_t n = 1 + vb_rng_below(&s->rng, RENEWALS_MAX); n > 0; n--) {
		uint64_t now = vb_lock_now(me), until = now;

		if (may_be_late && vb_rng_chance(&s->rng, 0.5))
			until = near_the_end(s, g);
		else if (d->hold_max_ns != 0)
			until = now + vb_rng_below(&s->rng, d->hold_max_ns);
		if (until > now)
			vb_ep_sleep(me->ep, until - now);
		if (renew_once(s, me, g) != 0)
			return;
	}
	hold(s, me);
}

/* Was that a possible end of a conversion? */
static void judge_conversion(struct slot *s, int err, bool timed)
{
	bool denies = (s->x->ops->caps & VB_LOCK_DENIES) != 0;

	switch (-err) {
	case 0:
	case EDEADLK:
		return;
	case VB_ELOST:
		s->x->murky = true;
		return;
	case EAGAIN:
		if (denies)
			return;
		break;
	case ETIMEDOUT:
		if (timed || denies)
			return;
		break;
	}
	if (!may_end_so(s, err))
		explore_go_wrong(s, "vb_lock_convert", err);
}

/* To a mode that permits more, or less; others mean the same as a conversion to X. */
static int convert_once(struct slot *s, struct vb_lock_client *me, struct vb_grant *g)
{
	enum vb_mode mode = draw_mode(s);
	const struct vb_grant copy = *g;
	uint64_t timeout = VB_FOREVER_NS;
	int err;

	/* Often about as long as an answer takes: given up while it is under way. */
	if (vb_rng_chance(&s->rng, 2 * s->x->d->p_timeout))
		timeout = draw_timeout(s);
	if (!vb_mode_covers(g->mode, mode) && !vb_mode_covers(mode, g->mode))
		mode = VB_EXCLUSIVE;
	ask(s, g->lock, mode);
	err = vb_lock_convert(me, g, mode, timeout);
	stay_alive(me);
	s->asks = false;
	explore_judge_call_time(s, "vb_lock_convert", s->asks_since_ns, timeout);
	judge_conversion(s, err, timeout != VB_FOREVER_NS);
	if (err == -EAGAIN && timeout == VB_FOREVER_NS)
		judge_denial(s, me);
	judge_valid(s, me, g, is_in_time(me, g), "a grant after its conversion");
	/* A copy from before stands for no more than what is held now. */
	judge_valid(s, me, &copy, vb_mode_covers(g->mode, copy.mode) && is_in_time(me, g),
		    "a copy of a grant that is converted");
	if (err == 0)
		hold(s, me);
	return err;
}

/* None to three in a row: one that is turned down must leave what those before it came to. */
static void convert_somehow(struct slot *s, struct vb_lock_client *me, struct vb_grant *g)
{
	if (!vb_rng_chance(&s->rng, s->x->d->p_convert))
		return;
	for (uint64_t n = 1 + vb_rng_below(&s->rng, CONVERSIONS_MAX); n > 0; n--) {
		int err = convert_once(s, me, g);

		if (err == -VB_ELOST || err == -VB_EUNKNOWN || err == -VB_EPEERGONE)
			return;
	}
	/* What is held now others may find out. */
	hold(s, me);
}

/* From the last to the first, or all at once. */
static void give_back_some(struct slot *s, struct vb_lock_client *me, struct vb_grant g[],
			   unsigned n)
{
	int err;

	if (!vb_rng_chance(&s->rng, s->x->d->p_end)) {
		while (n-- > 0)
			give_back(s, me, &g[n]);
		return;
	}
	err = vb_lock_release_all(me, g, n);
	stay_alive(me);
	s->x->murky |= err != 0;
	if (err != 0 && err != -VB_ELOST && !(err == -VB_EUNKNOWN && lossy(s->x)))
		explore_go_wrong(s, "vb_lock_release_all", err);
}

/* Word or server must tell of a grant that is valid before and after they were asked. */
static void ask_who_holds(struct slot *s, struct vb_lock_client *me, const struct vb_grant *g)
{
	const bool forgets = (s->x->ops->caps & VB_LOCK_DENIES) != 0;
	struct vb_holder h;
	int err;

	if (s->x->d->p_holder == 0 || !vb_rng_chance(&s->rng, s->x->d->p_holder))
		return;
	err = vb_lock_holder(me, g->lock, &h);
	stay_alive(me);
	/* A server that has begun again says so, for a while. */
	if (err != 0 && !(err == -EAGAIN && forgets) && !may_end_so(s, err))
		explore_go_wrong(s, "vb_lock_holder", err);
	if (err != 0 || !vb_lock_valid(me, g))
		return;
	if (!explore_tells_of(&h, g, me))
		explore_answer_is_wrong(s, -EPROTO, g->lock,
					"vb_lock_holder does not tell of who holds the lock");
}

/* Locks with a policy against deadlocks, and conversions: what only some protocols have. */
static void attempt_more(struct slot *s, struct vb_lock_client *me, uint64_t lock, bool two)
{
	const struct vb_explore_draw *d = s->x->d;
	struct vb_grant g[2];
	uint64_t other = lock + 1;
	int err;

	if (two && d->any_order)
		other = (lock + 1 + vb_rng_below(&s->rng, d->locks - 1)) % d->locks;
	if (s->age != 0)
		vb_lock_client_begin(me, s->age);
	err = ask_somehow(s, me, lock, &g[0]);
	if (err == 0) {
		hold(s, me);
		hold_to_the_end(s, me, &g[0]);
		renew_somehow(s, me, &g[0]);
		explore_keep_somehow(s, me, &g[0]);
		convert_somehow(s, me, &g[0]);
		s->holds_one = true;
		if (two)
			err = ask_somehow(s, me, other, &g[1]);
		s->holds_one = false;
		if (two && err == 0) {
			hold(s, me);
			give_back_some(s, me, g, 2);
		} else {
			give_back(s, me, &g[0]);
		}
	}
	note_age(s, me, err);
}

/* ---- paths ---- */

/* A lock after intention locks on those above it; one of them may be held already. */
struct path {
	uint64_t lock[VB_EXPLORE_LOCKS_MAX];
	unsigned n;
	enum vb_mode mode;
	const struct vb_grant *own; /* NULL: none */
};

static void draw_path(struct slot *s, struct path *p)
{
	uint64_t locks = s->x->d->locks, root = vb_rng_below(&s->rng, locks);

	*p = (struct path){.mode = draw_mode(s)};
	p->n = 1 + (unsigned)vb_rng_below(&s->rng, locks - root);
	for (unsigned i = 0; i < p->n; i++)
		p->lock[i] = root + i;
}

static void path_is_wrong(struct slot *s, const struct path *p, unsigned i, int err,
			  const char *why)
{
	char text[192];

	snprintf(text, sizeof(text),
		 "vb_lock_acquire_path of %u locks from %" PRIu64
		 " on, %s, returned %d, and lock %" PRIu64 " %s",
		 p->n, p->lock[0], vb_lock_mode_name(p->mode), err, p->lock[i], why);
	explore_answer_is_wrong(s, -EPROTO, p->lock[i], text);
}

/* Whether nothing need be held below a lock in `held`. */
static bool is_enough(enum vb_mode held, enum vb_mode mode)
{
	bool reads = mode == VB_SHARED || mode == VB_INTENT_SHARED;

	return held == VB_EXCLUSIVE || (reads && vb_mode_covers(held, VB_SHARED));
}

/* All of it is ours at this moment, in modes that permit what was asked for. */
static void judge_path_taken(struct slot *s, struct vb_lock_client *me, const struct path *p,
			     const struct vb_grant g[])
{
	bool reads = p->mode == VB_SHARED || p->mode == VB_INTENT_SHARED;
	enum vb_mode above = reads ? VB_INTENT_SHARED : VB_INTENT_EXCLUSIVE;

	for (unsigned i = 0; i < p->n; i++) {
		const struct vb_claim *c = vb_lock_held(me, p->lock[i]);

		if (c == NULL || !vb_lock_valid(me, &g[i]))
			path_is_wrong(s, p, i, 0, "is not held");
		else if (!vb_mode_covers(c->mode, i + 1 < p->n ? above : p->mode))
			path_is_wrong(s, p, i, 0, "is held in a mode that permits less");
		else if (i + 1 < p->n && is_enough(c->mode, p->mode))
			return;
	}
}

/* All is as before.  A conversion that cannot be taken back is one whose answer is lost, or whose
 * lease is over. */
static void judge_path_undone(struct slot *s, struct vb_lock_client *me, const struct path *p,
			      int err)
{
	for (unsigned i = 0; i < p->n; i++) {
		const struct vb_claim *c = vb_lock_held(me, p->lock[i]);
		bool own = p->own != NULL && p->own->lock == p->lock[i];

		if (c != NULL && !own)
			path_is_wrong(s, p, i, err, "is still held");
		else if (own && (c == NULL || (c->mode != p->own->mode && !lossy(s->x))))
			path_is_wrong(s, p, i, err, "is not held as before");
	}
}

static void judge_path_answer(struct slot *s, const struct path *p, int err)
{
	switch (-err) {
	case ETIMEDOUT:
		s->x->result->timeouts++;
		return;
	case 0:
	case EAGAIN:
		return;
	case EDEADLK:
		if (p->own != NULL)
			return;
		break;
	case VB_ELOST:
		s->x->murky = true;
		if (p->own != NULL)
			return;
		break;
	}
	if (!may_end_so(s, err))
		explore_go_wrong(s, "vb_lock_acquire_path", err);
}

static int ask_path(struct slot *s, struct vb_lock_client *me, const struct path *p,
		    struct vb_grant g[])
{
	uint64_t timeout = VB_FOREVER_NS;
	int err;

	if (vb_rng_chance(&s->rng, s->x->d->p_timeout))
		timeout = draw_timeout(s);
	ask(s, p->lock[p->n - 1], p->mode);
	err = vb_lock_acquire_path(me, p->lock, p->n, p->mode, timeout, g);
	stay_alive(me);
	s->asks = false;
	s->gave_up = err == -ETIMEDOUT;
	explore_judge_path_time(s, p->n, s->asks_since_ns, timeout);
	judge_path_answer(s, p, err);
	if (err == 0)
		judge_path_taken(s, me, p, g);
	else
		judge_path_undone(s, me, p, err);
	return err;
}

/* What this call took is converted, lock by lock, and given back. */
static void use_path(struct slot *s, struct vb_lock_client *me, const struct path *p,
		     struct vb_grant g[])
{
	struct vb_grant taken[VB_EXPLORE_LOCKS_MAX];
	unsigned n = 0;

	hold(s, me);
	for (unsigned i = 0; i < p->n; i++)
		if (g[i].claim != NULL)
			taken[n++] = g[i];
	for (unsigned i = 0; i < n; i++)
		convert_somehow(s, me, &taken[i]);
	if (n > 0)
		give_back_some(s, me, taken, n);
}

static void attempt_path(struct slot *s, struct vb_lock_client *me)
{
	struct vb_grant own, g[VB_EXPLORE_LOCKS_MAX];
	struct path p;
	int err = 0;

	draw_path(s, &p);
	if (s->age != 0)
		vb_lock_client_begin(me, s->age);
	if (vb_rng_chance(&s->rng, 0.5)) {
		err = ask_somehow(s, me, p.lock[vb_rng_below(&s->rng, p.n)], &own);
		p.own = &own;
		if (err == 0)
			hold(s, me);
	}
	if (err == 0) {
		err = ask_path(s, me, &p, g);
		if (err == 0)
			use_path(s, me, &p, g);
		if (p.own != NULL)
			give_back(s, me, &own);
	}
	note_age(s, me, err);
}

/* Who has a long lease makes use of it, and now and then of more than that. */
static void hold_on(struct slot *s, struct vb_lock_client *me, const struct vb_grant *g)
{
	const struct vb_explore_draw *d = s->x->d;
	uint64_t left = g->valid_until_ns - vb_lock_now(me);

	if (d->leases == 1 || !vb_lock_valid(me, g) || left <= d->lease_ns)
		return;
	if (vb_rng_chance(&s->rng, d->p_hold_on))
		vb_ep_sleep(me->ep, vb_rng_below(&s->rng, left + left / 8));
}

/* From update to exclusive, and sometimes back. */
static void upgrade_somehow(struct slot *s, struct vb_lock_client *me, struct vb_grant *g)
{
	const struct vb_explore_draw *d = s->x->d;
	uint64_t timeout = VB_FOREVER_NS;
	int err;

	if (d->p_update == 0 || g->mode != VB_UPDATE || !vb_rng_chance(&s->rng, d->p_upgrade))
		return;
	if (vb_rng_chance(&s->rng, d->p_timeout))
		timeout = draw_timeout(s);
	ask(s, g->lock, VB_EXCLUSIVE);
	err = vb_lock_convert(me, g, VB_EXCLUSIVE, timeout);
	stay_alive(me);
	s->asks = false;
	explore_judge_call_time(s, "vb_lock_convert", s->asks_since_ns, timeout);
	judge_conversion(s, err, timeout != VB_FOREVER_NS);
	judge_valid(s, me, g, is_in_time(me, g), "a grant after its upgrade");
	if (err != 0)
		return;
	hold(s, me);
	if (vb_rng_chance(&s->rng, 0.2))
		judge_conversion(s, vb_lock_convert(me, g, VB_UPDATE, 0), false);
}

/* Locks are taken in ascending order, so that two at a time make no deadlock. */
void explore_attempt(struct slot *s, struct vb_lock_client *me)
{
	const struct vb_explore_draw *d = s->x->d;
	uint64_t lock = vb_rng_below(&s->rng, d->locks);
	bool two = vb_rng_chance(&s->rng, d->p_two) && lock + 1 < d->locks;
	struct vb_grant first, second;

	s->attempts++;
	if (d->think_max_ns != 0 &&
	    vb_ep_sleep(me->ep, vb_rng_below(&s->rng, d->think_max_ns)) != 0)
		return;
	if (d->p_path > 0 && vb_rng_chance(&s->rng, d->p_path)) {
		attempt_path(s, me);
		return;
	}
	if (s->x->ops->caps & (VB_LOCK_INTENT | VB_LOCK_DENIES)) {
		attempt_more(s, me, lock, two || (d->any_order && d->locks > 1 && d->p_two > 0));
		return;
	}
	if (ask_somehow(s, me, lock, &first) != 0)
		return;
	ask_who_holds(s, me, &first);
	hold(s, me);
	hold_to_the_end(s, me, &first);
	renew_somehow(s, me, &first);
	explore_keep_somehow(s, me, &first);
	hold_on(s, me, &first);
	upgrade_somehow(s, me, &first);
	if (two && ask_somehow(s, me, lock + 1, &second) == 0) {
		hold(s, me);
		upgrade_somehow(s, me, &second);
		give_back(s, me, &second);
	}
	give_back(s, me, &first);
}

bool explore_cycle(struct slot *s, struct vb_lock_client *me)
{
	uint64_t lock = vb_rng_below(&s->rng, s->x->d->locks);
	enum vb_mode mode = or_update(s, draw_mode(s));
	struct vb_grant g;
	int err;

	ask(s, lock, mode);
	if (s->age != 0)
		vb_lock_client_begin(me, s->age);
	err = explore_acquire(s, me, lock, mode, 0, VB_FOREVER_NS, &g);
	note_age(s, me, err);
	/* A verb that was under way when the faults stopped may still come back unknown. */
	if (err == -EAGAIN)
		judge_denial(s, me);
	if (!judge_answer(s, err, false, false))
		return false;
	/* Where nobody serves, to be told so is all that there is. */
	if (explore_is_told(s, err))
		return true;
	if (err != 0)
		return false;
	s->asks = false;
	if (s->x->d->hold_max_ns != 0)
		vb_ep_sleep(me->ep, vb_rng_below(&s->rng, s->x->d->hold_max_ns));
	upgrade_somehow(s, me, &g);
	give_back(s, me, &g);
	s->cycles++;
	s->x->result->cycles++;
	return true;
}
