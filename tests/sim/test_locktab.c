/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lock table through its messages, in virtual time: what the suite of all locks does not ask,
 * modes, policies, many releases in one message, paths down a hierarchy, bounds.
 */
#include "sim_test.h"

#include "base/log.h"
#include "lock/table/table.h"

#define US      1000ull
#define MS      1000000ull
#define CLIENTS 6
#define LOCKS   1000

struct world {
	struct vb_fabric *f;
	struct vb_lock_space *space;
	struct vb_lock_server *server[2];
	struct vb_lock_client *c[CLIENTS];
};

static void open_world(struct world *w, const char *options)
{
	struct vb_lock_space_params p = {.lock = "table",
					 .options = options,
					 .locks = LOCKS,
					 .servers = 2,
					 .lease_ns = 1000 * MS};

	*w = (struct world){.f = cluster("profile=cx5", 3, 1)};
	assert_int_equal(vb_lock_space_open(w->f, &p, &w->space), 0);
	for (uint16_t n = 0; n < 2; n++)
		assert_int_equal(vb_lock_server_start(w->space, n, 0, 1, &w->server[n]), 0);
	for (unsigned i = 0; i < CLIENTS; i++)
		assert_int_equal(vb_lock_client_open(w->space, 2, &w->c[i]), 0);
}

static void close_world(struct world *w)
{
	for (unsigned i = 0; i < CLIENTS; i++)
		vb_lock_client_close(w->c[i]);
	for (unsigned n = 0; n < 2; n++)
		vb_lock_server_stop(w->server[n]);
	vb_lock_space_close(w->space);
	vb_fabric_close(w->f);
	vb_sched_destroy(vb_sched_self());
}

static int acquire(struct world *w, unsigned i, uint64_t lock, enum vb_mode mode,
		   struct vb_grant *g)
{
	return vb_lock_acquire(w->c[i], lock, mode, 500 * US, g);
}

static uint64_t messages(const struct vb_lock_client *me)
{
	return me->ep->count[VB_OP_WRITE_NOTIFY] + me->ep->count[VB_OP_SEND];
}

/* ---- modes ---- */

static void modes_together(const char *options)
{
	static const enum vb_mode mode[] = {VB_INTENT_SHARED, VB_INTENT_EXCLUSIVE, VB_SHARED,
					    VB_SHARED_INTENT_EXCLUSIVE, VB_EXCLUSIVE};
	/* Barthels et al., table 1, in that order. */
	static const bool together[5][5] = {
		{1, 1, 1, 1, 0}, {1, 1, 0, 0, 0}, {1, 0, 1, 0, 0}, {1, 0, 0, 0, 0}, {0, 0, 0, 0, 0},
	};
	struct world w;

	open_world(&w, options);
	for (unsigned a = 0; a < 5; a++) {
		for (unsigned b = 0; b < 5; b++) {
			struct vb_grant ga, gb;
			int err;

			assert_int_equal(acquire(&w, 0, 5, mode[a], &ga), 0);
			assert_int_equal(ga.mode, mode[a]);
			err = vb_lock_try(w.c[1], 5, mode[b], &gb);
			assert_int_equal(err, together[a][b] ? 0 : -EAGAIN);
			if (err == 0)
				assert_int_equal(vb_lock_release(w.c[1], &gb), 0);
			err = acquire(&w, 1, 5, mode[b], &gb);
			assert_int_equal(err, together[a][b] ? 0 : -ETIMEDOUT);
			if (err == 0)
				assert_int_equal(vb_lock_release(w.c[1], &gb), 0);
			assert_int_equal(vb_lock_release(w.c[0], &ga), 0);
		}
	}
	close_world(&w);
}

static void test_modes(void **state)
{
	modes_together("");
	modes_together("slots=0");
	/* Fewer than clients: some write into mailboxes, some send. */
	modes_together("slots=2");
}

