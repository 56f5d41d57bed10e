/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workloads of transactions.
 *
 * A workload is one file in src/workload with one `const struct vb_load_ops`: which tables it has,
 * what their records are at the beginning, how a client draws its next transaction, what that does,
 * and what must be true of all records in the end, whatever was interleaved.
 *
 *	vb_load_init(&load, ops, options, nodes, seed);    what it needs is known from here on
 *	vb_load_db_params(&load, &db_params);
 *	vb_load_open(&load, db);                           in every process, in the same order
 *	load.ops->fill(&load, node, ...);                  once for each node
 *	vb_load_client_open(&load, node, number, &client);
 *	do {
 *		load.ops->next(&client);                   draws; then, again and again until it commits:
 *		vb_txn_begin(me), load.ops->body(&client, me), vb_txn_commit(me)
 *	} while (...);
 *	load.ops->count(&load, node, &sums);               when everybody has stopped, for each node
 *	load.ops->judge(&load, &sums, change, why);
 *
 * A drawn transaction depends on the seed and the client's number only, not on what happens to it:
 * the same seed gives the same transactions under every protocol and on every fabric.
 */
#ifndef VB_WORKLOAD_LOAD_H
#define VB_WORKLOAD_LOAD_H

#include <verbena/txn.h>

#include "base/opt.h"
#include "base/rng.h"

#define VB_LOAD_TYPES_MAX   8u /* kinds of transactions */
#define VB_LOAD_TABLES_MAX  16u
#define VB_LOAD_CHANGES_MAX 4u
#define VB_LOAD_WHY         256u
#define VB_LOAD_VALUES_MAX  18u

/* body: the transaction has looked and wants to be rolled back; it is done. */
#define VB_LOAD_ROLLBACK 1
/* body: what it looked for is not there, or what it would add is.  It may commit, which validates
 * that, and counts as rolled back; its changes are 0. */
#define VB_LOAD_ABSENT 2
/* body: it has no room for what it would add.  It is rolled back, and ends the run. */
#define VB_LOAD_FULL 3

struct vb_load_ops;

struct vb_load {
	const struct vb_load_ops *ops;
	const void *options; /* the workload's own struct */
	uint16_t nodes;
	uint64_t seed;     /* of what the tables hold at first */
	uint64_t drawn_by; /* of what clients draw: the same, unless others fill the tables */
	/* What ops->init says that it needs. */
	struct vb_table_params params[VB_LOAD_TABLES_MAX];
	unsigned n_tables;
	uint32_t items, bytes, record_bytes_max; /* most that one transaction touches */
	void *own;    /* the workload's, malloc'ed; vb_load_close frees it */
	void *shared; /* see vb_load_share */
	size_t shared_bytes;
	/* After vb_load_open. */
	struct vb_table *table[VB_LOAD_TABLES_MAX];
};

/* One client's view: its stream of random numbers, and the transaction that it has drawn. */
struct vb_load_client {
	const struct vb_load *load;
	struct vb_rng rng;
	uint16_t node;
	unsigned number; /* of all clients */
	unsigned type;   /* of the drawn transaction: index into ops->types */
	unsigned n;      /* keys of it */
	bool scouts;     /* ops->scout comes before it */
	struct vb_txn_key *key;
	int64_t amount; /* drawn; what it means is the workload's */
	/* What the attempt that ran last adds to the sums that ops->judge compares, if it
	 * commits. */
	int64_t change[VB_LOAD_CHANGES_MAX];
	int64_t seen;          /* by the attempt that ran last */
	unsigned char *record; /* room for one record */
	void *own;             /* ops->client_bytes, at first 0 */
	char why[VB_LOAD_WHY]; /* after body or committed has found something wrong: what */
};

/* Everything that all records of some nodes hold; sums of several nodes are added word by word. */
struct vb_load_sums {
	uint64_t value[VB_LOAD_VALUES_MAX]; /* the workload's, modulo 2^64 */
	uint64_t records;
	uint64_t absent; /* keys without a record that should have one */
	uint64_t
		locked; /* tuples that somebody still has, to write or to read, though nobody is left */
	uint64_t wrong; /* records that nobody can have written so */
};

/* Told now and then how many records are in place; false: give it up. */
struct vb_load_progress {
	bool (*step)(void *ctx, uint64_t done);
	void *ctx;
};

struct vb_load_ops {
	const char *name, *summary;
	const struct vb_opt *options;
	size_t options_bytes;
	const char *const *types; /* names of the kinds of transactions */
	unsigned n_types;
	size_t client_bytes; /* of the workload's own in a client */
	/* Is all that a transaction touches declared in one call, before it touches anything?  NULL: it is not. */
	bool (*declares)(const struct vb_load *l);

