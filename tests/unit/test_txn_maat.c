/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MaaT by hand: who bounds whom, who freezes first, who is spared, what becomes of marks, and what it costs.  On
 * sim, one-sided and by RPC, and on shm.  Records are loaded at time 1; each write of one alone is a time later.
 */
#include "txn_api.h"

#include "cc/maat.h"
#include "cc/protocols.h"

#define X 2 /* node 0 */
#define Y 3
#define Z 4
#define Q 5

static const struct kind kinds_here[] = {
	{&vb_cc_maat, NULL, "sim"},
	{&vb_cc_maat, "rpc", "sim"},
	{&vb_cc_maat, NULL, "shm"},
};

static const struct vb_txn_params soon = {.timeout_ns = 5000000};

/* What happens once, before the next transaction of `who` freezes, or behind its commit point. */
static struct {
	struct world *w;
	struct vb_coordinator *who;
	void (*before)(struct world *w);
	void (*behind)(struct world *w);
} meanwhile;
static struct vb_cc_ops watched;

static void happen(void (**what)(struct world *w))
{
	void (*happens)(struct world * w) = *what;

	*what = NULL;
	if (happens != NULL)
		happens(meanwhile.w);
}

static int decide(struct vb_txn *t)
{
	int err;

	if (t->me != meanwhile.who)
		return vb_cc_maat.decide(t);
	happen(&meanwhile.before);
	err = vb_cc_maat.decide(t);
	if (err == 0)
		happen(&meanwhile.behind);
	return err;
}

static void open_watched(struct world *w, void **state)
{
	open_usual(w, state, LONG_NS);
	watched = *w->db->cc;
	watched.decide = decide;
	w->db->cc = &watched;
	meanwhile.w = w;
	meanwhile.who = w->b;
	meanwhile.before = meanwhile.behind = NULL;
}

static char *tuple_of(const struct world *w, uint64_t key)
{
	return vb_local(w->f, vb_table_find(w->t, vb_table_node(w->t, key), key),
			w->t->layout.bytes);
}

static unsigned marks_of(const struct world *w, uint64_t key)
{
	unsigned n = 0;

	for (uint8_t slot = 0; slot < MAAT_SLOTS; slot++)
		n += vb_tuple_word(tuple_of(w, key), maat_slot_at(MAAT_FIRST_SLOT + slot)) != 0;
	return n;
}

static uint64_t rts_of(const struct world *w, uint64_t key)
{
	return vb_tuple_word(tuple_of(w, key), VB_TUPLE_META_AT);
}

static struct vb_place_head *head_of(const struct vb_coordinator *me)
{
	return vb_local(me->db->fabric, vb_db_place(me->db, me->lane[me->current].place),
			sizeof(struct vb_place_head));
}

/* Nobody is left anywhere. */
static void close_clean(struct world *w)
{
	for (uint64_t key = 0; key < LOADED; key++) {
		assert_int_equal(marks_of(w, key), 0);
		assert_int_equal(vb_tuple_word(tuple_of(w, key), w->t->layout.lock_at), 0);
	}
	close_world(w);
}

static int read_key(struct world *w, struct vb_coordinator *me, uint64_t key)
{
	struct record r = {0};

	return vb_txn_read(me, w->t, key, &r);
}

static int update_key(struct world *w, struct vb_coordinator *me, uint64_t key)
{
	struct record *r;
	int err = vb_txn_update(me, w->t, key, (void **)&r);

	if (err == 0)
		r->value++;
	return err;
}

/* Each takes its time to one more. */
static uint64_t write_often(struct world *w, struct vb_coordinator *me, uint64_t key, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		alone(me, update_key(w, me, key));
	return me->txn.commit_ts;
}

static void must_end(struct vb_coordinator *me, int err, enum vb_txn_cause cause)
{
	assert_int_equal(err, -EAGAIN);
	assert_int_equal(vb_txn_cause(me), cause);
}

/* ---- before and behind ---- */

