/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases of several slots, and update locks, in virtual time: who waits how long for a holder that
 * is dead, what the last ticket before a reset of the counters counts, what an update lock waits
 * for.
 */
#include "sim_test.h"

#define VB_LOG_ROOM "test"
#include "base/log.h"
#include "fabric/sim/sim.h"
#include "lock/dslr/update.h"
#include "lock/lock.h"

#define LEASE 200000ull /* ns */
#define LOCK  0

struct scene {
	struct vb_fabric *f;
	struct vb_lock_space *space;
	struct vb_lock_client *first, *second, *third;
	uint64_t began, took[3]; /* by whom, how long after `began` */
	bool done[3];
};

static void open_scene(struct scene *s, const char *lock, const char *options)
{
	struct vb_lock_space_params p = {
		.lock = lock, .options = options, .locks = 1, .lease_ns = LEASE};

	*s = (struct scene){.f = cluster("profile=cx5,bound=50us", 2, 3)};
	assert_int_equal(vb_lock_space_open(s->f, &p, &s->space), 0);
	assert_int_equal(vb_lock_client_open(s->space, 1, &s->first), 0);
	assert_int_equal(vb_lock_client_open(s->space, 1, &s->second), 0);
	assert_int_equal(vb_lock_client_open(s->space, 1, &s->third), 0);
}

static void close_scene(struct scene *s)
{
	vb_lock_client_close(s->first);
	vb_lock_client_close(s->second);
	vb_lock_client_close(s->third);
	vb_lock_space_close(s->space);
	vb_fabric_close(s->f);
}

static uint64_t word_of(struct scene *s)
{
	return peek(s->f, vb_lock_entry(s->space, LOCK));
}

static void take(struct vb_lock_client *me, enum vb_mode mode, uint64_t leases, struct vb_grant *g)
{
	assert_int_equal(vb_lock_acquire_for(me, LOCK, mode, leases * LEASE, VB_FOREVER_NS, g), 0);
}

static void wait_as(struct scene *s, unsigned i, struct vb_lock_client *me, enum vb_mode mode)
{
	struct vb_grant g;

	take(me, mode, 1, &g);
	s->took[i] = vb_lock_now(me) - s->began;
	assert_int_equal(vb_lock_release(me, &g), 0);
	s->done[i] = true;
}

static void second_writes(void *arg)
{
	struct scene *s = arg;

	wait_as(s, 1, s->second, VB_EXCLUSIVE);
}

static void third_reads(void *arg)
{
	struct scene *s = arg;

	wait_as(s, 2, s->third, VB_SHARED);
}

static void until(struct vb_lock_client *me, uint64_t at)
{
	assert_int_equal(vb_ep_sleep_until(me->ep, at), 0);
}

/* ---- slots ---- */

/* A holder that lives has all of its leases, in each mode, before waiters in each mode. */
static void test_a_long_lease_is_kept(void **state)
{
	static const char *const locks[] = {"dslr", "dslr-update"};

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		struct scene s;
		struct vb_grant g;

		open_scene(&s, locks[i / 2], "slots=4");
		take(s.first, i % 2 ? VB_SHARED : VB_EXCLUSIVE, 4, &g);
		s.began = vb_lock_now(s.first);
		assert_in_range(g.valid_until_ns - s.began, 4 * LEASE - 20000, 4 * LEASE);
		spawn(second_writes, &s);
		spawn(third_reads, &s);
		until(s.first, g.valid_until_ns - 10000);
		assert_false(s.done[1]);
		assert_int_equal(s.second->recoveries + s.third->recoveries, 0);
		assert_int_equal(vb_lock_release(s.first, &g), 0);
		while (!s.done[1] || !s.done[2])
			until(s.first, vb_lock_now(s.first) + LEASE);
		assert_int_equal(s.second->recoveries + s.third->recoveries, 0);
		close_scene(&s);
	}
}

