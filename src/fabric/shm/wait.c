/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for messages: the environment that this fabric gives to a thread's scheduler.
 *
 * Each thread that has endpoints open has a *worker* in the segment with a bell, a futex word:
 * bit 0 says "asleep", the rest counts messages.  No wake-up is lost:
 *
 *	receiver                              sender
 *	  seen := bell                          slot := FULL
 *	  look at the rings: nothing            old := bell, bell += 2
 *	  bell: seen -> seen | 1, else again    if old was odd: clear bit 0, and whoever
 *	  sleep while bell = seen | 1             cleared it wakes
 *
 * If the sender rings before the receiver's swap, the swap fails; if after, the sender sees bit 0
 * and the sleep either does not begin (the word has changed) or is ended.  Both change one word, so its own
 * order decides, and a look behind a bell that shows the sender's ring sees his slot (release and acquire).  A sender that is killed
 * between message and bell, or between bell and wake, tells nobody: so no sleep is longer than
 * NAP_NS, and there is a look after each: at the rings, or, of a thread with many endpoints, at
 * those that are noted to have mail, and once a second at all (mail.c).  While a sender is stuck
 * half-way in a ring the naps are shorter still, because only looking tells whether it is dead.  A
 * receiver that is killed asleep leaves bit 0 set and costs its senders one useless wake.
 *
 * Spinning is for idle cores: with more workers awake than cores a spinning waiter keeps the one
 * it waits for from running, and a FIFO lock then moves on once in a time slice.  So then nobody
 * spins: a waiter gives way a few times and sleeps, and the sender's wake hands the core on.
 * Sleeps shorter than the kernel's timer slack are made of giving way instead.
 */
#define VB_LOG_ROOM "shm"
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/shm/inner.h"
#include "fabric/spin.h"

#define NAP_NS        10000000ull
#define STUCK_NAP_NS  1000000ull
#define SHARED_NAP_NS 100000ull /* a thread on two segments can sleep at one bell only */
#define SPIN_NS       20000ull
#define SLACK_NS      60000ull /* a sleep may take this much longer than asked */
#define SPINS         64
#define YIELDS        2
#define LOOK_ANYWAY   64 /* polls */

uint64_t shm_look_all_ns = 1000000000ull;

struct shm_thread {
	struct vb_sched *sched;
	struct vb_list links;
	unsigned polls;
	uint64_t spin_ns; /* how long the next wait spins before it sleeps */
	uint64_t all_ns;  /* when all rings were looked at */
	bool stuck;
};

static uint32_t *bell_of(struct shm_link *l)
{
	return &l->fabric->workers[l->worker].bell;
}

/* Wakes the tasks of an endpoint that has something. */
static bool look_at(struct shm_ep *e, bool *stuck)
{
	if (vb_list_empty(&e->ep.waiters) || !shm_ring_ready(e, stuck))
		return false;
	vb_ep_wake(&e->ep);
	return true;
}

/* now: 0, or the time if that may be a look at all rings. */
static bool look(struct shm_thread *t, uint64_t now)
{
	bool all = now != 0 && now - t->all_ns >= shm_look_all_ns, found = false;

	t->stuck = false;
	if (all)
		t->all_ns = now;
	vb_list_for_each (l, &t->links) {
		struct shm_link *link = vb_container_of(l, struct shm_link, in_thread);

		link->seen = __atomic_load_n(bell_of(link), __ATOMIC_SEQ_CST) & ~1u;
		if (link->mail != NULL && !all) {
			found |= shm_mail_look(link, look_at, &t->stuck);
			continue;
		}
		vb_list_for_each (it, &link->eps)
			found |= look_at(vb_container_of(it, struct shm_ep, in_link), &t->stuck);
	}
	return found;
}

static bool rung(struct shm_thread *t)
{
	vb_list_for_each (l, &t->links) {
		struct shm_link *link = vb_container_of(l, struct shm_link, in_thread);

		if (__atomic_load_n(bell_of(link), __ATOMIC_ACQUIRE) != link->seen)
			return true;
	}
	return false;
}

static void env_poll(struct vb_sched *s)
{
	struct shm_thread *t = vb_sched_env_ctx(s);

	/* Also without a ring: somebody may have begun to wait for what is already there. */
	if (++t->polls % LOOK_ANYWAY == 0)
		look(t, vb_clock_early_ns());
	else if (rung(t))
		look(t, 0);
}

static bool crowded(struct shm_thread *t)
{
	vb_list_for_each (l, &t->links) {
		struct shm_fabric *f = vb_container_of(l, struct shm_link, in_thread)->fabric;
		uint32_t all = __atomic_load_n(&f->h->workers_active, __ATOMIC_RELAXED);
		uint32_t asleep = __atomic_load_n(&f->h->workers_asleep, __ATOMIC_RELAXED);

		if ((int32_t)(all - asleep) > (int32_t)f->cores)
			return true;
	}
	return false;
}

/* Until until_ns or a ring, without sleeping; gives the core to whoever wants it. */
static bool give_way(struct shm_thread *t, uint64_t until_ns, unsigned times)
{
	for (unsigned i = 0; i < times && vb_clock_early_ns() < until_ns; i++) {
		sched_yield();
		if (rung(t))
			return true;
	}
	return false;
}

static bool spin(struct shm_thread *t, uint64_t until_ns)
{
	do {
		for (unsigned i = 0; i < SPINS; i++) {
			if (rung(t))
				return true;
			vb_cpu_relax();
		}
	} while (vb_clock_early_ns() < until_ns);
	return false;
}

