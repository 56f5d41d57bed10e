/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The word of DSLR (figure 3 of the paper) and its options, shared by our version and the published
 * one; and what dslr and dslr-update, whose words differ, do in the same way (wait.c).
 *
 *	 63          48 47          32 31          16 15           0
 *	+--------------+--------------+--------------+--------------+
 *	| n_X          | n_S          | max_X        | max_S        |
 *	+--------------+--------------+--------------+--------------+
 *	  now serving: exclusive, shared   next ticket: exclusive, shared
 */
#ifndef VB_LOCK_DSLR_DSLR_H
#define VB_LOCK_DSLR_DSLR_H

#include "lock/lock.h"

#define DSLR_ONE_MAX_S 1ull
#define DSLR_ONE_MAX_X (1ull << 16)
#define DSLR_ONE_N_S   (1ull << 32)
#define DSLR_ONE_N_X   (1ull << 48)
#define DSLR_N_MASK    0xffffffff00000000ull

static inline uint32_t dslr_max_s(uint64_t w)
{
	return w & 0xffff;
}

static inline uint32_t dslr_max_x(uint64_t w)
{
	return w >> 16 & 0xffff;
}

static inline uint32_t dslr_n_s(uint64_t w)
{
	return w >> 32 & 0xffff;
}

static inline uint32_t dslr_n_x(uint64_t w)
{
	return (uint32_t)(w >> 48);
}

static inline uint64_t dslr_word(uint32_t n_x, uint32_t n_s, uint32_t max_x, uint32_t max_s)
{
	return (uint64_t)n_x << 48 | (uint64_t)n_s << 32 | (uint64_t)max_x << 16 | max_s;
}

/* The turn of a ticket (the word before our FAA) has come in `w`. */
static inline bool dslr_is_turn(uint64_t w, uint64_t ticket, enum vb_mode mode)
{
	return dslr_n_x(w) == dslr_max_x(ticket) &&
	       (mode == VB_SHARED || dslr_n_s(w) == dslr_max_s(ticket));
}

enum dslr_counted { DSLR_COUNT_ALL, DSLR_COUNT_WRITERS };

struct dslr_options {
	uint64_t count_max;
	uint64_t omega_ns;
	uint64_t backoff_base_ns, backoff_cap_ns;
	uint64_t slots;
	enum dslr_counted counted;
	/* What follows from the options.  slots, except in a planted bug. */
	uint64_t patience_slots;
	/* What is posted within this time of a moment takes effect within a lease of it. */
	uint64_t landing_ns;
};

/* With fewer tickets the counters could come round within a lease, and a crowd could fill them at
 * once. */
#define DSLR_COUNT_MIN 1024

/* The options that every version has. */
#define DSLR_OPTIONS(count_max_most, count_max_most_text, omega)                                   \
	VB_OPT_SIZE(struct dslr_options, count_max, "count_max", count_max_most_text,              \
		    DSLR_COUNT_MIN, count_max_most, "tickets between two resets of the counters"), \
		VB_OPT_TIME(                                                                       \
			struct dslr_options, omega_ns, "omega", omega, 0, 1000000000ull,           \
			"a waiter looks again after this times the tickets ahead of it; auto: "    \
			"an eighth of the round trip times the turns"),                            \
		VB_OPT_TIME(struct dslr_options, backoff_base_ns, "backoff_base", "10us", 1,       \
			    1000000000ull,                                                         \
			    "first backoff of a client that meets exhausted counters"),            \
		VB_OPT_TIME(struct dslr_options, backoff_cap_ns, "backoff_cap", "10ms", 1,         \
			    10000000000ull, "longest backoff of such a client, or half a lease")

/* ... and leases of several slots. */
#define DSLR_SLOTS(most)                                                                           \
	VB_OPT_SIZE(struct dslr_options, slots, "slots", "1", 1, most,                             \
		    "the longest grant, in leases: the most slots of one ticket")

/* ... and whom a reader counts. */
#define DSLR_COUNTED                                                                               \
	VB_OPT_CHOICE(struct dslr_options, counted, "counted", "all|writers", "all",               \
		      "what a reader takes omega times: all tickets ahead of it, or writers'")

/* ---- what does not depend on the word: wait.c ---- */

