/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rings: calls as tasks, and a queue of those that have ended.
 *
 * A call that is started is a task, which runs at once until it first gives way.  If it has ended by
 * then its starter returns the result; else it is background work from now on, the owner's or the
 * keeper's (keeper.c), and at its end puts a completion into the queue.
 *
 * The queue has one writer at a time, whoever has the scheduler, and one reader, the owner, who need
 * not have it: reaping takes nothing back from the keeper.  It has a place for each call that may be
 * open, so it is never full.
 *
 *	writer:  completion, head;         then takes `armed`: rings if it was set
 *	owner:   sets `armed`;             then looks at head: does not sleep if it has moved
 *
 * Both do so in one total order, so one of them sees the other.  The bell is an eventfd.  `rung` is
 * set after it was rung, so that an owner who finds it not set has a descriptor that is readable for
 * nothing once, never one that stays silent.
 *
 * A host's ring (host.c) is any thread's.  Its calls are posted, and begin, are cancelled and end on the
 * host's thread; what starters, readers and that thread have in common they change under the ring's lock,
 * and who waits sleeps on its condition.  The cancellation of a call is posted as well, behind its
 * beginning, and a call that has ended meanwhile keeps its place until that has been run.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define VB_LOG_ROOM "task"
#include "base/log.h"
#include "task/inner.h"
#include "task/ring.h"

#define DEPTH_DEFAULT 1024u
#define DEPTH_MAX     (1u << 20)
#define STACK_MAX     (64u << 20)

struct vb_ring {
	struct vb_ring_face face; /* first: inline functions look at it */
	struct vb_sched *sched;
	struct vb_host *host; /* NULL: a thread's own */
	uint32_t forks;
	uint32_t depth;
	uint32_t n_ops; /* the depth; on a host twice that, see hosted_cancel */
	uint32_t mask;  /* of the queue's places */
	size_t stack_bytes;
	int fd;

	/* A host's: of all that follows.  The condition is for those who wait. */
	pthread_mutex_t lock;
	pthread_cond_t ended;
	unsigned sleepers;

	/* Whoever's who has the scheduler. */
	struct vb_ring_op *ops;
	uint32_t free; /* number + 1 */
	uint32_t under_way;
	struct vb_task *waiter; /* sleeps in vb_ring_wait */

	/* Shared. */
	struct vb_completion *done;
	uint32_t open; /* atomic: started, and not reaped */
	uint32_t head; /* atomic: ended so far */
	uint32_t tail; /* the owner's: reaped so far */
	bool armed;    /* atomic */
	bool rung;     /* atomic */
};

struct vb_sched *vb_ring_sched(const struct vb_ring *r)
{
	return r->sched;
}

struct vb_host *vb_ring_host(const struct vb_ring *r)
{
	return r->host;
}

static void lock(struct vb_ring *r)
{
	if (r->host != NULL)
		pthread_mutex_lock(&r->lock);
}

static void unlock(struct vb_ring *r)
{
	if (r->host != NULL)
		pthread_mutex_unlock(&r->lock);
}

/* ---- whose call is it? ---- */

static int check(const struct vb_ring *r)
{
	if (r->host != NULL)
		return vb_host_check(r->host);
	if (vb_likely(r->forks == vb_forks && vb_sched_is_here(r->sched)))
		return 0;
	if (r->forks != vb_forks)
		return vb_fail(-VB_EFOREIGN,
			       "a ring of the process from which this one was forked: "
			       "it opens one of its own");
	return vb_fail(-VB_EFOREIGN,
		       "a ring of another thread: only the thread that has opened it may call it");
}

/* The same for what a call of a ring may not do: the queue's reader is the owner. */
static int check_owner(const struct vb_ring *r)
{
	int err = check(r);

	if (err)
		return err;
	if (r->host != NULL)
		return vb_host_check_outside();
	if (vb_sched_mine == r->sched && r->sched->face.current != &r->sched->root)
		return vb_fail(-EINVAL, "a call that is under way on a ring may not reap, wait, "
					"arm or close: that is its thread's");
	return 0;
}

/* ---- the queue ---- */

static bool is_empty(const struct vb_ring *r)
{
	return __atomic_load_n(&r->head, __ATOMIC_SEQ_CST) == r->tail;
}

