/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that do what they are told with a segment and its locks, for tests of who stays when others
 * go.  Includes procs.h, which is to come after the fabric's headers. */
#ifndef VB_TESTS_ACTORS_H
#define VB_TESTS_ACTORS_H

#include <fcntl.h>

#include "child.h"
#include "fabric/shm/inner.h"
#include "procs.h"

#include <verbena/lock.h>

#define LEASE_NS 3000000000ull

static const char *name;

static inline struct vb_fabric_params params(char how)
{
	return (struct vb_fabric_params){.name = name,
					 .node_bytes = 1 << 20,
					 .endpoints = 16,
					 .attach = how == 'a',
					 .attach_or_create = how == 'o'};
}

static inline int setup(void **state)
{
	(void)state;
	name = unique_name();
	return 0;
}

static inline int teardown(void **state)
{
	(void)state;
	return segment_exists(name);
}

static inline int open_said(char how, struct vb_fabric **f, char *said, size_t n)
{
	struct vb_fabric_params p = params(how);
	int err;

	said[0] = '\0';
	vb_log_capture_begin(said, n);
	err = vb_fabric_open(&p, f);
	vb_log_capture_end();
	return err;
}

static inline uint64_t *word_of(struct vb_fabric *f)
{
	vb_addr a;
	bool fresh;

	return vb_region(f, 0, "word", 64, &a, &fresh) == 0 ? vb_local(f, a, 64) : NULL;
}

/* ---- processes that do what they are told ---- */

/*
 *	c a o  create, attach, attach or create     x  close
 *	i      add one to the word, which was       C  close all descriptors, unasked
 *	s      open a lock space, and a client      S  the same, and serve it
 *	l u    lock: the token, or -errno; unlock   f F  fork: told, untold; the child stays
 *	N      how many descriptors are open        q  end
 *	p      who it is, as others know it
 */
struct actor {
	pid_t pid;
	int in, out;
};

struct role {
	struct vb_fabric *f;
	struct vb_lock_space *space;
	struct vb_lock_client *me;
	struct vb_lock_server *server;
	struct vb_grant grant;
	const char *lock;
};

static inline int64_t open_locks(struct role *r, bool serve)
{
	const struct vb_lock_space_params p = {
		.lock = r->lock, .locks = 100, .lease_ns = LEASE_NS, .fencing = true};
	int err = vb_lock_space_open(r->f, &p, &r->space);

	if (err == 0 && serve)
		err = vb_lock_server_start(r->space, 0, 0, 1, &r->server);
	return err == 0 ? vb_lock_client_open(r->space, 0, &r->me) : err;
}

static inline void close_role(struct role *r)
{
	vb_lock_client_close(r->me);
	vb_lock_server_stop(r->server);
	vb_lock_space_close(r->space);
	vb_fabric_close(r->f);
	*r = (struct role){.lock = r->lock};
}

static inline void close_strange(int in, int out)
{
	for (int fd = 3; fd < 64; fd++) {
		if (fd != in && fd != out)
			close(fd);
	}
	/* Their numbers are taken again at once. */
	for (int i = 0; i < 8; i++)
		child_must(open("/dev/null", O_RDONLY) >= 0);
}

static inline int64_t fork_role(struct role *r, bool tell)
{
	pid_t pid = fork_child();

	if (pid == 0) {
		alarm(100);
		if (tell)
			vb_fabric_after_fork(r->f);
		for (;;)
			pause();
	}
	return pid;
}

static inline int64_t obey(struct role *r, char what, int in, int out)
{
	struct vb_fabric_params p = params(what);
	uint64_t *word;
	int err;

	switch (what) {
	case 'c':
	case 'a':
	case 'o':
		return vb_fabric_open(&p, &r->f);
	case 'x':
		close_role(r);
		return 0;
	case 'i':
		word = word_of(r->f);
		return word == NULL ? -1 : (int64_t)__atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST);
	case 'C':
		close_strange(in, out);
		return 0;
	case 'N':
		err = 0;
		for (int fd = 3; fd < 64; fd++)
			err += fd != in && fd != out && fcntl(fd, F_GETFD) >= 0;
		return err;
	case 'p':
		return (int64_t)vb_process_self();
	case 's':
	case 'S':
		return open_locks(r, what == 'S');
	case 'l':
		err = vb_lock_acquire(r->me, 42, VB_EXCLUSIVE, 200000000, &r->grant);
		return err != 0 ? err : (int64_t)r->grant.token;
	case 'u':
		return vb_lock_release(r->me, &r->grant);
	case 'f':
	case 'F':
		return fork_role(r, what == 'f');
	}
	return -EINVAL;
}

static inline void act(int in, int out, const char *lock)
{
	struct role r = {.lock = lock};
	char what;

	while (read(in, &what, 1) == 1 && what != 'q') {
		int64_t answer = obey(&r, what, in, out);

		child_must(write(out, &answer, sizeof(answer)) == sizeof(answer));
	}
	_exit(0);
}

static inline struct actor enter(const char *lock)
{
	int in[2], out[2];
	struct actor a;

	assert_true(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
	a.pid = fork_child();
	assert_true(a.pid >= 0);
	if (a.pid == 0) {
		alarm(200);
		close(in[1]);
		close(out[0]);
		vb_sched_forget();
		act(in[0], out[1], lock);
	}
	close(in[0]);
	close(out[1]);
	a.in = in[1];
	a.out = out[0];
	return a;
}

static inline int64_t tell(const struct actor *a, char what)
{
	int64_t answer;

	assert_int_equal(write(a->in, &what, 1), 1);
	assert_int_equal(read(a->out, &answer, sizeof(answer)), sizeof(answer));
	return answer;
}

static inline void leave(struct actor *a)
{
	assert_int_equal(write(a->in, "q", 1), 1);
	close(a->in);
	end_child(a->pid);
	close(a->out);
}

static inline void kill_actor(struct actor *a)
{
	kill_child(a->pid);
	close(a->in);
	close(a->out);
}

#endif
