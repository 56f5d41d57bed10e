/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hosts: what any thread posts is done by a thread that does nothing else.
 *
 * The host's thread goes round as a keeper does that nobody takes the scheduler from (vb_keeper_host).
 * What is posted is a stack, newest first, that it takes as a whole:
 *
 *	poster:  puts it on the stack;           then looks at `turn`: KEEPER -> WANTED, interrupts
 *	host:    sets `turn` back to KEEPER;     then takes the stack, and goes a round, or sleeps
 *
 * Both do so in one total order.  If the stack was taken before the post came, `turn` was set back before
 * the poster looked, so he, or another one before him, has changed it to WANTED since; and nobody sleeps
 * where it is WANTED (keeper.c).
 *
 * A caller that waits has its visit on its own stack: the last that the host does with it is to say that
 * it is over; the wake that follows is of an address only.
 */
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define VB_LOG_ROOM "task"
#include "base/log.h"
#include "task/host.h"
#include "task/inner.h"

#define STACK_MAX    (64u << 20)
#define THREAD_STACK (1u << 20)

struct vb_host {
	struct vb_sched *sched;
	size_t stack_bytes;
	pthread_t thread;
	uint32_t forks;
	bool ending;     /* the thread's */
	uint32_t open;   /* atomic: endpoints and rings */
	uint32_t closed; /* atomic, a futex: who closes it does nothing more with the scheduler */

	/* Of all threads. */
	_Alignas(64) struct vb_post *posted; /* atomic */
	uint32_t visits;                     /* atomic: callers that wait */
};

/* Somebody waits for the end of it. */
struct visit {
	struct vb_post post;
	struct vb_host *host;
	struct vb_task **caller;
	int (*call)(void *arg); /* NULL: only for its turn */
	void *arg;
	int result;
	uint32_t over; /* atomic, a futex */
};

/* ---- by any thread ---- */

struct vb_sched *vb_host_sched(const struct vb_host *h)
{
	return h->sched;
}

void vb_host_post(struct vb_host *h, struct vb_post *post)
{
	struct vb_post *top = __atomic_load_n(&h->posted, __ATOMIC_RELAXED);

	do {
		post->next = top;
	} while (!__atomic_compare_exchange_n(&h->posted, &top, post, true, __ATOMIC_SEQ_CST,
					      __ATOMIC_RELAXED));
	vb_keeper_call(h->sched);
}

int vb_host_check(const struct vb_host *h)
{
	if (vb_likely(h->forks == vb_forks))
		return 0;
	return vb_fail(
		-VB_EFOREIGN,
		"a host of the process from which this one was forked, and its thread is there: "
		"open a host here, and on that what is to be called");
}

int vb_host_check_outside(void)
{
	if (vb_likely(vb_sched_mine == NULL || vb_sched_mine->face.current == &vb_sched_mine->root))
		return 0;
	return vb_fail(-EDEADLK, "a call on a ring or a host would have its thread stand still for "
				 "a host: start what is to be done there on a ring of that host");
}

void vb_host_hold(struct vb_host *h)
{
	__atomic_fetch_add(&h->open, 1, __ATOMIC_RELAXED);
}

void vb_host_drop(struct vb_host *h)
{
	__atomic_fetch_sub(&h->open, 1, __ATOMIC_RELEASE);
}

int vb_host_defer_end(void)
{
	int before;

	(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	return before;
}

void vb_host_allow_end(int before)
{
	(void)pthread_setcancelstate(before, NULL);
}

static void wait_for(uint32_t *flag)
{
	while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) == 0)
		(void)syscall(SYS_futex, flag, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
}

