/* SPDX-License-Identifier: Apache-2.0 */
/* See claims.h. */
#include "lab/reproduce/claims.h"

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