	/* Checks the options and says what is needed.  -EINVAL, -ENOMEM: said. */
	int (*init)(struct vb_load *l);
	/* Puts the records of one node in place; what a record holds depends on seed and key only.
	 * -EINTR: given up; else the store's error. */
	int (*fill)(struct vb_load *l, uint16_t node, const struct vb_load_progress *progress);
	/* How many records fill puts on all nodes together, for progress. */
	uint64_t (*records)(const struct vb_load *l);
	/* Draws the client's next transaction: type, keys, amounts. */
	void (*next)(struct vb_load_client *c);
	/* Reads what the drawn transaction's keys depend on, in a transaction of its own before the first try.  Returns
	 * what body does.  May be NULL. */
	int (*scout)(struct vb_load_client *c, struct vb_coordinator *me);
	/* Does it, between begin and commit; called again unchanged when it has to be tried again.
	 * 0: it may commit; VB_LOAD_ROLLBACK, _ABSENT or _FULL; -EBADMSG: it has read what cannot be (c->why); or
	 * what a call has returned. */
	int (*body)(struct vb_load_client *c, struct vb_coordinator *me);
	/* After its commit: was what it has seen possible?  -EBADMSG, with c->why.  May be NULL. */
	int (*committed)(struct vb_load_client *c);
	/* Adds up the node's records.  Nobody runs transactions any more. */
	void (*count)(const struct vb_load *l, uint16_t node, struct vb_load_sums *sums);
	/* By how much the records' sums are others than at first: what ops->judge compares with the changes that were
	 * added up.  NULL: no transaction changes any. */
	void (*moved)(const struct vb_load *l, const struct vb_load_sums *sums,
		      int64_t moved[VB_LOAD_CHANGES_MAX]);
	/* Is that what the committed transactions, whose changes have been added up, have made of
	 * it?  0, or
	 * -EBADMSG and a line that says what is wrong. */
	int (*judge)(const struct vb_load *l, const struct vb_load_sums *sums,
		     const int64_t *change, char *why, size_t size);
};

/* All workloads, NULL at the end; and by name. */
extern const struct vb_load_ops *const vb_loads[];
const struct vb_load_ops *vb_load_find(const char *name);

/* options stay the caller's, and must stay. */
int vb_load_init(struct vb_load *l, const struct vb_load_ops *ops, const void *options,
		 uint16_t nodes, uint64_t seed);
void vb_load_close(struct vb_load *l);
/* Zeroed memory that this process has in common with those that it forks later, until each has closed the load.  Asked
 * for once, by ops->init.  NULL: there is none. */
void *vb_load_share(struct vb_load *l, size_t bytes);
void vb_load_unshare(struct vb_load *l);
/* Sets items_max, bytes_max and record_bytes_max. */
void vb_load_db_params(const struct vb_load *l, struct vb_db_params *p);
/* Bytes of each node's segment that the tables take. */
uint64_t vb_load_node_bytes(const struct vb_load *l, const struct vb_db_params *p);
int vb_load_open(struct vb_load *l, struct vb_db *db);
/* -ENOMEM, said. */
int vb_load_client_open(const struct vb_load *l, uint16_t node, unsigned number,
			struct vb_load_client *c);
void vb_load_client_close(struct vb_load_client *c);

/* ---- what workloads have in common ---- */

/* A word that depends on these three only. */
uint64_t vb_load_mix(uint64_t seed, uint64_t key, uint64_t salt);

/* Gives the record its first word, and the last that belongs to it and the key; does it belong? */
void vb_load_stamp(void *record, size_t bytes, uint64_t key, uint64_t w);
bool vb_load_is_whole(const void *record, size_t bytes, uint64_t key);

/* The record of a key, in the memory of its node, which this process reaches or has a copy of
 * (vb_table_mirror); NULL: there is none.
 * Counts it, and whether somebody still has it or its place.  Nobody runs transactions any more. */
const void *vb_load_record(const struct vb_load *l, unsigned table, uint64_t key,
			   struct vb_load_sums *sums);

/* How many records a node has of a table. */
uint64_t vb_load_present(const struct vb_load *l, unsigned table, uint16_t node);

/* For tables with keys 0 .. records - 1 and VB_PARTITION_MOD: loads a node's share of them, with
 * what `make` puts into the record; *done counts on over several tables. */
int vb_load_fill_dense(struct vb_load *l, unsigned table, uint16_t node,
		       void (*make)(const struct vb_load *l, unsigned table, uint64_t key,
				    void *record),
		       const struct vb_load_progress *progress, uint64_t *done);
/* Shows a node's share of them to `look`. */
void vb_load_count_dense(const struct vb_load *l, unsigned table, uint16_t node,
			 void (*look)(const struct vb_load *l, unsigned table, uint64_t key,
				      const void *record, struct vb_load_sums *sums),
			 struct vb_load_sums *sums);
/* A lock that is left.  0, or -EBADMSG with a line. */
int vb_load_judge_locks(const struct vb_load_sums *sums, char *why, size_t size);
/* What no workload tolerates: absent, locked or impossible records.  0, or -EBADMSG with a line. */
int vb_load_judge_records(const struct vb_load_sums *sums, char *why, size_t size);
/* The same key in the first n of the drawn ones, of this table? */
bool vb_load_has_key(const struct vb_load_client *c, unsigned n, const struct vb_table *table,
		     uint64_t key);

/* The flag no_declare of a workload's options, which all that declare their keys have. */
#define VB_LOAD_OPT_NO_DECLARE(type)                                                               \
	VB_OPT_FLAG(type, no_declare, "no-declare",                                                \
		    "do not tell the engine the keys beforehand: records are looked up, locked "   \
		    "and fetched one after the other")

#endif