/* What B has read is overwritten while it runs: B comes before that, and commits. */
static void comes_before(void **state)
{
	struct world w;
	uint64_t time;

	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin(w.b));
	must(read_key(&w, w.b, X));
	assert_int_equal(marks_of(&w, X), 1);
	time = write_often(&w, w.a, X, 1);
	assert_int_equal(time, 2);
	assert_int_equal(head_of(w.b)->upper, maat_upper(1));
	must(read_key(&w, w.b, Y));
	must(vb_txn_commit(w.b));
	assert_true(w.b->txn.commit_ts < time);
	close_clean(&w);
}

/* ... but not, if it then reads what the same one has written. */
static void reads_behind(void **state)
{
	struct world w;

	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin(w.b));
	must(read_key(&w, w.b, X));
	must(vb_txn_begin(w.a));
	must(update_key(&w, w.a, X));
	must(update_key(&w, w.a, Y));
	must(vb_txn_commit(w.a));
	must_end(w.b, read_key(&w, w.b, Y), VB_TXN_LEASE);
	close_clean(&w);
}

/* Each has read what the other writes. */
static void write_skew(void **state)
{
	struct world w;

	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin(w.a));
	must(vb_txn_begin(w.b));
	must(read_key(&w, w.a, X));
	must(read_key(&w, w.b, Y));
	must(update_key(&w, w.a, Y));
	must(update_key(&w, w.b, X));
	must(vb_txn_commit(w.a));
	must_end(w.b, vb_txn_commit(w.b), VB_TXN_LEASE);
	close_clean(&w);
}

/* Bounded by one whose time is early, and bound by what it writes to a late one. */
static void no_time_between(void **state)
{
	struct world w;

	open_usual(&w, state, LONG_NS);
	(void)write_often(&w, w.a, Z, 5);
	must(vb_txn_begin(w.b));
	must(read_key(&w, w.b, X));
	must(update_key(&w, w.b, Z));
	assert_int_equal(write_often(&w, w.a, X, 1), 2);
	must_end(w.b, vb_txn_commit(w.b), VB_TXN_LEASE);
	close_clean(&w);
}

/* Both write what both have read: the second finds the version changed. */
static void second_writer(void **state)
{
	struct world w;

	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin(w.b));
	must(update_key(&w, w.b, X));
	(void)write_often(&w, w.a, X, 1);
	must_end(w.b, vb_txn_commit(w.b), VB_TXN_CHANGED);
	close_clean(&w);
}

/* ---- who freezes first ---- */

static void a_writes_x(struct world *w)
{
	(void)write_often(w, w->a, X, 1);
}

/* B has published and not frozen yet: there is room for both. */
static void published(void **state)
{
	struct world w;

	open_watched(&w, state);
	(void)write_often(&w, w.a, Z, 5);
	must(vb_txn_begin(w.b));
	must(read_key(&w, w.b, X));
	must(update_key(&w, w.b, Z));
	meanwhile.before = a_writes_x;
	must(vb_txn_commit(w.b));
	assert_null(meanwhile.before);
	assert_int_equal(w.b->txn.commit_ts, 7);
	assert_true(rts_of(&w, X) >= 7);
	assert_true(w.a->txn.commit_ts > 7);
	close_clean(&w);
}

/* Another reader has raised rts since B has seen it, and not so far. */
static void published_twice(void **state)
{
	struct world w;

	open_usual(&w, state, LONG_NS);
	(void)write_often(&w, w.a, Z, 5);
	must(vb_txn_begin(w.b));
	must(read_key(&w, w.b, X));
	must(update_key(&w, w.b, Z));
	alone(w.a, read_key(&w, w.a, X));
	assert_int_equal(rts_of(&w, X), 1);
	must(vb_txn_commit(w.b));
	assert_int_equal(rts_of(&w, X), 7);
	close_clean(&w);
}

/* B has committed, and its mark is still there. */
static void committed_and_marked(void **state)
{
	struct world w;

	open_watched(&w, state);
	must(vb_txn_begin(w.b));
	must(read_key(&w, w.b, X));
	meanwhile.behind = a_writes_x;
	must(vb_txn_commit(w.b));
	assert_null(meanwhile.behind);
	assert_true(w.a->txn.commit_ts > w.b->txn.commit_ts);
	close_clean(&w);
}

