/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fabric: how processes reach each other's memory.
 *
 * A fabric has N nodes, each with one contiguous segment that every node may read, write and update
 * atomically.  There are five:
 *
 *	shm	the nodes are shared memory of one machine; the default
 *	sim	simulates a cluster in virtual time inside one thread
 *	verbs	RDMA to other machines
 *	tcp	TCP to other machines, closed to strangers
 *	ucx	what UCX drives, to other machines, among friends
 *
 * A program that has memory and connections already makes a fabric of them itself: verbena/provider.h.
 *
 * With verbs, tcp and ucx each process of a cluster (verbena/cluster.h) has memory of its own.  With tcp and its
 * option `servers`, only servers have, and clients of any number come and go (doc/elastic.md).  Open a
 * fabric, then open a lock space (verbena/lock.h) or a database (verbena/txn.h) on it.
 *
 * Words.  A *verb* is one access to a node's segment, or a message to one who has opened something there: a
 * READ, a WRITE, an atomic (CAS, compare and swap; FAA, fetch and add), a SEND.  On a card several are posted
 * by one *doorbell*.  What is done by verbs alone is *one-sided*, without the CPU of the node; what a server
 * there is asked to do is by *RPC*.  What posts verbs, a client or a server, is an *endpoint*.  A verb is late
 * by the fabric's *bound* at most, or does not happen.  doc/glossary.md has more.
 *
 * Trust.  Every process of a fabric can write every word of it.  With `tcp` nobody else can: each
 * connection begins with a proof of the run's secret, and beyond loopback all that passes is encrypted
 * and authenticated.  With `ucx` anybody can who can open a TCP connection to one of them
 * (verbena/cluster.h, "Trust"): keep its network closed to others.
 *
 * Threads.  Each OS thread that uses a fabric has its own scheduler (made on first use), and what
 * a thread opens on a fabric (lock clients, coordinators, servers as tasks) may be used by that
 * thread only: a call from another one is refused with -VB_EFOREIGN, in every build, because it
 * costs one compare.  (The thread is known by its scheduler: one that begins after the owner has
 * ended may be taken for it.)  The fabric itself, lock spaces, databases and tables may be shared
 * by threads.  The headers also speak of tasks and coroutines.  Those are the library's own and
 * its tool's: a program makes none, and calls from its threads are never cancelled (-ECANCELED).
 *
 * The last line that a header says of a call tells which threads may make it:
 *
 *	the client's    the thread that has opened the client; so with a ring, coordinator or server.  If
 *	                the client or ring is on a host (verbena/host.h): any thread, for a client one at a time
 *	any             any thread, several at a time, with the same objects
 *	any, alone      any thread, while no other call with that object is under way
 *	any, one at a time for a name
 *	                any thread, but not two for the same name (node, database, ...)
 *
 * The first is checked, as said above.  To the others the program has to see.
 *
 * fork().  A child calls vb_fabric_after_fork() before anything else.  Until then every call on the
 * fabric and on what is open on it is -VB_EFOREIGN, and nothing of the parent's is touched: nothing
 * is released, no name is removed.  Then the child may use the fabric, its lock spaces, databases
 * and tables, with clients, coordinators and servers that it opens itself; the parent's stay
 * refused.  (The library hears of fork() as pthread_atfork does; not of a bare clone or vfork.)
 *
 * Segments (shm).  A segment lives as long as a process uses it.  A process uses it from
 * vb_fabric_open until vb_fabric_close or its own end, however it ends; which process created it
 * makes no difference.  The last user to close it removes its name.  If the last users ended
 * without closing it (were killed, say), the next open that may create the name removes the old
 * one, with a notice.  While anybody uses a segment no other can have its name, so two processes
 * that use one name at a time use the same memory: a lock that one holds the other does not get,
 * and fencing tokens go on growing.  When all have gone, locks and tokens begin anew.
 *
 * Programs that may start in any order say attach_or_create, and the same nodes, sizes and options:
 * one of them makes the segment, the others join it (examples/shared.c).  What a process did for
 * the others (its lock servers) ends with it, and another has to start it again;
 * vb_lock_server_start says when.
 *
 * A forked child is a user of its own until it ends, whether it calls vb_fabric_after_fork or not.
 * A process that calls exec stays a user, with all that it holds, until it ends: close the fabric
 * first.  What a thread leaves open when it ends stays open until the process ends: nobody else can
 * close it.
 *
 * All users of a segment are processes of one user (uid) and one pid namespace.  A segment of
 * another user is refused, to root as well; so is one whose header does not fit its file.  Other
 * programs of the same user can damage it at any time: one that cuts its file short kills its users
 * (SIGBUS), and nothing in Linux prevents that for a file that has a name.  A process that uses
 * several segments at a time has them all made by one process, or by processes that had the first
 * one open: all times in them are of one clock.
 *
 * Background work.  Calls can leave work behind: a lock that was asked for with a deadline leaves
 * a place in a queue that has to be handed on, vb_lock_server_start and vb_db_server_start leave a
 * server.  It goes on whatever the thread does next.  A *keeper*, one more thread per thread that
 * has left such work, runs it while its thread is outside Verbena, and begins when that thread has
 * made no call for half a millisecond.  The keeper is made when its thread first goes away from
 * background work, blocks all signals, sleeps when there is nothing to do, and ends with its
 * thread, once the work is done.  A thread that calls more often gives background work a turn
 * itself, in one call every 0.2 ms.  While a thread has background work, each of its calls
 * asks whose turn it is; if the keeper is just at work, the call waits until that piece of work
 * waits itself.  A thread that leaves nothing behind pays a branch.  `sim` has no keepers: in
 * virtual time everything moves on together, while some thread's call waits.
 *
 * With no_keeper, background work of this fabric goes on only while the thread that left it waits
 * in a call of Verbena, and in vb_poll.  That is for programs that must have no more threads, or
 * that do such work in their event loop.
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
	/* "shm", "sim", "verbs", "tcp" or "ucx"; NULL: "shm". */
	const char *fabric;
	/* shm: the segment's name, 1 to 200 characters without '/'; NULL: private to this process
	 * and its children. */
	const char *name;
	/* The fabric's own options, "key=value,key=value"; NULL: defaults. */
	const char *options;
	/* How many nodes, 1 to 4096; 0: 1. */
	uint16_t nodes;
	/* Size of each node's segment, 4 KiB to 256 TiB; 0: 64 MiB. */
	uint64_t node_bytes;
	/* How many endpoints may be open at a time, on all nodes together, 1 to 131072; 0: 1024. */
	uint32_t endpoints;
	/* sim: decides everything that happens; elsewhere: seeds the clients' random numbers. */
	uint64_t seed;
	/* shm: join the segment of that name, which others use.  Nodes, sizes and seed are those
	 * that it was made with. */
	bool attach;
	/* shm: the same, or make it if nobody uses it ("Segments" above). */
	bool attach_or_create;
	/* No keeper threads ("Background work" above). */
	bool no_keeper;
	/* verbs, tcp, ucx: the processes that share the fabric.  Each opens it with the same parameters
	 * (collective); node n lives in the process of rank n % hosts.  NULL: this process alone
	 * has all nodes; but for tcp with the option `servers`, where a client has none, and takes
	 * nodes and node_bytes from the servers. */
	struct vb_cluster *cluster;
};

