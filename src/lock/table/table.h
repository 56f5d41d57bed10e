/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The six-mode lock table of Barthels et al.: what its files share.
 *
 *	table.c    the client: the calls of struct vb_lock_ops
 *	ask.c      one request of a client, until it has its answer
 *	mail.c     mailboxes: where requests and answers lie, and how they get there
 *	server.c   the server agent: requests made once, the grace period
 *	session.c  its sessions, one for each client, and answers on their way
 *	queue.c    granted groups, queues, deadlock policies: no fabric, no clock, no messages
 *	persist.c  the file from which an agent comes back
 *
 * doc/locks/table.md has the figures and the reasons.
 */
#ifndef VB_LOCK_TABLE_TABLE_H
#define VB_LOCK_TABLE_TABLE_H

#include <sys/types.h>

#include "base/list.h"
#include "lock/lock.h"

/* ---- granted groups and queues (queue.c) ---- */

enum vb_locktab_policy { VB_LOCKTAB_BOUNDED_WAIT, VB_LOCKTAB_NO_WAIT, VB_LOCKTAB_WAIT_DIE };

struct vb_tq;
struct vb_tq_lock;

/* The requests and holds of one client at this agent (the transaction table). */
struct vb_tq_owner {
	/* Breaks ties of age. */
	uint64_t name;
	struct vb_list reqs;
};

enum vb_tq_state { VB_TQ_FREE, VB_TQ_HELD, VB_TQ_WAITING, VB_TQ_CONVERTING };

/* One request: waits for its lock, holds it, or holds it and waits to hold it in another mode. */
struct vb_tq_req {
	/* Among the holders or the waiters of its lock; else in the free list. */
	struct vb_list in_lock;
	/* Among all that its owner holds or waits for. */
	struct vb_list in_owner;
	/* A hold: by the end of its lease. */
	struct vb_list in_expiry;
	/* A conversion: in the order of asking. */
	struct vb_list in_convert;
	/* A wait that may be timed out: in the order of asking. */
	struct vb_list in_pending;
	struct vb_tq_lock *lock;
	struct vb_tq_owner *owner;
	/* The transaction's: smaller is older. */
	uint64_t age;
	/* The owner's number of the request that waits or was granted. */
	uint64_t number;
	/* Names the grant. */
	uint64_t ticket;
	/* The ticket of the last grant or conversion to exclusive. */
	uint64_t token;
	/* When the present wait began, and when the hold was granted. */
	uint64_t asked_ns;
	uint64_t granted_ns;
	/* Held or wanted. */
	enum vb_mode mode;
	/* VB_TQ_CONVERTING: wanted. */
	enum vb_mode target;
	/* Held when the last conversion was asked for, refused or not; and the number of that
	 * conversion (0: none, or undone). */
	enum vb_mode before;
	uint64_t converted;
	enum vb_tq_state state;
	/* It may be timed out. */
	bool bounded;
	/* The search for cycles has been here. */
	bool reached;
};

/* What makes the table right; the planted bugs replace one each. */
struct vb_tq_rules {
	bool (*exclude)(enum vb_mode a, enum vb_mode b);
	/* Wait-Die: may `r` wait for `other`? */
	bool (*may_wait)(const struct vb_tq_req *r, const struct vb_tq_req *other);
	/* A request that its client has given up leaves, whatever it holds or waits for. */
	void (*withdraw)(struct vb_tq *q, struct vb_tq_req *r, uint64_t now_ns);
	/* A conversion is asked for: notes its number, and the mode to go back to if it is
	 * undone. */
	void (*converts)(struct vb_tq_req *r, uint64_t number);
};
extern const struct vb_tq_rules vb_tq_rules;

struct vb_tq_params {
	enum vb_locktab_policy policy;
	/* How long a bounded wait is. */
	uint64_t wait_ns;
	/* VB_FOREVER: grants do not end by themselves. */
	uint64_t lease_ns;
	/* The most holds and waits at a time. */
	unsigned requests;
	const struct vb_tq_rules *rules;
	/* A wait is over: 0 granted (or converted), -EAGAIN, -ETIMEDOUT, -VB_ELOST (the lease of a
	 * hold that waits to be converted has run out).  Unless granted, the request is gone after
	 * this. */
	void (*decided)(void *ctx, struct vb_tq_req *r, int err);
	/* A hold began or changed its mode, or ended. */
	void (*noted)(void *ctx, const struct vb_tq_req *r, bool gone);
	/* Is the client alive?  Not granting to the dead saves a lease. */
	bool (*alive)(void *ctx, const struct vb_tq_owner *owner);
	void *ctx;
};

