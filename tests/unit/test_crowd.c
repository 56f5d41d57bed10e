/* SPDX-License-Identifier: Apache-2.0 */
/*
 * More senders than a receiver's ring has room for, on `shm`: one of a thread's waits for all of them, what is said is
 * said seldom, and hundreds of clients of a host come to their turns.
 */
#include <semaphore.h>
#include <stdlib.h>

#include "fabric/fabric.h"
#include "host_world.h"
#include "lock/handover.h"
#include "lock/lock.h"
#include "lock/served.h"

#define RING    16
#define SENDERS 100
#define CLIENTS 200
/* Of 1, 2, 4, ... refusals so many can be said before the test's time is over. */
#define LINES_MOST 40

/* ---- what is counted ---- */

static unsigned yields; /* this thread's */
static pthread_t counted;
int __real_sched_yield(void);
int __wrap_sched_yield(void);

int __wrap_sched_yield(void)
{
	if (pthread_equal(pthread_self(), counted))
		yields++;
	return __real_sched_yield();
}

static struct {
	unsigned full, other;
} lines;

static void hear(void *user, const struct vb_log_message *m)
{
	bool full = strstr(m->text, "was not sent") != NULL && strstr(m->text, "option ring");

	(void)user;
	__atomic_fetch_add(full ? &lines.full : &lines.other, 1, __ATOMIC_RELAXED);
}

static void listen_in(bool on)
{
	if (on)
		memset(&lines, 0, sizeof(lines));
	assert_int_equal(vb_log_set(on ? hear : NULL, NULL), 0);
}

/* ---- a receiver that stands still ---- */

struct still {
	struct vb_fabric *f;
	struct vb_ep *ep;
	sem_t open, take, taken, close;
};

static void *stands_still(void *arg)
{
	struct still *s = arg;
	struct vb_msg m;

	if (vb_ep_open(s->f, 0, &s->ep) != 0)
		abort();
	sem_post(&s->open);
	sem_wait(&s->take);
	if (vb_ep_recv(s->ep, &m) != 0)
		abort();
	sem_post(&s->taken);
	sem_wait(&s->close);
	vb_ep_close(s->ep);
	return NULL;
}

static pthread_t still_begin(struct still *s, struct vb_fabric *f)
{
	pthread_t thread;

	s->f = f;
	sem_init(&s->open, 0, 0);
	sem_init(&s->take, 0, 0);
	sem_init(&s->taken, 0, 0);
	sem_init(&s->close, 0, 0);
	assert_int_equal(pthread_create(&thread, NULL, stands_still, s), 0);
	sem_wait(&s->open);
	return thread;
}

static int send_to(struct vb_ep *ep, const struct still *s)
{
	return vb_send_wait(ep, s->ep->self, &(struct vb_msg){.tag = 9});
}

static struct vb_fabric *small_rings(void)
{
	const struct vb_fabric_params fp = {
		.fabric = "shm", .node_bytes = 1 << 20, .options = "ring=16"};
	struct vb_fabric *f;

	assert_int_equal(vb_fabric_open(&fp, &f), 0);
	return f;
}

static void test_one_waits(void **state)
{
	struct vb_fabric *f = small_rings();
	struct vb_ep *ep[SENDERS];
	struct still s, other;
	pthread_t thread = still_begin(&s, f), second = still_begin(&other, f);
	unsigned before;

	(void)state;
	counted = pthread_self();
	listen_in(true);
	for (unsigned i = 0; i < SENDERS; i++)
		assert_int_equal(vb_ep_open(f, 0, &ep[i]), 0);
	for (unsigned i = 0; i < RING; i++) {
		assert_int_equal(send_to(ep[i], &s), 0);
		assert_int_equal(send_to(ep[i], &other), 0);
	}
	before = yields;
	assert_int_equal(send_to(ep[0], &s), -EAGAIN);
	assert_true(yields > before);
	/* In vain, for all of its thread. */
	before = yields;
	for (unsigned i = 0; i < SENDERS; i++)
		assert_int_equal(send_to(ep[i], &s), -EAGAIN);
	assert_int_equal(yields, before);
	assert_in_range(lines.full, 1, 7);
	assert_int_equal(lines.other, 0);
	/* Whoever is another has to be waited for. */
	assert_int_equal(send_to(ep[1], &other), -EAGAIN);
	assert_true(yields > before);
	/* Who asks the two in turn waits for neither again. */
	before = yields;
	for (unsigned i = 0; i < SENDERS; i++) {
		assert_int_equal(send_to(ep[i], &s), -EAGAIN);
		assert_int_equal(send_to(ep[i], &other), -EAGAIN);
	}
	assert_int_equal(yields, before);
	/* When something has been taken out there is hope again. */
	sem_post(&s.take);
	sem_wait(&s.taken);
	assert_int_equal(send_to(ep[2], &s), 0);
	before = yields;
	assert_int_equal(send_to(ep[3], &s), -EAGAIN);
	assert_true(yields > before);
	listen_in(false);

	for (unsigned i = 0; i < SENDERS; i++)
		vb_ep_close(ep[i]);
	sem_post(&other.take);
	sem_post(&s.close);
	sem_post(&other.close);
	pthread_join(thread, NULL);
	pthread_join(second, NULL);
	assert_int_equal(vb_fabric_close(f), 0);
}

