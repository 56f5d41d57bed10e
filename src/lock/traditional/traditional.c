/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traditional: the server's CPU keeps a queue for each lock and sends the grant when the turn comes
 * (DSLR, section 6.1: "To acquire a lock on an object, a transaction must communicate with the
 * LM instance in charge of that node.  This mechanism uses two-sided RDMA SEND/RECV verbs with
 * queues").  Traditional_RO (section 6.4) is the same, but lets readers pass waiting writers.
 *
 *   lock entry, 32 bytes: see served.h            the server's queues: see traditional.h
 *
 *   acquire    1 SEND and, when the turn has come, its answer (1 SEND)      no one-sided verbs
 *              a waiter asks again after `ask_again`, then less and less often, each quarter of a
 *              lease in the end: 1 SEND, and "you stand in the queue" (1 SEND)
 *   release    1 SEND and its answer
 *   renew      1 SEND and its answer; a reader's, 1 SEND more
 *   holder     1 SEND and its answer
 *   try        as a release; never queued
 *
 *   Promises   shared and exclusive, in the order in which requests reach the server; readers that
 *              follow each other hold together.  traditional-ro: while readers hold the lock,
 *              others are let in past waiting writers, at most `readers_pass` past each.
 *              Survives holders and waiters, see below, but not its server: what it has granted
 *              stands, but nobody answers any more.
 *
 *   Asking     A request has a number; a client repeats it, under the same number, until it has a
 *              grant.  The server remembers each client's last request.  A copy finds the client in
 *              the queue, and is answered so; or granted, and is answered with the grant.  Numbers
 *              below the last are ignored.
 *
 *   Leaving    A waiter whose deadline has come, or that is cancelled, says TRAD_WITHDRAW; nothing
 *              is left in the queue (no proxy).  If it has not heard yet that it stands in the
 *              queue, it says TRAD_LEAVE and awaits the answer: it is out of the queue, or it had
 *              been granted the lock before, and has it.
 *
 *   Leases     Each copy of a request says when it was posted, on the client's clock.  The grant
 *              gives back that time, of the last copy heard, and how long ago it was heard.  The
 *              lease begins with their sum (less what the clocks may differ), which is before the
 *              grant.
 *
 *   Deaths     A holder: the lease ends, as in rpc.  A waiter that has not been heard of for a
 *              lease is passed over when it is first in the queue.  The server has no timers: it
 *              looks when a waiter asks again.
 *
 * Departs from the paper in everything that has to do with failures, of which it says nothing (why:
 * doc/locks/traditional.md).
 */
#define VB_LOG_ROOM "lock"
#include "lock/traditional/traditional.h"

#include <errno.h>
#include <inttypes.h>

#include "base/log.h"
#include "base/sometimes.h"
#include "lock/protocols.h"

/* The default of readers_pass (DSLR, section 6.4). */
#define TRAD_READERS_PASS 10

/* Messages of the server to a client that waits, in the box of the lock's entry. */
enum trad_news { TRAD_TURN = 1, TRAD_QUEUED = 2 };

#define TRAD_OPTIONS                                                                               \
	VB_OPT_TIME(struct trad_options, ask_for, "ask_for", "2s", 1000000, 3600ull * 1000000000,  \
		    "how long a request is repeated without any answer before its outcome is "     \
		    "left unknown"),                                                               \
		VB_OPT_TIME(struct trad_options, ask_again, "ask_again", "1ms", 10000,             \
			    3600ull * 1000000000,                                                  \
			    "after which a waiter asks again first, at the latest a quarter of a " \
			    "lease")

static const struct vb_opt trad_options[] = {TRAD_OPTIONS, VB_OPT_END};

const struct vb_opt trad_ro_options[] = {
	TRAD_OPTIONS,
	VB_OPT_SIZE(struct trad_options, readers_pass, "readers_pass", "10", 0, 1000000,
		    "readers that may pass a waiting writer"),
	VB_OPT_END,
};

struct trad_claim {
	uint64_t ticket;
};

/* ---- the server's side ---- */

struct trad_server {
	struct vb_lock_server *s;
	struct trad_memory *m;
	struct vb_served_entry *e;
	uint64_t now, readers_pass;
};

static enum vb_mode trad_mode(const struct trad_client *c)
{
	return trad_is_shared(c->tag) ? VB_SHARED : VB_EXCLUSIVE;
}

/* Tells a client what has come of its request for a turn. */
static void trad_tell(struct vb_lock_server *s, vb_peer to, uint64_t lock, uint64_t number,
		      enum trad_news tag, const struct vb_answer *answer)
{
	struct vb_msg m = {
		.subject = vb_lock_entry(s->space, lock),
		.tag = tag,
		.len = sizeof(*answer),
		.imm = (uint32_t)number,
	};

	memcpy(m.data, answer, sizeof(*answer));
	/* If it is lost, or there is no room for it, the client asks again. */
	vb_send(s->ep, to, &m);
	if (VB_CHANCE(200, "traditional traditional-ro: news come twice"))
		vb_send(s->ep, to, &m);
}

/* 0: granted, and recorded; -EAGAIN. */
static int trad_grant(struct trad_server *t, struct trad_client *c)
{
	int err = vb_served_grant(t->s, t->e, trad_mode(c), c->from, t->now);

	if (err)
		return err;
	c->answer = (struct vb_answer){
		.ticket = t->e->ticket,
		.asked_ns = c->asked_ns,
		.waited_ns = t->now > c->heard_ns ? t->now - c->heard_ns : 0,
	};
	return 0;
}

static void trad_tell_turn(struct trad_server *t, struct trad_client *c)
{
	trad_tell(t->s, c->from, c->lock, c->number, TRAD_TURN, &c->answer);
}

/* The client has died, or has left and could not say so. */
static bool trad_is_silent(const struct trad_server *t, const struct trad_client *c)
{
	return t->now > c->heard_ns &&
	       t->now - c->heard_ns >= vb_lock_stretch(t->s->space, t->s->space->lease_ns);
}

/* The first writer in the queue, if it may be passed by one more reader now.  It is the one that
 * has been passed most: a reader that passes a writer behind it passes it, too. */
static struct trad_client *trad_may_pass(struct trad_server *t, const struct trad_queue *q)
{
	struct trad_client *w = trad_at(t->m, q->first);

	while (w && trad_is_shared(w->tag))
		w = trad_at(t->m, w->next);
	return w && vb_served_is_shared(t->e) && w->passed < t->readers_pass ? w : NULL;
}

/* A reader has passed every writer from w on that stands before `end` (NULL: all). */
static void trad_count_passed(struct trad_server *t, struct trad_client *w,
			      const struct trad_client *end)
{
	for (; w != end; w = trad_at(t->m, w->next))
		w->passed += !trad_is_shared(w->tag);
}

/* Readers hold the lock: lets others in past the writers before them. */
static void trad_let_pass(struct trad_server *t, uint64_t lock)
{
	struct trad_queue *q = trad_queue_of(t->m, lock);
	struct trad_client *w = q && q->readers ? trad_may_pass(t, q) : NULL, *c = w;

	while (c && w->passed < t->readers_pass) {
		struct trad_client *next = trad_at(t->m, c->next);

		if (trad_is_shared(c->tag) && !trad_is_silent(t, c)) {
			if (trad_grant(t, c) != 0)
				return;
			trad_count_passed(t, w, c);
			trad_queue_remove(t->m, c);
			trad_tell_turn(t, c);
		}
		c = next;
	}
}

/* Gives the lock to those that are next, as far as it goes. */
static void trad_advance(struct trad_server *t, uint64_t lock)
{
	struct trad_queue *q;

	vb_served_evict(t->s, t->e, lock, t->now);
	while ((q = trad_queue_of(t->m, lock)) != NULL) {
		struct trad_client *c = trad_at(t->m, q->first);
		bool silent = trad_is_silent(t, c);

		if (!silent && trad_grant(t, c) != 0)
			break;
		trad_queue_remove(t->m, c);
		if (!silent)
			trad_tell_turn(t, c);
		else {
			VB_SOMETIMES(200,
				     "traditional traditional-ro: a silent client is passed over");
			c->answer.err = -ESTALE;
		}
	}
	if (t->readers_pass > 0)
		trad_let_pass(t, lock);
}

/* Grants at once if nobody is before the client, or it may pass them. */
static int trad_grant_now(struct trad_server *t, struct trad_client *c)
{
	struct trad_queue *q;
	struct trad_client *w = NULL;
	int err;

	trad_advance(t, c->lock);
	q = trad_queue_of(t->m, c->lock);
	if (q)
		w = trad_is_shared(c->tag) ? trad_may_pass(t, q) : NULL;
	if (q && !w)
		return -EAGAIN;
	err = trad_grant(t, c);
	if (err == 0 && w)
		trad_count_passed(t, w, NULL);
	return err;
}

static void trad_ask_turn(struct trad_server *t, struct trad_client *c, bool again)
{
	static const struct vb_answer queued = {.err = -EAGAIN};

	if (again && c->waits)
		trad_advance(t, c->lock);
	else if (!again || c->answer.err == -ESTALE) {
		/* It is new, or was passed over because it had been silent for too long. */
		VB_SOMETIMES_IF(
			again, 200,
			"traditional traditional-ro: a client that was passed over is there again");
		c->answer = (struct vb_answer){.err = -EAGAIN};
		if (trad_grant_now(t, c) == 0)
			trad_tell_turn(t, c);
		else
			trad_queue_push(t->m, c);
	} else {
		trad_tell_turn(t, c);
	}
	if (again && c->waits)
		trad_tell(t->s, c->from, c->lock, c->number, TRAD_QUEUED, &queued);
}

static bool trad_may_hold(const struct trad_client *c)
{
	return c->answer.err == 0 && c->tag >= TRAD_ACQUIRE_X && c->tag <= TRAD_LEAVE_S &&
	       c->tag != TRAD_RELEASE_X && c->tag != TRAD_RELEASE_S;
}

/* The client leaves, with what it has been granted or with nothing. */
static void trad_leave(struct trad_server *t, struct trad_client *c, const struct vb_ask *ask)
{
	bool granted = c->number == ask->about && !c->waits && trad_may_hold(c);

	VB_SOMETIMES_IF(granted, 200,
			"traditional traditional-ro: the turn comes before a client can leave");
	if (c->waits)
		trad_queue_remove(t->m, c);
	if (!granted)
		c->answer = (struct vb_answer){.err = -ETIMEDOUT};
}

/* Nobody will use what the client's last request has brought. */
static void trad_withdraw(struct trad_server *t, struct trad_client *c)
{
	if (c->waits)
		trad_queue_remove(t->m, c);
	else if (trad_may_hold(c)) {
		VB_SOMETIMES(200, "traditional traditional-ro: a grant is withdrawn");
		vb_served_take_back(t->e, trad_mode(c), c->answer.ticket);
	}
}

static void trad_forgo(struct trad_server *t, struct trad_client *c, const struct vb_ask *ask)
{
	if (c->number != ask->about || c->tag != TRAD_RENEW_S || c->answer.err != 0)
		return;
	VB_SOMETIMES(2000, "traditional traditional-ro: a renewal is given back");
	vb_served_take_back(t->e, VB_SHARED, c->answer.ticket);
}

/* A new request: c still holds the one before. */
static void trad_begin(struct trad_server *t, struct trad_client *c, uint16_t tag,
		       const struct vb_ask *ask)
{
	if (tag == TRAD_LEAVE_X || tag == TRAD_LEAVE_S)
		trad_leave(t, c, ask);
	else if (tag == TRAD_WITHDRAW && c->lock == ask->lock)
		trad_withdraw(t, c);
	else if (tag == TRAD_FORGO)
		trad_forgo(t, c, ask);
	else if (c->waits) {
		/* It has given up, and its saying so was lost. */
		VB_SOMETIMES(1000, "traditional traditional-ro: a client has left without a word");
		trad_queue_remove(t->m, c);
	}
	c->number = ask->number;
	c->lock = ask->lock;
	c->tag = tag;
	c->heard_ns = t->now;
}

static void trad_do(struct trad_server *t, struct trad_client *c, const struct vb_ask *ask)
{
	switch (c->tag) {
	case TRAD_TRY_X:
	case TRAD_TRY_S:
		c->answer = (struct vb_answer){0};
		c->answer.err = trad_grant_now(t, c);
		break;
	case TRAD_RELEASE_X:
	case TRAD_RELEASE_S:
		c->answer = (struct vb_answer){
			.err = vb_served_take_back(t->e, trad_mode(c), ask->about)};
		trad_advance(t, c->lock);
		break;
	case TRAD_RENEW_X:
	case TRAD_RENEW_S:
		trad_advance(t, c->lock);
		c->answer = (struct vb_answer){
			.err = vb_served_renew(t->s, t->e, trad_mode(c), ask, t->now)};
		c->answer.ticket = t->e->ticket;
		break;
	case TRAD_LEAVE_X:
	case TRAD_LEAVE_S:
	case TRAD_WITHDRAW:
	case TRAD_FORGO:
		trad_advance(t, c->lock);
		break;
	default:
		c->answer = (struct vb_answer){.err = -EINVAL};
	}
}

int trad_server_open(struct vb_lock_server *s)
{
	s->priv = trad_memory_first();
	return s->priv ? 0 : vb_fail(-ENOMEM, "no memory for a lock server");
}

static void trad_refuse(struct vb_lock_server *s, const struct vb_msg *request,
			const struct vb_ask *ask, int err)
{
	struct vb_answer answer = {.err = err};
	struct vb_msg reply = {.len = sizeof(answer)};

	if (request->tag == TRAD_ACQUIRE_X || request->tag == TRAD_ACQUIRE_S) {
		trad_tell(s, request->from, ask->lock, ask->number, TRAD_TURN, &answer);
		return;
	}
	memcpy(reply.data, &answer, sizeof(answer));
	vb_rpc_reply(s->answers, s->ep, request, &reply);
}

static void trad_answer_holder(const struct trad_server *t, const struct vb_msg *request)
{
	struct vb_msg reply = {.len = sizeof(struct vb_answer)};
	struct vb_answer answer;

	vb_served_tell(t->s, t->e, t->now, &answer);
	memcpy(reply.data, &answer, sizeof(answer));
	vb_rpc_reply(t->s->answers, t->s->ep, request, &reply);
}

/* So long that no client that is remembered can be repeating a request, or be waiting. */
static uint64_t trad_keep_ns(const struct vb_lock_space *space)
{
	const struct trad_options *o = space->options;
	uint64_t longest = 2 * o->ask_for;

	return vb_lock_stretch(space, longest > space->lease_ns ? longest : space->lease_ns);
}

void trad_serve(struct vb_lock_server *s, const struct vb_msg *request, uint64_t readers_pass)
{
	struct trad_server t = {
		.s = s, .m = s->priv, .now = vb_ep_now(s->ep), .readers_pass = readers_pass};
	struct vb_msg reply = {.len = sizeof(struct vb_answer)};
	struct trad_client *c;
	struct vb_ask ask;
	bool again;

	if (request->from == VB_PEER_NONE)
		return;
	memcpy(&ask, request->data, sizeof(ask));
	if (request->len != sizeof(ask) || !vb_served_mine(s, ask.lock)) {
		trad_refuse(s, request, &ask, -ENXIO);
		return;
	}
	t.e = vb_local(s->space->fabric, vb_lock_entry(s->space, ask.lock), sizeof(*t.e));
	if (request->tag == TRAD_HOLDER) {
		trad_answer_holder(&t, request);
		return;
	}
	c = trad_client_of(&t.m, request->from, t.now, trad_keep_ns(s->space));
	s->priv = t.m;
	vb_served_room(s, c != NULL);
	if (!c) {
		trad_refuse(s, request, &ask, -EAGAIN);
		return;
	}
	/* The client has asked something newer since: this is a copy that came late. */
	if (ask.number < c->number) {
		VB_SOMETIMES(200, "traditional traditional-ro: a copy after a newer request");
		return;
	}
	again = ask.number == c->number;
	if (!again)
		trad_begin(&t, c, request->tag, &ask);
	if (c->tag == TRAD_ACQUIRE_X || c->tag == TRAD_ACQUIRE_S) {
		c->heard_ns = t.now;
		c->asked_ns = ask.about;
		trad_ask_turn(&t, c, again);
		return;
	}
	if (!again)
		trad_do(&t, c, &ask);
	if (c->tag == TRAD_WITHDRAW || c->tag == TRAD_FORGO)
		return;
	memcpy(reply.data, &c->answer, sizeof(c->answer));
	vb_rpc_reply(s->answers, s->ep, request, &reply);
}

static void trad_serve_fifo(struct vb_lock_server *s, const struct vb_msg *request)
{
	trad_serve(s, request, 0);
}

static void trad_serve_ro(struct vb_lock_server *s, const struct vb_msg *request)
{
	const struct trad_options *o = s->space->options;

	trad_serve(s, request, o->readers_pass);
}

/* ---- the client's side ---- */

static int trad_granted(struct vb_lock_client *me, struct vb_claim *c, const struct vb_answer *a)
{
	const struct vb_lock_space *s = me->space;
	uint64_t drift = vb_lock_stretch(s, a->waited_ns) - a->waited_ns;
	uint64_t waited = a->waited_ns > drift ? a->waited_ns - drift : 0;

	vb_claim_as(struct trad_claim, c)->ticket = a->ticket;
	return vb_lock_grant(c, a->asked_ns + waited + s->lease_ns,
			     c->mode == VB_SHARED ? 0 : a->ticket);
}

/* News of this request: 0 and *answer for a turn, -EAGAIN none. */
static int trad_news(struct vb_lock_client *me, struct vb_claim *c, struct vb_box *box,
		     uint64_t number, uint64_t *heard_ns, struct vb_answer *answer)
{
	struct vb_msg m;

	if (vb_box_take(box, TRAD_QUEUED, &m) == 0 && m.imm == (uint32_t)number) {
		*heard_ns = vb_ep_now(me->ep);
		if (!c->queued)
			vb_lock_mark_queued(me, c);
	}
	if (vb_box_take(box, TRAD_TURN, &m) != 0 || m.imm != (uint32_t)number)
		return -EAGAIN;
	memcpy(answer, m.data, sizeof(*answer));
	return 0;
}

/* Waits for news until then: 0 and *answer, -ETIMEDOUT, -ECANCELED. */
static int trad_hear(struct vb_lock_client *me, struct vb_claim *c, struct vb_box *box,
		     uint64_t number, uint64_t until_ns, uint64_t *heard_ns,
		     struct vb_answer *answer)
{
	int err;

	do {
		err = vb_box_wait(&me->mail, box, 1u << TRAD_TURN | 1u << TRAD_QUEUED, until_ns);
		if (err == 0)
			err = trad_news(me, c, box, number, heard_ns, answer);
	} while (err == -EAGAIN);
	return err;
}

/* One request, from its first copy to its turn: 0 and *answer; -ETIMEDOUT at until_ns, -ECANCELED,
 * -VB_EUNKNOWN: it may stand in the queue, or be granted; -VB_EPEERGONE. */
static int trad_stand(struct vb_lock_client *me, struct vb_claim *c, struct vb_box *box,
		      struct vb_ask *ask, uint64_t until_ns, struct vb_answer *answer)
{
	const struct trad_options *o = me->space->options;
	uint16_t tag = c->mode == VB_SHARED ? TRAD_ACQUIRE_S : TRAD_ACQUIRE_X;
	uint64_t often = me->space->lease_ns / 4, pause = o->ask_again;
	uint64_t now = vb_ep_now(me->ep), heard_ns = now;
	int err;

	for (;; pause *= 2) {
		if (pause > often)
			pause = often;
		ask->about = now;
		err = vb_ask_send(me, tag, ask);
		if (err)
			return err;
		vb_phase(me, VB_PHASE_WP);
		err = trad_hear(me, c, box, ask->number,
				until_ns < now + pause ? until_ns : now + pause, &heard_ns, answer);
		if (err != -ETIMEDOUT)
			return err;
		now = vb_ep_now(me->ep);
		if (now >= until_ns)
			return -ETIMEDOUT;
		if (now - heard_ns >= o->ask_for)
			return -VB_EUNKNOWN;
		me->retries++;
	}
}

/* The deadline has come before any news.  0 and *answer: the turn came before that. */
static int trad_go(struct vb_lock_client *me, const struct vb_claim *c, const struct vb_ask *ask,
		   struct vb_answer *answer)
{
	const struct trad_options *o = me->space->options;
	uint16_t tag = c->mode == VB_SHARED ? TRAD_LEAVE_S : TRAD_LEAVE_X;
	struct vb_ask leave = {
		.lock = ask->lock,
		.number = ++me->mail.next_request,
		.about = ask->number,
	};

	return vb_ask(me, tag, &leave, 0, o->ask_for, answer);
}

static int trad_turn(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	struct vb_ask ask = {.lock = c->lock, .number = ++me->mail.next_request};
	struct vb_answer answer;
	struct vb_box box;
	int err;

	vb_box_open(&me->mail, &box, c->entry);
	err = trad_stand(me, c, &box, &ask, until_ns, &answer);
	vb_box_close(&box);
	/* A deadline shorter than the way to the server and back says nothing about the lock.  A
	 * client that has heard that it stands in the queue need not ask. */
	if (err == -ETIMEDOUT && !c->queued)
		err = trad_go(me, c, &ask, &answer);
	/* Nothing is left in our name, or not for long. */
	c->queued = false;
	if (err) {
		if (err != -VB_EPEERGONE || vb_ep_cut_off(me->ep))
			vb_ask_forgo(me, TRAD_WITHDRAW, &ask);
		return err;
	}
	if (answer.err == -ENXIO) {
		vb_lock_server_forget(me->space, (uint16_t)(c->lock % me->space->servers));
		return -EAGAIN;
	}
	return answer.err ? (int)answer.err : trad_granted(me, c, &answer);
}

int trad_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	struct vb_backoff b = {.base_ns = 1000, .cap_ns = 1000000};
	int err;

	/* Refused only by a server that has no room for one more client, or is not the lock's. */
	while ((err = trad_turn(me, c, until_ns)) == -EAGAIN) {
		vb_phase(me, VB_PHASE_RT);
		err = vb_backoff_wait(me, &b, until_ns);
		if (err)
			break;
		me->retries++;
	}
	return err;
}

