/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kill -9 of processes that hold locks, wait for them, or are half-way in or out.
 *
 *	test_death LOCK
 *
 * A lock that survives its clients must never have two valid holders, must give tokens that grow,
 * and must be had again within its stated recovery time: half of those who wait for the dead have it
 * then, and all of them when a machine that has other things to do has come to it (lag.h).  One that
 * does not survive must stall, not fail: its survivors time out, and the dead can be named.
 */
#include "procs.h"
#include "fuse.h"
#include "lag.h"

#define LEASE_NS (25 * MS)
/* Only a lock that never comes free makes anybody wait for so long. */
#define PATIENCE_NS (20000 * MS)

static const struct vb_lock_ops *ops;

/* A process may be given no core for so long on a machine with other work, under a sanitizer. */
#define BUSY_NS (2000 * MS)

static uint64_t stated(const struct procs *w)
{
	return ops->recovery_leases * vb_lock_stretch(w->space, LEASE_NS);
}

static uint64_t recovery_bound(const struct procs *w)
{
	return stated(w) + BUSY_NS;
}

static void procs_open(struct procs *w, const struct vb_lock_ops *lock, uint64_t lease_ns)
{
	struct vb_lock_space_params sp = {
		.lock = lock->name, .locks = PROCS_LOCKS, .lease_ns = lease_ns, .fencing = true};

	procs_begin(w, &sp);
	if (lock->caps & VB_LOCK_SERVER)
		procs_start_server(w);
}

/* ---- one death at each verb ---- */

struct scene {
	enum vb_mode mode;
	unsigned verbs;
	bool after, contended;
};

static void scene_holder(struct procs *w, struct vb_lock_client *me, const void *arg)
{
	struct vb_grant g;
	int err = vb_lock_acquire(me, 0, VB_EXCLUSIVE, PATIENCE_NS, &g);

	(void)arg;
	if (err) {
		procs_fail(w->b, "the holder was not granted: %s", vb_strerror(err));
		return;
	}
	procs_judge(w, me, &g);
	board_add(&w->b->step[0]);
	/* Until the victim has asked; in the queue or dead shortly after, most of the time. */
	for (unsigned i = 0; i < 1000 && !board_get(&w->b->step[1]) && vb_lock_valid(me, &g); i++)
		vb_ep_sleep(me->ep, MS / 10);
	vb_ep_sleep(me->ep, MS);
	procs_give_back(w, me, &g);
}

static void scene_victim(struct procs *w, struct vb_lock_client *me, const void *arg)
{
	const struct scene *s = arg;
	struct vb_grant g;
	int err;

	board_add(&w->b->step[1]);
	light_fuse(me->ep, s->verbs, s->after);
	err = vb_lock_acquire(me, 0, s->mode, PATIENCE_NS, &g);
	if (err) {
		procs_fail(w->b, "the victim was not granted: %s", vb_strerror(err));
		return;
	}
	procs_judge(w, me, &g);
	procs_give_back(w, me, &g);
}

/* Of who waits, and of the server. */
static uint64_t lag_of(const struct procs *w)
{
	return lag_ns(getpid()) + (w->server != 0 ? lag_ns(w->server) : 0);
}

static void survivor(struct procs *w, struct vb_lock_client *me, const void *arg)
{
	(void)arg;
	for (uint64_t lock = 0; lock < PROCS_LOCKS; lock++) {
		uint64_t before = vb_lock_now(me), lag = lag_of(w), took, less;
		struct vb_grant g;
		int err = vb_lock_acquire(me, lock, VB_EXCLUSIVE, PATIENCE_NS, &g);

		took = vb_lock_now(me) - before;
		less = lag_less(took, lag_of(w) - lag);
		if (err || less > recovery_bound(w)) {
			procs_fail(w->b,
				   "the survivor did not get lock %" PRIu64 " in %" PRIu64
				   " ms, of which it was kept waiting by the machine for %" PRIu64
				   ": %s",
				   lock, took / MS, (took - less) / MS, vb_strerror(err));
			return;
		}
		procs_max(&w->b->longest_ns, took);
		if (took >= LEASE_NS / 2 && w->b->waits < PROCS_WAITS)
			w->b->waited_ns[board_add(&w->b->waits) - 1] = less;
		procs_judge(w, me, &g);
		procs_give_back(w, me, &g);
	}
}

