/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One run of transactions on any fabric: what the engine asks of it (bench/engine/run.h).
 *
 * Every node has a server, as a task: on the simulator beside the clients, on shared memory in the
 * node's first worker, which also fills its tables, all at the same time, and on a network in each
 * process, which is a node.  Clients need the other nodes' servers, so nobody stops to serve before
 * all have finished.
 *
 * A worker that is killed takes nothing along: the others go on, and roll its transactions back or
 * forward when they meet its locks.  The parent decides what became of its last commits, and when
 * all have gone sweeps up what nobody has met.  Without recovery its locks stay, and the
 * run stalls.
 */
#define VB_LOG_ROOM "bench"
#include "lab/bench/txn/txn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "lab/bench/engine/process.h"
#include "lab/bench/engine/progress.h"
#include "lab/run.h"

#define CLOSE_NS 1000000000ull
#define SLOTS    64u /* of nodes that fill; those from the 64th on share the last */

/* ---- filling and serving ---- */

struct fill {
	struct vb_tbench_run *u;
	uint64_t *filled; /* shm: the parent shows how far all are */
};

static bool fill_step(void *ctx, uint64_t done)
{
	struct fill *f = ctx;
	struct vb_tbench_result *r = f->u->r;

	if (f->filled != NULL) {
		__atomic_store_n(f->filled, done, __ATOMIC_RELAXED);
		return !__atomic_load_n(&f->u->run.control->early, __ATOMIC_ACQUIRE);
	}
	vb_bench_progress_show((double)done / (double)(r->records / f->u->plan->o.nodes + 1), 0,
			       "filling the tables");
	if (vb_interrupted)
		r->end.interrupted = true;
	return !vb_interrupted;
}

/* So many nodes are made ready by this process. */
static int serve(struct vb_tbench_run *u, uint16_t first, uint16_t n)
{
	uint64_t *filled = u->filled;
	struct fill fill = {
		.u = u,
		.filled = filled != NULL ? &filled[first < SLOTS ? first : SLOTS - 1] : NULL,
	};
	const struct vb_load_progress progress = {.step = fill_step, .ctx = &fill};
	uint64_t wall = vb_clock_gettime_ns();
	int err = 0;

	for (uint16_t node = first; node < first + n && err == 0; node++)
		err = u->plan->load->fill(&u->load, node, &progress);
	u->r->fill_s = (double)(vb_clock_gettime_ns() - wall) / 1e9;
	for (uint16_t node = first; node < first + n && err == 0; node++)
		err = vb_db_server_start(u->db, node, &u->server[node]);
	return err;
}

static void stop_serving(struct vb_bench_run *run)
{
	struct vb_tbench_run *u = (struct vb_tbench_run *)run;

	for (unsigned i = 0; u->server != NULL && i < u->plan->o.nodes; i++) {
		vb_db_server_stop(u->server[i]);
		u->server[i] = NULL;
	}
}

static void show_filling(struct vb_bench_run *run)
{
	const struct vb_tbench_run *u = (const struct vb_tbench_run *)run;
	uint64_t nodes = u->plan->o.nodes, slots = nodes < SLOTS ? nodes : SLOTS, done = 0;

	if (u->filled == NULL)
		return;
	for (uint64_t i = 0; i < slots; i++)
		done += __atomic_load_n(&u->filled[i], __ATOMIC_RELAXED);
	vb_bench_progress_show((double)done * (double)nodes /
				       ((double)slots * (double)u->r->records + 1),
			       0, "filling the tables");
}

/* ---- fabric, database, tables, histories ---- */

static int open_fabric(struct vb_tbench_run *u)
{
	const struct vb_tbench_opts *o = &u->plan->o;
	char options[512];
	struct vb_fabric_params p = {
		.no_keeper = true, /* who measures stays inside */
		.fabric = vb_bench_fabric_names[o->fabric],
		.options = o->fabric_options,
		.name = o->segment,
		.nodes = (uint16_t)o->nodes,
		.node_bytes = vb_tbench_node_bytes(u->plan, u->one, &u->load),
		.endpoints = (uint32_t)(vb_tbench_clients(u->plan) + o->nodes + 16),
		.seed = o->seed,
		.cluster = u->run.group != NULL ? u->run.group->cluster : NULL,
	};

	if (o->fabric == VB_BENCH_SIM) {
		int err =
			vb_bench_sim_options(&o->common, ",scope=global", options, sizeof(options));

		if (err)
			return err;
		p.options = options;
	}
	return vb_fabric_open(&p, &u->run.fabric);
}

