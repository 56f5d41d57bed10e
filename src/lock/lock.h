/* SPDX-License-Identifier: Apache-2.0 */
/* What a lock protocol stands on; what it gives is in lock/ops.h. */
#ifndef VB_LOCK_LOCK_H
#define VB_LOCK_LOCK_H

#include <pthread.h>

#include <verbena/lock.h>

#include "base/rng.h"
#include "fabric/opened.h"
#include "lock/ops.h"

/* ---- modes (modes.c) ---- */

/* Whether the two cannot be held at a time. */
bool vb_modes_exclude(enum vb_mode a, enum vb_mode b);
/* Whether `a` permits its holder all that `b` does. */
bool vb_mode_covers(enum vb_mode a, enum vb_mode b);
/* The weakest mode that permits both. */
enum vb_mode vb_mode_join(enum vb_mode a, enum vb_mode b);
/* The mode that a protocol with these caps grants when `mode` is asked for. */
enum vb_mode vb_mode_served(uint32_t caps, enum vb_mode mode);

/* Where a client's time goes: ShiftLock, table 2. */
enum vb_phase {
	VB_PHASE_IA, /* initial atomic: tries, enqueues or releases */
	VB_PHASE_RT, /* retries, backoff included */
	VB_PHASE_NP, /* SEND that notifies the predecessor */
	VB_PHASE_WP, /* wait for the predecessor's message */
	VB_PHASE_WR, /* READs that wait for earlier readers */
	VB_PHASE_WW, /* READs that wait for writers to make room for readers */
	VB_PHASE_NS, /* wait for the successor's message, and the SEND to it */
	VB_PHASE_COUNT
};

struct vb_lock_space {
	struct vb_fabric *fabric;
	const struct vb_lock_ops *ops;
	/* The protocol's, parsed. */
	void *options;
	uint64_t locks;
	uint16_t servers;
	/* Bytes from entry to entry. */
	uint32_t stride;
	/* Of the shape; 0: there is only one. */
	uint32_t variant;
	/* 0: no extra token word. */
	uint32_t token_offset;
	uint64_t lease_ns;
	uint64_t drift_ppm;
	/* Of each client of this process. */
	uint32_t claims;
	/* How long a closing client waits for the turns of its proxies, if nobody would mend a queue
	 * that they left and no keeper has them: for ever, unless the opener of the space knows
	 * when the lock is lost, as the bench does. */
	uint64_t proxy_wait_ns;
	bool fencing;
	bool visible;
	/* Wished-for caps that are missing: the portable variant runs. */
	uint32_t portable_mask;
	/* Its own copy. */
	char *name;
	/* [servers]: the first entry, and struct vb_lock_header in the segment. */
	vb_addr *base;
	vb_addr *header;
	/* [servers]: behind what their fencing tokens begin (fabric/born.h); NULL: behind 0. */
	uint64_t *token_from;
	/* [servers * VB_LOCK_WORKERS_MAX]: the servers' names, as last read. */
	vb_peer *server_cache;
	/* [servers]: how many; 0: not read yet. */
	unsigned *worker_cache;
	/* NULL: nobody watches (lock/observe.h). */
	const struct vb_lock_watch *watch;
	/* Clients keep a vb_lock_timing. */
	bool timing;
	/* Closed clients whose proxies are not through, and how many of them are being taken down:
	 * see ghost.c.  ghosts_forks (atomic) says whose the three are, as vb_fabric.forks
	 * counts. */
	pthread_mutex_t ghost_lock;
	struct vb_list ghosts;
	unsigned ending;
	uint32_t ghosts_forks;
	struct vb_opened opened;
	/* [servers]; at 0: it is not; and (atomic) whose they are, as vb_fabric.forks counts. */
	struct vb_region_held *held;
	uint32_t hold_forks;
};

#define VB_LOCK_WORKERS_MAX 64

/* At the start of a space's region on each server node. */
struct vb_lock_header {
	uint64_t magic;
	/* Of protocol and layout. */
	uint64_t ops_hash;
	uint64_t locks, lease_ns;
	/* shiftlock: recoveries so far, read by clients. */
	uint64_t era;
	/* Server tasks of this node (see workers.c), and the vb_peer of each. */
	uint64_t workers;
	uint64_t server[VB_LOCK_WORKERS_MAX];
	/* When there began to be more or fewer of them, after deaths, in the time that all have in
	 * common; 0: never. */
	uint64_t changed_ns;
	/* What its maker asked for, to tell an open that asks otherwise: see header.c. */
	uint64_t asked;
};

