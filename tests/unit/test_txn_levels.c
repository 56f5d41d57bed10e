/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options of a transaction (vb_txn_begin_with), for every protocol, one-sided and by RPC: what each
 * isolation level lets happen and what it does not, by two coordinators whose calls are interleaved by
 * hand; read_only; and timeout_ns.
 */
#include "txn_api.h"

#include "txn/db.h"

#define X        2 /* node 0 */
#define Y        3 /* node 1 */
#define NEW      40
#define NEWER    41
#define MS       1000000ull
#define OLDER_NS 100000    /* who has begun so long before another is older to it */
#define LONGER   (10 * MS) /* than what is waited for in vain */

static const struct vb_txn_params serializable = {.isolation = VB_SERIALIZABLE};
static const struct vb_txn_params repeatable = {.isolation = VB_REPEATABLE_READ};
static const struct vb_txn_params committed = {.isolation = VB_READ_COMMITTED};
static const struct vb_txn_params hurried = {.isolation = VB_READ_COMMITTED, .timeout_ns = LONGER};

static bool offers(void **state)
{
	const struct kind *k = *state;

	return k->ops->caps & VB_CC_SHORT_READS;
}

/* By timestamps, and not by locks: what a younger one has written is in nobody's past, and only the older of two
 * can change what the other has read. */
static bool in_order(void **state)
{
	const struct kind *k = *state;

	return !(k->ops->caps & VB_CC_READ_LOCKS);
}

/* One of two that are in each other's way: it is done, or its transaction is over. */
static bool went(int err)
{
	assert_true(err == 0 || err == -EAGAIN || err == -ETIMEDOUT);
	return err == 0;
}

static void write_alone(struct vb_coordinator *me, struct vb_table *t, uint64_t key, uint64_t value)
{
	must(vb_txn_begin(me));
	must(vb_txn_write(me, t, key, &(struct record){.value = value}));
	must(vb_txn_commit(me));
}

/* ---- the call ---- */

static void levels_are_checked(void **state)
{
	static const struct vb_txn_params snapshot = {.isolation = VB_SNAPSHOT, .read_only = true};
	const struct kind *k = *state;
	struct world w;

	open_usual(&w, state, LONG_NS);
	refused(vb_txn_begin_with(w.a, &(struct vb_txn_params){.isolation = VB_ISOLATIONS}),
		-EINVAL);
	if (offers(state)) {
		must(vb_txn_begin_with(w.a, &committed));
		vb_txn_abort(w.a);
	} else {
		refused(vb_txn_begin_with(w.a, &committed), -EOPNOTSUPP);
		refused(vb_txn_begin_with(w.a, &repeatable), -EOPNOTSUPP);
	}
	if (k->ops->caps & VB_CC_SNAPSHOTS)
		must(vb_txn_begin_with(w.a, &snapshot));
	else
		refused(vb_txn_begin_with(w.a, &snapshot), -EOPNOTSUPP);
	vb_txn_abort(w.a);
	must(vb_txn_begin_with(w.a, &serializable));
	refused(vb_txn_begin_with(w.a, &serializable), -EBUSY);
	must(vb_txn_commit(w.a));
	close_world(&w);
}

/* ---- read_only ---- */

static void read_only_writes_nothing(void **state)
{
	static const struct vb_txn_params params = {.read_only = true};
	const struct record new = {.value = 1};
	struct world w;
	struct record r;
	void *out;

	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin_with(w.a, &params));
	must(vb_txn_read(w.a, w.t, X, &r));
	refused(vb_txn_update(w.a, w.t, X, &out), -EROFS);
	refused(vb_txn_write(w.a, w.t, Y, &new), -EROFS);
	refused(vb_txn_insert(w.a, w.t, NEW, &new), -EROFS);
	refused(vb_txn_delete(w.a, w.t, X), -EROFS);
	refused(vb_txn_declare(w.a, (struct vb_txn_key[]){{w.t, Y, false}, {w.t, X, true}}, 2),
		-EROFS);
	assert_int_equal(w.a->txn.n, 1);
	must(vb_txn_declare(w.a, &(struct vb_txn_key){w.t, Y, false}, 1));
	must(vb_txn_read(w.a, w.t, Y, &r));
	assert_int_equal(r.value, FIRST + Y);
	must(vb_txn_commit(w.a));

	assert_int_equal(value_of(w.b, w.t, X), FIRST + X);
	assert_none(w.b, w.t, NEW);
	/* The next one is as usual. */
	write_alone(w.a, w.t, X, 1);
	close_world(&w);
}

