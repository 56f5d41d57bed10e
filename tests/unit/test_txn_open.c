/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening databases, tables, coordinators and servers: what include/verbena/txn.h refuses, that the
 * log says why, that a refusal leaves nothing behind, and that who comes second has to ask for the
 * same.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "txn_open.h"

static char long_name[] = "a-name-that-is-longer-by-one-cha";

/* ---- databases ---- */

static void bad_databases(void **state)
{
	struct vb_db_params p = usual();
	struct vb_fabric *f;
	struct vb_db *db;

	(void)state;
	open_fabric(&f, "shm", 16 << 20);
	refused_db(f, p_.cc = NULL);
	refused_db(f, p_.cc = "");
	refused_db(f, p_.cc = "silk");
	refused_db(f, p_.hybrid = "");
	refused_db(f, p_.hybrid = "0000");
	refused_db(f, p_.hybrid = "000000");
	refused_db(f, p_.hybrid = "00002");
	refused_db(f, p_.hybrid = "RPC");
	refused_db(f, p_.name = "");
	refused_db(f, p_.name = long_name);
	refused_db(f, p_.coordinators = 8192); /* 16384 on two nodes */
	refused_db(f, p_.coordinators = 1u << 30);
	refused_db(f, p_.coordinators = (1u << 30) + 1);
	refused_db(f, p_.items_max = VB_TXN_ITEMS_MAX + 1);
	refused_db(f, p_.record_bytes_max = VB_RECORD_BYTES_MAX + 1);
	refused_db(f, p_.bytes_max = UINT32_MAX);
	refused_db(f, p_.bytes_max = (256u << 20) + 1);
	refused_db(f, p_.lease_ns = UINT64_MAX);
	refused_db(f, p_.cache_entries = 3);
	/* On two nodes there is one other. */
	refused_db(f, p_.copies = 2);
	refused_db(f, p_.copies = UINT32_MAX);
	refused_db(f, p_.copies = 1; p_.no_recovery = true);
	/* None of them has left anything that the first real one would stumble over. */
	must(vb_db_open(f, &p, &db));
	vb_db_close(db);
	/* The most is no more than does not fit here. */
	p.name = "more";
	p.bytes_max = 256u << 20;
	refused(vb_db_open(f, &p, &db), -ENOSPC);
	vb_db_close(NULL);
	vb_fabric_close(f);
}

/* Whose transactions are decided by more than their status words. */
static void protocols_without_copies(void **state)
{
	struct vb_db_params p = usual();
	struct vb_fabric *f;
	struct vb_db *db = NULL;

	(void)state;
	open_fabric(&f, "shm", 64 << 20);
	p.copies = 1;
	p.hybrid = NULL;
	p.cc = "calvin";
	refused(vb_db_open(f, &p, &db), -EOPNOTSUPP);
	assert_null(db);
	vb_fabric_close(f);
}

static void every_code_of_a_protocol(void **state)
{
	struct vb_db_params p = usual();
	char code[] = "00000", name[32];
	struct vb_fabric *f;

	(void)state;
	open_fabric(&f, "shm", 64 << 20);
	for (unsigned bits = 0; bits < 32; bits++) {
		struct vb_db *db;

		for (unsigned i = 0; i < 5; i++)
			code[i] = (char)('0' + (bits >> i & 1));
		snprintf(name, sizeof(name), "db%u", bits);
		p.hybrid = code;
		p.name = name;
		must(vb_db_open(f, &p, &db));
		assert_int_equal(db->rpc_stages, bits);
		vb_db_close(db);
	}
	vb_fabric_close(f);
}

