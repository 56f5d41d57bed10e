/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One run of transactions on a network fabric.  This runs in every process of the crew, each of which is a
 * node: it has the node's records and server, and clients.
 *
 * The steps, each of which everybody takes together: fabric and database are opened; each fills its node
 * and starts its server; clients are opened; the root names a moment to start; warm-up and measured
 * span pass by each one's own clock; clients finish the attempt they are in; results go to the root
 * (bench_txn_gather.c).  In between nobody waits for anybody: each hangs out a notice of how far it is, and
 * the root one that says whether to end early.
 *
 * Clients need the other nodes' servers, so nobody stops to serve before all have finished.
 */
#define VB_LOG_ROOM "bench"
#include "lab/bench_txn_net.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "lab/run.h"

#define SLICE_NS  5000000ull
#define NOTICE_NS 50000000ull
#define START_NS  20000000ull /* from the root's word to the first transaction */

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

/* ---- word between the processes ---- */

/* The moment to start, in this process's time base. */
static int agree_on_start(struct vb_tbench_net *u)
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

static void post(struct vb_tbench_net *u, uint64_t now)
{
	struct vb_bench_notice n = {.run = u->crew->run, .flags = u->flags};

	for (unsigned i = 0; i < u->w.n; i++)
		n.cycles += u->w.clients[i].seat->commits;
	/* A history that is full, or a client that has seen what cannot be, ends the run as well. */
	if (vb_interrupted || u->control.full || u->control.early)
		n.flags |= VB_NOTICE_INTERRUPTED;
	vb_cluster_post(u->crew->cluster, &n);
	u->posted_ns = now;
}

/* The root looks at everybody: does anything commit, does anybody want an end, have all finished? */
static void look_at_all(struct vb_tbench_net *u, uint64_t now)
{
	struct vb_bench_notice n;
	uint64_t commits = 0;
	bool all = true;

	for (uint32_t r = 0; r < u->crew->hosts; r++) {
		bool there = vb_cluster_read(u->crew->cluster, r, &n) && n.run == u->crew->run;

		if (!vb_cluster_alive(u->crew->cluster, r))
			continue;
		all &= there && (n.flags & VB_NOTICE_DRAINED) != 0;
		if (!there)
			continue;
		commits += n.cycles;
		u->flags |= n.flags & VB_NOTICE_INTERRUPTED;
	}
	u->all_drained = all;
	if (commits != u->pulse.cycles) {
		u->pulse.cycles = commits;
		u->pulse.since_ns = now;
	} else if (now > u->pulse.since_ns && now - u->pulse.since_ns > u->plan->o.stall_ns) {
		u->stalled = true;
		u->flags |= VB_NOTICE_GIVE_UP;
	}
}

/* Hangs out how far we are, and looks what the others say. */
static void exchange(struct vb_tbench_net *u)
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

/* A slice of the clients' work, or of serving others. */
static void slice(struct vb_tbench_net *u, uint64_t until_ns)
{
	if (u->w.all_finished) {
		vb_task_sleep_until(until_ns);
		return;
	}
	vb_sched_run(u->sched, &u->w.all_finished, until_ns);
	vb_tbench_worker_flush(&u->w);
}

static bool ends_early(const struct vb_tbench_net *u)
{
	return (u->flags & (VB_NOTICE_INTERRUPTED | VB_NOTICE_GIVE_UP)) != 0 || u->control.full ||
	       u->control.early;
}

/* false: an early end is wanted. */
static bool pass_until(struct vb_tbench_net *u, uint64_t at_ns, const char *phase)
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

/* Clients finish their attempts; who waits for what nobody gives any more is told to give up. */
static void drain(struct vb_tbench_net *u)
{
	uint64_t give_up = VB_FOREVER;

	u->w.drain = true;
	u->pulse.since_ns = vb_sched_now_slow(u->sched);
	while (u->crew->rank == 0 ? !u->all_drained : !u->w.all_finished) {
		uint64_t now = vb_sched_now_slow(u->sched);

		if ((u->flags & VB_NOTICE_GIVE_UP) != 0 && give_up == VB_FOREVER) {
			give_up = now + u->plan->o.stall_ns;
			vb_tbench_worker_cancel(&u->w);
		}
		if (now >= give_up)
			break;
		slice(u, now + SLICE_NS);
		if (u->w.all_finished)
			u->flags |= VB_NOTICE_DRAINED;
		exchange(u);
	}
	u->flags |= VB_NOTICE_DRAINED;
	post(u, vb_sched_now_slow(u->sched));
}

static void measure(struct vb_tbench_net *u)
{
	const struct vb_tbench_opts *o = &u->plan->o;
	uint64_t start = u->control.t0_ns + o->warmup_ns;

	u->pulse.since_ns = u->control.t0_ns;
	if (pass_until(u, start, "warming up")) {
		vb_tbench_worker_measure(&u->w, true);
		pass_until(u, start + o->duration_ns, "measuring");
		vb_tbench_worker_measure(&u->w, false);
	}
	drain(u);
}

/* Nobody stops to serve before all have come here. */
static int wait_for_all(struct vb_tbench_net *u, const char *what)
{
	struct vb_cluster_parts parts;
	int err = vb_cluster_gather(u->crew->cluster, what, NULL, 0, VB_CLUSTER_TO_ROOT, true,
				    2 * u->plan->o.stall_ns + u->plan->o.crew.patience_ns, &parts);

	if (err == 0)
		vb_cluster_parts_free(&parts);
	return err;
}

static int run(struct vb_tbench_net *u)
{
	int err = agree_on_start(u);

	if (err == 0)
		err = vb_tbench_worker_start(&u->w);
	err = vb_bench_crew_agree(u->crew, "clients started", err);
	if (err)
		return err;
	u->r->ran = true;
	measure(u);
	err = wait_for_all(u, "drained");
	/* What a client has posted last is in place when it has gone. */
	vb_tbench_worker_close(&u->w);
	if (err == 0)
		err = wait_for_all(u, "closed");
	u->r->interrupted = vb_interrupted;
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
		.dead = -1,
	};
	int err;

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