struct vb_tq_want {
	uint64_t lock, age, number;
	enum vb_mode mode;
	/* -EAGAIN rather than wait. */
	bool no_wait;
	/* The bound on waiting holds for this one. */
	bool bounded;
};

/* -ENOMEM. */
int vb_tq_open(const struct vb_tq_params *p, struct vb_tq **out);
void vb_tq_close(struct vb_tq *q);
void vb_tq_owner_init(struct vb_tq_owner *o, uint64_t name);

/* 0: granted, *out holds.  -EINPROGRESS: *out waits, and `decided` will tell.  -EAGAIN: the policy
 * does not let it wait.  -ENOBUFS: no room for one more. */
int vb_tq_request(struct vb_tq *q, struct vb_tq_owner *o, const struct vb_tq_want *w,
		  uint64_t now_ns, struct vb_tq_req **out);
/* The same for a hold in another mode, and -EDEADLK. */
int vb_tq_convert(struct vb_tq *q, struct vb_tq_req *r, const struct vb_tq_want *w,
		  uint64_t now_ns);
/* Ends a hold or a wait, and grants what others can have now. */
void vb_tq_leave(struct vb_tq *q, struct vb_tq_req *r, uint64_t now_ns);
/* The same without granting. */
void vb_tq_unlink(struct vb_tq *q, struct vb_tq_req *r);
/* Ends a wait for another mode: held as before. */
void vb_tq_stop_converting(struct vb_tq *q, struct vb_tq_req *r, uint64_t now_ns);
/* The conversion with that number is no longer wanted: a wait for it ends, and what it has added is
 * given up.  An earlier one, or one that was refused, has nothing to undo. */
void vb_tq_undo(struct vb_tq *q, struct vb_tq_req *r, uint64_t number, uint64_t now_ns);
/* A hold that an agent before this one has granted.  0; -VB_ELOST: it excludes what is held;
 * -ENOBUFS. */
int vb_tq_restore(struct vb_tq *q, struct vb_tq_owner *o, const struct vb_tq_want *w,
		  uint64_t ticket, uint64_t now_ns);
/* A hold's lease begins anew. */
void vb_tq_renew(struct vb_tq *q, struct vb_tq_req *r, uint64_t now_ns);
/* Ends what is overdue, and says when the next thing will be (VB_FOREVER: nothing). */
uint64_t vb_tq_tend(struct vb_tq *q, uint64_t now_ns);

/* The strongest of the modes in which a lock is held, and how many have it; false: nobody has.  *alone: who has it in
 * that mode, if no two can; else NULL. */
bool vb_tq_held(struct vb_tq *q, uint64_t lock, enum vb_mode *mode, unsigned *holders,
		const struct vb_tq_owner **alone);

/* The hold of a lock with that ticket; NULL.  Agents that serve side by side give the same tickets, and
 * what they have granted may come to one. */
struct vb_tq_req *vb_tq_by_ticket(const struct vb_tq_owner *o, uint64_t lock, uint64_t ticket);
/* The request, held or waiting, that bears that number; NULL. */
struct vb_tq_req *vb_tq_by_number(const struct vb_tq_owner *o, uint64_t number);

/* Any of its holds; NULL: it has none. */
struct vb_tq_req *vb_tq_any_hold(const struct vb_tq_owner *o);

uint64_t vb_tq_lock_number(const struct vb_tq_req *r);
uint64_t vb_tq_last_ticket(const struct vb_tq *q);
void vb_tq_skip_tickets(struct vb_tq *q, uint64_t upto);
unsigned vb_tq_holds(const struct vb_tq *q);
/* Locks that are held or awaited: nothing is kept of the others. */
unsigned vb_tq_locks(const struct vb_tq *q);
/* Each hold, for the file. */
void vb_tq_each_hold(const struct vb_tq *q, void (*fn)(void *ctx, const struct vb_tq_req *r),
		     void *ctx);

/* ---- options ---- */

