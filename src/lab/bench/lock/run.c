/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One lock on any fabric: what the engine asks of a run (bench/engine/run.h).
 *
 * Between processes of one machine the parent has the lock servers.  On a network the first
 * `servers` ranks hold the locks, the others have the clients (where all are servers, all have
 * clients); the servers open the locks, then the others.
 */
#define VB_LOG_ROOM "bench"
#include "lab/bench/lock/lock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "lab/watch/dump.h"

#define SAMPLE_EVERY   32
#define RECORDS        (16u << 20) /* of all processes together */
#define RECORDS_EACH   (4u << 20)
#define HISTORY_EVENTS (4u << 20)

/* Locks of a client at a time: those of a transaction, and places in queues that earlier attempts
 * have left. */
static unsigned claims_of(const struct vb_bench_plan *plan)
{
	return VB_CLAIMS_MAX + (plan->tracing ? plan->trace.locks_max : 0);
}

/* How long without any cycle counts as a standstill for this lock. */
static uint64_t stall_ns(const struct vb_bench_plan *plan, const struct vb_lock_space *space)
{
	/* A lock that recovers gets twice the time its recovery is allowed to take. */
	uint64_t recovery = 2ull * vb_lock_recovery_leases(space) * plan->o.lease_ns;
	uint64_t held = plan->o.hold_ns + plan->o.scan_ns + (plan->tracing ? plan->o.think_ns : 0);
	/* An answer that is lost is given up after the verb's bound, and asked for after another. */
	uint64_t lost = vb_bench_is_net(plan->o.fabric) ? 4 * space->fabric->caps.verb_bound_ns : 0;

	return (plan->o.stall_ns > recovery ? plan->o.stall_ns : recovery) + held + lost;
}

static int open_space(struct vb_bench_lock_run *u)
{
	struct vb_bench_opts *o = &u->plan->o;
	struct vb_lock_space_params p = {
		.name = u->plan->space_name[0] != '\0' ? u->plan->space_name : NULL,
		.drift_ppm = u->plan->drift_ppm,
		.lock = u->ops->name,
		.options = o->lock_options,
		.locks = o->locks,
		.servers = (uint16_t)o->servers,
		.lease_ns = o->lease_ns,
		.fencing = o->fencing,
		.claims = claims_of(u->plan),
		.visible = o->visible,
	};
	int err = vb_lock_space_open(u->run.fabric, &p, &u->space);

	if (err)
		return err;
	if (o->lease_ns == 0)
		o->lease_ns = u->space->lease_ns;
	u->run.stall_ns = stall_ns(u->plan, u->space);
	u->run.close_ns = 4 * o->lease_ns; /* closing a client takes two at most */
	/* A lock that was lost with a holder, or with the answer to a verb, hands nobody his turn. */
	u->space->proxy_wait_ns = u->run.stall_ns;
	u->r->portable = u->space->portable_mask != 0;
	return 0;
}

/* A recovery lets everybody queue anew: no order is promised across it.  Who holds a lock for longer
 * than a lease is taken for dead. */
static bool needs_recovery(const struct vb_bench_opts *o)
{
	return o->fail_rate > 0 || o->hold_ns >= o->lease_ns || o->scan_ns >= o->lease_ns;
}

static int open_audit(struct vb_bench_lock_run *u)
{
	const struct vb_bench_opts *o = &u->plan->o;
	struct vb_audit_params p = {
		.locks = o->locks,
		.clients = (unsigned)o->clients,
		.claims = claims_of(u->plan),
		.ops = u->ops,
		.space = u->space,
		.fencing = o->fencing,
		.bypass = o->fabric == VB_BENCH_SIM && !needs_recovery(o),
	};
	int err = o->no_audit ? 0 : vb_audit_open(&p, &u->audit);

	/* Workers that open the space themselves have it watched. */
	if (err == 0 && u->audit != NULL && u->space != NULL)
		u->space->watch = vb_audit_watch(u->audit);
	return err;
}

