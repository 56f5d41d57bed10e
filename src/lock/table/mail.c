/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mailboxes of the lock table (Barthels et al., section 3.3): a request is one notified WRITE
 * into the client's slot at the server node, an answer one into the client's slot at its own node.
 *
 *	server node:  life[64] | owner[slots] | lane[2 * slots]        behind the space's header
 *	client node:             owner[slots] | lane[2 * slots]        a region of its own
 *
 *	request, 64 bytes   +--------+------+-----+-----+-----------------+------+-------+------+
 *	                    | number | lock | age | ref | kind mode flags | from | reply | seal |
 *	                    +--------+------+-----+-----+-----------------+------+-------+------+
 *	answer, 40 bytes    +--------+--------+--------+-----------+------+
 *	                    | number | ticket | waited | err count | seal |
 *	                    +--------+--------+--------+-----------+------+
 *
 * The notification says which lane, in the immediate value, and nothing else: on hardware it is
 * one WRITE with immediate.  A client uses its two lanes in turn, so that a request that it has
 * given up and the one that says so do not lie in one place.  All agents answer into the same two: a
 * late copy of an answer to an older request may lie over a newer one.  Its notification says so, and
 * the client asks again.
 *
 * A slot is taken with a CAS of its owner's word, and taken over from the dead.  A client that gets
 * none (all are taken, or the fabric has no notified WRITE) sends the same 40 bytes as a message.
 * What is lost either way is asked again (ask.c).
 */
#define VB_LOG_ROOM "lock"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <xxhash.h>

#include "base/log.h"
#include "fabric/cpu.h"
#include "lock/table/table.h"

/* How many taken slots a client looks at before it does without one. */
#define SLOT_TRIES 16u

static const struct vb_locktab_options *options_of(const struct vb_lock_space *s)
{
	return s->options;
}

static uint64_t box_bytes(const struct vb_lock_space *s)
{
	return options_of(s)->slots * (sizeof(uint64_t) + VB_LOCKTAB_LANES * VB_LOCKTAB_LANE_BYTES);
}

uint64_t vb_locktab_node_bytes(const struct vb_lock_space *s)
{
	return VB_LOCK_WORKERS_MAX * sizeof(struct vb_locktab_life) + box_bytes(s);
}

static vb_addr owners_at(const struct vb_lock_space *s, uint16_t node)
{
	return s->base[node] + VB_LOCK_WORKERS_MAX * sizeof(struct vb_locktab_life);
}

static vb_addr lanes_at(const struct vb_lock_space *s, vb_addr owners)
{
	return owners + options_of(s)->slots * sizeof(uint64_t);
}

struct vb_locktab_life *vb_locktab_life_of(const struct vb_lock_server *s)
{
	struct vb_locktab_life *all = vb_local(s->space->fabric, s->space->base[s->node],
					       VB_LOCK_WORKERS_MAX * sizeof(*all));

	vb_assert(all != NULL); /* vb_lock_server_start has looked */
	return &all[s->worker];
}

uint64_t vb_locktab_seal_ask(const struct vb_locktab_ask_slot *slot)
{
	return XXH3_64bits(slot, offsetof(struct vb_locktab_ask_slot, seal));
}

uint64_t vb_locktab_seal_answer(const struct vb_locktab_answer *a, vb_peer to)
{
	/* The slot may have been another's before. */
	return XXH3_64bits_withSeed(a, sizeof(*a), to);
}

bool vb_locktab_read_ask(const struct vb_lock_server *s, uint32_t lane,
			 struct vb_locktab_ask_slot *out)
{
	const struct vb_lock_space *space = s->space;
	void *at;

	if (lane >= options_of(space)->slots * VB_LOCKTAB_LANES)
		return false;
	at = vb_local(space->fabric,
		      lanes_at(space, owners_at(space, s->node)) + lane * VB_LOCKTAB_LANE_BYTES,
		      sizeof(*out));
	if (at == NULL)
		return false;
	cpu_copy_out((uint8_t *)out, at, sizeof(*out));
	return vb_locktab_seal_ask(out) == out->seal;
}

