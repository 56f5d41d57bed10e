/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mostly-optimistic concurrency control (RCBench section 5.3, after Wang and Kimura, PVLDB 2016): silo
 * (cc/silo.c: its lock word, its validation, its commit) in which a record that has ended transactions is
 * entered by a *gate* before it is read.
 *
 *	reserved word  gate         who enters it to write: ts; 0: nobody
 *	meta words     temperature  about log2 of how many transactions the record has ended
 *	               seven slots  who enters it to read: ts each; 0: nobody
 *	lock word      as in cc/silo.c
 *
 *	read, cold     READ                            commit   CAS gate ts -> 0, WRITE, CAS ts | 1 -> ts
 *	enter to write CAS gate 0 -> ts, READ          leave    CAS gate or slot ts -> 0
 *	enter to read  CAS slot 0 -> ts, CAS gate      it has ended us
 *	               0 -> 0, READ                             CAS temperature -> temperature + 1, by chance
 *
 *	temperature   counts by chance (Morris 1978): t becomes t + 1 with 1 / 2^t, and, where a hot record was
 *	              found free, t - 1 with 1 / 2^(t + 2).  From vb_db_params.hot_from on a record is hot
 *	list          what has ended a transaction, what it writes, and what it read that was hot: the next tries
 *	              enter that, too; the coordinator's, until a commit
 *	order         of tables, and of keys in them
 *
 * A gate proves nothing: it keeps those out who would end each other.  What was read is validated, and what is
 * written is locked, as if there were none; so a gate may be let go, or passed, at any time.
 *
 * Why nobody waits for ever.  Who waits at a gate holds no gate or slot that comes behind it in the order, nor a
 * slot of the same record, nor a lock word; who waits for the readers in a record's slots holds its gate and
 * nothing behind; who waits for a lock word waits for one that waits for nobody.
 *
 *	A has y's, and finds x's taken        A leaves y, waits for x, enters x, enters y anew
 *	B has x's, and finds y's taken        B waits: y comes behind x
 *
 * Departs from the papers (why, with the interleavings: doc/cc/mocc.md):
 *   - gates are no queues;
 *   - the temperature stands in the tuple, and comes with its READ;
 *   - what is on the list and has not been asked for is not entered;
 *   - the order is asked for only when one has to wait;
 *   - what is found locked or changed at the commit ends the transaction;
 *   - and as cc/silo.c says.
 */
#include "base/sometimes.h"
#include "cc/silo.h"
#include "txn/db.h"

#define COOLS_BY   2u
#define HEAT_MAX   32u
#define LIST_MAX   64u
#define HEAT_AT    VB_TUPLE_META_AT
#define META_BYTES 64u
#define FIRST_SLOT 2u /* as an item counts them: behind the temperature */
#define SLOTS      7u

/* An item's, its own memory. */
struct own {
	uint64_t heat;    /* as it was read */
	uint64_t entered; /* what stood where it enters */
	uint64_t gate;    /* as a reader found it */
	uint64_t old;     /* of words that nobody looks at */
	uint32_t want;    /* enum wants */
	uint32_t refused;
	uint64_t unused;
};
_Static_assert(sizeof(struct own) % 16 == 0, "as vb_cc_ops wants it");

enum wants {
	LISTED = 1,   /* a bit: it is entered, hot or not */
	MAY_WAIT = 2, /* a bit: nothing behind it is held */
};

/* A coordinator's: what its next tries enter. */
struct list {
	uint32_t n;
	struct listed {
		uint32_t table;
		uint64_t key;
	} on[LIST_MAX];
};

static struct own *own_of(const struct vb_item *it)
{
	return vb_item_own(it, sizeof(struct own));
}

static bool is_hot(const struct vb_db *db, const struct vb_item *it)
{
	return own_of(it)->heat >= db->hot_from;
}

static bool wants_gate(const struct vb_db *db, const struct vb_item *it)
{
	return own_of(it)->want & LISTED || is_hot(db, it);
}

static vb_addr slot_at(vb_addr tuple, uint8_t slot)
{
	return tuple + VB_TUPLE_META_AT + (slot - 1u) * 8u;
}

/* Where a transaction enters to read; by its name, so that after a lost answer it is known. */
static uint8_t slot_of(uint64_t ts)
{
	return (uint8_t)(FIRST_SLOT + vb_ts_place(ts) / VB_PLACES_EACH % SLOTS);
}

