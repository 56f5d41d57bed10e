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
 * Trust.  Every process of a fabric can write every word of it.  With `ucx` so can whoever can open a
 * TCP connection to one of them (verbena/cluster.h, "Trust"): keep its network closed to others.
 *
 * Threads.  Each OS thread that uses a fabric has its own scheduler (made on first use), and what a
 * thread opens on a fabric (lock clients, coordinators, servers as tasks) may be used by that thread
 * only: a call from another one is refused with -VB_EFOREIGN, in every build, because it costs one
 * compare.  (The thread is known by its scheduler: one that begins after the owner has ended may
 * be taken for it.)  The fabric itself, lock spaces, databases and tables may be shared by threads.
 * Tasks and coroutines, of which the headers speak, too, are the library's own and those of its
 * tool: a program makes none, and calls from its threads are never cancelled (-ECANCELED).
 *
 * fork().  A child calls vb_fabric_after_fork() before anything else.  Until then every call on the
 * fabric and on what is open on it is -VB_EFOREIGN, and nothing of the parent's is touched: nothing is
 * released, no name is removed.  Then the child may use the fabric, its lock spaces, databases and
 * tables, with clients, coordinators and servers that it opens itself; the parent's stay refused.
 * (The library hears of fork() as pthread_atfork does; not of a bare clone or vfork.)
 *
 * Segments (shm).  A segment lives as long as a process uses it: from vb_fabric_open until
 * vb_fabric_close or its end, however it ends.  It makes no difference who created it.  The last
 * user to close it removes its name; if the last ones ended without (were killed, say), the next
 * open that may make the name does, with a notice.  While anybody uses a segment no other can have
 * its name, so two processes that use one name at a time use the same memory: a lock that one holds
 * the other does not get, and fencing tokens go on growing.  When all have gone, locks and tokens
 * begin anew.
 *
 * Programs that may start in any order say attach_or_create, and the same nodes, sizes and options:
 * one of them makes the segment, the others join it.  What a process did for the others (its lock
 * servers) ends with it and has to be started again by another; vb_lock_server_start says when.
 *
 * A forked child is a user of its own, told (vb_fabric_after_fork) or not, until it ends.  A process
 * that calls exec stays a user, with all that it holds, until it ends: close the fabric first.  So
 * does a thread that ends without closing what it has opened, and nobody else can close that.
 *
 * All users of a segment are processes of one user (uid) and one pid namespace.  A segment of
 * another user is refused, to root as well; so is one whose header does not fit its file.  Other
 * programs of the same user can damage it at any time: who cuts its file short kills its users
 * (SIGBUS), and nothing in Linux prevents that for a file that has a name.  A process that uses
 * several segments at a time has them all made by one process, or by processes that had the first
 * one open: all times in them are of one clock.
 *
 * Background work.  Calls can leave work behind: a lock that was asked for with a deadline leaves a
 * place in a queue that has to be handed on, vb_lock_server_start and vb_db_server_start leave a
 * server.  It goes on whatever the thread does next: a *keeper*, one more thread for each thread
 * that has left such work, runs it while its thread is outside Verbena, and begins when that has
 * made no call for half a millisecond.  It is made when a thread first goes away from background
 * work, blocks all signals, sleeps when there is nothing to do, and ends with its thread.  A thread
 * that calls more often gives background work a turn itself, in a call each 0.2 ms.  While a thread
 * has background work each of its calls asks whose turn it is, and if the keeper is just at work
 * the call waits until that piece of it has come to a wait of its own.  A thread that leaves
 * nothing behind pays a branch.  When a thread ends, its keeper goes on until the work is
 * done.  `sim` has no keepers: in virtual time everything moves on together, while some thread's
 * call waits.
 *
 * With no_keeper, background work of this fabric goes on only while the thread that left it waits
 * in a call of Verbena, and in vb_poll: for programs that must not have more threads, or do it in
 * their event loop.
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
	const char *fabric;    /* "shm", "sim", "verbs", "ucx"; NULL means "shm" */
	const char *name;      /* shm: segment name, 1 to 200 characters without '/'; NULL: private
	                         * to this process and its children */
	const char *options;   /* backend's own options, "key=value,key=value"; NULL: defaults */
	uint16_t nodes;        /* 1 to 4096; 0 means 1 */
	uint64_t node_bytes;   /* size of each node's segment; 0 means 64 MiB */
	uint32_t endpoints;    /* most endpoints open at a time, all nodes; 0 means 1024 */
	uint64_t seed;         /* sim: decides everything; elsewhere: seeds the clients' streams */
	bool attach;           /* shm: join the segment of that name, which others use; nodes, sizes
	                         * and seed are those that it was made with */
	bool attach_or_create; /* shm: the same, or make it if nobody uses it: "Segments" above */
	bool no_keeper;        /* no keeper threads: see "Background work" above */
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
 *   -EBUSY    shm: the segment is in use, and was to be created (the log names its users); or a
 *             process that is removing it has been stopped; or it goes by another clock than what
 *             this process has open
 *   -ENOENT   shm, attach: there is no such segment, or nobody uses it
 *   -EPERM    shm: the segment is another user's
 *   -ENOMEM, -ENOSPC  the segment does not fit in memory or in /dev/shm
 *   -EPROTO   shm: what has that name is no segment, and is not touched; attach, attach_or_create:
 *             it was made by another version, its header is damaged (the log names the field), or
 *             it has other nodes, fewer endpoints or smaller nodes than attach_or_create asks for;
 *             with a cluster: processes asked for different nodes, sizes or options (the log names
 *             them)
 *   -ENODEV   verbs, ucx: no device, or its library is not installed; `verbena doctor` says more
 *   -ETIMEDOUT, -VB_EPEERGONE  with a cluster: another process did not come, or died (named)
 *
 * A segment whose users have all crashed is taken over by who creates one, with a notice.  Processes
 * that open one name at once are told apart; two threads of a process must not.
 */
int vb_fabric_open(const struct vb_fabric_params *params, struct vb_fabric **out);

/*
 * Closes; the last user of a shm segment also removes its name.  NULL does nothing.
 *
 *   -EBUSY        lock spaces, clients, databases, coordinators, tables of values or servers are
 *                 open on it: the log names them.  Nothing is closed; close those, then call again
 *   -VB_EFOREIGN  a forked child that has not called vb_fabric_after_fork
 */
int vb_fabric_close(struct vb_fabric *fabric);

/*
 * In a forked child: forget the parent's endpoints and what is open on them, keep the mapping (shm).
 * Of sim the child has a simulation of its own from then on.  On ucx and verbs connections do not
 * survive a fork: it aborts with a message that says so.  What the parent has open does not keep
 * the child from closing the fabric.  In a process that has opened the fabric itself or has been
 * told, and for NULL, it does nothing.
 */
void vb_fabric_after_fork(struct vb_fabric *fabric);

/*
 * Gives the calling thread's background work (see above) a turn, and returns: what can move on
 * does, nothing is waited for.  Only needed with no_keeper; then call it at least as often as others
 * should have to wait for a place in a queue to be handed on.  If there is nothing to do it looks
 * at the fabric and the clock twice.  Any thread may call it; a thread that has opened nothing does nothing.
 */
void vb_poll(void);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
