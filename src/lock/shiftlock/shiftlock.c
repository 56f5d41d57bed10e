/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ShiftLock: handover between clients, reader-writer, recovered by the lock server (Gao et al.,
 * FAST 2025).  The entry is in shiftlock.h.
 *
 *   acquire   exclusive 1 masked CAS (128), shared 1 masked FAA (128); contended: a writer sends 1
 *             message and waits locally for one, a reader polls with READs, a writer behind readers
 *             polls, too
 *   release   1 masked CAS or FAA (128); a writer with a successor 1 message instead, and the CAS
 *             before it at a change of epoch, when RelCnt has stood still for half a lease, and with
 *             handover=guarded always
 *   try       1 masked CAS (exclusive), 1 READ + 1 masked CAS (shared)
 *
 *   Promises  shared and exclusive; writers are FIFO, of later ones at most 15 (max_writers less 1)
 *             pass a waiting reader, readers admitted at a change of epoch pass waiting writers;
 *             survives the death of anybody but the lock server: the survivors go on after 3 leases
 *             without a release (plus half a lease until they ask, and the server's answer).  The
 *             token of an exclusive grant is RelCnt: generation and releases so far.
 *
 * A writer swaps itself into TailPtr.  An empty queue and no readers: granted.  Readers but no
 * writer: it waits until RelCnt has grown by their number.  A predecessor: it tells that one
 * SUCCESSOR, and waits for HANDOVER or MODE.  A reader adds itself to RdrCnt; with a writer in the
 * queue it waits until the Epoch bit flips.
 *
 * Departs from the paper (why, with the interleavings: doc/locks/shiftlock.md):
 *
 *   1. messages carry the generation (upper bits of RelCnt) and the epoch in force;
 *   2. a writer's release that counts is a masked CAS that compares RelCnt, and a handover follows it;
 *      most handovers are not counted, but with a later release, which counts for all before it;
 *   3. a reader's release is an FAA while its grant is valid, and a CAS loop afterwards;
 *   4. the server resets a lock only if RelCnt is still what the client saw standing still;
 *   5. the generation has 16 bits, the paper's one;
 *   6. a grant's time starts when the last look that did not yet show its RelCnt was posted.
 *
 * On a fabric without 128-bit masked atomics the entry is narrower (shiftlock.h) and each masked
 * CAS is a READ and a CAS, repeated while others change the word; a writer's release begins with
 * the CAS.  The counts are too narrow for a token there, so fencing takes the general one.
 */
#define VB_LOG_ROOM "shiftlock"
#include "lock/shiftlock/claim.h"

#include "base/log.h"
#include "base/sometimes.h"

const struct vb_opt sl_option_table[] = {
	VB_OPT_SIZE(struct sl_options, max_writers, "max_writers", "16", 1, UINT32_MAX,
		    "consecutive writers before the readers get their turn (ShiftLock's N)"),
	VB_OPT_CHOICE(struct sl_options, handover, "handover", SL_HANDOVERS, "relayed",
		      "whether a writer's release is counted before the successor is told, or, as "
		      "long as the count has not stood still for half a lease, with a later one"),
	VB_OPT_END};

#define TURN_MASK      (1u << SL_HANDOVER)
#define SUCCESSOR_MASK (1u << SL_SUCCESSOR)

/* ---- the entry, in one form or the other ---- */

static struct sl_change change_of(struct vb_u128 compare, struct vb_u128 compare_mask,
				  struct vb_u128 swap, struct vb_u128 swap_mask)
{
	return (struct sl_change){compare, compare_mask, swap, swap_mask};
}

/* *posted_ns: when the verb that made the change, or found that none is due, was posted; NULL where
 * it does not matter, which saves a look at the clock.  Until until_ns, where others' changes can come
 * in between. */
static int sl_mcas_until(struct vb_lock_client *me, struct vb_claim *c, struct vb_u128 compare,
			 struct vb_u128 compare_mask, struct vb_u128 swap, struct vb_u128 swap_mask,
			 struct vb_u128 *old, uint64_t *posted_ns, uint64_t until_ns)
{
	const struct sl_change change = change_of(compare, compare_mask, swap, swap_mask);
	uint64_t *word = &vb_claim_as(struct sl_claim, c)->word;
	int err = sl_change_once(me, c->entry, &change, word, old, posted_ns, until_ns);

	if (vb_likely(err == 0))
		return 0;
	return sl_change_on(me, c->entry, &change, word, old, posted_ns, until_ns, err);
}

static int sl_mcas(struct vb_lock_client *me, struct vb_claim *c, struct vb_u128 compare,
		   struct vb_u128 compare_mask, struct vb_u128 swap, struct vb_u128 swap_mask,
		   struct vb_u128 *old, uint64_t *posted_ns)
{
	return sl_mcas_until(me, c, compare, compare_mask, swap, swap_mask, old, posted_ns,
			     SL_TO_THE_END);
}

/* Of a release, which is asked for until it is known. */
static int sl_mcas_back(struct vb_lock_client *me, struct vb_claim *c, struct vb_u128 compare,
			struct vb_u128 compare_mask, struct vb_u128 swap, struct vb_u128 swap_mask,
			struct vb_u128 *old)
{
	const struct sl_change change = change_of(compare, compare_mask, swap, swap_mask);
	uint64_t *word = &vb_claim_as(struct sl_claim, c)->word;
	int err = sl_change_once(me, c->entry, &change, word, old, NULL, SL_TO_THE_END);

	return vb_likely(err == 0) ? 0 : sl_change_back_on(me, c->entry, &change, word, old, err);
}

/* What names us in the tail. */
static vb_peer self_name(const struct vb_lock_client *me)
{
	return vb_unlikely(sl_is_plain(me->space)) ? sl_plain_name(me) : me->ep->self;
}

static uint64_t rel_add(const struct vb_lock_space *space, uint64_t rel, uint64_t n)
{
	if (vb_unlikely(sl_is_plain(space)))
		return (rel & ~SL_COUNT_MASK) | ((rel + n) & ((1ull << SL_PLAIN_COUNT_BITS) - 1));
	return sl_rel_add(rel, n);
}

static uint64_t token(const struct vb_lock_space *space, uint64_t rel)
{
	return sl_is_plain(space) ? 0 : sl_rel_add(rel, 1);
}

/* ---- grants ---- */

/* The first look was the verb that put us into the queue. */
static void begin_wait(struct vb_lock_client *me, struct vb_claim *c, uint64_t rel,
		       uint64_t posted_ns, enum sl_stage stage)
{
	struct sl_claim *s = vb_claim_as(struct sl_claim, c);

	s->last_rel = rel;
	s->last_post_ns = s->older_post_ns = posted_ns;
	s->still_since_ns = vb_ep_now(me->ep);
	s->era_known = false;
	s->unheard = 0;
	s->stage = stage;
	vb_lock_mark_queued(me, c);
}

static void joined(struct vb_claim *c, const struct vb_u128 *e)
{
	struct sl_claim *s = vb_claim_as(struct sl_claim, c);

	s->gen = sl_gen(e->hi);
	s->epoch = !!(e->lo & SL_EPOCH);
	s->writers = 0;
	s->uncounted = 0;
	s->behind = false;
	s->successor = VB_PEER_NONE;
}

/* Valid from when RelCnt became `rel` at the earliest, as far as we can tell. */
static int granted(struct vb_lock_client *me, struct vb_claim *c, uint64_t rel)
{
	struct sl_claim *s = vb_claim_as(struct sl_claim, c);
	const uint64_t lease = me->space->lease_ns;
	uint64_t moved = s->last_rel == rel ? s->older_post_ns : s->last_post_ns;
	uint64_t until = vb_ep_now(me->ep) + lease;

	s->rel = rel;
	s->uncounted = 0;
	s->anchor_ns = moved;
	if (until > moved + 2 * lease) {
		VB_SOMETIMES(200, "shiftlock: a turn that was noticed late");
		until = moved + 2 * lease;
	}
	return vb_lock_grant(c, until, token(me->space, rel));
}

/* By the first verb: the time counts from its posting, and the clock is not read again. */
static int granted_at_once(struct vb_lock_client *me, struct vb_claim *c, const struct vb_u128 *e,
			   uint64_t posted_ns)
{
	struct sl_claim *s = vb_claim_as(struct sl_claim, c);

	s->rel = e->hi;
	s->anchor_ns = posted_ns;
	return vb_lock_grant(c, posted_ns + me->space->lease_ns, token(me->space, e->hi));
}

/*
 * By a handover that is not counted.  Within a lease of since_ns the lock is ours for a lease.  Later
 * somebody may soon have it recovered, or has: we count first, which fails then.
 */
static int granted_uncounted(struct vb_lock_client *me, struct vb_claim *c,
			     const struct sl_pass *pass)
{
	struct sl_claim *s = vb_claim_as(struct sl_claim, c);
	const uint64_t now = vb_ep_now(me->ep), lease = me->space->lease_ns;

	s->uncounted = (uint16_t)pass->uncounted;
	if (now > pass->since_ns + lease) {
		VB_SOMETIMES(200, "shiftlock: an uncounted handover that is too old");
		s->behind = true;
		s->stage = SL_AWAIT_COUNT;
		return -EAGAIN;
	}
	VB_SOMETIMES(200, "shiftlock: an uncounted handover");
	s->anchor_ns = pass->since_ns;
	return vb_lock_grant(c, now + lease, token(me->space, pass->rel));
}

/* ---- waiting ---- */

static uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* The turn, and not one of before a recovery: his who sent that was taken from him. */
static bool is_of_now(const struct vb_lock_client *me, const struct sl_claim *s,
		      const struct vb_msg *msg, const struct sl_pass *pass)
{
	const struct sl_options *o = me->space->options;

	if (pass->since_ns != 0 && sl_is_gone(me->space, pass->since_ns, vb_ep_now(me->ep)))
		return false;
	return msg->imm == sl_stamp(me->space, s->gen) || vb_unlikely(o->any_turn);
}

/* Takes the successor's message, if one of this generation has come. */
static bool hear_successor(struct vb_lock_client *me, struct vb_claim *c)
{
	struct sl_claim *s = vb_claim_as(struct sl_claim, c);
	struct sl_told told;
	struct vb_msg msg;

	if (vb_box_take(&c->box, SL_SUCCESSOR, &msg) != 0 || msg.imm != sl_stamp(me->space, s->gen))
		return false;
	memcpy(&told, msg.data, sizeof(told));
	s->successor = msg.from;
	s->told_ns = told.told_ns;
	s->heard_ns = vb_ep_now(me->ep);
	return true;
}

/* 0 and *pass: a turn of now.  -EAGAIN: another message. */
static int take_turn(struct vb_lock_client *me, struct vb_claim *c, struct vb_msg *msg,
		     struct sl_pass *pass)
{
	/* The sooner it is heard, the more of our time is left for the successor. */
	if (vb_box_take(&c->box, SL_HANDOVER, msg) != 0) {
		(void)hear_successor(me, c);
		return -EAGAIN;
	}
	memcpy(pass, msg->data, sizeof(*pass));
	if (is_of_now(me, vb_claim_as(struct sl_claim, c), msg, pass))
		return 0;
	VB_SOMETIMES(200, "shiftlock: a handover across a recovery");
	return -EAGAIN;
}

/* Waits for the predecessor's message, and looks at the entry every half lease. */
static int await_message(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	struct sl_claim *s = vb_claim_as(struct sl_claim, c);
	uint64_t every_ns = me->space->lease_ns / 2, look_ns;
	unsigned refused = 0;
	struct sl_pass pass;
	struct vb_msg msg;
	struct vb_u128 e;

	if (sl_is_plain(me->space))
		every_ns = min_u64(every_ns, SL_PLAIN_LOOK_NS);
	vb_phase(me, VB_PHASE_WP);
	look_ns = vb_ep_now(me->ep) + every_ns;
	for (;;) {
		unsigned mask = TURN_MASK | (s->successor == VB_PEER_NONE ? SUCCESSOR_MASK : 0);
		int err = vb_box_wait(&me->mail, &c->box, mask, min_u64(until_ns, look_ns));

		if (err == 0 && take_turn(me, c, &msg, &pass) == 0)
			break;
		if (err == -ECANCELED || err == -VB_EPEERGONE)
			return err;
		if (err == 0)
			continue;
		if (vb_ep_now(me->ep) >= until_ns)
			return -ETIMEDOUT;
		err = sl_look(me, c, &e, &refused);
		if (err == 0)
			err = sl_suspect(me, c);
		if (err && err != -EAGAIN)
			return err;
		look_ns = vb_ep_now(me->ep) + every_ns;
	}
	s->epoch = pass.epoch;
	s->writers = pass.writers;
	s->rel = pass.rel;
	if (msg.tag == SL_HANDOVER)
		return pass.since_ns != 0 ? granted_uncounted(me, c, &pass)
					  : granted(me, c, pass.rel);
	VB_SOMETIMES(200, "shiftlock: a writer waits for readers let in before it");
	s->stage = SL_AWAIT_COUNT;
	return -EAGAIN;
}

/* RelCnt as it stands while s->rel is ours: nobody but us changes it then. */
static uint64_t counted(const struct vb_lock_space *space, const struct sl_claim *s)
{
	return rel_add(space, s->rel, 0 - (uint64_t)s->uncounted);
}

/* Counts what those before us have left to us.  The next look tells whether it was done. */
static int count_for_them(struct vb_lock_client *me, struct vb_claim *c)
{
	const struct sl_claim *s = vb_claim_as(struct sl_claim, c);
	const struct vb_u128 all = {.hi = UINT64_MAX};
	struct vb_u128 old;
	int err = sl_mcas(me, c, (struct vb_u128){.hi = counted(me->space, s)}, all,
			  (struct vb_u128){.hi = s->rel}, all, &old, NULL);

	return err == -VB_EUNKNOWN || err == -VB_EPEERGONE ? 0 : err;
}

/* Waits for earlier readers (RelCnt must reach s->rel), or for the epoch to flip. */
static int await_entry(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	struct sl_claim *s = vb_claim_as(struct sl_claim, c);
	unsigned refused = 0;
	struct vb_u128 e;

	vb_phase(me, s->stage == SL_AWAIT_COUNT ? VB_PHASE_WR : VB_PHASE_WW);
	for (;;) {
		int err = sl_look(me, c, &e, &refused);

		if (err == 0 && s->stage == SL_AWAIT_COUNT && e.hi == s->rel)
			return granted(me, c, s->rel);
		/* The flip came with a release, so RelCnt tells when it was. */
		if (err == 0 && s->stage == SL_AWAIT_EPOCH && !!(e.lo & SL_EPOCH) != s->epoch)
			return granted(me, c, e.hi);
		if (err == 0 && vb_unlikely(s->behind))
			err = count_for_them(me, c);
		if (err == 0)
			err = sl_suspect(me, c);
		if (err && err != -EAGAIN)
			return err;
		me->retries++;
		err = vb_poll_rest(me, until_ns);
		if (err)
			return err;
	}
}

/* 0; -ETIMEDOUT, -ECANCELED (still queued); -ESTALE (recovered: enqueue again); or an error. */
static int await_turn(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	struct sl_claim *s = vb_claim_as(struct sl_claim, c);
	int err = -EAGAIN;

	if (s->stage == SL_AWAIT_MESSAGE)
		err = await_message(me, c, until_ns);
	if (err == -EAGAIN)
		err = await_entry(me, c, until_ns);
	/* After any other error the place in the queue is left to the recovery. */
	if (err && err != -ETIMEDOUT && err != -ECANCELED)
		c->queued = false;
	/* Who is cut off will never be told that it is its turn. */
	return err == -VB_EPEERGONE && vb_ep_cut_off(me->ep) ? err
							     : vb_lock_unknown_if_refused(err);
}

/* ---- acquire ---- */

/* A message that is lost costs a recovery: it is counted.  One that is refused has not left, and who is to hear
 * it lives: there is no link to it yet, or not again. */
static void tell(struct vb_lock_client *me, vb_peer to, const struct vb_msg *msg)
{
	unsigned refused = 0;
	int err;

	while ((err = vb_send(me->ep, to, msg)) == -VB_EPEERGONE || err == -EAGAIN) {
		if (!vb_peer_alive(me->ep->fabric, to) ||
		    !vb_lock_ask_again(me, -VB_EPEERGONE, &refused))
			break;
		if (err == -EAGAIN)
			vb_lock_let_drain(me, refused - 1);
	}
	if (vb_unlikely(err != 0)) {
		me->untold++;
		vb_debug("lock at %#llx: a message to client %llx could not be sent (%s)",
			 (unsigned long long)msg->subject, (unsigned long long)to,
			 vb_strerror(err));
	}
}

static void tell_predecessor(struct vb_lock_client *me, struct vb_claim *c, vb_peer predecessor)
{
	struct sl_claim *s = vb_claim_as(struct sl_claim, c);
	/* begin_wait has just looked at the clock. */
	const struct sl_told told = {.told_ns = s->still_since_ns};
	struct vb_msg msg = {.subject = c->entry,
			     .tag = SL_SUCCESSOR,
			     .imm = sl_stamp(me->space, s->gen),
			     .len = sizeof(told)};

	/* Our own name: an earlier attempt of ours was enqueued and its answer lost.  Nobody will
	 * hand over from there; the recovery will clear it away. */
	if (predecessor == self_name(me)) {
		VB_SOMETIMES(200, "shiftlock: a client behind a claim of its own that it lost");
		return;
	}
	memcpy(msg.data, &told, sizeof(told));
	vb_phase(me, VB_PHASE_NP);
	/* A predecessor that cannot be found is not told: that is left to the recovery, too. */
	if (sl_is_plain(me->space) &&
	    (sl_names_find(me, predecessor, &predecessor) != 0 || predecessor == VB_PEER_NONE))
		return;
	tell(me, predecessor, &msg);
}

/* Nothing has happened if it gives up: -ETIMEDOUT, -ECANCELED. */
static int enqueue_writer(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	struct sl_claim *s = vb_claim_as(struct sl_claim, c);
	const struct vb_u128 none = {0, 0};
	uint64_t posted;
	struct vb_u128 e;
	int err;

	s->word = 0;
	err = sl_mcas_until(me, c, none, none, (struct vb_u128){.lo = self_name(me)},
			    (struct vb_u128){.lo = SL_TAIL_MASK}, &e, &posted, until_ns);

	if (err)
		return err;
	joined(c, &e);
	if (vb_likely(!(e.lo & (SL_TAIL_MASK | SL_RDR_MASK))))
		return granted_at_once(me, c, &e, posted);
	s->rel = rel_add(me->space, e.hi, sl_readers(e.lo));
	begin_wait(me, c, e.hi, posted, e.lo & SL_TAIL_MASK ? SL_AWAIT_MESSAGE : SL_AWAIT_COUNT);
	if (s->stage == SL_AWAIT_MESSAGE)
		tell_predecessor(me, c, e.lo & SL_TAIL_MASK);
	return -EAGAIN;
}

static int enqueue_reader(struct vb_lock_client *me, struct vb_claim *c)
{
	const struct vb_u128 one = {.lo = 1ull << SL_RDR_SHIFT};
	const struct vb_u128 bounds = {.lo = SL_BOUNDS_LO, .hi = SL_BOUNDS_HI};
	uint64_t posted;
	struct vb_u128 e;
	unsigned asks = 0;
	int err;

	do {
		posted = vb_ep_now_early(me->ep);
		err = sl_is_plain(me->space)
			      ? sl_plain_enter(me->space, me->ep, c->entry, &e)
			      : vb_mfaa128_before(me->ep, c->entry, one, bounds, VB_FOREVER, &e);
	} while (vb_unlikely(err == -VB_ETOOLATE) && ++asks < vb_lock_asks(me->space));
	if (err)
		return vb_lock_refusal(err);
	joined(c, &e);
	if (vb_likely(!(e.lo & SL_TAIL_MASK)))
		return granted_at_once(me, c, &e, posted);
	begin_wait(me, c, e.hi, posted, SL_AWAIT_EPOCH);
	return -EAGAIN;
}

int shiftlock_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	int err;

	do {
		vb_phase(me, VB_PHASE_IA);
		err = c->mode == VB_EXCLUSIVE ? enqueue_writer(me, c, until_ns)
					      : enqueue_reader(me, c);
		if (err == -EAGAIN)
			err = await_turn(me, c, until_ns);
	} while (err == -ESTALE && vb_poll_pause(me, until_ns) == 0);
	return err == -ESTALE ? -ETIMEDOUT : err;
}

