/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What include/verbena/txn.h says of ordered tables and of scans, for every protocol, one-sided and by RPC.  What
 * two transactions make of it: test_txn_scan_two.c.
 */
#include "txn_scan.h"

#include "store/keymap.h"
#include "store/ordered.h"

/* ---- what is given ---- */

static void gives_what_is_there(void **state)
{
	struct world w;
	unsigned n = 7;

	open_keys(&w, state);
	alone(w.a, gives(w.a, w.t, all_keys, 99, keys, N_KEYS));
	alone(w.b, gives(w.b, w.t, all_down, 99, KEYS(40, 23, 22, 21, 20, 11, 10, 9, 5, 2, 1)));
	/* Both ends are included, and may be the same key. */
	alone(w.a,
	      gives(w.a, w.t, (struct vb_txn_range){2, 20, false}, 99, KEYS(2, 5, 9, 10, 11, 20)));
	alone(w.a,
	      gives(w.a, w.t, (struct vb_txn_range){2, 20, true}, 99, KEYS(20, 11, 10, 9, 5, 2)));
	alone(w.a, gives(w.a, w.t, (struct vb_txn_range){9, 9, true}, 99, KEYS(9)));
	/* No more than there is room for. */
	alone(w.a, gives(w.a, w.t, all_keys, 4, KEYS(1, 2, 5, 9)));
	alone(w.a, gives(w.a, w.t, all_down, 3, KEYS(40, 23, 22)));
	alone(w.a, gives(w.a, w.t, all_keys, 0, NULL, 0));
	/* Nothing there, and nothing that could be. */
	alone(w.a, gives(w.a, w.t, (struct vb_txn_range){24, 39, false}, 99, NULL, 0));
	alone(w.a, gives(w.a, w.t, (struct vb_txn_range){9, 8, false}, 99, NULL, 0));
	/* *n is written on success alone. */
	must(vb_txn_begin(w.a));
	vb_txn_abort(w.a);
	refused(vb_txn_scan(w.a, w.t, &all_keys, (struct vb_txn_row[1]){{0}}, 1, &n), -EINVAL);
	assert_int_equal(n, 7);
	close_world(&w);
}

static void prefixes(void **state)
{
	struct vb_txn_range all = vb_txn_prefix(77, 64), end = vb_txn_prefix(UINT64_MAX, 2);
	struct world w;

	open_keys(&w, state);
	alone(w.a, gives(w.a, w.t, vb_txn_prefix(10, 2), 99, KEYS(9, 10, 11)));
	alone(w.a, gives(w.a, w.t, vb_txn_prefix(16, 4), 99, KEYS(20, 21, 22, 23)));
	alone(w.a, gives(w.a, w.t, vb_txn_prefix(5, 0), 99, KEYS(5)));
	assert_true(all.least == 0 && all.most == UINT64_MAX && !all.descending);
	/* The last keys that there are. */
	must(vb_txn_begin(w.a));
	must(vb_txn_insert(w.a, w.t, UINT64_MAX, &(struct record){.value = FIRST + UINT64_MAX}));
	must(gives(w.a, w.t, end, 99, KEYS(UINT64_MAX)));
	end.descending = true;
	must(gives(w.a, w.t, end, 99, KEYS(UINT64_MAX)));
	must(gives(w.a, w.t, (struct vb_txn_range){0, 3, true}, 99, KEYS(2, 1)));
	must(vb_txn_commit(w.a));
	close_world(&w);
}

static int go_on(struct vb_coordinator *me, struct vb_table *t, bool down)
{
	struct vb_txn_range left = down ? all_down : all_keys;
	struct vb_txn_row row[2];
	unsigned n, sum = 0;
	int err;

	do {
		err = vb_txn_scan(me, t, &left, row, 2, &n);
		for (unsigned i = 0; i < n && err == 0; i++, sum++)
			assert_int_equal(row[i].key, keys[down ? N_KEYS - 1 - sum : sum]);
		if (err == 0 && n == 2 && down)
			left.most = row[1].key - 1;
		else if (err == 0 && n == 2)
			left.least = row[1].key + 1;
	} while (err == 0 && n == 2);
	if (err == 0)
		assert_int_equal(sum, N_KEYS);
	return err;
}

