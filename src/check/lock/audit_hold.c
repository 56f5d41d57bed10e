/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who holds what, as the auditor knows it.
 *
 * Why no pair of conflicting holders slips through unseen.  A grant is entered in two steps: first
 * the hold is published in its client's table (P), then one fetch-and-add on the lock's shadow word
 * counts it and returns how many holders were counted before (C).  All C of one lock are atomics on
 * one word and therefore ordered; of two holders the one with the later C gets the other's count
 * back, and, as C is acquire and release and read-modify-writes continue each other's release
 * sequence, it also sees the other's P.  So the later one finds the earlier one.  Leaving takes the
 * hold out of the count before it is unpublished and goes through a state of its own, which a
 * search passes over: a hold that is found was published and not being given back at that moment,
 * hence what is found is a true overlap.  A client that is killed between two steps leaves a count
 * that is too high.  This costs searches that find nothing, never a verdict.
 */
#include "check/lock/audit_inner.h"

bool audit_read_hold(const struct audit_hold *h, struct audit_hold *out)
{
	uint64_t word = get(&h->word);

	if ((word & 3) != HOLD_ENTERING && (word & 3) != HOLD_HELD)
		return false;
	out->lock = get(&h->lock);
	out->mode = get(&h->mode);
	out->token = get(&h->token);
	out->called_at = get(&h->called_at);
	out->queued_at = get(&h->queued_at);
	out->granted_at = get(&h->granted_at);
	out->valid_until = get(&h->valid_until);
	/* ENTERING may have become HELD: the same hold. */
	return get(&h->word) >> 2 == word >> 2 && (get(&h->word) & 3) != HOLD_LEAVING;
}

static struct audit_hold *hold_at(struct vb_audit *a, unsigned client, unsigned slot)
{
	vb_assert(slot < a->claims);
	/* The first ones of all clients beside each other: most clients never have another. */
	return &a->hold[(size_t)slot * a->clients + client];
}

/* Alone the client's own thread writes it. */
static void mark_used(struct vb_audit *a, unsigned client, unsigned slot, bool on)
{
	uint64_t *word = &a->used[(size_t)client * a->words + slot / 64], bit = 1ull << slot % 64;

	set(word, on ? get_relaxed(word) | bit : get_relaxed(word) & ~bit);
}

struct audit_hold *audit_next_hold(struct vb_audit *a, unsigned client, unsigned *at)
{
	while (*at < a->claims) {
		uint64_t left = get(&a->used[(size_t)client * a->words + *at / 64]) >> *at % 64;

		if (left != 0) {
			*at += (unsigned)__builtin_ctzll(left) + 1;
			return hold_at(a, client, *at - 1);
		}
		*at = (*at / 64 + 1) * 64;
	}
	return NULL;
}

/*
 * Who reads a hold looks at the word, at the fields and at the word again, each time with acquire, while all
 * that is written here is a release: a field of another generation is followed by the word of that generation.
 * The count is changed before a grant is judged and before a lock is let go, by one word's order: of two who
 * hold a lock at once the later sees the earlier, with his hold.
 */
void audit_enter_hold(struct vb_audit *a, const struct vb_lock_client *me, unsigned slot,
		      const struct audit_hold *from, uint64_t *count_before)
{
	struct audit_hold *h = hold_at(a, me->index, slot);
	uint64_t generation = (get_relaxed(&h->word) >> 2) + 1;

	set(&h->word, generation << 2 | HOLD_FREE);
	set(&h->lock, from->lock);
	set(&h->mode, from->mode);
	set(&h->token, from->token);
	set(&h->called_at, from->called_at);
	set(&h->queued_at, from->queued_at);
	set(&h->granted_at, from->granted_at);
	set(&h->valid_until, from->valid_until);
	set(&h->word, generation << 2 | HOLD_ENTERING);
	mark_used(a, me->index, slot, true);
	*count_before = __atomic_fetch_add(&a->lock[from->lock].count, count_of(from->mode),
					   __ATOMIC_ACQ_REL);
	set(&h->word, generation << 2 | HOLD_HELD);
}

void audit_leave_hold(struct vb_audit *a, unsigned client, struct audit_hold *h)
{
	uint64_t generation = get_relaxed(&h->word) >> 2;

	set(&h->word, generation << 2 | HOLD_LEAVING);
	__atomic_fetch_sub(&a->lock[h->lock].count, count_of(h->mode), __ATOMIC_ACQ_REL);
	set(&h->word, generation << 2 | HOLD_FREE);
	mark_used(a, client, (unsigned)(h - hold_at(a, client, 0)), false);
}

struct audit_hold *audit_find_hold(struct vb_audit *a, const struct vb_lock_client *me,
				   const struct vb_claim *claim)
{
	struct audit_hold *h = hold_at(a, me->index, claim->slot);

	return (get_relaxed(&h->word) & 3) == HOLD_HELD && h->lock == claim->lock ? h : NULL;
}

void audit_leave_all(struct vb_audit *a, unsigned client)
{
	struct audit_hold *h;
	unsigned at = 0;

	while ((h = audit_next_hold(a, client, &at)) != NULL) {
		if ((get(&h->word) & 3) == HOLD_HELD) {
			audit_leave_hold(a, client, h);
			continue;
		}
		set(&h->word, (get(&h->word) & ~3ull) | HOLD_FREE);
		mark_used(a, client, at - 1, false);
	}
}
