/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every lock must do, on every fabric: one body, included by a stub of a few lines.
 *
 *	#define LOCK vb_lock_mcs
 *	#include "lock_suite.h"
 *
 * Which of these run for a lock, and how many must: suite_run.h.
 */
#include "suite_holder.h"
#include "suite_names.h"
#include "suite_remove.h"
#include "world.h"

#include "base/log.h"
#include "check/lock/audit.h"

extern const struct vb_lock_ops LOCK;

struct suite_test;

/* What one case runs. */
struct suite_case {
	enum world_kind kind;
	const struct suite_test *test;
};

static enum world_kind kind_of(void **state)
{
	return ((const struct suite_case *)*state)->kind;
}

/* Options with which it waits for as long as it is told to, where that is not the default. */
#ifndef LOCK_PATIENT
#define LOCK_PATIENT NULL
#endif

static void open_usual(struct world *w, void **state)
{
	world_open(w, &(struct world_params){
			      .kind = kind_of(state), .ops = &LOCK, .lock_options = LOCK_PATIENT});
}

/* Readers give nothing back: others wait for the end of their leases. */
static bool readers_have_leases(void)
{
	return (LOCK.caps & VB_LOCK_READ_LEASE) != 0;
}

/* A shared grant that ends by itself may be over when it is given back. */
static int give_back(struct vb_lock_client *me, struct vb_grant *g)
{
	bool may_be_over = readers_have_leases() && g->mode == VB_SHARED;
	int err = vb_lock_release(me, g);

	return err == -VB_ELOST && may_be_over ? 0 : err;
}

/* ---- exclusion and sharing ---- */

#define ROUNDS 200
#define RIVALS 4

/* Adds one to the lock's cell with two verbs: lost if two are inside at a time.  Either may be lost
 * on a machine that is so busy that a deferred verb comes too late; under the lock it can be
 * repeated. */
static int add_one(struct world *w, struct vb_lock_client *me, uint64_t lock)
{
	uint64_t v;
	int err;

	do
		err = vb_read64(me->ep, w->cells + lock * 8, &v);
	while (err == -VB_EUNKNOWN);
	/* Where verbs complete at once, others would never run in between. */
	vb_task_yield();
	v++;
	while (err == 0 && (err = vb_write(me->ep, w->cells + lock * 8, &v, 8)) == -VB_EUNKNOWN)
		err = 0;
	return err;
}

static void exclusion_actor(struct world *w, struct vb_lock_client *me, unsigned i)
{
	for (unsigned r = 0; r < ROUNDS; r++) {
		uint64_t lock = (r + i) % 3;
		struct vb_grant g;

		EXPECT_ERR(w, 0, vb_lock_acquire(me, lock, VB_EXCLUSIVE, PATIENCE_NS, &g));
		EXPECT(w, g.lock == lock && g.mode == VB_EXCLUSIVE);
		EXPECT(w, vb_lock_valid(me, &g));
		board_enter(w->b, lock, VB_EXCLUSIVE);
		EXPECT_ERR(w, 0, add_one(w, me, lock));
		board_leave(w->b, lock, VB_EXCLUSIVE);
		EXPECT_ERR(w, 0, vb_lock_release(me, &g));
	}
}

static void check_exclusion(struct world *w)
{
	assert_int_equal(w->b->violations, 0);
	assert_int_equal(world_cell(w, 0) + world_cell(w, 1) + world_cell(w, 2), RIVALS * ROUNDS);
}

static void exclusion(void **state)
{
	struct world w;

	open_usual(&w, state);
	world_run(&w, RIVALS, exclusion_actor);
	check_exclusion(&w);
	world_close(&w);
}

/* What a reader sees stays as it is while its grant is valid. */
static int look_twice(struct world *w, struct vb_lock_client *me, const struct vb_grant *g)
{
	uint64_t first, second;
	int err = vb_read64(me->ep, w->cells + g->lock * 8, &first);

	vb_task_yield();
	if (err == 0)
		err = vb_read64(me->ep, w->cells + g->lock * 8, &second);
	return err == 0 && first != second && vb_lock_valid(me, g) ? -EPROTO : err;
}