/* How many server tasks answer, by the header's word `workers`; 0: not all are there yet. */
static inline unsigned vb_lock_workers(uint64_t word)
{
	return word & 0xffff;
}

struct vb_lock_client {
	struct vb_lock_space *space;
	struct vb_ep *ep;
	struct vb_mail mail;
	struct vb_rng rng;
	uint16_t node;
	/* Set by the bench or the checker, for its tables; else 0. */
	uint32_t index;
	/* Verbs that repeated an attempt. */
	uint64_t retries;
	/* Grants that turned out lost, or tickets given up. */
	uint64_t lost;
	/* Resets that this client has done or asked for. */
	uint64_t recoveries;
	/* Messages that could not be sent: each may cost a recovery. */
	uint64_t untold;
	/* Consecutive ones, see vb_poll_pause. */
	unsigned polls;
	/* Of this client's verbs, see vb_lock_learn_rtt. */
	uint64_t rtt_ns;
	unsigned proxies;
	/* Closed, and its proxies are not through. */
	bool ghost;
	/* Its verbs complete inline, or those to its own node do; and its protocol has a release_now, for the second
	 * one that has all words of a lock at the lock's node. */
	bool at_once, near_at_once;
	struct vb_list in_ghosts;
	/* NULL: not kept (lock/observe.h). */
	struct vb_lock_timing *timing;
	/* NULL: not visible (lock/board.h). */
	struct vb_board_slot *board;
	/* Of the present transaction, or, if given, of the one that begins with the next lock: see
	 * vb_lock_client_begin. */
	uint64_t age;
	bool age_given;
	/* See vb_lock_join; joint is 0: none is under way. */
	uint32_t joint, joints;
	/* The protocol's. */
	void *priv;
	void *user;
	/* How many claims are not free, and how many have ever been taken: those behind are not to be looked at. */
	unsigned n_used, n_made;
	/* The number of the last hold: no two of a process have the same. */
	uint64_t holds;
	struct vb_opened opened;
	/* Behind the client in memory, space->claims of each: a bit that says that the claim is not
	 * free, its lock (beside each other because they are searched), and the claim. */
	uint64_t *used, *locks;
	struct vb_claim *claims;
	/* Where it is counted that the board has no slot for this client; else NULL. */
	uint64_t *unseen;
};

static inline unsigned vb_claim_words(const struct vb_lock_space *s)
{
	return (s->claims + 63) / 64;
}

struct vb_lock_server {
	struct vb_lock_space *space;
	struct vb_ep *ep;
	struct vb_task *task;
	uint16_t node;
	unsigned worker, workers;
	bool stop;
	/* It has said that it has no memory for another client. */
	bool full;
	/* Waits for the end of the task. */
	struct vb_task *stopper;
	/* Died in the simulator: it says nothing to the next one. */
	bool struck;
	/* vb_lock_server_thread_start's. */
	void *thread;
	/* The protocol's, one malloc, freed with the server. */
	void *priv;
	/* See rpc/mail.h; NULL where messages are not lost. */
	struct vb_answers *answers;
	uint64_t requests;
	/* Of the server that the caller has. */
	struct vb_opened opened;
};

/* In how many leases the death of a holder is mended: all rules count by the longest grant. */
static inline unsigned vb_lock_recovery_leases(const struct vb_lock_space *s)
{
	unsigned most = s->ops->leases_max ? s->ops->leases_max(s) : 1;

	return s->ops->recovery_leases == 0 ? 0 : (s->ops->recovery_leases - 1) * most + 1;
}

static inline vb_addr vb_lock_entry(const struct vb_lock_space *s, uint64_t lock)
{
	uint16_t node = s->servers == 1 ? 0 : (uint16_t)(lock % s->servers);
	uint64_t index = s->servers == 1 ? lock : lock / s->servers;

	return s->base[node] + index * s->stride;
}

/* Whether verbs to that entry complete inline. */
static inline bool vb_lock_is_at_once(const struct vb_lock_client *me, vb_addr entry)
{
	return vb_likely(me->at_once) || (me->near_at_once && vb_addr_node(entry) == me->node);
}

/* Whether an address that came in a message is one of the space's entries on that node. */
static inline bool vb_lock_is_entry(const struct vb_lock_space *s, uint16_t node, vb_addr a)
{
	uint64_t mine = (s->locks + s->servers - 1 - node) / s->servers;

	return a >= s->base[node] && (a - s->base[node]) % s->stride == 0 &&
	       (a - s->base[node]) / s->stride < mine;
}

