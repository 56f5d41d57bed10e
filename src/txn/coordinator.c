/* SPDX-License-Identifier: Apache-2.0 */
/* Coordinators: how they come to their places and clocks, and give them up. */
#define VB_LOG_ROOM "txn"
#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "txn/db.h"

#define RNG_STREAM   0x7c00000000000000ull
#define COMMON_TRIES 8u
#define FAR_TRIES    16u

static vb_addr owner_word(const struct vb_db *db, uint32_t place)
{
	return vb_db_place(db, place) + offsetof(struct vb_place_head, owner);
}

static uint32_t place_of(const struct vb_coordinator *me, unsigned lane)
{
	return ((uint32_t)me->node * me->db->coordinators + me->number) * VB_PLACES_EACH + lane;
}

/* A coordinator has the places whose first owner word it has set.  If that fails but for -ENOSPC, it may
 * have set the one of me->number. */
static int take_free(struct vb_coordinator *me)
{
	/* Where each look is a round trip not all begin with the same. */
	const uint32_t all = me->db->coordinators,
		       first = me->far ? vb_peer_client(me->ep->self) % all : 0;

	for (uint32_t i = 0; i < all; i++) {
		uint64_t old;
		int err;

		me->number = (first + i) % all;
		err = vb_cas64(me->ep, owner_word(me->db, place_of(me, 0)), 0, me->ep->self, &old);
		if (err)
			return err;
		if (old == 0)
			return 0;
	}
	me->number = all;
	return -ENOSPC;
}

static int take_number(struct vb_coordinator *me)
{
	int err = take_free(me);

	for (uint32_t i = 0; i < me->db->coordinators && me->far && err == -ENOSPC; i++) {
		err = vb_adopt_number(me);
		if (err == -EAGAIN)
			err = take_free(me);
	}
	if (err != -ENOSPC)
		return err;
	return vb_fail(
		-ENOSPC,
		"all %u coordinators that database '%s' allows on node %u are open; those of "
		"dead processes are given up with vb_db_recover",
		me->db->coordinators, me->db->name, me->node);
}

/* Nothing is under way in the name of its places.  A lost answer is asked for again: whoever has the
 * number then, it is not we. */
static int give_number_back(struct vb_coordinator *me)
{
	uint64_t old, until = vb_ep_now(me->ep) + 2 * me->db->suspect_ns;
	int err;

	for (;;) {
		err = vb_cas64(me->ep, owner_word(me->db, place_of(me, 0)), me->ep->self, 0, &old);
		if (err != -VB_EUNKNOWN || vb_ep_now(me->ep) > until)
			return err;
		vb_txn_wait_out(me, me->db->fabric->caps.verb_bound_ns);
	}
}

static void tell_left(const struct vb_coordinator *me, int err)
{
	vb_warn("a coordinator of database '%s' on node %u left its place unfinished (%s); "
		"vb_db_recover finishes it and gives it up",
		me->db->name, me->node, vb_strerror(err));
}

static int open_head(struct vb_coordinator *me, struct vb_lane *lane)
{
	const struct vb_db *db = me->db;
	const uint32_t bytes = vb_db_place_bytes(db, lane->place);

	if (!me->far) {
		lane->head = vb_local(db->fabric, vb_db_place(db, lane->place), bytes);
		return 0;
	}
	lane->far_head = calloc(1, bytes);
	lane->head = lane->far_head;
	return lane->head != NULL ? 0 : vb_fail(-ENOMEM, "no memory for a coordinator");
}

static int open_lane(struct vb_coordinator *me, unsigned i)
{
	const struct vb_db *db = me->db;
	struct vb_lane *lane = &me->lane[i];
	bool recovers = i >= VB_PLACES_TXN;
	int err;
	uint32_t items = recovers ? 1 : db->items_max;
	size_t records = recovers ? db->store.record_bytes_max : db->bytes_max;
	size_t image =
		db->store.slots * (records + items * (size_t)(VB_SLOT_HEAD + 8)) +
		items * (size_t)(VB_TUPLE_META_AT + db->cc->meta_bytes + 8 + 64 + me->item_own);

	if (vb_cc_installs(db->cc) && !recovers)
		image *= 2;
	lane->place = place_of(me, i);
	vb_acc_init(&lane->acc, me->ep, db->doorbell, db->outstanding);
	lane->item = calloc(items, sizeof(*lane->item));
	lane->memory = calloc(1, image + VB_CACHELINE);
	if (lane->item == NULL || lane->memory == NULL)
		return vb_fail(-ENOMEM, "no memory for a coordinator");
	lane->arena = lane->memory + me->item_own;
	lane->arena += -(uintptr_t)lane->arena & (VB_CACHELINE - 1);
	vb_acc_read(&lane->acc, VB_READ_TM, vb_db_place(db, lane->place), &lane->status, 8);
	err = vb_acc_go(&lane->acc);
	if (err == 0)
		err = open_head(me, lane);
	return err == 0 ? vb_copies_open(me, lane) : err;
}

