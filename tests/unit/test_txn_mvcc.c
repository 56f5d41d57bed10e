/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mvcc and mvcc-rcc by hand: which version a transaction gets, whom it meets, what it leaves in the words and
 * what it costs.  On sim, one-sided and by RPC, and on shm.  A and B tell who is older by the order in which they
 * begin.
 */
#include "txn_api.h"

#include "cc/mvcc.h"
#include "cc/protocols.h"

#define KEY 1

static const struct kind kinds_here[] = {
	{&vb_cc_mvcc, NULL, "sim"},      {&vb_cc_mvcc, "rpc", "sim"},
	{&vb_cc_mvcc, NULL, "shm"},      {&vb_cc_mvcc_rcc, NULL, "sim"},
	{&vb_cc_mvcc_rcc, "rpc", "sim"}, {&vb_cc_mvcc_rcc, NULL, "shm"},
};

static const char *tuple_of(const struct world *w)
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

static void write_one(struct vb_coordinator *me, struct vb_table *t, uint64_t value)
{
	alone(me, vb_txn_write(me, t, KEY, &(struct record){.value = value, .other = value}));
}

static int read_one(struct vb_coordinator *me, struct vb_table *t, uint64_t *value)
{
	struct record r = {0};
	int err = vb_txn_read(me, t, KEY, &r);

	*value = r.value;
	return err;
}

/* A is older than what B commits: it reads what was there, and commits. */
static void of_its_time(void **state)
{
	struct world w;
	uint64_t value;

	open_usual(&w, state, LONG_NS);
	for (unsigned behind = 0; behind < MVCC_SLOTS; behind++) {
		write_one(w.b, w.t, 1000 + behind);
		must(vb_txn_begin(w.a));
		tick(w.a);
		for (unsigned i = 0; i < behind; i++)
			write_one(w.b, w.t, 2000 + i);
		must(read_one(w.a, w.t, &value));
		assert_int_equal(value, 1000 + behind);
		must(vb_txn_commit(w.a));
	}
	close_world(&w);
}

/* One more, and the version of its time is gone: that is counted, and the next try has a time of its own. */
static void slot_overflow(void **state)
{
	struct world w;
	uint64_t value;

	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin(w.a));
	tick(w.a);
	for (unsigned i = 0; i < MVCC_SLOTS; i++)
		write_one(w.b, w.t, 2000 + i);
	assert_int_equal(read_one(w.a, w.t, &value), -EAGAIN);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_SLOTS);
	assert_int_equal(w.a->aborts[VB_TXN_SLOTS], 1);
	assert_int_equal(value_of(w.a, w.t, KEY), 2000 + MVCC_SLOTS - 1);
	close_world(&w);
}

/* R2: an older holder may commit what the reader should see; a younger one cannot. */
static void readers_and_holders(void **state)
{
	struct record *r;
	struct world w;
	uint64_t value;

	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin(w.a));
	tick(w.a);
	must(vb_txn_begin(w.b));
	must(vb_txn_update(w.b, w.t, KEY, (void **)&r));
	must(read_one(w.a, w.t, &value));
	assert_int_equal(value, FIRST + KEY);
	/* And that it has read does not keep the younger from its commit. */
	must(vb_txn_commit(w.b));
	must(vb_txn_commit(w.a));
	tick(w.b);
	must(vb_txn_begin(w.b));
	must(vb_txn_update(w.b, w.t, KEY, (void **)&r));
	tick(w.a);
	must(vb_txn_begin(w.a));
	assert_int_equal(read_one(w.a, w.t, &value), -EAGAIN);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_LOCKED);
	must(vb_txn_commit(w.b));
	close_world(&w);
}

/* W1: a writer ends for a younger reader of the newest version, whether it finds it before or behind its
 * lock, and for a younger version. */
static void late_writers(void **state)
{
	struct record *r;
	struct world w;
	uint64_t value;

	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin(w.a));
	tick(w.a);
	must(vb_txn_begin(w.b));
	must(read_one(w.b, w.t, &value));
	assert_int_equal(rts_of(&w), w.b->txn.ts);
	assert_int_equal(vb_txn_update(w.a, w.t, KEY, (void **)&r), -EAGAIN);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_CHANGED);
	must(vb_txn_commit(w.b));
	/* A has read before B does: nothing but rts tells, behind the lock. */
	tick(w.a);
	must(vb_txn_begin(w.a));
	must(read_one(w.a, w.t, &value));
	tick(w.b);
	must(vb_txn_begin(w.b));
	must(read_one(w.b, w.t, &value));
	must(vb_txn_commit(w.b));
	assert_int_equal(vb_txn_update(w.a, w.t, KEY, (void **)&r), -EAGAIN);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_CHANGED);
	assert_true(w.db->cc->whose(lock_of(&w)).shown == 0);
	/* A has read what B has replaced since. */
	tick(w.a);
	must(vb_txn_begin(w.a));
	must(read_one(w.a, w.t, &value));
	tick(w.b);
	write_one(w.b, w.t, 7);
	assert_int_equal(vb_txn_update(w.a, w.t, KEY, (void **)&r), -EAGAIN);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_CHANGED);
	close_world(&w);
}

