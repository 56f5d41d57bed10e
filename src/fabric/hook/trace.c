/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One line a verb, and a hash of all of them.  A verb is written down when its result is known: at
 * once where verbs complete inline, else when its batch has been waited for; unsignalled verbs then
 * stand at their posting, without a result.  The time goes into the hash only where it is virtual.
 */
#define VB_LOG_ROOM "hook"
#include "fabric/hook/common.h"

#include <inttypes.h>
#include <pthread.h>
#include <xxhash.h>

#include "base/log.h"

struct trace_fabric {
	struct vb_fabric f;
	pthread_mutex_t mutex; /* a fabric may be used by several threads */
	XXH64_state_t *hash;
	FILE *to;
};

static struct trace_fabric *trace_of(struct vb_ep *ep)
{
	return (struct trace_fabric *)ep->fabric;
}

static int format_operands(char *to, size_t size, const struct vb_verb *v)
{
	switch ((enum vb_op)v->op) {
	case VB_OP_READ:
	case VB_OP_WRITE:
		return snprintf(to, size, "len=%u", v->len);
	case VB_OP_SEND:
	case VB_OP_WRITE_NOTIFY:
		return snprintf(to, size,
				"to=%#" PRIx64 " subject=%#" PRIx64 " tag=%u imm=%u len=%u",
				v->peer, v->msg->subject, v->msg->tag, v->msg->imm, v->len);
	default:
		return snprintf(to, size,
				"compare=%#" PRIx64 ":%#" PRIx64 "/%#" PRIx64 ":%#" PRIx64
				" swap=%#" PRIx64 ":%#" PRIx64 "/%#" PRIx64 ":%#" PRIx64,
				v->compare.hi, v->compare.lo, v->compare_mask.hi,
				v->compare_mask.lo, v->swap.hi, v->swap.lo, v->swap_mask.hi,
				v->swap_mask.lo);
	}
}

static void format_result(char *to, size_t size, const struct vb_verb *v, bool known)
{
	bool atomic = v->op >= VB_OP_CAS64 && v->op <= VB_OP_MFAA128;
	bool wide = v->op == VB_OP_MCAS128 || v->op == VB_OP_MFAA128;

	if (!known)
		snprintf(to, size, "posted");
	else if (v->status != 0)
		snprintf(to, size, "%s", vb_strerror(v->status));
	else if (wide)
		snprintf(to, size, "%#" PRIx64 ":%#" PRIx64, v->old.hi, v->old.lo);
	else if (atomic)
		snprintf(to, size, "%#" PRIx64, v->old.lo);
	else
		snprintf(to, size, "ok");
}

static void write_down(struct vb_ep *ep, const struct vb_verb *v, bool known)
{
	struct trace_fabric *t = trace_of(ep);
	uint64_t now = vb_sched_now(ep->sched);
	bool is_virtual = (t->f.caps.flags & VB_CAP_VIRTUAL) != 0;
	char operands[224], result[80], line[448];

	format_operands(operands, sizeof(operands), v);
	format_result(result, sizeof(result), v, known);
	snprintf(line, sizeof(line), "%#" PRIx64 " %s %u:%#" PRIx64 " %s -> %s\n", ep->self,
		 vb_op_names[v->op], vb_addr_node(v->addr), vb_addr_offset(v->addr), operands,
		 result);
	pthread_mutex_lock(&t->mutex);
	if (is_virtual)
		XXH64_update(t->hash, &now, sizeof(now));
	XXH64_update(t->hash, line, strlen(line));
	if (known && v->status == 0 && v->op == VB_OP_READ)
		XXH64_update(t->hash, v->buf, v->len);
	if (t->to != NULL)
		fprintf(t->to, "%" PRIu64 " %s", now, line);
	pthread_mutex_unlock(&t->mutex);
}

static int trace_post(struct vb_ep *ep, struct vb_batch *batch)
{
	int rc = ep->lower->ops->post(ep->lower, batch);

	for (unsigned i = 0; rc >= 0 && i < batch->n; i++) {
		const struct vb_verb *v = &batch->verbs[i];

		if (rc == 0 || !(v->flags & VB_SIGNALLED))
			write_down(ep, v, rc == 0);
	}
	return rc;
}

static void trace_waited(struct vb_ep *ep, struct vb_batch *batch)
{
	vb_hook_waited(ep, batch);
	for (unsigned i = 0; i < batch->n; i++) {
		if (batch->verbs[i].flags & VB_SIGNALLED)
			write_down(ep, &batch->verbs[i], true);
	}
}

static int trace_recv(struct vb_ep *ep, struct vb_msg *out)
{
	struct vb_verb v = {.op = VB_OP_SEND, .peer = ep->self, .msg = out};
	int err = vb_ep_recv(ep->lower, out);

	/* A message that arrives: the line's peer is who got it, its address that of nobody. */
	if (err == 0)
		write_down(ep, &v, true);
	return err;
}

static void trace_close(struct vb_fabric *f)
{
	struct trace_fabric *t = (struct trace_fabric *)f;

	XXH64_freeState(t->hash);
	pthread_mutex_destroy(&t->mutex);
	vb_hook_close(f);
}

static const struct vb_fabric_ops trace_ops = {
	.name = "trace",
	.summary = "writes verbs down and hashes them",
	.close = trace_close,
	.after_fork = vb_hook_after_fork,
	.ep_open = vb_hook_ep_open,
	.ep_close = vb_hook_ep_close,
	.post = trace_post,
	.waited = trace_waited,
	.recv = trace_recv,
	.peer_alive = vb_hook_peer_alive,
	.region = vb_hook_region,
	.local = vb_hook_local,
	.checkpoint = vb_hook_checkpoint,
	.serve = vb_hook_serve,
};

int vb_hook_trace(struct vb_fabric *lower, FILE *to, struct vb_fabric **out)
{
	struct trace_fabric *t;
	struct vb_fabric *f;
	int err = vb_hook_make(lower, &trace_ops, sizeof(*t), &f);

	if (err != 0)
		return err;
	t = (struct trace_fabric *)f;
	t->hash = XXH64_createState();
	if (t->hash == NULL) {
		free(t);
		return vb_fail(-ENOMEM, "no memory for a hash");
	}
	XXH64_reset(t->hash, 0);
	pthread_mutex_init(&t->mutex, NULL);
	t->to = to;
	*out = f;
	return 0;
}

uint64_t vb_hook_trace_hash(struct vb_fabric *hook)
{
	struct trace_fabric *t = (struct trace_fabric *)hook;
	uint64_t h;

	vb_assert(hook->ops == &trace_ops);
	pthread_mutex_lock(&t->mutex);
	h = XXH64_digest(t->hash);
	pthread_mutex_unlock(&t->mutex);
	return h;
}
