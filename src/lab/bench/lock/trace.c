/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client that runs the transactions of a trace by strict two-phase locking: it takes all locks of
 * a transaction, one after the other, computes, and gives them back.
 *
 * Whoever waits for a lock too long (--timeout), fails to get it, or finds before the commit that
 * the lease of one it has is over, gives all back, backs off and tries the same transaction again.
 * Taken in the order of their numbers, locks are never waited for in a circle; in the order of the
 * trace they may be, and the timeout is what ends that.
 */
#define VB_LOG_ROOM "bench"
#include "lab/bench/lock/lock.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"

#define BACKOFF_CAP_NS 10000000ull

const char *const vb_bench_order_names[] = {
	[VB_BENCH_SORTED] = "sorted",
	[VB_BENCH_AS_TRACED] = "trace",
};

const char *const vb_bench_abort_names[VB_ABORT_CAUSES] = {
	[VB_ABORT_TIMEOUT] = "timeout",
	[VB_ABORT_EXPIRED] = "expired",
	[VB_ABORT_CONFLICT] = "conflict",
	[VB_ABORT_ERROR] = "error",
};

int vb_bench_data_open(struct vb_bench_lock_run *u)
{
	const struct vb_bench_opts *o = &u->plan->o;
	bool fresh;
	int err = 0;

	if (o->data == 0)
		return 0;
	u->data = calloc(o->servers, sizeof(*u->data));
	if (u->data == NULL)
		return vb_fail(-ENOMEM, "no memory for what transactions read");
	for (uint16_t node = 0; node < o->servers && err == 0; node++)
		err = vb_region(u->run.fabric, node, "bench-data",
				(o->locks / o->servers + 1) * o->data, &u->data[node], &fresh);
	return err;
}

static vb_addr data_of(const struct vb_bench_client *c, uint64_t lock)
{
	const struct vb_bench_opts *o = &c->u->plan->o;

	return c->u->data[lock % o->servers] + lock / o->servers * o->data;
}

/* What it has locked, before it computes: all of it; after that: what is its own. */
static int use_data(struct vb_bench_client *c, const struct vb_trace_txn *txn, bool write)
{
	uint32_t len = (uint32_t)c->u->plan->o.data;
	int err = 0;

	for (unsigned i = 0; len > 0 && err == 0 && i < txn->n; i++) {
		vb_addr at = data_of(c, txn->lock[i].lock);

		if (!write)
			err = vb_read(c->lock->ep, at, c->data, len);
		else if (txn->lock[i].mode == VB_EXCLUSIVE)
			err = vb_write(c->lock->ep, at, c->data, len);
	}
	return err;
}

static void tracing_close(struct vb_bench_client *c)
{
	free(c->held);
	free(c->data);
	c->held = NULL;
	c->data = NULL;
	vb_trace_client_close(&c->trace);
}

static int tracing_open(struct vb_bench_client *c)
{
	const struct vb_trace *t = &c->u->plan->trace;
	int err;

	c->held = calloc(t->locks_max, sizeof(*c->held));
	c->data = calloc(1, c->u->plan->o.data + 1);
	if (c->held == NULL || c->data == NULL) {
		tracing_close(c);
		return vb_fail(-ENOMEM, "no memory for the locks of a client");
	}
	err = vb_trace_client_open(t, c->body.index, &c->trace);
	if (err)
		tracing_close(c);
	return err;
}

/* Gives the first n locks back; how many of the releases have succeeded.  One call does it, and is
 * one release among the latencies, where the protocol has one for all. */
static unsigned give_back(struct vb_bench_client *c, unsigned n)
{
	uint64_t now_ns = vb_sched_now(c->lock->ep->sched);
	unsigned released = 0;

	if (c->lock->space->ops->release_all != NULL && n != 0)
		return vb_bench_release_all(c, c->held, n, &now_ns) == 0 ? n : 0;
	for (unsigned i = 0; i < n; i++)
		released += vb_bench_release(c, &c->held[i], &now_ns) == 0;
	return released;
}

static void abandon(struct vb_bench_client *c, unsigned n)
{
	struct vb_bench_tally *tally = c->u->tally;

	for (unsigned i = 0; i < n; i++)
		vb_lock_abandon(c->lock, &c->held[i]);
	vb_bench_doing_set(c->state, VB_DOING_IDLE);
	if (!c->u->run.thread.measuring)
		return;
	tally->skipped += n;
	tally->txns.died++;
}

/*
 * 0: it has all its locks; else it has none, and this is why.  When the first lease of those that
 * it has is over it cannot commit any more, and would only make others wait: -VB_ELOST.
 */
