/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a transaction has happened is one answer, whoever asks the copies of its log: its coordinator, which writes
 * them, and has others' changes of its status word and of the copies in its way; two that seal the place, because they
 * take its node for gone; one that knows it is there, and withdraws; who lives at its node, or at that of a copy, and
 * sees it when others do not.  At random moments, with verbs that are late, lost answers, and copies whose nodes go, or
 * are only taken for gone, all but one.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "fabric/sim/sim.h"
#include "txn/db.h"

#define US     1000ull
#define COPIES 3u
#define HOME   0u
#define OTHERS 3u /* behind the copies */
#define NODES  (1u + COPIES + OTHERS)
#define ALL    (OTHERS + 1u + COPIES)
#define WORLDS 20000u

enum answer { NONE, HAPPENED, NEVER, UNKNOWN };

struct world;

struct one {
	struct world *w;
	struct vb_coordinator *me;
	uint64_t at_ns;
	bool ended;
	enum answer answer;
};

struct world {
	struct vb_fabric *f;
	struct vb_db *db;
	struct vb_rng rng;
	/* Behind the others: who lives at the home, and at each copy. */
	struct one coordinator, other[ALL];
	uint64_t ts;
	uint32_t place;
	bool disowned;
};

#define must(call) assert_int_equal(call, 0)

static void note(struct one *one, int err)
{
	one->answer = err == 0 ? HAPPENED : err == 1 ? NEVER : UNKNOWN;
	one->ended = true;
}

static void begin_at(struct one *one)
{
	must(vb_ep_sleep(one->me->ep, one->at_ns));
}

/* As a commit: its log, its second word, its status word, and what it makes of a no. */
static void commits(void *arg)
{
	struct one *one = arg;
	struct vb_coordinator *me = one->me;
	struct vb_lane *lane = vb_txn_lane(me);
	int err;

	begin_at(one);
	err = vb_copies_log(me, lane, one->w->ts);
	if (err == 0 && vb_cc_installs(one->w->db->cc))
		err = vb_copies_decide(me, lane, one->w->ts);
	if (err == 0)
		err = vb_lane_status(me, lane, one->w->ts | VB_TS_COMMITTED);
	if (err == 1)
		err = vb_copies_undo(me, lane, one->w->ts);
	note(one, err);
}

static void seals(void *arg)
{
	struct one *one = arg;
	uint64_t status = 0;
	int err;

	begin_at(one);
	while ((err = vb_copies_seal(one->me, one->w->place, &status)) == -VB_EUNKNOWN)
		;
	must(err);
	note(one, status != (one->w->ts | VB_TS_COMMITTED));
}

/* Who recovers what it takes for left, at a home that is there for him. */
static void withdraws(void *arg)
{
	struct one *one = arg;
	struct world *w = one->w;
	uint64_t old = 0;
	bool happened;
	int err;

	begin_at(one);
	err = vb_cas64(one->me->ep, vb_status_word(w->db, w->place), w->ts | VB_TS_RUNNING, w->ts,
		       &old);
	if (err == 0 && old == (w->ts | VB_TS_COMMITTED)) {
		note(one, 0);
		return;
	}
	while (err == 0 &&
	       (err = vb_copies_withdraw(one->me, w->place, w->ts, &happened)) == -VB_EUNKNOWN)
		err = 0;
	note(one, err == 0 ? !happened : err);
}

static uint64_t some(struct world *w, uint64_t us)
{
	return vb_rng_below(&w->rng, us * US + 1);
}

static uint16_t node_of(unsigned other)
{
	return (uint16_t)(other < OTHERS ? 1 + COPIES + other : other - OTHERS);
}

static void open_world(struct world *w, const char *cc, uint64_t seed)
{
	const struct vb_fabric_params fp = {.fabric = "sim",
					    .options = "profile=cx5,bound=30us",
					    .nodes = NODES,
					    .node_bytes = 1 << 20,
					    .seed = seed};
	const struct vb_db_params dp = {.cc = cc,
					.coordinators = 2,
					.items_max = 2,
					.bytes_max = 64,
					.record_bytes_max = 16,
					.copies = COPIES};
	struct vb_sim_faults faults = {.delay = 0.7};

	memset(w, 0, sizeof(*w));
	vb_rng_seed(&w->rng, seed, 1);
	faults.delay_max_ns = vb_rng_chance(&w->rng, 0.5) ? 10 * US : 28 * US;
	must(vb_fabric_open(&fp, &w->f));
	must(vb_db_open(w->f, &dp, &w->db));
	must(vb_coordinator_open(w->db, HOME, &w->coordinator.me));
	for (unsigned i = 0; i < ALL; i++)
		must(vb_coordinator_open(w->db, node_of(i), &w->other[i].me));
	must(vb_txn_begin(w->coordinator.me));
	w->ts = w->coordinator.me->txn.ts;
	w->place = vb_txn_lane(w->coordinator.me)->place;
	vb_txn_write_log(&w->coordinator.me->txn, vb_txn_lane(w->coordinator.me));
	/* As behind a log that others have withdrawn. */
	if (vb_rng_chance(&w->rng, 0.3))
		vb_txn_lane(w->coordinator.me)->copies_known = false;
	if (vb_rng_chance(&w->rng, 0.3))
		faults.lose = 0.05;
	vb_sim_set_faults(w->f, &faults);
}

