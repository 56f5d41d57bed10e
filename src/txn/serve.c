/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server of a node: makes tuples for keys that have none, and runs stages for coordinators.
 *
 * What a coordinator asks stands in its inbox in this node's memory.  It is copied before it is
 * looked at, since a coordinator that has given a call up writes there again, and checked as if a
 * stranger had written it.  A request that has to wait keeps its copy, and in it what it has got so
 * far.
 *
 * A request that has to wait for a lock goes on a list that is looked at between other requests
 * (RCC section 4.3) for PATIENCE_NS, or as long as its coordinator will wait if that is less; then its
 * coordinator is told to come again.
 */
#define VB_LOG_ROOM "txn"
#include "base/log.h"
#include "base/sometimes.h"
#include "store/places.h"
#include "txn/serve.h"

#define PATIENCE_NS 50000ull
#define TAKE_MOST   64u /* messages between two looks at the list */

/* ---- one request ---- */

static const struct vb_stage_ops *ops_of(const struct vb_db_server *s, unsigned stage)
{
	return vb_stage_ops_of(s->db, stage);
}

static bool votes(const struct vb_db_server *s, const struct vb_wire_call *c)
{
	const struct vb_stage_ops *ops = ops_of(s, c->stage);

	return ops != NULL && ops->flags & VB_STAGE_VOTES;
}

/* Is it something that a coordinator of this database could have asked? */
static bool sound(const struct vb_db_server *s, const struct vb_wire_call *c)
{
	const struct vb_db *db = s->db;

	return (c->stage < db->cc->n_stages || c->stage >= VB_STAGE_LOG) && c->n > 0 &&
	       c->n <= ITEMS_MAX && c->bytes <= db->call_bytes &&
	       c->from_node < db->fabric->nodes && c->coordinator < db->coordinators &&
	       (!votes(s, c) || vb_vote_is_of(db, c->ts, c->from_node, c->coordinator));
}

/* Copies the items out of the inbox.  False: they are of another call by now. */
static bool fetch(struct vb_db_server *s, struct request *q)
{
	const struct vb_wire_call *c = &q->head;
	const void *inbox =
		vb_local(s->db->fabric, vb_db_inbox(s->db, s->node, c->from_node, c->coordinator),
			 s->db->call_bytes);

	if (inbox == NULL)
		return false;
	memcpy(q->items, inbox, c->bytes);
	return vb_wire_seal(q->items, c->bytes, q->subject) == c->seal;
}

/* Where the coordinator believes the tuple to be is a guess out of a cache; 0 if it is wrong. */
static vb_addr believed(struct vb_table *t, uint16_t node, const struct vb_wire_item *w)
{
	uint64_t from = vb_addr_offset(t->node[node].header) + sizeof(struct vb_table_header);
	uint64_t offset = vb_addr_offset(w->at);
	const uint64_t *tuple;

	if (w->at == 0 || vb_addr_node(w->at) != node || offset < from ||
	    offset >= from + t->room * t->layout.stride || offset % 8 != 0)
		return 0;
	tuple = (const void *)(t->node[node].index.segment + offset);
	if (__atomic_load_n(&tuple[VB_TUPLE_KEY_AT / 8], __ATOMIC_RELAXED) != w->key ||
	    !vb_places_confirm(t, node, w->key, offset))
		return 0;
	return w->at;
}

static bool lists(const struct vb_stage_ops *ops)
{
	return ops != NULL && ops->flags & VB_STAGE_LISTS;
}

static uint32_t image_bytes(const struct vb_table *t, const struct vb_stage_ops *ops)
{
	return lists(ops) ? VB_SCAN_KEYS * 8 : vb_image_bytes(t);
}

/* Items of the request as a stage wants them, or why it cannot have them. */
static enum vb_wire_refusal unpack(struct vb_db_server *s, const struct vb_wire_call *c,
				   unsigned char *box, struct vb_item *item,
				   struct vb_wire_item **wire)
{
	const struct vb_stage_ops *ops = ops_of(s, c->stage);
	const uint32_t own = vb_wire_own(s->db, ops);
	unsigned char *image = s->image;
	uint32_t at = 0, back = 0;

