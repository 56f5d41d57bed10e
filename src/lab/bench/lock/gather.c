/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results of a network benchmark on their way to the root, and what the root makes of them.
 *
 * A process sends one report (its tally and what its clients were doing) and then its grants, in
 * pieces, because a part of a gather is bounded.  Times are moved to the root's time base before
 * they leave.  The root believes nothing that it has not checked: sizes, indices, ranges.  Whoever
 * is dead has sent nothing; its grants are unknown and accuse nobody.
 */
#define VB_LOG_ROOM "bench"
#include "lab/bench/lock/net.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define PIECE (VB_CLUSTER_PART_MAX / 2 / sizeof(struct vb_record_grant)) /* grants at a time */

struct report {
	uint64_t grants, missed; /* recorded; not kept */
	uint64_t clock_error_ns;
	uint64_t unfinished, unfinished_max_ns;
	uint64_t started_ns; /* when its clients began */
	uint32_t seats;      /* that follow, in order of this worker's clients */
	uint32_t interrupted;
	struct vb_bench_meter servers;
	struct vb_bench_tally tally;
};

struct vb_bench_seat *vb_bench_seats_new(const struct vb_bench_plan *plan)
{
	size_t bytes = plan->o.clients * sizeof(struct vb_bench_seat);
	struct vb_bench_seat *seats = aligned_alloc(_Alignof(struct vb_bench_seat), bytes);

	if (seats == NULL)
		vb_error("no memory for %" PRIu64 " clients", plan->o.clients);
	else
		memset(seats, 0, bytes);
	return seats;
}

void vb_bench_seats_keep(struct net_run *u)
{
	if (u->seats == NULL || u->kept != NULL)
		return;
	u->kept = vb_bench_seats_new(u->plan);
	if (u->kept != NULL)
		memcpy(u->kept, u->seats, u->plan->o.clients * sizeof(*u->seats));
}

/* How many clients worker w has. */
static uint32_t clients_of(const struct vb_bench_plan *plan, unsigned w)
{
	unsigned workers = vb_bench_workers(plan), clients = (unsigned)plan->o.clients;

	return clients / workers + (w < clients % workers);
}

/* ---- leaving ---- */

static struct report *report_new(struct net_run *u, size_t *bytes)
{
	unsigned workers = vb_bench_workers(u->plan);
	uint32_t n = u->is_worker && u->seats != NULL ? clients_of(u->plan, u->worker) : 0;
	const struct vb_bench_seat *seats = u->kept != NULL ? u->kept : u->seats;
	struct report *out;
	uint8_t *to;
	int64_t offset_ns;

	*bytes = sizeof(*out) + n * sizeof(*seats);
	out = calloc(1, *bytes);
	if (out == NULL)
		return NULL;
	out->unfinished = u->r->unfinished;
	out->unfinished_max_ns = u->r->unfinished_max_ns;
	out->seats = n;
	out->interrupted = u->r->end.interrupted;
	out->servers = u->r->servers;
	out->tally = *u->r->tally;
	vb_cluster_clock(u->crew->cluster, &offset_ns, &out->clock_error_ns);
	out->started_ns = u->control.t0_ns + (uint64_t)offset_ns;
	/* Seats are aligned to cache lines where they live, not on their way. */
	to = (uint8_t *)(out + 1);
	for (uint32_t i = 0; i < n; i++) {
		struct vb_bench_seat seat = seats[u->worker + i * workers];

		if (seat.since_ns != 0)
			seat.since_ns += (uint64_t)offset_ns;
		memcpy(to + i * sizeof(seat), &seat, sizeof(seat));
	}
	if (u->record != NULL) {
		struct vb_record_grant *g = vb_record_grants(u->record, &out->grants, &out->missed);

		vb_record_move(g, out->grants, offset_ns);
	}
	return out;
}

/* ---- arriving ---- */

struct arrival {
	const struct report *report; /* NULL: none came */
	struct vb_record_grant *grants;
	uint64_t n; /* of them that have come */
};

static unsigned worker_of(const struct net_run *u, uint32_t rank)
{
	unsigned servers = (unsigned)u->plan->o.servers;

	return servers == u->crew->hosts ? rank : rank - servers;
}

static bool has_clients(const struct net_run *u, uint32_t rank)
{
	return rank >= u->plan->o.servers || u->plan->o.servers == u->crew->hosts;
}

