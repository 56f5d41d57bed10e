/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stages by RPC, the coordinator's side.
 *
 * What a server needs stands in this coordinator's inbox at the server's node, written there by
 * WRITEs that land before the message which tells of them; the answer comes back into an outbox of
 * ours the same way.  Items of several nodes go out together and are waited for together.  A node's
 * items that do not fit in one inbox go in several calls, one after the other.
 *
 * A server does not wait long for a lock on our behalf (txn/serve.c); it answers, and we look at
 * our own status before we ask again.  So an answer comes soon or never, and an answer that never
 * comes means that the server is gone, or its node is cut off.  A call of a stage that votes has no answer, and
 * takes nothing: txn/vote.c.
 *
 * A call that was given up may still be served later.  What it locks then is recovered, or given
 * back by the release that follows it: that goes to the same server, behind it, and the server
 * drops what waits there for us when we ask anew.  If the inbox holds the items of another call by
 * then, the seal is wrong and the server drops it, too.
 */
#define VB_LOG_ROOM "txn"
#include <stdlib.h>

#include <xxhash.h>

#include "base/log.h"
#include "base/sometimes.h"
#include "txn/db.h"

#define CALL_ITEMS VB_STAGE_ITEMS

const struct vb_stage_ops vb_scan_stage = {.name = "scan", .flags = VB_STAGE_LISTS};

struct call {
	struct vb_box box;
	struct vb_msg msg;
	struct vb_item *item[CALL_ITEMS];
	unsigned n;
	uint16_t node;
	uint32_t epoch; /* when it was made */
	vb_peer server;
	uint32_t bytes;
	unsigned char *buf;
	int err;
	bool open;    /* its box is */
	bool refused; /* the server has not begun with it */
};

static uint32_t pad8(uint32_t n)
{
	return (n + 7) & ~7u;
}

uint64_t vb_wire_seal(const void *items, uint32_t bytes, uint64_t request)
{
	return XXH3_64bits_withSeed(items, bytes, request);
}

void vb_wire_put(unsigned char *to, const void *from, uint32_t bytes)
{
	vb_tuple_set_word(to, pad8(bytes) - 8, 0);
	memcpy(to, from, bytes);
}

uint32_t vb_wire_bytes(const struct vb_table *t, const struct vb_stage_ops *stage, uint32_t own,
		       uint16_t flags, bool reply)
{
	uint32_t bytes = (uint32_t)sizeof(struct vb_wire_item) + own;

	if (stage == NULL)
		return bytes;
	if (stage->flags & VB_STAGE_LISTS)
		return bytes + (reply ? VB_SCAN_KEYS * 8 : 0);
	if (!reply && stage->flags & VB_STAGE_WRITES && flags & VB_ITEM_WRITE)
		bytes += pad8(t->layout.one_bytes - t->layout.version_at);
	if (reply && stage->flags & VB_STAGE_FETCHES && flags & VB_ITEM_WANTED)
		bytes += pad8(flags & VB_ITEM_BLIND ? t->layout.record_at : t->layout.one_bytes);
	return bytes;
}

static int read_server(struct vb_coordinator *me, uint16_t node, vb_peer *out)
{
	uint64_t server = 0;
	int err = vb_read64(me->ep, me->db->region[node] + offsetof(struct vb_db_header, server),
			    &server);

	if (err)
		return err;
	if (server == 0)
		return vb_fail(-VB_EPEERGONE,
			       "nobody serves database '%s' on node %u; start a server there "
			       "(vb_db_server_start)",
			       me->db->name, node);
	__atomic_store_n(&me->db->server[node], server, __ATOMIC_RELAXED);
	*out = server;
	return 0;
}

int vb_db_find_server(struct vb_coordinator *me, uint16_t node, vb_peer *out)
{
	*out = __atomic_load_n(&me->db->server[node], __ATOMIC_RELAXED);
	return *out != 0 ? 0 : read_server(me, node, out);
}

