/* SPDX-License-Identifier: Apache-2.0 */
/* verbena bench txn: one run after the other, and what is said at the end. */
#define VB_LOG_ROOM "bench"
#include "lab/bench/txn/txn.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "lab/bench/engine/progress.h"
#include "lab/run.h"

struct session {
	struct vb_tbench_plan plan;
	struct vb_tbench_result *results;
	unsigned n;
	struct vb_bench_crew crew; /* network fabrics only */
	struct vb_json_out json;
	bool headed; /* the table's head is printed with its first row: after errors, not before */
	FILE *table; /* stdout; stderr where stdout carries a file */
};

static void print_row(struct session *s, const struct vb_tbench_result *r)
{
	if ((!r->ran && r->skipped == NULL) || s->crew.rank != 0)
		return;
	if (!s->headed)
		vb_tbench_print_head(s->table, &s->plan);
	s->headed = true;
	vb_tbench_print_row(s->table, r);
}

/* Never silent: others took these transactions for dead, or they gave themselves up. */
static void warn_lost(const struct session *s, const struct vb_tbench_result *r)
{
	const uint64_t *aborts;
	uint64_t lost;
	char load[160];

	/* In virtual time only the plan decides, and the table of causes tells. */
	if (!r->ran || !r->load.known || s->crew.rank != 0 || r->deaths != 0)
		return;
	aborts = r->tally->spent.aborts;
	lost = aborts[VB_TXN_TIMEOUT] + aborts[VB_TXN_RECOVERED];
	if (lost == 0)
		return;
	vb_warn("%s %s: %" PRIu64
		" transaction%s lost: not done within the lease of %.10g us; %s; %s",
		r->one->cc->name, r->one->code, lost, lost == 1 ? "" : "s",
		(double)r->lease_ns / 1e3, vb_busy_text(&r->load, load, sizeof(load)),
		vb_busy_is_heavy(&r->load)
			? "give --lease more than a client may wait for a core, or run fewer "
			  "(--threads, --coroutines)"
			: "give a longer --lease");
}

static int run_one(struct session *s, const struct vb_tbench_one *one)
{
	struct vb_tbench_result *r = &s->results[s->n++];
	struct vb_busy_point begin;
	char name[64];
	int err;

	snprintf(name, sizeof(name), "%s %s", one->cc->name, one->code);
	vb_bench_progress.run = s->n;
	vb_bench_progress.runs = s->plan.n_runs;
	vb_bench_progress.name = name;
	vb_busy_look(&begin);
	if (s->plan.o.fabric == VB_BENCH_SIM)
		err = vb_tbench_run_sim(&s->plan, one, r);
	else if (vb_bench_is_net(s->plan.o.fabric))
		err = vb_tbench_run_net(&s->plan, &s->crew, one, r);
	else
		err = vb_tbench_run_shm(&s->plan, one, r);
	if (s->plan.o.fabric != VB_BENCH_SIM)
		r->load = vb_busy_since(&begin, s->crew.cluster != NULL);
	vb_bench_progress_clear();
	if (err == -EOPNOTSUPP && s->plan.all) {
		r->skipped = "this fabric lacks what it needs (see `verbena list`)";
		err = 0;
	}
	print_row(s, r);
	warn_lost(s, r);
	return err;
}

static int write_json(struct session *s)
{
	json_t *root, *runs, *skipped;
	bool interrupted = vb_interrupted;
	int err;

	if (s->json.path == NULL)
		return 0;
	root = vb_json_head(s->plan.o.seed);
	runs = json_array();
	skipped = json_array();
	for (unsigned i = 0; i < s->n; i++) {
		const struct vb_tbench_result *r = &s->results[i];

		interrupted |= r->interrupted;
		if (r->ran)
			json_array_append_new(runs, vb_tbench_json(r));
		else if (r->skipped != NULL)
			json_array_append_new(skipped,
					      json_pack("{s:s,s:s,s:s}", "cc", r->one->cc->name,
							"hybrid", r->one->code, "why", r->skipped));
	}
	json_object_set_new(root, "interrupted", json_boolean(interrupted));
	json_object_set_new(root, "runs", runs);
	json_object_set_new(root, "skipped", skipped);
	err = vb_json_out_commit(&s->json, root);
	json_decref(root);
	return err;
}

