/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SmallBank (Alomari et al., ICDE 2008), with the mix of H-Store: each customer has a savings and a
 * checking account, and six kinds of transactions read and move small sums.
 *
 * Balances are whole numbers.  What a customer pays in or draws is money that comes and goes; the
 * sum of all balances is what there was plus what the committed transactions have added.
 */
#define VB_LOG_ROOM "load"
#include "workload/loads.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "workload/scatter.h"
#include "workload/smallbank.h"
#include "workload/trace.h"

#define BALANCE_LEAST 10000
#define BALANCE_SPAN  40000u /* balances at the beginning: so many values from the least on */
#define AMOUNT_MOST   100u

struct smallbank_opts {
	uint64_t accounts, hot_accounts;
	double hot_chance;
	int mix;
	bool no_declare;
};

#define O struct smallbank_opts
static const struct vb_opt table[] = {
	VB_OPT_SIZE(O, accounts, "accounts", "100k", 2, 1ull << 36,
		    "customers of each node, each with two accounts; in all, times --nodes"),
	VB_OPT_SIZE(O, hot_accounts, "hot-accounts", "4k", 2, 1ull << 36,
		    "of those, how many are hot (of each node, at most --accounts)"),
	VB_OPT_REAL(O, hot_chance, "hot-chance", "0.9", 0, 1,
		    "chance that a transaction is about hot customers"),
	VB_OPT_CHOICE(O, mix, "mix", "h-store|rcc", "h-store",
		      "shares of the six kinds: a quarter of send-payment and 15 % of each other "
		      "one, or RCC's own, 16 % or 17 % of each"),
	VB_LOAD_OPT_NO_DECLARE(O),
	VB_OPT_END};
#undef O

const char *const vb_smallbank_types[VB_SB_TYPES] = {
	[VB_SB_AMALGAMATE] = "amalgamate",
	[VB_SB_BALANCE] = "balance",
	[VB_SB_DEPOSIT_CHECKING] = "deposit-checking",
	[VB_SB_SEND_PAYMENT] = "send-payment",
	[VB_SB_TRANSACT_SAVINGS] = "transact-savings",
	[VB_SB_WRITE_CHECK] = "write-check",
};
const unsigned vb_smallbank_percent[VB_SB_TYPES] = {
	[VB_SB_AMALGAMATE] = 15,   [VB_SB_BALANCE] = 15,          [VB_SB_DEPOSIT_CHECKING] = 15,
	[VB_SB_SEND_PAYMENT] = 25, [VB_SB_TRANSACT_SAVINGS] = 15, [VB_SB_WRITE_CHECK] = 15,
};

/* Which two of RCC's have the 16 % is not known. */
static const unsigned rcc_percent[VB_SB_TYPES] = {
	[VB_SB_AMALGAMATE] = 17,   [VB_SB_BALANCE] = 17,          [VB_SB_DEPOSIT_CHECKING] = 17,
	[VB_SB_SEND_PAYMENT] = 16, [VB_SB_TRANSACT_SAVINGS] = 17, [VB_SB_WRITE_CHECK] = 16,
};
static const unsigned *const mixes[] = {vb_smallbank_percent,
					rcc_percent}; /* as --mix lists them */

enum { SAVINGS, CHECKING };

struct smallbank {
	struct vb_scatter scatter; /* which customers are hot */
	uint64_t customers, hot;
};

static const struct smallbank_opts *opts_of(const struct vb_load *l)
{
	return l->options;
}

static int64_t balance_of(const struct vb_load *l, unsigned t, uint64_t key)
{
	return BALANCE_LEAST + (int64_t)(vb_load_mix(l->seed, key, t + 2) % BALANCE_SPAN);
}

static int init(struct vb_load *l)
{
	const struct smallbank_opts *o = opts_of(l);
	static const char *const names[] = {[SAVINGS] = "savings", [CHECKING] = "checking"};
	struct smallbank *s = calloc(1, sizeof(*s));

	l->own = s;
	if (s == NULL)
		return vb_fail(-ENOMEM, "no memory for a workload");
	s->customers = o->accounts * l->nodes;
	s->hot = (o->hot_accounts < o->accounts ? o->hot_accounts : o->accounts) * l->nodes;
	vb_scatter_init(&s->scatter, s->customers);
	for (unsigned t = SAVINGS; t <= CHECKING; t++)
		l->params[t] = (struct vb_table_params){
			.name = names[t],
			.record_bytes = sizeof(int64_t),
			.records = s->customers,
			.partition = VB_PARTITION_MOD,
		};
	l->n_tables = 2;
	l->items = 4;
	l->record_bytes_max = sizeof(int64_t);
	l->bytes = l->items * l->record_bytes_max;
	return 0;
}

static void make(const struct vb_load *l, unsigned t, uint64_t key, void *record)
{
	int64_t balance = balance_of(l, t, key);

	memcpy(record, &balance, sizeof(balance));
}

static int fill(struct vb_load *l, uint16_t node, const struct vb_load_progress *progress)
{
	uint64_t done = 0;
	int err = vb_load_fill_dense(l, SAVINGS, node, make, progress, &done);

	return err ? err : vb_load_fill_dense(l, CHECKING, node, make, progress, &done);
}

static uint64_t records(const struct vb_load *l)
{
	return l->params[SAVINGS].records + l->params[CHECKING].records;
}

/* ---- drawing ---- */

static void add_key(struct vb_load_client *c, unsigned t, uint64_t customer, bool write)
{
	c->key[c->n++] =
		(struct vb_txn_key){.table = c->load->table[t], .key = customer, .write = write};
}

