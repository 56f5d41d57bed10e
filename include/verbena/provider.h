/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fabric of the program's own: Verbena's locks on memory and connections that a program has already.
 *
 * The program is the *provider*.  It lends some bytes of each of its nodes, gives a handful of functions that
 * READ, WRITE, compare-and-swap and add there, and gets a struct vb_fabric that all other calls take:
 *
 *	static int post(void *ctx, void *ep, const struct vb_provider_verb *verbs, unsigned n);
 *	...
 *	const struct vb_provider mine = {
 *		.bytes = sizeof(mine), .name = "mine", .ctx = &state,
 *		.nodes = 4, .node_bytes = 1 << 20, .verb_bound_ns = 2000000, .end_ns = 1000000000,
 *		.ep_open = ep_open, .ep_close = ep_close, .post = post, .poll = poll, .alive = alive,
 *	};
 *	err = vb_provider_check(&mine, &broken);        once, when the program is tested
 *	err = vb_fabric_provide(&mine, &fabric);
 *	err = vb_lock_space_open(fabric, ...);          as on any other fabric
 *
 * doc/own-fabric.md goes through it step by step; examples/own_fabric.c is a provider of 200 lines.
 *
 * What is lent.  Of each node bytes 0 to node_bytes - 1 of a piece of memory that the program chooses: where it
 * lies, and with which key it is reached, is the provider's business alone.  It is zero before the first process
 * calls vb_fabric_provide, all processes lend the same, nobody else writes it afterwards, and it stays until the
 * last of them has closed the fabric.  The first 16 KiB of each node say where Verbena has put what.
 *
 * Ordered.  Verbs of one endpoint to one node take effect as those of a reliable RDMA connection: a READ, CAS or
 * FAA sees the WRITEs, CASes and FAAs posted before it, and WRITEs and SENDs land in the order in which they were
 * posted.  A WRITE or SEND may overtake READs, CASes and FAAs posted before it, unless it has `fence`.  What has
 * ended is before all that is posted later.  Between nodes, and between endpoints, nothing is ordered; but of two
 * that each write a word and then read the other's, one sees the other.
 *
 * Atomic.  CAS and FAA with each other, of all endpoints of all processes.  A READ or WRITE of eight aligned bytes
 * is whole; a longer one may be torn between them.  Nothing is asked for of a WRITE at the same time as a CAS or
 * FAA on the same word, nor of a CPU's access to such a word: atomics may be those of a card.
 *
 * Bounded.  A verb takes effect within verb_bound_ns of its posting, or never, whatever becomes of its process; a
 * lock with leases needs one of at least twice that.  It ends, perhaps with an error, within end_ns, as long as
 * its endpoint is polled, also if the node it goes to is dead.
 *
 * Messages.  A lock that hands over by messages ("mcs", "shiftlock") or has a server ("table") needs SEND.  A
 * provider without `recv` has none, and those spaces are refused with -EOPNOTSUPP; "dslr", "cas" and others do
 * without, as `verbena list` says.  Masked atomics, and words of 128 bits, are not asked for: locks that could use
 * them run their portable variants.
 *
 * Threads.  ep_open and ep_close are called by any thread, of one fabric never two at a time.  Each endpoint is
 * called by one thread at a time, the one that has opened it or one that stands in for it (verbena/fabric.h,
 * "Background work"), and different ones at the same time.  alive, local and common_now are called by any thread
 * at any time.
 * No function may call Verbena (but vb_strerror), wait for another thread that may be in one of its calls, or
 * take longer than a verb; they may have no more than 16 KiB of stack.  A thread that has an endpoint of such a
 * fabric can have none of another kind.
 *
 * Processes.  Each calls vb_fabric_provide itself, with its own connections, and the same name, nodes and sizes.  A
 * forked child that calls vb_fabric_after_fork on such a fabric is aborted: it has its parent's connections.
 */
#ifndef VERBENA_PROVIDER_H
#define VERBENA_PROVIDER_H

#include <verbena/fabric.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* Bytes that one verb moves at most; longer ones are posted in pieces.  And bytes of a message. */
#define VB_PROVIDER_VERB_BYTES    256
#define VB_PROVIDER_MESSAGE_BYTES 64

enum vb_provider_op {
	/* `bytes` bytes of the node's memory to `local`. */
	VB_PROVIDER_READ,
	/* The other way round. */
	VB_PROVIDER_WRITE,
	/* The word becomes `value` if it was `compare`; what it was goes to `local`. */
	VB_PROVIDER_CAS,
	/* The word grows by `value`, modulo 2^64; what it was goes to `local`. */
	VB_PROVIDER_FAA,
	/* The message at `local` to endpoint `client` of the node. */
	VB_PROVIDER_SEND,
};

/* One verb.  The struct itself is the library's and is read during the call of `post` only. */
struct vb_provider_verb {
	/* Comes back with the verb's end. */
	uint64_t id;
	enum vb_provider_op op;
	/* Of a WRITE or SEND: takes effect after all earlier READs, CASes and FAAs of the endpoint to that
	 * node. */
	bool fence;
	/* Below `nodes`. */
	uint16_t node;
	/* SEND: as ep_open has named it. */
	uint32_t client;
	/* Inside the node's lent memory, with its `bytes`; of CAS and FAA a multiple of 8. */
	uint64_t offset;
	/* READ, WRITE: 1 to VB_PROVIDER_VERB_BYTES; CAS, FAA: 8; SEND: VB_PROVIDER_MESSAGE_BYTES. */
	uint32_t bytes;
	/* In the endpoint's buffer, a multiple of 8.  The provider's from the post to the end. */
	void *local;
	uint64_t compare;
	uint64_t value;
};

