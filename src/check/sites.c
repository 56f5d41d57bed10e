/* SPDX-License-Identifier: Apache-2.0 */
/* Adds up which rare branches a campaign has reached: see sites.h. */
#define VB_LOG_ROOM "check"
#include "check/sites.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct vb_reached *)a)->site->name,
		      ((const struct vb_reached *)b)->site->name);
}

int vb_sites_open(struct vb_sites_of *s, const char *groups)
{
	unsigned n;
	struct vb_site **all = vb_sites_all(&n);

	*s = (struct vb_sites_of){.site = calloc(n + 1, sizeof(*s->site))};
	if (s->site == NULL)
		return vb_fail(-ENOMEM, "no memory for the sites of a campaign");
	for (unsigned i = 0; i < n; i++)
		if (vb_site_is_of(all[i], groups))
			s->site[s->n++].site = all[i];
	qsort(s->site, s->n, sizeof(*s->site), by_name);
	return 0;
}

void vb_sites_close(struct vb_sites_of *s)
{
	free(s->site);
	*s = (struct vb_sites_of){0};
}

void vb_sites_add(struct vb_sites_of *s, uint64_t seed)
{
	for (unsigned i = 0; i < s->n; i++) {
		struct vb_reached *r = &s->site[i];

		if (r->site->hits == 0)
			continue;
		if (r->seeds++ == 0)
			r->first = seed;
		r->hits += r->site->hits;
	}
}
