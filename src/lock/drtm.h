/* SPDX-License-Identifier: Apache-2.0 */
/* DrTM's lock (drtm.c), for the planted lock that runs it with a bug: check/planted/blind.c. */
#ifndef VB_LOCK_DRTM_H
#define VB_LOCK_DRTM_H

#include "lock/lock.h"

struct drtm_options {
	uint64_t clock_bound_ns, read_lease_ns, read_least_ns;
	uint64_t backoff_base_ns, backoff_cap_ns;
	/* What is kept free on either side of a lease's end: clock_bound, unless that is the
	 * bug. */
	uint64_t margin_ns;
	/* read_lease, or the space's, or what auto begins with. */
	uint64_t lease_ns;
};
extern const struct vb_opt drtm_option_table[];

int drtm_open(struct vb_lock_space *space);
int drtm_client_open(struct vb_lock_client *me);
int drtm_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns);
int drtm_try(struct vb_lock_client *me, struct vb_claim *c);
int drtm_renew(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns);
int drtm_release(struct vb_lock_client *me, struct vb_claim *c);

#endif
