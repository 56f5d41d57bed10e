/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Servers and clients of an elastic cluster as processes on loopback.  The test's own process opens nothing:
 * it forks, and looks at a board in shared memory on which a server shows what its clients cost it.
 */
#ifndef TEST_NET_ELASTIC_H
#define TEST_NET_ELASTIC_H

#include <dirent.h>
#include <malloc.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define VB_LOG_ROOM "test"
#include "base/log.h"
#include "child.h"
#include "fabric/tcp/inner.h"
#include "key_file.h"
#include "lock/lock.h"
#include "port.h"

#define MS         1000000ull
#define WAIT_NS    60000000000ull /* whatever is sure to come has come by then */
#define SERVERS    3
#define NODE_BYTES (1u << 20)

struct shown {
	uint32_t up, members, boxes, open, descriptors, refused;
	uint32_t strange; /* what was told in the log of members */
	uint64_t kept;    /* bytes from malloc, but for idle messages */
};

struct board {
	struct shown server[SERVERS];
	uint32_t stop[SERVERS], cut[SERVERS], greet[SERVERS];
	uint32_t step[8];
	uint64_t word[8];
	uint8_t id[4][NET_ID];
};

struct world {
	struct board *b;
	char key[KEY_FILE_NAME], list[128], more[96];
	char dir[32]; /* in the temporary folder; of marks that servers were there */
	int key_fd;
	bool states; /* each server has one, in dir/sN */
	unsigned servers;
	pid_t pid[SERVERS];
};

#define get(p)    __atomic_load_n((p), __ATOMIC_SEQ_CST)
#define set(p, v) __atomic_store_n((p), (v), __ATOMIC_SEQ_CST)
#define add(p)    __atomic_add_fetch((p), 1, __ATOMIC_SEQ_CST)

