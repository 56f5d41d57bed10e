/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a fabric whose verbs complete at once behave as hardware may.
 *
 * Verbs are held in a queue per endpoint and run by a timer, each at a random time within
 * max_delay_ns, in any order that the interface leaves open (blocks() is that order, word by word);
 * READs and WRITEs above 16 bytes happen in two parts at two times; and the completion comes later
 * than the effect.  In between, other tasks and processes run.
 *
 * A batch that was waited for is before whatever is posted afterwards: what it left unsignalled is
 * made up for before the next batch.  When the queue of an endpoint is full, everything in it runs
 * at once.
 *
 * A verb that the timer finds later than caps.verb_bound_ns (the thread was held up) does not run
 * at all and fails with -VB_EUNKNOWN, because the interface says "within the bound or never".  A
 * task must not be killed while it awaits a batch: results land on its stack.
 */
#define VB_LOG_ROOM "hook"
#include "fabric/hook/common.h"

#include <inttypes.h>

#include "base/log.h"

#define QUEUE_MAX (4 * VB_BATCH_MAX)
#define LATE_NS   3600000000000ull /* if nothing else is said */

enum stage { STAGE_WHOLE, STAGE_HALF, STAGE_RAN };

struct held {
	struct vb_list link;    /* in the endpoint's queue, in posting order; or free */
	struct vb_verb v;       /* our copy */
	struct vb_verb *origin; /* signalled: the caller's, for the results */
	struct vb_batch *batch; /* signalled: counts down */
	uint64_t batch_number;
	bool awaited; /* its batch has a signalled verb */
	enum stage stage;
	uint32_t cut; /* 0, or where it is torn */
	bool back_first;
	uint64_t posted_ns, due_ns, done_ns;
	struct vb_msg msg;
	uint8_t data[VB_INLINE_MAX];
};

struct defer_fabric {
	struct vb_fabric f;
	struct vb_defer_params p;
};

struct defer_ep {
	struct vb_ep ep;
	struct vb_rng rng;
	struct vb_timer timer;
	struct vb_list queue, free;
	unsigned held;
	uint64_t batches;
	const struct vb_batch *posting; /* who posts it need not be woken */
	struct held store[QUEUE_MAX];
};

static const struct defer_fabric *fabric_of(const struct defer_ep *e)
{
	return (const struct defer_fabric *)e->ep.fabric;
}

/* ---- what the interface orders ---- */

static bool writes(const struct vb_verb *v)
{
	return v->op == VB_OP_WRITE || v->op == VB_OP_SEND || v->op == VB_OP_WRITE_NOTIFY;
}

/* Whether `later` must not run before `earlier` has. */
static bool blocks(const struct vb_verb *earlier, const struct vb_verb *later)
{
	if (vb_hook_node_of(earlier) != vb_hook_node_of(later))
		return false;
	if (writes(later))
		return writes(earlier) || (later->flags & VB_FENCE);
	/* A READ or atomic sees the WRITEs and atomics before it. */
	return earlier->op != VB_OP_READ || (later->flags & VB_FENCE);
}

static bool blocked(struct defer_ep *e, const struct held *h)
{
	vb_list_for_each (it, &e->queue) {
		const struct held *before = vb_container_of(it, struct held, link);

		if (before == h)
			return false;
		if (before->stage != STAGE_RAN && blocks(&before->v, &h->v))
			return true;
	}
	return false;
}

/* ---- running ---- */

static void run_part(struct defer_ep *e, struct held *h, uint32_t from, uint32_t len, uint8_t op)
{
	struct vb_verb v = h->v;
	struct vb_batch b = {.verbs = &v, .n = 1};
	int rc;

	v.op = op;
	v.addr += from;
	v.len = len;
	if (v.buf != NULL)
		v.buf = (uint8_t *)v.buf + from;
	v.status = 0;
	rc = e->ep.lower->ops->post(e->ep.lower, &b);
	vb_assert(rc <= 0); /* the lower fabric completes inline */
	h->v.old = v.old;
	if (h->v.status == 0)
		h->v.status = rc < 0 ? rc : v.status;
}

/* The effect, or a half of it; a notification comes with the second half. */
static void advance(struct defer_ep *e, struct held *h, uint64_t now)
{
	bool first = h->stage == STAGE_WHOLE, back = h->back_first == first;
	uint8_t op = first && h->cut != 0 && h->v.op == VB_OP_WRITE_NOTIFY ? VB_OP_WRITE : h->v.op;

	if (h->v.status != 0) {
		h->stage = STAGE_RAN; /* too late before it was posted */
		return;
	}
	if (now > h->posted_ns + e->ep.fabric->caps.verb_bound_ns) {
		vb_info("a verb is unknown: its thread was held up for %" PRIu64 " us",
			(now - h->posted_ns) / 1000);
		h->v.status = -VB_EUNKNOWN;
		h->stage = STAGE_RAN;
		return;
	}
	if (h->cut == 0)
		run_part(e, h, 0, h->v.len, op);
	else if (back)
		run_part(e, h, h->cut, h->v.len - h->cut, op);
	else
		run_part(e, h, 0, h->cut, op);
	h->stage = first && h->cut != 0 ? STAGE_HALF : STAGE_RAN;
	h->due_ns += (h->done_ns - h->due_ns) / 2;
	if (h->stage == STAGE_RAN)
		h->due_ns = h->done_ns;
}