/* 1; 0: held without a lease, so there is nothing to renew; or the errors of vb_lock_renew which need no answer,
 * said. */
int vb_lock_renews(const struct vb_lock_client *me, const struct vb_grant *grant);

/* The server worker that answers for a lock (its index on its node modulo the node's workers), as
 * read from the header; -VB_EPEERGONE, logged, if there is none. */
int vb_lock_server_of(struct vb_lock_client *me, uint64_t lock, vb_peer *out);
/* The same without a line in the log, for callers that look until there is one. */
int vb_lock_server_seek(struct vb_lock_client *me, uint64_t lock, vb_peer *out);
/* One worker of one node. */
int vb_lock_server_worker(struct vb_lock_client *me, uint16_t node, unsigned worker, vb_peer *out);
/* Reads the names of a node's workers, for a client that is opened: waits for a link that is
 * down. */
int vb_lock_server_find(struct vb_lock_client *me, uint16_t node);
/* The cached name did not answer: read the header again next time. */
void vb_lock_server_forget(struct vb_lock_space *space, uint16_t node);
/* Bytes of an entry under these options ("key=value,..."; NULL: defaults) on that many nodes; 0:
 * the options are wrong, logged. */
uint32_t vb_lock_entry_bytes(const struct vb_lock_ops *ops, const char *options, uint16_t nodes);
/* A space's name has 1 to 31 characters: the names of all its regions are whole then, on every fabric.  0; -EINVAL,
 * said. */
int vb_lock_space_check(const char *name);
/* What of a space lies on a node, each in a region (parts.c). */
enum vb_lock_part {
	VB_LOCK_LOCKS,   /* the locks themselves */
	VB_LOCK_NAMES,   /* their directory, where they have names */
	VB_LOCK_BOARD,   /* what the space's clients show */
	VB_LOCK_ANSWERS, /* their mailboxes */
	VB_LOCK_PLACES,  /* pieces of the list of clients, which are numbered */
};
#define VB_LOCK_REGION 88u
/* What that region is called; `number`: of a piece. */
void vb_lock_part_region(enum vb_lock_part part, const char *space, unsigned number,
			 char to[static VB_LOCK_REGION]);
/* What stands before the space's name there. */
const char *vb_lock_part_begin(enum vb_lock_part part);
/* Whether a region of that name is one of the space's. */
bool vb_lock_part_is(const char *region, const char *space);
/* Before a forked child uses a space that its parent has opened: 0; -ENOENT, said: it was removed meanwhile. */
int vb_lock_space_hold(struct vb_lock_space *s);
void vb_lock_space_let_go(struct vb_lock_space *s);

/* ---- remove.c ---- */

/* Removes the space; `begun`: does what somebody who has died had left of that.  0; -ENOENT, not said: there is none. */
int vb_lock_space_end(struct vb_fabric *f, const char *name, bool begun);

/* As vb_lock_space_open, of a process that only serves the locks of its own nodes: the others' need not be there.
 * No client may be opened on such a space. */
int vb_lock_space_open_own(struct vb_fabric *fabric, const struct vb_lock_space_params *params,
			   struct vb_lock_space **out);

/* The first address of a server's header, and of a field in it. */
#define vb_lock_header_field(space, node, field)                                                   \
	((space)->header[node] + offsetof(struct vb_lock_header, field))

/* The age of a transaction that begins now, in the time that all clients have in common. */
uint64_t vb_lock_age_now(struct vb_lock_client *me);

/*
 * Makes calls parts of one: a server that was silent in one of them is not waited for in the next,
 * so that n grants of a dead server do not cost its patience n times.  true: this is the outermost,
 * and ends with vb_lock_part.
 */
static inline bool vb_lock_join(struct vb_lock_client *me)
{
	if (me->joint != 0)
		return false;
	if (++me->joints == 0)
		me->joints = 1;
	me->joint = me->joints;
	return true;
}

static inline void vb_lock_part(struct vb_lock_client *me, bool outermost)
{
	if (outermost)
		me->joint = 0;
}

/*
 * vb_lock_try of a lock that vb_lock_is_at_once, and vb_lock_release, neither of which waits: for who has looked whose
 * call it is (vb_ep_check).  The second: -EINPROGRESS if it would have to, and the lock is held as before.
 */
int vb_lock_try_now(struct vb_lock_client *me, uint64_t lock, enum vb_mode mode,
		    struct vb_grant *out);
