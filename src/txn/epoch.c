/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of transactions, at a node's server.
 *
 * Time is cut into *epochs*, which have numbers.  In an epoch each server closes one *batch*: what its node's
 * coordinators have asked for meanwhile, for each node what concerns that.  It is WRITTEN into that node's memory,
 * and told by a message.  A server takes an epoch when it has closed its own batch of it and has those of all others:
 * one node's after the other's.  Then it opens the next.  So nobody is more than one epoch ahead, and two buffers for
 * each pair of nodes are enough:
 *
 *	we close E + 2   we have taken E + 1, with everybody's batch of it, so everybody has taken E:
 *	                 what stood in the buffer of E
 *
 * An epoch is closed when somebody wants something, or another has closed it: who is idle costs nothing.
 *
 * Who does not come.  A server whose batch has not come half a lease after ours was closed is *out*: it is not
 * waited for, and what would concern it stays with us, until a batch of its comes that is of the last epoch, of the
 * open one or of a later one; from then on it is in.  Who wants something of it closes an epoch now and then, be it empty, so that
 * it hears where the others are.  Each server decides that by itself, and nobody has to agree: a batch is taken
 * in its epoch or never, so of any two transactions those servers that have taken both have taken them in one order;
 * and one that is missing at a server gets nothing there, cannot commit, and gives back what it has at the others,
 * at the latest when its lease is over.  The agreement that others need about the dead is the transaction's own
 * commit.
 *
 * Who finds that others are further than one epoch ahead is out with them, and *joins*: it says of an epoch some way
 * ahead that it will be in it, by a batch that is marked so, and the others, who now want to get there, close what is
 * in between.  A server that is started where there was one before does the same.
 */
#define VB_LOG_ROOM "txn"
#include <stdlib.h>

#include <xxhash.h>

#include "base/log.h"
#include "base/sometimes.h"
#include "txn/epoch.h"

#define LOOK_NS       2000ull /* between two looks of who waits for a tuple */
#define JOINS_AHEAD   4u      /* epochs */
#define SKIP_OF_LEASE 2u      /* after such a part of it who has not come is out */
#define TELL_OF_SKIP  8u      /* ... and in such a part of that it is told again what we have */
#define OUT           UINT64_MAX

/* A coordinator's request that is in no batch yet. */
struct request {
	struct vb_list link;
	uint64_t ts; /* of the last one, be it in a batch or not */
	uint32_t bytes;
	bool waits;
	unsigned char *parts;
};

struct post {
	struct vb_batch batch;
	struct vb_verb verb[2];
	struct vb_msg msg;
	struct vb_seq_batch *buf;
};

struct other {
	vb_peer server;  /* 0: unknown */
	uint64_t from;   /* it is waited for from this epoch on; OUT */
	uint64_t out_at; /* where it was when it was last left out */
	struct {
		uint64_t epoch, joins;
	} seen[2];           /* whole batches of its */
	struct post post[2]; /* ours for it, by epoch */
};

struct vb_sequencer {
	struct vb_db *db;
	struct vb_ep *ep;
	uint16_t node;
	struct vb_queue *queue;
	struct vb_seq_line *line;
	uint64_t epoch; /* that is open, or closed by us and not taken */
	bool closed, joins;
	uint64_t closed_ns, told_ns, skip_ns;
	uint64_t knocked_ns;    /* at those that are out */
	struct vb_list waiting; /* requests */
	struct request *request;
	struct other *other;
	struct vb_seq_batch *taken; /* a batch that is looked at */
};

/* ---- what others have ---- */

static const struct vb_seq_batch *inbox(const struct vb_sequencer *s, uint16_t from, uint64_t epoch)
{
	return vb_local(s->db->fabric, vb_seq_batch(s->db, s->node, from, epoch),
			s->db->batch_bytes);
}

/* A whole copy of what stands there; false: there is none. */
static bool copy_batch(struct vb_sequencer *s, uint16_t from, uint64_t parity)
{
	const struct vb_seq_batch *b = inbox(s, from, parity);
	uint32_t most = s->db->batch_bytes - (uint32_t)sizeof(*b);

	vb_seq_copy(s->taken, b, sizeof(*b));
	if (s->taken->bytes > most)
		return false;
	vb_seq_copy(s->taken + 1, b + 1, s->taken->bytes);
	return vb_seq_batch_seal(s->taken) == s->taken->seal;
}

