/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the auditor: see audit.h and audit.c. */
#ifndef VB_CHECK_AUDIT_INNER_H
#define VB_CHECK_AUDIT_INNER_H

#include "check/lock/audit.h"

#define AUDIT_STORIES     16
#define AUDIT_STORY_BYTES 960
#define AUDIT_PROXIES     8

/*
 * The shadow word: holders and waiters, 21 bits each.  Holders in modes that never exclude one
 * another (shared and intent-shared) are counted apart from the others: who finds nobody counted
 * that could exclude it need not look at them one by one.
 */
#define COUNT_SHARED    1ull
#define COUNT_EXCLUSIVE (1ull << 21)
#define COUNT_WAITING   (1ull << 42)
#define COUNT_FIELD     ((1ull << 21) - 1)

struct audit_lock {
	uint64_t count;
	uint64_t last_token;
	uint64_t last_at[VB_MODES]; /* by mode: when the latest grant was told */
};

/* ENTERING: published, perhaps not counted.  LEAVING: perhaps counted, not to be judged. */
enum hold_state { HOLD_FREE, HOLD_ENTERING, HOLD_HELD, HOLD_LEAVING };

/* `word` is generation * 4 + state: who reads a hold reads it before and after. */
struct audit_hold {
	uint64_t word;
	uint64_t lock, mode, token;
	uint64_t called_at, queued_at, granted_at, valid_until;
};

struct audit_proxy {
	uint64_t lock1, mode, called_at;
};

/* Written by the client's own thread, except `bypass`, which those who pass it count up. */
struct audit_client {
	uint64_t called1; /* 1 + the lock of the call under way, 0: none */
	uint64_t called_at, queued_at, wait_mode, bypass;
	uint64_t releasing1, releasing_at,
		releasing_next_at; /* next_at: of the grant that came between */
	struct audit_hold released;
	uint64_t node;
	uint64_t checked, lost, max_bypass;
	unsigned next_proxy;
	struct audit_proxy proxies[AUDIT_PROXIES];
} VB_ALIGNED(VB_CACHELINE);

struct audit_story {
	uint32_t ready;
	char text[AUDIT_STORY_BYTES];
};

struct vb_audit {
	size_t bytes;
	uint64_t locks;
	unsigned clients, claims, words; /* words of a client's `used` */
	bool fencing, judge_bypass;
	bool judge_granted_only; /* who is turned down learns of it after those whom that lets pass */
	unsigned bound[VB_MODES]; /* by the waiter's mode */
	struct vb_lock_watch watch;
	struct audit_lock *lock;
	uint64_t *waits; /* [clients]: 1 + lock while queued; dense, because grants search it */
	struct audit_client *client;
	struct audit_hold *hold; /* [claims][clients]: as the claim of this slot is held */
	uint64_t *used;          /* [clients][words]: bit per hold */
	unsigned forgives;       /* bit i: rule i */
	uint64_t forgiven[VB_AUDIT_RULES];
	uint64_t violations, by_rule[VB_AUDIT_RULES];
	struct audit_story stories[AUDIT_STORIES];
};

#define get(p)         __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define get_relaxed(p) __atomic_load_n(p, __ATOMIC_RELAXED)
#define set(p, v)      __atomic_store_n(p, v, __ATOMIC_RELEASE)

static inline bool modes_exclude(uint64_t a, uint64_t b)
{
	return vb_modes_exclude((enum vb_mode)a, (enum vb_mode)b);
}

static inline bool is_sharing(uint64_t mode)
{
	return mode == VB_SHARED || mode == VB_INTENT_SHARED;
}

static inline uint64_t count_of(uint64_t mode)
{
	return is_sharing(mode) ? COUNT_SHARED : COUNT_EXCLUSIVE;
}

/* ---- who holds what: audit_hold.c ---- */

/* The other client's hold as it was at one moment; false if it changed meanwhile or is not held. */
bool audit_read_hold(const struct audit_hold *h, struct audit_hold *out);
/* The client's next hold from slot *at on, or NULL; *at: where to go on. */
struct audit_hold *audit_next_hold(struct vb_audit *a, unsigned client, unsigned *at);
void audit_enter_hold(struct vb_audit *a, const struct vb_lock_client *me, unsigned slot,
		      const struct audit_hold *from, uint64_t *count_before);
void audit_leave_hold(struct vb_audit *a, unsigned client, struct audit_hold *h);
/* All that a client has, which is no more. */
void audit_leave_all(struct vb_audit *a, unsigned client);
/* What the claim's grant was entered as; NULL: it was not, or is no more. */
struct audit_hold *audit_find_hold(struct vb_audit *a, const struct vb_lock_client *me,
				   const struct vb_claim *claim);

/* ---- rules, and what is told: audit_judge.c ---- */

struct hold_text {
	char text[256];
};

void audit_add_violation(struct vb_audit *a, enum vb_audit_rule rule, const char *fmt, ...)
	VB_PRINTF(3, 4);
/* "client 3 (node 1), exclusive, called at 1.200us, granted at ..., valid until ..., token 4" */
const char *audit_tell_hold(struct hold_text *t, const struct vb_audit *a, unsigned client,
			    const struct audit_hold *h);
/* Enters the hold and judges it; false: it was over already.  *before: the lock's count. */
bool audit_judge_grant(struct vb_audit *a, const struct vb_lock_client *me, unsigned slot,
		       const struct audit_hold *h, uint64_t *before);
/* The same for a hold whose lease has begun anew. */
void audit_judge_renewal(struct vb_audit *a, const struct vb_lock_client *me, unsigned slot,
			 const struct audit_hold *h);
/* Every queued client that this grant has passed counts it. */
void audit_count_bypass(struct vb_audit *a, const struct vb_lock_client *me,
			const struct audit_hold *h, uint64_t waiting);
/* The same at the end of the wait, of locks whose server may take a client out of the queue:
 * those who passed one that is turned down then have wronged nobody, and hear of it before he
 * does. */
void audit_judge_passed(struct vb_audit *a, const struct vb_lock_client *me,
			const struct audit_hold *h, uint64_t passed);

#endif
