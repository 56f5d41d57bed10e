/* SPDX-License-Identifier: Apache-2.0 */
/* A client's calls that are started now and end later, on a ring (task/ring.c). */
#define VB_LOG_ROOM "lock"
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/sometimes.h"
#include "fabric/opened.h"
#include "lock/visit.h"
#include "task/ring.h"

struct started {
	struct vb_lock_client *client;
	struct vb_grant *grant;
	uint64_t lock;
	uint64_t timeout_ns;
	enum vb_mode mode;
};
_Static_assert(sizeof(struct started) <= sizeof(((struct vb_ring_op *)NULL)->own), "it fits");

static int run_acquire(struct vb_ring_op *op)
{
	struct started s;

	memcpy(&s, op->own, sizeof(s));
	return vb_lock_acquire(s.client, s.lock, s.mode, s.timeout_ns, s.grant);
}

/* On a host: the timeout counts from the start, and is when it is over. */
static int run_hosted_acquire(struct vb_ring_op *op)
{
	struct started s;

	memcpy(&s, op->own, sizeof(s));
	return vb_lock_acquire(s.client, s.lock, s.mode, vb_lock_visit_left(s.client, s.timeout_ns),
			       s.grant);
}

static int run_release(struct vb_ring_op *op)
{
	struct started s;

	memcpy(&s, op->own, sizeof(s));
	return vb_lock_release(s.client, s.grant);
}

/* ---- keeping ---- */

/* Parts of what a lease has left when it is told: renewed when half is over, and given up a quarter
 * before the end, at most so many tries later. */
#define KEEP_HALF  2u
#define KEEP_WARN  4u
#define KEEP_TRIES 4u

/* Renews it until last_ns at the latest. */
static int renew_by(const struct started *s, uint64_t last_ns, uint64_t pause_ns)
{
	struct vb_ep *ep = s->client->ep;
	uint64_t now;
	int err;

	for (unsigned tries = 0;; tries++) {
		now = vb_ep_now(ep);
		err = vb_lock_renew(s->client, s->grant, last_ns > now ? last_ns - now : 0);
		if (err == 0 || err == -VB_ELOST || err == -ECANCELED || tries == KEEP_TRIES ||
		    vb_ep_now(ep) + pause_ns >= last_ns)
			return err;
		VB_SOMETIMES(1000,
			     "rpc traditional traditional-ro: a renewal of what is kept is tried "
			     "again");
		err = vb_ep_sleep(ep, pause_ns);
		if (err)
			return err;
	}
}

/* Cancelled: also between two renewals, when the lease may be over.  Where the thread has ended that began it,
 * nobody is left who could cancel it, or give the lock back. */
static int run_keep(struct vb_ring_op *op)
{
	struct started s;
	int err;

	memcpy(&s, op->own, sizeof(s));
	/* On a host nobody has looked yet. */
	err = vb_lock_renews(s.client, s.grant);
	if (err <= 0)
		return err;
	err = 0;
	while (err == 0) {
		uint64_t end = s.grant->claim->valid_until_ns, now = vb_ep_now(s.client->ep);
		uint64_t left = end > now ? end - now : 0;

		err = vb_ep_sleep(s.client->ep, left / KEEP_HALF);
		if (err == 0 && vb_sched_is_orphan(s.client->ep->sched))
			err = -ECANCELED;
		if (err == 0)
			err = renew_by(&s, end - left / KEEP_WARN, left / KEEP_WARN / KEEP_TRIES);
	}
	return vb_lock_valid(s.client, s.grant) ? err : -VB_ELOST;
}

/* ---- what is started ---- */

/* The ring and the client are this thread's, and the client has nothing under way.  Or they are a host's, and
 * that is looked at there. */
static int check(struct vb_ring *ring, const struct vb_lock_client *me)
{
	struct vb_host *host = vb_ring_host(ring);
	int err;

	if (host != NULL && me->ep->host == host)
		return vb_host_check(host);
	if (host != NULL || vb_ep_is_away(me->ep))
		return vb_fail(-VB_EFOREIGN,
			       "the ring and the client are not of one host: open both on "
			       "it (vb_host_ring_open, vb_host_client_open)");
	err = vb_ep_check(me->ep);
	if (err)
		return err;
	if (vb_ring_sched(ring) != me->ep->sched)
		return vb_fail(-VB_EFOREIGN, "the ring and the client are of two threads: a thread "
					     "starts calls of its clients on rings of its own");
	return 0;
}

/* Again, inside: entering may have given others a turn, who may have begun a call of the client's. */
static int check_inside(const struct vb_ring *ring, const struct vb_lock_client *me)
{
	return vb_ring_own(ring) != NULL ? vb_ep_check(me->ep) : 0;
}

static int start(struct vb_ring_op *op, const struct started *call, uint64_t *id)
{
	struct vb_sched *s = call->client->ep->sched;
	bool hosted = vb_ring_host(op->ring) != NULL;
	int err;

	op->caller = &call->client->ep->caller;
	memcpy(op->own, call, sizeof(*call));
	err = vb_ring_go(op, id);
	if (!hosted)
		vb_keeper_settle(s);
	return err;
}

/* Whether nobody is waited for in a try.  One that has to give back what it took may wait for who came behind. */
static bool tries_at_once(const struct vb_lock_client *me, uint64_t lock, enum vb_mode mode)
{
	const struct vb_lock_space *s = me->space;

	return (vb_likely(me->at_once) ||
		(lock < s->locks && vb_lock_is_at_once(me, vb_lock_entry(s, lock)))) &&
	       (mode == VB_SHARED || s->ops->try_verbs == 0);
}

