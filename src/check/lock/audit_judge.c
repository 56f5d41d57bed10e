/* SPDX-License-Identifier: Apache-2.0 */
/* The auditor's rules at a grant, and what it tells of those who broke one. */
#define VB_LOG_ROOM "check"
#include <inttypes.h>
#include <stdarg.h>

#include "base/log.h"
#include "check/lock/audit_inner.h"

const char *const vb_audit_rule_names[VB_AUDIT_RULES] = {
	[VB_AUDIT_MODE_CONFLICT] = "mode-conflict",
	[VB_AUDIT_EXPIRED_GRANT] = "expired-grant",
	[VB_AUDIT_FOREIGN_RELEASE] = "foreign-release",
	[VB_AUDIT_TOKEN_ORDER] = "token-order",
	[VB_AUDIT_BYPASS] = "bypass",
	[VB_AUDIT_OLDEST_DENIED] = "oldest-denied",
	[VB_AUDIT_NEEDLESS_RECOVERY] = "needless-recovery",
	[VB_AUDIT_OVERDUE] = "overdue",
	[VB_AUDIT_ADRIFT] = "adrift",
	[VB_AUDIT_STUCK] = "stuck",
	[VB_AUDIT_GUARDED_WRITE] = "guarded-write",
	[VB_AUDIT_TOLD_LATE] = "told-late",
	[VB_AUDIT_KEPT_ON] = "kept-on",
	[VB_AUDIT_WRONG_ERROR] = "wrong-error",
};

/* ---- stories ---- */

void audit_add_violation(struct vb_audit *a, enum vb_audit_rule rule, const char *fmt, ...)
{
	struct audit_story *s;
	va_list args;
	uint64_t n;
	int used;

	if (a->forgives >> rule & 1) {
		__atomic_fetch_add(&a->forgiven[rule], 1, __ATOMIC_RELAXED);
		return;
	}
	n = __atomic_fetch_add(&a->violations, 1, __ATOMIC_ACQ_REL);
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

const char *audit_tell_hold(struct hold_text *t, const struct vb_audit *a, unsigned client,
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

/* ---- rules ---- */

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
		while ((h = audit_next_hold(a, i, &at)) != NULL) {
			uint64_t now;

			if (!audit_read_hold(h, &other) || other.lock != ours->lock ||
			    !modes_exclude(other.mode, ours->mode))
				continue;
			now = vb_sched_now(me->ep->sched);
			if (now >= ours->valid_until || now >= other.valid_until)
				continue;
			audit_add_violation(a, VB_AUDIT_MODE_CONFLICT,
					    "lock %" PRIu64
					    " at %.3f us: granted to %s; while held by %s",
					    ours->lock, (double)now / 1e3,
					    audit_tell_hold(&t1, a, me->index, ours),
					    audit_tell_hold(&t2, a, i, &other));
		}
	}
}

static bool in_virtual_time(const struct vb_lock_client *me)
{
	return ((const struct vb_sched_face *)me->ep->sched)->is_virtual;
}

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
		audit_add_violation(a, VB_AUDIT_EXPIRED_GRANT, "lock %" PRIu64 ": granted to %s",
				    h->lock, audit_tell_hold(&t, a, me->index, h));
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
			audit_add_violation(a, VB_AUDIT_TOKEN_ORDER,
					    "lock %" PRIu64 ": granted without a token to %s",
					    h->lock, audit_tell_hold(&t, a, me->index, h));
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
	audit_add_violation(a, VB_AUDIT_TOKEN_ORDER,
			    "lock %" PRIu64 ": token %" PRIu64
			    " had been granted before this grant to %s",
			    h->lock, last, audit_tell_hold(&t, a, me->index, h));
}

void audit_count_bypass(struct vb_audit *a, const struct vb_lock_client *me,
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
		audit_add_violation(a, VB_AUDIT_BYPASS,
				    "lock %" PRIu64
				    ": client %u, queued for %s since %.3f us, was passed %" PRIu64
				    " times where at most %u are promised; last by %s",
				    h->lock, i, mode_name(mode),
				    (double)get_relaxed(&c->queued_at) / 1e3, n, a->bound[mode],
				    audit_tell_hold(&t, a, me->index, h));
	}
}

void audit_judge_passed(struct vb_audit *a, const struct vb_lock_client *me,
			const struct audit_hold *h, uint64_t passed)
{
	struct hold_text t;

	if (!a->judge_bypass || !a->judge_granted_only || passed <= a->bound[h->mode])
		return;
	audit_add_violation(a, VB_AUDIT_BYPASS,
			    "lock %" PRIu64 ": was passed %" PRIu64
			    " times in the queue where at most %u are promised: %s",
			    h->lock, passed, a->bound[h->mode],
			    audit_tell_hold(&t, a, me->index, h));
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

/* Those who were counted before it may exclude it. */
static void judge_counted(struct vb_audit *a, const struct vb_lock_client *me,
			  const struct audit_hold *h, uint64_t before)
{
	uint64_t conflicting = before >> 21 & COUNT_FIELD;

	if (!is_sharing(h->mode))
		conflicting += before & COUNT_FIELD;
	if (vb_unlikely(conflicting != 0))
		find_conflicts(a, me, h);
}

void audit_judge_renewal(struct vb_audit *a, const struct vb_lock_client *me, unsigned slot,
			 const struct audit_hold *h)
{
	uint64_t before;

	audit_enter_hold(a, me, slot, h, &before);
	judge_counted(a, me, h, before);
}

bool audit_judge_grant(struct vb_audit *a, const struct vb_lock_client *me, unsigned slot,
		       const struct audit_hold *h, uint64_t *before)
{
	audit_enter_hold(a, me, slot, h, before);
	if (judge_expiry(a, me, h))
		return false;
	note_grant_time(&a->lock[h->lock], h);
	judge_counted(a, me, h, *before);
	if (h->mode == VB_EXCLUSIVE)
		judge_token(a, me, h);
	return true;
}
