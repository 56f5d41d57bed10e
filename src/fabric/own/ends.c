/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the provider tells: pieces end, and with the last of them their verb; messages come.
 *
 * The pieces of a verb may end in any order.  The place of the first one, the verb's head, counts those that have not
 * ended, and is not free before them all.  What the provider says is checked as far as it can be: an end that
 * belongs to nothing under way is said and dropped.  A verb that has not ended after end_ns takes its endpoint with
 * it: all that is under way there is unknown, and nothing is posted any more.
 */
#define VB_LOG_ROOM "own"
#include <inttypes.h>

#include "base/log.h"
#include "fabric/own/inner.h"

void own_verb_ends(struct own_ep *e, struct vb_batch *b)
{
	vb_assert(b->pending > 0);
	if (--b->pending > 0)
		return;
	e->thread->woken = true;
	if (b->waiter != NULL)
		vb_task_wake(b->waiter);
}

static void place_back(struct own_ep *e, uint32_t number)
{
	e->place[number].out = false;
	e->place[number].round++;
	e->free[e->n_free++] = number;
	if (e->n_free == e->n_places)
		vb_list_remove(&e->in_busy);
}

/* Status and result go to the verb while somebody waits for it. */
static void note(struct own_ep *e, uint32_t number, struct own_place *head, int err)
{
	const uint8_t *data = (uint8_t *)e->at.buffer + (size_t)number * VB_PROVIDER_VERB_BYTES;
	const struct own_place *pl = &e->place[number];
	struct vb_verb *v = head->verb;

	if (err != 0) {
		/* The first piece that fails says what became of the verb, but for those of which it is not
		 * known. */
		if (v->status == 0 || err == -VB_EUNKNOWN)
			v->status = err < 0 ? err : -EIO;
		return;
	}
	head->some = true;
	if (pl->to != NULL)
		memcpy(pl->to, data, pl->bytes);
	if (v->op == VB_OP_CAS64 || v->op == VB_OP_FAA64)
		memcpy(&v->old.lo, data, sizeof(v->old.lo));
}

void own_pieces_less(struct own_ep *e, uint32_t head_number, uint32_t n)
{
	struct own_place *head = &e->place[head_number];

	head->left -= n;
	if (head->left > 0)
		return;
	if (head->batch != NULL) {
		/* Of a WRITE in pieces, one has landed. */
		if (head->verb->status != 0 && head->some)
			head->verb->status = -VB_EUNKNOWN;
		own_verb_ends(e, head->batch);
	}
	place_back(e, head_number);
}

void own_piece_ends(struct own_ep *e, uint32_t number, int err)
{
	const uint32_t head_number = e->place[number].head;
	struct own_place *head = &e->place[head_number];

	e->place[number].ended = true;
	if (head->batch != NULL)
		note(e, number, head, err);
	if (number != head_number)
		place_back(e, number);
	own_pieces_less(e, head_number, 1);
}

/* All that is under way is unknown.  No place of it is used again: nothing is posted any more. */
static void give_up(struct own_ep *e)
{
	e->broken = true;
	for (uint32_t i = 0; i < e->n_places; i++) {
		if (e->place[i].out && !e->place[i].ended)
			own_piece_ends(e, i, -VB_EUNKNOWN);
	}
	vb_list_remove(&e->in_busy);
}

/* Only two errors say that nothing has happened.  Whatever else a provider tells, it may have. */
static int what_happened(const struct own_place *pl, int err)
{
	if (err == 0 || err == -VB_EPEERGONE || (err == -EAGAIN && pl->op == VB_OP_SEND))
		return err;
	return -VB_EUNKNOWN;
}

bool own_ep_take_ends(struct own_ep *e)
{
	struct vb_provider_end ends[OWN_ENDS];
	int n;

	if (e->broken)
		return false;
	n = e->p->poll(e->p->ctx, e->at.ep, ends, OWN_ENDS);
	for (int i = 0; i < n && i < OWN_ENDS; i++) {
		const uint32_t number = (uint32_t)ends[i].id, round = (uint32_t)(ends[i].id >> 32);

		if (number >= e->n_places || !e->place[number].out || e->place[number].ended ||
		    e->place[number].round != round) {
			vb_error("'%s' tells the end of verb %#" PRIx64
				 ", which is not under way: dropped",
				 e->p->name, ends[i].id);
			continue;
		}
		own_piece_ends(e, number, what_happened(&e->place[number], ends[i].err));
	}
	if (n < 0) {
		vb_error("'%s' says that endpoint %u of node %u is not usable any more: %s",
			 e->p->name, e->at.client, vb_peer_node(e->ep.self), vb_strerror(n));
		give_up(e);
	}
	return n > 0;
}

void own_ep_look_for_lost(struct own_ep *e, uint64_t now)
{
	own_watch(&e->watch, e->p, now);
	if (e->broken || now < e->scan_ns)
		return;
	e->scan_ns = now + e->p->end_ns / 4;
	for (uint32_t i = 0; i < e->n_places; i++) {
		const struct own_place *pl = &e->place[i];

		/* What has been built and not posted yet has no time. */
		if (!pl->out || pl->ended || !pl->posted ||
		    e->watch.ns <= pl->posted_at + e->p->end_ns)
			continue;
		vb_error("'%s' has not told the end of a verb of endpoint %u of node %u within "
			 "%" PRIu64 " ns (end_ns): the endpoint is given up",
			 e->p->name, e->at.client, vb_peer_node(e->ep.self), e->p->end_ns);
		give_up(e);
		return;
	}
}

bool own_ep_take_message(struct own_ep *e)
{
	if (!e->have && e->p->recv != NULL && e->p->recv(e->p->ctx, e->at.ep, &e->message) == 0) {
		e->have = true;
		if (e->message.len > VB_MSG_DATA)
			e->message.len = VB_MSG_DATA;
	}
	return e->have;
}
