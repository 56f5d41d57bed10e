/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lock servers: the tasks that answer for locks whose protocol has a server side, and how clients
 * find them.  A server's endpoint stands in the header of the space on its node; clients read it
 * once and again when it does not answer any more.
 */
#define VB_LOG_ROOM "lock"
#include "lock/lock.h"

#include <pthread.h>

#include "base/log.h"
#include "lock/header.h"

/* How many messages are served between two calls of ops->tend. */
#define TEND_EVERY 64u

static bool serve_one(struct vb_lock_server *s)
{
	struct vb_msg msg;

	if (vb_ep_recv(s->ep, &msg) != 0)
		return false;
	s->requests++;
	if (!vb_answers_repeat(s->answers, s->ep, &msg))
		s->space->ops->serve(s, &msg);
	return true;
}

static void serve_body(void *arg)
{
	struct vb_lock_server *s = arg;
	uint64_t (*tend)(struct vb_lock_server *) = s->space->ops->tend;

	while (!s->stop) {
		uint64_t next = VB_FOREVER;
		unsigned n = 0;

		while (!s->stop && n < TEND_EVERY && serve_one(s))
			n++;
		if (tend != NULL)
			next = tend(s);
		/* Nobody will tell again of what has come meanwhile. */
		if (s->stop || n == TEND_EVERY || serve_one(s))
			continue;
		if (vb_ep_wait(s->ep, next) == -ECANCELED)
			break;
	}
	s->task = NULL;
	if (s->stopper)
		vb_task_wake(s->stopper);
}

static void close_priv(struct vb_lock_server *s)
{
	if (s->space->ops->server_close)
		s->space->ops->server_close(s);
	else
		free(s->priv);
}

static void stop_here(struct vb_lock_server *s)
{
	s->stop = true;
	if (s->task)
		vb_task_cancel(s->task);
	/* The task ends when it has done what it is doing, which may take time. */
	s->stopper = vb_task_self();
	while (s->task)
		vb_task_suspend_uninterruptible(VB_FOREVER);
	close_priv(s);
	/* The next server may begin now: all that we leave behind is there. */
	vb_lock_header_withdraw(s);
	vb_ep_close(s->ep);
	vb_answers_close(s->answers);
	/* Last: vb_fabric_close may be waiting for it. */
	vb_opened_drop(&s->opened);
	free(s);
}

void vb_lock_server_bury(struct vb_lock_server *s)
{
	s->struck = true;
	if (s->task)
		vb_task_kill(s->task);
	if (!s->space->fabric->no_keeper)
		vb_sched_background_end(s->ep->sched);
	close_priv(s);
	vb_ep_close(s->ep);
	vb_answers_close(s->answers);
	vb_opened_drop(&s->opened);
	free(s);
}

static int check_view(struct vb_lock_space *space, uint16_t node)
{
	const bool none = space->fabric->caps.flags & VB_CAP_NO_VIEW;

	if (vb_local(space->fabric, space->header[node], sizeof(struct vb_lock_header)) != NULL ||
	    (none && space->ops->serves_by_verbs))
		return 0;
	if (none)
		return vb_fail(
			-EXDEV,
			"a server of '%s' locks wants to see the memory of node %u, of which '%s' "
			"shows nothing (`local` in struct vb_provider)",
			space->ops->name, node, space->fabric->ops->name);
	return vb_fail(-EXDEV, "node %u lives in another process: it is served there", node);
}

static int start_here(struct vb_lock_space *space, uint16_t node, unsigned worker, unsigned workers,
		      struct vb_lock_server **out)
{
	static const struct vb_task_params params = {.name = "lock server", .daemon = true};
	struct vb_lock_server *s;
	int err;

