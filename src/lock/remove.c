/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removing a lock space: its regions on all nodes, and what else its clients have made there.
 *
 * Node 0's region stands for the space.  Who opens the space holds that one first, before it looks at any other, and
 * until it has closed the space or its process has ended (vb_region_hold).  Who removes it
 *
 *	1. takes that region, which nobody may hold: from here on an open is refused
 *	2. waits out the fabric's bound: what those have posted who closed the space or died has landed, or never will
 *	3. removes all else of the space on all nodes, from the last to the first
 *	4. removes that region.  The next open makes it anew
 *
 * So between 1 and 4 nobody has an address in the space's memory, nor gets one; and an open that finds no region on
 * node 0 finds nothing of the space elsewhere.  An open and a removal at once: the fabric orders hold and take, and the
 * later of the two is refused.
 *
 * Who has the space without holding node 0's region - a client whose hold has ended there, since that server has given
 * it up or has lost it, and a server that has some of its locks and not node 0 (vb_lock_space_open_own) - holds those
 * of the other nodes.  So these are looked at before 1.  Nobody comes to hold one of them after that without node 0's,
 * but a server that begins just then: the node keeps what it has of the space as long as somebody holds it there, and
 * the next open finds it, as after the first server has begun again without its memory.
 *
 * Who dies between 1 and 4 leaves a region that is taken by a client which is dead.  The next one that opens or removes
 * the space takes it over, and begins again at 2: each step may be done twice.  A remover that was only thought dead
 * (a client whose server has given it up) does no harm when it goes on: it names regions by numbers that no later one
 * gets.
 */
#define VB_LOG_ROOM "lock"
#include "lock/lock.h"

#include "base/log.h"
#include "lock/header.h"

/* All of a node, and the one region `last` behind the others. */
static int remove_from(struct vb_fabric *f, uint16_t node, const char *space, const char *last)
{
	struct vb_region_info *all;
	int n = vb_regions_all(f, node, &all), err = 0;
	uint64_t last_id = 0;

	/* Its memory has gone with its process. */
	if (n == -VB_EPEERGONE && vb_node_gone(f, node))
		return 0;
	if (n < 0)
		return n;
	for (int i = 0; i < n && err == 0; i++) {
		if (node == 0 && strcmp(all[i].name, last) == 0)
			last_id = all[i].id;
		else if (vb_lock_part_is(all[i].name, space))
			err = vb_region_remove(f, node, all[i].id);
		if (err == -EBUSY) {
			vb_warn("lock space '%s' is removed but for its locks on node %u, whose "
				"server has begun meanwhile",
				space, node);
			err = 0;
		}
	}
	if (err == 0 && last_id != 0)
		err = vb_region_remove(f, node, last_id);
	free(all);
	return err;
}

/* Of all nodes but 0. */
static int check_free(struct vb_fabric *f, const char *region)
{
	int err = 0;

	for (unsigned n = f->nodes; n > 1 && err == 0; n--)
		err = vb_region_used(f, (uint16_t)(n - 1), region);
	return err;
}

int vb_lock_space_end(struct vb_fabric *f, const char *name, bool begun)
{
	struct vb_ep *ep;
	char region[VB_LOCK_REGION];
	int err = vb_lock_header_ep(f, &ep);

	if (err)
		return err;
	vb_lock_part_region(VB_LOCK_LOCKS, name, 0, region);
	err = begun ? 0 : check_free(f, region);
	if (err == 0)
		err = vb_region_take(f, region, ep->self);
	if (err == 0 && f->caps.verb_bound_ns > 0)
		vb_ep_wait_out(ep, f->caps.verb_bound_ns);
	for (unsigned n = f->nodes; n > 0 && err == 0; n--)
		err = remove_from(f, (uint16_t)(n - 1), name, region);
	/* If that is not all, who comes next finds it taken by an endpoint that is closed. */
	vb_ep_close(ep);
	return err;
}

int vb_lock_space_remove(struct vb_fabric *fabric, const char *name)
{
	VB_SCHED_INSIDE(vb_sched_here());
	int err;

	if (vb_any_null(fabric, name))
		return -EINVAL;
	err = vb_fabric_check(fabric);
	if (err == 0)
		err = vb_sched_ready();
	if (err == 0)
		err = vb_lock_space_check(name);
	if (err)
		return err;
	err = vb_lock_space_end(fabric, name, false);
	if (err == -ENOENT)
		return vb_fail(err, "there is no lock space '%s'", name);
	return err;
}
