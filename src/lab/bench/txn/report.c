/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of `verbena bench txn` as tables for people. */
#define VB_LOG_ROOM "bench"
#include "lab/bench/txn/txn.h"

#include <inttypes.h>
#include <string.h>

static const char head[] = "                              goodput  aborts      latency us        "
			   "       per transaction "
			   "         effective    CPU  cycles\n"
			   "protocol         hybrid        ktxn/s       %      p50     p99   "
			   "p99.9   prims  index  verbs"
			   "  calls       CPU %      %   k/txn  serializable  invariant\n";

static uint64_t aborts_of(const struct vb_tbench_tally *t)
{
	uint64_t n = 0;

	for (unsigned i = VB_TXN_USER + 1; i < VB_TXN_CAUSES; i++)
		n += t->spent.aborts[i];
	return n;
}

static double per(double n, uint64_t of)
{
	return of > 0 ? n / (double)of : 0;
}

void vb_tbench_print_head(FILE *to, const void *plan)
{
	const struct vb_tbench_plan *p = plan;
	static const char *const levels[VB_ISOLATIONS] = {
		[VB_REPEATABLE_READ] = "repeatable read",
		[VB_READ_COMMITTED] = "read committed",
		[VB_SNAPSHOT] = "snapshot isolation",
	};
	const struct vb_tbench_opts *o = &p->o;
	char span[16];

	vb_format_ns(span, sizeof(span), (double)o->duration_ns);
	if (o->elastic != NULL)
		fprintf(to,
			"%s on %" PRIu64 " nodes, %" PRIu64 " process%s with %" PRIu64
			" client%s each; tcp, servers that run: %s",
			p->load->name, o->nodes, o->cluster.procs, o->cluster.procs > 1 ? "es" : "",
			o->coroutines, o->coroutines > 1 ? "s" : "", o->elastic);
	else
		fprintf(to,
			"%s on %" PRIu64 " nodes, %" PRIu64 " thread%s each with %" PRIu64
			" coroutine%s; %s",
			p->load->name, o->nodes, o->threads, o->threads > 1 ? "s" : "",
			o->coroutines, o->coroutines > 1 ? "s" : "",
			vb_bench_fabric_names[o->fabric]);
	if (o->fabric == VB_BENCH_SIM)
		fprintf(to, ", profile %s, %s of virtual time each", o->profile, span);
	else
		fprintf(to, ", %s each", span);
	if (o->isolation != VB_SERIALIZABLE)
		fprintf(to, ", %s", levels[o->isolation]);
	fprintf(to, "%s%s%s%s%s, seed %" PRIu64 "\n\n", o->recovery != 0 ? ", no recovery" : "",
		o->no_doorbell ? ", no doorbell batching" : "",
		o->no_outstanding ? ", one verb at a time" : "",
		o->passive_ack ? ", passive ack" : "", o->check ? ", checked" : "", o->seed);
	fputs(head, to);
	fflush(to);
}

static void put_latency(FILE *to, const struct vb_tbench_tally *t)
{
	static struct vb_hist all;

	vb_hist_init(&all);
	for (unsigned i = 0; i < VB_LOAD_TYPES_MAX; i++)
		vb_hist_merge(&all, &t->lat[i]);
	vb_bench_put_percentiles(to, &all, true);
}

static const char *verdict_of(const struct vb_tbench_result *r)
{
	if (!r->checked)
		return "-";
	if (r->serial.first != VB_ANOMALY_NONE)
		return vb_anomaly_names[r->serial.first];
	if (r->plan->o.isolation != VB_SERIALIZABLE)
		return "as asked";
	return r->one->cc->caps & VB_CC_STRICT ? "strictly" : "yes";
}

