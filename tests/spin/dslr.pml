/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DSLR (src/lock/dslr/dslr.c): N clients take one lock, those of READERS for reading, those of
 * WRITERS for writing (masks; who is in both chooses each time), ROUNDS times each or, if that
 * is 0, for ever.
 *
 * Modelled.  The word with its four fields, of 4 bits each instead of 16, so that adding to it
 * carries and borrows as in the code; COUNT_MAX is small, so that counters run full and are
 * zeroed again and again; BEGIN is where they stand at first.  Each verb is one atomic step,
 * named after the function that posts it.
 *
 * Time passes in ticks of half a lease, at which the ages grow that the code keeps as times:
 * not_yet, seen_since (still), posted.  There is a tick only when everybody has done what can be
 * done at once.  But a client may be paused at any step, PAUSES times in a run, for as many ticks
 * as it likes, or die, DEATHS times.  A pause can come between a look and its answer, and
 * between the clock and a verb with not_after; that one lands within a tick, which is
 * verb_bound_ns <= lease / 2.
 *
 * Assumed.  COUNT_MAX tickets take longer than a lease (departure 5), though not in the model,
 * whose counters are small.  So who relies on a look for a lease only does not use it once the
 * counters have come round (gone, round_look, round_ticket: the word was zeroed since).  A release
 * assumes nothing: it relies on nobody's resetting so soon.
 *
 * Left out.  try, which is one CAS of a word that is free.  Deadlines and proxies: a proxy waits
 * and hands on.  Lost answers.  The portable variant.  How often a waiter polls, but that it
 * does each tick.
 *
 * Checked.  Never two valid grants that exclude each other, nor a release that succeeds although
 * the lock is validly somebody else's; no field overflows.  While nobody is paused or dead,
 * nothing is reset by lease and there is no tick: somebody can always move.  `served`: a
 * ticket's owner does not wait for ever under weak fairness, but is granted or thrown out.  With
 * ROUNDS, runs end.  (Who is refused has no ticket, and the others can exhaust the counters each
 * time before it looks.)
 *
 * MUTATE, each of which must be found; 1 to 3 are what the paper prints:
 *   1  the refused take their increment back, after a reset too: it underflows (invalid end state)
 *   2  a release looks at the time, then adds to n whenever it comes (assertion: two grants)
 *   3  a reset moves n behind the resetter's ticket, and n_S past a reader's ticket throws it out
 *      (assertion: everybody waits, though nobody was paused)
 *   4  a waiter does not give up after a lease without a look (assertion: two grants)
 *   5  nobody resets (acceptance cycle)
 *   6  a writer's late release does not look at the time: frees the lock of who has the same
 *      ticket a round later
 *   7  nor does the CAS of a reset: a pause of a round before it, and it throws out a valid grant
 *   8  a refused client does not begin to count anew: a pause of a round between two looks, and n
 *      has "not moved"
 *   9  a reader's late release does not look at the time: as 6
 */
#ifndef N
#define N 3
#endif
#ifndef COUNT_MAX
#define COUNT_MAX 4
#endif
#ifndef PAUSES
#define PAUSES 1
#endif
#ifndef DEATHS
#define DEATHS 0
#endif
#ifndef ROUNDS
#define ROUNDS 0
#endif
#ifndef BEGIN
#define BEGIN 0
#endif
#ifndef MUTATE
#define MUTATE 0
#endif
#ifndef WRITERS
#define WRITERS 7
#endif
#ifndef READERS
#define READERS 7
#endif

#define ONE_MAX_S 1
#define ONE_MAX_X 16
#define ONE_N_S   256
#define ONE_N_X   4096
#define N_MASK    65280
#define ALL       65535

#define max_s(w)           ((w) & 15)
#define max_x(w)           ((w) >> 4 & 15)
#define n_s(w)             ((w) >> 8 & 15)
#define n_x(w)             ((w) >> 12 & 15)
#define make(x, s, mx, ms) ((x) << 12 | (s) << 8 | (mx) << 4 | (ms))

/* In ticks, of half a lease each. */
#define LEASE 2
/* The doorbell of a late release rings in the tick after the lease; it lands in the next at
 * most. */
#define RELEASE_BY (LEASE + 1)

#define IDLE    0
#define BUSY    1 /* does its next step at once, unless it is paused */
#define WAITING 2 /* wait_turn(), between two looks */
#define REFUSED 3 /* wait_reset(), between two looks */
#define DEAD    4

