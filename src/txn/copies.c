/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of a place's log on other nodes (vb_db_params.copies), which outlive the place's own node, its *home*.
 *
 * Copy i of a place lies on the i-th node behind its home, round the ring.  It looks like the place (struct
 * vb_place_head, log), but for its first word, which takes the status word's part when the home is gone:
 *
 *	63                    18 17   6 5      3    2      1     0
 *	+----------------------+-------+---------+--------+-------+
 *	| clock of the name    | 0     | counted | sealed | state |      0: nothing yet
 *	+----------------------+-------+---------+--------+-------+
 *
 *	older      an earlier name, or nothing: the transaction has not come here
 *	logged     its log is here, whole.  counted: a bit for each copy that its commit waits for
 *	final      it has happened            sealed: ... and so it stays: nothing of this place comes here any more
 *	withdrawn  it never will
 *
 * A commit, between the log and the commit point:
 *
 *	to each copy, one doorbell    WRITE the log, its length and its seal; CAS older -> logged
 *	all of them have answered     commit point: CAS of the status word at home
 *
 * The CAS comes behind the WRITE, so who finds `logged` finds the log.  It expects the word that the coordinator
 * has last put there: whoever changes the word first has the last say.  That is the fence: a coordinator that was
 * only cut off, and runs on, commits nothing that others have decided without it, and what it has committed they
 * find `logged` at every copy that counts.
 *
 * A copy whose node is gone (vb_node_gone) is not waited for: it does not count.  If it went on the way, those that
 * have the log get it once more, with fewer that count; so whoever had decided by the one that is gone, and was about
 * to tell the others, finds other words than it has read.  If all copies are gone a place is as if there were none.
 *
 * Whose home is gone is *sealed* by whoever meets one of its locks.  The copies are read, twice, so that those that
 * answer were there together: what one says that is gone is nothing to the others any more.  Those that count are all
 * that the words of the latest name count, if that is logged or final.  Of them
 *
 *	one is sealed                all say what that one says, the first of them; but if that is final, and
 *	                             another is withdrawn, or sealed with an older name: sealed withdrawn
 *	all are logged               sealed final, each in the order of the copies
 *	else                         sealed withdrawn: first those that are older, for with them the coordinator
 *	                             cannot commit any more; then the others, in their order
 *
 * and from the beginning if a word is another than the one that was read, or its copy gone.  Nothing is done by that before all
 * copies that are there say the same.  Two that seal meet at the first copy that both find there, and the second
 * takes over what it finds; what one has left half done counts for nothing as long as nobody has acted.
 *
 * Where the home is there, its status word comes first, as ever; but `recovered` there is not the end: before a
 * lock is set back the name is *withdrawn* from the copies in the same way, without sealing them, and if it is
 * sealed as final it has happened after all.  So does the coordinator whose commit point fails behind its copies.
 * A home that has gone since it said so is no reason to believe it: its place is sealed, as if it had said nothing.
 *
 * Where writes are in place before it is decided (VB_CC_INSTALLS) the log undoes them, and the commit goes to the
 * copies twice: before the first install, as above, and before the commit point
 *
 *	to each copy, one doorbell    CAS logged -> final, unsealed
 *
 * Who seals then asks for `final` where he else asks for `logged`: what is logged has not happened, and is undone from
 * the copy.  The same goes for which are sealed first.  Those who finish something for others (vb_ts_mends) have
 * nothing in place before it is decided, and log as all do.  A transaction that ends undoes what it has installed by
 * WRITEs for which only the time is a fence (txn/install.c): so before that it withdraws its name from the copies, and
 * who seals later comes later.  If one is sealed already it leaves the lock words to who takes them first, as others
 * do.
 *
 * What is written: no more than one log for each place, in an area as large.  A place is named anew when all that
 * its last transaction wrote is in place (vb_lane_settle); the next log takes the room of the last.  A verb to a
 * copy whose answer was lost is waited out before.
 *
 * What is relied on: a node that is taken for gone never answers others again as a copy.  For the home that is not
 * needed.  And who lives at the node may go on, and has a copy more than the others:
 *
 *	A logs at 0 and 1.  Node 0 is taken for gone.  B, who is there, seals: 0 final
 *	C, who still sees the home, withdraws: 1 withdrawn, and acts by that
 *	B finds another word at 1 than it has read, and looks again
 *
 * What they have in common decides: 1 was logged when B read it, so 0 is only final because B was late at 1.  Among
 * those who see the same copies a final one is never beside one that is withdrawn, for both would have begun with the
 * same copy.
 */
