/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts and their callers' threads when programs go wrong: what is used twice, ended or closed at the wrong moment. */
#include <verbena/host.h>

#include "host_world.h"

/* ---- a client or coordinator that a function on the host uses ---- */

static struct {
	struct vb_lock_client *client;
	uint32_t begun; /* atomic */
} in;

/* From then on the host's thread runs others only while this waits. */
static int acquires(void *arg)
{
	struct vb_grant g;
	int err;

	(void)arg;
	__atomic_store_n(&in.begun, 1, __ATOMIC_RELEASE);
	err = vb_lock_acquire(in.client, 5, VB_EXCLUSIVE, VB_FOREVER_NS, &g);
	return err != 0 ? err : vb_lock_release(in.client, &g);
}

static void *calls(void *fn)
{
	return (void *)(intptr_t)vb_host_call(w.host, *(vb_ring_fn *)fn, NULL);
}

static pthread_t in_thread(vb_ring_fn *fn)
{
	pthread_t thread;

	__atomic_store_n(&in.begun, 0, __ATOMIC_RELAXED);
	assert_int_equal(pthread_create(&thread, NULL, calls, fn), 0);
	while (__atomic_load_n(&in.begun, __ATOMIC_ACQUIRE) == 0)
		sched_yield();
	return thread;
}

static void ended_well(pthread_t thread)
{
	void *result;

	pthread_join(thread, &result);
	assert_null(result);
}

/* Another call meanwhile, by whichever way it comes, is refused and does nothing. */
static void refused_in_function(const char *lock)
{
	static vb_ring_fn fn = acquires;
	struct vb_grant g = {.lock = 5};
	pthread_t thread;

	open_world("shm", lock);
	in.client = client();
	hold(5);
	thread = in_thread(&fn);
	quiet(true);
	assert_int_equal(vb_lock_try(in.client, 6, VB_EXCLUSIVE, &g), -EBUSY);
	assert_int_equal(vb_lock_acquire(in.client, 6, VB_EXCLUSIVE, MS, &g), -EBUSY);
	assert_int_equal(vb_lock_release(in.client, &g), -EBUSY);
	assert_int_equal(vb_host_call(w.host, acquires, NULL), -EBUSY);
	assert_int_equal(start(in.client, 6, VB_FOREVER_NS, &g, NULL), VB_STARTED);
	assert_int_equal(next(&g).result, -EBUSY);
	vb_lock_client_close(in.client);
	quiet(false);
	let_go();
	ended_well(thread);
	assert_int_equal(vb_lock_try(in.client, 6, VB_EXCLUSIVE, &g), 0);
	assert_int_equal(vb_lock_release(in.client, &g), 0);
	vb_lock_client_close(in.client);
	close_world();
}

static void test_client_in_function(void **state)
{
	(void)state;
	refused_in_function("mcs");
	refused_in_function("table");
}

/* On a ring of a thread's own, too. */
static void test_client_on_ring(void **state)
{
	struct vb_lock_client *c;
	struct vb_completion done;
	struct vb_ring *own;
	struct vb_grant g, other;

	(void)state;
	open_world("shm", "mcs");
	c = client();
	assert_int_equal(vb_lock_acquire(c, 5, VB_EXCLUSIVE, PATIENCE_NS, &g), 0);
	assert_int_equal(vb_ring_open(NULL, &own), 0);
	in.client = w.holder;
	assert_int_equal(vb_ring_call(own, acquires, NULL, NULL, NULL), VB_STARTED);
	quiet(true);
	assert_int_equal(vb_ring_call(own, acquires, NULL, NULL, NULL), -EBUSY);
	assert_int_equal(vb_lock_try(w.holder, 6, VB_EXCLUSIVE, &other), -EBUSY);
	assert_int_equal(
		vb_lock_acquire_start(own, w.holder, 6, VB_EXCLUSIVE, 0, &other, NULL, NULL),
		-EBUSY);
	vb_lock_client_close(w.holder);
	quiet(false);
	assert_int_equal(vb_lock_release(c, &g), 0);
	assert_int_equal(vb_ring_wait(own, PATIENCE_NS), 0);
	assert_int_equal(vb_ring_reap(own, &done, 1), 1);
	assert_int_equal(done.result, 0);
	assert_int_equal(vb_lock_try(w.holder, 6, VB_EXCLUSIVE, &other), 0);
	assert_int_equal(vb_lock_release(w.holder, &other), 0);
	assert_int_equal(vb_ring_close(own), 0);
	vb_lock_client_close(c);
	close_world();
}

