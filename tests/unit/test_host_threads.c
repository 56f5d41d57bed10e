/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that any thread may call: verbena/host.h, by many threads at a time. */
#include <verbena/host.h>

#include "base/log.h"
#include "host_world.h"

#define THREADS  6u
#define SESSIONS 8u
#define CYCLES   25u

/* How many are inside each lock, and what only they touch. */
static struct {
	uint32_t inside; /* atomic */
	uint64_t count;  /* the holders' */
} of[LOCKS];

static void enter(uint64_t lock)
{
	assert_int_equal(__atomic_add_fetch(&of[lock].inside, 1, __ATOMIC_RELAXED), 1);
	of[lock].count++;
}

static void leave(uint64_t lock)
{
	assert_int_equal(__atomic_sub_fetch(&of[lock].inside, 1, __ATOMIC_RELAXED), 0);
}

static void run_threads(void *(*body)(void *arg))
{
	pthread_t thread[THREADS];
	void *result;

	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, body, (void *)i), 0);
	for (unsigned i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_join(thread[i], &result), 0);
		assert_null(result);
	}
}

/* ---- each has a client ---- */

static void *takes_its_turn(void *arg)
{
	struct vb_lock_client *c = client();
	struct vb_grant g;

	for (unsigned n = 0; n < CYCLES; n++) {
		uint64_t lock = (n + (uintptr_t)arg) % 3 == 0;

		assert_int_equal(vb_lock_acquire(c, lock, VB_EXCLUSIVE, VB_FOREVER_NS, &g), 0);
		enter(lock);
		leave(lock);
		assert_int_equal(vb_lock_release(c, &g), 0);
	}
	vb_lock_client_close(c);
	return NULL;
}

static void each_its_own(void)
{
	uint64_t before = of[0].count + of[1].count;

	run_threads(takes_its_turn);
	assert_int_equal(of[0].count + of[1].count - before, THREADS * CYCLES);
}

/* ---- clients go from thread to thread, with what they hold ---- */

static struct {
	pthread_mutex_t mutex;
	struct session {
		struct vb_lock_client *client;
		struct vb_grant grant;
		uint64_t lock;
		bool holds;
	} of[SESSIONS], *free[SESSIONS];
	unsigned n;
} pool = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static struct session *from_pool(unsigned which)
{
	struct session *s = NULL;

	pthread_mutex_lock(&pool.mutex);
	if (pool.n > 0) {
		which %= pool.n;
		s = pool.free[which];
		pool.free[which] = pool.free[--pool.n];
	}
	pthread_mutex_unlock(&pool.mutex);
	return s;
}

static void to_pool(struct session *s)
{
	pthread_mutex_lock(&pool.mutex);
	pool.free[pool.n++] = s;
	pthread_mutex_unlock(&pool.mutex);
}

/* A session's next step, by whoever has it.  Whoever holds what it waits for may be in the pool. */
static void step(struct session *s, unsigned n)
{
	if (s->holds) {
		leave(s->lock);
		assert_int_equal(vb_lock_release(s->client, &s->grant), 0);
		s->holds = false;
		return;
	}
	s->lock = n % 2;
	s->holds = vb_lock_acquire(s->client, s->lock, VB_EXCLUSIVE, MS / 2, &s->grant) == 0;
	if (s->holds)
		enter(s->lock);
}

static void *serves(void *arg)
{
	for (unsigned n = (uintptr_t)arg; n < CYCLES; n++) {
		struct session *s = from_pool(n * 7);

		if (s == NULL)
			continue;
		step(s, n);
		to_pool(s);
	}
	return NULL;
}

static void handed_on(void)
{
	uint64_t before = of[0].count + of[1].count;

	for (unsigned i = 0; i < SESSIONS; i++) {
		pool.of[i] = (struct session){.client = client()};
		to_pool(&pool.of[i]);
	}
	run_threads(serves);
	assert_true(of[0].count + of[1].count > before);
	/* All, before one that closes waits for its place in a queue. */
	for (unsigned i = 0; i < SESSIONS; i++)
		if (pool.of[i].holds)
			step(&pool.of[i], 0);
	for (unsigned i = 0; i < SESSIONS; i++)
		vb_lock_client_close(pool.of[i].client);
	pool.n = 0;
}

/* ---- all call one client ---- */

static struct vb_lock_client *one;

