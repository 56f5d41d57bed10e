/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The history of an exploration, and what is said of it in the end, when nothing moves any more.
 */
#define VB_LOG_ROOM "check"
#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "check/txn/gather.h"
#include "check/txn/world.h"

/* ---- the history ---- */

static void gather(const struct txn_world *w, const struct vb_txn *t,
		   enum vb_history_outcome outcome, struct txn_pending *p)
{
	const struct vb_coordinator *me = t->me;
	unsigned n = vb_history_gather(t, p->op, TXN_OPS_MAX);

	for (unsigned i = 0; i < n; i++) {
		struct vb_history_op *op = &p->op[i];
		const struct vb_table *table = w->db->store.table[op->table];

		if (op->kind == VB_HISTORY_READ)
			op->version = txn_place_means(w, table, op->key, op->version);
		else
			op->prev = txn_place_means(w, table, op->key, op->prev);
	}
	n = txn_scans_gather(&w->slot[me->index], t, p->op, n, TXN_OPS_MAX);
	p->number = t->version;
	p->txn = (struct vb_history_txn){
		.begin_ns = w->slot[me->index].begin_ns,
		.n_ops = n,
		.client = (uint16_t)me->index,
		.type = me->type,
		.outcome = (uint8_t)outcome,
		.level = (uint8_t)vb_history_gather_level(t),
	};
}

/* No record ever has such a version: 46 bits of the clock are years. */
#define NEVER_WRITTEN (1ull << 63)

/* The logical time of what has aborted is in no record, and a later transaction may commit at it:
 * so it gets a number of its own. */
static void number_aborted(const struct txn_world *w, struct txn_pending *p)
{
	p->txn.outcome = VB_HISTORY_ABORTED;
	for (unsigned i = 0; i < p->txn.n_ops && w->cc->caps & VB_CC_LOGICAL; i++)
		if (p->op[i].kind == VB_HISTORY_WRITE)
			p->op[i].version = NEVER_WRITTEN | p->number |
					   (p->op[i].absent ? VB_VERSION_ABSENT : 0);
}

static void add(struct txn_world *w, struct txn_pending *p)
{
	p->there = false;
	p->txn.id = ++w->next_id;
	p->txn.end_ns = vb_sched_now(w->sched);
	if (!vb_history_add(w->history, &p->txn, p->op) && w->err == 0)
		w->err = vb_fail(-ENOSPC, "the history of a seed is full");
}

static void on_prepared(void *ctx, const struct vb_txn *t)
{
	struct txn_world *w = ctx;
	struct txn_slot *s = &w->slot[t->me->index];

	txn_calls_prepared(s, t);
	txn_words_note(w, t);
	gather(w, t, VB_HISTORY_UNKNOWN, &s->pending);
	s->pending.there = true;
	s->pending.happened = false;
	s->pending.ts = t->ts;
	s->pending.place = vb_txn_lane(t->me)->place;
	txn_home_prepared(s);
}

/* Who thought for nearly all of its lease, and committed, stands still before it writes: others have
 * met what it holds for so long that they recover it at once when they may. */
static void on_passed(void *ctx, const struct vb_txn *t)
{
	struct txn_world *w = ctx;
	struct txn_slot *s = &w->slot[t->me->index];

	txn_votes_judge(w, t);
	txn_logs_judge(w, t);
	if (!s->on_edge || w->live)
		return;
	vb_sim_ep_pause(s->me->ep, vb_sched_now(w->sched) + w->d->lease_ns +
					   vb_rng_below(&s->goings, 3 * w->d->lease_ns / 2));
}

static void on_ended(void *ctx, const struct vb_txn *t, bool committed)
{
	struct txn_world *w = ctx;
	struct txn_slot *s = &w->slot[t->me->index];

	s->wait.word = 0;
	w->keeps[vb_txn_lane(t->me)->place] |= t->kept;
	if (committed) {
		txn_logs_judge(w, t);
		s->pending.txn.outcome = VB_HISTORY_COMMITTED;
	} else {
		txn_words_note(w, t);
		gather(w, t, VB_HISTORY_ABORTED, &s->pending);
		number_aborted(w, &s->pending);
	}
	add(w, &s->pending);
}

