/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server agent of the lock table: takes requests from its mailbox, does each of them once,
 * answers.
 *
 *	session (one for each client that has asked, in a hash)
 *	+--------+-------------------+--------+----------+--------------------------+
 *	| client | number, kind      | answer | where to | what it holds, waits for |
 *	+--------+-------------------+--------+----------+--------------------------+
 *	          of its last request                      the transaction table
 *
 * Once.  A client has one request under way at an agent at a time, and numbers them.  The same
 * number again is answered again, "it waits" if that is so.  A larger number says that the client
 * no longer waits for the one before; a smaller one is a copy that came late, and is ignored.
 *
 * Death.  Each grant has a lease, on this agent's clock and longer than the client's by what the
 * two may drift apart, so the client's is over first.  Then others get what the dead one held.
 *
 * Coming back.  An agent that takes the place of one that died has either its file (persist.c) or
 * nothing.  With nothing it makes no new grants for as long as a lease of the other's can last;
 * holders that call in that time tell it what they hold.  Tickets go on above a mark in the
 * segment.
 *
 * Bounds.  Requests and sessions lie in arrays; a client for which there is no room is told to come
 * again.
 */
#define VB_LOG_ROOM "lock"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/sometimes.h"
#include "lock/header.h"
#include "lock/table/session.h"

#define SESSIONS_MAX 65536u
#define TICKET_BLOCK 4096u
#define WAIT_INIT_NS 100000000ull

static const struct vb_locktab_options *options_of(const struct vb_lock_server *s)
{
	return s->space->options;
}

/* ---- what the queues tell ---- */

static struct vb_locktab_session *session_of(const struct vb_tq_req *r)
{
	return vb_container_of(r->owner, struct vb_locktab_session, owner);
}

static void on_decided(void *ctx, struct vb_tq_req *r, int err)
{
	struct vb_locktab_agent *a = ctx;
	struct vb_locktab_session *ss = session_of(r);

	/* A client that no longer waits hears nothing. */
	if (!ss->waits)
		return;
	ss->waits = false;
	ss->answer.err = err;
	ss->answer.ticket = r->state == VB_TQ_HELD ? r->token : 0;
	ss->answer.waited_ns = err == 0 ? r->granted_ns - r->asked_ns : 0;
	vb_locktab_answer_session(a, ss);
}

static struct vb_locktab_record record_of(const struct vb_tq_req *r)
{
	return (struct vb_locktab_record){
		.kind = VB_LOCKTAB_HOLD,
		.peer = r->owner->name,
		.number = r->number,
		.lock = vb_tq_lock_number(r),
		.ticket = r->ticket,
		.token = r->token,
		.age = r->age,
		.converted = r->converted,
		.mode = (uint8_t)r->mode,
		.before = (uint8_t)r->before,
	};
}

/* So that the agent after this one can tell that a release that is asked for again was done. */
static uint64_t note_end(struct vb_locktab_agent *a, struct vb_locktab_session *ss)
{
	if (a->ending != ss)
		return 0;
	if (ss->ended_by != ss->number)
		ss->ended = 0;
	ss->ended_by = ss->number;
	ss->ended++;
	return ss->ended_by;
}

static int write_anew(struct vb_locktab_agent *a, uint64_t mark)
{
	const struct vb_locktab_start as = {.mark = mark,
					    .tickets = vb_tq_last_ticket(a->q),
					    .partial = a->grace_until_ns != 0};

	return vb_locktab_file_compact(a->file, &as);
}

static void on_noted(void *ctx, const struct vb_tq_req *r, bool gone)
{
	struct vb_locktab_agent *a = ctx;
	uint64_t ticket = vb_tq_last_ticket(a->q);
	struct vb_locktab_record rec = record_of(r);

	if (ticket + TICKET_BLOCK / 2 > a->life->tickets)
		__atomic_store_n(&a->life->tickets, ticket + TICKET_BLOCK, __ATOMIC_RELEASE);
	if (gone) {
		rec.kind = VB_LOCKTAB_GONE;
		rec.number = note_end(a, session_of(r));
	}
	if (a->file == NULL)
		return;
	vb_locktab_file_put(a->file, &rec);
	if (vb_locktab_file_grown(a->file, vb_tq_holds(a->q)))
		(void)write_anew(a, a->life->mark);
}