static void put_notes(FILE *to, const struct vb_tbench_result *r)
{
	const struct vb_tbench_tally *t = r->tally;

	if (r->end.interrupted)
		fprintf(to, "    interrupted\n");
	if (r->history_full)
		fprintf(to, "    ended early: a history has no more room; give it more "
			    "--history-bytes\n");
	if (r->tables_full)
		fprintf(to,
			"    ended early: a district has no more room; give it more --orders\n");
	if (r->end.died != NULL)
		fprintf(to, "    %s died: results are of the others until then\n", r->end.died);
	else if (r->end.deaths != 0)
		fprintf(to,
			"    %" PRIu64 " worker%s killed by signal %d, %" PRIu64 " clients lost\n",
			r->end.deaths, r->end.deaths > 1 ? "s" : "", r->end.death_signal,
			r->end.dead_clients);
	if (r->last_committed + r->last_undone != 0)
		fprintf(to,
			"    commits that the killed were in: %" PRIu64 " had happened, %" PRIu64
			" had not\n",
			r->last_committed, r->last_undone);
	if (r->swept != 0)
		fprintf(to,
			"    %" PRIu64 " locks of the killed that nobody had met were swept up\n",
			r->swept);
	if (r->dead_servers != 0)
		fprintf(to,
			"    of the killed %" PRIu64 " served a node: what is asked of it by RPC "
			"fails\n",
			r->dead_servers);
	if (r->end.stalled)
		fprintf(to, "    stalled: %s\n", r->end.stall);
	if (r->broken)
		fprintf(to, "    invariant broken: %s\n", r->why);
	if (r->unjudged != NULL)
		fprintf(to, "    invariant not judged: %s\n", r->unjudged);
	if (t->spent.recovered != 0)
		fprintf(to, "    recovered %" PRIu64 " locks of transactions that did not move\n",
			t->spent.recovered);
	if (t->errors != 0)
		fprintf(to, "    %" PRIu64 " transactions failed, the last with: %s\n", t->errors,
			vb_strerror((int)t->last_error));
	vb_bench_put_busy(to, &r->end.load);
}

void vb_tbench_print_row(FILE *to, const void *plan, const void *result)
{
	const struct vb_tbench_result *r = result;
	const struct vb_tbench_tally *t = r->tally;
	uint64_t commits, aborts;

	fprintf(to, "%-16s %-8s", r->one->cc->name, r->one->code);
	if (!r->end.ran) {
		fprintf(to, " skipped: %s\n", r->end.skipped);
		fflush(to);
		return;
	}
	commits = vb_tbench_commits(t);
	aborts = aborts_of(t);
	fprintf(to, " %11.2f %7.2f ", t->rate / 1000, 100 * per((double)aborts, commits + aborts));
	put_latency(to, t);
	fprintf(to, " %7.2f %6.2f %6.2f %6.2f %11.1f",
		per((double)vb_tbench_sum(t->spent.prims, VB_INDEX), commits),
		per((double)t->spent.prims[VB_INDEX], commits),
		per((double)vb_tbench_sum(t->spent.verbs, VB_OP_COUNT), commits),
		per((double)t->spent.calls, commits),
		100 * per((double)t->useful_ns, t->attempts_ns));
	if (r->plan->o.fabric != VB_BENCH_SIM)
		fprintf(to, " %6.1f %7.2f", 100 * per((double)t->cpu_ns, t->span_ns),
			per((double)t->tsc, commits) / 1e3);
	else
		fprintf(to, "      -       -");
	fprintf(to, "  %-12s  %s\n", verdict_of(r),
		!r->judged  ? "-"
		: r->broken ? "broken"
			    : "holds");
	put_notes(to, r);
	fflush(to);
}

/* ---- after the last run ---- */

static void put_types(FILE *to, const struct vb_tbench_result *r)
{
	const struct vb_load_ops *load = r->plan->load;

	for (unsigned i = 0; i < load->n_types; i++) {
		const struct vb_hist *h = &r->tally->lat[i];

		if (h->total == 0)
			continue;
		fprintf(to, "%-16s %-8s %-17s %10" PRIu64, r->one->cc->name, r->one->code,
			load->types[i], h->total);
		vb_bench_put_us(to, (double)h->min);
		vb_bench_put_us(to, (double)vb_hist_percentile(h, 50));
		vb_bench_put_us(to, (double)vb_hist_percentile(h, 90));
		vb_bench_put_us(to, (double)vb_hist_percentile(h, 99));
		vb_bench_put_us(to, (double)vb_hist_percentile(h, 99.9));
		vb_bench_put_us(to, (double)h->max);
		fputc('\n', to);
	}
}

static void put_stages(FILE *to, const struct vb_tbench_result *r)
{
	const struct vb_cc_ops *cc = r->one->cc;
	const struct vb_stage_time *timed = r->tally->spent.timed;
	uint64_t commits = vb_tbench_commits(r->tally);

	fprintf(to, "%-16s %-8s", cc->name, r->one->code);
	for (unsigned i = 0; i < cc->n_stages; i++)
		fprintf(to, "  %s %.2f", cc->stages[i].name,
			per((double)timed[i].ns, commits) / 1e3);
	if (r->plan->o.copies != 0)
		fprintf(to, "  log %.2f", per((double)timed[VB_TIMED_LOG].ns, commits) / 1e3);
	fprintf(to, "  commit point %.2f", per((double)timed[VB_TIMED_POINT].ns, commits) / 1e3);
	if (r->tally->spent.agents != 0)
		fprintf(to, "; agents %.2f", per((double)r->tally->spent.agents, commits));
	fputc('\n', to);
}