struct vb_locktab_options {
	int policy; /* enum vb_locktab_policy */
	uint64_t wait_ns;
	uint64_t ask_for_ns;
	uint64_t requests;
	uint64_t slots;
	const char *persist;             /* a directory; NULL: nothing is kept */
	bool sync;                       /* the file goes to the disk before each answer */
	const struct vb_tq_rules *rules; /* NULL: the right ones */
	bool no_leases;                  /* for planted bugs that a lease would mend */
};

extern const struct vb_opt vb_locktab_opts[];

/* ---- the calls (table.c) ---- */

int vb_locktab_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns);
int vb_locktab_try(struct vb_lock_client *me, struct vb_claim *c);
int vb_locktab_release(struct vb_lock_client *me, struct vb_claim *c);
void vb_locktab_release_all(struct vb_lock_client *me, struct vb_grant *grants, unsigned n);
int vb_locktab_renew(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns);
int vb_locktab_convert(struct vb_lock_client *me, struct vb_claim *c, enum vb_mode mode,
		       uint64_t until_ns);
int vb_locktab_holder(struct vb_lock_client *me, uint64_t lock, struct vb_holder *out);
bool vb_locktab_spares_oldest(const struct vb_lock_space *s);
unsigned vb_locktab_bypass(unsigned clients, enum vb_mode mode);

/* What every lock that is a lock table has in its struct vb_lock_ops. */
#define VB_LOCKTAB_CALLS                                                                           \
	.needs = VB_CAP_SEND, .entry_bytes = 0, .options = vb_locktab_opts,                        \
	.options_size = sizeof(struct vb_locktab_options), .bypass_bound = vb_locktab_bypass,      \
	.spares_oldest = vb_locktab_spares_oldest, .node_bytes = vb_locktab_node_bytes,            \
	.client_open = vb_locktab_client_open, .client_close = vb_locktab_client_close,            \
	.server_open = vb_locktab_server_open, .server_close = vb_locktab_server_close,            \
	.acquire = vb_locktab_acquire, .try_acquire = vb_locktab_try,                              \
	.release = vb_locktab_release, .release_all = vb_locktab_release_all,                      \
	.convert = vb_locktab_convert, .renew = vb_locktab_renew, .holder = vb_locktab_holder,     \
	.serve = vb_locktab_serve, .tend = vb_locktab_tend

/* ---- messages and mailboxes (mail.c) ---- */

enum vb_locktab_kind {
	VB_LOCKTAB_ACQUIRE = 1,
	VB_LOCKTAB_TRY,
	VB_LOCKTAB_RELEASE,  /* ref: ticket */
	VB_LOCKTAB_CONVERT,  /* ref: ticket */
	VB_LOCKTAB_STOP,     /* ref: the number of an acquire or convert that was given up */
	VB_LOCKTAB_END,      /* all that the client holds at this agent; ref: of how many */
	VB_LOCKTAB_REASSERT, /* ref: ticket of a grant by an agent that is gone */
	VB_LOCKTAB_RENEW,    /* ref: ticket */
	VB_LOCKTAB_HOLDER,   /* who has it */
};

#define VB_LOCKTAB_BOUNDED 1u /* ask.flags: the client holds something elsewhere */

struct vb_locktab_ask {
	uint64_t number; /* grows with each request of a client; the same when it asks again */
	uint64_t lock;
	uint64_t age;
	uint64_t ref;
	uint8_t kind, mode, flags, pad[5];
};
_Static_assert(sizeof(struct vb_locktab_ask) == 40, "fits a message");

struct vb_locktab_answer {
	uint64_t number;    /* of the request */
	uint64_t ticket;    /* acquire: names the grant.  Convert: the token.  HOLDER: a name */
	uint64_t waited_ns; /* from the request's arrival to the grant, on the agent's clock;
			     * HOLDER: the mode, and 1 more */
	int32_t err;        /* -EINPROGRESS: it waits; -ENOBUFS: come again; -ENXIO: not my lock */
	uint32_t count; /* END: how many were released (-ESTALE: none); HOLDER: how many others */
};
_Static_assert(sizeof(struct vb_locktab_answer) <= VB_MSG_DATA, "fits a message");

/* What is written into a mailbox's slot.  The seal tells a whole one from a torn one and from one
 * that is being written over. */
