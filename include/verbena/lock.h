/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Locks on a fabric.
 *
 * A *lock space* is K locks, numbered 0..K-1, of one protocol, spread over N server nodes.  A
 * *client* takes and gives back locks; it belongs to the thread that has opened it (or one coroutine
 * there), and calls from another are refused (-VB_EFOREIGN).  A process may have any number of
 * clients.
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
 * What a grant is worth.  The locks are advisory and, where the protocol has leases, a grant is
 * valid until its valid_until_ns on the client's clock (vb_lock_valid).  No call renews a lease:
 * choose lease_ns longer than the work under a lock, or ask for more with vb_lock_acquire_for.  (A
 * conversion to another mode begins a new lease with "table", and with no other.)  A holder can be
 * stopped by its machine at any instruction and go on long afterwards: checking the time and then
 * acting are two moments.  Only a fencing token that is checked where the data lives closes that
 * gap.  With `fencing`, every exclusive grant carries a token that grows with each exclusive grant
 * of that lock, also across recoveries: have the storage refuse a token smaller than the largest it
 * has seen.
 *
 * What is known after a call.  0: granted.  -ETIMEDOUT, -EAGAIN, -ECANCELED: not granted, and
 * nothing will be held in your name.  A place in a queue that cannot be left at once is handed on in
 * the background, whatever the thread does next (verbena/fabric.h, "Background work"): others need
 * not wait until it calls again.  -VB_EUNKNOWN: the fabric lost the answer; a lease protocol frees
 * what may have been taken, the others may have lost the lock for good.
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
 * Protocols without a shared mode serve readers as writers, those without an update mode serve it
 * as exclusive: the grant says what was granted.  Intention modes (Gray et al. 1976; Barthels et
 * al. 2019, table 1) are refused with -EOPNOTSUPP by protocols without them; `verbena list` says
 * who has which.
 */
enum vb_mode {
	VB_SHARED,
	VB_EXCLUSIVE,
	VB_UPDATE, /* reads beside readers, may become exclusive (vb_lock_convert); one at a time */
	VB_INTENT_SHARED,           /* takes shared locks further down the hierarchy */
	VB_INTENT_EXCLUSIVE,        /* takes exclusive locks further down */
	VB_SHARED_INTENT_EXCLUSIVE, /* shared, and takes exclusive locks further down */
};
#define VB_MODES 6

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

struct vb_lock_space_params {
	const char *lock;    /* protocol: "dslr", "shiftlock", ...; `verbena list` has them all */
	const char *options; /* the protocol's own, "key=value,..."; NULL: defaults */
	const char *name;    /* lets several spaces share a fabric; NULL: "locks".  Copied */
	uint64_t locks;      /* K, 1 to 2^40 */
	uint16_t servers;    /* the first N nodes hold the locks, N at most `locks`; 0 means 1 */
	/* How long a grant is valid, 10 us to 1 hour.  0 means 200 ms, or four times what the fabric
	 * lets a verb be late if that is more; on `sim`, whose cores nobody shares, 10 ms.  200 ms,
	 * because a thread that shares its core may be off it for tens of time slices of 3 ms, or
	 * for a period or two of 100 ms where a container has a quota; a holder that is off for a
	 * whole lease loses its lock.  After a death the others wait for 2 to 8 leases, by protocol
	 * (`verbena list`): whose threads have cores to themselves may ask for less.  On an RDMA
	 * card one second at least, until its option `measured` says more (doc/verbs.md). */
	uint64_t lease_ns;
	uint32_t drift_ppm; /* bound on the relative drift of two clients' clocks, at most 10,000;
	                     * 0 means 100 */
	bool fencing;       /* a token with every exclusive grant: free where the protocol has it,
	                     * one more atomic elsewhere */
	bool visible;       /* clients show what they hold and await to `verbena dump` and `verbena
	                     * top`: 256 clients per node, 32 held locks per client, others are
	                     * only counted.  Some 100 ns per acquire, and 400 KB of each node */
	uint32_t claims;    /* locks that a client of this process holds, awaits or hands on at a
	                     * time, 1 to 65,536; 0 means VB_CLAIMS_MAX.  Each takes some 500
	                     * bytes of each client */
};

/*
 * A held lock.  Owned by the caller, filled by acquire.  It names this one hold of the lock: once
 * that has been released it, and every copy of it, is good for nothing (-EINVAL, never valid), also
 * if the client holds the same lock again.  A conversion keeps the hold, and brings only the grant
 * up to date that it was called with.  Copies are not counted: whichever is released first ends the
 * hold.
 */
