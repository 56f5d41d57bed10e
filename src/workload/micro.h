/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The micro-benchmark of DSLR and ShiftLock: each client takes one lock, holds it, gives it back,
 * thinks, and takes the next.
 *
 * Which lock: drawn from a distribution (base/dist.h) over ranks; rank 0 is the hottest.  Ranks are
 * then spread over the lock numbers by a fixed permutation, so that the hot locks do not share
 * cache lines or, with several servers, a server by the accident of their numbering.
 *
 * When: closed loop (the next cycle starts when the last one and the think time are over), or open
 * loop: a Poisson process of a stated rate decides when each cycle is *meant* to start.  A client
 * that is late starts at once, and the time since the intended start is the response time: waiting
 * that the client itself caused by being late is not lost from the record (coordinated omission).
 */
#ifndef VB_WORKLOAD_MICRO_H
#define VB_WORKLOAD_MICRO_H

#include <verbena/lock.h>

#include "base/dist.h"
#include "base/rng.h"
#include "workload/scatter.h"

struct vb_micro_params {
	const char *dist;
	uint64_t locks;
	double read_ratio; /* chance that a cycle is shared */
	double fail_rate;  /* chance that the release is skipped (ShiftLock section 4.8) */
	double rate;       /* cycles per second of all clients together; 0: closed loop */
	unsigned clients;  /* that share the rate */
};

struct vb_micro {
	struct vb_dist dist;
	struct vb_micro_params p;
	struct vb_scatter scatter; /* which lock a rank is */
	double mean_gap_ns;        /* between two cycles of one client; 0: closed loop */
};

struct vb_micro_op {
	uint64_t lock;
	enum vb_mode mode;
	bool skip_release;
};

/* One client's view: its stream of random numbers and when its next cycle is meant to start. */
struct vb_micro_client {
	const struct vb_micro *m;
	struct vb_rng rng;
	double due_ns;
};

/* -EINVAL, said. */
int vb_micro_init(struct vb_micro *m, const struct vb_micro_params *p);
uint64_t vb_micro_lock_of_rank(const struct vb_micro *m, uint64_t rank);

void vb_micro_client_init(struct vb_micro_client *c, const struct vb_micro *m, uint64_t seed,
			  unsigned client, uint64_t start_ns);
void vb_micro_next(struct vb_micro_client *c, struct vb_micro_op *op);
/* Open loop only: when the next cycle is meant to start. */
uint64_t vb_micro_arrival(struct vb_micro_client *c);

#endif
