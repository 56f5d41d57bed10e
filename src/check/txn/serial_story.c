/* SPDX-License-Identifier: Apache-2.0 */
/* Telling an anomaly: who took part, and what puts each before the next. */
#define VB_LOG_ROOM "check"
#include "check/txn/serial_inner.h"

#include <inttypes.h>
#include <stdlib.h>

/* Of a longer cycle, the beginning and the end are told. */
#define TOLD_MAX 24u

const char *const vb_anomaly_names[VB_ANOMALIES] = {
	[VB_ANOMALY_NONE] = "none",
	[VB_ANOMALY_MALFORMED] = "malformed version",
	[VB_ANOMALY_G0] = "G0",
	[VB_ANOMALY_G1A] = "G1a",
	[VB_ANOMALY_G1B] = "G1b",
	[VB_ANOMALY_G1C] = "G1c",
	[VB_ANOMALY_LOST_UPDATE] = "lost update",
	[VB_ANOMALY_G_SINGLE] = "G-single",
	[VB_ANOMALY_LONG_FORK] = "long fork",
	[VB_ANOMALY_WRITE_SKEW] = "write skew",
	[VB_ANOMALY_G2] = "G2",
	[VB_ANOMALY_PHANTOM] = "phantom",
	[VB_ANOMALY_REAL_TIME] = "real time",
	[VB_ANOMALY_DUPLICATE] = "duplicate version",
	[VB_ANOMALY_FORK] = "fork",
	[VB_ANOMALY_GHOST] = "ghost",
	[VB_ANOMALY_INTERNAL] = "internal",
};

static uint64_t id_of(const struct serial *s, uint32_t txn)
{
	return s->txns[txn].t->id;
}

/* ---- parts of sentences ---- */

static void tell_key(FILE *to, const struct serial *s, uint16_t table, uint64_t key)
{
	if (s->p->table_names != NULL && table < s->p->n_tables)
		fprintf(to, "%s/%" PRIu64, s->p->table_names[table], key);
	else
		fprintf(to, "%u/%" PRIu64, table, key);
}

static void tell_op_key(FILE *to, const struct serial *s, const struct vb_history_op *op)
{
	tell_key(to, s, op->table, op->key);
}

/* "T17 (transfer, client 3)" */
static void tell_name(FILE *to, const struct serial *s, uint32_t txn)
{
	const struct vb_history_txn *t = s->txns[txn].t;

	fprintf(to, "T%" PRIu64 " (", t->id);
	if (s->p->type_names != NULL && t->type < s->p->n_types)
		fprintf(to, "%s", s->p->type_names[t->type]);
	else
		fprintf(to, "type %u", t->type);
	fprintf(to, ", client %u", t->client);
	if (s->p->each && t->level != VB_LEVEL_NONE)
		fprintf(to, ", %s", vb_level_names[t->level]);
	fputc(')', to);
}

static void tell_txn(FILE *to, const struct serial *s, uint32_t txn)
{
	static const char *const outcomes[] = {
		[VB_HISTORY_COMMITTED] = "committed",
		[VB_HISTORY_ABORTED] = "aborted",
		[VB_HISTORY_UNKNOWN] = "has an unknown outcome",
	};
	const struct vb_history_txn *t = s->txns[txn].t;
	uint32_t reads = 0, writes;

	for (uint32_t i = 0; i < t->n_ops; i++)
		reads += s->txns[txn].ops[i].kind == VB_HISTORY_READ;
	writes = t->n_ops - reads;
	fprintf(to, "  ");
	tell_name(to, s, txn);
	fprintf(to, " %s", outcomes[t->outcome]);
	if (t->outcome == VB_HISTORY_UNKNOWN && s->txns[txn].counts)
		fprintf(to, " but was seen, so it counts as committed");
	fprintf(to, "; it ran from %.3f to %.3f us, with %u read%s and %u write%s\n",
		(double)t->begin_ns / 1e3, (double)t->end_ns / 1e3, reads, reads == 1 ? "" : "s",
		writes, writes == 1 ? "" : "s");
}

/* The operation that made a version. */
static const struct vb_history_op *made_by(const struct serial *s, uint32_t version)
{
	const struct serial_version *v = &s->versions[version];
	const struct serial_txn *x = &s->txns[v->writer];

	return &x->ops[v->op - x->first];
}

/* ---- edges ---- */

static bool writes_key(const struct serial_txn *x, const struct vb_history_op *of)
{
	for (uint32_t i = 0; i < x->t->n_ops; i++)
		if (x->ops[i].kind == VB_HISTORY_WRITE && x->ops[i].key == of->key &&
		    x->ops[i].table == of->table)
			return true;
	return false;
}

/* Which of the versions that replaced this one the transaction made, or NONE. */
static uint32_t child_by(const struct serial *s, uint32_t version, uint32_t txn)
{
	for (uint32_t c = s->versions[version].child; c != SERIAL_NONE; c = s->versions[c].sibling)
		if (s->versions[c].writer == txn)
			return c;
	return SERIAL_NONE;
}

