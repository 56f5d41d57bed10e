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
#include <pthread.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/sometimes.h"
#include "store/places.h"
#include "txn/epoch.h"

#define PATIENCE_NS  50000ull
#define LOOK_NS      2000ull /* between two looks at the list */
#define TAKE_MOST    64u     /* messages between two looks at the list */
#define WAITING_MAX  64u
#define REPLIES      64u /* answers on their way */
#define STOP_POLL_NS 20000000ull
#define ITEMS_MAX    VB_STAGE_ITEMS

struct request {
	struct vb_wire_call head;
	uint64_t subject;
	vb_peer from;
	uint64_t until_ns;
	uint64_t saw;         /* by the last try of its stage */
	unsigned char *items; /* as they came, and what has become of them */
};

struct reply {
	struct vb_batch batch;
	struct vb_verb verb[2];
	struct vb_msg msg;
	unsigned char *buf;
};

struct vb_db_server {
	struct vb_db *db;
	uint16_t node;
	struct vb_ep *ep;
	struct vb_task *task;
	struct vb_acc acc;
	struct vb_sequencer *sequencer; /* of VB_CC_SEQUENCED */
	bool stop;
	pthread_t *thread;
	struct vb_opened opened; /* of the one that the caller has */
	unsigned char *image;
	struct request now;
	struct request waiting[WAITING_MAX];
	unsigned n_waiting;
	struct reply reply[REPLIES];
	unsigned next_reply;
	uint64_t requests, refused;
};

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

	return (c->stage < db->cc->n_stages || c->stage >= VB_STAGE_SCAN) && c->n > 0 &&
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

/* Nothing of it was done.  The coordinator says why: it is its caller who can do something about
 * it. */
