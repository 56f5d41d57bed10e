/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fabric: how processes reach each other's memory.
 *
 * A fabric has N nodes, each with one contiguous segment that every node may read, write and update
 * atomically.  `shm` makes the nodes of one machine's shared memory and is the embedded default;
 * `sim` simulates a cluster in virtual time inside one thread; `verbs` (RDMA) and `ucx` (TCP and
 * what else UCX drives) reach other machines, each process of a cluster (verbena/cluster.h) with
 * its own memory.  Open one, then open a lock space on it (verbena/lock.h).
 *
 * Threads.  Each OS thread that uses a fabric has its own scheduler (made on first use), and what a
 * thread opens on a fabric (clients, servers) may be used by that thread only.  The fabric itself
 * may be shared by threads; with fork(), a child calls vb_fabric_after_fork() before anything else.
 */
#ifndef VERBENA_FABRIC_H
#define VERBENA_FABRIC_H

#include <verbena/verbena.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

struct vb_fabric;
struct vb_cluster;

struct vb_fabric_params {
	const char *fabric;  /* "shm", "sim", "verbs", "ucx"; NULL means "shm" */
	const char *name;    /* shm: segment name, 1 to 200 characters without '/'; NULL: private
	                       * to this process and its children */
	const char *options; /* backend's own options, "key=value,key=value"; NULL: defaults */
	uint16_t nodes;      /* 1 to 4096; 0 means 1 */
	uint64_t node_bytes; /* size of each node's segment; 0 means 64 MiB */
	uint32_t endpoints;  /* most endpoints open at a time, all nodes; 0 means 1024 */
	uint64_t seed;       /* sim: decides everything; elsewhere: seeds the clients' streams */
	bool attach;         /* shm: join the segment that another process has created */
	struct vb_cluster
		*cluster; /* verbs, ucx: the processes that share the fabric, each opening it
	                              * with the same parameters (collective); node n lives in
	                              * process n % hosts.  NULL: this process alone has all
	                              * nodes */
};

/*
 * Opens (or with attach, joins) a fabric.
 *
 *   -EINVAL   a parameter is out of range, or the fabric or an option is unknown
 *   -EBUSY    shm: a live process owns a segment of that name
 *   -ENOENT   shm, attach: there is no such segment, or its creator is gone
 *   -ENOMEM, -ENOSPC  the segment does not fit in memory or in /dev/shm
 *   -EPROTO   shm, attach: the segment was made by another version; with a cluster: processes
 *             asked for different nodes, sizes or options (the log names them)
 *   -ENODEV   verbs, ucx: no device, or its library is not installed; `verbena doctor` says more
 *   -ETIMEDOUT, -VB_EPEERGONE  with a cluster: another process did not come, or died (named)
 *
 * A stale segment of a crashed run is taken over, with a notice.  Not thread-safe against itself
 * for the same name.
 */
int vb_fabric_open(const struct vb_fabric_params *params, struct vb_fabric **out);

/* Closes; the creator of a shm segment also removes its name.  Every endpoint must be closed. */
void vb_fabric_close(struct vb_fabric *fabric);

/* In a forked child: forget the parent's endpoints and scheduler, keep the mapping.  shm only:
 * connections do not survive a fork, so on other fabrics it aborts with a message that says so. */
void vb_fabric_after_fork(struct vb_fabric *fabric);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
