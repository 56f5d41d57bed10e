/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Releases and requests whose answers are lost, of holders that are cancelled and of holders that
 * are not.  A verb whose answer was lost may land long after its sender was told, and its sender may
 * be back by then: it must not take a lock away, or leave one behind.
 */
#include "sim_test.h"

#include <errno.h>

#include "base/log.h"
#include "lock/lock.h"

#define SEEDS 40

static const struct vb_sim_faults none, lose = {.lose = 1.0}, early = {.early = 1.0};

struct story {
	const char *lock;
	enum vb_mode mode;
	const struct vb_sim_faults *faults;
	uint64_t faults_ns; /* how long they last */
	bool cancelled;
	struct vb_fabric *f;
	struct vb_lock_space *space;
	struct vb_lock_client *holder, *next;
	struct vb_task *holds;
	bool held;
	int released, got;
};

static void story_open(struct story *s, uint64_t seed)
{
	const struct vb_lock_space_params p = {.lock = s->lock, .locks = 8};

	s->f = cluster("profile=cx5", 3, seed);
	assert_int_equal(vb_lock_space_open(s->f, &p, &s->space), 0);
	assert_int_equal(vb_lock_client_open(s->space, 1, &s->holder), 0);
	assert_int_equal(vb_lock_client_open(s->space, 2, &s->next), 0);
	s->held = false;
	s->released = s->got = -1;
}

static void story_close(struct story *s)
{
	vb_sched_kill_all(vb_sched_self());
	vb_lock_client_bury(s->holder);
	vb_lock_client_bury(s->next);
	vb_lock_space_close(s->space);
	vb_fabric_close(s->f);
	vb_sched_destroy(vb_sched_self());
}

static void run_for(uint64_t ns)
{
	(void)vb_sched_run(vb_sched_self(), NULL, now() + ns);
}

static void heals(void *arg)
{
	struct story *s = arg;

	vb_task_sleep_until(now() + s->faults_ns);
	vb_sim_set_faults(s->f, &none);
}

static void holds(void *arg)
{
	struct story *s = arg;
	struct vb_grant g;

	assert_int_equal(vb_lock_acquire(s->holder, 3, s->mode, VB_FOREVER_NS, &g), 0);
	s->held = true;
	vb_ep_sleep(s->holder->ep, 10000000); /* ends at once where it is cancelled */
	vb_sim_set_faults(s->f, s->faults);
	spawn(heals, s);
	s->released = vb_lock_release(s->holder, &g);
}

static void comes_next(void *arg)
{
	struct story *s = arg;
	struct vb_grant g;

	s->got = vb_lock_acquire(s->next, 3, VB_EXCLUSIVE, 1000000000, &g);
	if (s->got == 0)
		s->got = vb_lock_release(s->next, &g);
}

/* The network is ill for a moment at the release and well again: nobody may notice. */
static void one_release(struct story *s, uint64_t seed)
{
	char said[4096];

	story_open(s, seed);
	vb_log_capture_begin(said, sizeof(said));
	assert_int_equal(vb_task_spawn(vb_sched_self(), holds, s, NULL, &s->holds), 0);
	run_for(1000000);
	assert_true(s->held);
	if (s->cancelled)
		vb_task_cancel(s->holds);
	run_for(400000000);
	spawn(comes_next, s);
	run_for(2000000000);
	vb_log_capture_end();
	if (s->released != 0 || s->got != 0)
		fail_msg("%s, %s, seed %llu: released %d, the next one %d\n%s", s->lock,
			 s->cancelled ? "cancelled" : "not cancelled", (unsigned long long)seed,
			 s->released, s->got, said);
	story_close(s);
}

static void releases_of(const char *lock, enum vb_mode mode)
{
	for (unsigned i = 0; i < 4; i++) {
		struct story s = {
			.lock = lock,
			.mode = mode,
			.faults = i & 1 ? &early : &lose,
			.faults_ns = 5000,
			.cancelled = i & 2,
		};

		for (uint64_t seed = 1; seed <= SEEDS; seed++)
			one_release(&s, seed);
	}
}

