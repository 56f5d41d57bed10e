/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Locks by name.
 *
 * A *directory of names* stands beside a lock space (verbena/lock.h) and gives its locks names.  A name
 * is a string of bytes, any bytes; two names are the same if their bytes are.  It has one lock, the same
 * for all clients and for as long as the space's memory is there, and no other name has that lock:
 *
 *	vb_names_open(space, NULL, &names);
 *	err = vb_names_lock(names, me, "orders/7", 8, &lock);
 *	if (err == 0)
 *		err = vb_lock_acquire(me, lock, VB_EXCLUSIVE, timeout_ns, &grant);
 *
 * So names cannot be confused, and nobody waits for himself, as he could where a hash alone chose the
 * locks of two names that he takes.  (Two clients that take two names in different orders can deadlock as
 * with any two locks: take them in one order, or a protocol with a deadlock policy, vb_lock_acquire.)
 *
 * Names stay.  What one client has been told of a name all others may have been told, too, and remember;
 * none could be asked before the lock went to another name.  So a directory has room for every name that
 * there will ever be; a name that is not used costs its place and nothing else.
 *
 * Cost.  A name that this process remembers (vb_names_params.known) costs no verb.  Else it takes a READ
 * of up to 1 KiB, more than one rarely where at most three quarters of the locks have names, or half of
 * them where names may be so long that a READ has three; and a name that is new one CAS more for each 7
 * bytes and one.  In the memory of the nodes that have the locks each lock
 * that may get a name takes 8 bytes for each 7 bytes that a name may have, and 8 more: 64 bytes with the
 * default.  When nearly all locks have names, one that is new takes READs of ever more of them.
 *
 * Clients may die at any point, and answers may be lost: a name that was left half written is finished
 * by whoever comes with it next, and nobody waits for anybody (src/lock/names.c says why).
 *
 * A directory is as lasting as the locks' words.  With the option `persist` of "table" the locks outlast
 * the segment, by their numbers; the names do not.
 */
#ifndef VERBENA_NAMES_H
#define VERBENA_NAMES_H

#include <verbena/lock.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

struct vb_names;

#define VB_NAME_MAX 255

struct vb_names_params {
	/* Locks 0 to `names` - 1 are given to names; the others may be used by their numbers.  0: all of
	 * the space. */
	uint64_t names;
	/* How long a name may be, 1 to VB_NAME_MAX bytes; 0: 49, which makes a place of one line. */
	uint32_t bytes;
	/* Room for so many names that this process remembers, up to 2^24; 0: 4096.  They are those that
	 * it is told first, but for one in eight when the room is full, and hardly one when it is full
	 * by half.  Each takes as many bytes as the name has and some 50, the first time that it is
	 * told. */
	uint32_t known;
};

/*
 * Opens the directory of a space, making it if it is not there yet.  params NULL: all 0.  Every later
 * open must ask for the same `names` and `bytes`.  It is this process's, for all its threads, and is
 * closed before the space.
 *
 *   -EINVAL  a number is out of range, or the directory is there with other numbers: the log names both
 *   -ENOSPC  it does not fit in the nodes' segments
 *   -ENOMEM
 *   -VB_EUNKNOWN, -VB_EPEERGONE, -ETIMEDOUT, -EAGAIN  a node that has locks was out of reach for seconds
 *   -VB_EFOREIGN  a forked child that has not called vb_fabric_after_fork
 *
 * Threads: any.
 */
int vb_names_open(struct vb_lock_space *space, const struct vb_names_params *params,
		  struct vb_names **out);

/* Closes the directory; NULL does nothing.  The names stay.
 * Threads: any, alone. */
void vb_names_close(struct vb_names *names);

/*
 * The lock of a name of `bytes` bytes, which it is given if it has none.  `client` is any of this space;
 * the call is made through it, as the client's thread may.
 *
 *   -ENOSPC       every lock has its name, or a part of one that is being given to it: of somebody who
 *                 died meanwhile, until somebody else asks for that name
 *   -EINVAL       the name is empty, or longer than the directory's names; the client is another space's
 *   -VB_EUNKNOWN  the fabric lost the answers
 *   -VB_EPEERGONE a node is gone, or the link to it is down
 *
 * After these two the name may have been given its lock or not: the same call tells, at any time.
 *
 * Threads: the client's.
 */
int vb_names_lock(struct vb_names *names, struct vb_lock_client *client, const void *name,
		  size_t bytes, uint64_t *lock);

/* The same, of a name that somebody has given a lock before this call; it gives it none itself.
 * -ENOENT: nobody has; and the errors of vb_names_lock but -ENOSPC.
 * Threads: the client's. */
int vb_names_find(struct vb_names *names, struct vb_lock_client *client, const void *name,
		  size_t bytes, uint64_t *lock);

/*
 * The name of a lock: its bytes, without a zero behind them, and how many they are.
 *
 *   -ENOENT  it has none
 *   -ENOSPC  it has more bytes than `room`
 *   -EINVAL  there is no such lock, or it is none of those that are given to names
 *
 * and -VB_EUNKNOWN, -VB_EPEERGONE.
 *
 * Threads: the client's.
 */
int vb_names_of(struct vb_names *names, struct vb_lock_client *client, uint64_t lock, void *name,
		size_t room, size_t *bytes);

/* `name` is good until the function returns.  Something other than 0 ends vb_names_each, which returns
 * it. */
typedef int (*vb_names_fn)(void *user, uint64_t lock, const void *name, size_t bytes);

/*
 * Calls fn for each name, in no order: once for each that had its lock before the call, and perhaps for
 * some that are given one meanwhile.  It may call anything but vb_names_close and what closes the client.
 * READs the whole directory.
 *
 * 0, what fn returned, or -EINVAL, -VB_EUNKNOWN, -VB_EPEERGONE as above.
 *
 * Threads: the client's.
 */
int vb_names_each(struct vb_names *names, struct vb_lock_client *client, vb_names_fn fn,
		  void *user);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
