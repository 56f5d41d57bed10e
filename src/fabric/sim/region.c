/* SPDX-License-Identifier: Apache-2.0 */
/* Named regions of the simulated nodes: one thread has them all, so a call is one moment. */
#define VB_LOG_ROOM "sim"
#include <inttypes.h>
#include <sys/mman.h>

#include "base/log.h"
#include "fabric/sim/inner.h"

#define REGION_START VB_CACHELINE /* the first line is nobody's: no address is 0 */

/* Hooks have been passed. */
static struct sim *sim_of(struct vb_fabric *f)
{
	return vb_container_of(f, struct sim, base);
}

static struct sim_region *region_find(struct sim *s, uint16_t node, const char *name)
{
	for (unsigned i = 0; i < s->n_regions; i++)
		if (s->regions[i].node == node && strcmp(s->regions[i].name, name) == 0)
			return &s->regions[i];
	return NULL;
}

/* Where it would lie; UINT64_MAX: no memory to think with. */
static uint64_t place_of(struct sim *s, uint16_t node, uint64_t bytes)
{
	struct vb_span *spans = calloc(s->n_regions + 1, sizeof(*spans));
	unsigned n = 0;
	uint64_t at;

	if (spans == NULL)
		return UINT64_MAX;
	for (unsigned i = 0; i < s->n_regions; i++)
		if (s->regions[i].node == node)
			spans[n++] = (struct vb_span){.at = vb_addr_offset(s->regions[i].addr),
						      .bytes = s->regions[i].bytes};
	at = vb_span_fit(spans, n, REGION_START, bytes);
	free(spans);
	return at;
}

static int region_add(struct sim *s, uint16_t node, const char *name, uint64_t bytes,
		      struct sim_region **out)
{
	uint64_t at = place_of(s, node, bytes);
	struct sim_region *r;

	if (at != UINT64_MAX && (s->n_regions == SIM_REGIONS_MAX || bytes > s->base.node_bytes ||
				 at > s->base.node_bytes - bytes))
		return vb_fail(-ENOSPC, "no room for region '%s' of %" PRIu64 " bytes on node %u",
			       name, bytes, node);
	r = at != UINT64_MAX ? realloc(s->regions, (s->n_regions + 1) * sizeof(*r)) : NULL;
	if (r != NULL) {
		s->regions = r;
		r += s->n_regions;
		*r = (struct sim_region){.name = strdup(name)};
	}
	if (r == NULL || r->name == NULL)
		return vb_fail(-ENOMEM, "no memory for region '%s'", name);
	r->node = node;
	r->addr = vb_addr_make(node, at);
	r->bytes = bytes;
	r->id = ++s->regions_made;
	s->n_regions++;
	*out = r;
	return 0;
}

static int region_get(struct sim *s, uint16_t node, const char *name, uint64_t bytes,
		      struct sim_region **r, bool *fresh)
{
	*fresh = false;
	*r = region_find(s, node, name);
	if (*r != NULL)
		return (*r)->bytes == bytes ? 0 : -EEXIST;
	*fresh = true;
	return region_add(s, node, name, bytes, r);
}

int sim_region(struct vb_fabric *f, uint16_t node, const char *name, uint64_t bytes, vb_addr *out,
	       bool *fresh)
{
	struct sim_region *r;
	bool made;
	int err = region_get(sim_of(f), node, name, bytes, &r, &made);

	if (err != 0 && err != -EEXIST)
		return err;
	*out = r->addr;
	*fresh = made;
	return err;
}

int sim_regions(struct vb_fabric *f, uint16_t node, struct vb_region_info *out, unsigned room)
{
	const struct sim *s = sim_of(f);
	unsigned n = 0;

	for (unsigned i = 0; i < s->n_regions; i++) {
		const struct sim_region *r = &s->regions[i];

		if (r->node != node)
			continue;
		if (n < room) {
			snprintf(out[n].name, sizeof(out[n].name), "%s", r->name);
			out[n].bytes = r->bytes;
			out[n].id = r->id;
		}
		n++;
	}
	return (int)n;
}

/* ---- those that come and go ---- */

int sim_region_hold(struct vb_fabric *f, uint16_t node, const char *name, uint64_t bytes,
		    struct vb_region_held *out, vb_peer *by)
{
	struct sim_region *r;
	bool made;
	int err = region_get(sim_of(f), node, name, bytes, &r, &made);

	if (err != 0 && err != -EEXIST)
		return err;
	if (r->by != VB_PEER_NONE) {
		*by = r->by;
		return -EALREADY;
	}
	r->holds++;
	*out = (struct vb_region_held){.at = r->addr, .fresh = made, .id = r->id};
	return err;
}

void sim_region_let_go(struct vb_fabric *f, const struct vb_region_held *held)
{
	struct sim *s = sim_of(f);

	for (unsigned i = 0; i < s->n_regions; i++)
		if (s->regions[i].id == held->id)
			s->regions[i].holds--;
}

int sim_region_take(struct vb_fabric *f, const char *name, vb_peer me, vb_peer *by)
{
	struct sim_region *r = region_find(sim_of(f), 0, name);

	if (r == NULL)
		return -ENOENT;
	if (r->by != VB_PEER_NONE && r->by != *by) {
		*by = r->by;
		return -EALREADY;
	}
	if (r->holds > 0)
		return vb_fail(-EBUSY, "'%s' is in use: it is open here, %u time%s", name, r->holds,
			       r->holds == 1 ? "" : "s");
	r->by = me;
	return 0;
}

int sim_region_remove(struct vb_fabric *f, uint16_t node, uint64_t id)
{
	struct sim *s = sim_of(f);

	for (unsigned i = 0; i < s->n_regions; i++) {
		struct sim_region *r = &s->regions[i];

		if (r->node != node || r->id != id)
			continue;
		vb_zero_pages(f->ops->local(f, r->addr, r->bytes), r->bytes, MADV_DONTNEED);
		free(r->name);
		memmove(r, r + 1, (size_t)(&s->regions[--s->n_regions] - r) * sizeof(*r));
		break;
	}
	return 0;
}
