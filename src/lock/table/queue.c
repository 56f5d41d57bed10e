/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Granted groups, queues and deadlock policies of the lock table (Barthels et al., section 3.2.1,
 * figure 2).  Nothing here sends, awaits or reads a clock.
 *
 *	lock (in a hash, while held or awaited)
 *	+---------+--------------------------------+
 *	| granted | IS IX S U SIX X: one count each|
 *	+---------+--------------------------------+
 *	| holders    | h -> h -> h                 |
 *	| converters | h -> h       hold and want more: ahead of the queue
 *	| waiters    | w -> w -> w  first come, first served
 *	+------------+-----------------------------+
 *
 * Who is granted.  A request is granted as soon as its mode excludes none that others hold, that a
 * converter wants, or that a waiter ahead of it wants.  So no request is passed by one that would
 * exclude it, and one that is in nobody's way does not queue: each waits for exactly those that
 * exclude it.  Converters come before all waiters, and among themselves in the order of asking.
 *
 * Wait-Die needs that exactness: it compares a request with the *waiters* ahead of it, too, and a
 * conversion that is let in ahead of younger waiters kills them (doc/locks/table.md, "Policies").
 *
 * Bounds.  All requests lie in one array; when it is full, requests are refused with -ENOBUFS.
 * Locks lie in another of the same size, since each that is in memory has a request.
 */
#define VB_LOG_ROOM "lock"
#include "lock/table/table.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"

struct vb_tq_lock {
	struct vb_list in_bucket; /* or in the free list */
	uint64_t lock;
	uint32_t granted[VB_MODES];
	struct vb_list holders, converters, waiters;
};

struct vb_tq {
	struct vb_tq_params p;
	unsigned excluded[VB_MODES]; /* by mode: a bit for each that it excludes */
	struct vb_tq_req *reqs;
	struct vb_tq_lock *locks;
	struct vb_list *buckets;
	unsigned bucket_mask;
	struct vb_list free_reqs, free_locks;
	struct vb_list expiry;  /* holds, the first to end first: leases are all of one length */
	struct vb_list pending; /* waits that may be timed out, the longest first */
	unsigned fresh_reqs, fresh_locks; /* of the arrays, how many have ever been used */
	unsigned waiting;                 /* requests that wait, converters too */
	unsigned holds, in_use;
	uint64_t ticket;
};

static unsigned bit(enum vb_mode mode)
{
	return 1u << mode;
}

/* ---- the right rules ---- */

/* The older waits for the younger, and for no other. */
static bool older_waits(const struct vb_tq_req *r, const struct vb_tq_req *other)
{
	if (r->age != other->age)
		return r->age < other->age;
	return r->owner->name < other->owner->name;
}

/* Noted when it is asked for: a conversion that is refused stays where it came from. */
static void note_conversion(struct vb_tq_req *r, uint64_t number)
{
	r->converted = number;
	r->before = r->mode;
}

const struct vb_tq_rules vb_tq_rules = {
	.exclude = vb_modes_exclude,
	.may_wait = older_waits,
	.withdraw = vb_tq_leave,
	.converts = note_conversion,
};

/* ---- opening ---- */

static void init_lists(struct vb_tq *q)
{
	vb_list_init(&q->free_reqs);
	vb_list_init(&q->free_locks);
	vb_list_init(&q->expiry);
	vb_list_init(&q->pending);
	for (unsigned a = 0; a < VB_MODES; a++)
		for (unsigned b = 0; b < VB_MODES; b++)
			if (q->p.rules->exclude((enum vb_mode)a, (enum vb_mode)b))
				q->excluded[a] |= bit((enum vb_mode)b);
}

int vb_tq_open(const struct vb_tq_params *p, struct vb_tq **out)
{
	struct vb_tq *q = calloc(1, sizeof(*q));
	unsigned buckets = 64;

	while (buckets < p->requests)
		buckets *= 2;
	if (q != NULL) {
		q->p = *p;
		q->bucket_mask = buckets - 1;
		q->reqs = calloc(p->requests, sizeof(*q->reqs));
		q->locks = calloc(p->requests, sizeof(*q->locks));
		q->buckets = calloc(buckets, sizeof(*q->buckets));
	}
	if (q == NULL || q->reqs == NULL || q->locks == NULL || q->buckets == NULL) {
		vb_tq_close(q);
		return vb_fail(-ENOMEM, "no memory for a lock table of %u requests", p->requests);
	}
	init_lists(q);
	*out = q;
	return 0;
}

