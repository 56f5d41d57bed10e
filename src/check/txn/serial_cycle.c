/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which anomaly a strongly connected component shows, and the smallest cycle that shows it.
 *
 * Cycles of ww edges, of ww and wr edges, and lost updates are found in every component in which
 * there are any, and so is that there is a cycle which snapshot isolation refuses.  The others are
 * searched breadth first from transactions of the component; a component so large that this would
 * take long is searched from some of them, and may be called G2 although it has a cycle with a name
 * of its own.
 */
#define VB_LOG_ROOM "check"
#include "check/txn/serial_inner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* Edges looked at: for one kind of cycle in one component, and in all.  10 ns each, or so. */
#define LOOKS_PART (1ull << 25)
#define LOOKS_ALL  (1ull << 30)

/* A prime above any number of transactions: in steps of it one comes by all members, far apart. */
#define STRIDE 2654435761ull

/* What cycle is wanted. */
struct route {
	const uint32_t *of; /* all of its nodes are of the same component of these */
	unsigned first;     /* kinds of its first edge */
	unsigned rest;      /* and of the others */
	uint32_t via;       /* its second node, NONE: any */
	uint32_t most;      /* edges, time counting as one */
};

struct search {
	const struct serial_graph *g;
	uint32_t *stamp, now; /* met in this search: stamp[node] == now */
	uint32_t *parent;
	uint8_t *kind; /* of the edge from the parent */
	uint32_t *txns, *ends;
	uint32_t n_txns, n_ends;
	uint64_t looks;
};

struct judge {
	struct serial *s;
	struct search search;
	unsigned kinds; /* of the edges whose cycles the level refuses, or some of them */
	struct serial_parts parts;    /* of these edges */
	struct serial_parts ww, seen; /* of ww edges, and of ww and wr edges */
	struct serial_parts item;     /* of all but the rw edges of reads that found nothing */
	struct serial_graph unfolded;
	struct serial_parts apart; /* of it: where no two rw edges follow each other */
	uint32_t *first, *member;  /* by component, where its members begin in member[] */
	uint8_t *verdict;          /* by component: enum vb_anomaly */
	uint32_t *loser, *winner;  /* by component: whose update was lost, and to whom */
};

/* ---- searching ---- */

static int search_open(struct search *q, const struct serial_graph *g)
{
	const size_t twice = 2 * (size_t)g->txns, n = (twice > g->nodes ? twice : g->nodes) + 1;

	q->g = g; /* or the unfolded one, for a while */
	q->stamp = calloc(n, sizeof(*q->stamp));
	q->parent = malloc(n * sizeof(*q->parent));
	q->kind = malloc(n);
	q->txns = malloc(n * sizeof(*q->txns));
	q->ends = malloc(n * sizeof(*q->ends));
	return q->stamp != NULL && q->parent != NULL && q->kind != NULL && q->txns != NULL &&
			       q->ends != NULL
		       ? 0
		       : -ENOMEM;
}

static void search_close(struct search *q)
{
	free(q->stamp);
	free(q->parent);
	free(q->kind);
	free(q->txns);
	free(q->ends);
}

/* Looks at a node's edges; true if one leads to `home`. */
static bool expand(struct search *q, const struct route *r, uint32_t node, uint32_t home,
		   enum serial_edge *last)
{
	const struct serial_graph *g = q->g;
	const unsigned kinds = node == home ? r->first : r->rest;

	q->looks += g->start[node + 1] - g->start[node] + 1;
	for (uint64_t i = g->start[node]; i < g->start[node + 1]; i++) {
		uint32_t to = SERIAL_TO(g->edge[i]);
		enum serial_edge kind = SERIAL_KIND(g->edge[i]);

		if (!(kinds & SERIAL_BIT(kind)))
			continue;
		if (to == home) {
			*last = kind;
			return true;
		}
		if (node == home && r->via != SERIAL_NONE && to != r->via)
			continue;
		/* What is not of the kinds of r->of has no number there. */
		if (q->stamp[to] == q->now || r->of[to] != r->of[home])
			continue;
		q->stamp[to] = q->now;
		q->parent[to] = node;
		q->kind[to] = (uint8_t)kind;
		if (to < g->txns)
			q->txns[q->n_txns++] = to;
		else
			q->ends[q->n_ends++] = to;
	}
	return false;
}

