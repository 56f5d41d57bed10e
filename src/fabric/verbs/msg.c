/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages over the connections between hosts.
 *
 * A message is a SEND of 64 bytes into the one shared receive queue of its host; the immediate says
 * for which client (24 bits) and gives credits back (8 bits).  If the receive queue ran dry, the
 * sender's connection would stand still, its atomics too.  So each host may have `credits` messages
 * on the way to each other one, and gets them back when the other has taken them out of its receive
 * queue: with the next message, or with an answer once a quarter is owed.
 *
 * Answers (client 0) carry credits and say what became of signalled messages.  They need no credit
 * themselves: each gives back at least one, so that not more than `credits` of them can be on the
 * way either, and the receive queue has room for both.
 *
 *	imm        | credits given : 8 | client : 24 |                  client 0: not a message
 *	from       | number of the question : 24, 0 none | sender : 40 |
 *	number     | turn of the place : 16 | 1 + place among the sender's unanswered ones : 8 |
 *
 * A signalled message ends when its receiver's answer comes: 0, -EAGAIN (ring full), -VB_EPEERGONE
 * (no such endpoint); a second after the bound without one, as -VB_EUNKNOWN.  The message itself is
 * there within the bound; the second is for a process that is kept from its core.
 *
 * WRITE_NOTIFY is a WRITE and a SEND behind it.  One that is not signalled and whose message says
 * nothing but a number below 256 (imm; no subject, tag, data) is a single WRITE_WITH_IMM instead:
 * its immediate is | imm : 8 | client : 24 |, and the message that arrives names as its sender the
 * node (client number 0), because there is no room for more.
 *
 * Credits are used up: the sender looks for completions for up to a millisecond, then the message
 * is not sent (-EAGAIN; counted as dropped where it is not signalled).
 */
#define VB_LOG_ROOM "verbs"
#include "fabric/verbs/inner.h"

#include <arpa/inet.h>

#include "base/log.h"

#define FROM_BITS   40
#define FROM_MASK   ((1ull << FROM_BITS) - 1)
#define CLIENT_MASK ((1u << VB_PEER_CLIENT_BITS) - 1)
#define GIVE_MAX    255u
#define BARE_MAX    256u
#define ACKS_MAX    32u

enum { ANSWER_TAKEN, ANSWER_FULL, ANSWER_GONE };
enum { CTL_ANSWERS = 1, CTL_CONTROL };

struct verbs_ctl {
	uint8_t kind, n;
	uint16_t credits;
	union {
		uint32_t answers[ACKS_MAX]; /* number : 24 | what : 8 */
		uint8_t data[NET_CONTROL_MAX];
	};
};
_Static_assert(sizeof(struct verbs_ctl) <= VERBS_SLOT, "fits a slot");

static void due(struct verbs *w, uint32_t host)
{
	struct verbs_host *h = &w->hosts[host];

	if (h->due)
		return;
	h->due = true;
	w->due[w->n_due++] = host;
}

static bool owes_much(const struct verbs_host *h)
{
	return h->owed >= h->credits_max / 4;
}

/* ---- sending ---- */

bool verbs_notify_is_bare(const struct vb_verb *v)
{
	const struct vb_msg *m = v->msg;

	return v->op == VB_OP_WRITE_NOTIFY && !(v->flags & VB_SIGNALLED) && v->len <= VERBS_SLOT &&
	       m->subject == 0 && m->tag == 0 && m->len == 0 && m->imm < BARE_MAX;
}

/* The credit and the room are there. */
int verbs_put_message(struct verbs *w, struct net_ep *e, struct vb_batch *b, struct vb_verb *v,
		      struct verbs_qp *q)
{
	struct verbs_host *h = &w->hosts[q->host];
	struct vb_msg m = *v->msg;
	uint32_t give = h->owed < GIVE_MAX ? h->owed : GIVE_MAX, at;
	int place = -1;

