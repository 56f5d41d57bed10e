/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What include/verbena/txn.h says of single calls, for every protocol, one-sided and by RPC: what a
 * transaction sees of itself, which errors there are and what has happened then.  What it says of
 * databases is in test_txn_databases.c.
 */
#include "txn_api.h"

#include "txn/db.h"

#define NONE 50 /* keys from here on have no record */

static const struct record one = {.value = 1}, two = {.value = 2};

static uint64_t seen(struct world *w, uint64_t key)
{
	const struct record *r;

	must(vb_txn_get(w->a, w->t, key, (const void **)&r));
	return r->value;
}

static struct record *changed(struct world *w, uint64_t key)
{
	struct record *r;

	must(vb_txn_update(w->a, w->t, key, (void **)&r));
	return r;
}

/* ---- what a transaction sees of itself ---- */

static void reads_its_own_writes(void **state)
{
	struct record copy;
	struct world w;

	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin(w.a));
	/* Changed in place, then replaced. */
	assert_int_equal(changed(&w, 0)->value, FIRST);
	changed(&w, 0)->value = 10;
	assert_int_equal(seen(&w, 0), 10);
	must(vb_txn_write(w.a, w.t, 0, &one));
	must(vb_txn_read(w.a, w.t, 0, &copy));
	assert_memory_equal(&copy, &one, sizeof(one));
	/* Replaced blindly, then read, then changed in place. */
	must(vb_txn_write(w.a, w.t, 1, &two));
	assert_int_equal(seen(&w, 1), 2);
	changed(&w, 1)->other = 9;
	/* Read, then replaced. */
	assert_int_equal(seen(&w, 2), FIRST + 2);
	must(vb_txn_write(w.a, w.t, 2, &two));
	assert_int_equal(seen(&w, 2), 2);
	/* Replaced twice. */
	must(vb_txn_write(w.a, w.t, 3, &one));
	must(vb_txn_write(w.a, w.t, 3, &two));
	must(vb_txn_commit(w.a));
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_COMMITTED);

	assert_int_equal(value_of(w.b, w.t, 0), 1);
	alone(w.b, vb_txn_read(w.b, w.t, 1, &copy));
	assert_int_equal(copy.value, 2);
	assert_int_equal(copy.other, 9);
	assert_int_equal(value_of(w.b, w.t, 2), 2);
	assert_int_equal(value_of(w.b, w.t, 3), 2);
	close_world(&w);
}

/* Several are read before the first is written. */
static void reads_then_updates(void **state)
{
	struct world w;

	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin(w.a));
	for (uint64_t key = 0; key < 6; key++)
		assert_int_equal(seen(&w, key), FIRST + key);
	for (uint64_t key = 0; key < 6; key++) {
		assert_int_equal(changed(&w, key)->value, FIRST + key);
		changed(&w, key)->value += 100;
	}
	for (uint64_t key = 0; key < 6; key++)
		assert_int_equal(seen(&w, key), FIRST + 100 + key);
	must(vb_txn_commit(w.a));
	for (uint64_t key = 0; key < 8; key++)
		assert_int_equal(value_of(w.b, w.t, key), FIRST + key + (key < 6 ? 100 : 0));
	close_world(&w);
}

/* A pointer is good until the end, whatever else is touched. */
static void pointers_stay(void **state)
{
	const struct record *first;
	struct record *second;
	struct world w;

	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin(w.a));
	must(vb_txn_get(w.a, w.t, 0, (const void **)&first));
	must(vb_txn_update(w.a, w.t, 1, (void **)&second));
	for (uint64_t key = 2; key < ITEMS_MAX; key++)
		assert_int_equal(seen(&w, key), FIRST + key);
	assert_int_equal(first->value, FIRST);
	second->value = 77;
	must(vb_txn_commit(w.a));
	assert_int_equal(value_of(w.b, w.t, 1), 77);
	close_world(&w);
}

