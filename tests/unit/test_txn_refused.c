/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A protocol that leaves one of its records as it must not be when it says that the transaction may
 * commit: for each thing that may be wrong, the commit is refused with -EPROTO, the log names table
 * and key, nothing is written, and the record is free for others again.  And what else is noticed and
 * told: addresses that are wrong, requests that a server cannot do, locks that were lost.
 */
#include "txn_api.h"

#include "txn/db.h"

#define KEY 3

static const struct record one = {.value = 1}, two = {.value = 2};

static struct vb_cc_ops broken;
static int (*real_prepare)(struct vb_txn *t);
static void (*breaks)(struct vb_item *it);

static int prepare_and_break(struct vb_txn *t)
{
	int err = real_prepare(t);

	for (unsigned i = 0; i < t->n && err == 0; i++)
		if (t->item[i].key == KEY)
			breaks(&t->item[i]);
	return err;
}

static void break_it(struct world *w, void (*how)(struct vb_item *it))
{
	broken = *w->db->cc;
	real_prepare = broken.prepare;
	breaks = how;
	broken.prepare = prepare_and_break;
	w->db->cc = &broken;
}

static void unfetched(struct vb_item *it)
{
	it->flags &= (uint16_t)~VB_ITEM_FETCHED;
}

static void nowhere(struct vb_item *it)
{
	it->at = 0;
}

static void unlocked(struct vb_item *it)
{
	it->flags &= (uint16_t)~VB_ITEM_HELD_X;
	it->flags |= VB_ITEM_MAYBE; /* so that the release looks */
}

static void unread(struct vb_item *it)
{
	it->flags |= VB_ITEM_BLIND;
}

static void not_held(struct vb_item *it)
{
	it->flags &= (uint16_t) ~(VB_ITEM_HELD_X | VB_ITEM_HELD_S);
	it->flags |= VB_ITEM_MAYBE | VB_ITEM_MAYBE_S;
}

/* `write`: the item that is broken is one that is written; else one that is read. */
static void refuses(void **state, void (*how)(struct vb_item *it), bool write, const char *why)
{
	const struct kind *k = *state;
	uint64_t lease = how == nowhere ? SHORT_NS : LONG_NS;
	const struct vb_cc_ops *real;
	struct record r = {0};
	char text[1024];
	struct world w;
	int err;

	open_usual(&w, state, lease);
	real = w.db->cc;
	must(vb_txn_begin(w.a));
	must(vb_txn_write(w.a, w.t, 4, &one));
	must(write ? vb_txn_write(w.a, w.t, KEY, &one) : vb_txn_read(w.a, w.t, KEY, &r));
	break_it(&w, how);
	vb_log_capture_begin(text, sizeof(text));
	err = vb_txn_commit(w.a);
	vb_log_capture_end();
	w.db->cc = real;
	/* The machine may be so slow that a lease passes. */
	if (!(err == -EAGAIN && lease == SHORT_NS)) {
		assert_int_equal(err, -EPROTO);
		assert_int_equal(vb_txn_cause(w.a), VB_TXN_REFUSED);
		assert_int_equal(vb_txn_error(w.a), -EPROTO);
		assert_non_null(strstr(text, "key 3 of table 'account'"));
		assert_non_null(strstr(text, why));
		assert_non_null(strstr(text, k->ops->name));
		/* It is over, and says so again. */
		assert_int_equal(vb_txn_commit(w.a), -EPROTO);
	}
	assert_int_equal(value_of(w.b, w.t, KEY), FIRST + KEY);
	assert_int_equal(value_of(w.b, w.t, 4), FIRST + 4);
	alone(w.a, vb_txn_write(w.a, w.t, KEY, &two));
	assert_int_equal(value_of(w.b, w.t, KEY), 2);
	close_world(&w);
}

static void written_unfetched(void **state)
{
	refuses(state, unfetched, true, "never fetched");
}

static void read_unfetched(void **state)
{
	refuses(state, unfetched, false, "never fetched");
}

static void written_nowhere(void **state)
{
	refuses(state, nowhere, true, "no address");
}

static void written_unlocked(void **state)
{
	refuses(state, unlocked, true, "its lock");
}

static void written_unread(void **state)
{
	refuses(state, unread, true, "nobody has read or given");
}

static void read_not_held(void **state)
{
	const struct kind *k = *state;

	if (k->ops->caps & VB_CC_READ_LOCKS)
		refuses(state, not_held, false, "not held");
}

/* ---- what a process believes and does not know ---- */