static bool on_alive(void *ctx, const struct vb_tq_owner *o)
{
	const struct vb_locktab_agent *a = ctx;
	const struct vb_locktab_session *ss = vb_container_of(o, struct vb_locktab_session, owner);
	const struct vb_ep *ep = a->server->ep;

	/* A waiter asks again every quarter of a lease; to ask the fabric can cost more. */
	if (vb_ep_now(ep) < ss->heard_ns + a->server->space->lease_ns / 2)
		return true;
	return vb_peer_alive(a->server->ep->fabric, o->name);
}

/* ---- requests ---- */

static bool is_mine(const struct vb_lock_server *s, uint64_t lock)
{
	uint64_t servers = s->space->servers;

	return lock < s->space->locks && lock % servers == s->node &&
	       lock / servers % s->workers == s->worker;
}

static bool in_grace(struct vb_locktab_agent *a, uint64_t now)
{
	if (a->grace_until_ns == 0 || now < a->grace_until_ns)
		return a->grace_until_ns != 0;
	a->grace_until_ns = 0;
	/* What is valid from now on stands in the file. */
	(void)write_anew(a, a->life->mark);
	return false;
}

static struct vb_tq_want want_of(const struct vb_locktab_ask *ask)
{
	return (struct vb_tq_want){
		.lock = ask->lock,
		.age = ask->age,
		.number = ask->number,
		.mode = (enum vb_mode)ask->mode,
		.no_wait = ask->kind == VB_LOCKTAB_TRY,
		.bounded = ask->flags & VB_LOCKTAB_BOUNDED,
	};
}

static int do_acquire(struct vb_locktab_agent *a, struct vb_locktab_session *ss,
		      const struct vb_locktab_ask *ask, uint64_t now)
{
	const struct vb_tq_want want = want_of(ask);
	struct vb_tq_req *r = vb_tq_by_number(&ss->owner, ask->number);
	int err;

	if (r != NULL && r->state == VB_TQ_HELD) {
		/* Granted by the agent before this one, whose answer was lost. */
		ss->answer.ticket = r->ticket;
		return 0;
	}
	if (in_grace(a, now))
		return -ENOBUFS;
	err = vb_tq_request(a->q, &ss->owner, &want, now, &r);
	if (err == 0)
		ss->answer.ticket = r->ticket;
	return err;
}

static int do_convert(struct vb_locktab_agent *a, struct vb_locktab_session *ss,
		      const struct vb_locktab_ask *ask, uint64_t now)
{
	const struct vb_tq_want want = want_of(ask);
	struct vb_tq_req *r = vb_tq_by_ticket(&ss->owner, ask->lock, ask->ref);
	int err;

	if (r == NULL)
		return in_grace(a, now) ? -ENOBUFS : -VB_ELOST;
	if (r->converted == ask->number && r->mode == want.mode) {
		/* By the agent before this one, whose answer was lost. */
		ss->answer.ticket = r->token;
		return 0;
	}
	if (in_grace(a, now) && !vb_mode_covers(r->mode, want.mode))
		return -ENOBUFS;
	err = vb_tq_convert(a->q, r, &want, now);
	if (err == 0)
		ss->answer.ticket = r->token;
	return err;
}

static int do_release(struct vb_locktab_agent *a, struct vb_locktab_session *ss,
		      const struct vb_locktab_ask *ask, uint64_t now)
{
	struct vb_tq_req *r = vb_tq_by_ticket(&ss->owner, ask->lock, ask->ref);

	/* Gone: by its lease, or by this request, of which the agent before this one knew. */
	VB_SOMETIMES_IF(r == NULL && ss->ended_by != ask->number, 200,
			"table: a release came too late");
	if (r == NULL)
		return ss->ended_by == ask->number ? 0 : -VB_ELOST;
	a->ending = ss;
	vb_tq_leave(a->q, r, now);
	a->ending = NULL;
	return 0;
}

