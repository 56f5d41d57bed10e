/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is in a segment when processes that use it end and others come: one holder of a lock, tokens
 * that grow, servers that take over; and spaces and databases whose makers were killed half-way.
 */
#include "actors.h"
#include "lock/board.h"

#include <verbena/txn.h>

/* A daemon is restarted while others hold its locks: never two holders, and tokens grow. */
static void test_restart(void **state)
{
	static const char *const locks[] = {"dslr", "cas", "mcs"};

	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(locks); i++) {
		struct actor c1 = enter(locks[i]), a = enter(locks[i]), c2 = enter(locks[i]);
		int64_t first;

		assert_int_equal(tell(&c1, 'c'), 0);
		assert_int_equal(tell(&c1, 's'), 0);
		assert_int_equal(tell(&a, 'a'), 0);
		assert_int_equal(tell(&a, 's'), 0);
		first = tell(&a, 'l');
		assert_true(first > 0);
		assert_int_equal(tell(&c1, 'x'), 0);
		assert_int_equal(tell(&c2, 'c'), -EBUSY);
		assert_int_equal(tell(&c2, 'o'), 0);
		assert_int_equal(tell(&c2, 's'), 0);
		assert_int_equal(tell(&c2, 'l'), -ETIMEDOUT);
		assert_int_equal(tell(&a, 'u'), 0);
		assert_true(tell(&c2, 'l') > first);
		assert_int_equal(tell(&c2, 'u'), 0);
		assert_int_equal(tell(&c2, 'x'), 0);
		assert_int_equal(tell(&a, 'x'), 0);
		leave(&c1);
		leave(&c2);
		leave(&a);
		assert_false(segment_exists(name));
	}
}

/* The creator served the locks, and is killed: another one serves them, also one that comes new. */
static void test_new_server(void **state)
{
	static const char *const locks[] = {"rpc", "traditional", "table"};

	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(locks); i++) {
		struct actor c1 = enter(locks[i]), a = enter(locks[i]), d = enter(locks[i]);
		int64_t first, next = -1;

		assert_int_equal(tell(&c1, 'o'), 0);
		assert_int_equal(tell(&c1, 'S'), 0);
		assert_int_equal(tell(&a, 'o'), 0);
		assert_int_equal(tell(&a, 's'), 0);
		first = tell(&a, 'l');
		assert_true(first > 0);
		assert_int_equal(tell(&a, 'u'), 0);
		kill_actor(&c1);
		assert_int_equal(tell(&d, 'o'), 0);
		assert_int_equal(tell(&d, 'S'), 0);
		/* A table's new server waits for the leases that it does not know. */
		for (unsigned k = 0; next < 0 && k < 500; k++)
			next = tell(&a, 'l');
		assert_true(next > first);
		assert_int_equal(tell(&a, 'u'), 0);
		assert_int_equal(tell(&a, 'x'), 0);
		assert_int_equal(tell(&d, 'x'), 0);
		leave(&a);
		leave(&d);
		assert_false(segment_exists(name));
	}
}

/* What a process leaves that was killed when it had made a lock space's region, and not filled it:
 * who comes next finishes it, and everybody must still want the same. */