#define VB_LOG_ROOM "txn"
#include "base/log.h"
#include "base/sometimes.h"
#include "txn/copies.h"

#define LOOKS  16u /* at copies that change while we decide */
#define PAUSES 16u /* in a verb bound, between two tries of a log */
#define VERBS  16u /* in a doorbell */
#define SEAL   UINT64_MAX

static uint64_t clock_in(uint64_t word)
{
	return word >> (VB_TS_PLACE_SHIFT + VB_TS_PLACE_BITS);
}

static uint64_t word_of(uint64_t ts, uint64_t state)
{
	return vb_ts_make(vb_ts_clock(ts), 0) | state;
}

static enum copy_state state_of(uint64_t word)
{
	return word & COPY_STATE;
}

/* Whose name is in no lock word before it has committed. */
static bool is_mender(uint32_t place)
{
	return vb_ts_mends(vb_ts_make(0, place));
}

static uint16_t home_of(const struct vb_db *db, uint32_t place)
{
	return (uint16_t)(place / VB_PLACES_EACH / db->coordinators);
}

bool vb_copies_home_gone(const struct vb_db *db, uint16_t self, uint32_t place)
{
	return db->copies != 0 && home_of(db, place) != self &&
	       vb_node_gone(db->fabric, home_of(db, place));
}

/* Of a verb to the copy. */
static bool is_gone(const struct vb_db *db, uint32_t place, unsigned i, int err)
{
	return err == -VB_EACCESS ||
	       (err == -VB_EPEERGONE &&
		vb_node_gone(db->fabric, vb_addr_node(vb_copy_at(db, place, i))));
}

/* ---- what the copies say ---- */

struct look {
	uint64_t word[VB_COPIES_MAX];
	bool there[VB_COPIES_MAX];
	unsigned n_there;
};

/* One doorbell. */
static int read_words(struct vb_coordinator *me, uint32_t place, struct look *out)
{
	const struct vb_db *db = me->db;
	struct vb_verb v[VB_COPIES_MAX];

	memset(v, 0, sizeof(v));
	*out = (struct look){0};
	for (unsigned i = 0; i < db->copies; i++) {
		v[i].op = VB_OP_READ;
		v[i].flags = VB_SIGNALLED;
		v[i].addr = vb_copy_at(db, place, i);
		v[i].buf = &out->word[i];
		v[i].len = 8;
	}
	(void)vb_post_wait(me->ep, v, db->copies);
	for (unsigned i = 0; i < db->copies; i++) {
		out->there[i] = v[i].status == 0;
		out->n_there += v[i].status == 0;
		if (v[i].status != 0 && !is_gone(db, place, i, v[i].status))
			return v[i].status;
	}
	return 0;
}

/* Twice: those that answer the second time were there when the first words were read.  1: they differ. */
static int read_all(struct vb_coordinator *me, uint32_t place, struct look *out)
{
	struct look again;
	int err = read_words(me, place, out);

	if (err == 0)
		err = read_words(me, place, &again);
	if (err != 0)
		return err;
	for (unsigned i = 0; i < me->db->copies; i++)
		if (out->there[i] != again.there[i] || out->word[i] != again.word[i])
			return 1;
	return 0;
}