/* The way back from the last node, without the ends: of them, only that there was one. */
static int keep_cycle(const struct search *q, uint32_t home, uint32_t last,
		      enum serial_edge last_kind, uint32_t n, struct serial_cycle *out)
{
	struct serial_cycle c = {.n = n, .node = malloc(n * sizeof(*c.node)), .kind = malloc(n)};
	enum serial_edge kind = last_kind;

	if (c.node == NULL || c.kind == NULL) {
		free(c.node);
		free(c.kind);
		return -ENOMEM;
	}
	for (uint32_t node = last;; node = q->parent[node]) {
		if (node < q->g->txns) {
			c.node[--n] = node;
			c.kind[n] = (uint8_t)kind;
		}
		if (node == home)
			break;
		kind = q->kind[node];
	}
	vb_assert(n == 0);
	free(out->node);
	free(out->kind);
	*out = c;
	return 0;
}

/*
 * The smallest cycle of this route through `home`, into *best if it is smaller; best->n 0: none
 * yet.  Steps from an end cost nothing: of a level all ends are looked at before its transactions.
 */
static int cycle_through(struct search *q, const struct route *r, uint32_t home,
			 struct serial_cycle *best)
{
	const uint64_t most = best->n > 0 && best->n <= r->most ? best->n - 1 : r->most;
	uint32_t txn = 0, end = 0;
	enum serial_edge last;

	q->now++;
	q->txns[0] = home;
	q->n_txns = 1;
	q->n_ends = 0;
	/* n levels of transactions, or n - 1 and then ends, are a cycle of as many transactions. */
	for (uint32_t n = 1; n <= most + 1 && (txn < q->n_txns || end < q->n_ends); n++) {
		uint32_t level;

		for (; end < q->n_ends; end++)
			if (expand(q, r, q->ends[end], home, &last))
				return keep_cycle(q, home, q->ends[end], last, n - 1, best);
		if (n > most)
			break;
		for (level = q->n_txns; txn < level; txn++)
			if (expand(q, r, q->txns[txn], home, &last))
				return keep_cycle(q, home, q->txns[txn], last, n, best);
	}
	return 0;
}

/* Through the members of a component that have a number in r->of, or as many as there is time
 * for. */
static int cycle_among(struct judge *j, const struct route *r, const uint32_t *members, uint32_t n,
		       struct serial_cycle *best)
{
	struct search *q = &j->search;
	const uint64_t begun = q->looks;
	bool any = false;
	int err = 0;

	for (uint32_t i = 0; i < n && err == 0 && best->n != 2; i++) {
		const uint32_t home = members[i * STRIDE % n];

		if (home >= q->g->txns || r->of[home] == SERIAL_NONE)
			continue;
		if (any && (q->looks - begun > LOOKS_PART || q->looks > LOOKS_ALL))
			break;
		any = true;
		err = cycle_through(q, r, home, best);
	}
	return err;
}

/* ---- members ---- */

/* first[i] and first[i + 1] are where the members of component i begin and end in member[]. */
static int list_members(const struct serial_parts *parts, uint32_t nodes, uint32_t **first,
			uint32_t **member)
{
	*first = calloc((size_t)parts->n + 2, sizeof(**first));
	*member = malloc(((size_t)nodes + 1) * sizeof(**member));
	if (*first == NULL || *member == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < nodes; i++)
		if (parts->of[i] != SERIAL_NONE)
			(*first)[parts->of[i] + 2]++;
	for (uint32_t i = 0; i < parts->n; i++)
		(*first)[i + 2] += (*first)[i + 1];
	for (uint32_t i = 0; i < nodes; i++)
		if (parts->of[i] != SERIAL_NONE)
			(*member)[(*first)[parts->of[i] + 1]++] = i;
	return 0;
}

/* ---- lost updates ---- */

/* The transaction's write of a key that it also read, or NULL. */
static const struct vb_history_op *write_of(const struct serial_txn *x,
					    const struct vb_history_op *read)
{
	for (uint32_t i = 0; i < x->t->n_ops; i++) {
		const struct vb_history_op *op = &x->ops[i];

		if (op->kind == VB_HISTORY_WRITE && op->key == read->key &&
		    op->table == read->table)
			return op;
	}
	return NULL;
}

