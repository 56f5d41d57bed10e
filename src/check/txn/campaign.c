/* SPDX-License-Identifier: Apache-2.0 */
/* Seeds of a transaction protocol: what they draw, how they end, what is counted. */
#define VB_LOG_ROOM "check"
#include "check/txn/campaign.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

_Static_assert(VB_TXN_RULES <= VB_CAMPAIGN_RULES, "room for every rule");

static const struct vb_txn_campaign *mine(const struct vb_campaign *c)
{
	return vb_container_of(c, struct vb_txn_campaign, all);
}

static void name(const struct vb_campaign *c, char *buf, size_t size)
{
	const char *hybrid = mine(c)->hybrid;

	snprintf(buf, size, "txn --cc %s%s%s%s%s", c->protocol, hybrid[0] ? " --hybrid " : "",
		 hybrid, mine(c)->copies ? " --copies" : "", mine(c)->far ? " --far" : "");
}

static const char *groups(const struct vb_campaign *c)
{
	return mine(c)->groups;
}

void vb_txn_campaign_far(struct vb_txn_campaign *c)
{
	const size_t used = strlen(c->groups);

	c->far = true;
	if (used > 0)
		snprintf(c->groups + used, sizeof(c->groups) - used, " far");
}

static void draw(const struct vb_campaign *c, uint64_t seed, struct vb_txn_draw *d)
{
	const struct vb_txn_campaign *t = mine(c);

	const char *hybrid = t->hybrid[0] ? t->hybrid : NULL;

	vb_txn_draw(t->cc, seed, hybrid, d);
	if (t->copies)
		vb_txn_draw_copies(t->cc, hybrid, d);
	if (t->far)
		vb_txn_draw_far(t->cc, d);
}

static void describe(const struct vb_campaign *c, uint64_t seed, FILE *to)
{
	struct vb_txn_draw d;

	draw(c, seed, &d);
	vb_txn_draw_describe(&d, to);
}

static void tell_end(FILE *to, const struct vb_txn_draw *d, const struct vb_txn_explored *r)
{
	fprintf(to,
		"seed %" PRIu64 ": trace %016" PRIx64 ", %" PRIu64 " commits, %" PRIu64
		" deaths (%" PRIu64 " of servers), %" PRIu64 " left, %" PRIu64
		" cancelled, %" PRIu64 " unknown (%" PRIu64 " commits), %" PRIu64
		" locks recovered, %" PRIu64 " tuples rolled forward, %" PRIu64
		" verbs, %.3f ms: %" PRIu64 " violations\n",
		d->seed, r->trace_hash, r->commits, r->deaths + r->server_deaths, r->server_deaths,
		r->leavings, r->cancels, r->unknown, r->unknown_commits, r->recovered,
		r->rolled_forward, r->verbs, (double)r->virtual_ns / 1e6, r->violations);
}

/* A bug may be planted by the name of its rule or of its anomaly. */
static bool is_wanted(const struct vb_campaign *c, enum vb_txn_rule rule, enum vb_anomaly anomaly)
{
	return vb_campaign_wants(c, rule) || (rule == VB_TXN_RULE_NOT_SERIALIZABLE &&
					      !strcmp(c->planted, vb_anomaly_names[anomaly]));
}

static int wanted_rule(const struct vb_campaign *c, const struct vb_txn_explored *r)
{
	for (unsigned i = 0; i < VB_TXN_RULES; i++)
		if (r->found[i] != 0 && is_wanted(c, i, r->anomaly))
			return (int)i;
	return -1;
}

/* The file has this seed's history, and nothing of the last one's. */
static int explore_to(const struct vb_txn_campaign *t, const struct vb_txn_draw *d,
		      struct vb_txn_explored *r)
{
	bool again = fseek(t->history, 0, SEEK_SET) == 0; /* no pipe */

	*r = (struct vb_txn_explored){0};
	if (again && ftruncate(fileno(t->history), 0) != 0)
		return vb_fail(-EIO, "cannot write the history anew: %s", strerror(errno));
	return vb_txn_explore_to(t->cc, d, t->history, t->all.stop, r);
}

static int explore(struct vb_campaign *c, uint64_t seed, struct vb_campaign_seed *out)
{
	struct vb_txn_campaign *t = vb_container_of(c, struct vb_txn_campaign, all);
	struct vb_txn_explored r;
	struct vb_txn_draw d;
	int err;

	draw(c, seed, &d);
	err = t->history != NULL ? explore_to(t, &d, &r)
				 : vb_txn_explore_to(t->cc, &d, NULL, c->stop, &r);
	out->stories = r.stories;
	if (err)
		return err;
	if (c->tell != NULL)
		tell_end(c->tell, &d, &r);
	out->violations = r.violations;
	memcpy(out->by_rule, r.found, sizeof(r.found));
	out->verbs = r.verbs;
	out->deaths = r.deaths;
	out->unknown = r.unknown;
	out->rule = wanted_rule(c, &r);
	if (out->rule >= 0 && !c->found)
		t->found_anomaly = r.anomaly;
	t->commits += r.commits;
	t->recovered += r.recovered;
	t->rolled_forward += r.rolled_forward;
	t->unknown_commits += r.unknown_commits;
	for (unsigned i = 0; i < VB_TXN_CAUSES; i++)
		t->aborts += r.aborts[i];
	return 0;
}

static const struct vb_campaign_kind kind = {
	.rule_names = vb_txn_rule_names,
	.n_rules = VB_TXN_RULES,
	.name = name,
	.groups = groups,
	.describe = describe,
	.explore = explore,
};

static bool is_in(const struct vb_cc_ops *const *list, const struct vb_cc_ops *cc)
{
	while (*list != NULL && *list != cc)
		list++;
	return *list != NULL;
}

void vb_txn_campaign_init(struct vb_txn_campaign *c, const struct vb_cc_ops *cc, const char *hybrid)
{
	*c = (struct vb_txn_campaign){
		.all = {.kind = &kind, .protocol = cc->name, .planted = cc->planted},
		.cc = cc,
	};
	if (hybrid == NULL)
		hybrid = cc->code;
	/* Not every code reaches every branch. */
	if (hybrid == NULL && (is_in(vb_ccs, cc) || is_in(vb_ccs_declared, cc)))
		snprintf(c->groups, sizeof(c->groups), "txn %s", cc->name);
	if (hybrid != NULL)
		snprintf(c->hybrid, sizeof(c->hybrid), "%s", hybrid);
}
