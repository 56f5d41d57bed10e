/* SPDX-License-Identifier: Apache-2.0 */
/*
 * READs of one doorbell have no order between them, and one that is longer than the fabric reads whole is in
 * pieces that have none either.  Here they take effect last piece first, behind the doorbell's other verbs; and
 * another transaction, the older of the two or the younger, locks before any verb or piece and commits before
 * any later one.  Who reads two records sees both before the other or both behind it; of who changes them
 * nothing is lost.
 *
 * Who locks only in its commit is stopped there, before each of its doorbells: the first piece comes then, and the
 * rest of the commit before a later one.
 */
#include "txn_api.h"

#define X      2
#define Y      3
#define SOON   1000000ull /* who waits for one that stands still gives up */
#define STEP   500ull     /* who waits for the other looks so often */
#define PIECES 512        /* of a transaction, those of its waits among them, at most */
/* Pieces from the other's locks to its commit, at most.  Who waits for it goes on looking. */
#define BEHIND 48

static struct {
	struct vb_fabric_ops ops;
	const struct vb_fabric_ops *real;
	struct world *w;
	uint32_t grain;          /* bytes that are read whole */
	unsigned piece;          /* how many have been */
	unsigned locks, commits; /* the other's, before these */
	bool older, busy;
	bool stands; /* between two pieces the reader stands still, and the other is in its commit */
	int err;     /* the other's; -EBUSY: it has not come to its end */
} doorbell;

/* Who reads, as a task beside the other's commit. */
static struct {
	struct vb_fabric_ops ops; /* the other's */
	unsigned at, doorbells;   /* it comes before this one of the other's, of so many */
	bool stands, goes_on, ended;
	int err;
	struct record x, y;
} reader;

static const struct vb_txn_params soon = {.timeout_ns = SOON};

/* Changes both records by one. */
static int change_both(struct vb_coordinator *me, struct vb_table *t)
{
	struct record *x, *y;
	int err = vb_txn_update(me, t, X, (void **)&x);

	if (err == 0)
		err = vb_txn_update(me, t, Y, (void **)&y);
	if (err != 0)
		return err;
	*x = (struct record){x->value + 1, x->other + 1};
	*y = (struct record){y->value + 1, y->other + 1};
	return 0;
}

static void other_locks(void)
{
	struct vb_coordinator *b = doorbell.w->b;

	if (!doorbell.older) {
		tick(b);
		must(vb_txn_begin_with(b, &soon));
	}
	doorbell.err = change_both(b, doorbell.w->t);
	if (doorbell.err == 0)
		doorbell.err = -EBUSY;
}

static void other_commits(void)
{
	if (doorbell.err == -EBUSY)
		doorbell.err = vb_txn_commit(doorbell.w->b);
}

static void stand_still(void)
{
	reader.stands = true;
	while (!reader.goes_on)
		must(vb_ep_sleep(doorbell.w->a->ep, STEP));
}

static void between(void)
{
	if (doorbell.stands) {
		if (doorbell.piece == doorbell.commits)
			stand_still();
	} else {
		if (doorbell.piece == doorbell.locks)
			other_locks();
		if (doorbell.piece == doorbell.commits)
			other_commits();
	}
	doorbell.piece++;
}

static int one_verb(struct vb_ep *ep, struct vb_verb *v, uint32_t from, uint32_t len)
{
	struct vb_verb one = *v;
	int err;

	if (v->op == VB_OP_READ) {
		one.addr += from;
		one.buf = (char *)v->buf + from;
		one.len = len;
	}
	between();
	err = vb_verb_run(ep, &one);
	v->status = one.status;
	v->old = one.old;
	return err;
}

static int last_piece_first(struct vb_ep *ep, struct vb_verb *v)
{
	uint32_t end = v->len;
	int err = 0;

	while (end > 0 && err == 0) {
		uint64_t last = (v->addr + end - 1) & ~(uint64_t)(doorbell.grain - 1);
		uint32_t from = last > v->addr ? (uint32_t)(last - v->addr) : 0;

		err = one_verb(ep, v, from, end - from);
		end = from;
	}
	return err;
}

