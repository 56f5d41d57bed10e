/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a lock protocol is; what it stands on is in lock/lock.h.
 *
 * A protocol is one file with one `const struct vb_lock_ops`.  Its functions run in the client's
 * task and are straight-line: each verb suspends and resumes.  They work on a *claim*: one client's
 * business with one lock, from the first verb to the release.
 *
 * Leaving a queue.  A client whose deadline passes while it stands in a queue cannot just leave:
 * its number will be called, its neighbours will hand it the lock.  acquire then returns
 * -ETIMEDOUT with claim->queued set, and the caller (client.c, proxy.c) leaves a *proxy*: a task
 * that goes on with ops->resume and releases at once when the turn comes.  If the same client asks
 * for the lock again, it takes the proxy's place over if the mode is the same, and else waits for
 * its end.
 *
 * Leases.  A grant is worth nothing after claim->valid_until_ns on the client's own clock.  The
 * protocol computes it from the moment *before* which the turn cannot have come (the posting of the
 * last verb that still said "not yet"), never from the moment at which the client noticed.
 */
#ifndef VB_LOCK_OPS_H
#define VB_LOCK_OPS_H

#include <verbena/lock.h>

#include "base/opt.h"
#include "rpc/mail.h"

struct vb_lock_space;
struct vb_lock_client;
struct vb_lock_server;

enum vb_lock_caps {
	/* Readers hold together. */
	VB_LOCK_SHARED = 1 << 0,
	VB_LOCK_EXCLUSIVE = 1 << 1,
	/* Bypass is bounded by ops->bypass_bound, in every mode. */
	VB_LOCK_FIFO = 1 << 2,
	/* The death of a holder or waiter is mended in recovery_leases. */
	VB_LOCK_SURVIVES = 1 << 3,
	/* Exclusive grants have a fencing token at no extra cost. */
	VB_LOCK_TOKEN = 1 << 4,
	/* Needs a server task on each server node. */
	VB_LOCK_SERVER = 1 << 5,
	/* Clients send each other messages. */
	VB_LOCK_MESSAGES = 1 << 6,
	/* Has VB_UPDATE, and converts it. */
	VB_LOCK_UPDATE = 1 << 7,
	/* Has the intention modes. */
	VB_LOCK_INTENT = 1 << 8,
	/* Readers give nothing back: a shared grant ends with its lease. */
	VB_LOCK_READ_LEASE = 1 << 9,
	/* A deadlock policy may refuse a client that holds another lock, with -EAGAIN, or before
	 * its deadline with -ETIMEDOUT. */
	VB_LOCK_DENIES = 1 << 10,
	/* A reader leaves by a CAS that each other client who comes or leaves makes fail: its release
	 * has no bound but that each failure is another's success. */
	VB_LOCK_LEAVE_RACES = 1 << 11,
};

#define VB_CLAIM_PRIVATE 12

struct vb_claim {
	uint64_t lock;
	vb_addr entry;
	enum vb_mode mode;
	/* Stands in the queue: cannot be dropped without a proxy. */
	bool queued;
	bool held;
	/* Who looks on has heard that its release begins, and hears of no second beginning. */
	bool said;
	/* enum vb_claim_state (claim.h). */
	uint8_t state;
	/* Which of its client's claims it is, from 0. */
	uint32_t slot;
	/* How many leases in a row are asked for, at most ops->leases_max. */
	uint32_t leases;
	/* The adopter wants the place, and not just the end of the proxy. */
	bool adopt;
	/* Waits for the proxy to let go of the claim. */
	struct vb_task *adopter;
	struct vb_lock_client *me;
	/* While many are released: the result for this one, as release returns it. */
	int ended;
	/* On the client's clock; VB_FOREVER: no lease. */
	uint64_t valid_until_ns;
	uint64_t token;
	/* Which of its client's holds it is, while it is held. */
	uint64_t hold;
	struct vb_task *proxy;
	/* Open while queued or held, if the protocol has messages. */
	struct vb_box box;
	/* The protocol's; undefined at the start of an acquire or try. */
	uint64_t priv[VB_CLAIM_PRIVATE];
};

/* Protocol-private state of a claim. */
#define vb_claim_as(type, claim)                                                                   \
	({                                                                                         \
		_Static_assert(sizeof(type) <= sizeof((claim)->priv), "grows VB_CLAIM_PRIVATE");   \
		(type *)(claim)->priv;                                                             \
	})

/* How an entry is laid out where options and the number of nodes decide that. */
struct vb_lock_shape {
	/* A multiple of 8. */
	uint32_t entry_bytes;
	/* Differs if processes would not understand each other. */
	uint32_t variant;
};