	if (!space->ops->serve) {
		*out = NULL;
		return 0;
	}
	if (node >= space->servers || workers == 0 || workers > VB_LOCK_WORKERS_MAX ||
	    worker >= workers)
		return vb_fail(
			-EINVAL,
			"server worker %u of %u on node %u: 1 to %u workers on nodes below %u",
			worker, workers, node, VB_LOCK_WORKERS_MAX, space->servers);
	err = check_view(space, node);
	if (err)
		return err;
	err = vb_lock_space_hold(space);
	if (err)
		return err;
	s = calloc(1, sizeof(*s));
	if (!s)
		return vb_fail(-ENOMEM, "no memory for a lock server");
	*s = (struct vb_lock_server){
		.space = space, .node = node, .worker = worker, .workers = workers};
	err = vb_ep_open(space->fabric, node, &s->ep);
	if (err)
		goto no_ep;
	vb_ep_serve(s->ep);
	err = vb_answers_open(space->fabric, &s->answers);
	if (err == 0)
		err = vb_lock_header_claim(s);
	if (err)
		goto no_place;
	if (space->ops->server_open)
		err = space->ops->server_open(s);
	if (err == 0)
		err = vb_task_spawn(s->ep->sched, serve_body, s, &params, &s->task);
	if (err)
		goto no_task;
	err = vb_lock_header_publish(s);
	if (err) {
		stop_here(s);
		return vb_fail(err, "a lock server cannot make itself known on node %u: %s", node,
			       vb_strerror(err));
	}
	*out = s;
	return 0;
no_task:
	close_priv(s);
	vb_lock_header_withdraw(s);
no_place:
	vb_answers_close(s->answers);
	vb_ep_close(s->ep);
no_ep:
	free(s);
	return err;
}

static void note_open(struct vb_lock_server *s)
{
	s->opened = (struct vb_opened){
		.kind = "lock server",
		.of = s->space,
		.name = s->space->name,
		.node = s->node,
		.number = s->worker,
	};
	vb_opened_note(s->space->fabric, &s->opened);
}

int vb_lock_server_start(struct vb_lock_space *space, uint16_t node, unsigned worker,
			 unsigned workers, struct vb_lock_server **out)
{
	VB_SCHED_INSIDE(vb_sched_here());
	int err;

	if (vb_any_null(space, out))
		return -EINVAL;
	err = vb_fabric_check(space->fabric);
	if (err == 0)
		err = start_here(space, node, worker, workers, out);
	if (err || !*out)
		return err;
	note_open(*out);
	if (space->fabric->no_keeper)
		return 0;
	vb_sched_background_begin((*out)->ep->sched);
	vb_keeper_settle((*out)->ep->sched);
	return 0;
}

void vb_lock_server_stop(struct vb_lock_server *s)
{
	if (!s || vb_opened_check_mine(&s->opened) != 0 || (!s->thread && vb_ep_check(s->ep) != 0))
		return;
	VB_SCHED_INSIDE(!s->thread ? s->ep->sched : NULL);
	if (s->thread) {
		pthread_t thread = *(pthread_t *)s->thread;

		/* The server lives on its own thread and is taken down there. */
		__atomic_store_n(&s->stop, true, __ATOMIC_RELEASE);
		pthread_join(thread, NULL);
		vb_opened_drop(&s->opened);
		free(s->thread);
		free(s);
		return;
	}
	if (!s->space->fabric->no_keeper)
		vb_sched_background_end(s->ep->sched);
	stop_here(s);
}

struct thread_start {
	struct vb_lock_server *made, *outer;
	struct vb_lock_space *space;
	uint16_t node;
	int err;
	bool ready;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
};

/* How often a server thread looks whether it should stop; requests wake it at once. */
#define STOP_POLL_NS 20000000ull

