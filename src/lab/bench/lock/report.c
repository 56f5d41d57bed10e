/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of `verbena bench lock` as tables for people, as JSON, and as .hgrm files. */
#define VB_LOG_ROOM "bench"
#include "lab/bench/lock/lock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

const char *const vb_bench_lat_names[VB_LAT_COUNT] = {
	[VB_LAT_ACQ_S] = "acquire_shared",
	[VB_LAT_ACQ_X] = "acquire_exclusive",
	[VB_LAT_RELEASE] = "release",
	[VB_LAT_RESPONSE_S] = "response_shared",
	[VB_LAT_RESPONSE_X] = "response_exclusive",
};

static uint64_t atomics(const struct vb_bench_meter *m)
{
	return m->verbs[VB_OP_CAS64] + m->verbs[VB_OP_FAA64] + m->verbs[VB_OP_MCAS64] +
	       m->verbs[VB_OP_MFAA64] + m->verbs[VB_OP_MCAS128] + m->verbs[VB_OP_MFAA128];
}

static uint64_t writes(const struct vb_bench_meter *m)
{
	return m->verbs[VB_OP_WRITE] + m->verbs[VB_OP_WRITE_NOTIFY];
}

static double per(uint64_t n, uint64_t of)
{
	return of > 0 ? (double)n / (double)of : 0;
}

/* ---- tables ---- */

static const char head_1[] = "                  goodput             acquire shared us      acquire "
			     "exclusive us     release us"
			     "        verbs per cycle           audit\n";
static const char head_2[] = "lock               kops/s  failed      p50     p99   p99.9      p50  "
			     "   p99   p99.9    p50     p99"
			     "  atomic   read   send  retry   viol bypass\n";

void vb_bench_print_head(FILE *to, const void *plan)
{
	const struct vb_bench_plan *p = plan;
	const struct vb_bench_opts *o = &p->o;
	char locks[16], span[16], think[16];

	vb_format_count(locks, sizeof(locks), (double)o->locks);
	vb_format_ns(span, sizeof(span), (double)o->duration_ns);
	vb_format_ns(think, sizeof(think), (double)o->think_ns);
	if (p->tracing)
		fprintf(to,
			"%s locks, transactions of %s, locks in order (%s), %" PRIu64 " clients",
			locks, o->workload, vb_bench_order_names[o->order], o->clients);
	else
		fprintf(to, "%s locks, %s, %.4g%% shared, %" PRIu64 " clients", locks, o->dist,
			o->read_ratio * 100, o->clients);
	if (o->fabric == VB_BENCH_SIM)
		fprintf(to,
			" on %" PRIu64 " nodes + %" PRIu64 " lock server%s; sim, profile %s, %s of "
			"virtual time each",
			vb_bench_with_clients(o->nodes, o->servers), o->servers,
			o->servers > 1 ? "s" : "", o->profile, span);
	else
		fprintf(to, " in %u processes; %s, %s each", vb_bench_workers(p),
			vb_bench_fabric_names[o->fabric], span);
	if (o->think_ns != 0)
		fprintf(to, ", think %s", think);
	if (o->timeout_ns != 0 && p->tracing)
		fprintf(to, ", timeout %s",
			vb_format_ns(think, sizeof(think), (double)o->timeout_ns));
	if (o->scan_rate > 0)
		fprintf(to, ", scans with p = %g for %s", o->scan_rate,
			vb_format_ns(span, sizeof(span), (double)o->scan_ns));
	if (o->rate != 0)
		fprintf(to, ", open loop at %" PRIu64 " cycles/s", o->rate);
	if (o->fail_rate > 0)
		fprintf(to, ", releases skipped with p = %g", o->fail_rate);
	fprintf(to, "%s, seed %" PRIu64 "\n\n", o->no_audit ? ", no audit" : ", audited", o->seed);
	fputs(head_1, to);
	fputs(head_2, to);
	fflush(to);
}

