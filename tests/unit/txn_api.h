/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of include/verbena/txn.h share: a small database on two nodes of a private fabric,
 * its servers as tasks of the test's thread, and two coordinators; and a list of tests made for
 * every protocol, one-sided and by RPC.  With PROTOCOL defined, for that one only:
 *
 *	#define PROTOCOL vb_cc_mine
 *	#include "test_txn_isolation.c"
 */
#ifndef VB_TESTS_TXN_API_H
#define VB_TESTS_TXN_API_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <verbena/txn.h>

#include "base/log.h"
#include "fabric/hook/hooks.h"
#include "task/task.h"
#include "txn/db.h"

#define NODES     2
#define RECORDS   64 /* there is room for */
#define LOADED    16 /* keys from 0, each with FIRST + key */
#define FIRST     100
#define ITEMS_MAX 16

/* Longer than any test that is not about waiting, and shorter than patience for those that are. */
#define LONG_NS  20000000000ull
#define SHORT_NS 30000000ull

struct record {
	uint64_t value, other;
};

#ifdef PROTOCOL
extern const struct vb_cc_ops PROTOCOL;
static const struct vb_cc_ops *const protocols[] = {&PROTOCOL, NULL};
#else
#define protocols vb_ccs
#endif

/* hybrid: NULL: every stage is one-sided. */
struct kind {
	const struct vb_cc_ops *ops;
	const char *hybrid, *fabric;
};

struct world {
	struct vb_fabric *f;
	struct vb_db *db;
	struct vb_table *t;
	struct vb_db_server *server[NODES];
	struct vb_coordinator *a, *b; /* at nodes 0 and 1 */
};

#define must(call) assert_int_equal(call, 0)

/* The call says so, and the log says why. */
#define refused(call, wanted)                                                                      \
	do {                                                                                       \
		char text_[1024];                                                                  \
		int err_;                                                                          \
                                                                                                   \
		vb_log_capture_begin(text_, sizeof(text_));                                        \
		err_ = (call);                                                                     \
		vb_log_capture_end();                                                              \
		assert_int_equal(err_, wanted);                                                    \
		assert_true(text_[0] != '\0');                                                     \
	} while (0)

/* Have transactions the order of their clocks, whoever comes first? */
static inline bool by_clocks(const struct vb_cc_ops *ops)
{
	return strcmp(ops->name, "mvcc") == 0 || strcmp(ops->name, "mvcc-rcc") == 0 ||
	       strcmp(ops->name, "cicada") == 0 || strcmp(ops->name, "to") == 0 ||
	       strcmp(ops->name, "to-cascade") == 0;
}

/* Is what is written locked before the transaction's end, and what is read not? */
static inline bool locks_writes_early(const struct kind *k)
{
	return strcmp(k->ops->name, "sundial") == 0 ||
	       (by_clocks(k->ops) && strcmp(k->ops->name, "cicada") != 0);
}

static inline const char *fabric_of(void **state)
{
	const struct kind *k = *state;

	return k->fabric;
}

static inline bool on_verbs(const char *fabric)
{
	return fabric != NULL && strcmp(fabric, "verbs") == 0;
}

static inline struct vb_db_params usual_db(const struct kind *k, uint64_t lease_ns)
{
	/* A card's verbs may take so long that a short lease is the shortest there. */
	if (on_verbs(k->fabric) && lease_ns == SHORT_NS)
		lease_ns = 0;
	return (struct vb_db_params){
		.cc = k->ops->name,
		.hybrid = k->hybrid,
		.coordinators = 8,
		.items_max = ITEMS_MAX,
		.record_bytes_max = 64,
		.bytes_max = 1024,
		.lease_ns = lease_ns,
	};
}

static const struct vb_table_params usual_table = {
	.name = "account", .record_bytes = sizeof(struct record), .records = RECORDS};

/* On verbs all nodes are of this process, and are reached through the card. */
static inline void open_fabric(struct vb_fabric **f, const char *fabric, uint64_t node_bytes)
{
	const char *device = getenv("VERBENA_VERBS_DEVICE");
	char options[128];

	snprintf(options, sizeof(options), "timeout=11,retries=2%s%s", device ? ",device=" : "",
		 device ? device : "");
	must(vb_fabric_open(&(struct vb_fabric_params){.fabric = fabric,
						       .options = on_verbs(fabric) ? options : NULL,
						       .nodes = NODES,
						       .node_bytes = node_bytes,
						       .endpoints = 32},
			    f));
}

static inline void load(struct vb_table *t)
{
	for (uint64_t key = 0; key < LOADED; key++)
		must(vb_table_load(t, key, &(struct record){.value = FIRST + key}));
}

static inline void start_servers(struct world *w)
{
	for (uint16_t i = 0; i < NODES; i++)
		must(vb_db_server_start(w->db, i, &w->server[i]));
}

static inline void stop_servers(struct world *w)
{
	for (uint16_t i = 0; i < NODES; i++) {
		vb_db_server_stop(w->server[i]);
		w->server[i] = NULL;
	}
}

static inline void open_db(struct world *w, const char *fabric, const struct vb_db_params *p)
{
	*w = (struct world){0};
	open_fabric(&w->f, fabric, on_verbs(fabric) ? 4 << 20 : 16 << 20);
	must(vb_db_open(w->f, p, &w->db));
	must(vb_table_open(w->db, &usual_table, &w->t));
	load(w->t);
}

