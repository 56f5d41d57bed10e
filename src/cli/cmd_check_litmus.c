/* SPDX-License-Identifier: Apache-2.0 */
/* verbena check litmus: goes through all orders of small worlds and tells what was found. */
#define VB_LOG_ROOM "check"
#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "check/litmus/litmus.h"
#include "check/planted/planted.h"
#include "cli/check_named.h"

#define JOBS_MAX  1024u
#define NAMES_MAX 64u

struct opts {
	const char *locks, *ccs, *hybrid, *world, *schedule, *json;
	uint64_t runs, delays;
	bool keep_going;
};

static struct opts opts;

static const struct vb_opt table[] = {
	VB_OPT_STRING(
		struct opts, locks, "lock", "NAME[,..]", NULL,
		"locks to check, as `verbena list` names them; all: every real one; planted: every "
		"one with a planted bug (with neither --lock nor --cc: all of both)"),
	VB_OPT_STRING(struct opts, ccs, "cc", "NAME[,..]", NULL,
		      "protocols of transactions to check, in the same way"),
	VB_OPT_STRING(struct opts, hybrid, "hybrid", "CODE", NULL,
		      "stages of transactions by RPC (1) or one-sided (0), one digit each; rpc: "
		      "all by RPC (one-sided)"),
	VB_OPT_STRING(struct opts, world, "world", "NAME", NULL,
		      "only this small world (all that fit the protocol)"),
	VB_OPT_SIZE(struct opts, delays, "delays", "4", 0, 1000,
		    "how often in a run somebody else goes than whose turn it is, at most"),
	VB_OPT_SIZE(struct opts, runs, "runs", "1000", 1, UINT32_MAX, "of each world, at most"),
	VB_OPT_STRING(struct opts, schedule, "schedule", "N[.N..]", NULL,
		      "run one order of one world, and tell it step by step"),
	VB_OPT_FLAG(struct opts, keep_going, "keep-going",
		    "go on in a world in which something was found"),
	VB_OPT_STRING(struct opts, json, "json", "FILE", NULL,
		      "write the results as JSON; - is stdout"),
	VB_OPT_END};

static const struct vb_opt_group *groups(unsigned *n)
{
	static const struct vb_opt_group all[] = {{"Checking", table, &opts}};

	*n = VB_ARRAY_SIZE(all);
	return all;
}

/* One protocol in one world. */
struct job {
	const char *option, *protocol, *planted, *world;
	const struct vb_litmus_lock *lock_world; /* these two, or the next two */
	const struct vb_lock_ops *lock;
	const struct vb_litmus_txn *txn_world;
	const struct vb_cc_ops *cc;
	struct vb_litmus_result result;
};

struct session {
	struct job job[JOBS_MAX];
	unsigned n, n_run;
	FILE *out; /* stdout, or stderr where stdout carries the JSON */
};

/* ---- what is to be run ---- */

static bool is_wanted(const char *world)
{
	return opts.world == NULL || !strcmp(opts.world, world);
}

static int add_job(struct session *s, const struct job *j)
{
	if (s->n == JOBS_MAX)
		return vb_fail(-EINVAL, "more than %u worlds at once", JOBS_MAX);
	s->job[s->n++] = *j;
	return 0;
}

static int add_lock(void *ctx, const struct vb_lock_ops *ops)
{
	struct session *s = ctx;
	int err = 0;

	for (const struct vb_litmus_lock *const *w = vb_litmus_locks; *w != NULL && err == 0; w++) {
		const struct job j = {
			.option = "lock",
			.protocol = ops->name,
			.planted = ops->planted,
			.world = vb_litmus_lock_name(*w),
			.lock_world = *w,
			.lock = ops,
		};

		if (is_wanted(j.world) && vb_litmus_lock_fits(*w, ops))
			err = add_job(s, &j);
	}
	return err;
}

static int add_cc(struct session *s, const struct vb_cc_ops *cc)
{
	int err = 0;

	for (const struct vb_litmus_txn *const *w = vb_litmus_txns; *w != NULL && err == 0; w++) {
		const struct job j = {
			.option = "cc",
			.protocol = cc->name,
			.planted = cc->planted,
			.world = vb_litmus_txn_name(*w),
			.txn_world = *w,
			.cc = cc,
		};

		if (is_wanted(j.world))
			err = add_job(s, &j);
	}
	return err;
}

static int add_lock_named(void *ctx, const char *name)
{
	return vb_check_locks(name, add_lock, ctx);
}

static int add_ccs(struct session *s, const struct vb_cc_ops *const *list)
{
	int err = 0;

	for (; *list != NULL && err == 0; list++)
		if (vb_cc_takes(*list, opts.hybrid))
			err = add_cc(s, *list);
	return err;
}