/* Two leases for each slot that the dead has; not for each that somebody could have. */
static void test_the_dead_cost_their_own_slots(void **state)
{
	static const struct {
		const char *lock, *options;
		enum vb_mode mode;
		unsigned held, costs;
	} cases[] = {
		{"dslr", "slots=8", VB_EXCLUSIVE, 3, 3},
		{"dslr", "slots=8", VB_SHARED, 3, 3},
		{"dslr", "slots=8", VB_EXCLUSIVE, 1, 1},
		{"dslr", "slots=8", VB_EXCLUSIVE, 8, 8},
		{"dslr-update", "slots=8", VB_EXCLUSIVE, 3, 3},
		{"dslr-update", "slots=8", VB_UPDATE, 3, 3},
		{"dslr-update", "slots=8", VB_SHARED, 1, 1},
	};

	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(cases); i++) {
		struct scene s;
		struct vb_grant g;

		open_scene(&s, cases[i].lock, cases[i].options);
		take(s.first, cases[i].mode, cases[i].held, &g);
		vb_lock_abandon(s.first, &g);
		s.began = vb_lock_now(s.first);
		second_writes(&s);
		assert_in_range(s.took[1], 2 * cases[i].costs * LEASE,
				(2 * cases[i].costs + 1) * LEASE);
		assert_int_equal(s.second->recoveries, 1);
		close_scene(&s);
	}
}

/* Many stand ahead, and nobody waits longer than the longest grant of the space asks for. */
static void test_a_queue_of_the_dead_is_bounded(void **state)
{
	struct scene s;
	struct vb_grant g;

	(void)state;
	open_scene(&s, "dslr", "slots=2");
	for (unsigned i = 0; i < 20; i++) {
		take(s.first, VB_SHARED, 2, &g);
		vb_lock_abandon(s.first, &g);
	}
	s.began = vb_lock_now(s.first);
	second_writes(&s);
	assert_in_range(s.took[1], 4 * LEASE, 5 * LEASE);
	close_scene(&s);
}

/*
 * The ticket that reaches COUNT_MAX has two slots, of which one is beyond it.  Were both counted,
 * the counter would pass COUNT_MAX while the other reader is still there, or never reach it.
 */
static void test_the_last_ticket_counts_what_is_left(void **state)
{
	struct scene s;
	struct vb_grant one, two;

	(void)state;
	open_scene(&s, "dslr", "slots=2,count_max=2048");
	for (unsigned i = 0; i < 1023; i++) {
		take(s.first, VB_SHARED, 2, &one);
		assert_int_equal(vb_lock_release(s.first, &one), 0);
	}
	take(s.first, VB_SHARED, 1, &one);
	take(s.second, VB_SHARED, 2, &two);
	assert_int_equal(dslr_max_s(word_of(&s)), 2049);
	assert_int_equal(vb_lock_release(s.second, &two), 0);
	assert_int_equal(dslr_n_s(word_of(&s)), 2047);
	s.began = vb_lock_now(s.first);
	spawn(second_writes, &s);
	until(s.first, s.began + LEASE / 4);
	assert_false(s.done[1]);
	assert_int_equal(vb_lock_release(s.first, &one), 0);
	while (!s.done[1])
		until(s.first, vb_lock_now(s.first) + LEASE);
	assert_true(s.took[1] < 2 * LEASE);
	assert_int_equal(s.second->recoveries, 0);
	close_scene(&s);
}

static void expect_open(int expected, const char *lock, const char *options, const char *says)
{
	struct vb_lock_space_params p = {
		.lock = lock, .options = options, .locks = 1, .lease_ns = LEASE, .name = "other"};
	struct vb_fabric *f = cluster("profile=cx5,bound=50us", 2, 3);
	struct vb_lock_space *space = NULL;
	char said[512] = "";

	vb_log_capture_begin(said, sizeof(said));
	assert_int_equal(vb_lock_space_open(f, &p, &space), expected);
	vb_log_capture_end();
	if (expected != 0)
		assert_non_null(strstr(said, says));
	vb_lock_space_close(space);
	vb_fabric_close(f);
}