	for (unsigned i = 0; i < c->n; i++) {
		struct vb_wire_item *w = (void *)(box + at);
		struct vb_table *t;
		uint32_t bytes;

		if (at + sizeof(*w) > c->bytes)
			return VB_WIRE_TOO_LONG;
		if (w->table >= s->db->store.n_tables)
			return VB_WIRE_NO_TABLE;
		t = s->db->store.table[w->table];
		bytes = vb_wire_bytes(t, ops, own, w->flags, false);
		back += vb_wire_bytes(t, ops, own, w->flags, true);
		if (at + bytes > c->bytes || back > s->db->call_bytes)
			return VB_WIRE_TOO_LONG;
		if (vb_table_node(t, w->key) != s->node)
			return VB_WIRE_NOT_HERE;
		if (w->slot * 8u > t->layout.meta_bytes || w->to_slot >= t->layout.slots)
			return VB_WIRE_NO_SLOT;
		if (lists(ops) &&
		    (t->ranges == NULL || vb_table_range(t, w->key) != vb_table_range(t, w->seen)))
			return VB_WIRE_NO_RANGE;
		item[i] = (struct vb_item){
			.table = t,
			.key = w->key,
			.at = believed(t, s->node, w),
			.seen = w->seen,
			.version = w->version,
			.lease = w->lease,
			.held = w->held,
			.next = w->next,
			.flags = w->flags,
			.slot = w->slot,
			.to_slot = w->to_slot,
			.image = image + own,
		};
		vb_own_copy(image, w + 1, own);
		image += own;
		/* What an earlier try has fetched was not kept. */
		if (w->flags & VB_ITEM_WANTED)
			item[i].flags &= (uint16_t)~VB_ITEM_FETCHED;
		if (bytes > sizeof(*w) + own)
			memcpy(image + t->layout.version_at, box + at + sizeof(*w) + own,
			       t->layout.one_bytes - t->layout.version_at);
		image += image_bytes(t, ops);
		wire[i] = w;
		at += bytes;
	}
	return VB_WIRE_SOUND;
}

static struct vb_store_now now_of(const struct vb_db_server *s)
{
	uint64_t error_ns, now = vb_ep_common_now(s->ep, &error_ns);

	return (struct vb_store_now){.ns = vb_ep_now(s->ep),
				     .common_ns = now > error_ns ? now - error_ns : 0};
}

static void place_items(struct vb_db_server *s, struct vb_item *item, unsigned n)
{
	struct vb_store_now now = {0};

	for (unsigned i = 0; i < n; i++) {
		if (item[i].at != 0)
			continue;
		if (now.ns == 0)
			now = now_of(s);
		if (vb_table_ensure(item[i].table, s->node, item[i].key, &now, &item[i].at) != 0)
			item[i].status = VB_TXN_MISUSE;
	}
}

static void keep(struct vb_wire_item *w, const struct vb_item *it, uint32_t own)
{
	w->at = it->at;
	w->seen = it->seen;
	w->version = it->version;
	w->lease = it->lease;
	w->held = it->held;
	w->flags = it->flags;
	w->slot = it->slot;
	w->seen_slot = it->seen_slot;
	w->to_slot = it->to_slot;
	w->status = it->status;
	vb_own_copy(w + 1, vb_item_own(it, own), own);
}

/* Runs the stage; true if no item has to wait.  What an earlier try has got is ours and is found
 * so. */
static bool work(struct vb_db_server *s, struct request *q, struct vb_item *item,
		 struct vb_wire_item **wire)
{
	struct vb_wire_call *c = &q->head;
	const struct vb_stage_ops *ops = ops_of(s, c->stage);
	const bool snapshots = s->db->cc->caps & VB_CC_SNAPSHOTS;
	const uint32_t own = vb_wire_own(s->db, ops);
	struct vb_stage stage = {
		.db = s->db,
		.acc = &s->acc,
		.ts = c->ts,
		.commit_ts = snapshots ? 0 : c->commit_ts,
		.snapshot = snapshots ? c->commit_ts : 0,
		.saw = c->ts,
		.for_other = true,
		.impatient = c->patience_us == 0,
		.isolation = c->isolation,
	};
	struct vb_item *some[ITEMS_MAX];
	bool done = true;
	unsigned n = 0;

	if (lists(ops))
		vb_scan_list(s->node, item, c->n);
	else
		place_items(s, item, c->n);
	for (unsigned i = 0; i < c->n; i++)
		if (item[i].status == 0)
			some[n++] = &item[i];
	if (ops != NULL && ops->run != NULL && n > 0)
		ops->run(&stage, some, n);
	c->commit_ts = snapshots ? stage.snapshot : stage.commit_ts;
	q->saw = stage.saw;
	c->err = (int16_t)stage.err;
	for (unsigned i = 0; i < c->n; i++) {
		keep(wire[i], &item[i], own);
		done &= item[i].status != VB_ITEM_WAIT;
	}
	return done;
}

/* ---- answers ---- */

