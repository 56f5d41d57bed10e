/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The locks of SmallBank: a customer's savings are lock 2 c, its checking account is lock 2 c + 1.
 *
 * Which customers: with --hot-chance from the hot ones, else from all, uniformly; the hot ones are
 * spread over all numbers.  Kinds and mix are those of the SmallBank load (smallbank.c).
 */
#define VB_LOG_ROOM "trace"
#include "workload/traces.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "workload/scatter.h"
#include "workload/smallbank.h"

struct smallbank_opts {
	uint64_t accounts, hot_accounts;
	double hot_chance;
};

#define O struct smallbank_opts
static const struct vb_opt table[] = {
	VB_OPT_SIZE(O, accounts, "accounts", "1m", 2, 1ull << 36,
		    "customers in all, each with two accounts"),
	VB_OPT_SIZE(O, hot_accounts, "hot-accounts", "4k", 2, 1ull << 36,
		    "of those, how many are hot (at most all)"),
	VB_OPT_REAL(O, hot_chance, "hot-chance", "0.9", 0, 1,
		    "chance that a transaction is about hot customers"),
	VB_OPT_END};
#undef O

struct smallbank {
	struct vb_scatter scatter;
	uint64_t customers, hot;
	double hot_chance;
};

/* What a kind locks, in this order: of which of two customers, which account, how. */
struct step {
	uint8_t customer, checking, exclusive;
};
#define STEPS 3
static const struct {
	unsigned n;
	struct step step[STEPS];
} steps[VB_SB_TYPES] = {
	[VB_SB_AMALGAMATE] = {3, {{0, 0, 1}, {0, 1, 1}, {1, 1, 1}}},
	[VB_SB_BALANCE] = {2, {{0, 0, 0}, {0, 1, 0}}},
	[VB_SB_DEPOSIT_CHECKING] = {1, {{0, 1, 1}}},
	[VB_SB_SEND_PAYMENT] = {2, {{0, 1, 1}, {1, 1, 1}}},
	[VB_SB_TRANSACT_SAVINGS] = {1, {{0, 0, 1}}},
	[VB_SB_WRITE_CHECK] = {2, {{0, 0, 0}, {0, 1, 1}}},
};

static int init(struct vb_trace *t)
{
	const struct smallbank_opts *o = t->options;
	struct smallbank *own = calloc(1, sizeof(*own));

	t->own = own;
	if (own == NULL)
		return vb_fail(-ENOMEM, "no memory for a trace");
	own->customers = o->accounts;
	own->hot = o->hot_accounts < o->accounts ? o->hot_accounts : o->accounts;
	own->hot_chance = o->hot_chance;
	vb_scatter_init(&own->scatter, own->customers);
	t->locks = 2 * own->customers;
	t->types = vb_smallbank_types;
	t->n_types = VB_SB_TYPES;
	t->modes = 1u << VB_SHARED | 1u << VB_EXCLUSIVE;
	t->locks_max = STEPS;
	return 0;
}

static void fini(struct vb_trace *t)
{
	free(t->own);
}

static void next(struct vb_trace_client *c)
{
	const struct smallbank *own = c->t->own;
	uint64_t from = vb_rng_chance(&c->rng, own->hot_chance) ? own->hot : own->customers;
	uint64_t rank = vb_rng_below(&c->rng, from), customer[2];

	customer[0] = vb_scatter(&own->scatter, rank);
	/* Another one, without drawing again. */
	rank = (rank + 1 + vb_rng_below(&c->rng, from - 1)) % from;
	customer[1] = vb_scatter(&own->scatter, rank);
	c->txn.type = vb_trace_draw_type(&c->rng, vb_smallbank_percent);
	for (unsigned i = 0; i < steps[c->txn.type].n; i++) {
		const struct step *s = &steps[c->txn.type].step[i];

		vb_trace_add(c, 2 * customer[s->customer] + s->checking,
			     s->exclusive ? VB_EXCLUSIVE : VB_SHARED);
	}
}

const struct vb_trace_ops vb_trace_smallbank = {
	.name = "smallbank",
	.summary = "SmallBank: one to three accounts, many of them of few hot customers",
	.source = "Alomari et al., ICDE 2008; the mix of H-Store",
	.options = table,
	.options_bytes = sizeof(struct smallbank_opts),
	.init = init,
	.fini = fini,
	.next = next,
};
