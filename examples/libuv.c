/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server in libuv's loop.  Locks are waited for by calls on a ring: a prepare handle arms it before the
 * loop sleeps, and its descriptor, one handle among the others, ends the sleep when a call has ended.  No
 * callback waits for anything.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <uv.h>

#include <verbena/async.h>

#define SESSIONS 20
#define LOCKS    4
#define ROUNDS   5
#define WORK_MS  2

/* One that is served: it takes its lock, works under it for a while, gives it back, and comes again. */
struct session {
	struct vb_lock_client *client;
	struct vb_grant grant;
	uv_timer_t work;
	uint64_t lock;
	unsigned rounds;
};

static uv_loop_t *loop;
static uv_poll_t ended;
static uv_prepare_t before_sleep;
static struct vb_ring *ring;
static const struct session *holder[LOCKS];
static unsigned left = SESSIONS;

static void must(int err, const char *what)
{
	if (err >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, vb_strerror(err));
	exit(1);
}

static void must_uv(int err, const char *what)
{
	if (err >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, uv_strerror(err));
	exit(1);
}

static void next_round(struct session *s);

static void has_worked(uv_timer_t *timer)
{
	struct session *s = timer->data;

	holder[s->lock] = NULL;
	must(vb_lock_release(s->client, &s->grant), "release");
	next_round(s);
}

static void acquired(struct session *s, int err)
{
	must(err, "acquire");
	if (holder[s->lock] != NULL) {
		fprintf(stderr, "lock %llu has two holders\n", (unsigned long long)s->lock);
		exit(1);
	}
	holder[s->lock] = s;
	must_uv(uv_timer_start(&s->work, has_worked, WORK_MS, 0), "timer");
}

/* What is free is granted at once. */
static void next_round(struct session *s)
{
	int err;

	if (s->rounds++ == ROUNDS) {
		uv_close((uv_handle_t *)&s->work, NULL);
		if (--left == 0) {
			uv_close((uv_handle_t *)&ended, NULL);
			uv_close((uv_handle_t *)&before_sleep, NULL);
		}
		return;
	}
	err = vb_lock_acquire_start(ring, s->client, s->lock, VB_EXCLUSIVE, VB_FOREVER_NS,
				    &s->grant, s, NULL);
	if (err != VB_STARTED)
		acquired(s, err);
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

/* Behind this libuv makes up its mind how long it sleeps, so that a timer which is started here counts. */
static void arm(uv_prepare_t *prepare)
{
	int err;

	(void)prepare;
	while (left > 0 && (err = vb_ring_arm(ring)) != 0) {
		if (err != -EAGAIN)
			must(err, "arm");
		reap();
	}
}

static void has_ended(uv_poll_t *poll, int status, int events)
{
	(void)poll;
	(void)events;
	must_uv(status, "poll");
	reap();
}

static void watch(struct session *session, struct vb_lock_space *space)
{
	must_uv(uv_poll_init(loop, &ended, vb_ring_fd(ring)), "poll");
	must_uv(uv_poll_start(&ended, UV_READABLE, has_ended), "poll");
	must_uv(uv_prepare_init(loop, &before_sleep), "prepare");
	must_uv(uv_prepare_start(&before_sleep, arm), "prepare");
	for (unsigned i = 0; i < SESSIONS; i++) {
		session[i].lock = i % LOCKS;
		session[i].work.data = &session[i];
		must_uv(uv_timer_init(loop, &session[i].work), "timer");
		must(vb_lock_client_open(space, 0, &session[i].client), "client");
	}
}

int main(void)
{
	const struct vb_lock_space_params sp = {.lock = "mcs", .locks = LOCKS};
	static struct session session[SESSIONS];
	struct vb_lock_space *space;
	struct vb_fabric *fabric;

	loop = uv_default_loop();
	must(vb_fabric_open(&(struct vb_fabric_params){.fabric = "shm"}, &fabric), "fabric");
	must(vb_lock_space_open(fabric, &sp, &space), "lock space");
	must(vb_ring_open(NULL, &ring), "ring");
	watch(session, space);
	for (unsigned i = 0; i < SESSIONS; i++)
		next_round(&session[i]);
	must_uv(uv_run(loop, UV_RUN_DEFAULT), "loop");
	printf("%u sessions in libuv's loop had their locks %u times each\n", SESSIONS, ROUNDS);
	for (unsigned i = 0; i < SESSIONS; i++)
		vb_lock_client_close(session[i].client);
	must(vb_ring_close(ring), "close the ring");
	must(vb_lock_space_close(space), "close the lock space");
	must(vb_fabric_close(fabric), "close the fabric");
	return uv_loop_close(loop) == 0 ? 0 : 1;
}