/* The tuple's gate or slot that is ours. */
static vb_addr entered_at(const struct vb_item *it, vb_addr tuple)
{
	return it->slot != 0 ? slot_at(tuple, it->slot) : tuple + VB_TUPLE_RESERVED_AT;
}

/* ---- temperature ---- */

/* With 1 / 2^bits.  A transaction's name and a key are drawn together once, more or less. */
static bool by_chance(const struct vb_stage *s, const struct vb_item *it, uint64_t bits)
{
	uint64_t x = (s->ts ^ it->key * 0x9e3779b97f4a7c15ull) * 0xbf58476d1ce4e5b9ull;

	x ^= x >> 32;
	x *= 0x94d049bb133111ebull;
	return bits < 64 && (x >> 24 & ((1ull << bits) - 1)) == 0;
}

/* If others have been faster, theirs stands: it is a count by chance. */
static void set_heat(struct vb_stage *s, struct vb_item *it, uint64_t heat)
{
	vb_acc_cas(s->acc, VB_AMOD_IM, it->at + HEAT_AT, own_of(it)->heat, heat, &own_of(it)->old);
}

/* What ends the transaction because others are at it. */
static bool has_met(const struct vb_item *it)
{
	return it->at != 0 && (it->status == VB_TXN_LOCKED || it->status == VB_TXN_CHANGED);
}

static void heat(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	bool any = false;

	for (unsigned i = 0; i < n; i++) {
		const uint64_t t = own_of(items[i])->heat;

		if (!has_met(items[i]) || t >= HEAT_MAX || !by_chance(s, items[i], t))
			continue;
		VB_SOMETIMES_IF(t + 1 == s->db->hot_from, 50, "mocc: a record becomes hot");
		set_heat(s, items[i], t + 1);
		any = true;
	}
	if (any)
		(void)vb_stage_go(s, items, n);
}

/* ---- the gate ---- */

/* With the doorbell of the READ that follows. */
static void ask_to_enter(struct vb_stage *s, struct vb_item *it)
{
	struct own *own = own_of(it);

	it->flags |= VB_ITEM_MAYBE_S;
	own->gate = 0;
	if (it->flags & VB_ITEM_WRITE) {
		it->slot = 0;
		vb_acc_cas(s->acc, VB_AMOD_IM, it->at + VB_TUPLE_RESERVED_AT, 0, s->ts,
			   &own->entered);
		return;
	}
	it->slot = slot_of(s->ts);
	vb_acc_cas(s->acc, VB_AMOD_IM, slot_at(it->at, it->slot), 0, s->ts, &own->entered);
	vb_acc_cas(s->acc, VB_AMOD_IM, it->at + VB_TUPLE_RESERVED_AT, 0, 0, &own->gate);
}

/* Behind the READ, of which another may have come before. */
static void hear_of_it(const struct vb_stage *s, struct vb_item *it)
{
	it->flags &= (uint16_t)~VB_ITEM_MAYBE_S;
	if (own_of(it)->entered == 0 || own_of(it)->entered == s->ts)
		it->flags |= VB_ITEM_HELD_S;
}

/* Somebody is in the way; what was read is not given. */
static void stop_at(struct vb_item *it, uint64_t word, uint8_t seen_slot)
{
	it->flags &= (uint16_t)~VB_ITEM_FETCHED;
	it->status = 0;
	if (!(own_of(it)->want & MAY_WAIT)) {
		own_of(it)->refused = 1;
		return;
	}
	it->seen = word;
	it->seen_slot = seen_slot;
	it->status = VB_ITEM_WAIT;
}

static uint8_t first_reader(const struct vb_stage *s, const struct vb_item *it)
{
	for (uint8_t slot = FIRST_SLOT; slot < FIRST_SLOT + SLOTS; slot++) {
		const uint64_t reader = vb_tuple_word(it->image, (uint32_t)(slot_at(0, slot)));

		if (reader != 0 && reader != s->ts)
			return slot;
	}
	return 0;
}

/* A writer's gate: true, if it has to be left again. */
static bool judge_writer(const struct vb_stage *s, struct vb_item *it)
{
	uint8_t reader;

	if (!(it->flags & VB_ITEM_HELD_S)) {
		VB_SOMETIMES(50, "mocc: a gate is another's");
		stop_at(it, own_of(it)->entered, VB_SEEN_RESERVED);
		return false;
	}
	reader = first_reader(s, it);
	if (reader == 0)
		return false;
	VB_SOMETIMES(50, "mocc: a writer meets readers");
	stop_at(it, vb_tuple_word(it->image, (uint32_t)slot_at(0, reader)), reader);
	return !(own_of(it)->want & MAY_WAIT);
}

