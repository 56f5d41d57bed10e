/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Another database beside the one that is explored: on the same nodes, with a table of the same name, number
 * and keys, with places and inboxes of the same numbers, with servers and coordinators of its own among
 * those of the other.  All that it holds is far from what the other holds, so that a record of the one which
 * turns up in the other shows, wherever it does.  Nobody of it dies.
 */
#define VB_LOG_ROOM "check"
#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "check/txn/world.h"

#define BESIDE_STREAM 0x62657369
#define CLIENTS       2u
#define PAUSE_NS      100000u

struct client {
	struct txn_beside *of;
	unsigned index;
	struct vb_rng rng;
	struct vb_coordinator *me;
};

struct txn_beside {
	struct txn_world *w;
	struct vb_db *db;
	struct vb_table *account;
	struct vb_db_server *server[TXN_NODES_MAX];
	struct client client[CLIENTS];
};

static int64_t money_in(struct txn_world *w, uint64_t key, const void *record)
{
	unsigned char whole[256];
	int64_t money;

	memcpy(&money, record, 8);
	txn_record_fill(w, whole, money);
	if (!txn_beside_has(money))
		txn_found(w, VB_TXN_RULE_CONTENTS,
			  "account/%" PRIu64 " of the database beside holds %" PRId64
			  ", which nobody has ever written there",
			  key, money);
	else if (memcmp(whole, record, w->d->record_bytes) != 0)
		txn_found(w, VB_TXN_RULE_TORN_READ,
			  "account/%" PRIu64 " of the database beside holds a record that nobody "
			  "wrote",
			  key);
	return money;
}

static int change(struct client *c, uint64_t key, int64_t by)
{
	struct txn_world *w = c->of->w;
	void *record;
	int err = vb_txn_update(c->me, c->of->account, key, &record);

	if (err == 0)
		txn_record_fill(w, record, money_in(w, key, record) + by);
	return err;
}

static int transfer(struct client *c)
{
	uint64_t from = vb_rng_below(&c->rng, c->of->w->d->accounts);
	uint64_t to = vb_rng_below(&c->rng, c->of->w->d->accounts);
	const struct vb_txn_key both[] = {{c->of->account, from, true}, {c->of->account, to, true}};
	int err = vb_txn_begin(c->me);

	if (err == 0 && vb_cc_sequenced(c->of->db->cc))
		err = vb_txn_declare(c->me, both, 2);
	if (err == 0)
		err = change(c, from, -1);
	if (err == 0)
		err = change(c, to, 1);
	return err == 0 ? vb_txn_commit(c->me) : err;
}

static bool told(struct client *c, const char *call, int err)
{
	struct txn_world *w = c->of->w;

	if (err == 0 || err == -EAGAIN)
		return true;
	if (!w->d->calm && (err == -VB_EUNKNOWN || err == -VB_EPEERGONE))
		return true;
	if (err == -ENOMEM) {
		w->err = err;
		return false;
	}
	txn_found(w, VB_TXN_RULE_WRONG_ERROR, "beside: %s returned %d (%s), which it may not", call,
		  err, vb_strerror(err));
	return false;
}

static void pause_a_while(struct client *c)
{
	vb_task_sleep_until(vb_sched_now(c->of->w->sched) + vb_rng_below(&c->rng, PAUSE_NS));
}

static void client_body(void *arg)
{
	struct client *c = arg;
	struct txn_world *w = c->of->w;
	int err;

	while ((err = vb_coordinator_open(c->of->db, (uint16_t)(c->index % w->d->nodes), &c->me)) !=
	       0) {
		c->me = NULL;
		if (w->live || !told(c, "vb_coordinator_open", err))
			return;
		pause_a_while(c);
	}
	while (!w->live && w->err == 0) {
		err = transfer(c);
		vb_txn_abort(c->me);
		if (!told(c, "a transfer", err))
			break;
		pause_a_while(c);
	}
	txn_count(w, c->me);
	vb_coordinator_close(c->me);
	c->me = NULL;
}

static int open_db(struct txn_beside *b)
{
	const struct vb_txn_draw *d = b->w->d;
	const struct vb_db_params p = {
		.name = "beside",
		.cc = b->w->cc->name,
		.hybrid = d->hybrid,
		.coordinators = TXN_DEATHS_MAX + 16,
		.items_max = 16,
		.bytes_max = 16 * d->record_bytes,
		.record_bytes_max = d->record_bytes,
		.lease_ns = d->lease_ns,
		.no_recovery = !d->recovery,
		.no_doorbell = !d->doorbell,
		.no_outstanding = !d->outstanding,
		.passive_ack = d->passive_ack,
		.cache_entries = d->cache ? 0 : 1,
	};
	const struct vb_table_params account = {
		.name = "account", .record_bytes = d->record_bytes, .records = d->accounts};
	unsigned char record[256];
	int err = vb_db_open(b->w->fabric, &p, &b->db);

	if (err == 0)
		err = vb_table_open(b->db, &account, &b->account);
	txn_record_fill(b->w, record, TXN_BESIDE_MONEY);
	for (uint64_t k = 0; k < d->accounts && err == 0; k++)
		err = vb_table_load(b->account, k, record);
	for (uint16_t n = 0; n < d->nodes && err == 0; n++)
		err = vb_db_server_start(b->db, n, &b->server[n]);
	return err;
}

int txn_beside_start(struct txn_world *w)
{
	static const struct vb_task_params params = {.name = "beside"};
	struct txn_beside *b;
	int err;

	if (!w->d->beside)
		return 0;
	b = w->beside = calloc(1, sizeof(*b));
	if (b == NULL)
		return vb_fail(-ENOMEM, "no memory for a database beside");
	b->w = w;
	err = open_db(b);
	for (unsigned i = 0; i < CLIENTS && err == 0; i++) {
		struct client *c = &b->client[i];
		struct vb_task *t;

		c->of = b;
		c->index = i;
		vb_rng_seed(&c->rng, w->d->seed, BESIDE_STREAM + i);
		err = vb_task_spawn(w->sched, client_body, c, &params, &t);
	}
	return err;
}

struct vb_db *txn_beside_db(const struct txn_world *w)
{
	return w->beside != NULL ? w->beside->db : NULL;
}

void txn_beside_judge(struct txn_world *w)
{
	struct txn_beside *b = w->beside;
	int64_t total = 0;

	for (uint64_t k = 0; b != NULL && k < w->d->accounts; k++) {
		vb_addr at = vb_table_find(b->account, vb_table_node(b->account, k), k);
		const struct vb_tuple_layout *l = &b->account->layout;
		const unsigned char *tuple = vb_local(w->fabric, at, l->bytes);
		const unsigned char *record =
			tuple + l->record_at + vb_slot_behind(l, vb_tuple_newest(l, tuple));

		total += money_in(w, k, record) - TXN_BESIDE_MONEY;
	}
	if (total != 0)
		txn_found(w, VB_TXN_RULE_MONEY,
			  "the accounts of the database beside hold %" PRId64 " too much", total);
}

void txn_beside_stop(struct txn_world *w)
{
	for (uint16_t n = 0; w->beside != NULL && n < w->d->nodes; n++)
		vb_db_server_stop(w->beside->server[n]);
}

void txn_beside_bury(struct txn_world *w)
{
	struct txn_beside *b = w->beside;

	if (b == NULL)
		return;
	for (unsigned i = 0; i < CLIENTS; i++)
		vb_coordinator_bury(b->client[i].me);
	vb_db_close(b->db);
	free(b);
}
