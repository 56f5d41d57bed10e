/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client gives up in a queue, and comes back at every possible moment of its proxy's life: while
 * it waits, while its turn comes, while it releases, afterwards.  What the explorer once found by
 * chance (a ticket used twice; a claim that had been released and stood in the queue all the same)
 * is swept here step by step.  The auditor judges.
 */
#include "sim_test.h"

#include <sys/resource.h>

#include "base/log.h"
#include "check/lock/audit.h"
#include "lock/lock.h"
#include "task/inner.h"

#define LOCKS    1
#define STEP_NS  150
#define SWEEP_NS 24000
#define PATIENCE 3000 /* ns: the waiter's first deadline */
#define HOLD_NS  9000
#define LEASE_NS 4000000

struct proxy_test {
	const char *lock;
	enum vb_mode mode, again;
	uint64_t back_ns; /* when the waiter comes back */
	struct vb_lock_space *space;
	struct vb_audit *audit;
	struct vb_lock_client *waiter;
	unsigned done;
};

static void must(struct proxy_test *t, int err, int expect)
{
	if (err != expect)
		fail_msg("%s, back after %llu ns: %d instead of %d", t->lock,
			 (unsigned long long)t->back_ns, err, expect);
}

static struct vb_lock_client *client(struct proxy_test *t, unsigned index)
{
	struct vb_lock_client *me;

	must(t, vb_lock_client_open(t->space, 1, &me), 0);
	me->index = index;
	return me;
}

static void hold_and_release(struct proxy_test *t, struct vb_lock_client *me, struct vb_grant *g,
			     uint64_t ns)
{
	must(t, vb_ep_sleep(me->ep, ns), 0);
	must(t, vb_lock_release(me, g), 0);
}

static void first_holder(void *arg)
{
	struct proxy_test *t = arg;
	struct vb_lock_client *me = client(t, 0);
	struct vb_grant g;

	must(t, vb_lock_acquire(me, 0, VB_EXCLUSIVE, VB_FOREVER_NS, &g), 0);
	hold_and_release(t, me, &g, HOLD_NS);
	vb_lock_client_close(me);
	t->done++;
}

static void gives_up_and_comes_back(void *arg)
{
	struct proxy_test *t = arg;
	struct vb_lock_client *me = client(t, 1);
	struct vb_grant g;
	int err;

	must(t, vb_ep_sleep(me->ep, 2000), 0);
	err = vb_lock_acquire(me, 0, t->mode, PATIENCE, &g);
	must(t, err, -ETIMEDOUT);
	must(t, vb_ep_sleep_until(me->ep, t->back_ns), 0);
	/* Twice: the second time gives up again if it must, so that proxies follow proxies. */
	err = vb_lock_acquire(me, 0, t->again, PATIENCE, &g);
	if (err == 0)
		hold_and_release(t, me, &g, 500);
	else
		must(t, err, -ETIMEDOUT);
	must(t, vb_lock_acquire(me, 0, t->mode, VB_FOREVER_NS, &g), 0);
	hold_and_release(t, me, &g, 500);
	vb_lock_client_close(me);
	t->done++;
}

/* Others come by all the time: whoever releases twice lets two of them in. */
static void passer_by(struct proxy_test *t, unsigned index)
{
	struct vb_lock_client *me = client(t, index);
	struct vb_grant g;

	for (unsigned i = 0; i < 8; i++) {
		must(t, vb_ep_sleep(me->ep, 1700 + 300 * index), 0);
		must(t, vb_lock_acquire(me, 0, i % 2 ? VB_SHARED : VB_EXCLUSIVE, VB_FOREVER_NS, &g),
		     0);
		hold_and_release(t, me, &g, 700);
	}
	vb_lock_client_close(me);
	t->done++;
}

static void passer_2(void *arg)
{
	passer_by(arg, 2);
}

static void passer_3(void *arg)
{
	passer_by(arg, 3);
}

static void run_one(struct proxy_test *t)
{
	const struct vb_lock_space_params p = {
		.lock = t->lock, .locks = LOCKS, .lease_ns = LEASE_NS, .fencing = true};
	struct vb_fabric *f = cluster("profile=cx5", 2, t->back_ns);
	struct vb_audit_params a = {.locks = LOCKS, .clients = 4, .fencing = true, .bypass = true};
	struct vb_lock_server *server;
	struct vb_audit_counts counts;

	must(t, vb_lock_space_open(f, &p, &t->space), 0);
	a.ops = t->space->ops;
	must(t, vb_audit_open(&a, &t->audit), 0);
	t->space->watch = vb_audit_watch(t->audit);
	must(t, vb_lock_server_start(t->space, 0, 0, 1, &server), 0);
	t->done = 0;
	spawn(first_holder, t);
	spawn(gives_up_and_comes_back, t);
	spawn(passer_2, t);
	spawn(passer_3, t);
	run_all();
	vb_audit_counts(t->audit, &counts);
	if (counts.violations) {
		vb_audit_print(t->audit, stderr);
		fail_msg("%s, back after %llu ns: violations", t->lock,
			 (unsigned long long)t->back_ns);
	}
	assert_int_equal(t->done, 4);
	assert_true(counts.checked_ops >= 18);
	vb_lock_server_stop(server);
	vb_audit_close(t->audit);
	vb_lock_space_close(t->space);
	vb_fabric_close(f);
}

