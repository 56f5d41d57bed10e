/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results of a run on a network on their way to the root.
 *
 * A process sends one report, with what its clients were doing, and then what is too large for it,
 * in pieces, because a part of a gather is bounded.  Times are moved to the root's time base before
 * they leave.  The root believes nothing that it has not checked.  Who is dead has sent nothing.
 */
#define VB_LOG_ROOM "bench"
#include "lab/bench/engine/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define PIECES_MOST (1ull << 24)

static bool has_clients(const struct vb_bench_run *run, uint32_t rank)
{
	return rank >= run->first_worker;
}

/* What a process of this rank sends. */
static unsigned states_from(const struct vb_bench_run *run, uint32_t rank)
{
	return has_clients(run, rank) ? vb_bench_clients_of(run, rank - run->first_worker) : 0;
}

static void *report_new(struct vb_bench_run *run, size_t *bytes)
{
	unsigned n = states_from(run, run->group->rank);
	size_t each = run->ops->client->state_bytes;
	struct vb_bench_report *out;
	int64_t offset_ns;
	char *to;

	*bytes = run->ops->gather->report_bytes + n * each;
	out = calloc(1, *bytes);
	if (out == NULL)
		return NULL;
	to = (char *)out + run->ops->gather->report_bytes;
	vb_cluster_clock(run->group->cluster, &offset_ns, &out->clock_error_ns);
	run->ops->gather->report(run, out, offset_ns);
	out->interrupted = run->end->interrupted;
	if (run->kept != NULL)
		memcpy(run->states, run->kept, run->clients * each);
	out->states = n;
	for (unsigned i = 0; i < n; i++) {
		struct vb_bench_state *s = vb_bench_state_of(
			run, vb_bench_client_of(run, run->group->rank - run->first_worker, i));

		if (s->since_ns != 0)
			s->since_ns += (uint64_t)offset_ns;
		/* Aligned to cache lines where they live, not on their way. */
		memcpy(to + i * each, s, each);
	}
	return out;
}

static int take_report(struct vb_bench_run *run, uint32_t rank, const void *data, size_t bytes)
{
	const struct vb_bench_report *in = data;
	size_t each = run->ops->client->state_bytes;
	unsigned n = states_from(run, rank);

	if (bytes != run->ops->gather->report_bytes + n * each || in->states != n)
		return vb_bench_group_refuse(run->group, rank, "a report");
	for (unsigned i = 0; i < n; i++) {
		void *state = vb_bench_state_of(
			run, vb_bench_client_of(run, rank - run->first_worker, i));

		memcpy(state, (const char *)data + run->ops->gather->report_bytes + i * each, each);
		if (!run->ops->gather->state_is_sane(run, state))
			return vb_bench_group_refuse(run->group, rank, "a client's state");
	}
	run->end->interrupted |= in->interrupted != 0;
	if (in->clock_error_ns > run->end->clock_error_ns)
		run->end->clock_error_ns = in->clock_error_ns;
	return run->ops->gather->take_report(run, rank, data);
}

static int take_reports(struct vb_bench_run *run, const struct vb_cluster_parts *parts,
			const void **reports)
{
	struct vb_cluster *cluster = run->group->cluster;
	int err = 0;

	for (uint32_t i = 0; i < parts->n && err == 0; i++) {
		if (parts->data[i] == NULL) {
			run->end->deaths++;
			run->end->dead_clients += states_from(run, i);
			continue;
		}
		err = take_report(run, i, parts->data[i], parts->bytes[i]);
		reports[i] = parts->data[i];
	}
	if (err)
		return err;
	if (run->dead < 0) /* between our last look and now */
		run->dead = vb_cluster_first_dead(cluster);
	if (run->dead >= 0)
		run->end->died = strdup(vb_cluster_name(cluster, (uint32_t)run->dead));
	return 0;
}

/* Collective; `most`: pieces of whoever has the most. */
static int gather_pieces(struct vb_bench_run *run, const void *const *reports, uint64_t most)
{
	void *piece = malloc(VB_BENCH_PIECE);
	int rc = 0, err = piece == NULL ? vb_fail(-ENOMEM, "no memory for results") : 0;
	struct vb_cluster_parts parts;
	uint64_t at = 0;

	for (uint64_t i = 0; i < most && rc == 0; i++) {
		size_t bytes = piece != NULL ? run->ops->gather->pack(run, &at, piece) : 0;

		rc = vb_cluster_gather(run->group->cluster, run->ops->gather->pieces_name, piece,
				       bytes, VB_CLUSTER_TO_ROOT, true, 0, &parts);
		if (rc)
			break;
		for (uint32_t r = 0; r < parts.n && err == 0; r++)
			if (parts.data[r] != NULL && parts.bytes[r] > 0 && reports[r] != NULL)
				err = run->ops->gather->take_piece(run, r, reports[r],
								   parts.data[r], parts.bytes[r]);
		vb_cluster_parts_free(&parts);
	}
	free(piece);
	return rc != 0 ? rc : err;
}

int vb_bench_run_gather(struct vb_bench_run *run, bool stalled)
{
	const void **reports = calloc(run->group->hosts, sizeof(*reports));
	struct vb_cluster_parts parts = {0};
	size_t bytes = 0;
	void *mine = report_new(run, &bytes);
	uint64_t most = 0;
	int rc, err = 0;

	if (reports == NULL || mine == NULL)
		err = vb_fail(-ENOMEM, "no memory for the results");
	/* Without memory we still take part, with nothing, so that the others get on. */
	rc = vb_cluster_gather(run->group->cluster, "results", mine, mine != NULL ? bytes : 0,
			       VB_CLUSTER_TO_ROOT, true, 0, &parts);
	if (rc == 0 && err == 0)
		err = take_reports(run, &parts, reports);
	if (rc == 0 && err == 0 && stalled)
		vb_bench_run_explain(run, vb_sched_now_slow(run->sched));
	if (rc == 0)
		rc = vb_bench_group_largest(run->group, run->ops->gather->pieces_name,
					    run->ops->gather->pieces(run), PIECES_MOST, &most);
	if (rc == 0 && reports != NULL) {
		int failed = gather_pieces(run, reports, most);

		err = err != 0 ? err : failed;
	}
	if (rc == 0 && err == 0 && run->group->rank == 0)
		err = run->ops->gather->judge(run, reports);
	vb_cluster_parts_free(&parts);
	free(reports);
	free(mine);
	return rc != 0 ? rc : err;
}