static void test_releases(void **state)
{
	releases_of("cas", VB_EXCLUSIVE);
	releases_of("cas-backoff", VB_EXCLUSIVE);
	releases_of("drtm", VB_EXCLUSIVE);
	releases_of("retry-on-fail", VB_EXCLUSIVE);
	releases_of("mcs", VB_EXCLUSIVE);
	releases_of("ncosed", VB_EXCLUSIVE);
	releases_of("rma-rw", VB_EXCLUSIVE);
}

/* ---- the same client comes again ---- */

/*
 * All answers of a release are lost, so that its outcome stays unknown; the same client asks again
 * at once, is granted, and holds.  Nothing of the release may land any more.
 */
static void returns(void *arg)
{
	struct story *s = arg;
	struct vb_grant g;

	assert_int_equal(vb_lock_acquire(s->holder, 3, s->mode, VB_FOREVER_NS, &g), 0);
	vb_sim_set_faults(s->f, s->faults);
	s->released = vb_lock_release(s->holder, &g);
	vb_sim_set_faults(s->f, &none);
	assert_int_equal(s->released, -VB_EUNKNOWN);
	assert_int_equal(vb_lock_acquire(s->holder, 3, s->mode, VB_FOREVER_NS, &g), 0);
	s->held = true;
	assert_int_equal(vb_ep_sleep(s->holder->ep, 2000000000), 0);
	s->held = false;
	assert_int_equal(vb_lock_release(s->holder, &g), 0);
}

static void intrudes(void *arg)
{
	struct story *s = arg;
	struct vb_grant g;

	for (unsigned i = 0; i < 100; i++) {
		assert_int_equal(vb_ep_sleep(s->next->ep, 10000000), 0);
		s->got = vb_lock_try(s->next, 3, VB_EXCLUSIVE, &g);
		if (s->got == 0 && s->held)
			fail_msg("%s: two holders", s->lock);
		assert_int_equal(s->got, s->held ? -EAGAIN : s->got);
		if (s->got == 0)
			return;
	}
}

static void returns_to(const char *lock)
{
	for (unsigned i = 0; i < 2; i++) {
		struct story s = {.lock = lock, .mode = VB_EXCLUSIVE, .faults = i ? &early : &lose};
		char said[4096];

		for (uint64_t seed = 1; seed <= SEEDS; seed++) {
			story_open(&s, seed);
			vb_log_capture_begin(said, sizeof(said));
			spawn(returns, &s);
			run_for(1000000);
			while (!s.held)
				run_for(1000);
			spawn(intrudes, &s);
			run_for(5000000000);
			vb_log_capture_end();
			assert_false(s.held);
			assert_int_equal(s.released, -VB_EUNKNOWN);
			story_close(&s);
		}
	}
}

static void test_returns(void **state)
{
	returns_to("cas");
	returns_to("drtm");
	returns_to("retry-on-fail");
}

/* ---- rma-rw has room for so many readers of a node at a time ---- */

#define RW_NODES 4096 /* at one counter: 16 readers of each */

