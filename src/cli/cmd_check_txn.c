/* SPDX-License-Identifier: Apache-2.0 */
/* verbena check txn: explores seeds of transaction protocols and tells what the checkers found. */
#define VB_LOG_ROOM "check"
#include "cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "check/planted/planted.h"
#include "check/txn_campaign.h"
#include "lab/json.h"

#define RUNS_MAX      1024
#define SEEDS_DEFAULT 200

struct check_opts {
	const char *cc, *hybrid, *json;
	uint64_t seeds, seed;
	bool verbose, keep_going;
};

static struct check_opts opts;

static const struct vb_opt table[] = {
	VB_OPT_STRING(
		struct check_opts, cc, "cc", "NAME[,..]", "all",
		"protocols to check, as `verbena list` names them; all: every real one; planted: "
		"every one with a planted bug"),
	VB_OPT_STRING(
		struct check_opts, hybrid, "hybrid", "CODE", NULL,
		"stages by RPC (1) or one-sided (0), one digit each; all: every code, with as "
		"many seeds each (each seed draws one)"),
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
	struct vb_txn_campaign runs[RUNS_MAX];
	char code[RUNS_MAX][VB_STAGES_MAX + 1];
	unsigned n, n_run;
	FILE *out; /* stdout, or stderr where stdout carries the JSON */
};

/* ---- which protocols, with which codes ---- */

static int add_run(struct session *s, const struct vb_cc_ops *cc, const char *code)
{
	if (s->n == RUNS_MAX)
		return vb_fail(-EINVAL, "more than %d runs at once", RUNS_MAX);
	s->runs[s->n] = (struct vb_txn_campaign){.cc = cc};
	if (code != NULL) {
		snprintf(s->code[s->n], sizeof(s->code[0]), "%s", code);
		s->runs[s->n].hybrid = s->code[s->n];
	}
	s->n++;
	return 0;
}

static int add_cc(struct session *s, const struct vb_cc_ops *cc)
{
	char code[VB_STAGES_MAX + 1] = "";
	int err = 0;

	if (opts.hybrid == NULL)
		return add_run(s, cc, NULL);
	if (!strcmp(opts.hybrid, "rpc")) {
		memset(code, '1', cc->n_stages);
		return add_run(s, cc, code);
	}
	if (strcmp(opts.hybrid, "all") != 0) {
		if (strlen(opts.hybrid) != cc->n_stages ||
		    strspn(opts.hybrid, "01") != cc->n_stages)
			return vb_fail(-EINVAL,
				       "hybrid code '%s': '%s' has %u stages, so its codes are %u "
				       "digits, each 0 or 1; or all, or rpc",
				       opts.hybrid, cc->name, cc->n_stages, cc->n_stages);
		return add_run(s, cc, opts.hybrid);
	}
	for (unsigned bits = 0; bits < 1u << cc->n_stages && err == 0; bits++) {
		for (unsigned i = 0; i < cc->n_stages; i++)
			code[i] = bits >> i & 1 ? '1' : '0';
		err = add_run(s, cc, code);
	}
	return err;
}

static int add_list(struct session *s, const struct vb_cc_ops *const *list)
{
	int err = 0;

	for (; *list != NULL && err == 0; list++)
		err = add_cc(s, *list);
	return err;
}

static int add_named(struct session *s, const char *name)
{
	const struct vb_cc_ops *const *lists[] = {vb_ccs, vb_ccs_published, vb_planted_ccs};
	const struct vb_cc_ops *cc;
	const char *names[64], *near;
	size_t n = 0;

	if (!strcmp(name, "all"))
		return add_list(s, vb_ccs);
	if (!strcmp(name, "planted"))
		return add_list(s, vb_planted_ccs);
	cc = vb_cc_find(name);
	if (cc != NULL)
		return add_cc(s, cc);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(lists); i++)
		for (const struct vb_cc_ops *const *c = lists[i]; *c != NULL && n < 64; c++)
			names[n++] = (*c)->name;
	near = vb_nearest(name, names, n);
	return vb_fail(-EINVAL, "no protocol is called '%s'%s%s%s; `verbena list` shows them all",
		       name, near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
}