static void raise_flag(uint32_t *flag)
{
	__atomic_store_n(flag, 1, __ATOMIC_RELEASE);
	(void)syscall(SYS_futex, flag, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* ---- on its thread ---- */

int vb_host_any(vb_ring_fn call, void *arg)
{
	uint32_t forks = vb_forks;
	int result = call(arg);

	/* What else is under way is the parent's. */
	if (vb_unlikely(forks != vb_forks)) {
		vb_error("a child that was forked in a call on a ring or a host has returned from "
			 "it, and is ended: it should have ended by exec or _exit");
		_exit(127);
	}
	return result <= 0 ? result
			   : vb_fail(-EINVAL,
				     "a call on a ring or a host returned %d: results are 0 or "
				     "negative",
				     result);
}

int vb_host_spawn(struct vb_host *h, struct vb_task **caller, void (*body)(void *arg), void *arg,
		  size_t stack_bytes, struct vb_task **out)
{
	const struct vb_task_params params = {.name = "a call on a host",
					      .stack_bytes = stack_bytes};
	int err;

	if (caller != NULL && *caller != NULL)
		return vb_fail(-EBUSY, "a call of this client is under way on its host: it has one "
				       "at a time; wait for its end, or open another client");
	err = vb_task_spawn(h->sched, body, arg, &params, out);
	if (err == 0 && caller != NULL)
		__atomic_store_n(caller, *out, __ATOMIC_RELAXED);
	return err;
}

static void visit_end(struct visit *v, int result)
{
	v->result = result;
	raise_flag(&v->over);
}

static void visit_body(void *arg)
{
	struct visit *v = arg;
	int result = v->call(v->arg);

	if (v->caller != NULL)
		__atomic_store_n(v->caller, NULL, __ATOMIC_RELAXED);
	visit_end(v, result);
}

static void visit_begin(struct vb_post *post)
{
	struct visit *v = vb_container_of(post, struct visit, post);
	struct vb_task *task;
	int err = 0;

	if (v->call != NULL)
		err = vb_host_spawn(v->host, v->caller, visit_body, v, v->host->stack_bytes, &task);
	if (v->call == NULL || err != 0)
		visit_end(v, err);
}

/* In the order in which it was posted.  False: the host ends. */
static bool take(void *arg)
{
	struct vb_host *h = arg;
	struct vb_post *taken, *next, *first = NULL;

	if (__atomic_load_n(&h->posted, __ATOMIC_SEQ_CST) == NULL)
		return true;
	taken = __atomic_exchange_n(&h->posted, NULL, __ATOMIC_SEQ_CST);
	for (; taken != NULL; taken = next) {
		next = taken->next;
		taken->next = first;
		first = taken;
	}
	for (; first != NULL; first = next) {
		next = first->next;
		first->run(first);
	}
	return !h->ending;
}

/* ---- to call and wait ---- */

int vb_host_run(struct vb_host *h, struct vb_task **caller, int (*call)(void *arg), void *arg)
{
	struct visit v = {
		.post.run = visit_begin, .host = h, .caller = caller, .call = call, .arg = arg};
	int err = vb_host_check(h);

	if (err)
		return err;
	if (vb_sched_is_here(h->sched))
		return call(arg);
	err = vb_host_check_outside();
	if (err)
		return err;
	__atomic_fetch_add(&h->visits, 1, __ATOMIC_RELAXED);
	vb_host_post(h, &v.post);
	wait_for(&v.over);
	__atomic_fetch_sub(&h->visits, 1, __ATOMIC_RELEASE);
	return v.result;
}

void vb_host_flush(struct vb_host *h)
{
	struct visit v = {.post.run = visit_begin, .host = h};

	vb_host_post(h, &v.post);
	wait_for(&v.over);
}

struct any {
	vb_ring_fn call;
	void *arg;
};

static int run_any(void *arg)
{
	const struct any *any = arg;

	return vb_host_any(any->call, any->arg);
}

int vb_host_call(struct vb_host *h, vb_ring_fn call, void *arg)
{
	struct any any = {.call = call, .arg = arg};

	if (vb_any_null(h, call))
		return -EINVAL;
	return vb_host_run(h, NULL, run_any, &any);
}

/* ---- life ---- */

struct birth {
	struct vb_host *host;
	struct visit born;
};

static void *host_body(void *arg)
{
	struct birth *b = arg;
	struct vb_host *h = b->host;
	int err = vb_sched_create(NULL, NULL, &h->sched);

	if (err == 0)
		vb_keeper_host_begin(h->sched, h);
	visit_end(&b->born, err);
	if (err == 0) {
		vb_keeper_host(h->sched, take, h);
		wait_for(&h->closed);
	}
	/* Its scheduler goes as that of any thread that ends. */
	return NULL;
}

/* The program's signals are its own. */
static int start(struct vb_host *h)
{
	struct birth b = {.host = h};
	pthread_attr_t attr;
	sigset_t all, before;
	int err;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, THREAD_STACK);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&h->thread, &attr, host_body, &b);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	if (err)
		return vb_fail(-ENOMEM,
			       "no thread for a host: the system gives this process no more");
	wait_for(&b.born.over);
	if (b.born.result != 0)
		pthread_join(h->thread, NULL);
	return b.born.result;
}

int vb_host_open(const struct vb_host_params *params, struct vb_host **out)
{
	static const struct vb_host_params none;
	struct vb_host *h;
	int err;

	if (vb_any_null(out))
		return -EINVAL;
	if (params == NULL)
		params = &none;
	if (params->stack_bytes > STACK_MAX ||
	    (params->stack_bytes != 0 && params->stack_bytes < 1u << VB_STACK_MIN_LOG2))
		return vb_fail(-EINVAL, "a stack of %u bytes: %u to %u, or 0", params->stack_bytes,
			       1u << VB_STACK_MIN_LOG2, STACK_MAX);
	h = aligned_alloc(64, sizeof(*h));
	if (h == NULL)
		return vb_fail(-ENOMEM, "no memory for a host");
	*h = (struct vb_host){.forks = vb_forks, .stack_bytes = params->stack_bytes};
	err = start(h);
	if (err) {
		free(h);
		return err;
	}
	*out = h;
	return 0;
}

struct last {
	struct vb_post post;
	struct vb_host *host;
};

static void end(struct vb_post *post)
{
	vb_container_of(post, struct last, post)->host->ending = true;
}

int vb_host_close(struct vb_host *h)
{
	struct last last = {.post.run = end, .host = h};
	uint32_t open, visits;
	int err, before;

	if (h == NULL)
		return 0;
	err = vb_host_check(h);
	if (err == 0)
		err = vb_host_check_outside();
	if (err)
		return err;
	open = __atomic_load_n(&h->open, __ATOMIC_ACQUIRE);
	visits = __atomic_load_n(&h->visits, __ATOMIC_ACQUIRE);
	if (open > 0 || visits > 0)
		return vb_fail(-EBUSY,
			       "a host stays open: %u clients, coordinators, servers and rings are "
			       "open on it, and %u calls under way; close those first, then close "
			       "it again",
			       open, visits);
	vb_host_post(h, &last.post);
	raise_flag(&h->closed);
	before = vb_host_defer_end();
	pthread_join(h->thread, NULL);
	vb_host_allow_end(before);
	free(h);
	return 0;
}
