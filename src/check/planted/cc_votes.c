/* SPDX-License-Identifier: Apache-2.0 */
/* planted:half-asked: votes that asks the servers of what is written, and not those of what was read alone. */
#include "cc/votes.h"
#include "check/planted/planted.h"

static int ask_for_writes(struct vb_txn *t)
{
	return vb_txn_stage_all(t, VOTES_VOTE, VB_ITEM_WRITE, VB_ITEM_LET_GO);
}

const struct vb_cc_ops vb_planted_half_asked = {
	.name = "planted:half-asked",
	.summary = "votes that asks nobody about what was only read",
	.source = "on purpose",
	.planted = "unasked",
	.caps = VOTES_CAPS,
	VOTES_OPS,
	.prepare = ask_for_writes,
};
