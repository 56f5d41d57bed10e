/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The entry of ShiftLock (figure 3 of the paper), shared by our version and the published one.
 *
 *	 127      112 111                                            64
 *	+------------+------------------------------------------------+
 *	| generation | release count                                  |   RelCnt
 *	+------------+------------------------------------------------+
 *	 63   62          40 39                                       0
 *	+----+--------------+-----------------------------------------+
 *	| Ep | RdrCnt       | TailPtr: node + 1 (16), client (24)      |
 *	+----+--------------+-----------------------------------------+
 *
 * The generation has 16 bits, the paper's one: doc/locks/shiftlock.md, departure 5.
 *
 * Where the fabric has no 128-bit masked atomics the entry is one word, which plain.c presents in
 * the form above:
 *
 *	 63         45 44          27 26      19  18   17             0
 *	+-------------+--------------+----------+----+-----------------+
 *	| rel. count  | RdrCnt       | gener.   | Ep | TailPtr         |
 *	+-------------+--------------+----------+----+-----------------+
 *
 * TailPtr is node + 1 in as many bits as the fabric's nodes need, and the client's place
 * (names.c) in the rest.  As many as can be named can read at a time, so RdrCnt does not
 * overflow; the count may, at the top of the word, where its carry is lost.  A reader's verbs are
 * thus plain FAAs; all else is a READ and a CAS of the whole word, again and again while others
 * change it.
 *
 * A narrow field must not be mistaken for what it was before it came round
 * (doc/locks/shiftlock.md).  So a waiter looks at least every SL_PLAIN_LOOK_NS, and believes that
 * nothing moves only while its looks are less than SL_PLAIN_BLIND_NS apart; and a client that
 * comes back after SL_PLAIN_GONE leases holds nothing, waits nowhere and touches nothing.  A CAS
 * that succeeds on a word that has come round is right anyway: the word is all there is.
 */
#ifndef VB_LOCK_SHIFTLOCK_SHIFTLOCK_H
#define VB_LOCK_SHIFTLOCK_SHIFTLOCK_H

#include "lock/lock.h"

#define SL_TAIL_MASK  ((1ull << 40) - 1)
#define SL_RDR_SHIFT  40
#define SL_RDR_MASK   (((1ull << 23) - 1) << SL_RDR_SHIFT)
#define SL_EPOCH      (1ull << 63)
#define SL_GEN_SHIFT  48
#define SL_COUNT_MASK ((1ull << SL_GEN_SHIFT) - 1)

/* Field boundaries for the extended FAA: no carry leaves RdrCnt, Epoch or the count. */
#define SL_BOUNDS_LO (SL_EPOCH | 1ull << 62 | 1ull << 39)
#define SL_BOUNDS_HI (1ull << 63 | 1ull << 47)

/* Consecutive writers before the readers get their turn (ShiftLock sections 3.5.2 and 4.7). */
#define SL_WRITERS_MAX 16

/* When a writer's release is counted that hands the lock over. */
#define SL_HANDOVERS "guarded|relayed"
enum sl_handover {
	/* Before the message. */
	SL_GUARDED,
	/* With a later one, as long as RelCnt has not stood still for half a lease: the message says since when
	 * it has (doc/locks/shiftlock.md, "A handover that is not counted"). */
	SL_RELAYED,
};

/* So many releases in a row are left to be counted at most.  It keeps RelCnt's steps far from its narrow form's
 * range, whatever max_writers and the lease are. */
#define SL_UNCOUNTED_MAX 1024u

struct sl_options {
	/* The paper's N. */
	uint64_t max_writers;
	enum sl_handover handover;
	/* No options: set by planted bugs. */
	bool mute_mode, any_turn;
};
extern const struct vb_opt sl_option_table[];

enum sl_tag {
	/* To the predecessor: I stand behind you. */
	SL_SUCCESSOR = 0,
	/* To the successor: the lock is yours. */
	SL_HANDOVER = 1,
	/* To the lock server. */
	SL_RECOVER = 2,
	/* To the successor: yours when the readers have left.  Shares a slot with HANDOVER. */
	SL_MODE = 5,
};
_Static_assert((unsigned)SL_MODE % VB_BOX_SLOTS == (unsigned)SL_HANDOVER,
	       "whoever waits for one of the two waits for both");

/* Payload of SL_SUCCESSOR.  Every message's imm is the generation's stamp. */
struct sl_told {
	/* The sender's clock, before it sent this. */
	uint64_t told_ns;
};

