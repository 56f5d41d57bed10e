/* SPDX-License-Identifier: Apache-2.0 */
/* What one client of `verbena bench txn` does, and the clients of one thread: the same on every
 * fabric. */
#define VB_LOG_ROOM "bench"
#include "lab/bench/txn/txn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"

/* In a row. */
#define TIMELESS_MOST 200000u

/* Before an aborted transaction is tried again: a random pause, of at most so long, doubled with
 * every further try. */
#define PAUSE_NS      1000ull
#define PAUSE_DOUBLES 8u

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static uint64_t tsc(void)
{
#if VB_CLOCK_COUNTER
	return vb_tsc_early();
#else
	return 0;
#endif
}

static uint64_t now_of(const struct vb_tbench_client *c)
{
	return vb_sched_now_early(c->me->ep->sched);
}

static void state_set(uint32_t *field, uint32_t value)
{
	__atomic_store_n(field, value, __ATOMIC_RELAXED);
}

/* A client has seen what cannot be: that ends the run. */
static void broken(struct vb_tbench_client *c)
{
	struct vb_tbench_tally *t = c->u->tally;

	if (t->why[0] == '\0')
		memcpy(t->why, c->load.why, sizeof(t->why));
	__atomic_store_n(&c->u->run.control->early, 1, __ATOMIC_RELEASE);
	c->u->run.thread.drain = true;
}

static void note_commit(struct vb_tbench_client *c, uint64_t first_ns, uint64_t now)
{
	struct vb_tbench_tally *t = c->u->tally;

	__atomic_store_n(&c->state->common.cycles, c->state->common.cycles + 1, __ATOMIC_RELAXED);
	if (c->u->run.thread.measuring) {
		t->commits[c->load.type]++;
		vb_hist_record(&t->lat[c->load.type], now - first_ns);
	}
	/* What a transaction has seen must fit together only if nobody may write it meanwhile. */
	if (c->u->plan->o.isolation != VB_SERIALIZABLE)
		return;
	if (c->u->load.ops->committed != NULL && c->u->load.ops->committed(&c->load) != 0)
		broken(c);
}

/* ---- the book (see struct vb_tbench_book) ---- */

static void book_open(struct vb_tbench_client *c)
{
	struct vb_tbench_book *b = &c->state->book;
	unsigned counts = b->state & 1;

	for (unsigned i = 0; i < VB_LOAD_CHANGES_MAX; i++)
		b->row[!counts][i] = b->row[counts][i] + c->load.change[i];
	b->ts = c->me->txn.ts;
	b->place = vb_txn_lane(c->me)->place;
	__atomic_store_n(&b->state, counts | VB_BOOK_OPEN, __ATOMIC_RELEASE);
}

static void book_close(struct vb_tbench_client *c, bool committed)
{
	struct vb_tbench_book *b = &c->state->book;
	unsigned counts = b->state & 1;

	__atomic_store_n(&b->state, committed ? !counts : counts, __ATOMIC_RELEASE);
}

/* From begin to commit or abort.  0, one of VB_LOAD_ROLLBACK, _ABSENT and _FULL, -EAGAIN, or the
 * error. */
static int attempt(struct vb_tbench_client *c)
{
	const struct vb_txn_params params = {
		.isolation = (enum vb_isolation)c->u->plan->o.isolation,
	};
	int err = vb_txn_begin_with(c->me, &params);

	if (err)
		return err;
	c->me->type = (uint8_t)c->load.type;
	err = c->u->load.ops->body(&c->load, c->me);
	if (vb_likely(err == 0 || err == VB_LOAD_ABSENT)) {
		int commit;

		book_open(c);
		commit = vb_txn_commit(c->me);
		book_close(c, commit == 0);
		return commit ? commit : err;
	}
	if (err != -EAGAIN)
		vb_txn_abort(c->me);
	if (err == VB_LOAD_FULL)
		__atomic_fetch_or(&c->u->run.control->full, VB_BENCH_FULL_TABLES, __ATOMIC_RELEASE);
	return err;
}