/* All of them, and with copies the log, too, which has a digit of its own then, and only then. */
static void all_by_rpc(void **state)
{
	struct vb_db_params p = usual();
	struct vb_fabric *f;

	(void)state;
	open_fabric(&f, "shm", 64 << 20);
	for (unsigned copies = 0; copies < 2; copies++) {
		struct vb_db *db;

		p.name = copies ? "copied" : "all";
		p.copies = copies;
		p.hybrid = "rpc";
		must(vb_db_open(f, &p, &db));
		assert_int_equal(db->rpc_stages, 0x1f);
		assert_int_equal(db->log_by_rpc, copies);
		vb_db_close(db);
		for (unsigned log = 0; log < 2; log++) {
			p.hybrid = log ? "000001" : "000000";
			if (!copies) {
				refused(vb_db_open(f, &p, &db), -EINVAL);
				continue;
			}
			p.name = log ? "by RPC" : "one-sided";
			must(vb_db_open(f, &p, &db));
			assert_int_equal(db->rpc_stages, 0);
			assert_int_equal(db->log_by_rpc, log);
			vb_db_close(db);
		}
	}
	vb_fabric_close(f);
}

/* drtm-h is a name for one of silo's codes: it is opened with that one, and refuses the others. */
static void a_name_for_a_code(void **state)
{
	static const char *const others[] = {"rpc", "00000", "11111", "0111"};
	struct vb_db_params p = usual();
	struct vb_fabric *f;
	struct vb_db *db;

	(void)state;
	open_fabric(&f, "shm", 64 << 20);
	p.cc = "drtm-h";
	for (unsigned i = 0; i < VB_ARRAY_SIZE(others); i++)
		refused_db(f, p_ = p; p_.hybrid = others[i]);
	p.hybrid = NULL;
	must(vb_db_open(f, &p, &db));
	assert_int_equal(db->rpc_stages, 0x1e);
	p.hybrid = "01111";
	vb_db_close(db);
	must(vb_db_open(f, &p, &db));
	assert_int_equal(db->rpc_stages, 0x1e);
	vb_db_close(db);
	for (unsigned log = 0; log < 2; log++) {
		p.name = log ? "with" : "without";
		p.copies = 1;
		p.hybrid = log ? "011111" : "01111";
		must(vb_db_open(f, &p, &db));
		assert_int_equal(db->rpc_stages, 0x1e);
		assert_int_equal(db->log_by_rpc, log);
		vb_db_close(db);
	}
	vb_fabric_close(f);
}

/* Of whom no record is ever hot it is refused, and what no record can be. */
static void a_temperature(void **state)
{
	struct vb_db_params p = usual();
	struct vb_fabric *f;
	struct vb_db *db;

	(void)state;
	open_fabric(&f, "shm", 64 << 20);
	p.cc = "silo";
	refused_db(f, p_ = p; p_.hot_from = 1);
	p.cc = "mocc";
	refused_db(f, p_ = p; p_.hot_from = 65);
	must(vb_db_open(f, &p, &db));
	assert_int_equal(db->hot_from, 4);
	vb_db_close(db);
	p.hot_from = 64;
	must(vb_db_open(f, &p, &db));
	assert_int_equal(db->hot_from, 64);
	vb_db_close(db);
	vb_fabric_close(f);
}

static void fabric_that_is_too_small(void **state)
{
	struct vb_db_params p = usual();
	struct vb_fabric *f;
	struct vb_db *db;

	(void)state;
	open_fabric(&f, "shm", 1 << 20);
	p.coordinators = 4096;
	refused(vb_db_open(f, &p, &db), -ENOSPC);
	/* Nothing of it has stayed behind: a smaller one of the same name fits. */
	p.coordinators = 2;
	must(vb_db_open(f, &p, &db));
	vb_db_close(db);
	vb_fabric_close(f);
}