/* B is frozen, and may yet commit or not: at no other time. */
static void frozen(void **state)
{
	struct world w;

	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin(w.b));
	must(read_key(&w, w.b, X));
	head_of(w.b)->upper = maat_upper(9) | MAAT_FROZEN;
	assert_int_equal(write_often(&w, w.a, X, 1), 10);
	assert_int_equal(head_of(w.b)->upper, maat_upper(9) | MAAT_FROZEN);
	/* It is not B that has frozen it. */
	must_end(w.b, vb_txn_commit(w.b), VB_TXN_LEASE);
	close_clean(&w);
}

/* ---- who is spared ---- */

static void spared(void **state)
{
	struct world w;

	open_usual(&w, state, LONG_NS);
	(void)write_often(&w, w.a, Z, 5);
	must(vb_txn_begin(w.b));
	must(read_key(&w, w.b, Z));
	must(read_key(&w, w.b, X));
	assert_int_equal(head_of(w.b)->lower, 6);
	assert_int_equal(write_often(&w, w.a, X, 1), 7);
	must(vb_txn_commit(w.b));
	assert_int_equal(w.b->txn.commit_ts, 6);
	close_clean(&w);
}

/* A's own interval does not reach so far: one of them ends, and it is not A. */
static void not_spared(void **state)
{
	struct vb_coordinator *c;
	struct world w;

	open_usual(&w, state, LONG_NS);
	must(vb_coordinator_open(w.db, 0, &c));
	(void)write_often(&w, c, Z, 5);
	(void)write_often(&w, c, Q, 3);
	must(vb_txn_begin(w.a));
	must(read_key(&w, w.a, Q));
	(void)write_often(&w, c, Q, 1);
	assert_int_equal(head_of(w.a)->upper, maat_upper(4));
	must(vb_txn_begin(w.b));
	must(read_key(&w, w.b, Z));
	must(read_key(&w, w.b, X));
	must(update_key(&w, w.a, X));
	must(vb_txn_commit(w.a));
	assert_int_equal(w.a->txn.commit_ts, 4);
	must_end(w.b, vb_txn_commit(w.b), VB_TXN_LEASE);
	vb_coordinator_close(c);
	close_clean(&w);
}

/* ---- marks ---- */

static void set_marks(struct world *w, unsigned n, uint64_t word)
{
	for (uint8_t slot = 0; slot < n; slot++)
		vb_tuple_set_word(tuple_of(w, X), maat_slot_at(MAAT_FIRST_SLOT + slot), word);
}

/* As long as there is a slot a reader takes it, whosever its own is; without one it reads all the same. */
static void slots(void **state)
{
	struct world w;

	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin(w.a));
	for (unsigned full = 0; full <= MAAT_SLOTS; full++) {
		set_marks(&w, full, w.a->txn.ts);
		must(vb_txn_begin(w.b));
		must(read_key(&w, w.b, X));
		must(update_key(&w, w.b, Y));
		assert_int_equal(marks_of(&w, X), full < MAAT_SLOTS ? full + 1 : full);
		must(vb_txn_commit(w.b));
		assert_int_equal(marks_of(&w, X), full);
		assert_true(rts_of(&w, X) >= w.b->txn.commit_ts);
	}
	set_marks(&w, MAAT_SLOTS, 0);
	vb_txn_abort(w.a);
	close_clean(&w);
}

/* What has no mark must be the same at the end, and nobody's. */
static void without_a_slot(void **state)
{
	struct vb_coordinator *c;
	struct world w;

	open_usual(&w, state, LONG_NS);
	must(vb_coordinator_open(w.db, 0, &c));
	must(vb_txn_begin(c));
	set_marks(&w, MAAT_SLOTS, c->txn.ts);
	for (unsigned is_locked = 0; is_locked < 2; is_locked++) {
		must(vb_txn_begin(w.b));
		must(read_key(&w, w.b, X));
		if (is_locked)
			vb_tuple_set_word(tuple_of(&w, X), w.t->layout.lock_at, c->txn.ts);
		else
			(void)write_often(&w, w.a, X, 1);
		must_end(w.b, vb_txn_commit(w.b), is_locked ? VB_TXN_LOCKED : VB_TXN_CHANGED);
	}
	vb_tuple_set_word(tuple_of(&w, X), w.t->layout.lock_at, 0);
	set_marks(&w, MAAT_SLOTS, 0);
	vb_txn_abort(c);
	vb_coordinator_close(c);
	close_clean(&w);
}