static int plan(struct session *s)
{
	char *text = strdup(opts.cc), *save = NULL;
	int err = 0;

	if (text == NULL)
		return vb_fail(-ENOMEM, "no memory for the list of protocols");
	for (char *name = strtok_r(text, ",", &save); name != NULL && err == 0;
	     name = strtok_r(NULL, ",", &save))
		err = add_named(s, name);
	free(text);
	if (err == 0 && s->n == 0)
		err = vb_fail(-EINVAL, "--cc names no protocol; `verbena list` shows them all");
	for (unsigned i = 0; i < s->n; i++) {
		struct vb_txn_campaign *c = &s->runs[i];

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

static void show_progress(const struct vb_txn_campaign *c)
{
	static double shown;

	if (c->done == 1)
		shown = 0;
	if (c->seconds - shown < 0.1)
		return;
	shown = c->seconds;
	fprintf(stderr,
		"\r%-24s %-6s seed %" PRIu64 " of %" PRIu64 ", %" PRIu64 " violations \033[K",
		c->cc->name, c->hybrid != NULL ? c->hybrid : "", c->done, c->seeds, c->violations);
}

static void tell_find(FILE *to, const struct vb_txn_campaign *c)
{
	char replay[128];

	if (!c->found)
		return;
	fprintf(to, "%s: %s\n", c->cc->name, vb_txn_rule_names[c->found_rule]);
	if (c->tell == NULL && c->draw != NULL)
		fprintf(to, "%s", c->draw);
	if (c->stories != NULL)
		fprintf(to, "%s", c->stories);
	fprintf(to, "replay: %s\n\n",
		vb_txn_campaign_replay(replay, sizeof(replay), c, c->found_seed));
}

static void tell_table(FILE *to, const struct session *s)
{
	fprintf(to, "%-26s %-7s %6s %9s %7s %7s %9s %8s %11s %8s  %s\n", "protocol", "hybrid",
		"seeds", "commits", "aborts", "deaths", "recovered", "forward", "violations",
		"seeds/s", "found");
	for (unsigned i = 0; i < s->n_run; i++) {
		const struct vb_txn_campaign *c = &s->runs[i];
		const char *comma = "";

		fprintf(to,
			"%-26s %-7s %6" PRIu64 " %9" PRIu64 " %7" PRIu64 " %7" PRIu64 " %9" PRIu64
			" %8" PRIu64 " %11" PRIu64 " %8.0f  ",
			c->cc->name, c->hybrid != NULL ? c->hybrid : "drawn", c->done, c->commits,
			c->aborts, c->deaths, c->recovered, c->rolled_forward, c->violations,
			c->seconds > 0 ? (double)c->done / c->seconds : 0.0);
		for (unsigned r = 0; r < VB_TXN_RULES; r++) {
			if (c->by_rule[r] == 0)
				continue;
			fprintf(to, "%s%s", comma, vb_txn_rule_names[r]);
			comma = ", ";
		}
		fprintf(to, "%s\n", c->violations == 0 ? "nothing" : "");
	}
}

static json_t *run_json(const struct vb_txn_campaign *c)
{
	json_t *run =
		json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "kind", "check-txn",
			  "cc", c->cc->name, "hybrid", c->hybrid != NULL ? c->hybrid : "drawn",
			  "seeds", (json_int_t)c->done, "first_seed", (json_int_t)c->first,
			  "commits", (json_int_t)c->commits, "aborts", (json_int_t)c->aborts,
			  "violations", (json_int_t)c->violations, "bad_seeds",
			  (json_int_t)c->bad_seeds, "verbs", (json_int_t)c->verbs);
	json_t *by_rule = json_object();
	char replay[128];

	for (unsigned r = 0; r < VB_TXN_RULES; r++)
		json_object_set_new(by_rule, vb_txn_rule_names[r],
				    json_integer((json_int_t)c->by_rule[r]));
	json_object_set_new(run, "by_rule", by_rule);
	json_object_set_new(run, "faults",
			    json_pack("{s:I, s:I, s:I, s:I}", "deaths", (json_int_t)c->deaths,
				      "unknown", (json_int_t)c->unknown, "recovered",
				      (json_int_t)c->recovered, "rolled_forward",
				      (json_int_t)c->rolled_forward));
	json_object_set_new(run, "seeds_per_s", vb_json_ratio((double)c->done, c->seconds));
	if (c->cc->planted != NULL)
		json_object_set_new(run, "planted", json_string(c->cc->planted));
	if (!c->found)
		return run;
	vb_txn_campaign_replay(replay, sizeof(replay), c, c->found_seed);
	json_object_set_new(
		run, "first_violation",
		json_pack("{s:I, s:s, s:s, s:s, s:o, s:s}", "seed", (json_int_t)c->found_seed,
			  "rule", vb_txn_rule_names[c->found_rule], "anomaly",
			  vb_anomaly_names[c->found_anomaly], "drawn", c->draw ? c->draw : "",
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

static int run_all(struct session *s)
{
	bool terminal = isatty(STDERR_FILENO) == 1;
	int err = 0;

	for (unsigned i = 0; i < s->n && err == 0 && !vb_interrupted; i++) {
		struct vb_txn_campaign *c = &s->runs[i];

		if (terminal && c->tell == NULL)
			c->progress = show_progress;
		err = vb_txn_campaign_run(c);
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
	int end = vb_cli_parse(&vb_command_check_txn, argc, argv), err, json_err;

	if (end >= 0)
		return end;
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return VB_EXIT_RESOURCES;
	vb_cc_register(vb_planted_ccs);
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
		vb_txn_campaign_end(&s->runs[i]);
	free(s);
	return end;
}

const struct vb_command vb_command_check_txn = {
	.name = "check txn",
	.summary = "Explore transaction protocols under simulated faults, seed by seed",
	.run = run,
	.groups = groups,
	.example = "verbena check txn --cc silo,sundial --hybrid all --seeds 100",
};