static void look_at(struct vb_sequencer *s, uint16_t node)
{
	struct other *o = &s->other[node];

	for (unsigned i = 0; i < 2; i++) {
		uint64_t epoch = __atomic_load_n(&inbox(s, node, i)->epoch, __ATOMIC_ACQUIRE);

		if (epoch == o->seen[i].epoch || !copy_batch(s, node, i))
			continue;
		o->seen[i].epoch = s->taken->epoch;
		o->seen[i].joins = s->taken->joins;
	}
}

static unsigned latest(const struct other *o)
{
	return o->seen[1].epoch > o->seen[0].epoch;
}

static uint64_t latest_epoch(const struct other *o)
{
	return o->seen[latest(o)].epoch;
}

static bool is_joining(const struct other *o)
{
	return o->seen[latest(o)].joins == latest_epoch(o);
}

static uint64_t farthest(const struct vb_sequencer *s)
{
	uint64_t most = 0;

	for (uint16_t n = 0; n < s->db->fabric->nodes; n++)
		if (n != s->node && latest_epoch(&s->other[n]) > most)
			most = latest_epoch(&s->other[n]);
	return most;
}

static void join(struct vb_sequencer *s, uint64_t behind)
{
	VB_SOMETIMES(2000, "calvin: a server joins the epochs");
	s->epoch = behind + JOINS_AHEAD;
	s->closed = false;
	s->joins = true;
}

/* Who is not farther ahead of us than that, we can follow: to where it will join one epoch after the other. */
static uint64_t within(const struct other *o)
{
	return is_joining(o) ? 2 * JOINS_AHEAD : 1;
}

/* Where the others are.  It may be that we are out with them. */
static void look_at_others(struct vb_sequencer *s)
{
	bool left = false;

	for (uint16_t n = 0; n < s->db->fabric->nodes; n++) {
		if (n == s->node)
			continue;
		look_at(s, n);
		left |= latest_epoch(&s->other[n]) > s->epoch + within(&s->other[n]);
	}
	if (left)
		join(s, farthest(s));
	for (uint16_t n = 0; n < s->db->fabric->nodes; n++) {
		struct other *o = &s->other[n];
		uint64_t at = latest_epoch(o);

		/* Late for the last one: it is at the open one by now. */
		if (n != s->node && o->from == OUT && at + 1 == s->epoch && at > o->out_at)
			o->from = s->epoch;
		if (n == s->node || at < s->epoch)
			continue;
		if (o->from == OUT || at > s->epoch + 1 || (at > s->epoch && is_joining(o)))
			o->from = at;
	}
}

/* ---- telling others ---- */

static void find_server(struct vb_sequencer *s, uint16_t node)
{
	struct other *o = &s->other[node];
	vb_addr at = s->db->region[node] + offsetof(struct vb_db_header, server);

	if (o->server != 0 && vb_peer_alive(s->db->fabric, o->server))
		return;
	o->server = 0;
	if (vb_read64(s->ep, at, &o->server) != 0)
		o->server = 0;
}

static int finish(struct vb_sequencer *s, struct post *p)
{
	return p->batch.posted ? vb_wait(s->ep, &p->batch) : 0;
}

/* again: it should tell us what it has, too. */
static void tell(struct vb_sequencer *s, uint16_t node, uint64_t epoch, bool again)
{
	struct other *o = &s->other[node];
	struct post *p = &o->post[epoch % 2];
	unsigned n = 1;

	if (p->batch.posted && p->batch.pending > 0)
		return;
	if (finish(s, p) != 0)
		o->server = 0;
	find_server(s, node);
	p->verb[0] = (struct vb_verb){
		.op = VB_OP_WRITE,
		.flags = VB_SIGNALLED,
		.addr = vb_seq_batch(s->db, node, s->node, p->buf->epoch),
		.buf = p->buf,
		.len = (uint32_t)sizeof(*p->buf) + p->buf->bytes,
	};
	p->msg = (struct vb_msg){
		.subject = p->buf->epoch, .tag = VB_TAG_EPOCH, .imm = again ? 1 : 0};
	if (o->server != 0)
		p->verb[n++] = (struct vb_verb){
			.op = VB_OP_SEND, .flags = VB_SIGNALLED, .peer = o->server, .msg = &p->msg};
	p->batch = (struct vb_batch){.verbs = p->verb, .n = (uint16_t)n};
	vb_seq_count(&s->line->told, 1);
	(void)vb_post(s->ep, &p->batch);
}

