/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper: a thread that runs a scheduler's background work while its owner is elsewhere.
 *
 * Each scheduler that leaves background work behind gets a keeper of its own, a thread made when
 * the owner first goes away from such work.  One for all would have to wait on every scheduler's
 * fabric at once; one for each waits as the owner would have, in the environment's own idle, so
 * that nobody is starved and nobody's wake-up is late.  Where there is never background work there
 * is no keeper, and under virtual time there is none ever: the simulator runs everything.
 *
 * Who may touch the scheduler says one word, `turn`:
 *
 *	OWNER     the owner is inside (or has nothing to leave)
 *	FREE      the owner is outside: either may take it
 *	KEEPER    the keeper runs it
 *	WANTED    the keeper runs it and the owner waits for it
 *	SPENT     the owner is outside, and nothing is left to do
 *	END       the scheduler is about to be freed: the keeper ends
 *
 *	owner, calls in:   FREE -> OWNER                    one CAS, mostly
 *	                   SPENT -> OWNER
 *	                   KEEPER -> WANTED, interrupts the keeper's idle, sleeps until OWNER
 *	owner, goes:       OWNER -> FREE
 *	keeper:            FREE -> KEEPER; WANTED -> OWNER, wakes;  KEEPER -> SPENT
 *
 * Taking is acquire and giving is release, so each sees what the other did.  The keeper is not
 * told of every call's end, which would cost a busy owner a system call each time: it takes a
 * scheduler only after GRACE_NS in which the owner made no call, or at once where he says that he
 * goes (vb_keeper_go).  An owner who calls more often
 * than that gives background work a turn himself, every TURN_NS.  While the owner is inside for
 * longer the keeper sleeps (OWNER_NAP) until the next time he goes.
 *
 * How long may a returning owner wait?  For the rest of the keeper's round: its tasks run until
 * they give way, as they would on the owner's own thread.  A sleep is interrupted: the environment
 * looks at `turn` after it has noted what its bell shows and before it sleeps, so either it sees
 * WANTED or the bell that is rung after WANTED was written ends its sleep.
 *
 * On the keeper's thread a task finds the same scheduler, fabric and endpoints as before.  Nothing
 * that outlives an await may hang on the thread: no cached address of a thread-local variable.
 */
#define VB_LOG_ROOM "task"
#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "task/inner.h"

#define GRACE_NS    500000ull
#define TURN_NS     200000ull
#define STACK_BYTES (1u << 20)

enum turn {
	TURN_OWNER,
	TURN_OWNER_NAP, /* the same, and the keeper sleeps until the owner goes */
	TURN_FREE,
	TURN_KEEPER,
	TURN_WANTED = VB_TURN_WANTED,
	TURN_SPENT,
	TURN_END,
};

static void turn_sleep(struct vb_sched *s, uint32_t seen, uint64_t ns)
{
	struct timespec span = {.tv_nsec = (long)ns};

	(void)syscall(SYS_futex, &s->face.turn, FUTEX_WAIT_PRIVATE, seen, ns != 0 ? &span : NULL,
		      NULL, 0);
}