static void mixed_actor(struct world *w, struct vb_lock_client *me, unsigned i)
{
	for (unsigned r = 0; r < ROUNDS; r++) {
		enum vb_mode mode = (r * 7 + i) % 3 == 0 ? VB_EXCLUSIVE : VB_SHARED;
		struct vb_grant g;
		bool watched;

		EXPECT_ERR(w, 0, vb_lock_acquire(me, 5, mode, PATIENCE_NS, &g));
		EXPECT(w, g.mode == (LOCK.caps & VB_LOCK_SHARED ? mode : VB_EXCLUSIVE));
		/* The board knows nothing of leases. */
		watched = g.mode == VB_EXCLUSIVE || !readers_have_leases();
		if (watched)
			board_enter(w->b, 5, g.mode);
		if (g.mode == VB_EXCLUSIVE)
			EXPECT_ERR(w, 0, add_one(w, me, 5));
		else
			EXPECT_ERR(w, 0, look_twice(w, me, &g));
		if (watched)
			board_leave(w->b, 5, g.mode);
		EXPECT_ERR(w, 0, give_back(me, &g));
	}
	for (unsigned r = 0; r < ROUNDS; r++)
		if (!(LOCK.caps & VB_LOCK_SHARED) || (r * 7 + i) % 3 == 0)
			board_add(&w->b->step[0]);
}

static void readers_and_writers(void **state)
{
	struct world w;

	open_usual(&w, state);
	world_run(&w, RIVALS, mixed_actor);
	assert_int_equal(w.b->violations, 0);
	assert_true(w.b->step[0] > 0);
	assert_int_equal(world_cell(&w, 5), w.b->step[0]);
	world_close(&w);
}

static void together_actor(struct world *w, struct vb_lock_client *me, unsigned i)
{
	struct vb_grant g;

	EXPECT_ERR(w, 0, vb_lock_acquire(me, 7, VB_SHARED, PATIENCE_NS, &g));
	EXPECT(w, g.mode == VB_SHARED);
	/* Each gives back only when all have it. */
	board_add(&w->b->step[0]);
	AWAIT(w, me, &w->b->step[0], 3);
	EXPECT_ERR(w, 0, give_back(me, &g));
	board_add(&w->b->step[1]);
	if (i != 0)
		return;
	AWAIT(w, me, &w->b->step[1], 3);
	if (readers_have_leases())
		EXPECT_ERR(w, 0, vb_lock_acquire(me, 7, VB_EXCLUSIVE, PATIENCE_NS, &g));
	else
		EXPECT_ERR(w, 0, vb_lock_try(me, 7, VB_EXCLUSIVE, &g));
	EXPECT_ERR(w, 0, vb_lock_release(me, &g));
}

static void shared_together(void **state)
{
	struct world w;

	open_usual(&w, state);
	world_run(&w, 3, together_actor);
	world_close(&w);
}

/* Everybody adds to a cell: reads it under an update lock, beside readers, and writes it when the
 * lock has become exclusive.  Readers must never see it change. */
static void upgrade_actor(struct world *w, struct vb_lock_client *me, unsigned i)
{
	for (unsigned r = 0; r < ROUNDS / 2; r++) {
		bool reads = (r + i) % 2;
		uint64_t v, again;
		struct vb_grant g;

		EXPECT_ERR(w, 0,
			   vb_lock_acquire(me, 6, reads ? VB_SHARED : VB_UPDATE, PATIENCE_NS, &g));
		EXPECT_ERR(w, 0, vb_read64(me->ep, w->cells + 6 * 8, &v));
		vb_task_yield();
		if (reads) {
			EXPECT_ERR(w, 0, vb_read64(me->ep, w->cells + 6 * 8, &again));
			EXPECT(w, v == again);
		} else {
			EXPECT(w, g.mode == VB_UPDATE);
			EXPECT_ERR(w, 0, vb_lock_convert(me, &g, VB_EXCLUSIVE, PATIENCE_NS));
			EXPECT(w, g.mode == VB_EXCLUSIVE && vb_lock_valid(me, &g));
			board_enter(w->b, 6, VB_EXCLUSIVE);
			v++;
			EXPECT_ERR(w, 0, vb_write(me->ep, w->cells + 6 * 8, &v, 8));
			board_leave(w->b, 6, VB_EXCLUSIVE);
		}
		EXPECT_ERR(w, 0, vb_lock_release(me, &g));
	}
}

