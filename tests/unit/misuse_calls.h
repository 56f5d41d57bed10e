/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every public call, with what it says to NULL, and what it says on another thread or in a child
 * that has not been told.  Which are refused to other threads the headers say:
 * test_threads_as_told.
 *
 *	X(call, with NULL for each pointer in turn, what that gives,
 *	  where it is refused, the call on what is open, what that gives there)
 *
 * A call that is exported and has no row fails test_every_call_has_a_row.
 */
#ifndef VB_TESTS_MISUSE_CALLS_H
#define VB_TESTS_MISUSE_CALLS_H

/* Where a call on what another thread, or the parent, has open is refused. */
enum where { NOWHERE, CHILD, CHILD_AND_THREAD };

#define FOREIGN (-VB_EFOREIGN)
#define VOID(call)                                                                                 \
	({                                                                                         \
		(call);                                                                            \
		0;                                                                                 \
	})

#define FABRIC_CALLS(X)                                                                            \
	X(vb_strerror, VOID(vb_strerror(0)), 0, NOWHERE, 0, 0)                                     \
	X(vb_allocator_set, vb_allocator_set(NULL), -EBUSY, NOWHERE, 0, 0)                         \
	X(vb_log_set, vb_log_set(NULL, NULL), 0, NOWHERE, 0, 0)                                    \
	X(vb_log_send,                                                                             \
	  all(2, VOID(vb_log_send(NULL, &o.message)), VOID(vb_log_send(&o.socket, NULL))), 0,      \
	  NOWHERE, 0, 0)                                                                           \
	X(vb_log_levels, vb_log_levels(NULL), -EINVAL, NOWHERE, 0, 0)                              \
	X(vb_version, vb_version() == NULL, 0, NOWHERE, 0, 0)                                      \
	X(vb_commit, vb_commit() == NULL, 0, NOWHERE, 0, 0)                                        \
	X(vb_fabric_open, all(2, vb_fabric_open(NULL, &o.fabric), vb_fabric_open(&o.fp, NULL)),    \
	  -EINVAL, NOWHERE, 0, 0)                                                                  \
	X(vb_fabric_close, vb_fabric_close(NULL), 0, CHILD, vb_fabric_close(w.f), FOREIGN)         \
	X(vb_fabric_after_fork, VOID(vb_fabric_after_fork(NULL)), 0, NOWHERE, 0, 0)                \
	X(vb_fabric_each,                                                                          \
	  all(2, vb_fabric_each(NULL, 0, named, NULL), vb_fabric_each(w.f, 0, NULL, NULL)),        \
	  -EINVAL, CHILD, vb_fabric_each(w.f, 0, named, NULL), FOREIGN)                            \
	X(vb_poll, VOID(vb_poll()), 0, CHILD, VOID(vb_poll()), 0)                                  \
	X(vb_fabric_provide,                                                                       \
	  all(2, vb_fabric_provide(NULL, &o.fabric), vb_fabric_provide(&o.provider, NULL)),        \
	  -EINVAL, NOWHERE, 0, 0)                                                                  \
	X(vb_provider_check,                                                                       \
	  all(2, vb_provider_check(NULL, &o.broken), vb_provider_check(&o.provider, NULL)),        \
	  -EINVAL, NOWHERE, 0, 0)                                                                  \
	X(vb_cluster_open,                                                                         \
	  all(2, vb_cluster_open(NULL, &o.cluster),                                                \
	      vb_cluster_open(&(struct vb_cluster_params){.hosts = 1}, NULL)),                     \
	  -EINVAL, NOWHERE, 0, 0)                                                                  \
	X(vb_cluster_close, VOID(vb_cluster_close(NULL)), 0, CHILD,                                \
	  VOID(vb_cluster_close(w.cluster)), 0)                                                    \
	X(vb_cluster_rank, vb_cluster_rank(NULL), 0, NOWHERE, 0, 0)                                \
	X(vb_cluster_hosts, vb_cluster_hosts(NULL), 0, NOWHERE, 0, 0)                              \
	X(vb_cluster_name, vb_cluster_name(NULL, 0) == NULL, 0, NOWHERE, 0, 0)                     \
	X(vb_cluster_alive, vb_cluster_alive(NULL, 0), 0, NOWHERE, 0, 0)                           \
	X(vb_cluster_barrier, vb_cluster_barrier(NULL), -EINVAL, CHILD,                            \
	  vb_cluster_barrier(w.cluster), FOREIGN)

