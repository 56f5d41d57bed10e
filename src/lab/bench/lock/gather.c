/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A network's results (bench/engine/gather.c), and what the root makes of them.
 *
 * The pieces are grants.  Of who is dead they are unknown, and accuse nobody.
 */
#define VB_LOG_ROOM "bench"
#include "lab/bench/lock/lock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define PIECE (VB_BENCH_PIECE / sizeof(struct vb_record_grant)) /* grants at a time */

/* What a process reports to the root. */
struct report {
	struct vb_bench_report head;
	uint64_t grants, missed; /* recorded; not kept */
	uint64_t unfinished, unfinished_max_ns;
	struct vb_bench_meter servers;
	struct vb_bench_tally tally;
};

/* ---- leaving ---- */

static void report(struct vb_bench_run *run, void *to, int64_t offset_ns)
{
	struct vb_bench_lock_run *u = (struct vb_bench_lock_run *)run;
	struct report *out = to;

	u->r->end.interrupted |= run->cut_short;
	out->tally = *(const struct vb_bench_tally *)vb_bench_tally_of(run, 0);
	vb_fabric_stats_get(run->fabric, &out->tally.fabric);
	out->unfinished = u->r->unfinished;
	out->unfinished_max_ns = u->r->unfinished_max_ns;
	out->servers = u->r->servers;
	if (u->record != NULL) {
		struct vb_record_grant *g = vb_record_grants(u->record, &out->grants, &out->missed);

		vb_record_move(g, out->grants, offset_ns);
	}
}

static uint64_t pieces(const struct vb_bench_run *run)
{
	const struct vb_bench_lock_run *u = (const struct vb_bench_lock_run *)run;
	uint64_t mine = 0, missed;

	if (u->record != NULL)
		vb_record_grants(u->record, &mine, &missed);
	return (mine + PIECE - 1) / PIECE;
}

static size_t pack(struct vb_bench_run *run, uint64_t *at, void *to)
{
	const struct vb_bench_lock_run *u = (const struct vb_bench_lock_run *)run;
	uint64_t mine = 0, missed, n;
	const struct vb_record_grant *g =
		u->record != NULL ? vb_record_grants(u->record, &mine, &missed) : NULL;

	n = mine - *at < PIECE ? mine - *at : PIECE;
	if (n > 0)
		memcpy(to, g + *at, n * sizeof(*g));
	*at += n;
	return n * sizeof(*g);
}

/* ---- arriving ---- */

static bool state_is_sane(const struct vb_bench_run *run, const void *state)
{
	const struct vb_bench_lock_run *u = (const struct vb_bench_lock_run *)run;
	const struct vb_bench_lock_state *s = state;

	return s->doing <= VB_DOING_RELEASE && s->lock < u->plan->o.locks;
}

static int take_report(struct vb_bench_run *run, uint32_t rank, const void *report)
{
	struct vb_bench_lock_run *u = (struct vb_bench_lock_run *)run;
	const struct report *in = report;
	struct vb_bench_result *r = u->r;

	if (in->grants > (rank < run->first_worker ? 0 : UINT32_MAX))
		return vb_bench_group_refuse(run->group, rank, "a report");
	vb_bench_tally_merge(run, &in->tally);
	if (rank == 0) /* the rest of its own is in place already */
		return 0;
	vb_bench_add(&r->servers, &in->servers);
	r->unfinished += in->unfinished;
	if (in->unfinished_max_ns > r->unfinished_max_ns)
		r->unfinished_max_ns = in->unfinished_max_ns;
	return 0;
}

static struct vb_record_case case_of(const struct vb_bench_lock_run *u)
{
	return (struct vb_record_case){
		.locks = u->plan->o.locks,
		.clients = u->run.clients,
		.fencing = u->plan->o.fencing,
		.epoch_ns = u->run.control->t0_ns,
	};
}

static struct vb_record_part *part_of(struct vb_bench_lock_run *u, uint32_t rank)
{
	if (u->parts == NULL)
		u->parts = calloc(u->run.group->hosts, sizeof(*u->parts));
	return u->parts != NULL ? &u->parts[rank] : NULL;
}

static int take_grants(struct vb_bench_run *run, uint32_t rank, const void *report,
		       const void *data, size_t bytes)
{
	struct vb_bench_lock_run *u = (struct vb_bench_lock_run *)run;
	const struct report *in = report;
	struct vb_record_part *part = part_of(u, rank);
	const struct vb_record_grant *g = data;
	struct vb_record_case c = case_of(u);
	uint64_t n = bytes / sizeof(*g);

	if (part != NULL && part->grants == NULL)
		part->grants = malloc((in->grants + 1) * sizeof(*g));
	if (part == NULL || part->grants == NULL)
		return vb_fail(-ENOMEM, "no memory for %" PRIu64 " grants of %s", in->grants,
			       vb_cluster_name(run->group->cluster, rank));
	if (bytes % sizeof(*g) != 0 || n > in->grants - part->n)
		return vb_bench_group_refuse(run->group, rank, "grants");
	for (uint64_t i = 0; i < n; i++)
		if (!vb_record_is_sane(&c, &g[i]) ||
		    g[i].client % run->workers != rank - run->first_worker)
			return vb_bench_group_refuse(run->group, rank, "a grant");
	memcpy((struct vb_record_grant *)part->grants + part->n, g, n * sizeof(*g));
	part->n += n;
	return 0;
}

/* ---- judging ---- */

static void add_stuck(struct vb_bench_lock_run *u)
{
	struct vb_bench_result *r = u->r;
	char *story = NULL;

	/* That a lock without recovery is lost with its holder, or with the answer to a verb, is no
	 * violation. */
	if (u->run.dead >= 0 || (r->tally->uncertain != 0 && !(u->ops->caps & VB_LOCK_SURVIVES)))
		return;
	r->audit.violations++;
	r->audit.by_rule[VB_AUDIT_STUCK]++;
	if (asprintf(&story, "%s%s: lock %" PRIu64 ", client %u: %s\n",
		     r->story != NULL ? r->story : "", vb_audit_rule_names[VB_AUDIT_STUCK],
		     r->stalled_lock, r->stalled_client, r->end.stall) < 0)
		return;
	free(r->story);
	r->story = story;
}

static int judge(struct vb_bench_run *run, const void *const *reports)
{
	struct vb_bench_lock_run *u = (struct vb_bench_lock_run *)run;
	struct vb_record_case c = case_of(u);
	struct vb_bench_result *r = u->r;
	int err;

	if (u->plan->o.no_audit)
		return 0;
	if (part_of(u, 0) == NULL)
		return vb_fail(-ENOMEM, "no memory to judge the grants");
	for (uint32_t i = 0; i < run->group->hosts; i++) {
		const struct report *in = reports[i];

		if (in == NULL)
			continue;
		u->parts[i].error_ns = in->head.clock_error_ns;
		r->unaudited += in->missed + in->grants - u->parts[i].n;
	}
	err = vb_record_judge(&c, u->parts, run->group->hosts, &r->audit, &r->story);
	if (err)
		return err;
	r->audited = true;
	if (r->end.stalled)
		add_stuck(u);
	return 0;
}

const struct vb_bench_gather_ops vb_bench_lock_gather_ops = {
	.pieces_name = "grants",
	.report_bytes = sizeof(struct report),
	.report = report,
	.take_report = take_report,
	.state_is_sane = state_is_sane,
	.pieces = pieces,
	.pack = pack,
	.take_piece = take_grants,
	.judge = judge,
};