/* What matters most decides the exit code. */
static int exit_code(const struct session *s, int err)
{
	bool violated = false, stalled = false, interrupted = vb_interrupted, failed = false;

	for (unsigned i = 0; i < s->n; i++) {
		const struct vb_tbench_result *r = &s->results[i];

		violated |= r->broken || (r->checked && r->serial.first != VB_ANOMALY_NONE);
		stalled |= r->stalled;
		interrupted |= r->interrupted;
		failed |= r->deaths != 0 || (r->ran && r->tally->errors != 0);
	}
	if (violated)
		return VB_EXIT_VIOLATION;
	if (err)
		return vb_exit_of(err);
	if (stalled)
		return VB_EXIT_STALLED;
	if (interrupted)
		return VB_EXIT_INTERRUPTED;
	return failed ? VB_EXIT_FAILED : VB_EXIT_OK;
}

/* In step with the other processes, if there are any: the root's word counts. */
static bool goes_on(struct session *s, int err)
{
	bool on = err == 0 && !vb_interrupted;

	for (unsigned i = 0; i < s->n; i++)
		on &= !s->results[i].interrupted;
	if (s->crew.cluster != NULL && s->n != 0)
		return vb_bench_crew_goes_on(&s->crew, on) && err == 0;
	return on;
}

static bool is_stdout(const char *path)
{
	return path != NULL && strcmp(path, "-") == 0;
}

/* From here on in every process of the crew. */
static int open_crew(struct session *s)
{
	char *config = vb_tbench_plan_text(&s->plan);
	int err;

	if (config == NULL)
		return vb_fail(-ENOMEM, "no memory for a text of options");
	err = vb_bench_crew_meet(&s->plan.o.cluster, config, &s->crew);
	free(config);
	if (err)
		return err;
	s->plan.o.cluster.procs = s->plan.o.nodes = s->crew.hosts;
	return vb_tbench_plan_nodes(&s->plan);
}

static int open_all(struct session *s, const struct vb_tbench_opts *opts)
{
	int err = vb_tbench_plan(opts, &s->plan);

	if (err)
		return err;
	s->results = calloc(s->plan.n_runs, sizeof(*s->results));
	if (s->results == NULL)
		err = vb_fail(-ENOMEM, "no memory for the results of %u runs", s->plan.n_runs);
	if (err == 0 && vb_bench_is_net(s->plan.o.fabric))
		err = open_crew(s);
	if (err == 0 && s->crew.rank == 0)
		err = vb_json_out_open(&s->json, opts->json);
	return err;
}

static void close_all(struct session *s)
{
	vb_bench_crew_close(&s->crew);
	for (unsigned i = 0; i < s->n; i++)
		vb_tbench_result_free(&s->results[i]);
	free(s->results);
	vb_tbench_plan_free(&s->plan);
}

int vb_bench_txn(const struct vb_tbench_opts *opts)
{
	struct session s = {0};
	bool ran = false;
	int err = open_all(&s, opts), code;

	if (err) {
		close_all(&s);
		return vb_exit_of(err);
	}
	s.table = is_stdout(opts->json) || is_stdout(opts->history) ? stderr : stdout;
	vb_bench_progress.on = isatty(STDERR_FILENO) == 1 && s.crew.rank == 0;
	vb_bench_progress.unit = "transactions";
	for (unsigned i = 0; i < s.plan.n_runs && goes_on(&s, err); i++)
		err = run_one(&s, &s.plan.run[i]);
	for (unsigned i = 0; i < s.n; i++)
		ran |= s.results[i].ran;
	if (ran && s.crew.rank == 0)
		vb_tbench_print_end(s.table, &s.plan, s.results, s.n);
	if (err != 0 && s.n == 1 && !ran)
		vb_json_out_abandon(&s.json); /* nothing was run: nothing is written */
	else if (write_json(&s) != 0 && err == 0)
		err = -EIO;
	code = exit_code(&s, err);
	close_all(&s);
	return code;
}
