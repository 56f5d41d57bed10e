/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lock auditor: see audit.h for what it judges.
 *
 * Everything lies in one shared mapping: a shadow of 32 bytes for each lock, a dense array of what
 * each client waits for, and for each client its holds, one for each of its claims.  Nothing in it
 * is a pointer into a process, so forked processes use it together.
 *
 * Why no pair of conflicting holders slips through unseen.  A grant is entered in two steps: first
 * the hold is published in its client's table (P), then one fetch-and-add on the lock's shadow word
 * counts it and returns how many holders were counted before (C).  All C of one lock are atomics on
 * one word and therefore ordered; of two holders the one with the later C gets the other's count
 * back, and, as C is acquire and release and read-modify-writes continue each other's release
 * sequence, it also sees the other's P.  So the later one finds the earlier one.  Leaving takes the
 * hold out of the count before it is unpublished and goes through a state of its own, which a
 * search passes over: a hold that is found was published and not being given back at that moment,
 * hence what is found is a true overlap.  A client that is killed between two steps leaves a count
 * that is too high.  This costs searches that find nothing, never a verdict.
 *
 * Times are the scheduler's time base: virtual time, or the machine's clock, which is common to
 * processes that were forked after its calibration (vb_audit_open sees to that).
 */
#define VB_LOG_ROOM "check"
#include "check/lock/audit.h"

#include <inttypes.h>
#include <stdarg.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/log.h"

#define AUDIT_STORIES     16
#define AUDIT_STORY_BYTES 960
#define AUDIT_HUSKS       8

const char *const vb_audit_rule_names[VB_AUDIT_RULES] = {
	[VB_AUDIT_MODE_CONFLICT] = "mode-conflict",
	[VB_AUDIT_EXPIRED_GRANT] = "expired-grant",
	[VB_AUDIT_FOREIGN_RELEASE] = "foreign-release",
	[VB_AUDIT_TOKEN_ORDER] = "token-order",
	[VB_AUDIT_BYPASS] = "bypass",
	[VB_AUDIT_OLDEST_DENIED] = "oldest-denied",
	[VB_AUDIT_NEEDLESS_RECOVERY] = "needless-recovery",
	[VB_AUDIT_STUCK] = "stuck",
};

/*
 * The shadow word: holders and waiters, 21 bits each.  Holders in modes that never exclude one
 * another (shared and intent-shared) are counted apart from the others: who finds nobody counted
 * that could exclude it need not look at them one by one.
 */
#define COUNT_SHARED    1ull
#define COUNT_EXCLUSIVE (1ull << 21)
#define COUNT_WAITING   (1ull << 42)
#define COUNT_FIELD     ((1ull << 21) - 1)

struct audit_lock {
	uint64_t count;
	uint64_t last_token;
	uint64_t last_at[VB_MODES]; /* by mode: when the latest grant was told */
};

/* ENTERING: published, perhaps not counted.  LEAVING: perhaps counted, not to be judged. */
enum hold_state { HOLD_FREE, HOLD_ENTERING, HOLD_HELD, HOLD_LEAVING };

/* `word` is generation * 4 + state: who reads a hold reads it before and after. */
struct audit_hold {
	uint64_t word;
	uint64_t lock, mode, token;
	uint64_t called_at, queued_at, granted_at, valid_until;
};

struct audit_husk {
	uint64_t lock1, mode, called_at;
};

/* Written by the client's own thread, except `bypass`, which those who pass it count up. */
struct audit_client {
	uint64_t called1; /* 1 + the lock of the call under way, 0: none */
	uint64_t called_at, queued_at, wait_mode, bypass;
	uint64_t releasing1, releasing_at,
		releasing_next_at; /* next_at: of the grant that came between */
	struct audit_hold released;
	uint64_t node;
	uint64_t checked, lost, max_bypass;
	unsigned next_husk;
	struct audit_husk husks[AUDIT_HUSKS];
} VB_ALIGNED(VB_CACHELINE);

