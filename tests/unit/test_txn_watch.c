/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a history is told: the version that was in the image when it came, whatever the protocol
 * makes of its own notes later; and a version of its own for each try, also of a transaction that
 * keeps its name.
 */
#include "txn/db.h"
#include "txn_api.h"

#define TRIES 4u

struct told {
	unsigned n;
	uint64_t ts[TRIES], made[TRIES], fetched[TRIES];
	uint64_t prepared;
};

static void on_prepared(void *ctx, const struct vb_txn *t)
{
	struct told *told = ctx;

	told->prepared = t->item[0].fetched;
}

static void on_ended(void *ctx, const struct vb_txn *t, bool committed)
{
	struct told *told = ctx;

	(void)committed;
	assert_true(told->n < TRIES && t->n == 1);
	told->ts[told->n] = t->ts;
	told->made[told->n] = t->item[0].next != 0 ? t->item[0].next : t->version;
	told->fetched[told->n++] = t->item[0].fetched;
}

static void watch(struct world *w, struct vb_txn_watch *watch, struct told *told)
{
	*watch = (struct vb_txn_watch){.ctx = told, .prepared = on_prepared, .ended = on_ended};
	w->db->watch = watch;
}

/* Three tries that die, and one that commits. */
static void each_try_its_version(void **state)
{
	const struct kind *k = *state;
	const struct record one = {.value = 1};
	struct told told = {0};
	struct vb_txn_watch how;
	struct world w;

	open_usual(&w, state, LONG_NS);
	watch(&w, &how, &told);
	for (unsigned i = 1; i < TRIES; i++) {
		must(vb_txn_begin(w.a));
		must(vb_txn_write(w.a, w.t, 1, &one));
		vb_txn_doom(&w.a->txn, VB_TXN_DIED, 0);
		vb_txn_clean(&w.a->txn);
	}
	must(vb_txn_begin(w.a));
	must(vb_txn_write(w.a, w.t, 1, &one));
	must(vb_txn_commit(w.a));
	assert_int_equal(told.n, TRIES);
	for (unsigned i = 1; i < TRIES; i++) {
		assert_int_equal(told.ts[i] == told.ts[0], (k->ops->caps & VB_CC_AGE) != 0);
		for (unsigned j = 0; j < i; j++)
			assert_true(told.made[i] != told.made[j]);
	}
	w.db->watch = NULL;
	close_world(&w);
}

/* Each read is told with the version that stands in the store. */
static void what_was_fetched(void **state)
{
	struct vb_txn_watch how;
	struct told told = {0};
	const void *tuple;
	uint64_t stands;
	struct world w;

	open_usual(&w, state, LONG_NS);
	alone(w.b, vb_txn_write(w.b, w.t, 1, &(struct record){.value = 2}));
	tuple = vb_local(w.f, vb_table_find(w.t, vb_table_node(w.t, 1), 1), w.t->layout.bytes);
	stands = vb_slot_version(&w.t->layout, tuple, vb_tuple_newest(&w.t->layout, tuple));
	watch(&w, &how, &told);
	assert_int_equal(value_of(w.a, w.t, 1), 2);
	assert_int_equal(told.prepared, stands);
	assert_int_equal(told.fetched[told.n - 1], stands);
	w.db->watch = NULL;
	close_world(&w);
}

/* Silo to the letter takes the lock at any version and notes that one as read: the history says what
 * it did read. */
static void notes_are_not_believed(void **state)
{
	const struct vb_db_params p = {.cc = "silo-as-published", .record_bytes_max = 64};
	struct vb_txn_watch how;
	struct told told = {0};
	struct record *r;
	struct world w;

	(void)state;
	open_world(&w, "shm", &p);
	must(vb_txn_begin(w.a));
	must(vb_txn_update(w.a, w.t, 1, (void **)&r));
	alone(w.b, vb_txn_write(w.b, w.t, 1, &(struct record){.value = 2}));
	r->value++;
	watch(&w, &how, &told);
	must(vb_txn_commit(w.a));
	assert_int_equal(told.prepared, VB_VERSION_LOADED);
	assert_true(w.a->txn.item[0].version != told.prepared);
	w.db->watch = NULL;
	close_world(&w);
}

int main(int argc, char **argv)
{
	static const struct case_for_all cases[] = {
		{"each try its version", each_try_its_version},
		{"what was fetched", what_was_fetched},
	};
	static const char *const fabrics[] = {"shm", NULL};
	static const struct CMUnitTest own = cmocka_unit_test(notes_are_not_believed);
	static struct CMUnitTest tests[TESTS_MAX];
	size_t n = tests_for_all(argc, argv, fabrics, cases, VB_ARRAY_SIZE(cases), tests);

	tests[n++] = own;
	return _cmocka_run_group_tests("what a history is told", tests, n, NULL, NULL);
}
