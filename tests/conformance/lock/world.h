/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fabrics on which the lock suite runs, and the actors that run on them.
 *
 * A test is written as actors: functions that each get a client of their own and talk to each other
 * through a board.  They run as tasks of one thread (sim, shm, shm behind the defer hook, a program's own
 * fabric, a network, verbs) or as processes (shm, a network, verbs), and know nothing of it.  An actor that finds something
 * wrong writes it to the board and returns; cmocka's assertions jump, which is only right on the
 * test's own stack.
 */
#ifndef TEST_LOCK_WORLD_H
#define TEST_LOCK_WORLD_H

#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "child.h"
#include "cluster/cluster.h"
#include "fabric/hook/hooks.h"
#include "fabric/net/elastic.h"
#include "fabric/sim/sim.h"
#include "key_file.h"
#include "lock/observe.h"
#include "own_memory.h"
#include "port.h"

#define MS UINT64_C(1000000)
/* No test needs so long; whoever does is stuck. */
#define PATIENCE_NS (60000 * MS)

#define WORLD_LOCKS  80
#define WORLD_NODES  2
#define WORLD_ACTORS 8
#define BOARD_STEPS  16

enum world_kind {
	SIM,
	SHM_TASKS,
	SHM_PROCESSES,
	SHM_DEFER,
	OWN_TASKS, /* a provider (own_memory.h) */
	NET_TASKS,
	NET_PROCESSES,
	NET_CLIENTS, /* of an elastic cluster */
	VERBS_TASKS,
	VERBS_PROCESSES,
	WORLD_KINDS
};
static const char *const world_names[WORLD_KINDS] = {
	"sim",       "shm-tasks",     "shm-processes", "shm-deferred", "own-tasks",
	"net-tasks", "net-processes", "net-clients",   "verbs-tasks",  "verbs-processes"};

static bool world_is_net(enum world_kind kind)
{
	return kind >= NET_TASKS;
}

/* Each actor is a process. */
static bool world_is_apart(enum world_kind kind)
{
	return kind == SHM_PROCESSES || kind == NET_PROCESSES || kind == NET_CLIENTS ||
	       kind == VERBS_PROCESSES;
}

/* What actors share: in memory that children inherit, touched with atomics only. */
struct board {
	uint32_t failed, stop, serving;
	char why[512];
	uint32_t step[BOARD_STEPS];
	uint32_t readers[WORLD_LOCKS], writers[WORLD_LOCKS];
	uint32_t violations;
	uint32_t queued;
	uint32_t order[WORLD_ACTORS], n_order;
	uint64_t token;
	uint64_t cells[WORLD_LOCKS]; /* net: as they were in the end */
};

struct world;
typedef void (*actor_fn)(struct world *w, struct vb_lock_client *me, unsigned i);

struct world_params {
	enum world_kind kind;
	const struct vb_lock_ops *ops;
	const char *options; /* of the fabric */
	const char *lock_options;
	uint64_t lease_ns; /* 0: so long that no test's holder loses it */
	bool fencing;
};

struct world {
	enum world_kind kind;
	bool apart; /* each actor is a process */
	struct world_params p;
	struct memory *own;
	struct vb_fabric *f;
	struct vb_lock_space *space;
	struct vb_lock_server *server[WORLD_NODES];
	pid_t server_pid;
	struct board *b;
	vb_addr cells; /* one counter per lock, guarded by it */
	uint64_t unit; /* a time in which others get something done */
	actor_fn fn;
	struct vb_task *task[WORLD_ACTORS]; /* where actors are tasks */
};

#define board_add(p) __atomic_add_fetch((p), 1, __ATOMIC_SEQ_CST)
#define board_sub(p) __atomic_sub_fetch((p), 1, __ATOMIC_SEQ_CST)
#define board_get(p) __atomic_load_n((p), __ATOMIC_SEQ_CST)

static void VB_PRINTF(3, 4) board_fail(struct board *b, int line, const char *fmt, ...)
{
	char text[sizeof(b->why)];
	va_list ap;
	int n;

	if (board_add(&b->failed) != 1)
		return; /* the first one counts */
	n = snprintf(text, sizeof(text), "line %d: ", line);
	va_start(ap, fmt);
	vsnprintf(text + n, sizeof(text) - (size_t)n, fmt, ap);
	va_end(ap);
	memcpy(b->why, text, sizeof(text));
}