static void test_one_write_each_way(void **state)
{
	struct vb_grant g;
	uint64_t before;
	struct world w;

	open_world(&w, "");
	before = messages(w.c[0]);
	assert_int_equal(acquire(&w, 0, 5, VB_EXCLUSIVE, &g), 0);
	assert_int_equal(messages(w.c[0]) - before, 1);
	assert_int_equal(vb_lock_release(w.c[0], &g), 0);
	assert_int_equal(messages(w.c[0]) - before, 2);
	assert_int_equal(w.c[0]->ep->count[VB_OP_SEND], 0);
	close_world(&w);
}

/* ---- answers ---- */

struct copy {
	struct vb_lock_client *to;
	struct vb_ep *ep;
	uint64_t number, at_ns;
};

/* What another agent has answered to a request two before, once more: it comes to where the present
 * one's answer comes. */
static void copy_body(void *arg)
{
	const struct copy *c = arg;
	const struct vb_locktab_client *t = c->to->priv;
	struct vb_locktab_answer_slot slot = {.answer.number = c->number};
	unsigned lane = vb_locktab_lane(c->number);
	struct vb_msg m = {.imm = lane};
	struct vb_verb v = {.op = VB_OP_WRITE_NOTIFY,
			    .addr = t->answer_at + lane * VB_LOCKTAB_LANE_BYTES,
			    .buf = &slot,
			    .len = sizeof(slot),
			    .peer = c->to->ep->self,
			    .msg = &m};
	struct vb_batch b = {.verbs = &v, .n = 1};

	slot.seal = vb_locktab_seal_answer(&slot.answer, c->to->ep->self);
	vb_task_sleep_until(c->at_ns);
	(void)vb_post(c->ep, &b);
}

/* Whenever it comes, before the answer or over it: nobody waits until it would ask again. */
static void older_answer(void)
{
	const struct vb_locktab_client *t;
	struct vb_grant g;
	struct copy c;
	struct world w;

	open_world(&w, "");
	c = (struct copy){.to = w.c[0], .ep = endpoint(w.f, 1)};
	t = w.c[0]->priv;
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(acquire(&w, 0, 5, VB_EXCLUSIVE, &g), 0);
		assert_int_equal(vb_lock_release(w.c[0], &g), 0);
	}
	for (uint64_t late = 0; late < 8 * US; late += 20) {
		uint64_t begun = now();

		c.at_ns = begun + late;
		c.number = t->number - VB_LOCKTAB_STRIDE;
		spawn(copy_body, &c);
		assert_int_equal(acquire(&w, 0, 5, VB_EXCLUSIVE, &g), 0);
		assert_in_range(now() - begun, 0, 20 * US);
		vb_task_sleep_until(now() + 20 * US);
		assert_int_equal(vb_lock_release(w.c[0], &g), 0);
	}
	vb_ep_close(c.ep);
	close_world(&w);
}

static void send_answer(struct vb_lock_client *to, struct vb_ep *ep, uint64_t number)
{
	const struct vb_locktab_answer a = {.number = number};
	struct vb_msg m = {.tag = VB_LOCKTAB_TAG_ANSWER, .len = sizeof(a)};
	struct vb_verb v = {.op = VB_OP_SEND, .peer = to->ep->self, .msg = &m};
	struct vb_batch b = {.verbs = &v, .n = 1};

	memcpy(m.data, &a, sizeof(a));
	(void)vb_post(ep, &b);
}

/* By messages, of which several have come when the client looks. */
static void older_message(void)
{
	struct vb_locktab_answer a;
	struct vb_ep *ep;
	struct world w;

	open_world(&w, "slots=0");
	ep = endpoint(w.f, 1);
	for (uint64_t number = 3; number < 6; number++)
		send_answer(w.c[0], ep, number);
	vb_task_sleep_until(now() + 20 * US);
	assert_int_equal(vb_locktab_take_answer(w.c[0], 4, &a), 0);
	assert_int_equal(a.number, 4);
	assert_int_equal(vb_locktab_take_answer(w.c[0], 4, &a), -EAGAIN);
	vb_ep_close(ep);
	close_world(&w);
}

