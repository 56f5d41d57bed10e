/* SPDX-License-Identifier: Apache-2.0 */
/* What a database's numbers mean that are 0, and which are the largest: include/verbena/txn.h. */
#include <malloc.h>

#include "txn_open.h"

/* Three of them, where there are more nodes than that. */
static void copies_are_counted(void **state)
{
	const struct vb_fabric_params fp = {.fabric = "shm", .nodes = 5, .node_bytes = 16 << 20};
	struct vb_db_params p = usual();
	struct vb_fabric *f;
	struct vb_db *db;

	(void)state;
	must(vb_fabric_open(&fp, &f));
	refused_db(f, p_.copies = 4);
	p.copies = 3;
	must(vb_db_open(f, &p, &db));
	assert_int_equal(db->copies, 3);
	vb_db_close(db);
	vb_fabric_close(f);
}

/* One READ brings a tuple, with all its versions: no longer than every fabric's. */
static void largest_records(void **state)
{
	struct vb_db_params p = usual();
	struct vb_fabric *f;
	struct vb_db *db;

	(void)state;
	for (const struct vb_cc_ops *const *cc = vb_ccs; *cc != NULL; cc++) {
		const uint32_t slots = vb_cc_slots(*cc);
		const uint32_t most = vb_tuple_record_most((*cc)->meta_bytes, slots);
		struct vb_tuple_layout l;

		vb_tuple_layout_init(&l, (*cc)->meta_bytes, slots, most);
		assert_true(l.bytes <= VB_LEN_MAX);
		vb_tuple_layout_init(&l, (*cc)->meta_bytes, slots, most + 1);
		assert_true(l.bytes > VB_LEN_MAX || most == VB_RECORD_BYTES_MAX);
	}
	open_fabric(&f, "shm", 16 << 20);
	p.cc = "mvcc";
	p.hybrid = NULL;
	p.record_bytes_max = 16353;
	refused_db(f, p_ = p);
	p.record_bytes_max = 16352;
	must(vb_db_open(f, &p, &db));
	vb_db_close(db);
	vb_fabric_close(f);
}

static void lease_by_default(const struct vb_db *db)
{
	const uint64_t four = 4 * db->fabric->caps.verb_bound_ns;

	assert_int_equal(db->lease_ns, four > 50000000 ? four : 50000000);
}

/* 0 means what the header says: who comes second may say it, and nothing else. */
static void defaults(void **state)
{
	const struct vb_db_params p = {.cc = "silo"};
	struct vb_db *db;
	struct world w = {0};

	(void)state;
	open_fabric(&w.f, "shm", 64 << 20);
	must(vb_db_open(w.f, &p, &w.db));
	assert_null(w.db->cache); /* verbs complete at once here */
	assert_int_equal(w.db->coordinators, 64);
	assert_int_equal(w.db->items_max, 64);
	assert_int_equal(w.db->bytes_max, 64 << 10);
	assert_int_equal(w.db->store.record_bytes_max, 1024);
	assert_int_equal(w.db->patience_ns, 10000000000);
	for (unsigned other = 0; other < 7; other++) {
		const struct vb_db_params said = {.cc = "silo",
						  .hybrid = "00000",
						  .name = "db",
						  .coordinators = 64 + (other == 1),
						  .items_max = 64 + (other == 2),
						  .record_bytes_max = 1024 + 512 * (other == 3),
						  .bytes_max = (64u << 10) + 8 * (other == 4),
						  .lease_ns = 50000000 + (other == 5),
						  .no_recovery = other == 6};

		if (other != 0) {
			refused_db(w.f, p_ = said);
			continue;
		}
		must(vb_db_open(w.f, &said, &db));
		vb_db_close(db);
	}
	vb_db_close(w.db);
	vb_fabric_close(w.f);
	/* And elsewhere 65,536. */
	open_fabric(&w.f, "sim", 64 << 20);
	must(vb_db_open(w.f, &p, &w.db));
	assert_non_null(w.db->cache);
	/* Of 16 bytes each, and what malloc makes of that. */
	assert_in_range(malloc_usable_size(w.db->cache), 65536 * 16, 65536 * 17);
	lease_by_default(w.db);
	vb_db_close(w.db);
	vb_fabric_close(w.f);
	/* Where a verb may be so late that four times that is more than 50 ms. */
	must(vb_fabric_open(&(struct vb_fabric_params){.fabric = "sim",
						       .options = "bound=20ms",
						       .nodes = NODES,
						       .node_bytes = 64 << 20},
			    &w.f));
	must(vb_db_open(w.f, &p, &w.db));
	assert_true(w.db->lease_ns > 50000000);
	lease_by_default(w.db);
	vb_db_close(w.db);
	vb_fabric_close(w.f);
}