/* Before the auditor: it passes on what it hears. */
static int open_history(struct vb_bench_lock_run *u)
{
	const char *path = u->plan->o.history;
	int err;

	if (path == NULL)
		return 0;
	err = vb_json_out_open(&u->history_out, path);
	if (err == 0)
		err = vb_lock_history_open(HISTORY_EVENTS, (unsigned)u->plan->o.clients,
					   &u->history);
	if (err == 0)
		u->space->watch = vb_lock_history_watch(u->history, u->space->watch);
	return err;
}

static int write_history(struct vb_bench_lock_run *u)
{
	bool full;
	FILE *to;
	int err;

	if (u->history == NULL)
		return 0;
	(void)vb_lock_history_count(u->history, &full);
	if (full)
		vb_warn("%s has the first %u calls and ends only: give a shorter --duration",
			u->plan->o.history, HISTORY_EVENTS);
	err = vb_json_out_stream(&u->history_out, &to);
	if (err)
		return err;
	return vb_json_out_end(&u->history_out, to,
			       vb_lock_history_write(u->history, u->plan->o.fencing, to));
}

/* ---- lock servers, on the calling thread ---- */

/* Those of one node, --server-threads of them. */
static int servers_of(struct vb_bench_lock_run *u, uint16_t node)
{
	unsigned workers = (unsigned)u->plan->o.server_threads, room = u->n_servers + workers;
	struct vb_lock_server **more =
		reallocarray(u->server, room, sizeof(struct vb_lock_server *));

	if (more == NULL)
		return vb_fail(-ENOMEM, "no memory for %u lock servers", room);
	u->server = more;
	for (unsigned i = 0; i < workers; i++) {
		struct vb_lock_server *server;
		int err = vb_lock_server_start(u->space, node, i, workers, &server);

		if (err)
			return err;
		if (server != NULL)
			u->server[u->n_servers++] = server;
	}
	return 0;
}

/* What the servers have spent while measuring. */
static void meter(struct vb_bench_run *run, bool on)
{
	struct vb_bench_lock_run *u = (struct vb_bench_lock_run *)run;
	struct vb_bench_meter m = {0};

	for (unsigned i = 0; i < u->n_servers; i++)
		for (unsigned op = 0; op < VB_OP_COUNT; op++)
			m.verbs[op] += u->server[i]->ep->count[op];
	if (on) {
		u->servers_start = m;
		return;
	}
	u->r->servers = m;
	vb_bench_subtract(&u->r->servers, &u->servers_start);
}

/* ---- opening and closing ---- */

static int open_fabric(struct vb_bench_lock_run *u)
{
	const struct vb_bench_opts *o = &u->plan->o;
	char options[512];
	struct vb_fabric_params p = {
		.no_keeper = o->fabric != VB_BENCH_SIM, /* who measures stays inside */
		.fabric = vb_bench_fabric_names[o->fabric],
		.options = o->fabric_options,
		.name = o->fabric == VB_BENCH_SHM ? o->segment : NULL,
		.nodes = (uint16_t)o->nodes,
		.node_bytes = vb_bench_node_bytes(u->plan, u->ops),
		.endpoints = (uint32_t)(o->clients + o->servers * o->server_threads + 16),
		.seed = o->seed,
		.cluster = u->run.group != NULL ? u->run.group->cluster : NULL,
	};

	if (o->fabric == VB_BENCH_SIM) {
		int err = vb_bench_sim_options(&o->common, "", options, sizeof(options));

		if (err)
			return err;
		p.options = options;
	}
	return vb_fabric_open(&p, &u->run.fabric);
}

static int open_net(struct vb_bench_lock_run *u, int err)
{
	struct vb_bench_opts *o = &u->plan->o;
	struct vb_bench_group *group = u->run.group;

	/* What nobody has said: the usual, or what this fabric needs.  It is the same in every
	 * process, for the fabric's options are. */
	if (err == 0 && o->lease_ns == 0)
		o->lease_ns = vb_lock_lease_init_ns(u->run.fabric);
	if (err == 0 && group->rank < o->servers)
		err = open_space(u);
	if (err == 0 && group->rank < o->servers)
		err = servers_of(u, (uint16_t)group->rank);
	return vb_bench_group_agree(group, "locks served", err);
}

