/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the serializability checker share.
 *
 * Transactions, operations, keys and versions are numbered from 0 and lie in flat arrays; links
 * between them are such numbers of 32 bits.  serial_versions.c finds who wrote what and what was
 * seen, serial_graph.c makes the graph and its strongly connected components, serial_cycle.c names
 * and searches the cycles, serial_story.c tells them, and serial.c does these in turn.
 */
#ifndef VB_CHECK_TXN_SERIAL_INNER_H
#define VB_CHECK_TXN_SERIAL_INNER_H

#include "check/txn/serial.h"

#define SERIAL_NONE UINT32_MAX
/*
 * Where more transactions replaced one version than this, its readers are put before these only:
 * the fork is found already, and all pairs would be a number of edges that no memory holds.
 */
#define SERIAL_FORKS 16u

struct serial_txn {
	const struct vb_history_txn *t;
	const struct vb_history_op *ops;
	uint32_t first; /* the number of its first operation */
	uint8_t level;  /* enum vb_level: that it is judged at */
	bool counts;    /* committed, or of unknown outcome and seen */
};

struct serial_key {
	uint64_t key;
	uint32_t loaded; /* its loader's version */
	uint16_t table;
};

/*
 * One version of a key.  The loader's versions of a key are all one here, with the number 0 and no
 * writer: they come before everything that is in the history, whichever numbers they have.
 */
struct serial_version {
	uint64_t number;
	uint32_t key;
	uint32_t writer, op; /* NONE: nobody; the operation's number is among all of the history */
	uint32_t prev;       /* what it replaced, if somebody wrote it and that makes sense */
	uint32_t child;      /* the first of those that replaced it, by transactions that count */
	uint32_t sibling;    /* the next of those that replaced the same one */
};

/* Numbers found by what they stand for: open addressing, 1 + the number in a slot. */
struct serial_slots {
	uint32_t *at;
	uint64_t size; /* a power of two, or 0 */
};

/* PW is the rw edge of a read that found nothing: one by predicate, in Adya's words. */
enum serial_edge { SERIAL_WW, SERIAL_WR, SERIAL_RW, SERIAL_PW, SERIAL_RT };
#define SERIAL_BIT(kind) (1u << (kind))
#define SERIAL_SEEN      (SERIAL_BIT(SERIAL_WW) | SERIAL_BIT(SERIAL_WR))
#define SERIAL_ANTI      (SERIAL_BIT(SERIAL_RW) | SERIAL_BIT(SERIAL_PW))
#define SERIAL_DATA      (SERIAL_SEEN | SERIAL_ANTI)
#define SERIAL_KIND(e)   ((enum serial_edge)((e)&7))
#define SERIAL_TO(e)     ((e) >> 3)

/*
 * The nodes are the transactions, and after them, for real time, the ends of transactions in their
 * order: an edge leads from a transaction to its end, from each end to the next, and from the last
 * end before a transaction began to that transaction.  That is as many edges as three times the
 * transactions, and says the same as an edge from each to all that began after its end.
 */
struct serial_graph {
	uint32_t txns, nodes;
	uint64_t *start; /* of a node's edges; nodes + 1 of them */
	uint32_t *edge;  /* the node that it leads to, times 8, and its kind */
};

struct serial_parts {
	uint32_t n;
	uint32_t *of; /* by node: its strongly connected component, NONE: it is alone in it */
};

/* node[i] comes before node[i + 1] by an edge of kind[i], and the last before the first. */
struct serial_cycle {
	uint32_t n;
	uint32_t *node;
	uint8_t *kind;
};

/* Where an anomaly was found that is no cycle. */
struct serial_sight {
	uint32_t txn, op; /* that saw it; op is among the transaction's */
	uint32_t version; /* what was seen, or for a fork or duplicate, one of the two writes */
	uint32_t other;   /* the other write; of an internal one, the transaction's own operation */
	const char *why;  /* of a malformed version */
};

struct serial {
	const struct vb_serial_params *p;
	struct vb_serial_result *out;
	enum vb_level level; /* the highest of any transaction */
	struct serial_txn *txns;
	uint32_t *saw; /* by operation: the version read, or replaced */
	struct serial_key *keys;
	struct serial_version *versions;
	uint32_t *twins; /* versions that are second writes of a number that another one has */
	uint32_t n_txns, n_ops, n_keys, n_versions, n_twins;
	uint64_t room_keys, room_versions, room_twins;
	struct serial_slots ids, key_slots, version_slots;
	struct serial_graph graph;
	struct serial_cycle cycle; /* the smallest of those of the worst kind */
	enum vb_anomaly cycle_kind;
	struct serial_sight sight[VB_ANOMALIES]; /* the first of each */
	uint64_t malformed;                      /* writes of versions that cannot be: left out */
};

/* Takes the histories' transactions and versions.  -ENOMEM, -EINVAL, -E2BIG: said. */
int serial_load(struct serial *s, const struct vb_history *const *parts, unsigned n);
/* Decides who counts, and links each version to those that replaced it. */
int serial_settle(struct serial *s);
void serial_unload(struct serial *s);
/* The version of this number of the key, NONE: there is none. */
uint32_t serial_find_version(const struct serial *s, uint32_t key, uint64_t number);

/* By this operation, that one transaction comes before another: which kind of rw edge it is. */
static inline enum serial_edge serial_anti(const struct vb_history_op *read)
{
	return read->absent ? SERIAL_PW : SERIAL_RW;
}

/* The edges whose cycles the level refuses; of snapshot isolation, some of them. */
unsigned serial_kinds(enum vb_level level);

/* Does it count that the transaction, by this read, comes before another? */
static inline bool serial_reads_long(const struct serial_txn *x, const struct vb_history_op *read)
{
	return serial_kinds((enum vb_level)x->level) & SERIAL_BIT(serial_anti(read));
}

/* Did the transaction make this operation's version by an earlier one? */
bool serial_is_told(const struct serial_txn *x, uint32_t op);

static inline bool serial_counts(const struct serial *s, uint32_t txn)
{
	return txn != SERIAL_NONE && s->txns[txn].counts;
}

int serial_graph_build(struct serial *s);
/*
 * The graph's edges of these kinds of data, with each transaction twice: as i, come to by a ww or wr
 * edge, and as i + txns, come to by an rw edge, from which no rw edge leads on.  So its cycles are
 * those of the graph in which no two rw edges follow each other.  -ENOMEM.
 */
int serial_graph_unfold(const struct serial_graph *g, unsigned kinds, struct serial_graph *out);
void serial_graph_free(struct serial_graph *g);
/* Components of the graph with edges of these kinds only; free `of`.  -ENOMEM. */
int serial_components(const struct serial_graph *g, unsigned kinds, struct serial_parts *out);

/* Counts the components by the anomaly that they show and keeps a cycle of the worst.  -ENOMEM. */
int serial_judge_cycles(struct serial *s);

/* Tells `first`; NULL: no memory. */
char *serial_story(const struct serial *s, enum vb_anomaly first);

#endif