int vb_lock_release_now(struct vb_lock_client *me, struct vb_grant *grant);

/* The claim by which a client holds a lock, or NULL. */
struct vb_claim *vb_lock_held(struct vb_lock_client *me, uint64_t lock);

/* Takes down a client whose tasks are gone, without a message to anybody. */
void vb_lock_client_bury(struct vb_lock_client *me);
/* The same for closed clients whose proxies were killed before they were through. */
void vb_lock_space_bury(struct vb_lock_space *space);
/* The same of a server, of a simulated fabric and not called by its own task: what it was doing
 * ends where it is, and another may begin in its place. */
void vb_lock_server_bury(struct vb_lock_server *server);

/* Forgets a held grant without a release, as if its holder had died at that moment and come back:
 * for measuring what failures cost.  The lock stays taken until others recover it. */
void vb_lock_abandon(struct vb_lock_client *me, struct vb_grant *grant);

/* A client that must let T pass everywhere waits (1 + drift) T and one ns. */
static inline uint64_t vb_lock_stretch(const struct vb_lock_space *s, uint64_t ns)
{
	return ns + (uint64_t)(((unsigned __int128)ns * (2 * s->drift_ppm)) / 1000000) + 1;
}

/* Accounts the time since the last mark to the phase left, and enters another. */
void vb_phase_switch(struct vb_lock_client *me, enum vb_phase phase);
static inline void vb_phase(struct vb_lock_client *me, enum vb_phase phase)
{
	if (vb_unlikely(me->timing != NULL))
		vb_phase_switch(me, phase);
}

void vb_observers_queued(struct vb_lock_client *me, const struct vb_claim *c);
static inline void vb_lock_mark_queued(struct vb_lock_client *me, struct vb_claim *c)
{
	c->queued = true;
	if (vb_unlikely(me->space->watch != NULL))
		vb_observers_queued(me, c);
}

static inline int vb_lock_grant(struct vb_claim *c, uint64_t valid_until_ns, uint64_t token)
{
	c->held = true;
	c->valid_until_ns = valid_until_ns;
	c->token = token;
	return 0;
}

/* How often an answer may be lost in a row before an outcome is left unknown, at least. */
#define VB_LOCK_ASKS 8
/* The same on this fabric: a link that broke and is there again has been made anew by then. */
unsigned vb_lock_asks(const struct vb_lock_space *s);
/* How long one waits for a message that must come: wait_ns, and no less than it takes to send it so
 * often. */
uint64_t vb_lock_wait_least(const struct vb_lock_space *s, uint64_t wait_ns);

/*
 * After this every verb that this client has posted has landed or never will.  To ask again earlier
 * could show the word without a verb that lands afterwards.  It ends within the fabric's bound, so
 * cancelling the task does not shorten it.
 */
void vb_lock_let_land(struct vb_lock_client *me);

/*
 * A CAS of a word that only this client changes in this way.  After a lost answer it asks again,
 * vb_lock_asks times in all.  *seen is the word before the CAS whose answer came; *unsure becomes
 * true if an answer was lost before, so that an earlier CAS may have done the work.  0;
 * -VB_EUNKNOWN: an answer was lost, and none came since; or another error, and nothing was done.
 */
static inline int vb_lock_change(struct vb_lock_client *me, vb_addr word, uint64_t from,
				 uint64_t to, uint64_t *seen, bool *unsure);

/*
 * ---- links that are down for a moment ----
 *
 * A verb that is refused (-VB_EPEERGONE) has done nothing.  Before a claim has left anything in the
 * lock's words that is an answer: not granted.  Afterwards, and at a release, it is none: others would
 * wait for who has gone.  Such a verb is asked again for as long as it takes to lose vb_lock_asks
 * answers; the outcome is unknown then.
 */

/* True, a verb's bound later, if one that ended with err is to be asked again.  *refused: how often
 * one was, 0 at first. */
bool vb_lock_ask_again(struct vb_lock_client *me, int err, unsigned *refused);
/*
 * Before a message is sent again that found its receiver's ring full (-EAGAIN), `refused` times before.  A thread waits
 * for a full ring once (fabric/shm/ring.c), and who is refused behind that is refused at once: without this its asks
 * would be over before the receiver's thread has had the core.  VB_LOCK_ASKS of them take 8 ms, not shortened by
 * cancelling the task.
 */