static void test_what_is_refused(void **state)
{
	struct vb_lock_space_params again = {
		.lock = "dslr", .options = "slots=2", .locks = 1, .lease_ns = LEASE};
	struct vb_lock_space *other = NULL;
	char said[512] = "";
	struct scene s;
	struct vb_grant g;

	(void)state;
	expect_open(-EINVAL, "dslr", "slots=33", "slots");
	expect_open(-EINVAL, "dslr", "slots=4,count_max=2048", "count_max");
	expect_open(0, "dslr", "slots=2,count_max=2048", "");
	expect_open(-EINVAL, "dslr-as-published", "slots=2", "slots");
	open_scene(&s, "dslr", "slots=4");
	vb_log_capture_begin(said, sizeof(said));
	assert_int_equal(vb_lock_space_open(s.f, &again, &other), -EINVAL);
	assert_int_equal(vb_lock_acquire_for(s.first, LOCK, VB_SHARED, 4 * LEASE + 1, 0, &g),
			 -EINVAL);
	assert_non_null(strstr(said, "slots"));
	vb_log_capture_end();
	assert_int_equal(vb_lock_hold_max_ns(s.first, VB_SHARED), 4 * LEASE);
	/* Rounded up to whole leases. */
	assert_int_equal(
		vb_lock_acquire_for(s.first, LOCK, VB_EXCLUSIVE, LEASE + 1, VB_FOREVER_NS, &g), 0);
	assert_in_range(g.valid_until_ns - vb_lock_now(s.first), 2 * LEASE - 20000, 2 * LEASE);
	assert_int_equal(vb_lock_release(s.first, &g), 0);
	close_scene(&s);
}

/* A proxy's place is taken over only if its ticket has slots enough. */
static void test_a_proxy_of_fewer_slots(void **state)
{
	struct scene s;
	struct vb_grant g, mine;

	(void)state;
	open_scene(&s, "dslr", "slots=4");
	take(s.first, VB_EXCLUSIVE, 1, &g);
	assert_int_equal(
		vb_lock_acquire_for(s.second, LOCK, VB_EXCLUSIVE, LEASE, LEASE / 10, &mine),
		-ETIMEDOUT);
	assert_int_equal(vb_lock_release(s.first, &g), 0);
	take(s.second, VB_EXCLUSIVE, 3, &mine);
	assert_true(mine.valid_until_ns - vb_lock_now(s.second) > 2 * LEASE);
	assert_int_equal(vb_lock_release(s.second, &mine), 0);
	assert_int_equal(dslr_n_x(word_of(&s)), 1 + 1 + 3);
	close_scene(&s);
}

/*
 * A reader stands still; a writer resets the word, readers take it to COUNT_MAX and it is zeroed;
 * another reader holds ticket 0.  The first one's ticket was 0, too: its release must not count as
 * that one's.
 */
static void test_the_numbers_come_round(void **state)
{
	struct vb_grant stands, g;
	struct scene s;
	uint64_t before;

	(void)state;
	open_scene(&s, "dslr", "count_max=1024");
	take(s.first, VB_SHARED, 1, &stands);
	s.began = vb_lock_now(s.first);
	second_writes(&s);
	assert_int_equal(s.second->recoveries, 1);
	while (word_of(&s) != 0) {
		take(s.third, VB_SHARED, 1, &g);
		assert_int_equal(vb_lock_release(s.third, &g), 0);
	}
	take(s.third, VB_SHARED, 1, &g);
	before = word_of(&s);
	assert_int_equal(vb_lock_release(s.first, &stands), -VB_ELOST);
	assert_int_equal(word_of(&s), before);
	assert_int_equal(vb_lock_try(s.second, LOCK, VB_EXCLUSIVE, &stands), -EAGAIN);
	assert_int_equal(vb_lock_release(s.third, &g), 0);
	close_scene(&s);
}

/* ---- update ---- */