/* Of two batches that we keep it gets the one that it is at, or else the last. */
static void take_told(struct vb_sequencer *s, const struct vb_msg *msg)
{
	uint16_t node = vb_peer_node(msg->from);
	struct other *o;

	if (node >= s->db->fabric->nodes || node == s->node)
		return;
	o = &s->other[node];
	o->server = msg->from;
	if (msg->imm == 0 && o->from != OUT)
		return;
	for (unsigned i = 0; i < 2; i++)
		if (o->post[i].buf->epoch == msg->subject && msg->subject != 0) {
			tell(s, node, msg->subject, false);
			return;
		}
	if (o->post[0].buf->epoch > msg->subject || o->post[1].buf->epoch > msg->subject)
		tell(s, node, o->post[1].buf->epoch > o->post[0].buf->epoch, false);
}

/* ---- requests ---- */

static void drop_request(struct request *r)
{
	if (r->waits)
		vb_list_remove(&r->link);
	r->waits = false;
}

/* Is it something that a coordinator of this node could have asked? */
static bool is_sound(const struct vb_sequencer *s, const struct request *r, uint32_t coordinator,
		     uint64_t ts)
{
	uint32_t at = 0;

	while (at + sizeof(struct vb_seq_part) <= r->bytes) {
		const struct vb_seq_part *p = (const void *)(r->parts + at);

		if (p->n == 0 || p->n > s->db->items_max || p->from_node != s->node ||
		    p->to_node >= s->db->fabric->nodes || p->coordinator != coordinator ||
		    p->ts != ts)
			return false;
		at += vb_seq_part_bytes(p->n);
	}
	return at == r->bytes;
}

static void take_request(struct vb_sequencer *s, const struct vb_msg *msg)
{
	struct vb_seq_submit m;
	struct request *r;
	const void *from;

	memcpy(&m, msg->data, sizeof(m));
	if (msg->len != sizeof(m) || m.coordinator >= s->db->coordinators ||
	    m.bytes > s->db->request_bytes) {
		vb_warn("a request for a place in the order of database '%s' was dropped",
			s->db->name);
		return;
	}
	r = &s->request[m.coordinator];
	if (m.ts <= r->ts)
		return;
	if (r->parts == NULL)
		r->parts = aligned_alloc(64, s->db->request_bytes);
	if (r->parts == NULL)
		return;
	drop_request(r);
	from = vb_local(s->db->fabric, vb_seq_request(s->db, s->node, m.coordinator), m.bytes);
	vb_seq_copy(r->parts, from, m.bytes);
	r->bytes = m.bytes;
	/* Or it is at another by now. */
	if (XXH3_64bits_withSeed(r->parts, m.bytes, m.ts) != m.seal ||
	    !is_sound(s, r, m.coordinator, m.ts))
		return;
	r->ts = m.ts;
	r->waits = true;
	vb_list_push(&s->waiting, &r->link);
}

/* ---- an epoch ---- */

static const struct vb_seq_part *next_part(const struct request *r, uint32_t *at)
{
	const struct vb_seq_part *p = (const void *)(r->parts + *at);

	if (*at >= r->bytes)
		return NULL;
	*at += vb_seq_part_bytes(p->n);
	return p;
}

/* To all nodes of which it wants something, or to none. */
static bool may_go(const struct vb_sequencer *s, const struct request *r)
{
	const struct vb_seq_part *p;
	uint32_t at = 0;

	while ((p = next_part(r, &at)) != NULL) {
		const struct other *o = &s->other[p->to_node];
		uint32_t has = o->post[s->epoch % 2].buf->bytes;

		if (o->from > s->epoch)
			return false;
		if (sizeof(struct vb_seq_batch) + has + vb_seq_part_bytes(p->n) >
		    s->db->batch_bytes)
			return false;
	}
	return true;
}

static void put(struct vb_sequencer *s, const struct request *r)
{
	const struct vb_seq_part *p;
	uint32_t at = 0;

	while ((p = next_part(r, &at)) != NULL) {
		struct vb_seq_batch *b = s->other[p->to_node].post[s->epoch % 2].buf;

		memcpy((unsigned char *)(b + 1) + b->bytes, p, vb_seq_part_bytes(p->n));
		b->bytes += vb_seq_part_bytes(p->n);
		b->parts++;
	}
}