/* A server that ends in good order leaves its word, and what it was asked unanswered. */
static bool has_gone(struct vb_coordinator *me, uint16_t node, vb_peer server)
{
	uint64_t now = 0;
	int err = vb_read64(me->ep, me->db->region[node] + offsetof(struct vb_db_header, server),
			    &now);

	return err == 0 && (now != server || !vb_peer_alive(me->db->fabric, server));
}

/* Asked once: a server that is late finds one question of ours, and not as many as we had
 * doubts. */
static int ask(struct vb_coordinator *me, vb_peer server, struct vb_box *box)
{
	struct vb_msg msg = {.tag = VB_TAG_ASK, .subject = box->subject};
	struct vb_verb v = {.op = VB_OP_SEND, .flags = VB_SIGNALLED, .peer = server, .msg = &msg};

	return vb_verb_run(me->ep, &v);
}

int vb_call_is_done(struct vb_coordinator *me, uint16_t node, uint64_t patience_ns)
{
	uint64_t server = 0, until = vb_ep_now(me->ep) + patience_ns, now;
	struct vb_box box;
	int err = vb_read64(me->ep, me->db->region[node] + offsetof(struct vb_db_header, server),
			    &server);

	if (err != 0)
		return err;
	if (server == 0 || !vb_peer_alive(me->db->fabric, server))
		return 0;
	vb_box_open(&me->mail, &box, 1ull << 63 | ++me->mail.next_request);
	err = ask(me, server, &box);
	while (err == 0) {
		bool shielded = vb_task_shield(true);

		now = vb_ep_now(me->ep);
		err = vb_box_wait(&me->mail, &box, 1, now + me->db->suspect_ns);
		(void)vb_task_shield(shielded);
		if (err == 0)
			break;
		if (err != -ETIMEDOUT || has_gone(me, node, server) || vb_ep_now(me->ep) > until)
			break;
		err = vb_task_cancelled(vb_task_self()) ? -ECANCELED : 0;
	}
	vb_box_close(&box);
	return err != 0 && has_gone(me, node, server) ? 0 : err;
}

static void to_wire(struct vb_wire_item *w, const struct vb_item *it)
{
	*w = (struct vb_wire_item){
		.key = it->key,
		.at = it->at,
		.seen = it->seen,
		.version = it->version,
		.lease = it->lease,
		.held = it->held,
		.next = it->next,
		.table = it->table->id,
		.flags = it->flags,
		.slot = it->slot,
		.status = it->status,
		.seen_slot = it->seen_slot,
		.to_slot = it->to_slot,
	};
}

static void from_wire(struct vb_item *it, const struct vb_wire_item *w)
{
	it->at = w->at;
	it->seen = w->seen;
	it->version = w->version;
	it->lease = w->lease;
	it->held = w->held;
	it->flags = w->flags;
	it->slot = w->slot;
	it->seen_slot = w->seen_slot;
	it->to_slot = w->to_slot;
	it->status = w->status;
}

static const struct vb_stage_ops *ops_of(const struct vb_txn *t, unsigned stage)
{
	return vb_stage_ops_of(t->me->db, stage);
}

/* ---- out ---- */

static bool asked_already(const struct call *calls, const struct call *c, uint16_t node)
{
	for (; calls < c; calls++)
		if (calls->node == node)
			return true;
	return false;
}

/* Takes items of one node from the list, as many as fit in a call; none of a node that is being
 * asked: it has one inbox for us. */
static void gather(struct vb_txn *t, const struct vb_stage_ops *ops, const struct call *calls,
		   struct call *c, struct vb_item **items, unsigned n, uint64_t *taken)
{
	const uint32_t own = vb_wire_own(t->me->db, ops);
	uint32_t limit = t->me->db->call_bytes, out = 0, back = 0;