static void upgrades(void **state)
{
	struct world w;

	open_usual(&w, state);
	world_run(&w, RIVALS, upgrade_actor);
	assert_int_equal(w.b->violations, 0);
	assert_int_equal(world_cell(&w, 6), RIVALS * ROUNDS / 4);
	world_close(&w);
}

/* ---- order ---- */

/* In the queue one after the other, as these; the first holds until all the others stand there. */
static const enum vb_mode writers_only[RIVALS + 1] = {VB_EXCLUSIVE, VB_EXCLUSIVE, VB_EXCLUSIVE,
						      VB_EXCLUSIVE, VB_EXCLUSIVE};
static const enum vb_mode in_turns[RIVALS + 1] = {VB_EXCLUSIVE, VB_SHARED, VB_EXCLUSIVE, VB_SHARED,
						  VB_EXCLUSIVE};

static void stand_in_queue(struct world *w, struct vb_lock_client *me, unsigned i,
			   const enum vb_mode *modes)
{
	struct vb_grant g;

	if (i == 0) {
		EXPECT_ERR(w, 0, vb_lock_acquire(me, 9, modes[0], PATIENCE_NS, &g));
		board_add(&w->b->step[0]);
		AWAIT(w, me, &w->b->queued, RIVALS);
		EXPECT_ERR(w, 0, vb_lock_release(me, &g));
		return;
	}
	AWAIT(w, me, &w->b->step[0], 1);
	AWAIT(w, me, &w->b->queued, i - 1);
	EXPECT_ERR(w, 0, vb_lock_acquire(me, 9, modes[i], PATIENCE_NS, &g));
	w->b->order[board_add(&w->b->n_order) - 1] = i;
	EXPECT_ERR(w, 0, vb_lock_release(me, &g));
}

static void writer_actor(struct world *w, struct vb_lock_client *me, unsigned i)
{
	stand_in_queue(w, me, i, writers_only);
}

static void turn_actor(struct world *w, struct vb_lock_client *me, unsigned i)
{
	stand_in_queue(w, me, i, in_turns);
}

static void run_queue(void **state, actor_fn fn)
{
	struct world w;

	open_usual(&w, state);
	world_run(&w, RIVALS + 1, fn);
	assert_int_equal(w.b->n_order, RIVALS);
	for (unsigned k = 0; k < RIVALS; k++)
		assert_int_equal(w.b->order[k], k + 1);
	world_close(&w);
}

/* Every lock that promises an order has this one: no writer passes another. */
static void order(void **state)
{
	run_queue(state, writer_actor);
}

/* Nor do readers and writers pass each other.  Who lets some of them pass, and how many:
 * sim/test_lock_order.c. */
static void order_of_both(void **state)
{
	run_queue(state, turn_actor);
}

/* ---- not getting it ---- */

/* In virtual time nobody else has the core: a deadline is late by the verbs that are under way and
 * by those that tell of the end, which are some round trips. */
#define LATE_NS 5000

static void within(struct world *w, struct vb_lock_client *me, uint64_t since, uint64_t timeout_ns)
{
	uint64_t took = vb_lock_now(me) - since;

	EXPECT(w, took >= timeout_ns);
	EXPECT(w, w->kind != SIM || took <= timeout_ns + LATE_NS);
}

/* In virtual time: the verbs of a try, and of a client's first call. */
#define TRY_NS 100000

static void try_actor(struct world *w, struct vb_lock_client *me, unsigned i)
{
	uint64_t before = vb_lock_now(me);
	struct vb_grant g;

	if (i == 0) {
		EXPECT_ERR(w, 0, vb_lock_try(me, 11, VB_EXCLUSIVE, &g));
		EXPECT(w, w->kind != SIM || vb_lock_now(me) - before <= TRY_NS);
		EXPECT(w, g.mode == VB_EXCLUSIVE && vb_lock_valid(me, &g));
		__atomic_store_n(&w->b->token, vb_lock_client_peer(me), __ATOMIC_SEQ_CST);
		board_add(&w->b->step[0]);
		AWAIT(w, me, &w->b->step[1], 1);
		EXPECT_ERR(w, 0, vb_lock_release(me, &g));
		board_add(&w->b->step[0]);
		tell_of_oneself(w, me, 12);
		return;
	}
	AWAIT(w, me, &w->b->step[0], 1);
	holds_one(w, me, 11, board_get(&w->b->token));
	for (unsigned r = 0; r < 3; r++) {
		before = vb_lock_now(me);
		EXPECT_ERR(w, -EAGAIN, vb_lock_try(me, 11, r % 2 ? VB_SHARED : VB_EXCLUSIVE, &g));
		EXPECT(w, w->kind != SIM || vb_lock_now(me) - before <= TRY_NS);
	}
	holds_one(w, me, 11, board_get(&w->b->token));
	board_add(&w->b->step[1]);
	AWAIT(w, me, &w->b->step[0], 2);
	holds_nobody(w, me, 11);
	for (unsigned r = 0; r < 3; r++) {
		/* A short lease may be over before a busy machine has told of it. */
		if (r % 2 && readers_have_leases())
			break;
		EXPECT_ERR(w, 0, vb_lock_try(me, 11, r % 2 ? VB_SHARED : VB_EXCLUSIVE, &g));
		EXPECT_ERR(w, 0, vb_lock_release(me, &g));
	}
}

