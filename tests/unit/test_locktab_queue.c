/* SPDX-License-Identifier: Apache-2.0 */
/* Granted groups, queues and policies of the lock table, on their own: no fabric, no clock. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "lock/table/table.h"

#define OWNERS 12
#define NONE   1 /* no decision yet */

struct fixture {
	struct vb_tq *q;
	struct vb_tq_owner owner[OWNERS];
	struct vb_tq_req *req[OWNERS];
	int said[OWNERS]; /* NONE, or what `decided` said */
	unsigned decisions, notes;
	bool dead[OWNERS];
	uint64_t now;
};

static void on_decided(void *ctx, struct vb_tq_req *r, int err)
{
	struct fixture *f = ctx;

	f->said[r->owner->name] = err;
	f->decisions++;
}

static void on_noted(void *ctx, const struct vb_tq_req *r, bool gone)
{
	(void)r, (void)gone;
	((struct fixture *)ctx)->notes++;
}

static bool on_alive(void *ctx, const struct vb_tq_owner *o)
{
	return !((struct fixture *)ctx)->dead[o->name];
}

static void open_queue(struct fixture *f, enum vb_locktab_policy policy, unsigned requests)
{
	struct vb_tq_params p = {
		.policy = policy,
		.wait_ns = 100,
		.lease_ns = 1000,
		.requests = requests,
		.rules = &vb_tq_rules,
		.decided = on_decided,
		.noted = on_noted,
		.alive = on_alive,
		.ctx = f,
	};

	memset(f, 0, sizeof(*f));
	assert_int_equal(vb_tq_open(&p, &f->q), 0);
	for (unsigned i = 0; i < OWNERS; i++) {
		vb_tq_owner_init(&f->owner[i], i);
		f->said[i] = NONE;
	}
}

/* Owner i asks for a lock; its age is its number. */
static int asks(struct fixture *f, unsigned i, uint64_t lock, enum vb_mode mode)
{
	struct vb_tq_want w = {.lock = lock, .age = i, .number = 1, .mode = mode, .bounded = true};

	f->said[i] = NONE;
	return vb_tq_request(f->q, &f->owner[i], &w, f->now, &f->req[i]);
}

static int converts(struct fixture *f, unsigned i, enum vb_mode mode)
{
	struct vb_tq_want w = {.age = i, .number = 2, .mode = mode};

	f->said[i] = NONE;
	return vb_tq_convert(f->q, f->req[i], &w, f->now);
}

static void leaves(struct fixture *f, unsigned i)
{
	vb_tq_leave(f->q, f->req[i], f->now);
}

/* Every pair of modes against table 1 of Barthels et al., written out again. */
static void test_matrix(void **state)
{
	static const enum vb_mode mode[] = {VB_INTENT_SHARED, VB_INTENT_EXCLUSIVE, VB_SHARED,
					    VB_SHARED_INTENT_EXCLUSIVE, VB_EXCLUSIVE};
	/* In that order: IS, IX, S, SIX, X. */
	static const bool together[5][5] = {
		{1, 1, 1, 1, 0}, {1, 1, 0, 0, 0}, {1, 0, 1, 0, 0}, {1, 0, 0, 0, 0}, {0, 0, 0, 0, 0},
	};

	for (unsigned a = 0; a < 5; a++) {
		for (unsigned b = 0; b < 5; b++) {
			struct fixture f;

			open_queue(&f, VB_LOCKTAB_BOUNDED_WAIT, 16);
			assert_int_equal(asks(&f, 0, 7, mode[a]), 0);
			assert_int_equal(asks(&f, 1, 7, mode[b]),
					 together[a][b] ? 0 : -EINPROGRESS);
			leaves(&f, 0);
			assert_int_equal(f.said[1], together[a][b] ? NONE : 0);
			leaves(&f, 1);
			assert_int_equal(vb_tq_locks(f.q), 0);
			vb_tq_close(f.q);
		}
	}
}

