/* SPDX-License-Identifier: Apache-2.0 */
/*
 * N-CoSED: a distributed queue of writers, and behind each the readers that came after it
 * (Narravula et al., CCGrid 2007; DSLR, section 6, system 4, and section 7).
 *
 *	 63            48 47               24 23          17 16                0
 *	+----------------+-------------------+--------------+------------------+
 *	| tail node + 1  | tail client       | tail's claim | shared requests  |   word
 *	+----------------+-------------------+--------------+------------------+
 *	| readers of the group before the first writer that have left          |   left
 *	+----------------------------------------------------------------------+
 *	  word 0 = free     tail: the last writer in the queue, 0 = no writer
 *
 *   exclusive  acquire    uncontended 1 CAS       contended 1 CAS per attempt to enqueue; behind a
 *                                                 writer 1 SEND, then waits locally; behind
 *                                                 readers READs and 1 CAS
 *              release    uncontended 1 CAS       contended 1 SEND to each reader and to the next
 *                                                 writer, after a failed CAS where that was not
 *                                                 known yet
 *   shared     acquire    uncontended 1 FAA       behind a writer 1 SEND, then waits locally
 *              release    uncontended 1 CAS       contended 1 CAS per attempt, then 1 FAA if a
 *                                                 writer waits
 *
 *   REGISTER   reader to the writer before it: I am in your group
 *   SUCCESSOR  writer to the writer before it: I stand behind you, and so many readers in between
 *   GRANT      to a reader of the group
 *   YOURS      to the next writer: I have left (which readers are in between it knows itself)
 *
 * The readers that come while the tail is the same are a *group*; its size is in the word.  While
 * the tail is 0 the group is *open*: its readers hold, enter by FAA, and leave by a CAS that
 * counts them out.  A writer enqueues with a CAS that compares the whole word, so it knows how
 * many readers stand before it, and *closes* their group: a reader that leaves it from now on
 * counts in `left`.  The writer waits for YOURS, if there is a writer before it, and then until
 * all of the group have left.
 *
 * A writer that releases and finds itself the tail lets its group open: (self, n) becomes (0, n),
 * and all n are granted.  One that is not the tail has a successor, which says how large the group
 * is; it grants the group and says YOURS.  Either way it waits until all n have registered: between
 * a reader's FAA and its message lies a moment.
 *
 * `left` belongs to one group at a time.  A group is closed only when the one before it has left,
 * and the writer in between sets `left` back to 0 before it holds.
 *
 *   Promises   shared and exclusive, FIFO: no later client passes one that has enqueued.  Does not
 *              survive the death of a holder or waiter: the clients behind the dead one wait for
 *              ever.
 *
 * Departs from the papers, which print the word and the verbs but not the algorithm (why:
 * doc/locks/ncosed.md):
 *   - no process answers for a node at any time: a writer's name leaves the word with the writer;
 *   - readers that leave a closed group are counted in a second word, where the writer looks;
 *   - a name has 40 bits (the papers' 32), the number of a claim 7, the count 17;
 *   - a client that gives up stays as a proxy;
 *   - messages bear the number of the claim and are sent again until they have arrived;
 *   - a release that waits for REGISTER or SUCCESSOR gives up after `successor_wait`;
 *   - a lost answer to an FAA, or to a CAS that counts in or out, cannot be looked into.
 */
#define VB_LOG_ROOM "lock"
#include "lock/ncosed.h"

#include <errno.h>
#include <inttypes.h>

#include "base/log.h"
#include "base/sometimes.h"
#include "lock/handover.h"

#define NC_COUNT_BITS  17
#define NC_COUNT_MASK  ((1ull << NC_COUNT_BITS) - 1)
#define NC_NUMBER_BITS 7
#define NC_NUMBER_MASK ((1u << NC_NUMBER_BITS) - 1)
#define NC_NAME_SHIFT  (NC_COUNT_BITS + NC_NUMBER_BITS)
/* Byte offset of `left` in the entry. */
#define NC_LEFT 8
/* GRANTs in one doorbell. */
#define NC_GRANTS 16
/* How often a reader that tries may lose against other readers. */
#define NC_TRY_ROUNDS 4

_Static_assert(NC_NAME_SHIFT + VB_PEER_CLIENT_BITS + 16 == 64, "name, number, count fill the word");

enum nc_tag { NC_REGISTER = 0, NC_SUCCESSOR = 1, NC_GRANT = 2, NC_YOURS = 3 };