/*
 * A transaction that read a version and wrote the key, although another one of its component
 * replaced that version: what that one wrote was not seen, and is overwritten.
 */
static void look_for_lost(struct judge *j, uint32_t txn)
{
	const struct serial *s = j->s;
	const struct serial_txn *x = &s->txns[txn];
	const uint32_t part = j->parts.of[txn];

	for (uint32_t i = 0; i < x->t->n_ops; i++) {
		const struct vb_history_op *write;
		uint32_t saw = s->saw[x->first + i], by;
		unsigned forks = 0;
		bool next;

		if (x->ops[i].kind != VB_HISTORY_READ || s->versions[saw].writer == txn ||
		    !serial_reads_long(x, &x->ops[i]))
			continue;
		for (uint32_t c = s->versions[saw].child; c != SERIAL_NONE && forks < SERIAL_FORKS;
		     c = s->versions[c].sibling, forks++) {
			by = s->versions[c].writer;
			if (by == txn || j->parts.of[by] != part)
				continue;
			write = write_of(x, &x->ops[i]);
			if (write == NULL)
				break;
			/* The story is shortest where its own write came next. */
			next = s->versions[s->saw[x->first + (write - x->ops)]].writer == by;
			if (j->loser[part] != SERIAL_NONE && !next)
				break;
			j->loser[part] = txn;
			j->winner[part] = by;
			break;
		}
	}
}

/* ---- verdicts ---- */

static void worsen(uint8_t *verdict, enum vb_anomaly to)
{
	if (*verdict > to)
		*verdict = (uint8_t)to;
}

static int all_components(struct judge *j)
{
	const struct serial_graph *g = &j->s->graph;
	int err = serial_components(g, SERIAL_BIT(SERIAL_WW), &j->ww);

	if (err == 0)
		err = serial_components(g, SERIAL_SEEN, &j->seen);
	if (err == 0)
		err = serial_components(g, SERIAL_DATA & ~SERIAL_BIT(SERIAL_PW), &j->item);
	if (err == 0)
		err = serial_graph_unfold(g, j->kinds, &j->unfolded);
	if (err == 0)
		err = serial_components(&j->unfolded, SERIAL_DATA, &j->apart);
	return err;
}

/* What can be said without a search. */
static int judge_at_once(struct judge *j)
{
	const struct serial_graph *g = &j->s->graph;
	const size_t n = (size_t)j->parts.n + 1;
	int err;

	j->verdict = malloc(n);
	j->loser = malloc(n * sizeof(*j->loser));
	j->winner = malloc(n * sizeof(*j->winner));
	if (j->verdict == NULL || j->loser == NULL || j->winner == NULL)
		return -ENOMEM;
	memset(j->verdict, VB_ANOMALY_G2, n);
	memset(j->loser, 0xff, n * sizeof(*j->loser));
	err = list_members(&j->parts, g->txns, &j->first, &j->member);
	if (err == 0)
		err = all_components(j);
	for (uint32_t i = 0; i < g->txns && err == 0; i++) {
		const uint32_t part = j->parts.of[i];

		if (part == SERIAL_NONE)
			continue;
		look_for_lost(j, i);
		if (j->loser[part] != SERIAL_NONE)
			worsen(&j->verdict[part], VB_ANOMALY_LOST_UPDATE);
		if (j->seen.of[i] != SERIAL_NONE)
			worsen(&j->verdict[part], VB_ANOMALY_G1C);
		if (j->ww.of[i] != SERIAL_NONE)
			worsen(&j->verdict[part], VB_ANOMALY_G0);
	}
	return err;
}

static bool any_in(const struct judge *j, uint32_t part, const struct serial_parts *of)
{
	for (uint32_t i = j->first[part]; i < j->first[part + 1]; i++)
		if (of->of[j->member[i]] != SERIAL_NONE)
			return true;
	return false;
}