static void try_without_waiting(void **state)
{
	struct world w;

	open_usual(&w, state);
	world_run(&w, 2, try_actor);
	world_close(&w);
}

static void deadline_actor(struct world *w, struct vb_lock_client *me, unsigned i)
{
	struct board *b = w->b;
	struct vb_grant g;
	uint64_t before;

	switch (i) {
	case 0:
		EXPECT_ERR(w, 0, vb_lock_acquire(me, 13, VB_EXCLUSIVE, PATIENCE_NS, &g));
		board_add(&b->step[0]);
		AWAIT(w, me, &b->step[1], 2);
		EXPECT_ERR(w, 0, vb_lock_release(me, &g));
		board_add(&b->step[2]);
		return;
	case 1:
	case 2:
		AWAIT(w, me, &b->step[0], 1);
		before = vb_lock_now(me);
		EXPECT_ERR(w, -ETIMEDOUT,
			   vb_lock_acquire(me, 13, i == 1 ? VB_EXCLUSIVE : VB_SHARED, w->unit, &g));
		within(w, me, before, w->unit);
		before = vb_lock_now(me);
		EXPECT_ERR(w, -ETIMEDOUT, vb_lock_acquire(me, 13, VB_EXCLUSIVE, 0, &g));
		within(w, me, before, 0);
		board_add(&b->step[1]);
		/* What we left in the queue needs this thread to hand the lock on. */
		AWAIT(w, me, &b->step[3], 1);
		EXPECT_ERR(w, 0, vb_lock_acquire(me, 13, VB_EXCLUSIVE, PATIENCE_NS, &g));
		EXPECT_ERR(w, 0, vb_lock_release(me, &g));
		return;
	case 3:
		AWAIT(w, me, &b->step[2], 1);
		EXPECT_ERR(w, 0, vb_lock_acquire(me, 13, VB_EXCLUSIVE, PATIENCE_NS, &g));
		EXPECT_ERR(w, 0, vb_lock_release(me, &g));
		board_add(&b->step[3]);
		return;
	}
}

static void deadline(void **state)
{
	struct world w;

	open_usual(&w, state);
	world_run(&w, 4, deadline_actor);
	world_close(&w);
}

static void again_actor(struct world *w, struct vb_lock_client *me, unsigned i)
{
	struct board *b = w->b;
	struct vb_grant g;

	if (i == 0) {
		for (unsigned r = 1; r <= 2; r++) {
			EXPECT_ERR(w, 0, vb_lock_acquire(me, 15, VB_EXCLUSIVE, PATIENCE_NS, &g));
			board_add(&b->step[0]);
			AWAIT(w, me, &b->step[1], r);
			/* Long enough for him to stand there again, mostly. */
			actor_sleep(me, w->unit / 4);
			EXPECT_ERR(w, 0, vb_lock_release(me, &g));
			AWAIT(w, me, &b->step[2], r);
		}
		return;
	}
	for (unsigned r = 1; r <= 2; r++) {
		AWAIT(w, me, &b->step[0], r);
		EXPECT_ERR(w, -ETIMEDOUT, vb_lock_acquire(me, 15, VB_EXCLUSIVE, w->unit / 4, &g));
		board_add(&b->step[1]);
		/* The same mode takes the place in the queue over, the other waits for its end. */
		EXPECT_ERR(w, 0,
			   vb_lock_acquire(me, 15, r == 1 ? VB_EXCLUSIVE : VB_SHARED, PATIENCE_NS,
					   &g));
		EXPECT_ERR(w, 0, give_back(me, &g));
		board_add(&b->step[2]);
	}
}

