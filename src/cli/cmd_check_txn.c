/* SPDX-License-Identifier: Apache-2.0 */
/* verbena check txn: explores seeds of transaction protocols and tells what the checkers found. */
#define VB_LOG_ROOM "check"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "check/planted/planted.h"
#include "check/txn/campaign.h"
#include "cli/check_seeds.h"

struct opts {
	struct vb_check_opts check;
	const char *hybrid;
	bool copies, far;
};

static struct opts opts;

static const struct vb_opt table[] = {
	VB_OPT_STRING(
		struct opts, check.protocols, "cc", "NAME[,..]", "all",
		"protocols to check, as `verbena list` names them; all: every real one; planted: "
		"every one with a planted bug"),
	VB_OPT_STRING(
		struct opts, hybrid, "hybrid", "CODE", NULL,
		"stages by RPC (1) or one-sided (0), one digit each, and one more for copies of "
		"the log, where a seed has them; all: every code, with as many seeds each (each "
		"seed draws one)"),
	VB_OPT_FLAG(struct opts, copies, "copies",
		    "logs have copies in every seed that may have them, and nodes go with their "
		    "memory (else in one of four); all: the protocols that have copies"),
	VB_OPT_FLAG(struct opts, far, "far",
		    "coordinators have their places at another node and reach them by verbs "
		    "alone, as clients of an elastic cluster do; all: the protocols for such"),
	VB_CHECK_OPTS(struct opts),
	VB_OPT_STRING(struct opts, check.history, "history", "FILE", NULL,
		      "write the history of the last seed that was explored, for `verbena check "
		      "history`; for one protocol and code at a time"),
	VB_OPT_END};

static const struct vb_opt_group *groups(unsigned *n)
{
	static const struct vb_opt_group all[] = {{"Checking", table, &opts}};

	*n = VB_ARRAY_SIZE(all);
	return all;
}

_Static_assert(offsetof(struct vb_txn_campaign, all) == 0, "freed by the session");

static const struct vb_txn_campaign *mine(const struct vb_campaign *c)
{
	return vb_container_of(c, struct vb_txn_campaign, all);
}

/* ---- which protocols, with which codes ---- */

static int add_run(struct vb_check *s, const struct vb_cc_ops *cc, const char *code)
{
	struct vb_txn_campaign *c;

	if (s->history != NULL && s->n > 0)
		return vb_fail(-EINVAL,
			       "--history is for one run: name one protocol with --cc, and "
			       "one code with --hybrid or none");
	c = malloc(sizeof(*c));
	if (c != NULL) {
		vb_txn_campaign_init(c, cc, code);
		c->copies = opts.copies;
		if (opts.far)
			vb_txn_campaign_far(c);
		c->history = s->history;
	}
	return vb_check_add(s, c != NULL ? &c->all : NULL);
}

static int add_cc(struct vb_check *s, const struct vb_cc_ops *cc)
{
	char code[VB_CODE_BYTES] = "";
	unsigned digits;
	uint32_t by_rpc;
	int err = 0;

	if (opts.hybrid == NULL || (cc->code != NULL && !strcmp(opts.hybrid, "all")))
		return add_run(s, cc, NULL);
	if (!vb_cc_takes(cc, opts.hybrid))
		return vb_cc_code(cc, opts.hybrid, "", &by_rpc);
	digits = cc->n_stages + opts.copies;
	if (!strcmp(opts.hybrid, "rpc")) {
		memset(code, '1', digits);
		return add_run(s, cc, code);
	}
	if (strcmp(opts.hybrid, "all") != 0) {
		err = vb_cc_code(cc, opts.hybrid, "; or say all, or rpc", &by_rpc);
		return err ? err : add_run(s, cc, opts.hybrid);
	}
	for (unsigned bits = 0; bits < 1u << digits && err == 0; bits++) {
		for (unsigned i = 0; i < digits; i++)
			code[i] = bits >> i & 1 ? '1' : '0';
		err = add_run(s, cc, code);
	}
	return err;
}

static int add_list(struct vb_check *s, const struct vb_cc_ops *const *list)
{
	int err = 0;

	for (; *list != NULL && err == 0; list++)
		if ((vb_cc_takes(*list, opts.hybrid) || !strcmp(opts.hybrid, "all")) &&
		    (!opts.copies || !vb_cc_at_home(*list)) && (!opts.far || !vb_cc_at_home(*list)))
			err = add_cc(s, *list);
	return err;
}

static int add_all(struct vb_check *s)
{
	int err = add_list(s, vb_ccs);

	return err ? err : add_list(s, vb_ccs_declared);
}

