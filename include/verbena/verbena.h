/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verbena: distributed locks over one-sided RDMA.  Errors, version, addresses.
 *
 * Every function that can fail returns 0 or a negative error.  Most are plain -errno values; the
 * few that errno has no word for are below and start at VB_ERR_BASE, so that they never collide
 * with one.  The function that decides an error logs it, once in each process that meets it, with
 * its cause and the way out (vb_log_set, vb_log_levels).
 * Outputs are written only on success.
 *
 * Pages and programs that the headers name, doc/... and examples/..., are the source's.  Installed they are
 * in share/doc/verbena below the prefix, with Debian's packages in /usr/share/doc/libverbena-dev.
 *
 * A call that needs a pointer and gets NULL does nothing and returns -EINVAL; one that returns no
 * error returns what stands for nothing (0, false, "nobody").  Closing or stopping NULL does
 * nothing.  A call from a forked child or another thread on what is not its own does nothing and
 * returns -VB_EFOREIGN; one that returns no error says so in the log.  Which threads may make a call
 * is the last that is said of it, in the words of verbena/fabric.h, "Threads".
 */
#ifndef VERBENA_VERBENA_H
#define VERBENA_VERBENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

#define VB_ERR_BASE 4096

enum vb_error {
	/* The operation may or may not have happened, and nobody here can tell: a verb was posted
	 * and its completion was lost.  Treat a lock as possibly held until its lease has
	 * passed. */
	VB_EUNKNOWN = VB_ERR_BASE,
	/* The grant was lost before this call: its lease ran out and others may hold the lock.  Of
	 * vb_txn_begin and vb_db_recover: a committed write is. */
	VB_ELOST,
	/* The peer or the node's server is gone (process dead, endpoint closed, retries spent), or
	 * was never started. */
	VB_EPEERGONE,
	/* The address lies outside the node's segment: access denied by bounds. */
	VB_EACCESS,
	/* A verb was not posted because its not_after time had passed. */
	VB_ETOOLATE,
	/* The call comes from another thread than the one that opened the client or coordinator, or
	 * from a forked child.  Nothing was done. */
	VB_EFOREIGN,
};

/* An error in words, of enum vb_error or of errno: "the verb was not posted ...".  The values of
 * errno that these headers name say what they mean here (-ETIMEDOUT: "not done within the time
 * allowed").  err may have either sign.  The string is static.
 * Threads: any. */
const char *vb_strerror(int err);

/*
 * Where the library gets memory from, if not from the C library: functions of the program.  All five are needed.  May
 * grow at its end.
 *
 * They are called by any thread at any time, several at once, also by threads of the library's own and on stacks of
 * 16 KiB.  What they return is aligned as malloc's, or NULL: the call then fails with -ENOMEM, or does without, as it
 * would with the C library's.  They are asked for no piece of 0 bytes and given no NULL.  They call nothing of Verbena.
 */
struct vb_allocator {
	/* The first argument of each function. */
	void *ctx;
	void *(*alloc)(void *ctx, size_t bytes);
	/* Of zeros. */
	void *(*alloc_zeroed)(void *ctx, size_t bytes);
	/* `align` is a power of two, and `bytes` a multiple of it. */
	void *(*alloc_aligned)(void *ctx, size_t align, size_t bytes);
	/* Of a piece that alloc, alloc_zeroed or resize has returned; as realloc. */
	void *(*resize)(void *ctx, void *piece, size_t bytes);
	/* Of a piece that any of them has returned. */
	void (*release)(void *ctx, void *piece);
};

/*
 * Has all memory of the library's own come from an allocator of the program's, before any other call; NULL: from the C
 * library, as if it had never been set.  It is copied.  What is open has its memory from there, and gives it back when
 * it is closed; a thread's state (its scheduler) goes when the thread ends, that of the main thread with the process.
 *
 * Not from there come what is mapped (nodes' memory, coroutines' stacks, segments) and what other libraries allocate
 * for themselves, the C library included.
 *
 *   -EBUSY   the library has had memory before
 *   -EINVAL  a function is missing
 *
 * Threads: any, alone.
 */
int vb_allocator_set(const struct vb_allocator *allocator);

/*
 * The log.  The library says what went wrong, why and what to do about it, one line each, on
 * standard error.  A program has the lines itself with vb_log_set, and says with vb_log_levels
 * which there are.
 */
enum vb_log_level {
	/* No message has this level: let through, it lets nothing through. */
	VB_LOG_OFF,
	/* A call failed, or something that nobody called for. */
	VB_LOG_ERROR,
	/* It goes on, but somebody should know. */
	VB_LOG_WARN,
	/* What has begun, ended, been found. */
	VB_LOG_INFO,
	/* For who looks for a fault. */
	VB_LOG_DEBUG,
	/* The same, at length. */
	VB_LOG_TRACE,
};

/* May grow at its end. */
struct vb_log_message {
	/* VB_LOG_ERROR to VB_LOG_TRACE. */
	enum vb_log_level level;
	/* The part of the library: "lock", "shm", ...; doc/operating.md has them all.  Static. */
	const char *part;
	/* UTF-8 without a line's end behind it, and without control characters other than tabs and
	 * line ends; cut after some 980 bytes.  Good until the function returns. */
	const char *text;
};

