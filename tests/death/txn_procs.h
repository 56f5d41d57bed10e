/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that move money between accounts in transactions on shm, are killed or stopped for it,
 * and what survives them: the board.
 *
 * Everything on the board is written with single stores, so that a process may be killed between
 * any two instructions and the others can still read it.  Of what its transactions have added to
 * the bank's money, each process keeps a *book* with two rows, one of which counts.  Before a
 * commit the other gets what counts once it has happened; one store then says which.  If that store
 * never came, the status word of the transaction tells.
 */
#ifndef TEST_DEATH_TXN_PROCS_H
#define TEST_DEATH_TXN_PROCS_H

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "board.h"
#include "child.h"
#include "lag.h"
#include "fabric/shm/shm.h"
#include "txn/db.h"

#define NODES       3
#define ACCOUNTS    48
#define BALANCE     1000
#define ACTORS      256          /* processes that ever had a coordinator */
#define PATIENCE_NS (60000 * MS) /* whatever is sure to come has come by then */
#define BUSY_NS     (5000 * MS)  /* what a machine with other work may take for anything at all */

struct book {
	int64_t row[2];
	uint64_t ts;
	uint32_t place;
	uint32_t state; /* bit 0: the row that counts; BOOK_OPEN: a commit is under way */
};
#define BOOK_OPEN 2u

struct actor {
	struct book book;
	uint64_t commits, longest_ns;
	uint64_t less_ns; /* of the longest, without what the machine took (lag.h) */
	int32_t err;      /* of the transaction that it was stopped in */
	uint32_t cause;
};

struct board {
	uint32_t failed, stop, serving;
	char why[512];
	int64_t money; /* that the sweeper has counted */
	uint64_t swept;
	struct actor actor[ACTORS];
};

struct procs {
	struct vb_fabric *f;
	struct vb_db *db;
	struct vb_table *accounts;
	uint64_t lease_ns;
	struct board *b;
	unsigned born;
	/* All is declared, and a server of each node in a process of its own gives the locks (calvin). */
	bool declares;
	pid_t server[NODES];
	/* In a child. */
	struct actor *me;
	int64_t adds; /* what the transaction under way adds to all money */
	void (*at_prepared)(struct procs *w);
	struct vb_txn_watch watch;
};

static void VB_PRINTF(2, 3) procs_fail(struct procs *w, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	board_fail(&w->b->failed, w->b->why, sizeof(w->b->why), fmt, ap);
	va_end(ap);
}

/* A record is recovered when its holder has stood still twice in a row for the time after which he is
 * suspected, a lease and the bounds of verbs.  A move meets two records, the one after the other. */
static uint64_t stated(const struct procs *w)
{
	return 2 * 2 * w->db->suspect_ns;
}

static uint64_t recovery_bound(const struct procs *w)
{
	return stated(w) + BUSY_NS;
}

/* ---- the book ---- */

static void on_prepared(void *ctx, const struct vb_txn *t)
{
	struct procs *w = ctx;
	struct book *b = &w->me->book;
	uint32_t counts = b->state & 1;

	b->row[!counts] = b->row[counts] + w->adds;
	b->ts = t->ts;
	b->place = vb_txn_lane(t->me)->place;
	__atomic_store_n(&b->state, counts | BOOK_OPEN, __ATOMIC_SEQ_CST);
	if (w->at_prepared != NULL)
		w->at_prepared(w);
}

static void on_ended(void *ctx, const struct vb_txn *t, bool committed)
{
	struct procs *w = ctx;
	struct book *b = &w->me->book;
	uint32_t counts = b->state & 1;

	(void)t;
	if (b->state & BOOK_OPEN)
		__atomic_store_n(&b->state, committed ? !counts : counts, __ATOMIC_SEQ_CST);
}

static void on_unknown(void *ctx, const struct vb_txn *t)
{
	(void)t;
	procs_fail(ctx, "a commit on shm does not know whether it happened");
}

/* Of a process that has been reaped, while nobody has given up its place.  True: it died in a
 * commit. */
static bool book_close(struct procs *w, unsigned actor)
{
	struct book *b = &w->b->actor[actor].book;
	const uint64_t *status;

	if (!(b->state & BOOK_OPEN))
		return false;
	b->state &= 1;
	status = vb_local(w->f, vb_db_place(w->db, b->place), sizeof(*status));
	assert_non_null(status);
	if (board_get(status) == (b->ts | VB_TS_COMMITTED))
		b->state = !b->state;
	return true;
}

/* ---- transactions ---- */

/* From one account to another, and a gift on top. */
struct move {
	uint64_t from, to;
	int64_t amount, gift;
};

