/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls at random on a few notes, beside a model of what they must find: what the transaction has done
 * itself, and what whoever committed a version has written.  The model knows what was asked for, and
 * not what the engine made of it: a record that is committed with other bytes than that is found.
 */
#define VB_LOG_ROOM "check"
#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "check/txn/world.h"

/* ---- what stands in each version ---- */

static void ledger_add(struct txn_world *w, uint64_t key, uint64_t version, int64_t money)
{
	if (w->n_ledger == w->ledger_room) {
		size_t room = w->ledger_room != 0 ? 2 * w->ledger_room : 1024;
		void *more = realloc(w->ledger, room * sizeof(*w->ledger));

		if (more == NULL) {
			w->err = vb_fail(-ENOMEM, "no memory for the versions of a seed");
			return;
		}
		w->ledger = more;
		w->ledger_room = room;
	}
	w->ledger[w->n_ledger++] =
		(struct txn_version){.key = key, .version = version, .money = money};
}

/* The latest: a try that has failed may have had the same name. */
static const struct txn_version *ledger_find(const struct txn_world *w, uint64_t key,
					     uint64_t version)
{
	static const struct txn_version loaded = {.money = TXN_MONEY};

	for (size_t i = w->n_ledger; i-- > 0;)
		if (w->ledger[i].key == key && w->ledger[i].version == version)
			return &w->ledger[i];
	return version == VB_VERSION_LOADED ? &loaded : NULL;
}

static int64_t money_of(const struct vb_item *it)
{
	int64_t money;

	memcpy(&money, it->image + it->table->layout.record_at, 8);
	return money;
}

/* What the calls asked for; of what they have only found, what was there. */
static int64_t wanted(struct txn_slot *s, const struct vb_item *it)
{
	const struct txn_note *n = &s->model[it->key];
	const struct txn_version *was = ledger_find(s->w, it->key, it->version);

	if (!s->modelled || it->next & VB_VERSION_ABSENT)
		return money_of(it);
	if (n->state == TXN_NOTE_KNOWN)
		return n->money;
	if (was != NULL)
		return was->money;
	txn_found(s->w, VB_TXN_RULE_CONTENTS,
		  "note/%" PRIu64 " is to be written, and nobody knows what was there (version "
		  "%" PRIu64 ")",
		  it->key, it->version);
	return money_of(it);
}

void txn_calls_prepared(struct txn_slot *s, const struct vb_txn *t)
{
	for (unsigned i = 0; i < t->n; i++) {
		const struct vb_item *it = &t->item[i];

		if (it->table == s->w->note && it->flags & VB_ITEM_WRITE)
			ledger_add(s->w, it->key, it->next, wanted(s, it));
	}
}

void txn_calls_judge(struct txn_world *w)
{
	const struct vb_tuple_layout *l = &w->note->layout;

	for (uint64_t k = 0; k < w->d->notes; k++) {
		vb_addr at = vb_table_find(w->note, vb_table_node(w->note, k), k);
		const unsigned char *tuple = at != 0 ? vb_local(w->fabric, at, l->bytes) : NULL;
		unsigned slot = tuple != NULL ? vb_tuple_newest(l, tuple) : 0;
		const struct txn_version *v;
		uint64_t version;
		int64_t money;

		if (tuple == NULL)
			continue;
		version = vb_slot_version(l, tuple, slot);
		v = ledger_find(w, k, version);
		if (v == NULL || version & VB_VERSION_ABSENT)
			continue;
		memcpy(&money, tuple + l->record_at + vb_slot_behind(l, slot), 8);
		if (money != v->money)
			txn_found(w, VB_TXN_RULE_CONTENTS,
				  "note/%" PRIu64 " holds %" PRId64 " at version %" PRIu64
				  ", whose transaction wrote %" PRId64,
				  k, money, version, v->money);
	}
}

/* ---- the model ---- */

static const struct vb_item *item_of(const struct txn_slot *s, uint64_t key)
{
	const struct vb_txn *t = &s->me->txn;

	/* The last: a key that is read anew has several. */
	for (unsigned i = t->n; i-- > 0;)
		if (t->item[i].table == s->w->note && t->item[i].key == key)
			return &t->item[i];
	return NULL;
}

/* What the transaction knows of the note may not be so any more, at its level. */
static void forget(struct txn_slot *s, uint64_t key)
{
	const struct vb_item *it = item_of(s, key);
	struct txn_note *n = &s->model[key];

	if (it == NULL || it->flags & VB_ITEM_WRITE)
		return;
	if (s->me->txn.isolation == VB_READ_COMMITTED ||
	    (s->me->txn.isolation == VB_REPEATABLE_READ && n->state == TXN_NOTE_NONE))
		*n = (struct txn_note){.state = TXN_NOTE_NEW};
}

