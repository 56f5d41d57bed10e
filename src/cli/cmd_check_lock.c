/* SPDX-License-Identifier: Apache-2.0 */
/* verbena check lock: explores seeds of locks and tells what the auditor found. */
#define VB_LOG_ROOM "check"
#include "cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "check/campaign.h"
#include "check/planted/planted.h"
#include "lab/json.h"

#define LOCKS_MAX     64
#define SEEDS_DEFAULT 200

struct check_opts {
	const char *lock, *json;
	uint64_t seeds, seed;
	bool verbose, keep_going;
};

static struct check_opts opts;

static const struct vb_opt table[] = {
	VB_OPT_STRING(
		struct check_opts, lock, "lock", "NAME[,..]", "all",
		"locks to check, as `verbena list` names them; all: every real one; planted: every "
		"one with a planted bug"),
	VB_OPT_SIZE(struct check_opts, seeds, "seeds", NULL, 1, UINT32_MAX,
		    "how many seeds to explore (200; 1 with --seed)"),
	VB_OPT_SIZE(struct check_opts, seed, "seed", NULL, 1, INT64_MAX,
		    "the first seed; alone, replays this one and says what it drew (1)"),
	VB_OPT_FLAG(struct check_opts, keep_going, "keep-going",
		    "explore all seeds, also after one that found something"),
	VB_OPT_STRING(struct check_opts, json, "json", "FILE", NULL,
		      "write the results as JSON; - is stdout"),
	VB_OPT_FLAG(struct check_opts, verbose, "verbose",
		    "tell what each seed draws and how it ends"),
	VB_OPT_END};

static const struct vb_opt_group *groups(unsigned *n)
{
	static const struct vb_opt_group all[] = {{"Checking", table, &opts}};

	*n = VB_ARRAY_SIZE(all);
	return all;
}

struct session {
	struct vb_campaign runs[LOCKS_MAX];
	unsigned n, n_run;
	FILE *out; /* stdout, or stderr where stdout carries the JSON */
};

/* ---- which locks ---- */

static int add_lock(struct session *s, const struct vb_lock_ops *ops)
{
	if (s->n == LOCKS_MAX)
		return vb_fail(-EINVAL, "more than %d locks in one run", LOCKS_MAX);
	s->runs[s->n++] = (struct vb_campaign){.ops = ops};
	return 0;
}

static int add_list(struct session *s, const struct vb_lock_ops *const *list)
{
	int err = 0;

	for (; *list != NULL && err == 0; list++)
		err = add_lock(s, *list);
	return err;
}