enum nc_stage {
	/* Tell the writer before us that we are here. */
	NC_TELL,
	/* Wait for its GRANT or YOURS. */
	NC_HEAR,
	/* Writer: wait until the readers before us have left. */
	NC_DRAIN,
};

/* The data of REGISTER and SUCCESSOR.  A pile keeps the first 8 bytes. */
struct nc_hello {
	/* The number of the sender's claim: the answer's imm. */
	uint32_t number;
	/* The number of the claim it is meant for, as in the word. */
	uint8_t to;
	/* It may be a copy of one that has come before. */
	uint8_t again;
	uint16_t reserved;
	/* SUCCESSOR: how many readers are between the two writers. */
	uint64_t readers;
};

const struct vb_opt ncosed_option_table[] = {
	VB_OPT_TIME(struct ncosed_options, successor_wait_ns, "successor_wait", "1s", 1000000,
		    3600ull * 1000000000,
		    "how long a release waits for the messages of clients that it knows are there"),
	VB_OPT_END,
};

struct nc_claim {
	/* Reader: the word that leaving expects, while the group is open. */
	uint64_t word;
	/* The writer before us, name and number. */
	uint64_t prev;
	/* Writer: how many readers are before us, which the entry's `left` is to reach. */
	uint64_t left;
	uint32_t number;
	uint8_t stage;
	/* Reader: the group is known to be closed. */
	bool closed;
	/* The answer to what this stage does was lost. */
	bool unsure;
};

/* The last writer, name and number; 0: none. */
static inline uint64_t nc_tail(uint64_t word)
{
	return word >> NC_COUNT_BITS;
}

static inline vb_peer nc_peer(uint64_t tail)
{
	return tail >> NC_NUMBER_BITS;
}

static inline uint64_t nc_count(uint64_t word)
{
	return word & NC_COUNT_MASK;
}

/* The word of a writer with nobody behind it. */
static inline uint64_t nc_self(const struct vb_lock_client *me, const struct nc_claim *g)
{
	return me->ep->self << NC_NAME_SHIFT | (uint64_t)(g->number & NC_NUMBER_MASK)
						       << NC_COUNT_BITS;
}

static uint64_t patience(const struct vb_lock_client *me)
{
	const struct ncosed_options *o = me->space->options;

	return vb_ep_now(me->ep) + vb_lock_wait_least(me->space, o->successor_wait_ns);
}

/* ---- messages ---- */

/* REGISTER or SUCCESSOR. */
static int nc_tell_prev(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	struct nc_claim *g = vb_claim_as(struct nc_claim, c);
	bool shared = c->mode == VB_SHARED;
	uint8_t to = g->prev & NC_NUMBER_MASK;
	struct nc_hello h = {.number = g->number, .to = to, .again = g->unsure, .readers = g->left};
	struct vb_msg m = {.subject = c->entry,
			   .tag = shared ? NC_REGISTER : NC_SUCCESSOR,
			   .imm = (uint32_t)to << (32 - NC_NUMBER_BITS),
			   .len = sizeof(h)};
	const struct vb_handover_answer answer = {.tag = shared ? NC_GRANT : NC_YOURS,
						  .imm = g->number};
	int err;

	vb_phase(me, VB_PHASE_NP);
	memcpy(m.data, &h, sizeof(h));
	err = vb_handover_send(me, c, nc_peer(g->prev), &m,
			       &m.data[offsetof(struct nc_hello, again)], &answer, until_ns);
	/* The proxy that goes on with it does not know what has arrived. */
	g->unsure = err == -ETIMEDOUT;
	return err;
}

/* GRANT or YOURS, to this very claim. */
static int nc_hear(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	struct nc_claim *g = vb_claim_as(struct nc_claim, c);
	uint16_t tag = c->mode == VB_SHARED ? NC_GRANT : NC_YOURS;
	struct vb_msg m;
	int err;

	vb_phase(me, VB_PHASE_WP);
	do {
		err = vb_box_wait(&me->mail, &c->box, 1u << tag, until_ns);
		if (err == 0)
			err = vb_box_take(&c->box, tag, &m);
		if (err)
			return err;
	} while (m.imm != g->number);
	memcpy(&g->word, m.data, sizeof(g->word));
	return 0;
}

/* ---- waiting ---- */

/*
 * Until all readers before us have left, and `left` is 0 again: nobody touches it any more until
 * the group behind us is closed.
 */
