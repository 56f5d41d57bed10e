/* SPDX-License-Identifier: Apache-2.0 */
/* A space's name, and whose the holds of its regions are (space.c takes them): after a fork the child has the space, and
 * the fabric knows of its parent.  Where a fabric survives a fork, node 0's region is held, and no other. */
#define VB_LOG_ROOM "lock"
#include "base/log.h"
#include "lock/lock.h"

#define NAME_MOST 31u

int vb_lock_space_check(const char *name)
{
	if (name[0] != '\0' && strlen(name) <= NAME_MOST)
		return 0;
	return vb_fail(-EINVAL, "a lock space's name has 1 to %u characters", NAME_MOST);
}

/* -ENOENT, not said: it was removed before. */
static int hold_again(struct vb_lock_space *s)
{
	uint32_t forks = s->fabric->forks, seen = __atomic_load_n(&s->hold_forks, __ATOMIC_ACQUIRE);
	char name[VB_LOCK_REGION];
	int err;

	if (vb_likely(seen == forks))
		return 0;
	vb_lock_part_region(VB_LOCK_LOCKS, s->name, 0, name);
	err = vb_region_hold_again(s->fabric, name, &s->held[0]);
	/* Two threads of a child may do this at once: once is enough. */
	if (err == 0 && !__atomic_compare_exchange_n(&s->hold_forks, &seen, forks, false,
						     __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		vb_region_let_go(s->fabric, &s->held[0]);
	return err;
}

int vb_lock_space_hold(struct vb_lock_space *s)
{
	int err = hold_again(s);

	if (err == -ENOENT)
		return vb_fail(err,
			       "lock space '%s' was removed before this process, which was forked "
			       "from one that had it open, has used it: close it",
			       s->name);
	return err;
}

void vb_lock_space_let_go(struct vb_lock_space *s)
{
	if (s->held == NULL || hold_again(s) != 0)
		return;
	for (uint16_t n = s->servers; n-- > 0;)
		if (s->held[n].at != 0)
			vb_region_let_go(s->fabric, &s->held[n]);
}