static void put_notes(FILE *to, const struct vb_bench_result *r)
{
	if (r->end.interrupted)
		fprintf(to, "    interrupted\n");
	if (r->end.died != NULL)
		fprintf(to,
			"    %s died: results are of the others until then, %" PRIu64
			" clients lost\n",
			r->end.died, r->end.dead_clients);
	else if (r->end.deaths != 0 && r->end.death_signal != 0)
		fprintf(to,
			"    %" PRIu64 " worker%s killed by signal %d, %" PRIu64 " clients lost\n",
			r->end.deaths, r->end.deaths > 1 ? "s" : "", r->end.death_signal,
			r->end.dead_clients);
	if (r->end.stalled)
		fprintf(to, "    stalled: %s\n", r->end.stall);
	if (r->tally->spent.recoveries != 0 || r->tally->spent.lost != 0)
		fprintf(to, "    recoveries %" PRIu64 ", grants lost %" PRIu64 "\n",
			r->tally->spent.recoveries, r->tally->spent.lost);
	if (r->tally->spent.untold != 0)
		fprintf(to, "    handovers that could not be sent %" PRIu64 "\n",
			r->tally->spent.untold);
	if (r->tally->uncertain != 0)
		fprintf(to, "    answers lost %" PRIu64 "%s\n", r->tally->uncertain,
			r->ops->caps & VB_LOCK_SURVIVES
				? ""
				: ": what they had taken is held by nobody");
	if (r->unaudited != 0)
		fprintf(to, "    %" PRIu64 " grants were not audited: too many to keep\n",
			r->unaudited);
	if (r->portable)
		fprintf(to, "    ran as its portable variant: %s\n", r->ops->portable);
	if (r->tally->last_error != 0)
		fprintf(to, "    acquires failed, the last with: %s\n",
			vb_strerror(r->tally->last_error));
	vb_bench_put_busy(to, &r->end.load);
}

static void put_responses(FILE *to, const struct vb_bench_result *r)
{
	const struct vb_hist *s = &r->tally->lat[VB_LAT_RESPONSE_S];
	const struct vb_hist *x = &r->tally->lat[VB_LAT_RESPONSE_X];

	if (s->total == 0 && x->total == 0)
		return;
	fprintf(to, "    response time       ");
	fprintf(to, "      ");
	vb_bench_put_percentiles(to, s, true);
	fputc(' ', to);
	vb_bench_put_percentiles(to, x, true);
	fputc('\n', to);
}

static uint64_t aborts(const struct vb_bench_txns *t)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < VB_ABORT_CAUSES; i++)
		n += t->aborts[i];
	return n;
}

/* Under a lock's row: its transactions, and each type's latency until the commit. */
static void put_txns(FILE *to, const struct vb_bench_plan *p, const struct vb_bench_tally *t)
{
	const struct vb_bench_txns *x = &t->txns;

	fprintf(to,
		"    %.1f k transactions/s with %.2f locks each; %.3g%% of the attempts aborted (",
		t->txn_rate / 1000, per(x->locks, x->committed),
		100 * per(aborts(x), aborts(x) + x->committed));
	for (unsigned i = 0; i < VB_ABORT_CAUSES; i++)
		fprintf(to, "%s%s %" PRIu64, i == 0 ? "" : ", ", vb_bench_abort_names[i],
			x->aborts[i]);
	fprintf(to, "), given up %" PRIu64 "\n", x->given_up);
	for (unsigned i = 0; i < p->trace.n_types; i++) {
		fprintf(to, "      %-24s %5.1f %%   p50, p99, p99.9 us", p->trace.types[i],
			100 * per(t->txn[i].total, x->committed));
		vb_bench_put_percentiles(to, &t->txn[i], true);
		fputc('\n', to);
	}
}

void vb_bench_print_row(FILE *to, const void *plan, const void *result)
{
	const struct vb_bench_plan *p = plan;
	const struct vb_bench_result *r = result;
	const struct vb_bench_tally *t = r->tally;

	if (!r->end.ran) {
		fprintf(to, "%-16s skipped: %s\n", r->ops->name, r->end.skipped);
		fflush(to);
		return;
	}
	fprintf(to, "%-16s %8.1f %7" PRIu64 " ", r->ops->name, t->rate / 1000, t->failed);
	vb_bench_put_percentiles(to, &t->lat[VB_LAT_ACQ_S], true);
	fputc(' ', to);
	vb_bench_put_percentiles(to, &t->lat[VB_LAT_ACQ_X], true);
	vb_bench_put_percentiles(to, &t->lat[VB_LAT_RELEASE], false);
	fprintf(to, " %7.3f %6.3f %6.3f %6.3f", per(atomics(&t->spent), t->ops),
		per(t->spent.verbs[VB_OP_READ], t->ops), per(t->spent.verbs[VB_OP_SEND], t->ops),
		per(t->spent.retries, t->ops));
	if (r->audited)
		fprintf(to, " %6" PRIu64 " %6" PRIu64 "\n", r->audit.violations,
			r->audit.max_bypass);
	else
		fprintf(to, "      -      -\n");
	put_responses(to, r);
	if (p->tracing)
		put_txns(to, p, t);
	put_notes(to, r);
	fflush(to);
}