static int add_cc_named(void *ctx, const char *name)
{
	struct session *s = ctx;
	const struct vb_cc_ops *cc;
	const char *names[NAMES_MAX];
	char hint[VB_HINT_BYTES];
	uint32_t by_rpc;
	size_t n = 0;

	if (!strcmp(name, "all"))
		return add_ccs(s, vb_ccs);
	if (!strcmp(name, "planted"))
		return add_ccs(s, vb_planted_ccs);
	cc = vb_cc_find(name);
	if (cc != NULL && !vb_cc_takes(cc, opts.hybrid))
		return vb_cc_code(cc, opts.hybrid, "", &by_rpc);
	if (cc != NULL && vb_cc_sequenced(cc))
		return vb_fail(
			-EINVAL,
			"the small worlds' transactions declare nothing, and '%s' wants all that "
			"is touched to be: `verbena check txn` explores it",
			name);
	if (cc != NULL)
		return add_cc(s, cc);
	for (const struct vb_cc_ops *const *c = vb_ccs; *c != NULL && n < NAMES_MAX; c++)
		names[n++] = (*c)->name;
	for (const struct vb_cc_ops *const *c = vb_planted_ccs; *c != NULL && n < NAMES_MAX; c++)
		names[n++] = (*c)->name;
	return vb_fail(-EINVAL, "no protocol is called '%s'%s; `verbena list` shows them all", name,
		       vb_did_you_mean(hint, name, names, n));
}

static int check_world(void)
{
	const char *names[NAMES_MAX];
	char hint[VB_HINT_BYTES];
	size_t n = 0;

	for (const struct vb_litmus_lock *const *w = vb_litmus_locks; *w != NULL; w++)
		names[n++] = vb_litmus_lock_name(*w);
	for (const struct vb_litmus_txn *const *w = vb_litmus_txns; *w != NULL; w++)
		names[n++] = vb_litmus_txn_name(*w);
	for (size_t i = 0; i < n; i++)
		if (is_wanted(names[i]))
			return 0;
	return vb_fail(-EINVAL, "no small world is called '%s'%s; `verbena list` shows them all",
		       opts.world, vb_did_you_mean(hint, opts.world, names, n));
}

static int plan(struct session *s)
{
	const bool both = opts.locks == NULL && opts.ccs == NULL;
	int err = check_world();

	if (err == 0 && (both || opts.locks != NULL))
		err = vb_check_names(both ? "all" : opts.locks, add_lock_named, s);
	if (err == 0 && (both || opts.ccs != NULL))
		err = vb_check_names(both ? "all" : opts.ccs, add_cc_named, s);
	if (err == 0 && s->n == 0)
		err = vb_fail(-EINVAL, "nothing to check: none of these fits that world");
	if (err == 0 && opts.schedule != NULL && s->n != 1)
		err = vb_fail(-EINVAL, "--schedule is of one protocol in one world: say which "
				       "with --lock or --cc, and --world");
	return err;
}

/* ---- telling ---- */

static char *replay_of(const struct job *j, char *buf, size_t size)
{
	const bool hybrid = j->cc != NULL && opts.hybrid != NULL;

	snprintf(buf, size, "verbena check litmus --%s %s%s%s --world %s --schedule ", j->option,
		 j->protocol, hybrid ? " --hybrid " : "", hybrid ? opts.hybrid : "", j->world);
	return buf;
}

static void tell_find(FILE *to, const struct job *j)
{
	char replay[160];

	fprintf(to, "%s, %s: %s\n%s", j->protocol, j->world, j->result.rule,
		j->result.story != NULL ? j->result.story : "");
	if (opts.schedule == NULL)
		fprintf(to, "replay: %s%s\n", replay_of(j, replay, sizeof(replay)),
			j->result.schedule != NULL ? j->result.schedule : "0");
	fprintf(to, "\n");
}

static const char *how_far(const struct vb_litmus_result *r)
{
	if (vb_litmus_exhausted(r))
		return "all";
	if (r->cut_found)
		return "until found";
	if (r->cut_length)
		return "cut: length";
	return r->cut_runs ? "cut: runs" : "cut: delays";
}

static void tell_table(FILE *to, const struct session *s)
{
	uint64_t runs = 0;
	double seconds = 0;
	unsigned all = 0;

	fprintf(to, "%-28s %-18s %8s %8s %8s %8s  %-12s %s\n", "protocol", "world", "runs",
		"pruned", "choices", "runs/s", "orders", "found");
	for (unsigned i = 0; i < s->n_run; i++) {
		const struct job *j = &s->job[i];
		const struct vb_litmus_result *r = &j->result;

		fprintf(to, "%-28s %-18s %8" PRIu64 " %8" PRIu64 " %8u %8.0f  %-12s %s\n",
			j->protocol, j->world, r->runs, r->pruned, r->longest,
			r->seconds > 0 ? (double)r->runs / r->seconds : 0.0, how_far(r),
			r->rule != NULL ? r->rule : "nothing");
		runs += r->runs;
		seconds += r->seconds;
		all += vb_litmus_exhausted(r);
	}
	fprintf(to, "%u small worlds, of %u all orders; %" PRIu64 " runs in %.1f s\n", s->n_run,
		all, runs, seconds);
}

