/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages: one bounded ring per endpoint, any number of senders in any number of processes, one
 * receiver.  Any of them may be killed at any instruction.
 *
 * Positions count up for ever; position p lives in slot p mod R during lap p div R.  A slot's state
 * is (lap, phase, sender) in one word:
 *
 *	sender     FREE(l) -> WRITING(l, me)      compare and swap: the place is mine
 *	           WRITING(l, me) -> FULL(l, me)  release store: the message is there
 *	           WRITING(l, me) -> VOID(l, me)  the receiver turned out to be another one
 *	receiver   FULL(l, s), VOID(l, s) -> FREE(l + 1), then head + 1
 *	           WRITING(l, s) -> FREE(l + 1)   if s is dead
 *
 * `tail` is only a hint: it never runs ahead of the first free place, and whoever finds it behind
 * helps it along, so a sender that dies between reserving and moving it stops nobody.  `head` is
 * written after the slot is freed; a receiver that died in between left a head that the next owner
 * moves on (the slot shows a later lap than the head says).
 *
 * A sender that dies while WRITING holds up what comes behind it until the receiver finds that it
 * is dead: receivers look for that at most once in STUCK_CHECK_NS, and never sleep longer than
 * that while something is stuck (wait.c).  One that is merely stopped holds it up as long.
 *
 * A full ring: the sender gives way to the receiver's thread for up to FULL_WAIT_NS; then the
 * message is not sent and the verb's status is -EAGAIN (-VB_EPEERGONE if the receiver is found
 * dead).  If the receiver belongs to this very thread, waiting would be for nothing, and -EAGAIN
 * comes at once.  Who has waited in vain has done so for all endpoints of its thread: until the receiver has
 * taken something out, the others are told at once.  Otherwise each of a thousand on a host would wait a
 * millisecond, one after the other, in front of who gives back what they all want, and keep their core from
 * the receiver.
 *
 * The wrong receiver: an endpoint that closes may be opened by somebody else while a sender is on
 * its way.  The order is: (new owner) word := free; drain the ring; word := open, with a new
 * incarnation.  (sender) read word; reserve; read word again.  If the second reading still shows
 * the old incarnation, the reservation came before the drain, which then finds it WRITING and
 * refuses this endpoint.  Otherwise the sender makes it VOID without having written anything.  Each of the
 * two writes one word and then reads the other's: all four are sequentially consistent, the drain's look
 * at the slots, too.
 *
 * Nothing else here needs more than acquire and release.  A message is written between the CAS that took
 * the place and the release that makes it FULL, read behind the acquire that found it so, and the place is
 * free by a release again, behind the reading.  `head` and `tail` order nothing: of a tail that is behind,
 * or a head, the slots say so.
 */
#define VB_LOG_ROOM "shm"
#include <inttypes.h>
#include <sched.h>

#include "base/log.h"
#include "fabric/shm/inner.h"

#define STUCK_CHECK_NS 1000000ull
#define FULL_WAIT_NS   1000000ull
#define RESERVE_TRIES  (1u << 16) /* each lost race is another sender's success */

#define PEER_BITS  40
#define PHASE_BITS 2
#define LAP_SHIFT  (PEER_BITS + PHASE_BITS)
#define LAP_MASK   ((1ull << (64 - LAP_SHIFT)) - 1)

static uint64_t make_state(uint64_t lap, enum shm_phase phase, vb_peer peer)
{
	return lap << LAP_SHIFT | (uint64_t)phase << PEER_BITS | peer;
}

static enum shm_phase phase_of(uint64_t state)
{
	return (enum shm_phase)(state >> PEER_BITS & 3);
}

static vb_peer peer_of(uint64_t state)
{
	return state & ((1ull << PEER_BITS) - 1);
}

/* How many laps the slot is ahead of position pos, in lap arithmetic: -1, 0, 1, ... */
static int64_t laps_ahead(uint64_t state, uint64_t pos, unsigned ring_bits)
{
	uint64_t d = ((state >> LAP_SHIFT) - (pos >> ring_bits)) & LAP_MASK;

	return d > LAP_MASK / 2 ? (int64_t)d - (int64_t)LAP_MASK - 1 : (int64_t)d;
}

static struct shm_slot *slot_at(struct shm_slot *ring, uint64_t pos, unsigned ring_bits)
{
	return &ring[pos & ((1ull << ring_bits) - 1)];
}

/* ---- sending ---- */

static void help_tail(struct shm_endpoint *to, uint64_t pos)
{
	__atomic_compare_exchange_n(&to->tail, &pos, pos + 1, false, __ATOMIC_RELAXED,
				    __ATOMIC_RELAXED);
}