#define LOCK_CALLS(X)                                                                              \
	X(vb_lock_space_open,                                                                      \
	  all(3, vb_lock_space_open(NULL, &o.sp, &o.space),                                        \
	      vb_lock_space_open(w.f, NULL, &o.space), vb_lock_space_open(w.f, &o.sp, NULL)),      \
	  -EINVAL, CHILD, vb_lock_space_open(w.f, &o.sp, &o.space), FOREIGN)                       \
	X(vb_lock_space_close, vb_lock_space_close(NULL), 0, CHILD, vb_lock_space_close(w.space),  \
	  FOREIGN)                                                                                 \
	X(vb_lock_space_remove,                                                                    \
	  all(2, vb_lock_space_remove(NULL, "s"), vb_lock_space_remove(w.f, NULL)), -EINVAL,       \
	  CHILD, vb_lock_space_remove(w.f, "s"), FOREIGN)                                          \
	X(vb_lock_server_start,                                                                    \
	  all(2, vb_lock_server_start(NULL, 0, 0, 1, &o.server),                                   \
	      vb_lock_server_start(w.space, 0, 0, 1, NULL)),                                       \
	  -EINVAL, CHILD, vb_lock_server_start(w.rpc, 0, 0, 1, &o.server), FOREIGN)                \
	X(vb_lock_server_stop, VOID(vb_lock_server_stop(NULL)), 0, CHILD_AND_THREAD,               \
	  VOID(vb_lock_server_stop(w.server)), 0)                                                  \
	X(vb_lock_server_thread_start,                                                             \
	  all(2, vb_lock_server_thread_start(NULL, 0, &o.server),                                  \
	      vb_lock_server_thread_start(w.space, 0, NULL)),                                      \
	  -EINVAL, CHILD, vb_lock_server_thread_start(w.rpc, 1, &o.server), FOREIGN)               \
	X(vb_lock_client_open,                                                                     \
	  all(2, vb_lock_client_open(NULL, 0, &o.client), vb_lock_client_open(w.space, 0, NULL)),  \
	  -EINVAL, CHILD, vb_lock_client_open(w.space, 0, &o.client), FOREIGN)                     \
	X(vb_lock_client_close, VOID(vb_lock_client_close(NULL)), 0, CHILD_AND_THREAD,             \
	  VOID(vb_lock_client_close(w.me)), 0)                                                     \
	X(vb_lock_acquire,                                                                         \
	  all(2, vb_lock_acquire(NULL, 1, VB_EXCLUSIVE, 0, &o.g),                                  \
	      vb_lock_acquire(w.me, 1, VB_EXCLUSIVE, 0, NULL)),                                    \
	  -EINVAL, CHILD_AND_THREAD, vb_lock_acquire(w.me, 1, VB_EXCLUSIVE, 0, &o.g), FOREIGN)     \
	X(vb_lock_acquire_for,                                                                     \
	  all(2, vb_lock_acquire_for(NULL, 1, VB_EXCLUSIVE, 1, 0, &o.g),                           \
	      vb_lock_acquire_for(w.me, 1, VB_EXCLUSIVE, 1, 0, NULL)),                             \
	  -EINVAL, CHILD_AND_THREAD, vb_lock_acquire_for(w.me, 1, VB_EXCLUSIVE, 1, 0, &o.g),       \
	  FOREIGN)                                                                                 \
	X(vb_lock_hold_max_ns, vb_lock_hold_max_ns(NULL, VB_SHARED), 0, NOWHERE, 0, 0)             \
	X(vb_lock_try,                                                                             \
	  all(2, vb_lock_try(NULL, 1, VB_EXCLUSIVE, &o.g),                                         \
	      vb_lock_try(w.me, 1, VB_EXCLUSIVE, NULL)),                                           \
	  -EINVAL, CHILD_AND_THREAD, vb_lock_try(w.me, 1, VB_EXCLUSIVE, &o.g), FOREIGN)            \
	X(vb_lock_convert,                                                                         \
	  all(2, vb_lock_convert(NULL, &w.g, VB_SHARED, 0),                                        \
	      vb_lock_convert(w.me, NULL, VB_SHARED, 0)),                                          \
	  -EINVAL, CHILD_AND_THREAD, vb_lock_convert(w.me, &w.g, VB_SHARED, 0), FOREIGN)           \
	X(vb_lock_renew, all(2, vb_lock_renew(NULL, &w.g, 0), vb_lock_renew(w.me, NULL, 0)),       \
	  -EINVAL, CHILD_AND_THREAD, vb_lock_renew(w.me, &w.g, 0), FOREIGN)                        \
	X(vb_lock_holder,                                                                          \
	  all(2, vb_lock_holder(NULL, 1, &o.holder), vb_lock_holder(w.me, 1, NULL)), -EINVAL,      \
	  CHILD_AND_THREAD, vb_lock_holder(w.me, 1, &o.holder), FOREIGN)                           \
	X(vb_lock_client_peer, vb_lock_client_peer(NULL) != VB_PEER_NONE, 0, NOWHERE, 0, 0)        \
	X(vb_lock_mode_name, vb_lock_mode_name(VB_SHARED) == NULL, 0, NOWHERE, 0, 0)               \
	X(vb_lock_release, all(2, vb_lock_release(NULL, &w.g), vb_lock_release(w.me, NULL)),       \
	  -EINVAL, CHILD_AND_THREAD, vb_lock_release(w.me, &w.g), FOREIGN)                         \
	X(vb_lock_release_all,                                                                     \
	  all(2, vb_lock_release_all(NULL, &w.g, 1), vb_lock_release_all(w.me, NULL, 1)), -EINVAL, \
	  CHILD_AND_THREAD, vb_lock_release_all(w.me, &w.g, 1), FOREIGN)                           \
	X(vb_lock_acquire_path,                                                                    \
	  all(3, vb_lock_acquire_path(NULL, &o.key, 1, VB_SHARED, 0, &o.g),                        \
	      vb_lock_acquire_path(w.me, NULL, 1, VB_SHARED, 0, &o.g),                             \
	      vb_lock_acquire_path(w.me, &o.key, 1, VB_SHARED, 0, NULL)),                          \
	  -EINVAL, CHILD_AND_THREAD, vb_lock_acquire_path(w.me, &o.key, 1, VB_SHARED, 0, &o.g),    \
	  FOREIGN)                                                                                 \
	X(vb_lock_client_begin, VOID(vb_lock_client_begin(NULL, 0)), 0, CHILD_AND_THREAD,          \
	  VOID(vb_lock_client_begin(w.me, 0)), 0)                                                  \
	X(vb_lock_client_age, vb_lock_client_age(NULL), 0, CHILD_AND_THREAD,                       \
	  vb_lock_client_age(w.me), 0)                                                             \
	X(vb_lock_now, vb_lock_now(NULL), 0, NOWHERE, 0, 0)                                        \
	X(vb_lock_valid, vb_lock_valid(NULL, &w.g) || vb_lock_valid(w.me, NULL), false,            \
	  CHILD_AND_THREAD, vb_lock_valid(w.me, &w.g), false)                                      \
	X(vb_lock_outcome, vb_lock_outcome(0), VB_GRANTED, NOWHERE, 0, 0)

