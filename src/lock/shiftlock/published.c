/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ShiftLock exactly as its paper prints it (algorithms 2 and 3, section 3.6), for measuring what
 * its figures measured and for `verbena check lock --lock shiftlock-as-published`, which finds the
 * holes that shiftlock.c mends (doc/locks/shiftlock.md).  Not for use.
 *
 *   acquire   exclusive 1 masked CAS (128), shared 1 masked FAA (128)
 *   release   1 masked CAS or FAA (128); with a successor found only afterwards 2, + 1 message
 *
 * RelCnt has 64 bits and a recovery adds 2^63.  Messages carry what the paper's carry: Handover
 * (RelCnt, consWrt), ModeChanged (RelCnt).  What it leaves open is filled in as plainly as
 * possible: a grant's time starts when it is noticed; the era is read when the three leases begin.
 */
#define VB_LOG_ROOM "shiftlock-as-published"
#include "lock/shiftlock/shiftlock.h"

#include "base/log.h"

#define LEAP           (1ull << 63)
#define TURN_MASK      (1u << SL_HANDOVER)
#define SUCCESSOR_MASK (1u << SL_SUCCESSOR)

enum stage { AWAIT_MESSAGE, AWAIT_COUNT, AWAIT_EPOCH };

struct published_claim {
	/* curRelCnt, or the RelCnt that is waited for. */
	uint64_t rel;
	/* RelCnt at enqueueing: a leap shows against it. */
	uint64_t first_rel;
	uint64_t seen_rel, still_since_ns, era;
	vb_peer successor;
	uint32_t cons_wrt;
	uint8_t stage;
	bool epoch, era_known;
};

static int grant(struct vb_lock_client *me, struct vb_claim *c, uint64_t rel)
{
	vb_claim_as(struct published_claim, c)->rel = rel;
	return vb_lock_grant(c, vb_ep_now(me->ep) + me->space->lease_ns, rel + 1);
}

/* Section 3.6: three leases without a change of RelCnt in one era. */
static int recover_if_still(struct vb_lock_client *me, struct vb_claim *c, uint64_t rel)
{
	struct published_claim *p = vb_claim_as(struct published_claim, c);
	const uint16_t node = vb_addr_node(c->entry);
	struct sl_recover ask = {.entry = c->entry};
	struct vb_msg request = {.tag = SL_RECOVER, .len = sizeof(ask)}, reply;
	vb_peer server;
	int err;

	if (!p->era_known || rel != p->seen_rel) {
		p->seen_rel = rel;
		p->still_since_ns = vb_ep_now(me->ep);
		p->era_known =
			vb_read64(me->ep, vb_lock_header_field(me->space, node, era), &p->era) == 0;
		return 0;
	}
	if (vb_ep_now(me->ep) - p->still_since_ns <
	    vb_lock_stretch(me->space, 3 * me->space->lease_ns))
		return 0;
	p->era_known = false;
	err = vb_lock_server_worker(me, node, 0, &server);
	if (err)
		return err;
	ask.era = p->era;
	memcpy(request.data, &ask, sizeof(ask));
	err = vb_rpc_call(&me->mail, server, &request, &reply,
			  vb_ep_now(me->ep) + me->space->lease_ns);
	if (err == 0)
		me->recoveries++;
	return err == -ECANCELED ? err : 0;
}

/* 0 and *e; -EAGAIN: no answer; -ESTALE: RelCnt has leapt. */
static int look(struct vb_lock_client *me, struct vb_claim *c, struct vb_u128 *e)
{
	struct published_claim *p = vb_claim_as(struct published_claim, c);
	int err = vb_read(me->ep, c->entry, e, sizeof(*e));

	if (err)
		return err == -VB_EUNKNOWN ? -EAGAIN : err;
	if (!((e->hi ^ p->first_rel) & LEAP))
		return recover_if_still(me, c, e->hi);
	me->lost++;
	return -ESTALE;
}

/* Algorithm 2 lines 15 to 22. */
static int await_message(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	struct published_claim *p = vb_claim_as(struct published_claim, c);
	struct sl_pass pass;
	struct vb_msg msg;
	struct vb_u128 e;

	vb_phase(me, VB_PHASE_WP);
	for (;;) {
		uint64_t look_ns = vb_ep_now(me->ep) + me->space->lease_ns / 2;
		int err = vb_box_wait(&me->mail, &c->box, TURN_MASK,
				      look_ns < until_ns ? look_ns : until_ns);

		if (err == 0)
			break;
		if (err == -ECANCELED || err == -VB_EPEERGONE || vb_ep_now(me->ep) >= until_ns)
			return err;
		err = look(me, c, &e);
		if (err && err != -EAGAIN)
			return err;
	}
	vb_box_take(&c->box, SL_HANDOVER, &msg);
	memcpy(&pass, msg.data, sizeof(pass));
	p->rel = pass.rel;
	if (msg.tag == SL_HANDOVER) {
		p->cons_wrt = pass.writers;
		return grant(me, c, pass.rel);
	}
	p->epoch = !p->epoch;
	p->stage = AWAIT_COUNT;
	return -EAGAIN;
}

