/* SPDX-License-Identifier: Apache-2.0 */
/* What a client of ShiftLock that waits concludes from its looks at the entry: that it is out, that nothing moves. */
#define VB_LOG_ROOM "shiftlock"
#include "base/log.h"
#include "base/sometimes.h"
#include "lock/shiftlock/claim.h"

static void saw(struct vb_lock_client *me, struct sl_claim *s, uint64_t rel, uint64_t posted_ns,
		uint64_t done_ns)
{
	bool moved = rel != s->last_rel;
	/* A narrow count may have come round unseen: then it has moved, but we do not know when. */
	bool blind = sl_is_plain(me->space) && posted_ns - s->last_post_ns > SL_PLAIN_BLIND_NS;

	if (moved) {
		s->older_post_ns = s->last_post_ns;
		s->last_rel = rel;
	}
	if (moved || blind) {
		s->still_since_ns = done_ns;
		s->era_known = false;
	}
	s->last_post_ns = posted_ns;
}

/* For the 1st, 2nd, 4th, ... time: whoever waits for that goes on waiting. */
static void say_unheard(struct vb_lock_client *me, struct vb_claim *c, uint16_t node)
{
	struct sl_claim *s = vb_claim_as(struct sl_claim, c);

	s->unheard++;
	if ((s->unheard & (s->unheard - 1)) == 0)
		vb_warn("lock %llu has stood still for three leases, as behind a client that has "
			"died, and so has the server of node %u, which would recover it: it is "
			"waited for until another is started there (vb_lock_server_start)",
			(unsigned long long)c->lock, node);
}

/* Asks the server to reset the lock.  The next look tells what it did. */
static int recover(struct vb_lock_client *me, struct vb_claim *c)
{
	struct sl_claim *s = vb_claim_as(struct sl_claim, c);
	struct sl_recover ask = {.entry = c->entry, .rel = s->last_rel, .era = s->era}, answer;
	struct vb_msg request = {.tag = SL_RECOVER, .len = sizeof(ask)}, reply;
	const uint16_t node = vb_addr_node(c->entry);
	vb_peer server;
	int err = vb_lock_server_worker(me, node, 0, &server);

	if (err)
		return err;
	memcpy(request.data, &ask, sizeof(ask));
	err = vb_rpc_call(&me->mail, server, &request, &reply,
			  vb_ep_now(me->ep) + me->space->lease_ns);
	/* Start over with a new era, whether the server was busy, is gone, or has said no. */
	s->still_since_ns = vb_ep_now(me->ep);
	s->era_known = false;
	if (err == -VB_EPEERGONE) {
		vb_lock_server_forget(me->space, node);
		say_unheard(me, c, node);
	}
	VB_SOMETIMES_IF(err, 200, "shiftlock: a recovery without an answer");
	if (err)
		return err == -ECANCELED ? err : 0;
	memcpy(&answer, reply.data, sizeof(answer));
	if (answer.done)
		me->recoveries++;
	else
		VB_SOMETIMES(200, "shiftlock: a recovery lost its race");
	return 0;
}

int sl_suspect(struct vb_lock_client *me, struct vb_claim *c)
{
	struct sl_claim *s = vb_claim_as(struct sl_claim, c);
	const uint64_t now = vb_ep_now(me->ep);
	int err;

	if (!s->era_known) {
		if (now - s->still_since_ns < me->space->lease_ns / 2)
			return 0;
		err = vb_read64(me->ep,
				vb_lock_header_field(me->space, vb_addr_node(c->entry), era),
				&s->era);
		/* A look says so, if the link stays down. */
		if (err)
			return err == -VB_EUNKNOWN || err == -VB_EPEERGONE ? 0 : err;
		/* The three leases count from here: the era was read before they began. */
		s->era_known = true;
		s->still_since_ns = vb_ep_now(me->ep);
		return 0;
	}
	if (now - s->still_since_ns < vb_lock_stretch(me->space, 3 * me->space->lease_ns) ||
	    VB_CHANCE(200, "shiftlock: puts a recovery off"))
		return 0;
	return recover(me, c);
}

int sl_look(struct vb_lock_client *me, struct vb_claim *c, struct vb_u128 *e, unsigned *refused)
{
	struct sl_claim *s = vb_claim_as(struct sl_claim, c);
	uint64_t posted = vb_ep_now(me->ep);
	int err = sl_read(me, c, e);
	bool gone = sl_is_gone(me->space, s->last_post_ns, posted);

	if (err)
		return err == -VB_EUNKNOWN || vb_lock_ask_again(me, err, refused) ? -EAGAIN : err;
	*refused = 0;
	saw(me, s, e->hi, posted, vb_ep_now(me->ep));
	if (sl_gen(e->hi) == s->gen && !gone)
		return 0;
	VB_SOMETIMES(200, "shiftlock: a waiter was thrown out by a recovery");
	me->lost++;
	c->queued = false;
	return -ESTALE;
}
