/* SPDX-License-Identifier: Apache-2.0 */
/* verbena reproduce: which experiments, in turn, and how it all ends. */
#define VB_LOG_ROOM "reproduce"
#include "lab/reproduce/reproduce.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "lab/bench/engine/progress.h"
#include "lab/host.h"
#include "lab/run.h"

#define EXPERIMENTS 64
#define QUICK       0.1

#define O struct vb_repro_opts
static const struct vb_opt table[] = {
	VB_OPT_STRING(O, figure, "figure", "N", NULL,
		      "of the papers named, only the experiment of this figure or table (\"8\", "
		      "\"table3\")"),
	VB_OPT_STRING(O, out, "out", "DIR", "reproduce",
		      "folder for the results: JSON, CSV, and figures where there is gnuplot"),
	VB_OPT_REAL(O, scale, "scale", "1", 0.01, 100,
		    "times the virtual time that each run measures (at least 1 ms)"),
	VB_OPT_SIZE(
		O, seeds, "seeds", NULL, 1, VB_REPRO_SEEDS_MAX,
		"runs of each point, with as many seeds in a row (5; with --quick 1): below 5, a "
		"first look"),
	VB_OPT_FLAG(O, quick, "quick",
		    "a tenth of the virtual time, and one seed: a first look, not a verdict"),
	VB_OPT_SIZE(O, jobs, "jobs", NULL, 1, 1024,
		    "runs at once, each a process (as many as there are cores)"),
	VB_OPT_SIZE(O, seed, "seed", "1", 0, INT64_MAX,
		    "the first seed; each decides every random choice of a run"),
	VB_OPT_FLAG(O, markdown, "markdown", "print Markdown"),
	VB_OPT_END};
#undef O

VB_OPT_GROUPS(vb_repro_groups, struct vb_repro_opts, {"Options", table, NULL})

struct session {
	const struct vb_repro_opts *o;
	double scale;
	unsigned seeds, at_once;
	const struct vb_experiment *chosen[EXPERIMENTS];
	struct vb_repro_outcome outcomes[EXPERIMENTS];
	unsigned n, done;
	struct vb_repro_jobs jobs;
};

/* ---- which ---- */

/* Is `figure` the one in the experiment's name, or another that it is called by?  "8" is "fig8". */
static bool is_figure(const struct vb_experiment *e, const char *figure)
{
	const char *own = strchr(e->name, '/') + 1, *others = e->figures;
	size_t len = strlen(figure);

	if (strcmp(own, figure) == 0 ||
	    (strncmp(own, "fig", 3) == 0 && strcmp(own + 3, figure) == 0))
		return true;
	while (others != NULL && *others != '\0') {
		size_t word = strcspn(others, " ");

		if ((word == len && strncmp(others, figure, len) == 0) ||
		    (word == len + 3 && strncmp(others, "fig", 3) == 0 &&
		     strncmp(others + 3, figure, len) == 0))
			return true;
		others += word + strspn(others + word, " ");
	}
	return false;
}

#define ETH_LONG "locks-of-thousands-of-cores"

static bool is_named(const struct vb_experiment *e, const char *word)
{
	const char *slash = strchr(word, '/');
	size_t paper = slash != NULL ? (size_t)(slash - word) : strlen(word);

	if (strcmp(word, "all") == 0)
		return true;
	if (paper == strlen(ETH_LONG) && strncmp(word, ETH_LONG, paper) == 0) {
		word = "eth";
		paper = strlen(word);
	}
	if (strncmp(e->name, word, paper) != 0 || e->name[paper] != '/')
		return false;
	return slash == NULL || is_figure(e, slash + 1);
}

static int unknown(const char *word)
{
	const char *names[EXPERIMENTS];
	char hint[VB_HINT_BYTES];
	size_t n = 0;

	for (const struct vb_experiment *e; (e = vb_repro_experiment((unsigned)n)) != NULL; n++)
		names[n] = e->name;
	return vb_fail(-EINVAL, "no experiment is called '%s'%s; `verbena reproduce` lists them",
		       word, vb_did_you_mean(hint, word, names, n));
}

static int choose(struct session *s, char *const *words, unsigned n)
{
	const struct vb_experiment *e;
	bool wanted[EXPERIMENTS] = {false};

	for (unsigned w = 0; w < n; w++) {
		bool any = false;

		for (unsigned i = 0; (e = vb_repro_experiment(i)) != NULL; i++) {
			bool named = is_named(e, words[w]);

			if (named && s->o->figure != NULL)
				named = is_figure(e, s->o->figure);
			wanted[i] |= named;
			any |= named;
		}
		if (!any && s->o->figure != NULL)
			return vb_fail(-EINVAL,
				       "'%s' has no experiment for figure '%s'; `verbena "
				       "reproduce` lists them",
				       words[w], s->o->figure);
		if (!any)
			return unknown(words[w]);
	}
	for (unsigned i = 0; (e = vb_repro_experiment(i)) != NULL; i++)
		if (wanted[i])
			s->chosen[s->n++] = e;
	return 0;
}

