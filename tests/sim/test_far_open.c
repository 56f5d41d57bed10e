/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client opens while answers of the servers are lost: the header of a database, and a coordinator, whose number
 * is free afterwards.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fabric/sim/inner.h"
#include "txn/db.h"

#define NODES 3u
#define HOME  0u
#define SEEDS 40u

#define must(call) assert_int_equal(call, 0)

static const struct vb_sim_faults none;

static void open_world(uint64_t seed, struct vb_fabric **f, struct vb_db **db)
{
	const struct vb_fabric_params fp = {.fabric = "sim",
					    .options = "profile=cx5,bound=25us",
					    .nodes = NODES,
					    .node_bytes = 1 << 20,
					    .seed = seed};
	const struct vb_db_params dp = {.cc = "silo",
					.coordinators = 1,
					.items_max = 8,
					.bytes_max = 256,
					.record_bytes_max = 64,
					.lease_ns = 200000};

	must(vb_fabric_open(&fp, f));
	must(vb_db_open(*f, &dp, db));
}

static void open_often(uint64_t seed)
{
	static const struct vb_sim_faults lossy = {.lose = 0.1};
	struct vb_coordinator *me;
	struct vb_fabric *f;
	struct vb_db *db;

	open_world(seed, &f, &db);
	for (unsigned i = 0; i < 3; i++) {
		vb_sim_set_faults(f, &lossy);
		must(vb_coordinator_open_far(db, HOME, 1, &me));
		vb_sim_set_faults(f, &none);
		must(vb_txn_begin(me));
		must(vb_txn_commit(me));
		vb_coordinator_close(me);
	}
	must(vb_db_close(db));
	must(vb_fabric_close(f));
}

static void test_header(void **state)
{
	static const struct vb_sim_faults lossy = {.lose = 0.5};
	struct vb_fabric *f;
	uint64_t layout;
	struct vb_db *db;

	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		const struct vb_db_header *h;

		open_world(seed, &f, &db);
		h = vb_local(f, db->region[HOME], sizeof(*h));
		vb_sim_set_faults(f, &lossy);
		must(vb_header_read(f, db->region[HOME], h->magic, &layout));
		assert_int_equal(layout, h->layout);
		vb_sim_set_faults(f, &none);
		must(vb_db_close(db));
		must(vb_fabric_close(f));
	}
}

static void test_coordinator(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++)
		open_often(seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_header),
		cmocka_unit_test(test_coordinator),
	};

	return cmocka_run_group_tests_name("far open", tests, NULL, NULL);
}
