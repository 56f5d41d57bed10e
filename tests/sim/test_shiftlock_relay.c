/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ShiftLock with handover=relayed: writers who are handed the lock before a release is counted, and what
 * becomes of that when somebody stands still, is late, or is recovered.
 */
#include "sim_test.h"

#include "lock/shiftlock/shiftlock.h"

#define LOCK    0
#define WRITERS 4

static const char *const profiles[] = {"profile=cx5,bound=50us", "profile=plain64,bound=50us"};
#define PLAIN profiles[1]

struct writer {
	struct vb_lock_client *me;
	struct vb_grant g;
	int err;
	bool done;
};

static struct {
	struct vb_fabric *f;
	struct vb_lock_space *space;
	struct vb_lock_server *server;
	struct writer w[WRITERS];
	uint64_t lease;
} s;

static void open_scene(const char *options, uint64_t lease_ns)
{
	const struct vb_lock_space_params p = {.lock = "shiftlock",
					       .options = "handover=relayed,max_writers=100000",
					       .locks = 1,
					       .lease_ns = lease_ns};

	memset(&s, 0, sizeof(s));
	s.lease = lease_ns;
	s.f = cluster(options, 2, 3);
	assert_int_equal(vb_lock_space_open(s.f, &p, &s.space), 0);
	assert_int_equal(vb_lock_server_start(s.space, 0, 0, 1, &s.server), 0);
	for (unsigned i = 0; i < WRITERS; i++)
		assert_int_equal(vb_lock_client_open(s.space, i % 2, &s.w[i].me), 0);
	/* No clock can show what was before it began. */
	assert_int_equal(vb_task_sleep_until(now() + 3 * lease_ns), 0);
}

static void close_scene(void)
{
	for (unsigned i = 0; i < WRITERS; i++)
		vb_lock_client_close(s.w[i].me);
	vb_lock_server_stop(s.server);
	vb_lock_space_close(s.space);
	vb_fabric_close(s.f);
}

static void pass(uint64_t ns)
{
	assert_int_equal(vb_task_sleep_until(now() + ns), 0);
}

static void body(void *arg)
{
	struct writer *w = arg;

	w->err = vb_lock_acquire(w->me, LOCK, VB_EXCLUSIVE, 6000 * s.lease, &w->g);
	w->done = true;
}

/* Writer i is in the queue, and its predecessor has heard of it. */
static void queue(unsigned i)
{
	s.w[i].done = false;
	spawn(body, &s.w[i]);
	pass(s.lease / 16);
}

static void take(unsigned i)
{
	assert_int_equal(vb_lock_try(s.w[i].me, LOCK, VB_EXCLUSIVE, &s.w[i].g), 0);
}

static uint64_t rel_cnt(void)
{
	struct vb_ep *ep = s.w[WRITERS - 1].me->ep;
	vb_addr entry = vb_lock_entry(s.space, LOCK);
	struct vb_u128 e;
	uint64_t guess;

	if (sl_is_plain(s.space))
		assert_int_equal(sl_plain_read(s.space, ep, entry, &e, &guess), 0);
	else
		assert_int_equal(vb_read(ep, entry, &e, sizeof(e)), 0);
	return e.hi;
}

static uint64_t verbs_of(unsigned i)
{
	uint64_t n = 0;

	for (unsigned op = 0; op < VB_OP_COUNT; op++)
		n += s.w[i].me->ep->count[op];
	return n;
}

/* Hands over with one verb, a message; RelCnt stays. */
static void hand_uncounted(unsigned from, unsigned to)
{
	uint64_t verbs = verbs_of(from), sends = s.w[from].me->ep->count[VB_OP_SEND],
		 rel = rel_cnt();

	assert_int_equal(vb_lock_release(s.w[from].me, &s.w[from].g), 0);
	pass(s.lease / 64);
	assert_int_equal(verbs_of(from), verbs + 1);
	assert_int_equal(s.w[from].me->ep->count[VB_OP_SEND], sends + 1);
	assert_int_equal(rel_cnt(), rel);
	assert_true(s.w[to].done);
	assert_int_equal(s.w[to].err, 0);
}

/* Whoever has handed it on may die: the last one counts for all, and tokens grow with every grant. */
static void test_the_last_counts(void **state)
{
	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(profiles); i++) {
		open_scene(profiles[i], 400000);
		take(0);
		queue(1);
		queue(2);
		hand_uncounted(0, 1);
		hand_uncounted(1, 2);
		if (i == 0) {
			assert_int_equal(s.w[1].g.token, s.w[0].g.token + 1);
			assert_int_equal(s.w[2].g.token, s.w[0].g.token + 2);
		}
		assert_int_equal(rel_cnt(), 0);
		assert_int_equal(vb_lock_release(s.w[2].me, &s.w[2].g), 0);
		assert_int_equal(rel_cnt(), 3);
		take(0);
		if (i == 0)
			assert_int_equal(s.w[0].g.token, s.w[2].g.token + 1);
		assert_int_equal(vb_lock_release(s.w[0].me, &s.w[0].g), 0);
		close_scene();
	}
}