int shiftlock_resume(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	return await_turn(me, c, until_ns);
}

static int try_writer(struct vb_lock_client *me, struct vb_claim *c)
{
	uint64_t posted;
	struct vb_u128 e;
	int err;

	vb_claim_as(struct sl_claim, c)->word = 0;
	err = sl_mcas(me, c, (struct vb_u128){0, 0},
		      (struct vb_u128){.lo = SL_TAIL_MASK | SL_RDR_MASK},
		      (struct vb_u128){.lo = self_name(me)}, (struct vb_u128){.lo = SL_TAIL_MASK},
		      &e, &posted);

	if (err)
		return err;
	if (e.lo & (SL_TAIL_MASK | SL_RDR_MASK))
		return -EAGAIN;
	joined(c, &e);
	return granted_at_once(me, c, &e, posted);
}

/* A reader must not register behind a writer, so it compares TailPtr; other readers may come in
 * between, a few times. */
#define TRY_READER_ROUNDS 4

static int try_reader(struct vb_lock_client *me, struct vb_claim *c)
{
	struct vb_u128 e, old;
	int err = sl_read(me, c, &e);

	for (int i = 0; err == 0 && i < TRY_READER_ROUNDS; i++) {
		uint64_t posted;

		if (e.lo & SL_TAIL_MASK)
			return -EAGAIN;
		err = sl_mcas(me, c, e, (struct vb_u128){.lo = SL_TAIL_MASK | SL_RDR_MASK},
			      (struct vb_u128){.lo = e.lo + (1ull << SL_RDR_SHIFT)},
			      (struct vb_u128){.lo = SL_RDR_MASK}, &old, &posted);
		if (err == 0 && !((old.lo ^ e.lo) & (SL_TAIL_MASK | SL_RDR_MASK))) {
			joined(c, &old);
			return granted_at_once(me, c, &old, posted);
		}
		e = old;
		me->retries++;
	}
	return err ? err : -EAGAIN;
}

