/* SPDX-License-Identifier: Apache-2.0 */
/*
 * to-cascade that gets its cascades wrong, each in one place:
 *
 *	planted:no-cascade      commits whatever becomes of those whose writes it has read
 *	planted:late-undo       lets a record go before it puts back what was there
 */
#include "cc/to_cascade.h"
#include "check/planted/planted.h"

/* ---- no cascade ---- */

static const struct vb_stage_ops stages[] = TO_CASCADE_STAGE_TABLE(to_cascade_depend, to_commit);

const struct vb_cc_ops vb_planted_no_cascade = {
	.name = "planted:no-cascade",
	.summary = "to-cascade that does not wait for those whose writes it has read",
	.source = "on purpose",
	.planted = "G1a",
	TO_CASCADE_OPS(stages),
};

/* ---- late undo ---- */

static void let_go_and_undo(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];

		vb_acc_cas(s->acc, VB_AMOD_IM, it->at + vb_item_layout(it)->lock_at, it->held, 0,
			   &it->seen);
	}
	if (!vb_stage_go(s, items, n))
		return;
	for (unsigned i = 0; i < n; i++) {
		items[i]->status = 0;
		vb_stage_write_tuple(s, items[i]);
	}
	(void)vb_stage_go(s, items, n);
}

static const struct vb_stage_ops late_undo_stages[] =
	TO_CASCADE_STAGE_TABLE(to_cascade_depend, let_go_and_undo);

const struct vb_cc_ops vb_planted_late_undo = {
	.name = "planted:late-undo",
	.summary = "to-cascade that lets a record go before it puts back what was there",
	.source = "on purpose",
	.planted = "not-serializable",
	.decide = to_cascade_decide,
	TO_CASCADE_OPS(late_undo_stages),
};
