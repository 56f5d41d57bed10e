/* SPDX-License-Identifier: Apache-2.0 */
/* What the shared memory fabric offers beyond the fabric interface. */
#ifndef VB_FABRIC_SHM_SHM_H
#define VB_FABRIC_SHM_SHM_H

#include <sys/types.h>

#include "fabric/fabric.h"

/*
 * For a parent that has reaped a child: the endpoints of `pid` are marked dead, so that a SEND to
 * them fails at once with -VB_EPEERGONE and their slots can be used again.  Without it a sender
 * finds out when the ring fills up.  f may be wrapped in hooks; on other fabrics nothing happens.
 */
void vb_shm_mark_dead(struct vb_fabric *f, pid_t pid);

/* For who holds the exclusive flock on a segment's file: does nobody use it?  (A user may have closed
 * the descriptor that has his lock.) */
bool vb_shm_left_over(int fd);

#endif