struct audit_story {
	uint32_t ready;
	char text[AUDIT_STORY_BYTES];
};

struct vb_audit {
	size_t bytes;
	uint64_t locks;
	unsigned clients, claims, words; /* words of a client's `used` */
	bool fencing, judge_bypass;
	bool judge_granted_only; /* who is turned down learns of it after those whom that lets pass */
	unsigned bound[VB_MODES]; /* by the waiter's mode */
	struct vb_lock_watch watch;
	struct audit_lock *lock;
	uint64_t *waits; /* [clients]: 1 + lock while queued; dense, because grants search it */
	struct audit_client *client;
	struct audit_hold *hold; /* [clients][claims]: as the claim of this slot is held */
	uint64_t *used;          /* [clients][words]: bit per hold */
	uint64_t violations, by_rule[VB_AUDIT_RULES];
	struct audit_story stories[AUDIT_STORIES];
};

#define get(p)         __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define get_relaxed(p) __atomic_load_n(p, __ATOMIC_RELAXED)
#define set(p, v)      __atomic_store_n(p, v, __ATOMIC_RELEASE)

/* ---- stories ---- */

static void add_violation(struct vb_audit *a, enum vb_audit_rule rule, const char *fmt, ...)
	VB_PRINTF(3, 4);

static void add_violation(struct vb_audit *a, enum vb_audit_rule rule, const char *fmt, ...)
{
	uint64_t n = __atomic_fetch_add(&a->violations, 1, __ATOMIC_ACQ_REL);
	struct audit_story *s;
	va_list args;
	int used;

	__atomic_fetch_add(&a->by_rule[rule], 1, __ATOMIC_ACQ_REL);
	if (n >= AUDIT_STORIES)
		return;
	s = &a->stories[n];
	used = snprintf(s->text, sizeof(s->text), "%s: ", vb_audit_rule_names[rule]);
	va_start(args, fmt);
	vsnprintf(s->text + used, sizeof(s->text) - (size_t)used, fmt, args);
	va_end(args);
	vb_debug("violation %s", s->text);
	__atomic_store_n(&s->ready, 1, __ATOMIC_RELEASE);
}

static const char *mode_name(uint64_t mode)
{
	return vb_lock_mode_name((enum vb_mode)mode);
}

static bool modes_exclude(uint64_t a, uint64_t b)
{
	return vb_modes_exclude((enum vb_mode)a, (enum vb_mode)b);
}

static bool is_sharing(uint64_t mode)
{
	return mode == VB_SHARED || mode == VB_INTENT_SHARED;
}

static uint64_t count_of(uint64_t mode)
{
	return is_sharing(mode) ? COUNT_SHARED : COUNT_EXCLUSIVE;
}

struct hold_text {
	char text[256];
};

/* "client 3 (node 1), exclusive, called at 1.200us, granted at ..., valid until ..., token 4" */
static const char *tell_hold(struct hold_text *t, const struct vb_audit *a, unsigned client,
			     const struct audit_hold *h)
{
	int n = snprintf(t->text, sizeof(t->text),
			 "client %u (node %" PRIu64 "), %s, called at %.3f us", client,
			 get_relaxed(&a->client[client].node), mode_name(h->mode),
			 (double)h->called_at / 1e3);
	size_t left = sizeof(t->text) - (size_t)n;

	if (h->queued_at != 0)
		n += snprintf(t->text + n, left, ", queued at %.3f us", (double)h->queued_at / 1e3);
	left = sizeof(t->text) - (size_t)n;
	n += snprintf(t->text + n, left, ", granted at %.3f us, ", (double)h->granted_at / 1e3);
	left = sizeof(t->text) - (size_t)n;
	if (h->valid_until == VB_FOREVER)
		n += snprintf(t->text + n, left, "valid until released");
	else
		n += snprintf(t->text + n, left, "valid until %.3f us",
			      (double)h->valid_until / 1e3);
	left = sizeof(t->text) - (size_t)n;
	if (h->token != 0)
		snprintf(t->text + n, left, ", token %" PRIu64, h->token);
	return t->text;
}