	for (unsigned i = 0; i < n && c->n < CALL_ITEMS; i++) {
		struct vb_item *it = items[i];
		uint16_t node = vb_table_node(it->table, it->key);

		if (taken[i / 64] >> (i % 64) & 1)
			continue;
		if (c->n > 0 ? node != c->node : asked_already(calls, c, node))
			continue;
		out += vb_wire_bytes(it->table, ops, own, it->flags, false);
		back += vb_wire_bytes(it->table, ops, own, it->flags, true);
		if (c->n > 0 && (out > limit || back > limit))
			return;
		c->node = node;
		c->bytes = out;
		c->item[c->n++] = it;
		taken[i / 64] |= 1ull << (i % 64);
	}
}

static void put_items(const struct vb_db *db, const struct vb_stage_ops *ops, struct call *c)
{
	const uint32_t own = vb_wire_own(db, ops),
		       head = (uint32_t)sizeof(struct vb_wire_item) + own;
	uint32_t at = 0;

	for (unsigned i = 0; i < c->n; i++) {
		const struct vb_item *it = c->item[i];
		const struct vb_tuple_layout *l = &it->table->layout;
		uint32_t bytes = vb_wire_bytes(it->table, ops, own, it->flags, false);
		struct vb_wire_item *w = (void *)(c->buf + at);

		to_wire(w, it);
		vb_own_copy(w + 1, vb_item_own(it, own), own);
		if (bytes > head)
			vb_wire_put(c->buf + at + head, it->image + l->version_at,
				    l->one_bytes - l->version_at);
		at += bytes;
	}
}

/* As much of it as a server waits by itself, or more. */
static uint8_t patience_us(const struct vb_txn *t)
{
	uint64_t ns = vb_txn_patience(t);

	return ns < UINT8_MAX * 1000ull ? (uint8_t)((ns + 999) / 1000) : UINT8_MAX;
}

void vb_call_verbs(struct vb_coordinator *me, struct vb_wire_call *head, const void *buf,
		   uint16_t node, vb_peer server, struct vb_box *box, struct vb_msg *msg,
		   struct vb_verb v[2])
{
	head->from_node = me->node;
	head->coordinator = me->number;
	*msg = (struct vb_msg){.tag = VB_TAG_CALL, .len = sizeof(*head)};
	msg->subject = 1ull << 63 | ++me->mail.next_request;
	head->seal = vb_wire_seal(buf, head->bytes, msg->subject);
	memcpy(msg->data, head, sizeof(*head));
	vb_box_open(&me->mail, box, msg->subject);
	v[0] = (struct vb_verb){.op = VB_OP_WRITE,
				.flags = VB_SIGNALLED,
				.addr = vb_db_inbox(me->db, node, me->node, me->number),
				.buf = (void *)buf,
				.len = head->bytes};
	v[1] = (struct vb_verb){
		.op = VB_OP_SEND, .flags = VB_SIGNALLED, .peer = server, .msg = msg};
	me->calls++;
}

static int make_call(struct vb_txn *t, unsigned stage, struct call *c, struct vb_verb *v)
{
	struct vb_coordinator *me = t->me;
	struct vb_wire_call head = {
		.ts = t->ts,
		.commit_ts = t->snapshot != 0 ? t->snapshot : t->commit_ts,
		.bytes = c->bytes,
		.n = (uint8_t)c->n,
		.stage = (uint8_t)stage,
		.patience_us = patience_us(t),
		.isolation = vb_txn_reads_at(t),
	};
	int err = vb_db_find_server(me, c->node, &c->server);

	if (err)
		return err;
	c->epoch = vb_txn_epoch(me);
	put_items(me->db, ops_of(t, stage), c);
	vb_call_verbs(me, &head, c->buf, c->node, c->server, &c->box, &c->msg, v);
	c->open = true;
	return 0;
}

/* ---- back ---- */