static void test_first_come(void **state)
{
	struct fixture f;

	open_queue(&f, VB_LOCKTAB_BOUNDED_WAIT, 16);
	assert_int_equal(asks(&f, 0, 1, VB_SHARED), 0);
	assert_int_equal(asks(&f, 1, 1, VB_EXCLUSIVE), -EINPROGRESS);
	/* A reader does not pass the writer that waits ... */
	assert_int_equal(asks(&f, 2, 1, VB_SHARED), -EINPROGRESS);
	assert_int_equal(asks(&f, 3, 1, VB_SHARED), -EINPROGRESS);
	assert_int_equal(asks(&f, 4, 1, VB_EXCLUSIVE), -EINPROGRESS);
	leaves(&f, 0);
	assert_int_equal(f.said[1], 0);
	assert_int_equal(f.said[2], NONE);
	/* ... and those behind it go together. */
	leaves(&f, 1);
	assert_int_equal(f.said[2], 0);
	assert_int_equal(f.said[3], 0);
	assert_int_equal(f.said[4], NONE);
	leaves(&f, 2);
	leaves(&f, 3);
	assert_int_equal(f.said[4], 0);
	assert_int_equal(f.decisions, 4);
	vb_tq_close(f.q);
}

/* Who excludes none that stands ahead is in nobody's way. */
static void test_past_those_in_nobodys_way(void **state)
{
	struct fixture f;

	open_queue(&f, VB_LOCKTAB_BOUNDED_WAIT, 16);
	assert_int_equal(asks(&f, 0, 1, VB_INTENT_EXCLUSIVE), 0);
	assert_int_equal(asks(&f, 1, 1, VB_SHARED), -EINPROGRESS);
	assert_int_equal(asks(&f, 2, 1, VB_INTENT_SHARED), 0);
	assert_int_equal(asks(&f, 3, 1, VB_INTENT_EXCLUSIVE), -EINPROGRESS);
	leaves(&f, 0);
	assert_int_equal(f.said[1], 0);
	assert_int_equal(f.said[3], NONE);
	vb_tq_close(f.q);
}

/* Who gives up lets those behind it go that waited for nobody else. */
static void test_giving_up_wakes(void **state)
{
	struct fixture f;

	open_queue(&f, VB_LOCKTAB_BOUNDED_WAIT, 16);
	assert_int_equal(asks(&f, 0, 1, VB_SHARED), 0);
	assert_int_equal(asks(&f, 1, 1, VB_EXCLUSIVE), -EINPROGRESS);
	assert_int_equal(asks(&f, 2, 1, VB_SHARED), -EINPROGRESS);
	leaves(&f, 1);
	assert_int_equal(f.said[2], 0);
	vb_tq_close(f.q);
}

static void test_no_wait(void **state)
{
	struct fixture f;

	open_queue(&f, VB_LOCKTAB_NO_WAIT, 16);
	assert_int_equal(asks(&f, 0, 1, VB_SHARED), 0);
	assert_int_equal(asks(&f, 1, 1, VB_EXCLUSIVE), -EAGAIN);
	assert_int_equal(asks(&f, 2, 1, VB_SHARED), 0);
	assert_int_equal(converts(&f, 2, VB_EXCLUSIVE), -EAGAIN);
	vb_tq_close(f.q);
}

static void test_wait_die(void **state)
{
	struct fixture f;

	open_queue(&f, VB_LOCKTAB_WAIT_DIE, 16);
	assert_int_equal(asks(&f, 5, 1, VB_SHARED), 0);
	/* The older waits, the younger dies. */
	assert_int_equal(asks(&f, 6, 1, VB_EXCLUSIVE), -EAGAIN);
	assert_int_equal(asks(&f, 3, 1, VB_EXCLUSIVE), -EINPROGRESS);
	/* Older than the holder, which it does not exclude; younger than the waiter, which it
	 * does. */
	assert_int_equal(asks(&f, 4, 1, VB_SHARED), -EAGAIN);
	assert_int_equal(asks(&f, 2, 1, VB_SHARED), -EINPROGRESS);
	leaves(&f, 5);
	assert_int_equal(f.said[3], 0);
	leaves(&f, 3);
	assert_int_equal(f.said[2], 0);
	vb_tq_close(f.q);
}

/* A conversion comes in ahead of those who wait: who is younger than it would wait for the older.
 */