/* A reader's slot: the same.  Who finds it taken goes on without one, behind the other's. */
static bool judge_reader(struct vb_item *it)
{
	const uint64_t writer = own_of(it)->gate;

	if (writer != 0) {
		VB_SOMETIMES(200, "mocc: a writer enters when a reader does");
		stop_at(it, writer, VB_SEEN_RESERVED);
		return it->flags & VB_ITEM_HELD_S;
	}
	VB_SOMETIMES_IF(!(it->flags & VB_ITEM_HELD_S), 1000, "mocc: a reader's slot is another's");
	return false;
}

/* Some have to be left again, or were another key's. */
static void leave(struct vb_stage *s, struct vb_item **items, const vb_addr *at, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		vb_acc_cas(s->acc, VB_AMOD_IM, entered_at(items[i], at[i]), s->ts, 0,
			   &own_of(items[i])->old);
	if (n == 0 || s->err != 0)
		return;
	if (!vb_stage_go(s, items, n))
		return;
	for (unsigned i = 0; i < n; i++)
		items[i]->flags &= (uint16_t)~VB_ITEM_HELD_S;
}

/* READs, of which some have asked to enter; those whose gate has to be left are left. */
static void read_behind_gates(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	struct vb_item *out[VB_STAGE_ITEMS];
	vb_addr at[VB_STAGE_ITEMS], out_at[VB_STAGE_ITEMS];
	unsigned m = 0;

	for (unsigned i = 0; i < n; i++)
		at[i] = items[i]->at;
	silo_read(s, items, n);
	for (unsigned i = 0; i < n && s->err == 0; i++) {
		struct vb_item *it = items[i];
		const bool asked = it->flags & VB_ITEM_MAYBE_S;
		bool leaves = false;

		if (asked)
			hear_of_it(s, it);
		if (it->at == 0) {
			leaves = it->flags & VB_ITEM_HELD_S;
		} else {
			own_of(it)->heat = vb_tuple_word(it->image, HEAT_AT);
			/* Its holder waits for nobody. */
			if (it->status == VB_TXN_LOCKED)
				it->status = VB_ITEM_WAIT;
			if (it->flags & VB_ITEM_HELD_S ? it->slot == 0 : asked && it->slot == 0)
				leaves = judge_writer(s, it);
			else if (asked)
				leaves = judge_reader(it);
		}
		if (!leaves)
			continue;
		out_at[m] = at[i];
		out[m++] = it;
	}
	leave(s, out, out_at, m);
}

/* It has been read, and is hot or on the list: is somebody in the way already? */
static bool finds_gate_shut(const struct vb_stage *s, struct vb_item *it)
{
	const uint64_t writer = vb_tuple_word(it->image, VB_TUPLE_RESERVED_AT);

	if (writer == 0 || writer == s->ts)
		return false;
	VB_SOMETIMES(50, "mocc: a gate is found shut");
	stop_at(it, writer, VB_SEEN_RESERVED);
	return true;
}

static void cool(struct vb_stage *s, struct vb_item *it)
{
	const uint64_t t = own_of(it)->heat;

	if (!is_hot(s->db, it) || own_of(it)->want & MAY_WAIT || t == 0 ||
	    first_reader(s, it) != 0 || !by_chance(s, it, t + COOLS_BY))
		return;
	VB_SOMETIMES(200, "mocc: a record cools");
	set_heat(s, it, t - 1);
}

/*
 * What is known to need its gate is asked for with its first READ, to write; of all others the READ says whether
 * they need it, and whether it is free.
 */
static void read_stage(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	struct vb_item *now[VB_STAGE_ITEMS];
	unsigned m = 0;

	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];

		own_of(it)->refused = 0;
		if (it->flags & VB_ITEM_WRITE && !(it->flags & VB_ITEM_HELD_S) &&
		    own_of(it)->want & LISTED)
			ask_to_enter(s, it);
	}
	read_behind_gates(s, items, n);
	for (unsigned i = 0; i < n && s->err == 0; i++) {
		struct vb_item *it = items[i];

		if (it->status != 0 || own_of(it)->refused || it->flags & VB_ITEM_HELD_S ||
		    !wants_gate(s->db, it) || finds_gate_shut(s, it))
			continue;
		cool(s, it);
		ask_to_enter(s, it);
		it->flags &= (uint16_t)~VB_ITEM_FETCHED;
		now[m++] = it;
	}
	if (m > 0)
		read_behind_gates(s, now, m);
}