static void goes_on_behind(void **state)
{
	struct world w;

	open_keys(&w, state);
	alone(w.a, go_on(w.a, w.t, false));
	alone(w.a, go_on(w.a, w.t, true));
	close_world(&w);
}

/* A range of 256 keys of which 150 are there comes in three answers. */
static void more_than_an_answer(void **state)
{
	const struct vb_table_params lp = line(8);
	uint64_t up[150], down[150];
	struct world w;

	_Static_assert(VB_SCAN_KEYS * 2 < 150, "three answers");
	for (unsigned i = 0; i < 150; i++)
		up[i] = down[149 - i] = i;
	open_line(&w, state, &lp, 1, 150);
	alone(w.a, gives(w.a, w.t, (struct vb_txn_range){0, 400, false}, 200, up, 150));
	alone(w.a, gives(w.a, w.t, (struct vb_txn_range){0, 400, true}, 200, down, 150));
	alone(w.a, gives(w.a, w.t, (struct vb_txn_range){0, 63, false}, 200, up, 64));
	alone(w.a, gives(w.a, w.t, (struct vb_txn_range){3, 140, false}, 70, up + 3, 70));
	close_world(&w);
}

static void sees_its_own(void **state)
{
	const struct vb_txn_params soon = {.timeout_ns = SOON_NS};
	struct world w;
	int err;

	open_keys(&w, state);
	must(vb_txn_begin(w.a));
	must(gives(w.a, w.t, (struct vb_txn_range){0, 11, false}, 99, KEYS(1, 2, 5, 9, 10, 11)));
	must(vb_txn_insert(w.a, w.t, 4, &(struct record){.value = FIRST + 4}));
	must(vb_txn_delete(w.a, w.t, 9));
	must(gives(w.a, w.t, (struct vb_txn_range){0, 11, false}, 99, KEYS(1, 2, 4, 5, 10, 11)));
	must(gives(w.a, w.t, (struct vb_txn_range){0, 11, true}, 2, KEYS(11, 10)));
	must(vb_txn_insert(w.a, w.t, 9, &(struct record){.value = FIRST + 9}));
	must(vb_txn_delete(w.a, w.t, 4));
	must(gives(w.a, w.t, (struct vb_txn_range){0, 11, false}, 99, KEYS(1, 2, 5, 9, 10, 11)));
	/* Behind the scan, of what it has given. */
	must(vb_txn_write(w.a, w.t, 5, &(struct record){.value = FIRST + 5, .other = 8}));
	must(vb_txn_insert(w.a, w.t, 30, &(struct record){.value = FIRST + 30}));
	must(vb_txn_delete(w.a, w.t, 40));
	must(vb_txn_commit(w.a));
	tick(w.a);
	alone(w.b, gives(w.b, w.t, (struct vb_txn_range){21, 63, false}, 99, KEYS(21, 22, 23, 30)));
	/* What is not committed others do not see, as long as it is under way. */
	must(vb_txn_begin(w.a));
	must(vb_txn_insert(w.a, w.t, 31, &(struct record){.value = FIRST + 31}));
	must(vb_txn_delete(w.a, w.t, 30));
	tick(w.b);
	must(vb_txn_begin_with(w.b, &soon));
	err = gives(w.b, w.t, (struct vb_txn_range){24, 63, true}, 99, KEYS(30));
	assert_true(err == 0 || err == -EAGAIN || err == -ETIMEDOUT);
	vb_txn_abort(w.b);
	/* One that is given up leaves nothing, but keys that have no record. */
	vb_txn_abort(w.a);
	tick(w.a);
	alone(w.b, gives(w.b, w.t, (struct vb_txn_range){24, 63, true}, 99, KEYS(30)));
	close_world(&w);
}

/* A new server makes the order from what is there.  That it is another is learned by a call to each that is
 * not answered. */
static void survives_its_server(void **state)
{
	static const struct vb_txn_range upper = {12, 63, false};
	int err = -VB_EPEERGONE;
	struct world w;

	open_keys(&w, state);
	alone(w.a, add(w.a, w.t, 33));
	alone(w.a, vb_txn_delete(w.a, w.t, 23));
	stop_servers(&w);
	start_servers(&w);
	assert_int_equal(w.t->node[0].order->keys + w.t->node[1].order->keys,
			 w.t->node[0].index.header->tuples + w.t->node[1].index.header->tuples);
	vb_log_mute();
	for (unsigned i = 0; i <= NODES && err == -VB_EPEERGONE; i++) {
		must(vb_txn_begin(w.b));
		err = gives(w.b, w.t, upper, 99, KEYS(20, 21, 22, 33, 40));
	}
	vb_log_unmute();
	must(err);
	must(vb_txn_commit(w.b));
	close_world(&w);
}

