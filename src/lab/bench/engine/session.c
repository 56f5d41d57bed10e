/* SPDX-License-Identifier: Apache-2.0 */
/* Run after run of a benchmark: see session.h. */
#define VB_LOG_ROOM "bench"
#include "lab/bench/engine/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "lab/bench/engine/progress.h"
#include "lab/run.h"

/* A result begins with how it ended. */
static struct vb_bench_end *result_of(const struct vb_bench_session *s, unsigned run)
{
	return (struct vb_bench_end *)((char *)s->results + run * s->subject->result_bytes);
}

static bool is_root(const struct vb_bench_session *s)
{
	return s->group.rank == 0;
}

static void print_row(struct vb_bench_session *s, const struct vb_bench_end *r)
{
	if ((!r->ran && r->skipped == NULL) || !is_root(s))
		return;
	if (!s->headed)
		s->subject->print_head(s->table, s->plan);
	s->headed = true;
	s->subject->print_row(s->table, s->plan, r);
}

/* NULL: it is for another reason that there was no run. */
static const char *why_lost(int err)
{
	return err == -ECHILD || err == -ETIMEDOUT || err == -VB_EPEERGONE
		       ? "a process died, was stopped or came too late before the run had begun"
		       : NULL;
}

static int run_one(struct vb_bench_session *s)
{
	const struct vb_bench_subject *subject = s->subject;
	unsigned run = s->n++;
	struct vb_bench_end *r = result_of(s, run);
	struct vb_busy_point begin;
	char name[64];
	int err;

	if (subject->skip != NULL && subject->skip(s->plan, run, r)) {
		print_row(s, r);
		return 0;
	}
	subject->name(s->plan, run, name, sizeof(name));
	vb_bench_progress.run = s->n;
	vb_bench_progress.runs = s->o->runs;
	vb_bench_progress.name = name;
	vb_busy_look(&begin);
	err = subject->run(s->plan, run, &s->group, r);
	if (s->o->fabric != VB_BENCH_SIM)
		r->load = vb_busy_since(&begin, s->group.cluster != NULL);
	vb_bench_progress_clear();
	if (err != 0 && !r->ran)
		s->lost = why_lost(err);
	if (err == -EOPNOTSUPP && s->o->all) {
		r->skipped = "this fabric lacks what it needs (see `verbena list`)";
		err = 0;
	}
	print_row(s, r);
	if (r->ran && is_root(s))
		subject->warn(s->plan, r);
	if (err == 0 && r->ran && is_root(s) && subject->write != NULL)
		err = subject->write(s->plan, r);
	return err;
}

/* That a process was lost before there was anything to measure: its run is one that was not made. */
static void add_lost(const struct vb_bench_session *s, json_t *skipped)
{
	char name[64];
	json_t *one = json_object();

	s->subject->name(s->plan, s->n > 0 ? s->n - 1 : 0, name, sizeof(name));
	vb_json_set(one, "run", name);
	vb_json_set(one, "why", s->lost);
	json_array_append_new(skipped, one);
}

static int write_json(struct vb_bench_session *s)
{
	json_t *root, *runs, *skipped;
	bool interrupted = vb_interrupted;
	int err;

	if (s->json.path == NULL)
		return 0;
	root = vb_json_head(s->o->seed);
	runs = json_array();
	skipped = json_array();
	for (unsigned i = 0; i < s->n; i++) {
		const struct vb_bench_end *r = result_of(s, i);

		interrupted |= r->interrupted;
		if (r->ran) {
			json_array_append_new(runs, s->subject->json(s->plan, r));
		} else if (r->skipped != NULL) {
			json_t *one = s->subject->json_name(r);

			vb_json_set(one, "why", r->skipped);
			json_array_append_new(skipped, one);
		}
	}
	if (s->lost != NULL)
		add_lost(s, skipped);
	vb_json_set(root, "interrupted", interrupted);
	vb_json_set(root, "runs", runs);
	vb_json_set(root, "skipped", skipped);
	err = vb_json_out_commit(&s->json, root);
	json_decref(root);
	return err;
}