/* Who has met a reader whose clock is far ahead is younger at its next try. */
static void clock_follows_readers(void **state)
{
	struct record *r;
	struct world w;
	uint64_t value, ahead;

	open_usual(&w, state, LONG_NS);
	write_one(w.b, w.t, 1);
	w.b->clock += 1000000;
	must(vb_txn_begin(w.b));
	ahead = w.b->txn.ts;
	must(read_one(w.b, w.t, &value));
	must(vb_txn_commit(w.b));
	must(vb_txn_begin(w.a));
	assert_true(w.a->txn.ts < ahead);
	assert_int_equal(vb_txn_update(w.a, w.t, KEY, (void **)&r), -EAGAIN);
	must(vb_txn_begin(w.a));
	assert_true(w.a->txn.ts > ahead);
	must(vb_txn_update(w.a, w.t, KEY, (void **)&r));
	must(vb_txn_commit(w.a));
	close_world(&w);
}

/* A younger holder is in no reader's way once: were it dead, the next one has to find it. */
static void clock_follows_holders(void **state)
{
	struct record *r;
	struct world w;
	uint64_t value, ahead;

	open_usual(&w, state, LONG_NS);
	write_one(w.b, w.t, 1);
	w.b->clock += 1000000;
	must(vb_txn_begin(w.b));
	ahead = w.b->txn.ts;
	must(vb_txn_update(w.b, w.t, KEY, (void **)&r));
	must(vb_txn_begin(w.a));
	assert_true(w.a->txn.ts < ahead);
	must(read_one(w.a, w.t, &value));
	assert_int_equal(value, 1);
	must(vb_txn_commit(w.a));
	must(vb_txn_begin(w.a));
	assert_true(w.a->txn.ts > ahead);
	assert_int_equal(read_one(w.a, w.t, &value), -EAGAIN);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_LOCKED);
	vb_txn_abort(w.b);
	close_world(&w);
}

/* What a sweep recovers are words that name somebody; that somebody has read is data. */
static void sweeps_leave_data(void **state)
{
	struct record *r;
	struct world w;
	uint64_t value, freed, rts;

	open_usual(&w, state, SHORT_NS);
	write_one(w.b, w.t, 1);
	write_one(w.b, w.t, 2);
	must(vb_txn_begin(w.a));
	must(read_one(w.a, w.t, &value));
	must(vb_txn_commit(w.a));
	rts = rts_of(&w);
	assert_true(rts != 0);
	tick(w.a);
	must(vb_txn_begin(w.a));
	must(vb_txn_update(w.a, w.t, KEY, (void **)&r));
	assert_true(vb_name_fits(w.db->cc->whose(lock_of(&w)), w.a->txn.ts));
	must(vb_db_recover(w.b, vb_table_node(w.t, KEY), &freed));
	assert_int_equal(freed, 1);
	assert_int_equal(rts_of(&w), rts);
	/* Set back to the newest version, which is not in the first slot. */
	assert_int_equal(vb_tuple_newest(&w.t->layout, tuple_of(&w)), 2);
	assert_int_equal(lock_of(&w),
			 w.db->cc->unlocked(vb_slot_version(&w.t->layout, tuple_of(&w), 2), 0));
	assert_int_equal(value_of(w.b, w.t, KEY), 2);
	close_world(&w);
}

static struct {
	struct world *w;
	uint64_t version;
	const struct vb_fabric_ops *real;
	struct vb_fabric_ops ops;
} torn;

/* What is read first are the words of the first slot; then a younger writer, who holds the record, begins to
 * overwrite that slot; then the rest is read. */
static int read_torn(struct vb_ep *ep, vb_addr a, void *buf, uint32_t len)
{
	const struct vb_tuple_layout *l = &torn.w->t->layout;
	uint32_t first = l->record_at;
	char *tuple = vb_local(torn.w->f, a, len);
	int err;

	if (len != l->bytes || torn.version == 0)
		return torn.real->read(ep, a, buf, len);
	err = torn.real->read(ep, a, buf, first);
	vb_tuple_set_word(tuple, l->version_at, torn.version | MVCC_WRITING);
	vb_tuple_set_word(tuple, l->record_at, 666);
	torn.version = 0;
	return err != 0 ? err : torn.real->read(ep, a + first, (char *)buf + first, len - first);
}

