/* SPDX-License-Identifier: Apache-2.0 */
/* Tallies of a run, why it stands still, and verdicts. */
#define VB_LOG_ROOM "bench"
#include "lab/bench/txn/txn.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* ---- tallies ---- */

void vb_tbench_merge(void *sum, const void *tally)
{
	struct vb_tbench_tally *into = sum;
	const struct vb_tbench_tally *t = tally;

	into->rate += vb_bench_rate(vb_tbench_commits(t), t->measured_ns);
	if (t->measured_ns > into->measured_ns)
		into->measured_ns = t->measured_ns;
	into->span_ns += t->measured_ns;
	if (t->last_error != 0)
		into->last_error = t->last_error;
	if (into->why[0] == '\0')
		memcpy(into->why, t->why, sizeof(into->why));
}

void vb_tbench_result_free(void *result)
{
	struct vb_tbench_result *r = result;

	free(r->tally);
	r->tally = NULL;
	vb_serial_result_free(&r->serial);
}

/* ---- does it move? ---- */

void vb_tbench_explain_stall(struct vb_tbench_result *r, const struct vb_tbench_state *states,
			     unsigned n, uint64_t now_ns)
{
	const struct vb_tbench_state *worst = NULL;
	unsigned trying = 0;

	for (unsigned i = 0; i < n; i++) {
		if (states[i].common.dead || states[i].tries == 0)
			continue;
		trying++;
		if (worst == NULL || states[i].common.since_ns < worst->common.since_ns)
			worst = &states[i];
	}
	if (worst == NULL) {
		snprintf(r->end.stall, sizeof(r->end.stall),
			 "nothing commits any more, and no client tries to");
		return;
	}
	snprintf(r->end.stall, sizeof(r->end.stall),
		 "nothing commits any more: %u clients try; client %u has tried a %s transaction "
		 "%" PRIu32 " times in %.3f s, last aborted as '%s'",
		 trying, (unsigned)(worst - states), r->plan->load->types[worst->type],
		 worst->tries, (double)(now_ns - worst->common.since_ns) / 1e9,
		 vb_txn_cause_names[worst->cause]);
}

/* ---- verdicts ---- */

void vb_tbench_judge_sums(struct vb_tbench_result *r, const struct vb_load *load,
			  const struct vb_load_sums *sums)
{
	const struct vb_tbench_tally *t = r->tally;
	/* Then sums need not hold.  A lock that is left has no excuse at any level. */
	const bool weak = r->plan->o.isolation != VB_SERIALIZABLE;

	if (t->why[0] != '\0') {
		r->judged = r->broken = true;
		memcpy(r->why, t->why, sizeof(r->why));
		return;
	}
	if (r->end.deaths != 0 && vb_bench_is_net(r->plan->o.fabric))
		r->unjudged = "a process was killed, and its node's records have gone with it";
	else if (r->last_unclear != 0 ||
		 (r->end.deaths != 0 && r->plan->o.recovery != 0 && sums->locked != 0))
		r->unjudged = "a worker was killed, and without recovery what it held, or had half "
			      "written, stays as it is";
	else if (r->end.stalled)
		r->unjudged = "the run stalled, with transactions under way";
	else if (t->unknown != 0)
		r->unjudged = "answers to commits were lost";
	else if (weak && sums->locked == 0)
		r->unjudged = "transactions were not asked to be serializable; no lock was left";
	if (r->unjudged != NULL)
		return;
	r->judged = true;
	r->broken = (weak ? vb_load_judge_locks(sums, r->why, sizeof(r->why))
			  : load->ops->judge(load, sums, t->change, r->why, sizeof(r->why))) != 0;
}

void vb_tbench_judge(struct vb_tbench_result *r, const struct vb_load *load, const struct vb_db *db)
{
	struct vb_load_sums sums = {0};

	for (uint16_t node = 0; node < load->nodes; node++) {
		load->ops->count(load, node, &sums);
		vb_tbench_note_epochs(&r->sequenced, db, node);
	}
	vb_tbench_judge_sums(r, load, &sums);
}

void vb_tbench_note_epochs(struct vb_tbench_epochs *e, const struct vb_db *db, uint16_t node)
{
	const struct vb_seq_line *l = vb_cc_sequenced(db->cc) ? vb_seq_line(db, node) : NULL;

	if (l == NULL)
		return;
	e->epochs += l->epochs;
	e->batched += l->batched;
	e->told += l->told;
	e->forwards += l->forwards;
	e->barrier_ns += l->barrier_ns;
	e->left_out += l->left_out;
}

static int write_history(const char *path, const struct vb_history *const *parts, unsigned n,
			 enum vb_level claim)
{
	struct vb_json_out out;
	FILE *to;
	int err = vb_json_out_begin(&out, path, &to);

	if (err)
		return err;
	return vb_json_out_end(&out, to, vb_history_write_jsonl(parts, n, claim, to));
}

int vb_tbench_check(struct vb_tbench_result *r, const struct vb_load *load,
		    const struct vb_history *const *parts, unsigned n)
{
	const char *tables[VB_LOAD_TABLES_MAX];
	struct vb_serial_params p = {
		.parts = parts,
		.n_parts = n,
		.level = vb_tbench_level(r),
		.each = true,
		.table_names = tables,
		.n_tables = load->n_tables,
		.type_names = load->ops->types,
		.n_types = load->ops->n_types,
	};
	int err = 0;

	for (unsigned i = 0; i < load->n_tables; i++)
		tables[i] = load->params[i].name;
	if (r->plan->o.history != NULL)
		err = write_history(r->plan->o.history, parts, n, p.level);
	if (err == 0)
		err = vb_serial_check(&p, &r->serial);
	r->checked = err == 0;
	return err;
}
