/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hooks wrap an open fabric and are fabrics themselves; they can be stacked.  Closing the hook
 * closes what it wraps.  Every endpoint must be opened through the hook.
 */
#ifndef VB_FABRIC_HOOK_HOOKS_H
#define VB_FABRIC_HOOK_HOOKS_H

#include "fabric/fabric.h"

/* Counts verbs, bytes and errors of all endpoints, per operation. */
struct vb_count_totals {
	uint64_t verbs[VB_OP_COUNT], bytes[VB_OP_COUNT], errors[VB_OP_COUNT];
	uint64_t batches, inline_batches;
};
int vb_hook_count(struct vb_fabric *lower, struct vb_fabric **out);
void vb_hook_count_totals(struct vb_fabric *hook, struct vb_count_totals *out);

/* One line a verb on `to` (time, peer, operation, address, arguments, result), and a running hash
 * of everything a seeded run must repeat. `to` may be NULL for the hash alone. */
int vb_hook_trace(struct vb_fabric *lower, FILE *to, struct vb_fabric **out);
uint64_t vb_hook_trace_hash(struct vb_fabric *hook);

/* Fails verbs with the given probabilities: before they run (-VB_EPEERGONE, with all that the batch has behind
 * them for their node) or after (-VB_EUNKNOWN: it happened, the answer was lost), and drops unsignalled SENDs.  With drop_datagram it has
 * VB_CAP_DATAGRAM: SENDs so flagged are lost with that chance, and nobody is told. */
struct vb_fault_params {
	double fail_before, fail_after, drop_send, drop_datagram;
	uint64_t seed;
};
int vb_hook_fault(struct vb_fabric *lower, const struct vb_fault_params *p, struct vb_fabric **out);

/* For fabrics whose verbs complete inline: holds verbs back and runs them later, in any order the
 * interface leaves open, with other tasks in between, and tears READs and WRITEs above 16 bytes. */
struct vb_defer_params {
	double chance; /* that a batch is deferred at all */
	uint64_t max_delay_ns;
	uint64_t late_ns; /* how long a thread may be held up before verbs are lost; 0: an hour, so
			   * that none is, however busy the machine */
	uint64_t seed;
};
int vb_hook_defer(struct vb_fabric *lower, const struct vb_defer_params *p, struct vb_fabric **out);

#endif
