/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Posting: verbs are checked and become pieces.
 *
 * The pieces of a whole batch are handed over at once if there are places for them; if not, it is polled for room in
 * between.  A post is no await point: nobody else of the thread runs meanwhile, and what else ends is told as ever.
 */
#define VB_LOG_ROOM "own"
#include <inttypes.h>
#include <sched.h>

#include "base/log.h"
#include "fabric/own/inner.h"

/* What is built goes to the provider.  If it takes nothing, all of it ends so. */
static void hand_over(struct own_ep *e)
{
	const uint32_t n = e->n_built;
	int err;

	e->n_built = 0;
	if (n == 0)
		return;
	own_watch(&e->watch, e->p, vb_clock_ns());
	if (vb_list_empty(&e->in_busy))
		vb_list_push(&e->thread->busy, &e->in_busy);
	for (uint32_t i = 0; i < n; i++) {
		e->place[(uint32_t)e->built[i].id].posted_at = e->watch.ns;
		e->place[(uint32_t)e->built[i].id].posted = true;
	}
	err = e->p->post(e->p->ctx, e->at.ep, e->built, n);
	for (uint32_t i = 0; err != 0 && i < n; i++)
		own_piece_ends(e, (uint32_t)e->built[i].id, err);
}

/* A free place, waited for; false: the endpoint is broken. */
static bool get_place(struct own_ep *e, uint32_t *out)
{
	if (e->n_free == 0)
		hand_over(e);
	while (e->n_free == 0 && !e->broken) {
		if (own_ep_take_ends(e))
			continue;
		own_ep_look_for_lost(e, vb_clock_ns());
		sched_yield();
	}
	if (e->broken)
		return false;
	*out = e->free[--e->n_free];
	return true;
}

static int check_memory(const struct own_ep *e, const struct vb_verb *v, uint64_t bytes)
{
	const struct vb_fabric *f = e->ep.fabric;
	const uint64_t offset = vb_addr_offset(v->addr);
	const bool atomic = v->op == VB_OP_CAS64 || v->op == VB_OP_FAA64;

	if (atomic && offset % 8 != 0)
		return vb_fail(-EINVAL, "%s at offset %" PRIu64 ": not aligned to 8 bytes",
			       vb_op_names[v->op], offset);
	if (vb_addr_node(v->addr) >= f->nodes || bytes > f->node_bytes ||
	    offset > f->node_bytes - bytes)
		return vb_fail(-VB_EACCESS,
			       "%s of %" PRIu64 " bytes at node %u, offset %" PRIu64
			       ": outside of the fabric's %u nodes of %" PRIu64 " bytes",
			       vb_op_names[v->op], bytes, vb_addr_node(v->addr), offset, f->nodes,
			       f->node_bytes);
	return 0;
}

static bool is_too_late(const struct own_ep *e, const struct vb_verb *v)
{
	return v->not_after_ns != 0 && vb_ep_now(&e->ep) > v->not_after_ns;
}

static int check(const struct own_ep *e, const struct vb_verb *v)
{
	int err = 0;

	switch (v->op) {
	case VB_OP_READ:
	case VB_OP_WRITE:
		if (v->len > VB_LEN_MAX)
			return vb_fail(-EINVAL, "%s of %u bytes: at most %u are possible",
				       vb_op_names[v->op], v->len, VB_LEN_MAX);
		err = check_memory(e, v, v->len);
		break;
	case VB_OP_CAS64:
	case VB_OP_FAA64:
		err = check_memory(e, v, 8);
		break;
	case VB_OP_SEND:
		if (e->p->recv == NULL)
			return vb_fail(-EOPNOTSUPP, "'%s' has no messages", e->p->name);
		if (v->peer == VB_PEER_NONE || vb_peer_node(v->peer) >= e->p->nodes)
			return -VB_EPEERGONE;
		if (v->msg->len > VB_MSG_DATA)
			return vb_fail(-EINVAL, "a message of %u bytes: at most %d are possible",
				       v->msg->len, VB_MSG_DATA);
		break;
	default:
		return vb_fail(-EOPNOTSUPP, "'%s' has no %s", e->p->name, vb_op_names[v->op]);
	}
	if (err == 0 && is_too_late(e, v))
		return -VB_ETOOLATE;
	if (err == 0 && e->broken)
		return -VB_EPEERGONE;
	return err;
}

static uint8_t provided_op(uint8_t op)
{
	static const uint8_t ops[] = {[VB_OP_READ] = VB_PROVIDER_READ,
				      [VB_OP_WRITE] = VB_PROVIDER_WRITE,
				      [VB_OP_CAS64] = VB_PROVIDER_CAS,
				      [VB_OP_FAA64] = VB_PROVIDER_FAA,
				      [VB_OP_SEND] = VB_PROVIDER_SEND};

	return ops[op];
}