/* A receiver that dies with its ring full is found dead, also by those who do not wait for it. */
static void test_dies(void **state)
{
	uint64_t until = vb_clock_ns() + PATIENCE_NS;
	struct vb_fabric *f = small_rings();
	struct vb_ep *ep, *child_ep;
	struct vb_msg m;
	pid_t pid;
	int err;

	(void)state;
	listen_in(true);
	assert_int_equal(vb_ep_open(f, 0, &ep), 0);
	pid = fork_child();
	assert_true(pid >= 0);
	if (pid == 0) {
		if (vb_ep_open(f, 0, &child_ep) == 0)
			(void)vb_send_wait(child_ep, ep->self, &(struct vb_msg){.tag = 9});
		for (;;)
			pause();
	}
	while (vb_ep_recv(ep, &m) != 0)
		assert_int_equal(vb_ep_wait(ep, until), 0);
	do
		err = vb_send_wait(ep, m.from, &(struct vb_msg){.tag = 9});
	while (err == 0);
	assert_int_equal(err, -EAGAIN);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	do
		err = vb_send_wait(ep, m.from, &(struct vb_msg){.tag = 9});
	while (err == -EAGAIN && vb_clock_ns() < until);
	assert_int_equal(err, -VB_EPEERGONE);
	listen_in(false);
	vb_ep_close(ep);
	assert_int_equal(vb_fabric_close(f), 0);
}

/* ---- a release's message is not given up at once ---- */

#define STANDS_NS (5 * MS)
static uint64_t takes_at_ns;
static bool has_taken;

/* Its receiver, which takes nothing out for a while. */
static void takes_late(void *arg)
{
	struct vb_ep *ep = arg;
	struct vb_msg m;

	assert_int_equal(vb_ep_sleep_until(ep, takes_at_ns), 0);
	for (unsigned i = 0; i < RING; i++)
		assert_int_equal(vb_ep_recv(ep, &m), 0);
	has_taken = true;
}

static void fill(struct vb_ep *from, struct vb_ep *to)
{
	struct vb_task *task;

	for (unsigned i = 0; i < RING; i++)
		assert_int_equal(vb_send_wait(from, to->self, &(struct vb_msg){.tag = 9}), 0);
	assert_int_equal(vb_send_wait(from, to->self, &(struct vb_msg){.tag = 9}), -EAGAIN);
	has_taken = false;
	takes_at_ns = vb_ep_now(to) + STANDS_NS;
	assert_int_equal(vb_task_spawn(to->sched, takes_late, to, NULL, &task), 0);
}

static void until_taken(struct vb_ep *ep)
{
	while (!has_taken)
		assert_int_equal(vb_ep_sleep(ep, MS), 0);
}

static void open_locks(struct vb_fabric *f, const char *lock, struct vb_lock_space **space,
		       struct vb_lock_server **server, struct vb_lock_client **holder,
		       struct vb_lock_client **waiter)
{
	const struct vb_lock_space_params sp = {
		.lock = lock, .name = lock, .locks = LOCKS, .lease_ns = LEASE_NS};

	assert_int_equal(vb_lock_space_open(f, &sp, space), 0);
	if (server != NULL)
		assert_int_equal(vb_lock_server_thread_start(*space, 0, server), 0);
	assert_int_equal(vb_lock_client_open(*space, 0, holder), 0);
	assert_int_equal(vb_lock_client_open(*space, 0, waiter), 0);
}

