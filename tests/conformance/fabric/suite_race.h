/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two clients at a time, on words that both touch; part of fabric_suite.h.  Each has a thread of its
 * own, or where time is virtual a task.
 *
 * Nothing here depends on who runs when: what is judged holds however the two are delayed.  What is
 * sought shows only where both run at once, so they go step by step until they have met often enough,
 * or their time is up.
 */
#include <pthread.h>
#include <sched.h>

#define RACE_OPS  20000u
#define RACE_FEW  200u         /* where an operation costs more */
#define RACE_LONG 500000000ull /* at most, of one race, whoever else uses the machine */
#define RACERS    2

struct race {
	struct suite *s;
	unsigned form, len;
	uint32_t ops;
	bool apart;        /* both in threads of their own, and so step by step */
	bool alone;        /* on one CPU */
	uint64_t until_ns; /* of the machine's clock */
	struct {
		uint32_t at VB_ALIGNED(128); /* atomic: how far this one is */
	} step[RACERS];
};

struct racer {
	struct race *race;
	struct suite *s;
	struct vb_ep *ep;
	void (*body)(struct racer *me);
	unsigned me;
	uint32_t n;     /* how often */
	uint32_t *seen; /* [1 .. n] */
	const char *wrong;
	pthread_t thread;
};

/* Both do each step at about the same time: what only shows then needs few of them.  False when that
 * was the last. */
static bool race_step(struct racer *r, uint32_t i)
{
	struct race *c = r->race;
	uint32_t *mine = &c->step[r->me].at, *theirs = &c->step[!r->me].at;

	if (r->wrong != NULL || i > c->ops ||
	    (c->apart && i % 4 == 0 && vb_clock_ns() > c->until_ns)) {
		__atomic_store_n(mine, UINT32_MAX, __ATOMIC_SEQ_CST);
		return false;
	}
	__atomic_store_n(mine, i, __ATOMIC_SEQ_CST);
	for (unsigned spins = 0; c->apart && __atomic_load_n(theirs, __ATOMIC_SEQ_CST) < i;
	     spins++) {
		if (c->alone)
			sched_yield();
		else
			vb_cpu_relax();
		if (spins % 64 == 0 && vb_clock_ns() > c->until_ns)
			return false;
	}
	/* The other may have ended. */
	return !c->apart || __atomic_load_n(theirs, __ATOMIC_SEQ_CST) != UINT32_MAX;
}

static void race_as(void *arg)
{
	struct racer *r = arg;

	if (vb_ep_open(r->s->f, (uint16_t)r->me, &r->ep) != 0) {
		r->wrong = "no endpoint";
		return;
	}
	r->body(r);
	vb_ep_close(r->ep);
}

static void *race_thread(void *arg)
{
	race_as(arg);
	vb_sched_destroy(vb_sched_self());
	return NULL;
}

static const char *run_race(struct suite *s, struct race *c, struct racer *r)
{
	const uint32_t caps = s->f->caps.flags;
	cpu_set_t cpus;

	c->s = s;
	c->ops = caps & VB_CAP_INLINE ? RACE_OPS : RACE_FEW;
	c->apart = !(caps & VB_CAP_VIRTUAL);
	c->alone = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 && CPU_COUNT(&cpus) < 2;
	c->until_ns = vb_clock_ns() + RACE_LONG;
	for (unsigned i = 0; i < RACERS; i++) {
		r[i].race = c;
		r[i].s = s;
		r[i].me = i;
		if (c->apart)
			want(pthread_create(&r[i].thread, NULL, race_thread, &r[i]) == 0);
		else
			want(vb_task_spawn(s->ep->sched, race_as, &r[i], NULL, NULL) == 0);
	}
	for (unsigned i = 0; i < RACERS && c->apart; i++)
		pthread_join(r[i].thread, NULL);
	if (!c->apart)
		want(vb_sched_run(s->ep->sched, NULL, vb_sched_now(s->ep->sched) + SUITE_RUN_NS) ==
		     0);
	return r[0].wrong != NULL ? r[0].wrong : r[1].wrong;
}

/* ---- of two that each write one word and then read the other's, one sees the other ---- */

enum { LOOK_BY_CALLS, LOOK_IN_A_BATCH, LOOK_AFTER_ATOMIC, LOOKS };

/* The last word that number `who` writes. */
static vb_addr race_word(const struct racer *r, unsigned who)
{
	return r->s->b + 256 + 1024 * who + r->race->len - 8;
}

static int tell_and_look(struct racer *r, const void *mine, uint64_t *theirs)
{
	const vb_addr to = race_word(r, r->me), from = race_word(r, !r->me);
	struct vb_verb v[] = {
		suite_write(to + 8 - r->race->len, mine, r->race->len, 0),
		suite_read(from, theirs, 8),
	};
	uint64_t old;
	int err;

	if (r->race->form == LOOK_IN_A_BATCH)
		return vb_post_wait(r->ep, v, VB_ARRAY_SIZE(v));
	err = r->race->form == LOOK_AFTER_ATOMIC
		      ? vb_faa64(r->ep, to, 1, &old)
		      : vb_write(r->ep, to + 8 - r->race->len, mine, r->race->len);
	return err != 0 ? err : vb_read64(r->ep, from, theirs);
}

