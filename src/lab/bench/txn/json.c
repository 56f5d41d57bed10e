/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of `verbena bench txn` as JSON. */
#define VB_LOG_ROOM "bench"
#include "lab/bench/txn/txn.h"

#include <string.h>

/* Its name, and every option by name. */
static json_t *workload_json(const struct vb_tbench_plan *p)
{
	json_t *o = json_pack("{s:s}", "name", p->load->name);
	json_t *options = vb_json_opts(p->load->options, p->load_options);

	json_object_update(o, options);
	json_decref(options);
	return o;
}

/* As --isolation says them. */
static const char *const isolations[VB_ISOLATIONS] = {
	[VB_SERIALIZABLE] = "serializable",
	[VB_REPEATABLE_READ] = "repeatable-read",
	[VB_READ_COMMITTED] = "read-committed",
	[VB_SNAPSHOT] = "snapshot",
};

static void set_setting(json_t *j, const struct vb_tbench_result *r)
{
	const struct vb_tbench_opts *o = &r->plan->o;
	bool sim = o->fabric == VB_BENCH_SIM;

	vb_json_set(j, "kind", "txn");
	vb_json_set(j, "cc", r->one->cc->name);
	vb_json_set(j, "hybrid", r->one->code);
	vb_json_set(j, "workload", workload_json(r->plan));
	vb_json_set(j, "records", r->records);
	vb_json_set(j, "fabric", vb_bench_fabric_names[o->fabric]);
	vb_json_set(j, "fabric_options", o->fabric_options);
	vb_json_set(j, "profile", sim ? o->profile : NULL);
	vb_json_set(j, "elastic", o->elastic);
	vb_json_set(j, "database",
		    r->plan->served != NULL ? (const char *)r->plan->served->name : NULL);
	vb_json_set(j, "nodes", o->nodes);
	vb_json_set(j, "procs",
		    r->plan->served != NULL ? json_integer((json_int_t)o->cluster.procs)
					    : json_null());
	vb_json_set(j, "threads", o->threads);
	vb_json_set(j, "coroutines", o->coroutines);
	vb_json_set(j, "clients", vb_tbench_clients(r->plan));
	vb_json_set(j, "recovery", json_boolean(o->recovery == 0));
	vb_json_set(j, "lease_ns", r->lease_ns);
	vb_json_set(j, "wait_ns",
		    r->wait_ns != 0 ? json_integer((json_int_t)r->wait_ns) : json_null());
	vb_json_set(j, "snapshot_lag_ns",
		    r->snapshot_lag_ns != 0 ? json_integer((json_int_t)r->snapshot_lag_ns)
					    : json_null());
	vb_json_set(j, "hot_from", r->hot_from != 0 ? json_integer(r->hot_from) : json_null());
	vb_json_set(j, "isolation", isolations[o->isolation]);
	vb_json_set(j, "doorbell", json_boolean(!o->no_doorbell));
	vb_json_set(j, "outstanding", json_boolean(!o->no_outstanding));
	vb_json_set(j, "passive_ack", o->passive_ack);
	vb_json_set(j, "copies", o->copies);
	vb_json_set(j, "sealed", r->sealed);
}

static json_t *types_json(const struct vb_tbench_result *r)
{
	json_t *o = json_object();

	for (unsigned i = 0; i < r->plan->load->n_types; i++) {
		json_t *type = json_object();

		vb_json_set(type, "commits", r->tally->commits[i]);
		vb_json_set(type, "rolled_back", r->tally->rolled_back[i]);
		vb_json_set(type, "latency_us", vb_json_hist(&r->tally->lat[i]));
		vb_json_set(o, r->plan->load->types[i], type);
	}
	return o;
}

static json_t *stage_json(const struct vb_stage_time *t, const char *name, bool rpc, double commits)
{
	json_t *o = json_object();

	vb_json_set(o, "name", name);
	vb_json_set(o, "rpc", rpc);
	vb_json_set(o, "mean_us", t->runs ? (double)t->ns / 1e3 / (double)t->runs : 0);
	vb_json_set(o, "us_per_txn", vb_json_ratio(t->ns / 1e3, commits));
	vb_json_set(o, "runs_per_txn", vb_json_ratio(t->runs, commits));
	vb_json_set(o, "items_per_run", vb_json_ratio(t->items, t->runs));
	vb_json_set(o, "aborts", t->ended);
	return o;
}