static void test_unfinished_space(void **state)
{
	struct vb_lock_space_params lp = {
		.lock = "cas", .locks = 100, .lease_ns = LEASE_NS, .visible = true};
	struct vb_fabric_params p = params('o');
	struct vb_lock_space *space, *other = NULL;
	struct vb_lock_client *me;
	struct vb_board_view view;
	struct shm_region *r;
	struct vb_fabric *f;
	struct vb_grant g;
	char said[512];
	uint64_t began;

	(void)state;
	assert_int_equal(vb_fabric_open(&p, &f), 0);
	for (unsigned half = 0; half < 2; half++) {
		assert_int_equal(vb_lock_space_open(f, &lp, &space), 0);
		assert_int_equal(vb_lock_client_open(space, 0, &me), 0);
		vb_lock_client_close(me);
		vb_lock_space_close(space);
		r = shm_of(f)->directories[0].region;
		assert_string_equal(r[0].name, "lock:locks");
		assert_string_equal(r[1].name, "board:locks");
		/* Nothing of it; or half. */
		memset(vb_local(f, r[0].offset, 8), 0, half ? 8 : 32);
		memset(vb_local(f, r[1].offset, 8), 0, 8);
		began = vb_clock_gettime_ns();
		vb_log_capture_begin(said, sizeof(said));
		assert_int_equal(vb_lock_space_open(f, &lp, &space), 0);
		vb_log_capture_end();
		/* Its maker may only be slow; and who finishes its work says so. */
		assert_true(vb_clock_gettime_ns() - began >= 2000000000);
		assert_non_null(strstr(said, "never finished by its maker"));
		assert_int_equal(vb_lock_client_open(space, 0, &me), 0);
		assert_int_equal(vb_lock_try(me, 7, VB_EXCLUSIVE, &g), 0);
		assert_int_equal(vb_board_view(me->ep, "locks", &view), 0); /* `dump` sees it */
		assert_int_equal(view.n, 1);
		vb_board_view_free(&view);
		lp.locks++;
		assert_int_not_equal(vb_lock_space_open(f, &lp, &other), 0);
		lp.locks--;
		assert_null(other);
		assert_int_equal(vb_lock_release(me, &g), 0);
		vb_lock_client_close(me);
		vb_lock_space_close(space);
	}
	vb_fabric_close(f);
}

/* Of the region whose name begins so. */
static uint64_t *magic_of(struct vb_fabric *f, const char *region)
{
	struct shm_node *d = &shm_of(f)->directories[0];

	for (uint32_t i = 0; i < d->used; i++) {
		if (strncmp(d->region[i].name, region, strlen(region)) == 0)
			return vb_local(f, d->region[i].offset, 8);
	}
	fail_msg("no region '%s'", region);
	return NULL;
}

static int open_db(struct vb_fabric *f, struct vb_db **db)
{
	const struct vb_table_params tp = {.name = "t", .record_bytes = 8, .records = 10};
	struct vb_table *t;
	int err = vb_db_open(f, &(struct vb_db_params){.cc = "silo", .coordinators = 2}, db);

	if (err != 0)
		return err;
	err = vb_table_open(*db, &tp, &t);
	if (err != 0)
		assert_int_equal(vb_db_close(*db), 0);
	return err;
}

/* The same of a database and its tables: whose filler is dead is filled by the next. */
static void test_unfinished_database(void **state)
{
	static const char *const regions[] = {"db:db", "db.t:"};
	struct actor a = enter(NULL);
	struct vb_fabric_params p = params('o');
	struct vb_fabric *f;
	struct vb_db *db;
	uint64_t filler, whole;

	(void)state;
	p.node_bytes = 8 << 20;
	filler = (uint64_t)tell(&a, 'p');
	assert_int_equal(vb_fabric_open(&p, &f), 0);
	assert_int_equal(open_db(f, &db), 0);
	assert_int_equal(vb_db_close(db), 0);
	whole = *magic_of(f, "db:db");
	/* He lives: he is waited for, and not for ever. */
	*magic_of(f, "db:db") = filler;
	assert_int_equal(open_db(f, &db), -ETIMEDOUT);
	*magic_of(f, "db:db") = whole;
	kill_actor(&a);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(regions); i++) {
		uint64_t *magic = magic_of(f, regions[i]);

		whole = *magic;
		*magic = filler;
		assert_int_equal(open_db(f, &db), 0);
		assert_int_equal(*magic, whole);
		assert_int_equal(vb_db_close(db), 0);
	}
	assert_int_equal(vb_fabric_close(f), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_restart, setup, teardown),
		cmocka_unit_test_setup_teardown(test_new_server, setup, teardown),
		cmocka_unit_test_setup_teardown(test_unfinished_space, setup, teardown),
		cmocka_unit_test_setup_teardown(test_unfinished_database, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
