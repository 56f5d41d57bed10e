/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VB_LOCK_HEADER_H
#define VB_LOCK_HEADER_H

#include "lock/lock.h"

/* Fills the header of node's region (fresh), or waits for it and compares: 0; -EINVAL: another
 * protocol, layout, lease or number of locks; -EAGAIN: never finished; or what the fabric says. */
int vb_lock_header_open(struct vb_lock_space *s, uint16_t node, bool fresh, uint64_t hash);

/* A READ of a header over a link that may be down for a moment; -VB_EUNKNOWN, -VB_EPEERGONE: it was
 * for seconds. */
int vb_lock_header_read(struct vb_ep *ep, vb_addr at, void *buf, uint32_t len);

/* Writes a server's name where clients look for it, and takes it away again. */
int vb_lock_header_announce(struct vb_lock_server *server);
void vb_lock_header_withdraw(struct vb_lock_server *server);

#endif