/*
 * Called with each message, on the thread that has it to say: any of the program's that calls
 * Verbena, or one of the library's own; several at a time.  It may have no more than 16 KiB of
 * stack.  The call that says the message waits for it, perhaps with others behind it that wait for
 * that one, so it must be quick: take the text away, and do the rest elsewhere.  It must not wait
 * for another thread that may be in a call of Verbena, fork, end its thread, or leave by longjmp or an
 * exception, and calls nothing of Verbena but vb_strerror, vb_version and vb_commit; what another call
 * says to the log goes to standard error, so that nothing goes round in a circle.
 */
typedef void (*vb_log_fn)(void *user, const struct vb_log_message *message);

/*
 * Gives messages to a function of the program: from now on to fn, with `user`, and not to standard
 * error; NULL: to standard error again.  When it returns no thread is in the former function any
 * more; it waits for those that are, and for no others, however much there is to say.  The last line
 * of an assertion of the library that failed, before it aborts, goes to both.  A forked child goes on with
 * what its parent had.
 *
 *   -EDEADLK  from the function itself: nothing has changed
 *
 * Threads: any.
 */
int vb_log_set(vb_log_fn fn, void *user);

/* Where vb_log_send sends to: the program's memory, until another function is set.  May grow at its end. */
struct vb_log_socket {
	/* One end of a connection that keeps messages apart (SOCK_SEQPACKET, SOCK_DGRAM); the program reads
	 * the other end. */
	int fd;
	/* How many messages are gone, because there was no room for them or nobody to read them.  Counted
	 * up by an atomic. */
	uint64_t lost;
};

/*
 * A function for vb_log_set, with a struct vb_log_socket as its `user`: for a program that cannot do
 * with a message what it wants where it is said, as an interpreter, or an event loop.
 *
 *	socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends);
 *	to.fd = ends[0];
 *	vb_log_set(vb_log_send, &to);
 *	...
 *	n = recv(ends[1], buf, 2048, 0);
 *
 * Each message is sent by itself: its level as one digit ('0' + VB_LOG_ERROR), its part, a zero byte,
 * and its text without one.  It never waits, and no signal comes (SIGPIPE): what cannot be sent is
 * counted, and gone.  As many find room as the socket's buffer has (SO_SNDBUF).  A forked child sends
 * to its parent's reader.
 *
 * Threads: any.
 */
void vb_log_send(void *user, const struct vb_log_message *message);

/*
 * Says which messages there are, in the form of the environment's VERBENA_LOG, and instead of it: a
 * level (off, error, warn, info, debug, trace) for all parts, or PART:LEVEL for one, with commas
 * between them; the last word for a part counts.  "warn", which is also what counts without this
 * call and without VERBENA_LOG; "off"; "error,lock:debug".  Messages above the level cost a
 * compare.  Those that others are just saying go by the old levels or the new.
 *
 *   -EINVAL  there is no such level or part: the log names it.  Nothing has changed
 *   -ENOMEM  memory has run out
 *
 * Threads: any.
 */
int vb_log_levels(const char *levels);

/* The version whose headers a program is compiled with. */
#define VB_VERSION_MAJOR  0
#define VB_VERSION_MINOR  1
#define VB_VERSION_PATCH  0
#define VB_VERSION_STRING "0.1.0"

/* The version and the commit of the library that a program runs with: in the form of
 * VB_VERSION_STRING; hexadecimal, or "unknown".
 * Threads: any. */
const char *vb_version(void);
const char *vb_commit(void);

/*
 * A remote address: the node in the upper 16 bits, the offset into the node's segment in the lower
 * 48, so that it fits in a lock word or an index slot.
 */
typedef uint64_t vb_addr;

#define VB_ADDR_OFFSET_BITS 48
#define VB_NODES_MAX        65535u

/* The address of an offset in a node's segment.
 * Threads: any. */
static inline vb_addr vb_addr_make(uint16_t node, uint64_t offset)
{
	return (uint64_t)node << VB_ADDR_OFFSET_BITS | offset;
}

/* The node of an address.
 * Threads: any. */
static inline uint16_t vb_addr_node(vb_addr a)
{
	return (uint16_t)(a >> VB_ADDR_OFFSET_BITS);
}

/* The offset of an address in its node's segment.
 * Threads: any. */
static inline uint64_t vb_addr_offset(vb_addr a)
{
	return a & ((1ull << VB_ADDR_OFFSET_BITS) - 1);
}

/*
 * The name of a client endpoint, 40 bits: node + 1 (16) and client number (24).  0 names nobody.
 * A number is not used again for a long time after its owner is gone (fabrics put an incarnation
 * into its upper bits), so that a message for the dead does not reach the living.
 */
typedef uint64_t vb_peer;

#define VB_PEER_NONE        0ull
#define VB_PEER_CLIENT_BITS 24

/* The name of an endpoint, of its node and its client number, which has VB_PEER_CLIENT_BITS.
 * Threads: any. */
static inline vb_peer vb_peer_make(uint16_t node, uint32_t client)
{
	return ((uint64_t)node + 1) << VB_PEER_CLIENT_BITS | client;
}

/* The node of a name, where an endpoint was opened; of VB_PEER_NONE one that there is not.
 * Threads: any. */
static inline uint16_t vb_peer_node(vb_peer p)
{
	return (uint16_t)((p >> VB_PEER_CLIENT_BITS) - 1);
}

/* The client number of a name.
 * Threads: any. */
static inline uint32_t vb_peer_client(vb_peer p)
{
	return (uint32_t)(p & ((1u << VB_PEER_CLIENT_BITS) - 1));
}

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
