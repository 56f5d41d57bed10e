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

static const char head[] = "                  goodput             acquire shared us      acquire "
			   "exclusive us     release us"
			   "        verbs per cycle                  audit\n"
			   "lock               kops/s  failed      p50     p99   p99.9      p50  "
			   "   p99   p99.9    p50     p99"
			   "  atomic   read  write   send  retry   viol bypass\n";

static const char *audit_text(const struct vb_bench_opts *o)
{
	if (o->no_audit)
		return ", no audit";
	return o->elastic != NULL ? ", audited among these clients" : ", audited";
}

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
		fprintf(to, " in %u processes; %s%s%s, %s each", vb_bench_workers(p),
			vb_bench_fabric_names[o->fabric],
			o->elastic != NULL ? ", servers that run: " : "",
			o->elastic != NULL ? o->elastic : "", span);
	if (o->elastic != NULL)
		fprintf(to, ", space '%s'", p->space_name);
	if (o->think_ns != 0)
		fprintf(to, ", think %s", think);
	if (o->timeout_ns != 0 && p->tracing)
		fprintf(to, ", timeout %s",
			vb_format_ns(think, sizeof(think), (double)o->timeout_ns));
	if (o->scan_rate > 0)
		fprintf(to, ", scans with p = %g for %s", o->scan_rate,
			vb_format_ns(span, sizeof(span), (double)o->scan_ns));
	if (o->data != 0)
		fprintf(to, ", %" PRIu64 " bytes read and written for each lock", o->data);
	if (o->rate != 0)
		fprintf(to, ", open loop at %" PRIu64 " cycles/s", o->rate);
	if (o->fail_rate > 0)
		fprintf(to, ", releases skipped with p = %g", o->fail_rate);
	fprintf(to, "%s, seed %" PRIu64 "\n\n", audit_text(o), o->seed);
	fputs(head, to);
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
	fprintf(to, " %7.3f %6.3f %6.3f %6.3f %6.3f", per(atomics(&t->spent), t->ops),
		per(t->spent.verbs[VB_OP_READ], t->ops), per(writes(&t->spent), t->ops),
		per(t->spent.verbs[VB_OP_SEND], t->ops), per(t->spent.retries, t->ops));
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
	static const enum vb_phase columns[VB_CALL_COUNT][5] = {
		[VB_CALL_ACQ_X] = {VB_PHASE_IA, VB_PHASE_NP, VB_PHASE_WP, VB_PHASE_WR, VB_PHASE_RT},
		[VB_CALL_ACQ_S] = {VB_PHASE_IA, VB_PHASE_NP, VB_PHASE_WP, VB_PHASE_WW, VB_PHASE_RT},
		[VB_CALL_REL] = {VB_PHASE_IA, VB_PHASE_RT, VB_PHASE_NS},
	};

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
		for (unsigned call = 0; call < VB_CALL_COUNT; call++)
			for (unsigned k = 0; k < (call == VB_CALL_REL ? 3 : 5); k++)
				put_phase(to, &results[i].tally->timing, call, columns[call][k]);
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
		vb_json_set(o, vb_bench_lat_names[i], vb_json_hist(&t->lat[i]));
	return o;
}

static json_t *verbs_json(const struct vb_bench_meter *m, uint64_t ops, bool client)
{
	json_t *o = json_object();
	double n = (double)ops;

	vb_json_set(o, "atomic", vb_json_ratio(atomics(m), n));
	vb_json_set(o, "read", vb_json_ratio(m->verbs[VB_OP_READ], n));
	vb_json_set(o, "write", vb_json_ratio(writes(m), n));
	vb_json_set(o, "send", vb_json_ratio(m->verbs[VB_OP_SEND], n));
	if (client)
		vb_json_set(o, "retry", vb_json_ratio(m->retries, n));
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
		vb_json_set(o, vb_phase_names[phase], vb_json_us(per(ns, cycles)));
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

		vb_json_set(c, "calls", t->calls[call]);
		for (unsigned phase = 0; phase < VB_PHASE_COUNT; phase++)
			vb_json_set(c, vb_phase_names[phase],
				    vb_json_us(per(t->ns[call][phase], t->calls[call])));
		vb_json_set(o, names[call], c);
	}
	return o;
}

