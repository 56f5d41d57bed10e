/* SPDX-License-Identifier: Apache-2.0 */
/* Histories for tests: written down by hand, or made by a store that does one transaction at a
 * time. */
#ifndef VB_TESTS_HISTORY_FIXTURE_H
#define VB_TESTS_HISTORY_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "check/txn/serial.h"

#define R(k, v)                                                                                    \
	{                                                                                          \
		.kind = VB_HISTORY_READ, .key = (k), .version = (v)                                \
	}
#define W(k, v, p)                                                                                 \
	{                                                                                          \
		.kind = VB_HISTORY_WRITE, .key = (k), .version = (v), .prev = (p)                  \
	}
#define R_ABSENT(k, v)                                                                             \
	{                                                                                          \
		.kind = VB_HISTORY_READ, .key = (k), .version = (v), .absent = 1                   \
	}
#define DELETE(k, v, p)                                                                            \
	{                                                                                          \
		.kind = VB_HISTORY_WRITE, .key = (k), .version = (v), .prev = (p), .absent = 1     \
	}

static inline struct vb_history *open_history(size_t bytes)
{
	struct vb_history *h;

	assert_int_equal(vb_history_open(bytes, &h), 0);
	return h;
}

static inline void add_txn(struct vb_history *h, struct vb_history_txn t,
			   const struct vb_history_op *ops, size_t n)
{
	t.n_ops = (uint32_t)n;
	assert_true(vb_history_add(h, &t, ops));
}

/* A transaction of client ID; without times given, all are at the same time. */
#define TXN_AT(h, ident, how, from, to, ...)                                                       \
	do {                                                                                       \
		const struct vb_history_op ops_[] = {__VA_ARGS__};                                 \
		add_txn(h,                                                                         \
			(struct vb_history_txn){.id = (ident),                                     \
						.client = (uint16_t)(ident),                       \
						.outcome = (how),                                  \
						.begin_ns = (from),                                \
						.end_ns = (to)},                                   \
			ops_, sizeof(ops_) / sizeof(ops_[0]));                                     \
	} while (0)
#define TXN(h, ident, ...)     TXN_AT(h, ident, VB_HISTORY_COMMITTED, 1000, 2000, __VA_ARGS__)
#define ABORTED(h, ident, ...) TXN_AT(h, ident, VB_HISTORY_ABORTED, 1000, 2000, __VA_ARGS__)
#define UNKNOWN(h, ident, ...) TXN_AT(h, ident, VB_HISTORY_UNKNOWN, 1000, 2000, __VA_ARGS__)

static inline struct vb_serial_result check_parts(const struct vb_history *const *parts,
						  unsigned n_parts, bool strict)
{
	static const char *const tables[] = {"account", "branch"}, *const types[] = {"transfer"};
	struct vb_serial_params p = {.parts = parts,
				     .n_parts = n_parts,
				     .level = strict ? VB_LEVEL_STRICT : VB_LEVEL_SERIALIZABLE,
				     .table_names = tables,
				     .type_names = types,
				     .n_tables = 2,
				     .n_types = 1};
	struct vb_serial_result r;

	assert_int_equal(vb_serial_check(&p, &r), 0);
	assert_int_equal(r.story != NULL, r.first != VB_ANOMALY_NONE);
	return r;
}

/* ---- a store that is right ---- */

struct store_params {
	uint64_t txns, keys, seed;
	unsigned ops, parts;
	bool clean; /* none aborts or has an unknown outcome */
};

struct store {
	const struct store_params *p;
	struct vb_history **parts;
	struct vb_rng rng;
	uint64_t *version, next;
	uint8_t *absent;
};

static inline void store_op(struct store *s, struct vb_history_op *op, bool applies)
{
	uint64_t key = vb_rng_below(&s->rng, s->p->keys);

	*op = (struct vb_history_op){
		.key = key / 2, .table = (uint16_t)(key % 2), .version = s->version[key]};
	op->absent = s->absent[key];
	if (vb_rng_below(&s->rng, 2) == 0)
		return;
	op->kind = VB_HISTORY_WRITE;
	op->prev = op->version;
	op->version = s->next++;
	op->absent = vb_rng_below(&s->rng, 8) == 0;
	if (!applies)
		return;
	s->version[key] = op->version;
	s->absent[key] = op->absent;
}

/* Transactions that overlap in time and take effect one after the other, in the order of their
 * ids. */
static inline void store_run(const struct store_params *p, struct vb_history **parts)
{
	struct store s = {.p = p, .parts = parts, .next = VB_HISTORY_FIRST};
	struct vb_history_op *ops = calloc(p->ops, sizeof(*ops));

	s.version = calloc(p->keys, sizeof(*s.version));
	s.absent = calloc(p->keys, 1);
	assert_true(ops != NULL && s.version != NULL && s.absent != NULL);
	vb_rng_seed(&s.rng, p->seed, 0);
	for (uint64_t i = 0; i < p->txns; i++) {
		unsigned what = p->clean ? 0 : (unsigned)vb_rng_below(&s.rng, 16);
		struct vb_history_txn t = {.id = i + 1, .client = (uint16_t)(i % p->parts)};

		t.begin_ns = 100000 + i * 100 - vb_rng_below(&s.rng, 1000);
		t.end_ns = 100000 + i * 100 + vb_rng_below(&s.rng, 1000);
		/* Of 16, one aborts, one dies before it has committed and one after. */
		t.outcome = what == 1                ? VB_HISTORY_ABORTED
			    : what == 2 || what == 3 ? VB_HISTORY_UNKNOWN
						     : VB_HISTORY_COMMITTED;
		for (unsigned k = 0; k < p->ops; k++)
			store_op(&s, &ops[k], what != 1 && what != 2);
		add_txn(parts[i % p->parts], t, ops, p->ops);
	}
	free(ops);
	free(s.version);
	free(s.absent);
}

#endif