static void refuse(struct vb_db_server *s, struct request *q, enum vb_wire_refusal why)
{
	struct reply *r = next_reply(s);

	s->refused++;
	q->head.bytes = 0;
	q->head.err = -EPROTO;
	q->head.seal = why;
	r->msg =
		(struct vb_msg){.subject = q->subject, .tag = VB_TAG_REPLY, .len = sizeof(q->head)};
	memcpy(r->msg.data, &q->head, sizeof(q->head));
	r->verb[0] = (struct vb_verb){
		.op = VB_OP_SEND, .flags = VB_SIGNALLED, .peer = q->from, .msg = &r->msg};
	r->batch = (struct vb_batch){.verbs = r->verb, .n = 1};
	(void)vb_post(s->ep, &r->batch);
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

static void serve_body(void *arg)
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

/* ---- starting and stopping ---- */

static vb_addr server_word(const struct vb_db_server *s)
{
	return s->db->region[s->node] + offsetof(struct vb_db_header, server);
}

/* Our name instead of nobody's, or of a dead server's. */
static int announce(struct vb_db_server *s)
{
	uint64_t was = 0, old;
	int err = vb_cas64(s->ep, server_word(s), was, s->ep->self, &old);

	while (err == 0 && old != was) {
		if (vb_peer_alive(s->db->fabric, old))
			return vb_fail(
				-EBUSY,
				"node %u has a server of database '%s' already, which lives: one "
				"is enough",
				s->node, s->db->name);
		was = old;
		err = vb_cas64(s->ep, server_word(s), was, s->ep->self, &old);
	}
	return err;
}

static void free_server(struct vb_db_server *s)
{
	vb_sequencer_close(s->sequencer);
	for (unsigned i = 0; i < REPLIES; i++)
		free(s->reply[i].buf);
	for (unsigned i = 0; i < WAITING_MAX; i++)
		free(s->waiting[i].items);
	free(s->now.items);
	free(s->image);
	free(s);
}

static int make_server(struct vb_db *db, uint16_t node, struct vb_db_server **out)
{
	size_t slot = (size_t)db->store.record_bytes_max + VB_SLOT_HEAD + 8;
	size_t one = db->store.slots * slot + db->store.meta_bytes + db->cc->item_bytes + 128;
	size_t image = ITEMS_MAX * (one > VB_SCAN_KEYS * 8 ? one : VB_SCAN_KEYS * 8);
	struct vb_db_server *s;
	bool room;

	if (node >= db->fabric->nodes)
		return vb_fail(-EINVAL, "there is no node %u: the fabric has %u", node,
			       db->fabric->nodes);
	if (vb_local(db->fabric, db->region[node], 8) == NULL)
		return vb_fail(-EXDEV, "node %u lives in another process: it is served there",
			       node);
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return vb_fail(-ENOMEM, "no memory for a server");
	s->db = db;
	s->node = node;
	s->image = aligned_alloc(64, (image + 63) & ~(size_t)63);
	s->now.items = aligned_alloc(64, db->call_bytes);
	room = s->now.items != NULL;
	for (unsigned i = 0; i < WAITING_MAX; i++) {
		s->waiting[i].items = aligned_alloc(64, db->call_bytes);
		room &= s->waiting[i].items != NULL;
	}
	for (unsigned i = 0; i < REPLIES; i++) {
		s->reply[i].buf = aligned_alloc(64, db->call_bytes);
		room &= s->reply[i].buf != NULL;
	}
	if (!room || s->image == NULL) {
		free_server(s);
		return vb_fail(-ENOMEM, "no memory for a server");
	}
	memset(s->image, 0, image);
	*out = s;
	return 0;
}

static int start_here(struct vb_db *db, uint16_t node, struct vb_db_server **out)
{
	static const struct vb_task_params params = {.name = "database server", .daemon = true};
	struct vb_db_server *s;
	int err = make_server(db, node, &s);

	if (err)
		return err;
	err = vb_ep_open(db->fabric, node, &s->ep);
	if (err) {
		free_server(s);
		return err;
	}
	vb_ep_serve(s->ep);
	vb_acc_init(&s->acc, s->ep, true, true);
	err = announce(s);
	for (unsigned i = 0; i < db->store.n_tables && err == 0; i++) {
		vb_index_repair(&db->store.table[i]->node[node].index);
		vb_places_forget(&db->store.table[i]->node[node]);
		err = vb_table_order_anew(db->store.table[i], node);
	}
	if (err == 0 && vb_cc_sequenced(db->cc))
		err = vb_sequencer_open(db, node, s->ep, &s->acc, &s->sequencer);
	if (err == 0)
		err = vb_task_spawn(s->ep->sched, serve_body, s, &params, &s->task);
	if (err) {
		vb_ep_close(s->ep);
		free_server(s);
		return err;
	}
	*out = s;
	return 0;
}

static void stop_here(struct vb_db_server *s)
{
	uint64_t old;

	(void)vb_cas64(s->ep, server_word(s), s->ep->self, 0, &old);
	s->stop = true;
	if (s->task != NULL)
		vb_task_cancel(s->task);
	/* It may be waiting for an answer to arrive: time must pass for that, also where it is
	 * virtual. */
	while (s->task != NULL)
		(void)vb_task_suspend_uninterruptible(vb_ep_now(s->ep) + LOOK_NS);
	vb_ep_close(s->ep);
	vb_opened_drop(&s->opened); /* last: whoever waits for it closes the fabric */
	free_server(s);
}

void vb_db_server_bury(struct vb_db_server *s)
{
	if (s == NULL)
		return;
	if (!s->db->fabric->no_keeper)
		vb_sched_background_end(s->ep->sched);
	vb_ep_close(s->ep);
	vb_opened_drop(&s->opened);
	free_server(s);
}

struct vb_ep *vb_db_server_ep(struct vb_db_server *s)
{
	return s->ep;
}

static void note_open(struct vb_db_server *s)
{
	s->opened = (struct vb_opened){
		.kind = "server", .of = s->db, .name = s->db->name, .node = s->node};
	vb_opened_note(s->db->fabric, &s->opened);
}

int vb_db_server_start(struct vb_db *db, uint16_t node, struct vb_db_server **out)
{
	VB_SCHED_INSIDE(vb_sched_here());
	int err;

	if (vb_any_null(db, out))
		return -EINVAL;
	err = vb_fabric_check(db->fabric);
	if (err == 0)
		err = start_here(db, node, out);
	if (err)
		return err;
	note_open(*out);
	if (db->fabric->no_keeper)
		return 0;
	vb_sched_background_begin((*out)->ep->sched);
	vb_keeper_settle((*out)->ep->sched);
	return 0;
}

void vb_db_server_stop(struct vb_db_server *s)
{
	if (s == NULL || vb_opened_check_mine(&s->opened) != 0 ||
	    (s->thread == NULL && vb_ep_check(s->ep) != 0))
		return;
	VB_SCHED_INSIDE(s->thread == NULL ? s->ep->sched : NULL);
	if (s->thread == NULL) {
		if (!s->db->fabric->no_keeper)
			vb_sched_background_end(s->ep->sched);
		stop_here(s);
		return;
	}
	__atomic_store_n(&s->stop, true, __ATOMIC_RELEASE);
	pthread_join(*s->thread, NULL);
	vb_opened_drop(&s->opened);
	free(s->thread);
	free(s);
}

/* ---- on a thread of its own ---- */

struct start {
	struct vb_db_server *outer;
	struct vb_db *db;
	uint16_t node;
	int err;
	bool ready;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
};

static void *thread_body(void *arg)
{
	struct start *t = arg;
	struct vb_db_server *inner = NULL, *outer = t->outer;
	int err = vb_sched_ready();
	bool ready = err == 0;

	if (ready)
		err = start_here(t->db, t->node, &inner);
	pthread_mutex_lock(&t->mutex);
	t->err = err;
	t->ready = true;
	pthread_cond_signal(&t->cond);
	pthread_mutex_unlock(&t->mutex);
	if (err == 0) {
		while (!__atomic_load_n(&outer->stop, __ATOMIC_ACQUIRE))
			vb_task_suspend(vb_sched_now(vb_sched_self()) + STOP_POLL_NS);
		stop_here(inner);
	}
	if (ready)
		vb_sched_destroy(vb_sched_self());
	return NULL;
}

int vb_db_server_thread_start(struct vb_db *db, uint16_t node, struct vb_db_server **out)
{
	struct start t = {
		.db = db,
		.node = node,
		.mutex = PTHREAD_MUTEX_INITIALIZER,
		.cond = PTHREAD_COND_INITIALIZER,
	};
	int err;

	if (vb_any_null(db, out))
		return -EINVAL;
	err = vb_fabric_check(db->fabric);
	if (err)
		return err;
	if (db->fabric->caps.flags & VB_CAP_VIRTUAL)
		return vb_fail(-EOPNOTSUPP,
			       "a simulated fabric has one thread; start a server task");
	t.outer = calloc(1, sizeof(*t.outer));
	if (t.outer != NULL)
		t.outer->thread = malloc(sizeof(*t.outer->thread));
	if (t.outer == NULL || t.outer->thread == NULL) {
		free(t.outer);
		return vb_fail(-ENOMEM, "no memory for a server");
	}
	err = -pthread_create(t.outer->thread, NULL, thread_body, &t);
	if (err) {
		vb_error("a server's thread cannot be made: %s", vb_strerror(err));
		goto fail;
	}
	pthread_mutex_lock(&t.mutex);
	while (!t.ready)
		pthread_cond_wait(&t.cond, &t.mutex);
	pthread_mutex_unlock(&t.mutex);
	err = t.err;
	if (err == 0) {
		t.outer->db = db;
		t.outer->node = node;
		note_open(t.outer);
		*out = t.outer;
		return 0;
	}
	pthread_join(*t.outer->thread, NULL);
fail:
	free(t.outer->thread);
	free(t.outer);
	return err;
}
