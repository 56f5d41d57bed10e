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

static void set_setting(json_t *j, const struct vb_tbench_result *r)
{
	const struct vb_tbench_opts *o = &r->plan->o;
	bool sim = o->fabric == VB_BENCH_SIM;

	json_object_set_new(j, "kind", json_string("txn"));
	json_object_set_new(j, "cc", json_string(r->one->cc->name));
	json_object_set_new(j, "hybrid", json_string(r->one->code));
	json_object_set_new(j, "workload", workload_json(r->plan));
	json_object_set_new(j, "records", vb_json_word(r->records));
	json_object_set_new(j, "fabric", json_string(vb_bench_fabric_names[o->fabric]));
	json_object_set_new(j, "fabric_options", vb_json_text(o->fabric_options));
	json_object_set_new(j, "profile", vb_json_text(sim ? o->profile : NULL));
	json_object_set_new(j, "nodes", vb_json_word(o->nodes));
	json_object_set_new(j, "threads", vb_json_word(o->threads));
	json_object_set_new(j, "coroutines", vb_json_word(o->coroutines));
	json_object_set_new(j, "clients", vb_json_word(vb_tbench_clients(r->plan)));
	json_object_set_new(j, "recovery", json_boolean(o->recovery == 0));
	json_object_set_new(j, "lease_ns", vb_json_word(r->lease_ns));
	json_object_set_new(j, "doorbell", json_boolean(!o->no_doorbell));
	json_object_set_new(j, "outstanding", json_boolean(!o->no_outstanding));
	json_object_set_new(j, "passive_ack", json_boolean(o->passive_ack));
	json_object_set_new(j, "sealed", json_boolean(r->sealed));
}

static json_t *types_json(const struct vb_tbench_result *r)
{
	json_t *o = json_object();

	for (unsigned i = 0; i < r->plan->load->n_types; i++) {
		json_t *type = json_object();

		json_object_set_new(type, "commits", vb_json_word(r->tally->commits[i]));
		json_object_set_new(type, "rolled_back", vb_json_word(r->tally->rolled_back[i]));
		json_object_set_new(type, "latency_us", vb_json_hist(&r->tally->lat[i]));
		json_object_set_new(o, r->plan->load->types[i], type);
	}
	return o;
}

static json_t *stage_json(const struct vb_stage_time *t, const char *name, bool rpc, double commits)
{
	json_t *o = json_object();

	json_object_set_new(o, "name", json_string(name));
	json_object_set_new(o, "rpc", json_boolean(rpc));
	json_object_set_new(o, "mean_us",
			    json_real(t->runs ? (double)t->ns / 1e3 / (double)t->runs : 0));
	json_object_set_new(o, "us_per_txn", vb_json_ratio((double)t->ns / 1e3, commits));
	json_object_set_new(o, "runs_per_txn", vb_json_ratio((double)t->runs, commits));
	json_object_set_new(o, "items_per_run", vb_json_ratio((double)t->items, (double)t->runs));
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
	json_array_append_new(a, stage_json(&timed[VB_STAGES_MAX], "commit-point", false, commits));
	return a;
}

static json_t *prims_json(const struct vb_tbench_meter *m, double commits)
{
	json_t *o = json_object();

	for (unsigned i = 0; i < VB_PRIMS; i++)
		json_object_set_new(o, vb_prim_names[i],
				    vb_json_ratio((double)m->prims[i], commits));
	return o;
}

static json_t *verbs_json(const struct vb_tbench_meter *m, double commits)
{
	uint64_t read = m->verbs[VB_OP_READ], send = m->verbs[VB_OP_SEND];
	uint64_t write = m->verbs[VB_OP_WRITE] + m->verbs[VB_OP_WRITE_NOTIFY];
	uint64_t all = vb_tbench_sum(m->verbs, VB_OP_COUNT);
	json_t *o = json_object();

	json_object_set_new(o, "read", vb_json_ratio((double)read, commits));
	json_object_set_new(o, "write", vb_json_ratio((double)write, commits));
	json_object_set_new(o, "atomic",
			    vb_json_ratio((double)(all - read - write - send), commits));
	json_object_set_new(o, "send", vb_json_ratio((double)send, commits));
	json_object_set_new(o, "all", vb_json_ratio((double)all, commits));
	return o;
}

static json_t *check_json(const struct vb_tbench_result *r)
{
	const struct vb_serial_result *s = &r->serial;
	json_t *o;

	if (!r->checked)
		return json_null();
	o = json_object();
	json_object_set_new(o, "strict", json_boolean((r->one->cc->caps & VB_CC_STRICT) != 0));
	json_object_set_new(o, "serializable", json_boolean(s->first == VB_ANOMALY_NONE));
	json_object_set_new(o, "transactions", vb_json_word(s->txns));
	json_object_set_new(o, "committed", vb_json_word(s->committed));
	json_object_set_new(o, "unknown", vb_json_word(s->unknown));
	json_object_set_new(o, "reads", vb_json_word(s->reads));
	json_object_set_new(o, "writes", vb_json_word(s->writes));
	json_object_set_new(o, "keys", vb_json_word(s->keys));
	json_object_set_new(o, "edges", vb_json_word(s->edges));
	json_object_set_new(o, "seconds", json_real(s->seconds));
	json_object_set_new(o, "first",
			    s->first != VB_ANOMALY_NONE ? json_string(vb_anomaly_names[s->first])
							: json_null());
	json_object_set_new(
		o, "anomalies",
		vb_json_words(vb_anomaly_names, s->found, VB_ANOMALY_NONE + 1, VB_ANOMALIES));
	json_object_set_new(o, "history_full", json_boolean(r->history_full));
	json_object_set_new(o, "story", vb_json_text(s->story));
	return o;
}

