/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of hosts have open: a fabric with locks, a host, a ring there; and a holder that is no host's. */
#ifndef VB_TESTS_HOST_WORLD_H
#define VB_TESTS_HOST_WORLD_H

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <verbena/host.h>
#include <verbena/names.h>
#include <verbena/txn.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "child.h"
#include "own_memory.h"

#define MS          1000000ull
#define PATIENCE_MS 60000
#define PATIENCE_NS (PATIENCE_MS * MS)
#define LEASE_NS    (120000 * MS)
#define LOCKS       16

static struct {
	struct memory *memory;
	struct vb_fabric *fabric;
	struct vb_lock_space *space;
	struct vb_lock_server *server;
	struct vb_lock_client *holder;
	struct vb_grant held;
	struct vb_host *host;
	struct vb_ring *ring;
} w;

/* What is refused says so on whichever thread: a line that is expected is kept off the screen. */
static inline void quiet(bool on)
{
	assert_int_equal(vb_log_levels(on ? "off" : "warn"), 0);
}

static inline void open_fabric(const char *fabric)
{
	const struct vb_fabric_params fp = {.fabric = fabric, .node_bytes = 64u << 20};

	if (strcmp(fabric, "own") == 0) {
		w.memory = memory_new(1, 8u << 20, BUG_NONE);
		assert_non_null(w.memory);
		assert_int_equal(vb_fabric_provide(&w.memory->p, &w.fabric), 0);
	} else
		assert_int_equal(vb_fabric_open(&fp, &w.fabric), 0);
}

static inline void open_world(const char *fabric, const char *lock)
{
	const struct vb_lock_space_params sp = {.lock = lock, .locks = LOCKS, .lease_ns = LEASE_NS};

	memset(&w, 0, sizeof(w));
	open_fabric(fabric);
	assert_int_equal(vb_lock_space_open(w.fabric, &sp, &w.space), 0);
	assert_int_equal(vb_lock_server_thread_start(w.space, 0, &w.server), 0);
	assert_int_equal(vb_lock_client_open(w.space, 0, &w.holder), 0);
	assert_int_equal(vb_host_open(NULL, &w.host), 0);
	assert_int_equal(vb_host_ring_open(w.host, NULL, &w.ring), 0);
}

static inline void close_world(void)
{
	assert_int_equal(vb_ring_close(w.ring), 0);
	assert_int_equal(vb_host_close(w.host), 0);
	vb_lock_client_close(w.holder);
	vb_lock_server_stop(w.server);
	assert_int_equal(vb_lock_space_close(w.space), 0);
	assert_int_equal(vb_fabric_close(w.fabric), 0);
	if (w.memory != NULL)
		memory_free(w.memory);
}

static inline struct vb_lock_client *client(void)
{
	struct vb_lock_client *c;

	assert_int_equal(vb_host_client_open(w.host, w.space, 0, &c), 0);
	return c;
}

static inline void hold(uint64_t lock)
{
	assert_int_equal(vb_lock_acquire(w.holder, lock, VB_EXCLUSIVE, PATIENCE_NS, &w.held), 0);
}

static inline void let_go(void)
{
	assert_int_equal(vb_lock_release(w.holder, &w.held), 0);
}

/* The grant is the tag. */
static inline int start(struct vb_lock_client *c, uint64_t lock, uint64_t timeout_ns,
			struct vb_grant *g, uint64_t *id)
{
	return vb_lock_acquire_start(w.ring, c, lock, VB_EXCLUSIVE, timeout_ns, g, g, id);
}

/* The next completion, which is that of `tag` unless this is NULL. */
static inline struct vb_completion next(const void *tag)
{
	struct vb_completion done;

	assert_int_equal(vb_ring_wait(w.ring, PATIENCE_NS), 0);
	assert_int_equal(vb_ring_reap(w.ring, &done, 1), 1);
	if (tag != NULL)
		assert_ptr_equal(done.tag, tag);
	return done;
}

#endif
