/* SPDX-License-Identifier: Apache-2.0 */
/* What votes.c has for the planted one that builds on it. */
#ifndef VB_CC_VOTES_H
#define VB_CC_VOTES_H

#include "cc/two_phase.h"

enum { VOTES_LOCK, VOTES_VOTE, VOTES_COMMIT, VOTES_RELEASE, VOTES_STAGES };

extern const struct vb_stage_ops votes_stages[VOTES_STAGES];

#define VOTES_CAPS                                                                                 \
	(VB_CC_STRICT | VB_CC_READ_LOCKS | VB_CC_SHORT_READS | VB_CC_BOUNDED | VB_CC_SHARED)
#define VOTES_OPS                                                                                  \
	TWO_PHASE_SX_WORDS, TWO_PHASE_ITEMS, .stages = votes_stages, .n_stages = VOTES_STAGES,     \
					     .commit = VOTES_COMMIT, .release = VOTES_RELEASE

#endif