static int add(struct vb_check *s, const char *name)
{
	const struct vb_cc_ops *const *lists[] = {vb_ccs, vb_ccs_declared, vb_ccs_published,
						  vb_planted_ccs};
	const struct vb_cc_ops *cc;
	const char *names[64];
	char hint[VB_HINT_BYTES];
	size_t n = 0;

	if (!strcmp(name, "all"))
		return add_all(s);
	if (!strcmp(name, "planted"))
		return add_list(s, vb_planted_ccs);
	cc = vb_cc_find(name);
	if (cc != NULL && opts.copies && vb_cc_at_home(cc))
		return vb_fail(-EINVAL, "--copies: '%s' has no copies of its logs; leave it out",
			       name);
	if (cc != NULL && opts.far && vb_cc_at_home(cc))
		return vb_fail(-EINVAL,
			       "--far: '%s' is not for clients of an elastic cluster; leave it "
			       "out",
			       name);
	if (cc != NULL)
		return add_cc(s, cc);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(lists); i++)
		for (const struct vb_cc_ops *const *c = lists[i]; *c != NULL && n < 64; c++)
			names[n++] = (*c)->name;
	return vb_fail(-EINVAL, "no protocol is called '%s'%s; `verbena list` shows them all", name,
		       vb_did_you_mean(hint, name, names, n));
}

/* ---- telling ---- */

static void label(const struct vb_campaign *c, char *buf, size_t size)
{
	snprintf(buf, size, "%-24s %-6s", c->protocol, mine(c)->hybrid);
}

static const char *code_of(const struct vb_campaign *c)
{
	return mine(c)->hybrid[0] ? mine(c)->hybrid : "drawn";
}

static void row(FILE *to, const struct vb_campaign *c)
{
	const struct vb_txn_campaign *t = mine(c);

	fprintf(to,
		"%-26s %-7s %6" PRIu64 " %9" PRIu64 " %7" PRIu64 " %7" PRIu64 " %9" PRIu64
		" %8" PRIu64 " %11" PRIu64,
		c->protocol, code_of(c), c->done, t->commits, t->aborts, c->deaths, t->recovered,
		t->rolled_forward, c->violations);
}

static json_t *run_json(const struct vb_campaign *c)
{
	return json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "kind", "check-txn",
			 "cc", c->protocol, "hybrid", code_of(c), "seeds", (json_int_t)c->done,
			 "first_seed", (json_int_t)c->first, "commits",
			 (json_int_t)mine(c)->commits, "aborts", (json_int_t)mine(c)->aborts,
			 "violations", (json_int_t)c->violations, "bad_seeds",
			 (json_int_t)c->bad_seeds, "verbs", (json_int_t)c->verbs);
}

static json_t *faults_json(const struct vb_campaign *c)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I}", "deaths", (json_int_t)c->deaths, "unknown",
			 (json_int_t)c->unknown, "unknown_commits",
			 (json_int_t)mine(c)->unknown_commits, "recovered",
			 (json_int_t)mine(c)->recovered, "rolled_forward",
			 (json_int_t)mine(c)->rolled_forward);
}

static void set_violation(json_t *violation, const struct vb_campaign *c)
{
	json_object_set_new(violation, "anomaly",
			    json_string(vb_anomaly_names[mine(c)->found_anomaly]));
}

static const struct vb_check_kind kind = {
	.nothing_named = "--cc names no protocol",
	.add = add,
	.label = label,
	.head = "protocol                   hybrid   seeds   commits  aborts  deaths recovered  "
		"forward  violations",
	.row = row,
	.run_json = run_json,
	.faults_json = faults_json,
	.set_violation = set_violation,
};

static int run(int argc, char **argv)
{
	int end = vb_cli_parse(&vb_command_check_txn, argc, argv);

	if (end >= 0)
		return end;
	vb_cc_register(vb_planted_ccs);
	return vb_check_seeds(&kind, &opts.check);
}

const struct vb_command vb_command_check_txn = {
	.name = "check txn",
	.summary = "Explore transaction protocols under simulated faults, seed by seed",
	.about = "Each seed draws a small cluster on the simulator, its tables, transactions "
		 "and faults, and runs it in virtual time. The history of the run must be "
		 "what the protocol promises, and what the tables hold in the end must be "
		 "explained by it. The first seed that finds something is told, with the "
		 "command that replays it.\n\n"
		 "The same seed gives the same run on every machine.",
	.run = run,
	.groups = groups,
	.option = "--cc",
	.example = "verbena check txn --cc silo,sundial --hybrid all --seeds 100",
	.ends = VB_ENDS(VB_EXIT_VIOLATION) | VB_ENDS(VB_EXIT_RESOURCES) |
		VB_ENDS(VB_EXIT_INTERRUPTED),
	.see = "checking.md, histories.md",
};