static void deletes(void **state)
{
	const struct record *r;
	struct record *u;
	struct world w;

	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin(w.a));
	/* Blindly; then it is gone for every call. */
	must(vb_txn_delete(w.a, w.t, 0));
	assert_int_equal(vb_txn_get(w.a, w.t, 0, (const void **)&r), -ENOENT);
	assert_int_equal(vb_txn_update(w.a, w.t, 0, (void **)&u), -ENOENT);
	assert_int_equal(vb_txn_write(w.a, w.t, 0, &one), -ENOENT);
	assert_int_equal(vb_txn_delete(w.a, w.t, 0), -ENOENT);
	/* And comes back. */
	must(vb_txn_delete(w.a, w.t, 1));
	must(vb_txn_insert(w.a, w.t, 1, &two));
	assert_int_equal(seen(&w, 1), 2);
	assert_int_equal(vb_txn_insert(w.a, w.t, 1, &one), -EEXIST);
	/* After it was read, and changed. */
	assert_int_equal(seen(&w, 2), FIRST + 2);
	must(vb_txn_delete(w.a, w.t, 2));
	changed(&w, 3)->value = 5;
	must(vb_txn_delete(w.a, w.t, 3));
	must(vb_txn_commit(w.a));

	assert_none(w.b, w.t, 0);
	assert_int_equal(value_of(w.b, w.t, 1), 2);
	assert_none(w.b, w.t, 2);
	assert_none(w.b, w.t, 3);
	/* What another transaction has deleted can be inserted. */
	alone(w.a, vb_txn_insert(w.a, w.t, 0, &one));
	assert_int_equal(value_of(w.b, w.t, 0), 1);
	close_world(&w);
}

static void inserts(void **state)
{
	const struct record *r;
	struct world w;

	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin(w.a));
	must(vb_txn_insert(w.a, w.t, NONE, &one));
	assert_int_equal(seen(&w, NONE), 1);
	assert_int_equal(vb_txn_insert(w.a, w.t, NONE, &two), -EEXIST);
	changed(&w, NONE)->other = 4;
	/* Of a key that was looked for, and back again. */
	assert_int_equal(vb_txn_get(w.a, w.t, NONE + 1, (const void **)&r), -ENOENT);
	must(vb_txn_insert(w.a, w.t, NONE + 1, &two));
	must(vb_txn_insert(w.a, w.t, NONE + 2, &one));
	must(vb_txn_delete(w.a, w.t, NONE + 2));
	assert_int_equal(vb_txn_get(w.a, w.t, NONE + 2, (const void **)&r), -ENOENT);
	/* There is one: the transaction goes on, with the record that there is. */
	assert_int_equal(vb_txn_insert(w.a, w.t, 4, &one), -EEXIST);
	assert_int_equal(seen(&w, 4), FIRST + 4);
	assert_int_equal(vb_txn_insert(w.a, w.t, 5, &one), -EEXIST);
	changed(&w, 5)->value++;
	must(vb_txn_commit(w.a));

	assert_int_equal(value_of(w.b, w.t, NONE), 1);
	assert_int_equal(value_of(w.b, w.t, NONE + 1), 2);
	assert_none(w.b, w.t, NONE + 2);
	assert_int_equal(value_of(w.b, w.t, 4), FIRST + 4);
	assert_int_equal(value_of(w.b, w.t, 5), FIRST + 5 + 1);
	close_world(&w);
}

/* The lanes' memory holds other records by then, which must not become this one's. */
static void refused_insert(void **state)
{
	struct world w;

	open_usual(&w, state, LONG_NS);
	for (uint64_t key = 8; key < 12; key++)
		assert_int_equal(value_of(w.a, w.t, key), FIRST + key);
	for (uint64_t key = 2; key < 4; key++) {
		must(vb_txn_begin(w.a));
		assert_int_equal(vb_txn_insert(w.a, w.t, key, &one), -EEXIST);
		assert_int_equal(vb_txn_insert(w.a, w.t, key, &two), -EEXIST);
		must(vb_txn_commit(w.a));
		assert_int_equal(value_of(w.b, w.t, key), FIRST + key);
	}
	/* Also when it is declared to be written afterwards, and then is not. */
	must(vb_txn_begin(w.a));
	assert_int_equal(vb_txn_insert(w.a, w.t, 6, &one), -EEXIST);
	must(vb_txn_declare(w.a, &(struct vb_txn_key){w.t, 6, true}, 1));
	must(vb_txn_commit(w.a));
	assert_int_equal(value_of(w.b, w.t, 6), FIRST + 6);
	/* What was inserted before by the same transaction is committed. */
	must(vb_txn_begin(w.a));
	must(vb_txn_insert(w.a, w.t, NONE, &one));
	assert_int_equal(vb_txn_insert(w.a, w.t, NONE, &two), -EEXIST);
	must(vb_txn_delete(w.a, w.t, 5));
	assert_int_equal(vb_txn_write(w.a, w.t, 5, &two), -ENOENT);
	must(vb_txn_commit(w.a));
	assert_int_equal(value_of(w.b, w.t, NONE), 1);
	assert_none(w.b, w.t, 5);
	close_world(&w);
}

