/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several processes on one network fabric: forked before any of them has opened anything, because
 * neither connections nor the libraries under them survive a fork.  Rank 0 drives; what it and the
 * others must tell each other goes through a page that they share.  A failed condition ends the
 * process with the line number on stderr, and the test with it.
 */
#ifndef FABRIC_CROWD_H
#define FABRIC_CROWD_H

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "child.h"
#include "cluster/cluster.h"
#include "fabric/fabric.h"

#define CROWD_MAX     3
#define CROWD_WAIT_NS 30000000000ull
#define CROWD_BYTES   (4u << 20)

struct crowd_page {
	pid_t pid[CROWD_MAX];
	uint32_t step, computing;
	struct vb_fabric_stats stats[CROWD_MAX];
};

struct crowd {
	struct crowd_page *page;
	uint32_t rank, hosts;
	uint16_t port;
	int listening;
	const char *fabric, *options;
	struct vb_cluster *cluster;
	struct vb_fabric *f;
	struct vb_ep *ep;
	vb_addr a[CROWD_MAX]; /* CROWD_BYTES of zeroes on each node */
};

/* Set by a test: called between opening the cluster and opening the fabric. */
static void (*crowd_before_fabric)(struct crowd *c);

#define crowd_must(cond)                                                                           \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "%s:%d: process %d: %s\n", __FILE__, __LINE__,             \
				(int)getpid(), #cond);                                             \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

typedef void (*crowd_body)(struct crowd *c);

static inline uint64_t crowd_now(void)
{
	return vb_clock_gettime_ns();
}

/* Waits with the scheduler running, so that this process goes on serving. */
static inline void crowd_await(struct crowd *c, uint32_t step)
{
	uint64_t until = crowd_now() + CROWD_WAIT_NS;

	while (__atomic_load_n(&c->page->step, __ATOMIC_SEQ_CST) < step) {
		crowd_must(crowd_now() < until);
		crowd_must(vb_ep_sleep(c->ep, 1000000) == 0);
	}
}

/* The same as a task that computes: the fabric is not looked at.  The driver waits until it
 * does. */
static inline void crowd_compute(struct crowd *c, uint32_t step)
{
	uint64_t until = crowd_now() + CROWD_WAIT_NS;

	__atomic_fetch_add(&c->page->computing, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&c->page->step, __ATOMIC_SEQ_CST) < step) {
		crowd_must(crowd_now() < until);
		sched_yield(); /* the machine may have no core to spare */
	}
}

static inline void crowd_await_computing(struct crowd *c, uint32_t n)
{
	uint64_t until = crowd_now() + CROWD_WAIT_NS;

	while (__atomic_load_n(&c->page->computing, __ATOMIC_SEQ_CST) < n) {
		crowd_must(crowd_now() < until);
		crowd_must(vb_ep_sleep(c->ep, 1000000) == 0);
	}
}

static inline void crowd_step(struct crowd *c, uint32_t step)
{
	__atomic_store_n(&c->page->step, step, __ATOMIC_SEQ_CST);
}

/* Every thread of a process stands still: a signal alone does not say so. */
static inline void crowd_stop(struct crowd *c, uint32_t rank)
{
	uint64_t until = crowd_now() + CROWD_WAIT_NS;
	char command[128];

	crowd_must(kill(c->page->pid[rank], SIGSTOP) == 0);
	snprintf(command, sizeof(command),
		 "! grep -h ^State: /proc/%d/task/*/status | grep -qv '(stopped)'",
		 (int)c->page->pid[rank]);
	while (system(command) != 0)
		crowd_must(crowd_now() < until);
}

static inline void crowd_continue(struct crowd *c, uint32_t rank)
{
	crowd_must(kill(c->page->pid[rank], SIGCONT) == 0);
}

static inline void crowd_open(struct crowd *c)
{
	char meet[64], name[32];
	struct vb_cluster_params cp = {.hosts = c->hosts,
				       .role = c->rank == 0 ? VB_CLUSTER_ROOT : VB_CLUSTER_MEMBER,
				       .meet = meet,
				       .rank = c->rank};
	struct vb_fabric_params fp = {.fabric = c->fabric,
				      .options = c->options,
				      .nodes = (uint16_t)c->hosts,
				      .node_bytes = 2 * CROWD_BYTES,
				      .endpoints = 256};
	bool fresh;

	snprintf(meet, sizeof(meet), "127.0.0.1:%u", c->port);
	if (c->rank == 0)
		crowd_must(vb_cluster_open_on(&cp, c->listening, &c->cluster) == 0);
	else
		crowd_must(vb_cluster_open(&cp, &c->cluster) == 0);
	fp.cluster = c->cluster;
	if (crowd_before_fabric != NULL)
		crowd_before_fabric(c);
	crowd_must(vb_fabric_open(&fp, &c->f) == 0);
	crowd_must(vb_ep_open(c->f, (uint16_t)c->rank, &c->ep) == 0);
	for (uint16_t n = 0; n < c->hosts; n++) {
		snprintf(name, sizeof(name), "crowd %u", n);
		crowd_must(vb_region(c->f, n, name, CROWD_BYTES, &c->a[n], &fresh) == 0);
	}
	crowd_must(vb_cluster_barrier(c->cluster) == 0);
}

static inline void crowd_member(struct crowd *c, crowd_body body)
{
	alarm(120); /* never outlives the test */
	crowd_open(c);
	body(c);
	c->f->ops->stats(c->f, &c->page->stats[c->rank]);
	vb_ep_close(c->ep);
	vb_fabric_close(c->f);
	vb_cluster_close(c->cluster);
	_exit(0);
}

/* Runs bodies[r] in the process of rank r.  `killed`: that one dies by SIGKILL; CROWD_MAX: none.
 * The page stays readable after it. */
static inline struct crowd_page *crowd_run(const char *fabric, const char *options, uint32_t hosts,
					   const crowd_body *bodies, uint32_t killed)
{
	struct crowd c = {.hosts = hosts, .fabric = fabric, .options = options};
	int status;

	c.page = mmap(NULL, sizeof(*c.page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	assert_true(c.page != MAP_FAILED);
	assert_int_equal(vb_cluster_listen("127.0.0.1", 0, &c.listening, &c.port), 0);
	fflush(stdout);
	fflush(stderr);
	for (c.rank = 0; c.rank < hosts; c.rank++) {
		pid_t pid = fork_child();

		assert_true(pid >= 0);
		if (pid == 0) {
			c.page->pid[c.rank] = getpid();
			if (c.rank != 0)
				close(c.listening);
			crowd_member(&c, bodies[c.rank]);
		}
		c.page->pid[c.rank] = pid;
	}
	close(c.listening);
	for (uint32_t r = 0; r < hosts; r++) {
		assert_int_equal(waitpid(c.page->pid[r], &status, 0), c.page->pid[r]);
		if (r == killed) {
			assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		} else {
			assert_true(WIFEXITED(status));
			assert_int_equal(WEXITSTATUS(status), 0);
		}
	}
	return c.page;
}

static inline void crowd_end(struct crowd_page *page)
{
	munmap(page, sizeof(*page));
}

/* Why the fabric cannot run here, found out in a child: this process must not load its library. */
static inline bool crowd_absent(const char *fabric)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork_child();
	assert_true(pid >= 0);
	if (pid == 0) {
		const char *why = vb_fabric_find(fabric)->absent();

		if (why != NULL)
			printf("SKIP: %s\n", why);
		fflush(stdout);
		_exit(why != NULL);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

#endif