void vb_tq_close(struct vb_tq *q)
{
	if (q == NULL)
		return;
	free(q->reqs);
	free(q->locks);
	free(q->buckets);
	free(q);
}

void vb_tq_owner_init(struct vb_tq_owner *o, uint64_t name)
{
	o->name = name;
	vb_list_init(&o->reqs);
}

/* ---- locks ---- */

static struct vb_list *bucket_of(struct vb_tq *q, uint64_t lock)
{
	struct vb_list *b = &q->buckets[(lock * 0x9e3779b97f4a7c15ull) >> 32 & q->bucket_mask];

	/* Memory that was never used is not touched before its time. */
	if (vb_unlikely(b->next == NULL))
		vb_list_init(b);
	return b;
}

static struct vb_tq_lock *find_lock(struct vb_tq *q, uint64_t lock)
{
	vb_list_for_each (it, bucket_of(q, lock)) {
		struct vb_tq_lock *l = vb_container_of(it, struct vb_tq_lock, in_bucket);

		if (l->lock == lock)
			return l;
	}
	return NULL;
}

static struct vb_tq_lock *make_lock(struct vb_tq *q, uint64_t lock)
{
	struct vb_list *place = vb_list_pop(&q->free_locks);
	struct vb_tq_lock *l = place != NULL ? vb_container_of(place, struct vb_tq_lock, in_bucket)
					     : &q->locks[q->fresh_locks++];

	l->lock = lock;
	memset(l->granted, 0, sizeof(l->granted));
	vb_list_init(&l->holders);
	vb_list_init(&l->converters);
	vb_list_init(&l->waiters);
	vb_list_push(bucket_of(q, lock), &l->in_bucket);
	return l;
}

static void drop_lock_if_free(struct vb_tq *q, struct vb_tq_lock *l)
{
	if (!vb_list_empty(&l->holders) || !vb_list_empty(&l->waiters))
		return;
	vb_list_remove(&l->in_bucket);
	vb_list_push(&q->free_locks, &l->in_bucket);
}

static struct vb_tq_req *holder(struct vb_list *it)
{
	return vb_container_of(it, struct vb_tq_req, in_lock);
}

static struct vb_tq_req *converter(struct vb_list *it)
{
	return vb_container_of(it, struct vb_tq_req, in_convert);
}

static bool holds(const struct vb_tq_req *r)
{
	return r->state == VB_TQ_HELD || r->state == VB_TQ_CONVERTING;
}

/* A bit for each mode that a request other than r holds. */
static unsigned held_by_others(const struct vb_tq_lock *l, const struct vb_tq_req *r)
{
	unsigned modes = 0;

	for (unsigned m = 0; m < VB_MODES; m++)
		if (l->granted[m] > (r != NULL && holds(r) && r->mode == (enum vb_mode)m))
			modes |= bit((enum vb_mode)m);
	return modes;
}

/* A bit for each mode that converters before `upto` want (NULL: all). */
static unsigned wanted_by_converters(const struct vb_tq_lock *l, const struct vb_tq_req *upto)
{
	unsigned modes = 0;

	vb_list_for_each (it, (struct vb_list *)&l->converters) {
		if (converter(it) == upto)
			break;
		modes |= bit(converter(it)->target);
	}
	return modes;
}

static unsigned wanted_by_waiters(const struct vb_tq_lock *l)
{
	unsigned modes = 0;

	vb_list_for_each (it, (struct vb_list *)&l->waiters)
		modes |= bit(holder(it)->mode);
	return modes;
}

/* ---- requests ---- */

static struct vb_tq_req *make_req(struct vb_tq *q, struct vb_tq_owner *o,
				  const struct vb_tq_want *w, struct vb_tq_lock *l, uint64_t now_ns)
{
	struct vb_list *place = vb_list_pop(&q->free_reqs);
	struct vb_tq_req *r = place != NULL ? holder(place) : &q->reqs[q->fresh_reqs++];

	*r = (struct vb_tq_req){
		.lock = l,
		.owner = o,
		.age = w->age,
		.number = w->number,
		.asked_ns = now_ns,
		.mode = w->mode,
		.before = w->mode,
		.bounded = w->bounded,
	};
	vb_list_init(&r->in_lock);
	vb_list_init(&r->in_expiry);
	vb_list_init(&r->in_convert);
	vb_list_init(&r->in_pending);
	vb_list_push(&o->reqs, &r->in_owner);
	q->in_use++;
	return r;
}

