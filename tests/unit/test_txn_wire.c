/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RPC of transactions when what arrives is not what was sent, or not true: an answer whose items
 * have not come, or that says it is longer than any; a place of a record that is another record's or
 * nobody's.
 */
#include "fabric/hook/hooks.h"
#include "txn/db.h"
#include "txn_api.h"

#define HERE  2 /* keys of node 0 */
#define THERE 4

/* ---- answers ---- */

static struct {
	struct vb_fabric_ops ops;
	const struct vb_fabric_ops *real;
	bool lose_items, lie;
	unsigned met;
} wire;

/* The server's endpoint: the WRITE of an answer leaves there what was there before, as one that is lost
 * does; or the message says that there is more than fits. */
static int post_wrong(struct vb_ep *ep, struct vb_batch *b)
{
	if (b->n == 2 && b->verbs[0].op == VB_OP_WRITE && b->verbs[1].op == VB_OP_SEND) {
		if (wire.lose_items)
			b->verbs[0].len = 0;
		if (wire.lie) {
			struct vb_msg *m = (struct vb_msg *)(uintptr_t)b->verbs[1].msg;
			struct vb_wire_call head;

			memcpy(&head, m->data, sizeof(head));
			head.bytes = 0x7fffffff;
			memcpy(m->data, &head, sizeof(head));
		}
		wire.met++;
	}
	return wire.real->post(ep, b);
}

static void open_wrong(struct world *w, void **state)
{
	struct vb_db_params p = usual_db(*state, SHORT_NS);
	struct vb_ep *ep;

	/* The simulator wants its endpoints as they are: the hook's may be tampered with. */
	*w = (struct world){0};
	open_fabric(&w->f, fabric_of(state), 16 << 20);
	must(vb_hook_count(w->f, &w->f));
	must(vb_db_open(w->f, &p, &w->db));
	must(vb_table_open(w->db, &usual_table, &w->t));
	load(w->t);
	start_servers(w);
	must(vb_coordinator_open(w->db, 0, &w->a));
	must(vb_coordinator_open(w->db, 1, &w->b));
	memset(&wire, 0, sizeof(wire));
	ep = vb_db_server_ep(w->server[0]);
	wire.real = ep->ops;
	wire.ops = *ep->ops;
	wire.ops.post = post_wrong;
	ep->ops = &wire.ops;
}

static bool by_rpc(void **state)
{
	const struct kind *k = *state;

	/* The reads, too. */
	return k->hybrid != NULL && k->ops->code == NULL;
}

/* One record after the other, of which each has an answer as long as the last one's. */
static int read_two(struct world *w, struct record *first, struct record *second)
{
	int err = vb_txn_begin(w->b);

	if (err == 0)
		err = vb_txn_read(w->b, w->t, HERE, first);
	wire.met = 0;
	wire.lose_items = err == 0;
	if (err == 0)
		err = vb_txn_read(w->b, w->t, THERE, second);
	wire.lose_items = false;
	return err;
}

static void items_are_lost(void **state)
{
	struct record first = {0}, second = {0};
	struct world w;
	char said[1024];
	int err;

	if (!by_rpc(state))
		return;
	open_wrong(&w, state);
	assert_int_equal(vb_table_node(w.t, HERE), 0);
	assert_int_equal(vb_table_node(w.t, THERE), 0);
	vb_log_capture_begin(said, sizeof(said));
	err = read_two(&w, &first, &second);
	vb_log_capture_end();
	assert_int_equal(first.value, FIRST + HERE);
	assert_true(wire.met > 0);
	assert_int_not_equal(err, 0);
	assert_int_equal(second.value, 0);
	vb_txn_abort(w.b);
	assert_int_equal(value_of(w.b, w.t, THERE), FIRST + THERE);
	close_world(&w);
}

static void an_answer_lies(void **state)
{
	struct record r;
	struct world w;

	if (!by_rpc(state))
		return;
	open_wrong(&w, state);
	must(vb_txn_begin(w.b));
	wire.lie = true;
	refused(vb_txn_read(w.b, w.t, HERE, &r), -EPROTO);
	wire.lie = false;
	assert_true(wire.met > 0);
	vb_txn_abort(w.b);
	assert_int_equal(value_of(w.b, w.t, HERE), FIRST + HERE);
	close_world(&w);
}

/* ---- places ---- */

/* Out of a cache: another record's. */
static void wrong_in_cache(void **state)
{
	const struct record after = {.value = 7};
	struct vb_db_params p = usual_db(*state, LONG_NS);
	struct world w;

	if (by_rpc(state))
		return;
	p.cache_entries = 64;
	open_world(&w, fabric_of(state), &p);
	vb_cache_put(w.db->cache, w.t, HERE, vb_table_find(w.t, 0, THERE), vb_txn_epoch(w.a));
	assert_int_equal(value_of(w.b, w.t, HERE), FIRST + HERE);
	/* And it is not believed again. */
	assert_int_equal(vb_cache_get(w.db->cache, w.t, HERE, vb_txn_epoch(w.a)),
			 vb_table_find(w.t, 0, HERE));
	vb_cache_put(w.db->cache, w.t, HERE, vb_table_find(w.t, 0, THERE), vb_txn_epoch(w.a));
	alone(w.b, vb_txn_write(w.b, w.t, HERE, &after));
	assert_int_equal(value_of(w.a, w.t, HERE), 7);
	assert_int_equal(value_of(w.a, w.t, THERE), FIRST + THERE);
	close_world(&w);
}

/* A server believes no place that it is told. */
static void wrong_to_a_server(void **state)
{
	struct record after = {.value = 7};
	struct world w;
	vb_addr end;

	if (!by_rpc(state))
		return;
	open_usual(&w, state, LONG_NS);
	end = w.t->node[0].header + sizeof(struct vb_table_header) + w.t->room * w.t->layout.stride;
	for (unsigned i = 0; i < 5; i++) {
		const vb_addr wrong[] = {
			vb_table_find(w.t, 0, THERE),                        /* another's */
			vb_table_find(w.t, 0, HERE) + 4,                     /* half of it */
			vb_addr_make(0, vb_addr_offset(end) + (1ull << 40)), /* nobody's */
			vb_addr_make(0, 0),
			vb_addr_make(1, vb_addr_offset(vb_table_find(w.t, 0, HERE))),
		};

		after.value = 7 + i;
		must(vb_txn_begin(w.b));
		must(vb_txn_write(w.b, w.t, HERE, &after));
		/* 0 would be looked up before it is sent. */
		if (wrong[i] != 0)
			w.b->txn.item[0].at = wrong[i];
		must(vb_txn_commit(w.b));
		assert_int_equal(value_of(w.a, w.t, HERE), 7 + i);
		assert_int_equal(value_of(w.a, w.t, THERE), FIRST + THERE);
	}
	close_world(&w);
}

int main(int argc, char **argv)
{
	static const struct case_for_all cases[] = {
		{"items are lost", items_are_lost},
		{"an answer lies", an_answer_lies},
		{"a wrong place in a cache", wrong_in_cache},
		{"a wrong place, to a server", wrong_to_a_server},
	};
	static const char *const fabrics[] = {"sim", NULL};
	static struct CMUnitTest tests[TESTS_MAX];
	size_t n = tests_for_all(argc, argv, fabrics, cases, VB_ARRAY_SIZE(cases), tests);

	return _cmocka_run_group_tests("transactions: the wire", tests, n, NULL, NULL);
}