/* ---- one experiment ---- */

static int run_one(struct session *s, const struct vb_experiment *e)
{
	struct vb_repro_outcome *r = &s->outcomes[s->done++];
	uint64_t begin = vb_clock_gettime_ns();
	int err = vb_repro_set_up(r, e, &s->jobs, s->scale, s->o->seed, s->seeds);

	if (err)
		return err;
	vb_repro_pool(&s->jobs, s->at_once, e->name);
	r->interrupted = vb_interrupted;
	r->wall_s = (double)(vb_clock_gettime_ns() - begin) / 1e9;
	vb_repro_judge_columns(r);
	vb_repro_print(stdout, r, s->o->markdown);
	return vb_repro_write(s->o->out, r, s->scale);
}

static uint64_t violations(const struct session *s)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < s->jobs.n; i++) {
		json_t *audit = json_object_get(s->jobs.job[i]->run, "audit");
		uint64_t n = (uint64_t)json_integer_value(json_object_get(audit, "violations"));

		if (n > 0)
			vb_error("the auditor has found %llu violations in: verbena bench lock "
				 "with %s",
				 (unsigned long long)n, s->jobs.job[i]->options);
		sum += n;
	}
	return sum;
}

static unsigned broken(const struct session *s)
{
	unsigned n = 0;

	for (unsigned i = 0; i < s->jobs.n; i++) {
		const struct vb_repro_job *j = s->jobs.job[i];

		if (j->broke)
			vb_error("%s: verbena bench lock with %s", j->why, j->options);
		n += j->broke;
	}
	return n;
}

static void tear_down(struct session *s)
{
	for (unsigned i = 0; i < s->done; i++)
		vb_repro_tear_down(&s->outcomes[i]);
	vb_repro_jobs_free(&s->jobs);
	free(s);
}

static int run_all(struct session *s)
{
	int err = 0, code;

	for (unsigned i = 0; i < s->n && err == 0 && !vb_interrupted; i++)
		err = run_one(s, s->chosen[i]);
	if (err == 0)
		vb_repro_print_claims(stdout, s->outcomes, s->done, s->o->markdown);
	if (s->scale < 1 || s->seeds < VB_REPRO_SEEDS)
		printf("%sRuns of %g of their time with %u seed%s: a first look, not a verdict.\n",
		       s->o->markdown ? "\n" : "", s->scale, s->seeds, s->seeds > 1 ? "s" : "");
	fflush(stdout);
	code = violations(s) > 0 ? VB_EXIT_VIOLATION
	       : err             ? vb_exit_of(err)
	       : broken(s) > 0   ? VB_EXIT_FAILED
				 : VB_EXIT_OK;
	return code == VB_EXIT_OK && vb_interrupted ? VB_EXIT_INTERRUPTED : code;
}

int vb_reproduce(const struct vb_repro_opts *o, char *const *words, unsigned n)
{
	struct session *s;
	struct vb_host host;
	int err, code;

	if (n == 0 && o->figure != NULL)
		return vb_exit_of(vb_fail(-EINVAL, "--figure %s: of which paper?", o->figure));
	if (n == 0) {
		vb_repro_print_list(stdout);
		return VB_EXIT_OK;
	}
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return VB_EXIT_RESOURCES;
	vb_host_probe(&host);
	s->o = o;
	s->scale = o->scale * (o->quick ? QUICK : 1);
	s->seeds = o->seeds != 0 ? (unsigned)o->seeds : o->quick ? 1 : VB_REPRO_SEEDS;
	s->at_once = o->jobs != 0 ? (unsigned)o->jobs : host.cores;
	vb_bench_progress.on = isatty(STDERR_FILENO) == 1;
	err = choose(s, words, n);
	/* Before minutes are spent. */
	if (err == 0 && mkdir(o->out, 0777) != 0 && errno != EEXIST)
		err = vb_fail(-errno, "cannot make the folder %s: %s", o->out, strerror(errno));
	if (err == 0 && access(o->out, W_OK | X_OK) != 0)
		err = vb_fail(-errno, "cannot write into %s: %s", o->out, strerror(errno));
	code = err ? vb_exit_of(err) : run_all(s);
	tear_down(s);
	return code;
}