/* ---- timeout_ns ---- */

/* Whoever waits for another: the older one, at least. */
static bool waits(void **state)
{
	const struct kind *k = *state;

	return k->ops->caps & VB_CC_READ_LOCKS && !(k->ops->caps & VB_CC_NEVER_WAITS);
}

static void waits_no_longer(void **state)
{
	static const struct vb_txn_params params = {.timeout_ns = LONGER};
	const struct kind *k = *state;
	struct world w;
	struct record r;
	uint64_t begin, waited;

	if (!waits(state))
		return;
	open_usual(&w, state, LONG_NS);
	begin = vb_ep_now(w.b->ep); /* before it: this thread may stand still behind it */
	must(vb_txn_begin_with(w.b, &params));
	must(vb_ep_sleep(w.b->ep, OLDER_NS));
	must(vb_txn_write(w.b, w.t, Y, &(struct record){.value = 1}));
	must(vb_txn_begin(w.a));
	must(vb_txn_write(w.a, w.t, X, &(struct record){.value = 1}));
	assert_int_equal(vb_txn_read(w.b, w.t, X, &r), -ETIMEDOUT);
	waited = vb_ep_now(w.b->ep) - begin;
	assert_true(waited >= LONGER - 1000);
	/* What it did last was one look, by RPC at the server. */
	if (strcmp(k->fabric, "sim") == 0)
		assert_true(waited < LONGER + 200000);
	assert_int_equal(vb_txn_cause(w.b), VB_TXN_TIMEOUT);
	assert_int_equal(vb_txn_error(w.b), -ETIMEDOUT);
	assert_int_equal(vb_txn_commit(w.b), -ETIMEDOUT);
	assert_int_equal(vb_txn_read(w.b, w.t, X, &r), -EAGAIN);
	/* It holds nothing and has written nothing. */
	vb_txn_abort(w.a);
	assert_int_equal(value_of(w.a, w.t, Y), FIRST + Y);
	write_alone(w.b, w.t, X, 7);
	close_world(&w);
}

static void commits_no_later(void **state)
{
	static const struct vb_txn_params params = {.timeout_ns = 2 * MS};
	static const struct vb_txn_params beyond = {.timeout_ns = 2 * LONG_NS};
	const struct kind *k = *state;
	struct world w;

	for (unsigned recovery = 0; recovery < 2; recovery++) {
		struct vb_db_params p = usual_db(k, LONG_NS);

		p.no_recovery = !recovery;
		open_world(&w, k->fabric, &p);
		must(vb_txn_begin_with(w.a, &params));
		must(vb_txn_write(w.a, w.t, X, &(struct record){.value = 1}));
		must(vb_ep_sleep(w.a->ep, 3 * MS));
		assert_int_equal(vb_txn_commit(w.a), -ETIMEDOUT);
		assert_int_equal(vb_txn_cause(w.a), VB_TXN_TIMEOUT);
		assert_int_equal(value_of(w.b, w.t, X), FIRST + X);
		/* More than the lease is the lease: then it is -EAGAIN, as without. */
		must(vb_txn_begin_with(w.a, &beyond));
		assert_int_equal(w.a->txn.deadline_ns - w.a->txn.begin_ns, LONG_NS);
		must(vb_txn_commit(w.a));
		/* At its end a commit looks only where others may have recovered it. */
		if (strcmp(k->fabric, "sim") == 0) {
			must(vb_txn_begin_with(w.a, &beyond));
			must(vb_txn_write(w.a, w.t, X, &(struct record){.value = 2}));
			must(vb_ep_sleep(w.a->ep, 3 * LONG_NS));
			assert_int_equal(vb_txn_commit(w.a), recovery ? -EAGAIN : 0);
			assert_int_equal(value_of(w.b, w.t, X), recovery ? FIRST + X : 2);
		}
		close_world(&w);
	}
}