static void close_world(struct world *w)
{
	vb_coordinator_bury(w->coordinator.me);
	for (unsigned i = 0; i < ALL; i++)
		vb_coordinator_bury(w->other[i].me);
	vb_db_close(w->db);
	vb_fabric_close(w->f);
}

static void start(struct world *w, struct one *one, void (*body)(void *), uint64_t at_ns)
{
	static const struct vb_task_params params = {.name = "one"};
	struct vb_task *task;

	one->w = w;
	one->at_ns = at_ns;
	must(vb_task_spawn(one->me->ep->sched, body, one, &params, &task));
}

/* Who lives at the home sees that it is there; who lives at a copy has it, be it that all others take it for gone. */
static void start_residents(struct world *w, bool cut, uint64_t disowned_at)
{
	if (vb_rng_chance(&w->rng, 0.2))
		start(w, &w->other[OTHERS], withdraws, some(w, 25));
	for (unsigned i = OTHERS + 1; i < ALL && cut; i++)
		if (vb_rng_chance(&w->rng, 0.2))
			start(w, &w->other[i], seals, disowned_at + some(w, 20));
}

static void copy_goes(struct world *w, unsigned i)
{
	if (w->other[OTHERS + 1 + i].w != NULL)
		vb_sim_disown_node(w->f, (uint16_t)(HOME + 1 + i));
	else
		vb_sim_lose_node(w->f, (uint16_t)(HOME + 1 + i));
}

/* Nodes of copies, at random, but for one. */
static void lose_some(struct world *w, uint64_t gone_at[COPIES])
{
	unsigned stays = (unsigned)vb_rng_below(&w->rng, COPIES);

	for (unsigned i = 0; i < COPIES; i++)
		gone_at[i] = i != stays && vb_rng_chance(&w->rng, 0.5) ? 1 + some(w, 40) : 0;
}

static bool all_ended(const struct world *w)
{
	for (unsigned i = 0; i < ALL; i++)
		if (w->other[i].w != NULL && !w->other[i].ended)
			return false;
	return w->coordinator.ended;
}

static void judge(struct world *w, unsigned seen[UNKNOWN + 1])
{
	enum answer all = w->coordinator.answer;

	for (unsigned i = 0; i < ALL; i++) {
		enum answer one = w->other[i].answer;

		if (one == NONE || one == UNKNOWN)
			continue;
		if (all != NONE && all != UNKNOWN)
			assert_int_equal(one, all);
		all = one;
	}
	seen[all]++;
}

static void one_world(const char *cc, uint64_t seed, unsigned seen[UNKNOWN + 1])
{
	uint64_t gone_at[COPIES], disowned_at, step = US / 4, now = 0;
	struct world w;
	bool cut;

	open_world(&w, cc, seed);
	lose_some(&w, gone_at);
	cut = vb_rng_chance(&w.rng, 0.7);
	disowned_at = some(&w, 10);
	start(&w, &w.coordinator, commits, some(&w, 20));
	for (unsigned i = 0; i < 2 && cut; i++)
		start(&w, &w.other[i], seals, disowned_at + some(&w, 20));
	if (!cut || vb_rng_chance(&w.rng, 0.5))
		start(&w, &w.other[2], withdraws, some(&w, cut ? 10 : 25));
	start_residents(&w, cut, disowned_at);
	while (!all_ended(&w)) {
		for (unsigned i = 0; i < COPIES; i++)
			if (gone_at[i] != 0 && gone_at[i] <= now) {
				copy_goes(&w, i);
				gone_at[i] = 0;
			}
		if (cut && !w.disowned && disowned_at <= now) {
			vb_sim_disown_node(w.f, HOME);
			w.disowned = true;
		}
		must(vb_task_sleep_until(vb_sim_now(w.f) + step));
		now += step;
		assert_true(now < 100000 * US);
	}
	judge(&w, seen);
	close_world(&w);
}

static void one_answer_under(const char *cc)
{
	unsigned seen[UNKNOWN + 1] = {0};

	for (uint64_t seed = 1; seed <= WORLDS; seed++)
		one_world(cc, seed, seen);
	print_message("%s: %u happened, %u never\n", cc, seen[HAPPENED], seen[NEVER]);
	assert_true(seen[HAPPENED] > WORLDS / 10 && seen[NEVER] > WORLDS / 10);
}

static void one_answer(void **state)
{
	(void)state;
	one_answer_under("silo");
}

/* Each copy hears of it twice: of the log, and that it has happened. */
static void one_answer_of_two(void **state)
{
	(void)state;
	one_answer_under("to-cascade");
}

/* ---- what the words of the copies say, to who has read all that are there ---- */