int trad_try(struct vb_lock_client *me, struct vb_claim *c)
{
	const struct trad_options *o = me->space->options;
	struct vb_ask ask = {.lock = c->lock, .number = ++me->mail.next_request};
	uint16_t tag = c->mode == VB_SHARED ? TRAD_TRY_S : TRAD_TRY_X;
	uint64_t before = vb_ep_now(me->ep);
	struct vb_answer answer;
	int err = vb_ask(me, tag, &ask, 0, o->ask_for, &answer);

	if (err) {
		if (err != -VB_EPEERGONE || vb_ep_cut_off(me->ep))
			vb_ask_forgo(me, TRAD_WITHDRAW, &ask);
		return err;
	}
	if (answer.err)
		return (int)answer.err;
	answer.asked_ns = before;
	answer.waited_ns = 0;
	return trad_granted(me, c, &answer);
}

int trad_renew(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	const struct trad_options *o = me->space->options;
	const struct vb_renewal r = {
		.tag = c->mode == VB_SHARED ? TRAD_RENEW_S : TRAD_RENEW_X,
		.forgo = TRAD_FORGO,
		.leave = TRAD_RELEASE_S,
		.ask_for_ns = o->ask_for,
	};

	return vb_ask_renew(me, c, &r, until_ns, &vb_claim_as(struct trad_claim, c)->ticket);
}