static uint32_t pack(const struct vb_db *db, const struct vb_stage_ops *ops,
		     const struct vb_item *item, unsigned n, struct vb_wire_item **wire,
		     unsigned char *buf)
{
	const uint32_t own = vb_wire_own(db, ops),
		       head = (uint32_t)sizeof(struct vb_wire_item) + own;
	uint32_t at = 0;

	for (unsigned i = 0; i < n; i++) {
		const struct vb_tuple_layout *l = &item[i].table->layout;
		uint32_t bytes = vb_wire_bytes(item[i].table, ops, own, item[i].flags, true);

		memcpy(buf + at, wire[i], sizeof(*wire[i]));
		vb_own_copy(buf + at + sizeof(*wire[i]), wire[i] + 1, own);
		if (lists(ops))
			vb_wire_put(buf + at + head, item[i].image, VB_SCAN_KEYS * 8);
		else if (bytes > head)
			vb_wire_put(buf + at + head, item[i].image,
				    item[i].flags & VB_ITEM_BLIND ? l->record_at : l->one_bytes);
		at += bytes;
	}
	return at;
}

/* A buffer whose last answer has arrived. */
static struct reply *next_reply(struct vb_db_server *s)
{
	struct reply *r = &s->reply[s->next_reply++ % REPLIES];

	if (r->batch.posted)
		(void)vb_wait(s->ep, &r->batch);
	return r;
}

static void answer(struct vb_db_server *s, struct request *q, const struct vb_item *item,
		   struct vb_wire_item **wire)
{
	struct reply *r = next_reply(s);
	const struct vb_wire_call *c = &q->head;

	q->head.ts = q->saw;
	q->head.bytes = pack(s->db, ops_of(s, c->stage), item, c->n, wire, r->buf);
	q->head.seal = vb_wire_seal(r->buf, q->head.bytes, q->subject);
	r->msg = (struct vb_msg){.subject = q->subject, .tag = VB_TAG_REPLY, .len = sizeof(*c)};
	memcpy(r->msg.data, c, sizeof(*c));
	r->verb[0] = (struct vb_verb){
		.op = VB_OP_WRITE,
		.flags = VB_SIGNALLED,
		.addr = vb_db_outbox(s->db, c->from_node, c->coordinator, s->node),
		.buf = r->buf,
		.len = c->bytes,
	};
	r->verb[1] = (struct vb_verb){
		.op = VB_OP_SEND, .flags = VB_SIGNALLED, .peer = q->from, .msg = &r->msg};
	r->batch = (struct vb_batch){.verbs = r->verb, .n = 2};
	(void)vb_post(s->ep, &r->batch);
}

/* The head alone. */
static void say(struct vb_db_server *s, struct request *q)
{
	struct reply *r = next_reply(s);

	q->head.bytes = 0;
	r->msg =
		(struct vb_msg){.subject = q->subject, .tag = VB_TAG_REPLY, .len = sizeof(q->head)};
	memcpy(r->msg.data, &q->head, sizeof(q->head));
	r->verb[0] = (struct vb_verb){
		.op = VB_OP_SEND, .flags = VB_SIGNALLED, .peer = q->from, .msg = &r->msg};
	r->batch = (struct vb_batch){.verbs = r->verb, .n = 1};
	(void)vb_post(s->ep, &r->batch);
}

/* Nothing of it was done.  The coordinator says why: it is its caller who can do something about
 * it. */
static void refuse(struct vb_db_server *s, struct request *q, enum vb_wire_refusal why)
{
	s->refused++;
	q->head.err = -EPROTO;
	q->head.seal = why;
	say(s, q);
}

static void take_log(struct vb_db_server *s, struct request *q)
{
	enum vb_wire_refusal why = vb_copy_take(s->db, s->ep, s->node, &q->head, q->items);

	if (why != VB_WIRE_SOUND)
		refuse(s, q, why);
	else
		say(s, q);
}

/* What a vote is: txn/vote.c. */
static void cast(struct vb_db_server *s, const struct request *q, const struct vb_item *item)
{
	struct reply *r = next_reply(s);
	bool yes = q->head.err == 0;

	for (unsigned i = 0; i < q->head.n && yes; i++)
		yes = item[i].status == 0;
	vb_vote_cast(s->db, s->node, q->head.ts, yes, r->verb);
	r->batch = (struct vb_batch){.verbs = r->verb, .n = 1};
	(void)vb_post(s->ep, &r->batch);
}

/* True: answered. */
static bool attempt(struct vb_db_server *s, struct request *q, bool last)
{
	struct vb_item item[ITEMS_MAX];
	struct vb_wire_item *wire[ITEMS_MAX];
	enum vb_wire_refusal why = unpack(s, &q->head, q->items, item, wire);

	if (why != VB_WIRE_SOUND) {
		refuse(s, q, why);
		return true;
	}
	if (!work(s, q, item, wire) && !last)
		return false;
	if (votes(s, &q->head))
		cast(s, q, item);
	else
		answer(s, q, item, wire);
	return true;
}