static void look_body(struct racer *r)
{
	uint64_t mine[8], theirs = 0;

	for (uint32_t i = 1; race_step(r, i); i++) {
		for (unsigned k = 0; k < VB_ARRAY_SIZE(mine); k++)
			mine[k] = i;
		if (tell_and_look(r, mine, &theirs) != 0) {
			r->wrong = "a verb failed";
			return;
		}
		r->seen[i] = (uint32_t)theirs;
		if (r->seen[i] < r->seen[i - 1])
			r->wrong = "what was seen is gone again";
		r->n = i;
	}
}

/* After its ith word, the first had seen the second's up to number `seen`.  The one behind that came
 * later, so what the second read after it is the ith at least. */
static const char *judge_looks(const struct racer *r)
{
	for (uint32_t i = 1; i <= r[0].n; i++) {
		const uint32_t next = r[0].seen[i] + 1;

		want(r[0].seen[i] <= r[1].n + 1);
		if (next <= r[1].n && r[1].seen[next] < i)
			return "two that wrote and then read have both not seen the other";
	}
	return NULL;
}

static const char *look_in_shape(struct suite *s, unsigned form, unsigned len)
{
	static uint32_t seen[RACERS][RACE_OPS + 1];
	struct race c = {.form = form, .len = len};
	struct racer r[RACERS] = {{.body = look_body, .seen = seen[0]},
				  {.body = look_body, .seen = seen[1]}};
	const uint8_t zero[2048] = {0};
	const char *why;

	want(vb_write(s->ep, s->b, zero, sizeof(zero)) == 0);
	why = run_race(s, &c, r);
	return why != NULL ? why : judge_looks(r);
}

static const char *check_one_sees_the_other(struct suite *s)
{
	static const struct {
		uint8_t form, len;
	} shapes[] = {
		{LOOK_BY_CALLS, 8},    {LOOK_BY_CALLS, 16},    {LOOK_BY_CALLS, 24},
		{LOOK_BY_CALLS, 64},   {LOOK_IN_A_BATCH, 8},   {LOOK_IN_A_BATCH, 16},
		{LOOK_IN_A_BATCH, 40}, {LOOK_AFTER_ATOMIC, 8},
	};
	const char *why = NULL;

	for (unsigned i = 0; i < VB_ARRAY_SIZE(shapes) && why == NULL; i++)
		why = look_in_shape(s, shapes[i].form, shapes[i].len);
	return why;
}

/* ---- neighbours in one word ---- */

/* Each counts in a field of its own by masked CAS, which must succeed, and both in a third one. */
static void field_body(struct racer *r)
{
	const uint32_t caps = r->s->f->caps.flags;
	const uint64_t mask = 0xffffull << 16 * r->me, one = 1ull << 16 * r->me;
	const struct vb_u128 half = {r->me == 0 ? UINT64_MAX : 0, r->me == 1 ? UINT64_MAX : 0};
	const vb_addr word = r->s->b, pair = r->s->b + 16;
	uint64_t old;
	struct vb_u128 was;
	int err = 0;

	for (uint32_t i = 1; race_step(r, i); i++) {
		const uint64_t n = i - 1;

		if (caps & VB_CAP_MASKED64) {
			err = vb_mcas64(r->ep, word, n * one, mask, i * one, mask, &old);
			if (err == 0 && (old & mask) != n * one)
				r->wrong = "somebody else has changed a field";
			err = err != 0 ? err
				       : vb_mfaa64(r->ep, word, 1ull << 32, 0x8000800080008000ull,
						   &old);
		}
		if (err == 0 && (caps & VB_CAP_MASKED128)) {
			const struct vb_u128 from = {n & half.lo, n & half.hi},
					     to = {i & half.lo, i & half.hi};

			err = vb_mcas128(r->ep, pair, from, half, to, half, &was);
			if (err == 0 && (((was.lo ^ from.lo) & half.lo) != 0 ||
					 ((was.hi ^ from.hi) & half.hi) != 0))
				r->wrong = "somebody else has changed a half";
		}
		if (err != 0)
			r->wrong = "a verb failed";
		r->n = i;
	}
}

static const char *check_neighbours(struct suite *s)
{
	struct racer r[RACERS] = {{.body = field_body}, {.body = field_body}};
	struct race c = {0};
	const char *why;
	struct vb_u128 pair;
	uint64_t both;

	if (!(s->f->caps.flags & (VB_CAP_MASKED64 | VB_CAP_MASKED128)))
		return NULL;
	why = run_race(s, &c, r);
	if (why != NULL)
		return why;
	both = (uint64_t)(uint16_t)(r[0].n + r[1].n) << 32 | r[1].n << 16 | r[0].n;
	if (s->f->caps.flags & VB_CAP_MASKED64)
		want(suite_word(s, s->b) == both);
	pair = suite_pair(s, s->b + 16);
	if (s->f->caps.flags & VB_CAP_MASKED128)
		want(pair.lo == r[0].n && pair.hi == r[1].n);
	return NULL;
}