static void test_older_answer(void **state)
{
	older_answer();
	older_message();
}

/* ---- conversion ---- */

struct converter {
	struct world *w;
	unsigned i;
	struct vb_grant g;
	enum vb_mode to;
	int err;
	bool done;
};

static void convert_body(void *arg)
{
	struct converter *c = arg;

	c->err = vb_lock_convert(c->w->c[c->i], &c->g, c->to, VB_FOREVER_NS);
	c->done = true;
}

static void test_two_converters(void **state)
{
	struct converter first = {.i = 0, .to = VB_EXCLUSIVE};
	struct vb_grant g;
	struct world w;

	open_world(&w, "wait=10ms");
	first.w = &w;
	assert_int_equal(acquire(&w, 0, 5, VB_SHARED, &first.g), 0);
	assert_int_equal(acquire(&w, 1, 5, VB_SHARED, &g), 0);
	spawn(convert_body, &first);
	vb_task_sleep_until(now() + 100 * US);
	assert_false(first.done);
	assert_int_equal(vb_lock_convert(w.c[1], &g, VB_EXCLUSIVE, VB_FOREVER_NS), -EDEADLK);
	assert_int_equal(g.mode, VB_SHARED);
	assert_int_equal(vb_lock_release(w.c[1], &g), 0);
	vb_task_sleep_until(now() + 100 * US);
	assert_true(first.done);
	assert_int_equal(first.err, 0);
	assert_int_equal(first.g.mode, VB_EXCLUSIVE);
	assert_true(first.g.token > 0);
	/* Not in time: held as before. */
	assert_int_equal(vb_lock_convert(w.c[0], &first.g, VB_SHARED, 0), 0);
	assert_int_equal(acquire(&w, 1, 5, VB_SHARED, &g), 0);
	assert_int_equal(vb_lock_convert(w.c[1], &g, VB_EXCLUSIVE, 300 * US), -ETIMEDOUT);
	assert_int_equal(g.mode, VB_SHARED);
	/* The policy's bound is for who converts, too. */
	assert_int_equal(vb_lock_convert(w.c[1], &g, VB_EXCLUSIVE, VB_FOREVER_NS), -ETIMEDOUT);
	assert_int_equal(vb_lock_release(w.c[1], &g), 0);
	assert_int_equal(vb_lock_release(w.c[0], &first.g), 0);
	assert_int_equal(vb_lock_try(w.c[2], 5, VB_EXCLUSIVE, &g), 0);
	assert_int_equal(vb_lock_release(w.c[2], &g), 0);
	close_world(&w);
}

/* The policy says no: what is held is held as before, and may be converted later. */
static void turned_down(const char *options)
{
	struct vb_grant mine, his;
	struct world w;

	open_world(&w, options);
	vb_lock_client_begin(w.c[1], 10);
	assert_int_equal(acquire(&w, 1, 5, VB_SHARED, &his), 0);
	vb_lock_client_begin(w.c[0], 20);
	assert_int_equal(acquire(&w, 0, 5, VB_SHARED, &mine), 0);
	assert_int_equal(vb_lock_convert(w.c[0], &mine, VB_EXCLUSIVE, VB_FOREVER_NS), -EAGAIN);
	assert_int_equal(mine.mode, VB_SHARED);
	assert_true(vb_lock_valid(w.c[0], &mine) && vb_lock_valid(w.c[1], &his));
	assert_int_equal(vb_lock_try(w.c[2], 5, VB_EXCLUSIVE, &(struct vb_grant){0}), -EAGAIN);
	assert_int_equal(vb_lock_release(w.c[1], &his), 0);
	assert_int_equal(vb_lock_try(w.c[2], 5, VB_EXCLUSIVE, &(struct vb_grant){0}), -EAGAIN);
	assert_int_equal(vb_lock_convert(w.c[0], &mine, VB_EXCLUSIVE, VB_FOREVER_NS), 0);
	assert_int_equal(vb_lock_release(w.c[0], &mine), 0);
	close_world(&w);
}

