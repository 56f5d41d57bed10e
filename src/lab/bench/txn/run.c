/* SPDX-License-Identifier: Apache-2.0 */
/* What the drivers of `verbena bench txn` have in common: ground, tallies, verdicts. */
#define VB_LOG_ROOM "bench"
#include "lab/bench/txn/txn.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* ---- the ground: fabric, database, tables ---- */

static int open_fabric(struct vb_tbench_ground *g, const struct vb_tbench_plan *plan,
		       const struct vb_tbench_one *one)
{
	const struct vb_tbench_opts *o = &plan->o;
	char options[512];
	struct vb_fabric_params p = {
		.no_keeper = true, /* who measures stays inside */
		.fabric = vb_bench_fabric_names[o->fabric],
		.options = o->fabric_options,
		.name = o->segment,
		.nodes = (uint16_t)o->nodes,
		.node_bytes = vb_tbench_node_bytes(plan, one, &g->load),
		.endpoints = vb_tbench_clients(plan) + (uint32_t)o->nodes + 16,
		.seed = o->seed,
		.cluster = g->cluster,
	};

	if (o->fabric == VB_BENCH_SIM) {
		/* What the user says comes last, and counts. */
		int n = snprintf(options, sizeof(options), "profile=%s,scope=global%s%s",
				 o->profile, o->fabric_options ? "," : "",
				 o->fabric_options ? o->fabric_options : "");

		if (n < 0 || (size_t)n >= sizeof(options))
			return vb_fail(-EINVAL, "--fabric-options is too long");
		p.options = options;
	}
	return vb_fabric_open(&p, &g->fabric);
}

int vb_tbench_ground_open(struct vb_tbench_ground *g, const struct vb_tbench_plan *plan,
			  const struct vb_tbench_one *one, struct vb_tbench_result *r)
{
	struct vb_db_params p;
	int err = vb_load_init(&g->load, plan->load, plan->load_options, (uint16_t)plan->o.nodes,
			       plan->o.seed);

	if (err)
		return err;
	vb_tbench_db_params(plan, one, &g->load, &p);
	err = open_fabric(g, plan, one);
	if (err == 0)
		err = vb_db_open(g->fabric, &p, &g->db);
	if (err == 0)
		err = vb_load_open(&g->load, g->db);
	if (err)
		return err;
	g->db->timing = !plan->o.no_breakdown;
	r->records = plan->load->records(&g->load);
	r->lease_ns = g->db->lease_ns;
	r->sealed = g->db->store.sealed;
	return 0;
}

void vb_tbench_ground_close(struct vb_tbench_ground *g)
{
	vb_db_close(g->db);
	if (g->fabric != NULL)
		vb_fabric_close(g->fabric);
	vb_load_close(&g->load);
}

/* ---- tallies ---- */

void vb_tbench_tally_init(struct vb_tbench_tally *t)
{
	memset(t, 0, offsetof(struct vb_tbench_tally, lat));
	for (unsigned i = 0; i < VB_LOAD_TYPES_MAX; i++)
		vb_hist_init(&t->lat[i]);
}

_Static_assert(sizeof(struct vb_tbench_meter) % sizeof(uint64_t) == 0, "counters");
#define METER_WORDS (sizeof(struct vb_tbench_meter) / sizeof(uint64_t))

void vb_tbench_meter_add(struct vb_tbench_meter *into, const struct vb_tbench_meter *m)
{
	for (size_t i = 0; i < METER_WORDS; i++)
		((uint64_t *)into)[i] += ((const uint64_t *)m)[i];
}

void vb_tbench_meter_subtract(struct vb_tbench_meter *from, const struct vb_tbench_meter *m)
{
	for (size_t i = 0; i < METER_WORDS; i++)
		((uint64_t *)from)[i] -= ((const uint64_t *)m)[i];
}

void vb_tbench_tally_merge(struct vb_tbench_tally *into, const struct vb_tbench_tally *t)
{
	uint64_t commits = 0;

	for (unsigned i = 0; i < VB_LOAD_TYPES_MAX; i++) {
		commits += t->commits[i];
		into->commits[i] += t->commits[i];
		into->rolled_back[i] += t->rolled_back[i];
		if (t->lat[i].total != 0)
			vb_hist_merge(&into->lat[i], &t->lat[i]);
	}
	for (unsigned i = 0; i < VB_LOAD_CHANGES_MAX; i++)
		into->change[i] += t->change[i];
	if (t->measured_ns > 0)
		into->rate += (double)commits * 1e9 / (double)t->measured_ns;
	if (t->measured_ns > into->measured_ns)
		into->measured_ns = t->measured_ns;
	into->span_ns += t->measured_ns;
	into->attempts_ns += t->attempts_ns;
	into->useful_ns += t->useful_ns;
	into->cpu_ns += t->cpu_ns;
	into->tsc += t->tsc;
	into->all_commits += t->all_commits;
	into->unknown += t->unknown;
	into->errors += t->errors;
	if (t->last_error != 0)
		into->last_error = t->last_error;
	if (into->why[0] == '\0')
		memcpy(into->why, t->why, sizeof(into->why));
	vb_tbench_meter_add(&into->spent, &t->spent);
}

