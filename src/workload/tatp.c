/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TATP, the Telecom Application Transaction Processing benchmark, as transactions: seven kinds of
 * short ones, four fifths of which only read.
 *
 * All rows of a subscriber lie on one node, and every access is by key.  A key of five fields:
 *
 *	node (16) | subscriber (40) | type (4) | start (4)
 *
 * The number by which three kinds of transactions know a subscriber is found by a table of its own,
 * a round before the rest.
 *
 * A transaction that finds no row, or one too many, is unsuccessful and does not count as
 * committed.  What it has read is validated as any other's all the same.
 *
 * Beside TATP's columns a subscriber counts what has been written to it, and so does a facility:
 * each update of both must be in both.
 */
#define VB_LOG_ROOM "load"
#include "workload/tatp.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "workload/loads.h"
#include "workload/trace.h"

#define POPULATION 0x7461747000000000ull
#define ACTIVE     0.85 /* chance of a facility */
#define STEP_EVERY 256u /* subscribers between two looks at the progress */

struct tatp_opts {
	uint64_t subscribers;
	bool no_declare;
};

#define O struct tatp_opts
static const struct vb_opt table[] = {
	VB_OPT_SIZE(O, subscribers, "subscribers", "50k", 1, 1u << 30,
		    "subscribers of each node; in all, times --nodes"),
	VB_LOAD_OPT_NO_DECLARE(O),
	VB_OPT_END,
};
#undef O

const char *const vb_tatp_types[VB_TATP_KINDS] = {
	[VB_TATP_SUBSCRIBER_DATA] = "get-subscriber-data",
	[VB_TATP_NEW_DESTINATION] = "get-new-destination",
	[VB_TATP_ACCESS_DATA] = "get-access-data",
	[VB_TATP_UPDATE_SUBSCRIBER] = "update-subscriber-data",
	[VB_TATP_UPDATE_LOCATION] = "update-location",
	[VB_TATP_INSERT_FORWARDING] = "insert-call-forwarding",
	[VB_TATP_DELETE_FORWARDING] = "delete-call-forwarding",
};
const unsigned vb_tatp_percent[VB_TATP_KINDS] = {
	[VB_TATP_SUBSCRIBER_DATA] = 35,  [VB_TATP_NEW_DESTINATION] = 10,
	[VB_TATP_ACCESS_DATA] = 35,      [VB_TATP_UPDATE_SUBSCRIBER] = 2,
	[VB_TATP_UPDATE_LOCATION] = 14,  [VB_TATP_INSERT_FORWARDING] = 2,
	[VB_TATP_DELETE_FORWARDING] = 2,
};

enum { SUBSCRIBER, NUMBER, ACCESS, FACILITY, FORWARDING, TABLES };

/* Every record begins with its key, so that one of another key is noticed. */
struct subscriber {
	uint64_t key;
	char sub_nbr[16];
	uint8_t bit[10], hex[10], byte2[10];
	uint32_t msc_location, vlr_location;
	uint32_t updates, moves; /* update-subscriber-data, update-location */
	uint64_t whole;          /* made from what else changes */
};
struct number {
	uint64_t key, subscriber;
};
struct access {
	uint64_t key;
	uint8_t data1, data2;
	char data3[3], data4[5];
};
struct facility {
	uint64_t key;
	uint8_t is_active, error_cntrl, data_a;
	char data_b[5];
	uint32_t updates;
};
struct forwarding {
	uint64_t key;
	uint8_t end_hour;
	char numberx[15];
};

/* What init knows, and what a client has drawn. */
struct tatp {
	uint64_t subscribers, run;
};
struct drawn {
	uint64_t subscriber;
	unsigned start, hour; /* end_time */
	bool by_number;
};

/* Of one subscriber; what fill puts there. */
struct population {
	unsigned access, facility; /* bit per type */
	uint16_t forwarding[TATP_TYPES];
	bool active[TATP_TYPES];
};

static const struct tatp_opts *opts_of(const struct vb_load *l)
{
	return l->options;
}

static uint64_t key_of(const struct vb_load *l, uint64_t s, unsigned type, unsigned start)
{
	return s % l->nodes << 48 | s << 8 | type << 4 | start;
}