static struct {
	struct vb_db *db;
	struct vb_table *table;
	struct vb_coordinator *me;
} bank;

/* Waits in its body for something else. */
static int body(struct vb_coordinator *me, void *arg)
{
	uint64_t *record;
	int err = vb_txn_update(me, bank.table, 1, (void **)&record);

	if (err == 0)
		++*record;
	return err != 0 ? err : acquires(arg);
}

static int runs(void *arg)
{
	return vb_txn_run(bank.me, body, arg, 1);
}

static int opens(void *arg)
{
	(void)arg;
	return vb_coordinator_open(bank.db, 0, &bank.me);
}

static int begins(void *arg)
{
	(void)arg;
	return vb_txn_begin(bank.me);
}

static int writes(void *arg)
{
	const uint64_t zero = 0;

	(void)arg;
	return vb_txn_write(bank.me, bank.table, 1, &zero);
}

static int commits(void *arg)
{
	(void)arg;
	return vb_txn_commit(bank.me);
}

static int closes(void *arg)
{
	(void)arg;
	vb_coordinator_close(bank.me);
	return 0;
}

static int reads(void *arg)
{
	uint64_t record;
	int err = vb_txn_begin(bank.me);

	(void)arg;
	if (err == 0)
		err = vb_txn_read(bank.me, bank.table, 1, &record);
	if (err == 0)
		err = vb_txn_commit(bank.me);
	return err != 0 ? err : -(int)record;
}

/* What another function asks of it would be done in the middle of the transaction that runs. */
static void test_coordinator_in_function(void **state)
{
	const struct vb_db_params dp = {.cc = "no-wait"};
	const struct vb_table_params tp = {.name = "t", .record_bytes = 8, .records = 4};
	static vb_ring_fn fn = runs;
	static const vb_ring_fn others[] = {runs, begins, writes, commits, closes};
	const uint64_t forty = 40;
	pthread_t thread;

	(void)state;
	open_world("shm", "mcs");
	assert_int_equal(vb_db_open(w.fabric, &dp, &bank.db), 0);
	assert_int_equal(vb_table_open(bank.db, &tp, &bank.table), 0);
	assert_int_equal(vb_table_load(bank.table, 1, &forty), 0);
	in.client = client();
	assert_int_equal(vb_host_call(w.host, opens, NULL), 0);
	hold(5);
	thread = in_thread(&fn);
	quiet(true);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(others); i++)
		assert_int_equal(vb_host_call(w.host, others[i], NULL),
				 others[i] == closes ? 0 : -EBUSY);
	quiet(false);
	let_go();
	ended_well(thread);
	assert_int_equal(vb_host_call(w.host, reads, NULL), -41);
	assert_int_equal(vb_host_call(w.host, closes, NULL), 0);
	vb_lock_client_close(in.client);
	assert_int_equal(vb_db_close(bank.db), 0);
	close_world();
}

/* ---- a thread that sleeps on a ring ---- */

static pid_t sleeper; /* atomic */

static void *sleeps(void *arg)
{
	(void)arg;
	__atomic_store_n(&sleeper, gettid(), __ATOMIC_RELEASE);
	return (void *)(intptr_t)vb_ring_wait(w.ring, VB_FOREVER_NS);
}

static char state_of(pid_t thread)
{
	char path[64], state = '?';
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)thread);
	f = fopen(path, "re");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%*d (%*[^)]) %c", &state), 1);
	fclose(f);
	return state;
}

/* One that does, by the word of the system: there is nothing else that it could sleep for. */
static pthread_t asleep(void)
{
	pthread_t thread;
	pid_t id;

	__atomic_store_n(&sleeper, 0, __ATOMIC_RELAXED);
	assert_int_equal(pthread_create(&thread, NULL, sleeps, NULL), 0);
	while ((id = __atomic_load_n(&sleeper, __ATOMIC_ACQUIRE)) == 0 || state_of(id) != 'S')
		sched_yield();
	return thread;
}

/* It ends behind its call, and leaves the ring as if it had never been there. */
static void test_cancelled_thread(void **state)
{
	struct vb_lock_client *c;
	struct vb_grant g;
	pthread_t thread;
	void *result;

	(void)state;
	open_world("shm", "mcs");
	c = client();
	hold(5);
	assert_int_equal(start(c, 5, VB_FOREVER_NS, &g, NULL), VB_STARTED);
	thread = asleep();
	assert_int_equal(pthread_cancel(thread), 0);
	let_go();
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_int_equal(next(&g).result, 0);
	assert_int_equal(vb_lock_release(c, &g), 0);
	vb_lock_client_close(c);
	close_world();
}

