/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exploration: a seed repeats itself, every planted bug is found by the name of its rule, and locks
 * without bugs are found to have none.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define VB_LOG_ROOM "test"
#include "base/log.h"
#include "check/lock/campaign.h"
#include "check/planted/planted.h"
#include "lock/table/table.h"

#if defined(VB_ASAN)
#define CLEAN_SEEDS  20
#define REPEAT_SEEDS 4
#else
#define CLEAN_SEEDS  60
#define REPEAT_SEEDS 12
#endif
#define PLANTED_SEEDS 200

static struct vb_explore_result explore_drawn(const struct vb_explore_draw *d)
{
	struct vb_explore_result r;
	char line[256];
	int err;

	/* What protocols say about their faults is not the test's to say. */
	vb_log_capture_begin(line, sizeof(line));
	err = vb_explore_run(d->ops, d, &r);
	vb_log_capture_end();
	assert_int_equal(err, 0);
	free(r.stories);
	r.stories = NULL;
	return r;
}

static struct vb_explore_result explore(const struct vb_lock_ops *ops, uint64_t seed)
{
	struct vb_explore_draw d;

	vb_explore_draw(ops, seed, &d);
	return explore_drawn(&d);
}

static void test_seeds_repeat(void **state)
{
	static const char *const names[] = {"mcs",
					    "ncosed",
					    "rpc",
					    "drtm",
					    "dslr",
					    "dslr-update",
					    "shiftlock",
					    "traditional-ro",
					    "rma-rw",
					    "table",
					    "planted:lost-wakeup"};

	for (unsigned i = 0; i < VB_ARRAY_SIZE(names); i++) {
		const struct vb_lock_ops *ops = vb_lock_find(names[i]);
		uint64_t last = 0;

		assert_non_null(ops);
		for (uint64_t seed = 1; seed <= REPEAT_SEEDS; seed++) {
			struct vb_explore_result one = explore(ops, seed), two = explore(ops, seed);

			assert_true(one.trace_hash == two.trace_hash);
			assert_memory_equal(&one, &two, sizeof(one));
			assert_true(one.trace_hash != last);
			struct vb_explore_draw d;

			vb_explore_draw(ops, seed, &d);
			assert_true(d.never_back ||
				    (one.audit.checked_ops > 0 && (one.cycles > 0 || d.loses)));
			last = one.trace_hash;
		}
	}
}

static struct vb_lock_campaign campaign(const struct vb_lock_ops *ops, uint64_t first,
					uint64_t seeds)
{
	struct vb_lock_campaign c;

	vb_lock_campaign_init(&c, ops);
	c.all.first = first;
	c.all.seeds = seeds;
	return c;
}

/* The adversary is really there: without faults struck, nothing below proves anything. */
static void test_faults_strike(void **state)
{
	struct vb_lock_campaign c = campaign(vb_lock_find("planted:late-lease"), 1, 60);

	c.all.keep_going = true;
	assert_int_equal(vb_campaign_run(&c.all), 0);
	assert_int_equal(c.all.done, 60);
	assert_true(c.all.deaths >= 20);
	assert_true(c.cancels >= 20);
	assert_true(c.timeouts >= 200);
	assert_true(c.all.unknown >= 5);
	assert_true(c.lost >= 5);
	vb_campaign_end(&c.all);
}