/* What one has left that is at another transaction by now bounds nobody, and the next writer clears it. */
static void left_behind(void **state)
{
	struct world w;
	uint64_t old;

	open_usual(&w, state, LONG_NS);
	(void)write_often(&w, w.b, Y, 1);
	old = w.b->txn.ts;
	(void)write_often(&w, w.b, Y, 1);
	must(vb_txn_begin(w.b));
	must(read_key(&w, w.b, Z));
	assert_int_equal(vb_ts_place(w.b->txn.ts), vb_ts_place(old));
	set_marks(&w, 3, old);
	assert_int_equal(write_often(&w, w.a, X, 1), 2);
	assert_int_equal(marks_of(&w, X), 0);
	must(vb_txn_commit(w.b));
	close_clean(&w);
}

/* The answer to its mark is lost: whichever slot it was, it is free behind the transaction. */
static void unheard(void **state)
{
	struct world w;
	struct vb_item *it;

	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin(w.b));
	must(read_key(&w, w.b, X));
	it = &w.b->txn.item[0];
	assert_true(it->flags & VB_ITEM_HELD_S && it->slot > MAAT_FIRST_SLOT);
	it->flags = (uint16_t)((it->flags & ~VB_ITEM_HELD_S) | VB_ITEM_MAYBE_S);
	assert_int_equal(marks_of(&w, X), 1);
	vb_txn_abort(w.b);
	close_clean(&w);
}

static unsigned met;

static void on_met(void *ctx, const struct vb_txn *t, const struct vb_item *it)
{
	(void)t;
	(void)it;
	met++;
	assert_int_equal(marks_of(ctx, X), 0);
}

static void on_ended(void *ctx, const struct vb_txn *t, bool committed)
{
	(void)ctx;
	(void)t;
	(void)committed;
}

/* Who waits for a writer is not bounded meanwhile: it has no mark. */
static void waits_unmarked(void **state)
{
	struct world w;
	const struct vb_txn_watch watch = {.ctx = &w, .ended = on_ended, .met = on_met};
	uint64_t waits;

	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin(w.a));
	w.db->watch = &watch;
	met = 0;
	for (unsigned reads_before = 0; reads_before < 2; reads_before++) {
		vb_tuple_set_word(tuple_of(&w, X), w.t->layout.lock_at, w.a->txn.ts);
		must(vb_txn_begin_with(w.b, &soon));
		waits = w.b->waits;
		assert_int_equal(reads_before ? update_key(&w, w.b, X) : read_key(&w, w.b, X),
				 -ETIMEDOUT);
		assert_true(w.b->waits > waits);
		assert_int_equal(marks_of(&w, X), 0);
		vb_tuple_set_word(tuple_of(&w, X), w.t->layout.lock_at, 0);
	}
	assert_true(met > 0);
	w.db->watch = NULL;
	vb_txn_abort(w.a);
	close_clean(&w);
}

/* At the end it meets another's lock: it does not wait, for it has some itself. */
static void locked(void **state)
{
	struct world w;
	uint64_t waits;

	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin(w.a));
	must(vb_txn_begin(w.b));
	must(update_key(&w, w.b, X));
	must(update_key(&w, w.b, Y));
	vb_tuple_set_word(tuple_of(&w, X), w.t->layout.lock_at, w.a->txn.ts);
	waits = w.b->waits;
	must_end(w.b, vb_txn_commit(w.b), VB_TXN_LOCKED);
	assert_int_equal(w.b->waits, waits);
	assert_int_equal(vb_tuple_word(tuple_of(&w, X), w.t->layout.lock_at), w.a->txn.ts);
	vb_tuple_set_word(tuple_of(&w, X), w.t->layout.lock_at, 0);
	vb_txn_abort(w.a);
	close_clean(&w);
}