#define RING_CALLS(X)                                                                              \
	X(vb_ring_open, vb_ring_open(NULL, NULL), -EINVAL, NOWHERE, 0, 0)                          \
	X(vb_ring_close, vb_ring_close(NULL), 0, CHILD_AND_THREAD, vb_ring_close(w.ring), FOREIGN) \
	X(vb_lock_acquire_start,                                                                   \
	  all(3, vb_lock_acquire_start(NULL, w.me, 1, VB_EXCLUSIVE, 0, &o.g, NULL, NULL),          \
	      vb_lock_acquire_start(w.ring, NULL, 1, VB_EXCLUSIVE, 0, &o.g, NULL, NULL),           \
	      vb_lock_acquire_start(w.ring, w.me, 1, VB_EXCLUSIVE, 0, NULL, NULL, NULL)),          \
	  -EINVAL, CHILD_AND_THREAD,                                                               \
	  vb_lock_acquire_start(w.ring, w.me, 1, VB_EXCLUSIVE, 0, &o.g, NULL, NULL), FOREIGN)      \
	X(vb_lock_keep_start,                                                                      \
	  all(3, vb_lock_keep_start(NULL, w.me, &w.g, NULL, NULL),                                 \
	      vb_lock_keep_start(w.ring, NULL, &w.g, NULL, NULL),                                  \
	      vb_lock_keep_start(w.ring, w.me, NULL, NULL, NULL)),                                 \
	  -EINVAL, CHILD_AND_THREAD, vb_lock_keep_start(w.ring, w.me, &w.g, NULL, NULL), FOREIGN)  \
	X(vb_lock_release_start,                                                                   \
	  all(3, vb_lock_release_start(NULL, w.me, &w.g, NULL, NULL),                              \
	      vb_lock_release_start(w.ring, NULL, &w.g, NULL, NULL),                               \
	      vb_lock_release_start(w.ring, w.me, NULL, NULL, NULL)),                              \
	  -EINVAL, CHILD_AND_THREAD, vb_lock_release_start(w.ring, w.me, &w.g, NULL, NULL),        \
	  FOREIGN)                                                                                 \
	X(vb_ring_call,                                                                            \
	  all(2, vb_ring_call(NULL, nothing, NULL, NULL, NULL),                                    \
	      vb_ring_call(w.ring, NULL, NULL, NULL, NULL)),                                       \
	  -EINVAL, CHILD_AND_THREAD, vb_ring_call(w.ring, nothing, NULL, NULL, NULL), FOREIGN)     \
	X(vb_ring_cancel, vb_ring_cancel(NULL, 0), -EINVAL, CHILD_AND_THREAD,                      \
	  vb_ring_cancel(w.ring, 0), FOREIGN)                                                      \
	X(vb_ring_reap, all(2, vb_ring_reap(NULL, &o.done, 1), vb_ring_reap(w.ring, NULL, 1)),     \
	  -EINVAL, CHILD_AND_THREAD, vb_ring_reap(w.ring, &o.done, 1), FOREIGN)                    \
	X(vb_ring_wait, vb_ring_wait(NULL, 0), -EINVAL, CHILD_AND_THREAD, vb_ring_wait(w.ring, 0), \
	  FOREIGN)                                                                                 \
	X(vb_ring_fd, vb_ring_fd(NULL), -EINVAL, NOWHERE, 0, 0)                                    \
	X(vb_ring_arm, vb_ring_arm(NULL), -EINVAL, CHILD_AND_THREAD, vb_ring_arm(w.ring), FOREIGN)

