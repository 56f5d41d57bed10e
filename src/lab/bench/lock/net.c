/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One lock on a network fabric.  This runs in every process of the crew: the first `servers` ranks
 * hold the locks, the others have the clients (where all are servers, all have clients).
 *
 * The steps, each of which everybody takes together: the servers open the locks, then the others;
 * the phases of the run pass (bench/engine/phases.c); results go to the root (gather.c).
 *
 * A client that waits is served by others, so nobody stops to serve before all have finished.
 */
#define VB_LOG_ROOM "bench"
#include "lab/bench/lock/net.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "lab/watch/dump.h"

#define SAMPLE_EVERY 32
#define RECORDS      (16u << 20) /* of all processes together */
#define RECORDS_EACH (4u << 20)

static struct vb_fabric_params fabric_params(const struct net_run *u)
{
	const struct vb_bench_opts *o = &u->plan->o;

	return (struct vb_fabric_params){
		.no_keeper = true, /* who measures stays inside */
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

	return err != 0 ? err
			: vb_bench_servers_of(&u->servers, u->plan, u->space,
					      (uint16_t)u->crew->rank);
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
	if (u->plan->o.lease_ns == 0)
		u->plan->o.lease_ns = vb_lock_lease_init_ns(u->fabric);
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

/* ---- measuring ---- */

/* What this process's clients have done, for the notice. */
static void count(void *run, struct vb_bench_notice *n)
{
	const struct net_run *u = run;
	unsigned clients = u->is_worker ? (unsigned)u->plan->o.clients : 0;

	for (unsigned i = 0; i < clients; i++) {
		n->cycles += __atomic_load_n(&u->seats[i].cycles, __ATOMIC_RELAXED);
		if (u->seats[i].doing == VB_DOING_ACQUIRE)
			n->flags |= VB_NOTICE_WAITING;
	}
}

static void give_up(void *run)
{
	struct net_run *u = run;

	vb_bench_seats_keep(u);
	vb_bench_worker_cancel(&u->w);
}

static void measure(struct net_run *u)
{
	const struct vb_bench_opts *o = &u->plan->o;
	uint64_t start = u->control.t0_ns + o->warmup_ns;
	struct vb_bench_meter servers = {0};

	if (vb_bench_phases_pass(&u->phases, start, "warming up")) {
		if (u->is_worker)
			vb_bench_worker_measure(&u->w, true);
		vb_bench_servers_meter(&u->servers, &servers);
		vb_bench_phases_pass(&u->phases, start + o->duration_ns, "measuring");
		vb_bench_servers_meter(&u->servers, &u->r->servers);
		vb_bench_meter_subtract(&u->r->servers, &servers);
		if (u->is_worker)
			vb_bench_worker_measure(&u->w, false);
	}
	if (u->is_worker)
		vb_bench_unfinished(u->r, u->seats, (unsigned)o->clients,
				    vb_sched_now_slow(u->sched));
	vb_bench_phases_drain(&u->phases);
}

static int run(struct net_run *u)
{
	int err;

	u->phases.stall_ns = vb_bench_stall_ns(u->plan, u->space);
	u->phases.is_worker = u->is_worker;
	u->phases.life = vb_bench_worker_life(&u->w);
	err = vb_bench_phases_start(&u->phases);
	if (err == 0 && u->is_worker)
		err = vb_bench_worker_start(&u->w);
	err = vb_bench_crew_agree(u->crew, "clients started", err);
	if (err)
		return err;
	u->r->end.ran = true;
	measure(u);
	/* Nobody stops to serve before all have come here. */
	err = vb_bench_phases_meet(&u->phases, "drained", u->plan->o.cluster.patience_ns);
	vb_fabric_stats_get(u->fabric, &u->r->tally->fabric);
	if (u->is_worker)
		vb_bench_worker_close(&u->w);
	u->r->end.interrupted = (u->phases.flags & VB_NOTICE_INTERRUPTED) != 0;
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

/* SIGUSR1: the report of verbena dump, of all nodes. */
static void look(void *run)
{
	static const struct vb_look_opts all = {.space = "locks", .most = 40};
	struct net_run *u = run;
	struct vb_ep *ep;

	if (!u->plan->o.visible) {
		vb_warn("SIGUSR1 shows who waits for whom only with --visible");
		return;
	}
	if (vb_ep_open(u->fabric, (uint16_t)u->crew->rank, &ep) != 0)
		return;
	(void)vb_dump_look(stderr, ep, &all, NULL);
	vb_ep_close(ep);
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
	};
	int err;

	u.worker = crew->rank - (plan->o.servers == crew->hosts ? 0 : (uint32_t)plan->o.servers);
	u.phases = (struct vb_bench_phases){
		.crew = crew,
		.sched = u.sched,
		.control = &u.control,
		.run = &u,
		.count = count,
		.give_up = give_up,
		.look = look,
		.dead = -1,
	};
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
	if (err == 0)
		err = vb_bench_phases_end(&u.phases);
	net_close(&u);
	r->wall_s = (double)(vb_clock_gettime_ns() - wall) / 1e9;
	return err;
}
