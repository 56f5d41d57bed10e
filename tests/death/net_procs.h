/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lock server and its clients as processes on a network fabric, which the test stops, wakes and
 * kills.  Rank 0 leads the cluster and serves the locks; the others each have a client and an
 * actor.  All are forked before any of them has opened anything.  They tell each other how far they
 * are on a board in shared memory, on which single atomic stores leave nothing half done.
 */
#ifndef TEST_DEATH_NET_PROCS_H
#define TEST_DEATH_NET_PROCS_H

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "board.h"
#include "child.h"
#include "cluster/cluster.h"
#include "lock/lock.h"

#define PROCS_LOCKS 4
#define PROCS_MAX   4            /* processes */
#define PATIENCE_NS (60000 * MS) /* whatever is sure to come has come by then */
#define BOUND_NS    (100 * MS)   /* of a verb */
#define LEASE_NS    (250 * MS)
#define BUSY_NS     (5000 * MS) /* what a machine with other work may take for anything at all */

#define PLAYS   8               /* of a scene in which an answer was lost */
#define LATE_NS (BOUND_NS / 10) /* it was not, if the call took less */

/* How a scene has failed. */
enum { WRONG = 1, LOST };

struct board {
	uint32_t failed; /* 0: it has not */
	uint32_t stop, opened, unknown;
	uint32_t step[8];
	char why[512];
	uint64_t held_until[PROCS_MAX][PROCS_LOCKS]; /* 0: not held; see procs_judge */
	uint64_t token[PROCS_LOCKS];
	uint64_t grants[PROCS_MAX];
};

struct procs;
typedef void (*actor_fn)(struct procs *w, struct vb_lock_client *me);

struct procs {
	const char *fabric;
	const struct vb_lock_ops *ops;
	struct board *b;
	unsigned hosts, rank;
	pid_t pid[PROCS_MAX];
	int listening;
	uint16_t port;
	struct vb_cluster *cluster;
	struct vb_fabric *f;
	struct vb_lock_space *space;
	uint64_t took_ns; /* the last call */
};

/*
 * A machine that is busy for longer than BOUND_NS loses answers (fabric/net/am/flight.c), and what
 * then is unknown is no fault of the lock: a scene that an unexpected -VB_EUNKNOWN has ended says
 * nothing, and is played again.  But such a call has taken its time: the bound, or what is left of it
 * where the owner's clock was read late.  One that does not know after less has no such excuse.
 */
static void VB_PRINTF(3, 4) procs_fail_by(struct procs *w, int err, const char *fmt, ...)
{
	uint32_t none = 0, how = WRONG;
	char text[sizeof(w->b->why)];
	va_list ap;
	int n;

	if (err == -VB_EUNKNOWN && w->took_ns >= LATE_NS)
		how = LOST;
	if (!__atomic_compare_exchange_n(&w->b->failed, &none, how, false, __ATOMIC_SEQ_CST,
					 __ATOMIC_SEQ_CST))
		return; /* the first one counts */
	n = snprintf(text, sizeof(text), "rank %u: ", w->rank);
	va_start(ap, fmt);
	vsnprintf(text + n, sizeof(text) - (size_t)n, fmt, ap);
	va_end(ap);
	memcpy(w->b->why, text, sizeof(text));
}
#define procs_fail(w, ...) procs_fail_by(w, 0, __VA_ARGS__)

/* For actors, which return void. */
#define EXPECT(w, cond)                                                                            \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			procs_fail(w, "line %d: %s", __LINE__, #cond);                             \
			return;                                                                    \
		}                                                                                  \
	} while (0)
#define EXPECT_ERR(w, want, call)                                                                  \
	do {                                                                                       \
		int err_ = (call), want_ = (want);                                                 \
		if (err_ != want_) {                                                               \
			procs_fail_by(w, err_, "line %d: %s: %s, not %s", __LINE__, #call,         \
				      err_ ? vb_strerror(err_) : "0",                              \
				      want_ ? vb_strerror(want_) : "0");                           \
			return;                                                                    \
		}                                                                                  \
	} while (0)

static bool survives(const struct procs *w)
{
	return (w->ops->caps & VB_LOCK_SURVIVES) != 0;
}

/* The stated recovery time, four times, and what a busy machine may take: a guest without hardware
 * of its own is both.  That it is kept to without that, test_death.c sees, and sim. */
static uint64_t recovery_bound(const struct procs *w)
{
	return 4 * w->ops->recovery_leases * LEASE_NS + BUSY_NS;
}

/* ---- for actors ---- */