/* Those that are there and count, as bits; *top: the latest clock. */
static unsigned counted(const struct vb_db *db, const struct look *l, uint64_t *top)
{
	const unsigned n = db->copies < VB_COPIES_MAX ? db->copies : VB_COPIES_MAX;
	unsigned there = 0, count = ~0u;

	for (unsigned i = 0; i < n; i++) {
		there |= (unsigned)l->there[i] << i;
		if (l->there[i] && clock_in(l->word[i]) > *top)
			*top = clock_in(l->word[i]);
	}
	for (unsigned i = 0; i < n; i++) {
		enum copy_state state = state_of(l->word[i]);

		if (l->there[i] && clock_in(l->word[i]) == *top &&
		    (state == COPY_LOGGED || state == COPY_FINAL))
			count &= (unsigned)(l->word[i] >> COPY_SHIFT);
	}
	return there & count;
}

/* Does what is logged wait for a second word? */
static bool is_twice(const struct vb_db *db, uint32_t place)
{
	return vb_cc_installs(db->cc) && !is_mender(place);
}

/* What all of them are to say.  name: the one that is to be withdrawn; SEAL: the place is to be sealed. */
static uint64_t verdict(const struct vb_db *db, uint32_t place, const struct look *l, uint64_t name)
{
	uint64_t top = 0, sealed = 0;
	const unsigned count = counted(db, l, &top);
	const enum copy_state told = is_twice(db, place) ? COPY_FINAL : COPY_LOGGED;
	bool all = count != 0, never = false;

	for (unsigned i = 0; i < db->copies; i++) {
		const uint64_t word = l->word[i];
		const bool latest = clock_in(word) == top;

		if (!(count & 1u << i))
			continue;
		if (sealed == 0 && word & COPY_SEALED)
			sealed = word;
		all &= latest && state_of(word) == told;
		never |= latest ? state_of(word) == COPY_WITHDRAWN : (word & COPY_SEALED) != 0;
	}
	if (sealed != 0 && !(never && clock_in(sealed) == top))
		return sealed;
	if (sealed == 0 && name != SEAL)
		return word_of(name, COPY_WITHDRAWN);
	return word_of(vb_ts_make(top, 0),
		       all ? COPY_FINAL | (uint64_t)count << COPY_SHIFT : COPY_WITHDRAWN) |
	       COPY_SEALED;
}

/* 0: it says so; 1: it says something else by now, or is gone: then what the others say counts. */
static int set_one(struct vb_coordinator *me, uint32_t place, unsigned i, uint64_t was,
		   uint64_t want)
{
	uint64_t old;
	int err = vb_cas64(me->ep, vb_copy_at(me->db, place, i), was, want, &old);

	if (err == 0)
		return old == was || vb_copy_same(old, want) ? 0 : 1;
	return is_gone(me->db, place, i, err) ? 1 : err;
}

static int set_all(struct vb_coordinator *me, uint32_t place, const struct look *l, uint64_t want)
{
	const bool withdrawn = state_of(want) == COPY_WITHDRAWN, twice = is_twice(me->db, place);
	int err = 0;

	for (unsigned pass = 0; pass < 2; pass++)
		for (unsigned i = 0; i < me->db->copies && err == 0; i++) {
			bool older = clock_in(l->word[i]) < clock_in(want) ||
				     (twice && state_of(l->word[i]) == COPY_LOGGED);
			/* A coordinator that goes on has done with the name. */
			bool over = !(want & COPY_SEALED) && clock_in(l->word[i]) > clock_in(want);

			if (!l->there[i] || vb_copy_same(l->word[i], want) || over)
				continue;
			if ((withdrawn && older) == (pass == 0))
				err = set_one(me, place, i, l->word[i], want);
		}
	return err;
}

/* Until all copies that are there say the same: what it is.  -VB_EPEERGONE: none is there, or a link is down. */
static int agree(struct vb_coordinator *me, uint32_t place, uint64_t name, uint64_t *out)
{
	for (unsigned i = 0; i < LOOKS; i++) {
		struct look l;
		int err = read_all(me, place, &l);

		if (err == 0 && l.n_there == 0)
			return -VB_EPEERGONE;
		if (err == 0) {
			*out = verdict(me->db, place, &l, name);
			err = set_all(me, place, &l, *out);
		}
		if (err == 0)
			return 0;
		VB_SOMETIMES_IF(err == 1, 1000, "copies: they change while it is decided");
		if (err == -VB_EUNKNOWN)
			vb_txn_wait_out(me, me->db->fabric->caps.verb_bound_ns);
		else if (err != 1)
			return err;
	}
	return -VB_EUNKNOWN;
}

