/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sessions of a server agent of the lock table, one for each client that has asked, and the answers on
 * their way: see server.c.
 *
 * Bounds.  Sessions lie in an array; in it a client that holds nothing, waits for nothing and repeats
 * nothing any more makes room for another.
 */
#define VB_LOG_ROOM "lock"
#include "lock/table/session.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/sometimes.h"

/* How many sessions of each list are looked at for one to forget. */
#define OLDEST_LOOKED 64u

/* ---- answers ---- */

void vb_locktab_flush(struct vb_locktab_agent *a)
{
	struct vb_batch b = {.verbs = a->out.verb, .n = (uint16_t)a->out.n};

	if (a->out.n == 0)
		return;
	/* Grants are in the file before anybody knows of them. */
	vb_locktab_file_commit(a->file);
	a->out.n = 0;
	(void)vb_post(a->server->ep, &b);
}

void vb_locktab_put_answer(struct vb_locktab_agent *a, vb_peer to, vb_addr reply, uint32_t lane,
			   const struct vb_locktab_answer *answer)
{
	unsigned i = a->out.n++;
	struct vb_msg *m = &a->out.msg[i];

	if (reply == 0) {
		*m = (struct vb_msg){.tag = VB_LOCKTAB_TAG_ANSWER, .len = sizeof(*answer)};
		memcpy(m->data, answer, sizeof(*answer));
		a->out.verb[i] = (struct vb_verb){
			.op = VB_OP_SEND, .flags = VB_DATAGRAM, .peer = to, .msg = m};
	} else {
		struct vb_locktab_answer_slot *slot = &a->out.slot[i];

		slot->answer = *answer;
		slot->seal = vb_locktab_seal_answer(answer, to);
		*m = (struct vb_msg){.imm = lane};
		a->out.verb[i] = (struct vb_verb){
			.op = VB_OP_WRITE_NOTIFY,
			.addr = reply,
			.buf = slot,
			.len = sizeof(*slot),
			.peer = to,
			.msg = m,
		};
	}
	if (a->out.n == VB_LOCKTAB_OUTBOX)
		vb_locktab_flush(a);
}

void vb_locktab_answer_session(struct vb_locktab_agent *a, const struct vb_locktab_session *ss)
{
	vb_locktab_put_answer(a, ss->owner.name, ss->reply, ss->lane, &ss->answer);
	if (VB_CHANCE(200, "table: an answer comes twice"))
		vb_locktab_put_answer(a, ss->owner.name, ss->reply, ss->lane, &ss->answer);
}

/* ---- sessions ---- */

static struct vb_list *bucket_of(struct vb_locktab_agent *a, vb_peer from)
{
	struct vb_list *b = &a->buckets[(from * 0x9e3779b97f4a7c15ull) >> 32 & a->bucket_mask];

	if (vb_unlikely(b->next == NULL))
		vb_list_init(b);
	return b;
}

static struct vb_locktab_session *find_session(struct vb_locktab_agent *a, vb_peer from)
{
	vb_list_for_each (it, bucket_of(a, from)) {
		struct vb_locktab_session *ss =
			vb_container_of(it, struct vb_locktab_session, in_bucket);

		if (ss->owner.name == from)
			return ss;
	}
	return NULL;
}

static struct vb_locktab_session *by_use(struct vb_list *it)
{
	return vb_container_of(it, struct vb_locktab_session, by_use);
}

void vb_locktab_sort_session(struct vb_locktab_agent *a, struct vb_locktab_session *ss)
{
	vb_list_remove(&ss->by_use);
	vb_list_push(vb_list_empty(&ss->owner.reqs) ? &a->idle : &a->busy, &ss->by_use);
}

/* The requests of a client that was not heard of since may have ended, by their leases for one.
 * Each call looks at the next few sessions. */
static void sort_some(struct vb_locktab_agent *a)
{
	for (unsigned i = 0; i < OLDEST_LOOKED && !vb_list_empty(&a->busy); i++)
		vb_locktab_sort_session(a, by_use(a->busy.next));
}

/* Frees the place of a client that holds nothing, waits for nothing and repeats nothing any
 * more. */
static void forget_somebody(struct vb_locktab_agent *a, uint64_t now)
{
	unsigned looked = 0;

	sort_some(a);
	vb_list_for_each (it, &a->idle) {
		struct vb_locktab_session *ss = by_use(it);

		if (looked++ == OLDEST_LOOKED)
			return;
		vb_assert(vb_list_empty(&ss->owner.reqs));
		if (now < ss->heard_ns + a->forget_ns &&
		    vb_peer_alive(a->server->ep->fabric, ss->owner.name))
			continue;
		vb_list_remove(&ss->in_bucket);
		vb_list_remove(&ss->by_use);
		ss->ended_by = 0;
		vb_list_push(&a->free, &ss->in_bucket);
		return;
	}
}

struct vb_locktab_session *vb_locktab_make_session(struct vb_locktab_agent *a, vb_peer from,
						   uint64_t now)
{
	struct vb_locktab_session *ss = find_session(a, from);
	struct vb_list *place;

	if (ss == NULL) {
		if (a->fresh_sessions == a->n_sessions && vb_list_empty(&a->free))
			forget_somebody(a, now);
		place = vb_list_pop(&a->free);
		if (place == NULL && a->fresh_sessions == a->n_sessions)
			return NULL;
		ss = place != NULL ? vb_container_of(place, struct vb_locktab_session, in_bucket)
				   : &a->sessions[a->fresh_sessions++];
		*ss = (struct vb_locktab_session){.heard_ns = now};
		vb_tq_owner_init(&ss->owner, from);
		vb_list_init(&ss->by_use);
		vb_list_push(bucket_of(a, from), &ss->in_bucket);
	}
	ss->heard_ns = now;
	vb_locktab_sort_session(a, ss);
	return ss;
}

int vb_locktab_open_sessions(struct vb_locktab_agent *a, unsigned n)
{
	unsigned buckets = 64;

	while (buckets < n)
		buckets *= 2;
	a->sessions = calloc(n, sizeof(*a->sessions));
	a->buckets = calloc(buckets, sizeof(*a->buckets));
	if (a->sessions == NULL || a->buckets == NULL)
		return vb_fail(-ENOMEM, "no memory for %u clients of a lock server", n);
	a->bucket_mask = buckets - 1;
	a->n_sessions = n;
	return 0;
}
