/* SPDX-License-Identifier: Apache-2.0 */
/* verbena bench txn: one run after the other, and what is said at the end. */
#define VB_LOG_ROOM "bench"
#include "lab/bench/txn/txn.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "lab/run.h"

_Static_assert(offsetof(struct vb_tbench_result, end) == 0, "as the session takes it");

static void name(const void *plan, unsigned run, char *buf, size_t bytes)
{
	const struct vb_tbench_one *one = &((const struct vb_tbench_plan *)plan)->run[run];

	snprintf(buf, bytes, "%s %s", one->cc->name, one->code);
}

static int run(void *plan, unsigned run, struct vb_bench_group *group, void *result)
{
	struct vb_tbench_plan *p = plan;

	return vb_tbench_run_one(p, group, &p->run[run], result);
}

/* ---- what is said ---- */

/* Never silent: others took these transactions for dead, or they gave themselves up. */
static void warn_lost(const void *plan, const void *result)
{
	const struct vb_tbench_result *r = result;
	const uint64_t *aborts;
	uint64_t lost;
	char load[160];

	/* In virtual time only the plan decides, and the table of causes tells. */
	if (!r->end.load.known || r->end.deaths != 0)
		return;
	aborts = r->tally->spent.aborts;
	lost = aborts[VB_TXN_TIMEOUT] + aborts[VB_TXN_RECOVERED];
	if (lost == 0)
		return;
	vb_warn("%s %s: %" PRIu64
		" transaction%s lost: not done within the lease of %.10g us; %s; %s",
		r->one->cc->name, r->one->code, lost, lost == 1 ? "" : "s",
		(double)r->lease_ns / 1e3, vb_busy_text(&r->end.load, load, sizeof(load)),
		vb_busy_is_heavy(&r->end.load)
			? "give --lease more than a client may wait for a core, or run fewer "
			  "(--threads, --coroutines)"
			: "give a longer --lease");
}

static json_t *json_name(const void *result)
{
	const struct vb_tbench_one *one = ((const struct vb_tbench_result *)result)->one;

	return json_pack("{s:s,s:s}", "cc", one->cc->name, "hybrid", one->code);
}

static bool violated(const void *result)
{
	const struct vb_tbench_result *r = result;

	return r->broken || (r->checked && r->serial.first != VB_ANOMALY_NONE);
}

static bool failed(const void *result)
{
	const struct vb_tbench_result *r = result;

	return r->end.ran && r->tally->errors != 0;
}

static const struct vb_bench_subject subject = {
	.unit = "transactions",
	.plan_bytes = sizeof(struct vb_tbench_plan),
	.result_bytes = sizeof(struct vb_tbench_result),
	.plan = vb_tbench_plan,
	.free_plan = vb_tbench_plan_free,
	.put_config = vb_tbench_plan_put,
	.plan_nodes = vb_tbench_plan_nodes,
	.name = name,
	.run = run,
	.print_head = vb_tbench_print_head,
	.print_row = vb_tbench_print_row,
	.print_end = vb_tbench_print_end,
	.warn = warn_lost,
	.json = vb_tbench_json,
	.json_name = json_name,
	.violated = violated,
	.failed = failed,
	.free_result = vb_tbench_result_free,
};

static bool is_stdout(const char *path)
{
	return path != NULL && strcmp(path, "-") == 0;
}

int vb_bench_txn(const struct vb_tbench_opts *opts)
{
	return vb_bench_session(&subject, opts, is_stdout(opts->json) || is_stdout(opts->history));
}