/* Until the step is reached; this process serves others meanwhile. */
static bool procs_await(struct procs *w, struct vb_lock_client *me, unsigned step)
{
	uint64_t end = vb_clock_gettime_ns() + PATIENCE_NS;

	while (!board_get(&w->b->step[step])) {
		if (board_get(&w->b->failed))
			return false;
		if (vb_clock_gettime_ns() > end) {
			procs_fail(w, "step %u never came", step);
			return false;
		}
		vb_ep_sleep(me->ep, MS);
	}
	return true;
}
#define AWAIT(w, me, step)                                                                         \
	do {                                                                                       \
		if (!procs_await(w, me, step))                                                     \
			return;                                                                    \
	} while (0)

/*
 * Two valid exclusive grants?  Each client shows the end of its grant, and clears it before it
 * gives back.  A conflict is real if at one moment t both were shown and neither was over: t is
 * read after the other's word, and compared with both ends.
 */
static void procs_judge(struct procs *w, struct vb_lock_client *me, const struct vb_grant *g)
{
	uint64_t *mine = &w->b->held_until[w->rank][g->lock], before;

	board_set(mine, g->valid_until_ns);
	board_add(&w->b->grants[w->rank]);
	for (unsigned i = 0; i < PROCS_MAX; i++) {
		uint64_t *his = &w->b->held_until[i][g->lock], until = board_get(his), t;

		if (his == mine || until == 0)
			continue;
		t = vb_lock_now(me);
		if (t < until && t < g->valid_until_ns && board_get(his) == until)
			procs_fail(w, "lock %" PRIu64 " is held by %u and %u at the same time",
				   g->lock, w->rank, i);
	}
	before = board_get(&w->b->token[g->lock]);
	if (g->token <= before && vb_lock_now(me) < g->valid_until_ns)
		procs_fail(w, "lock %" PRIu64 ": token %" PRIu64 " after %" PRIu64, g->lock,
			   g->token, before);
	while (g->token > before &&
	       !__atomic_compare_exchange_n(&w->b->token[g->lock], &before, g->token, false,
					    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
}

static int procs_take(struct procs *w, struct vb_lock_client *me, uint64_t lock,
		      uint64_t timeout_ns, struct vb_grant *g)
{
	uint64_t begun = vb_clock_gettime_ns();
	int err = vb_lock_acquire(me, lock, VB_EXCLUSIVE, timeout_ns, g);

	w->took_ns = vb_clock_gettime_ns() - begun;
	if (err == 0)
		procs_judge(w, me, g);
	return err;
}

static int procs_give_back(struct procs *w, struct vb_lock_client *me, struct vb_grant *g)
{
	uint64_t begun = vb_clock_gettime_ns();
	int err;

	board_set(&w->b->held_until[w->rank][g->lock], 0);
	err = vb_lock_release(me, g);
	w->took_ns = vb_clock_gettime_ns() - begun;
	return err;
}

/* ---- processes ---- */

static void process_must(struct procs *w, const char *what, int err)
{
	if (err == 0)
		return;
	procs_fail(w, "%s: %s", what, vb_strerror(err));
	_exit(1);
}
#define MUST(w, call) process_must(w, #call, call)

static void process_open(struct procs *w)
{
	struct vb_cluster_params cp = {.hosts = w->hosts, .timeout_ns = PATIENCE_NS};
	const char *device = getenv("VERBENA_VERBS_DEVICE");
	const char *measured = getenv("VERBENA_VERBS_MEASURED");
	char meet[32], options[128];
	struct vb_fabric_params fp = {
		.fabric = w->fabric,
		.options = options,
		.nodes = (uint16_t)w->hosts,
		.node_bytes = 1 << 20,
		.endpoints = 16,
	};

	vb_sched_forget();
	if (w->rank == 0) {
		MUST(w, vb_cluster_open_on(&cp, w->listening, &w->cluster));
	} else {
		close(w->listening);
		snprintf(meet, sizeof(meet), "127.0.0.1:%u", w->port);
		cp.role = VB_CLUSTER_MEMBER;
		cp.rank = w->rank;
		cp.meet = meet;
		MUST(w, vb_cluster_open(&cp, &w->cluster));
	}
	if (strcmp(w->fabric, "verbs") != 0)
		snprintf(options, sizeof(options), "bound=%" PRIu64 "ms", BOUND_NS / MS);
	else
		snprintf(options, sizeof(options), "device=%s,timeout=11,retries=2,measured=%s",
			 device, measured != NULL ? measured : "0");
	fp.cluster = w->cluster;
	MUST(w, vb_fabric_open(&fp, &w->f));
	vb_assert(w->f->caps.verb_bound_ns <= LEASE_NS / 2);
}

static void process_open_space(struct procs *w)
{
	struct vb_lock_space_params sp = {
		.lock = w->ops->name, .locks = PROCS_LOCKS, .lease_ns = LEASE_NS, .fencing = true};

	MUST(w, vb_lock_space_open(w->f, &sp, &w->space));
}

/* Whoever lives waits until all have opened; later nobody waits for anybody. */
VB_NORETURN static void process_main(struct procs *w, actor_fn fn)
{
	struct vb_lock_server *server = NULL;
	struct vb_lock_client *me;

	process_open(w);
	if (w->rank == 0) {
		process_open_space(w);
		MUST(w, vb_lock_server_start(w->space, 0, 0, 1, &server));
	}
	MUST(w, vb_cluster_barrier(w->cluster));
	if (w->rank == 0) {
		board_add(&w->b->opened);
		while (!board_get(&w->b->stop))
			vb_task_sleep_until(vb_sched_now_slow(vb_sched_self()) + MS);
		_exit(0);
	}
	process_open_space(w);
	MUST(w, vb_lock_client_open(w->space, (uint16_t)w->rank, &me));
	me->index = w->rank;
	board_add(&w->b->opened);
	while (board_get(&w->b->opened) < w->hosts)
		vb_ep_sleep(me->ep, MS);
	fn(w, me);
	/* Others may still need this node's answers.  The end is not orderly: half the cluster may
	 * be dead, and what closing does then is another test's matter. */
	board_add(&w->b->step[7]);
	while (!board_get(&w->b->stop))
		vb_ep_sleep(me->ep, MS);
	_exit(0);
}

/* ---- for tests ---- */

static void procs_open(struct procs *w, unsigned actors)
{
	w->hosts = actors + 1;
	w->b = mmap(NULL, sizeof(*w->b), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(w->b != MAP_FAILED);
	assert_int_equal(vb_cluster_listen("127.0.0.1", 0, &w->listening, &w->port), 0);
}

static void procs_start(struct procs *w, actor_fn const *fn)
{
	fflush(NULL);
	for (unsigned i = 0; i < w->hosts; i++) {
		w->pid[i] = fork_child();
		assert_true(w->pid[i] >= 0);
		if (w->pid[i] == 0) {
			alarm(4 * PATIENCE_NS / (1000 * MS)); /* never outlives the test */
			w->rank = i;
			process_main(w, i == 0 ? NULL : fn[i - 1]);
		}
	}
	close(w->listening);
}

static void procs_end(struct procs *w)
{
	board_add(&w->b->stop);
	for (unsigned i = 0; i < w->hosts; i++) {
		int status = 0;

		if (w->pid[i] == 0)
			continue;
		kill(w->pid[i], SIGCONT);
		if (w->b->failed)
			kill(w->pid[i], SIGKILL);
		while (waitpid(w->pid[i], &status, 0) < 0 && errno == EINTR)
			;
		/* A crash, or a sanitizer's verdict, after the last step is one, too. */
		if (status != 0 && !w->b->failed)
			procs_fail(w, "the process of rank %u ended with status %#x", i, status);
	}
}

static unsigned scenes_lost;

/* Ends the test, with what an actor has found; or counts the scene as lost. */
static void procs_close(struct procs *w)
{
	char why[sizeof(w->b->why)];
	uint32_t failed;

	procs_end(w);
	failed = board_get(&w->b->failed);
	memcpy(why, w->b->why, sizeof(why));
	munmap(w->b, sizeof(*w->b));
	if (failed == LOST && ++scenes_lost < PLAYS)
		print_message("# played again: %s\n", why);
	else if (failed)
		fail_msg("%s on %s: %s", w->ops->name, w->fabric, why);
}

static void procs_kill(struct procs *w, unsigned rank)
{
	assert_int_equal(kill(w->pid[rank], SIGKILL), 0);
	assert_int_equal(waitpid(w->pid[rank], NULL, 0), w->pid[rank]);
	w->pid[rank] = 0;
}

static void procs_signal(struct procs *w, unsigned rank, int sig)
{
	assert_int_equal(kill(w->pid[rank], sig), 0);
}

/* True when n have come to the step; false if somebody has failed or nothing comes: then the test
 * is to end. */
static bool procs_reached(struct procs *w, unsigned step, uint32_t n)
{
	uint64_t end = vb_clock_gettime_ns() + PATIENCE_NS;

	while (board_get(&w->b->step[step]) < n) {
		if (board_get(&w->b->failed))
			return false;
		for (unsigned i = 0; i < w->hosts; i++) {
			if (w->pid[i] == 0 || waitpid(w->pid[i], NULL, WNOHANG) == 0)
				continue;
			w->pid[i] = 0;
			procs_fail(w, "process %u has ended", i);
			return false;
		}
		if (vb_clock_gettime_ns() > end) {
			procs_fail(w, "the test waited in vain for step %u", step);
			return false;
		}
		usleep(1000);
	}
	return true;
}

#endif