int trad_holder(struct vb_lock_client *me, uint64_t lock, struct vb_holder *out)
{
	const struct trad_options *o = me->space->options;

	return vb_ask_holder(me, TRAD_HOLDER, lock, o->ask_for, out);
}

int trad_release(struct vb_lock_client *me, struct vb_claim *c)
{
	const struct trad_options *o = me->space->options;
	struct vb_ask ask = {
		.lock = c->lock,
		.number = ++me->mail.next_request,
		.about = vb_claim_as(struct trad_claim, c)->ticket,
	};
	uint16_t tag = c->mode == VB_SHARED ? TRAD_RELEASE_S : TRAD_RELEASE_X;
	struct vb_answer answer;
	int err = vb_ask_release(me, tag, &ask, o->ask_for, &answer);

	/* Without an answer the server may have heard us or not; the lease ends the grant
	 * anyway. */
	if (err || answer.err == -EAGAIN)
		return -VB_EUNKNOWN;
	return (int)answer.err;
}

/* Once in the queue, only readers pass, and only writers are passed. */
static unsigned trad_bypass(unsigned clients, enum vb_mode mode)
{
	(void)clients, (void)mode;
	return 0;
}

static unsigned trad_ro_bypass(unsigned clients, enum vb_mode mode)
{
	(void)clients;
	return mode == VB_SHARED ? 0 : TRAD_READERS_PASS;
}

static unsigned trad_ro_bypass_of(const struct vb_lock_space *s, unsigned clients,
				  enum vb_mode mode)
{
	const struct trad_options *o = s->options;

	(void)clients;
	return mode == VB_SHARED ? 0 : (unsigned)o->readers_pass;
}

const struct vb_lock_ops vb_lock_traditional = {
	.name = "traditional",
	.summary = "the server's CPU keeps a FIFO queue for each lock",
	.source = "DSLR, section 6.1 (Traditional)",
	TRAD_LOCK,
	.options = trad_options,
	.bypass_bound = trad_bypass,
	.server_open = trad_server_open,
	.serve = trad_serve_fifo,
};

const struct vb_lock_ops vb_lock_traditional_ro = {
	.name = "traditional-ro",
	.summary = "the same, and readers pass waiting writers, a few of them",
	.source = "DSLR, section 6.4 (Traditional_RO)",
	TRAD_LOCK,
	.options = trad_ro_options,
	.bypass_bound = trad_ro_bypass,
	.bypass_bound_of = trad_ro_bypass_of,
	.server_open = trad_server_open,
	.serve = trad_serve_ro,
};
