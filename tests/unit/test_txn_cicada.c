/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cicada by hand: who meets a pending version, what a transaction finds at its end of what it has read, who comes
 * too late, and what it costs.  On sim, one-sided and by RPC, and on shm.  A and B tell who is older by the order
 * in which they begin; what happens while a version is pending happens before its writer's commit point.
 */
#include "txn_api.h"

#include "cc/mvcc.h"
#include "cc/protocols.h"

#define KEY 2 /* node 0 */

static const struct kind kinds_here[] = {
	{&vb_cc_cicada, NULL, "sim"},
	{&vb_cc_cicada, "rpc", "sim"},
	{&vb_cc_cicada, NULL, "shm"},
};

static const struct vb_txn_params soon = {.timeout_ns = 5000000};

/* What happens once, when the next transaction of `who` has locked and validated. */
static struct {
	struct world *w;
	struct vb_coordinator *who;
	void (*happens)(struct world *w);
} meanwhile;
static struct vb_cc_ops watched;

static int decide(struct vb_txn *t)
{
	void (*happens)(struct world * w) = meanwhile.happens;

	if (t->me == meanwhile.who && happens != NULL) {
		meanwhile.happens = NULL;
		happens(meanwhile.w);
	}
	return vb_txn_point(t);
}

static void open_watched(struct world *w, void **state)
{
	open_usual(w, state, LONG_NS);
	watched = *w->db->cc;
	watched.decide = decide;
	w->db->cc = &watched;
	meanwhile.w = w;
	meanwhile.happens = NULL;
}

static char *tuple_of(const struct world *w)
{
	return vb_local(w->f, vb_table_find(w->t, vb_table_node(w->t, KEY), KEY),
			w->t->layout.bytes);
}

static uint64_t rts_of(const struct world *w)
{
	return vb_tuple_word(tuple_of(w), VB_TUPLE_META_AT);
}

static uint64_t lock_of(const struct world *w)
{
	return vb_tuple_word(tuple_of(w), w->t->layout.lock_at);
}

static void begin_younger(struct vb_coordinator *me)
{
	tick(me);
	must(vb_txn_begin(me));
}

static int read_one(struct vb_coordinator *me, struct vb_table *t, uint64_t *value)
{
	struct record r = {0};
	int err = vb_txn_read(me, t, KEY, &r);

	*value = r.value;
	return err;
}

static int update_one(struct vb_coordinator *me, struct vb_table *t, uint64_t value)
{
	struct record *r;
	int err = vb_txn_update(me, t, KEY, (void **)&r);

	if (err == 0)
		r->value = value;
	return err;
}

static void write_alone(struct vb_coordinator *me, struct vb_table *t, uint64_t value)
{
	alone(me, vb_txn_write(me, t, KEY, &(struct record){.value = value, .other = value}));
}

static void must_end(struct vb_coordinator *me, int err, enum vb_txn_cause cause)
{
	assert_int_equal(err, -EAGAIN);
	assert_int_equal(vb_txn_cause(me), cause);
}

/* ---- while a version is pending ---- */

/* One that began behind its writer waits for it, to read; and does not, to write. */
static void b_meets_an_older(struct world *w)
{
	uint64_t value, waits = w->b->waits;

	assert_true(vb_name_fits(w->db->cc->whose(lock_of(w)), w->a->txn.ts));
	tick(w->b);
	must(vb_txn_begin_with(w->b, &soon));
	must_end(w->b, update_one(w->b, w->t, 9), VB_TXN_LOCKED);
	assert_int_equal(w->b->waits, waits);
	tick(w->b);
	must(vb_txn_begin_with(w->b, &soon));
	assert_int_equal(read_one(w->b, w->t, &value), -ETIMEDOUT);
	assert_int_equal(vb_txn_cause(w->b), VB_TXN_TIMEOUT);
	assert_true(w->b->waits > waits);
}

static void younger_meets_pending(void **state)
{
	struct world w;

	open_watched(&w, state);
	begin_younger(w.a);
	must(update_one(w.a, w.t, 7));
	meanwhile.who = w.a;
	meanwhile.happens = b_meets_an_older;
	must(vb_txn_commit(w.a));
	assert_null(meanwhile.happens);
	tick(w.b);
	assert_int_equal(value_of(w.b, w.t, KEY), 7);
	close_world(&w);
}

