/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verbs to work requests, work requests to doorbells.
 *
 * What is built waits for the doorbell in its queue pair's ring, already linked by its place; all
 * of it leaves with one ibv_post_send.  Which requests of such a chain ask for a completion is
 * decided there: the last one that somebody waits for, and the last of the chain when
 * `signal_every` have gone without one, so that a full ring always has a completion coming.
 */
#define VB_LOG_ROOM "verbs"
#include "fabric/verbs/inner.h"

#include <arpa/inet.h>
#include <sched.h>

#include "base/log.h"

#define FEW_POLLS 64

/* ---- doorbells ---- */

static void mark(struct verbs *w, struct verbs_qp *q, uint32_t at)
{
	uint32_t i = at & q->mask;

	q->rec[i].asked = true;
	w->n_asked++;
	if (q->rec[i].is_ext)
		q->ext[i].signalled = true;
	else
		q->wr[i].send_flags |= IBV_SEND_SIGNALED;
}

void verbs_unheard(struct verbs *w, struct verbs_qp *q, uint32_t n)
{
	if (q != w->ud) {
		w->n_unheard += n > 0;
		w->n_unheard -= q->unsignalled > 0;
	}
	q->unsignalled = n;
}

static void mark_chain(struct verbs *w, struct verbs_qp *q)
{
	uint32_t n = q->tail - q->rung, last = UINT32_MAX, unheard;

	for (uint32_t i = 0; i < n; i++) {
		if (w->o.signal == VERBS_SIGNAL_ALL)
			mark(w, q, q->rung + i);
		else if (q->rec[(q->rung + i) & q->mask].tell)
			last = i;
	}
	if (w->o.signal == VERBS_SIGNAL_ALL)
		return;
	if (last != UINT32_MAX)
		mark(w, q, q->rung + last);
	unheard = last != UINT32_MAX ? n - 1 - last : q->unsignalled + n;
	if (unheard >= w->o.signal_every) {
		mark(w, q, q->tail - 1);
		unheard = 0;
	}
	verbs_unheard(w, q, unheard);
}

/* Posts the run of requests of one kind from `at` on; how many, or -errno.  Of a plain run that
 * fails half-way q->rung tells how far it came. */
static int ring_run(struct verbs *w, struct verbs_qp *q, uint32_t at)
{
	struct ibv_send_wr *bad = NULL;
	bool ext = q->rec[at & q->mask].is_ext;
	uint32_t n = 1;
	int err;

	while (at + n != q->tail && q->rec[(at + n) & q->mask].is_ext == ext &&
	       !(ext && ((at + n) & q->mask) == 0)) {
		q->wr[(at + n - 1) & q->mask].next = &q->wr[(at + n) & q->mask];
		n++;
	}
	q->wr[(at + n - 1) & q->mask].next = NULL;
	w->f->stats.doorbells++;
	if (ext) {
		err = w->ext->post(q->qp, &q->ext[at & q->mask], n);
		return err == 0 ? (int)n : err;
	}
	err = ibv_post_send(q->qp, &q->wr[at & q->mask], &bad);
	if (err == 0)
		return (int)n;
	while (bad != NULL && &q->wr[at & q->mask] != bad && at != q->tail)
		at++;
	q->rung = at;
	return -err;
}

static void write_nothing(const struct verbs_host *h, struct ibv_send_wr *wr)
{
	wr->opcode = IBV_WR_RDMA_WRITE;
	wr->num_sge = 0;
	wr->wr.rdma.remote_addr = h->base;
	wr->wr.rdma.rkey = h->rkey;
}

/* In the place of a request whose time is over: a WRITE of nothing, so that the chain has no hole
 * and the verb ends in its turn. */
static void make_void(struct verbs *w, struct verbs_qp *q, uint32_t i)
{
	const struct verbs_host *h = &w->hosts[q->host];
	struct verbs_rec *r = &q->rec[i];
	struct ibv_send_wr *wr = &q->wr[i];

	if (r->batch != NULL)
		r->verb->status = -VB_ETOOLATE;
	else if (r->last)
		w->f->stats.dropped++;
	r->op = VB_OP_WRITE;
	r->is_ext = false;
	r->to = NULL;
	wr->send_flags &= IBV_SEND_FENCE;
	write_nothing(h, wr);
}

