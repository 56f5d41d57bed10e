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
#include <verbena/lock.h>
#include <verbena/names.h>
#include <verbena/provider.h>
#include <verbena/txn.h>

#define VB_LOG_ROOM "test"
#include "base/compiler.h"
#include "base/log.h"
#include "child.h"
#include "lock/lock.h"

#include "misuse_calls.h"

#define LOCKS 10
#define HELD  5

/* One of each, open. */
static struct {
	struct vb_fabric *f;
	struct vb_cluster *cluster;
	struct vb_lock_space *space, *rpc;
	struct vb_lock_server *server;
	struct vb_lock_client *me;
	struct vb_grant g; /* of HELD */
	struct vb_names *names;
	struct vb_ring *ring;
	struct vb_db *db;
	struct vb_table *table;
	struct vb_values *values;
	struct vb_db_server *dbs;
	struct vb_coordinator *co;
	char name[40];
} w;

/* What the calls that are refused would have filled in, and what they are given. */
static struct {
	struct vb_fabric_params fp;
	struct vb_provider provider;
	struct vb_provider_broken broken;
	struct vb_lock_space_params sp;
	struct vb_db_params dp;
	struct vb_table_params tp;
	struct vb_values_params vp;
	struct vb_txn_params xp;
	struct vb_txn_key keys[1];
	struct vb_txn_range range;
	struct vb_txn_row row;
	unsigned n;
	struct vb_fabric *fabric;
	struct vb_cluster *cluster;
	struct vb_lock_space *space;
	struct vb_lock_server *server;
	struct vb_lock_client *client;
	struct vb_grant g;
	struct vb_completion done;
	struct vb_holder holder;
	struct vb_names *names;
	struct vb_db *db;
	struct vb_table *table;
	struct vb_values *values;
	struct vb_db_server *dbs;
	struct vb_coordinator *co;
	const void *out;
	void *in;
	uint64_t key;
	uint32_t bytes;
	size_t size;
} o;

static char said[2048];

static void listen(void)
{
	said[0] = '\0';
	vb_log_capture_begin(said, sizeof(said));
}

#define SAYS(call, value, ...)                                                                     \
	do {                                                                                       \
		static const char *const words_[] = {__VA_ARGS__};                                 \
		long got_;                                                                         \
                                                                                                   \
		listen();                                                                          \
		got_ = (long)(call);                                                               \
		vb_log_capture_end();                                                              \
		assert_int_equal(got_, value);                                                     \
		for (size_t i_ = 0; i_ < VB_ARRAY_SIZE(words_); i_++)                              \
			if (strstr(said, words_[i_]) == NULL)                                      \
				fail_msg("'%s' does not say '%s'", said, words_[i_]);              \
	} while (0)

/* The value that all of them are, else one that is none. */
static int all(unsigned n, ...)
{
	va_list ap;
	int value;

	va_start(ap, n);
	value = va_arg(ap, int);
	while (--n > 0)
		if (va_arg(ap, int) != value)
			value = 12345;
	va_end(ap);
	return value;
}

static int each(void *user, uint64_t lock, const void *name, size_t bytes)
{
	(void)user, (void)lock, (void)name, (void)bytes;
	return 0;
}

static int nothing(void *arg)
{
	(void)arg;
	return 0;
}

static int body(struct vb_coordinator *me, void *arg)
{
	uint64_t n;

	(void)arg;
	return vb_txn_read(me, w.table, 1, &n);
}

/* ---- one of each ---- */

static void open_locks(void)
{
	struct vb_lock_space_params p = {
		.lock = "dslr", .locks = LOCKS, .lease_ns = 60000000000ull};

	assert_int_equal(vb_lock_space_open(w.f, &p, &w.space), 0);
	p = (struct vb_lock_space_params){.lock = "rpc", .name = "served", .locks = LOCKS};
	assert_int_equal(vb_lock_space_open(w.f, &p, &w.rpc), 0);
	assert_int_equal(vb_lock_server_start(w.rpc, 0, 0, 1, &w.server), 0);
	assert_int_equal(vb_lock_client_open(w.space, 0, &w.me), 0);
	assert_int_equal(vb_lock_acquire(w.me, HELD, VB_EXCLUSIVE, 0, &w.g), 0);
	assert_int_equal(vb_names_open(w.space, NULL, &w.names), 0);
	assert_int_equal(vb_ring_open(NULL, &w.ring), 0);
}

