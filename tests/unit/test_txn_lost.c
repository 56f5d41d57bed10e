/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fabric that does what stands behind a verb which it has refused: the commit's WRITE does not happen, and the
 * CAS behind it lets the record go.  Whoever finishes the commit from its log finds the record free and unwritten,
 * and says so; of one that is free because all is well nothing is said.
 */
#include "txn/db.h"
#include "txn_api.h"

#define KEY 1 /* of node 1: what is near goes through no fabric */

static struct {
	const struct vb_fabric_ops *real;
	struct vb_fabric_ops ops;
	unsigned doorbells; /* of those that are done so */
	char said[2][1024]; /* by the commit, and behind it */
} broken;

/* Does it write a record and let it go? */
static bool is_commit(const struct vb_batch *batch)
{
	unsigned writes = 0;

	for (unsigned i = 0; i < batch->n; i++)
		writes += batch->verbs[i].op == VB_OP_WRITE;
	return writes > 0 && writes < batch->n;
}

static int post_but_for_writes(struct vb_ep *ep, struct vb_batch *batch)
{
	if (!is_commit(batch))
		return broken.real->post(ep, batch);
	broken.doorbells++;
	for (unsigned i = 0; i < batch->n; i++) {
		struct vb_batch one = {.verbs = &batch->verbs[i], .n = 1};

		if (batch->verbs[i].op == VB_OP_WRITE) {
			batch->verbs[i].status = -VB_ETOOLATE;
			continue;
		}
		assert_true(broken.real->post(ep, &one) >= 0);
		must(vb_wait(ep, &one));
	}
	batch->pending = 0;
	return 0;
}

/* By RPC it is the record's server that writes, and none of its verbs goes through a fabric. */
static void open_lossy(struct world *w, void **state, uint64_t lease_ns)
{
	const struct kind *k = *state;

	if (k->hybrid != NULL)
		skip();
	open_usual(w, state, lease_ns);
}

/* The simulator has its own ops back before an endpoint is closed. */
static void break_fabric(struct world *w)
{
	broken.real = w->a->ep->ops;
	broken.ops = *broken.real;
	broken.ops.post = post_but_for_writes;
	broken.doorbells = 0;
	w->a->ep->ops = &broken.ops;
}

/* ---- a commit whose WRITE is lost ---- */

/* Where what is written is in place before the commit point it is not looked for (txn/recover.c). */
static bool is_looked_for(void **state)
{
	const struct kind *k = *state;

	return !vb_cc_installs(k->ops);
}

static void lose(struct world *w)
{
	assert_int_equal(vb_table_node(w->t, KEY), 1);
	must(vb_txn_begin(w->a));
	must(vb_txn_write(w->a, w->t, KEY, &(struct record){.value = 7}));
	break_fabric(w);
	vb_log_capture_begin(broken.said[0], sizeof(broken.said[0]));
	assert_int_equal(vb_txn_commit(w->a), 0);
	vb_log_capture_end();
	w->a->ep->ops = broken.real;
	assert_int_equal(broken.doorbells, 1);
}

/* The record is what it was, for all that come; or nobody reads it, where the free lock word is its version, and it
 * does not look whole. */
static void stays(struct world *w)
{
	static const struct vb_txn_params hurried = {.timeout_ns = 200000};
	const struct vb_cc_ops *cc = w->db->cc;
	struct record r;

	if (cc->unlocked(VB_VERSION_LOADED, 1) == cc->unlocked(2 * VB_VERSION_LOADED, 1)) {
		assert_int_equal(value_of(w->b, w->t, KEY), FIRST + KEY);
		must(vb_txn_begin(w->a));
		must(vb_txn_write(w->a, w->t, KEY, &(struct record){.value = 8}));
		must(vb_txn_commit(w->a));
		assert_int_equal(value_of(w->b, w->t, KEY), 8);
		return;
	}
	must(vb_txn_begin_with(w->b, &hurried));
	assert_int_equal(vb_txn_read(w->b, w->t, KEY, &r), -ETIMEDOUT);
}

/* Once for each that is lost, and not again. */
static void tells(struct world *w, unsigned wanted)
{
	static const char what[] = "of table 'account' at node 1";
	unsigned told = 0;

	vb_log_capture_begin(broken.said[1], sizeof(broken.said[1]));
	for (unsigned i = 0; i < 2 * VB_PLACES_TXN; i++) {
		int err = vb_txn_begin(w->a);

		if (err == 0)
			vb_txn_abort(w->a);
		else
			assert_int_equal(err, -VB_ELOST);
		told += err != 0;
	}
	vb_log_capture_end();
	assert_int_equal(told, wanted);
	assert_int_equal(strstr(broken.said[0], what) != NULL ||
				 strstr(broken.said[1], what) != NULL,
			 wanted > 0);
	assert_int_equal(w->a->lost_writes, wanted);
}

static void is_told(void **state)
{
	struct world w;

	if (!is_looked_for(state))
		skip();
	open_lossy(&w, state, SHORT_NS);
	lose(&w);
	tells(&w, 1);
	stays(&w);
	close_world(&w);
}

/* By who gives the places of the dead up. */
static void is_told_of_the_dead(void **state)
{
	struct world w;
	uint64_t freed;

	if (!is_looked_for(state))
		skip();
	open_lossy(&w, state, SHORT_NS);
	lose(&w);
	vb_coordinator_bury(w.a);
	w.a = NULL;
	refused(vb_db_recover(w.b, 0, &freed), -VB_ELOST);
	must(vb_db_recover(w.b, 0, &freed));
	assert_int_equal(w.b->lost_writes, 1);
	/* The place is another's to have. */
	must(vb_coordinator_open(w.db, 0, &w.a));
	assert_int_equal(w.a->number, 0);
	tells(&w, 0);
	close_world(&w);
}

/* Who writes it before it is looked at hides it, and so does who holds it: as if he were to roll it forward. */
static void cannot_be_told(void **state)
{
	struct world w;
	uint64_t *word;

	if (!is_looked_for(state))
		skip();
	for (unsigned i = 0; i < 2; i++) {
		open_lossy(&w, state, LONG_NS);
		lose(&w);
		word = vb_local(w.f, vb_table_find(w.t, 1, KEY), w.t->layout.bytes);
		word += (i == 0 ? w.t->layout.version_at : w.t->layout.lock_at) / 8;
		*word = i == 0 ? 8 * VB_VERSION_LOADED
			       : w.db->cc->locked(w.b->txn.ts | vb_ts_make(1, 1), *word);
		tells(&w, 0);
		*word = 0;
		close_world(&w);
	}
}

int main(int argc, char **argv)
{
	static const struct case_for_all cases[] = {
		{"is told", is_told},
		{"is told of the dead", is_told_of_the_dead},
		{"cannot be told", cannot_be_told},
	};
	static const char *const fabrics[] = {"sim", NULL};
	static struct CMUnitTest tests[TESTS_MAX];
	size_t n = tests_for_all(argc, argv, fabrics, cases, VB_ARRAY_SIZE(cases), tests);

	return _cmocka_run_group_tests("transactions: what is lost", tests, n, NULL, NULL);
}