static int nc_drain(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	struct nc_claim *g = vb_claim_as(struct nc_claim, c);
	unsigned refused = 0;
	uint64_t left, seen;

	vb_phase(me, VB_PHASE_WR);
	for (;;) {
		int err = vb_read64(me->ep, c->entry + NC_LEFT, &left);

		if (err == 0 && g->unsure && left == 0) {
			VB_SOMETIMES(1000,
				     "ncosed: readers counted away although the answer was lost");
			return 0;
		}
		if (err == 0 && left == g->left) {
			err = vb_cas64(me->ep, c->entry + NC_LEFT, left, 0, &seen);
			if (err == 0)
				return 0;
			g->unsure = err == -VB_EUNKNOWN;
		}
		if (err == -VB_EUNKNOWN)
			vb_lock_let_land(me);
		else if (err && !vb_lock_ask_again(me, err, &refused))
			return vb_lock_unknown_if_refused(err);
		refused = err == 0 ? 0 : refused;
		me->retries++;
		err = vb_poll_rest(me, until_ns);
		if (err)
			return err;
	}
}

/* A deadline may come at any stage; the proxy goes on there. */
int ncosed_resume(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	const struct ncosed_options *o = me->space->options;
	struct nc_claim *g = vb_claim_as(struct nc_claim, c);
	int err = 0;

	/* A dead writer before us changes nothing: those behind us know only us. */
	if (g->stage == NC_TELL) {
		if (nc_tell_prev(me, c, until_ns) == -ETIMEDOUT)
			return -ETIMEDOUT;
		g->unsure = false;
		g->stage = NC_HEAR;
	}
	if (g->stage == NC_HEAR) {
		err = nc_hear(me, c, until_ns);
		if (err)
			return err;
		g->stage = NC_DRAIN;
		g->closed = nc_tail(g->word) != 0;
	}
	if (c->mode == VB_EXCLUSIVE && g->left != 0 && !o->hasty)
		err = nc_drain(me, c, until_ns);
	if (err == -ETIMEDOUT || err == -ECANCELED)
		return err;
	c->queued = false;
	return err ? err : vb_lock_grant(c, VB_FOREVER_NS, 0);
}

/* ---- acquire ---- */

static void nc_begin(struct vb_lock_client *me, struct vb_claim *c)
{
	struct nc_claim *g = vb_claim_as(struct nc_claim, c);

	*g = (struct nc_claim){.number = (uint32_t)++me->mail.next_request};
	if (c->mode == VB_EXCLUSIVE)
		vb_box_pile_up(&c->box, NC_REGISTER);
}

/* Repeats until nobody has changed the word between the look at it and the CAS. */
static int nc_enqueue(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	struct nc_claim *g = vb_claim_as(struct nc_claim, c);
	uint64_t expect = 0, seen;

	for (;;) {
		bool unsure = false;
		int err = vb_lock_change(me, c->entry, expect, nc_self(me, g), &seen, &unsure);

		if (err)
			return err;
		if (seen == expect || (unsure && nc_tail(seen) == nc_tail(nc_self(me, g))))
			break;
		/* It may have been done, and somebody has enqueued behind us since: then the lock
		 * is lost. */
		if (unsure) {
			VB_SOMETIMES(200, "ncosed: a claim that may have enqueued");
			return -VB_EUNKNOWN;
		}
		expect = seen;
		err = vb_poll_pause(me, until_ns);
		if (err)
			return err;
		me->retries++;
	}
	if (expect == 0)
		return vb_lock_grant(c, VB_FOREVER_NS, 0);
	g->prev = nc_tail(expect);
	g->left = nc_count(expect);
	return -EAGAIN;
}

static int nc_join(struct vb_lock_client *me, struct vb_claim *c)
{
	struct nc_claim *g = vb_claim_as(struct nc_claim, c);
	uint64_t old;
	int err = vb_lock_faa(me, c->entry, 1, &old);

	if (err)
		return err;
	vb_assert(nc_count(old) != NC_COUNT_MASK);
	g->word = old + 1;
	g->prev = nc_tail(old);
	return g->prev == 0 ? vb_lock_grant(c, VB_FOREVER_NS, 0) : -EAGAIN;
}

int ncosed_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	struct nc_claim *g = vb_claim_as(struct nc_claim, c);
	int err;

	nc_begin(me, c);
	err = c->mode == VB_SHARED ? nc_join(me, c) : nc_enqueue(me, c, until_ns);
	if (err != -EAGAIN)
		return err;
	/* From here on we cannot simply leave: we are counted, or those behind us look for us. */
	vb_lock_mark_queued(me, c);
	g->stage = g->prev == 0 ? NC_DRAIN : NC_TELL;
	return ncosed_resume(me, c, until_ns);
}