typedef client_state {
	unsigned state : 3;
	bool paused;
	bool x;                /* mode */
	bool held;
	unsigned ticket : 16;
	unsigned seen : 16;    /* both n */
	unsigned posted : 2;   /* ages, in ticks */
	unsigned not_yet : 3;
	unsigned still : 3;
	unsigned flight : 2;   /* of a release: 0 none, 1 posted, 2 a tick ago */
	bool round_ticket;     /* the word was zeroed since the ticket, or since the last look */
	bool round_look;
	bool gone;             /* the one that counts, as it was when the look took effect */
};
client_state c[N];
unsigned word : 16 = BEGIN;
byte pauses, deaths;
bool queued; /* client 0, with a ticket */

#define me c[_pid]

#define valid(i)          (c[i].held && c[i].not_yet < LEASE)
#define clash(i, j)       ((i) != (j) && valid(i) && valid(j) && (c[i].x || c[j].x))
#define foreign(i, mode)  ((i) != _pid && valid(i) && (c[i].x || (mode)))
#if N == 3
#define any(f)            (f(0) || f(1) || f(2))
#define all(f)            (f(0) && f(1) && f(2))
#define no_clash          (!clash(0, 1) && !clash(0, 2) && !clash(1, 2))
#define no_foreign(mode)  (!foreign(0, mode) && !foreign(1, mode) && !foreign(2, mode))
#define late_now          (late(0) + late(1) + late(2))
#else
#define any(f)            (f(0) || f(1))
#define all(f)            (f(0) && f(1))
#define no_clash          (!clash(0, 1))
#define no_foreign(mode)  (!foreign(0, mode) && !foreign(1, mode))
#define late_now          (late(0) + late(1))
#endif

/* ---- the functions of dslr.c ---- */

#define saturated(w)     (max_x(w) >= COUNT_MAX || max_s(w) >= COUNT_MAX)
#define is_turn(w, t, x) (n_x(w) == max_x(t) && (!(x) || n_s(w) == max_s(t)))
#if MUTATE == 3
#define thrown_out(w, t, seen, x) (max_x(t) < n_x(w) || max_s(t) < n_s(w))
#define reset_word(w)                                                                       \
	((make(max_x(me.ticket), max_s(me.ticket), 0, 0) + (me.x -> ONE_N_X : ONE_N_S)) | \
	 ((w) & 255))
#else
#define thrown_out(w, t, seen, x)                                                           \
	(n_x(w) > max_x(t) || n_x(w) < n_x(seen) || n_s(w) < n_s(seen) ||                   \
	 ((x) && (max_x(w) <= max_x(t) || n_s(w) > max_s(t))) || (!(x) && max_s(w) <= max_s(t)))
#define reset_word(w)                                                                       \
	(max_x(w) + 1 >= COUNT_MAX || max_s(w) >= COUNT_MAX                                 \
		 -> 0                                                                       \
		 : make(max_x(w) + 1, max_s(w), max_x(w) + 1, max_s(w)))
#endif

inline round(i) {
	c[i].round_ticket = c[i].state != IDLE && c[i].state != DEAD;
	c[i].round_look = c[i].state == BUSY || c[i].state == REFUSED
}

inline change(w) {
	word = w;
	if
	:: word == 0 ->
		round(0);
		round(1);
#if N > 2
		round(2)
#endif
	:: else
	fi
}

inline not_queued() {
	if
	:: _pid == 0 -> queued = false
	:: else
	fi
}

inline grant() {
	me.held = true;
	me.state = BUSY;
	assert(no_clash);
	not_queued()
}

/* ---- time ---- */

#define awaits(i) (c[i].state == WAITING || c[i].state == REFUSED)
#define news(i)                                                                             \
	(c[i].not_yet > 0 || ((word ^ c[i].seen) & N_MASK) ||                                \
	 (c[i].state == WAITING -> is_turn(word, c[i].ticket, c[i].x) ||                    \
					   thrown_out(word, c[i].ticket, c[i].seen, c[i].x) \
				 : !saturated(word)))
#define quiet(i)                                                                            \
	(c[i].paused || c[i].state == IDLE || c[i].state == DEAD || (awaits(i) && !news(i)))
#define late(i)    (quiet(i) -> 0 : 1)
#define landing(i) (c[i].flight == 2)