/* What a lock does not promise to survive it is spared. */
static void test_draws_respect_promises(void **state)
{
	const struct vb_lock_ops *frail = vb_lock_find("mcs"), *hardy = vb_lock_find("dslr");
	unsigned hard = 0, messages = 0, cases = 0, late = 0;

	for (uint64_t seed = 1; seed <= 500; seed++) {
		struct vb_explore_draw d;

		vb_explore_draw(frail, seed, &d);
		assert_true(d.orderly);
		assert_true(d.faults.die == 0 && d.serve_max_ns == 0);
		assert_true(d.loses || d.faults.lose_ops == 1u << VB_OP_SEND ||
			    (d.faults.lose == 0 && d.faults.early == 0));
		assert_true(d.loses || (d.faults.deaf == 0 && d.faults.partition == 0));
		assert_true(d.faults.nic_stall_max_ns < d.bound_ns);
		assert_in_range(d.clients, VB_EXPLORE_CLIENTS_MIN, VB_EXPLORE_CLIENTS_MAX);
		assert_in_range(d.locks, 1, VB_EXPLORE_LOCKS_MAX);
		assert_true(d.too_late == 0 && !d.never_back);
		messages += d.faults.lose_ops == 1u << VB_OP_SEND;
		cases += d.faults.lose_ops == 1u << VB_OP_CAS64;
		vb_explore_draw(hardy, seed, &d);
		assert_true(d.lease_ns >= 2 * d.bound_ns);
		hard += d.faults.die > 0;
		assert_true(d.too_late == 0 || !(d.orderly || d.never_back));
		late += d.too_late != 0;
		vb_explore_draw_beyond(frail, seed, &d);
		assert_true(d.orderly && d.too_late == 0 && !d.never_back);
	}
	assert_in_range(late, 10, 30);
	assert_true(hard >= 100 && messages >= 40 && cases >= 40);
}

static void test_planted_bugs_are_found(void **state)
{
	for (const struct vb_lock_ops *const *l = vb_planted_locks; *l != NULL; l++) {
		/* Of this one the seeds before take long: waiters who get nowhere. */
		bool late = strcmp((*l)->name, "planted:reset-clears-bar") == 0;
		struct vb_lock_campaign c = campaign(*l, late ? 141 : 1, PLANTED_SEEDS);

		assert_int_equal(vb_campaign_run(&c.all), 0);
		if (!c.all.found)
			fail_msg("%s: nothing found in %d seeds", c.ops->name, PLANTED_SEEDS);
		assert_string_equal(vb_audit_rule_names[c.all.found_rule], c.ops->planted);
		assert_non_null(c.all.draw);
		assert_non_null(strstr(c.all.stories, c.ops->planted));
		vb_campaign_end(&c.all);
	}
}

static unsigned keeps_leases(const struct vb_explore_draw *d)
{
	return d->p_keep > 0 ? d->keep_leases : 0;
}

/* Where nothing is wrong what is kept is never lost, for however many leases. */
static void test_holds_are_kept(void **state)
{
	for (const struct vb_lock_ops *const *l = vb_locks; *l != NULL; l++) {
		uint64_t kept = 0, renewed = 0;

		for (uint64_t seed = 1; seed <= 4 * CLEAN_SEEDS && (*l)->renew != NULL; seed++) {
			struct vb_explore_result r;
			struct vb_explore_draw d;

			vb_explore_draw(*l, seed, &d);
			if (keeps_leases(&d) == 0 || !d.orderly)
				continue;
			r = explore_drawn(&d);
			assert_int_equal(r.audit.violations, 0);
			assert_true(r.kept_lost == 0 || (*l)->caps & VB_LOCK_READ_LEASE);
			kept += r.kept;
			renewed += r.kept_on;
		}
		assert_true((*l)->renew == NULL || (kept >= 10 && renewed >= 2 * kept));
	}
}

/* Who cannot renew is asked to keep, and refuses; his seeds are what they would be without. */
static void test_keeps_are_refused(void **state)
{
	unsigned asked = 0;

	for (uint64_t seed = 1; asked < 3; seed++) {
		struct vb_explore_draw d;
		uint64_t hash;

		vb_explore_draw(vb_lock_find("dslr"), seed, &d);
		assert_in_range(seed, 1, 60);
		assert_int_equal(d.keep_leases, 0);
		if (d.p_keep == 0)
			continue;
		hash = explore_drawn(&d).trace_hash;
		d.p_keep = 0;
		assert_true(explore_drawn(&d).trace_hash == hash);
		asked++;
	}
}