#define WORD(clock, state, counted) ((uint64_t)(clock) << 18 | (counted) << 3 | (state))
#define LOGGED(counted)             WORD(5, 1, counted)
#define SEALED                      4u
#define TOLD(counted)               WORD(5, 2, counted)
#define FINAL                       (2u | SEALED)
#define NEVER_                      3u

struct words {
	uint64_t word[COPIES];
	unsigned gone; /* bits */
	bool happened;
};

static const struct words words[] = {
	{{LOGGED(7), LOGGED(7), LOGGED(7)}, 0, true},
	{{LOGGED(7), LOGGED(7), WORD(4, 1, 7)}, 0, false},
	{{LOGGED(7), LOGGED(7), 0}, 0, false},
	{{0, 0, 0}, 0, false},
	/* Nobody waits for one that is gone, or that the commit has not counted. */
	{{LOGGED(7), LOGGED(7), 0}, 1u << 2, true},
	{{LOGGED(7), 0, LOGGED(5)}, 0, true},
	{{0, LOGGED(6), LOGGED(6)}, 0, true},
	{{LOGGED(7), LOGGED(6), 0}, 0, false},
	/* Half of what another has done. */
	{{WORD(5, FINAL, 7), LOGGED(7), LOGGED(7)}, 0, true},
	{{WORD(5, FINAL, 3), LOGGED(7), 0}, 0, true},
	{{WORD(5, NEVER_, 0), LOGGED(7), LOGGED(7)}, 0, false},
	{{LOGGED(7), WORD(5, NEVER_ | SEALED, 0), LOGGED(7)}, 0, false},
	{{WORD(4, FINAL, 7), LOGGED(7), LOGGED(7)}, 0, false},
	{{WORD(0, NEVER_ | SEALED, 0), LOGGED(6), LOGGED(6)}, 0, true},
	/* What only those see who live there is no more than what all see. */
	{{WORD(5, FINAL, 7), WORD(5, NEVER_, 0), LOGGED(7)}, 0, false},
	{{WORD(5, FINAL, 7), LOGGED(7), WORD(5, NEVER_ | SEALED, 0)}, 0, false},
	{{0, WORD(5, FINAL, 6), WORD(0, NEVER_ | SEALED, 0)}, 1u << 0, false},
	{{WORD(5, NEVER_ | SEALED, 0), WORD(5, FINAL, 6), LOGGED(6)}, 0, true},
};

/* Where what is logged undoes what is in place. */
static const struct words told[] = {
	{{TOLD(7), TOLD(7), TOLD(7)}, 0, true},
	{{TOLD(7), TOLD(7), LOGGED(7)}, 0, false},
	{{LOGGED(7), LOGGED(7), LOGGED(7)}, 0, false},
	{{LOGGED(7), LOGGED(7), 0}, 0, false},
	{{TOLD(7), TOLD(7), LOGGED(7)}, 1u << 2, true},
	{{TOLD(3), TOLD(3), LOGGED(7)}, 0, true},
	{{TOLD(7), TOLD(3), 0}, 0, true},
	{{TOLD(3), LOGGED(7), 0}, 0, false},
	{{WORD(5, FINAL, 7), TOLD(7), TOLD(7)}, 0, true},
	{{WORD(5, NEVER_, 0), TOLD(7), TOLD(7)}, 0, false},
	{{TOLD(7), WORD(5, NEVER_ | SEALED, 0), TOLD(7)}, 0, false},
};

static void words_say(const char *cc, const struct words *all, size_t n)
{
	for (unsigned k = 0; k < n; k++) {
		const struct words *x = &all[k];
		uint64_t *word[COPIES], status, first = 0;
		struct world w;

		open_world(&w, cc, 1);
		vb_sim_set_faults(w.f, &(struct vb_sim_faults){0});
		for (unsigned i = 0; i < COPIES; i++) {
			word[i] = vb_local(w.f, vb_copy_at(w.db, w.place, i), 8);
			*word[i] = x->word[i];
			if (x->gone & 1u << i)
				vb_sim_lose_node(w.f, (uint16_t)(HOME + 1 + i));
		}
		vb_sim_disown_node(w.f, HOME);
		must(vb_copies_seal(w.other[0].me, w.place, &status));
		if ((status == (vb_ts_make(5, w.place) | VB_TS_COMMITTED)) != x->happened)
			fail_msg("%s: words %u", cc, k);
		for (unsigned i = 0; i < COPIES; i++) {
			if (x->gone & 1u << i)
				continue;
			first = first != 0 ? first : *word[i] & ~WORD(0, 0, 7u);
			assert_int_equal(*word[i] & ~WORD(0, 0, 7u), first);
			assert_true(*word[i] & SEALED);
		}
		close_world(&w);
	}
}

static void what_words_say(void **state)
{
	(void)state;
	words_say("silo", words, VB_ARRAY_SIZE(words));
	words_say("to-cascade", told, VB_ARRAY_SIZE(told));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(what_words_say),
					   cmocka_unit_test(one_answer),
					   cmocka_unit_test(one_answer_of_two)};

	if (vb_log_levels("off") != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