/* An owner died when it had taken a tuple for key 25 and not put it in the index: the next makes another. */
static void owner_died_over_a_key(void **state)
{
	static const struct vb_txn_range four = {24, 27, false};
	struct vb_table_node *n;
	int err = -VB_EPEERGONE;
	struct world w;
	char *tuple;

	open_keys(&w, state);
	stop_servers(&w);
	n = &w.t->node[vb_table_node(w.t, 25)];
	tuple = n->index.segment + vb_addr_offset(n->header) + sizeof(struct vb_table_header) +
		n->index.header->tuples * w.t->layout.stride;
	vb_tuple_set_word(tuple, VB_TUPLE_KEY_AT, 25);
	n->index.header->tuples++;
	start_servers(&w);
	vb_log_mute();
	for (unsigned i = 0; i <= NODES && err == -VB_EPEERGONE; i++) {
		must(vb_txn_begin(w.a));
		err = gives(w.a, w.t, all_keys, 99, keys, N_KEYS);
	}
	vb_log_unmute();
	must(err);
	must(vb_txn_commit(w.a));
	tick(w.a);
	alone(w.a, add(w.a, w.t, 25));
	alone(w.a, add(w.a, w.t, 26));
	alone(w.a, gives(w.a, w.t, four, 99, KEYS(25, 26)));
	close_world(&w);
}
/* ---- what a scan touches ---- */

/* Three records lie in two ranges; B holds the third. */
static void no_more_than_needed(void **state)
{
	const struct vb_txn_params patient = {.timeout_ns = LONG_NS};
	struct world w;

	open_keys(&w, state);
	must(vb_txn_begin(w.b));
	must(add(w.b, w.t, 8));
	tick(w.a);
	must(vb_txn_begin_with(w.a, &patient));
	must(gives(w.a, w.t, all_keys, 3, KEYS(1, 2, 5)));
	assert_int_equal(w.a->txn.n, 2 + 3);
	must(vb_txn_commit(w.a));
	vb_txn_abort(w.b);
	close_world(&w);
}

static uint64_t scan_ns(struct vb_coordinator *me, struct vb_table *t, unsigned room)
{
	uint64_t begin;

	must(vb_txn_begin(me));
	begin = vb_ep_now(me->ep);
	must(gives(me, t, (struct vb_txn_range){0, 63, false}, room, KEYS(63)));
	begin = vb_ep_now(me->ep) - begin;
	must(vb_txn_commit(me));
	tick(me);
	return begin;
}

/* Room for one and 63 keys that have none: not one after the other. */
static void room_for_one(void **state)
{
	const struct vb_table_params lp = line(6);
	uint64_t one, many;
	struct world w;

	if (strcmp(fabric_of(state), "sim") != 0)
		return;
	open_line(&w, state, &lp, 1, 64);
	for (uint64_t key = 0; key < 63; key++)
		alone(w.a, vb_txn_delete(w.a, w.t, key));
	(void)scan_ns(w.a, w.t, 64);
	many = scan_ns(w.a, w.t, 64);
	one = scan_ns(w.a, w.t, 1);
	assert_in_range(one, 1, 3 * many);
	close_world(&w);
}

/* Behind 16 keys that have none: of the 47 others in the range eight at most are read for nothing. */
static void eight_too_many(void **state)
{
	const struct vb_table_params lp = line(6);
	struct world w;

	open_line(&w, state, &lp, 1, 64);
	for (uint64_t key = 0; key < 16; key++)
		alone(w.a, vb_txn_delete(w.a, w.t, key));
	tick(w.a);
	must(vb_txn_begin(w.a));
	must(gives(w.a, w.t, all_keys, 1, KEYS(16)));
	assert_in_range(w.a->txn.n, 1 + 17, 1 + 17 + 8);
	must(vb_txn_commit(w.a));
	close_world(&w);
}

