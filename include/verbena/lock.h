/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Locks on a fabric.
 *
 * A *lock space* is K locks, numbered 0..K-1, of one protocol, spread over N server nodes.  A
 * *client* takes and gives back locks.  It belongs to the thread (or the coroutine there) that has
 * opened it, and calls from another are refused (-VB_EFOREIGN); one that is opened on a host
 * (verbena/host.h) any thread may call.  A process may have many clients.
 *
 *	vb_lock_space_open(fabric, &(struct vb_lock_space_params){ .lock = "dslr", .locks = 1000 },
 *			   &space);
 *	vb_lock_client_open(space, 0, &me);
 *	err = vb_lock_acquire(me, 42, VB_EXCLUSIVE, 1000000000, &grant);
 *	if (err == 0) {
 *		... vb_lock_valid(me, &grant) ...
 *		err = vb_lock_release(me, &grant);
 *	}
 *
 * Which lock.  doc/choosing-a-lock.md, `verbena bench lock` with your load, and in short: "dslr" is fair, survives
 * its holders and needs no server.  "table" and "traditional" need one (vb_lock_server_start), and their leases can
 * be renewed; examples/takeover.c has programs that come, serve and die in any order.  "mcs" and others without
 * leases are lost with a holder that dies.
 *
 * What a grant is worth.  The locks are advisory.  Where the protocol has leases, a grant is valid
 * until its valid_until_ns on the client's clock (vb_lock_valid).  Choose lease_ns longer than the
 * work under a lock, ask for more with vb_lock_acquire_for, or renew the lease while it runs with
 * vb_lock_renew, or have that done in the background (vb_lock_keep_start in verbena/async.h): which
 * protocol does which is in `verbena list`.  (A conversion to another mode
 * begins a new lease with "table", and with "dslr-update" if it had to wait.)  A holder can be
 * stopped by its machine at any instruction and go on long afterwards: checking the time and then
 * acting are two moments.  Only a fencing token that is checked where the data lives closes that
 * gap.  With `fencing`, every exclusive grant carries a token that grows with each exclusive grant of
 * that lock, also across recoveries: have the storage refuse a token smaller than the largest it
 * has seen.  (Readers have none.  A late write is refused once the next exclusive holder has shown
 * its token, and not before, also where others read under the lock by then.)
 *
 * What is known after a call.
 *
 *   0             granted
 *   -ETIMEDOUT, -EAGAIN, -ECANCELED
 *                 not granted, and nothing will be held in your name.  A place in a queue that
 *                 cannot be left at once is handed on in the background (verbena/fabric.h,
 *                 "Background work"): others need not wait until the thread calls again.  Memory
 *                 for one such place is kept for each thread; without memory for more of them the
 *                 call stands there itself, past its deadline, and says so in the log
 *   -VB_EUNKNOWN  the fabric lost the answer.  A protocol with leases frees what may have been
 *                 taken; with the others the lock may be lost for good
 */
#ifndef VERBENA_LOCK_H
#define VERBENA_LOCK_H

#include <verbena/fabric.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/*
 * How a lock is held.  Which modes hold together (x):
 *
 *	        S   X   U  IS  IX SIX
 *	  S     x       x   x
 *	  X
 *	  U     x           x
 *	 IS     x       x   x   x   x
 *	 IX                 x   x
 *	SIX                 x
 *
 * Protocols without a shared mode serve readers as writers; those without an update mode serve it
 * as exclusive: the grant says what was granted.  Protocols without intention modes (Gray et al.
 * 1976; Barthels et al. 2019, table 1) refuse them with -EOPNOTSUPP; `verbena list` says which
 * protocol has which modes.
 */
enum vb_mode {
	/* S: reads, beside other readers. */
	VB_SHARED,
	/* X: alone. */
	VB_EXCLUSIVE,
	/* U: reads beside readers, one at a time, and may become exclusive (vb_lock_convert). */
	VB_UPDATE,
	/* IS: takes shared locks further down the hierarchy. */
	VB_INTENT_SHARED,
	/* IX: takes shared and exclusive locks further down. */
	VB_INTENT_EXCLUSIVE,
	/* SIX: shared, and takes exclusive locks further down. */
	VB_SHARED_INTENT_EXCLUSIVE,
};
#define VB_MODES 6

