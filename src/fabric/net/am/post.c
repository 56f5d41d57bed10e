/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verbs on their way out.
 *
 * post() writes each verb into its host's open message; the doorbell closes that and, if fewer than
 * `window` messages to the host are unanswered, sends it.  While the window is used up verbs go on
 * being collected, so that a slow peer gets fewer and longer messages.  Collecting is bounded by
 * `queue` closed messages per host: then post() looks at the network until there is room, for the
 * time of `bound` at most and not at all for a host that has stopped answering; what finds no room
 * even then does not happen.
 *
 * A batch is one doorbell: behind a verb of it that does not happen, because its time is over, the later ones
 * to the same host must not happen either (a record that was not written is not let go).  So it goes into one
 * message where it can; else what it goes on in has the time of what it began in, at both ends.
 */
#define VB_LOG_ROOM "net"
#include <sched.h>

#include "base/log.h"
#include "fabric/net/am/am.h"

static void end_verb(struct net_fabric *f, struct net_ep *e, struct vb_batch *b, struct vb_verb *v,
		     int status)
{
	v->status = status;
	if (!(v->flags & VB_SIGNALLED)) {
		f->stats.dropped++;
		return;
	}
	net_done(f, e->thread, b, 1);
}

/* It answers, or has had no time to. */
static bool answering(const struct am_host *h, uint64_t now)
{
	const struct am_msg *m;

	if (h->flight.next == &h->flight)
		return true;
	m = vb_container_of(h->flight.next, struct am_msg, link);
	return now < m->sent_ns + h->wire->o.bound_ns;
}

static int wait_room(struct am_host *h)
{
	struct am_wire *w = h->wire;
	uint64_t now = vb_clock_ns(), until = now + w->o.bound_ns;

	w->f->stats.waits++;
	while (h->state == AM_UP && now < until && answering(h, now)) {
		am_pump(h);
		am_look(w);
		if (h->queued < w->o.queue)
			return 0;
		sched_yield();
		now = vb_clock_ns();
	}
	return h->state == AM_UP ? -EAGAIN : -VB_EPEERGONE;
}

static bool fits(const struct am_msg *m, uint32_t bytes, uint32_t answer)
{
	return m->verbs < AM_VERBS_MAX && m->bytes + bytes <= AM_BODY_SOFT &&
	       m->answer + answer <= AM_BODY_SOFT;
}

static void close_full(struct am_host *h)
{
	am_close_open(h);
	am_pump(h);
}

static struct am_host *host_of(struct net_fabric *f, const struct vb_verb *v)
{
	uint16_t node = v->op == VB_OP_SEND ? vb_peer_node(v->peer) : vb_addr_node(v->addr);

	return &am_of(f)->host[net_host_of_node(f, node)];
}

/* The batch's verbs from here on are the first to this host. */
static void begin_batch(struct net_fabric *f, struct am_host *h, const struct vb_verb *v,
			unsigned n)
{
	uint32_t bytes = 0, answer = 0, verbs = 0;

	h->batch = am_of(f)->batches;
	h->batch_epoch = h->epoch;
	h->batch_err = 0;
	if (h->open == NULL || n == 1)
		return;
	for (unsigned i = 0; i < n; i++) {
		if (v[i].status != 0 || host_of(f, &v[i]) != h)
			continue;
		bytes += am_verb_bytes(&v[i]);
		answer += am_verb_answer(&v[i]);
		verbs++;
	}
	if (!fits(h->open, bytes, answer) || h->open->verbs + verbs > AM_VERBS_MAX)
		close_full(h);
}

/* The message that a verb goes into. */
static int open_for(struct am_host *h, bool goes_on, uint32_t bytes, uint32_t answer,
		    struct am_msg **out)
{
	int err;

