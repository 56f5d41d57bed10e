/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between neighbours in a queue, where the network is at its worst: the answer to one is
 * lost, and whoever it was for has gone on, and away, before a copy comes; a word that names the next
 * in line is read half written.
 */
#include "sim_test.h"

#include <errno.h>

#include "base/log.h"
#include "lock/handover.h"
#include "lock/lock.h"
#include "lock/rma_rw/rma_rw.h"

#define LOCK  3
#define SEEDS 24
#define LONG  10000000ull

struct story {
	const char *lock, *options;
	enum vb_mode mode; /* of the second */
	struct vb_fabric *f;
	struct vb_lock_space *space;
	struct vb_lock_client *first, *second, *third;
	const struct vb_fabric_ops *real;
	struct vb_fabric_ops ops; /* of the first: some of its messages are without an answer */
	unsigned to_lose, sent;
	bool early;    /* told at once that its outcome is unknown, and on its way all the same */
	bool was_gone; /* when a copy was sent */
	bool held, closed;
	int released, got;
};

static struct story *mine;

static int post(struct vb_ep *ep, struct vb_batch *b)
{
	/* With no faults at all the simulator would let the answer through. */
	static const struct vb_sim_faults lose = {.lose = 1}, early = {.early = 1},
					  none = {.delay = 1e-12};
	struct story *s = mine;
	int rc;

	if (b->verbs[0].op != VB_OP_SEND)
		return s->real->post(ep, b);
	s->was_gone |= s->sent++ > 0 && !vb_peer_alive(s->f, b->verbs[0].peer);
	if (s->to_lose == 0)
		return s->real->post(ep, b);
	s->to_lose--;
	vb_sim_set_faults(s->f, s->early ? &early : &lose);
	rc = s->real->post(ep, b);
	vb_sim_set_faults(s->f, &none);
	return rc;
}

static void story_open(struct story *s, uint64_t seed)
{
	const struct vb_lock_space_params p = {.lock = s->lock, .options = s->options, .locks = 8};

	mine = s;
	s->f = cluster("profile=cx5", 4, seed);
	assert_int_equal(vb_lock_space_open(s->f, &p, &s->space), 0);
	assert_int_equal(vb_lock_client_open(s->space, 1, &s->first), 0);
	assert_int_equal(vb_lock_client_open(s->space, 2, &s->second), 0);
	assert_int_equal(vb_lock_client_open(s->space, 3, &s->third), 0);
	s->real = s->first->ep->ops;
	s->ops = *s->real;
	s->ops.post = post;
	s->first->ep->ops = &s->ops;
	s->released = s->got = -1;
}

static void story_close(struct story *s)
{
	s->first->ep->ops = s->real;
	vb_sched_kill_all(vb_sched_self());
	vb_lock_client_bury(s->first);
	if (!s->closed)
		vb_lock_client_bury(s->second);
	vb_lock_client_bury(s->third);
	vb_lock_space_close(s->space);
	vb_fabric_close(s->f);
	vb_sched_destroy(vb_sched_self());
}

static void run_for(uint64_t ns)
{
	(void)vb_sched_run(vb_sched_self(), NULL, now() + ns);
}

static void goes_first(void *arg)
{
	struct story *s = arg;
	struct vb_grant g;

	assert_int_equal(vb_lock_acquire(s->first, LOCK, VB_EXCLUSIVE, VB_FOREVER_NS, &g), 0);
	s->held = true;
	vb_ep_sleep(s->first->ep, LONG);
	s->sent = 0;
	s->to_lose = 1;
	s->released = vb_lock_release(s->first, &g);
}

static void goes_second(void *arg)
{
	struct story *s = arg;
	struct vb_grant g;

	assert_int_equal(vb_lock_acquire(s->second, LOCK, s->mode, VB_FOREVER_NS, &g), 0);
	assert_int_equal(vb_lock_release(s->second, &g), 0);
	s->closed = true;
	vb_lock_client_close(s->second);
}

static void goes_third(void *arg)
{
	struct story *s = arg;
	struct vb_grant g;

	s->got = vb_lock_acquire(s->third, LOCK, VB_EXCLUSIVE, 1000000000, &g);
	if (s->got == 0)
		s->got = vb_lock_release(s->third, &g);
}