static void push(struct vb_ring *r, void *tag, int result)
{
	static const uint64_t one = 1;

	r->done[r->head & r->mask] = (struct vb_completion){.tag = tag, .result = result};
	__atomic_store_n(&r->head, r->head + 1, __ATOMIC_SEQ_CST);
	if (r->waiter != NULL)
		vb_task_wake(r->waiter);
	if (r->sleepers > 0)
		pthread_cond_broadcast(&r->ended);
	if (__atomic_exchange_n(&r->armed, false, __ATOMIC_SEQ_CST)) {
		ssize_t n = write(r->fd, &one, sizeof(one));

		/* The counter is far from full. */
		vb_assert(n == sizeof(one));
		__atomic_store_n(&r->rung, true, __ATOMIC_SEQ_CST);
	}
}

/* ---- calls ---- */

static void put_back(struct vb_ring_op *op)
{
	struct vb_ring *r = op->ring;

	op->task = NULL;
	op->turn++;
	op->next = r->free;
	r->free = (uint32_t)(op - r->ops) + 1;
}

/* On a host. */
static void hosted_end(struct vb_ring_op *op, int result)
{
	struct vb_ring *r = op->ring;
	void *tag = op->tag;

	pthread_mutex_lock(&r->lock);
	op->live = false;
	if (!op->told)
		put_back(op);
	r->under_way--;
	push(r, tag, result);
	pthread_mutex_unlock(&r->lock);
}

static void op_body(void *arg)
{
	struct vb_ring_op *op = arg;
	struct vb_ring *r = op->ring;
	int result;

	if (op->caller)
		__atomic_store_n(op->caller, op->task, __ATOMIC_RELAXED);
	result = op->run(op);
	if (op->caller)
		__atomic_store_n(op->caller, NULL, __ATOMIC_RELAXED);
	op->task = NULL;
	if (r->host != NULL) {
		hosted_end(op, result);
		return;
	}
	if (op->starting) {
		op->result = result;
		return;
	}
	put_back(op);
	r->under_way--;
	vb_sched_call_end(r->sched);
	push(r, op->tag, result);
}

int vb_ring_take(struct vb_ring *r, void *tag, struct vb_ring_op **out)
{
	struct vb_ring_op *op = NULL;

	lock(r);
	if (__atomic_add_fetch(&r->open, 1, __ATOMIC_ACQUIRE) <= r->depth && r->free != 0) {
		op = &r->ops[r->free - 1];
		r->free = op->next;
	} else
		__atomic_fetch_sub(&r->open, 1, __ATOMIC_RELAXED);
	unlock(r);
	if (op == NULL)
		return vb_fail(-ENOSPC,
			       "%u calls are under way on this ring or not reaped, which is its "
			       "depth: reap, or open it with a larger one",
			       r->depth);
	op->tag = tag;
	op->caller = NULL;
	*out = op;
	return 0;
}

/* Ended, or never begun. */
static int conclude(struct vb_ring_op *op, int result)
{
	__atomic_fetch_sub(&op->ring->open, 1, __ATOMIC_RELAXED);
	put_back(op);
	return result;
}

static uint64_t id_of(const struct vb_ring_op *op)
{
	return (uint64_t)op->turn << 32 | (uint32_t)(op - op->ring->ops);
}

static void hosted_begin(struct vb_post *post)
{
	struct vb_ring_op *op = vb_container_of(post, struct vb_ring_op, begin);
	struct vb_ring *r = op->ring;
	int err = vb_host_spawn(r->host, op->caller, op_body, op, r->stack_bytes, &op->task);

	if (err)
		hosted_end(op, err);
	else if (op->early)
		vb_task_cancel(op->task);
}

static int hosted_go(struct vb_ring_op *op, uint64_t *id)
{
	struct vb_ring *r = op->ring;

	/* Once it is posted it may have ended. */
	if (id)
		*id = id_of(op);
	op->early = false;
	pthread_mutex_lock(&r->lock);
	op->live = true;
	r->under_way++;
	pthread_mutex_unlock(&r->lock);
	op->begin.run = hosted_begin;
	vb_host_post(r->host, &op->begin);
	return VB_STARTED;
}

int vb_ring_go(struct vb_ring_op *op, uint64_t *id)
{
	struct vb_ring *r = op->ring;
	const struct vb_task_params params = {.name = "a call on a ring",
					      .stack_bytes = r->stack_bytes};
	bool quick, ended;
	int err;

	if (r->host != NULL)
		return hosted_go(op, id);
	err = vb_task_spawn(r->sched, op_body, op, &params, &op->task);
	if (err)
		return conclude(op, err);
	op->starting = true;
	quick = vb_sched_slow_begin(r->sched);
	ended = vb_task_run_now(op->task) && op->task == NULL;
	vb_sched_slow_end(r->sched, quick);
	if (ended)
		return conclude(op, op->result);
	op->starting = false;
	/* Until its turn comes, too. */
	if (op->caller)
		__atomic_store_n(op->caller, op->task, __ATOMIC_RELAXED);
	if (id)
		*id = id_of(op);
	r->under_way++;
	vb_sched_call_begin(r->sched);
	return VB_STARTED;
}