/* Who sees whether a simulated cluster fits into memory does not count mailboxes that stay empty. */
static void what_is_touched(void **state)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	struct vb_coordinator *more[4];
	struct vb_db_params p = usual(), rpc = p;
	unsigned char resident[1 << 12];
	uint64_t bytes, there = 0;
	uintptr_t from;
	struct world w;

	(void)state;
	p.coordinators = 64;
	rpc.hybrid = "rpc";
	assert_int_equal(vb_db_node_touched(&rpc, NODES), vb_db_node_bytes(&rpc, NODES));
	bytes = vb_db_node_bytes(&p, NODES);
	assert_in_range(vb_db_node_touched(&p, NODES), bytes / 8, bytes / 2);
	open_world(&w, "sim", &p);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(more); i++)
		must(vb_coordinator_open(w.db, i % NODES, &more[i]));
	/* New keys on both nodes: their servers are called. */
	for (uint64_t i = 0; i < VB_ARRAY_SIZE(more); i++)
		for (uint64_t key = 0; key < 4; key++)
			alone(more[i], vb_txn_insert(more[i], w.t, LOADED + 4 * i + key,
						     &(struct record){.value = 1}));
	from = ((uintptr_t)vb_local(w.f, w.db->region[0], 1) + page - 1) & ~(uintptr_t)(page - 1);
	assert_in_range(bytes / page, 1, sizeof(resident));
	assert_int_equal(mincore((void *)from, bytes - page, resident), 0);
	for (uint64_t i = 0; i < bytes / page - 1; i++)
		there += resident[i] & 1;
	assert_in_range(there * page, 4 * page, vb_db_node_touched(&p, NODES));
	for (unsigned i = 0; i < VB_ARRAY_SIZE(more); i++)
		vb_coordinator_close(more[i]);
	close_world(&w);
}

/* 63 and 64 records have logs of the same size: it is the number that must be the same. */
static void items_that_take_as_much(struct vb_fabric *f)
{
	struct vb_db_params p = usual();
	struct vb_db *first, *second;

	p.name = "items";
	p.coordinators = 1;
	p.items_max = 63;
	must(vb_db_open(f, &p, &first));
	p.items_max = 64;
	assert_int_equal(
		vb_db_node_bytes(&p, NODES),
		vb_db_node_bytes(&(struct vb_db_params){.cc = p.cc,
							.coordinators = 1,
							.items_max = 63,
							.record_bytes_max = p.record_bytes_max,
							.bytes_max = p.bytes_max},
				 NODES));
	refused(vb_db_open(f, &p, &second), -EINVAL);
	vb_db_close(first);
}

/* The second view of a database, as another process has it. */
static void who_comes_second(void **state)
{
	const struct vb_db_params first = usual();
	struct vb_db_params p = first;
	struct vb_table_params tp = usual_table;
	struct vb_coordinator *me;
	struct vb_table *t, *none;
	struct vb_db *db, *other;
	struct world w;

	(void)state;
	open_world(&w, "shm", &first);
	refused_db(w.f, p_.cc = "no-wait");
	refused_db(w.f, p_.cc = "no-wait-sx");
	refused_db(w.f, p_.coordinators++);
	refused_db(w.f, p_.items_max++);
	refused_db(w.f, p_.bytes_max *= 2);
	refused_db(w.f, p_.record_bytes_max *= 2);
	refused_db(w.f, p_.lease_ns = LONG_NS);
	refused_db(w.f, p_.no_recovery = true);
	/* What only concerns the one who asks may differ. */
	p.hybrid = "rpc";
	p.cache_entries = 16;
	p.no_doorbell = p.no_outstanding = p.passive_ack = true;
	must(vb_db_open(w.f, &p, &db));
	tp.record_bytes++;
	refused(vb_table_open(db, &tp, &t), -EINVAL);
	tp = usual_table;
	tp.records *= 2;
	refused(vb_table_open(db, &tp, &t), -EINVAL);
	tp = usual_table;
	tp.partition = VB_PARTITION_HASH;
	refused(vb_table_open(db, &tp, &t), -EINVAL);
	must(vb_table_open(db, &usual_table, &t));
	/* All open them in the same order. */
	must(vb_db_open(w.f, &p, &other));
	tp = usual_table;
	tp.name = "before it";
	must(vb_table_open(other, &tp, &none));
	refused(vb_table_open(other, &usual_table, &none), -EINVAL);
	vb_db_close(other);
	items_that_take_as_much(w.f);
	/* Both see the same records. */
	must(vb_coordinator_open(db, 1, &me));
	alone(w.a, vb_txn_write(w.a, w.t, 3, &(struct record){.value = 33}));
	assert_int_equal(value_of(me, t, 3), 33);
	alone(me, vb_txn_insert(me, t, 40, &(struct record){.value = 40}));
	assert_int_equal(value_of(w.a, w.t, 40), 40);
	vb_coordinator_close(me);
	vb_db_close(db);
	close_world(&w);
}