static json_t *job_json(const struct job *j)
{
	const struct vb_litmus_result *r = &j->result;
	json_t *run = json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:b, s:s, s:I}", "kind",
				"check-litmus", j->option, j->protocol, "world", j->world, "runs",
				(json_int_t)r->runs, "pruned", (json_int_t)r->pruned, "choices",
				(json_int_t)r->longest, "exhausted", vb_litmus_exhausted(r),
				"orders", how_far(r), "found", (json_int_t)r->found);
	char replay[160];

	if (j->planted != NULL)
		json_object_set_new(run, "planted", json_string(j->planted));
	if (r->rule == NULL)
		return run;
	json_object_set_new(run, "rule", json_string(r->rule));
	json_object_set_new(run, "story", vb_json_text(r->story != NULL ? r->story : ""));
	json_object_set_new(run, "replay",
			    json_sprintf("%s%s", replay_of(j, replay, sizeof(replay)),
					 r->schedule != NULL ? r->schedule : "0"));
	return run;
}

static int write_json(struct vb_json_out *out, const struct session *s)
{
	json_t *runs;

	if (out->path == NULL)
		return 0;
	runs = json_array();
	for (unsigned i = 0; i < s->n_run; i++)
		json_array_append_new(runs, job_json(&s->job[i]));
	return vb_check_write(out, 0, runs);
}

/* ---- running ---- */

static int run_all(struct session *s)
{
	struct vb_litmus_params p = {
		.runs = opts.runs,
		.delays = (unsigned)opts.delays,
		.schedule = opts.schedule,
		.hybrid = opts.hybrid,
		.keep_going = opts.keep_going,
		.tell = s->out,
		.stop = &vb_interrupted,
	};
	int err = 0;

	for (unsigned i = 0; i < s->n && err == 0 && !vb_interrupted; i++) {
		struct job *j = &s->job[i];

		p.rule = j->planted;
		err = j->lock != NULL ? vb_litmus_lock_run(j->lock_world, j->lock, &p, &j->result)
				      : vb_litmus_txn_run(j->txn_world, j->cc, &p, &j->result);
		if (err == 0)
			s->n_run++;
		if (j->result.rule != NULL)
			tell_find(s->out, j);
	}
	return err;
}

static int conclude(const struct session *s, int err)
{
	bool found = false;

	for (unsigned i = 0; i < s->n_run; i++)
		found |= s->job[i].result.rule != NULL;
	if (err)
		return vb_exit_of(err);
	if (found)
		return VB_EXIT_VIOLATION;
	return vb_interrupted ? VB_EXIT_INTERRUPTED : VB_EXIT_OK;
}

static int run_session(struct session *s)
{
	struct vb_json_out out = {0};
	int err = plan(s), json_err;

	s->out = opts.json != NULL && !strcmp(opts.json, "-") ? stderr : stdout;
	if (err == 0)
		err = vb_json_out_open(&out, opts.json);
	if (err)
		return vb_exit_of(err);
	err = run_all(s);
	tell_table(s->out, s);
	json_err = write_json(&out, s);
	vb_json_out_abandon(&out);
	return conclude(s, err ? err : json_err);
}

static int run(int argc, char **argv)
{
	int end = vb_cli_parse(&vb_command_check_litmus, argc, argv);
	struct session *s;

	if (end >= 0)
		return end;
	/* A world is made and unmade some thousand times a second: its memory is kept. */
	mallopt(M_TRIM_THRESHOLD, 64 << 20);
	mallopt(M_TOP_PAD, 4 << 20);
	vb_lock_register(vb_planted_locks);
	vb_cc_register(vb_planted_ccs);
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return vb_exit_of(vb_fail(-ENOMEM, "no memory for what is checked"));
	end = run_session(s);
	for (unsigned i = 0; i < s->n; i++)
		vb_litmus_end(&s->job[i].result);
	free(s);
	return end;
}

const struct vb_command vb_command_check_litmus = {
	.name = "check litmus",
	.summary = "Go through all orders of small worlds: a few clients, every interleaving",
	.about = "Goes through the orders in which a few clients can take their steps in a "
		 "small world, instead of drawing them: each run differs from those before "
		 "it, as far as --delays and --runs allow. An order that breaks a rule is "
		 "told, with the schedule that replays it.",
	.run = run,
	.groups = groups,
	.option = "--lock",
	.example = "verbena check litmus --lock dslr,shiftlock --cc silo",
	.ends = VB_ENDS(VB_EXIT_VIOLATION) | VB_ENDS(VB_EXIT_RESOURCES) |
		VB_ENDS(VB_EXIT_INTERRUPTED),
	.see = "checking.md",
};
