/* SPDX-License-Identifier: Apache-2.0 */
/* The graph of dependencies and its strongly connected components: see serial_inner.h. */
#define VB_LOG_ROOM "check"
#include "check/txn/serial_inner.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"

unsigned serial_kinds(enum vb_level level)
{
	switch (level) {
	case VB_LEVEL_READ_COMMITTED:
		return SERIAL_SEEN;
	case VB_LEVEL_REPEATABLE_READ:
		return SERIAL_SEEN | SERIAL_BIT(SERIAL_RW);
	default:
		return SERIAL_DATA;
	}
}

/* An end of a transaction, or a place between ends. */
struct moment {
	uint64_t at_ns;
	uint32_t txn;
};

/* Gone through twice: counting the edges of each node, then writing them. */
struct builder {
	struct serial *s;
	struct moment *ends;
	uint32_t n_ends;
	uint64_t data_edges;
	bool writing;
};

static void put(struct builder *b, uint32_t from, uint32_t to, enum serial_edge kind)
{
	struct serial_graph *g = &b->s->graph;

	if (from == to)
		return;
	if (b->writing) {
		g->edge[g->start[from + 1]++] = to << 3 | kind;
		return;
	}
	g->start[from + 2]++;
	b->data_edges += kind != SERIAL_RT;
}

static void put_data(struct builder *b, uint32_t txn)
{
	const struct serial *s = b->s;
	const struct serial_txn *x = &s->txns[txn];

	for (uint32_t i = 0; i < x->t->n_ops; i++) {
		const struct serial_version *v = &s->versions[s->saw[x->first + i]];
		unsigned forks = 0;

		if (x->ops[i].kind == VB_HISTORY_WRITE) {
			if (serial_counts(s, v->writer))
				put(b, v->writer, txn, SERIAL_WW);
			continue;
		}
		if (serial_counts(s, v->writer))
			put(b, v->writer, txn, SERIAL_WR);
		if (x->level < s->level && !serial_reads_long(x, &x->ops[i]))
			continue;
		for (uint32_t c = v->child; c != SERIAL_NONE && forks < SERIAL_FORKS; forks++) {
			put(b, txn, s->versions[c].writer, serial_anti(&x->ops[i]));
			c = s->versions[c].sibling;
		}
	}
}