/* What the drawn transaction's keys depend on is read in one of its own. */
static VB_COLD int scout(struct vb_tbench_client *c)
{
	const struct vb_txn_params params = {
		.isolation = (enum vb_isolation)c->u->plan->o.isolation,
	};
	int err;

	do {
		err = vb_txn_begin_with(c->me, &params);
		if (err)
			return err;
		c->me->type = (uint8_t)c->load.type;
		err = c->u->load.ops->scout(&c->load, c->me);
		if (err == 0)
			err = vb_txn_commit(c->me);
		else if (err != -EAGAIN)
			vb_txn_abort(c->me);
	} while (err == -EAGAIN && !c->u->run.thread.drain &&
		 vb_task_sleep_until(now_of(c) + vb_txn_least_pause(c->me) +
				     vb_rng_below(&c->me->rng, PAUSE_NS << PAUSE_DOUBLES)) !=
			 -ECANCELED);
	return err;
}

/* The drawn transaction, until it commits or the run ends.  0, or what no further try would
 * better. */
static int one_txn(struct vb_tbench_client *c)
{
	struct vb_tbench_tally *t = c->u->tally;
	uint64_t first = now_of(c), begin = first, now;
	int err;

	c->state->common.since_ns = first;
	c->state->type = c->load.type;
	if (vb_unlikely(c->load.scouts)) {
		err = scout(c);
		if (err)
			return err;
	}
	for (uint32_t tries = 1;; tries++) {
		uint32_t doubles = tries < PAUSE_DOUBLES ? tries : PAUSE_DOUBLES;

		state_set(&c->state->tries, tries);
		err = attempt(c);
		now = now_of(c);
		if (c->u->run.thread.measuring) {
			t->attempts_ns += now - begin;
			t->useful_ns += err == 0 || err == VB_LOAD_ABSENT ? now - begin : 0;
		}
		if (err != -EAGAIN)
			break;
		state_set(&c->state->cause, vb_txn_cause(c->me));
		if (c->u->run.thread.drain ||
		    vb_task_sleep_until(now + vb_txn_least_pause(c->me) +
					vb_rng_below(&c->me->rng, PAUSE_NS << doubles)) ==
			    -ECANCELED)
			return -EAGAIN;
		begin = now_of(c);
	}
	if (err == 0)
		note_commit(c, first, now);
	else if ((err == VB_LOAD_ROLLBACK || err == VB_LOAD_ABSENT) && c->u->run.thread.measuring)
		t->rolled_back[c->load.type]++;
	return err > 0 ? 0 : err;
}

static void note_error(struct vb_tbench_client *c, int err)
{
	struct vb_tbench_tally *t = c->u->tally;

	if (err == -EBADMSG) {
		broken(c);
		return;
	}
	t->unknown += err == -VB_EUNKNOWN;
	t->errors++;
	t->last_error = err;
}

/*
 * On the simulator what a node does with its own records takes no virtual time.  Clients that do
 * nothing else would go on for ever without coming any nearer to the end of the run.
 */
static bool stands_still(struct vb_tbench_client *c)
{
	if (now_of(c) != c->state->common.since_ns) {
		c->timeless = 0;
		return false;
	}
	if (++c->timeless < TIMELESS_MOST ||
	    !((struct vb_sched_face *)c->me->ep->sched)->is_virtual)
		return false;
	if (!c->u->run.thread.drain)
		c->u->run.control->failed = vb_fail(
			-EINVAL,
			"client %u: %u transactions in a row took no virtual time, because they "
			"touch records of their own node only; let them reach others (--nodes, "
			"--span), or take --fabric-options scope=nic",
			c->body.index, TIMELESS_MOST);
	c->u->run.thread.drain = true;
	return true;
}

static void body(void *arg)
{
	struct vb_tbench_client *c = arg;
	struct vb_tbench_run *u = c->u;
	unsigned errors = 0;

	/* Not all at the very same moment. */
	if (vb_task_sleep_until(u->run.control->t0_ns + 17 * c->body.index) == -ECANCELED)
		goto out;
	while (!u->run.thread.drain && errors < VB_BENCH_ERRORS_IN_A_ROW) {
		int err;

		/* At once: what is begun still fits in the histories, and no more. */
		if (vb_unlikely(__atomic_load_n(&u->run.control->full, __ATOMIC_ACQUIRE))) {
			u->run.thread.drain = true;
			break;
		}
		u->load.ops->next(&c->load);
		err = one_txn(c);
		state_set(&c->state->tries, 0);
		errors = err == 0 || err == -EAGAIN ? 0 : errors + 1;
		if (errors != 0) {
			note_error(c, err);
			if (vb_task_sleep_until(now_of(c) + vb_bench_error_nap_ns(errors)) ==
			    -ECANCELED)
				break;
		}
		if (vb_unlikely(stands_still(c)))
			break;
		/* Verbs that complete inline never gave the thread's other clients a turn. */
		vb_task_yield();
	}
out:
	/* What a commit has posted without waiting wakes the task that posted it, which must be
	 * there. */
	for (unsigned i = 0; i < VB_PLACES_TXN; i++)
		vb_lane_settle(c->me, &c->me->lane[i]);
	vb_bench_client_left(&u->run, &c->body, &c->state->common);
}