static void test_conversion_turned_down(void **state)
{
	turned_down("policy=no-wait");
	turned_down("policy=wait-die");
}

/* ---- policies ---- */

static void test_no_wait(void **state)
{
	struct vb_grant a, b;
	struct world w;

	open_world(&w, "policy=no-wait");
	assert_int_equal(acquire(&w, 0, 5, VB_EXCLUSIVE, &a), 0);
	assert_int_equal(vb_lock_acquire(w.c[1], 5, VB_SHARED, VB_FOREVER_NS, &b), -EAGAIN);
	assert_int_equal(vb_lock_release(w.c[0], &a), 0);
	assert_int_equal(vb_lock_acquire(w.c[1], 5, VB_SHARED, VB_FOREVER_NS, &b), 0);
	assert_int_equal(vb_lock_release(w.c[1], &b), 0);
	close_world(&w);
}

static void test_wait_die_ages(void **state)
{
	struct vb_grant mine, his, g;
	uint64_t old;
	struct world w;

	open_world(&w, "policy=wait-die");
	/* Clients' clocks differ: ages are told. */
	vb_lock_client_begin(w.c[0], 10);
	vb_lock_client_begin(w.c[1], 20);
	assert_int_equal(acquire(&w, 0, 1, VB_EXCLUSIVE, &mine), 0);
	assert_int_equal(acquire(&w, 1, 2, VB_EXCLUSIVE, &his), 0);
	assert_int_equal(vb_lock_client_age(w.c[0]), 10);
	/* The older waits (here for as long as it likes), the younger dies. */
	assert_int_equal(acquire(&w, 0, 2, VB_SHARED, &g), -ETIMEDOUT);
	assert_int_equal(acquire(&w, 1, 1, VB_SHARED, &g), -EAGAIN);
	old = vb_lock_client_age(w.c[1]);
	assert_int_equal(vb_lock_release(w.c[1], &his), 0);
	/* As old as it was; the next one is as old as its clock says. */
	vb_lock_client_begin(w.c[1], old);
	assert_int_equal(acquire(&w, 1, 2, VB_EXCLUSIVE, &his), 0);
	assert_int_equal(vb_lock_client_age(w.c[1]), 20);
	assert_int_equal(vb_lock_release(w.c[1], &his), 0);
	assert_int_equal(acquire(&w, 1, 2, VB_EXCLUSIVE, &his), 0);
	assert_true(vb_lock_client_age(w.c[1]) > 20);
	assert_int_equal(vb_lock_release(w.c[1], &his), 0);
	assert_int_equal(vb_lock_release(w.c[0], &mine), 0);
	/* It begins now, and is not as old as the last one. */
	vb_lock_client_begin(w.c[1], 20);
	vb_lock_client_begin(w.c[1], 0);
	assert_true(vb_lock_client_age(w.c[1]) > 20);
	close_world(&w);
}

struct crosser {
	struct world *w;
	unsigned i, done;
	uint64_t first, second;
	unsigned turned_down;
};

static void cross_body(void *arg)
{
	struct crosser *x = arg;
	struct vb_lock_client *me = x->w->c[x->i];

	while (x->done < 50) {
		struct vb_grant g[2];
		int err = vb_lock_acquire(me, x->first, VB_EXCLUSIVE, VB_FOREVER_NS, &g[0]);

		if (err == 0) {
			(void)vb_ep_sleep(me->ep, 5 * US);
			err = vb_lock_acquire(me, x->second, VB_EXCLUSIVE, VB_FOREVER_NS, &g[1]);
			x->done += err == 0;
			if (vb_lock_release_all(me, g, err == 0 ? 2 : 1) != 0)
				fail_msg("a release failed");
		}
		if (err == 0)
			continue;
		if (err != -EAGAIN && err != -ETIMEDOUT)
			fail_msg("an acquire returned %d", err);
		x->turned_down++;
		vb_lock_client_begin(me, vb_lock_client_age(me));
		(void)vb_ep_sleep(me->ep, vb_rng_below(&me->rng, 20 * US));
	}
}