static void *thread_body(void *arg)
{
	struct thread_start *t = arg;
	struct vb_lock_server *inner = NULL, *outer = t->outer;
	int err = vb_sched_ready();
	bool ready = err == 0;

	if (ready)
		err = start_here(t->space, t->node, 0, 1, &inner);
	pthread_mutex_lock(&t->mutex);
	t->err = err;
	t->made = inner;
	t->ready = true;
	pthread_cond_signal(&t->cond);
	pthread_mutex_unlock(&t->mutex);
	if (err || !inner)
		goto out;
	while (!__atomic_load_n(&outer->stop, __ATOMIC_ACQUIRE))
		vb_task_suspend(vb_sched_now(vb_sched_self()) + STOP_POLL_NS);
	stop_here(inner);
out:
	if (ready)
		vb_sched_destroy(vb_sched_self());
	return NULL;
}

int vb_lock_server_thread_start(struct vb_lock_space *space, uint16_t node,
				struct vb_lock_server **out)
{
	struct thread_start t = {
		.space = space,
		.node = node,
		.mutex = PTHREAD_MUTEX_INITIALIZER,
		.cond = PTHREAD_COND_INITIALIZER,
	};
	pthread_t *thread;
	int err;

	if (vb_any_null(space, out))
		return -EINVAL;
	err = vb_fabric_check(space->fabric);
	if (err)
		return err;
	if (!space->ops->serve) {
		*out = NULL;
		return 0;
	}
	if (space->fabric->caps.flags & VB_CAP_VIRTUAL)
		return vb_fail(-EOPNOTSUPP,
			       "a simulated fabric has one thread; start a server task");
	t.outer = calloc(1, sizeof(*t.outer));
	thread = malloc(sizeof(*thread));
	if (!t.outer || !thread) {
		err = vb_fail(-ENOMEM, "no memory for a lock server");
		goto fail;
	}
	err = -pthread_create(thread, NULL, thread_body, &t);
	if (err) {
		vb_error("a lock server's thread cannot be made: %s", vb_strerror(err));
		goto fail;
	}
	pthread_mutex_lock(&t.mutex);
	while (!t.ready)
		pthread_cond_wait(&t.cond, &t.mutex);
	pthread_mutex_unlock(&t.mutex);
	if (t.err) {
		err = t.err;
		pthread_join(*thread, NULL);
		goto fail;
	}
	t.outer->space = space;
	t.outer->node = node;
	t.outer->thread = thread;
	note_open(t.outer);
	*out = t.outer;
	return 0;
fail:
	free(t.outer);
	free(thread);
	return err;
}

void vb_lock_server_forget(struct vb_lock_space *space, uint16_t node)
{
	__atomic_store_n(&space->worker_cache[node], 0, __ATOMIC_RELAXED);
}

/* The header could not be read, which says nothing of who serves. */
#define LINK_DOWN (-EHOSTUNREACH)

/* `read` is vb_read, or waits for a link that is down.  -VB_EPEERGONE: nobody serves; LINK_DOWN. */
static int read_header(struct vb_lock_client *me, uint16_t node,
		       int (*read)(struct vb_ep *, vb_addr, void *, uint32_t))
{
	struct vb_lock_space *s = me->space;
	vb_peer *cache = &s->server_cache[(size_t)node * VB_LOCK_WORKERS_MAX];
	uint64_t word, server[VB_LOCK_WORKERS_MAX];
	int err = read(me->ep, vb_lock_header_field(s, node, workers), &word, sizeof(word));
	unsigned workers;

	if (err)
		return err == -VB_EPEERGONE ? LINK_DOWN : err;
	workers = vb_lock_workers(word);
	if (workers == 0 || workers > VB_LOCK_WORKERS_MAX)
		return -VB_EPEERGONE;
	err = read(me->ep, vb_lock_header_field(s, node, server), server,
		   (uint32_t)(workers * sizeof(server[0])));
	if (err)
		return err == -VB_EPEERGONE ? LINK_DOWN : err;
	/* Clients of other threads may read the same at the same time; they write the same. */
	for (unsigned i = 0; i < workers; i++)
		__atomic_store_n(&cache[i], server[i], __ATOMIC_RELAXED);
	__atomic_store_n(&s->worker_cache[node], workers, __ATOMIC_RELEASE);
	return 0;
}