static int init(struct vb_load *l)
{
	static const struct {
		const char *name;
		uint32_t bytes, each; /* each: keys of a subscriber */
	} shape[TABLES] = {
		[SUBSCRIBER] = {"subscriber", sizeof(struct subscriber), 1},
		[NUMBER] = {"sub_nbr", sizeof(struct number), 1},
		[ACCESS] = {"access_info", sizeof(struct access), TATP_TYPES},
		[FACILITY] = {"special_facility", sizeof(struct facility), TATP_TYPES},
		[FORWARDING] = {"call_forwarding", sizeof(struct forwarding),
				TATP_TYPES * TATP_STARTS},
	};
	struct tatp *own = calloc(1, sizeof(*own));

	l->own = own;
	if (own == NULL)
		return vb_fail(-ENOMEM, "no memory for a workload");
	own->subscribers = opts_of(l)->subscribers * l->nodes;
	own->run = vb_tatp_run(own->subscribers);
	/* Room for every key that there can be: a row that is looked for in vain takes a place. */
	for (unsigned t = 0; t < TABLES; t++)
		l->params[t] = (struct vb_table_params){
			.name = shape[t].name,
			.record_bytes = shape[t].bytes,
			.records = own->subscribers * shape[t].each,
			.partition = VB_PARTITION_TOP16,
		};
	l->n_tables = TABLES;
	l->items = 2 + TATP_TYPES + TATP_STARTS;
	l->record_bytes_max = sizeof(struct subscriber);
	l->bytes = l->items * l->record_bytes_max;
	return 0;
}

/* ---- the population ---- */

static void populate(const struct vb_load *l, uint64_t s, struct population *p)
{
	struct vb_rng rng;

	vb_rng_seed(&rng, l->seed, POPULATION + s);
	p->access = vb_tatp_draw_some(&rng, 1, TATP_TYPES);
	p->facility = vb_tatp_draw_some(&rng, 1, TATP_TYPES);
	for (unsigned t = 0; t < TATP_TYPES; t++) {
		p->active[t] = vb_rng_chance(&rng, ACTIVE);
		p->forwarding[t] = vb_tatp_draw_forwarding(&rng);
		if ((p->facility >> t & 1) == 0)
			p->forwarding[t] = 0;
	}
}

static void make_whole(struct subscriber *r)
{
	r->whole = vb_load_mix((uint64_t)r->updates << 32 | r->moves, r->key, r->vlr_location);
}

static bool is_whole(const struct subscriber *r)
{
	return r->whole ==
	       vb_load_mix((uint64_t)r->updates << 32 | r->moves, r->key, r->vlr_location);
}

/* So many letters that depend on the key only. */
static void letters(const struct vb_load *l, uint64_t key, char *to, unsigned n)
{
	uint64_t w = vb_load_mix(l->seed, key, 1);

	for (unsigned i = 0; i < n; i++)
		to[i] = (char)('A' + (w >> 4 * (i & 15) & 15));
}

static int load_person(struct vb_load *l, uint64_t s)
{
	struct subscriber r = {.key = key_of(l, s, 0, 0)};
	struct number n = {.key = r.key, .subscriber = s};
	uint64_t w = vb_load_mix(l->seed, s, 0);
	char digits[24];
	int err;

	snprintf(digits, sizeof(digits), "%015" PRIu64, s);
	memcpy(r.sub_nbr, digits, sizeof(r.sub_nbr) - 1);
	for (unsigned i = 0; i < 10; i++) {
		r.bit[i] = w >> i & 1;
		r.hex[i] = (uint8_t)(w >> (4 + 4 * i) & 15);
		r.byte2[i] = (uint8_t)(w >> 5 * i);
	}
	r.msc_location = (uint32_t)(w >> 32);
	r.vlr_location = (uint32_t)w;
	make_whole(&r);
	err = vb_table_load(l->table[SUBSCRIBER], r.key, &r);
	return err ? err : vb_table_load(l->table[NUMBER], n.key, &n);
}

static int load_forwarding(struct vb_load *l, uint64_t s, unsigned type, uint16_t rows)
{
	int err = 0;

	for (unsigned i = 0; i < TATP_STARTS && err == 0; i++) {
		struct forwarding r = {.key = key_of(l, s, type, i),
				       .end_hour = (uint8_t)vb_tatp_end_hour(rows, i)};

		if ((rows >> i & 1) == 0)
			continue;
		letters(l, r.key, r.numberx, sizeof(r.numberx));
		err = vb_table_load(l->table[FORWARDING], r.key, &r);
	}
	return err;
}