static bool play(struct procs *w, const struct scene *s)
{
	pid_t holder = 0, victim;
	bool died;

	w->b->step[0] = w->b->step[1] = 0;
	if (s->contended) {
		holder = procs_spawn(w, scene_holder, NULL);
		procs_step(w, 0, 1);
	}
	victim = procs_spawn(w, scene_victim, s);
	died = procs_wait(w, victim, 2 * PATIENCE_NS);
	/* Nobody tells the fabric about every other death: it must find out by itself. */
	if (died && s->verbs & 1)
		vb_shm_mark_dead(w->f, victim);
	if (holder)
		procs_wait(w, holder, 2 * PATIENCE_NS);
	procs_wait(w, procs_spawn(w, survivor, NULL), 2 * PATIENCE_NS);
	return died;
}

static void death_at_each_verb(void **state)
{
	unsigned deaths = 0, scenes = 0;
	uint64_t median;
	struct procs w;

	(void)state;
	procs_open(&w, ops, LEASE_NS);
	for (unsigned verbs = 1; verbs <= 8; verbs++) {
		for (unsigned bits = 0; bits < 8; bits++) {
			struct scene s = {
				.mode = bits & 1 ? VB_SHARED : VB_EXCLUSIVE,
				.verbs = verbs,
				.after = bits & 2,
				.contended = bits & 4,
			};

			deaths += play(&w, &s);
			scenes++;
			if (w.b->failed)
				fail_msg("%s %s verb %u of %s%s: %s", ops->name,
					 s.after ? "after" : "before", verbs,
					 s.contended ? "contended " : "",
					 s.mode == VB_SHARED ? "shared" : "exclusive", w.b->why);
		}
	}
	median = procs_median(w.b);
	print_message("%s: %u deaths in %u scenes, %u waits: half of them %.1f ms, longest %.1f "
		      "ms, stated %.1f ms\n",
		      ops->name, deaths, scenes, w.b->waits, (double)median / MS,
		      (double)w.b->longest_ns / MS, (double)stated(&w) / MS);
	/* The first two verbs there are in any case. */
	assert_true(deaths >= 16);
	/* Some died holding it: their leases had to be waited for. */
	assert_true(w.b->waits > 0 && median <= stated(&w));
	procs_close(&w);
}

/* ---- many deaths at any time ---- */

#define STORM_WORKERS 4
#define STORM_DEATHS  200

struct worker {
	uint64_t seed;
};

static void storm_worker(struct procs *w, struct vb_lock_client *me, const void *arg)
{
	const struct worker *p = arg;
	struct vb_rng rng;

	vb_rng_seed(&rng, p->seed, me->index);
	/* A third wait for the parent to kill them. */
	if (vb_rng_below(&rng, 3) > 0)
		light_fuse(me->ep, 1 + (unsigned)vb_rng_below(&rng, 200), vb_rng_below(&rng, 2));
	while (!board_get(&w->b->stop) && !board_get(&w->b->failed)) {
		enum vb_mode mode = vb_rng_below(&rng, 2) ? VB_SHARED : VB_EXCLUSIVE;
		uint64_t lock = vb_rng_below(&rng, PROCS_LOCKS), before = vb_lock_now(me);
		struct vb_grant g;
		int err = vb_lock_acquire(me, lock, mode, PATIENCE_NS, &g);

		if (err) {
			procs_fail(w->b,
				   "worker %u did not get lock %" PRIu64 " in %" PRIu64 " ms: %s",
				   me->index, lock, (vb_lock_now(me) - before) / MS,
				   vb_strerror(err));
			return;
		}
		procs_max(&w->b->longest_ns, vb_lock_now(me) - before);
		procs_judge(w, me, &g);
		board_add(&w->b->grants);
		vb_ep_sleep(me->ep, vb_rng_below(&rng, MS / 2));
		procs_give_back(w, me, &g);
	}
}