static int find_workers(struct vb_lock_client *me, uint16_t node,
			int (*read)(struct vb_ep *, vb_addr, void *, uint32_t), unsigned *out)
{
	struct vb_lock_space *s = me->space;
	unsigned n = __atomic_load_n(&s->worker_cache[node], __ATOMIC_ACQUIRE);

	if (vb_unlikely(n == 0)) {
		int err = read_header(me, node, read);

		if (err == -VB_EPEERGONE)
			vb_error("nobody serves '%s' locks on node %u; start a server there "
				 "(vb_lock_server_start, or vb_lock_server_thread_start)",
				 s->ops->name, node);
		if (err == LINK_DOWN)
			return vb_fail(-VB_EPEERGONE,
				       "node %u, which has '%s' locks, is out of reach", node,
				       s->ops->name);
		if (err)
			return err;
		n = __atomic_load_n(&s->worker_cache[node], __ATOMIC_ACQUIRE);
	}
	*out = n;
	return n ? 0 : -VB_EPEERGONE;
}

static int known_workers(struct vb_lock_client *me, uint16_t node, unsigned *out)
{
	return find_workers(me, node, vb_read, out);
}

int vb_lock_server_find(struct vb_lock_client *me, uint16_t node)
{
	unsigned workers;
	int err = find_workers(me, node, vb_lock_header_read, &workers);

	if (err == -VB_EUNKNOWN)
		vb_error("node %u, which has '%s' locks, does not answer: is the network well? try "
			 "again",
			 node, me->space->ops->name);
	return err;
}

int vb_lock_server_worker(struct vb_lock_client *me, uint16_t node, unsigned worker, vb_peer *out)
{
	struct vb_lock_space *s = me->space;
	unsigned workers;

	/* What we know may be older than a server that has begun since: the second look is new. */
	for (unsigned looks = 0; looks < 2; looks++) {
		int err = known_workers(me, node, &workers);

		if (err)
			return err;
		*out = __atomic_load_n(
			&s->server_cache[(size_t)node * VB_LOCK_WORKERS_MAX + worker % workers],
			__ATOMIC_RELAXED);
		if (*out != VB_PEER_NONE)
			return 0;
		vb_lock_server_forget(s, node);
	}
	return vb_fail(-VB_EPEERGONE, "the server of '%s' locks on node %u has stopped",
		       s->ops->name, node);
}

int vb_lock_server_seek(struct vb_lock_client *me, uint64_t lock, vb_peer *out)
{
	struct vb_lock_space *s = me->space;
	uint16_t node = (uint16_t)(lock % s->servers);
	unsigned n = __atomic_load_n(&s->worker_cache[node], __ATOMIC_ACQUIRE);
	vb_peer p;

	if (vb_unlikely(n == 0)) {
		int err = read_header(me, node, vb_read);

		if (err)
			return err == LINK_DOWN ? -VB_EUNKNOWN : err;
		n = __atomic_load_n(&s->worker_cache[node], __ATOMIC_ACQUIRE);
		if (n == 0)
			return -VB_EPEERGONE;
	}
	p = __atomic_load_n(
		&s->server_cache[(size_t)node * VB_LOCK_WORKERS_MAX + lock / s->servers % n],
		__ATOMIC_RELAXED);
	if (vb_unlikely(p == VB_PEER_NONE)) {
		vb_lock_server_forget(s, node);
		return -VB_EPEERGONE;
	}
	*out = p;
	return 0;
}

int vb_lock_server_of(struct vb_lock_client *me, uint64_t lock, vb_peer *out)
{
	struct vb_lock_space *s = me->space;
	uint16_t node = (uint16_t)(lock % s->servers);
	unsigned workers;
	int err = known_workers(me, node, &workers);

	if (err)
		return err;
	return vb_lock_server_worker(me, node, (unsigned)(lock / s->servers % workers), out);
}