static void nap(struct shm_thread *t, uint64_t ns)
{
	struct shm_link *link = vb_container_of(t->links.next, struct shm_link, in_thread);
	uint32_t *bell = bell_of(link), seen = link->seen;
	struct timespec span = {.tv_sec = (time_t)(ns / 1000000000ull),
				.tv_nsec = (long)(ns % 1000000000ull)};

	if (!__atomic_compare_exchange_n(bell, &seen, seen | 1, false, __ATOMIC_SEQ_CST,
					 __ATOMIC_RELAXED))
		return;
	__atomic_fetch_add(&link->fabric->h->workers_asleep, 1, __ATOMIC_RELAXED);
	(void)syscall(SYS_futex, bell, FUTEX_WAIT, link->seen | 1, &span, NULL, 0);
	shm_bell_awake(link->fabric, link->worker);
}

static void env_idle(struct vb_sched *s, uint64_t until_ns)
{
	struct shm_thread *t = vb_sched_env_ctx(s);
	uint64_t begin = vb_clock_early_ns(), now = begin, longest = NAP_NS;

	/* After the look has noted what the bells show: interrupt rings them, so it is seen here or
	 * ends the spin and the nap below. */
	if (look(t, now) || now >= until_ns || vb_sched_wanted(s))
		return;
	if (crowded(t)) {
		if (give_way(t, until_ns, YIELDS))
			return;
	} else if (spin(t, until_ns - now < t->spin_ns ? until_ns : now + t->spin_ns)) {
		vb_spin_learn(&t->spin_ns, SPIN_NS, 0);
		return;
	}
	now = vb_clock_early_ns();
	if (now >= until_ns)
		return;
	if (until_ns - now <= SLACK_NS) {
		if (crowded(t))
			give_way(t, until_ns, 1);
		else
			spin(t, until_ns);
		return;
	}
	if (t->links.next != t->links.prev)
		longest = SHARED_NAP_NS;
	else if (t->stuck)
		longest = STUCK_NAP_NS;
	if (until_ns - now - SLACK_NS < longest)
		longest = until_ns - now - SLACK_NS;
	nap(t, longest);
	if (look(t, 0))
		vb_spin_learn(&t->spin_ns, SPIN_NS, vb_clock_early_ns() - begin);
	else
		vb_spin_learn(&t->spin_ns, SPIN_NS, UINT64_MAX);
}

static void env_interrupt(struct vb_sched *s)
{
	struct shm_thread *t = vb_sched_env_ctx(s);

	vb_list_for_each (l, &t->links) {
		struct shm_link *link = vb_container_of(l, struct shm_link, in_thread);

		shm_ring_bell(link->fabric, link->worker);
	}
}

static const struct vb_env_ops shm_env = {
	.name = "shm",
	.idle = env_idle,
	.poll = env_poll,
	.interrupt = env_interrupt,
};

/* ---- a thread's links ---- */

static int thread_get(struct shm_thread **out)
{
	struct vb_sched *s = vb_sched_self();
	const struct vb_env_ops *env = vb_sched_env(s);
	struct shm_thread *t;

	if (env == &shm_env) {
		*out = vb_sched_env_ctx(s);
		return 0;
	}
	if (env != NULL && env->is_virtual)
		return vb_fail(-EINVAL, "this thread lives in virtual time: use another thread for "
					"shared memory");
	if (env != NULL && strcmp(env->name, "own") == 0)
		return vb_fail(-EINVAL, "this thread waits in the way of a fabric of the program's "
					"own: use another thread for shared memory");
	t = calloc(1, sizeof(*t));
	if (t == NULL)
		return vb_fail(-ENOMEM, "no memory for a thread's state");
	t->sched = s;
	t->spin_ns = SPIN_NS;
	vb_list_init(&t->links);
	vb_sched_set_env(s, &shm_env, t);
	*out = t;
	return 0;
}

static void thread_put(struct shm_thread *t)
{
	if (!vb_list_empty(&t->links))
		return;
	vb_sched_set_env(t->sched, NULL, NULL);
	free(t);
}

/* This thread's part in the fabric, made on first use; it lives while it has endpoints. */
int shm_link_get(struct shm_fabric *f, struct shm_link **out)
{
	struct shm_thread *t;
	struct shm_link *link;
	int err = thread_get(&t);

	if (err != 0)
		return err;
	vb_list_for_each (l, &t->links) {
		*out = vb_container_of(l, struct shm_link, in_thread);
		if ((*out)->fabric == f)
			return 0;
	}
	link = calloc(1, sizeof(*link));
	err = link != NULL ? shm_worker_claim(f, &link->worker)
			   : vb_fail(-ENOMEM, "no memory for a thread's state");
	if (err != 0) {
		free(link);
		thread_put(t);
		return err;
	}
	link->fabric = f;
	link->thread = t;
	vb_list_init(&link->eps);
	vb_list_init(&link->in_thread);
	vb_sched_env_lock(t->sched);
	vb_list_push(&t->links, &link->in_thread);
	vb_sched_env_unlock(t->sched);
	*out = link;
	return 0;
}

void shm_link_put(struct shm_link *l)
{
	if (!vb_list_empty(&l->eps))
		return;
	vb_sched_env_lock(l->thread->sched);
	vb_list_remove(&l->in_thread);
	vb_sched_env_unlock(l->thread->sched);
	shm_mail_end(l);
	shm_worker_release(l->fabric, l->worker);
	thread_put(l->thread);
	free(l);
}