/* `a` read what `b` replaced; of several keys, one that `a` wrote as well tells most. */
static void tell_rw(FILE *to, const struct serial *s, uint32_t a, uint32_t b, enum serial_edge kind)
{
	const struct serial_txn *x = &s->txns[a];
	const struct vb_history_op *read = NULL;
	uint32_t by = SERIAL_NONE;

	for (uint32_t i = 0; i < x->t->n_ops; i++) {
		uint32_t c;

		if (x->ops[i].kind != VB_HISTORY_READ || serial_anti(&x->ops[i]) != kind)
			continue;
		c = child_by(s, s->saw[x->first + i], b);
		if (c == SERIAL_NONE || (read != NULL && !writes_key(x, &x->ops[i])))
			continue;
		read = &x->ops[i];
		by = c;
		if (writes_key(x, read))
			break;
	}
	fprintf(to, "  ");
	tell_name(to, s, a);
	fprintf(to, " read ");
	tell_op_key(to, s, read);
	fprintf(to, " at version %" PRIu64 "%s, which T%" PRIu64 " replaced with %" PRIu64 "%s",
		read->version, read->absent ? " (absent)" : "", id_of(s, b), s->versions[by].number,
		made_by(s, by)->absent ? " (absent)" : "");
}

/* `b` saw, by an operation of this kind, what `a` wrote. */
static void tell_seen(FILE *to, const struct serial *s, uint32_t a, uint32_t b,
		      enum vb_history_kind kind)
{
	const struct serial_txn *x = &s->txns[b];
	const struct vb_history_op *op = NULL, *made;
	uint32_t saw = SERIAL_NONE;

	for (uint32_t i = 0; i < x->t->n_ops && op == NULL; i++) {
		saw = s->saw[x->first + i];
		if (x->ops[i].kind == kind && s->versions[saw].writer == a)
			op = &x->ops[i];
	}
	made = made_by(s, saw);
	fprintf(to, "  ");
	tell_name(to, s, a);
	fprintf(to, " wrote version %" PRIu64 "%s of ", made->version,
		made->absent ? " (absent)" : "");
	tell_op_key(to, s, op);
	if (kind == VB_HISTORY_READ)
		fprintf(to, ", which T%" PRIu64 " read", id_of(s, b));
	else
		fprintf(to, ", which T%" PRIu64 " replaced with %" PRIu64 "%s", id_of(s, b),
			op->version, op->absent ? " (absent)" : "");
}

static void tell_edge(FILE *to, const struct serial *s, uint32_t a, uint32_t b,
		      enum serial_edge kind)
{
	switch (kind) {
	case SERIAL_WW:
		tell_seen(to, s, a, b, VB_HISTORY_WRITE);
		break;
	case SERIAL_WR:
		tell_seen(to, s, a, b, VB_HISTORY_READ);
		break;
	case SERIAL_RW:
	case SERIAL_PW:
		tell_rw(to, s, a, b, kind);
		break;
	case SERIAL_RT:
		fprintf(to, "  ");
		tell_name(to, s, a);
		fprintf(to, " ended at %.3f us, before T%" PRIu64 " began at %.3f us",
			(double)s->txns[a].t->end_ns / 1e3, id_of(s, b),
			(double)s->txns[b].t->begin_ns / 1e3);
		break;
	}
	fprintf(to, "; so T%" PRIu64 " comes before T%" PRIu64 "\n", id_of(s, a), id_of(s, b));
}

static void tell_cycle(FILE *to, const struct serial *s, enum vb_anomaly kind)
{
	const struct serial_cycle *c = &s->cycle;
	const bool all = c->n <= TOLD_MAX;

	fprintf(to, "%s: a cycle of %u transactions; each would have to come before itself\n",
		vb_anomaly_names[kind], c->n);
	for (uint32_t i = 0; i < c->n; i++)
		if (all || i < TOLD_MAX / 2 || i >= c->n - TOLD_MAX / 2)
			tell_txn(to, s, c->node[i]);
		else if (i == TOLD_MAX / 2)
			fprintf(to, "  ... and %u more\n", c->n - TOLD_MAX);
	for (uint32_t i = 0; i < c->n; i++)
		if (all || i < TOLD_MAX / 2 || i >= c->n - TOLD_MAX / 2)
			tell_edge(to, s, c->node[i], c->node[(i + 1) % c->n], c->kind[i]);
		else if (i == TOLD_MAX / 2)
			fprintf(to, "  ... and %u more\n", c->n - TOLD_MAX);
}

/* ---- what is no cycle ---- */

/* "T17 (transfer, client 3) read account/5 at version 12", or "... replaced version 12 of
 * account/5" */
static void tell_sight(FILE *to, const struct serial *s, const struct serial_sight *x)
{
	const struct vb_history_op *op = &s->txns[x->txn].ops[x->op];

	fprintf(to, "  ");
	tell_name(to, s, x->txn);
	if (op->kind == VB_HISTORY_READ) {
		fprintf(to, " read ");
		tell_op_key(to, s, op);
		fprintf(to, " at version %" PRIu64 "%s", op->version,
			op->absent ? " (absent)" : "");
	} else {
		fprintf(to, " replaced version %" PRIu64 " of ", op->prev);
		tell_op_key(to, s, op);
		fprintf(to, " with %" PRIu64, op->version);
	}
}