/* It is one party, with one call at a time: what is refused has done nothing. */
static void *insists(void *arg)
{
	uint64_t lock = (uintptr_t)arg % LOCKS;
	struct vb_grant g;
	int err;

	for (unsigned n = 0; n < CYCLES; n++) {
		while ((err = vb_lock_acquire(one, lock, VB_EXCLUSIVE, VB_FOREVER_NS, &g)) ==
		       -EBUSY)
			sched_yield();
		assert_int_equal(err, 0);
		enter(lock);
		assert_true(vb_lock_valid(one, &g));
		leave(lock);
		while ((err = vb_lock_release(one, &g)) == -EBUSY)
			sched_yield();
		assert_int_equal(err, 0);
	}
	return NULL;
}

static void all_one(void)
{
	one = client();
	quiet(true);
	run_threads(insists);
	quiet(false);
	vb_lock_client_close(one);
}

static void everywhere(const char *fabric, const char *lock)
{
	open_world(fabric, lock);
	each_its_own();
	handed_on();
	all_one();
	close_world();
}

static void test_shm(void **state)
{
	(void)state;
	everywhere("shm", "mcs");
	everywhere("shm", "dslr");
	everywhere("shm", "table");
}

static void test_tcp(void **state)
{
	(void)state;
	everywhere("tcp", "shiftlock");
	everywhere("tcp", "table");
}

static void test_own(void **state)
{
	(void)state;
	everywhere("own", "dslr");
}

/* ---- several hosts, and threads of their own ---- */

static void *takes_a_host(void *arg)
{
	struct vb_lock_client *c;
	struct vb_host *h = NULL;
	struct vb_grant g;
	bool own = (uintptr_t)arg % 3 == 0;

	if (own)
		assert_int_equal(vb_lock_client_open(w.space, 0, &c), 0);
	else {
		assert_int_equal(vb_host_open(NULL, &h), 0);
		assert_int_equal(vb_host_client_open(h, w.space, 0, &c), 0);
	}
	for (unsigned n = 0; n < CYCLES; n++) {
		assert_int_equal(vb_lock_acquire(c, 3, VB_EXCLUSIVE, VB_FOREVER_NS, &g), 0);
		enter(3);
		leave(3);
		assert_int_equal(vb_lock_release(c, &g), 0);
	}
	vb_lock_client_close(c);
	assert_int_equal(vb_host_close(h), 0);
	return NULL;
}

static void test_several(void **state)
{
	uint64_t before = of[3].count;

	(void)state;
	open_world("shm", "mcs");
	run_threads(takes_a_host);
	assert_int_equal(of[3].count - before, THREADS * CYCLES);
	close_world();
}

/* ---- a ring of many threads ---- */

#define STARTED (THREADS / 2 * CYCLES)

static uint32_t seen[STARTED], ended; /* atomic */

static int counts(void *arg)
{
	return -(int)((uintptr_t)arg % 7);
}

/* Half of them start, the others reap, and each has what nobody else has. */
static void *starts_or_reaps(void *arg)
{
	uintptr_t me = (uintptr_t)arg;
	struct vb_completion done[3];
	int err, n;

	for (unsigned i = 0; me % 2 == 0 && i < CYCLES; i++) {
		uintptr_t tag = me / 2 * CYCLES + i;

		while ((err = vb_ring_call(w.ring, counts, (void *)tag, (void *)tag, NULL)) ==
		       -ENOSPC)
			sched_yield();
		assert_int_equal(err, VB_STARTED);
	}
	while (me % 2 != 0 && __atomic_load_n(&ended, __ATOMIC_RELAXED) < STARTED) {
		err = vb_ring_wait(w.ring, MS);
		assert_true(err == 0 || err == -ETIMEDOUT || err == -ENOENT);
		n = vb_ring_reap(w.ring, done, 3);
		assert_true(n >= 0);
		for (int i = 0; i < n; i++) {
			uintptr_t tag = (uintptr_t)done[i].tag;

			assert_true(tag < STARTED);
			assert_int_equal(done[i].result, counts((void *)tag));
			assert_int_equal(__atomic_fetch_add(&seen[tag], 1, __ATOMIC_RELAXED), 0);
			__atomic_fetch_add(&ended, 1, __ATOMIC_RELAXED);
		}
	}
	return NULL;
}

static void test_ring(void **state)
{
	const struct vb_ring_params rp = {.depth = 5};

	(void)state;
	open_world("shm", "mcs");
	assert_int_equal(vb_ring_close(w.ring), 0);
	assert_int_equal(vb_host_ring_open(w.host, &rp, &w.ring), 0);
	quiet(true);
	run_threads(starts_or_reaps);
	quiet(false);
	assert_int_equal(vb_ring_wait(w.ring, 0), -ENOENT);
	close_world();
}

/* ---- cancelled by another than its starter, and just when it ends ---- */

