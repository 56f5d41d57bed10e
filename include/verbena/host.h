/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients that any thread may call: for programs whose work goes from thread to thread, as a thread
 * pool's or a web server's does.
 *
 * A *host* is a thread of the library's own.  What is opened on it is its own, and no thread of the
 * program's; each of them may call it:
 *
 *	vb_host_open(NULL, &host);
 *	vb_host_client_open(host, space, 0, &client);
 *	...
 *	err = vb_lock_acquire(client, 7, VB_EXCLUSIVE, VB_FOREVER_NS, &grant);	in one thread
 *	...
 *	err = vb_lock_release(client, &grant);					in another one
 *
 * A call goes to the host, which makes it, and its caller sleeps until it has ended.  Where a line on
 * threads says "the client's" or "the ring's", and the client or ring is a host's, that is any thread.
 * What a coordinator does, and what else belongs to a thread, is called in a function that runs on the
 * host (vb_host_call).
 *
 * Whose it is.  A client stays one party, whichever threads call it, and has one call under way at a
 * time: another one meanwhile is -EBUSY and does nothing, also a release (but for vb_lock_valid,
 * vb_lock_client_age and those that any thread may make).  That holds of a call that a function on the host
 * makes, too, and of a coordinator's, which vb_txn_run is from its beginning to its end.  So a program
 * has a client for each of those that may hold or wait for locks at the same time (a session, a request
 * that is served), and hands it on with the work, or takes one from a pool of its own
 * (examples/hosted.c).  Who hands a client on does so as with any other memory: what it has done is done
 * for the next one.
 *
 * Waiting.  Functions and calls on a host take turns as on a ring ("Where it runs" in verbena/async.h):
 * one that waits in Verbena does not keep others from running; one that waits by other means, or
 * computes, does.  Calls begin in the order in which they came.  A timeout counts from the call.  A
 * caller that sleeps is not disturbed by signals, whose handlers run meanwhile, and ended by
 * pthread_cancel only when its call is over; what is to be cancelled is started on a ring of the host
 * (vb_host_ring_open), and cancelled by any thread.  From within a call on a ring or on another host a
 * call that would have to wait for this host is -EDEADLK (where it returns no error, it says so and does
 * nothing): start it on a ring of this host.  Each call needs a stack there: without memory for one it is
 * -ENOMEM and has not been made, a release either.
 *
 * What it costs.  Two wake-ups for each call, some 10 us where cores are idle.  Who has work enough for
 * a thread of its own keeps a client of its own, whose free lock costs a small part of that on `shm`.  A
 * host takes one core at most: who has more to do opens several, and spreads clients over them.  An idle
 * host sleeps.  Who opens no host pays nothing.
 *
 * A host can have what one thread can: fabrics that one thread can have at a time.  On `sim` there is
 * nothing: -EOPNOTSUPP.  The host's thread blocks all signals.  In a forked child there is no host
 * thread: each call on it, and on what is open on it, is -VB_EFOREIGN.
 */
#ifndef VERBENA_HOST_H
#define VERBENA_HOST_H

#include <verbena/async.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

struct vb_host;

/* May grow at its end. */
struct vb_host_params {
	/* The stack of a call and of a function that runs on the host, as vb_ring_params has it. */
	uint32_t stack_bytes;
};

/*
 * Opens a host: starts its thread.  params NULL: all 0.
 *
 *   -EINVAL  a parameter is out of range
 *   -ENOMEM  no memory, or no thread: the log says which
 *
 * Threads: any.
 */
int vb_host_open(const struct vb_host_params *params, struct vb_host **out);

/*
 * Closes it, and ends its thread; NULL does nothing.  What closed clients have left in queues goes on in
 * the background, as after a thread's end.
 *
 *   -EBUSY        clients, coordinators, servers or rings are open on it, or a call is under way: the
 *                 log says how many.  Nothing is closed; close those, then call again
 *   -EDEADLK      from within a call on a ring or a host
 *   -VB_EFOREIGN  a forked child
 *
 * Threads: any, alone.
 */
int vb_host_close(struct vb_host *host);

/*
 * Runs a function of the program on the host, waits for its end, and returns what it returns, 0 or
 * negative.  What the function opens (lock clients, coordinators, servers as tasks) is the host's, and
 * other such functions may call it and close it: so any thread can run transactions.
 *
 *	static int transfer(void *arg)
 *	{
 *		struct transfer *t = arg;
 *
 *		return vb_txn_run(t->coordinator, move, t, 0);
 *	}
 *	...
 *	err = vb_host_call(host, transfer, &t);
 *
 * Beside others that wait on the host it runs as in vb_ring_call, whose words on what may hang on a
 * thread, on fork, and on whose clients and coordinators are, hold here.  From a function that runs on
 * the same host it is a plain call.
 *
 *   -ENOMEM       no memory for a stack.  It has not run
 *   -EINVAL       it has returned a positive number
 *   -EDEADLK      from within a call on a ring or another host.  It has not run
 *   -VB_EFOREIGN  a forked child.  It has not run
 *
 * Threads: any.
 */
int vb_host_call(struct vb_host *host, vb_ring_fn call, void *arg);

/*
 * Opens a lock client (vb_lock_client_open) on the host: a client that any thread may call.
 *
 * The errors of vb_lock_client_open, with those of vb_host_call, and
 *
 *   -EOPNOTSUPP   the fabric is `sim`
 *   -EINVAL       the host has a fabric open that no thread can have beside this one
 *
 * Threads: any.
 */
int vb_host_client_open(struct vb_host *host, struct vb_lock_space *space, uint16_t node,
			struct vb_lock_client **out);

/*
 * Opens a ring on the host, for calls that are started: vb_lock_acquire_start and its like with clients of
 * this host, and vb_ring_call.  What verbena/async.h says of rings holds, and:
 *
 * Any thread may start, cancel, reap, wait and arm, several at a time; who reaps has the completion, and
 * nobody else.  A thread that wants its own takes a ring of its own.  Whatever has a place on the ring is
 * under way, VB_STARTED, and its completion has every other result: also -EBUSY and -ENOMEM, and of
 * vb_lock_keep_start what else would be told at once.  -ENOSPC bounds what may be under way; there is no
 * other queue.  vb_ring_reap only takes; vb_ring_wait sleeps until somebody can reap, also where another
 * thread reaps first, and -ENOENT is told when nothing is left; until those that sleep there have
 * returned, closing is -EBUSY.  A call is -VB_EFOREIGN with a client that is not this host's, or in a
 * forked child.  Reaping, waiting, arming and closing from within a
 * call on a ring or a host are -EDEADLK.
 *
 * The errors of vb_ring_open, and
 *
 *   -VB_EFOREIGN  a forked child
 *
 * Threads: any.
 */
int vb_host_ring_open(struct vb_host *host, const struct vb_ring_params *params,
		      struct vb_ring **out);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