static bool says(uint64_t word, uint64_t name)
{
	return clock_in(word) == vb_ts_clock(name) && state_of(word) == COPY_FINAL;
}

int vb_copies_withdraw(struct vb_coordinator *me, uint32_t place, uint64_t name, bool *happened)
{
	uint64_t word = 0;
	int err;

	*happened = false;
	/* The place has had no name yet. */
	if (vb_ts_clock(name) == 0)
		return 0;
	err = agree(me, place, name, &word);
	*happened = err == 0 && says(word, name);
	VB_SOMETIMES_IF(*happened, 5000, "copies: what was to be withdrawn has happened");
	/* All copies are gone: the home alone says it. */
	return err == -VB_EPEERGONE && vb_copies_all_gone(me->db, place) ? 0 : err;
}

bool vb_copies_all_gone(const struct vb_db *db, uint32_t place)
{
	for (unsigned i = 0; i < db->copies; i++)
		if (!vb_node_gone(db->fabric, vb_addr_node(vb_copy_at(db, place, i))))
			return false;
	return true;
}

int vb_copies_seal(struct vb_coordinator *me, uint32_t place, uint64_t *status)
{
	uint64_t word = 0;
	int err = agree(me, place, SEAL, &word);

	if (err == 0)
		*status = vb_ts_make(clock_in(word), place) |
			  (state_of(word) == COPY_FINAL ? VB_TS_COMMITTED : VB_TS_RECOVERED);
	VB_SOMETIMES_IF(err == 0 && state_of(word) == COPY_FINAL, 1000,
			"copies: a transaction of a node that is gone has happened");
	VB_SOMETIMES_IF(err == 0 && state_of(word) != COPY_FINAL, 1000,
			"copies: a transaction of a node that is gone has not happened");
	return err;
}

/* ---- the log ---- */

/* A log on its way to the copies. */
struct sending {
	struct vb_coordinator *me;
	struct vb_lane *lane;
	uint64_t logged; /* or final */
	unsigned char *from;
	uint32_t bytes;
	bool has[VB_COPIES_MAX];
	bool again, refused, fewer;
	int err;
	unsigned n;
	uint8_t to[VERBS];
	struct vb_verb verb[VERBS];
};

/* Is it the name that is sent, and not sealed? */
static bool is_ours(const struct sending *s, uint64_t word)
{
	return vb_copy_same(word, s->logged);
}

static void judge(struct sending *s, unsigned i, const struct vb_verb *v)
{
	struct vb_lane *lane = s->lane;

	if (v->status == 0 && v->op != VB_OP_CAS64)
		return;
	if (is_gone(s->me->db, lane->place, i, v->status)) {
		lane->copies_gone |= (uint8_t)(1u << i);
		s->again = s->fewer = true;
	} else if (v->status != 0) {
		s->again = true;
		s->err = v->status;
		lane->copies_late = true;
	} else {
		bool set = v->old.lo == lane->copy[i] || v->old.lo == s->logged;

		/* Behind a lost answer it may be there with more that count. */
		s->refused |= !set && !is_ours(s, v->old.lo);
		s->again |= !set;
		s->has[i] = set;
		lane->copy[i] = set ? s->logged : v->old.lo;
	}
}

static void ring(struct sending *s)
{
	if (s->n > 0)
		(void)vb_post_wait(s->me->ep, s->verb, s->n);
	for (unsigned i = 0; i < s->n; i++)
		judge(s, s->to[i], &s->verb[i]);
	s->n = 0;
}

static struct vb_verb *ask(struct sending *s, unsigned i, uint8_t op, uint64_t at)
{
	struct vb_verb *v;

	if (s->n == VERBS)
		ring(s);
	v = &s->verb[s->n];
	s->to[s->n++] = (uint8_t)i;
	memset(v, 0, sizeof(*v));
	v->op = op;
	v->flags = VB_SIGNALLED;
	v->not_after_ns = s->lane->log_by_ns;
	v->addr = vb_copy_at(s->me->db, s->lane->place, i) + at;
	return v;
}

