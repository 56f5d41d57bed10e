/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A coordinator's place in the order of sequenced transactions: see epoch.h.
 *
 * All that a transaction has declared goes to this node's server in one request, which puts it into a batch.  What the
 * servers of the keys' nodes then forward, when the locks are ours, is found in this node's memory; a message says
 * only that something has come.  Who waits for long asks how it is: then the answer comes again if it was lost, and
 * says who is in the way if there is somebody, who may be dead (txn/suspect.c).
 *
 * As long as a node has not answered, its locks may be ours at any time: VB_ITEM_MAYBE.  Who gives up writes floors
 * there first (txn/queue.c).
 */
#define VB_LOG_ROOM "txn"
#include <stdlib.h>

#include <xxhash.h>

#include "base/log.h"
#include "base/sometimes.h"
#include "txn/epoch.h"

#define ASK_OF_LEASE                                                                               \
	2u /* how it is: in each such part of it once, and half of that after the begin */

/* What is awaited of a node: items in a row of t->some. */
struct sequence {
	struct vb_txn *t;
	struct vb_box box;
	uint64_t until_ns;
	unsigned missing; /* items */
	unsigned n;
};

static uint16_t node_of(const struct vb_item *it)
{
	return vb_table_node(it->table, it->key);
}

static int by_node(const void *a, const void *b)
{
	const struct vb_item *x = *(struct vb_item *const *)a, *y = *(struct vb_item *const *)b;
	int nodes = (int)node_of(x) - (int)node_of(y);

	return nodes != 0 ? nodes : x < y ? -1 : 1;
}

/* How many of the items from i on are of one node. */
static unsigned row(const struct sequence *q, unsigned i)
{
	unsigned n = 1;

	while (i + n < q->n && node_of(q->t->some[i + n]) == node_of(q->t->some[i]))
		n++;
	return n;
}

static struct vb_seq_part part_of(const struct sequence *q, uint16_t node, unsigned n)
{
	const struct vb_coordinator *me = q->t->me;

	return (struct vb_seq_part){
		.ts = q->t->ts,
		.peer = me->ep->self,
		.subject = q->box.subject,
		.until_ns = q->until_ns,
		.coordinator = (uint16_t)me->number,
		.from_node = me->node,
		.to_node = node,
		.n = (uint16_t)n,
	};
}

/* ---- asking ---- */

static uint32_t put_request(const struct sequence *q, unsigned char *buf)
{
	uint32_t at = 0;

	for (unsigned i = 0, n; i < q->n; i += n) {
		struct vb_seq_part *p = (void *)(buf + at);
		struct vb_seq_key *key = (void *)(p + 1);

		n = row(q, i);
		memset(p, 0, vb_seq_part_bytes(n));
		*p = part_of(q, node_of(q->t->some[i]), n);
		for (unsigned k = 0; k < n; k++) {
			const struct vb_item *it = q->t->some[i + k];

			key[k] = (struct vb_seq_key){
				.key = {(uint32_t)it->key, (uint32_t)(it->key >> 32)},
				.table = it->table->id,
				.write = (it->flags & VB_ITEM_WRITE) != 0,
			};
		}
		at += vb_seq_part_bytes(n);
	}
	return at;
}

static int failed(struct vb_txn *t, uint16_t node, int err)
{
	__atomic_store_n(&t->me->db->server[node], 0, __ATOMIC_RELAXED);
	t->tainted = true;
	return vb_txn_doom(t, VB_TXN_FABRIC, err);
}

/* Another may have come in the place of the one that we know. */
static int find_living(struct vb_coordinator *me, uint16_t node, vb_peer *server)
{
	int err = vb_db_find_server(me, node, server);

	if (err != 0 || vb_peer_alive(me->db->fabric, *server))
		return err;
	__atomic_store_n(&me->db->server[node], 0, __ATOMIC_RELAXED);
	err = vb_db_find_server(me, node, server);
	return err == 0 && !vb_peer_alive(me->db->fabric, *server) ? -VB_EPEERGONE : err;
}

/* The end of its lease, by nobody's clock earlier than by ours. */
static uint64_t over_by(const struct vb_txn *t)
{
	const struct vb_coordinator *me = t->me;
	uint64_t error_ns, common = vb_ep_common_now(me->ep, &error_ns), now = vb_ep_now(me->ep);
	uint64_t end = t->begin_ns + me->db->lease_ns;

	return common + error_ns + (end > now ? end - now : 0);
}

