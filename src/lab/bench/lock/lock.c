/* SPDX-License-Identifier: Apache-2.0 */
/* verbena bench lock: one lock after the other, and what is said at the end. */
#define VB_LOG_ROOM "bench"
#include "lab/bench/lock/lock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "lab/run.h"

_Static_assert(offsetof(struct vb_bench_result, end) == 0, "as the session takes it");

/* With "all", what cannot run here is a row with its reason and no error. */
static const char *reason_to_skip(const struct vb_bench_plan *plan, const struct vb_lock_ops *ops)
{
	if (!plan->o.all)
		return NULL;
	if (plan->o.fail_rate > 0 && !(ops->caps & VB_LOCK_SURVIVES))
		return "does not survive its holder, which --fail-rate imitates";
	return vb_bench_lacks_modes(plan, ops);
}

static void name(const void *plan, unsigned run, char *buf, size_t bytes)
{
	const struct vb_bench_plan *p = plan;

	snprintf(buf, bytes, "%s", p->lock[run]->name);
}

static bool skip(const void *plan, unsigned run, void *result)
{
	const struct vb_bench_plan *p = plan;
	struct vb_bench_result *r = result;
	const char *why = reason_to_skip(p, p->lock[run]);

	if (why != NULL)
		*r = (struct vb_bench_result){.ops = p->lock[run], .end.skipped = why};
	return why != NULL;
}

static int run(void *plan, unsigned run, struct vb_bench_group *group, void *result)
{
	struct vb_bench_plan *p = plan;

	return vb_bench_run_lock(p, group, p->lock[run], result);
}

/* ---- what is said ---- */

/* Readers' leases may be an option of the lock, which --lease says nothing of. */
static const char *read_lease_of(const struct vb_lock_ops *ops)
{
	return (ops->caps & VB_LOCK_READ_LEASE) != 0
		       ? "; readers' leases are --lock-options read_lease=TIME"
		       : "";
}

/* Never silent: whoever lost a grant had it taken while it worked, or waited in vain.  What was asked
 * for comes first: where every hold outlives its lease the machine has no part in it. */
static void warn_lost(const void *plan, const void *result)
{
	const struct vb_bench_plan *p = plan;
	const struct vb_bench_result *r = result;
	const struct vb_bench_opts *o = &p->o;
	bool heavy = vb_busy_is_heavy(&r->end.load);
	char what[80], load[160], lease[16], hold[16];

	if (r->tally->spent.lost == 0)
		return;
	snprintf(what, sizeof(what), "%s: %" PRIu64 " grant%s lost", r->ops->name,
		 r->tally->spent.lost, r->tally->spent.lost == 1 ? "" : "s");
	vb_format_ns(lease, sizeof(lease), (double)o->lease_ns);
	if (!p->tracing && o->hold_ns >= o->lease_ns) {
		vb_warn("%s: --hold, %s, is longer than the lease of %s, so that holders are taken "
			"for dead; give a --lease longer than --hold and a verb take together%s",
			what, vb_format_ns(hold, sizeof(hold), (double)o->hold_ns), lease,
			read_lease_of(r->ops));
		return;
	}
	vb_warn("%s: the lease of %s was over before the holder was done or knew of its "
		"turn%s%s; %s%s",
		what, lease, r->end.load.known ? "; " : "",
		r->end.load.known ? vb_busy_text(&r->end.load, load, sizeof(load)) : "",
		heavy ? "give --lease more than a holder may wait for a core, or run fewer clients "
			"(--procs, --clients)"
		      : "give a longer --lease than --hold and a verb take together",
		read_lease_of(r->ops));
}

static json_t *json_name(const void *result)
{
	const struct vb_bench_result *r = result;

	return json_pack("{s:s}", "lock", r->ops->name);
}

static bool violated(const void *result)
{
	return ((const struct vb_bench_result *)result)->audit.violations != 0;
}

static const struct vb_bench_subject subject = {
	.plan_bytes = sizeof(struct vb_bench_plan),
	.result_bytes = sizeof(struct vb_bench_result),
	.plan = vb_bench_plan,
	.free_plan = vb_bench_plan_close,
	.put_config = vb_bench_plan_put,
	.plan_nodes = vb_bench_plan_nodes,
	.name = name,
	.skip = skip,
	.run = run,
	.print_head = vb_bench_print_head,
	.print_row = vb_bench_print_row,
	.print_end = vb_bench_print_end,
	.warn = warn_lost,
	.write = vb_bench_write_hgrm,
	.json = vb_bench_run_json,
	.json_name = json_name,
	.violated = violated,
	.free_result = vb_bench_result_free,
};

int vb_bench_lock(const struct vb_bench_opts *opts)
{
	return vb_bench_session(&subject, opts, opts->json != NULL && strcmp(opts->json, "-") == 0);
}