struct any {
	vb_ring_fn call;
	void *arg;
};

static int run_any(struct vb_ring_op *op)
{
	struct any any;

	memcpy(&any, op->own, sizeof(any));
	return vb_host_any(any.call, any.arg);
}

int vb_ring_call(struct vb_ring *r, vb_ring_fn call, void *arg, void *tag, uint64_t *id)
{
	const struct any any = {.call = call, .arg = arg};
	struct vb_ring_op *op;
	struct vb_sched *own;
	int err;

	if (vb_any_null(r, call))
		return -EINVAL;
	err = check(r);
	if (err)
		return err;
	VB_SCHED_INSIDE(vb_ring_own(r));
	err = vb_ring_take(r, tag, &op);
	if (err)
		return err;
	op->run = run_any;
	memcpy(op->own, &any, sizeof(any));
	own = vb_ring_own(r);
	err = vb_ring_go(op, id);
	if (own != NULL)
		vb_keeper_settle(own);
	return err;
}

static void hosted_cancel_now(struct vb_post *post)
{
	struct vb_ring_op *op = vb_container_of(post, struct vb_ring_op, cancel);
	struct vb_ring *r = op->ring;
	bool live;

	pthread_mutex_lock(&r->lock);
	live = op->live;
	op->told = false;
	if (!live)
		put_back(op);
	pthread_mutex_unlock(&r->lock);
	/* Whoever has guessed its id can have been faster than its starter. */
	if (live && op->task == NULL)
		op->early = true;
	else if (live)
		vb_task_cancel(op->task);
}

/*
 * How many places may there be of calls that have ended, and been reaped, and whose cancellation has not been run?  All
 * of them had begun when the host last took what was posted, so they were under way together: the depth.  Whoever is
 * started since begins behind their cancellations.
 */
static int hosted_cancel(struct vb_ring *r, uint64_t id)
{
	struct vb_ring_op *op = (uint32_t)id < r->n_ops ? &r->ops[(uint32_t)id] : NULL;
	bool live, post = false;

	if (op == NULL)
		return -ENOENT;
	pthread_mutex_lock(&r->lock);
	live = op->live && op->turn == id >> 32;
	if (live) {
		post = !op->told;
		op->told = true;
	}
	pthread_mutex_unlock(&r->lock);
	if (post) {
		op->cancel.run = hosted_cancel_now;
		vb_host_post(r->host, &op->cancel);
	}
	return live ? 0 : -ENOENT;
}

int vb_ring_cancel(struct vb_ring *r, uint64_t id)
{
	struct vb_ring_op *op;
	int err;

	if (vb_any_null(r))
		return -EINVAL;
	err = check(r);
	if (err)
		return err;
	if (r->host != NULL)
		return hosted_cancel(r, id);
	VB_SCHED_INSIDE(r->sched);
	op = (uint32_t)id < r->n_ops ? &r->ops[(uint32_t)id] : NULL;
	if (op == NULL || op->turn != id >> 32 || op->task == NULL)
		return -ENOENT;
	vb_task_cancel(op->task);
	return 0;
}

/* ---- what has ended ---- */

int vb_ring_reap(struct vb_ring *r, struct vb_completion done[], unsigned most)
{
	unsigned n = 0;
	int err;

	if (vb_any_null(r, done))
		return -EINVAL;
	err = check_owner(r);
	if (err)
		return err;
	if (r->host == NULL && is_empty(r) && __atomic_load_n(&r->open, __ATOMIC_RELAXED) > 0 &&
	    !vb_keeper_is_gone(r->sched))
		vb_poll();
	lock(r);
	while (n < most && n < INT32_MAX && !is_empty(r)) {
		done[n++] = r->done[r->tail & r->mask];
		r->tail++;
	}
	/* The places are free: whoever takes one writes behind our reads, and whoever finds none taken closes. */
	__atomic_fetch_sub(&r->open, n, __ATOMIC_RELEASE);
	unlock(r);
	return (int)n;
}

