/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verbs to work requests.  Waiting for room and for credits, both looked for among the completions, is
 * done here and nowhere below.
 */
#define VB_LOG_ROOM "verbs"
#include "fabric/verbs/inner.h"

#include <arpa/inet.h>
#include <sched.h>

#include "base/log.h"

#define FEW_POLLS      64
#define CREDIT_WAIT_NS 1000000ull

/* ---- waiting ---- */

static bool has_room(const struct verbs *w, const struct verbs_qp *q, uint32_t n, uint32_t pieces)
{
	return verbs_room(q) >= n + VERBS_SPARE && w->free_pieces >= pieces;
}

static bool is_up(const struct verbs *w, const struct verbs_qp *q)
{
	return q == w->ud || w->hosts[q->host].state == VERBS_UP;
}

/*
 * Bounded by the connection's own bound: the timer of verbs_tick breaks one whose oldest request is
 * too old, and pieces belong to requests of such connections.
 */
static int wait_room(struct verbs *w, struct verbs_qp *q, uint32_t n, uint32_t pieces)
{
	unsigned vain = 0;

	if (vb_likely(has_room(w, q, n, pieces)))
		return is_up(w, q) ? 0 : -VB_EPEERGONE;
	w->f->stats.waits++;
	while (is_up(w, q) && !has_room(w, q, n, pieces)) {
		verbs_ring_all(w);
		if (verbs_poll(w)) {
			vain = 0;
			continue;
		}
		verbs_tick(w);
		if (++vain % FEW_POLLS == 0)
			sched_yield();
	}
	return is_up(w, q) ? 0 : -VB_EPEERGONE;
}

static int message_credit(struct verbs *w, struct verbs_host *h, bool signalled)
{
	uint64_t until;

	if (vb_likely(h->credits > VERBS_RESERVE))
		return 0;
	until = vb_clock_ns() + CREDIT_WAIT_NS;
	w->f->stats.waits++;
	do {
		verbs_ring_all(w);
		if (!verbs_poll(w))
			sched_yield();
	} while (h->state == VERBS_UP && h->credits <= VERBS_RESERVE && vb_clock_ns() < until);
	if (h->state != VERBS_UP)
		return -VB_EPEERGONE;
	if (h->credits > VERBS_RESERVE)
		return 0;
	w->f->stats.dropped += !signalled;
	return -EAGAIN;
}

/* ---- one verb ---- */

static void rec_of(struct verbs_rec *r, struct net_ep *e, struct vb_batch *b, struct vb_verb *v,
		   bool last)
{
	r->op = v->op;
	r->not_after_ns = v->not_after_ns;
	r->last = last;
	if (!(v->flags & VB_SIGNALLED))
		return;
	r->owner = e->thread;
	r->batch = b;
	r->verb = v;
	r->tell = last;
}

/* How many pieces: cut where the remote address is a multiple of a piece, so that a READ is torn at
 * no other boundary than the network's. */
static uint32_t pieces_of(uint64_t remote, uint32_t len)
{
	if (len <= VERBS_SLOT)
		return 0;
	return (uint32_t)((remote + len - 1) / VERBS_PIECE - remote / VERBS_PIECE + 1);
}

static void put_piece(struct verbs *w, struct verbs_qp *q, uint32_t at, const struct vb_verb *v,
		      uint32_t done, uint32_t len, bool in_slot)
{
	uint32_t i = at & q->mask;
	struct verbs_rec *r = &q->rec[i];
	uint8_t *data = verbs_slot(q, at);

	if (!in_slot) {
		uint32_t piece = w->piece_stack[--w->free_pieces];

		data = w->pieces + (size_t)piece * VERBS_PIECE;
		r->piece = piece + 1;
		r->tell = true;
	}
	q->sge[i].addr = (uintptr_t)data;
	q->sge[i].length = len;
	q->wr[i].num_sge = len > 0;
	if (v->op == VB_OP_READ) {
		q->wr[i].opcode = IBV_WR_RDMA_READ;
		r->to = r->batch != NULL && len > 0 ? (uint8_t *)v->buf + done : NULL;
		r->len = len;
		return;
	}
	q->wr[i].opcode = IBV_WR_RDMA_WRITE;
	if (len > 0)
		memcpy(data, (const uint8_t *)v->buf + done, len);
	if (len <= q->max_inline && in_slot)
		q->wr[i].send_flags |= IBV_SEND_INLINE;
}