static void test_wait_die_conversion(void **state)
{
	struct fixture f;

	open_queue(&f, VB_LOCKTAB_WAIT_DIE, 16);
	assert_int_equal(asks(&f, 2, 1, VB_INTENT_SHARED), 0);
	assert_int_equal(asks(&f, 9, 1, VB_INTENT_EXCLUSIVE), 0);
	/* Each waits for 9 only. */
	assert_int_equal(asks(&f, 5, 1, VB_SHARED), -EINPROGRESS);
	assert_int_equal(asks(&f, 1, 1, VB_SHARED), -EINPROGRESS);
	/* 2 may go beside 9, and stands in the way of both: 5 is younger. */
	assert_int_equal(converts(&f, 2, VB_INTENT_EXCLUSIVE), 0);
	assert_int_equal(f.said[5], -EAGAIN);
	assert_int_equal(f.said[1], NONE);
	leaves(&f, 9);
	assert_int_equal(f.said[1], NONE);
	leaves(&f, 2);
	assert_int_equal(f.said[1], 0);
	vb_tq_close(f.q);
}

static void test_bounded_wait(void **state)
{
	struct fixture f;

	open_queue(&f, VB_LOCKTAB_BOUNDED_WAIT, 16);
	assert_int_equal(asks(&f, 0, 1, VB_SHARED), 0);
	f.now = 10;
	assert_int_equal(asks(&f, 1, 1, VB_EXCLUSIVE), -EINPROGRESS);
	f.now = 50;
	assert_int_equal(asks(&f, 2, 1, VB_SHARED), -EINPROGRESS);
	assert_int_equal(vb_tq_tend(f.q, 109), 110);
	assert_int_equal(f.decisions, 0);
	/* The head of the queue is told, and lets the one behind it go. */
	assert_true(vb_tq_tend(f.q, 110) > 110);
	assert_int_equal(f.said[1], -ETIMEDOUT);
	assert_int_equal(f.said[2], 0);
	vb_tq_close(f.q);
}

static void test_leases(void **state)
{
	struct fixture f;

	open_queue(&f, VB_LOCKTAB_BOUNDED_WAIT, 16);
	assert_int_equal(asks(&f, 0, 1, VB_EXCLUSIVE), 0);
	assert_int_equal(vb_tq_tend(f.q, 1), VB_FOREVER);
	f.now = 950;
	assert_int_equal(asks(&f, 1, 1, VB_EXCLUSIVE), -EINPROGRESS);
	assert_int_equal(vb_tq_tend(f.q, 999), 1000);
	assert_int_equal(f.said[1], NONE);
	(void)vb_tq_tend(f.q, 1000);
	assert_int_equal(f.said[1], 0);
	assert_null(vb_tq_by_ticket(&f.owner[0], 1, 1));
	assert_non_null(vb_tq_by_ticket(&f.owner[1], 1, 2));
	/* A dead one that waits is passed over. */
	assert_int_equal(asks(&f, 2, 1, VB_EXCLUSIVE), -EINPROGRESS);
	assert_int_equal(asks(&f, 3, 1, VB_EXCLUSIVE), -EINPROGRESS);
	f.dead[2] = true;
	leaves(&f, 1);
	assert_int_equal(f.said[2], NONE);
	assert_int_equal(f.said[3], 0);
	assert_int_equal(vb_tq_holds(f.q), 1);
	vb_tq_close(f.q);
}