static struct {
	struct vb_grant grant;
	uint64_t id;
	pthread_barrier_t at;
} call;

static void *cancels(void *arg)
{
	(void)arg;
	for (unsigned n = 0; n < CYCLES; n++) {
		int err;

		pthread_barrier_wait(&call.at);
		err = vb_ring_cancel(w.ring, call.id);
		assert_true(err == 0 || err == -ENOENT);
		pthread_barrier_wait(&call.at);
	}
	return NULL;
}

static void test_cancel(void **state)
{
	unsigned cancelled = 0;
	struct vb_lock_client *c;
	pthread_t thread;

	(void)state;
	open_world("shm", "mcs");
	c = client();
	pthread_barrier_init(&call.at, NULL, 2);
	assert_int_equal(pthread_create(&thread, NULL, cancels, NULL), 0);
	for (unsigned n = 0; n < CYCLES; n++) {
		struct vb_completion done;

		hold(5);
		assert_int_equal(start(c, 5, VB_FOREVER_NS, &call.grant, &call.id), VB_STARTED);
		pthread_barrier_wait(&call.at);
		if (n % 2 == 0)
			let_go();
		done = next(&call.grant);
		if (n % 2 != 0) {
			assert_int_equal(done.result, -ECANCELED);
			let_go();
		} else if (done.result == 0)
			assert_int_equal(vb_lock_release(c, &call.grant), 0);
		else
			assert_int_equal(done.result, -ECANCELED);
		cancelled += done.result != 0;
		pthread_barrier_wait(&call.at);
	}
	pthread_join(thread, NULL);
	assert_true(cancelled >= CYCLES / 2);
	pthread_barrier_destroy(&call.at);
	vb_lock_client_close(c);
	close_world();
}

/* ---- a caller that sleeps ---- */

static uint32_t disturbed; /* atomic */

static void disturb(int signal)
{
	(void)signal;
	__atomic_fetch_add(&disturbed, 1, __ATOMIC_RELAXED);
}

static void *waits(void *arg)
{
	struct vb_grant g;
	int err;

	/* While another thread asks whether it does. */
	while ((err = vb_lock_acquire(arg, 5, VB_EXCLUSIVE, VB_FOREVER_NS, &g)) == -EBUSY)
		sched_yield();
	assert_int_equal(err, 0);
	assert_int_equal(vb_lock_release(arg, &g), 0);
	return NULL;
}

/* Until the host has the call of `c`: there is no such lock, but it is asked for by nobody else. */
static void is_called(struct vb_lock_client *c)
{
	struct vb_grant g;

	while (vb_lock_try(c, LOCKS, VB_EXCLUSIVE, &g) == -EINVAL)
		sched_yield();
}

/* Signals do not end a call; and nothing is closed under it. */
static void test_asleep(void **state)
{
	const struct sigaction act = {.sa_handler = disturb};
	struct vb_lock_client *c;
	struct vb_grant g, has;
	pthread_t thread;

	(void)state;
	open_world("shm", "mcs");
	c = client();
	assert_int_equal(vb_lock_acquire(c, 7, VB_EXCLUSIVE, PATIENCE_NS, &has), 0);
	assert_int_equal(sigaction(SIGUSR1, &act, NULL), 0);
	hold(5);
	assert_int_equal(pthread_create(&thread, NULL, waits, c), 0);
	quiet(true);
	is_called(c);
	for (unsigned n = 0; n < 100; n++) {
		uint32_t before = __atomic_load_n(&disturbed, __ATOMIC_RELAXED);

		/* More than once: under the thread sanitizer a signal that comes between a look and the call
		 * of the kernel that sleeps waits for the sleep to end. */
		do {
			assert_int_equal(pthread_kill(thread, SIGUSR1), 0);
			sched_yield();
		} while (__atomic_load_n(&disturbed, __ATOMIC_RELAXED) == before);
	}
	assert_int_equal(vb_lock_try(c, 6, VB_EXCLUSIVE, &g), -EBUSY);
	assert_int_equal(vb_lock_release(c, &has), -EBUSY);
	assert_int_equal(vb_lock_renew(c, &has, MS), -EBUSY);
	assert_int_equal(vb_host_close(w.host), -EBUSY);
	vb_lock_client_close(c);
	quiet(false);
	assert_true(vb_lock_valid(c, &has));
	let_go();
	pthread_join(thread, NULL);
	assert_true(vb_lock_valid(c, &has));
	assert_int_equal(vb_lock_release(c, &has), 0);
	vb_lock_client_close(c);
	close_world();
}

/* ---- transactions ---- */

#define ACCOUNTS 4u

