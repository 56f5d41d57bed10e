/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What comes: messages are taken apart, verbs are executed in the order of their messages' numbers,
 * and answers go back.
 *
 * Order.  A carrier may deliver a long message after shorter ones that were sent behind it (UCX's
 * rendezvous fetches its data later).  Verbs are executed by number; what is early is held, at most
 * `window` messages of a host.  A gap cannot stay: what is lost takes the connection with it, and the
 * next connection (epoch) begins with 1.  In an elastic cluster whose carrier delivers in order nothing is held:
 * who leaves a message out loses the connection.  What comes of an epoch that is over is dropped: its sender
 * has given it up.
 *
 * Trust.  A message must carry the session's number and a host's number, and everything in it is
 * checked before use; what is not right is dropped, counted, and said now and then.  That keeps out
 * mistakes and the processes of other runs, not attackers: the number travels in clear.  Whether a
 * message is from whom it says is the carrier's to prove (fabric/tcp does, UCX cannot: doc/cluster.md,
 * "Trust").
 */
#define VB_LOG_ROOM "net"
#include <inttypes.h>

#include "base/log.h"
#include "fabric/net/am/am.h"

/* ---- executing ---- */

static void answer(struct am_host *h, const struct am_header *head, struct am_msg *m, uint8_t flags)
{
	struct am_wire *w = h->wire;
	struct am_header reply = {
		.kind = AM_ANSWER,
		.flags = flags,
		.session = w->session,
		.host = w->f->host,
		.epoch = head->epoch,
		.number = head->number,
		.clock = vb_clock_ns(),
		.bytes = m->bytes,
	};

	am_past_keep(h, &reply, m->buffer + AM_HEADER);
	/* Without a connection back it is lost; the sender's silence will tell it. */
	m->over = true;
	if (!h->linked || h->failed)
		am_msg_put(m);
	else
		(void)am_msg_send(m, &reply);
}

/* What cannot be taken in must not happen, nor what was sent behind it: its connection ends. */
static void lose(struct am_host *h, uint32_t bytes)
{
	vb_error("no memory for a message of %u bytes: host %u has to connect anew", bytes,
		 h->rank);
	h->from_epoch = 0;
	am_failed(h, "there was no memory for a message");
}

static void execute(struct am_host *h, const struct am_header *head, const uint8_t *body)
{
	struct am_wire *w = h->wire;
	struct am_msg *m = am_msg_get(h, AM_ANSWER);
	const uint64_t letters = w->letters;
	const bool hurried = w->hurries;
	uint32_t most, late;

	w->hurries = true;
	if (m == NULL) {
		lose(h, head->bytes);
		return;
	}
	if (am_body_check(body, head->bytes, head->verbs, &most) != 0) {
		vb_error("host %u has sent a malformed message: refused", h->rank);
		answer(h, head, m, AM_REFUSED);
		return;
	}
	if (!am_msg_reserve(m, most)) {
		am_msg_put(m);
		lose(h, most);
		return;
	}
	m->bytes = am_body_execute(&w->owner, head, body, m->buffer + AM_HEADER, &late);
	w->f->stats.served += head->verbs - late;
	w->f->stats.refused += late;
	if (w->helping)
		w->f->stats.served_late += head->verbs - late;
	w->hurries = hurried || w->letters != letters + head->verbs;
	answer(h, head, m, 0);
}

/* Whatever is held and has its turn. */
static void drain(struct am_host *h)
{
	struct am_in *in;

	while (h->held.next != &h->held) {
		in = vb_container_of(h->held.next, struct am_in, link);
		if (in->h.number != h->expected || in->receiving || h->from_epoch == 0)
			return;
		vb_list_remove(&in->link);
		h->held_n--;
		h->expected++;
		execute(h, &in->h, in->data);
		am_in_free(in);
	}
}

/* ---- long messages ---- */

void am_in_ready(struct am_in *in, const char *failure)
{
	struct am_host *h = in->host;

	in->receiving = false;
	if (in->dropped) {
		am_in_free(in);
		return;
	}
	h->wire->came++;
	if (failure != NULL) {
		/* Numbers behind it will not have their turn any more. */
		am_failed(h, failure);
		return;
	}
	if (in->h.kind == AM_VERBS) {
		drain(h);
		return;
	}
	am_answered(h, &in->h, in->data);
	am_in_free(in);
}