static void test_openings(void **state)
{
	const struct vb_lock_space_params p = {
		.lock = "rma-rw", .locks = 1, .options = "t_dc=4096"};
	struct vb_lock_client *me[18];
	char said[512] = "";
	struct vb_lock_space *space;
	struct vb_fabric *f = cluster("profile=cx5", RW_NODES, 1);
	struct vb_grant g;

	assert_int_equal(vb_lock_space_open(f, &p, &space), 0);
	for (unsigned i = 0; i < 100; i++) {
		assert_int_equal(vb_lock_client_open(space, 77, &me[0]), 0);
		assert_int_equal(vb_lock_acquire(me[0], 0, VB_SHARED, 1000000, &g), 0);
		assert_int_equal(vb_lock_release(me[0], &g), 0);
		vb_lock_client_close(me[0]);
	}
	for (unsigned i = 0; i < 18; i++)
		assert_int_equal(vb_lock_client_open(space, 77, &me[i]), 0);
	assert_int_equal(vb_lock_try(me[15], 0, VB_SHARED, &g), 0);
	assert_int_equal(vb_lock_release(me[15], &g), 0);
	vb_log_capture_begin(said, sizeof(said));
	assert_int_equal(vb_lock_acquire(me[17], 0, VB_SHARED, 1000000, &g), -ENOSPC);
	vb_log_capture_end();
	assert_non_null(strstr(said, "18 clients of node 77 are open"));
	/* A writer is no reader. */
	assert_int_equal(vb_lock_acquire(me[17], 0, VB_EXCLUSIVE, 1000000, &g), 0);
	assert_int_equal(vb_lock_release(me[17], &g), 0);
	vb_lock_client_close(me[3]);
	assert_int_equal(vb_lock_try(me[17], 0, VB_SHARED, &g), -ENOSPC);
	vb_lock_client_close(me[4]);
	assert_int_equal(vb_lock_try(me[17], 0, VB_SHARED, &g), 0);
	assert_int_equal(vb_lock_release(me[17], &g), 0);
	for (unsigned i = 0; i < 18; i++)
		if (i != 3 && i != 4)
			vb_lock_client_close(me[i]);
	vb_lock_space_close(space);
	vb_fabric_close(f);
	vb_sched_destroy(vb_sched_self());
}

/* ---- an opening while the network is ill ---- */

static void opens(void *arg)
{
	struct story *s = arg;

	vb_sim_set_faults(s->f, s->faults);
	spawn(heals, s);
	s->got = vb_lock_client_open(s->space, 2, &s->next);
}

static void opens_ill(const char *lock, const struct vb_sim_faults *faults)
{
	const struct vb_lock_space_params p = {.lock = lock, .locks = 8};
	struct story s = {.lock = lock, .faults = faults, .faults_ns = 5000, .got = -1};
	struct vb_lock_server *server;

	s.f = cluster("profile=cx5", 3, 1);
	assert_int_equal(vb_lock_space_open(s.f, &p, &s.space), 0);
	assert_int_equal(vb_lock_server_start(s.space, 0, 0, 1, &server), 0);
	spawn(opens, &s);
	run_for(1000000000);
	if (s.got != 0)
		fail_msg("%s: a client that opens when answers are lost: %d", lock, s.got);
	vb_lock_client_close(s.next);
	vb_lock_server_stop(server);
	vb_lock_space_close(s.space);
	vb_fabric_close(s.f);
	vb_sched_destroy(vb_sched_self());
}

/* Those whose opening says something to a server's node. */
static void test_opens_ill(void **state)
{
	static const char *const locks[] = {"rma-rw", "shiftlock", "rpc", "traditional", "table"};

	(void)state;
	for (unsigned i = 0; i < sizeof(locks) / sizeof(locks[0]); i++) {
		opens_ill(locks[i], &lose);
		opens_ill(locks[i], &early);
	}
}

/* ---- a link that is down behind a lost answer ---- */

/* Of an endpoint's next CASes `loses` are done and their answers lost, and the link is down for
 * `refused` after them. */
static struct {
	const struct vb_fabric_ops *real;
	struct vb_fabric_ops ops;
	unsigned loses, refused;
} wire;

static int cas_over_it(struct vb_ep *ep, vb_addr a, uint64_t expect, uint64_t value, uint64_t *old)
{
	bool loses = wire.loses > 0;
	int err;

	if (!loses && wire.refused > 0) {
		wire.refused--;
		return -VB_EPEERGONE;
	}
	wire.loses -= loses;
	ep->ops = wire.real;
	err = vb_cas64(ep, a, expect, value, old);
	ep->ops = &wire.ops;
	return loses ? -VB_EUNKNOWN : err;
}