/* Payload of SL_HANDOVER and SL_MODE. */
struct sl_pass {
	/* RelCnt at which the receiver holds the lock. */
	uint64_t rel;
	/* RelCnt as it stands has not been seen standing before, on the receiver's clock; 0: it is rel by now. */
	uint64_t since_ns;
	/* Consecutive writers so far. */
	uint32_t writers;
	/* The epoch in force: 0 or 1. */
	uint32_t epoch;
	/* With since_ns: by how much RelCnt is behind rel. */
	uint32_t uncounted;
};
_Static_assert(sizeof(struct sl_pass) <= VB_MSG_DATA, "fits into a message");

/* Payload of SL_RECOVER and its answer. */
struct sl_recover {
	uint64_t entry;
	/* RelCnt, unchanged for three leases. */
	uint64_t rel;
	/* Read before those began. */
	uint64_t era;
	/* The answer: 1 reset, 0 refused. */
	uint64_t done;
};

static inline uint64_t sl_readers(uint64_t lo)
{
	return (lo & SL_RDR_MASK) >> SL_RDR_SHIFT;
}

static inline uint16_t sl_gen(uint64_t rel)
{
	return (uint16_t)(rel >> SL_GEN_SHIFT);
}

/* RelCnt after `n` more releases of the same generation. */
static inline uint64_t sl_rel_add(uint64_t rel, uint64_t n)
{
	return (rel & ~SL_COUNT_MASK) | ((rel + n) & SL_COUNT_MASK);
}

/* ---- the entry as one word: plain.c ---- */

#define SL_PLAIN_COUNT_BITS 19
#define SL_PLAIN_TAIL_BITS  18
/* A waiter's looks are at most so far apart; looks that are further apart than the second are not
 * compared, since the count may have come round (at 5.2 million releases per second). */
#define SL_PLAIN_LOOK_NS  20000000ull
#define SL_PLAIN_BLIND_NS 100000000ull
/* In leases; 256 generations take 3 times as many. */
#define SL_PLAIN_GONE 250

static inline bool sl_is_plain(const struct vb_lock_space *s)
{
	return s->portable_mask != 0;
}

/* How many bits of the tail number the clients of a node. */
unsigned sl_plain_client_bits(const struct vb_lock_space *s);
/* The word of a free lock with that RelCnt. */
uint64_t sl_plain_word(const struct vb_lock_space *s, uint64_t rel);

/* A box keeps the newer of two messages by 32-bit serial arithmetic: the generation goes to the
 * top, so that it comes round there, too. */
static inline uint32_t sl_stamp(const struct vb_lock_space *s, uint16_t gen)
{
	return (uint32_t)gen << (sl_is_plain(s) ? 24 : 16);
}

/* ---- clients' names in that word: names.c ---- */

/* client_open and client_close.  -ENOSPC, logged: the node has as many clients as can be named. */
int sl_names_open(struct vb_lock_client *me);
void sl_names_close(struct vb_lock_client *me);
vb_peer sl_plain_name(const struct vb_lock_client *me);
/* The client that has this name now; VB_PEER_NONE: none. */
int sl_names_find(struct vb_lock_client *me, vb_peer name, vb_peer *out);

/*
 * As vb_mcas128 and so on, on the entry in its wide form.  *guess is the whole word as this client
 * last saw or left it, or 0: with it the first CAS needs no READ before it.  *posted_ns becomes the
 * client's clock when the last CAS was posted: it may be long after the first.  *retries counts
 * those that failed.  Others' changes come in between until the client's clock is until_ns, or its
 * task is cancelled: -ETIMEDOUT, -ECANCELED, and nothing has changed.  SL_TO_THE_END: neither.
 * -VB_ETOOLATE: the node has refused it, or a look was lost, and nothing has changed, either.
 */
#define SL_TO_THE_END (VB_FOREVER - 1)
int sl_plain_read(const struct vb_lock_space *s, struct vb_ep *ep, vb_addr entry,
		  struct vb_u128 *out, uint64_t *guess);
int sl_plain_mcas(const struct vb_lock_space *s, struct vb_ep *ep, vb_addr entry,
		  struct vb_u128 compare, struct vb_u128 compare_mask, struct vb_u128 swap,
		  struct vb_u128 swap_mask, struct vb_u128 *old, uint64_t *guess,
		  uint64_t *posted_ns, uint64_t *retries, uint64_t until_ns);