/* Beside the readers before it; they keep it from writing, and it keeps everybody else out. */
static void test_update_beside_readers(void **state)
{
	struct scene s;
	struct vb_grant reader, u, other;

	(void)state;
	open_scene(&s, "dslr-update", NULL);
	take(s.first, VB_SHARED, 1, &reader);
	take(s.second, VB_UPDATE, 1, &u);
	assert_int_equal(u.mode, VB_UPDATE);
	assert_int_equal(vb_lock_try(s.third, LOCK, VB_SHARED, &other), -EAGAIN);
	assert_int_equal(vb_lock_try(s.third, LOCK, VB_UPDATE, &other), -EAGAIN);
	assert_int_equal(vb_lock_try(s.third, LOCK, VB_EXCLUSIVE, &other), -EAGAIN);
	assert_int_equal(vb_lock_convert(s.second, &u, VB_EXCLUSIVE, 20000), -ETIMEDOUT);
	assert_int_equal(u.mode, VB_UPDATE);
	assert_int_equal(vb_lock_release(s.first, &reader), 0);
	assert_int_equal(vb_lock_convert(s.second, &u, VB_EXCLUSIVE, 20000), 0);
	assert_int_equal(u.mode, VB_EXCLUSIVE);
	assert_int_equal(vb_lock_try(s.third, LOCK, VB_SHARED, &other), -EAGAIN);
	assert_int_equal(vb_lock_convert(s.second, &u, VB_UPDATE, 0), 0);
	assert_int_equal(u.mode, VB_UPDATE);
	assert_int_equal(vb_lock_release(s.second, &u), 0);
	assert_int_equal(vb_lock_try(s.third, LOCK, VB_EXCLUSIVE, &other), 0);
	assert_int_equal(vb_lock_release(s.third, &other), 0);
	close_scene(&s);
}

/* To less there is nothing to ask, and no answer to lose.  Of one to more nothing may be heard: what was
 * held is held. */
static void test_unheard_conversions(void **state)
{
	static const struct vb_sim_faults none, lose = {.lose = 1.0};
	struct vb_grant reader, u, other;
	struct scene s;

	(void)state;
	open_scene(&s, "dslr-update", NULL);
	take(s.first, VB_SHARED, 1, &reader);
	take(s.second, VB_UPDATE, 1, &u);
	vb_sim_set_faults(s.f, &lose);
	assert_int_equal(vb_lock_convert(s.second, &u, VB_EXCLUSIVE, 20000), -ETIMEDOUT);
	vb_sim_set_faults(s.f, &none);
	assert_int_equal(u.mode, VB_UPDATE);
	assert_true(vb_lock_valid(s.second, &u));
	assert_int_equal(vb_lock_try(s.third, LOCK, VB_UPDATE, &other), -EAGAIN);
	assert_int_equal(vb_lock_release(s.first, &reader), 0);
	assert_int_equal(vb_lock_convert(s.second, &u, VB_EXCLUSIVE, VB_FOREVER_NS), 0);
	vb_sim_set_faults(s.f, &lose);
	assert_int_equal(vb_lock_convert(s.second, &u, VB_UPDATE, VB_FOREVER_NS), 0);
	vb_sim_set_faults(s.f, &none);
	assert_true(vb_lock_valid(s.second, &u));
	assert_int_equal(vb_lock_try(s.third, LOCK, VB_SHARED, &other), -EAGAIN);
	assert_int_equal(vb_lock_release(s.second, &u), 0);
	close_scene(&s);
}

static void test_no_way_from_shared(void **state)
{
	char said[512] = "";
	struct vb_grant g;
	struct scene s;

	(void)state;
	open_scene(&s, "dslr-update", NULL);
	vb_log_capture_begin(said, sizeof(said));
	take(s.first, VB_SHARED, 1, &g);
	assert_int_equal(vb_lock_convert(s.first, &g, VB_EXCLUSIVE, 0), -EOPNOTSUPP);
	assert_int_equal(vb_lock_convert(s.first, &g, VB_UPDATE, 0), -EOPNOTSUPP);
	assert_int_equal(vb_lock_release(s.first, &g), 0);
	take(s.first, VB_UPDATE, 1, &g);
	assert_int_equal(vb_lock_convert(s.first, &g, VB_SHARED, 0), -EOPNOTSUPP);
	vb_log_capture_end();
	assert_non_null(strstr(said, "update"));
	assert_int_equal(vb_lock_release(s.first, &g), 0);
	close_scene(&s);
}

/*
 * A reader in the queue: the writer before it leaves, and before it looks again an update lock
 * comes and goes.  Its turn has come all the same.
 */
