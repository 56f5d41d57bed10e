/* SPDX-License-Identifier: Apache-2.0 */
/* Recording grants: see record.h.  record_judge.c reads what is written here. */
#define VB_LOG_ROOM "check"
#include "check/lock/record.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/log.h"
#include "check/lock/watch.h"

#define NONE UINT64_MAX

struct record_client {
	uint64_t called1; /* 1 + the lock of the call under way, 0: none */
	uint64_t called_at, queued_at;
	uint64_t releasing; /* where the grant lies whose release is under way, or NONE */
};

struct vb_record {
	unsigned clients, claims;
	uint64_t *
		open; /* [clients][claims]: where in grants[] the claim's grant is; NONE: nowhere */
	uint64_t n, most, missed;
	size_t bytes;
	struct vb_record_grant *grants;
	struct vb_lock_watch watch;
	struct record_client client[];
};

static struct record_client *client_of(struct vb_record *r, const struct vb_lock_client *me)
{
	vb_assert(me->index < r->clients);
	return &r->client[me->index];
}

static uint64_t *open_of(struct vb_record *r, const struct vb_lock_client *me,
			 const struct vb_claim *claim)
{
	vb_assert(claim->slot < r->claims);
	return &r->open[(size_t)me->index * r->claims + claim->slot];
}

static void on_called(void *ctx, struct vb_lock_client *me, uint64_t lock, enum vb_mode mode)
{
	struct record_client *c = client_of(ctx, me);

	c->called1 = lock + 1;
	c->called_at = vb_sched_now_early(me->ep->sched);
	c->queued_at = 0;
}

static void on_queued(void *ctx, struct vb_lock_client *me, uint64_t lock, enum vb_mode mode)
{
	struct record_client *c = client_of(ctx, me);

	/* A proxy that queues again after a recovery is nobody's wait. */
	if (c->called1 == lock + 1)
		c->queued_at = vb_sched_now(me->ep->sched);
}

/* The claim's grant is open from now on. */
static void enter(struct vb_record *r, const struct vb_lock_client *me,
		  const struct vb_claim *claim, uint64_t called_ns, uint64_t queued_ns)
{
	uint64_t at = NONE;

	if (r->n < r->most) {
		at = r->n++;
		r->grants[at] = (struct vb_record_grant){
			.lock = claim->lock,
			.token = claim->token,
			.called_ns = called_ns,
			.queued_ns = queued_ns,
			.granted_ns = vb_sched_now(me->ep->sched),
			.valid_until_ns = vb_ep_base(me->ep, claim->valid_until_ns),
			.left_ns = VB_FOREVER,
			.client = me->index,
			.node = me->node,
			.mode = (uint8_t)claim->mode,
		};
	} else {
		r->missed++;
	}
	*open_of(r, me, claim) = at;
}

static void on_granted(void *ctx, struct vb_lock_client *me, const struct vb_claim *claim)
{
	struct vb_record *r = ctx;
	struct record_client *c = client_of(r, me);
	uint64_t now = vb_sched_now(me->ep->sched);
	bool called = c->called1 == claim->lock + 1;

	enter(r, me, claim, called ? c->called_at : now, called ? c->queued_at : 0);
	c->called1 = 0;
}

static void on_not_granted(void *ctx, struct vb_lock_client *me, uint64_t lock, int err)
{
	struct record_client *c = client_of(ctx, me);

	if (c->called1 == lock + 1)
		c->called1 = 0;
}

/* The claim's grant is open no more; where it lies, or NONE. */
static uint64_t leave(struct vb_record *r, const struct vb_lock_client *me,
		      const struct vb_claim *claim)
{
	uint64_t *open = open_of(r, me, claim), at = *open;

	*open = NONE;
	return at;
}

static void end_as(struct vb_record *r, const struct vb_lock_client *me,
		   const struct vb_claim *claim, enum vb_record_end end)
{
	uint64_t at = leave(r, me, claim);

	if (at == NONE)
		return;
	r->grants[at].left_ns = vb_sched_now(me->ep->sched);
	r->grants[at].end = (uint8_t)end;
}

static void on_abandoned(void *ctx, struct vb_lock_client *me, const struct vb_claim *claim)
{
	end_as(ctx, me, claim, VB_RECORD_ABANDONED);
}