struct again {
	struct world *w;
	unsigned tries;
};

static int never(struct vb_coordinator *me, void *arg)
{
	struct again *a = arg;
	struct record r;
	int err;

	a->tries++;
	err = vb_txn_read(me, a->w->t, X, &r);
	return err != 0 ? err : -EAGAIN;
}

static int at_the_third(struct vb_coordinator *me, void *arg)
{
	struct again *a = arg;

	return a->tries < 2 ? never(me, arg)
			    : vb_txn_write(me, a->w->t, X, &(struct record){.value = 3});
}

/* The time is for all tries together; what one leaves is the next one's. */
static void tries_no_longer(void **state)
{
	static const struct vb_txn_params params = {.timeout_ns = 20 * MS};
	static const struct vb_txn_params reads = {.read_only = true};
	const struct kind *k = *state;
	struct again a = {0};
	struct world w;
	uint64_t begin;
	char said[256];
	int err;

	open_usual(&w, state, LONG_NS);
	a.w = &w;
	begin = vb_ep_now(w.a->ep);
	vb_log_capture_begin(said, sizeof(said));
	err = vb_txn_run_with(w.a, &params, never, &a, 0);
	vb_log_capture_end();
	assert_int_equal(err, -ETIMEDOUT);
	/* The caller asked for it. */
	assert_string_equal(said, "");
	assert_true(vb_ep_now(w.a->ep) - begin >= 20 * MS - 1000);
	/* On a busy machine 20 ms may be over after one. */
	assert_true(a.tries > (strcmp(k->fabric, "sim") == 0 ? 2u : 0u));
	a.tries = 0;
	assert_int_equal(vb_txn_run_with(w.a, &params, never, &a, 2), -EAGAIN);
	assert_int_equal(a.tries, 2);
	a.tries = 0;
	refused(vb_txn_run_with(w.a, &reads, at_the_third, &a, 0), -EROFS);
	a.tries = 0;
	must(vb_txn_run_with(w.a, &(struct vb_txn_params){0}, at_the_third, &a, 0));
	assert_int_equal(value_of(w.b, w.t, X), 3);
	/* Longer than the lease, and without end. */
	for (unsigned i = 0; i < 2; i++) {
		const struct vb_txn_params p = {.timeout_ns = i == 0 ? 2 * LONG_NS : UINT64_MAX};

		a.tries = 0;
		must(vb_txn_run_with(w.a, &p, at_the_third, &a, 0));
		assert_int_equal(a.tries, 2);
	}
	close_world(&w);
}

/* ---- what a level lets happen, and what it does not ---- */

#define LEVEL(l) (1u << (l))

/* Two transactions, a's begun with `p`: did it happen? */
typedef bool scenario(struct world *w, const struct vb_txn_params *p);

/* It happens at these levels, and at no other: there one of the two waits in vain, or ends at once. */
static void happens_at(void **state, scenario *happens, unsigned levels)
{
	const struct kind *k = *state;

	for (unsigned l = 0; offers(state) && l < VB_ISOLATIONS; l++) {
		const bool may = levels & LEVEL(l);
		const struct vb_txn_params p = {.isolation = (enum vb_isolation)l,
						.timeout_ns = may ? 0 : LONGER};
		struct world w;

		if (!vb_cc_offers(k->ops, p.isolation))
			continue;
		open_usual(&w, state, LONG_NS);
		assert_int_equal(happens(&w, &p), may);
		close_world(&w);
	}
}

static void begin_serializable(struct vb_coordinator *me, const struct vb_txn_params *p)
{
	must(vb_txn_begin_with(me, &(struct vb_txn_params){.timeout_ns = p->timeout_ns}));
}

/* A's as asked for, and B's, which is the older one. */
static void begin_both(struct world *w, const struct vb_txn_params *p)
{
	begin_serializable(w->b, p);
	must(vb_ep_sleep(w->b->ep, OLDER_NS));
	must(vb_txn_begin_with(w->a, p));
}