/* What an acquire's return value says about the lock: vb_lock_outcome. */
enum vb_outcome {
	VB_GRANTED,
	VB_NOT_GRANTED,
	VB_UNKNOWN,
};

struct vb_lock_space;
struct vb_lock_client;
struct vb_lock_server;
struct vb_claim;

#define VB_FOREVER_NS UINT64_MAX

/* What vb_lock_space_params.claims means by 0; and how deep vb_lock_acquire_path goes. */
#define VB_CLAIMS_MAX 64
#define VB_PATH_MAX   64

struct vb_lock_space_params {
	/* The protocol: "dslr", "shiftlock", ...; `verbena list` has them all. */
	const char *lock;
	/* The protocol's own options, "key=value,..."; NULL: defaults. */
	const char *options;
	/* Lets several spaces share a fabric, 1 to 31 characters; NULL: "locks".  Copied. */
	const char *name;
	/* K, 1 to 2^40. */
	uint64_t locks;
	/* The first N nodes hold the locks, N at most `locks`; 0: 1. */
	uint16_t servers;
	/* How long a grant is valid, 10 us to 1 hour.  0: 200 ms, or four times what the fabric
	 * lets a verb be late if that is more; on `sim`, whose cores nobody shares, 10 ms.
	 *
	 * 200 ms, because a thread that shares its core may be off it for tens of time slices of
	 * 3 ms, or for a period or two of 100 ms where a container has a quota, and a holder that
	 * is off for a whole lease loses its lock.  After a death the others wait for 2 to 8
	 * leases, by protocol (`verbena list`): a program whose threads have cores to themselves
	 * may ask for less.  On an RDMA card take at least one second, until its option `measured`
	 * says more (doc/verbs.md). */
	uint64_t lease_ns;
	/* Bound on the relative drift of two clients' clocks, parts per million, at most 10,000;
	 * 0: 100. */
	uint32_t drift_ppm;
	/* A token with every exclusive grant: at no cost where the protocol has it anyway, one more
	 * atomic elsewhere. */
	bool fencing;
	/* Clients show what they hold and await to `verbena dump` and `verbena top`: 256 clients
	 * per node and 32 held locks per client, the others are only counted.  Costs some 100 ns
	 * per acquire, and 400 KB of each node. */
	bool visible;
	/* How many locks a client of this process holds, awaits or hands on at a time, 1 to 65,536;
	 * 0: VB_CLAIMS_MAX.  Each takes some 500 bytes of each client. */
	uint32_t claims;
};

/*
 * A held lock.  Owned by the caller, filled by acquire.  It names this one hold of the lock: after
 * its release the grant and every copy of it are dead (-EINVAL, never valid), also if the client
 * holds the same lock again.  A conversion keeps the hold, and brings only that grant up to date
 * with which it was called.  Copies are not counted: the first that is released ends the hold.
 */
struct vb_grant {
	/* Which of the space's locks. */
	uint64_t lock;
	/* What was granted. */
	enum vb_mode mode;
	/* The fencing token; 0: none. */
	uint64_t token;
	/* On the client's clock (vb_lock_now); VB_FOREVER_NS: no lease. */
	uint64_t valid_until_ns;
	/* Private. */
	struct vb_claim *claim;
	uint64_t hold;
};

/*
 * Opens the space on this process's view of the fabric, making it if it is not there yet.  Every
 * later open must ask for the same protocol, number of locks, servers, lease and fencing, and for
 * the same options that change the layout (`slots`, ...).  What was made stays in the fabric when
 * all have closed it (vb_fabric_each lists it, vb_lock_space_remove removes it).  If a process was killed in
 * the middle of making the space, the next open waits for two seconds at least and finishes it, with a notice;
 * in the middle of removing it, the next open anywhere removes it first.
 *
 *   -EINVAL      unknown protocol or option, a number out of range (a protocol with leases: also a
 *                lease shorter than twice the time by which the fabric's verbs may be late), or
 *                another protocol, size or layout than the space that exists: the log names what
 *                differs, with both values; tcp with `servers`: also grants that may last longer than
 *                its option `settle`
 *   -EOPNOTSUPP  the fabric lacks a verb that the protocol needs; the log names it.  drtm on tcp with
 *                `servers`, unless `settle` is 0: they do not wait for its readers
 *   -ENOSPC      the locks do not fit in the nodes' segments; on tcp with `servers`: this process has spaces
 *                open 1024 times
 *   -EAGAIN      somebody is removing the space (vb_lock_space_remove); or is making it, and has come to no
 *                end, where nobody else can finish it
 *   -ENOMEM
 *   -VB_EPEERGONE, -ETIMEDOUT, -VB_EUNKNOWN  a process that has some of the locks is gone, or has not answered
 *                for seconds (-EAGAIN: nor taken what it was asked)
 *   -VB_EFOREIGN  a forked child that has not called vb_fabric_after_fork
 *
 * Threads: any.
 */
