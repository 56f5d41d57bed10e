/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results of transactions on a network on their way to the root, and what the root makes of them.
 *
 * A process sends one report (its tally, the sums over its node's records, what its clients were
 * doing) and then its history, in pieces, because a part of a gather is bounded.  Times are moved
 * to the root's time base before they leave, and a transaction's span is made longer by what the
 * clock may be wrong: then no order in time is claimed that there was not.  The root believes
 * nothing that it has not checked.
 */
#define VB_LOG_ROOM "bench"
#include "lab/bench/txn/net.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define PIECE (VB_CLUSTER_PART_MAX / 2) /* bytes of a history at a time */

struct report {
	uint64_t history_bytes;
	uint64_t clock_error_ns;
	uint32_t interrupted, full;
	uint32_t seats; /* that follow, of this process's clients */
	uint32_t unused;
	double fill_s;
	struct vb_load_sums sums;
	struct vb_tbench_tally tally;
};

/* ---- leaving ---- */

static size_t bytes_of(const struct vb_history_txn *t)
{
	return sizeof(*t) + t->n_ops * sizeof(struct vb_history_op);
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

static struct report *report_new(struct vb_tbench_net *u, size_t *bytes)
{
	unsigned n = vb_tbench_net_clients(u);
	struct report *out;
	int64_t offset_ns;

	*bytes = sizeof(*out) + n * sizeof(struct vb_tbench_seat);
	out = calloc(1, *bytes);
	if (out == NULL)
		return NULL;
	out->history_bytes = history_bytes(u->recorder.history);
	out->interrupted = u->r->end.interrupted;
	out->full = u->r->history_full;
	out->seats = n;
	out->fill_s = u->r->fill_s;
	out->tally = *u->tally;
	vb_tbench_take_books(&out->tally, &u->seats[u->crew->rank * n], n);
	u->plan->load->count(&u->ground.load, (uint16_t)u->crew->rank, &out->sums);
	vb_cluster_clock(u->crew->cluster, &offset_ns, &out->clock_error_ns);
	/* Seats are aligned to cache lines where they live, not on their way. */
	memcpy(out + 1, &u->seats[u->crew->rank * n], n * sizeof(struct vb_tbench_seat));
	return out;
}

/* As many whole transactions as fit, in the root's time. */
static size_t pack(const struct vb_tbench_net *u, uint64_t *at, unsigned char *to)
{
	const struct vb_history *h = u->recorder.history;
	const struct vb_history_txn *t;
	const struct vb_history_op *ops;
	uint64_t before = *at, error_ns;
	int64_t offset_ns;
	size_t bytes = 0;

	vb_cluster_clock(u->crew->cluster, &offset_ns, &error_ns);
	while (h != NULL && vb_history_next(h, at, &t, &ops)) {
		struct vb_history_txn moved = *t;

		if (bytes + bytes_of(t) > PIECE) {
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

struct arrival {
	const struct report *report; /* NULL: none came */
	struct vb_history *history;
	uint64_t bytes; /* of it that have come */
};

static void add_sums(struct vb_load_sums *into, const struct vb_load_sums *s)
{
	_Static_assert(sizeof(*s) % sizeof(uint64_t) == 0, "counters");
	for (size_t i = 0; i < sizeof(*s) / sizeof(uint64_t); i++)
		((uint64_t *)into)[i] += ((const uint64_t *)s)[i];
}

static int take_report(struct vb_tbench_net *u, uint32_t rank, const struct report *in,
		       size_t bytes, struct vb_load_sums *sums)
{
	unsigned n = vb_tbench_net_clients(u);
	struct vb_tbench_result *r = u->r;

	if (bytes != sizeof(*in) + n * sizeof(struct vb_tbench_seat) || in->seats != n ||
	    memchr(in->tally.why, '\0', sizeof(in->tally.why)) == NULL)
		return vb_bench_crew_refuse(u->crew, rank, "a report");
	memcpy(&u->seats[rank * n], in + 1, n * sizeof(struct vb_tbench_seat));
	for (unsigned i = rank * n; i < (rank + 1) * n; i++)
		if (u->seats[i].type >= u->plan->load->n_types ||
		    u->seats[i].cause >= VB_TXN_CAUSES)
			return vb_bench_crew_refuse(u->crew, rank, "a client's state");
	vb_tbench_tally_merge(r->tally, &in->tally);
	add_sums(sums, &in->sums);
	r->end.interrupted |= in->interrupted != 0;
	r->history_full |= in->full != 0;
	if (in->clock_error_ns > r->clock_error_ns)
		r->clock_error_ns = in->clock_error_ns;
	if (in->fill_s > r->fill_s)
		r->fill_s = in->fill_s;
	return 0;
}

static int take_reports(struct vb_tbench_net *u, const struct vb_cluster_parts *parts,
			struct arrival *arrivals, struct vb_load_sums *sums)
{
	struct vb_tbench_result *r = u->r;
	int err = 0;

	for (uint32_t i = 0; i < parts->n && err == 0; i++) {
		if (parts->data[i] == NULL) {
			r->deaths++;
			r->dead_clients += vb_tbench_net_clients(u);
			continue;
		}
		err = take_report(u, i, parts->data[i], parts->bytes[i], sums);
		arrivals[i].report = parts->data[i];
	}
	if (err == 0)
		r->died = vb_bench_phases_died(&u->phases);
	if (err == 0 && u->phases.stalled)
		vb_tbench_explain_stall(r, u->seats, vb_tbench_clients(u->plan),
					vb_sched_now_slow(u->sched));
	return err;
}

/* A piece of somebody's history. */
static int take_history(struct vb_tbench_net *u, uint32_t rank, struct arrival *a,
			const unsigned char *data, size_t bytes)
{
	size_t at = 0;

	if (bytes > a->report->history_bytes - a->bytes)
		return vb_bench_crew_refuse(u->crew, rank, "a history");
	a->bytes += bytes;
	while (at < bytes) {
		struct vb_history_txn t;
		size_t whole;

		if (bytes - at < sizeof(t))
			return vb_bench_crew_refuse(u->crew, rank, "a history");
		memcpy(&t, data + at, sizeof(t));
		if (t.n_ops > VB_HISTORY_OPS_MAX)
			return vb_bench_crew_refuse(u->crew, rank, "a history");
		whole = bytes_of(&t);
		if (whole > bytes - at)
			return vb_bench_crew_refuse(u->crew, rank, "a history");
		/* Every part of it is a multiple of 8 bytes, so operations are aligned. */
		if (!vb_history_add(a->history, &t, (const void *)(data + at + sizeof(t))))
			return vb_bench_crew_refuse(u->crew, rank, "a history");
		at += whole;
	}
	return 0;
}

/* Room for what was announced, and for what the history adds to each transaction. */
static int history_room(struct vb_tbench_net *u, struct arrival *arrivals)
{
	int err = 0;

	for (uint32_t i = 0; i < u->crew->hosts && err == 0; i++)
		if (arrivals[i].report != NULL)
			err = vb_history_open(2 * arrivals[i].report->history_bytes + (1 << 16),
					      &arrivals[i].history);
	return err;
}

/* Collective.  `most`: bytes of whoever has the most. */
static int gather_histories(struct vb_tbench_net *u, struct arrival *arrivals, uint64_t most)
{
	/* Whole transactions do not fill a piece to its end. */
	uint64_t rounds = most / (PIECE / 2) + 1, at = 0;
	unsigned char *piece = malloc(PIECE);
	struct vb_cluster_parts parts;
	int rc = 0, err = piece == NULL ? vb_fail(-ENOMEM, "no memory for a history") : 0;

	for (uint64_t i = 0; i < rounds && rc == 0; i++) {
		size_t bytes = piece != NULL ? pack(u, &at, piece) : 0;

		rc = vb_cluster_gather(u->crew->cluster, "histories", piece, bytes,
				       VB_CLUSTER_TO_ROOT, true, 0, &parts);
		if (rc)
			break;
		for (uint32_t r = 0; r < parts.n && err == 0; r++)
			if (parts.data[r] != NULL && parts.bytes[r] > 0 &&
			    arrivals[r].history != NULL)
				err = take_history(u, r, &arrivals[r], parts.data[r],
						   parts.bytes[r]);
		vb_cluster_parts_free(&parts);
	}
	free(piece);
	return rc != 0 ? rc : err;
}

/* At the root. */
static int check(struct vb_tbench_net *u, const struct arrival *arrivals)
{
	const struct vb_history **parts = calloc(u->crew->hosts, sizeof(struct vb_history *));
	unsigned n = 0;
	int err;

	if (parts == NULL)
		return vb_fail(-ENOMEM, "no memory to check a history");
	for (uint32_t i = 0; i < u->crew->hosts; i++)
		if (arrivals[i].history != NULL)
			parts[n++] = arrivals[i].history;
	/* Who died has taken its history along, and others may have read what it wrote. */
	err = u->r->deaths == 0 ? vb_tbench_check(u->r, &u->ground.load, parts, n) : 0;
	free(parts);
	return err;
}

int vb_tbench_gather(struct vb_tbench_net *u)
{
	struct arrival *arrivals = calloc(u->crew->hosts, sizeof(*arrivals));
	struct vb_cluster_parts parts = {0};
	struct vb_load_sums sums = {0};
	size_t bytes = 0;
	struct report *mine = report_new(u, &bytes);
	bool root = u->crew->rank == 0;
	uint64_t most = 0;
	int rc, err = 0;

	if (arrivals == NULL || mine == NULL)
		err = vb_fail(-ENOMEM, "no memory for the results");
	/* Without memory we still take part, with nothing, so that the others get on. */
	rc = vb_cluster_gather(u->crew->cluster, "results", mine, mine != NULL ? bytes : 0,
			       VB_CLUSTER_TO_ROOT, true, 0, &parts);
	if (rc == 0 && err == 0)
		err = take_reports(u, &parts, arrivals, &sums);
	if (rc == 0 && err == 0 && root)
		vb_tbench_judge_sums(u->r, &u->ground.load, &sums);
	if (rc == 0 && u->plan->o.check)
		rc = vb_bench_crew_largest(u->crew, "length of histories",
					   mine != NULL ? mine->history_bytes : 0, 1ull << 40,
					   &most);
	if (rc == 0 && err == 0 && root && u->plan->o.check)
		err = history_room(u, arrivals);
	if (rc == 0 && arrivals != NULL && u->plan->o.check) {
		int failed = gather_histories(u, arrivals, most);

		err = err != 0 ? err : failed;
	}
	if (rc == 0 && err == 0 && root && u->plan->o.check)
		err = check(u, arrivals);
	for (uint32_t r = 0; arrivals != NULL && r < u->crew->hosts; r++)
		vb_history_close(arrivals[r].history);
	vb_cluster_parts_free(&parts);
	free(arrivals);
	free(mine);
	return rc != 0 ? rc : err;
}