static int open_database(struct vb_tbench_run *u)
{
	const struct vb_tbench_plan *plan = u->plan;
	struct vb_db_params p;
	int err = vb_load_init(&u->load, plan->load, plan->load_options, (uint16_t)plan->o.nodes,
			       plan->o.seed);

	if (err)
		return err;
	vb_tbench_db_params(plan, u->one, &u->load, &p);
	err = open_fabric(u);
	if (err == 0)
		err = vb_db_open(u->run.fabric, &p, &u->db);
	if (err == 0)
		err = vb_load_open(&u->load, u->db);
	if (err)
		return err;
	u->db->timing = !plan->o.no_breakdown;
	u->r->records = plan->load->records(&u->load);
	u->r->lease_ns = u->db->lease_ns;
	u->r->wait_ns = u->db->wait_ns;
	u->r->snapshot_lag_ns = u->db->snapshot_lag_ns;
	u->r->hot_from = u->db->hot_from;
	u->r->sealed = u->db->store.sealed;
	u->run.stall_ns = plan->o.stall_ns;
	/* A lease or two. */
	u->run.close_ns = CLOSE_NS + 4 * u->r->lease_ns;
	return 0;
}

/* Of each worker that this process has, or has forked. */
static int open_recorders(struct vb_tbench_run *u)
{
	bool net = vb_bench_in_group(u->run.o);
	unsigned first = net ? u->run.group->rank : 0;
	int err = 0;

	if (!u->plan->o.check)
		return 0;
	u->n_recorders = net ? 1 : u->run.workers;
	u->recorders = calloc(u->n_recorders, sizeof(*u->recorders));
	if (u->recorders == NULL)
		return vb_fail(-ENOMEM, "no memory for a run");
	for (unsigned i = 0; i < u->n_recorders && err == 0; i++)
		err = vb_tbench_recorder_open(&u->recorders[i], u->plan, u->load.items, first + i,
					      u->run.clients / u->run.workers,
					      &u->run.control->full);
	return err;
}

/* In the parent of workers that are clients. */
static int open_elastic(struct vb_tbench_run *u)
{
	int err = vb_tbench_elastic_begin(u);

	return err != 0 ? err : open_recorders(u);
}

static int open_all(struct vb_bench_run *run)
{
	struct vb_tbench_run *u = (struct vb_tbench_run *)run;
	uint16_t nodes = (uint16_t)u->plan->o.nodes;
	int err;

	if (run->o->elastic != NULL)
		return open_elastic(u);
	err = open_database(u);
	u->server = calloc(nodes, sizeof(struct vb_db_server *));
	if (run->kind == VB_BENCH_SHM)
		u->filled = vb_bench_share(SLOTS * sizeof(*u->filled));
	if (err == 0 && (u->server == NULL || (run->kind == VB_BENCH_SHM && u->filled == NULL)))
		err = vb_fail(-ENOMEM, "no memory for a run");
	if (err == 0)
		err = open_recorders(u);
	if (run->kind == VB_BENCH_SHM)
		return err; /* workers fill and serve */
	if (run->kind == VB_BENCH_SIM)
		return err != 0 ? err : serve(u, 0, nodes);
	err = vb_bench_group_agree(run->group, "database opened", err);
	if (err)
		return err;
	return vb_bench_group_agree(run->group, "tables filled",
				    serve(u, (uint16_t)run->group->rank, 1));
}

static void close_all(struct vb_bench_run *run)
{
	struct vb_tbench_run *u = (struct vb_tbench_run *)run;

	stop_serving(run);
	free(u->server);
	vb_bench_unshare(u->filled, SLOTS * sizeof(*u->filled));
	vb_db_close(u->db);
	if (run->fabric != NULL)
		vb_fabric_close(run->fabric);
	vb_load_close(&u->load);
	for (unsigned i = 0; i < u->n_recorders && u->recorders != NULL; i++)
		vb_tbench_recorder_close(&u->recorders[i]);
	free(u->recorders);
	for (unsigned i = 0; u->histories != NULL && i < run->group->hosts; i++)
		vb_history_close(u->histories[i]);
	free(u->histories);
	vb_tbench_elastic_end(u);
}

static int worker_open(struct vb_bench_run *run, unsigned worker)
{
	struct vb_tbench_run *u = (struct vb_tbench_run *)run;
	unsigned threads = (unsigned)u->plan->o.threads;

	if (run->kind == VB_BENCH_SHM && worker % threads == 0) {
		int err = serve(u, (uint16_t)(worker / threads), 1);

		if (err)
			return err;
	}
	if (run->o->elastic != NULL) {
		int err = vb_tbench_elastic_join(u);

		if (err)
			return err;
	}
	u->tally = vb_bench_tally_of(run, worker);
	if (u->recorders != NULL) {
		struct vb_tbench_recorder *rec = &u->recorders[u->n_recorders > 1 ? worker : 0];

		rec->watch.ctx = rec;
		u->db->watch = &rec->watch;
	}
	return 0;
}

static void worker_close(struct vb_bench_run *run)
{
	if (run->o->elastic != NULL)
		vb_tbench_elastic_leave((struct vb_tbench_run *)run);
	else
		stop_serving(run);
}

