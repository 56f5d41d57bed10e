/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several processes, each with a device and a rank: forked before anything is opened, since neither
 * connections nor threads survive a fork.  They tell each other how far they are on a board of
 * shared words; a step that does not come in time ends the process with a line number.
 */
#ifndef VERBS_PROCS_H
#define VERBS_PROCS_H

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "child.h"
#include "cluster/cluster.h"
#include "verbs_test.h"

#define PROCS_MAX 4
#define STEPS     16
#define STEP_NS   60000000000ull
#define PROC_S    150 /* a process never outlives its test */

struct board {
	uint32_t step[STEPS];
	uint64_t number[STEPS];
};

struct proc {
	unsigned rank;
	struct board *b;
	struct vb_cluster *c;
	struct vb_fabric *f;
	struct vb_ep *ep;
	vb_addr at[PROCS_MAX]; /* a region of REGION bytes on each rank's node */
};
#define REGION 65536u

typedef void (*proc_body)(struct proc *me);

struct procs {
	struct board *b;
	pid_t pid[PROCS_MAX];
	unsigned n;
};

#define must(cond)                                                                                 \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "%s:%d: process %d: %s\n", __FILE__, __LINE__,             \
				(int)getpid(), #cond);                                             \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

static inline void step(struct board *b, unsigned i)
{
	__atomic_add_fetch(&b->step[i], 1, __ATOMIC_SEQ_CST);
}

static inline bool reached(const struct board *b, unsigned i, unsigned n)
{
	return __atomic_load_n(&b->step[i], __ATOMIC_SEQ_CST) >= n;
}

/* Until n have taken the step; the fabric goes on meanwhile. */
static inline void await_step(struct proc *me, unsigned i, unsigned n)
{
	uint64_t until = vb_ep_now(me->ep) + STEP_NS;

	while (!reached(me->b, i, n)) {
		must(vb_ep_now(me->ep) < until);
		must(vb_ep_sleep(me->ep, 1000000) == 0);
	}
}

/* The same without looking at the fabric at all; also for the parent. */
static inline bool doze_until(const struct board *b, unsigned i, unsigned n)
{
	for (uint64_t waited = 0; waited < STEP_NS; waited += 1000000) {
		if (reached(b, i, n))
			return true;
		usleep(1000);
	}
	return false;
}

static inline void proc_open(struct proc *me, unsigned n, int listening, uint16_t port,
			     const char *options)
{
	char meet[32], config[32];
	struct vb_cluster_params cp = {
		.hosts = n,
		.rank = me->rank,
		.role = me->rank == 0 ? VB_CLUSTER_ROOT : VB_CLUSTER_MEMBER,
		.meet = meet,
		.config = config,
	};
	struct vb_fabric_params p = {
		.fabric = "verbs", .nodes = (uint16_t)n, .node_bytes = 1 << 20, .endpoints = 64};
	bool fresh;

	snprintf(meet, sizeof(meet), "127.0.0.1:%u", port);
	snprintf(config, sizeof(config), "test=%u\n", n);
	if (me->rank == 0)
		must(vb_cluster_open_on(&cp, listening, &me->c) == 0);
	else
		must(vb_cluster_open(&cp, &me->c) == 0);
	p.cluster = me->c;
	p.options = verbs_test_options(true, options);
	must(vb_fabric_open(&p, &me->f) == 0);
	must(vb_ep_open(me->f, (uint16_t)me->rank, &me->ep) == 0);
	for (unsigned r = 0; r < n; r++)
		must(vb_region(me->f, (uint16_t)r, "test", REGION, &me->at[r], &fresh) == 0);
	must(vb_cluster_barrier(me->c) == 0);
}

static inline void proc_close(struct proc *me)
{
	vb_ep_close(me->ep);
	vb_fabric_close(me->f);
	vb_cluster_close(me->c);
}

/* Forks n processes; body[i] runs in rank i with everything open. */
static inline void procs_start(struct procs *ps, unsigned n, const char *options,
			       const proc_body *body)
{
	uint16_t port;
	int listening;

	verbs_test_need_device();
	*ps = (struct procs){.n = n};
	ps->b = mmap(NULL, sizeof(*ps->b), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	assert_true(ps->b != MAP_FAILED);
	assert_int_equal(vb_cluster_listen("127.0.0.1", 0, &listening, &port), 0);
	fflush(stdout);
	fflush(stderr);
	for (unsigned i = 0; i < n; i++) {
		ps->pid[i] = fork_child();
		assert_true(ps->pid[i] >= 0);
		if (ps->pid[i] == 0) {
			struct proc me = {.rank = i, .b = ps->b};

			alarm(PROC_S);
			proc_open(&me, n, listening, port, options);
			body[i](&me);
			proc_close(&me);
			_exit(0);
		}
	}
	close(listening);
}

static inline void procs_kill(struct procs *ps, unsigned i)
{
	int status;

	assert_int_equal(kill(ps->pid[i], SIGKILL), 0);
	assert_int_equal(waitpid(ps->pid[i], &status, 0), ps->pid[i]);
	ps->pid[i] = 0;
}

/* Every process that was not killed has ended well. */
static inline void procs_end(struct procs *ps)
{
	bool well = true;

	for (unsigned i = 0; i < ps->n; i++) {
		int status;

		if (ps->pid[i] == 0)
			continue;
		assert_int_equal(waitpid(ps->pid[i], &status, 0), ps->pid[i]);
		well &= WIFEXITED(status) && WEXITSTATUS(status) == 0;
	}
	munmap(ps->b, sizeof(*ps->b));
	assert_true(well);
}

/* The next message, or an end of the process after a generous while. */
static inline void proc_take(struct proc *me, struct vb_msg *m)
{
	uint64_t until = vb_ep_now(me->ep) + STEP_NS;

	while (vb_ep_recv(me->ep, m) == -EAGAIN)
		must(vb_ep_wait(me->ep, until) == 0 || vb_ep_recv(me->ep, m) == 0);
}

#endif
