/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who waits for a node's tuples, at its server.
 *
 * A *ticket* is what one transaction wants of this node.  Tickets stand in the order in which the server has
 * taken them, which is the same at every node.  A lock is asked for, by the protocol's own stage, only when
 * nobody further ahead still wants it in a way that excludes ours; who has it stands in the tuple, and the server
 * looks there again and again, in its own memory.  So a holder gives a lock back with the one verb by which all
 * protocols do, and a holder that is dead is recovered as under all of them (txn/recover.c).
 *
 * A coordinator that gives up writes the transaction's name to its place's *floor* here and then sets its locks
 * back.  We look at the floor behind the CAS that has taken a lock:
 *
 *	server        CAS 0 -> ts, look at the floor: ts or more: CAS ts -> 0
 *	coordinator   WRITE floor = ts, CAS ts -> 0
 *
 * If the server does not see the floor, the CAS of the coordinator comes behind the server's, and finds ts.
 *
 * A lock is asked for once.  If the answer is lost, the CAS may land at any time, also when its transaction has
 * committed and let go; then others would take it for one whose commit stage was never run, and write again what it
 * has written.  So that transaction ends: of one that has not committed they set the word back.
 *
 * A ticket waits for what is left of its transaction's lease, and for a lease at most: then that is over.  So nothing
 * is given to the dead later than that, however late their requests are looked at.
 *
 * Of each coordinator there is one ticket, the last, which is kept until the next: who has not heard of what was
 * forwarded asks for it again.
 */
#define VB_LOG_ROOM "txn"
#include <stdlib.h>

#include "base/log.h"
#include "base/sometimes.h"
#include "txn/epoch.h"

#define ON_THEIR_WAY 16u /* forwards */
#define MARKS_FIRST  256u
#define HEAD_WORDS   40u /* of a tuple, up to its lock word */

struct want {
	struct vb_table *table;
	uint64_t key, seen;
	vb_addr at;
	uint16_t flags;
	uint8_t slot, seen_slot;
	bool has;
};

struct ticket {
	struct vb_list link; /* among those that wait */
	struct vb_seq_part head;
	uint64_t until_ns;
	uint8_t state; /* enum vb_seq_state */
	uint8_t why;
	struct want want[];
};

/* Somebody further ahead wants it, and what is in his way there. */
struct mark {
	const struct vb_table *table;
	uint64_t key, seen;
	vb_addr at;
	uint32_t stamp;
	uint8_t seen_slot;
	bool x;
};

struct out {
	struct vb_batch batch;
	struct vb_verb verb[4];
	struct vb_msg msg;
	unsigned char *buf;
};

struct vb_queue {
	struct vb_db *db;
	struct vb_ep *ep;
	struct vb_acc *acc;
	uint16_t node;
	struct vb_seq_line *line;
	struct vb_list waiting;
	unsigned n_wants; /* of those that wait */
	struct ticket **ticket;
	struct mark *mark;
	uint32_t mark_mask, stamp;
	unsigned char *image;
	size_t image_bytes;
	struct out out[ON_THEIR_WAY];
	unsigned next_out;
};

/* ---- floors ---- */

bool vb_queue_is_over(const struct vb_queue *q, uint64_t ts)
{
	const struct vb_db *db = q->db;
	uint32_t place = vb_ts_place(ts);
	const uint64_t *floor;

	if (place >= db->coordinators * VB_PLACES_EACH * db->fabric->nodes)
		return true;
	floor = vb_local(db->fabric, vb_seq_floor(db, q->node, place), 8);
	return __atomic_load_n(floor, __ATOMIC_ACQUIRE) >= ts;
}

/* ---- what stands further ahead ---- */

static struct mark *find_mark(struct vb_queue *q, const struct vb_table *table, uint64_t key)
{
	uint64_t x = (key + table->id) * 0x9e3779b97f4a7c15ull;
	uint32_t i = (uint32_t)(x >> 32) & q->mark_mask;

	while (q->mark[i].stamp == q->stamp && (q->mark[i].key != key || q->mark[i].table != table))
		i = (i + 1) & q->mark_mask;
	return &q->mark[i];
}

/* Then what is in that one's way is in ours: it may be dead, and he, too, who would have seen to that. */
static bool is_wanted_ahead(struct vb_queue *q, struct want *w)
{
	const struct mark *m = find_mark(q, w->table, w->key);

	if (m->stamp != q->stamp || !(m->x || w->flags & VB_ITEM_WRITE))
		return false;
	w->seen = m->seen;
	w->seen_slot = m->seen_slot;
	if (!(w->flags & (VB_ITEM_HELD_X | VB_ITEM_HELD_S)))
		w->at = m->at;
	return true;
}

