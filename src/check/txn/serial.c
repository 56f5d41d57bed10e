/* SPDX-License-Identifier: Apache-2.0 */
/* The checker of isolation: see serial.h for what it finds, serial_inner.h for how it is
 * made. */
#define VB_LOG_ROOM "check"
#include "check/txn/serial_inner.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"

static void found(struct serial *s, enum vb_anomaly what, struct serial_sight sight)
{
	if (s->out->found[what]++ == 0)
		s->sight[what] = sight;
}

/* ---- what needs no graph ---- */

/* Which of its writer's own versions replaced this one, or NONE; such a one is the first. */
static uint32_t own_child(const struct serial *s, uint32_t version)
{
	const struct serial_version *v = &s->versions[version];
	const uint32_t c = v->child;

	return c != SERIAL_NONE && s->versions[c].writer == v->writer ? c : SERIAL_NONE;
}

/* Did its writer make the version as it was read: of a record, or of none?  Who writes a key again
 * may keep the number. */
static bool was_made_so(const struct serial *s, uint32_t version, const struct vb_history_op *read)
{
	const struct serial_version *v = &s->versions[version];
	const struct serial_txn *x = &s->txns[v->writer];

	for (uint32_t i = v->op - x->first; i < x->t->n_ops; i++) {
		const struct vb_history_op *op = &x->ops[i];

		if (op->kind == VB_HISTORY_WRITE && op->key == read->key &&
		    op->table == read->table && op->version == read->version &&
		    op->absent == read->absent)
			return true;
	}
	return false;
}

/* Who replaced a version has seen it, as much as who read it. */
static void judge_sights(struct serial *s, uint32_t txn)
{
	const struct serial_txn *x = &s->txns[txn];

	for (uint32_t i = 0; i < x->t->n_ops; i++) {
		struct serial_sight sight = {.txn = txn, .op = i, .version = s->saw[x->first + i]};
		const struct serial_version *v = &s->versions[sight.version];

		if (v->writer == txn)
			continue;
		if (v->writer == SERIAL_NONE) {
			if (v->number >= VB_HISTORY_FIRST)
				found(s, VB_ANOMALY_GHOST, sight);
			continue;
		}
		if (!s->txns[v->writer].counts) {
			found(s, VB_ANOMALY_G1A, sight);
			continue;
		}
		if (x->ops[i].kind != VB_HISTORY_READ)
			continue;
		if (!was_made_so(s, sight.version, &x->ops[i]))
			found(s, VB_ANOMALY_GHOST, sight);
		sight.other = own_child(s, sight.version);
		if (sight.other != SERIAL_NONE)
			found(s, VB_ANOMALY_G1B, sight);
	}
}

/* By key: the transaction that used it last, from 1, and which of its operations that was. */
struct last_use {
	uint32_t txn, op;
};

/* Is it the same version, of a record or of none?  The loader's versions of a key are all one. */
static bool is_same(const struct vb_history_op *a, const struct vb_history_op *b)
{
	if (a->absent != b->absent)
		return false;
	return a->version == b->version ||
	       (a->version < VB_HISTORY_FIRST && b->version < VB_HISTORY_FIRST);
}

/* What it sees is the transaction's own, by a later operation of its: which; or NONE. */
static uint32_t made_later(const struct serial *s, uint32_t txn, uint32_t i)
{
	const struct serial_txn *x = &s->txns[txn];
	const struct serial_version *v = &s->versions[s->saw[x->first + i]];

	return v->writer == txn && v->op > x->first + i ? v->op - x->first : SERIAL_NONE;
}

/*
 * A read gives what the transaction's last write of the key made, at every level, and nothing that
 * it makes later.  From snapshot on, it gives what its last read gave, too: below, another's write
 * may have come between.
 */
static void judge_own_reads(struct serial *s, uint32_t txn, struct last_use *last)
{
	const struct serial_txn *x = &s->txns[txn];
	const bool reads = x->level >= VB_LEVEL_SNAPSHOT;

	for (uint32_t i = 0; i < x->t->n_ops; i++) {
		struct last_use *l = &last[s->versions[s->saw[x->first + i]].key];
		const bool read = x->ops[i].kind == VB_HISTORY_READ;
		struct serial_sight sight = {.txn = txn, .op = i, .other = l->op};

		if (l->txn != txn + 1)
			sight.other = made_later(s, txn, i);
		if (read && sight.other != SERIAL_NONE &&
		    (sight.other > i || !is_same(&x->ops[i], &x->ops[l->op])))
			found(s, VB_ANOMALY_INTERNAL, sight);
		if (!read || reads)
			*l = (struct last_use){.txn = txn + 1, .op = i};
	}
}

static int judge_internal(struct serial *s)
{
	struct last_use *last = calloc((size_t)s->n_keys + 1, sizeof(*last));

	if (last == NULL)
		return vb_fail(-ENOMEM, "no memory for %u keys", s->n_keys);
	for (uint32_t i = 0; i < s->n_txns; i++)
		if (s->txns[i].counts)
			judge_own_reads(s, i, last);
	free(last);
	return 0;
}