/* Who is out hears of it now and then. */
static void close_epoch(struct vb_sequencer *s)
{
	bool knocks;

	for (uint16_t n = 0; n < s->db->fabric->nodes; n++) {
		struct post *p = &s->other[n].post[s->epoch % 2];

		(void)finish(s, p);
		*p->buf =
			(struct vb_seq_batch){.epoch = s->epoch, .joins = s->joins ? s->epoch : 0};
	}
	vb_list_for_each (it, &s->waiting) {
		struct request *r = vb_container_of(it, struct request, link);

		if (vb_queue_is_over(s->queue, r->ts)) {
			drop_request(r);
		} else if (may_go(s, r)) {
			put(s, r);
			drop_request(r);
			vb_seq_count(&s->line->batched, 1);
		}
	}
	/* Before anybody has it: who is started behind us begins with another. */
	__atomic_store_n(&s->line->closed, s->epoch, __ATOMIC_RELEASE);
	s->closed = true;
	s->closed_ns = s->told_ns = vb_ep_now(s->ep);
	knocks = s->closed_ns >= s->knocked_ns + s->skip_ns / TELL_OF_SKIP;
	if (knocks)
		s->knocked_ns = s->closed_ns;
	for (uint16_t n = 0; n < s->db->fabric->nodes; n++) {
		struct vb_seq_batch *b = s->other[n].post[s->epoch % 2].buf;

		b->seal = vb_seq_batch_seal(b);
		if (n != s->node && (knocks || s->other[n].from != OUT))
			tell(s, n, s->epoch, false);
	}
}

static bool has(const struct vb_sequencer *s, uint16_t node)
{
	return node == s->node ? s->closed : s->other[node].seen[s->epoch % 2].epoch == s->epoch;
}

static bool is_awaited(const struct vb_sequencer *s, uint16_t node)
{
	return !has(s, node) && s->other[node].from <= s->epoch;
}

static bool has_all(const struct vb_sequencer *s)
{
	for (uint16_t n = 0; n < s->db->fabric->nodes; n++)
		if (is_awaited(s, n))
			return false;
	return true;
}

/* One after the other, as they stand there. */
static void take_parts(struct vb_sequencer *s, uint16_t from, const struct vb_seq_batch *b)
{
	const unsigned char *parts = (const void *)(b + 1);
	uint32_t at = 0;

	while (at + sizeof(struct vb_seq_part) <= b->bytes) {
		const struct vb_seq_part *p = (const void *)(parts + at);

		if (p->n > s->db->items_max || at + vb_seq_part_bytes(p->n) > b->bytes)
			return;
		if (p->from_node == from && p->to_node == s->node)
			vb_queue_add(s->queue, p);
		at += vb_seq_part_bytes(p->n);
	}
}

static void take_epoch(struct vb_sequencer *s)
{
	vb_seq_count(&s->line->epochs, 1);
	vb_seq_count(&s->line->barrier_ns, vb_ep_now(s->ep) - s->closed_ns);
	for (uint16_t n = 0; n < s->db->fabric->nodes; n++) {
		if (n == s->node)
			take_parts(s, n, s->other[n].post[s->epoch % 2].buf);
		else if (has(s, n) && copy_batch(s, n, s->epoch) && s->taken->epoch == s->epoch)
			take_parts(s, n, s->taken);
	}
	s->epoch++;
	s->closed = s->joins = false;
}

/* Who wants something of one that is out knocks there, now and then, by an epoch. */
static uint64_t knock_ns(const struct vb_sequencer *s)
{
	return s->closed_ns + s->skip_ns / TELL_OF_SKIP;
}

static bool has_something(const struct vb_sequencer *s)
{
	vb_list_for_each (it, &s->waiting) {
		const struct request *r = vb_container_of(it, const struct request, link);
		const struct vb_seq_part *p;
		uint32_t at = 0;
		bool out = false;

		while ((p = next_part(r, &at)) != NULL)
			out |= s->other[p->to_node].from > s->epoch;
		if (!out)
			return true;
	}
	if (!vb_list_empty(&s->waiting) && vb_ep_now(s->ep) >= knock_ns(s))
		return true;
	return s->joins || farthest(s) >= s->epoch;
}

