/* SPDX-License-Identifier: Apache-2.0 */
/* What one client does, and the clients of one thread: the same on every fabric. */
#define VB_LOG_ROOM "bench"
#include "lab/bench/lock/lock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* Longest sleep before the client looks again whether the run is over. */
#define NAP_NS 20000000ull

static uint16_t node_of(const struct vb_bench_plan *plan, unsigned client)
{
	uint64_t nodes = plan->o.nodes;
	uint64_t with = plan->o.elastic == NULL ? vb_bench_with_clients(nodes, plan->o.servers)
						: nodes; /* which are homes, all of them */

	return (uint16_t)(nodes - with + client % with);
}

void vb_bench_doing_set(struct vb_bench_lock_state *state, enum vb_bench_doing doing)
{
	__atomic_store_n(&state->doing, doing, __ATOMIC_RELAXED);
}

/* false: the run is over. */
static bool nap_until(struct vb_bench_client *c, uint64_t at_ns)
{
	struct vb_sched *s = c->lock->ep->sched;

	while (!c->u->run.thread.drain) {
		uint64_t now = vb_sched_now_early(s);

		if (now >= at_ns)
			return true;
		if (vb_task_sleep_until(at_ns - now > NAP_NS ? now + NAP_NS : at_ns) != 0)
			return false;
	}
	return false;
}

static void record(struct vb_bench_client *c, enum vb_bench_lat which, uint64_t ns)
{
	if (c->u->run.thread.measuring)
		vb_hist_record(&c->u->tally->lat[which], ns);
}

/* Whether this cycle's phases are timed.  On a real clock that costs some reads of it, so only some
 * cycles pay; in virtual time it is free. */
static void choose_timing(struct vb_bench_client *c)
{
	unsigned every = c->u->sample_every;

	c->lock->timing = every != 0 && c->state->common.cycles % every == 0 ? &c->timing : NULL;
}

/* As a latency's name says: reads, and what is only meant to be read further down. */
static bool is_shared(enum vb_mode mode)
{
	return mode == VB_SHARED || mode == VB_INTENT_SHARED;
}

/* One lease for what is done in half of it; else the time of the work, and a lease for the rest:
 * for taking the other locks, and giving all back. */
static uint64_t hold_ns(const struct vb_bench_client *c, enum vb_mode mode, uint64_t busy_ns)
{
	uint64_t lease = c->lock->space->lease_ns, most = vb_lock_hold_max_ns(c->lock, mode);
	uint64_t ns = busy_ns > lease / 2 ? busy_ns + lease : busy_ns;

	return ns < most ? ns : most;
}

int vb_bench_acquire(struct vb_bench_client *c, uint64_t lock, enum vb_mode mode, uint64_t busy_ns,
		     uint64_t timeout_ns, struct vb_grant *grant, uint64_t *now_ns)
{
	uint64_t start_ns = *now_ns;
	int err;

	c->state->lock = lock;
	c->state->mode = mode;
	c->state->common.since_ns = start_ns;
	vb_bench_doing_set(c->state, VB_DOING_ACQUIRE);
	err = vb_lock_acquire_for(c->lock, lock, mode, hold_ns(c, mode, busy_ns),
				  timeout_ns ? timeout_ns : VB_FOREVER_NS, grant);
	*now_ns = vb_sched_now_early(c->lock->ep->sched);
	if (vb_unlikely(err != 0)) {
		vb_bench_doing_set(c->state, VB_DOING_IDLE);
		c->u->tally->uncertain += err == -VB_EUNKNOWN;
		if (c->u->run.thread.measuring)
			c->u->tally->failed++;
		return err;
	}
	vb_bench_doing_set(c->state, VB_DOING_HOLD);
	record(c, is_shared(mode) ? VB_LAT_ACQ_S : VB_LAT_ACQ_X, *now_ns - start_ns);
	return 0;
}

/* n locks have been given back by one call, which came to err. */
static void note_release(struct vb_bench_client *c, unsigned n, uint64_t took_ns, int err)
{
	struct vb_bench_tally *tally = c->u->tally;

	vb_bench_doing_set(c->state, VB_DOING_IDLE);
	record(c, VB_LAT_RELEASE, took_ns);
	tally->uncertain += err != 0 && err != -VB_ELOST ? n : 0;
}