/* In half of the seeds the message is lost, too, and the second is there when the copy comes. */
static void gone_of(const char *lock, const char *options, enum vb_mode mode)
{
	unsigned gone = 0;
	char said[4096];

	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct story s = {.lock = lock, .options = options, .mode = mode};

		vb_log_capture_begin(said, sizeof(said));
		story_open(&s, seed);
		spawn(goes_first, &s);
		run_for(LONG / 4);
		assert_true(s.held);
		spawn(goes_second, &s);
		run_for(20 * LONG);
		spawn(goes_third, &s);
		run_for(200 * LONG);
		vb_log_capture_end();
		gone += s.was_gone;
		if (s.released != 0 || s.got != 0 || !s.closed)
			fail_msg("%s, %s, seed %llu: released %d, the third %d; the second was %s "
				 "when the copy came\n%s",
				 lock, options, (unsigned long long)seed, s.released, s.got,
				 s.was_gone ? "gone" : "there", said);
		story_close(&s);
	}
	assert_true(gone > 0);
	assert_true(gone < SEEDS);
}

static void test_gone(void **state)
{
	(void)state;
	gone_of("mcs", NULL, VB_EXCLUSIVE);
	gone_of("ncosed", NULL, VB_EXCLUSIVE);
	gone_of("ncosed", NULL, VB_SHARED);
	gone_of("rma-rw", "group=4", VB_EXCLUSIVE);
	gone_of("rma-rw", "group=1", VB_EXCLUSIVE);
}

/* What Soft-RoCE shows of a word that another writes where 0 stood: the first bytes only, where the
 * one who writes was interrupted, or the last ones only, where the one who reads was. */
static void half_read(uint64_t part)
{
	struct story s = {.lock = "rma-rw", .options = "group=1", .mode = VB_EXCLUSIVE};
	uint64_t *next, whole;

	story_open(&s, 1);
	spawn(goes_first, &s);
	run_for(LONG / 4);
	spawn(goes_second, &s);
	run_for(LONG / 4);
	next = vb_local(s.f, vb_lock_entry(s.space, LOCK) + 8 * (1 + 2 * 1) + 8, 8);
	whole = *next;
	assert_true(vb_handover_is_whole(s.third, whole));
	assert_true((whole & part) != 0 && (whole & part) != whole);
	assert_false(vb_handover_is_whole(s.third, whole & part));
	*next = whole & part;
	run_for(LONG);
	assert_int_equal(s.sent, 0);
	assert_false(s.closed);
	*next = whole;
	run_for(LONG);
	assert_int_equal(s.released, 0);
	assert_true(s.closed);
	story_close(&s);
}

static void test_half(void **state)
{
	(void)state;
	for (unsigned bytes = 1; bytes < 7; bytes++) {
		half_read((1ull << 8 * bytes) - 1);
		half_read(~((1ull << 8 * bytes) - 1));
	}
}

/* ---- an answer to an earlier claim ---- */

#define NC_YOURS 3 /* as ncosed.c has it */

static void holds(void *arg)
{
	struct story *s = arg;
	struct vb_grant g;

	assert_int_equal(vb_lock_acquire(s->third, LOCK, VB_EXCLUSIVE, VB_FOREVER_NS, &g), 0);
	s->held = true;
	vb_ep_sleep(s->third->ep, LONG);
	s->released = vb_lock_release(s->third, &g);
}

static void waits(void *arg)
{
	struct story *s = arg;
	struct vb_grant g;

	s->to_lose = 1;
	s->got = vb_lock_acquire(s->first, LOCK, VB_EXCLUSIVE, VB_FOREVER_NS, &g);
	if (s->got == 0)
		s->got = vb_lock_release(s->first, &g);
}

/* A copy of YOURS for an earlier claim lies in the box of who has told its predecessor, in vain, and
 * does not know: it is no answer, and the predecessor is told again. */
static void test_old_answer(void **state)
{
	unsigned again = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct story s = {.lock = "ncosed"};
		struct vb_msg old = {.tag = NC_YOURS, .len = sizeof(uint64_t)};

		story_open(&s, seed);
		spawn(holds, &s);
		run_for(LONG / 8);
		assert_true(s.held);
		spawn(waits, &s);
		run_for(LONG / 1000);
		old.subject = vb_lock_entry(s.space, LOCK);
		assert_int_equal(vb_send(s.second->ep, s.first->ep->self, &old), 0);
		run_for(4 * LONG);
		assert_int_equal(s.released, 0);
		assert_int_equal(s.got, 0);
		again += s.sent > 1;
		story_close(&s);
	}
	assert_true(again > 0);
}

/* ---- copies of a reader's REGISTER ---- */

#define NC_REGISTER 0

/* As ncosed.c has it. */
struct hello {
	uint32_t number;
	uint8_t to, again;
	uint16_t reserved;
	uint64_t readers;
};

static void reads(struct story *s, struct vb_lock_client *who, uint64_t timeout_ns)
{
	struct vb_grant g;

	s->got = vb_lock_acquire(who, LOCK, VB_SHARED, timeout_ns, &g);
	if (s->got == 0)
		s->got = vb_lock_release(who, &g);
}