/* Which stage found it; and of what ended in the first, which reads, how much did so for want of a version (RCC
 * section 4.4). */
static void put_ended(FILE *to, const struct vb_tbench_result *r)
{
	const struct vb_cc_ops *cc = r->one->cc;
	const struct vb_tbench_meter *m = &r->tally->spent;
	const char *before = "; found by";

	for (unsigned i = 0; i < cc->n_stages; i++) {
		if (m->timed[i].ended == 0)
			continue;
		fprintf(to, "%s %s %" PRIu64, before, cc->stages[i].name, m->timed[i].ended);
		before = ",";
		if (i == 0 && vb_cc_slots(cc) > 1)
			fprintf(to, " (%.2f %% slots)",
				100 * per((double)m->aborts[VB_TXN_SLOTS], m->timed[i].ended));
	}
}

static void put_causes(FILE *to, const struct vb_tbench_result *r)
{
	fprintf(to, "%-16s %-8s", r->one->cc->name, r->one->code);
	for (unsigned i = VB_TXN_USER; i < VB_TXN_CAUSES; i++)
		if (r->tally->spent.aborts[i] != 0)
			fprintf(to, "  %s %" PRIu64, vb_txn_cause_names[i],
				r->tally->spent.aborts[i]);
	put_ended(to, r);
	fputc('\n', to);
}

/* What the order takes beside what coordinators do. */
static void put_epochs(FILE *to, const struct vb_tbench_result *r)
{
	const struct vb_tbench_epochs *e = &r->sequenced;

	if (!vb_cc_sequenced(r->one->cc))
		return;
	fprintf(to, "%-16s %-8s", r->one->cc->name, r->one->code);
	fprintf(to, "%10" PRIu64 " %13.2f %13.2f %13.2f %13.2f %9" PRIu64 "\n",
		e->epochs / r->plan->o.nodes, r->plan->o.nodes * per((double)e->batched, e->epochs),
		r->plan->o.nodes * per((double)e->told, e->epochs),
		per((double)e->barrier_ns, e->epochs) / 1e3, per((double)e->forwards, e->batched),
		e->left_out);
}

static bool has_epochs(const struct vb_tbench_result *r, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (r[i].end.ran && vb_cc_sequenced(r[i].one->cc))
			return true;
	return false;
}

static void put_each(FILE *to, const struct vb_tbench_result *results, unsigned n,
		     void (*put)(FILE *to, const struct vb_tbench_result *r))
{
	for (unsigned i = 0; i < n; i++)
		if (results[i].end.ran)
			put(to, &results[i]);
}

void vb_tbench_print_end(FILE *to, const void *plan, const void *results, unsigned n)
{
	const struct vb_tbench_result *r = results;

	fprintf(to, "\nLatency by type, us, from the first begin to the commit\n\n");
	fprintf(to, "protocol         hybrid   type                   count     min     p50     p90"
		    "     p99   p99.9     max\n");
	put_each(to, r, n, put_types);
	if (!((const struct vb_tbench_plan *)plan)->o.no_breakdown) {
		fprintf(to, "\nWhere the time goes, us per committed transaction, aborted attempts "
			    "included (RCC figure 13)\n\n");
		put_each(to, r, n, put_stages);
	}
	fprintf(to, "\nAborts by cause, counted ('user': by the workload's own wish, not among the "
		    "aborts in %%)\n\n");
	put_each(to, r, n, put_causes);
	if (has_epochs(r, n)) {
		fprintf(to, "\nEpochs, of the whole run (a batch, and what is forwarded, is a "
			    "WRITE and a "
			    "message)\n\n");
		fprintf(to, "protocol         hybrid       epochs    txns/epoch batches/epoch    "
			    "barrier us  forwards/txn  left out\n");
		put_each(to, r, n, put_epochs);
	}
	for (unsigned i = 0; i < n; i++)
		if (r[i].checked && r[i].serial.story != NULL)
			fprintf(to, "\n%s %s: the checker has found an anomaly:\n%s",
				r[i].one->cc->name, r[i].one->code, r[i].serial.story);
	fflush(to);
}