struct vb_grant {
	uint64_t lock;
	enum vb_mode mode;       /* what was granted */
	uint64_t token;          /* 0: none */
	uint64_t valid_until_ns; /* on the client's clock (vb_lock_now); VB_FOREVER_NS: no lease */
	struct vb_claim *claim;  /* private */
	uint64_t hold;           /* private */
};

/*
 * Opens the space on this process's view of the fabric, making it if it is not there yet; whoever
 * comes second must ask for the same protocol, number of locks, servers, lease and fencing, and for
 * the same options that change the layout (`slots`, ...).  What was made stays in the fabric when
 * all have closed it.  On shm, who finds one that its maker was killed in the middle of making
 * waits for two seconds and finishes it, with a notice.
 *
 *   -EINVAL      unknown protocol or option, a number out of range (a protocol with leases: also a
 *                lease shorter than twice the time by which the fabric's verbs may be late), or
 *                another layout than the space that exists
 *   -EOPNOTSUPP  the fabric lacks a verb that the protocol needs; the log names it
 *   -ENOSPC      the locks do not fit in the nodes' segments
 */
int vb_lock_space_open(struct vb_fabric *fabric, const struct vb_lock_space_params *params,
		       struct vb_lock_space **out);
/*
 * Closes; NULL does nothing.  Waits for places that closed clients still have in queues: as long as
 * others hold those locks, and says so in the log every ten seconds.  A holder that has died holds
 * for ever there, because only locks that do not survive a death have such places: a process that
 * is to end all the same ends without this call.  A forked child waits for its own clients, not for
 * its parent's.  (In virtual time at most 64 leases: nobody is left then who could give them back.)
 *
 *   -EBUSY        clients or servers are open on it: the log names them.  Nothing is closed
 *   -VB_EFOREIGN  a forked child that has not called vb_fabric_after_fork
 */
int vb_lock_space_close(struct vb_lock_space *space);

/*
 * Protocols with a server side (rpc, traditional, traditional-ro, table; shiftlock for recovery)
 * need servers on every server node.  Starts worker `worker` of `workers` (1 to 64) of `node` as a
 * task on this thread's scheduler; it runs whenever the thread awaits something, and while the
 * thread is outside Verbena on its keeper (verbena/fabric.h, "Background work").  For the others it
 * does nothing and succeeds with *out = NULL.
 *
 * Each worker of a node is there once, and all of them agree on `workers`, which says whose a lock
 * is: clients find them when all have begun.  The next one takes a place when its server has been
 * stopped, or its process has died.  Another number may begin when all of the former are gone;
 * after deaths, "table" grants nothing new for a lease then.
 *
 *   -EBUSY   a server that lives has this place, or serves with another number of workers: the log
 *            names it
 *   -EINVAL  no such node or worker
 *   -EXDEV   the node is another process's (verbs, ucx): it is served there
 *   -ENOMEM, -ENOSPC (endpoints), and what the fabric says
 */
int vb_lock_server_start(struct vb_lock_space *space, uint16_t node, unsigned worker,
			 unsigned workers, struct vb_lock_server **out);
void vb_lock_server_stop(struct vb_lock_server *server);

/* Worker 0 of 1 on a thread of its own, for programs whose threads do not await for long.  The same
 * errors: a second one for the same node is -EBUSY; and -EOPNOTSUPP on `sim`, which has one thread. */
int vb_lock_server_thread_start(struct vb_lock_space *space, uint16_t node,
				struct vb_lock_server **out);

/* A client at `node`. -ENOMEM, -ENOSPC (endpoints; the board of a visible space), -EINVAL (no such
 * node, or on verbs and ucx another process's), -VB_EPEERGONE (a needed server is not there: it was
 * not started, or is gone), -VB_EUNKNOWN (its node was out of reach for seconds). */
int vb_lock_client_open(struct vb_lock_space *space, uint16_t node, struct vb_lock_client **out);
/*
 * Grants still held are released, as by vb_lock_release_all.  Places in queues are handed on, so
 * that no lock is lost: by locks that survive a death the call waits for them, up to two leases, and
 * leaves what is not called then to be mended as a dead client's would be.  The others (mcs, ncosed,
 * rma-rw, ...) have no bound: the call returns at once, the place is handed on in the background,
 * and its endpoint is in use until then.  On a fabric without keepers it waits instead, as long as
 * that takes.
 */