static int add_named(struct session *s, const char *name)
{
	const struct vb_lock_ops *ops;
	const char *names[LOCKS_MAX], *near;
	size_t n = 0;

	if (!strcmp(name, "all"))
		return add_list(s, vb_locks);
	if (!strcmp(name, "planted"))
		return add_list(s, vb_planted_locks);
	ops = vb_lock_find(name);
	if (ops != NULL)
		return add_lock(s, ops);
	for (const struct vb_lock_ops *const *l = vb_locks; *l != NULL && n < LOCKS_MAX; l++)
		names[n++] = (*l)->name;
	for (const struct vb_lock_ops *const *l = vb_planted_locks; *l != NULL && n < LOCKS_MAX;
	     l++)
		names[n++] = (*l)->name;
	near = vb_nearest(name, names, n);
	return vb_fail(-EINVAL, "no lock is called '%s'%s%s%s; `verbena list` shows them all", name,
		       near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
}

static int plan(struct session *s)
{
	char *text = strdup(opts.lock), *save = NULL;
	int err = 0;

	if (text == NULL)
		return vb_fail(-ENOMEM, "no memory for the list of locks");
	for (char *name = strtok_r(text, ",", &save); name != NULL && err == 0;
	     name = strtok_r(NULL, ",", &save))
		err = add_named(s, name);
	free(text);
	if (err == 0 && s->n == 0)
		err = vb_fail(-EINVAL, "--lock names no lock; `verbena list` shows them all");
	for (unsigned i = 0; i < s->n; i++) {
		struct vb_campaign *c = &s->runs[i];

		c->seeds = opts.seeds ? opts.seeds : opts.seed ? 1 : SEEDS_DEFAULT;
		c->first = opts.seed ? opts.seed : 1;
		c->keep_going = opts.keep_going;
		c->stop = &vb_interrupted;
		if (opts.verbose || c->seeds == 1)
			c->tell = s->out;
	}
	return err;
}

/* ---- telling ---- */

/* On a terminal only, ten times a second. */
static void show_progress(const struct vb_campaign *c)
{
	static double shown;

	if (c->done == 1)
		shown = 0;
	if (c->seconds - shown < 0.1)
		return;
	shown = c->seconds;
	fprintf(stderr, "\r%-24s seed %" PRIu64 " of %" PRIu64 ", %" PRIu64 " violations \033[K",
		c->ops->name, c->done, c->seeds, c->violations);
}

/* What is about to be explored, so that also a run which is cut short can be repeated. */
static void tell_begin(FILE *to, const struct vb_campaign *c)
{
	struct vb_explore_draw d;

	if (c->tell != NULL)
		return;
	fprintf(to, "%s, seeds %" PRIu64 " to %" PRIu64 "; the first:\n  ", c->ops->name, c->first,
		c->first + c->seeds - 1);
	vb_explore_draw(c->ops, c->first, &d);
	vb_explore_describe(&d, to);
	fflush(to);
}

static void tell_find(FILE *to, const struct vb_campaign *c)
{
	char replay[128];

	if (!c->found)
		return;
	fprintf(to, "%s: %s\n", c->ops->name, vb_audit_rule_names[c->found_rule]);
	if (c->tell == NULL && c->draw != NULL)
		fprintf(to, "%s", c->draw);
	if (c->stories != NULL)
		fprintf(to, "%s", c->stories);
	fprintf(to, "replay: %s\n\n",
		vb_campaign_replay(replay, sizeof(replay), c->ops, c->found_seed));
}

static void tell_table(FILE *to, const struct session *s)
{
	fprintf(to, "%-30s %7s %12s %10s %10s %8s  %s\n", "lock", "seeds", "ops checked",
		"violations", "max bypass", "seeds/s", "found");
	for (unsigned i = 0; i < s->n_run; i++) {
		const struct vb_campaign *c = &s->runs[i];
		const char *comma = "";

		fprintf(to, "%-30s %7" PRIu64 " %12" PRIu64 " %10" PRIu64 " %10" PRIu64 " %8.0f  ",
			c->ops->name, c->done, c->checked_ops, c->violations, c->max_bypass,
			c->seconds > 0 ? (double)c->done / c->seconds : 0.0);
		for (unsigned r = 0; r < VB_AUDIT_RULES; r++) {
			if (c->by_rule[r] == 0)
				continue;
			fprintf(to, "%s%s", comma, vb_audit_rule_names[r]);
			comma = ", ";
		}
		fprintf(to, "%s\n", c->violations == 0 ? "nothing" : "");
	}
}

static json_t *run_json(const struct vb_campaign *c)
{
	json_t *run =
		json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "kind", "check-lock",
			  "lock", c->ops->name, "seeds", (json_int_t)c->done, "first_seed",
			  (json_int_t)c->first, "ops", (json_int_t)c->checked_ops, "violations",
			  (json_int_t)c->violations, "bad_seeds", (json_int_t)c->bad_seeds,
			  "max_bypass", (json_int_t)c->max_bypass, "verbs", (json_int_t)c->verbs);
	json_t *by_rule = json_object();
	char replay[128];

	for (unsigned r = 0; r < VB_AUDIT_RULES; r++)
		json_object_set_new(by_rule, vb_audit_rule_names[r],
				    json_integer((json_int_t)c->by_rule[r]));
	json_object_set_new(run, "by_rule", by_rule);
	json_object_set_new(run, "faults",
			    json_pack("{s:I, s:I, s:I, s:I, s:I}", "deaths", (json_int_t)c->deaths,
				      "cancelled", (json_int_t)c->cancels, "timed_out",
				      (json_int_t)c->timeouts, "unknown", (json_int_t)c->unknown,
				      "lost", (json_int_t)c->lost));
	json_object_set_new(run, "seeds_per_s", vb_json_ratio((double)c->done, c->seconds));
	if (c->ops->planted != NULL)
		json_object_set_new(run, "planted", json_string(c->ops->planted));
	if (!c->found)
		return run;
	vb_campaign_replay(replay, sizeof(replay), c->ops, c->found_seed);
	json_object_set_new(
		run, "first_violation",
		json_pack("{s:I, s:s, s:s, s:o, s:s}", "seed", (json_int_t)c->found_seed, "rule",
			  vb_audit_rule_names[c->found_rule], "drawn", c->draw ? c->draw : "",
			  "story", vb_json_text(c->stories ? c->stories : ""), "replay", replay));
	return run;
}

