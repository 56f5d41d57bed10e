/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traces as text, one lock a line, as public traces of lock managers have them (doc/traces.md):
 *
 *	transaction,0,type,lock,mode
 *
 * Lines of one transaction follow each other.  The mode is 1 or S for shared, 2 or X for exclusive,
 * U for update, IS, IX or SIX for the intention modes.
 */
#ifndef VB_WORKLOAD_TRACE_FILE_H
#define VB_WORKLOAD_TRACE_FILE_H

#include <stdio.h>

#include "workload/trace.h"

#define VB_TRACE_NAME_MAX     32u
#define VB_TRACE_THINK_MAX_NS 3600000000000ull /* as of --think */

/* The transactions of a text. */
struct vb_trace_book {
	uint64_t n_txns, n_locks;
	uint64_t *first; /* [n_txns + 1]: index of a transaction's first lock */
	uint8_t *type;   /* [n_txns] */
	uint64_t *lock;  /* [n_locks]: number * 8 + mode */
	uint64_t locks;  /* numbers are below this */
	unsigned locks_max;
	uint32_t modes;
	uint64_t think_ns; /* of a line "# think_ns N"; else 0 */
	unsigned n_types;
	uint64_t number[VB_TRACE_TYPES_MAX]; /* of a type in the text */
	char names[VB_TRACE_TYPES_MAX][VB_TRACE_NAME_MAX];
	const char *types[VB_TRACE_TYPES_MAX]; /* the names */
};

/* name: the text's, for errors, which name the line, too.  -EINVAL, -ENOMEM: said. */
int vb_trace_book_read(const char *name, const char *text, size_t size, struct vb_trace_book **out);
void vb_trace_book_close(struct vb_trace_book *b);

/* One transaction as text.  Types are numbered from 1. */
void vb_trace_write(FILE *to, uint64_t id, const struct vb_trace_txn *txn);
/* What vb_trace_book_read understands of comments: the types' names and the time to think. */
void vb_trace_write_head(FILE *to, const struct vb_trace *t);

extern const struct vb_trace_ops vb_trace_file;

#endif
