/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which cases of lock_suite.h run, for which lock, and how many: the end of that file.
 *
 * A case that asks for more than the lock promises (promised.h) is skipped by name, with the reason.
 * How many have run to their ends is counted in each world and compared with what is written down
 * there.  `suite_can_fail` runs on a lock that grants everything to everybody, and must see it: a
 * suite that cannot fail proves nothing.
 */
#ifndef TEST_LOCK_SUITE_RUN_H
#define TEST_LOCK_SUITE_RUN_H

#include "promised.h"

/* ---- can it fail? ---- */

static int yes_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	(void)me, (void)until_ns;
	return vb_lock_grant(c, VB_FOREVER_NS, 0);
}

static int yes_release(struct vb_lock_client *me, struct vb_claim *c)
{
	(void)me, (void)c;
	return 0;
}

static const struct vb_lock_ops lock_yes = {
	.name = "yes",
	.summary = "grants everything to everybody",
	.caps = VB_LOCK_EXCLUSIVE,
	.entry_bytes = 8,
	.acquire = yes_acquire,
	.release = yes_release,
};

/* Processes that get a core each in turn might never meet: each waits inside for all the others. */
static void meeting_actor(struct world *w, struct vb_lock_client *me, unsigned i)
{
	struct vb_grant g;
	uint64_t v;

	EXPECT_ERR(w, 0, vb_lock_acquire(me, 0, VB_EXCLUSIVE, PATIENCE_NS, &g));
	board_enter(w->b, 0, VB_EXCLUSIVE);
	EXPECT_ERR(w, 0, vb_read64(me->ep, w->cells, &v));
	board_add(&w->b->step[0]);
	AWAIT(w, me, &w->b->step[0], RIVALS);
	v++;
	EXPECT_ERR(w, 0, vb_write(me->ep, w->cells, &v, 8));
	board_leave(w->b, 0, VB_EXCLUSIVE);
	EXPECT_ERR(w, 0, vb_lock_release(me, &g));
}

static void suite_can_fail(void **state)
{
	struct world w;

	world_open(&w, &(struct world_params){.kind = kind_of(state), .ops = &lock_yes});
	world_run(&w, RIVALS, w.apart ? meeting_actor : exclusion_actor);
	assert_true(w.b->violations > 0);
	if (w.apart)
		assert_int_equal(world_cell(&w, 0), 1);
	else
		assert_true(world_cell(&w, 0) + world_cell(&w, 1) + world_cell(&w, 2) <
			    RIVALS * ROUNDS);
	world_close(&w);
}

/* The lock's word and what is written down elsewhere. */
static void caps(void **state)
{
	const struct promised *p = promised_of(LOCK.name);

	(void)state;
	for (const struct vb_lock_ops *const *l = vb_locks; *l != NULL; l++)
		if (promised_of((*l)->name) == NULL)
			fail_msg("promised.h does not say what '%s' promises", (*l)->name);
	if (p == NULL)
		return;
	assert_int_equal(LOCK.caps, p->caps);
	assert_int_equal(LOCK.holder != NULL, p->told != TOLD_NOTHING);
	assert_int_equal(LOCK.recovery_leases != 0, (p->caps & VB_LOCK_SURVIVES) != 0);
	if (!(p->caps & VB_LOCK_FIFO))
		return;
	assert_int_equal(LOCK.bypass_bound(RIVALS + 1, VB_EXCLUSIVE), p->pass_writer);
	assert_int_equal(LOCK.bypass_bound(RIVALS + 1, VB_SHARED), p->pass_reader);
}

/* ---- the cases ---- */

struct suite_test {
	const char *name;
	CMUnitTestFunction fn;
	uint32_t needs; /* enum vb_lock_caps; else it is skipped ... */
	const char *otherwise;
	bool once;         /* on a fabric of its own choice */
	bool in_turn;      /* skipped, too, where others may be granted first */
	bool tasks;        /* not for actors that are processes */
	bool short_leases; /* not where verbs may be late by the machine's pace */
};

#define CASE(f, ...)                                                                               \
	{                                                                                          \
		.name = #f, .fn = f, ##__VA_ARGS__                                                 \
	}

static const struct suite_test suite_tests[] = {
	CASE(caps, .once = true),
	CASE(exclusion),
	CASE(readers_and_writers),
	CASE(shared_together, .needs = VB_LOCK_SHARED, .otherwise = "has no shared mode"),
	CASE(upgrades, .needs = VB_LOCK_UPDATE, .otherwise = "has no update locks"),
	CASE(order, .needs = VB_LOCK_FIFO, .otherwise = "promises no order"),
	CASE(order_of_both, .needs = VB_LOCK_FIFO | VB_LOCK_SHARED, .in_turn = true,
	     .otherwise = "has no readers, or lets some pass"),
	CASE(try_without_waiting),
	CASE(deadline),
	CASE(again_after_deadline),
	CASE(cancellation, .tasks = true),
	CASE(modes),
	CASE(misuse),
	CASE(reopening),
	CASE(tokens_grow),
	CASE(holds),
	CASE(lease_ends, .needs = VB_LOCK_SURVIVES, .otherwise = "has no leases",
	     .short_leases = true),
	CASE(plain_fabric, .once = true),
	CASE(lost_answers, .once = true),
	CASE(suite_can_fail),
};
#define ONCE 3u /* of these */

