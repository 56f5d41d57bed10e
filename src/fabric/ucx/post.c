/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verbs on their way out and answers on their way in.
 *
 * post() writes each verb into its host's open message; the doorbell closes that and, if fewer than
 * `window` messages to the host are unanswered, sends it.  While the window is used up verbs go on
 * being collected, so that a slow peer gets fewer and longer messages.  Collecting is bounded by
 * `queue` closed messages per host: then post() looks at the network until there is room, for the
 * time of `bound` at most and not at all for a host that has stopped answering; what finds no room
 * even then does not happen.
 *
 * Time.  A message says until when, in its owner's clock, its verbs may happen: `bound` after the
 * oldest of them was posted.  What the owner reads later than that does not happen, and what is
 * still collected here when it is over is not sent.  After another `grace` a signalled verb without
 * an answer is given up as -VB_EUNKNOWN; an answer that comes later is dropped.
 *
 * What did not happen.  A verb that is surely not executed, for want of time or room, ends with
 *	-EAGAIN        SEND, WRITE_NOTIFY: as when the receiver's ring is full
 *	-VB_ETOOLATE   with not_after_ns: its protocol has a way to go on from "did not happen"
 *	-VB_EUNKNOWN   the others.  That is less than is known, but it is what every protocol deals with by
 *	               waiting for verb_bound_ns and asking again, while an error that is new to them
 *	               would end an acquire, or leave a release half done
 * and if it was not signalled it is dropped (stats.dropped).
 */
#define VB_LOG_ROOM "ucx"
#include <sched.h>

#include "base/log.h"
#include "fabric/ucx/inner.h"

/* ---- telling the batches ---- */

/* Verbs of one batch lie together in a message: they are told together. */
struct telling {
	struct ucx_wire *w;
	struct vb_batch *batch;
	struct net_thread *thread;
	unsigned n;
};

static void tell_now(struct telling *t)
{
	if (t->n > 0)
		net_done(t->w->f, t->thread, t->batch, t->n);
	t->n = 0;
}

static void tell(struct telling *t, const struct ucx_entry *e)
{
	if (t->n > 0 && t->batch != e->batch)
		tell_now(t);
	t->batch = e->batch;
	t->thread = e->thread;
	t->n++;
}

static int did_not_happen(const struct vb_verb *v)
{
	if (v->op == VB_OP_SEND || v->op == VB_OP_WRITE_NOTIFY)
		return -EAGAIN;
	return v->not_after_ns != 0 ? -VB_ETOOLATE : -VB_EUNKNOWN;
}

/* Ends the signalled verbs of a message; status 0: they did not happen. */
static void end_entries(struct ucx_msg *m, int status)
{
	struct telling t = {.w = m->wire};

	for (uint32_t i = 0; i < m->entries; i++) {
		struct ucx_entry *e = &m->entry[i];

		if (e->v == NULL)
			continue;
		e->v->status = status != 0 ? status : did_not_happen(e->v);
		tell(&t, e);
	}
	tell_now(&t);
	m->entries = 0;
}

static uint32_t signalled(const struct ucx_msg *m)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < m->entries; i++)
		n += m->entry[i].v != NULL;
	return n;
}

/* A message that will not be sent. */
static void end_unsent(struct ucx_msg *m, int status)
{
	m->wire->f->stats.dropped += m->verbs - signalled(m);
	end_entries(m, status);
	ucx_msg_put(m);
}

/* ---- sending ---- */

/* Takes out the verbs whose own time is over. */
static void drop_late(struct ucx_msg *m, uint64_t now)
{
	struct telling t = {.w = m->wire};
	uint32_t kept = 0;

	m->not_after_ns = VB_FOREVER;
	for (uint32_t i = 0; i < m->entries; i++) {
		struct ucx_entry *e = &m->entry[i];

		if (now <= e->not_after_ns) {
			if (e->not_after_ns < m->not_after_ns)
				m->not_after_ns = e->not_after_ns;
			m->entry[kept++] = *e;
			continue;
		}
		ucx_verb_drop(m->buffer + UCX_HEADER + e->at, e->bytes);
		if (e->v == NULL) {
			m->wire->f->stats.dropped++;
			continue;
		}
		e->v->status = -VB_ETOOLATE;
		tell(&t, e);
	}
	tell_now(&t);
	m->entries = kept;
}