struct vb_locktab_ask_slot {
	struct vb_locktab_ask ask;
	vb_peer from;
	vb_addr reply;
	uint64_t seal;
};
_Static_assert(sizeof(struct vb_locktab_ask_slot) == VB_INLINE_MAX, "as in the figure");

struct vb_locktab_answer_slot {
	struct vb_locktab_answer answer;
	uint64_t seal;
};
_Static_assert(sizeof(struct vb_locktab_answer_slot) == 40, "as in the figure");

/* A client has two slots in the mailbox of each server node and two in that of its own node. */
#define VB_LOCKTAB_LANES 2u
/* From one request's number to the next: more than a client has grants.  The lanes alternate. */
#define VB_LOCKTAB_STRIDE     (1u << 17)
#define VB_LOCKTAB_LANE_BYTES 64u

/* The path of an agent's file, with its terminating 0. */
#define VB_LOCKTAB_PATH 464u

/* What a server node keeps across its agents' lives, in the segment; by worker.  An agent that finds it
 * lost (all zero), and a file, begins with a grace period and with tokens above the file's; without a
 * file it takes itself for the first. */
struct vb_locktab_life {
	/* How many agents have begun here. */
	uint64_t lives;
	/* The last of them that stopped with nothing held. */
	uint64_t ended;
	/* No ticket above this has been given. */
	uint64_t tickets;
	/* The mark of the last agent's life, as in its file: see persist.c. */
	uint64_t mark;
	/* The file that agents of this segment have kept last (kept is 1: `path` is whole), and
	 * what its head has for the segment. */
	uint64_t segment;
	uint64_t kept;
	char path[VB_LOCKTAB_PATH];
};
_Static_assert(sizeof(struct vb_locktab_life) == 512, "whole lines");

static inline unsigned vb_locktab_lane(uint64_t number)
{
	return (unsigned)(number / VB_LOCKTAB_STRIDE % VB_LOCKTAB_LANES);
}

#define VB_LOCKTAB_TAG_ASK    1
#define VB_LOCKTAB_TAG_ANSWER 2

/* What lies behind the header on a server node: lives by worker, names of the slots' owners,
 * slots. */
uint64_t vb_locktab_node_bytes(const struct vb_lock_space *s);
struct vb_locktab_life *vb_locktab_life_of(const struct vb_lock_server *s);
/* The request in slot `lane` (number times VB_LOCKTAB_LANES and lane) of this agent's node, if it
 * is whole. */
bool vb_locktab_read_ask(const struct vb_lock_server *s, uint32_t lane,
			 struct vb_locktab_ask_slot *out);

/* A client's way to one server node. */
struct vb_locktab_link {
	/* Its first slot there; 0: by SEND. */
	vb_addr at;
	/* That slot's number. */
	unsigned slot;
	/* As last read; 0: not yet. */
	unsigned workers;
	/* By worker: the agent that knows what we hold there. */
	vb_peer agent[VB_LOCK_WORKERS_MAX];
	/* By worker: the joint call that found it silent. */
	uint32_t silent[VB_LOCK_WORKERS_MAX];
};

struct vb_locktab_client {
	/* Of the last request. */
	uint64_t number;
	/* How many grants a new agent was told of, under numbers below that. */
	unsigned told;
	/* None of its grants that is valid ends before this. */
	uint64_t soonest_ns;
	/* The mailbox of its own node, and its first slot there (0: by SEND). */
	vb_addr answers;
	vb_addr answer_at;
	unsigned answer_slot;
	/* The last answer that came by SEND. */
	struct vb_locktab_answer sent;
	/* By server node. */
	struct vb_locktab_link link[];
};

int vb_locktab_client_open(struct vb_lock_client *me);
void vb_locktab_client_close(struct vb_lock_client *me);

/* Posts a request; does not wait.  It may get lost. */
void vb_locktab_send_ask(struct vb_lock_client *me, uint16_t node, vb_peer agent,
			 const struct vb_locktab_ask *ask);
/* Takes the answer to request `number`: 0; -EAGAIN: it has not come; -ESTALE: an older one has come to
 * its place, perhaps over it. */
int vb_locktab_take_answer(struct vb_lock_client *me, uint64_t number,
			   struct vb_locktab_answer *out);