/* ---- a client's slots ---- */

static int take_word(struct vb_lock_client *me, vb_addr word)
{
	uint64_t seen, self = me->ep->self, was;
	int err = vb_cas64(me->ep, word, VB_PEER_NONE, self, &seen);

	if (err != 0 || seen == VB_PEER_NONE)
		return err;
	if (vb_peer_alive(me->ep->fabric, seen))
		return -EBUSY;
	was = seen;
	err = vb_cas64(me->ep, word, was, self, &seen);
	if (err != 0)
		return err;
	return seen == was ? 0 : -EBUSY;
}

/* The number of a slot; -1: none, so by SEND. */
static int take_slot(struct vb_lock_client *me, vb_addr owners)
{
	unsigned slots = (unsigned)options_of(me->space)->slots;
	unsigned first = vb_peer_client(me->ep->self);

	for (unsigned i = 0; i < SLOT_TRIES && i < slots; i++) {
		unsigned slot = (first + i) % slots;
		int err = take_word(me, owners + slot * sizeof(uint64_t));

		if (err == 0)
			return (int)slot;
		if (err != -EBUSY)
			break;
	}
	return -1;
}

static void give_word(struct vb_lock_client *me, vb_addr word)
{
	uint64_t seen;

	/* If it gets lost, a client that finds us dead takes the slot. */
	(void)vb_cas64(me->ep, word, me->ep->self, VB_PEER_NONE, &seen);
}

static vb_addr lane_of(const struct vb_lock_space *s, vb_addr owners, unsigned slot)
{
	return lanes_at(s, owners) + (uint64_t)slot * VB_LOCKTAB_LANES * VB_LOCKTAB_LANE_BYTES;
}

static void take_slots(struct vb_lock_client *me)
{
	struct vb_locktab_client *t = me->priv;
	int slot = take_slot(me, t->answers);

	if (slot < 0)
		return;
	t->answer_slot = (unsigned)slot;
	t->answer_at = lane_of(me->space, t->answers, t->answer_slot);
	for (uint16_t n = 0; n < me->space->servers; n++) {
		vb_addr owners = owners_at(me->space, n);

		slot = take_slot(me, owners);
		if (slot < 0)
			continue;
		t->link[n].slot = (unsigned)slot;
		t->link[n].at = lane_of(me->space, owners, t->link[n].slot);
	}
}

int vb_locktab_client_open(struct vb_lock_client *me)
{
	const struct vb_lock_space *s = me->space;
	struct vb_locktab_client *t =
		calloc(1, sizeof(*t) + s->servers * sizeof(struct vb_locktab_link));
	char name[VB_LOCK_REGION];
	bool fresh;
	int err;

	if (t == NULL)
		return vb_fail(-ENOMEM, "no memory for a lock client");
	me->priv = t;
	/* Larger than any number of an earlier client of the same name: nobody asks more than once
	 * in a microsecond. */
	t->number = vb_ep_now(me->ep) / 1000 * VB_LOCKTAB_STRIDE;
	if (options_of(s)->slots == 0 || !(s->fabric->caps.flags & VB_CAP_NOTIFY))
		return 0;
	vb_lock_part_region(VB_LOCK_ANSWERS, s->name, 0, name);
	err = vb_region(s->fabric, me->node, name, box_bytes(s), &t->answers, &fresh);
	if (err == -ENOSPC || err == -EINVAL)
		return vb_fail(err,
			       "no room for the answers of '%s' on node %u (%" PRIu64
			       " bytes): give the nodes more, or set the option slots lower",
			       s->name, me->node, box_bytes(s));
	if (err == 0)
		take_slots(me);
	return 0;
}

void vb_locktab_client_close(struct vb_lock_client *me)
{
	struct vb_locktab_client *t = me->priv;

	for (uint16_t n = 0; t != NULL && n < me->space->servers; n++)
		if (t->link[n].at != 0)
			give_word(me, owners_at(me->space, n) + t->link[n].slot * sizeof(uint64_t));
	if (t != NULL && t->answer_at != 0)
		give_word(me, t->answers + t->answer_slot * sizeof(uint64_t));
}

