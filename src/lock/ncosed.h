/* SPDX-License-Identifier: Apache-2.0 */
/* N-CoSED (ncosed.c), for the planted lock that runs it with a bug: check/planted/hasty.c. */
#ifndef VB_LOCK_NCOSED_H
#define VB_LOCK_NCOSED_H

#include "lock/lock.h"

struct ncosed_options {
	uint64_t successor_wait_ns;
	/* The bug: a writer does not wait until the readers before it have left. */
	bool hasty;
};
extern const struct vb_opt ncosed_option_table[];

int ncosed_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns);
int ncosed_resume(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns);
int ncosed_try(struct vb_lock_client *me, struct vb_claim *c);
int ncosed_release(struct vb_lock_client *me, struct vb_claim *c);
unsigned ncosed_bypass_bound(unsigned clients, enum vb_mode mode);

#endif