static void put_phase(FILE *to, const struct vb_lock_timing *t, enum vb_call call,
		      enum vb_phase phase)
{
	if (t->ns[call][phase] == 0)
		fprintf(to, "       -");
	else
		vb_bench_put_us(to, per(t->ns[call][phase], t->calls[call]));
}

static void print_breakdown(FILE *to, const struct vb_bench_plan *plan,
			    const struct vb_bench_result *results, unsigned n)
{
	static const enum vb_phase x[] = {VB_PHASE_IA, VB_PHASE_NP, VB_PHASE_WP, VB_PHASE_WR,
					  VB_PHASE_RT};
	static const enum vb_phase s[] = {VB_PHASE_IA, VB_PHASE_NP, VB_PHASE_WP, VB_PHASE_WW,
					  VB_PHASE_RT};
	static const enum vb_phase rel[] = {VB_PHASE_IA, VB_PHASE_RT, VB_PHASE_NS};

	if (plan->o.fabric != VB_BENCH_SIM && !plan->o.breakdown)
		return;
	fprintf(to,
		"\nWhere the time goes, us per call (ShiftLock table 2: IA initial atomic, NP and "
		"WP notify and wait\nfor the predecessor, WR wait for readers, WW wait for "
		"writers, RT retries, NS successor)\n\n");
	fprintf(to, "                 acquire exclusive                       "
		    "acquire shared                          release\n");
	fprintf(to, "lock                  IA      NP      WP      WR      RT"
		    "      IA      NP      WP      WW      RT      IA      RT      NS\n");
	for (unsigned i = 0; i < n; i++) {
		if (!results[i].end.ran)
			continue;
		fprintf(to, "%-16s", results[i].ops->name);
		for (unsigned k = 0; k < VB_ARRAY_SIZE(x); k++)
			put_phase(to, &results[i].tally->timing, VB_CALL_ACQ_X, x[k]);
		for (unsigned k = 0; k < VB_ARRAY_SIZE(s); k++)
			put_phase(to, &results[i].tally->timing, VB_CALL_ACQ_S, s[k]);
		for (unsigned k = 0; k < VB_ARRAY_SIZE(rel); k++)
			put_phase(to, &results[i].tally->timing, VB_CALL_REL, rel[k]);
		fputc('\n', to);
	}
}

void vb_bench_print_end(FILE *to, const void *plan, const void *results, unsigned n)
{
	const struct vb_bench_result *r = results;

	print_breakdown(to, plan, r, n);
	for (unsigned i = 0; i < n; i++)
		if (r[i].story != NULL)
			fprintf(to, "\n%s: the auditor has found violations:\n%s", r[i].ops->name,
				r[i].story);
	fflush(to);
}

/* ---- JSON ---- */

static json_t *latency_json(const struct vb_bench_plan *p, const struct vb_bench_tally *t)
{
	json_t *o = json_object();
	unsigned n = p->o.rate != 0 ? VB_LAT_COUNT : VB_LAT_RESPONSE_S;

	for (unsigned i = 0; i < n; i++)
		json_object_set_new(o, vb_bench_lat_names[i], vb_json_hist(&t->lat[i]));
	return o;
}

static json_t *verbs_json(const struct vb_bench_meter *m, uint64_t ops, bool client)
{
	json_t *o = json_object();
	double n = (double)ops;

	json_object_set_new(o, "atomic", vb_json_ratio((double)atomics(m), n));
	json_object_set_new(o, "read", vb_json_ratio((double)m->verbs[VB_OP_READ], n));
	json_object_set_new(o, "write", vb_json_ratio((double)writes(m), n));
	json_object_set_new(o, "send", vb_json_ratio((double)m->verbs[VB_OP_SEND], n));
	if (client)
		json_object_set_new(o, "retry", vb_json_ratio((double)m->retries, n));
	return o;
}