/* ---- the calling client ---- */

static struct audit_client *client_of(struct vb_audit *a, const struct vb_lock_client *me)
{
	vb_assert(me->index < a->clients);
	return &a->client[me->index];
}

static bool in_virtual_time(const struct vb_lock_client *me)
{
	return ((const struct vb_sched_face *)me->ep->sched)->is_virtual;
}

static void stop_waiting(struct vb_audit *a, unsigned index)
{
	uint64_t lock1 = get_relaxed(&a->waits[index]);

	if (lock1 == 0)
		return;
	set(&a->waits[index], 0);
	__atomic_fetch_sub(&a->lock[lock1 - 1].count, COUNT_WAITING, __ATOMIC_ACQ_REL);
}

/*
 * A call that gave up while queued leaves a husk in the queue, and the client's next call for that
 * lock takes its place over: that call stands where the first one did, and has passed nobody.
 */
static void remember_husk(struct audit_client *c, uint64_t lock)
{
	struct audit_husk *h = &c->husks[c->next_husk++ % AUDIT_HUSKS];

	*h = (struct audit_husk){lock + 1, get_relaxed(&c->wait_mode), get_relaxed(&c->called_at)};
}

static uint64_t called_since(struct audit_client *c, uint64_t lock, uint64_t mode, bool queued)
{
	uint64_t at = get_relaxed(&c->called_at);

	for (unsigned i = 0; i < AUDIT_HUSKS; i++) {
		struct audit_husk *h = &c->husks[i];

		if (h->lock1 != lock + 1)
			continue;
		if (!queued && h->mode == mode && h->called_at < at)
			at = h->called_at;
		h->lock1 = 0;
	}
	return at;
}

/* ---- holds ---- */

/* The other client's hold as it was at one moment; false if it changed meanwhile or is not held. */
static bool read_hold(const struct audit_hold *h, struct audit_hold *out)
{
	uint64_t word = get(&h->word);

	if ((word & 3) != HOLD_ENTERING && (word & 3) != HOLD_HELD)
		return false;
	out->lock = get(&h->lock);
	out->mode = get(&h->mode);
	out->token = get(&h->token);
	out->called_at = get(&h->called_at);
	out->queued_at = get(&h->queued_at);
	out->granted_at = get(&h->granted_at);
	out->valid_until = get(&h->valid_until);
	/* ENTERING may have become HELD: the same hold. */
	return get(&h->word) >> 2 == word >> 2 && (get(&h->word) & 3) != HOLD_LEAVING;
}

static struct audit_hold *hold_at(struct vb_audit *a, unsigned client, unsigned slot)
{
	vb_assert(slot < a->claims);
	return &a->hold[(size_t)client * a->claims + slot];
}

/* Alone the client's own thread writes it. */
static void mark_used(struct vb_audit *a, unsigned client, unsigned slot, bool on)
{
	uint64_t *word = &a->used[(size_t)client * a->words + slot / 64], bit = 1ull << slot % 64;

	set(word, on ? get_relaxed(word) | bit : get_relaxed(word) & ~bit);
}

/* The client's next hold from slot *at on, or NULL; *at: where to go on. */
static struct audit_hold *next_hold(struct vb_audit *a, unsigned client, unsigned *at)
{
	while (*at < a->claims) {
		uint64_t left = get(&a->used[(size_t)client * a->words + *at / 64]) >> *at % 64;

		if (left != 0) {
			*at += (unsigned)__builtin_ctzll(left) + 1;
			return hold_at(a, client, *at - 1);
		}
		*at = (*at / 64 + 1) * 64;
	}
	return NULL;
}