	m.from = e->ep.self & FROM_MASK;
	if (v->flags & VB_SIGNALLED) {
		place = verbs_send_begin(w, h, e, b, v);
		if (place < 0)
			return place;
		m.from |= ((uint64_t)h->sends[place].turn << 8 | (unsigned)(place + 1))
			  << FROM_BITS;
	}
	h->owed -= give;
	h->credits--;
	at = verbs_build_send(w, q, sizeof(m),
			      give << VB_PEER_CLIENT_BITS | vb_peer_client(v->peer));
	memcpy(verbs_slot(q, at), &m, sizeof(m));
	q->rec[at & q->mask].ack = (uint16_t)(place + 1);
	q->rec[at & q->mask].op = v->op;
	if (v->op == VB_OP_SEND && v->flags & VB_FENCE)
		q->wr[at & q->mask].send_flags |= IBV_SEND_FENCE;
	return 0;
}

/* ---- what the hosts owe each other ---- */

static uint32_t build_ctl(struct verbs *w, struct verbs_qp *q, const struct verbs_ctl *c,
			  uint32_t bytes)
{
	uint32_t at = verbs_build_send(w, q, bytes, 0);

	memcpy(verbs_slot(q, at), c, bytes);
	return at;
}

static void build_answers(struct verbs *w, struct verbs_host *h)
{
	struct verbs_ctl c = {.kind = CTL_ANSWERS};

	c.n = (uint8_t)(h->n_acks < ACKS_MAX ? h->n_acks : ACKS_MAX);
	c.credits = (uint16_t)(h->owed + c.n);
	memcpy(c.answers, h->acks, c.n * sizeof(c.answers[0]));
	h->n_acks -= c.n;
	memmove(h->acks, h->acks + c.n, h->n_acks * sizeof(h->acks[0]));
	h->owed = 0;
	build_ctl(w, &h->lane[0], &c,
		  (uint32_t)(offsetof(struct verbs_ctl, answers) + c.n * sizeof(c.answers[0])));
}

static void build_control(struct verbs *w, struct verbs_host *h)
{
	const struct verbs_control *from = &h->queue[h->q_head++ % VERBS_QUEUE];
	struct verbs_ctl c = {.kind = CTL_CONTROL, .n = from->bytes, .credits = (uint16_t)h->owed};

	memcpy(c.data, from->data, from->bytes);
	h->owed = 0;
	h->credits--;
	build_ctl(w, &h->lane[0], &c, (uint32_t)offsetof(struct verbs_ctl, data) + from->bytes);
}

/* Sends what is due, as far as there is room; what is not comes with a later completion. */
void verbs_settle(struct verbs *w)
{
	uint32_t n = w->n_due, kept = 0;

	if (n == 0 || w->settling)
		return;
	w->settling = true;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t host = w->due[i];
		struct verbs_host *h = &w->hosts[host];
		struct verbs_qp *q = &h->lane[0];

		h->due = false;
		if (h->state != VERBS_UP)
			continue;
		while ((h->n_acks > 0 || owes_much(h)) && verbs_room(q) > 0)
			build_answers(w, h);
		while (h->q_head != h->q_tail && h->credits > 0 && verbs_room(q) > 0)
			build_control(w, h);
		verbs_ring(w, q);
		if (h->n_acks > 0 || owes_much(h)) {
			h->due = true;
			w->due[kept++] = host;
		}
	}
	/* What became due meanwhile stands behind. */
	memmove(w->due + kept, w->due + n, (w->n_due - n) * sizeof(*w->due));
	w->n_due = kept + (w->n_due - n);
	w->settling = false;
}

int verbs_control(struct net_fabric *f, uint32_t host, const void *data, size_t bytes)
{
	struct verbs *w = verbs_of(f);
	struct verbs_host *h = &w->hosts[host];
	struct verbs_control *c;

	if (bytes > NET_CONTROL_MAX)
		return -EINVAL;
	if (h->state != VERBS_UP)
		return -VB_EPEERGONE;
	if (h->q_tail - h->q_head == VERBS_QUEUE)
		return -EAGAIN;
	c = &h->queue[h->q_tail++ % VERBS_QUEUE];
	c->bytes = (uint8_t)bytes;
	memcpy(c->data, data, bytes);
	due(w, host);
	verbs_settle(w);
	verbs_done_flush(w);
	return 0;
}

/* ---- receiving: everything is checked, nothing is believed ---- */

/* What comes of a connection that has broken counts for no credits: those of the next one begin
 * anew on either side. */
