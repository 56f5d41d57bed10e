/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RPC of transactions when what arrives is not what was sent, or not true: an answer whose items
 * have not come, or that says it is longer than any; a place of a record, out of a cache, that is
 * another record's or nobody's.
 */
#include "fabric/hooks.h"
#include "txn/db.h"
#include "txn_api.h"

#define HERE  2 /* keys of node 0 */
#define THERE 4

/* ---- answers ---- */

static struct {
	struct vb_fabric_ops ops;
	const struct vb_fabric_ops *real;
	struct vb_verb kept; /* what the answer was to write */
	bool lose_items, lie;
	unsigned met;
} wire;

/* The server's endpoint: the WRITE of an answer goes to the place of another's, as one that is lost
 * leaves there what was there before; or the message says that there is more than fits. */
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
	return ((const struct kind *)*state)->hybrid != NULL;
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

/* ---- places out of a cache ---- */

static void wrong_places(void **state)
{
	struct vb_db_params p = usual_db(*state, LONG_NS);
	struct world w;

	p.cache = 64;
	open_world(&w, fabric_of(state), &p);
	for (unsigned i = 0; i < 4; i++) {
		const struct vb_table_node *n = &w.t->node[0];
		vb_addr room =
			n->header + sizeof(struct vb_table_header) + w.t->room * w.t->layout.stride;
		const vb_addr wrong[] = {
			vb_table_find(w.t, 0, THERE),                         /* another's */
			vb_addr_make(0, vb_addr_offset(room) + (1ull << 40)), /* nobody's */
			vb_table_find(w.t, 0, HERE) + 4,                      /* half of it */
			n->header,
		};

		/* A server believes nothing; a coordinator, that its cache has places of records. */
		if (i != 0 && !by_rpc(state))
			continue;
		vb_cache_put(w.db->cache, w.t, HERE, wrong[i]);
		assert_int_equal(value_of(w.b, w.t, HERE), FIRST + HERE);
		/* And it is not believed again. */
		assert_int_equal(vb_cache_get(w.db->cache, w.t, HERE), vb_table_find(w.t, 0, HERE));
		vb_cache_put(w.db->cache, w.t, HERE, wrong[i]);
		alone(w.b, vb_txn_write(w.b, w.t, HERE, &(struct record){.value = FIRST + HERE}));
		assert_int_equal(value_of(w.a, w.t, THERE), FIRST + THERE);
	}
	close_world(&w);
}

int main(int argc, char **argv)
{
	static const struct case_for_all cases[] = {
		{"items are lost", items_are_lost},
		{"an answer lies", an_answer_lies},
		{"wrong places", wrong_places},
	};
	static const char *const fabrics[] = {"sim", NULL};
	static struct CMUnitTest tests[TESTS_MAX];
	size_t n = tests_for_all(argc, argv, fabrics, cases, VB_ARRAY_SIZE(cases), tests);

	return _cmocka_run_group_tests("transactions: the wire", tests, n, NULL, NULL);
}
