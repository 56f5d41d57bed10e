/* SPDX-License-Identifier: Apache-2.0 */
/* What has a name in a node's memory, as a program sees it: its regions, by who makes them. */
#define VB_LOG_ROOM "fabric"
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "fabric/opened.h"

/* So many at first; a node has no more as a rule. */
#define ROOM         64u
#define MADE_LOOK_NS 20000000

/* lock/space.c, lock/names.c and txn/db.c give these names; all others are parts of theirs. */
static const struct {
	const char *begin;
	enum vb_named_kind kind;
} kinds[] = {
	{"lock:", VB_NAMED_LOCKS},
	{"name:", VB_NAMED_NAMES},
	{"db:", VB_NAMED_DB},
};

static struct vb_named named(const struct vb_region_info *r)
{
	for (size_t i = 0; i < VB_ARRAY_SIZE(kinds); i++) {
		size_t n = strlen(kinds[i].begin);

		if (strncmp(r->name, kinds[i].begin, n) == 0)
			return (struct vb_named){
				.kind = kinds[i].kind, .name = r->name + n, .bytes = r->bytes};
	}
	return (struct vb_named){.kind = VB_NAMED_PART, .name = r->name, .bytes = r->bytes};
}

/* Copied, so that no lock of the fabric's is held when the program is called. */
int vb_regions_all(struct vb_fabric *f, uint16_t node, struct vb_region_info **out)
{
	VB_SCHED_INSIDE(vb_sched_here());
	unsigned room = ROOM;
	int n;

	for (;;) {
		*out = calloc(room, sizeof(**out));
		if (*out == NULL)
			return vb_fail(-ENOMEM, "no memory for a list of names");
		n = vb_regions(f, node, *out, room);
		if (n <= (int)room)
			break;
		room = (unsigned)n;
		free(*out);
	}
	if (n < 0)
		free(*out);
	return n;
}

/* 1: it is there; 0; or -error. */
static int is_there(struct vb_fabric *f, uint16_t node, const char *name)
{
	struct vb_region_info *all;
	int n = vb_regions_all(f, node, &all), found = 0;

	if (n < 0)
		return n;
	for (int i = 0; i < n && !found; i++)
		found = strcmp(all[i].name, name) == 0;
	free(all);
	return found;
}

int vb_region_made(struct vb_fabric *f, uint16_t node, const char *name, uint64_t bytes,
		   uint64_t patience_ns, vb_addr *out)
{
	const struct timespec pause = {.tv_nsec = MADE_LOOK_NS};
	uint64_t until = vb_clock_gettime_ns() + patience_ns;
	bool fresh;
	int there;

	while ((there = is_there(f, node, name)) == 0) {
		if (vb_clock_gettime_ns() > until)
			return -ENOENT;
		nanosleep(&pause, NULL);
	}
	return there < 0 ? there : vb_region(f, node, name, bytes, out, &fresh);
}

int vb_fabric_each(struct vb_fabric *fabric, uint16_t node, vb_named_fn fn, void *user)
{
	struct vb_region_info *all;
	int n, err;

	if (vb_any_null(fabric, fn))
		return -EINVAL;
	err = vb_fabric_check(fabric);
	if (err == 0)
		err = vb_sched_ready();
	if (err)
		return err;
	n = vb_regions_all(fabric, node, &all);
	if (n < 0)
		return n;
	for (int i = 0; i < n && err == 0; i++) {
		struct vb_named one = named(&all[i]);

		err = fn(user, &one);
	}
	free(all);
	return err;
}