/* ---- tables ---- */

static void bad_tables(void **state)
{
	const struct vb_db_params p = usual();
	struct vb_table *t;
	unsigned before;
	struct world w;

	(void)state;
	open_db(&w, "shm", &p);
	before = w.db->store.n_tables;
	refused_table(w.db, p_.name = NULL);
	refused_table(w.db, p_.name = "");
	refused_table(w.db, p_.name = long_name);
	refused_table(w.db, p_.name = usual_table.name); /* twice */
	refused_table(w.db, p_.record_bytes = 0);
	refused_table(w.db, p_.record_bytes = p.record_bytes_max + 1);
	refused_table(w.db, p_.record_bytes = VB_RECORD_BYTES_MAX + 1);
	refused_table(w.db, p_.records = 0);
	refused_table(w.db, p_.records = UINT64_MAX);
	refused_table(w.db, p_.partition = (enum vb_partition)3);
	/* Of none a name, a turn or a size is left. */
	assert_int_equal(w.db->store.n_tables, before);
	must(vb_table_open(w.db,
			   &(struct vb_table_params){.name = "other",
						     .record_bytes = p.record_bytes_max,
						     .records = 8},
			   &t));
	assert_int_equal(t->id, before);
	close_world(&w);
}

static void table_that_does_not_fit(void **state)
{
	const struct vb_db_params p = usual();
	struct vb_table_params tp = usual_table;
	struct vb_table *t;
	struct world w;

	(void)state;
	open_db(&w, "shm", &p);
	tp.name = "large";
	tp.records = 10000000;
	refused(vb_table_open(w.db, &tp, &t), -ENOSPC);
	tp.records = 100;
	must(vb_table_open(w.db, &tp, &t));
	must(vb_table_load(t, 1, &(struct record){.value = 1}));
	start_servers(&w);
	must(vb_coordinator_open(w.db, 0, &w.a));
	assert_int_equal(value_of(w.a, t, 1), 1);
	close_world(&w);
}

static void where_keys_are(void **state)
{
	const struct vb_db_params p = usual();
	struct vb_table_params tp = usual_table;
	struct vb_table *top, *hash;
	unsigned at_one = 0;
	struct world w;

	(void)state;
	open_db(&w, "shm", &p);
	tp.name = "top";
	tp.partition = VB_PARTITION_TOP16;
	tp.record_bytes = 1;
	must(vb_table_open(w.db, &tp, &top));
	tp.name = "hash";
	tp.partition = VB_PARTITION_HASH;
	tp.record_bytes = p.record_bytes_max;
	must(vb_table_open(w.db, &tp, &hash));
	assert_int_equal(vb_table_record_bytes(w.t), sizeof(struct record));
	assert_int_equal(vb_table_record_bytes(top), 1);
	assert_int_equal(vb_table_record_bytes(hash), p.record_bytes_max);
	for (uint64_t key = 0; key < 1000; key++) {
		assert_int_equal(vb_table_node(w.t, key), key % NODES);
		assert_int_equal(vb_table_node(top, key), 0);
		assert_int_equal(vb_table_node(top, 1ull << 48 | key), 1);
		assert_int_equal(vb_table_node(top, 0xfffeull << 48 | key), 0);
		at_one += vb_table_node(hash, key);
	}
	assert_in_range(at_one, 400, 600);
	close_world(&w);
}