static void enter_hold(struct vb_audit *a, const struct vb_lock_client *me, unsigned slot,
		       const struct audit_hold *from, uint64_t *count_before)
{
	struct audit_hold *h = hold_at(a, me->index, slot);
	uint64_t generation = (get_relaxed(&h->word) >> 2) + 1;

	set(&h->word, generation << 2 | HOLD_FREE);
	set(&h->lock, from->lock);
	set(&h->mode, from->mode);
	set(&h->token, from->token);
	set(&h->called_at, from->called_at);
	set(&h->queued_at, from->queued_at);
	set(&h->granted_at, from->granted_at);
	set(&h->valid_until, from->valid_until);
	set(&h->word, generation << 2 | HOLD_ENTERING);
	mark_used(a, me->index, slot, true);
	*count_before = __atomic_fetch_add(&a->lock[from->lock].count, count_of(from->mode),
					   __ATOMIC_ACQ_REL);
	set(&h->word, generation << 2 | HOLD_HELD);
}

static void leave_hold(struct vb_audit *a, unsigned client, struct audit_hold *h)
{
	uint64_t generation = get_relaxed(&h->word) >> 2;

	set(&h->word, generation << 2 | HOLD_LEAVING);
	__atomic_fetch_sub(&a->lock[h->lock].count, count_of(h->mode), __ATOMIC_ACQ_REL);
	set(&h->word, generation << 2 | HOLD_FREE);
	mark_used(a, client, (unsigned)(h - hold_at(a, client, 0)), false);
}

/* What the claim's grant was entered as; NULL: it was not, or is no more. */
static struct audit_hold *find_hold(struct vb_audit *a, const struct vb_lock_client *me,
				    const struct vb_claim *claim)
{
	struct audit_hold *h = hold_at(a, me->index, claim->slot);

	return (get_relaxed(&h->word) & 3) == HOLD_HELD && h->lock == claim->lock ? h : NULL;
}

/*
 * Looks for valid holds that exclude ours.  The clock is read after the other hold was seen: if
 * both are valid then, both were while both were published.
 */
static void find_conflicts(struct vb_audit *a, const struct vb_lock_client *me,
			   const struct audit_hold *ours)
{
	struct hold_text t1, t2;
	struct audit_hold other;

	for (unsigned i = 0; i < a->clients; i++) {
		const struct audit_hold *h;
		unsigned at = 0;

		if (i == me->index)
			continue;
		while ((h = next_hold(a, i, &at)) != NULL) {
			uint64_t now;

			if (!read_hold(h, &other) || other.lock != ours->lock ||
			    !modes_exclude(other.mode, ours->mode))
				continue;
			now = vb_sched_now(me->ep->sched);
			if (now >= ours->valid_until || now >= other.valid_until)
				continue;
			add_violation(
				a, VB_AUDIT_MODE_CONFLICT,
				"lock %" PRIu64 " at %.3f us: granted to %s; while held by %s",
				ours->lock, (double)now / 1e3, tell_hold(&t1, a, me->index, ours),
				tell_hold(&t2, a, i, &other));
		}
	}
}

/* ---- rules at a grant ---- */

/*
 * In virtual time nothing passes between the protocol's last look at the clock and this call.  On a
 * machine the process may have been stopped in between; there only a grant that was over before it
 * was asked for is certainly wrong.
 */
static bool judge_expiry(struct vb_audit *a, const struct vb_lock_client *me,
			 const struct audit_hold *h)
{
	struct hold_text t;
	bool over = h->granted_at >= h->valid_until;

	if (over && (in_virtual_time(me) || h->valid_until <= h->called_at))
		add_violation(a, VB_AUDIT_EXPIRED_GRANT, "lock %" PRIu64 ": granted to %s", h->lock,
			      tell_hold(&t, a, me->index, h));
	return over;
}