/* It has begun before the writer: what is pending is not of its time. */
static void b_meets_a_younger(struct world *w)
{
	uint64_t value, waits = w->b->waits;

	must(read_one(w->b, w->t, &value));
	assert_int_equal(value, FIRST + KEY);
	must(vb_txn_commit(w->b));
	assert_int_equal(w->b->waits, waits);
}

static void older_meets_pending(void **state)
{
	struct world w;

	open_watched(&w, state);
	must(vb_txn_begin(w.b));
	begin_younger(w.a);
	must(update_one(w.a, w.t, 7));
	meanwhile.who = w.a;
	meanwhile.happens = b_meets_a_younger;
	must(vb_txn_commit(w.a));
	assert_null(meanwhile.happens);
	tick(w.b);
	assert_int_equal(value_of(w.b, w.t, KEY), 7);
	close_world(&w);
}

/* By its age one would be no matter: it rolls forward who may be older than the reader. */
static void mender_is_waited_for(void **state)
{
	const uint64_t mender = vb_ts_make(1ull << 40, VB_PLACES_TXN);
	struct world w;
	uint64_t value, was;

	open_usual(&w, state, LONG_NS);
	write_alone(w.a, w.t, 5);
	was = lock_of(&w);
	assert_true(vb_ts_mends(mender));
	for (unsigned reads_before = 0; reads_before < 2; reads_before++) {
		must(vb_txn_begin_with(w.b, &soon));
		if (reads_before)
			must(read_one(w.b, w.t, &value));
		vb_tuple_set_word(tuple_of(&w), w.t->layout.lock_at, mender | MVCC_HELD);
		if (reads_before)
			must_end(w.b, vb_txn_commit(w.b), VB_TXN_LOCKED);
		else
			assert_int_equal(read_one(w.b, w.t, &value), -ETIMEDOUT);
		vb_tuple_set_word(tuple_of(&w), w.t->layout.lock_at, was);
	}
	close_world(&w);
}

/* Without seals: it is marked already, and not there yet.  The version before it is no longer that of the time. */
static void being_written(void **state)
{
	const struct kind *k = *state;
	struct world w;
	uint64_t value;

	if (strcmp(k->fabric, "shm") != 0)
		return;
	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin(w.a));
	tick(w.b);
	must(vb_txn_begin_with(w.b, &soon));
	vb_tuple_set_word(tuple_of(&w), w.t->layout.lock_at, w.a->txn.ts | MVCC_HELD);
	vb_tuple_set_word(tuple_of(&w), w.t->layout.version_at + vb_slot_behind(&w.t->layout, 1),
			  w.a->txn.ts | MVCC_WRITING);
	assert_int_equal(read_one(w.b, w.t, &value), -ETIMEDOUT);
	vb_txn_abort(w.a);
	close_world(&w);
}

static struct {
	struct world *w;
	bool armed;
	const struct vb_fabric_ops *real;
	struct vb_fabric_ops ops;
} halves;

/* A READ of the tuple brings what lies behind the second slot's version first, then B commits into that slot. */
static int read_last_first(struct vb_ep *ep, vb_addr a, void *buf, uint32_t len)
{
	const struct vb_tuple_layout *l = &halves.w->t->layout;
	uint32_t first = l->record_at + vb_slot_behind(l, 1);
	int err;

	if (len != l->bytes || !halves.armed)
		return halves.real->read(ep, a, buf, len);
	halves.armed = false;
	err = halves.real->read(ep, a + first, (char *)buf + first, len - first);
	must(vb_txn_commit(halves.w->b));
	return err != 0 ? err : halves.real->read(ep, a, buf, first);
}

/* Without seals: the version is new, and the record what stood there before it.  With them the seal is wrong. */
static void whole_without_seals(void **state)
{
	const struct kind *k = *state;
	struct world w;
	uint64_t value;

	if (strcmp(k->fabric, "shm") != 0)
		return;
	open_usual(&w, state, LONG_NS);
	halves.w = &w;
	halves.real = w.a->ep->ops;
	halves.ops = *halves.real;
	halves.ops.read = read_last_first;
	halves.armed = true;
	must(vb_txn_begin(w.b));
	must(update_one(w.b, w.t, 7));
	begin_younger(w.a);
	w.a->ep->ops = &halves.ops;
	must(read_one(w.a, w.t, &value));
	assert_int_equal(value, 7);
	assert_false(halves.armed);
	must(vb_txn_commit(w.a));
	w.a->ep->ops = halves.real;
	close_world(&w);
}

