/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of verbs: sent as the window allows, answered, given up.
 *
 * Time.  A message says until when, in its owner's clock, its verbs may happen: `bound` after the
 * oldest of them was posted.  What the owner reads later than that does not happen, and what is
 * still collected here when it is over is not sent.  Where the carrier may lose answers, a signalled
 * verb without one is given up as -VB_EUNKNOWN after another `grace`; an answer that comes later is
 * dropped.  A lasting carrier delivers or breaks: there the answer is awaited, and says whether the verb
 * has happened, however late it is; also beyond a break, if the next connection comes soon (past.c).
 *
 * What did not happen.  A verb that is surely not executed, for want of time or room, ends with
 *	-EAGAIN        SEND, WRITE_NOTIFY: as when the receiver's ring is full
 *	-VB_ETOOLATE   with not_after_ns: its protocol has a way to go on from "did not happen"
 *	-VB_EUNKNOWN   the others.  That is less than is known, but it is what every protocol deals with by
 *	               waiting for verb_bound_ns and asking again, while an error that is new to them
 *	               would end an acquire, or leave a release half done
 * and if it was not signalled it is dropped (stats.dropped).
 */
#define VB_LOG_ROOM "net"
#include "base/log.h"
#include "fabric/net/am/am.h"

/* ---- telling the batches ---- */

/* Verbs of one batch lie together in a message: they are told together. */
struct telling {
	struct am_wire *w;
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

static void tell(struct telling *t, const struct am_entry *e)
{
	if (t->n > 0 && t->batch != e->batch)
		tell_now(t);
	t->batch = e->batch;
	t->thread = e->thread;
	t->n++;
}

int am_did_not_happen(const struct vb_verb *v)
{
	if (v->op == VB_OP_SEND || v->op == VB_OP_WRITE_NOTIFY)
		return -EAGAIN;
	return v->not_after_ns != 0 ? -VB_ETOOLATE : -VB_EUNKNOWN;
}

/* Ends the signalled verbs of a message; status 0: they did not happen. */
static void end_entries(struct am_msg *m, int status)
{
	struct telling t = {.w = m->wire};

	for (uint32_t i = 0; i < m->entries; i++) {
		struct am_entry *e = &m->entry[i];

		if (e->v == NULL)
			continue;
		e->v->status = status != 0 ? status : am_did_not_happen(e->v);
		tell(&t, e);
	}
	tell_now(&t);
	m->entries = 0;
}

static uint32_t signalled(const struct am_msg *m)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < m->entries; i++)
		n += m->entry[i].v != NULL;
	return n;
}

/* A message that will not be sent. */
static void end_unsent(struct am_msg *m, int status)
{
	m->wire->f->stats.dropped += m->verbs - signalled(m);
	end_entries(m, status);
	am_msg_put(m);
}

/* ---- sending ---- */