/* The end of a transaction: one message for all that it holds here. */
static int do_end(struct vb_locktab_agent *a, struct vb_locktab_session *ss,
		  const struct vb_locktab_ask *ask, uint64_t now)
{
	struct vb_tq_req *r;

	/* Among so many agents it has counted what it means: here may be what it keeps. */
	if (ask->ref != a->server->workers)
		return -ESTALE;
	a->ending = ss;
	while ((r = vb_tq_any_hold(&ss->owner)) != NULL)
		vb_tq_leave(a->q, r, now);
	a->ending = NULL;
	/* Some may have been ended by the agent before this one, killed over it. */
	ss->answer.count = ss->ended_by == ss->number ? ss->ended : 0;
	return 0;
}

/* The client has given up a request and does not know what has become of it: undoes it. */
static int do_stop(struct vb_locktab_agent *a, struct vb_locktab_session *ss,
		   const struct vb_locktab_ask *ask, uint64_t now)
{
	const struct vb_locktab_options *o = options_of(a->server);
	struct vb_tq_req *r = vb_tq_by_number(&ss->owner, ask->ref);

	if (r == NULL)
		return 0;
	VB_SOMETIMES_IF(r->converted == ask->ref, 200, "table: a conversion is undone");
	VB_SOMETIMES_IF(r->converted != ask->ref, 200, "table: a grant is withdrawn");
	if (r->converted == ask->ref)
		vb_tq_undo(a->q, r, ask->ref, now);
	else
		(o->rules != NULL ? o->rules : &vb_tq_rules)->withdraw(a->q, r, now);
	return 0;
}

/* A holder tells of a grant by the agent before this one. */
static int do_reassert(struct vb_locktab_agent *a, struct vb_locktab_session *ss,
		       const struct vb_locktab_ask *ask, uint64_t now)
{
	const struct vb_tq_want want = want_of(ask);
	struct vb_tq_req *r = vb_tq_by_ticket(&ss->owner, ask->lock, ask->ref);

	if (r != NULL) {
		vb_tq_renew(a->q, r, now);
		return 0;
	}
	if (!in_grace(a, now))
		return -VB_ELOST;
	return vb_tq_restore(a->q, &ss->owner, &want, ask->ref, now);
}

/* A lease that is over has been ended before any request (vb_tq_tend). */
static int do_renew(struct vb_locktab_agent *a, struct vb_locktab_session *ss,
		    const struct vb_locktab_ask *ask, uint64_t now)
{
	struct vb_tq_req *r = vb_tq_by_ticket(&ss->owner, ask->lock, ask->ref);

	VB_SOMETIMES_IF(r == NULL, 2000, "table: a renewal came too late");
	if (r == NULL)
		return in_grace(a, now) ? -ENOBUFS : -VB_ELOST;
	vb_tq_renew(a->q, r, now);
	return 0;
}

/* An agent that does not know yet what the one before it has granted does not know who has a lock. */
static int do_holder(struct vb_locktab_agent *a, struct vb_locktab_session *ss,
		     const struct vb_locktab_ask *ask, uint64_t now)
{
	const struct vb_tq_owner *alone;
	enum vb_mode mode;
	unsigned holders;

	if (in_grace(a, now))
		return -ENOBUFS;
	if (!vb_tq_held(a->q, ask->lock, &mode, &holders, &alone))
		return 0;
	ss->answer.waited_ns = 1 + (uint64_t)mode;
	ss->answer.ticket = alone != NULL ? alone->name : VB_PEER_NONE;
	ss->answer.count = holders - (alone != NULL);
	return 0;
}

static int do_it(struct vb_locktab_agent *a, struct vb_locktab_session *ss,
		 const struct vb_locktab_ask *ask, uint64_t now)
{
	switch (ask->kind) {
	case VB_LOCKTAB_ACQUIRE:
	case VB_LOCKTAB_TRY:
		return do_acquire(a, ss, ask, now);
	case VB_LOCKTAB_CONVERT:
		return do_convert(a, ss, ask, now);
	case VB_LOCKTAB_RELEASE:
		return do_release(a, ss, ask, now);
	case VB_LOCKTAB_END:
		return do_end(a, ss, ask, now);
	case VB_LOCKTAB_STOP:
		return do_stop(a, ss, ask, now);
	case VB_LOCKTAB_REASSERT:
		return do_reassert(a, ss, ask, now);
	case VB_LOCKTAB_RENEW:
		return do_renew(a, ss, ask, now);
	case VB_LOCKTAB_HOLDER:
		return do_holder(a, ss, ask, now);
	}
	return -EINVAL;
}