static json_t *stages_json(const struct vb_tbench_result *r, double commits)
{
	const struct vb_cc_ops *cc = r->one->cc;
	const struct vb_stage_time *timed = r->tally->spent.timed;
	json_t *a;

	if (r->plan->o.no_breakdown)
		return json_null();
	a = json_array();
	for (unsigned i = 0; i < cc->n_stages; i++)
		json_array_append_new(a, stage_json(&timed[i], cc->stages[i].name,
						    r->one->code[i] == '1', commits));
	if (r->plan->o.copies != 0)
		json_array_append_new(a, stage_json(&timed[VB_TIMED_LOG], "log", false, commits));
	json_array_append_new(a,
			      stage_json(&timed[VB_TIMED_POINT], "commit-point", false, commits));
	return a;
}

static json_t *prims_json(const struct vb_tbench_meter *m, double commits)
{
	json_t *o = json_object();

	for (unsigned i = 0; i < VB_PRIMS; i++)
		vb_json_set(o, vb_prim_names[i], vb_json_ratio(m->prims[i], commits));
	return o;
}

static json_t *verbs_json(const struct vb_tbench_meter *m, double commits)
{
	uint64_t read = m->verbs[VB_OP_READ], send = m->verbs[VB_OP_SEND];
	uint64_t write = m->verbs[VB_OP_WRITE] + m->verbs[VB_OP_WRITE_NOTIFY];
	uint64_t all = vb_tbench_sum(m->verbs, VB_OP_COUNT);
	json_t *o = json_object();

	vb_json_set(o, "read", vb_json_ratio(read, commits));
	vb_json_set(o, "write", vb_json_ratio(write, commits));
	vb_json_set(o, "atomic", vb_json_ratio(all - read - write - send, commits));
	vb_json_set(o, "send", vb_json_ratio(send, commits));
	vb_json_set(o, "all", vb_json_ratio(all, commits));
	return o;
}

static json_t *check_json(const struct vb_tbench_result *r)
{
	const struct vb_serial_result *s = &r->serial;
	json_t *o;

	if (!r->checked)
		return json_null();
	o = json_object();
	vb_json_set(o, "level", vb_level_names[vb_tbench_level(r)]);
	vb_json_set(o, "strict", json_boolean(vb_tbench_level(r) == VB_LEVEL_STRICT));
	vb_json_set(o, "kept", json_boolean(s->first == VB_ANOMALY_NONE));
	/* Of what was asked for less nobody has looked whether it was more. */
	vb_json_set(o, "serializable",
		    vb_tbench_level(r) < VB_LEVEL_SERIALIZABLE && s->first == VB_ANOMALY_NONE
			    ? json_null()
			    : json_boolean(s->first == VB_ANOMALY_NONE));
	vb_json_set(o, "transactions", s->txns);
	vb_json_set(o, "committed", s->committed);
	vb_json_set(o, "unknown", s->unknown);
	vb_json_set(o, "reads", s->reads);
	vb_json_set(o, "writes", s->writes);
	vb_json_set(o, "keys", s->keys);
	vb_json_set(o, "edges", s->edges);
	vb_json_set(o, "seconds", s->seconds);
	vb_json_set(o, "first", s->first != VB_ANOMALY_NONE ? vb_anomaly_names[s->first] : NULL);
	vb_json_set(o, "anomalies",
		    vb_json_words(vb_anomaly_names, s->found, VB_ANOMALY_NONE + 1, VB_ANOMALIES));
	vb_json_set(o, "history_full", r->history_full);
	vb_json_set(o, "story", s->story);
	return o;
}

static json_t *invariant_json(const struct vb_tbench_result *r)
{
	json_t *o = json_object();

	vb_json_set(o, "judged", r->judged);
	vb_json_set(o, "holds", r->judged ? json_boolean(!r->broken) : json_null());
	vb_json_set(o, "why", r->broken ? r->why : r->unjudged);
	return o;
}

