/* SPDX-License-Identifier: Apache-2.0 */
/* verbena bench lock: one lock after the other, and what is said at the end. */
#define VB_LOG_ROOM "bench"
#include "lab/bench/lock/lock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "lab/bench/engine/progress.h"
#include "lab/run.h"

struct session {
	struct vb_bench_plan plan;
	struct vb_bench_result results[VB_BENCH_LOCKS];
	unsigned n;
	struct vb_bench_crew crew; /* network fabrics only */
	struct vb_json_out json;
	bool headed; /* the table's head is printed with its first row: after errors, not before */
	FILE *table; /* stdout; stderr where stdout carries the JSON */
};

/* With "all", what cannot run here is a row with its reason and no error. */
static const char *reason_to_skip(const struct vb_bench_plan *plan, const struct vb_lock_ops *ops)
{
	if (plan->all && plan->o.fail_rate > 0 && !(ops->caps & VB_LOCK_SURVIVES))
		return "does not survive its holder, which --fail-rate imitates";
	if (plan->all)
		return vb_bench_lacks_modes(plan, ops);
	return NULL;
}

static void print_row(struct session *s, const struct vb_bench_result *r)
{
	if ((!r->ran && r->skipped == NULL) || s->crew.rank != 0)
		return;
	if (!s->headed)
		vb_bench_print_head(s->table, &s->plan);
	s->headed = true;
	vb_bench_print_row(s->table, &s->plan, r);
}

static int drive(struct session *s, const struct vb_lock_ops *ops, struct vb_bench_result *r)
{
	if (s->plan.o.fabric == VB_BENCH_SIM)
		return vb_bench_run_sim(&s->plan, ops, r);
	if (vb_bench_is_net(s->plan.o.fabric))
		return vb_bench_run_net(&s->plan, &s->crew, ops, r);
	return vb_bench_run_shm(&s->plan, ops, r);
}

/* Readers' leases may be an option of the lock, which --lease says nothing of. */
static const char *read_lease_of(const struct vb_lock_ops *ops)
{
	return (ops->caps & VB_LOCK_READ_LEASE) != 0
		       ? "; readers' leases are --lock-options read_lease=TIME"
		       : "";
}

/* Never silent: whoever lost a grant had it taken while it worked, or waited in vain.  What was asked
 * for comes first: where every hold outlives its lease the machine has no part in it. */
static void warn_lost(const struct session *s, const struct vb_bench_result *r)
{
	const struct vb_bench_opts *o = &s->plan.o;
	bool heavy = vb_busy_is_heavy(&r->load);
	char what[80], load[160], lease[16], hold[16];

	if (!r->ran || s->crew.rank != 0 || r->tally->spent.lost == 0)
		return;
	snprintf(what, sizeof(what), "%s: %" PRIu64 " grant%s lost", r->ops->name,
		 r->tally->spent.lost, r->tally->spent.lost == 1 ? "" : "s");
	vb_format_ns(lease, sizeof(lease), (double)o->lease_ns);
	if (!s->plan.tracing && o->hold_ns >= o->lease_ns) {
		vb_warn("%s: --hold, %s, is longer than the lease of %s, so that holders are taken "
			"for dead; give a --lease longer than --hold and a verb take together%s",
			what, vb_format_ns(hold, sizeof(hold), (double)o->hold_ns), lease,
			read_lease_of(r->ops));
		return;
	}
	vb_warn("%s: the lease of %s was over before the holder was done or knew of its "
		"turn%s%s; %s%s",
		what, lease, r->load.known ? "; " : "",
		r->load.known ? vb_busy_text(&r->load, load, sizeof(load)) : "",
		heavy ? "give --lease more than a holder may wait for a core, or run fewer clients "
			"(--procs, --clients)"
		      : "give a longer --lease than --hold and a verb take together",
		read_lease_of(r->ops));
}

static int run_one(struct session *s, const struct vb_lock_ops *ops)
{
	struct vb_bench_result *r = &s->results[s->n++];
	const char *why = reason_to_skip(&s->plan, ops);
	struct vb_busy_point begin;
	int err;

	if (why != NULL) {
		*r = (struct vb_bench_result){.ops = ops, .skipped = why};
		print_row(s, r);
		return 0;
	}
	vb_bench_progress.run = s->n;
	vb_bench_progress.runs = s->plan.n_locks;
	vb_bench_progress.name = ops->name;
	vb_busy_look(&begin);
	err = drive(s, ops, r);
	if (s->plan.o.fabric != VB_BENCH_SIM)
		r->load = vb_busy_since(&begin, s->crew.cluster != NULL);
	vb_bench_progress_clear();
	if (err == -EOPNOTSUPP && s->plan.all) {
		r->skipped = "this fabric lacks what it needs (see `verbena list`)";
		err = 0;
	}
	print_row(s, r);
	warn_lost(s, r);
	if (err == 0 && r->ran && s->crew.rank == 0)
		err = vb_bench_write_hgrm(&s->plan, r);
	return err;
}

