/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Posting: every verb is checked here, so that transports see only what they can do; what this
 * host's CPU can do on the spot is done; the rest is the transport's, and its doorbell rings by the
 * rule of net.h.
 */
#define VB_LOG_ROOM "net"
#include <inttypes.h>

#include "base/log.h"
#include "fabric/cpu.h"
#include "fabric/net/core.h"

static uint32_t cap_needed(uint8_t op)
{
	switch (op) {
	case VB_OP_MCAS64:
	case VB_OP_MFAA64:
		return VB_CAP_MASKED64;
	case VB_OP_MCAS128:
	case VB_OP_MFAA128:
		return VB_CAP_MASKED128;
	case VB_OP_SEND:
		return VB_CAP_SEND;
	case VB_OP_WRITE_NOTIFY:
		return VB_CAP_NOTIFY;
	default:
		return 0;
	}
}

static int refuse_address(const struct net_fabric *f, const struct vb_verb *v, uint64_t bytes)
{
	return vb_fail(-VB_EACCESS,
		       "%s of %" PRIu64 " bytes at node %u, offset %" PRIu64
		       ": outside of the fabric's %u nodes of %" PRIu64 " bytes",
		       vb_op_names[v->op], bytes, vb_addr_node(v->addr), vb_addr_offset(v->addr),
		       f->f.nodes, f->f.node_bytes);
}

static int check_memory(const struct net_fabric *f, const struct vb_verb *v)
{
	uint32_t align = cpu_atomic_bytes(v->op);
	uint64_t bytes = align != 0 ? align : v->len;
	uint64_t offset = vb_addr_offset(v->addr);

	if (align != 0 && offset % align != 0)
		return vb_fail(-EINVAL, "%s at offset %" PRIu64 ": not aligned to %u bytes",
			       vb_op_names[v->op], offset, align);
	if (bytes > f->verb_bytes_max)
		return vb_fail(-EINVAL,
			       "%s of %" PRIu64 " bytes: on '%s' a verb moves at most %u; split it",
			       vb_op_names[v->op], bytes, f->t->name, f->verb_bytes_max);
	if (vb_addr_node(v->addr) >= f->f.nodes || bytes > f->f.node_bytes ||
	    offset > f->f.node_bytes - bytes)
		return refuse_address(f, v, bytes);
	return 0;
}

static int check(struct net_ep *e, const struct vb_verb *v)
{
	const struct net_fabric *f = net_of(e->ep.fabric);
	bool to_peer = v->op == VB_OP_SEND || v->op == VB_OP_WRITE_NOTIFY;
	int err = 0;

	if (vb_unlikely(cap_needed(v->op) & ~f->f.caps.flags))
		return vb_fail(-EOPNOTSUPP, "'%s' has no %s", f->t->name, vb_op_names[v->op]);
	if (to_peer) {
		if (v->peer == VB_PEER_NONE || vb_peer_node(v->peer) >= f->f.nodes)
			return -VB_EPEERGONE;
		if (v->msg->len > VB_MSG_DATA)
			return vb_fail(-EINVAL, "a message of %u bytes: at most %d are possible",
				       v->msg->len, VB_MSG_DATA);
		if (v->op == VB_OP_WRITE_NOTIFY &&
		    net_host_of_node(f, vb_peer_node(v->peer)) !=
			    net_host_of_node(f, vb_addr_node(v->addr)))
			return vb_fail(-EINVAL, "a notified WRITE tells an endpoint of the node "
						"that it writes to");
		if (net_host_gone(f, vb_peer_node(v->peer)))
			return -VB_EPEERGONE;
	}
	if (v->op != VB_OP_SEND) {
		err = check_memory(f, v);
		if (err == 0 && net_memory_gone(f, net_host_of_node(f, vb_addr_node(v->addr))))
			return -VB_EPEERGONE;
	}
	if (err == 0 && v->not_after_ns != 0 && vb_ep_now(&e->ep) > v->not_after_ns)
		return -VB_ETOOLATE;
	return err;
}

/* By this CPU; the engine is needed for messages only. */
static int do_here(struct net_ep *e, struct vb_verb *v)
{
	struct net_fabric *f = net_of(e->ep.fabric);
	uint8_t *at = f->memory + net_host_offset(f, v->addr);
	struct vb_msg m;
	int err;

	switch (v->op) {
	case VB_OP_READ:
		cpu_copy_out(v->buf, at, v->len);
		return 0;
	case VB_OP_WRITE_NOTIFY:
	case VB_OP_WRITE:
		cpu_copy_in(at, v->buf, v->len);
		if (v->op == VB_OP_WRITE)
			return 0;
		break;
	case VB_OP_SEND:
		break;
	default:
		cpu_atomic(v, at);
		return 0;
	}
	m = *v->msg;
	m.from = e->ep.self;
	pthread_mutex_lock(&f->engine);
	err = net_deliver(f, vb_peer_client(v->peer), &m);
	f->stats.dropped += err != 0 && !(v->flags & VB_SIGNALLED);
	f->core->unflushed |= f->elastic != NULL; /* it may have gone to a client's box */
	pthread_mutex_unlock(&f->engine);
	return err;
}