/* ---- there and back ---- */

static void write_ask(struct vb_lock_client *me, const struct vb_locktab_link *link, vb_peer agent,
		      const struct vb_locktab_ask *ask)
{
	const struct vb_locktab_client *t = me->priv;
	unsigned lane = vb_locktab_lane(ask->number);
	struct vb_locktab_ask_slot slot = {
		.ask = *ask,
		.from = me->ep->self,
		.reply = t->answer_at + (uint64_t)lane * VB_LOCKTAB_LANE_BYTES,
	};
	struct vb_msg note = {.imm = link->slot * VB_LOCKTAB_LANES + lane};
	struct vb_verb v = {
		.op = VB_OP_WRITE_NOTIFY,
		.addr = link->at + (uint64_t)lane * VB_LOCKTAB_LANE_BYTES,
		.buf = &slot,
		.len = sizeof(slot),
		.peer = agent,
		.msg = &note,
	};
	struct vb_batch b = {.verbs = &v, .n = 1};

	slot.seal = vb_locktab_seal_ask(&slot);
	(void)vb_post(me->ep, &b);
}

void vb_locktab_send_ask(struct vb_lock_client *me, uint16_t node, vb_peer agent,
			 const struct vb_locktab_ask *ask)
{
	const struct vb_locktab_client *t = me->priv;
	struct vb_msg m = {.tag = VB_LOCKTAB_TAG_ASK, .len = sizeof(*ask)};
	struct vb_verb v = {.op = VB_OP_SEND, .flags = VB_DATAGRAM, .peer = agent, .msg = &m};
	struct vb_batch b = {.verbs = &v, .n = 1};

	if (t->link[node].at != 0 && vb_peer_node(agent) == node) {
		write_ask(me, &t->link[node], agent, ask);
		return;
	}
	memcpy(m.data, ask, sizeof(*ask));
	(void)vb_post(me->ep, &b);
}

/* 0; -ESTALE: it is whole, and another's; -EAGAIN: it is not whole. */
static int read_answer(struct vb_lock_client *me, uint64_t number, struct vb_locktab_answer *out)
{
	const struct vb_locktab_client *t = me->priv;
	struct vb_locktab_answer_slot slot;
	void *at;

	at = vb_local(me->ep->fabric,
		      t->answer_at + vb_locktab_lane(number) * VB_LOCKTAB_LANE_BYTES, sizeof(slot));
	if (at == NULL)
		return -EAGAIN;
	cpu_copy_out((uint8_t *)&slot, at, sizeof(slot));
	if (slot.seal != vb_locktab_seal_answer(&slot.answer, me->ep->self))
		return -EAGAIN;
	if (slot.answer.number != number)
		return -ESTALE;
	*out = slot.answer;
	return 0;
}

/* Of several that have come together only the one to this request counts, and its end most. */
static void keep_sent(struct vb_locktab_client *t, uint64_t number, const struct vb_msg *m)
{
	struct vb_locktab_answer a;

	if (m->tag != VB_LOCKTAB_TAG_ANSWER || m->len != sizeof(a))
		return;
	memcpy(&a, m->data, sizeof(a));
	if (a.number == number && (t->sent.number != number || t->sent.err == -EINPROGRESS))
		t->sent = a;
}

int vb_locktab_take_answer(struct vb_lock_client *me, uint64_t number,
			   struct vb_locktab_answer *out)
{
	struct vb_locktab_client *t = me->priv;
	bool told = false;
	struct vb_msg m;

	while (vb_ep_recv(me->ep, &m) == 0) {
		keep_sent(t, number, &m);
		told |= m.len == 0 && m.imm == vb_locktab_lane(number);
	}
	if (t->sent.number == number) {
		*out = t->sent;
		t->sent.number = 0;
		return 0;
	}
	return told && t->answer_at != 0 ? read_answer(me, number, out) : -EAGAIN;
}