/* ---- while it runs ---- */

static void measured(struct vb_bench_run *run, uint64_t now_ns)
{
	struct vb_tbench_result *r = ((struct vb_tbench_run *)run)->r;

	r->history_full = (run->control->full & VB_BENCH_FULL_HISTORY) != 0;
	r->tables_full = (run->control->full & VB_BENCH_FULL_TABLES) != 0;
}

static void explain(struct vb_bench_run *run, uint64_t now_ns)
{
	struct vb_tbench_run *u = (struct vb_tbench_run *)run;

	vb_tbench_explain_stall(u->r, run->states, run->clients, now_ns);
	if (run->kind == VB_BENCH_SHM)
		vb_tbench_name_holders(u->r, u->db, run->states, run->clients);
}

static void client_died(struct vb_bench_run *run, unsigned client)
{
	struct vb_tbench_run *u = (struct vb_tbench_run *)run;

	vb_tbench_book_close_for(u->r, u->db, vb_bench_state_of(run, client));
}

static void worker_died(struct vb_bench_run *run, unsigned worker, int signal)
{
	struct vb_tbench_run *u = (struct vb_tbench_run *)run;

	if (u->recorders != NULL)
		vb_tbench_recorder_bury(&u->recorders[worker], u->db);
	u->r->dead_servers += signal != 0 && u->learnt == NULL && worker % u->plan->o.threads == 0;
}

/* ---- the end ---- */

static int check(struct vb_tbench_run *u)
{
	const struct vb_history **parts = calloc(u->n_recorders + 1, sizeof(struct vb_history *));
	unsigned n = u->n_recorders;
	int err;

	if (parts == NULL)
		return vb_fail(-ENOMEM, "no memory to check a history");
	for (unsigned i = 0; i < u->n_recorders; i++)
		parts[i] = u->recorders[i].history;
	if (u->before != NULL)
		parts[n++] = u->before;
	err = vb_tbench_check(u->r, &u->load, parts, n);
	free(parts);
	return err;
}

static int judge(struct vb_bench_run *run)
{
	struct vb_tbench_run *u = (struct vb_tbench_run *)run;
	struct vb_tbench_tally *t = u->r->tally;
	struct vb_bench_end *end = run->end;
	bool alone = true;

	if (run->kind == VB_BENCH_SHM)
		u->r->fill_s = run->open_s;
	else if (run->kind == VB_BENCH_SIM)
		t->rate = vb_bench_rate(vb_tbench_commits(t), t->measured_ns);
	if (run->stuck > 0) {
		end->stalled = true;
		snprintf(end->stall, sizeof(end->stall), "%u workers did not close their clients",
			 run->stuck);
	}
	vb_tbench_take_books(t, run->states, run->clients);
	if (run->o->elastic != NULL) {
		alone = vb_tbench_elastic_judge(u);
	} else {
		int err = end->deaths != 0 && u->plan->o.recovery == 0 && !end->stalled
				  ? vb_tbench_sweep(u->r, u->db)
				  : 0;

		if (err)
			return err;
		vb_tbench_judge(u->r, &u->load, u->db);
	}
	/* What others have written is in no history of ours. */
	if (u->recorders == NULL || !alone ||
	    (run->kind != VB_BENCH_SIM && run->control->failed != 0))
		return 0;
	return check(u);
}

static const struct vb_bench_run_ops run_ops = {
	.client = &vb_tbench_client_ops,
	.gather = &vb_tbench_gather_ops,
	.tally_bytes = sizeof(struct vb_tbench_tally),
	.sums_bytes = offsetof(struct vb_tbench_tally, measured_ns),
	.hists_at = offsetof(struct vb_tbench_tally, lat),
	.merge = vb_tbench_merge,
	.open = open_all,
	.close = close_all,
	.worker_open = worker_open,
	.worker_close = worker_close,
	.opening = show_filling,
	.measured = measured,
	.explain = explain,
	.client_died = client_died,
	.worker_died = worker_died,
	.judge = judge,
};

int vb_tbench_run_one(struct vb_tbench_plan *plan, struct vb_bench_group *group,
		      const struct vb_tbench_one *one, struct vb_tbench_result *r)
{
	struct vb_tbench_run u = {.plan = plan, .one = one, .r = r};

	*r = (struct vb_tbench_result){.plan = plan, .one = one};
	r->tally = malloc(sizeof(*r->tally));
	u.run = (struct vb_bench_run){
		.ops = &run_ops,
		.o = &plan->o.common,
		.end = &r->end,
		.tally = r->tally,
		.group = group,
		.clients = (unsigned)vb_tbench_clients(plan),
		.workers = (unsigned)vb_tbench_workers(plan),
		.in_rows = true,
	};
	return vb_bench_run_do(&u.run);
}
