/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Histories for Elle (Kingsbury and Alvaro, 2020), as its list-append workload: doc/histories.md
 * says how to use it.  An invocation and a completion for each transaction, in order of time.
 */
#define VB_LOG_ROOM "check"
#include "check/txn/serial_inner.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

struct event {
	uint64_t at_ns;
	uint32_t txn;
	bool end;
};

struct edn {
	struct serial s;
	FILE *to;
	struct event *events;
	uint64_t *list; /* versions of the key at hand, the newest first */
	uint64_t room;
};

/* What ends as another begins overlaps it, for us and so for Elle: beginnings come first. */
static int by_time(const void *a, const void *b)
{
	const struct event *x = a, *y = b;

	if (x->at_ns != y->at_ns)
		return x->at_ns < y->at_ns ? -1 : 1;
	if (x->end != y->end)
		return x->end ? 1 : -1;
	return x->txn < y->txn ? -1 : x->txn > y->txn;
}

static int sort_events(struct edn *e)
{
	const struct serial *s = &e->s;

	e->events = malloc((2 * (size_t)s->n_txns + 1) * sizeof(*e->events));
	if (e->events == NULL)
		return vb_fail(-ENOMEM, "no memory for %u transactions", s->n_txns);
	for (uint32_t i = 0; i < s->n_txns; i++) {
		e->events[2 * (size_t)i] =
			(struct event){.at_ns = s->txns[i].t->begin_ns, .txn = i};
		e->events[2 * (size_t)i + 1] =
			(struct event){.at_ns = s->txns[i].t->end_ns, .txn = i, .end = true};
	}
	qsort(e->events, 2 * (size_t)s->n_txns, sizeof(*e->events), by_time);
	return 0;
}

/* The versions from the loader's, which is the empty list, up to this one. */
static int put_list(struct edn *e, uint32_t version)
{
	const struct serial *s = &e->s;
	uint64_t n = 0;

	for (uint32_t v = version; v != SERIAL_NONE; v = s->versions[v].prev) {
		if (s->versions[v].number < VB_HISTORY_FIRST)
			break;
		if (n > s->n_versions)
			return vb_fail(-EINVAL,
				       "the versions of key %" PRIu64
				       " replace each other in a ring",
				       s->keys[s->versions[version].key].key);
		if (n == e->room) {
			uint64_t room = e->room == 0 ? 1024 : 2 * e->room;
			uint64_t *list = realloc(e->list, room * sizeof(*list));

			if (list == NULL)
				return vb_fail(-ENOMEM, "no memory for a list of versions");
			e->list = list;
			e->room = room;
		}
		e->list[n++] = s->versions[v].number;
	}
	fputc('[', e->to);
	while (n-- > 0)
		fprintf(e->to, "%" PRIu64 "%s", e->list[n], n > 0 ? " " : "");
	fputc(']', e->to);
	return 0;
}

static int put_value(struct edn *e, uint32_t txn, bool known)
{
	const struct serial_txn *x = &e->s.txns[txn];
	const char *space = "";
	int err = 0;

	fputc('[', e->to);
	for (uint32_t i = 0; i < x->t->n_ops && err == 0; i++) {
		const struct vb_history_op *op = &x->ops[i];
		const bool write = op->kind == VB_HISTORY_WRITE;

		if (write && serial_is_told(x, i))
			continue;
		fprintf(e->to, "%s[:%s \"%u/%" PRIu64 "\" ", space, write ? "append" : "r",
			op->table, op->key);
		space = " ";
		if (write)
			fprintf(e->to, "%" PRIu64, op->version);
		else if (!known)
			fprintf(e->to, "nil");
		else
			err = put_list(e, e->s.saw[x->first + i]);
		fputc(']', e->to);
	}
	fputc(']', e->to);
	return err;
}

static int put_event(struct edn *e, uint64_t index)
{
	static const char *const ends[] = {
		[VB_HISTORY_COMMITTED] = "ok",
		[VB_HISTORY_ABORTED] = "fail",
		[VB_HISTORY_UNKNOWN] = "info",
	};
	const struct event *x = &e->events[index];
	const uint8_t outcome = e->s.txns[x->txn].t->outcome;
	int err;

	/* A process of its own for each: one whose end is not known must not come again. */
	fprintf(e->to,
		"{:index %" PRIu64 ", :type :%s, :process %u, :time %" PRIu64 ", :f :txn, :value ",
		index, x->end ? ends[outcome] : "invoke", x->txn, x->at_ns);
	err = put_value(e, x->txn, x->end && outcome == VB_HISTORY_COMMITTED);
	fprintf(e->to, "}\n");
	return err;
}

int vb_history_write_edn(const struct vb_history *const *parts, unsigned n, FILE *to)
{
	struct edn e = {.to = to};
	int err = serial_load(&e.s, parts, n);

	if (err == 0 && e.s.malformed != 0)
		err = vb_fail(-EINVAL, "a history with a malformed version is none for Elle");
	if (err == 0)
		err = sort_events(&e);
	for (uint64_t i = 0; i < 2ull * e.s.n_txns && err == 0 && !ferror(to); i++)
		err = put_event(&e, i);
	if (err == 0 && (fflush(to) != 0 || ferror(to)))
		err = vb_fail(errno != 0 ? -errno : -EIO, "cannot write the history: %s",
			      strerror(errno != 0 ? errno : EIO));
	free(e.events);
	free(e.list);
	serial_unload(&e.s);
	return err;
}