int vb_lock_space_open(struct vb_fabric *fabric, const struct vb_lock_space_params *params,
		       struct vb_lock_space **out);

/*
 * Closes the space; NULL does nothing.  Waits for the places that closed clients still have in
 * queues, as long as others hold those locks, and says so in the log every ten seconds.  Only locks
 * that do not survive a death have such places, so a holder that has died makes this call wait for
 * ever: a process that is to end all the same ends without it.  A forked child waits for its own
 * clients, not for its parent's.  (In virtual time at most 64 leases: nobody is left then who could
 * give the locks back.)
 *
 *   -EBUSY        clients, servers or a directory of names are open on it: the log names them.
 *                 Nothing is closed
 *   -VB_EFOREIGN  a forked child that has not called vb_fabric_after_fork
 *
 * Threads: any, alone.
 */
int vb_lock_space_close(struct vb_lock_space *space);

/*
 * Removes a lock space for good, by its name: its locks, the directory of their names and all else that lies in the
 * fabric for it.  The memory is free for what is opened next, and so is the name: who opens a space of that name makes
 * a new one, of any kind, whose tokens begin anew.  Waits for the time by which the fabric's verbs may be late, and
 * for no client.
 *
 * Nobody may have the space open, here or in another process, with clients or without.  A process that has ended
 * has nothing open, so locks that dead clients held go with the space.  (What a forked child was given by its
 * parent counts once the child has opened a client or server on it; if the space is removed before, the child is
 * told -ENOENT then.)
 *
 *   -EBUSY   the space is open: the log says where.  Nothing is removed.  On tcp with `servers` that counts at each
 *            server that has locks of it: while a server serves its own part, and while a client has it open that
 *            one of them has given up, or that knew one of them before it began again
 *   -ENOENT  there is no such space.  On tcp with `servers`: what other servers have of a space that the server of
 *            node 0 has lost, by beginning again, goes when somebody has opened the space again and removes it
 *   -EAGAIN  somebody else is removing it
 *   -EINVAL  a name of no or more than 31 characters; or this process has no node
 *   -ENOMEM, -ENOSPC (endpoints: one is opened)
 *   -VB_EPEERGONE, -ETIMEDOUT, -VB_EUNKNOWN  a process that has some of it is gone or does not answer
 *   -VB_EFOREIGN  a forked child that has not called vb_fabric_after_fork
 *
 * If it fails when it has begun (all after -EAGAIN), or its process dies meanwhile, the space is neither there nor
 * gone: the next vb_lock_space_remove or vb_lock_space_open of that name goes on with it.
 *
 * On a provider's memory (verbena/provider.h) it takes a verb for each 256 bytes; and of what has a name on a node
 * (vb_fabric_each), whether it is there or gone, there are 127 at most, on node 0 126.
 *
 * Threads: any.
 */
int vb_lock_space_remove(struct vb_fabric *fabric, const char *name);