/* The oldest version is overwritten while it is read: the reader does not get half of it, and finds that it
 * is gone.  Without seals; with them a half has the wrong seal. */
static void torn_oldest(void **state)
{
	const struct kind *k = *state;
	struct record *r;
	struct world w;
	uint64_t value;

	if (strcmp(k->fabric, "shm") != 0)
		return;
	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin(w.a));
	tick(w.a);
	for (unsigned i = 1; i < MVCC_SLOTS; i++)
		write_one(w.b, w.t, 2000 + i);
	must(vb_txn_begin(w.b));
	must(vb_txn_update(w.b, w.t, KEY, (void **)&r));
	torn.w = &w;
	torn.version = w.b->txn.ts;
	torn.real = w.a->ep->ops;
	torn.ops = *torn.real;
	torn.ops.read = read_torn;
	w.a->ep->ops = &torn.ops;
	assert_int_equal(read_one(w.a, w.t, &value), -EAGAIN);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_SLOTS);
	assert_int_equal(torn.version, 0);
	w.a->ep->ops = torn.real;
	vb_txn_abort(w.b);
	close_world(&w);
}

/* ---- mvcc-rcc ---- */

static bool is_rcc(void **state)
{
	const struct kind *k = *state;

	return k->ops == &vb_cc_mvcc_rcc;
}

/* W2 is looked at before the lock: who cannot have it leaves nothing.  Behind the commit the word is 0 again. */
static void another_holds(void **state)
{
	struct record *r;
	struct world w;

	if (!is_rcc(state))
		return;
	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin(w.b));
	tick(w.b);
	must(vb_txn_begin(w.a));
	must(vb_txn_update(w.b, w.t, KEY, (void **)&r));
	r->value = 7;
	/* W2, without a lock of its own: nothing is left. */
	assert_int_equal(vb_txn_update(w.a, w.t, KEY, (void **)&r), -EAGAIN);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_LOCKED);
	assert_int_equal(lock_of(&w), w.b->txn.ts);
	must(vb_txn_commit(w.b));
	tick(w.a);
	must(vb_txn_begin(w.a));
	must(vb_txn_update(w.a, w.t, KEY, (void **)&r));
	assert_int_equal(r->value, 7);
	must(vb_txn_commit(w.a));
	assert_int_equal(lock_of(&w), 0);
	close_world(&w);
}

/* On shm, whose tuples have no seals: a READ of a tuple brings what lies behind the second slot's version before
 * it brings that. */
static struct {
	struct world *w;
	void (*between)(struct world *w);
	const struct vb_fabric_ops *real;
	struct vb_fabric_ops ops;
} halves;

static int read_last_first(struct vb_ep *ep, vb_addr a, void *buf, uint32_t len)
{
	const struct vb_tuple_layout *l = &halves.w->t->layout;
	uint32_t first = l->record_at + vb_slot_behind(l, 1);
	void (*between)(struct world * w) = halves.between;
	int err;

	if (len != l->bytes || between == NULL)
		return halves.real->read(ep, a, buf, len);
	halves.between = NULL;
	err = halves.real->read(ep, a + first, (char *)buf + first, len - first);
	between(halves.w);
	return err != 0 ? err : halves.real->read(ep, a, buf, first);
}

static void open_halves(struct world *w, void **state, void (*between)(struct world *w))
{
	open_usual(w, state, LONG_NS);
	halves.w = w;
	halves.between = between;
	halves.real = w->a->ep->ops;
	halves.ops = *halves.real;
	halves.ops.read = read_last_first;
	w->a->ep->ops = &halves.ops;
}

static void close_halves(struct world *w)
{
	assert_null(halves.between);
	w->a->ep->ops = halves.real;
	close_world(w);
}

static bool on_shm(void **state)
{
	const struct kind *k = *state;

	return strcmp(k->fabric, "shm") == 0;
}

static void b_writes(struct world *w)
{
	struct record *r;

	must(vb_txn_update(w->b, w->t, KEY, (void **)&r));
	r->value = 7;
	must(vb_txn_commit(w->b));
}

/* An older version's record and the newest one's version word are no version. */
static void whole_without_seals(void **state)
{
	struct world w;
	uint64_t value;

	if (!on_shm(state))
		return;
	open_halves(&w, state, b_writes);
	must(vb_txn_begin(w.b));
	tick(w.b);
	must(vb_txn_begin(w.a));
	must(read_one(w.a, w.t, &value));
	assert_int_equal(value, 7);
	must(vb_txn_commit(w.a));
	close_halves(&w);
}

/* As if A had stood still for a lease, and been rolled back. */
static void a_is_taken_over(struct world *w)
{
	uint64_t *lock = (uint64_t *)(uintptr_t)(tuple_of(w) + w->t->layout.lock_at);

	assert_int_equal(*lock, w->a->txn.ts);
	*lock = 0;
}