void vb_lock_client_close(struct vb_lock_client *client);

/*
 * Takes lock `lock` in `mode`, waiting at most timeout_ns (VB_FOREVER_NS: no bound).
 *
 *   0             granted
 *   -ETIMEDOUT    not granted in time
 *   -ECANCELED    the calling task was cancelled
 *   -VB_EUNKNOWN  see above
 *   -VB_EPEERGONE the server of the lock is gone; not granted
 *   -EDEADLK      this client already holds the lock
 *   -EBUSY        more locks held, awaited or being handed on by this client than the space's
 *                 `claims`
 *   -EINVAL       no such lock or mode
 *   -EOPNOTSUPP   an intention mode, and the protocol has none
 *
 * A protocol with a deadlock policy ("table") may refuse a client early, so that it can release
 * what it holds and retry: -EAGAIN (no-wait, wait-die), or, if it holds another lock, -ETIMEDOUT
 * (bounded-wait: after its option `wait`, and at the latest when the first lease ends of what this
 * client holds and was valid when the call began; so a wait that ends with 0 has cost none of
 * those).
 */
#define VB_CLAIMS_MAX 64
int vb_lock_acquire(struct vb_lock_client *client, uint64_t lock, enum vb_mode mode,
		    uint64_t timeout_ns, struct vb_grant *out);

/*
 * The same for a grant that is wanted for hold_ns, longer than a lease perhaps (a table scan; the
 * multi-slot leases of DSLR, SIGMOD 2018, section 5.1).  Its lease is hold_ns rounded up to whole
 * leases of the space, and runs, as every lease does, from the moment at which the turn came: what
 * is left of it when the call returns, valid_until_ns says.  If the holder dies, those who wait
 * cannot tell for as long as that and more; and where hold_ns is no longer than a lease, this is
 * vb_lock_acquire.
 *
 *   -EOPNOTSUPP   hold_ns is longer than a lease, and this protocol grants for one lease only
 *   -EINVAL       hold_ns is longer than the space allows (dslr: its option `slots` times the
 *                 lease)
 *
 * and everything that vb_lock_acquire returns.  Locks without leases grant until the release,
 * whatever hold_ns is.  One client's calls are one thread's, as ever.
 */
int vb_lock_acquire_for(struct vb_lock_client *client, uint64_t lock, enum vb_mode mode,
			uint64_t hold_ns, uint64_t timeout_ns, struct vb_grant *out);

/* The longest hold_ns that vb_lock_acquire_for takes here for this mode; VB_FOREVER_NS: such
 * grants have no leases.  Any thread's call. */
uint64_t vb_lock_hold_max_ns(const struct vb_lock_client *client, enum vb_mode mode);

/* Takes the lock only if that needs no waiting: 0, or -EAGAIN, or the errors above. */
int vb_lock_try(struct vb_lock_client *client, uint64_t lock, enum vb_mode mode,
		struct vb_grant *out);

/*
 * Holds the lock in another mode from now on, without giving it back in between.  `mode` must
 * permit all that the present one does (S to X, U to X, IS to SIX), or less (X to S): a mode that
 * does neither is -EINVAL.  Waits at most timeout_ns until those are gone whose modes exclude the
 * new one; less never waits.  On 0 the grant is brought up to date (mode, token, valid_until_ns).
 *
 *   0             held in the new mode
 *   -ETIMEDOUT    held as before: others were still there in time
 *   -ECANCELED    held as before: the calling task was cancelled
 *   -EDEADLK      held as before: somebody else waits for the same, each for the other; release
 *   -EAGAIN       held as before: the protocol's deadlock policy turned it down; release and retry
 *   -VB_ELOST     the lease had run out: the lock may be others' (release the grant)
 *   -VB_EUNKNOWN  the fabric lost the answer: release the grant
 *   -EOPNOTSUPP   this protocol cannot convert between these modes
 *   -EINVAL       no such mode, or the grant is not held by this client
 */
int vb_lock_convert(struct vb_lock_client *client, struct vb_grant *grant, enum vb_mode mode,
		    uint64_t timeout_ns);

/* "shared", "exclusive", "update", "intent-shared", ...; "?" for what is no mode. */
const char *vb_lock_mode_name(enum vb_mode mode);

