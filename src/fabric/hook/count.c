/* SPDX-License-Identifier: Apache-2.0 */
/* Counts verbs.  The fabric may be used by several threads, so the counters are atomics; a verb
 * that is posted unsignalled on a fabric that does not complete inline never tells whether it
 * failed. */
#define VB_LOG_ROOM "hook"
#include "fabric/hook/common.h"

struct count_fabric {
	struct vb_fabric f;
	struct vb_count_totals totals;
};

static void add(uint64_t *counter, uint64_t n)
{
	__atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
}

static struct vb_count_totals *totals_of(struct vb_ep *ep)
{
	return &((struct count_fabric *)ep->fabric)->totals;
}

static uint64_t bytes_of(const struct vb_verb *v)
{
	switch ((enum vb_op)v->op) {
	case VB_OP_READ:
	case VB_OP_WRITE:
		return v->len;
	case VB_OP_SEND:
		return sizeof(struct vb_msg);
	case VB_OP_WRITE_NOTIFY:
		return v->len + sizeof(struct vb_msg);
	case VB_OP_MCAS128:
	case VB_OP_MFAA128:
		return 16;
	default:
		return 8;
	}
}

static void count_errors(struct vb_ep *ep, const struct vb_batch *batch, uint8_t flags)
{
	for (unsigned i = 0; i < batch->n; i++) {
		const struct vb_verb *v = &batch->verbs[i];

		if ((v->flags & flags) == flags && v->status != 0)
			add(&totals_of(ep)->errors[v->op], 1);
	}
}

static int count_post(struct vb_ep *ep, struct vb_batch *batch)
{
	struct vb_count_totals *t = totals_of(ep);
	int rc = ep->lower->ops->post(ep->lower, batch);

	if (rc < 0)
		return rc;
	add(&t->batches, 1);
	for (unsigned i = 0; i < batch->n; i++) {
		add(&t->verbs[batch->verbs[i].op], 1);
		add(&t->bytes[batch->verbs[i].op], bytes_of(&batch->verbs[i]));
	}
	if (rc == 0) {
		add(&t->inline_batches, 1);
		count_errors(ep, batch, 0);
	}
	return rc;
}

static void count_waited(struct vb_ep *ep, struct vb_batch *batch)
{
	vb_hook_waited(ep, batch);
	count_errors(ep, batch, VB_SIGNALLED);
}

static const struct vb_fabric_ops count_ops = {
	.name = "count",
	.summary = "counts verbs, bytes and errors",
	.close = vb_hook_close,
	.after_fork = vb_hook_after_fork,
	.ep_open = vb_hook_ep_open,
	.ep_close = vb_hook_ep_close,
	.recv = vb_hook_recv,
	.peer_alive = vb_hook_peer_alive,
	.region = vb_hook_region,
	.local = vb_hook_local,
	.checkpoint = vb_hook_checkpoint,
	.serve = vb_hook_serve,
	.post = count_post,
	.waited = count_waited,
};

int vb_hook_count(struct vb_fabric *lower, struct vb_fabric **out)
{
	return vb_hook_make(lower, &count_ops, sizeof(struct count_fabric), out);
}

void vb_hook_count_totals(struct vb_fabric *hook, struct vb_count_totals *out)
{
	/* Only uint64_t members: counter by counter, each whole. */
	uint64_t *from = (uint64_t *)&((struct count_fabric *)hook)->totals, *to = (uint64_t *)out;

	vb_assert(hook->ops == &count_ops);
	for (size_t i = 0; i < sizeof(*out) / sizeof(*to); i++)
		to[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
}