/* What was read under a lock that was taken over is given to nobody. */
static void taken_over(void **state)
{
	struct record *r;
	struct world w;

	if (!on_shm(state) || !is_rcc(state))
		return;
	open_halves(&w, state, a_is_taken_over);
	must(vb_txn_begin(w.a));
	assert_int_equal(vb_txn_update(w.a, w.t, KEY, (void **)&r), -EAGAIN);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_CHANGED);
	assert_int_equal(lock_of(&w), 0);
	close_halves(&w);
}

static uint64_t verbs_of(const struct vb_coordinator *me)
{
	uint64_t n = 0;

	for (unsigned op = 0; op < VB_OP_COUNT; op++)
		n += me->ep->count[op];
	return n;
}

/* READ, CAS, look and READ of what is the newest version, two READs of another; three verbs to lock, the
 * record read before or not, with a look before that if it was not. */
static void costs(void **state)
{
	const struct kind *k = *state;
	struct record *r;
	struct world w;
	uint64_t n, value;

	if (!is_rcc(state) || k->hybrid != NULL || strcmp(k->fabric, "sim") != 0)
		return;
	open_usual(&w, state, LONG_NS);
	write_one(w.a, w.t, 1); /* where the record is */
	must(vb_txn_begin(w.a));
	n = verbs_of(w.a);
	must(read_one(w.a, w.t, &value));
	assert_int_equal(verbs_of(w.a) - n, 4);
	n = verbs_of(w.a);
	must(vb_txn_update(w.a, w.t, KEY, (void **)&r));
	assert_int_equal(verbs_of(w.a) - n, 3);
	must(vb_txn_commit(w.a));
	tick(w.a);
	must(vb_txn_begin(w.a));
	n = verbs_of(w.a);
	must(vb_txn_update(w.a, w.t, KEY, (void **)&r));
	assert_int_equal(verbs_of(w.a) - n, 3);
	must(vb_txn_commit(w.a));
	must(vb_txn_begin(w.a));
	tick(w.a);
	write_one(w.b, w.t, 2);
	n = verbs_of(w.a);
	must(read_one(w.a, w.t, &value));
	assert_int_equal(verbs_of(w.a) - n, 2);
	assert_int_equal(value, 1);
	close_world(&w);
}

/* What ended is counted by the stage that found it. */
static void ends_are_counted(void **state)
{
	struct record *r;
	struct world w;
	uint64_t value;

	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin(w.a));
	tick(w.a);
	for (unsigned i = 0; i < MVCC_SLOTS; i++)
		write_one(w.b, w.t, 2000 + i);
	assert_int_equal(read_one(w.a, w.t, &value), -EAGAIN);
	assert_int_equal(w.a->timed[0].ended, 1);
	must(vb_txn_begin(w.a));
	tick(w.a);
	write_one(w.b, w.t, 3000);
	assert_int_equal(vb_txn_update(w.a, w.t, KEY, (void **)&r), -EAGAIN);
	assert_int_equal(w.a->timed[0].ended + w.a->timed[1].ended, 2);
	assert_int_equal(w.a->timed[1].ended, is_rcc(state) ? 1 : 0);
	close_world(&w);
}

int main(void)
{
	static const struct {
		const char *name;
		CMUnitTestFunction run;
	} cases[] = {
		{"of its time", of_its_time},
		{"slot overflow", slot_overflow},
		{"readers and holders", readers_and_holders},
		{"late writers", late_writers},
		{"clock follows readers", clock_follows_readers},
		{"clock follows holders", clock_follows_holders},
		{"sweeps leave data", sweeps_leave_data},
		{"the oldest, torn", torn_oldest},
		{"another holds it", another_holds},
		{"whole without seals", whole_without_seals},
		{"taken over", taken_over},
		{"costs", costs},
		{"ends are counted", ends_are_counted},
	};
	struct CMUnitTest tests[VB_ARRAY_SIZE(cases) * VB_ARRAY_SIZE(kinds_here)];
	static char names[VB_ARRAY_SIZE(tests)][80];
	size_t n = 0;

	for (size_t k = 0; k < VB_ARRAY_SIZE(kinds_here); k++)
		for (size_t i = 0; i < VB_ARRAY_SIZE(cases); i++, n++) {
			snprintf(names[n], sizeof(names[n]), "%s %s %s: %s",
				 kinds_here[k].ops->name, kinds_here[k].fabric,
				 kinds_here[k].hybrid != NULL ? "rpc" : "one-sided", cases[i].name);
			tests[n] = (struct CMUnitTest){.name = names[n],
						       .test_func = cases[i].run,
						       .initial_state = (void *)&kinds_here[k]};
		}
	return cmocka_run_group_tests_name("txn_mvcc", tests, NULL, NULL);
}
