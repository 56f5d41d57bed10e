/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Retry-on-Fail: CAS for exclusive, FAA for shared (DSLR, figure 1 and section 6, system 3).
 *
 *   lock word, 64 bits          63          52 51             32 31                    0
 *                              +--------------+-----------------+----------------------+
 *                              | node + 1     | client          | readers              |
 *                              +--------------+-----------------+----------------------+
 *                               0 = no exclusive owner           shared holders, and readers
 *                                                                that are just backing out
 *
 *   exclusive  acquire    uncontended 1 CAS        contended 1 CAS per attempt
 *              release    1 FAA
 *   shared     acquire    uncontended 1 FAA        contended + 1 FAA back, 1 READ per look
 *              release    1 FAA
 *   holder     1 READ
 *
 *   Promises   shared and exclusive; no order.  Readers starve writers: the exclusive CAS succeeds
 *              on an all-zero word only (DSLR, appendix A.1).  The death of a holder is never
 *              mended.
 *
 * Departs from the paper (why: doc/locks/retry-on-fail.md):
 *   - the owner's name has 40 bits and the figure gives it 32: 12 for the node, 20 for the client;
 *   - the exclusive release is an FAA that subtracts the owner;
 *   - a reader that found an owner looks with READs before it counts itself in again;
 *   - a lost answer to an exclusive verb is looked into, one to a reader's FAA cannot be.
 */
#define VB_LOG_ROOM "lock"

#include <errno.h>
#include <inttypes.h>

#include "base/log.h"
#include "base/sometimes.h"
#include "lock/lock.h"

#define ROF_OWNER_SHIFT 32
#define ROF_CLIENT_BITS 20
#define ROF_NODES_MAX   4095
#define ROF_READERS     0xffffffffull

_Static_assert(ROF_CLIENT_BITS + 12 == 64 - ROF_OWNER_SHIFT, "the owner fills the upper half");

static inline uint64_t rof_owner(const struct vb_lock_client *me)
{
	uint64_t node = (uint64_t)vb_peer_node(me->ep->self) + 1;
	uint64_t client = vb_peer_client(me->ep->self) & ((1u << ROF_CLIENT_BITS) - 1);

	return (node << ROF_CLIENT_BITS | client) << ROF_OWNER_SHIFT;
}

static inline bool rof_owned(uint64_t word)
{
	return word >> ROF_OWNER_SHIFT != 0;
}

static int rof_open(struct vb_lock_space *space)
{
	if (space->fabric->nodes <= ROF_NODES_MAX)
		return 0;
	return vb_fail(-EINVAL,
		       "retry-on-fail: the owner field of the lock word names at most %u nodes, "
		       "the fabric has %u; take another lock or fewer nodes",
		       ROF_NODES_MAX, space->fabric->nodes);
}

/* 0 granted, -EAGAIN somebody has it. */
static int rof_try_exclusive(struct vb_lock_client *me, struct vb_claim *c)
{
	uint64_t self = rof_owner(me), seen;
	bool unsure = false;
	int err = vb_lock_change(me, c->entry, 0, self, &seen, &unsure);

	if (vb_unlikely(err != 0))
		return err;
	if (seen == 0)
		return vb_lock_grant(c, VB_FOREVER_NS, 0);
	if ((seen & ~ROF_READERS) != self)
		return -EAGAIN;
	VB_SOMETIMES(200, "retry-on-fail: a claim whose lost answer was yes");
	return vb_lock_grant(c, VB_FOREVER_NS, 0);
}

static int rof_try_shared(struct vb_lock_client *me, struct vb_claim *c)
{
	uint64_t seen;
	int err = vb_lock_faa(me, c->entry, 1, &seen);

	if (vb_unlikely(err != 0))
		return err;
	vb_assert((seen & ROF_READERS) != ROF_READERS);
	if (!rof_owned(seen))
		return vb_lock_grant(c, VB_FOREVER_NS, 0);
	err = vb_lock_add(me, c->entry, (uint64_t)-1, &seen);
	VB_SOMETIMES_IF(err != 0, 200, "retry-on-fail: a reader that may still be counted");
	if (vb_unlikely(err != 0))
		return vb_fail(-VB_EUNKNOWN,
			       "lock %" PRIu64 ": a reader could not count itself out again (%s); "
			       "exclusive requests may wait for ever",
			       c->lock, vb_strerror(err));
	return -EAGAIN;
}

static int rof_try(struct vb_lock_client *me, struct vb_claim *c)
{
	return c->mode == VB_SHARED ? rof_try_shared(me, c) : rof_try_exclusive(me, c);
}

