/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Locks that a server's CPU keeps: what rpc and traditional have in common.  On the server's side
 * an entry, its leases and tickets; on the client's side a request that is safe to repeat.
 *
 *   lock entry, 32 bytes        +---------------------------------------------------------------+
 *   touched by the one server   | ticket         the latest exclusive grant's or reader group's |
 *   worker that answers for     | since          when that was granted, on the server's clock   |
 *   the lock, nobody else       | elder since    the same of the reader group before that;      |
 *                               |                exclusive: the holder's name                   |
 *                               | readers : 32   SERVED_WRITER: held exclusively | elders : 32  |
 *                               +---------------------------------------------------------------+
 *                               readers = elders = 0 is free
 *
 * An exclusive grant is over after one lease.  Readers come in groups that are open to newcomers
 * for one lease and over after two, so that a dead reader cannot hide behind living ones, and two
 * groups are enough.  Tickets grow with every exclusive grant and every eviction.  They are the
 * fencing token, and tell the release of an evicted client from the holder's.
 *
 * A renewal has an exclusive grant's lease begin anew.  A reader joins the group that is open now, as if
 * it came, and says then that it has left its own: so no group grows older than two leases, and who
 * has not heard of the one says that it is not wanted.  What of that gets lost ends with its group.
 *
 * The client's lease ends a lease after a moment at which it cannot have had the grant yet; the
 * server's begins with the grant, which is later, and lasts longer by the drift that two clocks may
 * have.  So the client's is over first (doc/locks/rpc.md).
 */
#ifndef VB_LOCK_SERVED_H
#define VB_LOCK_SERVED_H

#include "lock/lock.h"

#define SERVED_WRITER UINT32_MAX

struct vb_served_entry {
	uint64_t ticket;
	uint64_t since_ns;
	union {
		uint64_t elder_since_ns;
		vb_peer holder;
	};
	/* How many, of the group `ticket`; or SERVED_WRITER. */
	uint32_t readers;
	/* How many, of the group `ticket - 1`. */
	uint32_t elders;
};
_Static_assert(sizeof(struct vb_served_entry) == 32, "as in the figure");

/* A client's request. */
struct vb_ask {
	uint64_t lock;
	/* Grows with each request of a client; the same when it asks again. */
	uint64_t number;
	/* By the tag: a ticket, another request's number, a time. */
	uint64_t about;
};

/* Evicts holders whose lease is over.  The ticket grows, so that they cannot release any more. */
void vb_served_evict(const struct vb_lock_server *s, struct vb_served_entry *e, uint64_t lock,
		     uint64_t now);
/* Grants, after vb_served_evict.  0, -EAGAIN. */
int vb_served_grant(const struct vb_lock_server *s, struct vb_served_entry *e, enum vb_mode mode,
		    vb_peer to, uint64_t now);
/* Has the lease of a grant begin anew.  0; -VB_ELOST: it is over; -EAGAIN: too many readers.  A reader
 * is granted the lock once more, under e->ticket, and is to give the old grant back. */
int vb_served_renew(const struct vb_lock_server *s, struct vb_served_entry *e, enum vb_mode mode,
		    const struct vb_ask *ask, uint64_t now);
/* Releases.  0; -VB_ELOST: the grant is over. */
int vb_served_take_back(struct vb_served_entry *e, enum vb_mode mode, uint64_t ticket);

/* Who has it, as the entry says: an answer's ticket is the writer's name, asked_ns the mode and these bits, and
 * waited_ns how many readers.  Changes nothing: who outstays a lease has it until somebody comes. */
#define SERVED_HELD   0x100u
#define SERVED_LAPSED 0x200u
struct vb_answer;
void vb_served_tell(const struct vb_lock_server *s, const struct vb_served_entry *e, uint64_t now,
		    struct vb_answer *out);

static inline bool vb_served_is_shared(const struct vb_served_entry *e)
{
	return e->readers != SERVED_WRITER && (e->readers || e->elders);
}

/* Whether this server worker answers for the lock. */
bool vb_served_mine(const struct vb_lock_server *s, uint64_t lock);

/* Whether there was memory for a client that asks; that there was not is said once. */
void vb_served_room(struct vb_lock_server *s, bool room);

/* ---- requests ---- */

struct vb_answer {
	uint64_t ticket;
	/* 0, or an error of the tag's; -EAGAIN: busy; -ENXIO: ask another worker. */
	int64_t err;
	/* traditional: see "Leases" there. */
	uint64_t asked_ns, waited_ns;
};

_Static_assert(sizeof(struct vb_ask) <= VB_MSG_DATA, "a request fits a message");
_Static_assert(sizeof(struct vb_answer) <= VB_MSG_DATA, "an answer fits a message");

/* How long to wait for the answer to a first copy. */
uint64_t vb_ask_patience(const struct vb_lock_client *me);

/*
 * Asks the lock's server, again and again under one number, until there is an answer.  Waits a
 * little for it even if until_ns is past, as verbs are waited for beyond a deadline.  0 and
 * *answer; -ETIMEDOUT; -VB_EUNKNOWN after ask_for_ns; -VB_EPEERGONE, logged; -ECANCELED.
 */
int vb_ask(struct vb_lock_client *me, uint16_t tag, const struct vb_ask *ask, uint64_t until_ns,
	   uint64_t ask_for_ns, struct vb_answer *answer);

/*
 * The same for a release, which must not be told twice: readers of a group have one ticket, so that what
 * is told again gives back what another reader holds.  A server knows copies by their number, the one
 * that follows a dead one does not: -VB_EPEERGONE, and nobody knows what the first has done.
 */
int vb_ask_release(struct vb_lock_client *me, uint16_t tag, const struct vb_ask *release,
		   uint64_t ask_for_ns, struct vb_answer *answer);

/*
 * A renewal (vb_served_renew), with what a reader has to say after it.  *ticket is the grant's.
 * 0: c->valid_until_ns and *ticket are the new ones; or an error, and they are as before.
 */
struct vb_renewal {
	/* Of the request; a reader's: it has not heard of the answer to the request `about`; it leaves
	 * what it had before. */
	uint16_t tag, forgo, leave;
	uint64_t ask_for_ns;
};
int vb_ask_renew(struct vb_lock_client *me, struct vb_claim *c, const struct vb_renewal *r,
		 uint64_t until_ns, uint64_t *ticket);

/* Asks who has the lock (vb_served_tell), by a request of that tag which the server need not remember: 0; the errors
 * of vb_ask. */
int vb_ask_holder(struct vb_lock_client *me, uint16_t tag, uint64_t lock, uint64_t ask_for_ns,
		  struct vb_holder *out);

/* Sends a request to the lock's server without awaiting an answer.  0: it is under way, or may be;
 * -VB_EPEERGONE, logged: the server is gone. */
int vb_ask_send(struct vb_lock_client *me, uint16_t tag, const struct vb_ask *ask);

/* Ends a request for which we no longer wait: sends `tag`, under a number of its own, about `ask`'s
 * number, and does not wait for an answer.  If it gets lost, the lease ends what may have been
 * granted. */
void vb_ask_forgo(struct vb_lock_client *me, uint16_t tag, const struct vb_ask *ask);

#endif