static void complete(struct defer_ep *e, struct held *h)
{
	if (h->origin != NULL) {
		h->origin->status = h->v.status;
		h->origin->old = h->v.old;
		if (--h->batch->pending == 0 && h->batch != e->posting && h->batch->waiter != NULL)
			vb_task_wake(h->batch->waiter);
	}
	vb_list_remove(&h->link);
	vb_list_push(&e->free, &h->link);
	e->held--;
}

static void step(struct defer_ep *e, struct held *h, uint64_t now)
{
	if (h->stage == STAGE_RAN)
		complete(e, h);
	else
		advance(e, h, now);
}

/* One of the verbs that can do a step now, each as likely as the next; or NULL. */
static struct held *pick(struct defer_ep *e, uint64_t now)
{
	struct held *chosen = NULL;
	uint64_t n = 0;

	vb_list_for_each (it, &e->queue) {
		struct held *h = vb_container_of(it, struct held, link);

		if (h->due_ns <= now && (h->stage == STAGE_RAN || !blocked(e, h)) &&
		    vb_rng_below(&e->rng, ++n) == 0)
			chosen = h;
	}
	return chosen;
}

static void pump(struct defer_ep *e)
{
	uint64_t now = vb_sched_now(e->ep.sched), next = VB_FOREVER;
	struct held *h;

	while ((h = pick(e, now)) != NULL)
		step(e, h, now);
	vb_list_for_each (it, &e->queue) {
		h = vb_container_of(it, struct held, link);
		/* What is due and still here waits for one before it. */
		if (h->due_ns > now && h->due_ns < next)
			next = h->due_ns;
	}
	if (next != VB_FOREVER)
		vb_timer_arm(e->ep.sched, &e->timer, next);
	else
		vb_timer_disarm(e->ep.sched, &e->timer);
}

static void on_timer(struct vb_timer *timer)
{
	pump(vb_container_of(timer, struct defer_ep, timer));
}

/* Runs everything up to and including `last` in posting order, which is always allowed. */
static void run_until(struct defer_ep *e, const struct held *last)
{
	uint64_t now = vb_sched_now(e->ep.sched);

	vb_list_for_each (it, &e->queue) {
		struct held *h = vb_container_of(it, struct held, link);
		bool end = h == last;

		while (h->stage != STAGE_RAN)
			advance(e, h, now);
		if (h->origin == NULL)
			complete(e, h);
		if (end)
			break;
	}
}

static void run_all(struct defer_ep *e)
{
	if (!vb_list_empty(&e->queue))
		run_until(e, vb_container_of(e->queue.prev, struct held, link));
	while (!vb_list_empty(&e->queue))
		complete(e, vb_container_of(e->queue.next, struct held, link));
}

/* Whether the batch of an unsignalled verb has been waited for: its signalled ones are gone. */
static bool overdue(struct defer_ep *e, const struct held *h)
{
	if (h->origin != NULL || !h->awaited)
		return false;
	vb_list_for_each (it, &e->queue) {
		const struct held *o = vb_container_of(it, struct held, link);

		if (o->origin != NULL && o->batch_number == h->batch_number)
			return false;
	}
	return true;
}

static void make_up(struct defer_ep *e)
{
	const struct held *last = NULL;

	vb_list_for_each (it, &e->queue) {
		const struct held *h = vb_container_of(it, struct held, link);

		if (overdue(e, h))
			last = h;
	}
	if (last != NULL)
		run_until(e, last);
}

/* ---- posting ---- */

static void tear(struct defer_ep *e, struct held *h)
{
	uint64_t ahead = -vb_addr_offset(h->v.addr) & 15; /* to the first 16-byte boundary */
	uint64_t places;

	if ((h->v.op != VB_OP_READ && !writes(&h->v)) || h->v.op == VB_OP_SEND || h->v.len <= 16)
		return;
	ahead = ahead != 0 ? ahead : 16;
	places = (h->v.len - ahead + 15) / 16; /* boundaries strictly inside */
	if (h->v.len <= ahead || places == 0)
		return;
	h->cut = (uint32_t)(ahead + 16 * vb_rng_below(&e->rng, places));
	h->back_first = vb_rng_chance(&e->rng, 0.5);
}