static void sweep(const char *lock)
{
	static const enum vb_mode modes[] = {VB_EXCLUSIVE, VB_SHARED};

	for (unsigned m = 0; m < 4; m++) {
		struct proxy_test t = {.lock = lock, .mode = modes[m & 1], .again = modes[m >> 1]};

		for (t.back_ns = 5000; t.back_ns < SWEEP_NS; t.back_ns += STEP_NS)
			run_one(&t);
	}
}

static void test_mcs(void **state)
{
	(void)state;
	sweep("mcs");
}

static void test_ncosed(void **state)
{
	(void)state;
	sweep("ncosed");
}

static void test_dslr(void **state)
{
	(void)state;
	sweep("dslr");
}

static void test_dslr_update(void **state)
{
	(void)state;
	sweep("dslr-update");
}

static void test_shiftlock(void **state)
{
	(void)state;
	sweep("shiftlock");
}

/* ---- a turn that never comes ---- */

#define WAIT_NS 50000ull

static void holds_for_ever(void *arg)
{
	struct proxy_test *t = arg;
	struct vb_lock_client *me = client(t, 0);
	struct vb_grant g;

	must(t, vb_lock_acquire(me, 0, VB_EXCLUSIVE, VB_FOREVER_NS, &g), 0);
	must(t, vb_ep_sleep(me->ep, HOLD_NS), 0);
	vb_lock_abandon(me, &g);
	vb_lock_client_close(me);
	t->done++;
}

static void closes_in_the_queue(void *arg)
{
	struct proxy_test *t = arg;
	struct vb_lock_client *me = client(t, 1);
	struct vb_sched *sched = me->ep->sched;
	struct vb_grant g;
	uint64_t from;

	must(t, vb_ep_sleep(me->ep, 2000), 0);
	must(t, vb_lock_acquire(me, 0, VB_EXCLUSIVE, PATIENCE, &g), -ETIMEDOUT);
	from = vb_sched_now(sched);
	vb_lock_client_close(me);
	assert_in_range(vb_sched_now(sched) - from, t->space->proxy_wait_ns,
			t->space->proxy_wait_ns + HOLD_NS);
	t->done++;
}

/* The bench knows when a lock is lost: then nobody waits for a turn in its queue for ever. */
static void leaves(const char *lock, uint64_t proxy_wait_ns)
{
	const struct vb_lock_space_params p = {.lock = lock, .locks = LOCKS, .lease_ns = LEASE_NS};
	struct proxy_test t = {.lock = lock};
	struct vb_fabric *f = cluster("profile=cx5", 2, 1);

	f->no_keeper = true; /* as the lab's are */
	must(&t, vb_lock_space_open(f, &p, &t.space), 0);
	assert_true(t.space->proxy_wait_ns == VB_FOREVER);
	t.space->proxy_wait_ns = proxy_wait_ns;
	spawn(holds_for_ever, &t);
	spawn(closes_in_the_queue, &t);
	run_all();
	assert_int_equal(t.done, 2);
	vb_lock_space_close(t.space);
	vb_fabric_close(f);
}

static void test_left_behind(void **state)
{
	static const char *const locks[] = {"mcs", "ncosed", "rma-rw"};

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		leaves(locks[i], WAIT_NS);
		leaves(locks[i], 0);
	}
}

