/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that form a cluster on loopback, at a port of the kernel's choice.  Each runs a body;
 * what it must hold it checks with procs_must, what it logs the parent can read.  They share a page
 * of counters to tell one another how far they are.
 */
#ifndef CLUSTER_PROCS_H
#define CLUSTER_PROCS_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "child.h"
#include "cluster/cluster.h"
#include "task/task.h"

#define PROCS_MAX   16
#define PROCS_NS    60000000000ull /* what is certain to come has come by then */
#define LOG_BYTES   16384
#define CHILD_ALARM 200

#define procs_must(cond)                                                                           \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "%s:%d: process %u: %s\n", __FILE__, __LINE__, procs_me,   \
				#cond);                                                            \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

struct procs_shared {
	uint32_t marks[32]; /* atomic */
};

struct procs {
	int listening;
	uint16_t port;
	char meet[32];
	struct procs_shared *shared;
	unsigned n;
	pid_t pids[PROCS_MAX];
	int logs[PROCS_MAX];
	struct vb_cluster_params params; /* what is not set by procs_params */
};

static unsigned procs_me;

typedef void (*procs_body)(struct procs *w, unsigned me);

static inline void procs_mark(struct procs *w, unsigned which)
{
	__atomic_add_fetch(&w->shared->marks[which], 1, __ATOMIC_SEQ_CST);
}

static inline bool procs_reached(struct procs *w, unsigned which, uint32_t n)
{
	uint64_t until = vb_clock_gettime_ns() + PROCS_NS;

	while (__atomic_load_n(&w->shared->marks[which], __ATOMIC_SEQ_CST) < n) {
		if (vb_clock_gettime_ns() > until)
			return false;
		usleep(1000);
	}
	return true;
}

/* Until cond holds, for as long as that may take on a machine with other work. */
#define procs_until(cond)                                                                          \
	do {                                                                                       \
		uint64_t until_ = vb_clock_gettime_ns() + PROCS_NS;                                \
		while (!(cond)) {                                                                  \
			procs_must(vb_clock_gettime_ns() < until_);                                \
			usleep(1000);                                                              \
		}                                                                                  \
	} while (0)

static inline void procs_begin(struct procs *w)
{
	struct vb_cluster_params keep = w->params;

	memset(w, 0, sizeof(*w));
	w->params = keep;
	w->shared = mmap(NULL, sizeof(*w->shared), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(w->shared != MAP_FAILED);
	assert_int_equal(vb_cluster_listen("127.0.0.1", 0, &w->listening, &w->port), 0);
	snprintf(w->meet, sizeof(w->meet), "127.0.0.1:%u", w->port);
}

static inline struct vb_cluster_params procs_params(struct procs *w, unsigned me)
{
	struct vb_cluster_params p = w->params;

	p.role = me == 0 ? VB_CLUSTER_ROOT : VB_CLUSTER_MEMBER;
	p.meet = w->meet;
	if (p.rank == 0)
		p.rank = me;
	if (p.timeout_ns == 0)
		p.timeout_ns = PROCS_NS;
	return p;
}

/* As the launcher's children do it: process 0 is the root. */
static inline int procs_open_as(struct procs *w, unsigned me, const struct vb_cluster_params *p,
				struct vb_cluster **c)
{
	if (me == 0)
		return vb_cluster_open_on(p, w->listening, c);
	return vb_cluster_open(p, c);
}

static inline struct vb_cluster *procs_open(struct procs *w, unsigned me)
{
	struct vb_cluster_params p = procs_params(w, me);
	struct vb_cluster *c = NULL;

	procs_must(procs_open_as(w, me, &p, &c) == 0);
	procs_must(vb_cluster_rank(c) == me && vb_cluster_hosts(c) == p.hosts);
	return c;
}

static inline void procs_start(struct procs *w, unsigned me, procs_body body)
{
	fflush(stdout);
	fflush(stderr);
	w->logs[me] = memfd_create("log", 0);
	assert_true(w->logs[me] >= 0);
	w->pids[me] = fork_child();
	assert_true(w->pids[me] >= 0);
	w->n = me + 1 > w->n ? me + 1 : w->n;
	if (w->pids[me] != 0)
		return;
	alarm(CHILD_ALARM); /* never outlives the test */
	procs_me = me;
	dup2(w->logs[me], STDERR_FILENO);
	if (me != 0)
		close(w->listening);
	body(w, me);
	_exit(0);
}

static inline const char *procs_log(struct procs *w, unsigned me)
{
	static char text[LOG_BYTES];
	ssize_t n = pread(w->logs[me], text, sizeof(text) - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	return text;
}

/* Ends well, or its log is shown. */
static inline void procs_join(struct procs *w, unsigned me)
{
	int status;

	assert_int_equal(waitpid(w->pids[me], &status, 0), w->pids[me]);
	w->pids[me] = 0;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		print_message("process %u, status %#x:\n%s", me, status, procs_log(w, me));
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static inline void procs_kill(struct procs *w, unsigned me)
{
	int status;

	assert_int_equal(kill(w->pids[me], SIGKILL), 0);
	assert_int_equal(waitpid(w->pids[me], &status, 0), w->pids[me]);
	w->pids[me] = 0;
}

static inline void procs_signal(struct procs *w, unsigned me, int sig)
{
	assert_int_equal(kill(w->pids[me], sig), 0);
}

#define procs_said(w, me, words)                                                                   \
	do {                                                                                       \
		if (strstr(procs_log(w, me), words) == NULL) {                                     \
			print_message("process %u did not say '%s':\n%s", (unsigned)(me), words,   \
				      procs_log(w, me));                                           \
			assert_true(!"said");                                                      \
		}                                                                                  \
	} while (0)

static inline void procs_end(struct procs *w)
{
	for (unsigned i = 0; i < w->n; i++)
		if (w->pids[i] != 0)
			procs_join(w, i);
	for (unsigned i = 0; i < w->n; i++)
		if (w->logs[i] != 0)
			close(w->logs[i]);
	close(w->listening);
	munmap(w->shared, sizeof(*w->shared));
}

/* n processes with the same body. */
static inline void procs_run(struct procs *w, unsigned n, procs_body body)
{
	w->params.hosts = n;
	procs_begin(w);
	for (unsigned i = 0; i < n; i++)
		procs_start(w, i, body);
	/* The root's death must not leave a socket behind that still accepts. */
	close(w->listening);
	w->listening = open("/dev/null", 0);
	procs_end(w);
}

#endif
