/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dslr-2pl, in virtual time: records go by the order in which they were asked for, readers together; a
 * ticket whose owner does not come is passed over, and nobody gives up a free record for it; and whatever
 * the counts say, one has the record.
 */
#include "txn_api.h"

#include "lock/dslr/dslr.h"
#include "txn/db.h"

#define X       2
#define WAIT_NS 4000000ull
#define STEP_NS 30000ull /* more than a look, by RPC at the server */

static void open_waiting(struct world *w, void **state, uint64_t wait_ns)
{
	const struct kind *k = *state;
	struct vb_db_params p = usual_db(k, 50 * WAIT_NS);

	p.wait_ns = wait_ns;
	open_world(w, k->fabric, &p);
}

static void open_queue(struct world *w, void **state)
{
	open_waiting(w, state, 2 * WAIT_NS);
}

static vb_addr ticket_word(struct world *w)
{
	return vb_table_find(w->t, (uint16_t)vb_table_node(w->t, X), X) + VB_TUPLE_RESERVED_AT;
}

static uint64_t count_in(struct world *w)
{
	uint64_t word;

	must(vb_read(w->a->ep, ticket_word(w), &word, 8));
	return word;
}

/* ---- tasks, one behind the other ---- */

struct guest {
	struct world *w;
	unsigned number;
	bool writes;
	uint64_t at_ns, hold_ns, timeout_ns;
	uint64_t had_ns, left_ns; /* the record */
	int err;
	unsigned *inside, *most_inside;
};

static int visit(struct guest *g, struct vb_coordinator *me)
{
	struct record r;
	void *record;
	int err = vb_txn_begin_with(me, &(struct vb_txn_params){.timeout_ns = g->timeout_ns});

	if (err == 0)
		err = g->writes ? vb_txn_update(me, g->w->t, X, &record)
				: vb_txn_read(me, g->w->t, X, &r);
	if (err != 0) {
		vb_txn_abort(me);
		return err;
	}
	g->had_ns = vb_ep_now(me->ep);
	if (++*g->inside > *g->most_inside)
		*g->most_inside = *g->inside;
	if (g->writes)
		((struct record *)record)->value++;
	err = vb_ep_sleep(me->ep, g->hold_ns);
	--*g->inside;
	g->left_ns = vb_ep_now(me->ep);
	return err != 0 ? err : vb_txn_commit(me);
}

static void guest_body(void *arg)
{
	struct guest *g = arg;
	struct vb_coordinator *me;

	g->err = vb_coordinator_open(g->w->db, (uint16_t)(g->number % NODES), &me);
	if (g->err != 0)
		return;
	(void)vb_ep_sleep(me->ep, g->at_ns);
	g->err = visit(g, me);
	vb_coordinator_close(me);
}

/* They come a step after each other; the first holds until all are there.  How many were inside at most. */
static unsigned all_visit(struct world *w, struct guest *g, unsigned n)
{
	static const struct vb_task_params params = {.name = "guest"};
	unsigned inside = 0, most = 0;

	for (unsigned i = 0; i < n; i++) {
		struct vb_task *task;

		g[i].w = w;
		g[i].number = i;
		g[i].at_ns = i * STEP_NS;
		if (g[i].hold_ns == 0)
			g[i].hold_ns = i == 0 ? (n + 1) * STEP_NS : STEP_NS / 10;
		g[i].inside = &inside;
		g[i].most_inside = &most;
		must(vb_task_spawn(vb_sched_self(), guest_body, &g[i], &params, &task));
	}
	must(vb_sched_run(vb_sched_self(), NULL, VB_FOREVER));
	return most;
}

/* Whoever came first has it first, again and again. */
static void in_order(void **state)
{
	struct world w;

	open_queue(&w, state);
	for (unsigned round = 0; round < 5; round++) {
		struct guest g[6] = {{.writes = true}, {.writes = true}, {.writes = true},
				     {.writes = true}, {.writes = true}, {.writes = true}};

		assert_int_equal(all_visit(&w, g, 6), 1);
		for (unsigned i = 0; i < 6; i++) {
			must(g[i].err);
			if (i > 0)
				assert_true(g[i].had_ns >= g[i - 1].left_ns);
		}
	}
	assert_int_equal(value_of(w.a, w.t, X), FIRST + X + 30);
	close_world(&w);
}

/* Readers have it together, and not before a writer that came before them. */
static void readers_together(void **state)
{
	struct guest g[] = {{.writes = true},     {.hold_ns = STEP_NS}, {.hold_ns = STEP_NS},
			    {.hold_ns = STEP_NS}, {.writes = true},     {.hold_ns = STEP_NS}};
	struct world w;

	open_queue(&w, state);
	assert_int_equal(all_visit(&w, g, 6), 3);
	for (unsigned i = 0; i < 6; i++)
		must(g[i].err);
	for (unsigned i = 1; i < 4; i++) {
		assert_true(g[i].had_ns >= g[0].left_ns);
		assert_true(g[4].had_ns >= g[i].left_ns);
	}
	assert_true(g[5].had_ns >= g[4].left_ns);
	close_world(&w);
}