void vb_lock_let_drain(struct vb_lock_client *me, unsigned refused);
/*
 * A node that has stood still for longer than the fabric's bound refuses what it was asked meanwhile.  Where a word
 * can be looked at for what has become of a verb, that is as good as a lost answer.  An addition cannot be looked
 * for, nor what a swap has found: so it is asked with VB_FOREVER as its last moment, by which a refusal is told from a lost answer
 * (fabric/fabric.h), and a refusal is as above.
 */
static inline int vb_lock_refusal(int err)
{
	return vb_unlikely(err == -VB_ETOOLATE) ? -VB_EPEERGONE : err;
}
/* An FAA, and vb_swap64; what was refused so is asked again.  -VB_EPEERGONE: nothing was done; -VB_EUNKNOWN. */
static inline int vb_lock_faa(struct vb_lock_client *me, vb_addr word, uint64_t add, uint64_t *old);
int vb_lock_swap(struct vb_lock_client *me, vb_addr word, uint64_t value, uint64_t until_ns,
		 uint64_t *old);

/* vb_lock_change and an FAA that do so, vb_lock_asks times in all; never -VB_EPEERGONE. */
static inline int vb_lock_change_back(struct vb_lock_client *me, vb_addr word, uint64_t from,
				      uint64_t to, uint64_t *seen, bool *unsure);
static inline int vb_lock_add(struct vb_lock_client *me, vb_addr word, uint64_t add, uint64_t *old);

/* What a call ends with whose claim stands in the lock's words. */
static inline int vb_lock_unknown_if_refused(int err)
{
	return vb_unlikely(err == -VB_EPEERGONE) ? -VB_EUNKNOWN : err;
}

/*
 * A lock word that names its owner; 0 is free.
 *
 *	 63   62              40 39                                     0
 *	+----+------------------+----------------------------------------+
 *	| f  | claim's number   | vb_peer of the owner                   |
 *	+----+------------------+----------------------------------------+
 *
 * The number tells a client's claims apart: it may come again before it knows what became of its
 * last claim of the lock.
 */
#define VB_OWNER_BITS 40
#define VB_OWNER_FLAG (1ull << 63)
_Static_assert(VB_PEER_CLIENT_BITS + 16 == VB_OWNER_BITS, "a name fits");

/* The word of a new claim, which keeps it in priv[0]; flag: 0 or VB_OWNER_FLAG. */
uint64_t vb_owner_word(struct vb_lock_client *me, uint64_t flag);
/* Takes the word from `expect`, or from an earlier claim of this client.  0: granted; -EAGAIN:
 * *seen is another client's; or an error. */
int vb_owner_take(struct vb_lock_client *me, struct vb_claim *c, uint64_t expect, uint64_t *seen);
int vb_owner_give_back(struct vb_lock_client *me, struct vb_claim *c);
/* What such a word says, by a READ of it: struct vb_lock_ops, `holder`. */
int vb_owner_holder(struct vb_lock_client *me, uint64_t lock, struct vb_holder *out);
/* By a server's answer; VB_PEER_NONE: nobody alone. */
static inline void vb_lock_name_holder(vb_peer holder, struct vb_holder *out)
{
	if (holder == VB_PEER_NONE)
		return;
	out->client = holder;
	out->node = vb_peer_node(holder);
}
/* Its owner has the lock. */
void vb_owner_tell(uint64_t word, struct vb_holder *out);

/*
 * Truncated exponential backoff with full jitter: the nth wait is uniform in [0, min(cap, base
 * 2^n)).  Gives way to other tasks even when the wait is 0.  -ETIMEDOUT if until_ns comes first.
 */
struct vb_backoff {
	uint64_t base_ns, cap_ns;
	unsigned n;
};
/* From a lock's options, either of which may be VB_OPT_AUTO: then the first wait is a round trip,
 * before which no look can find anything new, and the longest one 1,024 times the first (SMART's
 * measure, ASPLOS 2024, section 4.3: 1.7 us on its cards). */
struct vb_backoff vb_backoff_of(const struct vb_lock_client *me, uint64_t base_ns, uint64_t cap_ns);
int vb_backoff_wait(struct vb_lock_client *me, struct vb_backoff *b, uint64_t until_ns);
/* The default leases: see lease_ns in include/verbena/lock.h. */
#define VB_LEASE_VIRTUAL_NS 10000000ull
#define VB_LEASE_REAL_NS    200000000ull
uint64_t vb_lock_lease_init_ns(const struct vb_fabric *f);