/* Flat, as mean time of a cycle: one acquire of either mode and one release. */
static json_t *breakdown_json(const struct vb_lock_timing *t)
{
	uint64_t cycles = t->calls[VB_CALL_ACQ_X] + t->calls[VB_CALL_ACQ_S];
	json_t *o = json_object();

	for (unsigned phase = 0; phase < VB_PHASE_COUNT; phase++) {
		uint64_t ns = 0;

		for (unsigned call = 0; call < VB_CALL_COUNT; call++)
			ns += t->ns[call][phase];
		json_object_set_new(o, vb_phase_names[phase], vb_json_us(per(ns, cycles)));
	}
	return o;
}

static json_t *breakdown_by_call_json(const struct vb_lock_timing *t)
{
	static const char *const names[VB_CALL_COUNT] = {
		[VB_CALL_ACQ_X] = "acquire_exclusive",
		[VB_CALL_ACQ_S] = "acquire_shared",
		[VB_CALL_REL] = "release",
	};
	json_t *o = json_object();

	for (unsigned call = 0; call < VB_CALL_COUNT; call++) {
		json_t *c = json_object();

		json_object_set_new(c, "calls", vb_json_word(t->calls[call]));
		for (unsigned phase = 0; phase < VB_PHASE_COUNT; phase++)
			json_object_set_new(c, vb_phase_names[phase],
					    vb_json_us(per(t->ns[call][phase], t->calls[call])));
		json_object_set_new(o, names[call], c);
	}
	return o;
}

static json_t *audit_json(const struct vb_bench_result *r)
{
	json_t *o;

	if (!r->audited)
		return json_null();
	o = json_object();
	json_object_set_new(o, "checked_ops", vb_json_word(r->audit.checked_ops));
	json_object_set_new(o, "violations", vb_json_word(r->audit.violations));
	json_object_set_new(o, "unaudited_ops", vb_json_word(r->unaudited));
	json_object_set_new(o, "clock_error_us", vb_json_us((double)r->end.clock_error_ns));
	json_object_set_new(o, "max_bypass", vb_json_word(r->audit.max_bypass));
	json_object_set_new(
		o, "by_rule",
		vb_json_words(vb_audit_rule_names, r->audit.by_rule, 0, VB_AUDIT_RULES));
	return o;
}

static json_t *trace_json(const struct vb_bench_plan *p)
{
	const struct vb_bench_opts *o = &p->o;
	json_t *w = json_object();

	json_object_set_new(w, "trace", vb_json_text(o->workload));
	json_object_set_new(w, "options",
			    vb_json_text(o->workload_options != NULL ? o->workload_options : ""));
	json_object_set_new(w, "order", json_string(vb_bench_order_names[o->order]));
	json_object_set_new(w, "think_ns", vb_json_word(o->think_ns));
	json_object_set_new(w, "pause_ns", vb_json_word(o->pause_ns));
	json_object_set_new(w, "timeout_ns", vb_json_word(o->timeout_ns));
	json_object_set_new(w, "retries", vb_json_word(o->retries));
	json_object_set_new(w, "backoff_ns", vb_json_word(o->backoff_ns));
	json_object_set_new(w, "scan_rate", json_real(o->scan_rate));
	json_object_set_new(w, "scan_ns", vb_json_word(o->scan_ns));
	json_object_set_new(w, "fail_rate", json_real(o->fail_rate));
	return w;
}