static int load_type(struct vb_load *l, uint64_t s, unsigned type, const struct population *p)
{
	uint64_t key = key_of(l, s, type, 0), w = vb_load_mix(l->seed, key, 2);
	struct access a = {.key = key, .data1 = (uint8_t)w, .data2 = (uint8_t)(w >> 8)};
	struct facility f = {.key = key, .is_active = p->active[type], .data_a = (uint8_t)w};
	int err = 0;

	letters(l, key, a.data3, sizeof(a.data3));
	letters(l, key, a.data4, sizeof(a.data4));
	letters(l, key, f.data_b, sizeof(f.data_b));
	if ((p->access >> type & 1) != 0)
		err = vb_table_load(l->table[ACCESS], key, &a);
	if (err == 0 && (p->facility >> type & 1) != 0)
		err = vb_table_load(l->table[FACILITY], key, &f);
	return err ? err : load_forwarding(l, s, type, p->forwarding[type]);
}

static int fill(struct vb_load *l, uint16_t node, const struct vb_load_progress *progress)
{
	const struct tatp *own = l->own;
	uint64_t done = 0;
	int err = 0;

	for (uint64_t s = node; s < own->subscribers && err == 0; s += l->nodes) {
		struct population p;

		populate(l, s, &p);
		err = load_person(l, s);
		for (unsigned type = 0; type < TATP_TYPES && err == 0; type++)
			err = load_type(l, s, type, &p);
		if (++done % STEP_EVERY == 0 && !progress->step(progress->ctx, done))
			err = -EINTR;
	}
	return err;
}

static uint64_t records(const struct vb_load *l)
{
	return ((const struct tatp *)l->own)->subscribers;
}

/* ---- drawing ---- */

static void add_key(struct vb_load_client *c, unsigned t, unsigned type, unsigned start, bool write)
{
	const struct drawn *d = c->own;

	c->key[c->n++] = (struct vb_txn_key){
		.table = c->load->table[t],
		.key = key_of(c->load, d->subscriber, type, start),
		.write = write,
	};
}

static void next(struct vb_load_client *c)
{
	const struct tatp *own = c->load->own;
	struct drawn *d = c->own;
	unsigned type = (unsigned)vb_rng_below(&c->rng, TATP_TYPES);

	c->type = vb_trace_draw_type(&c->rng, vb_tatp_percent);
	d->subscriber = vb_trace_nurand(&c->rng, own->run, own->subscribers);
	d->start = (unsigned)vb_rng_below(&c->rng, TATP_STARTS);
	d->hour = 1 + (unsigned)vb_rng_below(&c->rng, TATP_DAY_HOURS);
	d->by_number = c->type >= VB_TATP_UPDATE_LOCATION;
	c->amount = (int64_t)vb_rng_below(&c->rng, UINT32_MAX);
	c->n = 0;
	switch (c->type) {
	case VB_TATP_SUBSCRIBER_DATA:
		add_key(c, SUBSCRIBER, 0, 0, false);
		break;
	case VB_TATP_NEW_DESTINATION:
		add_key(c, FACILITY, type, 0, false);
		for (unsigned i = 0; i <= d->start; i++)
			add_key(c, FORWARDING, type, i, false);
		break;
	case VB_TATP_ACCESS_DATA:
		add_key(c, ACCESS, type, 0, false);
		break;
	case VB_TATP_UPDATE_SUBSCRIBER:
		add_key(c, SUBSCRIBER, 0, 0, true);
		add_key(c, FACILITY, type, 0, true);
		break;
	case VB_TATP_UPDATE_LOCATION:
		add_key(c, SUBSCRIBER, 0, 0, true);
		break;
	case VB_TATP_INSERT_FORWARDING:
		/* Its own type first: whether there is that one decides. */
		for (unsigned i = 0; i < TATP_TYPES; i++)
			add_key(c, FACILITY, (type + i) % TATP_TYPES, 0, false);
		add_key(c, FORWARDING, type, d->start, true);
		break;
	default:
		add_key(c, FORWARDING, type, d->start, true);
		break;
	}
}

/* ---- the transactions ---- */

static int strange(struct vb_load_client *c, const struct vb_txn_key *k)
{
	snprintf(c->why, sizeof(c->why),
		 "a transaction has read for key %" PRIx64 " what nobody has written there",
		 k->key);
	return -EBADMSG;
}

/* The record of the i-th key, of which every table has the key first; -ENOENT. */
static int get(struct vb_load_client *c, struct vb_coordinator *me, unsigned i, const void **out)
{
	const struct vb_txn_key *k = &c->key[i];
	int err = vb_txn_get(me, k->table, k->key, out);

	if (err == 0 && *(const uint64_t *)*out != k->key)
		err = strange(c, k);
	return err;
}

