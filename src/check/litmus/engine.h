/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All orders in which a small world can go, up to a bound: stateless model checking on the
 * simulator.  A run is made of *choices*; after it the last choice that has an untried way is
 * changed, and the world is run again from the start.
 *
 *   order     which of the verbs under way takes effect next, or that time passes first, so that who
 *             sleeps comes before a verb that is slow
 *   strikes   whether this client dies here, stands still, or loses an answer: once in a run
 *
 * Code between two awaits touches nothing that others see but through verbs and messages (and, at
 * its own node, its memory), so orders of verbs are all orders that there are.
 *
 * What is left out, because it would show nothing new:
 *
 *   sleep sets   Two verbs *depend* on each other if endpoints of one node have posted both, if they
 *                touch a word and do not both read it, if one is a message to the node of the other,
 *                or if one touches the node at which the other's endpoint lives.  Of orders that
 *                differ only in verbs next to each other that do not depend, one is run (Godefroid
 *                1996).
 *   polls        A verb that did nothing the last two times, and nothing has changed since, waits
 *                until others have gone.  (Twice: who looks again before it acts does not poll.  Who
 *                acts only when a third look is the same, is taken for one that does.)
 *
 * And what is cut off: orders with more *delays* than allowed (Emmi, Qadeer and Rakamaric 2011).  Left
 * to itself, who went last goes on, and when it waits or sleeps the verb that is oldest goes; each
 * time that another goes, or time passes first, is a delay.  A class of equal orders counts by the
 * one that is run of it.
 */
#ifndef VB_CHECK_LITMUS_ENGINE_H
#define VB_CHECK_LITMUS_ENGINE_H

#include <stdio.h>

#include "check/litmus/litmus.h"
#include "fabric/sim/sim.h"

#define LITMUS_CHOICES_MAX 4096u
#define LITMUS_SLEEP_MAX   64u
#define LITMUS_ENDS_MAX    16u
#define LITMUS_LOOKS       2u /* in vain, after which a verb polls */
#define LITMUS_RECENT      8u

struct litmus_choice {
	uint16_t taken, ways; /* ways: that may be tried */
};

/* What an endpoint has done lately, to tell that it polls. */
struct litmus_end {
	vb_peer self;
	unsigned n;
	struct {
		struct vb_sim_verb verb;
		uint64_t changes;
	} recent[LITMUS_RECENT];
};

struct litmus {
	struct vb_sim_chooser chooser;
	const struct vb_litmus_params *p;
	uint32_t strikes; /* bits of enum vb_sim_strike that may befall a mortal endpoint */
	unsigned delays;  /* at most */
	FILE *tell;       /* the schedule, step by step; NULL */
	const char *(*name)(void *ctx, const struct vb_sim_verb *v, char *buf, size_t size);
	void *name_ctx;
	/* Of the run under way. */
	struct vb_fabric *fabric;
	bool stop;   /* for vb_sched_run: it is given up */
	bool enough; /* ... because nothing more can be said of it */
	bool struck;
	unsigned depth, delayed;
	vb_peer last; /* who went last; VB_PEER_NONE */
	uint64_t changes, verbs;
	struct vb_sim_verb sleep[LITMUS_SLEEP_MAX];
	unsigned n_sleep, n_ends;
	struct litmus_end end[LITMUS_ENDS_MAX];
	/* Of all. */
	struct litmus_choice choice[LITMUS_CHOICES_MAX];
	unsigned n_choices;
	bool replays, too_long, wrong;
	struct vb_litmus_result *out;
};

/* A world: runs once from the start under l->chooser, from after its setup to before its judgement,
 * and says what was found.  0, or -error, said. */
typedef int (*litmus_run_fn)(struct litmus *l, void *ctx);

/* Goes through all runs.  l: zero, with what is not of the run or of all of them set. */
int litmus_explore(struct litmus *l, litmus_run_fn run, void *ctx);
/* A finding of the run under way; counted once a run, told of the first. */
void litmus_found(struct litmus *l, const char *rule, const char *story);
/* Ends the run under way: nothing more can be said of it. */
void litmus_enough(struct litmus *l);
/* A line of the schedule, where it is told. */
void litmus_say(struct litmus *l, const char *format, ...) VB_PRINTF(2, 3);

#endif
