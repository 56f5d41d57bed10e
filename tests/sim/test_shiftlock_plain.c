/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ShiftLock where there are no 128-bit masked atomics: its entry in one word.  Fields that are full
 * or come round, and what the explorer found while it was written.
 */
#include "sim_test.h"

#include <errno.h>

#include "base/log.h"
#include "lock/shiftlock/shiftlock.h"

#define LEASE_NS 100000ull

static const struct vb_u128 none, all = {UINT64_MAX, UINT64_MAX};

struct scene {
	struct vb_fabric *f;
	struct vb_lock_space *space;
	struct vb_lock_server *server;
	unsigned done;
};

static void scene_open(struct scene *s, const char *options, uint16_t nodes, uint64_t lease_ns)
{
	struct vb_lock_space_params p = {
		.lock = "shiftlock", .locks = 4, .lease_ns = lease_ns, .fencing = true};

	*s = (struct scene){.f = cluster(options, nodes, 1)};
	assert_int_equal(vb_lock_space_open(s->f, &p, &s->space), 0);
	assert_true(sl_is_plain(s->space));
	assert_int_equal(vb_lock_server_start(s->space, 0, 0, 1, &s->server), 0);
}

static void scene_close(struct scene *s)
{
	vb_lock_server_stop(s->server);
	vb_lock_space_close(s->space);
	vb_fabric_close(s->f);
	vb_sched_destroy(vb_sched_self());
}

static struct vb_lock_client *client(struct scene *s, uint16_t node)
{
	struct vb_lock_client *me;

	assert_int_equal(vb_lock_client_open(s->space, node, &me), 0);
	return me;
}

/* ---- the word ---- */

static struct vb_u128 swapped(struct scene *s, struct vb_ep *ep, struct vb_u128 to)
{
	uint64_t guess = 0, posted, retries = 0;
	struct vb_u128 old;

	assert_int_equal(sl_plain_mcas(s->space, ep, s->space->base[0], none, none, to, all, &old,
				       &guess, &posted, &retries, SL_TO_THE_END),
			 0);
	assert_int_equal(retries, 0);
	return old;
}

static void expect(struct scene *s, struct vb_ep *ep, uint64_t gen, uint64_t count, uint64_t lo)
{
	uint64_t guess;
	struct vb_u128 e;

	assert_int_equal(sl_plain_read(s->space, ep, s->space->base[0], &e, &guess), 0);
	assert_int_equal(e.hi, gen << SL_GEN_SHIFT | count);
	assert_int_equal(e.lo, lo);
}

/* Runs as a task: a verb awaits. */
static void word_body(void *arg)
{
	struct scene *s = arg;
	const uint64_t most = (1u << SL_PLAIN_COUNT_BITS) - 1, reader = 1ull << SL_RDR_SHIFT;
	struct vb_lock_client *me = client(s, 1);
	uint64_t guess = 0, posted, retries = 0, tail;
	struct vb_ep *ep = me->ep;
	struct vb_u128 old;

	/* Every node's first and last name come out as they went in, with all else set or not. */
	for (unsigned node = 0; node < 6; node++) {
		for (unsigned i = 0; i < 4; i++) {
			tail = (node + 1ull) << 24 | (i & 1 ? 32767 : 0);
			old.lo = tail | (i & 2 ? SL_EPOCH | 262143 * reader : 0);
			old.hi = i & 2 ? 255ull << SL_GEN_SHIFT | most : 0;
			swapped(s, ep, old);
			expect(s, ep, sl_gen(old.hi), old.hi & SL_COUNT_MASK, old.lo);
		}
	}
	/* The count comes round and touches nothing else. */
	swapped(s, ep, (struct vb_u128){.hi = 7ull << SL_GEN_SHIFT | most, .lo = reader});
	assert_int_equal(sl_plain_enter(s->space, ep, s->space->base[0], &old), 0);
	expect(s, ep, 7, most, 2 * reader);
	assert_int_equal(sl_plain_leave(s->space, ep, s->space->base[0], VB_FOREVER, &old), 0);
	expect(s, ep, 7, 0, reader);
	assert_int_equal(sl_plain_leave(s->space, ep, s->space->base[0], 1, &old), -VB_ETOOLATE);
	expect(s, ep, 7, 0, reader);
	/* A reader that a recovery has wiped away leaves late: the generation stays as it is. */
	swapped(s, ep, (struct vb_u128){.hi = 8ull << SL_GEN_SHIFT | 5});
	assert_int_equal(sl_plain_leave(s->space, ep, s->space->base[0], VB_FOREVER, &old), 0);
	expect(s, ep, 8, 5, 262143 * reader);
	/* The generation comes round. */
	swapped(s, ep, (struct vb_u128){.hi = 256ull << SL_GEN_SHIFT | 5});
	expect(s, ep, 0, 5, 0);
	/* What is remembered wrongly costs a verb and changes nothing. */
	guess = 12345;
	assert_int_equal(sl_plain_mcas(s->space, ep, s->space->base[0], (struct vb_u128){.hi = 6},
				       (struct vb_u128){.hi = UINT64_MAX}, all, all, &old, &guess,
				       &posted, &retries, SL_TO_THE_END),
			 0);
	assert_int_equal(old.hi, 5);
	expect(s, ep, 0, 5, 0);
	swapped(s, ep, none);
	vb_lock_client_close(me);
	s->done++;
}