static uint64_t version_of(const struct world *w, uint64_t key)
{
	const struct vb_tuple_layout *l = &w->t->layout;
	vb_addr at = vb_table_find(w->t, vb_table_node(w->t, key), key);
	const void *tuple;

	assert_true(at != 0);
	tuple = vb_local(w->f, at, l->bytes);
	return vb_slot_version(l, tuple, vb_tuple_newest(l, tuple));
}

/* Those excepted that have locked it by then, and would have to leave behind that they have read it. */
static void refused_calls_write_nothing(void **state)
{
	const struct kind *k = *state;
	struct record *r;
	uint64_t was[4];
	struct world w;

	open_usual(&w, state, LONG_NS);
	for (uint64_t i = 0; i < 4; i++)
		assert_none(w.b, w.t, NONE + i);
	for (uint64_t i = 0; i < 4; i++)
		was[i] = version_of(&w, i < 3 ? NONE + i : 3);
	must(vb_txn_begin(w.a));
	assert_int_equal(vb_txn_write(w.a, w.t, NONE, &one), -ENOENT);
	assert_int_equal(vb_txn_update(w.a, w.t, NONE + 1, (void **)&r), -ENOENT);
	assert_int_equal(vb_txn_delete(w.a, w.t, NONE + 2), -ENOENT);
	assert_int_equal(vb_txn_insert(w.a, w.t, 3, &one), -EEXIST);
	must(vb_txn_commit(w.a));
	for (uint64_t i = 0; i < 4; i++)
		if (!locks_writes_early(k))
			assert_int_equal(version_of(&w, i < 3 ? NONE + i : 3), was[i]);
	assert_int_equal(value_of(w.b, w.t, 3), FIRST + 3);
	/* A refused call may be followed by one that stands. */
	must(vb_txn_begin(w.a));
	assert_int_equal(vb_txn_write(w.a, w.t, NONE, &one), -ENOENT);
	must(vb_txn_insert(w.a, w.t, NONE, &two));
	assert_int_equal(vb_txn_insert(w.a, w.t, 3, &one), -EEXIST);
	must(vb_txn_write(w.a, w.t, 3, &two));
	assert_int_equal(vb_txn_insert(w.a, w.t, 4, &one), -EEXIST);
	must(vb_txn_delete(w.a, w.t, 4));
	must(vb_txn_commit(w.a));
	assert_int_equal(value_of(w.b, w.t, NONE), 2);
	assert_int_equal(value_of(w.b, w.t, 3), 2);
	assert_none(w.b, w.t, 4);
	close_world(&w);
}

/* All of it or nothing: the tables are looked at before the first key is. */
static void refused_declare(void **state)
{
	unsigned char before[sizeof(struct vb_db_header)];
	struct vb_db_params p = usual_db(*state, LONG_NS);
	struct vb_db *other;
	struct vb_table *stranger;
	struct world w;

	open_usual(&w, state, LONG_NS);
	p.name = "other";
	must(vb_db_open(w.f, &p, &other));
	must(vb_table_open(other, &usual_table, &stranger));
	memcpy(before, vb_local(w.f, w.db->region[0], sizeof(before)), sizeof(before));
	for (unsigned write = 0; write < 2; write++) {
		const struct vb_txn_key keys[] = {{w.t, 2, write != 0}, {stranger, 2, true}};

		must(vb_txn_begin(w.a));
		refused(vb_txn_declare(w.a, keys, 2), -EINVAL);
		/* Nothing of it is held or remembered. */
		alone(w.b, vb_txn_write(w.b, w.t, 2, &one));
		changed(&w, 0)->value = 10 + write;
		must(vb_txn_commit(w.a));
		assert_int_equal(value_of(w.b, w.t, 0), 10 + write);
		assert_int_equal(value_of(w.b, w.t, 2), 1);
	}
	assert_memory_equal(before, vb_local(w.f, w.db->region[0], sizeof(before)), sizeof(before));
	vb_db_close(other);
	close_world(&w);
}