static void snapshots_count_no_ranges(void **state)
{
	const struct vb_txn_params p = {.isolation = VB_SNAPSHOT};
	const struct kind *k = *state;
	struct world w;

	if (!vb_cc_offers(k->ops, VB_SNAPSHOT))
		return;
	open_keys(&w, state);
	must(vb_txn_begin_with(w.a, &p));
	must(gives(w.a, w.t, all_keys, 3, KEYS(1, 2, 5)));
	assert_int_equal(w.a->txn.n, 3);
	must(vb_txn_commit(w.a));
	close_world(&w);
}

/* More records are taken from the front than a transaction may read. */
static void queue(void **state)
{
	struct vb_txn_range rest = {0, UINT64_MAX, false};
	const struct vb_table_params lp = line(6);
	struct vb_txn_row row[1];
	struct world w;
	unsigned n;

	if (strcmp(fabric_of(state), "sim") != 0)
		return;
	open_line(&w, state, &lp, 1, LINE_ITEMS + 10);
	for (uint64_t key = 0; key < LINE_ITEMS; key++) {
		must(vb_txn_begin(w.a));
		must(vb_txn_scan(w.a, w.t, &rest, row, 1, &n));
		assert_true(n == 1 && row[0].key == key);
		must(vb_txn_delete(w.a, w.t, key));
		must(vb_txn_commit(w.a));
		tick(w.a);
		rest.least = key + 1;
	}
	alone(w.a, gives(w.a, w.t, rest, 1, KEYS(LINE_ITEMS)));
	must(vb_txn_begin(w.a));
	rest.least = 0;
	refused(vb_txn_scan(w.a, w.t, &rest, row, 1, &n), -E2BIG);
	close_world(&w);
}

/* ---- who is asked ---- */

static bool by_rpc(const struct world *w)
{
	return w->db->fetch_by_rpc;
}

/* So many calls of servers does it take, if it is not by RPC. */
static void takes_calls(const struct world *w, unsigned calls, struct vb_txn_range range,
			const uint64_t *expect, unsigned n)
{
	uint64_t before;

	must(vb_txn_begin(w->a));
	before = w->a->calls;
	must(gives(w->a, w->t, range, 99, expect, n));
	if (by_rpc(w))
		assert_true(w->a->calls > before);
	else
		assert_int_equal(w->a->calls, before + calls);
	must(vb_txn_commit(w->a));
	tick(w->a);
}

/* Where ranges have been looked at before, one-sided: also when the servers are gone. */
static void asks_nobody(void **state)
{
	static const struct vb_txn_range few = {4, 23, false}, few_down = {4, 23, true};
	struct world w;

	open_keys(&w, state);
	alone(w.b, gives(w.b, w.t, few, 99, KEYS(5, 9, 10, 11, 20, 21, 22, 23)));
	takes_calls(&w, 0, few, KEYS(5, 9, 10, 11, 20, 21, 22, 23));
	/* What comes later is there, too. */
	alone(w.b, add(w.b, w.t, 13));
	alone(w.b, add(w.b, w.t, 6));
	alone(w.b, vb_txn_delete(w.b, w.t, 10));
	takes_calls(&w, 0, few_down, KEYS(23, 22, 21, 20, 13, 11, 9, 6, 5));
	if (w.db->rpc_stages == 0) {
		stop_servers(&w);
		takes_calls(&w, 0, few, KEYS(5, 6, 9, 11, 13, 20, 21, 22, 23));
		start_servers(&w);
	}
	close_world(&w);
}

/* The first look at a range is one at its tuple, which is made. */
static void first_look(void **state)
{
	const struct vb_txn_params p = {.isolation = VB_SNAPSHOT};
	const struct kind *k = *state;
	struct world w;

	open_keys(&w, state);
	takes_calls(&w, 1, (struct vb_txn_range){20, 23, false}, KEYS(20, 21, 22, 23));
	takes_calls(&w, 0, (struct vb_txn_range){20, 23, false}, KEYS(20, 21, 22, 23));
	if (vb_cc_offers(k->ops, VB_SNAPSHOT)) {
		must(vb_txn_begin_with(w.a, &p));
		must(gives(w.a, w.t, all_keys, 99, keys, N_KEYS));
		must(vb_txn_commit(w.a));
		takes_calls(&w, 0, all_keys, keys, N_KEYS);
	}
	close_world(&w);
}