#define HOST_CALLS(X)                                                                              \
	X(vb_host_open, vb_host_open(NULL, NULL), -EINVAL, NOWHERE, 0, 0)                          \
	X(vb_host_close, vb_host_close(NULL), 0, CHILD, vb_host_close(w.host), FOREIGN)            \
	X(vb_host_call,                                                                            \
	  all(2, vb_host_call(NULL, nothing, NULL), vb_host_call(w.host, NULL, NULL)), -EINVAL,    \
	  CHILD, vb_host_call(w.host, nothing, NULL), FOREIGN)                                     \
	X(vb_host_client_open,                                                                     \
	  all(3, vb_host_client_open(NULL, w.space, 0, &o.client),                                 \
	      vb_host_client_open(w.host, NULL, 0, &o.client),                                     \
	      vb_host_client_open(w.host, w.space, 0, NULL)),                                      \
	  -EINVAL, CHILD, vb_host_client_open(w.host, w.space, 0, &o.client), FOREIGN)             \
	X(vb_host_ring_open,                                                                       \
	  all(2, vb_host_ring_open(NULL, NULL, &o.ring), vb_host_ring_open(w.host, NULL, NULL)),   \
	  -EINVAL, CHILD, vb_host_ring_open(w.host, NULL, &o.ring), FOREIGN)

