/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places of keys without a record are given to other keys (store/places.h), for every protocol, one-sided and by
 * RPC: of more keys than there is room for, each is what it should be.
 */
#include "txn_api.h"

#include "store/keymap.h"
#include "store/ordered.h"

#define ASKED 16u /* of each node, which has room for 65 more */
#define ITEMS 256u
#define LEASE 5000000ull
#define MANY  500u
#define LIVE  6u /* keys with a record at a time */

static const struct vb_txn_range everything = {0, 511, false};

/* shift: of an ordered table's ranges; 0: it is not ordered. */
static void open_small_db(struct world *w, void **state, unsigned shift, bool no_recovery)
{
	const struct kind *k = *state;
	struct vb_db_params p = usual_db(k, LEASE);
	const struct vb_table_params small = {
		.name = "small",
		.record_bytes = sizeof(struct record),
		.records = ASKED * NODES,
		.ordered = shift != 0,
		.range_shift = shift,
	};

	p.no_recovery = no_recovery;
	p.items_max = ITEMS;
	p.bytes_max = ITEMS * sizeof(struct record);
	*w = (struct world){0};
	open_fabric(&w->f, k->fabric, 16 << 20);
	must(vb_db_open(w->f, &p, &w->db));
	must(vb_table_open(w->db, &small, &w->t));
	start_servers(w);
	must(vb_coordinator_open(w->db, 0, &w->a));
	must(vb_coordinator_open(w->db, 1, &w->b));
}

static void open_small(struct world *w, void **state, unsigned shift)
{
	open_small_db(w, state, shift, false);
}

/* Versions of logical time keep their places. */
static bool gives_back(const struct world *w)
{
	return !(w->db->cc->caps & VB_CC_LOGICAL);
}

static void wait_grace(struct world *w)
{
	must(vb_ep_sleep(w->a->ep, w->db->store.grace_ns + 1000));
}

typedef int (*body)(struct vb_coordinator *me, struct vb_table *t, uint64_t key);

static int add(struct vb_coordinator *me, struct vb_table *t, uint64_t key)
{
	return vb_txn_insert(me, t, key, &(struct record){.value = FIRST + key, .other = ~key});
}

static int drop(struct vb_coordinator *me, struct vb_table *t, uint64_t key)
{
	return vb_txn_delete(me, t, key);
}

static int is_there(struct vb_coordinator *me, struct vb_table *t, uint64_t key)
{
	struct record r;
	int err = vb_txn_read(me, t, key, &r);

	if (err == 0) {
		assert_int_equal(r.value, FIRST + key);
		assert_int_equal(r.other, ~key);
	}
	return err;
}

static int is_not_there(struct vb_coordinator *me, struct vb_table *t, uint64_t key)
{
	return find_none(me, t, key);
}

/* Until it has committed; -ENOSPC: it has waited for places for long enough. */
static int surely(struct world *w, struct vb_coordinator *me, body f, uint64_t key)
{
	int err = -EAGAIN;

	for (unsigned tries = 0; err == -EAGAIN || (err == -ENOSPC && tries < 12); tries++) {
		if (err == -ENOSPC)
			must(vb_ep_sleep(me->ep, w->db->store.grace_ns / 4 + 1000));
		must(vb_txn_begin(me));
		err = f(me, w->t, key);
		if (err == 0)
			err = vb_txn_commit(me);
		vb_txn_abort(me);
	}
	tick(me);
	return err;
}

static uint64_t tuples(const struct world *w, const struct vb_table *t)
{
	uint64_t n = 0;

	for (uint16_t node = 0; node < NODES; node++)
		n += t->node[node].index.header->tuples;
	return n;
}

static uint64_t keys_in_index(const struct vb_table *t)
{
	uint64_t n = 0;

	for (uint16_t node = 0; node < NODES; node++)
		n += t->node[node].index.header->keys;
	return n;
}

/* Nobody holds anything. */
static void nothing_is_held(const struct world *w, struct vb_table *t)
{
	struct vb_named_word named[VB_NAMED_WORDS_MAX];

	for (uint16_t node = 0; node < NODES; node++) {
		const struct vb_table_node *n = &t->node[node];
		const char *first = n->index.segment + vb_addr_offset(n->header) +
				    sizeof(struct vb_table_header);

		for (uint64_t i = 0; i < n->index.header->tuples; i++)
			assert_int_equal(
				vb_words_named(w->db->cc, first + i * t->layout.stride, named), 0);
	}
}

/* ---- more keys than there is room for ---- */