/* ---- the clients of one thread ---- */

static int client_open(struct vb_bench_run *run, void *client, void *state)
{
	struct vb_tbench_run *u = (struct vb_tbench_run *)run;
	struct vb_tbench_client *c = client;
	const struct vb_tbench_opts *o = &u->plan->o;
	uint16_t node =
		(uint16_t)(o->elastic != NULL ? c->body.index % o->nodes
					      : c->body.index / (o->threads * o->coroutines));
	int err;

	c->u = u;
	c->state = state;
	err = vb_load_client_open(&u->load, node, c->body.index, &c->load);
	if (err == 0)
		err = vb_coordinator_open(u->db, node, &c->me);
	if (err) {
		vb_load_client_close(&c->load);
		return err;
	}
	c->me->index = c->body.index % (run->clients / run->workers);
	c->state->place = c->me->lane[0].place;
	return 0;
}

static void meter_one(const struct vb_coordinator *me, struct vb_tbench_meter *m)
{
	m->commits += me->commits;
	m->waits += me->waits;
	m->calls += me->calls;
	m->agents += me->agents;
	m->recovered += me->recovered + me->rolled_forward;
	m->lost_locks += me->lost_locks;
	for (unsigned i = 0; i < VB_TXN_CAUSES; i++)
		m->aborts[i] += me->aborts[i];
	for (unsigned i = 0; i < VB_OP_COUNT; i++)
		m->verbs[i] += me->ep->count[i];
	for (unsigned k = 0; k < VB_PLACES_EACH; k++) {
		m->near += me->lane[k].acc.near;
		for (unsigned i = 0; i < VB_PRIMS; i++)
			m->prims[i] += me->lane[k].acc.prims[i];
	}
	for (unsigned i = 0; i < VB_TIMED_MAX; i++) {
		m->timed[i].ns += me->timed[i].ns;
		m->timed[i].runs += me->timed[i].runs;
		m->timed[i].items += me->timed[i].items;
		m->timed[i].ended += me->timed[i].ended;
	}
}

static void meter_all(const struct vb_tbench_run *u, struct vb_tbench_meter *m)
{
	const struct vb_tbench_client *clients = u->run.thread.clients;

	memset(m, 0, sizeof(*m));
	for (unsigned i = 0; i < u->run.thread.n; i++)
		meter_one(clients[i].me, m);
}

static void flush(struct vb_bench_run *run)
{
	struct vb_tbench_run *u = (struct vb_tbench_run *)run;

	if (!u->run.thread.measuring)
		return;
	meter_all(u, &u->tally->spent);
	vb_bench_subtract(&u->tally->spent, &u->meter_start);
	u->tally->measured_ns = vb_sched_now_slow(vb_sched_self()) - u->start_ns;
	u->tally->cpu_ns = cpu_ns() - u->start_cpu_ns;
	u->tally->tsc = tsc() - u->start_tsc;
}

static void measure(struct vb_bench_run *run, bool on)
{
	struct vb_tbench_run *u = (struct vb_tbench_run *)run;

	if (!on) {
		flush(run);
		u->run.thread.measuring = false;
		return;
	}
	meter_all(u, &u->meter_start);
	u->start_ns = vb_sched_now_slow(vb_sched_self());
	u->start_cpu_ns = cpu_ns();
	u->start_tsc = tsc();
	u->run.thread.measuring = true;
}

static void client_close(void *client)
{
	struct vb_tbench_client *c = client;

	if (c->body.task == NULL) {
		vb_coordinator_close(c->me);
	} else {
		/* It waits for a process that is stopped or gone, and would keep the database open. */
		vb_task_kill(c->body.task);
		vb_coordinator_bury(c->me);
	}
	vb_load_client_close(&c->load);
}

const struct vb_bench_client_ops vb_tbench_client_ops = {
	.bytes = sizeof(struct vb_tbench_client),
	.state_bytes = sizeof(struct vb_tbench_state),
	.open = client_open,
	.close = client_close,
	.body = body,
	.measure = measure,
	.flush = flush,
};