inline age(i) {
	if
	:: !quiet(i) && deaths < DEATHS ->
		deaths++;
		c[i].state = DEAD;
		c[i].held = false;
		if
		:: i == 0 -> queued = false
		:: else
		fi
	:: !quiet(i) && pauses < PAUSES -> pauses++; c[i].paused = true
	:: quiet(i) -> skip
	fi;
	c[i].flight = (c[i].flight > 0 -> 2 : 0);
	c[i].posted = (c[i].posted <= LEASE -> c[i].posted + 1 : LEASE + 1);
	c[i].not_yet = (c[i].not_yet <= RELEASE_BY -> c[i].not_yet + 1 : RELEASE_BY + 1);
	c[i].still = (c[i].still < 2 * LEASE -> c[i].still + 1 : 2 * LEASE)
}

inline pause_here() {
	pauses++;
	me.paused = true
}

/* wait_turn, when the answer is there */
inline turn() {
	if
	:: (MUTATE != 4 && (me.not_yet > LEASE || me.gone)) ||
	   thrown_out(val, me.ticket, me.seen, me.x) ->
		not_queued();
		goto acquire
	:: else
	fi;
	if
	:: is_turn(val, me.ticket, me.x) ->
		me.seen = (me.x -> 0 : val & N_MASK);
		val = 0;
		me.posted = 0;
		me.still = 0;
		me.gone = false;
		me.round_look = false;
		grant();
		goto held
	:: else
	fi;
	me.not_yet = me.posted;
	me.gone = false;
	if
	:: (val ^ me.seen) & N_MASK -> me.still = 0; me.seen = val & N_MASK
	:: else ->
		if
		:: me.still >= 2 * LEASE && MUTATE != 5 -> goto reset_waiting
		:: else
		fi
	fi;
	val = 0;
	me.posted = 0;
	me.round_look = false;
	me.state = WAITING;
	goto waiting
}

/* wait_reset, the same */
inline turn_refused() {
	if
	:: !saturated(val) -> goto acquire
	:: else
	fi;
	if
	:: ((val ^ me.seen) & N_MASK) || (MUTATE != 8 && (me.not_yet > LEASE || me.gone)) ->
		me.not_yet = me.posted;
		me.still = 0;
		me.seen = val & N_MASK
	:: else ->
		me.not_yet = me.posted;
		if
		:: me.still >= 2 * LEASE && MUTATE != 5 -> goto reset_refused
		:: else
		fi
	fi;
	me.gone = false;
	me.posted = 0;
	val = 0;
	me.state = REFUSED;
	goto refused
}

/* release_shared: the FAA */
inline leave() {
	me.held = false;
	assert(n_x(word) == max_x(me.ticket) && no_foreign(false));
	word = word + ONE_N_S;
	if
	:: n_s(word) == COUNT_MAX ->
		expect = word & N_MASK;
		me.round_look = false;
		goto swap_reader
	:: else -> goto over
	fi
}