/* The end of a verb: 0, and it has taken effect and `local` is filled; or a negative error. */
struct vb_provider_end {
	uint64_t id;
	/* -VB_EPEERGONE: nothing has happened and will; -EAGAIN: a SEND that found no room; -VB_EUNKNOWN: it may
	 * have, or may still within verb_bound_ns.  All else is taken for that. */
	int err;
};

/* Filled in by ep_open. */
struct vb_provider_endpoint {
	/* What the other calls get. */
	void *ep;
	/* Its name: 1 to 2^24 - 1, that of no other endpoint of its node, in any process.  A number comes again
	 * only when many others have been used, so that a message for who is gone reaches nobody. */
	uint32_t client;
	/* Memory that verbs of this endpoint may read and write on this side (registered, say): aligned to 64, and
	 * good until ep_close.  As many verbs are under way at most as it has pieces of VB_PROVIDER_VERB_BYTES, 4
	 * at least, of which 256 are used: `post` has room for so many. */
	void *buffer;
	size_t buffer_bytes;
};

/*
 * What a program provides.  It is copied.  Set what is not used to zero: the struct may grow at its end, and `bytes`
 * says how much of it the program knows.
 */
struct vb_provider {
	/* sizeof(struct vb_provider). */
	size_t bytes;
	/* For messages, 1 to 31 characters, and none of the library's own fabrics ("shm"). */
	const char *name;
	/* The first argument of each function. */
	void *ctx;
	/* 1 to 4096. */
	uint16_t nodes;
	/* A node at which this process may open endpoints: Verbena opens some there for itself. */
	uint16_t home;
	/* Of each node's lent memory: 64 KiB to 256 TiB. */
	uint64_t node_bytes;
	/* See "Bounded" above; at most 100 s.  end_ns is larger than 0, and no smaller than verb_bound_ns. */
	uint64_t verb_bound_ns;
	uint64_t end_ns;
	/* Seeds the clients' random numbers. */
	uint64_t seed;
	/* As in struct vb_fabric_params. */
	bool no_keeper;

	/* An endpoint at `node`: 0 or a negative error, which the call that wanted it returns.  -EXDEV where this
	 * process has no part in the node and may not open one there. */
	int (*ep_open)(void *ctx, uint16_t node, struct vb_provider_endpoint *out);
	/* No message is wanted any more, and no verb of it is under way; but for one that was given up, after a verb
	 * that has not ended within end_ns, or an error of poll. */
	void (*ep_close)(void *ctx, void *ep);
	/* Posts n verbs (1 to 256), in this order, and does not wait for them: 0; or a negative error, and none
	 * was posted. */
	int (*post)(void *ctx, void *ep, const struct vb_provider_verb *verbs, unsigned n);
	/* Takes up to n ends of verbs, each of which has one: how many; or a negative error, and the endpoint is
	 * not usable any more: what is under way is taken for -VB_EUNKNOWN.  Called again and again while verbs
	 * are under way; does not wait. */
	int (*poll)(void *ctx, void *ep, struct vb_provider_end *out, unsigned n);
	/* Takes a message that was sent to this endpoint, in the order in which one sender's came: 0 or -EAGAIN.
	 * Does not wait.  NULL: there are no messages, and nobody posts SEND. */
	int (*recv)(void *ctx, void *ep, void *message);
	/* Whether that endpoint is open.  false only if it is certain: it was closed, or its process is dead.  What
	 * a dead client holds is taken from it. */
	bool (*alive)(void *ctx, uint16_t node, uint32_t client);
	/* NULL, or where the CPU of this process sees the first lent byte of a node, aligned to 64; NULL where it
	 * does not.  A lock's server runs where there is such a view of its node; that of "shiftlock" with NULL,
	 * too, where this process may open endpoints at the node.  READs and WRITEs through the fabric and by the
	 * CPU see each other. */
	void *(*local)(void *ctx, uint16_t node);
	/* NULL: all processes are of one machine.  Otherwise a time in ns that all have in common, true to within
	 * *error_ns: for "drtm", whose readers have leases by it. */
	uint64_t (*common_now)(void *ctx, uint64_t *error_ns);
};

/*
 * Makes a fabric of it.  Its caps are what the provider has: a space whose lock needs more is refused.  It is closed
 * with vb_fabric_close, which calls nothing of the provider's but ep_close.
 *
 *   -EINVAL  a number is out of its range, or a function is missing: the log names it
 *   -ENOMEM  memory has run out
 *
 * and what ep_open says for `home`.
 *
 * Threads: any, one at a time for a provider.
 */
int vb_fabric_provide(const struct vb_provider *provider, struct vb_fabric **out);

/* What vb_provider_check has found. */
struct vb_provider_broken {
	/* Which promise: "atomic", "write-order", ...; doc/own-fabric.md has them all.  Static. */
	const char *promise;
	/* What was seen instead. */
	char seen[192];
};

/*
 * Tries whether a provider keeps its promises: for the tests of the program that has one.  Runs some thousands of
 * verbs on each of up to four nodes, from several endpoints at `home`, by this thread and by two more, and looks at
 * what they do.  The lent memory is zero before, used by nobody meanwhile, and zero again after a success.  A
 * promise that is kept mostly may look kept: this finds what is wrong with a provider, and proves nothing.
 *
 *   -EPROTO  a promise is broken: *out says which, and the log, too
 *   -EINVAL, -ENOMEM  as vb_fabric_provide
 *
 * With -EPROTO endpoints may be left with verbs under way, and closed so.
 *
 * Threads: any, one at a time for a provider.
 */
int vb_provider_check(const struct vb_provider *provider, struct vb_provider_broken *out);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