/*
 * Learns how long a verb of this client takes: at first what the fabric says, then what its own
 * verbs took, where that is not known beforehand.  Follows fast ones at once and slow ones slowly:
 * a thread that was not running has measured nothing.
 */
static inline void vb_lock_learn_rtt(struct vb_lock_client *me, uint64_t took_ns)
{
	uint64_t more = me->rtt_ns + me->rtt_ns / 16 + 1;

	if (me->space->fabric->caps.flags & (VB_CAP_VIRTUAL | VB_CAP_INLINE))
		return;
	if (took_ns < me->rtt_ns)
		me->rtt_ns = (me->rtt_ns + took_ns) / 2;
	else
		me->rtt_ns = took_ns < more ? took_ns : more;
}
/* Between two polls that should follow at once: lets other tasks and, on real fabrics, other
 * threads run.  -ETIMEDOUT past until_ns, -ECANCELED. */
int vb_poll_pause(struct vb_lock_client *me, uint64_t until_ns);
/* The same where a wait may be long.  Where a look is a load of the CPU, pauses become sleeps after
 * some hundred microseconds: a holder that works for long is found a little late, and who waits for
 * it does not take a core from it. */
int vb_poll_rest(struct vb_lock_client *me, uint64_t until_ns);
/* The same where each look is a server's work.  On shm hundreds of clients in one thread can ask for more than that is,
 * and what they want is given back by a request behind all of theirs.  So who has waited since since_ns, and long, asks
 * the less often the longer it is: it finds the lock free later by a small share of its wait. */
int vb_poll_ask(struct vb_lock_client *me, uint64_t since_ns, uint64_t until_ns);

/* ---- the first verb of each ----
 *
 * Most of the time there is no other, so that is inline; the rest goes on from its error.
 */

VB_COLD int vb_lock_change_on(struct vb_lock_client *me, vb_addr word, uint64_t from, uint64_t to,
			      uint64_t *seen, bool *unsure, int err);
VB_COLD int vb_lock_change_back_on(struct vb_lock_client *me, vb_addr word, uint64_t from,
				   uint64_t to, uint64_t *seen, bool *unsure, int err);

static inline int vb_lock_change_first(struct vb_lock_client *me, vb_addr word, uint64_t from,
				       uint64_t to, uint64_t *seen)
{
	const bool learns = !(me->ep->fabric->caps.flags & (VB_CAP_VIRTUAL | VB_CAP_INLINE));
	/* Compared with nothing, so they need no order; but of two that are early the second may be so by more. */
	uint64_t posted = vb_unlikely(learns) ? vb_ep_now_early(me->ep) : 0, done;
	int err = vb_cas64_before(me->ep, word, from, to, VB_FOREVER, seen);

	if (vb_unlikely(learns) && err == 0) {
		done = vb_ep_now_early(me->ep);
		vb_lock_learn_rtt(me, done > posted ? done - posted : 0);
	}
	return err;
}

static inline int vb_lock_change(struct vb_lock_client *me, vb_addr word, uint64_t from,
				 uint64_t to, uint64_t *seen, bool *unsure)
{
	int err = vb_lock_change_first(me, word, from, to, seen);

	return vb_likely(err == 0) ? 0 : vb_lock_change_on(me, word, from, to, seen, unsure, err);
}

static inline int vb_lock_change_back(struct vb_lock_client *me, vb_addr word, uint64_t from,
				      uint64_t to, uint64_t *seen, bool *unsure)
{
	int err = vb_lock_change_first(me, word, from, to, seen);

	return vb_likely(err == 0) ? 0
				   : vb_lock_change_back_on(me, word, from, to, seen, unsure, err);
}

VB_COLD int vb_lock_faa_on(struct vb_lock_client *me, vb_addr word, uint64_t add, uint64_t *old,
			   int err);
VB_COLD int vb_lock_add_on(struct vb_lock_client *me, vb_addr word, uint64_t add, uint64_t *old,
			   int err);

static inline int vb_lock_faa(struct vb_lock_client *me, vb_addr word, uint64_t add, uint64_t *old)
{
	int err = vb_faa64_before(me->ep, word, add, VB_FOREVER, old);

	return vb_likely(err == 0) ? 0 : vb_lock_faa_on(me, word, add, old, err);
}

static inline int vb_lock_add(struct vb_lock_client *me, vb_addr word, uint64_t add, uint64_t *old)
{
	int err = vb_faa64_before(me->ep, word, add, VB_FOREVER, old);

	return vb_likely(err == 0) ? 0 : vb_lock_add_on(me, word, add, old, err);
}

#endif
