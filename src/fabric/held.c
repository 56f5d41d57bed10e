/* SPDX-License-Identifier: Apache-2.0 */
/* Regions that come and go: fabric.h says what it means to hold one, and to take it.  And where one fits between
 * the others. */
#define VB_LOG_ROOM "fabric"
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/fabric.h"

/* Hooks have no part in it. */
static struct vb_fabric *keeper_of(struct vb_fabric *f)
{
	while (f->ops->region_hold == NULL)
		f = f->lower;
	return f;
}

static int being_removed(const char *name, vb_peer by)
{
	return vb_fail(-EAGAIN,
		       "region '%s' is being removed by client %u at node %u; try again when that "
		       "has come to its end",
		       name, vb_peer_client(by), vb_peer_node(by));
}

/* Of other nodes than 0 nothing is held where node 0 says it of all. */
static bool is_kept(const struct vb_fabric *low, uint16_t node)
{
	return node == 0 || low->ops->region_used != NULL;
}

int vb_region_hold(struct vb_fabric *f, uint16_t node, const char *name, uint64_t bytes,
		   struct vb_region_held *out)
{
	struct vb_fabric *low = keeper_of(f);
	vb_peer by = VB_PEER_NONE, was;
	int err;

	if (!is_kept(low, node))
		return vb_region_or_other(f, node, name, bytes, &out->at, &out->fresh);
	do {
		was = by;
		err = low->ops->region_hold(low, node, name, bytes, out, &by);
		if (err != -EALREADY)
			return err;
		if (vb_peer_alive(f, by))
			return being_removed(name, by);
		/* Who finds it in use gives it back, and closes his endpoint behind that: so once more. */
	} while (by != was);
	return -EOWNERDEAD;
}

int vb_region_hold_again(struct vb_fabric *f, const char *name, struct vb_region_held *held)
{
	f = keeper_of(f);
	return f->ops->region_hold_again != NULL ? f->ops->region_hold_again(f, name, held) : 0;
}

void vb_region_let_go(struct vb_fabric *f, const struct vb_region_held *held)
{
	f = keeper_of(f);
	if (is_kept(f, vb_addr_node(held->at)))
		f->ops->region_let_go(f, held);
}

int vb_region_used(struct vb_fabric *f, uint16_t node, const char *name)
{
	f = keeper_of(f);
	return f->ops->region_used != NULL ? f->ops->region_used(f, node, name) : 0;
}

/* Each turn but the first is for one who has died with the region taken. */
int vb_region_take(struct vb_fabric *f, const char *name, vb_peer me)
{
	struct vb_fabric *low = keeper_of(f);
	vb_peer by = VB_PEER_NONE;
	int err;

	while ((err = low->ops->region_take(low, name, me, &by)) == -EALREADY)
		if (vb_peer_alive(f, by))
			return being_removed(name, by);
	return err;
}

int vb_region_remove(struct vb_fabric *f, uint16_t node, uint64_t id)
{
	f = keeper_of(f);
	return f->ops->region_remove(f, node, id);
}

/* ---- memory ---- */

static uint64_t end_of(uint64_t at, uint64_t bytes)
{
	const uint64_t most = UINT64_MAX - VB_CACHELINE;

	return at < most && bytes < most - at ? at + bytes : most;
}

/* Behind what is in the way there may be more that was passed: so until nothing is. */
uint64_t vb_span_fit(const struct vb_span *spans, unsigned n, uint64_t start, uint64_t bytes)
{
	uint64_t at = start, before;

	do {
		before = at;
		for (unsigned i = 0; i < n; i++) {
			uint64_t end = end_of(spans[i].at, spans[i].bytes);

			if (spans[i].bytes != 0 && spans[i].at < end_of(at, bytes) && end > at)
				at = (end + VB_CACHELINE - 1) & ~(uint64_t)(VB_CACHELINE - 1);
		}
	} while (at != before);
	return at;
}

/* An emulator may say that it has done what it has not (qemu-user). */
static bool is_heard(int advice, size_t page)
{
	int kind = advice == MADV_REMOVE ? MAP_SHARED : MAP_PRIVATE;
	unsigned char *probe =
		mmap(NULL, page, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);
	bool heard;

	if (probe == MAP_FAILED)
		return false;
	*probe = 1;
	heard = madvise(probe, page, advice) == 0 && *(volatile unsigned char *)probe == 0;
	munmap(probe, page);
	return heard;
}

void vb_zero_pages(void *at, uint64_t bytes, int advice)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)at, to = from + bytes;
	uintptr_t first = (from + page - 1) & ~(page - 1), last = to & ~(page - 1);

	if (advice == 0 || first >= last || !is_heard(advice, page) ||
	    madvise((void *)first, last - first, advice) != 0) {
		memset(at, 0, bytes);
		return;
	}
	memset(at, 0, first - from);
	memset((void *)last, 0, to - last);
}