static void update_in_passing(void *arg)
{
	struct scene *s = arg;
	struct vb_grant g;

	take(s->second, VB_UPDATE, 1, &g);
	assert_int_equal(vb_lock_release(s->second, &g), 0);
	s->done[1] = true;
}

static void test_update_passes_a_reader(void **state)
{
	struct vb_grant g;
	struct scene s;

	(void)state;
	open_scene(&s, "dslr-update", "omega=20us");
	take(s.first, VB_EXCLUSIVE, 1, &g);
	s.began = vb_lock_now(s.first);
	spawn(third_reads, &s);
	while (s.third->retries == 0)
		until(s.first, vb_lock_now(s.first) + 1000);
	assert_int_equal(vb_lock_release(s.first, &g), 0);
	update_in_passing(&s);
	assert_int_equal(upd_n_w(word_of(&s)), 2);
	assert_false(s.done[2]);
	while (!s.done[1] || !s.done[2])
		until(s.first, vb_lock_now(s.first) + LEASE);
	assert_int_equal(s.second->lost + s.third->lost, 0);
	assert_int_equal(s.second->recoveries + s.third->recoveries, 0);
	assert_true(s.took[2] < LEASE);
	close_scene(&s);
}

/* Alone with a reader that is dead: gets past it in two leases, and keeps the lock. */
static void test_convert_past_the_dead(void **state)
{
	struct vb_grant dead, u;
	struct scene s;

	(void)state;
	open_scene(&s, "dslr-update", NULL);
	take(s.first, VB_SHARED, 1, &dead);
	vb_lock_abandon(s.first, &dead);
	take(s.second, VB_UPDATE, 1, &u);
	s.began = vb_lock_now(s.second);
	spawn(third_reads, &s);
	assert_int_equal(vb_lock_convert(s.second, &u, VB_EXCLUSIVE, VB_FOREVER_NS), 0);
	assert_in_range(vb_lock_now(s.second) - s.began, 2 * LEASE, 3 * LEASE);
	assert_true(vb_lock_valid(s.second, &u));
	assert_int_equal(s.second->recoveries, 1);
	assert_int_equal(upd_era(word_of(&s)), 1);
	until(s.second, u.valid_until_ns - 20000);
	assert_false(s.done[2]);
	assert_int_equal(vb_lock_release(s.second, &u), 0);
	while (!s.done[2])
		until(s.second, vb_lock_now(s.second) + LEASE);
	close_scene(&s);
}

/* With the last ticket before a reset it waits for the readers at once: its release clears the
 * word. */
static void test_the_last_update_ticket(void **state)
{
	struct vb_grant reader, u;
	struct scene s;

	(void)state;
	open_scene(&s, "dslr-update", "count_max=1024");
	for (unsigned i = 0; i < 1023; i++) {
		take(s.first, VB_UPDATE, 1, &u);
		assert_int_equal(vb_lock_release(s.first, &u), 0);
	}
	take(s.first, VB_SHARED, 1, &reader);
	assert_int_equal(vb_lock_try(s.second, LOCK, VB_UPDATE, &u), -EAGAIN);
	assert_int_equal(vb_lock_acquire(s.second, LOCK, VB_UPDATE, LEASE / 4, &u), -ETIMEDOUT);
	assert_int_equal(vb_lock_release(s.first, &reader), 0);
	take(s.second, VB_UPDATE, 1, &u);
	assert_int_equal(vb_lock_release(s.second, &u), 0);
	assert_int_equal(word_of(&s), upd_word(1, 0, 0, 0, 0));
	close_scene(&s);
}

/* A release so late that 256 resets could have come leaves the word to the others. */
static void test_a_release_after_the_era(void **state)
{
	static const enum vb_mode modes[] = {VB_SHARED, VB_EXCLUSIVE, VB_UPDATE};

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		struct vb_grant g;
		struct scene s;
		uint64_t before;

		open_scene(&s, "dslr-update", NULL);
		take(s.first, modes[i], 1, &g);
		until(s.first, g.valid_until_ns + LEASE);
		assert_int_equal(vb_lock_release(s.first, &g), 0);
		take(s.first, modes[i], 1, &g);
		until(s.first, g.valid_until_ns + 5 * LEASE);
		before = word_of(&s);
		assert_int_equal(vb_lock_release(s.first, &g), -VB_ELOST);
		assert_int_equal(word_of(&s), before);
		close_scene(&s);
	}
}