struct dslr_claim {
	/* The word before our FAA. */
	uint64_t ticket;
	/* The word at the last look. */
	uint64_t seen;
	/* When the counters in `seen` were first seen, at the latest. */
	uint64_t seen_since_ns;
	/* When the last look that said "not yet" was posted. */
	uint64_t not_yet_ns;
};

/* What a word means. */
struct dslr_word_ops {
	/* The counters of what is being served. */
	uint64_t n_mask;
	/* Nothing is concluded from two looks (or FAAs, CASes) that may be further apart than this:
	 * the numbers may have come round.  A ticket whose owner has not looked for so long is
	 * given up.  At least 1. */
	unsigned blind_leases;
	bool (*saturated)(const struct vb_lock_client *me, uint64_t w);
	/* Both about the claim's ticket. */
	bool (*is_turn)(const struct vb_lock_client *me, const struct vb_claim *c, uint64_t w);
	bool (*thrown_out)(const struct vb_claim *c, uint64_t w);
	/* Slots still to be served before the ticket, those of the present holders among them; and
	 * how many of them are writers'. */
	uint64_t (*ahead)(uint64_t w, uint64_t ticket, uint64_t *writers);
	uint64_t (*reset_word)(const struct vb_lock_client *me, uint64_t w);
};

static inline const struct dslr_options *dslr_options_of(const struct vb_lock_client *me)
{
	return me->space->options;
}

static inline uint64_t dslr_blind_ns(const struct vb_lock_client *me,
				     const struct dslr_word_ops *ops)
{
	return ops->blind_leases * me->space->lease_ns;
}

/* Until when a CAS is posted that compares with a look posted at looked_ns. */
static inline uint64_t dslr_compare_by_ns(const struct vb_lock_client *me,
					  const struct dslr_word_ops *ops, uint64_t looked_ns)
{
	return looked_ns + (ops->blind_leases - 1) * me->space->lease_ns +
	       dslr_options_of(me)->landing_ns;
}

static inline uint64_t dslr_lease_ns(const struct vb_lock_client *me, const struct vb_claim *c)
{
	return c->leases * me->space->lease_ns;
}

/* What a release adds: the slots of the ticket, from `first` on, less those beyond COUNT_MAX. */
static inline uint64_t dslr_slots_served(const struct vb_lock_client *me, const struct vb_claim *c,
					 uint32_t first)
{
	uint64_t left = dslr_options_of(me)->count_max - first;

	return c->leases < left ? c->leases : left;
}

int dslr_open(struct vb_lock_space *space);
unsigned dslr_leases_max(const struct vb_lock_space *space);
int dslr_shape(const void *options, uint16_t nodes, struct vb_lock_shape *out);
unsigned dslr_bypass_bound(unsigned clients, enum vb_mode mode);

/* Omega times the slots ahead (DSLR section 4.6), but never so late that half a lease passes
 * without a look. */
uint64_t dslr_paper_pause_ns(const struct vb_lock_space *s, uint64_t ahead);

/* How long a waiter pauses before it looks again; 0: not at all.  `w` was seen last, and what is
 * being served has stood still for still_ns. */
uint64_t dslr_pause_ns(const struct vb_lock_client *me, const struct vb_claim *c,
		       const struct dslr_word_ops *ops, uint64_t w, uint64_t still_ns);

/* How long what is being served may stand still before the client that should advance it is dead:
 * 2 leases per slot ahead, of which no holder has more than the space's longest grant. */
uint64_t dslr_patience_ns(const struct vb_lock_client *me, uint64_t ahead);

/* One look at the word: 0 and *w, -EAGAIN if the answer was lost (look again), or an error. */
int dslr_look(struct vb_lock_client *me, struct vb_claim *c, uint64_t *w, uint64_t *posted_ns,
	      uint64_t *done_ns);

/* The bits in value_mask become `value` if the bits in expect_mask are `expect`. */
struct dslr_change {
	uint64_t expect, expect_mask;
	uint64_t value, value_mask;
};

/*
 * Changes the word; *old is the word before.  It is posted until not_after (VB_FOREVER: at any
 * time), and after that -VB_ETOOLATE.  Without masked CAS the portable variant compares the whole
 * word and tries again when only the rest has moved: each time somebody else has taken a ticket (or
 * given back a shared lock, if n_S is not compared), and waiting clients take no second one.
 */
int dslr_swap(struct vb_lock_client *me, struct vb_claim *c, const struct dslr_change *to,
	      uint64_t not_after, uint64_t *old);

