/* SPDX-License-Identifier: Apache-2.0 */
/* The rare branches (base/sometimes.h) that a campaign must reach, and how often it did. */
#ifndef VB_CHECK_SITES_H
#define VB_CHECK_SITES_H

#include "base/sometimes.h"

struct vb_reached {
	const struct vb_site *site;
	uint64_t hits, seeds; /* so often, in so many seeds */
	uint64_t first;       /* of these */
};

struct vb_sites_of {
	struct vb_reached *site; /* by name */
	unsigned n;
};

/* Those of these groups; -ENOMEM, said. */
int vb_sites_open(struct vb_sites_of *s, const char *groups);
void vb_sites_close(struct vb_sites_of *s);
/* Adds the seed that was just explored. */
void vb_sites_add(struct vb_sites_of *s, uint64_t seed);
/* Not reached in so many seeds, although these are as many as it takes. */
static inline bool vb_site_is_unreached(const struct vb_reached *r, uint64_t seeds)
{
	return r->hits == 0 && seeds >= r->site->seeds;
}

#endif