/* 0, -EAGAIN when full. */
static int reserve_once(struct shm_fabric *f, struct shm_endpoint *to, struct shm_slot *ring,
			vb_peer self, struct shm_place *out, uint64_t *at)
{
	unsigned bits = f->h->ring_bits;

	for (unsigned i = 0; i < RESERVE_TRIES; i++) {
		uint64_t pos = __atomic_load_n(&to->tail, __ATOMIC_RELAXED);
		struct shm_slot *s = slot_at(ring, pos, bits);
		uint64_t state = __atomic_load_n(&s->state, __ATOMIC_ACQUIRE);
		int64_t ahead = laps_ahead(state, pos, bits);
		uint64_t mine = make_state(state >> LAP_SHIFT, SHM_SLOT_WRITING, self);

		*at = pos;
		if (ahead < 0)
			return -EAGAIN;
		if (ahead > 0 || phase_of(state) != SHM_SLOT_FREE) {
			help_tail(to, pos);
			continue;
		}
		if (__atomic_compare_exchange_n(&s->state, &state, mine, false, __ATOMIC_SEQ_CST,
						__ATOMIC_RELAXED)) {
			help_tail(to, pos);
			out->slot = s;
			out->state = mine;
			return 0;
		}
	}
	return -EAGAIN;
}

static bool owner_gone(struct shm_endpoint *to, uint64_t word)
{
	if (shm_process_alive(__atomic_load_n(&to->owner, __ATOMIC_RELAXED)))
		return false;
	shm_endpoint_bury(to, word);
	return true;
}

static int fail_full(struct shm_link *l, vb_peer to)
{
	if ((l->unsent & (l->unsent + 1)) == 0) /* the 1st, 2nd, 4th, ... */
		vb_warn("a message to %" PRIx64 " was not sent, %" PRIu64
			" of this thread by now: the receiver's ring of %u is full (option ring; "
			"or let fewer send at a time)",
			to, l->unsent + 1, 1u << l->fabric->h->ring_bits);
	l->unsent++;
	return -EAGAIN;
}

/* Has another endpoint of this thread waited, and nothing was taken out since? */
static bool is_in_vain(const struct shm_full *full, const struct shm_endpoint *to, uint64_t word)
{
	return full->to == to && full->word == word &&
	       full->head == __atomic_load_n(&to->head, __ATOMIC_RELAXED);
}

/* Who is refused at once asks seldom whether the receiver is dead: that is a system call. */
static bool look_if_gone(struct shm_full *full, struct shm_endpoint *to, uint64_t word)
{
	uint64_t now = vb_clock_ns();

	if (now - full->at_ns < FULL_WAIT_NS)
		return false;
	full->at_ns = now;
	return owner_gone(to, word);
}

/* Waits for the receiver to take something out; see the top of the file. */
static int reserve_full(struct shm_ep *e, vb_peer peer, struct shm_endpoint *to, uint64_t word,
			struct shm_slot *ring, struct shm_place *out)
{
	struct shm_link *l = e->link;
	struct shm_full *full = &l->full[out->to % SHM_FULL_KEPT];
	uint64_t until, at;

	if (is_in_vain(full, to, word))
		return look_if_gone(full, to, word) ? -VB_EPEERGONE : fail_full(l, peer);
	if (owner_gone(to, word))
		return -VB_EPEERGONE;
	if (out->worker == l->worker)
		return fail_full(l, peer);
	shm_ring_bell(l->fabric, out->worker);
	until = vb_clock_ns() + FULL_WAIT_NS;
	do {
		sched_yield();
		if (__atomic_load_n(&to->word, __ATOMIC_SEQ_CST) != word)
			return -VB_EPEERGONE;
		if (reserve_once(l->fabric, to, ring, e->ep.self, out, &at) == 0)
			return 0;
	} while (vb_clock_ns() < until);
	if (owner_gone(to, word))
		return -VB_EPEERGONE;
	*full = (struct shm_full){
		.to = to,
		.word = word,
		.head = __atomic_load_n(&to->head, __ATOMIC_RELAXED),
		.at_ns = vb_clock_ns(),
	};
	return fail_full(l, peer);
}

/* Once in half a ring of messages: if nobody takes them out, is he alive?  This only tells sooner what
 * a full ring tells, too (reserve_full). */
static bool backlog_of_dead(struct shm_endpoint *to, uint64_t word, uint64_t pos,
			    unsigned ring_bits)
{
	uint64_t half = 1ull << ring_bits >> 1;

	if ((pos & (half - 1)) != 0)
		return false;
	return pos - __atomic_load_n(&to->head, __ATOMIC_RELAXED) >= half && owner_gone(to, word);
}

static void finish(const struct shm_place *p, enum shm_phase phase)
{
	uint64_t state = make_state(p->state >> LAP_SHIFT, phase, peer_of(p->state));

	__atomic_store_n(&p->slot->state, state, __ATOMIC_RELEASE);
}

