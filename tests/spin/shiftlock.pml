/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ShiftLock (src/lock/shiftlock/shiftlock.c): N clients take one lock, the first WRITERS of them for
 * writing, the others for reading; client 0 ROUNDS times, the others OTHERS times.  The lock
 * server recovers it.
 *
 * Modelled.  Each verb is one atomic step, named after the function that posts it.  Messages are
 * posted and not awaited, so they arrive later than what their sender does next, those of two
 * senders in any order.  A box (src/rpc/mail.c) has two places; of two messages the one of the
 * newer generation stays, and of one generation the later.  A run is short enough that neither
 * the count nor the generation comes round, as in the code within nine years.
 *
 * Time passes in ticks of half a lease, at which the ages grow that the code keeps as times: of
 * the looks (last_post, older_post), of the standing still (still), and what is left of a grant.
 * There is a tick only when everybody has done what can be done at once and all messages are
 * there.  But a client may be paused at any step (with HOLDERS only while it holds the lock), PAUSES
 * times in a run, for as many ticks as it likes, or die, DEATHS times.  A pause can come between the clock and the FAA of a reader's
 * release; that one lands within a tick, which is verb_bound_ns <= lease / 2.
 *
 * RELAYED is the option handover=relayed (doc/locks/shiftlock.md, "A handover that is not counted"):
 * a handover carries by how much RelCnt is behind, and since when it stands, on the receiver's clock.
 * That is the age of the receiver's own message, `told`, and what the sender adds to it: the age of
 * its anchor (older_post, while it holds) less the time since it heard that message.  `told` ends at
 * EVER, which is too long ago for anything.  LIMIT is how old an anchor may be, in ticks, for a
 * handover that is not counted: one is half a lease, as in the code; 9 is no limit, and then a
 * release says that nobody else has had the lock, who has it by then (assertion: somebody else's).
 *
 * Left out.  The narrow entry (plain.c).  try, which is one CAS of a lock that is
 * free. Deadlines and proxies: a proxy waits and hands on.  Lost answers and messages.  A look's
 * answer that comes late.  The server lives, is never slow, and its era is for this lock alone.
 *
 * Checked.  Never two valid grants that exclude each other, nor a release that succeeds although
 * the lock is validly somebody else's.  While nobody is paused or dead, nothing is recovered and
 * there is no tick: somebody can always move.  Nobody waits for ever under weak fairness: as the
 * rounds end, who did would be a cycle without progress.
 *
 * MUTATE, each of which must be found; 1 to 4 are what the paper prints, 6 to 10 are RELAYED's guards:
 *   1  HANDOVER does not carry the epoch in force (assertion: everybody waits, nobody was paused)
 *   2  messages do not carry the generation (assertion: two grants)
 *   3  a writer's release does not compare RelCnt (assertion: two grants)
 *   4  the server looks at the era alone, not at RelCnt (assertion: two grants)
 *   5  nobody asks the server (cycle without progress)
 *   6  whoever is handed the lock does not look how old the handover is (assertion: two grants)
 *   7  ... counts from when it came, not from when its own message left (assertion: two grants)
 *   8  ... looks, but hands the lock on as if RelCnt were new (assertion: two grants)
 *   9  a handover does not carry by how much RelCnt is behind (assertion: everybody waits, nobody
 *      was paused)
 *  10  who is handed the lock too late counts without a look at RelCnt (assertion: two grants)
 */
#ifndef WRITERS
#define WRITERS 2
#endif
#ifndef N
#define N 3 /* the others are readers */
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#ifndef OTHERS
#define OTHERS ROUNDS /* rounds of the others than client 0 */
#endif
#ifndef PAUSES
#define PAUSES 1
#endif
#ifndef DEATHS
#define DEATHS 0
#endif
#ifndef WRITERS_MAX
#define WRITERS_MAX 2 /* SL_WRITERS_MAX */
#endif
#ifndef RELAYED
#define RELAYED 0
#endif
#ifndef LIMIT
#define LIMIT 1
#endif
#ifndef PATIENCE
#define PATIENCE (3 * LEASE) /* ticks without a release */
#endif
#ifndef MUTATE
#define MUTATE 0
#endif

#define NONE  0 /* a client's name is its number + 1 */
#define LEASE 2 /* ticks */
#define EVER  7
#define HEARD 6 /* as far as `heard` counts */

#define SUCCESSOR 0
#define HANDOVER  1
#define MODE      2 /* the same place as HANDOVER */

#define IDLE          0
#define BUSY          1
#define AWAIT_MESSAGE 2
#define AWAIT_COUNT   3
#define AWAIT_EPOCH   4
#define AWAIT_NEXT    5 /* release: the successor's message */
#define DEAD          6

typedef message {
	unsigned tag : 2;  /* + 1; 0: none */
	unsigned to : 2;   /* in flight */
	unsigned from : 3;
	unsigned gen : 2;
	unsigned rel : 4;
	unsigned writers : 2;
	bool epoch;
#if RELAYED
	unsigned added : 4;     /* to the age of what the receiver told; + HEARD + 1; 0: counted */
	unsigned uncounted : 3;
#endif
};

typedef client_state {
	unsigned state : 3;
	bool paused;
	bool held;
	bool looked;                /* since the last tick */
	bool epoch;
	unsigned gen : 2;           /* when it came */
	unsigned rel : 4;           /* the count under which it holds, or waits to hold */
	unsigned writers : 2;
	unsigned successor : 3;
	unsigned last : 4;          /* count as last looked at */
	unsigned last_post : 3;     /* ages, in ticks */
	unsigned older_post : 3;
	unsigned still : 3;
	unsigned left : 2;          /* of the grant's time, in ticks */
	bool era_known;
	unsigned era : 3;
	unsigned flight : 2;        /* of a reader's release: 0 none, 1 posted, 2 for a tick */
#if RELAYED
	unsigned told : 3;          /* age of what it told its predecessor, + 1; 0: nothing */
	unsigned heard : 3;         /* age of what it heard of its successor */
	unsigned uncounted : 3;     /* what RelCnt is behind rel */
	bool behind;
#endif
};

/* The entry: RelCnt is gen and count. */
unsigned gen : 2;
unsigned count : 4;
unsigned readers : 2;
unsigned tail : 3;
bool epoch;

unsigned era : 3; /* the server's */
byte pauses, deaths;
client_state c[N];
message next_box[N], turn_box[N];   /* by receiver */
message next_sent[N], turn_sent[N]; /* in flight, by sender */
chan requests = [N] of { byte };
bool answered[N];

#define me     c[_pid]
#define NAME   (_pid + 1)
#define writer (_pid < WRITERS)

#define valid(i)     (c[i].held && c[i].left > 0)
#define reading(i)   (i >= WRITERS)
#define clash(i, j)  (valid(i) && valid(j) && !(reading(i) && reading(j)))
#define foreign(i)   (i != _pid && valid(i) && !(reading(i) && reading(_pid)))
#if N == 3
#define any(f)     (f(0) || f(1) || f(2))
#define no_clash   (!clash(0, 1) && !clash(0, 2) && !clash(1, 2))
#define late_now   (late(0) + late(1) + late(2))
#else
#define any(f)     (f(0) || f(1) || f(2) || f(3))
#define no_clash                                                          \
	(!clash(0, 1) && !clash(0, 2) && !clash(0, 3) && !clash(1, 2) &&  \
	 !clash(1, 3) && !clash(2, 3))
#define late_now   (late(0) + late(1) + late(2) + late(3))
#endif

#if RELAYED
#define more(m, d)       d.added = m.added; d.uncounted = m.uncounted;
#define no_more(m)       m.added = 0; m.uncounted = 0;
#else
#define more(m, d)
#define no_more(m)
#endif

/* Macros, because an inline takes no structure. */
#define clear(m)       \
	no_more(m)     \
	m.tag = 0;     \
	m.to = 0;      \
	m.from = 0;    \
	m.gen = 0;     \
	m.rel = 0;     \
	m.writers = 0; \
	m.epoch = false
#define copy(m, d)             \
	more(m, d)             \
	d.tag = m.tag;         \
	d.from = m.from;       \
	d.gen = m.gen;         \
	d.rel = m.rel;         \
	d.writers = m.writers; \
	d.epoch = m.epoch
/* What is in flight arrives: of two, the one of the newer generation stays, else the later. */
#define deliver(m, d)                                   \
	m.tag > 0 ->                                    \
	if                                              \
	:: d.tag && m.gen < d.gen && MUTATE != 2        \
	:: else -> copy(m, d)                           \
	fi;                                             \
	clear(m)

inline hold() {
	me.held = true;
	me.state = BUSY;
	me.era_known = false;
	me.era = 0;
	me.last = 0;
	me.last_post = 0;
	me.still = 0;
#if RELAYED
	me.told = 0;
	me.behind = false;
#else
	me.older_post = 0;
#endif
	assert(no_clash)
}

inline granted_at_once() {
	me.left = LEASE;
	me.older_post = 0;
	hold()
}

/* The age of the last look that did not show the turn decides. */
#define moved     (me.last == me.rel -> me.older_post : me.last_post)
#define min(a, b) ((a) < (b) -> (a) : (b))
inline granted() {
	me.left = min(LEASE, 2 * LEASE - moved);
#if RELAYED
	me.older_post = moved;
	me.uncounted = 0;
#endif
	hold()
}

#if RELAYED
/* How long RelCnt has stood at most, by a handover that is not counted. */
#define told_ago (MUTATE == 7 -> 0 : me.told - 1)
#define stood    (told_ago + turn_box[_pid].added - HEARD - 1)
#define too_old  (MUTATE != 6 && ((me.told == EVER && MUTATE != 7) || stood > LEASE))

inline granted_uncounted() {
	me.left = LEASE;
	me.older_post = ((MUTATE == 6 || MUTATE == 8) -> 0 : stood);
	hold()
}
#endif

/* saw(): this look was posted now. */
inline saw() {
	if
	:: count != me.last ->
		me.older_post = me.last_post;
		me.last = count;
		me.still = 0;
		me.era_known = false;
		me.era = 0
	:: else
	fi;
	me.last_post = 0;
	me.looked = true
}

/* begin_wait(): the first look was the verb that put us into the queue. */
inline begin_wait(how) {
	me.last = count;
	me.last_post = 0;
	me.older_post = 0;
	me.still = 0;
	me.era_known = false;
	me.era = 0;
	me.looked = true;
	me.state = how
}

inline joined() {
	me.gen = gen;
	me.epoch = epoch;
	me.writers = 0;
	me.successor = NONE;
#if RELAYED
	me.told = 0;
	me.heard = 0;
	me.uncounted = 0;
	me.behind = false;
#endif
	me.rel = count
}

/* ---- time ---- */

#define awaits(i) (c[i].state >= AWAIT_MESSAGE && c[i].state <= AWAIT_NEXT)
#define suspects(i) \
	(MUTATE != 5 && (c[i].era_known -> c[i].still >= PATIENCE : c[i].still >= LEASE / 2))
#if RELAYED
/* What is heard while one waits: the sooner, the more of the time is left for the successor. */
#define hears(i) (next_box[i].tag && c[i].successor == NONE)
#else
#define hears(i) false
#endif
#define news(i)                                                                             \
	(c[i].state == AWAIT_NEXT                                                           \
		 -> next_box[i].tag || c[i].still > LEASE                                   \
		 : !c[i].looked || suspects(i) ||                                           \
			   (c[i].state == AWAIT_MESSAGE -> turn_box[i].tag || hears(i)      \
							: (count != c[i].last || gen != c[i].gen)))
#define quiet(i)                                                                            \
	(c[i].paused || c[i].state == IDLE || c[i].state == DEAD || (awaits(i) && !news(i)))
#ifdef HOLDERS
#define late(i)    (quiet(i) -> 0 : (c[i].held -> 1 : 100))
#else
#define late(i)    (quiet(i) -> 0 : 1)
#endif
#define landing(i) (c[i].flight == 2 || next_sent[i].tag || turn_sent[i].tag)

inline age(i) {
	if
	:: !quiet(i) && deaths < DEATHS -> deaths++; c[i].state = DEAD; c[i].held = false
	:: !quiet(i) && pauses < PAUSES -> pauses++; c[i].paused = true
	:: quiet(i)
	fi;
	c[i].looked = false;
	c[i].flight = (c[i].flight > 0 -> 2 : 0);
	c[i].left = (c[i].left > 0 -> c[i].left - 1 : 0);
	if
	:: awaits(i) || c[i].state == BUSY ->
		c[i].last_post = min(c[i].last_post + 1, 2 * LEASE);
		c[i].older_post = min(c[i].older_post + 1, 2 * LEASE);
		c[i].still = min(c[i].still + 1, 3 * LEASE)
	:: else
	fi
#if RELAYED
	;
	c[i].told = (c[i].told > 0 -> min(c[i].told + 1, EVER) : 0);
	c[i].heard = (c[i].successor != NONE -> min(c[i].heard + 1, HEARD) : 0)
#endif
}

inline find_successor() {
	if
	:: next_box[_pid].tag ->
		if
		:: next_box[_pid].gen == me.gen || MUTATE == 2 ->
			me.successor = next_box[_pid].from;
#if RELAYED
			me.heard = 0
#endif
		:: else
		fi;
		clear(next_box[_pid])
	:: else
	fi
}

/* Only a verb that has been in flight for too long could find another generation. */
inline reader_leaves() {
	me.held = false;
	me.flight = 0;
	assert(gen == me.gen && readers > 0 && !any(foreign));
	readers--;
	count++
}

#if RELAYED
#define counted (me.rel - me.uncounted)
#else
#define counted me.rel
#endif

#define rounds (_pid == 0 -> ROUNDS : OTHERS)

active [N] proctype client() {
	byte round, old, added;
	bool flip;

	{
	do
	:: round == rounds -> break
	:: round < rounds ->
		atomic { round++; me.state = BUSY }
acquire:
		if
		:: atomic { /* enqueue_writer: vb_mcas128 */
			writer ->
			me.paused = false;
			joined();
			old = tail;
			tail = NAME;
			if
			:: old == NONE && readers == 0 -> granted_at_once(); goto held
			:: old == NONE && readers > 0 ->
				me.rel = count + readers;
				begin_wait(AWAIT_COUNT);
				goto await_entry
			:: else ->
				begin_wait(BUSY);
#if RELAYED
				me.told = 1
#endif
			fi
		   }
		:: atomic { /* enqueue_reader: vb_mfaa128 */
			!writer ->
			me.paused = false;
			joined();
			readers++;
			if
			:: tail == NONE -> granted_at_once(); goto held
			:: else -> begin_wait(AWAIT_EPOCH); goto await_entry
			fi
		   }
		fi;
		atomic { /* tell_predecessor: vb_send */
			me.paused = false;
			if
			:: old != NAME && !next_sent[_pid].tag ->
				next_sent[_pid].tag = SUCCESSOR + 1;
				next_sent[_pid].to = old - 1;
				next_sent[_pid].from = NAME;
				next_sent[_pid].gen = me.gen
			:: old == NAME
			fi;
			old = NONE;
			me.state = AWAIT_MESSAGE
		}
await_message:
		if
		:: atomic { /* a message */
			turn_box[_pid].tag ->
			me.paused = false;
			if
			:: turn_box[_pid].gen != me.gen && MUTATE != 2 ->
				clear(turn_box[_pid]);
				goto await_message
			:: else
			fi;
			me.rel = turn_box[_pid].rel;
			me.writers = turn_box[_pid].writers;
#if MUTATE == 1
			me.epoch = me.epoch ^ (turn_box[_pid].tag == MODE + 1);
#else
			me.epoch = turn_box[_pid].epoch;
#endif
#if RELAYED
			me.uncounted = (MUTATE == 9 -> 0 : turn_box[_pid].uncounted);
			if
			:: turn_box[_pid].added > 0 && too_old ->
				clear(turn_box[_pid]);
				me.told = 0;
				me.behind = true;
				me.state = AWAIT_COUNT;
				goto await_entry
			:: turn_box[_pid].added > 0 && !too_old ->
				granted_uncounted();
				clear(turn_box[_pid]);
				goto held
			:: else -> me.told = 0
			fi;
#endif
			if
			:: turn_box[_pid].tag == HANDOVER + 1 ->
				clear(turn_box[_pid]);
				granted();
				goto held
			:: else -> clear(turn_box[_pid]); me.state = AWAIT_COUNT; goto await_entry
			fi
		   }
#if RELAYED
		:: atomic { /* hear_successor */
			!turn_box[_pid].tag && hears(_pid) ->
			me.paused = false;
			find_successor();
			goto await_message
		   }
#endif
		:: atomic { /* a look: vb_read */
			!turn_box[_pid].tag && !hears(_pid) && news(_pid) ->
			me.paused = false;
			saw();
			if
			:: gen != me.gen -> me.state = BUSY; goto acquire
			:: else
			fi;
			if
			:: suspects(_pid) -> goto suspect
			:: else -> goto await_message
			fi
		   }
		fi;
await_entry:
		atomic { /* a look: vb_read */
			news(_pid) ->
			me.paused = false;
			saw();
			if
			:: gen != me.gen -> me.state = BUSY; goto acquire
			:: me.state == AWAIT_COUNT && gen == me.gen && count == me.rel ->
				granted();
				goto held
			:: me.state == AWAIT_EPOCH && gen == me.gen && epoch != me.epoch ->
				me.rel = count;
				granted();
				goto held
#if RELAYED
			:: me.behind && gen == me.gen && count != me.rel -> goto count_for_them
#endif
			:: else
			fi;
			if
			:: suspects(_pid) -> goto suspect
			:: else -> goto await_entry
			fi
		}
#if RELAYED
count_for_them:
		atomic { /* vb_mcas128; the next look tells */
			me.paused = false;
			if
			:: MUTATE == 10 -> gen = me.gen; count = me.rel
			:: MUTATE != 10 && gen == me.gen && count == me.rel - me.uncounted ->
				count = me.rel
			:: else
			fi;
			me.looked = false;
			goto await_entry
		}
#endif
suspect:
		if
		:: atomic { /* vb_read64 of the era; the three leases count from here */
			!me.era_known ->
			me.paused = false;
			me.era = era;
			me.era_known = true;
			me.still = 0;
			goto back
		   }
		:: atomic { /* recover: vb_rpc_call */
			me.era_known ->
			me.paused = false;
			answered[_pid] = false;
			old = me.state;
			me.state = BUSY;
			requests!_pid
		   }
		fi;
		atomic {
			answered[_pid] ->
			me.paused = false;
			me.state = old;
			old = NONE;
			answered[_pid] = false;
			me.still = 0;
			me.era_known = false;
			me.era = 0
		}
back:
		if
		:: me.state == AWAIT_MESSAGE -> goto await_message
		:: else -> goto await_entry
		fi;

held:
		if
		:: writer -> goto writer_leaves
		:: else
		fi;
		atomic { /* release_reader: the doorbell of vb_mfaa128_before */
			me.paused = false;
			if
			:: me.left > 0 ->
				me.flight = 1;
				if
				:: pauses < PAUSES -> pauses++; me.paused = true; goto reader_lands
				:: true
				fi
			:: me.left == 0 -> goto reader_late
			fi;
			reader_leaves();
			goto over
		}
reader_lands:
		atomic { /* ... and the FAA */
			me.paused = false;
			reader_leaves();
			goto over
		}
reader_late:
		atomic { /* release_reader_late: vb_mcas128 */
			me.paused = false;
			me.held = false;
			if
			:: gen == me.gen ->
				assert(!any(foreign));
				readers--;
				count++
			:: else
			fi;
			goto over
		}

writer_leaves:
		atomic { /* release_writer: find_successor */
			me.paused = false;
			find_successor();
			if
			:: me.successor != NONE -> goto hand_over
			:: else
			fi
		}
		atomic { /* vb_mcas128 */
			me.paused = false;
			me.held = false;
#if MUTATE == 3
			if
			:: tail == NAME ->
				gen = me.gen;
				count = me.rel + 1;
				tail = NONE;
				epoch = !me.epoch;
				goto over
			:: else
			fi;
#else
			if
			:: gen != me.gen || count != counted -> goto over /* VB_ELOST */
			:: gen == me.gen && count == counted && tail == NAME ->
				assert(!any(foreign));
				count = me.rel + 1;
				tail = NONE;
				epoch = !me.epoch;
				goto over
			:: else
			fi;
#endif
			me.still = 0;
			me.state = AWAIT_NEXT
		}
await_next:
		atomic { /* a lease at most, for who has swapped behind us */
			news(_pid) ->
			me.paused = false;
			find_successor();
			if
			:: me.successor != NONE -> me.state = BUSY; goto hand_over
			:: me.successor == NONE && me.still > LEASE -> goto over
			:: else -> goto await_next
			fi
		}
hand_over:
		atomic { /* passes_uncounted, or vb_mcas128 */
			me.paused = false;
			me.held = false;
			flip = me.writers + 1 >= WRITERS_MAX;
#if RELAYED
			if
			:: !flip && me.older_post <= LIMIT ->
				assert(!any(foreign));
				added = me.older_post + HEARD + 1 - (MUTATE == 7 -> 0 : me.heard);
				me.uncounted++;
				me.rel = me.rel + 1;
				goto tell
			:: else
			fi;
#endif
#if MUTATE != 3
			if
			:: gen != me.gen || count != counted -> goto over /* VB_ELOST */
			:: else -> assert(!any(foreign))
			fi;
#endif
			count = me.rel + 1;
#if MUTATE == 1 || MUTATE == 3
			epoch = epoch ^ flip;
#else
			epoch = me.epoch ^ flip;
#endif
			me.rel = me.rel + 1 + (flip -> readers : 0)
		}
tell:
		atomic { /* vb_send */
			!turn_sent[_pid].tag ->
			me.paused = false;
#if RELAYED
			turn_sent[_pid].added = added;
			turn_sent[_pid].uncounted = (added > 0 -> me.uncounted : 0);
			added = 0;
#endif
			turn_sent[_pid].tag = (flip -> MODE : HANDOVER) + 1;
			turn_sent[_pid].to = me.successor - 1;
			turn_sent[_pid].from = NAME;
			turn_sent[_pid].gen = me.gen;
			turn_sent[_pid].rel = me.rel;
			turn_sent[_pid].writers = (flip -> 0 : me.writers + 1);
			turn_sent[_pid].epoch = me.epoch ^ flip
		}
over:
		atomic {
			me.state = IDLE;
			me.paused = false;
			me.looked = false;
			me.epoch = false;
			me.gen = 0;
			me.rel = 0;
			me.writers = 0;
			me.successor = NONE;
			me.last = 0;
			me.last_post = 0;
			me.still = 0;
			me.left = 0;
			me.era_known = false;
			me.era = 0;
#if RELAYED
			me.told = 0;
			me.heard = 0;
			me.uncounted = 0;
			me.behind = false;
			added = 0;
#endif
			me.older_post = 0;
			flip = false;
			old = NONE
		}
	od
	} unless { me.state == DEAD }
}

#define next_of(i) atomic { deliver(next_sent[i], next_box[next_sent[i].to]) }
#define turn_of(i) atomic { deliver(turn_sent[i], turn_box[turn_sent[i].to]) }

active proctype network() {
end:	do
	:: next_of(0)
	:: next_of(1)
	:: next_of(2)
	:: turn_of(0)
	:: turn_of(1)
	:: turn_of(2)
#if N > 3
	:: next_of(3)
	:: turn_of(3)
#endif
	od
}

active proctype server() {
	byte who;

end:	do
	:: atomic { /* shiftlock_serve */
		requests?who ->
		if
		:: era == c[who].era -> era++
		:: else -> answered[who] = true; goto end
		fi
	   }
	   atomic { /* reset_entry: vb_mcas128 */
		if
		:: MUTATE == 4 || (gen == c[who].gen && count == c[who].last) ->
			assert(pauses + deaths > 0);
			gen++;
			count = c[who].last;
			readers = 0;
			tail = NONE;
			epoch = false
		:: else
		fi;
		answered[who] = true
	   }
	od
}

active proctype clock() {
end:	do
	:: atomic {
		late_now + pauses + deaths <= PAUSES + DEATHS && !any(landing) &&
			(any(awaits) || late_now > 0) ->
		assert(pauses + deaths + late_now > 0);
		age(0);
		age(1);
		age(2)
#if N > 3
		;
		age(3)
#endif
	   }
	od
}
