/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lock auditor: see audit.h for what it judges.  Here is what the locks tell it; who holds what is in
 * audit_hold.c, the rules at a grant are in audit_judge.c.
 *
 * Everything lies in one shared mapping: a shadow of 32 bytes for each lock, a dense array of what
 * each client waits for, and for each client its holds, one for each of its claims.  Nothing in it
 * is a pointer into a process, so forked processes use it together.
 *
 * Times are the scheduler's time base: virtual time, or the machine's clock, which is common to
 * processes that were forked after its calibration (vb_audit_open sees to that).
 */
#define VB_LOG_ROOM "check"
#include "check/lock/audit.h"

#include <inttypes.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/log.h"
#include "check/lock/audit_inner.h"
#include "check/lock/watch.h"

/* ---- the calling client ---- */

static struct audit_client *client_of(struct vb_audit *a, const struct vb_lock_client *me)
{
	vb_assert(me->index < a->clients);
	return &a->client[me->index];
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
 * A call that gave up while queued leaves a proxy in the queue, and the client's next call for that
 * lock takes its place over: that call stands where the first one did, and has passed nobody.
 */
static void remember_proxy(struct audit_client *c, uint64_t lock)
{
	struct audit_proxy *h = &c->proxies[c->next_proxy++ % AUDIT_PROXIES];

	*h = (struct audit_proxy){lock + 1, get_relaxed(&c->wait_mode), get_relaxed(&c->called_at)};
}

static uint64_t called_since(struct audit_client *c, uint64_t lock, uint64_t mode, bool queued)
{
	uint64_t at = get_relaxed(&c->called_at);

	for (unsigned i = 0; i < AUDIT_PROXIES; i++) {
		struct audit_proxy *h = &c->proxies[i];

		if (h->lock1 != lock + 1)
			continue;
		if (!queued && h->mode == mode && h->called_at < at)
			at = h->called_at;
		h->lock1 = 0;
	}
	return at;
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

	/* A proxy that queues again after a recovery is nobody's wait. */
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
		audit_judge_passed(a, me, &h, passed);
	}
	set(&c->checked, c->checked + 1);
	if (audit_judge_grant(a, me, claim->slot, &h, &before) && before >> 42 != 0)
		audit_count_bypass(a, me, &h, before >> 42);
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
		remember_proxy(c, lock);
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
	struct audit_hold *h = audit_find_hold(a, me, claim);
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
	audit_leave_hold(a, me->index, h);
}

/*
 * Throughout a conversion the hold is judged in the weaker of the two modes: less is given up
 * before the protocol gives it up, more is had once the protocol has it.
 */
static void on_converting(void *ctx, struct vb_lock_client *me, const struct vb_claim *claim,
			  enum vb_mode to)
{
	struct vb_audit *a = ctx;
	struct audit_hold *h = audit_find_hold(a, me, claim);
	struct audit_hold weaker;
	uint64_t before;

	if (h == NULL || claim->mode == to || !vb_mode_covers(claim->mode, to))
		return;
	weaker = *h;
	weaker.mode = to;
	audit_leave_hold(a, me->index, h);
	audit_enter_hold(a, me, claim->slot, &weaker, &before);
}

/* A conversion that was not granted may have begun a new lease all the same: what is said to be valid
 * from now on must be. */
static bool is_renewed(const struct vb_lock_client *me, const struct vb_claim *claim,
		       const struct audit_hold *h)
{
	uint64_t until = vb_ep_base(me->ep, claim->valid_until_ns);

	return until > h->valid_until && until > vb_sched_now(me->ep->sched);
}

/*
 * A renewal, also by a conversion that was not granted: the hold goes on, for longer, and what the call
 * might have given up is had again.  It keeps the time of its grant, so that its release hears of
 * whoever had the lock in between, and its token, which is not judged anew.
 */
static void on_renewed(struct vb_audit *a, const struct vb_lock_client *me,
		       const struct vb_claim *claim, struct audit_hold *h)
{
	struct audit_hold now = *h;

	now.mode = claim->mode;
	now.valid_until = vb_ep_base(me->ep, claim->valid_until_ns);
	audit_leave_hold(a, me->index, h);
	audit_judge_renewal(a, me, claim->slot, &now);
}

static void on_converted(void *ctx, struct vb_lock_client *me, const struct vb_claim *claim,
			 int err)
{
	struct vb_audit *a = ctx;
	struct audit_client *c = client_of(a, me);
	struct audit_hold *h = audit_find_hold(a, me, claim);
	struct audit_hold now;
	uint64_t before;

	if (h == NULL)
		return;
	if (err != 0 || h->mode == claim->mode) {
		if (is_renewed(me, claim, h))
			on_renewed(a, me, claim, h);
		return;
	}
	now = *h;
	now.mode = claim->mode;
	now.token = claim->token;
	now.granted_at = vb_sched_now(me->ep->sched);
	now.valid_until = vb_ep_base(me->ep, claim->valid_until_ns);
	audit_leave_hold(a, me->index, h);
	set(&c->checked, c->checked + 1);
	audit_judge_grant(a, me, claim->slot, &now, &before);
}

/* As if the holder had died: nobody is hurt if the lock goes to others now. */
static void on_abandoned(void *ctx, struct vb_lock_client *me, const struct vb_claim *claim)
{
	struct vb_audit *a = ctx;
	struct audit_hold *h = audit_find_hold(a, me, claim);

	if (h != NULL)
		audit_leave_hold(a, me->index, h);
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
	audit_add_violation(a, VB_AUDIT_FOREIGN_RELEASE,
			    "lock %" PRIu64
			    ": the release that began at %.3f us reported success although the "
			    "lock had been granted to somebody else at %.3f us; released by %s",
			    lock, (double)c->releasing_at / 1e3, (double)c->releasing_next_at / 1e3,
			    audit_tell_hold(&t, a, me->index, &c->released));
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
	a->watch = (struct vb_lock_watch)VB_LOCK_WATCH(a);
	*out = a;
	return 0;
}

int vb_audit_open_space(struct vb_fabric *f, const struct vb_lock_space_params *p, unsigned clients,
			bool bypass, struct vb_lock_space **space, struct vb_audit **out)
{
	struct vb_audit_params a = {
		.locks = p->locks,
		.clients = clients,
		.claims = p->claims,
		.fencing = p->fencing,
		.bypass = bypass,
	};
	int err = vb_lock_space_open(f, p, space);

	if (err)
		return err;
	a.ops = (*space)->ops;
	a.space = *space;
	return vb_audit_open(&a, out);
}

void vb_audit_forgive(struct vb_audit *a, unsigned rules)
{
	a->forgives = rules;
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

	vb_assert(client < a->clients);
	stop_waiting(a, client);
	audit_leave_all(a, client);
	c->called1 = 0;
	c->releasing1 = 0;
	memset(c->proxies, 0, sizeof(c->proxies));
}

void vb_audit_violation(struct vb_audit *a, enum vb_audit_rule rule, unsigned client, uint64_t lock,
			const char *text)
{
	audit_add_violation(a, rule, "lock %" PRIu64 ", client %u: %s", lock, client, text);
}

void vb_audit_counts(const struct vb_audit *a, struct vb_audit_counts *out)
{
	*out = (struct vb_audit_counts){.violations = get(&a->violations)};
	for (unsigned i = 0; i < VB_AUDIT_RULES; i++) {
		out->by_rule[i] = get(&a->by_rule[i]);
		out->forgiven[i] = get_relaxed(&a->forgiven[i]);
	}
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