static void free_req(struct vb_tq *q, struct vb_tq_req *r)
{
	struct vb_tq_lock *l = r->lock;

	vb_list_remove(&r->in_lock);
	vb_list_remove(&r->in_owner);
	r->state = VB_TQ_FREE;
	r->lock = NULL;
	vb_list_push(&q->free_reqs, &r->in_lock);
	q->in_use--;
	drop_lock_if_free(q, l);
}

static void start_lease(struct vb_tq *q, struct vb_tq_req *r, uint64_t now_ns)
{
	r->granted_ns = now_ns;
	vb_list_remove(&r->in_expiry);
	vb_list_push(&q->expiry, &r->in_expiry);
}

static void hold_from_now(struct vb_tq *q, struct vb_tq_req *r, uint64_t now_ns)
{
	vb_list_remove(&r->in_lock);
	vb_list_push(&r->lock->holders, &r->in_lock);
	r->state = VB_TQ_HELD;
	r->lock->granted[r->mode]++;
	q->holds++;
	start_lease(q, r, now_ns);
}

static void grant(struct vb_tq *q, struct vb_tq_req *r, uint64_t now_ns)
{
	r->ticket = r->token = ++q->ticket;
	hold_from_now(q, r, now_ns);
	q->p.noted(q->p.ctx, r, false);
}

static void change_mode(struct vb_tq *q, struct vb_tq_req *r, enum vb_mode mode, uint64_t now_ns)
{
	r->lock->granted[r->mode]--;
	r->lock->granted[mode]++;
	r->mode = mode;
	r->state = VB_TQ_HELD;
	/* A token must grow with each exclusive grant, also with one by conversion. */
	if (mode == VB_EXCLUSIVE)
		r->token = ++q->ticket;
	start_lease(q, r, now_ns);
	q->p.noted(q->p.ctx, r, false);
}

static void begin_wait(struct vb_tq *q, struct vb_tq_req *r)
{
	q->waiting++;
	if (q->p.policy == VB_LOCKTAB_BOUNDED_WAIT && r->bounded)
		vb_list_push(&q->pending, &r->in_pending);
}

static void end_wait(struct vb_tq *q, struct vb_tq_req *r)
{
	q->waiting--;
	vb_list_remove(&r->in_pending);
	vb_list_remove(&r->in_convert);
}

void vb_tq_unlink(struct vb_tq *q, struct vb_tq_req *r)
{
	if (r->state != VB_TQ_HELD)
		end_wait(q, r);
	if (holds(r)) {
		r->lock->granted[r->mode]--;
		q->holds--;
		vb_list_remove(&r->in_expiry);
		q->p.noted(q->p.ctx, r, true);
	}
	free_req(q, r);
}

/* ---- who is next ---- */

static bool is_alive(struct vb_tq *q, const struct vb_tq_req *r)
{
	return q->p.alive == NULL || q->p.alive(q->p.ctx, r->owner);
}

static void wake_converters(struct vb_tq *q, struct vb_tq_lock *l, uint64_t now_ns)
{
	unsigned ahead = 0;

	vb_list_for_each (it, &l->converters) {
		struct vb_tq_req *r = converter(it);

		if (q->excluded[r->target] & (held_by_others(l, r) | ahead)) {
			ahead |= bit(r->target);
			continue;
		}
		end_wait(q, r);
		change_mode(q, r, r->target, now_ns);
		q->p.decided(q->p.ctx, r, 0);
	}
}

/* Something has ended: grants all that can be granted now.  One pass does, since a grant makes no
 * other possible. */
static void wake(struct vb_tq *q, struct vb_tq_lock *l, uint64_t now_ns)
{
	unsigned ahead;

	wake_converters(q, l, now_ns);
	ahead = wanted_by_converters(l, NULL);
	vb_list_for_each (it, &l->waiters) {
		struct vb_tq_req *r = holder(it);

		if (ahead & bit(VB_EXCLUSIVE))
			return;
		if (q->excluded[r->mode] & (held_by_others(l, NULL) | ahead)) {
			ahead |= bit(r->mode);
			continue;
		}
		if (!is_alive(q, r)) {
			vb_tq_unlink(q, r);
			continue;
		}
		end_wait(q, r);
		grant(q, r, now_ns);
		q->p.decided(q->p.ctx, r, 0);
	}
}

/* ---- policies ---- */

/* May a request that excludes what others hold and want wait for all of them?  `target`: its
 * mode. */
