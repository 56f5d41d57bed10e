/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transaction protocols that are wrong only when somebody comes late, each in one place:
 *
 *	planted:blind-server   no-wait whose servers commit without a look whether the lock still stands
 *	planted:late-server    no-wait whose servers look, and may then write at any time
 *	planted:late-commit    no-wait whose coordinators may write at any time after their commit point
 */
#include "cc/two_phase.h"
#include "check/planted/planted.h"

static vb_addr lock_word(const struct vb_item *it)
{
	return it->at + vb_item_layout(it)->lock_at;
}

static void lock_x(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	two_phase_lock_x(s, items, n, no_wait_judge);
}

/* As if the server were the coordinator. */
static void commit_as_own(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	bool for_other = s->for_other;

	s->for_other = false;
	two_phase_commit(s, items, n);
	s->for_other = for_other;
}

static void commit_after_a_look(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	struct vb_item *mine[VB_STAGE_ITEMS];
	uint64_t word[VB_STAGE_ITEMS];
	unsigned m = 0;

	if (!s->for_other) {
		two_phase_commit(s, items, n);
		return;
	}
	for (unsigned i = 0; i < n; i++)
		vb_acc_read(s->acc, VB_AMOD_IM, lock_word(items[i]), &word[i], 8);
	if (!vb_stage_go(s, items, n))
		return;
	for (unsigned i = 0; i < n; i++) {
		items[i]->status = 0;
		if (word[i] == items[i]->held)
			mine[m++] = items[i];
	}
	commit_as_own(s, mine, m);
}

static void commit_whenever(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	uint64_t not_after_ns = s->acc->not_after_ns;

	s->acc->not_after_ns = 0;
	two_phase_commit(s, items, n);
	s->acc->not_after_ns = not_after_ns;
}

#define COMMITS(commit_fn)                                                                         \
	{                                                                                          \
		[TWO_PHASE_LOCK] = {.name = "lock",                                                \
				    .flags = VB_STAGE_FETCHES | VB_STAGE_MAKES,                    \
				    .run = lock_x},                                                \
		[TWO_PHASE_COMMIT] = {.name = "commit",                                            \
				      .flags = VB_STAGE_WRITES,                                    \
				      .run = commit_fn},                                           \
		[TWO_PHASE_RELEASE] = {.name = "release", .run = two_phase_release},               \
	}

static const struct vb_stage_ops blind_stages[] = COMMITS(commit_as_own);
static const struct vb_stage_ops late_server_stages[] = COMMITS(commit_after_a_look);
static const struct vb_stage_ops late_commit_stages[] = COMMITS(commit_whenever);

const struct vb_cc_ops vb_planted_blind_server = {
	.name = "planted:blind-server",
	.summary = "no-wait whose servers do not look whether the lock still stands",
	.source = "on purpose",
	.planted = "not-serializable",
	TWO_PHASE_OPS(blind_stages),
};

const struct vb_cc_ops vb_planted_late_server = {
	.name = "planted:late-server",
	.summary = "no-wait whose servers may write long after they have looked",
	.source = "on purpose",
	.planted = "not-serializable",
	TWO_PHASE_OPS(late_server_stages),
};

const struct vb_cc_ops vb_planted_late_commit = {
	.name = "planted:late-commit",
	.summary = "no-wait whose coordinators may write long after their commit point",
	.source = "on purpose",
	.planted = "not-serializable",
	TWO_PHASE_OPS(late_commit_stages),
};
