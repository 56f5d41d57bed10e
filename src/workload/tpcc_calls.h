/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How TPC-C's transactions call the engine; see tpcc_db.h.
 *
 * Each is a few rounds: what is known is declared, and what that says decides
 * what comes next. Where a row that must be there is not, the transaction may
 * have read rows of different moments: it goes to its commit, which then fails.
 * If that succeeds, `strange` says what is wrong.
 */
#ifndef VB_WORKLOAD_TPCC_CALLS_H
#define VB_WORKLOAD_TPCC_CALLS_H

#include <errno.h>

#include "workload/tpcc_db.h"

static inline void tpcc_add_key(struct vb_load_client *c, enum vb_tpcc_table t, uint64_t key,
				bool write)
{
	c->key[c->n++] = (struct vb_txn_key){c->load->table[t], key, write};
}

/* The keys from `first` on, together. */
static inline int tpcc_declare(struct vb_load_client *c, struct vb_coordinator *me, unsigned first)
{
	if (tpcc_opts_of(c->load)->no_declare)
		return 0;
	return vb_txn_declare(me, &c->key[first], c->n - first);
}

static inline int tpcc_strange(struct vb_load_client *c, const char *what)
{
	((struct tpcc_drawn *)c->own)->strange = what;
	return -ENOENT;
}

/* A row that must be there; NULL: *err says why, or has said before that
 * nothing is to be done. */
static inline const void *tpcc_get(struct vb_load_client *c, struct vb_coordinator *me,
				   enum vb_tpcc_table t, uint64_t key, int *err)
{
	const void *row;

	if (*err == 0)
		*err = vb_txn_get(me, c->load->table[t], key, &row);
	else
		return NULL;
	if (*err == -ENOENT)
		*err = tpcc_strange(c, c->load->params[t].name);
	return *err == 0 ? row : NULL;
}

static inline void *tpcc_update(struct vb_load_client *c, struct vb_coordinator *me,
				enum vb_tpcc_table t, uint64_t key, int *err)
{
	void *row;

	if (*err == 0)
		*err = vb_txn_update(me, c->load->table[t], key, &row);
	else
		return NULL;
	if (*err == -ENOENT)
		*err = tpcc_strange(c, c->load->params[t].name);
	return *err == 0 ? row : NULL;
}

static inline int tpcc_insert(struct vb_load_client *c, struct vb_coordinator *me,
			      enum vb_tpcc_table t, uint64_t key, const void *row)
{
	int err = vb_txn_insert(me, c->load->table[t], key, row);

	return err == -EEXIST ? tpcc_strange(c, c->load->params[t].name) : err;
}

#endif
