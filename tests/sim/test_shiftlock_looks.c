/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a shiftlock client concludes from a message and from a look, each conclusion by itself: the
 * client is sent what was meant for an earlier generation, or stands still at the worst moment.  (In
 * runs that come about by themselves a recovery mostly heals what a wrong conclusion breaks.)
 */
#include "sim_test.h"

#include "base/log.h"
#include "lock/shiftlock/shiftlock.h"

#define LOCK 0

static const char *const profiles[] = {"profile=cx5,bound=50us", "profile=plain64,bound=50us"};
#define PLAIN profiles[1]

static struct {
	struct vb_fabric *f;
	struct vb_lock_space *space;
	struct vb_lock_server *server;
	struct vb_lock_client *me, *other, *third;
	struct vb_grant g, others, thirds;
	uint64_t lease, granted_at;
	int err;
	bool done;
} s;

static void open_scene(const char *options, uint64_t lease_ns)
{
	const struct vb_lock_space_params p = {
		.lock = "shiftlock", .locks = 1, .lease_ns = lease_ns};

	memset(&s, 0, sizeof(s));
	s.lease = lease_ns;
	s.f = cluster(options, 2, 3);
	assert_int_equal(vb_lock_space_open(s.f, &p, &s.space), 0);
	assert_int_equal(vb_lock_server_start(s.space, 0, 0, 1, &s.server), 0);
	assert_int_equal(vb_lock_client_open(s.space, 1, &s.me), 0);
	assert_int_equal(vb_lock_client_open(s.space, 0, &s.other), 0);
	assert_int_equal(vb_lock_client_open(s.space, 0, &s.third), 0);
}

static void close_scene(void)
{
	vb_lock_client_close(s.me);
	vb_lock_client_close(s.other);
	vb_lock_client_close(s.third);
	vb_lock_server_stop(s.server);
	vb_lock_space_close(s.space);
	vb_fabric_close(s.f);
}

static void pass(uint64_t ns)
{
	assert_int_equal(vb_task_sleep_until(now() + ns), 0);
}

static void ask(enum vb_mode mode)
{
	s.err = vb_lock_acquire(s.me, LOCK, mode, 6000 * s.lease, &s.g);
	s.granted_at = vb_ep_now(s.me->ep);
	s.done = true;
}

static void write_body(void *arg)
{
	(void)arg;
	ask(VB_EXCLUSIVE);
}

static void read_body(void *arg)
{
	(void)arg;
	ask(VB_SHARED);
}

static void others_turn_ends(void)
{
	assert_int_equal(vb_lock_release(s.other, &s.others), 0);
}

/* The client waits as it must, and in the end has the lock. */
static void finish(void)
{
	while (!s.done)
		pass(s.lease);
	assert_int_equal(s.err, 0);
	(void)vb_lock_release(s.me, &s.g);
	close_scene();
}

/* From before a recovery; the generation has come round since. */
static void say(uint16_t tag)
{
	struct sl_pass turn = {.rel = 1};
	struct vb_msg m = {.subject = vb_lock_entry(s.space, LOCK),
			   .tag = tag,
			   .imm = sl_stamp(s.space, sl_is_plain(s.space) ? 255 : 65535),
			   .len = sizeof(turn)};

	memcpy(m.data, &turn, sizeof(turn));
	assert_int_equal(vb_send_wait(s.other->ep, s.me->ep->self, &m), 0);
}

/* Whoever stood behind the client then does not stand there now: nothing is handed to him. */
static void test_a_successor_of_the_past(void **state)
{
	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(profiles); i++) {
		open_scene(profiles[i], 200000);
		assert_int_equal(vb_lock_try(s.me, LOCK, VB_EXCLUSIVE, &s.g), 0);
		say(SL_SUCCESSOR);
		assert_int_equal(vb_lock_release(s.me, &s.g), 0);
		/* Nobody is in the queue: it is free at once, and not after a recovery. */
		assert_int_equal(vb_lock_try(s.other, LOCK, VB_EXCLUSIVE, &s.others), 0);
		others_turn_ends();
		close_scene();
	}
}