/* The second gives up: the third does not wait for him for long, and the fourth is behind the third. */
static void passed_over(void **state)
{
	struct guest g[] = {{.writes = true},
			    {.writes = true, .timeout_ns = STEP_NS},
			    {.writes = true},
			    {.writes = true}};
	struct world w;

	open_queue(&w, state);
	assert_int_equal(all_visit(&w, g, 4), 1);
	assert_int_equal(g[1].err, -ETIMEDOUT);
	must(g[0].err);
	must(g[2].err);
	must(g[3].err);
	assert_true(g[2].had_ns - g[0].left_ns < 4 * STEP_NS);
	assert_true(g[3].had_ns >= g[2].left_ns);
	close_world(&w);
}

/* A bound of a wait that is shorter than the patience with a ticket that is not coming: who finds the record
 * free takes it, instead of leaving one more such ticket, again and again. */
static void not_empty_handed(void **state)
{
	static const uint64_t called[] = {DSLR_ONE_MAX_X, DSLR_ONE_MAX_S, 3 * DSLR_ONE_MAX_X};
	struct record r;
	struct world w;

	open_waiting(&w, state, 1);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(called); i++) {
		must(vb_write(w.a->ep, ticket_word(&w), &called[i], 8));
		must(vb_txn_begin(w.a));
		must(vb_txn_write(w.a, w.t, X, &(struct record){.value = i}));
		must(vb_txn_commit(w.a));
		must(vb_write(w.a->ep, ticket_word(&w), &called[i], 8));
		must(vb_txn_begin(w.b));
		must(vb_txn_read(w.b, w.t, X, &r));
		assert_int_equal(r.value, i);
		must(vb_txn_commit(w.b));
	}
	close_world(&w);
}

/* The last one who gives up leaves nothing to be passed over. */
static void takes_it_back(void **state)
{
	struct world w;
	uint64_t before;

	open_waiting(&w, state, STEP_NS);
	must(vb_txn_begin(w.a));
	must(vb_txn_write(w.a, w.t, X, &(struct record){.value = 1}));
	before = count_in(&w);
	for (unsigned i = 0; i < 4; i++) {
		struct record r;

		must(vb_txn_begin(w.b));
		assert_int_equal(i % 2 ? vb_txn_read(w.b, w.t, X, &r)
				       : vb_txn_write(w.b, w.t, X, &(struct record){.value = 2}),
				 -EAGAIN);
		assert_int_equal(vb_txn_cause(w.b), VB_TXN_TIMEOUT);
		vb_txn_abort(w.b);
		assert_int_equal(count_in(&w), before);
	}
	must(vb_txn_commit(w.a));
	close_world(&w);
}

/* Counts that nobody can have left: one at a time has the record, everybody gets it, and the next ones go by
 * order again. */
static void any_counts(void **state)
{
	static const uint64_t some[] = {
		0x0000000000000005ull, 0x0000000000050000ull, 0x0005000000000000ull,
		0x0000000700000000ull, 0x7fff7fff7fff7fffull, 0xffffffffffffffffull,
		0x7fff00007fff0000ull, 0x00000000ffffffffull, 0x1234567823456789ull};
	struct world w;

	open_queue(&w, state);
	for (unsigned k = 0; k < VB_ARRAY_SIZE(some); k++) {
		for (unsigned round = 0; round < 2; round++) {
			struct guest g[4] = {{.writes = true},
					     {.writes = true},
					     {.writes = true},
					     {.writes = true}};

			if (round == 0)
				must(vb_write(w.a->ep, ticket_word(&w), &some[k], 8));
			assert_int_equal(all_visit(&w, g, 4), 1);
			for (unsigned i = 0; i < 4; i++)
				must(g[i].err);
			if (round > 0 && k != 1 && k != 0)
				continue;
		}
		assert_int_equal(count_in(&w) & 0x8000800080008000ull, 0);
	}
	assert_int_equal(value_of(w.a, w.t, X), FIRST + X + 8 * VB_ARRAY_SIZE(some));
	close_world(&w);
}

int main(int argc, char **argv)
{
	static const struct case_for_all cases[] = {
		{"in order", in_order},           {"readers together", readers_together},
		{"passed over", passed_over},     {"not empty-handed", not_empty_handed},
		{"takes it back", takes_it_back}, {"any counts", any_counts},
	};
	static const char *const fabrics[] = {"sim", NULL};
	static struct CMUnitTest tests[TESTS_MAX];
	char *mine[] = {"", "sim", "dslr-2pl"};
	size_t n = tests_for_all(3, mine, fabrics, cases, VB_ARRAY_SIZE(cases), tests);

	(void)argc;
	(void)argv;
	return _cmocka_run_group_tests("transactions: dslr-2pl", tests, n, NULL, NULL);
}