int vb_call_refused(uint16_t node, uint64_t why)
{
	static const char *const reasons[VB_WIRE_REFUSALS] = {
		[VB_WIRE_NO_STAGE] = "it knows no such stage, node or coordinator",
		[VB_WIRE_NO_TABLE] = "it has not opened that table",
		[VB_WIRE_NOT_HERE] = "it takes a key to be another node's",
		[VB_WIRE_NO_SLOT] = "a tuple has no such slot",
		[VB_WIRE_NO_RANGE] = "the table has no such range",
		[VB_WIRE_TOO_LONG] = "the items do not add up",
	};

	return vb_fail(
		-EPROTO,
		"the server of node %u refuses what it was asked: %s.  Every process must "
		"open the database and its tables with the same parameters, in the same order",
		node, why < VB_WIRE_REFUSALS ? reasons[why] : "for a reason of its own");
}

/*
 * Where it is far the call's own buffer, which has been sent, takes what is in it.  A READ whose answer was lost is
 * asked for again; so is one that has come before the items, which may be another way than the message's.
 */
static int open_outbox(struct vb_coordinator *me, struct call *c, const struct vb_wire_call *head,
		       const unsigned char **out)
{
	vb_addr at = vb_db_outbox(me->db, me->node, me->number, c->node);
	uint64_t until;
	int err;

	if (vb_likely(!me->far)) {
		*out = vb_local(me->db->fabric, at, me->db->call_bytes);
		return 0;
	}
	*out = c->buf;
	until = vb_ep_now(me->ep) + 2 * me->db->fabric->caps.verb_bound_ns;
	do
		err = vb_read(me->ep, at, c->buf, head->bytes);
	while ((err == -VB_EUNKNOWN ||
		(err == 0 && vb_wire_seal(c->buf, head->bytes, c->msg.subject) != head->seal)) &&
	       vb_ep_now(me->ep) < until);
	return err;
}

static int take_reply(struct vb_txn *t, unsigned stage, struct call *c, const struct vb_msg *msg)
{
	struct vb_coordinator *me = t->me;
	const struct vb_stage_ops *ops = ops_of(t, stage);
	const uint32_t own = vb_wire_own(me->db, ops);
	const unsigned char *buf;
	struct vb_wire_call head;
	uint32_t at = 0;
	int err;

	memcpy(&head, msg->data, sizeof(head));
	if (head.bytes == 0 && head.err != 0) {
		c->refused = true;
		return vb_call_refused(c->node, head.seal);
	}
	if (head.n != c->n || head.bytes > me->db->call_bytes)
		return vb_fail(-EPROTO, "the server of node %u answers what was not asked",
			       c->node);
	err = open_outbox(me, c, &head, &buf);
	if (err != 0)
		return err;
	/* The message may have come and the items not: a WRITE's answer can be lost. */
	VB_SOMETIMES_IF(vb_wire_seal(buf, head.bytes, c->msg.subject) != head.seal, 20000,
			"txn: an answer whose items have not come");
	if (vb_wire_seal(buf, head.bytes, c->msg.subject) != head.seal)
		return -VB_EUNKNOWN;
	for (unsigned i = 0; i < c->n; i++) {
		struct vb_item *it = c->item[i];
		uint32_t bytes = vb_wire_bytes(it->table, ops, own, it->flags, true);
		const struct vb_wire_item *w = (const void *)(buf + at);
		const uint32_t record_at = (uint32_t)sizeof(*w) + own;

		if (at + bytes > head.bytes)
			return vb_fail(-EPROTO, "the server of node %u answers too little",
				       c->node);
		if (w->status == 0 && bytes > record_at)
			memcpy(it->image, buf + at + record_at, bytes - record_at);
		from_wire(it, w);
		vb_own_copy(vb_item_own(it, own), w + 1, own);
		if (it->at != 0)
			vb_cache_put(me->db->cache, it->table, it->key, it->at, c->epoch);
		at += bytes;
	}
	if (head.ts > t->saw)
		t->saw = head.ts;
	if (t->snapshot == 0 && head.commit_ts > t->commit_ts)
		t->commit_ts = head.commit_ts;
	return head.err;
}