/* The same by RPC. */
static void call_once(struct sending *s)
{
	const struct vb_db *db = s->me->db;
	struct vb_lane *lane = s->lane;
	struct vb_copy_call call[VB_COPIES_MAX];
	unsigned n = 0;

	for (unsigned i = 0; i < db->copies; i++) {
		if (s->has[i] || lane->copies_gone & 1u << i)
			continue;
		call[n].copy = i;
		call[n].not_after_ns = lane->log_by_ns;
		call[n++].was = lane->copy[i];
	}
	vb_copies_call(s->me, lane->place, s->logged, s->from, s->bytes, call, n);
	for (unsigned i = 0; i < n; i++) {
		struct vb_verb v = {.op = VB_OP_CAS64, .status = call[i].err};

		v.old.lo = call[i].old;
		judge(s, call[i].copy, &v);
	}
}

/* To those that have it not.  Nothing that comes behind a verb that failed is posted. */
static void send_once(struct sending *s)
{
	const struct vb_db *db = s->me->db;

	s->again = s->fewer = false;
	if (db->log_by_rpc) {
		call_once(s);
		return;
	}
	for (uint32_t done = 0; done < s->bytes; done += VB_LEN_MAX)
		for (unsigned i = 0; i < db->copies; i++) {
			struct vb_verb *v;

			if (s->has[i] || s->lane->copies_gone & 1u << i)
				continue;
			v = ask(s, i, VB_OP_WRITE, COPY_FROM + done);
			v->buf = s->from + done;
			v->len = s->bytes - done < VB_LEN_MAX ? s->bytes - done : VB_LEN_MAX;
			s->lane->acc.prims[VB_WRITE_TM]++;
		}
	if (!db->doorbell || !db->outstanding)
		ring(s);
	for (unsigned i = 0; i < db->copies && !s->again; i++) {
		struct vb_verb *v;

		if (s->has[i] || s->lane->copies_gone & 1u << i)
			continue;
		v = ask(s, i, VB_OP_CAS64, 0);
		v->compare.lo = s->lane->copy[i];
		v->swap.lo = s->logged;
		s->lane->acc.prims[VB_AMOD_TM]++;
	}
	ring(s);
}

/* As they are when nothing of ours is under way.  1: one is sealed. */
static int learn(struct vb_coordinator *me, struct vb_lane *lane)
{
	struct look l;
	int err = read_words(me, lane->place, &l);

	if (err != 0)
		return err;
	for (unsigned i = 0; i < me->db->copies; i++) {
		lane->copy[i] = l.word[i];
		if (!l.there[i])
			lane->copies_gone |= (uint8_t)(1u << i);
		if (l.there[i] && l.word[i] & COPY_SEALED)
			err = 1;
	}
	lane->copies_known = err == 0 && !lane->copies_late;
	return err;
}

static VB_COLD void tell_fenced(struct vb_coordinator *me)
{
	if (!me->fenced)
		vb_error("others have taken node %u for gone, and this coordinator of database "
			 "'%s' with it: it commits nothing any more",
			 me->node, me->db->name);
	me->fenced = true;
}

int vb_copies_open(struct vb_coordinator *me, struct vb_lane *lane)
{
	int err;

	if (me->db->copies == 0)
		return 0;
	/* A log that the places' last owner was writing when it died may land yet. */
	if (lane == me->lane)
		vb_txn_wait_out(me, me->db->fabric->caps.verb_bound_ns);
	err = learn(me, lane);
	if (err != 1)
		return err;
	return vb_fail(-VB_EPEERGONE,
		       "others have taken node %u for gone: a coordinator there of database '%s' "
		       "could commit nothing",
		       me->node, me->db->name);
}

/* What has become of a name that some of the copies may have: 0 it has happened, 1 it never will. */
static int find_out(struct vb_coordinator *me, struct vb_lane *lane, uint64_t ts)
{
	bool happened;
	int err = vb_copies_withdraw(me, lane->place, ts, &happened);

	lane->copies_known = false;
	if (err == 0 && learn(me, lane) == 1)
		tell_fenced(me);
	if (err != 0)
		return err;
	return happened ? 0 : 1;
}

