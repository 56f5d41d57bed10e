/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client does, once for both drives: step() takes the answer to the last call and says what
 * is next.  A loop starts that and goes on with other clients; a thread does it and blocks.
 */
#define VB_LOG_ROOM "peers"
#include "peers.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "lab/run.h"

/* The longest sleep: then the loop looks whether it was interrupted or is too late. */
#define NAP_NS 100000000ull
#define EVENTS 64

enum next { NEXT_ACQUIRE, NEXT_RELEASE, NEXT_SLEEP, NEXT_END };

static bool measuring(const struct peer_run *r, uint64_t now)
{
	return now >= r->measure_ns && now < r->end_ns;
}

static bool over(const struct peer_run *r, uint64_t now)
{
	return now >= r->end_ns || vb_interrupted || __atomic_load_n(&r->err, __ATOMIC_RELAXED);
}

/* From now: the connections are open. */
static void start_span(struct peer_run *r)
{
	r->measure_ns = vb_clock_ns() + r->o->warmup_ns;
	r->end_ns = r->measure_ns + r->o->duration_ns;
	r->give_up_ns = r->end_ns + PEER_ANSWER_NS;
}

static enum next begin(struct peer_client *c, uint64_t now)
{
	if (over(c->run, now))
		return NEXT_END;
	vb_micro_next(&c->micro, &c->op);
	c->since_ns = now;
	c->doing = PEER_ACQUIRE;
	return NEXT_ACQUIRE;
}

static enum next give_back(struct peer_client *c, uint64_t now)
{
	__atomic_fetch_sub(&c->run->holders[c->op.lock], 1, __ATOMIC_SEQ_CST);
	c->since_ns = now;
	c->doing = PEER_RELEASE;
	return NEXT_RELEASE;
}

/* Who waits for too long to be in the histogram is not to be forgotten. */
static void note_unfinished(struct peer_client *c, uint64_t now)
{
	const struct peer_run *r = c->run;

	if (now >= r->end_ns && c->since_ns < r->end_ns &&
	    r->end_ns - c->since_ns > c->tally->unfinished_max_ns)
		c->tally->unfinished_max_ns = r->end_ns - c->since_ns;
}

static enum next granted(struct peer_client *c, uint64_t now, uint64_t *sleep_ns)
{
	struct peer_run *r = c->run;

	if (measuring(r, now))
		vb_hist_record(&c->tally->acquire, now - c->since_ns);
	note_unfinished(c, now);
	c->grants++;
	if (r->ops->no_release) {
		c->tally->ops += measuring(r, now);
		return begin(c, now);
	}
	if (__atomic_fetch_add(&r->holders[c->op.lock], 1, __ATOMIC_SEQ_CST) != 0)
		__atomic_fetch_add(&r->violations, 1, __ATOMIC_RELAXED);
	if (r->o->hold_ns == 0)
		return give_back(c, now);
	*sleep_ns = r->o->hold_ns;
	c->doing = PEER_HOLD;
	return NEXT_SLEEP;
}

static enum next refused(struct peer_client *c, uint64_t now, uint64_t *sleep_ns)
{
	const struct peer_opts *o = c->run->o;

	note_unfinished(c, now);
	if (over(c->run, now))
		return NEXT_END;
	if (o->backoff_ns == 0)
		return NEXT_ACQUIRE;
	*sleep_ns = 1 + vb_rng_below(&c->backoff, o->backoff_ns);
	c->doing = PEER_BACKOFF;
	return NEXT_SLEEP;
}

static enum next released(struct peer_client *c, int answer, uint64_t now)
{
	if (answer == PEER_NO)
		c->tally->lost++;
	if (measuring(c->run, now)) {
		vb_hist_record(&c->tally->release, now - c->since_ns);
		c->tally->ops += answer == PEER_YES;
	}
	return begin(c, now);
}

static enum next step(struct peer_client *c, int answer, uint64_t *sleep_ns)
{
	uint64_t now = vb_clock_ns();