static void test_conversions(void **state)
{
	struct fixture f;

	open_queue(&f, VB_LOCKTAB_BOUNDED_WAIT, 16);
	assert_int_equal(asks(&f, 0, 1, VB_SHARED), 0);
	assert_int_equal(asks(&f, 1, 1, VB_SHARED), 0);
	assert_int_equal(asks(&f, 2, 1, VB_EXCLUSIVE), -EINPROGRESS);
	/* Ahead of the queue, behind the other holder. */
	assert_int_equal(converts(&f, 0, VB_EXCLUSIVE), -EINPROGRESS);
	/* The other would wait for the first, and the first for it. */
	assert_int_equal(converts(&f, 1, VB_EXCLUSIVE), -EDEADLK);
	leaves(&f, 1);
	assert_int_equal(f.said[0], 0);
	assert_int_equal(f.said[2], NONE);
	assert_true(f.req[0]->token > f.req[0]->ticket);
	/* Less is there at once; the writer still has to wait. */
	assert_int_equal(converts(&f, 0, VB_SHARED), 0);
	assert_int_equal(f.said[2], NONE);
	leaves(&f, 0);
	assert_int_equal(f.said[2], 0);
	/* Less lets others in. */
	assert_int_equal(asks(&f, 3, 1, VB_INTENT_SHARED), -EINPROGRESS);
	assert_int_equal(converts(&f, 2, VB_INTENT_SHARED), 0);
	assert_int_equal(f.said[3], 0);
	vb_tq_close(f.q);
}

/* Readers come in beside a granted U, until its holder wants to write. */
static void test_readers_beside_update(void **state)
{
	struct fixture f;

	open_queue(&f, VB_LOCKTAB_BOUNDED_WAIT, 16);
	assert_int_equal(asks(&f, 0, 1, VB_UPDATE), 0);
	assert_int_equal(asks(&f, 1, 1, VB_SHARED), 0);
	assert_int_equal(asks(&f, 2, 1, VB_UPDATE), -EINPROGRESS);
	assert_int_equal(converts(&f, 0, VB_EXCLUSIVE), -EINPROGRESS);
	assert_int_equal(asks(&f, 3, 1, VB_SHARED), -EINPROGRESS);
	leaves(&f, 1);
	assert_int_equal(f.said[0], 0);
	assert_int_equal(f.said[3], NONE);
	leaves(&f, 0);
	assert_int_equal(f.said[2], 0);
	assert_int_equal(f.said[3], 0);
	vb_tq_close(f.q);
}

/* Three in a ring: each waits for what the next one holds. */
static void test_ring_of_three(void **state)
{
	struct fixture f;

	open_queue(&f, VB_LOCKTAB_BOUNDED_WAIT, 16);
	assert_int_equal(asks(&f, 0, 1, VB_INTENT_SHARED), 0);
	assert_int_equal(asks(&f, 1, 1, VB_INTENT_EXCLUSIVE), 0);
	assert_int_equal(asks(&f, 2, 1, VB_INTENT_SHARED), 0);
	/* 0 waits for 1; 1 for 0 and 2: a ring of two. */
	assert_int_equal(converts(&f, 0, VB_SHARED), -EINPROGRESS);
	/* 2 wants what excludes the wish of 0 before it, and nobody's hold: it waits for 0 only. */
	assert_int_equal(converts(&f, 2, VB_INTENT_EXCLUSIVE), -EINPROGRESS);
	/* 1 would wait for 0 and 2, which wait for it. */
	assert_int_equal(converts(&f, 1, VB_EXCLUSIVE), -EDEADLK);
	leaves(&f, 1);
	assert_int_equal(f.said[0], 0);
	assert_int_equal(f.said[2], NONE);
	leaves(&f, 0);
	assert_int_equal(f.said[2], 0);
	vb_tq_close(f.q);
}

static void test_undo(void **state)
{
	struct fixture f;

	open_queue(&f, VB_LOCKTAB_BOUNDED_WAIT, 16);
	assert_int_equal(asks(&f, 0, 1, VB_SHARED), 0);
	assert_int_equal(asks(&f, 1, 1, VB_SHARED), 0);
	assert_int_equal(converts(&f, 0, VB_EXCLUSIVE), -EINPROGRESS);
	assert_int_equal(asks(&f, 2, 1, VB_SHARED), -EINPROGRESS);
	vb_tq_undo(f.q, f.req[0], 2, f.now);
	assert_int_equal(f.said[2], 0);
	assert_int_equal(f.req[0]->mode, VB_SHARED);
	leaves(&f, 1);
	leaves(&f, 2);
	/* Granted already, and given up all the same. */
	assert_int_equal(converts(&f, 0, VB_EXCLUSIVE), 0);
	assert_int_equal(asks(&f, 2, 1, VB_SHARED), -EINPROGRESS);
	vb_tq_undo(f.q, f.req[0], 2, f.now);
	assert_int_equal(f.said[2], 0);
	vb_tq_close(f.q);
}