static int get_subscriber(struct vb_load_client *c, struct vb_coordinator *me)
{
	const void *r;
	int err = get(c, me, 0, &r);

	if (err == 0 && !is_whole(r))
		err = strange(c, &c->key[0]);
	return err;
}

static int new_destination(struct vb_load_client *c, struct vb_coordinator *me)
{
	const struct drawn *d = c->own;
	const void *r;
	int err = get(c, me, 0, &r);
	bool found = false;

	if (err == 0 && !((const struct facility *)r)->is_active)
		err = -ENOENT;
	for (unsigned i = 1; i < c->n && err == 0; i++) {
		err = get(c, me, i, &r);
		found |= err == 0 && d->hour < ((const struct forwarding *)r)->end_hour;
		if (err == -ENOENT)
			err = 0;
	}
	return err != 0 || found ? err : -ENOENT;
}

static int update_subscriber(struct vb_load_client *c, struct vb_coordinator *me)
{
	struct subscriber *s;
	struct facility *f;
	int err = vb_txn_update(me, c->key[0].table, c->key[0].key, (void **)&s);

	if (err)
		return err;
	if (!is_whole(s))
		return strange(c, &c->key[0]);
	s->bit[0] = c->amount & 1;
	s->updates++;
	make_whole(s);
	err = vb_txn_update(me, c->key[1].table, c->key[1].key, (void **)&f);
	if (err)
		return err == -ENOENT ? VB_LOAD_ROLLBACK : err;
	f->data_a = (uint8_t)(c->amount >> 1);
	f->updates++;
	c->change[1] = c->change[2] = 1;
	return 0;
}

static int update_location(struct vb_load_client *c, struct vb_coordinator *me)
{
	struct subscriber *s;
	int err = vb_txn_update(me, c->key[0].table, c->key[0].key, (void **)&s);

	if (err)
		return err;
	if (!is_whole(s))
		return strange(c, &c->key[0]);
	s->vlr_location = (uint32_t)c->amount;
	s->moves++;
	make_whole(s);
	c->change[1] = 1;
	return 0;
}

static int insert_forwarding(struct vb_load_client *c, struct vb_coordinator *me)
{
	const struct drawn *d = c->own;
	const struct vb_txn_key *to = &c->key[TATP_TYPES];
	struct forwarding r = {.key = to->key};
	bool has_type = false;
	int err = 0;

	for (unsigned i = 0; i < TATP_TYPES && err == 0; i++) {
		const void *f;

		err = get(c, me, i, &f);
		has_type |= err == 0 && i == 0;
		if (err == -ENOENT)
			err = 0;
	}
	if (err)
		return err;
	if (!has_type)
		return -ENOENT;
	r.end_hour = (uint8_t)(d->start * TATP_START_HOURS + 1 + (d->hour - 1) % TATP_START_HOURS);
	memset(r.numberx, 'A' + (int)(c->amount & 15), sizeof(r.numberx));
	c->change[0] = 1;
	return vb_txn_insert(me, to->table, to->key, &r);
}

static int delete_forwarding(struct vb_load_client *c, struct vb_coordinator *me)
{
	c->change[0] = -1;
	return vb_txn_delete(me, c->key[0].table, c->key[0].key);
}

static int run(struct vb_load_client *c, struct vb_coordinator *me)
{
	const void *r;

	switch (c->type) {
	case VB_TATP_SUBSCRIBER_DATA:
		return get_subscriber(c, me);
	case VB_TATP_NEW_DESTINATION:
		return new_destination(c, me);
	case VB_TATP_ACCESS_DATA:
		return get(c, me, 0, &r);
	case VB_TATP_UPDATE_SUBSCRIBER:
		return update_subscriber(c, me);
	case VB_TATP_UPDATE_LOCATION:
		return update_location(c, me);
	case VB_TATP_INSERT_FORWARDING:
		return insert_forwarding(c, me);
	default:
		return delete_forwarding(c, me);
	}
}