	if (answer < 0) {
		__atomic_store_n(&c->run->err, answer, __ATOMIC_RELAXED);
		return NEXT_END;
	}
	switch (c->doing) {
	case PEER_IDLE:
		return begin(c, now);
	case PEER_ACQUIRE:
		c->tally->tries += measuring(c->run, now);
		return answer == PEER_YES ? granted(c, now, sleep_ns) : refused(c, now, sleep_ns);
	case PEER_BACKOFF:
		c->doing = PEER_ACQUIRE;
		return NEXT_ACQUIRE;
	case PEER_HOLD:
		return give_back(c, now);
	case PEER_RELEASE:
		return released(c, answer, now);
	case PEER_FINISHED:
		break;
	}
	return NEXT_END;
}

/* ---- an event loop ---- */

int peer_watch_set(struct peer_loop *l, struct peer_watch *w, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.ptr = w};
	int op = w->armed == 0 ? EPOLL_CTL_ADD : events == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;

	if (events == w->armed)
		return 0;
	if (epoll_ctl(l->epoll, op, w->fd, &e) != 0)
		return vb_fail(-errno, "cannot watch a connection: %s", strerror(errno));
	w->armed = events;
	return 0;
}

void peer_done(struct peer_client *c, int answer)
{
	const struct peer_ops *ops = c->run->ops;
	uint64_t sleep_ns = 0;

	for (;;) {
		int err = 0;

		switch (step(c, answer, &sleep_ns)) {
		case NEXT_ACQUIRE:
			err = ops->start_acquire(c);
			break;
		case NEXT_RELEASE:
			err = ops->start_release(c);
			break;
		case NEXT_SLEEP:
			c->wake_ns = vb_clock_ns() + sleep_ns;
			break;
		case NEXT_END:
			c->doing = PEER_FINISHED;
			c->loop->running--;
			break;
		}
		if (err == 0)
			return;
		answer = err;
	}
}

/* Calls whose time has come; when the next one's will, 0: there is none. */
static uint64_t run_timers(struct peer_loop *l)
{
	uint64_t next = 0, now = 0;

	for (unsigned i = 0; i < l->n; i++) {
		struct peer_client *c = &l->clients[i];

		if (c->wake_ns == 0 && c->timer_ns == 0)
			continue;
		if (now == 0)
			now = vb_clock_ns();
		if (c->wake_ns != 0 && c->wake_ns <= now) {
			c->wake_ns = 0;
			peer_done(c, PEER_YES);
		}
		if (c->timer_ns != 0 && c->timer_ns <= now) {
			c->timer_ns = 0;
			c->run->ops->expired(c);
		}
		/* Either may have set both anew. */
		if (c->wake_ns != 0 && (next == 0 || c->wake_ns < next))
			next = c->wake_ns;
		if (c->timer_ns != 0 && (next == 0 || c->timer_ns < next))
			next = c->timer_ns;
	}
	return next;
}

/* epoll_wait counts in milliseconds, which is too coarse for a backoff: ppoll sleeps on the set. */
static int sleep_on(struct peer_loop *l, struct epoll_event *events, uint64_t until_ns)
{
	struct pollfd p = {.fd = l->epoll, .events = POLLIN};
	uint64_t now;
	int n;

	if (l->spin)
		return epoll_wait(l->epoll, events, EVENTS, 0);
	if (until_ns == 0)
		return epoll_wait(l->epoll, events, EVENTS, NAP_NS / 1000000);
	n = epoll_wait(l->epoll, events, EVENTS, 0);
	now = vb_clock_ns();
	if (n != 0 || until_ns <= now)
		return n;
	now = until_ns - now < NAP_NS ? until_ns - now : NAP_NS;
	if (ppoll(&p, 1, &(struct timespec){.tv_nsec = (long)now}, NULL) <= 0)
		return 0;
	return epoll_wait(l->epoll, events, EVENTS, 0);
}

static int loop_run(struct peer_run *r, struct peer_loop *l)
{
	struct epoll_event events[EVENTS];

	start_span(r);
	for (unsigned i = 0; i < l->n; i++)
		peer_done(&l->clients[i], PEER_YES);
	while (l->running > 0) {
		uint64_t until = run_timers(l);
		int n;

		if (l->running == 0)
			break;
		n = sleep_on(l, events, until);
		if (n < 0 && errno != EINTR)
			return vb_fail(-errno, "epoll: %s", strerror(errno));
		for (int i = 0; i < n; i++) {
			struct peer_watch *w = events[i].data.ptr;

			w->ready(w, events[i].events);
		}
		if (vb_clock_ns() > r->give_up_ns)
			return vb_fail(-ETIMEDOUT, "%u clients have had no answer for too long",
				       l->running);
	}
	return 0;
}

