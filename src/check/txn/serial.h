/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An exact checker of isolation.
 *
 * From histories (history.h) it builds the direct serialization graph of Adya (1999): an
 * edge from the writer of a version to its readers (wr), to the writer of the next version (ww),
 * and from the readers of a version to the writer of the next (rw).  The versions and their order
 * are the store's own, so the graph is the graph, not an estimate.  Each level (enum vb_level)
 * refuses some of its cycles:
 *
 *   read committed       cycles without an rw edge
 *   repeatable read      also those whose rw edges are all of reads that found something
 *   snapshot             cycles in which no two rw edges follow each other
 *   serializable         all
 *   strict serializable  all, with an edge from each transaction to those that began after it had
 *                        ended (rt)
 *
 * and every level refuses what is no cycle: see the enum.
 *
 * Transactions of several levels are judged together by the mixed graph of Adya, Liskov and O'Neil
 * (2000): an rw edge counts if the level of the transaction that has read refuses it, an rt edge if
 * the one that came later is strict.  Snapshot isolation is no matter of single edges, and is not
 * mixed with others.
 */
#ifndef VB_CHECK_TXN_SERIAL_H
#define VB_CHECK_TXN_SERIAL_H

#include "check/lines.h"
#include "check/txn/history.h"

enum vb_anomaly {
	VB_ANOMALY_NONE,
	VB_ANOMALY_MALFORMED, /* a write of a version that cannot be: the others may follow from it */
	VB_ANOMALY_G0,        /* a cycle of ww edges: writes of two transactions interleaved */
	VB_ANOMALY_G1A,       /* a version was read whose writer aborted */
	VB_ANOMALY_G1B,       /* a version was read that its writer replaced itself */
	VB_ANOMALY_G1C,       /* a cycle of ww and wr edges */
	VB_ANOMALY_LOST_UPDATE, /* a key was written by who had read a version that another replaced */
	VB_ANOMALY_G_SINGLE,    /* a cycle with exactly one rw edge (read skew) */
	VB_ANOMALY_LONG_FORK,  /* a cycle with more, of which no two follow each other */
	VB_ANOMALY_WRITE_SKEW, /* two transactions, each of which read what the other replaced */
	VB_ANOMALY_G2,         /* any other cycle */
	VB_ANOMALY_PHANTOM,    /* one of the two before, which needs a read that found nothing */
	VB_ANOMALY_REAL_TIME,  /* a cycle that needs an rt edge: serializable, but not strictly */
	VB_ANOMALY_DUPLICATE,  /* two writes made the same version */
	VB_ANOMALY_FORK,       /* two writes replaced the same version: one is lost */
	VB_ANOMALY_GHOST,      /* a version that nobody wrote */
	VB_ANOMALY_INTERNAL,   /* a read beside what the transaction itself had read or written */
	VB_ANOMALIES
};
extern const char *const vb_anomaly_names[VB_ANOMALIES]; /* "G0", "G1a", ..., "lost update", ... */

struct vb_serial_params {
	const struct vb_history *const *parts;
	unsigned n_parts;
	enum vb_level level;            /* to judge at; what the histories claim is not looked at */
	bool each;                      /* but a transaction with a level of its own at that */
	const char *const *table_names; /* for stories; NULL: numbers */
	const char *const *type_names;  /* for stories; NULL: numbers */
	unsigned n_tables, n_types;
};

struct vb_serial_result {
	uint64_t txns, committed, aborted, unknown, reads, writes, keys, edges;
	/* At least so many: one for each strongly connected component, and one for each place where
	 * an anomaly that is no cycle was seen. */
	uint64_t found[VB_ANOMALIES];
	/* How many were judged at each level; the highest of these. */
	uint64_t at[VB_LEVELS];
	enum vb_level level;
	enum vb_anomaly first; /* the worst by the order of the enum, NONE: the level holds */
	double seconds;
	/* Of the first: the smallest cycle through it, told line by line; free(); NULL if none. */
	char *story;
};

/*
 * 0: checked, *out says what was found, also where versions make no sense.  -ENOMEM, -EINVAL (the
 * same id twice, no operation, an end before the beginning, snapshot isolation beside another level),
 * -E2BIG: said.
 */
int vb_serial_check(const struct vb_serial_params *p, struct vb_serial_result *out);
void vb_serial_result_free(struct vb_serial_result *r);

/* One JSON object a line; doc/histories.md has the fields.  What they claim, unless that is nothing,
 * is said in a line before them.  -errno, said. */
int vb_history_write_jsonl(const struct vb_history *const *parts, unsigned n, enum vb_level claim,
			   FILE *to);
/* Elle's list-append: a version of a key becomes an element of a list that each write appends to.
 * A read of a version is the list of all versions up to it. */
int vb_history_write_edn(const struct vb_history *const *parts, unsigned n, FILE *to);
/* The text of PolySI and IsoVista: a read or write of a register is a line, by those that count. */
int vb_history_write_text(const struct vb_history *const *parts, unsigned n, FILE *to);
/* Reads what vb_history_write_jsonl wrote, or anything of that form; -EINVAL names the line. */
int vb_history_read_jsonl(FILE *from, const char *name, struct vb_history **out);
int vb_history_read_lines(struct vb_lines *lines, struct vb_history **out);

#endif