int shiftlock_try(struct vb_lock_client *me, struct vb_claim *c)
{
	return c->mode == VB_EXCLUSIVE ? try_writer(me, c) : try_reader(me, c);
}

/* ---- release ---- */

static bool find_successor(struct vb_lock_client *me, struct vb_claim *c)
{
	vb_mail_sort(&me->mail);
	(void)hear_successor(me, c);
	return vb_claim_as(struct sl_claim, c)->successor != VB_PEER_NONE;
}

/*
 * since_ns, on our clock, on the successor's: it told us of itself before we heard it, so what was so long before
 * or after we heard it was not so long before, or longer after, it told.  But its clock may run faster or slower.
 * 0: nothing that its clock can show.
 */
static uint64_t relayed(const struct vb_lock_space *space, const struct sl_claim *s)
{
	const bool before = s->anchor_ns < s->heard_ns;
	const uint64_t span = before ? s->heard_ns - s->anchor_ns : s->anchor_ns - s->heard_ns;
	const uint64_t doubt = vb_lock_stretch(space, span) - span;
	const uint64_t most = before ? s->told_ns : s->told_ns + span;
	const uint64_t less = before ? span + doubt : doubt;

	return most > less ? most - less : 0;
}

/* Whether the successor can be told before our release is counted, and what. */
static bool passes_uncounted(struct vb_lock_client *me, struct vb_claim *c, struct sl_pass *pass)
{
	const struct sl_options *o = me->space->options;
	const struct sl_claim *s = vb_claim_as(struct sl_claim, c);

	if (o->handover != SL_RELAYED)
		return false;
	if (s->uncounted >= SL_UNCOUNTED_MAX ||
	    vb_ep_now(me->ep) - s->anchor_ns > me->space->lease_ns / 2 ||
	    VB_CHANCE(200, "shiftlock: counts although there is no need"))
		return false;
	pass->uncounted = s->uncounted + 1u;
	pass->since_ns = relayed(me->space, s);
	return pass->since_ns != 0;
}