static void next(struct vb_load_client *c)
{
	const struct smallbank *s = c->load->own;
	const struct smallbank_opts *o = opts_of(c->load);
	uint64_t from, rank[2], a, b;

	c->type = vb_trace_draw_type(&c->rng, mixes[o->mix]);
	from = vb_rng_chance(&c->rng, o->hot_chance) ? s->hot : s->customers;
	rank[0] = vb_rng_below(&c->rng, from);
	/* Another one, without drawing again. */
	rank[1] = (rank[0] + 1 + vb_rng_below(&c->rng, from - 1)) % from;
	a = vb_scatter(&s->scatter, rank[0]);
	b = vb_scatter(&s->scatter, rank[1]);
	c->amount = 1 + (int64_t)vb_rng_below(&c->rng, AMOUNT_MOST);
	c->n = 0;
	switch (c->type) {
	case VB_SB_AMALGAMATE:
		add_key(c, SAVINGS, a, true);
		add_key(c, CHECKING, a, true);
		add_key(c, CHECKING, b, true);
		break;
	case VB_SB_BALANCE:
		add_key(c, SAVINGS, a, false);
		add_key(c, CHECKING, a, false);
		break;
	case VB_SB_DEPOSIT_CHECKING:
		add_key(c, CHECKING, a, true);
		break;
	case VB_SB_SEND_PAYMENT:
		add_key(c, CHECKING, a, true);
		add_key(c, CHECKING, b, true);
		break;
	case VB_SB_TRANSACT_SAVINGS:
		/* As often in as out: savings would else only grow, and nothing be rolled back. */
		if (vb_rng_chance(&c->rng, 0.5))
			c->amount = -c->amount;
		add_key(c, SAVINGS, a, true);
		break;
	default:
		add_key(c, SAVINGS, a, false);
		add_key(c, CHECKING, a, true);
		break;
	}
}

/* ---- the transactions, on the balances of the drawn keys in their order ---- */

static int run(struct vb_load_client *c, int64_t *const *at)
{
	int64_t amount = c->amount;

	switch (c->type) {
	case VB_SB_AMALGAMATE:
		*at[2] += *at[0] + *at[1];
		*at[0] = *at[1] = 0;
		return 0;
	case VB_SB_BALANCE:
		c->seen = *at[0] + *at[1];
		return 0;
	case VB_SB_DEPOSIT_CHECKING:
		*at[0] += amount;
		c->change[0] = amount;
		return 0;
	case VB_SB_SEND_PAYMENT:
		if (*at[0] < amount)
			return VB_LOAD_ROLLBACK;
		*at[0] -= amount;
		*at[1] += amount;
		return 0;
	case VB_SB_TRANSACT_SAVINGS:
		if (*at[0] + amount < 0)
			return VB_LOAD_ROLLBACK;
		*at[0] += amount;
		c->change[0] = amount;
		return 0;
	default:
		/* Who overdraws pays one more. */
		c->change[0] = *at[0] + *at[1] < amount ? -(amount + 1) : -amount;
		*at[1] += c->change[0];
		return 0;
	}
}

static int body(struct vb_load_client *c, struct vb_coordinator *me)
{
	int64_t *at[4], copy[4];
	int err = 0;

	c->change[0] = 0;
	if (!opts_of(c->load)->no_declare)
		err = vb_txn_declare(me, c->key, c->n);
	for (unsigned i = 0; i < c->n && err == 0; i++) {
		const struct vb_txn_key *k = &c->key[i];

		if (k->write) {
			err = vb_txn_update(me, k->table, k->key, (void **)&at[i]);
		} else {
			err = vb_txn_read(me, k->table, k->key, &copy[i]);
			at[i] = &copy[i];
		}
	}
	return err ? err : run(c, at);
}

/* ---- the end ---- */

static void look(const struct vb_load *l, unsigned t, uint64_t key, const void *record,
		 struct vb_load_sums *sums)
{
	int64_t balance;

	memcpy(&balance, record, sizeof(balance));
	sums->value[0] += (uint64_t)balance;
	sums->value[1] += (uint64_t)balance_of(l, t, key);
}

static void count(const struct vb_load *l, uint16_t node, struct vb_load_sums *sums)
{
	vb_load_count_dense(l, SAVINGS, node, look, sums);
	vb_load_count_dense(l, CHECKING, node, look, sums);
}

static void moved(const struct vb_load *l, const struct vb_load_sums *sums,
		  int64_t by[VB_LOAD_CHANGES_MAX])
{
	(void)l;
	by[0] = (int64_t)(sums->value[0] - sums->value[1]);
}

static int judge(const struct vb_load *l, const struct vb_load_sums *sums, const int64_t *change,
		 char *why, size_t size)
{
	int64_t now = (int64_t)sums->value[0], was = (int64_t)sums->value[1];
	int64_t by[VB_LOAD_CHANGES_MAX];
	int err = vb_load_judge_records(sums, why, size);

	moved(l, sums, by);
	if (err != 0 || by[0] == change[0])
		return err;
	snprintf(why, size,
		 "all balances together are %" PRId64 "; they were %" PRId64
		 ", and committed transactions have added %" PRId64,
		 now, was, change[0]);
	return -EBADMSG;
}

static bool declares(const struct vb_load *l)
{
	return !opts_of(l)->no_declare;
}

const struct vb_load_ops vb_load_smallbank = {
	.name = "smallbank",
	.summary = "small payments between accounts, six kinds of transactions in H-Store's mix",
	.options = table,
	.options_bytes = sizeof(struct smallbank_opts),
	.types = vb_smallbank_types,
	.n_types = VB_SB_TYPES,
	.declares = declares,
	.init = init,
	.fill = fill,
	.records = records,
	.next = next,
	.body = body,
	.count = count,
	.moved = moved,
	.judge = judge,
};