/* Looks until no exclusive owner is to be seen. */
static int rof_look(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	uint64_t word;
	int err;

	for (;;) {
		me->retries++;
		err = vb_read64(me->ep, c->entry, &word);
		if (err == 0 && !rof_owned(word))
			return 0;
		/* A lost READ has changed nothing: look again. */
		if (err && err != -VB_EUNKNOWN)
			return err;
		err = vb_poll_rest(me, until_ns);
		if (err)
			return err;
	}
}

static int rof_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	int err;

	for (;;) {
		err = rof_try(me, c);
		if (err != -EAGAIN)
			return err;
		vb_phase(me, VB_PHASE_RT);
		/* At once: nobody hands the lock on, and who rests does not get it from who does not. */
		err = vb_poll_pause(me, until_ns);
		if (err == 0 && c->mode == VB_SHARED)
			err = rof_look(me, c, until_ns);
		if (err)
			return err;
		me->retries++;
	}
}

/* Takes our name out of the word, which says behind a lost answer whether that has happened.  0 and *seen: the word
 * before, as far as that is known. */
static int rof_take_name_out(struct vb_lock_client *me, struct vb_claim *c, uint64_t self,
			     uint64_t *seen)
{
	int err = vb_faa64_before(me->ep, c->entry, 0 - self, VB_FOREVER, seen);
	bool unsure = false;

	for (unsigned asks = 1; vb_unlikely(err != 0) && asks < vb_lock_asks(me->space); asks++) {
		unsure |= err == -VB_EUNKNOWN;
		/* After that our name is gone or still there, and no subtraction is under way. */
		vb_lock_let_land(me);
		me->retries++;
		err = unsure ? vb_read64(me->ep, c->entry, seen) : 0;
		if (unsure && err == 0 && (*seen & ~ROF_READERS) != self) {
			VB_SOMETIMES(200, "retry-on-fail: a release whose lost answer was yes");
			*seen = self;
			return 0;
		}
		VB_SOMETIMES_IF(unsure && err == 0, 200,
				"retry-on-fail: a release whose lost answer was no");
		if (err == 0)
			err = vb_faa64_before(me->ep, c->entry, 0 - self, VB_FOREVER, seen);
	}
	return vb_lock_unknown_if_refused(vb_lock_refusal(err));
}

static int rof_release(struct vb_lock_client *me, struct vb_claim *c)
{
	bool shared = c->mode == VB_SHARED;
	uint64_t self = rof_owner(me), seen;
	int err = shared ? vb_lock_add(me, c->entry, (uint64_t)-1, &seen)
			 : rof_take_name_out(me, c, self, &seen);

	if (err)
		return err;
	if (shared ? (seen & ROF_READERS) != 0 : (seen & ~ROF_READERS) == self)
		return 0;
	return vb_fail(-VB_ELOST,
		       "lock %" PRIu64 ": the word was %016" PRIx64 " when a holder gave it back; "
		       "somebody else wrote to the lock word",
		       c->lock, seen);
}

/* The lower bits of the owner's number are not its name, which one client may have had after another. */
static int rof_holder(struct vb_lock_client *me, uint64_t lock, struct vb_holder *out)
{
	uint64_t word;
	int err = vb_read64(me->ep, vb_lock_entry(me->space, lock), &word);

	if (err)
		return err;
	if (rof_owned(word))
		*out = (struct vb_holder){
			.held = true,
			.mode = VB_EXCLUSIVE,
			.node = (uint16_t)((word >> (ROF_OWNER_SHIFT + ROF_CLIENT_BITS)) - 1)};
	else if (word != 0)
		*out = (struct vb_holder){
			.held = true, .mode = VB_SHARED, .readers = (uint32_t)(word & ROF_READERS)};
	return 0;
}

const struct vb_lock_ops vb_lock_retry_on_fail = {
	.name = "retry-on-fail",
	.summary = "CAS for exclusive, FAA for shared, asks again at once",
	.source = "DSLR, figure 1 and section 6 (3)",
	.caps = VB_LOCK_SHARED | VB_LOCK_EXCLUSIVE,
	.entry_bytes = 8,
	.verbs_uncontended = "X: 1 CAS + 1 FAA, S: 1 FAA + 1 FAA",
	.verbs_contended = "X: 1 CAS per attempt + 1 FAA, S: 2 FAA per attempt, READs, + 1 FAA",
	.open = rof_open,
	.acquire = rof_acquire,
	.try_acquire = rof_try,
	.release = rof_release,
	.release_now = rof_release,
	.holder = rof_holder,
};