/* Two locks in both orders: a deadlock most times, and every policy gets out of it. */
static void cross(const char *options, unsigned n)
{
	struct crosser x[4] = {0};
	unsigned turned_down = 0;
	struct world w;

	open_world(&w, options);
	for (unsigned i = 0; i < n; i++) {
		x[i] = (struct crosser){.w = &w, .i = i, .first = 1 + i % 2, .second = 2 - i % 2};
		spawn(cross_body, &x[i]);
	}
	while (x[0].done + x[1].done + x[2].done + x[3].done < 50 * n) {
		vb_task_sleep_until(now() + MS);
		assert_true(now() < 900 * MS);
	}
	for (unsigned i = 0; i < n; i++)
		turned_down += x[i].turned_down;
	assert_true(turned_down > 10);
	vb_task_sleep_until(now() + MS);
	close_world(&w);
}

static void test_deadlocks(void **state)
{
	cross("policy=no-wait", 4);
	cross("policy=wait-die", 4);
	/* With a third one always waiting at each lock it would happen again and again. */
	cross("policy=bounded-wait,wait=200us", 2);
}

/* ---- many at once ---- */

static void test_release_all(void **state)
{
	struct vb_grant g[10], other;
	char said[256];
	uint64_t before;
	struct world w;

	open_world(&w, "");
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(acquire(&w, 0, 10 + i, VB_EXCLUSIVE, &g[i]), 0);
	before = messages(w.c[0]);
	assert_int_equal(vb_lock_release_all(w.c[0], g, 10), 0);
	/* One for each agent. */
	assert_int_equal(messages(w.c[0]) - before, 2);
	for (unsigned i = 0; i < 10; i++) {
		assert_null(g[i].claim);
		assert_int_equal(vb_lock_try(w.c[1], 10 + i, VB_EXCLUSIVE, &g[i]), 0);
	}
	/* What is not in the list stays: those of its agent go one by one. */
	assert_int_equal(acquire(&w, 1, 30, VB_EXCLUSIVE, &other), 0);
	before = messages(w.c[1]);
	assert_int_equal(vb_lock_release_all(w.c[1], g, 10), 0);
	assert_int_equal(messages(w.c[1]) - before, 5 + 1);
	assert_int_equal(vb_lock_try(w.c[0], 30, VB_EXCLUSIVE, &g[0]), -EAGAIN);
	assert_int_equal(vb_lock_release(w.c[1], &other), 0);
	/* Nothing is given back if the list is wrong. */
	assert_int_equal(acquire(&w, 0, 1, VB_SHARED, &g[0]), 0);
	g[1] = g[0];
	vb_log_capture_begin(said, sizeof(said));
	assert_int_equal(vb_lock_release_all(w.c[0], g, 2), -EINVAL);
	assert_int_equal(vb_lock_release_all(w.c[0], g, 0), 0);
	assert_int_equal(vb_lock_release_all(w.c[0], g, 1), 0);
	assert_int_equal(vb_lock_release_all(w.c[0], g, 1), -EINVAL);
	vb_log_capture_end();
	close_world(&w);
}

static void test_release_all_of_lost(void **state)
{
	struct vb_grant g[3], his;
	struct world w;

	open_world(&w, "");
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(acquire(&w, 0, 2 * i, VB_EXCLUSIVE, &g[i]), 0);
	vb_task_sleep_until(now() + 1100 * MS);
	assert_int_equal(acquire(&w, 1, 2, VB_EXCLUSIVE, &his), 0);
	assert_int_equal(vb_lock_release_all(w.c[0], g, 3), -VB_ELOST);
	assert_int_equal(vb_lock_release(w.c[1], &his), 0);
	close_world(&w);
}