/* ---- pauses ---- */

struct pace {
	struct vb_lock_client *waiter;
	uint64_t rtt_ns, granted_ns;
	bool done;
};

static void paced_writer(void *arg)
{
	struct pace *p = arg;
	struct vb_grant g;

	take(p->waiter, VB_EXCLUSIVE, 1, &g);
	p->granted_ns = vb_lock_now(p->waiter);
	assert_int_equal(vb_lock_release(p->waiter, &g), 0);
	p->done = true;
}

/* How often a writer looks while another holds the lock for `rtts` round trips, and how late it is
 * then, in round trips. */
static uint64_t looks_of(const char *profile, const char *lock, const char *options, uint64_t rtts,
			 double *late)
{
	struct vb_lock_space_params p = {
		.lock = lock, .options = options, .locks = 1, .lease_ns = 100000000};
	struct vb_lock_space *space;
	struct vb_lock_client *first;
	struct pace pace = {0};
	struct vb_grant g;
	uint64_t end;
	char text[64];

	snprintf(text, sizeof(text), "profile=%s", profile);
	struct vb_fabric *f = cluster(text, 2, 3);

	assert_int_equal(vb_lock_space_open(f, &p, &space), 0);
	assert_int_equal(vb_lock_client_open(space, 1, &first), 0);
	assert_int_equal(vb_lock_client_open(space, 1, &pace.waiter), 0);
	pace.rtt_ns = f->caps.rtt_ns;
	take(first, VB_EXCLUSIVE, 1, &g);
	end = vb_lock_now(first) + rtts * pace.rtt_ns;
	spawn(paced_writer, &pace);
	until(first, end);
	assert_int_equal(vb_lock_release(first, &g), 0);
	while (!pace.done)
		until(first, vb_lock_now(first) + 1000);
	*late = ((double)pace.granted_ns - (double)end) / (double)pace.rtt_ns;
	end = pace.waiter->retries;
	vb_lock_client_close(pace.waiter);
	vb_lock_client_close(first);
	vb_lock_space_close(space);
	vb_fabric_close(f);
	return end;
}

/* Pauses follow the network's round trip, and grow with how long the holder has held: a hold of a
 * thousand round trips costs a few dozen looks on each network, where a fixed pause costs hundreds
 * on one and is far too long on another. */
static void test_pauses_follow_the_network(void **state)
{
	static const char *const locks[] = {"dslr", "dslr-update"};

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		for (unsigned j = 0; j < vb_sim_profile_count; j++) {
			double late;
			uint64_t few = looks_of(vb_sim_profiles[j].name, locks[i], NULL, 10, &late);

			assert_in_range(few, 3, 12);
			assert_true(late < 5);
			few = looks_of(vb_sim_profiles[j].name, locks[i], NULL, 1000, &late);
			assert_in_range(few, 10, 50);
			assert_true(late < 1000 / 4 + 5);
		}
	}
}

/* Who names omega gets the paper's rule and nothing else. */
static void test_an_omega_that_was_asked_for(void **state)
{
	double late;

	(void)state;
	/* The first look is a pause after the ticket; each costs a round trip of 1.7 us as well. */
	assert_in_range(looks_of("cx5", "dslr", "omega=5us", 1000, &late), 1000 * 17 / 70,
			1000 * 17 / 60);
	assert_in_range(looks_of("cx5", "dslr", "omega=100us", 1000, &late), 15, 18);
	assert_true(looks_of("cx5", "dslr", "omega=0", 1000, &late) > 700);
}