static int body(struct vb_load_client *c, struct vb_coordinator *me)
{
	const struct drawn *d = c->own;
	uint64_t number = key_of(c->load, d->subscriber, 0, 0);
	const void *found;
	int err = 0;

	memset(c->change, 0, sizeof(c->change));
	if (d->by_number)
		err = vb_txn_get(me, c->load->table[NUMBER], number, &found);
	if (d->by_number && err == 0 && ((const struct number *)found)->subscriber != d->subscriber)
		return strange(c, &(struct vb_txn_key){.key = number});
	if (err == 0 && !opts_of(c->load)->no_declare)
		err = vb_txn_declare(me, c->key, c->n);
	if (err == 0)
		err = run(c, me);
	if (err == -ENOENT || err == -EEXIST) {
		memset(c->change, 0, sizeof(c->change));
		err = VB_LOAD_ABSENT;
	}
	return err;
}

/* ---- the end ---- */

/* A row that is there exactly if it was put there. */
static const void *look_at(const struct vb_load *l, unsigned t, uint64_t key, bool expected,
			   struct vb_load_sums *sums)
{
	const void *r = vb_load_record(l, t, key, sums);

	sums->absent += r == NULL && expected;
	sums->wrong += r != NULL && (!expected || *(const uint64_t *)r != key);
	return r;
}

/* value[0], [1]: rows of call forwarding that there are, and that there were; [2], [3]: updates
 * that subscribers and facilities have counted. */
static void count_one(const struct vb_load *l, uint64_t s, struct vb_load_sums *sums)
{
	struct population p;
	const struct subscriber *r = look_at(l, SUBSCRIBER, key_of(l, s, 0, 0), true, sums);
	uint64_t updates = 0;

	populate(l, s, &p);
	look_at(l, NUMBER, key_of(l, s, 0, 0), true, sums);
	for (unsigned t = 0; t < TATP_TYPES; t++) {
		bool has = (p.facility >> t & 1) != 0;
		const struct facility *f = look_at(l, FACILITY, key_of(l, s, t, 0), has, sums);

		look_at(l, ACCESS, key_of(l, s, t, 0), (p.access >> t & 1) != 0, sums);
		updates += f != NULL ? f->updates : 0;
		for (unsigned i = 0; i < TATP_STARTS; i++) {
			uint64_t key = key_of(l, s, t, i);
			const struct forwarding *row = vb_load_record(l, FORWARDING, key, sums);

			sums->value[1] += p.forwarding[t] >> i & 1;
			if (row == NULL)
				continue;
			sums->value[0]++;
			sums->wrong += f == NULL || row->key != key ||
				       row->end_hour <= i * TATP_START_HOURS ||
				       row->end_hour > (i + 1) * TATP_START_HOURS;
		}
	}
	if (r == NULL)
		return;
	sums->wrong += !is_whole(r) || r->updates != updates;
	sums->value[2] += r->updates + r->moves;
	sums->value[3] += updates;
}

static void count(const struct vb_load *l, uint16_t node, struct vb_load_sums *sums)
{
	for (uint64_t s = node; s < ((const struct tatp *)l->own)->subscribers; s += l->nodes)
		count_one(l, s, sums);
}

static void moved(const struct vb_load *l, const struct vb_load_sums *sums,
		  int64_t by[VB_LOAD_CHANGES_MAX])
{
	(void)l;
	by[0] = (int64_t)(sums->value[0] - sums->value[1]);
	by[1] = (int64_t)sums->value[2];
	by[2] = (int64_t)sums->value[3];
}

static int judge(const struct vb_load *l, const struct vb_load_sums *sums, const int64_t *change,
		 char *why, size_t size)
{
	static const char *const what[] = {
		"there are %" PRId64 " more rows of call forwarding than at first, and the "
		"committed transactions have made %" PRId64,
		"subscribers have counted %" PRId64
		" updates, and the committed transactions have made %" PRId64,
		"special facilities have counted %" PRId64
		" updates, and the committed transactions have made %" PRId64,
	};
	int64_t now[VB_LOAD_CHANGES_MAX];
	int err = vb_load_judge_records(sums, why, size);

	moved(l, sums, now);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(what) && err == 0; i++) {
		if (now[i] == change[i])
			continue;
		snprintf(why, size, what[i], now[i], change[i]);
		err = -EBADMSG;
	}
	return err;
}

const struct vb_load_ops vb_load_tatp = {
	.name = "tatp",
	.summary = "TATP: seven short kinds of transactions on phone subscribers, mostly reads",
	.options = table,
	.options_bytes = sizeof(struct tatp_opts),
	.types = vb_tatp_types,
	.n_types = VB_TATP_KINDS,
	.client_bytes = sizeof(struct drawn),
	.init = init,
	.fill = fill,
	.records = records,
	.next = next,
	.body = body,
	.count = count,
	.moved = moved,
	.judge = judge,
};