static void no_such_record(void **state)
{
	const struct record *r;
	struct record *u;
	struct world w;

	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin(w.a));
	assert_int_equal(vb_txn_get(w.a, w.t, NONE, (const void **)&r), -ENOENT);
	assert_int_equal(vb_txn_update(w.a, w.t, NONE, (void **)&u), -ENOENT);
	assert_int_equal(vb_txn_update(w.a, w.t, NONE + 1, (void **)&u), -ENOENT);
	assert_int_equal(vb_txn_write(w.a, w.t, NONE + 2, &one), -ENOENT);
	assert_int_equal(vb_txn_delete(w.a, w.t, NONE + 3), -ENOENT);
	/* It goes on. */
	changed(&w, 0)->value = 3;
	must(vb_txn_commit(w.a));
	assert_int_equal(value_of(w.b, w.t, 0), 3);
	for (uint64_t key = NONE; key < NONE + 4; key++)
		assert_none(w.b, w.t, key);
	/* Too late for a load; an insert makes it one. */
	refused(vb_table_load(w.t, NONE, &one), -EEXIST);
	assert_none(w.b, w.t, NONE);
	alone(w.a, vb_txn_insert(w.a, w.t, NONE, &one));
	assert_int_equal(value_of(w.b, w.t, NONE), 1);
	close_world(&w);
}

/* ---- declared ---- */

static void declares(void **state)
{
	const struct record *r;
	struct world w;

	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin(w.a));
	must(vb_txn_declare(w.a,
			    (struct vb_txn_key[]){
				    {w.t, 0, false},
				    {w.t, 1, true},
				    {w.t, 0, false}, /* twice */
				    {w.t, 2, false},
				    {w.t, 2, true}, /* both */
				    {w.t, 3, true},
				    {w.t, NONE, false},
				    {w.t, NONE + 1, true},
				    {w.t, NONE + 2, true},
			    },
			    9));
	assert_int_equal(seen(&w, 0), FIRST);
	changed(&w, 1)->value = 1;
	assert_int_equal(seen(&w, 2), FIRST + 2);
	must(vb_txn_write(w.a, w.t, 2, &two));
	assert_int_equal(vb_txn_get(w.a, w.t, NONE, (const void **)&r), -ENOENT);
	must(vb_txn_insert(w.a, w.t, NONE + 1, &one));
	/* Not declared; and declared after it was read, to be written. */
	changed(&w, 4)->value = 4;
	assert_int_equal(seen(&w, 5), FIRST + 5);
	must(vb_txn_declare(w.a, &(struct vb_txn_key){w.t, 5, true}, 1));
	changed(&w, 5)->value = 5;
	must(vb_txn_declare(w.a, NULL, 0));
	must(vb_txn_commit(w.a));

	assert_int_equal(value_of(w.b, w.t, 0), FIRST);
	assert_int_equal(value_of(w.b, w.t, 1), 1);
	assert_int_equal(value_of(w.b, w.t, 2), 2);
	assert_int_equal(value_of(w.b, w.t, 4), 4);
	assert_int_equal(value_of(w.b, w.t, 5), 5);
	assert_int_equal(value_of(w.b, w.t, NONE + 1), 1);
	/* Declared to be written, and not used. */
	assert_int_equal(value_of(w.b, w.t, 3), FIRST + 3);
	assert_none(w.b, w.t, NONE + 2);
	close_world(&w);
}

/* ---- how a transaction ends ---- */

static void expect_nothing_under_way(struct world *w)
{
	const struct record *r;
	struct record *u, copy;

	refused(vb_txn_get(w->a, w->t, 0, (const void **)&r), -EINVAL);
	refused(vb_txn_update(w->a, w->t, 0, (void **)&u), -EINVAL);
	refused(vb_txn_read(w->a, w->t, 0, &copy), -EINVAL);
	refused(vb_txn_write(w->a, w->t, 0, &one), -EINVAL);
	refused(vb_txn_insert(w->a, w->t, NONE, &one), -EINVAL);
	refused(vb_txn_delete(w->a, w->t, 0), -EINVAL);
	refused(vb_txn_declare(w->a, &(struct vb_txn_key){w->t, 0, true}, 1), -EINVAL);
	refused(vb_txn_declare(w->a, NULL, 0), -EINVAL);
	refused(vb_txn_commit(w->a), -EINVAL);
	vb_txn_abort(w->a);
}