static json_t *audit_json(const struct vb_bench_plan *p, const struct vb_bench_result *r)
{
	json_t *o;

	if (!r->audited)
		return json_null();
	o = json_object();
	/* Not those of others who use the space. */
	vb_json_set(o, "clients", p->o.elastic != NULL ? "of this run" : "all");
	vb_json_set(o, "checked_ops", r->audit.checked_ops);
	vb_json_set(o, "violations", r->audit.violations);
	vb_json_set(o, "unaudited_ops", r->unaudited);
	vb_json_set(o, "clock_error_us", vb_json_us(r->end.clock_error_ns));
	vb_json_set(o, "max_bypass", r->audit.max_bypass);
	vb_json_set(o, "by_rule",
		    vb_json_words(vb_audit_rule_names, r->audit.by_rule, 0, VB_AUDIT_RULES));
	return o;
}

static json_t *trace_json(const struct vb_bench_plan *p)
{
	const struct vb_bench_opts *o = &p->o;
	json_t *w = json_object();

	vb_json_set(w, "trace", o->workload);
	vb_json_set(w, "options", o->workload_options != NULL ? o->workload_options : "");
	vb_json_set(w, "order", vb_bench_order_names[o->order]);
	vb_json_set(w, "think_ns", o->think_ns);
	vb_json_set(w, "pause_ns", o->pause_ns);
	vb_json_set(w, "timeout_ns", o->timeout_ns);
	vb_json_set(w, "retries", o->retries);
	vb_json_set(w, "backoff_ns", o->backoff_ns);
	vb_json_set(w, "scan_rate", o->scan_rate);
	vb_json_set(w, "scan_ns", o->scan_ns);
	vb_json_set(w, "data", o->data);
	vb_json_set(w, "fail_rate", o->fail_rate);
	return w;
}

static json_t *txns_json(const struct vb_bench_plan *p, const struct vb_bench_tally *t)
{
	const struct vb_bench_txns *x = &t->txns;
	json_t *j = json_object(), *latency = json_object();

	for (unsigned i = 0; i < p->trace.n_types; i++)
		vb_json_set(latency, p->trace.types[i], vb_json_hist(&t->txn[i]));
	vb_json_set(latency, "all", vb_json_hist_of(t->txn, p->trace.n_types));
	vb_json_set(j, "committed", x->committed);
	vb_json_set(j, "committed_tps", t->txn_rate);
	vb_json_set(j, "locks_per_txn", vb_json_ratio(x->locks, x->committed));
	vb_json_set(j, "aborts", aborts(x));
	vb_json_set(j, "abort_share", vb_json_ratio(aborts(x), aborts(x) + x->committed));
	vb_json_set(j, "aborts_by_cause",
		    vb_json_words(vb_bench_abort_names, x->aborts, 0, VB_ABORT_CAUSES));
	vb_json_set(j, "given_up", x->given_up);
	vb_json_set(j, "died", x->died);
	vb_json_set(j, "latency_us", latency);
	return j;
}

/* "zipf:0.99" as {"dist":"zipf","theta":0.99}. */
static json_t *workload_json(const struct vb_bench_opts *o)
{
	const char *colon = strchr(o->dist, ':');
	size_t len = colon != NULL ? (size_t)(colon - o->dist) : strlen(o->dist);
	json_t *w = json_object();

	vb_json_set(w, "dist", json_stringn(o->dist, len));
	if (colon != NULL)
		vb_json_set(w, strncmp(o->dist, "zipf", 4) == 0 ? "theta" : "alpha",
			    strtod(colon + 1, NULL));
	vb_json_set(w, "read_ratio", o->read_ratio);
	vb_json_set(w, "think_ns", o->think_ns);
	vb_json_set(w, "hold_ns", o->hold_ns);
	vb_json_set(w, "fail_rate", o->fail_rate);
	vb_json_set(w, "rate_ops_s", o->rate);
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

	vb_json_set(j, "kind", "lock");
	vb_json_set(j, "lock", r->ops->name);
	vb_json_set(j, "fabric", vb_bench_fabric_names[o->fabric]);
	vb_json_set(j, "profile", sim ? o->profile : NULL);
	vb_json_set(j, "fabric_options", o->fabric_options);
	vb_json_set(j, "elastic", o->elastic);
	vb_json_set(j, "space", o->elastic != NULL ? p->space_name : NULL);
	vb_json_set(j, "nodes", o->nodes);
	vb_json_set(j, "servers", o->servers);
	vb_json_set(j, "server_threads", o->server_threads);
	vb_json_set(j, "procs", o->cluster.procs);
	vb_json_set(j, "clients", o->clients);
	vb_json_set(j, "locks", o->locks);
	vb_json_set(j, "lease_ns", o->lease_ns);
	vb_json_set(j, "fencing", o->fencing);
	vb_json_set(j, "lock_options", lock_options_json(r->ops, o->lock_options));
	vb_json_set(j, "portable_variant", r->portable);
	vb_json_set(j, "workload", p->tracing ? trace_json(p) : workload_json(o));
}

