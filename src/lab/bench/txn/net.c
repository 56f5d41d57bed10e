/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One run of transactions on a network fabric.  This runs in every process of the crew, each of
 * which is a node: it has the node's records and server, and clients.
 *
 * The steps, each of which everybody takes together: fabric and database are opened; each fills its
 * node and starts its server; clients are opened; the phases of the run pass
 * (bench/engine/phases.c); results go to the root (gather.c).
 *
 * Clients need the other nodes' servers, so nobody stops to serve before all have finished.
 */
#define VB_LOG_ROOM "bench"
#include "lab/bench/txn/net.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "lab/bench/engine/progress.h"
#include "lab/run.h"

/* ---- opening ---- */

static bool fill_step(void *ctx, uint64_t done)
{
	const struct vb_tbench_net *u = ctx;
	uint64_t each = u->r->records / u->plan->o.nodes + 1;

	if (u->crew->rank == 0)
		vb_bench_progress_show((double)done / (double)each, 0, "filling the tables");
	return !vb_interrupted;
}

static int fill_and_serve(struct vb_tbench_net *u)
{
	const struct vb_load_progress progress = {.step = fill_step, .ctx = u};
	uint64_t wall = vb_clock_gettime_ns();
	uint16_t node = (uint16_t)u->crew->rank;
	int err = u->plan->load->fill(&u->ground.load, node, &progress);

	u->r->fill_s = (double)(vb_clock_gettime_ns() - wall) / 1e9;
	return err ? err : vb_db_server_start(u->ground.db, node, &u->server);
}

static int clients_open(struct vb_tbench_net *u)
{
	unsigned all = vb_tbench_clients(u->plan), mine = vb_tbench_net_clients(u);
	int err;

	u->seats = aligned_alloc(VB_CACHELINE, all * sizeof(*u->seats));
	if (u->seats == NULL)
		return vb_fail(-ENOMEM, "no memory for %u clients", all);
	memset(u->seats, 0, all * sizeof(*u->seats));
	if (u->plan->o.check) {
		err = vb_tbench_recorder_open(&u->recorder, u->plan, u->ground.load.items,
					      u->crew->rank, mine, &u->control.full);
		if (err)
			return err;
		u->recorder.watch.ctx = &u->recorder;
		u->ground.db->watch = &u->recorder.watch;
	}
	u->w = (struct vb_tbench_worker){
		.plan = u->plan,
		.load = &u->ground.load,
		.db = u->ground.db,
		.control = &u->control,
		.tally = u->tally,
	};
	return vb_tbench_worker_open(&u->w, u->seats, u->crew->rank * mine, mine);
}

static int net_open(struct vb_tbench_net *u, const struct vb_tbench_one *one)
{
	int err = vb_tbench_ground_open(&u->ground, u->plan, one, u->r);

	err = vb_bench_crew_agree(u->crew, "database opened", err);
	if (err)
		return err;
	err = vb_bench_crew_agree(u->crew, "tables filled", fill_and_serve(u));
	if (err)
		return err;
	return vb_bench_crew_agree(u->crew, "clients opened", clients_open(u));
}

/* ---- measuring ---- */

/* What this process's clients have done, for the notice.  They always want to commit. */
static void count(void *run, struct vb_bench_notice *n)
{
	const struct vb_tbench_net *u = run;

	for (unsigned i = 0; i < u->w.n; i++)
		n->cycles += u->w.clients[i].seat->commits;
	n->flags |= VB_NOTICE_WAITING;
}

static void give_up(void *run)
{
	struct vb_tbench_net *u = run;

	vb_tbench_worker_cancel(&u->w);
}

static void measure(struct vb_tbench_net *u)
{
	const struct vb_tbench_opts *o = &u->plan->o;
	uint64_t start = u->control.t0_ns + o->warmup_ns;

	if (vb_bench_phases_pass(&u->phases, start, "warming up")) {
		vb_tbench_worker_measure(&u->w, true);
		vb_bench_phases_pass(&u->phases, start + o->duration_ns, "measuring");
		vb_tbench_worker_measure(&u->w, false);
	}
	u->phases.pulse.since_ns = vb_sched_now_slow(u->sched);
	vb_bench_phases_drain(&u->phases);
}

static int run(struct vb_tbench_net *u)
{
	uint64_t patience_ns = u->plan->o.cluster.patience_ns;
	int err;

	u->phases.life = vb_tbench_worker_life(&u->w);
	err = vb_bench_phases_start(&u->phases);
	if (err == 0)
		err = vb_tbench_worker_start(&u->w);
	err = vb_bench_crew_agree(u->crew, "clients started", err);
	if (err)
		return err;
	u->r->end.ran = true;
	measure(u);
	/* Nobody stops to serve before all have come here. */
	err = vb_bench_phases_meet(&u->phases, "drained", patience_ns);
	/* What a client has posted last is in place when it has gone. */
	vb_tbench_worker_close(&u->w);
	if (err == 0)
		err = vb_bench_phases_meet(&u->phases, "closed", patience_ns);
	u->r->end.interrupted = vb_interrupted;
	u->r->history_full = u->control.full != 0;
	return err != 0 ? err : vb_tbench_gather(u);
}

/* ---- the whole ---- */

static void net_close(struct vb_tbench_net *u)
{
	if (u->w.clients != NULL)
		vb_tbench_worker_close(&u->w);
	vb_db_server_stop(u->server);
	vb_tbench_ground_close(&u->ground);
	vb_tbench_recorder_close(&u->recorder);
	free(u->tally);
	free(u->seats);
}

int vb_tbench_run_net(const struct vb_tbench_plan *plan, struct vb_bench_crew *crew,
		      const struct vb_tbench_one *one, struct vb_tbench_result *r)
{
	uint64_t wall = vb_clock_gettime_ns();
	struct vb_tbench_net u = {
		.plan = plan,
		.crew = crew,
		.r = r,
		.ground = {.cluster = crew->cluster},
		.sched = vb_sched_self(),
	};
	int err;

	u.phases = (struct vb_bench_phases){
		.crew = crew,
		.sched = u.sched,
		.control = &u.control,
		.stall_ns = plan->o.stall_ns,
		.is_worker = true,
		.run = &u,
		.count = count,
		.give_up = give_up,
		.dead = -1,
	};
	*r = (struct vb_tbench_result){.plan = plan, .one = one};
	crew->run++;
	r->tally = malloc(sizeof(*r->tally));
	u.tally = malloc(sizeof(*u.tally));
	if (r->tally == NULL || u.tally == NULL) {
		free(u.tally);
		return vb_fail(-ENOMEM, "no memory for the results");
	}
	vb_tbench_tally_init(r->tally);
	vb_tbench_tally_init(u.tally);
	err = net_open(&u, one);
	if (err == 0)
		err = run(&u);
	if (err == 0)
		err = vb_bench_phases_end(&u.phases);
	net_close(&u);
	r->wall_s = (double)(vb_clock_gettime_ns() - wall) / 1e9;
	return err;
}