/*
 * Opens a fabric, or with attach joins one.
 *
 *   -EINVAL   a parameter is out of range, or the fabric or an option is unknown
 *   -EBUSY    shm: the segment is in use, and was to be created (the log names its users); or a
 *             process that is removing it has been stopped; or it goes by another clock than what
 *             this process has open: a segment is opened before the cluster
 *   -ENOENT   shm, attach: there is no such segment, or nobody uses it
 *   -EPERM    shm: the segment is another user's
 *   -ENOMEM, -ENOSPC  the segment does not fit in memory or in /dev/shm
 *   -EPROTO   shm: what has that name is no segment, and is not touched; attach, attach_or_create:
 *             it was made by another version, its header is damaged (the log names the field), or
 *             it has other nodes, fewer endpoints or smaller nodes than attach_or_create asks for;
 *             with a cluster: processes asked for different nodes, sizes or options (the log names
 *             them)
 *   -ENODEV   verbs, ucx: no device, or its library is not installed; `verbena doctor` says more
 *   -EADDRNOTAVAIL, -EINVAL  tcp: it cannot listen at the cluster's address, or at that of its option
 *             `bind` (the log names it)
 *   -EADDRINUSE  tcp, as a server: another process listens there
 *   -EEXIST   tcp, as a server: the file of its option `fresh` is there; -EINVAL: settle=0 and no such file named
 *   -ETIMEDOUT, -VB_EPEERGONE  with a cluster: another process did not come, or died (the log names
 *             it)
 *   -ETIMEDOUT  tcp, as a client: no server has let it in within its option `patience` (the log says why)
 *   -EPROTO   tcp, as a client: a server is another version, or has another list of servers
 *   -EACCES   tcp: the key file, or the directory of the option `state`, cannot be used (the log says why)
 *   -EBUSY, -EPROTO, -ENOENT, -ENOSPC  tcp, as a server, of its option `state`: another server has it; it is the
 *             state of another server, or none; there is no such directory; it does not fit
 *
 * A segment whose users have all crashed is taken over by the next process that creates one of
 * that name, with a notice.  Several processes may open one name at once.
 *
 * Threads: any, one at a time for a name.
 */
