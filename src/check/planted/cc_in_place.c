/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wound-wait that writes in place before its commit point, and when it has been wounded does not put
 * back what was there:
 *
 *	planted:lost-undo      under the name of the transaction
 *	planted:lost-try       under the name of the try, and its next try has that name, too
 */
#include "cc/two_phase.h"
#include "check/planted/planted.h"
#include "txn/db.h"

enum { IN_PLACE_LOCK, IN_PLACE_COMMIT, IN_PLACE_RELEASE, IN_PLACE_WRITE, IN_PLACE_STAGES };

static void lock_wound(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	two_phase_lock_x(s, items, n, wound_wait_judge);
}

/* The version that writes the item under this name. */
static uint64_t next_of(const struct vb_item *it, uint64_t name)
{
	return name |
	       (vb_tuple_word(it->image, vb_item_layout(it)->version_at) & VB_VERSION_ABSENT);
}

static void write_in_place(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		items[i]->status = 0;
		vb_stage_write_tuple(s, items[i]);
	}
	(void)vb_stage_go(s, items, n);
}

static int prepare_in_place(struct vb_txn *t)
{
	return vb_txn_stage_all(t, IN_PLACE_WRITE, VB_ITEM_WRITE, 0);
}

#define IN_PLACE_STAGE_TABLE(write_fn)                                                             \
	{                                                                                          \
		[IN_PLACE_LOCK] = {.name = "lock",                                                 \
				   .flags = VB_STAGE_FETCHES | VB_STAGE_MAKES,                     \
				   .run = lock_wound},                                             \
		[IN_PLACE_COMMIT] = {.name = "commit",                                             \
				     .flags = VB_STAGE_WRITES,                                     \
				     .run = two_phase_commit},                                     \
		[IN_PLACE_RELEASE] = {.name = "release", .run = two_phase_release},                \
		[IN_PLACE_WRITE] = {.name = "write", .flags = VB_STAGE_WRITES, .run = write_fn},   \
	}

#define IN_PLACE_OPS(table)                                                                        \
	.stages = table, .n_stages = IN_PLACE_STAGES, .commit = IN_PLACE_COMMIT,                   \
	.release = IN_PLACE_RELEASE, TWO_PHASE_ITEMS

/* ---- lost undo ---- */

static void write_as_txn(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		items[i]->next = next_of(items[i], s->ts);
	write_in_place(s, items, n);
}

static const struct vb_stage_ops undo_stages[] = IN_PLACE_STAGE_TABLE(write_as_txn);

const struct vb_cc_ops vb_planted_lost_undo = {
	.name = "planted:lost-undo",
	.summary = "wound-wait that leaves what it wrote when it aborts",
	.source = "on purpose",
	.planted = "G1a",
	.caps = VB_CC_STATUS,
	IN_PLACE_OPS(undo_stages),
	.prepare = prepare_in_place,
};

/* ---- lost try ---- */

static int prepare_try(struct vb_txn *t)
{
	for (unsigned i = 0; i < t->n; i++)
		t->item[i].next = next_of(&t->item[i], t->version);
	return prepare_in_place(t);
}

static const struct vb_stage_ops try_stages[] = IN_PLACE_STAGE_TABLE(write_in_place);

const struct vb_cc_ops vb_planted_lost_try = {
	.name = "planted:lost-try",
	.summary = "wound-wait that leaves what a try wrote, and tries again under the same name",
	.source = "on purpose",
	.planted = "G1a",
	.caps = VB_CC_STRICT | VB_CC_READ_LOCKS | VB_CC_AGE | VB_CC_STATUS,
	IN_PLACE_OPS(try_stages),
	.prepare = prepare_try,
};