static bool may_wait_for_all(const struct vb_tq *q, const struct vb_tq_req *r, enum vb_mode target,
			     bool converts)
{
	const struct vb_tq_rules *rules = q->p.rules;
	unsigned excluded = q->excluded[target];

	vb_list_for_each (it, &r->lock->holders)
		if (holder(it) != r && excluded & bit(holder(it)->mode) &&
		    !rules->may_wait(r, holder(it)))
			return false;
	vb_list_for_each (it, &r->lock->converters)
		if (converter(it) != r && excluded & bit(converter(it)->target) &&
		    !rules->may_wait(r, converter(it)))
			return false;
	if (converts)
		return true;
	vb_list_for_each (it, &r->lock->waiters)
		if (holder(it) != r && excluded & bit(holder(it)->mode) &&
		    !rules->may_wait(r, holder(it)))
			return false;
	return true;
}

/* Wait-Die: a conversion has come in ahead of the waiters; those that may not wait for it die. */
static void pass_judgement(struct vb_tq *q, const struct vb_tq_req *r, enum vb_mode target,
			   uint64_t now_ns)
{
	struct vb_tq_lock *l = r->lock;

	if (q->p.policy != VB_LOCKTAB_WAIT_DIE)
		return;
	vb_list_for_each (it, &l->waiters) {
		struct vb_tq_req *w = holder(it);

		if (!(q->excluded[w->mode] & bit(target)) || q->p.rules->may_wait(w, r))
			continue;
		q->p.decided(q->p.ctx, w, -EAGAIN);
		vb_tq_unlink(q, w);
	}
	/* A request may have waited for one that died, and for no other. */
	wake(q, l, now_ns);
}

/*
 * Two that convert can wait for each other, or three in a ring: each waits for what the next
 * holds or, if that one is ahead of it, wants.  Would one more wait close a ring?
 */
static bool waits_for(const struct vb_tq *q, const struct vb_tq_req *a, enum vb_mode target,
		      const struct vb_tq_req *b, bool b_ahead)
{
	unsigned excluded = q->excluded[target];

	return a != b && (excluded & bit(b->mode) || (b_ahead && excluded & bit(b->target)));
}

static bool closes_ring(struct vb_tq *q, struct vb_tq_req *r, enum vb_mode target)
{
	struct vb_list *all = &r->lock->converters;
	bool more = true;

	/* All that convert already are ahead of r. */
	vb_list_for_each (it, all)
		converter(it)->reached = waits_for(q, r, target, converter(it), true);
	while (more) {
		more = false;
		vb_list_for_each (it, all) {
			struct vb_tq_req *a = converter(it);
			bool ahead = true;

			if (!a->reached)
				continue;
			if (q->excluded[a->target] & bit(r->mode))
				return true;
			vb_list_for_each (jt, all) {
				struct vb_tq_req *b = converter(jt);

				ahead &= a != b;
				if (b->reached || !waits_for(q, a, a->target, b, ahead))
					continue;
				b->reached = true;
				more = true;
			}
		}
	}
	return false;
}

/* ---- asking ---- */

static int make_room(struct vb_tq *q, uint64_t now_ns)
{
	if (q->in_use == q->p.requests)
		vb_tq_tend(q, now_ns);
	return q->in_use == q->p.requests ? -ENOBUFS : 0;
}

int vb_tq_request(struct vb_tq *q, struct vb_tq_owner *o, const struct vb_tq_want *w,
		  uint64_t now_ns, struct vb_tq_req **out)
{
	struct vb_tq_lock *l;
	struct vb_tq_req *r;
	unsigned in_the_way;

	if (make_room(q, now_ns) != 0)
		return -ENOBUFS;
	l = find_lock(q, w->lock);
	if (l == NULL)
		l = make_lock(q, w->lock);
	in_the_way = held_by_others(l, NULL) | wanted_by_converters(l, NULL) | wanted_by_waiters(l);
	r = make_req(q, o, w, l, now_ns);
	if (!(q->excluded[w->mode] & in_the_way)) {
		grant(q, r, now_ns);
		*out = r;
		return 0;
	}
	if (w->no_wait || q->p.policy == VB_LOCKTAB_NO_WAIT ||
	    (q->p.policy == VB_LOCKTAB_WAIT_DIE && !may_wait_for_all(q, r, w->mode, false))) {
		free_req(q, r);
		return -EAGAIN;
	}
	r->state = VB_TQ_WAITING;
	vb_list_push(&l->waiters, &r->in_lock);
	begin_wait(q, r);
	*out = r;
	return -EINPROGRESS;
}