/* For actors, which return void. */
#define EXPECT(w, cond)                                                                            \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			board_fail((w)->b, __LINE__, "%s", #cond);                                 \
			return;                                                                    \
		}                                                                                  \
	} while (0)
#define EXPECT_ERR(w, want, call)                                                                  \
	do {                                                                                       \
		int err_ = (call), want_ = (want);                                                 \
		if (err_ != want_) {                                                               \
			board_fail((w)->b, __LINE__, "%s: %s, not %s", #call,                      \
				   err_ ? vb_strerror(err_) : "0",                                 \
				   want_ ? vb_strerror(want_) : "0");                              \
			return;                                                                    \
		}                                                                                  \
	} while (0)

static void actor_sleep(struct vb_lock_client *me, uint64_t ns)
{
	vb_ep_sleep(me->ep, ns);
}

/* Waits until *word has reached n; gives up when another actor has failed or nothing comes. */
static bool actor_await(struct world *w, struct vb_lock_client *me, const uint32_t *word,
			uint32_t n)
{
	uint64_t end = vb_lock_now(me) + PATIENCE_NS;

	while (board_get(word) < n) {
		if (board_get(&w->b->failed))
			return false;
		if (vb_lock_now(me) > end) {
			board_fail(w->b, __LINE__, "waited in vain for another actor");
			return false;
		}
		actor_sleep(me, w->unit / 50);
	}
	return true;
}
#define AWAIT(w, me, word, n)                                                                      \
	do {                                                                                       \
		if (!actor_await(w, me, word, n))                                                  \
			return;                                                                    \
	} while (0)

/* ---- who is inside: the judge of exclusion, which needs no trust in the lock ---- */

static void board_enter(struct board *b, uint64_t lock, enum vb_mode mode)
{
	uint32_t mine =
		mode == VB_EXCLUSIVE ? board_add(&b->writers[lock]) : board_add(&b->readers[lock]);

	if (mode == VB_EXCLUSIVE ? mine != 1 || board_get(&b->readers[lock])
				 : board_get(&b->writers[lock]))
		board_add(&b->violations);
}

static void board_leave(struct board *b, uint64_t lock, enum vb_mode mode)
{
	if (mode == VB_EXCLUSIVE)
		board_sub(&b->writers[lock]);
	else
		board_sub(&b->readers[lock]);
}

static void count_queued(void *ctx, struct vb_lock_client *me, uint64_t lock, enum vb_mode mode)
{
	(void)me, (void)lock, (void)mode;
	board_add(&((struct board *)ctx)->queued);
}

static void watch_nothing(void *ctx, struct vb_lock_client *me, uint64_t lock, enum vb_mode mode)
{
	(void)ctx, (void)me, (void)lock, (void)mode;
}

static void watch_no_claim(void *ctx, struct vb_lock_client *me, const struct vb_claim *c)
{
	(void)ctx, (void)me, (void)c;
}

static void watch_no_end(void *ctx, struct vb_lock_client *me, uint64_t lock, int err)
{
	(void)ctx, (void)me, (void)lock, (void)err;
}

/* ---- running actors ---- */

struct actor {
	struct world *w;
	unsigned i;
};

static void actor_main(struct world *w, unsigned i)
{
	/* On a network a process has one node, and the first is the servers'. */
	uint16_t node =
		world_is_net(w->kind) && w->apart ? (uint16_t)(i + 1) : (uint16_t)(i % WORLD_NODES);
	struct vb_lock_client *me;
	int err = vb_lock_client_open(w->space, node, &me);

	if (err) {
		board_fail(w->b, __LINE__, "actor %u has no client: %s", i, vb_strerror(err));
		return;
	}
	me->index = i;
	w->fn(w, me, i);
	vb_lock_client_close(me);
}

static void actor_task(void *arg)
{
	struct actor *a = arg;

	actor_main(a->w, a->i);
}

static void run_tasks(struct world *w, unsigned n)
{
	static const struct vb_task_params params = {.name = "actor"};
	struct vb_sched *s = vb_sched_self();
	struct actor a[WORLD_ACTORS];

	for (unsigned i = 0; i < n; i++) {
		a[i] = (struct actor){.w = w, .i = i};
		assert_int_equal(vb_task_spawn(s, actor_task, &a[i], &params, &w->task[i]), 0);
	}
	if (vb_sched_run(s, NULL, vb_sched_now(s) + 2 * PATIENCE_NS) != 0)
		fail_msg("actors are stuck: %s", w->b->failed ? w->b->why : "none has complained");
}