#define NAMES_CALLS(X)                                                                             \
	X(vb_names_open,                                                                           \
	  all(2, vb_names_open(NULL, NULL, &o.names), vb_names_open(w.space, NULL, NULL)),         \
	  -EINVAL, CHILD, vb_names_open(w.space, NULL, &o.names), FOREIGN)                         \
	X(vb_names_close, VOID(vb_names_close(NULL)), 0, NOWHERE, 0, 0)                            \
	X(vb_names_lock,                                                                           \
	  all(4, vb_names_lock(NULL, w.me, "a", 1, &o.key),                                        \
	      vb_names_lock(w.names, NULL, "a", 1, &o.key),                                        \
	      vb_names_lock(w.names, w.me, NULL, 1, &o.key),                                       \
	      vb_names_lock(w.names, w.me, "a", 1, NULL)),                                         \
	  -EINVAL, CHILD_AND_THREAD, vb_names_lock(w.names, w.me, "a", 1, &o.key), FOREIGN)        \
	X(vb_names_find,                                                                           \
	  all(4, vb_names_find(NULL, w.me, "a", 1, &o.key),                                        \
	      vb_names_find(w.names, NULL, "a", 1, &o.key),                                        \
	      vb_names_find(w.names, w.me, NULL, 1, &o.key),                                       \
	      vb_names_find(w.names, w.me, "a", 1, NULL)),                                         \
	  -EINVAL, CHILD_AND_THREAD, vb_names_find(w.names, w.me, "a", 1, &o.key), FOREIGN)        \
	X(vb_names_of,                                                                             \
	  all(4, vb_names_of(NULL, w.me, 1, &o.key, 8, &o.size),                                   \
	      vb_names_of(w.names, NULL, 1, &o.key, 8, &o.size),                                   \
	      vb_names_of(w.names, w.me, 1, NULL, 8, &o.size),                                     \
	      vb_names_of(w.names, w.me, 1, &o.key, 8, NULL)),                                     \
	  -EINVAL, CHILD_AND_THREAD, vb_names_of(w.names, w.me, 1, &o.key, 8, &o.size), FOREIGN)   \
	X(vb_names_each,                                                                           \
	  all(3, vb_names_each(NULL, w.me, each, NULL), vb_names_each(w.names, NULL, each, NULL),  \
	      vb_names_each(w.names, w.me, NULL, NULL)),                                           \
	  -EINVAL, CHILD_AND_THREAD, vb_names_each(w.names, w.me, each, NULL), FOREIGN)

#define DB_CALLS(X)                                                                                \
	X(vb_table_node_bytes,                                                                     \
	  vb_table_node_bytes(NULL, &o.tp, 1) + vb_table_node_bytes(&o.dp, NULL, 1), 0, NOWHERE,   \
	  0, 0)                                                                                    \
	X(vb_db_node_bytes, vb_db_node_bytes(NULL, 1), 0, NOWHERE, 0, 0)                           \
	X(vb_db_open,                                                                              \
	  all(3, vb_db_open(NULL, &o.dp, &o.db), vb_db_open(w.f, NULL, &o.db),                     \
	      vb_db_open(w.f, &o.dp, NULL)),                                                       \
	  -EINVAL, CHILD, vb_db_open(w.f, &o.dp, &o.db), FOREIGN)                                  \
	X(vb_db_close, vb_db_close(NULL), 0, CHILD, vb_db_close(w.db), FOREIGN)                    \
	X(vb_table_open,                                                                           \
	  all(3, vb_table_open(NULL, &o.tp, &o.table), vb_table_open(w.db, NULL, &o.table),        \
	      vb_table_open(w.db, &o.tp, NULL)),                                                   \
	  -EINVAL, CHILD, vb_table_open(w.db, &o.tp, &o.table), FOREIGN)                           \
	X(vb_table_node, vb_table_node(NULL, 1), 0, NOWHERE, 0, 0)                                 \
	X(vb_table_record_bytes, vb_table_record_bytes(NULL), 0, NOWHERE, 0, 0)                    \
	X(vb_table_load, all(2, vb_table_load(NULL, 1, &o.key), vb_table_load(w.table, 1, NULL)),  \
	  -EINVAL, CHILD, vb_table_load(w.table, 99, &o.key), FOREIGN)                             \
	X(vb_db_server_start,                                                                      \
	  all(2, vb_db_server_start(NULL, 0, &o.dbs), vb_db_server_start(w.db, 0, NULL)), -EINVAL, \
	  CHILD, vb_db_server_start(w.db, 1, &o.dbs), FOREIGN)                                     \
	X(vb_db_server_thread_start,                                                               \
	  all(2, vb_db_server_thread_start(NULL, 0, &o.dbs),                                       \
	      vb_db_server_thread_start(w.db, 0, NULL)),                                           \
	  -EINVAL, CHILD, vb_db_server_thread_start(w.db, 1, &o.dbs), FOREIGN)                     \
	X(vb_db_server_stop, VOID(vb_db_server_stop(NULL)), 0, CHILD_AND_THREAD,                   \
	  VOID(vb_db_server_stop(w.task_dbs)), 0)                                                  \
	X(vb_coordinator_open,                                                                     \
	  all(2, vb_coordinator_open(NULL, 0, &o.co), vb_coordinator_open(w.db, 0, NULL)),         \
	  -EINVAL, CHILD, vb_coordinator_open(w.db, 0, &o.co), FOREIGN)                            \
	X(vb_coordinator_close, VOID(vb_coordinator_close(NULL)), 0, CHILD_AND_THREAD,             \
	  VOID(vb_coordinator_close(w.co)), 0)                                                     \
	X(vb_db_recover, all(2, vb_db_recover(NULL, 0, &o.key), vb_db_recover(w.co, 0, NULL)),     \
	  -EINVAL, CHILD_AND_THREAD, vb_db_recover(w.co, 0, &o.key), FOREIGN)