static int naps(void *arg)
{
	(void)arg;
	usleep(50);
	return 0;
}

/* Who reaps the last completion and closes is not alone before those who slept have returned. */
static void test_closed_under_sleepers(void **state)
{
	unsigned busy = 0;

	(void)state;
	open_world("shm", "mcs");
	quiet(true);
	for (unsigned n = 0; n < 30; n++) {
		struct vb_completion done;
		struct vb_lock_client *c = client();
		struct vb_grant g;
		pthread_t thread[4];
		int err;

		hold(5);
		assert_int_equal(start(c, 5, VB_FOREVER_NS, &g, NULL), VB_STARTED);
		for (unsigned i = 0; i < 4; i++)
			thread[i] = asleep();
		let_go();
		while (vb_ring_reap(w.ring, &done, 1) == 0)
			;
		while ((err = vb_ring_close(w.ring)) == -EBUSY)
			busy++;
		assert_int_equal(err, 0);
		for (unsigned i = 0; i < 4; i++)
			pthread_join(thread[i], NULL);
		assert_int_equal(vb_lock_release(c, &g), 0);
		vb_lock_client_close(c);
		assert_int_equal(vb_host_ring_open(w.host, NULL, &w.ring), 0);
	}
	quiet(false);
	assert_true(busy > 0);
	close_world();
}

/* ---- an id that nobody has told ---- */

#define GUESS_NS (4000 * MS)

static uint64_t guess; /* atomic */

static void *guesses(void *arg)
{
	uint64_t id;

	(void)arg;
	while ((id = __atomic_load_n(&guess, __ATOMIC_RELAXED)) != 0)
		(void)vb_ring_cancel(w.ring, id);
	return NULL;
}

/* It cancels the call of that id, or none: also just when that is being started.  Nor does it keep the place of one
 * that has been reaped. */