/* ---- what was read, at the end ---- */

static void b_validates_beside_an_older(struct world *w)
{
	must_end(w->b, vb_txn_commit(w->b), VB_TXN_LOCKED);
}

static void b_validates_beside_a_younger(struct world *w)
{
	must(vb_txn_commit(w->b));
	assert_int_equal(rts_of(w), w->b->txn.ts);
}

/* What was read is the newest version, and another is pending at the end. */
static void validates_beside_pending(void **state)
{
	struct world w;
	uint64_t value;

	open_watched(&w, state);
	for (unsigned b_is_older = 0; b_is_older < 2; b_is_older++) {
		if (b_is_older)
			begin_younger(w.b);
		begin_younger(w.a);
		if (!b_is_older)
			begin_younger(w.b);
		must(read_one(w.b, w.t, &value));
		must(update_one(w.a, w.t, 7 + b_is_older));
		meanwhile.who = w.a;
		meanwhile.happens =
			b_is_older ? b_validates_beside_a_younger : b_validates_beside_an_older;
		must(vb_txn_commit(w.a));
		assert_null(meanwhile.happens);
		tick(w.b);
		assert_int_equal(value_of(w.b, w.t, KEY), 7 + b_is_older);
	}
	close_world(&w);
}

/* What was read is no longer the newest version, and still the one of its time, as long as it is there; whether
 * the newer ones were there when it was read, or not. */
static void validates_an_older_version(void **state)
{
	struct world w;
	uint64_t value;

	open_usual(&w, state, LONG_NS);
	for (unsigned before = 0; before < MVCC_SLOTS; before++)
		for (unsigned behind = 0; behind <= MVCC_SLOTS; behind++) {
			write_alone(w.b, w.t, 1000 + behind);
			begin_younger(w.a);
			tick(w.b);
			for (unsigned i = 0; i < before; i++)
				write_alone(w.b, w.t, 2000 + i);
			must(read_one(w.a, w.t, &value));
			assert_int_equal(value, 1000 + behind);
			for (unsigned i = 0; i < behind; i++)
				write_alone(w.b, w.t, 3000 + i);
			if (before + behind < MVCC_SLOTS)
				must(vb_txn_commit(w.a));
			else
				must_end(w.a, vb_txn_commit(w.a), VB_TXN_SLOTS);
			tick(w.a);
			tick(w.b);
		}
	close_world(&w);
}

/* An older one has written what it should have read; before its end nothing told that it had read. */
static void validates_in_vain(void **state)
{
	struct world w;
	uint64_t value;

	open_usual(&w, state, LONG_NS);
	for (unsigned younger = 0; younger < 2; younger++) {
		must(vb_txn_begin(w.a));
		begin_younger(w.b);
		must(read_one(w.b, w.t, &value));
		must(update_one(w.a, w.t, 7));
		must(vb_txn_commit(w.a));
		tick(w.a);
		/* And one of behind it, too. */
		if (younger)
			write_alone(w.a, w.t, 8);
		must_end(w.b, vb_txn_commit(w.b), VB_TXN_CHANGED);
		tick(w.b);
	}
	close_world(&w);
}

/* Of two readers the one whose rts another has raised since raises it once more, if it is the younger. */
static void readers_together(void **state)
{
	struct world w;
	uint64_t value;

	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin(w.a));
	begin_younger(w.b);
	must(read_one(w.a, w.t, &value));
	must(read_one(w.b, w.t, &value));
	must(vb_txn_commit(w.a));
	assert_int_equal(rts_of(&w), w.a->txn.ts);
	must(vb_txn_commit(w.b));
	assert_int_equal(rts_of(&w), w.b->txn.ts);
	begin_younger(w.a);
	begin_younger(w.b);
	must(read_one(w.a, w.t, &value));
	must(read_one(w.b, w.t, &value));
	must(vb_txn_commit(w.b));
	must(vb_txn_commit(w.a));
	assert_int_equal(rts_of(&w), w.b->txn.ts);
	close_world(&w);
}