static void again_after_deadline(void **state)
{
	struct world w;

	open_usual(&w, state);
	world_run(&w, 2, again_actor);
	world_close(&w);
}

static void cancel_actor(struct world *w, struct vb_lock_client *me, unsigned i)
{
	struct board *b = w->b;
	struct vb_grant g;

	switch (i) {
	case 0:
		EXPECT_ERR(w, 0, vb_lock_acquire(me, 17, VB_EXCLUSIVE, PATIENCE_NS, &g));
		board_add(&b->step[0]);
		AWAIT(w, me, &b->step[1], 1);
		actor_sleep(me, w->unit);
		vb_task_cancel(w->task[1]);
		AWAIT(w, me, &b->step[2], 1);
		EXPECT_ERR(w, 0, vb_lock_release(me, &g));
		board_add(&b->step[3]);
		return;
	case 1:
		AWAIT(w, me, &b->step[0], 1);
		board_add(&b->step[1]);
		EXPECT_ERR(w, -ECANCELED, vb_lock_acquire(me, 17, VB_EXCLUSIVE, VB_FOREVER_NS, &g));
		board_add(&b->step[2]);
		return;
	case 2:
		AWAIT(w, me, &b->step[3], 1);
		EXPECT_ERR(w, 0, vb_lock_acquire(me, 17, VB_EXCLUSIVE, PATIENCE_NS, &g));
		EXPECT_ERR(w, 0, vb_lock_release(me, &g));
		return;
	}
}

static void cancellation(void **state)
{
	struct world w;

	open_usual(&w, state);
	world_run(&w, 3, cancel_actor);
	world_close(&w);
}

/* ---- bad input ---- */

static void misuse_actor(struct world *w, struct vb_lock_client *me, unsigned i)
{
	static struct vb_grant many[VB_CLAIMS_MAX];
	struct vb_grant g, other = {.lock = 21};
	char said[256] = "";

	(void)i;
	vb_log_capture_begin(said, sizeof(said));
	EXPECT_ERR(w, -EINVAL, vb_lock_acquire(me, WORLD_LOCKS, VB_EXCLUSIVE, 0, &g));
	EXPECT_ERR(w, -EINVAL, vb_lock_acquire(me, UINT64_MAX, VB_SHARED, 0, &g));
	EXPECT_ERR(w, -EINVAL, vb_lock_try(me, WORLD_LOCKS, VB_EXCLUSIVE, &g));
	EXPECT(w, strlen(said) > 0);
	EXPECT_ERR(w, -EINVAL, vb_lock_acquire(me, 0, (enum vb_mode)7, 0, &g));
	EXPECT_ERR(w, -EINVAL, vb_lock_try(me, 0, (enum vb_mode) - 1, &g));
	EXPECT_ERR(w, -EINVAL, vb_lock_convert(me, &other, VB_SHARED, 0));
	EXPECT_ERR(w, -EINVAL, vb_lock_release(me, &other));
	EXPECT_ERR(w, 0, vb_lock_acquire(me, 21, VB_EXCLUSIVE, PATIENCE_NS, &g));
	EXPECT_ERR(w, -EDEADLK, vb_lock_acquire(me, 21, VB_EXCLUSIVE, 0, &other));
	EXPECT_ERR(w, -EDEADLK, vb_lock_try(me, 21, VB_SHARED, &other));
	EXPECT_ERR(w, 0, vb_lock_release(me, &g));
	EXPECT_ERR(w, -EINVAL, vb_lock_release(me, &g));
	for (unsigned k = 0; k < VB_CLAIMS_MAX; k++)
		EXPECT_ERR(w, 0, vb_lock_acquire(me, k, VB_EXCLUSIVE, PATIENCE_NS, &many[k]));
	EXPECT_ERR(w, -EBUSY, vb_lock_acquire(me, VB_CLAIMS_MAX, VB_EXCLUSIVE, 0, &g));
	for (unsigned k = 0; k < VB_CLAIMS_MAX; k++)
		EXPECT_ERR(w, 0, vb_lock_release(me, &many[k]));
	vb_log_capture_end();
}