static void test_queue_is_whole(void **state)
{
	struct vb_fabric *f = small_rings();
	struct vb_lock_client *holder, *waiter;
	struct vb_claim claim = {.lock = 1};
	struct vb_msg m = {.tag = 9};
	struct vb_lock_space *space;

	(void)state;
	open_locks(f, "mcs", &space, NULL, &holder, &waiter);
	fill(waiter->ep, holder->ep);
	assert_int_equal(
		vb_handover_send(waiter, &claim, holder->ep->self, &m, NULL, NULL, VB_FOREVER), 0);
	until_taken(waiter->ep);
	vb_lock_client_close(holder);
	vb_lock_client_close(waiter);
	assert_int_equal(vb_lock_space_close(space), 0);
	assert_int_equal(vb_fabric_close(f), 0);
}

static void test_holder_is_told(void **state)
{
	struct vb_fabric *f = small_rings();
	struct vb_lock_client *holder, *waiter;
	struct vb_lock_server *server;
	struct vb_lock_space *space;
	struct vb_grant held, g;

	(void)state;
	open_locks(f, "shiftlock", &space, &server, &holder, &waiter);
	assert_int_equal(vb_lock_acquire(holder, 1, VB_EXCLUSIVE, PATIENCE_NS, &held), 0);
	fill(waiter->ep, holder->ep);
	assert_int_equal(vb_lock_acquire(waiter, 1, VB_EXCLUSIVE, 1, &g), -ETIMEDOUT);
	assert_int_equal(waiter->untold, 0);
	until_taken(waiter->ep);
	assert_int_equal(vb_lock_release(holder, &held), 0);
	assert_int_equal(vb_lock_acquire(waiter, 1, VB_EXCLUSIVE, PATIENCE_NS, &g), 0);
	assert_int_equal(vb_lock_release(waiter, &g), 0);
	vb_lock_client_close(holder);
	vb_lock_client_close(waiter);
	vb_lock_server_stop(server);
	assert_int_equal(vb_lock_space_close(space), 0);
	assert_int_equal(vb_fabric_close(f), 0);
}

/* ---- a release finds the server's ring full ---- */

#define ASKS_NS (60 * MS)

/* How often it is tried in so long; the server takes nothing out. */
static uint64_t tried(struct vb_lock_client *me, bool release)
{
	struct vb_ask ask = {.lock = 1, .number = ++me->mail.next_request};
	uint64_t before = me->retries;
	struct vb_answer answer;

	assert_int_equal(release ? vb_ask_release(me, 1, &ask, ASKS_NS, &answer)
				 : vb_ask(me, 1, &ask, VB_FOREVER, ASKS_NS, &answer),
			 -VB_EUNKNOWN);
	return me->retries - before;
}

/* A machine that has no time for it tries less often than it may: then it is looked at again. */
static void test_release_is_sooner(void **state)
{
	uint64_t until = vb_clock_ns() + PATIENCE_NS, most = 0, n;
	struct vb_fabric *f = small_rings();
	struct vb_lock_client *me, *other;
	struct vb_lock_server *server;
	struct vb_lock_space *space;
	struct vb_grant held;
	pthread_t thread;
	struct still s;
	vb_peer real;

	(void)state;
	open_locks(f, "rpc", &space, &server, &me, &other);
	assert_int_equal(vb_lock_acquire(me, 1, VB_EXCLUSIVE, PATIENCE_NS, &held), 0);
	thread = still_begin(&s, f);
	real = space->server_cache[0];
	space->server_cache[0] = s.ep->self;
	listen_in(true);
	for (unsigned i = 0; i < RING; i++)
		assert_int_equal(send_to(other->ep, &s), 0);
	/* 0.1 ms, 0.2, 0.4, 0.8, 1.6, and then 3.2 each. */
	assert_in_range(tried(me, false), 0, 23);
	/* 0.1 ms, 0.2, and then 0.4 each. */
	while (most <= 23 && vb_clock_ns() < until) {
		n = tried(me, true);
		most = n > most ? n : most;
	}
	assert_in_range(most, 24, 152);
	listen_in(false);
	space->server_cache[0] = real;
	assert_int_equal(vb_lock_release(me, &held), 0);
	sem_post(&s.take);
	sem_post(&s.close);
	pthread_join(thread, NULL);
	vb_lock_client_close(me);
	vb_lock_client_close(other);
	vb_lock_server_stop(server);
	assert_int_equal(vb_lock_space_close(space), 0);
	assert_int_equal(vb_fabric_close(f), 0);
}

