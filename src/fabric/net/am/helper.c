/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The helper: a thread that answers for a process whose own threads compute for long.
 *
 * The owner's CPU executes verbs when one of its threads looks at the network, between two rounds
 * of its tasks.  A task that computes for a second would stall every client of its node for as
 * long.  So a thread sleeps beside them and wakes every `helper`; it does nothing as long as
 * somebody has looked in the meantime, or sleeps on the descriptor and will see what comes.
 * Otherwise it takes the engine, serves, and stays: it sleeps on the descriptor, serving what comes
 * as it comes, until a thread is seen to look again.  So the first message of such a time waits for
 * up to `helper` (and for the scheduler of the machine), those after it for nothing.
 *
 * It costs a wake-up per `helper` while the process works.  Once a thread has slept on the
 * descriptor through IDLE_TICKS of them, the helper sleeps until some thread wakes.
 */
#define VB_LOG_ROOM "net"
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/net/am/am.h"

#define IDLE_TICKS 4u
#define NAP_NS     10000000ull

static _Thread_local bool is_me;

/* A look of any thread; of others than the helper it counts. */
bool am_progress(struct net_fabric *f)
{
	struct am_wire *w = am_of(f);

	w->helping = is_me;
	/* Under the engine, so alone in writing it. */
	if (!w->helping)
		__atomic_store_n(&w->helper.passes, w->helper.passes + 1, __ATOMIC_RELAXED);
	return am_look(w);
}

static bool stopped(struct am_helper *h)
{
	return __atomic_load_n(&h->stop, __ATOMIC_SEQ_CST) != 0;
}

/* Until the time has passed, something comes (fd >= 0) or stop. */
static void nap(struct am_helper *h, int fd, uint64_t ns)
{
	struct pollfd p[2] = {{.fd = h->stop_fd, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
	struct timespec t = {.tv_sec = (time_t)(ns / 1000000000),
			     .tv_nsec = (long)(ns % 1000000000)};

	(void)ppoll(p, fd >= 0 ? 2 : 1, &t, NULL);
}

/* Serves until another thread looks by itself; returns how often they have looked by then. */
static uint64_t stand_in(struct am_wire *w, uint64_t seen)
{
	struct am_helper *h = &w->helper;
	uint64_t now;
	bool rest;

	for (;;) {
		now = __atomic_load_n(&h->passes, __ATOMIC_RELAXED);
		if (now != seen || stopped(h))
			return now;
		/* Whoever else has the engine looks by himself. */
		if (!net_try_pass(w->f))
			return now;
		pthread_mutex_lock(&w->f->engine);
		rest = am_arm(w->f) == 0;
		pthread_mutex_unlock(&w->f->engine);
		if (rest)
			nap(h, w->f->fd, NAP_NS);
	}
}

static void *helper_main(void *arg)
{
	struct am_wire *w = arg;
	struct am_helper *h = &w->helper;
	uint64_t seen = __atomic_load_n(&h->passes, __ATOMIC_RELAXED), now;
	unsigned idle = 0;

	is_me = true;
	while (!stopped(h)) {
		nap(h, -1, w->o.helper_ns);
		now = __atomic_load_n(&h->passes, __ATOMIC_RELAXED);
		if (now != seen) {
			seen = now;
			idle = 0;
		} else if (!net_poller_sleeps(w->f)) {
			seen = stand_in(w, seen);
			idle = 0;
		} else {
			/* Beside it another thread may compute, and owe something. */
			(void)net_try_pass(w->f);
			if (++idle >= IDLE_TICKS) {
				net_wait_awake(w->f);
				idle = 0;
			}
		}
	}
	return NULL;
}

int am_helper_start(struct am_wire *w)
{
	struct am_helper *h = &w->helper;
	int err;

	if (w->o.helper_ns == 0)
		return 0;
	h->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (h->stop_fd < 0)
		return vb_fail(-errno, "no descriptor for the helper thread");
	err = pthread_create(&h->thread, NULL, helper_main, w);
	if (err != 0) {
		close(h->stop_fd);
		return vb_fail(-err, "no helper thread: %s", strerror(err));
	}
	h->running = true;
	return 0;
}

/* Without the engine, and after the core has ended net_wait_awake. */
void am_helper_stop(struct am_wire *w)
{
	struct am_helper *h = &w->helper;
	uint64_t one = 1;

	if (!h->running)
		return;
	__atomic_store_n(&h->stop, 1, __ATOMIC_SEQ_CST);
	if (write(h->stop_fd, &one, sizeof(one)) < 0)
		vb_debug("the helper's descriptor is full"); /* then it wakes as well */
	pthread_join(h->thread, NULL);
	close(h->stop_fd);
	h->running = false;
}