static void put_mark(struct vb_queue *q, const struct want *w)
{
	struct mark *m = find_mark(q, w->table, w->key);

	if (m->stamp != q->stamp)
		*m = (struct mark){.table = w->table,
				   .key = w->key,
				   .seen = w->seen,
				   .at = w->at,
				   .stamp = q->stamp,
				   .seen_slot = w->seen_slot};
	m->x |= (w->flags & VB_ITEM_WRITE) != 0;
}

static void forget_marks(struct vb_queue *q)
{
	if (vb_likely(++q->stamp != 0))
		return;
	memset(q->mark, 0, (q->mark_mask + 1) * sizeof(*q->mark));
	q->stamp = 1;
}

/* For so many that wait. */
static bool room_for_marks(struct vb_queue *q, unsigned n)
{
	uint32_t room = q->mark_mask + 1;
	struct mark *more;

	if (2 * n <= room)
		return true;
	while (room < 2 * n)
		room *= 2;
	more = calloc(room, sizeof(*more));
	if (more == NULL)
		return false;
	free(q->mark);
	q->mark = more;
	q->mark_mask = room - 1;
	q->stamp = 0;
	return true;
}

/* ---- locks ---- */

/* The words of its tuple, each whole. */
static void copy_head(const struct vb_queue *q, const struct want *w, uint64_t head[HEAD_WORDS])
{
	const struct vb_tuple_layout *l = &w->table->layout;
	const uint64_t *tuple = vb_local(q->db->fabric, w->at, l->lock_at + 8);

	for (unsigned i = 0; i <= l->lock_at / 8; i++)
		head[i] = __atomic_load_n(&tuple[i], __ATOMIC_ACQUIRE);
}

/* Is nobody in the way, as far as can be seen? */
static bool looks_free(struct vb_queue *q, const struct ticket *t, struct want *w)
{
	const uint64_t ts = t->head.ts;
	struct vb_named_word named[VB_NAMED_WORDS_MAX];
	uint64_t head[HEAD_WORDS];
	unsigned n, readers = 0, room = 0;
	bool mine = false;

	w->seen = 0;
	w->seen_slot = 0;
	if (w->at == 0)
		return true;
	copy_head(q, w, head);
	n = vb_words_named(q->db->cc, head, named);
	for (unsigned i = 0; i < q->db->cc->n_words; i++)
		room += q->db->cc->words[i].n;
	for (unsigned i = 0; i < n; i++) {
		bool lock = named[i].kind == VB_WORD_LOCK;

		readers += !lock;
		mine |= named[i].word == ts;
		if (named[i].word == ts || (!lock && !(w->flags & VB_ITEM_WRITE)))
			continue;
		/* Who writes takes the word first, and then waits for those who read. */
		if (!lock && !(w->flags & VB_ITEM_HELD_X))
			continue;
		w->seen = named[i].word;
		w->seen_slot = lock ? 0 : (uint8_t)(1 + (named[i].at - VB_TUPLE_META_AT) / 8);
		return false;
	}
	if (w->flags & VB_ITEM_WRITE || mine || readers < room)
		return true;
	w->seen = named[0].word;
	w->seen_slot = (uint8_t)(1 + (named[0].at - VB_TUPLE_META_AT) / 8);
	return false;
}

static struct vb_store_now now_of(const struct vb_queue *q)
{
	uint64_t error_ns, now = vb_ep_common_now(q->ep, &error_ns);

	return (struct vb_store_now){.ns = vb_ep_now(q->ep),
				     .common_ns = now > error_ns ? now - error_ns : 0};
}

static struct vb_item item_of(struct vb_queue *q, const struct ticket *t, const struct want *w,
			      unsigned i)
{
	return (struct vb_item){
		.table = w->table,
		.key = w->key,
		.at = w->at,
		.flags = w->flags,
		.slot = w->slot,
		.held = t->head.ts,
		.image = q->image + i * q->image_bytes,
	};
}

static void run_stage(struct vb_queue *q, struct ticket *t, unsigned stage, struct want **some,
		      unsigned n)
{
	struct vb_stage s = {
		.db = q->db,
		.acc = q->acc,
		.ts = t->head.ts,
		.saw = t->head.ts,
		.for_other = true,
	};
	struct vb_item item[VB_STAGE_ITEMS], *items[VB_STAGE_ITEMS];

	for (unsigned i = 0; i < n; i++) {
		item[i] = item_of(q, t, some[i], i);
		items[i] = &item[i];
	}
	q->db->cc->stages[stage].run(&s, items, n);
	for (unsigned i = 0; i < n; i++) {
		struct want *w = some[i];

		w->at = item[i].at;
		w->slot = item[i].slot;
		w->flags = item[i].flags & (uint16_t)~VB_ITEM_FETCHED;
		w->has = s.err == 0 && item[i].status == 0;
		w->seen = w->has ? 0 : item[i].seen;
		w->seen_slot = item[i].seen_slot;
	}
	if (s.err != 0)
		t->state = VB_SEQ_LOST;
}

