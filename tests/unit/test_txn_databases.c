/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What include/verbena/txn.h promises of databases: their servers, several on one fabric, recovery, and
 * how much memory they take; for every protocol, one-sided and by RPC.
 */
#include "txn_api.h"

#define NONE 50 /* keys from here on have no record */

static const struct record one = {.value = 1}, two = {.value = 2};

static struct record *changed(struct world *w, uint64_t key)
{
	struct record *r;

	must(vb_txn_update(w->a, w->t, key, (void **)&r));
	return r;
}

/* ---- servers ---- */

static void without_servers(void **state)
{
	const struct kind *k = *state;
	struct vb_db_params p = usual_db(*state, LONG_NS);
	struct record copy;
	struct world w;

	open_db(&w, fabric_of(state), &p);
	must(vb_coordinator_open(w.db, 0, &w.a));
	if (k->hybrid == NULL) {
		/* What was loaded is found and changed without anybody's help. */
		assert_int_equal(value_of(w.a, w.t, 4), FIRST + 4);
		alone(w.a, vb_txn_write(w.a, w.t, 5, &one));
		assert_int_equal(value_of(w.a, w.t, 5), 1);
	}
	for (uint64_t key = NONE; key < NONE + NODES; key++) {
		must(vb_txn_begin(w.a));
		refused(vb_txn_read(w.a, w.t, key, &copy), -VB_EPEERGONE);
		assert_int_equal(vb_txn_cause(w.a), VB_TXN_FABRIC);
		assert_int_equal(vb_txn_error(w.a), -VB_EPEERGONE);
		assert_int_equal(vb_txn_read(w.a, w.t, 0, &copy), -EAGAIN);
	}
	/* Somebody serves after all. */
	start_servers(&w);
	assert_none(w.a, w.t, NONE);
	alone(w.a, vb_txn_insert(w.a, w.t, NONE + 1, &one));
	close_world(&w);
}

/* Who has known the server that is gone learns of it once. */
static void expect_server(struct vb_coordinator *me, struct vb_table *t, uint64_t key)
{
	char text[512];
	int err;

	must(vb_txn_begin(me));
	vb_log_capture_begin(text, sizeof(text));
	err = find_none(me, t, key);
	vb_log_capture_end();
	if (err == 0)
		err = vb_txn_commit(me);
	assert_true(err == 0 || err == -VB_EPEERGONE);
	assert_none(me, t, key);
	alone(me, vb_txn_write(me, t, key % NODES, &one));
}

static void servers_change(void **state)
{
	struct vb_db_server *other;
	struct world w;

	open_usual(&w, state, LONG_NS);
	refused(vb_db_server_start(w.db, 1, &other), -EBUSY);
	refused(vb_db_server_start(w.db, NODES, &other), -EINVAL);
	assert_int_equal(value_of(w.a, w.t, 1), FIRST + 1);
	vb_db_server_stop(w.server[1]);
	must(vb_db_server_start(w.db, 1, &w.server[1]));
	expect_server(w.b, w.t, NONE + 1);
	/* On a thread of its own. */
	vb_db_server_stop(w.server[1]);
	must(vb_db_server_thread_start(w.db, 1, &w.server[1]));
	refused(vb_db_server_start(w.db, 1, &other), -EBUSY);
	expect_server(w.b, w.t, NONE + 3);
	vb_db_server_stop(NULL);
	close_world(&w);
}

/* ---- several databases ---- */

static void two_databases(void **state)
{
	struct vb_db_params p = usual_db(*state, LONG_NS);
	struct record *u, copy;
	struct world w, v = {0};

	open_world(&w, fabric_of(state), &p);
	p.cc = "silo";
	p.hybrid = NULL;
	p.name = "another";
	v.f = w.f;
	must(vb_db_open(w.f, &p, &v.db));
	must(vb_table_open(v.db, &usual_table, &v.t));
	load(v.t);
	start_servers(&v);
	must(vb_coordinator_open(v.db, 0, &v.a));

	alone(w.a, vb_txn_write(w.a, w.t, 0, &one));
	alone(v.a, vb_txn_write(v.a, v.t, 0, &two));
	alone(v.a, vb_txn_insert(v.a, v.t, NONE, &two));
	assert_int_equal(value_of(w.b, w.t, 0), 1);
	assert_int_equal(value_of(v.a, v.t, 0), 2);
	assert_none(w.b, w.t, NONE);

	/* The table of the other is refused, and the transaction goes on. */
	must(vb_txn_begin(w.a));
	changed(&w, 1)->value = 3;
	refused(vb_txn_update(w.a, v.t, 1, (void **)&u), -EINVAL);
	refused(vb_txn_read(w.a, v.t, 1, &copy), -EINVAL);
	refused(vb_txn_insert(w.a, v.t, NONE, &one), -EINVAL);
	refused(vb_txn_declare(w.a, &(struct vb_txn_key){v.t, 1, false}, 1), -EINVAL);
	must(vb_txn_commit(w.a));
	assert_int_equal(value_of(w.b, w.t, 1), 3);
	assert_int_equal(value_of(v.a, v.t, 1), FIRST + 1);

	vb_coordinator_close(v.a);
	stop_servers(&v);
	vb_db_close(v.db);
	close_world(&w);
}

struct named {
	const char *db, *table;
	struct vb_db *in;
	struct vb_table *t;
};