static int write_json(struct session *s)
{
	json_t *root, *runs = json_array(), *skipped = json_array();
	bool interrupted = vb_interrupted;
	int err;

	if (s->json.path == NULL) {
		json_decref(runs);
		json_decref(skipped);
		return 0;
	}
	root = vb_json_head(s->plan.o.seed);
	for (unsigned i = 0; i < s->n; i++) {
		const struct vb_bench_result *r = &s->results[i];

		interrupted |= r->interrupted;
		if (r->ran)
			json_array_append_new(runs, vb_bench_run_json(&s->plan, r));
		else if (r->skipped != NULL)
			json_array_append_new(skipped, json_pack("{s:s,s:s}", "lock", r->ops->name,
								 "why", r->skipped));
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
	bool violated = false, stalled = false, interrupted = vb_interrupted, killed = false;

	for (unsigned i = 0; i < s->n; i++) {
		violated |= s->results[i].audit.violations != 0;
		stalled |= s->results[i].stalled;
		interrupted |= s->results[i].interrupted;
		killed |= s->results[i].deaths != 0;
	}
	if (violated)
		return VB_EXIT_VIOLATION;
	if (err)
		return vb_exit_of(err);
	if (stalled)
		return VB_EXIT_STALLED;
	if (interrupted)
		return VB_EXIT_INTERRUPTED;
	return killed ? VB_EXIT_FAILED : VB_EXIT_OK;
}

static void print_end(struct session *s)
{
	unsigned ran = 0;

	for (unsigned i = 0; i < s->n; i++)
		ran += s->results[i].ran;
	if (ran > 0)
		vb_bench_print_breakdown(s->table, &s->plan, s->results, s->n);
	for (unsigned i = 0; i < s->n; i++)
		if (s->results[i].story != NULL)
			fprintf(s->table, "\n%s: the auditor has found violations:\n%s",
				s->results[i].ops->name, s->results[i].story);
	fflush(s->table);
}

/* In step with the other processes, if there are any: the root's word counts. */
static bool goes_on(struct session *s, int err)
{
	bool mine = err == 0 && !vb_interrupted;

	for (unsigned i = 0; i < s->n; i++)
		mine &= !s->results[i].interrupted;
	if (s->crew.cluster == NULL || s->n == 0)
		return mine;
	return vb_bench_crew_goes_on(&s->crew, mine) && err == 0;
}

static int open_all(struct session *s, const struct vb_bench_opts *opts)
{
	int err = vb_bench_plan(opts, &s->plan);

	if (err == 0 && vb_bench_is_net(s->plan.o.fabric))
		err = vb_bench_crew_open(&s->plan, &s->crew);
	if (err == 0 && s->crew.rank == 0)
		err = vb_json_out_open(&s->json, opts->json);
	return err;
}

int vb_bench_lock(const struct vb_bench_opts *opts)
{
	struct session *s = calloc(1, sizeof(*s));
	int err, code;

	if (s == NULL)
		return VB_EXIT_RESOURCES;
	err = open_all(s, opts);
	if (err) {
		vb_bench_crew_close(&s->crew);
		vb_bench_plan_close(&s->plan);
		free(s);
		return vb_exit_of(err);
	}
	s->table = opts->json != NULL && strcmp(opts->json, "-") == 0 ? stderr : stdout;
	vb_bench_progress.on = isatty(STDERR_FILENO) == 1 && s->crew.rank == 0;
	for (unsigned i = 0; i < s->plan.n_locks && goes_on(s, err); i++)
		err = run_one(s, s->plan.lock[i]);
	if (s->crew.rank == 0)
		print_end(s);
	if (err != 0 && s->n == 1 && !s->results[0].ran)
		vb_json_out_abandon(&s->json); /* nothing was run: nothing is written */
	else if (write_json(s) != 0 && err == 0)
		err = -EIO;
	code = exit_code(s, err);
	vb_bench_crew_close(&s->crew);
	for (unsigned i = 0; i < s->n; i++)
		vb_bench_result_free(&s->results[i]);
	vb_bench_plan_close(&s->plan);
	free(s);
	return code;
}