static void check_live(struct world *w, uint64_t from, uint64_t to)
{
	for (uint64_t key = from; key < to; key++)
		must(surely(w, key % 2 ? w->a : w->b, is_there, key));
}

/* All keys that there are, and none of those before. */
static int scan_live(struct vb_coordinator *me, struct vb_table *t, uint64_t from)
{
	struct vb_txn_row row[LIVE + 1];
	unsigned n;
	int err = vb_txn_scan(me, t, &everything, row, LIVE, &n);

	for (unsigned i = 0; i < n && err == 0; i++) {
		assert_int_equal(row[i].key, from + i);
		assert_int_equal(((const struct record *)row[i].record)->value, FIRST + from + i);
	}
	if (err == 0)
		assert_int_equal(n, LIVE);
	return err;
}

static void churn(void **state, bool ordered)
{
	const unsigned many = strcmp(fabric_of(state), "sim") == 0 ? MANY : MANY / 2;
	int err = 0;
	struct world w;

	open_small(&w, state, ordered ? 2 : 0);
	vb_log_mute();
	for (uint64_t key = 0; key < many && err == 0; key++) {
		err = surely(&w, key % 3 ? w.a : w.b, add, key);
		if (err == 0 && key >= LIVE)
			err = surely(&w, key % 2 ? w.a : w.b, drop, key - LIVE);
		if (err == 0 && key >= LIVE && key % 16 == 0)
			check_live(&w, key - LIVE + 1, key + 1);
		if (err == 0 && key >= LIVE && key % 50 == 0)
			assert_int_equal(surely(&w, w.a, is_not_there, key - LIVE - key % 7), 0);
	}
	vb_log_unmute();
	assert_int_equal(err, gives_back(&w) ? 0 : -ENOSPC);
	if (gives_back(&w)) {
		check_live(&w, many - LIVE, many);
		assert_true(tuples(&w, w.t) <= w.t->room * NODES);
		assert_true(keys_in_index(w.t) <= tuples(&w, w.t));
	}
	nothing_is_held(&w, w.t);
	close_world(&w);
}

static void more_than_room(void **state)
{
	churn(state, false);
}

static void more_than_room_in_order(void **state)
{
	churn(state, true);
}

/* Keys that are only looked for.  Nobody gives places back where nobody knows how long others may be late. */
static void looked_for_in_vain(void **state)
{
	for (unsigned recovery = 0; recovery < 2; recovery++) {
		struct world w;
		int err = 0;

		open_small_db(&w, state, 0, !recovery);
		vb_log_mute();
		for (uint64_t key = 0; key < MANY && err == 0; key++)
			err = surely(&w, w.a, is_not_there, key);
		vb_log_unmute();
		assert_int_equal(err, recovery && gives_back(&w) ? 0 : -ENOSPC);
		close_world(&w);
	}
}

/* ---- one place ---- */

/* So many keys that the node's server looks for places: even keys are node 0's. */
static void fill(struct world *w, uint64_t from, unsigned n)
{
	for (uint64_t i = 0; i < n; i++)
		must(surely(w, w->a, is_not_there, from + i * NODES));
}

static bool is_hidden(const struct world *w, uint64_t key)
{
	return vb_index_is_hidden(&w->t->node[vb_table_node(w->t, key)].index, key);
}

static bool has_place(const struct world *w, uint64_t key)
{
	return vb_table_find(w->t, vb_table_node(w->t, key), key) != 0;
}

/* A key that is hidden, and others behind it. */
static uint64_t hide_one(struct world *w, uint64_t except)
{
	wait_grace(w);
	fill(w, 0, ASKED + 4);
	for (uint64_t key = 0; key < 2 * ASKED; key += NODES)
		if (is_hidden(w, key) && key != except)
			return key;
	fail_msg("nothing was hidden");
	return 0;
}

/* Who wants it has it, and it stays. */
static void wanted_again(void **state)
{
	struct world w;
	uint64_t key;

	open_small(&w, state, 0);
	if (gives_back(&w)) {
		key = hide_one(&w, UINT64_MAX);
		must(surely(&w, w.b, add, key));
		wait_grace(&w);
		fill(&w, 1000, 8);
		assert_true(has_place(&w, key) && !is_hidden(&w, key));
		must(surely(&w, w.a, is_there, key));
	}
	close_world(&w);
}