/* ---- lock, validate ---- */

static void lock_stage(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	silo_lock(s, items, n);
	if (s->err == 0)
		heat(s, items, n);
}

static void validate_stage(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	silo_validate(s, items, n);
	if (s->err == 0)
		heat(s, items, n);
}

/* ---- commit, release ---- */

static void left(const struct vb_stage *s, struct vb_item **items, unsigned n)
{
	for (unsigned i = 0; i < n && s->err == 0; i++)
		items[i]->flags &= (uint16_t) ~(VB_ITEM_HELD_S | VB_ITEM_MAYBE_S);
}

/* The gate with the doorbell of the WRITE behind it: who enters finds the lock word held, and waits. */
static void commit_stage(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (items[i]->flags & VB_ITEM_HELD_S)
			vb_acc_cas(s->acc, VB_AMOD_IM, entered_at(items[i], items[i]->at), s->ts, 0,
				   &own_of(items[i])->old);
	silo_commit(s, items, n);
	if (!s->passive)
		left(s, items, n);
}

static void ask_to_leave(struct vb_stage *s, struct vb_item *it)
{
	if (it->flags & VB_ITEM_HELD_S) {
		vb_acc_cas(s->acc, VB_AMOD_IM, entered_at(it, it->at), s->ts, 0, &own_of(it)->old);
	} else if (it->flags & VB_ITEM_MAYBE_S) {
		VB_SOMETIMES(200, "mocc: a gate whose answer was lost is left");
		vb_acc_cas(s->acc, VB_AMOD_IM, it->at + VB_TUPLE_RESERVED_AT, s->ts, 0,
			   &own_of(it)->old);
		vb_acc_cas(s->acc, VB_AMOD_IM, slot_at(it->at, slot_of(s->ts)), s->ts, 0,
			   &own_of(it)->old);
	}
}

static void release_stage(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];

		it->status = 0;
		if (it->at == 0)
			continue;
		if (it->flags & (VB_ITEM_HELD_X | VB_ITEM_MAYBE))
			vb_acc_cas(s->acc, VB_AMOD_IM, it->at + vb_item_layout(it)->lock_at,
				   s->ts | SILO_HELD, it->version, &it->seen);
		ask_to_leave(s, it);
	}
	if (vb_stage_go(s, items, n))
		left(s, items, n);
}

/* ---- the list ---- */

static bool is_listed(const struct list *list, const struct vb_item *it)
{
	for (uint32_t i = 0; i < list->n; i++)
		if (list->on[i].key == it->key && list->on[i].table == it->table->id)
			return true;
	return false;
}

/* The transaction has ended: what the next try enters.  What does not fit is read as it is. */
static int remember(struct vb_txn *t, int err)
{
	struct list *list = vb_txn_coordinator_own(t);

	for (unsigned i = 0; err != 0 && i < t->n; i++) {
		const struct vb_item *it = &t->item[i];

		if (is_listed(list, it) ||
		    !(it->flags & VB_ITEM_WRITE || has_met(it) || is_hot(t->me->db, it)))
			continue;
		if (list->n == LIST_MAX)
			break;
		list->on[list->n++] = (struct listed){.table = it->table->id, .key = it->key};
	}
	return err;
}

/* ---- in order ---- */

/* The gates and slots of what comes behind that item; what had been read stays read. */
static int leave_behind(struct vb_txn *t, const struct vb_item *first)
{
	struct vb_item *some[VB_STAGE_ITEMS];
	int err = 0;

	for (unsigned i = 0; i < t->n && err == 0;) {
		unsigned n = 0;

		for (; i < t->n && n < VB_STAGE_ITEMS; i++)
			if (t->item[i].flags & VB_ITEM_HELD_S &&
			    vb_item_is_before(first, &t->item[i]))
				some[n++] = &t->item[i];
		VB_SOMETIMES_IF(n > 0, 50, "mocc: what comes behind is left");
		if (n > 0)
			err = vb_txn_stage(t, SILO_RELEASE, some, n);
	}
	return err;
}

/* Those that have been refused to the front, the first of the order before the others: how many. */
static unsigned refused_to_front(struct vb_item **items, unsigned n)
{
	unsigned m = 0;

	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];

		if (!own_of(it)->refused)
			continue;
		items[i] = items[m];
		items[m++] = it;
		if (vb_item_is_before(it, items[0])) {
			items[m - 1] = items[0];
			items[0] = it;
		}
	}
	return m;
}