/* Behind a holder for whose lease RelCnt has stood for half a lease and more it is counted first, for all. */
static void test_counted_in_time(void **state)
{
	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(profiles); i++) {
		open_scene(profiles[i], 400000);
		take(0);
		queue(1);
		queue(2);
		hand_uncounted(0, 1);
		pass(s.lease / 2);
		assert_int_equal(vb_lock_release(s.w[1].me, &s.w[1].g), 0);
		assert_int_equal(rel_cnt(), 2);
		pass(s.lease / 64);
		assert_true(s.w[2].done);
		/* A whole lease, as any grant. */
		assert_in_range(s.w[2].g.valid_until_ns,
				vb_ep_now(s.w[2].me->ep) + s.lease - s.lease / 16,
				vb_ep_now(s.w[2].me->ep) + s.lease);
		assert_int_equal(vb_lock_release(s.w[2].me, &s.w[2].g), 0);
		close_scene();
	}
}

/*
 * The time is handed on with the lock, also that for which a successor was not heard, which may have told of itself
 * all that long ago: three sixteenths of a lease, twice, and two more, after which it is counted.
 */
static void test_time_adds_up(void **state)
{
	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(profiles); i++) {
		open_scene(profiles[i], 800000);
		take(0);
		for (unsigned w = 1; w < WRITERS; w++)
			queue(w);
		hand_uncounted(0, 1);
		hand_uncounted(1, 2);
		pass(s.lease / 8);
		assert_int_equal(vb_lock_release(s.w[2].me, &s.w[2].g), 0);
		assert_int_equal(rel_cnt(), 3);
		pass(s.lease / 64);
		assert_true(s.w[3].done);
		assert_int_equal(vb_lock_release(s.w[3].me, &s.w[3].g), 0);
		close_scene();
	}
}

/*
 * Between the decision and the message the holder stands still, and so does its successor.  Meanwhile a third has
 * the lock recovered, and holds it when the message comes.
 */
static void test_across_a_recovery(void **state)
{
	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(profiles); i++) {
		uint64_t wakes, sends;

		open_scene(profiles[i], 400000);
		take(0);
		queue(1);
		queue(2);
		sends = s.w[0].me->ep->count[VB_OP_SEND];
		vb_sim_ep_pause(s.w[0].me->ep, now() + 6 * s.lease);
		/* It had the lock until its call, and that is what a release is about.  The message leaves when
		 * it goes on. */
		assert_int_equal(vb_lock_release(s.w[0].me, &s.w[0].g), 0);
		assert_int_equal(s.w[0].me->ep->count[VB_OP_SEND], sends + 1);
		wakes = now() + 7 * s.lease;
		vb_sim_ep_pause(s.w[1].me->ep, wakes);
		pass(5 * s.lease);
		assert_int_equal(s.w[2].me->recoveries, 1);
		assert_true(s.w[2].done);
		pass(1 * s.lease + s.lease / 2);
		(void)vb_lock_release(s.w[2].me, &s.w[2].g);
		take(3);
		pass(wakes + s.lease / 4 - now());
		/* The message is of its generation and waits for it, but the lock is another's. */
		assert_true(vb_lock_valid(s.w[3].me, &s.w[3].g));
		assert_false(s.w[1].done);
		assert_int_equal(s.w[1].me->lost, 1);
		assert_int_equal(vb_lock_release(s.w[3].me, &s.w[3].g), 0);
		pass(s.lease / 4);
		assert_true(s.w[1].done);
		assert_int_equal(s.w[1].err, 0);
		assert_int_equal(vb_lock_release(s.w[1].me, &s.w[1].g), 0);
		close_scene();
	}
}

/* The same without a recovery: who wakes up late counts for those before it, and has the lock for a lease. */
static void test_late_turn_is_counted(void **state)
{
	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(profiles); i++) {
		open_scene(profiles[i], 400000);
		take(0);
		queue(1);
		vb_sim_ep_pause(s.w[1].me->ep, now() + 2 * s.lease);
		assert_int_equal(vb_lock_release(s.w[0].me, &s.w[0].g), 0);
		pass(s.lease);
		assert_int_equal(rel_cnt(), 0);
		pass(s.lease + s.lease / 4);
		assert_true(s.w[1].done);
		assert_int_equal(rel_cnt(), 1);
		assert_true(vb_lock_valid(s.w[1].me, &s.w[1].g));
		assert_int_equal(vb_lock_release(s.w[1].me, &s.w[1].g), 0);
		assert_int_equal(rel_cnt(), 2);
		close_scene();
	}
}