/* Reaps the children, which have bounded patience; whoever outstays it is killed. */
static void reap(struct world *w, pid_t *pid, unsigned n)
{
	uint64_t end = vb_clock_ns() + 2 * PATIENCE_NS;
	unsigned left = n;

	while (left > 0) {
		bool late = vb_clock_ns() > end;

		for (unsigned i = 0; i < n; i++) {
			int status;

			if (pid[i] > 0 && late)
				kill(pid[i], SIGKILL);
			if (pid[i] <= 0 || waitpid(pid[i], &status, late ? 0 : WNOHANG) <= 0)
				continue;
			pid[i] = 0;
			left--;
			if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
				board_fail(w->b, __LINE__, "process %u ended with status %#x%s", i,
					   (unsigned)status, late ? " (stuck)" : "");
		}
		usleep(500);
	}
}

static void run_processes(struct world *w, unsigned n)
{
	pid_t pid[WORLD_ACTORS];

	fflush(NULL);
	for (unsigned i = 0; i < n; i++) {
		pid[i] = fork_child();
		assert_true(pid[i] >= 0);
		if (pid[i] == 0) {
			vb_fabric_after_fork(w->f);
			actor_main(w, i);
			fflush(NULL);
			_exit(0);
		}
	}
	reap(w, pid, n);
}

static struct vb_lock_space_params world_space_params(const struct world *w, uint16_t servers)
{
	return (struct vb_lock_space_params){
		.lock = w->p.ops->name,
		.options = w->p.lock_options,
		.locks = WORLD_LOCKS,
		.servers = servers,
		.lease_ns = w->p.lease_ns ? w->p.lease_ns : 20000 * MS,
		.fencing = w->p.fencing,
	};
}

static void watch_no_conversion(void *ctx, struct vb_lock_client *me, const struct vb_claim *c,
				enum vb_mode to)
{
}

static void watch_no_converted(void *ctx, struct vb_lock_client *me, const struct vb_claim *c,
			       int err)
{
}

static const struct vb_lock_watch *world_watch(struct board *b)
{
	static struct vb_lock_watch watch;

	watch = (struct vb_lock_watch){
		.called = watch_nothing,
		.queued = count_queued,
		.granted = watch_no_claim,
		.not_granted = watch_no_end,
		.abandoned = watch_no_claim,
		.releasing = watch_no_claim,
		.converting = watch_no_conversion,
		.converted = watch_no_converted,
		.released = watch_no_end,
		.ctx = b,
	};
	return &watch;
}

#include "world_net.h"

/* Runs n actors to their ends and fails if one has complained. */
static void world_run(struct world *w, unsigned n, actor_fn fn)
{
	assert_true(n <= WORLD_ACTORS);
	w->fn = fn;
	if (world_is_net(w->kind))
		net_run(w, n);
	else if (w->kind == SHM_PROCESSES)
		run_processes(w, n);
	else
		run_tasks(w, n);
	if (w->b->failed)
		fail_msg("%s: %s", world_names[w->kind], w->b->why);
}

/* ---- building and taking down ---- */

static void server_process(struct world *w)
{
	struct vb_sched *s;
	int err = 0;

	vb_fabric_after_fork(w->f);
	s = vb_sched_self();
	for (uint16_t n = 0; err == 0 && n < WORLD_NODES; n++)
		err = vb_lock_server_start(w->space, n, 0, 1, &w->server[n]);
	if (err)
		_exit(1);
	board_add(&w->b->serving);
	while (!board_get(&w->b->stop))
		vb_task_suspend(vb_sched_now(s) + 5 * MS);
	for (uint16_t n = 0; n < WORLD_NODES; n++)
		vb_lock_server_stop(w->server[n]);
	_exit(0);
}