int vb_tq_convert(struct vb_tq *q, struct vb_tq_req *r, const struct vb_tq_want *w, uint64_t now_ns)
{
	struct vb_tq_lock *l = r->lock;

	q->p.rules->converts(r, w->number);
	r->asked_ns = now_ns;
	if (vb_mode_covers(r->mode, w->mode)) {
		change_mode(q, r, w->mode, now_ns);
		wake(q, l, now_ns);
		return 0;
	}
	if (!(q->excluded[w->mode] & (held_by_others(l, r) | wanted_by_converters(l, NULL)))) {
		change_mode(q, r, w->mode, now_ns);
		pass_judgement(q, r, w->mode, now_ns);
		return 0;
	}
	if (w->no_wait || q->p.policy == VB_LOCKTAB_NO_WAIT)
		return -EAGAIN;
	if (closes_ring(q, r, w->mode))
		return -EDEADLK;
	if (q->p.policy == VB_LOCKTAB_WAIT_DIE && !may_wait_for_all(q, r, w->mode, true))
		return -EAGAIN;
	r->state = VB_TQ_CONVERTING;
	r->target = w->mode;
	r->bounded = true;
	vb_list_push(&l->converters, &r->in_convert);
	begin_wait(q, r);
	pass_judgement(q, r, w->mode, now_ns);
	return -EINPROGRESS;
}

/* ---- leaving ---- */

void vb_tq_leave(struct vb_tq *q, struct vb_tq_req *r, uint64_t now_ns)
{
	struct vb_tq_lock *l = r->lock;

	vb_tq_unlink(q, r);
	/* If that was the last request, the lock is free and its lists are empty. */
	wake(q, l, now_ns);
}

void vb_tq_stop_converting(struct vb_tq *q, struct vb_tq_req *r, uint64_t now_ns)
{
	end_wait(q, r);
	r->state = VB_TQ_HELD;
	wake(q, r->lock, now_ns);
}

void vb_tq_undo(struct vb_tq *q, struct vb_tq_req *r, uint64_t number, uint64_t now_ns)
{
	if (r->converted != number)
		return;
	r->converted = 0;
	if (r->state == VB_TQ_CONVERTING) {
		vb_tq_stop_converting(q, r, now_ns);
	} else if (r->mode != r->before && vb_mode_covers(r->mode, r->before)) {
		change_mode(q, r, r->before, now_ns);
		wake(q, r->lock, now_ns);
	}
}

int vb_tq_restore(struct vb_tq *q, struct vb_tq_owner *o, const struct vb_tq_want *w,
		  uint64_t ticket, uint64_t now_ns)
{
	struct vb_tq_lock *l;
	struct vb_tq_req *r;

	if (make_room(q, now_ns) != 0)
		return -ENOBUFS;
	l = find_lock(q, w->lock);
	if (l != NULL && q->excluded[w->mode] & held_by_others(l, NULL))
		return -VB_ELOST;
	if (l == NULL)
		l = make_lock(q, w->lock);
	r = make_req(q, o, w, l, now_ns);
	r->ticket = r->token = ticket;
	vb_tq_skip_tickets(q, ticket);
	hold_from_now(q, r, now_ns);
	q->p.noted(q->p.ctx, r, false);
	return 0;
}

void vb_tq_renew(struct vb_tq *q, struct vb_tq_req *r, uint64_t now_ns)
{
	start_lease(q, r, now_ns);
}

/* ---- time ---- */

static bool over(uint64_t since_ns, uint64_t term_ns, uint64_t now_ns)
{
	return term_ns != VB_FOREVER && now_ns >= since_ns + term_ns;
}

static void end_leases(struct vb_tq *q, uint64_t now_ns)
{
	while (!vb_list_empty(&q->expiry)) {
		struct vb_tq_req *r = vb_container_of(q->expiry.next, struct vb_tq_req, in_expiry);

		if (!over(r->granted_ns, q->p.lease_ns, now_ns))
			return;
		if (r->state == VB_TQ_CONVERTING)
			q->p.decided(q->p.ctx, r, -VB_ELOST);
		vb_tq_leave(q, r, now_ns);
	}
}

static void end_waits(struct vb_tq *q, uint64_t now_ns)
{
	while (!vb_list_empty(&q->pending)) {
		struct vb_tq_req *r =
			vb_container_of(q->pending.next, struct vb_tq_req, in_pending);

		if (!over(r->asked_ns, q->p.wait_ns, now_ns))
			return;
		q->p.decided(q->p.ctx, r, -ETIMEDOUT);
		if (r->state == VB_TQ_CONVERTING)
			vb_tq_stop_converting(q, r, now_ns);
		else
			vb_tq_leave(q, r, now_ns);
	}
}