static int lost_update_cycle(struct judge *j, uint32_t part, struct serial_cycle *c)
{
	struct route r = {.of = j->parts.of,
			  .first = j->kinds & SERIAL_ANTI,
			  .rest = SERIAL_SEEN,
			  .via = j->winner[part],
			  .most = SERIAL_NONE};
	int err = cycle_through(&j->search, &r, j->loser[part], c);

	/* Where both replaced the same version, only rw edges may lead back. */
	r.rest = j->kinds;
	if (err == 0 && c->n == 0)
		err = cycle_through(&j->search, &r, j->loser[part], c);
	return err;
}

/* A cycle in which no two rw edges follow each other; of such there is one with a single rw edge,
 * or it is a long fork. */
static int long_fork_cycle(struct judge *j, uint32_t part, struct serial_cycle *c)
{
	const struct route r = {.of = j->apart.of,
				.first = SERIAL_DATA,
				.rest = SERIAL_DATA,
				.via = SERIAL_NONE,
				.most = SERIAL_NONE};
	const uint32_t txns = j->s->graph.txns;
	unsigned anti = 0;
	int err;

	j->search.g = &j->unfolded;
	err = cycle_among(j, &r, &j->member[j->first[part]], j->first[part + 1] - j->first[part],
			  c);
	j->search.g = &j->s->graph;
	for (uint32_t i = 0; i < c->n; i++) {
		c->node[i] %= txns;
		anti += (SERIAL_BIT(c->kind[i]) & SERIAL_ANTI) != 0;
	}
	if (c->n > 0)
		j->verdict[part] = anti > 1 ? VB_ANOMALY_LONG_FORK : VB_ANOMALY_G_SINGLE;
	return err;
}

/* Names the component's anomaly if that needs a search, and finds a cycle of it. */
static int search_part(struct judge *j, uint32_t part, struct serial_cycle *c)
{
	static const struct {
		enum vb_anomaly name;
		unsigned first, rest;
		uint32_t most;
	} kinds[] = {
		/* Small ones first: through how many one can look depends on it. */
		{VB_ANOMALY_G_SINGLE, SERIAL_ANTI, SERIAL_SEEN, 2},
		{VB_ANOMALY_G_SINGLE, SERIAL_ANTI, SERIAL_SEEN, 4},
		{VB_ANOMALY_G_SINGLE, SERIAL_ANTI, SERIAL_SEEN, SERIAL_NONE},
		{VB_ANOMALY_LONG_FORK, 0, 0, 0},
		{VB_ANOMALY_WRITE_SKEW, SERIAL_ANTI, SERIAL_ANTI, 2},
		{VB_ANOMALY_G2, SERIAL_DATA, SERIAL_DATA, SERIAL_NONE},
	};
	const uint32_t *members = &j->member[j->first[part]];
	const uint32_t n = j->first[part + 1] - j->first[part];
	struct route r = {.via = SERIAL_NONE, .most = SERIAL_NONE};
	int err = 0;

	if (j->verdict[part] == VB_ANOMALY_LOST_UPDATE)
		return lost_update_cycle(j, part, c);
	if (j->verdict[part] == VB_ANOMALY_G0 || j->verdict[part] == VB_ANOMALY_G1C) {
		bool g0 = j->verdict[part] == VB_ANOMALY_G0;

		r.of = g0 ? j->ww.of : j->seen.of;
		r.first = r.rest = g0 ? SERIAL_BIT(SERIAL_WW) : SERIAL_SEEN;
		return cycle_among(j, &r, members, n, c);
	}
	for (unsigned i = 0; i < VB_ARRAY_SIZE(kinds) && err == 0 && c->n == 0; i++) {
		r.of = j->parts.of;
		r.first = kinds[i].first & j->kinds;
		r.rest = kinds[i].rest & j->kinds;
		r.most = kinds[i].most;
		if (kinds[i].name == VB_ANOMALY_LONG_FORK)
			err = any_in(j, part, &j->apart) ? long_fork_cycle(j, part, c) : 0;
		else
			err = cycle_among(j, &r, members, n, c);
		if (c->n > 0 && kinds[i].name != VB_ANOMALY_LONG_FORK)
			j->verdict[part] = (uint8_t)kinds[i].name;
	}
	if (j->verdict[part] >= VB_ANOMALY_WRITE_SKEW && !any_in(j, part, &j->item))
		j->verdict[part] = VB_ANOMALY_PHANTOM;
	return err;
}

