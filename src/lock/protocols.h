/* SPDX-License-Identifier: Apache-2.0 */
/* Every lock protocol, by name.  A new one is a line here and one in protocols.c's table. */
#ifndef VB_LOCK_PROTOCOLS_H
#define VB_LOCK_PROTOCOLS_H

struct vb_lock_ops;

extern const struct vb_lock_ops vb_lock_cas, vb_lock_cas_backoff, vb_lock_retry_on_fail,
	vb_lock_drtm, vb_lock_mcs, vb_lock_ncosed, vb_lock_dslr, vb_lock_dslr_update,
	vb_lock_shiftlock, vb_lock_rpc, vb_lock_traditional, vb_lock_traditional_ro, vb_lock_rma_rw,
	vb_lock_table;

/* As their papers print them, holes included: to be measured and refuted, not to be used. */
extern const struct vb_lock_ops vb_lock_dslr_as_published, vb_lock_shiftlock_as_published;
extern const struct vb_lock_ops *const vb_locks_published[];

/* -EINVAL, logged: no protocol has that name, and which one may be meant. */
int vb_lock_unknown(const char *name);

#endif