/* A key has its place from the server, which may have given it to another while nothing was held. */
static bool place(struct vb_queue *q, struct ticket *t, struct want *w, struct vb_store_now *now)
{
	if (w->flags & (VB_ITEM_HELD_X | VB_ITEM_HELD_S))
		return true;
	if (now->ns == 0)
		*now = now_of(q);
	if (vb_table_ensure(w->table, q->node, w->key, now, &w->at) == 0)
		return true;
	t->state = VB_SEQ_FULL;
	return false;
}

/* Takes what is free.  True: it has all. */
static bool take(struct vb_queue *q, struct ticket *t)
{
	struct vb_store_now now = {0};
	struct want *some[VB_STAGE_ITEMS];
	bool all = true;
	unsigned n = 0;

	for (unsigned i = 0; i < t->head.n; i++) {
		struct want *w = &t->want[i];

		if (!w->has && t->state == VB_SEQ_WAITS && !is_wanted_ahead(q, w) &&
		    place(q, t, w, &now) && looks_free(q, t, w))
			some[n++] = w;
		if (n == VB_STAGE_ITEMS || (n > 0 && i + 1 == t->head.n)) {
			run_stage(q, t, q->db->cc->grant, some, n);
			n = 0;
		}
	}
	for (unsigned i = 0; i < t->head.n; i++) {
		if (t->want[i].has)
			continue;
		put_mark(q, &t->want[i]);
		all = false;
	}
	return all;
}

/* ---- tickets ---- */

static bool is_queued(const struct ticket *t)
{
	return t->state == VB_SEQ_WAITS || t->state == VB_SEQ_FULL || t->state == VB_SEQ_LOST;
}

static void leave_queue(struct vb_queue *q, struct ticket *t)
{
	if (!is_queued(t))
		return;
	vb_list_remove(&t->link);
	q->n_wants -= t->head.n;
}

/* What it has, or may have, is set back. */
static void let_go(struct vb_queue *q, struct ticket *t)
{
	const uint16_t any = VB_ITEM_HELD_X | VB_ITEM_HELD_S | VB_ITEM_MAYBE | VB_ITEM_MAYBE_S;
	struct want *some[VB_STAGE_ITEMS];
	unsigned n = 0;

	for (unsigned i = 0; i < t->head.n; i++) {
		if (t->want[i].flags & any)
			some[n++] = &t->want[i];
		if (n == VB_STAGE_ITEMS || (n > 0 && i + 1 == t->head.n)) {
			run_stage(q, t, q->db->cc->release, some, n);
			n = 0;
		}
	}
}

static void give_up(struct vb_queue *q, struct ticket *t)
{
	VB_SOMETIMES(1000, "calvin: a ticket is given up");
	leave_queue(q, t);
	let_go(q, t);
	t->state = VB_SEQ_UNKNOWN;
}

static enum vb_wire_refusal want_of(struct vb_queue *q, const struct vb_seq_key *k, struct want *w)
{
	*w = (struct want){.key = k->key[0] | (uint64_t)k->key[1] << 32,
			   .flags = k->write ? VB_ITEM_WRITE | VB_ITEM_READ : VB_ITEM_READ};
	if (k->table >= q->db->store.n_tables)
		return VB_WIRE_NO_TABLE;
	w->table = q->db->store.table[k->table];
	return vb_table_node(w->table, w->key) == q->node ? VB_WIRE_SOUND : VB_WIRE_NOT_HERE;
}

/* ---- forwarding ---- */

static struct out *next_out(struct vb_queue *q)
{
	struct out *o = &q->out[q->next_out++ % ON_THEIR_WAY];

	if (o->batch.posted)
		(void)vb_wait(q->ep, &o->batch);
	return o;
}

static uint32_t tuple_bytes(const struct want *w)
{
	return (w->table->layout.bytes + 7) & ~7u;
}

/* The tuples of what is held, which nobody else writes; those that find no room the coordinator reads itself.
 * Bytes in all. */