/* ---- who comes too late to write ---- */

static void b_reads(struct world *w)
{
	uint64_t value;

	begin_younger(w->b);
	must(read_one(w->b, w->t, &value));
	must(vb_txn_commit(w->b));
}

/* For a younger reader, or a younger version: as soon as it is seen, and under the lock at the latest. */
static void late_writers(void **state)
{
	struct world w;
	uint64_t value;

	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin(w.a));
	b_reads(&w);
	must_end(w.a, update_one(w.a, w.t, 7), VB_TXN_CHANGED);
	/* It has been read since the READ. */
	begin_younger(w.a);
	must(update_one(w.a, w.t, 7));
	b_reads(&w);
	must_end(w.a, vb_txn_commit(w.a), VB_TXN_CHANGED);
	assert_true(w.db->cc->whose(lock_of(&w)).shown == 0);
	/* It has been written since. */
	begin_younger(w.a);
	must(update_one(w.a, w.t, 7));
	tick(w.b);
	write_alone(w.b, w.t, 8);
	must_end(w.a, vb_txn_commit(w.a), VB_TXN_CHANGED);
	begin_younger(w.a);
	tick(w.b);
	write_alone(w.b, w.t, 9);
	must_end(w.a, update_one(w.a, w.t, 7), VB_TXN_CHANGED);
	assert_int_equal(value_of(w.b, w.t, KEY), 9);
	/* What it has read of its time is old: nothing more is asked. */
	begin_younger(w.a);
	tick(w.b);
	write_alone(w.b, w.t, 10);
	must(read_one(w.a, w.t, &value));
	assert_int_equal(value, 9);
	must_end(w.a, update_one(w.a, w.t, 7), VB_TXN_CHANGED);
	close_world(&w);
}

static uint64_t verbs_of(const struct vb_coordinator *me)
{
	uint64_t n = 0;

	for (unsigned op = 0; op < VB_OP_COUNT; op++)
		n += me->ep->count[op];
	return n;
}

/* Where the verbs of a stage are those of the test's endpoint. */
static bool counts(void **state)
{
	const struct kind *k = *state;

	return k->hybrid == NULL && strcmp(k->fabric, "sim") == 0;
}

/* A READ for each; at the end a CAS and a READ for what is the newest version, a READ for another, and two verbs
 * before and two behind the commit point for what is written. */
static void costs(void **state)
{
	struct record *r;
	struct world w;
	uint64_t n, value;

	if (!counts(state))
		return;
	open_usual(&w, state, LONG_NS);
	write_alone(w.a, w.t, 1); /* where the record is */
	begin_younger(w.a);
	n = verbs_of(w.a);
	must(read_one(w.a, w.t, &value));
	assert_int_equal(verbs_of(w.a) - n, 1);
	must(vb_txn_commit(w.a));
	assert_int_equal(verbs_of(w.a) - n, 1 + 2 + 1);
	begin_younger(w.a);
	n = verbs_of(w.a);
	must(vb_txn_update(w.a, w.t, KEY, (void **)&r));
	assert_int_equal(verbs_of(w.a) - n, 1);
	must(vb_txn_commit(w.a));
	assert_int_equal(verbs_of(w.a) - n, 1 + 2 + 1 + 2);
	begin_younger(w.a);
	tick(w.b);
	write_alone(w.b, w.t, 2);
	n = verbs_of(w.a);
	must(read_one(w.a, w.t, &value));
	must(vb_txn_commit(w.a));
	assert_int_equal(verbs_of(w.a) - n, 1 + 1 + 1);
	close_world(&w);
}

int main(void)
{
	static const struct case_for_all cases[] = {
		{"a younger one meets what is pending", younger_meets_pending},
		{"an older one meets what is pending", older_meets_pending},
		{"a mender is waited for", mender_is_waited_for},
		{"what is being written", being_written},
		{"whole without seals", whole_without_seals},
		{"validates beside what is pending", validates_beside_pending},
		{"validates an older version", validates_an_older_version},
		{"validates in vain", validates_in_vain},
		{"readers together", readers_together},
		{"late writers", late_writers},
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
	return cmocka_run_group_tests_name("txn_cicada", tests, NULL, NULL);
}
