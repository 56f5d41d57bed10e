/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kill -9 and SIGSTOP of processes that are in the middle of transactions, on shm.
 *
 *	test_txn_death PROTOCOL
 *	test_txn_death all PROTOCOL...	these are all that there are
 *
 * Whatever moment it is, the others go on: what the dead or the stopped one held is theirs within
 * about two leases (half of the time; always, when a machine with other work has come to it), its
 * transaction has happened or it has not, and no money is lost or made.  Whoever was stopped past
 * its lease finds that out when it wakes, and harms nobody.  Without recovery what the dead held is
 * held for good, and can be named.
 */
#include "txn_procs.h"

static const char *cc;

/* ---- ending at a verb ---- */

/*
 * The coordinator's endpoint gets a copy of its fabric's operations in which each verb burns a
 * piece of a fuse; at its end the process kills itself, before the verb or right after it.
 */
static struct {
	struct vb_fabric_ops ops;
	const struct vb_fabric_ops *real;
	unsigned left;
	bool after;
	/* Or it stops itself behind the commit point of the transaction that has this status word:
	 * at once, or in the first WRITE of its commit stage, past the last look at the clock; or in the
	 * first WRITE at all. */
	struct vb_coordinator *stops;
	bool in_write, committed;
} fuse;

#define FUSED(call)                                                                                \
	({                                                                                         \
		bool end_ = fuse.left != 0 && --fuse.left == 0;                                    \
		int r_;                                                                            \
                                                                                                   \
		if (end_ && !fuse.after)                                                           \
			kill(getpid(), SIGKILL);                                                   \
		r_ = call;                                                                         \
		if (end_)                                                                          \
			kill(getpid(), SIGKILL);                                                   \
		r_;                                                                                \
	})

static int fused_read(struct vb_ep *ep, vb_addr a, void *buf, uint32_t len)
{
	return FUSED(fuse.real->read(ep, a, buf, len));
}

static int fused_read64(struct vb_ep *ep, vb_addr a, uint64_t *out)
{
	return FUSED(fuse.real->read64(ep, a, out));
}

static int fused_write(struct vb_ep *ep, vb_addr a, const void *buf, uint32_t len)
{
	if (fuse.committed) {
		fuse.committed = false;
		raise(SIGSTOP);
	}
	return FUSED(fuse.real->write(ep, a, buf, len));
}

static int fused_cas64(struct vb_ep *ep, vb_addr a, uint64_t expect, uint64_t value, uint64_t *old)
{
	struct vb_coordinator *me = fuse.stops;
	int err = FUSED(fuse.real->cas64(ep, a, expect, value, old));

	if (me != NULL && a == vb_db_place(me->db, vb_txn_lane(me)->place) && *old == expect &&
	    value == (me->txn.ts | VB_TS_COMMITTED)) {
		fuse.stops = NULL;
		fuse.committed = fuse.in_write;
		if (!fuse.in_write)
			raise(SIGSTOP);
	}
	return err;
}

static void light_fuse(struct vb_ep *ep, unsigned verbs, bool after)
{
	fuse.real = ep->ops;
	fuse.ops = *ep->ops;
	fuse.left = verbs;
	fuse.after = after;
	/* shm has each of these; the wrappers would otherwise call through NULL. */
	vb_assert(fuse.real->read && fuse.real->read64 && fuse.real->write && fuse.real->cas64);
	fuse.ops.read = fused_read;
	fuse.ops.read64 = fused_read64;
	fuse.ops.write = fused_write;
	fuse.ops.cas64 = fused_cas64;
	ep->ops = &fuse.ops;
}

/* ---- one death at each verb ---- */

static uint64_t median_of(uint64_t *ns, unsigned n)
{
	for (unsigned i = 1; i < n; i++)
		for (unsigned k = i; k > 0 && ns[k - 1] > ns[k]; k--) {
			uint64_t less = ns[k];

			ns[k] = ns[k - 1];
			ns[k - 1] = less;
		}
	return n > 0 ? ns[n / 2] : 0;
}

#define SCENE_LEASE_NS (50 * MS)
#define SCENE_VERBS    24u

struct scene {
	unsigned verbs;
	bool after;
};

static const struct move scene_move = {.from = 1, .to = 2, .amount = 10, .gift = 3};
static const struct move back = {.from = 2, .to = 1, .amount = 4, .gift = 1};

static void scene_victim(struct procs *w, struct vb_coordinator *me, const void *arg)
{
	const struct scene *s = arg;

	light_fuse(me->ep, s->verbs, s->after);
	move_for_sure(w, me, &scene_move);
}