static void call_failed(struct vb_txn *t, struct call *c, int err)
{
	t->tainted = true;
	t->error = err;
	/* Whoever comes next looks for the server again. */
	__atomic_store_n(&t->me->db->server[c->node], 0, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < c->n; i++)
		if (c->item[i]->status == 0 || c->item[i]->status == VB_ITEM_WAIT)
			c->item[i]->status = VB_TXN_FABRIC;
}

/*
 * Whether to go on waiting for an answer that is late.  Where verbs complete at once no message is
 * lost and a dead peer is known to be dead: a server that is not has merely not been given a core,
 * and would serve what we had given up.  Elsewhere the answer itself may have been lost.
 */
static bool still_coming(const struct vb_coordinator *me, vb_peer server, uint64_t since_ns)
{
	return me->db->fabric->caps.flags & VB_CAP_INLINE &&
	       vb_ep_now(me->ep) - since_ns < me->db->patience_ns &&
	       !vb_task_cancelled(vb_task_self()) && vb_peer_alive(me->db->fabric, server);
}

int vb_call_await(struct vb_coordinator *me, struct vb_box *box, vb_peer server, uint16_t node,
		  struct vb_msg *out)
{
	uint64_t since = vb_ep_now(me->ep);
	int err;

	do {
		uint64_t until = vb_ep_now(me->ep) + 2 * me->db->suspect_ns;
		bool shielded = vb_task_shield(true);

		err = vb_box_wait(&me->mail, box, 1u << (VB_TAG_REPLY % VB_BOX_SLOTS), until);
		(void)vb_task_shield(shielded);
	} while (err == -ETIMEDOUT && still_coming(me, server, since));
	if (err == 0)
		err = vb_box_take(box, VB_TAG_REPLY, out);
	if (err != -ETIMEDOUT)
		return err;
	/* Who is known to be dead has been named by whoever learned it. */
	if (!vb_peer_alive(me->db->fabric, server))
		return -VB_EPEERGONE;
	return vb_fail(-VB_EPEERGONE, "the server of node %u does not answer", node);
}

/* A stage whose call failed may have taken locks; not those that give them back. */
static void give_up(struct vb_txn *t, unsigned stage, struct call *c)
{
	const struct vb_cc_ops *cc = t->me->db->cc;

	VB_SOMETIMES(100, "txn: a call is given up");
	call_failed(t, c, c->err);
	if (c->refused || stage == cc->commit || stage == cc->release)
		return;
	for (unsigned i = 0; i < c->n; i++)
		if (c->item[i]->status == VB_TXN_FABRIC)
			c->item[i]->flags |= VB_ITEM_MAYBE | VB_ITEM_MAYBE_S | VB_ITEM_ASKED;
}

static void collect(struct vb_txn *t, unsigned stage, struct call *c, const struct vb_verb *v)
{
	struct vb_msg reply;

	if (c->err == 0)
		c->err = v[0].status != 0 ? v[0].status : v[1].status;
	if (c->err == 0)
		c->err = vb_call_await(t->me, &c->box, c->server, c->node, &reply);
	if (c->err == 0)
		c->err = take_reply(t, stage, c, &reply);
	if (c->err != 0)
		give_up(t, stage, c);
	if (c->open)
		vb_box_close(&c->box);
}

/* 0: all have been asked, and have said yes. */
static int count_votes(struct vb_txn *t, struct call *calls, unsigned n, const struct vb_verb *v,
		       const unsigned *place, struct vb_ballot *b)
{
	for (unsigned i = 0; i < n; i++) {
		const struct vb_verb *asked = &v[place[i]];
		int err = calls[i].err;

		if (err == 0)
			err = asked[0].status != 0 ? asked[0].status : asked[1].status;
		if (err != 0)
			return err;
		b->voter[b->of++] = calls[i].server;
	}
	return vb_ballot_count(t, b);
}

