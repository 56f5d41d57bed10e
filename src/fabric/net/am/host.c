/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections to hosts.
 *
 * A connection begins with HELLO and is usable when WELCOME has come back, which brings the first
 * reading of the owner's clock.  Each side greets for its own verbs; answers go over the answering
 * side's connection.  Verbs of a connection are numbered within its *epoch*.
 *
 * A connection ends when the carrier says so (a killed peer: within a millisecond), or when a message has
 * been unanswered and nothing at all has come for `silence` (a cut link, a stopped machine: TCP
 * alone would take a quarter of an hour).  Then everything in flight ends, posts fail at once, and
 * a post that comes `retry` later tries a new connection from the address exchanged at first.
 *
 * The two sides of one broken connection find out at different times.  HELLO therefore says in
 * `number` which epoch of the receiver its sender is connected to: a host that is UP and hears that
 * the other has dropped it greets again at once.  In its upper half `number` says of which earlier connection
 * the sender awaits answers (past.c).
 */
#define VB_LOG_ROOM "net"
#include "base/log.h"
#include "fabric/net/am/am.h"

const char *am_host_name(const struct am_host *h, char buf[64])
{
	const struct vb_cluster *c = h->wire->f->cluster;

	if (c != NULL)
		return vb_cluster_name(c, h->rank);
	snprintf(buf, 64, "%s %u",
		 h->wire->f->elastic == NULL   ? "host"
		 : h->rank < h->wire->f->hosts ? "server"
					       : "client",
		 h->wire->f->elastic == NULL ? h->rank : net_elastic_number(h->wire->f, h->rank));
	return buf;
}

void am_heard(struct am_host *h, const struct am_header *m)
{
	uint64_t now = vb_clock_ns();

	h->heard_ns = now;
	if (m->kind != AM_VERBS && h->state == AM_UP)
		am_clock_saw(h, m->clock, now);
}

/* ---- connections ---- */

void am_failed(struct am_host *h, const char *why)
{
	h->failed = true;
	h->failure = why;
	am_mark(h);
}

static int say(struct am_host *h, enum am_kind kind, uint32_t epoch, uint64_t number)
{
	struct am_wire *w = h->wire;
	struct am_msg *m = am_msg_get(h, kind);
	struct am_header head = {
		.kind = (uint8_t)kind,
		.session = w->session,
		.host = w->f->host,
		.epoch = epoch,
		.number = number,
		.clock = vb_clock_ns(),
	};

	if (m == NULL)
		return vb_fail(-ENOMEM, "no memory for a message");
	if (kind == AM_HELLO && w->f->elastic != NULL) {
		net_elastic_card(w->f, h->rank, m->buffer + AM_HEADER); /* a new buffer has room */
		m->bytes = head.bytes = NET_CARD;
	}
	m->over = true;
	return am_msg_send(m, &head);
}

static int say_hello(struct am_host *h)
{
	uint64_t awaited = vb_list_empty(&h->parked) ? 0 : h->parked_epoch;

	return say(h, AM_HELLO, h->epoch, awaited << 32 | h->from_epoch);
}

int am_linked(struct am_host *h)
{
	struct am_wire *w = h->wire;
	uint64_t now = vb_clock_ns();

	h->linked = true;
	h->state = AM_GREETING;
	h->failed = false;
	h->epoch++;
	h->next_number = 1;
	h->greeted_ns = now;
	am_due(w, now + w->o.silence_ns);
	return say_hello(h);
}

int am_greet(struct am_host *h)
{
	struct am_wire *w = h->wire;
	int err;

	h->retry_at_ns = vb_clock_ns() + w->o.retry_ns;
	if (w->closing || h->state != AM_DOWN || h->address == NULL)
		return -VB_EPEERGONE;
	err = w->carrier->link(h);
	if (err == 0)
		return am_linked(h);
	return err == -EINPROGRESS ? 0 : -VB_EPEERGONE;
}

/* A carrier connects as long as it tries, and tells when it gives up.  To close before that is not for
 * us: UCX 1.13 aborts when an endpoint is closed that is not connected yet.  But the other's answer
 * may be lost with its own connection, so we ask once more over ours. */
static uint64_t greet_again(struct am_host *h, uint64_t now)
{
	h->epoch++;
	h->greeted_ns = now;
	(void)say_hello(h);
	return now + h->wire->o.silence_ns;
}

int am_usable(struct am_host *h)
{
	if (vb_likely(h->state == AM_UP && !h->failed))
		return 0;
	/* The post fails at once, but shows that the host is wanted. */
	if (h->state == AM_DOWN && vb_clock_ns() >= h->retry_at_ns)
		(void)am_greet(h);
	return -VB_EPEERGONE;
}

void am_break(struct am_host *h, const char *why)
{
	struct am_wire *w = h->wire;
	bool was_up = h->state == AM_UP && !w->closing;
	char buf[64];

	if (was_up)
		vb_info("the connection to %s is lost: %s", am_host_name(h, buf), why);
	else
		vb_debug("no connection to %s: %s", am_host_name(h, buf), why);
	h->greeting = h->state == AM_GREETING;
	if (h->state != AM_GONE)
		h->state = AM_DOWN;
	h->failed = h->regreet = h->welcome = false;
	h->from_epoch = 0;
	h->retry_at_ns = vb_clock_ns() + w->o.retry_ns;
	h->linked = false;
	w->carrier->unlink(h);
	am_forget_held(h);
	if (w->carrier->lasting && h->state == AM_DOWN && !w->closing)
		am_park(h);
	else
		am_fail_all(h);
	if (w->f->elastic != NULL) {
		/* A server that begins again counts its connections anew. */
		h->newest_epoch = 0;
		net_elastic_down(w->f, h->rank);
	}
}

