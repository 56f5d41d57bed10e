/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How threads of the network core wait: no wake-up is lost, whoever brings it; when a waiter spins,
 * gives its core away or sleeps; and what a transport's helper is told.
 *
 * In most of these tests a nap never ends by itself (fake.endless): a wake-up that is lost is then
 * seen as a nap that was over, instead of as a little delay.
 */
#include <pthread.h>
#include <sched.h>

#include "net_fake.h"

#include "fabric/spin.h"

#define THEIRS vb_addr_make(1, 128)
#define ROUNDS 300u

static void until_count(uint64_t *counter, uint64_t n)
{
	uint64_t end = vb_clock_ns() + FAKE_LONG_NS;

	while (fake_count(counter) < n && vb_clock_ns() < end)
		usleep(100);
	assert_true(fake_count(counter) >= n);
}

/* ---- wake-ups ---- */

static uint64_t asked_for; /* atomic: how often the waiting thread has begun to wait */
static struct vb_ep *target;

static void deliver(const struct vb_msg *m)
{
	pthread_mutex_lock(&fake.f->engine);
	(void)net_deliver(fake.f, vb_peer_client(target->self), m);
	pthread_mutex_unlock(&fake.f->engine);
}

/* Another thread delivers, sometimes at once, sometimes when the owner has had time to sleep. */
static void *deliverer(void *arg)
{
	(void)arg;
	for (uint64_t i = 0; i < ROUNDS; i++) {
		struct vb_msg m = {.subject = i};

		until_count(&asked_for, i + 1);
		usleep(i % 5 * 40);
		deliver(&m);
	}
	return NULL;
}

/* Waits for ROUNDS messages, numbered, saying each time that it begins to. */
static void wait_for_rounds(void *(*sender)(void *arg))
{
	struct vb_msg m;
	pthread_t thread;

	target = fake_ep(0);
	__atomic_store_n(&asked_for, 0, __ATOMIC_SEQ_CST);
	assert_int_equal(pthread_create(&thread, NULL, sender, NULL), 0);
	for (uint64_t i = 0; i < ROUNDS; i++) {
		__atomic_store_n(&asked_for, i + 1, __ATOMIC_SEQ_CST);
		while (vb_ep_recv(target, &m) != 0)
			assert_int_equal(vb_ep_wait(target, VB_FOREVER), 0);
		assert_int_equal(m.subject, i);
	}
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(fake_count(&fake.naps_over), 0);
	vb_ep_close(target);
}

static void messages_wake(void **state)
{
	(void)state;
	fake.endless = true;
	fake_open();
	wait_for_rounds(deliverer);
}

/* The same for completions. */
static void *completer(void *arg)
{
	unsigned *ended = arg;
	uint64_t end = vb_clock_ns() + FAKE_LONG_NS;

	while (*ended < ROUNDS && vb_clock_ns() < end) {
		usleep(*ended % 5 * 40);
		pthread_mutex_lock(&fake.f->engine);
		if (fake.flying > 0) {
			fake_end_held(0, 0, true);
			++*ended;
		}
		pthread_mutex_unlock(&fake.f->engine);
	}
	return NULL;
}

static void completions_wake(void **state)
{
	uint64_t old;
	unsigned ended = 0;
	pthread_t thread;
	struct vb_ep *e;

	(void)state;
	fake.endless = true;
	fake_open();
	e = fake_ep(0);
	assert_int_equal(pthread_create(&thread, NULL, completer, &ended), 0);
	for (uint64_t i = 0; i < ROUNDS; i++) {
		assert_int_equal(vb_faa64(e, THEIRS, 1, &old), 0);
		assert_int_equal(old, i);
	}
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(ended, ROUNDS);
	assert_int_equal(fake_count(&fake.naps_over), 0);
	vb_ep_close(e);
}

/* What the transport's descriptor announces wakes the poller. */
static uint64_t on_wire, taken;

static bool take_from_wire(void)
{
	bool any = false;

	for (; taken < __atomic_load_n(&on_wire, __ATOMIC_SEQ_CST); taken++) {
		struct vb_msg m = {.subject = taken};

		any = net_deliver(fake.f, vb_peer_client(target->self), &m) == 0;
	}
	return any;
}

