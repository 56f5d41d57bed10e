/* SPDX-License-Identifier: Apache-2.0 */
/* One of everything that a program can open, for test_misuse.c: what the calls of misuse_calls.h are made with. */
#ifndef VB_TESTS_MISUSE_WORLD_H
#define VB_TESTS_MISUSE_WORLD_H

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
	struct vb_host *host;
	struct vb_db *db;
	struct vb_table *table;
	struct vb_values *values;
	struct vb_db_server *dbs, *task_dbs;
	struct vb_coordinator *co;
	char name[40];
} w;

/* What the calls that are refused would have filled in, and what they are given. */
static struct {
	struct vb_fabric_params fp;
	struct vb_log_message message;
	struct vb_log_socket socket;
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
	struct vb_ring *ring;
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

static int named(void *user, const struct vb_named *named)
{
	(void)user, (void)named;
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
	assert_int_equal(vb_host_open(NULL, &w.host), 0);
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
	assert_int_equal(vb_db_server_start(w.db, 1, &w.task_dbs), 0);
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
	assert_int_equal(vb_host_close(w.host), 0);
	vb_names_close(w.names);
	assert_int_equal(vb_lock_space_close(w.space), 0);
	assert_int_equal(vb_lock_space_close(w.rpc), 0);
	vb_coordinator_close(w.co);
	vb_db_server_stop(w.dbs);
	vb_db_server_stop(w.task_dbs);
	vb_values_close(w.values);
	assert_int_equal(vb_db_close(w.db), 0);
	assert_int_equal(vb_fabric_close(w.f), 0);
	vb_cluster_close(w.cluster);
	return 0;
}

#endif
