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

static int run(void *plan, unsigned run, struct vb_bench_crew *crew, void *result)
{
	const struct vb_tbench_plan *p = plan;

	return vb_tbench_run_one(p, crew, &p->run[run], result);
}

/* ---- what is said ---- */

static void print_head(FILE *to, const void *plan)
{
	vb_tbench_print_head(to, plan);
}

static void print_row(FILE *to, const void *plan, const void *result)
{
	vb_tbench_print_row(to, result);
}

static void print_end(FILE *to, const void *plan, const void *results, unsigned n, bool ran)
{
	if (ran)
		vb_tbench_print_end(to, plan, results, n);
}

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

static json_t *json(const void *plan, const void *result)
{
	return vb_tbench_json(result);
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

	return r->end.deaths != 0 || (r->end.ran && r->tally->errors != 0);
}

static void free_result(void *result)
{
	vb_tbench_result_free(result);
}

static const struct vb_bench_subject subject = {
	.unit = "transactions",
	.result_bytes = sizeof(struct vb_tbench_result),
	.name = name,
	.run = run,
	.print_head = print_head,
	.print_row = print_row,
	.print_end = print_end,
	.warn = warn_lost,
	.json = json,
	.json_name = json_name,
	.violated = violated,
	.failed = failed,
	.free_result = free_result,
};

static bool is_stdout(const char *path)
{
	return path != NULL && strcmp(path, "-") == 0;
}

/* From here on in every process of the crew. */
static int open_crew(struct vb_bench_session *s, struct vb_tbench_plan *p)
{
	char *config = vb_tbench_plan_text(p);
	int err;

	if (config == NULL)
		return vb_fail(-ENOMEM, "no memory for a text of options");
	err = vb_bench_crew_meet(&p->o.cluster, config, &s->crew);
	free(config);
	if (err)
		return err;
	p->o.cluster.procs = p->o.nodes = s->crew.hosts;
	return vb_tbench_plan_nodes(p);
}

static int open_all(struct vb_bench_session *s, struct vb_tbench_plan *p,
		    const struct vb_tbench_opts *opts)
{
	int err = vb_tbench_plan(opts, p);

	if (err == 0 && vb_bench_is_net(p->o.fabric))
		err = open_crew(s, p);
	if (err)
		return err;
	s->runs = p->n_runs;
	s->fabric = p->o.fabric;
	s->all = p->all;
	s->seed = p->o.seed;
	return vb_bench_session_open(s, opts->json);
}

int vb_bench_txn(const struct vb_tbench_opts *opts)
{
	struct vb_tbench_plan plan;
	struct vb_bench_session s = {.subject = &subject, .plan = &plan};
	int err, code;

	s.table = is_stdout(opts->json) || is_stdout(opts->history) ? stderr : stdout;
	err = open_all(&s, &plan, opts);
	code = err != 0 ? vb_exit_of(err) : vb_bench_session_run(&s);
	vb_bench_session_close(&s);
	vb_tbench_plan_free(&plan);
	return code;
}