/*
 * Starts a worker of a node's server, and stops it.  Protocols with a server side (rpc,
 * traditional, traditional-ro, table; shiftlock for recovery) need servers on every server node.
 * Worker `worker` of `workers` (1 to 64) of `node` becomes a task on this thread's scheduler; it
 * runs whenever the thread awaits something, and while the thread is outside Verbena on its keeper
 * (verbena/fabric.h, "Background work").  For the others it does nothing, and succeeds with
 * *out = NULL.
 *
 * When a server's process has ended, calls that need it are -VB_EPEERGONE, or -VB_EUNKNOWN where it had been asked
 * already, until somebody has started it again, anywhere on shm: a client that is told so may try itself, and
 * goes on if another was faster (-EBUSY).
 *
 * Each worker of a node is there once.  All agree on `workers`, which decides which worker serves a
 * lock; clients find them when all have begun.  A worker may be started again when its server has
 * been stopped, or its process has died; a process that calls exec with a server running keeps the
 * place, and answers nobody, until it ends.  Another number of workers may begin when all the
 * former are gone; if some of those died, "table" then grants nothing new for a lease.
 *
 *   -EBUSY   a server that lives has this place, or serves with another number of workers: the log
 *            names it
 *   -EINVAL  no such node or worker
 *   -EXDEV   the node is another process's (verbs, tcp, ucx): it is served there; or the program's own fabric
 *            shows no memory (verbena/provider.h, `local`), and the server wants to see its node's
 *   -ENOMEM, -ENOSPC (endpoints), and what the fabric says
 *
 * Threads: any; the server is that thread's.
 * Threads of vb_lock_server_stop: the server's; any, of one that has a thread of its own.
 */
int vb_lock_server_start(struct vb_lock_space *space, uint16_t node, unsigned worker,
			 unsigned workers, struct vb_lock_server **out);
void vb_lock_server_stop(struct vb_lock_server *server);

/* Worker 0 of 1 on a thread of its own, for programs whose threads stay outside Verbena for long.
 * The same errors: a second one for the same node is -EBUSY; and -EOPNOTSUPP on `sim`, which has
 * one thread.
 * Threads: any. */
int vb_lock_server_thread_start(struct vb_lock_space *space, uint16_t node,
				struct vb_lock_server **out);

/*
 * Opens a client at `node`.
 *
 *   -EINVAL       no such node, or on verbs, tcp and ucx another process's (but a client of tcp with
 *                 `servers` has them at any node)
 *   -ENOENT       a forked child whose parent has opened the space: it was removed meanwhile
 *   -VB_EPEERGONE a needed server is not there: it was not started, or is gone
 *   -VB_EUNKNOWN  a needed server's node was out of reach for seconds
 *   -ENOMEM, -ENOSPC (endpoints; the board of a visible space; names for shiftlock's clients of a node,
 *                 where there are no 128-bit masked atomics)
 *
 * Threads: any; the client is that thread's.
 */
int vb_lock_client_open(struct vb_lock_space *space, uint16_t node, struct vb_lock_client **out);

/*
 * Closes the client.  Grants still held are released, as by vb_lock_release_all.  Places in queues
 * are handed on, so that no lock is lost.  With locks that survive a death the call waits for them,
 * up to two leases; a place whose turn has not come then is recovered as a dead client's would be.
 * The others (mcs, ncosed, rma-rw, ...) have no bound: the call returns at once, the place is
 * handed on in the background, and its endpoint is in use until then.  On a fabric without keepers
 * it waits instead, as long as that takes.
 *
 * Threads: the client's.
 */
void vb_lock_client_close(struct vb_lock_client *client);

/*
 * Takes lock `lock` in `mode`, waiting at most timeout_ns (VB_FOREVER_NS: no bound).
 *
 *   0             granted
 *   -ETIMEDOUT    not granted in time
 *   -ECANCELED    the calling task was cancelled
 *   -VB_EUNKNOWN  see "What is known after a call" in verbena/lock.h
 *   -VB_EPEERGONE the server of the lock is gone, or the link to it is down; not granted.  Or this
 *                 client's home is (doc/elastic.md): its place in a queue, if it has one, is a dead
 *                 client's
 *   -EDEADLK      this client already holds the lock
 *   -EBUSY        more locks held, awaited or being handed on by this client than the space's
 *                 `claims`
 *   -EINVAL       no such lock or mode
 *   -EOPNOTSUPP   an intention mode, and the protocol has none; or drtm would have to compare clocks,
 *                 and this client knows the common time too badly (option `clock_bound`)
 *   -ENOSPC       rma-rw, a reader: more clients of this client's node are open than can be counted
 *
 * A protocol with a deadlock policy ("table") may refuse a client early, so that it can release
 * what it holds and retry.  No-wait and wait-die refuse with -EAGAIN.  Bounded-wait refuses a
 * client that holds another lock with -ETIMEDOUT: after its option `wait`, and at the latest when
 * the first lease ends of the grants that were valid when the call began.  So a wait that ends
 * with 0 has cost none of those.  For room at an agent that has none left (option `requests`) such
 * a client waits no longer than `wait` under each policy, and is told -ETIMEDOUT.
 *
 * Threads: the client's.
 */
