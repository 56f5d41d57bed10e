/* SPDX-License-Identifier: Apache-2.0 */
/* What the coordinators do. */
#include <inttypes.h>

#include "check/txn/world.h"

#define TRIES_MAX    400u /* of one transaction, in the liveness phase */
#define TRIES_BEYOND 1u   /* ... where it may never succeed */
#define TXN_KEYS_MAX 16u  /* of one transaction, where all of them are declared */

#define PAUSE_NS      2000ull /* between tries, until the faults end: twice as much each time */
#define PAUSE_DOUBLES 7u

/* ---- bodies: 0 to commit, -EAGAIN, or what the call said ---- */

static int read_account(struct txn_slot *s, uint64_t key, int64_t *money)
{
	const void *record;
	int err = vb_txn_get(s->me, s->w->account, key, &record);

	if (err == 0)
		*money = txn_money_in(s, "account", key, record);
	return err;
}

static int change_account(struct txn_slot *s, uint64_t key, int64_t by)
{
	void *record;
	int err = vb_txn_update(s->me, s->w->account, key, &record);

	if (err == 0)
		txn_record_fill(s->w, record, txn_money_in(s, "account", key, record) + by);
	return err;
}

static int audit(struct txn_slot *s, int64_t *total)
{
	int err = 0;

	*total = 0;
	for (uint64_t k = 0; k < s->w->d->accounts && err == 0; k++) {
		int64_t money;

		err = read_account(s, k, &money);
		if (err == 0)
			*total += money;
	}
	return err;
}

struct plan {
	enum { TRANSFER, AUDIT, NOTE, BLIND, WIDE, CALLS, SCANS } what;
	uint64_t key[4];
	unsigned n;
	bool declare, abort;
	struct vb_txn_params params;
	int64_t total;
	const char *name;
};

/* All that the body may touch, of which it cannot say beforehand what. */
static int declare_all(struct txn_slot *s, const struct plan *p)
{
	const struct txn_world *w = s->w;
	struct vb_txn_key keys[TXN_KEYS_MAX];
	unsigned n = p->what == AUDIT ? w->d->accounts : p->what == CALLS ? w->d->notes : p->n;
	bool note = p->what == NOTE || p->what == BLIND || p->what == CALLS;

	vb_assert(n <= TXN_KEYS_MAX);
	for (unsigned i = 0; i < n; i++)
		keys[i] = (struct vb_txn_key){
			.table = note ? w->note : w->account,
			.key = p->what == AUDIT || p->what == CALLS ? i : p->key[i],
			.write = p->what != AUDIT,
		};
	return vb_txn_declare(s->me, keys, n);
}

static int declare(struct txn_slot *s, const struct plan *p)
{
	struct vb_txn_key keys[4];

	for (unsigned i = 0; i < p->n; i++)
		keys[i] = (struct vb_txn_key){
			.table = p->what == NOTE || p->what == BLIND ? s->w->note : s->w->account,
			.key = p->key[i],
			.write = p->what != WIDE || i == 0,
		};
	return vb_txn_declare(s->me, keys, p->n);
}

/* From the first to the others. */
static int transfer(struct txn_slot *s, const struct plan *p)
{
	int err = change_account(s, p->key[0], -(int64_t)(p->n - 1));

	for (unsigned i = 1; i < p->n && err == 0; i++)
		err = change_account(s, p->key[i], 1);
	return err;
}

/* Reads several, writes one or two of them by what it has read. */
static int wide(struct txn_slot *s, const struct plan *p)
{
	unsigned richest = 0;
	int64_t most = INT64_MIN, money;
	int err = 0;

	for (unsigned i = 0; i < p->n && err == 0; i++) {
		err = read_account(s, p->key[i], &money);
		if (err == 0 && money > most) {
			most = money;
			richest = i;
		}
	}
	if (err == 0 && richest != 0)
		err = change_account(s, p->key[richest], -1);
	if (err == 0 && richest != 0)
		err = change_account(s, p->key[0], 1);
	return err;
}