static void on_unknown(void *ctx, const struct vb_txn *t)
{
	struct txn_world *w = ctx;
	struct txn_slot *s = &w->slot[t->me->index];

	/* What it holds is left to others if it turns out not to have happened. */
	w->keeps[vb_txn_lane(t->me)->place] = true;
	w->out->unknown_commits++;
	add(w, &s->pending);
}

/* Behind that the status word does not say it any more. */
static void on_given_up(void *ctx, uint32_t place, uint64_t status)
{
	struct txn_world *w = ctx;

	for (unsigned i = 0; i < w->n_last; i++)
		if (w->last[i].place == place && status == (w->last[i].ts | VB_TS_COMMITTED))
			w->last[i].happened = true;
}

void txn_watch_open(struct txn_world *w)
{
	w->watch = (struct vb_txn_watch){

		.ctx = w,
		.prepared = on_prepared,
		.passed = on_passed,
		.ended = on_ended,
		.unknown = on_unknown,
		.met = txn_waits_met,
		.left = txn_waits_left,
		.given_up = on_given_up,
		.placed = txn_placed,
		.voted = txn_voted,
	};
	w->db->watch = &w->watch;
}

void txn_keep_pending(struct txn_slot *s)
{
	if (s->pending.there)
		s->w->last[s->w->n_last++] = s->pending;
	s->pending.there = false;
}

void txn_settle_pending(struct txn_world *w)
{
	for (unsigned i = 0; i < w->n_last; i++) {
		struct txn_pending *p = &w->last[i];
		const uint64_t *status = vb_local(w->fabric, vb_db_place(w->db, p->place), 8);
		bool happened = p->happened || *status == (p->ts | VB_TS_COMMITTED);

		/* Else others have decided. */
		if (happened || !txn_place_is_gone(w, p->place))
			p->txn.outcome = VB_HISTORY_COMMITTED;
		if (!happened && !txn_place_is_gone(w, p->place))
			number_aborted(w, p);
		add(w, p);
	}
	w->n_last = 0;
}

/* ---- tuples at rest ---- */

static const unsigned char *tuple_of(struct txn_world *w, struct vb_table *t, uint64_t key)
{
	vb_addr at = vb_table_find(t, vb_table_node(t, key), key);

	return at != 0 ? vb_local(w->fabric, at, t->layout.bytes) : NULL;
}

static void look_for_locks(struct txn_world *w, struct vb_table *t, uint64_t keys,
			   const char *although)
{
	static const char *const what[] = {
		[VB_WORD_LOCK] = "is held by",
		[VB_WORD_READER] = "has a reader",
		[VB_WORD_WAITER] = "has a waiter",
	};
	struct vb_named_word named[VB_NAMED_WORDS_MAX];

	for (uint64_t k = 0; k < keys; k++) {
		const unsigned char *tuple = tuple_of(w, t, k);
		unsigned n = tuple != NULL ? vb_words_named(w->cc, tuple, named) : 0;

		for (unsigned i = 0; i < n; i++)
			txn_found(w, VB_TXN_RULE_LEAKED_LOCK,
				  "%s/%" PRIu64 " %s %#" PRIx64
				  " although nobody runs any more and %s",
				  t->name, k, what[named[i].kind], named[i].word, although);
	}
}

void txn_look_for_locks(struct txn_world *w, const char *although)
{
	look_for_locks(w, w->account, w->d->accounts, although);
	look_for_locks(w, w->note, w->d->notes, although);
	if (w->line == NULL)
		return;
	look_for_locks(w, w->line, TXN_LINE_KEYS, although);
	look_for_locks(w, w->line->ranges, TXN_LINE_KEYS, although);
}

/* The version that is in place, or was when the key lost its last one; 0: it never had a place. */
static uint64_t standing(struct txn_world *w, struct vb_table *t, uint64_t k)
{
	const unsigned char *tuple = tuple_of(w, t, k);
	uint64_t last = txn_place_last(w, t, k);

	if (tuple == NULL)
		return last != VB_VERSION_NONE ? last : 0;
	return txn_place_means(
		w, t, k, vb_slot_version(&t->layout, tuple, vb_tuple_newest(&t->layout, tuple)));
}

