/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Datagrams: one unreliable queue pair per host.  It carries the handshakes of broken connections,
 * and with rpc=ud the messages that are flagged VB_DATAGRAM.
 *
 * Loss.  A datagram arrives once or not at all: the network may drop it, a receiver that does not
 * look drops what its queue (option datagrams) does not hold, an endpoint with a full ring too.  It
 * may overtake, and be overtaken by, anything.  The device knows of no answer, so a signalled one
 * ends with 0 as soon as it is sent; whoever must know asks again until he is answered
 * (rpc/mail.h).
 *
 * Strangers lack the queue key, which is drawn from the cluster's secret; members are told apart by
 * their queue pairs' numbers.
 */
#define VB_LOG_ROOM "verbs"
#include <arpa/inet.h>

#include "base/log.h"
#include "fabric/verbs/inner.h"

static uint32_t build(struct verbs *w, uint32_t host, const void *data, uint32_t bytes,
		      uint32_t imm)
{
	const struct verbs_host *h = &w->hosts[host];
	uint32_t at = verbs_build_send(w, w->ud, bytes, imm);
	struct ibv_send_wr *wr = &w->ud->wr[at & w->ud->mask];

	wr->wr.ud.ah = h->ah;
	wr->wr.ud.remote_qpn = h->ud_qpn;
	wr->wr.ud.remote_qkey = w->qkey;
	memcpy(verbs_slot(w->ud, at), data, bytes);
	return at;
}

/* The room is there. */
void verbs_put_datagram(struct verbs *w, struct net_ep *e, struct vb_batch *b, struct vb_verb *v,
			uint32_t host)
{
	struct vb_msg m = *v->msg;
	struct verbs_rec *r;

	m.from = e->ep.self;
	if (w->o.drop > 0 && vb_rng_chance(&w->rng, w->o.drop)) {
		w->f->stats.dropped++;
		if (v->flags & VB_SIGNALLED)
			verbs_done(w, e->thread, b);
		return;
	}
	r = &w->ud->rec[build(w, host, &m, sizeof(m), vb_peer_client(v->peer)) & w->ud->mask];
	if (!(v->flags & VB_SIGNALLED))
		return;
	r->owner = e->thread;
	r->batch = b;
	r->verb = v;
	r->op = v->op;
	r->last = r->tell = true;
}

void verbs_ud_send(struct verbs *w, uint32_t host, const void *data, uint32_t bytes, uint32_t imm)
{
	if (verbs_room(w->ud) == 0)
		return;
	build(w, host, data, bytes, imm);
	verbs_ring(w, w->ud);
}

void verbs_datagram_came(struct verbs *w, uint32_t src_qp, const uint8_t *data, uint32_t bytes,
			 uint32_t imm)
{
	struct vb_msg m;
	uint32_t host;

	if (bytes != sizeof(m))
		return;
	memcpy(&m, data, sizeof(m));
	host = net_host_of_node(w->f, vb_peer_node(m.from));
	if (vb_peer_node(m.from) >= w->f->f.nodes || w->hosts[host].ud_qpn != src_qp) {
		vb_warn("a datagram in another's name");
		return;
	}
	if (net_deliver(w->f, imm & ((1u << VB_PEER_CLIENT_BITS) - 1), &m) == -EAGAIN)
		w->f->stats.dropped++;
}
