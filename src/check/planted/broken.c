/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Protocols of transactions that leave an item as it must not be when they say that it may commit
 * (txn/commit.c, vb_txn_inspect), and one whose records are not what they should be:
 *
 *	planted:unfetched      no-wait that forgets that it has fetched a record
 *	planted:unplaced       no-wait that forgets where a record is
 *	planted:unlocked       silo that does not lock what it writes
 *	planted:early-release  no-wait that lets its readers' locks go before the commit point
 *	planted:unread-bytes   no-wait that takes a record which it has read for one that it has not
 *	planted:stale-bytes    no-wait that does not fetch a record whose version it knows
 *	planted:other-version  silo that fetches what it had left out, and takes it of whatever version
 */
#include "check/planted/planted.h"

#include "cc/silo.h"
#include "cc/two_phase.h"
#include "txn/db.h"

static void lock_x(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	two_phase_lock_x(s, items, n, no_wait_judge);
}

static const struct vb_stage_ops stages[] = TWO_PHASE_STAGE_TABLE(lock_x);
static const struct vb_stage_ops silo_stages[] =
	SILO_STAGE_TABLE(silo_read, silo_lock, silo_validate);

#define BROKEN(NAME, SUMMARY, RULE, READ, PREPARE)                                                 \
	{                                                                                          \
		.name = "planted:" NAME, .summary = SUMMARY, .source = "on purpose",               \
		.planted = RULE, .caps = VB_CC_STRICT | VB_CC_READ_LOCKS, .stages = stages,        \
		.n_stages = TWO_PHASE_STAGES, .commit = TWO_PHASE_COMMIT,                          \
		.release = TWO_PHASE_RELEASE, .read = READ, .write = two_phase_access,             \
		.prepare = PREPARE, .unlocked = two_phase_unlocked, .locked = two_phase_locked,    \
		.whose = vb_ts_named                                                               \
	}

/* Of every fourth transaction that writes, the last that it writes. */
static struct vb_item *victim(struct vb_txn *t)
{
	for (unsigned i = t->n; i-- > 0;)
		if (t->item[i].flags & VB_ITEM_WRITE && vb_ts_clock(t->ts) % 4 == 0)
			return &t->item[i];
	return NULL;
}

static int prepare_unfetched(struct vb_txn *t)
{
	struct vb_item *it = victim(t);

	if (it != NULL)
		it->flags &= (uint16_t)~VB_ITEM_FETCHED;
	return 0;
}

static int prepare_unplaced(struct vb_txn *t)
{
	struct vb_item *it = victim(t);

	if (it != NULL)
		it->at = 0;
	return 0;
}

static int prepare_unread(struct vb_txn *t)
{
	struct vb_item *it = victim(t);

	if (it != NULL)
		it->flags |= VB_ITEM_BLIND;
	return 0;
}

static int prepare_released(struct vb_txn *t)
{
	int err = vb_txn_stage_all(t, TWO_PHASE_RELEASE, VB_ITEM_HELD_X, VB_ITEM_WRITE);

	for (unsigned i = 0; i < t->n && err == 0; i++)
		if (!(t->item[i].flags & VB_ITEM_WRITE))
			t->item[i].flags &= (uint16_t)~VB_ITEM_HELD_X;
	return err;
}

static int prepare_unlocked(struct vb_txn *t)
{
	return vb_txn_stage_all(t, SILO_VALIDATE, VB_ITEM_READ, 0);
}

/* Whose lock is held has its version; the record that a blind call has left out is not read. */
static int fetch_nothing(struct vb_txn *t, struct vb_item **items, unsigned n)
{
	unsigned m = 0;

	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];

		if (it->flags & VB_ITEM_HELD_X) {
			it->flags |= VB_ITEM_FETCHED;
			continue;
		}
		items[i] = items[m];
		items[m++] = it;
	}
	return m > 0 ? two_phase_access(t, items, m) : 0;
}

const struct vb_cc_ops vb_planted_unfetched =
	BROKEN("unfetched", "no-wait that forgets what it has fetched", "refused", two_phase_access,
	       prepare_unfetched);
const struct vb_cc_ops vb_planted_unplaced =
	BROKEN("unplaced", "no-wait that forgets where a record is", "refused", two_phase_access,
	       prepare_unplaced);
const struct vb_cc_ops vb_planted_early_release =
	BROKEN("early-release", "no-wait that lets its readers' locks go before the commit point",
	       "refused", two_phase_access, prepare_released);
const struct vb_cc_ops vb_planted_unread_bytes =
	BROKEN("unread-bytes", "no-wait that takes a record for one that it has not read",
	       "refused", two_phase_access, prepare_unread);
const struct vb_cc_ops vb_planted_stale_bytes =
	BROKEN("stale-bytes", "no-wait that does not fetch a record whose version it knows",
	       "contents", fetch_nothing, two_phase_prepare);

const struct vb_cc_ops vb_planted_unlocked = {
	.name = "planted:unlocked",
	.summary = "silo that does not lock what it writes",
	.source = "on purpose",
	.planted = "refused",
	SILO_OPS(silo_stages),
	.prepare = prepare_unlocked,
};

/* ---- another version ---- */

/* Of what is fetched after all the engine must find the version that it was. */
static int read_any_version(struct vb_txn *t, struct vb_item **items, unsigned n)
{
	uint64_t was = n == 1 ? items[0]->version : 0;
	int err = silo_access(t, items, n);

	if (err == 0 && was != 0)
		items[0]->version = was;
	return err;
}

static int prepare_what_was_fetched(struct vb_txn *t)
{
	int err;

	for (unsigned i = 0; i < t->n; i++)
		if (t->item[i].flags & VB_ITEM_NOTED)
			t->item[i].version = t->item[i].fetched;
	err = vb_txn_stage_all(t, SILO_LOCK, VB_ITEM_WRITE, 0);
	return err ? err : vb_txn_stage_all(t, SILO_VALIDATE, VB_ITEM_READ, VB_ITEM_WRITE);
}

const struct vb_cc_ops vb_planted_other_version = {
	.name = "planted:other-version",
	.summary = "silo that does not look whether what it fetches late is what it was",
	.source = "on purpose",
	.planted = "contents",
	SILO_OPS_BUT_CALLS(silo_stages),
	.read = read_any_version,
	.write = silo_write,
	.prepare = prepare_what_was_fetched,
};
