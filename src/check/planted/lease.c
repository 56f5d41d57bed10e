/* SPDX-License-Identifier: Apache-2.0 */
/* The small lease lock of planted.h, and the bugs that are one wrong step in it. */
#include "check/planted/planted.h"

#define NAME_BITS 24

struct lease_claim {
	uint64_t word;     /* ours while we hold */
	uint64_t seen;     /* somebody's, unchanged ... */
	uint64_t since_ns; /* ... from this local time on at the latest */
	uint64_t token;
	uint64_t next; /* a renewal's that may have been done; 0: none */
};

static bool has_bug(const struct vb_lock_client *me, enum planted_bug bug)
{
	return vb_container_of(me->space->ops, struct planted_lease, ops)->bug == bug;
}

static uint64_t own_word(struct vb_lock_client *me)
{
	uint64_t name = vb_rng_next(&me->rng) >> (64 - NAME_BITS);

	return me->ep->self << NAME_BITS | (has_bug(me, PLANTED_SAME_WORD) ? 0 : name);
}

/* *seen is what was there before; ours now if that is `expect`. */
static int take(struct vb_lock_client *me, struct vb_claim *c, uint64_t expect, uint64_t *seen)
{
	struct lease_claim *p = vb_claim_as(struct lease_claim, c);
	int err;

	if (!has_bug(me, PLANTED_CHECK_THEN_ACT))
		return vb_cas64(me->ep, c->entry, expect, p->word, seen);
	err = vb_read64(me->ep, c->entry, seen);
	if (err == 0 && *seen == expect)
		err = vb_write(me->ep, c->entry, &p->word, sizeof(p->word));
	return err;
}

static int draw_token(struct vb_lock_client *me, struct vb_claim *c)
{
	struct lease_claim *p = vb_claim_as(struct lease_claim, c);
	int err = vb_faa64(me->ep, c->entry + 8, 1, &p->token);

	p->token++;
	return err;
}

static int lease_try(struct vb_lock_client *me, struct vb_claim *c)
{
	struct lease_claim *p = vb_claim_as(struct lease_claim, c);
	uint64_t posted = vb_ep_now(me->ep), seen, expect = 0;
	int err;

	p->word = own_word(me);
	if (p->seen != 0 && posted >= p->since_ns + vb_lock_stretch(me->space, me->space->lease_ns))
		expect = p->seen;
	err = take(me, c, expect, &seen);
	if (err)
		return err;
	if (seen != expect) {
		if (seen != p->seen)
			p->since_ns = vb_ep_now(me->ep);
		p->seen = seen;
		return -EAGAIN;
	}
	if (has_bug(me, PLANTED_LEASE_FROM_NOTICE))
		posted = vb_ep_now(me->ep);
	if (!has_bug(me, PLANTED_EARLY_TOKEN))
		err = draw_token(me, c);
	return err ? err : vb_lock_grant(c, posted + me->space->lease_ns, p->token);
}

static int lease_try_once(struct vb_lock_client *me, struct vb_claim *c)
{
	int err;

	*vb_claim_as(struct lease_claim, c) = (struct lease_claim){0};
	err = has_bug(me, PLANTED_EARLY_TOKEN) ? draw_token(me, c) : 0;

	return err ? err : lease_try(me, c);
}

static int lease_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	struct vb_backoff b = {.base_ns = 500, .cap_ns = 8000};
	int err;

	*vb_claim_as(struct lease_claim, c) = (struct lease_claim){0};
	err = has_bug(me, PLANTED_EARLY_TOKEN) ? draw_token(me, c) : 0;

	while (err == 0) {
		err = lease_try(me, c);
		if (err != -EAGAIN)
			break;
		err = vb_backoff_wait(me, &b, until_ns);
	}
	return err;
}

static int release_ours(struct vb_lock_client *me, struct vb_claim *c)
{
	struct lease_claim *p = vb_claim_as(struct lease_claim, c);
	uint64_t seen;
	int err = vb_cas64(me->ep, c->entry, p->word, 0, &seen);

	if (err)
		return err;
	return seen == p->word ? 0 : -VB_ELOST;
}

/* Posted so early that it lands within the lease, in which nobody takes the lock over. */
static int release_in_time(struct vb_lock_client *me, struct vb_claim *c)
{
	struct lease_claim *p = vb_claim_as(struct lease_claim, c);
	uint64_t bound = vb_lock_stretch(me->space, me->ep->fabric->caps.verb_bound_ns), seen;
	int err = vb_cas64_before(me->ep, c->entry, p->word, 0, c->valid_until_ns - bound, &seen);

	if (err == -VB_ETOOLATE)
		return release_ours(me, c);
	if (err)
		return err;
	return seen == p->word ? 0 : -EPROTO;
}

static int lease_release(struct vb_lock_client *me, struct vb_claim *c)
{
	uint64_t nobody = 0;

	if (has_bug(me, PLANTED_BLIND_RELEASE))
		return vb_write(me->ep, c->entry, &nobody, sizeof(nobody));
	return has_bug(me, PLANTED_IN_TIME) ? release_in_time(me, c) : release_ours(me, c);
}