int ncosed_try(struct vb_lock_client *me, struct vb_claim *c)
{
	struct nc_claim *g = vb_claim_as(struct nc_claim, c);
	uint64_t word, seen;
	int err;

	nc_begin(me, c);
	if (c->mode == VB_EXCLUSIVE) {
		bool unsure = false;

		err = vb_lock_change(me, c->entry, 0, nc_self(me, g), &seen, &unsure);
		if (err)
			return err;
		if (seen == 0 || (unsure && nc_tail(seen) == nc_tail(nc_self(me, g))))
			return vb_lock_grant(c, VB_FOREVER_NS, 0);
		return unsure ? -VB_EUNKNOWN : -EAGAIN;
	}
	err = vb_read64(me->ep, c->entry, &word);
	for (unsigned i = 0; err == 0 && i < NC_TRY_ROUNDS && nc_tail(word) == 0; i++) {
		err = vb_lock_refusal(
			vb_cas64_before(me->ep, c->entry, word, word + 1, VB_FOREVER, &seen));
		if (err == 0 && seen == word) {
			g->word = word + 1;
			return vb_lock_grant(c, VB_FOREVER_NS, 0);
		}
		word = seen;
		me->retries++;
	}
	return err ? err : -EAGAIN;
}

/* ---- release ---- */

static int nc_broken(const struct vb_claim *c, uint64_t seen)
{
	return vb_fail(-VB_ELOST,
		       "lock %" PRIu64 ": the word was %016" PRIx64
		       " when a holder gave it back; somebody else wrote to the lock word",
		       c->lock, seen);
}

/* Counts us out of the open group; or, if a writer has closed it meanwhile, into `left`. */
static int nc_leave(struct vb_lock_client *me, struct vb_claim *c)
{
	struct nc_claim *g = vb_claim_as(struct nc_claim, c);
	uint64_t seen;

	while (!g->closed) {
		/* Each failure is another's success.  A lost answer cannot be looked into: counts
		 * have no names. */
		unsigned refused = 0;
		int err;

		do
			err = vb_lock_refusal(vb_cas64_before(me->ep, c->entry, g->word,
							      g->word - 1, VB_FOREVER, &seen));
		while (vb_lock_ask_again(me, err, &refused));
		if (err || seen == g->word)
			return err;
		if (seen == 0)
			return nc_broken(c, seen);
		VB_SOMETIMES_IF(nc_tail(seen) != 0, 200,
				"ncosed: a writer closes the group while a reader leaves");
		g->closed = nc_tail(seen) != 0;
		g->word = seen;
		me->retries++;
	}
	return vb_lock_add(me, c->entry + NC_LEFT, 1, &seen);
}

/* The writer behind us, if it has told this very claim. */
static bool nc_find_successor(struct vb_claim *c, vb_peer *peer, struct nc_hello *h)
{
	struct nc_claim *g = vb_claim_as(struct nc_claim, c);
	struct vb_msg m;

	if (vb_box_take(&c->box, NC_SUCCESSOR, &m) != 0)
		return false;
	*peer = m.from;
	memcpy(h, m.data, sizeof(*h));
	return h->to == (g->number & NC_NUMBER_MASK);
}

static int nc_await_successor(struct vb_lock_client *me, struct vb_claim *c, vb_peer *peer,
			      struct nc_hello *h)
{
	uint64_t until_ns = patience(me);
	int err;

	do
		err = vb_box_wait(&me->mail, &c->box, 1u << NC_SUCCESSOR, until_ns);
	while (err == 0 && !nc_find_successor(c, peer, h));
	return err;
}

/* Where the very same REGISTER lies in the pile, before `at`; at: nowhere. */
static uint32_t nc_find_same(const struct vb_box *box, uint32_t at, const struct vb_piled *p)
{
	uint32_t number, other, i;

	memcpy(&number, &p->word, sizeof(number));
	for (i = 0; i < at; i++) {
		memcpy(&other, &box->pile[i].word, sizeof(other));
		if (box->pile[i].from == p->from && other == number)
			break;
	}
	return i;
}