active [N] proctype client() {
	unsigned val : 16, expect : 16;
#if ROUNDS
	byte rounds;
#endif

	{
	do
	:: break
	:: atomic {
#if ROUNDS
		rounds < ROUNDS -> rounds++;
#endif
		if
		:: WRITERS >> _pid & 1 -> me.x = true
		:: READERS >> _pid & 1 -> me.x = false
		fi
	   }
acquire:
	atomic { /* dslr_acquire: vb_faa64 */
		me.paused = false;
		val = 0;
		me.posted = 0;
		me.ticket = word;
		me.seen = word & N_MASK;
		me.not_yet = 0;
		me.still = 0;
		me.round_ticket = false;
		me.round_look = false;
		me.gone = false;
		assert((me.x -> max_x(word) : max_s(word)) < 15);
		word = word + (me.x -> ONE_MAX_X : ONE_MAX_S);
		if
		:: MUTATE == 1 && saturated(me.ticket) ->
			me.ticket = 0;
			me.state = BUSY;
			goto take_back
		:: MUTATE != 1 && saturated(me.ticket) ->
			me.ticket = 0;
			me.state = REFUSED;
			goto refused
		:: else
		fi;
		if
		:: is_turn(me.ticket, me.ticket, me.x) -> grant(); goto held
		:: else -> me.state = WAITING; queued = queued || _pid == 0
		fi
	}
waiting:
	atomic { /* look: vb_read64 */
		me.paused = false;
		me.state = BUSY;
		me.posted = 0;
		val = word;
		me.gone = me.round_ticket;
		me.round_look = false;
		if
		:: pauses < PAUSES -> pause_here(); goto looked_turn
		:: true
		fi;
		turn()
	}
looked_turn:
	atomic { /* the answer comes later */
		me.paused = false;
		turn()
	}
reset_waiting:
	atomic { /* reset: vb_cas64_before, in the tick of the look or landing in the next */
		me.paused = false;
		if
		:: word == val && (MUTATE == 7 || (me.posted <= 1 && !me.round_look)) ->
			assert(pauses + deaths > 0);
			change(reset_word(val))
		:: else
		fi;
		val = 0;
		me.posted = 0;
		me.state = WAITING;
		goto waiting
	}

refused:
	atomic { /* look: vb_read64 */
		me.paused = false;
		me.state = BUSY;
		me.posted = 0;
		val = word;
		me.gone = me.round_look;
		me.round_look = false;
		if
		:: pauses < PAUSES -> pause_here(); goto looked_refused
		:: true
		fi;
		turn_refused()
	}
looked_refused:
	atomic {
		me.paused = false;
		turn_refused()
	}
reset_refused:
	atomic { /* reset: vb_cas64_before, in the tick of the look or landing in the next */
		me.paused = false;
		if
		:: word == val && (MUTATE == 7 || (me.posted <= 1 && !me.round_look)) ->
			assert(pauses + deaths > 0);
			change(reset_word(val))
		:: else
		fi;
		val = 0;
		me.posted = 0;
		me.state = REFUSED;
		goto refused
	}

take_back:
	atomic { /* as published: FAA(-1), and again once the word has changed */
		me.paused = false;
		word = word - (me.x -> ONE_MAX_X : ONE_MAX_S)
	}
	(!saturated(word));
	goto acquire;

held:
#if MUTATE == 2
	atomic { /* as published: looks at the time ... */
		me.paused = false;
		if
		:: me.not_yet < LEASE -> skip
		:: else -> me.held = false; goto over
		fi
	}
	atomic { /* ... and the FAA comes whenever it comes */
		me.paused = false;
		me.held = false;
		change(((word + (me.x -> ONE_N_X : ONE_N_S)) & ALL));
		goto over
	}
#endif
	if
	:: atomic { /* release_exclusive: vb_mcas64_before */
		me.x ->
		me.paused = false;
		me.held = false;
		if
		:: (word & N_MASK) == (make(max_x(me.ticket), max_s(me.ticket), 0, 0)) &&
		   (MUTATE == 6 || me.not_yet <= RELEASE_BY) ->
			assert(no_foreign(true));
			change((max_x(me.ticket) + 1 == COUNT_MAX -> 0 : word + ONE_N_X))
		:: else
		fi;
		goto over
	   }
	:: atomic { /* release_shared: the doorbell of vb_faa64_before */
		!me.x ->
		me.paused = false;
		if
		:: me.not_yet < LEASE ->
			if
			:: pauses < PAUSES -> pause_here(); me.flight = 1; goto landing_reader
			:: true
			fi;
			leave()
		:: else -> expect = me.seen; goto late_reader
		fi
	   }
	fi;
swap_reader:
	atomic { /* swap_n: the last valid ticket has been served */
		me.paused = false;
		if
		:: (word & N_MASK) == expect -> change(0)
		:: else
		fi;
		goto over
	}
landing_reader:
	atomic { /* the FAA */
		me.paused = false;
		me.flight = 0;
		leave()
	}
late_reader:
	atomic { /* release_shared_late: vb_mcas64_before */
		me.paused = false;
		if
		:: MUTATE != 9 && me.not_yet > RELEASE_BY -> me.held = false; goto over
		:: else
		fi;
		if
		:: (word & N_MASK) == expect ->
			me.held = false;
			assert(no_foreign(false));
			change((n_s(expect) + 1 == COUNT_MAX -> 0 : word + ONE_N_S));
			goto over
		:: else
		fi;
		if
		:: n_x(word) != max_x(me.ticket) || n_s(word) < n_s(expect) ->
			me.held = false;
			goto over
		:: else -> expect = word & N_MASK; goto late_reader
		fi
	}
over:
	atomic {
		me.state = IDLE;
		me.ticket = 0;
		me.seen = 0;
		me.posted = 0;
		me.not_yet = 0;
		me.still = 0;
		me.x = false;
		me.round_ticket = false;
		me.round_look = false;
		val = 0;
		expect = 0
	}
	od;
	me.state = IDLE
	} unless { me.state == DEAD }
}

active proctype clock() {
end:	do
	:: atomic {
		late_now + pauses + deaths <= PAUSES + DEATHS && !any(landing) && (any(awaits) || late_now > 0) ->
		assert(pauses + deaths + late_now > 0);
		age(0);
		age(1);
#if N > 2
		age(2)
#endif
	   }
	od
}

ltl served { [] (queued -> <> !queued) }
