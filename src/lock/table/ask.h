/* SPDX-License-Identifier: Apache-2.0 */
/* What a client of the lock table holds, and one request of it: see ask.c. */
#ifndef VB_LOCK_TABLE_ASK_H
#define VB_LOCK_TABLE_ASK_H

#include "lock/table/table.h"

struct vb_locktab_claim {
	uint64_t ticket;
	/* The agent that granted it, or was told of it. */
	vb_peer agent;
	/* An agent that came back does not know of it. */
	bool lost;
	/* A release is under way, and the agent before may have done it. */
	bool ending;
};

static inline const struct vb_locktab_options *
vb_locktab_options_of(const struct vb_lock_client *me)
{
	return me->space->options;
}

static inline struct vb_locktab_client *vb_locktab_of(struct vb_lock_client *me)
{
	return me->priv;
}

static inline uint16_t vb_locktab_node_of(const struct vb_lock_client *me, uint64_t lock)
{
	return (uint16_t)(lock % me->space->servers);
}

static inline struct vb_locktab_link *vb_locktab_link_of(struct vb_lock_client *me, uint64_t lock)
{
	return &vb_locktab_of(me)->link[vb_locktab_node_of(me, lock)];
}

/* The worker that serves a lock, by the number of them that was read last. */
static inline unsigned vb_locktab_worker_of(struct vb_lock_client *me, uint64_t lock)
{
	unsigned workers = vb_locktab_link_of(me, lock)->workers;

	return workers == 0 ? 0 : (unsigned)(lock / me->space->servers % workers);
}

/* ---- what the client holds ---- */

/* The claim of the call under way is one of them. */
static inline bool vb_locktab_holds_others(const struct vb_lock_client *me)
{
	return me->n_used > 1;
}

static inline bool vb_locktab_is_bounded(const struct vb_lock_client *me)
{
	return vb_locktab_holds_others(me) &&
	       vb_locktab_options_of(me)->policy == VB_LOCKTAB_BOUNDED_WAIT &&
	       !vb_locktab_options_of(me)->no_leases;
}

/* The first claim from i on that is in use; past the end: there is none. */
unsigned vb_locktab_next_claim(const struct vb_lock_client *me, unsigned i);

/* ---- one request ---- */

struct vb_locktab_asking {
	struct vb_locktab_ask ask;
	/* An acquire's, which learns that it is queued. */
	struct vb_claim *claim;
	bool queued;
	/* Waits no longer than all else that the client holds is valid. */
	bool bounded;
	/* A reassertion's. */
	const struct vb_claim *told;
	/* A time before it was first sent. */
	uint64_t begun_ns;
	uint64_t silent_until_ns;
	/* The agent that was asked last, and one that was found dead. */
	vb_peer agent;
	vb_peer dead;
	/* Another was asked before: the answer may be either's. */
	bool moved;
	struct vb_locktab_answer answer;
};

/*
 * Asks until there is an answer (0, q->answer), the local time is until_ns (-ETIMEDOUT), the task
 * is cancelled, or there has been no answer for too long (-VB_EUNKNOWN, -VB_EPEERGONE; q->agent is
 * VB_PEER_NONE then if no agent was ever asked).
 */
int vb_locktab_request(struct vb_lock_client *me, struct vb_locktab_asking *q, uint64_t until_ns);

/* The request is given up: tells the agent until it answers.  0: nothing is left in our name;
 * -VB_EUNKNOWN: a grant may be, until its lease ends. */
int vb_locktab_stop(struct vb_lock_client *me, const struct vb_locktab_asking *given_up);

/* The turn came `waited` after the agent had heard of us, on its clock; so not before that time had
 * passed on ours. */
uint64_t vb_locktab_valid_until(const struct vb_lock_client *me, const struct vb_locktab_asking *q);

/* When the first ends of the grants of other locks that were valid when the request began;
 * VB_FOREVER: none up to `upto`. */
uint64_t vb_locktab_first_end(struct vb_lock_client *me, const struct vb_locktab_asking *q,
			      uint64_t upto);
/* Granted after a wait in which the lease of another lock has ended: one without the other is of no
 * use. */
bool vb_locktab_came_late(struct vb_lock_client *me, const struct vb_locktab_asking *q);
void vb_locktab_note_end(struct vb_lock_client *me, const struct vb_claim *c);

#endif