static void client_init(struct peer_client *c, struct peer_run *r, struct peer_tally *t, unsigned i)
{
	*c = (struct peer_client){.run = r, .tally = t, .index = i};
	vb_micro_client_init(&c->micro, &r->micro, r->o->seed, i, 0);
	vb_rng_seed(&c->backoff, r->o->seed, 0x6261636b6f660000ull + i);
}

static int drive_loop(struct peer_run *r, struct peer_tally *tally)
{
	struct peer_loop l = {.spin = r->o->drive == PEER_SPIN};
	int err = 0;

	l.epoll = epoll_create1(EPOLL_CLOEXEC);
	if (l.epoll < 0)
		return vb_fail(-errno, "epoll_create1: %s", strerror(errno));
	l.clients = calloc(r->o->clients, sizeof(*l.clients));
	if (l.clients == NULL)
		err = vb_fail(-ENOMEM, "no memory for the clients");
	while (err == 0 && l.n < r->o->clients) {
		struct peer_client *c = &l.clients[l.n];

		client_init(c, r, tally, l.n);
		c->loop = &l;
		err = r->ops->open(c);
		l.n += err == 0;
	}
	l.running = l.n;
	if (err == 0)
		err = loop_run(r, &l);
	for (unsigned i = 0; i < l.n; i++)
		r->ops->close(&l.clients[i]);
	free(l.clients);
	close(l.epoll);
	return err;
}

/* ---- threads ---- */

static void *thread_main(void *arg)
{
	struct peer_client *c = arg;
	const struct peer_ops *ops = c->run->ops;
	uint64_t sleep_ns = 0;
	int answer = PEER_YES;

	prctl(PR_SET_TIMERSLACK, 1000ul, 0ul, 0ul, 0ul);
	for (;;) {
		switch (step(c, answer, &sleep_ns)) {
		case NEXT_ACQUIRE:
			answer = ops->acquire(c);
			break;
		case NEXT_RELEASE:
			answer = ops->release(c);
			break;
		case NEXT_SLEEP:
			nanosleep(&(struct timespec){.tv_sec = (time_t)(sleep_ns / 1000000000),
						     .tv_nsec = (long)(sleep_ns % 1000000000)},
				  NULL);
			answer = PEER_YES;
			break;
		case NEXT_END:
			c->doing = PEER_FINISHED;
			return NULL;
		}
	}
}

static int drive_threads(struct peer_run *r, struct peer_tally *tallies)
{
	unsigned n = (unsigned)r->o->clients, opened = 0, started = 0;
	struct peer_client *clients = calloc(n, sizeof(*clients));
	pthread_t *threads = calloc(n, sizeof(*threads));
	int err = 0;

	if (clients == NULL || threads == NULL)
		err = vb_fail(-ENOMEM, "no memory for the clients");
	while (err == 0 && opened < n) {
		client_init(&clients[opened], r, &tallies[opened], opened);
		err = r->ops->open(&clients[opened]);
		opened += err == 0;
	}
	start_span(r);
	while (err == 0 && started < n) {
		err = -pthread_create(&threads[started], NULL, thread_main, &clients[started]);
		if (err != 0)
			r->err = vb_fail(err, "cannot start a thread: %s", strerror(-err));
		started += err == 0;
	}
	/* Each call is bounded by its connection's time-out. */
	for (unsigned i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	for (unsigned i = 0; i < opened; i++)
		r->ops->close(&clients[i]);
	free(threads);
	free(clients);
	return err;
}

unsigned peer_drive_tallies(const struct peer_opts *o)
{
	return o->drive == PEER_THREADS ? (unsigned)o->clients : 1;
}

int peer_drive(struct peer_run *r, struct peer_tally *tallies)
{
	int err;

	prctl(PR_SET_TIMERSLACK, 1000ul, 0ul, 0ul, 0ul);
	err = r->o->drive == PEER_THREADS ? drive_threads(r, tallies) : drive_loop(r, tallies);
	return err != 0 ? err : r->err;
}