/* Where a death is survived nobody is waited for longer than two leases: the place is a dead client's then. */
static void test_close_in_two_leases(void **state)
{
	static const char *const locks[] = {"dslr", "dslr-update"};

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		const struct vb_lock_space_params p = {.lock = locks[i],
						       .options = "slots=8",
						       .locks = LOCKS,
						       .lease_ns = LEASE_NS};
		struct proxy_test t = {.lock = locks[i]};
		struct vb_fabric *f = cluster("profile=cx5", 2, 1);
		struct vb_lock_client *a, *b, *c;
		struct vb_grant g, h;
		uint64_t from;

		must(&t, vb_lock_space_open(f, &p, &t.space), 0);
		a = client(&t, 0);
		b = client(&t, 1);
		c = client(&t, 2);
		must(&t, vb_lock_acquire_for(a, 0, VB_EXCLUSIVE, 8 * LEASE_NS, VB_FOREVER_NS, &g),
		     0);
		must(&t, vb_lock_acquire(b, 0, VB_EXCLUSIVE, PATIENCE, &h), -ETIMEDOUT);
		from = now();
		vb_lock_client_close(b);
		assert_in_range(now() - from, 2 * LEASE_NS, 2 * LEASE_NS + LEASE_NS / 2);
		assert_true(vb_lock_valid(a, &g));
		must(&t, vb_lock_release(a, &g), 0);
		must(&t,
		     vb_lock_acquire(c, 0, VB_EXCLUSIVE,
				     vb_lock_recovery_leases(t.space) *
					     vb_lock_stretch(t.space, LEASE_NS),
				     &h),
		     0);
		must(&t, vb_lock_release(c, &h), 0);
		vb_lock_client_close(a);
		vb_lock_client_close(c);
		vb_lock_space_close(t.space);
		vb_fabric_close(f);
		vb_sched_destroy(vb_sched_self());
	}
}

/* ---- a closed client's place, when its space closes, too ---- */

/* As in ghost.c. */
#define SPACE_LEASES 64u
#define SAY_NS       10000000000ull

struct ghost_test {
	struct vb_fabric *f;
	struct vb_lock_space *theirs, *mine; /* two views of one space: who holds keeps his open */
	struct vb_lock_client *holder;
	struct vb_grant g;
	uint64_t hold_ns;
	int err;
	unsigned waits_lines, left_lines; /* what closing it said */
};

static void holds(void *arg)
{
	struct ghost_test *t = arg;

	t->err = vb_ep_sleep(t->holder->ep, t->hold_ns);
	if (t->err == 0)
		t->err = vb_lock_release(t->holder, &t->g);
}

/* One holds the lock for hold_ns; another gives up in its queue and closes its client. */
static void give_up_and_close(struct ghost_test *t, const char *lock, uint64_t hold_ns)
{
	const struct vb_lock_space_params p = {.lock = lock, .locks = LOCKS, .lease_ns = LEASE_NS};
	struct vb_lock_client *me;
	struct vb_grant g;

	*t = (struct ghost_test){.f = cluster("profile=cx5", 2, 1), .hold_ns = hold_ns};
	assert_int_equal(vb_lock_space_open(t->f, &p, &t->theirs), 0);
	assert_int_equal(vb_lock_space_open(t->f, &p, &t->mine), 0);
	assert_int_equal(vb_lock_client_open(t->theirs, 0, &t->holder), 0);
	assert_int_equal(vb_lock_client_open(t->mine, 1, &me), 0);
	assert_int_equal(vb_lock_acquire(t->holder, 0, VB_EXCLUSIVE, VB_FOREVER_NS, &t->g), 0);
	assert_int_equal(vb_lock_acquire(me, 0, VB_EXCLUSIVE, PATIENCE, &g), -ETIMEDOUT);
	vb_lock_client_close(me);
	spawn(holds, t);
}

static void count_line(void *user, const struct vb_log_message *message)
{
	struct ghost_test *t = user;

	t->waits_lines += strstr(message->text, "a closing lock space waits") != NULL;
	t->left_lines += strstr(message->text, "of lock 0 is left behind") != NULL;
}

/* Closes their space; how long that takes. */
static uint64_t close_mine(struct ghost_test *t)
{
	uint64_t from = now();

	assert_int_equal(vb_log_set(count_line, t), 0);
	assert_int_equal(vb_lock_space_close(t->mine), 0);
	assert_int_equal(vb_log_set(NULL, NULL), 0);
	return now() - from;
}

static void end_ghost_test(struct ghost_test *t)
{
	run_all();
	vb_lock_client_close(t->holder);
	assert_int_equal(vb_lock_space_close(t->theirs), 0);
	assert_int_equal(vb_fabric_close(t->f), 0);
	vb_sched_destroy(vb_sched_self());
}

static const char *const mortal[] = {"mcs", "ncosed", "rma-rw"};

/* In virtual time: as long as the lock is held, and 64 leases at most. */
static void test_space_waits_64_leases(void **state)
{
	static const unsigned holds_for[] = {3, SPACE_LEASES - 1, SPACE_LEASES + 1, 1000};

	(void)state;
	for (unsigned i = 0; i < 3 * VB_ARRAY_SIZE(holds_for); i++) {
		unsigned leases = holds_for[i / 3];
		bool left = leases > SPACE_LEASES;
		struct ghost_test t;
		uint64_t waited;

		give_up_and_close(&t, mortal[i % 3], leases * LEASE_NS);
		waited = close_mine(&t);
		if (left)
			leases = SPACE_LEASES;
		assert_in_range(waited, leases * LEASE_NS, leases * LEASE_NS + LEASE_NS / 2);
		assert_int_equal(t.left_lines, left);
		assert_int_equal(t.waits_lines, 0);
		end_ghost_test(&t);
		/* Who was not waited for has left the queue of some protocols broken. */
		if (!left)
			assert_int_equal(t.err, 0);
	}
}

