/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One lock on a network fabric.  This runs in every process of the crew: the first `servers` ranks
 * hold the locks, the others have the clients (where all are servers, all have clients).
 *
 * The steps, each of which everybody takes together: the servers open the locks, then the others;
 * the root names a moment to start; warm-up and measured span pass by each one's own clock; clients
 * finish the cycle they are in; results go to the root (bench_gather.c).  In between nobody waits for
 * anybody: each hangs out a notice of how far it is, and the root one that says whether to end
 * early, because its user wants that, because nothing moves, or because somebody is dead.
 *
 * A client that waits is served by others, so nobody stops to serve before all have finished.
 */
#define VB_LOG_ROOM "bench"
#include "lab/bench_net.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "lab/run.h"

#define SLICE_NS     5000000ull
#define NOTICE_NS    50000000ull
#define START_NS     20000000ull /* from the root's word to the first cycle */
#define SAMPLE_EVERY 32
#define RECORDS      (16u << 20) /* of all processes together */
#define RECORDS_EACH (4u << 20)

static struct vb_fabric_params fabric_params(const struct net_run *u)
{
	const struct vb_bench_opts *o = &u->plan->o;

	return (struct vb_fabric_params){
		.fabric = vb_bench_fabric_names[o->fabric],
		.options = o->fabric_options,
		.nodes = (uint16_t)o->nodes,
		.node_bytes = vb_bench_node_bytes(u->plan, u->ops),
		.endpoints = (uint32_t)(o->clients + o->servers * o->server_threads + 16),
		.seed = o->seed,
		.cluster = u->crew->cluster,
	};
}

/* ---- opening ---- */

static int servers_open(struct net_run *u)
{
	int err = vb_bench_open_space(u->plan, u->ops, u->fabric, &u->space);

	for (unsigned i = 0; i < u->plan->o.server_threads && err == 0; i++) {
		struct vb_lock_server *s;

		err = vb_lock_server_start(u->space, (uint16_t)u->crew->rank, i,
					   (unsigned)u->plan->o.server_threads, &s);
		if (err == 0 && s != NULL)
			u->servers.server[u->servers.n++] = s;
	}
	return err;
}

static int clients_open(struct net_run *u)
{
	const struct vb_bench_opts *o = &u->plan->o;
	unsigned workers = vb_bench_workers(u->plan), clients = (unsigned)o->clients;
	uint64_t most = RECORDS / workers < RECORDS_EACH ? RECORDS / workers : RECORDS_EACH;
	int err = 0;

	u->seats = vb_bench_seats_new(u->plan);
	if (u->seats == NULL)
		return -ENOMEM;
	if (u->space == NULL)
		err = vb_bench_open_space(u->plan, u->ops, u->fabric, &u->space);
	if (err == 0 && !o->no_audit)
		err = vb_record_open(clients, vb_bench_claims(u->plan), most, &u->record);
	if (err == 0 && u->record != NULL)
		u->space->watch = vb_record_watch(u->record);
	u->w = (struct vb_bench_worker){
		.plan = u->plan,
		.space = u->space,
		.control = &u->control,
		.tally = u->r->tally,
		.sample_every = o->breakdown ? SAMPLE_EVERY : 0,
	};
	if (err == 0)
		err = vb_bench_worker_open(&u->w, u->seats, u->worker, workers,
					   clients / workers + (u->worker < clients % workers));
	return err;
}

/* What nobody has said: the usual, or what this fabric needs.  It is the same in every process, for
 * the fabric's options are. */
static void choose_lease(struct net_run *u)
{
	uint64_t needs_ns = 2 * u->fabric->caps.verb_bound_ns;

	if (u->plan->o.lease_ns == 0)
		u->plan->o.lease_ns =
			needs_ns > VB_BENCH_LEASE_NS ? needs_ns + needs_ns / 16 : VB_BENCH_LEASE_NS;
}

static int net_open(struct net_run *u)
{
	struct vb_fabric_params p = fabric_params(u);
	int err = vb_fabric_open(&p, &u->fabric);

	if (err == 0)
		choose_lease(u);
	if (err == 0 && u->is_server)
		err = servers_open(u);
	err = vb_bench_crew_agree(u->crew, "locks served", err);
	if (err)
		return err;
	if (u->is_worker)
		err = clients_open(u);
	u->r->portable = u->space != NULL && u->space->portable_mask != 0;
	return vb_bench_crew_agree(u->crew, "clients opened", err);
}

/* ---- word between the processes ---- */

