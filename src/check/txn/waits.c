/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For whom transactions wait.  Each protocol says so (VB_CC_NEVER_WAITS, VB_CC_WAIT_DIE,
 * VB_CC_WAITS_OLDER, VB_CC_IN_ORDER), and it is why there are no deadlocks: one that came all the same would end at
 * somebody's deadline, and nobody would know.  That they wait for each other, and for longer than their
 * lease, is judged in orderly seeds only: who stands still looks as if he waited.
 */
#define VB_LOG_ROOM "check"
#include <inttypes.h>

#include "check/txn/world.h"
#include "cc/two_phase.h"

static void wrong(struct txn_slot *s, const struct vb_txn *t, const struct vb_item *it,
		  const char *what)
{
	txn_found(s->w, VB_TXN_RULE_WRONG_WAIT,
		  "coordinator %u, whose transaction is %#" PRIx64 ", %s at %s/%" PRIu64
		  ", which %#" PRIx64 " holds",
		  s->index, t->ts, what, it->table->name, it->key, it->seen);
}

/* Of all readers that the stage has seen: it must not wait for one that is older.  Where the stage
 * has run elsewhere, or the record was there before, what it has seen is not here. */
static bool sees_older_reader(const struct vb_txn *t, const struct vb_item *it)
{
	const struct vb_db *db = t->me->db;

	if (!(db->cc->caps & VB_CC_SHARED) || db->rpc_stages & 1u << TWO_PHASE_LOCK ||
	    it->flags & VB_ITEM_FETCHED || !(it->flags & VB_ITEM_HELD_X))
		return false;
	for (unsigned k = 0; k < VB_SX_SLOTS; k++) {
		uint64_t reader = vb_tuple_word(it->image, VB_TUPLE_META_AT + k * 8);

		if (reader != 0 && reader < t->ts)
			return true;
	}
	return false;
}

/* Who waits in order holds no lock word, and, but for one, nothing that comes behind. */
static bool waits_out_of_order(const struct vb_txn *t, const struct vb_item *it)
{
	for (unsigned i = 0; i < t->n; i++) {
		const struct vb_item *other = &t->item[i];

		if (other->flags & VB_ITEM_HELD_X ||
		    (it->seen_slot != 0 && other->flags & VB_ITEM_HELD_S &&
		     vb_item_is_before(it, other)))
			return true;
	}
	return false;
}

static void judge_promise(struct txn_slot *s, const struct vb_txn *t, const struct vb_item *it)
{
	bool waits = it->status == VB_ITEM_WAIT;
	uint32_t caps = s->w->cc->caps;

	if (waits && caps & VB_CC_NEVER_WAITS)
		wrong(s, t, it, "waits, which its protocol never does,");
	if (waits && caps & VB_CC_WAITS_OLDER && it->seen > t->ts && !vb_ts_mends(it->seen))
		wrong(s, t, it, "waits for a younger one");
	if (waits && caps & VB_CC_IN_ORDER && it->seen != 0 && waits_out_of_order(t, it))
		wrong(s, t, it, "waits, and holds what comes behind,");
	if (!(caps & VB_CC_WAIT_DIE))
		return;
	if (waits && (it->seen < t->ts || sees_older_reader(t, it)))
		wrong(s, t, it, "waits for an older one");
	if (it->status == VB_TXN_DIED && it->seen > t->ts)
		wrong(s, t, it, "ends for a younger one");
}

/* ---- for each other ---- */

static vb_addr word_in_the_way(const struct vb_item *it)
{
	if (it->seen_slot == 0)
		return it->at + it->table->layout.lock_at;
	if (it->seen_slot == VB_SEEN_RESERVED)
		return it->at + VB_TUPLE_RESERVED_AT;
	return it->at + VB_TUPLE_META_AT + (it->seen_slot - 1u) * 8u;
}

/* Whom it waits for, if that word still stands. */
static struct txn_slot *awaited(struct txn_slot *s)
{
	struct txn_world *w = s->w;
	const struct txn_wait *on = &s->wait;
	const uint64_t *word = on->word != 0 ? vb_local(w->fabric, on->at, 8) : NULL;