/* In a child: a failed condition ends it. */
#define MUST(cond)                                                                                 \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "%s:%d: child: %s\n", __FILE__, __LINE__, #cond);          \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)
#define MUST_BE(want, call)                                                                        \
	do {                                                                                       \
		int err_ = (call);                                                                 \
		if (err_ != (want)) {                                                              \
			fprintf(stderr, "%s:%d: child: %s: %s\n", __FILE__, __LINE__, #call,       \
				err_ ? vb_strerror(err_) : "0");                                   \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

/* ---- in a server's process ---- */

static uint32_t descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	uint32_t n = 0;

	while (d != NULL && readdir(d) != NULL)
		n++;
	closedir(d);
	return n;
}

static inline int open_server(const struct world *w, unsigned i, struct vb_fabric **out)
{
	char options[400];

	snprintf(options, sizeof(options), "servers=%s,serve=%u,key=%s,settle=0,fresh=%s/%u%s",
		 w->list, i + 1, w->key, w->dir, i, w->more);
	if (w->states)
		snprintf(options + strlen(options), sizeof(options) - strlen(options),
			 ",state=%s/s%u", w->dir, i);
	return vb_fabric_open(&(struct vb_fabric_params){.fabric = "tcp",
							 .options = options,
							 .nodes = (uint16_t)w->servers,
							 .node_bytes = NODE_BYTES},
			      out);
}

static inline int open_client_as(const struct world *w, const char *key, const char *more,
				 struct vb_fabric **out)
{
	char options[400];

	snprintf(options, sizeof(options), "servers=%s,key=%s%s", w->list, key, more);
	return vb_fabric_open(&(struct vb_fabric_params){.fabric = "tcp", .options = options}, out);
}

static inline int open_client(const struct world *w, struct vb_fabric **out)
{
	return open_client_as(w, w->key, "", out);
}

static inline struct tcp_via *via_of(struct vb_fabric *f)
{
	return tcp_of(am_of(net_of(f)));
}

/* As if the network had: both ends find out when they read or write. */
static inline void cut_all(struct vb_fabric *f)
{
	pthread_mutex_lock(&net_of(f)->engine);
	vb_list_for_each (it, &via_of(f)->conns) {
		struct tcp_conn *c = vb_container_of(it, struct tcp_conn, link);

		(void)shutdown(c->fd, SHUT_RDWR);
	}
	pthread_mutex_unlock(&net_of(f)->engine);
}

/* As if its clients' WELCOMEs were late: it greets them again.  True: all have answered, or were not connected. */
static inline bool greet_again(struct vb_fabric *fab, bool first)
{
	struct net_fabric *f = net_of(fab);
	struct am_wire *w = am_of(f);
	bool all = true;

	pthread_mutex_lock(&f->engine);
	for (uint32_t i = f->hosts; i < w->hosts; i++) {
		struct am_host *h = &w->host[i];

		if (first && h->state == AM_UP) {
			h->state = AM_GREETING;
			h->greeted_ns = 0;
			am_due(w, 0);
		}
		all &= h->state != AM_GREETING;
	}
	pthread_mutex_unlock(&f->engine);
	return all;
}

/* What malloc counts a piece for. */
static inline size_t used(const void *p)
{
	return malloc_usable_size((void *)(uintptr_t)p) + sizeof(size_t);
}

static inline void show(struct world *w, unsigned i, struct vb_fabric *f)
{
	struct shown *s = &w->b->server[i];
	uint64_t idle = 0;

	pthread_mutex_lock(&net_of(f)->engine);
	/* Buffers of messages are kept for the next ones, as many as there once were at a time. */
	vb_list_for_each (it, &am_of(net_of(f))->messages) {
		const struct am_msg *m = vb_container_of(it, struct am_msg, all);

		idle += used(m) + used(m->buffer) + used(m->entry);
	}
	set(&s->members, net_of(f)->elastic->members);
	set(&s->boxes, net_of(f)->elastic->boxes);
	set(&s->open, via_of(f)->open);
	set(&s->refused, (uint32_t)via_of(f)->refused.all);
	set(&s->strange, (uint32_t)(via_of(f)->spoilt.all + am_of(net_of(f))->refused));
	pthread_mutex_unlock(&net_of(f)->engine);
	set(&s->kept, mallinfo2().uordblks + mallinfo2().hblkhd - idle);
	set(&s->descriptors, descriptors());
	set(&s->up, 1);
}

/* Serves until it is told to stop; `with` opens and starts what it serves. */
typedef void (*with_fn)(struct world *w, struct vb_fabric *f);

/* What a server does again and again besides. */
static void (*server_each)(struct world *w, unsigned i, struct vb_fabric *f);

VB_NORETURN static inline void server_main(struct world *w, unsigned i, with_fn with)
{
	struct vb_fabric *f;

	MUST_BE(0, open_server(w, i, &f));
	if (with != NULL)
		with(w, f);
	while (!get(&w->b->stop[i])) {
		show(w, i, f);
		if (server_each != NULL)
			server_each(w, i, f);
		if (get(&w->b->cut[i])) {
			cut_all(f);
			set(&w->b->cut[i], 0);
		}
		if (get(&w->b->greet[i])) {
			bool first = get(&w->b->greet[i]) == 1;

			set(&w->b->greet[i], greet_again(f, first) ? 0 : 2);
		}
		vb_task_sleep_until(vb_sched_now_slow(vb_sched_self()) + MS);
	}
	_exit(0);
}

/* ---- for tests ---- */

static inline pid_t child(void)
{
	pid_t pid = fork_child();

	assert_true(pid >= 0);
	if (pid == 0)
		alarm(240); /* never outlives the test */
	return pid;
}

static inline pid_t client(struct world *w, void (*body)(struct world *w))
{
	pid_t pid = child();

	if (pid == 0) {
		body(w);
		_exit(0);
	}
	return pid;
}

static inline void ended(pid_t pid)
{
	int status = -1;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	assert_int_equal(status, 0);
}

#define await(cond)                                                                                \
	do {                                                                                       \
		uint64_t end_ = vb_clock_gettime_ns() + WAIT_NS;                                   \
		while (!(cond)) {                                                                  \
			if (vb_clock_gettime_ns() > end_)                                          \
				fail_msg("line %d: never: %s", __LINE__, #cond);                   \
			usleep(1000);                                                              \
		}                                                                                  \
	} while (0)

static inline void world_open(struct world *w, unsigned servers, const char *more)
{
	uint8_t key[48];
	size_t n = 0;

	*w = (struct world){.servers = servers};
	w->b = mmap(NULL, sizeof(*w->b), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(w->b != MAP_FAILED);
	snprintf(w->more, sizeof(w->more), "%s", more);
	for (unsigned i = 0; i < sizeof(key); i++)
		key[i] = (uint8_t)rand();
	snprintf(w->dir, sizeof(w->dir), "/tmp/elastic.XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	w->key_fd = key_file(key, sizeof(key), w->key);
	assert_true(w->key_fd >= 0);
	for (unsigned i = 0; i < servers; i++) {
		uint16_t port = test_port();

		assert_int_not_equal(port, 0);
		n += (size_t)snprintf(w->list + n, sizeof(w->list) - n, "%s127.0.0.1:%u",
				      i > 0 ? "+" : "", port);
	}
}

/* As if no server had been there. */
static inline void forget_marks(struct world *w)
{
	char path[64];

	for (unsigned i = 0; i < w->servers; i++) {
		snprintf(path, sizeof(path), "%s/%u", w->dir, i);
		(void)unlink(path);
	}
}

static inline void server_start(struct world *w, unsigned i, with_fn with)
{
	w->pid[i] = child();
	if (w->pid[i] == 0)
		server_main(w, i, with);
}

static inline void servers_start(struct world *w, with_fn with)
{
	for (unsigned i = 0; i < w->servers; i++)
		server_start(w, i, with);
	for (unsigned i = 0; i < w->servers; i++)
		await(get(&w->b->server[i].up));
}

/* What a server shows after this it has seen after it. */
static inline void look_again(struct world *w, unsigned i)
{
	set(&w->b->server[i].up, 0);
	await(get(&w->b->server[i].up));
}

static inline void server_kill(struct world *w, unsigned i)
{
	assert_int_equal(kill(w->pid[i], SIGKILL), 0);
	assert_int_equal(waitpid(w->pid[i], NULL, 0), w->pid[i]);
	w->pid[i] = 0;
	set(&w->b->server[i].up, 0);
}

static inline void world_close(struct world *w)
{
	for (unsigned i = 0; i < w->servers; i++) {
		set(&w->b->stop[i], 1);
		if (w->pid[i] != 0)
			ended(w->pid[i]);
	}
	close(w->key_fd);
	forget_marks(w);
	assert_int_equal(rmdir(w->dir), 0);
	munmap(w->b, sizeof(*w->b));
}

#endif
