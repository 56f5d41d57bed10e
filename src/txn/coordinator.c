/* SPDX-License-Identifier: Apache-2.0 */
/* Coordinators: their places, their clocks, and how a transaction begins. */
#define VB_LOG_ROOM "txn"
#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "txn/db.h"

#define RNG_STREAM 0x7c00000000000000ull

/* How often in a verb bound we look at our own status word again after a lost answer. */
#define STATUS_PAUSES 16u

/*
 * The clock of timestamps may run ahead of time: if a coordinator names more transactions than
 * there are units (488,000 a second), and if it has seen others that do.  How far the names of a
 * coordinator's places have come is kept in the first one's head, CLOCK_RESERVED units at a time
 * (34 ms, so one store in that time or that many transactions); so the next coordinator of the
 * places begins above, however the last one ended.  CLOCK_AHEAD units (73 minutes) ahead of the
 * common time the clock waits for it: so 46 bits are never used up early, and no word that is no
 * timestamp can push a clock to their end.
 */
#define CLOCK_RESERVED (1u << 14)
#define CLOCK_AHEAD    (1ull << 31)

static vb_addr owner_word(const struct vb_db *db, uint32_t place)
{
	return vb_db_place(db, place) + offsetof(struct vb_place_head, owner);
}

static uint32_t place_of(const struct vb_coordinator *me, unsigned lane)
{
	return ((uint32_t)me->node * me->db->coordinators + me->number) * VB_PLACES_EACH + lane;
}

/* A coordinator has the places whose first owner word it has set. */
static int take_number(struct vb_coordinator *me)
{
	for (me->number = 0; me->number < me->db->coordinators; me->number++) {
		uint64_t old;
		int err = vb_cas64(me->ep, owner_word(me->db, place_of(me, 0)), 0, me->ep->self,
				   &old);

		if (err)
			return err;
		if (old == 0)
			return 0;
	}
	return vb_fail(
		-ENOSPC,
		"all %u coordinators that database '%s' allows on node %u are open; those of "
		"dead processes are given up with vb_db_recover",
		me->db->coordinators, me->db->name, me->node);
}

static int open_lane(struct vb_coordinator *me, unsigned i)
{
	const struct vb_db *db = me->db;
	struct vb_lane *lane = &me->lane[i];
	bool recovers = i >= VB_PLACES_TXN;
	uint32_t items = recovers ? 1 : db->items_max;
	size_t image = (recovers ? db->store.record_max : db->bytes_max) +
		       items * (size_t)(VB_TUPLE_META_AT + db->cc->meta_bytes + 24 + 64);

	lane->place = place_of(me, i);
	vb_acc_init(&lane->acc, me->ep, db->doorbell, db->outstanding);
	lane->item = calloc(items, sizeof(*lane->item));
	lane->arena = aligned_alloc(64, (image + 63) & ~(size_t)63);
	if (lane->item == NULL || lane->arena == NULL)
		return vb_fail(-ENOMEM, "no memory for a coordinator");
	memset(lane->arena, 0, (image + 63) & ~(size_t)63);
	vb_acc_read(&lane->acc, VB_READ_TM, vb_db_place(db, lane->place), &lane->status, 8);
	return vb_acc_go(&lane->acc);
}

/* Names that the places had under their last owner are not used again. */
static void open_clock(struct vb_coordinator *me)
{
	struct vb_place_head *first =
		vb_local(me->db->fabric, vb_db_place(me->db, place_of(me, 0)), sizeof(*first));
	uint64_t error_ns;

	me->clock_word = &first->clock;
	me->clock = __atomic_load_n(me->clock_word, __ATOMIC_ACQUIRE);
	if (me->clock < VB_TS_FIRST_CLOCK)
		me->clock = VB_TS_FIRST_CLOCK;
	me->clock_end = me->clock;
	/* Machines have not begun to count at the same time. */
	me->common_ns = (int64_t)(vb_ep_common_now(me->ep, &error_ns) - vb_ep_now(me->ep));
}

static int open_finder(struct vb_coordinator *me)
{
	uint32_t slots = 64;

	while (slots < 2 * me->db->items_max)
		slots *= 2;
	me->slot_mask = slots - 1;
	me->slot = calloc(slots, sizeof(*me->slot));
	me->stamp = calloc(slots, sizeof(*me->stamp));
	me->txn.some = calloc(me->db->items_max, sizeof(*me->txn.some));
	me->scratch = aligned_alloc(64, (size_t)VB_CALLS_MAX * me->db->call_bytes);
	if (me->scratch == NULL || me->slot == NULL || me->stamp == NULL || me->txn.some == NULL)
		return vb_fail(-ENOMEM, "no memory for a coordinator");
	return 0;
}

struct kept {
	struct vb_list link;
	unsigned char bytes[] __attribute__((aligned(16)));
};