static int post(struct vb_ep *ep, struct vb_batch *batch)
{
	int err = 0;

	if (doorbell.busy)
		return doorbell.real->post(ep, batch);
	doorbell.busy = true;
	for (unsigned i = 0; i < batch->n && err == 0; i++)
		if (batch->verbs[i].op != VB_OP_READ)
			err = one_verb(ep, &batch->verbs[i], 0, 0);
	for (unsigned i = batch->n; i > 0 && err == 0; i--)
		if (batch->verbs[i - 1].op == VB_OP_READ)
			err = last_piece_first(ep, &batch->verbs[i - 1]);
	doorbell.busy = false;
	assert_int_equal(err, 0);
	batch->pending = 0;
	return 0;
}

static void open_looks(struct world *w, const struct kind *k, const char *options)
{
	struct vb_db_params p = usual_db(k, LONG_NS);

	*w = (struct world){0};
	must(vb_fabric_open(&(struct vb_fabric_params){.fabric = "sim",
						       .options = options,
						       .nodes = NODES,
						       .node_bytes = 16 << 20,
						       .endpoints = 32},
			    &w->f));
	must(vb_db_open(w->f, &p, &w->db));
	must(vb_table_open(w->db, &usual_table, &w->t));
	load(w->t);
	start_servers(w);
	must(vb_coordinator_open(w->db, 0, &w->a));
	must(vb_coordinator_open(w->db, 1, &w->b));
	/* Equal, and found by everybody. */
	alone(w->a, vb_txn_write(w->a, w->t, X, &(struct record){0}));
	alone(w->b, vb_txn_write(w->b, w->t, Y, &(struct record){0}));
	doorbell.w = w;
	doorbell.grain = w->f->caps.flags & VB_CAP_MASKED128 ? 16 : 8;
	doorbell.real = w->a->ep->ops;
	doorbell.ops = *doorbell.real;
	doorbell.ops.post = post;
}

/* The transaction that is looked at; *x, *y: what it has seen. */
static int in_pieces(struct world *w, bool changes, bool declared, struct record *x,
		     struct record *y)
{
	const struct vb_txn_key keys[] = {{w->t, X, changes}, {w->t, Y, changes}};
	int err = declared ? vb_txn_declare(w->a, keys, 2) : 0;

	if (err == 0 && changes)
		return change_both(w->a, w->t);
	if (err == 0)
		err = vb_txn_read(w->a, w->t, X, x);
	return err != 0 ? err : vb_txn_read(w->a, w->t, Y, y);
}

/* False: the other was to come behind the last piece. */
static bool one_order(struct world *w, bool changes, bool declared, unsigned *both)
{
	struct record x = {0}, y = {0}, after;
	uint64_t before = value_of(w->a, w->t, X);
	int err;

	doorbell.piece = 0;
	doorbell.err = -EAGAIN;
	if (doorbell.older) {
		must(vb_txn_begin_with(w->b, &soon));
		tick(w->a);
	}
	must(vb_txn_begin_with(w->a, &soon));
	w->a->ep->ops = &doorbell.ops;
	err = in_pieces(w, changes, declared, &x, &y);
	if (err == 0)
		err = vb_txn_commit(w->a);
	w->a->ep->ops = doorbell.real;
	assert_true(doorbell.piece < PIECES);
	other_commits();
	vb_txn_abort(w->a);
	vb_txn_abort(w->b);
	assert_true(err == 0 || err == -EAGAIN || err == -ETIMEDOUT);
	if (err == 0 && !changes) {
		assert_int_equal(x.value, x.other);
		assert_int_equal(y.value, y.other);
		assert_int_equal(x.value, y.value);
	}
	*both += err == 0 && doorbell.err == 0;
	before += (err == 0 && changes) + (doorbell.err == 0);
	assert_int_equal(value_of(w->a, w->t, X), before);
	alone(w->a, vb_txn_read(w->a, w->t, Y, &after));
	assert_true(after.value == before && after.other == before);
	return doorbell.locks < doorbell.piece;
}

static void all_orders(void **state, const char *options, bool changes, bool declared)
{
	unsigned both = 0;
	struct world w;

	open_looks(&w, *state, options);
	for (unsigned older = 0; older < 2; older++) {
		bool more = true;

		doorbell.older = older;
		for (doorbell.locks = 0; more; doorbell.locks++)
			for (doorbell.commits = doorbell.locks;
			     doorbell.commits < doorbell.locks + BEHIND; doorbell.commits++) {
				more = one_order(&w, changes, declared, &both);
				if (doorbell.commits >= doorbell.piece)
					break;
			}
	}
	/* Both have committed in some of them, and were not only refused. */
	assert_true(both > 0);
	close_world(&w);
}

/* ---- in its commit ---- */