static void test_word(void **state)
{
	struct scene s;

	scene_open(&s, "profile=plain64", 6, 10000000);
	spawn(word_body, &s);
	run_all();
	assert_int_equal(s.done, 1);
	scene_close(&s);
}

/* 4,000 nodes leave 6 bits for the clients of each. */
static void test_names(void **state)
{
	struct vb_lock_client *me[64], *more = NULL;
	struct vb_grant g;
	char said[512] = "";
	struct scene s;

	scene_open(&s, "profile=plain64", 4000, 10000000);
	for (unsigned i = 0; i < 64; i++) {
		me[i] = client(&s, 3999);
		assert_int_equal(sl_plain_name(me[i]), 4000ull << 24 | i);
	}
	vb_log_capture_begin(said, sizeof(said));
	assert_int_equal(vb_lock_client_open(s.space, 3999, &more), -ENOSPC);
	vb_log_capture_end();
	assert_non_null(strstr(said, "room for 64 clients"));
	vb_lock_client_close(me[5]);
	me[5] = client(&s, 3999);
	assert_int_equal(sl_plain_name(me[5]), 4000ull << 24 | 5);
	assert_int_equal(vb_lock_try(me[5], 0, VB_EXCLUSIVE, &g), 0);
	assert_int_equal(vb_lock_release(me[5], &g), 0);
	for (unsigned i = 0; i < 64; i++)
		vb_lock_client_close(me[i]);
	scene_close(&s);
}

/* One client after the other: however many there have been, there is room for one. */
static void test_openings(void **state)
{
	struct scene s;

	scene_open(&s, "profile=plain64", 200, 10000000);
	for (unsigned i = 0; i < 1100; i++) {
		struct vb_lock_client *me = client(&s, 199);
		struct vb_grant g;

		assert_int_equal(vb_lock_acquire(me, 3, VB_EXCLUSIVE, VB_FOREVER_NS, &g), 0);
		assert_int_equal(vb_lock_release(me, &g), 0);
		vb_lock_client_close(me);
	}
	scene_close(&s);
}

/* ---- messages of two generations ---- */

static void say(struct vb_lock_client *from, struct vb_lock_client *to, uint64_t subject,
		uint16_t gen)
{
	struct vb_msg m = {
		.subject = subject, .tag = SL_HANDOVER, .imm = sl_stamp(from->space, gen)};

	assert_int_equal(vb_send_wait(from->ep, to->ep->self, &m), 0);
}

static void stamp_body(void *arg)
{
	struct scene *s = arg;
	const bool plain = sl_is_plain(s->space);
	const uint16_t last = plain ? 255 : 65535;
	struct vb_lock_client *me = client(s, 1), *other = client(s, 0);

	/* Unread, the last generation's message does not keep out the first one's; nor is it kept
	 * where it comes late. */
	for (unsigned late = 0; late < 2; late++) {
		struct vb_msg m;
		struct vb_box box;

		vb_box_open(&me->mail, &box, 4711);
		say(other, me, 4711, late ? 0 : last);
		vb_mail_sort(&me->mail);
		say(other, me, 4711, late ? last : 0);
		vb_mail_sort(&me->mail);
		assert_int_equal(vb_box_take(&box, SL_HANDOVER, &m), 0);
		assert_int_equal(m.imm, sl_stamp(s->space, 0));
		vb_box_close(&box);
	}
	vb_lock_client_close(me);
	vb_lock_client_close(other);
	s->done++;
}

static void test_stamps(void **state)
{
	static const char *const profiles[] = {"profile=plain64", "profile=cx5"};

	for (unsigned i = 0; i < 2; i++) {
		struct scene s = {.f = cluster(profiles[i], 2, 1)};
		struct vb_lock_space_params p = {.lock = "shiftlock", .locks = 4};

		assert_int_equal(vb_lock_space_open(s.f, &p, &s.space), 0);
		assert_int_equal(vb_lock_server_start(s.space, 0, 0, 1, &s.server), 0);
		spawn(stamp_body, &s);
		run_all();
		assert_int_equal(s.done, 1);
		scene_close(&s);
	}
}

/* ---- what comes back after a long time ---- */