static void turn_wake(struct vb_sched *s)
{
	(void)syscall(SYS_futex, &s->face.turn, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

static uint32_t turn_get(struct vb_sched *s)
{
	return __atomic_load_n(&s->face.turn, __ATOMIC_SEQ_CST);
}

static bool turn_change(struct vb_sched *s, uint32_t from, uint32_t to)
{
	return __atomic_compare_exchange_n(&s->face.turn, &from, to, false, __ATOMIC_SEQ_CST,
					   __ATOMIC_SEQ_CST);
}

/* ---- the keeper's side ---- */

/* True: the owner is gone for good, and so is the scheduler now. */
static bool keep(struct vb_sched *s)
{
	struct vb_fiber owner = s->root.fiber;

	vb_fiber_init_root(&s->root.fiber);
	vb_sched_bind(s, true);
	s->face.current = NULL;
	while (s->background > 0 && turn_get(s) == TURN_KEEPER)
		vb_sched_step(s);
	s->face.current = &s->root;
	if (s->background == 0 && s->orphan) {
		vb_sched_end(s);
		return true;
	}
	vb_sched_bind(s, false);
	s->root.fiber = owner;
	if (turn_change(s, TURN_KEEPER, TURN_SPENT))
		return false;
	__atomic_store_n(&s->face.turn, TURN_OWNER, __ATOMIC_SEQ_CST);
	turn_wake(s);
	return false;
}

/* FREE has been seen.  Is the owner really away? */
static bool away(struct vb_sched *s)
{
	uint32_t calls = __atomic_load_n(&s->calls, __ATOMIC_RELAXED);

	if (__atomic_load_n(&s->orphan, __ATOMIC_RELAXED) ||
	    __atomic_load_n(&s->gone, __ATOMIC_RELAXED))
		return true;
	turn_sleep(s, TURN_FREE, GRACE_NS);
	return turn_get(s) == TURN_FREE && (__atomic_load_n(&s->gone, __ATOMIC_RELAXED) ||
					    __atomic_load_n(&s->calls, __ATOMIC_RELAXED) == calls);
}

static void *keeper_body(void *arg)
{
	struct vb_sched *s = arg;

	for (;;) {
		uint32_t turn = turn_get(s);

		if (turn == TURN_END)
			return NULL;
		if (turn == TURN_OWNER)
			turn_change(s, TURN_OWNER, TURN_OWNER_NAP);
		else if (turn == TURN_FREE) {
			if (away(s) && turn_change(s, TURN_FREE, TURN_KEEPER) && keep(s))
				return NULL;
		} else
			turn_sleep(s, turn, 0);
	}
}

/* The owner's signals are the owner's. */
static int start(struct vb_sched *s)
{
	pthread_attr_t attr;
	sigset_t all, before;
	int err;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = -pthread_create(&s->keeper, &attr, keeper_body, s);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	if (err)
		return vb_fail(err, "no thread for background work, which will go on only while "
				    "this thread waits in Verbena or calls vb_poll");
	s->has_keeper = true;
	return 0;
}

bool vb_keeper_nap(struct vb_sched *s, uint64_t ns)
{
	uint32_t turn = turn_get(s);

	if (turn == TURN_KEEPER)
		turn_sleep(s, turn, ns);
	return turn == TURN_KEEPER || turn == TURN_WANTED;
}

/* ---- the owner's side ---- */

/* The owner has the scheduler and goes. */
static void lend(struct vb_sched *s)
{
	if (s->background == 0 || (!s->has_keeper && start(s) != 0)) {
		__atomic_store_n(&s->gone, false, __ATOMIC_RELAXED);
		vb_sched_set_kept(s, false);
		return;
	}
	vb_sched_lend(s);
	/* While it waits whether the owner comes back, it sleeps as well. */
	if (__atomic_exchange_n(&s->face.turn, TURN_FREE, __ATOMIC_SEQ_CST) == TURN_OWNER_NAP ||
	    s->gone)
		turn_wake(s);
}

/* Ends idle, or a nap of the keeper. */
static void interrupt(struct vb_sched *s)
{
	pthread_mutex_lock(&s->env_lock);
	if (s->env->interrupt != NULL)
		s->env->interrupt(s);
	pthread_mutex_unlock(&s->env_lock);
	turn_wake(s);
}

static void wait_for_keeper(struct vb_sched *s)
{
	uint32_t turn;

	interrupt(s);
	while ((turn = turn_get(s)) == TURN_WANTED)
		turn_sleep(s, turn, 0);
}

void vb_keeper_take_back(struct vb_sched *s)
{
	for (;;) {
		if (turn_change(s, TURN_FREE, TURN_OWNER) ||
		    turn_change(s, TURN_SPENT, TURN_OWNER_NAP))
			break;
		if (turn_change(s, TURN_KEEPER, TURN_WANTED)) {
			wait_for_keeper(s);
			break;
		}
	}
	__atomic_store_n(&s->calls, s->calls + 1, __ATOMIC_RELAXED);
	__atomic_store_n(&s->gone, false, __ATOMIC_RELAXED);
	vb_sched_lent = NULL;
	vb_sched_bind(s, true);
}

bool vb_keeper_enter(struct vb_sched *s)
{
	if (vb_sched_lent == s)
		vb_keeper_take_back(s);
	/* A task calls, on whichever thread: who runs it is inside. */
	if (vb_sched_mine != s || s->face.current != &s->root)
		return false;
	if (s->inside++ == 0) {
		uint64_t now = vb_clock_early_ns();

		if (now - s->last_turn_ns > TURN_NS) {
			s->last_turn_ns = now;
			vb_sched_root_yield(s);
		}
	}
	return true;
}

void vb_keeper_leave(struct vb_sched *s)
{
	if (--s->inside == 0)
		lend(s);
}

void vb_keeper_settle(struct vb_sched *s)
{
	if (s->face.kept && s->inside == 0 && s->face.current == &s->root)
		lend(s);
}

bool vb_keeper_is_gone(const struct vb_sched *s)
{
	return vb_sched_lent == s && s->gone;
}

int vb_keeper_go(struct vb_sched *s)
{
	if (vb_keeper_is_gone(s))
		return 0;
	if (!vb_sched_kept(s)) {
		if (s->face.is_virtual || s->background == 0)
			return 0;
		/* No thread could be made for it, the last time. */
		vb_sched_set_kept(s, true);
	}
	if (!vb_keeper_enter(s))
		return 0;
	__atomic_store_n(&s->gone, true, __ATOMIC_RELAXED);
	vb_keeper_leave(s);
	return vb_sched_lent == s || s->background == 0 ? 0 : -ENOMEM;
}

bool vb_sched_slow_begin(struct vb_sched *s)
{
	bool quick = vb_sched_quick == s;

	if (quick)
		vb_sched_quick = NULL;
	return quick;
}

void vb_sched_slow_end(struct vb_sched *s, bool quick)
{
	/* It may have started others, or left something behind. */
	if (quick && s->calls_open == 0 && !s->face.kept)
		vb_sched_quick = vb_sched_mine;
}

void vb_sched_call_begin(struct vb_sched *s)
{
	/* Not only by being kept: there is no keeper in virtual time, nor where no thread could be made. */
	if (s->calls_open++ == 0)
		vb_sched_quick = NULL;
	vb_sched_background_begin(s);
}

void vb_sched_call_end(struct vb_sched *s)
{
	vb_sched_background_end(s);
	if (--s->calls_open == 0 && !s->face.kept)
		vb_sched_quick = vb_sched_mine;
}

unsigned vb_sched_calls_open(const struct vb_sched *s)
{
	return s->calls_open;
}

bool vb_sched_is_orphan(const struct vb_sched *s)
{
	return __atomic_load_n(&s->orphan, __ATOMIC_RELAXED);
}

void vb_sched_background_begin(struct vb_sched *s)
{
	if (s->face.is_virtual)
		return;
	s->background++;
	if (!s->face.kept) {
		vb_sched_set_kept(s, true);
		s->last_turn_ns = vb_clock_early_ns();
	}
}

void vb_sched_background_end(struct vb_sched *s)
{
	if (s->face.is_virtual)
		return;
	vb_assert(s->background > 0);
	s->background--;
}

void vb_keeper_end(struct vb_sched *s)
{
	if (!s->has_keeper)
		return;
	__atomic_store_n(&s->face.turn, TURN_END, __ATOMIC_SEQ_CST);
	turn_wake(s);
	pthread_join(s->keeper, NULL);
	s->has_keeper = false;
}

/* ---- a host's thread (host.c) ---- */

/* Its calls are never quick: there may always be others under way. */
void vb_keeper_host_begin(struct vb_sched *s, struct vb_host *host)
{
	s->host = host;
	vb_sched_call_begin(s);
}

void vb_keeper_host(struct vb_sched *s, bool (*take)(void *arg), void *arg)
{
	s->face.current = NULL;
	for (;;) {
		__atomic_store_n(&s->face.turn, TURN_KEEPER, __ATOMIC_SEQ_CST);
		if (!take(arg))
			break;
		if (vb_sched_turn(s))
			continue;
		/* Nobody waits for anything: then not in the environment's way, which spins and looks. */
		if (s->tasks == 0 && vb_wheel_empty(&s->wheel))
			turn_sleep(s, TURN_KEEPER, 0);
		else
			vb_sched_idle(s);
	}
	__atomic_store_n(&s->face.turn, TURN_OWNER, __ATOMIC_SEQ_CST);
	s->face.current = &s->root;
	s->host = NULL;
	vb_sched_call_end(s);
}

/* Also where another thread has changed it: that one may be off its core, and the host asleep. */
void vb_keeper_call(struct vb_sched *s)
{
	(void)turn_change(s, TURN_KEEPER, TURN_WANTED);
	interrupt(s);
}

bool vb_keeper_inherit(struct vb_sched *s)
{
	if (s->face.is_virtual || s->background == 0 || (!s->has_keeper && start(s) != 0))
		return false;
	pthread_detach(s->keeper);
	__atomic_store_n(&s->orphan, true, __ATOMIC_RELAXED);
	s->inside = 0;
	lend(s);
	return true;
}