static void send_verbs(struct ucx_msg *m)
{
	struct ucx_host *h = m->host;
	struct ucx_wire *w = m->wire;
	uint64_t now = vb_clock_ns();
	struct ucx_header head;

	if (now > m->oldest_ns + w->o.bound_ns) {
		end_unsent(m, 0);
		return;
	}
	if (now > m->not_after_ns)
		drop_late(m, now);
	m->number = h->next_number++;
	m->sent_ns = now;
	head = (struct ucx_header){
		.kind = UCX_VERBS,
		.session = w->session,
		.host = w->f->host,
		.epoch = h->epoch,
		.number = m->number,
		.clock = ucx_clock_there(h, m->oldest_ns) + w->o.bound_ns,
		.verbs = m->verbs,
		.bytes = m->bytes,
	};
	vb_list_push(&h->flight, &m->link);
	h->flying++;
	w->f->stats.doorbells++;
	ucx_due(w, m->oldest_ns + w->f->wait_ns);
	if (ucx_msg_send(m, &head) != 0)
		m->unsent = true;
}

/* The open message joins the queue. */
static void close_open(struct ucx_host *h)
{
	struct ucx_msg *m = h->open;

	h->open = NULL;
	h->rung = false;
	vb_list_push(&h->queue, &m->link);
	h->queued++;
}

void ucx_pump(struct ucx_host *h)
{
	while (h->state == UCX_UP && !h->failed && h->flying < h->wire->o.window) {
		struct vb_list *first;

		if (h->queued == 0 && h->open != NULL && h->rung)
			close_open(h);
		first = vb_list_pop(&h->queue);
		if (first == NULL)
			return;
		h->queued--;
		send_verbs(vb_container_of(first, struct ucx_msg, link));
	}
}

void ucx_flush(struct net_fabric *f)
{
	struct ucx_wire *w = ucx_of(f);

	vb_list_for_each (it, &w->dirty) {
		struct ucx_host *h = vb_container_of(it, struct ucx_host, in_dirty);

		h->rung = h->open != NULL;
	}
	ucx_tend(w);
}

/* ---- posting ---- */

static void end_verb(struct net_fabric *f, struct net_ep *e, struct vb_batch *b, struct vb_verb *v,
		     int status)
{
	if (!(v->flags & VB_SIGNALLED)) {
		f->stats.dropped++;
		return;
	}
	v->status = status;
	net_done(f, e->thread, b, 1);
}

/* It answers, or has had no time to. */
static bool answering(const struct ucx_host *h, uint64_t now)
{
	const struct ucx_msg *m;

	if (h->flight.next == &h->flight)
		return true;
	m = vb_container_of(h->flight.next, struct ucx_msg, link);
	return now < m->sent_ns + h->wire->o.bound_ns;
}

static int wait_room(struct ucx_host *h)
{
	struct ucx_wire *w = h->wire;
	uint64_t now = vb_clock_ns(), until = now + w->o.bound_ns;

	w->f->stats.waits++;
	while (h->state == UCX_UP && now < until && answering(h, now)) {
		ucx_pump(h);
		ucx_look(w);
		if (h->queued < w->o.queue)
			return 0;
		sched_yield();
		now = vb_clock_ns();
	}
	return h->state == UCX_UP ? -EAGAIN : -VB_EPEERGONE;
}

static bool fits(const struct ucx_msg *m, uint32_t bytes, uint32_t answer)
{
	return m->verbs < UCX_VERBS_MAX && m->bytes + bytes <= UCX_BODY_SOFT &&
	       m->answer + answer <= UCX_BODY_SOFT;
}

/* The message that a verb goes into. */
static int open_for(struct ucx_host *h, uint32_t bytes, uint32_t answer, struct ucx_msg **out)
{
	int err;

	if (h->open != NULL && !fits(h->open, bytes, answer)) {
		close_open(h);
		ucx_pump(h);
	}
	if (h->open == NULL) {
		if (h->queued >= h->wire->o.queue) {
			err = wait_room(h);
			if (err != 0)
				return err;
		}
		h->open = ucx_msg_get(h, UCX_VERBS);
		if (h->open == NULL)
			return vb_fail(-ENOMEM, "no memory for a message");
		h->open->oldest_ns = vb_clock_ns();
		ucx_due(h->wire, h->open->oldest_ns + h->wire->o.bound_ns);
	}
	if (!ucx_msg_reserve(h->open, bytes))
		return vb_fail(-ENOMEM, "no memory for a message of %u bytes",
			       h->open->bytes + bytes);
	*out = h->open;
	return 0;
}