int vb_lock_acquire(struct vb_lock_client *client, uint64_t lock, enum vb_mode mode,
		    uint64_t timeout_ns, struct vb_grant *out);

/*
 * vb_lock_acquire for a grant that is wanted for hold_ns, perhaps longer than a lease (a table
 * scan; the multi-slot leases of DSLR, SIGMOD 2018, section 5.1).  Its lease is hold_ns rounded up
 * to whole leases of the space.  As every lease it begins when the client's turn comes:
 * valid_until_ns says what is left of it when the call returns.  If the holder dies, the others
 * wait for that long and more.  Where hold_ns is no longer than a lease, this is vb_lock_acquire.
 *
 *   -EOPNOTSUPP   hold_ns is longer than a lease, and this protocol grants for one lease only
 *   -EINVAL       hold_ns is longer than the space allows (dslr: its option `slots` times the
 *                 lease)
 *
 * and everything that vb_lock_acquire returns.  Locks without leases grant until the release,
 * whatever hold_ns is.
 *
 * Threads: the client's.
 */
int vb_lock_acquire_for(struct vb_lock_client *client, uint64_t lock, enum vb_mode mode,
			uint64_t hold_ns, uint64_t timeout_ns, struct vb_grant *out);

/* The longest hold_ns that vb_lock_acquire_for takes here for this mode.  VB_FOREVER_NS: such
 * grants have no leases.
 * Threads: any. */
uint64_t vb_lock_hold_max_ns(const struct vb_lock_client *client, enum vb_mode mode);

/* Takes the lock only if that needs no waiting: 0, or -EAGAIN, or the errors
 * of vb_lock_acquire.
 * Threads: the client's. */
int vb_lock_try(struct vb_lock_client *client, uint64_t lock, enum vb_mode mode,
		struct vb_grant *out);

/*
 * Holds the lock in another mode from now on, without giving it back in between.  `mode` must
 * permit all that the present one does (S to X, U to X, IS to SIX), or less (X to S): a mode that
 * does neither is -EINVAL.  Waits at most timeout_ns for holders whose modes exclude the new one; a
 * conversion to less never waits.  On 0 the grant is brought up to date (mode, token,
 * valid_until_ns).
 *
 *   0             held in the new mode
 *   -ETIMEDOUT    held as before: other holders were still there when the time was over
 *   -ECANCELED    held as before: the calling task was cancelled
 *   -EDEADLK      held as before: somebody else waits for the same, each for the other; release
 *   -EAGAIN       held as before: the protocol's deadlock policy turned it down; release and retry
 *   -VB_ELOST     the lease had run out, and others may have the lock: release the grant
 *   -VB_EUNKNOWN  the fabric lost the answer: release the grant.  After a conversion to less it
 *                 is no longer valid in its old mode: others may hold the lock beside what is left
 *   -EOPNOTSUPP   this protocol cannot convert between these modes
 *   -EINVAL       no such mode, or the grant is not held by this client
 *
 * Threads: the client's.
 */
int vb_lock_convert(struct vb_lock_client *client, struct vb_grant *grant, enum vb_mode mode,
		    uint64_t timeout_ns);

/*
 * Has the grant's lease begin anew, for one lease of the space from now on: on 0 valid_until_ns is
 * brought up to date, mode and token stay, and nobody else has had the lock in between.  A lease
 * that is over, by the client's clock or where the lock is kept, stays over: it is not revived,
 * also if nobody has come for the lock yet.  Waits for an answer, not for other clients, at most
 * timeout_ns and not beyond the lease's end.  So renew when about half of the lease has passed.
 * While a holder renews, others wait.
 *
 * Who can: table, rpc, traditional, traditional-ro; drtm, whose readers have leases.  dslr,
 * dslr-update and shiftlock cannot: their waiters count from what they have seen themselves, and a
 * holder that only holds shows them nothing.  Locks without leases are held until the release:
 * 0, and nothing is done.
 *
 *   -ETIMEDOUT    no answer in time
 *   -VB_EUNKNOWN  the fabric lost the answer
 *   -VB_EPEERGONE the server of the lock is gone, or the link to it is down
 *   -EAGAIN       the server has no room for this client now
 *   -ECANCELED    the calling task was cancelled
 *
 * After these the grant is valid until its valid_until_ns, as before, and the call may be repeated.
 * (Where the answer was lost others may have to wait for longer than that.)
 *
 *   -VB_ELOST     the lease is over: the grant is no longer valid.  Release it
 *   -EOPNOTSUPP   this protocol's leases cannot be renewed
 *   -EINVAL       the grant is not held by this client
 *
 * Threads: the client's.
 */
