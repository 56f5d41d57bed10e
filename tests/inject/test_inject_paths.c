/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Error paths that matter and that nothing else walks on purpose: no descriptors at accept, a peer that
 * does not read, an index that does not come to rest, a lock server that has stopped.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <verbena/lock.h>
#include <verbena/txn.h>

#include "base/log.h"
#include "cluster/cluster.h"
#include "cluster/inner.h"
#include "inject.h"
#include "store/store.h"

#define PATIENCE_NS 60000000000ull

pid_t __real_fork(void);

/* ---- no descriptors ---- */

/* Descriptors come back once the root has done without them twice. */
static void *closes_others(void *arg)
{
	(void)arg;
	while (inject_failed() < 2)
		usleep(1000);
	inject_disarm();
	return NULL;
}

static void accept_without_descriptors(void **state)
{
	const struct inject_plan plan = {.how = INJECT_FROM, .at = 1, .only = "accept4"};
	struct vb_cluster_params p = {.hosts = 2, .timeout_ns = PATIENCE_NS};
	struct vb_cluster *c;
	pthread_t thread;
	char meet[32];
	uint16_t port;
	int fd, status;
	pid_t peer;

	assert_int_equal(vb_cluster_listen("127.0.0.1", 0, &fd, &port), 0);
	snprintf(meet, sizeof(meet), "127.0.0.1:%u", port);
	p.meet = meet;
	peer = __real_fork();
	assert_true(peer >= 0);
	if (peer == 0) {
		close(fd);
		p.role = VB_CLUSTER_MEMBER;
		_exit(vb_cluster_open(&p, &c) == 0 && vb_cluster_barrier(c) == 0 ? 0 : 1);
	}
	inject_arm(&plan);
	assert_int_equal(pthread_create(&thread, NULL, closes_others, NULL), 0);
	assert_int_equal(vb_cluster_open_on(&p, fd, &c), 0);
	pthread_join(thread, NULL);
	assert_in_range(inject_failed(), 2, 1000); /* it has waited in between */
	assert_string_equal(inject_what(), "accept4");
	assert_int_equal(vb_cluster_barrier(c), 0);
	assert_int_equal(waitpid(peer, &status, 0), peer);
	assert_int_equal(status, 0);
	vb_cluster_close(c);
}

/* ---- a peer that does not read ---- */

static void peer_that_does_not_read(void **state)
{
	struct vb_cluster c = {0};
	struct cluster_conn *k;
	unsigned pongs = 0;
	int fd[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
	vb_list_init(&c.conns);
	k = conn_new(&c, fd[0], "somebody");
	assert_non_null(k);
	while (!k->broken && pongs < 2 * CL_TX_MAX) {
		conn_pong(k, pongs++);
		conn_write(k);
	}
	assert_true(k->broken);
	assert_string_equal(k->why, "does not take what it is sent");
	assert_in_range(k->tx_len, CL_TX_MAX - 4 * CL_CONTROL_MAX, CL_TX_MAX);
	conn_free(&c, k);
	close(fd[1]);
}

/* ---- an index that does not come to rest ---- */

static void restless_index(void **state)
{
	struct vb_table_params tp = {.name = "t", .record_bytes = 8, .records = 16};
	struct vb_table_header *header;
	struct vb_db_server *server;
	struct vb_coordinator *me;
	struct vb_fabric *f;
	struct vb_table *t;
	struct vb_db *db;
	uint64_t record = 1;
	char text[1024];
	int err;

	assert_int_equal(vb_fabric_open(&(struct vb_fabric_params){.fabric = "sim",
								   .node_bytes = 16 << 20,
								   .endpoints = 8},
					&f),
			 0);
	assert_int_equal(vb_db_open(f, &(struct vb_db_params){.cc = "silo"}, &db), 0);
	assert_int_equal(vb_table_open(db, &tp, &t), 0);
	assert_int_equal(vb_table_load(t, 1, &record), 0);
	assert_int_equal(vb_db_server_start(db, 0, &server), 0);
	assert_int_equal(vb_coordinator_open(db, 0, &me), 0);
	header = vb_local(f, t->node[0].header, sizeof(*header));
	header->moves++; /* as if its server had died in the middle of a move */
	assert_int_equal(vb_txn_begin(me), 0);
	vb_log_capture_begin(text, sizeof(text));
	err = vb_txn_read(me, t, 2, &record);
	vb_log_capture_end();
	assert_int_equal(err, -VB_EUNKNOWN);
	assert_non_null(strstr(text, "the index of table 't' on node 0 does not come to rest"));
	assert_int_equal(vb_txn_cause(me), VB_TXN_FABRIC);
	header->moves++;
	assert_int_equal(vb_txn_begin(me), 0);
	assert_int_equal(vb_txn_read(me, t, 2, &record), -ENOENT);
	assert_int_equal(vb_txn_read(me, t, 1, &record), 0);
	assert_int_equal(vb_txn_commit(me), 0);
	vb_coordinator_close(me);
	vb_db_server_stop(server);
	assert_int_equal(vb_db_close(db), 0);
	assert_int_equal(vb_fabric_close(f), 0);
}

/* ---- one of a node's lock servers has stopped ---- */

static void stopped_server(void **state)
{
	struct vb_lock_server *server[2];
	struct vb_lock_space *space;
	struct vb_lock_client *me;
	struct vb_grant grant;
	struct vb_fabric *f;
	char text[1024];
	int err;

	assert_int_equal(vb_fabric_open(&(struct vb_fabric_params){.fabric = "sim",
								   .node_bytes = 1 << 20,
								   .endpoints = 8},
					&f),
			 0);
	assert_int_equal(
		vb_lock_space_open(f, &(struct vb_lock_space_params){.lock = *state, .locks = 4},
				   &space),
		0);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(vb_lock_server_start(space, 0, i, 2, &server[i]), 0);
	vb_lock_server_stop(server[1]);
	assert_int_equal(vb_lock_client_open(space, 0, &me), 0);
	vb_log_capture_begin(text, sizeof(text));
	err = vb_lock_acquire(me, 1, VB_EXCLUSIVE, PATIENCE_NS, &grant);
	vb_log_capture_end();
	assert_int_equal(err, -VB_EPEERGONE);
	assert_non_null(strstr(text, "locks on node 0 has stopped"));
	assert_int_equal(vb_lock_acquire(me, 0, VB_EXCLUSIVE, PATIENCE_NS, &grant), 0);
	assert_int_equal(vb_lock_release(me, &grant), 0);
	assert_int_equal(vb_lock_server_start(space, 0, 1, 2, &server[1]), 0);
	assert_int_equal(vb_lock_acquire(me, 1, VB_EXCLUSIVE, PATIENCE_NS, &grant), 0);
	assert_int_equal(vb_lock_release(me, &grant), 0);
	vb_lock_client_close(me);
	for (unsigned i = 0; i < 2; i++)
		vb_lock_server_stop(server[i]);
	assert_int_equal(vb_lock_space_close(space), 0);
	assert_int_equal(vb_fabric_close(f), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(accept_without_descriptors),
		cmocka_unit_test(peer_that_does_not_read),
		cmocka_unit_test(restless_index),
		{.name = "stopped_server rpc", .test_func = stopped_server, .initial_state = "rpc"},
		{.name = "stopped_server traditional",
		 .test_func = stopped_server,
		 .initial_state = "traditional"},
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