/* The next reader that has registered with this claim and was not granted yet.  0 or -EAGAIN. */
static int nc_next_reader(struct vb_claim *c, vb_peer *peer, uint32_t *number)
{
	struct nc_claim *g = vb_claim_as(struct nc_claim, c);
	struct vb_piled p;

	while (vb_box_take_piled(&c->box, &p) == 0) {
		uint32_t at = c->box.taken - 1, seen = 0;
		struct nc_hello h;

		memcpy(&h, &p.word, sizeof(p.word));
		if (h.to != (g->number & NC_NUMBER_MASK))
			continue;
		/* A copy comes after what it is a copy of. */
		if (h.again)
			seen = nc_find_same(&c->box, at, &p);
		if (h.again && seen < at) {
			VB_SOMETIMES(200, "ncosed: a copy of a reader that has registered");
			continue;
		}
		*peer = p.from;
		*number = h.number;
		return 0;
	}
	return -EAGAIN;
}

/*
 * Lets our group open if we are the tail.  0 and *word: what it became, (0, n).  -EAGAIN: a writer
 * stands behind us.  Nobody but us takes our name away without leaving another.  *unsure: it may
 * have been done, although another writer's name is there now.
 */
static int nc_open_group(struct vb_lock_client *me, struct vb_claim *c, uint64_t *word,
			 bool *unsure)
{
	struct nc_claim *g = vb_claim_as(struct nc_claim, c);
	uint64_t expect = nc_self(me, g) | vb_box_piled(&c->box), seen;

	for (;;) {
		int err;

		*unsure = false;
		*word = nc_count(expect);
		err = vb_lock_change_back(me, c->entry, expect, *word, &seen, unsure);
		if (err || seen == expect)
			return err;
		if (nc_tail(seen) != nc_tail(expect))
			return *unsure && nc_tail(seen) == 0 ? 0 : -EAGAIN;
		/* More readers have come; what was asked before has not been done. */
		VB_SOMETIMES(200, "ncosed: readers come while a writer lets its group open");
		expect = seen;
		me->retries++;
	}
}

/* GRANT or YOURS, for as long as a release has patience. */
static int nc_deliver(struct vb_lock_client *me, struct vb_claim *c, vb_peer to, struct vb_msg *m,
		      uint8_t *again)
{
	int err = vb_handover_send(me, c, to, m, again, NULL, patience(me));

	if (err == -ETIMEDOUT)
		vb_error("lock %" PRIu64 ": client %" PRIx64 ", next in its queue, has had no room "
			 "for a message for `successor_wait`",
			 c->lock, to);
	return err ? -VB_EUNKNOWN : 0;
}

/* GRANTs those of our group that have registered by now, at most `most`; how many, or -error. */
static int nc_grant_some(struct vb_lock_client *me, struct vb_claim *c, uint64_t word,
			 uint64_t most)
{
	struct vb_verb verbs[NC_GRANTS];
	struct vb_msg msgs[NC_GRANTS];
	uint32_t number;
	unsigned n = 0;
	vb_peer reader;
	int err = 0;

	while (n < NC_GRANTS && n < most && nc_next_reader(c, &reader, &number) == 0) {
		msgs[n] = (struct vb_msg){
			.subject = c->entry, .tag = NC_GRANT, .imm = number, .len = sizeof(word)};
		memcpy(msgs[n].data, &word, sizeof(word));
		verbs[n] = (struct vb_verb){
			.op = VB_OP_SEND, .flags = VB_SIGNALLED, .peer = reader, .msg = &msgs[n]};
		n++;
	}
	if (n == 0)
		return 0;
	vb_post_wait(me->ep, verbs, n);
	for (unsigned i = 0; i < n; i++) {
		uint8_t again = verbs[i].status == -VB_EUNKNOWN;

		if (verbs[i].status != 0 && nc_deliver(me, c, verbs[i].peer, &msgs[i], &again) != 0)
			err = -VB_EUNKNOWN;
	}
	return err ? err : (int)n;
}

/* GRANTs all n of our group, as they register. */
static int nc_grant_all(struct vb_lock_client *me, struct vb_claim *c, uint64_t word, uint64_t n)
{
	uint64_t until_ns;

	if (n == 0)
		return 0; /* without a look at the clock */
	until_ns = patience(me);
	while (n > 0) {
		int some;

		if (vb_box_wait(&me->mail, &c->box, 1u << NC_REGISTER, until_ns) != 0)
			return vb_fail(-VB_EUNKNOWN,
				       "lock %" PRIu64 " is lost to writers: %" PRIu64
				       " readers that are counted in it have not shown themselves",
				       c->lock, n);
		some = nc_grant_some(me, c, word, n);
		if (some < 0)
			return some;
		n -= (uint64_t)some;
	}
	return 0;
}