/* Reaps worker i if it has ended, or kills it first; puts another into its place.  1 if it died. */
static unsigned storm_replace(struct procs *w, pid_t *pid, const struct worker *p, bool kill_it,
			      bool tell)
{
	int status;

	if (kill_it)
		kill(*pid, SIGKILL);
	if (waitpid(*pid, &status, kill_it ? 0 : WNOHANG) == 0)
		return 0;
	if (!was_killed(status)) {
		procs_fail(w->b, "a worker ended with status %#x", (unsigned)status);
		*pid = 0;
		return 0;
	}
	if (tell)
		vb_shm_mark_dead(w->f, *pid);
	*pid = procs_spawn(w, storm_worker, p);
	return 1;
}

static void storm(void **state)
{
	static const struct worker params = {.seed = 7};
	pid_t pid[STORM_WORKERS];
	unsigned deaths = 0;
	struct vb_rng rng;
	struct procs w;
	uint64_t end;

	(void)state;
	procs_open(&w, ops, LEASE_NS);
	vb_rng_seed(&rng, params.seed, 0);
	for (unsigned i = 0; i < STORM_WORKERS; i++)
		pid[i] = procs_spawn(&w, storm_worker, &params);
	end = vb_clock_ns() + 10 * PATIENCE_NS;
	while (deaths < STORM_DEATHS && !board_get(&w.b->failed)) {
		unsigned victim = (unsigned)vb_rng_below(&rng, STORM_WORKERS);

		usleep(1000 + (useconds_t)vb_rng_below(&rng, 40000));
		for (unsigned i = 0; i < STORM_WORKERS && !board_get(&w.b->failed); i++)
			deaths += storm_replace(&w, &pid[i], &params, i == victim, deaths & 1);
		if (vb_clock_ns() > end)
			procs_fail(w.b, "the storm takes too long");
	}
	/* Whose fuse is still burning may die now; everybody else must come to an end. */
	board_add(&w.b->stop);
	for (unsigned i = 0; i < STORM_WORKERS; i++)
		if (pid[i] > 0)
			deaths += procs_wait(&w, pid[i], 2 * PATIENCE_NS);
	print_message("%s: %u deaths, %" PRIu64 " grants, %" PRIu64
		      " leases lost, longest wait %.1f ms\n",
		      ops->name, deaths, w.b->grants, w.b->lost, (double)w.b->longest_ns / MS);
	if (w.b->failed)
		fail_msg("%s: %s", ops->name, w.b->why);
	assert_true(deaths >= STORM_DEATHS && w.b->grants > deaths);
	procs_close(&w);
}

/* ---- locks that do not survive ---- */

static void stall_victim(struct procs *w, struct vb_lock_client *me, const void *arg)
{
	struct vb_grant g;
	int err = vb_lock_acquire(me, 0, VB_EXCLUSIVE, PATIENCE_NS, &g);

	(void)arg;
	if (err) {
		procs_fail(w->b, "the victim was not granted: %s", vb_strerror(err));
		return;
	}
	__atomic_store_n(&w->b->victim, me->ep->self, __ATOMIC_SEQ_CST);
	board_add(&w->b->step[0]);
	for (;;)
		vb_ep_sleep(me->ep, 1000 * MS);
}