static void begin_and_end(void **state)
{
	struct world w;

	open_usual(&w, state, LONG_NS);
	expect_nothing_under_way(&w);
	must(vb_txn_begin(w.a));
	refused(vb_txn_begin(w.a), -EBUSY);
	/* That did no harm. */
	changed(&w, 0)->value = 7;
	must(vb_txn_commit(w.a));
	expect_nothing_under_way(&w);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_COMMITTED);

	must(vb_txn_begin(w.a));
	vb_txn_abort(w.a);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_USER);
	assert_int_equal(vb_txn_error(w.a), 0);
	expect_nothing_under_way(&w);
	/* Nothing was read and nothing written. */
	must(vb_txn_begin(w.a));
	must(vb_txn_commit(w.a));
	assert_int_equal(value_of(w.b, w.t, 0), 7);
	assert_none(w.b, w.t, NONE);
	close_world(&w);
}

static void user_abort_leaves_nothing(void **state)
{
	struct world w;

	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin(w.a));
	assert_int_equal(seen(&w, 0), FIRST);
	changed(&w, 1)->value = 7;
	must(vb_txn_write(w.a, w.t, 2, &one));
	must(vb_txn_insert(w.a, w.t, NONE, &one));
	must(vb_txn_delete(w.a, w.t, 3));
	must(vb_txn_declare(w.a, &(struct vb_txn_key){w.t, 4, true}, 1));
	vb_txn_abort(w.a);
	/* No lock either: no lease is short enough to help. */
	for (uint64_t key = 0; key < 5; key++) {
		assert_int_equal(value_of(w.b, w.t, key), FIRST + key);
		alone(w.b, vb_txn_write(w.b, w.t, key, &two));
	}
	assert_none(w.b, w.t, NONE);
	alone(w.b, vb_txn_insert(w.b, w.t, NONE, &two));
	close_world(&w);
}

/* A coordinator that is closed takes its transaction with it. */
static void closing_aborts(void **state)
{
	struct world w;

	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin(w.a));
	changed(&w, 1)->value = 7;
	vb_coordinator_close(w.a);
	w.a = NULL;
	assert_int_equal(value_of(w.b, w.t, 1), FIRST + 1);
	alone(w.b, vb_txn_write(w.b, w.t, 1, &two));
	close_world(&w);
}

static void conflict_is_told_until_begin(void **state)
{
	struct record copy, *u;
	struct world w;

	open_usual(&w, state, SHORT_NS);
	/* One of the two must go: both have read both, and both write one. */
	for (unsigned i = 0; i < 2; i++) {
		struct vb_coordinator *me = i ? w.b : w.a;

		must(vb_txn_begin(me));
	}
	for (unsigned i = 0; i < 4; i++)
		(void)vb_txn_read(i % 2 ? w.b : w.a, w.t, i / 2, &copy);
	(void)vb_txn_write(w.a, w.t, 0, &one);
	(void)vb_txn_write(w.b, w.t, 1, &two);
	if (vb_txn_commit(w.a) == 0)
		assert_int_equal(vb_txn_commit(w.b), -EAGAIN);
	else
		assert_int_equal(vb_txn_commit(w.a), -EAGAIN);
	{
		struct vb_coordinator *over = vb_txn_cause(w.a) == VB_TXN_COMMITTED ? w.b : w.a;
		const enum vb_txn_cause why = vb_txn_cause(over);

		assert_true(why != VB_TXN_COMMITTED && why != VB_TXN_USER);
		assert_int_equal(vb_txn_read(over, w.t, 0, &copy), -EAGAIN);
		assert_int_equal(vb_txn_update(over, w.t, 0, (void **)&u), -EAGAIN);
		assert_int_equal(vb_txn_insert(over, w.t, NONE, &one), -EAGAIN);
		assert_int_equal(vb_txn_write(over, w.t, 0, &one), -EAGAIN);
		assert_int_equal(vb_txn_delete(over, w.t, 0), -EAGAIN);
		assert_int_equal(vb_txn_declare(over, &(struct vb_txn_key){w.t, 2, true}, 1),
				 -EAGAIN);
		assert_int_equal(vb_txn_declare(over, NULL, 0), -EAGAIN);
		assert_int_equal(vb_txn_commit(over), -EAGAIN);
		/* Aborting what is over changes nothing about why. */
		vb_txn_abort(over);
		assert_int_equal(vb_txn_cause(over), why);
		vb_txn_abort(over == w.a ? w.b : w.a);
		alone(over, vb_txn_write(over, w.t, 2, &two));
	}
	close_world(&w);
}