/* Is the version that is in place one that nobody has replaced? */
static void look_for_losses(struct txn_world *w, struct vb_table *t, uint64_t keys)
{
	for (uint64_t k = 0; k < keys; k++) {
		const struct vb_history_txn *h;
		const struct vb_history_op *op;
		uint64_t version = standing(w, t, k), at = 0;

		if (version == 0)
			continue;
		while (vb_history_next(w->history, &at, &h, &op)) {
			if (h->outcome != VB_HISTORY_COMMITTED)
				continue;
			for (unsigned i = 0; i < h->n_ops; i++)
				if (op[i].kind == VB_HISTORY_WRITE && op[i].table == t->id &&
				    op[i].key == k && op[i].prev == version)
					txn_found(w, VB_TXN_RULE_LOST_WRITE,
						  "%s/%" PRIu64 " stands at version %" PRIu64
						  ", but T%" PRIu64 " committed %" PRIu64
						  " in its place",
						  t->name, k, version, h->id, op[i].version);
		}
	}
}

static void count_money(struct txn_world *w)
{
	int64_t total = 0;

	for (uint64_t k = 0; k < w->d->accounts; k++) {
		const unsigned char *tuple = tuple_of(w, w->account, k);
		const struct vb_tuple_layout *l = &w->account->layout;
		int64_t money;

		memcpy(&money, tuple + l->record_at + vb_slot_behind(l, vb_tuple_newest(l, tuple)),
		       8);
		total += money;
	}
	if (total != (int64_t)w->d->accounts * TXN_MONEY)
		txn_found(w, VB_TXN_RULE_MONEY, "the accounts hold %" PRId64 ", not %" PRId64,
			  total, (int64_t)w->d->accounts * TXN_MONEY);
}

static void check_history(struct txn_world *w)
{
	static const char *const tables[] = {"account", "note", "line", "line.ranges"};
	static const char *const types[] = {"transfer", "audit",        "note", "blind write",
					    "wide",     "random calls", "scan"};
	const struct vb_history *parts[] = {w->history};
	const struct vb_serial_params p = {
		.parts = parts,
		.n_parts = 1,
		.level = txn_level(w),
		.each = true,
		.table_names = tables,
		.n_tables = VB_ARRAY_SIZE(tables),
		.type_names = types,
		.n_types = VB_ARRAY_SIZE(types),
	};
	struct vb_serial_result r;
	char said[512] = "";
	int err;

	vb_log_capture_begin(said, sizeof(said));
	err = vb_serial_check(&p, &r);
	vb_log_capture_end();
	/* No history at all: two versions of one number, or one out of itself. */
	if (err == -EINVAL) {
		txn_found(w, VB_TXN_RULE_NOT_SERIALIZABLE, "%s", said);
		return;
	}
	if (err) {
		w->err = vb_fail(err, "%s", said);
		return;
	}
	if (r.first != VB_ANOMALY_NONE) {
		w->out->anomaly = r.first;
		txn_found(w, VB_TXN_RULE_NOT_SERIALIZABLE, "%s\n%s", vb_anomaly_names[r.first],
			  r.story != NULL ? r.story : "");
	}
	vb_serial_result_free(&r);
}

/* Nobody died, stood still, lost an answer or took long: then nobody is taken for dead. */
static void look_for_recoveries(struct txn_world *w)
{
	const struct vb_txn_explored *out = w->out;

	w->out->orderly = w->d->calm && w->longest_ns <= txn_patience(w);
	if (out->orderly && out->recovered + out->rolled_forward != 0)
		txn_found(w, VB_TXN_RULE_NEEDLESS,
			  "nothing was wrong, and %" PRIu64 " locks were recovered, %" PRIu64
			  " records rolled forward",
			  out->recovered, out->rolled_forward);
}

void txn_judge(struct txn_world *w)
{
	look_for_recoveries(w);
	txn_words_judge(w);
	check_history(w);
	if (w->out->found[VB_TXN_RULE_STUCK] != 0)
		return; /* what is not at rest cannot be looked at */
	txn_look_for_locks(w, "the dead have been recovered");
	look_for_losses(w, w->account, w->d->accounts);
	look_for_losses(w, w->note, w->d->notes);
	if (w->line != NULL) {
		look_for_losses(w, w->line, TXN_LINE_KEYS);
		look_for_losses(w, w->line->ranges, TXN_LINE_KEYS);
	}
	count_money(w);
	txn_calls_judge(w);
	txn_beside_judge(w);
}
