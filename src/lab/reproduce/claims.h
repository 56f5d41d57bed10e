/* SPDX-License-Identifier: Apache-2.0 */
/* What the papers claim: the lines of data/claims.tsv, built in. */
#ifndef VB_LAB_REPRODUCE_CLAIMS_H
#define VB_LAB_REPRODUCE_CLAIMS_H

struct vb_paper_claim {
	const char *id, *seed, *where, *systems, *setting, *metric, *claim, *value, *kind, *tier;
};

extern const struct vb_paper_claim vb_paper_claims[];
extern const unsigned vb_paper_claim_count;

/* NULL: no such claim. */
const struct vb_paper_claim *vb_paper_claim_find(const char *id);

#endif