/* Modes that the caps do not promise: served as exclusive, or refused with the reason. */
static void modes_actor(struct world *w, struct vb_lock_client *me, unsigned i)
{
	char said[512] = "";
	struct vb_grant g;

	(void)i;
	EXPECT_ERR(w, 0, vb_lock_acquire(me, 5, VB_UPDATE, PATIENCE_NS, &g));
	EXPECT(w, g.mode == (LOCK.caps & VB_LOCK_UPDATE ? VB_UPDATE : VB_EXCLUSIVE));
	EXPECT_ERR(w, 0, vb_lock_convert(me, &g, g.mode, 0));
	vb_log_capture_begin(said, sizeof(said));
	if (LOCK.convert == NULL && LOCK.caps & VB_LOCK_SHARED) {
		EXPECT_ERR(w, -EOPNOTSUPP, vb_lock_convert(me, &g, VB_SHARED, 0));
		EXPECT(w, strstr(said, LOCK.name) != NULL && strstr(said, "shared") != NULL);
	}
	EXPECT_ERR(w, 0, vb_lock_release(me, &g));
	for (enum vb_mode m = VB_INTENT_SHARED; m < VB_MODES && !(LOCK.caps & VB_LOCK_INTENT);
	     m++) {
		said[0] = 0;
		EXPECT_ERR(w, -EOPNOTSUPP, vb_lock_acquire(me, 5, m, 0, &g));
		EXPECT_ERR(w, -EOPNOTSUPP, vb_lock_try(me, 5, m, &g));
		EXPECT(w, strstr(said, vb_lock_mode_name(m)) != NULL);
	}
	vb_log_capture_end();
}

static void modes(void **state)
{
	struct world w;

	open_usual(&w, state);
	world_run(&w, 1, modes_actor);
	world_close(&w);
}

static void misuse(void **state)
{
	struct world w;

	open_usual(&w, state);
	world_run(&w, 1, misuse_actor);
	world_close(&w);
}

/* Who opens the space once more must want the same; and the locks are the same, and their names. */
static void reopening_actor(struct world *w, struct vb_lock_client *me, unsigned i)
{
	struct vb_lock_space_params p = world_space_params(w, w->space->servers);
	struct vb_lock_space_params wrong[4] = {p, p, p, p};
	struct vb_lock_space *second = NULL;
	char said[256];
	struct vb_grant g;

	wrong[0].locks++;
	wrong[1].lease_ns++;
	wrong[2].lock = strcmp(LOCK.name, "cas") ? "cas" : "mcs";
	wrong[3].servers = p.servers == 1 ? 2 : 1;
	for (unsigned k = 0; k < 4 && i == 0; k++) {
		said[0] = 0;
		vb_log_capture_begin(said, sizeof(said));
		EXPECT_ERR(w, -EINVAL, vb_lock_space_open(w->f, &wrong[k], &second));
		vb_log_capture_end();
		EXPECT(w, strlen(said) > 0);
		EXPECT(w, second == NULL);
	}
	if (i == 0) {
		EXPECT_ERR(w, 0, vb_lock_space_open(w->f, &p, &second));
		vb_lock_space_close(second);
		board_add(&w->b->step[0]);
	}
	/* Names mute the log of the thread, which has been listened to until now. */
	AWAIT(w, me, &w->b->step[0], 1);
	EXPECT_ERR(w, 0, vb_lock_acquire(me, 1, VB_EXCLUSIVE, PATIENCE_NS, &g));
	EXPECT_ERR(w, 0, vb_lock_release(me, &g));
	use_names(w, me, add_one);
	if (strcmp(LOCK.name, "cas") == 0)
		removing_actor(w, me, i);
}

static void reopening(void **state)
{
	struct world w;

	open_usual(&w, state);
	world_run(&w, 2, reopening_actor);
	check_names(&w, 2);
	world_close(&w);
}

/* ---- tokens and leases ---- */

static void token_actor(struct world *w, struct vb_lock_client *me, unsigned i)
{
	struct vb_grant g;

	(void)i;
	for (unsigned r = 0; r < ROUNDS / 2; r++) {
		EXPECT_ERR(w, 0, vb_lock_acquire(me, 19, VB_EXCLUSIVE, PATIENCE_NS, &g));
		EXPECT(w, g.token > board_get(&w->b->token));
		__atomic_store_n(&w->b->token, g.token, __ATOMIC_SEQ_CST);
		vb_task_yield();
		EXPECT_ERR(w, 0, vb_lock_release(me, &g));
	}
}