static void *wire(void *arg)
{
	(void)arg;
	for (uint64_t i = 0; i < ROUNDS; i++) {
		until_count(&asked_for, i + 1);
		usleep(i % 5 * 40);
		__atomic_add_fetch(&on_wire, 1, __ATOMIC_SEQ_CST);
		fake_signal();
	}
	return NULL;
}

static void descriptor_wakes(void **state)
{
	(void)state;
	fake.endless = true;
	on_wire = taken = 0;
	fake.on_progress = take_from_wire;
	fake_open();
	wait_for_rounds(wire);
}

/* Two threads of one process: messages between their endpoints, and each wakes the other. */
static struct vb_ep *volatile pair[2];

static void ping_pong(unsigned me)
{
	struct vb_ep *e = __atomic_load_n(&pair[me], __ATOMIC_SEQ_CST);
	vb_peer other = __atomic_load_n(&pair[!me], __ATOMIC_SEQ_CST)->self;
	struct vb_msg m = {.len = 1}, got;

	for (uint64_t i = 0; i < ROUNDS; i++) {
		m.subject = i;
		if (me == 0)
			assert_int_equal(vb_send_wait(e, other, &m), 0);
		while (vb_ep_recv(e, &got) != 0)
			assert_int_equal(vb_ep_wait(e, VB_FOREVER), 0);
		assert_int_equal(got.subject, i);
		if (me == 1)
			assert_int_equal(vb_send_wait(e, other, &m), 0);
	}
}

static void *ponger(void *arg)
{
	uint64_t *ready = arg;
	struct vb_ep *e = fake_ep(3);

	__atomic_store_n(&pair[1], e, __ATOMIC_SEQ_CST);
	__atomic_store_n(ready, 1, __ATOMIC_SEQ_CST);
	ping_pong(1);
	vb_ep_close(e);
	vb_sched_destroy(vb_sched_self());
	return NULL;
}