/* The moment to start, in this process's time base. */
static int agree_on_start(struct net_run *u)
{
	uint64_t mine = vb_sched_now_slow(u->sched) + START_NS, error_ns;
	struct vb_cluster_parts parts;
	int64_t offset_ns;
	int err = vb_cluster_gather(u->crew->cluster, "start", &mine, sizeof(mine),
				    VB_CLUSTER_TO_ALL, false, 0, &parts);

	if (err)
		return err;
	if (parts.bytes[0] != sizeof(mine)) {
		vb_cluster_parts_free(&parts);
		return vb_fail(-EPROTO, "the root has not said when to start");
	}
	memcpy(&mine, parts.data[0], sizeof(mine));
	vb_cluster_parts_free(&parts);
	vb_cluster_clock(u->crew->cluster, &offset_ns, &error_ns);
	u->control.t0_ns = mine - (uint64_t)offset_ns;
	return 0;
}

static void post(struct net_run *u, uint64_t now)
{
	struct vb_bench_notice n = {.run = u->crew->run, .flags = u->flags};
	unsigned clients = u->is_worker ? (unsigned)u->plan->o.clients : 0;

	for (unsigned i = 0; i < clients; i++) {
		n.cycles += __atomic_load_n(&u->seats[i].cycles, __ATOMIC_RELAXED);
		if (u->seats[i].doing == VB_DOING_ACQUIRE)
			n.flags |= VB_NOTICE_WAITING;
	}
	if (vb_interrupted)
		n.flags |= VB_NOTICE_INTERRUPTED;
	vb_cluster_post(u->crew->cluster, &n);
	u->posted_ns = now;
}

/* The root looks at everybody: does anything move, does anybody want an end, have all finished? */
static void look_at_all(struct net_run *u, uint64_t now)
{
	struct vb_bench_notice n;
	uint64_t cycles = 0;
	bool waiting = false, all = true;

	for (uint32_t r = 0; r < u->crew->hosts; r++) {
		bool there = vb_cluster_read(u->crew->cluster, r, &n) && n.run == u->crew->run;

		if (!vb_cluster_alive(u->crew->cluster, r))
			continue;
		all &= there && (n.flags & VB_NOTICE_DRAINED) != 0;
		if (!there)
			continue;
		cycles += n.cycles;
		waiting |= (n.flags & VB_NOTICE_WAITING) != 0;
		u->flags |= n.flags & VB_NOTICE_INTERRUPTED;
	}
	u->all_drained = all;
	if (cycles != u->pulse.cycles || !waiting) {
		u->pulse.cycles = cycles;
		u->pulse.since_ns = now;
	} else if (now - u->pulse.since_ns > vb_bench_stall_ns(u->plan, u->ops)) {
		u->stalled = true;
		u->flags |= VB_NOTICE_GIVE_UP;
	}
}

/* Hangs out how far we are, and looks what the others say. */
static void exchange(struct net_run *u)
{
	uint64_t now = vb_sched_now_slow(u->sched);
	struct vb_bench_notice n;
	uint32_t before = u->flags;
	int dead = vb_cluster_first_dead(u->crew->cluster);

	if (dead >= 0 && u->dead < 0) {
		u->dead = dead;
		u->flags |= VB_NOTICE_GIVE_UP;
	}
	if (!vb_cluster_alive(u->crew->cluster, 0))
		u->flags |= VB_NOTICE_GIVE_UP;
	if (u->crew->rank == 0)
		look_at_all(u, now);
	else if (vb_cluster_read(u->crew->cluster, 0, &n) && n.run == u->crew->run)
		u->flags |= n.flags & (VB_NOTICE_INTERRUPTED | VB_NOTICE_GIVE_UP);
	if (u->flags != before || now >= u->posted_ns + NOTICE_NS)
		post(u, now);
}

/* ---- measuring ---- */

/* A slice of the clients' work, or of serving them. */
static void slice(struct net_run *u, uint64_t until_ns)
{
	if (!u->is_worker || u->w.all_finished) {
		vb_task_sleep_until(until_ns);
		return;
	}
	vb_sched_run(u->sched, &u->w.all_finished, until_ns);
	vb_bench_worker_flush(&u->w);
}

static bool ends_early(const struct net_run *u)
{
	return (u->flags & (VB_NOTICE_INTERRUPTED | VB_NOTICE_GIVE_UP)) != 0;
}

/* false: word came to end early. */
static bool pass_until(struct net_run *u, uint64_t at_ns, const char *phase)
{
	uint64_t from = vb_sched_now_slow(u->sched), now = from;

	while (now < at_ns) {
		slice(u, at_ns - now < SLICE_NS ? at_ns : now + SLICE_NS);
		exchange(u);
		if (ends_early(u))
			return false;
		now = vb_sched_now_slow(u->sched);
		if (u->crew->rank == 0)
			vb_bench_progress_show((double)(now - from) / (double)(at_ns - from),
					       u->pulse.cycles, phase);
	}
	return true;
}

