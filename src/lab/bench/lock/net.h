/* SPDX-License-Identifier: Apache-2.0 */
/* One lock on a network fabric, as net.c and gather.c share it. */
#ifndef VB_LAB_BENCH_LOCK_NET_H
#define VB_LAB_BENCH_LOCK_NET_H

#include "check/lock/record.h"
#include "lab/bench/engine/phases.h"
#include "lab/bench/lock/lock.h"

struct net_run {
	struct vb_bench_plan *plan;
	struct vb_bench_crew *crew;
	const struct vb_lock_ops *ops;
	struct vb_bench_result *r; /* of this process, until they are gathered at the root */
	bool is_server, is_worker;
	unsigned worker; /* number among the workers */
	struct vb_sched *sched;
	struct vb_fabric *fabric;
	struct vb_lock_space *space;
	struct vb_bench_servers servers;
	struct vb_bench_worker w;
	struct vb_bench_control control;
	struct vb_bench_seat *seats; /* [clients]; this worker's are alive */
	struct vb_bench_seat *kept;  /* as they were when the run was given up, or NULL */
	struct vb_record *record;    /* NULL: no audit */
	struct vb_bench_phases phases;
};

/* One for each client, zeros; NULL (said): no memory. */
struct vb_bench_seat *vb_bench_seats_new(const struct vb_bench_plan *plan);
/* Remembers what every client is doing, before they are told to give up. */
void vb_bench_seats_keep(struct net_run *u);
/* Collective: everything comes together at the root, which judges it.  0 or -error, said. */
int vb_bench_gather(struct net_run *u);

#endif