/* Some seeds have their calls started on rings; of locks of which that can be, many of them end at once in some. */
static void test_calls_on_rings(void **state)
{
	(void)state;
	for (const struct vb_lock_ops *const *l = vb_locks; *l != NULL; l++) {
		uint64_t started = 0, at_once = 0, others = 0;
		const bool can = (*l)->release_now != NULL;

		for (uint64_t seed = 1; started == 0 || (can && at_once == 0); seed++) {
			struct vb_explore_result r;
			struct vb_explore_draw d;

			assert_in_range(seed, 1, 100);
			vb_explore_draw(*l, seed, &d);
			if (d.p_ring == 0 || (can && started != 0 && !d.ends_at_once))
				continue;
			r = explore_drawn(&d);
			assert_int_equal(r.audit.violations, 0);
			assert_true(d.ends_at_once || r.at_once == 0);
			started += r.started;
			at_once += r.at_once;
			others += r.started - r.at_once;
		}
		assert_true(others >= 20);
		assert_true(can ? at_once >= 10 : at_once == 0);
	}
}

/* Some seeds have a second space, of the same protocol or of another that stands as much; and that is
 * where the bugs are found which only a second space shows. */
static void test_spaces_beside(void **state)
{
	static const char *const planted[] = {"planted:one-register", "planted:borrowed-name"};
	static const char *const locks[] = {"mcs", "dslr", "table"};

	for (unsigned i = 0; i < VB_ARRAY_SIZE(planted); i++) {
		struct vb_lock_campaign c = campaign(vb_lock_find(planted[i]), 1, PLANTED_SEEDS);

		assert_int_equal(vb_campaign_run(&c.all), 0);
		assert_true(c.all.found);
		assert_non_null(strstr(c.all.draw, "beside a space of"));
		assert_non_null(strstr(c.all.stories, "in the second space"));
		vb_campaign_end(&c.all);
	}
	for (unsigned i = 0; i < VB_ARRAY_SIZE(locks); i++) {
		const struct vb_lock_ops *ops = vb_lock_find(locks[i]);
		unsigned same = 0, other = 0;

		for (uint64_t seed = 1; seed <= 400; seed++) {
			struct vb_explore_draw d;

			vb_explore_draw(ops, seed, &d);
			same += d.beside == ops;
			other += d.beside != NULL && d.beside != ops;
			if (d.beside == NULL)
				continue;
			assert_int_equal(d.beside->caps & VB_LOCK_SURVIVES,
					 ops->caps & VB_LOCK_SURVIVES);
		}
		assert_true(same >= 8 && other >= 8);
	}
}

/* A client dies by its proxy while a call of its stands for its first turn: the call goes no further.  It had
 * cancelled the proxy that was dead already. */
static void test_dead_come_not_back(void **state)
{
	const struct vb_lock_ops *ops = vb_lock_find("shiftlock");
	struct vb_explore_result r = explore(ops, 2261);

	assert_true(r.deaths > 0 && r.started > 0);
	assert_int_equal(r.audit.violations, 0);
	(void)state;
}

/* Each story comes with a command; its seed finds the same again. */
static void test_replay(void **state)
{
	const struct vb_lock_ops *ops = vb_lock_find("planted:foreign-release");
	struct vb_lock_campaign c = campaign(ops, 1, PLANTED_SEEDS), again;
	char text[VB_CAMPAIGN_REPLAY];

	assert_int_equal(vb_campaign_run(&c.all), 0);
	assert_true(c.all.found);
	again = campaign(ops, c.all.found_seed, 1);
	assert_int_equal(vb_campaign_run(&again.all), 0);
	assert_true(again.all.found);
	assert_string_equal(again.all.stories, c.all.stories);
	assert_string_equal(again.all.draw, c.all.draw);
	vb_campaign_end(&c.all);
	vb_campaign_end(&again.all);
	assert_string_equal(vb_campaign_replay(text, &c.all, 17),
			    "verbena check lock --lock planted:foreign-release --seed 17");
}

static void test_stop(void **state)
{
	static const volatile bool stop = true;
	struct vb_lock_campaign c = campaign(vb_lock_find("cas"), 1, 10);

	c.all.stop = &stop;
	assert_int_equal(vb_campaign_run(&c.all), 0);
	assert_int_equal(c.all.done, 0);
	vb_campaign_end(&c.all);
}

