/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a protocol's own (txn/protocol.h): zeros at first, kept for as long as what it belongs to, there in
 * every stage, here and at servers, and of nobody else.  A protocol that looks at it wherever it can; and one that
 * asks for none has none.
 */
#include "txn_api.h"

#include "cc/protocols.h"
#include "cc/two_phase.h"

/* Of a record: what its stages have noted. */
struct own {
	uint64_t key, runs;
};

struct of_txn {
	uint64_t prepared, unused[5];
};

struct of_coordinator {
	uint64_t prepared;
	char unused[100];
};

static struct {
	bool drops; /* the next commit stage does nothing, and says so */
	unsigned dropped, recovered, locked, committed, released;
} seen;

static struct own *own_of(const struct vb_item *it)
{
	return vb_item_own(it, sizeof(struct own));
}

static void look(struct vb_item *it)
{
	struct own *own = own_of(it);

	if (own->runs == 0)
		assert_int_equal(own->key, 0);
	else
		assert_int_equal(own->key, it->key + 1);
	own->key = it->key + 1;
	own->runs++;
}

static void lock(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		look(items[i]);
	seen.locked++;
	two_phase_lock_x(s, items, n, no_wait_judge);
}

static void commit(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		const struct own *own = own_of(items[i]);

		/* What recovers has no key, and none of what the transaction knew. */
		assert_int_equal(own->key, items[i]->key != 0 ? items[i]->key + 1 : 0);
		assert_int_equal(own->runs != 0, items[i]->key != 0);
		seen.recovered += items[i]->key == 0;
	}
	seen.committed++;
	if (!seen.drops) {
		two_phase_commit(s, items, n);
		return;
	}
	seen.drops = false;
	seen.dropped++;
	for (unsigned i = 0; i < n; i++)
		items[i]->status = VB_TXN_FABRIC;
}

static void release(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(own_of(items[i])->key, items[i]->key + 1);
	seen.released++;
	two_phase_release(s, items, n);
}

static int prepare(struct vb_txn *t)
{
	struct of_coordinator *mine = vb_txn_coordinator_own(t);
	struct of_txn *txn = vb_txn_own(t);

	assert_int_equal(txn->prepared, 0);
	txn->prepared = 1;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(txn->unused); i++) {
		assert_int_equal(txn->unused[i], 0);
		txn->unused[i] = UINT64_MAX;
	}
	mine->prepared++;
	memset(mine->unused, (int)mine->prepared, sizeof(mine->unused));
	return 0;
}

static const struct vb_stage_ops stages[] = {
	[TWO_PHASE_LOCK] = {.name = "lock",
			    .flags = VB_STAGE_FETCHES | VB_STAGE_MAKES,
			    .run = lock},
	[TWO_PHASE_COMMIT] = {.name = "commit", .flags = VB_STAGE_WRITES, .run = commit},
	[TWO_PHASE_RELEASE] = {.name = "release", .run = release},
};

static const struct vb_cc_ops with_own = {
	.name = "with-own",
	.summary = "no-wait that takes notes",
	.source = "this test",
	.caps = VB_CC_STRICT | VB_CC_READ_LOCKS | VB_CC_NEVER_WAITS,
	.item_bytes = sizeof(struct own),
	.txn_bytes = sizeof(struct of_txn),
	.coordinator_bytes = sizeof(struct of_coordinator),
	TWO_PHASE_OPS_BUT_PREPARE(stages),
	.prepare = prepare,
};

static const struct vb_cc_ops *const here[] = {&with_own, NULL};

static const struct kind kinds_here[] = {
	{&with_own, NULL, "sim"},  {&with_own, "rpc", "sim"}, {&with_own, "100", "sim"},
	{&with_own, "011", "sim"}, {&with_own, NULL, "shm"},  {&with_own, "rpc", "shm"},
};

static void open_own(struct world *w, void **state)
{
	memset(&seen, 0, sizeof(seen));
	open_usual(w, state, SHORT_NS);
}