/* A larger number: the request before it is over, if it was not yet. */
static void end_wait_of(struct vb_locktab_agent *a, struct vb_locktab_session *ss, uint64_t now)
{
	struct vb_tq_req *r;

	if (!ss->waits)
		return;
	ss->waits = false;
	r = vb_tq_by_number(&ss->owner, ss->number);
	if (r != NULL && r->state == VB_TQ_CONVERTING)
		vb_tq_stop_converting(a->q, r, now);
	else if (r != NULL && r->state == VB_TQ_WAITING)
		vb_tq_leave(a->q, r, now);
}

/* The agents of a node have one mailbox: who comes late to a lane may find there what another was asked
 * for since. */
static bool is_sound(const struct vb_locktab_agent *a, const struct vb_locktab_ask *ask)
{
	return ask->mode < VB_MODES && is_mine(a->server, ask->lock);
}

static void take(struct vb_locktab_agent *a, const struct vb_locktab_ask *ask, vb_peer from,
		 vb_addr reply, uint32_t lane, uint64_t now)
{
	struct vb_locktab_answer refused = {.number = ask->number, .err = -ENXIO};
	struct vb_locktab_session *ss;

	if (!is_sound(a, ask)) {
		vb_locktab_put_answer(a, from, reply, lane, &refused);
		return;
	}
	ss = vb_locktab_make_session(a, from, now);
	if (ss == NULL) {
		refused.err = -ENOBUFS;
		vb_locktab_put_answer(a, from, reply, lane, &refused);
		return;
	}
	if (ask->number < ss->number) {
		VB_SOMETIMES(200, "table: a copy after a newer request");
		return;
	}
	VB_SOMETIMES_IF(ask->number == ss->number, 200, "table: a request is answered again");
	ss->reply = reply;
	ss->lane = lane;
	if (ask->number > ss->number) {
		/* A request that is stopped may have been granted meanwhile: STOP undoes that, by
		 * its number.  One that STOP does not name was overtaken: it was left unknown, and
		 * nothing that came after it has come here. */
		if (ask->kind != VB_LOCKTAB_STOP || ask->ref != ss->number)
			end_wait_of(a, ss, now);
		ss->waits = false;
		ss->number = ask->number;
		ss->kind = ask->kind;
		ss->answer = (struct vb_locktab_answer){.number = ask->number};
		ss->answer.err = do_it(a, ss, ask, now);
		vb_locktab_sort_session(a, ss);
		ss->waits = ss->answer.err == -EINPROGRESS;
		/* It has just begun to wait: the answer comes when the wait is over. */
		if (ss->waits)
			return;
	}
	vb_locktab_answer_session(a, ss);
}

static struct vb_locktab_agent *agent_of(struct vb_lock_server *s)
{
	return s->priv;
}

void vb_locktab_serve(struct vb_lock_server *s, const struct vb_msg *request)
{
	struct vb_locktab_agent *a = agent_of(s);
	struct vb_locktab_ask_slot slot;
	/* In order: leases that are given now are counted from here, and the client has counted from
	 * before it asked. */
	uint64_t now = vb_ep_now(s->ep);

	(void)vb_tq_tend(a->q, now);
	if (request->tag == VB_LOCKTAB_TAG_ASK && request->len == sizeof(slot.ask)) {
		memcpy(&slot.ask, request->data, sizeof(slot.ask));
		take(a, &slot.ask, request->from, 0, 0, now);
	} else if (request->len == 0 && vb_locktab_read_ask(s, request->imm, &slot) &&
		   vb_peer_node(slot.from) == vb_addr_node(slot.reply)) {
		take(a, &slot.ask, slot.from, slot.reply, vb_locktab_lane(slot.ask.number), now);
	}
	/* What is neither is torn, or is being written over: it will be asked again. */
	vb_locktab_flush(a);
}

uint64_t vb_locktab_tend(struct vb_lock_server *s)
{
	struct vb_locktab_agent *a = agent_of(s);
	/* Early: a lease may end later than it has to. */
	uint64_t next = vb_tq_tend(a->q, vb_ep_now_early(s->ep));

	vb_locktab_flush(a);
	return next;
}