static bool report_is_sane(const struct net_run *u, uint32_t rank, const void *data, size_t bytes)
{
	const struct report *r = data;

	if (bytes < sizeof(*r) || (r->seats != 0 && !has_clients(u, rank)))
		return false;
	return (r->seats == 0 || r->seats == clients_of(u->plan, worker_of(u, rank))) &&
	       bytes == sizeof(*r) + r->seats * sizeof(struct vb_bench_seat) &&
	       r->grants <= UINT32_MAX;
}

static int take_report(struct net_run *u, uint32_t rank, const struct report *in,
		       struct vb_bench_seat *seats)
{
	const uint8_t *from = (const uint8_t *)(in + 1);
	unsigned workers = vb_bench_workers(u->plan);
	struct vb_bench_result *r = u->r;

	for (uint32_t i = 0; i < in->seats; i++) {
		struct vb_bench_seat seat;

		memcpy(&seat, from + i * sizeof(seat), sizeof(seat));
		if (seat.doing > VB_DOING_RELEASE || seat.lock >= u->plan->o.locks)
			return vb_bench_crew_refuse(u->crew, rank, "a client's state");
		seats[worker_of(u, rank) + i * workers] = seat;
	}
	if (rank == 0) { /* its own: in place already, and part of the rates if it has clients */
		vb_bench_tally_rates(r->tally);
		return 0;
	}
	vb_bench_tally_merge(r->tally, &in->tally);
	vb_bench_meter_add(&r->servers, &in->servers);
	r->unfinished += in->unfinished;
	if (in->unfinished_max_ns > r->unfinished_max_ns)
		r->unfinished_max_ns = in->unfinished_max_ns;
	return 0;
}

/* A piece of somebody's grants. */
static int take_grants(struct net_run *u, uint32_t rank, struct arrival *a, const void *data,
		       size_t bytes)
{
	struct vb_record_case c = {.locks = u->plan->o.locks,
				   .clients = (unsigned)u->plan->o.clients};
	const struct vb_record_grant *g = data;
	uint64_t n = bytes / sizeof(*g);

	if (bytes % sizeof(*g) != 0 || n > a->report->grants - a->n || !has_clients(u, rank))
		return vb_bench_crew_refuse(u->crew, rank, "grants");
	for (uint64_t i = 0; i < n; i++)
		if (!vb_record_is_sane(&c, &g[i]) ||
		    g[i].client % vb_bench_workers(u->plan) != worker_of(u, rank))
			return vb_bench_crew_refuse(u->crew, rank, "a grant");
	if (a->grants == NULL)
		a->grants = malloc((a->report->grants + 1) * sizeof(*g));
	if (a->grants == NULL)
		return vb_fail(-ENOMEM, "no memory for %" PRIu64 " grants of %s", a->report->grants,
			       vb_cluster_name(u->crew->cluster, rank));
	memcpy(a->grants + a->n, g, n * sizeof(*g));
	a->n += n;
	return 0;
}

/* Collective.  `most`: grants of whoever has the most. */
static int gather_grants(struct net_run *u, struct arrival *arrivals, uint64_t most)
{
	uint64_t mine = 0, missed = 0;
	const struct vb_record_grant *g =
		u->record != NULL ? vb_record_grants(u->record, &mine, &missed) : NULL;
	struct vb_cluster_parts parts;
	int err = 0;

	for (uint64_t at = 0; at < most; at += PIECE) {
		uint64_t n = at >= mine ? 0 : mine - at < PIECE ? mine - at : PIECE;
		int rc = vb_cluster_gather(u->crew->cluster, "grants", n > 0 ? g + at : NULL,
					   n * sizeof(*g), VB_CLUSTER_TO_ROOT, true, 0, &parts);

		if (rc)
			return rc;
		for (uint32_t r = 0; r < parts.n && err == 0; r++)
			if (parts.data[r] != NULL && parts.bytes[r] > 0 &&
			    arrivals[r].report != NULL)
				err = take_grants(u, r, &arrivals[r], parts.data[r],
						  parts.bytes[r]);
		vb_cluster_parts_free(&parts);
	}
	return err;
}

/* ---- judging ---- */