static void loads(void **state)
{
	const struct vb_db_params p = usual();
	const struct record r = {.value = 5};
	uint64_t key = LOADED;
	char text[512];
	struct world w;
	int err;

	(void)state;
	open_db(&w, "shm", &p);
	refused(vb_table_load(w.t, 3, &r), -EEXIST);
	vb_log_capture_begin(text, sizeof(text));
	do {
		err = vb_table_load(w.t, key, &r);
		key += NODES;
	} while (err == 0 && key < 100000);
	vb_log_capture_end();
	assert_int_equal(err, -ENOSPC);
	/* As many as were asked for, a sixteenth and 64 more: the one that did not fit is counted here. */
	assert_int_equal(key / NODES - 1, RECORDS / NODES + RECORDS / NODES / 16 + 64);
	/* The other node has room still. */
	must(vb_table_load(w.t, LOADED + 1, &r));
	must(vb_coordinator_open(w.db, 0, &w.a));
	assert_int_equal(value_of(w.a, w.t, 3), FIRST + 3);
	assert_int_equal(value_of(w.a, w.t, LOADED), 5);
	assert_int_equal(value_of(w.a, w.t, LOADED + 1), 5);
	close_world(&w);
}

/* ---- coordinators ---- */

static void coordinators_are_counted(void **state)
{
	struct vb_db_params p = usual();
	struct vb_coordinator *more[3], *none = NULL;
	struct world w;

	(void)state;
	p.coordinators = 2;
	open_world(&w, "shm", &p);
	refused(vb_coordinator_open(w.db, NODES, &none), -EINVAL);
	must(vb_coordinator_open(w.db, 0, &more[0]));
	must(vb_coordinator_open(w.db, 1, &more[1]));
	refused(vb_coordinator_open(w.db, 0, &none), -ENOSPC);
	refused(vb_coordinator_open(w.db, 1, &none), -ENOSPC);
	assert_null(none);
	/* A place is free again when its coordinator is closed, however often. */
	for (unsigned i = 0; i < 50; i++) {
		vb_coordinator_close(more[0]);
		must(vb_coordinator_open(w.db, 0, &more[0]));
		alone(more[0], vb_txn_write(more[0], w.t, 1, &(struct record){.value = i}));
		assert_int_equal(value_of(w.a, w.t, 1), i);
	}
	vb_coordinator_close(more[0]);
	vb_coordinator_close(more[1]);
	vb_coordinator_close(NULL);
	close_world(&w);
}

/* Whose process is gone has a place until somebody recovers the node. */
static void places_of_the_dead(void **state)
{
	struct vb_db_params p = usual();
	struct vb_coordinator *none = NULL;
	uint64_t freed;
	struct world w;

	(void)state;
	p.coordinators = 1;
	p.lease_ns = SHORT_NS;
	open_world(&w, "shm", &p);
	vb_coordinator_bury(w.a);
	w.a = NULL;
	refused(vb_coordinator_open(w.db, 0, &none), -ENOSPC);
	must(vb_db_recover(w.b, 0, &freed));
	assert_int_equal(freed, 0);
	must(vb_coordinator_open(w.db, 0, &w.a));
	/* Those of the living stay. */
	must(vb_db_recover(w.b, 0, &freed));
	refused(vb_coordinator_open(w.db, 0, &none), -ENOSPC);
	close_world(&w);
}

static void causes_have_names(void **state)
{
	(void)state;
	for (unsigned i = 0; i < VB_TXN_CAUSES; i++) {
		assert_non_null(vb_txn_cause_names[i]);
		assert_string_equal(vb_txn_cause_name((enum vb_txn_cause)i), vb_txn_cause_names[i]);
		for (unsigned k = 0; k < i; k++)
			assert_string_not_equal(vb_txn_cause_names[i], vb_txn_cause_names[k]);
	}
	assert_string_equal(vb_txn_cause_name(VB_TXN_LOCKED), "locked");
	assert_string_equal(vb_txn_cause_name(VB_TXN_WOUNDED), "wounded");
	assert_string_equal(vb_txn_cause_name(VB_TXN_CAUSES), "unknown");
	assert_string_equal(vb_txn_cause_name((enum vb_txn_cause) - 1), "unknown");
}

