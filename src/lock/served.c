/* SPDX-License-Identifier: Apache-2.0 */
/* Locks that a server's CPU keeps: see served.h. */
#define VB_LOG_ROOM "lock"
#include "lock/served.h"

#include <errno.h>
#include <inttypes.h>

#include "base/log.h"
#include "base/sometimes.h"

/* The first wait for an answer is a quarter of a lease, but at least this; each next one is twice
 * as long. */
#define PATIENCE_MIN_NS 100000ull
/* Whoever finds the server's ring full comes back later each time, up to 3.2 ms: the ring is others' first, and the
 * core, where there is one, the server's. */
#define FULL_DOUBLES 5u
/* A release up to 0.4 ms: the others' requests are for what it gives back, and each of them begins with the first pause
 * again when it has been told no, so a release that came later each time would be behind all of them.  There is one of a
 * grant. */
#define RELEASE_DOUBLES 2u

/* ---- the server's side of a lock ---- */

static bool is_over(uint64_t now, uint64_t since, uint64_t term)
{
	/* A server that took over from a dead one may read a clock a little behind the other's. */
	return now > since && now - since >= term;
}

void vb_served_evict(const struct vb_lock_server *s, struct vb_served_entry *e, uint64_t lock,
		     uint64_t now)
{
	uint64_t lease = vb_lock_stretch(s->space, s->space->lease_ns);

	if (e->readers == SERVED_WRITER) {
		if (!is_over(now, e->since_ns, lease))
			return;
		vb_debug("lock %" PRIu64 ": client %" PRIx64 " outstayed its lease", lock,
			 e->holder);
		VB_SOMETIMES(200, "rpc traditional traditional-ro: a writer outstays its lease");
		e->readers = 0;
		e->ticket++;
		return;
	}
	if (e->elders && is_over(now, e->elder_since_ns, 2 * lease))
		e->elders = 0;
	if (e->readers && is_over(now, e->since_ns, 2 * lease)) {
		VB_SOMETIMES(200, "rpc traditional traditional-ro: readers outstay their lease");
		e->readers = e->elders = 0;
		e->ticket++;
	}
}

static int grant_exclusive(struct vb_served_entry *e, vb_peer to, uint64_t now)
{
	if (e->readers || e->elders)
		return -EAGAIN;
	e->ticket++;
	e->since_ns = now;
	e->holder = to;
	e->readers = SERVED_WRITER;
	return 0;
}

static int grant_shared(const struct vb_lock_server *s, struct vb_served_entry *e, uint64_t now)
{
	uint64_t lease = vb_lock_stretch(s->space, s->space->lease_ns);

	if (e->readers == SERVED_WRITER)
		return -EAGAIN;
	if (e->readers && is_over(now, e->since_ns, lease)) {
		/* The group is closed; a new one opens if there is none older than it. */
		VB_SOMETIMES(
			200,
			"rpc traditional traditional-ro: a group of readers is closed by time");
		if (e->elders)
			return -EAGAIN;
		e->elders = e->readers;
		e->elder_since_ns = e->since_ns;
		e->readers = 0;
		e->ticket++;
	} else if (!e->readers && !e->elders) {
		e->ticket++;
	}
	/* A group that all have left while an older one is still there opens again under its own
	 * ticket: nobody has a grant of it, and the older one must stay the one before it. */
	if (!e->readers)
		e->since_ns = now;
	if (e->readers == SERVED_WRITER - 1)
		return -EAGAIN;
	e->readers++;
	return 0;
}

int vb_served_grant(const struct vb_lock_server *s, struct vb_served_entry *e, enum vb_mode mode,
		    vb_peer to, uint64_t now)
{
	return mode == VB_SHARED ? grant_shared(s, e, now) : grant_exclusive(e, to, now);
}

/* Not by how many there are: a reader that has not given its grant back is one of them. */
static bool is_reader(const struct vb_served_entry *e, uint64_t ticket)
{
	if (e->readers == SERVED_WRITER)
		return false;
	return (e->ticket == ticket && e->readers) || (e->ticket - 1 == ticket && e->elders);
}

int vb_served_renew(const struct vb_lock_server *s, struct vb_served_entry *e, enum vb_mode mode,
		    const struct vb_ask *ask, uint64_t now)
{
	vb_served_evict(s, e, ask->lock, now);
	if (mode == VB_SHARED)
		return is_reader(e, ask->about) ? grant_shared(s, e, now) : -VB_ELOST;
	if (e->readers != SERVED_WRITER || e->ticket != ask->about) {
		VB_SOMETIMES(2000, "rpc traditional traditional-ro: a renewal came too late");
		return -VB_ELOST;
	}
	if (now > e->since_ns)
		e->since_ns = now;
	return 0;
}