/* An entry of the location cache that is another key's tuple costs a look-up, once. */
static void wrong_guess(void **state)
{
	const struct kind *k = *state;
	struct vb_db_params p = usual_db(k, LONG_NS);
	struct vb_item *it;
	struct world w;

	p.cache_entries = 16;
	open_world(&w, k->fabric, &p);
	vb_cache_put(w.db->cache, w.t, KEY,
		     vb_table_find(w.t, vb_table_node(w.t, KEY + 2), KEY + 2), vb_txn_epoch(w.a));
	assert_int_equal(value_of(w.a, w.t, KEY), FIRST + KEY);
	assert_true(w.a->waits <= 1);
	assert_true(vb_cache_get(w.db->cache, w.t, KEY, vb_txn_epoch(w.a)) ==
		    vb_table_find(w.t, vb_table_node(w.t, KEY), KEY));
	/* The same for an item that goes to a server: of its node, and of another. */
	for (uint64_t other = KEY + 1; other <= KEY + 2; other++) {
		must(vb_txn_begin(w.a));
		must(vb_txn_item(&w.a->txn, w.t, KEY, false, &it));
		it->at = vb_table_find(w.t, vb_table_node(w.t, other), other);
		it->flags |= VB_ITEM_READ;
		must(w.db->cc->read(&w.a->txn, &it, 1));
		assert_true(it->at == vb_table_find(w.t, vb_table_node(w.t, KEY), KEY));
		must(vb_txn_commit(w.a));
	}
	close_world(&w);
}

/* A server that knows less than its caller says so at once, and the transaction has an end. */
static void unknown_table(void **state)
{
	const struct kind *k = *state;
	const struct vb_table_params more = {
		.name = "more", .record_bytes = sizeof(struct record), .records = RECORDS};
	struct vb_db_params p = usual_db(k, LONG_NS);
	struct vb_coordinator *c;
	struct vb_table *t;
	struct record r;
	struct vb_db *db;
	char text[2048];
	struct world w;
	int err;

	open_usual(&w, state, LONG_NS);
	must(vb_db_open(w.f, &p, &db));
	must(vb_table_open(db, &usual_table, &t));
	must(vb_table_open(db, &more, &t));
	must(vb_coordinator_open(db, 0, &c));
	must(vb_txn_begin(c));
	vb_log_capture_begin(text, sizeof(text));
	err = vb_txn_read(c, t, 1, &r);
	vb_log_capture_end();
	assert_int_equal(err, -EPROTO);
	assert_int_equal(vb_txn_cause(c), VB_TXN_FABRIC);
	assert_non_null(strstr(text, "has not opened that table"));
	/* The server goes on. */
	assert_none(w.a, w.t, 50);
	vb_coordinator_close(c);
	vb_db_close(db);
	close_world(&w);
}

/* A lock that is another's when the commit lets it go is counted and told. */
static void lost_lock(void **state)
{
	const struct kind *k = *state;
	char text[1024];
	struct vb_item *it;
	struct world w;
	uint64_t *word;
	int err;

	if (k->hybrid != NULL || strcmp(k->ops->name, "no-wait") != 0)
		return;
	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin(w.a));
	must(vb_txn_write(w.a, w.t, KEY, &one));
	must(vb_txn_item(&w.a->txn, w.t, KEY, false, &it));
	word = vb_local(w.f, it->at + w.t->layout.lock_at, 8);
	*word += 1 << VB_TS_PLACE_SHIFT;
	vb_log_capture_begin(text, sizeof(text));
	err = vb_txn_commit(w.a);
	vb_log_capture_end();
	assert_int_equal(err, 0);
	assert_int_equal(w.a->lost_locks, 1);
	assert_non_null(strstr(text, "key 3 of table 'account'"));
	*word = 0;
	close_world(&w);
}

int main(int argc, char **argv)
{
	static const struct case_for_all cases[] = {
		{"written, never fetched", written_unfetched},
		{"read, never fetched", read_unfetched},
		{"written to no address", written_nowhere},
		{"written without its lock", written_unlocked},
		{"written with bytes that nobody gave", written_unread},
		{"read and not held", read_not_held},
		{"a wrong guess", wrong_guess},
		{"an unknown table", unknown_table},
		{"a lost lock", lost_lock},
	};
	static const char *const fabrics[] = {"shm", NULL};
	static struct CMUnitTest tests[TESTS_MAX];
	size_t n = tests_for_all(argc, argv, fabrics, cases, VB_ARRAY_SIZE(cases), tests);

	return _cmocka_run_group_tests("transactions: commits that are refused", tests, n, NULL,
				       NULL);
}