static void threads_wake_each_other(void **state)
{
	uint64_t ready = 0;
	pthread_t thread;
	struct vb_ep *e;

	(void)state;
	fake.endless = true;
	fake_open();
	e = fake_ep(0);
	__atomic_store_n(&pair[0], e, __ATOMIC_SEQ_CST);
	assert_int_equal(pthread_create(&thread, NULL, ponger, &ready), 0);
	until_count(&ready, 1);
	ping_pong(0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(fake_count(&fake.naps_over), 0);
	vb_ep_close(e);
}

/* A death wakes those who wait for the dead. */
static void *undertaker(void *arg)
{
	(void)arg;
	until_count(&fake.naps, 1);
	fake_dies(1);
	return NULL;
}

static void death_wakes(void **state)
{
	uint64_t old;
	pthread_t thread;
	struct vb_ep *e;

	(void)state;
	fake.endless = true;
	fake_open();
	e = fake_ep(0);
	assert_int_equal(pthread_create(&thread, NULL, undertaker, NULL), 0);
	assert_int_equal(vb_faa64(e, THEIRS, 1, &old), -VB_EUNKNOWN);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(fake_count(&fake.naps_over), 0);
	vb_ep_close(e);
}

/* The same in every moment of a wait: the news comes during pass number `bad_pass` and is found by
 * the one behind it, be it a look or the one that arms the descriptor, or by none before the
 * sleep. */
static unsigned bad_pass, passes_seen, passes_of_a_wait;

static bool dies_in_pass(void)
{
	if (++passes_seen == bad_pass) {
		/* As the cluster's thread does, but for the engine, which is held here. */
		__atomic_store_n(&fake.f->core->host[1].gone, true, __ATOMIC_SEQ_CST);
		__atomic_store_n(&fake.f->core->news, true, __ATOMIC_SEQ_CST);
	}
	return false;
}

static void dies_in_sleep(void)
{
	passes_of_a_wait = passes_seen;
	fake_dies(1);
}

static void open_for_a_wait(bool (*on_progress)(void), void (*on_nap)(void))
{
	fake_reset(NULL);
	fake.endless = true;
	fake.local_hosts = 64; /* a few passes, and not as many as there is time for */
	fake.on_nap = on_nap;
	fake_open();
	fake.f->core->cores = 2;
	target = fake_ep(0);
	passes_seen = 0;
	fake.on_progress = on_progress;
}

static void close_after_it(void)
{
	vb_ep_close(target);
	vb_fabric_close(fake.fabric);
	fake.fabric = NULL;
}

static void wait_for_dead(void (*on_nap)(void))
{
	uint64_t old;

	open_for_a_wait(dies_in_pass, on_nap);
	assert_int_equal(vb_faa64(target, THEIRS, 1, &old), -VB_EUNKNOWN);
	close_after_it();
}

static void in_any_pass(void (*wait)(void (*on_nap)(void)), void (*in_sleep)(void))
{
	bad_pass = 0;
	wait(in_sleep);
	assert_int_equal(fake_count(&fake.naps), 1);
	assert_int_equal(fake_count(&fake.naps_over), 0);
	assert_true(passes_of_a_wait > 1);
	for (bad_pass = 1; bad_pass <= passes_of_a_wait; bad_pass++) {
		wait(NULL);
		assert_int_equal(fake_count(&fake.naps), 0);
	}
}

static void death_in_any_pass(void **state)
{
	(void)state;
	in_any_pass(wait_for_dead, dies_in_sleep);
}

/* And of what another thread brings in such a moment: it has the engine, which here is held for it. */
static void *bring_letter(void *arg)
{
	const struct vb_msg m = {.subject = 7};

	(void)arg;
	assert_int_equal(net_deliver(fake.f, vb_peer_client(target->self), &m), 0);
	return NULL;
}

static void *bring_completion(void *arg)
{
	(void)arg;
	fake_end_held(0, 0, true);
	return NULL;
}

static void *(*brings)(void *arg);

static void bring(void)
{
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, brings, NULL), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

static bool brought_in_pass(void)
{
	if (++passes_seen == bad_pass)
		bring();
	return false;
}

static void brought_in_sleep(void)
{
	passes_of_a_wait = passes_seen;
	pthread_mutex_lock(&fake.f->engine);
	bring();
	pthread_mutex_unlock(&fake.f->engine);
}

static void wait_for_letter(void (*on_nap)(void))
{
	struct vb_msg m;

	brings = bring_letter;
	open_for_a_wait(brought_in_pass, on_nap);
	while (vb_ep_recv(target, &m) != 0)
		assert_int_equal(vb_ep_wait(target, VB_FOREVER), 0);
	assert_int_equal(m.subject, 7);
	close_after_it();
}

static void letter_in_any_pass(void **state)
{
	(void)state;
	in_any_pass(wait_for_letter, brought_in_sleep);
}

static void wait_for_completion(void (*on_nap)(void))
{
	uint64_t old;

	brings = bring_completion;
	open_for_a_wait(brought_in_pass, on_nap);
	assert_int_equal(vb_faa64(target, THEIRS, 1, &old), 0);
	close_after_it();
}

static void completion_in_any_pass(void **state)
{
	(void)state;
	in_any_pass(wait_for_completion, brought_in_sleep);
}

/* ---- spinning and sleeping ---- */

static void sleep_ms(unsigned ms)
{
	assert_int_equal(vb_task_sleep_until(vb_clock_ns() + ms * 1000000ull), 0);
}

/* With a core to itself a waiter spins and looks; it does not give the core away, and then it
 * sleeps. */
static void spins_then_sleeps(void **state)
{
	struct vb_fabric_stats before, after;
	unsigned arms;

	(void)state;
	fake_open();
	fake.f->core->cores = 2;
	before = fake_stats();
	arms = fake.arms;
	sleep_ms(50);
	after = fake_stats();
	assert_int_equal(fake_count(&fake.yields), 0);
	assert_true(after.sleeps > before.sleeps);
	assert_int_equal(after.sleeps, fake_count(&fake.naps));
	/* Each sleep was the poller's, who arms the descriptor first. */
	assert_int_equal(fake.arms - arms, after.sleeps - before.sleeps);
	/* It looks before, while it spins and after. */
	assert_true(fake.passes > 2 * (after.sleeps - before.sleeps));
}

/* More processes may poll than there are cores: nobody spins, the core is given away and then
 * left. */
static void *deliver_after_naps(void *arg)
{
	struct vb_msg m = {.len = 1};

	(void)arg;
	until_count(&fake.naps, 5);
	deliver(&m);
	return NULL;
}

static void crowded_gives_way(void **state)
{
	pthread_t thread;

	(void)state;
	fake.local_hosts = 64;
	fake_open();
	fake.f->core->cores = 2;
	target = fake_ep(0);
	assert_int_equal(pthread_create(&thread, NULL, deliver_after_naps, NULL), 0);
	assert_int_equal(vb_ep_wait(target, VB_FOREVER), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(fake_count(&fake.yields) > 0);
	/* A few times for each sleep, not for as long as a spin. */
	assert_true(fake_count(&fake.yields) <= 4 * (fake_count(&fake.naps) + 2));
	assert_true(fake.passes <= 8 * (fake_count(&fake.naps) + 2));
	vb_ep_close(target);
}

/* Where the transport knows what waking costs: however many may poll, the core is spun on for that long
 * and never given away; and once it was taken away during a spin, the next waits sleep at once. */
static void spins_by_wake(void **state)
{
	struct net_env *env;
	pthread_t thread;
	uint32_t passes;
	uint64_t end;

	(void)state;
	fake.local_hosts = 64;
	fake_open();
	fake.f->core->cores = 2;
	fake.f->spin_ns = 200000;
	env = vb_container_of(fake.f->core->threads.next, struct net_thread, in_core)->env;
	/* As if somebody had just had the core. */
	env->taken_until_ns = VB_FOREVER;
	target = fake_ep(0);
	passes = fake.passes;
	assert_int_equal(pthread_create(&thread, NULL, deliver_after_naps, NULL), 0);
	assert_int_equal(vb_ep_wait(target, VB_FOREVER), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	/* One look before, one that arms and one after each sleep. */
	assert_true(fake.passes - passes <= 8 * (fake_count(&fake.naps) + 2));
	/* Unless somebody has it this very moment. */
	end = vb_clock_ns() + FAKE_LONG_NS;
	do {
		env->taken_until_ns = 0;
		env->spin_ns = 200000;
		passes = fake.passes;
		sleep_ms(1);
	} while (fake.passes - passes < 20 && vb_clock_ns() < end);
	assert_true(fake.passes - passes >= 20);
	assert_int_equal(fake_count(&fake.yields), 0);
	vb_ep_close(target);
}

/* Somebody who computes on this core: he and we have it in turns. */
static void *computes(void *arg)
{
	const bool *stop = arg;

	while (!__atomic_load_n(stop, __ATOMIC_RELAXED))
		vb_cpu_relax();
	return NULL;
}

static pthread_t on_this_core(void *(*run)(void *arg), void *arg)
{
	int core = sched_getcpu();
	pthread_attr_t attr;
	pthread_t thread;
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET((unsigned)core, &one);
	assert_int_equal(pthread_setaffinity_np(pthread_self(), sizeof(one), &one), 0);
	assert_int_equal(pthread_attr_init(&attr), 0);
	assert_int_equal(pthread_attr_setaffinity_np(&attr, sizeof(one), &one), 0);
	assert_int_equal(pthread_create(&thread, &attr, run, arg), 0);
	pthread_attr_destroy(&attr);
	return thread;
}

/* Whose core is taken while it spins is calm for a moment, and for longer if it is taken again and again. */
static void calm_grows(void **state)
{
	uint64_t end = vb_clock_ns() + FAKE_LONG_NS, calm_ns = 0;
	bool stop = false;
	struct net_env *env;
	pthread_t thread;
	cpu_set_t all;

	(void)state;
	assert_int_equal(pthread_getaffinity_np(pthread_self(), sizeof(all), &all), 0);
	fake.endless = false;
	fake_open();
	fake.f->spin_ns = 20000000;
	target = fake_ep(0);
	env = vb_container_of(fake.f->core->threads.next, struct net_thread, in_core)->env;
	assert_int_equal(env->calm_ns, 0);
	thread = on_this_core(computes, &stop);
	while (calm_ns < 2000000 && vb_clock_ns() < end) {
		env->spin_ns = 20000000; /* a turn of his and more */
		assert_int_equal(vb_ep_sleep(target, 5000000), 0);
		if (env->calm_ns == calm_ns)
			continue;
		/* Or it was a while ago, and begins anew. */
		assert_true(env->calm_ns == 500000 || env->calm_ns == 2 * calm_ns);
		assert_true(env->taken_until_ns > vb_clock_ns() - 1000000000);
		calm_ns = env->calm_ns;
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(pthread_setaffinity_np(pthread_self(), sizeof(all), &all), 0);
	assert_true(calm_ns >= 2000000);
	vb_ep_close(target);
}

static void wake_is_measured(void **state)
{
	uint64_t begin = vb_clock_ns(), ns = net_spin_of_wake();

	(void)state;
	assert_true(ns >= 20000 && ns <= 400000);
	assert_true(vb_clock_ns() - begin < FAKE_LONG_NS);
}

/* A descriptor that has something to be seen is not slept on, and that does not count as a
 * sleep. */
static void busy_descriptor(void **state)
{
	(void)state;
	fake_open();
	fake.f->core->cores = 2;
	fake.busy = true;
	sleep_ms(5);
	assert_true(fake.arms > 0);
	assert_int_equal(fake_count(&fake.naps), 0);
	assert_int_equal(fake_stats().sleeps, 0);
	fake.busy = false;
	sleep_ms(5);
	assert_true(fake_count(&fake.naps) > 0);
	assert_int_equal(fake_stats().sleeps, fake_count(&fake.naps));
}

/* Without a descriptor the waiter sleeps on its bell alone, and looks after each nap. */
static void no_descriptor(void **state)
{
	(void)state;
	fake.no_fd = true;
	fake_open();
	sleep_ms(30);
	assert_true(fake_count(&fake.naps) > 0);
	assert_true(fake.passes >= fake_count(&fake.naps));
}

/* Timed waits end on time although a nap would be longer. */
static void timers_hold(void **state)
{
	uint64_t begin;

	(void)state;
	fake_open();
	for (unsigned i = 0; i < 20; i++) {
		begin = vb_clock_ns();
		assert_int_equal(vb_task_sleep_until(begin + 300000), 0);
		assert_true(vb_clock_ns() - begin >= 300000);
		assert_true(vb_clock_ns() - begin < FAKE_LONG_NS / 10);
	}
}

static void spin_learns(void **state)
{
	uint64_t ns = 50000;

	(void)state;
	for (unsigned i = 0; i < 20; i++)
		vb_spin_learn(&ns, 50000, UINT64_MAX);
	assert_int_equal(ns, VB_SPIN_LEAST_NS);
	vb_spin_learn(&ns, 50000, 1000);
	assert_int_equal(ns, 2 * VB_SPIN_LEAST_NS);
	for (unsigned i = 0; i < 20; i++)
		vb_spin_learn(&ns, 50000, 2 * 50000);
	assert_int_equal(ns, 50000);
	vb_spin_learn(&ns, 50000, 2 * 50000 + 1);
	assert_int_equal(ns, 12500);
}

/* ---- what a helper is told ---- */

static void *holder(void *arg)
{
	uint64_t *step = arg;

	pthread_mutex_lock(&fake.f->engine);
	__atomic_store_n(step, 1, __ATOMIC_SEQ_CST);
	until_count(step, 2);
	pthread_mutex_unlock(&fake.f->engine);
	return NULL;
}

static void passes(void **state)
{
	uint64_t before, step = 0;
	unsigned seen;
	pthread_t thread;

	(void)state;
	fake_open();
	before = vb_clock_ns();
	seen = fake.passes;
	assert_true(net_try_pass(fake.f));
	assert_int_equal(fake.passes, seen + 1);
	assert_in_range(net_last_pass_ns(fake.f), before, vb_clock_ns());
	/* A pass does all: what waits for its doorbell, and the news. */
	pthread_mutex_lock(&fake.f->engine);
	fake.f->core->unflushed = true;
	pthread_mutex_unlock(&fake.f->engine);
	seen = fake.flushes;
	fake_dies(2);
	assert_true(net_try_pass(fake.f));
	assert_int_equal(fake.flushes, seen + 1);
	assert_int_equal(fake.told_gone, 1 << 2);
	/* Told once. */
	fake_dies(2);
	assert_true(net_try_pass(fake.f));
	assert_int_equal(fake.told_gone, 1 << 2);
	assert_int_equal(fake.flushes, seen + 1);
	/* Somebody else is at it. */
	before = net_last_pass_ns(fake.f);
	assert_int_equal(pthread_create(&thread, NULL, holder, &step), 0);
	until_count(&step, 1);
	assert_false(net_try_pass(fake.f));
	assert_int_equal(net_last_pass_ns(fake.f), before);
	__atomic_store_n(&step, 2, __ATOMIC_SEQ_CST);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

/* A helper: sees the poller asleep, waits for the process to wake, sees it awake. */
static uint64_t helper_at; /* atomic */

static void *helper(void *arg)
{
	uint64_t end = vb_clock_ns() + FAKE_LONG_NS;

	(void)arg;
	while (!net_poller_sleeps(fake.f) && vb_clock_ns() < end)
		usleep(50);
	__atomic_store_n(&helper_at, 1, __ATOMIC_SEQ_CST);
	net_wait_awake(fake.f);
	__atomic_store_n(&helper_at, 2, __ATOMIC_SEQ_CST);
	return NULL;
}

static void *deliver_late(void *arg)
{
	struct vb_msg m = {.len = 1};

	(void)arg;
	until_count(&helper_at, 1);
	usleep(2000);
	deliver(&m);
	return NULL;
}

static void helper_waits(void **state)
{
	pthread_t a, b;

	(void)state;
	fake.endless = true;
	fake_open();
	target = fake_ep(0);
	__atomic_store_n(&helper_at, 0, __ATOMIC_SEQ_CST);
	assert_false(net_poller_sleeps(fake.f));
	net_wait_awake(fake.f); /* this thread is: returns at once */
	assert_int_equal(pthread_create(&a, NULL, helper, NULL), 0);
	assert_int_equal(pthread_create(&b, NULL, deliver_late, NULL), 0);
	assert_int_equal(vb_ep_wait(target, VB_FOREVER), 0);
	assert_false(net_poller_sleeps(fake.f));
	until_count(&helper_at, 2);
	assert_int_equal(pthread_join(a, NULL), 0);
	assert_int_equal(pthread_join(b, NULL), 0);
	assert_int_equal(fake_count(&fake.naps_over), 0);
	vb_ep_close(target);
}

/* Closing ends the wait of a helper, in whatever moment of it: one that is about to sleep as well
 * as one that sleeps.  The transport's close joins it, as ucx's does. */
static pthread_t closing_helper;
static uint64_t closing_stop;

static void *waits_for_ever(void *arg)
{
	(void)arg;
	while (!__atomic_load_n(&closing_stop, __ATOMIC_SEQ_CST))
		net_wait_awake(fake.f);
	return NULL;
}

static void joining_close(struct net_fabric *f)
{
	__atomic_store_n(&closing_stop, 1, __ATOMIC_SEQ_CST);
	assert_int_equal(pthread_join(closing_helper, NULL), 0);
	fake_transport.close(f);
}

static void closing_ends_helper(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct net_transport t = fake_transport;

		t.close = joining_close;
		__atomic_store_n(&closing_stop, 0, __ATOMIC_SEQ_CST);
		fake_open();
		fake.f->t = &t;
		assert_int_equal(pthread_create(&closing_helper, NULL, waits_for_ever, NULL), 0);
		if (i % 3 == 0)
			usleep(i % 7 * 20);
		vb_fabric_close(fake.fabric);
		fake.fabric = NULL;
	}
	assert_int_equal(fake.closed, ROUNDS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FAKE(messages_wake),
		FAKE(completions_wake),
		FAKE(descriptor_wakes),
		FAKE(threads_wake_each_other),
		FAKE(death_wakes),
		FAKE(death_in_any_pass),
		FAKE(letter_in_any_pass),
		FAKE(completion_in_any_pass),
		FAKE(spins_then_sleeps),
		FAKE(crowded_gives_way),
		FAKE(spins_by_wake),
		FAKE(calm_grows),
		cmocka_unit_test(wake_is_measured),
		FAKE(busy_descriptor),
		FAKE(no_descriptor),
		FAKE(timers_hold),
		FAKE(spin_learns),
		FAKE(passes),
		FAKE(helper_waits),
		FAKE(closing_ends_helper),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
