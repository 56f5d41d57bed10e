/* SPDX-License-Identifier: Apache-2.0 */
/* What the papers claim, the lines of data/claims.tsv, and their experiments, all together. */
#include "lab/reproduce/reproduce.h"

#include <string.h>

#include "base/compiler.h"

const struct vb_paper_claim vb_paper_claims[] = {
#include "vb_claims.inc" /* scripts/claims.sh */
};
const unsigned vb_paper_claim_count = VB_ARRAY_SIZE(vb_paper_claims);

const struct vb_paper_claim *vb_paper_claim_find(const char *id)
{
	for (unsigned i = 0; i < vb_paper_claim_count; i++)
		if (strcmp(vb_paper_claims[i].id, id) == 0)
			return &vb_paper_claims[i];
	return NULL;
}

const struct vb_experiment *vb_repro_experiment(unsigned i)
{
	static const struct vb_experiment *const papers[] = {vb_repro_dslr, vb_repro_shiftlock,
							     vb_repro_eth};

	for (unsigned p = 0; p < VB_ARRAY_SIZE(papers); p++)
		for (const struct vb_experiment *e = papers[p]; e->name != NULL; e++)
			if (i-- == 0)
				return e;
	return NULL;
}
