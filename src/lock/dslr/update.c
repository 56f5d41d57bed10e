/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DSLR with update locks (section 5.2 of the paper): a client may hold a lock beside earlier
 * readers, and converts it to exclusive when it writes and they have left.
 *
 *	 63      56 55           42 41           28 27           14 13            0
 *	+----------+---------------+---------------+---------------+---------------+
 *	| era      | n_W           | n_S           | max_W         | max_S         |
 *	+----------+---------------+---------------+---------------+---------------+
 *	  resets     now serving: writers, readers   next ticket: writers, readers
 *
 *   acquire   uncontended 1 FAA                     contended + 1 READ per poll
 *   convert   update to exclusive: nothing if no reader was there at the grant, else 1 READ, + 1
 *             READ per poll while there are some; exclusive to update: nothing
 *   release   exclusive and update 1 masked CAS, shared 1 FAA
 *   try       1 READ + 1 CAS
 *
 *   Promises  shared, exclusive and update; first come, first served (bypass 0 while nobody is
 *             thrown out); survives the death of holders and waiters, as dslr.  It has no token.
 *
 * A client that may write, at once (exclusive) or later (update), is a *writer* and draws a ticket
 * from max_W.  The turn of a ticket comes
 *
 *   shared      when n_W has reached or passed its max_W: the writers before it have left;
 *   update      when n_W is its max_W: the writers before it have left, readers may be there;
 *   exclusive   when, as well, n_S is its max_S: the readers before it have left, too.
 *
 * An update lock becomes exclusive when n_S reaches the max_S of its ticket.  Clients that come
 * after a writer wait for n_W, so no reader joins meanwhile, and the wait is bounded by the
 * readers' leases.
 *
 * Departs from the paper (why, with the interleavings: doc/locks/dslr-update.md; for leases, slots
 * and resets: doc/locks/dslr.md):
 *
 *   1. one pair of counters serves exclusive and update locks, where the paper adds n_U and max_U;
 *   2. a reader's turn is n_W >= max_W, not n_W = max_W;
 *   3. each reset adds one to the era, and a ticket is good while the era is its own;
 *   4. the update lock with the last ticket before COUNT_MAX waits for the earlier readers, too;
 *   5. a client that converts resets the word if the readers before it are dead, and stays in it;
 *   6. no release is posted later than ERA_LEASES after the end of its lease;
 *   7. a word that a reader's late release has overrun is reset, as dslr's (its departure 10).
 */
#define VB_LOG_ROOM "dslr-update"
#include "lock/dslr/update.h"

#include "base/log.h"
#include "base/sometimes.h"

#define COUNT_MAX 8192
#define SLOTS_MAX 8
/* So short that the era cannot come round: neither 256 times 1,024 tickets are drawn in it, nor do
 * 256 times two leases pass. */
#define ERA_LEASES 4

const struct vb_opt dslr_update_option_table[] = {DSLR_OPTIONS(COUNT_MAX, "8192", "auto"),
						  DSLR_SLOTS(SLOTS_MAX), VB_OPT_END};

static bool exhausted(const struct vb_lock_client *me, uint64_t w)
{
	uint64_t count_max = dslr_options_of(me)->count_max;

	return upd_max_w(w) >= count_max || upd_max_s(w) >= count_max;
}

/* Or more readers have left than have come (departure 7). */
static bool saturated(const struct vb_lock_client *me, uint64_t w)
{
	return exhausted(me, w) || upd_n_s(w) > upd_max_s(w);
}

static bool readers_left(uint64_t w, uint64_t ticket)
{
	return upd_n_s(w) == upd_max_s(ticket);
}