/* In the parent of workers that are clients. */
static int open_elastic(struct vb_bench_lock_run *u)
{
	int err = vb_bench_elastic_begin(u);

	return err != 0 ? err : open_audit(u);
}

static int open_all(struct vb_bench_run *run)
{
	struct vb_bench_lock_run *u = (struct vb_bench_lock_run *)run;
	int err;

	if (run->o->elastic != NULL)
		return open_elastic(u);
	err = open_fabric(u);
	if (vb_bench_is_net(run->kind))
		return open_net(u, err);
	if (err == 0)
		err = open_space(u);
	if (err == 0)
		err = vb_bench_data_open(u);
	if (err == 0)
		err = open_audit(u);
	if (err == 0)
		err = open_history(u);
	for (unsigned node = 0; node < u->plan->o.servers && err == 0; node++)
		err = servers_of(u, (uint16_t)node);
	return err;
}

static void close_all(struct vb_bench_run *run)
{
	struct vb_bench_lock_run *u = (struct vb_bench_lock_run *)run;

	while (u->n_servers > 0)
		vb_lock_server_stop(u->server[--u->n_servers]);
	free(u->server);
	free(u->data);
	if (u->space != NULL)
		vb_lock_space_close(u->space);
	if (u->audit != NULL)
		vb_audit_close(u->audit);
	vb_lock_history_close(u->history);
	if (u->history_out.path != NULL)
		vb_json_out_abandon(&u->history_out);
	if (run->fabric != NULL)
		vb_fabric_close(run->fabric);
	vb_record_close(u->record);
	for (unsigned i = 0; u->parts != NULL && i < run->group->hosts; i++)
		free((void *)u->parts[i].grants);
	free(u->parts);
	vb_bench_elastic_end(u);
}

/* A network's grants are recorded here, and judged where all come together. */
static int open_record(struct vb_bench_lock_run *u)
{
	unsigned clients = (unsigned)u->plan->o.clients;
	uint64_t most = RECORDS / u->run.workers;
	int err = 0;

	if (most > RECORDS_EACH)
		most = RECORDS_EACH;
	if (u->space == NULL)
		err = open_space(u);
	if (err == 0 && !u->plan->o.no_audit)
		err = vb_record_open(clients, claims_of(u->plan), most, &u->record);
	if (err == 0 && u->record != NULL)
		u->space->watch = vb_record_watch(u->record);
	return err;
}

/* A worker of its own: the auditor is everybody's. */
static int join_elastic(struct vb_bench_lock_run *u, unsigned worker)
{
	int err = vb_bench_elastic_open(u, worker);

	if (err == 0)
		err = open_space(u);
	if (err != 0)
		return err;
	if (u->audit != NULL)
		u->space->watch = vb_audit_watch(u->audit);
	vb_bench_elastic_show(u, worker);
	return 0;
}

static void worker_close(struct vb_bench_run *run)
{
	struct vb_bench_lock_run *u = (struct vb_bench_lock_run *)run;

	if (u->learnt == NULL)
		return;
	vb_fabric_stats_get(run->fabric, &u->tally->fabric);
	vb_lock_space_close(u->space);
	vb_fabric_close(run->fabric);
}

static void workers_opened(struct vb_bench_run *run)
{
	struct vb_bench_lock_run *u = (struct vb_bench_lock_run *)run;

	if (u->learnt != NULL)
		vb_bench_elastic_learn(u);
}

static int worker_open(struct vb_bench_run *run, unsigned worker)
{
	struct vb_bench_lock_run *u = (struct vb_bench_lock_run *)run;
	int err = vb_bench_in_group(run->o) ? open_record(u) : 0;

	if (run->o->elastic != NULL)
		err = join_elastic(u, worker);
	u->tracing = u->plan->tracing ? &vb_bench_tracing : NULL;
	u->tally = vb_bench_tally_of(run, worker);
	u->sample_every = u->plan->o.breakdown ? SAMPLE_EVERY : 0;
	if (run->kind == VB_BENCH_SIM)
		u->sample_every = 1;
	return err;
}

/* ---- while it runs ---- */