/* ---- declared ---- */

static uint64_t time_of(struct vb_coordinator *me, struct vb_table *t, unsigned n, uint64_t first)
{
	struct vb_txn_key keys[10];
	uint64_t begun;

	for (unsigned i = 0; i < n; i++)
		keys[i] = (struct vb_txn_key){t, first + i, true};
	must(vb_txn_begin(me));
	begun = vb_ep_now(me->ep);
	must(vb_txn_declare(me, keys, n));
	begun = vb_ep_now(me->ep) - begun;
	vb_txn_abort(me);
	return begun;
}

/* Ten records on three nodes together, in less than twice the time of one; known places or not. */
static void declared_together(void **state)
{
	static const char *const ccs[] = {"no-wait", "wait-die", "sundial"};

	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(ccs); i++) {
		const struct vb_db_params p = {.cc = ccs[i], .coordinators = 4};
		struct vb_db_server *server[3];
		struct world w = {0};

		must(vb_fabric_open(&(struct vb_fabric_params){.fabric = "sim",
							       .nodes = 3,
							       .node_bytes = 16 << 20},
				    &w.f));
		must(vb_db_open(w.f, &p, &w.db));
		must(vb_table_open(w.db, &usual_table, &w.t));
		for (uint64_t key = 0; key < 30; key++)
			must(vb_table_load(w.t, key, &(struct record){.value = key}));
		for (uint16_t n = 0; n < 3; n++)
			must(vb_db_server_start(w.db, n, &server[n]));
		must(vb_coordinator_open(w.db, 0, &w.a));
		for (unsigned known = 0; known < 2; known++) {
			uint64_t one = time_of(w.a, w.t, 1, 1), ten = time_of(w.a, w.t, 10, 10);

			assert_true(one > 0 && ten < 2 * one);
		}
		for (uint16_t n = 0; n < 3; n++)
			vb_db_server_stop(server[n]);
		close_world(&w);
	}
}

/* ---- again and again ---- */

#define TRIES 20

struct trial {
	unsigned n;
	uint64_t at_ns[TRIES];
};

static int in_vain(struct vb_coordinator *me, void *arg)
{
	struct trial *t = arg;

	t->at_ns[t->n++] = vb_ep_now(me->ep);
	return -EAGAIN;
}

/* Twelve late pauses are longer than four early ones, however they are drawn. */
static void pauses_grow(void **state)
{
	const struct vb_db_params p = usual();
	struct trial t = {0};
	struct world w;

	(void)state;
	open_world(&w, "sim", &p);
	assert_int_equal(vb_txn_run(w.a, in_vain, &t, TRIES), -EAGAIN);
	assert_int_equal(t.n, TRIES);
	assert_true(t.at_ns[TRIES - 1] - t.at_ns[8] > 4 * (t.at_ns[4] - t.at_ns[0]));
	close_world(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bad_databases),
		cmocka_unit_test(protocols_without_copies),
		cmocka_unit_test(every_code_of_a_protocol),
		cmocka_unit_test(all_by_rpc),
		cmocka_unit_test(a_name_for_a_code),
		cmocka_unit_test(a_temperature),
		cmocka_unit_test(fabric_that_is_too_small),
		cmocka_unit_test(what_is_touched),
		cmocka_unit_test(who_comes_second),
		cmocka_unit_test(bad_tables),
		cmocka_unit_test(table_that_does_not_fit),
		cmocka_unit_test(where_keys_are),
		cmocka_unit_test(loads),
		cmocka_unit_test(coordinators_are_counted),
		cmocka_unit_test(places_of_the_dead),
		cmocka_unit_test(causes_have_names),
		cmocka_unit_test(declared_together),
		cmocka_unit_test(pauses_grow),
	};

	return cmocka_run_group_tests_name("transactions: opening", tests, NULL, NULL);
}