/* Whoever handed the lock over then has none to give. */
static void test_a_handover_of_the_past(void **state)
{
	static const uint16_t tags[] = {SL_HANDOVER, SL_MODE};

	(void)state;
	for (unsigned i = 0; i < 2 * VB_ARRAY_SIZE(profiles); i++) {
		open_scene(profiles[i / 2], 200000);
		assert_int_equal(vb_lock_try(s.other, LOCK, VB_EXCLUSIVE, &s.others), 0);
		spawn(write_body, NULL);
		pass(s.lease / 4);
		say(tags[i % 2]);
		pass(s.lease / 4);
		assert_false(s.done);
		others_turn_ends();
		pass(s.lease / 4);
		assert_true(s.done);
		finish();
	}
}

/*
 * The readers have left while the client stood still.  Others may have counted three leases since then,
 * so what it is granted counts from the last look that did not yet show it, and not from the one that
 * does.
 */
static void test_what_was_not_seen_to_end(void **state)
{
	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(profiles); i++) {
		open_scene(profiles[i], 200000);
		assert_int_equal(vb_lock_try(s.other, LOCK, VB_SHARED, &s.others), 0);
		spawn(write_body, NULL);
		pass(s.lease / 4);
		vb_sim_ep_pause(s.me->ep, now() + s.lease + s.lease / 2);
		pass(s.lease / 8);
		others_turn_ends();
		while (!s.done)
			pass(s.lease / 16);
		assert_int_equal(s.err, 0);
		assert_in_range(s.g.valid_until_ns - s.granted_at, s.lease / 4,
				s.lease / 2 + s.lease / 8);
		finish();
	}
}

/* A narrow generation may have come round: who comes back after that long waits nowhere. */
static void test_gone(void **state)
{
	(void)state;
	open_scene(PLAIN, 200000);
	assert_int_equal(vb_lock_try(s.other, LOCK, VB_EXCLUSIVE, &s.others), 0);
	spawn(read_body, NULL);
	pass(s.lease / 4);
	vb_sim_ep_pause(s.me->ep, now() + (SL_PLAIN_GONE + 2) * s.lease);
	pass((SL_PLAIN_GONE + 2) * s.lease + s.lease / 4);
	assert_int_equal(s.me->recoveries, 0);
	assert_int_equal(s.me->lost, 1);
	finish();
}

/* A narrow count may have come round while nobody looked: that is no time in which nothing moved. */
static void test_blind(void **state)
{
	const uint64_t ms = 1000000;

	(void)state;
	open_scene(PLAIN, 50 * ms);
	assert_int_equal(vb_lock_try(s.other, LOCK, VB_EXCLUSIVE, &s.others), 0);
	spawn(write_body, NULL);
	pass(100 * ms);
	vb_sim_ep_pause(s.me->ep, now() + SL_PLAIN_BLIND_NS + 30 * ms);
	/* Since it last saw something move more than three leases have passed when it comes back. */
	pass(SL_PLAIN_BLIND_NS + 30 * ms + s.lease);
	assert_int_equal(s.me->recoveries, 0);
	pass(4 * s.lease);
	assert_int_equal(s.me->recoveries, 1);
	finish();
}

/*
 * Half a lease until a waiter has read the era, three in which RelCnt stands still, half a lease until
 * the next look: no sooner, and no later.
 */
static void test_three_leases(void **state)
{
	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(profiles); i++) {
		open_scene(profiles[i], 200000);
		assert_int_equal(vb_lock_try(s.other, LOCK, VB_EXCLUSIVE, &s.others), 0);
		spawn(i % 2 ? read_body : write_body, NULL);
		pass(3 * s.lease + s.lease / 2 - s.lease / 16);
		assert_int_equal(s.me->recoveries, 0);
		pass(s.lease / 2 + s.lease / 4);
		assert_int_equal(s.me->recoveries, 1);
		finish();
	}
}