/* Who refuses to vote has said so in an answer, and nobody has looked for one. */
static int why_late(struct vb_txn *t, struct call *calls, unsigned n)
{
	struct vb_wire_call head;
	struct vb_msg msg;

	vb_mail_sort(&t->me->mail);
	for (unsigned i = 0; i < n; i++) {
		if (!calls[i].open || vb_box_take(&calls[i].box, VB_TAG_REPLY, &msg) != 0)
			continue;
		memcpy(&head, msg.data, sizeof(head));
		return vb_call_refused(calls[i].node, head.seal);
	}
	return -ETIMEDOUT;
}

/* One verdict for all that they were asked about.  Who has said no, or nothing, the word does not tell. */
static void give_verdict(struct vb_txn *t, struct call *calls, unsigned n, int err)
{
	uint8_t status = err == -EAGAIN      ? VB_TXN_RECOVERED
			 : err == -ETIMEDOUT ? VB_TXN_TIMEOUT
					     : VB_TXN_FABRIC;

	for (unsigned i = 0; i < n; i++) {
		if (err != -EAGAIN)
			call_failed(t, &calls[i], status == VB_TXN_FABRIC ? err : 0);
		for (unsigned k = 0; k < calls[i].n; k++)
			calls[i].item[k]->status = status;
	}
}

/* One round: a call to each node that has items left, all on their way at once. */
static void round_of_calls(struct vb_txn *t, unsigned stage, struct vb_item **items, unsigned n,
			   uint64_t *taken)
{
	struct vb_coordinator *me = t->me;
	const struct vb_stage_ops *ops = ops_of(t, stage);
	const bool votes = ops != NULL && ops->flags & VB_STAGE_VOTES;
	unsigned most = me->db->outstanding ? VB_CALLS_MAX : 1, m = 0, posted = 0;
	struct call calls[VB_CALLS_MAX];
	struct vb_verb v[2 * VB_CALLS_MAX];
	unsigned place[VB_CALLS_MAX];
	struct vb_ballot ballot;
	int err = votes ? vb_ballot_open(t, &ballot) : 0;

	for (; m < most; m++) {
		struct call *c = &calls[m];

		c->n = 0;
		c->open = false;
		c->refused = false;
		c->buf = me->scratch + (size_t)m * me->db->call_bytes;
		gather(t, ops, calls, c, items, n, taken);
		if (c->n == 0)
			break;
		place[m] = posted;
		c->err = err != 0 ? err : make_call(t, stage, c, &v[posted]);
		posted += c->err == 0 ? 2 : 0;
	}
	if (posted > 0)
		(void)vb_post_wait(me->ep, v, posted);
	if (votes) {
		err = count_votes(t, calls, m, v, place, &ballot);
		if (err == -ETIMEDOUT)
			err = why_late(t, calls, m);
		if (err != 0)
			give_verdict(t, calls, m, err);
		for (unsigned i = 0; i < m; i++)
			if (calls[i].open)
				vb_box_close(&calls[i].box);
		return;
	}
	for (unsigned i = 0; i < m; i++)
		collect(t, stage, &calls[i], &v[place[i]]);
}

void vb_call_stage(struct vb_txn *t, unsigned stage, struct vb_item **items, unsigned n)
{
	uint64_t taken[VB_TXN_ITEMS_MAX / 64] = {0};

	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];

		it->status = 0;
		/* What has been fetched is the transaction's own by now. */
		if (it->flags & VB_ITEM_FETCHED)
			it->flags &= (uint16_t)~VB_ITEM_WANTED;
		else
			it->flags |= VB_ITEM_WANTED;
	}
	for (;;) {
		unsigned left = 0;

		for (unsigned i = 0; i < n; i++)
			left += !(taken[i / 64] >> (i % 64) & 1);
		if (left == 0)
			return;
		round_of_calls(t, stage, items, n, taken);
	}
}
