/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MCS (src/lock/mcs.c): N clients take one lock ROUNDS times each, by acquire or by try.
 *
 * Modelled.  Each verb is one atomic step, named after the function that posts it: the swap, the
 * CAS of try, the CAS of release.  Answers may be lost, LOST times in a run, with the verb or
 * the message done or not; whoever lost one asks or sends again (mcs_tell, mcs_leave).  So
 * messages come twice, and the second copy at any time later, even claims later.  A box
 * (src/rpc/mail.c) has one place for each tag, where the later of two stays by serial
 * arithmetic.  Claims' numbers come round in the middle of a run, as the 24 bits of the code do,
 * but never within the life of a message.
 *
 * Left out.  Deadlines and proxies: a proxy waits and hands on, as a holder does that has nothing
 * to do.  Death, which MCS does not promise to survive; so successor_wait runs out only where
 * nobody is there who could come.  More than MCS_SENDS losses in a row.
 *
 * Checked.  Never two holders.  Nobody waits for ever: runs are finite and have no cycles, so a
 * client that waits for ever is one that has not ended when nothing moves any more, an invalid
 * end state.
 *
 * MUTATE, each of which must be found:
 *   1  as published: messages have no claim's number.  A copy hands over twice (assertion).
 *   2  release frees the word by a WRITE, whoever has swapped meanwhile (invalid end state).
 *   3  release does not wait for the NEXT of a successor that it knows is there (invalid end state).
 */
#ifndef N
#define N 3
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#ifndef LOST
#define LOST 2
#endif
#ifndef MUTATE
#define MUTATE 0
#endif

#define FREE    0
#define NUMBERS 8

/* The word and the names in messages: client + 1, claim's number. */
#define WORD(client, number) (((client) + 1) * NUMBERS + (number))
#define CLIENT(word)         ((word) / NUMBERS - 1)
#define NUMBER(word)         ((word) % NUMBERS)

#define NEXT  0
#define YOURS 1

typedef box {
	byte there[2]; /* by tag */
	byte from[2];  /* data: the sender's word */
	byte stamp[2]; /* imm: the number of the claim it is meant for */
};

byte word = FREE;
box boxes[N];
byte holders;
byte lost;

/* put() of mail.c: of two, the later stays. */
#define OLDER(a, b) (((a) + NUMBERS - (b)) % NUMBERS >= NUMBERS / 2)
inline deliver(to, tag) {
	if
	:: MUTATE != 1 && boxes[CLIENT(to)].there[tag] &&
	   OLDER(NUMBER(to), boxes[CLIENT(to)].stamp[tag]) -> skip
	:: else ->
		boxes[CLIENT(to)].there[tag] = 1;
		boxes[CLIENT(to)].from[tag] = self;
		boxes[CLIENT(to)].stamp[tag] = NUMBER(to)
	fi
}

inline mcs_tell(to, tag) {
	do
	:: atomic { deliver(to, tag); break }
	:: atomic { lost < LOST -> lost++; deliver(to, tag) } /* the acknowledgement is lost */
	:: atomic { lost < LOST -> lost++ }                   /* the message is */
	od
}

#define MEANT_FOR_US(tag) (MUTATE == 1 || boxes[_pid].stamp[tag] == NUMBER(self))

/* mcs_hear(); what is not meant for this claim is thrown away. */
inline mcs_hear(tag, from) {
	do
	:: atomic {
		boxes[_pid].there[tag] ->
		boxes[_pid].there[tag] = 0;
		if
		:: MEANT_FOR_US(tag) -> from = boxes[_pid].from[tag]; break
		:: else
		fi
	   }
	od
}

inline grant() {
	assert(holders == 0);
	holders++
}

active [N] proctype client() {
	byte self, prev, next, from, round;
	bool unsure, freed;

	do
	:: round == ROUNDS -> break
	:: round < ROUNDS ->
		d_step {
			self = WORD(_pid, (NUMBERS - 1 + round) % NUMBERS);
			round++;
			prev = FREE;
			next = FREE;
			unsure = false;
			freed = false
		}
		if
		:: atomic { /* mcs_acquire: vb_swap64 */
			prev = word;
			word = self;
			if
			:: prev == FREE -> grant(); goto held
			:: else
			fi
		   }
		:: atomic { /* mcs_try: vb_cas64 */
			if
			:: word == FREE -> word = self; grant(); goto held
			:: else -> goto over
			fi
		   }
		fi;
		/* mcs_resume */
		mcs_tell(prev, NEXT);
		mcs_hear(YOURS, from);
		grant();
held:
		/* The critical section lasts as long as others like to move.  mcs_release: from
		 * here on the lock may be anybody's. */
		holders--;
		/* mcs_next_known */
		if
		:: atomic {
			boxes[_pid].there[NEXT] && MEANT_FOR_US(NEXT) ->
			boxes[_pid].there[NEXT] = 0;
			next = boxes[_pid].from[NEXT];
			goto hand_over
		   }
		:: atomic {
			boxes[_pid].there[NEXT] && !MEANT_FOR_US(NEXT) ->
			boxes[_pid].there[NEXT] = 0
		   }
		:: atomic { !boxes[_pid].there[NEXT] -> skip }
		fi;
		/* mcs_leave: vb_cas64, asked again when the answer is lost */
		do
		:: atomic {
			MUTATE == 2 -> word = FREE; goto over
		   }
		:: atomic {
			MUTATE != 2 ->
			if
			:: word == self -> word = FREE; goto over
			:: word != self && unsure && word == FREE -> goto over
			:: else -> break
			fi
		   }
		:: atomic { /* done, and its answer lost */
			lost < LOST ->
			lost++;
			unsure = true;
			if
			:: word == self -> word = FREE; freed = true
			:: else
			fi
		   }
		:: atomic { lost < LOST -> lost++; unsure = true } /* never done */
		od;
		if
		:: MUTATE == 3 -> goto over
		:: MUTATE != 3
		fi;
		/* The successor's message is under way; where our CAS has freed the lock after all
		 * there is no successor, and successor_wait runs out. */
		do
		:: atomic {
			boxes[_pid].there[NEXT] ->
			boxes[_pid].there[NEXT] = 0;
			if
			:: MEANT_FOR_US(NEXT) -> next = boxes[_pid].from[NEXT]; break
			:: else
			fi
		   }
		:: freed -> goto over
		od;
hand_over:
		assert(!freed);
		mcs_tell(next, YOURS);
over:
		skip
	od
}