static uint64_t end_of(uint64_t now, uint64_t timeout_ns)
{
	return timeout_ns == VB_FOREVER_NS || now + timeout_ns < now ? VB_FOREVER
								     : now + timeout_ns;
}

static int hosted_wait(struct vb_ring *r, uint64_t timeout_ns)
{
	uint64_t until_ns = end_of(vb_clock_gettime_ns(), timeout_ns);
	const struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000ull),
				       .tv_nsec = (long)(until_ns % 1000000000ull)};
	int err = 0, before = vb_host_defer_end();

	pthread_mutex_lock(&r->lock);
	r->sleepers++;
	while (is_empty(r) && err == 0) {
		if (r->under_way == 0)
			err = -ENOENT;
		else if (until_ns == VB_FOREVER)
			pthread_cond_wait(&r->ended, &r->lock);
		else
			err = -pthread_cond_timedwait(&r->ended, &r->lock, &until);
	}
	if (!is_empty(r))
		err = 0;
	r->sleepers--;
	/* The last touch: who has waited for that closes the ring. */
	pthread_mutex_unlock(&r->lock);
	vb_host_allow_end(before);
	return err;
}

int vb_ring_wait(struct vb_ring *r, uint64_t timeout_ns)
{
	uint64_t until_ns;
	int err;

	if (vb_any_null(r))
		return -EINVAL;
	err = check_owner(r);
	if (err)
		return err;
	if (r->host != NULL)
		return hosted_wait(r, timeout_ns);
	VB_SCHED_INSIDE(r->sched);
	until_ns = end_of(vb_sched_now(r->sched), timeout_ns);
	while (is_empty(r)) {
		if (r->under_way == 0)
			return -ENOENT;
		if (err != 0)
			return err;
		r->waiter = &r->sched->root;
		err = vb_task_suspend(until_ns);
		r->waiter = NULL;
	}
	return 0;
}

int vb_ring_fd(const struct vb_ring *r)
{
	return vb_any_null(r) ? -EINVAL : r->fd;
}

int vb_ring_arm(struct vb_ring *r)
{
	bool any;
	uint64_t times;
	int err, before;

	if (vb_any_null(r))
		return -EINVAL;
	err = check_owner(r);
	if (err)
		return err;
	before = vb_host_defer_end();
	lock(r);
	if (__atomic_exchange_n(&r->rung, false, __ATOMIC_SEQ_CST))
		(void)!read(r->fd, &times, sizeof(times));
	__atomic_store_n(&r->armed, true, __ATOMIC_SEQ_CST);
	any = !is_empty(r);
	if (any)
		__atomic_store_n(&r->armed, false, __ATOMIC_SEQ_CST);
	unlock(r);
	vb_host_allow_end(before);
	if (any || r->host != NULL)
		return any ? -EAGAIN : 0;
	err = vb_keeper_go(r->sched);
	if (err)
		__atomic_store_n(&r->armed, false, __ATOMIC_SEQ_CST);
	return err;
}

/* ---- life ---- */

static int check_params(const struct vb_ring_params *p)
{
	if (p->depth > DEPTH_MAX)
		return vb_fail(-EINVAL, "a ring for %u calls: at most %u", p->depth, DEPTH_MAX);
	if (p->stack_bytes > STACK_MAX ||
	    (p->stack_bytes != 0 && p->stack_bytes < 1u << VB_STACK_MIN_LOG2))
		return vb_fail(-EINVAL, "a stack of %u bytes: %u to %u, or 0", p->stack_bytes,
			       1u << VB_STACK_MIN_LOG2, STACK_MAX);
	return 0;
}

static void ring_free(struct vb_ring *r)
{
	if (r->fd >= 0)
		close(r->fd);
	if (r->host != NULL) {
		pthread_cond_destroy(&r->ended);
		pthread_mutex_destroy(&r->lock);
		vb_host_drop(r->host);
	}
	free(r->ops);
	free(r->done);
	free(r);
}

/* The smallest power of two that is not less. */
static uint32_t places(uint32_t depth)
{
	uint32_t n = 1;

	while (n < depth)
		n *= 2;
	return n;
}