void vb_tbench_result_free(struct vb_tbench_result *r)
{
	free(r->tally);
	free(r->died);
	r->tally = NULL;
	r->died = NULL;
	vb_serial_result_free(&r->serial);
}

/* ---- clients, for who does not know what they do ---- */

static int life_start(void *worker)
{
	return vb_tbench_worker_start(worker);
}

static void life_measure(void *worker, bool on)
{
	vb_tbench_worker_measure(worker, on);
}

static void life_flush(void *worker)
{
	vb_tbench_worker_flush(worker);
}

struct vb_bench_life vb_tbench_worker_life(struct vb_tbench_worker *w)
{
	return (struct vb_bench_life){
		.worker = w,
		.drain = &w->drain,
		.all_finished = &w->all_finished,
		.start = life_start,
		.measure = life_measure,
		.flush = life_flush,
	};
}

/* ---- does it move? ---- */

bool vb_tbench_standstill(struct vb_bench_pulse *p, const struct vb_tbench_seat *seats, unsigned n,
			  uint64_t now_ns, uint64_t bound_ns)
{
	uint64_t commits = 0;

	for (unsigned i = 0; i < n; i++)
		commits += __atomic_load_n(&seats[i].commits, __ATOMIC_RELAXED);
	if (commits != p->cycles) {
		p->cycles = commits;
		p->since_ns = now_ns;
	}
	return now_ns > p->since_ns && now_ns - p->since_ns > bound_ns;
}

void vb_tbench_explain_stall(struct vb_tbench_result *r, const struct vb_tbench_seat *seats,
			     unsigned n, uint64_t now_ns)
{
	const struct vb_tbench_seat *worst = NULL;
	unsigned trying = 0;

	r->end.stalled = true;
	for (unsigned i = 0; i < n; i++) {
		if (seats[i].dead || seats[i].tries == 0)
			continue;
		trying++;
		if (worst == NULL || seats[i].since_ns < worst->since_ns)
			worst = &seats[i];
	}
	if (worst == NULL) {
		snprintf(r->stall, sizeof(r->stall),
			 "nothing commits any more, and no client tries to");
		return;
	}
	snprintf(r->stall, sizeof(r->stall),
		 "nothing commits any more: %u clients try; client %u has tried a %s transaction "
		 "%" PRIu32 " times in %.3f s, last aborted as '%s'",
		 trying, (unsigned)(worst - seats), r->plan->load->types[worst->type], worst->tries,
		 (double)(now_ns - worst->since_ns) / 1e9, vb_txn_cause_names[worst->cause]);
}

/* ---- verdicts ---- */

void vb_tbench_judge_sums(struct vb_tbench_result *r, const struct vb_load *load,
			  const struct vb_load_sums *sums)
{
	const struct vb_tbench_tally *t = r->tally;

	if (t->why[0] != '\0') {
		r->judged = r->broken = true;
		memcpy(r->why, t->why, sizeof(r->why));
		return;
	}
	if (r->deaths != 0 && vb_bench_is_net(r->plan->o.fabric))
		r->unjudged = "a process was killed, and its node's records have gone with it";
	else if (r->last_unclear != 0 ||
		 (r->deaths != 0 && r->plan->o.recovery != 0 && sums->locked != 0))
		r->unjudged = "a worker was killed, and without recovery what it held, or had half "
			      "written, stays as it is";
	else if (r->end.stalled)
		r->unjudged = "the run stalled, with transactions under way";
	else if (t->unknown != 0)
		r->unjudged = "answers to commits were lost";
	if (r->unjudged != NULL)
		return;
	r->judged = true;
	r->broken = load->ops->judge(load, sums, t->change, r->why, sizeof(r->why)) != 0;
}

void vb_tbench_judge(struct vb_tbench_result *r, const struct vb_load *load)
{
	struct vb_load_sums sums = {0};

	for (uint16_t node = 0; node < load->nodes; node++)
		load->ops->count(load, node, &sums);
	vb_tbench_judge_sums(r, load, &sums);
}

static int write_history(const char *path, const struct vb_history *const *parts, unsigned n)
{
	bool standard = strcmp(path, "-") == 0;
	FILE *to = standard ? stdout : fopen(path, "we");
	int err;

	if (to == NULL)
		return vb_fail(-errno, "cannot write %s: %s", path, strerror(errno));
	err = vb_history_write_jsonl(parts, n, to);
	if (!standard && fclose(to) != 0 && err == 0)
		err = vb_fail(-EIO, "cannot write %s: %s", path, strerror(errno));
	return err;
}

int vb_tbench_check(struct vb_tbench_result *r, const struct vb_load *load,
		    const struct vb_history *const *parts, unsigned n)
{
	const char *tables[VB_LOAD_TABLES_MAX];
	struct vb_serial_params p = {
		.parts = parts,
		.n_parts = n,
		.strict = (r->one->cc->caps & VB_CC_STRICT) != 0,
		.table_names = tables,
		.n_tables = load->n_tables,
		.type_names = load->ops->types,
		.n_types = load->ops->n_types,
	};
	int err = 0;

	for (unsigned i = 0; i < load->n_tables; i++)
		tables[i] = load->params[i].name;
	if (r->plan->o.history != NULL)
		err = write_history(r->plan->o.history, parts, n);
	if (err == 0)
		err = vb_serial_check(&p, &r->serial);
	r->checked = err == 0;
	return err;
}