static void put_message(struct own_ep *e, const struct vb_verb *v, struct vb_provider_verb *out)
{
	struct vb_msg m = *v->msg;

	_Static_assert(sizeof(m) == VB_PROVIDER_MESSAGE_BYTES, "a message is what the header says");
	m.from = e->ep.self;
	memcpy(out->local, &m, sizeof(m));
	out->node = vb_peer_node(v->peer);
	out->client = vb_peer_client(v->peer);
	out->offset = 0;
}

/* One verb of a batch, as far as it is built. */
struct making {
	struct vb_batch *batch;
	struct vb_verb *verb;
	uint32_t all, from; /* bytes: of the verb, and built so far */
	uint32_t pieces, head;
};

/* The next `bytes` bytes of it, in a place of their own.  0; -VB_EPEERGONE; -VB_ETOOLATE. */
static int build(struct own_ep *e, struct making *m, uint32_t bytes)
{
	struct vb_verb *v = m->verb;
	struct vb_provider_verb *out;
	uint32_t number;
	uint8_t *local;

	if (!get_place(e, &number))
		return -VB_EPEERGONE;
	/* It may have waited for its place. */
	if (is_too_late(e, v)) {
		e->free[e->n_free++] = number;
		return -VB_ETOOLATE;
	}
	if (m->from == 0)
		m->head = number;
	local = (uint8_t *)e->at.buffer + (size_t)number * VB_PROVIDER_VERB_BYTES;
	e->place[number] = (struct own_place){
		.batch = v->flags & VB_SIGNALLED ? m->batch : NULL,
		.verb = v,
		.to = v->op == VB_OP_READ ? (uint8_t *)v->buf + m->from : NULL,
		.round = e->place[number].round,
		.head = m->head,
		.left = m->pieces,
		.bytes = (uint16_t)bytes,
		.op = v->op,
		.out = true,
	};
	out = &e->built[e->n_built++];
	*out = (struct vb_provider_verb){
		.id = (uint64_t)e->place[number].round << 32 | number,
		.op = provided_op(v->op),
		.fence = v->flags & VB_FENCE && m->from == 0,
		.node = vb_addr_node(v->addr),
		.offset = vb_addr_offset(v->addr) + m->from,
		.bytes = bytes,
		.local = local,
		.compare = v->compare.lo,
		.value = v->op == VB_OP_FAA64 ? v->compare.lo : v->swap.lo,
	};
	if (v->op == VB_OP_WRITE)
		memcpy(local, (const uint8_t *)v->buf + m->from, bytes);
	if (v->op == VB_OP_SEND)
		put_message(e, v, out);
	m->from += bytes;
	return 0;
}

static uint32_t bytes_of(const struct vb_verb *v)
{
	switch (v->op) {
	case VB_OP_READ:
	case VB_OP_WRITE:
		return v->len;
	case VB_OP_SEND:
		return VB_PROVIDER_MESSAGE_BYTES;
	default:
		return 8;
	}
}

/* Those of a READ or WRITE end at multiples of a piece's size in the node, so that words stay whole. */
static uint32_t next_piece(const struct making *m)
{
	const uint64_t at = vb_addr_offset(m->verb->addr) + m->from;
	const uint32_t room = VB_PROVIDER_VERB_BYTES - (uint32_t)(at % VB_PROVIDER_VERB_BYTES);
	const uint32_t left = m->all - m->from;

	if (m->verb->op != VB_OP_READ && m->verb->op != VB_OP_WRITE)
		return left;
	return left < room ? left : room;
}

static uint32_t count_pieces(struct making m)
{
	uint32_t n = 0;

	for (; m.from < m.all; n++)
		m.from += next_piece(&m);
	return n;
}

/*
 * Not all of it can be built.  If the endpoint is broken, the pieces that were do not end their verb: it ends here.
 * If the verb is too late, it ends with the last of them.
 */
static void stop_building(struct own_ep *e, const struct making *m, int err)
{
	m->verb->status = m->from == 0 ? err : -VB_EUNKNOWN;
	if (err == -VB_ETOOLATE && m->from > 0)
		own_pieces_less(e, m->head, count_pieces(*m));
	else if (m->verb->flags & VB_SIGNALLED)
		own_verb_ends(e, m->batch);
}

static void build_all(struct own_ep *e, struct vb_batch *b, struct vb_verb *v)
{
	struct making m = {.batch = b, .verb = v, .all = bytes_of(v)};

	m.pieces = count_pieces(m);
	while (m.from < m.all) {
		int err = build(e, &m, next_piece(&m));

		if (err != 0) {
			stop_building(e, &m, err);
			return;
		}
	}
}

int own_post(struct vb_ep *ep, struct vb_batch *b)
{
	struct own_ep *e = (struct own_ep *)ep;

	for (unsigned i = 0; i < b->n; i++) {
		struct vb_verb *v = &b->verbs[i];

		v->status = check(e, v);
		if (v->status == 0 && bytes_of(v) > 0)
			build_all(e, b, v);
		else if (v->flags & VB_SIGNALLED)
			b->pending--;
	}
	hand_over(e);
	return b->pending > 0 ? 1 : 0;
}
