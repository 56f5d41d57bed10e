/* SPDX-License-Identifier: Apache-2.0 */
/*
 * More transactions at once than a server can do within a lease: those that vb_txn_run tries again leave each
 * other time, and all get through.  Nobody writes, so that only time ends them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fabric/sim/sim.h"
#include "txn/db.h"

#define US       1000ull
#define MS       1000000ull
#define KEYS     40
#define CROWD    24
#define COMMITS  8
#define LEASE_NS (400 * US)

#define must(call) assert_int_equal(call, 0)

struct crowd {
	struct vb_fabric *f;
	struct vb_db *db;
	struct vb_table *t;
	struct vb_db_server *server;
	struct vb_coordinator *me[CROWD];
	unsigned opened, tries, commits, done;
};

static void open_crowd(struct crowd *c)
{
	const struct vb_fabric_params fp = {
		.fabric = "sim",
		.options = "bound=20us",
		.nodes = 1,
		.node_bytes = 8 << 20,
		.endpoints = CROWD + 8,
		.seed = 1,
	};
	const struct vb_db_params dp = {
		.cc = "silo",
		.hybrid = "rpc",
		.coordinators = CROWD,
		.items_max = KEYS,
		.bytes_max = KEYS * 8,
		.lease_ns = LEASE_NS,
	};
	const struct vb_table_params tp = {.name = "t", .record_bytes = 8, .records = KEYS};

	*c = (struct crowd){0};
	must(vb_fabric_open(&fp, &c->f));
	must(vb_db_open(c->f, &dp, &c->db));
	must(vb_table_open(c->db, &tp, &c->t));
	for (uint64_t key = 0; key < KEYS; key++)
		must(vb_table_load(c->t, key, &key));
	must(vb_db_server_start(c->db, 0, &c->server));
}

static void close_crowd(struct crowd *c)
{
	for (unsigned i = 0; i < c->opened; i++)
		vb_coordinator_close(c->me[i]);
	vb_db_server_stop(c->server);
	must(vb_db_close(c->db));
	must(vb_fabric_close(c->f));
}

static int read_all(struct vb_coordinator *me, void *arg)
{
	struct crowd *c = arg;
	uint64_t value;
	int err = 0;

	c->tries++;
	for (uint64_t key = 0; key < KEYS && err == 0; key++)
		err = vb_txn_read(me, c->t, key, &value);
	return err;
}

static void one_body(void *arg)
{
	struct crowd *c = arg;
	struct vb_coordinator *me = c->me[c->opened++];

	for (unsigned i = 0; i < COMMITS; i++)
		c->commits += vb_txn_run(me, read_all, c, 0) == 0;
	c->done++;
}

/* How long so many take that begin together; the test fails if that is more than most_ns. */
static void run_crowd(struct crowd *c, unsigned of, uint64_t most_ns)
{
	static const struct vb_task_params params = {.name = "one"};
	uint64_t until;

	open_crowd(c);
	for (unsigned i = 0; i < of; i++)
		must(vb_coordinator_open(c->db, 0, &c->me[i]));
	for (unsigned i = 0; i < of; i++) {
		struct vb_task *task;

		must(vb_task_spawn(vb_sched_self(), one_body, c, &params, &task));
	}
	until = vb_sim_now(c->f) + most_ns;
	while (c->done < of && vb_sim_now(c->f) < until)
		must(vb_task_sleep_until(vb_sim_now(c->f) + 10 * US));
	if (c->done < of)
		fail_msg("of %u that began together %u are done after %u tries, %u commits", of,
			 c->done, c->tries, c->commits);
	assert_int_equal(c->commits, of * COMMITS);
	close_crowd(c);
}

/* A lease is enough for each alone, and not for all of them at once. */
static void all_get_through(void **state)
{
	struct crowd c;

	(void)state;
	run_crowd(&c, 1, 20 * MS);
	assert_int_equal(c.tries, COMMITS);
	run_crowd(&c, CROWD / 2, 200 * MS);
	assert_true(c.tries > 2 * c.commits);
	run_crowd(&c, CROWD, 200 * MS);
	assert_true(c.tries > 2 * c.commits);
}

/* ---- pauses have an end ---- */

struct vain {
	struct crowd *c;
	uint64_t last_ns;
};

static int in_vain(struct vb_coordinator *me, void *arg)
{
	struct vain *v = arg;

	must(vb_ep_sleep(me->ep, LEASE_NS));
	v->last_ns = vb_sim_now(v->c->f);
	return -EAGAIN;
}

static void pauses_have_an_end(void **state)
{
	(void)state;
	assert_int_equal(vb_txn_pause_most(1, 0), 4 * US);
	assert_int_equal(vb_txn_pause_most(1, UINT64_MAX), 4 * US);
	assert_int_equal(vb_txn_pause_most(1000, 0), 512 * US);
	assert_int_equal(vb_txn_pause_most(1000, 100 * MS), 100 * MS);
	assert_in_range(vb_txn_pause_most(1000, UINT64_MAX), 2000 * MS, 2100 * MS);
}

/* Who has a time for all tries is tried until it is over, and no pause goes beyond it. */
static void no_pause_beyond_its_time(void **state)
{
	static const struct vb_txn_params params = {.timeout_ns = 20 * MS};
	struct crowd c;
	struct vain v = {.c = &c};

	(void)state;
	open_crowd(&c);
	must(vb_coordinator_open(c.db, 0, &c.me[c.opened++]));
	for (unsigned i = 0; i < 10; i++) {
		uint64_t begin = vb_sim_now(c.f);

		assert_int_equal(vb_txn_run_with(c.me[0], &params, in_vain, &v, 0), -ETIMEDOUT);
		assert_in_range(vb_sim_now(c.f) - begin, 20 * MS, 20 * MS + LEASE_NS + 10 * US);
		assert_in_range(v.last_ns - begin, 20 * MS, 20 * MS + LEASE_NS + 10 * US);
	}
	close_crowd(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_get_through),
		cmocka_unit_test(pauses_have_an_end),
		cmocka_unit_test(no_pause_beyond_its_time),
	};

	return cmocka_run_group_tests_name("a crowd of transactions", tests, NULL, NULL);
}