void am_set_caps(struct am_wire *w)
{
	const struct am_options *o = &w->o;
	struct net_fabric *f = w->f;

	f->f.caps.verb_bound_ns = o->bound_ns;
	f->f.caps.relink_ns = o->retry_ns + o->bound_ns;
	f->coalesce = o->coalesce;
	f->wait_ns = o->bound_ns + (w->carrier->lasting ? o->silence_ns : o->grace_ns);
	f->verb_bytes_max = AM_VERB_MAX;
}

/* A client goes by the bound of its servers. */
static void take_bound(struct am_wire *w)
{
	if (w->o.bound_ns == w->f->f.caps.verb_bound_ns)
		return;
	w->o.bound_ns = w->f->f.caps.verb_bound_ns;
	am_set_caps(w);
}

/* Who it is, in an elastic cluster. */
static bool fits(struct am_host *h, const struct am_header *m, const void *card)
{
	struct am_wire *w = h->wire;
	const char *why;

	if (w->f->elastic == NULL)
		return true;
	why = net_elastic_greeted(w->f, h->rank, card, m->bytes);
	if (why != NULL)
		am_failed(h, why);
	else if (net_is_client(w->f))
		take_bound(w);
	return why == NULL;
}

void am_hello_came(struct am_host *h, const struct am_header *m, const void *card)
{
	if (!fits(h, m, card))
		return;
	/* Greetings may wait in several connections at once, and be read in any order. */
	if (m->epoch <= h->newest_epoch)
		return;
	am_forget_held(h);
	h->newest_epoch = h->from_epoch = m->epoch;
	h->expected = 1;
	h->welcome = true;
	am_past_greeted(h, m->epoch, (uint32_t)(m->number >> 32));
	if (h->state == AM_UP && (uint32_t)m->number != h->epoch)
		h->regreet = h->welcomed;
	am_mark(h);
}

void am_welcome_came(struct am_host *h, const struct am_header *m)
{
	char buf[64];

	/* Who has taken leave says nothing any more. */
	if (h->state != AM_GREETING || m->epoch != h->epoch || h->wire->closing)
		return;
	/* Verbs must not flow to who has not said which server it is: that comes first over each connection. */
	if (h->wire->f->elastic != NULL && h->from_epoch == 0)
		return;
	am_unpark(h, m->number);
	am_clock_first(h, m->clock, h->heard_ns);
	h->state = AM_UP;
	if (h->wire->f->elastic != NULL)
		net_elastic_up(h->wire->f, h->rank, m->clock, h->greeted_ns, h->heard_ns);
	vb_debug("connected to %s, epoch %u", am_host_name(h, buf), h->epoch);
	am_mark(h);
}

static void tend_host(struct am_host *h)
{
	if (h->failed && h->linked)
		am_break(h, h->failure);
	h->failed = false;
	if (h->regreet) {
		uint32_t from = h->from_epoch;

		/* What it sends us goes on: only our own connection is gone. */
		am_break(h, "the other side has dropped it");
		h->from_epoch = from;
		h->welcome = true;
	}
	if (h->welcome && h->state == AM_DOWN)
		(void)am_greet(h); /* it is there: the answer needs a connection of ours */
	if (h->welcome && h->linked && !h->failed) {
		h->welcome = false;
		am_past_say(h);
		if (!h->failed && say(h, AM_WELCOME, h->from_epoch, am_past_next(h)) == 0)
			h->welcomed = true;
	}
	am_pump(h);
}

void am_tend(struct am_wire *w)
{
	struct vb_list later;

	/* From within a call that tends already (to ourselves, verbs are answered while they are
	 * sent): the outer one goes on with what is marked. */
	if (w->tending)
		return;
	w->tending = true;
	vb_list_init(&later);
	for (struct vb_list *it; (it = vb_list_pop(&w->dirty)) != NULL;) {
		struct am_host *h = vb_container_of(it, struct am_host, in_dirty);

		h->dirty = false;
		tend_host(h);
		/* Its doorbell has not rung yet: flush must find it. */
		if (!h->dirty && h->open != NULL && !h->rung) {
			h->dirty = true;
			vb_list_push(&later, &h->in_dirty);
		}
	}
	for (struct vb_list *it; (it = vb_list_pop(&later)) != NULL;)
		vb_list_push(&w->dirty, it);
	w->tending = false;
}

/* ---- what takes too long ---- */

static uint64_t min64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint64_t am_expire(struct am_host *h, uint64_t now)
{
	uint64_t due = VB_FOREVER, since;

	if (!vb_list_empty(&h->parked)) {
		if (now >= h->mend_ns)
			am_unpark(h, 0);
		else
			due = h->mend_ns;
	}
	if (h->state == AM_GREETING) {
		since = h->greeted_ns + h->wire->o.silence_ns;
		return min64(due, now < since ? since : greet_again(h, now));
	}
	if (h->flying > 0) {
		struct am_msg *oldest = vb_container_of(h->flight.next, struct am_msg, link);

		since = oldest->sent_ns > h->heard_ns ? oldest->sent_ns : h->heard_ns;
		due = since + h->wire->o.silence_ns;
		if (now >= due) {
			am_break(h, "it does not answer");
			return VB_FOREVER; /* what is due by that has been said to am_due */
		}
		due = min64(due, am_flight_expire(h, now));
	}
	return min64(due, am_queue_expire(h, now));
}
