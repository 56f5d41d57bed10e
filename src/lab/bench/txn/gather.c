/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A network's results (bench/engine/gather.c), and what the root makes of them.
 *
 * The pieces are whole transactions of a process's history, each with a span that is made longer by
 * what the clock may be wrong: then no order in time is claimed that there was not.
 */
#define VB_LOG_ROOM "bench"
#include "lab/bench/txn/txn.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* What a process reports to the root. */
struct report {
	struct vb_bench_report head;
	uint64_t history_bytes, full;
	double fill_s;
	struct vb_load_sums sums;
	struct vb_tbench_epochs sequenced;
	struct vb_tbench_tally tally;
};

/* ---- leaving ---- */

static size_t bytes_of(const struct vb_history_txn *t)
{
	return sizeof(*t) + t->n_ops * sizeof(struct vb_history_op);
}

/* NULL without --check. */
static const struct vb_history *history_of(const struct vb_tbench_run *u)
{
	return u->recorders != NULL ? u->recorders[0].history : NULL;
}

static uint64_t history_bytes(const struct vb_history *h)
{
	const struct vb_history_txn *t;
	const struct vb_history_op *ops;
	uint64_t at = 0, bytes = 0;

	while (h != NULL && vb_history_next(h, &at, &t, &ops))
		bytes += bytes_of(t);
	return bytes;
}

static void report(struct vb_bench_run *run, void *to, int64_t offset_ns)
{
	struct vb_tbench_run *u = (struct vb_tbench_run *)run;
	struct report *out = to;
	unsigned n = vb_bench_clients_of(run, run->group->rank);

	out->full = run->control->full;
	out->fill_s = u->r->fill_s;
	out->tally = *(const struct vb_tbench_tally *)vb_bench_tally_of(run, 0);
	vb_tbench_take_books(&out->tally, vb_bench_state_of(run, run->group->rank * n), n);
	u->plan->load->count(&u->load, (uint16_t)run->group->rank, &out->sums);
	vb_tbench_note_epochs(&out->sequenced, u->db, (uint16_t)run->group->rank);
	out->history_bytes = history_bytes(history_of(u));
}

/* Whole transactions do not fill a piece to its end. */
static uint64_t pieces(const struct vb_bench_run *run)
{
	const struct vb_tbench_run *u = (const struct vb_tbench_run *)run;

	return u->plan->o.check ? history_bytes(history_of(u)) / (VB_BENCH_PIECE / 2) + 1 : 0;
}

/* As many whole transactions as fit, in the root's time. */
static size_t pack(struct vb_bench_run *run, uint64_t *at, void *piece)
{
	const struct vb_history *h = history_of((const struct vb_tbench_run *)run);
	const struct vb_history_txn *t;
	const struct vb_history_op *ops;
	uint64_t before = *at, error_ns;
	int64_t offset_ns;
	unsigned char *to = piece;
	size_t bytes = 0;

	vb_cluster_clock(run->group->cluster, &offset_ns, &error_ns);
	while (h != NULL && vb_history_next(h, at, &t, &ops)) {
		struct vb_history_txn moved = *t;

		if (bytes + bytes_of(t) > VB_BENCH_PIECE) {
			*at = before;
			break;
		}
		moved.begin_ns += (uint64_t)offset_ns - error_ns;
		if (moved.end_ns != UINT64_MAX)
			moved.end_ns += (uint64_t)offset_ns + error_ns;
		memcpy(to + bytes, &moved, sizeof(moved));
		memcpy(to + bytes + sizeof(moved), ops, t->n_ops * sizeof(*ops));
		bytes += bytes_of(t);
		before = *at;
	}
	return bytes;
}

/* ---- arriving ---- */

static bool state_is_sane(const struct vb_bench_run *run, const void *state)
{
	const struct vb_tbench_run *u = (const struct vb_tbench_run *)run;
	const struct vb_tbench_state *s = state;

	return s->type < u->plan->load->n_types && s->cause < VB_TXN_CAUSES;
}

static int take_report(struct vb_bench_run *run, uint32_t rank, const void *report)
{
	struct vb_tbench_run *u = (struct vb_tbench_run *)run;
	const struct report *in = report;
	struct vb_tbench_result *r = u->r;

	if (memchr(in->tally.why, '\0', sizeof(in->tally.why)) == NULL)
		return vb_bench_group_refuse(run->group, rank, "a report");
	vb_bench_tally_merge(run, &in->tally);
	vb_bench_add(&u->sums, &in->sums);
	vb_bench_add(&r->sequenced, &in->sequenced);
	r->history_full |= (in->full & VB_BENCH_FULL_HISTORY) != 0;
	r->tables_full |= (in->full & VB_BENCH_FULL_TABLES) != 0;
	if (in->fill_s > r->fill_s)
		r->fill_s = in->fill_s;
	if (!u->plan->o.check)
		return 0;
	if (u->histories == NULL)
		u->histories = calloc(run->group->hosts, sizeof(struct vb_history *));
	if (u->histories == NULL)
		return vb_fail(-ENOMEM, "no memory for histories");
	/* Room for what was announced, and for what the history adds to each transaction. */
	return vb_history_open(2 * in->history_bytes + (1 << 16), &u->histories[rank]);
}

static int take_history(struct vb_bench_run *run, uint32_t rank, const void *report,
			const void *piece, size_t bytes)
{
	struct vb_tbench_run *u = (struct vb_tbench_run *)run;
	const unsigned char *data = piece;
	size_t at = 0;

	if (u->histories == NULL)
		return vb_bench_group_refuse(run->group, rank, "a history");
	while (at < bytes) {
		struct vb_history_txn t = {.n_ops = UINT32_MAX};

		if (bytes - at >= sizeof(t))
			memcpy(&t, data + at, sizeof(t));
		/* Every part of it is a multiple of 8 bytes, so operations are aligned. */
		if (t.n_ops > VB_HISTORY_OPS_MAX || bytes_of(&t) > bytes - at ||
		    !vb_history_add(u->histories[rank], &t, (const void *)(data + at + sizeof(t))))
			return vb_bench_group_refuse(run->group, rank, "a history");
		at += bytes_of(&t);
	}
	return 0;
}

static int judge(struct vb_bench_run *run, const void *const *reports)
{
	struct vb_tbench_run *u = (struct vb_tbench_run *)run;
	const struct vb_history **parts;
	unsigned n = 0;
	int err;

	vb_tbench_judge_sums(u->r, &u->load, &u->sums);
	/* Who died has taken its history along, and others may have read what it wrote. */
	if (u->histories == NULL || run->end->deaths != 0)
		return 0;
	parts = calloc(run->group->hosts, sizeof(struct vb_history *));
	if (parts == NULL)
		return vb_fail(-ENOMEM, "no memory to check a history");
	for (uint32_t i = 0; i < run->group->hosts; i++)
		if (u->histories[i] != NULL)
			parts[n++] = u->histories[i];
	err = vb_tbench_check(u->r, &u->load, parts, n);
	free(parts);
	return err;
}

const struct vb_bench_gather_ops vb_tbench_gather_ops = {
	.pieces_name = "histories",
	.report_bytes = sizeof(struct report),
	.report = report,
	.take_report = take_report,
	.state_is_sane = state_is_sane,
	.pieces = pieces,
	.pack = pack,
	.take_piece = take_history,
	.judge = judge,
};
