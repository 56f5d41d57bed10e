/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VB_LOCK_HEADER_H
#define VB_LOCK_HEADER_H

#include "lock/lock.h"

/* How node's region was found. */
enum vb_lock_found {
	VB_LOCK_FRESH,
	VB_LOCK_THERE,
	VB_LOCK_OTHER_SIZE, /* there, for other parameters */
};

/* Fills the header of node's region (fresh), or waits for it, finishes it if its maker does not,
 * and compares: 0; -EINVAL: the message says what differs; -EAGAIN: never finished, and not by us
 * either; or what the fabric says.  options: as they were asked for, for the message. */
int vb_lock_header_open(struct vb_lock_space *s, uint16_t node, enum vb_lock_found found,
			uint64_t hash, const char *options);

/* Whether the header is reached with the CPU; if not, with verbs. */
static inline bool vb_lock_header_by_cpu(const struct vb_fabric *f)
{
	return !(f->caps.flags & VB_CAP_CLUSTER);
}

/* Any node of this process, as a place to post verbs to headers from; -EINVAL, logged: it has none. */
int vb_lock_header_ep(struct vb_fabric *f, struct vb_ep **out);

/* ---- workers.c ---- */

/* A verb to a header, over a link that may be down for a moment.  If its answer is lost it is done again,
 * once the first one cannot take effect any more: it must be one that changes nothing then. */
int vb_lock_header_run(struct vb_ep *ep, struct vb_verb *v);

/* The same, of a READ or WRITE. */
int vb_lock_header_verb(struct vb_ep *ep, uint8_t op, vb_addr at, void *buf, uint32_t len);
/* A READ of a header over a link that may be down for a moment; -VB_EUNKNOWN, -VB_EPEERGONE: it was
 * down for seconds. */
int vb_lock_header_read(struct vb_ep *ep, vb_addr at, void *buf, uint32_t len);

/* Takes the place of a worker, before it looks at anything that the one before it may have left: 0,
 * or -EBUSY, logged: a server that lives has it, or serves with another number of workers. */
int vb_lock_header_claim(struct vb_lock_server *server);
/* Says that it answers.  Clients find the workers of a node when all of them do. */
int vb_lock_header_publish(struct vb_lock_server *server);
/* Gives the place back: the next one may begin. */
void vb_lock_header_withdraw(struct vb_lock_server *server);
/* Whether other workers than now, or more or fewer, have died less than `ns` ago. */
bool vb_lock_header_changed(const struct vb_lock_server *server, uint64_t ns);

#endif