static json_t *txns_json(const struct vb_bench_plan *p, const struct vb_bench_tally *t)
{
	const struct vb_bench_txns *x = &t->txns;
	json_t *j = json_object(), *latency = json_object();

	for (unsigned i = 0; i < p->trace.n_types; i++)
		json_object_set_new(latency, p->trace.types[i], vb_json_hist(&t->txn[i]));
	json_object_set_new(latency, "all", vb_json_hist_of(t->txn, p->trace.n_types));
	json_object_set_new(j, "committed", vb_json_word(x->committed));
	json_object_set_new(j, "committed_tps", json_real(t->txn_rate));
	json_object_set_new(j, "locks_per_txn",
			    vb_json_ratio((double)x->locks, (double)x->committed));
	json_object_set_new(j, "aborts", vb_json_word(aborts(x)));
	json_object_set_new(j, "abort_share",
			    vb_json_ratio((double)aborts(x), (double)(aborts(x) + x->committed)));
	json_object_set_new(j, "aborts_by_cause",
			    vb_json_words(vb_bench_abort_names, x->aborts, 0, VB_ABORT_CAUSES));
	json_object_set_new(j, "given_up", vb_json_word(x->given_up));
	json_object_set_new(j, "died", vb_json_word(x->died));
	json_object_set_new(j, "latency_us", latency);
	return j;
}

/* "zipf:0.99" as {"dist":"zipf","theta":0.99}. */
static json_t *workload_json(const struct vb_bench_opts *o)
{
	const char *colon = strchr(o->dist, ':');
	size_t len = colon != NULL ? (size_t)(colon - o->dist) : strlen(o->dist);
	json_t *w = json_object();

	json_object_set_new(w, "dist", json_stringn(o->dist, len));
	if (colon != NULL)
		json_object_set_new(w, strncmp(o->dist, "zipf", 4) == 0 ? "theta" : "alpha",
				    json_real(strtod(colon + 1, NULL)));
	json_object_set_new(w, "read_ratio", json_real(o->read_ratio));
	json_object_set_new(w, "think_ns", vb_json_word(o->think_ns));
	json_object_set_new(w, "hold_ns", vb_json_word(o->hold_ns));
	json_object_set_new(w, "fail_rate", json_real(o->fail_rate));
	json_object_set_new(w, "rate_ops_s", vb_json_word(o->rate));
	return w;
}

/* Every option of the lock, the defaults filled in. */
static json_t *lock_options_json(const struct vb_lock_ops *ops, const char *given)
{
	void *opts = ops->options_size != 0 ? calloc(1, ops->options_size) : NULL;
	json_t *j;

	if (opts == NULL)
		return json_object();
	vb_opt_defaults(ops->options, opts);
	(void)vb_opt_parse_list(ops->options, opts, given); /* the space was opened with it */
	j = vb_json_opts(ops->options, opts);
	free(opts);
	return j;
}

static void set_setting(json_t *j, const struct vb_bench_plan *p, const struct vb_bench_result *r)
{
	const struct vb_bench_opts *o = &p->o;
	bool sim = o->fabric == VB_BENCH_SIM;

	json_object_set_new(j, "kind", json_string("lock"));
	json_object_set_new(j, "lock", json_string(r->ops->name));
	json_object_set_new(j, "fabric", json_string(vb_bench_fabric_names[o->fabric]));
	json_object_set_new(j, "profile", vb_json_text(sim ? o->profile : NULL));
	json_object_set_new(j, "nodes", vb_json_word(o->nodes));
	json_object_set_new(j, "servers", vb_json_word(o->servers));
	json_object_set_new(j, "server_threads", vb_json_word(o->server_threads));
	json_object_set_new(j, "procs", vb_json_word(o->cluster.procs));
	json_object_set_new(j, "clients", vb_json_word(o->clients));
	json_object_set_new(j, "locks", vb_json_word(o->locks));
	json_object_set_new(j, "lease_ns", vb_json_word(o->lease_ns));
	json_object_set_new(j, "fencing", json_boolean(o->fencing));
	json_object_set_new(j, "lock_options", lock_options_json(r->ops, o->lock_options));
	json_object_set_new(j, "portable_variant", json_boolean(r->portable));
	json_object_set_new(j, "workload", p->tracing ? trace_json(p) : workload_json(o));
}

static json_t *stats_json(const struct vb_fabric_stats *s)
{
	return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "doorbells",
			 (json_int_t)s->doorbells, "posted", (json_int_t)s->posted, "completions",
			 (json_int_t)s->completions, "messages", (json_int_t)s->messages, "served",
			 (json_int_t)s->served, "served_late", (json_int_t)s->served_late,
			 "refused", (json_int_t)s->refused, "waits", (json_int_t)s->waits,
			 "dropped", (json_int_t)s->dropped, "sleeps", (json_int_t)s->sleeps);
}