static void tokens_grow(void **state)
{
	struct world w;

	world_open(&w,
		   &(struct world_params){.kind = kind_of(state), .ops = &LOCK, .fencing = true});
	world_run(&w, 3, token_actor);
	assert_true(w.b->token >= 3 * (ROUNDS / 2));
	world_close(&w);
}

/* What is asked for is granted, or refused with the way out. */
static void hold_actor(struct world *w, struct vb_lock_client *me, unsigned i)
{
	uint64_t lease = w->space->lease_ns;

	(void)i;
	for (enum vb_mode mode = VB_SHARED; mode <= VB_EXCLUSIVE; mode++) {
		uint64_t most = vb_lock_hold_max_ns(me, mode);
		char said[256] = "";
		struct vb_grant g;

		EXPECT(w, most >= lease);
		EXPECT_ERR(w, 0, vb_lock_acquire_for(me, 25, mode, most, PATIENCE_NS, &g));
		if (most == VB_FOREVER_NS)
			EXPECT(w, g.valid_until_ns == VB_FOREVER_NS);
		else if (LOCK.caps & VB_LOCK_SURVIVES)
			EXPECT(w, g.valid_until_ns <= vb_lock_now(me) + most);
		EXPECT_ERR(w, 0, give_back(me, &g));
		if (most == VB_FOREVER_NS)
			continue;
		vb_log_capture_begin(said, sizeof(said));
		EXPECT_ERR(w, LOCK.leases_max ? -EINVAL : -EOPNOTSUPP,
			   vb_lock_acquire_for(me, 25, mode, most + 1, PATIENCE_NS, &g));
		vb_log_capture_end();
		EXPECT(w, strstr(said, "lease") != NULL);
	}
}

static void holds(void **state)
{
	struct world w;

	open_usual(&w, state);
	world_run(&w, 1, hold_actor);
	world_close(&w);
}

/* Actor 0 sits on the lock, in each mode; actor 1 gets it all the same, in each mode. */
static void lease_actor(struct world *w, struct vb_lock_client *me, unsigned i)
{
	uint64_t bound = LOCK.recovery_leases * vb_lock_stretch(w->space, w->space->lease_ns);
	uint64_t last = 0;

	/* Deferred verbs need a lease so long that one round of each holder must do. */
	for (unsigned r = 0; r < (w->kind == SHM_DEFER || world_is_net(w->kind) ? 2 : 4); r++) {
		enum vb_mode sits = r & 1 ? VB_SHARED : VB_EXCLUSIVE;
		enum vb_mode asks = r & 2 && sits == VB_EXCLUSIVE ? VB_SHARED : VB_EXCLUSIVE;
		struct vb_grant g;
		uint64_t before;

		if (i == 0) {
			EXPECT_ERR(w, 0, vb_lock_acquire(me, 23, sits, PATIENCE_NS, &g));
			EXPECT(w, g.valid_until_ns <= vb_lock_now(me) + w->space->lease_ns);
			board_add(&w->b->step[0]);
			AWAIT(w, me, &w->b->step[1], r + 1);
			EXPECT(w, !vb_lock_valid(me, &g));
			EXPECT_ERR(w, -VB_ELOST, vb_lock_release(me, &g));
			board_add(&w->b->step[2]);
			continue;
		}
		AWAIT(w, me, &w->b->step[0], r + 1);
		before = vb_lock_now(me);
		EXPECT_ERR(w, 0, vb_lock_acquire(me, 23, asks, PATIENCE_NS, &g));
		/* Exact in virtual time; on the machine others may have had the core. */
		EXPECT(w, vb_lock_now(me) - before <=
				  bound + 100 * w->unit * (w->kind != SIM) + w->unit / 2);
		if (g.mode == VB_EXCLUSIVE && g.token) {
			EXPECT(w, g.token > last);
			last = g.token;
		}
		EXPECT_ERR(w, 0, vb_lock_release(me, &g));
		board_add(&w->b->step[1]);
		AWAIT(w, me, &w->b->step[2], r + 1);
	}
}