/* Two wait to convert, and the one behind could go: it would keep the first from going. */
static void test_conversions_come_in_order(void **state)
{
	struct fixture f;

	open_queue(&f, VB_LOCKTAB_BOUNDED_WAIT, 16);
	assert_int_equal(asks(&f, 0, 1, VB_INTENT_SHARED), 0);
	assert_int_equal(asks(&f, 1, 1, VB_INTENT_SHARED), 0);
	assert_int_equal(asks(&f, 2, 1, VB_INTENT_EXCLUSIVE), 0);
	assert_int_equal(asks(&f, 3, 1, VB_INTENT_SHARED), 0);
	assert_int_equal(converts(&f, 0, VB_SHARED_INTENT_EXCLUSIVE), -EINPROGRESS);
	assert_int_equal(converts(&f, 1, VB_INTENT_EXCLUSIVE), -EINPROGRESS);
	leaves(&f, 3);
	assert_int_equal(f.said[1], NONE);
	leaves(&f, 2);
	assert_int_equal(f.said[0], 0);
	assert_int_equal(f.said[1], NONE);
	leaves(&f, 0);
	assert_int_equal(f.said[1], 0);
	vb_tq_close(f.q);
}

static int converts_as(struct fixture *f, unsigned i, enum vb_mode mode, uint64_t number)
{
	struct vb_tq_want w = {.age = i, .number = number, .mode = mode};

	f->said[i] = NONE;
	return vb_tq_convert(f->q, f->req[i], &w, f->now);
}

/* Granted, refused, and the refused one is given up by who has not heard of that: what was granted
 * before it stays.  `refusal` is how the policy says no. */
static void undo_refused(enum vb_locktab_policy policy, int refusal)
{
	struct fixture f;

	open_queue(&f, policy, 16);
	assert_int_equal(asks(&f, 0, 1, VB_INTENT_SHARED), 0);
	assert_int_equal(asks(&f, 1, 1, VB_INTENT_SHARED), 0);
	assert_int_equal(converts_as(&f, 1, VB_INTENT_EXCLUSIVE, 2), 0);
	if (refusal == -EDEADLK)
		assert_int_equal(converts_as(&f, 0, VB_EXCLUSIVE, 2), -EINPROGRESS);
	assert_int_equal(converts_as(&f, 1, VB_EXCLUSIVE, 3), refusal);
	if (refusal == -EINPROGRESS) {
		f.now = 100;
		(void)vb_tq_tend(f.q, f.now);
		assert_int_equal(f.said[1], -ETIMEDOUT);
	}
	vb_tq_undo(f.q, f.req[1], 3, f.now);
	assert_int_equal(f.req[1]->mode, VB_INTENT_EXCLUSIVE);
	assert_int_equal(f.req[1]->state, VB_TQ_HELD);
	/* A second copy, and one of the conversion that nobody has given up: nothing either. */
	vb_tq_undo(f.q, f.req[1], 3, f.now);
	vb_tq_undo(f.q, f.req[1], 2, f.now);
	assert_int_equal(f.req[1]->mode, VB_INTENT_EXCLUSIVE);
	if (policy != VB_LOCKTAB_BOUNDED_WAIT)
		assert_int_equal(asks(&f, 2, 1, VB_SHARED), -EAGAIN);
	vb_tq_close(f.q);
}

static void test_undo_of_the_refused(void **state)
{
	undo_refused(VB_LOCKTAB_NO_WAIT, -EAGAIN);
	undo_refused(VB_LOCKTAB_WAIT_DIE, -EAGAIN);
	undo_refused(VB_LOCKTAB_BOUNDED_WAIT, -EDEADLK);
	undo_refused(VB_LOCKTAB_BOUNDED_WAIT, -EINPROGRESS);
}