int vb_lock_renew(struct vb_lock_client *client, struct vb_grant *grant, uint64_t timeout_ns);

/* A mode in words: "shared", "exclusive", "update", "intent-shared", ...; "?" for a number that is
 * no mode.
 * Threads: any. */
const char *vb_lock_mode_name(enum vb_mode mode);

/*
 * Gives the lock back.
 *
 *   0             released, and the client had the lock until this call: nobody else had taken it,
 *                 even if its lease had run out
 *   -VB_ELOST     the lease had run out before and the lock was, or may have been, given to others
 *   -VB_EUNKNOWN  the fabric lost the answer, or the link or the server was gone for too long; a
 *                 lease protocol frees the lock by itself
 *   -EINVAL       the grant is not held by this client: it, or a copy of it, was released before,
 *                 or it is another client's.  What the client holds now it goes on holding
 *
 * Threads: the client's.
 */
int vb_lock_release(struct vb_lock_client *client, struct vb_grant *grant);

/*
 * Gives back n grants of one client: the end of a transaction.  The same as n releases; but with
 * "table" one message gives back all that the client holds at one server worker, if the list names
 * all of those.  Every grant is given back, whatever becomes of the others.
 *
 *   -VB_ELOST     the lease of one or more had run out; it is not always known of which
 *   -VB_EUNKNOWN  as for vb_lock_release, of one or more; of both errors this is returned
 *   -EINVAL       a grant is not held by this client, or is listed twice: nothing is given back
 *
 * A server that is gone or silent costs its patience (table: `ask_for`) once per call, however many
 * of the grants are at it.
 *
 * Threads: the client's.
 */
int vb_lock_release_all(struct vb_lock_client *client, struct vb_grant grants[], unsigned n);

/*
 * The age of a client's transaction, by which the policy wait-die decides who waits for whom: the
 * older for the younger.  By itself a transaction begins with the first lock that the client asks
 * for while it holds none.  Its age is the time of that moment, in ns, on the clock that all machines
 * have in common: exact on one machine, within the cluster's error of synchronisation on several.  A
 * transaction that was refused and tries again would then be the youngest, again and again; so
 * before it does, it says how old it is:
 *
 *	age_ns = vb_lock_client_age(me);        after -EAGAIN
 *	vb_lock_release_all(me, grants, n);
 *	vb_lock_client_begin(me, age_ns);
 *
 * An age of 0 means: it begins now.  The age counts for the transaction that begins with the next
 * lock asked for while none is held.  Protocols without wait-die do nothing with it.
 *
 * Threads: the client's.
 */
void vb_lock_client_begin(struct vb_lock_client *client, uint64_t age_ns);
uint64_t vb_lock_client_age(const struct vb_lock_client *client);

/*
 * Takes a lock and its ancestors in a hierarchy (Gray et al. 1976): path[n - 1] in `mode`, after
 * path[0] (the root) to path[n - 2] in the intention mode that this needs: intent-shared for shared
 * and intent-shared, intent-exclusive for the others.  n is 1 to VB_PATH_MAX; no lock may stand on
 * the path twice.  Waits at most timeout_ns altogether.
 *
 * A lock that the client already holds in a strong enough mode is skipped; one that it holds in
 * another mode is converted to the weakest mode that permits both.  Nothing is taken below an
 * ancestor that is held in a mode which covers all under it (shared or stronger for reading,
 * exclusive for anything).
 *
 * On 0 grants[i].claim is not NULL for each lock that this call took, and those are the caller's to
 * release, from the leaf to the root.  The other grants[i] say what is held and are not to be
 * released; the caller's own grants of them stay good.
 * At that moment all locks of the path are valid.
 *
 * On an error the client holds nothing that it did not hold before, what was converted has been
 * converted back, and what stands in `grants` means nothing.  The errors are those of vb_lock_acquire
 * and vb_lock_convert, and
 *
 *   -ETIMEDOUT  also without a bound, if a lease that this call took ended while it waited for
 *               other locks
 *   -VB_ELOST   the lease of a lock has ended that the caller held before: release that
 *   -EINVAL     n is out of range, or a lock stands on the path twice
 *
 * If the server is gone or silent, so that none of this can be known, the call takes no longer than
 * timeout_ns and twice the server's patience (table: `ask_for`), however long the path.
 *
 * Threads: the client's.
 */