static int await_entry(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	struct published_claim *p = vb_claim_as(struct published_claim, c);
	struct vb_u128 e;

	vb_phase(me, p->stage == AWAIT_COUNT ? VB_PHASE_WR : VB_PHASE_WW);
	for (;;) {
		int err = look(me, c, &e);

		if (err == 0 && p->stage == AWAIT_COUNT && e.hi == p->rel)
			return grant(me, c, p->rel);
		if (err == 0 && p->stage == AWAIT_EPOCH && !!(e.lo & SL_EPOCH) != p->epoch)
			return grant(me, c, e.hi);
		if (err && err != -EAGAIN)
			return err;
		me->retries++;
		err = vb_poll_pause(me, until_ns);
		if (err)
			return err;
	}
}

static int await_turn(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	struct published_claim *p = vb_claim_as(struct published_claim, c);
	int err = -EAGAIN;

	if (p->stage == AWAIT_MESSAGE)
		err = await_message(me, c, until_ns);
	if (err == -EAGAIN)
		err = await_entry(me, c, until_ns);
	if (err && err != -ETIMEDOUT && err != -ECANCELED)
		c->queued = false;
	return err;
}

/* Algorithm 2, the first verb of either mode. */
static int enqueue(struct vb_lock_client *me, struct vb_claim *c)
{
	struct published_claim *p = vb_claim_as(struct published_claim, c);
	struct vb_msg msg = {.subject = c->entry, .tag = SL_SUCCESSOR};
	const struct vb_u128 none = {0, 0}, tail = {.lo = SL_TAIL_MASK};
	struct vb_u128 e;
	int err;

	memset(p, 0, sizeof(*p));
	if (c->mode == VB_EXCLUSIVE)
		err = vb_mcas128(me->ep, c->entry, none, none, (struct vb_u128){.lo = me->ep->self},
				 tail, &e);
	else
		err = vb_mfaa128(me->ep, c->entry, (struct vb_u128){.lo = 1ull << SL_RDR_SHIFT},
				 (struct vb_u128){.lo = SL_BOUNDS_LO, .hi = LEAP}, &e);
	if (err)
		return err;
	p->first_rel = e.hi;
	p->epoch = !!(e.lo & SL_EPOCH);
	if (!(e.lo & SL_TAIL_MASK) && (c->mode == VB_SHARED || !(e.lo & SL_RDR_MASK)))
		return grant(me, c, e.hi);
	vb_lock_mark_queued(me, c);
	if (c->mode == VB_SHARED) {
		p->stage = AWAIT_EPOCH;
	} else if (e.lo & SL_TAIL_MASK) {
		p->stage = AWAIT_MESSAGE;
		vb_phase(me, VB_PHASE_NP);
		vb_send(me->ep, e.lo & SL_TAIL_MASK, &msg);
	} else {
		p->stage = AWAIT_COUNT;
		p->rel = e.hi + sl_readers(e.lo);
	}
	return -EAGAIN;
}

static int published_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	int err;

	do {
		vb_phase(me, VB_PHASE_IA);
		err = enqueue(me, c);
		if (err == -EAGAIN)
			err = await_turn(me, c, until_ns);
	} while (err == -ESTALE && vb_poll_pause(me, until_ns) == 0);
	return err == -ESTALE ? -ETIMEDOUT : err;
}

/* The paper has no try: a writer's first verb that also compares; readers have none. */
static int published_try(struct vb_lock_client *me, struct vb_claim *c)
{
	struct published_claim *p = vb_claim_as(struct published_claim, c);
	const struct vb_u128 busy = {.lo = SL_TAIL_MASK | SL_RDR_MASK};
	struct vb_u128 e;
	int err;

	if (c->mode == VB_SHARED)
		return -EAGAIN;
	memset(p, 0, sizeof(*p));
	err = vb_mcas128(me->ep, c->entry, (struct vb_u128){0, 0}, busy,
			 (struct vb_u128){.lo = me->ep->self}, (struct vb_u128){.lo = SL_TAIL_MASK},
			 &e);
	if (err)
		return err;
	if (e.lo & busy.lo)
		return -EAGAIN;
	p->first_rel = e.hi;
	p->epoch = !!(e.lo & SL_EPOCH);
	return grant(me, c, e.hi);
}