static bool is_turn(const struct vb_lock_client *me, const struct vb_claim *c, uint64_t w)
{
	uint64_t ticket = vb_claim_as(const struct dslr_claim, c)->ticket;
	uint32_t first = upd_max_w(ticket);

	if (c->mode == VB_SHARED)
		return upd_n_w(w) >= first;
	if (upd_n_w(w) != first)
		return false;
	/* Departure 4. */
	if (c->mode == VB_UPDATE && first + c->leases < dslr_options_of(me)->count_max)
		return true;
	return readers_left(w, ticket);
}

static bool thrown_out(const struct vb_claim *c, uint64_t w)
{
	return upd_era(w) != upd_era(vb_claim_as(const struct dslr_claim, c)->ticket);
}

static uint64_t ahead(uint64_t w, uint64_t ticket, uint64_t *writers)
{
	int32_t before = (int32_t)upd_max_w(ticket) - (int32_t)upd_n_w(w);
	int32_t readers = (int32_t)upd_max_s(ticket) - (int32_t)upd_n_s(w);

	*writers = before > 0 ? (uint64_t)before : 0;
	return *writers + (readers > 0 ? (uint64_t)readers : 0);
}

/* Nobody holds or waits, and everybody can see that there was a reset. */
static uint64_t reset_word(const struct vb_lock_client *me, uint64_t w)
{
	uint32_t writers = upd_max_w(w), readers = upd_max_s(w);

	if (exhausted(me, w))
		return upd_word(upd_era(w) + 1, 0, 0, 0, 0);
	return upd_word(upd_era(w) + 1, writers, readers, writers, readers);
}

static const struct dslr_word_ops word_ops = {
	.n_mask = UPD_N_MASK,
	.blind_leases = ERA_LEASES,
	.saturated = saturated,
	.is_turn = is_turn,
	.thrown_out = thrown_out,
	.ahead = ahead,
	.reset_word = reset_word,
};

/* What a ticket adds. */
static uint64_t slots_of(const struct vb_claim *c)
{
	return c->leases * (c->mode == VB_SHARED ? UPD_ONE_MAX_S : UPD_ONE_MAX_W);
}

int dslr_update_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	return dslr_draw_until_granted(me, c, &word_ops, slots_of(c), until_ns);
}

/* After a deadline: the ticket may still be good. */
int dslr_update_resume(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	return dslr_wait_turn(me, c, &word_ops, until_ns);
}

int dslr_update_try_acquire(struct vb_lock_client *me, struct vb_claim *c)
{
	return dslr_try(me, c, &word_ops, slots_of(c));
}

/* After this time the era may have come round since the end of the lease: the word tells
 * nothing. */
static uint64_t era_until_ns(const struct vb_lock_client *me, const struct vb_claim *c)
{
	return c->valid_until_ns + dslr_blind_ns(me, &word_ops);
}

/* ---- conversion ---- */

/* The readers before us are dead: writes the word with us as its only ticket; all others draw
 * anew. */
static int reset_and_stay(struct vb_lock_client *me, struct vb_claim *c, uint64_t w,
			  uint64_t looked_ns)
{
	struct dslr_claim *t = vb_claim_as(struct dslr_claim, c);
	uint64_t posted = vb_ep_now(me->ep), free = reset_word(me, w), old;
	int err;

	if (upd_max_w(free) + c->leases > dslr_options_of(me)->count_max)
		free = upd_word(upd_era(free), 0, 0, 0, 0);
	err = vb_cas64_before(me->ep, c->entry, w, free + slots_of(c),
			      dslr_compare_by_ns(me, &word_ops, looked_ns), &old);
	/* If the link is down, the next look says so. */
	if (err == -VB_ETOOLATE || err == -VB_EPEERGONE || (err == 0 && old != w)) {
		VB_SOMETIMES(200, "dslr-update: an update lock's reset lost its race");
		return -EAGAIN;
	}
	if (err)
		return err;
	VB_SOMETIMES(200, "dslr-update: an update lock outlives dead readers");
	me->recoveries++;
	vb_debug("lock %llu: reset, the readers before an update lock are gone",
		 (unsigned long long)c->lock);
	t->ticket = t->seen = free;
	c->valid_until_ns = posted + dslr_lease_ns(me, c);
	return 0;
}