/* Begun before the key was hidden, and committed behind that. */
static void written_while_hidden(void **state)
{
	struct world w;
	int err;

	open_small(&w, state, 0);
	if (!gives_back(&w)) {
		close_world(&w);
		return;
	}
	must(surely(&w, w.a, is_not_there, 4));
	must(vb_txn_begin(w.b));
	err = is_not_there(w.b, w.t, 4);
	if (err == 0)
		err = add(w.b, w.t, 4);
	(void)hide_one(&w, 4);
	if (err == 0)
		err = vb_txn_commit(w.b);
	vb_txn_abort(w.b);
	wait_grace(&w);
	fill(&w, 1000, 30);
	/* Its lease may have been over. */
	assert_true(err == 0 || err == -EAGAIN);
	if (err == 0)
		must(surely(&w, w.a, is_there, 4));
	else
		must(surely(&w, w.a, is_not_there, 4));
	close_world(&w);
}

/* Its place is given to others while it stands still. */
static void too_late(void **state)
{
	struct world w;
	int err;

	open_small(&w, state, 0);
	if (!gives_back(&w)) {
		close_world(&w);
		return;
	}
	for (unsigned reads = 0; reads < 2; reads++) {
		uint64_t base = 10000 * (1 + reads), key = base + 2;

		must(surely(&w, w.a, is_not_there, key));
		must(vb_txn_begin(w.b));
		err = reads ? is_not_there(w.b, w.t, key) : add(w.b, w.t, key);
		assert_int_equal(err, 0);
		vb_log_mute();
		for (uint64_t i = 0; i < 200; i++)
			must(surely(&w, w.a, i % 4 ? is_not_there : add, base + 100 + i * NODES));
		vb_log_unmute();
		err = reads ? add(w.b, w.t, key) : 0;
		if (err == 0)
			err = vb_txn_commit(w.b);
		assert_true(err == -EAGAIN);
		vb_txn_abort(w.b);
		must(surely(&w, w.a, is_not_there, key));
		for (uint64_t i = 0; i < 200; i += 4) {
			must(surely(&w, w.a, is_there, base + 100 + i * NODES));
			must(surely(&w, w.b, drop, base + 100 + i * NODES));
		}
	}
	nothing_is_held(&w, w.t);
	close_world(&w);
}

/* Until the place is that of another key, which is told: one that is only looked for. */
static uint64_t whose_place(struct world *w, vb_addr at, uint64_t from)
{
	for (uint64_t key = from; key < from + MANY; key += NODES) {
		must(surely(w, w->a, is_not_there, key));
		if (vb_table_find(w->t, vb_table_node(w->t, key), key) == at)
			return key;
	}
	fail_msg("nobody got the place");
	return 0;
}

/* Who began before the record was deleted, and stands still until its place is another key's, does not find it
 * as that one's. */
static void another_keys_record(void **state)
{
	struct world w;

	open_small(&w, state, 0);
	for (unsigned level = 0; gives_back(&w) && level < VB_ISOLATIONS; level++) {
		const struct vb_txn_params p = {.isolation = (enum vb_isolation)level};
		uint64_t key = 10000 * (1 + level), other;
		struct record r;
		vb_addr at;
		int err;

		if (!vb_cc_offers(w.db->cc, p.isolation))
			continue;
		vb_log_mute();
		must(surely(&w, w.a, add, key));
		vb_log_unmute();
		at = vb_table_find(w.t, vb_table_node(w.t, key), key);
		/* So long that a snapshot has it. */
		must(vb_ep_sleep(w.a->ep, 2 * LEASE));
		must(vb_txn_begin_with(w.b, &p));
		tick(w.a);
		must(surely(&w, w.a, drop, key));
		vb_log_mute();
		other = whose_place(&w, at, key + 100);
		vb_log_unmute();
		err = vb_txn_read(w.b, w.t, other, &r);
		assert_true(err == -ENOENT || err == -EAGAIN);
		vb_txn_abort(w.b);
		must(surely(&w, w.b, is_not_there, other));
	}
	close_world(&w);
}

/* What a process remembers of where keys were. */
static void remembered(void **state)
{
	struct world w;

	open_small(&w, state, 0);
	if (gives_back(&w)) {
		must(surely(&w, w.b, add, 2));
		must(surely(&w, w.b, drop, 2));
		vb_log_mute();
		for (uint64_t i = 0; i < 150; i++)
			must(surely(&w, w.a, i % 4 ? is_not_there : add, 100 + i * NODES));
		vb_log_unmute();
		assert_false(has_place(&w, 2) && !is_hidden(&w, 2));
		must(surely(&w, w.b, is_not_there, 2));
		must(surely(&w, w.b, add, 2));
		must(surely(&w, w.a, is_there, 2));
	}
	close_world(&w);
}