/* ---- too much ---- */

static void expect_too_big(struct vb_coordinator *me)
{
	assert_int_equal(vb_txn_cause(me), VB_TXN_MISUSE);
	assert_int_equal(vb_txn_error(me), -E2BIG);
	assert_int_equal(vb_txn_commit(me), -E2BIG);
}

static void too_many_records(void **state)
{
	const struct record *r;
	struct vb_txn_key keys[ITEMS_MAX + 1];
	struct world w;

	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin(w.a));
	for (uint64_t key = 0; key < ITEMS_MAX; key++)
		changed(&w, key)->value = 0;
	/* One that is known already costs nothing. */
	assert_int_equal(seen(&w, 3), 0);
	refused(vb_txn_get(w.a, w.t, NONE, (const void **)&r), -E2BIG);
	expect_too_big(w.a);
	for (uint64_t key = 0; key < ITEMS_MAX; key++)
		alone(w.b, vb_txn_write(w.b, w.t, key, &two));

	for (uint64_t key = 0; key <= ITEMS_MAX; key++)
		keys[key] = (struct vb_txn_key){w.t, key, true};
	must(vb_txn_begin(w.a));
	refused(vb_txn_declare(w.a, keys, ITEMS_MAX + 1), -E2BIG);
	expect_too_big(w.a);
	/* The next one works, and so does as much as is allowed. */
	alone(w.a, vb_txn_declare(w.a, keys, ITEMS_MAX));
	assert_int_equal(value_of(w.b, w.t, 3), 2);
	close_world(&w);
}

static void too_many_bytes(void **state)
{
	struct vb_db_params p = usual_db(*state, LONG_NS);
	struct record *r;
	struct world w;

	p.bytes_max = 3 * sizeof(struct record);
	open_world(&w, fabric_of(state), &p);
	must(vb_txn_begin(w.a));
	for (uint64_t key = 0; key < 3; key++)
		changed(&w, key)->value = 0;
	refused(vb_txn_update(w.a, w.t, 3, (void **)&r), -E2BIG);
	expect_too_big(w.a);
	for (uint64_t key = 0; key < 3; key++)
		assert_int_equal(value_of(w.a, w.t, key), FIRST + key);
	close_world(&w);
}

/* Keys that were looked for take places, too. */
static void table_is_full(void **state)
{
	struct world w;
	uint64_t key = NONE;
	int err;

	open_usual(&w, state, LONG_NS);
	do {
		char text[512];

		must(vb_txn_begin(w.a));
		changed(&w, 1)->value = 7;
		vb_log_capture_begin(text, sizeof(text));
		err = vb_txn_insert(w.a, w.t, key, &one);
		vb_log_capture_end();
		if (err == 0)
			must(vb_txn_commit(w.a));
		key += NODES; /* all on one node */
	} while (err == 0 && key < 100000);
	assert_int_equal(err, -ENOSPC);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_MISUSE);
	assert_int_equal(vb_txn_error(w.a), -ENOSPC);
	assert_true((key - NONE) / NODES >= RECORDS / NODES);
	/* It was aborted: nothing is held. */
	alone(w.b, vb_txn_write(w.b, w.t, 1, &two));
	close_world(&w);
}

/* ---- again and again ---- */

struct trial {
	struct world *w;
	unsigned calls, conflicts;
	int end;
};