/* ---- coming and going ---- */

static void found_end(struct vb_locktab_session *ss, const struct vb_locktab_record *rec)
{
	if (rec->number == 0)
		return;
	if (rec->kind == VB_LOCKTAB_SAID || ss->ended_by != rec->number)
		ss->ended = 0;
	ss->ended_by = rec->number;
	ss->ended += rec->kind == VB_LOCKTAB_SAID ? rec->count : 1;
}

/* A record of the file, in order. */
static void on_found(void *ctx, const struct vb_locktab_record *rec)
{
	struct vb_locktab_agent *a = ctx;
	uint64_t now = vb_ep_now(a->server->ep);
	struct vb_locktab_session *ss = vb_locktab_make_session(a, rec->peer, now);
	struct vb_tq_want want = {
		.lock = rec->lock,
		.age = rec->age,
		.number = rec->number,
		.mode = (enum vb_mode)rec->mode,
	};
	struct vb_tq_req *r;

	a->dropped |= ss == NULL;
	if (ss != NULL && rec->kind != VB_LOCKTAB_HOLD)
		found_end(ss, rec);
	if (ss == NULL || rec->kind == VB_LOCKTAB_SAID || rec->mode >= VB_MODES ||
	    rec->before >= VB_MODES || !is_mine(a->server, rec->lock))
		return;
	r = vb_tq_by_ticket(&ss->owner, rec->lock, rec->ticket);
	if (r != NULL)
		vb_tq_leave(a->q, r, now);
	if (rec->kind == VB_LOCKTAB_HOLD &&
	    vb_tq_restore(a->q, &ss->owner, &want, rec->ticket, now) != 0) {
		a->dropped = true;
	} else if (rec->kind == VB_LOCKTAB_HOLD) {
		r = vb_tq_by_ticket(&ss->owner, rec->lock, rec->ticket);
		r->token = rec->token;
		r->before = (enum vb_mode)rec->before;
		r->converted = rec->converted;
	}
	vb_locktab_sort_session(a, ss);
}

static void put_hold(void *ctx, const struct vb_tq_req *r)
{
	struct vb_locktab_record rec = record_of(r);

	vb_locktab_file_put(ctx, &rec);
}

static void put_all(void *ctx, struct vb_locktab_file *f)
{
	struct vb_locktab_agent *a = ctx;
	uint64_t now = vb_ep_now(a->server->ep);

	vb_tq_each_hold(a->q, put_hold, f);
	for (unsigned i = 0; i < a->fresh_sessions; i++) {
		const struct vb_locktab_session *ss = &a->sessions[i];
		struct vb_locktab_record rec = {.kind = VB_LOCKTAB_SAID,
						.peer = ss->owner.name,
						.number = ss->ended_by,
						.count = ss->ended};

		/* The client whose last request it was may ask it again. */
		if (ss->ended_by != 0 && ss->ended_by >= ss->number &&
		    now < ss->heard_ns + a->forget_ns)
			vb_locktab_file_put(f, &rec);
	}
}

/* The segment knows of us, and of our file if we have one: what another wrote is of the past. */
static int enter_life(struct vb_locktab_agent *a)
{
	uint64_t mark = vb_locktab_draw_mark();
	int err = write_anew(a, mark);

	if (err != 0)
		return err;
	__atomic_store_n(&a->life->mark, mark, __ATOMIC_RELEASE);
	__atomic_store_n(&a->life->lives, a->life->lives + 1, __ATOMIC_RELEASE);
	a->begun = true;
	return 0;
}