/* Waits for the turn of the ticket.  0: granted; -ETIMEDOUT, -ECANCELED (still queued); -ESTALE
 * (thrown out or given up: take another ticket); or an error. */
int dslr_wait_turn(struct vb_lock_client *me, struct vb_claim *c, const struct dslr_word_ops *ops,
		   uint64_t until_ns);

/* The counters were found exhausted (t->seen): waits until somebody has reset them, or resets them
 * after two leases of the longest kind, since a refused client cannot tell how many slots the last
 * ticket has. */
int dslr_wait_reset(struct vb_lock_client *me, struct vb_claim *c, const struct dslr_word_ops *ops,
		    uint64_t until_ns);

/* Takes a free lock; `add` as below. */
int dslr_try(struct vb_lock_client *me, struct vb_claim *c, const struct dslr_word_ops *ops,
	     uint64_t add);

/*
 * An acquire, given how to draw a ticket: `add` is what the FAA adds.  Uncontended it is no more.
 */
static inline int dslr_draw_until_granted(struct vb_lock_client *me, struct vb_claim *c,
					  const struct dslr_word_ops *ops, uint64_t add,
					  uint64_t until_ns)
{
	struct dslr_claim *t = vb_claim_as(struct dslr_claim, c);

	for (;;) {
		uint64_t posted = vb_ep_now_early(me->ep);
		int err = vb_faa64_before(me->ep, c->entry, add, VB_FOREVER, &t->ticket);

		/* The lock's node stood still and has refused it: there is no ticket. */
		if (vb_unlikely(err == -VB_ETOOLATE)) {
			err = vb_poll_pause(me, until_ns);
			if (err == 0)
				continue;
		}
		if (vb_unlikely(err != 0))
			return err;
		t->seen = t->ticket;
		t->not_yet_ns = posted;
		if (vb_unlikely(ops->saturated(me, t->ticket))) {
			t->seen_since_ns = vb_ep_now(me->ep);
			err = dslr_wait_reset(me, c, ops, until_ns);
			if (err)
				return err;
			vb_phase(me, VB_PHASE_IA);
			continue;
		}
		if (vb_likely(ops->is_turn(me, c, t->ticket)))
			return vb_lock_grant(c, posted + dslr_lease_ns(me, c), 0);
		vb_lock_mark_queued(me, c);
		t->seen_since_ns = vb_ep_now(me->ep);
		err = dslr_wait_turn(me, c, ops, until_ns);
		if (err != -ESTALE)
			return err;
		vb_phase(me, VB_PHASE_IA);
		if (vb_ep_now(me->ep) >= until_ns)
			return -ETIMEDOUT;
		if (vb_task_cancelled(vb_task_self()))
			return -ECANCELED;
	}
}

/* ---- dslr itself, and the planted bug that differs from it by its name and `open` ---- */

int dslr_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns);
int dslr_resume(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns);
int dslr_try_acquire(struct vb_lock_client *me, struct vb_claim *c);
int dslr_release(struct vb_lock_client *me, struct vb_claim *c);
extern const struct vb_opt dslr_option_table[];

#define DSLR_LOCK                                                                                  \
	.caps = VB_LOCK_SHARED | VB_LOCK_EXCLUSIVE | VB_LOCK_FIFO | VB_LOCK_SURVIVES,              \
	.wishes = VB_CAP_MASKED64,                                                                 \
	.portable =                                                                                \
		"releases compare the whole word and try again when a ticket was taken meanwhile", \
	.entry_bytes = 8, .recovery_leases = 5, .options = dslr_option_table,                      \
	.options_size = sizeof(struct dslr_options),                                               \
	.verbs_uncontended = "1 FAA; release 1 masked CAS (exclusive) or 1 FAA (shared)",          \
	.verbs_contended = "+ 1 READ per poll, omega times the tickets ahead apart",               \
	.bypass_bound = dslr_bypass_bound, .leases_max = dslr_leases_max, .shape = dslr_shape,     \
	.acquire = dslr_acquire, .resume = dslr_resume, .try_acquire = dslr_try_acquire,           \
	.release = dslr_release, .release_now = dslr_release

uint64_t dslr_poll_interval_ns(const struct vb_lock_space *s, uint64_t w, uint64_t ticket);

#endif