static void tell_aborted(FILE *to, const struct serial *s, const struct serial_sight *x)
{
	const uint32_t writer = s->versions[x->version].writer;

	fprintf(to, "%s: a transaction saw what was never committed\n",
		vb_anomaly_names[VB_ANOMALY_G1A]);
	tell_txn(to, s, writer);
	tell_txn(to, s, x->txn);
	tell_sight(to, s, x);
	fprintf(to, "; that version is T%" PRIu64 "'s, which aborted\n", id_of(s, writer));
}

static void tell_intermediate(FILE *to, const struct serial *s, const struct serial_sight *x)
{
	const uint32_t writer = s->versions[x->version].writer;

	fprintf(to, "%s: a transaction read what its writer had not finished\n",
		vb_anomaly_names[VB_ANOMALY_G1B]);
	tell_txn(to, s, writer);
	tell_txn(to, s, x->txn);
	tell_sight(to, s, x);
	fprintf(to, "; T%" PRIu64 " wrote that version and replaced it with %" PRIu64 " itself\n",
		id_of(s, writer), s->versions[x->other].number);
}

static void tell_malformed(FILE *to, const struct serial *s, const struct serial_sight *x)
{
	fprintf(to, "%s: a write made what cannot be a version\n",
		vb_anomaly_names[VB_ANOMALY_MALFORMED]);
	tell_txn(to, s, x->txn);
	tell_sight(to, s, x);
	fprintf(to, "; %s\n", x->why);
}

static void tell_two_writes(FILE *to, const struct serial *s, const struct serial_sight *x,
			    enum vb_anomaly which)
{
	const uint32_t both[] = {x->version, x->other};

	fprintf(to, "%s: %s\n", vb_anomaly_names[which],
		which == VB_ANOMALY_FORK
			? "of two writes, the one did not see the other, which is lost"
			: "two writes made one version: who read it may have read either");
	for (unsigned i = 0; i < 2; i++)
		tell_txn(to, s, s->versions[both[i]].writer);
	for (unsigned i = 0; i < 2; i++) {
		const struct serial_version *v = &s->versions[both[i]];
		const struct serial_sight sight = {.txn = v->writer,
						   .op = v->op - s->txns[v->writer].first};

		tell_sight(to, s, &sight);
		fputc('\n', to);
	}
}

static void tell_ghost(FILE *to, const struct serial *s, const struct serial_sight *x)
{
	fprintf(to, "%s: a transaction saw a version that nobody wrote\n",
		vb_anomaly_names[VB_ANOMALY_GHOST]);
	tell_txn(to, s, x->txn);
	tell_sight(to, s, x);
	if (s->versions[x->version].writer != SERIAL_NONE)
		fprintf(to, "; T%" PRIu64 " made that version %s\n",
			id_of(s, s->versions[x->version].writer),
			s->txns[x->txn].ops[x->op].absent ? "of a record that is there" : "absent");
	else
		fprintf(to, "; no transaction of the history made version %" PRIu64 "\n",
			s->versions[x->version].number);
}

static void tell_internal(FILE *to, const struct serial *s, const struct serial_sight *x)
{
	const struct vb_history_op *own = &s->txns[x->txn].ops[x->other];

	fprintf(to, "%s: a transaction read something else than it had itself read or written\n",
		vb_anomaly_names[VB_ANOMALY_INTERNAL]);
	tell_txn(to, s, x->txn);
	tell_sight(to, s, x);
	if (x->other > x->op)
		fprintf(to, "; it wrote that version only afterwards\n");
	else
		fprintf(to, "; it had %s version %" PRIu64 "%s of it before\n",
			own->kind == VB_HISTORY_READ ? "read" : "written", own->version,
			own->absent ? " (absent)" : "");
}

char *serial_story(const struct serial *s, enum vb_anomaly first)
{
	char *text = NULL;
	size_t size;
	FILE *to = open_memstream(&text, &size);

	if (to == NULL)
		return NULL;
	switch (first) {
	case VB_ANOMALY_G1A:
		tell_aborted(to, s, &s->sight[first]);
		break;
	case VB_ANOMALY_G1B:
		tell_intermediate(to, s, &s->sight[first]);
		break;
	case VB_ANOMALY_MALFORMED:
		tell_malformed(to, s, &s->sight[first]);
		break;
	case VB_ANOMALY_FORK:
	case VB_ANOMALY_DUPLICATE:
		tell_two_writes(to, s, &s->sight[first], first);
		break;
	case VB_ANOMALY_GHOST:
		tell_ghost(to, s, &s->sight[first]);
		break;
	case VB_ANOMALY_INTERNAL:
		tell_internal(to, s, &s->sight[first]);
		break;
	default:
		tell_cycle(to, s, first);
		break;
	}
	if (fclose(to) != 0) {
		free(text);
		return NULL;
	}
	return text;
}