/* ---- down a hierarchy ---- */

enum { DATABASE = 0, TABLE = 10, RANGE = 110, ROW = 555 };
static const uint64_t row_path[] = {DATABASE, TABLE, RANGE, ROW};
static const uint64_t next_row[] = {DATABASE, TABLE, RANGE, ROW + 1};
static const uint64_t table_path[] = {DATABASE, TABLE};

static void test_path(void **state)
{
	struct vb_grant a[4], b[4], c[4];
	struct world w;

	open_world(&w, "");
	assert_int_equal(vb_lock_acquire_path(w.c[0], row_path, 4, VB_EXCLUSIVE, MS, a), 0);
	for (unsigned i = 0; i < 4; i++) {
		assert_non_null(a[i].claim);
		assert_int_equal(a[i].mode, i < 3 ? VB_INTENT_EXCLUSIVE : VB_EXCLUSIVE);
	}
	/* Another row beside it; the whole table not, and nothing is left of that. */
	assert_int_equal(vb_lock_acquire_path(w.c[1], next_row, 4, VB_SHARED, MS, b), 0);
	assert_int_equal(b[0].mode, VB_INTENT_SHARED);
	assert_int_equal(vb_lock_acquire_path(w.c[2], table_path, 2, VB_SHARED, MS, c), -ETIMEDOUT);
	assert_int_equal(w.c[2]->n_used, 0);
	assert_int_equal(vb_lock_release_all(w.c[0], a, 4), 0);
	assert_int_equal(vb_lock_acquire_path(w.c[2], table_path, 2, VB_SHARED, MS, c), 0);
	assert_int_equal(vb_lock_acquire_path(w.c[0], row_path, 4, VB_EXCLUSIVE, MS, a),
			 -ETIMEDOUT);
	assert_int_equal(w.c[0]->n_used, 0);
	assert_int_equal(vb_lock_release_all(w.c[2], c, 2), 0);
	assert_int_equal(vb_lock_release_all(w.c[1], b, 4), 0);
	close_world(&w);
}

/* What is held already is skipped or converted, and set back if it comes to nothing. */
static void test_path_over_what_is_held(void **state)
{
	struct vb_grant a[4], b[4], c[4], held;
	struct world w;

	open_world(&w, "");
	assert_int_equal(vb_lock_acquire_path(w.c[0], table_path, 2, VB_SHARED, MS, a), 0);
	/* Shared on the table is shared on all its rows. */
	assert_int_equal(vb_lock_acquire_path(w.c[0], row_path, 4, VB_SHARED, MS, b), 0);
	for (unsigned i = 0; i < 4; i++)
		assert_null(b[i].claim);
	assert_int_equal(b[1].mode, VB_SHARED);
	/* A row of it exclusively: SIX on the table, IX on the database. */
	assert_int_equal(vb_lock_acquire_path(w.c[0], row_path, 4, VB_EXCLUSIVE, MS, b), 0);
	assert_null(b[0].claim);
	assert_null(b[1].claim);
	assert_int_equal(b[0].mode, VB_INTENT_EXCLUSIVE);
	assert_int_equal(b[1].mode, VB_SHARED_INTENT_EXCLUSIVE);
	assert_non_null(b[2].claim);
	assert_non_null(b[3].claim);
	assert_int_equal(vb_lock_release(w.c[0], &b[3]), 0);
	assert_int_equal(vb_lock_release(w.c[0], &b[2]), 0);
	assert_int_equal(vb_lock_convert(w.c[0], &a[1], VB_SHARED, 0), 0);
	assert_int_equal(vb_lock_convert(w.c[0], &a[0], VB_INTENT_SHARED, 0), 0);
	/* Somebody reads the row: the conversions above it are taken back. */
	assert_int_equal(acquire(&w, 1, ROW, VB_SHARED, &held), 0);
	assert_int_equal(vb_lock_acquire_path(w.c[0], row_path, 4, VB_EXCLUSIVE, MS, b),
			 -ETIMEDOUT);
	assert_int_equal(vb_lock_held(w.c[0], DATABASE)->mode, VB_INTENT_SHARED);
	assert_int_equal(vb_lock_held(w.c[0], TABLE)->mode, VB_SHARED);
	assert_null(vb_lock_held(w.c[0], RANGE));
	assert_int_equal(vb_lock_acquire_path(w.c[2], table_path, 2, VB_SHARED, MS, c), 0);
	assert_int_equal(vb_lock_release_all(w.c[2], c, 2), 0);
	assert_int_equal(vb_lock_release(w.c[1], &held), 0);
	assert_int_equal(vb_lock_release_all(w.c[0], a, 2), 0);
	close_world(&w);
}