static void lease_ends(void **state)
{
	static const uint64_t lease_ns[WORLD_KINDS] = {
		[SIM] = 2 * MS,           [SHM_TASKS] = 60 * MS,    [SHM_PROCESSES] = 60 * MS,
		[SHM_DEFER] = 220 * MS,   [NET_TASKS] = 220 * MS,   [NET_PROCESSES] = 220 * MS,
		[NET_CLIENTS] = 220 * MS, [VERBS_TASKS] = 260 * MS, [VERBS_PROCESSES] = 260 * MS};
	struct world w;

	world_open(&w, &(struct world_params){.kind = kind_of(state),
					      .ops = &LOCK,
					      .fencing = true,
					      .lease_ns = lease_ns[kind_of(state)]});
	world_run(&w, 2, lease_actor);
	world_close(&w);
}

/* ---- fabrics that do less, or lie low ---- */

static void plain_fabric(void **state)
{
	struct world_params p = {.kind = SIM, .ops = &LOCK, .options = "profile=plain64"};
	uint32_t missing = LOCK.needs & (VB_CAP_MASKED64 | VB_CAP_MASKED128);
	char said[256] = "";
	struct world w;
	int err;

	(void)state;
	vb_log_capture_begin(said, sizeof(said));
	err = world_try_open(&w, &p);
	vb_log_capture_end();
	if (missing) {
		assert_int_equal(err, -EOPNOTSUPP);
		assert_non_null(strstr(said, "masked"));
		assert_non_null(strstr(said, LOCK.name));
		vb_sched_destroy(vb_sched_self());
		return;
	}
	assert_int_equal(err, 0);
	world_run(&w, RIVALS, exclusion_actor);
	check_exclusion(&w);
	world_close(&w);
}

/* Answers get lost: nobody may be granted what another has, and nobody may be left waiting for good
 * where the lock survives that. */
static void unlucky_actor(struct world *w, struct vb_lock_client *me, unsigned i)
{
	for (unsigned r = 0; r < ROUNDS; r++) {
		enum vb_mode mode = (r + i) % 2 ? VB_SHARED : VB_EXCLUSIVE;
		struct vb_grant g;
		int err = vb_lock_acquire(me, r % 4, mode, 10 * MS, &g);

		if (err == 0) {
			board_add(&w->b->step[0]);
			actor_sleep(me, 3000);
			err = vb_lock_release(me, &g);
		}
		EXPECT(w, err == 0 || err == -ETIMEDOUT || err == -VB_EUNKNOWN ||
				  err == -VB_ELOST || err == -VB_EPEERGONE);
	}
	/* From here on the network is well again. */
	if (board_add(&w->b->step[1]) == RIVALS)
		vb_sim_set_faults(w->f, &(struct vb_sim_faults){0});
	AWAIT(w, me, &w->b->step[1], RIVALS);
	if (!(LOCK.caps & VB_LOCK_SURVIVES))
		return;
	for (uint64_t lock = 0; lock < 4; lock++) {
		struct vb_grant g;

		EXPECT_ERR(w, 0,
			   vb_lock_acquire(me, lock, VB_EXCLUSIVE,
					   40 * LOCK.recovery_leases * w->space->lease_ns, &g));
		EXPECT_ERR(w, 0, vb_lock_release(me, &g));
	}
}

static void lost_answers(void **state)
{
	struct vb_audit_params ap = {.locks = WORLD_LOCKS, .clients = WORLD_ACTORS, .ops = &LOCK};
	struct vb_audit_counts counts;
	struct vb_audit *audit;
	struct world w;

	(void)state;
	assert_int_equal(vb_audit_open(&ap, &audit), 0);
	world_open(&w, &(struct world_params){.kind = SIM, .ops = &LOCK, .lease_ns = 4 * MS});
	w.space->watch = vb_audit_watch(audit);
	vb_sim_set_faults(w.f, &(struct vb_sim_faults){.lose = 0.01});
	world_run(&w, RIVALS, unlucky_actor);
	vb_audit_counts(audit, &counts);
	if (counts.violations)
		vb_audit_print(audit, stderr);
	assert_int_equal(counts.violations, 0);
	assert_true(counts.checked_ops >= w.b->step[0] && w.b->step[0] > RIVALS);
	world_close(&w);
	vb_audit_close(audit);
}

#include "suite_run.h"