/* A call has given the record: is it what it must be? */
static void check_money(struct txn_slot *s, uint64_t key, int64_t money)
{
	struct txn_note *n = &s->model[key];
	const struct vb_item *it = item_of(s, key);
	const struct txn_version *v;

	if (n->state == TXN_NOTE_KNOWN) {
		if (money != n->money)
			txn_found(s->w, VB_TXN_RULE_CONTENTS,
				  "coordinator %u was given %" PRId64 " of note/%" PRIu64
				  ", which is %" PRId64 " to its transaction",
				  s->index, money, key, n->money);
	} else {
		v = it != NULL ? ledger_find(s->w, key, it->version) : NULL;
		if (v != NULL && v->money != money)
			txn_found(s->w, VB_TXN_RULE_CONTENTS,
				  "coordinator %u was given %" PRId64 " of note/%" PRIu64
				  ", but version %" PRIu64 " is %" PRId64,
				  s->index, money, key, v->version, v->money);
	}
	*n = (struct txn_note){.state = TXN_NOTE_KNOWN, .money = money};
}

/* A call has said whether there is a record. */
static void check_there(struct txn_slot *s, uint64_t key, bool there, const char *call)
{
	struct txn_note *n = &s->model[key];

	if (n->state == TXN_NOTE_NEW) {
		n->state = there ? TXN_NOTE_THERE : TXN_NOTE_NONE;
		return;
	}
	if (there == (n->state == TXN_NOTE_NONE))
		txn_found(s->w, VB_TXN_RULE_CONTENTS,
			  "coordinator %u: %s finds note/%" PRIu64
			  " %s, which its transaction knows better",
			  s->index, call, key, there ? "there" : "gone");
}

/* ---- calls ---- */

static int64_t put_new(struct txn_slot *s, void *record)
{
	int64_t money = (int64_t)(TXN_MONEY + ++s->w->next_money);

	txn_record_fill(s->w, record, money);
	return money;
}

static int get(struct txn_slot *s, uint64_t key)
{
	const void *record;
	int err = vb_txn_get(s->me, s->w->note, key, &record);

	if (err != 0 && err != -ENOENT)
		return err;
	check_there(s, key, err == 0, "get");
	if (err == 0)
		check_money(s, key, txn_money_in(s, "note", key, record));
	return 0;
}

static int update(struct txn_slot *s, uint64_t key)
{
	void *record;
	int err = vb_txn_update(s->me, s->w->note, key, &record);

	if (err != 0 && err != -ENOENT)
		return err;
	check_there(s, key, err == 0, "update");
	if (err == 0) {
		check_money(s, key, txn_money_in(s, "note", key, record));
		s->model[key].money = put_new(s, record);
	}
	return 0;
}

static int put(struct txn_slot *s, uint64_t key, bool insert)
{
	unsigned char record[256];
	int64_t money = put_new(s, record);
	int refused = insert ? -EEXIST : -ENOENT;
	int err = insert ? vb_txn_insert(s->me, s->w->note, key, record)
			 : vb_txn_write(s->me, s->w->note, key, record);

	if (err != 0 && err != refused)
		return err;
	check_there(s, key, (err == 0) != insert, insert ? "insert" : "write");
	if (err == 0)
		s->model[key] = (struct txn_note){.state = TXN_NOTE_KNOWN, .money = money};
	return 0;
}

static int drop(struct txn_slot *s, uint64_t key)
{
	int err = vb_txn_delete(s->me, s->w->note, key);

	if (err != 0 && err != -ENOENT)
		return err;
	check_there(s, key, err == 0, "delete");
	s->model[key].state = TXN_NOTE_NONE;
	return 0;
}

/* One or two keys, and sometimes a table that is not the database's: then nothing is declared. */
static int declare(struct txn_slot *s, uint64_t key)
{
	struct txn_world *w = s->w;
	bool refused = vb_rng_chance(&s->rng, 0.5);
	const struct vb_txn_key keys[] = {
		{w->note, key, vb_rng_chance(&s->rng, 0.5)},
		{refused ? &w->stranger : w->note, (key + 1) % w->d->notes,
		 vb_rng_chance(&s->rng, 0.5)},
	};
	int err;

	/* It has declared all before, and may not again. */
	refused |= vb_cc_sequenced(w->cc);
	forget(s, keys[1].key);
	if (!refused)
		return vb_txn_declare(s->me, keys, 2);
	/* It comes back at once: nobody else speaks meanwhile. */
	vb_log_mute();
	err = vb_txn_declare(s->me, keys, 2);
	vb_log_unmute();
	return err == -EINVAL ? 0 : err;
}

int txn_random_calls(struct txn_slot *s)
{
	unsigned n = 1 + (unsigned)vb_rng_below(&s->rng, 8);
	int err = 0;

	memset(s->model, 0, sizeof(s->model));
	s->modelled = true;
	while (n-- > 0 && err == 0) {
		uint64_t key = vb_rng_below(&s->rng, s->w->d->notes);

		forget(s, key);
		switch (vb_rng_below(&s->rng, 7)) {
		case 0:
			err = declare(s, key);
			break;
		case 1:
			err = get(s, key);
			break;
		case 2:
			err = update(s, key);
			break;
		case 3:
			err = put(s, key, false);
			break;
		case 4:
			err = drop(s, key);
			break;
		default:
			err = put(s, key, true);
			break;
		}
	}
	return err;
}