/* Counts our release and those left to us, and flips the epoch if `flip`.  0, and *lo was behind the count;
 * -VB_ELOST; -VB_EUNKNOWN. */
static int count_release(struct vb_lock_client *me, struct vb_claim *c, bool flip, uint64_t *lo)
{
	struct sl_claim *s = vb_claim_as(struct sl_claim, c);
	const uint64_t was = counted(me->space, s);
	struct vb_u128 old;
	int err;

	vb_phase(me, VB_PHASE_IA);
	err = sl_mcas_back(me, c, (struct vb_u128){.hi = was}, (struct vb_u128){.hi = UINT64_MAX},
			   (struct vb_u128){.lo = s->epoch ^ flip ? SL_EPOCH : 0,
					    .hi = rel_add(me->space, s->rel, 1)},
			   (struct vb_u128){.lo = SL_EPOCH, .hi = UINT64_MAX}, &old);
	if (err)
		return err;
	if (old.hi != was) {
		VB_SOMETIMES(200, "shiftlock: a handover came too late");
		return -VB_ELOST;
	}
	VB_SOMETIMES_IF(flip, 200, "shiftlock: the epoch flips");
	*lo = old.lo;
	return 0;
}

/* Tells the successor, of its turn or, if the readers are due, that they come first. */
static int hand_over(struct vb_lock_client *me, struct vb_claim *c)
{
	const struct sl_options *o = me->space->options;
	struct sl_claim *s = vb_claim_as(struct sl_claim, c);
	const bool flip = s->writers + 1ull >= o->max_writers;
	struct sl_pass pass = {.rel = rel_add(me->space, s->rel, 1), .epoch = s->epoch ^ flip};
	struct vb_msg msg = {
		.subject = c->entry,
		.tag = flip ? SL_MODE : SL_HANDOVER,
		.imm = sl_stamp(me->space, s->gen),
		.len = sizeof(pass),
	};
	uint64_t lo;

	if (flip || !passes_uncounted(me, c, &pass)) {
		int err = count_release(me, c, flip, &lo);

		if (err)
			return err;
	}
	/* On a flip all readers registered by now read first; the successor waits for them all. */
	if (flip)
		pass.rel = rel_add(me->space, pass.rel, sl_readers(lo));
	else
		pass.writers = s->writers + 1u;
	memcpy(msg.data, &pass, sizeof(pass));
	if (vb_unlikely(flip && o->mute_mode))
		return 0;
	vb_phase(me, VB_PHASE_NS);
	tell(me, s->successor, &msg);
	return 0;
}