static int append(struct ucx_host *h, struct net_ep *e, struct vb_batch *b, struct vb_verb *v)
{
	uint32_t bytes, answer;
	struct ucx_msg *m;
	int err;

	bytes = ucx_verb_bytes(v);
	answer = ucx_verb_answer(v);
	err = open_for(h, bytes, answer, &m);
	if (err != 0)
		return err;
	ucx_verb_put(m->buffer + UCX_HEADER + m->bytes, v, e->ep.self);
	if ((v->flags & VB_SIGNALLED) || v->not_after_ns != 0) {
		uint64_t not_after = v->not_after_ns != 0 ? v->not_after_ns : VB_FOREVER;

		if (not_after < m->not_after_ns)
			m->not_after_ns = not_after;
		m->entry[m->entries++] = (struct ucx_entry){.v = v->flags & VB_SIGNALLED ? v : NULL,
							    .batch = b,
							    .thread = e->thread,
							    .not_after_ns = not_after,
							    .at = m->bytes,
							    .bytes = bytes};
	}
	m->bytes += bytes;
	m->answer += answer;
	m->verbs++;
	ucx_mark(h);
	return 0;
}

static struct ucx_host *host_of(struct net_fabric *f, const struct vb_verb *v)
{
	uint16_t node = v->op == VB_OP_SEND ? vb_peer_node(v->peer) : vb_addr_node(v->addr);

	return &ucx_of(f)->host[net_host_of_node(f, node)];
}

int ucx_usable(struct ucx_host *h)
{
	if (vb_likely(h->state == UCX_UP && !h->failed))
		return 0;
	/* The post fails at once, but shows that the host is wanted. */
	if (h->state == UCX_DOWN && vb_clock_ns() >= h->retry_at_ns)
		(void)ucx_greet(h);
	return -VB_EPEERGONE;
}

int ucx_post(struct net_fabric *f, struct net_ep *e, struct vb_batch *b)
{
	struct vb_verb *verbs = b->verbs;
	unsigned n = b->n;
	struct ucx_host *last = NULL;
	int err = 0;

	for (unsigned i = 0; i < n; i++) {
		struct vb_verb *v = &verbs[i];
		struct ucx_host *h;
		int rc;

		if (v->status != 0)
			continue;
		h = host_of(f, v);
		if (h != last) {
			err = ucx_usable(h);
			last = h;
		}
		/* After one that found no room the later ones must not happen either: perhaps they
		 * were meant to follow it. */
		rc = err != 0 ? err : append(h, e, b, v);
		if (rc == -EAGAIN || rc == -VB_EPEERGONE)
			err = rc;
		if (rc != 0)
			end_verb(f, e, b, v, rc == -EAGAIN ? did_not_happen(v) : rc);
	}
	if (f->coalesce)
		return 0;
	vb_list_for_each (it, &ucx_of(f)->dirty) {
		struct ucx_host *h = vb_container_of(it, struct ucx_host, in_dirty);

		if (h->open != NULL)
			close_open(h);
	}
	return 0;
}

/* ---- answers ---- */

static struct ucx_msg *find_flying(struct ucx_host *h, uint64_t number)
{
	vb_list_for_each (it, &h->flight) {
		struct ucx_msg *m = vb_container_of(it, struct ucx_msg, link);

		if (m->number == number)
			return m;
	}
	return NULL;
}

static void take_results(struct ucx_msg *m, const struct ucx_header *h, const uint8_t *body)
{
	struct ucx_cursor c = {body, body + h->bytes};
	struct telling t = {.w = m->wire};
	bool sound = true;

	for (uint32_t i = 0; i < m->entries; i++) {
		struct ucx_entry *e = &m->entry[i];

		if (e->v == NULL)
			continue;
		sound = sound && ucx_answer_get(&c, e->v) == 0;
		if (!sound)
			e->v->status = -VB_EUNKNOWN;
		else if (e->v->status == -VB_ETOOLATE)
			e->v->status = did_not_happen(e->v);
		tell(&t, e);
	}
	tell_now(&t);
	m->entries = 0;
	if (!sound || c.at != c.end)
		vb_error("host %u has sent an answer of the wrong length", m->host->rank);
}