static int write_json(struct vb_json_out *out, const struct session *s)
{
	json_t *root, *runs;
	int err;

	if (out->path == NULL)
		return 0;
	root = vb_json_head(s->runs[0].first);
	runs = json_array();
	for (unsigned i = 0; i < s->n_run; i++)
		json_array_append_new(runs, run_json(&s->runs[i]));
	json_object_set_new(root, "runs", runs);
	if (vb_interrupted)
		json_object_set_new(root, "interrupted", json_true());
	err = vb_json_out_commit(out, root);
	json_decref(root);
	return err;
}

/* ---- running ---- */

/* An error ends the session; what was explored until then is reported. */
static int run_all(struct session *s)
{
	bool terminal = isatty(STDERR_FILENO) == 1;
	int err = 0;

	for (unsigned i = 0; i < s->n && err == 0 && !vb_interrupted; i++) {
		struct vb_campaign *c = &s->runs[i];

		tell_begin(s->out, c);
		if (terminal && c->tell == NULL)
			c->progress = show_progress;
		err = vb_campaign_run(c);
		if (c->progress != NULL)
			fprintf(stderr, "\r\033[K");
		s->n_run++;
		tell_find(s->out, c);
	}
	return err;
}

static int conclude(const struct session *s, int err)
{
	bool violated = false;

	for (unsigned i = 0; i < s->n_run; i++)
		violated |= s->runs[i].violations > 0;
	if (err)
		return vb_exit_of(err) == VB_EXIT_USAGE ? VB_EXIT_FAILED : vb_exit_of(err);
	if (violated)
		return VB_EXIT_VIOLATION;
	return vb_interrupted ? VB_EXIT_INTERRUPTED : VB_EXIT_OK;
}

static int run(int argc, char **argv)
{
	struct session *s;
	struct vb_json_out out = {0};
	int end = vb_cli_parse(&vb_command_check_lock, argc, argv), err, json_err;

	if (end >= 0)
		return end;
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return VB_EXIT_RESOURCES;
	vb_lock_register(vb_planted_locks);
	s->out = opts.json != NULL && !strcmp(opts.json, "-") ? stderr : stdout;
	err = plan(s);
	if (err == 0)
		err = vb_json_out_open(&out, opts.json);
	if (err) {
		free(s);
		return vb_exit_of(err);
	}
	err = run_all(s);
	tell_table(s->out, s);
	json_err = write_json(&out, s);
	vb_json_out_abandon(&out);
	end = conclude(s, err ? err : json_err);
	for (unsigned i = 0; i < s->n; i++)
		vb_campaign_end(&s->runs[i]);
	free(s);
	return end;
}

const struct vb_command vb_command_check_lock = {
	.name = "check lock",
	.summary = "Explore locks under simulated faults, seed by seed, and audit every grant",
	.run = run,
	.groups = groups,
	.example = "verbena check lock --lock dslr,shiftlock --seeds 1000",
};