/*
 * Gives the lock back.
 *
 *   0             released, and until this call the lock was ours: nobody had taken it, even where
 *                 its lease had run out
 *   -VB_ELOST     the lease had run out before and the lock was, or may have been, given to others
 *   -VB_EUNKNOWN  the fabric lost the answer; a lease protocol frees the lock by itself
 *   -EINVAL       the grant is not held by this client: it was released before, by this or by a
 *                 copy of it, or is another client's.  What the client holds now is held on
 */
int vb_lock_release(struct vb_lock_client *client, struct vb_grant *grant);

/*
 * Gives back n grants of one client: the end of a transaction.  As n releases, but
 * where the protocol can (table), with one message for all that the client holds at one server
 * agent; it can if the list names all of those.  Every grant is given back, whatever becomes of the
 * others; the result is the worst: 0, -VB_ELOST, -VB_EUNKNOWN (in this order).
 *
 * A server that is gone or silent costs its patience (table: `ask_for`) once in a call, however
 * many of the grants are its.
 *
 *   -VB_ELOST  of one or more the lease had run out; which one, is not always known
 *   -EINVAL    a grant is not held by this client, or stands there twice: nothing is given back
 */
int vb_lock_release_all(struct vb_lock_client *client, struct vb_grant grants[], unsigned n);

/*
 * The age of a client's transaction, by which the policy wait-die says who waits for whom: the
 * older for the younger.  By itself a transaction begins with the first lock that the client asks
 * for while it holds none, and its age is the time then that all machines have in common, as well
 * as the fabric knows it: exact on one machine, within the cluster's error of synchronisation on
 * several.  One that was turned down and tries again would then be the youngest, again and again;
 * so before it does, it says how old it is:
 *
 *	age = vb_lock_client_age(me);           after -EAGAIN
 *	vb_lock_release_all(me, grants, n);
 *	vb_lock_client_begin(me, age);
 *
 * begin(0) means: it begins now.  It is for the transaction that begins with the next
 * lock asked for while none is held.  Protocols without wait-die keep it and do nothing with it.
 */
void vb_lock_client_begin(struct vb_lock_client *client, uint64_t age);
uint64_t vb_lock_client_age(const struct vb_lock_client *client);

/*
 * Multi-level locking (Gray et al. 1976): takes path[n - 1] in `mode`, after its ancestors path[0]
 * (the root) to path[n - 2] in the intention mode that this asks for: intent-shared for shared and
 * intent-shared, intent-exclusive for the others.  n is 1 to VB_PATH_MAX; no lock may stand on
 * the path twice.  Waits at most timeout_ns altogether.
 *
 * What the client holds already in a mode that does, is skipped; in another, it is converted to the
 * weakest mode that permits both.  Below an ancestor that is held in a mode which covers all
 * under it (shared or stronger for reading, exclusive for anything) nothing is taken.
 *
 * On 0 grants[i].claim is not NULL for each lock that was taken by this call, and those are the
 * caller's to release, from the leaf to the root.  The others' grants[i] say what is held and are
 * not to be released; the caller's own grants of them stay good.  All that the path stands on is
 * valid at that moment.  On an error nothing that was not held before is held, and what was
 * converted has been converted back; the errors are those of vb_lock_acquire and
 * vb_lock_convert, and
 *
 *   -ETIMEDOUT  also without a bound, if a lease that this call took ended while it waited for the
 *               rest
 *   -VB_ELOST   the lease of a lock has ended that the caller held before: release that
 *   -EINVAL     a path that is none
 *
 * Where the server is gone or silent, so that neither can be known, the call takes no longer than
 * timeout_ns and twice the server's patience (table: `ask_for`), however long the path.
 */
#define VB_PATH_MAX 64
int vb_lock_acquire_path(struct vb_lock_client *client, const uint64_t *path, unsigned n,
			 enum vb_mode mode, uint64_t timeout_ns, struct vb_grant grants[]);

/*
 * The client's clock; and whether the client has the lock at this moment by it, as the grant says:
 * it is held and its lease has not ended.  Never true for a grant that was released, or a copy of
 * it; nor for one that says more than is held, a copy from before a conversion to less.  Those that
 * vb_lock_acquire_path has filled in are valid as long as the caller's own grant of that lock.  The
 * client must be open: of one that was closed no grant may be asked after with it.
 */
uint64_t vb_lock_now(const struct vb_lock_client *client);
bool vb_lock_valid(const struct vb_lock_client *client, const struct vb_grant *grant);

/* What an acquire's return value says about the lock. */
enum vb_outcome vb_lock_outcome(int err);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
