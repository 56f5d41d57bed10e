/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Histories of transactions: what each read and wrote, by the versions that the store itself knows.
 *
 * A *history* is one flat piece of memory with one writer, shared with the parent of a forked
 * worker and still there when the worker has been killed.  A run has one per worker; the checker
 * (serial.h) takes them together.
 *
 * Versions.  The store gives every write of a key a version that no other write of that key has,
 * and knows which version it replaced.  So who wrote what a transaction read (reads-from) and in
 * which order a key's versions came (each write names its predecessor) are known and not guessed.
 * Versions below VB_HISTORY_FIRST are the loader's: they have no writer.
 */
#ifndef VB_CHECK_TXN_HISTORY_H
#define VB_CHECK_TXN_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define VB_HISTORY_FIRST   8u /* smaller versions are the loader's */
#define VB_HISTORY_OPS_MAX 4096u

enum vb_history_outcome {
	VB_HISTORY_COMMITTED,
	VB_HISTORY_ABORTED,
	/* Its client died, or lost the answer, after it had asked for the commit: it counts as
	 * committed if anybody saw a version of its, else as aborted. */
	VB_HISTORY_UNKNOWN,
};

/* What a history may claim, and is judged at: doc/histories.md says what each refuses. */
enum vb_level {
	VB_LEVEL_NONE, /* of a history: nothing is claimed, to be judged as serializable */
	VB_LEVEL_READ_COMMITTED,
	VB_LEVEL_REPEATABLE_READ,
	VB_LEVEL_SNAPSHOT,
	VB_LEVEL_SERIALIZABLE,
	VB_LEVEL_STRICT, /* serializable in an order that agrees with time */
	VB_LEVELS
};
extern const char *const vb_level_names[VB_LEVELS]; /* "none", "read-committed", ... */

enum vb_history_kind { VB_HISTORY_READ, VB_HISTORY_WRITE };

struct vb_history_op {
	uint64_t key;
	uint64_t version; /* read, or made */
	uint64_t prev;    /* writes: the version that this one replaced */
	uint16_t table;
	uint8_t kind; /* enum vb_history_kind */
	uint8_t absent; /* the version says that there is no such record (deleted, not yet inserted) */
	uint32_t unused;
};

struct vb_history_txn {
	uint64_t id;               /* unique in the run */
	uint64_t begin_ns, end_ns; /* one clock for all; end: when the client knew the outcome */
	uint32_t n_ops;            /* up to VB_HISTORY_OPS_MAX */
	uint16_t client;
	uint8_t outcome; /* enum vb_history_outcome */
	uint8_t type;    /* the workload's number for the kind of transaction */
	uint8_t level;   /* enum vb_level: its own; NONE: as the history */
	uint8_t unused[7];
};

struct vb_history;

/* A history of at most `bytes`; memory is taken from the machine as it is filled.  -ENOMEM, said.
 */
int vb_history_open(size_t bytes, struct vb_history **out);
void vb_history_close(struct vb_history *h);

/* Appends a transaction with its operations in the order in which they happened; a transaction that
 * reads a key and then writes it has both.  False: it is full, and nothing was appended. */
bool vb_history_add(struct vb_history *h, const struct vb_history_txn *t,
		    const struct vb_history_op *ops);

/* Walks the history: *at starts at 0; false at the end. */
bool vb_history_next(const struct vb_history *h, uint64_t *at, const struct vb_history_txn **t,
		     const struct vb_history_op **ops);
uint64_t vb_history_count(const struct vb_history *h);

void vb_history_claim(struct vb_history *h, enum vb_level level);
enum vb_level vb_history_claimed(const struct vb_history *h);

#endif