static inline int release_writer(struct vb_lock_client *me, struct vb_claim *c, bool now)
{
	struct sl_claim *s = vb_claim_as(struct sl_claim, c);
	const struct vb_u128 mask = {.lo = SL_TAIL_MASK, .hi = UINT64_MAX};
	const uint64_t was = counted(me->space, s);
	struct vb_u128 old;
	int err;

	/* What has begun at once, and goes on, has looked. */
	if ((s->successor != VB_PEER_NONE ||
	     !VB_CHANCE(200, "shiftlock: does not look for its successor first")) &&
	    find_successor(me, c))
		return now && !me->at_once ? -EINPROGRESS : hand_over(me, c);
	err = sl_mcas_back(me, c, (struct vb_u128){.lo = self_name(me), .hi = was}, mask,
			   (struct vb_u128){.lo = s->epoch ? 0 : SL_EPOCH,
					    .hi = rel_add(me->space, s->rel, 1)},
			   (struct vb_u128){.lo = SL_TAIL_MASK | SL_EPOCH, .hi = UINT64_MAX}, &old);
	if (err)
		return err;
	if (old.hi != was) {
		VB_SOMETIMES(200, "shiftlock: a writer's release came too late");
		return -VB_ELOST;
	}
	if ((old.lo & SL_TAIL_MASK) == self_name(me))
		return 0;
	if (now)
		return -EINPROGRESS;
	/* A successor has swapped behind us, and its message is under way.  If none comes within a
	 * lease, it has died in between: the queue is broken here, and the recovery mends it. */
	vb_phase(me, VB_PHASE_NS);
	do
		err = vb_box_wait(&me->mail, &c->box, SUCCESSOR_MASK,
				  vb_ep_now(me->ep) + me->space->lease_ns);
	while (err == 0 && !find_successor(me, c));
	if (err) {
		VB_SOMETIMES(200, "shiftlock: a successor that never told its name");
		vb_debug("lock %llu: a successor died before it told its name",
			 (unsigned long long)c->lock);
		return 0;
	}
	return hand_over(me, c);
}

