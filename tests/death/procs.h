/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that take locks and are killed for it, and what survives them: the board.
 *
 * Everything on the board is written with single atomic stores, so that a process may be killed
 * between any two instructions and the others can still read it.
 */
#ifndef TEST_DEATH_PROCS_H
#define TEST_DEATH_PROCS_H

#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "board.h"
#include "child.h"
#include "fabric/shm/shm.h"
#include "lock/lock.h"

#define PROCS_LOCKS 3
#define PROCS_MAX   768 /* processes that ever had a client, one slot each */
#define PROCS_WAITS 256

struct board {
	uint32_t failed, serving;
	uint32_t stop, dismissed; /* workers; the server */
	uint32_t step[4];
	char why[512];
	uint64_t victim;        /* its endpoint */
	uint64_t kept_until_ns; /* until when somebody has for certain what he holds */
	uint32_t judged;        /* so often it was looked at before then */
	uint64_t grants, lost, longest_ns;
	uint64_t waited_ns[PROCS_WAITS]; /* of those who had to wait for the dead */
	uint32_t waits;
	uint64_t token[PROCS_LOCKS];           /* the largest that a valid holder has shown */
	uint64_t held[PROCS_MAX][PROCS_LOCKS]; /* see procs_judge */
};

struct procs {
	struct vb_fabric *f;
	struct vb_lock_space *space;
	struct board *b;
	unsigned born; /* clients so far */
	pid_t server;
};

static void VB_PRINTF(2, 3) procs_fail(struct board *b, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	board_fail(&b->failed, b->why, sizeof(b->why), fmt, ap);
	va_end(ap);
}