/* What matters most decides the exit code. */
static int exit_code(const struct vb_bench_session *s, int err)
{
	bool violated = false, stalled = false, interrupted = vb_interrupted, failed = false;

	for (unsigned i = 0; i < s->n; i++) {
		const struct vb_bench_end *r = result_of(s, i);

		violated |= s->subject->violated(r);
		stalled |= r->stalled;
		interrupted |= r->interrupted;
		failed |= r->deaths != 0 || (s->subject->failed != NULL && s->subject->failed(r));
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
static bool goes_on(struct vb_bench_session *s, int err)
{
	bool mine = err == 0 && !vb_interrupted;

	for (unsigned i = 0; i < s->n; i++)
		mine &= !result_of(s, i)->interrupted;
	if (s->group.cluster == NULL || s->n == 0)
		return mine;
	return vb_bench_group_goes_on(&s->group, mine) && err == 0;
}

static int run_all(struct vb_bench_session *s)
{
	bool ran = false;
	int err = 0;

	vb_bench_progress.on = isatty(STDERR_FILENO) == 1 && is_root(s);
	vb_bench_progress.unit = s->subject->unit;
	for (unsigned i = 0; i < s->o->runs && goes_on(s, err); i++)
		err = run_one(s);
	for (unsigned i = 0; i < s->n; i++)
		ran |= result_of(s, i)->ran;
	if (is_root(s) && ran)
		s->subject->print_end(s->table, s->plan, s->results, s->n);
	if (err != 0 && s->n == 1 && !ran && s->lost == NULL)
		vb_json_out_abandon(&s->json); /* nothing was run: nothing is written */
	else if (write_json(s) != 0 && err == 0)
		err = -EIO;
	return exit_code(s, err);
}

/* A network's processes come together, and then know how many they are. */
static int meet(struct vb_bench_session *s)
{
	char *config = NULL;
	size_t size;
	FILE *f = open_memstream(&config, &size);
	int err;

	if (f == NULL)
		return vb_fail(-ENOMEM, "no memory for a text of options");
	fprintf(f, "version=%s %s\n", vb_version(), vb_commit());
	s->subject->put_config(f, s->plan);
	fclose(f);
	err = vb_bench_group_meet(&s->o->cluster, config, &s->group);
	free(config);
	if (err)
		return err;
	s->o->cluster.procs = s->group.hosts;
	return s->subject->plan_nodes(s->plan);
}

static int open_results(struct vb_bench_session *s)
{
	s->results = calloc(s->o->runs, s->subject->result_bytes);
	if (s->results == NULL)
		return vb_fail(-ENOMEM, "no memory for the results of %u runs", s->o->runs);
	s->json = (struct vb_json_out){.fd = -1};
	return is_root(s) ? vb_json_out_open(&s->json, s->o->json) : 0;
}

static int open_all(struct vb_bench_session *s, const void *opts)
{
	int err = s->subject->plan(opts, s->plan);

	if (err == 0 && vb_bench_in_group(s->o)) {
		err = meet(s);
		/* Who has forked the others is the root; else nobody is, yet. */
		if (err != 0 && s->group.forked > 0)
			s->lost = why_lost(err);
		if (s->lost != NULL && open_results(s) == 0)
			(void)write_json(s);
	}
	return err != 0 ? err : open_results(s);
}

int vb_bench_session(const struct vb_bench_subject *subject, const void *opts, bool quiet)
{
	struct vb_bench_session s = {
		.subject = subject,
		.plan = calloc(1, subject->plan_bytes),
		.table = quiet ? stderr : stdout,
	};
	int err, code;

	if (s.plan == NULL)
		return vb_exit_of(vb_fail(-ENOMEM, "no memory for a plan"));
	s.o = s.plan;
	err = open_all(&s, opts);
	code = err != 0 ? vb_exit_of(err) : run_all(&s);
	vb_bench_group_close(&s.group);
	for (unsigned i = 0; i < s.n; i++) {
		free(result_of(&s, i)->died);
		subject->free_result(result_of(&s, i));
	}
	free(s.results);
	subject->free_plan(s.plan);
	free(s.plan);
	return code;
}