int vb_served_take_back(struct vb_served_entry *e, enum vb_mode mode, uint64_t ticket)
{
	if (mode != VB_SHARED) {
		if (e->readers != SERVED_WRITER || e->ticket != ticket) {
			VB_SOMETIMES(
				200,
				"rpc traditional traditional-ro: a writer's release came too late");
			return -VB_ELOST;
		}
		e->readers = 0;
		return 0;
	}
	if (e->readers == SERVED_WRITER)
		return -VB_ELOST;
	if (e->ticket == ticket && e->readers)
		e->readers--;
	else if (e->ticket - 1 == ticket && e->elders) {
		VB_SOMETIMES(200,
			     "rpc traditional traditional-ro: a reader of the older group leaves");
		e->elders--;
	} else {
		VB_SOMETIMES(200,
			     "rpc traditional traditional-ro: a reader's release came too late");
		return -VB_ELOST;
	}
	return 0;
}

void vb_served_tell(const struct vb_lock_server *s, const struct vb_served_entry *e, uint64_t now,
		    struct vb_answer *out)
{
	uint64_t lease = vb_lock_stretch(s->space, s->space->lease_ns);
	uint64_t readers = 0;
	bool held;

	*out = (struct vb_answer){.err = 0};
	if (e->readers == SERVED_WRITER) {
		held = !is_over(now, e->since_ns, lease);
		out->ticket = e->holder;
		out->asked_ns = VB_EXCLUSIVE | (held ? SERVED_HELD : SERVED_LAPSED);
		return;
	}
	if (e->readers == 0 && e->elders == 0)
		return;
	if (!is_over(now, e->elder_since_ns, 2 * lease))
		readers += e->elders;
	if (!is_over(now, e->since_ns, 2 * lease))
		readers += e->readers;
	out->asked_ns = VB_SHARED | (readers > 0 ? SERVED_HELD : SERVED_LAPSED);
	out->waited_ns = readers;
}

bool vb_served_mine(const struct vb_lock_server *s, uint64_t lock)
{
	uint64_t servers = s->space->servers;

	return lock < s->space->locks && lock % servers == s->node &&
	       lock / servers % s->workers == s->worker;
}

void vb_served_room(struct vb_lock_server *s, bool room)
{
	if (!room && !s->full)
		vb_error("the server of '%s' locks on node %u has no memory for another client: it "
			 "has it ask again until there is some",
			 s->space->ops->name, s->node);
	s->full = !room;
}

/* ---- the client's side ---- */

uint64_t vb_ask_patience(const struct vb_lock_client *me)
{
	uint64_t quarter = me->space->lease_ns / 4;

	return quarter > PATIENCE_MIN_NS ? quarter : PATIENCE_MIN_NS;
}

static uint16_t node_of(const struct vb_lock_client *me, uint64_t lock)
{
	return (uint16_t)(lock % me->space->servers);
}

static int server_gone(struct vb_lock_client *me, uint64_t lock)
{
	vb_lock_server_forget(me->space, node_of(me, lock));
	return vb_fail(-VB_EPEERGONE, "the server of '%s' locks on node %u is gone",
		       me->space->ops->name, node_of(me, lock));
}

/* One copy of the request and the wait for its answer.  -ETIMEDOUT: until until_ns; -VB_EUNKNOWN: it
 * has had none, and sooner than that. */
static int ask_once(struct vb_lock_client *me, uint16_t tag, const struct vb_ask *ask,
		    uint64_t until_ns, vb_peer *only, unsigned *full, struct vb_answer *answer)
{
	struct vb_msg request = {.tag = tag, .len = sizeof(*ask)}, reply;
	vb_peer server;
	int err = vb_lock_server_of(me, ask->lock, &server);

	if (err)
		return err;
	if (only != NULL && *only == VB_PEER_NONE) {
		*only = server;
	} else if (only != NULL && *only != server) {
		VB_SOMETIMES(20000, "rpc: a release is not told to another server");
		return -VB_EPEERGONE;
	}
	memcpy(request.data, ask, sizeof(*ask));
	err = vb_rpc_call(&me->mail, server, &request, &reply, until_ns);
	if (err == -VB_EPEERGONE && vb_ep_cut_off(me->ep))
		return err;
	if (err == -VB_EPEERGONE && !vb_peer_alive(me->ep->fabric, server))
		return server_gone(me, ask->lock);
	if (err == -VB_EPEERGONE || err == -EAGAIN) {
		/* It cannot be reached now, or its ring is full: the same as no answer. */
		uint64_t again = vb_ep_now(me->ep) + (PATIENCE_MIN_NS << *full);

		*full += err == -EAGAIN && *full < (only != NULL ? RELEASE_DOUBLES : FULL_DOUBLES);
		err = vb_ep_sleep_until(me->ep, again < until_ns ? again : until_ns);
		return err ? err : -VB_EUNKNOWN;
	}
	if (err)
		return err;
	memcpy(answer, reply.data, sizeof(*answer));
	if (answer->err != -ENXIO)
		return 0;
	/* The node has other workers than at our last look. */
	vb_lock_server_forget(me->space, node_of(me, ask->lock));
	if (only != NULL)
		*only = VB_PEER_NONE;
	return -VB_EUNKNOWN;
}