/* READ, WRITE, and the WRITE of a WRITE_NOTIFY, whose verb ends with its message. */
static void put_transfer(struct verbs *w, struct net_ep *e, struct vb_batch *b, struct vb_verb *v,
			 struct verbs_qp *q, bool ends)
{
	const struct verbs_host *h = &w->hosts[q->host];
	uint64_t remote = h->base + net_host_offset(w->f, v->addr);
	bool in_slot = pieces_of(remote, v->len) == 0;
	uint32_t done = 0;

	do {
		uint32_t at = verbs_build(w, q), i = at & q->mask;
		uint32_t len = v->len - done;

		if (!in_slot && len > VERBS_PIECE - (remote + done) % VERBS_PIECE)
			len = (uint32_t)(VERBS_PIECE - (remote + done) % VERBS_PIECE);
		if (ends)
			rec_of(&q->rec[i], e, b, v, done + len == v->len);
		put_piece(w, q, at, v, done, len, in_slot);
		q->wr[i].wr.rdma.remote_addr = remote + done;
		q->wr[i].wr.rdma.rkey = h->rkey;
		if (done == 0 && v->flags & VB_FENCE)
			q->wr[i].send_flags |= IBV_SEND_FENCE;
		done += len;
	} while (done < v->len);
}

static void put_atomic(struct verbs *w, struct net_ep *e, struct vb_batch *b, struct vb_verb *v,
		       struct verbs_qp *q)
{
	const struct verbs_host *h = &w->hosts[q->host];
	uint32_t at = verbs_build(w, q), i = at & q->mask;

	rec_of(&q->rec[i], e, b, v, true);
	q->sge[i].length = sizeof(uint64_t);
	q->wr[i].opcode =
		v->op == VB_OP_FAA64 ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP;
	q->wr[i].wr.atomic.remote_addr = h->base + net_host_offset(w->f, v->addr);
	q->wr[i].wr.atomic.compare_add = v->compare.lo;
	q->wr[i].wr.atomic.swap = v->swap.lo;
	q->wr[i].wr.atomic.rkey = h->rkey;
	if (v->flags & VB_FENCE)
		q->wr[i].send_flags |= IBV_SEND_FENCE;
}

static void put_extended(struct verbs *w, struct net_ep *e, struct vb_batch *b, struct vb_verb *v,
			 struct verbs_qp *q)
{
	const struct verbs_host *h = &w->hosts[q->host];
	uint32_t at = verbs_build(w, q), i = at & q->mask;

	rec_of(&q->rec[i], e, b, v, true);
	q->rec[i].is_ext = true;
	q->ext[i] = (struct verbs_ext_wr){
		.op = v->op,
		.fence = (v->flags & VB_FENCE) != 0,
		.wr_id = q->wr[i].wr_id,
		.remote = h->base + net_host_offset(w->f, v->addr),
		.rkey = h->rkey,
		.lkey = w->pool_mr->lkey,
		.result = verbs_slot(q, at),
		.compare = v->compare,
		.compare_mask = v->compare_mask,
		.swap = v->swap,
		.swap_mask = v->swap_mask,
	};
}

static bool too_late(const struct net_ep *e, const struct vb_verb *v)
{
	return v->not_after_ns != 0 && vb_ep_now_early(&e->ep) > v->not_after_ns;
}

/* One request is both the WRITE and the message. */
static void put_bare(struct verbs *w, struct net_ep *e, struct vb_batch *b, struct vb_verb *v,
		     struct verbs_qp *q)
{
	struct ibv_send_wr *wr;

