/* SPDX-License-Identifier: Apache-2.0 */
/* A run's tallies merged into numbers, and why it stands still. */
#define VB_LOG_ROOM "bench"
#include "lab/bench/lock/lock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

unsigned vb_bench_workers(const struct vb_bench_plan *plan)
{
	const struct vb_bench_opts *o = &plan->o;

	return (unsigned)(vb_bench_in_group(&o->common)
				  ? vb_bench_with_clients(o->cluster.procs, o->servers)
				  : o->cluster.procs);
}

void vb_bench_tally_rates(struct vb_bench_tally *t)
{
	double per_s = t->measured_ns > 0 ? 1e9 / (double)t->measured_ns : 0;

	t->rate = (double)t->ops * per_s;
	t->txn_rate = (double)t->txns.committed * per_s;
}

void vb_bench_lock_merge(void *sum, const void *tally)
{
	struct vb_bench_tally *into = sum;
	const struct vb_bench_tally *t = tally;
	uint64_t clients = into->rtt_clients + t->rtt_clients;

	into->rate += vb_bench_rate(t->ops, t->measured_ns);
	into->txn_rate += vb_bench_rate(t->txns.committed, t->measured_ns);
	if (t->measured_ns > into->measured_ns)
		into->measured_ns = t->measured_ns;
	if (clients > 0)
		into->rtt_ns =
			(into->rtt_ns * into->rtt_clients + t->rtt_ns * t->rtt_clients) / clients;
	into->rtt_clients = clients;
	if (t->last_error != 0)
		into->last_error = t->last_error;
}

void vb_bench_unfinished(struct vb_bench_result *r, const struct vb_bench_lock_state *states,
			 unsigned n, uint64_t now_ns)
{
	for (unsigned i = 0; i < n; i++) {
		uint64_t since = states[i].common.since_ns;

		if (states[i].common.dead ||
		    __atomic_load_n(&states[i].doing, __ATOMIC_RELAXED) != VB_DOING_ACQUIRE)
			continue;
		r->unfinished++;
		if (now_ns > since && now_ns - since > r->unfinished_max_ns)
			r->unfinished_max_ns = now_ns - since;
	}
}

void vb_bench_take_audit(struct vb_bench_result *r, struct vb_audit *a)
{
	size_t size;
	FILE *f;

	if (a == NULL)
		return;
	r->audited = true;
	vb_audit_counts(a, &r->audit);
	if (r->audit.violations == 0)
		return;
	f = open_memstream(&r->story, &size);
	if (f == NULL)
		return;
	vb_audit_print(a, f);
	fclose(f);
}

/* Whom the waiting clients wait for, as far as the dead tell: a holder before one in the queue. */
static const struct vb_bench_lock_state *dead_on(const struct vb_bench_lock_state *states,
						 unsigned n, uint64_t lock)
{
	const struct vb_bench_lock_state *queued = NULL;

	for (unsigned i = 0; i < n; i++) {
		if (!states[i].common.dead || states[i].lock != lock ||
		    states[i].doing == VB_DOING_IDLE)
			continue;
		if (states[i].doing != VB_DOING_ACQUIRE)
			return &states[i];
		queued = &states[i];
	}
	return queued;
}

void vb_bench_explain_stall(struct vb_bench_result *r, const struct vb_bench_lock_state *states,
			    unsigned n, uint64_t now_ns)
{
	static const char *const doing[] = {"idle", "acquiring", "holding", "releasing"};
	const struct vb_bench_lock_state *waiter = NULL, *dead = NULL;
	unsigned waiting = 0;

	for (unsigned i = 0; i < n; i++) {
		if (states[i].common.dead || states[i].doing != VB_DOING_ACQUIRE)
			continue;
		waiting++;
		if (dead == NULL || dead->doing == VB_DOING_ACQUIRE) {
			const struct vb_bench_lock_state *found =
				dead_on(states, n, states[i].lock);

			if (found != NULL)
				dead = found;
			if (found != NULL || waiter == NULL)
				waiter = &states[i];
		}
	}
	if (waiter == NULL) {
		snprintf(r->end.stall, sizeof(r->end.stall), "no client has made progress");
		return;
	}
	r->stalled_lock = waiter->lock;
	r->stalled_client = (unsigned)(waiter - states);
	if (dead == NULL) {
		snprintf(r->end.stall, sizeof(r->end.stall),
			 "%u clients wait for ever; client %u has waited %.3f s for lock %" PRIu64
			 " (%s)",
			 waiting, r->stalled_client,
			 (double)(now_ns - waiter->common.since_ns) / 1e9, waiter->lock,
			 vb_lock_mode_name((enum vb_mode)waiter->mode));
		return;
	}
	snprintf(r->end.stall, sizeof(r->end.stall),
		 "client %u of the dead worker %d died %s lock %" PRIu64 " (%s), and '%s' does not "
		 "survive that; %u clients wait",
		 (unsigned)(dead - states), (int)dead->common.pid, doing[dead->doing], dead->lock,
		 vb_lock_mode_name((enum vb_mode)dead->mode), r->ops->name, waiting);
}

void vb_bench_result_free(void *result)
{
	struct vb_bench_result *r = result;

	free(r->tally);
	free(r->story);
	r->tally = NULL;
	r->story = NULL;
}