/* Takes the cycle if it is of a worse kind than the one that is kept, or smaller. */
static void offer(struct serial *s, enum vb_anomaly kind, struct serial_cycle *c)
{
	struct serial_cycle drop = *c;

	if (c->n > 0 && (s->cycle.n == 0 || kind < s->cycle_kind ||
			 (kind == s->cycle_kind && c->n < s->cycle.n))) {
		drop = s->cycle;
		s->cycle = *c;
		s->cycle_kind = kind;
	}
	free(drop.node);
	free(drop.kind);
}

static int judge_parts(struct judge *j)
{
	struct serial *s = j->s;
	int err = judge_at_once(j);

	for (uint32_t i = 0; i < j->parts.n && err == 0; i++) {
		struct serial_cycle c = {0};
		bool known = j->verdict[i] != VB_ANOMALY_G2;

		if (s->level == VB_LEVEL_SNAPSHOT && !any_in(j, i, &j->apart))
			continue;
		/* One that is named already is searched only for a story that is better. */
		if (!known || s->cycle.n == 0 || j->verdict[i] < s->cycle_kind ||
		    (j->verdict[i] == s->cycle_kind && s->cycle.n > 2 &&
		     j->search.looks < LOOKS_ALL))
			err = search_part(j, i, &c);
		s->out->found[j->verdict[i]]++;
		offer(s, j->verdict[i], &c);
	}
	return err;
}

/* ---- real time ---- */

/* Components that are there with real time only: no two of their transactions share one without. */
static int judge_real_time(struct judge *j)
{
	struct serial *s = j->s;
	struct route r = {.via = SERIAL_NONE, .most = SERIAL_NONE};
	struct serial_parts parts;
	uint32_t *first = NULL, *member = NULL;
	int err;

	r.first = r.rest = SERIAL_DATA | SERIAL_BIT(SERIAL_RT);
	err = serial_components(&s->graph, r.rest, &parts);
	if (err)
		return err;
	r.of = parts.of;
	if (parts.n > 0)
		err = list_members(&parts, s->graph.nodes, &first, &member);
	for (uint32_t i = 0; i < parts.n && err == 0; i++) {
		struct serial_cycle c = {0};
		bool without = false;

		for (uint32_t k = first[i]; k < first[i + 1] && !without; k++)
			without = member[k] < s->n_txns && j->parts.of[member[k]] != SERIAL_NONE;
		if (without)
			continue;
		s->out->found[VB_ANOMALY_REAL_TIME]++;
		if (s->cycle.n == 0 || (s->cycle_kind == VB_ANOMALY_REAL_TIME && s->cycle.n > 2 &&
					j->search.looks < LOOKS_ALL))
			err = cycle_among(j, &r, &member[first[i]], first[i + 1] - first[i], &c);
		offer(s, VB_ANOMALY_REAL_TIME, &c);
	}
	free(first);
	free(member);
	free(parts.of);
	return err;
}

static void judge_close(struct judge *j)
{
	search_close(&j->search);
	serial_graph_free(&j->unfolded);
	free(j->parts.of);
	free(j->ww.of);
	free(j->seen.of);
	free(j->item.of);
	free(j->apart.of);
	free(j->first);
	free(j->member);
	free(j->verdict);
	free(j->loser);
	free(j->winner);
}

int serial_judge_cycles(struct serial *s)
{
	const bool strict = s->level == VB_LEVEL_STRICT;
	struct judge j = {.s = s, .kinds = serial_kinds(s->level)};
	int err = serial_components(&s->graph, j.kinds, &j.parts);

	if (err)
		return err;
	/* A history without anomalies needs no memory for searching them. */
	if (j.parts.n > 0 || strict)
		err = search_open(&j.search, &s->graph);
	if (err == 0 && j.parts.n > 0)
		err = judge_parts(&j);
	if (err == 0 && strict)
		err = judge_real_time(&j);
	if (err)
		vb_error("no memory for searching the cycles of %u transactions", s->n_txns);
	judge_close(&j);
	return err;
}
