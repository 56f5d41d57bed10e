/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking at the network, and sleeping until there is something to see.
 *
 * The descriptor that threads sleep on is an epoll set of two: UCX's own, and a timer for what has
 * to end by itself (verbs without an answer, hosts that have gone silent).  The timer is set only
 * when somebody goes to sleep, and left alone if it fires earlier than needed.
 */
#define VB_LOG_ROOM "ucx"
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/ucx/inner.h"

static void look_at_clock(struct ucx_wire *w)
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
	for (uint32_t i = 0; i < w->f->hosts; i++) {
		uint64_t at = ucx_expire(&w->host[i], now);

		if (at < due)
			due = at;
	}
	ucx_due(w, due);
}

bool ucx_look(struct ucx_wire *w)
{
	uint64_t before = w->came;

	w->looking = true;
	(void)w->lib->ucp_worker_progress(w->worker);
	w->looking = false;
	ucx_msg_send_later(w);
	look_at_clock(w);
	if (!vb_list_empty(&w->dirty))
		ucx_tend(w);
	return w->came != before;
}

/* Sets UCX and the timer so that the descriptor will tell: 0, or -EBUSY. */
int ucx_arm(struct net_fabric *f)
{
	struct ucx_wire *w = ucx_of(f);
	ucs_status_t status;
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
	status = w->lib->ucp_worker_arm(w->worker);
	return status == UCS_OK ? 0 : -EBUSY;
}
