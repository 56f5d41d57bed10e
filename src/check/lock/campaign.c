/* SPDX-License-Identifier: Apache-2.0 */
/* Seeds of a lock: what they draw, how they end, what is counted. */
#define VB_LOG_ROOM "check"
#include "check/lock/campaign.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define HISTORY_EVENTS (1u << 22)

_Static_assert(VB_AUDIT_RULES <= VB_CAMPAIGN_RULES, "room for every rule");

static const struct vb_lock_campaign *mine(const struct vb_campaign *c)
{
	return vb_container_of(c, struct vb_lock_campaign, all);
}

static void name(const struct vb_campaign *c, char *buf, size_t size)
{
	snprintf(buf, size, "lock --lock %s%s", c->protocol, mine(c)->beyond ? " --beyond" : "");
}

static const char *groups(const struct vb_campaign *c)
{
	return mine(c)->beyond ? "" : mine(c)->groups;
}

static void draw(const struct vb_campaign *c, uint64_t seed, struct vb_explore_draw *d)
{
	if (mine(c)->beyond)
		vb_explore_draw_beyond(mine(c)->ops, seed, d);
	else
		vb_explore_draw(mine(c)->ops, seed, d);
}

static void describe(const struct vb_campaign *c, uint64_t seed, FILE *to)
{
	struct vb_explore_draw d;

	draw(c, seed, &d);
	vb_explore_describe(&d, to);
}

static void tell_end(FILE *to, const struct vb_explore_draw *d, const struct vb_explore_result *r)
{
	fprintf(to,
		"seed %" PRIu64 ": trace %016" PRIx64 ", %" PRIu64 " grants, %" PRIu64
		" violations, %" PRIu64 " deaths, %" PRIu64 " servers gone, %" PRIu64
		" closed, %" PRIu64 " cancelled, %" PRIu64 " timed out, %" PRIu64
		" unknown, %" PRIu64 " lost, %" PRIu64 " verbs, %.3f ms",
		d->seed, r->trace_hash, r->audit.checked_ops, r->audit.violations, r->deaths,
		r->servers_gone, r->closes, r->cancels, r->timeouts, r->unknown, r->audit.lost,
		r->verbs, (double)r->virtual_ns / 1e6);
	vb_explore_tell_beyond(to, d, r);
	fprintf(to, "\n");
}

/* Is this what we are looking for?  Of a real lock the rule that was broken first, of a planted bug
 * its own; -1: no. */
static int wanted_rule(const struct vb_campaign *c, const struct vb_explore_result *r)
{
	for (unsigned i = 0; i < VB_AUDIT_RULES; i++)
		if (r->audit.by_rule[i] != 0 && vb_campaign_wants(c, i))
			return (int)(c->planted != NULL ? i : r->first_rule);
	return -1;
}

/* Also of a seed that could not be explored to its end. */
static int explore_recorded(const struct vb_lock_campaign *l, const struct vb_explore_draw *d,
			    struct vb_explore_result *r)
{
	struct vb_lock_history *h;
	int err, written;
	bool full;

	if (l->history == NULL)
		return vb_explore_record(l->ops, d, NULL, l->all.stop, r);
	err = vb_lock_history_open(HISTORY_EVENTS, VB_EXPLORE_CLIENTS_MAX, &h);
	if (err) {
		*r = (struct vb_explore_result){0};
		return err;
	}
	err = vb_explore_record(l->ops, d, h, l->all.stop, r);
	written = vb_lock_history_write(h, d->fencing, l->history);
	(void)vb_lock_history_count(h, &full);
	if (full)
		vb_warn("the history has the first %u events of the seed only", HISTORY_EVENTS);
	vb_lock_history_close(h);
	return err ? err : written;
}

static int explore(struct vb_campaign *c, uint64_t seed, struct vb_campaign_seed *out)
{
	struct vb_lock_campaign *l = vb_container_of(c, struct vb_lock_campaign, all);
	struct vb_explore_result r;
	struct vb_explore_draw d;
	int err;

	draw(c, seed, &d);
	err = explore_recorded(l, &d, &r);
	out->stories = r.stories;
	if (err)
		return err;
	if (c->tell != NULL)
		tell_end(c->tell, &d, &r);
	out->violations = r.audit.violations;
	memcpy(out->by_rule, r.audit.by_rule, sizeof(r.audit.by_rule));
	out->verbs = r.verbs;
	out->deaths = r.deaths;
	out->unknown = r.unknown;
	out->rule = wanted_rule(c, &r);
	l->checked_ops += r.audit.checked_ops;
	l->lost += r.audit.lost;
	l->told += r.told;
	l->late_verbs += r.late_verbs;
	l->forgiven += r.forgiven;
	l->cancels += r.cancels;
	l->closes += r.closes;
	l->timeouts += r.timeouts;
	if (d.orderly && r.audit.max_bypass > l->max_bypass)
		l->max_bypass = r.audit.max_bypass;
	return 0;
}

static const struct vb_campaign_kind kind = {
	.rule_names = vb_audit_rule_names,
	.n_rules = VB_AUDIT_RULES,
	.name = name,
	.groups = groups,
	.describe = describe,
	.explore = explore,
};

/* Its own, and those of what it shares with others. */
static void name_groups(struct vb_lock_campaign *c)
{
	const struct vb_lock_ops *ops = c->ops, *const *l = vb_locks;
	bool proxy = ops->resume != NULL, survives = (ops->caps & VB_LOCK_SURVIVES) != 0;

	while (*l != NULL && *l != ops)
		l++;
	if (*l == NULL)
		return;
	snprintf(c->groups, sizeof(c->groups), "%s ring%s%s%s%s%s%s", ops->name,
		 ops->release_now != NULL ? " once" : "", proxy ? " proxy" : "",
		 proxy && ops->caps & VB_LOCK_SHARED ? " modes" : "",
		 proxy && !survives ? " ghost" : "", survives ? " lease" : "",
		 survives && ops->renew != NULL ? " renew" : "");
}

void vb_lock_campaign_init(struct vb_lock_campaign *c, const struct vb_lock_ops *ops)
{
	*c = (struct vb_lock_campaign){
		.all = {.kind = &kind, .protocol = ops->name, .planted = ops->planted},
		.ops = ops,
	};
	name_groups(c);
}