static void stall_survivor(struct procs *w, struct vb_lock_client *me, const void *arg)
{
	struct vb_grant g;
	int err = vb_lock_acquire(me, 0, VB_EXCLUSIVE, 300 * MS, &g);

	(void)arg;
	if (err != -ETIMEDOUT)
		procs_fail(w->b, "a lock of the dead: %s", err ? vb_strerror(err) : "granted");
	err = vb_lock_try(me, 0, VB_EXCLUSIVE, &g);
	if (err != -EAGAIN)
		procs_fail(w->b, "a try of a lock of the dead: %s",
			   err ? vb_strerror(err) : "granted");
	/* The other locks are none the worse for it. */
	for (unsigned r = 0; r < 100; r++) {
		err = vb_lock_acquire(me, 1 + r % 2, VB_EXCLUSIVE, PATIENCE_NS, &g);
		if (err) {
			procs_fail(w->b, "another lock: %s", vb_strerror(err));
			return;
		}
		procs_give_back(w, me, &g);
	}
	if (vb_peer_alive(me->ep->fabric, board_get(&w->b->victim)))
		procs_fail(w->b, "the dead holder passes for alive");
}

static void stall(void **state)
{
	struct procs w;
	pid_t victim, other[2];

	(void)state;
	procs_open(&w, ops, LEASE_NS);
	victim = procs_spawn(&w, stall_victim, NULL);
	procs_step(&w, 0, 1);
	kill(victim, SIGKILL);
	assert_true(procs_wait(&w, victim, PATIENCE_NS));
	for (unsigned i = 0; i < 2; i++)
		other[i] = procs_spawn(&w, stall_survivor, NULL);
	for (unsigned i = 0; i < 2; i++)
		assert_false(procs_wait(&w, other[i], 2 * PATIENCE_NS));
	procs_close(&w);
}

/* ---- the judge itself ---- */

static int yes_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	(void)until_ns;
	return vb_lock_grant(c, vb_ep_now(me->ep) + LEASE_NS, 1 + c->lock);
}

static int yes_release(struct vb_lock_client *me, struct vb_claim *c)
{
	(void)me, (void)c;
	return 0;
}

static const struct vb_lock_ops lock_yes = {
	.name = "yes",
	.summary = "grants everything to everybody, under one token",
	.caps = VB_LOCK_SHARED | VB_LOCK_EXCLUSIVE | VB_LOCK_SURVIVES | VB_LOCK_TOKEN,
	.entry_bytes = 8,
	.recovery_leases = 1,
	.acquire = yes_acquire,
	.release = yes_release,
};

static void judge_can_fail(void **state)
{
	static const struct worker params = {.seed = 3};
	pid_t pid[STORM_WORKERS];
	struct procs w;

	(void)state;
	procs_open(&w, ops, LEASE_NS);
	for (unsigned i = 0; i < STORM_WORKERS; i++)
		pid[i] = procs_spawn(&w, storm_worker, &params);
	for (unsigned i = 0; i < STORM_WORKERS; i++)
		procs_wait(&w, pid[i], 2 * PATIENCE_NS);
	assert_true(w.b->failed > 0);
	print_message("caught: %s\n", w.b->why);
	assert_true(strstr(w.b->why, "at the same time") || strstr(w.b->why, "token"));
	w.b->failed = 0;
	procs_close(&w);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest survives[] = {
		cmocka_unit_test(death_at_each_verb),
		cmocka_unit_test(storm),
	};
	const struct CMUnitTest itself[] = {
		cmocka_unit_test(judge_can_fail),
	};
	static const struct vb_lock_ops *const mine[] = {&lock_yes, NULL};
	const struct CMUnitTest stalls[] = {
		cmocka_unit_test(stall),
	};

	vb_lock_register(mine);
	ops = argc == 2 ? vb_lock_find(argv[1]) : NULL;
	if (!ops) {
		fprintf(stderr, "usage: test_death LOCK\n");
		return 2;
	}
	if (ops == &lock_yes)
		return cmocka_run_group_tests_name("death", itself, NULL, NULL);
	if (ops->caps & VB_LOCK_SURVIVES)
		return cmocka_run_group_tests_name("death", survives, NULL, NULL);
	return cmocka_run_group_tests_name("death", stalls, NULL, NULL);
}