void verbs_ring(struct verbs *w, struct verbs_qp *q)
{
	uint64_t now;

	if (q->rung == q->tail)
		return;
	now = vb_clock_ns();
	for (uint32_t i = q->rung; i != q->tail; i++) {
		struct verbs_rec *r = &q->rec[i & q->mask];

		r->rung_ns = now;
		if (vb_unlikely(r->not_after_ns != 0) && now > r->not_after_ns)
			make_void(w, q, i & q->mask);
	}
	mark_chain(w, q);
	while (q->rung != q->tail) {
		int n = ring_run(w, q, q->rung);

		if (n > 0) {
			q->rung += (uint32_t)n;
			continue;
		}
		vb_error("%s refuses a work request to host %u: %s", w->choice.device.name, q->host,
			 strerror(-n));
		verbs_unbuild(w, q, -EIO);
		if (q != w->ud)
			verbs_break(w, &w->hosts[q->host], VERBS_DOWN);
		return;
	}
}

void verbs_ring_all(struct verbs *w)
{
	while (w->n_dirty > 0) {
		struct verbs_qp *q = &w->qps[w->dirty[--w->n_dirty]];

		q->dirty = false;
		verbs_ring(w, q);
	}
}

/* ---- places ---- */

uint32_t verbs_build(struct verbs *w, struct verbs_qp *q)
{
	uint32_t at = q->tail++, i = at & q->mask;

	q->rec[i] = (struct verbs_rec){0};
	q->sge[i] =
		(struct ibv_sge){.addr = (uintptr_t)verbs_slot(q, at), .lkey = w->pool_mr->lkey};
	q->wr[i] = (struct ibv_send_wr){.wr_id = verbs_id(VERBS_ID_SEND, q->round, q->number, at),
					.sg_list = &q->sge[i],
					.num_sge = 1};
	if (!q->dirty) {
		q->dirty = true;
		w->dirty[w->n_dirty++] = q->number;
	}
	return at;
}

uint32_t verbs_build_send(struct verbs *w, struct verbs_qp *q, uint32_t bytes, uint32_t imm)
{
	uint32_t at = verbs_build(w, q), i = at & q->mask;

	q->sge[i].length = bytes;
	q->wr[i].opcode = IBV_WR_SEND_WITH_IMM;
	q->wr[i].imm_data = htonl(imm);
	if (bytes <= q->max_inline)
		q->wr[i].send_flags |= IBV_SEND_INLINE;
	return at;
}

void verbs_ask(struct verbs *w, struct verbs_qp *q)
{
	uint32_t at;

	if (q->unsignalled == 0 || q->rung != q->tail || verbs_room(q) == 0)
		return;
	at = verbs_build(w, q) & q->mask;
	write_nothing(&w->hosts[q->host], &q->wr[at]);
	q->rec[at].tell = true;
	verbs_ring(w, q);
}

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
int verbs_wait_room(struct verbs *w, struct verbs_qp *q, uint32_t n, uint32_t pieces)
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

/* ---- the ends of requests ---- */

void verbs_rec_end(struct verbs *w, struct verbs_qp *q, uint32_t at, int err)
{
	struct verbs_rec *r = &q->rec[at & q->mask];
	const uint8_t *data = r->piece != 0 ? w->pieces + (size_t)(r->piece - 1) * VERBS_PIECE
					    : verbs_slot(q, at);
	struct vb_verb *v = r->verb;

	w->n_asked -= r->asked;
	if (r->ack != 0 && err != 0)
		verbs_send_end(w, &w->hosts[q->host], r->ack - 1u, err);
	if (r->batch != NULL) {
		if (v->status == 0)
			v->status = err;
		if (err == 0 && r->to != NULL)
			memcpy(r->to, data, r->len);
		else if (err == 0 && r->is_ext)
			v->old = w->ext->decode(r->op, data);
		else if (err == 0 && (r->op == VB_OP_CAS64 || r->op == VB_OP_FAA64))
			memcpy(&v->old.lo, data, sizeof(v->old.lo));
		if (r->last)
			verbs_done(w, r->owner, r->batch);
	}
	if (r->piece != 0)
		w->piece_stack[w->free_pieces++] = r->piece - 1;
	*r = (struct verbs_rec){0};
}

void verbs_unbuild(struct verbs *w, struct verbs_qp *q, int err)
{
	for (uint32_t at = q->rung; at != q->tail; at++)
		verbs_rec_end(w, q, at, err);
	q->tail = q->rung;
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
	int err = verbs_message_credit(w, h, (v->flags & VB_SIGNALLED) != 0);

	if (err == 0)
		err = verbs_wait_room(w, q, pieces + 2, pieces);
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
	    w->o.rpc == VERBS_RPC_UD)
		return verbs_put_datagram(w, e, b, v, host);
	if (message)
		return put_with_message(w, e, b, v, q);
	pieces = transfer ? pieces_of(h->base + net_host_offset(w->f, v->addr), v->len) : 0;
	err = verbs_wait_room(w, q, pieces + 1, pieces);
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