static json_t *stats_json(const struct vb_fabric_stats *s)
{
	return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "doorbells",
			 (json_int_t)s->doorbells, "posted", (json_int_t)s->posted, "completions",
			 (json_int_t)s->completions, "messages", (json_int_t)s->messages, "writes",
			 (json_int_t)s->writes, "served", (json_int_t)s->served, "served_late",
			 (json_int_t)s->served_late, "refused", (json_int_t)s->refused, "waits",
			 (json_int_t)s->waits, "dropped", (json_int_t)s->dropped, "sleeps",
			 (json_int_t)s->sleeps);
}

json_t *vb_bench_run_json(const void *plan, const void *result)
{
	const struct vb_bench_plan *p = plan;
	const struct vb_bench_result *r = result;
	const struct vb_bench_tally *t = r->tally;
	bool timed = t->timing.calls[VB_CALL_REL] != 0;
	json_t *j = json_object();

	set_setting(j, p, r);
	vb_json_set(j, "duration_s", (double)t->measured_ns / 1e9);
	vb_json_set(j, "wall_s", r->end.wall_s);
	vb_json_set(j, "ops", t->ops);
	vb_json_set(j, "goodput_ops_s", t->rate);
	vb_json_set(j, "failed", t->failed);
	vb_json_set(j, "unfinished", r->unfinished);
	vb_json_set(j, "unfinished_max_us", vb_json_us(r->unfinished_max_ns));
	vb_json_set(j, "latency_us", latency_json(p, t));
	vb_json_set(j, "txns", p->tracing ? txns_json(p, t) : json_null());
	vb_json_set(j, "rtt_ns", t->rtt_ns);
	vb_json_set(j, "verbs_per_op", verbs_json(&t->spent, t->ops, true));
	vb_json_set(j, "server_verbs_per_op", verbs_json(&r->servers, t->ops, false));
	vb_json_set(j, "breakdown_us", timed ? breakdown_json(&t->timing) : json_null());
	vb_json_set(j, "breakdown_by_call_us",
		    timed ? breakdown_by_call_json(&t->timing) : json_null());
	vb_json_set(j, "audit", audit_json(p, r));
	vb_json_set(j, "recoveries", t->spent.recoveries);
	vb_json_set(j, "untold", t->spent.untold);
	vb_json_set(j, "lost", t->spent.lost);
	vb_json_set(j, "answers_lost", t->uncertain);
	vb_json_set(j, "skipped_releases", t->skipped);
	vb_json_set(j, "workers_killed", r->end.deaths);
	vb_json_set(j, "died", r->end.died);
	vb_json_set(j, "load", vb_busy_json(&r->end.load));
	vb_json_set(j, "interrupted", r->end.interrupted);
	vb_json_set(j, "stalled", r->end.stalled ? r->end.stall : NULL);
	if (vb_bench_is_net(p->o.fabric))
		vb_json_set(j, "fabric_stats", stats_json(&t->fabric));
	if (p->o.fabric == VB_BENCH_SIM)
		vb_json_set(j, "verbs_simulated", r->end.virtual_verbs);
	return j;
}

/* ---- histograms ---- */

static int write_hgrm(const char *prefix, const char *lock, const char *what,
		      const struct vb_hist *h)
{
	char path[4096 + 256];
	struct vb_json_out out;
	FILE *to;
	int err;

	if (h->total == 0)
		return 0;
	snprintf(path, sizeof(path), "%.4095s.%s.%s.hgrm", prefix, lock, what);
	err = vb_json_out_begin(&out, path, &to);
	if (err)
		return err;
	vb_hist_print_hgrm(h, to, 1000);
	return vb_json_out_end(&out, to, 0);
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