/* Readers come and leave together: behind many of them a writer looks as often as behind one. */
static void test_readers_are_one_turn(void **state)
{
	uint64_t looks[2];

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct vb_grant g;
		struct scene s;

		open_scene(&s, "dslr", "slots=16");
		take(s.first, VB_SHARED, i ? 16 : 1, &g); /* as 16 readers would */
		s.began = vb_lock_now(s.first);
		spawn(second_writes, &s);
		until(s.first, s.began + 20000);
		looks[i] = s.second->retries;
		assert_int_equal(vb_lock_release(s.first, &g), 0);
		while (!s.done[1])
			until(s.first, vb_lock_now(s.first) + LEASE);
		close_scene(&s);
	}
	assert_true(looks[0] > 3);
	assert_int_equal(looks[1], looks[0]);
}

/* A lease may be shorter than a sleep: who waits for the dead looks often enough to tell. */
static void test_leases_shorter_than_a_sleep(void **state)
{
	struct vb_lock_space_params p = {.lock = "dslr", .locks = 1, .lease_ns = 60000};
	struct vb_fabric_params shm = {.fabric = "shm"};
	struct vb_lock_client *dead, *me;
	struct vb_lock_space *space;
	struct vb_fabric *f;
	struct vb_grant g;

	(void)state;
	assert_int_equal(vb_fabric_open(&shm, &f), 0);
	assert_int_equal(vb_lock_space_open(f, &p, &space), 0);
	assert_int_equal(vb_lock_client_open(space, 0, &dead), 0);
	assert_int_equal(vb_lock_client_open(space, 0, &me), 0);
	assert_int_equal(vb_lock_acquire(dead, LOCK, VB_EXCLUSIVE, VB_FOREVER_NS, &g), 0);
	vb_lock_abandon(dead, &g);
	assert_int_equal(vb_lock_acquire(me, LOCK, VB_EXCLUSIVE, 2000000000ull, &g), 0);
	assert_true(me->recoveries > 0);
	(void)vb_lock_release(me, &g);
	vb_lock_client_close(me);
	vb_lock_client_close(dead);
	vb_lock_space_close(space);
	vb_fabric_close(f);
}

/* Leases that nobody chose suit the fabric. */
static void test_leases_by_default(void **state)
{
	struct vb_lock_space_params p = {.lock = "dslr", .locks = 1};
	struct vb_fabric_params shm = {.fabric = "shm"};
	struct vb_lock_space *space;
	struct vb_fabric *f;

	(void)state;
	f = cluster("profile=cx5", 1, 1);
	assert_int_equal(vb_lock_space_open(f, &p, &space), 0);
	assert_int_equal(space->lease_ns, 10000000);
	vb_lock_space_close(space);
	vb_fabric_close(f);
	f = cluster("profile=cx5,bound=30ms", 1, 1);
	assert_int_equal(vb_lock_space_open(f, &p, &space), 0);
	assert_int_equal(space->lease_ns, 120000000);
	vb_lock_space_close(space);
	vb_fabric_close(f);
	assert_int_equal(vb_fabric_open(&shm, &f), 0);
	assert_int_equal(vb_lock_space_open(f, &p, &space), 0);
	assert_int_equal(space->lease_ns, 200000000);
	vb_lock_space_close(space);
	vb_fabric_close(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_long_lease_is_kept),
		cmocka_unit_test(test_pauses_follow_the_network),
		cmocka_unit_test(test_an_omega_that_was_asked_for),
		cmocka_unit_test(test_readers_are_one_turn),
		cmocka_unit_test(test_leases_by_default),
		cmocka_unit_test(test_leases_shorter_than_a_sleep),
		cmocka_unit_test(test_the_dead_cost_their_own_slots),
		cmocka_unit_test(test_a_queue_of_the_dead_is_bounded),
		cmocka_unit_test(test_the_last_ticket_counts_what_is_left),
		cmocka_unit_test(test_what_is_refused),
		cmocka_unit_test(test_a_proxy_of_fewer_slots),
		cmocka_unit_test(test_the_numbers_come_round),
		cmocka_unit_test(test_update_beside_readers),
		cmocka_unit_test(test_unheard_conversions),
		cmocka_unit_test(test_no_way_from_shared),
		cmocka_unit_test(test_update_passes_a_reader),
		cmocka_unit_test(test_convert_past_the_dead),
		cmocka_unit_test(test_the_last_update_ticket),
		cmocka_unit_test(test_a_release_after_the_era),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