static void open_db(void)
{
	uint64_t one = 1;

	o.dp = (struct vb_db_params){.cc = "silo"};
	o.tp = (struct vb_table_params){.name = "t", .record_bytes = 8, .records = 100};
	o.vp = (struct vb_values_params){.name = "v", .bytes_max = 200, .records = 10};
	assert_int_equal(vb_db_open(w.f, &o.dp, &w.db), 0);
	assert_int_equal(vb_table_open(w.db, &o.tp, &w.table), 0);
	assert_int_equal(vb_values_open(w.db, &o.vp, &w.values), 0);
	assert_int_equal(vb_table_load(w.table, 1, &one), 0);
	assert_int_equal(vb_db_server_thread_start(w.db, 0, &w.dbs), 0);
	assert_int_equal(vb_coordinator_open(w.db, 0, &w.co), 0);
	o.keys[0] = (struct vb_txn_key){.table = w.table, .key = 1};
}

static int setup(void **state)
{
	(void)state;
	memset(&w, 0, sizeof(w));
	memset(&o, 0, sizeof(o));
	snprintf(w.name, sizeof(w.name), "misuse-%d", (int)getpid());
	o.fp = (struct vb_fabric_params){.name = w.name, .nodes = 2, .node_bytes = 16u << 20};
	o.sp = (struct vb_lock_space_params){.lock = "cas", .name = "other", .locks = LOCKS};
	assert_int_equal(vb_fabric_open(&o.fp, &w.f), 0);
	assert_int_equal(vb_cluster_open(&(struct vb_cluster_params){.hosts = 1}, &w.cluster), 0);
	open_locks();
	open_db();
	return 0;
}

/* All is as it was: what is held is held, and everything works. */
static void unharmed(void)
{
	struct vb_grant g;

	assert_true(vb_lock_valid(w.me, &w.g));
	assert_int_equal(vb_lock_acquire(w.me, HELD + 1, VB_EXCLUSIVE, 0, &g), 0);
	assert_int_equal(vb_lock_release(w.me, &g), 0);
	assert_int_equal(vb_txn_run(w.co, body, NULL, 0), 0);
	assert_int_equal(vb_cluster_barrier(w.cluster), 0);
}

static int teardown(void **state)
{
	(void)state;
	unharmed();
	assert_int_equal(vb_lock_release(w.me, &w.g), 0);
	vb_lock_client_close(w.me);
	vb_lock_server_stop(w.server);
	assert_int_equal(vb_ring_close(w.ring), 0);
	vb_names_close(w.names);
	assert_int_equal(vb_lock_space_close(w.space), 0);
	assert_int_equal(vb_lock_space_close(w.rpc), 0);
	vb_coordinator_close(w.co);
	vb_db_server_stop(w.dbs);
	vb_values_close(w.values);
	assert_int_equal(vb_db_close(w.db), 0);
	assert_int_equal(vb_fabric_close(w.f), 0);
	vb_cluster_close(w.cluster);
	return 0;
}

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
	SAYS(vb_db_close(w.db), -EBUSY, "table of values");
	SAYS(vb_fabric_close(w.f), -EBUSY, "database 'db'");
	vb_values_close(w.values);
	assert_int_equal(vb_db_close(w.db), 0);
	assert_int_equal(vb_fabric_close(w.f), 0);
	vb_cluster_close(w.cluster);
	assert_int_equal(vb_ring_close(w.ring), 0);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_call_has_a_row),
		WORLD(test_null),
		WORLD(test_untold_child),
		WORLD(test_told_child),
		WORLD(test_children_of_children),
		WORLD(test_other_thread),
		WORLD(test_close_in_use),
		cmocka_unit_test(test_grants),
		cmocka_unit_test(test_path),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests_name("misuse", tests, NULL, nothing_is_left);
}