uint64_t vb_tq_tend(struct vb_tq *q, uint64_t now_ns)
{
	uint64_t next = VB_FOREVER, at;

	end_leases(q, now_ns);
	end_waits(q, now_ns);
	/* The end of a lease matters only if there is a waiter. */
	if (q->waiting > 0 && !vb_list_empty(&q->expiry) && q->p.lease_ns != VB_FOREVER)
		next = vb_container_of(q->expiry.next, struct vb_tq_req, in_expiry)->granted_ns +
		       q->p.lease_ns;
	if (!vb_list_empty(&q->pending)) {
		at = vb_container_of(q->pending.next, struct vb_tq_req, in_pending)->asked_ns +
		     q->p.wait_ns;
		next = at < next ? at : next;
	}
	return next;
}

/* ---- looking ---- */

struct vb_tq_req *vb_tq_by_ticket(const struct vb_tq_owner *o, uint64_t lock, uint64_t ticket)
{
	vb_list_for_each (it, (struct vb_list *)&o->reqs) {
		struct vb_tq_req *r = vb_container_of(it, struct vb_tq_req, in_owner);

		if (holds(r) && r->ticket == ticket && r->lock->lock == lock)
			return r;
	}
	return NULL;
}

struct vb_tq_req *vb_tq_by_number(const struct vb_tq_owner *o, uint64_t number)
{
	vb_list_for_each (it, (struct vb_list *)&o->reqs) {
		struct vb_tq_req *r = vb_container_of(it, struct vb_tq_req, in_owner);

		if (r->number == number || r->converted == number)
			return r;
	}
	return NULL;
}

uint64_t vb_tq_lock_number(const struct vb_tq_req *r)
{
	return r->lock->lock;
}

struct vb_tq_req *vb_tq_any_hold(const struct vb_tq_owner *o)
{
	vb_list_for_each (it, (struct vb_list *)&o->reqs) {
		struct vb_tq_req *r = vb_container_of(it, struct vb_tq_req, in_owner);

		if (holds(r))
			return r;
	}
	return NULL;
}

uint64_t vb_tq_last_ticket(const struct vb_tq *q)
{
	return q->ticket;
}

void vb_tq_skip_tickets(struct vb_tq *q, uint64_t upto)
{
	if (upto > q->ticket)
		q->ticket = upto;
}

unsigned vb_tq_holds(const struct vb_tq *q)
{
	return q->holds;
}

unsigned vb_tq_locks(const struct vb_tq *q)
{
	unsigned n = 0;

	for (unsigned i = 0; i < q->fresh_locks; i++)
		n += !vb_list_empty(&q->locks[i].holders) || !vb_list_empty(&q->locks[i].waiters);
	return n;
}

void vb_tq_each_hold(const struct vb_tq *q, void (*fn)(void *ctx, const struct vb_tq_req *r),
		     void *ctx)
{
	vb_list_for_each (it, (struct vb_list *)&q->expiry)
		fn(ctx, vb_container_of(it, struct vb_tq_req, in_expiry));
}

bool vb_tq_held(struct vb_tq *q, uint64_t lock, enum vb_mode *mode, unsigned *holders,
		const struct vb_tq_owner **alone)
{
	static const enum vb_mode by_strength[VB_MODES] = {VB_EXCLUSIVE, VB_SHARED_INTENT_EXCLUSIVE,
							   VB_UPDATE,    VB_INTENT_EXCLUSIVE,
							   VB_SHARED,    VB_INTENT_SHARED};
	const struct vb_tq_lock *l = find_lock(q, lock);
	unsigned strongest = 0;

	*holders = 0;
	*alone = NULL;
	for (unsigned m = 0; l != NULL && m < VB_MODES; m++)
		*holders += l->granted[m];
	if (*holders == 0)
		return false;
	while (l->granted[by_strength[strongest]] == 0)
		strongest++;
	*mode = by_strength[strongest];
	if (strongest > 2)
		return true;
	vb_list_for_each (it, (struct vb_list *)&l->holders) {
		const struct vb_tq_req *r = vb_container_of(it, struct vb_tq_req, in_lock);

		if (r->mode == *mode)
			*alone = r->owner;
	}
	return true;
}