int vb_lock_acquire_path(struct vb_lock_client *client, const uint64_t *path, unsigned n,
			 enum vb_mode mode, uint64_t timeout_ns, struct vb_grant grants[]);

/*
 * The client's clock; and whether by this clock the client now has the lock as the grant says: it
 * is held, and its lease has not ended.  Never true for a grant that was released, or a copy of
 * it; nor for one that says more than is held, a copy from before a conversion to less.  Grants of
 * locks that vb_lock_acquire_path found held are valid as long as the caller's own grant of that
 * lock.  The client must be open.
 *
 * Threads: any.
 * Threads of vb_lock_valid: the client's.
 */
uint64_t vb_lock_now(const struct vb_lock_client *client);
bool vb_lock_valid(const struct vb_lock_client *client, const struct vb_grant *grant);

/* The client's name, by which vb_lock_holder knows it: no two that are open on a fabric have the same.
 * VB_PEER_NONE for NULL.  The client must be open.
 * Threads: any. */
vb_peer vb_lock_client_peer(const struct vb_lock_client *client);

/* Who has a lock, as its word or its server says: vb_lock_holder. */
struct vb_holder {
	/* Somebody has it.  If not, and nothing has lapsed, all else is 0. */
	bool held;
	/* Nobody has it: the word still shows a lease that is over.  Who comes next takes the lock. */
	bool lapsed;
	/* How it is held, or was; of several modes the strongest (X, SIX, U, IX, S, IS). */
	enum vb_mode mode;
	/* By how many who hold it beside each other, where they are counted; X, SIX and U: by how many beside
	 * its holder. */
	uint32_t readers;
	/* X, SIX and U: the node of its holder; else 0. */
	uint16_t node;
	/* X, SIX and U: its holder, where all of its name is known; else VB_PEER_NONE. */
	vb_peer client;
};

/*
 * Who has a lock: one READ of its word, or a question to the server that keeps it.  It changes nothing and waits
 * for no other client.  The answer was so at one moment of the call, and may be over when it is read.  It is for
 * people and what is told to them; whoever wants the lock asks for it.
 *
 * A holder that has died is told as one that lives, since nobody has taken its name out of the word, and
 * lapses only where it had a lease; with "table" it is nobody's then.  Readers of drtm give nothing back: they
 * hold until their lease is over by this client's clock.  In a word of retry-on-fail there is no room for all of a
 * name, so only the node is told; and readers may be counted in it that are about to leave without the lock.
 *
 * Who can: cas, cas-backoff, drtm, retry-on-fail by their words; rpc, traditional, traditional-ro, table by their
 * servers.  The words of others count their clients, or name the last of a queue.  If the space is `visible`,
 * `verbena dump` shows who holds and who waits.
 *
 *   -EINVAL       no such lock
 *   -EOPNOTSUPP   nothing of this protocol names its holders
 *   -VB_EUNKNOWN  the fabric lost the answer; or there was none within the option `ask_for`
 *   -VB_EPEERGONE the lock's node is gone, or its server, or the link to it is down
 *   -EAGAIN       table: the server has begun again and does not know yet, or has no room for this client now
 *   -ECANCELED    the calling task was cancelled
 *
 * After the last four the call may be repeated.
 *
 * Threads: the client's.
 */
int vb_lock_holder(struct vb_lock_client *client, uint64_t lock, struct vb_holder *out);

/* Granted, not granted or unknown, by an acquire's return value.
 * Threads: any. */
enum vb_outcome vb_lock_outcome(int err);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