/* Whether it may: of which lock it is, vb_lock_release_now knows. */
static bool releases_at_once(const struct vb_lock_client *me)
{
	return vb_likely(me->at_once) || me->near_at_once;
}

static int acquire_later(struct vb_ring *ring, const struct started *call, void *tag, uint64_t *id)
{
	struct vb_ring_op *op;
	int err = vb_ring_take(ring, tag, &op);

	VB_SOMETIMES_IF(tries_at_once(call->client, call->lock, call->mode), 200,
			"once: what cannot be had at once is waited for in a task");
	if (err)
		return err;
	op->run = vb_ring_own(ring) != NULL ? run_acquire : run_hosted_acquire;
	return start(op, call, id);
}

/* What ends at once may yet give others a turn, where a verb is refused (a successor without room for a message):
 * meanwhile the client is this call's. */
static int try_alone(const struct started *s)
{
	VB_EP_CALL(call, s->client->ep);
	if (call.err)
		return call.err;
	return vb_lock_try_now(s->client, s->lock, s->mode, s->grant);
}

static int release_alone(const struct started *s)
{
	VB_EP_CALL(call, s->client->ep);
	if (call.err)
		return call.err;
	return vb_lock_release_now(s->client, s->grant);
}

static VB_NOINLINE int acquire_kept(struct vb_ring *ring, struct started *call, void *tag,
				    uint64_t *id)
{
	struct vb_lock_client *me = call->client;
	int err = check(ring, me);

	if (err)
		return err;
	VB_SCHED_INSIDE(vb_ring_own(ring));
	err = check_inside(ring, me);
	if (err)
		return err;
	if (vb_ring_own(ring) != NULL && tries_at_once(me, call->lock, call->mode)) {
		err = try_alone(call);
		VB_SOMETIMES_IF(err == 0, 500, "once: a try that ends at once beside other calls");
		if (err != -EAGAIN)
			return err;
	}
	if (vb_ring_own(ring) == NULL)
		call->timeout_ns = vb_lock_visit_until(me, call->timeout_ns);
	return acquire_later(ring, call, tag, id);
}

/* What ends at once does so on the caller's stack; a task would cost more than a lock that is free. */
int vb_lock_acquire_start(struct vb_ring *ring, struct vb_lock_client *me, uint64_t lock,
			  enum vb_mode mode, uint64_t timeout_ns, struct vb_grant *out, void *tag,
			  uint64_t *id)
{
	struct started call = {
		.client = me, .grant = out, .lock = lock, .timeout_ns = timeout_ns, .mode = mode};
	int err;

	if (vb_any_null(ring, me, out))
		return -EINVAL;
	if (vb_likely(vb_ring_is_quick(ring, me->ep->sched)) && tries_at_once(me, lock, mode)) {
		err = vb_lock_try_now(me, lock, mode, out);
		return vb_likely(err != -EAGAIN) ? err : acquire_later(ring, &call, tag, id);
	}
	return acquire_kept(ring, &call, tag, id);
}

static int release_later(struct vb_ring *ring, const struct started *call, void *tag, uint64_t *id)
{
	struct vb_ring_op *op;
	int err = vb_ring_take(ring, tag, &op);

	VB_SOMETIMES_IF(vb_lock_is_at_once(call->client,
					   vb_lock_entry(call->client->space, call->grant->lock)),
			500,
			"mcs ncosed rma-rw shiftlock: a release begins at once and goes on in a "
			"task");
	if (err)
		return err;
	op->run = run_release;
	return start(op, call, id);
}

static VB_NOINLINE int release_kept(struct vb_ring *ring, const struct started *call, void *tag,
				    uint64_t *id)
{
	int err = check(ring, call->client);

	if (err)
		return err;
	VB_SCHED_INSIDE(vb_ring_own(ring));
	err = check_inside(ring, call->client);
	if (err)
		return err;
	if (vb_ring_own(ring) != NULL && releases_at_once(call->client)) {
		err = release_alone(call);
		VB_SOMETIMES_IF(err == 0, 500,
				"once: a release that ends at once beside other calls");
		if (err != -EINPROGRESS)
			return err;
	}
	return release_later(ring, call, tag, id);
}

int vb_lock_release_start(struct vb_ring *ring, struct vb_lock_client *me, struct vb_grant *grant,
			  void *tag, uint64_t *id)
{
	const struct started call = {.client = me, .grant = grant};
	int err;

	if (vb_any_null(ring, me, grant))
		return -EINVAL;
	if (vb_likely(vb_ring_is_quick(ring, me->ep->sched)) && releases_at_once(me)) {
		err = vb_lock_release_now(me, grant);
		return vb_likely(err != -EINPROGRESS) ? err : release_later(ring, &call, tag, id);
	}
	return release_kept(ring, &call, tag, id);
}

int vb_lock_keep_start(struct vb_ring *ring, struct vb_lock_client *me, struct vb_grant *grant,
		       void *tag, uint64_t *id)
{
	struct vb_ring_op *op;
	int err;

	if (vb_any_null(ring, me, grant))
		return -EINVAL;
	err = check(ring, me);
	if (err)
		return err;
	VB_SCHED_INSIDE(vb_ring_own(ring));
	err = check_inside(ring, me);
	if (err)
		return err;
	err = vb_ring_own(ring) != NULL ? vb_lock_renews(me, grant) : 1;
	if (err <= 0)
		return err;
	err = vb_ring_take(ring, tag, &op);
	if (err)
		return err;
	op->run = run_keep;
	return start(op, &(struct started){.client = me, .grant = grant}, id);
}