/* From node 0: half of the keys are far.  Records of transactions before lie where these do now. */
static void kept_and_zeroed(void **state)
{
	struct record *r;
	struct world w;

	open_own(&w, state);
	for (unsigned round = 1; round < 5; round++) {
		must(vb_txn_begin(w.a));
		for (uint64_t key = 0; key < 8; key++) {
			must(vb_txn_read(w.a, w.t, key + round, &(struct record){0}));
			must(vb_txn_update(w.a, w.t, key + round, (void **)&r));
			assert_int_equal(own_of(&w.a->txn.item[key])->key, key + round + 1);
			r->value = 1000 + key;
		}
		for (uint64_t key = 0; key < 8; key++)
			assert_int_equal(w.a->txn.item[key].key, key + round);
		if (round % 2 == 0) {
			vb_txn_abort(w.a);
			continue;
		}
		must(vb_txn_commit(w.a));
		assert_int_equal(((struct of_coordinator *)w.a->own)->prepared, (round + 1) / 2);
	}
	assert_int_equal(((struct of_coordinator *)w.b->own)->prepared, 0);
	for (uint64_t key = 0; key < 8; key++)
		assert_int_equal(value_of(w.b, w.t, key + 3), 1000 + key);
	assert_true(seen.locked >= 8 && seen.committed > 0 && seen.released > 0);
	close_world(&w);
}

/* The commit stage that a recovery runs. */
static void zero_in_a_recovery(void **state)
{
	const struct kind *k = *state;
	struct world w;

	if (k->hybrid != NULL)
		return;
	open_own(&w, state);
	must(vb_txn_begin(w.a));
	must(vb_txn_write(w.a, w.t, 2, &(struct record){.value = 7}));
	seen.drops = true;
	must(vb_txn_commit(w.a));
	assert_int_equal(seen.dropped, 1);
	for (unsigned i = 0; i < VB_PLACES_TXN; i++) {
		must(vb_txn_begin(w.a));
		must(vb_txn_commit(w.a));
	}
	assert_int_equal(seen.recovered, 1);
	assert_int_equal(value_of(w.b, w.t, 2), 7);
	close_world(&w);
}

static void none_for_none(void **state)
{
	struct vb_db_params p = usual_db(*state, SHORT_NS);
	struct world w;

	p.cc = "no-wait";
	open_world(&w, fabric_of(state), &p);
	must(vb_txn_begin(w.a));
	must(vb_txn_read(w.a, w.t, 1, &(struct record){0}));
	must(vb_txn_read(w.a, w.t, 2, &(struct record){0}));
	assert_null(vb_txn_own(&w.a->txn));
	assert_null(vb_txn_coordinator_own(&w.a->txn));
	assert_ptr_equal(w.a->txn.item[0].image, w.a->lane[w.a->current].arena);
	assert_ptr_equal(w.a->txn.item[1].image,
			 w.a->txn.item[0].image + ((w.t->layout.bytes + 15) & ~15u));
	must(vb_txn_commit(w.a));
	close_world(&w);
}

int main(void)
{
	static const struct {
		const char *name;
		CMUnitTestFunction run;
	} cases[] = {
		{"kept and zeroed", kept_and_zeroed},
		{"zero in a recovery", zero_in_a_recovery},
		{"none for none", none_for_none},
	};
	struct CMUnitTest tests[VB_ARRAY_SIZE(cases) * VB_ARRAY_SIZE(kinds_here)];
	static char names[VB_ARRAY_SIZE(tests)][64];
	size_t n = 0;

	vb_cc_register(here);
	for (size_t k = 0; k < VB_ARRAY_SIZE(kinds_here); k++)
		for (size_t i = 0; i < VB_ARRAY_SIZE(cases); i++, n++) {
			snprintf(names[n], sizeof(names[n]), "%s %s: %s", kinds_here[k].fabric,
				 kinds_here[k].hybrid != NULL ? kinds_here[k].hybrid : "one-sided",
				 cases[i].name);
			tests[n] = (struct CMUnitTest){.name = names[n],
						       .test_func = cases[i].run,
						       .initial_state = (void *)&kinds_here[k]};
		}
	return cmocka_run_group_tests_name("txn_own", tests, NULL, NULL);
}