void *vb_coordinator_keep(struct vb_coordinator *me, size_t bytes)
{
	struct kept *k = malloc(sizeof(*k) + bytes);

	if (k == NULL)
		return NULL;
	vb_list_push(&me->kept, &k->link);
	return k->bytes;
}

void vb_coordinator_let_go(void *kept)
{
	struct kept *k = kept != NULL ? vb_container_of(kept, struct kept, bytes) : NULL;

	if (k != NULL)
		vb_list_remove(&k->link);
	free(k);
}

static void free_coordinator(struct vb_coordinator *me)
{
	vb_opened_drop(&me->opened);
	vb_list_for_each (it, &me->kept)
		free(vb_container_of(it, struct kept, link));
	for (unsigned i = 0; i < VB_PLACES_EACH; i++) {
		free(me->lane[i].item);
		free(me->lane[i].arena);
	}
	free(me->slot);
	free(me->stamp);
	free(me->txn.some);
	free(me->scratch);
	free(me);
}

int vb_coordinator_open(struct vb_db *db, uint16_t node, struct vb_coordinator **out)
{
	VB_SCHED_INSIDE(vb_sched_here());
	struct vb_coordinator *me;
	int err;

	if (vb_any_null(db, out))
		return -EINVAL;
	err = vb_fabric_check(db->fabric);
	if (err)
		return err;
	if (node >= db->fabric->nodes)
		return vb_fail(-EINVAL, "there is no node %u: the fabric has %u", node,
			       db->fabric->nodes);
	if (vb_local(db->fabric, db->region[node], sizeof(struct vb_db_header)) == NULL)
		return vb_fail(
			-EXDEV,
			"node %u lives in another process: a coordinator is opened where its "
			"node is",
			node);
	me = calloc(1, sizeof(*me));
	if (me == NULL)
		return vb_fail(-ENOMEM, "no memory for a coordinator");
	me->db = db;
	me->node = node;
	me->txn.me = me;
	vb_list_init(&me->kept);
	err = vb_ep_open(db->fabric, node, &me->ep);
	if (err) {
		free(me);
		return err;
	}
	vb_mail_init(&me->mail, me->ep);
	err = take_number(me);
	if (err == 0)
		err = open_finder(me);
	for (unsigned i = 0; i < VB_PLACES_EACH && err == 0; i++)
		err = open_lane(me, i);
	if (err == 0)
		open_clock(me);
	if (err) {
		vb_ep_close(me->ep);
		free_coordinator(me);
		return err;
	}
	vb_rng_seed(&me->rng, db->fabric->seed, RNG_STREAM + place_of(me, 0));
	me->opened = (struct vb_opened){.kind = "coordinator",
					.of = db,
					.name = db->name,
					.node = node,
					.number = me->number};
	vb_opened_note(db->fabric, &me->opened);
	*out = me;
	return 0;
}

void vb_coordinator_close(struct vb_coordinator *me)
{
	uint64_t old;
	int err = 0;

	if (me == NULL || vb_ep_check(me->ep) != 0)
		return;
	VB_SCHED_INSIDE(me->ep->sched);
	vb_txn_abort(me);
	for (unsigned i = 0; i < VB_PLACES_TXN && err == 0; i++)
		err = vb_lane_settle(me, &me->lane[i]);
	__atomic_store_n(me->clock_word, me->clock, __ATOMIC_RELEASE);
	if (err == 0)
		err = vb_cas64(me->ep, owner_word(me->db, place_of(me, 0)), me->ep->self, 0, &old);
	if (err)
		vb_warn("a coordinator of database '%s' on node %u left its place unfinished (%s); "
			"vb_db_recover finishes it and gives it up",
			me->db->name, me->node, vb_strerror(err));
	vb_ep_close(me->ep);
	free_coordinator(me);
}

/* Of one whose client is dead: nothing is given back, nobody is told. */
void vb_coordinator_bury(struct vb_coordinator *me)
{
	if (me == NULL)
		return;
	vb_ep_close(me->ep);
	free_coordinator(me);
}

/* ---- time ---- */

static uint64_t units_now(const struct vb_coordinator *me)
{
	return (vb_ep_now(me->ep) + (uint64_t)me->common_ns) >> VB_TS_CLOCK_SHIFT;
}

void vb_coordinator_saw(struct vb_coordinator *me, uint64_t clock)
{
	if (vb_unlikely(clock >= me->clock) && clock < units_now(me) + CLOCK_AHEAD)
		me->clock = clock + 1;
}