/* What was read may have changed by the next call: then it finds what it did not expect. */
static int unless_weak(const struct txn_slot *s, int err)
{
	return s->me->txn.isolation != VB_SERIALIZABLE && (err == -ENOENT || err == -EEXIST) ? 0
											     : err;
}

/* There if it was not, gone if it was. */
static int toggle(struct txn_slot *s, uint64_t key)
{
	unsigned char record[256];
	const void *now;
	int err = vb_txn_get(s->me, s->w->note, key, &now);

	if (err == 0) {
		txn_money_in(s, "note", key, now);
		return unless_weak(s, vb_txn_delete(s->me, s->w->note, key));
	}
	if (err != -ENOENT)
		return err;
	txn_record_fill(s->w, record, (int64_t)vb_rng_below(&s->rng, 1u << 20));
	return unless_weak(s, vb_txn_insert(s->me, s->w->note, key, record));
}

static int blind(struct txn_slot *s, const struct plan *p)
{
	unsigned char record[256];
	int err = 0;

	for (unsigned i = 0; i < p->n && err == 0; i++) {
		txn_record_fill(s->w, record, (int64_t)vb_rng_below(&s->rng, 1u << 20));
		err = vb_txn_write(s->me, s->w->note, p->key[i], record);
		if (err == -ENOENT)
			err = 0;
	}
	return err;
}

static int body(struct txn_slot *s, struct plan *p)
{
	bool all = vb_cc_sequenced(s->w->cc);
	int err = all ? declare_all(s, p) : p->declare ? declare(s, p) : 0;

	if (err)
		return err;
	switch (p->what) {
	case TRANSFER:
		return transfer(s, p);
	case AUDIT:
		return audit(s, &p->total);
	case NOTE:
		return toggle(s, p->key[0]);
	case BLIND:
		return blind(s, p);
	case CALLS:
		return txn_random_calls(s);
	case SCANS:
		return txn_scans(s);
	case WIDE:
		break;
	}
	return wide(s, p);
}

/* ---- one transaction ---- */

static void draw_keys(struct txn_slot *s, struct plan *p, unsigned n, unsigned of)
{
	p->n = n < of ? n : of;
	for (unsigned i = 0; i < p->n; i++) {
		bool again;

		do {
			again = false;
			p->key[i] = vb_rng_below(&s->rng, of);
			for (unsigned k = 0; k < i; k++)
				again |= p->key[k] == p->key[i];
		} while (again);
	}
}

/* Of the plan only that of an audit is no writer's. */
static void draw_params(struct txn_slot *s, struct plan *p)
{
	const struct vb_txn_draw *d = s->w->d;
	const double at_snapshot = p->what == AUDIT ? d->p_snapshot : d->p_skew;

	if (d->p_weak > 0 && vb_rng_chance(&s->ways, d->p_weak))
		p->params.isolation =
			vb_rng_chance(&s->ways, 0.5) ? VB_REPEATABLE_READ : VB_READ_COMMITTED;
	if (at_snapshot > 0 && vb_rng_chance(&s->ways, at_snapshot))
		p->params.isolation = VB_SNAPSHOT;
	if (d->p_hurry > 0 && vb_rng_chance(&s->ways, d->p_hurry))
		p->params.timeout_ns = 1 + vb_rng_below(&s->ways, d->lease_ns);
	p->params.read_only = p->what == AUDIT;
}