/* Algorithm 3 lines 15 to 23. */
static int hand_over(struct vb_lock_client *me, struct vb_claim *c)
{
	struct published_claim *p = vb_claim_as(struct published_claim, c);
	const bool flip = p->cons_wrt + 1 >= SL_WRITERS_MAX;
	struct sl_pass pass = {.rel = p->rel + 1, .writers = p->cons_wrt + 1};
	struct vb_msg msg = {
		.subject = c->entry, .tag = flip ? SL_MODE : SL_HANDOVER, .len = sizeof(pass)};
	struct vb_u128 old;
	int err;

	vb_phase(me, VB_PHASE_IA);
	err = vb_mfaa128(me->ep, c->entry, (struct vb_u128){.lo = flip ? SL_EPOCH : 0, .hi = 1},
			 (struct vb_u128){.lo = SL_BOUNDS_LO, .hi = LEAP}, &old);
	if (err)
		return err;
	if (flip)
		pass.rel = old.hi + sl_readers(old.lo) + 1;
	memcpy(msg.data, &pass, sizeof(pass));
	vb_phase(me, VB_PHASE_NS);
	/* Sent once, and nobody asks what has become of it. */
	(void)vb_send(me->ep, p->successor, &msg);
	return 0;
}

static bool find_successor(struct vb_lock_client *me, struct vb_claim *c)
{
	struct vb_msg msg;

	vb_mail_sort(&me->mail);
	if (vb_box_take(&c->box, SL_SUCCESSOR, &msg))
		return false;
	vb_claim_as(struct published_claim, c)->successor = msg.from;
	return true;
}

/* Algorithm 3. */
static int published_release(struct vb_lock_client *me, struct vb_claim *c)
{
	struct published_claim *p = vb_claim_as(struct published_claim, c);
	struct vb_u128 old;
	int err;

	if (c->mode == VB_SHARED)
		return vb_mfaa128(me->ep, c->entry, (struct vb_u128){.lo = SL_RDR_MASK, .hi = 1},
				  (struct vb_u128){.lo = SL_BOUNDS_LO, .hi = LEAP}, &old);
	if (find_successor(me, c))
		return hand_over(me, c);
	err = vb_mcas128(me->ep, c->entry, (struct vb_u128){.lo = me->ep->self},
			 (struct vb_u128){.lo = SL_TAIL_MASK},
			 (struct vb_u128){.lo = p->epoch ? 0 : SL_EPOCH, .hi = p->rel + 1},
			 (struct vb_u128){.lo = SL_TAIL_MASK | SL_EPOCH, .hi = UINT64_MAX}, &old);
	if (err || (old.lo & SL_TAIL_MASK) == me->ep->self)
		return err;
	vb_phase(me, VB_PHASE_NS);
	err = vb_box_wait(&me->mail, &c->box, SUCCESSOR_MASK,
			  vb_ep_now(me->ep) + me->space->lease_ns);
	if (err || !find_successor(me, c))
		return 0;
	return hand_over(me, c);
}

/* Section 3.6: once per era, whatever the entry holds by now. */
static void published_serve(struct vb_lock_server *server, const struct vb_msg *request)
{
	const struct vb_u128 all = {UINT64_MAX, UINT64_MAX};
	vb_addr era_addr = vb_lock_header_field(server->space, server->node, era);
	struct vb_msg reply = {.len = sizeof(struct sl_recover)};
	struct sl_recover ask;
	struct vb_u128 e, old;
	uint64_t era;

	if (request->tag != SL_RECOVER || request->len != sizeof(ask))
		return;
	memcpy(&ask, request->data, sizeof(ask));
	if (vb_read64(server->ep, era_addr, &era) == 0 && era == ask.era) {
		era++;
		ask.done = vb_write(server->ep, era_addr, &era, sizeof(era)) == 0 &&
			   vb_read(server->ep, ask.entry, &e, sizeof(e)) == 0;
		while (ask.done) {
			if (vb_mcas128(server->ep, ask.entry, e, all,
				       (struct vb_u128){.hi = e.hi + LEAP}, all, &old) ||
			    vb_u128_eq(old, e))
				break;
			e = old;
		}
	}
	memcpy(reply.data, &ask, sizeof(ask));
	vb_rpc_reply(server->answers, server->ep, request, &reply);
}

static unsigned published_bypass_bound(unsigned clients, enum vb_mode mode)
{
	return mode == VB_SHARED ? SL_WRITERS_MAX : clients * (clients / SL_WRITERS_MAX + 2);
}

const struct vb_lock_ops vb_lock_shiftlock_as_published = {
	.name = "shiftlock-as-published",
	.summary = "ShiftLock as its paper prints it, holes included; not for use",
	.source = "ShiftLock, FAST 2025, algorithms 2 and 3, section 3.6",
	.caps = VB_LOCK_SHARED | VB_LOCK_EXCLUSIVE | VB_LOCK_FIFO | VB_LOCK_SURVIVES |
		VB_LOCK_TOKEN | VB_LOCK_SERVER | VB_LOCK_MESSAGES,
	.needs = VB_CAP_MASKED128 | VB_CAP_SEND,
	.entry_bytes = 16,
	.recovery_leases = 8,
	.verbs_uncontended = "1 masked CAS (exclusive) or FAA (shared), 128 bits; release 1 more",
	.verbs_contended = "+ 2 SENDs per writer; READs only behind readers or as a waiting reader",
	.bypass_bound = published_bypass_bound,
	.acquire = published_acquire,
	.resume = await_turn,
	.try_acquire = published_try,
	.release = published_release,
	.serve = published_serve,
};