int shm_ring_reserve(struct shm_ep *e, vb_peer peer, struct shm_place *out)
{
	struct shm_fabric *f = shm_of(e->ep.fabric);
	uint32_t slot;
	uint64_t word = shm_peer_word(f, peer, &slot), pos;
	struct shm_endpoint *to = shm_endpoint_find(f, peer, &slot);
	struct shm_slot *ring = shm_ring(f, slot);
	int err;

	if (to == NULL)
		return -VB_EPEERGONE;
	out->worker = __atomic_load_n(&to->worker, __ATOMIC_RELAXED);
	out->mail = __atomic_load_n(&to->mail, __ATOMIC_RELAXED) != 0;
	out->to = slot;
	err = reserve_once(f, to, ring, e->ep.self, out, &pos);
	if (err == -EAGAIN)
		err = reserve_full(e, peer, to, word, ring, out);
	if (err != 0)
		return err;
	if (__atomic_load_n(&to->word, __ATOMIC_SEQ_CST) != word ||
	    backlog_of_dead(to, word, pos, f->h->ring_bits)) {
		finish(out, SHM_SLOT_VOID);
		return -VB_EPEERGONE;
	}
	return 0;
}

void shm_ring_publish(struct shm_ep *e, const struct shm_place *p, const struct vb_msg *m)
{
	memcpy(p->slot->body, (const uint8_t *)m + sizeof(m->from), SHM_MSG_BODY);
	finish(p, SHM_SLOT_FULL);
	if (vb_unlikely(p->mail))
		shm_mail_note(shm_of(e->ep.fabric), p->to);
	shm_ring_bell(shm_of(e->ep.fabric), p->worker);
}

/* ---- receiving ---- */

static void free_slot(struct shm_endpoint *me, struct shm_slot *s, uint64_t state)
{
	uint64_t lap = (state >> LAP_SHIFT) + 1;

	__atomic_store_n(&s->state, lap << LAP_SHIFT, __ATOMIC_RELEASE);
	__atomic_store_n(&me->head, me->head + 1, __ATOMIC_RELAXED);
}

/* Rarely: whether the sender that holds the head of the ring is dead. */
static bool look_at_sender(struct shm_ep *e, uint64_t state)
{
	uint64_t now = vb_clock_ns();

	if (now - e->looked_ns < STUCK_CHECK_NS)
		return false;
	e->looked_ns = now;
	return shm_sender_dead(shm_of(e->ep.fabric), peer_of(state));
}

int shm_recv(struct vb_ep *ep, struct vb_msg *out)
{
	struct shm_ep *e = (struct shm_ep *)ep;
	unsigned bits = shm_of(ep->fabric)->h->ring_bits;

	for (uint64_t i = 0; i < 1ull << bits; i++) {
		struct shm_slot *s = slot_at(e->ring, e->shared->head, bits);
		uint64_t state = __atomic_load_n(&s->state, __ATOMIC_ACQUIRE);

		switch (phase_of(state)) {
		case SHM_SLOT_FREE:
			return -EAGAIN;
		case SHM_SLOT_FULL:
			out->from = peer_of(state);
			memcpy((uint8_t *)out + sizeof(out->from), s->body, SHM_MSG_BODY);
			free_slot(e->shared, s, state);
			return 0;
		case SHM_SLOT_WRITING:
			if (!look_at_sender(e, state))
				return -EAGAIN;
			vb_info("a sender died half-way through a message: skipped");
			free_slot(e->shared, s, state);
			break;
		case SHM_SLOT_VOID:
			free_slot(e->shared, s, state);
			break;
		}
	}
	return -EAGAIN;
}

/* Whether shm_recv may find something; *stuck is set if a sender is half-way in. */
bool shm_ring_ready(struct shm_ep *e, bool *stuck)
{
	unsigned bits = shm_of(e->ep.fabric)->h->ring_bits;
	struct shm_slot *s = slot_at(e->ring, e->shared->head, bits);
	uint64_t state = __atomic_load_n(&s->state, __ATOMIC_ACQUIRE);

	if (phase_of(state) != SHM_SLOT_WRITING)
		return phase_of(state) != SHM_SLOT_FREE;
	*stuck = true;
	return vb_clock_ns() - e->looked_ns >= STUCK_CHECK_NS;
}

bool shm_ring_drain(struct shm_fabric *f, uint32_t slot)
{
	struct shm_endpoint *me = &f->endpoints[slot];
	struct shm_slot *ring = shm_ring(f, slot);
	unsigned bits = f->h->ring_bits;

	/* One lap, and one more step for a head that its owner did not live to move. */
	for (uint64_t i = 0; i <= 1ull << bits; i++) {
		struct shm_slot *s = slot_at(ring, me->head, bits);
		uint64_t state = __atomic_load_n(&s->state, __ATOMIC_SEQ_CST);

		if (laps_ahead(state, me->head, bits) > 0) {
			__atomic_store_n(&me->head, me->head + 1, __ATOMIC_RELAXED);
			continue;
		}
		if (phase_of(state) == SHM_SLOT_FREE)
			return true;
		if (phase_of(state) == SHM_SLOT_WRITING && !shm_sender_dead(f, peer_of(state)))
			return false;
		free_slot(me, s, state);
	}
	/* Senders that still believe in the old incarnation refill it as we drain: another time. */
	return false;
}