/* As many records of a transaction as there may be, all of them changed, and one more. */
static void touch_the_most(struct world *w, struct vb_table *many)
{
	uint64_t *r, value;

	must(vb_txn_begin(w->a));
	for (uint64_t key = 0; key < VB_TXN_ITEMS_MAX; key++) {
		must(vb_txn_update(w->a, many, key, (void **)&r));
		assert_int_equal(*r, key);
		*r += 10000;
	}
	must(vb_txn_commit(w->a));
	must(vb_txn_begin(w->b));
	for (uint64_t key = 0; key < VB_TXN_ITEMS_MAX; key++) {
		must(vb_txn_read(w->b, many, key, &value));
		assert_int_equal(value, key + 10000);
	}
	refused(vb_txn_read(w->b, many, VB_TXN_ITEMS_MAX, &value), -E2BIG);
}

/* The most of everything: records, records of a transaction, tables. */
static void the_most(void **state)
{
	static unsigned char record[VB_RECORD_BYTES_MAX], is[VB_RECORD_BYTES_MAX];
	struct vb_table_params tp = {
		.name = "large", .record_bytes = VB_RECORD_BYTES_MAX, .records = 8};
	const struct vb_table_params mp = {
		.name = "many", .record_bytes = 8, .records = VB_TXN_ITEMS_MAX + 1};
	struct vb_db_params p = {.cc = "silo",
				 .coordinators = 1,
				 .items_max = VB_TXN_ITEMS_MAX,
				 .record_bytes_max = VB_RECORD_BYTES_MAX,
				 .bytes_max = 3 * VB_RECORD_BYTES_MAX,
				 .lease_ns = LONG_NS};
	char name[32];

	(void)state;
	for (unsigned rpc = 0; rpc < 2; rpc++) {
		struct world w = {0};
		struct vb_table *t, *many;

		p.hybrid = rpc ? "rpc" : NULL;
		open_fabric(&w.f, "shm", 64 << 20);
		must(vb_db_open(w.f, &p, &w.db));
		must(vb_table_open(w.db, &tp, &w.t));
		must(vb_table_open(w.db, &mp, &many));
		for (uint64_t key = 0; key <= VB_TXN_ITEMS_MAX; key++)
			must(vb_table_load(many, key, &key));
		for (unsigned i = 2; i < VB_TABLES_MAX; i++) {
			struct vb_table_params small = {
				.name = name, .record_bytes = 1, .records = 2};

			snprintf(name, sizeof(name), "t%u", i);
			must(vb_table_open(w.db, &small, &t));
		}
		refused_table(w.db, p_.name = "one more");
		start_servers(&w);
		must(vb_coordinator_open(w.db, 0, &w.a));
		must(vb_coordinator_open(w.db, 1, &w.b));
		for (unsigned i = 0; i < VB_RECORD_BYTES_MAX; i++)
			record[i] = (unsigned char)(i * 7 + i / 256);
		for (uint64_t key = 0; key < 2; key++) {
			alone(w.a, vb_txn_insert(w.a, w.t, key, record));
			alone(w.b, vb_txn_read(w.b, w.t, key, is));
			assert_memory_equal(is, record, VB_RECORD_BYTES_MAX);
		}
		touch_the_most(&w, many);
		close_world(&w);
	}
}

/* What a lease is at least, is a matter of the fabric. */
static void lease_too_short(void **state)
{
	struct vb_db_params p = usual();
	struct vb_fabric *f;
	struct vb_db *db;

	(void)state;
	must(vb_fabric_open(
		&(struct vb_fabric_params){.fabric = "sim", .nodes = NODES, .node_bytes = 16 << 20},
		&f));
	p.lease_ns = 10;
	refused(vb_db_open(f, &p, &db), -EINVAL);
	p.lease_ns = 4 * f->caps.verb_bound_ns - 1;
	refused(vb_db_open(f, &p, &db), -EINVAL);
	p.lease_ns++;
	must(vb_db_open(f, &p, &db));
	vb_db_close(db);
	/* And at most an hour. */
	p.name = "long";
	p.lease_ns = 3600000000000 + 1;
	refused(vb_db_open(f, &p, &db), -EINVAL);
	p.lease_ns--;
	must(vb_db_open(f, &p, &db));
	vb_db_close(db);
	vb_fabric_close(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults),           cmocka_unit_test(lease_too_short),
		cmocka_unit_test(copies_are_counted), cmocka_unit_test(largest_records),
		cmocka_unit_test(the_most),
	};

	return cmocka_run_group_tests_name("transactions: sizes", tests, NULL, NULL);
}
