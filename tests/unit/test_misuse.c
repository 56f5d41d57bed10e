/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program may do wrong with the public calls: closing what is in use, grants that are over,
 * children that do not tell, clients of other threads, NULL.  Each is refused with a line that says
 * why, and harms nobody.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <verbena/async.h>
#include <verbena/cluster.h>
#include <verbena/host.h>
#include <verbena/lock.h>
#include <verbena/names.h>
#include <verbena/provider.h>
#include <verbena/txn.h>

#define VB_LOG_ROOM "test"
#include "base/compiler.h"
#include "base/log.h"
#include "child.h"
#include "lock/lock.h"
#include "txn/db.h"

#include "misuse_world.h"

/* Of the list of calls and their threads, which the headers make. */
static const char *threads_path;

/* ---- every call ---- */

#define BODIES(call, null_call, null_value, where, foreign_call, foreign_value)                    \
	static long null_##call(void)                                                              \
	{                                                                                          \
		return (long)(null_call);                                                          \
	}                                                                                          \
	static long foreign_##call(void)                                                           \
	{                                                                                          \
		return (long)(foreign_call);                                                       \
	}
CALLS(BODIES)

#define ROW(call, null_call, null_value, where, foreign_call, foreign_value)                       \
	{#call, null_##call, (long)(null_value), where, foreign_##call, (long)(foreign_value)},
static const struct row {
	const char *name;
	long (*with_null)(void);
	long null_value;
	enum where where;
	long (*foreign)(void);
	long foreign_value;
} rows[] = {CALLS(ROW)};

static void test_every_call_has_a_row(void **state)
{
	FILE *map = fopen(VERBENA_MAP, "r");
	char line[128], name[100];
	size_t n = 0, i;

	(void)state;
	assert_non_null(map);
	while (fgets(line, sizeof(line), map) != NULL) {
		if (sscanf(line, " vb_%90[a-z0-9_];", name) != 1)
			continue;
		for (i = 0; i < VB_ARRAY_SIZE(rows); i++)
			if (strcmp(rows[i].name + 3, name) == 0)
				break;
		if (i == VB_ARRAY_SIZE(rows))
			fail_msg("vb_%s has no row in misuse_calls.h", name);
		n++;
	}
	fclose(map);
	assert_int_equal(n, VB_ARRAY_SIZE(rows));
}

static const struct row *row_of(const char *name)
{
	for (size_t i = 0; i < VB_ARRAY_SIZE(rows); i++)
		if (strcmp(rows[i].name, name) == 0)
			return &rows[i];
	fail_msg("%s has no row in misuse_calls.h", name);
	return NULL;
}

/* In the words that verbena/fabric.h explains, and perhaps with more behind a semicolon. */
static bool is_of_threads(const char *words)
{
	static const char *const forms[] = {"any, one at a time for a %*[a-z]%n", "any, alone%n",
					    "any%n", "the %*[a-z]'s, which is the client's%n",
					    "the %*[a-z]'s%n"};

	for (size_t i = 0; i < VB_ARRAY_SIZE(forms); i++) {
		int end = -1;

		(void)sscanf(words, forms[i], &end);
		if (end > 0 && (words[end] == '\0' || strncmp(words + end, "; ", 2) == 0))
			return true;
	}
	return false;
}

/* What a header says of a call's threads is what its row tries. */
static void test_threads_as_told(void **state)
{
	FILE *list = fopen(threads_path, "r");
	char line[256], name[64], words[128];
	size_t n = 0;

	(void)state;
	assert_non_null(list);
	while (fgets(line, sizeof(line), list) != NULL) {
		if (sscanf(line, "%63[a-z0-9_]\t%127[^\n]", name, words) != 2)
			fail_msg("the header does not say which threads may call: %s", line);
		if (!is_of_threads(words))
			fail_msg("%s: 'Threads: %s.' is in no words that verbena/fabric.h explains",
				 name, words);
		if ((strncmp(words, "the ", 4) == 0) != (row_of(name)->where == CHILD_AND_THREAD))
			fail_msg("%s: 'Threads: %s.', and its row in misuse_calls.h says otherwise",
				 name, words);
		n++;
	}
	fclose(list);
	assert_int_equal(n, VB_ARRAY_SIZE(rows));
}

static void test_null(void **state)
{
	(void)state;
	for (size_t i = 0; i < VB_ARRAY_SIZE(rows); i++) {
		long got;

		listen();
		got = rows[i].with_null();
		vb_log_capture_end();
		if (got != rows[i].null_value)
			fail_msg("%s with NULL: %ld", rows[i].name, got);
		if (got == -EINVAL && rows[i].with_null != null_vb_txn_error &&
		    (strstr(said, "NULL") == NULL || strstr(said, "vb_") == NULL))
			fail_msg("%s with NULL says '%s'", rows[i].name, said);
	}
}

/* How many calls are not refused as they must be; each is named. */
static int refused(enum where where, const char *word)
{
	int wrong = 0;

	for (size_t i = 0; i < VB_ARRAY_SIZE(rows); i++) {
		const struct row *r = &rows[i];
		long got;

		if (r->where < where)
			continue;
		listen();
		got = r->foreign();
		vb_log_capture_end();
		if (got == r->foreign_value &&
		    (strstr(said, word) != NULL || r->foreign == foreign_vb_poll))
			continue;
		fprintf(stderr, "%s: %ld '%s'\n", r->name, got, said);
		wrong++;
	}
	return wrong;
}

/* ---- children ---- */

static int status_of(pid_t child)
{
	int status;

	assert_true(child > 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	return status;
}

/* The segment still has its name: another process finds it. */
static void is_named(void)
{
	struct vb_fabric_params p = o.fp;
	struct vb_fabric *again;
	pid_t child = fork_child();

	if (child == 0) {
		p.attach = true;
		_exit(vb_fabric_open(&p, &again) != 0 || vb_fabric_close(again) != 0);
	}
	assert_int_equal(status_of(child), 0);
}

static void test_untold_child(void **state)
{
	pid_t child = fork_child();

	(void)state;
	if (child == 0)
		_exit(refused(CHILD, "forked"));
	assert_int_equal(status_of(child), 0);
	unharmed();
	is_named();
}

static int told(void)
{
	struct vb_lock_client *c;
	struct vb_grant g;

	vb_fabric_after_fork(w.f);
	vb_fabric_after_fork(w.f);
	listen();
	/* The parent's client stays the parent's. */
	if (vb_lock_release(w.me, &w.g) != FOREIGN || vb_lock_valid(w.me, &w.g))
		return 1;
	vb_lock_server_stop(w.server);
	vb_db_server_stop(w.dbs);
	vb_coordinator_close(w.co);
	vb_log_capture_end();
	if (vb_lock_client_open(w.space, 0, &c) != 0 ||
	    vb_lock_try(c, HELD, VB_EXCLUSIVE, &g) != -EAGAIN)
		return 2;
	if (vb_lock_acquire(c, 1, VB_EXCLUSIVE, 0, &g) != 0 || vb_lock_release(c, &g) != 0)
		return 3;
	listen();
	if (vb_fabric_close(w.f) != -EBUSY || strstr(said, "lock client") == NULL ||
	    strstr(said, "coordinator") != NULL)
		return 4;
	vb_log_capture_end();
	vb_lock_client_close(c);
	if (vb_lock_space_close(w.space) != 0)
		return 5;
	/* What the parent has open is the parent's. */
	return vb_fabric_close(w.f) != 0;
}

/* With what it opens itself it goes on, and what it closes is its own. */
static void test_told_child(void **state)
{
	pid_t child = fork_child();

	(void)state;
	if (child == 0)
		_exit(told());
	assert_int_equal(status_of(child), 0);
	is_named();
}

static int grandchild(void)
{
	pid_t child;

	vb_fabric_after_fork(w.f);
	child = fork_child();
	if (child == 0)
		_exit(refused(CHILD, "forked"));
	return status_of(child);
}

/* Who was told must tell again, and another fabric of one's own needs no telling. */
static void test_children_of_children(void **state)
{
	pid_t child = fork_child();
	struct vb_fabric *mine;
	struct vb_lock_space *s;
	struct vb_lock_client *c;

	(void)state;
	if (child == 0)
		_exit(grandchild() != 0);
	assert_int_equal(status_of(child), 0);
	child = fork_child();
	if (child == 0) {
		if (vb_fabric_open(&(struct vb_fabric_params){.node_bytes = 1u << 20}, &mine) !=
			    0 ||
		    vb_lock_space_open(mine, &o.sp, &s) != 0 || vb_lock_client_open(s, 0, &c) != 0)
			_exit(1);
		/* Telling of another fabric leaves this one's clients alone. */
		vb_fabric_after_fork(w.f);
		if (vb_lock_acquire(c, 1, VB_EXCLUSIVE, 0, &o.g) != 0)
			_exit(2);
		vb_lock_client_close(c);
		_exit(vb_lock_space_close(s) != 0 || vb_fabric_close(mine) != 0);
	}
	assert_int_equal(status_of(child), 0);
}

/* ---- threads ---- */

static void *other_thread(void *arg)
{
	*(int *)arg = refused(CHILD_AND_THREAD, "thread");
	return NULL;
}

static void test_other_thread(void **state)
{
	struct vb_lock_client *c;
	struct vb_grant g;
	pthread_t t;
	int wrong;

	(void)state;
	assert_int_equal(pthread_create(&t, NULL, other_thread, &wrong), 0);
	assert_int_equal(pthread_join(t, NULL), 0);
	assert_int_equal(wrong, 0);
	/* The same while a keeper has what this thread has left behind. */
	assert_int_equal(vb_lock_client_open(w.space, 0, &c), 0);
	assert_int_equal(vb_lock_acquire(c, HELD, VB_EXCLUSIVE, 1000000, &g), -ETIMEDOUT);
	assert_int_equal(pthread_create(&t, NULL, other_thread, &wrong), 0);
	assert_int_equal(pthread_join(t, NULL), 0);
	assert_int_equal(wrong, 0);
	unharmed();
	assert_int_equal(vb_lock_release(w.me, &w.g), 0);
	vb_lock_client_close(c);
	assert_int_equal(vb_lock_acquire(w.me, HELD, VB_EXCLUSIVE, VB_FOREVER_NS, &w.g), 0);
}

/* What any thread may ask of what another one has open, while that one is in the middle of it. */
static void *asks(void *arg)
{
	uint64_t now = vb_lock_now(w.me);

	(void)arg;
	for (unsigned i = 0; i < 1000; i++) {
		assert_int_equal(vb_lock_hold_max_ns(w.me, VB_EXCLUSIVE) % 60000000000ull, 0);
		assert_int_equal(vb_peer_node(vb_lock_client_peer(w.me)), 0);
		assert_true(vb_lock_now(w.me) >= now);
		assert_true(vb_ring_fd(w.ring) >= 0);
		assert_int_equal(vb_table_node(w.table, 1), 1);
		assert_int_equal(vb_table_record_bytes(w.table), 8);
		assert_int_equal(vb_cluster_hosts(w.cluster), 1);
		assert_int_equal(vb_cluster_rank(w.cluster), 0);
		assert_true(vb_cluster_alive(w.cluster, 0));
		assert_non_null(strstr(vb_cluster_name(w.cluster, 0), "rank 0"));
	}
	return NULL;
}

static void test_any_thread(void **state)
{
	pthread_t t;

	(void)state;
	listen();
	assert_int_equal(pthread_create(&t, NULL, asks, NULL), 0);
	for (unsigned i = 0; i < 100; i++)
		unharmed();
	assert_int_equal(pthread_join(t, NULL), 0);
	vb_log_capture_end();
	assert_string_equal(said, "");
}

/* As if another thread were in the call: what is one at a time is refused, and goes on afterwards. */
static void test_one_at_a_time(void **state)
{
	struct vb_table_params again = {.name = "later", .record_bytes = 8, .records = 10};
	uint64_t two = 2;

	(void)state;
	w.db->store.opening = true;
	SAYS(vb_table_open(w.db, &again, &o.table), -EBUSY, "'db'", "another thread",
	     "one at a time");
	again.ordered = true;
	SAYS(vb_table_open(w.db, &again, &o.table), -EBUSY, "another thread");
	SAYS(vb_values_open(w.db, &o.vp, &o.values), -EBUSY, "another thread");
	w.db->store.opening = false;
	assert_null(o.table);
	assert_null(o.values);
	assert_int_equal(vb_table_open(w.db, &again, &o.table), 0);
	again.name = "last";
	assert_int_equal(vb_table_open(w.db, &again, &o.table), 0);
	w.table->node[0].loading = true;
	SAYS(vb_table_load(w.table, 2, &two), -EBUSY, "'t'", "node 0", "one at a time");
	/* Of another node, at the same time. */
	assert_int_equal(vb_table_load(w.table, 3, &two), 0);
	w.table->node[0].loading = false;
	assert_int_equal(vb_table_load(w.table, 2, &two), 0);
	SAYS(vb_table_load(w.table, 2, &two), -EEXIST, "already");
	SAYS(vb_table_load(w.table, 2, &two), -EEXIST, "already");
}

/* ---- closing what is in use ---- */

static void test_close_in_use(void **state)
{
	(void)state;
	SAYS(vb_fabric_close(w.f), -EBUSY, "'shm'", "lock space 'locks'", "more", "close");
	unharmed();
	SAYS(vb_lock_space_close(w.space), -EBUSY, "lock space 'locks'", "lock client", "node 0");
	SAYS(vb_lock_space_close(w.rpc), -EBUSY, "'served'", "lock server");
	SAYS(vb_db_close(w.db), -EBUSY, "database 'db'", "coordinator 0 of 'db'", "server",
	     "table of values");
	unharmed();
	vb_lock_client_close(w.me);
	SAYS(vb_lock_space_close(w.space), -EBUSY, "directory of names");
	vb_names_close(w.names);
	assert_int_equal(vb_lock_space_close(w.space), 0);
	vb_lock_server_stop(w.server);
	assert_int_equal(vb_lock_space_close(w.rpc), 0);
	vb_coordinator_close(w.co);
	SAYS(vb_db_close(w.db), -EBUSY, "server");
	vb_db_server_stop(w.dbs);
	vb_db_server_stop(w.task_dbs);
	SAYS(vb_db_close(w.db), -EBUSY, "table of values");
	SAYS(vb_fabric_close(w.f), -EBUSY, "database 'db'");
	vb_values_close(w.values);
	assert_int_equal(vb_db_close(w.db), 0);
	assert_int_equal(vb_fabric_close(w.f), 0);
	vb_cluster_close(w.cluster);
	assert_int_equal(vb_ring_close(w.ring), 0);
	assert_int_equal(vb_host_close(w.host), 0);
	/* For the teardown. */
	assert_int_equal(setup(NULL), 0);
}

/* ---- grants ---- */

struct fixture {
	struct vb_fabric *f;
	struct vb_lock_space *s;
	struct vb_lock_server *server;
	struct vb_lock_client *a, *b;
};

static void open_fixture(struct fixture *x, const struct vb_lock_ops *ops)
{
	struct vb_lock_space_params p = {
		.lock = ops->name, .locks = LOCKS, .lease_ns = 10000000000ull, .fencing = true};

	assert_int_equal(vb_fabric_open(&(struct vb_fabric_params){.node_bytes = 16u << 20}, &x->f),
			 0);
	assert_int_equal(vb_lock_space_open(x->f, &p, &x->s), 0);
	assert_int_equal(vb_lock_server_start(x->s, 0, 0, 1, &x->server), 0);
	assert_int_equal(vb_lock_client_open(x->s, 0, &x->a), 0);
	assert_int_equal(vb_lock_client_open(x->s, 0, &x->b), 0);
}

static void close_fixture(struct fixture *x)
{
	vb_lock_client_close(x->a);
	vb_lock_client_close(x->b);
	vb_lock_server_stop(x->server);
	assert_int_equal(vb_lock_space_close(x->s), 0);
	assert_int_equal(vb_fabric_close(x->f), 0);
}

static void take(struct vb_lock_client *c, uint64_t lock, struct vb_grant *g)
{
	assert_int_equal(vb_lock_acquire(c, lock, VB_EXCLUSIVE, VB_FOREVER_NS, g), 0);
	assert_true(vb_lock_valid(c, g));
}

/* Good for nothing. */
static void is_over(struct vb_lock_client *c, struct vb_grant g)
{
	struct vb_grant one[1] = {g};

	assert_false(vb_lock_valid(c, &g));
	SAYS(vb_lock_release(c, &g), -EINVAL, "release of lock", "does not hold");
	SAYS(vb_lock_convert(c, &g, VB_SHARED, 0), -EINVAL, "conversion of lock", "does not hold");
	SAYS(vb_lock_release_all(c, one, 1), -EINVAL, "release of lock", "does not hold");
}

static void check_copies(struct fixture *x)
{
	struct vb_grant g, copy, later, pair[2];

	take(x->a, HELD, &g);
	copy = g;
	assert_int_equal(vb_lock_release(x->a, &g), 0);
	is_over(x->a, g);
	is_over(x->a, copy);
	/* Nor for a later hold of the same lock, in the same place. */
	take(x->a, HELD, &later);
	is_over(x->a, copy);
	assert_true(vb_lock_valid(x->a, &later));
	take(x->a, 1, &pair[1]);
	pair[0] = copy;
	SAYS(vb_lock_release_all(x->a, pair, 2), -EINVAL, "does not hold");
	pair[0] = later;
	copy = pair[1];
	assert_int_equal(vb_lock_release_all(x->a, pair, 2), 0);
	is_over(x->a, pair[0]);
	is_over(x->a, later);
	is_over(x->a, copy);
}

static void check_strange(struct fixture *x)
{
	struct vb_grant g, none = {0}, noise;
	struct vb_lock_client *c;

	memset(&noise, 0x5a, sizeof(noise));
	is_over(x->a, none);
	is_over(x->a, noise);
	take(x->a, HELD, &g);
	is_over(x->b, g);
	none = g;
	none.hold++;
	is_over(x->a, none);
	none = g;
	none.claim = NULL;
	SAYS(vb_lock_release(x->a, &none), -EINVAL, "does not hold");
	assert_true(vb_lock_valid(x->a, &g));
	/* A closed client's grant is not that of the next one, wherever that lies in memory. */
	vb_lock_client_close(x->a);
	assert_int_equal(vb_lock_client_open(x->s, 0, &x->a), 0);
	take(x->a, HELD, &none);
	is_over(x->a, g);
	assert_int_equal(vb_lock_release(x->a, &none), 0);
	/* Each client has numbers of its own. */
	assert_int_equal(vb_lock_client_open(x->s, 0, &c), 0);
	take(c, HELD, &g);
	g.claim = none.claim;
	is_over(x->a, g);
	vb_lock_client_close(c);
}

/* A conversion keeps the hold; a copy that says more than is held is not valid. */
static void check_conversions(struct fixture *x, const struct vb_lock_ops *ops)
{
	struct vb_grant g, before;

	if (ops->convert == NULL || !(ops->caps & VB_LOCK_SHARED))
		return;
	take(x->a, HELD, &g);
	before = g;
	if (vb_lock_convert(x->a, &g, VB_SHARED, 0) == 0) {
		assert_true(vb_lock_valid(x->a, &g));
		assert_false(vb_lock_valid(x->a, &before));
	}
	assert_int_equal(vb_lock_release(x->a, &g), 0);
	is_over(x->a, g);
	is_over(x->a, before);
}

static void test_grants(void **state)
{
	(void)state;
	for (const struct vb_lock_ops *const *l = vb_locks; *l != NULL; l++) {
		struct fixture x;

		open_fixture(&x, *l);
		check_copies(&x);
		check_strange(&x);
		/* Some modes may be refused; the log need not show it. */
		listen();
		check_conversions(&x, *l);
		vb_log_capture_end();
		close_fixture(&x);
	}
}

/* What a path stands on is valid as long as the caller's own grant of it. */
static void test_path(void **state)
{
	static const struct vb_lock_ops *table;
	uint64_t path[2] = {1, 2};
	struct vb_grant root, g[2];
	struct fixture x;

	(void)state;
	table = vb_lock_find("table");
	open_fixture(&x, table);
	assert_int_equal(vb_lock_acquire(x.a, 1, VB_INTENT_SHARED, VB_FOREVER_NS, &root), 0);
	assert_int_equal(vb_lock_acquire_path(x.a, path, 2, VB_EXCLUSIVE, VB_FOREVER_NS, g), 0);
	assert_null(g[0].claim);
	assert_true(vb_lock_valid(x.a, &root));
	assert_true(vb_lock_valid(x.a, &g[0]));
	assert_true(vb_lock_valid(x.a, &g[1]));
	assert_int_equal(vb_lock_release(x.a, &g[1]), 0);
	assert_int_equal(vb_lock_release(x.a, &root), 0);
	assert_false(vb_lock_valid(x.a, &g[0]));
	assert_false(vb_lock_valid(x.a, &g[1]));
	take(x.a, 1, &root);
	assert_false(vb_lock_valid(x.a, &g[0]));
	close_fixture(&x);
}

/* The last one to close has removed the name.  Where a test has failed nobody has: it goes here, and
 * does not stay on the machine. */
static int nothing_is_left(void **state)
{
	char path[80];

	(void)state;
	snprintf(path, sizeof(path), "/dev/shm/verbena.misuse-%d", (int)getpid());
	if (unlink(path) != 0)
		return 0;
	fprintf(stderr, "%s was left\n", path);
	return 1;
}

#define WORLD(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_call_has_a_row),
		cmocka_unit_test(test_threads_as_told),
		WORLD(test_null),
		WORLD(test_untold_child),
		WORLD(test_told_child),
		WORLD(test_children_of_children),
		WORLD(test_other_thread),
		WORLD(test_any_thread),
		WORLD(test_one_at_a_time),
		WORLD(test_close_in_use),
		cmocka_unit_test(test_grants),
		cmocka_unit_test(test_path),
	};

	vb_assert(argc == 2);
	threads_path = argv[1];
	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests_name("misuse", tests, NULL, nothing_is_left);
}