int vb_bench_release(struct vb_bench_client *c, struct vb_grant *grant, uint64_t *now_ns)
{
	uint64_t start_ns = *now_ns;
	int err;

	vb_bench_doing_set(c->state, VB_DOING_RELEASE);
	err = vb_lock_release(c->lock, grant);
	*now_ns = vb_sched_now_early(c->lock->ep->sched);
	note_release(c, 1, *now_ns - start_ns, err);
	return err;
}

int vb_bench_release_all(struct vb_bench_client *c, struct vb_grant *grants, unsigned n,
			 uint64_t *now_ns)
{
	uint64_t start_ns = *now_ns;
	int err;

	vb_bench_doing_set(c->state, VB_DOING_RELEASE);
	err = vb_lock_release_all(c->lock, grants, n);
	*now_ns = vb_sched_now_early(c->lock->ep->sched);
	note_release(c, n, *now_ns - start_ns, err);
	return err;
}

/* 0; -ECANCELED: leave; else the acquire's error. */
static int one_cycle(struct vb_bench_client *c, uint64_t intended_ns)
{
	const struct vb_bench_opts *o = &c->u->plan->o;
	struct vb_sched *s = c->lock->ep->sched;
	struct vb_bench_tally *tally = c->u->tally;
	uint64_t now_ns = vb_sched_now_early(s);
	struct vb_micro_op op;
	struct vb_grant grant;
	int err;

	vb_micro_next(&c->micro, &op);
	err = vb_bench_acquire(c, op.lock, op.mode, o->hold_ns, o->timeout_ns, &grant, &now_ns);
	if (vb_unlikely(err != 0))
		return err;
	if (intended_ns != 0)
		record(c, op.mode == VB_SHARED ? VB_LAT_RESPONSE_S : VB_LAT_RESPONSE_X,
		       now_ns - intended_ns);
	if (o->hold_ns != 0) {
		vb_task_sleep_until(now_ns + o->hold_ns);
		now_ns = vb_sched_now_early(s);
	}
	if (vb_unlikely(op.skip_release)) {
		vb_lock_abandon(c->lock, &grant);
		vb_bench_doing_set(c->state, VB_DOING_IDLE);
		if (c->u->run.thread.measuring)
			tally->skipped++;
		return 0;
	}
	err = vb_bench_release(c, &grant, &now_ns);
	if (c->u->run.thread.measuring && err == 0)
		tally->ops++;
	return 0;
}

static void body(void *arg)
{
	struct vb_bench_client *c = arg;
	struct vb_bench_lock_run *u = c->u;
	const struct vb_bench_opts *o = &u->plan->o;
	struct vb_sched *s = c->lock->ep->sched;
	uint64_t pause_ns = u->tracing != NULL ? o->pause_ns : o->think_ns;
	unsigned errors = 0;

	if (u->tracing == NULL)
		vb_micro_client_init(&c->micro, &u->plan->micro, o->seed, c->body.index,
				     u->run.control->t0_ns);
	/* Not all at the very same moment. */
	if (!nap_until(c, u->run.control->t0_ns + 17 * c->body.index))
		goto out;
	while (!u->run.thread.drain && errors < VB_BENCH_ERRORS_IN_A_ROW) {
		uint64_t intended = 0;
		int err;

		if (o->rate != 0) {
			intended = vb_micro_arrival(&c->micro);
			if (!nap_until(c, intended))
				break;
		}
		choose_timing(c);
		err = u->tracing != NULL ? u->tracing->transaction(c) : one_cycle(c, intended);
		if (err == -ECANCELED)
			break;
		/* A deadlock policy that turns a client down is no error: it comes again. */
		errors = err == 0 || err == -ETIMEDOUT || err == -EAGAIN ? 0 : errors + 1;
		if (errors != 0) {
			u->tally->last_error = err;
			if (!nap_until(c, vb_sched_now_early(s) + vb_bench_error_nap_ns(errors)))
				break;
		}
		__atomic_store_n(&c->state->common.cycles, c->state->common.cycles + 1,
				 __ATOMIC_RELAXED);
		/* Verbs that complete inline never gave the thread's other clients a turn. */
		if (pause_ns == 0)
			vb_task_yield();
		else if (!nap_until(c, vb_sched_now_early(s) + pause_ns))
			break;
	}
out:
	vb_bench_client_left(&u->run, &c->body, &c->state->common);
}

