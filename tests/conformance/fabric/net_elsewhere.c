/* SPDX-License-Identifier: Apache-2.0 */
/* What has to be done where a node's memory is: refused in another process, with a line that
 * says so.  And what another process had open ends with it. */
#include "crowd.h"

#include <errno.h>

#include <verbena/lock.h>
#include <verbena/txn.h>

#define VB_LOG_ROOM "test"
#include "base/log.h"

#define LEASE_NS 60000000000ull

/* The call says so, and the log says where it is to be done. */
#define elsewhere(call, wanted)                                                                    \
	do {                                                                                       \
		char said_[512] = "";                                                              \
                                                                                                   \
		vb_log_capture_begin(said_, sizeof(said_));                                        \
		crowd_must((call) == (wanted));                                                    \
		vb_log_capture_end();                                                              \
		crowd_must(strstr(said_, "lives in") != NULL || strstr(said_, "load it there"));   \
	} while (0)

/* Counts the space and the database among what a node has. */
static int count_named(void *user, const struct vb_named *named)
{
	unsigned *n = user;

	*n += named->kind == VB_NAMED_LOCKS && strcmp(named->name, "locks") == 0;
	*n += named->kind == VB_NAMED_DB && strcmp(named->name, "db") == 0;
	return 0;
}

static void member(struct crowd *c)
{
	const struct vb_lock_space_params sp = {
		.lock = "table", .locks = 10, .servers = 2, .lease_ns = LEASE_NS};
	const struct vb_db_params dp = {
		.cc = "silo", .coordinators = 2, .bytes_max = 1024, .lease_ns = LEASE_NS};
	const struct vb_table_params tp = {.name = "t", .record_bytes = 8, .records = 16};
	uint16_t mine = (uint16_t)c->rank, other = 1 - mine;
	struct vb_lock_server *ls = NULL;
	struct vb_db_server *ds = NULL;
	struct vb_coordinator *me = NULL;
	struct vb_lock_client *lc = NULL;
	struct vb_lock_space *space;
	struct vb_table *t;
	struct vb_db *db;
	uint64_t record = 7;
	unsigned n = 0;

	crowd_must(vb_lock_space_open(c->f, &sp, &space) == 0);
	crowd_must(vb_db_open(c->f, &dp, &db) == 0);
	crowd_must(vb_table_open(db, &tp, &t) == 0);
	/* What a name tells is told from afar, too. */
	crowd_must(vb_fabric_each(c->f, mine, count_named, &n) == 0 && n == 2);
	crowd_must(vb_fabric_each(c->f, other, count_named, &n) == 0 && n == 4);
	elsewhere(vb_lock_server_start(space, other, 0, 1, &ls), -EXDEV);
	elsewhere(vb_db_server_start(db, other, &ds), -EXDEV);
	elsewhere(vb_coordinator_open(db, other, &me), -EXDEV);
	elsewhere(vb_table_load(t, other, &record), -EXDEV);
	elsewhere(vb_lock_client_open(space, other, &lc), -EINVAL);
	crowd_must(vb_cluster_barrier(c->cluster) == 0);
	crowd_must(ls == NULL && ds == NULL && me == NULL && lc == NULL);
	crowd_must(vb_lock_server_start(space, mine, 0, 1, &ls) == 0);
	crowd_must(vb_db_server_start(db, mine, &ds) == 0);
	crowd_must(vb_coordinator_open(db, mine, &me) == 0);
	crowd_must(vb_table_load(t, mine, &record) == 0);
	crowd_must(vb_cluster_barrier(c->cluster) == 0);
	vb_coordinator_close(me);
	vb_db_server_stop(ds);
	vb_lock_server_stop(ls);
	vb_db_close(db);
	vb_lock_space_close(space);
	crowd_must(vb_cluster_barrier(c->cluster) == 0);
}

static void test_elsewhere(void **state)
{
	const crowd_body bodies[] = {member, member};

	(void)state;
	crowd_end(crowd_run("tcp", "bound=2s,silence=20s", 2, bodies, CROWD_MAX));
}

static void dies_with_a_space(struct crowd *c)
{
	const struct vb_lock_space_params p = {.lock = "cas", .locks = 10};
	struct vb_lock_space *space;

	crowd_must(vb_lock_space_open(c->f, &p, &space) == 0);
	crowd_step(c, 1);
	crowd_await(c, 2);
	raise(SIGKILL);
}

static void removes_it(struct crowd *c)
{
	uint64_t until = crowd_now() + CROWD_WAIT_NS;
	int err;

	crowd_await(c, 1);
	crowd_must(vb_lock_space_remove(c->f, "locks") == -EBUSY);
	crowd_step(c, 2);
	/* Until its death is heard of. */
	while ((err = vb_lock_space_remove(c->f, "locks")) == -EBUSY) {
		crowd_must(crowd_now() < until);
		crowd_must(vb_ep_sleep(c->ep, 10000000) == 0);
	}
	crowd_must(err == 0);
}

static void test_dead_has_nothing_open(void **state)
{
	const crowd_body bodies[] = {removes_it, dies_with_a_space};

	(void)state;
	crowd_end(crowd_run("tcp", "bound=50ms", 2, bodies, 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_elsewhere),
					   cmocka_unit_test(test_dead_has_nothing_open)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