json_t *vb_bench_run_json(const void *plan, const void *result)
{
	const struct vb_bench_plan *p = plan;
	const struct vb_bench_result *r = result;
	const struct vb_bench_tally *t = r->tally;
	bool timed = t->timing.calls[VB_CALL_REL] != 0;
	json_t *j = json_object();

	set_setting(j, p, r);
	json_object_set_new(j, "duration_s", json_real((double)t->measured_ns / 1e9));
	json_object_set_new(j, "wall_s", json_real(r->end.wall_s));
	json_object_set_new(j, "ops", vb_json_word(t->ops));
	json_object_set_new(j, "goodput_ops_s", json_real(t->rate));
	json_object_set_new(j, "failed", vb_json_word(t->failed));
	json_object_set_new(j, "unfinished", vb_json_word(r->unfinished));
	json_object_set_new(j, "unfinished_max_us", vb_json_us((double)r->unfinished_max_ns));
	json_object_set_new(j, "latency_us", latency_json(p, t));
	json_object_set_new(j, "txns", p->tracing ? txns_json(p, t) : json_null());
	json_object_set_new(j, "rtt_ns", vb_json_word(t->rtt_ns));
	json_object_set_new(j, "verbs_per_op", verbs_json(&t->spent, t->ops, true));
	json_object_set_new(j, "server_verbs_per_op", verbs_json(&r->servers, t->ops, false));
	json_object_set_new(j, "breakdown_us", timed ? breakdown_json(&t->timing) : json_null());
	json_object_set_new(j, "breakdown_by_call_us",
			    timed ? breakdown_by_call_json(&t->timing) : json_null());
	json_object_set_new(j, "audit", audit_json(r));
	json_object_set_new(j, "recoveries", vb_json_word(t->spent.recoveries));
	json_object_set_new(j, "untold", vb_json_word(t->spent.untold));
	json_object_set_new(j, "lost", vb_json_word(t->spent.lost));
	json_object_set_new(j, "answers_lost", vb_json_word(t->uncertain));
	json_object_set_new(j, "skipped_releases", vb_json_word(t->skipped));
	json_object_set_new(j, "workers_killed", vb_json_word(r->end.deaths));
	json_object_set_new(j, "died", vb_json_text(r->end.died));
	json_object_set_new(j, "load", vb_busy_json(&r->end.load));
	json_object_set_new(j, "interrupted", json_boolean(r->end.interrupted));
	json_object_set_new(j, "stalled", vb_json_text(r->end.stalled ? r->end.stall : NULL));
	if (vb_bench_is_net(p->o.fabric))
		json_object_set_new(j, "fabric_stats", stats_json(&t->fabric));
	if (p->o.fabric == VB_BENCH_SIM)
		json_object_set_new(j, "verbs_simulated", vb_json_word(r->end.virtual_verbs));
	return j;
}

/* ---- histograms ---- */

static int write_hgrm(const char *prefix, const char *lock, const char *what,
		      const struct vb_hist *h)
{
	char path[4096 + 256];
	FILE *f;

	if (h->total == 0)
		return 0;
	snprintf(path, sizeof(path), "%.4095s.%s.%s.hgrm", prefix, lock, what);
	f = fopen(path, "we");
	if (f != NULL)
		vb_hist_print_hgrm(h, f, 1000);
	if (f == NULL || fclose(f) != 0)
		return vb_fail(-errno, "cannot write %s: %s", path, strerror(errno));
	return 0;
}

int vb_bench_write_hgrm(const void *plan, const void *result)
{
	const struct vb_bench_plan *p = plan;
	const struct vb_bench_result *r = result;
	const char *prefix = p->o.hgrm;
	int err = 0;

	if (prefix == NULL)
		return 0;
	for (unsigned i = 0; i < VB_LAT_COUNT && err == 0; i++)
		err = write_hgrm(prefix, r->ops->name, vb_bench_lat_names[i], &r->tally->lat[i]);
	for (unsigned i = 0; i < p->trace.n_types && err == 0; i++)
		err = write_hgrm(prefix, r->ops->name, p->trace.types[i], &r->tally->txn[i]);
	return err;
}