static inline void open_world(struct world *w, const char *fabric, const struct vb_db_params *p)
{
	open_db(w, fabric, p);
	start_servers(w);
	must(vb_coordinator_open(w->db, 0, &w->a));
	must(vb_coordinator_open(w->db, 1, &w->b));
}

/* As open_world, with endpoints on a hook, whose operations may be tampered with: the simulator wants its own as
 * they are. */
static inline void open_hooked(struct world *w, void **state, const struct vb_db_params *p)
{
	*w = (struct world){0};
	open_fabric(&w->f, fabric_of(state), 16 << 20);
	must(vb_hook_count(w->f, &w->f));
	must(vb_db_open(w->f, p, &w->db));
	must(vb_table_open(w->db, &usual_table, &w->t));
	load(w->t);
	start_servers(w);
	must(vb_coordinator_open(w->db, 0, &w->a));
	must(vb_coordinator_open(w->db, 1, &w->b));
}

static inline void close_world(struct world *w)
{
	vb_coordinator_close(w->a);
	vb_coordinator_close(w->b);
	stop_servers(w);
	assert_int_equal(vb_db_close(w->db), 0);
	assert_int_equal(vb_fabric_close(w->f), 0);
}

static inline void open_usual(struct world *w, void **state, uint64_t lease_ns)
{
	const struct kind *k = *state;
	struct vb_db_params p = usual_db(k, lease_ns);

	open_world(w, k->fabric, &p);
}

/* ---- one transaction each ---- */

/* Where it counts who is younger, whoever begins behind this is younger than all that have begun: clocks
 * of timestamps have units of 2 us. */
static inline void tick(struct vb_coordinator *me)
{
	if (by_clocks(me->db->cc))
		must(vb_ep_sleep(me->ep, 4000));
}

/* Nobody else is there: it commits, unless the machine is so slow that a lease passes. */
#define alone(me, call)                                                                            \
	do {                                                                                       \
		int err_;                                                                          \
                                                                                                   \
		do {                                                                               \
			must(vb_txn_begin(me));                                                    \
			err_ = (call);                                                             \
			if (err_ == 0)                                                             \
				err_ = vb_txn_commit(me);                                          \
		} while (err_ == -EAGAIN);                                                         \
		assert_int_equal(err_, 0);                                                         \
		tick(me);                                                                          \
	} while (0)

static inline uint64_t value_of(struct vb_coordinator *me, struct vb_table *t, uint64_t key)
{
	struct record r = {0};

	tick(me); /* whatever has been committed by now */
	alone(me, vb_txn_read(me, t, key, &r));
	return r.value;
}

static inline int find_none(struct vb_coordinator *me, struct vb_table *t, uint64_t key)
{
	struct record r;
	int err = vb_txn_read(me, t, key, &r);

	return err == -ENOENT ? 0 : err == 0 ? -EEXIST : err;
}

#define assert_none(me, t, key) alone(me, find_none(me, t, key))

/* ---- tests for every protocol ---- */

struct case_for_all {
	const char *name;
	CMUnitTestFunction run;
};

#define KINDS_MAX 128
#define TESTS_MAX 4096

static struct kind kinds[KINDS_MAX];
static char test_names[TESTS_MAX][96];

static inline bool is_named(const struct vb_cc_ops *ops, char *const *names, int n)
{
	for (int i = 0; i < n; i++)
		if (strcmp(names[i], ops->name) == 0)
			return true;
	return n <= 0;
}

/*
 * Fills `tests` with every case for every protocol, one-sided and by RPC, on each of the fabrics;
 * how many there are.  The test's arguments choose otherwise: a fabric and, behind it, protocols.
 */
static inline size_t tests_for_all(int argc, char **argv, const char *const *fabrics,
				   const struct case_for_all *cases, size_t n_cases,
				   struct CMUnitTest *tests)
{
	const char *const one[] = {argc > 1 ? argv[1] : NULL, NULL};
	unsigned n_kinds = 0;
	size_t n = 0;

	if (argc > 1)
		fabrics = one;
	for (; *fabrics != NULL; fabrics++)
		for (const struct vb_cc_ops *const *c = protocols; *c != NULL; c++) {
			if (!is_named(*c, argv + 2, argc - 2))
				continue;
#if defined(VB_TSAN) && !defined(PROTOCOL)
			/* A simulation has one thread. */
			if (argc <= 1 && strcmp(*fabrics, "sim") == 0)
				continue;
#endif
			vb_assert(n_kinds + 2 <= KINDS_MAX);
			kinds[n_kinds++] = (struct kind){*c, (*c)->code, *fabrics};
			if (vb_cc_takes(*c, "rpc"))
				kinds[n_kinds++] = (struct kind){*c, "rpc", *fabrics};
		}
#ifdef PROTOCOL
	vb_cc_register(protocols);
#endif
	for (unsigned k = 0; k < n_kinds; k++)
		for (size_t i = 0; i < n_cases; i++, n++) {
			vb_assert(n < TESTS_MAX);
			snprintf(test_names[n], sizeof(test_names[n]), "%s %s%s: %s",
				 kinds[k].fabric, kinds[k].ops->name,
				 kinds[k].hybrid != NULL && kinds[k].ops->code == NULL ? " rpc"
										       : "",
				 cases[i].name);
			tests[n] = (struct CMUnitTest){.name = test_names[n],
						       .test_func = cases[i].run,
						       .initial_state = &kinds[k]};
		}
	return n;
}

#endif
