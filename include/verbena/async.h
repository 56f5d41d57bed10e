/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that are started now and end later: for threads that serve many, and must not stand still
 * in vb_lock_acquire.
 *
 * A *ring* is one thread's.  What is started on it either ends at once, and its result is what
 * starting it returns, or is *under way*: VB_STARTED.  Then it ends later, and the ring has a
 * completion with its result and the caller's tag, which the thread takes with vb_ring_reap:
 *
 *	err = vb_lock_acquire_start(ring, client, 7, VB_EXCLUSIVE, VB_FOREVER_NS, &grant, tag, NULL);
 *	if (err != VB_STARTED)
 *		acquired(tag, err);
 *	...
 *	while ((n = vb_ring_reap(ring, done, 64)) > 0)
 *		for (int i = 0; i < n; i++)
 *			acquired(done[i].tag, done[i].result);
 *
 * A thread that sleeps elsewhere, in epoll_wait or a library's loop, has that watch the ring's
 * descriptor, and arms it before it sleeps.  No completion is missed: one that is there already is
 * what arming says, and one that comes later makes the descriptor readable.
 *
 *	epoll_ctl(poll, EPOLL_CTL_ADD, vb_ring_fd(ring), &event);
 *	for (;;) {
 *		while (vb_ring_arm(ring) == -EAGAIN)
 *			reap();
 *		n = epoll_wait(poll, ...);
 *		...
 *	}
 *
 * What ends at once.  On `shm`, where verbs complete as they are called, an acquire of a lock that is
 * free and a release that need not wait are done where they are called: no task is made for them, no
 * completion is queued, and none of the ring's depth is taken.  They cost what the blocking calls do
 * (bench/bench_ring.c prints the ratio).  So do those of a lock at the client's own node between
 * processes (on `verbs` if the card's atomics and the CPU's are one), but for rma-rw's readers and what
 * tells a successor.  Other calls begin in a task, which runs at once; one that has ended when it first
 * gives way has ended at once, too, and has cost more than a lock that is free: those that a server may
 * have to answer (of `rpc`, `traditional`, `traditional-ro` and `table`), those of rma-rw's writers, and
 * vb_ring_call.  What has to wait is under way, and the thread goes on: an acquire of a lock that is
 * held or at another node, and a release of `mcs` or `shiftlock` behind which somebody stands who has not
 * told his name yet, or of `ncosed` behind which somebody stands (a writer's; its readers leave at once).
 * One thing the thread stands still for: a successor whose mailbox is full, which takes a thread or
 * process that has been stopped.  Then a release of `shiftlock` ends at once, after some 8 ms on `shm`, and
 * one of `mcs` is under way after 1 or 2.
 *
 * Where it runs.  What is under way is background work of the thread ("Background work" in
 * verbena/fabric.h): it goes on while the thread waits in Verbena, and on its keeper while the thread
 * is elsewhere, at once after vb_ring_arm and after half a millisecond otherwise.  The option
 * no_keeper of a fabric does not change that.  On `sim` there are no keepers: it goes on in
 * vb_ring_wait and whatever else waits, and the descriptor tells nothing.
 *
 * Whose it is.  A client with a call under way is that call's: until it has ended every other call
 * with that client is -EBUSY (closing it: does nothing and says so), but for vb_lock_valid and those
 * that any thread may make.  So a program with n acquires that wait has n clients.  A client takes some
 * 40 KiB and one of the fabric's `endpoints`, and what is under way some 6 KiB for its stack.
 *
 * All calls but vb_ring_fd are the ring's thread's: from another one, and from a forked child, they
 * are -VB_EFOREIGN.  A ring that any thread may call is opened on a host (verbena/host.h).
 */
#ifndef VERBENA_ASYNC_H
#define VERBENA_ASYNC_H

#include <verbena/lock.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

struct vb_ring;

/* It is under way: a completion will follow.  Results of calls are 0 or negative. */
#define VB_STARTED 1

struct vb_ring_params {
	/* How many calls may be under way or ended and not reaped, 1 to 1,048,576; 0: 1024.  Each takes
	 * some 120 bytes from the beginning.  Those under way have a stack each, and Linux gives a process
	 * some 32,000 of them unless its vm.max_map_count is raised. */
	uint32_t depth;
	/* The stack of a call, 16 KiB to 64 MiB, rounded up to a power of two; 0: 64 KiB.  Only what is
	 * touched of it takes memory.  A provider's functions (verbena/provider.h) and the log's may have 16 KiB
	 * of 64.  16 KiB is enough for calls of lock clients, 32 KiB for transactions, if the program's own
	 * functions need no more than 2 of it; what needs more ends the process (SIGSEGV). */
	uint32_t stack_bytes;
};

struct vb_completion {
	void *tag;
	int result;
};

/*
 * Opens a ring of the calling thread.  params NULL: all 0.
 *
 *   -EINVAL  a parameter is out of range
 *   -ENOMEM  no memory, or no descriptor: the log says which
 *
 * Threads: any; the ring is that thread's.
 */
int vb_ring_open(const struct vb_ring_params *params, struct vb_ring **out);

/* Closes it; NULL does nothing.  -EBUSY: something is under way, or has not been reaped; a result that
 * nobody takes may be a lock that nobody gives back.  -EINVAL, -VB_EFOREIGN as for vb_ring_reap.  Close
 * it before the thread ends.
 * Threads: the ring's. */
int vb_ring_close(struct vb_ring *ring);

/*
 * vb_lock_acquire, started.  `out` is filled when it ends with 0, and is the call's until then.  `id`
 * may be NULL; else it names the call for vb_ring_cancel if it is under way.
 *
 *   VB_STARTED    under way
 *   -ENOSPC       as many calls as the ring's depth are under way or not reaped: reap.  Not started
 *   -ENOMEM       no memory for a stack.  Not started
 *   -EBUSY        the client has a call under way.  Not started
 *   -VB_EFOREIGN  the client or the ring is another thread's.  Not started
 *
 * or it has ended already, with 0 or an error of vb_lock_acquire.
 *
 * Threads: the ring's, which is the client's.
 */
int vb_lock_acquire_start(struct vb_ring *ring, struct vb_lock_client *client, uint64_t lock,
			  enum vb_mode mode, uint64_t timeout_ns, struct vb_grant *out, void *tag,
			  uint64_t *id);

/* vb_lock_release, started; the errors of vb_lock_acquire_start, with those of vb_lock_release.  0: it is
 * given back, and no completion follows.  The grant is the call's until it has ended.
 * Threads: the ring's, which is the client's. */
int vb_lock_release_start(struct vb_ring *ring, struct vb_lock_client *client,
			  struct vb_grant *grant, void *tag, uint64_t *id);

/*
 * Keeps what is held: renews the grant's lease (vb_lock_renew) whenever half of what it had left is over, until
 * it is cancelled (vb_ring_cancel) or that fails.  What fails is tried again; but a quarter of that before the
 * lease's end it is told, so that who works under the lock can come to an end while it is still held.  (A verb
 * that is under way then ends first: drtm's readers, whose leases are short, may hear of it later.)
 *
 * The completion says how the grant stands.  It is held and the client's again, to be released or renewed, after
 *
 *   -ECANCELED    cancelled
 *   -ETIMEDOUT, -VB_EUNKNOWN, -VB_EPEERGONE, -EAGAIN
 *                 the errors of vb_lock_renew: it could not be renewed, and is valid until its
 *                 valid_until_ns
 *
 * and it is no longer valid after
 *
 *   -VB_ELOST     the lease is over: release the grant
 *
 * Between two renewals the thread or its keeper must run (above): who is off its core for half a lease may
 * lose it, and then is told so, afterwards.  The grant is the call's until it has ended, but for
 * vb_lock_valid, and its lock, mode and token, which stay.  So is the client: who holds more takes one for
 * each lock that is kept.  It ends with its thread: what that has left open is kept no longer, and free when
 * its lease is over.
 *
 *   VB_STARTED, -ENOSPC, -ENOMEM, -EBUSY, -VB_EFOREIGN as for vb_lock_acquire_start
 *
 * or at once
 *
 *   0             without a lease, held until the release: nothing is to be kept
 *   -VB_ELOST     the lease is over
 *   -EOPNOTSUPP   this protocol's leases cannot be renewed (vb_lock_renew says which can)
 *   -EINVAL       the grant is not held by this client
 *
 * Threads: the ring's, which is the client's.
 */
int vb_lock_keep_start(struct vb_ring *ring, struct vb_lock_client *client, struct vb_grant *grant,
		       void *tag, uint64_t *id);

/*
 * Starts a function of the program: what it calls of Verbena makes it wait, and not the thread; its
 * result is what it returns, 0 or negative (for a positive one it is -EINVAL).  This is for whatever is
 * more than one call, as a transaction, and for calls that have no start of their own.
 *
 * It may run on the keeper's thread, as the work of a thread pool does, though never while another
 * call of this thread's rings runs, nor while the thread is inside Verbena; from one call of Verbena
 * to the next the thread may change, so nothing that hangs on a thread (errno, its locals) lasts.  If
 * it waits by other means, all that is under way waits.  The clients and coordinators that it uses are
 * its own until it has ended, and must not be used elsewhere; while it waits in a call of theirs, another
 * one is -EBUSY.  It may start more, but not reap, arm, wait or close (-EINVAL).  A child that is forked
 * in it must not return from it: it would be ended.
 *
 *   VB_STARTED, -ENOSPC, -ENOMEM, -VB_EFOREIGN as for vb_lock_acquire_start
 *
 * Threads: the ring's.
 */
typedef int (*vb_ring_fn)(void *arg);
int vb_ring_call(struct vb_ring *ring, vb_ring_fn call, void *arg, void *tag, uint64_t *id);

/*
 * Cancels what is under way: the waiting in it ends with -ECANCELED, and its completion comes with
 * that result, or another one if it was ending just then.  An acquire that is cancelled has left the
 * queue as after a timeout.
 *
 *   0        it has been told
 *   -ENOENT  nothing of that id is under way (it has ended)
 *
 * Threads: the ring's.
 */
int vb_ring_cancel(struct vb_ring *ring, uint64_t id);

/*
 * Takes up to `most` completions, in the order in which the calls have ended, and returns how many.
 * It does not wait; if there is none it gives what is under way a turn, unless the ring is armed.
 *
 *   -EINVAL       called from within a call of a ring
 *   -VB_EFOREIGN  another thread's ring
 *
 * Threads: the ring's.
 */
int vb_ring_reap(struct vb_ring *ring, struct vb_completion done[], unsigned most);

/*
 * Waits until there is a completion to reap, at most timeout_ns (VB_FOREVER_NS: no bound).
 *
 *   0           there is one
 *   -ETIMEDOUT  none came in time
 *   -ENOENT     nothing is under way
 *   -EINVAL, -VB_EFOREIGN  as for vb_ring_reap
 *
 * Threads: the ring's.
 */
int vb_ring_wait(struct vb_ring *ring, uint64_t timeout_ns);

/* A descriptor that becomes readable when something ends while the ring is armed, and stays so until
 * it is armed again.  It may be readable once for an end that has been reaped already: then there is
 * nothing to reap, and the ring is armed again.  Only to be waited for: its contents are the ring's.
 * NULL: -EINVAL.
 * Threads: any. */
int vb_ring_fd(const struct vb_ring *ring);

/*
 * The thread is about to sleep elsewhere: its keeper goes on at once with what is under way, and the
 * next end makes the descriptor readable.
 *
 *   0        armed, until something ends
 *   -EAGAIN  something has ended already: reap it first.  Not armed
 *   -ENOMEM  no thread for the keeper: wait or reap instead.  Not armed
 *   -EINVAL, -VB_EFOREIGN  as for vb_ring_reap
 *
 * Threads: the ring's.
 */
int vb_ring_arm(struct vb_ring *ring);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
