/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking at the network: completions, then what time brings; and sleeping until there is something.
 */
#define VB_LOG_ROOM "verbs"
#include "fabric/verbs/inner.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include "base/log.h"

#define TICK_NS (VERBS_NAP_NS / 2)
#define POLLS   4

/* When the oldest request of which something is to be heard was rung; UINT64_MAX: there is none. */
static uint64_t oldest_asked(const struct verbs_qp *q)
{
	for (uint32_t at = q->head; at != q->rung; at++) {
		if (q->rec[at & q->mask].asked)
			return q->rec[at & q->mask].rung_ns;
	}
	return UINT64_MAX;
}

/* Has the oldest request been under way for too long?  Those in front of the first that is asked
 * tell nothing: when a busy process comes here late they may be old and done.  So the one that is
 * asked has half the time to itself.  (It is asked a tick after them at the latest.) */
static bool too_old(const struct verbs *w, const struct verbs_qp *q, uint64_t now)
{
	uint64_t rung = q->rec[q->head & q->mask].rung_ns, asked = oldest_asked(q);

	return asked < now && now - asked > w->age_ns / 2 && now - rung > w->age_ns;
}

/* A request that has been under way for longer than the bound: the device or the way is stuck, and
 * what it may still do must be stopped, since others rely on the bound. */
static void look_at_age(struct verbs *w, uint64_t now)
{
	for (uint32_t i = 0; i < w->n_qps; i++) {
		struct verbs_qp *q = &w->qps[i];

		if (!too_old(w, q, now))
			continue;
		if (q == w->ud) {
			struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};

			w->lib->modify_qp(q->qp, &a, IBV_QP_STATE);
			continue;
		}
		if (w->hosts[q->host].state != VERBS_UP)
			continue;
		vb_warn("a verb to host %u has taken longer than %llu ms; its "
			"connection is broken off",
			q->host, (unsigned long long)(w->age_ns / 1000000));
		w->hosts[q->host].said = true;
		verbs_break(w, &w->hosts[q->host], VERBS_DOWN);
	}
}

/* Requests that nobody waits for and that stand last tell nothing, however long nothing follows
 * them, and their age could not be judged. */
static void ask_for_the_unheard(struct verbs *w)
{
	for (uint32_t i = 0; i + 1 < w->n_qps && w->n_unheard > 0; i++) {
		if (w->hosts[w->qps[i].host].state == VERBS_UP)
			verbs_ask(w, &w->qps[i]);
	}
}

static void look_at_events(struct verbs *w)
{
	struct ibv_async_event e;

	/* The descriptor does not block. */
	while (w->lib->get_async_event(w->ctx, &e) == 0) {
		if (e.event_type == IBV_EVENT_QP_LAST_WQE_REACHED)
			verbs_last_wqe(w, e.element.qp);
		else
			vb_warn("%s: %s", w->choice.device.name,
				w->lib->event_type_str(e.event_type));
		w->lib->ack_async_event(&e);
	}
}

/* Queue pairs that have come to their end.  Not from within verbs_poll, whose rest would be
 * overtaken: all that was in the completion queue when the device said so is taken out first. */
static void reap(struct verbs *w, uint64_t now)
{
	uint32_t most = (uint32_t)w->cq->cqe / VERBS_POLL + 1;

	if (verbs_dying_over(w, now)) {
		for (uint32_t i = 0; i < most && verbs_poll(w); i++)
			continue;
		verbs_reap(w);
	}
	if (w->doubt)
		verbs_look_for_lost(w);
}

void verbs_tick(struct verbs *w)
{
	uint64_t now = vb_clock_ns();

	if (now < w->tick_ns)
		return;
	w->tick_ns = now + TICK_NS;
	look_at_events(w);
	if (w->n_dying > 0 || w->doubt)
		reap(w, now);
	if (w->n_asked == 0 && w->n_sends == 0 && w->n_down == 0 && w->n_unheard == 0)
		return;
	look_at_age(w, now);
	ask_for_the_unheard(w);
	for (uint32_t host = 0; host < w->f->hosts; host++) {
		verbs_sends_expire(w, &w->hosts[host], now);
		if (w->hosts[host].state == VERBS_GONE)
			(void)verbs_host_emptied(w, &w->hosts[host]);
		else
			verbs_again_tick(w, host, now);
	}
}

bool verbs_progress(struct net_fabric *f)
{
	struct verbs *w = verbs_of(f);
	bool any, more = true;

	w->news = false;
	for (unsigned i = 0; i < POLLS && more; i++) {
		more = verbs_poll(w);
		w->news |= more;
	}
	/* Only when nothing is left to be seen is what has not been seen late. */
	if (!more)
		verbs_tick(w);
	verbs_done_flush(w);
	any = w->news;
	w->news = false;
	return any;
}

/* ---- sleeping ---- */

static void take_events(struct verbs *w)
{
	struct ibv_cq *cq;
	uint64_t beats;
	void *ctx;

	while (w->lib->get_cq_event(w->channel, &cq, &ctx) == 0)
		w->events++;
	if (w->events >= 1000) {
		w->lib->ack_cq_events(w->cq, w->events);
		w->events = 0;
	}
	while (read(w->timer_fd, &beats, sizeof(beats)) > 0)
		continue;
}

int verbs_arm(struct net_fabric *f)
{
	struct verbs *w = verbs_of(f);
	bool busy = w->n_asked > 0 || w->n_sends > 0 || w->n_down > 0 || w->n_unheard > 0 ||
		    w->n_dying > 0;
	struct itimerspec span = {.it_value.tv_nsec = busy ? VERBS_NAP_NS : 0};

	take_events(w);
	if (ibv_req_notify_cq(w->cq, 0) != 0)
		return vb_fail(-EBUSY, "%s gives no notice of completions", w->choice.device.name);
	/* What came before the request for notice rings no bell. */
	if (verbs_progress(f))
		return -EBUSY;
	timerfd_settime(w->timer_fd, 0, &span, NULL);
	return 0;
}