static void hold(struct defer_ep *e, struct vb_batch *batch, struct vb_verb *v, uint64_t delay,
		 uint64_t now)
{
	struct vb_list *room = vb_list_pop(&e->free);
	struct held *h = vb_container_of(room, struct held, link);
	bool signalled = (v->flags & VB_SIGNALLED) != 0;

	vb_assert(room != NULL); /* defer_post has made some */
	memset(h, 0, offsetof(struct held, msg));
	vb_list_init(&h->link);
	h->v = *v;
	h->v.status = 0;
	if (v->not_after_ns != 0 && vb_ep_now(&e->ep) > v->not_after_ns)
		h->v.status = -VB_ETOOLATE;
	h->v.not_after_ns = 0; /* the doorbell rings here */
	h->origin = signalled ? v : NULL;
	h->batch = signalled ? batch : NULL;
	h->batch_number = e->batches;
	h->awaited = batch->pending > 0;
	h->posted_ns = now;
	h->due_ns = h->done_ns = now;
	if (delay > 0) {
		h->done_ns = now + vb_rng_below(&e->rng, delay + 1);
		h->due_ns = now + vb_rng_below(&e->rng, h->done_ns - now + 1);
		tear(e, h);
	}
	if (v->msg != NULL) {
		h->msg = *v->msg;
		h->v.msg = &h->msg;
	}
	if (!signalled && writes(v) && v->len > 0 && v->op != VB_OP_SEND) {
		memcpy(h->data, v->buf, v->len); /* vb_post has checked its length */
		h->v.buf = h->data;
	} else if (!signalled && v->op == VB_OP_READ) {
		h->v.len = h->v.len <= VB_INLINE_MAX ? h->v.len : VB_INLINE_MAX;
		h->v.buf = h->data; /* nobody wants it */
		h->cut = 0;
	}
	vb_list_push(&e->queue, &h->link);
	e->held++;
}

static int defer_post(struct vb_ep *ep, struct vb_batch *batch)
{
	struct defer_ep *e = (struct defer_ep *)ep;
	const struct defer_fabric *f = fabric_of(e);
	bool late = vb_rng_chance(&e->rng, f->p.chance);
	uint64_t now = vb_sched_now(ep->sched);

	make_up(e);
	if (!late && e->held == 0)
		return ep->lower->ops->post(ep->lower, batch);
	if (e->held + batch->n > QUEUE_MAX)
		run_all(e);
	e->batches++;
	for (unsigned i = 0; i < batch->n; i++)
		hold(e, batch, &batch->verbs[i], late ? f->p.max_delay_ns : 0, now);
	e->posting = batch;
	pump(e);
	e->posting = NULL;
	return 1;
}

/* ---- life ---- */

static int defer_ep_open(struct vb_fabric *f, uint16_t node, struct vb_ep **out)
{
	struct defer_ep *e;
	int err = vb_hook_ep_make(f, node, sizeof(*e), out);

	if (err != 0)
		return err;
	e = (struct defer_ep *)*out;
	vb_rng_seed(&e->rng, fabric_of(e)->p.seed, e->ep.self);
	e->timer.fire = on_timer;
	vb_list_init(&e->queue);
	vb_list_init(&e->free);
	for (unsigned i = 0; i < QUEUE_MAX; i++) {
		vb_list_init(&e->store[i].link);
		vb_list_push(&e->free, &e->store[i].link);
	}
	return 0;
}

static void defer_ep_close(struct vb_ep *ep)
{
	struct defer_ep *e = (struct defer_ep *)ep;

	run_all(e);
	vb_timer_disarm(ep->sched, &e->timer);
	vb_hook_ep_close(ep);
}

static const struct vb_fabric_ops defer_ops = {
	.name = "defer",
	.summary = "holds verbs back, reorders and tears them as hardware may",
	.close = vb_hook_close,
	.after_fork = vb_hook_after_fork,
	.ep_open = defer_ep_open,
	.ep_close = defer_ep_close,
	.post = defer_post,
	.recv = vb_hook_recv,
	.peer_alive = vb_hook_peer_alive,
	.region = vb_hook_region,
	.local = vb_hook_local,
	.checkpoint = vb_hook_checkpoint,
	.serve = vb_hook_serve,
};

int vb_hook_defer(struct vb_fabric *lower, const struct vb_defer_params *p, struct vb_fabric **out)
{
	struct vb_fabric *f;
	int err = vb_hook_needs_inline(lower, defer_ops.name);

	if (err == 0)
		err = vb_hook_make(lower, &defer_ops, sizeof(struct defer_fabric), &f);
	if (err != 0)
		return err;
	((struct defer_fabric *)f)->p = *p;
	f->caps.flags &= ~(uint32_t)(VB_CAP_INLINE | VB_CAP_NEAR_INLINE);
	f->caps.verb_bound_ns = lower->caps.verb_bound_ns + p->max_delay_ns +
				(p->late_ns != 0 ? p->late_ns : LATE_NS);
	f->caps.order = "what the interface promises and no more";
	*out = f;
	return 0;
}