/* How many ends are before a time. */
static uint32_t ends_before(const struct builder *b, uint64_t at_ns)
{
	uint32_t low = 0, high = b->n_ends;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (b->ends[mid].at_ns < at_ns)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static void put_time(struct builder *b)
{
	const struct serial *s = b->s;
	const uint32_t first = s->n_txns;

	for (uint32_t i = 0; i < b->n_ends; i++) {
		put(b, b->ends[i].txn, first + i, SERIAL_RT);
		if (i > 0)
			put(b, first + i - 1, first + i, SERIAL_RT);
	}
	for (uint32_t i = 0; i < s->n_txns; i++) {
		const struct serial_txn *x = &s->txns[i];
		uint32_t n = x->counts && x->level == VB_LEVEL_STRICT
				     ? ends_before(b, x->t->begin_ns)
				     : 0;

		if (n > 0)
			put(b, first + n - 1, i, SERIAL_RT);
	}
}

static void put_all(struct builder *b)
{
	for (uint32_t i = 0; i < b->s->n_txns; i++)
		if (b->s->txns[i].counts)
			put_data(b, i);
	put_time(b);
}

static int by_time(const void *a, const void *b)
{
	const struct moment *x = a, *y = b;

	if (x->at_ns != y->at_ns)
		return x->at_ns < y->at_ns ? -1 : 1;
	return x->txn < y->txn ? -1 : x->txn > y->txn;
}

/* A commit of unknown outcome may have happened after its client gave up: it has no end. */
static int sort_ends(struct builder *b)
{
	const struct serial *s = b->s;

	b->ends = malloc(((size_t)s->n_txns + 1) * sizeof(*b->ends));
	if (b->ends == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < s->n_txns; i++)
		if (s->txns[i].t->outcome == VB_HISTORY_COMMITTED)
			b->ends[b->n_ends++] =
				(struct moment){.at_ns = s->txns[i].t->end_ns, .txn = i};
	qsort(b->ends, b->n_ends, sizeof(*b->ends), by_time);
	return 0;
}

static int allocate_edges(struct serial_graph *g)
{
	/* start[n + 1] is the number of edges of nodes before n, and becomes that of those up to it
	 * while they are written. */
	for (uint32_t i = 0; i < g->nodes; i++)
		g->start[i + 2] += g->start[i + 1];
	g->edge = malloc((g->start[g->nodes + 1] + 1) * sizeof(*g->edge));
	return g->edge == NULL ? -ENOMEM : 0;
}

int serial_graph_build(struct serial *s)
{
	struct serial_graph *g = &s->graph;
	struct builder b = {.s = s};
	int err = s->level == VB_LEVEL_STRICT ? sort_ends(&b) : 0;

	g->txns = s->n_txns;
	g->nodes = s->n_txns + b.n_ends;
	if (err == 0) {
		g->start = calloc((size_t)g->nodes + 2, sizeof(*g->start));
		err = g->start == NULL ? -ENOMEM : 0;
	}
	if (err == 0) {
		put_all(&b);
		err = allocate_edges(g);
	}
	if (err == 0) {
		b.writing = true;
		put_all(&b);
		s->out->edges = b.data_edges;
	}
	free(b.ends);
	if (err)
		vb_error("no memory for the graph of %u transactions", s->n_txns);
	return err;
}

int serial_graph_unfold(const struct serial_graph *g, unsigned kinds, struct serial_graph *out)
{
	const uint32_t n = g->txns;
	uint64_t at = 0;

	*out = (struct serial_graph){.txns = 2 * n, .nodes = 2 * n};
	out->start = malloc((2 * (size_t)n + 1) * sizeof(*out->start));
	out->edge = malloc((2 * g->start[n] + 1) * sizeof(*out->edge));
	if (out->start == NULL || out->edge == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < 2 * n; i++) {
		const uint32_t from = i < n ? i : i - n;

		out->start[i] = at;
		for (uint64_t k = g->start[from]; k < g->start[from + 1]; k++) {
			const enum serial_edge kind = SERIAL_KIND(g->edge[k]);
			const bool anti = SERIAL_BIT(kind) & SERIAL_ANTI;

			if (!(kinds & SERIAL_BIT(kind)) || (anti && i >= n))
				continue;
			out->edge[at++] = (SERIAL_TO(g->edge[k]) + (anti ? n : 0)) << 3 | kind;
		}
	}
	out->start[2 * (size_t)n] = at;
	return 0;
}

void serial_graph_free(struct serial_graph *g)
{
	free(g->start);
	free(g->edge);
}

/* ---- components ---- */

#define OPEN (SERIAL_NONE - 1) /* on the stack, its component is not known yet */

/* Tarjan's algorithm (1972), with a stack of its own. */
struct tarjan {
	const struct serial_graph *g;
	struct serial_parts *out;
	unsigned kinds;
	uint32_t *order;        /* 0: not met yet */
	uint32_t *low;          /* the first that it reaches of those that are open */
	uint32_t *path, *stack; /* from the root to here; all that are open */
	uint64_t *next;         /* edge to look at */
	uint32_t met, depth, open;
};

static void enter(struct tarjan *t, uint32_t node)
{
	t->order[node] = t->low[node] = ++t->met;
	t->next[node] = t->g->start[node];
	t->out->of[node] = OPEN;
	t->path[t->depth++] = node;
	t->stack[t->open++] = node;
}

static void leave(struct tarjan *t, uint32_t node)
{
	uint32_t part, member;

	t->depth--;
	if (t->depth > 0) {
		uint32_t parent = t->path[t->depth - 1];

		if (t->low[node] < t->low[parent])
			t->low[parent] = t->low[node];
	}
	if (t->low[node] != t->order[node])
		return;
	part = t->stack[t->open - 1] == node ? SERIAL_NONE : t->out->n++;
	do {
		member = t->stack[--t->open];
		t->out->of[member] = part;
	} while (member != node);
}

static void walk(struct tarjan *t, uint32_t root)
{
	enter(t, root);
	while (t->depth > 0) {
		uint32_t node = t->path[t->depth - 1], edge, to;

		if (t->next[node] == t->g->start[node + 1]) {
			leave(t, node);
			continue;
		}
		edge = t->g->edge[t->next[node]++];
		to = SERIAL_TO(edge);
		if (!(t->kinds & SERIAL_BIT(SERIAL_KIND(edge))))
			continue;
		if (t->order[to] == 0)
			enter(t, to);
		else if (t->out->of[to] == OPEN && t->order[to] < t->low[node])
			t->low[node] = t->order[to];
	}
}

int serial_components(const struct serial_graph *g, unsigned kinds, struct serial_parts *out)
{
	struct tarjan t = {.g = g, .out = out, .kinds = kinds};
	/* The ends have edges of time only. */
	const uint32_t n = kinds & SERIAL_BIT(SERIAL_RT) ? g->nodes : g->txns;
	const size_t bytes = ((size_t)n + 1) * sizeof(uint32_t);
	int err = -ENOMEM;

	out->n = 0;
	out->of = malloc(bytes);
	t.order = calloc(1, bytes);
	t.low = malloc(bytes);
	t.path = malloc(bytes);
	t.stack = malloc(bytes);
	t.next = malloc(2 * bytes);
	if (out->of != NULL && t.order != NULL && t.low != NULL && t.path != NULL &&
	    t.stack != NULL && t.next != NULL) {
		for (uint32_t i = 0; i < n; i++)
			if (t.order[i] == 0)
				walk(&t, i);
		err = 0;
	} else {
		free(out->of);
		out->of = NULL;
		vb_error("no memory for the components of a graph of %u nodes", n);
	}
	free(t.order);
	free(t.low);
	free(t.path);
	free(t.stack);
	free(t.next);
	return err;
}