/* In a seed, too: whoever is told of the third seed's draw stops it.  What was explored is kept. */
static ssize_t stop_at_the_third(void *cookie, const char *text, size_t size)
{
	if (memmem(text, size, "seed 3: profile", 15) != NULL)
		*(volatile bool *)cookie = true;
	return (ssize_t)size;
}

static void test_stop_in_a_seed(void **state)
{
	volatile bool stop = false;
	struct vb_lock_campaign c = campaign(vb_lock_find("mcs"), 1, 10);
	FILE *tell = fopencookie((void *)&stop, "w",
				 (cookie_io_functions_t){.write = stop_at_the_third});

	(void)state;
	assert_non_null(tell);
	setvbuf(tell, NULL, _IOLBF, 0);
	c.all.tell = tell;
	c.all.stop = &stop;
	assert_int_equal(vb_campaign_run(&c.all), 0);
	assert_true(stop);
	assert_int_equal(c.all.done, 2);
	assert_false(c.all.found);
	assert_true(c.checked_ops > 0);
	fclose(tell);
	vb_campaign_end(&c.all);
}

static void test_real_locks_are_clean(void **state)
{
	for (const struct vb_lock_ops *const *l = vb_locks; *l != NULL; l++) {
		struct vb_lock_campaign c = campaign(*l, 1, CLEAN_SEEDS);

		assert_int_equal(vb_campaign_run(&c.all), 0);
		if (c.all.found)
			fail_msg("%s, %s%s", c.ops->name, c.all.draw, c.all.stories);
		assert_int_equal(c.all.done, CLEAN_SEEDS);
		assert_true(c.checked_ops > 100 * CLEAN_SEEDS);
		vb_campaign_end(&c.all);
	}
}

/* The planted lock tables go wrong by their one rule, and not for want of leases. */
static int open_without_leases(struct vb_lock_space *space)
{
	struct vb_locktab_options *o = space->options;

	o->no_leases = true;
	return 0;
}

static const struct vb_lock_ops table_without_leases = {
	.name = "table-without-leases",
	.summary = "the lock table as the planted ones are, with every rule right",
	.caps = VB_LOCK_SHARED | VB_LOCK_EXCLUSIVE | VB_LOCK_FIFO | VB_LOCK_TOKEN | VB_LOCK_SERVER |
		VB_LOCK_UPDATE | VB_LOCK_INTENT | VB_LOCK_DENIES,
	.open = open_without_leases,
	VB_LOCKTAB_CALLS,
};

static void test_table_without_leases_is_clean(void **state)
{
	static const struct vb_lock_ops *const mine[] = {&table_without_leases, NULL};
	struct vb_lock_campaign c = campaign(&table_without_leases, 1, CLEAN_SEEDS);

	vb_lock_register(mine);
	assert_int_equal(vb_campaign_run(&c.all), 0);
	if (c.all.found)
		fail_msg("%s%s", c.all.draw, c.all.stories);
	assert_int_equal(c.all.done, CLEAN_SEEDS);
	vb_campaign_end(&c.all);
}

/* Servers that stand still, stop or die in some seeds, and such that do not: what is left of a
 * server is for the next one to find. */
static void test_servers_go(void **state)
{
	const struct vb_lock_ops *ops = vb_lock_find("traditional");
	unsigned still = 0, stop = 0, die = 0, gone = 0, edge = 0;

	for (uint64_t seed = 1; seed <= 300; seed++) {
		struct vb_explore_draw d;

		vb_explore_draw(ops, seed, &d);
		assert_true(!d.orderly || (d.serve_max_ns == 0 && d.faults.stall == 0));
		assert_true(!d.never_back || d.servers_die);
		still += d.faults.stall > 0;
		stop += d.serve_max_ns > 0 && !d.servers_die;
		die += d.serve_max_ns > 0 && d.servers_die;
		edge += d.faults.drift_edge;
		if (seed <= 40)
			gone += (unsigned)explore(ops, seed).servers_gone;
	}
	assert_true(still >= 30 && stop >= 10 && die >= 20 && edge >= 40);
	assert_true(gone >= 20);
	/* One that is stopped in the midst of a recovery brings that to its end first. */
	ops = vb_lock_find("shiftlock");
	for (uint64_t seed = 1, stops = 0; stops < 10; seed++) {
		struct vb_explore_draw d;

		vb_explore_draw(ops, seed, &d);
		if (d.serve_max_ns == 0 || d.servers_die)
			continue;
		assert_true(explore(ops, seed).servers_gone > 0);
		stops++;
	}
}