/* What can be known of the agents before this one, and for how long nothing new is granted. */
static int come_back(struct vb_locktab_agent *a)
{
	const struct vb_locktab_keeper keeper = {.found = on_found, .all = put_all, .ctx = a};
	struct vb_lock_server *s = a->server;
	struct vb_locktab_life *all = a->life - s->worker;
	uint64_t lease = vb_lock_stretch(s->space, s->space->lease_ns), upto = 0;
	bool earlier = a->life->lives != a->life->ended;
	struct vb_locktab_found found = {0};
	struct vb_locktab_file *file = NULL;
	int err = 0;

	/* There may have been another number of agents: any of them may have had our locks. */
	for (unsigned i = 0; i < VB_LOCK_WORKERS_MAX; i++) {
		uint64_t tickets = __atomic_load_n(&all[i].tickets, __ATOMIC_ACQUIRE);

		upto = tickets > upto ? tickets : upto;
	}
	vb_tq_skip_tickets(a->q, upto);
	err = vb_locktab_file_forget(s);
	if (err == 0 && options_of(s)->persist != NULL)
		err = vb_locktab_file_open(s, &keeper, &found, &file);
	if (err != 0)
		return err;
	a->file = file;
	found.whole &= !a->dropped;
	vb_tq_skip_tickets(a->q, found.tickets);
	/* A segment that knows of a stop with nothing held knows better than a file. */
	earlier |= found.earlier && a->life->lives == 0;
	/* Others had our locks; what we have of our own, a file too, says nothing of them. */
	if (vb_lock_header_changed(s, lease)) {
		earlier = true;
		found.whole = false;
	}
	VB_SOMETIMES_IF(earlier && found.whole, 1000, "table: an agent goes on with its file");
	VB_SOMETIMES_IF(found.earlier && !found.whole, 1000, "table: a file is not whole");
	if (earlier && !found.whole) {
		a->grace_until_ns = vb_ep_now(s->ep) + lease;
		vb_info("the agent of '%s' locks on node %u begins again: new grants in %" PRIu64
			" ms, holders keep theirs",
			s->space->name, s->node, lease / 1000000);
	}
	return enter_life(a);
}

/* A client that is taken out of a queue must leave the others time to go on before its own leases
 * end. */
uint64_t vb_locktab_wait_ns(const struct vb_lock_space *s)
{
	uint64_t wait_ns = ((const struct vb_locktab_options *)s->options)->wait_ns;

	if (wait_ns != 0)
		return wait_ns;
	return s->lease_ns / 4 < WAIT_INIT_NS ? s->lease_ns / 4 : WAIT_INIT_NS;
}

static struct vb_tq_params queue_params(struct vb_locktab_agent *a)
{
	const struct vb_locktab_options *o = options_of(a->server);
	const struct vb_lock_space *space = a->server->space;

	return (struct vb_tq_params){
		.policy = (enum vb_locktab_policy)o->policy,
		.wait_ns = vb_locktab_wait_ns(space),
		.lease_ns = o->no_leases ? VB_FOREVER : vb_lock_stretch(space, space->lease_ns),
		.requests = (unsigned)o->requests,
		.rules = o->rules != NULL ? o->rules : &vb_tq_rules,
		.decided = on_decided,
		.noted = on_noted,
		.alive = on_alive,
		.ctx = a,
	};
}

int vb_locktab_server_open(struct vb_lock_server *s)
{
	const struct vb_locktab_options *o = options_of(s);
	struct vb_locktab_agent *a = calloc(1, sizeof(*a));
	struct vb_tq_params p;
	int err;

	if (a == NULL)
		return vb_fail(-ENOMEM, "no memory for a lock server");
	s->priv = a;
	a->server = s;
	a->forget_ns = 2 * vb_lock_stretch(s->space, o->ask_for_ns);
	vb_list_init(&a->free);
	vb_list_init(&a->idle);
	vb_list_init(&a->busy);
	a->life = vb_locktab_life_of(s);
	p = queue_params(a);
	err = vb_tq_open(&p, &a->q);
	if (err == 0)
		err = vb_locktab_open_sessions(a, o->requests < SESSIONS_MAX ? (unsigned)o->requests
									     : SESSIONS_MAX);
	return err != 0 ? err : come_back(a);
}

void vb_locktab_server_close(struct vb_lock_server *s)
{
	struct vb_locktab_agent *a = agent_of(s);

	if (a == NULL)
		return;
	/* With nothing held, the next agent has nothing to wait for. */
	if (a->begun && !s->struck && vb_tq_holds(a->q) == 0 && a->grace_until_ns == 0)
		__atomic_store_n(&a->life->ended, a->life->lives, __ATOMIC_RELEASE);
	if (s->struck)
		vb_locktab_file_bury(a->file);
	else
		vb_locktab_file_close(a->file);
	vb_tq_close(a->q);
	free(a->sessions);
	free(a->buckets);
	free(a);
	s->priv = NULL;
}