static void sleeper_body(void *arg)
{
	struct scene *s = arg;
	struct vb_lock_client *me = client(s, 1);
	struct vb_grant g, late;
	uint64_t before, after;

	assert_int_equal(vb_lock_acquire(me, 1, VB_EXCLUSIVE, VB_FOREVER_NS, &g), 0);
	assert_true(g.token > 0);
	assert_int_equal(vb_ep_sleep(me->ep, (SL_PLAIN_GONE + 2) * LEASE_NS), 0);
	assert_false(vb_lock_valid(me, &g));
	assert_int_equal(vb_read64(me->ep, s->space->base[0] + s->space->stride, &before), 0);
	assert_int_equal(vb_lock_release(me, &g), -VB_ELOST);
	assert_int_equal(vb_read64(me->ep, s->space->base[0] + s->space->stride, &after), 0);
	assert_int_equal(before, after);
	/* It still stands in the word's tail: whoever comes next has it recovered, and is
	 * served. */
	assert_int_equal(vb_lock_acquire(me, 1, VB_EXCLUSIVE, 8 * LEASE_NS, &late), 0);
	assert_true(late.token > g.token);
	assert_int_equal(vb_lock_release(me, &late), 0);
	vb_lock_client_close(me);
	s->done++;
}

static void test_sleeper(void **state)
{
	struct scene s;

	scene_open(&s, "profile=plain64,bound=35us", 2, LEASE_NS);
	spawn(sleeper_body, &s);
	run_all();
	assert_int_equal(s.done, 1);
	scene_close(&s);
}

/*
 * Seed 251 of the explorer, once: the time of a grant counted from the first of the CASes that took
 * the lock.  With a lease as short as the others need for theirs, every grant was over when it
 * came, for ever.  A grant's time may begin with the CAS that succeeded, however many came before
 * it.
 */
#define VISITS 40

static void visitor_body(void *arg)
{
	struct scene *s = arg;
	struct vb_lock_client *me = client(s, 2);
	struct vb_u128 old;

	for (unsigned i = 0; i < VISITS; i++)
		assert_int_equal(sl_plain_enter(s->space, me->ep, s->space->base[0], &old), 0);
	for (unsigned i = 0; i < VISITS; i++)
		assert_int_equal(
			sl_plain_leave(s->space, me->ep, s->space->base[0], VB_FOREVER, &old), 0);
	vb_lock_client_close(me);
	s->done++;
}

static void patient_body(void *arg)
{
	const struct vb_u128 epoch = {.lo = SL_EPOCH};
	uint64_t guess = 0, posted, retries = 0, begun, ended;
	struct scene *s = arg;
	struct vb_lock_client *me = client(s, 1);
	struct vb_u128 old;

	begun = vb_ep_now(me->ep);
	assert_int_equal(sl_plain_mcas(s->space, me->ep, s->space->base[0], none, none, epoch,
				       epoch, &old, &guess, &posted, &retries, SL_TO_THE_END),
			 0);
	ended = vb_ep_now(me->ep);
	assert_true(retries > VISITS);
	assert_true(ended - posted < (ended - begun) / VISITS);
	vb_lock_client_close(me);
	s->done++;
}

static void test_patience(void **state)
{
	struct scene s;

	scene_open(&s, "profile=plain64", 3, 10000000);
	spawn(visitor_body, &s);
	spawn(patient_body, &s);
	run_all();
	assert_int_equal(s.done, 2);
	scene_close(&s);
}

/* ---- others change the word for ever ---- */

static void restless_body(void *arg)
{
	struct scene *s = arg;
	struct vb_lock_client *me = client(s, 2);
	struct vb_u128 old;

	while (s->done < 2) {
		assert_int_equal(sl_plain_enter(s->space, me->ep, s->space->base[0], &old), 0);
		assert_int_equal(
			sl_plain_leave(s->space, me->ep, s->space->base[0], VB_FOREVER, &old), 0);
	}
	expect(s, me->ep, sl_gen(old.hi), (old.hi + 1) & SL_COUNT_MASK, 0);
	vb_lock_client_close(me);
	s->done++;
}

/* A writer never gets into the queue: its deadline ends that, or whoever cancels it. */
static void hurried_body(void *arg)
{
	struct scene *s = arg;
	struct vb_lock_client *me = client(s, 1);
	struct vb_grant g;
	uint64_t begun = vb_ep_now(me->ep);

	assert_int_equal(vb_lock_acquire(me, 0, VB_EXCLUSIVE, 100000, &g), -ETIMEDOUT);
	assert_in_range(vb_ep_now(me->ep) - begun, 100000, 110000);
	assert_true(me->retries > 20);
	vb_lock_client_close(me);
	s->done++;
}