/* ---- beyond what can be survived ---- */

/* A server that never returns: whoever asks is told so, and nobody waits for ever. */
static void test_never_back(void **state)
{
	static const char *const locks[] = {"rpc", "traditional", "traditional-ro", "table"};

	for (unsigned i = 0; i < VB_ARRAY_SIZE(locks); i++) {
		unsigned told = 0;

		for (uint64_t seed = 1; told < 3; seed++) {
			struct vb_explore_result r;
			struct vb_explore_draw d;

			vb_explore_draw_beyond(vb_lock_find(locks[i]), seed, &d);
			if (!d.never_back)
				continue;
			assert_in_range(seed, 1, 40);
			r = explore_drawn(&d);
			assert_int_equal(r.audit.violations, 0);
			assert_int_equal(r.forgiven, 0);
			assert_true(r.servers_gone <= 1);
			told += r.servers_gone == 1 && r.told > 0;
		}
	}
}

/* Verbs that take effect later than the fabric says: of every lock that survives anything, in every seed; two
 * do hold a lock then in some, and all that is not forgiven holds. */
static void test_verbs_too_late(void **state)
{
	for (const struct vb_lock_ops *const *l = vb_locks; *l != NULL; l++) {
		uint64_t late = 0;

		for (uint64_t seed = 1, seen = 0; vb_explore_goes_beyond(*l) && seen < 4; seed++) {
			struct vb_explore_result r;
			struct vb_explore_draw d;

			vb_explore_draw_beyond(*l, seed, &d);
			assert_true(d.never_back != (d.too_late != 0));
			if (d.never_back)
				continue;
			seen++;
			r = explore_drawn(&d);
			if (r.audit.violations != 0)
				fail_msg("%s, seed %llu, beyond", (*l)->name,
					 (unsigned long long)seed);
			assert_true(r.late_verbs > 0);
			late += r.late_verbs;
		}
		assert_true(!vb_explore_goes_beyond(*l) || late >= 40);
	}
}

/* What is forgiven does happen, and the seed says so. */
static void test_forgiven_is_told(void **state)
{
	static const uint64_t seeds[] = {169, 210};

	for (unsigned i = 0; i < VB_ARRAY_SIZE(seeds); i++) {
		struct vb_lock_campaign c = campaign(vb_lock_find("dslr"), seeds[i], 1);
		char *told = NULL;
		size_t size;

		c.all.tell = open_memstream(&told, &size);
		assert_non_null(c.all.tell);
		assert_int_equal(vb_campaign_run(&c.all), 0);
		fclose(c.all.tell);
		assert_true(c.late_verbs > 0 && c.forgiven > 0);
		assert_false(c.all.found);
		assert_non_null(strstr(told, "later than promised"));
		assert_non_null(strstr(told, "forgiven mode-conflict"));
		free(told);
		vb_campaign_end(&c.all);
	}
}

/* dslr, of which from some moment on everybody has each lock at once. */
static struct {
	struct vb_lock_ops ops;
	uint64_t opens_ns; /* that moment */
	/* When somebody has asked last; the longest time in which nobody has, and its end. */
	uint64_t asked_ns, pause_ns, behind_pause_ns;
} door;

static int through_the_door(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	const uint64_t now = vb_sched_now(me->ep->sched);

	if (now - door.asked_ns > door.pause_ns) {
		door.pause_ns = now - door.asked_ns;
		door.behind_pause_ns = now;
	}
	door.asked_ns = now;
	if (now < door.opens_ns)
		return vb_lock_find("dslr")->acquire(me, c, until_ns);
	c->valid_until_ns = vb_ep_now(me->ep) + me->space->lease_ns;
	return 0;
}

