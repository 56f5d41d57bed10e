/* SPDX-License-Identifier: Apache-2.0 */
/* What a client leaves in a queue that it cannot leave at once: see proxy.c. */
#ifndef VB_LOCK_PROXY_H
#define VB_LOCK_PROXY_H

#include "lock/lock.h"

/* BUSY -> PROXY: leaves a proxy in the place of a queued claim.  -ENOMEM: it is as before. */
int vb_proxy_leave(struct vb_lock_client *me, struct vb_claim *c);
/*
 * The client asks for a lock in whose queue its proxy stands.  Same mode, and no fewer leases:
 * takes the place over, 0 and *out.  Otherwise: waits for the proxy to be through, 0 and *out =
 * NULL.
 */
int vb_proxy_adopt(struct vb_lock_client *me, struct vb_claim *c, enum vb_mode mode,
		   uint32_t leases, uint64_t until_ns, struct vb_claim **out);
/* The client closes: waits for the proxy's turn until until_ns, where leases bound it.  A proxy
 * that is left then (me->proxies) makes the client a ghost. */
void vb_proxy_close(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns);

/* ---- ghost.c ---- */

/* The closed client is its proxies' from now on. */
void vb_ghost_begin(struct vb_lock_client *me);
/* For the last proxy: takes its client down. */
void vb_ghost_end(struct vb_lock_client *me);
/* Waits until the space has no ghosts. */
void vb_ghost_space_close(struct vb_lock_space *space);

#endif