static void test_guessed_id(void **state)
{
	const struct vb_ring_params rp = {.depth = 1};
	struct vb_completion done;
	uint64_t id, step, until;
	pthread_t thread;

	(void)state;
	open_world("shm", "mcs");
	assert_int_equal(vb_ring_close(w.ring), 0);
	assert_int_equal(vb_host_ring_open(w.host, &rp, &w.ring), 0);
	assert_int_equal(vb_ring_call(w.ring, naps, NULL, NULL, &step), VB_STARTED);
	(void)next(NULL);
	assert_int_equal(vb_ring_call(w.ring, naps, NULL, NULL, &id), VB_STARTED);
	(void)next(NULL);
	step = id - step;
	guess = id + step;
	assert_int_equal(pthread_create(&thread, NULL, guesses, NULL), 0);
	/* Who looks without a wait meets the moments that matter, some times in a thousand; on a busy machine that
	 * takes its time. */
	until = vb_clock_gettime_ns() + GUESS_NS;
	for (unsigned n = 0; n < 20000 && vb_clock_gettime_ns() < until; n++) {
		assert_int_equal(vb_ring_call(w.ring, naps, NULL, NULL, &id), VB_STARTED);
		while (vb_ring_reap(w.ring, &done, 1) == 0)
			;
		assert_int_equal(done.result, 0);
		__atomic_store_n(&guess, id + step, __ATOMIC_RELAXED);
	}
	__atomic_store_n(&guess, 0, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	close_world();
}

/* ---- stacks that are as small as may be ---- */

static uint32_t lines; /* atomic */

static void takes_line(void *user, const struct vb_log_message *message)
{
	(void)user;
	(void)message;
	__atomic_fetch_add(&lines, 1, __ATOMIC_RELAXED);
}

/* Also what goes wrong, and is said. */
static void locks_in(uint32_t stack_bytes, const char *lock)
{
	const struct vb_host_params hp = {.stack_bytes = stack_bytes};
	const uint64_t path[4] = {6, 7, 8, 9};
	struct vb_lock_client *c;
	struct vb_names *names;
	struct vb_grant g, some[4];
	struct vb_host *h;
	uint64_t number;
	int err;

	open_world("tcp", lock);
	assert_int_equal(vb_host_open(&hp, &h), 0);
	assert_int_equal(vb_host_client_open(h, w.space, 0, &c), 0);
	assert_int_equal(vb_lock_acquire(c, 5, VB_EXCLUSIVE, PATIENCE_NS, &g), 0);
	assert_int_equal(vb_lock_acquire(c, 5, VB_EXCLUSIVE, PATIENCE_NS, &some[0]), -EDEADLK);
	assert_int_equal(vb_lock_release(c, &g), 0);
	err = vb_lock_acquire_path(c, path, 4, VB_EXCLUSIVE, PATIENCE_NS, some);
	assert_true(err == 0 || err == -EOPNOTSUPP);
	if (err == 0)
		assert_int_equal(vb_lock_release_all(c, some, 4), 0);
	hold(5);
	assert_int_equal(vb_lock_acquire(c, 5, VB_EXCLUSIVE, MS, &g), -ETIMEDOUT);
	let_go();
	assert_int_equal(vb_names_open(w.space, NULL, &names), 0);
	assert_int_equal(vb_names_lock(names, c, "a name", 6, &number), 0);
	vb_names_close(names);
	vb_lock_client_close(c);
	assert_int_equal(vb_host_close(h), 0);
	close_world();
}

static int all_of_it(struct vb_coordinator *me, void *arg)
{
	const struct vb_txn_range range = {.least = 0, .most = 3};
	const uint64_t one = 1;
	struct vb_txn_row row[4];
	unsigned n;
	int err = vb_txn_write(me, bank.table, 1, &one);

	(void)arg;
	if (err == 0)
		err = vb_txn_scan(me, bank.table, &range, row, 4, &n);
	return err != 0 ? err : vb_txn_insert(me, bank.table, 2, &one);
}

static int runs_all(void *arg)
{
	uint64_t freed;
	int err = opens(NULL);

	if (err == 0)
		err = vb_txn_run(bank.me, all_of_it, arg, 0);
	if (err == 0)
		err = vb_txn_run(bank.me, all_of_it, arg, 0) == -EEXIST ? 0 : -EPROTO;
	if (err == 0)
		err = vb_db_recover(bank.me, 0, &freed);
	return err != 0 ? err : closes(NULL);
}

static void transactions_in(uint32_t stack_bytes, const char *cc, const char *hybrid)
{
	const struct vb_host_params hp = {.stack_bytes = stack_bytes};
	const struct vb_db_params dp = {.cc = cc, .hybrid = hybrid};
	const struct vb_table_params tp = {
		.name = "t", .record_bytes = 8, .records = 4, .ordered = true};
	const uint64_t zero = 0;
	struct vb_db_server *server;
	struct vb_host *h;

	open_world("tcp", "mcs");
	assert_int_equal(vb_db_open(w.fabric, &dp, &bank.db), 0);
	assert_int_equal(vb_table_open(bank.db, &tp, &bank.table), 0);
	assert_int_equal(vb_table_load(bank.table, 1, &zero), 0);
	assert_int_equal(vb_db_server_thread_start(bank.db, 0, &server), 0);
	assert_int_equal(vb_host_open(&hp, &h), 0);
	assert_int_equal(vb_host_call(h, runs_all, NULL), 0);
	assert_int_equal(vb_host_close(h), 0);
	vb_db_server_stop(server);
	assert_int_equal(vb_db_close(bank.db), 0);
	close_world();
}

static void test_small_stacks(void **state)
{
	static const char *const locks[] = {"mcs", "dslr", "shiftlock", "table", "rpc"};
	static const char *const ccs[] = {"silo", "no-wait", "mvcc", "cicada", "to"};

	(void)state;
#if defined(VB_ASAN) || defined(VB_TSAN) || !defined(__OPTIMIZE__)
	skip(); /* What a call needs is another thing there. */
#endif
	assert_int_equal(vb_log_set(takes_line, NULL), 0);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(locks); i++)
		locks_in(16 << 10, locks[i]);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(ccs); i++) {
		transactions_in(32 << 10, ccs[i], NULL);
		transactions_in(32 << 10, ccs[i], "rpc");
	}
	assert_int_equal(vb_log_set(NULL, NULL), 0);
	assert_true(lines > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_client_in_function),
		cmocka_unit_test(test_client_on_ring),
		cmocka_unit_test(test_coordinator_in_function),
		cmocka_unit_test(test_cancelled_thread),
		cmocka_unit_test(test_closed_under_sleepers),
		cmocka_unit_test(test_guessed_id),
		cmocka_unit_test(test_small_stacks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