static void test_room(void **state)
{
	struct fixture f;

	open_queue(&f, VB_LOCKTAB_BOUNDED_WAIT, 4);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(asks(&f, i, i, VB_EXCLUSIVE), 0);
	assert_int_equal(asks(&f, 4, 9, VB_EXCLUSIVE), -ENOBUFS);
	leaves(&f, 2);
	assert_int_equal(asks(&f, 4, 9, VB_EXCLUSIVE), 0);
	/* What has run out makes room. */
	f.now = 1000;
	assert_int_equal(asks(&f, 5, 10, VB_EXCLUSIVE), 0);
	assert_int_equal(vb_tq_locks(f.q), 1);
	vb_tq_close(f.q);
}

/* ---- anything at all, beside rules that need no queue to be judged ---- */

static void check_holders(struct fixture *f, unsigned locks)
{
	for (unsigned i = 0; i < OWNERS; i++) {
		for (unsigned j = 0; j < i; j++) {
			const struct vb_tq_req *a = f->req[i], *b = f->req[j];

			if (a == NULL || b == NULL || a->lock != b->lock ||
			    a->state == VB_TQ_WAITING || b->state == VB_TQ_WAITING)
				continue;
			assert_false(vb_modes_exclude(a->mode, b->mode));
		}
	}
	assert_true(vb_tq_locks(f->q) <= locks);
}

static void random_step(struct fixture *f, struct vb_rng *r)
{
	unsigned i = (unsigned)vb_rng_below(r, OWNERS);
	enum vb_mode mode = (enum vb_mode)vb_rng_below(r, VB_MODES);
	struct vb_tq_req *q = f->req[i];
	int err;

	if (q == NULL) {
		err = asks(f, i, vb_rng_below(r, 3), mode);
		if (err != 0 && err != -EINPROGRESS)
			f->req[i] = NULL;
		return;
	}
	if (q->state == VB_TQ_HELD && vb_rng_chance(r, 0.4) && mode != q->mode &&
	    (vb_mode_covers(q->mode, mode) || vb_mode_covers(mode, q->mode))) {
		err = converts(f, i, mode);
		assert_true(err == 0 || err == -EINPROGRESS || err == -EAGAIN || err == -EDEADLK);
		return;
	}
	leaves(f, i);
	f->req[i] = NULL;
}

static void test_anything(void **state)
{
	for (unsigned policy = 0; policy < 3; policy++) {
		struct fixture f;
		struct vb_rng r;

		open_queue(&f, (enum vb_locktab_policy)policy, OWNERS);
		vb_rng_seed(&r, 7 + policy, 0);
		for (unsigned n = 0; n < 200000; n++) {
			random_step(&f, &r);
			f.now++;
			(void)vb_tq_tend(f.q, f.now);
			for (unsigned i = 0; i < OWNERS; i++)
				if (f.req[i] != NULL && f.req[i]->state == VB_TQ_FREE)
					f.req[i] = NULL;
			check_holders(&f, 3);
		}
		for (unsigned i = 0; i < OWNERS; i++)
			if (f.req[i] != NULL && f.req[i]->state != VB_TQ_FREE)
				leaves(&f, i);
		assert_int_equal(vb_tq_locks(f.q), 0);
		assert_int_equal(vb_tq_holds(f.q), 0);
		assert_true(f.notes > 1000 && (policy == VB_LOCKTAB_NO_WAIT || f.decisions > 1000));
		vb_tq_close(f.q);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_matrix),
		cmocka_unit_test(test_first_come),
		cmocka_unit_test(test_past_those_in_nobodys_way),
		cmocka_unit_test(test_giving_up_wakes),
		cmocka_unit_test(test_no_wait),
		cmocka_unit_test(test_wait_die),
		cmocka_unit_test(test_wait_die_conversion),
		cmocka_unit_test(test_bounded_wait),
		cmocka_unit_test(test_leases),
		cmocka_unit_test(test_conversions),
		cmocka_unit_test(test_readers_beside_update),
		cmocka_unit_test(test_ring_of_three),
		cmocka_unit_test(test_conversions_come_in_order),
		cmocka_unit_test(test_undo),
		cmocka_unit_test(test_undo_of_the_refused),
		cmocka_unit_test(test_room),
		cmocka_unit_test(test_anything),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