/* What a process remembers of where a range is may be where another is: two that share the entry of the location
 * cache, or threads that wrote it at once.  At a snapshot, too, nobody takes the one's map for the other's. */
static void wrong_guess(void **state)
{
	const struct kind *k = *state;
	struct world w;

	open_keys(&w, state);
	for (unsigned level = 0; level < VB_ISOLATIONS; level++) {
		const struct vb_txn_params p = {.isolation = (enum vb_isolation)level};
		struct vb_table *ranges = w.t->ranges;

		if (!vb_cc_offers(k->ops, p.isolation))
			continue;
		alone(w.a, gives(w.a, w.t, all_keys, 99, keys, N_KEYS));
		vb_cache_put(w.db->cache, ranges, 20, vb_table_find(ranges, 0, 8),
			     vb_txn_epoch(w.a));
		must(vb_txn_begin_with(w.a, &p));
		must(gives(w.a, w.t, all_keys, 99, keys, N_KEYS));
		must(vb_txn_commit(w.a));
		assert_true(w.db->cache == NULL ||
			    vb_cache_get(w.db->cache, ranges, 20, vb_txn_epoch(w.a)) !=
				    vb_table_find(ranges, 0, 8));
	}
	close_world(&w);
}

/* A map of many keys has room for some. */
static void more_than_a_map(void **state)
{
	static const struct vb_txn_range up = {0, 2000, false}, down = {0, 2000, true};
	const struct vb_table_params lp = line(11);
	uint64_t key[VB_KEYMAP_LIST + 1], back[VB_KEYMAP_LIST + 1];
	const unsigned n = VB_KEYMAP_LIST + 1;
	struct world w;

	for (unsigned i = 0; i < n; i++)
		key[i] = back[n - 1 - i] = i * 7;
	open_line(&w, state, &lp, 7, n - 3);
	alone(w.b, gives(w.b, w.t, up, 99, key, n - 3));
	alone(w.b, add(w.b, w.t, (n - 2) * 7));
	alone(w.b, add(w.b, w.t, (n - 3) * 7));
	takes_calls(&w, 0, up, key, n - 1);
	takes_calls(&w, 0, down, back + 1, n - 1);
	takes_calls(&w, 0, (struct vb_txn_range){8, 20, false}, KEYS(14));
	alone(w.b, add(w.b, w.t, (n - 1) * 7));
	takes_calls(&w, 1, up, key, n);
	takes_calls(&w, 1, down, back, n);
	/* One that is met when it has so many. */
	for (uint64_t i = 0; i < n; i++)
		must(vb_table_load(w.t, 2048 + i, &(struct record){.value = FIRST + 2048 + i}));
	takes_calls(&w, 2, (struct vb_txn_range){2050, 2051, false}, KEYS(2050, 2051));
	close_world(&w);
}

/* A key whose range is new, too. */
static void one_call_for_both(void **state)
{
	struct world w;
	uint64_t before;

	open_keys(&w, state);
	must(vb_txn_begin(w.a));
	before = w.a->calls;
	must(add(w.a, w.t, 50));
	assert_true(by_rpc(&w) || w.a->calls == before + 1);
	/* The same where the transaction has taken more than it may. */
	for (uint64_t key = 1000; w.a->txn.n < w.db->items_max - 1; key++)
		must(find_none(w.a, w.t, key));
	refused(add(w.a, w.t, 60), -E2BIG);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_MISUSE);
	assert_none(w.a, w.t, 50);
	close_world(&w);
}

/* A scan goes as the protocol's first fetch does, whatever the rest of the code is. */
static void goes_as_reads_go(void **state)
{
	const struct kind *k = *state;
	char code[VB_STAGES_MAX + 1] = "";
	unsigned fetch = 0;
	struct world w;

	if (k->ops->code != NULL || k->hybrid != NULL)
		return;
	while (!(k->ops->stages[fetch].flags & VB_STAGE_FETCHES))
		fetch++;
	for (unsigned rpc = 0; rpc < 2; rpc++) {
		struct kind mixed = {.ops = k->ops, .hybrid = code, .fabric = k->fabric};
		void *mixed_state = &mixed;

		memset(code, rpc ? '0' : '1', k->ops->n_stages);
		code[fetch] = rpc ? '1' : '0';
		open_keys(&w, &mixed_state);
		assert_int_equal(by_rpc(&w), rpc);
		alone(w.b, gives(w.b, w.t, all_keys, 99, keys, N_KEYS));
		alone(w.b, add(w.b, w.t, 30));
		alone(w.b, vb_txn_delete(w.b, w.t, 22));
		takes_calls(&w, 0, (struct vb_txn_range){16, 63, true}, KEYS(40, 30, 23, 21, 20));
		close_world(&w);
	}
}