/* The grant is over, but perhaps nobody has noticed: the generation tells. */
static int release_reader_late(struct vb_lock_client *me, struct vb_claim *c)
{
	struct sl_claim *s = vb_claim_as(struct sl_claim, c);
	const struct vb_u128 mask = {.lo = SL_RDR_MASK, .hi = UINT64_MAX};
	unsigned refused = 0;
	struct vb_u128 e, old;
	int err;

	/* A look that is lost has done nothing, either. */
	do
		err = sl_read(me, c, &e);
	while (vb_lock_ask_again(me, err == -VB_EUNKNOWN ? -VB_EPEERGONE : err, &refused));
	while (err == 0) {
		if (sl_gen(e.hi) != s->gen) {
			VB_SOMETIMES(200, "shiftlock: a reader's release came too late");
			return -VB_ELOST;
		}
		err = sl_mcas_back(me, c, e, mask,
				   (struct vb_u128){.lo = e.lo - (1ull << SL_RDR_SHIFT),
						    .hi = rel_add(me->space, e.hi, 1)},
				   mask, &old);
		if (err == 0 && !((old.lo ^ e.lo) & mask.lo) && old.hi == e.hi)
			return 0;
		/* Each failure is another reader's success. */
		VB_SOMETIMES(200, "shiftlock: two late releases at a time");
		e = old;
		me->retries++;
	}
	return vb_lock_unknown_if_refused(err);
}