static uint32_t put_tuples(struct vb_queue *q, const struct ticket *t, unsigned char *buf,
			   struct vb_seq_item *item, uint32_t at)
{
	for (unsigned i = 0; i < t->head.n; i++) {
		const struct want *w = &t->want[i];
		uint32_t bytes = tuple_bytes(w);

		if (at + bytes > q->db->forward_bytes)
			continue;
		item[i].bytes = bytes;
		vb_tuple_set_word(buf + at, bytes - 8, 0);
		vb_acc_read(q->acc, VB_READ_DI, w->at, buf + at, w->table->layout.bytes);
		at += bytes;
	}
	if (vb_acc_go(q->acc) == 0)
		return at;
	for (unsigned i = 0; i < t->head.n; i++) {
		at -= item[i].bytes;
		item[i].bytes = 0;
	}
	return at;
}

static void post(struct vb_queue *q, struct out *o, const struct vb_seq_part *p, uint32_t bytes)
{
	vb_addr to = vb_seq_forward(q->db, p->from_node, p->coordinator, q->node);
	unsigned n = 0;

	for (uint32_t at = 0; at < bytes; at += VB_LEN_MAX)
		o->verb[n++] = (struct vb_verb){
			.op = VB_OP_WRITE,
			.flags = VB_SIGNALLED,
			.addr = to + at,
			.buf = o->buf + at,
			.len = bytes - at < VB_LEN_MAX ? bytes - at : VB_LEN_MAX,
		};
	o->msg = (struct vb_msg){.subject = p->subject, .tag = VB_TAG_FORWARD};
	o->verb[n++] = (struct vb_verb){
		.op = VB_OP_SEND, .flags = VB_SIGNALLED, .peer = p->peer, .msg = &o->msg};
	o->batch = (struct vb_batch){.verbs = o->verb, .n = (uint16_t)n};
	(void)vb_post(q->ep, &o->batch);
}

/* t: NULL: it is not known here. */
static void forward(struct vb_queue *q, const struct vb_seq_part *p, const struct ticket *t)
{
	struct out *o = next_out(q);
	struct vb_seq_forward *f = (void *)o->buf;
	struct vb_seq_item *item = (void *)(f + 1);
	uint32_t at = (uint32_t)sizeof(*f);

	*f = (struct vb_seq_forward){.ts = p->ts};
	if (t != NULL) {
		f->state = t->state;
		f->why = t->why;
	}
	if (f->state == VB_SEQ_WAITS || f->state == VB_SEQ_GRANTED)
		f->n = t->head.n;
	for (unsigned i = 0; i < f->n; i++) {
		const struct want *w = &t->want[i];

		item[i] = (struct vb_seq_item){.at = w->at,
					       .seen = w->seen,
					       .slot = w->slot,
					       .seen_slot = w->seen_slot,
					       .held = w->has};
	}
	at += f->n * (uint32_t)sizeof(*item);
	if (f->state == VB_SEQ_GRANTED)
		at = put_tuples(q, t, o->buf, item, at);
	f->bytes = at - (uint32_t)sizeof(*f);
	f->seal = vb_seq_forward_seal(f);
	post(q, o, p, at);
}

/* ---- from outside ---- */

static struct ticket **ticket_of(struct vb_queue *q, const struct vb_seq_part *p)
{
	if (p->from_node >= q->db->fabric->nodes || p->coordinator >= q->db->coordinators)
		return NULL;
	return &q->ticket[(size_t)p->from_node * q->db->coordinators + p->coordinator];
}

/* By our clock. */
static uint64_t until(const struct vb_queue *q, const struct vb_seq_part *p)
{
	uint64_t common = now_of(q).common_ns;
	uint64_t left = p->until_ns > common ? p->until_ns - common : 0;

	return vb_ep_now(q->ep) + (left < q->db->lease_ns ? left : q->db->lease_ns);
}

static struct ticket *make_ticket(struct vb_queue *q, const struct vb_seq_part *p)
{
	const struct vb_seq_key *key = vb_seq_keys(p);
	struct ticket *t = malloc(sizeof(*t) + p->n * sizeof(t->want[0]));
	enum vb_wire_refusal why = VB_WIRE_SOUND;

	if (t == NULL || !room_for_marks(q, q->n_wants + p->n)) {
		vb_error(
			"a server has no memory for a transaction that waits; it will not get what "
			"it wants");
		free(t);
		return NULL;
	}
	*t = (struct ticket){.head = *p, .state = VB_SEQ_WAITS, .until_ns = until(q, p)};
	for (unsigned i = 0; i < p->n && why == VB_WIRE_SOUND; i++)
		why = want_of(q, &key[i], &t->want[i]);
	if (why != VB_WIRE_SOUND) {
		t->state = VB_SEQ_REFUSED;
		t->why = (uint8_t)why;
		t->head.n = 0;
	}
	return t;
}