static void judge_token(struct vb_audit *a, const struct vb_lock_client *me,
			const struct audit_hold *h)
{
	struct audit_lock *l = &a->lock[h->lock];
	uint64_t last = get(&l->last_token);
	struct hold_text t;

	if (h->token == 0) {
		if (a->fencing)
			add_violation(a, VB_AUDIT_TOKEN_ORDER,
				      "lock %" PRIu64 ": granted without a token to %s", h->lock,
				      tell_hold(&t, a, me->index, h));
		return;
	}
	while (h->token > last)
		if (__atomic_compare_exchange_n(&l->last_token, &last, h->token, false,
						__ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			return;
	/* Told late by a process that was stopped: the grant has run out, its token harms nobody.
	 */
	if (vb_sched_now(me->ep->sched) >= h->valid_until)
		return;
	add_violation(a, VB_AUDIT_TOKEN_ORDER,
		      "lock %" PRIu64 ": token %" PRIu64
		      " had been granted before this grant to %s",
		      h->lock, last, tell_hold(&t, a, me->index, h));
}

/* Every queued client that this grant has passed counts it. */
static void count_bypass(struct vb_audit *a, const struct vb_lock_client *me,
			 const struct audit_hold *h, uint64_t waiting)
{
	struct hold_text t;

	for (unsigned i = 0; i < a->clients && waiting != 0; i++) {
		struct audit_client *c = &a->client[i];
		uint64_t mode, n;

		if (get(&a->waits[i]) != h->lock + 1)
			continue;
		waiting--;
		mode = get_relaxed(&c->wait_mode);
		if (!modes_exclude(mode, h->mode) || get_relaxed(&c->queued_at) >= h->called_at)
			continue;
		n = __atomic_add_fetch(&c->bypass, 1, __ATOMIC_RELAXED);
		if (!a->judge_bypass || a->judge_granted_only || n != (uint64_t)a->bound[mode] + 1)
			continue;
		add_violation(a, VB_AUDIT_BYPASS,
			      "lock %" PRIu64
			      ": client %u, queued for %s since %.3f us, was passed %" PRIu64
			      " times where at most %u are promised; last by %s",
			      h->lock, i, mode_name(mode), (double)get_relaxed(&c->queued_at) / 1e3,
			      n, a->bound[mode], tell_hold(&t, a, me->index, h));
	}
}

/* The same at the end of the wait, of locks whose server may take a client out of the queue:
 * those who passed one that is turned down then have wronged nobody, and hear of it before he
 * does. */
static void judge_passed(struct vb_audit *a, const struct vb_lock_client *me,
			 const struct audit_hold *h, uint64_t passed)
{
	struct hold_text t;

	if (!a->judge_bypass || !a->judge_granted_only || passed <= a->bound[h->mode])
		return;
	add_violation(a, VB_AUDIT_BYPASS,
		      "lock %" PRIu64 ": was passed %" PRIu64
		      " times in the queue where at most %u are promised: %s",
		      h->lock, passed, a->bound[h->mode], tell_hold(&t, a, me->index, h));
}

static void note_grant_time(struct audit_lock *l, const struct audit_hold *h)
{
	uint64_t *last = &l->last_at[h->mode];
	uint64_t seen = get_relaxed(last);

	while (h->granted_at > seen &&
	       !__atomic_compare_exchange_n(last, &seen, h->granted_at, false, __ATOMIC_ACQ_REL,
					    __ATOMIC_ACQUIRE))
		;
}

/* ---- what lock.c tells ---- */

static void on_called(void *ctx, struct vb_lock_client *me, uint64_t lock, enum vb_mode mode)
{
	struct vb_audit *a = ctx;
	struct audit_client *c = client_of(a, me);

	vb_assert(lock < a->locks);
	stop_waiting(a, me->index);
	set(&c->node, me->node);
	c->called1 = lock + 1;
	/* Before whatever the call does: too early a time only passes for less of a bypass. */
	set(&c->called_at, vb_sched_now_early(me->ep->sched));
}

static void on_queued(void *ctx, struct vb_lock_client *me, uint64_t lock, enum vb_mode mode)
{
	struct vb_audit *a = ctx;
	struct audit_client *c = client_of(a, me);

	/* A husk that queues again after a recovery is nobody's wait. */
	if (c->called1 != lock + 1)
		return;
	set(&c->bypass, 0);
	set(&c->wait_mode, mode);
	set(&c->queued_at, vb_sched_now(me->ep->sched));
	if (get_relaxed(&a->waits[me->index]) == lock + 1)
		return;
	__atomic_fetch_add(&a->lock[lock].count, COUNT_WAITING, __ATOMIC_ACQ_REL);
	set(&a->waits[me->index], lock + 1);
}

/* Enters the hold and judges it; false: it was over already.  *before: the lock's count. */
static bool judge_grant(struct vb_audit *a, const struct vb_lock_client *me, unsigned slot,
			const struct audit_hold *h, uint64_t *before)
{
	uint64_t conflicting;

	enter_hold(a, me, slot, h, before);
	if (judge_expiry(a, me, h))
		return false;
	note_grant_time(&a->lock[h->lock], h);
	conflicting = *before >> 21 & COUNT_FIELD;
	if (!is_sharing(h->mode))
		conflicting += *before & COUNT_FIELD;
	if (vb_unlikely(conflicting != 0))
		find_conflicts(a, me, h);
	if (h->mode == VB_EXCLUSIVE)
		judge_token(a, me, h);
	return true;
}

static void on_granted(void *ctx, struct vb_lock_client *me, const struct vb_claim *claim)
{
	struct vb_audit *a = ctx;
	struct audit_client *c = client_of(a, me);
	bool queued = get_relaxed(&a->waits[me->index]) == claim->lock + 1;
	struct audit_hold h = {
		.lock = claim->lock,
		.mode = claim->mode,
		.token = claim->token,
		.granted_at = vb_sched_now(me->ep->sched),
		.valid_until = vb_ep_base(me->ep, claim->valid_until_ns),
	};
	uint64_t before;

	if (c->called1 == claim->lock + 1) {
		h.called_at = called_since(c, claim->lock, claim->mode, queued);
		h.queued_at = queued ? get_relaxed(&c->queued_at) : 0;
		c->called1 = 0;
	}
	if (queued) {
		uint64_t passed = get_relaxed(&c->bypass);

		stop_waiting(a, me->index);
		if (passed > c->max_bypass)
			set(&c->max_bypass, passed);
		judge_passed(a, me, &h, passed);
	}
	set(&c->checked, c->checked + 1);
	if (judge_grant(a, me, claim->slot, &h, &before) && before >> 42 != 0)
		count_bypass(a, me, &h, before >> 42);
}

static void on_not_granted(void *ctx, struct vb_lock_client *me, uint64_t lock, int err)
{
	struct vb_audit *a = ctx;
	struct audit_client *c = client_of(a, me);

	if (c->called1 != lock + 1)
		return;
	c->called1 = 0;
	if (get_relaxed(&a->waits[me->index]) == 0)
		return;
	if (!a->judge_granted_only && get_relaxed(&c->bypass) > c->max_bypass)
		set(&c->max_bypass, get_relaxed(&c->bypass));
	stop_waiting(a, me->index);
	if (err == -ETIMEDOUT || err == -ECANCELED)
		remember_husk(c, lock);
}

/*
 * A grant to somebody else that excludes ours and was told between our grant and this moment: the
 * lock is not ours any more.  What comes after this moment proves nothing, for our release may have
 * taken effect long before it returns.
 */
static void on_releasing(void *ctx, struct vb_lock_client *me, const struct vb_claim *claim)
{
	struct vb_audit *a = ctx;
	struct audit_client *c = client_of(a, me);
	struct audit_hold *h = find_hold(a, me, claim);
	struct audit_lock *l = &a->lock[claim->lock];
	uint64_t next_at = 0;

	c->releasing1 = 0;
	if (h == NULL)
		return;
	for (unsigned mode = 0; mode < VB_MODES; mode++)
		if (modes_exclude(mode, h->mode) && get(&l->last_at[mode]) > next_at)
			next_at = get(&l->last_at[mode]);
	if (next_at > h->granted_at) {
		c->releasing1 = claim->lock + 1;
		c->releasing_at = vb_sched_now(me->ep->sched);
		c->releasing_next_at = next_at;
		c->released = *h;
	}
	leave_hold(a, me->index, h);
}

/*
 * Throughout a conversion the hold is judged in the weaker of the two modes: less is given up
 * before the protocol gives it up, more is had once the protocol has it.
 */
static void on_converting(void *ctx, struct vb_lock_client *me, const struct vb_claim *claim,
			  enum vb_mode to)
{
	struct vb_audit *a = ctx;
	struct audit_hold *h = find_hold(a, me, claim);
	struct audit_hold weaker;
	uint64_t before;

	if (h == NULL || !vb_mode_covers(claim->mode, to))
		return;
	weaker = *h;
	weaker.mode = to;
	leave_hold(a, me->index, h);
	enter_hold(a, me, claim->slot, &weaker, &before);
}

static void on_converted(void *ctx, struct vb_lock_client *me, const struct vb_claim *claim,
			 int err)
{
	struct vb_audit *a = ctx;
	struct audit_client *c = client_of(a, me);
	struct audit_hold *h = find_hold(a, me, claim);
	struct audit_hold now;
	uint64_t before;

	if (h == NULL || err != 0 || h->mode == claim->mode)
		return;
	now = *h;
	now.mode = claim->mode;
	now.token = claim->token;
	now.granted_at = vb_sched_now(me->ep->sched);
	now.valid_until = vb_ep_base(me->ep, claim->valid_until_ns);
	leave_hold(a, me->index, h);
	set(&c->checked, c->checked + 1);
	judge_grant(a, me, claim->slot, &now, &before);
}

/* As if the holder had died: nobody is hurt if the lock goes to others now. */
static void on_abandoned(void *ctx, struct vb_lock_client *me, const struct vb_claim *claim)
{
	struct vb_audit *a = ctx;
	struct audit_hold *h = find_hold(a, me, claim);

	if (h != NULL)
		leave_hold(a, me->index, h);
}

static void on_released(void *ctx, struct vb_lock_client *me, uint64_t lock, int err)
{
	struct vb_audit *a = ctx;
	struct audit_client *c = client_of(a, me);
	struct hold_text t;

	if (err == -VB_ELOST)
		set(&c->lost, c->lost + 1);
	if (c->releasing1 != lock + 1)
		return;
	c->releasing1 = 0;
	if (err != 0)
		return;
	add_violation(a, VB_AUDIT_FOREIGN_RELEASE,
		      "lock %" PRIu64
		      ": the release that began at %.3f us reported success although the "
		      "lock had been granted to somebody else at %.3f us; released by %s",
		      lock, (double)c->releasing_at / 1e3, (double)c->releasing_next_at / 1e3,
		      tell_hold(&t, a, me->index, &c->released));
}

/* ---- the face ---- */

static size_t round_up(size_t n)
{
	return (n + VB_CACHELINE - 1) & ~(size_t)(VB_CACHELINE - 1);
}

static unsigned bound_of(const struct vb_audit_params *p, enum vb_mode mode)
{
	if (p->space != NULL && p->ops->bypass_bound_of != NULL)
		return p->ops->bypass_bound_of(p->space, p->clients, mode);
	return p->ops->bypass_bound(p->clients, mode);
}

static void set_bounds(struct vb_audit *a, const struct vb_audit_params *p)
{
	bool promised = p->ops->bypass_bound != NULL;

	a->judge_bypass = p->bypass && promised;
	a->judge_granted_only = (p->ops->caps & VB_LOCK_DENIES) != 0;
	if (!promised)
		return;
	for (unsigned mode = 0; mode < VB_MODES; mode++)
		a->bound[mode] = bound_of(p, (enum vb_mode)mode);
}

int vb_audit_open(const struct vb_audit_params *p, struct vb_audit **out)
{
	size_t head = round_up(sizeof(struct vb_audit));
	size_t locks = round_up(p->locks * sizeof(struct audit_lock));
	size_t waits = round_up(p->clients * sizeof(uint64_t));
	size_t clients = p->clients * sizeof(struct audit_client);
	size_t claims = p->claims ? p->claims : VB_CLAIMS_MAX, words = (claims + 63) / 64;
	size_t holds = p->clients * claims * sizeof(struct audit_hold);
	size_t bytes = head + locks + waits + clients + holds + p->clients * words * 8;
	struct vb_audit *a;

	vb_clock_init();
	a = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE,
		 -1, 0);
	if (a == MAP_FAILED)
		return vb_fail(-ENOMEM,
			       "no memory for the auditor of %" PRIu64 " locks (%zu MiB); "
			       "audit fewer locks or switch the audit off",
			       p->locks, bytes >> 20);
	a->bytes = bytes;
	a->locks = p->locks;
	a->clients = p->clients;
	a->claims = (unsigned)claims;
	a->words = (unsigned)words;
	a->fencing = p->fencing;
	set_bounds(a, p);
	a->lock = (struct audit_lock *)((char *)a + head);
	a->waits = (uint64_t *)((char *)a->lock + locks);
	a->client = (struct audit_client *)((char *)a->waits + waits);
	a->hold = (struct audit_hold *)((char *)a->client + clients);
	a->used = (uint64_t *)((char *)a->hold + holds);
	a->watch = (struct vb_lock_watch){
		.called = on_called,
		.queued = on_queued,
		.granted = on_granted,
		.not_granted = on_not_granted,
		.abandoned = on_abandoned,
		.releasing = on_releasing,
		.converting = on_converting,
		.converted = on_converted,
		.released = on_released,
		.ctx = a,
	};
	*out = a;
	return 0;
}

void vb_audit_close(struct vb_audit *a)
{
	if (a != NULL)
		munmap(a, a->bytes);
}

const struct vb_lock_watch *vb_audit_watch(struct vb_audit *a)
{
	return &a->watch;
}

void vb_audit_client_died(struct vb_audit *a, unsigned client)
{
	struct audit_client *c = &a->client[client];
	struct audit_hold *h;
	unsigned at = 0;

	vb_assert(client < a->clients);
	stop_waiting(a, client);
	while ((h = next_hold(a, client, &at)) != NULL) {
		if ((get(&h->word) & 3) == HOLD_HELD) {
			leave_hold(a, client, h);
			continue;
		}
		set(&h->word, (get(&h->word) & ~3ull) | HOLD_FREE);
		mark_used(a, client, at - 1, false);
	}
	c->called1 = 0;
	c->releasing1 = 0;
	memset(c->husks, 0, sizeof(c->husks));
}

void vb_audit_violation(struct vb_audit *a, enum vb_audit_rule rule, unsigned client, uint64_t lock,
			const char *text)
{
	add_violation(a, rule, "lock %" PRIu64 ", client %u: %s", lock, client, text);
}

void vb_audit_counts(const struct vb_audit *a, struct vb_audit_counts *out)
{
	*out = (struct vb_audit_counts){.violations = get(&a->violations)};
	for (unsigned i = 0; i < VB_AUDIT_RULES; i++)
		out->by_rule[i] = get(&a->by_rule[i]);
	for (unsigned i = 0; i < a->clients; i++) {
		const struct audit_client *c = &a->client[i];
		uint64_t passed = get(&c->max_bypass);

		out->checked_ops += get(&c->checked);
		out->lost += get(&c->lost);
		if (passed > out->max_bypass)
			out->max_bypass = passed;
	}
}

void vb_audit_print(const struct vb_audit *a, FILE *to)
{
	uint64_t n = get(&a->violations);

	for (unsigned i = 0; i < AUDIT_STORIES && i < n; i++)
		if (get(&a->stories[i].ready))
			fprintf(to, "%s\n", a->stories[i].text);
	if (n > AUDIT_STORIES)
		fprintf(to, "and %" PRIu64 " more\n", n - AUDIT_STORIES);
}