/* After an answer that was lost either word may be there. */
static int renew_ours(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	struct lease_claim *p = vb_claim_as(struct lease_claim, c);
	uint64_t posted = vb_ep_now(me->ep), word = own_word(me), expect = p->word, seen;
	int err = vb_cas64(me->ep, c->entry, expect, word, &seen);

	if (err == 0 && seen != expect && p->next != 0 && seen == p->next) {
		expect = p->next;
		err = vb_cas64(me->ep, c->entry, expect, word, &seen);
	}
	p->next = word;
	if (err)
		return err;
	if (seen != expect)
		return -VB_ELOST;
	p->word = word;
	c->valid_until_ns = posted + me->space->lease_ns;
	return 0;
}

static int lease_renew(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	struct lease_claim *p = vb_claim_as(struct lease_claim, c);
	uint64_t posted = vb_ep_now(me->ep), word = own_word(me);
	int err = vb_write(me->ep, c->entry, &word, sizeof(word));

	if (err)
		return err;
	p->word = word;
	c->valid_until_ns = posted + me->space->lease_ns;
	return 0;
}

#define LEASE_OPS(name_, rule_, summary_, ...)                                                     \
	.ops = {.name = "planted:" name_,                                                          \
		.summary = summary_,                                                               \
		.source = "planted bug",                                                           \
		.planted = rule_,                                                                  \
		.caps = VB_LOCK_EXCLUSIVE | VB_LOCK_SURVIVES | VB_LOCK_TOKEN,                      \
		.entry_bytes = 16,                                                                 \
		.recovery_leases = 2,                                                              \
		.verbs_uncontended = "2 CAS + 1 FAA",                                              \
		.verbs_contended = "1 CAS per attempt + 1 CAS + 1 FAA",                            \
		.acquire = lease_acquire,                                                          \
		.try_acquire = lease_try_once,                                                     \
		.release = lease_release,                                                          \
		__VA_ARGS__}

#define LEASE_LOCK(bug_, name_, rule_, summary_, ...)                                              \
	{                                                                                          \
		LEASE_OPS(name_, rule_, summary_, __VA_ARGS__), .bug = bug_                        \
	}

#define KEPT_LOCK(keep_, name_, rule_, summary_)                                                   \
	{                                                                                          \
		LEASE_OPS(name_, rule_, summary_, .renew = renew_ours), .bug = PLANTED_KEEPER,     \
									.keep = keep_              \
	}

const struct planted_lease vb_planted_double_grant =
	LEASE_LOCK(PLANTED_CHECK_THEN_ACT, "double-grant", "mode-conflict",
		   "looks whether the lock is free, then writes itself into it");
const struct planted_lease vb_planted_foreign_release =
	LEASE_LOCK(PLANTED_BLIND_RELEASE, "foreign-release", "foreign-release",
		   "releases whatever is there, also after its lease has passed");
/* ShiftLock, figure 2(b): between the decision to recover and the CAS others have recovered, and
 * the state from which to recover has come back. */
const struct planted_lease vb_planted_aba_recovery =
	LEASE_LOCK(PLANTED_SAME_WORD, "aba-recovery", "mode-conflict",
		   "recovers with a CAS from a word that comes back (ShiftLock figure 2b)");
const struct planted_lease vb_planted_stale_token =
	LEASE_LOCK(PLANTED_EARLY_TOKEN, "stale-token", "token-order",
		   "draws its fencing token before it has the lock");
const struct planted_lease vb_planted_late_lease =
	LEASE_LOCK(PLANTED_LEASE_FROM_NOTICE, "late-lease", "mode-conflict",
		   "counts its lease from when it learned of the grant");
const struct planted_lease vb_planted_late_renewal = LEASE_LOCK(
	PLANTED_BLIND_RENEWAL, "late-renewal", "mode-conflict",
	"renews its lease, also when it is over and the lock is another's", .renew = lease_renew);
const struct planted_lease vb_planted_never_too_late =
	LEASE_LOCK(PLANTED_IN_TIME, "never-too-late", "wrong-error",
		   "takes a lock that is lost for broken where its release was posted in time");
const struct planted_lease vb_planted_keep_hopes =
	KEPT_LOCK(vb_planted_keeps_hoping, "keep-hopes", "told-late",
		  "a hold that cannot be renewed is tried on, and told a lease after its end");
const struct planted_lease vb_planted_keep_goes_on =
	KEPT_LOCK(vb_planted_keeps_past_its_end, "keep-goes-on", "kept-on",
		  "a hold is renewed once more when nobody keeps it any more");
const struct planted_lease vb_planted_keep_by_itself =
	KEPT_LOCK(vb_planted_keeps_alone, "keep-by-itself", "guarded-write",
		  "takes a renewal that has no answer for done");

vb_ring_fn vb_planted_keeper(const struct vb_lock_ops *ops)
{
	static const struct planted_lease *const all[] = {
		&vb_planted_keep_hopes, &vb_planted_keep_goes_on, &vb_planted_keep_by_itself};

	for (unsigned i = 0; i < VB_ARRAY_SIZE(all); i++)
		if (&all[i]->ops == ops)
			return all[i]->keep;
	return NULL;
}