/* What is given up by a conversion ends before it, what is won begins after it.  A renewal is a
 * conversion to the same mode. */
static void on_converting(void *ctx, struct vb_lock_client *me, const struct vb_claim *claim,
			  enum vb_mode to)
{
	struct vb_record *r = ctx;

	if (claim->mode != to && vb_mode_covers(claim->mode, to))
		end_as(r, me, claim, VB_RECORD_CONVERTED);
}

static void on_converted(void *ctx, struct vb_lock_client *me, const struct vb_claim *claim,
			 int err)
{
	struct vb_record *r = ctx;

	uint64_t at = *open_of(r, me, claim);

	if (err != 0)
		return;
	if (at != NONE && r->grants[at].mode == claim->mode) {
		r->grants[at].valid_until_ns = vb_ep_base(me->ep, claim->valid_until_ns);
		return;
	}
	end_as(r, me, claim, VB_RECORD_CONVERTED);
	enter(r, me, claim, vb_sched_now(me->ep->sched), 0);
}

static void on_releasing(void *ctx, struct vb_lock_client *me, const struct vb_claim *claim)
{
	struct vb_record *r = ctx;
	struct record_client *c = client_of(r, me);
	uint64_t at = leave(r, me, claim);

	c->releasing = at;
	if (at != NONE)
		r->grants[at].left_ns = vb_sched_now(me->ep->sched);
}

static void on_released(void *ctx, struct vb_lock_client *me, uint64_t lock, int err)
{
	struct vb_record *r = ctx;
	struct record_client *c = client_of(r, me);
	uint64_t at = c->releasing;

	c->releasing = NONE;
	if (at == NONE || r->grants[at].lock != lock)
		return;
	r->grants[at].end = err == 0           ? VB_RECORD_RELEASED
			    : err == -VB_ELOST ? VB_RECORD_LOST
					       : VB_RECORD_FAILED;
}

int vb_record_open(unsigned clients, unsigned claims, uint64_t most, struct vb_record **out)
{
	size_t bytes = most * sizeof(struct vb_record_grant), n = (size_t)clients * claims;
	struct vb_record *r = calloc(1, sizeof(*r) + clients * sizeof(r->client[0]));
	uint64_t *open = malloc(n * sizeof(*open));
	void *grants = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (r == NULL || open == NULL || grants == MAP_FAILED) {
		free(r);
		free(open);
		if (grants != MAP_FAILED)
			munmap(grants, bytes);
		return vb_fail(-ENOMEM, "no memory for the records of %u clients (%zu MiB)",
			       clients, bytes >> 20);
	}
	r->clients = clients;
	r->claims = claims;
	r->open = open;
	r->most = most;
	r->bytes = bytes;
	r->grants = grants;
	for (unsigned i = 0; i < clients; i++)
		r->client[i].releasing = NONE;
	for (size_t i = 0; i < n; i++)
		open[i] = NONE;
	r->watch = (struct vb_lock_watch)VB_LOCK_WATCH(r);
	*out = r;
	return 0;
}

void vb_record_close(struct vb_record *r)
{
	if (r == NULL)
		return;
	munmap(r->grants, r->bytes);
	free(r->open);
	free(r);
}

const struct vb_lock_watch *vb_record_watch(struct vb_record *r)
{
	return &r->watch;
}

struct vb_record_grant *vb_record_grants(struct vb_record *r, uint64_t *n, uint64_t *missed)
{
	*n = r->n;
	*missed = r->missed;
	return r->grants;
}

static uint64_t moved(uint64_t at, int64_t offset_ns)
{
	return at == VB_FOREVER || at == 0 ? at : at + (uint64_t)offset_ns;
}

void vb_record_move(struct vb_record_grant *grants, uint64_t n, int64_t offset_ns)
{
	for (uint64_t i = 0; i < n; i++) {
		struct vb_record_grant *g = &grants[i];

		g->called_ns = moved(g->called_ns, offset_ns);
		g->queued_ns = moved(g->queued_ns, offset_ns);
		g->granted_ns = moved(g->granted_ns, offset_ns);
		g->valid_until_ns = moved(g->valid_until_ns, offset_ns);
		g->left_ns = moved(g->left_ns, offset_ns);
	}
}
