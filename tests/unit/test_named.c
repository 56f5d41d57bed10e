/* SPDX-License-Identifier: Apache-2.0 */
/* vb_fabric_each: which lock spaces and databases a fabric has, to whom they belong, and what it costs them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <verbena/lock.h>
#include <verbena/names.h>
#include <verbena/txn.h>

#include "child.h"

#define LOCKS 100

struct seen {
	struct vb_fabric *f;
	unsigned calls, locks, names, dbs, parts;
	uint64_t bytes; /* of the locks of "orders" */
};

static int look(void *user, const struct vb_named *named)
{
	struct seen *s = user;

	s->calls++;
	switch (named->kind) {
	case VB_NAMED_LOCKS:
		s->locks++;
		if (strcmp(named->name, "orders") == 0)
			s->bytes = named->bytes;
		break;
	case VB_NAMED_NAMES:
		assert_string_equal(named->name, "orders");
		s->names++;
		break;
	case VB_NAMED_DB:
		assert_string_equal(named->name, "bank");
		s->dbs++;
		break;
	case VB_NAMED_PART:
		s->parts++;
		break;
	}
	assert_true(named->name[0] != '\0');
	assert_true(named->bytes > 0);
	return 0;
}

static struct seen look_at(struct vb_fabric *f, uint16_t node)
{
	struct seen s = {.f = f};

	assert_int_equal(vb_fabric_each(f, node, look, &s), 0);
	assert_int_equal(s.calls, s.locks + s.names + s.dbs + s.parts);
	return s;
}

static int seven(void *user, const struct vb_named *named)
{
	(void)named;
	++*(unsigned *)user;
	return 7;
}

/* Any call but that which closes the fabric. */
static int opens_more(void *user, const struct vb_named *named)
{
	struct seen *s = user;
	char name[16];
	struct vb_lock_space_params p = {.lock = "cas", .name = name, .locks = 1};
	struct vb_lock_space *space;

	(void)named;
	snprintf(name, sizeof(name), "more%u", s->calls++);
	assert_int_equal(vb_lock_space_open(s->f, &p, &space), 0);
	assert_int_equal(look_at(s->f, 0).locks, 2 + s->calls);
	assert_int_equal(vb_lock_space_close(space), 0);
	return 0;
}

/* All that is opened is listed, and stays when it is closed. */
static void lists(struct vb_fabric *f)
{
	const struct vb_lock_space_params orders = {
		.lock = "dslr", .name = "orders", .locks = LOCKS, .servers = 2};
	const struct vb_lock_space_params one = {.lock = "cas", .name = "one", .locks = 1};
	const struct vb_db_params bank = {.cc = "silo", .name = "bank", .coordinators = 1};
	const struct vb_table_params t = {.name = "t", .record_bytes = 8, .records = 10};
	struct vb_lock_space *a, *b;
	struct vb_table *table;
	struct vb_names *names;
	struct vb_db *db;
	struct seen s;
	unsigned calls = 0;

	assert_int_equal(look_at(f, 0).calls, 0);
	assert_int_equal(vb_lock_space_open(f, &orders, &a), 0);
	s = look_at(f, 1);
	assert_int_equal(s.calls, 1);
	assert_int_equal(s.locks, 1);
	assert_true(s.bytes >= LOCKS / 2 * 8);
	assert_int_equal(vb_lock_space_open(f, &one, &b), 0);
	assert_int_equal(vb_names_open(a, NULL, &names), 0);
	assert_int_equal(vb_db_open(f, &bank, &db), 0);
	assert_int_equal(vb_table_open(db, &t, &table), 0);
	for (unsigned closed = 0; closed < 2; closed++) {
		s = look_at(f, 0);
		assert_int_equal(s.locks, 2);
		assert_int_equal(s.names, 1);
		assert_int_equal(s.dbs, 1);
		assert_true(s.parts >= 1);
		/* "one" has its only lock on node 0. */
		assert_int_equal(look_at(f, 1).locks, 1);
		if (closed)
			break;
		vb_names_close(names);
		assert_int_equal(vb_db_close(db), 0);
		assert_int_equal(vb_lock_space_close(a), 0);
		assert_int_equal(vb_lock_space_close(b), 0);
	}
	assert_int_equal(vb_fabric_each(f, 0, seven, &calls), 7);
	assert_int_equal(calls, 1);
	assert_int_equal(vb_fabric_each(f, 2, seven, &calls), -EINVAL);
	assert_int_equal(calls, 1);
	s = (struct seen){.f = f};
	calls = look_at(f, 0).calls;
	assert_int_equal(vb_fabric_each(f, 0, opens_more, &s), 0);
	assert_int_equal(s.calls, calls);
}

static void on(const char *fabric)
{
	const struct vb_fabric_params p = {
		.fabric = fabric, .nodes = 2, .node_bytes = 8u << 20, .endpoints = 16};
	struct vb_fabric *f;

	assert_int_equal(vb_fabric_open(&p, &f), 0);
	lists(f);
	assert_int_equal(vb_fabric_close(f), 0);
}

static void test_shm(void **state)
{
	(void)state;
	on("shm");
}

static void test_sim(void **state)
{
	(void)state;
	on("sim");
}

static void test_tcp(void **state)
{
	(void)state;
	on("tcp");
}

/* What one process has made another one lists, which has opened none of it. */
static void test_another_process(void **state)
{
	char name[40];
	struct vb_fabric_params p = {.name = name, .node_bytes = 1u << 20};
	const struct vb_lock_space_params orders = {
		.lock = "cas", .name = "orders", .locks = LOCKS};
	struct vb_lock_space *space;
	struct vb_fabric *f;
	int status;
	pid_t child;

	(void)state;
	snprintf(name, sizeof(name), "named-%d", (int)getpid());
	assert_int_equal(vb_fabric_open(&p, &f), 0);
	assert_int_equal(vb_lock_space_open(f, &orders, &space), 0);
	child = fork_child();
	if (child == 0) {
		struct seen s = {0};

		p.attach = true;
		_exit(vb_fabric_open(&p, &f) != 0 || vb_fabric_each(f, 0, look, &s) != 0 ||
		      s.calls != 1 || s.bytes < LOCKS * 8);
	}
	assert_true(child > 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(vb_lock_space_close(space), 0);
	assert_int_equal(vb_fabric_close(f), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shm),
		cmocka_unit_test(test_sim),
		cmocka_unit_test(test_tcp),
		cmocka_unit_test(test_another_process),
	};

	return cmocka_run_group_tests_name("named", tests, NULL, NULL);
}