static void judge_forks(struct serial *s)
{
	for (uint32_t i = 0; i < s->n_versions; i++) {
		struct serial_sight sight = {.version = s->versions[i].child};

		if (sight.version == SERIAL_NONE)
			continue;
		while ((sight.other = s->versions[sight.version].sibling) != SERIAL_NONE) {
			/* Two of one number are told as that. */
			if (s->versions[sight.version].number != s->versions[sight.other].number)
				found(s, VB_ANOMALY_FORK, sight);
			sight.version = sight.other;
		}
	}
}

static void judge_duplicates(struct serial *s)
{
	for (uint32_t i = 0; i < s->n_twins; i++) {
		const struct serial_version *v = &s->versions[s->twins[i]];
		struct serial_sight sight = {.other = s->twins[i]};

		sight.version = serial_find_version(s, v->key, v->number);
		if (serial_counts(s, v->writer) &&
		    serial_counts(s, s->versions[sight.version].writer))
			found(s, VB_ANOMALY_DUPLICATE, sight);
	}
}

static void count(struct serial *s)
{
	struct vb_serial_result *out = s->out;

	out->txns = s->n_txns;
	out->keys = s->n_keys;
	for (uint32_t i = 0; i < s->n_txns; i++) {
		const struct serial_txn *x = &s->txns[i];

		out->committed += x->t->outcome == VB_HISTORY_COMMITTED;
		out->aborted += x->t->outcome == VB_HISTORY_ABORTED;
		out->unknown += x->t->outcome == VB_HISTORY_UNKNOWN;
		for (uint32_t k = 0; k < x->t->n_ops; k++)
			if (x->ops[k].kind == VB_HISTORY_READ)
				out->reads++;
			else
				out->writes++;
	}
}

/* ---- at which level ---- */

/* Of each transaction its own level, if that is asked for, and the highest of all. */
static int settle_levels(struct serial *s)
{
	const enum vb_level all = s->level;
	uint64_t *at = s->out->at;

	for (uint32_t i = 0; i < s->n_txns; i++) {
		struct serial_txn *x = &s->txns[i];

		x->level = (uint8_t)all;
		if (s->p->each && x->t->level != VB_LEVEL_NONE)
			x->level = x->t->level;
		at[x->level]++;
	}
	for (unsigned l = 0; l < VB_LEVELS; l++)
		if (at[l] != 0)
			s->level = (enum vb_level)l;
	s->out->level = s->level;
	if (at[VB_LEVEL_SNAPSHOT] != 0 && at[VB_LEVEL_SNAPSHOT] != s->n_txns)
		return vb_fail(-EINVAL,
			       "snapshot isolation and other levels are not judged together: "
			       "choose one level for all transactions (--level)");
	return 0;
}

/* ---- all of it ---- */

static int judge(struct serial *s)
{
	int err = serial_settle(s);

	if (err)
		return err;
	count(s);
	for (uint32_t i = 0; i < s->n_txns; i++)
		if (s->txns[i].counts)
			judge_sights(s, i);
	judge_forks(s);
	judge_duplicates(s);
	s->out->found[VB_ANOMALY_MALFORMED] = s->malformed;
	err = judge_internal(s);
	if (err == 0)
		err = serial_graph_build(s);
	return err ? err : serial_judge_cycles(s);
}

static int tell(struct serial *s)
{
	struct vb_serial_result *out = s->out;

	for (int i = VB_ANOMALIES - 1; i > VB_ANOMALY_NONE; i--)
		if (out->found[i] > 0)
			out->first = (enum vb_anomaly)i;
	if (out->first == VB_ANOMALY_NONE)
		return 0;
	out->story = serial_story(s, out->first);
	return out->story == NULL ? vb_fail(-ENOMEM, "no memory for the story") : 0;
}

int vb_serial_check(const struct vb_serial_params *p, struct vb_serial_result *out)
{
	struct serial s = {
		.p = p,
		.out = out,
		.level = p->level != VB_LEVEL_NONE ? p->level : VB_LEVEL_SERIALIZABLE,
	};
	const uint64_t begun = vb_clock_gettime_ns();
	int err;

	*out = (struct vb_serial_result){0};
	err = serial_load(&s, p->parts, p->n_parts);
	if (err == 0)
		err = settle_levels(&s);
	if (err == 0)
		err = judge(&s);
	if (err == 0)
		err = tell(&s);
	serial_graph_free(&s.graph);
	free(s.cycle.node);
	free(s.cycle.kind);
	serial_unload(&s);
	out->seconds = (double)(vb_clock_gettime_ns() - begun) / 1e9;
	return err;
}

void vb_serial_result_free(struct vb_serial_result *r)
{
	free(r->story);
	r->story = NULL;
}
