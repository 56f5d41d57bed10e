/* SPDX-License-Identifier: Apache-2.0 */
/* verbena check lock: explores seeds of locks and tells what the auditor found. */
#define VB_LOG_ROOM "check"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "check/lock/campaign.h"
#include "check/planted/planted.h"
#include "cli/check_named.h"
#include "cli/check_seeds.h"

struct opts {
	struct vb_check_opts check;
	bool beyond;
};

static struct opts opts;

static const struct vb_opt table[] = {
	VB_OPT_STRING(
		struct opts, check.protocols, "lock", "NAME[,..]", "all",
		"locks to check, as `verbena list` names them; all: every real one; planted: every "
		"one with a planted bug"),
	VB_OPT_STRING(struct opts, check.history, "history", "FILE", NULL,
		      "write every call of one seed of one lock, for `verbena check history`"),
	VB_OPT_FLAG(
		struct opts, beyond, "beyond",
		"every seed goes beyond what is survived, of locks that survive anything: a "
		"server never returns, or verbs come later than the fabric says.  Forgiven, and "
		"told at a seed's end: under late verbs, where clients change the words, two "
		"holders, a release that does not say so, tokens that do not grow.  Never: a "
		"crash, a call that does not come back, or with what its manual does not know, "
		"a grant that is over when it is given; where a server keeps the lock, anything"),
	VB_CHECK_OPTS(struct opts), VB_OPT_END};

static const struct vb_opt_group *groups(unsigned *n)
{
	static const struct vb_opt_group all[] = {{"Checking", table, &opts}};

	*n = VB_ARRAY_SIZE(all);
	return all;
}

_Static_assert(offsetof(struct vb_lock_campaign, all) == 0, "freed by the session");

static const struct vb_lock_campaign *mine(const struct vb_campaign *c)
{
	return vb_container_of(c, struct vb_lock_campaign, all);
}

/* ---- which locks ---- */

static int add_lock(void *ctx, const struct vb_lock_ops *ops)
{
	struct vb_check *s = ctx;
	struct vb_lock_campaign *c;

	if (opts.beyond && !vb_explore_goes_beyond(ops))
		return 0;
	c = malloc(sizeof(*c));
	if (c != NULL) {
		vb_lock_campaign_init(c, ops);
		c->beyond = opts.beyond;
		c->history = s->history;
	}
	return vb_check_add(s, c != NULL ? &c->all : NULL);
}

static int add(struct vb_check *s, const char *name)
{
	return vb_check_locks(name, add_lock, s);
}

/* ---- telling ---- */

static void label(const struct vb_campaign *c, char *buf, size_t size)
{
	snprintf(buf, size, "%-24s", c->protocol);
}

static void row(FILE *to, const struct vb_campaign *c)
{
	fprintf(to, "%-30s %7" PRIu64 " %12" PRIu64 " %10" PRIu64 " %10" PRIu64, c->protocol,
		c->done, mine(c)->checked_ops, c->violations, mine(c)->max_bypass);
}

static json_t *run_json(const struct vb_campaign *c)
{
	return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "kind", "check-lock",
			 "lock", c->protocol, "seeds", (json_int_t)c->done, "first_seed",
			 (json_int_t)c->first, "ops", (json_int_t)mine(c)->checked_ops,
			 "violations", (json_int_t)c->violations, "bad_seeds",
			 (json_int_t)c->bad_seeds, "max_bypass", (json_int_t)mine(c)->max_bypass,
			 "verbs", (json_int_t)c->verbs);
}

static json_t *faults_json(const struct vb_campaign *c)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "deaths",
			 (json_int_t)c->deaths, "closed", (json_int_t)mine(c)->closes, "cancelled",
			 (json_int_t)mine(c)->cancels, "timed_out", (json_int_t)mine(c)->timeouts,
			 "unknown", (json_int_t)c->unknown, "lost", (json_int_t)mine(c)->lost,
			 "told_server_gone", (json_int_t)mine(c)->told, "late_verbs",
			 (json_int_t)mine(c)->late_verbs, "forgiven",
			 (json_int_t)mine(c)->forgiven);
}

static const struct vb_check_kind kind = {
	.nothing_named = "--lock names no lock, or --beyond none that survives anything",
	.add = add,
	.tell_begin = true,
	.label = label,
	.head = "lock                             seeds  ops checked violations max bypass",
	.row = row,
	.run_json = run_json,
	.faults_json = faults_json,
};

/* A history is of one run. */
static bool is_one_run(void)
{
	const char *names = opts.check.protocols;

	return opts.check.history == NULL ||
	       (opts.check.seed != 0 && opts.check.seeds <= 1 && strchr(names, ',') == NULL &&
		strcmp(names, "all") != 0 && strcmp(names, "planted") != 0);
}

static int run(int argc, char **argv)
{
	int end = vb_cli_parse(&vb_command_check_lock, argc, argv);

	if (end >= 0)
		return end;
	if (!is_one_run()) {
		vb_error("--history is for one seed of one lock: name it with --lock, and give its "
			 "--seed without --seeds");
		return VB_EXIT_USAGE;
	}
	vb_lock_register(vb_planted_locks);
	return vb_check_seeds(&kind, &opts.check);
}

const struct vb_command vb_command_check_lock = {
	.name = "check lock",
	.summary = "Explore locks under simulated faults, seed by seed, and audit every grant",
	.about = "Each seed draws a small cluster on the simulator, its load and its faults "
		 "(deaths, pauses, lost answers, partitions, torn accesses) and runs it in "
		 "virtual time. Every grant is audited. The first seed that finds something "
		 "is told as a story, with the command that replays it.\n\n"
		 "The same seed gives the same run on every machine.",
	.run = run,
	.groups = groups,
	.option = "--lock",
	.example = "verbena check lock --lock dslr,shiftlock --seeds 1000",
	.ends = VB_ENDS(VB_EXIT_VIOLATION) | VB_ENDS(VB_EXIT_RESOURCES) |
		VB_ENDS(VB_EXIT_INTERRUPTED),
	.see = "checking.md, histories.md",
};