struct releaser {
	struct world *w;
	struct vb_grant g;
	uint64_t at_ns;
};

static void release_body(void *arg)
{
	struct releaser *r = arg;

	vb_task_sleep_until(r->at_ns);
	assert_int_equal(vb_lock_release(r->w->c[1], &r->g), 0);
}

/* The time is one for all of its locks: who has waited for the root has less for the row. */
static void test_path_in_time(void **state)
{
	struct vb_grant g[4], row;
	struct releaser r;
	struct world w;
	uint64_t begun;

	open_world(&w, "");
	assert_int_equal(acquire(&w, 1, DATABASE, VB_EXCLUSIVE, &r.g), 0);
	assert_int_equal(acquire(&w, 2, ROW, VB_EXCLUSIVE, &row), 0);
	begun = now();
	r.w = &w;
	r.at_ns = begun + 700 * US;
	spawn(release_body, &r);
	assert_int_equal(vb_lock_acquire_path(w.c[0], row_path, 4, VB_SHARED, MS, g), -ETIMEDOUT);
	assert_in_range(now() - begun, MS, MS + 100 * US);
	assert_int_equal(w.c[0]->n_used, 0);
	assert_int_equal(vb_lock_release(w.c[2], &row), 0);
	close_world(&w);
}

static void test_no_path(void **state)
{
	static const uint64_t twice[] = {1, 2, 1};
	struct vb_grant g[3];
	char said[512] = "";
	struct world w;

	open_world(&w, "");
	vb_log_capture_begin(said, sizeof(said));
	assert_int_equal(vb_lock_acquire_path(w.c[0], twice, 3, VB_SHARED, 0, g), -EINVAL);
	assert_non_null(strstr(said, "twice"));
	assert_int_equal(vb_lock_acquire_path(w.c[0], twice, 0, VB_SHARED, 0, g), -EINVAL);
	assert_int_equal(vb_lock_acquire_path(w.c[0], twice, 2, (enum vb_mode)9, 0, g), -EINVAL);
	vb_log_capture_end();
	close_world(&w);
}

/* ---- bounds ---- */

/* An agent with room for 16: who comes later comes again, and gets in when there is room. */
static void test_room(void **state)
{
	struct vb_grant g[16], late;
	struct world w;

	open_world(&w, "requests=16");
	for (unsigned i = 0; i < 16; i++)
		assert_int_equal(acquire(&w, i % 3, 2 * i, VB_SHARED, &g[i]), 0);
	assert_int_equal(acquire(&w, 3, 100, VB_SHARED, &late), -ETIMEDOUT);
	assert_int_equal(vb_lock_try(w.c[3], 100, VB_SHARED, &late), -EAGAIN);
	/* The other agent has room. */
	assert_int_equal(acquire(&w, 3, 101, VB_SHARED, &late), 0);
	assert_int_equal(vb_lock_release(w.c[3], &late), 0);
	assert_int_equal(vb_lock_release(w.c[0], &g[0]), 0);
	assert_int_equal(acquire(&w, 3, 100, VB_SHARED, &late), 0);
	assert_int_equal(vb_lock_release(w.c[3], &late), 0);
	for (unsigned i = 1; i < 16; i++)
		assert_int_equal(vb_lock_release(w.c[i % 3], &g[i]), 0);
	close_world(&w);
}