static int nc_hand_over(struct vb_lock_client *me, struct vb_claim *c, vb_peer next,
			const struct nc_hello *h)
{
	struct nc_claim *g = vb_claim_as(struct nc_claim, c);
	/* Any word with a tail in it tells our readers that their group is closed. */
	int err = nc_grant_all(me, c, nc_self(me, g), h->readers);
	struct vb_msg m = {
		.subject = c->entry, .tag = NC_YOURS, .imm = h->number, .len = sizeof(uint64_t)};

	vb_phase(me, VB_PHASE_NS);
	return nc_deliver(me, c, next, &m, NULL) ? -VB_EUNKNOWN : err;
}

static int nc_release_exclusive(struct vb_lock_client *me, struct vb_claim *c)
{
	struct nc_hello h;
	bool unsure = false;
	uint64_t word = 0;
	vb_peer next;
	int err;

	vb_mail_sort(&me->mail);
	if (!VB_CHANCE(200, "ncosed: does not look for its successor first") &&
	    nc_find_successor(c, &next, &h))
		return nc_hand_over(me, c, next, &h);
	err = nc_open_group(me, c, &word, &unsure);
	vb_phase(me, VB_PHASE_NS);
	if (err == 0)
		return nc_grant_all(me, c, word, nc_count(word));
	if (err != -EAGAIN)
		return err;
	/* A writer has enqueued behind us, and its message is still on its way. */
	if (nc_await_successor(me, c, &next, &h) == 0)
		return nc_hand_over(me, c, next, &h);
	/* A CAS whose answer was lost may have opened the group, and a writer has come since: then
	 * it does not stand behind us, and the group is ours to grant all the same. */
	if (unsure) {
		VB_SOMETIMES(5000, "ncosed: a group opened although the answer was lost");
		return nc_grant_all(me, c, word, nc_count(word)) ? -VB_EUNKNOWN : 0;
	}
	return vb_fail(-VB_EUNKNOWN,
		       "lock %" PRIu64
		       " is lost: the writer next in its queue has not shown itself, it must have "
		       "died",
		       c->lock);
}

int ncosed_release(struct vb_lock_client *me, struct vb_claim *c)
{
	return c->mode == VB_SHARED ? nc_leave(me, c) : nc_release_exclusive(me, c);
}

/* A writer that nobody has come behind. */
static int ncosed_release_now(struct vb_lock_client *me, struct vb_claim *c)
{
	const uint64_t self = nc_self(me, vb_claim_as(struct nc_claim, c));
	bool unsure = false;
	uint64_t seen;
	int err;

	if (c->mode == VB_SHARED)
		return nc_leave(me, c);
	vb_mail_sort(&me->mail);
	if (c->box.full != 0)
		return -EINPROGRESS;
	err = vb_lock_change_back(me, c->entry, self, 0, &seen, &unsure);
	return err == 0 && seen != self ? -EINPROGRESS : err;
}

/* Nobody passes a client that is enqueued or counted. */
unsigned ncosed_bypass_bound(unsigned clients, enum vb_mode mode)
{
	return 0;
}

const struct vb_lock_ops vb_lock_ncosed = {
	.name = "ncosed",
	.summary = "FIFO queue of writers with groups of readers, handed over client to client",
	.source = "N-CoSED, CCGrid 2007; DSLR, section 6 (4)",
	.caps = VB_LOCK_SHARED | VB_LOCK_EXCLUSIVE | VB_LOCK_FIFO | VB_LOCK_MESSAGES |
		VB_LOCK_LEAVE_RACES,
	.needs = VB_CAP_SEND,
	.entry_bytes = 16,
	.options = ncosed_option_table,
	.options_size = sizeof(struct ncosed_options),
	.verbs_uncontended = "X: 1 CAS + 1 CAS, S: 1 FAA + 1 CAS",
	.verbs_contended = "X: 1 CAS per attempt + 2 SEND, READs + 1 CAS behind readers; "
			   "S: 1 FAA + 2 SEND + 1 FAA",
	.bypass_bound = ncosed_bypass_bound,
	.acquire = ncosed_acquire,
	.resume = ncosed_resume,
	.try_acquire = ncosed_try,
	.release = ncosed_release,
	.release_now = ncosed_release_now,
};