/* Clients finish; who waits for what nobody gives any more is told to give up, and then bounded. */
static void drain(struct net_run *u)
{
	uint64_t give_up = VB_FOREVER;

	u->w.drain = true;
	while (u->crew->rank == 0 ? !u->all_drained : u->is_worker && !u->w.all_finished) {
		uint64_t now = vb_sched_now_slow(u->sched);

		if ((u->flags & VB_NOTICE_GIVE_UP) != 0 && give_up == VB_FOREVER) {
			give_up = now + vb_bench_stall_ns(u->plan, u->ops);
			vb_bench_seats_keep(u);
			vb_bench_worker_cancel(&u->w);
		}
		if (now >= give_up)
			break;
		slice(u, now + SLICE_NS);
		if (!u->is_worker || u->w.all_finished)
			u->flags |= VB_NOTICE_DRAINED;
		exchange(u);
	}
	u->flags |= VB_NOTICE_DRAINED;
	post(u, vb_sched_now_slow(u->sched));
}

static void measure(struct net_run *u)
{
	const struct vb_bench_opts *o = &u->plan->o;
	uint64_t start = u->control.t0_ns + o->warmup_ns;
	struct vb_bench_meter servers = {0};

	u->pulse.since_ns = u->control.t0_ns;
	if (pass_until(u, start, "warming up")) {
		if (u->is_worker)
			vb_bench_worker_measure(&u->w, true);
		vb_bench_servers_meter(&u->servers, &servers);
		pass_until(u, start + o->duration_ns, "measuring");
		vb_bench_servers_meter(&u->servers, &u->r->servers);
		vb_bench_meter_subtract(&u->r->servers, &servers);
		if (u->is_worker)
			vb_bench_worker_measure(&u->w, false);
	}
	if (u->is_worker)
		vb_bench_unfinished(u->r, u->seats, (unsigned)o->clients,
				    vb_sched_now_slow(u->sched));
	drain(u);
}

/* Nobody stops to serve before all have come here. */
static uint64_t drain_bound_ns(const struct net_run *u)
{
	return 2 * vb_bench_stall_ns(u->plan, u->ops) + u->plan->o.patience_ns;
}

static int run(struct net_run *u)
{
	struct vb_cluster_parts parts;
	int err = agree_on_start(u);

	if (err == 0 && u->is_worker)
		err = vb_bench_worker_start(&u->w);
	err = vb_bench_crew_agree(u->crew, "clients started", err);
	if (err)
		return err;
	u->r->ran = true;
	measure(u);
	err = vb_cluster_gather(u->crew->cluster, "drained", NULL, 0, VB_CLUSTER_TO_ROOT, true,
				drain_bound_ns(u), &parts);
	if (err == 0)
		vb_cluster_parts_free(&parts);
	vb_fabric_stats_get(u->fabric, &u->r->tally->fabric);
	if (u->is_worker)
		vb_bench_worker_close(&u->w);
	u->r->interrupted = (u->flags & VB_NOTICE_INTERRUPTED) != 0;
	return err != 0 ? err : vb_bench_gather(u);
}

/* ---- the whole ---- */

static void net_close(struct net_run *u)
{
	if (u->w.clients != NULL)
		vb_bench_worker_close(&u->w);
	vb_bench_servers_stop(&u->servers);
	if (u->space != NULL)
		vb_lock_space_close(u->space);
	if (u->fabric != NULL)
		vb_fabric_close(u->fabric);
	vb_record_close(u->record);
	free(u->seats);
	free(u->kept);
}

int vb_bench_run_net(struct vb_bench_plan *plan, struct vb_bench_crew *crew,
		     const struct vb_lock_ops *ops, struct vb_bench_result *r)
{
	uint64_t wall = vb_clock_gettime_ns();
	struct net_run u = {
		.plan = plan,
		.crew = crew,
		.ops = ops,
		.r = r,
		.is_server = crew->rank < plan->o.servers,
		.is_worker = crew->rank >= plan->o.servers || plan->o.servers == crew->hosts,
		.sched = vb_sched_self(),
		.dead = -1,
	};
	int err;

	u.worker = crew->rank - (plan->o.servers == crew->hosts ? 0 : (uint32_t)plan->o.servers);
	*r = (struct vb_bench_result){.ops = ops, .started = plan->o.clients};
	crew->run++;
	r->tally = malloc(sizeof(*r->tally));
	if (r->tally == NULL)
		return vb_fail(-ENOMEM, "no memory for the results");
	vb_bench_tally_init(r->tally);
	r->sampled = plan->o.breakdown;
	err = net_open(&u);
	if (err == 0)
		err = run(&u);
	if (err == 0 && u.dead >= 0) {
		err = -VB_EPEERGONE;
		if (crew->rank == 0)
			vb_error("%s died: the run ends, its results are of the others until then",
				 vb_cluster_name(crew->cluster, (uint32_t)u.dead));
	}
	net_close(&u);
	r->wall_s = (double)(vb_clock_gettime_ns() - wall) / 1e9;
	return err;
}