int vb_fabric_open(const struct vb_fabric_params *params, struct vb_fabric **out);

/*
 * Closes the fabric.  The last user of a shm segment also removes its name.  NULL does nothing.
 *
 *   -EBUSY        lock spaces, clients, databases, coordinators, tables of values or servers are
 *                 open on it: the log names them; or `sim`, and calls on rings are under way.
 *                 Nothing is closed; close those, then call again
 *   -VB_EFOREIGN  a forked child that has not called vb_fabric_after_fork
 *
 * Threads: any, alone.
 */
int vb_fabric_close(struct vb_fabric *fabric);

/*
 * Makes a fabric usable in a forked child: forgets the parent's endpoints and what is open on them,
 * and keeps the mapping (shm).  On sim the child has a simulation of its own from then on.  On tcp,
 * ucx and verbs connections do not survive a fork: it aborts with a message that says so.  What the
 * parent has open does not keep the child from closing the fabric.  In a process that has opened
 * the fabric itself, in a child that has made this call before, and for NULL, it does nothing.
 *
 * Threads: any, alone.
 */
void vb_fabric_after_fork(struct vb_fabric *fabric);

/* Whose a piece of a node's memory is. */
enum vb_named_kind {
	/* A lock space's, by its name: the locks that the node has. */
	VB_NAMED_LOCKS,
	/* A directory of names', by the name of its lock space. */
	VB_NAMED_NAMES,
	/* A database's, by its name. */
	VB_NAMED_DB,
	/* What one of these has besides (a table, what a visible space shows, ...), by a name of the
	 * library's own. */
	VB_NAMED_PART,
};

/* May grow at its end. */
struct vb_named {
	enum vb_named_kind kind;
	/* Good until the function returns. */
	const char *name;
	/* Of the node's memory. */
	uint64_t bytes;
};

/* Something other than 0 ends vb_fabric_each, which returns it. */
typedef int (*vb_named_fn)(void *user, const struct vb_named *named);

/*
 * Lists what has a name in a node's memory: calls fn for each piece, in no order, so that it hears which lock
 * spaces and databases there are, whichever process has made them, and what they take.  A space has its
 * locks on the first nodes, as many as its `servers`, and other pieces also where its clients are; a database is on
 * all.  What is made meanwhile may be missing.
 * fn may make any call but vb_fabric_close.
 *
 * A name and its memory stay until the fabric's memory goes, with its last user, or a lock space is removed
 * (vb_lock_space_remove).  Who asks for the name again gets the same space, with all that stands in it.
 *
 *   -EINVAL  there is no such node
 *   -ENOMEM
 *   -ETIMEDOUT, -EAGAIN, -VB_EPEERGONE  the node is another process's, which does not answer or is gone
 *   -EBUSY   shm: a process that has been stopped keeps the list to itself
 *   -EPROTO  what that process answers, or what stands in a provider's memory, is no list of names
 *   -VB_EFOREIGN  a forked child that has not called vb_fabric_after_fork
 *
 * and what a provider's functions say.
 *
 * Threads: any.
 */
int vb_fabric_each(struct vb_fabric *fabric, uint16_t node, vb_named_fn fn, void *user);

/*
 * Gives background work of the calling thread a turn, and returns: what can move on does, nothing
 * is waited for ("Background work" in verbena/fabric.h).  Only needed with no_keeper: others then
 * wait for a place in a queue to be handed on until the next call, so call it at least that often.
 * If there is nothing to do, it looks at the fabric and the clock twice.  For a thread that has
 * opened nothing it does nothing.
 *
 * Threads: any.
 */
void vb_poll(void);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
