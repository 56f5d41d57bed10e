/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that form a cluster on loopback, at a port of the kernel's choice.  Each runs a body;
 * what it must hold it checks with crew_must, what it logs the parent can read.  They share a page
 * of counters to tell one another how far they are.
 */
#ifndef CLUSTER_CREW_H
#define CLUSTER_CREW_H

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
#include "cluster/cluster.h"
#include "task/task.h"

#define CREW_MAX    16
#define CREW_NS     60000000000ull /* what is certain to come has come by then */
#define LOG_BYTES   16384
#define CHILD_ALARM 200

#define crew_must(cond)                                                                            \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "%s:%d: process %u: %s\n", __FILE__, __LINE__, crew_me,    \
				#cond);                                                            \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

struct crew_shared {
	uint32_t marks[32]; /* atomic */
};

struct crew {
	int listening;
	uint16_t port;
	char meet[32];
	struct crew_shared *shared;
	unsigned n;
	pid_t pids[CREW_MAX];
	int logs[CREW_MAX];
	struct vb_cluster_params params; /* what is not set by crew_params */
};

static unsigned crew_me;

typedef void (*crew_body)(struct crew *w, unsigned me);

static inline void crew_mark(struct crew *w, unsigned which)
{
	__atomic_add_fetch(&w->shared->marks[which], 1, __ATOMIC_SEQ_CST);
}

static inline bool crew_reached(struct crew *w, unsigned which, uint32_t n)
{
	uint64_t until = vb_clock_gettime_ns() + CREW_NS;

	while (__atomic_load_n(&w->shared->marks[which], __ATOMIC_SEQ_CST) < n) {
		if (vb_clock_gettime_ns() > until)
			return false;
		usleep(1000);
	}
	return true;
}

/* Until cond holds, for as long as that may take on a machine with other work. */
#define crew_until(cond)                                                                           \
	do {                                                                                       \
		uint64_t until_ = vb_clock_gettime_ns() + CREW_NS;                                 \
		while (!(cond)) {                                                                  \
			crew_must(vb_clock_gettime_ns() < until_);                                 \
			usleep(1000);                                                              \
		}                                                                                  \
	} while (0)

static inline void crew_begin(struct crew *w)
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

static inline struct vb_cluster_params crew_params(struct crew *w, unsigned me)
{
	struct vb_cluster_params p = w->params;

	p.role = me == 0 ? VB_CLUSTER_ROOT : VB_CLUSTER_MEMBER;
	p.meet = w->meet;
	if (p.rank == 0)
		p.rank = me;
	if (p.timeout_ns == 0)
		p.timeout_ns = CREW_NS;
	return p;
}

/* As the launcher's children do it: process 0 is the root. */
static inline int crew_open_as(struct crew *w, unsigned me, const struct vb_cluster_params *p,
			       struct vb_cluster **c)
{
	if (me == 0)
		return vb_cluster_open_on(p, w->listening, c);
	return vb_cluster_open(p, c);
}

static inline struct vb_cluster *crew_open(struct crew *w, unsigned me)
{
	struct vb_cluster_params p = crew_params(w, me);
	struct vb_cluster *c = NULL;

	crew_must(crew_open_as(w, me, &p, &c) == 0);
	crew_must(vb_cluster_rank(c) == me && vb_cluster_hosts(c) == p.hosts);
	return c;
}

static inline void crew_start(struct crew *w, unsigned me, crew_body body)
{
	fflush(stdout);
	fflush(stderr);
	w->logs[me] = memfd_create("log", 0);
	assert_true(w->logs[me] >= 0);
	w->pids[me] = fork();
	assert_true(w->pids[me] >= 0);
	w->n = me + 1 > w->n ? me + 1 : w->n;
	if (w->pids[me] != 0)
		return;
	alarm(CHILD_ALARM); /* never outlives the test */
	crew_me = me;
	dup2(w->logs[me], STDERR_FILENO);
	if (me != 0)
		close(w->listening);
	body(w, me);
	_exit(0);
}

static inline const char *crew_log(struct crew *w, unsigned me)
{
	static char text[LOG_BYTES];
	ssize_t n = pread(w->logs[me], text, sizeof(text) - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	return text;
}

/* Ends well, or its log is shown. */
static inline void crew_join(struct crew *w, unsigned me)
{
	int status;

	assert_int_equal(waitpid(w->pids[me], &status, 0), w->pids[me]);
	w->pids[me] = 0;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		print_message("process %u, status %#x:\n%s", me, status, crew_log(w, me));
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static inline void crew_kill(struct crew *w, unsigned me)
{
	int status;

	assert_int_equal(kill(w->pids[me], SIGKILL), 0);
	assert_int_equal(waitpid(w->pids[me], &status, 0), w->pids[me]);
	w->pids[me] = 0;
}

static inline void crew_signal(struct crew *w, unsigned me, int sig)
{
	assert_int_equal(kill(w->pids[me], sig), 0);
}

#define crew_said(w, me, words)                                                                    \
	do {                                                                                       \
		if (strstr(crew_log(w, me), words) == NULL) {                                      \
			print_message("process %u did not say '%s':\n%s", (unsigned)(me), words,   \
				      crew_log(w, me));                                            \
			assert_true(!"said");                                                      \
		}                                                                                  \
	} while (0)

static inline void crew_end(struct crew *w)
{
	for (unsigned i = 0; i < w->n; i++)
		if (w->pids[i] != 0)
			crew_join(w, i);
	for (unsigned i = 0; i < w->n; i++)
		if (w->logs[i] != 0)
			close(w->logs[i]);
	close(w->listening);
	munmap(w->shared, sizeof(*w->shared));
}

/* n processes with the same body. */
static inline void crew_run(struct crew *w, unsigned n, crew_body body)
{
	w->params.hosts = n;
	crew_begin(w);
	for (unsigned i = 0; i < n; i++)
		crew_start(w, i, body);
	/* The root's death must not leave a socket behind that still accepts. */
	close(w->listening);
	w->listening = open("/dev/null", 0);
	crew_end(w);
}

#endif