static int submit(struct sequence *q)
{
	struct vb_coordinator *me = q->t->me;
	struct vb_seq_submit m = {.ts = q->t->ts, .coordinator = me->number};
	struct vb_msg msg = {.tag = VB_TAG_SUBMIT, .len = sizeof(m)};
	struct vb_verb v[2];
	vb_peer server;
	int err = find_living(me, me->node, &server);

	if (err)
		return failed(q->t, me->node, err);
	q->until_ns = over_by(q->t);
	m.bytes = put_request(q, me->scratch);
	m.seal = XXH3_64bits_withSeed(me->scratch, m.bytes, m.ts);
	memcpy(msg.data, &m, sizeof(m));
	v[0] = (struct vb_verb){.op = VB_OP_WRITE,
				.flags = VB_SIGNALLED,
				.addr = vb_seq_request(me->db, me->node, me->number),
				.buf = me->scratch,
				.len = m.bytes};
	v[1] = (struct vb_verb){
		.op = VB_OP_SEND, .flags = VB_SIGNALLED, .peer = server, .msg = &msg};
	me->calls++;
	for (unsigned i = 0; i < q->n; i++)
		q->t->some[i]->flags |=
			q->t->some[i]->flags & VB_ITEM_WRITE ? VB_ITEM_MAYBE : VB_ITEM_MAYBE_S;
	err = vb_post_wait(me->ep, v, 2);
	return err ? failed(q->t, me->node, err) : 0;
}

/* ---- what was forwarded ---- */

static bool is_missing(const struct vb_item *it)
{
	return it->flags & (VB_ITEM_MAYBE | VB_ITEM_MAYBE_S);
}

static void take_item(struct vb_txn *t, struct vb_item *it, const struct vb_seq_item *from,
		      const unsigned char *tuple)
{
	const struct vb_tuple_layout *l = &it->table->layout;

	it->flags &= (uint16_t) ~(VB_ITEM_MAYBE | VB_ITEM_MAYBE_S);
	it->flags |= it->flags & VB_ITEM_WRITE ? VB_ITEM_HELD_X : VB_ITEM_HELD_S;
	it->at = from->at;
	it->held = t->ts;
	it->slot = from->slot;
	it->seen = 0;
	it->status = 0;
	vb_cache_put(t->me->db->cache, it->table, it->key, it->at, vb_txn_epoch(t->me));
	if (from->bytes == 0)
		return;
	memcpy(it->image, tuple, l->bytes);
	it->version = vb_tuple_word(it->image, l->version_at);
	it->flags |= VB_ITEM_FETCHED;
	vb_txn_note_fetched(t, it);
}

/* Who is in the way of those that wait. */
static void take_waits(struct vb_txn *t, struct vb_item **items, unsigned n,
		       const struct vb_seq_item *from)
{
	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];

		if (from[i].held || from[i].seen == 0)
			continue;
		it->at = from[i].at;
		it->seen = from[i].seen;
		it->seen_slot = from[i].seen_slot;
		it->status = VB_ITEM_WAIT;
		vb_txn_note_met(t, it);
		it->status = 0;
	}
}

static int take_granted(struct vb_txn *t, struct vb_item **items, unsigned n,
			const struct vb_seq_forward *f)
{
	const struct vb_seq_item *from = (const void *)(f + 1);
	const unsigned char *tuple = (const void *)(from + n);
	uint32_t at = n * (uint32_t)sizeof(*from);

	for (unsigned i = 0; i < n; i++) {
		at += from[i].bytes;
		if (at > f->bytes ||
		    (from[i].bytes != 0 && from[i].bytes < items[i]->table->layout.bytes))
			return failed(t, node_of(items[i]), -EPROTO);
		take_item(t, items[i], &from[i], tuple);
		tuple += from[i].bytes;
	}
	return 0;
}

/* A whole copy of what the node has forwarded for this transaction; NULL: nothing yet. */
static const struct vb_seq_forward *copy_forward(struct vb_txn *t, uint16_t node)
{
	struct vb_coordinator *me = t->me;
	const struct vb_seq_forward *f =
		vb_local(me->db->fabric, vb_seq_forward(me->db, me->node, me->number, node),
			 me->db->forward_bytes);
	struct vb_seq_forward *copy = (void *)me->scratch;

	if (__atomic_load_n(&f->ts, __ATOMIC_ACQUIRE) != t->ts)
		return NULL;
	vb_seq_copy(copy, f, sizeof(*f));
	if (copy->bytes > me->db->forward_bytes - sizeof(*f))
		return NULL;
	vb_seq_copy(copy + 1, f + 1, copy->bytes);
	return vb_seq_forward_seal(copy) == copy->seal ? copy : NULL;
}

static int refused(struct vb_txn *t, uint16_t node)
{
	return failed(
		t, node,
		vb_fail(-EPROTO,
			"the server of node %u refuses what it was asked.  Every process must "
			"open the database and its tables with the same parameters, in the "
			"same order",
			node));
}

static int take_node(struct sequence *q, struct vb_item **items, unsigned n)
{
	uint16_t node = node_of(items[0]);
	const struct vb_seq_forward *f = copy_forward(q->t, node);
	int err = 0;

	if (f == NULL)
		return 0;
	if (f->state == VB_SEQ_REFUSED)
		return refused(q->t, node);
	if (f->state == VB_SEQ_FULL)
		return vb_txn_doom(q->t, VB_TXN_MISUSE, -ENOSPC);
	if (f->state == VB_SEQ_LOST)
		return failed(q->t, node, -VB_EUNKNOWN);
	if (f->n != n)
		return 0;
	if (f->state == VB_SEQ_WAITS)
		take_waits(q->t, items, n, (const void *)(f + 1));
	if (f->state == VB_SEQ_GRANTED)
		err = take_granted(q->t, items, n, f);
	if (f->state == VB_SEQ_GRANTED && err == 0)
		q->missing -= n;
	return err;
}

