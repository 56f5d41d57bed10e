/* SPDX-License-Identifier: Apache-2.0 */
/* One run of transactions on a network fabric, as net.c and gather.c share it. */
#ifndef VB_LAB_BENCH_TXN_NET_H
#define VB_LAB_BENCH_TXN_NET_H

#include "lab/bench/engine/phases.h"
#include "lab/bench/txn/txn.h"

struct vb_tbench_net {
	const struct vb_tbench_plan *plan;
	struct vb_bench_crew *crew;
	struct vb_tbench_result *r;    /* at the root: of all */
	struct vb_tbench_tally *tally; /* this process's own */
	struct vb_tbench_ground ground;
	struct vb_tbench_recorder recorder; /* with --check */
	struct vb_db_server *server;
	struct vb_tbench_worker w;
	struct vb_bench_control control;
	struct vb_tbench_seat *seats; /* [clients of the run]; this process's are alive */
	struct vb_sched *sched;
	struct vb_bench_phases phases;
};

/* Clients of one process, and the number of the first of them. */
static inline unsigned vb_tbench_net_clients(const struct vb_tbench_net *u)
{
	return (unsigned)u->plan->o.coroutines;
}

/* Collective: everything comes together at the root, which judges it.  0 or -error, said. */
int vb_tbench_gather(struct vb_tbench_net *u);

#endif