/* Who has not come by now is out; who may not have heard is told again. */
static void look_at_time(struct vb_sequencer *s)
{
	uint64_t now = vb_ep_now(s->ep);
	bool late = now - s->closed_ns >= s->skip_ns;
	bool again = now - s->told_ns >= s->skip_ns / TELL_OF_SKIP;

	for (uint16_t n = 0; n < s->db->fabric->nodes && (late || again); n++) {
		if (!is_awaited(s, n))
			continue;
		VB_SOMETIMES_IF(late, 2000, "calvin: a server is not waited for any more");
		if (late) {
			s->other[n].from = OUT;
			s->other[n].out_at = latest_epoch(&s->other[n]);
			vb_seq_count(&s->line->left_out, 1);
		} else {
			tell(s, n, s->epoch, true);
		}
	}
	if (again)
		s->told_ns = now;
}

bool vb_sequencer_take(struct vb_sequencer *s, const struct vb_msg *msg)
{
	struct vb_seq_part p;

	switch (msg->tag) {
	case VB_TAG_SUBMIT:
		take_request(s, msg);
		return true;
	case VB_TAG_EPOCH:
		take_told(s, msg);
		return true;
	case VB_TAG_HOW:
		memcpy(&p, msg->data, sizeof(p));
		vb_queue_tell(s->queue, &p);
		return true;
	default:
		return false;
	}
}

uint64_t vb_sequencer_turn(struct vb_sequencer *s)
{
	for (;;) {
		look_at_others(s);
		if (!s->closed && has_something(s))
			close_epoch(s);
		if (!s->closed)
			break;
		look_at_time(s);
		if (!has_all(s))
			break;
		take_epoch(s);
	}
	if (vb_queue_turn(s->queue))
		return vb_ep_now(s->ep) + LOOK_NS;
	if (s->closed)
		return s->told_ns + s->skip_ns / TELL_OF_SKIP;
	return vb_list_empty(&s->waiting) ? VB_FOREVER : knock_ns(s);
}

/* ---- opening and closing ---- */

void vb_sequencer_drain(struct vb_sequencer *s)
{
	for (uint16_t n = 0; n < s->db->fabric->nodes; n++)
		for (unsigned i = 0; i < 2; i++)
			(void)finish(s, &s->other[n].post[i]);
	vb_queue_drain(s->queue);
}

void vb_sequencer_close(struct vb_sequencer *s)
{
	if (s == NULL)
		return;
	vb_queue_close(s->queue);
	for (uint16_t n = 0; s->other != NULL && n < s->db->fabric->nodes; n++)
		for (unsigned i = 0; i < 2; i++)
			free(s->other[n].post[i].buf);
	for (uint32_t i = 0; s->request != NULL && i < s->db->coordinators; i++)
		free(s->request[i].parts);
	free(s->other);
	free(s->request);
	free(s->taken);
	free(s);
}

/* Where others are, and where whoever was here before us was. */
static void begin(struct vb_sequencer *s)
{
	uint64_t was = __atomic_load_n(&s->line->closed, __ATOMIC_ACQUIRE);

	for (uint16_t n = 0; n < s->db->fabric->nodes; n++)
		if (n != s->node)
			look_at(s, n);
	if (farthest(s) > was)
		was = farthest(s);
	s->epoch = 1;
	if (was > 0)
		join(s, was);
}

int vb_sequencer_open(struct vb_db *db, uint16_t node, struct vb_ep *ep, struct vb_acc *acc,
		      struct vb_sequencer **out)
{
	struct vb_sequencer *s = calloc(1, sizeof(*s));
	int err = -ENOMEM;
	bool room;

	if (s == NULL)
		return vb_fail(-ENOMEM, "no memory for a server");
	s->db = db;
	s->node = node;
	s->ep = ep;
	s->line = vb_seq_line(db, node);
	s->skip_ns = db->lease_ns / SKIP_OF_LEASE;
	vb_list_init(&s->waiting);
	s->request = calloc(db->coordinators, sizeof(*s->request));
	s->other = calloc(db->fabric->nodes, sizeof(*s->other));
	s->taken = aligned_alloc(64, db->batch_bytes);
	room = s->request != NULL && s->other != NULL && s->taken != NULL;
	for (uint16_t n = 0; room && n < db->fabric->nodes; n++)
		for (unsigned i = 0; i < 2 && room; i++) {
			s->other[n].post[i].buf = aligned_alloc(64, db->batch_bytes);
			room = s->other[n].post[i].buf != NULL;
			if (room)
				s->other[n].post[i].buf->epoch = 0;
		}
	if (room)
		err = vb_queue_open(db, node, ep, acc, &s->queue);
	else
		err = vb_fail(-ENOMEM, "no memory for a server");
	if (err) {
		vb_sequencer_close(s);
		return err;
	}
	begin(s);
	*out = s;
	return 0;
}