uint64_t vb_locktab_seal_ask(const struct vb_locktab_ask_slot *slot);
uint64_t vb_locktab_seal_answer(const struct vb_locktab_answer *a, vb_peer to);

/* ---- the server agent (server.c) ---- */

/* How long a bounded wait is in this space. */
uint64_t vb_locktab_wait_ns(const struct vb_lock_space *s);

int vb_locktab_server_open(struct vb_lock_server *s);
void vb_locktab_server_close(struct vb_lock_server *s);
void vb_locktab_serve(struct vb_lock_server *s, const struct vb_msg *request);
uint64_t vb_locktab_tend(struct vb_lock_server *s);

/* ---- the file (persist.c) ---- */

struct vb_locktab_file;

enum vb_locktab_noted {
	/* A hold began or changed its mode. */
	VB_LOCKTAB_HOLD = 1,
	/* A hold ended. */
	VB_LOCKTAB_GONE,
	/* What a client gave back with its last request. */
	VB_LOCKTAB_SAID,
};

struct vb_locktab_record {
	vb_peer peer;
	/* Of the acquire; GONE, SAID: of the release that asked for it, 0: none. */
	uint64_t number;
	uint64_t lock, ticket, token, age;
	/* The number of the last conversion; 0: none. */
	uint64_t converted;
	/* enum vb_locktab_noted. */
	uint8_t kind;
	uint8_t mode, before, pad;
	/* SAID: how many holds. */
	uint32_t count;
	uint64_t seal;
};
_Static_assert(sizeof(struct vb_locktab_record) == 72, "as in the figure");

/* The agent's side of it. */
struct vb_locktab_keeper {
	void (*found)(void *ctx, const struct vb_locktab_record *rec);
	/* Puts a record for each hold, and for each answer that may be asked for again. */
	void (*all)(void *ctx, struct vb_locktab_file *f);
	void *ctx;
};

struct vb_locktab_found {
	/* There was a file. */
	bool earlier;
	/* Nothing can be missing in what was told. */
	bool whole;
	/* No ticket above this is in it. */
	uint64_t tickets;
};

/* How a file begins. */
struct vb_locktab_start {
	uint64_t mark;
	/* No ticket above this has been given. */
	uint64_t tickets;
	/* There may be valid grants that `all` does not put. */
	bool partial;
};

/* What seals the head of a file: 128 bytes. */
uint64_t vb_locktab_seal_head(const void *head);
/* A number for an agent's life that no other has. */
uint64_t vb_locktab_draw_mark(void);

/*
 * Marks the file of an agent before this one, if this one keeps another file or none: what follows
 * will not be in it.  -errno: it is there and cannot be written.
 */
int vb_locktab_file_forget(const struct vb_lock_server *s);

/*
 * Opens the agent's file in the directory of the option `persist`, and tells what is in it, in
 * order.  -EBUSY: another agent serves with it; -EINVAL: it is none of ours, or of another version;
 * -errno of the file system.  It must be written anew (compact) before anything else.
 */
int vb_locktab_file_open(const struct vb_lock_server *s, const struct vb_locktab_keeper *k,
			 struct vb_locktab_found *found, struct vb_locktab_file **out);
void vb_locktab_file_close(struct vb_locktab_file *f);
/* As if the agent's process had been killed: what is not written yet is lost. */
void vb_locktab_file_bury(struct vb_locktab_file *f);
/* Buffers a record until commit. */
void vb_locktab_file_put(struct vb_locktab_file *f, const struct vb_locktab_record *rec);
/* Writes what has been put to the file. */
void vb_locktab_file_commit(struct vb_locktab_file *f);
bool vb_locktab_file_grown(const struct vb_locktab_file *f, unsigned holds);
/* Writes the file anew, with only what `all` puts. */
int vb_locktab_file_compact(struct vb_locktab_file *f, const struct vb_locktab_start *as);

/* How the file reaches the disk, and which boot of the machine this is; tests put failures in between. */
struct vb_locktab_io {
	ssize_t (*write)(int fd, const void *buf, size_t bytes);
	int (*unlink)(const char *path);
	int (*sync)(int fd);
	/* A name, with its terminating 0. */
	void (*boot)(char *to, size_t size);
};
/* The machine's own. */
extern const struct vb_locktab_io vb_locktab_machine;
extern struct vb_locktab_io vb_locktab_io;

#endif