/* ---- what is refused ---- */

static void not_ordered(void **state)
{
	struct vb_txn_row row[4];
	struct vb_table *plain;
	struct world w;
	unsigned n;

	open_keys(&w, state);
	must(vb_table_open(w.db, &usual_table, &plain));
	must(vb_txn_begin(w.a));
	refused(vb_txn_scan(w.a, plain, &all_keys, row, 4, &n), -EINVAL);
	must(gives(w.a, w.t, all_keys, 1, KEYS(1)));
	must(vb_txn_commit(w.a));
	close_world(&w);
}

static void too_wide(void **state)
{
	const struct vb_txn_range wide = {0, UINT64_MAX, false};
	struct vb_txn_row row[32];
	unsigned n = 77;
	struct world w;

	open_keys(&w, state);
	must(vb_txn_begin(w.a));
	refused(vb_txn_scan(w.a, w.t, &wide, row, 32, &n), -E2BIG);
	/* It has gone through some ranges; of that nothing is told. */
	assert_int_equal(n, 77);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_MISUSE);
	assert_int_equal(vb_txn_scan(w.a, w.t, &all_keys, row, 32, &n), -EAGAIN);
	/* As far as it needs to go. */
	alone(w.a, gives(w.a, w.t, wide, N_KEYS, keys, N_KEYS));
	close_world(&w);
}

static void no_room_for_ranges(void **state)
{
	struct vb_table_params lp = line(1);
	struct world w;
	int err = 0;

	lp.ranges = 1;
	open_line(&w, state, &lp, 1, 4);
	vb_log_mute();
	for (uint64_t key = 10; key < LINE_RECORDS && err == 0; key += 2) {
		must(vb_txn_begin(w.a));
		err = add(w.a, w.t, key);
		err = err == 0 ? vb_txn_commit(w.a) : err;
	}
	vb_log_unmute();
	assert_int_equal(err, -ENOSPC);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_MISUSE);
	close_world(&w);
}

static void no_memory_for_order(void **state)
{
	/* The first is known, and two further on is one of the same node. */
	static const struct vb_txn_range four = {0, 3, false}, third = {512, 515, false};
	const struct vb_table_params lp = line(8);
	const struct vb_txn_range *range;
	struct vb_txn_row row[4];
	struct world w;
	unsigned n;

	open_line(&w, state, &lp, 1, 4);
	range = by_rpc(&w) ? &four : &third;
	alone(w.a, gives(w.a, w.t, four, 4, KEYS(0, 1, 2, 3)));
	w.t->node[0].order->bytes_max = vb_ordered_bytes(w.t->node[0].order);
	for (uint64_t key = 4; key < 256; key++)
		must(vb_table_load(w.t, key, &(struct record){.value = FIRST}));
	must(vb_txn_begin(w.a));
	refused(vb_txn_scan(w.a, w.t, range, row, 4, &n), -ENOSPC);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_MISUSE);
	/* Nothing of it is half there. */
	w.t->node[0].order->bytes_max = 0;
	alone(w.a, gives(w.a, w.t, four, 4, KEYS(0, 1, 2, 3)));
	alone(w.a, gives(w.a, w.t, third, 4, NULL, 0));
	close_world(&w);
}

/* Who comes second must ask for an order, too, and for the same ranges; what is refused leaves neither table. */
static void same_ranges(void **state)
{
	const struct vb_table_params first = line(2);
	struct vb_db_params p = usual_db(*state, LONG_NS);
	struct vb_table_params lp = first;
	struct vb_table *t;
	struct vb_db *db;
	struct world w;

	open_keys(&w, state);
	p.items_max = LINE_ITEMS;
	p.bytes_max = LINE_ITEMS * sizeof(struct record);
	must(vb_db_open(w.f, &p, &db));
	lp.range_shift++;
	refused(vb_table_open(db, &lp, &t), -EINVAL);
	lp = first;
	lp.ranges = 2;
	refused(vb_table_open(db, &lp, &t), -EINVAL);
	lp = first;
	lp.ordered = false;
	lp.range_shift = 0;
	refused(vb_table_open(db, &lp, &t), -EINVAL);
	assert_int_equal(db->store.n_tables, 0);
	must(vb_table_open(db, &first, &t));
	vb_db_close(db);
	close_world(&w);
}

