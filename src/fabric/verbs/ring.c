/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A queue pair's ring of work requests: built, rung, ended; and the end of all rings of a connection.
 *
 * What is built waits for the doorbell in its queue pair's ring, already linked by its place; all
 * of it leaves with one ibv_post_send.  Which requests of such a chain ask for a completion is
 * decided there: the last one that somebody waits for, and the last of the chain when
 * `signal_every` have gone without one, so that a full ring always has a completion coming.
 *
 * A connection breaks when a request of it fails (the peer is dead or unreachable, or an access was
 * refused), when the cluster says that the peer is dead, or when its oldest request is older than
 * the bound.  All queue pairs to that host go to the error state together: the device then ends
 * every request that it has, and none takes effect any more.  New ones are made, never the old ones
 * reused, so that packets of the old connection that are still under way find nobody.
 */
#define VB_LOG_ROOM "verbs"
#include "fabric/verbs/inner.h"

#include <arpa/inet.h>

#include "base/log.h"

#define EMPTY_NS 1000000000ull /* for a device to end what a broken queue pair has */

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

/* What was built and never rung ends with err. */
static void unbuild(struct verbs *w, struct verbs_qp *q, int err)
{
	for (uint32_t at = q->rung; at != q->tail; at++)
		verbs_rec_end(w, q, at, err);
	q->tail = q->rung;
}

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
		unbuild(w, q, -EIO);
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

/* ---- the end of a connection ---- */

void verbs_break(struct verbs *w, struct verbs_host *h, enum verbs_link_state next)
{
	bool was_up = h->state == VERBS_UP;

	if (h->state == VERBS_GONE || h->state == next)
		return;
	/* First, so that nothing that ends below is answered by posting more to it. */
	h->state = next;
	w->n_down += was_up && next == VERBS_DOWN;
	w->n_down -= !was_up && next == VERBS_GONE;
	h->fresh = false;
	h->next_ns = 0;
	h->emptied_by_ns = vb_clock_ns() + EMPTY_NS;
	for (uint32_t l = 0; l < w->lanes; l++) {
		struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};
		struct verbs_qp *q = &h->lane[l];

		unbuild(w, q, -VB_EPEERGONE);
		if (q->qp != NULL && w->lib->modify_qp(q->qp, &a, IBV_QP_STATE) != 0)
			h->emptied_by_ns = 0;
		/* What was done and tells nothing is not ended by the device: this ends it. */
		if (q->qp != NULL)
			verbs_ask(w, q);
		verbs_unheard(w, q, 0);
	}
	verbs_sends_end(w, h, -VB_EUNKNOWN);
	verbs_credits_reset(h);
}

/* True when no request of the host's queue pairs is under way any more.  A device that does not end
 * them in time loses the queue pair, and with it the means to. */
bool verbs_host_emptied(struct verbs *w, struct verbs_host *h)
{
	bool late = vb_clock_ns() >= h->emptied_by_ns;

	for (uint32_t l = 0; l < w->lanes; l++) {
		struct verbs_qp *q = &h->lane[l];

		if (verbs_idle(q))
			continue;
		if (!late)
			return false;
		verbs_qp_unmake(w, q, true);
		while (q->head != q->rung)
			verbs_rec_end(w, q, q->head++, -VB_EUNKNOWN);
		q->tail = q->rung;
	}
	return true;
}