/* A thread may stand still between its looks at two clocks: of some tries the shortest counts. */
int64_t vb_coordinator_common(struct vb_ep *ep)
{
	uint64_t shortest = UINT64_MAX, error_ns;
	int64_t ns = 0;

	for (unsigned i = 0; i < COMMON_TRIES && shortest > 0; i++) {
		uint64_t before = vb_ep_now(ep), common = vb_ep_common_now(ep, &error_ns);
		uint64_t took = vb_ep_now(ep) - before;

		if (took >= shortest)
			continue;
		shortest = took;
		ns = (int64_t)(common - before - took / 2);
	}
	return ns;
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

/* What the protocol has asked for; NULL: nothing. */
static int open_own(struct vb_coordinator *me)
{
	const struct vb_cc_ops *cc = me->db->cc;

	vb_assert(cc->item_bytes % 16 == 0 && cc->item_bytes <= VB_ITEM_OWN_MAX);
	/* What is undone has an image behind another, and no room before it. */
	vb_assert(!vb_cc_installs(cc) || cc->item_bytes == 0);
	me->item_own = cc->item_bytes;
	if (cc->txn_bytes != 0)
		me->txn.own = calloc(1, cc->txn_bytes);
	if (cc->coordinator_bytes != 0)
		me->own = calloc(1, cc->coordinator_bytes);
	if ((cc->txn_bytes != 0 && me->txn.own == NULL) ||
	    (cc->coordinator_bytes != 0 && me->own == NULL))
		return vb_fail(-ENOMEM, "no memory for a coordinator");
	return 0;
}

void *vb_txn_own(const struct vb_txn *t)
{
	return t->own;
}

void *vb_txn_coordinator_own(const struct vb_txn *t)
{
	return t->me->own;
}

static void free_coordinator(struct vb_coordinator *me)
{
	vb_opened_drop(&me->opened);
	vb_recover_drop_kept(me);
	for (unsigned i = 0; i < VB_PLACES_EACH; i++) {
		free(me->lane[i].item);
		free(me->lane[i].memory);
		free(me->lane[i].far_head);
	}
	free(me->slot);
	free(me->stamp);
	free(me->txn.some);
	free(me->txn.own);
	free(me->own);
	free(me->scratch);
	free(me);
}

/* The number that was asked for last, whether it was had or not. */
static void undo_open(struct vb_coordinator *me, int err)
{
	if (err == -VB_EUNKNOWN) /* what has set it may land yet */
		vb_txn_wait_out(me, me->db->fabric->caps.verb_bound_ns);
	if (me->adopts)
		tell_left(me, err);
	else if (me->number < me->db->coordinators) {
		err = give_number_back(me);
		if (err)
			tell_left(me, err);
	}
	vb_ep_close(me->ep);
	free_coordinator(me);
}

static int open_parts(struct vb_coordinator *me)
{
	int err = take_number(me);

	if (err == 0)
		err = open_own(me);
	if (err == 0)
		err = open_finder(me);
	for (unsigned i = 0; i < VB_PLACES_EACH && err == 0; i++)
		err = open_lane(me, i);
	if (err == 0)
		err = vb_clock_open(me);
	/* Machines have not begun to count at the same time. */
	me->common_ns = vb_coordinator_common(me->ep);
	return err == 0 && me->adopts ? vb_adopt_settle(me) : err;
}

static int open_at(struct vb_db *db, uint16_t node, uint16_t at, bool far,
		   struct vb_coordinator **out)
{
	struct vb_coordinator *me = calloc(1, sizeof(*me));
	int err;

	if (me == NULL)
		return vb_fail(-ENOMEM, "no memory for a coordinator");
	me->db = db;
	me->node = node;
	me->far = far;
	me->number = db->coordinators; /* none yet */
	me->txn.me = me;
	vb_list_init(&me->kept);
	err = vb_ep_open(db->fabric, at, &me->ep);
	if (err) {
		free(me);
		return err;
	}
	me->ep->user = me;
	vb_mail_init(&me->mail, me->ep);
	err = open_parts(me);
	if (err) {
		undo_open(me, err);
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

/* A verb that comes too late to a home that is busy does not happen, and all that is known of it is that its answer
 * is lost.  The number has been given back then, and the next try begins from nothing. */
int vb_coordinator_open_far(struct vb_db *db, uint16_t node, uint16_t at,
			    struct vb_coordinator **out)
{
	int err = vb_far_check(db);

	if (err != 0)
		return err;
	err = -VB_EUNKNOWN;
	for (unsigned i = 0; i < FAR_TRIES && err == -VB_EUNKNOWN; i++)
		err = open_at(db, node, at, true, out);
	return err;
}

int vb_coordinator_open(struct vb_db *db, uint16_t node, struct vb_coordinator **out)
{
	VB_SCHED_INSIDE(vb_sched_here());
	int err;

	if (vb_any_null(db, out))
		return -EINVAL;
	err = vb_fabric_check(db->fabric);
	if (err)
		return err;
	if (node >= db->fabric->nodes)
		return vb_fail(-EINVAL, "there is no node %u: the fabric has %u", node,
			       db->fabric->nodes);
	err = vb_parts_gone(db);
	if (err)
		return err;
	if (db->fabric->caps.client)
		return vb_coordinator_open_far(db, node, node, out);
	if (vb_local(db->fabric, db->region[node], sizeof(struct vb_db_header)) == NULL)
		return vb_fail(
			-EXDEV,
			"node %u lives in another process: a coordinator is opened where its "
			"node is",
			node);
	return open_at(db, node, node, false, out);
}

void vb_coordinator_close(struct vb_coordinator *me)
{
	int err = 0;

	if (me == NULL || vb_ep_check(me->ep) != 0)
		return;
	VB_SCHED_INSIDE(me->ep->sched);
	vb_txn_abort(me);
	for (unsigned i = 0; i < VB_PLACES_TXN && err == 0; i++)
		err = vb_lane_settle(me, &me->lane[i]);
	if (err == 0)
		err = vb_recovery_pay(me);
	for (unsigned i = VB_PLACES_TXN; i < VB_PLACES_EACH; i++)
		vb_lane_log_settle(me, &me->lane[i]);
	vb_clock_close(me);
	if (err == 0)
		err = give_number_back(me);
	if (err)
		tell_left(me, err);
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