/* ---- who waits for long asks seldom ---- */

static struct {
	struct vb_fabric *fabric;
	struct vb_lock_space *space;
	struct vb_lock_server *server;
} c;

static void open_crowd(void)
{
	const struct vb_fabric_params fp = {.fabric = "shm", .options = "ring=32"};
	const struct vb_lock_space_params sp = {
		.lock = "rpc", .locks = LOCKS, .lease_ns = LEASE_NS, .options = "ask_for=60s"};

	assert_int_equal(vb_fabric_open(&fp, &c.fabric), 0);
	assert_int_equal(vb_lock_space_open(c.fabric, &sp, &c.space), 0);
	assert_int_equal(vb_lock_server_thread_start(c.space, 0, &c.server), 0);
}

static void close_crowd(void)
{
	vb_lock_server_stop(c.server);
	assert_int_equal(vb_lock_space_close(c.space), 0);
	assert_int_equal(vb_fabric_close(c.fabric), 0);
}

#define LONG_NS (500 * MS)

static void test_asks_seldom(void **state)
{
	struct vb_lock_client *holder, *waiter;
	struct vb_grant held, g;

	(void)state;
	open_crowd();
	assert_int_equal(vb_lock_client_open(c.space, 0, &holder), 0);
	assert_int_equal(vb_lock_client_open(c.space, 0, &waiter), 0);
	assert_int_equal(vb_lock_acquire(holder, 3, VB_EXCLUSIVE, PATIENCE_NS, &held), 0);
	assert_int_equal(vb_lock_acquire(waiter, 3, VB_EXCLUSIVE, LONG_NS, &g), -ETIMEDOUT);
	/* Some hundred in the beginning, and then by an eighth longer each time, up to 10 ms. */
	assert_in_range(waiter->retries, 1, 3000);
	assert_int_equal(vb_lock_release(holder, &held), 0);
	assert_int_equal(vb_lock_acquire(waiter, 3, VB_EXCLUSIVE, PATIENCE_NS, &g), 0);
	assert_int_equal(vb_lock_release(waiter, &g), 0);
	vb_lock_client_close(holder);
	vb_lock_client_close(waiter);
	close_crowd();
}

/* ---- hundreds on a host ---- */

static struct one {
	struct vb_lock_client *client;
	struct vb_grant grant;
	bool holds;
} one[CLIENTS];

static void test_all_get_it(void **state)
{
	unsigned granted = 0, given_back = 0;
	struct vb_completion done;
	struct vb_host *host;
	struct vb_ring *ring;

	(void)state;
	open_crowd();
	assert_int_equal(vb_host_open(NULL, &host), 0);
	assert_int_equal(vb_host_ring_open(host, NULL, &ring), 0);
	listen_in(true);
	for (unsigned i = 0; i < CLIENTS; i++)
		assert_int_equal(vb_host_client_open(host, c.space, 0, &one[i].client), 0);
	for (unsigned i = 0; i < CLIENTS; i++)
		assert_int_equal(vb_lock_acquire_start(ring, one[i].client, 0, VB_EXCLUSIVE,
						       VB_FOREVER_NS, &one[i].grant, &one[i], NULL),
				 VB_STARTED);
	while (given_back < CLIENTS) {
		struct one *o;

		assert_int_equal(vb_ring_wait(ring, PATIENCE_NS), 0);
		assert_int_equal(vb_ring_reap(ring, &done, 1), 1);
		o = done.tag;
		assert_int_equal(done.result, 0);
		if (o->holds) {
			given_back++;
			continue;
		}
		o->holds = true;
		granted++;
		assert_int_equal(vb_lock_release_start(ring, o->client, &o->grant, o, NULL),
				 VB_STARTED);
	}
	assert_int_equal(granted, CLIENTS);
	assert_in_range(lines.full, 0, LINES_MOST);
	assert_int_equal(lines.other, 0);
	listen_in(false);
	for (unsigned i = 0; i < CLIENTS; i++)
		vb_lock_client_close(one[i].client);
	assert_int_equal(vb_ring_close(ring), 0);
	assert_int_equal(vb_host_close(host), 0);
	close_crowd();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_waits),         cmocka_unit_test(test_dies),
		cmocka_unit_test(test_queue_is_whole),    cmocka_unit_test(test_holder_is_told),
		cmocka_unit_test(test_asks_seldom),       cmocka_unit_test(test_all_get_it),
		cmocka_unit_test(test_release_is_sooner),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