static void survivor(struct procs *w, struct vb_coordinator *me, const void *arg)
{
	move_for_sure(w, me, arg);
}

static void death_at_each_verb(void **state)
{
	uint64_t waited[2 * SCENE_VERBS], took, median;
	unsigned deaths = 0, in_commit = 0, waits = 0;
	struct procs w;

	(void)state;
	procs_open(&w, cc, true, SCENE_LEASE_NS);
	for (unsigned i = 2; i < 2 * SCENE_VERBS + 2 && !board_get(&w.b->failed); i++) {
		struct scene s = {.verbs = i / 2, .after = i % 2};
		unsigned who = w.born;
		pid_t victim = procs_spawn(&w, scene_victim, &s);

		if (was_killed(procs_wait(&w, victim, 0))) {
			deaths++;
			in_commit += book_close(&w, who);
			/* Nobody tells the fabric about every other death: it finds out by
			 * itself. */
			if (s.verbs & 1)
				vb_shm_mark_dead(w.f, victim);
		}
		procs_wait(&w, procs_spawn(&w, survivor, &back), 0);
		took = w.b->actor[w.born - 1].longest_ns;
		if (took >= SCENE_LEASE_NS)
			waited[waits++] = w.b->actor[w.born - 1].less_ns;
		if (board_get(&w.b->failed))
			print_message("after death %s verb %u\n", s.after ? "after" : "before",
				      s.verbs);
	}
	procs_audit(&w);
	median = median_of(waited, waits);
	print_message("%s: %u deaths, %u of them in a commit; %u waits: half of them %.1f ms, "
		      "longest %.1f ms, stated %.1f ms\n",
		      cc, deaths, in_commit, waits, (double)median / MS,
		      waits ? (double)waited[waits - 1] / MS : 0, (double)stated(&w) / MS);
	if (!w.b->failed) {
		/* Every transaction has so many verbs, and some of them while it holds both
		 * accounts. */
		assert_true(deaths >= 16 && in_commit >= 4);
		assert_true(waits >= 4);
		/* A retry comes some time after what it waits for. */
		assert_true(median <= stated(&w) + SCENE_LEASE_NS / 2);
	}
	procs_close(&w);
}

/* ---- one of three is killed, again and again ---- */

#define STORM_LEASE_NS (200 * MS)
#define STORM_WORKERS  3u
#define STORM_DEATHS   12u
#define STORM_COMMITS  300u /* of each survivor, after a death */
#define STORM_TURNS    30u  /* the same where each waits for three servers to be given a core */

static void storm_worker(struct procs *w, struct vb_coordinator *me, const void *arg)
{
	(void)arg;
	while (!board_get(&w->b->stop) && !board_get(&w->b->failed)) {
		struct move m = {
			.from = vb_rng_below(&me->rng, ACCOUNTS),
			.amount = (int64_t)vb_rng_below(&me->rng, 20),
			.gift = (int64_t)vb_rng_below(&me->rng, 3),
		};

		m.to = (m.from + 1 + vb_rng_below(&me->rng, ACCOUNTS - 1)) % ACCOUNTS;
		move_for_sure(w, me, &m);
	}
}

/* Until each of these has committed so often again. */
static void await_commits(struct procs *w, const unsigned *actor, unsigned n)
{
	uint64_t end = vb_clock_ns() + PATIENCE_NS, from[STORM_WORKERS];
	uint64_t more = w->declares ? STORM_TURNS : STORM_COMMITS;

	for (unsigned i = 0; i < n; i++)
		from[i] = board_get(&w->b->actor[actor[i]].commits);
	for (unsigned i = 0; i < n && !board_get(&w->b->failed);) {
		if (board_get(&w->b->actor[actor[i]].commits) >= from[i] + more)
			i++;
		else if (vb_clock_ns() > end)
			procs_fail(w, "a process has stopped to commit");
		else
			usleep(500);
	}
}

