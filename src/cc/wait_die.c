/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wait-Die (RCC section 4.3, RCBench section 5.1): two-phase locking (cc/two_phase.h) in
 * which a transaction waits for younger ones only, and dies when an older one holds the record
 * that it wants.  All waiting goes from old to young, so there are no deadlocks.  A transaction
 * that died keeps its timestamp when it is tried again, and so becomes the oldest in the end.
 *
 * One-sided, waiting is asking again: CAS and READ, with growing pauses.  By RPC the owner's server
 * asks on our behalf for a while.
 *
 * The oldest may starve: RCC says so and sketches a counter (why a name instead:
 * doc/cc/wait-die.md).  `wait-die` is the paper's; `wait-die-fair` is cured:
 *
 *	reserved word of the tuple   0, or the timestamp of the oldest that waits
 *
 *	must wait                        CAS own timestamp into the word, over 0 or a younger one
 *	has the lock, an older one's     gives the lock back and dies
 *	 is in the word
 *	has the lock, or gives up,       CAS own timestamp back to 0
 *	 and the own one is in the word
 *
 * Otherwise departs from the papers as cc/two_phase.h says; and an -sx reader that has to wait
 * leaves its slot first.
 */
#include "base/sometimes.h"
#include "cc/two_phase.h"

uint8_t wait_die_judge(struct vb_stage *s, struct vb_item *it, uint64_t holder)
{
	(void)it;
	return s->ts < holder ? VB_ITEM_WAIT : VB_TXN_DIED;
}

static void lock_x(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	two_phase_lock_x(s, items, n, wait_die_judge);
}

static void lock_sx(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	two_phase_lock_sx(s, items, n, wait_die_judge);
}

static const struct vb_stage_ops stages_x[] = TWO_PHASE_STAGE_TABLE(lock_x);
static const struct vb_stage_ops stages_sx[] = TWO_PHASE_STAGE_TABLE(lock_sx);

const struct vb_cc_ops vb_cc_wait_die = {
	.name = "wait-die",
	.summary = "two-phase locking; the older waits, the younger dies",
	.source = "RCC section 4.3, RCBench section 5.1",
	.caps = VB_CC_STRICT | VB_CC_READ_LOCKS | VB_CC_SHORT_READS | VB_CC_AGE | VB_CC_WAIT_DIE,
	TWO_PHASE_OPS(stages_x),
};

const struct vb_cc_ops vb_cc_wait_die_sx = {
	.name = "wait-die-sx",
	.summary = "wait-die with shared and exclusive locks",
	.source = "RCBench section 5.1",
	.caps = VB_CC_STRICT | VB_CC_READ_LOCKS | VB_CC_SHORT_READS | VB_CC_AGE | VB_CC_WAIT_DIE |
		VB_CC_SHARED,
	TWO_PHASE_SX_WORDS,
	TWO_PHASE_OPS(stages_sx),
};

/* ---- the cure ---- */

static vb_addr waiter_word(const struct vb_item *it)
{
	return it->at + VB_TUPLE_RESERVED_AT;
}

/* For items that must wait: puts our timestamp into the waiters' word, unless an older one is
 * there. */
static void sign_up(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	uint64_t word[VB_STAGE_ITEMS], old[VB_STAGE_ITEMS];

	for (unsigned i = 0; i < n; i++)
		vb_acc_read(s->acc, VB_READ_DI, waiter_word(items[i]), &word[i], 8);
	if (!vb_stage_go(s, items, n))
		return;
	for (unsigned i = 0; i < n; i++)
		if (word[i] == 0 || word[i] > s->ts)
			vb_acc_cas(s->acc, VB_AMOD_IM, waiter_word(items[i]), word[i], s->ts,
				   &old[i]);
	(void)vb_stage_go(s, items, n);
}

/* The lock is ours: gives way if an older transaction waits for it. */
static void make_way(struct vb_stage *s, struct vb_item *it)
{
	uint64_t waiter = vb_tuple_word(it->image, VB_TUPLE_RESERVED_AT);

	if (waiter == 0 || waiter > s->ts)
		return;
	if (waiter == s->ts) {
		vb_acc_cas(s->acc, VB_AMOD_IM, waiter_word(it), s->ts, 0, &it->seen);
		return;
	}
	VB_SOMETIMES(50, "wait-die-fair: who has the lock gives way to an older one that waits");
	it->status = VB_TXN_DIED;
	it->seen = waiter;
	it->seen_slot = VB_SEEN_RESERVED;
}

static void lock_fair(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	struct vb_item *waits[VB_STAGE_ITEMS];
	bool fetched[VB_STAGE_ITEMS];
	unsigned waiting = 0;

	/* Whose lock we have already has no new image: at a server it is not even the tuple's. */
	for (unsigned i = 0; i < n; i++)
		fetched[i] = !(items[i]->flags & VB_ITEM_FETCHED);
	two_phase_lock_x(s, items, n, wait_die_judge);
	if (s->err != 0)
		return;
	for (unsigned i = 0; i < n; i++) {
		if (items[i]->status == 0 && fetched[i])
			make_way(s, items[i]);
		else if (items[i]->status == VB_ITEM_WAIT && items[i]->at != 0)
			waits[waiting++] = items[i];
	}
	if (!vb_stage_go(s, items, n) || waiting == 0)
		return;
	/* Whether or not the answer comes. */
	for (unsigned i = 0; i < waiting; i++)
		waits[i]->flags |= VB_ITEM_MAYBE_S;
	sign_up(s, waits, waiting);
}

/* On the way out, takes our name out of the waiters' word, too. */
static void release_fair(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	uint64_t old[VB_STAGE_ITEMS];

	for (unsigned i = 0; i < n; i++)
		if (items[i]->at != 0 && items[i]->flags & VB_ITEM_MAYBE_S)
			vb_acc_cas(s->acc, VB_AMOD_IM, waiter_word(items[i]), s->ts, 0, &old[i]);
	two_phase_release(s, items, n);
}

static const struct vb_stage_ops stages_fair[] = {
	[TWO_PHASE_LOCK] = {.name = "lock",
			    .flags = VB_STAGE_FETCHES | VB_STAGE_MAKES,
			    .run = lock_fair},
	[TWO_PHASE_COMMIT] = {.name = "commit", .flags = VB_STAGE_WRITES, .run = two_phase_commit},
	[TWO_PHASE_RELEASE] = {.name = "release", .run = release_fair},
};

static const struct vb_cc_word words_fair[] = {
	{.at = VB_TUPLE_RESERVED_AT, .kind = VB_WORD_WAITER, .n = 1},
};

const struct vb_cc_ops vb_cc_wait_die_fair = {
	.name = "wait-die-fair",
	.summary = "wait-die in which the oldest that waits is next",
	.source = "RCC section 4.3, its limitation cured",
	.caps = VB_CC_STRICT | VB_CC_READ_LOCKS | VB_CC_SHORT_READS | VB_CC_AGE | VB_CC_WAIT_DIE,
	.words = words_fair,
	.n_words = VB_ARRAY_SIZE(words_fair),
	TWO_PHASE_OPS(stages_fair),
};