static void give(struct verbs *w, uint32_t host, uint32_t n)
{
	struct verbs_host *h = &w->hosts[host];

	if (h->state != VERBS_UP)
		return;
	if (n > h->credits_max - h->credits) {
		vb_warn("host %u gives back credits that it never had", host);
		n = h->credits_max - h->credits;
	}
	h->credits += n;
	if (h->q_head != h->q_tail)
		due(w, host);
}

static void answered(struct verbs *w, struct verbs_host *h, uint32_t answer)
{
	static const int errors[] = {
		[ANSWER_TAKEN] = 0, [ANSWER_FULL] = -EAGAIN, [ANSWER_GONE] = -VB_EPEERGONE};
	unsigned place = (answer & 0xff) - 1, what = answer >> 24;
	struct verbs_send *s;

	if (place >= h->credits_max || what >= VB_ARRAY_SIZE(errors))
		return;
	s = &h->sends[place];
	if (!s->used || s->turn != (answer >> 8 & 0xffff))
		return;
	verbs_send_end(w, h, place, errors[what]);
	s->used = false;
	w->n_sends--;
}

static void ctl_came(struct verbs *w, uint32_t host, const uint8_t *data, uint32_t bytes)
{
	struct verbs_host *h = &w->hosts[host];
	struct verbs_ctl c;
	uint32_t head = offsetof(struct verbs_ctl, answers);

	if (bytes < head || bytes > sizeof(c))
		return;
	memcpy(&c, data, bytes);
	give(w, host, c.credits);
	if (c.kind == CTL_ANSWERS) {
		if (c.n > ACKS_MAX || bytes != head + c.n * sizeof(c.answers[0]))
			return;
		for (unsigned i = 0; i < c.n; i++)
			answered(w, h, c.answers[i]);
	} else if (c.kind == CTL_CONTROL && c.n == bytes - head) {
		h->owed += h->state == VERBS_UP;
		if (owes_much(h))
			due(w, host);
		net_control_came(w->f, host, c.data, c.n);
	}
}

static uint32_t what_became(int err)
{
	return err == 0 ? ANSWER_TAKEN : err == -EAGAIN ? ANSWER_FULL : ANSWER_GONE;
}

/* A receive buffer of the host's was used: it is told so, with the answer if it wants one. */
static void taken(struct verbs *w, uint32_t host, uint32_t number, int err)
{
	struct verbs_host *h = &w->hosts[host];

	if (err == -EAGAIN && number == 0)
		w->f->stats.dropped++;
	if (h->state != VERBS_UP)
		return;
	if (number != 0 && h->n_acks < h->credits_max)
		h->acks[h->n_acks++] = what_became(err) << 24 | number;
	else if (h->owed < h->credits_max)
		h->owed++;
	if (number != 0 || owes_much(h))
		due(w, host);
}

void verbs_message_came(struct verbs *w, uint32_t host, const uint8_t *data, uint32_t bytes,
			uint32_t imm)
{
	uint32_t client = imm & CLIENT_MASK, number;
	struct vb_msg m;

	give(w, host, imm >> VB_PEER_CLIENT_BITS);
	if (client == 0) {
		ctl_came(w, host, data, bytes);
		return;
	}
	if (bytes != sizeof(m)) {
		vb_warn("host %u sent a message of %u bytes", host, bytes);
		taken(w, host, 0, 0);
		return;
	}
	memcpy(&m, data, sizeof(m));
	number = (uint32_t)(m.from >> FROM_BITS);
	m.from &= FROM_MASK;
	if (vb_peer_node(m.from) >= w->f->f.nodes ||
	    net_host_of_node(w->f, vb_peer_node(m.from)) != host) {
		vb_warn("host %u sent a message in another's name", host);
		taken(w, host, number, -VB_EPEERGONE);
		return;
	}
	taken(w, host, number, net_deliver(w->f, client, &m));
}

void verbs_bare_came(struct verbs *w, uint32_t host, uint32_t imm)
{
	struct vb_msg m = {.from = vb_peer_make((uint16_t)host, 0),
			   .imm = imm >> VB_PEER_CLIENT_BITS};

	taken(w, host, 0, net_deliver(w->f, imm & CLIENT_MASK, &m));
}