uint64_t vb_coordinator_stamp(struct vb_coordinator *me, struct vb_lane *lane)
{
	uint64_t now = units_now(me);

	while (vb_unlikely(me->clock > now + CLOCK_AHEAD)) {
		vb_txn_wait_out(me, (me->clock - now - CLOCK_AHEAD) << VB_TS_CLOCK_SHIFT);
		now = units_now(me);
	}
	if (now > me->clock)
		me->clock = now;
	if (vb_unlikely(me->clock >= me->clock_end)) {
		me->clock_end = me->clock + CLOCK_RESERVED;
		__atomic_store_n(me->clock_word, me->clock_end, __ATOMIC_RELEASE);
	}
	return vb_ts_make(me->clock++, lane->place);
}

/*
 * Brings our status word to `to`, from what we believe it is.  An answer that is lost is asked for
 * again, for as long as others would wait for us: the CAS that has happened finds what it would
 * have written.  1: somebody else has changed the word, which now is lane->status.
 */
int vb_lane_status(struct vb_coordinator *me, struct vb_lane *lane, uint64_t to)
{
	const struct vb_db *db = me->db;
	vb_addr at = vb_db_place(db, lane->place);
	uint64_t until = 0;

	for (;;) {
		uint64_t old = 0;
		int err;

		vb_acc_cas(&lane->acc, VB_AMOD_TM, at, lane->status, to, &old);
		err = vb_acc_go(&lane->acc);
		if (vb_likely(err == 0)) {
			bool ours = old == lane->status || old == to;

			lane->status = ours ? to : old;
			return ours ? 0 : 1;
		}
		if (until == 0)
			until = vb_ep_now(me->ep) + 2 * db->suspect_ns;
		if (err == -VB_EPEERGONE || err == -VB_EACCESS || vb_ep_now(me->ep) > until)
			return err;
		vb_txn_wait_out(me, db->fabric->caps.verb_bound_ns / STATUS_PAUSES);
	}
}

/* ---- begin ---- */

static int name_it(struct vb_coordinator *me, struct vb_lane *lane, uint64_t old_ts)
{
	struct vb_txn *t = &me->txn;
	int err = 0;

	/* The same name needs the same place. */
	t->version = vb_coordinator_stamp(me, lane);
	t->ts = me->keep_age ? old_ts : t->version;
	if (!me->db->status)
		return 0;
	err = vb_lane_status(me, lane, t->ts | VB_TS_RUNNING);
	if (err == 1) {
		/* Recovered while it was ours: others have seen the end of that name. */
		t->ts = t->version = vb_coordinator_stamp(me, lane);
		err = vb_lane_status(me, lane, t->ts | VB_TS_RUNNING);
	}
	return err == 1 ? -VB_EUNKNOWN : err;
}

/* Slots of the finder that bear an older stamp are empty; 0 is that of those that never were
 * used. */
static void forget_items(struct vb_coordinator *me)
{
	if (vb_likely(++me->txn_stamp != 0))
		return;
	memset(me->stamp, 0, (me->slot_mask + 1) * sizeof(*me->stamp));
	me->txn_stamp = 1;
}

int vb_txn_begin(struct vb_coordinator *me)
{
	struct vb_lane *lane;
	struct vb_txn *t;
	uint64_t old_ts;
	int err;

	if (vb_any_null(me))
		return -EINVAL;
	err = vb_ep_check(me->ep);
	if (err)
		return err;
	VB_SCHED_INSIDE(me->ep->sched);
	t = &me->txn;
	old_ts = t->ts;
	if (t->phase == VB_TXN_OPEN)
		return vb_fail(-EBUSY, "a transaction is under way: commit or abort it first");
	if (me->recover.at != 0)
		vb_txn_recover(me);
	if (!me->keep_age)
		me->current = (me->current + 1) % VB_PLACES_TXN;
	lane = vb_txn_lane(me);
	err = vb_lane_settle(me, lane);
	if (err == 0)
		err = name_it(me, lane, old_ts);
	if (err) {
		t->phase = VB_TXN_OVER;
		t->cause = VB_TXN_FABRIC;
		t->error = err;
		return err;
	}
	t->phase = VB_TXN_OPEN;
	t->cause = VB_TXN_COMMITTED;
	t->error = 0;
	t->tainted = false;
	t->commit_ts = 0;
	t->n = 0;
	t->bytes = 0;
	t->item = lane->item;
	/* Whoever watches compares it with the ends of others; a deadline may only be early. */
	t->begin_ns =
		vb_unlikely(me->db->watch != NULL) ? vb_ep_now(me->ep) : vb_ep_now_early(me->ep);
	t->deadline_ns = t->begin_ns + me->db->lease_ns;
	me->keep_age = false;
	forget_items(me);
	return 0;
}

enum vb_txn_cause vb_txn_cause(const struct vb_coordinator *me)
{
	return me != NULL ? (enum vb_txn_cause)me->txn.cause : VB_TXN_MISUSE;
}

int vb_txn_error(const struct vb_coordinator *me)
{
	return me != NULL ? me->txn.error : -EINVAL;
}