/* Without a scheduler. */
static int ring_new(const struct vb_ring_params *params, bool hosted, struct vb_ring **out)
{
	struct vb_ring *r = calloc(1, sizeof(*r));

	if (r == NULL)
		return vb_fail(-ENOMEM, "no memory for a ring");
	r->depth = params->depth != 0 ? params->depth : DEPTH_DEFAULT;
	r->n_ops = hosted ? 2 * r->depth : r->depth;
	r->mask = places(r->depth) - 1;
	r->ops = calloc(r->n_ops, sizeof(r->ops[0]));
	r->done = calloc((size_t)r->mask + 1, sizeof(r->done[0]));
	r->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (r->ops == NULL || r->done == NULL || r->fd < 0) {
		const char *lacks = r->fd < 0 ? strerror(errno) : "no memory";
		uint32_t depth = r->depth;

		ring_free(r);
		return vb_fail(-ENOMEM, "a ring for %u calls could not be made: %s", depth, lacks);
	}
	r->forks = vb_forks;
	r->stack_bytes = params->stack_bytes;
	for (uint32_t i = r->n_ops; i-- > 0;) {
		r->ops[i].ring = r;
		put_back(&r->ops[i]);
	}
	*out = r;
	return 0;
}

static const struct vb_ring_params no_params;

int vb_ring_open(const struct vb_ring_params *params, struct vb_ring **out)
{
	struct vb_ring *r;
	int err;

	if (vb_any_null(out))
		return -EINVAL;
	if (params == NULL)
		params = &no_params;
	err = check_params(params);
	if (!err)
		err = vb_sched_ready();
	if (!err && vb_sched_mine != NULL && vb_sched_host(vb_sched_mine) != NULL)
		err = vb_fail(-EINVAL, "a function on a host opens no ring of its thread, which "
				       "never reaps: call vb_host_ring_open");
	if (!err)
		err = ring_new(params, false, &r);
	if (err)
		return err;
	r->sched = r->face.own = vb_sched_self();
	vb_keeper_settle(r->sched);
	*out = r;
	return 0;
}

int vb_host_ring_open(struct vb_host *h, const struct vb_ring_params *params, struct vb_ring **out)
{
	pthread_condattr_t attr;
	struct vb_ring *r;
	int err;

	if (vb_any_null(h, out))
		return -EINVAL;
	if (params == NULL)
		params = &no_params;
	err = vb_host_check(h);
	if (!err)
		err = check_params(params);
	if (!err)
		err = ring_new(params, true, &r);
	if (err)
		return err;
	r->sched = vb_host_sched(h);
	r->host = h;
	pthread_mutex_init(&r->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&r->ended, &attr);
	pthread_condattr_destroy(&attr);
	vb_host_hold(h);
	*out = r;
	return 0;
}

/* On a host: threads that sleep in vb_ring_wait, or are just being woken. */
static unsigned sleepers(struct vb_ring *r)
{
	unsigned n;

	lock(r);
	n = r->sleepers;
	unlock(r);
	return n;
}

int vb_ring_close(struct vb_ring *r)
{
	uint32_t open, waiting;
	int err;

	if (r == NULL)
		return 0;
	err = check_owner(r);
	if (err)
		return err;
	/* Who has ended the last call may not be out of it yet: here, and below. */
	VB_SCHED_INSIDE(vb_ring_own(r));
	open = __atomic_load_n(&r->open, __ATOMIC_RELAXED);
	if (open > 0)
		return vb_fail(
			-EBUSY,
			"%u calls of this ring are under way or not reaped: cancel them, wait "
			"and reap, then close it again",
			open);
	waiting = sleepers(r);
	if (waiting > 0)
		return vb_fail(-EBUSY,
			       "%u threads wait on this ring: close it again when they have "
			       "returned",
			       waiting);
	if (r->host != NULL)
		vb_host_flush(r->host);
	ring_free(r);
	return 0;
}

/* ---- for tasks, in virtual time ---- */

int vb_ring_next(struct vb_ring *r, uint64_t until_ns, struct vb_completion *out)
{
	int err = 0;

	vb_assert(r->host == NULL && r->sched->face.is_virtual);
	while (is_empty(r)) {
		if (err != 0)
			return err;
		r->waiter = vb_task_self();
		err = vb_task_suspend(until_ns);
		r->waiter = NULL;
	}
	*out = r->done[r->tail++ & r->mask];
	r->open--;
	return 0;
}

uint32_t vb_ring_bury(struct vb_ring *r)
{
	/* What has ended twice is not open any more, and still in the queue. */
	uint32_t open = r->open, queued = r->head - r->tail;

	vb_assert(r->host == NULL && r->sched->face.is_virtual);
	for (; r->under_way > 0; r->under_way--)
		vb_sched_call_end(r->sched);
	ring_free(r);
	return open > queued ? open : queued;
}