static void start_servers(struct world *w)
{
	if (w->kind != SHM_PROCESSES) {
		for (uint16_t n = 0; n < WORLD_NODES; n++)
			assert_int_equal(vb_lock_server_start(w->space, n, 0, 1, &w->server[n]), 0);
		return;
	}
	if (!(w->space->ops->caps & VB_LOCK_SERVER))
		return;
	fflush(NULL);
	w->server_pid = fork_child();
	assert_true(w->server_pid >= 0);
	if (w->server_pid == 0)
		server_process(w);
	for (unsigned i = 0; !board_get(&w->b->serving); i++) {
		assert_true(i < 60000);
		assert_int_equal(waitpid(w->server_pid, NULL, WNOHANG), 0);
		usleep(1000);
	}
}

static struct vb_fabric *provide_fabric(struct world *w)
{
	struct vb_fabric *f;

	w->own = memory_new(WORLD_NODES, 1 << 20, BUG_NONE);
	assert_non_null(w->own);
	assert_int_equal(vb_fabric_provide(&w->own->p, &f), 0);
	return f;
}

static void close_fabric(struct world *w)
{
	vb_fabric_close(w->f);
	if (w->own != NULL)
		memory_free(w->own);
}

static struct vb_fabric *open_fabric(const struct world_params *p)
{
	struct vb_fabric_params fp = {
		.fabric = p->kind == SIM ? "sim" : "shm",
		.options = p->options,
		.nodes = WORLD_NODES,
		.node_bytes = 1 << 20,
		.endpoints = 64,
		.seed = 1,
	};
	/* With the usual lease of 20 s a thread may be held up for long, as on a busy machine it
	 * is. */
	struct vb_defer_params dp = {.chance = 0.5,
				     .max_delay_ns = 20000,
				     .late_ns = p->lease_ns == 0 ? 4000 * MS : 100 * MS,
				     .seed = 1};
	struct vb_fabric *f, *hook;

	assert_int_equal(vb_fabric_open(&fp, &f), 0);
	if (p->kind != SHM_DEFER)
		return f;
	assert_int_equal(vb_hook_defer(f, &dp, &hook), 0);
	return hook;
}

/* 0, or the error with which the space was refused; then there is nothing to close. */
static int world_try_open(struct world *w, const struct world_params *p)
{
	struct vb_lock_space_params sp;
	bool fresh;
	int err;

	*w = (struct world){.kind = p->kind, .p = *p, .unit = p->kind == SIM ? MS : 20 * MS};
	w->apart = world_is_apart(p->kind);
	if (world_is_net(p->kind) && net_absent(p->kind) != NULL) {
		print_message("skipped: %s: %s\n", world_names[p->kind], net_absent(p->kind));
		skip();
	}
	w->b = mmap(NULL, sizeof(*w->b), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(w->b != MAP_FAILED);
	if (world_is_net(p->kind))
		return 0;
	w->f = p->kind == OWN_TASKS ? provide_fabric(w) : open_fabric(p);
	sp = world_space_params(w, WORLD_NODES);
	err = vb_lock_space_open(w->f, &sp, &w->space);
	if (err) {
		close_fabric(w);
		munmap(w->b, sizeof(*w->b));
		return err;
	}
	w->space->watch = world_watch(w->b);
	assert_int_equal(vb_region(w->f, 1, "suite", WORLD_LOCKS * 8, &w->cells, &fresh), 0);
	start_servers(w);
	return 0;
}

static void world_open(struct world *w, const struct world_params *p)
{
	assert_int_equal(world_try_open(w, p), 0);
}

static void world_close(struct world *w)
{
	if (world_is_net(w->kind)) {
		munmap(w->b, sizeof(*w->b));
		return;
	}
	if (w->server_pid) {
		board_add(&w->b->stop);
		reap(w, &w->server_pid, 1);
		assert_int_equal(w->b->failed, 0);
	}
	for (uint16_t n = 0; n < WORLD_NODES; n++)
		vb_lock_server_stop(w->server[n]);
	vb_lock_space_close(w->space);
	close_fabric(w);
	munmap(w->b, sizeof(*w->b));
	if (vb_sched_tasks(vb_sched_self()) == 0)
		vb_sched_destroy(vb_sched_self());
	else
		fail_msg("%u tasks are left over", vb_sched_tasks(vb_sched_self()));
}

static uint64_t world_cell(struct world *w, uint64_t lock)
{
	if (world_is_net(w->kind))
		return w->b->cells[lock];
	return *(volatile uint64_t *)vb_local(w->f, w->cells + lock * 8, 8);
}

#endif