static int leave(struct vb_lock_client *me, struct vb_claim *c, struct vb_u128 *old)
{
	const struct vb_u128 minus_one = {.lo = SL_RDR_MASK, .hi = 1};
	const struct vb_u128 bounds = {.lo = SL_BOUNDS_LO, .hi = SL_BOUNDS_HI};

	return sl_is_plain(me->space)
		       ? sl_plain_leave(me->space, me->ep, c->entry, c->valid_until_ns, old)
		       : vb_mfaa128_before(me->ep, c->entry, minus_one, bounds, c->valid_until_ns,
					   old);
}

static inline int release_reader(struct vb_lock_client *me, struct vb_claim *c)
{
	struct sl_claim *s = vb_claim_as(struct sl_claim, c);
	unsigned refused = 0;
	struct vb_u128 old;
	int err;

	do
		err = leave(me, c, &old);
	while (vb_lock_ask_again(me, err, &refused));
	/* Its time is over, or its node has stood still: that happens, if the generation is ours. */
	if (err == -VB_ETOOLATE)
		return release_reader_late(me, c);
	if (err)
		return vb_lock_unknown_if_refused(err);
	if (vb_unlikely(sl_gen(old.hi) != s->gen))
		return vb_fail(
			-VB_ELOST,
			"a release of lock %llu took effect after its lease: this machine stood "
			"still between the clock and the verb; waiters of the lock may have to "
			"wait for a recovery",
			(unsigned long long)c->lock);
	return 0;
}

static inline int release(struct vb_lock_client *me, struct vb_claim *c, bool now)
{
	if (vb_unlikely(sl_is_plain(me->space)) &&
	    sl_is_gone(me->space, c->valid_until_ns, vb_ep_now(me->ep)))
		return -VB_ELOST;
	return c->mode == VB_EXCLUSIVE ? release_writer(me, c, now) : release_reader(me, c);
}

int shiftlock_release(struct vb_lock_client *me, struct vb_claim *c)
{
	return release(me, c, false);
}

int shiftlock_release_now(struct vb_lock_client *me, struct vb_claim *c)
{
	return release(me, c, true);
}

const struct vb_lock_ops vb_lock_shiftlock = {
	.name = "shiftlock",
	.summary = "clients hand the lock to each other; readers share; the server recovers",
	.source = "ShiftLock, FAST 2025, algorithms 2 and 3, section 3.6",
	SL_LOCK,
};
