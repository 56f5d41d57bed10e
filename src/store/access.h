/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The six primitives of RCBench (section 4.2), gathered into doorbells.
 *
 *	ReadDI    READ of a tuple, or of a part of it          ReadTM    the same of a transaction's state
 *	WriteDI   WRITE of a tuple's version and record        WriteTM   ...
 *	AModIM    CAS on a word of a tuple's metadata          AModTM    ...
 *
 * A stage of a protocol asks for what it needs of all its tuples, then *goes*: what was asked is
 * posted with one doorbell, whatever nodes it is for, and waited for.  Only then are the results
 * there.  What was asked for the same node happens in the order that the fabric promises
 * (fabric/fabric.h): a READ sees the CAS and the WRITE asked before it, a CAS sees the WRITE.
 *
 * Three properties can be switched off, to measure what each is worth (RCC section 3.3, RCBench
 * section 5.5): doorbell batching (each verb rings its own; the unlock of a commit then waits for
 * its WRITE, because only one doorbell promises that it is lost together with it), outstanding
 * requests (each verb is waited for before the next is posted), and, a matter of the caller, that a
 * commit waits for its acknowledgement.
 *
 * Where verbs complete at once (shm) each happens as it is asked, without building a verb.  Where
 * the CPU's atomics and the device's know of each other, the node's own memory is reached by the
 * CPU.
 */
#ifndef VB_STORE_ACCESS_H
#define VB_STORE_ACCESS_H

#include "fabric/fabric.h"

enum vb_prim {
	VB_READ_DI,
	VB_WRITE_DI,
	VB_AMOD_IM,
	VB_READ_TM,
	VB_WRITE_TM,
	VB_AMOD_TM,
	VB_INDEX, /* a READ of the index: RCBench counts it apart from the primitives */
	VB_PRIMS
};
extern const char *const vb_prim_names[VB_PRIMS];

struct vb_acc {
	struct vb_ep *ep;
	uint16_t node; /* whose memory is near */
	bool at_once;  /* verbs complete inline */
	bool near_cpu; /* the node's own memory is reached by the CPU */
	bool doorbell; /* batching */
	bool outstanding;
	bool posted; /* vb_acc_post was called, vb_acc_finish not yet */
	int err;     /* the first error since the last vb_acc_go */
	unsigned n;
	uint64_t not_after_ns; /* of what is asked from now on; 0: always */
	uint64_t prims[VB_PRIMS];
	uint64_t near; /* of those, on the node's own memory by the CPU */
	uint64_t *old[VB_BATCH_MAX];
	struct vb_batch batch;
	struct vb_verb verb[VB_BATCH_MAX];
};

void vb_acc_init(struct vb_acc *a, struct vb_ep *ep, bool doorbell, bool outstanding);

void vb_acc_read_slow(struct vb_acc *a, vb_addr at, void *buf, uint32_t len);
void vb_acc_write_slow(struct vb_acc *a, vb_addr at, const void *buf, uint32_t len);
void vb_acc_cas_slow(struct vb_acc *a, vb_addr at, uint64_t expect, uint64_t value, uint64_t *old);
void vb_acc_faa_slow(struct vb_acc *a, vb_addr at, uint64_t add, uint64_t *old);

/*
 * Where verbs complete at once there is no doorbell to gather them for, but the memory's latency is
 * hidden in the same way: all of it is asked for before the first is used.
 */
static inline void vb_acc_hint(struct vb_acc *a, vb_addr at, uint32_t len)
{
	if (a->at_once && a->doorbell && a->ep->ops->hint != NULL)
		a->ep->ops->hint(a->ep, at, len);
}

/* buf must stay until vb_acc_go has returned; so must *old. */
static inline void vb_acc_read(struct vb_acc *a, enum vb_prim prim, vb_addr at, void *buf,
			       uint32_t len)
{
	a->prims[prim]++;
	if (vb_likely(a->at_once)) {
		/* A word has a way of its own, which is shorter. */
		int err = __builtin_constant_p(len) && len == 8 ? vb_read64(a->ep, at, buf)
								: vb_read(a->ep, at, buf, len);

		if (vb_unlikely(err != 0 && a->err == 0))
			a->err = err;
		return;
	}
	vb_acc_read_slow(a, at, buf, len);
}

static inline void vb_acc_write(struct vb_acc *a, enum vb_prim prim, vb_addr at, const void *buf,
				uint32_t len)
{
	a->prims[prim]++;
	vb_acc_write_slow(a, at, buf, len);
}

static inline void vb_acc_cas(struct vb_acc *a, enum vb_prim prim, vb_addr at, uint64_t expect,
			      uint64_t value, uint64_t *old)
{
	a->prims[prim]++;
	if (vb_likely(a->at_once)) {
		/* Behind a verb that failed or was refused nothing is done, as in a doorbell. */
		if (vb_likely(a->err == 0))
			a->err = vb_cas64(a->ep, at, expect, value, old);
		return;
	}
	vb_acc_cas_slow(a, at, expect, value, old);
}

static inline void vb_acc_faa(struct vb_acc *a, enum vb_prim prim, vb_addr at, uint64_t add,
			      uint64_t *old)
{
	a->prims[prim]++;
	if (vb_likely(a->at_once)) {
		if (vb_likely(a->err == 0))
			a->err = vb_faa64(a->ep, at, add, old);
		return;
	}
	vb_acc_faa_slow(a, at, add, old);
}

/* Posts what was asked and waits for it.  The first error of it, or 0. */
int vb_acc_go(struct vb_acc *a);

/* Posts without waiting; nothing may be asked of *a until vb_acc_finish, which waits. */
void vb_acc_post(struct vb_acc *a);
int vb_acc_finish(struct vb_acc *a);

#endif