/* Reads X twice; another writes it in between, if it can. */
static bool reads_another(struct world *w, const struct vb_txn_params *p)
{
	const struct record *one, *two;

	begin_both(w, p);
	must(vb_txn_get(w->a, w->t, X, (const void **)&one));
	(void)went(vb_txn_write(w->b, w->t, X, &(struct record){.value = 7}));
	(void)went(vb_txn_commit(w->b));
	if (!went(vb_txn_get(w->a, w->t, X, (const void **)&two)))
		return false;
	/* The pointer of before leads to what was read before. */
	assert_int_equal(one->value, FIRST + X);
	return went(vb_txn_commit(w->a)) && two->value == 7;
}

static void nonrepeatable_read(void **state)
{
	happens_at(state, reads_another, LEVEL(VB_READ_COMMITTED));
}

/* X is read before, and Y after another has written both. */
static bool reads_of_two_moments(struct world *w, const struct vb_txn_params *p)
{
	struct record x = {0}, y = {0};
	bool read;

	begin_both(w, p);
	read = went(vb_txn_read(w->a, w->t, X, &x));
	if (went(vb_txn_write(w->b, w->t, X, &(struct record){.value = 7})))
		(void)went(vb_txn_write(w->b, w->t, Y, &(struct record){.value = 7}));
	(void)went(vb_txn_commit(w->b));
	read = read && went(vb_txn_read(w->a, w->t, Y, &y));
	return went(vb_txn_commit(w->a)) && read && x.value == FIRST + X && y.value == 7;
}

static void read_skew(void **state)
{
	happens_at(state, reads_of_two_moments, LEVEL(VB_READ_COMMITTED));
}

/* Both read X and Y, each writes one, and both commit. */
static bool both_write(struct world *w, const struct vb_txn_params *p)
{
	struct record r;
	unsigned commits = 0;

	must(vb_txn_begin_with(w->a, p));
	must(vb_txn_begin_with(w->b, p));
	(void)(went(vb_txn_read(w->a, w->t, X, &r)) && went(vb_txn_read(w->a, w->t, Y, &r)));
	(void)(went(vb_txn_read(w->b, w->t, X, &r)) && went(vb_txn_read(w->b, w->t, Y, &r)));
	(void)went(vb_txn_write(w->a, w->t, X, &(struct record){.value = 1}));
	(void)went(vb_txn_write(w->b, w->t, Y, &(struct record){.value = 1}));
	commits += went(vb_txn_commit(w->a));
	commits += went(vb_txn_commit(w->b));
	return commits == 2;
}

static void write_skew(void **state)
{
	happens_at(state, both_write, LEVEL(VB_READ_COMMITTED));
}

/* Both read X, each writes one more than it has read, and both commit. */
static bool loses_one(struct world *w, const struct vb_txn_params *p)
{
	struct record ra = {0}, rb = {0};
	unsigned commits = 0;

	must(vb_txn_begin_with(w->a, p));
	must(vb_txn_begin_with(w->b, p));
	(void)went(vb_txn_read(w->a, w->t, X, &ra));
	(void)went(vb_txn_read(w->b, w->t, X, &rb));
	ra.value++;
	rb.value++;
	(void)went(vb_txn_write(w->a, w->t, X, &ra));
	commits += went(vb_txn_commit(w->a));
	(void)went(vb_txn_write(w->b, w->t, X, &rb));
	commits += went(vb_txn_commit(w->b));
	return commits == 2;
}

static void lost_update(void **state)
{
	happens_at(state, loses_one, LEVEL(VB_READ_COMMITTED));
}

/* It looks for a record that is not there; another adds it, and it is there. */
static bool appears(struct world *w, const struct vb_txn_params *p)
{
	struct record r;
	int err;

	begin_both(w, p);
	assert_int_equal(vb_txn_read(w->a, w->t, NEW, &r), -ENOENT);
	(void)went(vb_txn_insert(w->b, w->t, NEW, &(struct record){.value = 7}));
	(void)went(vb_txn_commit(w->b));
	err = vb_txn_read(w->a, w->t, NEW, &r);
	return went(vb_txn_commit(w->a)) && err == 0;
}

static void absence_may_end(void **state)
{
	happens_at(state, appears, LEVEL(VB_REPEATABLE_READ) | LEVEL(VB_READ_COMMITTED));
}