/* A reader enters, and leaves (after not_after: -VB_ETOOLATE). */
int sl_plain_enter(const struct vb_lock_space *s, struct vb_ep *ep, vb_addr entry,
		   struct vb_u128 *old);
int sl_plain_leave(const struct vb_lock_space *s, struct vb_ep *ep, vb_addr entry,
		   uint64_t not_after, struct vb_u128 *old);

/* ---- the entry, in one form or the other: entry.c has what follows a refusal ---- */

/* As vb_mcas128's. */
struct sl_change {
	struct vb_u128 compare, compare_mask, swap, swap_mask;
};

/* *word: plain, the whole entry as this client last saw or left it.  posted_ns: NULL, nobody asks. */
static inline int sl_change_once(struct vb_lock_client *me, vb_addr entry,
				 const struct sl_change *change, uint64_t *word,
				 struct vb_u128 *old, uint64_t *posted_ns, uint64_t until_ns)
{
	uint64_t unasked;

	if (vb_unlikely(sl_is_plain(me->space)))
		return sl_plain_mcas(me->space, me->ep, entry, change->compare,
				     change->compare_mask, change->swap, change->swap_mask, old,
				     word, posted_ns != NULL ? posted_ns : &unasked, &me->retries,
				     until_ns);
	if (posted_ns != NULL)
		*posted_ns = vb_ep_now_early(me->ep);
	return vb_mcas128_before(me->ep, entry, change->compare, change->compare_mask, change->swap,
				 change->swap_mask, VB_FOREVER, old);
}
/* From its error on.  -VB_EPEERGONE, and of the second -VB_EUNKNOWN: it was refused, and has not happened. */
VB_COLD int sl_change_on(struct vb_lock_client *me, vb_addr entry, const struct sl_change *change,
			 uint64_t *word, struct vb_u128 *old, uint64_t *posted_ns,
			 uint64_t until_ns, int err);
VB_COLD int sl_change_back_on(struct vb_lock_client *me, vb_addr entry,
			      const struct sl_change *change, uint64_t *word, struct vb_u128 *old,
			      int err);

/* ---- shiftlock itself, and the planted bug that differs from it by one rule ---- */

int shiftlock_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns);
int shiftlock_resume(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns);
int shiftlock_try(struct vb_lock_client *me, struct vb_claim *c);
int shiftlock_release(struct vb_lock_client *me, struct vb_claim *c);
int shiftlock_release_now(struct vb_lock_client *me, struct vb_claim *c);
void shiftlock_serve(struct vb_lock_server *server, const struct vb_msg *request);
unsigned shiftlock_bypass_bound(unsigned clients, enum vb_mode mode);
unsigned shiftlock_bypass_bound_of(const struct vb_lock_space *space, unsigned clients,
				   enum vb_mode mode);

/* leases_behind: a message that is on its way grants for one more (granted()). */
#define SL_LOCK                                                                                    \
	.caps = VB_LOCK_SHARED | VB_LOCK_EXCLUSIVE | VB_LOCK_FIFO | VB_LOCK_SURVIVES |             \
		VB_LOCK_TOKEN | VB_LOCK_SERVER | VB_LOCK_MESSAGES,                                 \
	.needs = VB_CAP_SEND, .wishes = VB_CAP_MASKED128,                                          \
	.portable = "the entry is one 64-bit word, changed by READ and CAS loops; no token of "    \
		    "its own",                                                                     \
	.portable_lacks = VB_LOCK_TOKEN, .entry_bytes = 16, .recovery_leases = 8,                  \
	.leases_behind = 2, .options = sl_option_table, .options_size = sizeof(struct sl_options), \
	.client_open = sl_names_open, .client_close = sl_names_close,                              \
	.verbs_uncontended = "1 masked CAS (exclusive) or FAA (shared), 128 bits; release 1 more", \
	.verbs_contended =                                                                         \
		"+ 2 SENDs per writer; READs only behind readers or as a waiting reader",          \
	.bypass_bound = shiftlock_bypass_bound, .bypass_bound_of = shiftlock_bypass_bound_of,      \
	.acquire = shiftlock_acquire, .resume = shiftlock_resume, .try_acquire = shiftlock_try,    \
	.release = shiftlock_release, .release_now = shiftlock_release_now,                        \
	.serve = shiftlock_serve, .serves_by_verbs = true

#endif