static int move_body(struct procs *w, struct vb_coordinator *me, const struct move *m)
{
	const struct vb_txn_key keys[] = {{w->accounts, m->from, true}, {w->accounts, m->to, true}};
	int64_t *from, *to;
	int err = w->declares ? vb_txn_declare(me, keys, 2) : 0;

	if (err == 0)
		err = vb_txn_update(me, w->accounts, m->from, (void **)&from);
	if (err == 0)
		err = vb_txn_update(me, w->accounts, m->to, (void **)&to);
	if (err == 0) {
		*from -= m->amount;
		*to += m->amount + m->gift;
		w->adds = m->gift;
	}
	return err;
}

static int move_once(struct procs *w, struct vb_coordinator *me, const struct move *m)
{
	int err = vb_txn_begin(me);

	if (err == 0)
		err = move_body(w, me, m);
	if (err == 0)
		err = vb_txn_commit(me);
	return err;
}

/* Until it commits, which it must within the time that recovery takes. */
static void move_for_sure(struct procs *w, struct vb_coordinator *me, const struct move *m)
{
	uint64_t begin = vb_clock_ns(), lag = lag_ns(getpid()), took;
	int err;

	while ((err = move_once(w, me, m)) == -EAGAIN) {
		took = vb_clock_ns() - begin;
		if (lag_less(took, lag_ns(getpid()) - lag) > recovery_bound(w)) {
			procs_fail(w,
				   "accounts %" PRIu64 " and %" PRIu64 ": no commit in %" PRIu64
				   " ms, last cause '%s'",
				   m->from, m->to, took / MS, vb_txn_cause_names[vb_txn_cause(me)]);
			return;
		}
		(void)vb_ep_sleep(me->ep, vb_rng_below(&me->rng, 200000));
	}
	took = vb_clock_ns() - begin;
	if (err != 0)
		procs_fail(w, "a transaction failed: %s", vb_strerror(err));
	if (took > w->me->longest_ns) {
		w->me->longest_ns = took;
		w->me->less_ns = lag_less(took, lag_ns(getpid()) - lag);
	}
	board_add(&w->me->commits);
}

/* ---- the processes ---- */

typedef void (*procs_fn)(struct procs *w, struct vb_coordinator *me, const void *arg);

/* A process with a coordinator of its own, the next in w->born; it ends with 0 whatever it found,
 * the board says what. */
static pid_t procs_spawn(struct procs *w, procs_fn fn, const void *arg)
{
	unsigned index = w->born++;
	struct vb_coordinator *me;
	pid_t pid;
	int err;

	assert_true(index < ACTORS);
	pid = board_fork(w->f);
	if (pid > 0)
		return pid;
	w->me = &w->b->actor[index];
	w->watch = (struct vb_txn_watch){
		.ctx = w, .prepared = on_prepared, .ended = on_ended, .unknown = on_unknown};
	w->db->watch = &w->watch;
	err = vb_coordinator_open(w->db, (uint16_t)(index % NODES), &me);
	if (err) {
		procs_fail(w, "process %u has no coordinator: %s", index, vb_strerror(err));
		_exit(0);
	}
	fn(w, me, arg);
	vb_coordinator_close(me);
	fflush(NULL);
	_exit(0);
}

/* Waits until a process ends, or with WUNTRACED stops; kills it if it takes too long. */
static int procs_wait(struct procs *w, pid_t pid, int flags)
{
	int status;

	if (!ends_within(pid, flags, 2 * PATIENCE_NS, &status))
		procs_fail(w, "a process is stuck");
	if (WIFSTOPPED(status) || was_killed(status))
		return status;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		procs_fail(w, "a process ended with status %#x", (unsigned)status);
	return status;
}

static pid_t procs_serve(struct procs *w, uint16_t node)
{
	struct vb_db_server *server;
	pid_t pid;

	pid = board_fork(w->f);
	if (pid > 0)
		return pid;
	if (vb_db_server_start(w->db, node, &server) != 0)
		procs_fail(w, "node %u has no server", node);
	board_add(&w->b->serving);
	for (;;)
		vb_task_suspend(vb_sched_now(vb_sched_self()) + 1000 * MS);
}