static void cancelled_body(void *arg)
{
	struct scene *s = arg;
	struct vb_lock_client *me = client(s, 1);
	struct vb_grant g;

	assert_int_equal(vb_lock_acquire(me, 0, VB_EXCLUSIVE, VB_FOREVER_NS, &g), -ECANCELED);
	assert_in_range(vb_ep_now(me->ep), 50000, 60000);
	assert_true(me->retries > 10);
	vb_lock_client_close(me);
	s->done++;
}

static void test_no_way_in(void **state)
{
	struct vb_task *t;
	struct scene s;

	scene_open(&s, "profile=plain64", 3, 10000000);
	spawn(restless_body, &s);
	spawn(hurried_body, &s);
	assert_int_equal(vb_task_spawn(vb_sched_self(), cancelled_body, &s, NULL, &t), 0);
	assert_int_equal(vb_sched_run(vb_sched_self(), NULL, 50000), -ETIMEDOUT);
	vb_task_cancel(t);
	run_all();
	assert_int_equal(s.done, 3);
	scene_close(&s);
}

/* ---- whoever has the place of a dead client ---- */

#define DEATHS 16

struct heir {
	struct vb_lock_client *me, *other;
	struct vb_grant others;
	bool other_holds, done;
};

/* Dies as it gives the lock back: before its CAS is posted, or behind it, and then that lands late. */
static void mortal_body(void *arg)
{
	const struct vb_sim_faults last = {.die = 1, .delay = 1, .delay_max_ns = 37000};
	struct vb_lock_client *me = arg;
	struct vb_grant g;

	assert_int_equal(vb_lock_try(me, 0, VB_EXCLUSIVE, &g), 0);
	vb_sim_set_faults(me->space->fabric, &last);
	(void)vb_lock_release(me, &g);
}

static void heir_body(void *arg)
{
	struct heir *h = arg;
	struct vb_grant g;

	assert_int_equal(vb_lock_acquire(h->me, 0, VB_EXCLUSIVE, VB_FOREVER_NS, &g), 0);
	assert_false(h->other_holds && vb_lock_valid(h->other, &h->others));
	assert_int_equal(vb_lock_release(h->me, &g), 0);
	h->done = true;
}

static void pass(uint64_t ns)
{
	assert_int_equal(vb_task_sleep_until(now() + ns), 0);
}

/*
 * The dead one's last CAS frees a word that has its name, which is the next client's.  Landing while that
 * one waits, it would take it out of the queue: it would go on counting how long RelCnt stands still, and
 * have the lock recovered from whoever took it meanwhile.  1: the CAS was under way when it died.
 */
static unsigned one_death(uint64_t seed)
{
	const struct vb_lock_space_params p = {.lock = "shiftlock", .locks = 1, .lease_ns = 200000};
	static const struct vb_sim_faults well;
	struct scene s = {.f = cluster("profile=plain64,bound=50us", 2, seed)};
	struct heir h = {0};
	struct vb_lock_client *dead;
	uint64_t word;
	bool late;

	assert_int_equal(vb_lock_space_open(s.f, &p, &s.space), 0);
	assert_int_equal(vb_lock_server_start(s.space, 0, 0, 1, &s.server), 0);
	dead = client(&s, 1);
	h.other = client(&s, 0);
	vb_sim_ep_mortal(dead->ep, true);
	spawn(mortal_body, dead);
	while (!vb_sim_ep_dead(dead->ep))
		pass(100);
	vb_sim_set_faults(s.f, &well);
	word = peek(s.f, s.space->base[0]);
	h.me = client(&s, 1);
	assert_int_equal(sl_plain_name(h.me), sl_plain_name(dead));
	late = peek(s.f, s.space->base[0]) != word;
	spawn(heir_body, &h);
	pass(3 * p.lease_ns + 3 * p.lease_ns / 4);
	h.other_holds = vb_lock_try(h.other, 0, VB_EXCLUSIVE, &h.others) == 0;
	while (!h.done)
		pass(p.lease_ns);
	/* Either the word was free, or it named a dead one for good. */
	assert_int_equal(h.me->recoveries == 0, late);
	if (h.other_holds)
		(void)vb_lock_release(h.other, &h.others);
	vb_lock_client_bury(dead);
	vb_lock_client_close(h.me);
	vb_lock_client_close(h.other);
	scene_close(&s);
	return late;
}

static void test_place_of_the_dead(void **state)
{
	unsigned late = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= DEATHS; seed++)
		late += one_death(seed);
	assert_in_range(late, 1, DEATHS - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_word),      cmocka_unit_test(test_names),
		cmocka_unit_test(test_openings),  cmocka_unit_test(test_stamps),
		cmocka_unit_test(test_sleeper),   cmocka_unit_test(test_patience),
		cmocka_unit_test(test_no_way_in), cmocka_unit_test(test_place_of_the_dead),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