/*
 * What a protocol gives, and all that the shared part knows of it.  Each function but acquire and
 * release may be NULL.
 *
 * Of the space.  shape says how an entry is laid out under these options (-EINVAL, logged; NULL:
 * entry_bytes, which with a shape is that of one node with the default options), and is called
 * before open, which checks the options and prepares the space; node_bytes is what the protocol
 * wants for itself behind the entries of each server node.  client_open and client_close are for a
 * client's own state: client->priv, one malloc, freed with it whatever these return; server_open
 * and server_close the same for a server's.
 *
 * Of a claim.
 *
 *	acquire      waits for the turn until the client's clock shows until_ns.  0; -ETIMEDOUT or
 *	             -ECANCELED (a proxy is needed where claim->queued is set); -VB_EUNKNOWN,
 *	             -VB_EPEERGONE
 *	resume       goes on waiting for a claim that acquire has left queued.  -ESTALE if the
 *	             place was lost meanwhile (claim->queued is false then).  NULL: nothing is ever
 *	             left queued
 *	try_acquire  0 or -EAGAIN, never queued.  NULL: acquire with until_ns = 0 does that
 *	convert      holds a held claim in another mode, which covers its own or is covered by it,
 *	             and sets c->mode, token and valid_until_ns.  Else c is held as before, and the
 *	             errors are those of vb_lock_convert.  NULL: -EOPNOTSUPP
 *	renew        has a held claim's lease begin anew, and sets c->valid_until_ns.  Until until_ns,
 *	             which is not after the lease's end.  -VB_ELOST: it is over; or another error, and
 *	             c is held as before.  Never makes a lease of one that was over when the request
 *	             took effect.  NULL: its leases cannot be renewed
 *	release_now  as release, where verbs complete inside their posting (VB_CAP_INLINE), or those to
 *	             the lock's words do (VB_CAP_NEAR_INLINE, a client without `at_once`); but if it
 *	             would have to wait, -EINPROGRESS: the lock's words are as before, and release does
 *	             all of it.  NULL: a release or a try may have to wait for an answer there, too
 *	release_all  releases n held claims, all of them, with the result of each in its `ended`.
 *	             NULL: one by one
 *
 * Of a lock.
 *
 *	holder       who has the lock, as its word says by one READ, or its server; *out is zeroed
 *	             before.  NULL: neither knows
 *
 * Of a server.  serve answers one message, and may await; tend does what the server has to do
 * without one, and returns the time on its endpoint's clock at which it must be called again.
 */
struct vb_lock_ops {
	/* The verbs for `verbena list`: "1 FAA + 1 masked CAS". */
	const char *name, *summary, *source, *verbs_uncontended, *verbs_contended;
	const struct vb_opt *options;
	size_t options_size;
	/* The audit rule that catches it; NULL: not a planted bug. */
	const char *planted;
	/* A multiple of 8; zero-filled is the free lock.  0: its locks are elsewhere. */
	uint32_t entry_bytes;

	/* enum vb_lock_caps. */
	uint32_t caps;
	/* enum vb_cap_flags of the fabric: cannot run without; runs a portable variant without. */
	uint32_t needs, wishes;
	/* What that variant does instead, and the enum vb_lock_caps that it does not have. */
	const char *portable;
	uint32_t portable_lacks;
	/* With VB_LOCK_SURVIVES: so many leases a dead holder costs (vb_lock_recovery_leases). */
	unsigned recovery_leases;
	/* The most incompatible grants that may pass a queued client, if `clients` compete;
	 * UINT_MAX: any number.  NULL: nothing is promised. */
	unsigned (*bypass_bound)(unsigned clients, enum vb_mode mode);
	/* The same under a space's options; NULL: they do not matter. */
	unsigned (*bypass_bound_of)(const struct vb_lock_space *space, unsigned clients,
				    enum vb_mode mode);
	/* The most verbs one after the other of a try that meets others and gives back what it has;
	 * 0: no more than of any call that may not wait. */
	unsigned try_verbs;
	/* The deadlock policy never refuses the oldest client of all; NULL: it may. */
	bool (*spares_oldest)(const struct vb_lock_space *space);
	/* The most leases in a row that a grant can have (claim->leases); NULL: one. */
	unsigned (*leases_max)(const struct vb_lock_space *space);
	/* How many leases a grant may stand behind the last verb that its lock's node has served: 0: as many as
	 * it is asked for.  More where a message on its way grants. */
	unsigned leases_behind;

	int (*shape)(const void *options, uint16_t nodes, struct vb_lock_shape *out);
	int (*open)(struct vb_lock_space *space);
	uint64_t (*node_bytes)(const struct vb_lock_space *space);
	int (*client_open)(struct vb_lock_client *me);
	void (*client_close)(struct vb_lock_client *me);
	int (*server_open)(struct vb_lock_server *server);
	void (*server_close)(struct vb_lock_server *server);

	int (*acquire)(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns);
	int (*resume)(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns);
	int (*try_acquire)(struct vb_lock_client *me, struct vb_claim *c);
	int (*convert)(struct vb_lock_client *me, struct vb_claim *c, enum vb_mode mode,
		       uint64_t until_ns);
	int (*renew)(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns);
	int (*release)(struct vb_lock_client *me, struct vb_claim *c);
	int (*release_now)(struct vb_lock_client *me, struct vb_claim *c);
	void (*release_all)(struct vb_lock_client *me, struct vb_grant *grants, unsigned n);

	int (*holder)(struct vb_lock_client *me, uint64_t lock, struct vb_holder *out);

	void (*serve)(struct vb_lock_server *server, const struct vb_msg *request);
	uint64_t (*tend)(struct vb_lock_server *server);
	bool serves_by_verbs; /* the server, too, reaches its node so, and needs no view of it */
};

/* All protocols, in the order of `verbena list`; planted ones are in check/. */
extern const struct vb_lock_ops *const vb_locks[];
const struct vb_lock_ops *vb_lock_find(const char *name);
/* Makes more protocols known to vb_lock_find (the planted ones); call before opening spaces. */
void vb_lock_register(const struct vb_lock_ops *const *more);

#endif