static void set_rates(json_t *j, const struct vb_tbench_result *r, uint64_t commits)
{
	const struct vb_tbench_tally *t = r->tally;
	const struct vb_tbench_meter *m = &t->spent;
	bool real = r->plan->o.fabric != VB_BENCH_SIM;
	uint64_t aborts = vb_tbench_sum(m->aborts, VB_TXN_CAUSES) - m->aborts[VB_TXN_USER];
	double n = (double)commits;

	vb_json_set(j, "commits", commits);
	vb_json_set(j, "goodput_txn_s", t->rate);
	vb_json_set(j, "tables_full", r->tables_full);
	vb_json_set(j, "rolled_back", vb_tbench_sum(t->rolled_back, VB_LOAD_TYPES_MAX));
	vb_json_set(j, "aborts",
		    vb_json_words(vb_txn_cause_names, m->aborts, VB_TXN_USER, VB_TXN_CAUSES));
	vb_json_set(j, "abort_rate", vb_json_ratio(aborts, commits + aborts));
	vb_json_set(j, "types", types_json(r));
	vb_json_set(j, "stages", stages_json(r, n));
	vb_json_set(j, "prims_per_txn", prims_json(m, n));
	vb_json_set(j, "near_prims_per_txn", vb_json_ratio(m->near, n));
	vb_json_set(j, "verbs_per_txn", verbs_json(m, n));
	vb_json_set(j, "calls_per_txn", vb_json_ratio(m->calls, n));
	if (m->agents != 0)
		vb_json_set(j, "agents_per_txn", vb_json_ratio(m->agents, n));
	vb_json_set(j, "waits_per_txn", vb_json_ratio(m->waits, n));
	vb_json_set(j, "effective_cpu", vb_json_ratio(t->useful_ns, t->attempts_ns));
	vb_json_set(j, "cpu_share", real ? vb_json_ratio(t->cpu_ns, t->span_ns) : json_null());
	vb_json_set(j, "cycles_per_txn",
		    real && t->tsc != 0 ? vb_json_ratio(t->tsc, n) : json_null());
}

static json_t *epochs_json(const struct vb_tbench_result *r)
{
	const struct vb_tbench_epochs *e = &r->sequenced;
	const double nodes = (double)r->plan->o.nodes;
	json_t *o = json_object();

	vb_json_set(o, "taken", e->epochs / r->plan->o.nodes);
	vb_json_set(o, "txns_per_epoch", vb_json_ratio(nodes * (double)e->batched, e->epochs));
	vb_json_set(o, "batches_per_epoch", vb_json_ratio(nodes * (double)e->told, e->epochs));
	vb_json_set(o, "barrier_us", vb_json_ratio((double)e->barrier_ns / 1e3, e->epochs));
	vb_json_set(o, "forwards_per_txn", vb_json_ratio((double)e->forwards, e->batched));
	vb_json_set(o, "left_out", e->left_out);
	return o;
}

json_t *vb_tbench_json(const void *plan, const void *result)
{
	const struct vb_tbench_result *r = result;
	const struct vb_tbench_tally *t = r->tally;
	json_t *j = json_object();

	set_setting(j, r);
	vb_json_set(j, "duration_s", (double)t->measured_ns / 1e9);
	vb_json_set(j, "wall_s", r->end.wall_s);
	vb_json_set(j, "fill_s", r->fill_s);
	set_rates(j, r, vb_tbench_commits(t));
	if (vb_cc_sequenced(r->one->cc))
		vb_json_set(j, "epochs", epochs_json(r));
	vb_json_set(j, "check", check_json(r));
	vb_json_set(j, "invariant", invariant_json(r));
	vb_json_set(j, "recovered", t->spent.recovered);
	vb_json_set(j, "lost_locks", t->spent.lost_locks);
	vb_json_set(j, "answers_lost", t->unknown);
	vb_json_set(j, "failed", t->errors);
	vb_json_set(j, "workers_killed", r->end.deaths);
	vb_json_set(j, "clients_killed", r->end.dead_clients);
	vb_json_set(j, "servers_killed", r->dead_servers);
	vb_json_set(j, "last_commits_of_killed", r->last_committed);
	vb_json_set(j, "last_commits_undone", r->last_undone);
	vb_json_set(j, "swept", r->swept);
	vb_json_set(j, "died", r->end.died);
	vb_json_set(j, "clock_error_us", vb_json_us(r->end.clock_error_ns));
	vb_json_set(j, "load", vb_busy_json(&r->end.load));
	vb_json_set(j, "interrupted", r->end.interrupted);
	vb_json_set(j, "stalled", r->end.stalled ? r->end.stall : NULL);
	if (r->plan->o.fabric == VB_BENCH_SIM)
		vb_json_set(j, "verbs_simulated", r->end.virtual_verbs);
	return j;
}
