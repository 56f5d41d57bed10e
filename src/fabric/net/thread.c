/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads on a network fabric, and how they wait.
 *
 * No wake-up is lost.  What one thread has for another, it first puts where the other will find it
 * (the inbox, an endpoint's ring), and then looks whether the other is asleep; who goes to sleep
 * first says so and then looks whether there is something.  Both orders are sequentially
 * consistent, so one of the two sees the other: either the sleeper does not sleep, or its bell (an
 * eventfd, which remembers) is rung.  What comes from the wire wakes the poller by the transport's
 * descriptor, which it armed after the last look, under the engine.
 *
 *	sleeper                           other thread
 *	  asleep := true                    inbox += item
 *	  inbox, letters or                 asleep? ring
 *	  news? do not sleep
 *	  poll(bell, descriptor)
 *	  asleep := false
 *
 * No sleep is longer than NAP_NS all the same, and that of a thread which is not the poller no
 * longer than SIDE_NAP_NS: a poller that has got work to do looks at the engine between the rounds
 * of its tasks only, and if these compute for long somebody else has to.
 *
 * Spinning is for idle cores.  Where more processes of this machine may poll than there are cores,
 * a waiter gives its core away a few times and sleeps.
 *
 * Where the transport knows what waking costs (net_fabric.spin_ns, net/wake.c), a waiter goes by what
 * it sees instead: it spins for twice as long as a wake takes, and if two looks lie TAKEN_NS apart
 * although the first found nothing, and the kernel says that it gave the core to another thread
 * meanwhile (what an interrupt or the machine's owner takes, sleeping would not save), somebody else
 * wants it.  Then it sleeps at once for CALM_NS, in one poll of the descriptor: a busy core is woken in
 * a tenth of the time that a halted one takes, and what is spun away there is taken from its turn
 * later.  That may have been a moment's work of somebody who is gone by then.  If the core is taken
 * again as soon as it is spun on again, it is calm for twice as long, up to CALM_MOST_NS: each try may
 * cost a whole turn of the other's.  It never yields: the kernel then lets it wait for such a turn.
 */
#define VB_LOG_ROOM "net"
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/net/core.h"
#include "fabric/spin.h"

#define SPIN_NS       50000ull
#define NAP_NS        10000000ull
#define SIDE_NAP_NS   1000000ull
#define SHARED_NAP_NS 100000ull /* a thread on two fabrics can sleep on one of them only */
#define SLACK_NS      60000ull
#define YIELDS        4
#define TAKEN_NS      30000ull
#define CALM_NS       500000ull
#define CALM_MOST_NS  128000000ull
#define AGAIN_NS      10000000ull
#define INBOX_FIRST   64

static _Thread_local struct net_env *here;

bool net_is_here(const struct net_thread *t)
{
	return t->env == here;
}

static void set_awake(struct net_fabric *f, bool on)
{
	struct net_core *c = f->core;

	if (!on) {
		__atomic_fetch_sub(&c->awake, 1, __ATOMIC_SEQ_CST);
		return;
	}
	/* From "all asleep": a helper may be waiting for that, and has said so before it looked. */
	if (__atomic_fetch_add(&c->awake, 1, __ATOMIC_SEQ_CST) == 0 &&
	    __atomic_load_n(&c->helper_waits, __ATOMIC_SEQ_CST))
		(void)syscall(SYS_futex, &c->awake, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

void net_wait_awake(struct net_fabric *f)
{
	struct net_core *c = f->core;

	__atomic_store_n(&c->helper_waits, true, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&c->awake, __ATOMIC_SEQ_CST) == 0)
		(void)syscall(SYS_futex, &c->awake, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
	__atomic_store_n(&c->helper_waits, false, __ATOMIC_SEQ_CST);
}

/* The word that is waited on has to change: of a flag beside it, the kernel knows nothing, and a
 * waiter that has read it before and sleeps after would sleep for ever. */
void net_end_wait_awake(struct net_fabric *f)
{
	set_awake(f, true);
}

void net_ring_bell(struct net_thread *t)
{
	const uint64_t one = 1;

	if (!__atomic_load_n(&t->asleep, __ATOMIC_SEQ_CST))
		return;
	/* A counter that is full is as good a bell. */
	if (write(t->bell, &one, sizeof(one)) < 0 && errno != EAGAIN)
		vb_error("a thread's bell cannot be rung: %s", strerror(errno));
}

static void ring_all(struct net_fabric *f)
{
	vb_list_for_each (it, &f->core->threads)
		net_ring_bell(vb_container_of(it, struct net_thread, in_core));
}

void net_wake_all(struct net_fabric *f)
{
	pthread_mutex_lock(&f->engine);
	ring_all(f);
	pthread_mutex_unlock(&f->engine);
}

void net_host_is_gone(struct net_fabric *f, uint32_t host)
{
	__atomic_store_n(&f->core->host[host].gone, true, __ATOMIC_RELEASE);
	__atomic_store_n(&f->core->news, true, __ATOMIC_SEQ_CST);
	ring_all(f);
}

void net_host_is_anew(struct net_fabric *f, uint32_t host)
{
	__atomic_store_n(&f->core->host[host].anew, true, __ATOMIC_SEQ_CST);
	ring_all(f);
}

/* ---- the inbox ---- */

static void finish(struct vb_batch *b, unsigned n)
{
	vb_assert(b->pending >= n);
	b->pending = (uint16_t)(b->pending - n);
	if (b->pending == 0 && b->waiter != NULL)
		vb_task_wake(b->waiter);
}

static void inbox_put(struct net_thread *t, struct vb_batch *b, unsigned n)
{
	pthread_mutex_lock(&t->inbox_lock);
	if (t->items == t->inbox_room) {
		uint32_t room = 2 * t->inbox_room;
		struct net_inbox_item *more = realloc(t->inbox, room * sizeof(*more));

		/* A completion that is dropped hangs its task for ever. */
		if (more == NULL) {
			vb_error("no memory for a thread's inbox");
			abort();
		}
		t->inbox = more;
		t->inbox_room = room;
	}
	t->inbox[t->items] = (struct net_inbox_item){.batch = b, .n = n};
	__atomic_store_n(&t->items, t->items + 1, __ATOMIC_SEQ_CST);
	pthread_mutex_unlock(&t->inbox_lock);
	net_ring_bell(t);
}

void net_done(struct net_fabric *f, struct net_thread *owner, struct vb_batch *b, unsigned n)
{
	(void)f;
	if (vb_likely(net_is_here(owner))) {
		owner->env->woken = true;
		finish(b, n);
	} else {
		inbox_put(owner, b, n);
	}
}

static bool inbox_take(struct net_thread *t)
{
	bool any = false;

	if (__atomic_load_n(&t->items, __ATOMIC_SEQ_CST) != 0) {
		pthread_mutex_lock(&t->inbox_lock);
		for (uint32_t i = 0; i < t->items; i++)
			finish(t->inbox[i].batch, t->inbox[i].n);
		__atomic_store_n(&t->items, 0, __ATOMIC_SEQ_CST);
		pthread_mutex_unlock(&t->inbox_lock);
		any = true;
	}
	if (__atomic_exchange_n(&t->letters, false, __ATOMIC_SEQ_CST)) {
		vb_list_for_each (it, &t->eps) {
			struct net_ep *e = vb_container_of(it, struct net_ep, in_thread);

			if (__atomic_exchange_n(&e->waiting_told, false, __ATOMIC_SEQ_CST))
				vb_ep_wake(&e->ep);
		}
		any = true;
	}
	return any;
}

/* ---- the engine ---- */

static void tell_of_the_gone(struct net_fabric *f)
{
	for (uint32_t h = 0; h < f->hosts; h++) {
		struct net_host *host = &f->core->host[h];

		if (host->told || !__atomic_load_n(&host->gone, __ATOMIC_ACQUIRE))
			continue;
		host->told = true;
		f->t->host_gone(f, h);
	}
}

static void flush(struct net_fabric *f)
{
	if (!f->core->unflushed)
		return;
	f->core->unflushed = false;
	f->t->flush(f);
}

/* What can be done without a look. */
static void settle(struct net_fabric *f)
{
	struct net_core *c = f->core;

	if (vb_unlikely(__atomic_exchange_n(&c->news, false, __ATOMIC_ACQUIRE)))
		tell_of_the_gone(f);
	flush(f);
}

bool net_pass(struct net_fabric *f)
{
	settle(f);
	__atomic_store_n(&f->core->last_pass_ns, vb_clock_ns(), __ATOMIC_RELAXED);
	return f->t->progress(f);
}

bool net_try_pass(struct net_fabric *f)
{
	if (pthread_mutex_trylock(&f->engine) != 0)
		return false;
	net_pass(f);
	pthread_mutex_unlock(&f->engine);
	return true;
}

uint64_t net_last_pass_ns(const struct net_fabric *f)
{
	return __atomic_load_n(&f->core->last_pass_ns, __ATOMIC_RELAXED);
}

bool net_poller_sleeps(const struct net_fabric *f)
{
	const struct net_thread *p = __atomic_load_n(&f->core->poller, __ATOMIC_ACQUIRE);

	return p != NULL;
}

/* Looks once at everything this thread can see.  Not only what comes ends waits: a doorbell or the
 * news of a death does, too. */
static bool look(struct net_env *env)
{
	bool any = false;

	vb_list_for_each (it, &env->links) {
		struct net_thread *t = vb_container_of(it, struct net_thread, in_env);

		if (pthread_mutex_trylock(&t->f->engine) == 0) {
			env->looks = true;
			any |= net_pass(t->f);
			env->looks = false;
			pthread_mutex_unlock(&t->f->engine);
		}
		any |= inbox_take(t);
	}
	return any || env->woken;
}

/*
 * What has ended a wait has been looked at: whom it was for goes first.  Unless others' answers are awaited: the
 * second look often finds one, and who goes on together posts together, in fewer messages.  What is owed would
 * leave with that look, alone.
 */
static void env_poll(struct vb_sched *s)
{
	struct net_env *env = vb_sched_env_ctx(s);

	if (env->has_looked)
		env->has_looked = false;
	else
		look(env);
}

bool net_stirred(struct net_fabric *f)
{
	bool stirred = f->core->stirred;

	f->core->stirred = false;
	return stirred && here != NULL && here->looks;
}

void net_owe(struct net_fabric *f)
{
	f->core->unflushed = true;
	here->owes = true;
}

static void env_ran(struct vb_sched *s)
{
	struct net_env *env = vb_sched_env_ctx(s);

	env->has_looked = false;
	if (vb_likely(!env->owes))
		return;
	env->owes = false;
	vb_list_for_each (it, &env->links) {
		struct net_fabric *f = vb_container_of(it, struct net_thread, in_env)->f;

		pthread_mutex_lock(&f->engine);
		flush(f);
		pthread_mutex_unlock(&f->engine);
	}
}

/* ---- idle ---- */

static bool crowded(const struct net_env *env)
{
	vb_list_for_each (it, &env->links) {
		const struct net_core *c = vb_container_of(it, struct net_thread, in_env)->f->core;

		if (__atomic_load_n(&c->pollers, __ATOMIC_RELAXED) > c->cores)
			return true;
	}
	return false;
}

static bool has_one_link(const struct net_env *env)
{
	return env->links.next == env->links.prev;
}

/* How long to spin at most by what waking costs; 0: by the number of cores. */
static uint64_t spin_by_wake(const struct net_env *env)
{
	uint64_t most = 0;

	vb_list_for_each (it, &env->links) {
		const struct net_fabric *f = vb_container_of(it, struct net_thread, in_env)->f;

		if (f->spin_ns > most)
			most = f->spin_ns;
	}
	return most;
}

static bool spin(struct net_env *env, uint64_t until_ns)
{
	do {
		if (look(env) || vb_sched_wanted(env->sched))
			return true;
	} while (vb_clock_ns() < until_ns);
	return false;
}

/* Has the kernel given this thread's core to another one since it was asked last? */
static bool has_lost_core(struct net_env *env)
{
	struct rusage used;
	long before = env->cores_lost;

	if (getrusage(RUSAGE_THREAD, &used) != 0)
		return true;
	env->cores_lost = used.ru_nivcsw;
	return used.ru_nivcsw != before;
}

static void be_calm(struct net_env *env, uint64_t now)
{
	bool again = env->calm_ns != 0 && now < env->taken_until_ns + AGAIN_NS;

	if (!again)
		env->calm_ns = CALM_NS;
	else if (env->calm_ns < CALM_MOST_NS)
		env->calm_ns *= 2;
	env->taken_until_ns = now + env->calm_ns;
}

/* The same, but for as long as nobody else wants the core. */
static bool spin_alone(struct net_env *env, uint64_t until_ns)
{
	uint64_t now = vb_clock_ns(), last;

	while (now < until_ns && now >= env->taken_until_ns) {
		if (look(env) || vb_sched_wanted(env->sched))
			return true;
		last = now;
		now = vb_clock_ns();
		if (now - last > TAKEN_NS && has_lost_core(env))
			be_calm(env, now);
	}
	return false;
}

static bool give_way(struct net_env *env, uint64_t until_ns)
{
	for (unsigned i = 0; i < YIELDS && vb_clock_ns() < until_ns; i++) {
		sched_yield();
		if (look(env))
			return true;
	}
	return false;
}

/* As the poller: the descriptor is armed under the engine.  False: there is something to see. */
static bool arm(struct net_thread *t)
{
	struct net_fabric *f = t->f;
	bool quiet;

	pthread_mutex_lock(&f->engine);
	if (f->t->level) {
		settle(f);
		quiet = !t->env->woken && f->t->arm(f) == 0;
	} else {
		quiet = !net_pass(f) && !t->env->woken && f->t->arm(f) == 0;
	}
	pthread_mutex_unlock(&f->engine);
	return quiet;
}

/* Who sleeps beside the poller has not looked, perhaps, since it posted. */
static void leave_nothing(struct net_fabric *f)
{
	pthread_mutex_lock(&f->engine);
	settle(f);
	pthread_mutex_unlock(&f->engine);
}

static void rest(struct net_thread *t, bool poller, uint64_t ns)
{
	struct pollfd fds[2] = {{.fd = t->bell, .events = POLLIN},
				{.fd = t->f->fd, .events = POLLIN}};
	struct timespec span = {.tv_sec = (time_t)(ns / 1000000000ull),
				.tv_nsec = (long)(ns % 1000000000ull)};
	uint64_t rings;

	__atomic_store_n(&t->asleep, true, __ATOMIC_SEQ_CST);
	if (!vb_sched_wanted(t->env->sched) && __atomic_load_n(&t->items, __ATOMIC_SEQ_CST) == 0 &&
	    !__atomic_load_n(&t->letters, __ATOMIC_SEQ_CST) &&
	    !__atomic_load_n(&t->f->core->news, __ATOMIC_SEQ_CST)) {
		__atomic_fetch_add(&t->f->core->sleeps, 1, __ATOMIC_RELAXED);
		set_awake(t->f, false);
		(void)ppoll(fds, poller && t->f->fd >= 0 ? 2 : 1, &span, NULL);
		set_awake(t->f, true);
	}
	__atomic_store_n(&t->asleep, false, __ATOMIC_SEQ_CST);
	/* Empties the bell; EAGAIN is an empty one. */
	if (fds[0].revents != 0 && read(t->bell, &rings, sizeof(rings)) < 0 && errno != EAGAIN)
		vb_error("a thread's bell cannot be read: %s", strerror(errno));
}

static void sleep_on(struct net_env *env, uint64_t ns)
{
	struct net_thread *t = vb_container_of(env->links.next, struct net_thread, in_env);
	struct net_thread *nobody = NULL;
	bool poller = __atomic_compare_exchange_n(&t->f->core->poller, &nobody, t, false,
						  __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);

	if (!poller && ns > SIDE_NAP_NS)
		ns = SIDE_NAP_NS;
	if (!has_one_link(env) && ns > SHARED_NAP_NS)
		ns = SHARED_NAP_NS;
	if (!poller)
		leave_nothing(t->f);
	if (!poller || arm(t))
		rest(t, poller, ns);
	if (poller)
		__atomic_store_n(&t->f->core->poller, NULL, __ATOMIC_SEQ_CST);
}

static bool awaits(const struct net_env *env)
{
	vb_list_for_each (it, &env->links) {
		const struct net_fabric *f = vb_container_of(it, struct net_thread, in_env)->f;

		if (__atomic_load_n(&f->awaited, __ATOMIC_RELAXED) != 0)
			return true;
	}
	return false;
}

/* Sleeps at last.  True: something has come. */
static bool sleep_until(struct net_env *env, uint64_t until_ns, uint64_t now)
{
	uint64_t longest = NAP_NS;

	if (until_ns - now - SLACK_NS < longest)
		longest = until_ns - now - SLACK_NS;
	sleep_on(env, longest);
	return look(env);
}

/* True: something has come, or others want the scheduler. */
static bool wait_until(struct net_env *env, uint64_t until_ns)
{
	const uint64_t by_wake = spin_by_wake(env), most = by_wake != 0 ? by_wake : SPIN_NS;
	uint64_t begin = vb_clock_ns(), now = begin, until_spun;
	/* Who sleeps at once looks when it arms the descriptor, or it is woken at once. */
	bool calm = by_wake != 0 && begin < env->taken_until_ns && has_one_link(env), any;

	if (!calm && (look(env) || vb_sched_wanted(env->sched)))
		return true;
	if (now >= until_ns)
		return calm && look(env);
	until_spun = until_ns - now < env->spin_ns ? until_ns : now + env->spin_ns;
	if (by_wake == 0 && crowded(env)) {
		if (give_way(env, until_ns))
			return true;
	} else if (by_wake != 0 ? spin_alone(env, until_spun) : spin(env, until_spun)) {
		vb_spin_learn(&env->spin_ns, most, vb_clock_ns() - begin);
		return true;
	}
	now = vb_clock_ns();
	if (now >= until_ns)
		return false;
	if (until_ns - now <= SLACK_NS) {
		/* Too short to sleep. */
		return by_wake == 0 && crowded(env) ? give_way(env, until_ns) : spin(env, until_ns);
	}
	any = sleep_until(env, until_ns, now);
	vb_spin_learn(&env->spin_ns, most, any ? vb_clock_ns() - begin : UINT64_MAX);
	return any;
}

static void env_idle(struct vb_sched *s, uint64_t until_ns)
{
	struct net_env *env = vb_sched_env_ctx(s);

	env->woken = false;
	env->has_looked = wait_until(env, until_ns) && (env->owes || !awaits(env));
}

static void env_bind(struct vb_sched *s, bool on)
{
	/* A keeper that was interrupted has looked, perhaps, and runs no task any more. */
	if (!on)
		env_ran(s);
	else
		(void)has_lost_core(vb_sched_env_ctx(s)); /* another thread's count */
	here = on ? vb_sched_env_ctx(s) : NULL;
}

static void env_interrupt(struct vb_sched *s)
{
	struct net_env *env = vb_sched_env_ctx(s);

	vb_list_for_each (it, &env->links)
		net_ring_bell(vb_container_of(it, struct net_thread, in_env));
}

static const struct vb_env_ops net_env_ops = {
	.name = "net",
	.idle = env_idle,
	.poll = env_poll,
	.ran = env_ran,
	.bind = env_bind,
	.interrupt = env_interrupt,
};

/* ---- a thread's links ---- */

static int env_get(struct net_env **out)
{
	struct vb_sched *s = vb_sched_self();
	const struct vb_env_ops *ops = vb_sched_env(s);
	struct net_env *env;

	if (ops == &net_env_ops) {
		*out = vb_sched_env_ctx(s);
		return 0;
	}
	if (ops != NULL &&
	    (ops->is_virtual || strcmp(ops->name, "shm") == 0 || strcmp(ops->name, "own") == 0))
		return vb_fail(-EINVAL,
			       "this thread already waits in the way of '%s': use another thread "
			       "for a network fabric",
			       ops->name);
	env = calloc(1, sizeof(*env));
	if (env == NULL)
		return vb_fail(-ENOMEM, "no memory for a thread's state");
	env->sched = s;
	env->spin_ns = SPIN_NS;
	vb_list_init(&env->links);
	vb_sched_set_env(s, &net_env_ops, env);
	here = env;
	*out = env;
	return 0;
}

static void env_put(struct net_env *env)
{
	if (!vb_list_empty(&env->links))
		return;
	vb_sched_set_env(env->sched, NULL, NULL);
	here = NULL;
	free(env);
}

static struct net_thread *link_new(struct net_fabric *f, struct net_env *env)
{
	struct net_thread *t = calloc(1, sizeof(*t));

	if (t == NULL)
		return NULL;
	t->inbox = malloc(INBOX_FIRST * sizeof(*t->inbox));
	t->inbox_room = INBOX_FIRST;
	t->bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (t->inbox == NULL || t->bell < 0) {
		if (t->bell >= 0)
			close(t->bell);
		free(t->inbox);
		free(t);
		return NULL;
	}
	t->f = f;
	t->env = env;
	pthread_mutex_init(&t->inbox_lock, NULL);
	vb_list_init(&t->eps);
	vb_list_init(&t->in_env);
	vb_list_init(&t->in_core);
	return t;
}

int net_thread_get(struct net_fabric *f, struct net_thread **out)
{
	struct net_thread *t;
	struct net_env *env;
	int err = env_get(&env);

	if (err != 0)
		return err;
	vb_list_for_each (it, &env->links) {
		t = vb_container_of(it, struct net_thread, in_env);
		if (t->f == f) {
			t->users++;
			*out = t;
			return 0;
		}
	}
	t = link_new(f, env);
	if (t == NULL) {
		env_put(env);
		return vb_fail(-ENOMEM, "no memory or descriptor for a thread's state");
	}
	t->users = 1;
	vb_sched_env_lock(env->sched);
	vb_list_push(&env->links, &t->in_env);
	vb_sched_env_unlock(env->sched);
	pthread_mutex_lock(&f->engine);
	vb_list_push(&f->core->threads, &t->in_core);
	pthread_mutex_unlock(&f->engine);
	__atomic_fetch_add(&f->core->pollers, 1, __ATOMIC_RELAXED);
	set_awake(f, true);
	*out = t;
	return 0;
}

void net_thread_put(struct net_thread *t)
{
	struct net_fabric *f = t->f;

	vb_assert(net_is_here(t));
	if (--t->users > 0)
		return;
	pthread_mutex_lock(&f->engine);
	flush(f); /* what it owes: nobody of this thread looks any more */
	vb_list_remove(&t->in_core);
	pthread_mutex_unlock(&f->engine);
	__atomic_fetch_sub(&f->core->pollers, 1, __ATOMIC_RELAXED);
	set_awake(f, false);
	vb_sched_env_lock(t->env->sched);
	vb_list_remove(&t->in_env);
	vb_sched_env_unlock(t->env->sched);
	inbox_take(t);
	env_put(t->env);
	close(t->bell);
	pthread_mutex_destroy(&t->inbox_lock);
	free(t->inbox);
	free(t);
}