static int take_all(struct vb_bench_client *c, const struct vb_trace_txn *txn)
{
	uint64_t now_ns = vb_sched_now(c->lock->ep->sched), first_end_ns = VB_FOREVER_NS;
	uint64_t timeout_ns = c->u->plan->o.timeout_ns, busy_ns = txn->think_ns;

	/* With some locks in hand it may come upon a table that is being scanned. */
	if (busy_ns < c->u->plan->o.scan_ns && txn->n > 1)
		busy_ns = c->u->plan->o.scan_ns;
	for (unsigned i = 0; i < txn->n; i++) {
		uint64_t wait_ns = timeout_ns;
		int err = 0;

		if (first_end_ns != VB_FOREVER_NS) {
			uint64_t at_ns = vb_lock_now(c->lock);

			if (at_ns >= first_end_ns)
				err = -VB_ELOST;
			else if (timeout_ns == 0 || first_end_ns - at_ns < timeout_ns)
				wait_ns = first_end_ns - at_ns;
		}
		if (err == 0)
			err = vb_bench_acquire(c, txn->lock[i].lock, txn->lock[i].mode, busy_ns,
					       wait_ns, &c->held[i], &now_ns);
		if (err) {
			give_back(c, i);
			return err == -ETIMEDOUT && wait_ns != timeout_ns ? -VB_ELOST : err;
		}
		if (c->held[i].valid_until_ns < first_end_ns)
			first_end_ns = c->held[i].valid_until_ns;
	}
	return 0;
}

/* A transaction whose lock may be somebody else's by now must not commit. */
static bool all_valid(const struct vb_bench_client *c, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (!vb_lock_valid(c->lock, &c->held[i]))
			return false;
	return true;
}

/* 0: done, or left as if its client had died; -VB_ELOST: a lease was over; or why a lock was not
 * got. */
static int attempt(struct vb_bench_client *c, const struct vb_trace_txn *txn, uint64_t began_ns,
		   bool dies)
{
	struct vb_bench_tally *tally = c->u->tally;
	struct vb_sched *s = c->lock->ep->sched;
	uint64_t committed_ns;
	unsigned released;
	int err = take_all(c, txn);

	if (err)
		return err;
	err = use_data(c, txn, false);
	if (txn->think_ns != 0)
		vb_task_sleep_until(vb_sched_now(s) + txn->think_ns);
	if (err == 0)
		err = use_data(c, txn, true);
	if (dies) {
		abandon(c, txn->n);
		return 0;
	}
	if (err != 0 || !all_valid(c, txn->n)) {
		give_back(c, txn->n);
		return err != 0 ? err : -VB_ELOST;
	}
	committed_ns = vb_sched_now(s);
	released = give_back(c, txn->n);
	if (!c->u->run.thread.measuring)
		return 0;
	vb_hist_record(&tally->txn[txn->type], committed_ns - began_ns);
	tally->txns.committed++;
	tally->txns.locks += txn->n;
	tally->ops += released;
	return 0;
}

static enum vb_bench_abort cause_of(int err)
{
	switch (err) {
	case -ETIMEDOUT:
		return VB_ABORT_TIMEOUT;
	case -VB_ELOST:
		return VB_ABORT_EXPIRED;
	case -EAGAIN:
	case -EDEADLK:
		return VB_ABORT_CONFLICT;
	default:
		return VB_ABORT_ERROR;
	}
}

static int transaction(struct vb_bench_client *c)
{
	const struct vb_bench_opts *o = &c->u->plan->o;
	struct vb_bench_txns *tally = &c->u->tally->txns;
	uint64_t began_ns = vb_sched_now(c->lock->ep->sched);
	struct vb_backoff backoff = {.base_ns = o->backoff_ns, .cap_ns = BACKOFF_CAP_NS};
	struct vb_trace_txn *txn = vb_trace_next(&c->trace);
	/* From the trace's own stream: who dies is the same under every protocol. */
	bool dies = o->fail_rate > 0 && vb_rng_chance(&c->trace.rng, o->fail_rate);

	if (o->order == VB_BENCH_SORTED)
		vb_trace_sort(txn);
	vb_lock_client_begin(c->lock, 0);
	for (uint64_t tries = 1;; tries++) {
		int err = attempt(c, txn, began_ns, dies);
		enum vb_bench_abort cause = cause_of(err);

		/* Who was turned down is older when it comes back, and need not be for ever. */
		vb_lock_client_begin(c->lock, vb_lock_client_age(c->lock));
		if (err == 0 || err == -ECANCELED)
			return err;
		if (c->u->run.thread.measuring)
			tally->aborts[cause]++;
		if (tries > o->retries || cause == VB_ABORT_ERROR || c->u->run.thread.drain) {
			if (c->u->run.thread.measuring)
				tally->given_up++;
			return cause == VB_ABORT_ERROR ? err : 0;
		}
		/* It moves, though nothing is done: others may have waited for what it gave
		 * back. */
		__atomic_store_n(&c->state->common.cycles, c->state->common.cycles + 1,
				 __ATOMIC_RELAXED);
		if (vb_backoff_wait(c->lock, &backoff, VB_FOREVER) != 0)
			return -ECANCELED;
	}
}

const struct vb_bench_tracing vb_bench_tracing = {
	.open = tracing_open,
	.close = tracing_close,
	.transaction = transaction,
};