static void draw_plan(struct txn_slot *s, struct plan *p)
{
	const struct vb_txn_draw *d = s->w->d;
	double what = vb_rng_unit(&s->rng);

	if (d->p_scan > 0 && vb_rng_chance(&s->ways, d->p_scan)) {
		*p = (struct plan){.what = SCANS, .name = "scan"};
		return;
	}
	if (vb_rng_chance(&s->rng, d->p_calls)) {
		*p = (struct plan){.what = CALLS, .name = "random calls"};
		return;
	}
	*p = (struct plan){.what = TRANSFER, .name = "transfer"};
	p->declare = vb_rng_chance(&s->rng, d->p_declare);
	p->abort = vb_rng_chance(&s->rng, d->p_abort);
	if (what < d->p_audit) {
		*p = (struct plan){.what = AUDIT, .name = "audit"};
	} else if ((what -= d->p_audit) < d->p_note) {
		p->what = NOTE;
		p->name = "note";
		draw_keys(s, p, 1, d->notes);
	} else if ((what -= d->p_note) < d->p_blind) {
		p->what = BLIND;
		p->name = "blind write";
		draw_keys(s, p, 1 + (unsigned)vb_rng_below(&s->rng, 2), d->notes);
	} else if ((what -= d->p_blind) < d->p_wide) {
		p->what = WIDE;
		p->name = "wide";
		draw_keys(s, p, 4, d->accounts);
	} else {
		draw_keys(s, p, 2 + (unsigned)vb_rng_below(&s->rng, 2), d->accounts);
	}
}

void txn_stay_alive(const struct txn_slot *s)
{
	if (vb_sim_ep_dead(s->me->ep))
		vb_task_die();
}

/* For longer than a lease, perhaps: then others have it, and it must not have happened. */
static void think_slowly(struct txn_slot *s)
{
	const struct txn_world *w = s->w;

	if (w->d->p_slow == 0 || w->live || !vb_rng_chance(&s->goings, w->d->p_slow))
		return;
	vb_ep_sleep(s->me->ep, vb_rng_below(&s->goings, w->d->slow_ns));
	txn_stay_alive(s);
}

/* Until its lease is nearly over. */
static void think_to_the_edge(struct txn_slot *s)
{
	const struct txn_world *w = s->w;
	uint64_t lease = w->d->lease_ns, gone = vb_sched_now(w->sched) - s->begin_ns;
	uint64_t until = lease / 2 + vb_rng_below(&s->goings, lease / 2);

	if (gone < until)
		vb_ep_sleep(s->me->ep, until - gone);
	txn_stay_alive(s);
}

static int try_once(struct txn_slot *s, struct plan *p)
{
	const struct txn_world *w = s->w;
	int err;

	s->begin_ns = vb_sched_now(s->w->sched);
	err = vb_txn_begin_with(s->me, &p->params);
	txn_stay_alive(s);
	if (err)
		return err;
	s->me->type = (uint8_t)p->what;
	s->modelled = false;
	s->n_gone_through = 0;
	err = body(s, p);
	txn_stay_alive(s);
	if (err == 0 && s->w->d->think_max_ns != 0) {
		vb_ep_sleep(s->me->ep, vb_rng_below(&s->rng, s->w->d->think_max_ns));
		txn_stay_alive(s);
	}
	if (err == 0)
		think_slowly(s);
	s->on_edge =
		err == 0 && w->d->p_edge > 0 && !w->live && vb_rng_chance(&s->goings, w->d->p_edge);
	if (s->on_edge)
		think_to_the_edge(s);
	if (err != 0 || p->abort) {
		vb_txn_abort(s->me);
		txn_stay_alive(s);
		return err;
	}
	err = vb_txn_commit(s->me);
	txn_stay_alive(s);
	if (vb_txn_cause(s->me) == VB_TXN_REFUSED) {
		txn_found(s->w, VB_TXN_RULE_REFUSED,
			  "coordinator %u: the commit of a %s was refused: what it has is not what "
			  "may be written",
			  s->index, p->name);
		return 0;
	}
	if (err == 0 && p->what == AUDIT && p->params.isolation != VB_READ_COMMITTED &&
	    p->total != (int64_t)s->w->d->accounts * TXN_MONEY)
		txn_found(s->w, VB_TXN_RULE_MONEY,
			  "coordinator %u committed an audit that found %" PRId64 ", not %" PRId64,
			  s->index, p->total, (int64_t)s->w->d->accounts * TXN_MONEY);
	return err;
}

/*
 * Who recovers a transaction has seen it twice at the same, a lease and two bounds apart.  Where nothing is
 * wrong, one that was at its end before that was not to be taken for dead; nor for the one that it is the
 * next try of, if that was not late either.
 */
