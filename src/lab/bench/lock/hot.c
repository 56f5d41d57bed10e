/* SPDX-License-Identifier: Apache-2.0 */
/* One hot lock between processes, for a benchmark that sets other things beside it. */
#define VB_LOG_ROOM "bench"
#include "lab/bench/lock/lock.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"

/* Longer than a message and its answer may take on a machine with much other work: of a lock that a server
 * grants nobody would ever have more than the rest of a lease. */
#define LEASE_NS 500000000ull
#define STALL_NS 5000000000ull

static int run(struct vb_bench_plan *plan, const struct vb_lock_ops *ops, double *per_s)
{
	struct vb_bench_result r = {0};
	int err = vb_bench_run_lock(plan, NULL, ops, &r);

	*per_s = r.end.ran ? r.tally->rate : 0;
	/* Half a contest is no figure.  Who was killed or stopped has been named. */
	if (err == 0 && r.end.deaths != 0)
		err = -VB_EPEERGONE;
	if (err == 0 && r.end.stalled)
		err = vb_fail(-ETIMEDOUT, "%s stands still: %s", ops->name, r.end.stall);
	vb_bench_result_free(&r);
	return err;
}

int vb_bench_hot_lock(const struct vb_lock_ops *ops, unsigned procs, uint64_t span_ns,
		      uint64_t seed, double *per_s)
{
	struct vb_bench_plan *plan = malloc(sizeof(*plan));
	struct vb_bench_opts o = {0};
	const struct vb_opt_group *groups;
	unsigned n;
	int err;

	*per_s = 0;
	if (plan == NULL)
		return -ENOMEM;
	groups = vb_bench_lock_groups(&o, &n);
	for (unsigned g = 0; g < n; g++)
		vb_opt_defaults(groups[g].table, groups[g].opts);
	o.lock = ops->name;
	o.fabric = VB_BENCH_SHM;
	o.locks = 1;
	o.clients = o.cluster.procs = procs;
	o.dist = "uniform";
	o.lease_ns = LEASE_NS;
	o.stall_ns = STALL_NS;
	o.duration_ns = span_ns;
	o.no_audit = true;
	o.seed = seed;
	err = vb_bench_plan(&o, plan);
	if (err == 0)
		err = run(plan, ops, per_s);
	free(plan);
	return err;
}
