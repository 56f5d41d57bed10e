/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Promises that take two: endpoints against each other on the same words.  Nothing here depends on who runs when: what
 * is judged holds however they are delayed.
 */
#define VB_LOG_ROOM "own"
#include <inttypes.h>
#include <pthread.h>

#include "base/log.h"
#include "fabric/own/probe.h"

#define RIVALS        4u
#define ROUNDS        50u
#define THREADS       2u
#define THREAD_ROUNDS 300u

static bool open_all(struct own_try *t, struct own_probe *p, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		p[i] = (struct own_probe){.t = t};
	for (unsigned i = 0; i < n; i++) {
		if (!own_probe_open(t, &p[i]))
			return false;
	}
	return true;
}

static bool close_all(struct own_probe *p, unsigned n, bool kept)
{
	for (unsigned i = 0; i < n; i++)
		own_probe_close(&p[i]);
	return kept;
}

/* ---- atomic ---- */

/* Words: a sum by FAA; a count by CAS; and one whose halves are one each. */
enum { SUM = 0, COUNT = 64, BOTH = 128 };
#define HIGH (1ull << 32)

/* One rival's view: what it expects to find by CAS, and how often it has changed a word. */
struct rival {
	uint64_t expect, both;
	uint64_t adds, counts, lows, highs;
};

static void add_verbs(struct own_probe *p, const struct rival *r, bool adds_high)
{
	struct vb_provider_verb *v = own_probe_add(p, VB_PROVIDER_FAA, SUM, 8);

	v->value = 1;
	v = own_probe_add(p, VB_PROVIDER_CAS, COUNT, 8);
	v->compare = r->expect;
	v->value = r->expect + 1;
	if (adds_high) {
		own_probe_add(p, VB_PROVIDER_FAA, BOTH, 8)->value = HIGH;
		return;
	}
	v = own_probe_add(p, VB_PROVIDER_CAS, BOTH, 8);
	v->compare = r->both;
	v->value = r->both + 1;
}

static void note_verbs(const struct own_probe *p, struct rival *r, bool adds_high)
{
	const uint64_t count = own_probe_word(p, 1), both = own_probe_word(p, 2);

	r->adds++;
	r->counts += count == r->expect;
	r->expect = count == r->expect ? count + 1 : count;
	r->highs += adds_high;
	if (adds_high)
		return;
	r->lows += both == r->both;
	r->both = both == r->both ? both + 1 : both;
}

static bool judge_sums(struct own_probe *p, const struct rival *r, unsigned n)
{
	struct rival all = {0};
	uint64_t sum, count, both;

	for (unsigned i = 0; i < n; i++) {
		all.adds += r[i].adds;
		all.counts += r[i].counts;
		all.lows += r[i].lows;
		all.highs += r[i].highs;
	}
	if (!own_probe_get(p, SUM, &sum) || !own_probe_get(p, COUNT, &count) ||
	    !own_probe_get(p, BOTH, &both))
		return false;
	if (sum != all.adds)
		return own_is_broken(p->t, "atomic", "%" PRIu64 " FAAs by one have added %" PRIu64,
				     all.adds, sum);
	if (count != all.counts)
		return own_is_broken(p->t, "atomic",
				     "%" PRIu64 " CASes that say they have added one have added "
				     "%" PRIu64,
				     all.counts, count);
	if (both != all.highs * HIGH + all.lows)
		return own_is_broken(p->t, "atomic",
				     "FAAs and CASes on one word have not seen each other: it is "
				     "%#" PRIx64 " after %" PRIu64 " and %" PRIu64,
				     both, all.highs, all.lows);
	return own_probe_set(p, SUM, 0) && own_probe_set(p, COUNT, 0) && own_probe_set(p, BOTH, 0);
}

bool own_check_atomic(struct own_try *t)
{
	struct own_probe p[RIVALS];
	struct rival r[RIVALS] = {0};
	bool kept = open_all(t, p, RIVALS);

	for (unsigned round = 0; kept && round < ROUNDS; round++) {
		for (unsigned i = 0; kept && i < RIVALS; i++) {
			add_verbs(&p[i], &r[i], i % 2 != 0);
			kept = own_probe_post(&p[i]);
		}
		kept = kept && own_probes_end(p, RIVALS);
		for (unsigned i = 0; kept && i < RIVALS; i++)
			note_verbs(&p[i], &r[i], i % 2 != 0);
	}
	kept = kept && judge_sums(p, r, RIVALS);
	return close_all(p, RIVALS, kept);
}

/* ---- whole ---- */

#define WHOLE 64u

static bool is_whole(const struct own_probe *p)
{
	const uint8_t *b = p->verb[0].local;

	for (unsigned i = 0; i < WHOLE; i++) {
		if (b[i] != b[i & ~7u])
			return false;
	}
	return true;
}