/*
 * Waits until the readers before us have left.  Our own lease may end meanwhile, and the lock be
 * ours all the same: as long as the era and n_W are those of our ticket, nobody has written.  If
 * we had to wait, the others saw n_S move after our last look and have counted from there, so we
 * have a new lease.
 */
static int wait_readers(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	struct dslr_claim *t = vb_claim_as(struct dslr_claim, c);
	uint64_t w, posted, done, not_yet_ns = 0, since = 0, seen = 0, writers;
	unsigned refused = 0;

	for (;;) {
		uint64_t now, pause;
		int err = dslr_look(me, c, &w, &posted, &done);

		if (err && err != -EAGAIN && !vb_lock_ask_again(me, err, &refused))
			return vb_lock_unknown_if_refused(err);
		if (err == 0) {
			refused = 0;
			if (upd_era(w) != upd_era(t->ticket) ||
			    upd_n_w(w) != upd_max_w(t->ticket) ||
			    (not_yet_ns != 0 && done - not_yet_ns > dslr_blind_ns(me, &word_ops)))
				return -VB_ELOST;
			if (readers_left(w, t->ticket)) {
				if (not_yet_ns != 0)
					c->valid_until_ns = not_yet_ns + dslr_lease_ns(me, c);
				return 0;
			}
			if (not_yet_ns == 0 || (w ^ seen) & UPD_N_MASK)
				since = done;
			else if (done - since >=
				 dslr_patience_ns(me, ahead(w, t->ticket, &writers))) {
				err = reset_and_stay(me, c, w, posted);
				if (err != -EAGAIN)
					return err;
			}
			seen = w;
			not_yet_ns = posted;
			me->retries++;
		}
		now = vb_ep_now(me->ep);
		if (now >= until_ns)
			return -ETIMEDOUT;
		pause = dslr_pause_ns(me, c, &word_ops, seen, since != 0 ? now - since : 0);
		err = pause == 0 ? vb_poll_pause(me, until_ns)
				 : vb_ep_sleep_until(me->ep, now + pause < until_ns ? now + pause
										    : until_ns);
		if (err)
			return err;
	}
}

int dslr_update_convert(struct vb_lock_client *me, struct vb_claim *c, enum vb_mode mode,
			uint64_t until_ns)
{
	const struct dslr_claim *t = vb_claim_as(const struct dslr_claim, c);
	int err = 0;

	if (c->mode == VB_SHARED || mode == VB_SHARED)
		return vb_fail(
			-EOPNOTSUPP,
			"'%s' cannot convert a lock from %s to %s; take an update lock if it "
			"may have to become exclusive",
			me->space->ops->name, vb_lock_mode_name(c->mode), vb_lock_mode_name(mode));
	if (vb_ep_now(me->ep) > era_until_ns(me, c)) {
		VB_SOMETIMES(2000, "dslr-update: a conversion an era too late");
		return -VB_ELOST;
	}
	if (mode == VB_EXCLUSIVE && !readers_left(t->seen, t->ticket))
		err = wait_readers(me, c, until_ns);
	if (err == 0 && vb_ep_now(me->ep) >= c->valid_until_ns)
		err = -VB_ELOST;
	if (err == 0)
		c->mode = mode;
	return err;
}

/* ---- release ---- */