static void note_time(struct txn_slot *s)
{
	struct txn_world *w = s->w;
	uint64_t ns = vb_sched_now(w->sched) - s->begin_ns;
	bool late = ns > txn_patience(w);

	if (ns > w->longest_ns)
		w->longest_ns = ns;
	if (w->live && s->safe)
		txn_beyond_took(s, ns);
	if (w->d->calm && vb_txn_cause(s->me) == VB_TXN_RECOVERED && !late && !s->was_late)
		txn_found(
			w, VB_TXN_RULE_NEEDLESS,
			"nothing was wrong, and a transaction of coordinator %u was rolled back by "
			"others before %" PRIu64 " ns were over",
			s->index, ns);
	s->was_late = late;
}

bool txn_may_fail(const struct txn_slot *s, int err)
{
	if (err == -ENOSPC)
		return s->w->d->scarce;
	if (err == -ECANCELED)
		return txn_cancelled();
	if (err == -EOVERFLOW)
		return s->w->d->time_left != 0;
	if (err == -VB_ELOST)
		return s->w->d->forgotten || s->w->d->too_late != 0;
	return !s->w->d->calm && (err == -VB_EUNKNOWN || err == -VB_EPEERGONE);
}

/* Whose deadline has passed tries again without one; nobody is told so before. */
static int in_its_time(struct txn_slot *s, struct plan *p, int err)
{
	uint64_t gone = vb_sched_now(s->w->sched) - s->begin_ns;
	uint64_t drift = gone / 1000000 * s->w->d->drift_ppm + 1000;

	if (err != -ETIMEDOUT || p->params.timeout_ns == 0)
		return err;
	if (gone + drift < p->params.timeout_ns)
		txn_found(s->w, VB_TXN_RULE_WRONG_ERROR,
			  "coordinator %u: a %s was told after %" PRIu64 " ns that its %" PRIu64
			  " ns were over",
			  s->index, p->name, gone, p->params.timeout_ns);
	p->params.timeout_ns = 0;
	return -EAGAIN;
}

/* Before the faults end, nobody waits until there are places again. */
static int if_scarce(struct txn_slot *s, const struct plan *p, int err)
{
	if (err != -ENOSPC || p->what != SCANS || !s->w->d->scarce)
		return err;
	vb_ep_sleep(s->me->ep, s->w->db->store.grace_ns / 8);
	txn_stay_alive(s);
	return s->w->live ? -EAGAIN : err;
}

/* As vb_txn_run; while faults are on, who is back sooner meets more. */
static void pause_before(struct txn_slot *s, unsigned tries, uint64_t spent_ns)
{
	uint64_t most = s->w->live ? vb_txn_pause_most(tries, spent_ns)
				   : PAUSE_NS << (tries < PAUSE_DOUBLES ? tries : PAUSE_DOUBLES);

	vb_ep_sleep(s->me->ep, vb_rng_below(&s->rng, most));
}

int txn_attempt(struct txn_slot *s)
{
	unsigned most = txn_is_beyond(s->w) ? TRIES_BEYOND : TRIES_MAX;
	struct plan p;
	uint64_t spent = 0;
	int err = -EAGAIN;

	draw_plan(s, &p);
	draw_params(s, &p);
	s->doing = p.name;
	for (unsigned tries = 0; err == -EAGAIN && tries < most && s->w->err == 0; tries++) {
		if (txn_cancelled())
			break;
		if (tries > 0)
			pause_before(s, tries, spent);
		txn_stay_alive(s);
		err = try_once(s, &p);
		spent += vb_sched_now(s->w->sched) - s->begin_ns;
		note_time(s);
		err = in_its_time(s, &p, err);
		err = if_scarce(s, &p, err);
		/* Who is still at it when the faults end begins anew. */
		if (s->w->live && !s->safe)
			break;
	}
	s->doing = NULL;
	if (err == 0)
		return 0;
	if (err == -EAGAIN || txn_may_fail(s, err))
		return err;
	txn_wrong(s, p.name, err);
	return err;
}