/* What was to be written and is only read after all has no mark, either. */
static void read_after_all(void **state)
{
	const struct record r = {0};
	struct world w;

	open_usual(&w, state, LONG_NS);
	for (unsigned changes = 0; changes < 2; changes++) {
		must(vb_txn_begin(w.b));
		assert_int_equal(vb_txn_insert(w.b, w.t, X, &r), -EEXIST);
		must(update_key(&w, w.b, Y));
		assert_int_equal(marks_of(&w, X), 0);
		if (!changes) {
			must(vb_txn_commit(w.b));
			assert_true(rts_of(&w, X) >= w.b->txn.commit_ts);
			continue;
		}
		(void)write_often(&w, w.a, X, 1);
		must_end(w.b, vb_txn_commit(w.b), VB_TXN_CHANGED);
	}
	close_clean(&w);
}

/* ---- costs ---- */

static uint64_t verbs_of(const struct vb_coordinator *me)
{
	uint64_t n = 0;

	for (unsigned op = 0; op < VB_OP_COUNT; op++)
		n += me->ep->count[op];
	return n;
}

/* Read: mark and READ; rts if it is older, the own bound frozen, the commit point, the mark and the bound away; the
 * bound once more when a place is new.  Written: READ; lock and READ, rts, the commit point, WRITE and lock; three
 * more for each that has read it. */
static void costs(void **state)
{
	const struct kind *k = *state;
	struct world w;
	uint64_t n, far = 0;

	if (k->hybrid != NULL || strcmp(k->fabric, "sim") != 0)
		return;
	open_usual(&w, state, LONG_NS);
	while (vb_table_node(w.t, far) == w.a->node)
		far++;
	(void)write_often(&w, w.a, far, 1); /* where the record is */
	for (unsigned again = 0; again < 4; again++) {
		const unsigned anew = again < VB_PLACES_TXN;

		must(vb_txn_begin(w.a));
		n = verbs_of(w.a);
		must(read_key(&w, w.a, far));
		assert_int_equal(verbs_of(w.a) - n, anew + 2);
		must(vb_txn_commit(w.a));
		assert_int_equal(verbs_of(w.a) - n, anew + 2 + (again == 0) + 2 + 2);
	}
	for (unsigned reader = 0; reader < 2; reader++) {
		must(vb_txn_begin(w.b));
		if (reader)
			must(read_key(&w, w.b, far));
		must(vb_txn_begin(w.a));
		n = verbs_of(w.a);
		must(update_key(&w, w.a, far));
		assert_int_equal(verbs_of(w.a) - n, 1);
		must(vb_txn_commit(w.a));
		assert_int_equal(verbs_of(w.a) - n, 1 + 3 + (reader ? 3 : 0) + 1 + 2);
		vb_txn_abort(w.b);
	}
	close_clean(&w);
}

int main(void)
{
	static const struct case_for_all cases[] = {
		{"comes before who overwrites", comes_before},
		{"reads behind who overwrites", reads_behind},
		{"write skew", write_skew},
		{"no time between", no_time_between},
		{"second writer", second_writer},
		{"published", published},
		{"published twice", published_twice},
		{"committed and marked", committed_and_marked},
		{"frozen", frozen},
		{"spared", spared},
		{"not spared", not_spared},
		{"slots", slots},
		{"without a slot", without_a_slot},
		{"left behind", left_behind},
		{"unheard", unheard},
		{"waits unmarked", waits_unmarked},
		{"locked", locked},
		{"read after all", read_after_all},
		{"costs", costs},
	};
	static struct CMUnitTest tests[VB_ARRAY_SIZE(cases) * VB_ARRAY_SIZE(kinds_here)];
	static char names[VB_ARRAY_SIZE(tests)][96];
	size_t n = 0;

	for (size_t k = 0; k < VB_ARRAY_SIZE(kinds_here); k++)
		for (size_t i = 0; i < VB_ARRAY_SIZE(cases); i++, n++) {
			snprintf(names[n], sizeof(names[n]), "%s %s: %s", kinds_here[k].fabric,
				 kinds_here[k].hybrid != NULL ? "rpc" : "one-sided", cases[i].name);
			tests[n] = (struct CMUnitTest){.name = names[n],
						       .test_func = cases[i].run,
						       .initial_state = (void *)&kinds_here[k]};
		}
	return cmocka_run_group_tests_name("txn_maat", tests, NULL, NULL);
}