/* A new server goes on with what the one before has hidden and freed. */
static void another_server(void **state)
{
	struct world w;
	uint64_t key;
	int err = -VB_EPEERGONE;

	open_small(&w, state, 0);
	if (gives_back(&w)) {
		key = hide_one(&w, UINT64_MAX);
		stop_servers(&w);
		start_servers(&w);
		vb_log_mute();
		for (unsigned i = 0; i <= NODES && err != 0; i++)
			err = surely(&w, w.a, is_not_there, 500 + i * NODES);
		must(err);
		wait_grace(&w);
		fill(&w, 1000, 2);
		assert_false(has_place(&w, key) && is_hidden(&w, key));
		stop_servers(&w);
		start_servers(&w);
		for (unsigned i = 0; i <= NODES; i++)
			err = surely(&w, w.a, is_not_there, 600 + i * NODES);
		must(err);
		for (uint64_t i = 0; i < 150; i++)
			must(surely(&w, w.a, is_not_there, 2000 + i * NODES));
		vb_log_unmute();
	}
	close_world(&w);
}

/* What was freed is not looked at by scans, nor in the order. */
static void scans_go_past(void **state)
{
	uint64_t last = 0;
	struct world w;

	open_small(&w, state, 2);
	if (gives_back(&w)) {
		vb_log_mute();
		for (uint64_t key = 0; key < 300; key++) {
			must(surely(&w, w.a, add, key));
			if (key >= LIVE)
				must(surely(&w, w.b, drop, key - LIVE));
			last = key;
		}
		vb_log_unmute();
		for (uint16_t node = 0; node < NODES; node++)
			assert_true(w.t->node[node].order->keys < 300 / NODES);
		must(surely(&w, w.b, scan_live, last - LIVE + 1));
		assert_true(w.b->txn.n < 300);
	}
	close_world(&w);
}

/* ---- places of ranges ---- */

#define WIDE_SHIFT 11u

static int look_through(struct vb_coordinator *me, struct vb_table *t, uint64_t key)
{
	const struct vb_txn_range few = {key, key + 3, false};
	struct vb_txn_row row[4];
	unsigned n;

	return vb_txn_scan(me, t, &few, row, 4, &n);
}

/* A range that had more keys than its map has room for is given back when it has none any more. */
static void more_than_a_map(void **state)
{
	const struct kind *k = *state;
	const uint64_t wide = 1ull << WIDE_SHIFT, *map;
	struct world w;
	vb_addr range;

	if (k->hybrid != NULL)
		return;
	open_small(&w, state, WIDE_SHIFT);
	if (gives_back(&w)) {
		vb_log_mute();
		must(surely(&w, w.a, look_through, 0));
		range = vb_table_find(w.t->ranges, 0, 0);
		for (uint64_t key = 0; key <= VB_KEYMAP_LIST; key++)
			must(surely(&w, w.a, is_not_there, key));
		map = vb_local(w.f, range + w.t->ranges->layout.beside_at, 8);
		assert_int_equal(map[0], 1);
		for (uint64_t i = 1; vb_table_find(w.t->ranges, 0, 0) != 0; i++) {
			assert_true(i < MANY);
			must(surely(&w, w.a, look_through, i * NODES * wide));
			must(surely(&w, w.a, is_not_there, i * NODES * wide + 1));
		}
		must(surely(&w, w.b, add, 7));
		must(surely(&w, w.a, look_through, 0));
		vb_log_unmute();
	}
	close_world(&w);
}

int main(int argc, char **argv)
{
	static const struct case_for_all cases[] = {
		{"more keys than room", more_than_room},
		{"more keys than room, in order", more_than_room_in_order},
		{"looked for in vain", looked_for_in_vain},
		{"wanted again", wanted_again},
		{"written while hidden", written_while_hidden},
		{"too late", too_late},
		{"another key's record", another_keys_record},
		{"remembered", remembered},
		{"another server", another_server},
		{"scans go past", scans_go_past},
		{"a range of more keys than a map has", more_than_a_map},
	};
	static const char *const fabrics[] = {"sim", NULL};
	static struct CMUnitTest tests[TESTS_MAX];
	size_t n = tests_for_all(argc, argv, fabrics, cases, VB_ARRAY_SIZE(cases), tests);

	return _cmocka_run_group_tests("transactions: places", tests, n, NULL, NULL);
}