/* ---- the loop ---- */

static void swap_items(struct request *a, struct request *b)
{
	unsigned char *items = a->items;

	a->items = b->items;
	b->items = items;
}

/*
 * A coordinator that asks anew has given up what it asked before.  If that waited here, it would be
 * tried again behind the release that undoes it, and what it got then nobody would give back.
 */
static void drop_waiting_of(struct vb_db_server *s, const struct vb_wire_call *c)
{
	unsigned left = 0;

	for (unsigned i = 0; i < s->n_waiting; i++) {
		struct request q = s->waiting[i];

		if (q.head.from_node == c->from_node && q.head.coordinator == c->coordinator) {
			VB_SOMETIMES(400,
				     "wait-die wait-die-sx wait-die-fair wound-wait wound-wait-sx "
				     "bounded-wait bounded-wait-sx votes: "
				     "a call that waits at a server was given up");
			continue;
		}
		s->waiting[i] = s->waiting[left];
		s->waiting[left++] = q;
	}
	s->n_waiting = left;
}

static void take(struct vb_db_server *s, const struct vb_msg *msg)
{
	struct request *q = &s->now, *w;
	uint64_t patience;

	if (msg->tag == VB_TAG_ASK) {
		struct vb_msg said = {0};

		(void)vb_rpc_reply(NULL, s->ep, msg, &said);
		return;
	}
	if (s->sequencer != NULL && vb_sequencer_take(s->sequencer, msg))
		return;
	memcpy(&q->head, msg->data, sizeof(q->head));
	q->subject = msg->subject;
	q->from = msg->from;
	s->requests++;
	if (msg->tag != VB_TAG_CALL || msg->len != sizeof(q->head)) {
		s->refused++;
		vb_warn("a message that is no request of database '%s' was dropped", s->db->name);
		return;
	}
	if (!sound(s, &q->head)) {
		refuse(s, q, VB_WIRE_NO_STAGE);
		return;
	}
	if (!fetch(s, q)) {
		VB_SOMETIMES(400, "txn: the inbox has another call by now");
		s->refused++;
		return;
	}
	drop_waiting_of(s, &q->head);
	if (q->head.stage == VB_STAGE_LOG) {
		take_log(s, q);
		return;
	}
	if (attempt(s, q, s->n_waiting == WAITING_MAX || q->head.patience_us == 0))
		return;
	patience = q->head.patience_us * 1000ull;
	w = &s->waiting[s->n_waiting++];
	swap_items(q, w);
	w->head = q->head;
	w->subject = q->subject;
	w->from = q->from;
	w->until_ns = vb_ep_now(s->ep) + (patience < PATIENCE_NS ? patience : PATIENCE_NS);
}

static void look_again(struct vb_db_server *s)
{
	uint64_t now = vb_ep_now(s->ep);
	unsigned left = 0;

	for (unsigned i = 0; i < s->n_waiting; i++) {
		struct request q = s->waiting[i];

		if (attempt(s, &q, now >= q.until_ns))
			continue;
		s->waiting[i] = s->waiting[left];
		s->waiting[left++] = q;
	}
	s->n_waiting = left;
}

static uint64_t first_of(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

void vb_server_body(void *arg)
{
	struct vb_db_server *s = arg;
	unsigned taken = 0;
	uint64_t until;
	struct vb_msg msg;

	while (!s->stop) {
		/* Who waits is looked after also when messages keep coming. */
		if (taken < TAKE_MOST && vb_ep_recv(s->ep, &msg) == 0) {
			take(s, &msg);
			taken++;
			continue;
		}
		if (s->n_waiting > 0)
			look_again(s);
		until = s->n_waiting > 0 ? vb_ep_now(s->ep) + LOOK_NS : VB_FOREVER;
		if (s->sequencer != NULL)
			until = first_of(until, vb_sequencer_turn(s->sequencer));
		if (taken == TAKE_MOST) {
			taken = 0;
			continue;
		}
		taken = 0;
		/* What has come while we looked wakes nobody. */
		if (vb_ep_recv(s->ep, &msg) == 0) {
			take(s, &msg);
			taken++;
			continue;
		}
		if (vb_ep_wait(s->ep, until) == -ECANCELED)
			break;
	}
	for (unsigned i = 0; i < REPLIES; i++)
		if (s->reply[i].batch.posted)
			(void)vb_wait(s->ep, &s->reply[i].batch);
	if (s->sequencer != NULL)
		vb_sequencer_drain(s->sequencer);
	s->task = NULL;
}