/* It may be posted by one who began before others decided: then its word is no older any more. */
static bool is_before(const struct vb_db *db, const struct vb_lane *lane, uint64_t ts)
{
	for (unsigned i = 0; i < db->copies; i++)
		if (!(lane->copies_gone & 1u << i) && clock_in(lane->copy[i]) >= vb_ts_clock(ts))
			return false;
	return true;
}

/* Those that are not gone count. */
static uint64_t counting(const struct vb_db *db, const struct vb_lane *lane, uint64_t ts,
			 enum copy_state state)
{
	const uint64_t all = (1ull << db->copies) - 1;

	return word_of(ts, state) | (all & ~(uint64_t)lane->copies_gone) << COPY_SHIFT;
}

static int send(struct sending *s, uint64_t ts)
{
	struct vb_coordinator *me = s->me;
	const uint64_t until = vb_ep_now(me->ep) + 2 * me->db->suspect_ns;

	for (;;) {
		send_once(s);
		if (s->refused)
			return find_out(me, s->lane, ts);
		if (!s->again)
			return 0;
		/* What we could still do is nothing: it never happens, or has. */
		if (vb_lane_log_over(me, s->lane)) {
			VB_SOMETIMES(20000, "far: a log comes too late for its copies");
			return find_out(me, s->lane, ts);
		}
		if (s->fewer) {
			VB_SOMETIMES(1000, "copies: one is gone, and the others have it once more");
			s->logged = counting(me->db, s->lane, ts, state_of(s->logged));
			memset(s->has, 0, sizeof(s->has));
			continue;
		}
		if (vb_ep_now(me->ep) > until)
			return s->err;
		VB_SOMETIMES(200, "copies: the answer of a log is lost");
		vb_txn_wait_out(me, me->db->fabric->caps.verb_bound_ns / PAUSES);
	}
}

static int send_all(struct vb_coordinator *me, struct vb_lane *lane, uint64_t ts,
		    enum copy_state state, uint32_t bytes)
{
	struct sending s;
	int err;

	s.me = me;
	s.lane = lane;
	s.logged = counting(me->db, lane, ts, state);
	s.from = (unsigned char *)lane->head + COPY_FROM;
	s.bytes = bytes;
	memset(s.has, 0, sizeof(s.has));
	s.refused = false;
	s.err = -VB_EUNKNOWN;
	s.n = 0;
	err = send(&s, ts);
	if (err < 0)
		lane->copies_known = false;
	return err;
}

int vb_copies_log(struct vb_coordinator *me, struct vb_lane *lane, uint64_t ts)
{
	const struct vb_place_head *head = lane->head;
	int err = lane->copies_known ? 0 : learn(me, lane);

	if (err < 0)
		return err;
	if (err == 1 || !is_before(me->db, lane, ts))
		return find_out(me, lane, ts);
	return send_all(me, lane, ts, COPY_LOGGED,
			(uint32_t)(sizeof(*head) - COPY_FROM + head->log_bytes));
}

int vb_copies_decide(struct vb_coordinator *me, struct vb_lane *lane, uint64_t ts)
{
	return send_all(me, lane, ts, COPY_FINAL, 0);
}

bool vb_copies_give_up(struct vb_coordinator *me, struct vb_lane *lane, uint64_t ts)
{
	return find_out(me, lane, ts) == 1 && !me->fenced;
}

int vb_copies_undo(struct vb_coordinator *me, struct vb_lane *lane, uint64_t ts)
{
	int err = find_out(me, lane, ts);

	/* What is not in place yet is to be finished before the place is used again, as of any commit. */
	if (err == 0)
		lane->status = ts | VB_TS_COMMITTED;
	return err;
}

/* Before the lane's next log. */
void vb_copies_settle(struct vb_coordinator *me, struct vb_lane *lane)
{
	if (vb_likely(!lane->copies_late))
		return;
	vb_txn_wait_out(me, me->db->fabric->caps.verb_bound_ns);
	lane->copies_late = false;
}