/* Everybody holds something and wants more, for which there is no room: nobody waits for that until
 * what it holds is lost. */
static void no_room_for_holders(const char *options, uint64_t within_ns)
{
	struct vb_grant g[16], more;
	struct world w;

	open_world(&w, options);
	for (unsigned i = 0; i < 16; i++)
		assert_int_equal(acquire(&w, i % 4, 2 * i, VB_SHARED, &g[i]), 0);
	for (unsigned i = 0; i < 4; i++) {
		uint64_t asked_ns = vb_lock_now(w.c[i]);

		assert_int_equal(vb_lock_acquire(w.c[i], 100, VB_SHARED, VB_FOREVER_NS, &more),
				 -ETIMEDOUT);
		assert_in_range(vb_lock_now(w.c[i]) - asked_ns, within_ns - 2 * MS, within_ns + MS);
	}
	for (unsigned i = 0; i < 16; i++)
		assert_int_equal(vb_lock_release(w.c[i % 4], &g[i]), 0);
	close_world(&w);
}

static void test_no_room_for_holders(void **state)
{
	no_room_for_holders("requests=16,policy=bounded-wait", 100 * MS);
	no_room_for_holders("requests=16,policy=bounded-wait,wait=20ms", 20 * MS);
	no_room_for_holders("requests=16,policy=no-wait", 100 * MS);
	no_room_for_holders("requests=16,policy=wait-die", 100 * MS);
}

/* However long `wait` is: it ends with the first lease of what is held. */
static void test_no_room_until_a_lease_ends(void **state)
{
	struct vb_grant g[16], more;
	struct world w;

	open_world(&w, "requests=16,wait=3600s");
	for (unsigned i = 0; i < 16; i++)
		assert_int_equal(acquire(&w, i == 0 ? 0 : 1, 2 * i, VB_SHARED, &g[i]), 0);
	assert_int_equal(vb_lock_acquire(w.c[0], 100, VB_SHARED, VB_FOREVER_NS, &more), -ETIMEDOUT);
	assert_in_range(vb_lock_now(w.c[0]), g[0].valid_until_ns, g[0].valid_until_ns + MS);
	/* Who holds nothing waits for room. */
	assert_int_equal(vb_lock_acquire(w.c[2], 100, VB_SHARED, VB_FOREVER_NS, &more), 0);
	assert_int_equal(vb_lock_release(w.c[2], &more), 0);
	for (unsigned i = 0; i < 16; i++)
		assert_int_equal(vb_lock_release(w.c[i == 0 ? 0 : 1], &g[i]), -VB_ELOST);
	close_world(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_modes),
		cmocka_unit_test(test_one_write_each_way),
		cmocka_unit_test(test_older_answer),
		cmocka_unit_test(test_two_converters),
		cmocka_unit_test(test_conversion_turned_down),
		cmocka_unit_test(test_no_wait),
		cmocka_unit_test(test_wait_die_ages),
		cmocka_unit_test(test_deadlocks),
		cmocka_unit_test(test_release_all),
		cmocka_unit_test(test_release_all_of_lost),
		cmocka_unit_test(test_path),
		cmocka_unit_test(test_path_over_what_is_held),
		cmocka_unit_test(test_path_in_time),
		cmocka_unit_test(test_no_path),
		cmocka_unit_test(test_room),
		cmocka_unit_test(test_no_room_for_holders),
		cmocka_unit_test(test_no_room_until_a_lease_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