static int try_body(struct vb_coordinator *me, void *arg)
{
	struct trial *t = arg;
	struct record *r;
	int err = vb_txn_update(me, t->w->t, 0, (void **)&r);

	t->calls++;
	if (err)
		return err;
	r->value = t->calls;
	return t->calls <= t->conflicts ? -EAGAIN : t->end;
}

static void runs_again(void **state)
{
	struct trial t;
	struct world w;

	open_usual(&w, state, LONG_NS);
	/* Twice in vain. */
	t = (struct trial){.w = &w, .conflicts = 2};
	must(vb_txn_run(w.a, try_body, &t, 0));
	assert_int_equal(t.calls, 3);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_COMMITTED);
	assert_int_equal(value_of(w.b, w.t, 0), 3);
	/* Not often enough. */
	t = (struct trial){.w = &w, .conflicts = 9};
	assert_int_equal(vb_txn_run(w.a, try_body, &t, 4), -EAGAIN);
	assert_int_equal(t.calls, 4);
	/* The last try counts. */
	t = (struct trial){.w = &w, .conflicts = 3};
	must(vb_txn_run(w.a, try_body, &t, 4));
	assert_int_equal(t.calls, 4);
	/* The body's own answers, of either sign, end it at once, and nothing of it stays. */
	for (int end = -ENOENT; end <= 5; end += 5 + ENOENT) {
		t = (struct trial){.w = &w, .end = end};
		assert_int_equal(vb_txn_run(w.a, try_body, &t, 0), end);
		assert_int_equal(t.calls, 1);
		assert_int_equal(vb_txn_cause(w.a), VB_TXN_USER);
		assert_int_equal(value_of(w.b, w.t, 0), 4);
	}
	must(vb_txn_begin(w.a));
	t = (struct trial){.w = &w};
	refused(vb_txn_run(w.a, try_body, &t, 0), -EBUSY);
	assert_int_equal(t.calls, 0);
	close_world(&w);
}

static int too_big_body(struct vb_coordinator *me, void *arg)
{
	struct trial *t = arg;
	struct record r;

	t->calls++;
	for (uint64_t key = 0; key <= ITEMS_MAX; key++)
		if (vb_txn_read(me, t->w->t, key, &r) == -E2BIG)
			return -E2BIG;
	return 0;
}

/* Looks at its last answer only. */
static int careless_body(struct vb_coordinator *me, void *arg)
{
	struct trial *t = arg;
	struct record r;
	int err = 0;

	t->calls++;
	for (uint64_t key = 0; key <= ITEMS_MAX + 1; key++)
		err = vb_txn_read(me, t->w->t, key, &r);
	return err;
}

static void runs_until_an_error(void **state)
{
	struct trial t;
	struct world w;

	open_usual(&w, state, LONG_NS);
	t = (struct trial){.w = &w};
	refused(vb_txn_run(w.a, too_big_body, &t, 0), -E2BIG);
	assert_int_equal(t.calls, 1);
	t = (struct trial){.w = &w};
	refused(vb_txn_run(w.a, careless_body, &t, 3), -E2BIG);
	assert_int_equal(t.calls, 1);
	close_world(&w);
}

int main(int argc, char **argv)
{
	static const struct case_for_all cases[] = {
		{"reads its own writes", reads_its_own_writes},
		{"reads, then updates", reads_then_updates},
		{"pointers stay", pointers_stay},
		{"delete", deletes},
		{"insert", inserts},
		{"a refused insert", refused_insert},
		{"refused calls write nothing", refused_calls_write_nothing},
		{"a refused declare", refused_declare},
		{"no such record", no_such_record},
		{"declare", declares},
		{"begin and end", begin_and_end},
		{"user abort", user_abort_leaves_nothing},
		{"close", closing_aborts},
		{"a conflict is told until the next begin", conflict_is_told_until_begin},
		{"too many records", too_many_records},
		{"too many bytes", too_many_bytes},
		{"the table is full", table_is_full},
		{"run", runs_again},
		{"run until an error", runs_until_an_error},
	};
	static const char *const fabrics[] = {"shm", NULL};
	static struct CMUnitTest tests[TESTS_MAX];
	size_t n = tests_for_all(argc, argv, fabrics, cases, VB_ARRAY_SIZE(cases), tests);

	return _cmocka_run_group_tests("transactions: the calls", tests, n, NULL, NULL);
}