static void reads_first(void *arg)
{
	struct story *s = arg;

	s->to_lose = 1;
	reads(s, s->first, s->early ? 1 : VB_FOREVER_NS);
}

static void reads_second(void *arg)
{
	struct story *s = arg;

	reads(s, s->second, VB_FOREVER_NS);
}

/* Who gives up while its REGISTER is on its way leaves a proxy that sends it again: were the copy
 * there first, both would be granted, and the reader behind it never. */
static void test_copy_behind(void **state)
{
	unsigned again = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct story s = {.lock = "ncosed", .early = true};

		story_open(&s, seed);
		spawn(holds, &s);
		run_for(LONG / 8);
		assert_true(s.held);
		spawn(reads_first, &s);
		run_for(LONG / 8);
		assert_int_equal(s.got, -ETIMEDOUT);
		again += s.sent > 1;
		s.got = -1;
		spawn(reads_second, &s);
		run_for(4 * LONG);
		assert_int_equal(s.released, 0);
		assert_int_equal(s.got, 0);
		story_close(&s);
	}
	assert_int_equal(again, SEEDS);
}

/* A REGISTER of the same reader with an earlier claim of the writer lies before it: what was sent
 * again after that is no copy of it. */
static void test_copy_of_another(void **state)
{
	unsigned again = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		const struct hello h = {.number = 1u << 31, .to = 100};
		struct story s = {.lock = "ncosed"};
		struct vb_msg old = {.tag = NC_REGISTER, .len = sizeof(h)};

		story_open(&s, seed);
		spawn(holds, &s);
		run_for(LONG / 8);
		assert_true(s.held);
		memcpy(old.data, &h, sizeof(h));
		old.subject = vb_lock_entry(s.space, LOCK);
		assert_int_equal(vb_send(s.first->ep, s.third->ep->self, &old), 0);
		s.sent = 0;
		spawn(reads_first, &s);
		run_for(4 * LONG);
		assert_int_equal(s.released, 0);
		assert_int_equal(s.got, 0);
		again += s.sent > 1;
		story_close(&s);
	}
	assert_true(again > 0);
}

/* ---- told, and the answer lost, before a deadline ---- */

/* The one before it has had the message by then, and goes and closes before the proxy begins. */
static void goes_before(void *arg)
{
	struct story *s = arg;
	struct vb_grant g;

	assert_int_equal(vb_lock_acquire(s->second, LOCK, VB_EXCLUSIVE, VB_FOREVER_NS, &g), 0);
	s->held = true;
	vb_ep_sleep(s->second->ep, LONG);
	assert_int_equal(vb_lock_release(s->second, &g), 0);
	s->closed = true;
	vb_lock_client_close(s->second);
}

static void gives_up(void *arg)
{
	struct story *s = arg;
	struct vb_grant g;

	s->sent = 0;
	s->to_lose = 1;
	s->released = vb_lock_acquire(s->first, LOCK, s->mode, 1000, &g);
}

/* What a proxy goes on telling may have arrived, and who was told may be gone: that is no broken
 * queue, and nobody says so. */
static unsigned resumed_of(const char *lock, const char *options, enum vb_mode mode)
{
	unsigned gone = 0;

	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct story s = {.lock = lock, .options = options, .mode = mode};
		char said[4096] = "";

		story_open(&s, seed);
		spawn(goes_before, &s);
		run_for(LONG - 500000);
		assert_true(s.held);
		vb_log_capture_begin(said, sizeof(said));
		spawn(gives_up, &s);
		run_for(20 * LONG);
		assert_int_equal(s.released, -ETIMEDOUT);
		spawn(goes_third, &s);
		run_for(200 * LONG);
		vb_log_capture_end();
		gone += s.was_gone;
		if (s.got != 0 || !s.closed || strstr(said, "broken") != NULL)
			fail_msg("%s, %s, seed %llu: the third %d; the one before was %s when the "
				 "copy came\n%s",
				 lock, options, (unsigned long long)seed, s.got,
				 s.was_gone ? "gone" : "there", said);
		story_close(&s);
	}
	return gone;
}

static void test_resumed(void **state)
{
	assert_true(resumed_of("mcs", NULL, VB_EXCLUSIVE) > 0);
	assert_true(resumed_of("rma-rw", "group=4", VB_EXCLUSIVE) > 0);
	/* Its answer is there before the copy would be sent. */
	assert_int_equal(resumed_of("ncosed", NULL, VB_EXCLUSIVE), 0);
	assert_int_equal(resumed_of("ncosed", NULL, VB_SHARED), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gone),
		cmocka_unit_test(test_half),
		cmocka_unit_test(test_old_answer),
		cmocka_unit_test(test_copy_behind),
		cmocka_unit_test(test_copy_of_another),
		cmocka_unit_test(test_resumed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