/* Whatever characters names have, and however long they may be: each table is one of its own. */
static void names_are_apart(void **state)
{
	static const char longest[] = "0123456789012345678901234567890";
	struct named all[] = {{.db = "a"},
			      {.db = "a.b", .table = "c"},
			      {.db = "a", .table = "b"},
			      {.db = "a", .table = "b.c"},
			      {.db = "a", .table = "b.1"},
			      {.db = longest, .table = longest},
			      {.db = "012345678901234567890123456789x", .table = longest}};
	const struct vb_db_params usual = usual_db(*state, LONG_NS);
	struct vb_fabric *f;

	open_fabric(&f, fabric_of(state), 16 << 20);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(all); i++) {
		struct named *n = &all[i];
		struct vb_db_params p = usual;
		struct vb_table_params t = usual_table;

		p.name = n->db;
		p.coordinators = 2;
		t.name = n->table;
		if (i > 0 && strcmp(n->db, "a") == 0)
			n->in = all[0].in;
		else
			must(vb_db_open(f, &p, &n->in));
		if (n->table == NULL)
			continue;
		must(vb_table_open(n->in, &t, &n->t));
		must(vb_table_load(n->t, 1, &(struct record){.value = i}));
	}
	for (unsigned i = 1; i < VB_ARRAY_SIZE(all); i++) {
		struct vb_table *t = all[i].t;
		vb_addr at = vb_table_find(t, vb_table_node(t, 1), 1) + t->layout.record_at;
		const struct record *r = vb_local(f, at, sizeof(*r));

		assert_int_equal(r->value, i);
	}
	for (unsigned i = 0; i < VB_ARRAY_SIZE(all); i++)
		if (i == 0 || all[i].in != all[0].in)
			must(vb_db_close(all[i].in));
	must(vb_fabric_close(f));
}

/* ---- recovery ---- */

static void recovers_nothing(void **state)
{
	uint64_t freed = 9;
	struct world w;

	open_usual(&w, state, SHORT_NS);
	alone(w.a, vb_txn_write(w.a, w.t, 0, &one));
	for (uint16_t node = 0; node < NODES; node++) {
		must(vb_db_recover(w.b, node, &freed));
		assert_int_equal(freed, 0);
	}
	freed = 9;
	refused(vb_db_recover(w.b, NODES, &freed), -EINVAL);
	must(vb_txn_begin(w.b));
	refused(vb_db_recover(w.b, 0, &freed), -EBUSY);
	assert_int_equal(freed, 9);
	vb_txn_abort(w.b);
	assert_int_equal(value_of(w.b, w.t, 0), 1);
	close_world(&w);
}

static void recovery_is_off(void **state)
{
	struct vb_db_params p = usual_db(*state, SHORT_NS);
	uint64_t freed = 9;
	struct world w;

	p.no_recovery = true;
	open_world(&w, fabric_of(state), &p);
	refused(vb_db_recover(w.a, 0, &freed), -EOPNOTSUPP);
	assert_int_equal(freed, 9);
	alone(w.b, vb_txn_write(w.b, w.t, 0, &one));
	close_world(&w);
}

/* Does a transaction lock what it writes before its end? */
static bool locks_early(const struct kind *k)
{
	return strcmp(k->ops->stages[0].name, "lock") == 0 || locks_writes_early(k);
}

/* Who holds a lock for longer than a lease is rolled back, and learns of it. */
static void the_slow_are_recovered(void **state)
{
	uint64_t freed;
	struct world w;

	open_usual(&w, state, SHORT_NS);
	must(vb_txn_begin(w.a));
	changed(&w, 2)->value = 7;
	must(vb_db_recover(w.b, 0, &freed));
	assert_int_equal(freed, locks_early(*state));
	/* Its lease has passed in any case. */
	assert_int_equal(vb_txn_commit(w.a), -EAGAIN);
	assert_true(vb_txn_cause(w.a) == VB_TXN_RECOVERED || vb_txn_cause(w.a) == VB_TXN_TIMEOUT);
	alone(w.b, vb_txn_write(w.b, w.t, 2, &two));
	alone(w.a, vb_txn_write(w.a, w.t, 4, &two));
	assert_int_equal(value_of(w.b, w.t, 2), 2);
	close_world(&w);
}

/* ---- sizes ---- */

/* As much memory as the library says that it takes, and no more. */
static void fits_exactly(void **state)
{
	struct vb_db_params p = usual_db(*state, LONG_NS);
	struct world w = {0};

	open_fabric(&w.f, fabric_of(state),
		    vb_db_node_bytes(&p, NODES) + vb_table_node_bytes(&p, &usual_table, NODES));
	must(vb_db_open(w.f, &p, &w.db));
	must(vb_table_open(w.db, &usual_table, &w.t));
	load(w.t);
	start_servers(&w);
	must(vb_coordinator_open(w.db, 0, &w.a));
	assert_none(w.a, w.t, NONE);
	close_world(&w);
}
int main(int argc, char **argv)
{
	static const struct case_for_all cases[] = {
		{"without servers", without_servers},
		{"servers change", servers_change},
		{"two databases", two_databases},
		{"names are apart", names_are_apart},
		{"nothing to recover", recovers_nothing},
		{"recovery is off", recovery_is_off},
		{"the slow are recovered", the_slow_are_recovered},
		{"fits exactly", fits_exactly},
	};
	static const char *const fabrics[] = {"shm", NULL};
	static struct CMUnitTest tests[TESTS_MAX];
	size_t n = tests_for_all(argc, argv, fabrics, cases, VB_ARRAY_SIZE(cases), tests);

	return _cmocka_run_group_tests("transactions: databases", tests, n, NULL, NULL);
}