#define TXN_CALLS(X)                                                                               \
	X(vb_txn_begin, vb_txn_begin(NULL), -EINVAL, CHILD_AND_THREAD, vb_txn_begin(w.co),         \
	  FOREIGN)                                                                                 \
	X(vb_txn_begin_with,                                                                       \
	  all(2, vb_txn_begin_with(NULL, &o.xp), vb_txn_begin_with(w.co, NULL)), -EINVAL,          \
	  CHILD_AND_THREAD, vb_txn_begin_with(w.co, &o.xp), FOREIGN)                               \
	X(vb_txn_get,                                                                              \
	  all(3, vb_txn_get(NULL, w.table, 1, &o.out), vb_txn_get(w.co, NULL, 1, &o.out),          \
	      vb_txn_get(w.co, w.table, 1, NULL)),                                                 \
	  -EINVAL, CHILD_AND_THREAD, vb_txn_get(w.co, w.table, 1, &o.out), FOREIGN)                \
	X(vb_txn_update,                                                                           \
	  all(3, vb_txn_update(NULL, w.table, 1, &o.in), vb_txn_update(w.co, NULL, 1, &o.in),      \
	      vb_txn_update(w.co, w.table, 1, NULL)),                                              \
	  -EINVAL, CHILD_AND_THREAD, vb_txn_update(w.co, w.table, 1, &o.in), FOREIGN)              \
	X(vb_txn_read,                                                                             \
	  all(3, vb_txn_read(NULL, w.table, 1, &o.key), vb_txn_read(w.co, NULL, 1, &o.key),        \
	      vb_txn_read(w.co, w.table, 1, NULL)),                                                \
	  -EINVAL, CHILD_AND_THREAD, vb_txn_read(w.co, w.table, 1, &o.key), FOREIGN)               \
	X(vb_txn_write,                                                                            \
	  all(3, vb_txn_write(NULL, w.table, 1, &o.key), vb_txn_write(w.co, NULL, 1, &o.key),      \
	      vb_txn_write(w.co, w.table, 1, NULL)),                                               \
	  -EINVAL, CHILD_AND_THREAD, vb_txn_write(w.co, w.table, 1, &o.key), FOREIGN)              \
	X(vb_txn_insert,                                                                           \
	  all(3, vb_txn_insert(NULL, w.table, 9, &o.key), vb_txn_insert(w.co, NULL, 9, &o.key),    \
	      vb_txn_insert(w.co, w.table, 9, NULL)),                                              \
	  -EINVAL, CHILD_AND_THREAD, vb_txn_insert(w.co, w.table, 9, &o.key), FOREIGN)             \
	X(vb_txn_delete, all(2, vb_txn_delete(NULL, w.table, 1), vb_txn_delete(w.co, NULL, 1)),    \
	  -EINVAL, CHILD_AND_THREAD, vb_txn_delete(w.co, w.table, 1), FOREIGN)                     \
	X(vb_txn_scan,                                                                             \
	  all(5, vb_txn_scan(NULL, w.table, &o.range, &o.row, 1, &o.n),                            \
	      vb_txn_scan(w.co, NULL, &o.range, &o.row, 1, &o.n),                                  \
	      vb_txn_scan(w.co, w.table, NULL, &o.row, 1, &o.n),                                   \
	      vb_txn_scan(w.co, w.table, &o.range, NULL, 1, &o.n),                                 \
	      vb_txn_scan(w.co, w.table, &o.range, &o.row, 1, NULL)),                              \
	  -EINVAL, CHILD_AND_THREAD, vb_txn_scan(w.co, w.table, &o.range, &o.row, 1, &o.n),        \
	  FOREIGN)                                                                                 \
	X(vb_txn_declare, all(2, vb_txn_declare(NULL, o.keys, 1), vb_txn_declare(w.co, NULL, 1)),  \
	  -EINVAL, CHILD_AND_THREAD, vb_txn_declare(w.co, o.keys, 1), FOREIGN)                     \
	X(vb_txn_commit, vb_txn_commit(NULL), -EINVAL, CHILD_AND_THREAD, vb_txn_commit(w.co),      \
	  FOREIGN)                                                                                 \
	X(vb_txn_abort, VOID(vb_txn_abort(NULL)), 0, CHILD_AND_THREAD, VOID(vb_txn_abort(w.co)),   \
	  0)                                                                                       \
	X(vb_txn_cause, vb_txn_cause(NULL), VB_TXN_MISUSE, CHILD_AND_THREAD, vb_txn_cause(w.co),   \
	  VB_TXN_MISUSE)                                                                           \
	X(vb_txn_error, vb_txn_error(NULL), -EINVAL, CHILD_AND_THREAD, vb_txn_error(w.co),         \
	  FOREIGN)                                                                                 \
	X(vb_txn_run, all(2, vb_txn_run(NULL, body, NULL, 1), vb_txn_run(w.co, NULL, NULL, 1)),    \
	  -EINVAL, CHILD_AND_THREAD, vb_txn_run(w.co, body, NULL, 1), FOREIGN)                     \
	X(vb_txn_run_with,                                                                         \
	  all(3, vb_txn_run_with(NULL, &o.xp, body, NULL, 1),                                      \
	      vb_txn_run_with(w.co, NULL, body, NULL, 1),                                          \
	      vb_txn_run_with(w.co, &o.xp, NULL, NULL, 1)),                                        \
	  -EINVAL, CHILD_AND_THREAD, vb_txn_run_with(w.co, &o.xp, body, NULL, 1), FOREIGN)         \
	X(vb_txn_cause_name, vb_txn_cause_name(VB_TXN_CAUSES) == NULL, 0, NOWHERE, 0, 0)           \
	X(vb_values_open,                                                                          \
	  all(3, vb_values_open(NULL, &o.vp, &o.values), vb_values_open(w.db, NULL, &o.values),    \
	      vb_values_open(w.db, &o.vp, NULL)),                                                  \
	  -EINVAL, CHILD, vb_values_open(w.db, &o.vp, &o.values), FOREIGN)                         \
	X(vb_values_close, VOID(vb_values_close(NULL)), 0, NOWHERE, 0, 0)                          \
	X(vb_values_get,                                                                           \
	  all(4, vb_values_get(NULL, w.values, 1, &o.key, 8, &o.bytes),                            \
	      vb_values_get(w.co, NULL, 1, &o.key, 8, &o.bytes),                                   \
	      vb_values_get(w.co, w.values, 1, NULL, 8, &o.bytes),                                 \
	      vb_values_get(w.co, w.values, 1, &o.key, 8, NULL)),                                  \
	  -EINVAL, CHILD_AND_THREAD, vb_values_get(w.co, w.values, 1, &o.key, 8, &o.bytes),        \
	  FOREIGN)                                                                                 \
	X(vb_values_put,                                                                           \
	  all(3, vb_values_put(NULL, w.values, 1, &o.key, 8),                                      \
	      vb_values_put(w.co, NULL, 1, &o.key, 8), vb_values_put(w.co, w.values, 1, NULL, 8)), \
	  -EINVAL, CHILD_AND_THREAD, vb_values_put(w.co, w.values, 1, &o.key, 8), FOREIGN)         \
	X(vb_values_remove,                                                                        \
	  all(2, vb_values_remove(NULL, w.values, 1), vb_values_remove(w.co, NULL, 1)), -EINVAL,   \
	  CHILD_AND_THREAD, vb_values_remove(w.co, w.values, 1), FOREIGN)

#define CALLS(X)                                                                                   \
	FABRIC_CALLS(X)                                                                            \
	LOCK_CALLS(X) NAMES_CALLS(X) RING_CALLS(X) HOST_CALLS(X) DB_CALLS(X) TXN_CALLS(X)

#endif