	if (word == NULL || *word != on->word)
		return NULL;
	for (unsigned i = 0; i < w->d->coordinators; i++) {
		const struct vb_coordinator *me = w->slot[i].me;

		if (me != NULL && me->txn.phase == VB_TXN_OPEN &&
		    vb_ts_name(me->txn.ts) == vb_ts_name(on->word))
			return &w->slot[i];
	}
	return NULL;
}

/* From when on they have all waited for each other; 0: they do not. */
static uint64_t since_when(struct txn_slot *first)
{
	uint64_t since = first->wait.since_ns;
	struct txn_slot *s = awaited(first);

	for (unsigned n = 0; s != NULL && s != first && n < first->w->d->coordinators; n++) {
		if (s->wait.since_ns > since)
			since = s->wait.since_ns;
		s = awaited(s);
	}
	return s == first ? since : 0;
}

static void judge_deadlock(struct txn_slot *s, const struct vb_txn *t, const struct vb_item *it)
{
	struct txn_world *w = s->w;
	uint64_t now = vb_sched_now(w->sched), at = word_in_the_way(it), since;

	if (s->wait.at != at || s->wait.word != it->seen)
		s->wait = (struct txn_wait){.at = at, .word = it->seen, .since_ns = now};
	since = since_when(s);
	if (since != 0 && now - since > w->d->lease_ns / 10 * 7)
		wrong(s, t, it, "waits for one that waits for it, for most of a lease,");
}

void txn_waits_met(void *ctx, const struct vb_txn *t, const struct vb_item *it)
{
	struct txn_world *w = ctx;
	struct txn_slot *s = &w->slot[t->me->index];

	if (w->cc->caps & VB_CC_BLIND_WAIT || s->me != t->me)
		return;
	judge_promise(s, t, it);
	/* A server that has much to do keeps a call for as long as that takes. */
	if (!w->d->calm || it->status != VB_ITEM_WAIT || strchr(w->d->hybrid, '1') != NULL)
		return;
	if (vb_ep_now(t->me->ep) > t->deadline_ns + 4 * w->d->bound_ns + TXN_SERVER_WAITS_NS)
		wrong(s, t, it, "waits though its lease is over");
	if (!(w->cc->caps & VB_CC_LOGICAL))
		judge_deadlock(s, t, it);
}

/* ---- what is left behind ---- */

static struct txn_slot *owner(struct txn_world *w, uint32_t place)
{
	for (unsigned i = 0; i < w->d->coordinators; i++) {
		const struct vb_coordinator *me = w->slot[i].me;

		for (unsigned k = 0; me != NULL && k < VB_PLACES_TXN; k++)
			if (me->lane[k].place == place)
				return &w->slot[i];
	}
	return NULL;
}

/*
 * Somebody else had to set it back, although its transaction has ended.  Who lives gives back what he
 * may hold, also after a lost answer.  Not judged where it could not: a release was not heard of, a
 * server takes locks for others, a verb lands behind the release that undoes it, or the holder stands
 * still or is cancelled.
 */
void txn_waits_left(void *ctx, const struct vb_coordinator *by, uint32_t place, uint64_t word)
{
	struct txn_world *w = ctx;
	const struct vb_sim_faults *f = &w->d->faults;
	struct txn_slot *s = owner(w, place);

	if (s == NULL || w->keeps[place] || txn_servers_lock(w))
		return;
	if (f->early + f->deaf + f->pause + f->stall + f->partition + f->nic_stall > 0)
		return;
	if (w->d->p_slow + w->d->p_edge > 0 || w->d->cancel_every_ns != 0)
		return;
	txn_found(w, VB_TXN_RULE_LEAKED_LOCK,
		  "coordinator %u lives, and has left %#" PRIx64
		  " behind, though all its releases have succeeded; coordinator %u has set it back",
		  s->index, word, by->index);
}