static void storm(void **state)
{
	unsigned actor[STORM_WORKERS], in_commit = 0, deaths = 0;
	pid_t pid[STORM_WORKERS];
	uint64_t longest = 0, commits = 0;
	struct vb_rng rng;
	struct procs w;

	(void)state;
	procs_open(&w, cc, true, STORM_LEASE_NS);
	vb_rng_seed(&rng, 11, 0);
	for (unsigned i = 0; i < STORM_WORKERS; i++) {
		actor[i] = w.born;
		pid[i] = procs_spawn(&w, storm_worker, NULL);
	}
	while (deaths < STORM_DEATHS && !board_get(&w.b->failed)) {
		unsigned v = (unsigned)vb_rng_below(&rng, STORM_WORKERS);

		await_commits(&w, actor, STORM_WORKERS);
		usleep((useconds_t)vb_rng_below(&rng, 5000));
		kill(pid[v], SIGKILL);
		if (!was_killed(procs_wait(&w, pid[v], 0)))
			procs_fail(&w, "a worker has ended by itself");
		in_commit += book_close(&w, actor[v]);
		if (deaths++ & 1)
			vb_shm_mark_dead(w.f, pid[v]);
		actor[v] = w.born;
		pid[v] = procs_spawn(&w, storm_worker, NULL);
	}
	if (!board_get(&w.b->failed))
		await_commits(&w, actor, STORM_WORKERS);
	board_add(&w.b->stop);
	for (unsigned i = 0; i < STORM_WORKERS; i++)
		procs_wait(&w, pid[i], 0);
	procs_audit(&w);
	for (unsigned i = 0; i < w.born; i++) {
		commits += w.b->actor[i].commits;
		if (w.b->actor[i].longest_ns > longest)
			longest = w.b->actor[i].longest_ns;
	}
	print_message("%s: %u deaths, %u of them in a commit, %" PRIu64
		      " commits, longest wait %.1f ms, %" PRIu64 " locks swept up\n",
		      cc, deaths, in_commit, commits, (double)longest / MS, w.b->swept);
	procs_close(&w);
}

/* ---- stopped past the lease, and back ---- */

enum spot { IN_BODY, PREPARED, COMMITTED, WRITING, SPOTS };
static const char *const spot_names[] = {"in its body", "prepared", "past its commit point",
					 "in its first WRITE"};

/* Its first WRITE is before its commit point, and no more come behind that. */
static bool installs(void)
{
	return vb_cc_installs(vb_cc_find(cc));
}

/* It lives and may still write: others wait for it, however long it stands still. */
static bool is_waited_for(enum spot spot)
{
	return spot == WRITING || (spot == COMMITTED && !installs());
}

static void stop_now(struct procs *w)
{
	w->at_prepared = NULL;
	raise(SIGSTOP);
}

/* A machine with other work may take a lease's time on the way to the spot: then it has not been there. */
static bool has_stopped(const struct procs *w, enum spot spot)
{
	if (spot == IN_BODY)
		return true;
	if (spot == PREPARED)
		return w->at_prepared == NULL;
	return fuse.stops == NULL && !fuse.committed;
}

static int sleep_at(struct procs *w, struct vb_coordinator *me, enum spot spot)
{
	int err = vb_txn_begin(me);

	if (spot == PREPARED)
		w->at_prepared = stop_now;
	if (spot == COMMITTED || spot == WRITING) {
		if (me->ep->ops != &fuse.ops)
			light_fuse(me->ep, 0, false);
		fuse.committed = spot == WRITING && installs();
		fuse.stops = fuse.committed ? NULL : me;
		fuse.in_write = spot == WRITING;
	}
	if (err == 0)
		err = move_body(w, me, &scene_move);
	if (spot == IN_BODY)
		raise(SIGSTOP);
	return err == 0 ? vb_txn_commit(me) : err;
}

static void sleeper(struct procs *w, struct vb_coordinator *me, const void *arg)
{
	enum spot spot = *(const enum spot *)arg;
	int err;

	do
		err = sleep_at(w, me, spot);
	while (err == -EAGAIN && !has_stopped(w, spot));
	w->me->err = err;
	w->me->cause = vb_txn_cause(me);
	/* It is none the worse for it. */
	move_for_sure(w, me, &back);
}

static void judge_sleeper(struct procs *w, const struct actor *a, enum spot spot, bool others)
{
	bool undecided = spot == PREPARED || (spot == WRITING && installs());
	bool commits = spot != IN_BODY && !(undecided && others);
	bool told = a->cause == VB_TXN_RECOVERED || a->cause == VB_TXN_WOUNDED;

	if (commits && a->err != 0)
		procs_fail(w, "stopped %s: %s, not committed", spot_names[spot],
			   vb_strerror(a->err));
	if (!commits && a->err != -EAGAIN)
		procs_fail(w,
			   "stopped %s: it returned %d, and should have been told to begin again",
			   spot_names[spot], a->err);
	if (undecided && others && !told)
		procs_fail(w, "stopped %s: cause '%s', not recovered", spot_names[spot],
			   vb_txn_cause_names[a->cause]);
}