static struct {
	struct vb_db *db;
	struct vb_table *table;
} bank;

struct teller {
	struct vb_coordinator *me;
	unsigned n;
};

static int move(struct vb_coordinator *me, void *arg)
{
	const struct teller *t = arg;
	void *from, *to;
	int err = vb_txn_update(me, bank.table, t->n % ACCOUNTS, &from);

	if (err == 0)
		err = vb_txn_update(me, bank.table, (t->n + 1) % ACCOUNTS, &to);
	if (err)
		return err;
	--*(int64_t *)from;
	++*(int64_t *)to;
	return 0;
}

static int opens(void *arg)
{
	return vb_coordinator_open(bank.db, 0, &((struct teller *)arg)->me);
}

static int transfers(void *arg)
{
	struct teller *t = arg;

	return vb_txn_run(t->me, move, t, 0);
}

static int closes(void *arg)
{
	vb_coordinator_close(((struct teller *)arg)->me);
	return 0;
}

static void *banks(void *arg)
{
	struct teller t = {.n = (unsigned)(uintptr_t)arg};
	uint64_t key = 0;

	assert_int_equal(vb_host_call(w.host, opens, &t), 0);
	for (unsigned n = 0; n < CYCLES / 2; n++, t.n++)
		assert_int_equal(vb_host_call(w.host, transfers, &t), 0);
	if (arg == NULL) {
		quiet(true);
		assert_int_equal(vb_txn_read(t.me, bank.table, 1, &key), -VB_EFOREIGN);
		quiet(false);
	}
	assert_int_equal(vb_host_call(w.host, closes, &t), 0);
	return NULL;
}

static struct vb_db_server *task;

static int opens_more(void *arg)
{
	int err = opens(arg);

	return err ? err : vb_db_server_start(bank.db, 0, &task);
}

static int closes_more(void *arg)
{
	vb_db_server_stop(task);
	return closes(arg);
}

/* What functions have opened is open on the host: with the ring a coordinator and a server, which count. */
static void nothing_is_closed(void)
{
	struct teller t = {.n = 0};
	char said[512] = "";

	assert_int_equal(vb_host_call(w.host, opens_more, &t), 0);
	vb_log_capture_begin(said, sizeof(said));
	assert_int_equal(vb_host_close(w.host), -EBUSY);
	vb_log_capture_end();
	assert_non_null(strstr(said, "3 clients, coordinators, servers and rings are open"));
	assert_int_equal(vb_host_call(w.host, transfers, &t), 0);
	assert_int_equal(vb_host_call(w.host, closes_more, &t), 0);
}

static int sums(void *arg)
{
	struct teller t;
	const void *record;
	int64_t sum = 0;
	int err = opens(&t);

	(void)arg;
	assert_int_equal(err, 0);
	vb_txn_begin(t.me);
	for (unsigned i = 0; i < ACCOUNTS; i++) {
		assert_int_equal(vb_txn_get(t.me, bank.table, i, &record), 0);
		sum += *(const int64_t *)record;
	}
	assert_int_equal(vb_txn_commit(t.me), 0);
	closes(&t);
	return (int)-sum;
}

static void bank_on(const char *fabric)
{
	const struct vb_db_params dp = {.cc = "no-wait"};
	const struct vb_table_params tp = {
		.name = "accounts", .record_bytes = sizeof(int64_t), .records = ACCOUNTS};
	const int64_t hundred = 100;
	struct vb_db_server *server;

	open_world(fabric, "mcs");
	assert_int_equal(vb_db_open(w.fabric, &dp, &bank.db), 0);
	assert_int_equal(vb_table_open(bank.db, &tp, &bank.table), 0);
	for (unsigned i = 0; i < ACCOUNTS; i++)
		assert_int_equal(vb_table_load(bank.table, i, &hundred), 0);
	assert_int_equal(vb_db_server_thread_start(bank.db, 0, &server), 0);
	run_threads(banks);
	assert_int_equal(vb_host_call(w.host, sums, NULL), -(int)(ACCOUNTS * 100));
	vb_db_server_stop(server);
	nothing_is_closed();
	assert_int_equal(vb_db_close(bank.db), 0);
	close_world();
}

static void test_transactions(void **state)
{
	(void)state;
	bank_on("shm");
	bank_on("tcp");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shm),    cmocka_unit_test(test_tcp),
		cmocka_unit_test(test_own),    cmocka_unit_test(test_several),
		cmocka_unit_test(test_ring),   cmocka_unit_test(test_cancel),
		cmocka_unit_test(test_asleep), cmocka_unit_test(test_transactions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
