/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking at the network, and sleeping until there is something to see.
 *
 * The descriptor that threads sleep on is an epoll set: the carrier's own, and a timer for what has
 * to end by itself (verbs without an answer, hosts that have gone silent).  The timer is set only
 * when somebody goes to sleep, and left alone if it fires earlier than needed.
 */
#define VB_LOG_ROOM "net"
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/net/am/am.h"

static void look_at_clock(struct am_wire *w)
{
	uint64_t now = vb_clock_ns(), due = VB_FOREVER, fired;

	if (w->timer_ns != 0 && now >= w->timer_ns) {
		/* Not yet fired is as good: the next arm sets it again. */
		if (read(w->timer_fd, &fired, sizeof(fired)) < 0)
			fired = 0;
		w->timer_ns = 0;
	}
	if (vb_likely(now < w->due_ns))
		return;
	w->due_ns = VB_FOREVER;
	for (uint32_t i = 0; i < w->hosts; i++) {
		uint64_t at = am_expire(&w->host[i], now);

		if (at < due)
			due = at;
	}
	if (w->carrier->tick != NULL) {
		uint64_t at = w->carrier->tick(w, now);

		if (at < due)
			due = at;
	}
	if (w->f->elastic != NULL) {
		uint64_t at = net_elastic_tick(w->f, now);

		if (at < due)
			due = at;
	}
	am_due(w, due);
}

/*
 * Whoever sends a message (SEND) waits for what its receiver will send, much more often than for the word that it
 * has arrived.  So where nothing came but messages, and one of them has made a task of this thread ready, the
 * answers to them wait for what that task posts, and leave with it in one write: on TCP a write is most of what a
 * message costs.  If it posts nothing they leave as soon as it has had its turn; if that takes long, by the helper.
 */
static bool can_wait(struct am_wire *w, uint64_t letters)
{
	bool stirred = net_stirred(w->f);

	return stirred && !w->hurries && !w->helping && w->letters != letters;
}

bool am_look(struct am_wire *w)
{
	const uint64_t came = w->came, letters = w->letters, sent = w->f->stats.doorbells;

	w->hurries = false;
	(void)net_stirred(w->f);
	w->carrier->look(w);
	look_at_clock(w);
	if (!vb_list_empty(&w->dirty))
		am_tend(w);
	w->hurries |= w->f->stats.doorbells != sent;
	if (w->carrier->push == NULL)
		return w->came != came;
	if (can_wait(w, letters))
		net_owe(w->f);
	else
		w->carrier->push(w);
	return w->came != came;
}

/* Sets the carrier and the timer so that the descriptor will tell: 0, or -EBUSY. */
int am_arm(struct net_fabric *f)
{
	struct am_wire *w = am_of(f);
	uint64_t now = vb_clock_ns();

	if (w->due_ns <= now)
		return -EBUSY;
	if (w->due_ns != VB_FOREVER && (w->timer_ns == 0 || w->due_ns < w->timer_ns)) {
		uint64_t ns = w->due_ns - now;
		struct itimerspec at = {.it_value = {.tv_sec = (time_t)(ns / 1000000000),
						     .tv_nsec = (long)(ns % 1000000000)}};

		if (timerfd_settime(w->timer_fd, 0, &at, NULL) != 0)
			return -EBUSY; /* then it is looked at without sleeping */
		w->timer_ns = w->due_ns;
	}
	return w->carrier->arm(w);
}
