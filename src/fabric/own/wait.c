/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting: the environment that a thread's scheduler has while the thread has endpoints of a program's own fabric.
 *
 * A provider has nothing to sleep on, so an idle thread looks again and again: it spins for as long as that has paid
 * (fabric/spin.h), then naps, each time twice as long, up to NAP_MOST_NS.  While verbs are under way it gives its core to
 * whoever wants it, and naps only if they take long.
 */
#define VB_LOG_ROOM "own"
#include <sched.h>
#include <time.h>

#include "base/log.h"
#include "fabric/own/inner.h"
#include "fabric/spin.h"

#define SPIN_NS      20000ull
#define NAP_LEAST_NS 20000ull
#define NAP_MOST_NS  1000000ull
#define SLACK_NS     60000ull /* a sleep may take this much longer than asked */
#define BUSY_ROUNDS  64u      /* of spinning, with verbs under way, before the first nap */
#define LETTERS      16u      /* polls, from one look for messages to the next */

static bool look_at_ends(struct own_thread *t, uint64_t now)
{
	bool any = false;

	vb_list_for_each (it, &t->busy) {
		struct own_ep *e = vb_container_of(it, struct own_ep, in_busy);

		any |= own_ep_take_ends(e);
		own_ep_look_for_lost(e, now);
	}
	return any;
}

static bool look_for_messages(struct own_thread *t)
{
	bool any = false;

	vb_list_for_each (it, &t->eps) {
		struct own_ep *e = vb_container_of(it, struct own_ep, in_thread);

		if (!vb_list_empty(&e->ep.waiters) && own_ep_take_message(e)) {
			vb_ep_wake(&e->ep);
			any = true;
		}
	}
	return any;
}

/* True if somebody has something to do now. */
static bool look(struct own_thread *t, uint64_t now)
{
	look_at_ends(t, now);
	t->woken |= look_for_messages(t);
	return t->woken;
}

static void env_poll(struct vb_sched *s)
{
	struct own_thread *t = vb_sched_env_ctx(s);

	if (!vb_list_empty(&t->busy))
		look_at_ends(t, vb_sched_now_coarse(s));
	if (++t->polls % LETTERS == 0)
		look_for_messages(t);
}

static bool spin(struct own_thread *t, uint64_t until_ns)
{
	uint64_t now;

	do {
		now = vb_clock_ns();
		if (look(t, now) || vb_sched_wanted(t->sched))
			return true;
		if (!vb_list_empty(&t->busy))
			sched_yield();
	} while (now < until_ns);
	return false;
}

static void learn(struct own_thread *t, uint64_t waited_ns)
{
	vb_spin_learn(&t->spin_ns, SPIN_NS, waited_ns);
	if (t->woken) {
		t->nap_ns = NAP_LEAST_NS;
		t->fruitless = 0;
	}
}

static void env_idle(struct vb_sched *s, uint64_t until_ns)
{
	struct own_thread *t = vb_sched_env_ctx(s);
	uint64_t begin = vb_clock_ns(), now = begin, ns;

	t->woken = false;
	if (now >= until_ns)
		return;
	if (spin(t, until_ns - now < t->spin_ns ? until_ns : now + t->spin_ns)) {
		learn(t, 0);
		return;
	}
	now = vb_clock_ns();
	if (now >= until_ns || (!vb_list_empty(&t->busy) && ++t->fruitless < BUSY_ROUNDS))
		return;
	if (until_ns - now <= SLACK_NS) {
		spin(t, until_ns);
		return;
	}
	ns = vb_list_empty(&t->busy) ? t->nap_ns : NAP_LEAST_NS;
	if (until_ns - now - SLACK_NS < ns)
		ns = until_ns - now - SLACK_NS;
	nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
	t->nap_ns = 2 * t->nap_ns < NAP_MOST_NS ? 2 * t->nap_ns : NAP_MOST_NS;
	learn(t, look(t, vb_clock_ns()) ? vb_clock_ns() - begin : UINT64_MAX);
}

static const struct vb_env_ops own_env = {
	.name = "own",
	.idle = env_idle,
	.poll = env_poll,
};

int own_thread_get(struct own_thread **out)
{
	struct vb_sched *s = vb_sched_self();
	const struct vb_env_ops *env = vb_sched_env(s);
	struct own_thread *t;

	if (env == &own_env) {
		*out = vb_sched_env_ctx(s);
		return 0;
	}
	if (env != NULL && strcmp(env->name, "clock") != 0)
		return vb_fail(-EINVAL,
			       "this thread already waits in the way of '%s': use another thread "
			       "for a fabric of the program's own",
			       env->name);
	t = calloc(1, sizeof(*t));
	if (t == NULL)
		return vb_fail(-ENOMEM, "no memory for a thread's state");
	t->sched = s;
	t->spin_ns = SPIN_NS;
	t->nap_ns = NAP_LEAST_NS;
	vb_list_init(&t->eps);
	vb_list_init(&t->busy);
	vb_sched_set_env(s, &own_env, t);
	*out = t;
	return 0;
}

void own_thread_put(struct own_thread *t)
{
	if (!vb_list_empty(&t->eps))
		return;
	vb_sched_set_env(t->sched, NULL, NULL);
	free(t);
}