static unsigned ran[WORLD_KINDS]; /* to their ends, neither skipped nor failed */

/* In the order in which they came, readers and writers alike? */
static bool is_in_turn(const struct promised *p)
{
	if (p != NULL)
		return p->in_turn;
	return LOCK.caps & VB_LOCK_FIFO && LOCK.bypass_bound(RIVALS + 1, VB_EXCLUSIVE) == 0 &&
	       LOCK.bypass_bound(RIVALS + 1, VB_SHARED) == 0;
}

static void run_case(void **state)
{
	const struct suite_case *c = *state;
	const struct promised *p = promised_of(LOCK.name);
	uint32_t has = p != NULL ? p->caps : LOCK.caps;
	const char *why = NULL;

	if ((has & c->test->needs) != c->test->needs || (c->test->in_turn && !is_in_turn(p)))
		why = c->test->otherwise;
	else if (c->test->tasks && world_is_apart(c->kind))
		why = "is cancelled in a task by tasks of its own process";
	else if (c->test->short_leases && c->kind == OWN_TASKS)
		why = "has leases that are shorter than the test's provider may be late";
	if (why != NULL) {
		print_message("skipped: '%s' %s\n", LOCK.name, why);
		skip();
	}
	c->test->fn(state);
	ran[c->kind]++;
}

/* Provided verbs are those of any fabric: four locks on them do, of those that wait in each way there is.
 * Clients who begin by themselves know each other's clocks by messages only: too badly for drtm, on a busy
 * machine. */
static bool runs_on(enum world_kind kind)
{
	static const char *const on_own[] = {"cas", "mcs", "dslr", "shiftlock"};

	for (size_t i = 0; kind == OWN_TASKS && i < VB_ARRAY_SIZE(on_own); i++)
		if (strcmp(LOCK.name, on_own[i]) == 0)
			return true;
	return kind != OWN_TASKS && (kind != NET_CLIENTS || strcmp(LOCK.name, "drtm") != 0);
}

/* Whatever was skipped: so many cases of this lock have run. */
static void count_cases(void **state)
{
	const struct promised *p = promised_of(LOCK.name);
	const char *only = *state;

	for (enum world_kind k = SIM; p != NULL && k < WORLD_KINDS; k++) {
		unsigned must = p->cases - (k == SIM ? 0 : ONCE) - world_is_apart(k) -
				(k == OWN_TASKS && p->caps & VB_LOCK_SURVIVES ? 1 : 0);

		if (strncmp(world_names[k], only, strlen(only)) != 0 || !runs_on(k) ||
		    (world_is_net(k) && net_absent(k) != NULL))
			continue;
		if (ran[k] != must)
			fail_msg("%u cases have run to their ends on %s, and %u must", ran[k],
				 world_names[k], must);
	}
}

/* Usage: [WORLD]: only on the fabrics whose name begins so ("verbs"). */
int main(int argc, char **argv)
{
	static const struct vb_lock_ops *const mine[] = {&LOCK, &lock_yes, NULL};
	static struct suite_case cases[VB_ARRAY_SIZE(suite_tests) * WORLD_KINDS];
	struct CMUnitTest tests[VB_ARRAY_SIZE(cases) + 1];
	char names[VB_ARRAY_SIZE(tests)][64];
	const char *only = argc > 1 ? argv[1] : "";
	size_t n = 0;

	/* A lock that is not in the library's table (yet) is found all the same. */
	vb_lock_register(mine);
	for (size_t t = 0; t < VB_ARRAY_SIZE(suite_tests); t++) {
		for (unsigned k = 0; k < (suite_tests[t].once ? 1 : WORLD_KINDS); k++) {
			const char *world = world_names[k];

			if (strncmp(world, only, strlen(only)) != 0 || !runs_on((enum world_kind)k))
				continue;
			snprintf(names[n], sizeof(names[n]), "%s/%s/%s", LOCK.name,
				 suite_tests[t].name, world);
			cases[n] = (struct suite_case){(enum world_kind)k, &suite_tests[t]};
			tests[n] = (struct CMUnitTest){
				.name = names[n],
				.test_func = run_case,
				.initial_state = &cases[n],
			};
			n++;
		}
	}
	tests[n++] = (struct CMUnitTest){
		.name = "count_cases", .test_func = count_cases, .initial_state = (void *)only};
	return _cmocka_run_group_tests(LOCK.name, tests, n, NULL, NULL);
}

#endif