static void add_stuck(struct net_run *u)
{
	struct vb_bench_result *r = u->r;
	char *story = NULL;

	/* That a lock without recovery is lost with its holder, or with the answer to a verb, is no
	 * violation. */
	if (u->phases.dead >= 0 || (r->tally->uncertain != 0 && !(u->ops->caps & VB_LOCK_SURVIVES)))
		return;
	r->audit.violations++;
	r->audit.by_rule[VB_AUDIT_STUCK]++;
	if (asprintf(&story, "%s%s: lock %" PRIu64 ", client %u: %s\n",
		     r->story != NULL ? r->story : "", vb_audit_rule_names[VB_AUDIT_STUCK],
		     r->stalled_lock, r->stalled_client, r->stall) < 0)
		return;
	free(r->story);
	r->story = story;
}

static int judge(struct net_run *u, const struct arrival *arrivals)
{
	struct vb_record_part *parts = calloc(u->crew->hosts, sizeof(*parts));
	struct vb_record_case c = {
		.locks = u->plan->o.locks,
		.clients = (unsigned)u->plan->o.clients,
		.fencing = u->plan->o.fencing,
		.epoch_ns = u->control.t0_ns,
	};
	struct vb_bench_result *r = u->r;
	int err;

	if (parts == NULL)
		return vb_fail(-ENOMEM, "no memory to judge the grants");
	for (uint32_t i = 0; i < u->crew->hosts; i++) {
		const struct report *in = arrivals[i].report;

		if (in == NULL)
			continue;
		parts[i] = (struct vb_record_part){.grants = arrivals[i].grants,
						   .n = arrivals[i].n,
						   .error_ns = in->clock_error_ns};
		r->unaudited += in->missed + in->grants - arrivals[i].n;
		if (in->clock_error_ns > r->clock_error_ns)
			r->clock_error_ns = in->clock_error_ns;
	}
	err = vb_record_judge(&c, parts, u->crew->hosts, &r->audit, &r->story);
	free(parts);
	if (err)
		return err;
	r->audited = true;
	if (r->end.stalled)
		add_stuck(u);
	return 0;
}

static int take_reports(struct net_run *u, const struct vb_cluster_parts *parts,
			struct arrival *arrivals)
{
	struct vb_bench_seat *seats = vb_bench_seats_new(u->plan);
	struct vb_bench_result *r = u->r;
	int err = seats == NULL ? -ENOMEM : 0;

	for (uint32_t i = 0; i < parts->n && err == 0; i++) {
		if (parts->data[i] == NULL) {
			r->deaths++;
			r->dead_clients +=
				has_clients(u, i) ? clients_of(u->plan, worker_of(u, i)) : 0;
			continue;
		}
		if (!report_is_sane(u, i, parts->data[i], parts->bytes[i]))
			err = vb_bench_crew_refuse(u->crew, i, "a report");
		else
			err = take_report(u, i, parts->data[i], seats);
		arrivals[i].report = parts->data[i];
	}
	if (err == 0)
		r->died = vb_bench_phases_died(&u->phases);
	if (err == 0 && u->phases.stalled)
		vb_bench_explain_stall(r, seats, (unsigned)u->plan->o.clients,
				       vb_sched_now_slow(u->sched));
	free(seats);
	return err;
}

int vb_bench_gather(struct net_run *u)
{
	struct arrival *arrivals = calloc(u->crew->hosts, sizeof(*arrivals));
	struct vb_cluster_parts parts = {0};
	size_t bytes = 0;
	struct report *mine = report_new(u, &bytes);
	uint64_t most;
	int rc, err = 0;

	if (arrivals == NULL || mine == NULL)
		err = vb_fail(-ENOMEM, "no memory for the results");
	/* Without memory we still take part, with nothing, so that the others get on. */
	rc = vb_cluster_gather(u->crew->cluster, "results", mine, mine != NULL ? bytes : 0,
			       VB_CLUSTER_TO_ROOT, true, 0, &parts);
	if (rc == 0 && err == 0)
		err = take_reports(u, &parts, arrivals);
	if (rc == 0)
		rc = vb_bench_crew_largest(u->crew, "number of grants",
					   mine != NULL ? mine->grants : 0, UINT32_MAX, &most);
	if (rc == 0 && arrivals != NULL) {
		int failed = gather_grants(u, arrivals, most);

		err = err != 0 ? err : failed;
	}
	if (rc == 0 && err == 0 && u->crew->rank == 0 && !u->plan->o.no_audit)
		err = judge(u, arrivals);
	for (uint32_t r = 0; arrivals != NULL && r < u->crew->hosts; r++)
		free(arrivals[r].grants);
	vb_cluster_parts_free(&parts);
	free(arrivals);
	free(mine);
	return rc != 0 ? rc : err;
}