static int client_open(struct vb_bench_run *run, void *client, void *state)
{
	struct vb_bench_lock_run *u = (struct vb_bench_lock_run *)run;
	struct vb_bench_client *c = client;
	int err;

	c->u = u;
	c->state = state;
	err = vb_lock_client_open(u->space, node_of(u->plan, c->body.index), &c->lock);
	if (err)
		return err;
	c->lock->index = c->body.index;
	err = u->tracing != NULL ? u->tracing->open(c) : 0;
	if (err)
		vb_lock_client_close(c->lock);
	return err;
}

static void meter_all(const struct vb_bench_lock_run *u, struct vb_bench_meter *out)
{
	const struct vb_bench_client *clients = u->run.thread.clients;

	memset(out, 0, sizeof(*out));
	for (unsigned i = 0; i < u->run.thread.n; i++) {
		const struct vb_lock_client *c = clients[i].lock;

		for (unsigned op = 0; op < VB_OP_COUNT; op++)
			out->verbs[op] += c->ep->count[op];
		out->retries += c->retries;
		out->lost += c->lost;
		out->recoveries += c->recoveries;
		out->untold += c->untold;
	}
}

static void flush(struct vb_bench_run *run)
{
	struct vb_bench_lock_run *u = (struct vb_bench_lock_run *)run;
	const struct vb_bench_client *clients = u->run.thread.clients;

	if (!u->run.thread.measuring)
		return;
	meter_all(u, &u->tally->spent);
	vb_bench_subtract(&u->tally->spent, &u->meter_start);
	u->tally->measured_ns = vb_sched_now_slow(vb_sched_self()) - u->measure_start_ns;
	u->tally->rtt_clients = u->run.thread.n;
	u->tally->rtt_ns = 0;
	for (unsigned i = 0; i < u->run.thread.n; i++)
		u->tally->rtt_ns += clients[i].lock->rtt_ns;
	if (u->run.thread.n > 0)
		u->tally->rtt_ns /= u->run.thread.n;
}

static void measure(struct vb_bench_run *run, bool on)
{
	struct vb_bench_lock_run *u = (struct vb_bench_lock_run *)run;
	struct vb_bench_client *clients = u->run.thread.clients;

	if (on) {
		meter_all(u, &u->meter_start);
		for (unsigned i = 0; i < u->run.thread.n; i++) {
			memset(clients[i].timing.ns, 0, sizeof(clients[i].timing.ns));
			memset(clients[i].timing.calls, 0, sizeof(clients[i].timing.calls));
		}
		u->measure_start_ns = vb_sched_now_slow(vb_sched_self());
		u->run.thread.measuring = true;
		return;
	}
	flush(run);
	u->run.thread.measuring = false;
	for (unsigned i = 0; i < u->run.thread.n; i++) {
		vb_bench_add(&u->tally->timing.calls, &clients[i].timing.calls);
		vb_bench_add(&u->tally->timing.ns, &clients[i].timing.ns);
	}
}

/* Nothing has moved for long, or somebody is gone. */
static void give_up(struct vb_bench_run *run)
{
	struct vb_bench_lock_run *u = (struct vb_bench_lock_run *)run;

	if (u->space != NULL) /* clients are here */
		u->space->proxy_wait_ns = 0;
}

static void client_close(void *client)
{
	struct vb_bench_client *c = client;

	if (c->u->tracing != NULL)
		c->u->tracing->close(c);
	c->lock->timing = NULL; /* it is ours */
	if (c->body.task == NULL) {
		vb_lock_client_close(c->lock);
		return;
	}
	/* The endpoint goes, the claims with it. */
	vb_task_kill(c->body.task);
	vb_lock_client_bury(c->lock);
}

static bool waits(const void *state)
{
	const struct vb_bench_lock_state *s = state;

	return __atomic_load_n(&s->doing, __ATOMIC_RELAXED) == VB_DOING_ACQUIRE;
}

const struct vb_bench_client_ops vb_bench_lock_client_ops = {
	.bytes = sizeof(struct vb_bench_client),
	.state_bytes = sizeof(struct vb_bench_lock_state),
	.open = client_open,
	.close = client_close,
	.body = body,
	.measure = measure,
	.flush = flush,
	.waits = waits,
	.give_up = give_up,
};