static json_t *invariant_json(const struct vb_tbench_result *r)
{
	json_t *o = json_object();

	json_object_set_new(o, "judged", json_boolean(r->judged));
	json_object_set_new(o, "holds", r->judged ? json_boolean(!r->broken) : json_null());
	json_object_set_new(o, "why",
			    r->broken     ? vb_json_text(r->why)
			    : r->unjudged ? json_string(r->unjudged)
					  : json_null());
	return o;
}

static void set_rates(json_t *j, const struct vb_tbench_result *r, uint64_t commits)
{
	const struct vb_tbench_tally *t = r->tally;
	const struct vb_tbench_meter *m = &t->spent;
	bool real = r->plan->o.fabric != VB_BENCH_SIM;
	uint64_t aborts = vb_tbench_sum(m->aborts, VB_TXN_CAUSES) - m->aborts[VB_TXN_USER];
	double n = (double)commits;

	json_object_set_new(j, "commits", vb_json_word(commits));
	json_object_set_new(j, "goodput_txn_s", json_real(t->rate));
	json_object_set_new(j, "rolled_back",
			    vb_json_word(vb_tbench_sum(t->rolled_back, VB_LOAD_TYPES_MAX)));
	json_object_set_new(
		j, "aborts",
		vb_json_words(vb_txn_cause_names, m->aborts, VB_TXN_USER, VB_TXN_CAUSES));
	json_object_set_new(j, "abort_rate",
			    vb_json_ratio((double)aborts, (double)(commits + aborts)));
	json_object_set_new(j, "types", types_json(r));
	json_object_set_new(j, "stages", stages_json(r, n));
	json_object_set_new(j, "prims_per_txn", prims_json(m, n));
	json_object_set_new(j, "near_prims_per_txn", vb_json_ratio((double)m->near, n));
	json_object_set_new(j, "verbs_per_txn", verbs_json(m, n));
	json_object_set_new(j, "calls_per_txn", vb_json_ratio((double)m->calls, n));
	json_object_set_new(j, "waits_per_txn", vb_json_ratio((double)m->waits, n));
	json_object_set_new(j, "effective_cpu",
			    vb_json_ratio((double)t->useful_ns, (double)t->attempts_ns));
	json_object_set_new(j, "cpu_share",
			    real ? vb_json_ratio((double)t->cpu_ns, (double)t->span_ns)
				 : json_null());
	json_object_set_new(j, "cycles_per_txn",
			    real && t->tsc != 0 ? vb_json_ratio((double)t->tsc, n) : json_null());
}

json_t *vb_tbench_json(const void *plan, const void *result)
{
	const struct vb_tbench_result *r = result;
	const struct vb_tbench_tally *t = r->tally;
	json_t *j = json_object();

	set_setting(j, r);
	json_object_set_new(j, "duration_s", json_real((double)t->measured_ns / 1e9));
	json_object_set_new(j, "wall_s", json_real(r->end.wall_s));
	json_object_set_new(j, "fill_s", json_real(r->fill_s));
	set_rates(j, r, vb_tbench_commits(t));
	json_object_set_new(j, "check", check_json(r));
	json_object_set_new(j, "invariant", invariant_json(r));
	json_object_set_new(j, "recovered", vb_json_word(t->spent.recovered));
	json_object_set_new(j, "lost_locks", vb_json_word(t->spent.lost_locks));
	json_object_set_new(j, "answers_lost", vb_json_word(t->unknown));
	json_object_set_new(j, "failed", vb_json_word(t->errors));
	json_object_set_new(j, "workers_killed", vb_json_word(r->end.deaths));
	json_object_set_new(j, "clients_killed", vb_json_word(r->end.dead_clients));
	json_object_set_new(j, "servers_killed", vb_json_word(r->dead_servers));
	json_object_set_new(j, "last_commits_of_killed", vb_json_word(r->last_committed));
	json_object_set_new(j, "last_commits_undone", vb_json_word(r->last_undone));
	json_object_set_new(j, "swept", vb_json_word(r->swept));
	json_object_set_new(j, "died", vb_json_text(r->end.died));
	json_object_set_new(j, "clock_error_us", vb_json_us((double)r->end.clock_error_ns));
	json_object_set_new(j, "load", vb_busy_json(&r->end.load));
	json_object_set_new(j, "interrupted", json_boolean(r->end.interrupted));
	json_object_set_new(j, "stalled", vb_json_text(r->end.stalled ? r->end.stall : NULL));
	if (r->plan->o.fabric == VB_BENCH_SIM)
		json_object_set_new(j, "verbs_simulated", vb_json_word(r->end.virtual_verbs));
	return j;
}