/* A recovery comes between its look, which showed RelCnt as it was, and the CAS that counts: that changes nothing. */
static void test_late_count(void **state)
{
	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(profiles); i++) {
		uint64_t begun, rel;

		open_scene(profiles[i], 400000);
		begun = now();
		take(0);
		queue(1);
		queue(2);
		vb_sim_ep_pause(s.w[1].me->ep, begun + 2 * s.lease);
		assert_int_equal(vb_lock_release(s.w[0].me, &s.w[0].g), 0);
		while (s.w[1].me->ep->count[VB_OP_READ] == 0)
			pass(100);
		vb_sim_ep_pause(s.w[1].me->ep, begun + 8 * s.lease);
		pass(begun + 6 * s.lease - now());
		assert_int_equal(s.w[2].me->recoveries, 1);
		assert_true(s.w[2].done);
		(void)vb_lock_release(s.w[2].me, &s.w[2].g);
		pass(begun + 7 * s.lease - now() + s.lease / 2);
		take(3);
		rel = rel_cnt();
		pass(begun + 8 * s.lease + s.lease / 4 - now());
		assert_int_equal(rel_cnt(), rel);
		assert_int_equal(s.w[1].me->lost, 1);
		assert_false(s.w[1].done);
		assert_int_equal(vb_lock_release(s.w[3].me, &s.w[3].g), 0);
		pass(s.lease / 4);
		assert_true(s.w[1].done);
		assert_int_equal(vb_lock_release(s.w[1].me, &s.w[1].g), 0);
		close_scene();
	}
}

/* Who was handed the lock comes back behind a recovery: it has lost it, and changes nothing. */
static void test_late_release(void **state)
{
	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(profiles); i++) {
		uint64_t rel;

		open_scene(profiles[i], 400000);
		take(0);
		queue(1);
		queue(2);
		hand_uncounted(0, 1);
		pass(5 * s.lease);
		assert_int_equal(s.w[2].me->recoveries, 1);
		assert_true(s.w[2].done);
		rel = rel_cnt();
		assert_int_equal(vb_lock_release(s.w[1].me, &s.w[1].g), -VB_ELOST);
		assert_int_equal(rel_cnt(), rel);
		if (i == 0)
			assert_true(s.w[2].g.token > s.w[1].g.token);
		(void)vb_lock_release(s.w[2].me, &s.w[2].g);
		close_scene();
	}
}

/* However often the lock is handed on, the count does not fall behind by more than some. */
static void test_count_keeps_up(void **state)
{
	uint64_t counted_at = 0;

	(void)state;
	open_scene(PLAIN, 1000000000);
	take(0);
	for (unsigned i = 1; i <= SL_UNCOUNTED_MAX + 8 && counted_at == 0; i++) {
		struct writer *from = &s.w[(i - 1) % 2], *to = &s.w[i % 2];

		to->done = false;
		spawn(body, to);
		pass(30000);
		assert_int_equal(vb_lock_release(from->me, &from->g), 0);
		pass(30000);
		assert_true(to->done);
		if (rel_cnt() != 0)
			counted_at = i;
	}
	assert_int_equal(counted_at, SL_UNCOUNTED_MAX + 1);
	assert_int_equal(rel_cnt(), counted_at);
	(void)vb_lock_release(s.w[counted_at % 2].me, &s.w[counted_at % 2].g);
	close_scene();
}

/* A narrow generation has come round since: whoever handed the lock over then has none to give. */
static void test_handover_of_the_past(void **state)
{
	struct sl_pass turn = {.rel = 1, .since_ns = 1, .uncounted = 1};
	struct vb_msg m = {.tag = SL_HANDOVER, .len = sizeof(turn)};

	(void)state;
	open_scene(PLAIN, 200000);
	pass((SL_PLAIN_GONE + 2) * s.lease);
	take(0);
	queue(1);
	m.subject = vb_lock_entry(s.space, LOCK);
	m.imm = sl_stamp(s.space, 0);
	memcpy(m.data, &turn, sizeof(turn));
	assert_int_equal(vb_send_wait(s.w[2].me->ep, s.w[1].me->ep->self, &m), 0);
	pass(s.lease / 4);
	assert_false(s.w[1].done);
	assert_int_equal(vb_lock_release(s.w[0].me, &s.w[0].g), 0);
	pass(s.lease / 4);
	assert_true(s.w[1].done);
	assert_int_equal(vb_lock_release(s.w[1].me, &s.w[1].g), 0);
	close_scene();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_last_counts),
		cmocka_unit_test(test_counted_in_time),
		cmocka_unit_test(test_time_adds_up),
		cmocka_unit_test(test_across_a_recovery),
		cmocka_unit_test(test_late_turn_is_counted),
		cmocka_unit_test(test_late_count),
		cmocka_unit_test(test_late_release),
		cmocka_unit_test(test_count_keeps_up),
		cmocka_unit_test(test_handover_of_the_past),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
