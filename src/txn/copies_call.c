/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A copy of a log by RPC (the last digit of the hybrid code): the server of the copy's node writes it.
 *
 * The log goes through the coordinator's inbox there, in pieces if it is longer than that, each with a message behind
 * it.  Behind the last piece the server puts the word, as the coordinator does one-sided.
 *
 * A server may stand still at any moment and go on when nobody waits for it any more: no bound of a verb holds what it
 * does.  That a late log comes over the next one is kept out by its doing one thing at a time: the next log of the
 * place goes by the same inbox to the same server.  What it has begun is done by then; what it has not begun has lost
 * its items, and the seal tells.  So all processes of a database write its logs in the same way (layout_hash).  A
 * node has one server, and who takes the place of one that is dead is another process, or the first has gone from
 * this one.  A place that is far may have two who write its logs, one of them cut off from it: what that one asks comes
 * to the server before anything that the other asks (vb_lane_log_by).
 */
#define VB_LOG_ROOM "txn"
#include "txn/copies.h"

/* In front of a piece. */
struct wire_log {
	uint64_t was, logged;
	uint32_t place, copy;
	uint32_t at, of; /* of so many bytes, these begin there; of 0: the word alone */
};

/* ---- the coordinator ---- */

static int make_call(struct vb_coordinator *me, struct vb_copy_call *c, unsigned char *buf,
		     const struct wire_log *w, const unsigned char *from, uint32_t bytes,
		     struct vb_verb *v)
{
	struct vb_wire_call head = {
		.bytes = (uint32_t)sizeof(*w) + bytes,
		.n = 1,
		.stage = VB_STAGE_LOG,
	};
	int err = vb_db_find_server(me, c->node, &c->server);

	if (err)
		return err;
	memcpy(buf, w, sizeof(*w));
	memcpy(buf + sizeof(*w), from, bytes);
	vb_call_verbs(me, &head, buf, c->node, c->server, &c->box, &c->msg, v);
	v[0].not_after_ns = v[1].not_after_ns = c->not_after_ns;
	c->open = true;
	return 0;
}

static int take_reply(struct vb_copy_call *c, const struct vb_msg *msg)
{
	struct vb_wire_call head;

	memcpy(&head, msg->data, sizeof(head));
	if (head.err == -EPROTO)
		return vb_call_refused(c->node, head.seal);
	c->old = head.commit_ts;
	return head.err;
}

static void collect(struct vb_coordinator *me, struct vb_copy_call *c, const struct vb_verb *v)
{
	struct vb_msg reply;

	if (c->err == 0)
		c->err = v[0].status != 0 ? v[0].status : v[1].status;
	if (c->err == 0)
		c->err = vb_call_await(me, &c->box, c->server, c->node, &reply);
	if (c->err == 0)
		c->err = take_reply(c, &reply);
	if (c->open)
		vb_box_close(&c->box);
	/* Whoever comes next looks for the server again. */
	if (c->err != 0)
		__atomic_store_n(&me->db->server[c->node], 0, __ATOMIC_RELAXED);
}

/* One piece to all that want it. */
static void round_of_calls(struct vb_coordinator *me, uint32_t place, uint64_t logged,
			   const unsigned char *from, uint32_t at, uint32_t piece, uint32_t bytes,
			   struct vb_copy_call *call, unsigned n)
{
	struct vb_verb v[2 * VB_COPIES_MAX];
	unsigned verbs[VB_COPIES_MAX], posted = 0;

	for (unsigned i = 0; i < n; i++) {
		struct vb_copy_call *c = &call[i];
		const bool whole = bytes > 0 && !vb_copy_same(c->was, logged);
		const struct wire_log w = {
			.was = c->was,
			.logged = logged,
			.place = place,
			.copy = c->copy,
			.at = at,
			.of = whole ? bytes : 0,
		};

		c->open = false;
		if (c->over)
			continue;
		verbs[i] = posted;
		c->err = make_call(me, c, me->scratch + (size_t)i * me->db->call_bytes, &w,
				   from + at, whole ? piece : 0, &v[posted]);
		posted += c->err == 0 ? 2 : 0;
	}
	if (posted > 0)
		(void)vb_post_wait(me->ep, v, posted);
	for (unsigned i = 0; i < n; i++) {
		if (call[i].over)
			continue;
		collect(me, &call[i], &v[verbs[i]]);
		call[i].over = call[i].err != 0 || vb_copy_same(call[i].was, logged);
	}
}

void vb_copies_call(struct vb_coordinator *me, uint32_t place, uint64_t logged,
		    const unsigned char *from, uint32_t bytes, struct vb_copy_call *call,
		    unsigned n)
{
	const uint32_t room = (me->db->call_bytes - (uint32_t)sizeof(struct wire_log)) & ~7u;
	uint32_t at = 0;

	for (unsigned i = 0; i < n; i++) {
		call[i].err = 0;
		call[i].over = false;
		call[i].node = vb_addr_node(vb_copy_at(me->db, place, call[i].copy));
	}
	do {
		round_of_calls(me, place, logged, from, at, bytes - at < room ? bytes - at : room,
			       bytes, call, n);
		at += room;
	} while (at < bytes);
}

/* ---- the server ---- */

static bool may_say(const struct vb_db *db, const struct wire_log *w)
{
	const uint64_t state = w->logged & COPY_STATE;

	return state == COPY_LOGGED ||
	       (state == COPY_FINAL && w->of == 0 && vb_cc_installs(db->cc));
}

/* Is it what that coordinator may ask of this node? */
static bool sound(const struct vb_db *db, uint16_t node, const struct vb_wire_call *c,
		  const struct wire_log *w)
{
	const uint32_t bytes = c->bytes - (uint32_t)sizeof(*w);

	return w->place / VB_PLACES_EACH == c->from_node * db->coordinators + c->coordinator &&
	       w->copy < db->copies && vb_addr_node(vb_copy_at(db, w->place, w->copy)) == node &&
	       may_say(db, w) && !(w->logged & COPY_SEALED) && !(w->was & COPY_SEALED) &&
	       w->at % 8 == 0 && w->at <= w->of && bytes <= w->of - w->at &&
	       w->of <= vb_db_place_bytes(db, w->place) - COPY_FROM;
}

/* *old: as in struct vb_copy_call, behind the last piece. */
static int write_piece(struct vb_db *db, struct vb_ep *ep, const struct wire_log *w,
		       const void *piece, uint32_t bytes, uint64_t *old)
{
	const vb_addr at = vb_copy_at(db, w->place, w->copy);
	unsigned char *copy = vb_local(db->fabric, at, vb_db_place_bytes(db, w->place));
	int err;

	memcpy(copy + COPY_FROM + w->at, piece, bytes);
	*old = w->was;
	if (w->at + bytes < w->of)
		return 0;
	err = vb_cas64(ep, at, w->was, w->logged, old);
	if (err == 0 && *old == w->was)
		*old = w->logged;
	return err;
}

enum vb_wire_refusal vb_copy_take(struct vb_db *db, struct vb_ep *ep, uint16_t node,
				  struct vb_wire_call *c, const unsigned char *payload)
{
	struct wire_log w;

	if (c->bytes < sizeof(w))
		return VB_WIRE_TOO_LONG;
	memcpy(&w, payload, sizeof(w));
	if (!sound(db, node, c, &w))
		return VB_WIRE_NOT_HERE;
	c->err = (int16_t)write_piece(db, ep, &w, payload + sizeof(w),
				      c->bytes - (uint32_t)sizeof(w), &c->commit_ts);
	return VB_WIRE_SOUND;
}