/* Behind a dead client, and the server has died as well: that is said, and whoever waits has the lock when
 * there is another server. */
static void test_nobody_recovers(void **state)
{
	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(profiles); i++) {
		char said[512] = "";

		open_scene(profiles[i], 200000);
		assert_int_equal(vb_lock_try(s.other, LOCK, VB_EXCLUSIVE, &s.others), 0);
		vb_log_capture_begin(said, sizeof(said));
		vb_lock_server_bury(s.server);
		spawn(i % 2 ? read_body : write_body, NULL);
		pass(50 * s.lease);
		vb_log_capture_end();
		assert_false(s.done);
		assert_non_null(strstr(said, "so has the server of node 0"));
		assert_int_equal(vb_lock_server_start(s.space, 0, 0, 1, &s.server), 0);
		pass(5 * s.lease);
		assert_true(s.done);
		finish();
	}
}

/* ---- RelCnt as it was, after as many recoveries as there are generations ---- */

#define GENERATIONS 256 /* of the entry in one word; the wide one has 65,536 */

static uint64_t rel_cnt(void)
{
	struct vb_u128 e;
	uint64_t guess;

	assert_int_equal(
		sl_plain_read(s.space, s.other->ep, vb_lock_entry(s.space, LOCK), &e, &guess), 0);
	return e.hi;
}

/* The holder does not come back in time, and whoever stands behind it has the lock recovered. */
static void recovered_by(struct vb_lock_client *next, struct vb_grant *has,
			 struct vb_lock_client *late, struct vb_grant *had)
{
	assert_int_equal(vb_lock_acquire(next, LOCK, VB_EXCLUSIVE, 8 * s.lease, has), 0);
	assert_int_equal(next->recoveries, 1);
	next->recoveries = 0;
	assert_int_equal(vb_lock_release(late, had), -VB_ELOST);
}

/* A waiter stands still with its request.  When it comes RelCnt is what was seen standing still, and
 * somebody holds the lock: the era tells that this is another time. */
static void test_a_request_of_the_past(void **state)
{
	uint64_t rel, wakes, sends;

	(void)state;
	open_scene(PLAIN, 200000);
	assert_int_equal(vb_lock_try(s.other, LOCK, VB_EXCLUSIVE, &s.others), 0);
	spawn(read_body, NULL);
	pass(s.lease);
	rel = rel_cnt();
	wakes = now() + 5 * GENERATIONS * s.lease;
	vb_sim_ep_pause(s.me->ep, wakes);
	for (unsigned i = 1; i < GENERATIONS; i++) {
		if (i % 2)
			recovered_by(s.third, &s.thirds, s.other, &s.others);
		else
			recovered_by(s.other, &s.others, s.third, &s.thirds);
		assert_true(rel_cnt() != rel);
	}
	/* The last one, four leases and some verbs later, is the holder when it wakes. */
	assert_true(now() < wakes - 5 * s.lease);
	pass(wakes - 5 * s.lease + s.lease / 4 - now());
	recovered_by(s.other, &s.others, s.third, &s.thirds);
	assert_true(rel_cnt() == rel);
	assert_in_range(now(), wakes - s.lease, wakes - s.lease / 4);
	sends = s.me->ep->count[VB_OP_SEND];
	pass(wakes + s.lease / 4 - now());
	/* It has asked, and was refused: it waits. */
	assert_int_equal(s.me->ep->count[VB_OP_SEND], sends + 1);
	assert_int_equal(s.me->recoveries, 0);
	assert_false(s.done);
	assert_true(vb_lock_valid(s.other, &s.others));
	others_turn_ends();
	finish();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_successor_of_the_past),
		cmocka_unit_test(test_a_handover_of_the_past),
		cmocka_unit_test(test_what_was_not_seen_to_end),
		cmocka_unit_test(test_gone),
		cmocka_unit_test(test_blind),
		cmocka_unit_test(test_three_leases),
		cmocka_unit_test(test_nobody_recovers),
		cmocka_unit_test(test_a_request_of_the_past),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