static void parameters(void **state)
{
	const struct kind *k = *state;
	struct vb_db_params p = usual_db(k, LONG_NS);
	struct vb_table_params lp = line(2), plain = usual_table;
	struct vb_table *t;
	struct world w;

	open_keys(&w, state);
	/* Both tables, on every node. */
	plain.ordered = true;
	assert_true(vb_table_node_bytes(&p, &plain, NODES) >
		    vb_table_node_bytes(&p, &usual_table, NODES));
	lp.name = NULL;
	assert_int_equal(vb_table_node_bytes(&p, &lp, NODES),
			 vb_table_node_bytes(&p, (struct vb_table_params[1]){line(2)}, NODES));
	lp = line(2);
	plain.ordered = false;
	plain.range_shift = 2;
	refused(vb_table_open(w.db, &plain, &t), -EINVAL);
	plain.range_shift = 0;
	plain.ranges = 2;
	refused(vb_table_open(w.db, &plain, &t), -EINVAL);
	lp.range_shift = 33;
	lp.name = "other";
	refused(vb_table_open(w.db, &lp, &t), -EINVAL);
	lp = line(2);
	lp.name = "a name of twenty-five let";
	refused(vb_table_open(w.db, &lp, &t), -EINVAL);
	lp.name = NULL;
	refused(vb_table_open(w.db, &lp, &t), -EINVAL);
	/* With one character less; 64 keys to a range, which lie on one node. */
	lp = line(0);
	lp.name = "a name of twenty-four le";
	must(vb_table_open(w.db, &lp, &t));
	for (uint64_t key = 0; key < 256; key++)
		assert_int_equal(vb_table_node(t, key), key / 64 % NODES);
	/* And the most. */
	lp.name = "wide";
	lp.range_shift = 32;
	must(vb_table_open(w.db, &lp, &t));
	assert_int_equal(vb_table_node(t, (1ull << 32) - 1), 0);
	assert_int_equal(vb_table_node(t, 1ull << 32), 1);
	lp.range_shift = 0;
	lp.name = "by the top";
	lp.partition = VB_PARTITION_TOP16;
	must(vb_table_open(w.db, &lp, &t));
	assert_int_equal(vb_table_node(t, 1ull << 48), 1);
	assert_int_equal(vb_table_node(t, 2ull << 48 | 77), 0);
	close_world(&w);
}

int main(int argc, char **argv)
{
	static const struct case_for_all cases[] = {
		{"gives what is there", gives_what_is_there},
		{"prefixes", prefixes},
		{"goes on behind the last", goes_on_behind},
		{"more keys than an answer has", more_than_an_answer},
		{"sees its own inserts and deletes", sees_its_own},
		{"survives its server", survives_its_server},
		{"an owner died over a key", owner_died_over_a_key},
		{"no more than needed", no_more_than_needed},
		{"room for one", room_for_one},
		{"eight too many", eight_too_many},
		{"snapshots count no ranges", snapshots_count_no_ranges},
		{"a queue", queue},
		{"asks nobody", asks_nobody},
		{"the first look", first_look},
		{"a range that is somewhere else", wrong_guess},
		{"more keys than a map has", more_than_a_map},
		{"one call for a key and its range", one_call_for_both},
		{"goes as reads go", goes_as_reads_go},
		{"a table that is not ordered", not_ordered},
		{"too wide", too_wide},
		{"no room for ranges", no_room_for_ranges},
		{"no memory for the order", no_memory_for_order},
		{"parameters", parameters},
		{"who comes second asks for the same ranges", same_ranges},
	};
	static const char *const fabrics[] = {"shm", "sim", NULL};
	static struct CMUnitTest tests[TESTS_MAX + 1];
	size_t n = tests_for_all(argc, argv, fabrics, cases, VB_ARRAY_SIZE(cases), tests);

	return _cmocka_run_group_tests("transactions: scans", tests, n, NULL, NULL);
}