static void tries(void *arg)
{
	struct story *s = arg;
	struct vb_grant g;

	s->got = vb_lock_try(s->holder, 0, VB_EXCLUSIVE, &g);
	if (s->got == 0)
		s->released = vb_lock_release(s->holder, &g);
}

/* What a try came to, and whether the lock's word names somebody then. */
static int try_over(const char *lock, unsigned loses, unsigned refused, bool *held)
{
	struct story s = {.lock = lock};

	story_open(&s, 1);
	wire.real = s.holder->ep->ops;
	wire.ops = *wire.real;
	wire.ops.cas64 = cas_over_it;
	wire.loses = loses;
	wire.refused = refused;
	s.holder->ep->ops = &wire.ops;
	spawn(tries, &s);
	run_for(1000000000);
	*held = peek(s.f, vb_lock_entry(s.space, 0)) != 0;
	assert_int_equal(s.released, s.got == 0 ? 0 : -1);
	s.holder->ep->ops = wire.real;
	story_close(&s);
	return s.got;
}

/* Refused is not granted; but not behind a CAS that may have been done. */
static void test_refused_behind_a_loss(void **state)
{
	static const char *const locks[] = {"cas", "cas-backoff", "drtm",
					    "mcs", "ncosed",      "retry-on-fail"};
	const unsigned ever = 1000;
	bool held;

	(void)state;
	for (unsigned i = 0; i < sizeof(locks) / sizeof(locks[0]); i++) {
		assert_int_equal(try_over(locks[i], 0, ever, &held), -VB_EPEERGONE);
		assert_false(held);
		assert_int_equal(try_over(locks[i], 1, ever, &held), -VB_EUNKNOWN);
		assert_true(held);
		/* It comes back soon enough. */
		assert_int_equal(try_over(locks[i], 1, 3, &held), 0);
		assert_false(held);
	}
}

/* ---- a group that is let open, and nobody hears it ---- */

static void reads_next(void *arg)
{
	struct story *s = arg;
	struct vb_grant g;

	s->got = vb_lock_acquire(s->next, 3, VB_SHARED, VB_FOREVER_NS, &g);
	if (s->got == 0)
		s->got = vb_lock_release(s->next, &g);
}

/* Its release's first CAS is done and the answer is lost. */
static void releases_unheard(void *arg)
{
	struct story *s = arg;
	struct vb_grant g;

	assert_int_equal(vb_lock_acquire(s->holder, 3, VB_EXCLUSIVE, VB_FOREVER_NS, &g), 0);
	s->held = true;
	vb_ep_sleep(s->holder->ep, 1000000);
	wire.loses = 1;
	s->released = vb_lock_release(s->holder, &g);
}

/* Who asks again finds no writer in the word: the group is open, its readers have the lock at once, and no
 * successor is waited for. */
static void test_group_opened_unheard(void **state)
{
	(void)state;
	for (unsigned readers = 0; readers < 2; readers++) {
		struct story s = {.lock = "ncosed"};

		story_open(&s, 1);
		wire.real = s.holder->ep->ops;
		wire.ops = *wire.real;
		wire.ops.cas64 = cas_over_it;
		wire.loses = wire.refused = 0;
		s.holder->ep->ops = &wire.ops;
		spawn(releases_unheard, &s);
		run_for(500000);
		assert_true(s.held);
		if (readers)
			spawn(reads_next, &s);
		run_for(500000 + 3 * s.f->caps.verb_bound_ns);
		assert_int_equal(wire.loses, 0);
		assert_int_equal(s.released, 0);
		assert_int_equal(s.got, readers ? 0 : -1);
		assert_int_equal(peek(s.f, vb_lock_entry(s.space, 3)), 0);
		s.holder->ep->ops = wire.real;
		story_close(&s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_releases),
		cmocka_unit_test(test_returns),
		cmocka_unit_test(test_openings),
		cmocka_unit_test(test_opens_ill),
		cmocka_unit_test(test_refused_behind_a_loss),
		cmocka_unit_test(test_group_opened_unheard),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