/* Each adds what the other has found to be missing, and both commit. */
static bool both_add(struct world *w, const struct vb_txn_params *p)
{
	const struct record new = {.value = 1};
	unsigned commits = 0;

	must(vb_txn_begin_with(w->a, p));
	must(vb_txn_begin_with(w->b, p));
	(void)went(find_none(w->a, w->t, NEW));
	(void)went(find_none(w->b, w->t, NEWER));
	(void)went(vb_txn_insert(w->a, w->t, NEWER, &new));
	(void)went(vb_txn_insert(w->b, w->t, NEW, &new));
	commits += went(vb_txn_commit(w->a));
	commits += went(vb_txn_commit(w->b));
	return commits == 2;
}

static void phantom(void **state)
{
	happens_at(state, both_add, LEVEL(VB_REPEATABLE_READ) | LEVEL(VB_READ_COMMITTED));
}

/* ---- what holds at every level ---- */

/* What is to be changed is what is there now, and stays so: whatever was read before. */
static void update_is_of_now(void **state)
{
	struct record r, *in_place;
	struct world w;

	if (!offers(state))
		return;
	open_usual(&w, state, LONG_NS);
	begin_both(&w, &committed);
	must(vb_txn_declare(w.a, &(struct vb_txn_key){w.t, Y, false}, 1));
	must(vb_txn_read(w.a, w.t, X, &r));
	must(vb_txn_write(w.b, w.t, X, &(struct record){.value = 7}));
	must(vb_txn_write(w.b, w.t, Y, &(struct record){.value = 8}));
	must(vb_txn_commit(w.b));
	must(vb_txn_update(w.a, w.t, X, (void **)&in_place));
	assert_int_equal(in_place->value, 7);
	in_place->value++;
	/* Nobody has been given what was declared. */
	must(vb_txn_update(w.a, w.t, Y, (void **)&in_place));
	assert_int_equal(in_place->value, 8);
	in_place->value++;
	must(vb_txn_read(w.a, w.t, X, &r));
	assert_int_equal(r.value, 8);
	begin_serializable(w.b, &hurried);
	assert_false(went(vb_txn_write(w.b, w.t, X, &(struct record){.value = 1})));
	must(vb_txn_commit(w.a));
	assert_int_equal(value_of(w.b, w.t, X), 8);
	assert_int_equal(value_of(w.b, w.t, Y), 9);
	close_world(&w);
}

static void declared_is_given_once(void **state)
{
	struct world w;
	struct record r;

	if (!offers(state))
		return;
	open_usual(&w, state, LONG_NS);
	begin_both(&w, &committed);
	must(vb_txn_declare(
		w.a, (struct vb_txn_key[]){{w.t, X, false}, {w.t, Y, false}, {w.t, NEW, false}},
		3));
	assert_int_equal(w.a->txn.n, 3);
	must(vb_txn_write(w.b, w.t, X, &(struct record){.value = 7}));
	must(vb_txn_commit(w.b));
	must(vb_txn_read(w.a, w.t, X, &r));
	assert_int_equal(r.value, FIRST + X);
	assert_int_equal(w.a->txn.n, 3);
	must(vb_txn_read(w.a, w.t, X, &r));
	assert_int_equal(r.value, 7);
	assert_int_equal(w.a->txn.n, 4);
	assert_int_equal(vb_txn_read(w.a, w.t, NEW, &r), -ENOENT);
	must(vb_txn_commit(w.a));
	close_world(&w);
}

/* A call that is refused has read, and no more: others may write what it found. */
static void refused_is_read(void **state)
{
	struct world w;
	void *out;

	if (!offers(state))
		return;
	open_usual(&w, state, LONG_NS);
	begin_both(&w, &committed);
	assert_int_equal(vb_txn_insert(w.a, w.t, X, &(struct record){.value = 1}), -EEXIST);
	must(vb_txn_write(w.b, w.t, X, &(struct record){.value = 7}));
	must(vb_txn_commit(w.b));
	must(vb_txn_commit(w.a));
	assert_int_equal(value_of(w.b, w.t, X), 7);
	begin_both(&w, &repeatable);
	assert_int_equal(vb_txn_update(w.a, w.t, NEW, &out), -ENOENT);
	must(vb_txn_insert(w.b, w.t, NEW, &(struct record){.value = 7}));
	must(vb_txn_commit(w.b));
	must(vb_txn_update(w.a, w.t, NEW, &out));
	must(vb_txn_commit(w.a));
	close_world(&w);
}