static const struct vb_txn_params at_once = {.timeout_ns = 400 * STEP};

static void reader_body(void *arg)
{
	struct world *w = arg;

	if (doorbell.older) {
		tick(w->a);
		must(vb_txn_begin_with(w->a, &at_once));
	}
	w->a->ep->ops = &doorbell.ops;
	reader.err = in_pieces(w, false, false, &reader.x, &reader.y);
	if (reader.err == 0)
		reader.err = vb_txn_commit(w->a);
	w->a->ep->ops = doorbell.real;
	reader.ended = true;
}

static int post_behind_reader(struct vb_ep *ep, struct vb_batch *batch)
{
	static const struct vb_task_params params = {.name = "reader"};
	struct vb_task *task;

	if (reader.doorbells++ == reader.at) {
		must(vb_task_spawn(vb_sched_self(), reader_body, doorbell.w, &params, &task));
		while (!reader.stands && !reader.ended)
			must(vb_ep_sleep(ep, STEP));
	}
	return doorbell.real->post(ep, batch);
}

/* False: the reader was to stand still behind its last piece. */
static bool one_commit(struct world *w, unsigned *both)
{
	const uint64_t before = value_of(w->a, w->t, X);
	struct vb_ep *other = w->b->ep;
	int err;

	doorbell.piece = reader.doorbells = 0;
	reader.stands = reader.goes_on = reader.ended = false;
	if (!doorbell.older) {
		must(vb_txn_begin_with(w->a, &at_once));
		tick(w->b);
	}
	must(vb_txn_begin_with(w->b, &soon));
	other->ops = &reader.ops;
	err = change_both(w->b, w->t);
	if (err == 0)
		err = vb_txn_commit(w->b);
	other->ops = doorbell.real;
	reader.goes_on = true;
	while (reader.doorbells > reader.at && !reader.ended)
		must(vb_ep_sleep(other, STEP));
	vb_txn_abort(w->a);
	vb_txn_abort(w->b);
	assert_true(err == 0 || err == -EAGAIN || err == -ETIMEDOUT);
	assert_int_equal(value_of(w->a, w->t, X), before + (err == 0));
	assert_int_equal(value_of(w->a, w->t, Y), before + (err == 0));
	if (!reader.ended)
		return false;
	assert_true(reader.err == 0 || reader.err == -EAGAIN || reader.err == -ETIMEDOUT);
	if (reader.err == 0) {
		assert_int_equal(reader.x.value, reader.x.other);
		assert_int_equal(reader.y.value, reader.y.other);
		assert_int_equal(reader.x.value, reader.y.value);
		*both += err == 0;
	}
	return reader.stands;
}

static void all_commits(void **state, const char *options)
{
	unsigned both = 0;
	struct world w;

	open_looks(&w, *state, options);
	reader.ops = *doorbell.real;
	reader.ops.post = post_behind_reader;
	doorbell.stands = true;
	for (unsigned older = 0; older < 2; older++) {
		bool more = true;

		doorbell.older = older;
		for (reader.at = 0; more; reader.at++) {
			doorbell.commits = 0;
			while (one_commit(&w, &both) && doorbell.commits < BEHIND)
				doorbell.commits++;
			more = reader.doorbells > reader.at;
		}
	}
	doorbell.stands = false;
	assert_true(both > 0);
	close_world(&w);
}

static void every_way(void **state, const char *options)
{
	for (unsigned i = 0; i < 4; i++)
		all_orders(state, options, i & 1, i & 2);
	all_commits(state, options);
}

static void sixteen(void **state)
{
	every_way(state, "profile=cx5");
}

static void words(void **state)
{
	every_way(state, "profile=plain64");
}

/* A server runs the same stages. */
static bool looks(const struct kind *k)
{
	return k->hybrid == NULL;
}

int main(int argc, char **argv)
{
	static const struct case_for_all cases[] = {
		{"16 bytes are read whole", sixteen},
		{"a word is read whole", words},
	};
	static const char *const fabrics[] = {"sim", NULL};
	static struct CMUnitTest tests[TESTS_MAX];
	size_t all = tests_for_all(argc, argv, fabrics, cases, VB_ARRAY_SIZE(cases), tests), n = 0;

	for (size_t i = 0; i < all; i++)
		if (looks(tests[i].initial_state))
			tests[n++] = tests[i];
	return _cmocka_run_group_tests("transactions: looks in any order", tests, n, NULL, NULL);
}
