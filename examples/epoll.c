/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server with one thread and an event loop.  Many sessions wait for locks at a time, and the loop
 * stands still for none of them: acquires are started on a ring, and what has ended comes to epoll
 * like everything else that happens.
 *
 *	epoll [SESSIONS]	100, of which up to nine in ten wait at a time; 10000 are no trouble
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <verbena/async.h>

#define SESSIONS 100
/* Each that waits has a stack, and Linux gives a process some 32,000 of them. */
#define SESSIONS_MAX 30000
#define LOCKS        10
#define ROUNDS       3

/* One that is served: it takes its lock, works under it until the next tick, gives it back. */
struct session {
	struct vb_lock_client *client;
	struct vb_grant grant;
	uint64_t lock;
	unsigned rounds;
};

static struct vb_ring *ring;
static struct session *holder[LOCKS];
static unsigned sessions = SESSIONS, served;

static void must(int err, const char *what)
{
	if (err >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, vb_strerror(err));
	exit(1);
}

static void acquired(struct session *s, int err)
{
	must(err, "acquire");
	if (holder[s->lock] != NULL) {
		fprintf(stderr, "lock %llu has two holders\n", (unsigned long long)s->lock);
		exit(1);
	}
	holder[s->lock] = s;
}

static void next_round(struct session *s)
{
	int err;

	if (s->rounds++ == ROUNDS) {
		served++;
		return;
	}
	err = vb_lock_acquire_start(ring, s->client, s->lock, VB_EXCLUSIVE, VB_FOREVER_NS,
				    &s->grant, s, NULL);
	if (err != VB_STARTED)
		acquired(s, err);
}

/* Whoever holds has done its work. */
static void tick(void)
{
	for (unsigned i = 0; i < LOCKS; i++) {
		struct session *s = holder[i];

		if (s == NULL)
			continue;
		holder[i] = NULL;
		must(vb_lock_release(s->client, &s->grant), "release");
		next_round(s);
	}
}

static void reap(void)
{
	struct vb_completion done[16];
	int n;

	while ((n = vb_ring_reap(ring, done, 16)) > 0)
		for (int i = 0; i < n; i++)
			acquired(done[i].tag, done[i].result);
	must(n, "reap");
}

static void watch(int poll, int fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

	must(epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
}

/* Until all are served. */
static unsigned loop(int poll, int timer)
{
	struct epoll_event event;
	unsigned ticks = 0;
	uint64_t times;

	while (served < sessions) {
		while (vb_ring_arm(ring) == -EAGAIN)
			reap();
		if (epoll_wait(poll, &event, 1, -1) != 1 || event.data.fd != timer)
			continue;
		if (read(timer, &times, sizeof(times)) > 0) {
			tick();
			ticks++;
		}
	}
	return ticks;
}

int main(int argc, char **argv)
{
	struct vb_fabric_params fp = {.fabric = "shm"};
	struct vb_ring_params rp = {0};
	const struct vb_lock_space_params sp = {.lock = "mcs", .locks = LOCKS};
	const struct itimerspec often = {{.tv_nsec = 1000000}, {.tv_nsec = 1000000}};
	struct session *session;
	struct vb_lock_space *space;
	struct vb_fabric *fabric;
	int poll = epoll_create1(EPOLL_CLOEXEC),
	    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
	unsigned ticks;

	if (argc > 1)
		sessions = (unsigned)strtoul(argv[1], NULL, 10);
	if (sessions == 0 || sessions > SESSIONS_MAX) {
		fprintf(stderr, "usage: epoll [SESSIONS], 1 to %u\n", SESSIONS_MAX);
		return 2;
	}
	session = calloc(sessions, sizeof(*session));
	must(session != NULL ? 0 : -ENOMEM, "sessions");
	/* A client takes an endpoint, and a call that is under way one of the ring's depth. */
	fp.endpoints = sessions + 16;
	rp.depth = sessions;
	must(vb_fabric_open(&fp, &fabric), "fabric");
	must(vb_lock_space_open(fabric, &sp, &space), "lock space");
	must(vb_ring_open(&rp, &ring), "ring");
	watch(poll, vb_ring_fd(ring));
	watch(poll, timer);
	must(timerfd_settime(timer, 0, &often, NULL), "timer");
	for (unsigned i = 0; i < sessions; i++) {
		session[i].lock = i % LOCKS;
		must(vb_lock_client_open(space, 0, &session[i].client), "client");
	}
	for (unsigned i = 0; i < sessions; i++)
		next_round(&session[i]);
	ticks = loop(poll, timer);
	printf("%u sessions of one thread had their locks %u times each, in %u ticks\n", sessions,
	       ROUNDS, ticks);
	for (unsigned i = 0; i < sessions; i++)
		vb_lock_client_close(session[i].client);
	must(vb_ring_close(ring), "close the ring");
	must(vb_lock_space_close(space), "close the lock space");
	must(vb_fabric_close(fabric), "close the fabric");
	free(session);
	close(timer);
	close(poll);
	return 0;
}