static void each_reading_counts(void **state)
{
	struct world w;
	struct record r;

	if (!offers(state))
		return;
	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin_with(w.a, &committed));
	for (unsigned i = 0; i < ITEMS_MAX; i++)
		must(vb_txn_read(w.a, w.t, X, &r));
	refused(vb_txn_read(w.a, w.t, X, &r), -E2BIG);
	/* What is held is read once, however often. */
	must(vb_txn_begin_with(w.a, &repeatable));
	for (unsigned i = 0; i < 2 * ITEMS_MAX; i++)
		must(vb_txn_read(w.a, w.t, X, &r));
	must(vb_txn_commit(w.a));
	close_world(&w);
}

/* The same by timestamps: the older one does not write what A has read, and nobody waits for A, of whose
 * pending write nothing is seen. */
static void others_keep_their_place(void **state)
{
	struct record r = {0};
	struct world w;

	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin_with(w.b, &hurried));
	must(vb_ep_sleep(w.b->ep, OLDER_NS));
	must(vb_txn_begin(w.a));
	must(vb_txn_read(w.a, w.t, X, &r));
	assert_false(went(vb_txn_write(w.b, w.t, X, &r)));
	assert_int_equal(vb_txn_cause(w.b), VB_TXN_CHANGED);
	must(vb_txn_write(w.a, w.t, Y, &(struct record){.value = 1}));
	must(vb_ep_sleep(w.b->ep, OLDER_NS));
	must(vb_txn_begin_with(w.b, &hurried));
	must(vb_txn_read(w.b, w.t, Y, &r));
	assert_int_equal(r.value, FIRST + Y);
	must(vb_txn_commit(w.b));
	assert_int_equal(w.b->waits, 0);
	must(vb_txn_commit(w.a));
	close_world(&w);
}

/* Who asks for less takes nothing from who does not. */
static void others_keep_theirs(void **state)
{
	if (offers(state) && in_order(state)) {
		others_keep_their_place(state);
		return;
	}
	for (unsigned writes = 0; offers(state) && writes < 2; writes++) {
		struct record r = {0};
		struct world w;
		int err;

		open_usual(&w, state, LONG_NS);
		must(vb_txn_begin(w.a));
		must(writes ? vb_txn_write(w.a, w.t, X, &r) : vb_txn_read(w.a, w.t, X, &r));
		must(vb_ep_sleep(w.a->ep, OLDER_NS));
		must(vb_txn_begin_with(w.b, &hurried));
		err = writes ? vb_txn_read(w.b, w.t, X, &r) : vb_txn_write(w.b, w.t, X, &r);
		assert_false(went(err));
		must(vb_txn_commit(w.a));
		close_world(&w);
	}
}

static const struct vb_values_params text_params = {
	.name = "text", .bytes_max = 100, .inline_bytes = 8, .piece_bytes = 40, .records = 8};

/* A value of several records is of one moment, and read anew. */
static void values_are_whole(void **state)
{
	unsigned char one[100], two[100], got[100];
	const struct kind *k = *state;
	struct vb_db_params p = usual_db(k, LONG_NS);
	struct vb_values *v;
	struct world w;
	uint32_t bytes;

	if (!offers(state))
		return;
	open_world(&w, k->fabric, &p);
	must(vb_values_open(w.db, &text_params, &v));
	memset(one, 1, sizeof(one));
	memset(two, 2, sizeof(two));
	alone(w.b, vb_values_put(w.b, v, 1, one, sizeof(one)));

	must(vb_txn_begin_with(w.a, &committed));
	assert_int_equal(vb_values_get(w.a, v, 2, got, sizeof(got), &bytes), -ENOENT);
	must(vb_values_get(w.a, v, 1, got, sizeof(got), &bytes));
	assert_memory_equal(got, one, sizeof(one));
	alone(w.b, vb_values_put(w.b, v, 1, two, sizeof(two)));
	must(vb_values_get(w.a, v, 1, got, sizeof(got), &bytes));
	/* What was read at one moment stands at A's, which is before B's. */
	assert_memory_equal(got, in_order(state) ? one : two, sizeof(two));
	must(vb_txn_commit(w.a));

	must(vb_txn_begin_with(w.a, &(struct vb_txn_params){.read_only = true}));
	refused(vb_values_put(w.a, v, 1, one, sizeof(one)), -EROFS);
	refused(vb_values_remove(w.a, v, 1), -EROFS);
	must(vb_txn_commit(w.a));
	vb_values_close(v);
	close_world(&w);
}

