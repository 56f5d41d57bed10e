/* SPDX-License-Identifier: Apache-2.0 */
/* Children of a test: started, released together, waited for, killed.  They end with _exit so that
 * nothing of the parent's runs twice. */
#ifndef FABRIC_PROCS_H
#define FABRIC_PROCS_H

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "child.h"
#include "fabric/fabric.h"
#include "fabric/shm/shm.h"

#define WAIT_NS 30000000000ull

/* In a child: a failed condition ends it with the line number in the log. */
#define child_must(cond)                                                                           \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "%s:%d: child: %s\n", __FILE__, __LINE__, #cond);          \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

typedef void (*child_body)(struct vb_fabric *f, unsigned number, void *arg);

/* f may be NULL for a child that opens its own. */
static inline pid_t start_child(struct vb_fabric *f, unsigned number, child_body body, void *arg)
{
	pid_t pid;

	fflush(stdout);
	fflush(stderr);
	pid = fork_child();
	assert_true(pid >= 0);
	if (pid == 0) {
		alarm(200); /* never outlives the test */
		if (f != NULL)
			vb_fabric_after_fork(f);
		body(f, number, arg);
		_exit(0);
	}
	return pid;
}

static inline void end_child(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static inline void kill_child(pid_t pid)
{
	int status;

	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
}

/* The next message, or an error after a generous while. */
static inline int take(struct vb_ep *ep, struct vb_msg *m)
{
	uint64_t until = vb_ep_now(ep) + WAIT_NS;
	int err;

	while ((err = vb_ep_recv(ep, m)) == -EAGAIN) {
		err = vb_ep_wait(ep, until);
		if (err != 0)
			return vb_ep_recv(ep, m) == 0 ? 0 : err; /* this process was held up */
	}
	return err;
}

/* Sends, again while the ring is full. */
static inline int send_all(struct vb_ep *ep, vb_peer to, const struct vb_msg *m)
{
	uint64_t until = vb_ep_now(ep) + WAIT_NS;
	int err;

	while ((err = vb_send_wait(ep, to, m)) == -EAGAIN && vb_ep_now(ep) < until)
		vb_task_yield();
	return err;
}

static inline bool segment_exists(const char *name)
{
	char path[300];
	struct stat st;

	snprintf(path, sizeof(path), "/dev/shm/verbena.%s", name);
	return stat(path, &st) == 0;
}

/* A name that no other run of the test uses. */
static inline const char *unique_name(void)
{
	static char name[64];
	static unsigned n;

	snprintf(name, sizeof(name), "test.%d.%u", (int)getpid(), n++);
	return name;
}

#endif