	put_transfer(w, e, b, v, q, false);
	wr = &q->wr[(q->tail - 1) & q->mask];
	wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	wr->imm_data = htonl(v->msg->imm << VB_PEER_CLIENT_BITS | vb_peer_client(v->peer));
	w->hosts[q->host].credits--;
}

static int put_with_message(struct verbs *w, struct net_ep *e, struct vb_batch *b,
			    struct vb_verb *v, struct verbs_qp *q)
{
	struct verbs_host *h = &w->hosts[q->host];
	bool writes = v->op == VB_OP_WRITE_NOTIFY;
	uint32_t pieces = writes ? pieces_of(h->base + net_host_offset(w->f, v->addr), v->len) : 0;
	int err = message_credit(w, h, (v->flags & VB_SIGNALLED) != 0);

	if (err == 0)
		err = wait_room(w, q, pieces + 2, pieces);
	if (err != 0)
		return err;
	if (too_late(e, v))
		return -VB_ETOOLATE;
	if (verbs_notify_is_bare(v)) {
		put_bare(w, e, b, v, q);
		return 0;
	}
	if (writes)
		put_transfer(w, e, b, v, q, false);
	return verbs_put_message(w, e, b, v, q);
}

static int put(struct verbs *w, struct net_ep *e, struct vb_batch *b, struct vb_verb *v)
{
	bool message = v->op == VB_OP_SEND || v->op == VB_OP_WRITE_NOTIFY;
	uint32_t host =
		net_host_of_node(w->f, message ? vb_peer_node(v->peer) : vb_addr_node(v->addr));
	struct verbs_host *h = &w->hosts[host];
	struct verbs_qp *q = &h->lane[e->lane % w->lanes];
	bool transfer = v->op == VB_OP_READ || v->op == VB_OP_WRITE;
	uint32_t pieces;
	int err;

	if (h->state != VERBS_UP)
		return -VB_EPEERGONE;
	if (v->op == VB_OP_SEND && v->flags & VB_DATAGRAM && !(v->flags & VB_FENCE) &&
	    w->o.rpc == VERBS_RPC_UD) {
		err = wait_room(w, w->ud, 1, 0);
		if (err == 0)
			verbs_put_datagram(w, e, b, v, host);
		return err;
	}
	if (message)
		return put_with_message(w, e, b, v, q);
	pieces = transfer ? pieces_of(h->base + net_host_offset(w->f, v->addr), v->len) : 0;
	err = wait_room(w, q, pieces + 1, pieces);
	if (err != 0)
		return err;
	if (too_late(e, v))
		return -VB_ETOOLATE;
	if (transfer)
		put_transfer(w, e, b, v, q, true);
	else if (v->op == VB_OP_CAS64 || v->op == VB_OP_FAA64)
		put_atomic(w, e, b, v, q);
	else if (w->ext != NULL)
		put_extended(w, e, b, v, q);
	else
		return -EOPNOTSUPP;
	return 0;
}

/* A message with a time limit leaves at once: its credit and its place for the answer are spent,
 * and at a doorbell that came later its time could be over. */
int verbs_post(struct net_fabric *f, struct net_ep *e, struct vb_batch *b)
{
	struct verbs *w = verbs_of(f);
	bool now = false;

	for (unsigned i = 0; i < b->n; i++) {
		struct vb_verb *v = &b->verbs[i];
		int err;

		if (v->status != 0)
			continue;
		err = put(w, e, b, v);
		if (err != 0) {
			v->status = err;
			if (v->flags & VB_SIGNALLED)
				verbs_done(w, e->thread, b);
		}
		now |= v->not_after_ns != 0 && (v->op == VB_OP_SEND || v->op == VB_OP_WRITE_NOTIFY);
		if (w->o.doorbell == VERBS_DOORBELL_EACH)
			verbs_ring_all(w);
	}
	if (now)
		verbs_ring_all(w);
	verbs_done_flush(w);
	return 0;
}