	if (h->open != NULL && !fits(h->open, bytes, answer))
		close_full(h);
	if (h->open == NULL) {
		if (h->queued >= h->wire->o.queue) {
			err = wait_room(h);
			if (err != 0)
				return err;
		}
		h->open = am_msg_get(h, AM_VERBS);
		if (h->open == NULL)
			return vb_fail(-EAGAIN, "no memory for a message: its verbs do not happen");
		h->open->goes_on = goes_on;
		h->open->oldest_ns = goes_on ? h->from_ns : vb_clock_ns();
		h->from_ns = h->open->oldest_ns;
		am_due(h->wire, h->open->oldest_ns + h->wire->o.bound_ns);
	}
	if (!am_msg_reserve(h->open, bytes))
		return vb_fail(-EAGAIN,
			       "no memory for a message of %u bytes: a verb does not happen",
			       h->open->bytes + bytes);
	*out = h->open;
	return 0;
}

static int append(struct am_host *h, bool goes_on, struct net_ep *e, struct vb_batch *b,
		  struct vb_verb *v)
{
	uint32_t bytes, answer;
	struct am_msg *m;
	int err;

	bytes = am_verb_bytes(v);
	answer = am_verb_answer(v);
	err = open_for(h, goes_on, bytes, answer, &m);
	if (err != 0)
		return err;
	am_verb_put(m->buffer + AM_HEADER + m->bytes, v, e->ep.self);
	if ((v->flags & VB_SIGNALLED) || v->not_after_ns != 0) {
		uint64_t not_after = v->not_after_ns != 0 ? v->not_after_ns : VB_FOREVER;

		if (not_after < m->not_after_ns)
			m->not_after_ns = not_after;
		m->entry[m->entries++] = (struct am_entry){.v = v->flags & VB_SIGNALLED ? v : NULL,
							   .batch = b,
							   .thread = e->thread,
							   .not_after_ns = not_after,
							   .at = m->bytes,
							   .bytes = bytes};
	}
	m->bytes += bytes;
	m->answer += answer;
	m->verbs++;
	am_mark(h);
	return 0;
}

/* The core has looked at that, but without the engine: the host may have begun again since.  What is done to the
 * memory that it has now would be done to what nobody here has been told of. */
static int refused(const struct net_fabric *f, const struct am_host *h, const struct vb_verb *v)
{
	return v->op != VB_OP_SEND && net_memory_gone(f, h->rank) ? -VB_EPEERGONE : 0;
}

/* After verbs to other hosts, for which it may have waited: what was posted before may have gone with a connection in
 * whose place another one is. */
static int usable(struct am_host *h)
{
	int err = am_usable(h);

	return err == 0 && h->epoch != h->batch_epoch ? -VB_EPEERGONE : err;
}

int am_post(struct net_fabric *f, struct net_ep *e, struct vb_batch *b)
{
	struct vb_verb *verbs = b->verbs;
	unsigned n = b->n;
	struct am_host *last = NULL;

	am_of(f)->batches++;
	for (unsigned i = 0; i < n; i++) {
		struct vb_verb *v = &verbs[i];
		struct am_host *h;
		bool goes_on;

		if (v->status != 0)
			continue;
		h = host_of(f, v);
		goes_on = h->batch == am_of(f)->batches;
		if (!goes_on)
			begin_batch(f, h, v, n - i);
		/* After one that found no room the later ones must not happen either: perhaps they
		 * were meant to follow it. */
		if (h != last && h->batch_err == 0)
			h->batch_err = usable(h);
		last = h;
		if (h->batch_err == 0)
			h->batch_err = refused(f, h, v);
		if (h->batch_err == 0)
			h->batch_err = append(h, goes_on, e, b, v);
		if (h->batch_err != 0)
			end_verb(f, e, b, v,
				 h->batch_err == -EAGAIN ? am_did_not_happen(v) : h->batch_err);
	}
	if (f->coalesce)
		return 0;
	vb_list_for_each (it, &am_of(f)->dirty) {
		struct am_host *h = vb_container_of(it, struct am_host, in_dirty);

		if (h->open != NULL)
			am_close_open(h);
	}
	return 0;
}

void am_flush(struct net_fabric *f)
{
	struct am_wire *w = am_of(f);

	vb_list_for_each (it, &w->dirty) {
		struct am_host *h = vb_container_of(it, struct am_host, in_dirty);

		h->rung = h->open != NULL;
	}
	am_tend(w);
	if (w->carrier->push != NULL)
		w->carrier->push(w);
}