void vb_queue_add(struct vb_queue *q, const struct vb_seq_part *p)
{
	struct ticket **slot = ticket_of(q, p), *t;

	if (slot == NULL || p->n == 0 || p->n > q->db->items_max)
		return;
	t = *slot;
	/* Its coordinator is at another by now. */
	if (t != NULL && t->head.ts >= p->ts)
		return;
	if (t != NULL && is_queued(t))
		give_up(q, t);
	free(t);
	*slot = t = make_ticket(q, p);
	if (t == NULL)
		return;
	if (t->state == VB_SEQ_REFUSED) {
		forward(q, p, t);
		return;
	}
	vb_list_push(&q->waiting, &t->link);
	q->n_wants += t->head.n;
}

/* Its coordinator wants nothing any more. */
static bool is_past(const struct vb_queue *q, const struct ticket *t)
{
	return vb_queue_is_over(q, t->head.ts) || vb_ep_now(q->ep) >= t->until_ns;
}

bool vb_queue_turn(struct vb_queue *q)
{
	forget_marks(q);
	vb_list_for_each (it, &q->waiting) {
		struct ticket *t = vb_container_of(it, struct ticket, link);
		bool all;

		if (is_past(q, t)) {
			give_up(q, t);
			continue;
		}
		all = take(q, t);
		/* Behind the CAS: see above. */
		if (is_past(q, t)) {
			give_up(q, t);
		} else if (t->state != VB_SEQ_WAITS) {
			VB_SOMETIMES_IF(t->state == VB_SEQ_LOST, 200,
					"calvin: a server does not know what it has locked");
			forward(q, &t->head, t);
			give_up(q, t);
		} else if (all) {
			leave_queue(q, t);
			t->state = VB_SEQ_GRANTED;
			vb_seq_count(&q->line->forwards, 1);
			forward(q, &t->head, t);
		}
	}
	return !vb_list_empty(&q->waiting);
}

void vb_queue_tell(struct vb_queue *q, const struct vb_seq_part *p)
{
	struct ticket **slot = ticket_of(q, p);

	if (slot != NULL)
		forward(q, p, *slot != NULL && (*slot)->head.ts == p->ts ? *slot : NULL);
}

/* ---- opening and closing ---- */

void vb_queue_drain(struct vb_queue *q)
{
	for (unsigned i = 0; i < ON_THEIR_WAY; i++)
		if (q->out[i].batch.posted)
			(void)vb_wait(q->ep, &q->out[i].batch);
}

void vb_queue_close(struct vb_queue *q)
{
	if (q == NULL)
		return;
	for (size_t i = 0;
	     q->ticket != NULL && i < (size_t)q->db->fabric->nodes * q->db->coordinators; i++)
		free(q->ticket[i]);
	for (unsigned i = 0; i < ON_THEIR_WAY; i++)
		free(q->out[i].buf);
	free(q->ticket);
	free(q->mark);
	free(q->image);
	free(q);
}

int vb_queue_open(struct vb_db *db, uint16_t node, struct vb_ep *ep, struct vb_acc *acc,
		  struct vb_queue **out)
{
	struct vb_queue *q = calloc(1, sizeof(*q));
	bool room = q != NULL;

	if (room) {
		q->db = db;
		q->node = node;
		q->ep = ep;
		q->acc = acc;
		q->line = vb_seq_line(db, node);
		vb_list_init(&q->waiting);
		q->mark_mask = MARKS_FIRST - 1;
		q->image_bytes = (db->store.record_bytes_max + VB_TUPLE_META_AT +
				  db->store.meta_bytes + VB_SLOT_HEAD + 8 + 63) &
				 ~(size_t)63;
		q->image = aligned_alloc(64, VB_STAGE_ITEMS * q->image_bytes);
		q->mark = calloc(MARKS_FIRST, sizeof(*q->mark));
		q->ticket = calloc((size_t)db->fabric->nodes * db->coordinators,
				   sizeof(struct ticket *));
		room = q->image != NULL && q->mark != NULL && q->ticket != NULL;
		for (unsigned i = 0; i < ON_THEIR_WAY; i++) {
			q->out[i].buf = aligned_alloc(64, db->forward_bytes);
			room &= q->out[i].buf != NULL;
		}
	}
	if (!room) {
		vb_queue_close(q);
		return vb_fail(-ENOMEM, "no memory for a server");
	}
	*out = q;
	return 0;
}