static void procs_open(struct procs *w, const char *cc, bool recovery, uint64_t lease_ns)
{
	struct vb_db_params dp = {.cc = cc,
				  .coordinators = 96,
				  .items_max = 64,
				  .record_bytes_max = 8,
				  .bytes_max = 512,
				  .lease_ns = lease_ns,
				  .no_recovery = !recovery};
	struct vb_table_params tp = {.name = "account", .record_bytes = 8, .records = ACCOUNTS};
	struct vb_fabric_params fp = {.fabric = "shm", .nodes = NODES, .endpoints = ACTORS + 64};
	int64_t balance = BALANCE;

	*w = (struct procs){.lease_ns = lease_ns};
	w->b = mmap(NULL, sizeof(*w->b), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(w->b != MAP_FAILED);
	fp.node_bytes =
		vb_db_node_bytes(&dp, NODES) + vb_table_node_bytes(&dp, &tp, NODES) + (1 << 20);
	assert_int_equal(vb_fabric_open(&fp, &w->f), 0);
	assert_int_equal(vb_db_open(w->f, &dp, &w->db), 0);
	assert_int_equal(vb_table_open(w->db, &tp, &w->accounts), 0);
	for (uint64_t key = 0; key < ACCOUNTS; key++)
		assert_int_equal(vb_table_load(w->accounts, key, &balance), 0);
	w->declares = vb_cc_sequenced(w->db->cc);
	for (uint16_t node = 0; w->declares && node < NODES; node++)
		w->server[node] = procs_serve(w, node);
	while (w->declares && board_get(&w->b->serving) < NODES)
		usleep(500);
}

/* Ends the test, with what a process has found. */
static void procs_close(struct procs *w)
{
	char why[sizeof(w->b->why)];
	bool failed = board_get(&w->b->failed) != 0;

	memcpy(why, w->b->why, sizeof(why));
	for (unsigned node = 0; w->declares && node < NODES; node++) {
		kill(w->server[node], SIGKILL);
		waitpid(w->server[node], NULL, 0);
	}
	vb_db_close(w->db);
	vb_fabric_close(w->f);
	munmap(w->b, sizeof(*w->b));
	if (failed)
		fail_msg("%s", why);
}

/* ---- what must hold when all have gone ---- */

struct count {
	const struct procs *w;
	int64_t sum;
};

/* As if it were to write: a reader may get what was there a while ago (mvcc). */
static int count_body(struct vb_coordinator *me, void *arg)
{
	struct count *c = arg;
	struct vb_txn_key keys[ACCOUNTS];
	int err = 0;

	c->sum = 0;
	for (uint64_t key = 0; key < ACCOUNTS; key++)
		keys[key] = (struct vb_txn_key){c->w->accounts, key, true};
	if (c->w->declares)
		err = vb_txn_declare(me, keys, ACCOUNTS);
	for (uint64_t key = 0; key < ACCOUNTS && err == 0; key++) {
		int64_t *one;

		err = vb_txn_update(me, c->w->accounts, key, (void **)&one);
		c->sum += err == 0 ? *one : 0;
	}
	return err;
}

static void sweeper(struct procs *w, struct vb_coordinator *me, const void *arg)
{
	struct count c = {.w = w};
	int err = 0;

	(void)arg;
	for (uint16_t node = 0; node < NODES && err == 0; node++) {
		uint64_t freed = 0;

		err = vb_db_recover(me, node, &freed);
		w->b->swept += freed;
	}
	/* Nobody else is there: whoever it meets has been recovered.  But its clock may be behind those of the
	 * dead (mvcc), and follows them record by record. */
	if (err == 0)
		err = vb_txn_run(me, count_body, &c, 1 + ACCOUNTS);
	if (err)
		procs_fail(w, "the sweeper: %s, cause '%s'", vb_strerror(err),
			   vb_txn_cause_names[vb_txn_cause(me)]);
	w->b->money = c.sum;
}

/* How many accounts somebody holds, as a writer or as a reader. */
static unsigned procs_held(const struct procs *w)
{
	struct vb_named_word named[VB_NAMED_WORDS_MAX];
	unsigned held = 0;

	for (uint64_t key = 0; key < ACCOUNTS; key++) {
		vb_addr at = vb_table_find(w->accounts, vb_table_node(w->accounts, key), key);
		const char *tuple = vb_local(w->f, at, w->accounts->layout.bytes);

		assert_non_null(tuple);
		held += vb_words_named(w->db->cc, tuple, named) != 0;
	}
	return held;
}

/* The sweep of all nodes, after which nothing is held and no money is lost or made. */
static void procs_audit(struct procs *w)
{
	int64_t money = (int64_t)ACCOUNTS * BALANCE;
	unsigned held;

	if (board_get(&w->b->failed))
		return;
	procs_wait(w, procs_spawn(w, sweeper, NULL), 0);
	for (unsigned i = 0; i < w->born; i++)
		money += w->b->actor[i].book.row[w->b->actor[i].book.state & 1];
	held = procs_held(w);
	if (held != 0)
		procs_fail(w, "%u accounts are still held when all have gone", held);
	if (w->b->money != money)
		procs_fail(w, "there is money %" PRId64 ", and there should be %" PRId64,
			   w->b->money, money);
}

#endif