/* only: NULL, or no other server than the first is asked. */
static int ask_until(struct vb_lock_client *me, uint16_t tag, const struct vb_ask *ask,
		     uint64_t until_ns, uint64_t ask_for_ns, vb_peer *only,
		     struct vb_answer *answer)
{
	uint64_t now = vb_ep_now(me->ep), patience = vb_ask_patience(me);
	uint64_t give_up = now + ask_for_ns;
	unsigned full = 0;
	int err;

	if (until_ns < give_up)
		give_up = until_ns;
	for (;;) {
		err = ask_once(me, tag, ask, now + patience < give_up ? now + patience : give_up,
			       only, &full, answer);
		if (err != -ETIMEDOUT && err != -VB_EUNKNOWN)
			return err;
		now = vb_ep_now(me->ep);
		if (now >= give_up)
			return now >= until_ns ? -ETIMEDOUT : -VB_EUNKNOWN;
		/* Who was refused has not waited: a link that was down for some leases would have it
		 * wait for seconds behind that. */
		if (err == -ETIMEDOUT)
			patience *= 2;
		me->retries++;
	}
}

int vb_ask(struct vb_lock_client *me, uint16_t tag, const struct vb_ask *request, uint64_t until_ns,
	   uint64_t ask_for_ns, struct vb_answer *answer)
{
	uint64_t least = vb_ep_now(me->ep) + vb_ask_patience(me);

	return ask_until(me, tag, request, until_ns < least ? least : until_ns, ask_for_ns, NULL,
			 answer);
}

int vb_ask_release(struct vb_lock_client *me, uint16_t tag, const struct vb_ask *release,
		   uint64_t ask_for_ns, struct vb_answer *answer)
{
	vb_peer only = VB_PEER_NONE;

	return ask_until(me, tag, release, VB_FOREVER, ask_for_ns, &only, answer);
}

int vb_ask_send(struct vb_lock_client *me, uint16_t tag, const struct vb_ask *ask)
{
	struct vb_msg request = {.tag = tag, .len = sizeof(*ask)};
	vb_peer server;
	int err = vb_lock_server_of(me, ask->lock, &server);

	if (err)
		return err;
	memcpy(request.data, ask, sizeof(*ask));
	err = vb_send_wait(me->ep, server, &request);
	if (err == -VB_EPEERGONE && !vb_peer_alive(me->ep->fabric, server))
		return server_gone(me, ask->lock);
	return err == -ECANCELED ? err : 0;
}

/* A request for which nobody waits.  If it gets lost, a lease ends what it would have. */
static void tell(struct vb_lock_client *me, uint16_t tag, uint64_t lock, uint64_t about)
{
	const struct vb_ask w = {.lock = lock, .number = ++me->mail.next_request, .about = about};
	struct vb_msg m = {.tag = tag, .len = sizeof(w)};
	vb_peer server;

	if (vb_lock_server_of(me, lock, &server) != 0)
		return;
	memcpy(m.data, &w, sizeof(w));
	vb_send(me->ep, server, &m);
}

int vb_ask_renew(struct vb_lock_client *me, struct vb_claim *c, const struct vb_renewal *r,
		 uint64_t until_ns, uint64_t *ticket)
{
	struct vb_ask ask = {
		.lock = c->lock,
		.number = ++me->mail.next_request,
		.about = *ticket,
	};
	uint64_t begun_ns = vb_ep_now(me->ep);
	struct vb_answer answer;
	/* No longer than asked: a lease may be over by then. */
	int err = ask_until(me, r->tag, &ask, until_ns, r->ask_for_ns, NULL, &answer);

	if (err != 0) {
		VB_SOMETIMES(2000, "rpc traditional traditional-ro: a renewal has no answer");
		if (err != -VB_EPEERGONE && c->mode == VB_SHARED)
			tell(me, r->forgo, c->lock, ask.number);
		return err;
	}
	if (answer.err != 0)
		return (int)answer.err;
	c->valid_until_ns = begun_ns + me->space->lease_ns;
	if (c->mode != VB_SHARED)
		return 0;
	tell(me, r->leave, c->lock, *ticket);
	*ticket = answer.ticket;
	return 0;
}

int vb_ask_holder(struct vb_lock_client *me, uint16_t tag, uint64_t lock, uint64_t ask_for_ns,
		  struct vb_holder *out)
{
	const struct vb_ask ask = {.lock = lock, .number = ++me->mail.next_request};
	struct vb_answer answer;
	int err = vb_ask(me, tag, &ask, VB_FOREVER, ask_for_ns, &answer);

	if (err == 0)
		err = (int)answer.err;
	if (err != 0)
		return err;
	out->held = answer.asked_ns & SERVED_HELD;
	out->lapsed = answer.asked_ns & SERVED_LAPSED;
	out->mode = (enum vb_mode)(answer.asked_ns & 0xff);
	out->readers = (uint32_t)answer.waited_ns;
	vb_lock_name_holder(answer.ticket, out);
	return 0;
}

void vb_ask_forgo(struct vb_lock_client *me, uint16_t tag, const struct vb_ask *ask)
{
	tell(me, tag, ask->lock, ask->number);
}