/* When all that was late has landed nothing is forgiven any more, and there are grants yet. */
static void test_forgiven_no_longer(void **state)
{
	static const struct vb_lock_ops *const list[] = {&door.ops, NULL};
	struct vb_explore_result r;
	struct vb_explore_draw d;

	door.ops = *vb_lock_find("dslr");
	door.ops.name = "test:door";
	door.ops.acquire = through_the_door;
	vb_lock_register(list);
	for (uint64_t seed = 1, held = 0; held < 3; seed++) {
		vb_explore_draw_beyond(&door.ops, seed, &d);
		assert_in_range(seed, 1, 20);
		if (d.hold_max_ns == 0)
			continue;
		held++;
		door.opens_ns = UINT64_MAX;
		door.asked_ns = door.pause_ns = 0;
		r = explore_drawn(&d);
		assert_int_equal(r.audit.violations, 0);
		assert_true(door.pause_ns >= d.too_late * d.bound_ns);
		door.opens_ns = door.behind_pause_ns;
		door.asked_ns = door.pause_ns = 0;
		r = explore_drawn(&d);
		assert_true(r.audit.by_rule[VB_AUDIT_MODE_CONFLICT] > 0);
	}
}

/* The mistake that nothing else shows. */
static void test_only_beyond(void **state)
{
	const struct vb_lock_ops *ops = vb_lock_find("planted:never-too-late");
	unsigned found = 0, spared = 0;

	for (uint64_t seed = 1; found < 3; seed++) {
		struct vb_explore_result r;
		struct vb_explore_draw d;

		vb_explore_draw(ops, seed, &d);
		r = explore_drawn(&d);
		assert_int_equal(r.audit.by_rule[VB_AUDIT_WRONG_ERROR], r.audit.violations);
		assert_true(d.too_late != 0 || r.audit.violations == 0);
		found += r.audit.violations > 0;
		spared += d.too_late == 0;
		assert_in_range(seed, 1, 200);
	}
	assert_true(spared >= 20);
}

/* Servers of which one hardly begins before it ends, and of the lock table's, in some seeds, one follows
 * two, or two one, or their machine crashes. */
static void test_servers_follow(void **state)
{
	const struct vb_lock_ops *ops = vb_lock_find("table");
	unsigned soon = 0, recounts = 0, crashes = 0, gone = 0;

	for (uint64_t seed = 1; seed <= 300; seed++) {
		struct vb_explore_draw d;

		vb_explore_draw(ops, seed, &d);
		assert_true(d.serve_max_ns > 0 || (d.p_soon == 0 && !d.recounts));
		/* What another agent's file says of tokens is not promised without the segment. */
		assert_false(d.recounts && d.loses_segment);
		soon += d.p_soon > 0;
		recounts += d.recounts;
		crashes += d.crashes;
		assert_true(!d.crashes || (d.loses_segment && d.keeps_files));
		if ((d.recounts || d.crashes) && gone < 20)
			gone += (unsigned)explore(ops, seed).servers_gone;
		vb_explore_draw(vb_lock_find("rpc"), seed, &d);
		assert_false(d.recounts);
	}
	assert_true(soon >= 20 && recounts >= 10 && crashes >= 5 && gone >= 20);
}

/* Where readers come and go without end, one that leaves takes longer than its verbs; and no longer than the
 * others give it cause. */
static void test_races_to_leave(void **state)
{
	const struct vb_lock_ops *ops = vb_lock_find("ncosed");
	struct vb_lock_ops strict = *ops;
	uint64_t judged = 0, late = 0;

	strict.caps &= ~(uint32_t)VB_LOCK_LEAVE_RACES;
	for (uint64_t seed = 1; judged < 4; seed++) {
		struct vb_explore_result r;
		struct vb_explore_draw d;

		vb_explore_draw(ops, seed, &d);
		if (d.prompt_ns == 0 || !d.orderly || d.bound_ns > 50000 || d.servers > 1)
			continue;
		judged++;
		d.clients = VB_EXPLORE_CLIENTS_MAX;
		d.locks = 1;
		d.read_ratio = 0.95;
		d.attempts = 100;
		d.think_max_ns = d.hold_max_ns = 0;
		assert_int_equal(vb_explore_run(ops, &d, &r), 0);
		assert_int_equal(r.audit.violations, 0);
		assert_int_equal(vb_explore_run(&strict, &d, &r), 0);
		assert_int_equal(r.audit.by_rule[VB_AUDIT_OVERDUE], r.audit.violations);
		late += r.audit.violations;
		free(r.stories);
	}
	assert_true(late > 0);
}

