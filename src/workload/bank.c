/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bank of few accounts: transfers between two of them, and audits that read all.  An audit that
 * commits must have seen all the money, whatever went on meanwhile; the more accounts, the longer
 * the audits and the more they are in the transfers' way.
 */
#define VB_LOG_ROOM "load"
#include "workload/loads.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/log.h"

#define BALANCE     1000
#define AMOUNT_MOST 100u

struct bank_opts {
	uint64_t accounts;
	double audit_ratio;
	bool no_declare;
};

#define O struct bank_opts
static const struct vb_opt table[] = {
	VB_OPT_SIZE(O, accounts, "accounts", "100", 2, VB_TXN_ITEMS_MAX,
		    "accounts of all nodes together"),
	VB_OPT_REAL(O, audit_ratio, "audit-ratio", "0.1", 0, 1,
		    "share of the transactions that are audits"),
	VB_LOAD_OPT_NO_DECLARE(O),
	VB_OPT_END,
};
#undef O

enum { TRANSFER, AUDIT, TYPES };
static const char *const types[TYPES] = {[TRANSFER] = "transfer", [AUDIT] = "audit"};

static const struct bank_opts *opts_of(const struct vb_load *l)
{
	return l->options;
}

static int init(struct vb_load *l)
{
	const struct bank_opts *o = opts_of(l);

	l->params[0] = (struct vb_table_params){
		.name = "bank",
		.record_bytes = sizeof(int64_t),
		.records = o->accounts,
		.partition = VB_PARTITION_MOD,
	};
	l->n_tables = 1;
	l->items = (uint32_t)o->accounts;
	l->record_bytes_max = sizeof(int64_t);
	l->bytes = l->items * l->record_bytes_max;
	return 0;
}

static void make(const struct vb_load *l, unsigned t, uint64_t key, void *record)
{
	int64_t balance = BALANCE;

	memcpy(record, &balance, sizeof(balance));
}

static int fill(struct vb_load *l, uint16_t node, const struct vb_load_progress *progress)
{
	uint64_t done = 0;

	return vb_load_fill_dense(l, 0, node, make, progress, &done);
}

static uint64_t records(const struct vb_load *l)
{
	return l->params[0].records;
}

static void next(struct vb_load_client *c)
{
	const struct vb_load *l = c->load;
	uint64_t n = opts_of(l)->accounts, from = vb_rng_below(&c->rng, n);
	uint64_t to = (from + 1 + vb_rng_below(&c->rng, n - 1)) % n;

	c->type = vb_rng_chance(&c->rng, opts_of(l)->audit_ratio) ? AUDIT : TRANSFER;
	c->amount = 1 + (int64_t)vb_rng_below(&c->rng, AMOUNT_MOST);
	if (c->type == TRANSFER) {
		c->n = 2;
		c->key[0] = (struct vb_txn_key){l->table[0], from, true};
		c->key[1] = (struct vb_txn_key){l->table[0], to, true};
		return;
	}
	/* From a random one on: audits need not all come to the same account first. */
	c->n = (unsigned)n;
	for (unsigned i = 0; i < c->n; i++)
		c->key[i] = (struct vb_txn_key){l->table[0], (from + i) % n, false};
}

static int transfer(struct vb_load_client *c, struct vb_coordinator *me)
{
	int64_t *from, *to;
	int err = vb_txn_update(me, c->key[0].table, c->key[0].key, (void **)&from);

	if (err == 0)
		err = vb_txn_update(me, c->key[1].table, c->key[1].key, (void **)&to);
	if (err)
		return err;
	if (*from < c->amount)
		return VB_LOAD_ROLLBACK;
	*from -= c->amount;
	*to += c->amount;
	return 0;
}

static int audit(struct vb_load_client *c, struct vb_coordinator *me)
{
	c->seen = 0;
	for (unsigned i = 0; i < c->n; i++) {
		int64_t balance;
		int err = vb_txn_read(me, c->key[i].table, c->key[i].key, &balance);

		if (err)
			return err;
		c->seen += balance;
	}
	return 0;
}

static int body(struct vb_load_client *c, struct vb_coordinator *me)
{
	int err = 0;

	if (!opts_of(c->load)->no_declare)
		err = vb_txn_declare(me, c->key, c->n);
	if (err)
		return err;
	return c->type == TRANSFER ? transfer(c, me) : audit(c, me);
}

static int committed(struct vb_load_client *c)
{
	int64_t all = (int64_t)opts_of(c->load)->accounts * BALANCE;

	if (c->type != AUDIT || c->seen == all)
		return 0;
	snprintf(c->why, sizeof(c->why),
		 "an audit has committed that saw %" PRId64 " in all accounts together; there are "
		 "always %" PRId64,
		 c->seen, all);
	return -EBADMSG;
}

static void look(const struct vb_load *l, unsigned t, uint64_t key, const void *record,
		 struct vb_load_sums *sums)
{
	int64_t balance;

	memcpy(&balance, record, sizeof(balance));
	sums->value[0] += (uint64_t)balance;
	sums->wrong += balance < 0;
}

static void count(const struct vb_load *l, uint16_t node, struct vb_load_sums *sums)
{
	vb_load_count_dense(l, 0, node, look, sums);
}

static int judge(const struct vb_load *l, const struct vb_load_sums *sums, const int64_t *change,
		 char *why, size_t size)
{
	int64_t now = (int64_t)sums->value[0], was = (int64_t)opts_of(l)->accounts * BALANCE;
	int err = vb_load_judge_records(sums, why, size);

	if (err != 0 || now == was)
		return err;
	snprintf(why, size,
		 "all accounts together hold %" PRId64
		 "; transfers leave the sum as it was, %" PRId64,
		 now, was);
	return -EBADMSG;
}

static bool declares(const struct vb_load *l)
{
	return !opts_of(l)->no_declare;
}

const struct vb_load_ops vb_load_bank = {
	.name = "bank",
	.summary = "transfers between few accounts, and audits that read all of them",
	.options = table,
	.options_bytes = sizeof(struct bank_opts),
	.types = types,
	.n_types = TYPES,
	.declares = declares,
	.init = init,
	.fill = fill,
	.records = records,
	.next = next,
	.body = body,
	.committed = committed,
	.count = count,
	.judge = judge,
};
