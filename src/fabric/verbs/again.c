/* SPDX-License-Identifier: Apache-2.0 */
/*
 * New connections for broken ones.
 *
 * A connection can break while both processes live: a cable is out for longer than the retries
 * last, a machine stands still.  The lower rank of the two then makes new queue pairs, in a new
 * *session*, and a handshake of datagrams connects them.  Every message may be lost; whoever waits
 * repeats his own every 200 ms, and every message is safe to hear twice.
 *
 *	higher, if it is the one that noticed:  BROKEN(s)  ->
 *	lower:      breaks session s too; new queue pairs  <-  OFFER(s + 1, queue pairs)
 *	higher:     breaks session s too; new queue pairs, connected to the offered ones;
 *	            READY                                  ->  ACCEPT(s + 1, queue pairs)
 *	lower:      connected, UP                          <-  GO(s + 1)
 *	higher:     UP at GO, or at the first thing that comes over the new connection
 *
 * So neither side sends before the other's queue pairs are connected.  A connection to oneself
 * needs no handshake.  What was under way in session s has been ended as unknown on either side
 * before its next one begins, and its packets find no queue pair any more.
 */
#define VB_LOG_ROOM "verbs"
#include "fabric/verbs/inner.h"

#include "base/log.h"

#define AGAIN_NS 200000000ull
#define MAGIC    0x61677662u

enum { BROKEN = 1, OFFER, ACCEPT, GO };

struct verbs_hello {
	uint32_t magic, kind, from, to, session, lanes;
	struct verbs_remote_qp qp[VERBS_LANES_MAX];
};
_Static_assert(sizeof(struct verbs_hello) <= VERBS_SLOT, "fits a slot");

static void say(struct verbs *w, uint32_t host, uint32_t kind)
{
	const struct verbs_host *h = &w->hosts[host];
	struct verbs_hello m = {.magic = MAGIC,
				.kind = kind,
				.from = w->f->host,
				.to = host,
				.session = h->session,
				.lanes = w->lanes};

	for (uint32_t l = 0; l < w->lanes && h->fresh; l++)
		m.qp[l] = (struct verbs_remote_qp){h->lane[l].qp->qp_num, h->lane[l].psn};
	verbs_ud_send(w, host, &m, sizeof(m), VERBS_HANDSHAKE);
}

/* New queue pairs, once the old ones are empty; not so fast that these pile up. */
static bool renew(struct verbs *w, struct verbs_host *h)
{
	if (h->fresh)
		return true;
	if (!verbs_host_emptied(w, h) || !verbs_may_bury(w))
		return false;
	for (uint32_t l = 0; l < w->lanes; l++) {
		verbs_qp_unmake(w, &h->lane[l], false);
		if (verbs_qp_make(w, &h->lane[l], IBV_QPT_RC) != 0)
			return false;
	}
	h->fresh = true;
	return true;
}

static bool connect_all(struct verbs *w, struct verbs_host *h, const struct verbs_remote_qp *to)
{
	for (uint32_t l = 0; l < w->lanes; l++) {
		if (verbs_qp_connect(w, &h->lane[l], &to[l]) != 0) {
			h->fresh = false;
			return false;
		}
		h->remote[l] = to[l];
	}
	return true;
}

static void up(struct verbs *w, uint32_t host)
{
	struct verbs_host *h = &w->hosts[host];

	w->n_down--;
	h->state = VERBS_UP;
	h->said = false;
	vb_info("host %u is connected again", host);
}

static void to_oneself(struct verbs *w, struct verbs_host *h)
{
	struct verbs_remote_qp to[VERBS_LANES_MAX];

	if (!renew(w, h))
		return;
	for (uint32_t l = 0; l < w->lanes; l++)
		to[l] = (struct verbs_remote_qp){h->lane[l].qp->qp_num, h->lane[l].psn};
	if (connect_all(w, h, to))
		up(w, w->f->host);
}

void verbs_again_tick(struct verbs *w, uint32_t host, uint64_t now)
{
	struct verbs_host *h = &w->hosts[host];

	if ((h->state != VERBS_DOWN && h->state != VERBS_READY) || now < h->next_ns)
		return;
	if (host == w->f->host) {
		to_oneself(w, h);
		return;
	}
	h->next_ns = now + AGAIN_NS;
	if (h->state == VERBS_READY) {
		say(w, host, ACCEPT);
	} else if (host < w->f->host) {
		say(w, host, BROKEN);
	} else {
		bool was_fresh = h->fresh;

		if (!renew(w, h)) {
			h->next_ns = now;
			return;
		}
		h->session += !was_fresh;
		say(w, host, OFFER);
	}
}

/* The higher rank hears of a new session. */
static void offered(struct verbs *w, uint32_t host, const struct verbs_hello *m)
{
	struct verbs_host *h = &w->hosts[host];

	if (host >= w->f->host || (int32_t)(m->session - h->session) < 0)
		return;
	if (m->session == h->session) {
		/* This very offer, heard again: the answer was lost. */
		if (h->state == VERBS_READY)
			say(w, host, ACCEPT);
		return;
	}
	verbs_break(w, h, VERBS_DOWN);
	if (!renew(w, h) || !connect_all(w, h, m->qp))
		return; /* heard again in a moment */
	h->session = m->session;
	h->state = VERBS_READY;
	h->next_ns = vb_clock_ns() + AGAIN_NS;
	say(w, host, ACCEPT);
}

static void accepted(struct verbs *w, uint32_t host, const struct verbs_hello *m)
{
	struct verbs_host *h = &w->hosts[host];

	if (host <= w->f->host || m->session != h->session)
		return;
	if (h->state == VERBS_DOWN && h->fresh && connect_all(w, h, m->qp))
		up(w, host);
	if (h->state == VERBS_UP)
		say(w, host, GO);
}

void verbs_again_came(struct verbs *w, uint32_t src_qp, const uint8_t *data, uint32_t bytes)
{
	struct verbs_hello m;
	struct verbs_host *h;

	if (bytes != sizeof(m))
		return;
	memcpy(&m, data, sizeof(m));
	if (m.magic != MAGIC || m.from >= w->f->hosts || m.from == w->f->host ||
	    m.to != w->f->host || m.lanes != w->lanes || w->hosts[m.from].ud_qpn != src_qp)
		return;
	for (uint32_t l = 0; l < VERBS_LANES_MAX; l++) {
		if (m.qp[l].qpn > 0xffffff || m.qp[l].psn > 0xffffff)
			return;
	}
	h = &w->hosts[m.from];
	if (h->state == VERBS_GONE)
		return;
	if (m.kind == BROKEN && m.from > w->f->host && m.session == h->session &&
	    h->state == VERBS_UP)
		verbs_break(w, h, VERBS_DOWN);
	else if (m.kind == OFFER)
		offered(w, m.from, &m);
	else if (m.kind == ACCEPT)
		accepted(w, m.from, &m);
	else if (m.kind == GO && m.session == h->session)
		verbs_again_heard(w, m.from);
}

/* Something came over the new connection: the peer has it, too. */
void verbs_again_heard(struct verbs *w, uint32_t host)
{
	if (w->hosts[host].state == VERBS_READY)
		up(w, host);
}

void verbs_host_gone(struct net_fabric *f, uint32_t host)
{
	struct verbs *w = verbs_of(f);

	verbs_break(w, &w->hosts[host], VERBS_GONE);
	verbs_done_flush(w);
}