/* No call has given them yet, so they are read anew, behind their gates. */
static void refuse_what_was_left(const struct vb_txn *t, struct vb_item **items, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (items[i]->flags & VB_ITEM_HELD_S || !wants_gate(t->me->db, items[i]) ||
		    !vb_item_is_before(items[0], items[i]))
			continue;
		own_of(items[i])->refused = 1;
		items[i]->flags &= (uint16_t) ~(VB_ITEM_FETCHED | VB_ITEM_NOTED);
	}
}

/* The first of these in the order was refused: waits for it, and asks for the others once more. */
static int wait_in_order(struct vb_txn *t, struct vb_item **items, unsigned n)
{
	struct vb_item *first = items[0];
	int err = leave_behind(t, first);

	if (err)
		return err;
	refuse_what_was_left(t, items, n);
	own_of(first)->want |= LISTED | MAY_WAIT;
	err = vb_txn_stage(t, SILO_READ, &first, 1);
	n = refused_to_front(items + 1, n - 1);
	return err == 0 && n > 0 ? vb_txn_stage(t, SILO_READ, items + 1, n) : err;
}

/* ---- the transaction ---- */

static bool holds_behind(const struct vb_txn *t, const struct vb_item *it)
{
	for (unsigned i = 0; i < t->n; i++)
		if (t->item[i].flags & VB_ITEM_HELD_S && vb_item_is_before(it, &t->item[i]))
			return true;
	return false;
}

static int access_items(struct vb_txn *t, struct vb_item **items, unsigned n)
{
	const struct list *list = vb_txn_coordinator_own(t);
	int err;

	for (unsigned i = 0; i < n; i++) {
		*own_of(items[i]) =
			(struct own){.want = list->n > 0 && is_listed(list, items[i]) ? LISTED : 0};
		if (n == 1 && !holds_behind(t, items[0]))
			own_of(items[0])->want |= MAY_WAIT;
	}
	err = vb_txn_stage(t, SILO_READ, items, n);
	while (err == 0 && refused_to_front(items, n) > 0)
		err = wait_in_order(t, items, n);
	return remember(t, err);
}

/* A record that was declared to be written may have been read before. */
static int write_items(struct vb_txn *t, struct vb_item **items, unsigned n)
{
	unsigned m = vb_items_to_front(items, n, 0, VB_ITEM_FETCHED);

	return m > 0 ? access_items(t, items, m) : 0;
}

static int prepare(struct vb_txn *t)
{
	int err = silo_prepare(t);

	if (err == 0)
		((struct list *)vb_txn_coordinator_own(t))->n = 0;
	return remember(t, err);
}

static const struct vb_stage_ops stages[] = {
	[SILO_READ] = {.name = "read",
		       .flags = VB_STAGE_FETCHES | VB_STAGE_MAKES,
		       .run = read_stage},
	[SILO_LOCK] = {.name = "lock", .run = lock_stage},
	[SILO_VALIDATE] = {.name = "validate", .run = validate_stage},
	[SILO_COMMIT] = {.name = "commit", .flags = VB_STAGE_WRITES, .run = commit_stage},
	[SILO_RELEASE] = {.name = "release", .run = release_stage},
};

static const struct vb_cc_word words[] = {
	{.at = VB_TUPLE_RESERVED_AT, .kind = VB_WORD_READER, .n = 1},
	{.at = HEAT_AT, .kind = VB_WORD_DATA, .n = 1},
	{.at = HEAT_AT + 8, .kind = VB_WORD_READER, .n = SLOTS},
};

const struct vb_cc_ops vb_cc_mocc = {
	.name = "mocc",
	.summary = "silo that waits at the gate of what has ended transactions, before it reads it",
	.source = "RCBench section 5.3, after Wang and Kimura, PVLDB 2016",
	.caps = VB_CC_STRICT | VB_CC_IN_ORDER | VB_CC_HEATS,
	.meta_bytes = META_BYTES,
	.words = words,
	.n_words = VB_ARRAY_SIZE(words),
	.item_bytes = sizeof(struct own),
	.coordinator_bytes = sizeof(struct list),
	SILO_OPS_BUT_CALLS(stages),
	.read = access_items,
	.write = write_items,
	.prepare = prepare,
};