bool own_check_whole_words(struct own_try *t)
{
	struct own_probe p[2];
	bool kept = open_all(t, p, 2);

	for (unsigned round = 1; kept && round <= ROUNDS; round++) {
		const uint32_t bytes = round % 2 == 0 ? 8 : WHOLE;

		memset(own_probe_add(&p[0], VB_PROVIDER_WRITE, 0, bytes)->local, (int)round, bytes);
		own_probe_add(&p[1], VB_PROVIDER_READ, 0, WHOLE);
		kept = own_probe_post(&p[0]) && own_probe_post(&p[1]) && own_probes_end(p, 2);
		if (kept && !is_whole(&p[1]))
			kept = own_is_broken(t, "whole-words",
					     "a READ of node %u has seen half of a WRITE inside of "
					     "eight aligned bytes",
					     t->node);
	}
	for (unsigned i = 0; kept && i < WHOLE; i += 8)
		kept = own_probe_set(&p[0], i, 0);
	return close_all(p, 2, kept);
}

/* ---- seen in order ---- */

enum { FIRST = 0, SECOND = 1024 };

/* One writes FIRST and then SECOND, again and again; who has seen SECOND sees FIRST. */
bool own_check_seen_in_order(struct own_try *t)
{
	struct own_probe p[2];
	bool kept = open_all(t, p, 2);
	uint64_t first = 0, second = 0;

	for (uint64_t round = 1; kept && round <= ROUNDS; round++) {
		memcpy(own_probe_add(&p[0], VB_PROVIDER_WRITE, FIRST, 8)->local, &round, 8);
		memcpy(own_probe_add(&p[0], VB_PROVIDER_WRITE, SECOND, 8)->local, &round, 8);
		own_probe_add(&p[1], VB_PROVIDER_READ, SECOND, 8);
		kept = own_probe_post(&p[0]) && own_probe_post(&p[1]);
		/* The reader is through with the second word while both WRITEs may be under way. */
		while (kept && p[1].out > 0)
			kept = own_probe_poll(&p[0]) && own_probes_end(&p[1], 1);
		second = kept ? own_probe_word(&p[1], 0) : 0;
		kept = kept && own_probe_get(&p[1], FIRST, &first) && own_probes_end(p, 2);
		if (kept && first < second)
			kept = own_is_broken(t, "write-order",
					     "the second of two WRITEs to node %u was seen before "
					     "the first",
					     t->node);
	}
	kept = kept && own_probe_set(&p[0], FIRST, 0) && own_probe_set(&p[0], SECOND, 0);
	return close_all(p, 2, kept);
}

/* ---- one sees the other ---- */

bool own_check_one_sees_the_other(struct own_try *t)
{
	static const uint64_t at[] = {FIRST, SECOND};
	struct own_probe p[2];
	bool kept = open_all(t, p, 2);

	for (uint64_t round = 1; kept && round <= ROUNDS; round++) {
		for (unsigned i = 0; kept && i < 2; i++) {
			memcpy(own_probe_add(&p[i], VB_PROVIDER_WRITE, at[i], 8)->local, &round, 8);
			own_probe_add(&p[i], VB_PROVIDER_READ, at[!i], 8);
			kept = own_probe_post(&p[i]);
		}
		kept = kept && own_probes_end(p, 2);
		if (kept && own_probe_word(&p[0], 1) != round && own_probe_word(&p[1], 1) != round)
			kept = own_is_broken(t, "one-sees-the-other",
					     "two that each wrote a word of node %u and then read "
					     "the other's have both not seen it",
					     t->node);
	}
	kept = kept && own_probe_set(&p[0], FIRST, 0) && own_probe_set(&p[0], SECOND, 0);
	return close_all(p, 2, kept);
}

/* ---- threads ---- */

struct racer {
	struct own_try t;
	struct own_probe p;
	struct rival r;
	unsigned me;
	bool started;
	pthread_t thread;
};

static void *race(void *arg)
{
	struct racer *me = arg;
	bool kept = true;

	for (unsigned round = 0; kept && round < THREAD_ROUNDS; round++) {
		add_verbs(&me->p, &me->r, me->me % 2 != 0);
		kept = own_probe_run(&me->p);
		if (kept)
			note_verbs(&me->p, &me->r, me->me % 2 != 0);
	}
	return NULL;
}

bool own_check_threads(struct own_try *t)
{
	struct racer racers[THREADS] = {0};
	struct rival r[THREADS];
	bool kept = true;

	for (unsigned i = 0; i < THREADS; i++) {
		racers[i].t = (struct own_try){.p = t->p, .node = t->node};
		racers[i].me = i;
		kept = kept && own_probe_open(&racers[i].t, &racers[i].p);
	}
	for (unsigned i = 0; kept && i < THREADS; i++) {
		racers[i].started = pthread_create(&racers[i].thread, NULL, race, &racers[i]) == 0;
		kept = racers[i].started;
		if (!kept)
			t->err = vb_fail(-ENOMEM, "no thread to try '%s' by", t->p->name);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		if (racers[i].started)
			pthread_join(racers[i].thread, NULL);
		if (racers[i].t.broken.promise != NULL && t->broken.promise == NULL)
			t->broken = racers[i].t.broken;
		r[i] = racers[i].r;
	}
	racers[0].p.t = t;
	kept = kept && t->broken.promise == NULL && judge_sums(&racers[0].p, r, THREADS);
	for (unsigned i = 0; i < THREADS; i++)
		own_probe_close(&racers[i].p);
	return kept;
}