static int take_forwarded(struct sequence *q)
{
	int err = 0;

	for (unsigned i = 0, n; i < q->n && err == 0; i += n) {
		n = row(q, i);
		if (is_missing(q->t->some[i]))
			err = take_node(q, &q->t->some[i], n);
	}
	return err;
}

/* ---- waiting ---- */

/* How is it?  The answer is forwarded. */
static int ask_node(struct sequence *q, uint16_t node)
{
	struct vb_coordinator *me = q->t->me;
	struct vb_seq_part p = part_of(q, node, 0);
	struct vb_msg msg = {.tag = VB_TAG_HOW, .len = sizeof(p)};
	vb_peer server;
	int err = find_living(me, node, &server);

	_Static_assert(sizeof(p) <= VB_MSG_DATA, "fits in a message");
	memcpy(msg.data, &p, sizeof(p));
	if (err == 0)
		err = vb_send_wait(me->ep, server, &msg);
	/* What is lost is asked again. */
	if (err == 0 || err == -VB_EUNKNOWN)
		return 0;
	return failed(q->t, node, err);
}

static int ask(struct sequence *q)
{
	int err = vb_txn_alive(q->t);

	if (err == 0 && q->t->me->ripe > 0)
		err = vb_txn_doom(q->t, VB_TXN_LOCKED, 0);
	for (unsigned i = 0; i < q->n && err == 0; i += row(q, i))
		if (is_missing(q->t->some[i]))
			err = ask_node(q, node_of(q->t->some[i]));
	return err;
}

static int await(struct sequence *q)
{
	struct vb_txn *t = q->t;
	struct vb_coordinator *me = t->me;
	uint64_t every = me->db->lease_ns / ASK_OF_LEASE, next = vb_ep_now(me->ep) + every / 2;
	struct vb_msg msg;
	int err = 0;

	while (err == 0 && q->missing > 0) {
		uint64_t until = next <= t->deadline_ns ? next : t->deadline_ns + 1;

		err = vb_box_wait(&me->mail, &q->box, 1u << (VB_TAG_FORWARD % VB_BOX_SLOTS), until);
		if (err == -ECANCELED)
			return vb_txn_doom(t, VB_TXN_TIMEOUT, err);
		(void)vb_box_take(&q->box, VB_TAG_FORWARD, &msg);
		err = take_forwarded(q);
		if (err == 0 && q->missing > 0)
			err = vb_txn_in_time(t);
		if (err == 0 && q->missing > 0 && vb_ep_now(me->ep) >= next) {
			me->waits++;
			next = vb_ep_now(me->ep) + every;
			err = ask(q);
		}
	}
	return err;
}

/* Those that found no room where they were forwarded. */
static int fetch_rest(struct vb_txn *t)
{
	unsigned n = vb_items_to_front(t->some, t->n, VB_ITEM_READ, VB_ITEM_FETCHED);
	int err = n > 0 ? vb_txn_stage(t, t->me->db->cc->grant, t->some, n) : 0;

	return err ? err : vb_txn_fetched_in_time(t, t->me->db->cc->grant);
}

/* One-sided, and not in the stage that lets go, so that they come in the order of our transactions, and to a server
 * that has much to do at once. */
int vb_txn_write_floors(struct vb_txn *t, struct vb_lane *lane, struct vb_item **items, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (is_missing(items[i]))
			vb_acc_write(&lane->acc, VB_WRITE_TM,
				     vb_seq_floor(t->me->db, node_of(items[i]), lane->place),
				     &t->ts, 8);
	return vb_acc_go(&lane->acc);
}

/* As if we had run the stage ourselves. */
static void note_time(struct vb_txn *t, uint64_t begin_ns, bool ended)
{
	struct vb_coordinator *me = t->me;
	struct vb_stage_time *timed = &me->timed[me->db->cc->grant];

	timed->ns += vb_ep_now_early(me->ep) - begin_ns;
	timed->runs++;
	timed->items += t->n;
	timed->ended += ended;
}

int vb_txn_sequence(struct vb_txn *t)
{
	struct vb_coordinator *me = t->me;
	struct sequence q = {.t = t, .n = t->n, .missing = t->n};
	uint64_t begin;
	int err;

	if (t->n == 0)
		return 0;
	for (unsigned i = 0; i < t->n; i++)
		t->some[i] = &t->item[i];
	begin = me->db->timing ? vb_ep_now_early(me->ep) : 0;
	qsort(t->some, t->n, sizeof(struct vb_item *), by_node);
	vb_box_open(&me->mail, &q.box, 1ull << 63 | ++me->mail.next_request);
	err = submit(&q);
	if (err == 0)
		err = await(&q);
	vb_box_close(&q.box);
	if (me->db->timing)
		note_time(t, begin, err != 0);
	VB_SOMETIMES_IF(err != 0 && q.missing < q.n, 2000,
			"calvin: it ends with a part of its locks");
	return err ? err : fetch_rest(t);
}