/* others: somebody wants the accounts meanwhile. */
static void stop_and_go(struct procs *w, enum spot spot, bool others)
{
	unsigned who = w->born;
	pid_t pid = procs_spawn(w, sleeper, &spot), rival = 0;

	if (!WIFSTOPPED(procs_wait(w, pid, WUNTRACED))) {
		procs_fail(w, "it was to stop %s, and has ended", spot_names[spot]);
		return;
	}
	if (others)
		rival = procs_spawn(w, survivor, &back);
	if (others && !is_waited_for(spot))
		procs_wait(w, rival, 0);
	else
		usleep((useconds_t)(3 * w->lease_ns / 1000));
	if (others && is_waited_for(spot) && waitpid(rival, NULL, WNOHANG) != 0) {
		procs_fail(w, "stopped %s: a rival has not waited for it", spot_names[spot]);
		rival = 0;
	}
	/* What holds nothing keeps nobody waiting: but its lease is to be over. */
	if (others)
		usleep((useconds_t)(w->lease_ns / 1000));
	kill(pid, SIGCONT);
	procs_wait(w, pid, 0);
	if (rival != 0 && is_waited_for(spot))
		procs_wait(w, rival, 0);
	judge_sleeper(w, &w->b->actor[who], spot, others);
}

static void stopped(void **state)
{
	struct procs w;

	(void)state;
	procs_open(&w, cc, true, SCENE_LEASE_NS);
	for (unsigned round = 0; round < 3 && !board_get(&w.b->failed); round++)
		for (enum spot spot = IN_BODY; spot < SPOTS && !board_get(&w.b->failed); spot++) {
			stop_and_go(&w, spot, true);
			stop_and_go(&w, spot, false);
		}
	procs_audit(&w);
	procs_close(&w);
}

/* ---- without recovery ---- */

static void die_now(struct procs *w)
{
	(void)w;
	kill(getpid(), SIGKILL);
}

static void doomed(struct procs *w, struct vb_coordinator *me, const void *arg)
{
	w->at_prepared = die_now;
	move_for_sure(w, me, arg);
}

static void in_vain(struct procs *w, struct vb_coordinator *me, const void *arg)
{
	static const struct move other = {.from = 5, .to = 6, .amount = 1};
	uint64_t end = vb_clock_ns() + 6 * w->lease_ns;

	while (vb_clock_ns() < end) {
		int err = move_once(w, me, arg);

		if (err != -EAGAIN)
			procs_fail(w, "an account of the dead: %s",
				   err ? vb_strerror(err) : "it was had");
		(void)vb_ep_sleep(me->ep, MS);
	}
	/* The other accounts are none the worse for it. */
	move_for_sure(w, me, &other);
}

static void no_recovery(void **state)
{
	struct procs w;
	pid_t pid;

	(void)state;
	procs_open(&w, cc, false, SCENE_LEASE_NS);
	pid = procs_spawn(&w, doomed, &scene_move);
	assert_true(was_killed(procs_wait(&w, pid, 0)));
	procs_wait(&w, procs_spawn(&w, in_vain, &back), 0);
	if (procs_held(&w) != 2)
		procs_fail(&w, "the dead holds %u accounts, not 2", procs_held(&w));
	procs_close(&w);
}

/* ---- is every protocol killed? ---- */

static char **named;
static unsigned n_named;

static bool is_named(const char *name)
{
	for (unsigned i = 0; i < n_named; i++)
		if (strcmp(named[i], name) == 0)
			return true;
	return false;
}

static void all_are_killed(void **state)
{
	const struct vb_cc_ops *const *const lists[] = {vb_ccs, vb_ccs_declared};
	unsigned n = 0;

	(void)state;
	for (unsigned k = 0; k < 2; k++)
		for (const struct vb_cc_ops *const *c = lists[k]; *c != NULL; c++) {
			/* Here nobody serves stages; and its words and stages are another's, who is killed. */
			if ((*c)->code != NULL)
				continue;
			n++;
			if (!is_named((*c)->name))
				fail_msg("no test kills processes under '%s'", (*c)->name);
		}
	assert_int_equal(n, n_named);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest all[] = {cmocka_unit_test(all_are_killed)};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(death_at_each_verb),
		cmocka_unit_test(storm),
		cmocka_unit_test(stopped),
		cmocka_unit_test(no_recovery),
	};

	if (argc > 1 && strcmp(argv[1], "all") == 0) {
		named = argv + 2;
		n_named = (unsigned)argc - 2;
		return cmocka_run_group_tests_name("every protocol is killed", all, NULL, NULL);
	}
	if (argc != 2) {
		fprintf(stderr, "usage: test_txn_death PROTOCOL\n");
		return 2;
	}
	cc = argv[1];
	return cmocka_run_group_tests_name("death of transactions", tests, NULL, NULL);
}