/* n_W must still be the writer's ticket; nobody else can have moved it but by a reset. */
static int release_writer(struct vb_lock_client *me, struct vb_claim *c)
{
	const struct dslr_claim *t = vb_claim_as(struct dslr_claim, c);
	uint32_t first = upd_max_w(t->ticket), era = upd_era(t->ticket);
	uint32_t next = first + (uint32_t)dslr_slots_served(me, c, first);
	bool last = next == dslr_options_of(me)->count_max;
	struct dslr_change to = {.expect = upd_word(era, first, 0, 0, 0),
				 .expect_mask = UPD_W_MASK,
				 .value = upd_word(last ? era + 1 : era, last ? 0 : next, 0, 0, 0),
				 .value_mask = last ? UINT64_MAX : UPD_W_MASK};
	uint64_t old;
	int err = dslr_swap(me, c, &to, era_until_ns(me, c), &old);

	if (err)
		return err == -VB_ETOOLATE ? -VB_ELOST : err;
	if ((old & UPD_W_MASK) == to.expect)
		return 0;
	VB_SOMETIMES(200, "dslr-update: a writer's release after a reset");
	return -VB_ELOST;
}

/* n_S moves with other readers, n_W with update locks that came after us. */
static int release_reader_late(struct vb_lock_client *me, struct vb_claim *c, uint64_t add)
{
	const struct dslr_claim *t = vb_claim_as(struct dslr_claim, c);
	const uint64_t mask = UPD_ERA_MASK | UPD_S_MASK;
	uint64_t n = t->seen & mask, old;

	for (;;) {
		bool last = upd_n_s(n + add) == dslr_options_of(me)->count_max;
		struct dslr_change to = {.expect = n,
					 .expect_mask = mask,
					 .value = last ? upd_word(upd_era(n) + 1, 0, 0, 0, 0)
						       : n + add,
					 .value_mask = last ? UINT64_MAX : mask};
		int err = dslr_swap(me, c, &to, era_until_ns(me, c), &old);

		if (err)
			return err == -VB_ETOOLATE ? -VB_ELOST : err;
		if ((old & mask) == n)
			return 0;
		VB_SOMETIMES(200, "dslr-update: a late reader's release found other numbers");
		if (upd_era(old) != upd_era(t->ticket))
			return -VB_ELOST;
		n = old & mask;
		me->retries++;
	}
}

static int release_reader(struct vb_lock_client *me, struct vb_claim *c)
{
	const struct dslr_claim *t = vb_claim_as(struct dslr_claim, c);
	uint64_t add = dslr_slots_served(me, c, upd_max_s(t->ticket)) * UPD_ONE_N_S, old, seen;
	struct dslr_change to_zero = {.expect_mask = UPD_N_MASK, .value_mask = UINT64_MAX};
	int err = vb_faa64_before(me->ep, c->entry, add, c->valid_until_ns, &old);

	if (err == -VB_ETOOLATE)
		return release_reader_late(me, c, add);
	if (err)
		return err;
	if (vb_unlikely(upd_era(old) != upd_era(t->ticket)))
		return vb_fail(
			-VB_ELOST,
			"a release of lock %llu took effect after its lease: this machine stood "
			"still between the clock and the verb; waiters of the lock may have to "
			"wait for a reset",
			(unsigned long long)c->lock);
	/* At COUNT_MAX all readers have left, and so have the writers before the last of them;
	 * later clients were refused. */
	if (vb_likely(upd_n_s(old + add) != dslr_options_of(me)->count_max))
		return 0;
	VB_SOMETIMES(200, "dslr-update: a reader zeroes the word");
	to_zero.expect = (old + add) & UPD_N_MASK;
	to_zero.value = upd_word(upd_era(old) + 1, 0, 0, 0, 0);
	return dslr_swap(me, c, &to_zero, VB_FOREVER, &seen);
}

int dslr_update_release(struct vb_lock_client *me, struct vb_claim *c)
{
	return c->mode == VB_SHARED ? release_reader(me, c) : release_writer(me, c);
}

const struct vb_lock_ops vb_lock_dslr_update = {
	.name = "dslr-update",
	.summary = "dslr with update locks, which read beside readers and then write",
	.source = "DSLR, SIGMOD 2018, section 5.2",
	DSLR_UPDATE_LOCK,
	.convert = dslr_update_convert,
};