bool ucx_wants(struct ucx_host *from, const struct ucx_header *h)
{
	struct ucx_msg *m = h->epoch == from->epoch ? find_flying(from, h->number) : NULL;

	if (m == NULL || m->fetching)
		return false;
	m->fetching = true;
	return true;
}

void ucx_answered(struct ucx_host *from, const struct ucx_header *h, const uint8_t *body)
{
	struct ucx_msg *m = h->epoch == from->epoch ? find_flying(from, h->number) : NULL;

	if (m == NULL)
		return;
	m->wire->f->stats.completions++;
	if (h->flags & UCX_REFUSED)
		end_entries(m, 0);
	else if (!m->given_up)
		take_results(m, h, body);
	from->flying--;
	ucx_msg_put(m);
	ucx_mark(from);
}

/* ---- what takes too long ---- */

void ucx_fail_all(struct ucx_host *h)
{
	struct vb_list *it;

	while ((it = vb_list_pop(&h->flight)) != NULL) {
		struct ucx_msg *m = vb_container_of(it, struct ucx_msg, link);

		h->flying--;
		end_entries(m, m->unsent ? -VB_EPEERGONE : -VB_EUNKNOWN);
		ucx_msg_put(m);
	}
	while ((it = vb_list_pop(&h->queue)) != NULL) {
		h->queued--;
		end_unsent(vb_container_of(it, struct ucx_msg, link), -VB_EPEERGONE);
	}
	if (h->open != NULL) {
		struct ucx_msg *m = h->open;

		h->open = NULL;
		h->rung = false;
		end_unsent(m, -VB_EPEERGONE);
	}
}

static uint64_t expire_flight(struct ucx_host *h, uint64_t now)
{
	uint64_t wait = h->wire->f->wait_ns, due = VB_FOREVER;

	vb_list_for_each (it, &h->flight) {
		struct ucx_msg *m = vb_container_of(it, struct ucx_msg, link);

		if (m->given_up)
			continue;
		if (now < m->oldest_ns + wait) {
			if (m->oldest_ns + wait < due)
				due = m->oldest_ns + wait;
			continue;
		}
		m->given_up = true;
		end_entries(m, -VB_EUNKNOWN);
	}
	return due;
}

static uint64_t expire_queue(struct ucx_host *h, uint64_t now)
{
	uint64_t bound = h->wire->o.bound_ns, due = VB_FOREVER;

	vb_list_for_each (it, &h->queue) {
		struct ucx_msg *m = vb_container_of(it, struct ucx_msg, link);

		if (now <= m->oldest_ns + bound)
			return m->oldest_ns + bound + 1;
		h->queued--;
		vb_list_remove(&m->link);
		end_unsent(m, 0);
	}
	if (h->open != NULL) {
		struct ucx_msg *m = h->open;

		if (now <= m->oldest_ns + bound)
			return m->oldest_ns + bound + 1;
		h->open = NULL;
		h->rung = false;
		end_unsent(m, 0);
	}
	return due;
}

static uint64_t min64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint64_t ucx_expire(struct ucx_host *h, uint64_t now)
{
	uint64_t due = VB_FOREVER, since;

	if (h->state == UCX_GREETING) {
		due = h->greeted_ns + h->wire->o.silence_ns;
		return now < due ? due : ucx_greet_again(h, now);
	}
	if (h->flying > 0) {
		struct ucx_msg *oldest = vb_container_of(h->flight.next, struct ucx_msg, link);

		since = oldest->sent_ns > h->heard_ns ? oldest->sent_ns : h->heard_ns;
		due = since + h->wire->o.silence_ns;
		if (now >= due) {
			ucx_break(h, "it does not answer");
			return VB_FOREVER;
		}
		due = min64(due, expire_flight(h, now));
	}
	return min64(due, expire_queue(h, now));
}