static bool is_here(const struct net_fabric *f, const struct vb_verb *v)
{
	uint16_t node = v->op == VB_OP_SEND ? vb_peer_node(v->peer) : vb_addr_node(v->addr);

	return net_host_of_node(f, node) == f->host;
}

/* Behind what cannot be done to the memory of a server that has begun again, a message of the batch to that server
 * does not go either: it may tell of what was to be there. */
static bool is_behind_refused(const struct net_fabric *f, const struct vb_batch *b, unsigned i)
{
	const struct vb_verb *v = &b->verbs[i];
	uint32_t host;

	if (v->op != VB_OP_SEND)
		return false;
	host = net_host_of_node(f, vb_peer_node(v->peer));
	if (vb_likely(!net_memory_gone(f, host)))
		return false;
	for (unsigned j = 0; j < i; j++) {
		const struct vb_verb *w = &b->verbs[j];

		if (w->op != VB_OP_SEND && w->status == -VB_EPEERGONE &&
		    net_host_of_node(f, vb_addr_node(w->addr)) == host)
			return true;
	}
	return false;
}

/* The part of the batch that is left for the wire; *urgent: its doorbell may not wait. */
static unsigned prepare(struct net_ep *e, struct vb_batch *b, bool *urgent)
{
	const struct net_fabric *f = net_of(e->ep.fabric);
	const bool cpu = f->t->local_cpu(f);
	unsigned left = 0, signalled = 0;

	*urgent = !f->coalesce;
	for (unsigned i = 0; i < b->n; i++) {
		struct vb_verb *v = &b->verbs[i];
		const bool told = v->flags & VB_SIGNALLED;

		v->status = check(e, v);
		if (v->status == 0 && is_behind_refused(f, b, i))
			v->status = -VB_EPEERGONE;
		if (v->status == 0 && cpu && is_here(f, v)) {
			v->status = do_here(e, v);
			/* Out of the transport's way, with its result. */
			if (v->status == 0)
				v->status = NET_DONE;
		}
		if (v->status == 0) {
			left++;
			signalled += told;
		} else {
			b->pending = (uint16_t)(b->pending - told);
		}
	}
	*urgent |= signalled == 0;
	return left;
}

static void settle(struct vb_batch *b)
{
	for (unsigned i = 0; i < b->n; i++) {
		if (b->verbs[i].status == NET_DONE)
			b->verbs[i].status = 0;
	}
}

/* The transport took nothing, but part of the batch is done or refused already: each verb gets its
 * own status, since "nothing was posted" would not be true. */
static void fail_left(struct vb_batch *b, int err)
{
	for (unsigned i = 0; i < b->n; i++) {
		if (b->verbs[i].status == 0)
			b->verbs[i].status = err;
	}
}

/* Messages to clients leave by the rule of all others. */
static void flush_letters(struct net_ep *e)
{
	struct net_fabric *f = net_of(e->ep.fabric);

	pthread_mutex_lock(&f->engine);
	if (f->core->unflushed && !vb_sched_others_ready(e->ep.sched)) {
		f->core->unflushed = false;
		f->t->flush(f);
	}
	pthread_mutex_unlock(&f->engine);
}

int net_post(struct vb_ep *ep, struct vb_batch *b)
{
	struct net_ep *e = (struct net_ep *)ep;
	struct net_fabric *f = net_of(ep->fabric);
	bool urgent, pending;
	unsigned left = prepare(e, b, &urgent);
	int err;

	if (left == 0) {
		settle(b);
		if (vb_unlikely(f->elastic != NULL))
			flush_letters(e);
		return 0;
	}
	pending = b->pending > 0;
	pthread_mutex_lock(&f->engine);
	err = f->t->post(f, e, b);
	if (err == 0) {
		f->stats.posted += left;
		f->core->unflushed = true;
		if (urgent || !vb_sched_others_ready(ep->sched)) {
			f->core->unflushed = false;
			f->t->flush(f);
		}
	}
	if (err != 0 && left < b->n) {
		fail_left(b, err);
		pending = false;
		err = 0;
	}
	settle(b); /* under the engine, as everything that is written to a posted batch */
	pthread_mutex_unlock(&f->engine);
	if (err != 0)
		return err;
	return pending ? 1 : 0;
}