/* In real time, which the simulator's stands for here: as long as it is held, and it is said. */
static void test_space_says_that_it_waits(void **state)
{
	static const unsigned says[] = {0, 1, 3};

	(void)state;
	for (unsigned i = 0; i < 9; i++) {
		unsigned lines = says[i / 3];
		struct ghost_test t;
		uint64_t waited;

		give_up_and_close(&t, mortal[i % 3], lines * SAY_NS + SAY_NS / 2);
		t.f->caps.flags &= ~VB_CAP_VIRTUAL;
		waited = close_mine(&t);
		t.f->caps.flags |= VB_CAP_VIRTUAL;
		assert_in_range(waited, t.hold_ns, t.hold_ns + SAY_NS / 100);
		assert_int_equal(t.waits_lines, lines);
		assert_int_equal(t.left_lines, 0);
		end_ghost_test(&t);
		assert_int_equal(t.err, 0);
	}
}

/* ---- no memory for a proxy ---- */

/* As long as it lasts no stack can be mapped. */
static struct rlimit forbid_memory(void)
{
	struct rlimit was, none;

	assert_int_equal(getrlimit(RLIMIT_AS, &was), 0);
	none = (struct rlimit){.rlim_cur = 1 << 20, .rlim_max = was.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_AS, &none), 0);
	return was;
}

static void waits_without_a_proxy(void *arg)
{
	struct proxy_test *t = arg;
	struct vb_lock_client *me = client(t, 1);
	char said[1024] = "";
	struct rlimit was;
	struct vb_grant g;

	t->waiter = me;
	must(t, vb_ep_sleep(me->ep, 2000), 0);
	vb_stack_trim(me->ep->sched);
	was = forbid_memory();
	vb_log_capture_begin(said, sizeof(said));
	must(t, vb_lock_acquire(me, 0, VB_EXCLUSIVE, PATIENCE, &g), 0);
	vb_log_capture_end();
	assert_int_equal(setrlimit(RLIMIT_AS, &was), 0);
	if (strstr(said, "no memory for who would wait for lock 0") == NULL)
		fail_msg("%s: '%s'", t->lock, said);
	/* It was granted at its turn, long after its deadline. */
	assert_true(vb_ep_now(me->ep) >= HOLD_NS);
	must(t, vb_lock_release(me, &g), 0);
	vb_lock_client_close(me);
	t->done++;
}

static void asks_meanwhile(void *arg)
{
	struct proxy_test *t = arg;
	struct vb_lock_client *me = client(t, 2);
	struct vb_grant g;

	must(t, vb_ep_sleep(me->ep, 2000 + 2 * PATIENCE), 0);
	vb_log_mute();
	must(t, vb_lock_try(t->waiter, 0, VB_EXCLUSIVE, &g), -EDEADLK);
	must(t, vb_lock_acquire(t->waiter, 0, VB_EXCLUSIVE, PATIENCE, &g), -EDEADLK);
	vb_log_unmute();
	vb_lock_client_close(me);
	t->done++;
}

/* Then the client stands in the queue itself, and nothing of it can be taken over. */
static void test_no_memory(void **state)
{
	static const char *const locks[] = {"mcs", "ncosed", "dslr"};

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		const struct vb_lock_space_params p = {
			.lock = locks[i], .locks = LOCKS, .lease_ns = LEASE_NS};
		struct proxy_test t = {.lock = locks[i]};
		struct vb_fabric *f = cluster("profile=cx5", 2, 1);

		must(&t, vb_lock_space_open(f, &p, &t.space), 0);
		spawn(first_holder, &t);
		spawn(waits_without_a_proxy, &t);
		spawn(asks_meanwhile, &t);
		run_all();
		assert_int_equal(t.done, 3);
		vb_lock_space_close(t.space);
		vb_fabric_close(f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mcs),
		cmocka_unit_test(test_ncosed),
		cmocka_unit_test(test_dslr),
		cmocka_unit_test(test_dslr_update),
		cmocka_unit_test(test_shiftlock),
		cmocka_unit_test(test_left_behind),
		cmocka_unit_test(test_close_in_two_leases),
		cmocka_unit_test(test_space_waits_64_leases),
		cmocka_unit_test(test_space_says_that_it_waits),
		cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests_name("proxy", tests, NULL, NULL);
}