static void measured(struct vb_bench_run *run, uint64_t now_ns)
{
	struct vb_bench_lock_run *u = (struct vb_bench_lock_run *)run;

	vb_bench_unfinished(u->r, run->states, run->clients, now_ns);
}

static void explain(struct vb_bench_run *run, uint64_t now_ns)
{
	struct vb_bench_lock_run *u = (struct vb_bench_lock_run *)run;

	vb_bench_explain_stall(u->r, run->states, run->clients, now_ns);
}

static void client_died(struct vb_bench_run *run, unsigned client)
{
	struct vb_bench_lock_run *u = (struct vb_bench_lock_run *)run;

	if (u->audit != NULL)
		vb_audit_client_died(u->audit, client);
	if (u->history != NULL)
		vb_lock_history_client_died(u->history, client);
}

/* SIGUSR1: the report of verbena dump, of all nodes. */
static void look(void *run)
{
	static const struct vb_look_opts all = {.space = "locks", .most = 40};
	struct vb_bench_lock_run *u = run;
	struct vb_ep *ep;

	if (!u->plan->o.visible) {
		vb_warn("SIGUSR1 shows who waits for whom only with --visible");
		return;
	}
	if (vb_ep_open(u->run.fabric, (uint16_t)u->run.group->rank, &ep) != 0)
		return;
	(void)vb_dump_look(stderr, ep, &all, NULL);
	vb_ep_close(ep);
}

/* That a lock without recovery is lost with its holder is no violation; all else is, but where others may have
 * locks who are not of this run. */
static bool must_move(const struct vb_bench_lock_run *u)
{
	if (u->learnt != NULL)
		return false;
	if (u->run.kind == VB_BENCH_SIM)
		return u->plan->o.fail_rate == 0 || u->ops->recovery_leases;
	return u->r->end.deaths == 0 || u->ops->caps & VB_LOCK_SURVIVES;
}

/* The auditor has watched to the last release. */
static int judge(struct vb_bench_run *run)
{
	struct vb_bench_lock_run *u = (struct vb_bench_lock_run *)run;
	struct vb_bench_result *r = u->r;

	if (run->kind == VB_BENCH_SIM)
		vb_bench_tally_rates(r->tally);
	if (r->end.stalled && u->audit != NULL && must_move(u))
		vb_audit_violation(u->audit, VB_AUDIT_STUCK, r->stalled_client, r->stalled_lock,
				   r->end.stall);
	vb_bench_take_audit(r, u->audit);
	return write_history(u);
}

static const struct vb_bench_run_ops run_ops = {
	.client = &vb_bench_lock_client_ops,
	.gather = &vb_bench_lock_gather_ops,
	.tally_bytes = sizeof(struct vb_bench_tally),
	.sums_bytes = offsetof(struct vb_bench_tally, measured_ns),
	.hists_at = offsetof(struct vb_bench_tally, lat),
	.merge = vb_bench_lock_merge,
	.parent_serves = true,
	.open = open_all,
	.close = close_all,
	.worker_open = worker_open,
	.worker_close = worker_close,
	.opened = workers_opened,
	.meter = meter,
	.measured = measured,
	.explain = explain,
	.look = look,
	.client_died = client_died,
	.judge = judge,
};

int vb_bench_run_lock(struct vb_bench_plan *plan, struct vb_bench_group *group,
		      const struct vb_lock_ops *ops, struct vb_bench_result *r)
{
	const struct vb_bench_opts *o = &plan->o;
	struct vb_bench_lock_run u = {.plan = plan, .ops = ops, .r = r};

	*r = (struct vb_bench_result){.ops = ops};
	r->tally = malloc(sizeof(*r->tally));
	u.run = (struct vb_bench_run){
		.ops = &run_ops,
		.o = &o->common,
		.end = &r->end,
		.tally = r->tally,
		.group = group,
		.clients = (unsigned)o->clients,
		.workers = vb_bench_workers(plan),
	};
	if (vb_bench_in_group(&o->common) && o->servers != group->hosts) {
		u.run.first_worker = (unsigned)o->servers;
		u.run.server_only = group->rank < o->servers;
	}
	return vb_bench_run_do(&u.run);
}