static void procs_max(uint64_t *word, uint64_t value)
{
	uint64_t old = board_get(word);

	while (old < value && !__atomic_compare_exchange_n(word, &old, value, false,
							   __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
}

/* Of the waits that were noted, all of whose processes have ended; sorts them.  0: there are none. */
static inline uint64_t procs_median(struct board *b)
{
	unsigned n = b->waits < PROCS_WAITS ? b->waits : PROCS_WAITS;

	for (unsigned i = 1; i < n; i++)
		for (unsigned k = i; k > 0 && b->waited_ns[k - 1] > b->waited_ns[k]; k--) {
			uint64_t less = b->waited_ns[k];

			b->waited_ns[k] = b->waited_ns[k - 1];
			b->waited_ns[k - 1] = less;
		}
	return n > 0 ? b->waited_ns[n / 2] : 0;
}

/*
 * Two valid grants that exclude each other?  Each client shows its grants in words of its own: end
 * of validity (63 bits) and mode (1).  It clears the word before it gives back; the dead do not,
 * and their grants count until they are over.  A conflict is real if at one moment t both were
 * shown and neither was over.  A client that was stopped for longer than its lease has no claim: t
 * is read after the other's word, and compared with both ends.
 */
static void procs_judge(struct procs *w, struct vb_lock_client *me, const struct vb_grant *g)
{
	struct board *b = w->b;
	uint64_t x = g->mode == VB_EXCLUSIVE, *mine = &b->held[me->index][g->lock], before;

	__atomic_store_n(mine, g->valid_until_ns << 1 | x, __ATOMIC_SEQ_CST);
	for (unsigned i = 0; i < PROCS_MAX; i++) {
		uint64_t *his = &b->held[i][g->lock], word = board_get(his), t;

		if (his == mine || !word || !(word & 1 || x))
			continue;
		t = vb_lock_now(me);
		if (t < word >> 1 && t < g->valid_until_ns && board_get(his) == word)
			procs_fail(b, "lock %" PRIu64 " is held by %u and %u at the same time",
				   g->lock, me->index, i);
	}
	if (!x)
		return;
	before = board_get(&b->token[g->lock]);
	if (g->token <= before && vb_lock_now(me) < g->valid_until_ns)
		procs_fail(b, "lock %" PRIu64 ": token %" PRIu64 " after %" PRIu64, g->lock,
			   g->token, before);
	procs_max(&b->token[g->lock], g->token);
}

static void procs_give_back(struct procs *w, struct vb_lock_client *me, struct vb_grant *g)
{
	int err;

	__atomic_store_n(&w->b->held[me->index][g->lock], 0, __ATOMIC_SEQ_CST);
	err = vb_lock_release(me, g);
	if (err == -VB_ELOST)
		board_add(&w->b->lost);
	else if (err)
		procs_fail(w->b, "release of lock %" PRIu64 ": %s", g->lock, vb_strerror(err));
}

/* ---- the processes ---- */

typedef void (*procs_fn)(struct procs *w, struct vb_lock_client *me, const void *arg);

/* A process with a client of its own; it ends with 0 whatever it found, the board says what. */
static pid_t procs_spawn(struct procs *w, procs_fn fn, const void *arg)
{
	unsigned index = w->born++;
	struct vb_lock_client *me;
	pid_t pid;
	int err;

	assert_true(index < PROCS_MAX);
	pid = board_fork(w->f);
	if (pid > 0)
		return pid;
	err = vb_lock_client_open(w->space, 0, &me);
	if (err) {
		procs_fail(w->b, "process %u has no client: %s", index, vb_strerror(err));
		_exit(0);
	}
	me->index = index;
	fn(w, me, arg);
	vb_lock_client_close(me);
	fflush(NULL);
	_exit(0);
}

/* Waits for a process to end; kills it if it takes too long.  Tells whether it was killed. */
static bool procs_wait(struct procs *w, pid_t pid, uint64_t patience_ns)
{
	int status;

	if (!ends_within(pid, 0, patience_ns, &status))
		procs_fail(w->b, "a process is stuck");
	if (!was_killed(status) && (!WIFEXITED(status) || WEXITSTATUS(status) != 0))
		procs_fail(w->b, "a process ended with status %#x", (unsigned)status);
	return was_killed(status);
}

/* For the parent: until a step is reached, or something went wrong. */
static void procs_step(struct procs *w, unsigned i, uint32_t n)
{
	uint64_t end = vb_clock_ns() + 30000 * MS;

	while (board_get(&w->b->step[i]) < n && !board_get(&w->b->failed)) {
		if (vb_clock_ns() > end)
			procs_fail(w->b, "step %u was never reached", i);
		usleep(200);
	}
}

static void procs_serve(struct procs *w)
{
	struct vb_lock_server *s;

	board_child();
	vb_fabric_after_fork(w->f);
	if (vb_lock_server_start(w->space, 0, 0, 1, &s) != 0)
		_exit(1);
	board_add(&w->b->serving);
	while (!board_get(&w->b->dismissed))
		vb_task_suspend(vb_sched_now(vb_sched_self()) + 5 * MS);
	vb_lock_server_stop(s);
	_exit(0);
}

static void procs_begin(struct procs *w, const struct vb_lock_space_params *sp)
{
	struct vb_fabric_params fp = {.fabric = "shm", .node_bytes = 1 << 20, .endpoints = 64};

	*w = (struct procs){0};
	w->b = mmap(NULL, sizeof(*w->b), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(w->b != MAP_FAILED);
	assert_int_equal(vb_fabric_open(&fp, &w->f), 0);
	assert_int_equal(vb_lock_space_open(w->f, sp, &w->space), 0);
}

static void procs_start_server(struct procs *w)
{
	uint32_t serving = board_get(&w->b->serving);

	fflush(NULL);
	w->server = fork_child();
	assert_true(w->server >= 0);
	if (w->server == 0)
		procs_serve(w);
	for (unsigned i = 0; board_get(&w->b->serving) == serving; i++) {
		assert_true(i < 30000 && waitpid(w->server, NULL, WNOHANG) == 0);
		usleep(1000);
	}
}

static void procs_close(struct procs *w)
{
	board_add(&w->b->dismissed);
	if (w->server)
		procs_wait(w, w->server, 30000 * MS);
	if (w->b->failed)
		fail_msg("%s", w->b->why);
	vb_lock_space_close(w->space);
	vb_fabric_close(w->f);
	munmap(w->b, sizeof(*w->b));
}

#endif