/* One task writes a value again and again, and one reads it at read committed. */
#define TIMES 60

struct pair {
	struct world *w;
	struct vb_values *v;
	bool writes, half;
	unsigned char byte;
	unsigned failed;
};

static int use_value(struct vb_coordinator *me, void *arg)
{
	struct pair *p = arg;
	unsigned char value[100];
	uint32_t bytes;
	int err;

	if (p->writes) {
		memset(value, p->byte, sizeof(value));
		return vb_values_put(me, p->v, 1, value, sizeof(value));
	}
	bytes = UINT32_MAX;
	err = vb_values_get(me, p->v, 1, value, sizeof(value), &bytes);
	p->half |= err != 0 && bytes != UINT32_MAX;
	for (unsigned i = 1; err == 0 && i < sizeof(value); i++)
		p->half |= value[i] != value[0];
	return err;
}

static void use_values(void *arg)
{
	struct pair *p = arg;
	struct vb_coordinator *me;

	p->failed = TIMES;
	if (vb_coordinator_open(p->w->db, p->writes, &me) != 0)
		return;
	for (unsigned i = 0; i < TIMES; i++, p->byte++)
		p->failed -= vb_txn_run_with(me, &committed, use_value, p, 0) == 0;
	vb_coordinator_close(me);
}

static void values_stay_whole(void **state)
{
	const struct kind *k = *state;
	struct vb_db_params db = usual_db(k, LONG_NS);
	struct pair pair[2] = {{.writes = true}, {.writes = false}};
	struct world w;

	if (!offers(state))
		return;
	open_world(&w, k->fabric, &db);
	for (unsigned i = 0; i < 2; i++) {
		pair[i].w = &w;
		if (i == 0)
			must(vb_values_open(w.db, &text_params, &pair[0].v));
		pair[i].v = pair[0].v;
	}
	alone(w.a, use_value(w.a, &pair[0]));
	for (unsigned i = 0; i < 2; i++) {
		static const struct vb_task_params params = {.name = "user"};
		struct vb_task *task;

		must(vb_task_spawn(vb_sched_self(), use_values, &pair[i], &params, &task));
	}
	must(vb_sched_run(vb_sched_self(), NULL, VB_FOREVER));
	assert_int_equal(pair[0].failed + pair[1].failed, 0);
	assert_false(pair[1].half);
	vb_values_close(pair[0].v);
	close_world(&w);
}

int main(int argc, char **argv)
{
	static const struct case_for_all cases[] = {
		{"levels are checked", levels_are_checked},
		{"read_only writes nothing", read_only_writes_nothing},
		{"waits no longer", waits_no_longer},
		{"commits no later", commits_no_later},
		{"tries no longer", tries_no_longer},
		{"nonrepeatable read", nonrepeatable_read},
		{"read skew", read_skew},
		{"write skew", write_skew},
		{"lost update", lost_update},
		{"absence may end", absence_may_end},
		{"phantom", phantom},
		{"update is of now", update_is_of_now},
		{"declared is given once", declared_is_given_once},
		{"a refused call has read", refused_is_read},
		{"each reading counts", each_reading_counts},
		{"others keep theirs", others_keep_theirs},
		{"values are whole", values_are_whole},
		{"values stay whole", values_stay_whole},
	};
	static const char *const fabrics[] = {"shm", "sim", NULL};
	static struct CMUnitTest tests[TESTS_MAX + 1];
	size_t n = tests_for_all(argc, argv, fabrics, cases, VB_ARRAY_SIZE(cases), tests);

	return _cmocka_run_group_tests("transactions: levels and options", tests, n, NULL, NULL);
}