/* Whoever closes behind a lock that is lost leaves an endpoint there: not more than there are. */
static void test_places_behind_the_lost(void **state)
{
	unsigned many = 0;

	for (uint64_t seed = 1; seed <= 12; seed++) {
		const struct vb_lock_ops *ops = vb_lock_find("rma-rw");
		struct vb_explore_result r;
		struct vb_explore_draw d;
		char said[256];
		int err;

		vb_explore_draw(ops, seed, &d);
		d.clients = VB_EXPLORE_CLIENTS_MAX;
		d.attempts = 100;
		d.think_max_ns = d.hold_max_ns = 0;
		d.loses = true;
		d.faults.lose = 0.005;
		d.p_close = 0.1;
		d.p_timeout = 0.25;
		d.timeout_octaves = 8;
		d.cancel_every_ns = 50000;
		vb_log_capture_begin(said, sizeof(said));
		err = vb_explore_run(ops, &d, &r);
		vb_log_capture_end();
		free(r.stories);
		assert_int_equal(err, 0);
		many += r.ghosts >= VB_EXPLORE_GHOSTS_MAX;
	}
	assert_true(many > 0);
}

/* Every mode, every policy, conversions: what is not drawn is not explored. */
static void test_table_draws(void **state)
{
	const struct vb_lock_ops *ops = vb_lock_find("table");
	unsigned policy[3] = {0}, modes = 0, any_order = 0, convert = 0, no_slots = 0, paths = 0;

	for (uint64_t seed = 1; seed <= 300; seed++) {
		struct vb_explore_draw d;

		vb_explore_draw(ops, seed, &d);
		policy[0] += strstr(d.options, "policy=bounded-wait") != NULL;
		policy[1] += strstr(d.options, "policy=no-wait") != NULL;
		policy[2] += strstr(d.options, "policy=wait-die") != NULL;
		no_slots += strstr(d.options, "slots=0") != NULL;
		modes += d.all_modes;
		any_order += d.any_order;
		convert += d.p_convert > 0;
		paths += d.p_path > 0 && d.locks > 1;
	}
	assert_int_equal(policy[0] + policy[1] + policy[2], 300);
	for (unsigned i = 0; i < 3; i++)
		assert_true(policy[i] >= 70);
	assert_true(modes >= 200 && any_order >= 150 && convert >= 150 && no_slots >= 5);
	assert_true(paths >= 60);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_seeds_repeat),
		cmocka_unit_test(test_faults_strike),
		cmocka_unit_test(test_draws_respect_promises),
		cmocka_unit_test(test_planted_bugs_are_found),
		cmocka_unit_test(test_holds_are_kept),
		cmocka_unit_test(test_keeps_are_refused),
		cmocka_unit_test(test_calls_on_rings),
		cmocka_unit_test(test_spaces_beside),
		cmocka_unit_test(test_dead_come_not_back),
		cmocka_unit_test(test_replay),
		cmocka_unit_test(test_stop),
		cmocka_unit_test(test_stop_in_a_seed),
		cmocka_unit_test(test_real_locks_are_clean),
		cmocka_unit_test(test_table_without_leases_is_clean),
		cmocka_unit_test(test_races_to_leave),
		cmocka_unit_test(test_places_behind_the_lost),
		cmocka_unit_test(test_table_draws),
		cmocka_unit_test(test_servers_go),
		cmocka_unit_test(test_servers_follow),
		cmocka_unit_test(test_never_back),
		cmocka_unit_test(test_verbs_too_late),
		cmocka_unit_test(test_forgiven_is_told),
		cmocka_unit_test(test_forgiven_no_longer),
		cmocka_unit_test(test_only_beyond),
	};

	vb_lock_register(vb_planted_locks);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