/* Takes out the verbs whose own time is over. */
static void drop_late(struct am_msg *m, uint64_t now)
{
	struct telling t = {.w = m->wire};
	uint32_t kept = 0;

	m->not_after_ns = VB_FOREVER;
	for (uint32_t i = 0; i < m->entries; i++) {
		struct am_entry *e = &m->entry[i];

		if (now <= e->not_after_ns) {
			if (e->not_after_ns < m->not_after_ns)
				m->not_after_ns = e->not_after_ns;
			m->entry[kept++] = *e;
			continue;
		}
		am_verb_drop(m->buffer + AM_HEADER + e->at, e->bytes);
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

static void send_verbs(struct am_msg *m)
{
	struct am_host *h = m->host;
	struct am_wire *w = m->wire;
	uint64_t now = vb_clock_ns(), clock = am_clock_there(h, m->oldest_ns) + w->o.bound_ns;
	struct am_header head;

	if (now > m->oldest_ns + w->o.bound_ns) {
		end_unsent(m, 0);
		return;
	}
	if (now > m->not_after_ns)
		drop_late(m, now);
	m->number = h->next_number++;
	m->sent_ns = now;
	h->clock = m->goes_on && h->clock < clock ? h->clock : clock;
	head = (struct am_header){
		.kind = AM_VERBS,
		.session = w->session,
		.host = w->f->host,
		.epoch = h->epoch,
		.number = m->number,
		.clock = h->clock,
		.verbs = m->verbs,
		.bytes = m->bytes,
	};
	vb_list_push(&h->flight, &m->link);
	h->flying++;
	net_awaits(h->wire->f, 1);
	w->f->stats.doorbells++;
	am_due(w, m->oldest_ns + w->f->wait_ns);
	if (am_msg_send(m, &head) != 0)
		m->unsent = true;
}

void am_close_open(struct am_host *h)
{
	struct am_msg *m = h->open;

	h->open = NULL;
	h->rung = false;
	vb_list_push(&h->queue, &m->link);
	h->queued++;
}

void am_pump(struct am_host *h)
{
	while (h->state == AM_UP && !h->failed && h->flying < h->wire->o.window) {
		struct vb_list *first;

		if (h->queued == 0 && h->open != NULL && h->rung)
			am_close_open(h);
		first = vb_list_pop(&h->queue);
		if (first == NULL)
			return;
		h->queued--;
		send_verbs(vb_container_of(first, struct am_msg, link));
	}
}

/* ---- answers ---- */

static struct am_msg *find(struct vb_list *in, uint64_t number)
{
	vb_list_for_each (it, in) {
		struct am_msg *m = vb_container_of(it, struct am_msg, link);

		if (m->number == number)
			return m;
	}
	return NULL;
}

static struct am_msg *find_flying(struct am_host *h, const struct am_header *answer)
{
	return answer->epoch == h->epoch ? find(&h->flight, answer->number) : NULL;
}

/* From who has said who it is: in an elastic cluster it may be another one by now. */
static struct am_msg *find_parked(struct am_host *h, const struct am_header *answer)
{
	return answer->epoch == h->parked_epoch && h->from_epoch != 0
		       ? find(&h->parked, answer->number)
		       : NULL;
}

static void take_results(struct am_msg *m, const struct am_header *h, const uint8_t *body)
{
	struct am_cursor c = {body, body + h->bytes};
	struct telling t = {.w = m->wire};
	bool sound = true;

	for (uint32_t i = 0; i < m->entries; i++) {
		struct am_entry *e = &m->entry[i];

		if (e->v == NULL)
			continue;
		sound = sound && am_answer_get(&c, e->v) == 0;
		if (!sound)
			e->v->status = -VB_EUNKNOWN;
		else if (e->v->status == -VB_ETOOLATE)
			e->v->status = am_did_not_happen(e->v);
		tell(&t, e);
	}
	tell_now(&t);
	m->entries = 0;
	if (!sound || c.at != c.end)
		vb_error("host %u has sent an answer of the wrong length", m->host->rank);
}

bool am_wants(struct am_host *from, const struct am_header *h)
{
	struct am_msg *m = find_flying(from, h);

	if (m == NULL || m->fetching)
		return false;
	m->fetching = true;
	return true;
}

void am_answered(struct am_host *from, const struct am_header *h, const uint8_t *body)
{
	struct am_msg *m = find_flying(from, h);
	const bool parked = m == NULL;

	if (parked)
		m = find_parked(from, h);
	if (m == NULL)
		return;
	m->wire->f->stats.completions++;
	if (h->flags & AM_REFUSED)
		end_entries(m, 0);
	else if (!m->given_up)
		take_results(m, h, body);
	from->flying -= !parked;
	net_awaits(from->wire->f, -1);
	am_msg_put(m);
	am_mark(from);
}

/* ---- what takes too long ---- */

static void end_awaited(struct am_msg *m, int status)
{
	net_awaits(m->wire->f, -1);
	end_entries(m, status);
	am_msg_put(m);
}

/* Nothing of it has been sent. */
static void fail_queue(struct am_host *h)
{
	struct vb_list *it;

	while ((it = vb_list_pop(&h->queue)) != NULL) {
		h->queued--;
		end_unsent(vb_container_of(it, struct am_msg, link), -VB_EPEERGONE);
	}
	if (h->open != NULL) {
		struct am_msg *m = h->open;

		h->open = NULL;
		h->rung = false;
		end_unsent(m, -VB_EPEERGONE);
	}
}

void am_park(struct am_host *h)
{
	struct vb_list *it;

	while ((it = vb_list_pop(&h->flight)) != NULL) {
		struct am_msg *m = vb_container_of(it, struct am_msg, link);

		h->flying--;
		if (m->unsent) {
			end_awaited(m, -VB_EPEERGONE);
			continue;
		}
		/* WELCOME has ended all of a connection before. */
		vb_assert(vb_list_empty(&h->parked) || h->parked_epoch == h->epoch);
		vb_list_push(&h->parked, &m->link);
		h->parked_epoch = h->epoch;
		h->mend_ns = vb_clock_ns() + h->wire->f->f.caps.relink_ns;
		am_due(h->wire, h->mend_ns);
	}
	fail_queue(h);
}

void am_unpark(struct am_host *h, uint64_t next)
{
	struct vb_list *it;

	while ((it = vb_list_pop(&h->parked)) != NULL) {
		struct am_msg *m = vb_container_of(it, struct am_msg, link);

		end_awaited(m, next == 0 || m->number < next ? -VB_EUNKNOWN : -VB_EPEERGONE);
	}
}

void am_fail_all(struct am_host *h)
{
	am_park(h);
	am_unpark(h, 0);
}

uint64_t am_flight_expire(struct am_host *h, uint64_t now)
{
	uint64_t wait = h->wire->f->wait_ns, due = VB_FOREVER;

	if (h->wire->carrier->lasting)
		return VB_FOREVER; /* the silence of the host ends it: am_expire */
	vb_list_for_each (it, &h->flight) {
		struct am_msg *m = vb_container_of(it, struct am_msg, link);

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

uint64_t am_queue_expire(struct am_host *h, uint64_t now)
{
	uint64_t bound = h->wire->o.bound_ns, due = VB_FOREVER;

	vb_list_for_each (it, &h->queue) {
		struct am_msg *m = vb_container_of(it, struct am_msg, link);

		if (now <= m->oldest_ns + bound)
			return m->oldest_ns + bound + 1;
		h->queued--;
		vb_list_remove(&m->link);
		end_unsent(m, 0);
	}
	if (h->open != NULL) {
		struct am_msg *m = h->open;

		if (now <= m->oldest_ns + bound)
			return m->oldest_ns + bound + 1;
		h->open = NULL;
		h->rung = false;
		end_unsent(m, 0);
	}
	return due;
}