/* False: it is not, and will not be. */
static bool fetch(struct am_host *h, const struct am_header *head, void *body)
{
	struct am_in *in = am_in_new(h, head);

	if (in == NULL) {
		lose(h, head->bytes);
		return false;
	}
	if (head->kind == AM_VERBS && !am_hold(h, in)) {
		am_in_free(in);
		return false;
	}
	in->receiving = true;
	h->wire->carrier->fetch(in, body);
	return true;
}

/* ---- every message ---- */

/* Who sends what is refused may go on for ever: a line for many. */
#define REFUSED_AGAIN_NS 10000000000ull

static void refuse(struct am_wire *w, const char *why, uint32_t host)
{
	uint64_t now = vb_clock_gettime_ns();

	w->refused++;
	w->refused_untold++;
	if (now < w->refused_again_ns)
		return;
	vb_warn("refused a message that says it is of host %" PRIu32 ": %s; %" PRIu64
		" since the last such "
		"line, %" PRIu64 " in all",
		host, why, w->refused_untold, w->refused);
	w->refused_untold = 0;
	w->refused_again_ns = now + REFUSED_AGAIN_NS;
}

static void verbs_came(struct am_host *h, const struct am_header *head, const uint8_t *body)
{
	struct am_in *in;

	if (head->number == h->expected) {
		h->expected++;
		execute(h, head, body);
		drain(h);
		return;
	}
	if (h->wire->carrier->lasting && h->wire->f->elastic != NULL) {
		/* Nothing overtakes there: its turn would never come, and members may be many. */
		refuse(h->wire, "it leaves out messages that were to come before", h->rank);
		am_failed(h, "it leaves out messages");
		return;
	}
	in = am_in_new(h, head);
	if (in == NULL) {
		lose(h, head->bytes);
		return;
	}
	memcpy(in->data, body, head->bytes);
	if (!am_hold(h, in))
		am_in_free(in);
}

static bool sort(struct am_host *h, const struct am_header *head, void *body, bool later)
{
	am_heard(h, head);
	switch ((enum am_kind)head->kind) {
	case AM_VERBS:
		if (head->epoch != h->from_epoch || head->number < h->expected)
			return false;
		if (later)
			return fetch(h, head, body);
		verbs_came(h, head, body);
		return false;
	case AM_ANSWER:
		if (later)
			return am_wants(h, head) && fetch(h, head, body);
		am_answered(h, head, body);
		return false;
	default:
		break;
	}
	if (later || head->bytes > NET_CONTROL_MAX)
		return false;
	h->wire->hurries = true;
	if (head->kind == AM_HELLO)
		am_hello_came(h, head, body);
	else if (head->kind == AM_WELCOME)
		am_welcome_came(h, head);
	else if (head->kind == AM_CONTROL)
		net_control_came(h->wire->f, h->rank, body, head->bytes);
	return false;
}

static bool of_this_run(struct am_wire *w, const struct am_header *head)
{
	const char *why = NULL;

	if (head->session != w->session)
		why = "it does not know this session's number";
	else if (head->host >= w->hosts || w->host[head->host].state == AM_GONE)
		why = "no such host is in this cluster";
	if (why != NULL)
		refuse(w, why, head->host);
	return why == NULL;
}

void am_message(struct am_wire *w, const struct am_header *head, uint8_t *body)
{
	w->came++;
	w->f->stats.messages++;
	if (of_this_run(w, head))
		(void)sort(&w->host[head->host], head, body, false);
}

bool am_came(struct am_wire *w, const void *header, size_t header_bytes, void *body, size_t bytes,
	     bool later)
{
	struct am_header head;
	const char *why;

	w->came++;
	w->f->stats.messages++;
	if (am_header_get(header, header_bytes, &head, &why) != 0) {
		refuse(w, why, UINT32_MAX);
		return false;
	}
	if (!of_this_run(w, &head))
		return false;
	if (head.bytes != bytes) {
		refuse(w, "its length is not what it says", head.host);
		return false;
	}
	return sort(&w->host[head.host], &head, body, later);
}
