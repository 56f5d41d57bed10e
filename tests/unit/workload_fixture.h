/* SPDX-License-Identifier: Apache-2.0 */
/* A workload of transactions, on a simulated fabric, and what its transactions become. */
#ifndef VERBENA_TEST_WORKLOAD_FIXTURE_H
#define VERBENA_TEST_WORKLOAD_FIXTURE_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "txn/db.h"
#include "workload/load.h"

#define DRAWS 20000u

/* A workload with its options, on a simulated fabric that is filled. */
struct fixture {
	char options[256];
	struct vb_load load;
	struct vb_fabric *fabric;
	struct vb_db *db;
};

static inline bool step(void *ctx, uint64_t done)
{
	(void)ctx;
	return done < UINT64_MAX;
}

static inline int open_load(struct fixture *g, const char *name, const char *list, uint16_t nodes,
			    uint64_t seed)
{
	const struct vb_load_ops *ops = vb_load_find(name);

	assert_non_null(ops);
	memset(g, 0, sizeof(*g));
	assert_true(ops->options_bytes <= sizeof(g->options));
	vb_opt_defaults(ops->options, g->options);
	assert_int_equal(vb_opt_parse_list(ops->options, g->options, list), 0);
	return vb_load_init(&g->load, ops, g->options, nodes, seed);
}

static inline void open_fixture(struct fixture *g, const char *name, const char *list,
				uint16_t nodes)
{
	const struct vb_load_progress progress = {.step = step};
	struct vb_db_params p = {.cc = "no-wait", .coordinators = 4};
	struct vb_fabric_params f = {.fabric = "sim", .nodes = nodes, .endpoints = 64};

	assert_int_equal(open_load(g, name, list, nodes, 7), 0);
	vb_load_db_params(&g->load, &p);
	f.node_bytes = vb_db_node_bytes(&p, nodes) + vb_load_node_bytes(&g->load, &p) + (1 << 20);
	assert_int_equal(vb_fabric_open(&f, &g->fabric), 0);
	assert_int_equal(vb_db_open(g->fabric, &p, &g->db), 0);
	assert_int_equal(vb_load_open(&g->load, g->db), 0);
	for (uint16_t node = 0; node < nodes; node++)
		assert_int_equal(g->load.ops->fill(&g->load, node, &progress), 0);
}

static inline void close_fixture(struct fixture *g)
{
	vb_db_close(g->db);
	if (g->fabric != NULL)
		vb_fabric_close(g->fabric);
	vb_load_close(&g->load);
}

/* How many of the draws were of each type, within a percentage point. */
static inline void assert_mix(struct fixture *g, const unsigned *percent)
{
	unsigned seen[VB_LOAD_TYPES_MAX] = {0};
	struct vb_load_client c;

	assert_int_equal(vb_load_client_open(&g->load, 0, 3, &c), 0);
	for (unsigned i = 0; i < DRAWS; i++) {
		g->load.ops->next(&c);
		assert_true(c.type < g->load.ops->n_types);
		assert_true(c.n <= g->load.items);
		seen[c.type]++;
	}
	for (unsigned t = 0; t < g->load.ops->n_types; t++)
		assert_in_range(seen[t] * 100 / DRAWS + 1, percent[t], percent[t] + 2);
	vb_load_client_close(&c);
}

/* What became of the transactions of one client. */
struct did {
	int64_t change[VB_LOAD_CHANGES_MAX];
	unsigned drawn[VB_LOAD_TYPES_MAX], done[VB_LOAD_TYPES_MAX];
};

/* Runs what the client has drawn; what body has said. */
static inline int run_drawn(struct fixture *g, struct vb_coordinator *me, struct vb_load_client *c,
			    struct did *d)
{
	int err;

	d->drawn[c->type]++;
	if (c->scouts) {
		assert_int_equal(vb_txn_begin(me), 0);
		assert_int_equal(g->load.ops->scout(c, me), 0);
		assert_int_equal(vb_txn_commit(me), 0);
	}
	assert_int_equal(vb_txn_begin(me), 0);
	err = g->load.ops->body(c, me);
	if (err == VB_LOAD_ROLLBACK || err == VB_LOAD_FULL) {
		vb_txn_abort(me);
		return err;
	}
	assert_true(err == 0 || err == VB_LOAD_ABSENT);
	assert_int_equal(vb_txn_commit(me), 0);
	for (unsigned k = 0; k < VB_LOAD_CHANGES_MAX; k++)
		d->change[k] += c->change[k];
	d->done[c->type] += err == 0;
	if (err == 0 && g->load.ops->committed != NULL)
		assert_int_equal(g->load.ops->committed(c), 0);
	return err;
}

static inline void do_one(struct fixture *g, struct vb_coordinator *me, struct vb_load_client *c,
			  struct did *d)
{
	g->load.ops->next(c);
	(void)run_drawn(g, me, c, d);
}

/* A client at node 0 of two, with all that it needs. */
struct ready {
	struct vb_db_server *server[2];
	struct vb_coordinator *me;
	struct vb_load_client c;
	struct did did;
};

static inline void get_ready(struct fixture *g, struct ready *r)
{
	r->did = (struct did){0};
	for (uint16_t node = 0; node < 2; node++)
		assert_int_equal(vb_db_server_start(g->db, node, &r->server[node]), 0);
	assert_int_equal(vb_coordinator_open(g->db, 0, &r->me), 0);
	assert_int_equal(vb_load_client_open(&g->load, 0, 0, &r->c), 0);
}

static inline void get_done(struct ready *r)
{
	vb_coordinator_close(r->me);
	for (uint16_t node = 0; node < 2; node++)
		vb_db_server_stop(r->server[node]);
	vb_load_client_close(&r->c);
}

/* So many transactions, one after the other. */
static inline void do_many(struct fixture *g, unsigned n, struct did *d)
{
	struct ready r;

	get_ready(g, &r);
	for (unsigned i = 0; i < n; i++)
		do_one(g, r.me, &r.c, &r.did);
	get_done(&r);
	*d = r.did;
}

static inline int judge_all(struct fixture *g, const int64_t *change, char *why)
{
	struct vb_load_sums sums = {0};

	for (uint16_t node = 0; node < 2; node++)
		g->load.ops->count(&g->load, node, &sums);
	return g->load.ops->judge(&g->load, &sums, change, why, VB_LOAD_WHY);
}

/* The version word of a record, as its owner has it; present or not. */
static inline uint64_t *version_of(struct fixture *g, unsigned table, uint64_t key)
{
	struct vb_table *t = g->load.table[table];
	vb_addr at = vb_table_find(t, vb_table_node(t, key), key);

	assert_int_not_equal(at, 0);
	return vb_local(g->fabric, at + t->layout.version_at, 8);
}

static inline void refused(const char *name, const char *list, const char *word)
{
	char said[512] = "";
	struct fixture g;
	int err;

	vb_log_capture_begin(said, sizeof(said));
	err = open_load(&g, name, list, 2, 1);
	vb_log_capture_end();
	assert_int_equal(err, -EINVAL);
	assert_non_null(strstr(said, word));
	vb_load_close(&g.load);
}

#endif
